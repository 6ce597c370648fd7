"""Find layers of ``fxlite.nn`` in a graph: ``nn.Linear(64, 256)`` for what such a layer computes.

In: the GraphModule of one module of the program, as ``outline_modules`` makes it. Out: the layer's class
and arguments, and how it is called. Arguments are those that the program gave if its trace recorded them;
otherwise they are derived from the ops' attributes and the shapes of weights. Tracing the layer proves that
they are right: it has to give the same graph, with the same weights.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite import nn
from fxlite.base.errors import FxliteError
from fxlite.graph.graph import Graph, Node, map_nodes
from fxlite.graph.graph_module import GraphModule
from fxlite.nn.module import Module, Parameter
from fxlite.passes.cutting.inline_modules import inline_modules
from fxlite.show.comparison.compare import find_difference
from fxlite.tracing.tracer import Tracer
from fxlite.types.dtypes import DType, dtype
from fxlite.types.tensor_type import TensorType

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Layer:
    """``nn.NAME(**arguments)``. ``state`` are arrays of the layer that the graph does not read. It is called
    with ``given``, positions of the module's inputs, perhaps nested, and with ``options`` by name.
    ``results`` has the form of what it returns, with the number of the module's result or None at each
    place; 0 if it returns just the one."""

    name: str
    arguments: dict[str, Any]
    state: dict[str, Array]
    given: tuple[Any, ...] = (0,)
    options: tuple[tuple[str, Any], ...] = ()
    results: Any = 0

    @property
    def place(self) -> str:
        """``[1][0]``: the place of the module's only result in what the layer returns; empty if that is all."""

        def find(form: Any) -> str | None:
            if not isinstance(form, tuple):
                return None if form is None else ""
            found = ((i, find(part)) for i, part in enumerate(form))
            return next((f"[{i}]{rest}" for i, rest in found if rest is not None), None)

        return find(self.results) or ""


def layer_of(module: GraphModule) -> Layer | None:
    """The layer that computes the same as a module of the program; None if there is none."""
    is_named = module.name in _LAYERS.values()
    if not is_named and len(module.graph.find_nodes(op="call_function")) != 1:
        return None
    if module.graph.find_nodes(op="call_module"):
        module = inline_modules(module, prefix=True)
    calls = module.graph.find_nodes(op="call_function")
    if not module.graph.placeholders or not calls or module.graph.find_nodes(op="call_module"):
        return None
    reads = module.graph.find_nodes(op="get_attr")
    weights = {n.target: module.get_attribute(n.target) for n in reads}
    known = _known(calls, weights)
    for name in _candidates(module, calls):
        said = _said(calls, name)
        plain = {key: _plain(value) for key, value in said.items()}
        for arguments in _distinct({**known, **plain}, {**known, **said}, {**said, **known}):
            found = _tried(name, module, arguments, weights)
            if found is not None:
                return _shorter(found, module, weights)
    return None


def _shorter(layer: Layer, module: GraphModule, weights: Mapping[str, Array]) -> Layer:
    """The layer without arguments that have no effect, or that equal its defaults."""
    defaults = inspect.signature(getattr(nn, layer.name)).parameters
    for name in [n for n in layer.arguments if defaults[n].default is not inspect.Parameter.empty]:
        fewer = {k: v for k, v in layer.arguments.items() if k != name}
        layer = _tried(layer.name, module, fewer, weights) or layer
    return layer


def _distinct(*choices: dict[str, Any]) -> list[dict[str, Any]]:
    return [c for i, c in enumerate(choices) if c not in choices[:i]]


def _candidates(module: GraphModule, calls: Sequence[Node]) -> Iterator[str]:
    """Candidate names of layers: that of the program's class, and those named like the op."""
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


def _said(calls: Sequence[Node], name: str) -> dict[str, Any]:
    """The arguments with which the program created the layer."""
    for node in calls:
        scope = node.scope
        while scope is not None:
            if scope.class_name == name and scope.arguments is not None:
                return dict(scope.arguments)
            scope = scope.caller
    return {}


