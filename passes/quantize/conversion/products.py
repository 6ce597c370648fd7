"""Write products and tables with integer weights into the new graph of a conversion.

In: a product of the prepared graph, its config and the forms of its operands. Out: int_linear,
int_conv2d or int_matmul with the scale of their sums (static), the same between a quantize and a
dequantize of its own (dynamic), linear_weight_only, or a float convolution whose weight is expanded
by dequantize_weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite.graph.graph import Node
from fxlite.ops.integer.quantized_product import largest_depth
from fxlite.passes.quantize.conversion.forms import Forms, Integers, Sums
from fxlite.passes.quantize.conversion.integer_flow import row_scales, rows_of, state_attributes
from fxlite.passes.quantize.conversion.prepare import META
from fxlite.passes.quantize.schemes.observers import Observer
from fxlite.passes.quantize.schemes.roles import (
    depth,
    is_expanded,
    is_transposed,
    multiply_adds,
    source_weight,
    summed_axes,
    weight_integers,
    weight_operand,
)
from fxlite.passes.quantize.schemes.scheme import (
    KEY,
    QConfig,
    QuantizationError,
    Record,
    Scheme,
    packed_rows,
    require_finite,
)
from fxlite.passes.rewrite.rule import is_call
from fxlite.types import dtypes


def convert_product(forms: Forms, node: Node, qconfig: QConfig) -> None:
    """Write a linear, convolution, matmul or recurrence as its config says."""
    if qconfig.mode == "weight_only":
        _weight_only(forms, node, qconfig)
    elif node.target.name == "recurrence":
        _recurrence(forms, node, qconfig)
    elif qconfig.mode == "dynamic":
        _dynamic(forms, node, qconfig)
    else:
        _static(forms, node, qconfig)


# -- static ----------------------------------------------------------------------------------------
def _static(forms: Forms, node: Node, qconfig: QConfig) -> None:
    """Write a static product: integers in, sums out."""
    if node.target.name == "matmul":
        _static_matmul(forms, node, qconfig)
        return
    known = forms.integers_of(node.arguments["x"], node)
    bias = _constant_bias(forms, node)
    found = _weight(forms, node, node.arguments["weight"], qconfig, _least_scale(node, bias, known))
    made = _integer_call(forms, node, known.node, known.zero_point, found, bias, known.scale)
    _note_product(node, made, qconfig, known, found)
    scale = _sums_scale(node, known.scale, found.scale)
    if bias is None and node.arguments.get("bias") is not None:  # a computed bias is added in float
        total = forms.call("dequantize", (made, forms.constant(node, "scale", scale)))
        forms.floats[node] = _plus_bias(forms, node, total)
    else:
        forms.sums[node] = Sums(made, scale)


def _static_matmul(forms: Forms, node: Node, qconfig: QConfig) -> None:
    """int_matmul of two activations or of an activation and a weight; int_linear if the weight is on the right."""
    names, operands, zeros = ("x_zero_point", "y_zero_point"), [], {}
    scale: Any = 1.0
    known: Integers | None = None
    weight: _StoredWeight | None = None
    for name, value in zip(names, node.args, strict=True):
        if source_weight(value) is None:
            integers = forms.integers_of(value, node)
            known = known or integers
            operands.append(integers.node)
            zeros[name] = integers.zero_point
            scale = scale * np.float64(integers.scale)
        else:
            weight = _weight(forms, node, value, qconfig)
            operands.append(forms.graph.get_attr(weight.path))
            scale = scale * weight.scale.astype(np.float64)
    product = "int_linear" if is_transposed(node) else "int_matmul"
    made = forms.call(product, tuple(operands), zeros, f"{node.name}_sums")
    length = operands[0].type.shape[-1]
    if not isinstance(length, int):
        x_type, y_type = (operand.type.dtype for operand in operands)
        forms.limit_depth(length, largest_depth(x_type, y_type, **zeros))
    _note_product(node, made, qconfig, known, weight)
    forms.sums[node] = Sums(made, _sums_scale(node, 1.0, scale))


def _sums_scale(node: Node, x_scale: float, weight_scale: Any) -> Any:
    """The scale of a product's sums, in a shape that broadcasts against them."""
    scale = np.asarray(np.float64(x_scale) * weight_scale, np.float64)
    name = node.target.name
    if name == "linear":
        return scale.reshape(-1)
    if name.startswith("conv"):
        return scale.reshape(-1, *[1] * (node.type.rank - 2))
    if scale.size == 1:
        return scale.reshape(())
    left = source_weight(node.args[0]) is not None
    if not left:
        return scale.reshape(-1)
    return scale.reshape(-1) if node.args[1].type.rank == 1 else scale.reshape(-1, 1)


