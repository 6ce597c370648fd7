"""Modules that some of a class have and others have not, such as the convolution beside a block of
a ResNet whose shape changes.

In: the GraphModules of two modules, of which one calls a child that the other lacks. Out: the other
one with calls of modules that give back what they are given in the same place, so that both are
instances of one class.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule


def with_children(lacking: GraphModule, having: GraphModule, parts: Sequence[str]) -> GraphModule | None:
    """A copy of the one module that calls identities where the other calls its children ``parts``,
    each one module or a row of them; None where they differ otherwise, numbers apart."""
    calls: list[Node] = []
    for part in parts:
        row = [
            n for n in having.graph.find_nodes(op="call_module") if n.target == part or n.target.startswith(f"{part}.")
        ]
        if not row or any(len(n.args) != 1 or isinstance(n.type, tuple) for n in row):
            return None
        if any([*a.users] != [b] for a, b in itertools.pairwise(row)):
            return None
        calls += row
    made = lacking.copy()
    mine = iter([n for n in made.graph.nodes if n.op != "get_attr"])
    same: dict[Node, Node] = {}
    given: dict[Node, Node] = {}  # what a call stands for in the module that lacks it
    last: Node | None = None  # the node of the copy that was met last
    for node in having.graph.nodes:
        if node.op == "get_attr":
            continue
        if node in calls:
            source = node.args[0]
            if source not in same or last is None:
                return None
            given[node] = given.get(source, same[source])
            made.set_attribute(node.target, _identity(same[source]))
            with made.graph.inserting_after(last), made.graph.with_origin(node):
                last = same[node] = made.graph.call_module(node.target, (same[source],), {}, same[source].type)
            continue
        own = next(mine, None)
        if own is None or (own.op, _called(own)) != (node.op, _called(node)):
            return None
        same[node] = own
        arguments = _merged(node.args, own.args, same, given)
        if arguments is None or _merged(node.kwargs, own.kwargs, same, given) is None:
            return None
        if arguments != own.args:
            own.args = arguments
        last = own
    return made if next(mine, None) is None else None


def _called(node: Node) -> Any:
    return node.target if node.op.startswith("call_") else ""


def _identity(value: Node) -> GraphModule:
    graph = Graph()
    graph.output(graph.placeholder("x", value.type))
    return GraphModule({}, graph, "Identity")


def _merged(theirs: Any, own: Any, same: dict[Node, Node], given: dict[Node, Node]) -> Any:
    """One's own arguments, with results of children where the others read them; None where what is
    read differs."""
    if isinstance(theirs, Node) and isinstance(own, Node):
        if theirs in given:
            return same[theirs] if own is given[theirs] else None
        if theirs.op == "get_attr":
            return own if (own.op, own.target) == (theirs.op, theirs.target) else None
        return own if same.get(theirs) is own else None
    if isinstance(theirs, Node) or isinstance(own, Node):
        return None
    if isinstance(theirs, (tuple, list)) and isinstance(own, (tuple, list)):
        parts = [_merged(a, b, same, given) for a, b in zip(theirs, own)]
        has_gap = any(p is None and b is not None for p, b in zip(parts, own))
        return None if len(theirs) != len(own) or has_gap else tuple(parts)
    if isinstance(theirs, dict) and isinstance(own, dict):
        if theirs.keys() != own.keys():
            return None
        parts = [_merged(theirs[k], own[k], same, given) for k in own]
        return None if any(p is None and v is not None for p, v in zip(parts, own.values())) else own
    return own
