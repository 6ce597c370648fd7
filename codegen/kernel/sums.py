"""Sums of floats of any length, whose error does not grow with the length.

In: a reduction of kind "sum", and the loops over which it adds. Out: statements of a kernel. At most
:data:`SERIAL` numbers in sequence are added in their own type. A longer sum, or one whose length is only
known at the call, uses a wider type: float32 is summed in float64, and float64 in two numbers, the sum and
its rounding error (Knuth's TwoSum: The Art of Computer Programming 2, 4.2.2, theorem B). Over contiguous
memory, blocks of :data:`BLOCK` numbers are first added in their own type, in :data:`LANES` accumulators, so
that SIMD code is as fast as without the wider type; so are rows of numbers whose sums are adjacent.
docs/numerics.md derives the bound of the error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

from fxlite.codegen.kernel.kernel_ir import Alloc, Assign, For, If, Let, Stmt, Store, expressions, fresh_local
from fxlite.codegen.kernel.loops import is_flat
from fxlite.scalar import expr
from fxlite.scalar.expr import Apply, Cast, Expr, Load, Local, MultiIndex, Reduction
from fxlite.scalar.functions import FUNCTIONS
from fxlite.scalar.index import Given, Index, Value, Var, extremum, product
from fxlite.types import dtypes
from fxlite.types.dtypes import DType

#: Numbers that one accumulator of their own type adds.
SERIAL = 96
#: Accumulators of a vectorised reduction: one AVX-512 register of float32, four of NEON's.
LANES = 16
#: Numbers that so many accumulators add before a wider one takes their sums.
BLOCK = 64 * LANES
#: The same on a processor that has no wider type, as of small devices: such blocks are added so that what
#: rounding leaves out is kept.
SMALL_BLOCK = 512
#: Terms from which threads share a reduction outside of all loops, and the parts that they share. Their number follows
#: from sizes alone, so results do not depend on the number of threads.
LONG, PARTS = 128 * BLOCK, 16
#: The fewest rows in such a part: adding parts of doubles then keeps the bound of docs/numerics.md.
FEWEST = 128
#: Sums that lie side by side and are computed together: as many as can be, since longer pieces of a
#: row are read faster, but so few that there are tasks for threads.
COLUMNS, MOST_COLUMNS, TASKS = 256, 4096, 8
#: Bytes of a row up to which rows are read one after the other, as they lie in memory. Processors foresee reads page by
#: page: they follow one stream through each, and several through several pages. (Measured on Zen 4: f64[100000,128] is
#: read at 26 GB/s, four rows at a time at 10; f64[20000,25000] at 23, 1,024 columns of four rows at a time at 15.)
PAGE = 4096
#: Longer rows that are read at a time.
ROWS = 8
#: Numbers of a row up to which so many rows are combined as if they were one, if the size of a row is only known at the
#: call: a loop over two or three numbers takes longer than they do. (Measured for f32[10007,N]: 0.2 of the time for 2
#: to 5 numbers, 0.4 for 16, 0.85 for 64.)
FEW_COLUMNS, JOINED = 64, 8
#: Numbers of a row up to which its last ones are computed by a vector: compilers compute up to 15 of them by smaller
#: vectors, and the last three one by one.
LONGEST_IN_VECTORS = 512
#: Parts of an element up to which rows are added so; what computes more waits for no memory.
_FEW_PARTS = 8


def is_long(node: Reduction, most: int = SERIAL) -> bool:
    """True for a sum of floats or complex numbers that may have more than ``most`` terms."""
    if node.kind != "sum" or not node.body.dtype.is_inexact:
        return False
    terms = product(v.extent for v in node.variables).constant
    return terms is None or terms > most


def joined(node: Reduction, shapes: Mapping[str, MultiIndex]) -> Reduction:
    """The reduction with adjacent variables joined if no address then needs a division."""
    variables, body = list(node.variables), node.body
    for position in range(len(variables) - 2, -1, -1):
        outer, inner = variables[position : position + 2]
        if outer in inner.extent.variables():
            continue
        both = expr.fresh_var(outer.extent * inner.extent)
        env = {outer: Index.of(both) // inner.extent, inner: Index.of(both) % inner.extent}
        changed = expr.substitute_index(body, env)
        if is_flat(changed, both, dict(shapes)):
            variables[position : position + 2], body = [both], changed
    if len(variables) == len(node.variables):
        return node
    return Reduction(node.dtype, node.kind, tuple(variables), body)


def wider(computed: DType) -> DType:
    """The type of a wide total of floats or complex numbers."""
    return dtypes.complex128 if computed.is_complex else dtypes.float64


@dataclass(frozen=True)
class Wide:
    """A total, or ``size`` of them (of which ``used`` are needed), in a wider type than the numbers that are added to
    it: a double ``sum`` or, for float64 and if there are no doubles, a sum of the numbers' own type with a second
    number, ``left``, that holds the rounding errors."""

    sum: Local
    left: Local | None
    size: int = 0
    used: Index | None = None

    @staticmethod
    def of(computed: DType, size: int = 0, doubles: bool = True, used: Index | None = None) -> Wide:
        """A total for numbers that are computed in this type."""
        wide = wider(computed) if doubles else computed
        left = fresh_local(wide, "_left") if computed is wide else None
        return Wide(fresh_local(wide, "_wide"), left, size, used)

    def start(self) -> list[Stmt]:
        """Declare it as zero."""
        zero = expr.const(0, self.sum.dtype)
        parts = [self.sum] if self.left is None else [self.sum, self.left]
        return [Alloc(part.name, part.dtype, zero, self.size, self.used) for part in parts]

    def add(self, value: Expr, at: MultiIndex = ()) -> list[Stmt]:
        """Add a number to it, or to element ``at``."""
        total = self._at(self.sum, at)
        if self.left is None:
            return [_plus(total, expr.cast(value, total.dtype))]
        left = self._at(self.left, at)
        names = [fresh_local(total.dtype, "_t") for _ in range(3)]
        term, new, kept = names
        lost = _binary("add", _binary("sub", total, _binary("sub", new, kept)), _binary("sub", term, kept))
        return [
            Let(term.name, value),
            Let(new.name, _binary("add", total, term)),
            Let(kept.name, _binary("sub", new, total)),
            _plus(left, lost),
            _plus(total, term),
        ]

    def value(self, at: MultiIndex = ()) -> Expr:
        """The total in the wide type. If it is infinite or NaN, the rounding errors, which are NaN, are ignored."""
        total = self._at(self.sum, at)
        if self.left is None:
            return total
        left = self._at(self.left, at)
        if not total.dtype.is_complex:
            return _completed(total, left)
        parts = zip(expr.parts(total), expr.parts(left))
        return expr.apply("complex", *(_completed(*part) for part in parts))

    @staticmethod
    def _at(part: Local, at: MultiIndex) -> Local:
        return Local(part.dtype, part.name, at)


def _completed(total: Expr, left: Expr) -> Expr:
    return expr.apply("where", expr.apply("isnan", left), total, expr.apply("add", total, left))


def _binary(function: str, a: Expr, b: Expr) -> Expr:
    return expr.apply(function, a, b)


def _plus(target: Local, value: Expr) -> Assign:
    return Assign(target, expr.apply("add", target, value))


def serial_sum(
    order: Sequence[Var], levels: Sequence[Sequence[Stmt]], body: Expr, computed: DType, parts: bool, result: DType
) -> tuple[list[Stmt], Local]:
    """The sum of ``body`` over loops with the variables ``order``, and the local of type ``result`` that holds it.
    ``levels[d]`` are statements in the first d + 1 loops, before those inside them. With ``parts``, innermost loops of
    at most :data:`SERIAL` numbers are first added in their own type; otherwise all loops are one task that the threads
    of a GPU share."""
    wide, total = Wide.of(computed), fresh_local(result, "_a")
    cut, terms = len(order), 1
    while parts and cut and terms * (order[cut - 1].extent.constant or SERIAL + 1) <= SERIAL:
        cut -= 1
        terms *= order[cut].extent.constant or 1
    part = fresh_local(computed, "_a")
    whole = cut == len(order)
    statements: list[Stmt] = [*levels[-1], *(wide.add(body) if whole else [_plus(part, body)])]
    for depth in range(len(order) - 1, -1, -1):
        statements = [For(order[depth], tuple(statements), "reduce")]
        if depth == cut:
            statements = [Alloc(part.name, computed, expr.const(0, computed)), *statements, *wide.add(part)]
        statements = [*levels[depth - 1], *statements] if depth else statements
    return [*wide.start(), *statements, narrowed(total, wide)], total


def narrowed(total: Local, wide: Wide) -> Let:
    """The statement that converts a total to the type of the numbers."""
    return Let(total.name, expr.cast(wide.value(), total.dtype))


def sum_in_lanes(
    order: Sequence[Var],
    levels: Sequence[Sequence[Stmt]],
    body: Expr,
    computed: DType,
    moved: Callable[[Stmt, Mapping[Var, Index]], Stmt],
    result: DType,
) -> tuple[list[Stmt], Local]:
    """Like `serial_sum`, if the innermost loop runs over contiguous memory: blocks of it are added in :data:`LANES`
    accumulators, which are then added to the wide total. ``moved`` is a function that replaces a variable in a
    statement."""
    is_repeated = may_repeat(order[-1].extent, len(order) == 1, levels[-1], body)
    order, levels, body, cut = _in_blocks_of_rows(order, levels, body, is_repeated, moved)
    variable = order[-1]
    wide, total = Wide.of(computed), fresh_local(result, "_a")
    lanes = Lanes.of(computed, variable.extent, is_repeated=is_repeated)

    def step(place: Index, target: Local) -> list[Stmt]:
        env = {variable: place}
        value = expr.cast(expr.substitute_index(body, env), target.dtype)
        return [*(moved(s, env) for s in levels[-1]), _plus(target, value)]

    def added(inside: Sequence[Stmt]) -> list[Stmt]:
        joining, value = lanes.joined(partial(_binary, "add"))
        return [*lanes.start(expr.const(0, computed)), *inside, *joining, *wide.add(value)]

    statements: list[Stmt]
    if cut < len(order):
        statements = lanes.loops(Index.of(0), variable.extent, step)
        statements = statements if cut < len(order) - 1 else added(statements)
    else:
        block = Var(fresh_local(dtypes.int64, "_block").name, variable.extent)
        count = extremum("min", Index.of(BLOCK), variable.extent - Index.of(block))
        inner = added(lanes.loops(Index.of(block), count, step))
        statements = [For(block, tuple(inner), "serial", BLOCK)]
        if len(order) == 1:
            long, narrow = [*wide.start(), *statements], expr.cast(wide.value(), result)
            return short_or_long(variable.extent, total, expr.const(0, result), step, long, narrow), total
    for depth in range(len(order) - 2, -1, -1):
        statements = [For(order[depth], (*levels[depth], *statements))]
        if depth == cut:
            statements = added(statements)
    return [*wide.start(), *statements, narrowed(total, wide)], total


def _in_blocks_of_rows(
    order: Sequence[Var],
    levels: Sequence[Sequence[Stmt]],
    body: Expr,
    is_repeated: bool,
    moved: Callable[[Stmt, Mapping[Var, Index]], Stmt],
) -> tuple[Sequence[Var], Sequence[Sequence[Stmt]], Expr, int]:
    """The loops of a sum, and the number of those around the ones that accumulators add before they are emptied: each
    then has as many numbers as of a block at most. The loop over short rows becomes one over blocks of several."""
    size, cut, limit = order[-1].extent.constant, len(order) - 1, BLOCK // LANES
    if size is None or size > BLOCK:
        return order, levels, body, len(order)
    left = 0 if is_repeated else size % LANES  # they have one accumulator
    steps = max(size // LANES + (is_repeated and size % LANES > 0), left, 1)
    while cut and steps * (order[cut - 1].extent.constant or limit + 1) <= limit:
        cut -= 1
        steps *= order[cut].extent.constant or 1
    most = limit // steps
    inside = [s for level in levels[max(cut - 1, 0) :] for s in level]
    if not cut or most < 2 or not all(isinstance(s, (Let, Store)) for s in inside):
        return order, levels, body, cut
    outer = order[cut - 1]
    count = next((n for n in range(most, most // 2, -1) if (outer.extent % n).constant == 0), most)
    block = Var(fresh_local(dtypes.int64, "_block").name, (outer.extent + count - 1) // count)
    row = expr.fresh_var(extremum("min", Index.of(count), outer.extent - Index.of(block) * count))
    env = {outer: Index.of(block) * count + row}
    moved_levels = [[moved(s, env) for s in level] for level in levels[cut - 1 :]]
    order = [*order[: cut - 1], block, row, *order[cut:]]
    return order, [*levels[: cut - 1], [], *moved_levels], expr.substitute_index(body, env), cut


def short_or_long(
    extent: Index,
    total: Local,
    neutral: Expr,
    step: Callable[[Index, Local], Sequence[Stmt]],
    long: Sequence[Stmt],
    value: Expr,
) -> list[Stmt]:
    """Reduce a row whose length is known only at the call: the statements ``long``, which give ``value``, or for less
    than :data:`LANES` numbers one ``step`` after the other, because starting and joining the accumulators would take
    longer (10,000 products of 8 numbers 37 us, now 20)."""
    if Index.of(LANES) <= extent or (extent % LANES).constant == 0:
        return [*long, Let(total.name, value)]
    count, lanes = expr.index_value(extent), expr.const(LANES, dtypes.int64)
    place = expr.fresh_var(extent, "rest")
    return [
        Alloc(total.name, total.dtype, neutral),
        If(expr.apply("lt", count, lanes), (For(place, tuple(step(Index.of(place), total))),)),
        If(expr.apply("ge", count, lanes), (*long, Assign(total, value))),
    ]


def may_repeat(
    extent: Index, is_alone: bool, statements: Sequence[Stmt], body: Expr, is_idempotent: bool = False
) -> bool:
    """Whether the last vector of a row of this extent may be computed though some of its numbers came before: the row
    has a vector, if need be because :func:`short_or_long` takes shorter ones, which it does for rows that no loop is
    around; and there is more than one new number, unless the others need not be left out, for GCC makes a branch of a
    single one."""
    if not (Index.of(LANES) <= extent or (is_alone and extent.constant is None)):
        return False
    return (is_idempotent or (extent % LANES).constant != 1) and are_repeatable(statements, body)


def are_repeatable(statements: Sequence[Stmt], *values: Expr) -> bool:
    """Whether statements, and values beside them, may be computed twice in a vector: they only compute and store, read
    nothing that is stored, and compilers make SIMD code of them."""
    parts = [n for value in (*values, *(e for s in statements for e in expressions(s))) for n in expr.walk(value)]
    read = {n.buffer for n in parts if isinstance(n, Load)}
    costly = [n for n in parts if isinstance(n, Apply) and FUNCTIONS[n.function].cost >= COSTLY]
    if any(not n.dtype.is_float or n.dtype.compute.name in FUNCTIONS[n.function].calls for n in costly):
        return False
    return all(isinstance(s, Let) or (isinstance(s, Store) and s.buffer not in read) for s in statements)


#: The least cost of a function that is no single operation of vectors of integers.
COSTLY = 8
#: Accumulators of a count, of a byte each, and how many conditions they count before they could overflow: they
#: are joined to a quarter, which take three times as many more.
COUNTERS = 4 * LANES
COUNTED = 63 * COUNTERS


def is_count(node: Reduction) -> bool:
    """True for a sum, over one variable, of conditions stored as bytes that may be long."""
    body = node.body
    if node.kind != "sum" or not isinstance(body, Cast) or not body.operand.dtype.is_bool or len(node.variables) > 1:
        return False
    loads = [n for n in expr.walk(body) if isinstance(n, Load)]
    long = (node.variables[0].extent.constant or 4 * COUNTERS) >= 4 * COUNTERS
    return long and body.dtype.is_integer and all(load.dtype.itemsize == 1 for load in loads)


def count_in_lanes(
    variable: Var, level: Sequence[Stmt], body: Expr, moved: Callable[[Stmt, Mapping[Var, Index]], Stmt]
) -> tuple[list[Stmt], Local]:
    """Like `sum_in_lanes`, for a count (:func:`is_count`): in bytes, :data:`COUNTED` at a time."""
    assert isinstance(body, Cast)
    byte, total = dtypes.uint8, fresh_local(body.dtype, "_a")
    lanes = Lanes(fresh_local(byte, "_lanes"), fresh_local(byte, "_others"), COUNTERS // LANES)

    def step(place: Index, target: Local) -> list[Stmt]:
        env = {variable: place}
        one = expr.cast(expr.substitute_index(body.operand, env), byte)
        return [*(moved(s, env) for s in level), _plus(target, one)]

    block = Var(fresh_local(dtypes.int64, "_block").name, variable.extent)
    count = extremum("min", Index.of(COUNTED), variable.extent - Index.of(block))
    loops = lanes.loops(Index.of(block), count, step, partial(_binary, "add"))
    lane = expr.fresh_var(LANES, "lane")
    each = _plus(total, expr.cast(lanes._at(Index.of(lane)), total.dtype))
    assert lanes.rest is not None
    ends: list[Stmt] = [For(lane, (each,), "reduce"), _plus(total, expr.cast(lanes.rest, total.dtype))]
    inside: list[Stmt] = [*lanes.start(expr.const(0, byte)), *loops, *ends]
    return [
        Alloc(total.name, total.dtype, expr.const(0, total.dtype)),
        For(block, tuple(inside), "serial", COUNTED),
    ], total


@dataclass(frozen=True)
class Lanes:
    """:data:`LANES` accumulators, which stay in registers as whole vectors. There may be ``several`` times as many,
    so that steps need not wait for each other; these are combined as soon as fewer numbers are left. The remainder of
    numbers that may be computed twice, of rows that have at least a vector of them, is the new ones of the last
    vector (``is_repeated``); other numbers have an accumulator of their own, ``rest``."""

    lanes: Local
    rest: Local | None
    several: int = 1
    is_repeated: bool = False

    @staticmethod
    def of(dtype: DType, extent: Index, several: int = 1, is_repeated: bool = False) -> Lanes:
        """The accumulators for loops of this extent."""
        has_rest = (extent % LANES).constant != 0
        rest = fresh_local(dtype, "_others") if has_rest and not is_repeated else None
        return Lanes(fresh_local(dtype, "_lanes"), rest, several, has_rest and is_repeated)

    def start(self, value: Expr) -> list[Stmt]:
        """Declare them with a neutral value."""
        rest = [] if self.rest is None else [Alloc(self.rest.name, value.dtype, value)]
        return [Alloc(self.lanes.name, value.dtype, value, LANES * self.several), *rest]

    def loops(
        self,
        start: Index,
        count: Index,
        step: Callable[[Index, Local], Sequence[Stmt]],
        join: Callable[[Expr, Expr], Expr] | None = None,
        is_idempotent: bool = False,
    ) -> list[Stmt]:
        """Loops over ``count`` places from ``start``: ``step`` gives the statements for a place and an accumulator,
        ``join`` combines several accumulators. With ``is_idempotent`` a number counts once, however often it comes."""
        loops: list[Stmt] = []
        first, most = Index.of(0), LANES * self.several
        for size in dict.fromkeys((most, LANES)):
            if size < most:
                assert join is not None
                loops += self._halved(most, size, join)
            end = (count // size) * size
            if count.constant is None:
                number = fresh_local(dtypes.int64, "_count")
                loops.append(Let(number.name, expr.index_value(end)))
                end = Index.of(Value(number))
            if (end - first).constant != 0:
                lane = expr.fresh_var(size, "lane")
                block = Var(fresh_local(dtypes.int64, "_block").name, end - first)
                place = start + first + Index.of(block) + lane
                inner = For(lane, tuple(step(place, self._at(Index.of(lane)))), "lanes")
                loops.append(For(block, (inner,), "serial", size))
            first = end
        if self.rest is not None:
            left_over = expr.fresh_var(count % LANES, "rest")
            loops.append(For(left_over, tuple(step(start + first + left_over, self.rest))))
        if self.is_repeated:
            left, lane = count % LANES, expr.fresh_var(LANES, "lane")
            left = named(loops, left, "_left")
            *inside, added = step(start + first + left - LANES + lane, self._at(Index.of(lane)))
            assert isinstance(added, Assign)
            if not is_idempotent:
                both = fresh_local(added.target.dtype, "_t")
                inside.append(Let(both.name, added.value))
                is_new = expr.apply("ge", expr.index_value(Index.of(lane)), expr.index_value(LANES - left))
                added = Assign(added.target, expr.apply("where", is_new, both, added.target))
            last: Stmt = For(lane, (*inside, added), "lanes")
            is_some = expr.apply("gt", expr.index_value(left), expr.const(0, dtypes.int64))
            loops.append(last if left.constant else If(is_some, (last,)))
        return loops

    def joined(self, join: Callable[[Expr, Expr], Expr]) -> tuple[list[Stmt], Expr]:
        """Statements that halve the number of lanes until there are four, and the combined value: this takes half as
        many sequential steps as combining one lane after the other."""
        first, second, third, fourth = (self._at(Index.of(n)) for n in range(4))
        value = join(join(first, second), join(third, fourth))
        return self._halved(LANES, 4, join), value if self.rest is None else join(value, self.rest)

    def _halved(self, size: int, least: int, join: Callable[[Expr, Expr], Expr]) -> list[Stmt]:
        """Statements that combine ``size`` lanes until there are ``least``."""
        statements: list[Stmt] = []
        while size > least:
            size //= 2
            lane = Index.of(expr.fresh_var(size, "lane"))
            (variable,) = lane.variables()
            here = self._at(lane)
            statements.append(For(variable, (Assign(here, join(here, self._at(lane + size))),), "lanes"))
        return statements

    def _at(self, lane: Index) -> Local:
        return Local(self.lanes.dtype, self.lanes.name, (lane,))


def ends_unevenly(size: int) -> bool:
    """Whether the last numbers of a short row are computed faster by a whole vector, as a single number and half a
    vector are not."""
    return LANES < size <= LONGEST_IN_VECTORS and size % LANES not in (0, 1, LANES // 2)


@dataclass(frozen=True)
class Columns:
    """``count`` elements of a row from ``first`` on, of which at most ``size`` are computed together: all of them, or
    in turns of a loop with the variable ``turn``. Numbers that are not constant get names ``before`` the loop and
    ``inside`` of it. With ``in_vectors`` a short row is computed in whole vectors, the last of which ends with the row:
    columns that it repeats have a second place among the accumulators, from which nothing is stored."""

    first: Index
    count: Index
    size: int
    turn: Var | None = None
    inside: tuple[Stmt, ...] = ()
    before: tuple[Stmt, ...] = ()
    in_vectors: bool = False

    def computed_twice(self) -> Columns:
        """The same, in whole vectors if the last columns fill none."""
        is_whole = self.turn is None and self.count.constant == self.size
        return replace(self, in_vectors=is_whole and ends_unevenly(self.size))

    @property
    def places(self) -> int:
        """How many accumulators there are."""
        return -(-self.size // LANES) * LANES if self.in_vectors else self.size

    def row(self, make: Callable[[Index, Index], Sequence[Stmt]]) -> For:
        """A loop over the columns; ``make`` gives the statements for a column and the place of its accumulator."""
        if not self.in_vectors:
            column = Index.of(lane := expr.fresh_var(self.count, "lane"))
            return For(lane, tuple(make(column, column)), "lanes")
        block, lane = Var(fresh_local(dtypes.int64, "_block").name, self.count), expr.fresh_var(LANES, "lane")
        start: list[Stmt] = []
        first = named(start, extremum("min", Index.of(block), Index.of(self.size - LANES)), "_first")
        vector = For(lane, tuple(make(first + lane, Index.of(block) + lane)), "lanes")
        return For(block, (*start, vector), "serial", LANES)

    def every(self, make: Callable[[Index, Index], Sequence[Stmt]]) -> list[Stmt]:
        """The same, each column once."""
        if not self.in_vectors:
            return [self.row(make)]
        whole = self.size // LANES * LANES
        lane, rest = expr.fresh_var(whole, "lane"), expr.fresh_var(self.size - whole, "lane")
        left = make(whole + Index.of(rest), self.places - self.size + whole + Index.of(rest))
        return [For(lane, tuple(make(Index.of(lane), Index.of(lane))), "lanes"), For(rest, tuple(left), "lanes")]

    @staticmethod
    def of(along: Var, most: int, least: int = COLUMNS) -> Columns:
        """The columns of a row with this variable, at most so many at a time, but no parts of fewer than ``least``."""
        row, least = along.extent, min(most, least)
        enough = extremum("min", row // least, Index.of(TASKS if most > least else 1))
        turns = extremum("max", extremum("max", enough, (row + most - 1) // most), Index.of(1))
        before: list[Stmt] = []
        upper = row.upper()
        if upper is not None and upper.constant is not None and upper.constant <= least:
            return Columns(Index.of(0), row, upper.constant)
        if row.constant is not None and turns.constant is not None:
            if turns.constant == 1:
                return Columns(Index.of(0), row, row.constant)
            size = -(-row.constant // (turns.constant * LANES)) * LANES  # whole vectors
            first, width = Index.of(turn := Var(fresh_local(dtypes.int64, "_block").name, row)), Index.of(size)
        elif most == least:
            first, width = Index.of(turn := Var(fresh_local(dtypes.int64, "_block").name, row)), Index.of(most)
            size = most
        else:
            turns = named(before, turns, "_parts")
            width = named(before, extremum("max", (row + turns - 1) // turns, Index.of(1)), "_width")
            turn, size = Var(fresh_local(dtypes.int64, "_part").name, (row + width - 1) // width), most
            first = Index.of(turn) * width
        count = extremum("min", width, row - first)
        inside: list[Stmt] = []
        return Columns(first, named(inside, count, "_count"), size, turn, tuple(inside), tuple(before))

    @property
    def used(self) -> Index | None:
        """How many are computed together, if that may be fewer than there is room for."""
        return None if self.count.constant == self.size else self.count

    def rows(
        self,
        start: Index,
        number: Index,
        dtype: DType,
        step: Callable[[Sequence[Index]], Sequence[Stmt]],
        is_kept: bool = False,
    ) -> list[Stmt]:
        """Loops over a number of rows from ``start`` whose numbers of this type wait for memory: several at a time
        and the rest one by one, or all one by one if they are short, unless they are probably kept by a cache.
        ``step`` gives the statements for the rows at some places."""
        found: list[Stmt] = []
        whole, most = number // ROWS * ROWS, 0 if is_kept else PAGE // dtype.itemsize
        if self.turn is None and self.size <= most:
            whole = Index.of(0)
        elif most and self.count.constant is None and (self.turn is None or self.before):
            columns, local = expr.index_value(self.count), fresh_local(dtypes.int64, "_whole")
            is_short = expr.apply("le", columns, expr.const(most, dtypes.int64))
            zero = expr.const(0, dtypes.int64)
            found.append(Let(local.name, expr.apply("where", is_short, zero, expr.index_value(whole))))
            whole = Index.of(Value(local))
        here, left = Var(fresh_local(dtypes.int64, "_r").name, whole), expr.fresh_var(number - whole)
        if whole.constant != 0:
            places = [start + Index.of(here) + n for n in range(ROWS)]
            found.append(For(here, tuple(step(places)), "serial", ROWS))
        if left.extent.constant != 0:
            found.append(For(left, tuple(step([start + whole + Index.of(left)]))))
        return found

    def loop(self, statements: list[Stmt], kind: str) -> list[Stmt]:
        """Statements that compute some columns, repeated for all of them in a loop of that kind."""
        if self.turn is None:
            return statements
        statements = [*self.inside, *statements]
        if not self.before:
            return [For(self.turn, tuple(statements), kind, self.size)]
        return [*self.before, For(self.turn, tuple(statements), kind)]


@dataclass(frozen=True)
class Joined:
    """Rows of which each begins in memory where the one before it ends, and whose size is only known at the call: if
    they are short, several are combined as if they were one row, each with accumulators of its own. ``together`` is
    the number of such rows, which ``setup`` names, and 1 if they are long."""

    columns: Columns
    is_short: Expr
    setup: Stmt
    together: Index

    @staticmethod
    def of(columns: Columns, along: Var) -> Joined | None:
        """What is known of rows with this variable, or None if their size is."""
        if columns.count.constant is not None:
            return None
        is_short = expr.apply("le", expr.index_value(along.extent), expr.const(FEW_COLUMNS, dtypes.int64))
        local = fresh_local(dtypes.int64, "_together")
        counts = (expr.const(number, dtypes.int64) for number in (JOINED, 1))
        return Joined(columns, is_short, Let(local.name, expr.where(is_short, *counts)), Index.of(Value(local)))

    @property
    def places(self) -> int:
        """How many accumulators there are."""
        return max(self.columns.places, FEW_COLUMNS * JOINED)

    @property
    def used(self) -> Index:
        """How many of them are used."""
        return self.columns.count * self.together

    def rows(
        self, start: Index, number: Index, step: Callable[[Index, Index], Stmt]
    ) -> tuple[list[Stmt], Index, Index]:
        """Loops that combine short rows, several at a time, and where the rows that are left start, and their number.
        ``step`` gives the statement for an accumulator and the first of the rows."""
        local = fresh_local(dtypes.int64, "_joined")
        some = expr.where(self.is_short, expr.index_value(number // JOINED), expr.const(0, dtypes.int64))
        whole = Index.of(Value(local))
        one, lane = expr.fresh_var(whole), expr.fresh_var(self.columns.count * JOINED, "lane")
        inside = For(lane, (step(Index.of(lane), start + Index.of(one) * JOINED),), "lanes")
        return [Let(local.name, some), For(one, (inside,))], start + whole * JOINED, number - whole * JOINED


def reads_much(body: Expr) -> bool:
    """Whether so little is computed of each number that memory is the bottleneck."""
    return sum(1 for _ in expr.walk(body)) <= _FEW_PARTS


def is_product(body: Expr, along: Var, rows: Sequence[Var]) -> bool:
    """Whether a number is read with each row, as in a product of matrices, where other products read the rows again."""
    variables = [{v for i in n.index for v in i.variables()} for n in expr.walk(body) if isinstance(n, Load)]
    return any(along not in read and not read.isdisjoint(rows) for read in variables)


def sum_of_rows(
    order: Sequence[Var],
    along: Var,
    body: Expr,
    computed: DType,
    store: Callable[[Index, Expr], Stmt],
    kind: str,
    of_row: Callable[[Mapping[Var, Index], For], list[Stmt]] | None = None,
    result: DType | None = None,
    *,
    are_adjacent: bool = False,
) -> list[Stmt]:
    """Sums over ``order`` for all elements of a row with the variable ``along``, whose operands are adjacent:
    :data:`SERIAL` rows are added in their own type, and their sums are added to wide ones. ``store(column, sum)``
    stores one of them; ``kind`` is that of the loop over parts of the row; ``of_row`` wraps the loop that adds a row
    in what it needs. Sums are stored as a ``result``, by default as numbers of their own type. ``are_adjacent`` says
    that each row begins in memory where the one before it ends."""
    columns = Columns.of(along, MOST_COLUMNS, PAGE // computed.itemsize)
    around = [v for one in order for v in one.extent.variables() if isinstance(v, Given)]  # of loops of the program
    is_repeated = bool(around) or (kind != "parallel" and result is None)
    is_kept = is_repeated and is_product(body, along, order)
    is_plain = of_row is None and not any(v.extent.variables() for v in order)
    if kind == "parallel" and columns.turn is None and is_plain:
        numbers = product(v.extent for v in order) * columns.size
        most = extremum("min", numbers * PARTS // LONG, order[0].extent // FEWEST)
        several = extremum("max", extremum("min", most, Index.of(PARTS)), Index.of(1))
        if several.constant != 1:
            return _rows_in_parts(order, along, columns.size, several, body, computed, store)
    if are_repeatable((), body):
        columns = columns.computed_twice()
    first = columns.first
    joined = Joined.of(columns, along) if are_adjacent and of_row is None else None
    wides, parts = Wide.of(computed, columns.places, used=columns.used), fresh_local(computed, "_lanes")

    def rows_of(start: Index, count: Index) -> list[Stmt]:
        """Rows of the last loop, several at a time if memory is the bottleneck."""

        def added(rows: Sequence[Index]) -> list[Stmt]:
            def step(column: Index, place: Index) -> list[Stmt]:
                values = [expr.substitute_index(body, {along: first + column, last: row}) for row in rows]
                return [_plus(Local(computed, parts.name, (place,)), reduce(partial(_binary, "add"), values))]

            return [columns.row(step)] if of_row is None else of_row({last: rows[0]}, columns.row(step))

        found = list[Stmt]()
        if joined is not None:

            def step(lane: Index, row: Index) -> Stmt:
                value = expr.substitute_index(body, {along: lane % along.extent, last: row + lane // along.extent})
                return _plus(Local(computed, parts.name, (lane,)), value)

            found, start, count = joined.rows(start, count, step)
        if of_row is None and reads_much(body):
            return [*found, *columns.rows(start, count, computed, added, is_kept)]
        one = expr.fresh_var(count)
        return [*found, For(one, tuple(added([start + Index.of(one)])))]

    def finished(column: Index, place: Index) -> list[Stmt]:
        return [store(first + column, expr.cast(wides.value((place,)), result or computed))]

    def emptied(inside: Sequence[Stmt]) -> list[Stmt]:
        place = expr.fresh_var(columns.places if columns.in_vectors else columns.count, "lane")
        at, zero = (Index.of(place),), expr.const(0, computed)
        if joined is None:
            added = For(place, tuple(wides.add(Local(computed, parts.name, at), at)), "lanes")
            return [Alloc(parts.name, computed, zero, columns.places, columns.used), *inside, added]
        row = expr.fresh_var(joined.together)
        part = Local(computed, parts.name, (Index.of(row) * columns.count + place,))
        added = For(row, (For(place, tuple(wides.add(part, at)), "lanes"),))
        return [Alloc(parts.name, computed, zero, joined.places, joined.used), *inside, added]

    last, cut = order[-1], len(order) - 1
    statements: list[Stmt]
    if last.extent.constant is not None and last.extent.constant <= SERIAL:
        terms = max(last.extent.constant, 1)
        while cut and terms * (order[cut - 1].extent.constant or SERIAL + 1) <= SERIAL:
            cut -= 1
            terms *= order[cut].extent.constant or 1
        statements = rows_of(Index.of(0), last.extent)
        statements = statements if cut < len(order) - 1 else emptied(statements)
    else:
        block = Var(fresh_local(dtypes.int64, "_block").name, last.extent)
        rows = extremum("min", Index.of(SERIAL), last.extent - Index.of(block))
        statements = [For(block, tuple(emptied(rows_of(Index.of(block), rows))), "serial", SERIAL)]
    for depth in range(len(order) - 2, -1, -1):
        statements = [For(order[depth], tuple(statements))]
        if depth == cut:
            statements = emptied(statements)
    statements = [*wides.start(), *statements, *columns.every(finished)]
    if joined is not None:
        statements.insert(0, joined.setup)
    return columns.loop(statements, kind)


def _rows_in_parts(
    order: Sequence[Var],
    along: Var,
    size: int,
    parts: Index,
    body: Expr,
    computed: DType,
    store: Callable[[Index, Expr], Stmt],
) -> list[Stmt]:
    """Like `sum_of_rows`, for one short row of ``size`` sums: threads add so many parts of the rows."""
    wide, statements = wider(computed), list[Stmt]()
    shares = Shares.of(statements, order[0], parts)
    place, column = expr.fresh_var(shares.part.extent - 1, "part"), expr.fresh_var(size, "lane")
    totals, zero = fresh_local(wide, "_totals"), expr.const(0, wide)

    def of_part(at: Index, column: Index) -> Local:
        return Local(wide, totals.name, (at * size + column,))

    def kept(column: Index, value: Expr) -> Stmt:
        return Assign(of_part(Index.of(shares.part), column), value)

    moved = expr.substitute_index(body, shares.env)
    inside = sum_of_rows([shares.here, *order[1:]], along, moved, computed, kept, "serial", result=wide)
    whole, other = of_part(Index.of(0), Index.of(column)), of_part(Index.of(place) + 1, Index.of(column))
    done = store(Index.of(column), expr.cast(whole, computed))
    return [
        *statements,
        Alloc(totals.name, wide, zero, PARTS * size, None if parts.constant else shares.part.extent * size),
        For(shares.part, (*shares.inside, *inside), "parallel"),
        For(place, (For(column, (_plus(whole, other),), "lanes"),), "serial"),
        For(column, (done,), "lanes"),
    ]


@dataclass(frozen=True)
class Shares:
    """A loop in parts for threads: the loop over parts, what is computed at the start of each, the loop over the
    iterations of a part, and the variable of the old loop in terms of both."""

    part: Var
    inside: list[Stmt]
    here: Var
    env: dict[Var, Index]

    @classmethod
    def of(cls, before: list[Stmt], loop: Var, parts: Index) -> Shares:
        """So many parts of a loop; statements before it name what their sizes need."""
        parts = named(before, parts, "_parts")
        size = named(before, (loop.extent + parts - 1) // parts, "_size")
        part, inside = expr.fresh_var(parts, "part"), list[Stmt]()
        count = extremum("max", extremum("min", size, loop.extent - size * part), Index.of(0))
        here = expr.fresh_var(named(inside, count, "_count"))
        return cls(part, inside, here, {loop: size * part + Index.of(here)})


def named(statements: list[Stmt], index: Index, name: str) -> Index:
    """The index, to which the statements give a name unless it is constant."""
    if index.constant is not None:
        return index
    local = fresh_local(dtypes.int64, name)
    statements.append(Let(local.name, expr.index_value(index)))
    return Index.of(Value(local))


# -- without a wider type ---------------------------------------------------------------------------
def sum_in_blocks(
    order: Sequence[Var],
    levels: Sequence[Sequence[Stmt]],
    body: Expr,
    computed: DType,
    most: Sequence[Index],
    moved: Callable[[Stmt, dict[Var, Index]], Stmt],
) -> tuple[list[Stmt], Local]:
    """The sum of ``body`` over loops with the variables ``order``, each of which has at most so many iterations, and
    the local that holds it. ``levels[d]`` are statements in the first d + 1 loops, before those inside them; ``moved``
    is a function that replaces a variable in a statement."""
    total, part = fresh_local(computed, "_a"), fresh_local(computed, "_a")
    trips = [SMALL_BLOCK + 1 if size.constant is None else size.constant for size in most]
    if math.prod(trips) <= SMALL_BLOCK:
        inner: list[Stmt] = [_plus(total, body)]
        start: Stmt = Alloc(total.name, computed, expr.const(0.0, computed))
        return [start, *_loops(order, levels, inner)], total
    wide = Wide.of(computed, doubles=False)
    emptied: Stmt = Alloc(part.name, computed, expr.const(0.0, computed))
    if trips[-1] > SMALL_BLOCK:
        last = order[-1]
        block = Var(fresh_local(computed, "_block").name, last.extent)
        here = expr.fresh_var(extremum("min", Index.of(SMALL_BLOCK), last.extent - Index.of(block)))
        env = {last: Index.of(block) + Index.of(here)}
        step = [*(moved(s, env) for s in levels[-1]), _plus(part, expr.substitute_index(body, env))]
        parts = [emptied, For(here, tuple(step), "reduce"), *wide.add(part)]
        loop = For(block, tuple(parts), "serial", SMALL_BLOCK)
        outer = _loops(order[:-1], levels[:-1], [loop])
    else:
        cut = len(order) - 1
        while math.prod(trips[cut - 1 :]) <= SMALL_BLOCK:
            cut -= 1
        inside = _loops(order[cut:], levels[cut:], [_plus(part, body)])
        statements = [*levels[cut - 1], emptied, *inside, *wide.add(part)] if cut else inside
        outer = _loops(order[:cut], [*levels[: cut - 1], []], statements)
    return [*wide.start(), *outer, narrowed(total, wide)], total


def _loops(order: Sequence[Var], levels: Sequence[Sequence[Stmt]], inner: list[Stmt]) -> list[Stmt]:
    """Loops around statements, after the statements of each level."""
    for depth in range(len(order) - 1, -1, -1):
        inner = [For(order[depth], (*levels[depth], *inner), "reduce")]
    return inner
