"""Scale channels between layers, so that one scale can serve all numbers of a layer: :func:`equalize`
looks only at weights, :func:`smooth_quant` also at activations on batches. Both are for float
modules, before prepare.

Cross-layer equalization. Before::

    conv2d: f32[B,16,8,8] = ops.conv2d(x, self.a.weight, self.a.bias)     # channels 100x apart
    relu: f32[B,16,8,8] = ops.relu(conv2d)
    conv2d_1: f32[B,32,8,8] = ops.conv2d(relu, self.b.weight, self.b.bias)

After, the same with ``a.weight / s``, ``a.bias / s`` and ``b.weight * s`` along the channels
between them. relu(x / s) is relu(x) / s for s > 0, so the results are the same up to rounding. If
r1 and r2 are the largest magnitudes of a channel's weights before and after it,
``s = sqrt(r1 * r2) / r2`` makes both ``sqrt(r1 * r2)`` (Nagel et al., "Data-free quantization
through weight equalization and bias correction", 2019, section 4.1). This helps activations, which
have one scale for all channels, and weights with one scale per tensor.

The paper's absorption of high biases is left out: it changes what the model computes, and the
affine ranges of activations need it less.

SmoothQuant: outlier channels of activations are moved into the weights that read them.

Linear layers after a layer norm often read a few channels that are a hundred times larger than the
others; with one scale for all, few integers are left for the others. ``X W = (X / s) (s W)``: X is
divided by a factor for each channel, which is folded into the layer that computes X, and the columns
of the weights that read it are multiplied by it (Xiao et al., "SmoothQuant", 2022, equation 4)::

    s_j = max|X_j| ** alpha / max|W_j| ** (1 - alpha)

In: a float module and batches. Out: a float module that computes the same up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite import nn
from fxlite.base.checked import checked
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.interpreter import Interpreter
from fxlite.nn.module import Parameter
from fxlite.passes.base import as_module, graph_pass, unique_attribute
from fxlite.passes.ledger import copy_with_ledger, refuse
from fxlite.passes.quantize.conversion.prepare import arguments_of, some
from fxlite.passes.quantize.schemes.roles import is_float32, is_weight
from fxlite.passes.quantize.schemes.scheme import QuantizationError
from fxlite.passes.rewrite.rule import is_call
from fxlite.passes.rules.fuse_conv_bn import fuse_conv_bn
from fxlite.passes.rules.redundant import remove_dropout

_PLACES = {"weight": 1, "bias": 2}


def exchange_weight(module: GraphModule, node: Node, name: str, value: Any, suffix: str) -> None:
    """Make a layer or norm read ``value`` as its "weight" or "bias", which it may not have had before.
    It is stored beside the old one under the old name plus ``suffix``, so that the graph shows what was
    done, and other readers of the old one keep it."""
    old = node.arguments.get(name)
    wish = f"{old.target}_{suffix}" if old is not None else _sibling(node, name)
    target = unique_attribute(module, wish)
    module.set_attribute(target, Parameter(value))
    graph, place = module.graph, _PLACES[name]
    with graph.inserting_before(node), graph.with_origin(node):
        new = graph.get_attr(target)
    kwargs = {k: v for k, v in node.kwargs.items() if k != name}
    node._set_arguments((*node.args[:place], new, *node.args[place + 1 :]), kwargs)
    if old is not None and not old.users:
        graph.erase_node(old)


def _sibling(node: Node, name: str) -> str:
    """A path next to the node's weight."""
    owner = node.arguments["weight"].target.rpartition(".")[0]
    return f"{owner}.{name}" if owner else f"{node.name}_{name}"


# -- equalization ----------------------------------------------------------------------------------
_SWEEPS = 20
_ENOUGH = 0.01  # log of the scales, below which equalization changes too little


@graph_pass(exactness="allclose", inside=False)
def equalize(gm: GraphModule) -> None:
    """Scale the channels between two layers so that their weights have equal ranges on both sides:
    cross-layer equalization, which is done before quantization.

    Layers are linear layers and convolutions (also depthwise) with float32 weights. Between them there
    may be relu, leaky_relu, prelu, pooling, a mean over places and flattening, each with a single
    reader. Batch norm is folded and dropout removed first. Chains are processed repeatedly, at most 20
    times, until no scale changes by more than 1 %. The ledger lists pairs with anything else between them."""
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


equalize.example(_Uneven, "the weights of a channel shrink, and grow after the relu", x="f32[B,4]")
equalize.counterexample(_Tanh, "tanh(x / s) is not tanh(x) / s", x="f32[B,4]")
equalize.counterexample(_Even, "the ranges are equal already", x="f32[B,4]")


# -- pairs -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Pair:
    """Two layers; each channel of the first corresponds to ``repeats`` adjacent inputs of the second."""

    first: Node
    second: Node
    repeats: int


