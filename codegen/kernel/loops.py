"""Loops of a kernel made readable: adjacent ones joined, one with several cases cut into parts, and
names for what is in them.

In: loop variables, the value of an element, and where it is stored; or statements with the unique
names that lowering made. Out: the same with fewer loops, where every address stays free of
divisions; the same statements with loop variables ``i j k``, reduced ones ``r s``, values ``t0
t1``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from fxlite.codegen.kernel.kernel_ir import Alloc, Assign, Comment, For, If, Let, Stmt, Store
from fxlite.codegen.kernel.names import spelled
from fxlite.scalar import expr
from fxlite.scalar.expr import (
    Apply,
    Const,
    Expr,
    IndexValue,
    Load,
    Local,
    MultiIndex,
    Reduction,
)
from fxlite.scalar.index import Index, Quotient, Remainder, Var, flatten


# -- joined ----------------------------------------------------------------------------------------
def collapse(
    space: tuple[Var, ...],
    value: Expr,
    store: MultiIndex,
    shapes: Mapping[str, MultiIndex],
    output: str,
) -> tuple[tuple[Var, ...], Expr, MultiIndex]:
    """Join adjacent loops where every address stays free of divisions; drop loops of extent 1."""
    ones = {v: Index.of(0) for v in space if v.extent.constant == 1}
    if ones:
        value, store = expr.substitute_index(value, ones), tuple(i.substitute(ones) for i in store)
        space = tuple(v for v in space if v not in ones)
    position = len(space) - 2
    while position >= 0:
        first, second = space[position], space[position + 1]
        joined = expr.fresh_var(first.extent * second.extent, "v")
        env = {first: Index.of(joined) // second.extent, second: Index.of(joined) % second.extent}
        if _separable(value, first, second):
            new_value = expr.substitute_index(value, env)
            new_store = tuple(i.substitute(env) for i in store)
            if is_flat(new_value, joined, shapes) and not divides(
                flatten(new_store, shapes[output]), joined
            ):
                space = (*space[:position], joined, *space[position + 2 :])
                value, store = new_value, new_store
        position -= 1
    return space, value, store


def _separable(value: Expr, first: Var, second: Var) -> bool:
    """No reduction depends on only one of the two loops (it would move inside the joined one)."""
    for node in expr.walk(value):
        if isinstance(node, Reduction):
            free = expr.free_variables(node)
            if (first in free) != (second in free):
                return False
    return True


def divides(index: Index, variable: Var) -> bool:
    """True if the variable stands under a division or remainder."""
    return any(
        isinstance(a, (Quotient, Remainder)) and variable in (a.a.variables() | a.b.variables())
        for a in index.atoms()
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
MOST_PARTS = 8


def cut(space: Sequence[Var], value: Expr) -> tuple[Var, list[Index]] | None:
    """A loop variable whose range falls into parts with values of their own, as that of what is
    joined from several, and where each part begins, and the last one ends."""
    choices = [n for n in expr.walk(value, (Reduction,)) if _is_choice(n)]
    for choice in reversed(choices):
        variable = _bounded(choice, space)
        if variable is None:
            continue
        same = [c for c in choices if _bounded(c, space) is variable]
        starts = [Index.of(0), *dict.fromkeys(_bound(c, variable) for c in same)]
        starts = [*_sorted(starts), variable.extent]
        if 2 < len(starts) <= MOST_PARTS + 1 and all(a <= b for a, b in itertools.pairwise(starts)):
            return variable, starts
    return None


def part(
    variable: Var, start: Index, stop: Index, value: Expr, store: MultiIndex
) -> tuple[Var, Expr, MultiIndex]:
    """A variable for that part of a loop's range, and what its iterations store where."""
    within = expr.fresh_var(stop - start, "v")
    env = {variable: start + within}
    moved = expr.decided(expr.substitute_index(value, env))
    return within, moved, tuple(i.substitute(env) for i in store)


def _is_choice(node: Expr) -> bool:
    """Whether a ``where`` asks for the place alone, and each side is more than a number."""
    return (
        isinstance(node, Apply) and node.function == "where"
        and isinstance(node.args[0], Apply) and node.args[0].function == "lt"
        and all(isinstance(a, (IndexValue, Const)) for a in node.args[0].args)
        and not any(isinstance(side, Const) for side in node.args[1:])
    )  # fmt: skip


