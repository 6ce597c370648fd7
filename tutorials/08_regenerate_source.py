"""Source code from a graph: a new file, a patch to an existing file, another dialect, and C.

A script in cells (`# %%`), for an editor or notebook that knows them, or to run from top to bottom:

    python tutorials/08_regenerate_source.py
"""

# %% [markdown]
# # 1. A model as somebody wrote it
# The model is in a file of its own, as models are, with comments, a docstring and a list of blocks.

# %%
import difflib
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import fxlite as fx
from fxlite import nn, passes

MODEL = '''\
"""Small images to ten scores."""

import fxlite.nn.functional as F
from fxlite import nn


class Block(nn.Module):
    """Two convolutions and what comes in."""

    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + x)  # the skip


class Net(nn.Module):
    def __init__(self, width=16, depth=4):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 10)

    def forward(self, images):
        x = self.stem(images)
        for block in self.blocks:
            x = block(x)
        # one number for each channel
        features = x.mean(axis=(2, 3))
        return self.head(features)
'''

folder = Path(tempfile.mkdtemp())
(folder / "model.py").write_text(MODEL)


def imported(path):
    """Import a Python file as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


nn.init.manual_seed(0)
net = imported(folder / "model.py").Net().eval()
gm = fx.symbolic_trace(net, images="f32[B,3,32,32]")
print(len(gm.graph.nodes), "nodes")

# %% [markdown]
# # 2. The graph as a file again
# The trace is a flat list of calls. `source()` turns it into what the author wrote: classes for
# modules, one class for all four blocks, a loop over them, layers with their arguments, the names of
# variables, comments and docstrings. Comments at the ends of lines give the shapes.

# %%
source = gm.source()
print(source)

# %% [markdown]
# # 3. After passes
# Batch normalization is folded into the convolutions' weights. The file is still the same model:

# %%
fused = passes.PassManager([passes.fuse_conv_bn, passes.dce])(gm)
for line in difflib.unified_diff(source.splitlines(), fused.source().splitlines(), n=1, lineterm=""):
    print(line)

# %% [markdown]
# `to_folder` writes the file and its weights, ready to import. The weights keep their
# names; a weight that a pass made is named after its layer.

# %%
fused.to_folder(folder / "fused")
images = np.random.default_rng(0).standard_normal((2, 3, 32, 32), np.float32)
again = imported(folder / "fused" / "net.py").Net.load()
print(*sorted(p.name for p in (folder / "fused").iterdir()))
print("the same to 1e-5:", np.abs(again(images) - net(images)).max() < 1e-5)

# %% [markdown]
# Edit that file, and `reimport` returns its graph: nodes that still compute the same keep their names,
# their `meta` and their places in the original program.

# %%
path = folder / "fused" / "net.py"
path.write_text(path.read_text().replace("y = F.relu(", "y = F.gelu("))
edited = fx.reimport(path, like=fused)
print(fx.diff(fused, edited, context=0))

# %% [markdown]
# # 4. For those who do not have fxlite
# The dialect `numpy` needs only NumPy: functions that NumPy does not have are defined in the file.
# `torch` produces an `nn.Module` that takes the same weights.

# %%
in_numpy = fused.source(dialect="numpy")
print(*re.findall(r"^(?:import|def|class) .*", in_numpy, re.M), sep="\n")
print(in_numpy[in_numpy.index("class Block") :].split("\n\n\n")[0])
print(fused.source(dialect="torch").split("\n\n\n")[1])

# %% [markdown]
# # 5. A patch to the file itself
# A regenerated file is a new one. `fxlite optimize` changes the existing file, and touches nothing in
# it that passes left alone. The patch is verified before it is printed: the patched program, with
# converted weights, computes what the optimized graph computes (docs/patches.md).

# %%
command = [sys.executable, "-m", "fxlite", "optimize", "model.py:Net", "--input"]
command += ["images=f32[B,3,32,32]", "--passes", "fuse_conv_bn"]
if importlib.util.find_spec("libcst"):
    done = subprocess.run([*command, "--diff"], cwd=folder, capture_output=True, text=True)
    print(done.stdout or done.stderr)
else:
    print('pip install "fxlite[patch]" to see it')

# %% [markdown]
# # 6. And C
# The model's file begins with the model: its weights as structs, and the blocks as an array. At its end
# is the function that reads like `forward`: equal layers are a loop.

# %%
compiled = fx.compile(gm)
text = compiled.sources["net.c"]
start = text.index("struct net_weights {")
print(text[start : text.index("};", start) + 2])
print(text[text.rindex("\nint net_run(") :].strip())

# %%
compiled.save(folder / "c")  # a folder that builds and tests itself
print(*sorted(p.name for p in (folder / "c").iterdir()))
if shutil.which("make") and shutil.which("cc"):
    done = subprocess.run(["make", "-s", "-C", folder / "c", "test"], capture_output=True, text=True)
    print(done.stdout if done.returncode == 0 else done.stderr)
shutil.rmtree(folder)
