"""Printing the loops of a direct convolution: the plans "channels" and "pixels" of `conv_plan`.

Both read the image through a table of taps (see `conv_tile`), from the input itself or from a copy
with zeros around it in the workspace.
"""

from __future__ import annotations

from fxlite.codegen.c.conv_plan import ConvSpec, is_pointwise, outputs_per_tile
from fxlite.codegen.c.conv_tile import SEGMENT
from fxlite.codegen.c.gemm import WORTH_THREADS, Rendered
from fxlite.codegen.c.gemm_pack import ITEM_BYTES, panel_columns
from fxlite.codegen.c.gemm_text import (
    Lines,
    add,
    atom,
    block_comment,
    mentions,
    multiply,
    round_up,
    signature,
)

TURNED = SEGMENT + 16
"""Row length of the turned tile: a whole square may be written from the last pixel on."""


def conv_function(
    spec: ConvSpec, note: str, body: list[str], workspace: str, extra: tuple[str, ...]
) -> Rendered:
    """The comment, the head and the body of a function."""
    head = [*block_comment(spec.comment, note), *signature(spec.name, spec.parameters, extra)]
    return Rendered("\n".join([*head, "{", *body, "}"]) + "\n", workspace, extra)


def put_first(out: Lines, spec: ConvSpec, pixel: str) -> None:
    """Declare where pixel number `pixel` of joined rows is, for `put_rows`."""
    if not spec.joinable:
        w = atom(spec.w)
        out.put(f"const int64_t first_oh = {pixel} / {w}, first_ow = {pixel} % {w};")


def put_rows(out: Lines, spec: ConvSpec, element: str, index: str, first: str, count: str) -> None:
    """The epilogue over `count` pixels of joined rows from pixel `first` on; row by row, unless the
    epilogue does not mind. `element` uses the variable `index`, which starts at 0."""
    if spec.joinable:
        out.put("#pragma omp simd")
        with out.block(f"for (int {index} = 0; {index} < {count}; {index}++)"):
            out.put(f"const int64_t ow = {add(first, index)};")
            out.put(spec.epilogue(element, "n", "k", "0", "ow"))
        return
    statements = spec.epilogue(element, "n", "k", "oh", "ow")
    start, w = f"{index}_0", atom(spec.w)
    out.put("int64_t oh = first_oh, ow_0 = first_ow;")
    with out.block(f"for (int {start} = 0, run; {start} < {count}; {start} += run)"):
        out.put(f"run = {w} - ow_0 < {count} - {start} ? {w} - ow_0 : {count} - {start};")
        out.put("#pragma omp simd")
        with out.block(f"for (int {index} = {start}; {index} < {start} + run; {index}++)"):
            if mentions(statements, "ow"):
                out.put(f"const int64_t ow = ow_0 + {index} - {start};")
            out.put(statements)
        out.put("oh++, ow_0 = 0;")


