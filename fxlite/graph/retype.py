"""Types follow edits: what reads a value whose type changed is typed anew, and only that.

In: nodes to look at. Out: true types, each change in the journal. The walk goes along the list of
nodes from the first edit, past nodes that no change reaches, and ends as soon as no change is left:
an edit that is absorbed ten nodes further costs ten nodes, not the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fxlite.base.errors import FxliteError
from fxlite.base.facade import above
from fxlite.graph.node import stored_kwargs
from fxlite.graph.size_conflict import at_node
from fxlite.types import shapes
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType, type_of

if TYPE_CHECKING:
    from fxlite.graph.graph import Graph
    from fxlite.graph.node import Node
    from fxlite.nn.module import Module

#: Walks through the list for a graph in which values are read before they are computed, which
#: ``lint`` refuses and edits may pass through.
_MOST_ROUNDS = 8


def retype(graph: Graph, start: Node, waiting: Iterable[Node]) -> None:
    """Type ``waiting``, nodes at ``start`` or after it, and what depends on them. Raises what the
    type rules raise, naming the node."""
    open_nodes = set(waiting)
    node, rounds = start, 0
    while open_nodes:
        if node.op == "root":
            rounds += 1
            if rounds == _MOST_ROUNDS:
                return
        elif node in open_nodes:
            open_nodes.discard(node)
            new = _type_of(graph, node)
            if new != node.type:
                graph._store.set_field(node, "type", new)
                open_nodes.update(node.users)
        node = node._next


def _type_of(graph: Graph, node: Node) -> Any:
    """The type that a node has now; that of an input or of what is missing stays."""
    try:
        if node.op in ("call_function", "output"):
            return graph._infer(node.op, node.target, node._args, node._kwargs)
        owner = graph.owning_module
        if owner is None or node.op == "placeholder":
            return node.type
        if node.op == "get_attr":
            return type_of(owner.get_attribute(node.target))
        return _type_of_leaf(owner.get_submodule(node.target), node)
    except AttributeError:
        if node.op in ("get_attr", "call_module"):
            return node.type  # lint names what is missing
        raise
    except FxliteError as error:
        raise at_node(error, node) from None


def _type_of_leaf(module: Module, node: Node) -> Any:
    """What a leaf module returns now; the type it has where nothing can be said."""
    if not all(isinstance(n.type, TensorType) for n in node.all_input_nodes):
        return node.type
    found = above("leaf_result_type")(module, node._args, dict(node._kwargs))
    return node.type if found is None else found


def infer_types(graph: Graph, inputs: Mapping[Node, Any], dims: Mapping[str, Dim]) -> None:
    """Give inputs other types and infer all others anew, all or nothing. ``dims``: what named dims
    that are written in calls become. Raises what the type rules raise, naming the node."""
    with graph._store.all_or_nothing():
        for node, type in inputs.items():
            graph._store.set_field(node, "type", type)
            if isinstance(type, TensorType):
                _reserve_names(graph, shapes.names(type.shape))
        for node in graph.nodes if dims else ():
            if node.op == "call_function" and any(map(shapes.names, node._kwargs.values())):
                new = {name: shapes.substitute(v, dims) for name, v in node._kwargs.items()}
                graph._store.assign(node, node._args, stored_kwargs(new))
        retype(graph, graph._store.root._next, graph.nodes)


def _reserve_names(graph: Graph, names: frozenset[str]) -> None:
    """A dim and a value never share a name: values give way."""
    if not names.isdisjoint(graph._store.namer.taken):
        for node in graph.nodes:
            if node.name in names:
                graph.rename_node(node, f"{node.name}_1")
    graph._store.namer.taken |= names
