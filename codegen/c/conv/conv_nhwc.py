"""Printing the loops of a convolution that reads or writes channels-last images, by these plans of
`conv_plan` (a 1x1 convolution of a channels-last image is a matrix product whose rows are pixels,
which `gemm.py` prints):

- "implicit product": a tile is up to TILE_ROWS pixels of one output row times 32 output channels,
  as the plan "channels" has it (`conv_channels`), but it need not be turned round: the epilogue
  runs along its rows. Nothing is unrolled into columns: the tile reads the image through a table of
  taps. The image is channels-first in the first layer of a network, which so becomes channels-last
  for nothing, else channels-last. With padding, or for bf16, a copy is made first, with zeros
  around it and rounded.
- "depthwise last": each channel by itself; see `tiles/channels_last.h`. The image is read in place.
"""

from __future__ import annotations

from fxlite.codegen.c.conv.conv_channels import Channels
from fxlite.codegen.c.conv.conv_direct import Direct, conv_function, put_tile
from fxlite.codegen.c.product.gemm import Rendered
from fxlite.codegen.c.product.packed_operands import panel_columns
from fxlite.codegen.c.text.template_text import add, atom, multiply
from fxlite.codegen.c.tiles.library import constant

MOST_PLACES = constant("channels_last", "MOST_PLACES")
TILE_PITCH = constant("channels_last", "PITCH")

CHANNEL_BLOCK = TILE_PITCH - 16
"""Channels of a depthwise tile; the last tile of a pixel takes up to 15 more, so that none has
fewer than a vector."""

FEWEST_CHANNELS = {"float": 16, "double": 8}
"""Lanes of the widest vector: a depthwise convolution of fewer channels takes them one by one."""

# ---- the implicit product -------------------------------------------------------------------


