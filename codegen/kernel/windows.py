"""Loops of a reduction whose operands are adjacent for adjacent results, computed a row of results at a time:
pooling over small windows, and sums over any axis except the last.

In: the expression of a lowered group over its space. Out: statements in which the totals of a row are a local
array, and each element of the window is one loop along it, ``total[k] = max(total[k], x[2*k + s - 1])``, which a
compiler turns into SIMD code in registers; memory is written once. Results whose windows reach outside the image
are computed one at a time before and after these. None for groups of another form, which
:mod:`fxlite.codegen.kernel.schedule` schedules one element at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TypeAlias

from fxlite.codegen.kernel.bounds import inside, span
from fxlite.codegen.kernel.kernel_ir import Alloc, Assign, For, If, Let, Stmt, Store, fresh_local
from fxlite.codegen.kernel.nest import combine, is_better, move, neutral, place_in_order
from fxlite.codegen.kernel.sums import (
    COLUMNS,
    MOST_COLUMNS,
    PAGE,
    ROWS,
    Columns,
    Joined,
    are_repeatable,
    is_long,
    is_product,
    joined,
    reads_much,
    sum_of_rows,
)
from fxlite.scalar import expr
from fxlite.scalar.expr import Apply, Cast, CheckedIndex, Const, Expr, IndexValue, Load, Local, MultiIndex, Reduction
from fxlite.scalar.functions import COMBINATIONS
from fxlite.scalar.index import Given, Index, Value, Var, extremum, flatten, product
from fxlite.types import dtypes

MOST_ELEMENTS = 64
"""The most elements of a window if those of adjacent results are not adjacent."""
WINDOW_COLUMNS = 11
"""The most columns of a window: each is printed as a loop of its own."""
FEW_ADDED, FEW_COMPARED = 9, 4
"""The most numbers of windows that overlap and have no edges that are added, or compared, faster one by one: in rows of
a known size, for which loops are unrolled. (With edges, which would be loops of their own, by columns takes 0.3 to 1.1
of the time: measured for 2 x 2 and 3 x 3 of 4 x 4 to 112 x 112.)"""
FEW_COLUMNS = 8
"""The most columns that a row of so few numbers with edges reads if they are faster one by one. (By columns takes up to
2.4 times as long.)"""
FEW_TERMS = 4
"""The fewest terms of an element for which the order of operands in memory counts, and not that of results."""
SHORT_VECTOR = 8
"""The fewest results that are computed side by side instead of one after the other."""
LONGEST_ROW = 4096
"""The most columns of windows that are combined at a time, of all rows together."""
ROWS_OF_WINDOWS = 8
"""How many rows of windows are combined by rows before they are by columns: what is read too early after it was stored,
in other vectors, is waited for. (Measured for 3 x 3 and images of 13 x 17, 28 x 28 and 112 x 112, relative to a row at
a time: 0.33, 0.6 and 0.8; but windows seven columns apart take up to twice as long, so those are left alone.)"""
MOST_STEP = 4
"""The largest distance in memory between what adjacent results read; if they are further apart, SIMD is not faster."""


#: An element of a window, and indices that are not negative where it lies inside of the image.
_Element: TypeAlias = tuple[Expr, list[Index]]
#: What is done with a total at its place in the row.
_Stored: TypeAlias = Callable[[Index, Local], Stmt]


@dataclass(frozen=True)
class _Window:
    """A reduction of ``body`` over ``rows`` (loops) and ``column`` (one loop along the row for each value; None if
    that would not be faster), for those elements inside the image: where ``row_conditions`` hold and none of
    ``bounds``, indices in the row's variable, is negative."""

    reduction: Reduction
    body: Expr
    rows: tuple[Var, ...]
    column: Var | None
    row_conditions: tuple[Expr, ...]
    conditions: tuple[Expr, ...]
    bounds: tuple[Index, ...]


