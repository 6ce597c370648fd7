"""From a ResNet block and a transformer block in NumPy to their C code, read kernel by kernel.

A script in cells (`# %%`), for an editor or notebook that knows them, or to run from top to bottom:

    python tutorials/06_from_numpy_to_fast_c.py
"""

# %% [markdown]
# # 1. A ResNet block
# The block has two 3×3 convolutions with batch normalization, and a sum. It runs on NumPy arrays as it stands.

# %%
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, passes


class ResNetBlock(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + x)


block = ResNetBlock().eval()
gm = fx.symbolic_trace(block, x="f32[B,32,28,28]")
fn = fx.compile(gm)

# %% [markdown]
# # 2. What the passes did
# `optimized` is the graph from which C was emitted. The batch normalizations are gone: they are a factor
# and a term for each channel, and `fuse_conv_bn` put both into the convolutions' weights.

# %%
print(fn.optimized)
for kernel in fn.kernels:
    print(f"{kernel.name}: {' -> '.join(node.target.name for node in kernel.nodes)}")

# %% [markdown]
# # 3. Reading the source from the end
# A file ends with the function to call. It says where each weight and each value is stored, and then
# has one line for each kernel: what it reads, what it writes, and the type of what it computes.


# %%
def run_function(fn):
    """The last function of the source, which calls the kernels."""
    source = next(text for name, text in fn.sources.items() if name.endswith(".c"))
    return source[source.rindex("\nint ") :].strip()


def heading(fn, number):
    """What kernel number `number` says about itself: the comment before its function."""
    source = next(text for name, text in fn.sources.items() if name.endswith(".c"))
    start = re.search(rf"^static void {fn.kernels[number].name}\(", source, re.M).start()
    return source[source.rindex("/* ", 0, start) : start].strip()


print(run_function(fn))
print(heading(fn, 1))

# %% [markdown]
# The second kernel computes three nodes of the graph: convolution, sum and relu. The sum and the
# relu are its *epilogue*: they are applied to a finished tile while it is in the cache, so that
# the convolution's own result is never in memory. Here is that place:

# %%
source = fn.sources["resnet_block.c"]
lines = source[source.index(f"static void {fn.kernels[1].name}(") :].splitlines()
place = next(i for i, line in enumerate(lines) if "fx_maximum_f32" in line)
print("\n".join(line[20:] for line in lines[place - 3 : place + 2]))

# %% [markdown]
# # 4. Why this plan?
# The comment names it: Winograd's algorithm, which computes 4×4 output pixels with 36 products per
# pair of channels, where the definition has 144. It suits a 3×3 kernel of stride 1 between
# many channels. Other convolutions get other plans; each heading says which, and why.

# %%
for title, layer, size in [
    ("3×3, stride 2", nn.Conv2d(32, 64, 3, stride=2, padding=1), "f32[B,32,28,28]"),
    ("1×1", nn.Conv2d(32, 64, 1), "f32[B,32,32,32]"),
    ("depthwise", nn.Conv2d(32, 32, 3, padding=1, groups=32), "f32[B,32,28,28]"),
    ("first layer", nn.Conv2d(3, 32, 3, padding=1), "f32[B,3,32,32]"),
]:
    print(f"--- {title}\n{heading(fx.compile(layer, size), 0)}")

# %% [markdown]
# Fewer products have a price: sums of transformed pixels round differently. The transforms' points
# are chosen for a small error; here is a comparison with float64.

# %%
x = np.random.default_rng(0).standard_normal((2, 32, 28, 28)).astype(np.float32)
exact = ResNetBlock().double().eval()
exact.load_state_dict({k: np.asarray(v, np.float64) for k, v in block.state_dict().items()})
expected = exact(x.astype(np.float64))
error = np.abs(fn(x) - expected).max() / np.abs(expected).max()
print(f"error of C {error:.1e} of the largest result")
assert error < 1e-5

# %% [markdown]
# # 5. A transformer block


# %%
class Block(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 256), nn.GELU(), nn.Linear(256, width))

    def split(self, x):  # [B,T,width] -> [B,heads,T,width/heads]
        return x.reshape(*x.shape[:2], self.heads, -1).transpose(0, 2, 1, 3)

    def attention(self, x):
        q, k, v = (self.split(layer(x)) for layer in (self.query, self.key, self.value))
        scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(np.float32(q.shape[-1]))
        y = F.softmax(scores, axis=-1) @ v
        return self.out(y.transpose(0, 2, 1, 3).reshape(x.shape))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


