"""From a float model to a mixed-precision C program, with the accuracy known at every step.

A script in cells (`# %%`), for an editor or notebook that knows them, or to run from top to bottom:

    python tutorials/07_quantize.py
"""

# %% [markdown]
# # 1. A float model
# This is the digits classifier of the first tutorial, with its trained weights. Accuracy is measured on
# the images held out from training; calibration uses images that it was trained on.

# %%
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from digits import held_out, trained
from sklearn.datasets import load_digits

import fxlite as fx
from fxlite.passes import quantize as q

gm = fx.symbolic_trace(trained(), x="f32[B,1,8,8]")
images, labels = held_out()
everything = (load_digits().images[:, None] / 16).astype(np.float32)
training = everything[np.arange(len(everything)) % 5 != 4]
batches = [training[start : start + 64] for start in range(0, 512, 64)]


def accuracy(model):
    return float(np.mean(model(images).argmax(axis=1) == labels))


print(f"float32: {accuracy(gm):.2%} right")

# %% [markdown]
# # 2. Prepare, calibrate, convert
# A mapping says which nodes get which config; here everything is static int8: weights and activations
# are integers, with scales that are found now. `prepare` puts observers into the graph, calling it on
# data calibrates it, and `convert` writes the integer graph.

# %%
mapping = q.QConfigMapping().set_global(q.static_int8())
prepared = q.prepare(gm, mapping)
for batch in batches:
    prepared(batch)
qgm = q.convert(prepared)
print(qgm.graph)
print(q.report(qgm))
print(f"static_int8: {accuracy(qgm):.2%} right")

# %% [markdown]
# Batch norm and relu are gone: they are part of the weights and of the lower bound of `requantize`.
# Max pooling and reshape run on integers unchanged. No value between the image and the scores is
# a float.

# %% [markdown]
# # 3. The same integers everywhere
# What an integer op computes is defined to the last bit (docs/quantization.md), so the accuracy
# above is that of every back end: NumPy, generated Python and C give the same scores, bit by bit.

# %%
scores = qgm(images)
for backend in ("python", "c"):
    same = np.array_equal(fx.compile(qgm, backend=backend)(images), scores)
    print(f"{backend} and NumPy have the same bits: {same}")
    assert same

# %% [markdown]
# # 4. Other schemes
# *dynamic* finds the scale of each image's activations at run time; *weight only* computes with
# floats and stores only the weights as integers. The function `quantize` is short for prepare,
# calibrate and convert.

# %%
for config in (q.static_int8(), q.dynamic_int8(), q.weight_only_int8(), q.weight_only_int4()):
    made = q.quantize(gm, q.QConfigMapping().set_global(config), batches)
    size = q.report(made).bytes_after
    print(f"{config.name:17} {accuracy(made):.2%} right, weights {size:6,} bytes")

# %% [markdown]
# # 5. A model that loses accuracy
# Not every model is this easy. Relu lets positive factors through, so the first convolution's channels
# can be scaled by any positive numbers and the second one's weights by their inverses: the function is
# the same, in floats. Training does that by itself, most of all in networks with depthwise convolutions.
# Here it is done by hand: channels become between 1 and 256 times as large.

# %%
model = trained()
scale = np.random.default_rng(0).permutation(np.geomspace(1, 256, 16)).astype(np.float32)
model.bn1.weight, model.bn1.bias = model.bn1.weight * scale, model.bn1.bias * scale
model.conv2.weight = model.conv2.weight / scale[:, None, None]
skewed = fx.symbolic_trace(model, x="f32[B,1,8,8]")
broken = q.quantize(skewed, mapping, batches)
print(f"skewed, float32:     {accuracy(skewed):.2%} right")
print(f"skewed, static_int8: {accuracy(broken):.2%} right")

# %% [markdown]
# # 6. Which layer is it?
# `sensitivity` runs each layer in float and, from the same operands, in each scheme, and compares the
# results by their signal-to-noise ratio (SQNR) in decibels. 6 dB correspond to one bit.

# %%
found = q.sensitivity(skewed, batches)
print(found)
worst = min(found.sqnr("static_int8").items(), key=lambda item: item[1])
print(f"worst: {worst[0]}, {worst[1]:.1f} dB")

# %% [markdown]
# It is the second convolution: one scale has to serve all channels that it reads, which leaves
# nothing for the small ones. The picture colors each layer by its ratio.

# %%
folder = Path(tempfile.mkdtemp())
skewed.graph.draw(folder / "sensitivity.svg", sqnr=found.sqnr("static_int8"))
print(f"sensitivity.svg: {(folder / 'sensitivity.svg').stat().st_size > 1000}")

# %% [markdown]
# # 7. A plan within a budget
# At most half a point of accuracy may be lost. `plan` makes layers integer, those with the most gain for
# the least loss first, and runs the quantized model to see how far it can go. The gain is counted in bytes
# of weights here, which are the same everywhere. By default it is time, as predicted from the rates
# of this machine (`fxlite info --roofs`): on a processor that multiplies floats as fast as
# integers, small layers stay in float.

# %%
plan = q.plan(skewed, batches, metric=accuracy, max_accuracy_drop=0.005, schemes=["static_int8"], minimize="bytes")
print(plan)
plan.save(folder / "plan.toml")
print((folder / "plan.toml").read_text())

# %% [markdown]
# The file is meant to be edited. It is applied to the model like any mapping.

# %%
mixed = q.quantize(skewed, q.load_plan(folder / "plan.toml", skewed).qconfig_mapping(), batches)
report = q.report(mixed)
print(report)
print(f"mixed: {accuracy(mixed):.2%} right, {report.integer_share:.0%} of the work in integers")

# %% [markdown]
# # 8. Or repair the model
# The reason is known, so it can be removed. `equalize` chooses the factors between two layers
# so that their channels have ranges of equal size; in floats the function is the same. After that,
# everything can be int8.

# %%
equalized = q.equalize(skewed)
repaired = q.quantize(equalized, mapping, batches)
print(f"equalized, static_int8: {accuracy(repaired):.2%} right")
before, after = (
    q.sensitivity(model, batches, ["static_int8"]).sqnr("static_int8")["conv2"] for model in (skewed, equalized)
)
print(f"conv2: {before:.1f} dB before, {after:.1f} dB after")

# %% [markdown]
# # 9. C
# The mixed model becomes a folder of C that needs no fxlite: source, header, weights, and a self-test
# with NumPy's results.

# %%
for name, module in (("float32", skewed), ("mixed", mixed), ("int8", repaired)):
    function = fx.compile(module)
    function.save(folder / name)
    (weights,) = (folder / name).glob("*_weights.bin")
    kernels = ", ".join(dict.fromkeys(n.target.name for k in function.kernels for n in k.nodes))
    print(f"{name}: {accuracy(function):.2%} right, {weights.stat().st_size:,} bytes of weights")
    print(f"    {kernels}")
print(sorted(path.name for path in (folder / "mixed").iterdir()))
done = subprocess.run(["make", "-s", "test"], cwd=folder / "mixed", capture_output=True, text=True)
print(done.stdout, done.stderr)
assert done.returncode == 0
shutil.rmtree(folder)

# %% [markdown]
# The same works on the command line, with inputs by name in an .npz file:
#
#     fxlite quantize digits.py:Digits --input "x=f32[B,1,8,8]" --weights digits.safetensors \
#         --data images.npz --min-sqnr 30 --write-plan plan.toml -o mixed.fxl
#     fxlite compile mixed.fxl --backend c -o out/
#
# How fast integers are in comparison with other runtimes is in docs/benchmarks_quantized.md.