def in_order_of_operands(space: tuple[Var, ...], value: Expr, shapes: Mapping[str, MultiIndex]) -> tuple[Var, ...]:
    """The loops over the results of sums of products, with that one innermost along which each operand is adjacent or
    the same, as over the rows of the result of ``(a @ b).T`` or ``a.T @ b.T``: a result is stored once, and its
    operands are read for each of its terms. The order stays if that is so along the last loop, or if all operands are
    adjacent along the terms. (J. R. Allen and K. Kennedy: Automatic Loop Interchange, 1984.)"""
    reductions = [n for n in expr.walk(value) if isinstance(n, Reduction)]
    if len(space) < 2 or len(reductions) != 1 or COMBINATIONS[reductions[0].kind].positions:
        return space
    body, terms = reductions[0].body, reductions[0].variables
    operands = {(n.buffer, n.index) for n in expr.walk(body) if isinstance(n, Load)}
    if len(operands) < 2 or any(expr.run_time_values(index) for _, index in operands):
        return space
    if not expr.free_variables(reductions[0]).issuperset(space):
        return space
    if (product(v.extent for v in terms).constant or FEW_TERMS) < FEW_TERMS:
        return space
    if _is_along(body, space[-1], shapes, MOST_STEP) or any(_are_adjacent(body, term, shapes) for term in terms):
        return space
    rows = [v for v in space if _is_along(body, v, shapes, 1)]
    sizes = {v: v.extent.constant or LONGEST_ROW for v in rows}
    row = max(rows, key=sizes.__getitem__, default=None)
    if row is None or sizes[row] < SHORT_VECTOR:
        return space
    return (*(v for v in space if v is not row), row)


def _are_adjacent(body: Expr, along: Var, shapes: Mapping[str, MultiIndex]) -> bool:
    """Whether all loads read what is adjacent along the variable."""
    loads = [n for n in expr.walk(body) if isinstance(n, Load)]
    steps = [flatten(n.index, shapes[n.buffer]).coefficient(along) for n in loads]
    return all(step is not None and step.constant in (-1, 1) for step in steps)


def window_rows(
    space: Sequence[Var], value: Expr, store: MultiIndex, output: str, shapes: Mapping[str, MultiIndex]
) -> list[Stmt] | None:
    """The loops that store ``value`` over ``space``; None if it is not a reduction over windows."""
    if not space:
        return None
    reductions = [n for n in expr.walk(value) if isinstance(n, Reduction)]
    if len(reductions) != 1:
        return None
    (reduction,) = reductions
    before = list[Stmt]()
    bounded = _of_part(reduction, output, before)
    value = expr.replaced(value, reduction, bounded)
    found = _rows_of(bounded, space, value, store, output, shapes)
    return None if found is None else [*before, *found]


def _rows_of(
    reduction: Reduction,
    space: Sequence[Var],
    value: Expr,
    store: MultiIndex,
    output: str,
    shapes: Mapping[str, MultiIndex],
) -> list[Stmt] | None:
    along = space[-1]
    is_wide = is_long(reduction)
    checks, checked = _checks_before(reduction, along)
    if is_wide and not checks:
        checked = _between_bounds(checked, along)
    if not is_wide and (found := _by_columns(reduction, space, value, store, output, shapes)) is not None:
        return found
    window = _window(joined(checked, shapes) if is_wide and not checks else checked, along, shapes)
    if window is None or (checks and (window.column is not None or window.bounds)):
        return None
    kind = "parallel" if len(space) == 1 else "serial"  # of the loop over the parts of a row
    follow = bool(window.rows) and _follow_each_other(window.body, window.rows[-1], along, shapes)

    def stored(place: Index, total: Expr) -> Stmt:
        return move(Store(output, store, expr.replaced(value, reduction, total)), {along: place})

    if is_wide:
        if window.column is not None or window.bounds:
            return None
        computed = window.body.dtype.compute

        def of_row(env: Mapping[Var, Index], loop: For) -> list[Stmt]:
            here = [Let(s.name, expr.substitute_index(s.value, env)) for s in checks]
            where = expr.substitute_index(expr.both(*window.row_conditions), env)
            return [*here, If(where, (loop,)) if window.row_conditions else loop]

        of_rows = of_row if checks or window.row_conditions else None
        sums = sum_of_rows(window.rows, along, window.body, computed, stored, kind, of_rows, are_adjacent=follow)
        return _around(space, sums)
    if COMBINATIONS[reduction.kind].positions:
        if checks or window.column is not None or window.row_conditions or window.bounds:
            return None
        return _around(space, _places(window, along, stored, kind))
    elements: list[_Element] = []
    for number in range(1 if window.column is None else window.column.extent.constant or 0):
        env = {} if window.column is None else {window.column: Index.of(number)}
        bounds = [b.substitute(env) for b in window.bounds]
        first, last = span(along, bounds)
        if not last <= first:  # otherwise every element of the row is outside the image
            elements.append((expr.substitute_index(window.body, env), bounds))
    begin, end, named = Index.of(0), along.extent, list[Stmt]()
    all_bounds = [b for _, bounds in elements for b in bounds]
    if all(b.variables() == {along} for b in all_bounds):  # otherwise they differ between rows
        begin, end = span(along, all_bounds)
        begin = _named(extremum("min", begin, along.extent), named)
        end = _named(extremum("max", begin, end), named) if end != along.extent else end
        elements = [(body, []) for body, _ in elements]
    statements = [
        *_at_the_edge(window, along, Index.of(0), begin, stored),
        *_inside(window, elements, along, begin, end, stored, kind, checks, follow),
        *_at_the_edge(window, along, end, along.extent, stored),
    ]
    return [*named, *_around(space, statements)]


