"""Printing the loops of a convolution by the plan "pixels" of `conv_plan`."""

from __future__ import annotations

from contextlib import ExitStack

from fxlite.codegen.c.conv.conv_finish import Axis, finish
from fxlite.codegen.c.conv.conv_plan import SEGMENT, ConvSpec, outputs_per_tile
from fxlite.codegen.c.conv.conv_walk import Walk, conv_function
from fxlite.codegen.c.product.packed_operands import ITEM_BYTES
from fxlite.codegen.c.text.template_text import Rendered
from fxlite.codegen.kernel.builder import Pointer, divide_up, round_up, smaller
from fxlite.scalar.index import Index


class Pixels(Walk):
    """Tiles of up to 4 output channels times 4 vectors of pixels, at 4 places.

    The places are rows of the output; for an image of one row, or a small image whose rows are
    joined (padding between them and all), they are consecutive.
    """

    def __init__(self, spec: ConvSpec) -> None:
        super().__init__(spec)
        self.step = spec.stride[1]
        self.outputs = outputs_per_tile(spec)
        self.blocks = -(-spec.group_outputs // self.outputs)
        self.grouped = spec.groups > 1

    def render(self) -> Rendered:
        """Print the function."""
        spec, body = self.spec, self.body
        self.declare_sizes()
        self.declare_taps(self.pitch, self.column)
        body.put(f"{self.ctype} *const padded = workspace;")
        if self.grouped:  # a copy for each thread of the channels of one group, 128 bytes apart
            size = self.plane * spec.group_inputs + 32
            with self.team_of_threads():
                self.convolve_own(size)
            size = size * self.all_threads
        else:  # all images
            size = self.plane * spec.n * spec.c
            if self.step == 1:
                self.pad_planes(spec.h, spec.w, self.rows, self.pitch)
            else:
                self.sort_images()
            loops = ("n", spec.n), ("block", self.blocks), ("row_4", self.row_groups)
            with self.parallel(*loops) as (n, block, row):
                image = Pointer("padded") + n * self.plane * spec.c
                image = body.pointer(f"const {self.ctype}", "image", image)
                self.tile(image, n, Index.of(0), block, row)
        place = f"4 rows x {SEGMENT}" if self.mode == "rows" else f"{SEGMENT}"
        groups = f" in {spec.groups} groups" if self.grouped else ""
        note = (
            f"{spec.r}x{spec.s}, {spec.c} -> {spec.k} channels{groups}; tiles of {self.outputs}"
            f" output channels x {place} pixels."
        )
        return conv_function(spec, note, body, self.meaning(size * ITEM_BYTES[self.ctype]))

    def declare_sizes(self) -> None:
        """Names for the sizes of the output and of an image between zeros."""
        spec = self.spec
        margin = (spec.reach[1] - 1) // self.step + 1
        self.name_result()
        h, w = self.out_h, self.out_w
        self.mode, self.row_groups = "rows", divide_up(h, 4)
        rows = round_up(h, 4) * spec.stride[0] + spec.reach[0] - 1
        pitch = round_up(w, 16) + margin
        if h == 1:
            self.mode = "line"
            rows, pitch = (Index.of(spec.stride[0] + spec.reach[0] - 1), round_up(w, SEGMENT) + margin)
        elif spec.stride == (1, 1) and h.constant is not None and w.constant is not None:
            joined = w.constant + spec.reach[1] - 1
            if (h.constant - 1) * joined + w.constant <= SEGMENT:
                self.mode, self.row_groups = "plane", Index.of(1)
                pitch = Index.of(joined)
                rows = Index.of(-(-(SEGMENT + spec.reach[1]) // joined) + spec.reach[0])
        self.rows, self.pitch = self.name("padded_h", rows), self.name("pitch", pitch)
        self.plane = self.rows * self.pitch * self.step

    def column(self, column: int) -> Index:
        """Where a column of the image is: they are sorted by their remainder modulo the stride."""
        return self.rows * self.pitch * (column % self.step) + column // self.step

    def convolve_own(self, size: Index) -> None:
        """Each thread copies the channels of a group between zeros of its own, and uses them."""
        spec, body = self.spec, self.body
        image = body.pointer(self.ctype, "image", Pointer("padded") + self.own(size))
        self.clear(image, self.plane * spec.group_inputs)
        with self.of_team(("n", spec.n), ("group", spec.groups)) as (n, group):
            with body.loop("c", spec.group_inputs) as c, body.loop("i", spec.h) as i:
                channel = n * spec.c + group * spec.group_inputs + c
                self.copy_row(channel, i, image + c * self.plane)
            with ExitStack() as stack:
                block = stack.enter_context(body.loop("block", self.blocks))
                row = stack.enter_context(body.loop("row_4", self.row_groups))
                self.tile(image, n, group, block, row)

    def sort_images(self) -> None:
        """All images between zeros, each as by `copy_row`."""
        spec, body = self.spec, self.body
        comment = "The images with zeros around them."
        with self.copying(comment, ("plane", spec.n * spec.c)) as (plane,):
            image = body.pointer(self.ctype, "image", Pointer("padded") + plane * self.plane)
            self.clear(image, self.plane)
            with body.loop("i", spec.h) as i:
                self.copy_row(plane, i, image)

    def clear(self, image: Pointer, count: Index) -> None:
        """Zeros."""
        with self.body.loop("i", count) as i:
            self.body.put(f"{image[i]} = 0;")

    def copy_row(self, channel: Index, i: Index, image: Pointer) -> None:
        """Row i of a channel, its columns sorted by their remainder modulo the stride."""
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
                body.put(f"{to[column + j]} = {start[j * step + first]};")

    def tile(self, image: Pointer, n: Index, group: Index, block: Index, row: Index) -> None:
        """Some output channels of four rows, of one row, or of a small image."""
        spec, body, step = self.spec, self.body, self.outputs
        depth = step * spec.group_inputs * self.taps
        weights = Pointer(spec.weight) + (group * self.blocks + block) * depth
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
            if self.mode == "line":
                self.sum_up(Index.of(16), image + ow_0, Index.of(16), 16)
                here["oh"] = Index.of(0)
                finish(body, spec, lambda o, i: sums[o * SEGMENT + i], (channel, pixel), **here)
                return
            place = self.pitch * spec.stride[0]
            self.sum_up(pixels, image + row * 4 * place + ow_0, place, SEGMENT)
            rows = body.let("rows", smaller(self.out_h - row * 4, 4), "int")
            axes = channel, Axis("oh", row * 4, rows, "p"), pixel
            finish(body, spec, lambda o, p, i: sums[(o * 4 + p) * SEGMENT + i], axes, **here)

    def sum_up(self, pixels: Index, start: Pointer, place_step: Index, sums_step: int) -> None:
        """The sums of a tile from this pixel on."""
        self.body.put(f"{self.ctype} sums[{self.outputs * 4 * sums_step}];")
        self.body.call(
            f"sum_segment_{self.ctype}",
            self.outputs,
            pixels,
            self.spec.group_inputs,
            self.taps,
            start,
            self.plane,
            "tap",
            place_step,
            "weights",
            "sums",
            sums_step,
        )
