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

from fxlite.codegen.c.conv.conv_direct import conv_function
from fxlite.codegen.c.conv.conv_plan import FEW_OUTPUTS, ConvSpec, plan_of
from fxlite.codegen.c.conv.conv_runs import Runs, RunsSpec, run_rows
from fxlite.codegen.c.product.gemm_spec import Rendered
from fxlite.codegen.c.product.packed_operands import (
    PANEL_COLUMNS,
    pack_b_bf16,
    pack_b_split,
    packed_size,
)
from fxlite.codegen.c.weights import Array, PackedWeight
from fxlite.graph.graph import Node


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
    if "0" in (spec.n, *spec.output_size()):
        body = ["    /* Nothing to compute. */"]
        return conv_function(spec, "An empty result.", body, "0", ())
    return _TileConv(spec).render()


class _TileConv(Runs):
    """Tiles of pixels times a panel of output channels."""

    spec: TileConvSpec
    image_type = "uint16_t"
    word_type = "uint32_t"
    tile_rows = "PAIR_ROWS"

    def __init__(self, spec: TileConvSpec) -> None:
        super().__init__(spec)
        self.parts = spec.parts

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

    def panel_rows(self) -> int:
        return self.parts * self.spec.runs * self.spec.words

    def first_weight(self) -> int:
        return 0

    def put_row(self, row: str, width: str, target: str) -> None:
        spec, left = self.spec, self.spec.padding[1]
        if spec.x_is_bf16:
            channels = 2 * spec.c
            self.out.put(
                f"pad_row_bytes({width}, {channels}, {row}, {channels}, 1, {left}, {self.columns}, "
                f"0, 0, (uint8_t *)({target}));"
            )
            return
        lower = f"{target} + {self.image_numbers}" if self.parts == 2 else "0"
        self.out.put(
            f"pad_row_rounded({width}, {spec.c}, {row}, {self.pixel_steps()}, {left}, "
            f"{self.columns}, {target}, {lower});"
        )

    def put_sums(self, image: str, step: str, row_step: str) -> None:
        spec = self.spec
        name, low = "bf16", "0"
        if self.parts == 2:
            name, low = "split", self.bytes_of(self.image_numbers)
        ends = "ends" if spec.has_ends else "0"
        self.out.put(
            f"sum_places_{name}(rows, pixels, columns, {spec.runs}, {spec.run_length}, {image}, "
            f"{low}, {step}, {row_step}, run, weights, {ends}, tile);"
        )
