"""Checks of bounds that are made once, before loops, at both ends.

In: an expression over loop variables. Out: the same without checks of indices that are sums of loop
variables and sizes, and the condition on sizes that replaces them: such an index is largest and smallest
at corners of the loops. Compilers can vectorize loops that contain no checks. (R. Gupta, "Optimizing
array bound checks using flow analysis", 1993.)

In: a reduction, and the loops over which it runs. Out: loops that visit only the elements between
bounds, or those of a window that lie inside the image.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from fxlite.codegen.kernel.ranges import Range, between
from fxlite.scalar import expr
from fxlite.scalar.expr import Apply, Cast, CheckedIndex, Const, Expr, IndexValue, Load, Local, Reduction
from fxlite.scalar.functions import COMBINATIONS, FUNCTIONS
from fxlite.scalar.index import Given, Index, Var, extremum, product
from fxlite.types import dtypes

_ZERO = expr.const(0, dtypes.int64)
#: Rows from which on indices that all of them use are checked before them.
FEW_ROWS = 2
#: The most operations by which such an index is computed from what is read.
CHEAP = 4


def checked_before(
    value: Expr,
    space: Sequence[Var],
    known: Callable[[Load], Range | None],
    checked: Mapping[object, Local] = MappingProxyType({}),
) -> tuple[Expr, Expr]:
    """The value for the loops ``space`` without checks, and the condition that is checked before the loops
    instead. The condition is TRUE if there is none; if it fails, the error is recorded and nothing may be
    computed. ``known`` tells what loaded numbers may be, and ``checked`` has by their keys (:func:`place_key`) the
    indices that are in range wherever the value is computed."""
    lowest: list[tuple[Index, CheckedIndex]] = []
    highest: list[tuple[Index, CheckedIndex]] = []
    replaced: dict[int, Expr] = {}  # replacements of checked indices

    def decide(node: Expr) -> Expr:
        if isinstance(node, Apply) and node.dtype.is_bool:
            if node.function == "ge" and id(node.args[0]) in replaced and _is_zero(node.args[1]):
                return expr.TRUE
            return expr.both(*node.args) if node.function == "and" else node
        if isinstance(node, (Load, CheckedIndex)) and node.guard is expr.TRUE:
            node = replace(node, guard=None)
        if not isinstance(node, CheckedIndex) or node.guard is not None:
            return node
        local = checked.get(place_key(node))
        if local is not None:
            replaced[id(local)] = local
            return local
        if is_in_range(node, known):
            replaced[id(node.operand)] = node.operand
            return node.operand
        index, is_from_start = _position(node)
        corners = None if index is None else _corners(index)
        if index is None or corners is None or not _is_of_sizes(node.extent):
            return node
        least, most = corners
        if not is_from_start and not Index.of(0) <= least:
            return node  # a negative position counts from the end
        if not Index.of(0) <= least:
            _add(lowest, least, node, is_least=True)
        if not most < node.extent:
            _add(highest, most, node, is_least=False)
        found: Expr = IndexValue(dtypes.int64, index)
        replaced[id(found)] = found
        return found

    value = expr.transform(value, decide)
    runs = expr.both(*(expr.less(0, extent) for extent in dict.fromkeys(v.extent for v in space)))
    guard = None if runs is expr.TRUE else runs
    checks = []
    for end, node in lowest:
        position, extent = expr.index_value(end), expr.index_value(node.extent)
        position = expr.where(expr.apply("ge", position, _ZERO), position, extent)
        checks.append(CheckedIndex(dtypes.int64, position, node.extent, node.where, guard))
    for end, node in highest:
        checks.append(CheckedIndex(dtypes.int64, expr.index_value(end), node.extent, node.where, guard))
    return value, expr.both(*(expr.apply("ge", check, _ZERO) for check in checks))


def looked_up_before(value: Expr, space: Sequence[Var]) -> tuple[Expr, list[Reduction]]:
    """The value without checks of indices that are read from memory along the inner ones of the loops, as of columns
    that are taken from every row, or of elements from which much is computed, in SIMD code if nothing is checked there;
    and the conditions that all of them are in range, each of which is a loop of checks of its own."""
    orders: dict[int, tuple[Var, ...]] = {}  # of the checks in reductions: the loops around them, outermost first

    def look(part: Expr, around: tuple[Var, ...]) -> None:
        for node in expr.walk(part, (Reduction,)):
            if isinstance(node, Reduction):
                look(node.body, (*around, *node.variables))
            elif isinstance(node, CheckedIndex):
                orders.setdefault(id(node), around)

    look(value, tuple(space))
    found: list[tuple[CheckedIndex, list[Var]]] = []
    replaced: dict[int, Expr] = {}
    computes = any(isinstance(n, Apply) and FUNCTIONS[n.function].cost > CHEAP for n in expr.walk(value))
    least = 1 if computes else FEW_ROWS

    def decide(node: Expr) -> Expr:
        if isinstance(node, Apply) and node.function == "ge" and id(node.args[0]) in replaced:
            return expr.TRUE if _is_zero(node.args[1]) else node
        if isinstance(node, (Load, CheckedIndex)) and node.guard is expr.TRUE:
            node = replace(node, guard=None)
        own = _read_again(node, orders.get(id(node), ()), len(space), least)
        if not isinstance(node, CheckedIndex) or not own:
            return node
        if not any(_is_same_check(node, own, *other) for other in found):
            found.append((node, own))
        size = expr.index_value(node.extent)
        from_end = expr.apply("lt", node.operand, _ZERO), expr.apply("add", node.operand, size)
        made = expr.where(*from_end, node.operand)
        replaced[id(made)] = made
        return made

    value = expr.transform(value, decide)
    inside: list[Reduction] = []
    for node, own in found:
        runs = expr.both(*(expr.less(0, v.extent) for v in space if v not in own))
        body = expr.apply("ge", node if runs is expr.TRUE else replace(node, guard=runs), _ZERO)
        inside.append(Reduction(body.dtype, "all", tuple(own), body))
    return value, inside


def without_report(checked: Reduction) -> Reduction:
    """The condition that all indices are in range as comparisons alone, of which compilers make SIMD code."""
    (node,) = (n for n in expr.walk(checked.body) if isinstance(n, CheckedIndex))
    least, size = expr.index_value(Index.of(0) - node.extent), expr.index_value(node.extent)
    is_inside = expr.both(expr.apply("ge", node.operand, least), expr.apply("lt", node.operand, size))
    return replace(checked, body=is_inside)


def _read_again(node: Expr, order: Sequence[Var], depth: int, least: int) -> list[Var]:
    """The loops along which an index is read that is then read again in each of at least so many iterations of loops
    around them; none for other expressions. The first ``depth`` loops are those over the result; others must run."""
    if not isinstance(node, CheckedIndex) or node.guard is not None:
        return []
    free = expr.free_variables(node)
    if not free <= set(order) or not _is_of_sizes(node.extent):
        return []
    parts = list(expr.walk(node.operand))
    cost = sum(FUNCTIONS[n.function].cost for n in parts if isinstance(n, Apply))
    if cost > CHEAP or any(isinstance(n, Reduction) for n in parts) or not any(isinstance(n, Load) for n in parts):
        return []
    own = [v for v in order if v in free]
    outer = [v for v in order[: order.index(own[-1])] if v not in free] if own else []
    inner = [v.extent for v in order[depth:] if v not in free]
    if not all(_is_of_sizes(v.extent) for v in order) or not all(Index.of(0) < extent for extent in inner):
        return []
    times = product(v.extent for v in outer).constant
    is_inside = bool(own) and own[-1] is order[-1]  # else it is read once for many elements
    return own if (outer or is_inside) and (times is None or times >= least) else []


def _is_same_check(one: CheckedIndex, own: Sequence[Var], other: CheckedIndex, its: Sequence[Var]) -> bool:
    if [v.extent for v in own] != [v.extent for v in its]:
        return False
    return expr.is_same(one, other, {v: Index.of(w) for v, w in zip(its, own)})


def check_key(node: Expr) -> tuple[object, ...] | None:
    """A key that is equal for equal indices that are checked in any case; None for others."""
    if not isinstance(node, CheckedIndex) or node.guard is not None:
        return None
    operand = node.operand
    if isinstance(operand, IndexValue):
        return (operand.index, node.extent, node.where)
    if isinstance(operand, Load) and operand.guard is None:
        return (operand.buffer, operand.index, node.extent, node.where)
    return (id(operand), node.extent, node.where)


def place_key(node: CheckedIndex) -> object:
    """A key that is equal for equal indices of axes of one size, whoever checks them."""
    found = check_key(node)
    return None if found is None else found[:-1]


def is_in_range(node: CheckedIndex, known: Callable[[Load], Range | None]) -> bool:
    """Whether a computed index is surely in range, and counts from the start."""
    return all(_is_between(node.operand, node.extent, known))


def _is_between(value: Expr, size: Index, known: Callable[[Load], Range | None]) -> tuple[bool, bool]:
    """Whether an integer is surely not negative, and surely less than a size, which may be named:
    ``clip(x, 0, size - 1)``, ``x % size``."""
    found = between(value, known)
    if found is not None and found[0] >= 0 and Index.of(found[1]) < size:
        return True, True
    own = found is not None and found[0] >= 0, found is not None and Index.of(found[1]) < size
    if isinstance(value, IndexValue):
        return Index.of(0) <= value.index, value.index < size
    if isinstance(value, Cast) and value.operand.dtype.is_integer and value.dtype is dtypes.int64:
        return _is_between(value.operand, size, known)
    if not isinstance(value, Apply) or value.function not in ("mod", "minimum", "maximum", "where"):
        return own
    one, other = value.args[-2:]
    if value.function == "mod":
        divisor = expr.as_index(other)
        is_inside = divisor is not None and Index.of(0) < divisor and divisor <= size
        return (True, True) if is_inside else own
    (least, less), (other_least, other_less) = (_is_between(v, size, known) for v in (one, other))
    if value.function == "minimum":
        return least and other_least, less or other_less
    if value.function == "maximum":
        return least or other_least, less and other_less
    return least and other_least, less and other_less


def _is_zero(value: Expr) -> bool:
    return isinstance(value, Const) and value.value == 0


def _is_of_sizes(index: Index) -> bool:
    return not index.variables() and not expr.run_time_values((index,))


def _position(node: CheckedIndex) -> tuple[Index | None, bool]:
    """The index that is checked, if it is one, and whether a negative value is an error."""
    operand = node.operand
    if isinstance(operand, Apply) and operand.function == "where":  # the form that slices have
        condition, index, other = operand.args
        is_sign = isinstance(condition, Apply) and condition.function == "ge" and condition.args[0] is index
        past = expr.as_index(other)
        if is_sign and _is_zero(condition.children[1]) and past is not None and past == node.extent:
            return expr.as_index(index), True
    return expr.as_index(operand), False


def _corners(index: Index) -> tuple[Index, Index] | None:
    """The least and the largest value of an index in the loops found in it; None for an index that is not a
    sum of loop variables times sizes."""
    least: dict[Var, Index] = {}
    most: dict[Var, Index] = {}
    if not index.is_polynomial:
        return None
    for variable in index.variables():
        factor = index.coefficient(variable)
        if isinstance(variable, Given) or not _is_of_sizes(variable.extent):
            return None
        if factor is None or not _is_of_sizes(factor):
            return None
        last = variable.extent - 1
        if factor.is_nonnegative():
            least[variable], most[variable] = Index.of(0), last
        elif (-factor).is_nonnegative():
            least[variable], most[variable] = last, Index.of(0)
        else:
            return None
    ends = index.substitute(least), index.substitute(most)
    return ends if all(map(_is_of_sizes, ends)) else None


def _add(ends: list[tuple[Index, CheckedIndex]], end: Index, node: CheckedIndex, is_least: bool) -> None:
    """Add an end of a range, unless another one on the same axis is known to be farther out."""

    def covers(one: Index, other: Index) -> bool:
        return one <= other if is_least else other <= one

    same = [e for e in ends if e[1].extent == node.extent]
    if not any(covers(e[0], end) for e in same):
        ends[:] = [e for e in ends if e not in same or not covers(end, e[0])]
        ends.append((end, node))


# -- reductions over some of the elements of an axis -----------------------------------------------
#: Trips of a loop that is worth computing bounds for.
SHORT = 24


# -- windows ---------------------------------------------------------------------------------------
def inside(
    node: Reduction,
    named: Callable[[Index], Index],
    finite: frozenset[str],
    number: Callable[[Expr], Index | None] | None = None,
) -> tuple[Reduction, list[Index]]:
    """The reduction over the elements for which its conditions hold, if it adds zero, or something without
    effect, for the others: the conditions are replaced by loops that begin at ``named`` starts, outside all
    others; also the most iterations of its loops. A product with zero is zero if the other factor comes from
    a buffer that is ``finite``. With ``number``, conditions may also compare with computed numbers, for
    which it returns an index, and short loops stay as they are."""
    start = COMBINATIONS[node.kind].start(node.body.dtype)
    limits: dict[Var, list[Index]] = {}
    settled: set[int] = set()
    for part in _factors(node, finite):
        for condition in expr.conjuncts(_guard(part, 0 if node.kind == "sum" else start)):
            index = expr.not_negative(condition, None if number is None else _outside(node, number))
            used = [v for v in node.variables if index is not None and v in index.variables()]
            if index is None or len(used) != 1 or _step(index, used[0]) == 0:
                continue
            if number is not None and (used[0].extent.constant or SHORT) < SHORT:
                continue
            limits.setdefault(used[0], []).append(index)
            settled.add(id(condition))
    if not limits:
        return node, [v.extent for v in node.variables]
    env: dict[Var, Index] = {}
    loops: list[Var] = []
    if COMBINATIONS[node.kind].positions:
        return _first_positions(node, limits, named)
    for variable, indices in limits.items():
        first, end = span(variable, indices)
        first, end = named(first), named(end)
        loops.append(expr.fresh_var(end - first))
        env[variable] = first + loops[-1]
    rest = [v for v in node.variables if v not in limits]
    body = expr.transform(node.body, lambda n: _without(n, settled))
    moved = expr.decided(expr.substitute_index(body, env))
    most = [v.extent for v in (*limits, *rest)]
    return Reduction(node.dtype, node.kind, (*loops, *rest), moved), most


def _first_positions(
    node: Reduction, limits: Mapping[Var, Sequence[Index]], named: Callable[[Index], Index]
) -> tuple[Reduction, list[Index]]:
    """The position of an extreme element, sought in the part in front for which the conditions hold. One element is
    always compared: it is the answer where they hold for none."""
    most = [v.extent for v in node.variables]
    if len(node.variables) != 1:
        return node, most
    (variable,) = node.variables
    _, end = span(variable, [i for i in limits[variable] if _step(i, variable) < 0])
    if end == variable.extent:
        return node, most
    one = extremum("min", variable.extent, 1)
    shorter = expr.fresh_var(named(extremum("max", end, one)))
    body = expr.substitute_index(node.body, {variable: Index.of(shorter)})
    return Reduction(node.dtype, node.kind, (shorter,), body), most


def _outside(node: Reduction, number: Callable[[Expr], Index | None]) -> Callable[[Expr, Index], Index | None]:
    """``number``, for expressions next to a variable of a reduction that do not depend on it."""

    def found(value: Expr, beside: Index) -> Index | None:
        varies = value.dtype is not dtypes.int64 or not expr.free_variables(value).isdisjoint(node.variables)
        return None if varies or beside.variables().isdisjoint(node.variables) else number(value)

    return found


def span(along: Var, bounds: Sequence[Index]) -> tuple[Index, Index]:
    """The first iteration of a loop in which none of these indices is negative, and the one after the last
    such iteration."""
    first, ends = Index.of(0), [along.extent]
    for bound in bounds:
        factor = _step(bound, along)
        rest = bound - Index.of(along) * factor
        if factor > 0:  # factor * k >= -rest
            first = extremum("max", first, reachable(-(rest // factor), along.extent))
        else:
            limit = reachable(rest // -factor + 1, along.extent)
            if not any(e <= limit for e in ends):
                ends = [*(e for e in ends if not limit <= e), limit]
    end = ends[0]
    for other in ends[1:]:
        end = extremum("min", end, other)
    return first, end


def reachable(limit: Index, extent: Index) -> Index:
    """A limit of a loop that has the same effect, and exists also where it is a computed number more or less a few, and
    that number is one of the largest or smallest ones."""
    more = limit.terms.get((), 0)
    if not more or not expr.run_time_values((limit,)):
        return limit
    return (extremum("min", limit - more, extent) if more > 0 else extremum("max", limit - more, 0)) + more


def _step(index: Index, variable: Var) -> int:
    step = index.coefficient(variable)
    return 0 if step is None else step.constant or 0


def _factors(node: Reduction, finite: frozenset[str]) -> list[Expr]:
    """The parts of a reduction's body that make it zero if any one of them is zero."""
    work, found = [node.body], list[Expr]()
    while work:
        part = work.pop()
        if node.kind != "sum":
            found.append(part)
        elif isinstance(part, Apply) and part.function == "mul":
            a, b = part.args
            work += [one for one, other in ((a, b), (b, a)) if _is_finite(other, finite) or _are_chosen_alike(a, b)]
        elif isinstance(part, Cast):
            work.append(part.operand)
        else:
            found.append(part)
    return found


