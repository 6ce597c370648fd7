"""C text of one convolution of 8-bit integers with sums in int32, and its epilogue over each
finished tile.

In goes an `Int8ConvSpec`, out comes a `Rendered`. Tiles are up to TILE_ROWS pixels of one output
row times 32 output channels, with the arithmetic of `int8_tile`: four neighbouring channels make
a quad, so the image's channels must be last. An image that is not stored so, or has padding, is
first copied into the workspace, in bytes; a zero around it is its zero point, and all that has to
be added for zero points is known with the weights. Depthwise convolutions weave quads of four
neighbouring pixels. (A 1x1 convolution of stride 1 of a channels-last image is a product whose rows
are pixels, which `gemm_int8.py` prints.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite.codegen.c.conv_direct import Direct, conv_function, put_tile
from fxlite.codegen.c.conv_int8_tile import CHANNEL_BLOCK, MOST_PLACES
from fxlite.codegen.c.conv_plan import ConvSpec
from fxlite.codegen.c.gemm_int8 import FASTER
from fxlite.codegen.c.gemm_pack import packed_size
from fxlite.codegen.c.gemm_spec import Rendered
from fxlite.codegen.c.gemm_text import add, atom, multiply
from fxlite.codegen.c.int8_tile import PANEL_COLUMNS, QUAD, pack_int8, packed_rows


@dataclass(frozen=True)
class Int8ConvSpec(ConvSpec):
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

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel is convolved by itself, and its columns are neighbours."""
        return self.groups == self.c == self.k > 1 and (self.dilation[1] == 1 or self.s == 1)

    @property
    def joins_columns(self) -> bool:
        """Whether a whole row of the kernel is one run."""
        return self.groups == 1 and (self.dilation[1] == 1 or self.s == 1)

    @property
    def runs(self) -> int:
        """Runs of a kernel."""
        return self.r if self.joins_columns else self.r * self.s

    @property
    def run_bytes(self) -> int:
        """Numbers of a run."""
        return self.group_inputs * (self.s if self.joins_columns else 1)

    @property
    def quads(self) -> int:
        """Quads of a run."""
        return -(-self.run_bytes // QUAD)


def _woven(spec: Int8ConvSpec) -> tuple[int, int]:
    """Of a depthwise convolution: the outputs that one group of four pixels serves, and the groups
    of a row of the kernel."""
    outputs = 2 if spec.stride[1] == 1 else 1
    return outputs, -(-(spec.s + outputs - 1) // QUAD)


def _depthwise_rows(spec: Int8ConvSpec) -> int:
    """Rows of a block of a depthwise weight."""
    outputs, groups = _woven(spec)
    return 1 + spec.r * groups * outputs


def _channel_blocks(spec: Int8ConvSpec) -> int:
    return -(-spec.c // CHANNEL_BLOCK)


def packed_conv_int8_size(spec: Int8ConvSpec) -> int:
    """Numbers of int32 that `pack_conv_int8` makes."""
    if spec.is_depthwise:
        return _channel_blocks(spec) * _depthwise_rows(spec) * CHANNEL_BLOCK
    rows = packed_rows(spec.runs * spec.quads * QUAD)
    return spec.groups * packed_size(rows, spec.group_outputs, 4)


def pack_conv_int8(
    weight: np.ndarray[Any, Any], spec: Int8ConvSpec, packed: np.ndarray[Any, Any] | None = None
) -> np.ndarray[Any, Any]:
    """An i8 weight [K, C / groups, R, S] as matrices of `int8_tile.pack_int8`, one for each group,
    whose rows are runs filled up to whole quads; or as `sum_depthwise_u8` reads it. ``packed`` is
    where to put it."""
    if packed is None:
        packed = np.empty(packed_conv_int8_size(spec), np.int32)
    if spec.is_depthwise:
        return _pack_depthwise(weight, spec, packed)
    runs = weight.transpose(0, 2, 3, 1).reshape(len(weight), spec.runs, spec.run_bytes)
    whole = np.zeros((len(weight), spec.runs, spec.quads * QUAD), np.int8)
    whole[:, :, : spec.run_bytes] = runs
    groups = whole.reshape(spec.groups, spec.group_outputs, -1)
    for group, part in zip(groups, packed.reshape(spec.groups, -1), strict=True):
        pack_int8(group, spec.offset, part)
    return packed


def _pack_depthwise(
    weight: np.ndarray[Any, Any], spec: Int8ConvSpec, packed: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Blocks of 64 channels: the starts of the sums, then for each row, group and output quads."""
    outputs, groups = _woven(spec)
    blocks = _channel_blocks(spec)
    shape = (blocks * CHANNEL_BLOCK, spec.r, groups, outputs, QUAD)
    quads = np.zeros(shape, np.int8)
    for output in range(outputs):
        for s in range(spec.s):
            group, number = divmod(s + output, QUAD)
            quads[: spec.c, :, group, output, number] = weight[:, 0, :, s]
    starts = np.zeros((blocks * CHANNEL_BLOCK, 1), np.int32)
    starts[: spec.c, 0] = -spec.offset * weight.sum(axis=(1, 2, 3), dtype=np.int32)
    rows = np.concatenate((starts, quads.reshape(len(quads), -1).view("<i4")), axis=1)
    packed[:] = rows.reshape(blocks, CHANNEL_BLOCK, -1).swapaxes(1, 2).reshape(-1)
    return packed


def render_conv_int8(spec: Int8ConvSpec) -> Rendered:
    """Print the function of one convolution. Its output must not be negative in size."""
    if "0" in (spec.n, *spec.output_size()) or spec.k == 0:
        body = ["    /* Nothing to compute. */"]
        return conv_function(spec, "An empty result.", body, "0", ())
    return (_Int8Depthwise if spec.is_depthwise else _Int8Conv)(spec).render()


class _Int8Conv(Direct):
    """Tiles of pixels of one output row times a panel of output channels."""

    def __init__(self, spec: Int8ConvSpec) -> None:
        super().__init__(spec, FASTER)
        self.int8 = spec

    def render(self) -> Rendered:
        spec, out = self.int8, self.out
        rows, columns, workspace = spec.h, spec.w, "0"
        copied = self.copies()
        if copied:
            rows = add(multiply(self.out_h, str(spec.stride[0])), str(spec.reach[0] - 1))
            columns = add(multiply(self.out_w, str(spec.stride[1])), str(spec.reach[1] - 1))
            workspace = add(multiply(spec.n, rows, columns, str(spec.c)), str(self.slack()))
        self.out_h = self.declare("out_h", self.out_h)
        self.out_w = self.declare("out_w", self.out_w)
        self.rows = self.declare("padded_h", rows)
        self.columns = self.declare("padded_w", columns)
        self.pitch = multiply(self.columns, str(spec.c))
        self.declare_tables()
        extra = (("workspace",) if copied else ()) + (("n_threads",) if self.threads else ())
        if copied:
            out.put("uint8_t *const padded = workspace;")
            self.copy()
        self.convolve("padded" if copied else f"(const uint8_t *){atom(spec.x)}")
        return conv_function(spec, self.note(), out.lines, workspace, extra)

    def note(self) -> str:
        """How it is computed."""
        spec, width = self.int8, PANEL_COLUMNS
        return (
            f"{spec.r}x{spec.s}, {spec.c} -> {spec.k} channels; tiles of TILE_ROWS pixels of a row"
            f" x {width} output channels.\nThe weight is packed, in panels of {width} columns of"
            f" quads."
        )

    def copies(self) -> bool:
        """Whether the image is copied before it is read."""
        spec = self.int8
        return any(spec.padding) or spec.run_bytes % QUAD > 0 or not spec.x_last

    def slack(self) -> int:
        """Bytes behind the copy that may be read: those of the last quad."""
        return CHANNEL_BLOCK

    def declare_tables(self) -> None:
        """Distances of the runs from the first pixel; how the output rows are cut into tasks."""
        spec = self.int8
        columns = 1 if spec.joins_columns else spec.s
        runs = [
            add(
                multiply(str(r * spec.dilation[0]), self.pitch),
                str(s * spec.dilation[1] * spec.c),
            )
            for r in range(spec.r)
            for s in range(columns)
        ]
        if spec.runs > 1:
            self.out.put("/* Where each run of the kernel is, from its first pixel. */")
        self.out.put(f"const int64_t run[{spec.runs}] = {{{', '.join(runs)}}};")
        panels = -(-spec.group_outputs // PANEL_COLUMNS)
        others = multiply(spec.n, str(spec.groups * panels))
        n_threads = "n_threads" if self.threads else "1"
        row_bytes = multiply(str(spec.stride[0]), self.pitch)
        blocks = f"count_row_blocks({self.out_h}, {row_bytes}, {others}, {n_threads})"
        self.out.put(f"const int64_t row_blocks = {blocks};")

    def copy(self) -> None:
        """All images, with pixels of the zero point around them, into the workspace."""
        spec, out = self.int8, self.out
        channels, zero = str(spec.c), str(spec.zero_point % 256)
        out.put("/* The images, channels last, in pixels of the zero point. */")
        with out.loops([("n", spec.n), ("i", self.rows)], self.parallel(2)):
            top, left = spec.padding[:2]
            inside = f"i >= {top} && i < {add(spec.h, str(top))}"
            row = f"(i - {top})" if top else "i"
            if spec.x_last:
                source = add(
                    multiply("n", spec.h, spec.w, channels), multiply(row, spec.w, channels)
                )
                steps = f"{channels}, 1"
            else:
                source = add(multiply("n", channels, spec.h, spec.w), multiply(row, spec.w))
                steps = f"1, {multiply(spec.h, spec.w)}"
            target = multiply(f"({add(multiply('n', self.rows), 'i')})", self.pitch)
            out.put(
                f"pad_row_bytes({inside} ? {spec.w} : 0, {channels}, {spec.x} + {source}, {steps},"
                f" {left}, {self.columns}, {zero}, padded + {target});"
            )
        out.put("/* The convolution. */")

    def convolve(self, images: str) -> None:
        """Images, groups, blocks of rows, panels of output channels; then row by row."""
        spec, out, width = self.int8, self.out, PANEL_COLUMNS
        outputs = spec.group_outputs
        panels = -(-outputs // width)
        loops = [("n", spec.n), *([("group", str(spec.groups))] if self.grouped else [])]
        loops += [("row_block", "row_blocks"), ("panel", str(panels))]
        with out.loops(loops, self.parallel(len(loops))):
            rest = f"{outputs} - panel * {width}"
            columns = f"{rest} < {width} ? {rest} : {width}"
            if outputs % width == 0 or panels == 1:
                columns = str(min(outputs, width))
            out.put(f"const int columns = {columns};")
            depth = packed_rows(spec.runs * spec.quads * QUAD)
            first = multiply("group", str(depth * panels * width)) if self.grouped else "0"
            start = add(spec.weight, first, multiply("panel", str(depth * width)))
            out.put(f"const int32_t *const weights = {start};")
            group = multiply("group", str(spec.group_inputs)) if self.grouped else "0"
            image = add(images, multiply("n", self.rows, self.pitch), group)
            out.put(f"const uint8_t *const image = {image};")
            out.put(f"int32_t tile[TILE_ROWS * {width}];")
            out.put(f"for (int64_t oh = row_block * {self.out_h} / row_blocks;")
            with out.block(f"     oh < (row_block + 1) * {self.out_h} / row_blocks; oh++)"):
                self.tiles(panels)

    def tiles(self, panels: int) -> None:
        """The pixels of row oh, in tiles whose widths differ by one at most."""
        spec, out, width = self.int8, self.out, PANEL_COLUMNS
        out.put(f"const int64_t tiles = ({self.out_w} + TILE_ROWS - 1) / TILE_ROWS;")
        with out.block("for (int64_t tile_index = 0; tile_index < tiles; tile_index++)"):
            w = atom(self.out_w)
            out.put(f"const int64_t ow_0 = tile_index * {w} / tiles;")
            out.put(f"const int pixels = (tile_index + 1) * {w} / tiles - ow_0;")
            step = str(spec.stride[1] * spec.c)
            row = multiply("oh", str(spec.stride[0]), self.pitch)
            out.put(
                f"sum_runs_{spec.type}(pixels, columns, {spec.runs}, {spec.quads}, "
                f"{add('image', row, multiply('ow_0', step))}, {step}, run, weights, tile);"
            )
            group = multiply("group", str(spec.group_outputs)) if self.grouped else "0"
            first = add(group, multiply("panel", str(width)) if panels > 1 else "0")
            put_tile(out, spec, f"tile[i * {width} + j]", "pixels", "columns", first)


class _Int8Depthwise(_Int8Conv):
    """Tiles of some pixels of an output row times a block of channels."""

    def note(self) -> str:
        spec = self.int8
        return (
            f"{spec.r}x{spec.s}, each of {spec.c} channels by itself; tiles of up to {MOST_PLACES}"
            f" pixels of a row x {CHANNEL_BLOCK} channels."
        )

    def copies(self) -> bool:
        return True  # reads beyond the last pixel

    def slack(self) -> int:
        _, groups = _woven(self.int8)
        return (QUAD * groups + 1) * self.int8.c + CHANNEL_BLOCK

    def declare_tables(self) -> None:
        pass

    def convolve(self, images: str) -> None:
        """Images, output rows, blocks of channels; then tile by tile."""
        spec, out, width = self.int8, self.out, CHANNEL_BLOCK
        blocks = _channel_blocks(spec)
        loops = [("n", spec.n), ("oh", self.out_h), ("block", str(blocks))]
        with out.loops(loops, self.parallel(3)):
            rest = f"{spec.c} - block * {width}"
            count = f"{rest} < {width} ? {rest} : {width}"
            if blocks == 1 or spec.c % width == 0:
                count = str(min(spec.c, width))
            out.put(f"const int channels = {count};")
            start = add(spec.weight, multiply("block", str(_depthwise_rows(spec) * width)))
            out.put(f"const int32_t *const weights = {start};")
            above = multiply("oh", str(spec.stride[0]), self.pitch)
            row = add(images, multiply("n", self.rows, self.pitch), above, f"block * {width}")
            out.put(f"const uint8_t *const row = {row};")
            out.put(f"int32_t tile[{MOST_PLACES * width}];")
            w = atom(self.out_w)
            with out.block(f"for (int64_t ow_0 = 0; ow_0 < {w}; ow_0 += {MOST_PLACES})"):
                rest = f"{w} - ow_0"
                out.put(f"const int pixels = {rest} < {MOST_PLACES} ? {rest} : {MOST_PLACES};")
                down = multiply(str(spec.dilation[0]), self.pitch)
                _, groups = _woven(spec)
                first = add("row", multiply("ow_0", str(spec.stride[1] * spec.c)))
                out.put(
                    f"sum_depthwise_{spec.type}(pixels, channels, {spec.stride[1]}, {spec.r}, "
                    f"{groups}, {first}, {down}, {spec.c}, weights, tile);"
                )
                put_tile(out, spec, f"tile[i * {width} + j]", "pixels", "channels",
                         f"block * {width}")  # fmt: skip
