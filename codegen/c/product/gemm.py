"""C text of one matrix product: C[m, n] = sum over k of A[m, k] * B[k, n], with its epilogue.

In goes a `GemmSpec`: sizes and addresses as C expressions, and a callback that prints what happens
to a finished element. Out comes a `Rendered`: one ``static`` C function for that node, the bytes of
scratch it needs, and the parameters it takes beyond the caller's. The arithmetic is in the tile
functions of `tiles/matrix.h`; this file prints the loops around them:

- only where needed, A's rows are copied (a `prologue_a` is evaluated here, once per element);
- then come blocks of rows times panels of B, the tasks of the threads. A panel that was not packed
  when compiling is packed into memory of the thread's own, hot for its tiles and without a barrier.
  Each tile of rows is computed into a small array, and the epilogue runs over it in a simd loop;
  if K is short it runs in registers (`gemm_fused`). If K is long it may be cut (`gemm_long`).

"""

from __future__ import annotations

from collections.abc import Callable

from fxlite.codegen.c.product.gemm_function import gemm_function
from fxlite.codegen.c.product.gemm_fused import fused_call, is_fused
from fxlite.codegen.c.product.gemm_long import (
    declare_panel_blocks,
    long_plan,
    multiply_long,
    sums_items,
)
from fxlite.codegen.c.product.gemm_naive import naive_product
from fxlite.codegen.c.product.gemm_spec import (
    GemmSpec,
    Operand,
    PackedOperand,
    Rendered,
    WidenedOperand,
)
from fxlite.codegen.c.product.gemm_widened import (
    TILE_BYTES,
    multiply_widened,
    sums_of_tiles,
    widened_blocks,
)
from fxlite.codegen.c.product.packed_operands import (
    ITEM_BYTES,
    PAIR_BYTES,
    PARALLEL_PRODUCTS,
    pack_b,
    pack_b_bf16,
    pack_b_split,
    panel_columns,
)
from fxlite.codegen.c.product.spelled import TextOperand, TextSpec, copies_a, packs_b, text_spec
from fxlite.codegen.c.text.template_text import Lines, add, atom, divide_up, mentions, multiply

__all__ = [
    "GemmSpec", "Operand", "PackedOperand", "Rendered",
    "pack_b", "pack_b_bf16", "pack_b_split", "render_gemm", "render_gemm_naive",
]  # fmt: skip

_BLOCK_SIZES = {"a quarter of L2": " * 2", "half of L2": "", "all of L2": " / 2"}
"""Which part of the second-level cache a block of A's rows takes, and how `count_row_blocks` is
told: by the bytes of a tile."""


