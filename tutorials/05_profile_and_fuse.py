"""Profile a model, find the slow spot, write a fusion, and predict and measure what it gains.

A script in cells (`# %%`), for an editor or notebook that knows them, or to run from top to bottom:

    python tutorials/05_profile_and_fuse.py
"""

# %% [markdown]
# # 1. A model
# It scores a text on 400 topics: each word gets a vector, a normalization and an activation,
# both written by hand, then a score for each topic; the text's scores are the mean of its words'.

# %%
import shutil
import tempfile
from pathlib import Path

import numpy as np

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, passes
from fxlite.passes.profiling.tables import blame_text


class Topics(nn.Module):
    def __init__(self, words=1000, width=64, topics=400):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.mix = nn.Linear(width, width)
        self.topic = nn.Linear(width, topics)

    def forward(self, words):
        x = self.words(words)
        x = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6)
        y = self.mix(x)
        x = x + y / (1 + np.exp(-y))
        return self.topic(x).mean(axis=1)


model = Topics().eval()
gm = fx.symbolic_trace(model, words="i64[B,T]")
words = np.random.default_rng(0).integers(0, 1000, (4, 128))

# %% [markdown]
# # 2. Where does the time go?
# `passes.profile` measures each node as NumPy runs it, and compares the time with the machine's limits.

# %%
profile = passes.profile(gm, words)
print(profile)

# %% [markdown]
# Compiled to C, the model has few kernels: the ops in one row are computed in one loop. The same
# table follows by source line, and `blame` shows the file with the time of each line.

# %%
compiled = passes.profile(gm, words, backend="c")
print(compiled)
print(blame_text(compiled, __file__))

# %% [markdown]
# The last line takes most of the time. Its kernel is a matrix product, and it comes close to what the
# machine can do ("bound"), so making the kernel faster would gain little. Less work would help: the
# mean of a linear layer's results is the layer applied to the mean of its inputs, and then there is
# one row to multiply for each text instead of one for each word.

# %% [markdown]
# # 3. A fusion
# The pattern is how the model writes it, the replacement how it should be computed. `where` refuses
# what would not be the same: a mean over the axis that the layer multiplies.


# %%
@passes.rule(exactness="allclose", register=False)
def mean_first(x, weight, bias=None):
    """A linear layer's mean over an axis is the layer of the mean."""
    return F.linear(x, weight, bias).mean(axis=1)


@mean_first.replacement
def _(x, weight, bias):
    return F.linear(x.mean(axis=1), weight, bias)


@mean_first.where
def _(x):
    return len(x.type.shape) > 2 or "axis 1 is the one that is multiplied"


W, b = np.ones((3, 8), np.float32), np.ones(3, np.float32)
mean_first.example(lambda x: F.linear(x, W, b).mean(1), "with a bias", x="f32[2,5,8]")
mean_first.counterexample(lambda x: F.linear(x, W).mean(1), "two axes", x="f32[5,8]")
passes.check_examples(mean_first)

# %% [markdown]
# # 4. What should it gain?
# Costs are formulas in `B` and `T`: compare them, ask from which size on the fusion pays, and draw
# both.

# %%
fused = mean_first(gm)
comparison = passes.cost(fused) - passes.cost(gm)
print(comparison)
print("fewer FLOPs:", comparison.pays_when("T", by="flops"))
print("fewer bytes:", comparison.pays_when("T", by="bytes", B=4))
folder = Path(tempfile.mkdtemp())
comparison.plot("flops", folder / "flops.svg", T=range(1, 257), B=4)
print(sorted(path.name for path in folder.iterdir()))
shutil.rmtree(folder)

# %% [markdown]
# # 5. What does it gain?
# `before_after` runs the program before and after each pass, alternately. "predicted" is the change in
# the least time that the machine's roofs allow, "measured" the change in measured time, with its noise.
# In C, everything that `fx.compile` does by itself happens on both sides: what is left is the pass's gain.

# %%
for backend in ("python", "c"):
    print(passes.before_after(gm, words, passes=[mean_first], backend=backend))

# %% [markdown]
# # 6. Is every fusion a gain?
# The activation written by hand is `silu`: four nodes become one. But in C the four were one loop already,
# part of the kernel of the linear layer before them. There are as many kernels after as before, so
# no gain is predicted, and the measurement shows whether the other way to compute it is any faster. That
# is good to know before somebody maintains a pass for it.


# %%
@passes.rule(exactness="allclose", register=False)
def silu(x):
    """x / (1 + exp(-x)) is silu(x)."""
    return x / (1 + np.exp(-x))


silu.replacement(F.silu)

effects = passes.before_after(gm, words, passes=[mean_first, silu], backend="c")
print(effects)
step = effects["silu"]
print(f"silu: {step.before.parts} kernels before, {step.after.parts} after")

# %% [markdown]
# # 7. And now?
# The result equals that of the model. Profiled again, another line comes first.

# %%
fast = fx.compile(fused)
difference = np.abs(fast(words) - model(words)).max()
print(f"largest difference from NumPy: {difference:.1e}")
assert difference < 1e-4
for entry in passes.profile(fused, words, backend="c").by_line():
    print(f"{entry.label}: {1e6 * entry.seconds:.0f} µs")

# %% [markdown]
# The same works on the command line, for passes in a file of their own, and for the passes that
# `fxlite compile` runs:
#
#     fxlite profile model.py:Topics --input "words=i64[B,T]" --backend c
#     fxlite blame model.py:Topics --input "words=i64[B,T]" --backend c
#     fxlite cost model.py:Topics --input "words=i64[B,T]" --passes my_passes.py:mean_first
#     fxlite profile model.py:Topics --input "words=i64[B,T]" --passes my_passes.py:mean_first
#     fxlite profile model.py:Topics --input "words=i64[B,T]" --passes standard
