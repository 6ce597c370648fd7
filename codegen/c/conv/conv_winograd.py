"""Print the loops of a convolution by the plan "winograd" of `conv_plan`.

A block of rows of tiles is processed at a time, in three steps with all threads. First the image's rows
are converted to channels last (or read in place, if they are stored so). Then each tile is transformed
to its points. Finally, for a panel of output channels and a group of at most 64 output pixels of a row
(or of several short rows), the points are multiplied by the weights, transformed back and passed to the
epilogue.
"""

from __future__ import annotations

from contextlib import ExitStack

from fxlite.codegen.c.conv.conv_plan import SEGMENT, ConvSpec, Tile, input_planes, number, reads_pairs
from fxlite.codegen.c.conv.conv_walk import Axis, Walk, conv_function, finish, finish_tile
from fxlite.codegen.c.product.gemm_spec import panel_columns
from fxlite.codegen.kernel.builder import Pointer, Rendered, bare, divide_up, round_up, smaller, symbol
from fxlite.scalar.index import Index, extremum

POINTS_PAD = 16
"""Floats between the planes of the points, which keep them off multiples of 4 KiB: those would map to the same lines
of the first-level cache."""


class Winograd(Walk):
    """Blocks of rows of tiles of m x m pixels."""

    def __init__(self, spec: ConvSpec, m: Tile) -> None:
        super().__init__(spec)
        self.m = m
        self.side = m + 2
        self.points = self.side**2
        self.panel = panel_columns(spec.ctype)
        self.panels = -(-number(spec.k) // self.panel)
        self.channels = -(-number(spec.c) // 16) * 16  # whole vectors on every target
        # The number of points, and of elements per tile at each: floats, or pairs of bf16.
        self.pairs = reads_pairs(spec)
        self.item_type = "uint32_t" if self.pairs else "float"
        self.items = self.channels // 2 if self.pairs else self.channels
        self.suffix = f"{m}_bf16" if self.pairs else f"{m}"
        self.tile_rows = symbol("PAIR_ROWS" if self.pairs else "TILE_ROWS")

    def render(self) -> Rendered:
        """Print the function."""
        spec, body, m = self.spec, self.body, self.m
        workspace = self.declare_sizes()
        row, end = "row_0", bare(self.tiles_down)
        with body.loop("n", spec.n) as n, ExitStack() as stack:
            self.row_0 = Index.of(0)
            if self.block_rows != self.tiles_down:
                step = f"{row} += {bare(self.block_rows)}"
                stack.enter_context(body.block(f"for (int64_t {row} = 0; {row} < {end}; {step})"))
                self.row_0 = symbol(row, self.tiles_down - 1)
            self.rows = body.let("rows", smaller(self.tiles_down - self.row_0, self.block_rows))
            self.turn_pixels(n)
            self.transform_tiles()
            self.multiply_points(n)
        note = (
            f"3x3, {spec.c} -> {spec.k} channels; Winograd's F({m}x{m}, 3x3): {self.points}"
            f" products for {m * m} pixels instead of {9 * m * m}.\n"
            "Rows of tiles are computed together as long as their points fit in half of the "
            f"second-level cache; {self.panels} x {self.panel} output channels."
        )
        if self.pairs:
            note += "\nThe points are rounded to bf16, in pairs of channels; sums are float."
        return conv_function(spec, note, body, workspace)

    def declare_sizes(self) -> Index:
        """Declare sizes and the two parts of the workspace; returns its size in bytes."""
        spec, body, m = self.spec, self.body, self.m
        self.name_result()
        if self.out_h.constant is None or self.out_w.constant is None:
            body.put(f"if ({bare(self.out_h)} <= 0 || {bare(self.out_w)} <= 0)\n    return;")
        self.tiles_down = self.name("tiles_down", divide_up(self.out_h, m))
        self.tiles_across = self.name("tiles_across", divide_up(self.out_w, m))
        if self.tiles_across.constant is None:
            body.comment("Tiles in a group: of one row, or all tiles of so many short rows.")
        self.across = self.name("across", smaller(self.tiles_across, SEGMENT // m))
        self.pitch = self.name("pitch", round_up(self.across * m, 16))
        self.group_rows = self.name("group_rows", Index.of(SEGMENT) // self.pitch)
        groups_across = divide_up(self.tiles_across, self.across)
        self.groups_across = self.name("groups_across", groups_across)
        self.block_rows = self.declare_block_rows()
        points_size = self.block_rows * self.tiles_across * self.items + POINTS_PAD
        self.point_step = self.name("point_step", points_size)
        turned = Index.of(0) if spec.x_last else (self.block_rows * m + 2) * spec.w * self.channels
        workspace = Pointer("workspace")
        if not spec.x_last:
            body.pointer("float", "pixels", workspace)
            workspace = Pointer("pixels") + turned
        start = f"(uint32_t *)({workspace})" if self.pairs and not spec.x_last else workspace
        points = body.pointer(self.item_type, "points", start)
        body.pointer("int32_t", "finite", f"(int32_t *)({points + self.point_step * self.points})")
        body.assign(f"static const float zeros[{self.channels}]", "{0}")
        flags = self.block_rows * self.tiles_across
        return self.meaning((turned + self.point_step * self.points + flags) * 4)

    def declare_block_rows(self) -> Index:
        """How many rows of tiles have their points stored at once."""
        if self.tiles_down == 1:
            return Index.of(1)
        row_bytes = self.tiles_across * (self.items * self.points * 4)

        def call(*sizes: Index) -> str:
            return f"winograd_block_rows({', '.join(map(bare, sizes))})"

        panel_bytes = input_planes(self.spec) * (self.points * self.panel * 4)
        found = self.body.let("block_rows", call(self.tiles_down, row_bytes, Index.of(panel_bytes)))
        atom = found.single_atom
        assert atom is not None
        meant = self.meaning(self.tiles_down), self.meaning(row_bytes), Index.of(panel_bytes)
        self.meanings[atom] = symbol(call(*meant))
        return found

    def turn_pixels(self, n: Index) -> None:
        """Print pixels[row - from][column][channel] of the rows under the block."""
        spec, body = self.spec, self.body
        self.first_row = self.row_0 * self.m - spec.padding[0]
        self.start, self.end = Index.of(0), spec.h
        if spec.x_last:
            image = Pointer(spec.x) + n * (spec.h * spec.w * spec.c)
            body.pointer("const float", "pixels", image)
            return
        body.comment("The image's rows under these tiles, channels last.")
        last = self.first_row + self.rows * self.m + 2
        self.start = start = body.let("from", extremum("max", self.first_row, 0))
        self.end = body.let("to", smaller(last, spec.h))
        held = body.let("held", (self.end - start) * spec.w)
        with self.parallel(("chunk", divide_up(held, 64))) as (chunk,):
            count = body.let("count", smaller(held - chunk * 64, 64), "int")
            target = Pointer("pixels") + chunk * (64 * self.channels)
            turned = body.pointer("float", "turned", target)
            plane = spec.h * spec.w
            source = Pointer(spec.x) + (n * spec.c * plane + start * spec.w + chunk * 64)
            body.call("copy_transposed_float", spec.c, count, source, plane, turned, self.channels)
            if spec.c % 16:
                with body.loop("i", count) as i, body.loop("c", self.channels, spec.c) as c:
                    body.assign(turned[i * self.channels + c], "0")

    def transform_tiles(self) -> None:
        """Print points[p][tile][channel] of the block's tiles."""
        spec, body, across = self.spec, self.body, self.tiles_across
        body.comment("The points of each tile.")
        with self.parallel(("tile", self.rows * across)) as (tile,):
            self.find_pixels(tile // across, tile % across)
            target = Pointer("points") + tile * self.items
            call = f"winograd_input_{self.suffix}({spec.c}, pixel, {target}, "
            body.assign(Pointer("finite")[tile], f"{call}{bare(self.point_step)})")

    def find_pixels(self, row: Index, column: Index) -> None:
        """Print the addresses of the pixels under the tile in this row of the block and column."""
        m, left = self.m, self.spec.padding[1]
        self.body.declare(f"const float *pixel[{self.points}]")
        place = row * m + self.first_row, column * m - left, self.start, self.end
        self.body.call("find_tile_pixels", self.side, *place, self.spec.w, self.channels, "pixels", "zeros", "pixel")

    def multiply_points(self, n: Index) -> None:
        """Print products, the transform back, and the epilogue."""
        spec, body, m, panel = self.spec, self.body, self.m, self.panel
        depth = input_planes(spec)
        body.comment("Multiply by the weights, and transform back to pixels.")
        groups = divide_up(self.rows, self.group_rows) * self.groups_across
        with self.parallel(("panel", self.panels), ("group", groups)) as (number, group):
            columns = body.let("columns", smaller(spec.k - number * panel, panel), "int")
            start = Pointer(spec.weight) + number * (self.points * depth * panel)
            weights = body.pointer(f"const {self.item_type}", "weights", start)
            row_1 = body.let("row_1", group // self.groups_across * self.group_rows)
            tile_1 = body.let("tile_1", group % self.groups_across * self.across)
            down = body.let("down", smaller(self.rows - row_1, self.group_rows))
            width = body.let("width", smaller(self.tiles_across - tile_1, self.across))
            first = body.let("first", row_1 * self.tiles_across + tile_1)
            count = body.let("count", down * width, "int")
            most_tiles = SEGMENT // m
            step = most_tiles * panel + POINTS_PAD
            body.declare(f"float products[{self.points}][{step}], square[{SEGMENT * m * panel}]")
            if not spec.y_last:
                body.declare(f"float turned[{panel * SEGMENT}]")
            parts = body.let("parts", divide_up(count, self.tile_rows))
            if self.pairs:
                body.call("take_tiles")
            with body.loop("p", self.points) as p, body.loop("part", parts) as part:
                start_ = body.let("start", part * count // parts)
                tiles = body.let("tiles", (part + 1) * count // parts - start_, "int")
                points = Pointer("points") + (p * self.point_step + (first + start_) * self.items)
                own, name = weights + p * (depth * panel), "bf16" if self.pairs else "float"
                target = f"&products[{bare(p)}][{bare(start_ * panel)}]"
                body.call(f"multiply_tile_{name}", tiles, columns, depth, points, self.items, own, target)
            with body.loop("i", count) as i:
                row = body.let("row", i // width)
                tile = body.let("tile", i % width)
                place = Pointer("square") + (row * self.pitch + tile) * (m * panel)
                output = place, self.pitch * panel
                body.call(f"winograd_output_{m}", columns, f"&products[0][{bare(i * panel)}]", Index.of(step), *output)
                with body.block(f"if (!{Pointer('finite')[first + i]})"):
                    self.find_pixels(row_1 + row, tile_1 + tile)
                    body.call(f"winograd_direct_{self.suffix}", columns, spec.c, "pixel", weights, *output)
            if self.pairs:
                body.call("release_tiles")
            ow_0, oh_0 = tile_1 * m, (self.row_0 + row_1) * m
            pixels = smaller(self.out_w - ow_0, width * m)
            channel = Axis("k", number * panel, columns, "j")
            pixel = Axis("ow", ow_0, body.let("pixels_here", pixels, "int"), "i")
            rows_here = body.let("rows_here", smaller(down * m, self.out_h - oh_0))
            with body.loop("i_0", rows_here) as i_0:
                self.finish(n, body.let("oh", oh_0 + i_0), i_0, pixel, channel)

    def finish(self, n: Index, oh: Index, i_0: Index, pixel: Axis, channel: Axis) -> None:
        """Print the epilogue over a row of pixels of a group."""
        spec, body, panel = self.spec, self.body, self.panel
        square = Pointer("square") + i_0 * self.pitch * panel
        if spec.y_last:
            finish_tile(body, spec, square, panel, pixel, channel, n, oh)
            return
        whole = panel // 2 if spec.k <= panel // 2 else panel
        body.call("copy_transposed_float", self.pitch, whole, square, panel, "turned", SEGMENT)
        turned = Pointer("turned")
        finish(body, spec, lambda j, i: turned[j * SEGMENT + i], (channel, pixel), n=n, oh=oh)
