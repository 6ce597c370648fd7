"""Printing the loops of a convolution whose kernels are read in *runs*: numbers of a channels-last
image that follow each other, as many as a row of the kernel times all channels where columns are
not dilated, else the channels of one pixel. Four of 8 bits (a quad) or two bf16 (a pair) are a
*word* of 32 bits, a step of the products of `tiles/int8.h` and `bf16.h`.

In goes a `RunsSpec`, of integers (`conv_int8.Int8ConvSpec`) or of floats on the tiles of AMX
(`conv_amx.TileConvSpec`); out comes a `Rendered`. Where the image cannot be read in place it is
copied into the workspace first, channels last, with its padding, as the numbers that are
multiplied. Then blocks of output rows times panels of 32 output channels, whose rows are 32 words,
are the tasks of the threads. A tile is up to QUAD_ROWS pixels of one output row, of AMX also
several short rows; see `tiles/conv_amx.h`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite.codegen.c.conv.conv_direct import Direct, conv_function, put_tile
from fxlite.codegen.c.conv.conv_plan import ConvSpec
from fxlite.codegen.c.product.gemm_int8 import FASTER
from fxlite.codegen.c.product.gemm_spec import Rendered
from fxlite.codegen.c.product.packed_operands import PANEL_COLUMNS
from fxlite.codegen.c.text.template_text import add, atom, multiply
from fxlite.codegen.c.tiles.library import constant

FEWEST_WORDS = constant("conv_amx", "FEWEST_WORDS")

MOST_ENDS = 64
"""Runs up to which the zeros behind their ends, 2 KiB each, are kept."""

REGISTER = 16
"""Rows of a register of AMX: places of the image that are read at once."""


@dataclass(frozen=True)
class RunsSpec(ConvSpec):
    """A convolution whose kernels are read in runs; see `ConvSpec`."""

    word: int = 4
    """Numbers of a word of 32 bits."""

    @property
    def joins_columns(self) -> bool:
        """Whether a whole row of the kernel is one run."""
        return self.groups == 1 and (self.dilation[1] == 1 or self.s == 1)

    @property
    def runs(self) -> int:
        """Runs of a kernel."""
        return self.r if self.joins_columns else self.r * self.s

    @property
    def run_length(self) -> int:
        """Numbers of a run."""
        return self.group_inputs * (self.s if self.joins_columns else 1)

    @property
    def words(self) -> int:
        """Words of a run."""
        return -(-self.run_length // self.word)

    @property
    def item_bytes(self) -> int:
        """Bytes of a number."""
        return 4 // self.word

    @property
    def has_ends(self) -> bool:
        """Whether tiles of AMX need zeros behind the ends of runs, and it is worth having them."""
        return self.words % 16 > 0 and self.words >= FEWEST_WORDS and self.runs <= MOST_ENDS


def run_rows(weight: np.ndarray[Any, Any], spec: RunsSpec) -> np.ndarray[Any, Any]:
    """A weight [K, C / groups, R, S] as [groups, K / groups, numbers]: the runs one after the
    other, each filled up to whole words with zeros."""
    runs = weight.transpose(0, 2, 3, 1).reshape(len(weight), spec.runs, spec.run_length)
    whole = np.zeros((len(weight), spec.runs, spec.words * spec.word), weight.dtype)
    whole[:, :, : spec.run_length] = runs
    return whole.reshape(spec.groups, spec.group_outputs, -1)


class Runs(Direct):
    """Tiles of pixels times a panel of output channels. Subclasses say how the image is copied, how
    a tile is summed up, and in what weights are packed."""

    image_type = "uint8_t"
    """Of the numbers that are multiplied."""
    word_type = "int32_t"
    tile_rows = "QUAD_ROWS"
    parts = 1
    """Numbers whose sum an operand is."""

    spec: RunsSpec

    def __init__(self, spec: RunsSpec) -> None:
        super().__init__(spec, FASTER)

    # -- what differs
    def note(self) -> str:
        """How it is computed."""
        raise NotImplementedError

    def is_stored_so(self) -> bool:
        """Whether the image is stored as the numbers that are multiplied, channels last."""
        raise NotImplementedError

    def panel_rows(self) -> int:
        """Rows of a packed panel of weights."""
        raise NotImplementedError

    def first_weight(self) -> int:
        """The row of a panel where weights begin."""
        raise NotImplementedError

    def put_row(self, row: str, width: str, target: str) -> None:
        """Copy `width` pixels (0: none) of a row of the image, with its padding, to `target`."""
        raise NotImplementedError

    def put_sums(self, image: str, step: str, row_step: str) -> None:
        """Sum up a tile from the place `image` on."""
        raise NotImplementedError

    # -- what does not
    def render(self) -> Rendered:
        """Print the function. Its output must not be empty."""
        spec, out = self.spec, self.out
        rows, columns, workspace = spec.h, spec.w, "0"
        copied = self.copies()
        if copied:
            rows = add(multiply(self.out_h, str(spec.stride[0])), str(spec.reach[0] - 1))
            columns = add(multiply(self.out_w, str(spec.stride[1])), str(spec.reach[1] - 1))
            numbers = multiply(spec.n, rows, columns, str(spec.c))
            slack = REGISTER * spec.stride[1] * spec.c * spec.item_bytes + 64
            workspace = add(multiply(numbers, str(self.parts * spec.item_bytes)), str(slack))
        self.out_h = self.declare("out_h", self.out_h)
        self.out_w = self.declare("out_w", self.out_w)
        self.rows = self.declare("padded_h", rows)
        self.columns = self.declare("padded_w", columns)
        self.pitch = multiply(self.columns, str(spec.c))
        self.image_numbers = multiply(spec.n, self.rows, self.pitch)
        self.declare_runs()
        self.declare_blocks()
        extra = (("workspace",) if copied else ()) + (("n_threads",) if self.threads else ())
        if copied:
            out.put(f"{self.image_type} *const padded = workspace;")
            self.copy()
        images = "padded" if copied else f"(const {self.image_type} *){atom(spec.x)}"
        self.convolve(images)
        return conv_function(spec, self.note(), out.lines, workspace, extra)

    def copies(self) -> bool:
        """Whether the image is copied before it is read: not if it is stored as it is multiplied,
        needs no padding, and a tile of AMX reads no byte behind its end."""
        spec = self.spec
        if any(spec.padding) or not self.is_stored_so() or spec.run_length * spec.item_bytes % 64:
            return True
        sizes = (spec.h, spec.w, *spec.output_size())
        if not all(size.isdecimal() for size in sizes):
            return True
        h, w, out_h, out_w = map(int, sizes)
        down, across = spec.stride
        last_row = (out_h - 1) * down + spec.reach[0] - 1
        last_column = (max(out_w, REGISTER) - 1) * across + spec.reach[1] - 1
        return last_row * w + last_column >= h * w

    def bytes_of(self, *numbers: str) -> str:
        """The bytes of a product of so many numbers of the image."""
        return multiply(*numbers, str(self.spec.item_bytes))

    def declare_runs(self) -> None:
        """Distances of the runs from the first pixel."""
        spec = self.spec
        columns = 1 if spec.joins_columns else spec.s
        runs = [
            add(
                self.bytes_of(str(r * spec.dilation[0]), self.pitch),
                self.bytes_of(str(s * spec.dilation[1] * spec.c)),
            )
            for r in range(spec.r)
            for s in range(columns)
        ]
        if spec.runs > 1:
            self.out.put("/* Where each run of the kernel is, from its first pixel. */")
        self.out.put(f"const int64_t run[{spec.runs}] = {{{', '.join(runs)}}};")

    def declare_blocks(self) -> None:
        """How the output rows are cut into tasks."""
        spec, out = self.spec, self.out
        self.step = self.bytes_of(str(spec.stride[1] * spec.c))
        self.row_step = self.bytes_of(str(spec.stride[0]), self.pitch)
        at_once = f"rows_at_once({self.out_w}, {self.step}, {self.row_step})"
        out.put(f"const int64_t at_once = {at_once};")
        out.put(f"const int64_t row_groups = ({self.out_h} + at_once - 1) / at_once;")
        others = multiply(spec.n, str(spec.groups * self.panels()))
        group_bytes = multiply("at_once", self.row_step)
        n_threads = "n_threads" if self.threads else "1"
        blocks = f"count_row_blocks(row_groups, {group_bytes}, {others}, {n_threads})"
        out.put(f"const int64_t row_blocks = {blocks};")

    def panels(self) -> int:
        """Panels of output channels of a group."""
        return -(-self.spec.group_outputs // PANEL_COLUMNS)

    def copy(self) -> None:
        """All images, with their padding, into the workspace."""
        spec, out = self.spec, self.out
        channels = str(spec.c)
        out.put("/* The images, channels last, with their padding. */")
        if spec.has_ends and spec.item_bytes > 1:  # an integer times 0 is 0, whatever it is
            end = multiply(self.image_numbers, str(self.parts))
            out.put(f"__builtin_memset({add('padded', end)}, 0, 64); /* behind the last run */")
        with out.loops([("n", spec.n), ("i", self.rows)], self.parallel(2)):
            top = spec.padding[0]
            inside = f"i >= {top} && i < {add(spec.h, str(top))}"
            row = f"(i - {top})" if top else "i"
            if spec.x_last:
                source = multiply(f"({add(multiply('n', spec.h), row)})", spec.w, channels)
            else:
                source = add(multiply("n", channels, spec.h, spec.w), multiply(row, spec.w))
            target = multiply(f"({add(multiply('n', self.rows), 'i')})", self.pitch)
            self.put_row(f"{spec.x} + {source}", f"{inside} ? {spec.w} : 0", f"padded + {target}")
        out.put("/* The convolution. */")

    def pixel_steps(self) -> str:
        """Distances of neighbouring pixels, and of channels, of the image as it is stored."""
        spec = self.spec
        return f"{spec.c}, 1" if spec.x_last else f"1, {multiply(spec.h, spec.w)}"

    def convolve(self, images: str) -> None:
        """Images, groups, blocks of rows, panels of output channels; then tile by tile."""
        spec, out, width = self.spec, self.out, PANEL_COLUMNS
        outputs, panels = spec.group_outputs, self.panels()
        loops = [("n", spec.n), *([("group", str(spec.groups))] if self.grouped else [])]
        loops += [("row_block", "row_blocks"), ("panel", str(panels))]
        with out.loops(loops, self.parallel(len(loops))):
            rest = f"{outputs} - panel * {width}"
            columns = f"{rest} < {width} ? {rest} : {width}"
            if outputs % width == 0 or panels == 1:
                columns = str(min(outputs, width))
            out.put(f"const int columns = {columns};")
            depth = self.panel_rows()
            first = multiply("group", str(depth * panels * width)) if self.grouped else "0"
            start = add(spec.weight, first, multiply("panel", str(depth * width)))
            out.put(f"const {self.word_type} *const weights = {start};")
            group = multiply("group", str(spec.group_inputs)) if self.grouped else "0"
            image = add(images, multiply("n", self.rows, self.pitch), group)
            if self.image_type != "uint8_t":
                image = f"(const uint8_t *)({image})"
            out.put(f"const uint8_t *const image = {image};")
            if spec.has_ends:
                self.put_ends()
            out.put("take_tiles();")
            out.put("for (int64_t row_group = row_block * row_groups / row_blocks;")
            with out.block(
                "     row_group < (row_block + 1) * row_groups / row_blocks; row_group++)"
            ):
                self.tiles(first_channel=self.first_output(panels))
            out.put("release_tiles();")

    def put_ends(self) -> None:
        """The last words of runs, before zeros, for the tiles of AMX."""
        spec, out, words = self.spec, self.out, 16 * PANEL_COLUMNS
        out.put(f"{self.word_type} ends[{self.parts * spec.runs * words}];")
        for part in range(self.parts):
            rows = self.first_weight() + part * spec.runs * spec.words
            weights = add("weights", str(rows * PANEL_COLUMNS)) if rows else "weights"
            ends = add("ends", str(part * spec.runs * words)) if part else "ends"
            out.put(f"copy_ends({spec.runs}, {spec.words}, {weights}, {ends});")

    def first_output(self, panels: int) -> str:
        """The first output channel of the tile."""
        group = multiply("group", str(self.spec.group_outputs)) if self.grouped else "0"
        return add(group, multiply("panel", str(PANEL_COLUMNS)) if panels > 1 else "0")

    def tiles(self, first_channel: str) -> None:
        """The pixels of the rows of a group, in tiles."""
        out = self.out
        out.put("const int64_t oh_0 = row_group * at_once;")
        out.put(f"const int64_t rows = rows_of_tile({self.out_h} - oh_0, at_once);")
        most = self.tile_rows
        out.put(f"const int64_t tiles = ({self.out_w} + {most} - 1) / {most};")
        with out.block("for (int64_t tile_index = 0; tile_index < tiles; tile_index++)"):
            after = f"tiles, {self.out_w}, {most})"
            out.put(f"const int64_t ow_0 = first_tile_row(tile_index, {after};")
            out.put(f"const int pixels = first_tile_row(tile_index + 1, {after} - ow_0;")
            place = add("image", multiply("oh_0", self.row_step), multiply("ow_0", self.step))
            self.tile(place, first_channel)

    def tile(self, place: str, first_channel: str) -> None:
        """The sums of a tile from this place of the image on, then the epilogue."""
        spec, out, width = self.spec, self.out, PANEL_COLUMNS
        out.put(f"{self.ctype} tile[{self.tile_rows} * {width}] __attribute__((aligned(64)));")
        self.put_sums(place, self.step, self.row_step)
        with out.block("for (int64_t row = 0; row < rows; row++)"):
            out.put("const int64_t oh = oh_0 + row;")
            start = f"place_of_row(row, pixels, {self.step}, {self.row_step})"
            out.put(f"const {self.ctype} *const sums = tile + {start} * {width};")
            put_tile(out, spec, f"sums[i * {width} + j]", "pixels", "columns", first_channel)
