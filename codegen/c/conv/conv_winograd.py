"""Printing the loops of a convolution by the plan "winograd" of `conv_plan`.

A block of rows of tiles at a time, in three steps with all threads: the image's rows are turned
round, channels last (or read in place, if they are stored so); each tile is transformed to its
points; and for a panel of output channels and a group of at most 64 output pixels of a row (or of
several short rows) the points are multiplied with the weights, transformed back and given to the
epilogue.
"""

from __future__ import annotations

from fxlite.codegen.c.conv.conv_direct import Direct, conv_function, put_tile
from fxlite.codegen.c.conv.conv_plan import SEGMENT, ConvSpec, input_planes, reads_pairs
from fxlite.codegen.c.conv.winograd_matrices import Tile, input_matrix, output_matrix
from fxlite.codegen.c.product.gemm import Rendered
from fxlite.codegen.c.product.packed_operands import panel_columns
from fxlite.codegen.c.text.template_text import Lines, add, atom, divide_up, multiply

POINTS_PAD = 16
"""Floats between the planes of the points: keeps them off multiples of 4 KiB, which would fall into
the same lines of the first-level cache."""


def render_winograd(spec: ConvSpec, m: Tile) -> Rendered:
    """Print the function of a 3x3 convolution of stride 1 with float elements."""
    return _Winograd(spec, m).render()


