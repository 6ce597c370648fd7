"""Cross-layer equalization: channels of one layer get ranges that one scale can serve.

Before::

    conv2d: f32[B,16,8,8] = ops.conv2d(x, self.a.weight, self.a.bias)     # channels 100x apart
    relu: f32[B,16,8,8] = ops.relu(conv2d)
    conv2d_1: f32[B,32,8,8] = ops.conv2d(relu, self.b.weight, self.b.bias)

After, the same with ``a.weight / s``, ``a.bias / s`` and ``b.weight * s`` along the channels
between them. relu(x / s) is relu(x) / s for s > 0, so the results are what they were but for
rounding. With r1 and r2 the largest magnitudes of a channel's weights before and behind it,
``s = sqrt(r1 * r2) / r2`` makes both ``sqrt(r1 * r2)`` (Nagel et al., "Data-free quantization
through weight equalization and bias correction", 2019, section 4.1). It helps activations, which
have one scale for all channels, and weights with one scale per tensor.

The paper's absorption of high biases is left out: it changes what the model computes, and the
affine ranges of activations need it less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite import nn
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.base import graph_pass, refuse
from fxlite.passes.quantize.conversion.operands import exchange_weight
from fxlite.passes.quantize.schemes.roles import is_float32, is_weight
from fxlite.passes.rules.fuse_conv_bn import fuse_conv_bn
from fxlite.passes.rules.redundant import remove_dropout

_SWEEPS = 20
_ENOUGH = 0.01  # log of the scales, below which nothing is gained


@graph_pass(exactness="allclose")
def equalize(gm: GraphModule) -> None:
    """Scale the channels between two layers so that their weights have equal ranges on both sides:
    cross-layer equalization, to be done before quantization.

    Layers are linear and convolutions (depthwise, too) with float32 weights; between them may stand
    relu, leaky_relu, prelu, pooling, a mean over places and flattening, each read by nothing else.
    Batch norm is folded and dropout removed first. Chains are swept over until no scale changes by
    more than 1 %, at most 20 times. Pairs with something else between them are in the ledger."""
    remove_dropout.function(gm)
    fuse_conv_bn.function(gm)
    pairs: list[_Pair] = []
    for layer in gm.graph.find_nodes(op="call_function"):
        if is_layer(layer):
            found = _reader(layer)
            if isinstance(found, _Pair):
                pairs.append(found)
            elif found:
                refuse(gm, "equalize", layer, found, [layer])
    repeats = {pair.first: 1 for pair in pairs} | {pair.second: pair.repeats for pair in pairs}
    scales = _balance(pairs, {layer: _ranges(gm, layer, n) for layer, n in repeats.items()})
    results: dict[Node, Any] = {}
    inputs: dict[Node, Any] = {}
    for pair in pairs:
        scale = scales[pair.first]
        if np.abs(np.log(scale)).max(initial=0) > _ENOUGH:
            results[pair.first] = 1 / scale
            inputs[pair.second] = np.repeat(scale, pair.repeats)
    for layer in results | inputs:
        scale_layer(gm, layer, "equalized", inputs.get(layer), results.get(layer))
    gm.delete_all_unused_submodules()


class _Uneven(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 3), nn.Linear(3, 2)
        self.up.weight[:] = np.array([[64.0], [1.0], [0.25]], np.float32)
        self.up.bias[:] = 1
        self.down.weight[:] = 1

    def forward(self, x: Any) -> Any:
        return self.down(np.maximum(self.up(x), 0))


class _Tanh(_Uneven):
    def forward(self, x: Any) -> Any:
        return self.down(np.tanh(self.up(x)))


class _Even(_Uneven):
    def __init__(self) -> None:
        super().__init__()
        self.up.weight[:] = 1


equalize.example(
    _Uneven, "the weights of a channel come down, and up behind the relu", x="f32[B,4]"
)
equalize.counterexample(_Tanh, "tanh(x / s) is not tanh(x) / s", x="f32[B,4]")
equalize.counterexample(_Even, "the ranges are equal already", x="f32[B,4]")


# -- pairs -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Pair:
    """Two layers; each channel of the first is ``repeats`` inputs, one after the other, of the
    second."""

    first: Node
    second: Node
    repeats: int


def is_layer(node: Node) -> bool:
    """True for a linear or convolution of float32 whose weight and bias are the program's."""
    if node.op != "call_function" or not is_float32(node):
        return False
    if node.target.role != "product" or node.target.weight != "weight":
        return False
    arguments = node.arguments
    bias = arguments.get("bias")
    return (
        is_weight(arguments["weight"])
        and (bias is None or is_weight(bias))
        and arguments.get("layout", "NCHW") == "NCHW"
    )


