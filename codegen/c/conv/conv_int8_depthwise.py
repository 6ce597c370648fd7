"""C text of one depthwise convolution of 8-bit integers: each channel is convolved by itself.

In and out as in `conv_int8.py`; the arithmetic is in `tiles/depthwise_int8.h`. Tiles are one or two
output rows of up to MOST_PLACES pixels times 64 channels. An image whose channels are last is read
in place, also at its edges; any other is turned in the workspace first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.codegen.c.conv.conv_finish import Axis, finish_beside, finish_tile
from fxlite.codegen.c.conv.conv_walk import Walk, conv_function
from fxlite.codegen.c.product.gemm_int8 import FASTER
from fxlite.codegen.c.product.packed_operands import QUAD
from fxlite.codegen.c.text.template_text import Rendered
from fxlite.codegen.c.tiles.library import constant
from fxlite.codegen.kernel.builder import Body, Pointer, bare, divide_up, smaller, symbol
from fxlite.scalar.index import Index

if TYPE_CHECKING:
    from fxlite.codegen.c.conv.conv_int8 import Int8ConvSpec

CHANNEL_BLOCK = constant("depthwise_int8", "CHANNEL_BLOCK")
MOST_PLACES = constant("depthwise_int8", "MOST_PLACES")


def is_depthwise(spec: Int8ConvSpec) -> bool:
    """Whether each channel is convolved by itself, and neighbouring kernels meet the columns that
    are woven for a tile."""
    near = spec.dilation[1] == 1 or spec.s == 1
    return spec.groups == spec.c == spec.k > 1 and near and spec.stride[1] <= max(spec.s, 2)


def _woven(spec: Int8ConvSpec) -> tuple[int, int]:
    """The output rows that a group of four woven rows serves, and the groups of a kernel."""
    outputs = 2 if spec.stride[0] == spec.dilation[0] == 1 else 1
    return outputs, -(-(spec.r + outputs - 1) // QUAD)


def _blocks(spec: Int8ConvSpec) -> int:
    return -(-spec.c // CHANNEL_BLOCK)


def _block_rows(spec: Int8ConvSpec) -> int:
    """Rows of a block of the weight: the starts of the sums, and quads."""
    outputs, groups = _woven(spec)
    return 1 + groups * spec.s * outputs


def packed_depthwise_size(spec: Int8ConvSpec) -> int:
    """Numbers of int32 that `pack_depthwise` makes."""
    return _blocks(spec) * _block_rows(spec) * CHANNEL_BLOCK


def pack_depthwise(
    weight: np.ndarray[Any, Any], spec: Int8ConvSpec, packed: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """An i8 weight [C, 1, R, S] in blocks of 64 channels: the starts of the sums, then quads for
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


