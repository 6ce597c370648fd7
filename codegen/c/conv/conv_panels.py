"""Print the loops of convolutions whose weights are packed in panels of output channels: blocks of
output rows times panels are the tasks of the threads, and a tile is some pixels of an output row times
a panel.

This module has the plans of `conv_plan` whose tiles broadcast pixels, so that strides and dilations
cost nothing and no image width wastes lanes. They read the image through a table of taps, or in runs if
it is a channels-last image of floats. Integers and the tiles of AMX, which read words, are in
`conv_runs`. "channels" is for images whose channels are first, in and out: a tile is transposed before
the epilogue, which runs along output rows. "implicit product" is for those whose channels are last, in
or out: the epilogue runs along the tile's rows, or its stores are scattered. With padding, or for bf16,
the image is first copied into the workspace, with zeros around it and rounded; nothing is unrolled into
columns.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext

from fxlite.codegen.c.conv.conv_plan import (
    SEGMENT,
    USUAL_SIZE,
    ConvSpec,
    input_planes,
    is_pointwise,
    known,
    number,
    plan_of,
    reads_pairs,
)
from fxlite.codegen.c.conv.conv_walk import COPIED, Axis, Walk, conv_function, fetch, finish, finish_joined, finish_tile
from fxlite.codegen.c.product.gemm_spec import ITEM_BYTES, PACKED_BLOCK, PAIR_BYTES, panel_columns
from fxlite.codegen.c.product.gemm_walk import MOST_TILES
from fxlite.codegen.kernel.builder import Pointer, Rendered, Size, bare, divide_up, smaller, symbol
from fxlite.scalar.index import Index, extremum

TURNED = SEGMENT + 16
"""Row length of the transposed tile: a whole square may be written from the last pixel on."""
FEW_PIXELS = 4
"""The most pixels of a row for which storing their sums one by one takes less time than transposing a square."""

MOST_KEPT = 0.9
"""The part of a dilated kernel's products up to which it is faster to leave out those with zeros."""