class _Direct:
    """What both plans share: sizes, names of the function's variables, the taps."""

    def __init__(self, spec: ConvSpec) -> None:
        self.spec = spec
        self.out = Lines()
        self.ctype = spec.ctype
        self.taps = spec.r * spec.s
        self.grouped = spec.groups > 1
        self.out_h, self.out_w = spec.output_size()
        work = multiply(spec.n, str(spec.k * spec.group_inputs * self.taps), self.out_h, self.out_w)
        self.threads = not (work.isdecimal() and int(work) < WORTH_THREADS)
        large = "" if work.isdecimal() else f" && {work} > {WORTH_THREADS}"
        self.team = f"num_threads(n_threads) if (n_threads > 1{large})"

    def declare(self, name: str, expression: str) -> str:
        """Declare a size, unless it is a literal; returns how to refer to it."""
        if expression.isdecimal() or expression.isidentifier():
            return expression
        self.out.put(f"const int64_t {name} = {expression};")
        return name

    def declare_taps(self, rows: str, pitch: str, step: int) -> None:
        """Distances of the taps from the first pixel; columns are sorted by remainder mod step."""
        spec, texts = self.spec, []
        for r in range(spec.r):
            for s in range(spec.s):
                column = s * spec.dilation[1]
                plane = multiply(str(column % step), rows, pitch)
                row = multiply(str(r * spec.dilation[0]), pitch)
                texts.append(add(plane, row, str(column // step)))
        self.out.put(f"const int64_t tap[{self.taps}] = {{{', '.join(texts)}}};")

    def first_channel(self) -> str:
        """The first input channel of the group, counted over all images."""
        group = multiply("group", str(self.spec.group_inputs)) if self.grouped else "0"
        return add(multiply("n", str(self.spec.c)), group)

    def pragma(self, directive: str, loops: int, clauses: str = "") -> str:
        collapse = f" collapse({loops})" if loops > 1 else ""
        return f"#pragma {directive}{collapse} schedule(static){clauses}" if self.threads else ""

    def pad_images(self, rows: str, pitch: str) -> None:
        """All images, with their zeros, into the workspace."""
        spec, out = self.spec, self.out
        out.put("/* The images with zeros around them. */")
        planes = multiply(spec.n, str(spec.c))
        with out.loops([("plane", planes)], self.pragma("omp for", 1)):
            image = add(spec.x, multiply("plane", spec.h, spec.w))
            out.put(f"pad_plane_{self.ctype}({spec.h}, {spec.w}, {image}, {spec.padding[0]},")
            target = add("padded", multiply("plane", rows, pitch))
            out.put(f"    {spec.padding[1]}, {rows}, {pitch}, {target});")
        out.put("/* The convolution. */")

    def declare_pixels(self, start: str) -> None:
        """The number of pixels of this segment of a row."""
        rest = f"{self.out_w} - {start}"
        pixels = f"{rest} < {SEGMENT} ? {rest} : {SEGMENT}"
        if self.out_w.isdecimal() and int(self.out_w) <= SEGMENT:
            pixels = self.out_w
        self.out.put(f"const int pixels = {pixels};")

    def put_row(self, element: str, first: str, count: str) -> None:
        """The epilogue along `count` pixels of one output row, from ow = `first` on."""
        out = self.out
        statements = self.spec.epilogue(element, "n", "k", "oh", "ow")
        out.put("#pragma omp simd")
        with out.block(f"for (int i = 0; i < {count}; i++)"):
            if mentions(statements, "ow"):
                out.put(f"const int64_t ow = {add(first, 'i')};")
            out.put(statements)


class Channels(_Direct):
    """Tiles of pixels of one output row times a panel of output channels."""

    def render(self) -> Rendered:
        spec, out = self.spec, self.out
        self.joined = is_pointwise(spec)
        if self.joined:
            self.out_h, self.out_w = "1", multiply(self.out_h, self.out_w)
        workspace, rows, pitch = "0", spec.h, spec.w
        self.padded = any(spec.padding)
        if self.padded:
            rows = add(multiply(self.out_h, str(spec.stride[0])), str(spec.reach[0] - 1))
            pitch = add(multiply(self.out_w, str(spec.stride[1])), str(spec.reach[1] - 1))
            planes = multiply(spec.n, str(spec.c))
            workspace = multiply(planes, rows, pitch, str(ITEM_BYTES[self.ctype]))
        self.out_h = self.declare("out_h", self.out_h)
        self.out_w = self.declare("out_w", self.out_w)
        self.rows, self.pitch = self.declare("padded_h", rows), self.declare("pitch", pitch)
        self.declare_taps(self.rows, self.pitch, 1)
        if not self.joined:
            self.declare_blocks()
        extra = (("workspace",) if self.padded else ()) + (("n_threads",) if self.threads else ())
        if not self.padded:
            self.convolve("omp parallel for", f" {self.team}")
        else:
            out.put(f"{self.ctype} *const padded = workspace;")
            if self.threads:
                out.put(f"#pragma omp parallel {self.team}")
                with out.block():
                    self.pad_images(self.rows, self.pitch)
                    self.convolve("omp for", "")
            else:
                self.pad_images(self.rows, self.pitch)
                self.convolve("", "")
        width = panel_columns(self.ctype)
        note = (
            f"{spec.r}x{spec.s}, {spec.c} -> {spec.k} channels; tiles of TILE_ROWS pixels of a row"
            f" x {width} output channels."
        )
        return conv_function(spec, note, out.lines, workspace, extra)

    def declare_blocks(self) -> None:
        """How the output rows are cut into tasks."""
        spec = self.spec
        item = str(ITEM_BYTES[self.ctype])
        row_bytes = multiply(str(spec.stride[0] * spec.group_inputs), self.pitch, item)
        panels = -(-spec.group_outputs // panel_columns(self.ctype))
        others = multiply(spec.n, str(spec.groups * panels))
        n_threads = "n_threads" if self.threads else "1"
        blocks = f"count_row_blocks({self.out_h}, {row_bytes}, {others}, {n_threads})"
        self.out.put(f"const int64_t row_blocks = {blocks};")

    def convolve(self, directive: str, clauses: str) -> None:
        """Images, groups, blocks of rows, panels of output channels; then row by row."""
        spec, out, width = self.spec, self.out, panel_columns(self.ctype)
        panels = -(-spec.group_outputs // width)
        loops = [("n", spec.n), *([("group", str(spec.groups))] if self.grouped else [])]
        loops += [] if self.joined else [("row_block", "row_blocks")]
        loops += [("panel", str(panels))]
        plane = multiply(self.rows, self.pitch)
        with out.loops(loops, self.pragma(directive, len(loops), clauses)):
            self.declare_panel(width, panels)
            pointer = "padded" if self.padded else spec.x
            image = add(pointer, multiply(self.first_channel(), plane))
            out.put(f"const {self.ctype} *const image = {image};")
            out.put(f"{self.ctype} tile[16 * {width}] = {{0}}, turned[{width} * {TURNED}];")
            if self.joined:
                self.segments(width, panels, plane)
            else:
                out.put(f"for (int64_t oh = row_block * {self.out_h} / row_blocks;")
                with out.block(f"     oh < (row_block + 1) * {self.out_h} / row_blocks; oh++)"):
                    self.segments(width, panels, plane)

    def declare_panel(self, width: int, panels: int) -> None:
        """The weights of this panel."""
        spec, out, line = self.spec, self.out, width // 2
        outputs, depth = spec.group_outputs, spec.group_inputs * self.taps
        if outputs % width == 0:
            out.put(f"const int columns = {width}, b_row = {width};")
        elif panels == 1:
            out.put(f"const int columns = {outputs}, b_row = {width if outputs > line else line};")
        else:
            rest = f"{outputs} - panel * {width}"
            out.put(f"const int columns = {rest} < {width} ? {rest} : {width};")
            out.put(f"const int b_row = columns > {line} ? {width} : {line};")
        whole = -(-outputs // line) * line
        group = multiply("group", str(depth * whole)) if self.grouped else "0"
        weights = add(spec.weight, group, multiply("panel", str(depth * width)))
        out.put(f"const {self.ctype} *const weights = {weights};")

    def segments(self, width: int, panels: int, plane: str) -> None:
        """64 pixels of a row at a time: the tiles, turned into rows of channels; the epilogue."""
        spec, out = self.spec, self.out
        start = "pixel_0" if self.joined else "ow_0"
        row = "0" if self.joined else multiply("oh", str(spec.stride[0]), self.pitch)
        with out.block(f"for (int64_t {start} = 0; {start} < {self.out_w}; {start} += {SEGMENT})"):
            self.declare_pixels(start)
            out.put("const int tiles = (pixels + TILE_ROWS - 1) / TILE_ROWS;")
            with out.block("for (int tile_index = 0; tile_index < tiles; tile_index++)"):
                out.put("const int first = tile_index * pixels / tiles;")
                out.put("const int count = (tile_index + 1) * pixels / tiles - first;")
                pixel = add("image", row, multiply(f"({start} + first)", str(spec.stride[1])))
                out.put(f"sum_tile_{self.ctype}(count, columns, {spec.group_inputs}, {self.taps},")
                out.put(f"    {pixel}, {plane}, tap, {spec.stride[1]}, weights, b_row, tile);")
                out.put(f"copy_transposed_{self.ctype}(16, b_row, tile, {width},")
                out.put(f"    turned + first, {TURNED});")
            if self.joined:
                put_first(out, spec, start)
            with out.block("for (int j = 0; j < columns; j++)"):
                group = multiply("group", str(spec.group_outputs)) if self.grouped else "0"
                panel = multiply("panel", str(width)) if panels > 1 else "0"
                out.put(f"const int64_t k = {add(group, panel, 'j')};")
                element = f"turned[j * {TURNED} + i]"
                if self.joined:
                    put_rows(out, spec, element, "i", start, "pixels")
                else:
                    self.put_row(element, start, "pixels")


class Pixels(_Direct):
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
        own = self.grouped or self.step > 1
        size = multiply(str(self.step), atom(rows), atom(pitch))
        self.slice = add(multiply(str(spec.group_inputs), size), "32")
        item = str(ITEM_BYTES[self.ctype])
        out.put(f"{self.ctype} *const padded = workspace;")
        if self.threads:
            out.put(f"#pragma omp parallel {self.team}")
            out.put("{")
            out.depth += 1
        if own:
            workspace = multiply("n_threads" if self.threads else "1", self.slice, item)
            self.convolve_own()
        else:
            workspace = multiply(spec.n, str(spec.c), size, item)
            self.pad_images(self.rows, self.pitch)
            self.convolve_shared()
        if self.threads:
            out.depth -= 1
            out.put("}")
        place = f"4 rows x {SEGMENT}" if self.mode == "rows" else f"{SEGMENT}"
        note = (
            f"{spec.r}x{spec.s}, {spec.c} -> {spec.k} channels in {spec.groups} groups; tiles of"
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
                self.copy_row()
            with out.loops([*self.block_loop(), *self.row_loop()]):
                self.tile()

    def copy_row(self) -> None:
        """Row i of a channel, its columns sorted by their remainder modulo the stride."""
        spec, out, step = self.spec, self.out, self.step
        several = spec.group_inputs > 1
        channel = add(self.first_channel(), "c" if several else "0")
        source = add(spec.x, multiply(f"({add(multiply(channel, spec.h), 'i')})", spec.w))
        out.put(f"const {self.ctype} *const from = {source};")
        row = multiply(add("i", str(spec.padding[0])), self.pitch)
        start = add("image", multiply("c", self.plane) if several else "0", row)
        out.put(f"{self.ctype} *const to = {start};")
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
            out.put(f"for (int64_t j = 0; j < {count}; j++)")
            out.put(
                f"    to[{add(column, 'j')}] = from[{add(multiply('j', str(step)), str(first))}];"
            )

    def convolve_shared(self) -> None:
        """All images lie padded in the workspace."""
        spec, out = self.spec, self.out
        loops = [("n", spec.n), *self.block_loop(), *self.row_loop()]
        with out.loops(loops, self.pragma("omp for", len(loops))):
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
        call = f"sum_segment_{self.ctype}({outputs}, {pixels}, {spec.group_inputs}, {self.taps},"
        self.out.put(call)
        self.out.put(f"    {start}, {self.plane}, tap, {place_step}, weights, sums, {sums_step});")

    def put_channel(self, step: int, blocks: int) -> None:
        group = multiply("group", str(self.spec.group_outputs)) if self.grouped else "0"
        block = multiply("block", str(step)) if blocks > 1 else "0"
        self.out.put(f"const int64_t k = {add(group, block, 'o')};")

    def finish_plane(self, channels: str, step: int, blocks: int) -> None:
        """The epilogue over a small image."""
        out = self.out
        with out.block(f"for (int o = 0; o < {channels}; o++)"):
            self.put_channel(step, blocks)
            with out.block(f"for (int64_t oh = 0; oh < {self.out_h}; oh++)"):
                self.put_row(f"sums[o * {SEGMENT} + oh * {self.pitch} + i]", "0", self.out_w)

    def finish_rows(self, channels: str, step: int, blocks: int) -> None:
        """The epilogue over a segment of four rows, or of one."""
        out = self.out
        with out.block(f"for (int o = 0; o < {channels}; o++)"):
            self.put_channel(step, blocks)
            if self.mode == "line":
                out.put("const int64_t oh = 0;")
                self.put_row(f"sums[o * {SEGMENT} + i]", "ow_0", "pixels")
                return
            out.put("for (int p = 0; p < 4; p++) {")
            out.depth += 1
            out.put("const int64_t oh = row_4 * 4 + p;")
            if not (self.out_h.isdecimal() and int(self.out_h) % 4 == 0):
                out.put(f"if (oh >= {self.out_h})")
                out.put("    break;")
            self.put_row(f"sums[(o * 4 + p) * {SEGMENT} + i]", "ow_0", "pixels")
            out.depth -= 1
            out.put("}")