def _are_chosen_alike(one: Expr, other: Expr) -> bool:
    """Whether two values are chosen by the same condition, and are 0 otherwise."""
    guard, same = _guard(one, 0), _guard(other, 0)
    return guard is not None and same is not None and expr.is_same(guard, same, {})


def _is_finite(value: Expr, finite: frozenset[str]) -> bool:
    while isinstance(value, Cast):
        value = value.operand
    if not value.dtype.is_float:
        return True
    return isinstance(value, Load) and value.buffer in finite


def _guard(part: Expr, otherwise: float) -> Expr | None:
    """The condition without which a part equals that number."""
    if isinstance(part, Cast) and part.operand.dtype.is_bool:
        part = part.operand
    if part.dtype.is_bool and isinstance(part, Apply) and part.function != "where":
        return part if otherwise == 0 else None
    if isinstance(part, Load):
        return part.guard if otherwise == 0 else None
    if isinstance(part, Apply) and part.function == "where" and isinstance(part.args[2], Const):
        return part.args[0] if part.args[2].value == otherwise else None
    return None


def _without(node: Expr, settled: set[int]) -> Expr:
    """A part without the conditions that are known to hold."""

    def left(condition: Expr) -> Expr:
        conditions = expr.conjuncts(condition)
        kept = [c for c in conditions if id(c) not in settled and c is not expr.TRUE]
        return condition if len(kept) == len(conditions) else expr.both(*kept)

    if id(node) in settled:
        return expr.TRUE
    if isinstance(node, Apply) and node.function == "and" and node.dtype.is_bool:
        return left(node)
    if isinstance(node, Load) and node.guard is not None:
        guard = left(node.guard)
        if guard is node.guard:
            return node
        return Load(node.dtype, node.buffer, node.index, None if guard is expr.TRUE else guard)
    if isinstance(node, Apply) and node.function == "where":
        guard = left(node.args[0])
        if guard is node.args[0]:
            return node
        return node.args[1] if guard is expr.TRUE else expr.where(guard, *node.args[1:])
    return node
