"""A pass does not fire: find out where, why, what that costs, and what to change.

A script in cells (`# %%`), for an editor or notebook that knows them, or to run from top to bottom:

    python tutorials/03_when_a_pass_does_not_fire.py
"""

# %% [markdown]
# # 1. A model by several authors
# The model has three layers, each a convolution, batch norm and hard swish,
# `x * clip(x + 3, 0, 6) / 6`, which each author wrote differently.

# %%
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, passes


class Layer(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.bn = nn.BatchNorm2d(outputs)

    def forward(self, x):
        y = self.bn(self.conv(x))
        return y * np.clip(y + 3, 0, 6) / 6


class WithReLU6(Layer):
    def forward(self, x):
        y = self.bn(self.conv(x))
        return F.relu6(y + 3) * y / 6


class WithSkip(Layer):
    def forward(self, x):
        y = self.conv(x)
        z = self.bn(y)
        gate = np.clip(z + 3, 0, 6)
        return gate * z / 6 + y * gate.mean(axis=(2, 3), keepdims=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(Layer(3, 16), WithReLU6(16, 16), WithSkip(16, 32))
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        return self.head(self.layers(x).mean(axis=(2, 3)))


gm = fx.symbolic_trace(Net().eval(), x="f32[B,3,32,32]")

# %% [markdown]
# # 2. Ask the ledger
# Fold batch norm into the convolutions, and replace hard swish by the op of that name. Afterwards
# the ledger lists every place that a pass looked at and left alone: which it is, why, and what it
# costs, the most expensive first. The bytes are those of intermediate values that need not be stored.


# %%
@passes.rule(exactness="allclose")
def hard_swish(x):
    """x * clip(x + 3, 0, 6) / 6 is hardswish(x)."""
    return x * np.clip(x + 3, 0, 6) / 6


@hard_swish.replacement
def _(x):
    return F.hardswish(x)


hard_swish.example(lambda x: np.clip(x + 3, 0, 6) * x / 6, "in the other order", x="f32[4]")
hard_swish.counterexample(lambda x: x * np.clip(x + 2, 0, 6) / 6, "not 3", x="f32[4]")
passes.check_examples(hard_swish)

manager = passes.PassManager([passes.fuse_conv_bn, hard_swish, "dce"])
fused = manager(gm)
print(manager.report)
print(passes.ledger(fused))

# %% [markdown]
# Both entries are about the third layer, and both are right: the layer reads the result of the
# convolution, and the gate, a second time. The ledger is a list, and its entries are data.

# %%
for entry in passes.ledger(fused):
    assert "layers.2" in entry.origin
    print(f"{entry.pass_name} at {entry.node}: {entry.reason}; {entry.bytes} bytes")

# %% [markdown]
# # 3. Ask the rule
# The second layer is not in the ledger: the rule does not fit there at all. `explain` looks for
# places where the pattern almost fits, the best first. It shows the difference in both sources,
# the pattern's and the model's, and the smallest change of the pattern that would make it fit.

# %%
explanation = hard_swish.explain(fused)
print(explanation)

# %% [markdown]
# Or ask about one node: "why not here?" `find` locates the node by its module and op.

# %%
(place,) = fused.graph.find('module("layers.2") div')
print(hard_swish.explain(fused, place.last))

# %% [markdown]
# `F.relu6` is an op of its own, so it needs a second rule. (`fx.replace_pattern` and
# `passes.find_matches` are explained by `passes.explain(gm, pattern)` in the same way.)


# %%
@passes.rule(exactness="allclose", register=False)
def hard_swish_relu6(x):
    """x * relu6(x + 3) / 6 is hardswish(x)."""
    return x * F.relu6(x + 3) / 6


hard_swish_relu6.replacement(F.hardswish)
hard_swish_relu6.example(lambda x: x * F.relu6(x + 3) / 6, x="f32[4]")

# %% [markdown]
# # 4. Several rules
# A `RuleSet` applies rules until none fires, and counts what each of them did.

# %%
activations = passes.RuleSet([hard_swish, hard_swish_relu6], name="activations")
fused = passes.PassManager([passes.fuse_conv_bn, activations, "dce"])(gm)
print(activations.statistics)
print(len(fused.graph.find("hardswish")), "hardswish")

# %% [markdown]
# Rules that undo each other would run forever. The set stops and names them; `analyze_rules` finds
# such loops before there is a model, by trying the rules on each other's examples. It also finds
# rules that never fire, and pairs that give different graphs depending on their order.


# %%
@passes.rule(exactness="allclose", register=False)
def factor_out(a, b, c):
    return a * b + a * c


@passes.rule(exactness="allclose", register=False)
def multiply_out(a, b, c):
    return a * (b + c)


factor_out.replacement(multiply_out.program)
multiply_out.replacement(factor_out.program)
three = dict.fromkeys("abc", "f32[4]")
factor_out.example(factor_out.program, **three)
multiply_out.example(multiply_out.program, **three)

print(passes.analyze_rules([factor_out, multiply_out]))
try:
    passes.RuleSet([factor_out, multiply_out])(lambda x, y: x * y + x * 2)
    raise AssertionError("the rules ended")
except passes.PassError as error:
    print(f"refused: {error}")

# %% [markdown]
# # 5. Ask the graph
# `find` takes queries like those of CSS: `a > b` is a `b` that reads an `a`. Which convolutions
# are still in front of a batch norm? Which of their results are read more than once? What is left of
# the first layer, and which values are the largest?

# %%
for query in (
    "conv2d > batch_norm",
    "conv2d:users(>1)",
    'module("layers.0") *',
    "[bytes>100kB]:last",
    "batch_norm[training=True]",
):
    found = fused.graph.find(query, {"B": 1})
    print(f"{query:28} {', '.join(match.last.name for match in found) or '-'}")

# %% [markdown]
# # 6. A model that does not trace
# A branch or a loop on values is captured from its source. What no graph can hold is refused: an
# error, or a size, that depends on a value. The trace doctor carries on and lists all problems
# at once, each with its line and with what to write instead.


# %%
class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        if np.abs(x).max() > 1e6:
            raise ValueError("x is too large")
        y = self.fc(x)
        while y.mean() > 0.1:
            y = y - y.mean()
        return np.repeat(y.ravel(), np.maximum(y, 0).ravel().astype(int))


diagnosis = fx.trace_doctor(Scorer(), x="f32[B,8]")
print(diagnosis)


class Fixed(Scorer):
    def forward(self, x):
        y = self.fc(x)
        while y.mean() > 0.1:
            y = y - y.mean()
        return np.repeat(y.ravel(), np.minimum(np.maximum(y, 0).ravel().astype(int), 4))


x = np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32)
scorer, fixed = Scorer(), Fixed()
fixed.load_state_dict(scorer.state_dict())
print("fixed:", fx.trace_doctor(fixed, x="f32[B,8]"))
found = fx.symbolic_trace(fixed, x="f32[B,8]")(x)
np.testing.assert_allclose(found, scorer(x), rtol=1e-5)

# %% [markdown]
# # 7. Keep it that way
# `fxlite check` fails a build when a model grows, or contains what it should not. Here it finds the
# layers of the digits classifier that still have a batch norm (no pass has run on it).


# %%
def shell(command):
    """Run a command line of fxlite in the folder of the tutorials; returns its exit status."""
    print(f"$ {command}")
    words = [sys.executable, "-m", *shlex.split(command)]
    folder = Path(__file__).parent
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, encoding="utf-8")
    print(done.stdout + done.stderr)
    return done.returncode


digits = "digits.py:Digits --input 'x=f32[8,1,8,8]'"
assert shell(f"fxlite check {digits} --max-peak 1MB --no-match '[dtype=f64]'") == 0
assert shell(f"fxlite check {digits} --no-match 'conv2d > batch_norm'") == 1
