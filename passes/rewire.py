"""Replacing many nodes at once, in time linear in the graph.

``node.replace_all_uses_with`` rewrites a reader once for each input that changes: quadratic for a
concat of thousands of values. A :class:`Rewiring` collects replacements; a pass walks the nodes
in order and refreshes each one before it looks at it, so every reader is rewritten once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fxlite.graph import Graph, Node, map_nodes


class Rewiring:
    """Replacements of nodes by nodes (or, for a node with several results, by a tuple of nodes)."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.new: dict[Node, Any] = {}

    def __contains__(self, node: object) -> bool:
        return node in self.new

    def replace(self, old: Node, new: Any) -> None:
        """From now on ``old`` stands for ``new``, which is computed before it."""
        self.new[old] = new

    def current(self, node: Node) -> Any:
        """What a node stands for now; follows chains of replacements."""
        path: list[Node] = []
        value: Any = node
        while isinstance(value, Node) and value in self.new:
            path.append(value)
            value = self.new[value]
        for step in path:
            self.new[step] = value
        return value

    def refresh(self, node: Node) -> bool:
        """Let ``node`` read the replacements. True if anything changed."""
        if not self.new or not any(used in self.new for used in node.all_input_nodes):
            return False
        args, kwargs = map_nodes(node.args, self.current), map_nodes(node.kwargs, self.current)
        node._set_arguments(args, kwargs)
        return True

    def finish(self, also_dead: Iterable[Node] = ()) -> None:
        """Refresh what was not looked at since, then erase the replaced nodes, and those of
        ``also_dead`` that nobody reads, with the nodes only they read."""
        replaced: list[Node] = []
        for node in self.graph.nodes:
            if node in self.new:
                replaced.append(node)
            else:
                self.refresh(node)
        inputs = [*also_dead]
        for node in reversed(replaced):
            inputs.extend(node.all_input_nodes)
            self.graph.erase_node(node)
        erase_dead(inputs)


def erase_dead(nodes: list[Node]) -> None:
    """Erase those of ``nodes`` that nobody reads, and then what only they read. Weights stay."""
    while nodes:
        node = nodes.pop()
        if node._erased or node.users or node.is_impure() or node.op == "get_attr":
            continue
        nodes.extend(node.all_input_nodes)
        node.graph.erase_node(node)
