"""A ResNet of torchvision and a BERT of transformers: brought in, looked at, quantized, and taken out as C and as ONNX.

A script in cells (`# %%`), for an editor or notebook that knows them, or to run from top to bottom:

    pip install "fxlite[models,onnx]" onnxruntime
    python tutorials/13_bring_your_model.py

It needs a C compiler. Weights are random, so that nothing is downloaded; with `weights="DEFAULT"` or
`from_pretrained` it is the same.
"""

# %% [markdown]
# # 1. A ResNet comes in
# One call exports the model by `torch.export` and imports what torch exported. A name in the type of an
# input is a size that may vary. Composites stay whole, modules are scopes, and the weights are those of
# the model, under the same names and in the same memory.

# %%
import shutil
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
import torch
import torchvision
from transformers import BertConfig, BertModel

import fxlite as fx
from fxlite import passes
from fxlite.passes import quantize as q

torch.manual_seed(0)
model = torchvision.models.resnet18().eval()
resnet = fx.from_torch(model, "f32[B,3,64,64]")
block = [node for node in resnet.graph.nodes if node.scope and node.scope.path.startswith("layer2.0")]
for node in block[:4]:
    print(node.format_node())
print("one memory:", np.shares_memory(resnet.get_attribute("conv1.weight"), model.conv1.weight.detach().numpy()))


def apart(found, expected):
    """The largest difference, as a part of the largest expected number."""
    return float(np.abs(found - expected).max() / np.abs(expected).max())


images = torch.randn(8, 3, 64, 64)
with torch.no_grad():
    expected = model(images).numpy()
print(f"graph and torch: {apart(resnet(images.numpy()), expected):.0e}")

# %% [markdown]
# # 2. Looking at it
# It is a graph like any other: costs are formulas of the named size, and passes rewrite it. Here the
# batch norms become part of the convolutions.

# %%
print(passes.cost(resnet).total)
fused = passes.fuse_conv_bn(resnet)
print(len(resnet.graph), "nodes,", len(fused.graph), "without batch norms")

# %% [markdown]
# # 3. Quantized
# Convolutions and the last layer become integer products, with scales from a few images. The
# signal-to-noise ratio says what that costs; for a trained model, measure its accuracy
# ([tutorial 7](07_quantize.md)).

# %%
batches = [np.random.default_rng(n).normal(size=(4, 3, 64, 64)).astype(np.float32) for n in range(2)]
small = q.quantize(fused, q.QConfigMapping().set_global(q.static_int8()), batches)
report = q.report(small)
noise = small(images.numpy()) - expected
print(f"weights: {report.bytes_before:,} bytes became {report.bytes_after:,}")
print(f"signal to noise: {10 * np.log10((expected**2).mean() / (noise**2).mean()):.0f} dB")

# %% [markdown]
# # 4. Out as C
# The folder has the sources, the weights, a header, a Makefile and a self-test. The C gives the bits of
# the graph.

# %%
folder = Path(tempfile.mkdtemp())
fn = fx.compile(small, backend="c")
fn.save(folder / "resnet18")
print(*sorted(path.name for path in (folder / "resnet18").iterdir()))
print("the same bits:", np.array_equal(fn(images.numpy()), small(images.numpy())))

# %% [markdown]
# # 5. Out as ONNX
# The integers are kept (QuantizeLinear, ConvInteger), and the named size is a `dim_param`. Any runtime
# reads the file; so does `fx.from_onnx`, which gives back a graph with the same scopes.

# %%
fx.to_onnx(small, folder / "resnet18.onnx")
session = onnxruntime.InferenceSession(folder / "resnet18.onnx")
print("input:", session.get_inputs()[0].name, session.get_inputs()[0].shape)
(found,) = session.run(None, {session.get_inputs()[0].name: images.numpy()})
print(f"ONNX Runtime and the graph: {apart(found, small(images.numpy())):.0e}")
back = fx.from_onnx(folder / "resnet18.onnx")
print(f"imported again: {apart(back(images.numpy()), small(images.numpy())):.0e}")

# %% [markdown]
# # 6. A BERT, for all batches and lengths
# Inputs are given by name, and results are those of the model: a dict. Conditions of the model on its
# sizes, such as the length of its table of positions, become conditions of the graph. One C artifact
# serves all sizes.

# %%
config = BertConfig(vocab_size=1000, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=512)
model = BertModel(config).eval()
bert = fx.from_torch(model, input_ids="i64[B,T]", attention_mask="i64[B,T]")
print(bert.graph)
fn = fx.compile(bert, backend="c")
for batch, length in ((1, 5), (2, 16), (3, 33), (4, 8), (7, 64)):
    words = torch.randint(0, 1000, (batch, length))
    mask = (torch.arange(length) < torch.randint(1, length + 1, (batch, 1))).long()
    with torch.no_grad():
        expected = model(input_ids=words, attention_mask=mask).last_hidden_state.numpy()
    found = fn(input_ids=words.numpy(), attention_mask=mask.numpy())["last_hidden_state"]
    print(f"{batch} x {length}: {apart(found, expected):.0e}")
try:
    fn(input_ids=np.zeros((1, 600), np.int64), attention_mask=np.ones((1, 600), np.int64))
except ValueError as error:
    print("refused:", error)

# %% [markdown]
# # 7. The BERT, quantized and out
# Its weights become integers; scales of activations are found while it runs.

# %%
mapping = q.QConfigMapping().set_global(q.dynamic_int8())
small = q.quantize(bert, mapping, [(words.numpy(), mask.numpy())])
report = q.report(small)
print(f"weights: {report.bytes_before:,} bytes became {report.bytes_after:,}")
fx.compile(small, backend="c").save(folder / "bert")
fx.to_onnx(small, folder / "bert.onnx")
session = onnxruntime.InferenceSession(folder / "bert.onnx")
print(*(f"{value.name}: {value.shape}" for value in session.get_inputs()))
found = session.run(None, {"input_ids": words.numpy(), "attention_mask": mask.numpy()})[0]
print(f"ONNX Runtime and torch, in 8 bits: {apart(found, expected):.0e}")
shutil.rmtree(folder)
