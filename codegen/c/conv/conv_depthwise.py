"""Printing the loops of a convolution by the plan "depthwise" of `conv_plan`.

Each image of one channel is a task. Tiles of some rows (see `tiles/depthwise.h`) go through an
array of the thread to the epilogue. The image is read where it is; vectors reach past the ends of
its rows, so the first and last images of the input are read from a copy with room around it.
"""

from __future__ import annotations

from fxlite.codegen.c.conv.conv_direct import Direct, conv_function
from fxlite.codegen.c.product.gemm import Rendered
from fxlite.codegen.c.product.packed_operands import ITEM_BYTES
from fxlite.codegen.c.text.template_text import add, atom, multiply
from fxlite.codegen.c.tiles.library import constant

MOST_TILE_ROWS = constant("depthwise", "MOST_PLACES")


class Depthwise(Direct):
    """Tiles of rows of one channel."""

    def render(self) -> Rendered:
        spec, out = self.spec, self.out
        lanes = 64 // ITEM_BYTES[self.ctype]
        height, width = self.out_h, self.out_w
        self.tile_rows = tile_rows(height)
        # How far before an image the first vector of its first row starts, and how far behind it
        # the last vector of the last row ends.
        self.before = spec.padding[1]
        self.after = max(lanes * spec.stride[1] + spec.s, spec.padding[3] + spec.stride[1])
        sums = add(multiply(str(self.tile_rows), atom(width)), str(2 * lanes))
        image = add(multiply(spec.h, spec.w), str(self.before + self.after + lanes))
        size = add(sums, image)
        self.out_h, self.out_w = self.declare("out_h", height), self.declare("out_w", width)
        if not (height.isdecimal() and width.isdecimal()):
            out.put(f"if ({self.out_h} <= 0 || {self.out_w} <= 0)")
            out.put("    return;")
        if self.threads:
            out.put(f"#pragma omp parallel {self.team}")
            out.put("{")
            out.depth += 1
        self.convolve(sums, size)
        if self.threads:
            out.depth -= 1
            out.put("}")
        note = (
            f"{spec.r}x{spec.s}, each of {spec.c} channels by itself; tiles of {self.tile_rows}"
            " output rows of a vector of pixels."
        )
        workspace = multiply(
            "n_threads" if self.threads else "1", f"({size})", str(ITEM_BYTES[self.ctype])
        )
        extra = ("workspace", "n_threads") if self.threads else ("workspace",)
        return conv_function(spec, note, out.lines, workspace, extra)

    def convolve(self, sums: str, size: str) -> None:
        """The loop over images of one channel, and over tiles of rows."""
        spec, out, rows = self.spec, self.out, self.tile_rows
        thread = f" + this_thread() * {atom(size)}" if self.threads else ""
        out.put(f"{self.ctype} *const sums = ({self.ctype} *)workspace{thread};")
        out.put(f"{self.ctype} *const copy = sums + {atom(sums)};")
        loops = [("n", spec.n), ("k", str(spec.k))]
        with out.loops(loops, self.pragma("omp for", 2)):
            plane = multiply(spec.h, spec.w)
            count = multiply(spec.n, str(spec.c), plane)
            start = multiply(f"(n * {spec.c} + k)", plane)
            out.put(f"const {self.ctype} *const image = readable_image_{self.ctype}(")
            out.put(f"    {spec.x}, {count}, {start}, {plane}, {self.before}, {self.after}, copy);")
            with out.block(f"for (int64_t oh_0 = 0; oh_0 < {self.out_h}; oh_0 += {rows})"):
                down, across = spec.stride
                above, before = (f" - {p}" if p else "" for p in spec.padding[:2])
                top, left = f"{multiply('oh_0', str(down))}{above}", before.replace(" ", "") or "0"
                kernel = f"{rows}, {spec.r}, {spec.s}, {down}, {across}"
                out.put(
                    f"sum_depthwise_rows_{self.ctype}({kernel}, image, {spec.h}, {spec.w}, "
                    f"{top}, {left}, {spec.weight} + k * {spec.r * spec.s}, {self.out_w}, sums);"
                )
                self.finish()

    def finish(self) -> None:
        """The epilogue over a tile's rows."""
        out, rows = self.out, self.tile_rows
        count = str(rows)
        if not (self.out_h.isdecimal() and int(self.out_h) % rows == 0):
            rest = f"{self.out_h} - oh_0"
            out.put(f"const int64_t rows = {rest} < {rows} ? {rest} : {rows};")
            count = "rows"
        if self.spec.joinable:
            out.put("#pragma omp simd")
            with out.block(f"for (int64_t i = 0; i < {multiply(count, self.out_w)}; i++)"):
                out.put(f"const int64_t ow = {multiply('oh_0', self.out_w)} + i;")
                out.put(self.spec.epilogue("sums[i]", "n", "k", "0", "ow"))
            return
        with out.block(f"for (int64_t p = 0; p < {count}; p++)"):
            out.put("const int64_t oh = oh_0 + p;")
            self.put_row(f"sums[p * {atom(self.out_w)} + i]", "0", self.out_w)


def tile_rows(out_h: str) -> int:
    """Output rows of a tile: so that all tiles together read few rows, two of them twice each."""
    if not out_h.isdecimal():
        return 4
    height = int(out_h)
    return min(
        range(min(height, MOST_TILE_ROWS), 0, -1),
        key=lambda rows: -(-height // rows) * (rows + 2),
    )
