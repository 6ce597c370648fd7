"""An element that a loop of the program writes in each iteration stays in a variable until the loop ends.

Before::

    for (int64_t k = 0; k < j; ++k) {
        y[i*W + j] = y[i*W + j] - y[i*W + k]*y[k*W + j];
    }

After::

    double element = y[i*W + j];
    for (int64_t k = 0; k < j; ++k) {
        element = element - y[i*W + k]*y[k*W + j];
    }
    y[i*W + j] = element;

That takes a proof that all other elements that iterations read are different ones, which a C compiler does not find.
(D. Callahan, S. Carr, K. Kennedy: Improving Register Allocation for Subscripted Variables, 1990.)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from fxlite.codegen.kernel.kernel_ir import Assign, For, Kernel, Let, Stmt, Store, expressions, statements
from fxlite.codegen.kernel.names import derived
from fxlite.scalar import expr
from fxlite.scalar.expr import Expr, Load, Local, MultiIndex, run_time_values
from fxlite.scalar.index import Given, Index, flatten


def held_element(
    kernels: Sequence[Kernel], shapes: Mapping[str, MultiIndex], place: Callable[[str], str], iteration: Given
) -> tuple[Store, list[Kernel]] | None:
    """The element, as a statement that stores the variable in it, and the kernels of an iteration that use the
    variable; None if there is no such element. ``place`` gives the array of a buffer."""
    body = [statement for kernel in kernels for statement in kernel.body]
    stores = [s for s in body if isinstance(s, Store) and shapes[s.buffer]]
    if len(stores) != 1 or not all(isinstance(s, (Let, Store)) for s in body):
        return None
    (store,), dtype = stores, stores[0].value.dtype
    held, sizes, at = place(store.buffer), shapes[store.buffer], store.index
    if store.accumulate or dtype.c_stored != dtype.c_name or run_time_values(at):
        return None
    if not all(Index.of(0) <= i and i < n and iteration not in i.atoms() for i, n in zip(at, sizes)):
        return None  # it may not exist if there is no iteration
    reads = [n for s in body for e in expressions(s) for n in expr.walk(e) if isinstance(n, Load)]
    for load in (n for n in reads if place(n.buffer) == held):
        if shapes[load.buffer] != sizes or load.dtype is not dtype:
            return None
        if load.index == at and load.guard is not None:  # it is 0 where the guard fails
            return None
        if load.index != at and not any(_differ(i, j, iteration) for i, j in zip(load.index, at)):
            return None
    variable = Local(dtype, derived(store.buffer, "element"))

    def held_in(node: Expr) -> Expr:
        same = isinstance(node, Load) and place(node.buffer) == held and node.index == at
        return variable if same else node

    def moved(statement: Stmt) -> Stmt:
        assert isinstance(statement, (Let, Store)), statement
        value = expr.transform(statement.value, held_in)
        return Assign(variable, value) if statement is store else replace(statement, value=value)

    return replace(store, value=variable), [replace(k, body=tuple(map(moved, k.body))) for k in kernels]


def read_before_loops(body: Sequence[Stmt], place: Callable[[str], str]) -> tuple[Stmt, ...]:
    """The statements, in which a number that all iterations of an innermost loop read is read before the loop. A C
    compiler does not do that where the array that the loop writes might be the one that it reads."""
    taken = {s.name for s in statements(body) if isinstance(s, Let)}
    free = (name for name in map("t{}".format, itertools.count()) if name not in taken)

    def moved(body: Sequence[Stmt]) -> tuple[Stmt, ...]:
        found: list[Stmt] = []
        for statement in body:
            if isinstance(statement, For) and all(isinstance(s, (Let, Store)) for s in statement.body):
                found += _invariants_first(statement, place, free)
            elif isinstance(statement, For):
                found.append(replace(statement, body=moved(statement.body)))
            else:
                found.append(statement)
        return tuple(found)

    return moved(body)


def _invariants_first(loop: For, place: Callable[[str], str], free: Iterator[str]) -> list[Stmt]:
    written = {place(s.buffer) for s in loop.body if isinstance(s, Store)}
    inner = {s.name for s in loop.body if isinstance(s, Let)}
    made: dict[tuple[str, MultiIndex], Let] = {}
    if (loop.var.extent.constant or 0) < 1:  # what no iteration reads may not exist
        return [loop]

    def invariant(node: Expr) -> Expr:
        if not isinstance(node, Load) or not node.index or node.guard is not None or place(node.buffer) in written:
            return node
        if any(loop.var in i.atoms() for i in node.index):
            return node
        if not all(isinstance(v.expr, Local) and v.expr.name not in inner for v in run_time_values(node.index)):
            return node
        key = node.buffer, node.index
        if key not in made:
            made[key] = Let(next(free), node)
        return Local(node.dtype, made[key].name)

    def moved(statement: Stmt) -> Stmt:
        assert isinstance(statement, (Let, Store)), statement
        return replace(statement, value=expr.transform(statement.value, invariant))

    inside = tuple(map(moved, loop.body))
    return [*made.values(), replace(loop, body=inside)]


def reads_columns(kernels: Sequence[Kernel], shapes: Mapping[str, MultiIndex], iteration: Given) -> bool:
    """Whether iterations read numbers that are not adjacent in memory, or may not be."""
    values = (e for kernel in kernels for s in kernel.body for e in expressions(s))
    loads = (node for value in values for node in expr.walk(value) if isinstance(node, Load) and node.index)
    steps = {flatten(load.index, shapes[load.buffer]).coefficient(iteration) for load in loads}
    return any(step is None or step.constant not in (0, 1) for step in steps)


def _differ(one: Index, other: Index, iteration: Given) -> bool:
    """Whether two indices surely differ in all iterations."""
    distance = one - other
    slope = distance.coefficient(iteration)
    if slope is None:
        return False
    ends = [distance.substitute({iteration: e}) for e in (iteration.least, iteration.extent - 1)]
    if slope.is_nonnegative():
        return Index.of(0) < ends[0] or ends[1] < Index.of(0)
    if (-slope).is_nonnegative():
        return Index.of(0) < ends[1] or ends[0] < Index.of(0)
    return False
