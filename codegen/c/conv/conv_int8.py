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

from fxlite.codegen.c.conv.conv_finish import Axis, finish_beside, finish_vector
from fxlite.codegen.c.conv.conv_int8_depthwise import (
    is_depthwise,
    pack_depthwise,
    packed_depthwise_size,
    render_depthwise,
)
from fxlite.codegen.c.conv.conv_runs import Place, Runs, RunsSpec, run_rows
from fxlite.codegen.c.conv.conv_walk import empty_result
from fxlite.codegen.c.product.gemm_fused import SUMS_COMMENT, put_switch, tile_function
from fxlite.codegen.c.product.packed_operands import PANEL_COLUMNS, QUAD, pack_int8, packed_rows, packed_size
from fxlite.codegen.c.text.template_text import Rendered, ignoring, parameter_names, signature
from fxlite.codegen.kernel.builder import Argument, Body, Pointer, bare, symbol
from fxlite.scalar.index import Index

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
    if (empty := empty_result(spec)) is not None:
        return empty
    return render_depthwise(spec) if is_depthwise(spec) else _Int8Conv(spec).render()


class _Int8Conv(Runs):
    """Tiles of pixels times a panel of output channels. Numbers of i8 become unsigned in a copy."""

    spec: Int8ConvSpec
    word = "int32_t"
    first_weight = 1

    def __init__(self, spec: Int8ConvSpec) -> None:
        super().__init__(spec)
        self.flip = 128 if spec.type == "i8" else 0
        self.panel_rows = packed_rows(spec.runs * spec.words * QUAD)

    def note(self) -> str:
        spec, width = self.spec, PANEL_COLUMNS
        return (
            f"{spec.r}x{spec.s}, {spec.c} -> {spec.k} channels; tiles of QUAD_ROWS pixels x {width}"
            f" output channels.\nThe weight is packed, in panels of {width} columns of quads."
        )

    def is_stored_so(self) -> bool:
        return self.spec.x_last and self.spec.type == "u8"

    def copy_row(self, pixels: str, row: Pointer, target: Pointer) -> None:
        spec, zero = self.spec, (self.spec.zero_point + self.flip) % 256
        self.body.call(
            "pad_row_bytes",
            pixels,
            spec.c,
            row,
            *self.pixel_steps(),
            spec.padding[1],
            self.image_w,
            zero,
            self.flip,
            target,
        )

    def sum_up(self, body: Body, image: Pointer, columns: Index) -> None:
        spec = self.spec
        body.call(
            "sum_places_u8",
            "rows",
            "pixels",
            columns,
            spec.runs,
            spec.words,
            image,
            self.step,
            self.row_step,
            "run",
            "weights",
            "ends" if spec.has_ends else 0,
            "tile",
        )

    # -- the epilogue in registers
    def render(self) -> Rendered:
        rendered = super().render()
        text = "\n".join([*self.fused_tile(), rendered.text]) if self.is_fused() else rendered.text
        return replace(rendered, text=text)

    def is_fused(self) -> bool:
        """Whether the epilogue runs in the registers of the tile, as in `gemm_fused`."""
        spec = self.spec
        by_vectors = spec.split_epilogue is not None and spec.y_last
        known = all(size.constant is not None for size in (spec.n, spec.h, spec.w))
        return by_vectors and known and spec.runs * spec.words <= MOST_QUADS

    def tile(self, body: Body, image: Pointer, place: Place, columns: Index) -> None:
        if not self.is_fused():
            super().tile(body, image, place, columns)
            return
        corner = (place.n, place.oh_0, place.ow_0, place.k_0)
        ends = ["ends"] * self.spec.has_ends
        names = parameter_names(self.spec.parameters)
        own: tuple[Argument, ...] = ("rows", "pixels", columns, image, "run", "weights", *ends, *corner)
        body.call(f"{self.spec.name}_tile", *own, *names)

    def fused_tile(self) -> list[str]:
        """The function of a tile, and before it the one that computes, finishes and stores its sums
        on processors without AMX; in lines."""
        spec, body = self.spec, Body()
        ends = ", const int32_t *ends" if spec.has_ends else ""
        places = "int64_t n, int64_t oh_0, int64_t ow_0, int64_t first_channel"
        image = "const uint8_t *place, const int64_t *run, const int32_t *weights"
        parameters = f"{image}{ends}, {places}, {spec.parameters}"
        place = Place(*map(symbol, ("n", "oh_0", "ow_0", "first_channel")))
        super().tile(body, Pointer("place"), place, symbol("columns"))
        rest, outputs = ", ".join(parameter_names(parameters)), spec.group_outputs
        switch = Body()
        put_switch(switch, f"{spec.name}_sums", bare(self.out_w), outputs, rest, "pixels")
        own = f"int64_t rows, int pixels, int columns, {parameters}"
        made = tile_function(f"{spec.name}_tile", own, [body.lines(), switch.lines()])
        return [*self.fused_sums(parameters, place), "", *made, ""]

    def fused_sums(self, parameters: str, place: Place) -> list[str]:
        """The function that keeps sums in registers."""
        spec, body = self.spec, Body()
        columns, pixels = symbol("columns"), symbol("pixels")
        pixel = Axis("ow", place.ow_0, pixels, "i")
        head = "#pragma GCC unroll 4\nfor (int first = 0; first < columns; first += 2 * int_lanes)"
        with body.block(head):
            body.put("const int vectors = columns - first > int_lanes ? 2 : 1;")
            body.put("int_vec sums[TILE_ROWS][2];")
            body.call(
                "sum_pixels_int8",
                pixels,
                "vectors",
                spec.runs,
                spec.words,
                "place",
                self.step,
                "run",
                "weights + first",
                "sums",
            )
            with body.block("#pragma GCC unroll 2\nfor (int v = 0; v < vectors; v++)"):
                offset = symbol("first") + symbol("v") * symbol("int_lanes")
                count = body.let("count", columns - offset, "int")
                k = body.let("k", place.k_0 + offset)
                finish_vector(
                    body,
                    spec,
                    lambda i: f"sums[{bare(i)}][v]",
                    count,
                    pixel,
                    {"n": place.n, "oh": place.oh_0, "k": k},
                    "#pragma GCC unroll 16",
                )
        finish_beside(body, spec, pixel, Axis("k", place.k_0, columns, "j"), place.n, place.oh_0)
        own, lines = f"const int pixels, const int columns, {parameters}", body.lines()
        opening = [*signature(f"{spec.name}_sums", own), "{", *ignoring(own, "\n".join(lines))]
        return [*SUMS_COMMENT, "TILE_INLINE", *opening, *lines, "}"]
