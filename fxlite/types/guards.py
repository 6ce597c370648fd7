"""Guards: conditions on named dims that a call must fulfil, and the part of a graph that holds them.

In: checks in a traced program on its own sizes (``assert x.shape[1] <= self.max_len``), and the facts
declared with ``fx.dims``. Out: :class:`Guard` records, which are decided while tracing if possible;
otherwise the graph keeps them, and every call checks them, whatever the back end.
:class:`DimConditions` is the part of a graph that holds them and ensures that there is one symbol for
each name.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fxlite.base.errors import ArgumentError, ParseError, ShapeError
from fxlite.base.location import Location
from fxlite.base.on_demand import sympy
from fxlite.base.outside_text import bounded, syntax_tree
from fxlite.types import shapes
from fxlite.types.facts import Facts
from fxlite.types.shapes import Dim, symbols
from fxlite.types.tensor_type import TensorType

#: Relations and their negations.
OPPOSITE = {"<=": ">", ">": "<=", "<": ">=", ">=": "<", "==": "!=", "!=": "=="}

if TYPE_CHECKING:
    from fxlite.graph.node import Node
    from fxlite.types.symbols import FactSymbol


@dataclass(frozen=True)
class Guard:
    """The condition ``left relation right``. ``loc`` is the place of the check in the program, with its
    text as the expression; None for a fact of a declared dim. ``==`` ignores ``loc``."""

    left: Dim
    relation: str
    right: Dim
    loc: Location | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{_side(self.left)} {self.relation} {_side(self.right)}"

    @property
    def names(self) -> frozenset[str]:
        """The named dims in the condition."""
        return shapes.names((self.left, self.right))

    @property
    def reason(self) -> str:
        """A text for messages: ``T <= 512 is required by model.py:12: assert x.shape[1] <= self.max_len``."""
        if self.loc is None:
            return f"{self} is required (declared by fx.dims)"
        said = f": {self.loc.expression}" if self.loc.expression else ""
        return f"{self} is required by {self.loc.short}{said}"

    def substitute(self, env: Mapping[str, Dim]) -> Guard:
        """The guard with named dims replaced by values or other dims."""
        left, right = shapes.substitute((self.left, self.right), env)
        return Guard(left, self.relation, right, self.loc)

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether it holds for these sizes, which must include all its dims."""
        names, function = _function(self)
        return bool(function(*[sizes[name] for name in names]))


def _side(dim: Dim) -> str:
    """A dim as text, with ``T % 8`` for sympy's ``Mod(T, 8)``."""
    if isinstance(dim, sympy.Mod):
        value, by = (f"({a})" if a.is_Add or a.is_Mul else str(a) for a in dim.args)
        return f"{value} % {by}"
    return shapes.to_text(dim)


@functools.lru_cache(maxsize=1024)
def _function(guard: Guard) -> tuple[list[str], Any]:
    """The names of the dims, and a function of their values, compiled from text that contains nothing but
    dims."""
    names = sorted(guard.names)
    meaning = {"Min": min, "Max": max, "Mod": lambda a, b: a % b, "__builtins__": {}}
    return names, eval(f"lambda {', '.join(names)}: {guard}", meaning)


def of_facts(dim: FactSymbol) -> list[Guard]:
    """The facts of a named dim as guards."""
    plain, facts = symbols.symbol(dim.name), dim.facts
    found = []
    if facts.minimum > 0:
        found.append(Guard(plain, ">=", facts.minimum))
    if facts.maximum is not None:
        found.append(Guard(plain, "<=", facts.maximum))
    if facts.multiple_of > 1:
        found.append(Guard(sympy.Mod(plain, facts.multiple_of), "==", 0))
    return found


def remaining(guards: Iterable[Guard], env: Mapping[str, Dim], title: str) -> tuple[Guard, ...]:
    """The guards after dims are replaced as in ``env``, without those that always hold then. Raises
    ShapeError for one that cannot hold, with ``title`` before the reason."""
    found: dict[Guard, None] = {}
    for guard in guards:
        new = guard.substitute(env)
        answer = shapes.decide(new.left, new.relation, new.right)
        if answer is False:
            given = ", ".join(f"{n}={env[n]}" for n in sorted(guard.names) if n in env)
            raise ShapeError(f"{title}: {guard.reason}" + (f"; got {given}" if given else ""))
        if answer is None:
            found.setdefault(new)
    return tuple(found)