class ImplicitProduct(Channels):
    """Tiles of pixels of one output row times a panel of output channels."""

    def render(self) -> Rendered:
        spec, out = self.spec, self.out
        item = int(self.item_bytes)
        self.joined = False
        rows, columns, workspace = spec.h, spec.w, "0"
        planes = spec.groups * self.inputs
        pixel = planes if spec.x_last else 1
        # The pixels of a tile so far apart would share one set of the cache.
        shares_set = spec.x_last and pixel * self.stride[1] * item % 4096 == 0
        self.padded = any(spec.padding) or (self.pairs and (shares_set or not spec.x_is_bf16))
        if self.padded:
            rows = add(multiply(self.out_h, str(self.stride[0])), str(spec.reach[0] - 1))
            columns = add(multiply(self.out_w, str(self.stride[1])), str(spec.reach[1] - 1))
            if shares_set:
                pixel += 16
        self.pixel = str(pixel)
        self.out_h = self.declare("out_h", self.out_h)
        self.out_w = self.declare("out_w", self.out_w)
        self.rows = self.declare("padded_h", rows)
        self.columns = self.declare("padded_w", columns)
        self.pitch = multiply(self.columns, self.pixel)
        channels = "1" if spec.x_last else str(planes)
        if self.padded:
            workspace = multiply(spec.n, channels, rows, columns, self.pixel, str(item))
        self.declare_pixel_taps()
        self.declare_blocks()
        extra = (("workspace",) if self.padded else ()) + (("n_threads",) if self.threads else ())
        if self.padded:
            out.put(f"{self.item_type} *const padded = workspace;")
            self.pad()
        self.convolve()
        layouts = " -> ".join(("NHWC" if last else "NCHW") for last in (spec.x_last, spec.y_last))
        note = (
            f"{spec.r}x{spec.s}, {spec.c} -> {spec.k} channels, {layouts}; tiles of TILE_ROWS"
            f" pixels of a row x {panel_columns(self.ctype)} output channels."
        )
        if self.pairs:
            note += "\nOperands are rounded to bf16, in pairs of input channels; sums are float."
        return conv_function(spec, note, out.lines, workspace, extra)

    def declare_pixel_taps(self) -> None:
        """Distances of the taps from the first pixel."""
        spec = self.spec
        taps = [
            add(
                multiply(str(r * spec.dilation[0]), self.pitch),
                multiply(str(s * spec.dilation[1]), self.pixel),
            )
            for r in range(spec.r)
            for s in range(spec.s)
        ]
        if self.taps > 1:
            self.out.put("/* Where each weight's pixel is, from that of the kernel's first. */")
        self.out.put(f"const int64_t tap[{self.taps}] = {{{', '.join(taps)}}};")

    def pad(self) -> None:
        """All images, with their zeros, into the workspace."""
        spec, out = self.spec, self.out
        if not spec.x_last:
            self.pad_images(self.rows, self.pitch)
            return
        done = "rounded to bf16, with" if self.pairs and not spec.x_is_bf16 else "with"
        out.put(f"/* The images {done} zeros around them. */")
        top, left = spec.padding[:2]
        with out.loops([("n", spec.n), ("i", self.rows)], self.parallel(2)):
            row = f"i >= {top} && i < {add(spec.h, str(top))}"
            source = multiply(f"({add(multiply('n', spec.h), 'i')} - {top})", spec.w, str(spec.c))
            target = multiply(f"({add(multiply('n', self.rows), 'i')})", self.pitch)
            pad_row = f"pad_row_{'pairs' if self.pairs else self.ctype}"
            if spec.x_is_bf16:
                pad_row = "pad_row_bf16"
            out.put(
                f"{pad_row}({row} ? {spec.w} : 0, {spec.c}, {spec.x} + {source}, {left},"
                f" {self.columns}, {self.pixel}, {add('padded', target)});"
            )
        out.put("/* The convolution. */")

    def convolve(self) -> None:
        """Images, groups, blocks of rows, panels of output channels; then row by row."""
        spec, out, width = self.spec, self.out, panel_columns(self.ctype)
        panels = -(-spec.group_outputs // width)
        loops = [("n", spec.n), *([("group", str(spec.groups))] if self.grouped else [])]
        loops += [("row_block", "row_blocks"), ("panel", str(panels))]
        with out.loops(loops, self.parallel(len(loops))):
            self.declare_panel(width, panels)
            out.put(f"const {self.item_type} *const image = {self.image()};")
            out.put(f"{self.ctype} tile[TILE_ROWS * {width}];")
            out.put(f"for (int64_t oh = row_block * {self.out_h} / row_blocks;")
            with out.block(f"     oh < (row_block + 1) * {self.out_h} / row_blocks; oh++)"):
                self.tiles(width, panels)

    def image(self) -> str:
        """The first channel of the group in image n."""
        spec, start = self.spec, "padded" if self.padded else self.spec.x
        if spec.x_is_bf16 and not self.padded:
            start = f"(const uint32_t *){start}"
        if not spec.x_last:
            return add(start, multiply(self.first_channel(), self.rows, self.pitch))
        group = multiply("group", str(self.inputs)) if self.grouped else "0"
        return add(start, multiply("n", self.rows, self.pitch), group)

    def tiles(self, width: int, panels: int) -> None:
        """The pixels of row oh, in tiles whose widths differ by one at most."""
        spec, out = self.spec, self.out
        out.put(f"const int64_t tiles = ({self.out_w} + TILE_ROWS - 1) / TILE_ROWS;")
        with out.block("for (int64_t tile_index = 0; tile_index < tiles; tile_index++)"):
            w = atom(self.out_w)
            out.put(f"const int64_t ow_0 = tile_index * {w} / tiles;")
            out.put(f"const int pixels = (tile_index + 1) * {w} / tiles - ow_0;")
            step = multiply(str(self.stride[1]), self.pixel)
            row = multiply("oh", str(self.stride[0]), self.pitch)
            channel_step = "1" if spec.x_last else multiply(self.rows, self.pitch)
            out.put(
                f"sum_tile_{self.tile_name}(pixels, columns, {self.inputs}, {self.taps}, "
                f"{add('image', row, multiply('ow_0', step))}, {channel_step}, tap, {step}, "
                f"weights, tile);"
            )
            group = multiply("group", str(spec.group_outputs)) if self.grouped else "0"
            first = add(group, multiply("panel", str(width)) if panels > 1 else "0")
            put_tile(out, spec, f"tile[i * {width} + j]", "pixels", "columns", first)


# ---- depthwise ------------------------------------------------------------------------------


class DepthwiseLast(Direct):
    """Tiles of some pixels of an output row times a block of channels."""

    def render(self) -> Rendered:
        spec, out = self.spec, self.out
        self.out_h = self.declare("out_h", self.out_h)
        self.out_w = self.declare("out_w", self.out_w)
        places = tile_places(self.out_w)
        whole, rest = divmod(spec.k, CHANNEL_BLOCK)
        few = spec.k < FEWEST_CHANNELS[self.ctype]
        blocks = whole if whole and rest < 16 else whole + 1
        tiles = f"({self.out_w} + {places - 1}) / {places}"
        if self.out_w.isdecimal():
            tiles = str(-(-int(self.out_w) // places))
        loops = [("n", spec.n), ("oh", self.out_h), ("tile_index", tiles), ("block", str(blocks))]
        loops = [loop for loop in loops if loop[1] != "1" or loop[0] in ("n", "oh")]
        with out.loops(loops, self.parallel(len(loops))):
            tile = multiply("tile_index", str(places)) if tiles != "1" else "0"
            first = multiply("block", str(CHANNEL_BLOCK)) if blocks > 1 else "0"
            out.put(f"const int64_t ow_0 = {tile};")
            out.put(f"const int64_t channel_0 = {first};")
            count = str(spec.k)
            if blocks > 1:
                last = f"block == {blocks - 1} ? {spec.k} - channel_0"
                count = f"{last} : {CHANNEL_BLOCK}" if rest else str(CHANNEL_BLOCK)
                out.put(f"const int64_t channels = {count};")
                count = "channels"
            pixels = str(places)
            if not (self.out_w.isdecimal() and int(self.out_w) % places == 0):
                left = f"{self.out_w} - ow_0"
                out.put(f"const int64_t pixels = {left} < {places} ? {left} : {places};")
                pixels = "pixels"
            out.put(f"{self.ctype} sums[{places * TILE_PITCH}];")
            above, before = (f" - {p}" if p else "" for p in spec.padding[:2])
            down, across = spec.stride
            image = add(spec.x, multiply("n", spec.h, spec.w, str(spec.c)), "channel_0")
            item = "bf16" if spec.x_is_bf16 else self.ctype
            out.put(
                f"sum_depthwise_{'few' if few else 'last'}_{item}({places}, {spec.r}, "
                f"{spec.s}, {across}, {image}, {spec.h}, {spec.w}, {spec.c}, "
                f"{multiply('oh', str(down))}{above}, {multiply('ow_0', str(across))}{before}, "
                f"{spec.weight} + channel_0, {count}, sums);"
            )
            put_tile(out, spec, f"sums[i * {TILE_PITCH} + j]", pixels, count, "channel_0")
        note = (
            f"{spec.r}x{spec.s}, each of {spec.c} channels by itself, NHWC; tiles of {places}"
            f" pixels of a row x {min(spec.k, CHANNEL_BLOCK)} channels."
        )
        extra = ("n_threads",) if self.threads else ()
        return conv_function(spec, note, out.lines, "0", extra)


def tile_places(out_w: str) -> int:
    """Output pixels of a tile: those that waste the fewest at the end of a row, the more the
    better."""
    if not out_w.isdecimal():
        return MOST_PLACES // 2
    width = int(out_w)
    return min(
        range(min(width, MOST_PLACES), 0, -1),
        key=lambda places: -(-width // places) * (places + 1),
    )
