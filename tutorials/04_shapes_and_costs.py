"""Named sizes through a model: types on each line, errors that explain themselves, costs as
formulas, memory over time, and one compiled artifact for all sizes.

A script in cells (`# %%`), for an editor or notebook that knows them, or to run from top to bottom:

    python tutorials/04_shapes_and_costs.py
"""

# %% [markdown]
# # 1. Sizes have names
# This is a block of a language model. It takes `B` texts of `T` words each: neither is known when the
# model is written. `fx.dims` makes the names and says what is known about them. Types use them:
# `fx.float32[B, T, 64]`; where there is nothing to say, the text `"f32[B,T,64]"` means the same.

# %%
import shutil
import tempfile
from pathlib import Path

import numpy as np

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, passes


class Block(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def attention(self, x):
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (y.reshape(shape).swapaxes(1, 2) for y in np.split(self.qkv(x), 3, axis=-1))
        scores = q @ k.swapaxes(-1, -2) / np.float32((width // self.heads) ** 0.5)
        return self.out((F.softmax(scores, -1) @ v).swapaxes(1, 2).reshape(x.shape))

    def forward(self, x):
        assert x.shape[1] <= 512, "longer texts have to be cut"
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


B, T = fx.dims("B T", min=1, multiple_of={"T": 8})
model = Block().eval()
gm = fx.symbolic_trace(model, x=fx.float32[B, T, 64])

# %% [markdown]
# # 2. A type on each line
# Every value has its shape in terms of these names: nothing was run, and nothing was guessed.

# %%
print(gm.graph)

# %% [markdown]
# The same by module, with parameters and FLOPs:

# %%
print(gm.summary())

# %% [markdown]
# # 3. What must hold
# `min`, `multiple_of` and the program's own `assert` are conditions of the graph. They decide
# comparisons during tracing, and are checked when the model is called; an error names the line.

# %%
for condition in gm.graph.conditions():
    print(condition)
try:
    gm(np.zeros((1, 520, 64), np.float32))
except ValueError as error:
    print("refused:", error)

# %% [markdown]
# # 4. A shape error explains itself
# Here the parts of a model do not fit: the error says which sizes differ, and where each comes
# from.


# %%
class Wrong(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(64, 256), nn.Linear(255, 64)

    def forward(self, x):
        y = F.gelu(self.up(x))
        return self.down(y)


try:
    fx.symbolic_trace(Wrong(), x="f32[B,T,64]")
except fx.errors.FxliteError as error:
    print(error)

# %% [markdown]
# # 5. Costs are formulas
# FLOPs, bytes and memory are formulas in the same names; `*` and `**` are Python's.

# %%
report = passes.cost(gm)
print(report)

# %% [markdown]
# You can substitute sizes, make a table, or draw a curve.

# %%
print(report.evaluate(B=8, T=128).total)
print(report.table(B=1, T=[64, 128, 256, 512]))
folder = Path(tempfile.mkdtemp())
report.plot("flops", folder / "flops.svg", B=1, T=range(8, 513, 8))

# %% [markdown]
# The attention matrix grows with the square of `T`. From which `T` on does it take more FLOPs than
# everything else? The formulas are sympy expressions, so you can compute with them.

# %%
flops = report.total.flops
square = flops.coeff(T, 2) * T**2
print("attention:", square, "  the rest:", flops - square)
print("attention takes more from T =", int((flops - square) / square * T) + 1)

# %% [markdown]
# Which is the better order for the product of three matrices? That depends on `N`, and the costs
# say how: the comparison holds for all sizes.

# %%
matrices = "f32[N,64]", "f32[64,64]", "f32[64,64]"
left = fx.symbolic_trace(lambda x, a, b: x @ a @ b, *matrices)
right = fx.symbolic_trace(lambda x, a, b: x @ (a @ b), *matrices)
print("x @ (a @ b) takes fewer FLOPs for", passes.pays_when(left, right, "N", by="flops"))
(passes.cost(right) - passes.cost(left)).plot("flops", folder / "order.svg", N=range(1, 201))

# %% [markdown]
# # 6. Memory over time
# The timeline shows which values are held while each node runs, and when they take the most memory.

# %%
timeline = passes.memory_timeline(gm, {"B": 1, "T": 128})
print(timeline)
timeline.to_svg(folder / "memory.svg")
print(sorted(path.name for path in folder.iterdir()))
shutil.rmtree(folder)

# %% [markdown]
# # 7. One artifact for all sizes
# Compiled C takes the sizes at run time: one build serves them all. It plans its memory by a
# formula, and checks the same conditions.

# %%
fn = fx.compile(gm, backend="c")
print("workspace:", fn.memory_plan(B=1, T=8).formula)
generator = np.random.default_rng(0)
worst = 0.0
for batch, length in [(1, 8), (3, 24), (2, 128), (1, 512)]:
    x = generator.normal(size=(batch, length, 64)).astype(np.float32)
    worst = max(worst, float(np.abs(fn(x) - model(x)).max()))
print(f"largest difference from NumPy in four sizes: {worst:.1e}")
assert worst < 1e-4
for shape in [(1, 12, 64), (1, 520, 64), (1, 8, 60)]:
    try:
        fn(np.zeros(shape, np.float32))
    except ValueError as error:
        print("refused:", error)

# %% [markdown]
# # 8. Fixed sizes
# Where only one size is needed, `specialize` substitutes it, and the graph remembers that. A size that
# violates a condition is refused.

# %%
fixed = gm.specialize(T=128)
print(fixed.graph.placeholders[0].format_node().strip())
print(passes.cost(fixed).total.flops)
try:
    fixed(np.zeros((1, 64, 64), np.float32))
except ValueError as error:
    print("refused:", error)
try:
    gm.specialize(T=12)
except fx.errors.FxliteError as error:
    print("refused:", error)

# %% [markdown]
# The same on the command line:
#
#     fxlite trace model.py:Block --input "x=f32[B,T,64]" --tree
#     fxlite cost model.py:Block --input "x=f32[B,T,64]" --size B=1 --range T=64,128,256,512
#     fxlite cost model.py:Block --input "x=f32[B,T,64]" --size B=1 --size T=128 --timeline
