"""C text of one convolution of floats whose operands are rounded to bf16
(``matmul_precision="medium"``) or are sums of two bf16 ("high"), on the tiles of AMX.

In goes a `TileConvSpec`, out comes a `Rendered`; chosen where the processor has tiles, in the place
of the plans of `conv_plan`. Estimated: an implicit product takes a tenth of the time of float32
there; Winograd's transforms take as long as the products that they save, and its weights are
larger. The loops are those of `conv_runs`; the image is rounded, or split, while it is copied.
Compiled for another processor, or where the system refuses tiles, products take vectors, slower
than the plans for these.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fxlite.codegen.c.conv.conv_plan import FEW_OUTPUTS, ConvSpec, plan_of
from fxlite.codegen.c.conv.conv_runs import Runs, RunsSpec, run_rows
from fxlite.codegen.c.conv.conv_walk import empty_result
from fxlite.codegen.c.product.packed_operands import PANEL_COLUMNS, pack_b_bf16, pack_b_split, packed_size
from fxlite.codegen.c.text.template_text import Rendered
from fxlite.codegen.c.weights import Array, PackedWeight
from fxlite.codegen.kernel.builder import Body, Pointer
from fxlite.graph.graph import Node
from fxlite.scalar.index import Index


@dataclass(frozen=True)
class TileConvSpec(RunsSpec):
    """One convolution of floats; see `ConvSpec`. It has one group.

    parts       1: operands are rounded to bf16; 2: they are sums of two
    """

    word: int = 2
    parts: int = 1


def suits_tiles(spec: ConvSpec, parts: int) -> bool:
    """Whether a convolution of floats is computed this way where there are tiles: one group, more
    than a few output channels, and no product already whose operands are rounded."""
    if spec.ctype != "float" or spec.groups > 1 or spec.k <= FEW_OUTPUTS:
        return False
    return parts == 2 or plan_of(spec) != "product"


def pack_conv_tiles(weight: Array, spec: TileConvSpec) -> Array:
    """A weight [K, C, R, S] as a matrix of `pack_b_bf16` or `pack_b_split`, whose rows are runs
    filled up to whole pairs."""
    matrix = run_rows(weight, spec)[0].T
    return pack_b_split(matrix) if spec.parts == 2 else pack_b_bf16(matrix)


def packed_conv_tiles(weight: Node, array: Array, spec: TileConvSpec) -> PackedWeight:
    """The same, made when it is needed."""

    def fill(packed: Array) -> None:
        packed[:] = pack_conv_tiles(array, spec)

    how = ("runs", spec.runs, spec.parts)
    size = packed_size(spec.parts * spec.runs * spec.words, spec.k, 4)
    return PackedWeight((weight, *how), np.dtype(np.uint32), size, fill)


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
        body.call(
            f"sum_places_{name}",
            "rows",
            "pixels",
            columns,
            spec.runs,
            spec.run_length,
            image,
            low,
            self.step,
            self.row_step,
            "run",
            "weights",
            "ends" if spec.has_ends else 0,
            "tile",
        )
