"""C text of one two-dimensional convolution, with its epilogue; no im2col. Of an NCHW image:

    y[n, k, oh, ow] = sum over c, r, s of weight[k, c, r, s] * x[n, c,
        oh * stride + r * dilation - padding, ow * stride + s * dilation - padding]

In goes a `ConvSpec`; out comes a `Rendered` as from `gemm.py`: one ``static`` C function for that
node. Weights are packed once, when the model is compiled, by `pack_conv_weight`; weights that the
program computes are packed at the start of each call, unless the plan reads them as they are. There
are these plans, chosen by `plan_of`:

- "product": 1x1, stride 1, no padding is a matrix product, weight [K, C] times pixels [C, H*W];
- "winograd": 3x3 of stride 1 between 8 channels or more, with fewer products; see
  `tiles/winograd.h`; for images with channels first or last;
- "channels": a tile is up to TILE_ROWS pixels of one output row times 32 output channels. Pixels
  are broadcast, so strides and dilations cost nothing and no image width wastes lanes; the tile is
  transposed before the epilogue, which runs along output rows;
- "pixels": a tile is up to 4 output channels times 4 vectors of pixels, of one row each or side by
  side; for few output channels per group, and for few products per output, as in the first layer of
  a network;
- "depthwise": a small kernel for each channel; a tile is up to 8 rows of a vector of pixels, read in
  place; see `tiles/depthwise.h`;
- "implicit product" and "depthwise last": for images whose channels are last; see
  `conv_panels.py` and `conv_depthwise.py`.

For "channels" and "pixels" a padded image is first copied into the workspace with its zeros. If
`conv_plan.reads_pairs` is true, operands are rounded to bf16: "product" by `tiles/bf16.h`,
"channels" and "implicit product" by `tiles/conv_bf16.h`, "winograd" by `tiles/winograd.h`. If the
processor has AMX, its tiles replace all of these except "product". One-dimensional convolutions have a
height of 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fxlite.codegen.c.conv.conv_depthwise import Depthwise, DepthwiseLast, Pixels
from fxlite.codegen.c.conv.conv_panels import RunTaps, Taps
from fxlite.codegen.c.conv.conv_plan import (
    FEW_OUTPUTS,
    ConvSpec,
    number,
    plan_of,
    product_pitch,
    reads_runs,
    winograd_tile,
)
from fxlite.codegen.c.conv.conv_runs import FEWEST_WORDS, Runs, RunsSpec, run_rows
from fxlite.codegen.c.conv.conv_walk import Axis, empty_result, fetch, finish_joined
from fxlite.codegen.c.conv.conv_winograd import Winograd
from fxlite.codegen.c.product.gemm import render_product
from fxlite.codegen.c.product.gemm_spec import (
    PANEL_COLUMNS,
    GemmSpec,
    Operand,
    pack_b_bf16,
    pack_b_split,
    packed_size,
    panel_columns,
)
from fxlite.codegen.c.product.gemm_walk import Place, Product
from fxlite.codegen.c.weights import Array, PackedWeight
from fxlite.codegen.kernel.builder import Body, Pointer, Rendered, smaller, symbol
from fxlite.graph.graph import Node
from fxlite.scalar.index import Index


def render_conv(spec: ConvSpec) -> Rendered:
    """Print the function of one convolution. Its output must not be negative in size."""
    if (empty := empty_result(spec)) is not None:
        return empty
    plan = plan_of(spec)
    if plan == "product":
        return _render_product(spec)
    m = winograd_tile(spec)
    if m:
        return Winograd(spec, m).render()
    if plan == "pixels":
        return Pixels(spec).render()
    if plan == "depthwise":
        return Depthwise(spec).render()
    if plan == "depthwise last":
        return DepthwiseLast(spec).render()
    return RunTaps(spec).render() if reads_runs(spec) else Taps(spec).render()


def _render_product(spec: ConvSpec) -> Rendered:
    """A 1x1 convolution as the product weight [K, C] @ x [C, H * W], for each image and group."""
    pitch = spec.group_inputs if spec.computed else product_pitch(spec)
    pixels, width = spec.h * spec.w, panel_columns(spec.ctype)
    n, group = symbol("n"), symbol("group") if spec.groups > 1 else Index.of(0)
    first_row, first_channel = group * spec.group_outputs, group * spec.group_inputs
    batch = ("n", spec.n), ("group", Index.of(spec.groups))
    note = f"1x1, {spec.c} -> {spec.k} channels: weight [k, c] @ x [c, h * w]."
    product = GemmSpec(
        name=spec.name,
        ctype=spec.ctype,
        parameters=spec.parameters,
        batch=batch[: 2 if spec.groups > 1 else 1],
        m=Index.of(spec.group_outputs),
        n=pixels,
        k=Index.of(spec.group_inputs),
        a=Operand(spec.weight, first_row * pitch, Index.of(pitch), Index.of(1)),
        b=Operand(spec.x, (n * spec.c + first_channel) * pixels, pixels, Index.of(1)),
        epilogue=lambda total, row, column: "",
        comment=f"{spec.comment}\n{note}".lstrip(),
        bf16="a" if spec.bf16 else "",
    )

    def finish(printed: Product, at: Place) -> None:
        """Print the epilogue over a tile of `rows` output channels and `columns` pixels."""
        body = printed.body
        channel = Axis("k", first_row + at.row_0, at.rows, "i")
        pixel = Axis("ow", at.column_0, at.columns, "j")
        finish_joined(body, spec, at.sum, channel, pixel, n)
        behind = pixels - at.column_0 - width
        if spec.fetched and not behind <= 0:
            body.comment("For the next panel.")
            ahead = body.let("ahead", smaller(behind, width))
            corner = n, first_row + at.row_0, Index.of(0), at.column_0 + width
            fetch(body, spec, spec.output_size(), corner, at.rows, ahead)

    return render_product(product, finish)


# -- on the tiles of AMX ---------------------------------------------------------------------------
# C text of one convolution of floats whose operands are rounded to bf16
# (``matmul_precision="medium"``) or are sums of two bf16 ("high"), on the tiles of AMX.
#
# In goes a `TileConvSpec`, out comes a `Rendered`. On processors with tiles it replaces the plans of
# `conv_plan`. By estimate, an implicit product takes a tenth of the time of float32 there, while
# Winograd's transforms take as long as the products that they save, and its weights are larger. The
# loops are those of `conv_runs`; the image is rounded, or split, while it is copied. When compiled for
# another processor, or if the system refuses tiles, products use vectors, and are slower than the plans
# for those.


@dataclass(frozen=True)
class TileConvSpec(RunsSpec):
    """One convolution of floats; see `ConvSpec`. It has one group.

    parts       1 if operands are rounded to bf16; 2 if they are sums of two
    """

    word: int = 2
    parts: int = 1


TURNED_PRODUCTS = 512
"""Products per number of an image from which converting an image that is not stored channels-last is worthwhile
(with fewer, MobileNet's first layers took six times as long as in float32)."""


def tile_spec(spec: ConvSpec, parts: int) -> TileConvSpec | None:
    """The spec for computing a convolution of floats on tiles, or None if they are not used: that takes one group,
    runs of several words, more than a few output channels, and no product whose operands are rounded already."""
    if spec.ctype != "float" or spec.groups > 1 or spec.k <= FEW_OUTPUTS:
        return None
    if not spec.x_last and number(spec.k) * spec.r * spec.s < TURNED_PRODUCTS * math.prod(spec.stride):
        return None
    if parts == 1 and plan_of(spec) == "product":
        return None
    made = TileConvSpec(**{**vars(spec), "parts": parts})
    return made if made.words >= FEWEST_WORDS else None


def pack_conv_tiles(weight: Array, spec: TileConvSpec) -> Array:
    """A weight [K, C, R, S] as a matrix of `pack_b_bf16` or `pack_b_split`, whose rows are runs
    padded to whole pairs."""
    matrix = run_rows(weight, spec)[0].T
    return pack_b_split(matrix) if spec.parts == 2 else pack_b_bf16(matrix)


def packed_conv_tiles(weight: Node, array: Array, spec: TileConvSpec) -> PackedWeight:
    """The same weight, packed when it is needed."""

    def pack(packed: Array, array: Array) -> None:
        packed[:] = pack_conv_tiles(array.reshape(shape), spec)

    how, shape = ("runs", spec.runs, spec.parts), array.shape
    size = packed_size(spec.parts * spec.runs * spec.words, number(spec.k), 4)
    return PackedWeight((weight, *how), np.dtype(np.uint32), size, pack, array)


def render_conv_tiles(spec: TileConvSpec) -> Rendered:
    """Print the function of one convolution. Its output must not be negative in size."""
    return empty_result(spec) or _TileConv(spec).render()


class _TileConv(Runs):
    """Tiles of pixels times a panel of output channels."""

    spec: TileConvSpec
    image_type = "uint16_t"
    word = "uint32_t"
    tile_rows = "PAIR_ROWS"

    def __init__(self, spec: TileConvSpec) -> None:
        super().__init__(spec)
        self.parts = spec.parts
        self.panel_rows = spec.parts * spec.runs * spec.words

    def note(self) -> str:
        spec = self.spec
        done = "split in two bf16" if spec.parts == 2 else "rounded to bf16"
        return (
            f"{spec.r}x{spec.s}, {spec.c} -> {spec.k} channels; tiles of PAIR_ROWS pixels x "
            f"{PANEL_COLUMNS} output channels.\nOperands are {done}, in pairs that lie side by "
            f"side; sums are float.\nFor a processor with AMX."
        )

    def is_stored_so(self) -> bool:
        return self.spec.x_is_bf16

    def copy_row(self, pixels: str, row: Pointer, target: Pointer) -> None:
        spec, left, columns = self.spec, self.spec.padding[1], self.image_w
        if spec.x_is_bf16:
            bytes_, to = 2 * spec.c, f"(uint8_t *)({target})"
            self.body.call("pad_row_bytes", pixels, bytes_, row, bytes_, 1, left, columns, 0, 0, to)
            return
        lower = target + self.image_numbers if self.parts == 2 else 0
        steps = self.pixel_steps()
        self.body.call("pad_row_rounded", pixels, spec.c, row, *steps, left, columns, target, lower)

    def sum_up(self, body: Body, image: Pointer, columns: Index) -> None:
        spec = self.spec
        name, low = "bf16", Index.of(0)
        if self.parts == 2:
            name, low = "split", self.image_numbers * spec.item_bytes
        runs = spec.runs, spec.run_length, image, low, self.step, self.row_step, "run"
        ends = "ends" if spec.has_ends else 0
        body.call(f"sum_places_{name}", "rows", "pixels", columns, *runs, "weights", ends, "tile")
