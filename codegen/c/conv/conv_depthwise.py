"""Printing the loops of depthwise convolutions of floats: each channel is convolved by itself.

- "depthwise": each image of one channel is a task. Tiles of some rows (see `tiles/depthwise.h`) go
  through an array of the thread to the epilogue. The image is read where it is; vectors reach past
  the ends of its rows, so the first and last images of the input are read from a copy with room
  around it.
- "depthwise last": of images whose channels are last, tiles are some pixels of an output row times
  a block of channels; see `tiles/channels_last.h`. The image is read in place.
"""

from __future__ import annotations

from fxlite.codegen.c.conv.conv_finish import Axis, finish, finish_tile
from fxlite.codegen.c.conv.conv_walk import Walk, conv_function
from fxlite.codegen.c.product.packed_operands import ITEM_BYTES
from fxlite.codegen.c.text.template_text import Rendered
from fxlite.codegen.c.tiles.library import constant
from fxlite.codegen.kernel.builder import Pointer, bare, divide_up, smaller
from fxlite.scalar.index import Index

MOST_TILE_ROWS = constant("depthwise", "MOST_PLACES")
MOST_PLACES = constant("channels_last", "MOST_PLACES")
TILE_PITCH = constant("channels_last", "PITCH")

CHANNEL_BLOCK = TILE_PITCH - 16
"""Channels of a depthwise tile; the last tile of a pixel takes up to 15 more, so that none has
fewer than a vector."""

FEWEST_CHANNELS = {"float": 16, "double": 8}
"""Lanes of the widest vector: a depthwise convolution of fewer channels takes them one by one."""


class Depthwise(Walk):
    """Tiles of rows of one channel."""

    def render(self) -> Rendered:
        """Print the function."""
        spec, body, rows = self.spec, self.body, places(self.out_h, MOST_TILE_ROWS, 2)
        lanes = 64 // ITEM_BYTES[self.ctype]
        self.name_result()
        if self.out_h.constant is None or self.out_w.constant is None:
            body.put(f"if ({bare(self.out_h)} <= 0 || {bare(self.out_w)} <= 0)\n    return;")
        # How far before an image the first vector of its first row starts, and how far behind it
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
            f"{spec.r}x{spec.s}, each of {spec.c} channels by itself; tiles of {rows}"
            " output rows of a vector of pixels."
        )
        workspace = self.meaning(size * self.all_threads * ITEM_BYTES[self.ctype])
        return conv_function(spec, note, body, workspace)

    def tile(self, rows: int, n: Index, k: Index, oh_0: Index) -> None:
        """Some output rows of a channel, and the epilogue."""
        spec, body, w = self.spec, self.body, self.out_w
        (down, across), (top, left) = spec.stride, spec.padding[:2]
        body.call(
            f"sum_depthwise_rows_{self.ctype}",
            rows,
            spec.r,
            spec.s,
            down,
            across,
            "image",
            spec.h,
            spec.w,
            oh_0 * down - top,
            -left,
            Pointer(spec.weight) + k * self.taps,
            w,
            "sums",
        )
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
        whole, rest = divmod(spec.k, CHANNEL_BLOCK)
        blocks = whole if whole and rest < 16 else whole + 1
        tiles = divide_up(self.out_w, step)
        loops = ("n", spec.n), ("oh", self.out_h), ("tile_index", tiles), ("block", blocks)
        with self.parallel(*loops) as (n, oh, tile, block):
            ow_0 = body.let("ow_0", tile * step)
            first = body.let("channel_0", block * CHANNEL_BLOCK)
            channels = Index.of(CHANNEL_BLOCK if rest == 0 else spec.k)
            if blocks > 1 and rest:
                last = f"{bare(block)} == {blocks - 1} ? {bare(spec.k - first)}"
                channels = body.let("channels", f"{last} : {CHANNEL_BLOCK}")
            pixels = body.let("pixels", smaller(self.out_w - ow_0, step))
            body.put(f"{self.ctype} sums[{step * TILE_PITCH}];")
            (down, across), (top, left) = spec.stride, spec.padding[:2]
            item = "bf16" if spec.x_is_bf16 else self.ctype
            kind = "few" if spec.k < FEWEST_CHANNELS[self.ctype] else "last"
            body.call(
                f"sum_depthwise_{kind}_{item}",
                step,
                spec.r,
                spec.s,
                across,
                Pointer(spec.x) + n * spec.h * spec.w * spec.c + first,
                spec.h,
                spec.w,
                spec.c,
                oh * down - top,
                ow_0 * across - left,
                Pointer(spec.weight) + first,
                channels,
                "sums",
            )
            pixel, channel = Axis("ow", ow_0, pixels, "i"), Axis("k", first, channels, "j")
            finish_tile(body, spec, Pointer("sums"), TILE_PITCH, pixel, channel, n, oh)
        note = (
            f"{spec.r}x{spec.s}, each of {spec.c} channels by itself, NHWC; tiles of {step}"
            f" pixels of a row x {min(spec.k, CHANNEL_BLOCK)} channels."
        )
        return conv_function(spec, note, body)


def places(size: Index, most: int, more: int) -> int:
    """Output rows, or pixels of one, of a tile: so that all tiles together read the fewest rows or
    pixels, of which each reads ``more`` again; the larger the better."""
    if size.constant is None:
        return most // 2
    known = size.constant
    return min(range(min(known, most), 0, -1), key=lambda count: -(-known // count) * (count + more))