def _difference(choice: Expr) -> Index:
    """What is less than 0 where the choice is its first side."""
    (a, b) = choice.children[0].children
    return expr.index_of(a) - expr.index_of(b)


def _bounded(choice: Expr, space: Sequence[Var]) -> Var | None:
    """The loop variable that a choice compares with sizes, if it compares one."""
    difference = _difference(choice)
    variables = difference.variables()
    if len(variables) != 1 or not variables <= {*space} or not difference.is_polynomial:
        return None
    (variable,) = variables
    return variable if difference.coefficient(variable) in (1, -1) else None


def _bound(choice: Expr, variable: Var) -> Index:
    """The first place of a range in which a choice changes sides."""
    difference = _difference(choice)
    rest = difference.substitute({variable: Index.of(0)})
    return -rest if difference.coefficient(variable) == 1 else rest + 1


def _sorted(starts: list[Index]) -> list[Index]:
    """In ascending order, where that is known."""
    made: list[Index] = []
    for start in starts:
        place = next((n for n, other in enumerate(made) if start <= other), len(made))
        made.insert(place, start)
    return made


# -- named -----------------------------------------------------------------------------------------
_LOOPS = ("i", "j", "k", "l", "m", "n", "p", "q", "u", "v", "w")
_REDUCED = ("r", "s", "t", "r1", "s1", "t1")
_STEMS = {"_lanes": "lanes", "_lane": "lane", "_block": "block", "_rest": "rest", "_best": "best",
          "_where": "where", "_wide": "wide", "_left": "left", "_a": "total",
          "_t": "t"}  # fmt: skip


def rename(
    body: tuple[Stmt, ...], taken: set[str], mark: Callable[[str], str] = str
) -> tuple[Stmt, ...]:
    """Rename all variables and locals, avoiding what ``taken`` (buffers and dims) are usually
    called; a loop of one trip is its body. ``mark``: what becomes of a new name
    (:mod:`fxlite.codegen.kernel.names`)."""
    body = _Renamer({}).body(body, {})
    names: dict[str, str] = {}
    _assign(body, {spelled(name) for name in taken}, names, mark)
    return _Renamer(names).body(body, {})


def _assign(
    body: Sequence[Stmt], used: set[str], names: dict[str, str], mark: Callable[[str], str]
) -> None:
    """Choose names in one scope and those inside it; a loop's name is free again behind the
    loop."""
    for s in body:
        if isinstance(s, For):
            name = _pick(s.var.name, used)
            names[s.var.name] = mark(name)
            _assign(s.body, used | {name}, names, mark)
        elif isinstance(s, If):
            _assign(s.body, set(used), names, mark)
        elif isinstance(s, (Let, Alloc)):
            wish = s.value.label if isinstance(s, Let) else ""
            known = bool(wish) and spelled(wish) not in used
            names[s.name] = name = wish if known else mark(_pick(s.name, used))
            used.add(spelled(name))


def _pick(old: str, used: set[str]) -> str:
    for stem, new in _STEMS.items():
        if old.startswith(stem) and old[len(stem) :].isdigit():
            name = _first(_numbered(new, from_zero=stem == "_t"), used)
            break
    else:
        name = _first(iter(_REDUCED if old.startswith("_r") else _LOOPS), used)
    return name


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
    """Statements with new names, where it has one, and without loops of one trip. Of two loops over
    one variable, the second gets a variable of its own."""

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
            return For(var, self.body(s.body, {**env, s.var: Index.of(var)}), s.kind, s.step)
        if isinstance(s, If):
            return If(self.value(s.condition, env), self.body(s.body, env))
        if isinstance(s, Let):
            return Let(self.name(s.name), self.value(s.value, env))
        if isinstance(s, Alloc):
            return Alloc(self.name(s.name), s.dtype, self.value(s.init, env), s.size)
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
        """The variable's name, or another of that kind where it is a loop's already."""
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
        renamed = expr.transform(e, self._local)
        return expr.substitute_index(renamed, env)

    def _local(self, node: Expr) -> Expr:
        if isinstance(node, Local):
            return Local(node.dtype, self.name(node.name), node.index)
        return node
