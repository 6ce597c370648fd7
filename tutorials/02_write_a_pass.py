"""Write a pass as a loop and as a rule, check it, undo it, test it, and compile the result.

A script in cells (`# %%`), for an editor or notebook that knows them, or to run from top to bottom:

    python tutorials/02_write_a_pass.py
"""

# %% [markdown]
# # 1. A model
# This is the feed-forward block of many language models, written as people write it: its activation
# `x / (1 + exp(-x))` is spelled out, and two linear layers read the same input.

# %%
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, passes
from fxlite.passes import predicates


class GatedMLP(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width)

    def forward(self, x):
        y = self.norm(x)
        gate = self.gate(y)
        gate = gate / (1 + np.exp(-gate))
        return x + self.down(gate * self.up(y))


model = GatedMLP(16, 64).eval()
gm = fx.symbolic_trace(model, x="f32[B,T,16]")
print(gm.graph)

# %% [markdown]
# Every line is a node. The place to change can be found as one finds elements of a web page:
# a `div` that reads an `add` that reads an `exp`.

# %%
(place,) = gm.graph.find("exp > add > div")
div = place.last
print(place)
print(f"{div.format_node().strip()}   {div.loc}: {div.loc.expression}")

# %% [markdown]
# # 2. A pass is a loop
# A pass is a function that edits `gm.graph`; the method names are torch.fx's. This one looks at every
# division. Most of it consists of questions: is `1` on the left or on the right of `+`? Is it the same
# `x` twice? `with_origin` gives the new node the module and line of the old one. `exactness` is the
# promise of the pass: results may differ by rounding, and by nothing else.


# %%
def calls(node, op):
    """True if `node` is a call of `op`."""
    return isinstance(node, fx.Node) and node.op == "call_function" and node.target is op


@passes.graph_pass(exactness="allclose")
def silu_by_hand(gm):
    """x / (1 + exp(-x)) is silu(x)."""
    for div in gm.graph.find_nodes(op="call_function", target="div"):
        x, below = div.args
        if not (calls(below, fx.ops.add) and 1 in below.args):
            continue
        exp = below.args[0] if below.args[1] == 1 else below.args[1]
        if calls(exp, fx.ops.exp) and calls(exp.args[0], fx.ops.neg) and exp.args[0].args[0] is x:
            with gm.graph.inserting_before(div), gm.graph.with_origin(div):
                silu = gm.graph.call_function(fx.ops.silu, (x,))
            div.replace_all_uses_with(silu)
    gm.graph.eliminate_dead_code()


by_hand = silu_by_hand(gm)  # a new module: gm stays as it was
print(fx.diff(gm, by_hand))

# %% [markdown]
# # 3. The same as a rule
# The pattern and its replacement are plain functions. The pattern is traced as the model is, so it
# finds every spelling: the operands of `+` in either order, `np.exp` or `fx.ops.exp`.


# %%
@passes.rule(exactness="allclose")
def silu(x):
    """x / (1 + exp(-x)) is silu(x)."""
    return x / (1 + np.exp(-x))


@silu.replacement
def _(x):
    return F.silu(x)


fx.assert_same(silu(gm), by_hand)

# %% [markdown]
# A rule comes with an example that it must change and one that it must leave alone. `check_examples`
# runs both, checks that what changes computes the same, and is all that the test of a rule needs.

# %%
silu.example(lambda x: x / (np.exp(-x) + 1), "in the other order", x="f32[4]")
silu.counterexample(lambda x, y: x / (1 + np.exp(-y)), "two values", x="f32[4]", y="f32[4]")
passes.check_examples(silu)

# %% [markdown]
# # 4. What a pattern can say
# `bias=None` means that the bias may be missing, and `scale`, after the `*`, is any number. `where`
# checks what a pattern cannot express, and returns True or a reason. Scaling the weights instead of
# the results is work that `const_fold` does once, before the model runs.


# %%
@passes.rule(exactness="allclose")
def scale_weights(x, weight, bias=None, *, scale):
    """A linear layer times a number is a linear layer."""
    return F.linear(x, weight, bias) * scale


@scale_weights.replacement
def _(x, weight, bias, scale):
    return F.linear(x, weight * scale, None if bias is None else bias * scale)


@scale_weights.where
def _(weight):
    return predicates.constant(weight) or f"{weight.name} is computed, so scaling it is no gain"