def _follow_each_other(body: Expr, row: Var, along: Var, shapes: Mapping[str, MultiIndex]) -> bool:
    """Whether each row that is read begins in memory where the one before it ends."""
    loads = [n for n in expr.walk(body) if isinstance(n, Load)]
    if any(n.guard is not None or expr.run_time_values(n.index) for n in loads) or any(
        isinstance(n, IndexValue) for n in expr.walk(body)
    ):
        return False
    places = [flatten(n.index, shapes[n.buffer]) for n in loads if n.index]
    steps = [(place.coefficient(row), place.coefficient(along)) for place in places]
    return bool(steps) and all(r is not None and c is not None and r == c * along.extent for r, c in steps)


def _checks_before(reduction: Reduction, along: Var) -> tuple[list[Let], Reduction]:
    """Statements that check the indices of a row that do not vary along it, as in sums of rows of a table; and the
    reduction that reads such rows."""
    checks: list[Let] = []

    def change(node: Expr) -> Expr:
        if not isinstance(node, CheckedIndex) or along in expr.free_variables(node):
            return node
        local = fresh_local(node.dtype, "_t")
        checks.append(Let(local.name, node))
        return local

    body = expr.transform(reduction.body, change)
    return checks, Reduction(reduction.dtype, reduction.kind, reduction.variables, body) if checks else reduction


def _of_part(reduction: Reduction, output: str, before: list[Stmt]) -> Reduction:
    """The reduction over the rows between bounds that are computed at run time, which get names ``before`` all loops,
    which store the ``output``. Reductions without such bounds stay as they are."""

    def number(value: Expr) -> Index | None:
        loads = [n for n in expr.walk(value) if not isinstance(n, (Apply, Cast, Const, IndexValue))]
        is_known = all(isinstance(n, Load) and n.guard is None and n.buffer != output for n in loads)
        is_one = all(isinstance(v, Given) for v in expr.free_variables(value))
        return Index.of(Value(value)) if is_known and is_one else None

    bounds = list[Index]()

    def noted(bound: Index) -> Index:
        bounds.append(bound)
        return bound

    inside(reduction, noted, frozenset(), number)
    varies = any(not isinstance(v, Given) for bound in bounds for v in bound.variables())
    if varies or not expr.run_time_values(tuple(bounds)):
        return reduction
    return inside(reduction, lambda bound: _named(bound, before), frozenset(), number)[0]


def _between_bounds(reduction: Reduction, along: Var) -> Reduction:
    """A sum over one variable, over those of its values for which conditions hold that do not vary along the row: rows
    below the diagonal, say. Several of them are then added at a time."""
    bounded, _ = inside(reduction, lambda end: end, frozenset())
    if len(reduction.variables) > 1 or bounded is reduction:
        return reduction
    (variable,) = bounded.variables
    if along in variable.extent.variables() or not variable.extent.is_polynomial:
        return reduction
    if variable.extent.is_nonnegative():
        return bounded
    loop = expr.fresh_var(extremum("max", variable.extent, 0))
    body = expr.substitute_index(bounded.body, {variable: Index.of(loop)})
    return Reduction(bounded.dtype, bounded.kind, (loop,), body)