transformer = Block().eval()
model = fx.symbolic_trace(transformer, x="f32[B,T,64]")
fn = fx.compile(model)
for kernel in fn.kernels:
    print(f"{kernel.name}: {' -> '.join(node.target.name for node in kernel.nodes)}")

# %% [markdown]
# Two passes matter here. `merge_linears` made one product of query, key and value, which read the
# same rows; its parts are slices, which cost nothing. `fuse_attention` recognized attention in what
# the program writes out, and replaced it by the op that has a kernel. The counts before and after:

# %%
names = [n.target.name for n in fn.optimized.graph.nodes if n.op == "call_function"]
print(f"{names.count('linear')} linear, {names.count('softmax')} softmax")
print(f"{names.count('scaled_dot_product_attention')} attention")

# %% [markdown]
# In the attention kernel, a tile of queries times a block of keys becomes scores in the cache, then
# weights, which are multiplied by the values there. The matrix [T,T] of scores is never stored:

# %%
attention = next(i for i, k in enumerate(fn.kernels) if k.anchor and "attention" in k.anchor.name)
print(heading(fn, attention))
memory = {steps: fn.workspace_bytes({"B": 1, "T": steps}) for steps in (1024, 2048)}
print(f"workspace grows {memory[2048] / memory[1024]:.1f} times where T doubles")

# %% [markdown]
# A linear layer is a product with *packed panels*: the weights were reordered when the model was compiled,
# so that the inner loop reads 32 columns one after the other. The heading has the numbers:

# %%
print(heading(fn, len(fn.kernels) - 1))

# %% [markdown]
# That inner loop is the same for every product and convolution of a file. It is written once, at the
# top, with everything else that the kernels call. What they do not call is left out.

# %%
helpers = re.findall(r"^/\* -+ (.*?) -+ \*/$", next(iter(fn.sources.values())), re.M)
print(helpers)

# %% [markdown]
# # 6. The numbers
# `profile` compares each kernel with the most that the machine could do ("roof"): multiply-adds in
# registers, bytes from memory. Where a kernel is near its roof, only less work makes it faster.

# %%
x = np.random.default_rng(1).standard_normal((4, 128, 64)).astype(np.float32)
print(passes.profile(model, x, backend="c"))

# %% [markdown]
# # 7. Threads
# Tasks do not depend on the number of threads, nor does the order of any sum, so results are equal
# bit by bit. Kernels with little work use one thread: a comment at the top says how much work
# another thread must have to pay off.

# %%
one, two = (fx.compile(model, threads=threads)(x) for threads in (1, 2))
print("bitwise equal:", np.array_equal(one, two))
assert np.array_equal(one, two)

# %% [markdown]
# # 8. Precision
# `matmul_precision` uses torch's names. "highest", the default, is true float32. What the others
# may give up is in [docs/fast_c.md](../docs/fast_c.md); measure what it does to *your* results.

# %%
expected = transformer(x)
for precision in ("highest", "high", "medium"):
    result = fx.compile(model, matmul_precision=precision)(x)
    error = np.abs(result - expected).max() / np.abs(expected).max()
    print(f"{precision:>8} differs from NumPy by {'less' if error < 1e-4 else 'more'} than 1e-4")

# %% [markdown]
# # 9. To another machine
# A saved folder needs a C compiler and make, but no Python. Vector instructions are chosen when the C
# is compiled, so one source serves all: `make` alone builds for this machine, and `ARCH` names
# another one. The test runs the model on stored inputs and compares the results with stored outputs.

# %%
folder = Path(tempfile.mkdtemp()) / "block"
fn.save(folder)
print(sorted(path.name for path in folder.iterdir() if path.is_file()))
if shutil.which("make"):
    command = ["make", "-s", "-C", str(folder), "test", "ARCH=", "CFLAGS=-O1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    print("on any CPU of this kind:", "OK" if "OK" in done.stdout else done.stdout)
shutil.rmtree(folder.parent)