def _reader(first: Node) -> _Pair | str:
    """The layer that alone reads the channels of the first one; else why not, "" where no layer
    follows."""
    value, repeats = first, 1
    is_last = first.target.name == "linear"  # channels are the last axis, else axis 1
    while True:
        if len(value.users) != 1:
            return f"{value.name} is read by {len(value.users)} nodes" if value.users else ""
        (user,) = value.users
        if user.op != "call_function":
            return ""
        axis = value.type.rank - 1 if is_last else 1
        if is_layer(user):
            return _as_pair(first, value, user, axis, repeats)
        name = user.target.name
        pools = user.target.scales and user.target.kind == "window"
        if user.target.scales and not pools and user.args[0] is value:
            # prelu has a slope for each entry of axis 1
            if name == "prelu" and axis != 1:
                return f"{user.name} scales axis 1, and the channels are axis {axis}"
        elif user.target.keeps_order and not is_last and _flattens(user, value):
            repeats, is_last = user.type.shape[1] // value.type.shape[1], True
        elif is_last or not (pools or (name == "mean" and _keeps_channels(user, value))):
            return f"{user.name} ({name}) stands behind it, and {name}(x / s) is not {name}(x) / s"
        value = user


def _as_pair(first: Node, value: Node, user: Node, axis: int, repeats: int) -> _Pair | str:
    if user.arguments["x"] is not value:
        return ""
    reads = value.type.rank - 1 if user.target.name == "linear" else 1
    if reads != axis:
        return f"{user.name} reads axis {reads}, and the channels are axis {axis}"
    if user is first or user.arguments["weight"].target == first.arguments["weight"].target:
        return f"{user.name} has the same weight"
    return _Pair(first, user, repeats)


def _keeps_channels(user: Node, value: Node) -> bool:
    """True for a mean over places, [B, C, ...] to [B, C] or with axes of size 1."""
    axes = user.arguments.get("axis")
    if axes is None:
        return False
    axes = axes if isinstance(axes, tuple) else (axes,)
    return all(a % value.type.rank > 1 for a in axes)


def _flattens(user: Node, value: Node) -> bool:
    """True for [B, C, ...] to [B, C * ...] of known sizes."""
    before, after = value.type.shape, user.type.shape
    if len(after) != 2 or before[0] != after[0] or before[1] == 0:
        return False
    return all(isinstance(d, int) for d in (*before[1:], after[1]))


# -- ranges and scales -----------------------------------------------------------------------------
def _ranges(gm: GraphModule, layer: Node, repeats: int) -> Any:
    """The largest magnitudes of a layer's weights, [outputs, inputs of a group]; ``repeats``
    inputs are one channel."""
    weight = np.abs(gm.get_attribute(layer.arguments["weight"].target))
    if repeats > 1:
        weight = weight.reshape(weight.shape[0], -1, repeats)
    return weight.max(axis=tuple(range(2, weight.ndim)), initial=0).astype(np.float64)


def _balance(pairs: list[_Pair], ranges: dict[Node, Any]) -> dict[Node, Any]:
    """The scale of each channel between the layers of a pair, by the first layer; ``ranges`` are
    scaled along."""
    scales: dict[Node, Any] = {pair.first: 1.0 for pair in pairs}
    for _ in range(_SWEEPS):
        largest = 0.0
        for pair in pairs:
            first, second = ranges[pair.first], ranges[pair.second]
            groups = pair.second.arguments.get("groups", 1)
            grouped = second.reshape(groups, -1, second.shape[1])
            before = first.max(axis=1, initial=0)
            behind = grouped.max(axis=1, initial=0).reshape(-1)
            usable = (before > 0) & (behind > 0)
            ratio = np.divide(before, behind, out=np.ones_like(before), where=usable)
            scale = np.sqrt(ratio)
            ranges[pair.first] = first / scale[:, None]
            by_group = scale.reshape(groups, 1, -1)
            ranges[pair.second] = (grouped * by_group).reshape(second.shape)
            scales[pair.first] = scales[pair.first] * scale
            largest = max(largest, float(np.abs(np.log(scale)).max(initial=0)))
        if largest <= _ENOUGH:
            break
    return scales


def scale_layer(
    gm: GraphModule, layer: Node, suffix: str, inputs: Any = None, results: Any = None
) -> None:
    """Multiply what a layer computes by ``results``, a number for each output channel, and the
    weights that read an input channel by ``inputs``; the new arrays' names get the suffix. A norm
    whose weight has one axis has results alone."""
    weight = np.asarray(gm.get_attribute(layer.arguments["weight"].target))
    scaled: Any = weight.astype(np.float64)
    if inputs is not None:
        groups = layer.arguments.get("groups", 1)
        grouped = scaled.reshape(groups, -1, *weight.shape[1:])
        scaled = grouped * inputs.reshape(groups, 1, -1, *[1] * (weight.ndim - 2))
        scaled = scaled.reshape(weight.shape)
    if results is not None:
        scaled = scaled * results.reshape(-1, *[1] * (weight.ndim - 1))
        bias = layer.arguments.get("bias")
        if bias is not None:
            value = np.asarray(gm.get_attribute(bias.target))
            exchange_weight(gm, layer, "bias", (value * results).astype(value.dtype), suffix)
    exchange_weight(gm, layer, "weight", scaled.astype(weight.dtype), suffix)
