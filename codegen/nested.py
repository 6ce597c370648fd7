"""Nested arguments and results of compiled functions, whose C and CUDA code knows arrays only.

In: the traced module, and arguments in the program's structure or results as a flat tuple. Out:
arrays in order of the graph's inputs, and results in the program's structure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxlite.graph import Node, map_nodes
from fxlite.graph_module import GraphModule


def flat_arguments(
    module: GraphModule, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arrays inside nested arguments, in order of the graph's inputs; other arguments as they
    are. Raises ArgumentError naming the path of what does not fit."""
    if module.graph.interface is None:
        return args, kwargs
    values = module.flatten_inputs(module.bind(args, kwargs).arguments)
    return tuple([values[p.target] for p in module.graph.placeholders]), {}


def restructure(module: GraphModule) -> Callable[[Any], Any] | None:
    """How flat results become the program's nested result; None where they are the same."""
    structure = module.graph.output_node().args[0]
    interface = module.graph.interface
    if isinstance(structure, Node):
        return None
    if interface is not None and interface.result is not None:
        return lambda flat: module.rebuild_result(_nested(structure, flat))
    if type(structure) is tuple and all(isinstance(s, Node) for s in structure):
        return None

    return lambda flat: _nested(structure, flat)


def _nested(structure: Any, flat: Any) -> Any:
    """The results of a compiled function in the places of the nodes of ``structure``."""
    values = iter(flat if isinstance(flat, tuple) else (flat,))
    return map_nodes(structure, lambda node: next(values))
