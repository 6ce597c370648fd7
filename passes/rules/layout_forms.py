"""Which nodes can be computed channels-last, how, and how much that saves, for
:mod:`fxlite.passes.rules.channels_last`.

In: a typed graph. Out: a :class:`Form` for each convolution, pooling, elementwise op, concat,
reduction and flattening that has one: the images that it reads, the call on their channels-last
versions, and its :class:`Gain`. The unit is the time of one scalar multiply-add when a core runs them
in full vectors; the constants are those of the C kernels, measured on a Zen 4 core (AVX-512). They only
have to rank alternatives: named sizes count as usual ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.ops.image.spatial import TO_FIRST, TO_LAST, per_axis
from fxlite.ops.op import Op, normalize_axes
from fxlite.passes.rewrite.rule import is_call
from fxlite.scalar.functions import COMBINATIONS
from fxlite.types import shapes
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType

# -- what it saves ---------------------------------------------------------------------------------
USUAL_BATCH, USUAL_SIZE = 1, 32
"""The number that stands for a named size: in the first axis, and in all others."""

LANES = 16
"""Number of float32 in a vector."""

WINOGRAD_CHANNELS = 8
"""The smallest number of input and output channels for which 3x3 convolutions may be computed by Winograd's algorithm,
and the largest number of outputs for which a convolution of a channels-first image uses vectors of pixels."""

TURNED_INSIDE = 12
"""Cost per element of a channels-first image that Winograd's algorithm reads or stores; it computes
channels-last."""

TRANSFORMED = 11
"""Cost per transformed point of a channel in Winograd's algorithm."""

STORED_ALONG = 12
"""Cost per element that the computing kernel stores in the other layout."""

READ_AND_STORED = 60
"""Cost per element that a kernel of its own converts: it is read and stored once more."""

TURNED_BYTE, TURNED_SUM = 20, 40
"""Costs per number of a channels-first image of integers, and per result of its convolution: the kernel
works on channels-last images, converts its input and stores one number after the other."""

DEPTHWISE_BF16 = 1.5
"""Saving per multiply-add of a depthwise convolution of a channels-last image of bf16, with
``matmul_precision="medium"``: half the bytes for it and for the layers around it, of which those
before it are then products of bf16. This is less than was measured on MobileNetV2's first layers (4)."""

FAR_CHANNELS = 0.25
"""Saving per multiply-add of other convolutions: in channels-first images the numbers under a kernel are a plane apart,
in channels-last ones they are adjacent. (Measured on a Xeon for 3x3 with stride 2, 5x5 and 2x2 on 14 to 112 rows:
0.06 to 0.43, and with AVX2 0.23 to 0.65.)"""

CACHE_BYTES = 1 << 20
"""Images of this many bytes or more do not stay in the second-level cache between rows."""


@dataclass(frozen=True)
class Gain:
    """``saved``: multiply-adds that channels-last saves for a node (negative: it loses them); ``why``: the reason."""

    saved: float
    why: str


def may_pay(node: Node, bf16: bool) -> bool:
    """Whether a convolution saves more than storing its image and its result in the other layout costs."""
    gain = gain_of(node, bf16)
    around = elements(node.args[0].type) + elements(node.type)
    return gain is not None and gain.saved > STORED_ALONG * around


def gain_of(node: Node, bf16: bool = False) -> Gain | None:
    """The saving of a convolution or pooling; None for those that cannot profit, such as convolutions
    with groups that are not whole vectors of channels. With ``bf16``, products are those of
    ``matmul_precision="medium"``."""
    if node.target.name == "int_conv2d":
        saved = TURNED_BYTE * elements(node.args[0].type) + TURNED_SUM * elements(node.type)
        return Gain(saved, "four channels of a pixel are multiplied at once")
    if node.target.is_convolution:
        return _conv_gain(node, bf16 and node.type.dtype.name == "f32")
    sides = per_axis(node.arguments["kernel_size"], 2, "kernel_size")
    window = math.prod(sides)
    planar = min(window, sum(sides) + 3)  # of a large window, rows are combined first, and then columns
    stride = node.bound["stride"] or node.arguments["kernel_size"]
    strides = per_axis(stride, 2, "stride")
    each = 25 * planar - 4 * (window - planar) if max(strides) > 1 else 3 * planar - (window - planar)
    saved = elements(node.type) * max(each, 0)
    return Gain(saved, "windows are vectors of channels, which strides do not break")


def elements(type: TensorType) -> float:
    """Number of elements of a value; named sizes count as usual ones."""
    return math.prod(_sizes(type))


def _sizes(type: TensorType) -> list[float]:
    return [_number(d, USUAL_BATCH if axis == 0 else USUAL_SIZE) for axis, d in enumerate(type.shape)]


