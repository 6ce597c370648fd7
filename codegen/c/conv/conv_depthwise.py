"""Print the loops of depthwise convolutions of floats, in which each channel is convolved separately.

- "depthwise": each image of one channel is a task. Tiles of several rows (see `tiles/depthwise.h`)
  pass through an array of the thread to the epilogue. The image is read in place; vectors reach past
  the ends of its rows, so the first and last images of the input are read from a copy with room
  around it.
- "depthwise last": for images whose channels are last. Tiles are some pixels of an output row times
  a block of channels; see `tiles/channels_last.h`. The image is read in place.
"""

from __future__ import annotations

from contextlib import ExitStack

from fxlite.codegen.c.conv.conv_plan import PIXEL_ROWS, SEGMENT, ConvSpec, are_single_rows, number, outputs_per_tile
from fxlite.codegen.c.conv.conv_walk import Axis, Walk, conv_function, finish, finish_tile
from fxlite.codegen.c.product.gemm_spec import ITEM_BYTES
from fxlite.codegen.c.tiles.library import constant
from fxlite.codegen.kernel.builder import Pointer, Rendered, bare, divide_up, round_up, smaller
from fxlite.scalar.index import Index

MOST_TILE_ROWS = constant("depthwise", "MOST_PLACES")
MOST_PLACES = constant("channels_last", "MOST_PLACES")
TILE_PITCH = constant("channels_last", "PITCH")

CHANNEL_BLOCK = TILE_PITCH - 16
"""Channels of a depthwise tile. The last tile of a pixel takes up to 15 more, so that none has
fewer than a vector."""

FEWEST_CHANNELS = {"float": 16, "double": 8}
"""Lanes of the widest vector; a depthwise convolution with fewer channels processes them one by one."""


class Depthwise(Walk):
    """Tiles of rows of one channel."""

    def render(self) -> Rendered:
        """Print the function."""
        spec, body, rows = self.spec, self.body, places(self.out_h, MOST_TILE_ROWS, 2)
        lanes = 64 // ITEM_BYTES[self.ctype]
        self.name_result()
        if self.out_h.constant is None or self.out_w.constant is None:
            body.put(f"if ({bare(self.out_h)} <= 0 || {bare(self.out_w)} <= 0)\n    return;")
        # How far before an image the first vector of its first row starts, and how far after it
        # the last vector of the last row ends.
        before = spec.padding[1]
        after = max(lanes * spec.stride[1] + spec.s, spec.padding[3] + spec.stride[1])
        plane = spec.h * spec.w
        sums_size = self.out_w * rows + 2 * lanes
        size = sums_size + plane + (before + after + lanes)
        with self.team_of_threads():
            start = Pointer(f"({self.ctype} *)workspace") + self.own(size)
            sums = body.pointer(self.ctype, "sums", start)
            copy = body.pointer(self.ctype, "copy", sums + sums_size)
            with self.of_team(("n", spec.n), ("k", spec.k)) as (n, k):
                sizes = spec.n * spec.c * plane, (n * spec.c + k) * plane, plane
                texts = f"{', '.join(map(bare, sizes))}, {before}, {after}"
                call = f"readable_image_{self.ctype}({spec.x}, {texts}, {copy})"
                body.pointer(f"const {self.ctype}", "image", call)
                with body.loop("oh_0", self.out_h, step=rows) as oh_0:
                    self.tile(rows, n, k, oh_0)
        note = (
            f"{spec.r}x{spec.s}, each of {spec.c} channels on its own; tiles of {rows}"
            " output rows of a vector of pixels."
        )
        workspace = self.meaning(size * self.all_threads * ITEM_BYTES[self.ctype])
        return conv_function(spec, note, body, workspace)

    def tile(self, rows: int, n: Index, k: Index, oh_0: Index) -> None:
        """Print some output rows of a channel, and the epilogue."""
        spec, body, w = self.spec, self.body, self.out_w
        (down, across), (top, left) = spec.stride, spec.padding[:2]
        image = "image", spec.h, spec.w, oh_0 * down - top, -left
        weights = Pointer(spec.weight) + k * self.taps
        body.call(f"sum_depthwise_rows_{self.ctype}", rows, spec.r, spec.s, down, across, *image, weights, w, "sums")
        sums = Pointer("sums")
        count = body.let("rows", smaller(self.out_h - oh_0, rows))
        if spec.joinable:
            joined = Axis("ow", oh_0 * w, count * w, "i")
            finish(body, spec, lambda i: sums[i], (joined,), n=n, k=k, oh=Index.of(0))
            return
        axes = Axis("oh", oh_0, count, "p"), Axis("ow", 0, w, "i")
        finish(body, spec, lambda p, i: sums[p * w + i], axes, n=n, k=k)


