"""C text of one convolution of 8-bit integers with sums in int32, and its epilogue over each
finished tile.

In goes an `Int8ConvSpec`, out comes a `Rendered`. The loops are those of `conv_runs`, with the
arithmetic of `tiles/int8.h`: four adjacent channels form a quad, so the image's channels must be last.
An image that is stored otherwise, is i8, or needs padding, is first copied into the workspace as
unsigned bytes. Padding is filled with the zero point, and everything that zero points add to the sums
is known together with the weights. The epilogue of short sums runs in the registers of the tile, that
of longer ones over a finished tile. Depthwise convolutions follow below. (A 1x1 convolution of stride 1
of a channels-last image is a product whose rows are pixels, which `gemm_integers.py` prints.)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fxlite.codegen.c.conv.conv_plan import number
from fxlite.codegen.c.conv.conv_runs import Place, Runs, RunsSpec, run_rows
from fxlite.codegen.c.conv.conv_walk import (
    Axis,
    Walk,
    conv_function,
    empty_result,
    finish_beside,
    finish_tile,
    finish_vector,
)
from fxlite.codegen.c.product.gemm_fused import SUMS_COMMENT, put_switch, tile_function
from fxlite.codegen.c.product.gemm_integers import FASTER
from fxlite.codegen.c.product.gemm_spec import PANEL_COLUMNS, QUAD, pack_int8, packed_rows, packed_size
from fxlite.codegen.c.tiles.library import constant
from fxlite.codegen.kernel.builder import (
    Argument,
    Body,
    Pointer,
    Rendered,
    bare,
    divide_up,
    ignoring,
    parameter_names,
    smaller,
    static_head,
    symbol,
)
from fxlite.scalar.index import Index

MOST_QUADS = 160
"""Most quads of a kernel for which the epilogue runs in registers; with more, that saves less than 2 %
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
        """The number that is subtracted from a stored number when the tile reads it as unsigned."""
        return self.zero_point + (128 if self.type == "i8" else 0)


def packed_conv_int8_size(spec: Int8ConvSpec) -> int:
    """How many int32 `pack_conv_int8` writes."""
    if is_depthwise(spec):
        return packed_depthwise_size(spec)
    rows = packed_rows(spec.runs * spec.words * QUAD)
    return spec.groups * packed_size(rows, number(spec.group_outputs), 4)


def pack_conv_int8(
    weight: np.ndarray[Any, Any], spec: Int8ConvSpec, packed: np.ndarray[Any, Any] | None = None
) -> np.ndarray[Any, Any]:
    """An i8 weight [K, C / groups, R, S] as matrices of `pack_int8`, one for each group, whose rows are
    runs padded to whole quads; or as `pack_depthwise` packs it. The result is written to ``packed`` if
    given."""
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
    return _Depthwise(spec).render() if is_depthwise(spec) else _Int8Conv(spec).render()


