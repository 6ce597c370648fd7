"""The description of a convolution, the plan by which it is computed, and the packing of its weights for the plan."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fxlite.codegen.c.dynamic_scale import Beside
from fxlite.codegen.c.product.gemm_spec import ITEM_BYTES, MOST_PACKED, bf16_pairs, pack_b, panel_columns
from fxlite.codegen.c.tiles.library import constant
from fxlite.codegen.kernel.builder import Size
from fxlite.scalar.index import Index

VECTOR_BYTES, MOST_PIXELS = 64, 11
"""Bytes of a vector and pixels of a tile for comparing plans: those of AVX-512."""

SEGMENT = 64
"""Pixels of an output row that are finished together in an array on the stack."""

LARGEST_KERNEL = constant("depthwise", "MOST_COLUMNS")
"""The most rows and columns of the kernel of a depthwise convolution whose channels are first."""

Plan = Literal["product", "channels", "pixels", "depthwise", "winograd", "implicit product", "depthwise last"]

MEASURED: dict[str, tuple[Plan, Tile | None]] = {
    "product": ("product", None),
    "channels": ("channels", None),
    "pixels": ("pixels", None),
    "depthwise": ("depthwise", None),
    "winograd 2x2": ("winograd", 2),
    "winograd 4x4": ("winograd", 4),
}
"""The plans by their names in `ConvSpec.measured`, with the sizes of Winograd's tiles."""

TURNING = 20
"""Cycles per pixel for transposing a tile of "channels"; for bf16 also those that a product may waste on the lanes
beyond the last pixel: two for a pair of input channels. Measured on ResNet-50's layers: at 14x14 (196 of 208 lanes)
256 inputs take equally long by both plans, and 1024 are 7 % faster by "channels"; at 7x7 2048 are 22 % faster."""

FEW_OUTPUTS = 8
"""Up to this many output channels per group, vectors hold pixels instead of channels."""


@dataclass(frozen=True)
class ConvSpec:
    """One convolution.

    name        of the C function
    ctype       "float" or "double"
    parameters  C parameter list; `Rendered.extra_parameters` are appended
    n, h, w     number, height and width of the images; may be 0
    c, k        channels of the input and of the output; named ones only work with tables of taps
    r, s        height and width of the kernel
    stride, dilation   (vertical, horizontal)
    padding     (top, left, bottom, right)
    x           pointer to the contiguous input [n, c, h, w]
    weight      pointer to the result of `pack_conv_weight`, or to the weight if it is `computed`
    epilogue    (sum, n, k, oh, ow) -> C statements that consume one element, whose sum is given in
                C: the body of a simd loop along ow
    joinable    whether (0, oh * out_w + ow) may replace (oh, ow) in the epilogue: true if it uses them
                only to address contiguous arrays of the output's height and width
    comment     what is computed, shapes, origin
    bf16        operands may be rounded to bf16, with sums of float: see `reads_pairs`. Only for float
                convolutions
    fetched     float arrays [n, k, oh, ow] of which the epilogue reads or writes only the element it
                is given; they are fetched into the cache in advance
    measured    the plan to use, one of `alternatives.conv_plans`; "" for the one that `plan_of` chooses
    x_last      x is [n, h, w, c]
    x_is_bf16   x, channels-last, is stored as bf16 (uint16_t): for "depthwise last", and for
                "implicit product" with `bf16`
    y_last      results of adjacent channels are stored side by side: the epilogue is the body of a simd
                loop along k
    vector_epilogue  (sum, n, k, oh, ow, count) -> C statements that consume a vector of sums of
                channels from k on, the first `count` of them (or all). None if there are none, or the
                simd loop is as good
    split_epilogue   (sums, n, first k, oh, ow, count, moving) -> the statements for a vector of integer
                sums of channels, in two parts: those that are the same for all pixels, because they do
                not depend on ``moving`` variables, and the rest; see
                `vector_printer.print_integer_vectors`. None if there is no such form
    beside      what is computed in addition to the result, tile by tile
    small       whether weights may not be stored larger than they are, as Winograd's are
    computed    the program computes the weight [K, C/groups, R, S], which is then packed into the
                workspace in each call
    """

    name: str
    ctype: str
    parameters: str
    n: Index
    c: Size
    h: Index
    w: Index
    k: Size
    r: int
    s: int
    x: str
    weight: str
    epilogue: Callable[..., str]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    joinable: bool = False
    comment: str = ""
    bf16: bool = False
    fetched: tuple[str, ...] = ()
    measured: str = ""
    x_last: bool = False
    x_is_bf16: bool = False
    y_last: bool = False
    vector_epilogue: Callable[..., str] | None = None
    split_epilogue: Callable[..., tuple[str, str]] | None = None
    beside: Beside | None = None
    small: bool = False
    computed: bool = False

    @property
    def group_inputs(self) -> Size:
        """Input channels of one group."""
        return self.c // self.groups

    @property
    def group_outputs(self) -> Size:
        """Output channels of one group."""
        return self.k // self.groups

    @property
    def has_names(self) -> bool:
        """Whether channels have names instead of numbers."""
        return isinstance(self.c, Index) or isinstance(self.k, Index)

    @property
    def depth(self) -> Size:
        """Products per output."""
        return self.group_inputs * (self.r * self.s)

    @property
    def reach(self) -> tuple[int, int]:
        """Rows and columns of the input under one kernel."""
        return self.dilation[0] * (self.r - 1) + 1, self.dilation[1] * (self.s - 1) + 1

    def output_size(self) -> tuple[Index, Index]:
        """Height and width of the output."""
        top, left, bottom, right = self.padding
        return (
            _output_extent(self.h, top + bottom, self.reach[0], self.stride[0]),
            _output_extent(self.w, left + right, self.reach[1], self.stride[1]),
        )


