"""What a convolution is, by which plan it is computed, and how its weights are packed for that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fxlite.codegen.c.depthwise_tile import LARGEST_KERNEL
from fxlite.codegen.c.gemm_bf16 import bf16_pairs
from fxlite.codegen.c.gemm_pack import ITEM_BYTES, pack_b, panel_columns
from fxlite.codegen.c.gemm_text import add, atom
from fxlite.codegen.c.winograd_tile import Tile, transform_weight

Plan = Literal["product", "channels", "pixels", "depthwise", "winograd"]

FEW_OUTPUTS = 8
"""Up to so many output channels per group, vectors hold pixels instead of channels."""


@dataclass(frozen=True)
class ConvSpec:
    """One convolution.

    name        of the C function
    ctype       "float" or "double"
    parameters  C parameter list; `Rendered.extra_parameters` are appended
    n, h, w     C expressions of the images' number, height, width (literals where known; may be 0)
    c, k        channels of the input and of the output
    r, s        height and width of the kernel
    stride, dilation   (vertical, horizontal)
    padding     (top, left, bottom, right)
    x           pointer to the contiguous input [n, c, h, w]
    weight      pointer to what `pack_conv_weight` returned
    epilogue    (sum, n, k, oh, ow) -> C statements that consume one element: the body of a simd
                loop along ow
    joinable    whether (0, oh * out_w + ow) may stand for (oh, ow) in the epilogue: true if it
                uses them only to address contiguous arrays of the output's height and width
    comment     what is computed, shapes, origin
    bf16        by the plan "product", operands are rounded to bf16 and sums are float; the other
                plans compute as ever. Of float convolutions only
    """

    name: str
    ctype: str
    parameters: str
    n: str
    c: int
    h: str
    w: str
    k: int
    r: int
    s: int
    x: str
    weight: str
    epilogue: Callable[[str, str, str, str, str], str]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    joinable: bool = False
    comment: str = ""
    bf16: bool = False

    @property
    def group_inputs(self) -> int:
        """Input channels of one group."""
        return self.c // self.groups

    @property
    def group_outputs(self) -> int:
        """Output channels of one group."""
        return self.k // self.groups

    @property
    def reach(self) -> tuple[int, int]:
        """Rows and columns of the input under one kernel."""
        return self.dilation[0] * (self.r - 1) + 1, self.dilation[1] * (self.s - 1) + 1

    def output_size(self) -> tuple[str, str]:
        """C expressions of the height and width of the output."""
        top, left, bottom, right = self.padding
        return (
            _output_extent(self.h, top + bottom, self.reach[0], self.stride[0]),
            _output_extent(self.w, left + right, self.reach[1], self.stride[1]),
        )


def _output_extent(size: str, padding: int, reach: int, stride: int) -> str:
    """(size + padding - reach) / stride + 1, and 0 (not 1) where the kernel just does not fit."""
    if size.isdecimal():
        return str(max(0, (int(size) + padding - reach + stride) // stride))
    shift = padding - reach + stride
    total = add(size, str(shift)) if shift >= 0 else f"{size} - {-shift}"
    return (
        total if stride == 1 else f"({total}) / {stride}" if shift else f"{atom(size)} / {stride}"
    )


def is_pointwise(spec: ConvSpec) -> bool:
    """Whether the kernel is 1x1 and every pixel is used once: then rows of pixels may be joined."""
    return (spec.r, spec.s, *spec.stride, *spec.padding) == (1, 1, 1, 1, 0, 0, 0, 0)


def plan_of(spec: ConvSpec) -> Plan:
    """Which of the plans suits the convolution.

    A product fills its last panel of pixels badly when the image is small (7x7: 49 of 64).
    """
    if spec.group_outputs <= FEW_OUTPUTS:
        return "depthwise" if _is_depthwise(spec) else "pixels"
    if not is_pointwise(spec):
        if winograd_tile(spec):
            return "winograd"
        return "pixels" if _is_shallow(spec) else "channels"
    pixels = int(spec.h) * int(spec.w) if spec.h.isdecimal() and spec.w.isdecimal() else 0
    least = 60 if spec.bf16 else 85  # per cent of the lanes; bf16 takes half the time
    return "channels" if pixels * 100 < least * (-(-pixels // 16) * 16) else "product"


def _is_depthwise(spec: ConvSpec) -> bool:
    """Whether each channel has a small kernel of its own, and images more than one row."""
    alone = spec.c == spec.k == spec.groups and spec.dilation == (1, 1)
    small = max(spec.r, spec.s) <= LARGEST_KERNEL and max(spec.stride) <= 2
    return alone and small and spec.output_size()[0] != "1"


SHALLOW = 32
"""Products per output up to which turning a tile of channels round costs more than the lanes that
vectors of pixels waste: the first layers of networks for images."""


def _is_shallow(spec: ConvSpec) -> bool:
    """Whether there are few products per output, and rows of it fill vectors of pixels well."""
    width = spec.output_size()[1]
    fills = not width.isdecimal() or int(width) * 100 >= 85 * (-(-int(width) // 16) * 16)
    depth = spec.group_inputs * spec.r * spec.s
    return spec.groups == 1 and depth <= SHALLOW and max(spec.stride) <= 2 and fills


WINOGRAD_CHANNELS = 32
"""Input and output channels from which Winograd's transforms are cheap beside the products."""


