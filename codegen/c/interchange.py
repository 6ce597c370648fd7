"""Loop interchange: if a loop of the program runs over the columns of arrays and its body consists of loops over
their rows, a few rows at a time go through all iterations.

Before::

    for (int64_t k = 1; k < W; ++k) {
        for (int64_t i = 0; i < H; ++i) {
            y[i*W + k] = x[i*W + k] + y[i*W + k - 1];
        }
    }

After::

    for (int64_t rows = 0; rows < H; rows += 8) {
        const int64_t count = fx_min(8, H - rows);
        for (int64_t k = 1; k < W; ++k) {
            for (int64_t i = 0; i < count; ++i) {
                y[(rows + i)*W + k] = x[(rows + i)*W + k] + y[(rows + i)*W + k - 1];
            }
        }
    }

Rows are read and written in memory order, and threads divide them once instead of in each iteration. (J. R. Allen
and K. Kennedy: Automatic Loop Interchange, 1984; rows are strip-mined, so that they form vectors.) The loops of the
body become one, in which values that only it reads stay in registers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace

from fxlite.codegen.kernel.kernel_ir import For, Kernel, Let, Stmt, Store, Text, expressions
from fxlite.codegen.kernel.nest import move
from fxlite.scalar import expr
from fxlite.scalar.expr import CheckedIndex, Const, Expr, Load, Local, MultiIndex, run_time_values
from fxlite.scalar.index import Index, Value, Var, extremum, flatten
from fxlite.types import dtypes

#: Rows that go through all iterations together: a cache line of doubles, which is a vector.
ROWS = 8


def rows_first(
    kernels: Sequence[Kernel],
    shapes: Mapping[str, MultiIndex],
    place: Callable[[str], str],
    head: str,
    own: Container[str],
) -> For | None:
    """The loop over rows around a loop of the program with this ``head``, whose iterations run the kernels; None if
    rows are not independent, or are adjacent in memory. ``place`` gives the array of a buffer. What is in the arrays
    ``own`` is read by these kernels alone."""
    loops = [s for kernel in kernels if len(kernel.body) == 1 for s in kernel.body if isinstance(s, For)]
    extents = {loop.var.extent for loop in loops}
    if len(loops) < len(kernels) or len(extents) != 1 or not all(map(_is_plain, loops)):
        return None
    if not _are_apart(loops, shapes, place):
        return None
    (extent,) = extents
    rows, named = Var("rows", extent), Local(dtypes.int64, "count")
    is_whole = extent.constant is not None and extent.constant % ROWS == 0
    row = Var(loops[0].var.name, Index.of(ROWS if is_whole else Value(named)))
    body = [move(s, {loop.var: Index.of(rows) + row}) for loop in loops for s in loop.body]
    inside = Text((head,), body=(For(row, tuple(_in_registers(body, place, own)), "simd"),))
    count = Let(named.name, expr.index_value(extremum("min", Index.of(ROWS), extent - Index.of(rows))))
    return For(rows, (inside,) if is_whole else (count, inside), "parallel", ROWS)


def _in_registers(body: Sequence[Stmt], place: Callable[[str], str], own: Container[str]) -> list[Stmt]:
    """The statements of an iteration, in which elements that were stored before are not loaded."""
    known: dict[tuple[str, MultiIndex], Expr] = {}
    renamed: dict[str, Expr] = {}  # each kernel counts its locals from 0
    found: list[Stmt] = []
    numbers = itertools.count()

    def loaded(node: Expr) -> Expr:
        if isinstance(node, Local):
            return renamed[node.name]
        if isinstance(node, Load) and node.guard is None:
            return known.get((place(node.buffer), node.index), node)
        return node

    for statement in body:
        assert isinstance(statement, (Let, Store)), statement
        value = expr.transform(statement.value, loaded)
        is_exact = isinstance(statement, Let) or value.dtype.c_stored == value.dtype.c_name
        if is_exact and not isinstance(value, (Local, Const)):
            local = Local(value.dtype, f"t{next(numbers)}")
            found.append(Let(local.name, value))
            value = local
        if isinstance(statement, Let):
            renamed[statement.name] = value
            continue
        array = place(statement.buffer)
        known = {key: local for key, local in known.items() if key[0] != array}
        if isinstance(value, (Local, Const)) and not run_time_values(statement.index):
            known[array, statement.index] = value
        found.append(replace(statement, value=value))
    return [
        s for at, s in enumerate(found) if not (isinstance(s, Store) and _is_unread(s, found[at + 1 :], place, own))
    ]


def _is_unread(store: Store, later: Sequence[Stmt], place: Callable[[str], str], own: Container[str]) -> bool:
    """Whether nothing reads what a statement stores before the element is stored again, or ever."""
    array = place(store.buffer)
    for statement in later:
        for load in (n for e in expressions(statement) for n in expr.walk(e) if isinstance(n, Load)):
            apart = ((i - j).constant or 0 for i, j in zip(load.index, store.index))
            if place(load.buffer) == array and not any(apart):
                return False
        if isinstance(statement, Store) and (place(statement.buffer), statement.index) == (array, store.index):
            return True
    return array in own


def _is_plain(loop: For) -> bool:
    """Whether iterations may run in any order, and contain neither loops nor anything that can fail."""
    if loop.var.extent.variables() or loop.kind in ("serial", "reduce") or loop.step != 1:
        return False
    if not all(isinstance(s, (Let, Store)) for s in loop.body):
        return False
    return not any(isinstance(n, CheckedIndex) for s in loop.body for e in expressions(s) for n in expr.walk(e))


def _are_apart(loops: Sequence[For], shapes: Mapping[str, MultiIndex], place: Callable[[str], str]) -> bool:
    """Whether each row reads and writes its own part of the written arrays, and some part is long."""
    touched: dict[str, list[tuple[Index | None, Index]]] = {}
    written: set[str] = set()
    for loop in loops:
        for statement in loop.body:
            accesses = [n for e in expressions(statement) for n in expr.walk(e) if isinstance(n, Load)]
            found = [(n.buffer, n.index) for n in accesses]
            if isinstance(statement, Store):
                written.add(place(statement.buffer))
                found.append((statement.buffer, statement.index))
            for buffer, index in found:
                address = flatten(index, shapes[buffer])
                rest = address.substitute({loop.var: Index.of(0)})
                touched.setdefault(place(buffer), []).append((address.coefficient(loop.var), rest))
    steps = [{step for step, _ in touched[name]} for name in written]
    if not all(len(each) == 1 and None not in each for each in steps):
        return False
    inside = (step is not None and Index.of(0) <= at and at < step for name in written for step, at in touched[name])
    return all(inside) and any(step is not None and (step.constant or ROWS) >= ROWS for each in steps for step in each)
