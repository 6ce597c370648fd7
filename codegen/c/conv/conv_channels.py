"""Printing the loops of a convolution by the plan "channels" of `conv_plan`."""

from __future__ import annotations

from fxlite.codegen.c.conv.conv_direct import Direct, conv_function, put_fetch, put_first, put_rows
from fxlite.codegen.c.conv.conv_plan import (
    SEGMENT,
    ConvSpec,
    input_planes,
    is_pointwise,
    reads_pairs,
)
from fxlite.codegen.c.product.gemm import Rendered
from fxlite.codegen.c.product.packed_operands import ITEM_BYTES, PAIR_BYTES, panel_columns
from fxlite.codegen.c.text.template_text import add, multiply

TURNED = SEGMENT + 16
"""Row length of the turned tile: a whole square may be written from the last pixel on."""


def _why_direct(spec: ConvSpec) -> str:
    """What speaks against the other plans."""
    if spec.measured:
        return ""
    if is_pointwise(spec):
        return "Not as a product: its last panel of pixels would be filled badly."
    if (spec.r, spec.s) != (3, 3) or spec.ctype != "float":
        return ""
    if (*spec.stride, *spec.dilation, spec.groups) != (1, 1, 1, 1, 1):
        return "Not Winograd's convolution: that is for stride 1, dilation 1 and one group."
    return "Not Winograd's convolution: its transforms and larger weights would cost too much."


