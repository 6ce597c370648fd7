"""The parts of dims: named dims, with facts about their values, and floor division; and proofs about dims
that hold for all values of their named dims.

In: names, numbers, dims. Out: sympy objects; "yes" or "not proved". The facts about a named dim are part
of its identity: a ``T`` without facts and a ``T`` from 1 to 512 are two symbols that print alike, so that
every cache with dims or types as keys (in sympy, in inference, in comparisons) stays correct. For proofs,
a named dim with facts is written as ``m*t + lowest`` with ``t >= 0``; then terms are compared by sign, and
by intervals if there is an upper bound. ``sympy.simplify`` is never called: without facts, an answer takes
microseconds, and answers are cached.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import sympy

from fxlite.base.errors import ParseError
from fxlite.base.outside_text import is_name
from fxlite.types.facts import NO_FACTS, Facts


class FactSymbol(sympy.Symbol):  # type: ignore[misc]
    """A named dim with facts: more is known about it than that it is not negative."""

    __slots__ = ("facts",)

    facts: Facts

    def __new__(cls, name: str, facts: Facts) -> FactSymbol:
        sign = {"positive": True} if facts.lowest > 0 else {"nonnegative": True}
        made: FactSymbol = sympy.Symbol.__xnew__(cls, name, integer=True, **sign)
        made.facts = facts
        return made

    def _hashable_content(self) -> tuple[Any, ...]:
        facts = self.facts
        highest = -1 if facts.maximum is None else facts.maximum
        own = (facts.minimum, highest, facts.multiple_of)
        return (*super()._hashable_content(), *own)

    def __reduce__(self) -> tuple[Any, ...]:
        return symbol, (self.name, self.facts)


@functools.cache
def symbol(name: str, facts: Facts = NO_FACTS) -> Any:
    """The named dim ``name``: a sympy symbol, integer and non-negative. Raises ParseError."""
    if not is_name(name):
        raise ParseError(f"a named dim must be an identifier, not {name!r}")
    if name == "self":
        raise ParseError("a named dim cannot be called self, which is the module in its code")
    if facts != NO_FACTS:
        return FactSymbol(name, facts)
    return sympy.Symbol(name, integer=True, nonnegative=True)


def facts_of(found: Any) -> Facts:
    """The facts about a named dim."""
    return found.facts if isinstance(found, FactSymbol) else NO_FACTS


def fact_symbols(value: Any) -> frozenset[FactSymbol]:
    """The named dims with facts in a dim or a (nested) sequence of dims."""
    if isinstance(value, (tuple, list)):
        return frozenset().union(*map(fact_symbols, value))
    if isinstance(value, sympy.Expr):
        return frozenset(s for s in value.free_symbols if isinstance(s, FactSymbol))
    return frozenset()


@functools.lru_cache(maxsize=4096)
def expanded(value: Any) -> Any:
    """``sympy.expand``, without its half a millisecond for an expression that is already expanded, as most
    sizes are."""
    return value if _is_expanded(value) else sympy.expand(value)


def _is_expanded(value: Any) -> bool:
    if value.is_Atom:
        return True
    if value.is_Mul and any(a.is_Add or (a.is_Pow and a.base.is_Add) for a in value.args):
        return False
    if value.is_Pow and not (value.base.is_Symbol and value.exp.is_Integer):
        return False
    return all(map(_is_expanded, value.args))


def ordered_facts(shape: Sequence[Any]) -> list[FactSymbol]:
    """The named dims with facts in a shape, in the order of the axes."""
    return [s for dim in shape for s in sorted(fact_symbols(dim), key=lambda s: s.name)]


class FloorDiv(sympy.Function):  # type: ignore[misc]
    """``a // b`` on dims, folded if it is exact. (sympy's own floor of a fraction prints as a fraction.)"""

    nargs = (2,)
    is_integer = True
    precedence = 45  # for printing: below a product (50), so that 4*(H//2) keeps its parentheses

    @classmethod
    def eval(cls, a: Any, b: Any) -> Any:
        if b == 1:
            return a
        if a.is_Integer and b.is_Integer:
            return sympy.Integer(int(a) // int(b))
        if isinstance(a, FloorDiv) and a.args[1].is_positive and b.is_positive:
            return FloorDiv(a.args[0], a.args[1] * b)  # the same form as in Index
        if b.is_Integer and int(b) > 0:
            if a.has(sympy.Mod) and divides(int(b), a):
                return sympy.expand(a / b)
            # (k*b*x + r) // b  ==  k*x + r // b  for any integer x
            exact: list[Any] = []
            rest: list[Any] = []
            for term in sympy.Add.make_args(expanded(a)):
                coeff, _ = term.as_coeff_Mul()
                (exact if coeff.is_Integer and int(coeff) % int(b) == 0 else rest).append(term)
            if exact and not rest:
                return sympy.Add(*exact) / b
            if exact:
                return sympy.Add(*exact) / b + FloorDiv(sympy.Add(*rest), b)
            if len(rest) == 2 and rest[0].is_Integer and isinstance(rest[1], FloorDiv):
                inner, by = rest[1].args  # (a // c + k) // b == (a + k*c) // (b*c), for an integer k
                return FloorDiv(inner + rest[0] * by, b * by) if by.is_positive else None
            return None
        quotient = sympy.cancel(a / b)
        if sympy.denom(quotient) == 1:
            return FloorDiv(*in_parts(sympy.expand(quotient)))
        return None

    def _eval_is_nonnegative(self) -> bool | None:
        a, b = self.args
        return True if a.is_nonnegative and (b.is_nonnegative or b.is_positive) else None

    def _sympystr(self, printer: Any) -> str:
        a, b = (printer.parenthesize(x, 50) for x in self.args)  # 50: precedence of a product
        if not (self.args[1].is_Symbol or self.args[1].is_Integer):
            b = f"({printer.doprint(self.args[1])})"
        if self.args[0].is_Mul:
            a = f"({printer.doprint(self.args[0])})"
        return f"{a}//{b}"


# -- proofs ----------------------------------------------------------------------------------------
#: Bounds of a value: ints, or an infinity if there is none.
Interval = tuple[float, float]
_ANY: Interval = (-math.inf, math.inf)
#: The most minima and maxima in a dim of which more than the signs is tried; each of them doubles the number of cases.
_MOST_CASES = 3


def never_negative(dim: Any, nonempty: bool = False) -> bool:
    """True if a dim (a sympy expression) is provably >= 0; ``nonempty``: for all sizes but 0."""
    if len(dim.atoms(sympy.Min, sympy.Max)) > _MOST_CASES:
        return bool(dim.is_nonnegative)
    if nonempty or fact_symbols(dim):
        dim = expanded(_counted(dim, nonempty))
    return _never_negative(dim)


@functools.lru_cache(maxsize=4096)
def _counted(dim: Any, nonempty: bool) -> Any:
    """``dim`` with ``m*t + lowest`` in place of each named dim with facts."""
    env: dict[Any, Any] = {}
    for found in dim.free_symbols:
        facts = facts_of(found)
        factor, lowest = facts.multiple_of, facts.lowest
        if nonempty:
            lowest = max(lowest, factor)
        highest = None if facts.highest is None else max(0, facts.highest - lowest) // factor
        env[found] = factor * symbol(found.name, Facts(0, highest)) + lowest
    return dim.xreplace(env)


def _sign(term: Any) -> int | None:
    """Of a multiple of a product of named dims: 1 or -1; None for other terms."""
    number, factors = term.as_coeff_mul()
    is_product = all(f.is_Symbol or (f.is_Pow and f.base.is_Symbol) for f in factors)
    return (1 if number > 0 else -1) if is_product else None


@functools.lru_cache(maxsize=4096)
def _never_negative(dim: Any) -> bool:
    signs = set(map(_sign, sympy.Add.make_args(dim)))  # often tell, and sympy takes up to a millisecond
    if signs == {-1} and not fact_symbols(dim):
        return False
    if signs == {1} or dim.is_nonnegative:
        return True
    if fact_symbols(dim) and interval(dim)[0] >= 0:
        return True
    dim = sympy.expand(dim)
    atoms = dim.atoms(sympy.Min, sympy.Max, FloorDiv)
    # From outside to inside: an argument of `Min(1, S)` may cancel S where S is itself an atom.
    depth = {atom: len(atom.atoms(sympy.Min, sympy.Max, FloorDiv)) for atom in atoms}
    for atom in sorted(atoms, key=lambda a: (-depth[a], sympy.default_sort_key(a))):
        coeff = dim.coeff(atom)
        if coeff == 0 or not coeff.is_Integer:  # it is inside another atom, or multiplied by a dim
            continue
        rest = dim - coeff * atom
        if isinstance(atom, FloorDiv):  # (a - b + 1) / b <= a // b <= a / b
            a, b = atom.args
            if b.is_Integer:
                bound = (a / b) if coeff < 0 else (a - b + 1) / b
                return _never_negative(sympy.expand(rest + coeff * bound))
            continue
        enough = any if isinstance(atom, sympy.Min) == (coeff < 0) else all
        return enough(_never_negative(sympy.expand(rest + coeff * a)) for a in atom.args)
    return False


def interval(dim: Any) -> Interval:
    """The bounds of a dim, computed from those of its parts."""
    if dim.is_Rational:
        number: Any = int(dim) if dim.is_Integer else Fraction(dim.p, dim.q)
        return number, number
    if dim.is_Symbol:
        facts = facts_of(dim)
        return facts.lowest, math.inf if facts.highest is None else facts.highest
    parts = [interval(a) for a in dim.args]
    if dim.is_Add:
        return sum(low for low, _ in parts), sum(high for _, high in parts)
    if dim.is_Mul:
        return functools.reduce(_product, parts)
    if dim.is_Pow and dim.exp.is_Integer and dim.exp > 0 and parts[0][0] >= 0:
        return tuple(bound ** int(dim.exp) for bound in parts[0])  # type: ignore[return-value]
    if isinstance(dim, sympy.Min):
        return min(low for low, _ in parts), min(high for _, high in parts)
    if isinstance(dim, sympy.Max):
        return max(low for low, _ in parts), max(high for _, high in parts)
    if isinstance(dim, FloorDiv) and dim.args[1].is_Integer and dim.args[1] > 0:
        by = int(dim.args[1])
        low, high = (b if math.isinf(b) else math.floor(b / by) for b in parts[0])
        return low, high
    if isinstance(dim, sympy.Mod) and dim.args[1].is_Integer and dim.args[1] > 0:
        return 0, int(dim.args[1]) - 1
    return (0, math.inf) if dim.is_nonnegative else _ANY


def _product(a: Interval, b: Interval) -> Interval:
    ends = [0 if 0 in (x, y) else x * y for x in a for y in b]
    return min(ends), max(ends)


def in_multiples(*dims: Any) -> tuple[list[Any], dict[Any, Any]]:
    """Dims with ``8*t`` in place of a T that is a multiple of 8, and the replacement that reverts it: ``T//8``
    for each t."""
    env: dict[Any, Any] = {}
    back: dict[Any, Any] = {}
    for found in fact_symbols(dims):
        factor = found.facts.multiple_of
        if factor > 1:
            count = sympy.Dummy(found.name, integer=True, nonnegative=True)
            env[found], back[count] = factor * count, FloorDiv(found, factor)
    return [sympy.sympify(d).xreplace(env) for d in dims], back


def is_zero(dim: Any) -> bool:
    """True if a dim is provably 0 because its named dims are multiples of something."""
    if not any(s.facts.multiple_of > 1 for s in fact_symbols(dim)):
        return False
    (counted,), _ = in_multiples(dim)
    return bool(sympy.expand(counted) == 0)


def in_parts(dim: Any) -> tuple[Any, int]:
    """``(a, n)`` of a dim ``a / n`` such as ``T/4 + Mod(3*T, 4)/4``: an integer, although its terms may not be."""
    terms = sympy.Add.make_args(dim)
    parts = math.lcm(*(int(term.as_coeff_Mul()[0].q) for term in terms))
    return (sympy.expand(dim * parts), parts) if parts > 1 else (dim, 1)


def divides(divisor: Any, dim: Any) -> bool:
    """True if ``dim % divisor == 0`` provably holds for all values; ``divisor`` is a positive int."""
    if type(divisor) is not int or divisor < 1:
        return False
    (counted,), _ = in_multiples(dim)
    if counted.has(sympy.Mod):  # T + 3*T for T + Mod(3*T, 4)
        counted = counted.replace(
            lambda e: isinstance(e, sympy.Mod) and e.args[1].is_Integer and int(e.args[1]) % divisor == 0,
            lambda e: e.args[0],
        )
    terms = sympy.Add.make_args(sympy.expand(counted))
    factors = [term.as_coeff_Mul()[0] for term in terms]
    return all(f.is_Integer and int(f) % divisor == 0 for f in factors)
