"""Slices whose bounds are computed: ``x[i:i + 3]``, ``x[:k]``, ``x[start[i]:start[i + 1]]``; and facts about the
integers that a program computes.

In: a traced value, one of its axes, and a slice. Out: if the distance of the bounds is known, the elements between
them; else a :class:`Masked` value over the whole axis, whose mask tells which positions lie between the bounds. A
write goes to the whole axis under that mask.

A :class:`Sum` is the decomposition of an integer into a sum (of ints, named sizes and traced numbers), in which equal
numbers have the same form. It also has bounds: the number of an iteration lies between the bounds of its loop, and an
unsigned number is not negative.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fxlite.base.on_demand import is_expression
from fxlite.base.state import is_traced
from fxlite.graph.graph import Node
from fxlite.ops.op import lookup
from fxlite.tracing.selections.bounds import choices, limit_of
from fxlite.tracing.writes.shared_memory import attach_taken
from fxlite.types import dtypes, shapes
from fxlite.types.shapes import Dim, NamedDim
from fxlite.types.tensor_type import TensorType

if TYPE_CHECKING:
    from fxlite.tracing.proxy import Proxy
    from fxlite.tracing.tracer import Tracer


#: How many calls above a number are examined.
_DEEPEST = 12


@dataclass(frozen=True)
class Sum:
    """The sum of ``rest`` and computed numbers, each with a factor."""

    terms: tuple[tuple[Node, int], ...]
    rest: Dim

    def plus(self, other: Sum, times: int = 1) -> Sum:
        """The sum of this and ``times`` the other one."""
        counts = dict(self.terms)
        for node, count in other.terms:
            counts[node] = counts.get(node, 0) + times * count
        terms = sorted(((n, c) for n, c in counts.items() if c), key=lambda term: id(term[0]))
        return Sum(tuple(terms), shapes.normalize(self.rest + times * other.rest))

    def minus(self, other: Sum) -> Sum:
        return self.plus(other, -1)

    @property
    def size(self) -> Dim | None:
        """The sum as a size; None if it contains a computed number."""
        return None if self.terms else self.rest

    def same(self, other: Sum) -> bool:
        """Whether both are the same number in every run."""
        size = self.minus(other).size
        return size is not None and shapes.equal(size, 0)


def sum_of(tracer: Tracer, value: Any) -> Sum:
    """A number as a sum."""
    if isinstance(value, (int, shapes.NamedDim)) or is_expression(value):
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
    """A key that is equal for equal calls on equal operands."""
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


def is_like(tracer: Tracer, one: Any, other: Any) -> bool:
    """Whether two attributes, parts of subscripts or nodes are known to be equal in every run."""
    if is_traced(one) and is_traced(other):
        one, other = one._node, other._node
    if isinstance(one, Node) and isinstance(other, Node):
        return bool(_key(tracer, one, _DEEPEST) == _key(tracer, other, _DEEPEST))
    if isinstance(one, slice) and isinstance(other, slice):
        parts = zip((one.start, one.stop, one.step), (other.start, other.stop, other.step))
        return all(is_like(tracer, a, b) for a, b in parts)
    return one is other or (type(one) is type(other) and not hasattr(one, "ndim") and bool(one == other))


def _is_integer(node: Any) -> bool:
    kind = getattr(node, "type", None)
    return isinstance(kind, TensorType) and not kind.shape and kind.dtype.is_integer


def lowest(tracer: Tracer, value: Sum) -> Dim | None:
    """A lower bound of the sum, as a size; None if none is known."""
    return _extreme(tracer, value, 0)


def highest(tracer: Tracer, value: Sum) -> Dim | None:
    """An upper bound of the sum, as a size; None if none is known."""
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
    if not _is_integer(node):
        return None
    found = limit_of(node, side)
    return _limit_of_choice(tracer, node, side, depth - 1) if found is None and depth else found


def _limit_of_choice(tracer: Tracer, node: Node, side: int, depth: int) -> Dim | None:
    """The bound of the smallest or largest one of numbers, from their bounds."""
    for larger in (False, True):
        limits = [_extreme(tracer, sum_of(tracer, n), side, depth) for n in choices(node, larger)]
        known = [limit for limit in limits if limit is not None]
        if known and (len(known) == len(limits) or larger != side):
            return functools.reduce(shapes.maximum if larger else shapes.minimum, known)
    return None


def at_least(tracer: Tracer, value: Any, size: Dim) -> bool:
    """Whether a number is known to be at least a size."""
    found = lowest(tracer, sum_of(tracer, value))
    return found is not None and shapes.at_least(found, size)


def at_most(tracer: Tracer, value: Any, size: Dim) -> bool:
    """Whether a number is known to be at most a size."""
    found = highest(tracer, sum_of(tracer, value))
    return found is not None and shapes.at_least(size, found)


def is_computed(item: Any) -> bool:
    """Whether an item of a subscript is a slice with a computed bound."""
    return isinstance(item, slice) and any(map(is_traced, (item.start, item.stop, item.step)))


@dataclass(frozen=True)
class Span:
    """The positions from ``start`` up to but without ``stop`` on an axis of ``size`` elements. ``start`` and ``stop``
    are the Sums of ``first`` and ``last``: each is an int, a size, or a traced number, and may be outside of the
    axis. ``given`` is the first bound as the program gave it, and ``length`` the number of positions, if it is known,
    given that all are inside."""

    size: Dim
    start: Sum
    stop: Sum
    first: Any
    last: Any
    given: Any
    length: Dim | None
    turned: Any = None  # the end of the positions before they were reversed

    @property
    def is_first(self) -> bool:
        """Whether it is known to start at the beginning of the axis."""
        return type(self.first) is int and self.first == 0

    def count(self, tracer: Tracer) -> Any:
        """The number of positions: an int, a size, or a traced number."""
        first, last = self.first, self.last
        if not at_least(tracer, first, 0):
            first = lookup("maximum")(first, 0)
        if not at_most(tracer, last, self.size):
            last = lookup("minimum")(last, shapes.for_user(self.size))
        length = self.stop.minus(self.start)
        if first is self.first and last is self.last and length.size is not None:
            return max(length.size, 0) if type(length.size) is int else shapes.for_user(length.size)
        number = last if type(first) is int and first == 0 else last - first
        number = number if at_least(tracer, number, 0) else lookup("maximum")(number, 0)
        if not is_traced(number):
            return number
        number = tracer.python_number(number)
        tracer.ranges.setdefault(number.node, (0, shapes.for_user(shapes.normalize(self.size + 1))))
        return number

    def most(self, tracer: Tracer) -> Dim:
        """The largest number of positions, or 1: the size, or less for ``x[max(i - 4, 0):min(i + 5, n)]``, where a
        number that is not smaller than the last bound is a known distance behind one that is not larger than the
        first."""
        firsts, lasts = (_beyond(tracer, bound, end) for end, bound in enumerate((self.first, self.last)))
        found = [last.minus(first).size for first in firsts for last in lasts]
        known = [max(size, 1) for size in (*found, self.size) if type(size) is int]
        return min(known) if known else self.size

    def same(self, other: Span | None) -> bool:
        """Whether both are the same positions in every run."""
        if other is None or not shapes.equal(self.size, other.size):
            return False
        return self.start.same(other.start) and self.stop.same(other.stop)


def _beyond(tracer: Tracer, bound: Any, end: int) -> list[Sum]:
    """Numbers that are not smaller than the ``end`` of positions, or not larger than the start."""
    found = [sum_of(tracer, bound)]
    node = bound._node if is_traced(bound) else bound
    node = tracer.outside.get(node, node) if isinstance(node, Node) else None
    for operand in () if node is None else choices(node, larger=not end):
        found += _beyond(tracer, operand, end)
    return found


def span_of(tracer: Tracer, item: slice, size: Dim) -> Span:
    """The positions of an axis that a slice with computed bounds selects."""
    if item.step is not None and not (type(item.step) is int and item.step == 1):
        raise tracer.error(
            "a slice with a computed step cannot be traced"
            if is_traced(item.step)
            else f"a slice with computed bounds and the step {item.step} cannot be traced",
            "take its elements one by one: np.take(x, start + step * np.arange(n), axis=...), with a known number n of "
            "elements; or write a loop: for i in range(start, stop, step)",
        )
    start = _bound(tracer, 0 if item.start is None else item.start, size)
    stop = _bound(tracer, shapes.for_user(size) if item.stop is None else item.stop, size)
    apart = None
    if is_traced(item.start) and is_traced(item.stop):
        apart = sum_of(tracer, item.stop).minus(sum_of(tracer, item.start)).size
    elif at_least(tracer, start, 0) and at_least(tracer, stop, 0):
        apart = sum_of(tracer, stop).minus(sum_of(tracer, start)).size
    length = None
    if apart is not None and shapes.at_least(apart, 0):
        # A window that stays inside in every round is not longer than its axis: a loop that runs to n - w
        # has no round if w is larger than n.
        inside = at_least(tracer, start, 0) and at_most(tracer, stop, size)
        length = apart if inside or shapes.at_least(size, apart) else None
    given = start if item.start is None else item.start
    return Span(size, sum_of(tracer, start), sum_of(tracer, stop), start, stop, given, length)


def first_positions(tracer: Tracer, size: Dim, count: Any) -> Span:
    """The first ``count`` positions of an axis."""
    return Span(size, Sum((), 0), sum_of(tracer, count), 0, count, 0, None)


def _bound(tracer: Tracer, bound: Any, size: Dim) -> Any:
    """A bound counted from the start, which may be negative or larger than the size."""
    if not is_traced(bound):
        number = shapes.normalize(bound)
        return shapes.for_user(shapes.normalize(size + number)) if type(number) is int and number < 0 else bound
    if bound.type.shape or not bound.type.dtype.is_integer:
        raise tracer.error(
            f"the bounds of a slice are integers, and {bound.node.name} is {bound.type}",
            "select by a mask in brackets, x[mask], and cut by numbers: x[a:b]",
            bound.node,
        )
    if bound.type.dtype is not dtypes.int64:
        narrow, bound = bound, lookup("cast")(bound, dtypes.int64)
        if at_least(tracer, narrow, 0):
            return bound
    if at_least(tracer, bound, 0):
        return bound
    return lookup("where")(bound < 0, bound + shapes.for_user(size), bound)


def taken(x: Proxy, axis: int, span: Span) -> Proxy | None:
    """The elements of a span whose bounds have a known distance, with an IndexError at run time if they are not all
    inside of the axis. None for other spans."""
    tracer = x.tracer
    length, start = span.length, span.given
    if length is None:
        return None
    if not at_least(tracer, start, 0):
        start = lookup("where")(start < 0, shapes.for_user(span.size), start)
    found: Proxy = lookup("take")(x, start + counting(tracer, length), axis)
    if hasattr(found, "_view"):
        attach_taken(found, x)
    return found


def counting(tracer: Tracer, size: Dim) -> Proxy:
    """0, 1, ... up to but without a size, as a call and not a constant, so that back ends can recognize them."""
    bound = {"start": 0, "stop": size, "step": 1, "dtype": dtypes.int64}
    made: Proxy = tracer.record(lookup("arange"), bound)
    tracer.aside.add(made.node)
    return made


def mask_of(tracer: Tracer, span: Span) -> Proxy:
    """A mask of the positions of the axis that are in the span. If it is not used, the graph does not contain it."""
    mask = _mask_of(tracer, span)
    bounds = {bound.node for bound in (span.first, span.last) if is_traced(bound)}
    stack = [mask.node]
    while stack:
        node = stack.pop()
        tracer.aside.add(node)
        stack += [n for n in node.all_input_nodes if n not in bounds and n not in tracer.aside]
    return mask


def _mask_of(tracer: Tracer, span: Span) -> Proxy:
    size, start, stop = span.size, span.first, span.last
    places = counting(tracer, size)
    from_start, to_stop = at_most(tracer, start, 0), at_least(tracer, stop, size)
    before = None if to_stop else places < as_number(tracer, stop)
    behind = None if from_start else places >= as_number(tracer, start)
    if before is None and behind is None:
        return lookup("full")((size,), True, dtypes.bool_)  # type: ignore[no-any-return]
    if before is None or behind is None:
        return behind if before is None else before  # type: ignore[return-value]
    return lookup("logical_and")(behind, before)  # type: ignore[no-any-return]


def as_number(tracer: Tracer, value: Any) -> Any:
    """A named size as the number that it is at run time; any other value unchanged."""
    return tracer.size(value) if isinstance(value, NamedDim) else value
