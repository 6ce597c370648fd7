"""Weights of one node exchanged for others: what the accuracy helpers share."""

from __future__ import annotations

from typing import Any

from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.nn.module import Parameter
from fxlite.passes.base import unique_attribute

_PLACES = {"weight": 1, "bias": 2}


def exchange_weight(module: GraphModule, node: Node, name: str, value: Any, suffix: str) -> None:
    """Let a layer or norm read ``value`` as its "weight" or "bias", which it may have lacked. It is
    stored beside the old one under that one's name with the suffix, so that the graph shows what
    was done, and other readers of the old one keep it."""
    old = node.arguments.get(name)
    wish = f"{old.target}_{suffix}" if old is not None else _sibling(node, name)
    target = unique_attribute(module, wish)
    module.set_attribute(target, Parameter(value))
    graph, place = module.graph, _PLACES[name]
    with graph.inserting_before(node), graph.with_origin(node):
        new = graph.get_attr(target)
    kwargs = {k: v for k, v in node.kwargs.items() if k != name}
    node._set_arguments((*node.args[:place], new, *node.args[place + 1 :]), kwargs)
    if old is not None and not old.users:
        graph.erase_node(old)


def _sibling(node: Node, name: str) -> str:
    """A path beside the node's weight."""
    owner = node.arguments["weight"].target.rpartition(".")[0]
    return f"{owner}.{name}" if owner else f"{node.name}_{name}"