def _known(calls: Sequence[Node], weights: Mapping[str, Array]) -> dict[str, Any]:
    """The arguments of a layer that follow from the graph."""
    known: dict[str, Any] = {"bias": any(path.rpartition(".")[2] in _BIASES for path in weights)}
    known["affine"] = known["elementwise_affine"] = "weight" in weights
    for node in calls:
        for name, value in node.bound.items():
            if name not in node.target.tensor_kinds and not isinstance(value, (Node, DType)):
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
    given = calls[0].all_input_nodes[0].type if calls[0].all_input_nodes else None
    if isinstance(given, TensorType) and given.rank > 1 and isinstance(given.shape[1], int):
        known.setdefault("num_features", given.shape[1])
        known.setdefault("num_channels", given.shape[1])
    if "padding" in known and calls[0].target.name == "pad":
        known["padding"] = _plain(sum(known["padding"][:1:-1], ()))
    known |= _recurrent(calls, weights)
    floats = {dtype(w.dtype).name for w in weights.values()}
    if len(floats) == 1 and floats != {"f32"}:
        known["dtype"] = floats.pop()
    return known


_BIASES = frozenset(("bias", "bias_ih", "bias_ih_l0", "in_proj_bias"))


def _recurrent(calls: Sequence[Node], weights: Mapping[str, Array]) -> dict[str, Any]:
    """The arguments of stacks of recurrent layers and of cells that follow from the weights."""
    end = "_l0" if "weight_ih_l0" in weights else ""
    if f"weight_ih{end}" not in weights or f"weight_hh{end}" not in weights:
        return {}
    projected = weights.get("weight_hr_l0")
    inside, hidden = weights[f"weight_ih{end}"].shape[1], weights[f"weight_hh{end}"].shape[1]
    return {
        "input_size": inside,
        "hidden_size": hidden if projected is None else projected.shape[1],
        "proj_size": 0 if projected is None else projected.shape[0],
        "num_layers": sum(f"weight_ih_l{i}" in weights for i in range(len(weights))),
        "bidirectional": "weight_ih_l0_reverse" in weights,
        "batch_first": calls[0].target.name == "permute",
        "dropout": next((n.bound["p"] for n in calls if n.target.name == "dropout"), 0.0),
    }


def matrix_sizes(op: str) -> tuple[str, ...]:
    """The names of a matrix's sizes in the layer for an op."""
    if op == "linear":
        return ("out_features", "in_features")
    return ("num_embeddings", "embedding_dim") if op == "embedding" else ()


def size_names(module: GraphModule, value: Any) -> tuple[str, ...]:
    """The names of an array's sizes in the module of a layer that consists of one op."""
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
    """A single number in place of a tuple of equal ones."""
    if isinstance(value, tuple) and value and all(isinstance(v, int) for v in value):
        return value[0] if len(set(value)) == 1 else value
    return value


def _tried(name: str, module: GraphModule, known: Mapping[str, Any], weights: Mapping[str, Array]) -> Layer | None:
    """The layer of that name, if it computes the same with the same weights."""
    made_by = getattr(nn, name)
    arguments: dict[str, Any] = {}
    for parameter in inspect.signature(made_by).parameters.values():
        if parameter.name in known:
            value = known[parameter.name]
            if value != parameter.default or type(value) is not type(parameter.default):
                arguments[parameter.name] = value
        elif parameter.default is parameter.empty:
            return None
    try:
        made: Module = made_by(**arguments).train(module.training)
    except (FxliteError, TypeError, ValueError, ArithmeticError):
        return None
    trained = {k for k, _ in made.named_parameters()}
    kinds = {k: isinstance(v, Parameter) and v.is_parameter for k, v in weights.items()}
    if any((k in trained) != kind for k, kind in kinds.items()) or trained - kinds.keys():
        return None
    for given, options in _ways(made, len(module.graph.placeholders)):
        results = _results(module, made, given, options)
        if results is not None:
            state = {k: v for k, v in made.state_dict().items() if k not in weights}
            return Layer(name, arguments, state, given, options, results[0])
    return None


_MOST_WAYS = 60