class _Int8Conv(Runs):
    """Tiles of pixels times a panel of output channels. An i8 image becomes unsigned in a copy."""

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
        source = spec.c, row, *self.pixel_steps()
        self.body.call("pad_row_bytes", pixels, *source, spec.padding[1], self.image_w, zero, self.flip, target)

    def sum_up(self, body: Body, image: Pointer, columns: Index) -> None:
        spec = self.spec
        runs = spec.runs, spec.words, image, self.step, self.row_step, "run"
        ends = "ends" if spec.has_ends else 0
        body.call("sum_places_u8", "rows", "pixels", columns, *runs, "weights", ends, "tile")

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
        """The lines of the function of a tile, preceded by the one that computes, finishes and stores its
        sums on processors without AMX."""
        spec, body = self.spec, Body()
        ends = ", const int32_t *ends" if spec.has_ends else ""
        places = "int64_t n, int64_t oh_0, int64_t ow_0, int64_t first_channel"
        image = "const uint8_t *place, const int64_t *run, const int32_t *weights"
        parameters = f"{image}{ends}, {places}, {spec.parameters}"
        place = Place(*map(symbol, ("n", "oh_0", "ow_0", "first_channel")))
        super().tile(body, Pointer("place"), place, symbol("columns"))
        rest, outputs = ", ".join(parameter_names(parameters)), number(spec.group_outputs)
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
            body.assign("const int vectors", "columns - first > int_lanes ? 2 : 1")
            body.declare("int_vec sums[TILE_ROWS][2]")
            runs = spec.runs, spec.words, "place", self.step, "run"
            body.call("sum_pixels_int8", pixels, "vectors", *runs, "weights + first", "sums")
            with body.block("#pragma GCC unroll 2\nfor (int v = 0; v < vectors; v++)"):
                offset = symbol("first") + symbol("v") * symbol("int_lanes")
                count = body.let("count", columns - offset, "int")
                k = body.let("k", place.k_0 + offset)
                here = {"n": place.n, "oh": place.oh_0, "k": k}
                unrolled = "#pragma GCC unroll 16"
                finish_vector(body, spec, lambda i: f"sums[{bare(i)}][v]", count, pixel, here, unrolled)
        finish_beside(body, spec, pixel, Axis("k", place.k_0, columns, "j"), place.n, place.oh_0)
        own, lines = f"const int pixels, const int columns, {parameters}", body.lines()
        opening = [*static_head(f"{spec.name}_sums", own), "{", *ignoring(own, "\n".join(lines))]
        return [*SUMS_COMMENT, "TILE_INLINE", *opening, *lines, "}"]


# -- depthwise -------------------------------------------------------------------------------------
# C text of one depthwise convolution of 8-bit integers, in which each channel is convolved separately.
#
# In and out as in `conv_int8.py`; the arithmetic is in `tiles/depthwise_int8.h`. Tiles are one or two
# output rows of up to MOST_PLACES pixels times 64 channels. An image whose channels are last is read in
# place, also at its edges; any other is first converted in the workspace.


CHANNEL_BLOCK = constant("depthwise_int8", "CHANNEL_BLOCK")
MOST_PLACES = constant("depthwise_int8", "MOST_PLACES")


def is_depthwise(spec: Int8ConvSpec) -> bool:
    """Whether each channel is convolved separately, and adjacent kernels share the columns that are
    interleaved for a tile."""
    near = spec.dilation[1] == 1 or spec.s == 1
    return 1 < spec.groups == spec.c == spec.k and near and spec.stride[1] <= max(spec.s, 2)


