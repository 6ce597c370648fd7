"""What dims are made of: named dims, with what is known of their values, and floor division.

In: names, numbers. Out: sympy objects. The facts of a named dim are part of its identity: ``T`` in
general and a ``T`` from 1 to 512 are two symbols that print alike, so that everything which
remembers answers by dims or types (sympy itself, inference, equality) stays right by itself.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sympy

from fxlite.base.bounded import LARGEST_INT
from fxlite.base.errors import ArgumentError, ParseError
from fxlite.base.outside_text import is_name


@dataclass(frozen=True)
class Facts:
    """What every value of a named dim fulfils: ``minimum <= value <= maximum`` (None: no bound),
    and ``multiple_of`` divides it. Raises ArgumentError where no value does."""

    minimum: int = 0
    maximum: int | None = None
    multiple_of: int = 1

    def __post_init__(self) -> None:
        given = {"min": self.minimum, "max": self.maximum, "multiple_of": self.multiple_of}
        for name, value in given.items():
            if type(value) is not int and not (name == "max" and value is None):
                raise ArgumentError(f"{name} of a named dim must be an int, not {value!r}")
            if value is not None and abs(value) > LARGEST_INT:
                raise ArgumentError(f"{name} of a named dim has {value.bit_length()} bits")
        if self.minimum < 0:
            raise ArgumentError(f"min={self.minimum}: a size cannot be negative")
        if self.multiple_of < 1:
            raise ArgumentError(f"multiple_of={self.multiple_of} must be at least 1")
        if self.maximum is not None and self.maximum < self.minimum:
            raise ArgumentError(f"min={self.minimum} is larger than max={self.maximum}")
        if self.highest is not None and self.highest < self.lowest:
            raise ArgumentError(
                f"no multiple of {self.multiple_of} lies between {self.minimum} and {self.maximum}"
            )

    @property
    def lowest(self) -> int:
        """The smallest value there is."""
        return -(-self.minimum // self.multiple_of) * self.multiple_of

    @property
    def highest(self) -> int | None:
        """The largest value there is; None where there is none."""
        if self.maximum is None:
            return None
        return self.maximum // self.multiple_of * self.multiple_of

    def broken_by(self, value: int) -> str | None:
        """What a value must be and is not: ``at most 512``; None where it fulfils the facts."""
        if value < self.minimum:
            return f"at least {self.minimum}"
        if self.maximum is not None and value > self.maximum:
            return f"at most {self.maximum}"
        if value % self.multiple_of:
            return f"a multiple of {self.multiple_of}"
        return None

    def nearest(self, value: int) -> int:
        """The value nearest to a wished one; of two the larger."""
        value = -(-value // self.multiple_of) * self.multiple_of
        if self.highest is not None:
            value = min(value, self.highest)
        return max(value, self.lowest)

    def __str__(self) -> str:
        """``1 to 512, a multiple of 8``"""
        end = "or more" if self.maximum is None else f"to {self.maximum}"
        multiple = f", a multiple of {self.multiple_of}" if self.multiple_of > 1 else ""
        return f"{self.minimum} {end}{multiple}"


NO_FACTS = Facts()
_FACTS = re.compile(r"(?:(\d{0,19})\.\.(\d{0,19}))?(?:%(\d{1,19}))?")


def parse_facts(text: str) -> Facts:
    """``"1..512%8"`` -> from 1 to 512, a multiple of 8; each part may be left out. Raises
    ArgumentError."""
    found = _FACTS.fullmatch(text.replace(" ", ""))
    if not text.strip() or found is None:
        raise ArgumentError(
            f"{text!r} does not say facts of a dim; write MIN..MAX%MULTIPLE, 1..512%8"
        )
    low, high, multiple = found.groups()
    return Facts(int(low or 0), int(high) if high else None, int(multiple or 1))


class FactSymbol(sympy.Symbol):  # type: ignore[misc]
    """A named dim of which more is known than that it is not negative."""

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
    """What is known of a named dim."""
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
    """``sympy.expand``, which takes half a millisecond for an expression that is expanded
    already, as sizes mostly are."""
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
    """The named dims with facts in a shape, in order of the axes."""
    return [s for dim in shape for s in sorted(fact_symbols(dim), key=lambda s: s.name)]


class FloorDiv(sympy.Function):  # type: ignore[misc]
    """``a // b`` on dims; folds what is exact. (sympy's own floor of a fraction prints as one.)"""

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
            return FloorDiv(a.args[0], a.args[1] * b)  # as Index has it
        if b.is_Integer and int(b) > 0:
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
            return None
        quotient = sympy.cancel(a / b)
        if sympy.denom(quotient) == 1:
            return sympy.expand(quotient)
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
