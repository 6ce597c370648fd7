"""C text of one matrix product: C[m, n] = sum over k of A[m, k] * B[k, n], with its epilogue.

In goes a `GemmSpec`: sizes and addresses, and a callback that prints what happens to a finished
element. Out comes a `Rendered`: one ``static`` C function for that node, the bytes of scratch it
needs, and the parameters it takes beyond the caller's. The arithmetic is in the tile functions of
`tiles/matrix.h` and `tiles/bf16.h`; the loops around them are those of `gemm_walk`:

- A's rows are copied only if necessary;
- a panel of B that was not packed at compile time is packed into memory of the thread, where it is in
  the cache for its tiles and needs no barrier;
- if K is short, the epilogue runs in registers (`gemm_fused`); if it is long, it may be divided
  (`gemm_fused.cut_of`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

from fxlite.codegen.c.product.gemm_fused import LEAST_ROWS, cut_of, fused_call, fused_tile, is_fused, long_reason
from fxlite.codegen.c.product.gemm_spec import (
    FEW,
    ITEM_BYTES,
    PACKED_BLOCK,
    PAIR_BYTES,
    GemmSpec,
    Operand,
    PackedOperand,
    WidenedOperand,
    at_most,
    copies_a,
    is_shared,
    multiplies_rows,
    packs_b,
    panel_columns,
    reads_strips,
    when_by_rows,
    when_by_strips,
)
from fxlite.codegen.c.product.gemm_strips import Strips
from fxlite.codegen.c.product.gemm_walk import FEW_ROWS, MOST_TILES, Place, Product, Tile
from fxlite.codegen.c.tiles.library import constant
from fxlite.codegen.kernel.builder import (
    Argument,
    Body,
    Pointer,
    Rendered,
    Size,
    bare,
    divide_up,
    factors,
    parameter_names,
    smaller,
    symbol,
    text_of,
)
from fxlite.scalar.index import Index, Var, extremum, product

_BLOCK_SIZES = {"a quarter of L2": " * 2", "half of L2": "", "all of L2": " / 2"}
"""The part of the second-level cache for a block of A's rows, and how `count_row_blocks` is told: by the bytes of a
tile."""

SUM_STEPS, SUM_BLOCKS = constant("matrix", "SUM_STEPS"), constant("matrix", "SUM_BLOCKS")

SMALL_ROWS = 128 << 10
"""Bytes of A that fit in half of any second-level cache."""

TURNED_ROWS = 32
"""Rows of a transposed A that are copied at a time: whole vectors of the lines in which they are stored."""

Finish = Callable[[Product, Place], None]

_ZERO = Index.of(0)


def tile_of(spec: GemmSpec) -> Tile:
    """The tile of a product of floats."""
    if spec.bf16:
        return Tile("float", "uint32_t", PAIR_BYTES, 2, "PAIR_ROWS", 1 + spec.split)
    return Tile(spec.ctype, spec.ctype, ITEM_BYTES[spec.ctype])


class _Floats(Product):
    """A product of float, double, pairs of bf16 or sums of two of these."""

    def __init__(self, spec: GemmSpec, finish: Finish | None) -> None:
        super().__init__(spec, tile_of(spec))
        self.spec, self.own_finish = spec, finish
        self.takes_tiles, self.vector = bool(spec.bf16), spec.ctype
        self.copies_a, self.packs_b = copies_a(spec), packs_b(spec)
        self.cut = cut_of(spec)
        self.packs_whole = self.packs_b and (self.cut is None or self.cut.own) and _is_read_often(spec)
        self.is_symmetric = finish is None and spec.is_symmetric
        self.in_registers = finish is None and self.cut is None and not self.is_symmetric and is_fused(spec)
        self.group = 1 if self.is_symmetric or self.cut is not None else group_of(spec)
        self.left_out = _ZERO  # distance of the rounding errors from the sums
        #: Whether a task's sums are an array of its own, while blocks of a packed weight pass by.
        self.sums_of_task = self.cut is not None and self.cut.own > 0 and isinstance(spec.b, PackedOperand)
        whole, few = self.sums_of_task or self.cut is None, at_most(spec.m, LEAST_ROWS)
        #: Whether tiles, of which several read a block of a weight, ask for what is read after it.
        self.asks_ahead = isinstance(spec.b, PackedOperand) and not spec.bf16 and whole and not few
        self.a_low = self.depth + 16  # start of the lower parts in a row, if it is split

    def declare(self) -> None:
        """Declare the parts of the workspace: a panel for each thread (if it is widened, a block of one, and
        the sums), 128 bytes apart."""
        spec, body, kind = self.spec, self.body, self.kind
        item = kind.item, kind.item_bytes
        if self.copies_a:
            pitch = self.a_low * kind.parts
            body.comment("The rows of A, and how far they are apart.")
            low = f"{text_of(self.depth)} + 16"
            self.a_low = body.let("a_low", low) if spec.split else self.a_low
            self.a_pitch = body.let("a_pitch", f"2*({low})" if spec.split else low)
            rows = self.repeats * spec.m
            self.allot("a_rows", item[0], rows * pitch, item[1], rows * self.a_pitch)
        if self.packs_whole:
            self.panel_size = body.let("panel_size", factors((self.depth, self.width)))
            self.allot("b_panels", item[0], self.panel_count * self.depth * self.width, item[1])
        if self.packs_b and (self.cut is not None or not self.packs_whole):
            steps = self.cut.steps_of(self.depth) if self.cut else self.depth
            steps = steps + (spec.b.margin if isinstance(spec.b, WidenedOperand) else 0)
            width = smaller(spec.n, FEW) if multiplies_rows(spec) else Index.of(self.width)
            panel, own = steps * width * self.group, Index.of(0)
            said = factors((steps, width, *[self.group] * (self.group > 1)))
            whose = "For each thread a block of a panel of B and sums, and their size"
            own_sums = self.cut is not None and self.cut.own
            body.comment(f"{whose if own_sums else 'A panel of B for each thread, and its size'} including a gap.")
            if self.cut is not None and own_sums:
                block_size = body.let("block_size", said, like=panel)
                own = smaller(self.panel_count, self.cut.own) * (MOST_TILES * 11 * self.width)
                if not self.by_panel:  # next to the sums, the rounding errors of many additions
                    self.left_out = own
                    plain = SUM_STEPS + SUM_BLOCKS - self.cut.size  # blocks
                    own = own + own * smaller(spec.k // (plain * self.cut.size + 1), 1)
                said = f"{bare(block_size)} + {bare(own)}"
            share = panel + own + 32
            count = self.n_threads * share
            share = body.let("share", f"{said} + 32") if self.threads else share
            name = "thread_panels" if self.packs_whole else "b_panels"
            self.allot(name, item[0], count, item[1], self.n_threads * share)
            number = symbol("this_thread()") if self.threads else Index.of(0)
            self.own_panel = Pointer(name) + number * share
            self.own_sums = self.own_panel + (block_size if own != 0 else panel)
            if isinstance(spec.b, WidenedOperand):
                for name, size in spec.b.sizes.items():
                    body.let(name, size)
        if isinstance(spec.b, PackedOperand):
            size = factors((self.depth, self.width, *[kind.parts] * (kind.parts > 1)))
            self.panel_size = body.let("panel_size", size)
        if self.cut is not None and not self.cut.own:
            rows = spec.m + (31 if spec.bf16 else 10)  # rows of a tile times tiles, at least
            count = self.repeats * self.cut.slices * rows * self.panel_count * self.width
            self.allot("sums", kind.ctype, count, ITEM_BYTES[kind.ctype])

    def panel_blocks_text(self) -> str:
        if self.cut is None or not self.cut.own:
            return super().panel_blocks_text()
        for_sums, panels = bare(divide_up(self.panels, self.cut.own)), bare(self.panels)
        for_cache = f"({bare(self.row_tiles * self.block_bytes)} / (L2_BYTES / 2) + 1)"
        return f"fx_max({for_sums}, fx_min({panels}, 4*{bare(self.n_threads)} / {for_cache}))"

    def blocks_text(self) -> Size | str:
        if not self.sums_of_task:
            return super().blocks_text()
        tile_bytes = bare(symbol(self.kind.rows) * self.kind.item_bytes)
        step_bytes = f"fx_min({bare(self.row_tiles)}, {MOST_TILES})*{tile_bytes}"
        return f"count_weight_blocks({bare(self.depth)}, {PACKED_BLOCK}, {step_bytes})"

    def own_number(self, number: Index) -> Index:
        if not self.sums_of_task:
            return super().own_number(number)
        assert self.cut is not None
        return self.body.let("number", f"{bare(self.cut.blocks)} > 1 ? {bare(number)} : 0", like=number)

    @property
    def block_bytes(self) -> Index:
        """Bytes of a tile's rows of A in a block of K."""
        assert self.cut is not None
        return self.cut.steps_of(self.depth) * symbol(self.kind.rows) * self.kind.item_bytes

    def row_blocks_text(self) -> str:
        spec, kind, cut = self.spec, self.kind, self.cut
        if cut is not None and cut.own:
            tile_bytes = f"L2_BYTES / 2 / {MOST_TILES}"  # no block of rows has more tiles
            if self.sums_of_task:
                whole = self.depth * symbol(kind.rows) * kind.item_bytes
                tile_bytes = f"{bare(cut.blocks)} > 1 ? {tile_bytes} : {bare(whole)}"
            if not self.by_panel:
                tile_bytes = f"fx_max({tile_bytes}, {bare(self.block_bytes)})"
            return self.count_blocks(tile_bytes, self.repeats * (self.panels if self.by_panel else self.panel_blocks))
        depth, others = self.depth, self.repeats * self.tasks_of_panels
        if cut is not None:
            depth = cut.steps_of(self.depth)
            others = self.repeats * cut.slices * self.panel_blocks
        tile_bytes = bare(depth * symbol(kind.rows) * kind.item_bytes * kind.parts)
        tile_bytes += _BLOCK_SIZES[spec.measured.get("rows in a block", "half of L2")]
        return self.count_blocks(tile_bytes, others)

    # -- the left operand ------------------------------------------------------------------------
    def phases(self) -> list[Callable[[str, str], None]]:
        found: list[Callable[[str, str], None]] = [self.pack_whole] if self.packs_whole else []
        if not self.copies_a:
            return found
        if self.spec.bf16 and at_most(self.spec.m, 4) and not self.spec.batch:
            self.copy_a("", "")  # takes less than to wait for a thread that does
            return []
        return [self.copy_a, *found]

    def copy_a(self, directive: str, clauses: str) -> None:
        """Copy A's rows, if the tile cannot read them in place."""
        spec, body = self.spec, self.body
        body.comment(f"The rows of A, {'in bf16' if spec.bf16 else 'side by side'}.")
        turned = spec.a.row_stride.constant == 1 and not spec.bf16 and spec.row_start is None
        parts = ("block", divide_up(spec.m, TURNED_ROWS)) if turned else ("tile_index", self.row_tiles)
        with body.shared([*spec.batch, parts], directive, clauses) as found:
            *batch, part = found
            self.name_batch(batch)
            at = self.blank(tuple(batch))
            if turned:
                row_0 = body.let("row_0", part * TURNED_ROWS, like=spec.m)
                at = replace(
                    at, row_0=row_0, rows=body.let("rows", smaller(TURNED_ROWS, spec.m - row_0), "int", spec.m)
                )
            else:
                at = self.in_tile(at, part)
            target = self.copied_row(at)
            pack = "round_rows_bf16" if spec.bf16 else f"pack_rows_{spec.ctype}"
            pack = "pair_rows_bf16" if spec.a_is_bf16 else pack
            pitch = [self.a_pitch]
            if spec.split:
                pack, pitch = "split_rows_bf16", [self.a_pitch, self.a_low]
            if spec.row_start is not None:
                with self.rows_of(at) as (i, row):
                    step, target = spec.a.col_stride, target + i * self.a_pitch
                    body.call(pack, 1, spec.k, spec.row_start(row), 0, step, target, *pitch)
            else:
                source = spec.a.start(at.row_0), spec.a.row_stride, spec.a.col_stride
                body.call(pack, at.rows, spec.k, *source, target, *pitch)
        body.comment("The product.")

    def pack_whole(self, directive: str, clauses: str) -> None:
        """Pack B if several blocks of rows, or matrices, read it, each of which would pack it again."""
        body, count = self.body, self.blocks_of_rows
        with (
            body.block(f"if ({count} > 1)") if count else nullcontext(),
            body.shared([("panel", self.panels)], directive, clauses) as (panel,),
        ):
            at = self.in_panel(replace(self.blank(()), panel=panel))
            self._pack_panel(at, Pointer("b_panels") + at.panel * self.panel_size)

    @property
    def blocks_of_rows(self) -> str:
        """How many blocks of rows read B, of one matrix or more, in C; empty if they are always several."""
        return "" if (self.repeats.constant or 1) > 1 else bare(self.repeats * self.row_blocks)

    def _pack_panel(self, at: Place, target: Pointer) -> None:
        """Pack the steps of K in a panel that are available; for bf16 they are pairs, of which the last may lack its
        second half."""
        spec, b = self.spec, self.spec.b
        assert isinstance(b, Operand)
        steps = b.row_stride, b.col_stride
        if multiplies_rows(spec):
            source = b.start(at.k_0, at.column_0)
            self.body.call(f"pack_rows_{spec.ctype}", at.columns, at.depth, source, *reversed(steps), target, at.depth)
        elif spec.bf16:
            first = at.k_0 * 2
            depth = smaller((at.k_0 + at.depth) * 2, spec.k) - first if self.cut else spec.k
            self.body.call("round_panel_bf16", depth, at.columns, b.start(first, at.column_0), *steps, target)
        else:
            source = b.start(at.k_0, at.column_0)
            self.body.call(f"pack_panel_{spec.ctype}", at.depth, at.columns, source, *steps, target)

    def copied_row(self, at: Place) -> Pointer:
        """The place to which the rows of a tile are copied."""
        matrix = self.matrix(at.batch) if at.batch else Index.of(0)
        return Pointer("a_rows") + (matrix * self.spec.m + at.row_0) * self.a_pitch

    def left(self, at: Place) -> tuple[Pointer, Index]:
        """Address of a tile's rows of A as the tile reads them, and the distance between rows."""
        a = self.spec.a
        if self.copies_a:
            start, pitch = self.copied_row(at), self.a_pitch
        elif self.spec.a_is_bf16:
            start = Pointer(f"(const uint32_t *)({a.start(at.row_0)})")
            pitch = a.row_stride // 2
        else:
            start, pitch = a.start(at.row_0), a.row_stride
        return start + at.k_0, pitch

    # -- the right operand -----------------------------------------------------------------------
    def declare_panel(self, at: Place) -> None:
        """Declare the current panel of B, or a block of it, packed if necessary."""
        spec, body, b = self.spec, self.body, self.spec.b
        if isinstance(b, PackedOperand):
            start = Pointer(b.pointer) + at.panel * self.panel_size + at.k_0 * self.width
            body.pointer(f"const {self.kind.item}", "b_panel", start)
        elif self.packs_whole:
            packed = self._packed_panel(at)
            count = self.blocks_of_rows
            if self.cut is None or not count:
                body.pointer(self.kind.item, "b_panel", packed)
            else:
                body.pointer(self.kind.item, "b_panel", Pointer(f"{count} > 1 ? {packed} : {self.own_panel}"))
            if count:
                with body.block(f"if ({count} == 1)"):
                    self._pack_panel(at, Pointer("b_panel"))
        elif isinstance(b, WidenedOperand):
            steps = at.depth if self.cut else spec.k
            widened = b.widen(at.panel, at.k_0, steps, self.own_panel)
            body.pointer("const float", "b_panel", widened)
        elif not self.packs_b:
            body.pointer(f"const {spec.ctype}", "b_panel", b.start(at.k_0, at.column_0))
        else:
            body.pointer(self.kind.item, "b_panel", self._packed_panel(at))
            self._pack_panel(at, Pointer("b_panel"))
        if self.cut is not None and self.cut.own and not self.sums_of_task:
            body.pointer(spec.ctype, "sums", self.own_sums)

    def _packed_panel(self, at: Place) -> Pointer:
        """The place of a panel that is packed: among all of them, or in memory of the thread."""
        if self.packs_whole:
            return Pointer("b_panels") + at.panel * self.panel_size + at.k_0 * self.width
        return self.own_panel + at.panel % self.group * (self.depth * self.width)

    def find_panel(self, at: Place) -> None:
        if self.packs_b:
            self.body.pointer(f"const {self.kind.item}", "b_panel", self._packed_panel(at))
        else:
            self.declare_panel(at)

    # -- sums --------------------------------------------------------------------------------------
    def declare_sums(self) -> None:
        if self.sums_of_task:
            self.body.declare(f"{self.spec.ctype} sums[{bare(MOST_TILES * self.kind.sums)}]")

    def part_of_tile(self, at: Place) -> str:
        """Arguments: a tile's number within its block of rows, and how many tiles the block has."""
        first = at.row_block * self.row_tiles // self.row_blocks
        return f"{bare(at.tile - first)}, {bare(divide_up(self.row_tiles, self.row_blocks))}"

    def multiply(self, at: Place) -> None:
        spec, body, cut = self.spec, self.body, self.cut
        row_bytes, panel = self.width * self.kind.item_bytes, Pointer("b_panel")
        if self.packs_whole and not self.by_panel:
            whole = f"{panel + self.panel_size}, {bare(at.depth * row_bytes)}, {self.part_of_tile(at)}"
            blocks = self.blocks_of_rows
            body.put(f"{f'if ({blocks} > 1) ' * bool(blocks)}prefetch_part({whole});")
        if self.asks_ahead:
            block = f"{panel + at.depth * self.width}, {bare(at.depth)}, {row_bytes}, {self.part_of_tile(at)}"
            body.assign("const struct ahead ahead", f"part_ahead({block})")
        if self.in_registers:
            body.put(fused_call(self, at, *self.left(at), panel, *["ahead"] * self.asks_ahead))
            return
        if cut is None or cut.blocks == 1:
            self.sum_tile(at, str(at.sums))
            return
        block = bare(at.block)
        if self.sums_of_task:
            self.sum_tile(at, str(at.sums), f"{block} > 0")
            return
        if not self.by_panel and cut.own:
            given = at.rows, at.columns, at.depth, *self.left(at), panel, at.block, cut.blocks, cut.size
            body.call(f"multiply_part_{spec.ctype}", *given, at.sums, at.sums + self.left_out)
            return
        body.declare(f"{self.kind.ctype} tile[{text_of(self.kind.sums)}]")
        self.sum_tile(at, f"{block} == 0 ? {at.sums} : tile")
        more = f"{block} == 0 ? 0 : {bare(at.rows * self.width)}"
        count = body.let("more", more, like=at.rows * self.width)
        with body.loop("i", count, pragma="#pragma omp simd") as i:
            body.assign(at.sums[i], f"tile[{bare(i)}]", "+=")

    def sum_tile(self, at: Place, target: str, adds: str = "0") -> None:
        """Print the call that computes the sums of a tile. ``adds`` says whether they are added to the target, which
        happens if K is divided into consecutive blocks."""
        spec, name = self.spec, f"tile_{self.spec.ctype}"
        (start, pitch), panel = self.left(at), Pointer("b_panel")
        a: list[Argument] = [start, pitch]
        b: list[Argument] = [panel]
        if spec.split:
            name, a, b = "tile_split", [start, self.a_low, pitch], [panel, self.depth * self.width]
        elif spec.bf16:
            name = "tile_bf16"
        elif isinstance(spec.b, Operand) and multiplies_rows(spec):
            name, b = f"dots_{spec.ctype}", [panel, at.depth if self.packs_b else spec.b.col_stride]
        elif self.asks_ahead:
            name, b = f"next_{spec.ctype}", [panel, "ahead", adds]
        self.body.call(f"multiply_{name}", at.rows, at.columns, at.depth, *a, *b, target)

    def finish(self, at: Place) -> None:
        if self.own_finish is not None:
            self.own_finish(self, at)
        elif self.is_symmetric:
            self.finish_mirrored(at, self.spec.epilogue)
        elif not self.in_registers:
            self.finish_rows(at, self.spec.epilogue)

    # -- the function ------------------------------------------------------------------------------
    def functions(self) -> list[str]:
        if not self.in_registers:
            return []
        name = "bf16" if self.spec.bf16 else self.spec.ctype
        vector = "bf16" if self.spec.bf16 else f"{self.spec.ctype}_vec"
        ahead = "ahead" if self.asks_ahead else "nothing_ahead()"
        steps = "" if self.spec.bf16 else f", {self.width}, {ahead}"

        def sums(body: Body, target: str) -> None:
            given = f"{bare(self.depth)}, a_tile, a_row, b_tile + first{steps}"
            body.put(f"sum_rows_{vector}(rows, vectors, 1, {given}, {target});")

        def stored(body: Body, at: Place) -> None:
            given = at.rows, at.columns, at.depth, "a_tile", "a_row", "b_tile", at.sums
            body.call(f"multiply_tile_{name}", *given)

        t = self.kind.item
        own = f"const {t} *a_tile, int64_t a_row, const {t} *b_tile{', struct ahead ahead' * self.asks_ahead}"
        return fused_tile(self, own, sums, stored)

    def about(self) -> list[str]:
        """How the operands are read and the sums finished, in one sentence each."""
        spec, said = self.spec, []
        if isinstance(spec.b, PackedOperand):
            said.append(f"The weight is packed, in panels of {self.width} columns.")
        elif isinstance(spec.b, WidenedOperand):
            cut = self.cut
            steps = f", {bare(divide_up(spec.k, cut.total))} steps of K at a time" if cut else ""
            said.append(f"Threads widen the weight to floats, once for a block of rows{steps}.")
        elif self.packs_whole:
            said.append(f"The right operand is packed first, in panels of {self.width} columns.")
        elif self.packs_b:
            said.append(f"Threads pack the right operand, a panel of {self.width} columns at a time.")
        else:
            said.append("The right operand is read in place.")
        if spec.row_start is not None:
            said.append("Left rows are copied side by side: those of all matrices are multiplied at once.")
        elif self.copies_a and not spec.bf16:
            near = "Rows of the left operand are copied first: their elements are not adjacent."
            far = "Left rows are copied first: 4 KiB or a multiple apart they share a cache set."
            if "left rows" in spec.measured:
                far = "Left rows are copied first."
            said.append(far if spec.a.col_stride == 1 else near)
        if self.cut is not None and (self.cut.size or not self.cut.own):
            said.append(long_reason(self.cut))
        elif self.cut is not None and self.sums_of_task:
            said.append("K is divided into blocks, each of which several tiles read in turn.")
        if self.is_symmetric:
            said.append("The right operand is the left one transposed: what is below the diagonal is mirrored.")
        if self.in_registers:
            said.append("K is short: the epilogue runs in the registers of a tile.")
        return [*said, _precision(spec)]


