"""Which weights each node of a graph reads, and how large they are.

In: a GraphModule. Out: for each call the :class:`Weight` objects it reads directly; two paths to
one array are one weight.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.nn.module import Parameter


@dataclass(frozen=True)
class Weight:
    """An array that a program owns: elements, bytes, and whether it is a parameter (else a buffer:
    running statistics, constants)."""

    path: str
    size: int
    nbytes: int
    is_parameter: bool


def weights_by_node(module: GraphModule) -> dict[Node, tuple[Weight, ...]]:
    """The weights that each call reads, those of a leaf module included; calls that read none are
    left out."""
    known: dict[int, Weight] = {}
    of_path: dict[str, Weight] = {}
    found: dict[Node, tuple[Weight, ...]] = {}

    def weight(path: str, array: Any) -> Weight:
        if id(array) not in known:
            is_parameter = isinstance(array, Parameter) and array.is_parameter
            known[id(array)] = Weight(path, int(array.size), int(array.nbytes), is_parameter)
        return known[id(array)]

    for node in module.graph.nodes:
        if node.op == "get_attr":
            of_path[node.target] = weight(node.target, module.get_attribute(node.target))
            continue
        read = [of_path[used.target] for used in node.all_input_nodes if used.op == "get_attr"]
        if node.op == "call_module":
            leaf = module.get_submodule(node.target)
            for named in (leaf.named_parameters(), leaf.named_buffers()):
                read += [weight(f"{node.target}.{name}", array) for name, array in named]
        if read and node.op != "output":
            found[node] = tuple(dict.fromkeys(read))
    return found


def weights_of(nodes: Iterable[Node], by_node: dict[Node, tuple[Weight, ...]]) -> list[Weight]:
    """The weights that any of the nodes read, each once."""
    return list(dict.fromkeys(w for node in nodes for w in by_node.get(node, ())))
