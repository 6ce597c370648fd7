"""Weights that are one: tying parameters, and giving each reader one of its own again.

In: a module and paths of weights. Out: a module in which one array is at all of them, as in PyTorch
after ``head.weight = embed.weight``: ``state_dict()`` has all keys, ``named_parameters()`` the
array once, and what shrinks one (:func:`fxlite.passes.resize`) shrinks all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.base.checked import checked
from fxlite.base.errors import ArgumentError, DTypeError, ShapeError, did_you_mean
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.nn.module import Parameter
from fxlite.passes.base import as_module, unique_attribute
from fxlite.types.tensor_type import type_of


@checked
def tie_weights(gm: Any, weight: str, *others: str) -> GraphModule:
    """A module in which the weights at ``others`` are the one at ``weight``::

        tied = passes.tie_weights(gm, "embed.weight", "head.weight")

    ``gm`` is left as it was; ``tied.undo()`` takes it back. Values of ``others`` are lost, so that
    results change. Raises ArgumentError for a path at which no weight is read, ShapeError and
    DTypeError for weights of other types."""
    made = as_module(gm).copy()
    if not others:
        raise ArgumentError(f"give the weights that become {weight}, too")
    reads = {path: _readers(made, path)[0] for path in (weight, *others)}
    value, type = made.get_attribute(weight), type_of(made.get_attribute(weight))
    for path in others:
        other = type_of(made.get_attribute(path))
        if other != type:
            kind = DTypeError if other.shape == type.shape else ShapeError
            raise kind(f"{path} is {other}, {weight} is {type}: one array cannot be both ({reads[path].describe()})")
    with made.graph.transaction("tie_weights"):
        made.set_attributes(dict.fromkeys(others, value))
    return made


@checked
def untie_weights(gm: Any, weight: str) -> GraphModule:
    """A module in which each of the weights that are tied to the one at ``weight`` is a copy of its
    own, under its own path: the inverse of :func:`tie_weights`, but for the values.

    A traced model whose layers share a parameter reads it at one path. Each further layer gets a
    copy under the path it has there, ``head.weight`` for the layer ``head`` that reads
    ``embed.weight``; calls of the same layer keep sharing. What the module computes stays.
    Raises ArgumentError for a path at which no weight is read, and for one that is not tied."""
    made = as_module(gm).copy()
    nodes = _readers(made, weight)
    value, is_tied = made.get_attribute(weight), False
    graph = made.graph
    with graph.transaction("untie_weights"):
        for path in tied_paths(made, weight):
            if path != weight:
                is_tied = True
                made.set_attribute(path, _copy(value))
        own = weight.rpartition(".")[0]
        readers = [u for u in graph.nodes if any(n in nodes for n in u.all_input_nodes)]
        first = own if any(u.module_path == own for u in readers) else readers[0].module_path
        new: dict[str, str] = {}
        for user in readers:
            scope = user.module_path
            if scope == first:
                continue
            is_tied = True
            if scope not in new:
                wish = [part for part in (scope, weight.rpartition(".")[2]) if part]
                new[scope] = unique_attribute(made, ".".join(wish))
                made.set_attribute(new[scope], _copy(value))
            with graph.inserting_before(user), graph.with_origin(user):
                read = graph.get_attr(new[scope])
            for node in [n for n in user.all_input_nodes if n in nodes]:
                user.replace_input_with(node, read)
        if not is_tied:
            raise ArgumentError(
                f"{weight} is not tied: {', '.join(u.name for u in readers)} "
                f"{'reads' if len(readers) == 1 else 'read'} it, and no other path holds it"
            )
        for node in nodes:
            if not node.users:
                graph.erase_node(node)
    return made


def tied_paths(gm: GraphModule, weight: str) -> list[str]:
    """All paths at which the graph reads the array that is at ``weight``, itself included."""
    value = gm.get_attribute(weight)
    paths = dict.fromkeys(n.target for n in gm.graph.find_nodes(op="get_attr"))
    return [path for path in paths if gm.get_attribute(path) is value]


def _readers(gm: GraphModule, path: str) -> list[Node]:
    """The get_attr nodes of a path. Raises ArgumentError where there are none."""
    reads = gm.graph.find_nodes(op="get_attr")
    found = [n for n in reads if n.target == path]
    if not found:
        near = did_you_mean(path, {n.target for n in reads})
        raise ArgumentError(f"{gm.name} reads no weight {path!r}{near}")
    return found


def _copy(value: Any) -> Any:
    array = np.array(value)
    is_parameter = isinstance(value, Parameter) and value.is_parameter
    return Parameter(array, value.requires_grad) if is_parameter else array
