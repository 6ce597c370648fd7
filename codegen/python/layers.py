"""Layers of ``fxlite.nn`` in a graph: ``nn.Linear(64, 256)`` for what such a layer computes.

In: the GraphModule of one module of the program, as ``outline_modules`` makes it. Out: the layer's
class and arguments. Arguments are read off the ops' attributes and the shapes of weights; that they
are right is proven by tracing the layer: it has to give the same graph, with the same weights.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite import nn
from fxlite.base.errors import FxliteError
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.nn.module import Module, Parameter
from fxlite.show.comparison.compare import find_difference
from fxlite.tracing.symbolic_trace import symbolic_trace
from fxlite.types.dtypes import dtype
from fxlite.types.tensor_type import TensorType

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Layer:
    """``nn.NAME(**arguments)``; ``state`` are arrays of its that the graph does not read."""

    name: str
    arguments: dict[str, Any]
    state: dict[str, Array]


def layer_of(module: GraphModule) -> Layer | None:
    """The layer that computes what a module of the program does; None where there is none."""
    calls = [n for n in module.graph.nodes if n.op == "call_function"]
    inputs = module.graph.placeholders
    others = {n.op for n in module.graph.nodes} - {"placeholder", "get_attr", "call_function"}
    if len(inputs) != 1 or not calls or others != {"output"} or len(calls) > _MOST_CALLS:
        return None
    reads = module.graph.find_nodes(op="get_attr")
    weights = {n.target: module.get_attribute(n.target) for n in reads}
    known = _known(calls, weights)
    for name in _candidates(module, calls):
        found = _tried(name, module, known, weights)
        if found is not None:
            return found
    return None


_MOST_CALLS = 8  # ops of a layer


def _candidates(module: GraphModule, calls: list[Node]) -> Iterator[str]:
    """Names of layers: that of the class that the program had, and what is called like the op."""
    if module.name in _LAYERS.values():
        yield module.name
    if len(calls) == 1:
        op = calls[0].target.name.replace("_", "")
        rank = calls[0].type.rank if isinstance(calls[0].type, TensorType) else 0
        for key in (op, f"{op}{rank - 2 or 1}d"):
            if _LAYERS.get(key, module.name) != module.name:
                yield _LAYERS[key]


_LAYERS = {
    name.lower(): name
    for name, value in vars(nn).items()
    if isinstance(value, type) and issubclass(value, Module) and value is not Module
}


def _known(calls: list[Node], weights: Mapping[str, Array]) -> dict[str, Any]:
    """What the graph says of a layer's arguments."""
    known: dict[str, Any] = {"bias": "bias" in weights}
    known["affine"] = known["elementwise_affine"] = "weight" in weights
    for node in calls:
        for name, value in node.bound.items():
            if name not in node.target.tensor_kinds and not isinstance(value, Node):
                known["dim" if name == "axis" else name] = _plain(value)
    shape: tuple[int, ...] = weights["weight"].shape if "weight" in weights else ()
    op = calls[0].target.name
    if matrix_sizes(op) and len(shape) == 2:
        known |= dict(zip(matrix_sizes(op), shape))
    elif "groups" in known and len(shape) > 2:
        first, second = shape[0], shape[1] * known["groups"]
        known |= {"out_channels": first, "in_channels": second, "kernel_size": _plain(shape[2:])}
        if "transpose" in op:
            known |= {"in_channels": first, "out_channels": second}
    elif shape:
        known["num_features"] = known["num_channels"] = known["num_parameters"] = shape[0]
        known.setdefault("normalized_shape", _plain(shape))
    if not shape and "running_mean" in weights:
        known["num_features"] = weights["running_mean"].shape[0]
    floats = {dtype(w.dtype).name for w in weights.values()}
    if len(floats) == 1 and floats != {"f32"}:
        known["dtype"] = floats.pop()
    return known


def matrix_sizes(op: str) -> tuple[str, ...]:
    """What the sizes of a matrix are to the layer of an op."""
    if op == "linear":
        return ("out_features", "in_features")
    return ("num_embeddings", "embedding_dim") if op == "embedding" else ()


def size_names(module: GraphModule, value: Any) -> tuple[str, ...]:
    """What the sizes of an array are called in the module of a layer, which is one op."""
    ops = [n.target for n in module.graph.nodes if n.op == "call_function"]
    rank = np.ndim(value)
    if len(ops) != 1:
        return ("size",) * rank
    if matrix_sizes(ops[0].name):
        return matrix_sizes(ops[0].name)[:rank]
    if rank > 2:
        names = ("out_channels", "in_channels")
        return (*(names[::-1] if ops[0].transposes else names), *("kernel_size",) * (rank - 2))
    channels = "out_channels" if ops[0].role == "product" else "num_features"
    return (channels,) if rank == 1 else ("size",) * rank


def _plain(value: Any) -> Any:
    """One number for a tuple of equal ones."""
    if isinstance(value, tuple) and value and all(isinstance(v, int) for v in value):
        return value[0] if len(set(value)) == 1 else value
    return value


def _tried(
    name: str, module: GraphModule, known: Mapping[str, Any], weights: Mapping[str, Array]
) -> Layer | None:
    """The layer of that name, if one does the same on the same weights."""
    made_by = getattr(nn, name)
    arguments: dict[str, Any] = {}
    for parameter in inspect.signature(made_by).parameters.values():
        if parameter.name in known:
            if known[parameter.name] != parameter.default:
                arguments[parameter.name] = known[parameter.name]
        elif parameter.default is parameter.empty:
            return None
    try:
        made = made_by(**arguments).eval()
        traced = symbolic_trace(made, module.graph.placeholders[0].type)
    except (FxliteError, TypeError, ValueError):
        return None
    state = made.state_dict()
    (given,), (own,) = module.graph.placeholders, traced.graph.placeholders
    own.target = given.target
    if find_difference(module, traced, check_weights=False) is not None:
        return None
    kinds = {k: isinstance(v, Parameter) and v.is_parameter for k, v in weights.items()}
    trained = {k for k, _ in made.named_parameters()}
    if any((k in trained) != kind for k, kind in kinds.items()) or trained - kinds.keys():
        return None
    return Layer(name, arguments, {k: v for k, v in state.items() if k not in weights})