class DepthwiseLast(Walk):
    """Tiles of some pixels of an output row times a block of channels."""

    def render(self) -> Rendered:
        """Print the function."""
        spec, body, step = self.spec, self.body, places(self.out_w, MOST_PLACES, 1)
        self.name_result()
        if spec.computed:
            with self.pack_weight(spec.k * self.taps, ("tap", self.taps), ("k", spec.k)) as (tap, k):
                body.assign(self.weight[tap * spec.k + k], Pointer(spec.weight)[k * self.taps + tap])
        all_channels = number(spec.k)
        whole, rest = divmod(all_channels, CHANNEL_BLOCK)
        blocks = whole if whole and rest < 16 else whole + 1
        tiles = divide_up(self.out_w, step)
        loops = ("n", spec.n), ("oh", self.out_h), ("tile_index", tiles), ("block", blocks)
        with self.parallel(*loops) as (n, oh, tile, block):
            ow_0 = body.let("ow_0", tile * step)
            first = body.let("channel_0", block * CHANNEL_BLOCK)
            channels = Index.of(CHANNEL_BLOCK if rest == 0 else all_channels)
            if blocks > 1 and rest:
                last = f"{bare(block)} == {blocks - 1} ? {bare(spec.k - first)}"
                channels = body.let("channels", f"{last} : {CHANNEL_BLOCK}")
            pixels = body.let("pixels", smaller(self.out_w - ow_0, step))
            body.declare(f"{self.ctype} sums[{step * TILE_PITCH}]")
            (down, across), (top, left) = spec.stride, spec.padding[:2]
            item = "bf16" if spec.x_is_bf16 else self.ctype
            kind = "few" if all_channels < FEWEST_CHANNELS[self.ctype] else "last"
            image = Pointer(spec.x) + n * spec.h * spec.w * spec.c + first
            place = spec.h, spec.w, spec.c, oh * down - top, ow_0 * across - left
            weights = self.weight + first
            name = f"sum_depthwise_{kind}_{item}"
            kernel = spec.r, spec.s, across, *spec.dilation
            body.call(name, step, *kernel, image, *place, weights, channels, "sums")
            pixel, channel = Axis("ow", ow_0, pixels, "i"), Axis("k", first, channels, "j")
            finish_tile(body, spec, Pointer("sums"), TILE_PITCH, pixel, channel, n, oh)
        note = (
            f"{spec.r}x{spec.s}, each of {spec.c} channels on its own, NHWC; tiles of {step}"
            f" pixels of a row x {min(all_channels, CHANNEL_BLOCK)} channels."
        )
        return conv_function(spec, note, body, self.weight_bytes)


