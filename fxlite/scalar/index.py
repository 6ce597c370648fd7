"""Index expressions: integer arithmetic on loop variables and dims, kept in one normal form.

The effect of a view on an index (``i*T + j`` divided by ``T`` is ``i``) is computed here, exactly and
fast: an :class:`Index` is a polynomial with integer coefficients over *atoms* (loop variables with
an extent, named dims, quotients, remainders, values loaded from memory), and interval bounds prove
``0 <= j < T``. sympy is used for dims only; one call of its ``simplify`` takes longer than a whole kernel
does here.

In: ints, sympy dims, other indices. Out: :class:`Index`, which prints as C, Python or text.
All named dims are non-negative integers; a loop variable lies in ``[0, extent)``.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, TypeAlias, TypeVar

import numpy as np

from fxlite.base.on_demand import is_expression, sympy
from fxlite.types import shapes
from fxlite.types.facts import NO_FACTS, Facts
from fxlite.types.shapes import symbols

_T = TypeVar("_T")


def _hashed_once(atom: type[_T]) -> type[_T]:
    """A class of atoms that keep their hash: terms are found by it, and it is made of those of whole indices."""
    computed = atom.__hash__

    def kept(self: Any) -> int:
        try:
            return self._hash  # type: ignore[no-any-return]
        except AttributeError:
            object.__setattr__(self, "_hash", computed(self))
            return self._hash  # type: ignore[no-any-return]

    atom.__hash__ = kept  # type: ignore[method-assign]
    return atom


@_hashed_once
@dataclass(frozen=True)
class Var:
    """A loop variable, ``0 <= var < extent``."""

    name: str
    extent: Index

    @functools.cached_property
    def largest(self) -> Index | None:
        """An upper bound in dims; None if there is none."""
        return (self.extent - 1).upper()


@_hashed_once
@dataclass(frozen=True)
class Given(Var):
    """The variable of a loop around the code in question, whose smallest value is ``least``."""

    least: Index


@_hashed_once
@dataclass(frozen=True)
class DimVar:
    """A named dim, ``>= 0``, with the facts about its values; proofs use its lowest value."""

    name: str
    facts: Facts = NO_FACTS


@_hashed_once
@dataclass(frozen=True)
class Quotient:
    """``floor(a / b)``, b > 0."""

    a: Index
    b: Index

    def computed(self, a: Any, b: Any) -> Any:
        """Of other indices, or of numbers."""
        return a // b


@_hashed_once
@dataclass(frozen=True)
class Remainder:
    """``a mod b`` with the sign of b, b > 0."""

    a: Index
    b: Index

    def computed(self, a: Any, b: Any) -> Any:
        """Of other indices, or of numbers."""
        return a % b


@_hashed_once
@dataclass(frozen=True)
class Extremum:
    """``min(a, b)`` or ``max(a, b)``."""

    kind: str
    a: Index
    b: Index

    def computed(self, a: Any, b: Any) -> Any:
        """Of other indices, or of numbers."""
        if isinstance(a, Index):
            return extremum(self.kind, a, b)
        return np.minimum(a, b) if self.kind == "min" else np.maximum(a, b)


@_hashed_once
@dataclass(frozen=True)
class Value:
    """An integer that is computed at run time, such as a loaded index; ``expr`` is a scalar expression."""

    expr: Any


Atom: TypeAlias = Var | DimVar | Quotient | Remainder | Extremum | Value
Monomial: TypeAlias = tuple[Atom, ...]  # sorted; () is the constant


def _order(atom: Atom) -> tuple[str, str]:
    return (type(atom).__name__, getattr(atom, "name", "") or repr(atom))


class Index:
    """An integer polynomial: ``terms`` maps a monomial (sorted tuple of atoms) to its
    coefficient."""

    __slots__ = ("_hash", "_lower", "_upper", "_values", "terms")

    def __init__(self, terms: dict[Monomial, int]) -> None:
        # the dict is kept, and nobody changes it
        self.terms: Mapping[Monomial, int] = {m: c for m, c in terms.items() if c} if 0 in terms.values() else terms
        self._hash: int | None = None
        self._values: tuple[Value, ...] | None = None
        self._lower: Index | EllipsisType | None = ...  # not computed yet
        self._upper: Index | EllipsisType | None = ...

    # -- building ---------------------------------------------------------------------------
    @staticmethod
    def of(value: Any) -> Index:
        """An Index from an int, a (sympy) dim, a Var or an Index."""
        if isinstance(value, Index):
            return value
        if type(value) is int:
            return _constant(value)
        if isinstance(value, (Var, DimVar, Value)):
            return Index({(value,): 1})
        if isinstance(value, shapes.NamedDim):
            value = value.expr
        if is_expression(value):
            return _from_sympy(value)
        return Index({(): int(value.__index__())})

    def __add__(self, other: Any) -> Index:
        if other.__class__ is not Index:
            other = Index.of(other)
        if not self.terms or not other.terms:
            return self if self.terms else other
        terms = dict(self.terms)
        for monomial, coeff in other.terms.items():
            terms[monomial] = terms.get(monomial, 0) + coeff
        return _join_division(Index(terms))

    __radd__ = __add__

    def __neg__(self) -> Index:
        return Index({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: Any) -> Index:
        if other.__class__ is not Index:
            other = Index.of(other)
        if not self.terms or not other.terms:
            return self if self.terms else -other
        terms = dict(self.terms)
        for monomial, coeff in other.terms.items():
            terms[monomial] = terms.get(monomial, 0) - coeff
        return _join_division(Index(terms))

    def __rsub__(self, other: Any) -> Index:
        return Index.of(other) + (-self)

    def __mul__(self, other: Any) -> Index:
        if other.__class__ is not Index:
            other = Index.of(other)
        if (factor := other.constant) is not None:
            return self if factor == 1 else Index({m: c * factor for m, c in self.terms.items()})
        if self.constant == 1:
            return other  # type: ignore[no-any-return]
        terms: dict[Monomial, int] = {}
        for m1, c1 in self.terms.items():
            for m2, c2 in other.terms.items():
                key = tuple(sorted((*m1, *m2), key=_order)) if m1 and m2 else m1 or m2
                terms[key] = terms.get(key, 0) + c1 * c2
        return _join_division(Index(terms))

    __rmul__ = __mul__

    def __floordiv__(self, divisor: Any) -> Index:
        by = Index.of(divisor)
        exact, rest = _split(self, by)
        if rest.constant == 0 or _lies_within(rest, by):
            return exact
        if _lies_within(rest + by, by):
            return exact + -1
        if rest.constant is not None and by.constant is not None:
            return exact + rest.constant // by.constant
        parts = _by_steps(rest, by)
        if parts is not None:
            many, _, step = parts
            return exact + many // (by // step)
        more = rest.terms.get((), 0)
        inner = (rest + -more).single_atom
        if isinstance(inner, Quotient):  # (a // b + k) // c == (a + k*b) // (b*c)
            return exact + (inner.a + inner.b * more) // (inner.b * by)
        return exact + Index({(Quotient(rest, by),): 1})

    def __mod__(self, divisor: Any) -> Index:
        by = Index.of(divisor)
        _, rest = _split(self, by)
        if rest.constant == 0 or _lies_within(rest, by):
            return rest
        if _lies_within(rest + by, by):
            return rest + by
        if rest.constant is not None and by.constant is not None:
            return Index.of(rest.constant % by.constant)
        parts = _by_steps(rest, by)
        if parts is not None:
            many, few, step = parts
            return many % (by // step) * step + few
        return Index({(Remainder(rest, by),): 1})

    # -- looking ----------------------------------------------------------------------------
    @property
    def constant(self) -> int | None:
        """The value of a constant index; None for others."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and () in self.terms:
            return self.terms[()]
        return None

    @property
    def single_atom(self) -> Atom | None:
        """The atom, if the index consists of a single one; else None."""
        if len(self.terms) == 1:
            ((monomial, coeff),) = self.terms.items()
            if coeff == 1 and len(monomial) == 1:
                return monomial[0]
        return None

    def atoms(self) -> set[Atom]:
        """All atoms, including those inside quotients, remainders and extrema."""
        found: set[Atom] = set()
        for monomial in self.terms:
            for atom in monomial:
                if atom not in found:
                    found.add(atom)
                    for name in ("a", "b"):
                        if hasattr(atom, name):
                            found |= getattr(atom, name).atoms()
        return found

    def variables(self) -> set[Var]:
        """The loop variables on which the index depends (not those inside run-time values)."""
        return {a for a in self.atoms() if isinstance(a, Var)}

    def run_time_values(self) -> tuple[Value, ...]:
        """The run-time values inside, each once, in the order in which they are written. They are cached,
        because every walk over an expression asks each index in it for them."""
        if self._values is None:
            found: dict[Value, None] = {}
            for monomial in self.terms:
                for atom in monomial:
                    if isinstance(atom, Value):
                        found[atom] = None
                    elif isinstance(atom, (Quotient, Remainder, Extremum)):
                        found |= dict.fromkeys((*atom.a.run_time_values(), *atom.b.run_time_values()))
            self._values = tuple(found)
        return self._values

    @property
    def is_polynomial(self) -> bool:
        """True if it contains only loop variables and dims: no division, extremum or run-time value."""
        return all(isinstance(a, (Var, DimVar)) for m in self.terms for a in m)

    def coefficient(self, var: Var) -> Index | None:
        """The c with ``self == c*var + (terms without var)``; None if the index is not linear in var."""
        terms: dict[Monomial, int] = {}
        for monomial, coeff in self.terms.items():
            count = monomial.count(var)
            if count > 1:
                return None
            for atom in monomial:
                if atom != var and not isinstance(atom, (DimVar, Var)):
                    if isinstance(atom, Value):
                        if count:
                            return None
                    elif var in Index({(atom,): 1}).atoms():
                        return None
            if count == 1:
                terms[tuple(a for a in monomial if a != var)] = coeff
        return Index(terms)

    def substitute(self, env: Mapping[Any, Any]) -> Index:
        """Replace atoms (loop variables, dims) by other indices; returns ``self`` if it contains none of
        them."""
        if not any(atom in env or hasattr(atom, "a") for monomial in self.terms for atom in monomial):
            return self
        result = Index({})
        for monomial, coeff in self.terms.items():
            if any(atom in env or hasattr(atom, "a") for atom in monomial):
                result = result + product([_substitute_atom(atom, env) for atom in monomial]) * coeff
            else:
                result = result + Index({monomial: coeff})
        return result

    def evaluate(self, env: Mapping[str, Any], value_of: Callable[[Any], Any] | None = None) -> Any:
        """The number (or array of numbers) for given values of variables and dims, by name."""
        total: Any = None
        for monomial, coeff in self.terms.items():
            term: Any = None if coeff == 1 and monomial else coeff  # arrays are not multiplied by 1, nor added to 0
            for atom in monomial:
                value = _evaluate_atom(atom, env, value_of)
                term = value if term is None else term * value
            total = term if total is None else total + term
        return 0 if total is None else total

    # -- bounds -----------------------------------------------------------------------------
    def upper(self) -> Index | None:
        """A polynomial in dims that is >= the index for all values of its loop variables, or None. Cached."""
        if isinstance(self._upper, EllipsisType):
            self._upper = self._bound(above=True)
        return self._upper

    def _bound(self, above: bool) -> Index | None:
        number, rest = 0, Index({})
        for monomial, coeff in self.terms.items():
            largest = (coeff > 0) is above
            known = _number_bound(monomial, largest)
            if known is not None:
                number += known * coeff
                continue
            bound = _bound_monomial(monomial, largest)
            if bound is None:
                return None
            rest = rest + bound * coeff
        return rest + number

    def lower(self) -> Index | None:
        """A polynomial in dims that is <= the index for all values of its loop variables, or None. Cached."""
        if isinstance(self._lower, EllipsisType):
            self._lower = self._bound(above=False)
        return self._lower

    def is_nonnegative(self) -> bool:
        """True if the index is provably >= 0."""
        low = self.lower()
        if low is not None and (_is_plain(low) or _is_plain(_from_lowest(low))):
            return True
        for monomial, coeff in self.terms.items():  # such as the j in ``i - 1 - j`` with j < i, for any i
            match monomial:
                case (Var() as variable,) if coeff < 0 and variable.extent.variables():
                    if self.coefficient(variable) == coeff:
                        return self.substitute({variable: variable.extent - 1}).is_nonnegative()
        return False

    def __le__(self, other: Any) -> bool:  # provably
        return (Index.of(other) - self).is_nonnegative()

    def __lt__(self, other: Any) -> bool:  # provably
        return (Index.of(other) - self - 1).is_nonnegative()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.constant == other
        return isinstance(other, Index) and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __repr__(self) -> str:
        return to_text(self)


