"""Weights of one node, read and exchanged: what the accuracy helpers share."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fxlite.graph import Node
from fxlite.graph_module import GraphModule
from fxlite.passes.base import store_weight

_PLACES = {"weight": 1, "bias": 2}


def exchange_weight(
    module: GraphModule, node: Node, name: str, value: Any, readers: Counter[str], suffix: str
) -> None:
    """Let a product or norm read ``value`` as its "weight" or "bias", which it may have lacked.
    Arrays that others read stay as they are (``readers`` counts the get_attr nodes of a path)."""
    old = node.arguments.get(name)
    wish = old.target if old is not None else _sibling(node, name)
    graph = module.graph
    with graph.inserting_before(node), graph.with_origin(node):
        new = store_weight(module, old, wish, value, readers, suffix)
    place = _PLACES[name]
    kwargs = {k: v for k, v in node.kwargs.items() if k != name}
    node._set_arguments((*node.args[:place], new, *node.args[place + 1 :]), kwargs)
    if old is not None and not old.users:
        graph.erase_node(old)


def _sibling(node: Node, name: str) -> str:
    """A path beside the node's weight."""
    owner = node.arguments["weight"].target.rpartition(".")[0]
    return f"{owner}.{name}" if owner else f"{node.name}_{name}"