def _number(dim: Dim, usual: int) -> float:
    return float(shapes.substitute(dim, dict.fromkeys(shapes.names(dim), usual)))


def _whole(size: float) -> float:
    """A size rounded up to whole vectors."""
    return math.ceil(size / LANES) * LANES


def _conv_gain(node: Node, bf16: bool) -> Gain | None:
    """The gain of a convolution over two axes, or of one over one axis treated as a single row."""
    arguments = node.bound
    groups, rank = arguments["groups"], node.type.rank - 2
    n, c, *under = _sizes(node.args[0].type)
    _, k, *out = _sizes(node.type)
    (h, w), (out_h, out_w) = ([1.0] * (2 - rank) + sizes for sizes in (under, out))
    taps = math.prod(node.args[1].type.shape[2:])
    strides = per_axis(arguments["stride"], rank, "stride")
    dilations = per_axis(arguments["dilation"], rank, "dilation")
    pixels = n * out_h * out_w
    if groups > 1 and not groups == c == k:
        if k / groups % LANES:
            return None
        wasted = _whole(out_w) / out_w - 1 if c * taps / groups <= LANES * 2 and max(strides) <= 2 else 0
        saved = (1.1 * wasted + 0.4 * FAR_CHANNELS) * pixels * k * taps * c / groups
        return Gain(saved, "the channels of a group are whole vectors")
    if groups > 1:
        if bf16:
            saved = DEPTHWISE_BF16 * pixels * k * taps
            return Gain(saved, "channels-last images are stored as bf16")
        far = 4 * (n * c * h * w + pixels * k) > CACHE_BYTES and max(strides) == 1
        return Gain(-0.6 * pixels * k * taps * far, "rows of channels leave the cache")
    if taps == 1:
        rows = out_h * out_w if max(strides) == 1 else out_w
        fills = rows >= 0.85 * _whole(rows)
        first = n * _whole(rows) * out_h * out_w / rows * k if fills else pixels * _whole(k)
        saved = c * (1.13 * first - 1.02 * pixels * _whole(k))
        return Gain(saved, "a 1x1 convolution is a product whose rows are pixels")
    if (rank, taps, *strides, *dilations) == (2, 9, 1, 1, 1, 1) and min(c, k - 1) >= WINOGRAD_CHANNELS:
        direct = 1.1 * pixels * 9 * c * _whole(k)
        tiled = _winograd(n, c, out_h, out_w, k)
        if tiled < 0.9 * direct and c % LANES == 0:
            why = "Winograd's algorithm transforms vectors of channels"
            return Gain(TURNED_INSIDE * (n * c * h * w + pixels * k), why)
        if tiled < 0.9 * direct:
            why = f"Winograd's algorithm reads whole vectors of channels, not {c:.0f}"
            return Gain(tiled - direct, why)
    if c * taps <= LANES * 2 and max(strides) <= 2:
        saved = 1.1 * c * taps * max(n * out_h * _whole(out_w) * k - pixels * _whole(k), 0)
        return Gain(saved, "vectors of channels are full, those of pixels are not")
    few = k <= WINOGRAD_CHANNELS  # then channels-first uses vectors of pixels
    return Gain(0 if few else FAR_CHANNELS * pixels * c * taps * _whole(k), "the numbers under a kernel are neighbours")


def _winograd(n: float, c: float, height: float, width: float, k: float) -> float:
    """The cost of a 3x3 convolution by tiles of 4 x 4 or 2 x 2 pixels: products at each point, and transforms."""
    return min(
        n
        * math.ceil(height / m)
        * math.ceil(width / m)
        * (m + 2) ** 2
        * (c * _whole(k) + TRANSFORMED * (_whole(c) + _whole(k)))
        for m in (2, 4)
    )


# -- how it is computed ----------------------------------------------------------------------------
_NEUTRAL = Gain(0, "")
_TYPES = ("f32", "f64", "i8", "u8", "i32")  # of results of convolutions and pooling


@dataclass
class Form:
    """How a node is computed channels-last: the ``images`` it reads, and the ``call`` on their
    channels-last versions. If ``is_image``, its result is an image, too; otherwise it is unchanged."""

    node: Node
    images: dict[Node, None]
    call: Callable[[Callable[[Any], Any]], tuple[Any, tuple[Any, ...], dict[str, Any]]]
    is_image: bool = True
    gain: Gain = _NEUTRAL
    last: bool = True