def _is_plain(index: Index) -> bool:
    """True for a polynomial in dims without a subtraction."""
    return min(index.terms.values(), default=0) >= 0


def _from_lowest(index: Index) -> Index:
    """A polynomial in dims, rewritten in terms of each dim minus its lowest value."""
    found = {a for m in index.terms for a in m if isinstance(a, DimVar) and a.facts.lowest > 0}
    return index.substitute({d: Index.of(DimVar(f"{d.name}+")) + d.facts.lowest for d in found}) if found else index


def _split(index: Index, divisor: Index) -> tuple[Index, Index]:
    """(q, r) with index == q*divisor + r, where q has the terms that divide exactly."""
    if len(divisor.terms) != 1:
        return (Index.of(1), Index.of(0)) if index == divisor else (Index({}), index)
    ((monomial, coeff),) = divisor.terms.items()
    exact: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for m, c in index.terms.items():
        left = _divide_monomial(m, monomial)
        if left is not None and c % coeff == 0:
            exact[left] = c // coeff
        else:
            rest[m] = c
    return Index(exact), Index(rest)


def _divide_monomial(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    left = list(monomial)
    for atom in divisor:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _by_steps(rest: Index, by: Index) -> tuple[Index, Index, Index] | None:
    """An index as ``(many, few, step)`` with ``rest == many * step + few`` for the step of one of its loops, of which
    ``by`` is a multiple, where ``0 <= few < step``; None if there is no such step. Then ``rest // by`` is
    ``many // (by // step)``, and ``rest % by`` is ``many % (by // step) * step + few``."""
    for variable in sorted((m[0] for m in rest.terms if len(m) == 1 and isinstance(m[0], Var)), key=lambda v: v.name):
        step = rest.coefficient(variable)
        if step is None or step == 1:
            continue
        count, left = _split(by, step)
        many, few = _split(rest, step)
        if left.constant == 0 and count != 1 and _lies_within(few, step):
            return many, few, step
    return None


def _lies_within(rest: Index, divisor: Index) -> bool:
    """True if provably 0 <= rest < divisor. A divisor that is a product of dims is positive whenever the
    loops run, and the index is computed only then."""
    return rest.is_nonnegative() and rest < divisor


def _join_division(index: Index) -> Index:
    """``b*(a // b) + a mod b`` is ``a``."""
    if not _has_quotient(index):
        return index
    for monomial, coeff in index.terms.items():
        for position, atom in enumerate(monomial):
            if not isinstance(atom, Remainder):
                continue
            others = Index({monomial[:position] + monomial[position + 1 :]: coeff})
            partner = others * (atom.a // atom.b) * atom.b
            if len(partner.terms) != 1:
                continue
            ((key, value),) = partner.terms.items()
            if index.terms.get(key) == value:
                terms = dict(index.terms)
                del terms[key], terms[monomial]
                return Index(terms) + others * atom.a
    return index


def _has_quotient(index: Index) -> bool:
    for monomial in index.terms:
        for atom in monomial:
            if isinstance(atom, Quotient):
                return True
    return False


@functools.lru_cache(maxsize=4096)
def _constant(value: int) -> Index:
    """The index of a number; most of those that are asked for are small and recur."""
    return Index({(): value})


def _number_bound(monomial: Monomial, largest: bool) -> int | None:
    """:func:`_bound_monomial` of loop variables whose extents are numbers, which most are; None for others."""
    bound = 1
    for atom in monomial:
        extent = atom.extent.constant if type(atom) is Var else None
        if extent is None:
            return None
        bound *= extent - 1 if largest else 0
    return bound


def _bound_monomial(monomial: Monomial, largest: bool) -> Index | None:
    """A bound of a product of non-negative atoms; None if an atom may be negative or is unbounded."""
    if not all(_is_nonnegative(atom) for atom in monomial):
        return None
    result = Index.of(1)
    for atom in monomial:
        bound = _largest(atom) if largest else _smallest(atom)
        if bound is None:
            return None
        result = result * bound
    return result


def _is_nonnegative(atom: Atom) -> bool:
    if isinstance(atom, (Var, DimVar, Remainder)):
        return True
    if isinstance(atom, Quotient):
        return _divides_no_negative(atom)
    if isinstance(atom, Extremum):
        either = atom.a.is_nonnegative(), atom.b.is_nonnegative()
        return any(either) if atom.kind == "max" else all(either)
    return False  # a run-time value: unknown


def _divides_no_negative(atom: Quotient | Remainder) -> bool:
    """Whether a dividend is provably >= 0. It is, if it is at least the divisor minus one, because the
    divisor is >= 1."""
    return atom.a.is_nonnegative() or (atom.a - atom.b + 1).is_nonnegative()


def _smallest(atom: Atom) -> Index:
    """A lower bound of a non-negative atom, in dims."""
    if isinstance(atom, Given):
        return atom.least.lower() or Index({})
    if isinstance(atom, DimVar):
        return Index({(atom,): 1})
    if isinstance(atom, Extremum) and atom.kind == "max":
        return Index.of(max(atom.a.constant or 0, atom.b.constant or 0))
    return Index({})


def _largest(atom: Atom) -> Index | None:
    """An upper bound of a non-negative atom, in dims; None if there is none."""
    if isinstance(atom, Var):
        return atom.largest
    if isinstance(atom, DimVar):
        return Index({(atom,): 1})
    if isinstance(atom, Remainder):
        return (atom.b - 1).upper()
    if isinstance(atom, Quotient):
        high = atom.a.upper()
        if high is not None and high.constant is not None and atom.b.constant is not None:
            return Index.of(high.constant // atom.b.constant)
        return high
    if isinstance(atom, Extremum):
        a, b = atom.a.upper(), atom.b.upper()
        if atom.kind == "min":
            return a if a is not None else b
        return a + b if a is not None and b is not None else None
    return None


def _substitute_atom(atom: Atom, env: Mapping[Any, Any]) -> Index:
    if atom in env:
        return Index.of(env[atom])
    if isinstance(atom, (Quotient, Remainder, Extremum)):
        return atom.computed(atom.a.substitute(env), atom.b.substitute(env))  # type: ignore[no-any-return]
    return Index({(atom,): 1})


def _evaluate_atom(atom: Atom, env: Mapping[str, Any], value_of: Any) -> Any:
    if isinstance(atom, (Var, DimVar)):
        return env[atom.name]
    if isinstance(atom, Value):
        return 1 * value_of(atom.expr)  # a number where that is a truth
    return atom.computed(atom.a.evaluate(env, value_of), atom.b.evaluate(env, value_of))


def extremum(kind: str, a: Any, b: Any) -> Index:
    """``min`` or ``max`` of two indices, folded where one is provably smaller."""
    first, second = Index.of(a), Index.of(b)
    if first <= second:
        return first if kind == "min" else second
    if second <= first:
        return second if kind == "min" else first
    return Index({(Extremum(kind, first, second),): 1})


@functools.lru_cache(maxsize=8192)
def _from_sympy(value: Any) -> Index:
    if value.is_Integer:
        return Index.of(int(value))
    if value.is_Symbol:
        return Index.of(DimVar(value.name, symbols.facts_of(value)))
    args = value.args
    if value.is_Pow and args[1].is_Integer and int(args[1]) > 0:
        return functools.reduce(operator.mul, [_from_sympy(args[0])] * int(args[1]))
    whole, parts = symbols.in_parts(value)
    if parts > 1:
        return Index.of(whole) // int(parts)
    for kind, combine in _combined().items():
        if isinstance(value, kind):
            return functools.reduce(combine, map(_from_sympy, args))
    raise TypeError(f"cannot use the dim {value} as an index")


@functools.cache
def _combined() -> dict[Any, Callable[[Any, Any], Index]]:
    """For each kind of expression, the function that combines its parts."""
    return {
        sympy.Add: operator.add,
        sympy.Mul: operator.mul,
        symbols.FloorDiv: operator.floordiv,
        sympy.Mod: operator.mod,
        sympy.Min: functools.partial(extremum, "min"),
        sympy.Max: functools.partial(extremum, "max"),
    }


def product(values: Iterable[Any]) -> Index:
    """The product of indices, dims or ints."""
    return functools.reduce(operator.mul, values, Index.of(1))


def flatten(index: Iterable[Any], shape: Iterable[Any]) -> Index:
    """The row-major linear address of a multi-index in an array of the given shape."""
    address = Index({})
    for i, extent in zip(index, shape, strict=True):
        address = address * Index.of(extent) + Index.of(i)
    return address


def unflatten(address: Index, shape: Iterable[Any]) -> tuple[Index, ...]:
    """The multi-index for a row-major linear address; the inverse of :func:`flatten`."""
    extents = [Index.of(s) for s in shape]
    result: list[Index] = []
    for position in range(len(extents) - 1, -1, -1):
        if position == 0:
            result.append(address)
        elif extents[position].constant == 1:
            result.append(Index.of(0))
        else:
            result.append(address % extents[position])
            address = address // extents[position]
    return tuple(reversed(result))


# -- text: the same for C, CUDA and Python except for the division spelling --------------------
def to_text(
    index: Index,
    value_text: Callable[[Any], str] = repr,
    divide: str = "//",
    extremum_text: Callable[[str], str] = str,
    dim_text: Callable[[str], str] = str,
) -> str:
    """Readable text with as few parentheses as possible. ``divide`` is ``/`` for C; ``extremum_text`` gives
    the names of ``min`` and ``max``, and ``dim_text`` the text for a named dim."""
    text, _ = _text(index, _Spelling(value_text, divide, extremum_text, dim_text))
    return text


@dataclass(frozen=True)
class _Spelling:
    value_text: Callable[[Any], str]
    divide: str
    extremum_text: Callable[[str], str]
    dim_text: Callable[[str], str]


def _text(index: Index, spelling: _Spelling) -> tuple[str, bool]:
    """(text, is a sum). Horner form: terms that share their leading dims are printed factored,
    ``(i*T + j)*D + k`` rather than ``i*T*D + j*D + k``."""
    if not index.terms:
        return "0", False

    def atom_text(atom: Atom) -> str:
        if isinstance(atom, DimVar):
            return spelling.dim_text(atom.name)
        if isinstance(atom, Var):
            return atom.name
        if isinstance(atom, Value):
            return str(spelling.value_text(atom.expr))
        a, a_sum = _text(atom.a, spelling)
        b, b_sum = _text(atom.b, spelling)
        if isinstance(atom, Extremum):
            a, b = (
                text[1:-1] if isinstance(side.single_atom, Quotient) and text[0] == "(" else text
                for side, text in ((atom.a, a), (atom.b, b))
            )
            return f"{spelling.extremum_text(atom.kind)}({a}, {b})"
        if spelling.divide == "/" and not _divides_no_negative(atom):  # division in C truncates
            name = "fx_floor_div" if isinstance(atom, Quotient) else "fx_floor_mod"
            return f"{name}({a}, {b})"
        is_unclear = a_sum or ("*" in a and isinstance(atom, Remainder))
        a_part = f"({a})" if is_unclear else a
        is_unclear = b_sum or (("*" in b or "/" in b) and atom.b.single_atom is None)
        b_part = f"({b})" if is_unclear else b
        symbol = spelling.divide if isinstance(atom, Quotient) else "%"
        return f"({a_part} {symbol} {b_part})"

    shared = _shared_by_two(index)
    if shared is not None:
        inside, by = shared
        return f"({_text(inside, spelling)[0]})*{_text(by, spelling)[0]}", False
    factor = _common_factor(index)
    if factor is not None:
        inside, outside = factor
        left, left_sum = _text(inside, spelling)
        pieces = [f"({left})" if left_sum else left]
        ((monomial, coeff),) = outside[0].terms.items()
        pieces += [atom_text(a) for a in monomial] + ([str(coeff)] if coeff != 1 else [])
        head = "*".join(pieces)
        if not outside[1].terms:
            return head, False
        tail, _ = _text(outside[1], spelling)
        return (f"{head} - {tail[1:]}" if tail.startswith("-") else f"{head} + {tail}"), True

    parts: list[str] = []
    terms = sorted(index.terms.items(), key=lambda t: (not t[0], t[1] < 0))
    if terms[0][1] < 0 < terms[-1][1]:  # write 8 - i, not -i + 8
        terms.insert(0, terms.pop())
    for monomial, coeff in terms:
        factors = [atom_text(a) for a in sorted(monomial, key=lambda a: isinstance(a, DimVar))]
        if abs(coeff) != 1 or not factors:
            factors.append(str(abs(coeff)))
        text = "*".join(factors)
        is_quotient = len(factors) == 1 and monomial and isinstance(monomial[0], Quotient)
        if is_quotient and len(index.terms) > 1 and text.startswith("("):
            text = text[1:-1]
        if parts:
            parts.append(f" {'-' if coeff < 0 else '+'} {text}")
        else:
            parts.append(f"-{text}" if coeff < 0 else text)
    return "".join(parts), len(parts) > 1


def _shared_by_two(index: Index) -> tuple[Index, Index] | None:
    """(inside, factor) with index == inside*factor, for two terms with common variables."""
    if len(index.terms) != 2:
        return None
    (one, first), (other, second) = index.terms.items()
    factor = _monomial_gcd(one, other)
    if not factor:
        return None
    shared = Index({factor: math.gcd(first, second)})
    return index // shared, shared


def _monomial_gcd(one: Monomial, other: Monomial) -> Monomial:
    left, shared = list(other), []
    for atom in one:
        if atom in left:
            left.remove(atom)
            shared.append(atom)
    return tuple(shared)


def _common_factor(index: Index) -> tuple[Index, tuple[Index, Index]] | None:
    """(inside, (factor, rest)) with index == inside*factor + rest and at least two terms inside."""
    if len(index.terms) < 3:
        return None
    best: tuple[int, Index, Index, Index] | None = None
    candidates: set[tuple[Monomial, int]] = set()
    for monomial, coeff in index.terms.items():
        dim_part = tuple(a for a in monomial if isinstance(a, DimVar))
        if coeff > 0 and (dim_part or coeff > 1):
            candidates.add((dim_part, coeff))
    for monomial, coeff in sorted(candidates, key=repr):
        inside, rest = _split(index, Index({monomial: coeff}))
        if len(inside.terms) >= 2 and all(m for m in inside.terms):
            score = len(inside.terms)
            if best is None or score > best[0]:
                best = (score, inside, Index({monomial: coeff}), rest)
    return None if best is None else (best[1], (best[2], best[3]))