GROUP_BYTES, MOST_GROUPED = 16 << 10, 32
"""The most bytes of a group of panels, and the most panels in it."""

STORED_BYTES = 512 << 10
"""Bytes of a result that is larger than a cache."""

SHORT_STEPS = 32
"""The most steps of K for which storing the result takes longer than the product."""


def group_of(spec: GemmSpec) -> int:
    """How many panels pass by a tile of rows before the next tile. If K is short and the result is large, storing
    takes most of the time, and pieces of rows that are longer than a panel are stored faster, because the processor
    then asks for the next lines early (measured for 128 x 17 by 16 matrices of 17 x 1024: 1.3 ms and 1.0)."""
    k, n, width = spec.k.constant, spec.n.constant, panel_columns(spec.ctype)
    is_narrow = n is not None and n <= 2 * width
    if spec.bf16 or k is None or k > SHORT_STEPS or is_narrow or at_most(spec.m, FEW_ROWS) or multiplies_rows(spec):
        return 1
    item = ITEM_BYTES[spec.ctype]
    size = product((spec.m, spec.n, *(extent for _, extent in spec.batch))).constant
    if isinstance(spec.b, WidenedOperand) or (size is not None and size * item < STORED_BYTES):
        return 1
    return min(MOST_GROUPED, GROUP_BYTES // (width * item * k))


def _is_read_often(spec: GemmSpec) -> bool:
    """Whether several blocks of rows may read a B that is packed during the call."""
    if spec.bf16 or multiplies_rows(spec) or not isinstance(spec.b, Operand):
        return False
    if spec.batch:
        return is_shared(spec)
    m, k = spec.m.constant, spec.k.constant
    return m is None or (m > FEW_ROWS and (k is None or m * k * ITEM_BYTES[spec.ctype] > SMALL_ROWS))


def _precision(spec: GemmSpec) -> str:
    """What operands are rounded to; empty if they are not."""
    if spec.split:
        return "Operands are split in two bf16; three of their four products are summed."
    if spec.a_is_bf16:
        return "The left operand is bf16, the weight rounded to it; sums are float."
    return "Operands are rounded to bf16, sums are float." if spec.bf16 else ""


def render_gemm(spec: GemmSpec) -> Rendered:
    """Print the function of one product. Where sizes that are not known decide how it is computed, other ways are
    functions of their own, which this one calls: one of them, if it has few columns, the transposed product."""
    walk = Strips(spec) if reads_strips(spec) else _Floats(_joined(spec), None)
    others: list[Rendered] = []
    ways = [(replace(spec, name=f"{spec.name}_rows", plan="rows", turned=None), when_by_rows(spec))]
    ways.append((replace(spec, name=f"{spec.name}_strips", plan="strips", turned=None), when_by_strips(spec)))
    if spec.turned is not None:
        ways.append((spec.turned, f"{bare(spec.n)} <= {FEW}"))
    for way, when in ways:
        if isinstance(when, str):
            other = render_gemm(way)
            with walk.body.block(f"if ({when})"):
                walk.body.call(way.name, *parameter_names(spec.parameters), *other.extra_parameters)
                walk.body.put("return;")
            others.append(other)
    made = walk.render()
    workspace = functools.reduce(partial(extremum, "max"), [other.workspace for other in others], made.workspace)
    return replace(made, text="\n".join(part.text for part in (*others, made)), workspace=workspace)


FEW_IN_BATCH, FEW_COLUMNS = 48, 64
"""The most rows of a matrix in a batch for which the rows of all matrices are joined, because each matrix reads the
whole right operand; and the most columns for which they are not, because copying would take as long."""


def _joined(spec: GemmSpec) -> GemmSpec:
    """A product of one matrix in place of a batch of short ones with the same packed weight as right operand, for
    example of every second pixel of an image: rows are copied side by side, and a row tells its matrix."""
    sizes = [extent.constant for _, extent in spec.batch]
    known = None not in (*sizes, spec.m.constant, spec.n.constant, spec.k.constant)
    if not (spec.batch and known and isinstance(spec.b, PackedOperand) and at_most(spec.m, FEW_IN_BATCH)):
        return spec
    if spec.a.col_stride != 1 or at_most(spec.n, FEW_COLUMNS):
        return spec

    def row_start(row: Index) -> Pointer:
        env = {Var(name, extent): place for (name, extent), place in zip(spec.batch, places(row), strict=True)}
        return replace(spec.a, offset=spec.a.offset.substitute(env)).start(row % spec.m)

    def places(row: Index) -> list[Index]:
        found, rest = list[Index](), row // spec.m
        for _, extent in reversed(spec.batch):
            found.insert(0, rest % extent)
            rest = rest // extent
        return found

    def epilogue(total: str, row: Index, column: Index) -> str:
        named = [f"const int64_t {name} = {bare(place)};" for (name, _), place in zip(spec.batch, places(row))]
        return "\n".join([*named, spec.epilogue(total, row % spec.m, column)])

    rows = product(extent for _, extent in spec.batch) * spec.m
    return replace(spec, batch=(), m=rows, row_start=row_start, epilogue=epilogue, vectors=None)


def render_product(spec: GemmSpec, finish: Finish) -> Rendered:
    """Like `render_gemm`, but `finish(product, place)` prints the loops over a finished tile. The spec's
    epilogue is not used."""
    return _Floats(spec, finish).render()
