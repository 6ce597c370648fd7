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
and K. Kennedy: Automatic Loop Interchange, 1984; rows are strip-mined, so that they form vectors.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fxlite.codegen.kernel.kernel_ir import For, Kernel, Let, Stmt, Store, Text, expressions
from fxlite.codegen.kernel.nest import move
from fxlite.scalar import expr
from fxlite.scalar.expr import CheckedIndex, Load, Local, MultiIndex
from fxlite.scalar.index import Index, Value, Var, extremum, flatten
from fxlite.types import dtypes

#: Rows that go through all iterations together: a cache line of doubles, which is a vector.
ROWS = 8


def rows_first(
    kernels: Sequence[Kernel], shapes: Mapping[str, MultiIndex], place: Callable[[str], str], head: str
) -> For | None:
    """The loop over rows around a loop of the program with this ``head``, whose iterations run the kernels; None if
    rows are not independent, or are adjacent in memory. ``place`` gives the array of a buffer."""
    loops = [s for kernel in kernels if len(kernel.body) == 1 for s in kernel.body if isinstance(s, For)]
    extents = {loop.var.extent for loop in loops}
    if len(loops) < len(kernels) or len(extents) != 1 or not all(map(_is_plain, loops)):
        return None
    if not _are_apart(loops, shapes, place):
        return None
    (extent,) = extents
    rows, named = Var("rows", extent), Local(dtypes.int64, "count")
    inside: list[Stmt] = []
    for loop in loops:
        row = Var(loop.var.name, Index.of(Value(named)))
        env = {loop.var: Index.of(rows) + row}
        inside.append(For(row, tuple(move(s, env) for s in loop.body), "simd"))
    count = Let(named.name, expr.index_value(extremum("min", Index.of(ROWS), extent - Index.of(rows))))
    return For(rows, (count, Text((head,), body=tuple(inside))), "parallel", ROWS)


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