def check(guards: Iterable[Guard], sizes: Mapping[str, int], title: str) -> None:
    """Raise ShapeError for a guard that these sizes violate. Guards on dims without a size are skipped."""
    for guard in guards:
        if guard.names <= sizes.keys() and not guard.holds(sizes):
            given = ", ".join(f"{n}={sizes[n]}" for n in sorted(guard.names))
            raise ShapeError(f"{title}: {guard.reason}; got {given}")


def fitting_sizes(
    dims: Mapping[str, FactSymbol], guards: Iterable[Guard], wished: Mapping[str, int]
) -> dict[str, int] | None:
    """Sizes near the requested ones that fulfil the facts of ``dims`` and the guards; None if a search
    that changes one dim at a time finds none."""
    sizes = {n: dims[n].facts.nearest(v) if n in dims else v for n, v in wished.items()}
    done: list[Guard] = []
    for guard in guards:
        if not guard.names <= sizes.keys():
            continue
        done.append(guard)
        if not guard.holds(sizes):
            near = (s for name in sorted(guard.names) for s in _changed(sizes, name, dims))
            found = next((s for s in near if all(g.holds(s) for g in done)), None)
            if found is None:
                return None
            sizes = found
    return sizes


#: The largest distance from a desired size at which another one is looked for.
_REACH = 1024


def _changed(sizes: dict[str, int], name: str, dims: Mapping[str, FactSymbol]) -> Iterator[dict[str, int]]:
    """The sizes with one dim changed, the smallest change first."""
    for distance in range(1, _REACH):
        for value in (sizes[name] + distance, sizes[name] - distance):
            allowed = name not in dims or dims[name].facts.broken_by(value) is None
            if value >= 0 and allowed:
                yield {**sizes, name: value}


# -- text ------------------------------------------------------------------------------------------
_SYMBOLS: dict[type[ast.cmpop], str] = {
    ast.LtE: "<=",
    ast.Lt: "<",
    ast.GtE: ">=",
    ast.Gt: ">",
    ast.Eq: "==",
    ast.NotEq: "!=",
}


