"""A trained model on a microcontroller: how much flash and RAM it takes, and the C that it becomes.

A script in cells (`# %%`), for an editor or notebook that knows them, or to run from top to bottom:

    python tutorials/09_ship_c_to_a_small_device.py

It needs a C compiler; steps that need a cross compiler or an emulator are left out without one.
"""

# %% [markdown]
# # 1. Sizes are numbers
# The digits classifier of tutorial 1 takes `B` images at once. A microcontroller looks at one, and
# has no use for a size that is only known when a call is made. So `B` is set to a number.

# %%
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from digits import held_out, trained

import fxlite as fx
from fxlite.passes import quantize as q

images, labels = held_out()
gm = fx.symbolic_trace(trained(), x="f32[B,1,8,8]")
try:
    fx.compile(gm, backend="embedded")
except fx.errors.CodegenError as error:
    print("refused:", error)
gm = gm.specialize(B=1)

# %% [markdown]
# # 2. What it needs
# The back end "embedded" emits loops and constants. What a device must have is known before
# anything is put on it. Weights and arena follow from the model; code and stack are measured with
# a compiler for Cortex-M4 if there is one here, and otherwise with this machine's.

# %%
floats = fx.compile(gm, backend="embedded")
print(*floats.memory.lines(), sep="\n")

# %% [markdown]
# # 3. The C
# The interface is a function, and a macro that says how large the arena is. Where the arena lies is
# the caller's choice: between calls it can be used for something else.

# %%
header = floats.sources["digits.h"]
print(header[header.index("/** Bytes of constants") : header.index("#ifdef __cplusplus\n}")])

# %% [markdown]
# The model is one file. Values share the arena, and a comment says where each value lies, and
# when: look there if the arena is too large. A convolution consists of the loops that one
# would write by hand. The loops over the kernel cover the part of it that lies inside the image,
# and what follows the convolution (bias, relu) is computed when a sum is complete.

# %%
source = floats.sources["digits.c"]
print(source[source.index("/* Pointers to the values") : source.index('#include "digits_weights')])
print(source[source.index("/* relu_1: ") : source.index("/* max_pool2d: ")])
print(source[source.index("void digits_run(") :])

# %% [markdown]
# # 4. A quarter of the size
# With 8-bit integers, weights take a quarter of the flash and values a quarter of the RAM, and
# a processor without floating point has little to emulate: one multiplication per result. The ranges
# come from images (tutorial 7 says more) that were not seen in training.

# %%
mapping = q.QConfigMapping().set_global(q.static_int8())
integers = q.quantize(gm, mapping, [images[i : i + 1] for i in range(50)])
small = fx.compile(integers, backend="embedded")
print(*small.memory.lines(), sep="\n")

# %% [markdown]
# The same C runs here, so accuracy is measured before there is a device.

# %%
for name, function in (("float32", floats), ("static_int8", small)):
    scores = np.concatenate([function(images[i : i + 1]) for i in range(len(images))])
    right = (scores.argmax(1) == labels).mean()
    memory = function.memory
    print(f"{name}: {right:.2%} right; weights {memory.weights:,}, arena {memory.arena:,} bytes")
first = images[:1]
print("integers, C and NumPy equal:", np.array_equal(small(first), integers(first)))

# %% [markdown]
# # 5. A folder
# The self-test contains its own data, since there is no file system; it only needs `printf`.

# %%
folder = Path(tempfile.mkdtemp()) / "digits"
small.save(folder)
print(*sorted(p.name for p in folder.iterdir()))
print((folder / "README.txt").read_text())


def make(*arguments):
    """Run make in the folder; returns what it prints."""
    command = ["make", "-s", "-C", folder, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if shutil.which("make") and shutil.which("cc"):
    print(make("test"))

# %% [markdown]
# On ARM: a cross compiler from a Linux distribution and qemu run the self-test as Thumb code.

# %%
if all(map(shutil.which, ("make", "arm-linux-gnueabihf-gcc", "qemu-arm"))):
    make("-B", "digits_selftest", "CC=arm-linux-gnueabihf-gcc", "CFLAGS=-Os -mthumb")
    command = ["qemu-arm", "-L", "/usr/arm-linux-gnueabihf", "./digits_selftest"]
    print(subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout)
else:
    print("left out: needs make, gcc-arm-linux-gnueabihf and qemu-user")

# %% [markdown]
# # 6. On the device
# One file to compile, and a call:
#
#     arm-none-eabi-gcc -Os -mcpu=cortex-m4 -mthumb -c digits.c
#
#     static int64_t arena[(DIGITS_ARENA_BYTES + 7) / 8];
#     float scores[10];
#     digits_run(pixels, scores, arena);
#
# The same on the command line, which prints what the model needs (docs/embedded.md says what is promised):
#
#     fxlite compile digits.py:Digits --input "x=f32[1,1,8,8]" --weights digits.safetensors \
#         --backend embedded -o out/

# %%
shutil.rmtree(folder.parent)