def _named(index: Index, statements: list[Stmt]) -> Index:
    """The index, as a local variable if it is only known at the call."""
    if index.constant is not None:
        return index
    local = fresh_local(dtypes.int64, "_t")
    statements.append(Let(local.name, expr.index_value(index)))
    return Index.of(Value(local))


def _inside(
    window: _Window,
    elements: Sequence[_Element],
    along: Var,
    first: Index,
    last: Index,
    stored: _Stored,
    kind_of_turns: str,
    checks: Sequence[Let],
    follow: bool,
) -> list[Stmt]:
    """The results whose windows lie inside the image: many at once, with one element of each window added to the
    totals after another. ``follow`` says that each row begins in memory where the one before it ends."""
    if last <= first:
        return []
    kind, dtype = window.reduction.kind, window.reduction.body.dtype.compute
    several = not checks and _takes_several_rows(window, elements)
    most, least = (MOST_COLUMNS, PAGE // dtype.itemsize) if several else (COLUMNS, COLUMNS)
    columns = Columns.of(expr.fresh_var(last - first), most, least)
    if not any(bounds for _, bounds in elements) and are_repeatable((), *(body for body, _ in elements)):
        columns = columns.computed_twice()
    totals = fresh_local(dtype, "_a")

    def all_columns(*makes: _Stored) -> Callable[[Index, Index], list[Stmt]]:
        def made(column: Index, place: Index) -> list[Stmt]:
            total = Local(dtype, totals.name, (place,))
            return [make(first + columns.first + column, total) for make in makes]

        return made

    def row(makes: Sequence[_Stored], bounds: Sequence[Index] = ()) -> For:
        if not bounds:
            return columns.row(all_columns(*makes))
        lane = expr.fresh_var(columns.count, "lane")
        moved = {along: first + columns.first + lane}
        start, end = span(lane, [b.substitute(moved) for b in bounds])
        here = expr.fresh_var(end - start, "lane")
        total = Local(dtype, totals.name, (start + here,))
        return For(here, tuple(make(first + columns.first + start + here, total) for make in makes), "lanes")

    def step(body: Expr) -> _Stored:
        return lambda place, total: Assign(total, combine(kind, total, expr.substitute_index(body, {along: place})))

    joined = Joined.of(columns, along) if several and follow else None
    if several:
        *outer, rows = window.rows
        body, begin, left, steps = elements[0][0], Index.of(0), rows.extent, list[Stmt]()

        def of_rows(places: Sequence[Index]) -> list[Stmt]:
            return [row([step(expr.substitute_index(body, {rows: place})) for place in places])]

        def of_joined(lane: Index, place: Index) -> Stmt:
            there = {along: lane % along.extent, rows: place + lane // along.extent}
            total = Local(dtype, totals.name, (lane,))
            return Assign(total, combine(kind, total, expr.substitute_index(body, there)))

        if joined is not None:
            steps, begin, left = joined.rows(begin, left, of_joined)
        is_kept = kind_of_turns != "parallel" and is_product(body, along, window.rows)
        steps = _loops(outer, [*steps, *columns.rows(begin, left, dtype, of_rows, is_kept)])
    else:
        steps = _rows(window, [row([step(body)], bounds) for body, bounds in elements], checks)
    start = Alloc(totals.name, dtype, neutral(kind, dtype), columns.places, columns.used)
    statements: list[Stmt] = [start, *steps]
    if joined is not None:
        start = replace(start, size=joined.places, used=joined.used)
        part, lane = expr.fresh_var(joined.together - 1), expr.fresh_var(columns.count, "lane")
        places = Index.of(lane), (Index.of(part) + 1) * columns.count + lane
        total, other = (Local(dtype, totals.name, (place,)) for place in places)
        both = For(lane, (Assign(total, combine(kind, total, other)),), "lanes")
        statements = [joined.setup, start, *steps, For(part, (both,))]
    return columns.loop([*statements, *columns.every(all_columns(stored))], kind_of_turns)


def _places(window: _Window, along: Var, stored: Callable[[Index, Expr], Stmt], kind_of_turns: str) -> list[Stmt]:
    """The positions of extreme values: the best ones so far of a row and where they are, compared with another row at
    a time."""
    kind, dtype = window.reduction.kind, window.reduction.body.dtype.compute
    count = product(v.extent for v in window.rows).constant
    is_small = dtype.itemsize <= dtypes.int32.itemsize and count is not None and count < 2**31
    counted = dtypes.int32 if is_small else dtypes.int64  # as wide as the values, if possible: the same vectors
    columns = Columns.of(along, COLUMNS)
    best, where, value = fresh_local(dtype, "_best"), fresh_local(counted, "_where"), fresh_local(dtype, "_t")
    position = place_in_order(window.rows)

    def row(make: Callable[[Index, Local, Local], Sequence[Stmt]]) -> For:
        lane = expr.fresh_var(columns.count, "lane")
        at = (Index.of(lane),)
        known = Local(dtype, best.name, at), Local(counted, where.name, at)
        return For(lane, tuple(make(columns.first + lane, *known)), "lanes")

    def step(place: Index, best: Local, where: Local) -> list[Stmt]:
        here = expr.cast(expr.index_value(position), counted)
        better = fresh_local(dtypes.bool_, "_better")
        return [
            Let(value.name, expr.substitute_index(window.body, {along: place})),
            Let(better.name, is_better(kind, value, best)),
            Assign(best, expr.where(better, value, best)),
            Assign(where, expr.where(better, here, where)),
        ]

    start = [
        Alloc(best.name, dtype, neutral(kind, dtype), columns.size, columns.used),
        Alloc(where.name, counted, expr.const(0, counted), columns.size, columns.used),
    ]
    last = row(lambda place, _, where: [stored(place, expr.cast(where, window.reduction.dtype))])
    return columns.loop([*start, *_loops(window.rows, [row(step)]), last], kind_of_turns)


def _by_columns(
    reduction: Reduction,
    space: Sequence[Var],
    value: Expr,
    store: MultiIndex,
    output: str,
    shapes: Mapping[str, MultiIndex],
) -> list[Stmt] | None:
    """The loops of windows of several rows and columns: the rows of a row of windows are combined with each other
    first, column by column in lanes, and then the columns of each window. Columns outside the image are the initial
    value. None if windows have no such form, or no columns that are adjacent in memory."""
    *rows, across = reduction.variables
    along, width, height = space[-1], across.extent.constant, product(v.extent for v in rows).constant
    if height in (None, 1) or width is None or width < 2:
        return None
    body, conditions = _split(reduction)
    parts = list(expr.walk(body))
    loads = [n for n in parts if isinstance(n, Load)]
    if body.dtype.is_bool or any(isinstance(n, (CheckedIndex, Reduction, IndexValue)) for n in parts) or not loads:
        return None
    places = [flatten(n.index, shapes[n.buffer]) for n in loads]
    step = places[0].coefficient(along)
    apart = 0 if step is None else step.constant or 0
    if step is None or apart <= 0 or (columns := Columns.of(along, COLUMNS)).size * apart > LONGEST_ROW:
        return None
    most = FEW_ADDED if reduction.kind == "sum" else FEW_COMPARED
    is_few = along.extent.constant is not None and (height or most + 1) * width <= most
    read = (columns.size - 1) * apart + width
    if is_few and (read <= FEW_COLUMNS if conditions else apart == 1):
        return None  # columns that are read before their stores have ended
    bounds, row_conditions = [], []
    for condition in conditions:
        if not expr.free_variables(condition) & {along, across}:
            row_conditions.append(condition)
            continue
        bound = expr.not_negative(condition)
        if bound is None:
            return None
        bounds.append(bound)
    if any(p.coefficient(across) != 1 or p.coefficient(along) != step for p in places):
        return None
    if any({along, across} & i.variables() for n in loads for i in n.index[:-1]):
        return None  # columns of another axis than the place in the row
    if any(n.guard is not None or expr.run_time_values(n.index) for n in loads):
        return None
    for bound in bounds:
        one, other = bound.coefficient(along), bound.coefficient(across)
        if one is None or other is None or other.constant not in (1, -1) or one != other * step:
            return None

    kind, dtype = reduction.kind, body.dtype.compute
    at_once = min(ROWS_OF_WINDOWS, LONGEST_ROW // (columns.size * apart))
    several = apart <= MOST_STEP and at_once > 1 and len(space) > 2
    several = several and not any(space[-2] in b.variables() for b in bounds)
    turns = Columns.of(space[-2] if several else expr.fresh_var(1), at_once)
    row = expr.fresh_var(turns.count, "row")
    moved = {space[-2]: turns.first + row} if several else {}
    combined, column = fresh_local(dtype, "_columns"), expr.fresh_var((columns.count - 1) * step + width, "lane")
    first = Index.of(row) * column.extent
    size = turns.size * read
    start, end = span(column, [b.substitute({along: columns.first, across: Index.of(column)}) for b in bounds])
    named: list[Stmt] = []
    start, end = _named(start, named), _named(end, named) if bounds else end
    lane, element = expr.fresh_var(end - start, "lane"), expr.fresh_var(columns.count, "lane")
    here = Local(dtype, combined.name, (first + start + lane,))
    there = expr.substitute_index(body, {along: columns.first, across: start + lane, **moved})
    loop: Stmt = For(lane, (Assign(here, combine(kind, here, there)),), "lanes")
    if row_conditions:
        loop = If(expr.substitute_index(expr.both(*row_conditions), moved), (loop,))

    def inside(place: Index) -> Expr:
        return Local(dtype, combined.name, (first + Index.of(element) * step + place,))

    def stored(total: Expr) -> Stmt:
        final = Store(output, store, expr.replaced(value, reduction, total))
        return move(final, {along: columns.first + element, **moved})

    if width <= WINDOW_COLUMNS:
        of_all = reduce(partial(combine, kind), [inside(Index.of(n)) for n in range(width)])
        last: list[Stmt] = [For(element, (stored(of_all),), "lanes")]
    else:
        totals = fresh_local(dtype, "_a")
        total = Local(dtype, totals.name, (Index.of(element),))
        added = For(element, (Assign(total, combine(kind, total, inside(Index.of(across)))),), "lanes")
        last = [
            Alloc(totals.name, dtype, neutral(kind, dtype), columns.size, columns.used),
            For(across, (added,)),
            For(element, (stored(total),), "lanes"),
        ]
    used = None if columns.used is None and turns.used is None else turns.count * column.extent
    begin = Alloc(combined.name, dtype, neutral(kind, dtype), size, used)
    # Unrolled, columns would be kept in registers, and moved there one by one for strided vectors.
    order = "rolled" if is_few and conditions and apart > 1 and several else "serial"
    combining, storing = For(row, (loop,), order), For(row, tuple(last), order)
    statements = [*named, begin, *_loops(rows, [combining]), storing]
    statements = columns.loop(statements, "parallel" if len(space) == 1 else "serial")
    outer = [*space[:-2], along] if several else space
    return _around(outer, turns.loop(statements, "independent"))


def _at_the_edge(window: _Window, along: Var, first: Index, last: Index, stored: _Stored) -> list[Stmt]:
    """The results whose windows reach outside the image, one at a time."""
    if last <= first:
        return []
    kind, dtype = window.reduction.kind, window.reduction.body.dtype.compute
    column = expr.fresh_var(last - first, "v")
    place = first + column
    total, start = fresh_local(dtype, "_a"), neutral(kind, dtype)
    inside = expr.both(*window.conditions)
    element = expr.where(inside, expr.add_guard(window.body, inside), start)
    step: Stmt = Assign(total, combine(kind, total, expr.substitute_index(element, {along: place})))
    if window.column is not None:
        step = For(window.column, (step,))
    begin = Alloc(total.name, dtype, start)
    return [For(column, (begin, *_rows(window, [step]), stored(place, total)))]


def _rows(window: _Window, steps: list[Stmt], checks: Sequence[Let] = ()) -> list[Stmt]:
    """The steps for each row of a window that lies inside the image."""
    if window.row_conditions:
        steps = [If(expr.both(*window.row_conditions), tuple(steps))]
    return _loops(window.rows, [*checks, *steps])


def _loops(variables: Sequence[Var], statements: list[Stmt]) -> list[Stmt]:
    """The statements inside loops with these variables."""
    for variable in reversed(variables):
        statements = [For(variable, tuple(statements))]
    return statements


def _takes_several_rows(window: _Window, elements: Sequence[_Element]) -> bool:
    """Whether several rows are combined at a time, which reads memory faster: there are many, the order does not
    matter, and little is computed of each number."""
    if window.column is not None or window.row_conditions or not window.rows or any(bounds for _, bounds in elements):
        return False
    is_many = (window.rows[-1].extent.constant or 2 * ROWS) >= 2 * ROWS
    return is_many and reads_much(window.body)


def _around(space: Sequence[Var], statements: list[Stmt]) -> list[Stmt]:
    """The statements inside loops over all rows."""
    for depth in range(len(space) - 2, -1, -1):
        kind = "independent" if depth else "parallel"
        statements = [For(space[depth], tuple(statements), kind)]
    return statements


def _window(reduction: Reduction, along: Var, shapes: Mapping[str, MultiIndex]) -> _Window | None:
    """The reduction as one over windows, if it has that form."""
    if reduction.body.dtype.is_bool:
        return None
    body, conditions = _split(reduction)
    if any(isinstance(n, (CheckedIndex, Reduction)) for n in expr.walk(body)):
        return None
    if any(isinstance(n, Load) and n.guard is not None for n in expr.walk(body)):
        return None
    sizes = [v.extent.constant or 0 for v in reduction.variables]
    small = 2 <= math.prod(sizes) <= MOST_ELEMENTS and sizes[-1] <= WINDOW_COLUMNS
    if not _is_along(body, along, shapes, MOST_STEP):
        return None
    beside = small and not _is_alone(body, conditions, along)
    column = reduction.variables[-1] if beside else None
    rows = reduction.variables[:-1] if beside else reduction.variables
    row_conditions: list[Expr] = []
    along_conditions: list[Expr] = []
    bounds: list[Index] = []
    for condition in conditions:
        if not expr.free_variables(condition) & {along, column}:
            row_conditions.append(condition)
            continue
        bound = expr.not_negative(condition)
        step = None if bound is None else bound.coefficient(along)
        if bound is None or step is None or step.constant in (None, 0):
            return None
        along_conditions.append(condition)
        bounds.append(bound)
    return _Window(reduction, body, rows, column, tuple(row_conditions), tuple(along_conditions), tuple(bounds))


def _is_alone(body: Expr, conditions: Sequence[Expr], along: Var) -> bool:
    """Whether the row's variable indexes an axis of its own, like channels that come last: the window is then across
    the row, and each of its elements is one loop along it."""
    if any(along in expr.free_variables(c) for c in conditions):
        return False
    indices = (i for n in expr.walk(body) if isinstance(n, Load) for i in n.index)
    return all(along not in (used := i.variables()) or len(used) == 1 for i in indices)


def _split(reduction: Reduction) -> tuple[Expr, list[Expr]]:
    """The body, and the conditions without which it is the initial value of the reduction."""
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
    return expr.transform(body, lambda n: _unguarded(n, guard)), expr.conjuncts(guard)


def _unguarded(node: Expr, guard: Expr) -> Expr:
    if isinstance(node, Load) and node.guard is guard:
        return Load(node.dtype, node.buffer, node.index)
    return node


def _is_along(body: Expr, along: Var, shapes: Mapping[str, MultiIndex], most: int) -> bool:
    """Whether adjacent results in the row read places that are at most so far apart."""
    loads = [n for n in expr.walk(body) if isinstance(n, Load)]
    steps = [flatten(n.index, shapes[n.buffer]).coefficient(along) for n in loads]
    constants = [None if s is None else s.constant for s in steps]
    return bool(loads) and all(c is not None and 0 <= c <= most for c in constants) and any(constants)