def _integer_call(
    forms: Forms, node: Node, x: Node, zero_point: int, weight: _StoredWeight, bias: Any, x_scale: float | None
) -> Node:
    """int_linear or int_conv2d on integers ``x``. A float bias becomes int32 in the scale of the sums;
    without an ``x_scale`` the bias is left out."""
    graph = forms.graph
    stored = graph.get_attr(weight.path)
    args: tuple[Any, ...] = (x, stored)
    if bias is not None and x_scale is not None:
        steps = np.asarray(x_scale * weight.scale.reshape(-1).astype(np.float64))
        rounded = np.rint(np.asarray(bias, np.float64) / steps).astype(np.int32)
        args = (x, stored, forms.store(f"{node.arguments['bias'].target}_i32", rounded))
    name = f"{node.name}_sums"
    if node.target.is_matrix_product:
        return forms.call("int_linear", args, {"x_zero_point": zero_point}, name)
    arguments = _attributes(node)
    if node.target.name == "conv2d":
        arguments["x_zero_point"] = zero_point
        return forms.call("int_conv2d", args, arguments, name)
    wide = forms.call("unsqueeze", (x,), {"axis": 2})
    rows = {key: (value if key == "groups" else _two(value, key)) for key, value in arguments.items()}
    rows["x_zero_point"] = zero_point
    made = forms.call("int_conv2d", (wide, *args[1:]), rows)
    return forms.call("squeeze", (made,), {"axis": 2}, name)


def _attributes(node: Node) -> dict[str, Any]:
    names = ("stride", "padding", "dilation", "groups")
    return {k: v for k, v in node.kwargs.items() if k in names}


def _two(value: Any, key: str) -> Any:
    """An attribute of a convolution along one axis, for one along two axes of which the first has size 1."""
    if isinstance(value, str):
        return value
    first = value[0] if isinstance(value, tuple) else value
    return (0 if key == "padding" else 1, first)


def _constant_bias(forms: Forms, node: Node) -> Any:
    """The bias of a product as an array; None if there is none or it is computed."""
    bias = node.arguments.get("bias")
    if bias is None or bias.op != "get_attr":
        return None
    return _finite(forms, bias)


def _finite(forms: Forms, weight: Node) -> Any:
    """The array of a weight. Raises QuantizationError if it has NaN or infinities."""
    array = np.asarray(forms.module.get_attribute(weight.target))
    require_finite(weight.target, array)
    return array


def _plus_bias(forms: Forms, node: Node, total: Node) -> Node:
    """``total + bias`` in float, the bias along the channels."""
    bias = node.arguments.get("bias")
    if bias is None:
        return total
    value = forms.float_of(bias)
    if node.target.name.startswith("conv"):
        shape = (bias.type.shape[0], *[1] * (node.type.rank - 2))
        value = forms.call("reshape", (value,), {"shape": shape})
    return forms.call("add", (total, value), {}, node.name)


def _least_scale(node: Node, bias: Any, known: Integers) -> Any:
    """The least scale of each channel's weights for which int32 can hold the bias in addition to the
    sums; it matters if weights are tiny or all zero."""
    if bias is None:
        return 0.0
    length = depth(node)
    assert isinstance(length, int)
    activation = dtypes.dtype(known.scheme.dtype)
    one = (2**31 - 1) // largest_depth(activation, dtypes.int8, known.zero_point)
    room = min(2**30, 2**31 - 1 - (length + 1) * one)
    least = np.abs(np.asarray(bias, np.float64)) / (known.scale * room)
    return least.reshape(-1, *[1] * (node.arguments["weight"].type.rank - 1))