def places(size: Index, most: int, more: int) -> int:
    """The number of output rows of a tile, or of pixels of one: such that all tiles together read the
    fewest rows or pixels, of which each reads ``more`` again; the larger of equally good ones."""
    if size.constant is None:
        return most // 2
    known = size.constant
    return min(range(min(known, most), 0, -1), key=lambda count: -(-known // count) * (count + more))


# -- the plan "pixels" -----------------------------------------------------------------------------
class Pixels(Walk):
    """Tiles of up to 4 output channels times 4 vectors of pixels, at 4 places.

    The places are rows of the output. They are consecutive in an image of one row, or of long ones that are not a
    multiple of four, and in a small image whose rows are joined (including the padding between them).
    """

    def __init__(self, spec: ConvSpec) -> None:
        super().__init__(spec)
        self.step = spec.stride[1]
        self.outputs = outputs_per_tile(spec)
        self.blocks = -(-number(spec.group_outputs) // self.outputs)
        self.grouped = spec.groups > 1

    def render(self) -> Rendered:
        """Print the function."""
        spec, body = self.spec, self.body
        self.declare_sizes()
        if spec.computed and number(spec.group_outputs) % self.outputs:
            self.pack()
        self.declare_taps(self.pitch, self.column)
        body.assign(f"{self.ctype} *const padded", str(self.free))
        if self.grouped:  # for each thread a copy of the channels of one group, 128 bytes apart
            size = self.plane * spec.group_inputs + 32
            with self.team_of_threads():
                self.convolve_own(size)
            size = size * self.all_threads
        else:  # all images
            size = self.plane * spec.c
            image_bytes = size * ITEM_BYTES[self.ctype]
            size = size * self.most_images(image_bytes)
            with self.image_blocks(image_bytes):
                if self.step == 1:
                    self.pad_planes(spec.h, spec.w, self.rows, self.pitch)
                else:
                    self.sort_images()
                loops = ("n", self.images), ("block", self.blocks), (self.row_name, self.row_groups)
                with self.parallel(*loops) as (n, block, row):
                    image = Pointer("padded") + n * self.plane * spec.c
                    image = body.pointer(f"const {self.ctype}", "image", image)
                    self.tile(image, body.let("image_n", self.first_image + n), Index.of(0), block, row)
        place = f"4 rows x {SEGMENT}" if self.mode == "rows" else f"{SEGMENT}"
        groups = f" in {spec.groups} groups" if self.grouped else ""
        note = (
            f"{spec.r}x{spec.s}, {spec.c} -> {spec.k} channels{groups}; tiles of {self.outputs}"
            f" output channels x {place} pixels."
        )
        return conv_function(spec, note, body, self.meaning(size * ITEM_BYTES[self.ctype]) + self.weight_bytes)

    def pack(self) -> None:
        """Pack a weight that the program computes, with zeros for missing outputs in a group's last tile."""
        spec, body, outputs = self.spec, self.body, self.spec.group_outputs
        whole = self.blocks * self.outputs
        loops = ("group", spec.groups), ("k", whole)
        with self.pack_weight(spec.groups * whole * spec.depth, *loops) as (group, k):
            row = Pointer(spec.weight) + (group * outputs + k) * spec.depth
            with body.loop("i", spec.depth) as i:
                target = self.weight[(group * whole + k) * spec.depth + i]
                body.assign(target, f"{bare(k)} < {bare(outputs)} ? {row[i]} : 0")

    def declare_sizes(self) -> None:
        """Name the sizes of the output and of an image with its zeros."""
        spec = self.spec
        margin = (spec.reach[1] - 1) // self.step + 1
        self.name_result()
        h, w = self.out_h, self.out_w
        self.mode, self.row_groups = "rows", divide_up(h, PIXEL_ROWS)
        rows = round_up(h, PIXEL_ROWS) * spec.stride[0] + spec.reach[0] - 1
        pitch = round_up(w, 16) + margin
        if are_single_rows(spec):
            self.mode, self.row_groups = "line", h
            rows, pitch = h * spec.stride[0] + spec.reach[0] - 1, round_up(w, SEGMENT) + margin
        elif spec.stride == (1, 1) and h.constant is not None and w.constant is not None:
            joined = w.constant + spec.reach[1] - 1
            if (h.constant - 1) * joined + w.constant <= SEGMENT:
                self.mode, self.row_groups = "plane", Index.of(1)
                pitch = Index.of(joined)
                rows = Index.of(-(-(SEGMENT + spec.reach[1]) // joined) + spec.reach[0])
        self.rows, self.pitch = self.name("padded_h", rows), self.name("pitch", pitch)
        self.plane = self.rows * self.pitch * self.step

    @property
    def row_name(self) -> str:
        """The variable that counts rows of the output, or groups of them."""
        return "oh" if self.mode == "line" else "row_4"

    def column(self, column: int) -> Index:
        """The place of a column of the image: columns are sorted by their remainder modulo the stride."""
        return self.rows * self.pitch * (column % self.step) + column // self.step

    def convolve_own(self, size: Index) -> None:
        """Copy, in each thread, the channels of a group between zeros of its own, and use them."""
        spec, body = self.spec, self.body
        image = body.pointer(self.ctype, "image", Pointer("padded") + self.own(size))
        self.clear(image, self.plane * spec.group_inputs)  # once: all images have their pixels at the same places
        with self.of_team(("n", spec.n), ("group", spec.groups)) as (n, group):
            with body.loop("c", spec.group_inputs) as c, body.loop("i", spec.h) as i:
                channel = n * spec.c + group * spec.group_inputs + c
                self.copy_row(channel, i, image + c * self.plane)
            with ExitStack() as stack:
                block = stack.enter_context(body.loop("block", self.blocks))
                row = stack.enter_context(body.loop(self.row_name, self.row_groups))
                self.tile(image, n, group, block, row)

    def sort_images(self) -> None:
        """Copy all images between zeros, each as by `copy_row`."""
        spec, body = self.spec, self.body
        comment = "The images with zeros around them."
        with self.copying(comment, ("plane", self.images * spec.c)) as (plane,):
            image = body.pointer(self.ctype, "image", Pointer("padded") + plane * self.plane)
            self.clear(image, self.plane)
            with body.loop("i", spec.h) as i:
                self.copy_row(self.first_image * spec.c + plane, i, image)

    def clear(self, image: Pointer, count: Index) -> None:
        """Fill an array with zeros."""
        with self.body.loop("i", count) as i:
            self.body.assign(image[i], "0")

    def copy_row(self, channel: Index, i: Index, image: Pointer) -> None:
        """Copy row i of a channel, with columns sorted by their remainder modulo the stride."""
        spec, body, step = self.spec, self.body, self.step
        source = Pointer(spec.x) + (channel * spec.h + i) * spec.w
        start = body.pointer(f"const {self.ctype}", "from", source)
        to = body.pointer(self.ctype, "to", image + (i + spec.padding[0]) * self.pitch)
        for remainder in range(step):
            # Input columns first, first + step, ... go to padded columns of this remainder.
            first = (remainder - spec.padding[1]) % step
            column = self.rows * self.pitch * remainder + (first + spec.padding[1]) // step
            count = (spec.w + step - 1 - first) // step
            with body.loop("j", count, pragma="#pragma omp simd") as j:
                body.assign(to[column + j], start[j * step + first])

    def tile(self, image: Pointer, n: Index, group: Index, block: Index, row: Index) -> None:
        """Print some output channels of four rows, of one row, or of a small image."""
        spec, body, step = self.spec, self.body, self.outputs
        depth = step * spec.group_inputs * self.taps
        weights = self.weight + (group * self.blocks + block) * depth
        body.pointer(f"const {self.ctype}", "weights", weights)
        rest = spec.group_outputs - block * step
        channels = body.let("channels", smaller(rest, step), "int")
        channel = Axis("k", group * spec.group_outputs + block * step, channels, "o")
        sums, here = Pointer("sums"), {"n": n}
        if self.mode == "plane":
            self.sum_up(Index.of(16), image, Index.of(16), 16)
            axes = channel, Axis("oh", 0, self.out_h, "p"), Axis("ow", 0, self.out_w, "i")
            pitch = self.pitch
            finish(body, spec, lambda o, p, i: sums[o * SEGMENT + p * pitch + i], axes, **here)
            return
        with self.segments("ow_0") as (ow_0, pixels):
            pixel = Axis("ow", ow_0, pixels, "i")
            place = self.pitch * spec.stride[0]
            if self.mode == "line":
                self.sum_up(Index.of(16), image + row * place + ow_0, Index.of(16), 16)
                here["oh"] = row
                finish(body, spec, lambda o, i: sums[o * SEGMENT + i], (channel, pixel), **here)
                return
            self.sum_up(pixels, image + row * 4 * place + ow_0, place, SEGMENT)
            rows = body.let("rows", smaller(self.out_h - row * PIXEL_ROWS, PIXEL_ROWS), "int")
            axes = channel, Axis("oh", row * 4, rows, "p"), pixel
            finish(body, spec, lambda o, p, i: sums[(o * 4 + p) * SEGMENT + i], axes, **here)

    def sum_up(self, pixels: Index, start: Pointer, place_step: Index, sums_step: int) -> None:
        """Print the sums of a tile from this pixel on."""
        self.body.declare(f"{self.ctype} sums[{self.outputs * 4 * sums_step}]")
        depth = self.spec.group_inputs, self.taps
        image = start, self.plane, "tap", place_step
        self.body.call(f"sum_segment_{self.ctype}", self.outputs, pixels, *depth, *image, "weights", "sums", sums_step)
