"""Which axes shrink together: a graph of dependencies over the elements of all axes of all values.

In: a module with types. Out: an :class:`AxisGraph`. Each position of each axis is an element, and
operations join elements that can only go together: the rows of a convolution's weight with the
channels of its result, these with a norm's numbers, with what is added to them, with their places
in a concatenation and in the features behind a flatten. Elements that are joined form a group. A
group that reaches an input, a result, or an axis that an operation needs whole is tied, and the
graph says to what. (The idea is that of G. Fang et al., "DepGraph: Towards Any Structural Pruning",
CVPR 2023; groups of elements take the place of its index mappings.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError
from fxlite.graph.graph import Node, map_nodes, nodes_in
from fxlite.graph.graph_module import GraphModule
from fxlite.types import shapes
from fxlite.types.tensor_type import TensorType

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Slot:
    """An axis of a value, or of one of the arrays (``part``) of a value that is several."""

    node: Node
    axis: int
    part: int = 0

    def __str__(self) -> str:
        return f"axis {self.axis} of {self.node.describe()}"


def parts_of(node: Node) -> tuple[TensorType, ...]:
    """The types of a value's arrays; none where they are not known."""
    types = node.type if isinstance(node.type, tuple) else (node.type,)
    return types if all(isinstance(t, TensorType) for t in types) else ()


class AxisGraph:
    """The groups of a module's axes. ``ties`` says for elements that cannot go what they are tied
    to; joining and tying is done by the rules (:mod:`fxlite.passes.surgery.axis_rules`)."""

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
        """Positions ``at_a`` of one axis go with ``at_b`` of the other, pair by pair (by default
        all, in order)."""
        first, second = self.ids(a), self.ids(b)
        first = first if at_a is None else first[at_a]
        second = second if at_b is None else second[at_b]
        self._pairs.append((first, second))

    def tie(self, slot: Slot, reason: str) -> None:
        """The axis stays whole."""
        for element in self.ids(slot):
            self.ties.setdefault(int(element), reason)

    def close(self) -> None:
        """Find the groups: the least element of each is its label."""
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
        """What a group is tied to; "" for one that can go."""
        return self._tied.get(int(group), "")

    def is_free(self, slot: Slot) -> bool:
        """Whether some position of the axis can go."""
        return any(int(g) not in self._tied for g in np.unique(self.groups(slot)))

    def kept(self, groups: Array) -> dict[Slot, Array]:
        """For each axis that loses something without these groups, the positions that stay."""
        gone = np.isin(self.labels, groups)
        found = {}
        for slot, start in self.starts.items():
            mask = gone[start : start + self.sizes[slot]]
            if mask.any():
                found[slot] = np.flatnonzero(~mask)
        return found


def moved_from(node: Node, operands: list[Node]) -> Iterator[tuple[Node, Array, tuple[int, ...]]]:
    """Where the elements of an op that only moves elements come from: (operand, source, shape).
    ``source``, shaped as the result, holds flat positions in the operand, or -1. Named sizes are
    taken as small numbers. Raises ArgumentError for an op that chooses by what the elements are."""
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
    if not (is_moved | (result == other)).all():  # neither moved nor a number of the op's own
        raise ArgumentError(f"{node.describe()} chooses by what the elements are")
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
    """The axis, counted from the front. Raises ArgumentError for one that there is not, and for a
    node without a type."""
    if not isinstance(node.type, TensorType):
        raise ArgumentError(f"{node.describe()} has no type: trace with input types to {what}")
    rank = node.type.rank
    if not -rank <= axis < rank:
        raise ArgumentError(f"{node.describe()} is {node.type}; it has no axis {axis}")
    return axis % rank


def operands_of(node: Node) -> list[Node]:
    """The nodes that a call reads, each once."""
    return list(dict.fromkeys(nodes_in((node.args, dict(node.kwargs)))))
