"""What can be proved about dims for all values their named dims may have.

In: dims. Out: yes, or "not proved". A named dim with facts is written as ``m*t + lowest`` with
``t >= 0``; then terms are compared by sign, and by intervals where there is an upper bound. No
``sympy.simplify``: answers take microseconds where no facts are known, and are remembered.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any

import sympy

from fxlite.types.symbols import Facts, FloorDiv, fact_symbols, facts_of, symbol

#: Bounds of a value: ints, or an infinity where there is none.
Interval = tuple[float, float]
_ANY: Interval = (-math.inf, math.inf)


def never_negative(dim: Any, nonempty: bool = False) -> bool:
    """True if a dim (a sympy expression) is provably >= 0; ``nonempty``: for all sizes but 0."""
    if nonempty or fact_symbols(dim):
        dim = sympy.expand(_counted(dim, nonempty))
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


@functools.lru_cache(maxsize=4096)
def _never_negative(dim: Any) -> bool:
    if dim.is_nonnegative:
        return True
    if fact_symbols(dim) and interval(dim)[0] >= 0:
        return True
    dim = sympy.expand(dim)
    atoms = dim.atoms(sympy.Min, sympy.Max, FloorDiv)
    # From outside to inside: an argument of `Min(1, S)` may cancel S where S is itself an atom.
    depth = {atom: len(atom.atoms(sympy.Min, sympy.Max, FloorDiv)) for atom in atoms}
    for atom in sorted(atoms, key=lambda a: (-depth[a], sympy.default_sort_key(a))):
        coeff = dim.coeff(atom)
        if coeff == 0 or not coeff.is_Integer:  # inside another atom, or times a dim
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
    """Bounds of a dim, from those of its parts."""
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
    """Dims with ``8*t`` in place of a T that is a multiple of 8, and what to put back for each t:
    ``T//8``."""
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


def divides(divisor: Any, dim: Any) -> bool:
    """True if ``dim % divisor == 0`` for all values, for a positive int as divisor."""
    if type(divisor) is not int or divisor < 1:
        return False
    (counted,), _ = in_multiples(dim)
    terms = sympy.Add.make_args(sympy.expand(counted))
    factors = [term.as_coeff_Mul()[0] for term in terms]
    return all(f.is_Integer and int(f) % divisor == 0 for f in factors)