def _ways(made: Module, count: int) -> Iterator[tuple[Any, Any]]:
    """The ways to call a layer with all of a module's inputs: positions of inputs for required and some
    optional parameters, and options that differ from their defaults."""
    parameters = inspect.signature(made.forward).parameters.values()
    required = sum(p.default is p.empty for p in parameters)
    optional = [p.name for p in parameters if p.default is None]
    flags = [()] + [((p.name, not p.default),) for p in parameters if isinstance(p.default, bool)]
    ways = (
        (first, (*rest, *flag))
        for first in itertools.product(range(count), repeat=required)
        for rest in _by_name(optional, [i for i in range(count) if i not in first])
        for flag in flags
    )
    names = [p.name for p in parameters]
    for given, options in itertools.islice(ways, _MOST_WAYS):
        at = len(given)
        if options and options[0][0] == names[at]:  # passed by position, as people write it
            given, options = (*given, options[0][1]), options[1:]
        yield given, options


def _by_name(names: Sequence[str], left: Sequence[int]) -> Iterator[tuple[tuple[str, Any], ...]]:
    """Assign the remaining inputs to optional parameters: one to each, or a pair to one."""
    for chosen in itertools.permutations(names, len(left)):
        yield tuple(zip(chosen, map(Input, left)))
    if len(left) == 2:
        for name in names:
            for pair in itertools.permutations(map(Input, left)):
                yield ((name, pair),)


class Input(int):
    """The position of an input, among options that are values."""


def picked(form: Any, values: Sequence[Any]) -> Any:
    """A nested form of positions, with the values in their places."""
    if isinstance(form, tuple):
        return tuple(picked(part, values) for part in form)
    return values[form]


def _results(module: GraphModule, made: Module, given: tuple[Any, ...], options: tuple[Any, ...]) -> tuple[Any] | None:
    """The form of what the layer returns, in a tuple, if it gives the module's results; otherwise None."""

    def called(*values: Any) -> Any:
        named = {k: picked(v, values) if isinstance(v, (tuple, Input)) else v for k, v in options}
        return made(*picked(given, values), **named)

    tracer = _LayerTracer(made)
    inputs = module.graph.placeholders
    try:
        graph = tracer.trace(called, inputs={"values": tuple(n.type for n in inputs)})
    except (FxliteError, TypeError, ValueError, AttributeError, LookupError):
        return None
    graph.take_conditions(module.graph)  # they hold where the layer is called
    for node, own in zip(inputs, graph.placeholders):
        own.target = node.target
    numbers: dict[Any, int] = {}
    mine, theirs = _numbered(module.graph, numbers), _numbered(graph, numbers)
    wanted = module.graph.output_node().args[0]
    wanted = (wanted,) if isinstance(wanted, Node) else wanted
    found: dict[int, Node] = {}

    def place(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return tuple(map(place, value))
        if not isinstance(value, Node):
            return None
        number = next((i for i, n in enumerate(wanted) if mine[n] == theirs[value]), None)
        if number is None or number in found:
            return None
        found[number] = value
        return number

    form = place(graph.output_node().args[0])
    if len(found) != len(wanted):
        return None
    result = tuple(found[i] for i in range(len(wanted)))
    graph.interface = None
    graph.output_node().args = (result[0] if len(result) == 1 else result,)
    return (form,) if find_difference(module.graph, graph) is None else None


class _LayerTracer(Tracer):
    """Runs a function that calls a layer, whose weights have their paths within the layer."""

    def __init__(self, layer: Module) -> None:
        super().__init__()
        self.layer = layer

    def _begin(self, root: Any) -> None:
        super()._begin(root)
        self.attach(self.layer, Graph(self.layer))


def _numbered(graph: Graph, numbers: dict[Any, int]) -> dict[Node, int]:
    """A number for each value, equal for equal calls on equal values."""
    made: dict[Node, int] = {}
    for node in graph.nodes:
        call = map_nodes((node.args, node.kwargs), lambda n: made[n])
        target = node.target if node.op != "call_function" else node.target.name
        key = node.op, target, repr(call)
        made[node] = numbers.setdefault(key, len(numbers))
    return made
