"""Costs as FLOPs, bytes, parameters and memory; and the sizes from which a rewrite pays.

In: ints or expressions in named dims. Out: :class:`Costs`. In: the costs of two programs, a named
dim, and the quantity to compare. Out: :class:`SizeRanges`: the values of the dim for which the second
program costs less. For polynomials the answer is exact for every size: the sign of their difference
changes only at its real roots, so one value between two roots decides for all of them. For other
costs (with ``Max`` or ``//``) each size up to a limit is tried.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from fxlite.base.errors import ArgumentError
from fxlite.base.on_demand import sympy
from fxlite.graph.graph import Graph
from fxlite.graph.subgraph import bodies_of
from fxlite.show.node_cost import node_cost, quantity_text, short_text
from fxlite.types import shapes
from fxlite.types.shapes import Dim, symbols

_LONGEST_FORMULA = 300  # characters; longer formulas are shortened

#: What :class:`Costs` holds, and what is derived from that.
QUANTITIES = ("flops", "read", "written", "bytes", "parameters", "parameter_bytes", "peak")
#: What tables call them, and FLOPs per byte.
TITLES = {
    "flops": "FLOPs",
    "read": "bytes read",
    "written": "written",
    "bytes": "bytes",
    "parameters": "parameters",
    "parameter_bytes": "parameter bytes",
    "peak": "peak bytes",
    "intensity": "FLOP/byte",
}


@dataclass(frozen=True)
class Costs:
    """The costs of a node, a module or a whole program, as ints or expressions; None if unknown.

    ``flops`` counts scalar operations; ``read`` and ``written`` are bytes; ``parameters`` counts
    elements, each weight once, and ``parameter_bytes`` their bytes; ``peak`` is the largest number of
    bytes that all values computed by the program hold while this part runs."""

    flops: Dim | None = 0
    read: Dim | None = 0
    written: Dim | None = 0
    parameters: Dim = 0
    parameter_bytes: Dim = 0
    peak: Dim | None = 0

    @property
    def bytes(self) -> Dim | None:
        """Bytes read and written together."""
        if self.read is None or self.written is None:
            return None
        return shapes.normalize(self.read + self.written)

    @property
    def intensity(self) -> Any:
        """FLOPs per byte moved: a float or an expression; None if unknown or if no byte is moved."""
        moved = self.bytes
        if moved is None or self.flops is None or moved == 0:
            return None
        if isinstance(moved, int) and isinstance(self.flops, int):
            return self.flops / moved
        return sympy.cancel(sympy.sympify(self.flops) / moved)

    @property
    def dims(self) -> frozenset[str]:
        """Named dims that the costs depend on."""
        return shapes.names([v for v in dataclasses.astuple(self) if v is not None])

    def evaluate(self, sizes: Mapping[str, int]) -> Costs:
        """The costs at these sizes of named dims."""
        return Costs(*(None if v is None else shapes.substitute(v, sizes) for v in vars(self).values()))

    def __sub__(self, other: Costs) -> Costs:
        """The differences; None for a cost that is unknown on one side."""
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other))
        return Costs(*(None if a is None or b is None else shapes.normalize(a - b) for a, b in pairs))

    def __str__(self) -> str:
        return "\n".join(costs_text(self))


def check_dims(graph: Graph, sizes: Mapping[str, Any]) -> None:
    """Raise ArgumentError for sizes that do not belong to the graph. Allowed are the named dims of its inputs,
    and iteration counts that depend on values, under the names that they have in costs."""
    loops = (node_cost(node) for node in graph.nodes if bodies_of(node))
    known = graph.input_dims | shapes.names([v for cost in loops for v in dataclasses.astuple(cost) if v is not None])
    for name in sizes:
        if name not in known:
            listed = f"it has {', '.join(sorted(known))}" if known else "it has none"
            raise ArgumentError(f"the program has no named dim {name!r}; {listed}")


# -- text ------------------------------------------------------------------------------------------
def costs_text(costs: Costs, width: int = 100) -> list[str]:
    """A line for each quantity, with a formula or a number."""
    rows = [
        ("FLOPs", dim_text(costs.flops)),
        ("bytes read", dim_text(costs.read, "B")),
        ("bytes written", dim_text(costs.written, "B")),
        ("parameters", f"{dim_text(costs.parameters)}, {quantity_text(costs.parameter_bytes, 'B')}"),
        ("peak bytes", dim_text(costs.peak, "B")),
        ("FLOPs per byte", intensity_text(costs)),
    ]
    lines = []
    for title, text in rows:
        start = f"{title:<15}"
        wrapped = textwrap.wrap(text, width, initial_indent=start, subsequent_indent=" " * 17, break_long_words=False)
        lines += wrapped
    return lines


def dim_text(value: Dim | None, unit: str = "") -> str:
    """``1,234,567 (1.23M)`` or a formula; ``?`` if it is unknown."""
    if value is None:
        return "?"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10_000 else f"{value:,} ({quantity_text(value, unit)})"
    text = shapes.to_text(value)
    return text if len(text) <= _LONGEST_FORMULA else short_text(value)


def short(value: Dim | None) -> str:
    """A few characters; empty for 0, ``?`` if it is unknown."""
    if value is None:
        return "?"
    return short_text(value) if value != 0 else ""


def intensity_text(costs: Costs) -> str:
    """FLOPs per byte."""
    value = costs.intensity
    if value is None:
        return "-" if costs.bytes == 0 else "?"
    if isinstance(value, float):
        return quantity_text(value)
    text = shapes.to_text(value)
    if len(text) <= _LONGEST_FORMULA:
        return text
    return f"({short_text(costs.flops)})/({short_text(costs.bytes)})"


#: Sizes from 1 on that are tried where costs are no polynomials.
LIMIT = 1 << 16

Range = tuple[int, int | None]


# -- which sizes pay -------------------------------------------------------------------------------
@dataclass(frozen=True)
class SizeRanges:
    """Sizes of ``dim``, from 1 up: ``ranges`` holds pairs of the first and the last size, which is
    None if there is no last one. They are known up to ``limit``, or for all sizes if that is None."""

    dim: str
    ranges: tuple[Range, ...]
    limit: int | None = None

    def __contains__(self, size: int) -> bool:
        return any(first <= size and (last is None or size <= last) for first, last in self.ranges)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __str__(self) -> str:
        known = "" if self.limit is None else f" (tried up to {self.dim} = {self.limit})"
        if not self.ranges:
            return f"never{known}"
        if self.ranges == ((1, None),) or self.ranges == ((1, self.limit),):
            return f"always{known}"
        return " or ".join(self._text(*each) for each in self.ranges) + known

    def _text(self, first: int, last: int | None) -> str:
        if last is None or last == self.limit:
            return f"{self.dim} > {first - 1}"
        if first == last:
            return f"{self.dim} = {first}"
        return f"{self.dim} < {last + 1}" if first == 1 else f"{first} <= {self.dim} <= {last}"

    __repr__ = __str__


def sizes_that_pay(
    before: Costs, after: Costs, dim: str, by: str | Callable[[Costs], Any], sizes: Mapping[str, int]
) -> SizeRanges:
    """See :func:`fxlite.passes.pays_when`; takes the total costs of two programs."""
    pair = (before, after)
    costs = [_value(costs.evaluate(sizes), by) for costs in pair]
    gain = sympy.nsimplify(sympy.expand(sympy.sympify(costs[0]) - costs[1]), rational=True)
    mentioned = frozenset().union(*(c.dims for c in pair))
    for name in (dim, *sizes):
        if name not in mentioned:
            listed = ", ".join(sorted(mentioned)) or "none"
            raise ArgumentError(f"the costs do not depend on {name!r}; they depend on: {listed}")
    return _positive(gain, dim)


def _value(costs: Costs, by: str | Callable[[Costs], Any]) -> Any:
    if isinstance(by, str) and by not in QUANTITIES:
        raise ArgumentError(f"there is no cost {by!r}; known: {', '.join(QUANTITIES)}")
    needed = [costs.flops, costs.bytes] if callable(by) else [getattr(costs, by)]
    if None in needed:
        raise ArgumentError("the costs are unknown: the graph has leaf modules, or no types")
    return by(costs) if callable(by) else needed[0]


def _positive(gain: Any, dim: str) -> SizeRanges:
    """The sizes for which an expression is positive."""
    symbol = symbols.symbol(dim)
    plain = {name: symbols.symbol(name) for name in shapes.names(gain)}
    gain = sympy.sympify(shapes.substitute(gain, plain))
    gain = _without_common(gain, symbol)
    others = gain.free_symbols - {symbol}
    if others:
        known = sorted(s.name for s in others)
        example = ", ".join(f"{name}=8" for name in known)
        raise ArgumentError(f"that depends on {', '.join(known)}, too; give a size: {example}")
    try:
        polynomial = sympy.Poly(gain, symbol)
    except sympy.PolynomialError:
        return SizeRanges(dim, tuple(_scanned(gain, symbol)), LIMIT)
    return SizeRanges(dim, tuple(_between_roots(polynomial)))


def _without_common(gain: Any, symbol: Any) -> Any:
    """An expression without the factors that cannot change its sign."""
    factors = sympy.Mul.make_args(sympy.factor(gain))
    kept = [f for f in factors if f.has(symbol) or not f.is_nonnegative]
    return sympy.expand(sympy.Mul(*kept)) if gain != 0 else gain


def _between_roots(polynomial: Any) -> Iterable[Range]:
    """Ranges of integers, from 1 up, where a polynomial is positive."""
    near = {1}
    for root in polynomial.real_roots() if polynomial.degree() > 0 else ():
        floor = int(sympy.floor(sympy.N(root, 30)))
        near |= {n for n in (floor - 1, floor, floor + 1, floor + 2) if n >= 1}
    points = sorted(near)
    ranges: list[Range] = []
    for point, following in pairwise(points):
        ranges.append((point, point))
        if following > point + 1:
            ranges.append((point + 1, following - 1))
    ranges += [(points[-1], points[-1]), (points[-1] + 1, None)]
    return _joined([(each, polynomial.eval(each[0]) > 0) for each in ranges])


def _scanned(gain: Any, symbol: Any) -> Iterable[Range]:
    functions = {"FloorDiv": lambda a, b: a // b, "Max": max, "Min": min}
    value = sympy.lambdify(symbol, gain, [functions, "math"])
    return _joined([((n, n), value(n) > 0) for n in range(1, LIMIT + 1)])


def _joined(signs: list[tuple[Range, Any]]) -> Iterable[Range]:
    """The ranges whose sign is positive; adjacent ones are joined."""
    found: list[Range] = []
    was_marked = False
    for (first, last), is_marked in signs:
        if is_marked and was_marked:
            found[-1] = found[-1][0], last
        elif is_marked:
            found.append((first, last))
        was_marked = bool(is_marked)
    return found