class Channels(Direct):
    """Tiles of pixels of one output row times a panel of output channels.

    For bf16 the image is copied in any case: into planes of pairs, see `tiles/conv_bf16.h`."""

    def __init__(self, spec: ConvSpec) -> None:
        super().__init__(spec)
        self.pairs = reads_pairs(spec)
        self.item_type = "uint32_t" if self.pairs else spec.ctype
        self.item_bytes = str(PAIR_BYTES if self.pairs else ITEM_BYTES[spec.ctype])
        self.tile_name = "bf16" if self.pairs else spec.ctype
        self.inputs = input_planes(spec)
        # A strided kernel of one weight: only the pixels that it reads are copied, side by side.
        strided = max(spec.stride) > 1 and not any(spec.padding)
        self.picks = self.pairs and self.taps == 1 and strided and not spec.x_last
        self.stride = (1, 1) if self.picks else spec.stride

    def render(self) -> Rendered:
        spec, out = self.spec, self.out
        self.joined = is_pointwise(spec)
        if self.joined:
            self.out_h, self.out_w = "1", multiply(self.out_h, self.out_w)
        workspace, rows, pitch = "0", spec.h, spec.w
        self.padded = self.pairs or any(spec.padding)
        if self.padded:
            rows = add(multiply(self.out_h, str(self.stride[0])), str(spec.reach[0] - 1))
            pitch = add(multiply(self.out_w, str(self.stride[1])), str(spec.reach[1] - 1))
            planes = multiply(spec.n, str(spec.groups * self.inputs))
            workspace = multiply(planes, rows, pitch, self.item_bytes)
        self.out_h = self.declare("out_h", self.out_h)
        self.out_w = self.declare("out_w", self.out_w)
        self.rows, self.pitch = self.declare("padded_h", rows), self.declare("pitch", pitch)
        self.declare_taps(self.rows, self.pitch, 1)
        if not self.joined:
            self.declare_blocks()
        extra = (("workspace",) if self.padded else ()) + (("n_threads",) if self.threads else ())
        if self.padded:
            out.put(f"{self.item_type} *const padded = workspace;")
            self.pad_images(self.rows, self.pitch)
        self.convolve()
        width = panel_columns(self.ctype)
        note = (
            f"{spec.r}x{spec.s}, {spec.c} -> {spec.k} channels; tiles of TILE_ROWS pixels of a row"
            f" x {width} output channels.\n{_why_direct(spec)}"
        )
        if self.pairs:
            note += "\nOperands are rounded to bf16, in pairs of input channels; sums are float."
        return conv_function(spec, note, out.lines, workspace, extra)

    def first_channel(self) -> str:
        """The first plane of the group, counted over all images."""
        group = multiply("group", str(self.inputs)) if self.grouped else "0"
        return add(multiply("n", str(self.spec.groups * self.inputs)), group)

    def pad_images(self, rows: str, pitch: str) -> None:
        """All images, with their zeros, into the workspace; for bf16 in pairs of channels."""
        if not self.pairs:
            super().pad_images(rows, pitch)
            return
        spec, out, inputs = self.spec, self.out, self.spec.group_inputs
        h, w = ("1", multiply(spec.h, spec.w)) if self.joined else (spec.h, spec.w)
        out.put("/* The images rounded to bf16, in pairs of channels; zeros around them. */")
        planes = multiply(spec.n, str(spec.groups * self.inputs))
        with out.loops([("plane", planes)], self.parallel(1)):
            channel = "plane * 2"
            second = f"image + {multiply(h, w)}"
            if inputs % 2:
                out.put(f"const int64_t c = plane % {self.inputs} * 2;")
                channel = f"(plane / {self.inputs} * {inputs} + c)"
                second = f"c + 1 < {inputs} ? {second} : 0"
            image = add(spec.x, multiply(channel, h, w))
            out.put(f"const {self.ctype} *const image = {image};")
            target = add("padded", multiply("plane", rows, pitch))
            if self.picks:
                steps = f"{multiply(str(spec.stride[0]), w)}, {spec.stride[1]}"
                out.put(f"pick_pairs({rows}, {pitch}, image, {second}, {steps}, {target});")
            else:
                out.put(
                    f"pad_plane_pairs({h}, {w}, image, {second}, {spec.padding[0]}, "
                    f"{spec.padding[1]}, {rows}, {pitch}, {target});"
                )
        out.put("/* The convolution. */")

    def declare_blocks(self) -> None:
        """How the output rows are cut into tasks."""
        spec = self.spec
        row_bytes = multiply(str(self.stride[0] * self.inputs), self.pitch, self.item_bytes)
        panels = -(-spec.group_outputs // panel_columns(self.ctype))
        others = multiply(spec.n, str(spec.groups * panels))
        n_threads = "n_threads" if self.threads else "1"
        blocks = f"count_row_blocks({self.out_h}, {row_bytes}, {others}, {n_threads})"
        self.out.put(f"const int64_t row_blocks = {blocks};")

    def convolve(self) -> None:
        """Images, groups, blocks of rows, panels of output channels; then row by row."""
        spec, out, width = self.spec, self.out, panel_columns(self.ctype)
        panels = -(-spec.group_outputs // width)
        loops = [("n", spec.n), *([("group", str(spec.groups))] if self.grouped else [])]
        loops += [] if self.joined else [("row_block", "row_blocks")]
        loops += [("panel", str(panels))]
        plane = multiply(self.rows, self.pitch)
        with out.loops(loops, self.parallel(len(loops))):
            self.declare_panel(width, panels)
            pointer = "padded" if self.padded else spec.x
            image = add(pointer, multiply(self.first_channel(), plane))
            out.put(f"const {self.item_type} *const image = {image};")
            out.put(f"{self.ctype} tile[16 * {width}] = {{0}}, turned[{width} * {TURNED}];")
            if self.joined:
                self.segments(width, panels, plane)
            else:
                out.put(f"for (int64_t oh = row_block * {self.out_h} / row_blocks;")
                with out.block(f"     oh < (row_block + 1) * {self.out_h} / row_blocks; oh++)"):
                    self.segments(width, panels, plane)

    def declare_panel(self, width: int, panels: int) -> None:
        """The weights of this panel."""
        spec, out = self.spec, self.out
        outputs, depth = spec.group_outputs, self.inputs * self.taps
        if outputs % width == 0 or panels == 1:
            out.put(f"const int columns = {min(outputs, width)};")
        else:
            rest = f"{outputs} - panel * {width}"
            out.put(f"const int columns = {rest} < {width} ? {rest} : {width};")
        group = multiply("group", str(depth * panels * width)) if self.grouped else "0"
        panel = multiply("panel", str(depth * width)) if panels > 1 else "0"
        weights = add(spec.weight, group, panel)
        out.put(f"const {self.item_type} *const weights = {weights};")

    def segments(self, width: int, panels: int, plane: str) -> None:
        """64 pixels of a row at a time: the tiles, turned into rows of channels; the epilogue."""
        spec, out = self.spec, self.out
        start = "pixel_0" if self.joined else "ow_0"
        turned_columns = width if spec.group_outputs > width // 2 else width // 2
        row = "0" if self.joined else multiply("oh", str(self.stride[0]), self.pitch)
        with out.block(f"for (int64_t {start} = 0; {start} < {self.out_w}; {start} += {SEGMENT})"):
            self.declare_pixels(start)
            group = multiply("group", str(spec.group_outputs)) if self.grouped else "0"
            first = add(group, multiply("panel", str(width)) if panels > 1 else "0")
            put_fetch(out, spec, first, "0" if self.joined else "oh", start, "columns", "pixels")
            out.put("const int tiles = (pixels + TILE_ROWS - 1) / TILE_ROWS;")
            with out.block("for (int tile_index = 0; tile_index < tiles; tile_index++)"):
                out.put("const int first = tile_index * pixels / tiles;")
                out.put("const int count = (tile_index + 1) * pixels / tiles - first;")
                pixel = add("image", row, multiply(f"({start} + first)", str(self.stride[1])))
                out.put(
                    f"sum_tile_{self.tile_name}(count, columns, {self.inputs}, {self.taps}, "
                    f"{pixel}, {plane}, tap, {self.stride[1]}, weights, tile);"
                )
                out.put(
                    f"copy_transposed_{self.ctype}(16, {turned_columns}, tile, {width}, "
                    f"turned + first, {TURNED});"
                )
            if self.joined:
                put_first(out, spec, start)
            with out.block("for (int64_t j = 0; j < columns; j++)"):
                out.put(f"const int64_t k = {add(first, 'j')};")
                element = f"turned[j * {TURNED} + i]"
                if self.joined:
                    put_rows(out, spec, element, "i", start, "pixels")
                else:
                    self.put_row(element, start, "pixels")
