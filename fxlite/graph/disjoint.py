"""Disjoint sets of nodes that are merged step by step: union-find with path halving (Tarjan and van
Leeuwen, "Worst-case analysis of set union algorithms", 1984).

In: nodes that belong together. Out: for each set, the node that represents it.
"""

from __future__ import annotations

from collections.abc import Iterable

from fxlite.graph.node import Node


class DisjointSets:
    """Each node forms a set of its own until it is joined with others."""

    def __init__(self) -> None:
        self._above: dict[Node, Node] = {}

    def find(self, node: Node) -> Node:
        """The node that represents the set of ``node``."""
        above = self._above
        while (up := above.get(node, node)) is not node:
            above[node] = above.get(up, up)
            node = up
        return node

    def join(self, node: Node, others: Iterable[Node]) -> None:
        """Merge the set of ``node`` with the sets of ``others``."""
        for other in others:
            self._above[self.find(other)] = self.find(node)