def render_depthwise(spec: Int8ConvSpec) -> Rendered:
    """Print the function of one depthwise convolution, whose output is not empty."""
    return _Depthwise(spec).render()


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
            body.put("uint8_t *const padded = workspace;")
            self.copy_rows("The images, channels last.", spec.w * spec.c, self.turn_row)
        self.convolve(Pointer(image))
        rows = "two output rows" if self.outputs > 1 else "an output row"
        note = (
            f"{spec.r}x{spec.s}, each of {spec.c} channels by itself; tiles of {rows} of up to"
            f" {MOST_PLACES} pixels x {CHANNEL_BLOCK} channels.\nFour rows of the image are woven"
            f" into quads, one for each column and channel."
        )
        return conv_function(spec, note, body, workspace)

    def turn_row(self, pixels: str, row: Pointer, target: Pointer) -> None:
        """A row of an image, channels last."""
        c, plane = self.spec.c, self.spec.h * self.spec.w
        self.body.call("pad_row_bytes", pixels, c, row, 1, plane, 0, pixels, 0, 0, target)

    def convolve(self, images: Pointer) -> None:
        """Images, (pairs of) output rows, blocks of channels; then tile by tile."""
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
            body.put(f"uint8_t outside[{width}];")
            body.put(f"memset(outside, {spec.zero_point % 256}, {width});")
            body.put(f"const uint8_t *rows[{count}];\nint64_t steps[{count}];")
            first = self.oh_0 * spec.stride[0] - spec.padding[0]
            image = images + self.n * spec.h * row_bytes + self.first
            body.call(
                "find_rows",
                first,
                count,
                spec.dilation[0],
                spec.h,
                row_bytes,
                spec.c,
                image,
                "outside",
                "rows",
                "steps",
            )
            columns = (MOST_PLACES - 1) * spec.stride[1] + spec.s
            body.comment("The columns of the image that a tile reads: four rows in a quad.")
            body.put(f"int32_t woven[{columns * width}];")
            if self.groups > 1 or not self.in_registers:
                body.put(f"int32_t tile[{self.outputs * MOST_PLACES * width}];")
                body.put(f"int_vec kernel[{spec.s}][2];")
            with body.loop("ow_0", self.out_w, step=MOST_PLACES) as ow_0:
                self.tile(ow_0)

    def tile(self, ow_0: Index) -> None:
        """The sums from pixel ow_0 on, and the epilogue of each row."""
        spec, body, width, outputs = self.spec, self.body, CHANNEL_BLOCK, self.outputs
        pixels = body.let("pixels", smaller(self.out_w - ow_0, MOST_PLACES), "int")
        left, stride = spec.padding[1], spec.stride[1]
        columns = (pixels - 1) * stride + spec.s
        pixel = Axis("ow", ow_0, pixels, "i")
        channel = Axis("k", self.first, self.channels, "j")
        for group in range(self.groups):
            rows, steps = (Pointer(name) + QUAD * group for name in ("rows", "steps"))
            body.call(
                f"weave_{spec.type}",
                columns,
                self.channels,
                ow_0 * stride - left,
                spec.w,
                rows,
                steps,
                spec.zero_point,
                "woven",
            )
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
        """The last sums, and the epilogue while they are in registers."""
        spec, body, width, outputs = self.spec, self.body, CHANNEL_BLOCK, self.outputs
        assert spec.split_epilogue is not None
        unrolled = "#pragma GCC unroll 2"
        j = symbol("j", channel.count)
        i = Index.of(0) if pixel.is_one else symbol("i", pixel.count)
        o = symbol("o", outputs - 1) if outputs > 1 else Index.of(0)
        names = Body()  # what they are called in the loops
        oh, ow = names.let("oh", self.oh_0 + o), names.let("ow", pixel.start + i)
        with body.block(f"for (int j = 0; j < {bare(self.channels)}; j += int_lanes)"):
            count = body.let("count", self.channels - j, "int")
            k = body.let("k", channel.start + j)
            loads, statements = spec.split_epilogue(
                "sum", n=self.n, k=k, oh=oh, ow=ow, count=bare(count), moving=(ow, oh) if outputs > 1 else (ow,)
            )
            body.put(loads)
            body.put(f"int_vec kernel[{spec.s}][2];")
            body.call("load_kernel", outputs, spec.s, quads + j, "kernel")
            with body.loop("i", pixel.count):
                body.let("ow", pixel.start + i)
                body.put("int_vec sums[2];")
                with body.loop("o", outputs, pragma=unrolled):
                    tile = Pointer("tile") + (o * MOST_PLACES + i) * width
                    start = (self.weights if self.groups == 1 else tile) + j
                    body.put(f"sums[{bare(o)}] = *(const int_vec *)({start});")
                first = Pointer("woven") + i * (spec.stride[1] * width) + j
                body.call("add_columns", outputs, spec.s, first, "kernel", "sums")
                with body.loop("o", outputs, pragma=unrolled):
                    body.let("oh", self.oh_0 + o)
                    if self.rows != outputs:
                        body.put(f"if ({bare(o)} == {bare(self.rows)})\n    break;")
                    body.put(f"const int_vec sum = sums[{bare(o)}];")
                    body.put(statements)
        if spec.beside is not None:
            with self.output_rows() as (_, row):
                finish_beside(body, spec, pixel, channel, self.n, row)

    @contextmanager
    def output_rows(self) -> Iterator[tuple[Index, Index]]:
        """A loop over the output rows of a tile: their numbers there, and in the image."""
        with self.body.loop("o", self.rows) as o:
            yield o, self.body.let("oh", self.oh_0 + o)
