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

import copy
from collections import Counter
from typing import Any

import numpy as np

from fxlite import nn
from fxlite.base.errors import ArgumentError
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import Container, GraphModule
from fxlite.nn.module import Module, Parameter
from fxlite.passes.base import graph_pass, refuse, unique_attribute
from fxlite.passes.derived import derive
from fxlite.types.tensor_type import TensorType


@graph_pass(exactness="allclose")
def fuse_conv_bn(gm: GraphModule) -> None:
    """Fold batch_norm with running statistics into the convolution (1-d, 2-d, transposed) or linear
    that feeds it. The arithmetic is done in float64 and rounded once.

    Refused, with the reason in the ledger: half types, batch statistics (training), a layer whose
    result is read elsewhere too, weights computed in the graph, a normalized axis that is not the
    layer's output channel. Weights that several nodes read are left as they are; the folded weights
    then get new names."""
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
fuse_conv_bn.counterexample(_ReadTwice, "the convolution's own result is read too", x="f32[B,3,8,8]")
fuse_conv_bn.counterexample(_NormFirst, "the shift would be missing in the padding", x="f32[B,3,8,8]")


def why_not(norm: Node) -> str | None:
    """Why this batch_norm is not folded: None if it can be, "" if no suitable layer feeds it."""
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
    for owner, names in ((norm, ("running_mean", "running_var", "weight", "bias")), (layer, ("weight", "bias"))):
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
    weight_path = layers["weight"].target
    bias_node = layers.get("bias")
    bias_path = bias_node.target if bias_node else weight_path.rpartition(".")[0] + ".bias"
    graph = gm.graph
    paths = [_free(gm, layers["weight"], weight_path, readers), _free(gm, bias_node, bias_path.lstrip("."), readers)]
    reads = (layers["weight"], bias_node, *(ours[n] for n in norm.target.tensor_kinds if n != "x"))
    values = derive(
        gm,
        paths,
        fold_batch_norm,
        [None if node is None else node.target for node in reads],
        unfold_batch_norm,
        "The batch norm becomes one that changes nothing: what it was is lost.",
        eps=ours["eps"],
        groups=layers.get("groups", 1),
        transposed=layer.target.name.startswith("conv_transpose"),
    )
    with graph.inserting_before(layer), graph.with_origin(layer):
        made = []
        for path, value in zip(paths, values):
            gm.set_attribute(path, Parameter(value))
            made.append(graph.get_attr(path))
    layer.args = (layer.args[0], *made, *layer.args[3:])
    norm.replace_all_uses_with(layer)
    graph.erase_node(norm)
    for read in reads:
        if read is not None and not read._erased and not read.users:
            graph.erase_node(read)


def fold_batch_norm(
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    scale: Any,
    shift: Any,
    *,
    eps: float,
    groups: int,
    transposed: bool,
) -> Any:
    """Weight and bias of a layer followed by batch norm, in float64 and rounded once."""
    factor = 1.0 / np.sqrt(variance.astype(np.float64) + eps)
    if scale is not None:
        factor = factor * scale.astype(np.float64)
    moved = -mean.astype(np.float64) if bias is None else bias.astype(np.float64) - mean
    moved = moved * factor
    if shift is not None:
        moved = moved + shift
    made = np.empty(weight.shape, weight.dtype)  # the product is computed in float64, one buffer at a time
    given, rounded, shape = weight, made, (-1, *[1] * (weight.ndim - 1))
    if transposed:  # (in, out / groups, ...); other layers have (out, ...)
        given = weight.reshape(groups, -1, *weight.shape[1:])
        rounded, shape = made.reshape(given.shape), (groups, 1, -1, *[1] * (weight.ndim - 2))
    np.multiply(given, factor.reshape(shape), out=rounded, dtype=np.float64, casting="unsafe")
    return made, moved.astype(weight.dtype)


def fuse_conv_bn_eval(conv: Module, bn: Module, transpose: bool = False) -> Module:
    """A copy of a convolution that computes what ``bn`` of its result gives in inference mode (like
    torch's function of that name); ``transpose`` for a transposed one. Raises ArgumentError for
    modules in training mode, and for a norm without running statistics."""
    if conv.training or bn.training or bn.running_mean is None:
        raise ArgumentError("batch norm is folded in inference mode: call eval() on both modules")
    fused = copy.deepcopy(conv)
    weight, bias = fold_batch_norm(
        conv.weight,
        conv.bias,
        bn.running_mean,
        bn.running_var,
        bn.weight,
        bn.bias,
        eps=bn.eps,
        groups=getattr(conv, "groups", 1),
        transposed=transpose,
    )
    fused.weight, fused.bias = Parameter(weight), Parameter(bias)
    return fused


def fuse_linear_bn_eval(linear: Module, bn: Module) -> Module:
    """:func:`fuse_conv_bn_eval` for a linear layer."""
    return fuse_conv_bn_eval(linear, bn)


def unfold_batch_norm(results: Any, shapes: Any, *, eps: float, **_: Any) -> Any:
    """The folded layer's weights, and the weights of a batch norm after it that changes nothing."""
    weight, bias = results
    zeros = np.zeros_like(bias)
    has_bias, has_shift = shapes[1] is not None, shapes[5] is not None
    moved = zeros if has_bias else bias
    return (
        weight,
        bias if has_bias else None,
        zeros if has_shift else -moved,
        np.full_like(bias, 1 - eps),
        None if shapes[4] is None else np.ones_like(bias),
        moved if has_shift else None,
    )


def _free(gm: GraphModule, old: Node | None, wish: str, readers: Counter[str]) -> str:
    """The path for a folded array: the old one if nobody else reads it."""
    alone = old is not None and len(old.users) == 1 and readers[old.target] == 1
    owner = gm.get_submodule(wish.rpartition(".")[0])
    if alone and isinstance(owner, (GraphModule, Container)):
        return wish
    return unique_attribute(gm, f"{wish}_folded" if old is not None else wish)
