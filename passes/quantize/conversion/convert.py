"""Convert: from a prepared and calibrated graph to one that computes with integers.

In: a module from :func:`prepare` or :func:`prepare_qat`. Out: a module whose products are integer
ops with integer weights; observers and float weights are gone. A new graph is written in order, with
each value in the forms that its readers need (:mod:`fxlite.passes.quantize.conversion.forms`).

What stays float, and why, is recorded in the ledger and in ``meta["float"]`` of its node; what became
integers is described in ``meta["quantized"]`` (:mod:`fxlite.passes.quantize.schemes.scheme`). Nodes
that replace an old one name it in ``meta["from"]``.

Before (prepared)::

    relu_observed: f32[B,16,8,8] = self.observers.relu(relu)
    conv2d_1: f32[B,32,8,8] = ops.conv2d(relu_observed, self.conv2.weight, self.conv2.bias)
    relu_1: f32[B,32,8,8] = ops.relu(conv2d_1)
    relu_1_observed: f32[B,32,8,8] = self.observers.relu_1(relu_1)

After::

    conv2d_1_sums: i32[B,32,8,8] = ops.int_conv2d(relu_integers, self.conv2.weight_i8, ...)
    relu_1_integers: u8[B,32,8,8] = ops.requantize(conv2d_1_sums, self.relu_1_requantize_scale, ...)

Parts whose config is a cast are computed in float16 or bfloat16, with casts at their borders, and
their weights are stored as halves. Ops round their results once and sum in float32 (see
docs/design.md), so only the range and rounding of stored values change.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fxlite.base.checked import checked
from fxlite.base.errors import FxliteError, number_of
from fxlite.graph.graph import Node, map_nodes
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.ledger import refuse
from fxlite.passes.quantize.conversion.forms import PARTS, Forms, Integers, Sums
from fxlite.passes.quantize.conversion.prepare import META, Decision, is_prepared
from fxlite.passes.quantize.conversion.products import convert_product, convert_table, note_record
from fxlite.passes.quantize.schemes.observers import Observer
from fxlite.passes.quantize.schemes.roles import clip_bounds, factor, is_float32, moved, multiply_adds
from fxlite.passes.quantize.schemes.scheme import QConfig, QuantizationError
from fxlite.passes.rewrite.rule import is_call
from fxlite.passes.rules.const_fold import fold_constants
from fxlite.types import dtypes
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import TensorType


# -- half precision --------------------------------------------------------------------------------
def convert_cast(forms: Forms, node: Node, qconfig: QConfig) -> None:
    """Write a call with its float32 operands as half floats; its result is half, too."""
    target = qconfig.cast
    assert target is not None
    narrow = dtypes.dtype(target)
    before = after = 0

    def operand(value: Node) -> Node:
        nonlocal before, after
        if not is_float32(value):
            return forms.float_of(value)
        made = _narrow(forms, value, target)
        if value.op == "get_attr":
            before += value.type.nbytes
            after += made.type.nbytes
        return made

    if is_call(node, "cast") or not any(is_float32(v) for v in node.all_input_nodes):
        forms.copy(node)
        return
    args = map_nodes(node.args, operand)
    try:
        made = forms.call(node.target, args, dict(node.kwargs), node.name)
    except FxliteError:  # an op that takes float32 alone
        forms.copy(node)
        return
    if made.type == node.type:
        forms.floats[node] = made
    elif made.type == _in_halves(node.type, narrow):
        forms.halves[node] = {target if isinstance(made.type, TensorType) else PARTS: made}
    else:  # half types and others do not always combine as float32 and others do
        forms.copy(node)
        return
    if before or multiply_adds(node) != 0:
        note_record(made, node, qconfig, target, False, 16, bytes_before=before, bytes_after=after)


def _in_halves(type: Any, narrow: DType) -> Any:
    """A type, or several types, with half floats in place of float32."""
    if isinstance(type, tuple):
        return tuple(_in_halves(t, narrow) for t in type)
    return TensorType(type.shape, narrow) if type.dtype is dtypes.float32 else type


def _narrow(forms: Forms, value: Node, target: str) -> Node:
    """A value as half floats. Raises QuantizationError for weights that float16 cannot hold."""
    made = forms.halves.setdefault(value, {})
    if target not in made and value.op == "get_attr":
        halves = _rounded(value, np.asarray(forms.module.get_attribute(value.target)), target)
        made[target] = forms.store(f"{value.target}_{target}", halves)
    elif target not in made:
        name = f"{value.name}_{target}"
        made[target] = forms.call("cast", (forms.float_of(value),), {"dtype": target}, name)
    return made[target]


def _rounded(value: Node, array: Any, target: str) -> Any:
    with np.errstate(over="ignore"):
        halves = array.astype(dtypes.dtype(target).numpy)
    finite = np.isfinite(array)
    if np.any(finite & ~np.isfinite(halves.astype(np.float32))):
        raise QuantizationError(
            f"the weight {value.target} holds numbers up to {np.abs(array[finite]).max():.4g}, "
            f"{target} up to 65504; use bf16() for this module"
        )
    return halves


# -- the new graph ---------------------------------------------------------------------------------
@checked
def convert(prepared: GraphModule) -> GraphModule:
    """The integer program of a prepared and calibrated module, which is left as it was.

    Raises QuantizationError for a module that was not prepared, and if observers have seen no data;
    the message lists them."""
    if not is_prepared(prepared):
        raise QuantizationError("convert takes what prepare returned: convert(prepare(gm, mapping))")
    prepared = _with_constants(prepared)
    _check_calibration(prepared)
    forms = Forms(prepared)
    module, graph = forms.module, forms.graph
    for node in prepared.graph.nodes:
        forms.current = node
        with graph.with_origin(node):
            _convert(forms, node)
    graph.interface, graph.taps = prepared.graph.interface, prepared.graph.taps
    forms.add_guards()
    graph.eliminate_dead_code()
    graph.output_node().meta["quantization"] = {
        "unmatched": prepared.graph.output_node().meta[META],
        "bytes_before": _weight_bytes(prepared),
    }
    module.graph = graph
    for node in graph.nodes:
        if "float" in node.meta:
            refuse(module, "quantize", node, node.meta["float"], [node])
    module.delete_all_unused_submodules()
    graph.lint()
    return module


def _with_constants(prepared: GraphModule) -> GraphModule:
    """The program with everything that depends only on weights computed once. (prepare has done so
    already, but prepare_qat has not.)"""
    found = map(observer_of, prepared.graph.find_nodes(op="call_module"))
    if all(observer is None or observer.followed is None for observer in found):
        return prepared
    prepared = prepared.copy()
    fold_constants(prepared, expand_weights=False)
    return prepared


def observer_of(node: Node) -> Observer | None:
    """The observer that a node calls; None for other nodes."""
    if node.op != "call_module" or node.graph.owning_module is None:
        return None
    module = node.graph.owning_module.get_submodule(node.target)
    return module if isinstance(module, Observer) else None


def _check_calibration(prepared: GraphModule) -> None:
    found = (observer_of(node) for node in prepared.graph.find_nodes(op="call_module"))
    unseen = {id(module): module for module in found if module is not None and not module.values}
    if unseen:
        listed = "\n  ".join(f"{module.of}: {module.seen()}" for module in unseen.values())
        some = f"{number_of(len(unseen), 'observer')} {'is' if len(unseen) == 1 else 'are'}"
        raise QuantizationError(
            f"{some} not calibrated; call the prepared module on data that reaches them, then convert it:\n  {listed}"
        )


def _weight_bytes(prepared: GraphModule) -> int:
    """Bytes of the weights of the float program, each counted once."""
    arrays = {}
    for node in prepared.graph.find_nodes(op="get_attr"):
        if not isinstance(prepared.get_submodule(node.target.rpartition(".")[0]), Observer):
            array = prepared.get_attribute(node.target)
            arrays[id(array)] = int(array.nbytes)
    return sum(arrays.values())


def _convert(forms: Forms, node: Node) -> None:
    """Write the new form of a node."""
    decision = node.meta.get(META)
    if not isinstance(decision, Decision):
        decision = Decision("other")
    if node.op == "get_attr" or decision.role == "weight":
        return  # it is read when somebody needs it
    if decision.role == "states":
        forms.floats[node] = forms.float_of(node.args[0])
    elif observer_of(node) is not None:
        _observe(forms, node)
    elif is_call(node, "fake_quantize") and observer_of(node.args[0]) is not None:
        forms.integers[node] = forms.integers[node.args[0]]
    elif is_call(node, "getitem") and PARTS in forms.halves.get(node.args[0], ()):
        made = forms.call("getitem", (forms.halves[node.args[0]][PARTS],), dict(node.kwargs))
        forms.halves[node] = {made.type.dtype.name: made}
    elif decision.role == "carry":
        _carry(forms, node)
    elif decision.qconfig is None:
        forms.copy(node, decision.reason or None)
    elif decision.role == "product":
        convert_product(forms, node, decision.qconfig)
    elif decision.role == "table":
        convert_table(forms, node, decision.qconfig)
    else:
        convert_cast(forms, node, decision.qconfig)


def _observe(forms: Forms, node: Node) -> None:
    """Write the value behind an observer as integers."""
    value, observer = node.args[0], observer_of(node)
    assert observer is not None
    scale, zero_point = (number.item() for number in observer.calculate_qparams())
    have = forms.integers.get(value)
    if have is not None and (have.scale, have.zero_point) == (scale, zero_point):
        forms.integers[node] = have
        return
    sums = forms.sums.get(value)
    if sums is None:
        made = forms.quantized(value, scale, zero_point, observer.scheme)
        forms.integers[node] = Integers(made, scale, zero_point, observer.scheme)
    else:
        wanted = Integers(sums.node, scale, zero_point, observer.scheme)
        forms.integers[node] = replace(wanted, node=_requantized(forms, value, sums, wanted))


def _requantized(forms: Forms, value: Node, sums: Sums, wanted: Integers) -> Node:
    """Sums as integers of another scale; clipping is done on integers."""
    ratio = np.asarray(sums.scale, np.float64) / wanted.scale
    qmin, qmax = wanted.scheme.range
    if sums.least is not None:
        qmin = min(max(qmin, wanted.of(sums.least)), qmax - 1)
    if sums.largest is not None:
        qmax = max(min(qmax, wanted.of(sums.largest)), qmin + 1)
    scale = forms.constant(value, "requantize_scale", ratio)
    args = (sums.node, scale, *([wanted.zero_point] if wanted.zero_point else ()))
    arguments = {"dtype": wanted.scheme.dtype, "qmin": qmin, "qmax": qmax}
    return forms.call("requantize", args, arguments, f"{value.name}_integers")


def _carry(forms: Forms, node: Node) -> None:
    """Write an op that runs on integers as it is, if its operands are integers of one scale."""
    values = moved(node)
    found = [forms.integers[v] for v in values if v in forms.integers]
    if len(found) < len(values) or len({(f.scale, f.zero_point) for f in found}) > 1:
        forms.copy(node)
        return
    first, name = found[0], f"{node.name}_integers"
    times, bounds = factor(node), clip_bounds(node)
    if times is not None:
        forms.integers[node] = replace(first, scale=float(np.float32(first.scale * times)))
        return
    if bounds is not None:
        low, high = (None if b is None else first.of(b) for b in bounds)
        made = forms.clip(first.node, low, high, name)
    else:
        nodes = {v: f.node for v, f in zip(values, found, strict=True)}
        args = map_nodes(node.args, lambda n: nodes[n] if n in nodes else forms.float_of(n))
        filled = {"value": first.zero_point} if is_call(node, "pad") else {}
        made = forms.call(node.target, args, {**node.kwargs, **filled}, name)
    forms.integers[node] = replace(first, node=made)
