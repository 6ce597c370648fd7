"""A NumPy program with loops, conditions and a mask, from unchanged source to C.

A script in cells (`# %%`), for an editor or notebook that knows them, or to run from top to bottom:

    python tutorials/11_any_numpy_program.py

It needs a C compiler.
"""

# %% [markdown]
# # 1. The program
# This is a filter for photographs with dead pixels, as people write it: loops over the picture, a window
# around each pixel, an `if` on values, writes into arrays, and masks that select as many pixels as
# there happen to be. Nothing in it knows about fxlite.

# %%
import numpy as np

import fxlite as fx


def clean(image, limit):
    out = image.copy()
    repaired = np.zeros(image.shape, bool)
    for i in range(1, image.shape[0] - 1):
        for j in range(1, image.shape[1] - 1):
            window = image[i - 1 : i + 2, j - 1 : j + 2]
            around = (window.sum() - image[i, j]) / 8
            if abs(image[i, j] - around) > limit:
                out[i, j] = around
                repaired[i, j] = True
    left = out[~repaired]
    out[~repaired] = (left - left.min()) / (left.max() - left.min())
    return out, np.argwhere(repaired), image[repaired]


rng = np.random.default_rng(0)
photo = np.add.outer(np.linspace(0, 1, 240), np.linspace(0, 1, 320))
rows, columns = rng.integers(2, 238, 9), rng.integers(2, 318, 9)
photo[rows, columns] += 4
wanted = clean(photo, 2.0)
print(f"{len(wanted[1])} dead pixels, the first at {wanted[1][0]}")

# %% [markdown]
# # 2. Compiled when it is called
# `fx.jit` traces the source: loops stay loops, conditions stay conditions, and `argwhere` and
# `image[repaired]` have as many rows as there are dead pixels in this photograph.

# %%
compiled = fx.jit(clean, backend="c")
found = compiled(photo, 2.0)
for one, other in zip(found, wanted):
    np.testing.assert_allclose(one, other, rtol=1e-12)
photo[5, 5] -= 3
print(f"{len(compiled(photo, 2.0)[1])} with another one, by the same code: {len(compiled.versions)} version")

# %% [markdown]
# # 3. The graph
# A loop is a node whose body is a graph of its own; it prints as Python's `for` and `if`. A result
# whose size depends on values is an array with room for all pixels, and a count: the comment at
# `return` says which. `explain` says why loops were kept, and why a new version was needed.

# %%
text = compiled.graph.text(full=True)
print("\n".join(line for line in text.splitlines() if "for " in line or "return" in line))

# %% [markdown]
# # 4. C
# The same program as C source, for a program that knows nothing of Python: the arrays of the results,
# and the counts beside them.

# %%
function = fx.compile(clean, image="f64[240,320]", limit="f64[]", backend="c")
source = function.sources["clean.c"]
print("the picture's loops:")
print("\n".join(line for line in source.splitlines() if "< 239" in line or "< 319" in line))
for one, other in zip(function(photo, np.float64(2)), clean(photo, 2.0)):
    np.testing.assert_allclose(one, other, rtol=1e-12)

# %% [markdown]
# # 5. What is refused
# An array that grows in a loop has no bound. The error names the line and both sizes.


# %%
def growing(x):
    y = x[:1]
    while y.sum() < 9:
        y = np.concatenate([y, x])
    return y


try:
    fx.symbolic_trace(growing, "f64[4]")
except fx.errors.TraceError as error:
    print("refused:", str(error).splitlines()[0])