W, b = np.ones((3, 8), np.float32), np.ones(3, np.float32)
scale_weights.example(lambda x: F.linear(x, W) * 0.5, "no bias", x="f32[4,8]")
scale_weights.example(lambda x: 2 * F.linear(x, W, b), "with a bias", x="f32[4,8]")
scale_weights.counterexample(lambda x, w: 2 * F.linear(x, w), "the weight is an input", x="f32[4,8]", w="f32[3,8]")
passes.check_examples(scale_weights)

# %% [markdown]
# A pattern with several results replaces them all. This one is for `gate` and `up`: two matrix products
# of one input become one of twice the width. The replacement may use shapes, because it is
# traced with the types found at each place.


# %%
@passes.rule(exactness="allclose")
def join_linears(x, a, b):
    """Two linear layers of one input are one."""
    return F.linear(x, a), F.linear(x, b)


@join_linears.replacement
def _(x, a, b):
    both = F.linear(x, np.concatenate((a, b)))
    return both[..., : a.shape[0]], both[..., a.shape[0] :]


@join_linears.where
def _(a, b):
    return (predicates.constant(a) and predicates.constant(b)) or "a weight is computed"


join_linears.example(lambda x: F.linear(x, W) + F.linear(x, 2 * W), "one input", x="f32[4,8]")
join_linears.counterexample(lambda x, y: F.linear(x, W) + F.linear(y, W), "two inputs", x="f32[4,8]", y="f32[4,8]")
passes.check_examples(join_linears)

# %% [markdown]
# # 5. Run it, checked
# The manager runs passes one after another and checks each: the graph is linted, and what changed
# is run before and after on random inputs (odd sizes, zeros, large numbers, NaN, infinity).

# %%
manager = passes.PassManager([silu, join_linears, "const_fold", "dce"])
fused = manager(gm)
print(manager.report)
print(fx.diff(gm, fused))

# %% [markdown]
# # 6. Undo it
# Each pass is a transaction. `undo` takes back the last one, weights included; the report still
# has the module after each pass.

# %%
after_silu = manager.report[0].module
while True:
    label = fused.undo()
    print(f"undone: {label}")
    if label == "join_linears":
        break
fx.assert_same(fused, after_silu)

# %% [markdown]
# Your own edits become a transaction with `with`; when the body raises, the graph is as it was.

# %%
try:
    with fused.graph.transaction("half an edit"):
        for node in fused.graph.find_nodes(op="call_function", target="silu"):
            node.target = fx.ops.tanh
        raise RuntimeError("something went wrong")
except RuntimeError:
    fx.assert_same(fused, after_silu)
    print("rolled back")

# %% [markdown]
# # 7. A wrong pass
# `relu` looks like `silu` and is cheaper, so this pass swaps one op. The results differ, and the
# manager says so: it names the rewrite, the line of the model and the input, and it writes a
# file that shows the difference and needs nothing but fxlite.


# %%
@passes.graph_pass
def cheaper_activation(gm):
    """Use relu for silu."""
    for node in gm.graph.find_nodes(op="call_function", target="silu"):
        node.target = fx.ops.relu


try:
    passes.PassManager(["silu", "dce", cheaper_activation])(gm)
    raise AssertionError("the manager let a wrong pass through")
except passes.PassError as error:
    print(error)
    repro = Path(error.repro)

shown = subprocess.run([sys.executable, repro], capture_output=True, text=True)
print(f"the file ends with status {shown.returncode}:\n{shown.stdout.strip()}")
shutil.rmtree(repro.parent)

# %% [markdown]
# Where different results are intended, as in quantization, the pass says so: `exactness="sqnr"`
# bounds the noise. And `PassManager(..., check="lint")` does not run anything.

# %% [markdown]
# # 8. Compile
# `fx.compile` runs the standard passes and turns the result into C. It agrees with NumPy.

# %%
fused = manager(gm)
fast = fx.compile(fused, backend="c")
x = np.random.default_rng(0).normal(size=(2, 5, 16)).astype(np.float32)
difference = np.abs(fast(x) - model(x)).max()
print(f"largest difference from NumPy: {difference:.1e}")
assert difference < 1e-5

# %% [markdown]
# # 9. A file of its own
# `fxlite new-pass` writes a working pass, with examples and a test, to start from.

# %%
with tempfile.TemporaryDirectory() as folder:
    command = [sys.executable, "-m", "fxlite", "new-pass", "my_fusion", "--rule", "-o", folder]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    print(*sorted(path.name for path in Path(folder).iterdir()), sep="\n")
