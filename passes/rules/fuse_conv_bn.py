"""Fold batch normalization (inference) into the convolution or linear layer before it.

Before::

    conv2d: f32[B,16,8,8] = ops.conv2d(x, self.conv.weight, self.conv.bias)
    batch_norm: f32[B,16,8,8] = ops.batch_norm(conv2d, self.bn.running_mean, ...)

After::

    conv2d: f32[B,16,8,8] = ops.conv2d(x, self.conv.weight, self.conv.bias)

with ``weight * s`` and ``(bias - mean) * s + shift``, s = scale / sqrt(variance + eps), as weights
(Ioffe and Szegedy, "Batch normalization", 2015, section 3.1). The new weights are new arrays.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from fxlite import nn
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import Container, GraphModule
from fxlite.nn.module import Parameter
from fxlite.passes.base import graph_pass, refuse, unique_attribute
from fxlite.types.tensor_type import TensorType


@graph_pass(exactness="allclose")
def fuse_conv_bn(gm: GraphModule) -> None:
    """Fold batch_norm with running statistics into the convolution (1-d, 2-d, transposed) or linear
    that feeds it. The arithmetic is done in float64 and rounded once.

    Refused, with the reason in the ledger: half types, batch statistics (training), a layer whose
    result is read elsewhere too, weights computed in the graph, a normalized axis that is not the
    layer's output channel. Weights that several nodes read are left as they are; the folded ones
    get a name of their own."""
    readers = Counter(n.target for n in gm.graph.find_nodes(op="get_attr"))
    for norm in gm.graph.find_nodes(op="call_function", target="batch_norm"):
        reason = why_not(norm)
        if reason is None:
            _fold(gm, norm, readers)
        elif reason:
            refuse(gm, "fuse_conv_bn", norm, reason, [norm.arguments["x"], norm])


class _ConvNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x: Any) -> Any:
        return np.maximum(self.norm(self.conv(x)), 0)


class _ReadTwice(_ConvNorm):
    def forward(self, x: Any) -> Any:
        y = self.conv(x)
        return self.norm(y) + y


class _NormFirst(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
        self.conv = nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x: Any) -> Any:
        return self.conv(self.norm(x))


fuse_conv_bn.example(_ConvNorm, "scale and shift go into weight and bias", x="f32[B,3,8,8]")
fuse_conv_bn.counterexample(
    _ReadTwice, "the convolution's own result is read too", x="f32[B,3,8,8]"
)
fuse_conv_bn.counterexample(
    _NormFirst, "the shift would be missing in the padding", x="f32[B,3,8,8]"
)


def why_not(norm: Node) -> str | None:
    """Why this batch_norm is not folded: None if it is, "" if no layer feeds it."""
    arguments = norm.arguments
    layer = arguments["x"]
    if not isinstance(layer, Node) or layer.op != "call_function":
        return ""
    if layer.target.weight != "weight":
        return ""
    if arguments.get("training"):
        return "it normalizes by the batch's statistics (training=True); trace the model in eval()"
    others = [u.name for u in layer.users if u is not norm]
    if others:
        return f"{layer.name} is read by {', '.join(others[:3])} too"
    for owner, names in ((norm, ("running_mean", "running_var", "weight", "bias")),
                         (layer, ("weight", "bias"))):  # fmt: skip
        for name in names:
            value = owner.arguments.get(name)
            if value is not None and not (isinstance(value, Node) and value.op == "get_attr"):
                return f"{name} of {owner.name} is computed in the graph"
    if layer.arguments.get("layout") == "NHWC":
        return "batch_norm normalizes axis 1, which are the rows of a channels-last image"
    if layer.target.name == "linear" and (layer.type is None or layer.type.rank != 2):
        return "batch_norm normalizes axis 1, which is the output axis of a rank-2 linear only"
    if layer.type != norm.type:
        return f"it changes the type from {layer.type} to {norm.type}"
    if isinstance(norm.type, TensorType) and norm.type.dtype.compute is not norm.type.dtype:
        return f"{norm.type.dtype} is rounded between them, and folded weights would not be"
    return None


def _fold(gm: GraphModule, norm: Node, readers: Counter[str]) -> None:
    layer = norm.arguments["x"]
    ours, layers = norm.bound, layer.arguments

    def value(node: Node | None) -> Any:
        if node is None:
            return None
        return np.asarray(gm.get_attribute(node.target)).astype(np.float64)

    weight = np.asarray(gm.get_attribute(layers["weight"].target))
    bias = value(layers.get("bias"))
    mean, variance = value(ours["running_mean"]), value(ours["running_var"])
    scale = 1.0 / np.sqrt(variance + ours["eps"])
    if ours["weight"] is not None:
        scale = scale * value(ours["weight"])
    shift = -mean * scale if bias is None else (bias - mean) * scale
    if ours["bias"] is not None:
        shift = shift + value(ours["bias"])
    groups = layers.get("groups", 1)
    new_weight = scale_output_channels(layer.target.name, weight, scale, groups)
    weight_path = layers["weight"].target
    bias_node = layers.get("bias")
    bias_path = bias_node.target if bias_node else weight_path.rpartition(".")[0] + ".bias"
    graph = gm.graph
    with graph.inserting_before(layer), graph.with_origin(layer):
        weight_node = _store(gm, layers["weight"], weight_path, new_weight, readers)
        bias_new = _store(gm, bias_node, bias_path.lstrip("."), shift.astype(weight.dtype), readers)
    layer.args = (layer.args[0], weight_node, bias_new, *layer.args[3:])
    norm.replace_all_uses_with(layer)
    graph.erase_node(norm)
    for read in (layers["weight"], bias_node, *(ours[n] for n in norm.target.tensor_kinds)):
        if read is not None and read.op == "get_attr" and not read._erased and not read.users:
            graph.erase_node(read)


def scale_output_channels(op: str, weight: Any, scale: Any, groups: int) -> Any:
    """``weight`` with each output channel multiplied by its ``scale``, rounded to its dtype. A
    transposed convolution stores (in, out / groups, ...), the others (out, ...)."""
    if not op.startswith("conv_transpose"):
        return _product(weight, scale.reshape(-1, *[1] * (weight.ndim - 1)))
    inside, outside = weight.shape[:2]
    grouped = weight.reshape(groups, inside // groups, *weight.shape[1:])
    factor = scale.reshape(groups, 1, outside, *[1] * (weight.ndim - 2))
    return _product(grouped, factor).reshape(weight.shape)


def _product(weight: Any, factor: Any) -> Any:
    """``weight * factor`` in float64, of which no more than a buffer's worth is in memory."""
    rounded = np.empty(weight.shape, weight.dtype)
    return np.multiply(weight, factor, out=rounded, dtype=np.float64, casting="unsafe")


def _store(gm: GraphModule, old: Node | None, wish: str, value: Any, readers: Counter[str]) -> Node:
    """A get_attr of the folded array: under the old name if nobody else reads that."""
    target = wish
    alone = old is not None and len(old.users) == 1 and readers[old.target] == 1
    if not alone or not isinstance(_owner(gm, wish), (GraphModule, Container)):
        target = unique_attribute(gm, f"{wish}_folded" if old is not None else wish)
    gm.set_attribute(target, Parameter(value))
    return gm.graph.get_attr(target)


def _owner(gm: GraphModule, path: str) -> Any:
    return gm.get_submodule(path.rpartition(".")[0])
