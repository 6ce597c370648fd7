"""C text of one convolution of 8-bit integers with sums in int32, and its epilogue over each
finished tile.

In goes an `Int8ConvSpec`, out comes a `Rendered`. The loops are those of `conv_runs`, with the
arithmetic of `int8_tile`: four neighbouring channels make a quad, so the image's channels must be
last. An image that is not stored so, is of i8, or has padding, is first copied into the workspace,
in unsigned bytes; a zero around it is its zero point, and all that has to be added for zero points
is known with the weights. Depthwise convolutions are in `conv_int8_depthwise.py`. (A 1x1
convolution of stride 1 of a channels-last image is a product whose rows are pixels, which
`gemm_int8.py` prints.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite.codegen.c.conv_direct import conv_function
from fxlite.codegen.c.conv_int8_depthwise import (
    is_depthwise,
    pack_depthwise,
    packed_depthwise_size,
    render_depthwise,
)
from fxlite.codegen.c.conv_runs import Runs, RunsSpec, run_rows
from fxlite.codegen.c.gemm_pack import packed_size
from fxlite.codegen.c.gemm_spec import Rendered
from fxlite.codegen.c.int8_tile import PANEL_COLUMNS, QUAD, pack_int8, packed_rows


@dataclass(frozen=True)
class Int8ConvSpec(RunsSpec):
    """One convolution of integers; see `ConvSpec`. Its ``ctype`` is "int32_t", of the sums.

    type        "u8" or "i8", of the image
    zero_point  of the image
    """

    type: str = "u8"
    zero_point: int = 0

    @property
    def offset(self) -> int:
        """What is subtracted from a number as the tile reads it, unsigned."""
        return self.zero_point + (128 if self.type == "i8" else 0)


def packed_conv_int8_size(spec: Int8ConvSpec) -> int:
    """Numbers of int32 that `pack_conv_int8` makes."""
    if is_depthwise(spec):
        return packed_depthwise_size(spec)
    rows = packed_rows(spec.runs * spec.words * QUAD)
    return spec.groups * packed_size(rows, spec.group_outputs, 4)


def pack_conv_int8(
    weight: np.ndarray[Any, Any], spec: Int8ConvSpec, packed: np.ndarray[Any, Any] | None = None
) -> np.ndarray[Any, Any]:
    """An i8 weight [K, C / groups, R, S] as matrices of `int8_tile.pack_int8`, one for each group,
    whose rows are runs filled up to whole quads; or as `pack_depthwise` does. ``packed`` is where
    to put it."""
    if packed is None:
        packed = np.empty(packed_conv_int8_size(spec), np.int32)
    if is_depthwise(spec):
        return pack_depthwise(weight, spec, packed)
    groups = packed.reshape(spec.groups, -1)
    for group, part in zip(run_rows(weight, spec), groups, strict=True):
        pack_int8(group, spec.offset, part)
    return packed


def render_conv_int8(spec: Int8ConvSpec) -> Rendered:
    """Print the function of one convolution. Its output must not be negative in size."""
    if "0" in (spec.n, *spec.output_size()) or spec.k == 0:
        body = ["    /* Nothing to compute. */"]
        return conv_function(spec, "An empty result.", body, "0", ())
    return render_depthwise(spec) if is_depthwise(spec) else _Int8Conv(spec).render()


class _Int8Conv(Runs):
    """Tiles of pixels times a panel of output channels. Numbers of i8 become unsigned in a copy."""

    spec: Int8ConvSpec

    def __init__(self, spec: Int8ConvSpec) -> None:
        super().__init__(spec)
        self.flip = 128 if spec.type == "i8" else 0

    def note(self) -> str:
        spec, width = self.spec, PANEL_COLUMNS
        return (
            f"{spec.r}x{spec.s}, {spec.c} -> {spec.k} channels; tiles of QUAD_ROWS pixels x {width}"
            f" output channels.\nThe weight is packed, in panels of {width} columns of quads."
        )

    def is_stored_so(self) -> bool:
        return self.spec.x_last and self.spec.type == "u8"

    def panel_rows(self) -> int:
        return packed_rows(self.spec.runs * self.spec.words * QUAD)

    def first_weight(self) -> int:
        return 1

    def put_row(self, row: str, width: str, target: str) -> None:
        spec = self.spec
        zero = (spec.zero_point + self.flip) % 256
        self.out.put(
            f"pad_row_bytes({width}, {spec.c}, {row}, {self.pixel_steps()}, {spec.padding[1]}, "
            f"{self.columns}, {zero}, {self.flip}, {target});"
        )

    def put_sums(self, image: str, step: str, row_step: str) -> None:
        spec = self.spec
        ends = "ends" if spec.has_ends else "0"
        self.out.put(
            f"sum_places_u8(rows, pixels, columns, {spec.runs}, {spec.words}, {image}, {step}, "
            f"{row_step}, run, weights, {ends}, tile);"
        )
