"""Loops and conditions in pictures: boxes, as modules are, with the calls of their bodies inside.

In: a graph. Out: one for the picture alone, in which the calls of all bodies stand where the loop
or condition does: what a body is given is what it is given first, and its results are those of its
last calls. It is no program.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxlite.base.location import Scope
from fxlite.graph.graph import Graph, Node, map_nodes
from fxlite.graph.node import new_node, stored_args, stored_kwargs
from fxlite.graph.subgraph import SubGraph, bodies_of
from fxlite.ops.control import BODIES
from fxlite.ops.op import lookup

#: What the boxes of the bodies are called.
_TITLES = {"true_fn": "if", "false_fn": "else", "cond_fn": "while", "body_fn": "do"}


def with_open_bodies(graph: Graph) -> tuple[Graph, dict[Node, Node]]:
    """The graph for a picture, and its nodes by those of ``graph``; the graph itself, and none,
    where nothing has a body."""
    if not any(bodies_of(node) for node in graph.nodes):
        return graph, {}
    return _Opened(graph).graph()


class _Opened:
    def __init__(self, graph: Graph) -> None:
        self.source = graph
        self.made = Graph(graph.owning_module)

    def graph(self) -> tuple[Graph, dict[Node, Node]]:
        """All nodes, in order."""
        known: dict[Node, Node] = {}
        self.copy(list(self.source.nodes), known, None)
        return self.made, known

    def copy(self, nodes: Sequence[Node], known: dict[Node, Node], around: Scope | None) -> None:
        """Append nodes to the graph, bodies in boxes; ``known`` are those that stand for others."""
        for node in nodes:
            if node in known:
                continue
            if bodies_of(node):
                self.open(node, known, around)
            else:
                known[node] = self.append(node, known, around)

    def append(self, node: Node, known: dict[Node, Node], around: Scope | None) -> Node:
        args = stored_args(map_nodes(node._args, known.__getitem__))
        kwargs = node._kwargs
        if node.op != "call_function":
            kwargs = stored_kwargs(map_nodes(kwargs, known.__getitem__))
        name = self.made._store.namer.unique(node.name)
        scope = around or node.scope
        made = new_node(self.made, name, node.op, node.target, args, kwargs, node.type, scope, node.loc)
        self.made._store.attach(made, self.made._store.root)
        return made

    def open(self, node: Node, known: dict[Node, Node], around: Scope | None) -> None:
        """The calls of a node's bodies, and its results, which are elements of a tuple."""
        outer = around or node.scope
        prefix = f"{outer.path}." if outer is not None and outer.path else ""
        carried = node.arguments.get("carried", ())
        captured = node.arguments.get(BODIES[node.target][1], ())
        results: list[Node] = []
        for name, body in bodies_of(node).items():
            path = f"{prefix}{node.name}"
            box = Scope(f"{path}.{_TITLES[name]}" if name != "body_fn" else path, _title(node))
            given = self._given(node, body, (*carried, *captured), known, box)
            self.copy(body.calls, given, box)
            results += [given[r] for r in body.results]
        read = tuple(dict.fromkeys([*(known[n] for n in node.args[:1] if isinstance(n, Node)), *results]))
        name = self.made._store.namer.unique(node.name)
        merged = new_node(
            self.made,
            name,
            "call_function",
            node.target,
            stored_args((read,)),
            stored_kwargs({}),
            node.type,
            outer,
            node.loc,
        )
        self.made._store.attach(merged, self.made._store.root)
        known[node] = merged

    def _given(
        self, node: Node, body: SubGraph, values: Sequence[Node], known: dict[Node, Node], box: Scope
    ) -> dict[Node, Node]:
        given: dict[Node, Node] = {}
        lead = len(body.inputs) - len(values)
        for inner in body.inputs[:lead]:  # the number of an iteration
            name = self.made._store.namer.unique(inner.name)
            made = new_node(
                self.made,
                name,
                "call_function",
                lookup("arange"),
                (),
                stored_kwargs({"start": 0}),
                inner.type,
                box,
                node.loc,
            )
            self.made._store.attach(made, self.made._store.root)
            given[inner] = made
        for inner, outer in zip(body.inputs[lead:], values):
            given[inner] = known[outer]
        return given


def _title(node: Node) -> str:
    return "If" if "true_fn" in node._kwargs else "Loop"