def from_ast(test: ast.expr, text: str, loc: Location | None = None) -> list[Guard]:
    """The guards in an expression such as ``1 <= T <= 512 and T % 8 == 0``. Raises ParseError."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return [guard for value in test.values for guard in from_ast(value, text, loc)]
    if not isinstance(test, ast.Compare) or any(type(o) not in _SYMBOLS for o in test.ops):
        raise ParseError(f"{text[:200]!r} is not a condition on dims; write T <= 512 or T % 8 == 0")
    sides = [shapes.from_ast(side, text) for side in (test.left, *test.comparators)]
    relations = [_SYMBOLS[type(o)] for o in test.ops]
    return [Guard(a, r, b, loc) for a, r, b in zip(sides, relations, sides[1:])]


@bounded(ParseError, "a condition on dims")
def parse(text: str, loc: Location | None = None) -> Guard:
    """The guard that prints as ``text``. Raises ParseError."""
    try:
        (found,) = from_ast(syntax_tree(text).body, text, loc)
    except (SyntaxError, ValueError) as error:
        raise ParseError(f"{text[:200]!r} is not a condition on dims") from error
    return found


def facts_text(dim: FactSymbol) -> str:
    """The facts of a named dim as one condition: ``1 <= T <= 512 and T % 8 == 0``."""
    facts = dim.facts
    parts = []
    if facts.maximum is not None:
        low = f"{facts.minimum} <= " if facts.minimum else ""
        parts.append(f"{low}{dim} <= {facts.maximum}")
    elif facts.minimum:
        parts.append(f"{dim} >= {facts.minimum}")
    if facts.multiple_of > 1:
        parts.append(f"{dim} % {facts.multiple_of} == 0")
    return " and ".join(parts)


def facts_from(guards: Iterable[Guard], text: str) -> FactSymbol:
    """The named dim whose :func:`facts_text` stands for these guards. Raises ParseError."""
    facts: dict[str, int] = {}
    names: set[str] = set()
    for guard in guards:
        left, relation, right = guard.left, guard.relation, guard.right
        if type(left) is int:
            left, relation, right = right, shapes.TURNED[relation], left
        names |= guard.names
        if left.is_Symbol and relation in (">=", "<=") and type(right) is int:
            facts["minimum" if relation == ">=" else "maximum"] = right
        elif isinstance(left, sympy.Mod) and left.args[0].is_Symbol and relation == "==":
            facts["multiple_of"] = int(left.args[1])
        else:
            raise ParseError(f"{text!r} does not say what fx.dims can declare")
    if len(names) != 1:
        raise ParseError(f"{text!r} is not about one named dim")
    made: FactSymbol = symbols.symbol(names.pop(), Facts(**facts))
    return made


# -- the conditions of a graph ---------------------------------------------------------------------
class DimConditions:
    """The conditions on the named dims of a graph. ``record`` receives the inverse of each edit of them."""

    def __init__(self, record: Callable[[Any], None]) -> None:
        #: Named dims with facts, by name: the graph has one symbol for each name.
        self.declared: dict[str, FactSymbol] = {}
        #: Named dims that :meth:`GraphModule.specialize` replaced, for messages.
        self.specialized: Mapping[str, Any] = {}
        self._guards: tuple[Guard, ...] = ()
        self._record = record

    def become(self, other: DimConditions) -> None:
        """Take over all conditions of another graph in place of these, without a record for undo."""
        self.declared, self.specialized = dict(other.declared), other.specialized
        self._guards = other._guards

    @property
    def guards(self) -> tuple[Guard, ...]:
        """The conditions that a call must fulfil in addition to the facts of ``declared``."""
        return self._guards

    @guards.setter
    def guards(self, guards: Iterable[Guard]) -> None:
        own = [g.substitute(self.declared) if self.declared else g for g in guards]
        self._record((DimConditions._restore_guards, self, self._guards))
        self._guards = tuple(dict.fromkeys(own))

    def _restore_guards(self, guards: tuple[Guard, ...]) -> None:
        self.guards = guards

    def all(self) -> list[Guard]:
        """All conditions on the named dims: declared facts and guards."""
        facts = [g for dim in self.declared.values() for g in of_facts(dim)]
        return [*facts, *self._guards]

    def take(self, other: DimConditions, names: frozenset[str] | None) -> None:
        """Add the conditions of another graph (only those on ``names`` if given)."""
        chosen = {n: d for n, d in other.declared.items() if names is None or n in names}
        self.declared |= chosen
        self.specialized = other.specialized
        if other._guards:
            kept = (g for g in other._guards if names is None or g.names <= names)
            self.guards = (*self._guards, *kept)

    def with_own_dims(self, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Attributes of a call with the graph's own symbols in place of named dims."""
        own = self.declared
        if shapes.names(list(kwargs.values())).isdisjoint(own):
            return kwargs
        return {k: shapes.substitute(v, own) for k, v in kwargs.items()}

    def declare(self, target: str, type: TensorType, inputs: Iterable[Node]) -> TensorType:
        """Add the named dims of a new input, where ``inputs`` are the others; returns its type with the
        graph's symbols. Raises ArgumentError for a name that was declared with other facts."""
        for dim in symbols.ordered_facts(type.shape):
            name = dim.name
            known = self.declared.get(name)
            if known == dim:
                continue
            for other in inputs:
                shape = other.type.shape if isinstance(other.type, TensorType) else ()
                if name in shapes.names(shape):
                    said = f"it is {known.facts}" if known is not None else "nothing is known of it"
                    raise ArgumentError(
                        f"the named dim {name} is declared twice: in the input {other.target} "
                        f"{said}, in {target} it is {dim.facts}; use one fx.dims for both"
                    )
            self.declared[name] = dim
        if self.declared and not shapes.names(type.shape).isdisjoint(self.declared):
            return type.substitute(self.declared)
        return type
