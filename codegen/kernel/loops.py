"""Make the loops of a kernel readable: join adjacent ones, divide one with several cases into parts, and
name the variables.

In: loop variables, the value of an element, and where it is stored; or statements with the unique names
that lowering made. Out: the same with fewer loops, in which no address needs a division; the same
statements with loop variables ``i j k``, reduced ones ``r s``, values ``t0 t1``.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fxlite.codegen.kernel.kernel_ir import (
    Alloc,
    Assign,
    Comment,
    For,
    If,
    Let,
    Stmt,
    Store,
    expressions,
    fresh_local,
    statements,
)
from fxlite.codegen.kernel.names import spelled
from fxlite.scalar import expr
from fxlite.scalar.expr import Apply, CheckedIndex, Const, Expr, IndexValue, Load, Local, MultiIndex, Reduction
from fxlite.scalar.functions import COMBINATIONS
from fxlite.scalar.index import Extremum, Given, Index, Quotient, Remainder, Value, Var, extremum, flatten
from fxlite.types import dtypes

# -- spread ----------------------------------------------------------------------------------------
#: Sizes from which on a loop is worth being one of its own.
LONG_LOOP = 8
#: Iterations up to which the innermost loop is unrolled in the one around it, which is vectorized.
SHORT = 4


def spread(
    space: tuple[Var, ...], value: Expr, store: MultiIndex, least: int = LONG_LOOP
) -> tuple[tuple[Var, ...], Expr, MultiIndex]:
    """Replace a loop over joined axes by one for each of them if addresses divide by the size of one, as after
    a reshape, because an integer division takes longer than most computations. Sizes are at least ``least``."""
    position = 0
    while position < len(space):
        variable = space[position]
        size = _size_of_parts(value, variable)
        if size is None or 0 < (size.constant or least) < least:
            position += 1
            continue
        loops = expr.fresh_var(variable.extent // size, "v"), expr.fresh_var(size, "v")
        env = {variable: Index.of(loops[0]) * size + loops[1]}
        space = (*space[:position], *loops, *space[position + 1 :])
        value, store = expr.decided(expr.substitute_index(value, env)), tuple(i.substitute(env) for i in store)
    return space, value, store


def beside(
    space: tuple[Var, ...], value: Expr, store: MultiIndex, shapes: Mapping[str, MultiIndex]
) -> tuple[tuple[Var, ...], list[tuple[MultiIndex, Expr]]]:
    """The last loop with as many elements in each iteration as addresses divide it by, if these are few, as where
    each element of a row is repeated: a vector is then read whole. In each iteration the values are stored."""
    count = _few_parts(value, space[-1]) if space else 0
    if not count or (space[-1].extent % count).constant != 0 or is_flat(value, space[-1], shapes):
        return space, [(store, value)]
    loop, found = expr.fresh_var(space[-1].extent // count, "v"), []
    for place in range(count):
        env = {space[-1]: Index.of(loop) * count + place}
        there = tuple(i.substitute(env) for i in store)
        found.append((there, expr.decided(expr.substitute_index(value, env))))
    if any(is_guarded(element) for _, element in found):
        return space, [(store, value)]
    return (*space[:-1], loop), found


def row_conditions(outer: Sequence[Var], row: Var, value: Expr) -> list[Expr]:
    """Comparisons on which what is read depends, which are the same for all elements of a row, and without which
    `beside` could divide its loop, inside the outer ones: for example that the row is none of those between rows that
    are spread. They are those of all reads, or else one of the first; empty if there are none."""
    loads = [n for n in expr.walk(value) if isinstance(n, Load) and n.guard is not None]
    if not loads or not _few_parts(value, row):
        return []
    if any(row not in expr.free_variables(n) for n in loads):
        return []  # it would be read outside of the loop, whether the condition holds or not
    found: list[dict[tuple[Index, bool], Expr]] = []
    for load in loads:
        compared = {key: c for c in expr.conjuncts(load.guard) if (key := _compared(c)) is not None}
        free = {key: expr.free_variables(c) for key, c in compared.items()}
        found.append({k: c for k, c in compared.items() if row not in free[k] and not free[k].isdisjoint(outer)})
    shared = [c for key, c in found[0].items() if all(key in other for other in found)]
    return shared or next((list(each.values())[:1] for each in found if each), [])


def cases(value: Expr, conditions: Sequence[Expr]) -> list[tuple[Expr, Expr]]:
    """A value where not all of the comparisons of indices hold, and where all do, each behind the condition for it."""
    compared = [found for c in conditions if (found := _compared(c)) is not None]
    both = expr.both(*conditions)

    def known(holds: bool, node: Expr) -> Expr:
        found = _compared(node)
        if found is None:
            parts = [] if holds else [_compared(c) for c in expr.conjuncts(node)]
            return expr.FALSE if len(parts) > 1 and all(c in parts for c in compared) else node
        if (holds or len(compared) == 1) and found in compared:
            return expr.TRUE if holds else expr.FALSE
        difference, is_equality = found
        if (holds or len(compared) == 1) and not is_equality and (-difference - 1, False) in compared:
            return expr.FALSE if holds else expr.TRUE
        return node

    return [
        (condition, expr.decided(expr.transform(value, functools.partial(known, holds))))
        for condition, holds in ((expr.apply("logical_not", both), False), (both, True))
    ]


def is_guarded(value: Expr) -> bool:
    """Whether something is loaded only where a guard holds. GCC before 12.4 and 13.3 makes wrong SIMD code of several
    such loads beside each other that are stored in one iteration (its bug 114375)."""
    return any(isinstance(n, Load) and n.guard is not None for n in expr.walk(value))


def is_stored_at_once(space: Sequence[Var], value: Expr) -> bool:
    """Whether a vectorized loop stores several elements in an iteration: the last loop is short, or `beside` divides
    it."""
    if len(space) > 1 and (space[-1].extent.constant or SHORT + 1) <= SHORT:
        return True
    return bool(space) and _few_parts(value, space[-1]) > 0


def uneven(space: tuple[Var, ...], value: Expr) -> Cut | None:
    """The last loop without its last few elements, so that `beside` can divide it: for example a row that is woven
    from several, and then cut."""
    count = _few_parts(value, space[-1]) if space else 0
    if not count or (space[-1].extent.constant or LONG_LOOP * count) < LONG_LOOP * count:
        return None
    left_over = (space[-1].extent % count).constant
    return Cut(space[-1], (space[-1].extent - left_over,), are_inside=True) if left_over else None


def _few_parts(value: Expr, variable: Var) -> int:
    """A number below :data:`LONG_LOOP` by which addresses and conditions divide the variable; 0 if there is none."""
    if any(isinstance(n, (Reduction, CheckedIndex)) for n in expr.walk(value)):
        return 0
    for division in _divisions(value, variable):
        count, rest = division.b.constant or 0, division.a - variable
        if not 2 <= count < LONG_LOOP or variable in rest.variables() or variable.extent.constant == count:
            continue
        if (rest % count).constant is not None:
            return count
    return 0


def _size_of_parts(value: Expr, variable: Var) -> Index | None:
    """The size by which the variable is divided in addresses and conditions."""
    return next(filter(None, (_divisor(a, variable) for a in _divisions(value, variable))), None)


def _divisions(value: Expr, variable: Var) -> Iterator[Quotient | Remainder]:
    """The expressions that divide the variable in addresses and conditions."""
    for node in expr.walk(value):
        found = node.index if isinstance(node, Load) else (node.index,) if isinstance(node, IndexValue) else ()
        for index in found:
            if divides(index, variable):
                yield from (a for a in index.atoms() if isinstance(a, (Quotient, Remainder)))


def _divisor(division: Quotient | Remainder, variable: Var) -> Index | None:
    """The size by which the variable is divided, if the loop and the terms added to the variable are whole
    multiples of it."""
    size, rest = division.b, division.a - variable
    if variable in rest.variables() or not size.is_polynomial or size.variables():
        return None
    if variable.extent == size:
        return None
    return size if (variable.extent % size).constant == 0 and (rest % size).constant == 0 else None


# -- joined ----------------------------------------------------------------------------------------
def collapse(
    space: tuple[Var, ...],
    value: Expr,
    store: MultiIndex,
    shapes: Mapping[str, MultiIndex],
    output: str,
    is_stored_rarely: bool = False,
) -> tuple[tuple[Var, ...], Expr, MultiIndex]:
    """Join adjacent loops if no address then needs a division, but that of the result if it ``is_stored_rarely``; drop
    loops of extent 1, and reductions of one value."""
    value = expr.transform(value, of_one)
    ones = {v: Index.of(0) for v in space if v.extent.constant == 1}
    if ones:
        value, store = expr.decided(expr.substitute_index(value, ones)), tuple(i.substitute(ones) for i in store)
        space = tuple(v for v in space if v not in ones)
    position = len(space) - 2
    while position >= 0:
        first, second = space[position], space[position + 1]
        joined = expr.fresh_var(first.extent * second.extent, "v")
        env = {first: Index.of(joined) // second.extent, second: Index.of(joined) % second.extent}
        if _separable(value, first, second):
            new_value = expr.substitute_index(value, env)
            new_store = tuple(i.substitute(env) for i in store)
            is_kept = is_stored_rarely or not divides(flatten(new_store, shapes[output]), joined)
            if is_kept and is_flat(new_value, joined, shapes):
                space = (*space[:position], joined, *space[position + 2 :])
                value, store = new_value, new_store
        position -= 1
    return space, value, store


def turned(
    space: tuple[Var, ...], value: Expr, store: MultiIndex, shapes: Mapping[str, MultiIndex], output: str
) -> tuple[tuple[Var, ...], Expr, MultiIndex]:
    """Loops over reductions in the order in which what they combine lies in memory, where the results lie in another
    one, as of an array whose axes were permuted before. Other loops as they are."""
    reductions = [n for n in expr.walk(value) if isinstance(n, Reduction)]
    if not reductions or any(COMBINATIONS[n.kind].positions for n in reductions):
        return space, value, store
    given, space, value, store = (space, value, store), *spread(space, value, store, 2)
    loads = [n for n in expr.walk(value) if isinstance(n, Load)]
    backwards = read_backwards(space, loads, lambda n: flatten(n.index, shapes[n.buffer]))
    if backwards:
        value, store = expr.substitute_index(value, backwards), tuple(i.substitute(backwards) for i in store)
    reduced = {v for n in expr.walk(value) if isinstance(n, Reduction) for v in n.variables}
    orders: set[tuple[Var, ...]] = set()
    for load in (n for n in expr.walk(value) if isinstance(n, Load) and n.index):
        place = flatten(load.index, shapes[load.buffer])
        along = place.variables() & reduced
        if load.guard is not None or not along or any(place.coefficient(v) in (None, 1) for v in along):
            return given
        orders.add(_in_memory_order(space, place))
    if len(orders) != 1 or () in orders or (orders == {space} and not backwards):
        return given
    return collapse(orders.pop(), value, store, shapes, output, is_stored_rarely=True)


def read_backwards(variables: Iterable[Var], loads: Sequence[Load], place: Callable[[Load], Index]) -> dict[Var, Index]:
    """For those of the loops along which all is read backwards, the place in them from the other end."""
    found: dict[Var, Index] = {}
    for variable in variables:
        steps = [place(n).coefficient(variable) for n in loads if n.index and variable in expr.free_variables(n)]
        if steps and all(step is not None and step < 0 for step in steps):
            found[variable] = variable.extent - 1 - variable
    return found


def _in_memory_order(space: Sequence[Var], place: Index) -> tuple[Var, ...]:
    """Loops in the order of their steps through memory, the largest first; none if that is not known."""
    found: list[tuple[Index, Var]] = []
    for variable in space:
        step = place.coefficient(variable)
        if step is None or not Index.of(1) <= step:
            return ()
        at = next((n for n, (other, _) in enumerate(found) if other <= step), len(found))
        if any(not step <= other for other, _ in found[:at]):
            return ()
        found.insert(at, (step, variable))
    return tuple(variable for _, variable in found)


def of_one(node: Expr) -> Expr:
    """The only value that a reduction has, in its place, or the number that all have if any number of them is that
    number; other expressions as they are."""
    if not isinstance(node, Reduction) or COMBINATIONS[node.kind].positions:
        return node
    extents = [v.extent.constant or 0 for v in node.variables]
    is_number = isinstance(node.body, Const) and (
        (expr.chooses(node.kind) and all(extents)) or (node.kind == "sum" and node.body.value == 0)
    )
    if any(e != 1 for e in extents) and not is_number:
        return node
    return expr.cast(expr.substitute_index(node.body, {v: Index.of(0) for v in node.variables}), node.dtype)


def _separable(value: Expr, first: Var, second: Var) -> bool:
    """True if no reduction depends on only one of the two loops (it would move inside the joined loop)."""
    for node in expr.walk(value):
        if isinstance(node, Reduction):
            free = expr.free_variables(node)
            if (first in free) != (second in free):
                return False
    return True


def divides(index: Index, variable: Var) -> bool:
    """True if the variable occurs in a division or remainder."""
    return any(
        isinstance(a, (Quotient, Remainder)) and variable in (a.a.variables() | a.b.variables()) for a in index.atoms()
    )


def is_flat(value: Expr, variable: Var, shapes: Mapping[str, MultiIndex]) -> bool:
    """True if no address in the expression divides the variable."""
    for node in expr.walk(value):
        if isinstance(node, Load) and divides(flatten(node.index, shapes[node.buffer]), variable):
            return False
        if isinstance(node, IndexValue) and divides(node.index, variable):
            return False
        if isinstance(node, Reduction) and any(
            divides(v.extent, variable) or v.extent.variables() for v in node.variables
        ):
            return False
    return True


# -- cut -------------------------------------------------------------------------------------------
#: Most loops that one is cut into.
MOST_PARTS = 64
#: Elements from which on a value that is computed from them, but a number elsewhere, is worth a loop of its own.
MANY_READS = 4
#: Elements of a row from which on one that meets a diagonal is divided there.
LONG_ROW = 256


@dataclass(frozen=True)
class Cut:
    """A loop whose variable's range consists of parts with values of their own, as for a value joined from
    several: a new part begins at each of ``bounds``, which may vary with the variables of the loops ``around``."""

    variable: Var
    bounds: tuple[Index, ...]
    around: frozenset[Var] = frozenset()
    are_inside: bool = False
    """Whether the bounds are known to be inside of the range."""

    def named(self) -> tuple[Cut, list[Stmt], dict[Any, Index]]:
        """The same cut with names for values computed from sizes in the bounds; the statements that compute
        these, and the replacements."""
        env: dict[Any, Index] = {}
        statements: list[Stmt] = []
        for atom in dict.fromkeys(a for b in self.bounds for m in b.terms for a in m):
            if isinstance(atom, (Quotient, Remainder, Extremum)):
                local = fresh_local(dtypes.int64, "_t")
                statements.append(Let(local.name, expr.index_value(Index({(atom,): 1}))))
                env[atom] = Index.of(Value(local))
        return replace(self, bounds=tuple(b.substitute(env) for b in self.bounds)), statements, env

    @property
    def starts(self) -> list[Index]:
        """Where the parts begin, and where the last one ends."""
        extent = self.variable.extent
        if self.are_inside:
            return [Index.of(0), *self.bounds, extent]
        inside = (extremum("max", extremum("min", b, extent), 0) for b in self.bounds)
        return [Index.of(0), *inside, extent]

    def parts(self, starts: Sequence[Index], value: Expr, store: MultiIndex) -> Iterator[tuple[Var, Expr, MultiIndex]]:
        """For each part a variable, and what its iterations store, and where."""
        for number, (start, stop) in enumerate(itertools.pairwise(starts)):
            if start == stop:
                continue
            within = expr.fresh_var(stop - start, "v")
            env = {self.variable: start + within}
            known = expr.transform(value, functools.partial(self._known, number))
            moved = expr.decided(expr.substitute_index(known, env))
            yield within, moved, tuple(i.substitute(env) for i in store)

    def _known(self, part: int, node: Expr) -> Expr:
        """A condition as TRUE or FALSE if it is the same for all of a part."""
        found = _changes(node, self.variable, self.around)
        if found is None or not set(found[0]) <= set(self.bounds):
            return node
        bounds, holds_behind = found
        behind = sum(part > self.bounds.index(bound) for bound in bounds)
        return expr.TRUE if behind == holds_behind else expr.FALSE


def cut(space: Sequence[Var], value: Expr, at_guards: bool = False) -> Cut | None:
    """The loop to divide into parts, so that these need not test their position; None if there is none. With
    ``at_guards``, it is also divided where what is read begins and ends."""
    choices = [c for n in expr.walk(value) for c in _asked(n)]
    if at_guards:
        guards = [n.guard for n in expr.walk(value) if isinstance(n, Load) and n.guard is not None]
        choices += [c for guard in guards for c in expr.conjuncts(guard)]
    for variable in space:
        changes = [found for c in choices if (found := _changes(c, variable)) is not None]
        places = dict.fromkeys(b for bounds, _ in changes if not expr.run_time_values(bounds) for b in bounds)
        ascending = _sorted(places) if 0 < len(places) < MOST_PARTS else None
        if ascending is not None:
            return Cut(variable, ascending)
    return None


def cut_rows(space: Sequence[Var], value: Expr) -> Cut | None:
    """The loop over the elements of a row to divide where it meets a diagonal, on one side of which there is a number:
    that side then reads nothing. None if there is none, or if rows are short."""
    condition = value.guard if isinstance(value, Load) else None
    if isinstance(value, Apply) and value.function == "where" and any(isinstance(s, Const) for s in value.args[1:]):
        condition = value.args[0]
    if condition is None or len(space) < 2 or any(isinstance(n, Reduction) for n in expr.walk(value)):
        return None
    *outer, along = space
    around, length = frozenset(outer), along.extent.constant
    changes = _changes(condition, along, around)
    if changes is None or (length is not None and length < LONG_ROW):
        return None
    bounds, _ = changes
    is_diagonal = any(b.variables() & around for b in bounds) and not expr.run_time_values(bounds)
    return Cut(along, bounds, around) if is_diagonal else None


def _asked(node: Expr) -> list[Expr]:
    """The comparisons of a ``where`` that depend only on the position, if both its values are more than a number, or
    one, at a single place or computed from many elements."""
    if not isinstance(node, Apply) or node.function != "where":
        return []
    condition, *sides = node.args
    found = expr.conjuncts(condition)
    places = [_compared(c) for c in found]
    numbers = sum(isinstance(s, Const) for s in sides)
    is_single = any(p is not None and p[1] for p in places)
    is_worthwhile = not numbers or (numbers == 1 and (is_single or _reads_many(sides)))
    return found if is_worthwhile and None not in places else []


def _reads_many(values: Sequence[Expr]) -> bool:
    """Whether values are computed from so many elements that each would test its position in vain."""
    loads = (n for value in values for n in expr.walk(value, (Reduction,)) if isinstance(n, Load))
    return len(list(itertools.islice(loads, MANY_READS))) == MANY_READS


def _compared(node: Expr) -> tuple[Index, bool] | None:
    """For a comparison of two indices: the index that is < 0 or == 0 if it holds, and whether it is == 0."""
    least, difference = expr.not_negative(node), expr.is_zero_where_equal(node)
    if least is not None:
        return -least - 1, False
    return None if difference is None else (difference, True)


def _changes(node: Expr, variable: Var, around: frozenset[Var] = frozenset()) -> tuple[tuple[Index, ...], int] | None:
    """The places, in ascending order, at which a comparison of a loop variable with sizes, numbers of outer loops and
    the variables ``around`` changes its answer, and after how many of them it holds; None for other expressions."""
    compared = _compared(node)
    if compared is None:
        return None
    difference, is_equality = compared
    step = difference.coefficient(variable)
    own = {v for v in difference.variables() if not isinstance(v, Given)} - around
    if own != {variable} or step is None or step.constant not in (1, -1):
        return None
    rest, rises = difference.substitute({variable: Index.of(0)}), step == 1
    if is_equality:
        place = -rest if rises else rest
        return (place, place + 1), 1
    return ((-rest,), 0) if rises else ((rest + 1,), 1)


def _sorted(bounds: Iterable[Index]) -> tuple[Index, ...] | None:
    """The bounds in ascending order; None if the order is not known."""
    made: list[Index] = []
    for bound in bounds:
        place = next((n for n, other in enumerate(made) if bound <= other), len(made))
        made.insert(place, bound)
    return tuple(made) if all(a <= b for a, b in itertools.pairwise(made)) else None


# -- fused -----------------------------------------------------------------------------------------
#: The functions of which extremes are made.
_EXTREMES = tuple(combination.function for kind, combination in COMBINATIONS.items() if expr.chooses(kind))


def fused(first: Sequence[Stmt], second: Sequence[Stmt]) -> list[Stmt] | None:
    """Statements that compute two things from the same elements in loops that are alike, as loops that compute both
    (horizontal fusion). None if the loops differ, or the second ones need what the first ones compute."""
    made = {s.name for s in statements(first) if isinstance(s, (Let, Alloc))}
    parts = [[n for s in statements(body) for e in expressions(s) for n in expr.walk(e)] for body in (first, second)]
    used = {n.name for n in parts[1] if isinstance(n, Local)}
    ours, theirs = ({n.buffer for n in part if isinstance(n, Load)} for part in parts)
    return None if made & used or not ours & theirs else _fused(first, second, {}, {})


def _fused(
    first: Sequence[Stmt], second: Sequence[Stmt], env: dict[Var, Index], same: dict[str, str]
) -> list[Stmt] | None:
    """Both in turns, with the second ones' loop variables replaced; ``same`` are names in the second ones for what has
    another name in the first."""
    ours, theirs = _between_blocks(first), _between_blocks(second)
    if len(ours) != len(theirs):
        return None
    sizes: dict[str, str] = {}  # names in the first for numbers computed so far

    def text(part: Index | Expr) -> str:
        return re.sub(r"\w+", lambda name: same.get(name[0], name[0]), str(part))

    found: list[Stmt] = []
    for (before, a), (others, b) in zip(ours, theirs, strict=True):
        found += before
        sizes |= {str(s.value.index): s.name for s in before if isinstance(s, Let) and isinstance(s.value, IndexValue)}
        for statement in others:
            if isinstance(statement, Let) and isinstance(statement.value, IndexValue):
                known = sizes.get(text(statement.value.index))
                if known is not None:
                    same[statement.name] = known
                    continue
            found.append(_Renamer(same).statement(statement, env))
        if isinstance(a, For) and isinstance(b, For):
            if (str(a.var.extent), a.kind, a.step) != (text(b.var.extent), b.kind, b.step):
                return None
            if a.kind == "lanes" and _finds_extremes(a) and _finds_extremes(b):
                found += [a, _Renamer(same).statement(b, env)]
                continue
            inside, names = {**env, b.var: Index.of(a.var)}, {**same, b.var.name: a.var.name}
            body = _fused(a.body, b.body, inside, names)
            if body is None:
                return None
            found.append(For(a.var, tuple(body), a.kind, a.step))
        elif isinstance(a, If) and isinstance(b, If):
            body = _fused(a.body, b.body, env, dict(same)) if str(a.condition) == text(b.condition) else None
            if body is None:
                return None
            found.append(If(a.condition, tuple(body)))
        elif a is not b:
            return None
    return found


def _finds_extremes(loop: For) -> bool:
    """Whether a loop compares numbers for the largest or smallest of each lane. GCC makes slower code of two such
    loops in one, because they share questions for NaN (numpy.ptp of 600,000 floats: 123 and 53 us)."""
    parts = (n for s in loop.body for e in expressions(s) for n in expr.walk(e) if isinstance(n, Apply))
    return any(n.function in _EXTREMES for n in parts)


def _between_blocks(body: Sequence[Stmt]) -> list[tuple[list[Stmt], For | If | None]]:
    """Each loop and condition with the statements before it; at the end what is behind all."""
    found: list[tuple[list[Stmt], For | If | None]] = [([], None)]
    for statement in body:
        if isinstance(statement, (For, If)):
            found[-1] = found[-1][0], statement
            found.append(([], None))
        else:
            found[-1][0].append(statement)
    return found


# -- named -----------------------------------------------------------------------------------------
_LOOPS = ("i", "j", "k", "l", "m", "n", "p", "q", "u", "v", "w")
_REDUCED = ("r", "s", "t", "r1", "s1", "t1")
_STEMS = {
    "_lanes": "lanes",
    "_columns": "columns",
    "_lane": "lane",
    "_row": "row",
    "_block": "block",
    "_width": "width",
    "_part": "part",
    "_count": "count",
    "_rest": "rest",
    "_best": "best",
    "_better": "better",
    "_limit": "limit",
    "_tile": "tile",
    "_where": "where",
    "_table": "of_place",
    "_wide": "wide",
    "_left": "left",
    "_others": "others",
    "_totals": "totals",
    "_parts": "parts",
    "_whole": "whole",
    "_joined": "joined",
    "_together": "together",
    "_size": "size",
    "_a": "total",
    "_t": "t",
}


def rename(body: tuple[Stmt, ...], taken: set[str], mark: Callable[[str], str] = str) -> tuple[Stmt, ...]:
    """Give all variables and locals their usual names, except those in ``taken`` (buffers and dims); a loop of
    one iteration is replaced by its body. ``mark`` converts a new name
    (:mod:`fxlite.codegen.kernel.names`)."""
    body = _Renamer({}).body(body, {})
    names: dict[str, str] = {}
    _assign(body, {spelled(name) for name in taken}, names, mark)
    return _Renamer(names).body(body, {})


def substituted(body: Sequence[Stmt], env: dict[Var, Index]) -> tuple[Stmt, ...]:
    """Statements with variables of loops around them replaced."""
    return _Renamer({}).body(body, env)


def _assign(body: Sequence[Stmt], used: set[str], names: dict[str, str], mark: Callable[[str], str]) -> None:
    """Choose names in one scope and those inside it; a loop's name is free again after the loop."""
    for s in body:
        if isinstance(s, For):
            name = _pick(s.var.name, used)
            names[s.var.name] = mark(name)
            _assign(s.body, used | {name}, names, mark)
        elif isinstance(s, If):
            _assign(s.body, set(used), names, mark)
        elif isinstance(s, (Let, Alloc)):
            wish = s.value.label if isinstance(s, Let) else ""
            name = names.get(s.name, "")  # the same value may be computed in several loops
            if not name or spelled(name) in used:
                known = bool(wish) and spelled(wish) not in used
                name = names[s.name] = wish if known else mark(_pick(s.name, used))
            used.add(spelled(name))