class Panels(Walk):
    """Tiles of pixels times a panel of output channels. Subclasses say how the image is copied, and how a
    tile is summed and finished."""

    word: str
    """Type of a packed weight."""
    panel_rows: Size
    """Rows of a packed panel."""
    panels: Size
    """Panels of a group."""

    # -- what differs
    def note(self) -> str:
        """How it is computed, for the function's comment."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Name sizes, and decide how the image is read."""
        raise NotImplementedError

    @property
    def copy_size(self) -> Index:
        """Bytes of the copy of an image."""
        raise NotImplementedError

    def copy(self) -> None:
        """Copy all images into the workspace."""
        raise NotImplementedError

    def declare_image(self, n: Index, group: Index) -> None:
        """Declare where image n of the copied ones begins for the group, and what else a task needs."""
        raise NotImplementedError

    def row(self, row: Index, n: Index, k_0: Index) -> None:
        """Print the tiles of an output row (or of a group of them)."""
        raise NotImplementedError

    def leave(self) -> None:
        """Print the end of a task."""

    # -- what does not
    rows: Index
    """Output rows, or groups of them."""
    row_name = "oh"
    row_bytes: Index
    """Bytes of the image for one row or group of rows."""
    padded: bool
    """Whether images are copied before they are read."""
    most_pixels = symbol("TILE_ROWS")
    """The most pixels of a tile."""
    slack: Size = 0
    """Bytes after the copies that may be read."""

    @property
    def width(self) -> int:
        """Output channels of a panel."""
        return panel_columns(self.ctype)

    def render(self) -> Rendered:
        """Print the function. Its output must not be empty."""
        self.prepare()
        self.panels = self.name("panels", divide_up(self.spec.group_outputs, self.width))
        if self.spec.computed:
            self.pack()
        copies = self.meaning(self.most_images(self.copy_size) * self.copy_size + self.slack) if self.padded else 0
        workspace = copies + self.weight_bytes
        with self.image_blocks(self.copy_size) if self.padded else nullcontext():
            self.walk()
        return conv_function(self.spec, self.note(), self.body, workspace)

    def pack(self) -> None:
        """Pack a weight that the program computes into panels."""
        spec, body = self.spec, self.body
        size = self.panel_rows * self.width
        loops = ("group", spec.groups), ("panel", self.panels)
        with self.pack_weight(spec.groups * self.panels * size, *loops) as (group, panel):
            rest = spec.group_outputs - panel * self.width
            columns = body.let("columns", smaller(rest, self.width), "int")
            source = Pointer(spec.weight) + (group * spec.group_outputs + panel * self.width) * spec.depth
            target = self.weight + (group * self.panels + panel) * size
            body.call(f"pack_panel_{self.ctype}", self.panel_rows, columns, source, 1, spec.depth, target)

    def walk(self) -> None:
        """Loop over images, groups, blocks of rows and panels of output channels, then over rows. A panel of a
        large weight stays in the cache while all images pass by."""
        spec, body, width = self.spec, self.body, self.width
        others = self.images * spec.groups * self.panels
        blocks = self.row_blocks(self.rows, self.row_bytes, others)
        self.copy()
        extents: dict[str, Size] = {"n": self.images, "group": spec.groups, "row_block": blocks, "panel": self.panels}
        order = [*extents]
        if self.is_large and self.images != 1:
            order = ["group", "panel", "n", "row_block"]
        elif spec.x_last and spec.groups != 1:  # the pixels of all groups are next to each other
            order = ["n", "row_block", "group", "panel"]
        with self.parallel(*((name, extents[name]) for name in order)) as found:
            n, group, block, panel = (found[order.index(name)] for name in extents)
            rest = spec.group_outputs - panel * width
            self.columns = body.let("columns", smaller(rest, width), "int")
            first = (group * self.panels + panel) * (self.panel_rows * width)
            body.pointer(f"const {self.word}", "weights", self.weight + first)
            self.declare_image(n, group)
            n = body.let("image_n", self.first_image + n)
            self.task(block, blocks, n, group * spec.group_outputs + panel * width)
            self.leave()

    @property
    def is_large(self) -> bool:
        """Whether the weight does not fit in a second-level cache together with images."""
        item = ITEM_BYTES.get(self.ctype, PAIR_BYTES)  # words of integers are as large as pairs
        size = Index.of(self.panel_rows * self.panels * self.spec.groups) * (self.width * item)
        return size.constant is not None and size.constant > COPIED

    def task(self, block: Index, blocks: Index, n: Index, k_0: Index) -> None:
        """Print the rows of a block times a panel."""
        with self.rows_of(self.row_name, block, blocks, self.rows) as row:
            self.row(row, n, k_0)


