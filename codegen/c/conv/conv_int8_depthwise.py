"""C text of one depthwise convolution of 8-bit integers: each channel is convolved by itself.

In and out as in `conv_int8.py`; the arithmetic is in `tiles/depthwise_int8.h`. Tiles are one or two
output rows of up to MOST_PLACES pixels times 64 channels. An image whose channels are last is read
in place, also at its edges; any other is turned in the workspace first.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.codegen.c.conv.conv_direct import Direct, conv_function, put_tile
from fxlite.codegen.c.product.gemm_int8 import FASTER
from fxlite.codegen.c.product.gemm_spec import Rendered
from fxlite.codegen.c.product.packed_operands import QUAD
from fxlite.codegen.c.text.template_text import add, atom, divide_up, mentions, multiply
from fxlite.codegen.c.tiles.library import constant

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


class _Depthwise(Direct):
    """Tiles of one or two output rows of some pixels times a block of channels."""

    def __init__(self, spec: Int8ConvSpec) -> None:
        super().__init__(spec, FASTER)
        self.int8 = spec
        self.outputs, self.groups = _woven(spec)
        self.in_registers = spec.split_epilogue is not None and spec.y_last

    def render(self) -> Rendered:
        spec, out = self.int8, self.out
        self.out_h = self.declare("out_h", self.out_h)
        self.out_w = self.declare("out_w", self.out_w)
        workspace = "0" if spec.x_last else multiply(spec.n, spec.h, spec.w, str(spec.c))
        if not spec.x_last:
            out.put("uint8_t *const images = workspace;")
            self.turn()
        image = atom(spec.x) if spec.type == "u8" else f"(const uint8_t *){atom(spec.x)}"
        self.convolve(image if spec.x_last else "images")
        rows = "two output rows" if self.outputs > 1 else "an output row"
        note = (
            f"{spec.r}x{spec.s}, each of {spec.c} channels by itself; tiles of {rows} of up to"
            f" {MOST_PLACES} pixels x {CHANNEL_BLOCK} channels.\nFour rows of the image are woven"
            f" into quads, one for each column and channel."
        )
        extra = (() if spec.x_last else ("workspace",)) + (("n_threads",) if self.threads else ())
        return conv_function(spec, note, out.lines, workspace, extra)

    def turn(self) -> None:
        """All images, channels last, into the workspace."""
        spec, out = self.int8, self.out
        out.put("/* The images, channels last. */")
        with out.loops([("n", spec.n), ("i", spec.h)], self.parallel(2)):
            source = add(multiply("n", str(spec.c), spec.h, spec.w), multiply("i", spec.w))
            target = multiply(f"({add(multiply('n', spec.h), 'i')})", spec.w, str(spec.c))
            out.put(
                f"pad_row_bytes({spec.w}, {spec.c}, {spec.x} + {source}, 1, "
                f"{multiply(spec.h, spec.w)}, 0, {spec.w}, 0, 0, images + {target});"
            )
        out.put("/* The convolution. */")

    def convolve(self, images: str) -> None:
        """Images, (pairs of) output rows, blocks of channels; then tile by tile."""
        spec, out, width = self.int8, self.out, CHANNEL_BLOCK
        blocks, count = _blocks(spec), QUAD * self.groups
        row_bytes = multiply(spec.w, str(spec.c))
        steps = divide_up(self.out_h, self.outputs)
        loops = [("n", spec.n), ("row_step", steps), ("block", str(blocks))]
        with out.loops(loops, self.parallel(3)):
            rest = f"{spec.c} - block * {width}"
            known = blocks == 1 or spec.c % width == 0
            channels = str(min(spec.c, width)) if known else f"{rest} < {width} ? {rest} : {width}"
            out.put(f"const int channels = {channels};")
            start = add(spec.weight, multiply("block", str(_block_rows(spec) * width)))
            out.put(f"const int32_t *const weights = {start};")
            image = add(images, multiply("n", spec.h, row_bytes), f"block * {width}")
            out.put(f"const int64_t oh_0 = {multiply('row_step', str(self.outputs))};")
            out.put(f"uint8_t outside[{width}];")
            out.put(f"__builtin_memset(outside, {spec.zero_point % 256}, {width});")
            out.put(f"const uint8_t *rows[{count}];")
            out.put(f"int64_t steps[{count}];")
            top = spec.padding[0]
            first = multiply("oh_0", str(spec.stride[0])) + (f" - {top}" if top else "")
            out.put(
                f"find_rows({first}, {count}, {spec.dilation[0]}, {spec.h}, {row_bytes}, {spec.c}, "
                f"{image}, outside, rows, steps);"
            )
            columns = (MOST_PLACES - 1) * spec.stride[1] + spec.s
            out.put("/* The columns of the image that a tile reads: four rows in a quad. */")
            out.put(f"int32_t woven[{columns * width}];")
            if self.groups > 1 or not self.in_registers:
                out.put(f"int32_t tile[{self.outputs * MOST_PLACES * width}];")
            w = atom(self.out_w)
            with out.block(f"for (int64_t ow_0 = 0; ow_0 < {w}; ow_0 += {MOST_PLACES})"):
                self.tile(w)

    def tile(self, w: str) -> None:
        """The sums from pixel ow_0 on, and the epilogue of each row."""
        spec, out, width, outputs = self.int8, self.out, CHANNEL_BLOCK, self.outputs
        rest = f"{w} - ow_0"
        out.put(f"const int pixels = {rest} < {MOST_PLACES} ? {rest} : {MOST_PLACES};")
        left, stride = spec.padding[1], spec.stride[1]
        column = multiply("ow_0", str(stride)) + (f" - {left}" if left else "")
        columns = add(multiply("(pixels - 1)", str(stride)), str(spec.s))
        for group in range(self.groups):
            rows, steps = (add(name, str(QUAD * group)) for name in ("rows", "steps"))
            out.put(
                f"weave_{spec.type}({columns}, channels, {column}, {spec.w}, {rows}, {steps}, "
                f"{spec.zero_point}, woven);"
            )
            quads = add("weights", str((1 + group * spec.s * outputs) * width))
            if group == self.groups - 1 and self.in_registers:
                self.finish(quads)
                return
            starts = "0" if group else "weights"
            out.put(
                f"add_tile({outputs}, {spec.s}, pixels, channels, {stride}, {starts}, {quads}, "
                f"woven, tile);"
            )
        with self.output_rows():
            out.put(f"const int32_t *const sums = tile + (oh - oh_0) * {MOST_PLACES * width};")
            put_tile(out, spec, f"sums[i * {width} + j]", "pixels", "channels", f"block * {width}")

    def finish(self, quads: str) -> None:
        """The last sums, and the epilogue while they are in registers."""
        spec, out, width, outputs = self.int8, self.out, CHANNEL_BLOCK, self.outputs
        assert spec.split_epilogue is not None
        loads, statements = spec.split_epilogue("sum", "n", "k", "oh", "ow", "count")
        with out.block("for (int j = 0; j < channels; j += int_lanes)"):
            out.put("const int count = channels - j;")
            out.put(f"const int64_t k = {add(f'block * {width}', 'j')};")
            out.put(loads)
            out.put(f"int_vec kernel[{spec.s}][2];")
            out.put(f"load_kernel({outputs}, {spec.s}, {add(quads, 'j')}, kernel);")
            with out.block("for (int64_t i = 0; i < pixels; i++)"):
                if mentions(statements, "ow"):
                    out.put("const int64_t ow = ow_0 + i;")
                out.put("int_vec sums[2];")
                out.put("#pragma GCC unroll 2")
                out.put(f"for (int o = 0; o < {outputs}; o++)")
                sums = f"tile + (o * {MOST_PLACES} + i) * {width}"
                start = "weights" if self.groups == 1 else sums
                out.put(f"    sums[o] = *(const int_vec *)({add(start, 'j')});")
                first = add("woven", multiply("i", str(spec.stride[1] * width)), "j")
                out.put(f"add_columns({outputs}, {spec.s}, {first}, kernel, sums);")
                out.put("#pragma GCC unroll 2")
                with out.block(f"for (int o = 0; o < {outputs}; o++)"):
                    out.put("const int64_t oh = oh_0 + o;")
                    if outputs > 1:
                        out.put(f"if (oh == {self.out_h})")
                        out.put("    break;")
                    out.put("const int_vec sum = sums[o];")
                    out.put(statements)
        if spec.beside is not None:
            with self.output_rows():
                corner = ("n", "oh", "ow_0", f"block * {width}")
                out.put(spec.beside.tile("pixels", "channels", corner))

    def output_rows(self) -> AbstractContextManager[None]:
        """A loop over the output rows oh of a tile."""
        bottom = f" && oh < {atom(self.out_h)}" if self.outputs > 1 else ""
        return self.out.block(f"for (int64_t oh = oh_0; oh < oh_0 + {self.outputs}{bottom}; oh++)")