def _output_extent(size: Index, padding: int, reach: int, stride: int) -> Index:
    """(size + padding - reach) / stride + 1, or 0 (not 1) if the kernel just does not fit."""
    found = (size + (padding - reach + stride)) // stride
    return found if found.constant is None else Index.of(max(0, found.constant))


def is_pointwise(spec: ConvSpec) -> bool:
    """Whether the kernel is 1x1 and every pixel is used once, so that rows of pixels may be joined."""
    return (spec.r, spec.s, *spec.stride, *spec.padding) == (1, 1, 1, 1, 0, 0, 0, 0)


def plan_of(spec: ConvSpec) -> Plan:
    """The plan that suits the convolution.

    A product fills its last panel of pixels poorly when the image is small (7x7: 49 of 64).
    """
    if spec.has_names:
        return "implicit product" if spec.x_last or spec.y_last else "channels"
    if spec.x_last or spec.y_last:
        if _is_depthwise_last(spec):
            return "depthwise last"
        if not spec.x_last and _is_depthwise(spec):
            return "depthwise"
        return "winograd" if winograd_tile(spec) else "implicit product"
    if spec.measured:
        return MEASURED[spec.measured][0]
    if spec.group_outputs <= FEW_OUTPUTS:
        return "depthwise" if _is_depthwise(spec) else "channels" if _is_narrow(spec) else "pixels"
    if not is_pointwise(spec):
        if winograd_tile(spec):
            return "winograd"
        return "pixels" if _is_shallow(spec) else "channels"
    pixels = (spec.h * spec.w).constant or 0
    lanes = -(-pixels // 16) * 16
    if spec.bf16:
        waste = -(-number(spec.group_inputs) // 2) * 2 * (lanes - pixels) / max(pixels, 1)
        return "channels" if waste > TURNING else "product"
    return "channels" if pixels * 100 < 85 * lanes else "product"


def _is_depthwise(spec: ConvSpec) -> bool:
    """Whether each channel has a small kernel of its own, and images more than one row."""
    alone = spec.c == spec.k == spec.groups and spec.dilation == (1, 1)
    small = max(spec.r, spec.s) <= LARGEST_KERNEL and max(spec.stride) <= 2
    return alone and small and spec.output_size()[0] != 1


def _is_depthwise_last(spec: ConvSpec) -> bool:
    """Whether each channel of a channels-last image has its own kernel, whose rows a tile can unroll."""
    places, kept, parts, columns = (
        constant("channels_last", name) for name in ("MOST_PLACES", "KEPT_COLUMNS", "MOST_PARTS", "MOST_COLUMNS")
    )
    under = (places - 1) * spec.stride[1] + (min(spec.s, kept) - 1) * spec.dilation[1] + 1
    alone = spec.x_last and spec.c == spec.k == spec.groups
    return alone and spec.s <= kept * parts and under <= columns


PENDING = 8
"""Sums of half vectors that keep a core of Zen 4 busy: two are started per cycle, and each takes four cycles."""

TURNING_FEW = 8
"""Cycles per pixel for transposing a tile of up to 16 channels."""


def _is_narrow(spec: ConvSpec) -> bool:
    """Whether vectors of pixels would waste more lanes than half a vector of a few output channels, because
    rows of the output are short, or few."""
    height, width = (known(size, USUAL_SIZE) for size in spec.output_size())
    lanes, outputs = VECTOR_BYTES // ITEM_BYTES[spec.ctype], number(spec.group_outputs)
    tile = width / -(-width // MOST_PIXELS)
    each = 0.5 * max(1, PENDING / tile) if outputs <= lanes // 2 else max(1, PENDING / 2 / tile)
    channels = height * width * (each + TURNING_FEW / number(spec.depth))
    step = outputs_per_tile(spec)
    rows, across = -(-height // PIXEL_ROWS) * PIXEL_ROWS, -(-width // lanes)
    if are_single_rows(spec):
        rows, across = height, -(-width // SEGMENT) * SEGMENT // lanes
    pixels = -(-outputs // step) * step * rows * across
    if spec.stride == (1, 1) and (height - 1) * (width + spec.reach[1] - 1) + width <= SEGMENT:
        pixels = min(pixels, -(-outputs // step) * step * SEGMENT // lanes)  # joined rows
    return channels < 0.8 * pixels


SHALLOW = 32
"""Products per output up to which transposing a tile of channels costs more than the lanes that vectors of pixels
waste: the first layers of networks for images."""


TURNED = 9
"""The products per output that transposing a tile of channels is worth (measured for images of one row: depth 3 1.8 to
2.5 times the products, 24 1.4, 30 1.3)."""

USUAL_FILL = 0.7
"""The part of a segment's lanes that an output row of a named length fills, if images have one row."""


def _is_shallow(spec: ConvSpec) -> bool:
    """Whether there are few products per output, and output rows fill tiles of vectors of pixels well."""
    if spec.groups != 1 or number(spec.depth) > SHALLOW or max(spec.stride) > 2:
        return False
    depth, (height, width) = number(spec.depth), _fills(spec)
    return max(height, width) > depth / (depth + TURNED)


def are_single_rows(spec: ConvSpec) -> bool:
    """Whether a tile of the plan "pixels" is four vectors of one output row, and not one of each of several rows."""
    rows, row = _fills(spec)
    return row > rows


def _fills(spec: ConvSpec) -> tuple[float, float]:
    """The part of the lanes that pixels fill in tiles of several rows, and in those of one row."""
    height, width = (size.constant for size in spec.output_size())
    row = USUAL_FILL if width is None else width / max(-(-width // SEGMENT) * SEGMENT, 1)
    if height == 1:
        return 0.0, row
    rows = 1.0 if height is None else height / max(-(-height // PIXEL_ROWS) * PIXEL_ROWS, 1)
    return (rows, 0.0) if width is None else (rows * width / max(-(-width // 16) * 16, 1), row)


PIXEL_ROWS = 4
"""Rows of the output in a tile of the plan "pixels"."""

WEIGHT_BYTES = 8
"""Bytes of weights read per cycle, from memory or a cache that other programs share; products wait for the rest."""

KEPT_WEIGHTS = 1 << 20
"""Weights of up to this many bytes stay in the second-level cache from one image to the next."""

TRANSFORMED = 0.7
"""Cycles per point and channel (in whole vectors) of a transform in either direction. Together with the others, this
predicts the time of 31 layers with images 3 to 112 pixels wide and 8 to 512 channels to about a fifth, and the faster
of the two tile sizes for all but the smallest layers."""

DIRECT = 1.1
"""The cost of the definition relative to its vectors of multiply-adds; for bf16, whose pixels are copied into pairs, a
fifth more."""

USUAL_SIZE = 32
"""The number that stands for a named height or width."""


def winograd_tile(spec: ConvSpec) -> Tile | None:
    """The size of Winograd's tiles that suits the convolution; None if Winograd's algorithm is slower.

    For bf16, tiles of 4 x 4 are too inexact (errors of 1.5e-2 of the largest output, against 3.5e-3 with
    2 x 2 and 2.4e-3 with the definition), and in float they were slower than 2 x 2 in bf16 on every
    layer of ResNet-18."""
    if spec.small or spec.computed or spec.has_names:
        return None
    if spec.x_is_bf16 or (spec.x_last and number(spec.c) % 16):
        return None  # vectors of channels are read in place
    if spec.measured and not spec.x_last and not spec.y_last:
        return MEASURED[spec.measured][1]
    shape = (spec.ctype, spec.r, spec.s, *spec.stride, *spec.dilation, spec.groups)
    if shape != ("float", 3, 3, 1, 1, 1, 1, 1) or spec.c < 8 or spec.k <= FEW_OUTPUTS:
        return None
    sizes: tuple[Tile, ...] = (2,) if spec.bf16 else (2, 4)
    best = min(sizes, key=lambda m: winograd_cycles(spec, m))
    direct = winograd_cycles(spec, 1) * (DIRECT * 1.2 if spec.bf16 else DIRECT)
    return best if winograd_cycles(spec, best) < 0.9 * direct else None


def known(size: Size, otherwise: int) -> int:
    """The size if it is a number, or else a guess."""
    constant = Index.of(size).constant
    return otherwise if constant is None else constant


def number(size: Size) -> int:
    """A size that must be a number."""
    constant = Index.of(size).constant
    assert constant is not None
    return constant


def winograd_cycles(spec: ConvSpec, m: int) -> float:
    """Cycles of a 3x3 convolution with tiles of m x m pixels: the products of whole tiles, the bytes of
    weights (tiles of 4 x 4 have four times as many as the kernel), and the transforms of points. For
    m = 1 the vectors and weights of the definition."""
    height, width = (known(size, USUAL_SIZE) for size in spec.output_size())
    images = known(spec.n, 1)
    tiles = images * -(-height // m) * -(-width // m)
    points = (m + 2) ** 2 if m > 1 else 9
    channels = number(spec.c)
    inputs, outputs = (-(-size // 16) * 16 for size in (channels, number(spec.k)))
    size = points * channels * outputs * 4 // (2 if spec.bf16 else 1)
    products = tiles * points * channels * outputs / 16 / (2 if spec.bf16 else 1)
    read = size * (1 if size < KEPT_WEIGHTS else images) / WEIGHT_BYTES
    transforms = TRANSFORMED * tiles * points * (inputs + outputs) if m > 1 else 0
    return products + read + transforms


# ---- weights --------------------------------------------------------------------------------


def reads_pairs(spec: ConvSpec) -> bool:
    """Whether operands are rounded to bf16, and the weights packed as pairs of input channels 2p and
    2p + 1; an odd number of channels is padded with zero."""
    plan = plan_of(spec)
    if not spec.bf16 or (plan == "winograd" and winograd_tile(spec) != 2):
        return False
    if plan == "implicit product" and spec.x_last:  # the pairs of a group lie side by side
        return spec.groups == 1 or number(spec.group_inputs) % 2 == 0
    return plan in ("product", "channels", "winograd", "implicit product")


def reads_runs(spec: ConvSpec) -> bool:
    """Whether a kernel's numbers are read in *runs* of a channels-last image: those of a row of the kernel, or the
    channels of a pixel, are adjacent. Weights are packed in that order."""
    if not spec.x_last or spec.computed or spec.has_names or reads_pairs(spec):
        return False
    return plan_of(spec) == "implicit product" and 0 < number(spec.depth) <= MOST_PACKED


def input_planes(spec: ConvSpec) -> Size:
    """Input channels of a group, or pairs of them."""
    return -(-spec.group_inputs // 2) if reads_pairs(spec) else spec.group_inputs


def product_pitch(spec: ConvSpec) -> int:
    """Distance of the rows of a 1x1 weight, which is in pairs for bf16; not a multiple of 4 KiB, see
    `gemm_spec.copies_a`."""
    inputs = number(input_planes(spec))
    return inputs + 16 if inputs * ITEM_BYTES[spec.ctype] % 4096 == 0 else inputs


def outputs_per_tile(spec: ConvSpec) -> int:
    """Output channels in one tile of the plan "pixels": 1, 2 or 4."""
    outputs = number(spec.group_outputs)
    return min(outputs, 4) if outputs != 3 else 4


def packed_conv_size(spec: ConvSpec) -> int:
    """Number of elements in the result of `pack_conv_weight`."""
    plan = plan_of(spec)
    inputs, outputs = number(input_planes(spec)), number(spec.k)
    depth = inputs * spec.r * spec.s
    width = panel_columns(spec.ctype)
    if plan == "product":
        return outputs * product_pitch(spec)
    if plan.startswith("depthwise"):
        return outputs * depth
    if m := winograd_tile(spec):
        return (m + 2) ** 2 * inputs * -(-outputs // width) * width
    step = outputs_per_tile(spec) if plan == "pixels" else width
    return spec.groups * -(-outputs // spec.groups // step) * step * depth


def pack_conv_weight(
    weight: np.ndarray[Any, Any], spec: ConvSpec, packed: np.ndarray[Any, Any] | None = None
) -> np.ndarray[Any, Any]:
    """Pack a [K, C/groups, R, S] weight for `render_conv(spec)`; the result is flat, and is written to
    ``packed`` if given.

    "product":  the matrix [K, C/groups], with rows kept off multiples of 4 KiB; for bf16 in pairs
    "channels": for each group, `pack_b` of the matrix [C/groups * R * S, K/groups]; for bf16 of
                pairs
    "implicit product": the same, or of [R * S * C/groups, K/groups] if `reads_runs` is true
    "pixels":   unchanged, with output channels of a group padded with zeros to whole tiles
    "depthwise": unchanged
    "winograd": for each panel of `pack_b`, the matrices [C, K] of all points; for bf16 of pairs
    """
    plan = plan_of(spec)
    pairs = reads_pairs(spec)
    depth, inputs, outputs = map(number, (spec.depth, spec.group_inputs, spec.group_outputs))
    if packed is None:
        packed = np.empty(packed_conv_size(spec), np.uint32 if pairs else weight.dtype)
    if m := winograd_tile(spec):
        width = panel_columns(spec.ctype)
        for panel, block in enumerate(packed.reshape(-1, (m + 2) ** 2, number(input_planes(spec)), width)):
            points = transform_weight(weight[panel * width : (panel + 1) * width], m)
            if pairs:
                points = bf16_pairs(points.swapaxes(1, 2)).swapaxes(1, 2)
            block[..., : points.shape[2]] = points
            block[..., points.shape[2] :] = 0
        return packed
    rows = weight.reshape(spec.groups, outputs, depth)
    if plan == "product":
        matrix = weight.reshape(-1, depth)
        matrix = bf16_pairs(matrix) if pairs else matrix
        pitch = product_pitch(spec)
        packed[:] = np.pad(matrix, ((0, 0), (0, pitch - matrix.shape[1]))).ravel()
    elif plan == "depthwise":
        packed[:] = weight.ravel()
    elif plan == "depthwise last":
        packed[:] = weight.reshape(-1, depth).T.ravel()
    elif plan == "pixels":
        step = outputs_per_tile(spec)
        packed[:] = np.pad(rows, ((0, 0), (0, -outputs % step), (0, 0))).ravel()
    elif packed.size:
        if pairs:  # along the channels, which then come before the taps again
            taps = rows.reshape(*rows.shape[:2], inputs, -1).swapaxes(2, 3)
            rows = bf16_pairs(taps).swapaxes(2, 3).reshape(*rows.shape[:2], -1)
        elif reads_runs(spec):
            rows = rows.reshape(*rows.shape[:2], inputs, -1).swapaxes(2, 3).reshape(rows.shape)
        for group, panels in zip(rows, packed.reshape(spec.groups, -1)):
            pack_b(group.T, panels)
    return packed


# -- the matrices of Winograd's transforms ---------------------------------------------------------
# The matrices of Winograd's convolution, and weights transformed by them; `tiles/winograd.h` explains
# what it computes, and how accurate it is.


Tile = Literal[2, 4]

POINTS: dict[Tile, tuple[float, ...]] = {2: (0, 1, -1), 4: (0, 0.75, -0.75, 1.5, -1.5)}
"""The finite points; they, and so the matrices A and B, are exact in float32."""


def kernel_matrix(m: Tile) -> np.ndarray[Any, Any]:
    """G, [m+2, 3]: a kernel's values at the points, with the divisions that B's rows leave out."""
    rows = [[0.0, 0.0, 1.0]]
    for t in reversed(POINTS[m]):
        scale = math.prod([t - other for other in POINTS[m] if other != t])
        # For m = 2 the sign of the first row of the input transform is reversed.
        rows.insert(0, [power / (-scale if m == 2 and t == 0 else scale) for power in (1, t, t**2)])
    return np.array(rows)


def transform_weight(weight: np.ndarray[Any, Any], m: Tile) -> np.ndarray[Any, Any]:
    """[K, C, 3, 3] -> [(m+2)**2, C, K], computed in float64."""
    g = kernel_matrix(m)
    k, c = weight.shape[:2]
    taps = weight.transpose(2, 3, 1, 0).astype(np.float64, order="C").reshape(3, 3, c * k)
    points = np.einsum("bs,asn->abn", g, np.einsum("ar,rsn->asn", g, taps))
    return np.asarray(points.reshape((m + 2) ** 2, c, k), weight.dtype)