class Taps(Panels):
    """Tiles that read the image through a table of taps. The taps are floats, or for bf16 pairs of adjacent
    channels."""

    def __init__(self, spec: ConvSpec) -> None:
        super().__init__(spec)
        self.pairs = reads_pairs(spec)
        self.word = "uint32_t" if self.pairs else spec.ctype
        self.item = PAIR_BYTES if self.pairs else ITEM_BYTES[spec.ctype]
        self.kind = "bf16" if self.pairs else spec.ctype
        self.inputs = input_planes(spec)
        self.planes = spec.groups * self.inputs
        self.panel_rows = self.inputs * self.taps
        self.turned = plan_of(spec) == "channels"
        # For a strided kernel with a single weight only the pixels that it reads are copied, adjacent to each other.
        strided = max(spec.stride) > 1 and not any(spec.padding)
        self.picks = self.pairs and self.taps == 1 and strided and not spec.x_last
        self.stride = (1, 1) if self.picks else spec.stride

    @property
    def skips(self) -> bool:
        """Whether what lies in the padding is left out."""
        return False

    def note(self) -> str:
        spec = self.spec
        layouts = (
            "" if self.turned else ", " + " -> ".join("NHWC" if last else "NCHW" for last in (spec.x_last, spec.y_last))
        )
        note = (
            f"{spec.r}x{spec.s}, {bare(spec.c)} -> {bare(spec.k)} channels{layouts}; tiles of TILE_ROWS pixels"
            f" of a row x {self.width} output channels."
        )
        if why := _why_direct(spec) if self.turned else "":
            note += f"\n{why}"
        if self.pairs:
            note += "\nOperands are rounded to bf16, in pairs of input channels; sums are float."
        return note

    def prepare(self) -> None:
        spec, (down, across) = self.spec, self.stride
        self.h, self.w = spec.h, spec.w
        if self.turned and is_pointwise(spec):  # rows are joined
            self.h, self.w = Index.of(1), spec.h * spec.w
            self.out_h, self.out_w = Index.of(1), self.out_h * self.out_w
        self.pixel = self.planes if spec.x_last else 1
        # The pixels of a tile would all map to one set of the cache.
        shares_set = spec.x_last and self.pixel * across * self.item % 4096 == 0
        rounds = self.pairs and (shares_set or not spec.x_is_bf16)
        self.padded = shares_set if self.skips else any(spec.padding) or rounds
        self.image_h, self.image_w = self.h, self.w
        self.pixel += 16 * (shares_set and self.padded)
        self.name_result()
        self.name_image(self.padded, self.stride, "padded_w" if spec.x_last else "pitch", not self.skips)
        self.pitch = self.image_w * self.pixel
        self.plane = Index.of(1) if spec.x_last else self.image_h * self.pitch
        self.declare_taps(self.pitch, lambda column: column * self.pixel)
        self.rows = self.out_h
        self.row_bytes = self.pitch * (down * self.item * (1 if spec.x_last else self.inputs))

    @property
    def copy_size(self) -> Index:
        planes = 1 if self.spec.x_last else self.planes
        return planes * self.image_h * self.pitch * self.item

    def copy(self) -> None:
        if not self.padded:
            return
        self.body.assign(f"{self.word} *const padded", str(self.free))
        if self.spec.x_last:
            done = "rounded to bf16, with" if self.pairs and not self.spec.x_is_bf16 else "with"
            done += " space between their pixels" if self.skips else " zeros around them"
            self.copy_rows(f"The images {done}.", self.pitch, self.pad_row)
        elif self.pairs:
            self.pad_pairs()
        else:
            self.pad_planes(self.h, self.w, self.image_h, self.pitch)

    def pad_pairs(self) -> None:
        """Copy all images, with their zeros, into planes of pairs of channels."""
        spec, body, inputs, size = self.spec, self.body, self.spec.group_inputs, self.h * self.w
        comment = "The images rounded to bf16, in pairs of channels; zeros around them."
        with self.copying(comment, ("plane", self.images * self.planes)) as (plane,):
            channel, second = plane * 2, str(Pointer("image") + size)
            if inputs % 2:
                c = body.let("c", plane % self.inputs * 2)
                channel = plane // self.inputs * inputs + c
                second = f"{bare(c + 1)} < {inputs} ? {second} : 0"
            start = Pointer(spec.x) + (self.first_image * spec.c + channel) * size
            image = body.pointer(f"const {self.ctype}", "image", start)
            target = Pointer("padded") + plane * self.plane
            if self.picks:
                steps = self.w * spec.stride[0], spec.stride[1]
                body.call("pick_pairs", self.image_h, self.pitch, image, second, *steps, target)
            else:
                whole = self.h, self.w, image, second
                body.call("pad_plane_pairs", *whole, *spec.padding[:2], self.image_h, self.pitch, target)

    def pad_row(self, pixels: str, row: Pointer, target: Pointer) -> None:
        """Copy so many pixels of a row, with its zeros."""
        spec = self.spec
        kind = "bf16" if spec.x_is_bf16 else "pairs" if self.pairs else self.ctype
        self.body.call(f"pad_row_{kind}", pixels, spec.c, row, self.left, self.image_w, self.pixel, target)

    def declare_image(self, n: Index, group: Index) -> None:
        spec = self.spec
        start = "padded" if self.padded else spec.x
        if spec.x_is_bf16 and not self.padded:
            start = f"(const uint32_t *){start}"
        if spec.x_last:
            first = n * self.image_h * self.pitch + group * self.inputs
        else:
            first = (n * self.planes + group * self.inputs) * self.plane
        self.image = self.body.pointer(f"const {self.word}", "image", Pointer(start) + first)
        self.declare_tile()

    @property
    def transposes(self) -> bool:
        """Whether tiles become rows of pixels before they are stored. Pixels of a row that has few are stored one by
        one."""
        return self.turned and (is_pointwise(self.spec) or not self.out_w <= FEW_PIXELS)

    def declare_tile(self) -> None:
        """Declare the arrays in which a tile is summed."""
        if self.transposes:
            arrays = f"tile[16 * {self.width}] = {{0}}, turned[{self.width} * {TURNED}]"
        else:
            arrays = f"tile[TILE_ROWS*{self.width}]"
        self.body.put(f"{self.ctype} {arrays};")

    def row(self, row: Index, n: Index, k_0: Index) -> None:
        first = self.image + row * self.stride[0] * self.pitch
        if self.transposes:
            self.turned_tiles(first, row, n, k_0)
        else:
            self.tiles(first, row, n, k_0)

    def sum_up(self, count: Size, pixel: Pointer, step: Index) -> None:
        """Print the sums of a tile of ``count`` pixels from this one on, which are ``step`` apart."""
        image = pixel, self.plane, "tap", step
        self.body.call(f"sum_tile_{self.kind}", count, self.columns, self.inputs, self.taps, *image, "weights", "tile")

    def turned_tiles(self, first: Pointer, row: Index, n: Index, k_0: Index) -> None:
        """Process 64 pixels of a row at a time: tiles, transposed into rows of channels, then the epilogue."""
        spec, body, width = self.spec, self.body, self.width
        columns = width // 2 if spec.group_outputs <= width // 2 else width
        with self.segments("pixel_0" if is_pointwise(spec) else "ow_0") as (start, pixels):
            size, corner = (self.out_h, self.out_w), (n, k_0, row, start)
            fetch(body, spec, size, corner, self.columns, pixels)
            tiles = body.let("tiles", divide_up(pixels, symbol("TILE_ROWS")))
            with body.loop("tile_index", tiles) as tile:
                offset = body.let("first", tile * pixels // tiles)
                count = body.let("count", (tile + 1) * pixels // tiles - offset, "int")
                step = Index.of(self.stride[1])
                self.sum_up(count, first + (start + offset) * step, step)
                body.call(
                    f"copy_transposed_{self.ctype}", 16, columns, "tile", width, Pointer("turned") + offset, TURNED
                )
            channel = Axis("k", k_0, self.columns, "j")
            pixel = Axis("ow", start, pixels, "i")
            if is_pointwise(spec):
                finish_joined(body, spec, turned, channel, pixel, n)
            else:
                finish(body, spec, turned, (channel, pixel), n=n, oh=row)

    def tiles(self, first: Pointer, row: Index, n: Index, k_0: Index) -> None:
        """Print the pixels of a row, in tiles whose widths differ by at most one."""
        tiles = self.body.let("tiles", divide_up(self.out_w, self.most_pixels))
        with self.body.loop("tile_index", tiles) as tile:
            self.tile(first, row, *self.pixels_of(tile, tiles), n, k_0)

    def tile(self, first: Pointer, row: Index, ow_0: Index, pixels: Index, n: Index, k_0: Index) -> None:
        """Print the tile of so many pixels of a row."""
        step = self.stride[1] * Index.of(self.pixel)
        self.sum_up(pixels, first + ow_0 * step, step)
        pixel, channel = Axis("ow", ow_0, pixels, "i"), Axis("k", k_0, self.columns, "j")
        finish_tile(self.body, self.spec, Pointer("tile"), self.width, pixel, channel, n, row)

    def pixels_of(self, tile: Index, tiles: Index) -> tuple[Index, Index]:
        """The first pixel of a tile of a row, and how many it has."""
        ow_0 = self.body.let("ow_0", tile * self.out_w // tiles)
        return ow_0, self.body.let("pixels", (tile + 1) * self.out_w // tiles - ow_0, "int")


class RunTaps(Taps):
    """Tiles of floats that read a channels-last image in *runs* of adjacent numbers: a row of the kernel if its
    columns are not dilated and all channels are read, or else the channels of a pixel. A long K is divided into
    blocks of weights that stay in the first-level cache while several tiles are multiplied by them."""

    def declare_taps(self, row: Size, column: Callable[[int], Size]) -> None:
        """Declare the table of runs, and how they are divided or joined into blocks."""
        spec = self.spec
        inputs = number(spec.group_inputs)
        joined = spec.groups == 1 and self.pixel == inputs and (spec.dilation[1] == 1 or spec.s == 1)
        joined = joined and not self.skips
        self.runs, self.length = (spec.r, spec.s * inputs) if joined else (self.taps, inputs)
        if self.length > PACKED_BLOCK or self.skips:  # a block is a part of a run
            self.parts = -(-self.length // PACKED_BLOCK)
            self.blocks = self.runs * self.parts
        else:  # or several whole runs
            self.parts = 1
            self.blocks = -(-self.runs // (PACKED_BLOCK // self.length))
        if self.skips:  # each is read by itself
            self.distances("run", "", [Index.of(0)])
            return
        comment = "Where the runs of a kernel begin, counted from its first pixel."
        self.distances("run", comment, self.kernel_places(row, column, 1 if joined else spec.s))

    @functools.cached_property
    def skips(self) -> bool:
        """Whether each tap is multiplied by those pixels alone that it reads from the image and not from the padding,
        which is not stored then. If the taps of a kernel are far apart, that saves much of the work."""
        spec = self.spec
        if spec.stride[1] != 1 or not any(spec.padding) or spec.depth <= PACKED_BLOCK:
            return False
        kept = 1.0
        for a, (taps, size) in enumerate(zip((spec.r, spec.s), (spec.h, spec.w))):
            outputs, extent = known(spec.output_size()[a], USUAL_SIZE), known(size, USUAL_SIZE)
            step, gap, before = spec.stride[a], spec.dilation[a], spec.padding[a]
            read = sum(0 <= o * step + t * gap - before < extent for t in range(taps) for o in range(outputs))
            kept *= read / (taps * outputs)
        return max(spec.dilation) > 1 and kept < MOST_KEPT

    def note(self) -> str:
        note = f"{super().note()}\nPixels are read in runs of {self.length}"
        note = f"{note}, in {self.blocks} blocks." if self.blocks > 1 else f"{note}."
        return f"{note}\nWhat lies in the padding is left out." if self.skips else note

    def declare_tile(self) -> None:
        if self.is_narrow:
            self.body.put(f"{self.ctype} tile[NARROW_ROWS*{self.width}];")
        elif self.blocks == 1:
            super().declare_tile()

    def sum_up(self, count: Size, pixel: Pointer, step: Index) -> None:
        what = count, self.columns, self.runs, "run", self.length, pixel, step, "weights"
        if self.is_narrow:
            self.body.call(f"sum_narrow_runs_{self.ctype}", *what, "tile")
        else:
            self.body.call(f"sum_runs_{self.ctype}", *what, "nothing_ahead()", 0, "tile")

    def prepare(self) -> None:
        super().prepare()
        #: Whether tasks are of tiles, of which a single long row has many, and not of rows.
        self.by_tiles = self.blocks > 1 or self.out_h == 1
        #: Whether the channels of a group fill at most half of a panel.
        self.is_narrow = self.blocks == 1 and self.spec.group_outputs <= self.width // 2
        if self.is_narrow:
            rows = symbol(f"narrow_rows_{self.ctype}({bare(self.spec.group_outputs)})")
            self.most_pixels = self.name("most_pixels", rows)
        if self.by_tiles:
            self.tiles_across = self.name("tiles", divide_up(self.out_w, self.most_pixels))
            self.rows, self.row_bytes = self.out_h * self.tiles_across, self.row_bytes // self.tiles_across

    def task(self, block: Index, blocks: Index, n: Index, k_0: Index) -> None:
        if not self.by_tiles:
            super().task(block, blocks, n, k_0)
            return
        body, tiles, size = self.body, self.tiles_across, f"[{MOST_TILES}][TILE_ROWS*{self.width}]"
        start, end = block * self.rows // blocks, (block + 1) * self.rows // blocks
        if self.blocks == 1:
            with body.loop("tile_index", end, start) as tile:
                self.tile(self.image, *self.place(tile, tiles), n, k_0)
            return
        with body.loop("tile_0", end, start, step=MOST_TILES) as tile_0:
            at_once = body.let("at_once", smaller(end - tile_0, MOST_TILES))
            body.put(f"{self.ctype} sums{size}{' = {0}' if self.skips else ''};")
            with body.loop("part", self.blocks) as part:
                self.multiply_block(part, tile_0, at_once, tiles)
            with body.loop("t", at_once) as t:
                row, ow_0, pixels = self.place(tile_0 + t, tiles)
                pixel, channel = Axis("ow", ow_0, pixels, "i"), Axis("k", k_0, self.columns, "j")
                finish_tile(body, self.spec, Pointer(f"sums[{bare(t)}]"), self.width, pixel, channel, n, row)

    def multiply_block(self, part: Index, tile_0: Index, at_once: Index, tiles: Index) -> None:
        """Print the products of a block of K for so many tiles."""
        body = self.body
        if self.parts > 1 or self.skips:
            run, runs, turn = part // self.parts, Index.of(1), part % self.parts
            k_0 = body.let("k_0", turn * self.length // self.parts)
            depth = Index.of(self.length // self.parts)
            if self.length % self.parts:
                depth = body.let("depth", (turn + 1) * self.length // self.parts - k_0)
        else:
            run, k_0 = body.let("first_run", part * self.runs // self.blocks), Index.of(0)
            depth, runs = Index.of(self.length), body.let("runs", (part + 1) * self.runs // self.blocks - run, "int")
        first = body.pointer(f"const {self.word}", "block", Pointer("weights") + (run * self.length + k_0) * self.width)
        with body.loop("t", at_once) as t:
            steps = runs * depth
            block = f"{first + steps * self.width}, {bare(steps)}, {self.width * self.item}, {bare(t)}, {bare(at_once)}"
            body.assign("const struct ahead ahead", f"part_ahead({block})")
            row, ow_0, pixels = self.place(tile_0 + t, tiles)
            step, sums = Index.of(self.stride[1] * self.pixel), Pointer(f"sums[{bare(t)}]")
            if self.skips:
                table, more = Pointer("run"), "1"
                begin, pixels, place = self.inside_image(row, ow_0, pixels, run)
                pixel, sums = self.image + (place + k_0), sums + begin * self.width
            else:
                table, more = Pointer("run") + run, f"{bare(part)} > 0"
                pixel = self.image + (row * self.stride[0] * self.pitch + ow_0 * step + k_0)
            operands = pixels, self.columns, runs, table, depth, pixel, step, first
            body.call(f"sum_runs_{self.ctype}", *operands, "ahead", more, sums)

    def inside_image(self, row: Index, ow_0: Index, pixels: Index, tap: Index) -> tuple[Index, Index, Index]:
        """The pixels of a tile under which a tap reads the image: the first, their number, and the place it reads. A
        tile without any is left out."""
        spec, body, (top, left, _, _) = self.spec, self.body, self.spec.padding
        image_row = body.let("image_row", row * spec.stride[0] + tap // spec.s * spec.dilation[0] - top)
        column = ow_0 + tap % spec.s * spec.dilation[1] - left  # no name stands for it: those are never negative
        begin = body.let("begin", extremum("max", -column, 0))
        count = body.let("count", smaller(pixels, spec.w - column) - begin, "int")
        name = bare(image_row)
        body.put(f"if ({name} < 0 || {name} >= {bare(spec.h)} || {bare(count)} <= 0) continue;")
        return begin, count, image_row * self.pitch + (column + begin) * self.pixel

    def place(self, tile: Index, tiles: Index) -> tuple[Index, Index, Index]:
        """The output row of a tile, its first pixel, and its number of pixels."""
        return self.body.let("row", tile // tiles), *self.pixels_of(tile % tiles, tiles)


def turned(j: Index, i: Index) -> str:
    """The sum of channel j and pixel i of a transposed tile."""
    return Pointer("turned")[j * TURNED + i]


def _why_direct(spec: ConvSpec) -> str:
    """The reason against the other plans."""
    if spec.measured:
        return ""
    if is_pointwise(spec):
        return "Not as a product: its last panel of pixels would be mostly empty."
    if (spec.r, spec.s) != (3, 3) or spec.ctype != "float":
        return ""
    if (*spec.stride, *spec.dilation, spec.groups) != (1, 1, 1, 1, 1):
        return "Not Winograd's convolution: that is for stride 1, dilation 1 and one group."
    return "Not Winograd's convolution: its transforms and larger weights would cost too much."
