"""Disjoint sets of nodes, which grow together: union-find with path halving (Tarjan and van Leeuwen,
"Worst-case analysis of set union algorithms", 1984).

In: nodes that belong together. Out: one node of each set, which stands for all of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from fxlite.graph.node import Node


class DisjointSets:
    """Each node is a set of its own until it is joined with others."""

    def __init__(self) -> None:
        self._above: dict[Node, Node] = {}

    def find(self, node: Node) -> Node:
        """The node that stands for the set of this one."""
        above = self._above
        while (up := above.get(node, node)) is not node:
            above[node] = above.get(up, up)
            node = up
        return node

    def join(self, node: Node, others: Iterable[Node]) -> None:
        """Make one set of those of a node and of others."""
        for other in others:
            self._above[self.find(other)] = self.find(node)
