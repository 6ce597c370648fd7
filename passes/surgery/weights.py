"""Weights made from others: tied weights, products of two small ones (low rank), adapters (LoRA).

In: a module and paths of weights. Out: a module in which one array is at all of the paths, as in
PyTorch after ``head.weight = embed.weight``: ``state_dict()`` has all keys, ``named_parameters()`` has
the array once, and an operation that shrinks one (:func:`fxlite.passes.resize`) shrinks all.

In: a module and linear layers. Out: a module with two weights in place of one, or beside it. Paths of
new weights follow that of the layer: ``fc.weight`` becomes ``fc.low_rank_in.weight`` and
``fc.low_rank_out.weight``; those of an adapter are ``fc.lora_A.weight`` and ``fc.lora_B.weight``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite import nn, ops
from fxlite.base.checked import checked
from fxlite.base.errors import ArgumentError, DTypeError, ShapeError, did_you_mean
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.nn import functional as F
from fxlite.nn.module import Parameter
from fxlite.passes.base import as_module, graph_pass, unique_attribute
from fxlite.passes.ledger import refuse
from fxlite.passes.rewrite.rule import is_call
from fxlite.passes.surgery.places import nodes_at
from fxlite.types.tensor_type import type_of


@checked
def tie_weights(gm: Any, weight: str, *others: str) -> GraphModule:
    """A module in which the weights at ``others`` are the weight at ``weight``::

        tied = passes.tie_weights(gm, "embed.weight", "head.weight")

    ``gm`` is left as it was; ``tied.undo()`` reverts it. The values of ``others`` are lost, so results
    change. Raises ArgumentError for a path at which no weight is read, and ShapeError or DTypeError
    for weights of different types."""
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
    """A module in which each weight that is tied to the one at ``weight`` is a separate copy under its
    own path: the inverse of :func:`tie_weights`, except that values that were lost stay lost.

    A traced model whose layers share a parameter reads it at one path. Each further layer gets a
    copy under its own path, such as ``head.weight`` for the layer ``head`` that reads
    ``embed.weight``; calls of the same layer keep sharing. The results stay the same. Raises
    ArgumentError for a path at which no weight is read, and for a weight that is not tied."""
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
    """All paths at which the graph reads the array at ``weight``, including that one."""
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


# -- low rank and adapters -------------------------------------------------------------------------
def _has_weight(node: Node) -> bool:
    weight = node.args[1] if is_call(node, "linear") else None
    return isinstance(weight, Node) and weight.op == "get_attr" and weight.type.dtype.is_float


def _linears(gm: GraphModule, where: Any) -> list[Node]:
    """The linear layers at ``where``. Raises ArgumentError for nodes that are not linear layers."""
    if where is None:
        return [n for n in gm.graph.nodes if _has_weight(n)]
    for node in nodes_at(gm, where):
        if not _has_weight(node):
            raise ArgumentError(f"{node.describe()} is not a linear layer with a float weight of its own")
    return nodes_at(gm, where)


def _require_rank(rank: int) -> None:
    if rank < 1:
        raise ArgumentError(f"rank= is at least 1, not {rank}")


def _weight(gm: GraphModule, node: Node) -> Any:
    return np.asarray(gm.get_attribute(node.args[1].target))


def _new_weight(gm: GraphModule, node: Node, name: str, value: Any) -> Node:
    """A new parameter next to the weight of a layer, read at the current insertion point."""
    beside = ".".join([*node.args[1].target.split(".")[:-1], name])
    path = unique_attribute(gm, beside)
    dtype = node.args[1].type.dtype.numpy
    gm.set_attribute(path, Parameter(np.ascontiguousarray(value.astype(dtype))))
    return gm.graph.get_attr(path)


@graph_pass(exactness="changes", inside=False)
def low_rank(gm: GraphModule, where: Any = None, rank: int = 8) -> None:
    """Replace weights of linear layers with products of two factors, the best approximation of that rank.

    ``where`` names linear layers, by default all. A weight [out, in] becomes [out, rank] and
    [rank, in] by its singular value decomposition (Eckart and Young, 1936). Layers for which that
    does not save work, rank * (in + out) >= in * out, stay; the ledger lists them."""
    _require_rank(rank)
    graph = gm.graph
    for node in _linears(gm, where):
        weight = _weight(gm, node).astype(np.float64)
        out, inner = weight.shape
        if rank * (out + inner) >= out * inner:
            numbers = f"rank {rank} takes {rank * (out + inner)} numbers, the weight {out * inner}"
            refuse(gm, "low_rank", node, numbers, [node])
            continue
        left, values, right = np.linalg.svd(weight, full_matrices=False)
        root = np.sqrt(values[:rank])
        with graph.inserting_before(node), graph.with_origin(node):
            down = _new_weight(gm, node, "low_rank_in.weight", root[:, None] * right[:rank])
            up = _new_weight(gm, node, "low_rank_out.weight", left[:, :rank] * root)
            inside = graph.call_function(ops.linear, (node.args[0], down))
        node.args = (inside, up, *node.args[2:])
    graph.eliminate_dead_code()
    gm.delete_all_unused_submodules()


# -- adapters --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Adapter:
    """``total`` is ``linear(x, W, b) + linear(linear(x, A), B) * scale``."""

    total: Node
    layer: Node
    down: Node
    up: Node
    scale: float


def _adapters(gm: GraphModule) -> dict[Node, _Adapter]:
    """The adapters by layer."""
    found = {}
    for total in gm.graph.find_nodes(op="call_function", target="add"):
        layer, scaled = total.args
        if not _has_weight(layer) or not is_call(scaled, "mul"):
            continue
        outside, scale = scaled.args
        inside = outside.args[0] if _has_weight(outside) else None
        if not isinstance(inside, Node) or not _has_weight(inside):
            continue
        down, up = inside.args[1], outside.args[1]
        if inside.args[0] is layer.args[0] and "lora_A" in down.target and "lora_B" in up.target:
            found[layer] = _Adapter(total, layer, down, up, scale)
    return found


def _adapters_at(gm: GraphModule, where: Any) -> list[_Adapter]:
    """The adapters of the layers at ``where``, by default all. Raises ArgumentError for a layer
    without one, and if there is none at all."""
    found = _adapters(gm)
    if not found:
        raise ArgumentError(f"{gm.name} has no adapters: add_lora makes them")
    layers = list(found) if where is None else _linears(gm, where)
    for layer in layers:
        if layer not in found:
            raise ArgumentError(f"{layer.describe()} has no adapter")
    return [found[layer] for layer in layers]


@checked
def add_lora(gm: Any, where: Any = None, rank: int = 8, alpha: float = 16.0, *, seed: int = 0) -> GraphModule:
    """A module with adapters beside the linear layers at ``where``, by default all:
    ``linear(x) + B(A(x)) * alpha / rank``. A [rank, in] is drawn uniformly from -1/sqrt(in) to
    1/sqrt(in), and B [out, rank] is zero, so that the module computes what ``gm`` does until the
    adapters are trained or loaded (E. Hu et al., "LoRA", 2021). The weights of ``gm`` stay and keep
    their names.

    :func:`merge_lora` adds adapters to the weights, :func:`remove_lora` removes them. Raises
    ArgumentError for a node that is not a linear layer with a weight of its own, and for one that has
    an adapter already."""
    _require_rank(rank)
    made = as_module(gm).copy()
    graph, generator = made.graph, np.random.default_rng(seed)
    nodes = _linears(made, where)
    if not nodes:
        raise ArgumentError(f"{made.name} has no linear layers with weights of their own")
    adapted = _adapters(made)
    for node in nodes:
        if node in adapted:
            raise ArgumentError(f"{node.describe()} has an adapter; remove_lora takes it off")
    with graph.transaction("add_lora"):
        for node in nodes:
            out, inner = _weight(made, node).shape
            low = generator.uniform(-1, 1, (rank, inner)) / math.sqrt(inner)
            with graph.inserting_before(node.next), graph.with_origin(node):
                down = _new_weight(made, node, "lora_A.weight", low)
                up = _new_weight(made, node, "lora_B.weight", np.zeros((out, rank)))
                inside = graph.call_function(ops.linear, (node.args[0], down))
                outside = graph.call_function(ops.linear, (inside, up))
                scaled = graph.call_function(ops.mul, (outside, alpha / rank))
                total = graph.call_function(ops.add, (node, scaled))
            node.replace_all_uses_with(total)
    return made


@checked
def merge_lora(gm: GraphModule, where: Any = None) -> GraphModule:
    """A module in which the adapters are added to the weights of their layers, ``W + B A alpha /
    rank``, and removed. It computes the same up to rounding. Raises ArgumentError for layers without
    an adapter, and for a weight that others read as well."""
    made = gm.copy()
    found = _adapters_at(made, where)
    for each in found:
        target = each.layer.args[1].target
        paths = tied_paths(made, target)
        reads = [n for n in made.graph.find_nodes(op="get_attr") if n.target in paths]
        readers = {user for node in reads for user in node.users}
        if len(readers) > 1:
            names = ", ".join(sorted(n.name for n in readers))
            raise ArgumentError(f"{target} is read by {names}: the adapter is for one of them")
    with made.graph.transaction("merge_lora"):
        for each in found:
            weight = _weight(made, each.layer)
            down, up = (np.asarray(made.get_attribute(n.target)) for n in (each.down, each.up))
            product = up.astype(np.float64) @ down.astype(np.float64) * each.scale
            merged = (weight.astype(np.float64) + product).astype(weight.dtype)
            made.set_attribute(each.layer.args[1].target, Parameter(merged))
        _take_off(made, found)
    return made


@checked
def remove_lora(gm: GraphModule, where: Any = None) -> GraphModule:
    """A module without the adapters of the layers at ``where``, by default all: the inverse of
    :func:`add_lora`. Raises ArgumentError for layers without an adapter."""
    made = gm.copy()
    with made.graph.transaction("remove_lora"):
        _take_off(made, _adapters_at(made, where))
    return made


def _take_off(gm: GraphModule, adapters: list[_Adapter]) -> None:
    for each in adapters:
        each.total.replace_all_uses_with(each.layer)
    gm.graph.eliminate_dead_code()
    gm.delete_all_unused_submodules()


# -- examples --------------------------------------------------------------------------------------
class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(32, 24)

    def forward(self, x: Any) -> Any:
        return self.fc(x)


low_rank.example(_Layer, "768 numbers become 448", x="f32[B,32]")
low_rank.counterexample(lambda x, w: F.linear(x, w), "the weight is an input", x="f32[B,32]", w="f32[24,32]")
