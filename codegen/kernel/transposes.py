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
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from fxlite.codegen.kernel.kernel_ir import Alloc, Assign, For, Let, Stmt, Store, fresh_local
from fxlite.codegen.kernel.nest import Nest, move
from fxlite.scalar import expr
from fxlite.scalar.expr import Expr, Load, Local, MultiIndex, Reduction
from fxlite.scalar.index import Index, Value, Var, extremum, flatten, product
from fxlite.types import dtypes

SIDE = 32
"""Rows and columns of a square: a row of 4-byte elements fills two lines, and the square an eighth of a first-level
cache."""
LEAST = 8
"""The least elements of an axis for which squares are faster."""
FEWEST = 1024
"""The least elements of an array for which they are."""
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
