"""The walk over the tiles of any matrix product, shared by float, bf16 and integer products.

In: a product's sizes, and a :class:`Product` that knows how the operands of its tile are loaded or
packed, multiplied and finished. Out: one ``static`` C function. Blocks of rows times panels of the right
operand are the tasks of the threads; in each, tile by tile, sums are computed into a small array and
finished. A long K is divided (:class:`Cut`) into blocks, whose sums wait in the workspace:

- blocks are processed one after the other, so that the part of a block that a task reads stays in the
  second-level cache while the panels of the right operand, which is read from memory once, pass by;
- if the result has few tiles, *slices* of K become tasks of several threads ("split-K"), which are added
  in order after a barrier;
- a right operand that threads widen is divided along K, panel by panel (``own``), because the floats of a
  whole panel would leave the cache. Sums are then the thread's own.

The division depends on sizes alone, so results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

from fxlite.codegen.c.product.gemm_spec import PARALLEL_PRODUCTS, ProductSpec
from fxlite.codegen.kernel.builder import (
    Body,
    Pointer,
    Rendered,
    Size,
    bare,
    divide_up,
    rendered,
    smaller,
    symbol,
    text_of,
)
from fxlite.scalar.index import Index, Var, extremum, flatten, product

FEW_ROWS = 6
"""A number of rows that is one tile on every target."""

MOST_TILES = 16
"""Tiles of a block of rows whose sums a thread keeps. If it widens B for them: with 512 steps of K their rows take a
third of a cache of 1 MiB, and widening a weight costs as much as multiplying it by 3 to 5 rows."""


@dataclass(frozen=True)
class Tile:
    """What is multiplied: ``ctype`` is the type of sums; ``item`` is the type in which operands are packed, of
    ``item_bytes``, which holds ``steps`` of K; ``rows`` is the macro of a tile's height; an operand has
    ``parts``, one after the other; and ``rate`` products take as long as one of floats."""

    ctype: str
    item: str
    item_bytes: int
    steps: int = 1
    rows: str = "TILE_ROWS"
    parts: int = 1
    rate: int = 1

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return 128 // self.item_bytes

    @property
    def sums(self) -> Index:
        """Elements of a tile of sums."""
        return symbol(self.rows) * self.width


@dataclass(frozen=True)
class Cut:
    """K in ``slices`` of ``blocks`` blocks each, which have ``size`` steps, or are nearly equal if that is 0.
    ``own``: the sums are the thread's own, those of at most so many panels (0: the sums of all panels, in
    shared memory)."""

    slices: int
    blocks: Index
    size: int = 0
    own: int = 0

    @property
    def total(self) -> Index:
        """The total number of blocks."""
        return self.slices * self.blocks

    def steps_of(self, depth: Index) -> Index:
        """The most steps of K in a block."""
        return Index.of(self.size) if self.size else divide_up(depth, self.total)


@dataclass(frozen=True)
class Place:
    """Where the walk is: at a ``panel``, the steps of K from ``k_0`` on, a tile of ``rows`` rows and
    ``columns`` columns; ``sums`` is the place of its sums in memory, in rows ``width`` apart."""

    batch: tuple[Index, ...]
    panel: Index
    column_0: Index
    columns: Index
    k_0: Index
    depth: Index
    block: Index
    row_block: Index
    tile: Index
    row_0: Index
    rows: Index
    sums: Pointer
    width: Size

    def sum(self, i: Index, j: Index) -> str:
        """C expression of an element."""
        return self.sums[i * self.width + j]


_ZERO = Index.of(0)


class Product:
    """The function of one product while it is printed; a subclass knows its tile."""

    takes_tiles = False
    in_registers = False
    packs_b = False  # whether tasks fill the panels that they read
    group = 1  # so many panels are a task, and pass by each tile of rows in turn
    is_symmetric = False
    vector = "float"
    height = ""

    def __init__(self, spec: ProductSpec, tile: Tile) -> None:
        self.base, self.kind, self.body = spec, tile, Body()
        self.width = tile.width
        self.depth = divide_up(spec.k, tile.steps)
        self.repeats = product(extent for _, extent in spec.batch)
        self.panel_count = divide_up(spec.n, tile.width)
        # Reading the right operand takes about as long as multiplying by two rows.
        work = divide_up(self.repeats * (spec.m + 2) * spec.n * spec.k, tile.rate)
        self.threads = work.constant is None or work.constant >= PARALLEL_PRODUCTS
        large = f" && {bare(work)} > PARALLEL_PRODUCTS" if work.constant is None else ""
        self.team = f"num_threads(n_threads) if (n_threads > 1{large})"
        self.n_threads = symbol("n_threads") if self.threads else Index.of(1)
        self.cut: Cut | None = None
        self.workspace = _ZERO  # bytes
        self.allotted: tuple[str, Pointer] | None = None  # the type of the last part, and its end

    # -- what a tile adds ----------------------------------------------------------------------
    def declare(self) -> None:
        """Define names that the whole function reads."""

    def phases(self) -> list[Callable[[str, str], None]]:
        """The phases before the walk: functions of a directive of OpenMP and its clauses."""
        return []

    def row_blocks_text(self) -> str:
        """C expression of the number of blocks of rows."""
        tile_bytes = self.depth * symbol(self.kind.rows) * self.kind.item_bytes * self.kind.parts
        return self.count_blocks(bare(tile_bytes), self.repeats * self.panels)

    def panel_blocks_text(self) -> str:
        """C expression of the number of blocks of panels, if K is divided."""
        assert self.cut is not None
        tiles = self.row_tiles * self.repeats * self.cut.slices
        return f"count_panel_blocks({bare(self.panels)}, {bare(tiles)}, {bare(self.n_threads)})"

    def blocks_text(self) -> Size | str:
        """How many blocks K is divided into, if that is not a constant."""
        assert self.cut is not None
        return self.cut.blocks

    def own_number(self, number: Index) -> Index:
        """The number of a tile among those whose sums a task keeps."""
        return number

    def declare_sums(self) -> None:
        """Declare a task's memory for its sums."""

    def declare_panel(self, at: Place) -> None:
        """Declare the panel that the tile reads, and fill it if necessary."""

    def find_panel(self, at: Place) -> None:
        """Declare the panel that the tile reads, one of a group whose panels were filled."""

    def multiply(self, at: Place) -> None:
        """Print the sums of a tile, over all of K or one block, at ``at.sums``."""
        raise NotImplementedError

    def finish(self, at: Place) -> None:
        """Print what happens to the sums of a tile."""
        self.finish_rows(at, self.base.epilogue)

    def about(self) -> list[str]:
        """How it is computed, for the function's comment."""
        return []

    def functions(self) -> list[str]:
        """The lines before the function."""
        return []

    # -- the walk --------------------------------------------------------------------------------
    def render(self) -> Rendered:
        """The function."""
        spec, body = self.base, self.body
        if any(size == 0 for size in (spec.m, spec.n, *(extent for _, extent in spec.batch))):
            self.workspace, self.threads = _ZERO, False
            body.comment("Nothing to compute.")
            return self.function([])
        if spec.k == 0:
            self.workspace, self.threads = _ZERO, False
            loops = [*spec.batch, ("row", spec.m), ("column", spec.n)]
            with body.shared(loops, "") as found:
                self.name_batch(found[:-2])
                body.put(spec.epilogue(f"({self.kind.ctype})0", *found[-2:]))
            return self.function([])
        self._count()
        self.declare()
        # Each phase is a parallel region: at a barrier inside of one, threads would wait for each other.
        directive, clauses = "omp parallel for" if self.threads else "", f" {self.team}"
        for phase in self.phases():
            phase(directive, clauses)
        self._tasks(directive, clauses)
        if self.cut is not None and self.cut.slices > 1:
            self._join_slices(self.cut, directive, clauses)
        return self.function(self.functions())

    def function(self, before: list[str]) -> Rendered:
        """The comment that says how it is computed, the lines before it, its head and its body."""
        spec = self.base
        sizes = ", ".join(f"{name} = {bare(getattr(spec, name))}" for name in "mnk")
        height = self.height or f"tiles of {self.kind.rows}"
        tiles = f"{sizes}; {height} x {self.width}."
        said = [spec.comment, tiles, *self.about()]
        made = rendered(spec.name, spec.parameters, said, self.body.lines(), self.workspace)
        return replace(made, text="\n".join([*before, made.text]))

    def count_blocks(self, tile_bytes: str, others: Index) -> str:
        """The call that computes the number of blocks of rows."""
        given = f"{bare(self.row_tiles)}, {tile_bytes}, {bare(others)}, {bare(self.n_threads)}"
        return f"count_row_blocks({given})"

    def _count(self) -> None:
        """Compute the numbers of tiles, panels and blocks."""
        m, body, rows = self.base.m, self.body, self.kind.rows
        self.row_tiles = self.row_blocks = self.panel_blocks = Index.of(1)
        if not self.one_tile:
            tiles = f"({text_of(m)} + {rows} - 1) / {rows}"
            self.row_tiles = body.let("row_tiles", tiles, like=m)
        self.panels = body.let("panels", self.panel_count)
        if not self.by_panel and self.panels != 1:
            panel_blocks = self.panel_blocks_text()
            self.panel_blocks = body.let("panel_blocks", panel_blocks, like=self.panels)
        self.tile_size = body.let("tile_size", self.kind.sums)
        if self.cut is not None and self.cut.blocks.constant is None:
            self.cut = replace(self.cut, blocks=body.let("blocks", self.blocks_text(), like=self.cut.blocks))
        if not self.one_tile:
            blocks = self.row_blocks_text()
            self.row_blocks = body.let("row_blocks", blocks, like=self.row_tiles)

    @property
    def by_panel(self) -> bool:
        """Whether a task has a single panel."""
        return self.cut is None or self.cut.own == 1

    @property
    def tasks_of_panels(self) -> Index:
        """The number of panels, or of groups of them."""
        return divide_up(self.panels, self.group)

    @property
    def one_tile(self) -> bool:
        """Whether all rows are one tile on every target."""
        return self.base.m.constant is not None and self.base.m.constant <= FEW_ROWS

    def allot(self, name: str, ctype: str, count: Index, item_bytes: int, said: Index | None = None) -> Pointer:
        """The next part of the workspace, and its name; ``said`` is the count in names of the function, with
        which the place after it is computed."""
        before, start = self.allotted, "workspace"
        if before is not None:
            start = str(before[1]) if ctype == before[0] else f"(void *)({before[1]})"
        made = self.body.pointer(ctype, name, start)
        self.allotted = ctype, made + (count if said is None else said)
        self.workspace = self.workspace + count * item_bytes
        return made

    def name_batch(self, found: list[Index]) -> None:
        """Define variables of the batch that no loop declares, because it has one iteration."""
        for (name, _), variable in zip(self.base.batch, found, strict=True):
            if variable.constant is not None:
                self.body.let(name, str(variable.constant))

    def matrix(self, batch: tuple[Index, ...]) -> Index:
        """The number of a matrix of the batch."""
        number = flatten(batch, [extent for _, extent in self.base.batch])
        return self.body.let("batch_index", number)

    @contextmanager
    def tiles_of(self, row_block: Index) -> Iterator[Index]:
        """A loop over a block's tiles of rows."""
        first = row_block * self.row_tiles // self.row_blocks
        last = (row_block + 1) * self.row_tiles // self.row_blocks
        with self.body.loop("tile_index", last, first) as tile:
            yield tile if self.one_tile else self.named("tile_index", self.row_tiles)

    def _tasks(self, directive: str, clauses: str) -> None:
        """Print the loops over blocks of rows and panels."""
        spec, body, cut = self.base, self.body, self.cut or Cut(1, Index.of(1))
        inner = ("panel", self.panels) if self.by_panel else ("panel_block", self.panel_blocks)
        if self.group > 1:
            inner = ("panel_group", self.tasks_of_panels)
        slices = ("slice", Index.of(cut.slices))
        loops = [*spec.batch, slices, ("row_block", self.row_blocks), inner]
        # Half of the tiles of a symmetric product are left out: tasks differ in length, so threads take turns.
        schedule = "static, 1" if self.is_symmetric else "static"
        with body.shared(loops, directive, clauses, schedule) as found:
            *batch, slice_, row_block, task = found
            self.name_batch(batch)
            if self.takes_tiles:
                body.call("take_tiles")
            self.declare_sums()
            with body.loop("block", cut.blocks) as block:
                k_0, depth = self._steps(cut, slice_, block)
                at = self.blank(tuple(batch), task)
                at = replace(at, k_0=k_0, depth=depth, block=block, row_block=row_block)
                if self.group > 1:
                    self._group(at)
                elif self.by_panel:
                    self._panel(at, slice_, _ZERO)
                else:
                    turn = task
                    if self.is_symmetric and self.panel_blocks != 1:  # the blocks further right have more tiles
                        turn = body.let("turn", (task + row_block) % self.panel_blocks)
                    first = turn * self.panels // self.panel_blocks
                    last = (turn + 1) * self.panels // self.panel_blocks
                    with body.loop("panel", last, first) as panel:
                        panel = panel if self.panels == 1 else self.named("panel", self.panels)
                        self._panel(replace(at, panel=panel), slice_, panel - first)
            if self.takes_tiles:
                body.call("release_tiles")

    def _steps(self, cut: Cut, slice_: Index, block: Index) -> tuple[Index, Index]:
        """Where a block of K begins, and how deep it is."""
        if self.cut is None:
            return _ZERO, self.depth
        if cut.size:
            k_0 = self.body.let("k_0", block * cut.size)
            return k_0, self.body.let("depth", smaller(self.depth - k_0, cut.size))
        number = slice_ * cut.blocks + block
        first, after = (n * self.depth // cut.total for n in (number, number + 1))
        k_0 = self.body.let("k_0", first)
        if (after - first).constant is not None:
            return k_0, after - first
        return k_0, self.body.let("depth", after - k_0)

    def blank(self, batch: tuple[Index, ...], panel: Index = _ZERO) -> Place:
        """The first tile of a panel, with all of K."""
        at = dict.fromkeys(("column_0", "columns", "k_0", "block", "row_block", "tile", "row_0"), _ZERO)
        sums, rows = Pointer("tile"), _ZERO
        return Place(batch=batch, panel=panel, depth=self.depth, rows=rows, sums=sums, width=self.width, **at)

    def whole_tile(self) -> Place:
        """The tile of a function of its own, whose positions are parameters."""
        parts = {"row_0": self.base.m, "rows": self.base.m, "column_0": self.base.n}
        at = {name: self.named(name, extent) for name, extent in parts.items()}
        columns = symbol("columns", smaller(self.base.n, self.width))
        row_0, rows, column_0 = at.values()
        return replace(self.blank(()), columns=columns, row_0=row_0, rows=rows, column_0=column_0)

    def named(self, name: str, extent: Index) -> Index:
        """A variable below an extent."""
        return Index.of(Var(name, extent))

    def in_panel(self, at: Place) -> Place:
        """The place with the columns of its panel."""
        column_0 = self.body.let("column_0", at.panel * self.width)
        columns = smaller(self.base.n - column_0, self.width)
        return replace(at, column_0=column_0, columns=self.body.let("columns", columns, "int"))

    def in_tile(self, at: Place, tile: Index) -> Place:
        """The place with the rows of a tile; tiles differ in height by at most one row, or by whole 16 rows. If the
        number of rows is not known, and whole tiles are finished in registers, all tiles but the last one are whole."""
        m, let = self.base.m, self.body.let
        if self.one_tile:
            return replace(at, tile=tile, row_0=_ZERO, rows=m)
        if self.in_registers and m.constant is None:
            whole = symbol(self.kind.rows)
            row_0 = let("row_0", tile * whole, like=m)
            return replace(at, tile=tile, row_0=row_0, rows=let("rows", smaller(whole, m - row_0), "int", m))
        if self.kind.rows == "TILE_ROWS":
            row_0 = let("row_0", tile * m // self.row_tiles, like=m)
            after = (tile + 1) * m // self.row_tiles
            return replace(at, tile=tile, row_0=row_0, rows=let("rows", after - row_0, "int", m))
        rest = f"{bare(self.row_tiles)}, {bare(m)}, {self.kind.rows})"
        row_0 = let("row_0", f"first_tile_row({bare(tile)}, {rest}", like=m)
        rows = f"first_tile_row({bare(tile + 1)}, {rest} - row_0"
        return replace(at, tile=tile, row_0=row_0, rows=let("rows", rows, "int", m))

    def _group(self, at: Place) -> None:
        """Print a group of panels, all of which pass by a tile of rows before the next one."""
        body = self.body
        first = body.let("first_panel", at.panel * self.group)
        last = body.let("last_panel", smaller(self.panels, first + self.group))

        def named(panel: Index) -> Place:
            return self.in_panel(replace(at, panel=self.named("panel", self.panels) if panel != first else panel))

        if self.packs_b:
            with body.loop("panel", last, first) as panel:
                self.declare_panel(named(panel))
        with self.tiles_of(at.row_block) as tile:
            at = self.in_tile(at, tile)
            with body.loop("panel", last, first) as panel:
                inner = named(panel)
                self.find_panel(inner)
                self._whole_tile(inner)

    def _whole_tile(self, at: Place) -> None:
        """Print a tile whose K is not divided."""
        if not self.in_registers:
            self.body.declare(f"{self.kind.ctype} tile[{text_of(self.kind.sums)}]")
        self.multiply(at)
        self.finish(at)

    def _panel(self, at: Place, slice_: Index, number: Index) -> None:
        """Print, tile by tile, the sums and, if they are complete, the epilogue; ``number`` counts the panels
        of the task."""
        body, cut = self.body, self.cut
        at = self.in_panel(at)
        self.declare_panel(at)
        with self.tiles_of(at.row_block) as tile:
            at = self.in_tile(at, tile)
            self.leave_out_mirrored(at)
            if cut is None:
                self._whole_tile(at)
                return
            at = replace(at, sums=self._sums(at, slice_, number))
            self.multiply(at)
            if cut.slices == 1:
                last = f"if ({bare(at.block)} == {bare(cut.blocks - 1)})"
                with body.block(last) if cut.blocks != 1 else nullcontext():
                    self.finish(at)

    def _sums(self, at: Place, slice_: Index, number: Index) -> Pointer:
        """The place where the sums of a tile wait."""
        assert self.cut is not None
        if self.cut.own:
            first = at.row_block * self.row_tiles // self.row_blocks
            number = self.own_number(number * MOST_TILES + at.tile - first)
        else:
            matrix = self.matrix(at.batch) if at.batch else _ZERO
            number = (matrix * self.cut.slices + slice_) * self.row_tiles + at.tile
            number = number * self.panels + at.panel
        start = Pointer("sums") + self.body.let("number", number) * self.tile_size
        return self.body.pointer(self.kind.ctype, "total", start)

    def _join_slices(self, cut: Cut, directive: str, clauses: str) -> None:
        """Print the addition of slices in order, and the epilogue."""
        body = self.body
        body.comment("All sums are there: the epilogue.")
        loops = [*self.base.batch, ("tile_index", self.row_tiles), ("panel", self.panels)]
        with body.shared(loops, directive, clauses) as found:
            *batch, tile, panel = found
            self.name_batch(batch)
            at = self.in_tile(self.in_panel(self.blank(tuple(batch), panel)), tile)
            self.leave_out_mirrored(at)
            total = self._sums(at, _ZERO, _ZERO)
            step = body.let("step", self.row_tiles * self.panels * self.tile_size)
            items, simd = at.rows * self.width, "#pragma omp simd"
            with (
                body.loop("slice", Index.of(cut.slices), Index.of(1)) as slice_,
                body.loop("i", items, pragma=simd) as i,
            ):
                body.assign(total[i], total[slice_ * step + i], "+=")
            self.finish(replace(at, sums=total))

    # -- symmetric products ----------------------------------------------------------------------
    def leave_out_mirrored(self, at: Place) -> None:
        """Continue with the next tile if all of this one is below the diagonal."""
        if self.is_symmetric:
            self.body.put(f"if ({bare(at.column_0 + at.columns)} <= {bare(at.row_0)}) continue;")

    def finish_mirrored(self, at: Place, epilogue: Callable[[str, Index, Index], str]) -> None:
        """Print the epilogue for the elements of a finished tile from the diagonal on, and for their mirror images,
        which the result may lack in its last columns."""
        body, simd, m, n = self.body, "#pragma omp simd", self.base.m, self.base.n
        with self.rows_of(at) as (i, row):
            first = body.let("first", extremum("max", row - at.column_0, 0))
            with body.loop("j", at.columns, first, pragma=simd) as j:
                column = body.let("column", at.column_0 + j, like=n - 1)
                body.put(epilogue(at.sum(i, j), row, column))
        mirrored = at.columns if m == n else smaller(at.columns, m - at.column_0)
        with body.loop("j", mirrored) as j:
            row = body.let("row", at.column_0 + j, like=m - 1)
            up_to = body.let("up_to", smaller(at.rows, row - at.row_0))
            with body.loop("i", up_to, pragma=simd) as i:
                column = body.let("column", at.row_0 + i, like=m - 1)
                body.put(epilogue(at.sum(i, j), row, column))

    # -- finishing -------------------------------------------------------------------------------
    @contextmanager
    def rows_of(self, at: Place) -> Iterator[tuple[Index, Index]]:
        """A loop over a tile's rows: the index in the tile, and the row.

        Indices are int64_t: as far as GCC knows (-fwrapv), products of int may wrap around, so that it
        would gather the tile element by element (measured: 20 % of a product at k = 64)."""
        with self.body.loop("i", at.rows) as i:
            yield i, self.body.let("row", at.row_0 + i, like=self.base.m - 1)

    def finish_rows(
        self,
        at: Place,
        epilogue: Callable[[str, Index, Index], str],
        total: Callable[[Index, Index], str] | None = None,
        before: Callable[[Index], None] | None = None,
    ) -> None:
        """Print loops over a finished tile around the statements of an epilogue. ``total`` is the finished
        sum; ``before`` prints what the statements of a row read."""
        body, total = self.body, total or at.sum
        with self.rows_of(at) as (i, row):
            if before is not None:
                before(row)
            with body.loop("j", at.columns, pragma="#pragma omp simd") as j:
                column = body.let("column", at.column_0 + j, like=self.base.n - 1)
                body.put(epilogue(total(i, j), row, column))
