"""C text of attention for many queries: tiles of queries times blocks of keys."""

from __future__ import annotations

from fxlite.codegen.c.attention.attention_plan import (
    MOST_ROWS,
    AttentionSpec,
    attention_function,
    items,
    keys_per_block,
    masked,
    put_element,
    put_inverse,
    team,
)
from fxlite.codegen.c.product.gemm import Operand, Rendered
from fxlite.codegen.c.product.packed_operands import ITEM_BYTES, panel_columns
from fxlite.codegen.c.text.template_text import Lines, add, atom, mentions, multiply, round_up
from fxlite.codegen.c.tiles.library import constant
from fxlite.codegen.kernel.builder import symbol, text_of
from fxlite.scalar.index import Index

BLOCK_TILES = constant("attention", "BLOCK_TILES")


class Tiles:
    """The function of the plan "tiles" while it is printed."""

    def __init__(self, spec: AttentionSpec) -> None:
        self.spec, self.out = spec, Lines()
        self.width = panel_columns(spec.ctype)
        self.block = keys_per_block(spec)
        self.score_pitch = str(self.block + 16)  # rows are kept off multiples of 4 KiB
        self.q_pitch = add(round_up(spec.features, 16), "16")
        self.v_pitch = round_up(spec.columns, self.width)
        block_rows = str(MOST_ROWS * BLOCK_TILES)
        self.parts = (  # of a thread's memory
            ("k_panels", multiply(spec.features, str(self.block))),
            ("v_panels", multiply(self.v_pitch, str(self.block))),
            ("scores", multiply(str(MOST_ROWS), self.score_pitch)),
            ("q_rows", multiply(str(MOST_ROWS), self.q_pitch)),
            ("sums", multiply(block_rows, self.v_pitch)),
            ("highest", block_rows),
            ("totals", block_rows),
        )
        self.share = round_up(add(*(size for _, size in self.parts), "32"), 16)

    def render(self) -> Rendered:
        spec, out = self.spec, self.out
        out.put(f"const int64_t row_tiles = ({add(spec.rows, 'TILE_ROWS')} - 1) / TILE_ROWS;")
        blocks = f"count_query_blocks(row_tiles, {items(spec)}, n_threads)"
        out.put(f"const int64_t row_blocks = {blocks};")
        loops = [*spec.batch, ("row_block", "row_blocks")]
        pragma = f"omp parallel for collapse({len(loops)}) schedule({self.schedule()})"
        with out.loops(loops, f"#pragma {pragma} {team(spec)}"):
            self.declare_block()
            with out.block(
                f"for (int64_t key_0 = 0; key_0 < {self.end_key}; key_0 += {self.block})"
            ):
                self.pack_block()
                with out.block("for (int64_t tile_index = first_tile; tile_index < end_tile; "
                               "tile_index++)"):  # fmt: skip
                    self.declare_tile()
                    self.score()
                    self.sum_values()
            self.finish()
        workspace = multiply("n_threads", self.share, str(ITEM_BYTES[spec.ctype]))
        return attention_function(
            spec, self.note(), out.lines, workspace, ("workspace", "n_threads")
        )

    def note(self) -> str:
        spec = self.spec
        return (
            f"{spec.rows} queries and {spec.keys} keys of {spec.features}, values of "
            f"{spec.columns}; tiles of TILE_ROWS queries,\n"
            f"blocks of {self.block} keys, which stay in the second-level cache.\n"
            "From block to block sums are rescaled to the highest score so far."
        )

    def schedule(self) -> str:
        """Later rows have more keys where attention is causal."""
        return "dynamic" if self.spec.causal else "static"

    @property
    def end_key(self) -> str:
        return "end_key" if self.spec.causal else atom(self.spec.keys)

    def declare_block(self) -> None:
        """The operands of this batch item, the thread's memory, the rows of this block."""
        spec, out, rows = self.spec, self.out, atom(self.spec.rows)
        for name, operand in (("q_item", spec.q), ("k_item", spec.k), ("v_item", spec.v)):
            first = operand.start()
            out.put(f"const {spec.ctype} *const {name} = {first};")
        start = f"({spec.ctype} *)workspace + {multiply('this_thread()', self.share)}"
        out.put("/* This thread's part of the workspace. */")
        for name, size in self.parts:
            out.put(f"{spec.ctype} *const {name} = {start};")
            start = add(name, size)
        out.put("const int64_t first_tile = row_block * row_tiles / row_blocks;")
        out.put("const int64_t end_tile = (row_block + 1) * row_tiles / row_blocks;")
        out.put(f"const int64_t first_row = first_tile * {rows} / row_tiles;")
        out.put(f"const int64_t end_row = end_tile * {rows} / row_tiles;")
        out.put("for (int64_t i = 0; i < end_row - first_row; i++)")
        out.put("    highest[i] = -INFINITY, totals[i] = 0;")
        out.put(f"for (int64_t i = 0; i < (end_row - first_row) * {atom(self.v_pitch)}; i++)")
        out.put("    sums[i] = 0;")
        if spec.causal:
            keys = atom(spec.keys)
            out.put("/* Keys after a row are left out, unless their weight, 0, times an infinite")
            out.put(" * or NaN value is NaN. */")
            v = f"v_item, {text_of(spec.v.row_stride)}, {text_of(spec.v.col_stride)}"
            out.put(f"const bool skips = all_finite_{spec.ctype}({keys}, {spec.columns}, {v});")
            out.put(f"const int64_t end_key = skips && end_row < {keys} ? end_row : {keys};")

    def pack_block(self) -> None:
        """Keys, transposed, and values as panels."""
        spec, out = self.spec, self.out
        rest = f"{self.end_key} - key_0"
        out.put(f"const int64_t keys = {rest} < {self.block} ? {rest} : {self.block};")
        k, v = spec.k, spec.v
        start = f"k_item + {text_of(symbol('key_0') * k.row_stride)}"
        out.put(
            f"pack_panels_{spec.ctype}({spec.features}, keys, {start}, "
            f"{text_of(k.col_stride)}, {text_of(k.row_stride)}, k_panels);"
        )
        start = f"v_item + {text_of(symbol('key_0') * v.row_stride)}"
        out.put(
            f"pack_panels_{spec.ctype}(keys, {spec.columns}, {start}, "
            f"{text_of(v.row_stride)}, {text_of(v.col_stride)}, v_panels);"
        )

    def declare_tile(self) -> None:
        """The rows of this tile, scaled, and how many keys they read."""
        spec, out, rows = self.spec, self.out, atom(self.spec.rows)
        out.put(f"const int64_t row_0 = tile_index * {rows} / row_tiles;")
        out.put(f"const int rows = (tile_index + 1) * {rows} / row_tiles - row_0;")
        if spec.causal:
            out.put("const int64_t before = row_0 + rows - key_0;")
            out.put("const int64_t tile_keys = skips && before < keys ? before : keys;")
            out.put("if (tile_keys <= 0)\n    continue;")
        out.put(f"{spec.ctype} tile[TILE_ROWS * {self.width}], rescale[TILE_ROWS];")
        out.put("/* Scaled queries, their scores, weights and weighted values. */")
        with out.block("for (int64_t i = 0; i < rows; i++)"):
            out.put("#pragma omp simd")
            out.put(f"for (int64_t feature = 0; feature < {spec.features}; feature++)")
            place = add(multiply("i", self.q_pitch), "feature")
            q = Operand("q_item", Index.of(0), spec.q.row_stride, spec.q.col_stride)
            element = q.at(symbol("row_0") + symbol("i"), symbol("feature"))
            out.put(f"    q_rows[{place}] = {element} * {atom(spec.scale)};")

    @property
    def tile_keys(self) -> str:
        return "tile_keys" if self.spec.causal else "keys"

    def columns(self, extent: str) -> None:
        """The columns of the panel that begins at column_0."""
        if extent.isdecimal() and int(extent) % self.width == 0:
            self.out.put(f"const int columns = {self.width};")
            return
        rest = f"{atom(extent)} - column_0"
        self.out.put(f"const int columns = {rest} < {self.width} ? {rest} : {self.width};")

    def score(self) -> None:
        """The tile's scores, masked."""
        spec, out, width = self.spec, self.out, self.width
        with out.block(
            f"for (int64_t column_0 = 0; column_0 < {self.tile_keys}; column_0 += {width})"
        ):
            self.columns(self.tile_keys)
            panel = add("k_panels", multiply("column_0", spec.features))
            out.put(
                f"multiply_tile_{spec.ctype}(rows, columns, {spec.features}, q_rows, "
                f"{self.q_pitch}, {panel}, tile);"
            )
            score = masked(spec, f"tile[i * {width} + j]")
            with out.block("for (int64_t i = 0; i < rows; i++)"):
                if mentions(score, "row"):
                    out.put("const int64_t row = row_0 + i;")
                out.put("#pragma omp simd")
                with out.block("for (int64_t j = 0; j < columns; j++)"):
                    if mentions(score, "key"):
                        out.put("const int64_t key = key_0 + column_0 + j;")
                    out.put(f"scores[i * {self.score_pitch} + column_0 + j] = {score};")

    def sum_values(self) -> None:
        """Scores become weights, and the weighted values join the sums."""
        spec, out, width, pitch = self.spec, self.out, self.width, self.score_pitch
        out.put("const int64_t place = row_0 - first_row;")
        out.put("for (int64_t i = 0; i < rows; i++)")
        weights = f"soften_{spec.ctype}({self.tile_keys}, scores + i * {pitch}"
        out.put(f"    rescale[i] = {weights}, highest + place + i, totals + place + i);")
        with out.block(
            f"for (int64_t column_0 = 0; column_0 < {spec.columns}; column_0 += {width})"
        ):
            self.columns(spec.columns)
            out.put(
                f"multiply_tile_{spec.ctype}(rows, columns, {self.tile_keys}, scores, {pitch}, "
                f"v_panels + column_0 * keys, tile);"
            )
            with out.block("for (int64_t i = 0; i < rows; i++)"):
                row = add(multiply("(place + i)", self.v_pitch), "column_0")
                out.put(f"{spec.ctype} *const sum = {add('sums', row)};")
                out.put("#pragma omp simd")
                out.put("for (int64_t j = 0; j < columns; j++)")
                out.put(f"    sum[j] = sum[j] * rescale[i] + tile[i * {width} + j];")

    def finish(self) -> None:
        """The sums, divided by those of the weights, go through the epilogue."""
        spec, out = self.spec, self.out
        with out.block("for (int64_t row = first_row; row < end_row; row++)"):
            out.put(f"const {spec.ctype} total = totals[row - first_row];")
            put_inverse(out, spec)
            out.put("#pragma omp simd")
            with out.block(f"for (int64_t column = 0; column < {spec.columns}; column++)"):
                at = add(multiply("(row - first_row)", self.v_pitch), "column")
                put_element(out, spec, f"sums[{at}]")
