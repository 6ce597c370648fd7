"""Associativity in patterns: ``a + b + c`` also matches ``x + (y + z)``.

In: a traced pattern. Out: its chains, and :class:`Chain`, the step of the matcher that reads the
same number of operands off any tree of the same op. Maximum, minimum and logic are associative as
they stand, sums and products of integers too; with floats another grouping rounds differently and
is matched only where the caller allows it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fxlite.graph.graph import Graph, Node
from fxlite.ops.op import Op
from fxlite.types.tensor_type import TensorType

if TYPE_CHECKING:
    from fxlite.passes.rewrite.matcher import Steps

_LONGEST = 5  # operands of a chain: there are n! orders
_ROUNDING = ("+", "*")  # associative on integers, up to rounding on floats


@dataclass
class ChainOf:
    """Calls of one associative op whose values only the next one reads, and their operands."""

    inner: list[Node]
    operands: list[Any]


def chains(graph: Graph, results: list[Node]) -> dict[Node, ChainOf]:
    """The chains of a pattern, by the node that computes their result."""
    found: dict[Node, ChainOf] = {}
    for node in graph.nodes:
        if not (isinstance(node.target, Op) and node.target.associative and len(node.args) == 2):
            continue
        inner: list[Node] = []
        operands: list[Any] = []
        for value in node.args:
            chain = found.get(value) if isinstance(value, Node) else None
            is_link = isinstance(value, Node) and value.target is node.target
            if is_link and len(value.users) == 1 and value not in results:
                inner.extend([value, *(chain.inner if chain else ())])
                operands.extend(chain.operands if chain else value.args)
            else:
                operands.append(value)
        if inner and len(operands) <= _LONGEST:
            for link in inner:
                found.pop(link, None)
            found[node] = ChainOf(inner, operands)
    return found


class Chain:
    """The step of a chain: all ways to read its operands off a tree of the same op."""

    def __init__(self, node: Node, slot: int, chain: ChainOf, allowed: bool) -> None:
        self.node = node
        self.slot = slot
        self.allowed = allowed
        self.inner: list[int] = []
        self.operands: tuple[Any, ...] = ()

    def options(self, slots: list[Any], steps: Steps, every: bool) -> Any:
        from fxlite.passes.rewrite.matcher import plausible

        root: Node = slots[self.slot]
        if not self.allowed and root.target.symbol in _ROUNDING and not _is_exact(root):
            return ()
        return (
            (*order, *inner)
            for leaves, inner in _trees(root, len(self.operands), steps.around.barred)
            for order in _orders(leaves, root.target.commutative)
            if all(map(plausible, self.operands, order))
        )


def _orders(leaves: tuple[Any, ...], commutative: bool) -> Iterator[tuple[Any, ...]]:
    return itertools.permutations(leaves) if commutative else iter((leaves,))


def _trees(root: Node, count: int, barred: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Operands and inner nodes of every tree of ``root``'s op with ``count`` operands whose inner
    values have one reader and the dtype of the whole."""
    work: list[tuple[tuple[Any, ...], tuple[Node, ...], int]] = [(tuple(root.args), (), 0)]
    while work:
        leaves, inner, start = work.pop()
        if len(leaves) == count:
            if all(_same_dtype(leaf, root) for leaf in leaves):
                yield leaves, inner
            continue
        for i in reversed(range(start, len(leaves))):
            leaf = leaves[i]
            if (
                isinstance(leaf, Node)
                and leaf.target is root.target
                and leaf not in barred
                and len(leaf.users) == 1
                and _same_dtype(leaf, root)
            ):
                opened = (*leaves[:i], *leaf.args, *leaves[i + 1 :])
                work.append((opened, (*inner, leaf), i))


def _same_dtype(value: Any, root: Node) -> bool:
    """True for numbers, and in a graph without types."""
    if not isinstance(value, Node) or not isinstance(root.type, TensorType):
        return True
    return isinstance(value.type, TensorType) and value.type.dtype == root.type.dtype


def _is_exact(node: Node) -> bool:
    return isinstance(node.type, TensorType) and not node.type.dtype.is_float
