"""Printing the loops of a convolution by the plan "pixels" of `conv_plan`."""

from __future__ import annotations

from fxlite.codegen.c.conv.conv_direct import Direct, conv_function
from fxlite.codegen.c.conv.conv_plan import SEGMENT, outputs_per_tile
from fxlite.codegen.c.product.gemm import Rendered
from fxlite.codegen.c.product.packed_operands import ITEM_BYTES
from fxlite.codegen.c.text.template_text import add, atom, multiply, round_up


class Pixels(Direct):
    """Tiles of up to 4 output channels times 4 vectors of pixels, at 4 places.

    The places are rows of the output; for an image of one row, or a small image whose rows are
    joined (padding between them and all), they are consecutive.
    """

    def render(self) -> Rendered:
        spec, out = self.spec, self.out
        self.step = spec.stride[1]
        margin = (spec.reach[1] - 1) // self.step + 1
        out_h, out_w = self.out_h, self.out_w
        self.mode = "rows"
        rows = add(multiply(round_up(out_h, 4), str(spec.stride[0])), str(spec.reach[0] - 1))
        pitch = add(round_up(out_w, 16), str(margin))
        if out_h == "1":
            self.mode = "line"
            rows = str(spec.stride[0] + spec.reach[0] - 1)
            pitch = add(round_up(out_w, SEGMENT), str(margin))
        elif out_h.isdecimal() and out_w.isdecimal() and spec.stride == (1, 1):
            joined = int(out_w) + spec.reach[1] - 1
            if (int(out_h) - 1) * joined + int(out_w) <= SEGMENT:
                self.mode = "plane"
                pitch = str(joined)
                rows = str(-(-(SEGMENT + spec.reach[1]) // joined) + spec.reach[0])
        self.out_h, self.out_w = self.declare("out_h", out_h), self.declare("out_w", out_w)
        self.rows, self.pitch = self.declare("padded_h", rows), self.declare("pitch", pitch)
        self.plane = multiply(str(self.step), self.rows, self.pitch)
        self.declare_taps(self.rows, self.pitch, self.step)
        # One copy per thread of the channels of one group, 128 bytes apart; or all images.
        size = multiply(str(self.step), atom(rows), atom(pitch))
        self.slice = add(multiply(str(spec.group_inputs), size), "32")
        item = str(ITEM_BYTES[self.ctype])
        out.put(f"{self.ctype} *const padded = workspace;")
        if self.grouped:
            workspace = multiply("n_threads" if self.threads else "1", self.slice, item)
            if self.threads:
                out.put(f"#pragma omp parallel {self.team}")
                with out.block():
                    self.convolve_own()
            else:
                self.convolve_own()
        else:
            workspace = multiply(spec.n, str(spec.c), size, item)
            if self.step == 1:
                self.pad_images(self.rows, self.pitch)
            else:
                self.sort_images()
            self.convolve_shared()
        place = f"4 rows x {SEGMENT}" if self.mode == "rows" else f"{SEGMENT}"
        groups = f" in {spec.groups} groups" if self.grouped else ""
        note = (
            f"{spec.r}x{spec.s}, {spec.c} -> {spec.k} channels{groups}; tiles of"
            f" {outputs_per_tile(spec)} output channels x {place} pixels."
        )
        extra = ("workspace", "n_threads") if self.threads else ("workspace",)
        return conv_function(spec, note, out.lines, workspace, extra)

    def convolve_own(self) -> None:
        """Each thread copies the channels of a group between zeros of its own, and uses them."""
        spec, out = self.spec, self.out
        size = add(multiply(str(spec.group_inputs), self.plane), "32")
        thread = f" + this_thread() * {atom(size)}" if self.threads else ""
        out.put(f"{self.ctype} *const image = padded{thread};")
        out.put(f"for (int64_t i = 0; i < {multiply(str(spec.group_inputs), self.plane)}; i++)")
        out.put("    image[i] = 0;")
        loops = [("n", spec.n), ("group", str(spec.groups))]
        with out.loops(loops, self.pragma("omp for", 2)):
            channels = [("c", str(spec.group_inputs)), ("i", spec.h)]
            with out.loops(channels if spec.group_inputs > 1 else channels[1:]):
                several = spec.group_inputs > 1
                channel = add(self.first_channel(), "c" if several else "0")
                self.copy_row(channel, add("image", multiply("c", self.plane) if several else "0"))
            with out.loops([*self.block_loop(), *self.row_loop()]):
                self.tile()

    def sort_images(self) -> None:
        """All images between zeros, each as by `copy_row`."""
        spec, out = self.spec, self.out
        out.put("/* The images with zeros around them. */")
        planes = multiply(spec.n, str(spec.c))
        with out.loops([("plane", planes)], self.parallel(1)):
            out.put(f"{self.ctype} *const image = {add('padded', multiply('plane', self.plane))};")
            out.put(f"for (int64_t i = 0; i < {self.plane}; i++)")
            out.put("    image[i] = 0;")
            with out.loops([("i", spec.h)]):
                self.copy_row("plane", "image")
        out.put("/* The convolution. */")

    def copy_row(self, channel: str, image: str) -> None:
        """Row i of a channel, its columns sorted by their remainder modulo the stride."""
        spec, out, step = self.spec, self.out, self.step
        source = add(spec.x, multiply(f"({add(multiply(channel, spec.h), 'i')})", spec.w))
        out.put(f"const {self.ctype} *const from = {source};")
        row = multiply(add("i", str(spec.padding[0])), self.pitch)
        out.put(f"{self.ctype} *const to = {add(image, row)};")
        for remainder in range(step):
            # Input columns first, first + step, ... go to padded columns of this remainder.
            first = (remainder - spec.padding[1]) % step
            column = add(
                multiply(str(remainder), self.rows, self.pitch),
                str((first + spec.padding[1]) // step),
            )
            count = spec.w
            if step > 1:
                count = f"({add(spec.w, str(step - 1 - first))}) / {step}"
                if spec.w.isdecimal():
                    count = str((int(spec.w) + step - 1 - first) // step)
            out.put("#pragma omp simd")
            out.put(f"for (int64_t j = 0; j < {count}; j++)")
            out.put(
                f"    to[{add(column, 'j')}] = from[{add(multiply('j', str(step)), str(first))}];"
            )

    def convolve_shared(self) -> None:
        """All images lie padded in the workspace."""
        spec, out = self.spec, self.out
        loops = [("n", spec.n), *self.block_loop(), *self.row_loop()]
        with out.loops(loops, self.parallel(len(loops))):
            image = add("padded", multiply(self.first_channel(), self.plane))
            out.put(f"const {self.ctype} *const image = {image};")
            self.tile()

    def block_loop(self) -> list[tuple[str, str]]:
        """The loop over tiles of output channels of a group."""
        blocks = -(-self.spec.group_outputs // outputs_per_tile(self.spec))
        return [("block", str(blocks))] if blocks > 1 else []

    def row_loop(self) -> list[tuple[str, str]]:
        """The loop over tiles of four rows."""
        if self.mode != "rows":
            return []
        if self.out_h.isdecimal():
            return [("row_4", str(-(-int(self.out_h) // 4)))]
        return [("row_4", f"({self.out_h} + 3) / 4")]

    def tile(self) -> None:
        """Some output channels of four rows, of one row, or of a small image."""
        spec, out = self.spec, self.out
        outputs, step = spec.group_outputs, outputs_per_tile(spec)
        blocks, depth = -(-outputs // step), spec.group_inputs * self.taps
        group = multiply("group", str(blocks * step * depth)) if self.grouped else "0"
        block = multiply("block", str(step * depth)) if blocks > 1 else "0"
        out.put(f"const {self.ctype} *const weights = {add(spec.weight, group, block)};")
        channels = str(min(step, outputs))
        if outputs % step and blocks > 1:
            rest = f"{outputs} - block * {step}"
            out.put(f"const int channels = {rest} < {step} ? {rest} : {step};")
            channels = "channels"
        sums = step * 4 * (SEGMENT if self.mode == "rows" else 16)
        if self.mode == "plane":
            out.put(f"{self.ctype} sums[{sums}];")
            self.sum("16", "image", "16", "16")
            self.finish_plane(channels, step, blocks)
            return
        with out.block(f"for (int64_t ow_0 = 0; ow_0 < {self.out_w}; ow_0 += {SEGMENT})"):
            self.declare_pixels("ow_0")
            out.put(f"{self.ctype} sums[{sums}];")
            if self.mode == "line":
                self.sum("16", "image + ow_0", "16", "16")
            else:
                row = multiply("row_4", str(4 * spec.stride[0]), self.pitch)
                place = multiply(str(spec.stride[0]), self.pitch)
                self.sum("pixels", add("image", row, "ow_0"), place, str(SEGMENT))
            self.finish_rows(channels, step, blocks)

    def sum(self, pixels: str, start: str, place_step: str, sums_step: str) -> None:
        """The call of the tile."""
        spec, outputs = self.spec, outputs_per_tile(self.spec)
        self.out.put(
            f"sum_segment_{self.ctype}({outputs}, {pixels}, {spec.group_inputs}, {self.taps}, "
            f"{start}, {self.plane}, tap, {place_step}, weights, sums, {sums_step});"
        )

    def put_channel(self, step: int, blocks: int) -> None:
        group = multiply("group", str(self.spec.group_outputs)) if self.grouped else "0"
        block = multiply("block", str(step)) if blocks > 1 else "0"
        self.out.put(f"const int64_t k = {add(group, block, 'o')};")

    def finish_plane(self, channels: str, step: int, blocks: int) -> None:
        """The epilogue over a small image."""
        out = self.out
        with out.block(f"for (int64_t o = 0; o < {channels}; o++)"):
            self.put_channel(step, blocks)
            with out.block(f"for (int64_t oh = 0; oh < {self.out_h}; oh++)"):
                self.put_row(f"sums[o * {SEGMENT} + oh * {self.pitch} + i]", "0", self.out_w)

    def finish_rows(self, channels: str, step: int, blocks: int) -> None:
        """The epilogue over a segment of four rows, or of one."""
        out = self.out
        with out.block(f"for (int64_t o = 0; o < {channels}; o++)"):
            self.put_channel(step, blocks)
            if self.mode == "line":
                out.put("const int64_t oh = 0;")
                self.put_row(f"sums[o * {SEGMENT} + i]", "ow_0", "pixels")
                return
            out.put("for (int64_t p = 0; p < 4; p++) {")
            out.depth += 1
            out.put("const int64_t oh = row_4 * 4 + p;")
            if not (self.out_h.isdecimal() and int(self.out_h) % 4 == 0):
                out.put(f"if (oh >= {self.out_h})")
                out.put("    break;")
            self.put_row(f"sums[(o * 4 + p) * {SEGMENT} + i]", "ow_0", "pixels")
            out.depth -= 1
            out.put("}")
