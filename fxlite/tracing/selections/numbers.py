"""What is known of integers that a program computes: what they are sums of, and between which sizes
they lie.

In: ints, named sizes, traced numbers. Out: :class:`Sum`, in which equal numbers look alike, and
bounds: of the number of an iteration those of its loop, of an unsigned number 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sympy

from fxlite.base.state import is_traced
from fxlite.graph.graph import Node
from fxlite.ops.op import lookup
from fxlite.types import shapes
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType

if TYPE_CHECKING:
    from fxlite.tracing.tracer import Tracer

#: Calls above a number that are looked at.
_DEEPEST = 12


@dataclass(frozen=True)
class Sum:
    """``rest`` and numbers that are computed, each so many times."""

    terms: tuple[tuple[Node, int], ...]
    rest: Dim

    def plus(self, other: Sum, times: int = 1) -> Sum:
        """The sum of both, the other one so many times."""
        counts = dict(self.terms)
        for node, count in other.terms:
            counts[node] = counts.get(node, 0) + times * count
        terms = sorted(((n, c) for n, c in counts.items() if c), key=lambda term: id(term[0]))
        return Sum(tuple(terms), shapes.normalize(self.rest + times * other.rest))

    def minus(self, other: Sum) -> Sum:
        return self.plus(other, -1)

    @property
    def size(self) -> Dim | None:
        """The size that it is; None where something is computed."""
        return None if self.terms else self.rest

    def same(self, other: Sum) -> bool:
        """Whether both are the same number in every run."""
        size = self.minus(other).size
        return size is not None and shapes.equal(size, 0)


def sum_of(tracer: Tracer, value: Any) -> Sum:
    """A number as a sum."""
    if isinstance(value, (int, shapes.NamedDim, sympy.Expr)):
        return Sum((), shapes.normalize(value))
    return _sum(tracer, value._node if is_traced(value) else value, _DEEPEST)


def _sum(tracer: Tracer, node: Any, depth: int) -> Sum:
    if not isinstance(node, Node):
        return Sum((), shapes.normalize(node))
    node = tracer.outside.get(node, node)
    whole = Sum(((tracer.numbers.setdefault(_key(tracer, node, _DEEPEST), node), 1),), 0)
    if not depth or node.op != "call_function" or not _is_integer(node):
        return whole
    op, bound = node.target, node.bound
    if op is lookup("full"):
        known = shapes.names(bound["value"]) or type(bound["value"]) is int
        return Sum((), shapes.normalize(bound["value"])) if known else whole
    if op is lookup("cast") and _is_integer(bound["x"]):
        source = bound["x"].type.dtype.numpy
        wide = node.type.dtype.numpy
        return _sum(tracer, bound["x"], depth - 1) if wide.itemsize > source.itemsize or wide == source else whole
    if node.type.dtype.numpy.itemsize < 8 or op.symbol not in ("+", "-", "*"):
        return whole
    parts = [bound[n] for n in ("x", "y") if n in bound]
    if any(isinstance(p, float) for p in parts):
        return whole
    sums = [_sum(tracer, p, depth - 1) for p in parts]
    if len(sums) == 1:
        return Sum((), 0).minus(sums[0])
    if op.symbol != "*":
        return sums[0].plus(sums[1], 1 if op.symbol == "+" else -1)
    for one, other in (sums, sums[::-1]):
        if type(one.size) is int:
            return Sum((), 0).plus(other, one.size)
    return whole


def _key(tracer: Tracer, value: Any, depth: int) -> Any:
    """What is the same for equal calls of the same."""
    if not isinstance(value, Node):
        return (type(value), tuple(_key(tracer, v, depth) for v in value)) if isinstance(value, tuple) else value
    value = tracer.outside.get(value, value)
    is_call = value.op == "call_function" and not value.is_impure() and not value.target.is_random
    if not (depth and is_call) or value.target.kind == "control":
        return value
    arguments = value.bound
    try:
        key = (value.target.name, *(_key(tracer, v, depth - 1) for v in arguments.values()))
        hash(key)
    except TypeError:
        return value
    return key


def _is_integer(node: Any) -> bool:
    kind = getattr(node, "type", None)
    return isinstance(kind, TensorType) and not kind.shape and kind.dtype.is_integer


def lowest(tracer: Tracer, value: Sum) -> Dim | None:
    """A size that the sum is not below; None where none is known."""
    return _extreme(tracer, value, 0)


def highest(tracer: Tracer, value: Sum) -> Dim | None:
    """A size that the sum is not above; None where none is known."""
    return _extreme(tracer, value, 1)


def _extreme(tracer: Tracer, value: Sum, side: int, depth: int = _DEEPEST) -> Dim | None:
    total = value.rest
    for node, count in value.terms:
        found = _limit(tracer, node, side if count > 0 else 1 - side, depth)
        if found is None:
            return None
        total = total + count * found
    return shapes.normalize(total)


def _limit(tracer: Tracer, node: Node, side: int, depth: int) -> Dim | None:
    bounds = tracer.ranges.get(node)
    if bounds is not None and depth:
        limit = sum_of(tracer, bounds[side])
        return _extreme(tracer, limit.plus(Sum((), -side)), side, depth - 1)
    is_unsigned = _is_integer(node) and node.type.dtype.numpy.kind == "u"
    return 0 if is_unsigned and not side else None


def at_least(tracer: Tracer, value: Any, size: Dim) -> bool:
    """Whether a number is known not to be below a size."""
    found = lowest(tracer, sum_of(tracer, value))
    return found is not None and shapes.at_least(found, size)


def at_most(tracer: Tracer, value: Any, size: Dim) -> bool:
    """Whether a number is known not to be above a size."""
    found = highest(tracer, sum_of(tracer, value))
    return found is not None and shapes.at_least(size, found)