class _Winograd(Direct):
    def __init__(self, spec: ConvSpec, m: Tile) -> None:
        super().__init__(spec)
        self.m = m
        self.side = m + 2
        self.panel = panel_columns(spec.ctype)
        self.panels = -(-spec.k // self.panel)
        self.channels = str(-(-spec.c // 16) * 16)  # whole vectors on every target
        # The points, and how many of them one tile has at each: floats, or pairs of bf16.
        self.pairs = reads_pairs(spec)
        self.item_type = "uint32_t" if self.pairs else "float"
        self.items = str(int(self.channels) // 2) if self.pairs else self.channels
        self.suffix = f"{m}_bf16" if self.pairs else f"{m}"
        self.tile_rows = "PAIR_ROWS" if self.pairs else "TILE_ROWS"

    def render(self) -> Rendered:
        spec, out, m = self.spec, self.out, self.m
        workspace = self.declare_sizes()
        blocks = "for (int64_t row_0 = 0; row_0 < tiles_down; row_0 += block_rows)"
        with out.loops([("n", spec.n)]), out.block(blocks):
            out.put("const int64_t rest = tiles_down - row_0;")
            out.put("const int64_t rows = rest < block_rows ? rest : block_rows;")
            self.turn_pixels()
            self.transform_tiles()
            self.multiply_points()
        note = (
            f"3x3, {spec.c} -> {spec.k} channels; Winograd's F({m}x{m}, 3x3): {self.side**2}"
            f" products for {m * m} pixels instead of {9 * m * m}.\n"
            "As many rows of tiles at once as have points for half of the second-level cache; "
            f"{self.panels} x {self.panel} output channels."
        )
        if self.pairs:
            note += "\nThe points are rounded to bf16, in pairs of channels; sums are float."
        extra = ("workspace", "n_threads") if self.threads else ("workspace",)
        return conv_function(spec, note, out.lines, workspace, extra)

    def declare_sizes(self) -> str:
        """Sizes, and the two parts of the workspace; returns its size in bytes."""
        spec, out, m = self.spec, self.out, self.m
        points = str(self.side**2)
        out_h, out_w = self.out_h, self.out_w
        down, across = atom(divide_up(out_h, m)), atom(divide_up(out_w, m))
        row_bytes = multiply(across, self.items, points, "4")
        block = f"winograd_block_rows({down}, {row_bytes})"
        self.out_h, self.out_w = self.declare("out_h", out_h), self.declare("out_w", out_w)
        if not (self.out_h.isdecimal() and self.out_w.isdecimal()):
            out.put(f"if ({self.out_h} <= 0 || {self.out_w} <= 0)")
            out.put("    return;")
        out.put(f"const int64_t tiles_down = {down}, tiles_across = {across};")
        out.put("/* Tiles in a group: of one row, or all tiles of so many short rows. */")
        out.put(f"const int64_t across = tiles_across < {SEGMENT // m} ? tiles_across : "
                f"{SEGMENT // m};")  # fmt: skip
        out.put(f"const int64_t pitch = (across * {m} + 15) / 16 * 16;")
        out.put(f"const int64_t group_rows = {SEGMENT} / pitch;")
        out.put("const int64_t groups_across = (tiles_across + across - 1) / across;")
        out.put(f"const int64_t block_rows = {block};")
        turned = f"(block_rows * {m} + 2) * {atom(spec.w)} * {self.channels}"
        out.put(f"const int64_t point_step = block_rows * tiles_across * {self.items}"
                f" + {POINTS_PAD};")  # fmt: skip
        if spec.x_last:
            out.put(f"{self.item_type} *const points = workspace;")
        elif self.pairs:
            out.put("float *const pixels = workspace;")
            out.put(f"uint32_t *const points = (uint32_t *)(pixels + {turned});")
        else:
            out.put(f"float *const pixels = workspace, *const points = pixels + {turned};")
        out.put(f"int32_t *const finite = (int32_t *)(points + {points} * point_step);")
        out.put(f"static const float zeros[{self.channels}] = {{0}};")
        rows = multiply(f"({multiply(block, str(m))} + 2)", spec.w, self.channels)
        rows = "0" if spec.x_last else rows
        planes = multiply(points, add(multiply(block, across, self.items), str(POINTS_PAD)))
        return multiply(add(rows, planes, multiply(block, across)), "4")

    def first_row(self) -> str:
        """The image's row under the first row of the block's tiles; may be negative."""
        top = self.spec.padding[0]
        return f"row_0 * {self.m}" + (f" - {top}" if top else "")

    def turn_pixels(self) -> None:
        """pixels[row - from][column][channel] of the rows under the block."""
        spec, out = self.spec, self.out
        if spec.x_last:
            out.put(f"const int64_t from = 0, to = {spec.h};")
            image = add(spec.x, multiply("n", spec.h, spec.w, str(spec.c)))
            out.put(f"const float *const pixels = {image};")
            return
        out.put("/* The image's rows under these tiles, channels last. */")
        out.put(f"int64_t from = {self.first_row()}, to = from + rows * {self.m} + 2;")
        out.put("from = from > 0 ? from : 0;")
        out.put(f"to = to < {spec.h} ? to : {spec.h};")
        w = atom(spec.w)
        with out.loops([("chunk", f"((to - from) * {w} + 63) / 64")], self.parallel(1)):
            out.put(f"const int64_t left = (to - from) * {w} - chunk * 64;")
            out.put("const int count = left < 64 ? (int)left : 64;")
            out.put(f"float *const turned = pixels + chunk * 64 * {self.channels};")
            plane = multiply(spec.h, spec.w)
            source = add(spec.x, multiply("n", str(spec.c), plane), f"from * {w}", "chunk * 64")
            out.put(
                f"copy_transposed_float({spec.c}, count, {source}, {plane}, turned, "
                f"{self.channels});"
            )
            if spec.c % 16:
                out.put("for (int i = 0; i < count; i++)")
                out.put(f"    for (int c = {spec.c}; c < {self.channels}; c++)")
                out.put(f"        turned[i * {self.channels} + c] = 0;")

    def transform_tiles(self) -> None:
        """points[p][tile][channel] of the block's tiles."""
        spec, out = self.spec, self.out
        out.put("/* The points of each tile. */")
        with out.loops([("tile", "rows * tiles_across")], self.parallel(1)):
            self.find_pixels("tile / tiles_across", "tile % tiles_across")
            target = f"points + tile * {self.items}"
            call = f"winograd_input_{self.suffix}({spec.c}, pixel, {target}, point_step)"
            out.put(f"finite[tile] = {call};")

    def find_pixels(self, row: str, column: str) -> None:
        """The addresses of the pixels under the tile in this row of the block and column."""
        spec, out, m, side = self.spec, self.out, self.m, self.side
        left = f" - {spec.padding[1]}" if spec.padding[1] else ""
        out.put(f"const float *pixel[{side * side}];")
        top = f"({row}) * {m} + {self.first_row()}"
        out.put(
            f"find_tile_pixels({side}, {top}, {column} * {m}{left}, from, to, {spec.w}, "
            f"{self.channels}, pixels, zeros, pixel);"
        )

    def multiply_points(self) -> None:
        """Products, the transform back, the epilogue."""
        spec, out, m, side, panel = self.spec, self.out, self.m, self.side, self.panel
        group_count = "(rows + group_rows - 1) / group_rows * groups_across"
        out.put("/* Times the weights, and back to pixels. */")
        loops = [("panel", str(self.panels)), ("group", group_count)]
        with out.loops(loops, self.parallel(2)):
            if spec.k % panel == 0 or self.panels == 1:
                out.put(f"const int columns = {min(spec.k, panel)};")
            else:
                rest = f"{spec.k} - panel * {panel}"
                out.put(f"const int columns = {rest} < {panel} ? {rest} : {panel};")
            depth = input_planes(spec)
            size = side * side * depth * panel
            out.put(f"const {self.item_type} *const weights = {spec.weight} + panel * {size};")
            out.put("const int64_t row_1 = group / groups_across * group_rows;")
            out.put("const int64_t tile_1 = group % groups_across * across;")
            out.put("const int64_t down = rows - row_1 < group_rows ? rows - row_1 : group_rows;")
            rest = "tiles_across - tile_1"
            out.put(f"const int64_t width = {rest} < across ? {rest} : across;")
            out.put("const int64_t first = row_1 * tiles_across + tile_1;")
            out.put("const int count = (int)(down * width);")
            out.put(f"float products[{side * side}][{self.tile_rows} * {panel}], "
                    f"square[{SEGMENT * m} * {panel}];")  # fmt: skip
            if not spec.y_last:
                out.put(f"float turned[{panel} * {SEGMENT}];")
            out.put(f"const int parts = (count + {self.tile_rows} - 1) / {self.tile_rows};")
            if self.pairs:
                out.put("take_tiles();")
            with out.block("for (int part = 0; part < parts; part++)"):
                out.put("const int start = part * count / parts;")
                out.put("const int tiles = (part + 1) * count / parts - start;")
                with out.block(f"for (int p = 0; p < {side * side}; p++)"):
                    out.put(
                        f"multiply_tile_{'bf16' if self.pairs else 'float'}"
                        f"(tiles, columns, {depth}, "
                        f"points + p * point_step + (first + start) * {self.items}, "
                        f"{self.items}, weights + p * {depth * panel}, products[p]);"
                    )
                with out.block("for (int i = 0; i < tiles; i++)"):
                    out.put("const int64_t row = (start + i) / width, tile = (start + i) % width;")
                    place = f"square + (row * pitch + tile) * {m * panel}, pitch * {panel}"
                    out.put(
                        f"winograd_output_{m}(columns, &products[0][i * {panel}], "
                        f"{self.tile_rows} * {panel}, {place});"
                    )
                    with out.block("if (!finite[first + start + i])"):
                        self.find_pixels("row_1 + row", "(tile_1 + tile)")
                        out.put(
                            f"winograd_direct_{self.suffix}(columns, {spec.c}, pixel, weights, "
                            f"{place});"
                        )
            if self.pairs:
                out.put("release_tiles();")
            self.finish()

    def finish(self) -> None:
        """The epilogue over the rows of pixels of a group."""
        spec, out, m, panel = self.spec, self.out, self.m, self.panel
        out.put(f"const int64_t ow_0 = tile_1 * {m}, oh_0 = (row_0 + row_1) * {m};")
        rest = f"{self.out_w} - ow_0"
        out.put(f"const int pixels_here = {rest} < width * {m} ? {rest} : width * {m};")
        condition = f"i_0 < down * {m} && oh_0 + i_0 < {self.out_h}"
        with out.block(f"for (int64_t i_0 = 0; {condition}; i_0++)"):
            out.put("const int64_t oh = oh_0 + i_0;")
            if spec.y_last:
                first = multiply("panel", str(panel)) if self.panels > 1 else "0"
                element = f"square[(i_0 * pitch + i) * {panel} + j]"
                put_tile(out, spec, element, "pixels_here", "columns", first)
                return
            whole = panel if spec.k > panel // 2 else panel // 2
            out.put(f"copy_transposed_float(pitch, {whole}, square + i_0 * pitch * {panel}, "
                    f"{panel}, turned, {SEGMENT});")  # fmt: skip
            with out.block("for (int64_t j = 0; j < columns; j++)"):
                out.put(f"const int64_t k = {multiply('panel', str(panel))} + j;")
                self.put_row(f"turned[j * {SEGMENT} + i]", "ow_0", "pixels_here")


def put_winograd_sum(out: Lines, spec: ConvSpec, m: Tile, weight_index: str) -> None:
    """Declare the sum of one output element by plain loops: from the packed points of the weights,
    with the matrices of the transforms."""
    side = m + 2
    for name, matrix in (("b", input_matrix(m)), ("a", output_matrix(m))):
        rows = ", ".join("{" + ", ".join(map(repr, row)) + "}" for row in matrix.tolist())
        out.put(f"static const double {name}[{len(matrix)}][{side}] = {{{rows}}};")
    out.put("double sum = 0;")
    with out.loops([("c", str(spec.c)), ("point", str(side * side))]):
        out.put("double value = 0;")
        with out.loops([("r", str(side)), ("s", str(side))]):
            out.put(f"const int64_t i = oh / {m} * {m} + r - {spec.padding[0]};")
            out.put(f"const int64_t j = ow / {m} * {m} + s - {spec.padding[1]};")
            out.put("if (i >= 0 && i < h && j >= 0 && j < w)")
            factors = f"b[point / {side}][r] * b[point % {side}][s]"
            place = f"((n * {spec.c} + c) * h + i) * w + j"
            if spec.x_last:
                place = f"((n * h + i) * w + j) * {spec.c} + c"
            out.put(f"    value += {factors} * {atom(spec.x)}[{place}];")
        out.put(f"const double back = a[oh % {m}][point / {side}] * a[ow % {m}][point % {side}];")
        value, weight = "value", f"{atom(spec.weight)}[{weight_index}]"
        if reads_pairs(spec):
            value, weight = "rounded_bf16((float)value)", f"half_of_pair({weight}, c % 2)"
        out.put(f"sum += back * {value} * {weight};")