def is_layer(node: Node) -> bool:
    """True for a float32 linear layer or convolution whose weight and bias belong to the program."""
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
    """The layer that is the only reader of the channels of ``first``; otherwise the reason why there is
    none, or "" if no layer follows."""
    value, repeats = first, 1
    is_last = first.target.name == "linear"  # its channels are the last axis, those of others axis 1
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
            return f"{user.name} ({name}) follows it, and {name}(x / s) is not {name}(x) / s"
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
    """True for [B, C, ...] to [B, C * ...] with known sizes."""
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
    scaled accordingly, in place."""
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


def scale_layer(gm: GraphModule, layer: Node, suffix: str, inputs: Any = None, results: Any = None) -> None:
    """Multiply the result of a layer by ``results``, a number for each output channel, and the weights
    that read an input channel by ``inputs``; the names of the new arrays get the suffix. A norm whose
    weight has one axis can only have ``results``."""
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


# -- SmoothQuant -----------------------------------------------------------------------------------


@checked
def smooth_quant(program: Any, batches: Iterable[Any], alpha: float = 0.5, insert: bool = False) -> GraphModule:
    """A float module whose linear layers read smoother activations; quantize it next. ``batches``
    are inputs (each an array, a tuple of arguments or a dict of named ones), read once. ``alpha``,
    from 0 to 1, says how much of the difference in ranges moves to the weights.

    The factor is folded into a layer norm, an RMS norm, or a linear layer (also through relu) that
    only linear layers read. If nothing can take it (because the value is read elsewhere too, as in
    BERT, whose residual stream comes from the norm), the value stays as it is, with the reason in the
    ledger; with ``insert`` a multiplication is put before the linear layers instead, which fuses with
    quantize.

    Raises QuantizationError for alpha outside 0..1, no batches, and NaN or infinities in them."""
    if not 0 <= alpha <= 1:
        raise QuantizationError(f"alpha must be in 0..1, not {alpha}")
    given = as_module(program)
    module = copy_with_ledger(given)
    remove_dropout.function(module)
    read_by: dict[Node, list[Node]] = {}
    for node in module.graph.find_nodes(op="call_function", target="linear"):
        x = node.arguments["x"]
        if is_layer(node) and isinstance(x, Node) and not is_weight(x):
            read_by.setdefault(x, []).append(node)
    largest = _largest(module, read_by, batches)
    for value, layers in read_by.items():
        source = _source(value, layers)
        if isinstance(source, str) and not insert:
            refuse(module, "smooth_quant", value, source, layers)
            continue
        scale = _factors(module, largest[value], layers, alpha)
        if isinstance(source, Node):
            scale_layer(module, source, "smoothed", results=1 / scale)
        else:
            _insert(module, value, layers, 1 / scale)
        for layer in layers:
            scale_layer(module, layer, "smoothed", inputs=scale)
    module.delete_all_unused_submodules()
    return module


class _Largest(Interpreter):
    """Records the largest magnitude of each channel (the last axis) of some values."""

    def __init__(self, module: GraphModule, wanted: dict[Node, list[Node]]) -> None:
        super().__init__(module)
        self.found: dict[Node, Any] = dict.fromkeys(wanted)

    def run_node(self, node: Node) -> Any:
        value = super().run_node(node)
        if node in self.found:
            rows = np.abs(value).reshape(-1, value.shape[-1])
            before = self.found[node]
            most = rows.max(axis=0, initial=0)
            if not np.isfinite(most).all():
                raise QuantizationError(f"smooth_quant: {node.describe()} is NaN or infinite")
            self.found[node] = most if before is None else np.maximum(before, most)
        return value


def _largest(module: GraphModule, wanted: dict[Node, list[Node]], batches: Iterable[Any]) -> dict[Node, Any]:
    run = _Largest(module, wanted)
    for batch in some(batches):
        args, kwargs = arguments_of(batch)
        run.run(*args, **kwargs)
    return run.found


def _source(value: Node, layers: list[Node]) -> Node | str:
    """The node that can take the inverse factors of a value, or the reason why there is none."""
    others = [u.name for u in value.users if u not in layers]
    if others:
        return f"{value.name} is read by {', '.join(others[:3])} too, which would see it divided"
    while is_call(value, "relu", "leaky_relu"):
        value = value.args[0]
        if len(value.users) > 1:
            return f"{value.name} is read by {len(value.users)} nodes"
    if value.op == "call_function" and "normalized_shape" in value.arguments:
        arguments = value.arguments
        weights = [arguments.get("weight"), arguments.get("bias")]
        if weights[0] is None or not all(w is None or is_weight(w) for w in weights):
            return f"{value.name} has no weight of the program's that could take the factors"
        if arguments["weight"].type.rank != 1:
            return f"{value.name} normalizes more than the last axis"
        return value
    if is_call(value, "linear") and is_layer(value):
        return value
    what = value.target.name if value.op == "call_function" else "an input"
    return f"{value.name} ({what}) has no weight that could take the factors"


def _factors(module: GraphModule, largest: Any, layers: list[Node], alpha: float) -> Any:
    """s for each channel; 1 if the channel or its weights are all 0."""
    weights = np.zeros(len(largest))
    for layer in layers:
        array = np.abs(module.get_attribute(layer.arguments["weight"].target))
        weights = np.maximum(weights, array.max(axis=0, initial=0))
    usable = (largest > 0) & (weights > 0)
    x = np.where(usable, largest, 1).astype(np.float64)
    return x**alpha / np.where(usable, weights, 1) ** (1 - alpha)


def _insert(module: GraphModule, value: Node, layers: list[Node], factors: Any) -> None:
    """Make the layers, which are in the graph's order, read ``value * factors``."""
    graph = module.graph
    path = unique_attribute(module, f"{value.name}_smoothing")
    module.set_attribute(path, factors.astype(np.float32))
    with graph.inserting_before(layers[0]), graph.with_origin(value):
        factor = graph.get_attr(path)
        scaled = graph.call_function("mul", (value, factor), {}, name=f"{value.name}_smooth")
    for layer in layers:
        layer.replace_input_with(value, scaled)
