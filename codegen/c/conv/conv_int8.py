"""C text of one convolution of 8-bit integers with sums in int32, and its epilogue over each
finished tile.

In goes an `Int8ConvSpec`, out comes a `Rendered`. The loops are those of `conv_runs`, with the
arithmetic of `tiles/int8.h`: four neighbouring channels make a quad, so the image's channels must
be last. An image that is not stored so, is of i8, or has padding, is first copied into the
workspace, in unsigned bytes; a zero around it is its zero point, and all that has to be added for
zero points is known with the weights. The epilogue of short sums runs in the registers of the tile,
of longer ones over a finished tile. Depthwise convolutions are in `conv_int8_depthwise.py`. (A 1x1
convolution of stride 1 of a channels-last image is a product whose rows are pixels, which
`gemm_int8.py` prints.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fxlite.codegen.c.conv.conv_direct import conv_function
from fxlite.codegen.c.conv.conv_int8_depthwise import (
    is_depthwise,
    pack_depthwise,
    packed_depthwise_size,
    render_depthwise,
)
from fxlite.codegen.c.conv.conv_runs import Runs, RunsSpec, run_rows
from fxlite.codegen.c.product.gemm_int8_fused import SUMS_COMMENT, put_finish, put_switch
from fxlite.codegen.c.product.gemm_spec import Rendered
from fxlite.codegen.c.product.packed_operands import (
    PANEL_COLUMNS,
    QUAD,
    pack_int8,
    packed_rows,
    packed_size,
)
from fxlite.codegen.c.text.template_text import Lines, mentions, parameter_names, signature

MOST_QUADS = 160
"""Quads of a kernel up to which the epilogue runs in registers; of more, that gains less than 2 %
and is not worth the code."""


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
    """An i8 weight [K, C / groups, R, S] as matrices of `pack_int8`, one for each group,
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

    def render(self) -> Rendered:
        rendered = super().render()
        text = "\n".join([*self.fused_tile(), rendered.text]) if self.is_fused() else rendered.text
        return replace(rendered, text=text)

    def is_fused(self) -> bool:
        """Whether the epilogue runs in the registers of the tile, as in `gemm_int8_fused`."""
        spec = self.spec
        sizes = (spec.n, spec.h, spec.w)
        by_vectors = spec.split_epilogue is not None and spec.y_last
        known = all(size.isdecimal() for size in sizes)
        return by_vectors and known and spec.runs * spec.words <= MOST_QUADS

    def tile(self, place: str, first_channel: str) -> None:
        if not self.is_fused():
            super().tile(place, first_channel)
            return
        ends = ", ends" if self.spec.has_ends else ""
        own = f"rows, pixels, columns, {place}, run, weights{ends}, n, oh_0, ow_0, {first_channel}"
        names = ", ".join(parameter_names(self.spec.parameters))
        self.out.put(f"{self.spec.name}_tile({own}, {names});")

    def fused_tile(self) -> list[str]:
        """The function of a tile, and before it the one that computes, finishes and stores its sums
        on processors without AMX; in lines."""
        spec, function = self.spec, self.out
        ends = ", const int32_t *ends" if spec.has_ends else ""
        places = "int64_t n, int64_t oh_0, int64_t ow_0, int64_t first_channel"
        image = "const uint8_t *place, const int64_t *run, const int32_t *weights"
        parameters = f"{image}{ends}, {places}, {spec.parameters}"
        self.out = Lines()
        self.out.put("#ifdef HAS_TILES")
        super().tile("place", "first_channel")
        self.out.put("#else")
        rest = ", ".join(parameter_names(parameters))
        put_switch(self.out, f"{spec.name}_sums", self.out_w, spec.group_outputs, rest, "pixels")
        self.out.put("#endif")
        own = f"int64_t rows, int pixels, int columns, {parameters}"
        head = signature(f"{spec.name}_tile", own, ())
        body, self.out = self.out.lines, function
        return [*self.fused_sums(parameters), "", "TILE_FUNCTION", *head, "{", *body, "}", ""]

    def fused_sums(self, parameters: str) -> list[str]:
        """The function that keeps sums in registers."""
        spec, out = self.spec, Lines()
        assert spec.split_epilogue is not None
        loads, statements = spec.split_epilogue("sum", "n", "k", "oh", "ow", "count")
        if mentions(statements, "oh"):
            out.put("const int64_t oh = oh_0;")
        out.put("#pragma GCC unroll 4")
        with out.block("for (int first = 0; first < columns; first += 2 * int_lanes)"):
            out.put("const int vectors = columns - first > int_lanes ? 2 : 1;")
            out.put("int_vec sums[TILE_ROWS][2];")
            out.put(
                f"sum_pixels_int8(pixels, vectors, {spec.runs}, {spec.words}, place, {self.step}, "
                f"run, weights + first, sums);"
            )
            row = ("ow", "ow_0", "pixels")
            put_finish(out, ("k", "first_channel"), row, loads, statements)
        if spec.beside is not None:
            out.put(spec.beside.tile("pixels", "columns", ("n", "oh", "ow_0", "first_channel")))
        own = f"const int pixels, const int columns, {parameters}"
        head = signature(f"{spec.name}_sums", own, ())
        return [*SUMS_COMMENT, "inline __attribute__((always_inline))", *head, "{", *out.lines, "}"]

    def put_sums(self, image: str, step: str, row_step: str) -> None:
        spec = self.spec
        ends = "ends" if spec.has_ends else "0"
        self.out.put(
            f"sum_places_u8(rows, pixels, columns, {spec.runs}, {spec.words}, {image}, {step}, "
            f"{row_step}, run, weights, {ends}, tile);"
        )
