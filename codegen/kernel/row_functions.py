"""Functions of a row of numbers at a time, which takes less time if none of the numbers is large.

In: the value of an element over loop variables. Out: statements, or None. The sine of any float needs its remainder
modulo pi/2 to many bits, in doubles; below 2^16 three products of floats do. In a loop over single numbers both ways
would be computed, because SIMD code has no branches. So the operands of a block of a row are computed first, into a
local array, then their sines in place, by a function that looks at all of them, and then what is computed from these::

    for i in range(ceil(N / 256)):
        float row[256]
        for k in range(count):
            row[k] = x[256 * i + k] * 2
        row = fx_sin_row_f32(row)
        for k in range(count):
            y[256 * i + k] = row[k] + 1

(Measured on Zen 4, sines of f32[255,384]: 94 us in one loop, 45 us in this way.)
"""

from __future__ import annotations

from collections.abc import Sequence

from fxlite.codegen.kernel.kernel_ir import Alloc, Assign, For, Stmt, Store, fresh_local
from fxlite.codegen.kernel.nest import Nest
from fxlite.codegen.kernel.sums import named
from fxlite.scalar import expr
from fxlite.scalar.expr import Apply, CheckedIndex, Expr, Local, MultiIndex, Reduction
from fxlite.scalar.functions import FUNCTIONS
from fxlite.scalar.index import Index, Var, extremum

BLOCK = 256
"""Numbers of a row that are computed together: they stay in the first-level cache."""
LEAST = 64
"""The least elements of a row for which that is faster."""
MOST = 4
"""The most functions in one kernel."""


def rows_of_functions(
    space: Sequence[Var], value: Expr, store: MultiIndex, output: str, nest: Nest
) -> list[Stmt] | None:
    """The loops that store ``value`` over ``space``; None if it has no function that is computed for rows, or if
    that is computed inside of a reduction or of another one."""
    if not space or (space[-1].extent.constant or LEAST) < LEAST:
        return None
    parts = list(expr.walk(value))
    calls = [n for n in parts if isinstance(n, Apply) and _is_of_rows(n)]
    if not calls or any(isinstance(n, (Reduction, CheckedIndex)) for n in parts):
        return None
    found: list[Apply] = []
    for call in calls:
        if any(_is_of_rows(n) for n in expr.walk(call) if n is not call):
            return None
        if not any(expr.is_same(call, known, {}) for known in found):
            found.append(call)
    if len(found) > MOST:
        return None
    column = space[-1]
    block = expr.fresh_var((column.extent + (BLOCK - 1)) // BLOCK)
    blocks = nest.within([*space[:-1], block])
    least = extremum("min", BLOCK, column.extent - Index.of(block) * BLOCK)
    count = named(blocks.levels[-1], least, "_count")
    rows: list[Local] = []
    for call in found:
        row, lane = fresh_local(call.dtype, "_row"), expr.fresh_var(count, "lane")
        blocks.levels[-1].append(Alloc(row.name, row.dtype, expr.const(0, row.dtype), BLOCK, Index.of(0)))
        inner = blocks.within([lane])
        operand = expr.substitute_index(call.args[0], {column: Index.of(block) * BLOCK + lane})
        blocks.add(inner, [Assign(_at(row, lane), inner.bind(operand))])
        lane = expr.fresh_var(count, "lane")
        computed = Assign(_at(row, lane), expr.apply(call.function, _at(row, lane)))
        blocks.levels[-1].append(For(lane, (computed,), "row"))
        rows.append(row)
    lane = expr.fresh_var(count, "lane")
    env = {column: Index.of(block) * BLOCK + lane}

    def read(node: Expr) -> Expr:
        place = next((k for k, call in enumerate(found) if _is_of_rows(node) and expr.is_same(call, node, {})), None)
        return node if place is None else _at(rows[place], lane)

    return blocks.storing([lane], Store(output, store, expr.transform(value, read)), env)


def _is_of_rows(node: Expr) -> bool:
    return isinstance(node, Apply) and node.args[0].dtype.name in FUNCTIONS[node.function].rows


def _at(row: Local, lane: Var) -> Local:
    return Local(row.dtype, row.name, (Index.of(lane),))
