"""Prepare: from a float graph and a mapping to the same graph with observers in it.

In: a GraphModule and a :class:`QConfigMapping`. Out: a GraphModule that computes the same and records
ranges while it runs; calling it calibrates it. Batch norm and constants are folded and dropout is
removed first, and composites made of products (attention, LSTM) are expanded. The decision for a node
is in its ``meta["quantize"]``; nothing is quantized yet.

Before::

    relu: f32[B,16,8,8] = ops.relu(conv2d)
    conv2d_1: f32[B,32,8,8] = ops.conv2d(relu, self.conv2.weight, padding=1)

After::

    relu: f32[B,16,8,8] = ops.relu(conv2d)
    relu_observed: f32[B,16,8,8] = self.observers.relu(relu)
    conv2d_1: f32[B,32,8,8] = ops.conv2d(relu_observed, self.conv2.weight, padding=1)
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fxlite.base.checked import checked
from fxlite.graph.graph import Node, map_nodes
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.base import as_module, unique_attribute
from fxlite.passes.ledger import copy_with_ledger
from fxlite.passes.quantize.conversion.integer_flow import IntegerFlow, find_integer_flow, state_scheme
from fxlite.passes.quantize.schemes.mapping import QConfigMapping, Resolution, resolve
from fxlite.passes.quantize.schemes.observers import Observer, make_observer
from fxlite.passes.quantize.schemes.roles import product_weights, weight_axis
from fxlite.passes.quantize.schemes.scheme import QConfig, QuantizationError, QuantizedWeight, Scheme
from fxlite.passes.rewrite.rule import is_call
from fxlite.passes.rules.const_fold import fold_constants
from fxlite.passes.rules.decompose import decompose
from fxlite.passes.rules.fuse_conv_bn import fuse_conv_bn
from fxlite.passes.rules.redundant import remove_dropout

#: The key of ``node.meta`` under which prepare leaves its decisions.
META = "quantize"


@dataclass(frozen=True)
class Decision:
    """What convert must do with a node. ``role`` is "product" (with ``qconfig``), "table" (an
    embedding), "carry" (run on integers), "weight" (rounded while training), "states" (the states of a
    recurrence, which are observed and continue in float), "cast", or "float" (``reason`` says why).
    ``weight`` has the integers of a product's weight if they have been chosen already, in the layout
    that convert stores."""

    role: str
    qconfig: QConfig | None = None
    reason: str = ""
    weight: QuantizedWeight | None = field(default=None, compare=False, repr=False)


@checked
def prepare(program: Any, mapping: QConfigMapping) -> GraphModule:
    """The program with observers where values become integers under ``mapping``; the input is left
    as it was. Call the result on calibration data, then :func:`convert` it.

    Raises QConfigError if the mapping names something that the program does not have, and
    QuantizationError for a program without types or in training mode."""
    module, resolution = _cleaned(program, mapping)
    fold_constants(module, expand_weights=False)
    _insert_observers(module, _decided(module, resolution), False)
    return module


@checked
def prepare_qat(program: Any, mapping: QConfigMapping) -> GraphModule:
    """Like :func:`prepare`, for training: observed values and weights are also rounded by
    ``fake_quantize`` with the scale that the observer currently has, and continue in float. Each call
    updates the ranges; gradients pass ``fake_quantize`` unchanged. Batch norm is folded: train with the
    statistics it has. Weights that are computed from others are computed in each call and become
    constants in convert.

    Raises what prepare raises, and QuantizationError for configs that are not static."""
    module, resolution = _cleaned(program, mapping)
    unfolded = module.copy()
    folded = fold_constants(module, expand_weights=False)  # for the same decisions as in prepare
    flow = _decided(module, resolution)
    for node in module.graph.nodes:
        decision = node.meta.get(META)
        qconfig = decision.qconfig if isinstance(decision, Decision) else None
        if qconfig is not None and qconfig.mode != "static":
            raise QuantizationError(f"{node.describe()} has the config {qconfig.name}: training needs static ones")
    _insert_observers(module, flow, True)
    _round_weights(module, flow)
    _unfold(module, unfolded, folded)
    return module


def is_prepared(program: Any) -> bool:
    """True for a result of :func:`prepare` or :func:`prepare_qat`."""
    return isinstance(program, GraphModule) and META in program.graph.output_node().meta


def require_prepared(program: Any) -> None:
    """Raise QuantizationError unless ``prepare`` or ``prepare_qat`` returned the program."""
    if not is_prepared(program):
        raise QuantizationError("this takes what prepare returned: prepare(gm, mapping)")


def _cleaned(program: Any, mapping: QConfigMapping) -> tuple[GraphModule, Resolution]:
    """A copy of the program without anything that stands in the way of integers, and the configs of its
    calls."""
    given = as_module(program)
    if is_prepared(given):
        raise QuantizationError(
            f"{given.name} is prepared already: calibrate it by calling it, and convert it; or "
            f"prepare the float module with another mapping"
        )
    if any(p.type is None for p in given.graph.placeholders):
        raise QuantizationError(
            'the graph has no types: trace it with input types, fx.symbolic_trace(model, x="f32[B,3,224,224]")'
        )
    module = copy_with_ledger(given)
    resolution = resolve(mapping, module.graph)
    remove_dropout.function(module)
    fuse_conv_bn.function(module)
    _require_inference(module)
    _open_composites(module, resolution)
    return module, resolution


def _decided(module: GraphModule, resolution: Resolution) -> IntegerFlow:
    """Decide where integers flow, and write the decisions into the meta of nodes."""
    flow = find_integer_flow(module.graph, resolution.qconfigs, resolution.rules)
    _write_decisions(module, flow, resolution)
    return flow


def _unfold(module: GraphModule, unfolded: GraphModule, folded: dict[str, str]) -> None:
    """Compute constants in each call again, because the weights they depend on will change. ``folded``
    has the names of their nodes in ``unfolded`` by the paths at which they were stored."""
    graph, names = module.graph, set(folded.values())
    needed: set[Node] = set()
    for node in reversed(unfolded.graph.nodes):
        if node.name in names or any(user in needed for user in node.users):
            needed.add(node)
    made: dict[Node, Node] = {}
    by_name: dict[str, Node] = {}
    with graph.inserting_before(next(n for n in graph.nodes if n.op != "placeholder")):
        for node in unfolded.graph.nodes:
            if node in needed:
                made[node] = by_name[node.name] = graph.node_copy(node, made.__getitem__)
    for node in graph.find_nodes(op="get_attr"):
        if node.target in folded:
            node.replace_all_uses_with(by_name[folded[node.target]])
            graph.erase_node(node)
    module.delete_all_unused_submodules()


def _require_inference(module: GraphModule) -> None:
    """Raise QuantizationError if the program draws random numbers, because the ranges found would be
    those of training."""
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target.is_random:
            raise QuantizationError(f"{node.describe()} draws numbers; call eval() on the model and trace it again")


def _open_composites(module: GraphModule, resolution: Resolution) -> None:
    """Replace attention and recurrent layers by the products they are made of, if those can be
    quantized; the new nodes get their config."""
    by_rule: dict[tuple[QConfig, str], list[Node]] = {}
    for node in module.graph.nodes:
        qconfig = resolution.qconfigs.get(node)
        if qconfig is None or node.op != "call_function":
            continue
        if qconfig.mode in node.target.opened_in:
            by_rule.setdefault((qconfig, resolution.rules[node]), []).append(node)
    for (qconfig, rule), nodes in by_rule.items():
        chosen, before = set(nodes), set(module.graph.nodes)
        decompose.function(module, lambda node, chosen=chosen: node not in chosen)
        for node in module.graph.nodes:
            if node not in before:
                resolution.qconfigs[node], resolution.rules[node] = qconfig, rule


def _write_decisions(module: GraphModule, flow: IntegerFlow, resolution: Resolution) -> None:
    for node in module.graph.nodes:
        decision = None
        if node in flow.products:
            decision = Decision("product", flow.products[node])
        elif node in flow.tables:
            decision = Decision("table", flow.tables[node])
        elif node in flow.carriers:
            decision = Decision("carry")
        elif node in flow.reasons:
            decision = Decision("float", None, flow.reasons[node])
        else:
            qconfig = resolution.qconfigs.get(node)
            if qconfig is not None and qconfig.mode == "cast":
                decision = Decision("cast", qconfig)
        if decision is not None:
            node.meta[META] = decision
    module.graph.output_node().meta[META] = resolution.unmatched


def _insert_observers(module: GraphModule, flow: IntegerFlow, is_training: bool) -> None:
    swaps: dict[Node, dict[Node, Node]] = {}  # reader -> value -> the node to read instead
    for scheme, values in flow.groups:
        others = f" (and {len(values) - 1} values of equal scale)" if len(values) > 1 else ""
        path = _add_observer(module, values[0], scheme, is_training, others)
        for member, value in enumerate(values):
            readers = [u for u in value.users if value in flow.stored or _on_integers(u, flow)]
            observed = _observe(module, value, path, scheme, is_training, member)
            for user in readers:
                swaps.setdefault(user, {})[value] = observed
    for product, value, scheme in flow.edges:
        # other readers of the value want another scheme
        path = _add_observer(module, value, scheme, is_training)
        observed = _observe(module, value, path, scheme, is_training)
        swaps.setdefault(product, {})[value] = observed
    for user, swap in swaps.items():
        _swap_operands(user, swap)
    for product, qconfig in flow.products.items():
        if is_call(product, "recurrence") and qconfig.mode == "static":
            _observe_states(module, product, qconfig, is_training)


def _observe_states(module: GraphModule, product: Node, qconfig: QConfig, is_training: bool) -> None:
    """Put one observer behind the values that a recurrence multiplies: its first state and the states
    in its result."""
    assert qconfig.activation is not None
    scheme, h0 = state_scheme(qconfig.activation), product.arguments["h0"]
    path = _add_observer(module, product, scheme, is_training)
    if product.bound["mode"] == "lstm":
        module.get_submodule(path).has_cell_states = True
    result = _observe(module, product, path, scheme, False)
    first = _observe(module, h0, path, scheme, False, 1)
    for user in [u for u in product.users if u is not result]:
        _swap_operands(user, {product: result})
    _swap_operands(product, {h0: first})
    first.meta[META] = result.meta[META] = Decision("states")


def _swap_operands(user: Node, swap: dict[Node, Node]) -> None:
    args, kwargs = map_nodes((user.args, user.kwargs), lambda n: swap.get(n, n))
    user._set_arguments(args, kwargs)


def _on_integers(user: Node, flow: IntegerFlow) -> bool:
    """True for a node that reads its operands as integers, whatever their other readers do."""
    if user in flow.carriers:
        return True
    qconfig = flow.products.get(user)
    return qconfig is not None and qconfig.mode == "static"


def _add_observer(module: GraphModule, value: Node, scheme: Scheme, is_training: bool, others: str = "") -> str:
    described = f"{value.name} ({value.origin})" if value.origin else value.name
    observer = make_observer(scheme, described + others)
    if is_training:
        observer.follow()
    return _keep(module, value, observer)


def _keep(module: GraphModule, value: Node, observer: Observer) -> str:
    path = unique_attribute(module, f"observers.{value.name}")
    module.add_submodule(path, observer)
    return path


def _observe(module: GraphModule, value: Node, path: str, scheme: Scheme, is_training: bool, member: int = 0) -> Node:
    """A call of the observer behind a value, followed in training by rounding. ``member`` is its number
    among the values that share the scale."""
    graph = module.graph
    before = value.next
    while value.op == "placeholder" and before.op == "placeholder":
        before = before.next
    with graph.inserting_before(before), graph.with_origin(value):
        args = (value, member) if member else (value,)
        observed = graph.call_module(path, args, {}, value.type)
        observed.name = f"{value.name}_observed"
        if not is_training:
            return observed
        scale, zero_point = (graph.get_attr(f"{path}.{n}") for n in ("scale", "zero_point"))
        qmin, qmax = scheme.range
        arguments = {"dtype": scheme.dtype, "qmin": qmin, "qmax": qmax}
        return graph.call_function(
            "fake_quantize", (observed, scale, zero_point), arguments, name=f"{value.name}_rounded"
        )


def _round_weights(module: GraphModule, flow: IntegerFlow) -> None:
    """Insert fake quantization of the weights of products, with the ranges they have in each call."""
    for product, qconfig in flow.products.items():
        scheme = qconfig.weight
        assert scheme is not None
        for weight in product_weights(product):
            kept = weight_axis(product, weight)
            shape = [1] * weight.type.rank
            if scheme.per == "channel":
                shape[kept] = weight.type.shape[kept]
            # the current weights, not an average
            latest = Scheme(scheme.dtype, per=scheme.per, observer="moving_average", averaging=1)
            observer = make_observer(latest, f"the weight {weight.target}", kept)
            observer.follow(tuple(shape))
            path = _keep(module, weight, observer)
            rounded = _observe(module, weight, path, latest, True)
            rounded.meta[META] = rounded.args[0].meta[META] = Decision("weight")
            product.replace_input_with(weight, rounded)


# -- batches ----------------------------------------------------------------------------------------
#: What a module is called with.
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def arguments_of(batch: Any) -> Arguments:
    """A batch as arguments of a call: a tuple gives them in order, a dict by name, BoundArguments
    both; anything else is the only argument."""
    if isinstance(batch, inspect.BoundArguments):
        return batch.args, batch.kwargs
    if isinstance(batch, tuple):
        return batch, {}
    if isinstance(batch, Mapping):
        return (), dict(batch)
    return (batch,), {}


def some(batches: Iterable[Any]) -> Iterator[Any]:
    """The batches. Raises QuantizationError after the last one if there was none."""
    is_empty = True
    for batch in batches:
        is_empty = False
        yield batch
    if is_empty:
        raise QuantizationError(
            "there are no batches (an iterator that was used up before has none): give a list of "
            "inputs, each an array, a tuple of arguments or a dict of named ones"
        )


def as_batches(batches: Iterable[Any]) -> list[Arguments]:
    """Batches as arguments of a call. Raises QuantizationError if there are none, or if an array is
    given instead of a list of batches."""
    if hasattr(batches, "dtype"):
        raise QuantizationError("batches are a list of batches, not one array: give [array]")
    if isinstance(batches, Mapping) or not isinstance(batches, Iterable):
        raise QuantizationError(
            f"batches are a list of batches, each an array, a tuple of arguments or a dict of "
            f"named ones, not {type(batches).__name__}"
        )
    found = [arguments_of(batch) for batch in batches]
    if not found:
        raise QuantizationError("there are no batches: ranges and noise are found on data")
    return found
