"""ONNX's element-wise ops: arithmetic, comparisons, logic, elementary functions, activations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from fxlite import ops
from fxlite.base.state import is_traced
from fxlite.importing.narrow import cast
from fxlite.importing.onnx.registry import MICROSOFT, Call, as_sizes, counterparts, is_sizes, onnx_op, rank, same
from fxlite.types import dtypes, shapes


def _kind(value: Any) -> str:
    """The kind of a value: ``i`` signed, ``u`` unsigned, ``b`` bool, ``f`` float (NumPy's letters)."""
    found = np.dtype(value.dtype)
    return "i" if is_sizes(value) else "f" if found.kind in "fV" else found.kind


# -- arithmetic ------------------------------------------------------------------------------------
def _with_axis(n: Call, y: Any, x: Any) -> Any:
    """The second operand with axes appended, as ops before opset 7 broadcast it."""
    if n.opset >= 7 or not n["broadcast"] or n["axis"] is None:
        return y
    behind = rank(x) - (n["axis"] % max(rank(x), 1)) - rank(y)
    return y.reshape(*y.shape, *[1] * behind)


def _enter(name: str, function: Callable[..., Any], attributes: dict[str, str]) -> None:
    @onnx_op(name)
    def call(n: Call, x: Any, *others: Any) -> Any:
        given = {own: n[attribute] for attribute, own in attributes.items()}
        return function(x, *(_with_axis(n, y, x) for y in others), **given)


for _op, _name, _attributes in counterparts():  # ops that differ in more than the name follow below
    _enter(_name, _op.ufunc or _op, _attributes)  # NumPy's functions also accept named sizes


@onnx_op("Div")
def div(n: Call, x: Any, y: Any) -> Any:
    """For integers it rounds toward zero."""
    y = _with_axis(n, y, x)
    if _kind(x) == "f":
        return np.true_divide(x, y)
    if is_sizes(x) or is_sizes(y):
        return np.frompyfunc(functools.partial(_quotient, n), 2, 1)(x, y)
    quotient = np.floor_divide(x, y)
    if _kind(x) != "i":
        return quotient  # it is never negative
    inexact = np.not_equal(x - quotient * y, 0)
    opposite = np.not_equal(np.less(x, 0), np.less(y, 0))
    return quotient + cast(np.logical_and(inexact, opposite), x.dtype)


def _quotient(n: Call, x: Any, y: Any) -> Any:
    """The quotient of two sizes. Where a sign depends on the values of sizes, the graph requires that there is none."""
    if is_traced(x) or is_traced(y):
        return div(n, *(n.proxy(as_sizes([v])).reshape(()) for v in (x, y)))
    sides = []
    for value in map(shapes.normalize, (x, y)):
        is_negative = shapes.at_least(0, value)
        sides.append((-value if is_negative else value, is_negative))
        if not shapes.decide(sides[-1][0], ">=", 0, n.walk.importer.tracer.graph.guards):
            n.walk.importer.tracer.require(value, ">=", 0)
    (one, turned), (other, turns) = sides
    found = shapes.for_user(one) // shapes.for_user(other)
    return -found if turned != turns else found


@onnx_op("Mod")
def mod(n: Call, x: Any, y: Any) -> Any:
    """The remainder has the sign of the divisor; with ``fmod``, that of the dividend."""
    return np.fmod(x, y) if n["fmod"] else np.mod(x, y)


@onnx_op("Pow")
def pow_(n: Call, x: Any, y: Any) -> Any:
    """The result has the type of the base."""
    y = _with_axis(n, y, x)
    if x.dtype == y.dtype and _kind(x) == "f":
        return np.power(x, y)
    if _kind(x) == "f":
        return np.power(x, cast(y, x.dtype))
    if _kind(y) == "f":
        return cast(np.power(cast(x, np.float64), cast(y, np.float64)), x.dtype)
    return cast(np.power(cast(x, np.int64), cast(y, np.int64)), x.dtype)


same("Reciprocal", lambda x: np.divide(np.asarray(1, x.dtype) if isinstance(x, np.ndarray) else 1, x))
same("Max", lambda *values: functools.reduce(np.maximum, values))
same("Min", lambda *values: functools.reduce(np.minimum, values))
same("Sum", lambda *values: functools.reduce(np.add, values))


@onnx_op("Mean")
def mean(n: Call, *values: Any) -> Any:
    total = functools.reduce(np.add, values)
    return total / len(values) if not isinstance(total, np.ndarray) else (total / len(values)).astype(total.dtype)


@onnx_op("BitShift")
def bit_shift(n: Call, x: Any, y: Any) -> Any:
    return np.left_shift(x, y) if n["direction"] == "LEFT" else np.right_shift(x, y)


same("Where", np.where, folds=True)


@onnx_op("Clip")
def clip(n: Call, x: Any, low: Any = None, high: Any = None) -> Any:
    """Before opset 11 the bounds are attributes."""
    if n.opset < 11:
        low, high = n["min"], n["max"]
        return ops.clip(x, low, high)
    known = [None if v is None else v.item() if isinstance(v, np.ndarray) and v.size == 1 else v for v in (low, high)]
    if all(v is None or type(v) in (int, float) for v in known) and _kind(x) == "f":
        return ops.clip(x, *known)
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


# -- elementary functions and activations ----------------------------------------------------------
@onnx_op("IsInf")
def isinf(n: Call, x: Any) -> Any:
    if n["detect_negative"] and n["detect_positive"]:
        return np.isinf(x)
    sign = np.less if n["detect_negative"] else np.greater
    if not (n["detect_negative"] or n["detect_positive"]):
        return np.logical_and(np.isinf(x), False)
    return np.logical_and(np.isinf(x), sign(x, 0))


# -- activations with parameters -------------------------------------------------------------------
@onnx_op("Softplus")
def softplus(n: Call, x: Any) -> Any:
    return ops.softplus(x, threshold=float("inf"))


same("Celu", ops.celu, "alpha")


@onnx_op("Selu")
def selu(n: Call, x: Any) -> Any:
    """With unusual constants it is computed from other ops."""
    alpha, gamma = n["alpha"], n["gamma"]
    if abs(alpha - 1.6732632) < 1e-6 and abs(gamma - 1.0507010) < 1e-6:
        return ops.selu(x)
    return gamma * np.where(x > 0, x, alpha * np.expm1(x))


@onnx_op("HardSigmoid")
def hard_sigmoid(n: Call, x: Any) -> Any:
    if n["beta"] == 0.5 and abs(n["alpha"] - 1 / 6) < 1e-7:
        return ops.hardsigmoid(x)
    return ops.clip(x * n["alpha"] + n["beta"], 0.0, 1.0)


@onnx_op("Swish")
def swish(n: Call, x: Any) -> Any:
    return ops.silu(x) if n["alpha"] == 1 else x * ops.sigmoid(x * n["alpha"])


@onnx_op("PRelu")
def prelu(n: Call, x: Any, slope: Any) -> Any:
    """The slope broadcasts to x; one for each channel has further axes of size 1."""
    if n.opset < 7 and rank(slope) == 1 and rank(x) > 1:  # one for each channel
        slope = slope.reshape((-1, *[1] * (rank(x) - 2)))
    return np.where(np.less(x, 0), x * slope, x)


@onnx_op("ThresholdedRelu")
def thresholded_relu(n: Call, x: Any) -> Any:
    return np.where(x > n["alpha"], x, 0)  # 0 for NaN, whereas torch's threshold keeps NaN


@onnx_op("Shrink")
def shrink(n: Call, x: Any) -> Any:
    low, high, bias = -n["lambd"], n["lambd"], n["bias"]
    zero = np.zeros((), dtypes.dtype(x.dtype).numpy)
    x_plus, x_minus = cast(x + bias, x.dtype), cast(x - bias, x.dtype)
    return np.where(np.less(x, low), x_plus, np.where(np.greater(x, high), x_minus, zero))


same("Identity", lambda x: x, moves=True)


@onnx_op("Dropout")
def dropout(n: Call, x: Any, ratio: Any = None, training: Any = None) -> Any:
    """At inference it does nothing."""
    if training is not None and bool(n.known(training, "training_mode")) and (ratio is None or n.known(ratio, "ratio")):
        raise n.refuse("it is used in training mode, in which it draws random numbers; export the model in eval mode")
    mask = np.ones_like(x, dtype=bool) if n.wants(1) else None
    return (x, mask) if mask is not None else x


# -- ops of com.microsoft --------------------------------------------------------------------------
same("Gelu", ops.gelu, domain=MICROSOFT)


@onnx_op("BiasGelu", domain=MICROSOFT)
def bias_gelu(n: Call, x: Any, bias: Any) -> Any:
    return ops.gelu(x + bias)


@onnx_op("FastGelu", domain=MICROSOFT)
def fast_gelu(n: Call, x: Any, bias: Any = None) -> Any:
    return ops.gelu(x if bias is None else x + bias, "tanh")


@onnx_op("QuickGelu", domain=MICROSOFT)
def quick_gelu(n: Call, x: Any) -> Any:
    return x * ops.sigmoid(x * (1.702 if n["alpha"] is None else n["alpha"]))
