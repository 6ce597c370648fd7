"""What an iteration of a loop needs of the one before it is at hand as early as possible.

Before::

    for (int64_t i = 1; i < n; ++i) {
        y[i] = 0.3*x[i] + 0.7*y[i - 1];
    }

After::

    double last = y[0];
    for (int64_t i = 1; i < n; ++i) {
        last = 0.7*last + 0.3*x[i];
        y[i] = last;
    }

An element that the iteration before stored is still in a variable, which takes less time than reading it back. (D.
Callahan, S. Carr, K. Kennedy: Improving Register Allocation for Subscripted Variables, 1990.) And of a sum of two
products, one of which waits for the iteration before, that one comes first: a C compiler fuses the first one with the
sum, so that the iterations wait for each other for one operation, not for two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from fxlite.codegen.kernel.kernel_ir import Assign, Kernel, Let, Stmt, Store, statements
from fxlite.codegen.kernel.names import derived
from fxlite.scalar import expr
from fxlite.scalar.expr import Apply, Expr, Load, Local, MultiIndex, run_time_values
from fxlite.scalar.index import Given, Index


@dataclass(frozen=True)
class Carried:
    """A variable that has what the iteration before stored, and the element that it has before the first one."""

    variable: Local
    first: Load


def carried_elements(
    kernels: Sequence[Kernel], shapes: Mapping[str, MultiIndex], place: Callable[[str], str], iteration: Given
) -> tuple[list[Carried], list[Kernel]]:
    """The variables for elements that iterations read where the one before stored them, and the kernels that use
    these. ``place`` gives the array of a buffer."""
    found: list[Carried] = []
    if not all(isinstance(s, (Let, Store)) for kernel in kernels for s in kernel.body):
        return found, list(kernels)
    stores = [s for kernel in kernels for s in kernel.body if isinstance(s, Store) and shapes[s.buffer]]
    arrays = [place(store.buffer) for store in stores]
    made = list(kernels)
    for store, array in zip(stores, arrays):
        if arrays.count(array) == 1 and (new := _with_variable(made, store, shapes, place, iteration)) is not None:
            found.append(new[0])
            made = new[1]
    return found, made


def _with_variable(
    kernels: Sequence[Kernel],
    store: Store,
    shapes: Mapping[str, MultiIndex],
    place: Callable[[str], str],
    iteration: Given,
) -> tuple[Carried, list[Kernel]] | None:
    dtype, array = store.value.dtype, place(store.buffer)
    if store.accumulate or dtype.c_stored != dtype.c_name or run_time_values(store.index):
        return None
    before = tuple(i.substitute({iteration: Index.of(iteration) - 1}) for i in store.index)
    if before == store.index:
        return None
    variable, reads, is_stored = Local(dtype, derived(store.buffer, "last")), 0, False

    def held(node: Expr) -> Expr:
        nonlocal reads
        if not isinstance(node, Load) or place(node.buffer) != array or node.index != before:
            return node
        if node.guard is not None or node.dtype is not dtype or shapes[node.buffer] != shapes[store.buffer]:
            return node
        reads += 1
        return variable

    made = []
    for kernel in kernels:
        body: list[Stmt] = []
        for statement in kernel.body:
            assert isinstance(statement, (Let, Store, Assign)), statement
            known = reads
            value = expr.transform(statement.value, held)
            if is_stored and reads > known:
                return None  # the variable has the element of this iteration by then
            if isinstance(statement, Store) and statement.index and place(statement.buffer) == array:
                is_stored = True
                body += [Assign(variable, value), replace(statement, value=variable)]
            else:
                body.append(replace(statement, value=value))
        made.append(replace(kernel, body=tuple(body)))
    if not reads:
        return None
    first = tuple(i.substitute({iteration: iteration.least - 1}) for i in store.index)
    return Carried(variable, Load(dtype, store.buffer, first)), made


def recurrences_first(kernels: Sequence[Kernel], carried: Collection[str], place: Callable[[str], str]) -> list[Kernel]:
    """The kernels of an iteration, in which products that depend on what the iteration before computed come first in
    sums of two products. ``carried`` are the variables and arrays that have it."""
    late = set(carried)  # what depends on it
    every = [s for kernel in kernels for s in statements(kernel.body)]
    late |= {place(s.buffer) for s in every if isinstance(s, Store) and s.index}

    def is_late(value: Expr) -> bool:
        reads = (n for n in expr.walk(value) if isinstance(n, (Load, Local)))
        return any((n.name if isinstance(n, Local) else place(n.buffer)) in late for n in reads)

    def ordered(node: Expr) -> Expr:
        if not isinstance(node, Apply) or node.function not in ("add", "sub") or not node.dtype.is_float:
            return node
        one, other = node.args
        if not (_is_product(one) and _is_product(other) and is_late(other) and not is_late(one)):
            return node
        first = other if node.function == "add" else expr.apply("neg", other)
        return expr.with_label(expr.apply("add", first, one), node.label)

    made = []
    for kernel in kernels:
        body: list[Stmt] = []
        own = set[str]()  # each kernel counts its locals from 0
        for statement in kernel.body:
            if not isinstance(statement, (Let, Store, Assign)):
                body.append(statement)
                late |= {place(s.buffer) for s in statements((statement,)) if isinstance(s, Store)}
                continue
            if isinstance(statement, Let) and is_late(statement.value):
                own.add(statement.name)
                late.add(statement.name)
            elif isinstance(statement, Store) and is_late(statement.value):
                late.add(place(statement.buffer))
            body.append(replace(statement, value=expr.transform(statement.value, ordered)))
        late -= own.difference(carried)
        made.append(replace(kernel, body=tuple(body)))
    return made


def _is_product(value: Expr) -> bool:
    return isinstance(value, Apply) and value.function == "mul"
