"""Transpose a square block at a time, for operands whose elements are far apart along the loop that stores.

In: the value of an element over loop variables. Out: statements, or None. In ``y[i, j] = f(x[j, i])`` one of the two
arrays is walked across its rows, and only one element of each cache line is used before the next line is needed; if
rows are a power of two apart, lines even evict each other. Instead, a square of ``x`` is copied into a local array,
transposed, and ``f`` reads it in the order in which it stores. Consecutive squares are along the rows of ``x``, because
reads wait for memory and stores do not. (Measured on Zen 4, one thread, f32[1024,1024]: 4.1 ms with loops over ``y``,
0.35 ms in this way; f64[200,256] 107 and 19 us.)

Loops::

    for j in range(ceil(N / 32)):
        for i in range(ceil(M / 32)):
            float tile[32 * 32]
            copy: tile[k * 32 + l] = x[32 * j + l, 32 * i + k]
            for k in range(rows):
                for l in range(columns):
                    y[32 * i + k, 32 * j + l] = f(tile[k * 32 + l])

If ``y`` is ``x`` transposed and nothing else, squares are transposed from one to the other (measured for
f32[1000,1000]: 1.2 ms by local arrays, 0.25 ms without).

Rows that are too short for SIMD code, and are reduced, as by a softmax over ten classes, are computed side by side:
32 of them are copied into a local array, transposed, in which each step is one for all of them; so is what is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fxlite.codegen.kernel.kernel_ir import Alloc, Assign, For, Let, Stmt, Store, fresh_local
from fxlite.codegen.kernel.nest import Nest, combine, move, neutral
from fxlite.codegen.kernel.sums import COSTLY
from fxlite.passes.group import SHORT_ROW
from fxlite.scalar import expr
from fxlite.scalar.expr import Apply, CheckedIndex, Expr, Load, Local, MultiIndex, Reduction
from fxlite.scalar.functions import COMBINATIONS, FUNCTIONS
from fxlite.scalar.index import Index, Value, Var, extremum, flatten, product
from fxlite.types import dtypes

SIDE = 32
"""Rows and columns of a square: a row of 4-byte elements fills two lines, and the square an eighth of a first-level
cache."""
LEAST = 8
"""The least elements of an axis for which squares are faster."""
FEWEST = 1024
"""The least elements of an array for which they are."""
SHORTEST_ROW = 2
"""The least elements of a row that is computed beside others."""
MOST = 4
"""The most operands that are transposed in one kernel: each has a square in the first-level cache."""
BLOCK = 512
"""Places of an axis at which a few elements lie side by side that are stored apart, as the channels of an image: with
up to seven elements of 8 bytes they stay in the first-level cache."""
WOVEN = 32768
"""The least bytes for which that makes a difference."""


def transposed_rows(space: Sequence[Var], value: Expr, store: MultiIndex, output: str, nest: Nest) -> list[Stmt] | None:
    """The loops that store ``value`` over ``space``, with those operands transposed whose elements are far apart along
    the last variable and adjacent along another one; None if there are none. ``nest``, which is without loops, knows
    the shapes of buffers."""
    count = product(v.extent for v in space).constant
    if len(space) < 2 or (count is not None and count < FEWEST) or not _is_long(space[-1]):
        return None
    if any(isinstance(node, Reduction) for node in expr.walk(value)):
        return None
    column = space[-1]
    loads = {(n.buffer, n.index): n for n in expr.walk(value) if isinstance(n, Load) and n.guard is None}
    rows = {key: row for key, load in loads.items() if (row := _row(load, space, nest.shapes)) is not None}
    if not rows and (woven := _woven(loads.values(), space, nest.shapes)) is not None:
        return _unwoven(woven, space, value, store, output, nest)
    if not rows or len(set(rows.values())) > 1 or len(rows) > MOST:
        return None
    row = next(iter(rows.values()))
    blocks = {v: expr.fresh_var((v.extent + (SIDE - 1)) // SIDE, "v") for v in (row, column)}
    sizes = {v: _size(v.extent, block) for v, block in blocks.items()}
    extents = [s if isinstance(s, Index) else Index.of(Value(Local(dtypes.int64, s.name))) for s in sizes.values()]

    def square() -> tuple[list[Var], dict[Var, Index]]:
        """Variables for the rows and columns of a square, and the places that they represent."""
        inside = [expr.fresh_var(extent, "v") for extent in extents]
        return inside, {v: Index.of(blocks[v]) * SIDE + new for v, new in zip((row, column), inside)}

    squares = nest.within([*_ordered([v for v in space[:-1] if v is not row], blocks[column]), blocks[row]])
    squares.levels[-1] += [size for size in sizes.values() if isinstance(size, Let)]
    if isinstance(value, Load) and _is_copied(value, rows, flatten(store, nest.shapes[output]), row, column):
        (down, across), env = square()
        moved = move(Store(output, store, value), env)
        squares.levels[-1].append(For(across, (For(down, (moved,), "serial"),), "transpose"))
        return squares.finish([])
    tiles: dict[tuple[str, MultiIndex], Local] = {}
    for key in rows:
        (down, across), env = square()
        tile = fresh_local(loads[key].dtype.compute, "_tile")
        place = Index.of(down) * SIDE + across
        copied = Assign(Local(tile.dtype, tile.name, (place,)), expr.substitute_index(loads[key], env))
        squares.levels[-1] += [
            Alloc(tile.name, tile.dtype, expr.const(0, tile.dtype), SIDE * SIDE, Index.of(0)),
            For(across, (For(down, (copied,), "serial"),), "transpose"),
        ]
        tiles[key] = tile
    inside, env = square()
    place = Index.of(inside[0]) * SIDE + inside[1]

    def read(node: Expr) -> Expr:
        tile = tiles.get((node.buffer, node.index)) if isinstance(node, Load) and node.guard is None else None
        return node if tile is None else Local(node.dtype, tile.name, (place,))

    return squares.storing(inside, Store(output, store, expr.transform(value, read)), env)


def are_short_rows(space: Sequence[Var]) -> bool:
    """Whether the loops are over many rows that are too short for SIMD code along them."""
    if len(space) < 2 or (space[-2].extent.constant or SIDE * 2) < SIDE * 2:
        return False
    return SHORTEST_ROW <= (space[-1].extent.constant or 0) <= SHORT_ROW


def rows_side_by_side(
    space: Sequence[Var], value: Expr, store: MultiIndex, output: str, nest: Nest
) -> list[Stmt] | None:
    """The loops that store ``value``, which is computed from reductions of short rows (:func:`are_short_rows`), over
    ``space``, the last loop of which is along a row; None for others. Operands of reductions that ``nest`` keeps are
    stored, too."""
    result, reductions = value.dtype, [n for n in expr.walk(value) if isinstance(n, Reduction)]
    if not reductions or result is not result.compute or result.itemsize < 4:
        return None
    *others, row, along = space
    if flatten(store, nest.shapes[output]).coefficient(along) != 1:
        return None
    loads = [n for n in expr.walk(value) if isinstance(n, Load) and row in expr.free_variables(n)]
    if not all(_is_along(n, row, along) for n in reductions) or not all(map(_is_plain, loads)):
        return None
    if not any(map(_is_costly, reductions)):
        return None
    rows = _Rows(nest, others, row, along)
    results = rows.tile(Load(result, output, store), along)
    for part, variable in [*((n.body, n.variables[0]) for n in reductions), (value, along)]:
        for load in (n for n in expr.walk(part, (Reduction,)) if isinstance(n, Load)):
            if row in expr.free_variables(load) and rows.key(load, variable) not in rows.tiles:
                rows.copy(rows.tile(load, variable), Load(load.dtype, *rows.key(load, variable)))
    for node in reductions:
        rows.reduce(node, results if id(node) in nest.kept else None)
    rows.compute(value, along, lambda bound, here, lane: [Assign(_at(results, here * SIDE + lane), bound)])
    rows.copy(results, Load(result, output, store), is_result=True)
    return rows.blocks.finish([])


class _Rows:
    """Loops over blocks of as many rows as a square has, which are computed side by side: ``tiles`` are local arrays
    with one row in each lane, for what is read and for the result, and ``totals`` hold what was reduced."""

    def __init__(self, nest: Nest, others: Sequence[Var], row: Var, along: Var) -> None:
        self.row, self.along, self.shapes = row, along, nest.shapes
        self.block = expr.fresh_var((row.extent + (SIDE - 1)) // SIDE, "v")
        self.blocks = nest.within([*others, self.block])
        size = _size(row.extent, self.block)
        self.blocks.levels[-1] += [size] if isinstance(size, Let) else []
        self.count = size if isinstance(size, Index) else Index.of(Value(Local(dtypes.int64, size.name)))
        self.tiles: dict[tuple[str, MultiIndex], Local] = {}
        self.totals: dict[int, Local] = {}

    def key(self, load: Load, variable: Var) -> tuple[str, MultiIndex]:
        """Equal for loads of the same elements of a row by several loops along it."""
        return load.buffer, tuple(i.substitute({variable: Index.of(self.along)}) for i in load.index)

    def tile(self, load: Load, variable: Var) -> Local:
        """A local array for what is loaded from the rows of a block."""
        length = self.along.extent.constant if variable in expr.free_variables(load) else 1
        made = self.tiles[self.key(load, variable)] = fresh_local(load.dtype, "_tile")
        zero = expr.const(0, load.dtype)  # in lanes without a row
        self.blocks.levels[-1].append(Alloc(made.name, load.dtype, zero, SIDE * (length or 1)))
        return made

    def copy(self, tile: Local, element: Load, is_result: bool = False) -> None:
        """Copy elements from memory into a local array, or results from there."""
        lane, here = expr.fresh_var(self.count, "lane"), expr.fresh_var(self.along.extent, "v")
        env = {self.row: Index.of(self.block) * SIDE + lane, self.along: Index.of(here)}
        there = tuple(i.substitute(env) for i in element.index)
        inside = _at(tile, _within(element, self.along, here, lane))
        moves = Store(element.buffer, there, inside) if is_result else Assign(inside, replace(element, index=there))
        place = flatten(element.index, self.shapes[element.buffer])
        if place.coefficient(self.along) == 1 and place.coefficient(self.row) != 1:
            outer, inner = (here, lane) if is_result else (lane, here)
            loop = For(outer, (For(inner, (moves,), "serial"),), "transpose")
        else:
            loop = For(lane, (moves,), "simd")
            loop = For(here, (loop,), "serial") if self.along in expr.free_variables(element) else loop
        self.blocks.levels[-1].append(loop)

    def reduce(self, node: Reduction, kept: Local | None) -> None:
        """Reduce a row in each lane; ``kept`` is a local array for what is reduced."""
        dtype = node.body.dtype.compute
        total = fresh_local(dtype, "_totals")
        self.blocks.levels[-1].append(Alloc(total.name, dtype, neutral(node.kind, dtype), SIDE))

        def step(bound: Expr, here: Index, lane: Index) -> list[Stmt]:
            so_far, term = _at(total, lane), bound if kept is None else _at(kept, here * SIDE + lane)
            steps: list[Stmt] = [] if kept is None else [Assign(_at(kept, here * SIDE + lane), bound)]
            return [*steps, Assign(so_far, combine(node.kind, so_far, term))]

        self.compute(node.body, node.variables[0], step, "serial")
        self.totals[id(node)] = total

    def compute(
        self, part: Expr, variable: Var, made: Callable[[Expr, Index, Index], list[Stmt]], kind: str = "independent"
    ) -> None:
        """The loops that compute a part of the value for all places along the rows, one place after the other."""
        here, lane = expr.fresh_var(self.along.extent, "v"), expr.fresh_var(SIDE, "lane")
        env = {self.row: Index.of(self.block) * SIDE + lane, variable: Index.of(here)}
        found: dict[int, Expr] = {}
        for node in expr.walk(part, (Reduction,)):
            if id(node) in self.totals:
                found[id(node)] = _at(self.totals[id(node)], Index.of(lane))
            elif isinstance(node, Load) and (tile := self.tiles.get(self.key(node, variable))):
                found[id(node)] = _at(tile, _within(node, variable, here, lane))
        inner = self.blocks.within([here, lane])
        bound = inner.bind(expr.substitute_index(expr.transform(part, lambda n: n, found), env))
        self.blocks.add(inner, made(bound, Index.of(here), Index.of(lane)))
        loop = self.blocks.levels[-1].pop()
        assert isinstance(loop, For)
        self.blocks.levels[-1].append(replace(loop, kind=kind))


def _at(local: Local, index: Index) -> Local:
    return replace(local, index=(index,))


def _is_along(node: Reduction, row: Var, along: Var) -> bool:
    """Whether a reduction is one of a whole row."""
    if COMBINATIONS[node.kind].positions or len(node.variables) > 1 or node.variables[0].extent != along.extent:
        return False
    free = expr.free_variables(node)
    if row not in free or along in free or node.dtype is not node.body.dtype or node.dtype.itemsize < 4:
        return False
    parts = list(expr.walk(node.body))
    return node.dtype.is_float and not any(isinstance(n, (CheckedIndex, Local)) for n in parts)


def _is_costly(node: Reduction) -> bool:
    """Whether what is reduced takes longer to compute than its operands take to be moved."""
    memo: dict[int, frozenset[Var]] = {}
    expr.free_variables(node.body, memo)
    parts = (n for n in expr.walk(node.body, (Reduction,)) if isinstance(n, Apply))
    return any(FUNCTIONS[n.function].cost >= COSTLY and node.variables[0] in memo[id(n)] for n in parts)


def _within(load: Load, variable: Var, here: Var, lane: Var) -> Index:
    """Where an element lies in a local array with one row in each lane."""
    return Index.of(here) * SIDE + lane if variable in expr.free_variables(load) else Index.of(lane)


def _is_plain(load: Load) -> bool:
    """Whether what a load reads may be copied before it is known whether it is needed."""
    return load.guard is None and not expr.run_time_values(load.index) and load.dtype is load.dtype.compute


def _is_copied(load: Load, rows: Collection[Any], place: Index, row: Var, column: Var) -> bool:
    """Whether squares are stored as they are loaded, with adjacent elements along the column: then no local array holds
    them. Rows of small numbers are stored faster from one, as whole vectors. If the load is not among the ``rows``, one
    of its indices is."""
    moves = load.guard is None and (load.buffer, load.index) in rows and load.dtype.itemsize >= 4
    return moves and place.coefficient(column) == 1 and place.coefficient(row) is not None


def _is_long(variable: Var) -> bool:
    size = variable.extent.constant
    return size is None or size >= LEAST


def _row(load: Load, space: Sequence[Var], shapes: Mapping[str, MultiIndex]) -> Var | None:
    """The loop along which a load reads adjacent elements although it does not along the last one."""
    if expr.run_time_values(load.index):
        return None
    place = flatten(load.index, shapes[load.buffer])
    step = place.coefficient(space[-1])
    if step is None or step == 0 or abs(step.constant or LEAST) < LEAST or step.variables():
        return None
    return next((v for v in space[:-1] if place.coefficient(v) == 1 and _is_long(v)), None)


def _woven(loads: Iterable[Load], space: Sequence[Var], shapes: Mapping[str, MultiIndex]) -> Var | None:
    """The loop over a few elements that are adjacent in memory where the last loop takes steps of so many."""
    for load in loads:
        place = flatten(load.index, shapes[load.buffer])
        step, count = place.coefficient(space[-1]), space[-1].extent.constant
        if step is None or step.constant is None or not 1 < step.constant < LEAST:
            continue
        if count is None or count * step.constant * load.dtype.itemsize >= WOVEN:
            few = (v for v in space[:-1] if place.coefficient(v) == 1 and 1 < (v.extent.constant or 1) <= step.constant)
            return next(few, None)
    return None


def _unwoven(
    few: Var, space: Sequence[Var], value: Expr, store: MultiIndex, output: str, nest: Nest
) -> list[Stmt] | None:
    """Loops over blocks of the last axis around those over a few elements of each of its places, for which a block is
    read from the first-level cache."""
    column = space[-1]
    block = expr.fresh_var((column.extent + (BLOCK - 1)) // BLOCK, "v")
    size = _size(column.extent, block, BLOCK)
    extent = size if isinstance(size, Index) else Index.of(Value(Local(dtypes.int64, size.name)))
    blocks = nest.within([*(v for v in space[:-1] if v is not few), block])
    blocks.levels[-1] += [size] if isinstance(size, Let) else []
    inside = expr.fresh_var(extent, "v")
    env = {column: Index.of(block) * BLOCK + inside}
    return blocks.storing([few, inside], Store(output, store, value), env)


def _ordered(others: Sequence[Var], across: Var) -> list[Var]:
    """Loops around those over a row of squares: threads divide the first, which should have many iterations."""
    few = bool(others) and (others[0].extent.constant or LEAST) < LEAST
    return [across, *others] if few else [*others, across]


def _size(extent: Index, block: Var, most: int = SIDE) -> Index | Let:
    """Rows or columns of a square, or the elements of a block; there are fewer at the border."""
    if (size := extent.constant) is not None and size % most == 0:
        return Index.of(most)
    local = fresh_local(dtypes.int64, "_count")
    return Let(local.name, expr.index_value(extremum("min", most, extent - Index.of(block) * most)))
