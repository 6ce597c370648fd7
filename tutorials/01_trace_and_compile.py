"""Trace a model, look at it, rewrite it, and compile it to C that stands on its own.

A script in cells (`# %%`), for an editor or notebook that knows them, or to run from top to bottom:

    python tutorials/01_trace_and_compile.py
"""

# %% [markdown]
# # 1. A model
# `digits.py` holds a classifier of handwritten digits with trained weights: an `nn.Module` whose
# `forward` is plain NumPy. It runs as it stands. The images are real, and it has not seen them.

# %%
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from digits import held_out, trained

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import passes

model = trained()
images, labels = held_out()
scores = model(images)
print(f"{images.shape[0]} images, {np.mean(scores.argmax(axis=1) == labels):.2%} right")

# %% [markdown]
# # 2. Trace
# Tracing runs `forward` once on symbols and records what it does. `B` is a named dim: one graph
# serves every batch size. The text shows what the model computes, with the type of every value and
# the module and line it comes from.

# %%
gm = fx.symbolic_trace(model, x="f32[B,1,8,8]")
print(gm.graph)

# %% [markdown]
# The same as a table. Nodes are plain objects, whose attributes can be read.

# %%
gm.graph.print_tabular()

for node in gm.graph.find_nodes(op="call_function", target="relu"):
    print(f"{node.name}: {node.type} from {node.loc}: {node.loc.expression}")

# %% [markdown]
# # 3. Rewrite
# A pass is a function that edits a graph. This one looks for a `relu` in front of max pooling and
# swaps the two: the results stay the same, and `relu` has a quarter of the values to look
# at. The pass gets a copy; `gm` stays as it was.


# %%
@passes.graph_pass
def pool_before_relu(gm):
    """Max pooling first, then relu: both orders give the same values."""
    for pool in gm.graph.find_nodes(op="call_function", target="max_pool2d"):
        relu = pool.args[0]
        if relu.target is fx.ops.relu and len(relu.users) == 1:
            pool.replace_input_with(relu, relu.args[0])
            pool.replace_all_uses_with(relu)
            relu.replace_input_with(relu.args[0], pool)
            pool.append(relu)


moved = pool_before_relu(gm)
print(fx.diff(gm, moved))
np.testing.assert_array_equal(moved(images), scores)

# %% [markdown]
# The same rewrite as a pattern and its replacement, each an ordinary function. It finds
# `np.maximum(x, 0)` in the model, because every spelling of relu becomes the same node.

# %%
again = gm.copy()
matches = fx.replace_pattern(again, lambda x: F.max_pool2d(F.relu(x), 2), lambda x: F.relu(F.max_pool2d(x, 2)))
print(f"{len(matches)} match")
fx.assert_same(again, moved)

# %% [markdown]
# # 4. Run passes
# A `PassManager` runs passes in order, checks the graph after each and reports what they did. Here
# batch norm disappears into the weights of the convolution in front of it. Our own pass is left
# out, because the next step is C, where `relu` is not a loop of its own anyway: a neighbouring
# kernel computes it along the way, as the pooling kernel below shows.

# %%
manager = passes.PassManager([passes.fuse_conv_bn, passes.cse, passes.dce])
optimized = manager(gm)
print(manager.report)
print(optimized.graph)

# %% [markdown]
# # 5. Python again
# Here is the graph as a Python module that a person could have written; `to_folder` saves it with
# its weights.

# %%
as_python = fx.compile(optimized, backend="python")
for name, text in as_python.sources.items():
    print(f"----- {name}\n{text}")

# %% [markdown]
# # 6. C
# The same for C, written to be readable, compiled with the machine's compiler and loaded. The
# model's file begins with its kernels; what they call is in `NAME_tiles.h` and `fx_math.h`.
# Arguments are checked before any of it runs. (`fx.compile` runs the standard passes itself, so
# passing `model` would work as well.)

# %%
fast = fx.compile(optimized, backend="c")
source = fast.sources["digits.c"]
kernels = [line for line in source.splitlines() if line.startswith("static void k")]
print(f"{len(source.splitlines())} lines of C, {len(kernels)} kernels:", *kernels, sep="\n  ")
print(source[source.index("static void k2") :].partition("\n\n")[0])

difference = np.abs(fast(images) - scores).max()
print(f"largest difference from NumPy: {difference:.1e}, scores go up to {scores.max():.0f}")
try:
    fast(images.astype(np.float64))
except TypeError as error:
    print(f"refused: {error}")

# %% [markdown]
# # 7. A folder that needs no Python
# It holds source, headers, weights, a Makefile, and a self-test with stored inputs and NumPy's outputs.

# %%
folder = Path(tempfile.mkdtemp()) / "digits_c"
fast.save(folder)
print(*sorted(p.name for p in folder.iterdir()), sep="\n")
if shutil.which("make"):
    subprocess.run(["make", "--quiet", "test"], cwd=folder, check=True, env={"CC": "cc", **os.environ})
shutil.rmtree(folder.parent)

# %% [markdown]
# # 8. Check
# Every way to run the model classifies the same number of images correctly.

# %%
for name, run in {"NumPy": model, "Python": as_python, "C": fast}.items():
    print(f"{name:8}{np.mean(run(images).argmax(axis=1) == labels):.2%} right")
assert difference < 1e-4 * np.abs(scores).max()