def _woven(spec: Int8ConvSpec) -> tuple[int, int]:
    """How many output rows a group of four interleaved rows serves, and how many such groups a kernel has."""
    outputs = 2 if spec.stride[0] == spec.dilation[0] == 1 else 1
    return outputs, -(-(spec.r + outputs - 1) // QUAD)


def _blocks(spec: Int8ConvSpec) -> int:
    return -(-number(spec.c) // CHANNEL_BLOCK)


def _block_rows(spec: Int8ConvSpec) -> int:
    """Rows of a block of the weight: the initial values of the sums, and quads."""
    outputs, groups = _woven(spec)
    return 1 + groups * spec.s * outputs


def packed_depthwise_size(spec: Int8ConvSpec) -> int:
    """How many int32 `pack_depthwise` writes."""
    return _blocks(spec) * _block_rows(spec) * CHANNEL_BLOCK


def pack_depthwise(
    weight: np.ndarray[Any, Any], spec: Int8ConvSpec, packed: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """An i8 weight [C, 1, R, S] in blocks of 64 channels: the initial values of the sums, then quads for
    each group of rows, column and output."""
    outputs, groups = _woven(spec)
    blocks = _blocks(spec)
    quads = np.zeros((blocks * CHANNEL_BLOCK, groups, spec.s, outputs, QUAD), np.int8)
    for output in range(outputs):
        for r in range(spec.r):
            group, number = divmod(r + output, QUAD)
            quads[: spec.c, group, :, output, number] = weight[:, 0, r, :]
    starts = np.zeros((blocks * CHANNEL_BLOCK, 1), np.int32)
    starts[: spec.c, 0] = -spec.offset * weight.sum(axis=(1, 2, 3), dtype=np.int32)
    rows = np.concatenate((starts, quads.reshape(len(quads), -1).view("<i4")), axis=1)
    packed[:] = rows.reshape(blocks, CHANNEL_BLOCK, -1).swapaxes(1, 2).reshape(-1)
    return packed


class _Depthwise(Walk):
    """Tiles of one or two output rows of some pixels times a block of channels."""

    spec: Int8ConvSpec

    def __init__(self, spec: Int8ConvSpec) -> None:
        super().__init__(spec, FASTER)
        self.outputs, self.groups = _woven(spec)
        self.in_registers = spec.split_epilogue is not None and spec.y_last

    def render(self) -> Rendered:
        """Print the function."""
        spec, body = self.spec, self.body
        self.name_result()
        image = spec.x if spec.type == "u8" else f"(const uint8_t *){spec.x}"
        workspace = Index.of(0)
        if not spec.x_last:
            image, workspace, self.top = "padded", spec.n * spec.h * spec.w * spec.c, 0
            body.assign("uint8_t *const padded", "workspace")
            self.copy_rows("The images, channels last.", spec.w * spec.c, self.turn_row)
        self.convolve(Pointer(image))
        rows = "two output rows" if self.outputs > 1 else "an output row"
        note = (
            f"{spec.r}x{spec.s}, each of {spec.c} channels on its own; tiles of {rows} of up to"
            f" {MOST_PLACES} pixels x {CHANNEL_BLOCK} channels.\nFour rows of the image are interleaved"
            f" into quads, one for each column and channel."
        )
        return conv_function(spec, note, body, workspace)

    def turn_row(self, pixels: str, row: Pointer, target: Pointer) -> None:
        """Convert a row of an image to channels last."""
        c, plane = self.spec.c, self.spec.h * self.spec.w
        self.body.call("pad_row_bytes", pixels, c, row, 1, plane, 0, pixels, 0, 0, target)

    def convolve(self, images: Pointer) -> None:
        """Loop over images, (pairs of) output rows and blocks of channels, then over tiles."""
        spec, body, width, count = self.spec, self.body, CHANNEL_BLOCK, QUAD * self.groups
        row_bytes, steps = spec.w * spec.c, divide_up(self.out_h, self.outputs)
        loops = ("n", spec.n), ("row_step", steps), ("block", _blocks(spec))
        with self.parallel(*loops) as (self.n, step, block):
            self.first = block * width
            self.channels = body.let("channels", smaller(spec.c - self.first, width), "int")
            start = Pointer(spec.weight) + block * (_block_rows(spec) * width)
            self.weights = body.pointer("const int32_t", "weights", start)
            self.oh_0 = body.let("oh_0", step * self.outputs)
            rows = smaller(self.out_h - self.oh_0, self.outputs)
            self.rows = body.let("output_rows", rows, "int")
            body.declare(f"uint8_t outside[{width}]")
            body.put(f"memset(outside, {spec.zero_point % 256}, {width});")
            body.put(f"const uint8_t *rows[{count}];\nint64_t steps[{count}];")
            first = self.oh_0 * spec.stride[0] - spec.padding[0]
            image = images + self.n * spec.h * row_bytes + self.first
            rows_of_image = spec.dilation[0], spec.h, row_bytes, spec.c, image
            body.call("find_rows", first, count, *rows_of_image, "outside", "rows", "steps")
            columns = (MOST_PLACES - 1) * spec.stride[1] + spec.s
            body.comment("The columns of the image that a tile reads: four rows in a quad.")
            body.declare(f"int32_t woven[{columns * width}]")
            if self.groups > 1 or not self.in_registers:
                body.declare(f"int32_t tile[{self.outputs * MOST_PLACES * width}]")
                body.declare(f"int_vec kernel[{spec.s}][2]")
            with body.loop("ow_0", self.out_w, step=MOST_PLACES) as ow_0:
                self.tile(ow_0)

    def tile(self, ow_0: Index) -> None:
        """Print the sums from pixel ow_0 on, and the epilogue of each row."""
        spec, body, width, outputs = self.spec, self.body, CHANNEL_BLOCK, self.outputs
        pixels = body.let("pixels", smaller(self.out_w - ow_0, MOST_PLACES), "int")
        left, stride = spec.padding[1], spec.stride[1]
        columns = (pixels - 1) * stride + spec.s
        pixel = Axis("ow", ow_0, pixels, "i")
        channel = Axis("k", self.first, self.channels, "j")
        for group in range(self.groups):
            rows, steps = (Pointer(name) + QUAD * group for name in ("rows", "steps"))
            start = ow_0 * stride - left, spec.w
            body.call(f"weave_{spec.type}", columns, self.channels, *start, rows, steps, spec.zero_point, "woven")
            quads = self.weights + (1 + group * spec.s * outputs) * width
            if group == self.groups - 1 and self.in_registers:
                self.finish(quads, pixel, channel)
                return
            starts = 0 if group else self.weights
            body.call(
                "add_tile", outputs, spec.s, pixels, self.channels, stride, starts, quads, "woven", "kernel", "tile"
            )
        with self.output_rows() as (o, oh):
            tile = Pointer("tile") + o * (MOST_PLACES * width)
            sums = body.pointer("const int32_t", "sums", tile)
            finish_tile(body, spec, sums, width, pixel, channel, self.n, oh)

    def finish(self, quads: Pointer, pixel: Axis, channel: Axis) -> None:
        """Print the last sums, and the epilogue while they are in registers."""
        spec, body, width, outputs = self.spec, self.body, CHANNEL_BLOCK, self.outputs
        assert spec.split_epilogue is not None
        unrolled = "#pragma GCC unroll 2"
        j = symbol("j", channel.count)
        i = Index.of(0) if pixel.is_one else symbol("i", pixel.count)
        o = symbol("o", outputs - 1) if outputs > 1 else Index.of(0)
        names = Body()  # the names of positions inside the loops
        oh, ow = names.let("oh", self.oh_0 + o), names.let("ow", pixel.start + i)
        with body.block(f"for (int j = 0; j < {bare(self.channels)}; j += int_lanes)"):
            count = body.let("count", self.channels - j, "int")
            k = body.let("k", channel.start + j)
            loads, statements = spec.split_epilogue(
                "sum", n=self.n, k=k, oh=oh, ow=ow, count=bare(count), moving=(ow, oh) if outputs > 1 else (ow,)
            )
            body.put(loads)
            body.declare(f"int_vec kernel[{spec.s}][2]")
            body.call("load_kernel", outputs, spec.s, quads + j, "kernel")
            with body.loop("i", pixel.count):
                body.let("ow", pixel.start + i)
                body.declare("int_vec sums[2]")
                with body.loop("o", outputs, pragma=unrolled):
                    tile = Pointer("tile") + (o * MOST_PLACES + i) * width
                    start = (self.weights if self.groups == 1 else tile) + j
                    body.assign(f"sums[{bare(o)}]", f"*(const int_vec *)({start})")
                first = Pointer("woven") + i * (spec.stride[1] * width) + j
                body.call("add_columns", outputs, spec.s, first, "kernel", "sums")
                with body.loop("o", outputs, pragma=unrolled):
                    body.let("oh", self.oh_0 + o)
                    if self.rows != outputs:
                        body.put(f"if ({bare(o)} == {bare(self.rows)})\n    break;")
                    body.assign("const int_vec sum", f"sums[{bare(o)}]")
                    body.put(statements)
        if spec.beside is not None:
            with self.output_rows() as (_, row):
                finish_beside(body, spec, pixel, channel, self.n, row)

    @contextmanager
    def output_rows(self) -> Iterator[tuple[Index, Index]]:
        """A loop over the output rows of a tile: their numbers in the tile, and in the image."""
        with self.body.loop("o", self.rows) as o:
            yield o, self.body.let("oh", self.oh_0 + o)