# -- dynamic ---------------------------------------------------------------------------------------
def _dynamic(forms: Forms, node: Node, qconfig: QConfig) -> None:
    """``dequantize(product(quantize(x)))`` with a scale for each row, or image, of x."""
    scheme = qconfig.activation
    assert scheme is not None
    x = node.arguments["x"]
    rows = rows_of(node, scheme)
    key = ("dynamic", x, rows)
    if key not in forms.made:
        value = forms.float_of(x)
        shared = {"axis": rows.axes, "keepdims": True, "qmax": rows.qmax}
        scale = forms.call("dynamic_scale", (value,), shared, f"{x.name}_scale")
        limits = {"dtype": rows.dtype, "qmin": rows.qmin, "qmax": rows.qmax}
        made = forms.call("quantize", (value, scale), limits, f"{x.name}_integers")
        forms.made[key] = made, scale
    integers, scale = forms.made[key]
    found = _weight(forms, node, weight_operand(node), qconfig)
    made = _integer_call(forms, node, integers, 0, found, None, None)
    _note_product(node, made, qconfig, None, found, str(rows))
    per_channel = forms.number_or_buffer(f"{found.name}_scale", _sums_scale(node, 1.0, found.scale))
    if made.type.rank != scale.type.rank:  # a matrix times a vector
        scale = forms.call("squeeze", (scale,), {"axis": -1})
    # one product in dequantize, which no back end fuses with the addition of the bias
    scales = forms.call("mul", (scale, per_channel))
    total = forms.call("dequantize", (made, scales), {}, node.name)
    forms.floats[node] = _plus_bias(forms, node, total) if node.target.name != "matmul" else total


# -- recurrences -----------------------------------------------------------------------------------
def _recurrence(forms: Forms, node: Node, qconfig: QConfig) -> None:
    """int_recurrence, whose states become integers within the loop: by the scale of their observer, or
    dynamically row by row."""
    operands = node.arguments
    found = _weight(forms, node, operands["weight_hh"], qconfig)
    arguments = {
        name: forms.float_of(operands[name])
        for name in ("gates", "h0", "c0", "bias_hh")
        if operands.get(name) is not None
    }
    arguments["weight_hh"] = forms.graph.get_attr(found.path)
    scales = row_scales(found.scale, operands["weight_hh"].type.shape[0])
    arguments["weight_scale"] = forms.store(f"{found.name}_scale", scales)
    known = None
    attributes: dict[str, Any] = {name: operands[name] for name in ("mode", "reverse") if name in operands}
    if qconfig.mode == "static":
        known = _observed_states(forms, node)
        attributes |= state_attributes(known.scheme, known.scale, known.zero_point)
    made = forms.call("int_recurrence", (), {**arguments, **attributes}, node.name)
    _note_product(node, made, qconfig, known, found, "i8 per step and row" if known is None else "")
    forms.floats[node] = made


def _observed_states(forms: Forms, node: Node) -> Integers:
    """How the states of a recurrence are rounded, taken from the observer that the first state passes.
    Raises QuantizationError if there is none."""
    h0 = node.arguments["h0"]
    observer = forms.prepared.get_submodule(h0.target) if h0.op == "call_module" else None
    if not isinstance(observer, Observer):
        raise QuantizationError(
            f"{node.describe()} has to round its states, which have no observer: the graph was "
            f"edited after prepare; prepare it again"
        )
    scale, zero_point = (number.item() for number in observer.calculate_qparams())
    return Integers(forms.float_of(h0), scale, zero_point, observer.scheme)


# -- weight-only -----------------------------------------------------------------------------------
def _weight_only(forms: Forms, node: Node, qconfig: QConfig) -> None:
    """linear_weight_only, with the weight of a matmul transposed once; or, for convolutions and
    recurrences, the float product with a weight that a node of its own expands."""
    scheme, weight = qconfig.weight, weight_operand(node)
    assert scheme is not None
    found = _weight(forms, node, weight, qconfig)
    rows = forms.graph.get_attr(found.path)
    scale = found.scale
    if scheme.per != "group":
        scale = np.broadcast_to(scale.reshape(-1), (rows.type.shape[0],))
    stored = forms.store(f"{found.name}_scale", np.ascontiguousarray(scale))
    options: dict[str, Any] = {"bits": scheme.bits, "group_size": scheme.group_size}
    if is_expanded(node):
        options["shape"] = weight.type.shape
        wide = forms.call("dequantize_weight", (rows, stored), options, f"{node.name}_weight")
        made = forms.graph.node_copy(node, lambda value: wide if value is weight else forms.float_of(value))
        made.meta = {k: v for k, v in node.meta.items() if k != META}
    else:
        operands = [forms.float_of(node.args[0]), rows, stored]
        bias = node.arguments.get("bias")
        if bias is not None:
            operands.append(forms.float_of(bias))
        made = forms.call("linear_weight_only", tuple(operands), options, node.name)
    _note_product(node, made, qconfig, None, found)
    forms.floats[node] = made