def _pick(old: str, used: set[str]) -> str:
    for stem, new in _STEMS.items():
        if old.startswith(stem) and old[len(stem) :].isdigit():
            name = _first(_numbered(new, from_zero=stem == "_t"), used)
            break
    else:
        name = _first(iter(_REDUCED if old.startswith("_r") else _LOOPS), used)
    return name


def free_name(stem: str, used: set[str]) -> str:
    """The stem, or the stem and a number if it is used."""
    return _first(_numbered(stem, from_zero=False), used)


def _numbered(stem: str, from_zero: bool) -> Iterator[str]:
    if not from_zero:
        yield stem
    number = 0 if from_zero else 1
    while True:
        yield f"{stem}{number}"
        number += 1


def _first(candidates: Iterator[str], used: set[str]) -> str:
    for name in candidates:
        if name not in used:
            return name
    return _first(_numbered("i", from_zero=False), used)


class _Renamer:
    """Statements with new names and without loops of one iteration. If two loops have the same variable, the
    second gets a variable of its own."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names
        self.bound: set[str] = set()

    def body(self, statements: Sequence[Stmt], env: dict[Var, Index]) -> tuple[Stmt, ...]:
        made: list[Stmt] = []
        for s in statements:
            if isinstance(s, For) and (s.var.extent.constant or s.step + 1) <= s.step:
                made += self.body(s.body, {**env, s.var: Index.of(0)})
            else:
                made.append(self.statement(s, env))
        return tuple(made)

    def statement(self, s: Stmt, env: dict[Var, Index]) -> Stmt:
        if isinstance(s, For):
            name = self.name(s.var.name) if self.names else self._own(s.var.name)
            var = Var(name, self.index(s.var.extent, env))
            inner = env if var == s.var and var not in env else {**env, s.var: Index.of(var)}
            return For(var, self.body(s.body, inner), s.kind, s.step)
        if isinstance(s, If):
            return If(self.value(s.condition, env), self.body(s.body, env))
        if isinstance(s, Let):
            return Let(self.name(s.name), self.value(s.value, env))
        if isinstance(s, Alloc):
            used = None if s.used is None else self.index(s.used, env)
            return Alloc(self.name(s.name), s.dtype, self.value(s.init, env), s.size, used)
        if isinstance(s, Assign):
            target = self.value(s.target, env)
            assert isinstance(target, Local)
            return Assign(target, self.value(s.value, env))
        if isinstance(s, Store):
            index = tuple(self.index(i, env) for i in s.index)
            return Store(s.buffer, index, self.value(s.value, env), s.accumulate)
        assert isinstance(s, Comment)
        return s

    def name(self, old: str) -> str:
        return self.names.get(old, old)

    def _own(self, name: str) -> str:
        """The variable's name, or another one of its kind if a loop already uses it."""
        if name in self.bound:
            name = expr.fresh_var(0, name.strip("_0123456789")).name
        self.bound.add(name)
        return name

    def index(self, i: Index, env: dict[Var, Index]) -> Index:
        probe = expr.Load(expr.TRUE.dtype, "", (i,))
        moved = self.value(probe, env)
        assert isinstance(moved, expr.Load)
        return moved.index[0]

    def value(self, e: Expr, env: dict[Var, Index]) -> Expr:
        renamed = expr.transform(e, self._local) if self.names else e
        return expr.substitute_index(renamed, env) if env else renamed

    def _local(self, node: Expr) -> Expr:
        if isinstance(node, Local):
            return Local(node.dtype, self.name(node.name), node.index)
        return node
