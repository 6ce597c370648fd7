"""Which axes shrink together: a dependency graph over the elements of all axes of all values.

In: a module with types. Out: an :class:`AxisGraph`. Each position of each axis is an element, and
operations join elements that can only be removed together: the rows of a convolution's weight with
the channels of its result; these with the parameters of a norm, with the values added to them, and
with their positions in a concatenation and in the features after a flatten. Joined elements form a
group. A group that reaches an input, a result, or an axis that an operation needs whole is tied, and
the graph records to what. (The idea is that of G. Fang et al., "DepGraph: Towards Any Structural
Pruning", CVPR 2023; groups of elements replace its index mappings.) The functions at the end are the
building blocks of the rules of ops: they join and tie axes of values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError
from fxlite.graph.graph import Node, map_nodes, nodes_in
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.node import types_of
from fxlite.types import shapes
from fxlite.types.tensor_type import TensorType

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Slot:
    """An axis of a value, or of one of its arrays (``part``) if the value consists of several."""

    node: Node
    axis: int
    part: int = 0

    def __str__(self) -> str:
        return f"axis {self.axis} of {self.node.describe()}"


def parts_of(node: Node) -> tuple[TensorType, ...]:
    """The types of a value's arrays; empty if they are not known."""
    types = types_of(node)
    return types if all(isinstance(t, TensorType) for t in types) else ()


class AxisGraph:
    """The groups of a module's axes. For elements that cannot be removed, ``ties`` says what they are
    tied to; the rules (:mod:`fxlite.passes.surgery.axis_rules`) do the joining and tying."""

    def __init__(self, gm: GraphModule) -> None:
        self.gm = gm
        self.starts: dict[Slot, int] = {}
        self.sizes: dict[Slot, int] = {}
        count = 0
        symbolic = []
        for node in gm.graph.nodes:
            for part, type in enumerate(parts_of(node) if node.op != "output" else ()):
                for axis, size in enumerate(type.shape):
                    slot = Slot(node, axis, part)
                    is_number = isinstance(size, int)
                    self.starts[slot], self.sizes[slot] = count, size if is_number else 1
                    count += self.sizes[slot]
                    if not is_number:
                        symbolic.append((slot, size))
        self.labels = np.arange(count)
        self.ties: dict[int, str] = {}  # by element
        #: What is known of expansions of calls, by op and types.
        self.expansions: dict[Any, Any] = {}
        self._pairs: list[tuple[Array, Array]] = []
        for slot, size in symbolic:
            self.tie(slot, f"{slot} has the size {size}, which a call decides")

    # -- joining -----------------------------------------------------------------------------------
    def ids(self, slot: Slot) -> Array:
        """The elements of an axis."""
        return np.arange(self.starts[slot], self.starts[slot] + self.sizes[slot])

    def join(self, a: Slot, b: Slot, at_a: Array | None = None, at_b: Array | None = None) -> None:
        """Join positions ``at_a`` of one axis with ``at_b`` of the other, pair by pair (by default
        all positions, in order)."""
        first, second = self.ids(a), self.ids(b)
        first = first if at_a is None else first[at_a]
        second = second if at_b is None else second[at_b]
        self._pairs.append((first, second))

    def tie(self, slot: Slot, reason: str) -> None:
        """Mark that the axis must stay whole, and why."""
        for element in self.ids(slot):
            self.ties.setdefault(int(element), reason)

    def close(self) -> None:
        """Find the groups: the smallest element of each is its label."""
        pairs, labels = self._pairs, self.labels
        changed = bool(pairs)
        while changed:
            before = labels.copy()
            for sweep in (pairs, reversed(pairs)):
                for a, b in sweep:
                    least = np.minimum(labels[a], labels[b])
                    np.minimum.at(labels, a, least)
                    np.minimum.at(labels, b, least)
            changed = not np.array_equal(before, labels)
        self._tied = {int(labels[e]): reason for e, reason in reversed(self.ties.items())}

    # -- asking ------------------------------------------------------------------------------------
    def groups(self, slot: Slot) -> Array:
        """The group of each position of an axis."""
        return self.labels[self.ids(slot)]

    def reason(self, group: int) -> str:
        """What a group is tied to; "" for a group that can be removed."""
        return self._tied.get(int(group), "")

    def is_free(self, slot: Slot) -> bool:
        """Whether some position of the axis can be removed."""
        return any(int(g) not in self._tied for g in np.unique(self.groups(slot)))

    def kept(self, groups: Array) -> dict[Slot, Array]:
        """For each axis that shrinks when these groups are removed, the positions that remain."""
        gone = np.isin(self.labels, groups)
        found = {}
        for slot, start in self.starts.items():
            mask = gone[start : start + self.sizes[slot]]
            if mask.any():
                found[slot] = np.flatnonzero(~mask)
        return found


