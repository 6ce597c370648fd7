"""What a convolution is, by which plan it is computed, and how its weights are packed for that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fxlite.codegen.c.gemm_pack import ITEM_BYTES, pack_b, panel_columns
from fxlite.codegen.c.gemm_text import add, atom
from fxlite.codegen.c.winograd_tile import Tile, transform_weight

Plan = Literal["product", "channels", "pixels", "winograd"]

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
        return "pixels"
    if not is_pointwise(spec):
        return "winograd" if winograd_tile(spec) else "channels"
    pixels = int(spec.h) * int(spec.w) if spec.h.isdecimal() and spec.w.isdecimal() else 0
    return "channels" if pixels * 100 < 85 * (-(-pixels // 16) * 16) else "product"


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
    """Distance of the rows of a 1x1 weight: not a multiple of 4 KiB, see `gemm._copies_a`."""
    inputs = spec.group_inputs
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
        return f"k * {product_pitch(spec)} + depth"
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


def pack_conv_weight(weight: np.ndarray[Any, Any], spec: ConvSpec) -> np.ndarray[Any, Any]:
    """Pack a [K, C/groups, R, S] weight for `render_conv(spec)`; the result is flat.

    "product":  the matrix [K, C/groups], its rows kept off multiples of 4 KiB
    "channels": for each group, `pack_b` of the matrix [C/groups * R * S, K/groups]
    "pixels":   as it is, output channels of a group padded with zeros to whole tiles
    "winograd": for each panel of `pack_b`, the matrices [C, K] of all points
    """
    plan = plan_of(spec)
    if m := winograd_tile(spec):
        points = transform_weight(weight, m)
        panels = [pack_b(p).reshape(-1, spec.c * panel_columns(spec.ctype)) for p in points]
        return np.stack(panels, axis=1).ravel()
    depth = spec.group_inputs * spec.r * spec.s
    rows = weight.reshape(spec.groups, spec.group_outputs, depth)
    if plan == "product":
        padded = np.zeros((spec.k, product_pitch(spec)), weight.dtype)
        padded[:, :depth] = weight.reshape(spec.k, depth)
        return padded.ravel()
    if plan == "pixels":
        step = outputs_per_tile(spec)
        whole = -(-spec.group_outputs // step) * step
        return np.pad(rows, ((0, 0), (0, whole - spec.group_outputs), (0, 0))).ravel()
    packed = [pack_b(np.ascontiguousarray(group.T)) for group in rows]
    return np.concatenate(packed) if packed else np.zeros(0, weight.dtype)
