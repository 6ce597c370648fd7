"""What an op over images saves if it is computed channels-last, for :mod:`.channels_last`.

In: a typed node. Out: a :class:`Gain`. The unit is the time of a scalar multiply-add when a core is
busy with vectors of them; the constants are those of the C kernels, measured on a Zen 4 core
(AVX-512). They only have to rank: named sizes count as usual ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fxlite.graph.graph import Node
from fxlite.ops.image.spatial import per_axis
from fxlite.types import shapes
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType

USUAL_BATCH, USUAL_SIZE = 1, 32
"""What a named size counts as: in the first axis, and elsewhere."""

LANES = 16
"""float32 in a vector."""

WINOGRAD_CHANNELS = 8
"""Channels of both sides from which 3x3 convolutions may be computed by Winograd's algorithm."""

TURNED_INSIDE = 12
"""An element of a channels-first image that Winograd's algorithm reads or makes: it computes with
channels last."""

TRANSFORMED = 11
"""A point of a channel, transformed for Winograd's algorithm."""

STORED_ALONG = 12
"""An element that is stored in the other layout by the kernel that computes it."""

READ_AND_STORED = 60
"""An element that is turned by a kernel of its own: read here, stored there."""

TURNED_BYTE, TURNED_SUM = 20, 40
"""A number of a channels-first image of integers, and one of its convolution's results: the kernel
is for channels-last images, turns what it reads and stores one number after the other."""

DEPTHWISE_BF16 = 1.5
"""A multiply-add of a depthwise convolution of a channels-last image of bf16, with
``matmul_precision="medium"``: half the bytes for it and for the layers around it, of which those
before it are products of bf16 then. Less than was measured on MobileNetV2's first layers (4)."""

CACHE_BYTES = 1 << 20
"""Images of so many bytes do not stay in the second-level cache between rows."""


@dataclass(frozen=True)
class Gain:
    """``saved`` multiply-adds by computing a node channels-last (negative: lost), and ``why``."""

    saved: float
    why: str


def gain_of(node: Node, bf16: bool = False) -> Gain | None:
    """What a convolution or pooling saves; None for those that gain nothing by any measure, such as
    grouped convolutions, of which the kernels are for channels-first images. ``bf16``: products
    are those of ``matmul_precision="medium"``."""
    if node.target.name == "conv2d":
        return _conv_gain(node, bf16 and node.type.dtype.name == "f32")
    if node.target.name == "int_conv2d":
        saved = TURNED_BYTE * elements(node.args[0].type) + TURNED_SUM * elements(node.type)
        return Gain(saved, "four channels of a pixel are multiplied at once")
    window = math.prod(per_axis(node.arguments["kernel_size"], 2, "kernel_size"))
    stride = node.bound["stride"] or node.arguments["kernel_size"]
    strides = per_axis(stride, 2, "stride")
    saved = elements(node.type) * window * (25 if max(strides) > 1 else 3)
    return Gain(saved, "windows are vectors of channels, which strides do not break")


def elements(type: TensorType) -> float:
    """Elements of a value, named sizes as usual ones."""
    return math.prod(_sizes(type))


def _sizes(type: TensorType) -> list[float]:
    return [_number(d, USUAL_BATCH if axis == 0 else USUAL_SIZE) for axis, d in
            enumerate(type.shape)]  # fmt: skip


def _number(dim: Dim, usual: int) -> float:
    return float(shapes.substitute(dim, dict.fromkeys(shapes.names(dim), usual)))


def _whole(size: float) -> float:
    """Lanes of whole vectors."""
    return math.ceil(size / LANES) * LANES


def _conv_gain(node: Node, bf16: bool) -> Gain | None:
    arguments = node.bound
    groups = arguments["groups"]
    n, c, h, w = _sizes(node.args[0].type)
    _, k, out_h, out_w = _sizes(node.type)
    taps = math.prod(node.args[1].type.shape[2:])
    strides = per_axis(arguments["stride"], 2, "stride")
    dilations = per_axis(arguments["dilation"], 2, "dilation")
    pixels = n * out_h * out_w
    if groups > 1:
        if not groups == c == k:
            return None
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
    if (taps, *strides, *dilations) == (9, 1, 1, 1, 1) and min(c, k - 1) >= WINOGRAD_CHANNELS:
        direct = 1.1 * pixels * 9 * c * _whole(k)
        tiled = _winograd(n, c, out_h, out_w, k)
        if tiled < 0.9 * direct and c % LANES == 0:
            why = "Winograd's algorithm transforms vectors of channels"
            return Gain(TURNED_INSIDE * (n * c * h * w + pixels * k), why)
        if tiled < 0.9 * direct:
            why = f"Winograd's algorithm reads whole vectors of channels, not {c:.0f}"
            return Gain(tiled - direct, why)
    shallow = c * taps <= LANES * 2 and max(strides) <= 2
    first = n * out_h * _whole(out_w) * k if shallow else pixels * _whole(k)
    saved = 1.1 * c * taps * max(first - pixels * _whole(k), 0)
    return Gain(saved, "vectors of channels are full, those of pixels are not")


def _winograd(n: float, c: float, height: float, width: float, k: float) -> float:
    """A 3x3 convolution by tiles of 4 x 4 or 2 x 2 pixels: products at each point, transforms."""
    return min(
        n * math.ceil(height / m) * math.ceil(width / m) * (m + 2) ** 2
        * (c * _whole(k) + TRANSFORMED * (_whole(c) + _whole(k)))
        for m in (2, 4)
    )  # fmt: skip
