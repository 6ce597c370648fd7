"""Reductions over some of the elements of an axis, and on a processor that does one thing after the
other, as those of small devices do.

In: a reduction, and the loops over which it goes. Out: loops that visit only those elements between
bounds, or of a window, that lie inside of the image; and for such processors sums of floats without
numbers of a wider type, which they compute by a function. A long sum is cut into blocks of at most
:data:`BLOCK` numbers, which are added so that what rounding leaves out is kept (Knuth's TwoSum), as
those of the tiles of products are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fxlite.codegen.kernel.kernel_ir import Alloc, Assign, For, Stmt, fresh_local
from fxlite.codegen.kernel.sums import Wide, narrowed
from fxlite.scalar import expr
from fxlite.scalar.expr import Apply, Cast, Const, Expr, Load, Local, Reduction
from fxlite.scalar.functions import COMBINATIONS
from fxlite.scalar.index import Index, Var, extremum
from fxlite.types import dtypes
from fxlite.types.dtypes import DType

#: Numbers that one accumulator adds.
BLOCK = 512
#: Trips of a loop that is worth computing bounds for.
SHORT = 24


# -- windows ---------------------------------------------------------------------------------------
def inside(
    node: Reduction,
    named: Callable[[Index], Index],
    finite: frozenset[str],
    number: Callable[[Expr], Index] | None = None,
) -> tuple[Reduction, list[Index]]:
    """The reduction over the elements for which its conditions hold, where outside of them it adds
    zero, or what changes nothing: loops from ``named`` starts on, the outermost of all, in place of
    those conditions; and how many trips its loops have at most. A product with zero is zero where
    the other factor is of a buffer that is ``finite``. ``number``: conditions may also compare with
    numbers that are computed, for which it gives an index, and short loops stay as they are."""
    start = COMBINATIONS[node.kind].start(node.body.dtype)
    limits: dict[Var, list[Index]] = {}
    settled: set[int] = set()
    for part in _factors(node, finite) if not COMBINATIONS[node.kind].positions else ():
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


def _outside(node: Reduction, number: Callable[[Expr], Index]) -> Callable[[Expr, Index], Index | None]:
    """``number`` of what stands beside a variable of a reduction and does not depend on it."""

    def found(value: Expr, beside: Index) -> Index | None:
        varies = value.dtype is not dtypes.int64 or not expr.free_variables(value).isdisjoint(node.variables)
        return None if varies or beside.variables().isdisjoint(node.variables) else number(value)

    return found


def span(along: Var, bounds: Sequence[Index]) -> tuple[Index, Index]:
    """The first iteration of a loop in which all of these are not negative, and the one behind the
    last of them."""
    first, ends = Index.of(0), [along.extent]
    for bound in bounds:
        factor = _step(bound, along)
        rest = bound - Index.of(along) * factor
        if factor > 0:  # factor * k >= -rest
            first = extremum("max", first, -(rest // factor))
        else:
            limit = rest // -factor + 1
            if not any(e <= limit for e in ends):
                ends = [*(e for e in ends if not limit <= e), limit]
    end = ends[0]
    for other in ends[1:]:
        end = extremum("min", end, other)
    return first, end


def _step(index: Index, variable: Var) -> int:
    step = index.coefficient(variable)
    return 0 if step is None else step.constant or 0


def _factors(node: Reduction, finite: frozenset[str]) -> list[Expr]:
    """The parts of a reduction's body of which one that is zero makes it zero."""
    work, found = [node.body], list[Expr]()
    while work:
        part = work.pop()
        if node.kind != "sum":
            found.append(part)
        elif isinstance(part, Apply) and part.function == "mul":
            a, b = part.args
            work += [one for one, other in ((a, b), (b, a)) if _is_finite(other, finite)]
        elif isinstance(part, Cast):
            work.append(part.operand)
        else:
            found.append(part)
    return found


def _is_finite(value: Expr, finite: frozenset[str]) -> bool:
    while isinstance(value, Cast):
        value = value.operand
    if not value.dtype.is_float:
        return True
    return isinstance(value, Load) and value.buffer in finite


def _guard(part: Expr, otherwise: float) -> Expr | None:
    """The condition without which a part is that number."""
    if isinstance(part, Load):
        return part.guard if otherwise == 0 else None
    if isinstance(part, Apply) and part.function == "where" and isinstance(part.args[2], Const):
        return part.args[0] if part.args[2].value == otherwise else None
    return None


def _without(node: Expr, settled: set[int]) -> Expr:
    """A part without the conditions that hold."""

    def left(condition: Expr) -> Expr:
        return expr.both(*(c for c in expr.conjuncts(condition) if id(c) not in settled))

    if isinstance(node, Load) and node.guard is not None:
        guard = left(node.guard)
        return Load(node.dtype, node.buffer, node.index, None if guard is expr.TRUE else guard)
    if isinstance(node, Apply) and node.function == "where":
        guard = left(node.args[0])
        return node.args[1] if guard is expr.TRUE else expr.where(guard, *node.args[1:])
    return node


# -- sums ------------------------------------------------------------------------------------------
def sum_in_blocks(
    order: Sequence[Var],
    levels: Sequence[Sequence[Stmt]],
    body: Expr,
    computed: DType,
    most: Sequence[Index],
    moved: Callable[[Stmt, dict[Var, Index]], Stmt],
) -> tuple[list[Stmt], Local]:
    """The sum of ``body`` over loops with the variables ``order``, which have at most so many trips
    each, and the local that holds it. ``levels[d]``: statements in the first d + 1 loops, before
    those inside them; ``moved``: a statement with a variable replaced."""
    total, part = fresh_local(computed, "_a"), fresh_local(computed, "_a")
    trips = [BLOCK + 1 if size.constant is None else size.constant for size in most]
    if math.prod(trips) <= BLOCK:
        inner: list[Stmt] = [_plus(total, body)]
        start: Stmt = Alloc(total.name, computed, expr.const(0.0, computed))
        return [start, *_loops(order, levels, inner)], total
    wide = Wide.of(computed, doubles=False)
    emptied: Stmt = Alloc(part.name, computed, expr.const(0.0, computed))
    if trips[-1] > BLOCK:
        last = order[-1]
        block = Var(fresh_local(computed, "_block").name, last.extent)
        here = expr.fresh_var(extremum("min", Index.of(BLOCK), last.extent - Index.of(block)))
        env = {last: Index.of(block) + Index.of(here)}
        step = [*(moved(s, env) for s in levels[-1]), _plus(part, expr.substitute_index(body, env))]
        parts = [emptied, For(here, tuple(step), "reduce"), *wide.add(part)]
        loop = For(block, tuple(parts), "serial", BLOCK)
        outer = _loops(order[:-1], levels[:-1], [loop])
    else:
        cut = len(order) - 1
        while math.prod(trips[cut - 1 :]) <= BLOCK:
            cut -= 1
        inside = _loops(order[cut:], levels[cut:], [_plus(part, body)])
        statements = [*levels[cut - 1], emptied, *inside, *wide.add(part)] if cut else inside
        outer = _loops(order[:cut], [*levels[: cut - 1], []], statements)
    return [*wide.start(), *outer, narrowed(total, wide)], total


def _plus(target: Local, value: Expr) -> Stmt:
    return Assign(target, expr.apply("add", target, value))


def _loops(order: Sequence[Var], levels: Sequence[Sequence[Stmt]], inner: list[Stmt]) -> list[Stmt]:
    """Loops around statements, behind those of each level."""
    for depth in range(len(order) - 1, -1, -1):
        inner = [For(order[depth], (*levels[depth], *inner), "reduce")]
    return inner