# -- tables ----------------------------------------------------------------------------------------
def convert_table(forms: Forms, node: Node, qconfig: QConfig) -> None:
    """Write an embedding: rows of i8, each with its scale, which become floats when they are read."""
    graph, weight = forms.graph, node.arguments["weight"]
    rows = QConfig(qconfig.name, None, Scheme(per="channel"))
    found = _weight(forms, node, weight, rows)
    ids = forms.float_of(node.arguments["x"])
    scales = forms.store(f"{found.name}_scale", found.scale)
    taken = forms.call("embedding", (ids, graph.get_attr(found.path)), {})
    scale = forms.call("embedding", (ids, scales), {})
    made = forms.call("dequantize", (taken, scale), {}, node.name)
    _note_product(node, made, rows, None, found)
    forms.floats[node] = made


# -- weights ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _StoredWeight:
    """A weight as integers in the new module: its path before and after, scale (keepdims), quality and
    sizes."""

    name: str
    path: str
    scale: Any
    sqnr: float
    bytes_before: int
    bytes_after: int


def _weight(forms: Forms, node: Node, read: Node, qconfig: QConfig, least_scale: Any = 0.0) -> _StoredWeight:
    """The integers of a weight, computed once for readers that want the same."""
    weight, scheme, transposed = source_weight(read), qconfig.weight, is_transposed(node)
    assert weight is not None and scheme is not None
    array = _finite(forms, weight)
    axes = summed_axes(node, read, transposed)
    is_packed, is_flat = qconfig.mode == "weight_only", node.target.name == "conv1d"
    plain = ("weight", weight.target, scheme, axes, transposed, is_packed, is_flat)
    key: Any = plain
    if plain in forms.made and np.any(least_scale > forms.made[plain].scale):
        key = (*plain, np.asarray(least_scale).tobytes())
    if key not in forms.made:
        chosen = node.meta[META].weight
        found = chosen or weight_integers(node, read, array, scheme)
        if np.any(least_scale > found.scale):
            key = (*plain, np.asarray(least_scale).tobytes())
            found = weight_integers(node, read, array, scheme, least_scale)
        integers: Any = found.integers
        if is_packed:
            integers = packed_rows(found, scheme)
        elif is_flat:
            integers = integers[:, :, None]
        path = forms.store(f"{weight.target}_{scheme.dtype}", integers).target
        after = integers.nbytes + found.scale.nbytes
        forms.made[key] = _StoredWeight(weight.target, path, found.scale, found.sqnr, array.nbytes, after)
    stored: _StoredWeight = forms.made[key]
    return stored


def _note_product(
    node: Node, made: Node, qconfig: QConfig, known: Integers | None, weight: _StoredWeight | None, activation: str = ""
) -> None:
    """Describe on the new node how the old one was converted."""
    if is_call(made, "squeeze"):  # a convolution along one axis
        made = made.args[0]
    low = high = 0.0
    if known is not None:
        qmin, qmax = known.scheme.range
        low, high = ((q - known.zero_point) * known.scale for q in (qmin, qmax))
    parts = [] if qconfig.activation is None else [activation or _short(qconfig.activation)]
    bits, before, after, sqnr = 8, 0, 0, None
    if weight is not None:
        assert qconfig.weight is not None
        parts.append(f"weight {_short(qconfig.weight)}")
        bits, sqnr = qconfig.weight.bits, weight.sqnr
        before, after = weight.bytes_before, weight.bytes_after
    sizes = {"low": low, "high": high, "bytes_before": before, "bytes_after": after, "sqnr": sqnr}
    note_record(made, node, qconfig, ", ".join(parts), qconfig.activation is not None, bits, **sizes)


def note_record(made: Node, node: Node, qconfig: QConfig, scheme: str, integer: bool, bits: int, **sizes: Any) -> None:
    """Write the :class:`Record` of a node's conversion into the meta of the new node."""
    op, path, count = node.target.name, node.module_path, multiply_adds(node)
    made.meta[KEY] = vars(Record(node.name, op, path, qconfig.name, scheme, integer, bits, count, **sizes))


def _short(scheme: Scheme) -> str:
    return f"{scheme.dtype} per {scheme.per}"
