"""SmoothQuant: outlier channels of activations are moved into the weights that read them.

Linear layers behind a layer norm often read a few channels that are a hundred times larger than the
others, and with one scale for all the others have few integers left. ``X W = (X / s) (s W)``: X is
divided by a factor for each channel, which goes into what computes X, and the columns of the
weights that read it are multiplied by it, with (Xiao et al., "SmoothQuant", 2022, equation 4)::

    s_j = max|X_j| ** alpha / max|W_j| ** (1 - alpha)

In: a float module and batches. Out: a float module that computes the same but for rounding.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from fxlite.base.checked import checked
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.interpreter import Interpreter
from fxlite.passes.base import as_module, unique_attribute
from fxlite.passes.ledger import refusals, refuse, set_ledger
from fxlite.passes.quantize.accuracy.equalize import is_layer, scale_layer
from fxlite.passes.quantize.conversion.simulate import arguments_of, some
from fxlite.passes.quantize.schemes.roles import is_weight
from fxlite.passes.quantize.schemes.scheme import QuantizationError
from fxlite.passes.rewrite.node_rule import is_call
from fxlite.passes.rules.redundant import remove_dropout

_NORMS = ("layer_norm", "rms_norm")


@checked
def smooth_quant(
    program: Any, batches: Iterable[Any], alpha: float = 0.5, insert: bool = False
) -> GraphModule:
    """A float module whose linear layers read smoother activations; quantize it next. ``batches``
    are inputs (each an array, a tuple of arguments or a dict of named ones), read once. ``alpha``
    in 0..1 says how much of the difficulty goes to the weights.

    The factor goes into a layer norm, an RMS norm, or a linear layer (also through relu) that
    nothing but linear layers reads. Where nothing can take it (the value is read elsewhere too, as
    in BERT, whose residual stream comes out of the norm) the value stays as it is, with the reason
    in the ledger; or, with ``insert``, a multiplication is put before the linear layers, which
    fuses with quantize.

    Raises QuantizationError for alpha outside 0..1, no batches, and NaN or infinities in them."""
    if not 0 <= alpha <= 1:
        raise QuantizationError(f"alpha must be in 0..1, not {alpha}")
    given = as_module(program)
    module = given.copy()
    set_ledger(module, refusals(given))
    remove_dropout.function(module)
    read_by: dict[Node, list[Node]] = {}
    for node in module.graph.find_nodes(op="call_function", target="linear"):
        x = node.arguments["x"]
        if is_layer(node) and isinstance(x, Node) and not is_weight(x):
            read_by.setdefault(x, []).append(node)
    largest = _largest(module, read_by, batches)
    for value, layers in read_by.items():
        source = _source(value, layers)
        if isinstance(source, str) and not insert:
            refuse(module, "smooth_quant", value, source, layers)
            continue
        scale = _factors(module, largest[value], layers, alpha)
        if isinstance(source, Node):
            scale_layer(module, source, "smoothed", results=1 / scale)
        else:
            _insert(module, value, layers, 1 / scale)
        for layer in layers:
            scale_layer(module, layer, "smoothed", inputs=scale)
    module.delete_all_unused_submodules()
    return module


class _Largest(Interpreter):
    """Notes the largest magnitude of each channel (the last axis) of some values."""

    def __init__(self, module: GraphModule, wanted: dict[Node, list[Node]]) -> None:
        super().__init__(module)
        self.found: dict[Node, Any] = dict.fromkeys(wanted)

    def run_node(self, node: Node) -> Any:
        value = super().run_node(node)
        if node in self.found:
            rows = np.abs(value).reshape(-1, value.shape[-1])
            before = self.found[node]
            most = rows.max(axis=0, initial=0)
            if not np.isfinite(most).all():
                raise QuantizationError(f"smooth_quant: {node.describe()} is NaN or infinite")
            self.found[node] = most if before is None else np.maximum(before, most)
        return value


def _largest(
    module: GraphModule, wanted: dict[Node, list[Node]], batches: Iterable[Any]
) -> dict[Node, Any]:
    run = _Largest(module, wanted)
    for batch in some(batches):
        args, kwargs = arguments_of(batch)
        run.run(*args, **kwargs)
    return run.found


def _source(value: Node, layers: list[Node]) -> Node | str:
    """What takes the inverse factors of a value, or why nothing does."""
    others = [u.name for u in value.users if u not in layers]
    if others:
        return f"{value.name} is read by {', '.join(others[:3])} too, which would see it divided"
    while is_call(value, "relu", "leaky_relu"):
        value = value.args[0]
        if len(value.users) > 1:
            return f"{value.name} is read by {len(value.users)} nodes"
    if is_call(value, *_NORMS):
        arguments = value.arguments
        weights = [arguments.get("weight"), arguments.get("bias")]
        if weights[0] is None or not all(w is None or is_weight(w) for w in weights):
            return f"{value.name} has no weight of the program's that could take the factors"
        if arguments["weight"].type.rank != 1:
            return f"{value.name} normalizes more than the last axis"
        return value
    if is_call(value, "linear") and is_layer(value):
        return value
    what = value.target.name if value.op == "call_function" else "an input"
    return f"{value.name} ({what}) has no weight that could take the factors"


def _factors(module: GraphModule, largest: Any, layers: list[Node], alpha: float) -> Any:
    """s for each channel; 1 where the channel or its weights are all 0."""
    weights = np.zeros(len(largest))
    for layer in layers:
        array = np.abs(module.get_attribute(layer.arguments["weight"].target))
        weights = np.maximum(weights, array.max(axis=0, initial=0))
    usable = (largest > 0) & (weights > 0)
    x = np.where(usable, largest, 1).astype(np.float64)
    return x**alpha / np.where(usable, weights, 1) ** (1 - alpha)


def _insert(module: GraphModule, value: Node, layers: list[Node], factors: Any) -> None:
    """Let the layers, which are in the graph's order, read ``value * factors``."""
    graph = module.graph
    path = unique_attribute(module, f"{value.name}_smoothing")
    module.set_attribute(path, factors.astype(np.float32))
    with graph.inserting_before(layers[0]), graph.with_origin(value):
        factor = graph.get_attr(path)
        scaled = graph.call_function("mul", (value, factor), {}, f"{value.name}_smooth")
    for layer in layers:
        layer.replace_input_with(value, scaled)
