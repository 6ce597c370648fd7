"""A loop over an array of which it changes a part runs over that part alone.

Before::

    for (int64_t i = 0; i < n; ++i) {
        y[i] = from <= i && to > i ? x[i]*2.0 : y[i];
    }

After::

    const int64_t first = fx_max(from, 0);
    const int64_t count = fx_min(to, n) - first;
    for (int64_t i = 0; i < count; ++i) {
        y[first + i] = from <= first + i && to > first + i ? x[first + i]*2.0 : y[first + i];
    }

The bounds are computed when the program runs, as those of ``y[k:k + size] = ...`` in a loop; loops whose bounds are
numbers of outer loops are divided before (:mod:`fxlite.codegen.kernel.loops`). Of several parts the loop runs over what
lies between the first and the last one.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from fxlite.codegen.kernel.bounds import span
from fxlite.codegen.kernel.kernel_ir import For, Kernel, Let, Stmt, Store, statements
from fxlite.codegen.kernel.loops import free_name, substituted
from fxlite.scalar import expr
from fxlite.scalar.expr import Apply, Cast, CheckedIndex, Const, Expr, IndexValue, Load, Local, run_time_values
from fxlite.scalar.index import Index, Value, Var, extremum
from fxlite.types import dtypes


@dataclass(frozen=True)
class ChangedPart:
    """A kernel that computes the part of an array that changes. With ``has_copy`` it then copies this part from where
    it is stored to ``old``, the buffer from which the other elements are read; otherwise that is the same memory."""

    kernel: Kernel
    old: str
    has_copy: bool


def changed_part(kernel: Kernel, place: Callable[[str], str]) -> ChangedPart | None:
    """The kernel, if it does so; None if it stores more than a part with bounds that are computed at run time.
    ``place`` gives the array of a buffer."""
    *before, outermost = kernel.body
    path = list(_nest(outermost))
    stores = [statement for statement in (path[-1].body if path else ()) if isinstance(statement, Store)]
    if not stores or any(store.accumulate or store.buffer != stores[0].buffer for store in stores):
        return None
    known = dict[str, Expr]()
    for statement in itertools.chain.from_iterable(loop.body if loop is path[-1] else loop.body[:-1] for loop in path):
        if isinstance(statement, Let):
            known[statement.name] = _inlined(statement.value, known)
        elif not isinstance(statement, Store):
            return None
    computed, conditions, moved = [*known.values()], list[Expr](), list[Stmt]()
    old = ""
    for store in stores:
        value = _inlined(store.value, known)
        computed.append(value)
        chosen = len(conditions)
        while isinstance(value, Apply) and value.function == "where":
            conditions.append(value.args[0])
            value = value.args[2]
        if not isinstance(value, Load) or value.index != store.index or value.guard is not None:
            return None
        if len(conditions) == chosen or (old := old or value.buffer) != value.buffer:
            return None
        moved.append(Store(old, store.index, Load(value.dtype, store.buffer, store.index)))
    for depth, loop in enumerate(path):
        bounds = _bounds(loop.var, [inside.var for inside in path[depth:]], conditions)
        if bounds is not None and _fails_alike(loop.var, computed, conditions):
            break
    else:
        return None
    checks = any(isinstance(n, CheckedIndex) for e in computed for n in expr.walk(e))
    taken = {s.name for s in statements(kernel.body) if isinstance(s, Let)}
    names = [free_name(stem, taken) for stem in ("first", "count")]
    first, count = (Index.of(Value(Local(dtypes.int64, name))) for name in names)
    extent, (start, end) = loop.var.extent, bounds
    if checks:  # one iteration, which changes nothing, says what is wrong with an empty part
        one = extremum("min", extent, 1)
        here = Let(names[0], expr.index_value(extremum("min", start, extent - one)))
        size = Let(names[1], expr.index_value(extremum("max", end - first, one)))
    else:
        here = Let(names[0], expr.index_value(start))
        size = Let(names[1], expr.index_value(end - first))
    variable = Var(loop.var.name, count)
    env = {loop.var: first + Index.of(variable)}
    copied = tuple(moved)
    for around in path[:depth:-1]:
        copied = (replace(around, body=copied),)
    has_copy = place(old) != place(stores[0].buffer)
    if has_copy and not all(isinstance(statement, Let) for statement in before):
        return None  # other loops store other parts of the array
    parts = [replace(loop, var=variable, body=substituted(b, env)) for b in (loop.body, copied)[: 1 + has_copy]]
    body: tuple[Stmt, ...] = (here, size, *parts)
    for around in reversed(path[:depth]):
        body = (replace(around, body=(*around.body[:-1], *body)),)
    work = kernel.work
    if depth == 0 and not any(isinstance(statement, For) for statement in before):  # `count` is known outside of loops
        each = work // extent
        work = (each if each.is_polynomial else Index.of(max(work.terms.values()))) * count
    return ChangedPart(replace(kernel, body=(*before, *body), work=work), old, has_copy)


def _nest(statement: Stmt) -> Iterator[For]:
    """A loop, the last statement in it if that is a loop, and so on."""
    while isinstance(statement, For) and statement.body and statement.step == 1:
        yield statement
        statement = statement.body[-1]


def _inlined(value: Expr, known: dict[str, Expr]) -> Expr:
    return expr.transform(value, lambda n: known.get(n.name, n) if isinstance(n, Local) and not n.index else n)


def _bounds(variable: Var, inside: Sequence[Var], conditions: Sequence[Expr]) -> tuple[Index, Index] | None:
    """The first place at which one of the conditions may hold, and the end of these places."""
    firsts, ends = list[Index](), list[Index]()
    for condition in conditions:
        limits = list[Index]()
        for comparison in expr.conjuncts(condition):
            distance = expr.not_negative(
                comparison, lambda n, _: Index.of(Value(n)) if n.dtype is dtypes.int64 else None
            )
            step = None if distance is None else distance.coefficient(variable)
            if distance is None or step is None or step.constant not in (1, -1):
                continue
            if _is_invariant(distance - Index.of(variable) * step, inside):
                limits.append(distance)
        for found, limit in zip((firsts, ends), span(variable, limits)):
            found.append(limit)
    first = functools.reduce(functools.partial(extremum, "min"), firsts)
    end = functools.reduce(functools.partial(extremum, "max"), ends)
    return (first, end) if run_time_values((first, end)) else None


def _is_invariant(index: Index, inside: Sequence[Var]) -> bool:
    """Whether an index is the same in loops over these variables, and computed from single numbers."""
    if index.variables() & set(inside):
        return False
    values = [n for v in run_time_values((index,)) for n in expr.walk(v.expr)]
    if any(expr.free_variables(v.expr) & set(inside) for v in run_time_values((index,))):
        return False
    are_single = all(not n.index and n.guard is None for n in values if isinstance(n, Load))
    return are_single and all(isinstance(n, (Apply, Cast, Const, IndexValue, Load, Local)) for n in values)


def _fails_alike(variable: Var, values: Sequence[Expr], conditions: Sequence[Expr]) -> bool:
    """Whether indices that are out of range are so in each iteration in which no condition holds, or in none."""

    def elsewhere(node: Expr) -> Expr:
        if isinstance(node, Apply) and node.function == "where" and any(node.args[0] is c for c in conditions):
            return node.args[2]
        return node

    checked = [n for v in values for n in expr.walk(v) if isinstance(n, CheckedIndex)]
    return not any(variable in expr.free_variables(expr.transform(n, elsewhere)) for n in checked)
