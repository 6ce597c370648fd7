"""Bounds of loops that are checked once: before them, at both ends.

In: an expression over loop variables. Out: the same without checks of indices that are sums of loop
variables and sizes, and the condition on sizes that takes their place: such an index is largest and
smallest at corners of the loops. Compilers make vectors of what has no check in it.
(R. Gupta, "Optimizing array bound checks using flow analysis", 1993.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fxlite.scalar import expr
from fxlite.scalar.expr import Apply, CheckedIndex, Const, Expr, IndexValue, Load
from fxlite.scalar.index import Given, Index, Var
from fxlite.types import dtypes

_ZERO = expr.const(0, dtypes.int64)


def checked_before(value: Expr, space: Sequence[Var]) -> tuple[Expr, Expr]:
    """The value for the loops ``space``, without the checks that the condition makes before them.
    The condition is TRUE where there is none; where it fails, the error is noted and nothing must
    be computed."""
    lowest: list[tuple[Index, CheckedIndex]] = []
    highest: list[tuple[Index, CheckedIndex]] = []
    replaced: dict[int, Expr] = {}  # what stands for a checked index

    def decide(node: Expr) -> Expr:
        if isinstance(node, Apply) and node.dtype.is_bool:
            if node.function == "ge" and id(node.args[0]) in replaced and _is_zero(node.args[1]):
                return expr.TRUE
            return expr.both(*node.args) if node.function == "and" else node
        if isinstance(node, (Load, CheckedIndex)) and node.guard is expr.TRUE:
            node = replace(node, guard=None)
        if not isinstance(node, CheckedIndex) or node.guard is not None:
            return node
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


def _is_zero(value: Expr) -> bool:
    return isinstance(value, Const) and value.value == 0


def _is_of_sizes(index: Index) -> bool:
    return not index.variables() and not expr.run_time_values((index,))


def _position(node: CheckedIndex) -> tuple[Index | None, bool]:
    """The index that is checked, if it is one, and whether a negative one is an error."""
    operand = node.operand
    if isinstance(operand, Apply) and operand.function == "where":  # as a slice has it
        condition, index, other = operand.args
        is_sign = isinstance(condition, Apply) and condition.function == "ge" and condition.args[0] is index
        past = expr.as_index(other)
        if is_sign and _is_zero(condition.children[1]) and past is not None and past == node.extent:
            return expr.as_index(index), True
    return expr.as_index(operand), False


def _corners(index: Index) -> tuple[Index, Index] | None:
    """The least and the largest value of an index in its loops, which is found there; None for
    what is no sum of loop variables times sizes."""
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
    """Note an end of a range, unless another one on the same axis is known to lie farther out."""

    def covers(one: Index, other: Index) -> bool:
        return one <= other if is_least else other <= one

    same = [e for e in ends if e[1].extent == node.extent]
    if not any(covers(e[0], end) for e in same):
        ends[:] = [e for e in ends if e not in same or not covers(end, e[0])]
        ends.append((end, node))