class _Gemm:
    """The function of one product while it is printed."""

    def __init__(self, spec: TextSpec, finish: Callable[[Lines, str], None] | None) -> None:
        self.spec = spec
        self.finish = finish or self.finish_tile
        self.out = Lines()
        self.width = panel_columns(spec.ctype)
        # What A and B are read as, how many of them along k, and the tile that does.
        self.item_type = "uint32_t" if spec.bf16 else spec.ctype
        self.depth = divide_up(spec.k, 2) if spec.bf16 else spec.k
        self.item_bytes = PAIR_BYTES if spec.bf16 else ITEM_BYTES[spec.ctype]
        self.tile_rows = "PAIR_ROWS" if spec.bf16 else "TILE_ROWS"
        self.parts = 2 if spec.split else 1  # of an operand, one after the other
        self.extents = [extent for _, extent in spec.batch]
        self.copies_a = copies_a(spec)
        self.packs_b = packs_b(spec)
        self.a_low = add(self.depth, "16")  # where the lower parts of a row are, if it is split
        self.a_pitch = multiply(self.a_low, str(self.parts))
        panels = divide_up(spec.n, self.width)
        self.panels = panels if panels.isdecimal() else "panels"
        # Reading B takes about as long as two rows do.
        work = multiply(*self.extents, add(spec.m, "2"), spec.n, spec.k)
        self.threads = not (work.isdecimal() and int(work) < PARALLEL_PRODUCTS)
        large = "" if work.isdecimal() else f" && {work} > PARALLEL_PRODUCTS"
        self.team = f"num_threads(n_threads) if (n_threads > 1{large})"
        item = str(self.item_bytes)
        self.a_items = multiply(*self.extents, spec.m, self.a_pitch) if self.copies_a else "0"
        self.long = long_plan(spec, self.depth, self.item_bytes * self.parts)
        self.blocks = 1 if self.long else widened_blocks(spec)
        # A panel for each thread (of one that is widened a block, and the sums), 128 bytes apart.
        depth = divide_up(self.depth, self.long.cuts if self.long else self.blocks)
        margin = spec.b.margin if isinstance(spec.b, WidenedOperand) else 0
        self.panel_items = multiply(add(depth, str(margin)), str(self.width))
        own_sums = sums_of_tiles(self) if self.blocks > 1 else "0"
        self.slice = add(self.panel_items, own_sums, "32")
        threads = "n_threads" if self.threads else "1"
        self.b_items = multiply(threads, self.slice) if self.packs_b else "0"
        self.fused = finish is None and not self.long and is_fused(spec)
        sums = sums_items(self, self.long) if self.long else "0"
        self.workspace = add(
            multiply(add(self.a_items, self.b_items), item),
            multiply(sums, str(ITEM_BYTES[spec.ctype])),
        )
        self.extra = (("workspace",) if self.workspace != "0" else ()) + (
            ("n_threads",) if self.threads else ()
        )

    def render(self) -> Rendered:
        spec, out = self.spec, self.out
        if not {spec.m, spec.n, *self.extents}.isdisjoint({"0"}):
            return gemm_function(self, ["    /* Nothing to compute. */"], "0", ())
        if spec.k == "0":
            lines = Lines()
            with lines.loops([*spec.batch, ("row", spec.m), ("column", spec.n)]):
                lines.put(spec.epilogue(f"({spec.ctype})0", "row", "column"))
            return gemm_function(self, lines.lines, "0", ())
        self.declare()
        if self.long:
            out.put(f"#pragma omp parallel {self.team}")
            with out.block():
                if self.copies_a:
                    self.copy_a()
                multiply_long(self, self.long)
        elif not self.copies_a:
            self.multiply("omp parallel for", f" {self.team}")
        elif not self.threads:
            self.copy_a()
            self.multiply("", "")
        elif spec.bf16 and spec.m.isdecimal() and int(spec.m) <= 4 and not spec.batch:
            self.copy_a(threads=False)  # takes less than to wait for a thread that does
            self.multiply("omp parallel for", f" {self.team}")
        else:
            out.put(f"#pragma omp parallel {self.team}")
            with out.block():
                self.copy_a()
                self.multiply("omp for", "")
        return gemm_function(self, out.lines, self.workspace, self.extra)

    def declare(self) -> None:
        """Numbers of tiles, panels and blocks; the parts of the workspace."""
        spec, out, item_type = self.spec, self.out, self.item_type
        rows = self.tile_rows
        out.put(f"const int64_t row_tiles = ({spec.m} + {rows} - 1) / {rows};")
        if not spec.n.isdecimal():
            out.put(f"const int64_t panels = {divide_up(spec.n, self.width)};")
        depth, others = self.depth, multiply(*self.extents, self.panels)
        n_threads = "n_threads" if self.threads else "1"
        if self.long:
            depth, others = declare_panel_blocks(self, self.long)
        tile_bytes = multiply(depth, rows, str(self.item_bytes * self.parts))
        tile_bytes += _BLOCK_SIZES[spec.measured.get("rows in a block", "half of L2")]
        if self.blocks > 1:
            tile_bytes = TILE_BYTES
        blocks = f"count_row_blocks(row_tiles, {tile_bytes}, {others}, {n_threads})"
        out.put(f"const int64_t row_blocks = {blocks};")
        if self.copies_a:
            out.put(f"{item_type} *const a_rows = workspace;")
        if self.packs_b:
            start = f"a_rows + {self.a_items}" if self.copies_a else "workspace"
            out.put(f"{item_type} *const b_panels = {start};")
        if self.long:
            before = multiply(add(self.a_items, self.b_items), str(self.item_bytes))
            start = "workspace" if before == "0" else f"(void *)((char *)workspace + {before})"
            out.put(f"{spec.ctype} *const sums = {start};")

    def declare_batch_index(self) -> None:
        """Position of the batch item in the copy of A, row-major."""
        index = "0"
        for variable, extent in self.spec.batch:
            index = add(multiply(index, extent), variable)
        if self.spec.batch:
            self.out.put(f"const int64_t batch_index = {index};")

    def declare_columns(self) -> None:
        """The columns of this panel."""
        n = self.spec.n
        self.out.put(f"const int64_t column_0 = panel * {self.width};")
        if n.isdecimal() and (int(n) < self.width or int(n) % self.width == 0):
            self.out.put(f"const int columns = {min(int(n), self.width)};")
        else:
            rest = f"{atom(n)} - column_0"
            self.out.put(f"const int columns = {rest} < {self.width} ? {rest} : {self.width};")

    def declare_rows(self) -> None:
        """The rows of this tile; tiles differ in height by one at most."""
        if self.spec.bf16:
            after = f"row_tiles, {self.spec.m}, PAIR_ROWS)"
            self.out.put(f"const int64_t row_0 = first_tile_row(tile_index, {after};")
            self.out.put(f"const int rows = first_tile_row(tile_index + 1, {after} - row_0;")
            return
        m = atom(self.spec.m)
        self.out.put(f"const int64_t row_0 = tile_index * {m} / row_tiles;")
        self.out.put(f"const int rows = (tile_index + 1) * {m} / row_tiles - row_0;")

    def a_start(self) -> tuple[str, str]:
        """Address of row row_0 of A as the tile reads it, and the distance of its rows."""
        spec = self.spec
        if not self.copies_a:
            row = multiply("row_0", spec.a.row_stride)
            start = add(spec.a.pointer, spec.a.offset, row)
            if spec.a_is_bf16:
                return f"(const uint32_t *)({start})", str(int(spec.a.row_stride) // 2)
            return start, spec.a.row_stride
        item = multiply("batch_index", spec.m) if spec.batch else "0"
        return add("a_rows", multiply(add(item, "row_0"), self.a_pitch)), self.a_pitch

    def own_panel(self) -> str:
        """Where the calling thread puts a panel of B."""
        return add("b_panels", multiply("this_thread()", self.slice) if self.threads else "0")

    def declare_panel(self, k_0: str = "0", depth: str = "") -> None:
        """The current panel of B, packed if need be; or `depth` steps of it from `k_0` on."""
        spec, out = self.spec, self.out
        if isinstance(spec.b, PackedOperand):
            panel = multiply(self.depth, str(self.width * self.parts))
            start = add(spec.b.pointer, multiply("panel", panel))
            start = add(start, multiply(k_0, str(self.width)))
            out.put(f"const {self.item_type} *const b_panel = {start};")
            return
        steps = depth or spec.k
        own = self.own_panel()
        if isinstance(spec.b, WidenedOperand):
            out.put(f"const float *const b_panel = {spec.b.widen(k_0, steps, own)};")
            return
        if spec.bf16 and depth:  # of pairs, the last of which may lack its second half
            steps = f"(k_0 + depth == {self.depth} ? {spec.k} : 2 * (k_0 + depth)) - 2 * k_0"
        first = multiply("2", k_0) if spec.bf16 else k_0
        column = multiply("column_0", spec.b.col_stride)
        source = add(spec.b.pointer, spec.b.offset, column, multiply(first, spec.b.row_stride))
        if not self.packs_b:
            out.put(f"const {spec.ctype} *const b_panel = {source};")
            return
        out.put(f"{self.item_type} *const b_panel = {own};")
        pack = "round_panel_bf16" if spec.bf16 else f"pack_panel_{spec.ctype}"
        out.put(
            f"{pack}({steps}, columns, {source}, "
            f"{spec.b.row_stride}, {spec.b.col_stride}, b_panel);"
        )

    def copy_a(self, threads: bool = True) -> None:
        """Copy A's rows, where the tile cannot read them in place."""
        spec, out = self.spec, self.out
        out.put(f"/* The rows of A, {'in bf16' if spec.bf16 else 'side by side'}. */")
        pragma = ""
        if self.threads and threads:
            joined = f" collapse({len(spec.batch) + 1})" if spec.batch else ""
            pragma = f"#pragma omp for{joined}"
        with out.loops([*spec.batch, ("tile_index", "row_tiles")], pragma):
            self.declare_batch_index()
            self.declare_rows()
            self.copy_rows()
        out.put("/* The product. */")

    def copy_rows(self) -> None:
        """One tile's rows of A into the workspace."""
        spec, out = self.spec, self.out
        target, pitch = self.a_start()
        if spec.prologue_a is None:
            source = add(spec.a.pointer, spec.a.offset, multiply("row_0", spec.a.row_stride))
            pack = "round_rows_bf16" if spec.bf16 else f"pack_rows_{spec.ctype}"
            if spec.a_is_bf16:
                pack = "pair_rows_bf16"
            if spec.split:
                pack, pitch = "split_rows_bf16", f"{pitch}, {self.a_low}"
            out.put(
                f"{pack}(rows, {spec.k}, {source}, "
                f"{spec.a.row_stride}, {spec.a.col_stride}, {target}, {pitch});"
            )
            return
        element = spec.prologue_a("row", "k")
        out.put(f"{spec.ctype} *const a_target = {target};")
        with out.block("for (int64_t i = 0; i < rows; i++)"):
            if mentions(element, "row"):
                out.put("const int64_t row = row_0 + i;")
            out.put("#pragma omp simd")
            out.put(f"for (int64_t k = 0; k < {spec.k}; k++)")
            out.put(f"    a_target[{add(multiply('i', pitch), 'k')}] = {element};")

    def multiply(self, directive: str, clauses: str) -> None:
        """Blocks of rows times panels; in each, tile by tile, the sums and the epilogue."""
        spec, out = self.spec, self.out
        loops = [*spec.batch, ("row_block", "row_blocks"), ("panel", self.panels)]
        pragma = ""
        if self.threads:
            pragma = f"#pragma {directive} collapse({len(loops)}) schedule(static){clauses}"
        with out.loops(loops, pragma):
            if self.copies_a:
                self.declare_batch_index()
            self.declare_columns()
            if self.blocks > 1:
                multiply_widened(self, self.blocks)
                return
            self.declare_panel()
            if spec.bf16:
                out.put("take_tiles();")
            out.put("for (int64_t tile_index = row_block * row_tiles / row_blocks;")
            end = "     tile_index < (row_block + 1) * row_tiles / row_blocks; tile_index++)"
            with out.block(end):
                self.multiply_tile()
            if spec.bf16:
                out.put("release_tiles();")

    def multiply_tile(self) -> None:
        """The sums of one tile, and the epilogue."""
        spec, out = self.spec, self.out
        self.declare_rows()
        a_start, a_row = self.a_start()
        if self.fused:
            out.put(fused_call(self, a_start, a_row))
            return
        out.put(f"{spec.ctype} tile[{self.tile_rows} * {self.width}];")
        out.put(self.tile_call(self.depth, a_start, a_row, "tile"))
        self.finish(out, f"tile[i * {self.width} + j]")

    def tile_call(self, depth: str, a_start: str, a_row: str, target: str) -> str:
        """The statement that computes the sums of a tile over `depth` steps."""
        spec, name, a, b = self.spec, f"tile_{self.spec.ctype}", f"{a_start}, {a_row}", "b_panel"
        if spec.split:
            name, a = "tile_split", f"{a_start}, {self.a_low}, {a_row}"
            b = f"b_panel, {multiply(self.depth, str(self.width))}"
        elif spec.bf16:
            name = "tile_bf16"
        elif isinstance(spec.b, TextOperand) and not self.packs_b:
            name, b = f"low_{name}", f"b_panel, {spec.b.row_stride}"
        return f"multiply_{name}(rows, columns, {depth}, {a}, {b}, {target});"

    def finish_tile(self, out: Lines, element: str) -> None:
        """The epilogue over the finished tile."""
        finish_rows(out, self.spec.epilogue(element, "row", "column"))


def finish_rows(out: Lines, statements: str) -> None:
    """Loops over a finished tile around the statements of an epilogue.

    Their indices are int64_t: products of int may wrap around for all GCC knows (-fwrapv), so that
    it would gather the tile element by element (measured: 20 % of a product at k = 64)."""
    with out.block("for (int64_t i = 0; i < rows; i++)"):
        if mentions(statements, "row"):
            out.put("const int64_t row = row_0 + i;")
        out.put("#pragma omp simd")
        with out.block("for (int64_t j = 0; j < columns; j++)"):
            if mentions(statements, "column"):
                out.put("const int64_t column = column_0 + j;")
            out.put(statements)


def render_gemm(spec: GemmSpec) -> Rendered:
    """Print the function of one product."""
    return _Gemm(text_spec(spec), None).render()


def render_product(spec: GemmSpec, finish: Callable[[Lines, str], None]) -> Rendered:
    """As `render_gemm`, but `finish(out, element)` prints the loops over a finished tile: `rows`
    rows from `row_0` with index i, `columns` columns from `column_0` with index j. The spec's
    epilogue is not used."""
    return _Gemm(text_spec(spec), finish).render()


def render_gemm_naive(spec: GemmSpec) -> Rendered:
    """Print the three-loop twin: the same parameters and epilogue, no workspace, one thread."""
    return naive_product(text_spec(spec), render_gemm(spec).extra_parameters)
