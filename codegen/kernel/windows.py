"""Loops of a reduction whose elements lie side by side for neighbouring results, a row of results
at a time: pooling over small windows, and sums over any axis but the last.

In: the expression of a lowered group over its space. Out: statements in which each element of the
window is one loop along the row, ``y[k] = max(y[k], x[2*k + s - 1])``, which a compiler turns into
SIMD code; the conditions for windows that stick out become the bounds of these loops. None for
groups of another form, which :mod:`fxlite.codegen.kernel.schedule` schedules one element at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fxlite.codegen.kernel.kernel_ir import Buffer, For, If, Stmt, Store
from fxlite.codegen.kernel.nest import combine, neutral
from fxlite.codegen.kernel.sums import is_long, joined, sum_of_rows
from fxlite.scalar import expr
from fxlite.scalar.expr import (
    Apply,
    CheckedIndex,
    Const,
    Expr,
    IndexValue,
    Load,
    MultiIndex,
    Reduction,
)
from fxlite.scalar.functions import COMBINATIONS
from fxlite.scalar.index import Index, Var, extremum, flatten

MOST_ELEMENTS = 64
"""Elements of a window whose neighbour in the row does not lie next to it."""
MOST_COLUMNS = 11
"""Columns of a window: each is printed as a loop of its own."""
MOST_OPERATIONS = 1 << 20
"""Operations for a result that is a single row, which one thread computes."""
MOST_STEP = 4
"""Distance in memory between what neighbours in a row read; further apart, SIMD does not pay."""


@dataclass(frozen=True)
class _Window:
    """A reduction of ``body`` over ``rows`` (loops) and ``column`` (one loop along the row for each
    value; None if there is nothing to gain), for those elements inside the image: where
    ``row_conditions`` hold and each of ``bounds``, an index in the row's variable, is not
    negative."""

    reduction: Reduction
    body: Expr
    rows: tuple[Var, ...]
    column: Var | None
    row_conditions: tuple[Expr, ...]
    bounds: tuple[Index, ...]


def window_rows(
    space: Sequence[Var],
    value: Expr,
    store: MultiIndex,
    output: Buffer,
    shapes: dict[str, MultiIndex],
) -> list[Stmt] | None:
    """The loops that store ``value`` over ``space``; None if it is no reduction over windows."""
    if not space:
        return None
    reductions = [n for n in expr.walk(value) if isinstance(n, Reduction)]
    if len(reductions) != 1:
        return None
    (reduction,) = reductions
    is_wide = is_long(reduction)
    window = _window(joined(reduction, shapes) if is_wide else reduction, space[-1], shapes)
    if window is None or (len(space) == 1 and not _is_short(window, space[0])):
        return None
    if window.reduction.body.dtype.compute is not output.dtype:
        return None
    along = space[-1]
    if is_wide:
        if window.column is not None or window.row_conditions or window.bounds:
            return None

        def finished(column: Index, total: Expr) -> Stmt:
            final = expr.transform(value, lambda n: total if n is reduction else n)
            env = {along: column}
            at = tuple(i.substitute(env) for i in store)
            return Store(output.name, at, expr.substitute_index(final, env))

        sums = sum_of_rows(window.rows, along, window.body, output.dtype, finished)
        return _around(space, sums)
    total = Load(output.dtype, output.name, store)
    start = For(along, (Store(output.name, store, neutral(reduction.kind, output.dtype)),), "simd")
    columns: list[Stmt] = []
    for number in range(1 if window.column is None else window.column.extent.constant or 0):
        env = {} if window.column is None else {window.column: Index.of(number)}
        first, count = _range(along, [b.substitute(env) for b in window.bounds])
        if count.constant is not None and count.constant <= 0:
            continue  # outside of the image for every element of the row
        here = expr.fresh_var(count, "v")
        body = expr.substitute_index(window.body, {**env, along: first + here})
        at = tuple(i.substitute({along: first + here}) for i in store)
        so_far = Load(output.dtype, output.name, at)
        step = Store(output.name, at, combine(reduction.kind, so_far, body))
        columns.append(For(here, (step,), "simd"))
    body_of_row: list[Stmt] = columns
    if window.row_conditions:
        body_of_row = [If(expr.both(*window.row_conditions), tuple(columns))]
    for variable in reversed(window.rows):
        body_of_row = [For(variable, tuple(body_of_row))]
    statements: list[Stmt] = [start, *body_of_row]
    if value is not reduction:
        final = expr.transform(value, lambda n: total if n is reduction else n)
        statements.append(For(along, (Store(output.name, store, final),), "simd"))
    return _around(space, statements)


def _around(space: Sequence[Var], statements: list[Stmt]) -> list[Stmt]:
    """The loops over all rows."""
    for depth in range(len(space) - 2, -1, -1):
        kind = "independent" if depth else "parallel"
        statements = [For(space[depth], tuple(statements), kind)]
    return statements


def _window(reduction: Reduction, along: Var, shapes: dict[str, MultiIndex]) -> _Window | None:
    """The reduction over windows, if that is its form."""
    if COMBINATIONS[reduction.kind].positions or reduction.body.dtype.is_bool:
        return None
    body, conditions = _split(reduction)
    if any(isinstance(n, (CheckedIndex, Reduction)) for n in expr.walk(body)):
        return None
    if any(isinstance(n, Load) and n.guard is not None for n in expr.walk(body)):
        return None
    sizes = [v.extent.constant or 0 for v in reduction.variables]
    small = 2 <= math.prod(sizes) <= MOST_ELEMENTS and sizes[-1] <= MOST_COLUMNS
    if not _is_along(body, along, shapes, MOST_STEP if small else 1):
        return None
    beside = small and not _is_alone(body, conditions, along)
    column = reduction.variables[-1] if beside else None
    rows = reduction.variables[:-1] if beside else reduction.variables
    row_conditions: list[Expr] = []
    bounds: list[Index] = []
    for condition in conditions:
        if not expr.free_variables(condition) & {along, column}:
            row_conditions.append(condition)
            continue
        bound = _not_negative(condition)
        step = None if bound is None else bound.coefficient(along)
        if bound is None or step is None or step.constant in (None, 0):
            return None
        bounds.append(bound)
    return _Window(reduction, body, rows, column, tuple(row_conditions), tuple(bounds))


def _is_alone(body: Expr, conditions: Sequence[Expr], along: Var) -> bool:
    """Whether the row's variable indexes an axis of its own, as channels do that come last: the
    window then lies across the row, and each of its elements is one loop along it."""
    if any(along in expr.free_variables(c) for c in conditions):
        return False
    indices = (i for n in expr.walk(body) if isinstance(n, Load) for i in n.index)
    return all(along not in (used := i.variables()) or len(used) == 1 for i in indices)


def _is_short(window: _Window, along: Var) -> bool:
    """Whether one thread suffices for the only row."""
    sizes = [v.extent.constant for v in (*window.reduction.variables, along)]
    return all(sizes) and math.prod(s or 0 for s in sizes) <= MOST_OPERATIONS


def _split(reduction: Reduction) -> tuple[Expr, list[Expr]]:
    """The body without the conditions under which it is not the value a reduction starts from."""
    body = reduction.body
    start = neutral(reduction.kind, body.dtype)
    guard: Expr | None = None
    if isinstance(body, Apply) and body.function == "where":
        other = body.args[2]
        if isinstance(other, Const) and other.value == start.value:
            guard, body = body.args[0], body.args[1]
    elif isinstance(body, Load) and body.guard is not None and start.value == 0:
        guard = body.guard
    if guard is None:
        return body, []
    return expr.transform(body, lambda n: _unguarded(n, guard)), _conjuncts(guard)


def _unguarded(node: Expr, guard: Expr) -> Expr:
    if isinstance(node, Load) and node.guard is guard:
        return Load(node.dtype, node.buffer, node.index)
    return node


def _conjuncts(condition: Expr) -> list[Expr]:
    if isinstance(condition, Apply) and condition.function == "and":
        return [c for a in condition.args for c in _conjuncts(a)]
    return [condition]


def _is_along(body: Expr, along: Var, shapes: dict[str, MultiIndex], most: int) -> bool:
    """Whether neighbours along the row read places that are at most so far apart."""
    loads = [n for n in expr.walk(body) if isinstance(n, Load)]
    steps = [flatten(n.index, shapes[n.buffer]).coefficient(along) for n in loads]
    constants = [None if s is None else s.constant for s in steps]
    return (
        bool(loads) and all(c is not None and 0 <= c <= most for c in constants) and any(constants)
    )


def _not_negative(condition: Expr) -> Index | None:
    """An index that is not negative where the condition holds, and only there."""
    if not isinstance(condition, Apply) or condition.function not in ("ge", "lt"):
        return None
    sides = []
    for side in condition.args:
        if isinstance(side, IndexValue):
            sides.append(side.index)
        elif isinstance(side, Const):
            sides.append(Index.of(int(side.value)))
        else:
            return None
    left, right = sides
    return left - right if condition.function == "ge" else right - left - 1


def _range(along: Var, bounds: Sequence[Index]) -> tuple[Index, Index]:
    """The first element of the row for which all bounds are not negative, and their number."""
    first, end = Index.of(0), along.extent
    for bound in bounds:
        step = bound.coefficient(along)
        factor = 0 if step is None else step.constant or 0
        rest = bound - Index.of(along) * factor
        if factor > 0:  # factor * k >= -rest
            first = extremum("max", first, -(rest // factor))
        else:
            end = extremum("min", end, rest // -factor + 1)
    return first, end - first
