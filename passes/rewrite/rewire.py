"""Replacing many nodes at once, in time linear in the graph.

``node.replace_all_uses_with`` rewrites a reader once for each input that changes, which is quadratic
for a concat of thousands of values. A :class:`Rewiring` collects replacements and remembers their
readers; a pass walks the nodes in order and refreshes each one before looking at it, so every reader
is rewritten once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fxlite.graph.graph import Graph, Node, map_nodes


class Rewiring:
    """Replacements of nodes by nodes (or, for a node with several results, by a tuple of nodes).

    ``waiting`` maps a node to the readers it will get when they are refreshed."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.new: dict[Node, Any] = {}
        self.waiting: dict[Node, dict[Node, None]] = {}
        self._stale: dict[Node, None] = {}  # readers of replaced nodes

    def replace(self, old: Node, new: Any) -> None:
        """Replace ``old`` by ``new``, which is computed before it."""
        self.new[old] = new
        readers = self.waiting.pop(old, None) or {}
        for user in old.users:
            readers[user] = None
            self._stale[user] = None
        if readers and isinstance(new, Node):
            if new in self.waiting:
                self.waiting[new].update(readers)
            else:
                self.waiting[new] = readers

    def current(self, node: Node) -> Any:
        """The value that currently replaces a node; follows chains of replacements."""
        if node not in self.new:
            return node
        path: list[Node] = []
        value: Any = node
        while isinstance(value, Node) and value in self.new:
            path.append(value)
            value = self.new[value]
        for step in path:
            self.new[step] = value
        return value

    def take_element(self, node: Node) -> bool:
        """Replace a ``getitem`` of a node that was replaced by several by one of these; False for other nodes."""
        if node.op != "call_function" or node.target.name != "getitem" or not node.args:
            return False
        source = self.current(node.args[0])
        if not isinstance(source, (tuple, list)):
            return False
        self.replace(node, source[node.kwargs["index"]])
        return True

    def refresh(self, node: Node) -> None:
        """Make ``node`` read the replacements."""
        if node not in self._stale:
            return
        del self._stale[node]
        if node._erased:
            return
        args, kwargs = map_nodes(node.args, self.current), node.kwargs
        if node.op != "call_function":  # the attributes of an op hold no nodes
            kwargs = map_nodes(kwargs, self.current)
        node._set_arguments(args, kwargs)
        if self.waiting:
            for used in node.all_input_nodes:
                readers = self.waiting.get(used)
                if readers is not None:
                    readers.pop(node, None)
                    if not readers:
                        del self.waiting[used]

    def finish(self) -> None:
        """Refresh the remaining readers, then erase the replaced nodes together with the nodes that only
        they read."""
        self.refresh_all()
        inputs: list[Node] = []
        for node in [n for n in self.graph.nodes if n in self.new][::-1] if self.new else ():
            inputs.extend(node.all_input_nodes)
            self.graph.erase_node(node)
        erase_dead(inputs)

    def refresh_all(self) -> None:
        """Refresh every reader of a replaced node that is not replaced itself."""
        for old in self.new:
            for user in old.users:
                if user not in self.new:
                    self._stale[user] = None
        for node in list(self._stale):
            if node not in self.new:
                self.refresh(node)


def erase_dead(nodes: list[Node]) -> list[Node]:
    """Erase those of ``nodes`` that nobody reads, and then the nodes that only they read. Weights stay.
    Returns the inputs of the erased nodes."""
    lost: list[Node] = []
    while nodes:
        node = nodes.pop()
        if node._erased or node.users or node.is_impure() or node.op == "get_attr":
            continue
        nodes.extend(node.all_input_nodes)
        lost.extend(node.all_input_nodes)
        node.graph.erase_node(node)
    return lost


def needed_by(nodes: Iterable[Node]) -> set[Node]:
    """These nodes and all their dependencies."""
    found: set[Node] = set()
    work = list(nodes)
    while work:
        node = work.pop()
        if node not in found:
            found.add(node)
            work.extend(node.all_input_nodes)
    return found
