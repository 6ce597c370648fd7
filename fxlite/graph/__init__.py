"""The graph: nodes, their types, edits and checks, and the module that runs it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fxlite.graph.graph import Graph
    from fxlite.graph.graph_module import GraphModule
    from fxlite.graph.interpreter import Interpreter, Transformer
    from fxlite.graph.node import Node

__all__ = ["Graph", "GraphModule", "Interpreter", "Node", "Transformer"]

#: Where the names of the room lie; imported when first used, since these modules import each other.
_MODULES = {
    "Graph": "graph", "Node": "node", "GraphModule": "graph_module", "Interpreter": "interpreter",
    "Transformer": "interpreter",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'fxlite.graph' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"fxlite.graph.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