def winograd_tile(spec: ConvSpec) -> Tile | None:
    """The size of Winograd's tiles that suits the convolution; None where it does not pay.

    Compared are the products of whole tiles and the bytes of weights that a call reads: those of
    tiles of 4 x 4 are four times as many as the kernel's."""
    shape = (spec.ctype, spec.r, spec.s, *spec.stride, *spec.dilation, spec.groups)
    if shape != ("float", 3, 3, 1, 1, 1, 1, 1) or min(spec.c, spec.k) < WINOGRAD_CHANNELS:
        return None
    height, width = spec.output_size()
    if not (height.isdecimal() and width.isdecimal()):
        return 4
    images = int(spec.n) if spec.n.isdecimal() else 1

    def work(m: int) -> float:
        """Cycles for one input and output channel: 16 products and 8 bytes of weights a cycle, and
        what transforming the points costs."""
        tiles = images * -(-int(height) // m) * -(-int(width) // m)
        points = (m + 2) ** 2 if m > 1 else 9
        transforms = tiles * points * (1 / spec.k + 1 / spec.c) if m > 1 else 0
        return tiles * points / 16 + points * 4 / 8 + transforms

    sizes: tuple[Tile, ...] = (2, 4)
    best = min(sizes, key=work)
    return best if work(best) < 0.9 * work(1) else None


# ---- weights --------------------------------------------------------------------------------


def product_pitch(spec: ConvSpec) -> int:
    """Distance of the rows of a 1x1 weight, for bf16 in pairs: not a multiple of 4 KiB, see
    `gemm._copies_a`."""
    inputs = -(-spec.group_inputs // 2) if spec.bf16 else spec.group_inputs
    return inputs + 16 if inputs * ITEM_BYTES[spec.ctype] % 4096 == 0 else inputs


def outputs_per_tile(spec: ConvSpec) -> int:
    """Output channels in one tile of the plan "pixels": 1, 2 or 4."""
    return min(spec.group_outputs, 4) if spec.group_outputs != 3 else 4


def weight_index(spec: ConvSpec) -> str:
    """C expression: where the packed weight of output channel k (of `group`) and `depth` =
    (c * R + r) * S + s is; for Winograd's, that of channels c, k and `point`."""
    depth = spec.group_inputs * spec.r * spec.s
    plan = plan_of(spec)
    output = f"k % {spec.group_outputs}"
    if plan == "product":
        return f"k * {product_pitch(spec)} + depth" + " / 2" * spec.bf16
    if plan == "depthwise":
        return f"k * {depth} + depth"
    if plan == "pixels":
        step = outputs_per_tile(spec)
        whole = -(-spec.group_outputs // step) * step
        return f"(group * {whole} + {output}) * {depth} + depth"
    width = panel_columns(spec.ctype)
    if m := winograd_tile(spec):
        panel = f"k / {width} * {(m + 2) ** 2}"
        return f"(({panel} + point) * {spec.c} + c) * {width} + k % {width}"
    whole = -(-spec.group_outputs // width) * width
    return (
        f"group * {depth * whole} + {output} / {width} * {depth * width}"
        f" + depth * {width} + {output} % {width}"
    )


def packed_conv_size(spec: ConvSpec) -> int:
    """Elements of what `pack_conv_weight` makes."""
    plan = plan_of(spec)
    depth = spec.group_inputs * spec.r * spec.s
    width = panel_columns(spec.ctype)
    if plan == "product":
        return spec.k * product_pitch(spec)
    if plan == "depthwise":
        return spec.k * depth
    if m := winograd_tile(spec):
        return (m + 2) ** 2 * spec.c * -(-spec.k // width) * width
    step = outputs_per_tile(spec) if plan == "pixels" else width
    return spec.groups * -(-spec.group_outputs // step) * step * depth


def pack_conv_weight(
    weight: np.ndarray[Any, Any], spec: ConvSpec, packed: np.ndarray[Any, Any] | None = None
) -> np.ndarray[Any, Any]:
    """Pack a [K, C/groups, R, S] weight for `render_conv(spec)`; the result is flat. ``packed`` is
    where to put it.

    "product":  the matrix [K, C/groups], its rows kept off multiples of 4 KiB; for bf16 as pairs
    "channels": for each group, `pack_b` of the matrix [C/groups * R * S, K/groups]
    "pixels":   as it is, output channels of a group padded with zeros to whole tiles
    "depthwise": as it is
    "winograd": for each panel of `pack_b`, the matrices [C, K] of all points
    """
    plan = plan_of(spec)
    depth = spec.group_inputs * spec.r * spec.s
    if packed is None:
        pairs = spec.bf16 and plan == "product"
        packed = np.empty(packed_conv_size(spec), np.uint32 if pairs else weight.dtype)
    if m := winograd_tile(spec):
        width = panel_columns(spec.ctype)
        for panel, block in enumerate(packed.reshape(-1, (m + 2) ** 2, spec.c, width)):
            points = transform_weight(weight[panel * width : (panel + 1) * width], m)
            block[..., : points.shape[2]] = points
            block[..., points.shape[2] :] = 0
        return packed
    rows = weight.reshape(spec.groups, spec.group_outputs, depth)
    if plan == "product":
        matrix = weight.reshape(spec.k, depth)
        matrix = bf16_pairs(matrix) if spec.bf16 else matrix
        pitch = product_pitch(spec)
        packed[:] = np.pad(matrix, ((0, 0), (0, pitch - matrix.shape[1]))).ravel()
    elif plan == "depthwise":
        packed[:] = weight.ravel()
    elif plan == "pixels":
        step = outputs_per_tile(spec)
        whole = -(-spec.group_outputs // step) * step
        packed[:] = np.pad(rows, ((0, 0), (0, whole - spec.group_outputs), (0, 0))).ravel()
    elif packed.size:
        for group, panels in zip(rows, packed.reshape(spec.groups, -1)):
            pack_b(group.T, panels)
    return packed
