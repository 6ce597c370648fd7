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

If iterations go over rows, and columns do not meet, a few columns at a time go through all iterations likewise::

    for (int64_t i = 0; i < H; ++i) {             for (int64_t column_0 = 0; column_0 < W; column_0 += 128) {
        for (int64_t j = 0; j < W; ++j) ...           for (int64_t i = 0; i < H; ++i) {
    }                                                     for (int64_t j = 0; j < n_columns; ++j) ...

That pays if an iteration reads rows again that others read: a block of columns stays in the cache.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace

from fxlite.codegen.kernel.kernel_ir import (
    Alloc,
    Assign,
    For,
    If,
    Kernel,
    Let,
    Stmt,
    Store,
    Text,
    expressions,
    statements,
)
from fxlite.codegen.kernel.nest import move
from fxlite.scalar import expr
from fxlite.scalar.expr import CheckedIndex, Const, Expr, IndexValue, Load, Local, MultiIndex, run_time_values
from fxlite.scalar.index import Index, Value, Var, extremum, flatten
from fxlite.types import dtypes

#: Rows that go through all iterations together: a cache line of doubles, which is a vector.
ROWS = 8
#: Columns that do: a kilobyte of doubles in each row. (Measured on Zen 4: the products of a triangle of f64[600,600]
#: and f64[600,700] take 13.5 ms with whole rows, and 11.5 with these.)
COLUMNS = 128
#: Loops whose iterations may run in any order, and what they are inside of a loop that threads share.
_ANY_ORDER = {"simd": "simd", "parallel simd": "simd", "lanes": "lanes", "independent": "independent"}
_ANY_ORDER["parallel"] = "independent"


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


def columns_first(
    kernels: Sequence[Kernel], shapes: Mapping[str, MultiIndex], place: Callable[[str], str], head: str
) -> For | None:
    """The loop over blocks of columns around a loop of the program with this ``head``, whose iterations run the
    kernels; None if columns are not independent, or no iteration goes over rows."""
    body = [s for kernel in kernels for s in statements(kernel.body)]
    stores = [s for s in body if isinstance(s, Store)]
    widths = {shapes[s.buffer][-1] if shapes[s.buffer] else Index.of(1) for s in stores}
    if len(widths) != 1 or ((width := widths.pop()).constant or 0) < 2 * COLUMNS:
        return None
    steps = {s.step for s in body if type(s) is For and s.var.extent == width and s.step > 1}
    if len(steps) > 1:
        return None
    most = -(-(width.constant or 0) // -(-(width.constant or 0) // COLUMNS) // ROWS) * ROWS  # whole cache lines
    block = _Columns(width, steps.pop() if steps else most, {place(s.buffer) for s in stores}, place)
    inside: list[Stmt] = []
    for kernel in kernels:
        found = block.of_some(kernel.body, {})
        inside += [Text((), body=tuple(found))] if any(isinstance(s, (Let, Alloc)) for s in found) else found
    if block.fails or not block.goes_over_rows:
        return None
    return For(block.first, (*block.counted, Text((head,), body=tuple(inside))), "parallel", block.size)


class _Columns:
    """Rewrites statements of kernels for at most ``size`` columns from ``first`` on, in place of rows of this
    ``width``. It ``fails`` if a column of the ``written`` arrays, or of a local array, meets another one."""

    def __init__(self, width: Index, size: int, written: Container[str], place: Callable[[str], str]) -> None:
        self.width, self.size, self.written, self.place = width, size, written, place
        self.first, named = Var("column_0", width), Local(dtypes.int64, "n_columns")
        least = extremum("min", Index.of(size), width - Index.of(self.first))
        is_whole = (width % size).constant == 0
        self.counted = () if is_whole else (Let(named.name, expr.index_value(least)),)
        self.count = Index.of(size) if is_whole else Index.of(Value(named))
        self.counts: set[str] = set()  # names of the number of columns
        self.lanes: set[Var] = set()
        self.arrays: set[str] = set()  # local ones with an element for each column
        self.fails = self.goes_over_rows = False

    def of_some(self, body: Sequence[Stmt], env: Mapping[Var, Index], inside: bool = False) -> list[Stmt]:
        """The statements for some columns, ``inside`` a loop over them; ``env`` has the columns of variables."""
        return [self._statement(s, env, inside) for s in body]

    def _statement(self, s: Stmt, env: Mapping[Var, Index], inside: bool) -> Stmt:
        match s:
            case For() if type(s) is For:
                return self._loop(s, env, inside)
            case Alloc(size=size) if size and size in (self.width.constant, self.size):
                self.arrays.add(s.name)
                used = None if self.count.constant else self.count
                return Alloc(s.name, s.dtype, self._value(s.init, env), self.size, used)
            case Alloc(size=0) if not inside:
                return replace(s, init=self._value(s.init, env))
            case Let():
                return Let(s.name, self._value(s.value, env))
            case Assign() if s.target.index or not inside:
                target = self._value(s.target, env)
                assert isinstance(target, Local)
                return Assign(target, self._value(s.value, env))
            case If():
                return If(self._value(s.condition, env), tuple(self.of_some(s.body, env, inside)))
            case Store():
                self._check(s.buffer, s.index, env)
                return replace(s, index=tuple(i.substitute(env) for i in s.index), value=self._value(s.value, env))
        self.fails = True
        return s

    def _loop(self, s: For, env: Mapping[Var, Index], inside: bool) -> Stmt:
        start, kind = Index.of(self.first), _ANY_ORDER.get(s.kind, s.kind)
        if s.var.extent == self.width and s.step == self.size > 1:  # over blocks
            least = extremum("min", Index.of(self.size), self.width - Index.of(s.var))
            named = [t for t in s.body if isinstance(t, Let) and _is_index(t.value, least)]
            self.counts |= {t.name for t in named}
            left = [t for t in s.body if t not in named]
            return Text((), body=tuple(self.of_some(left, {**env, s.var: start}, inside)))
        if s.var.extent == self.width and s.step == 1 and s.kind in _ANY_ORDER:
            lane = Var(s.var.name, self.count)
            self.lanes.add(lane)
            return For(lane, tuple(self.of_some(s.body, {**env, s.var: start + Index.of(lane)}, True)), kind)
        if self._is_block(s.var.extent) and s.kind in _ANY_ORDER:
            lane = Var(s.var.name, self.count)
            self.lanes.add(lane)
            return For(lane, tuple(self.of_some(s.body, {**env, s.var: Index.of(lane)}, True)), kind)
        loads = (n for t in statements(s.body) for e in expressions(t) for n in expr.walk(e))
        self.goes_over_rows |= any(isinstance(n, Load) for n in loads)
        self.fails |= any(v in env for v in s.var.extent.variables())
        return For(s.var, tuple(self.of_some(s.body, env, inside)), kind, s.step)

    def _is_block(self, extent: Index) -> bool:
        """Whether a loop of this extent is over a block of columns."""
        atom = extent.single_atom
        if isinstance(atom, Value) and isinstance(atom.expr, Local):
            return atom.expr.name in self.counts
        return extent == self.size

    def _check(self, buffer: str, index: MultiIndex, env: Mapping[Var, Index]) -> None:
        if self.place(buffer) in self.written:
            lane = (index[-1].substitute(env) - Index.of(self.first)).single_atom if index else None
            self.fails |= lane not in self.lanes or bool(run_time_values(index))

    def _value(self, value: Expr, env: Mapping[Var, Index]) -> Expr:
        moved, start = expr.substitute_index(value, env), {self.first: Index.of(0)}
        for node in expr.walk(value):
            if isinstance(node, Load):
                self._check(node.buffer, node.index, env)
            self.fails |= isinstance(node, CheckedIndex)

        def of_block(node: Expr) -> Expr:
            if not isinstance(node, Local) or node.name not in self.arrays:
                return node
            index = tuple(i.substitute(start) for i in node.index)
            self.fails |= len(index) != 1 or index[0].single_atom not in self.lanes
            return replace(node, index=index)

        return expr.transform(moved, of_block)


def _is_index(value: Expr, index: Index) -> bool:
    return isinstance(value, IndexValue) and value.index == index


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
    if loop.var.extent.variables() or loop.kind in ("serial", "rolled", "reduce") or loop.step != 1:
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
