"""Print the loops of a convolution whose kernels are read in *runs*, which are adjacent numbers of a
channels-last image: a row of the kernel times all channels if columns are not dilated, or else the
channels of one pixel. Four 8-bit numbers (a quad) or two bf16 (a pair) form a *word* of 32 bits, one
step of the products of `tiles/int8.h` and `bf16.h`.

In goes a `RunsSpec`, of integers (`conv_int8.Int8ConvSpec`) or of floats on the tiles of AMX
(`conv.TileConvSpec`); out comes a `Rendered`. If the image cannot be read in place, it is first copied
into the workspace, channels last, with its padding, as the numbers that are multiplied. Then blocks of
output rows times panels of 32 output channels, whose rows are 32 words, are the tasks of the threads. A
tile is up to QUAD_ROWS pixels of one output row, or with AMX also several short rows; see
`tiles/conv_amx.h`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite.codegen.c.conv.conv_panels import Panels
from fxlite.codegen.c.conv.conv_plan import ConvSpec, number
from fxlite.codegen.c.conv.conv_walk import Axis, finish_tile
from fxlite.codegen.c.product.gemm_integers import FASTER
from fxlite.codegen.c.product.gemm_spec import PANEL_COLUMNS
from fxlite.codegen.c.tiles.library import constant
from fxlite.codegen.kernel.builder import Body, Pointer, bare, divide_up, symbol
from fxlite.scalar.index import Index

FEWEST_WORDS = constant("conv_amx", "FEWEST_WORDS")

MOST_ENDS = 64
"""The most runs for which the zeros behind their ends, 2 KiB each, are stored."""

REGISTER = 16
"""Rows of a register of AMX: the number of places of the image that are read at once."""


@dataclass(frozen=True)
class RunsSpec(ConvSpec):
    """A convolution whose kernels are read in runs; see `ConvSpec`."""

    word: int = 4
    """Numbers in a word of 32 bits."""

    @property
    def joins_columns(self) -> bool:
        """Whether a whole row of the kernel is one run."""
        return self.groups == 1 and (self.dilation[1] == 1 or self.s == 1)

    @property
    def runs(self) -> int:
        """Number of runs of a kernel."""
        return self.r if self.joins_columns else self.r * self.s

    @property
    def run_length(self) -> int:
        """Numbers in a run."""
        return number(self.group_inputs) * (self.s if self.joins_columns else 1)

    @property
    def words(self) -> int:
        """Words in a run."""
        return -(-self.run_length // self.word)

    @property
    def item_bytes(self) -> int:
        """Bytes of a number."""
        return 4 // self.word

    @property
    def has_ends(self) -> bool:
        """Whether tiles of AMX need zeros behind the ends of runs, and it is worth storing them."""
        return self.words % 16 > 0 and self.words >= FEWEST_WORDS and self.runs <= MOST_ENDS


def run_rows(weight: np.ndarray[Any, Any], spec: RunsSpec) -> np.ndarray[Any, Any]:
    """A weight [K, C / groups, R, S] as [groups, K / groups, numbers]: the runs one after the other,
    each padded with zeros to whole words."""
    runs = weight.transpose(0, 2, 3, 1).reshape(len(weight), spec.runs, spec.run_length)
    whole = np.zeros((len(weight), spec.runs, spec.words * spec.word), weight.dtype)
    whole[:, :, : spec.run_length] = runs
    return whole.reshape(spec.groups, number(spec.group_outputs), -1)


@dataclass(frozen=True)
class Place:
    """The place of a tile in the result: its image, first output row and pixel, first channel."""

    n: Index
    oh_0: Index
    ow_0: Index
    k_0: Index


class Runs(Panels):
    """Tiles of pixels times a panel of output channels. Subclasses say how a row of the image is copied, and
    how a tile is summed."""

    image_type = "uint8_t"
    """The C type of the numbers that are multiplied."""
    tile_rows = "QUAD_ROWS"
    """The most pixels of a tile."""
    parts = 1
    """How many numbers are summed to give an operand."""
    first_weight = 0
    """The row of a panel at which weights begin."""
    row_name = "row_group"

    spec: RunsSpec

    def __init__(self, spec: RunsSpec) -> None:
        super().__init__(spec, FASTER)

    # -- what differs
    def is_stored_so(self) -> bool:
        """Whether the image is stored channels last, as the numbers that are multiplied."""
        raise NotImplementedError

    def copy_row(self, pixels: str, row: Pointer, target: Pointer) -> None:
        """Copy so many pixels (0: none) of a row of the image, with its padding."""
        raise NotImplementedError

    def sum_up(self, body: Body, image: Pointer, columns: Index) -> None:
        """Print the sums of a tile from this place of the image on."""
        raise NotImplementedError

    # -- what does not
    @property
    def width(self) -> int:
        return PANEL_COLUMNS

    def prepare(self) -> None:
        spec, body = self.spec, self.body
        self.padded = self.copies()
        self.slack = REGISTER * spec.stride[1] * spec.c * spec.item_bytes + 64  # tiles may read so far
        self.name_result()
        self.name_image(self.padded, spec.stride)
        self.pitch = self.image_w * spec.c
        item = spec.item_bytes
        columns = range(1 if spec.joins_columns else spec.s)
        rows, steps = [self.pitch * (r * spec.dilation[0]) for r in range(spec.r)], spec.dilation[1] * spec.c
        places = [(row + s * steps) * item for row in rows for s in columns]
        self.distances("run", "The offset of each run of the kernel from its first pixel.", places)
        self.step = Index.of(spec.stride[1] * spec.c * item)
        self.row_step = self.pitch * (spec.stride[0] * item)
        sizes = ", ".join(map(bare, (self.out_w, self.step, self.row_step)))
        self.at_once = body.let("at_once", f"rows_at_once({sizes})")
        self.rows = body.let("row_groups", divide_up(self.out_h, self.at_once))
        self.row_bytes = self.at_once * self.row_step

    @property
    def copy_size(self) -> Index:
        return self.image_h * self.pitch * (self.parts * self.spec.item_bytes)

    @property
    def image_numbers(self) -> Index:
        """Numbers in the images that are copied at once."""
        return self.images * self.image_h * self.pitch

    def copies(self) -> bool:
        """Whether the image is copied before it is read. It is not if it is stored as it is multiplied, needs
        no padding, and a tile of AMX reads no byte after its end."""
        spec = self.spec
        if any(spec.padding) or not self.is_stored_so() or spec.run_length * spec.item_bytes % 64:
            return True
        h, w, out_h, out_w = (size.constant for size in (spec.h, spec.w, *spec.output_size()))
        if h is None or w is None or out_h is None or out_w is None:
            return True
        down, across = spec.stride
        last_row = (out_h - 1) * down + spec.reach[0] - 1
        last_column = (max(out_w, REGISTER) - 1) * across + spec.reach[1] - 1
        return last_row * w + last_column >= h * w

    def copy(self) -> None:
        """Copy images, with their padding, into the workspace."""
        spec, body = self.spec, self.body
        if not self.padded:
            return
        body.assign(f"{self.image_type} *const padded", "workspace")
        if spec.has_ends and spec.item_bytes > 1:  # an integer times 0 is 0, whatever it is
            end = Pointer("padded") + self.image_numbers * self.parts
            body.put(f"memset({end}, 0, 64); /* behind the last run */")
        self.copy_rows("The images, channels last, with their padding.", self.pitch, self.copy_row)

    def pixel_steps(self) -> tuple[Index, Index]:
        """Distances of adjacent pixels, and of channels, in the image as it is stored."""
        spec, one = self.spec, Index.of(1)
        return (Index.of(spec.c), one) if spec.x_last else (one, spec.h * spec.w)

    def declare_image(self, n: Index, group: Index) -> None:
        spec, body, words = self.spec, self.body, 16 * PANEL_COLUMNS
        start = "padded" if self.padded else f"(const {self.image_type} *){spec.x}"
        image = Pointer(start) + (n * self.image_h * self.pitch + group * spec.group_inputs)
        bytes_ = image if self.image_type == "uint8_t" else f"(const uint8_t *)({image})"
        self.image = body.pointer("const uint8_t", "image", bytes_)
        if spec.has_ends:  # the last words of runs, before zeros, for the tiles of AMX
            body.declare(f"{self.word} ends[{self.parts * spec.runs * words}]")
            for part in range(self.parts):
                rows = self.first_weight + part * spec.runs * spec.words
                weights = Pointer("weights") + rows * PANEL_COLUMNS
                ends = Pointer("ends") + part * spec.runs * words
                body.call("copy_ends", spec.runs, spec.words, weights, ends)
        body.call("take_tiles")

    def leave(self) -> None:
        self.body.call("release_tiles")

    def row(self, row: Index, n: Index, k_0: Index) -> None:
        """Print the pixels of the rows of a group, in tiles."""
        body, w = self.body, self.out_w
        oh_0 = body.let("oh_0", row * self.at_once)
        body.let("rows", f"rows_of_tile({bare(self.out_h - oh_0)}, {bare(self.at_once)})")
        tiles = body.let("tiles", divide_up(w, symbol(self.tile_rows)))
        with body.loop("tile_index", tiles) as tile:
            after = f"{bare(tiles)}, {bare(w)}, {self.tile_rows})"
            ow_0 = body.let("ow_0", f"first_tile_row({bare(tile)}, {after}")
            end = f"first_tile_row({bare(tile + 1)}, {after}"
            body.let("pixels", f"{end} - {bare(ow_0)}", "int")
            place = self.image + oh_0 * self.row_step + ow_0 * self.step
            self.tile(body, place, Place(n, oh_0, ow_0, k_0), self.columns)

    def tile(self, body: Body, image: Pointer, place: Place, columns: Index) -> None:
        """Print the sums of a tile of ``rows`` and ``pixels`` from this place of the image on, then the
        epilogue."""
        width = PANEL_COLUMNS
        body.declare(f"{self.ctype} tile[{self.tile_rows} * {width}] ALIGNED(64)")
        self.sum_up(body, image, columns)
        with body.loop("row", symbol("rows")) as row:
            oh = body.let("oh", place.oh_0 + row)
            start = f"place_of_row({bare(row)}, pixels, {bare(self.step)}, {bare(self.row_step)})"
            tile = Pointer("tile") + symbol(start) * width
            sums = body.pointer(f"const {self.ctype}", "sums", tile)
            pixel = Axis("ow", place.ow_0, symbol("pixels"), "i")
            channel = Axis("k", place.k_0, columns, "j")
            finish_tile(body, self.spec, sums, width, pixel, channel, place.n, oh)