def moved_from(node: Node, operands: list[Node]) -> Iterator[tuple[Node, Array, tuple[int, ...]]]:
    """Where the elements of an op that only moves elements come from: (operand, source, shape).
    ``source``, which has the shape of the result, holds flat positions in the operand, or -1. Named
    sizes are replaced by small numbers. Raises ArgumentError for an op that selects by the values of
    elements."""
    sizes = {n: 2 + i for i, n in enumerate(sorted(_names(node, operands)))}
    first, given, spans = 1, {}, []
    for operand in operands:
        (type,) = parts_of(operand)
        shape = tuple(int(d) for d in type.substitute(sizes).shape)
        count = int(np.prod(shape))
        given[operand] = np.arange(first, first + count, dtype=np.int64).reshape(shape)
        spans.append((operand, first, count, shape))
        first += count
    kwargs = {k: shapes.substitute(v, sizes) for k, v in node.kwargs.items()}

    def run(sign: int) -> Array:
        args = map_nodes(node.args, lambda n: sign * given[n])
        return np.asarray(node.target.reference(*args, **kwargs))

    result, other = run(1), run(-1)
    is_moved = result == -other
    if not (is_moved | (result == other)).all():  # neither moved nor a constant of the op
        raise ArgumentError(f"{node.describe()} chooses by the values of the elements")
    result = np.where(is_moved, result, 0)
    for operand, start, count, shape in spans:
        inside = (result >= start) & (result < start + count)
        yield operand, np.where(inside, result - start, -1), shape


def _names(node: Node, operands: list[Node]) -> set[str]:
    found: set[str] = set()
    for each in (node, *operands):
        for type in parts_of(each):
            found |= set(shapes.names(type.shape))
    for value in node.kwargs.values():
        found |= set(shapes.names(value))
    return found


def axis_of(node: Node, axis: int, what: str) -> int:
    """The axis, counted from the front. Raises ArgumentError for an axis that does not exist, and for
    a node without a type."""
    if not isinstance(node.type, TensorType):
        raise ArgumentError(f"{node.describe()} has no type: trace with input types to {what}")
    rank = node.type.rank
    if not -rank <= axis < rank:
        raise ArgumentError(f"{node.describe()} is {node.type}; it has no axis {axis}")
    return axis % rank


def operands_of(node: Node) -> list[Node]:
    """The nodes that a call reads, each once."""
    return list(dict.fromkeys(nodes_in((node.args, dict(node.kwargs)))))


# -- joining and tying -----------------------------------------------------------------------------
def slots(node: Node) -> list[Slot]:
    """All axes of a value."""
    return [Slot(node, axis, part) for part, type in enumerate(parts_of(node)) for axis in range(type.rank)]


def argument(node: Node, name: str) -> Any:
    """An argument of a call, or its default."""
    return node.arguments.get(name, node.target.defaults.get(name))


def channel_axis(node: Node) -> int:
    """The channel axis of an image op's input and result."""
    is_last = str(node.arguments.get("layout", "")).lower() == "nhwc"
    return parts_of(node)[0].rank - 1 if is_last else 1


def tie_slot(found: AxisGraph, slot: Slot, why: str) -> None:
    """Tie an axis, so that it stays whole: ``why`` is a sentence about an operation."""
    found.tie(slot, f"{why} (axis {slot.axis} of {slot.node.name})")


def tie_all(found: AxisGraph, node: Node, why: str) -> None:
    """Tie all axes of a value."""
    for slot in slots(node):
        tie_slot(found, slot, why)


def tie_call(found: AxisGraph, node: Node, why: str) -> None:
    """Tie all axes of a call and of the values it reads: ``why`` follows the node's name."""
    for each in (node, *operands_of(node)):
        tie_all(found, each, f"{node.describe()} {why}")


def tie(found: AxisGraph, node: Any, axis: int, at: Node, why: str) -> None:
    """Tie an axis because of the node ``at``; does nothing for an operand that is left out."""
    if isinstance(node, Node):
        (type,) = parts_of(node)
        tie_slot(found, Slot(node, axis % type.rank), f"{at.describe()} {why}")


def join(found: AxisGraph, a: Any, axis: int, b: Any, other: int) -> None:
    """Join two axes; does nothing if an operand is left out, or if one axis is broadcast. Axes whose
    sizes differ otherwise are tied, because nothing is known about them."""
    if not isinstance(a, Node) or not isinstance(b, Node):
        return
    first, second = Slot(a, axis % len(slots(a))), Slot(b, other % len(slots(b)))
    sizes = found.sizes[first], found.sizes[second]
    if sizes[0] == sizes[1]:
        found.join(first, second)
    elif 1 not in sizes:
        for slot in (first, second):
            tie_slot(found, slot, f"{a.name} and {b.name} have different sizes")


def join_same(found: AxisGraph, a: Node, b: Node) -> None:
    """Join all axes of two values of the same shape."""
    for axis in range(len(slots(a))):
        join(found, a, axis, b, axis)


def broadcast(found: AxisGraph, operand: Any, result: Any) -> None:
    """Join the axes that broadcasting aligns."""
    if isinstance(operand, Node) and isinstance(result, Node):
        for back in range(1, min(len(slots(operand)), len(slots(result))) + 1):
            join(found, operand, -back, result, -back)


def axes_of(node: Node, rank: int, name: str = "axis") -> set[int]:
    """The axes that a call names; all axes if it names none."""
    axis = argument(node, name)
    if axis is None:
        return set(range(rank))
    return {a % rank for a in (axis if isinstance(axis, tuple) else (axis,))}