def forms_of(gm: GraphModule, bf16: bool = False) -> dict[Node, Form]:
    """The nodes that have a channels-last form, in order; ``bf16`` is as for :func:`gain_of`."""
    found: dict[Node, Form] = {}
    for node in gm.graph.nodes:
        typed = node.op == "call_function" and isinstance(node.type, TensorType)
        if typed and not node.is_impure():
            form = _form(node, bf16)
            if form is not None:
                found[node] = form
    return found


def has_layouts(op: Op) -> bool:
    """Whether the op takes images in either layout."""
    return "layout" in op.signature.parameters


def _is_image(value: Any) -> bool:
    return isinstance(value, Node) and isinstance(value.type, TensorType) and value.type.rank == 4


def _form(node: Node, bf16: bool) -> Form | None:
    name, kind = node.target.name, node.target.kind
    if has_layouts(node.target):
        return _window_form(node, bf16)
    if name == "adaptive_avg_pool2d" and node.arguments["output_size"] in (1, (1, 1)):
        x = node.args[0]
        mean = {"axis": (1, 2), "keepdims": True}
        return Form(node, {x: None}, lambda last: ("mean", (last(x),), mean))
    if name == "concat" and _is_image(node):
        return _concat_form(node)
    if name == "reshape":
        return _flatten_form(node)
    if kind == "pointwise" and _is_image(node):
        return _pointwise_form(node)
    return _reduction_form(node) if kind == "reduction" else None


def _window_form(node: Node, bf16: bool) -> Form | None:
    """The form of a convolution or pooling."""
    if node.type.dtype.name not in _TYPES or "layout" in node.arguments:
        return None
    gain = gain_of(node, bf16)
    if gain is None:
        return None
    x, *others = node.args
    if node.target.kind == "contraction" and is_permute(x, TO_FIRST):  # otherwise it would be stored permuted
        saved = gain.saved + READ_AND_STORED * elements(x.type)
        gain = Gain(saved, gain.why if gain.saved > 0 else "the image is channels-last already")
    kwargs = {**node.kwargs, "layout": "NHWC"}
    return Form(node, {x: None}, lambda last: (node.target, (last(x), *others), kwargs), gain=gain)


def _concat_form(node: Node) -> Form:
    (tensors,) = node.args
    (axis,) = normalize_axes(node.bound["axis"], 4)
    kwargs = {"axis": TO_LAST.index(axis)}
    return Form(node, dict.fromkeys(tensors), lambda last: ("concat", (tuple(map(last, tensors)),), kwargs))


def _pointwise_form(node: Node) -> Form | None:
    """The form of an elementwise op: operands of rank 4 are images, [C, H, W] are permuted separately,
    numbers stay as they are."""
    operands = node.all_input_nodes
    if "axis" in node.arguments:  # such as that of a quantization by channel
        return None
    if any(not isinstance(v.type, TensorType) or v.type.rank in (1, 2) for v in operands):
        return None
    images = {v: None for v in operands if v.type.rank == 4}

    def call(last: Callable[[Any], Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        return node.target, tuple(map(last, node.args)), dict(node.kwargs)

    return Form(node, images, call)


def _gives_positions(op: Op) -> bool:
    combination = COMBINATIONS.get(op.name)
    return combination is not None and combination.positions


def _reduction_form(node: Node) -> Form | None:
    """The form of a reduction that keeps the order of the remaining axes, or keeps all axes."""
    x = node.args[0]
    if not _is_image(x) or _gives_positions(node.target):
        return None
    keepdims = node.bound["keepdims"]
    axes = normalize_axes(node.bound["axis"], 4)
    left = [a for a in TO_LAST if a not in axes]
    if not keepdims and left != sorted(left):
        return None
    kwargs = {**node.kwargs, "axis": tuple(sorted(TO_LAST.index(a) for a in axes))}
    return Form(node, {x: None}, lambda last: (node.target, (last(x),), kwargs), is_image=bool(keepdims))


def _flatten_form(node: Node) -> Form | None:
    """The form of a reshape to rows that is read only by linear layers with known weights, whose
    columns can be permuted."""
    x = node.args[0]
    if not _is_image(x) or node.type.rank != 2 or any(type(d) is not int for d in x.type.shape[1:]):
        return None
    _, channels, height, width = x.type.shape
    if node.type.shape[1] != channels * height * width or not node.users:
        return None
    for user in node.users:
        is_linear = user.op == "call_function" and user.target.is_linear
        if not is_linear or user.args[0] is not node or user.args[1].op != "get_attr":
            return None
    kwargs = {"shape": node.type.shape}
    return Form(node, {x: None}, lambda last: ("reshape", (last(x),), kwargs), is_image=False)


def is_permute(node: Node, axes: tuple[int, ...]) -> bool:
    """Whether the node permutes a value by these axes."""
    return is_call(node, "permute") and node.kwargs.get("axes") == axes
