"""Elementwise ops that are a single node in ONNX, which is more readable than their bodies; sums, means, extremes,
and ops made from them."""

from __future__ import annotations

from typing import Any

from fxlite.codegen.onnx.builder import WIDE, Builder, Value, exports, is_array, is_float, is_single, no, type_of
from fxlite.importing.onnx.registry import counterparts
from fxlite.types import dtypes
from fxlite.types.shapes import product
from fxlite.types.tensor_type import TensorType

#: The first opsets of ops that came later.
_SINCE = {"gelu": 20}


def _same(own: str, theirs: str, when: Any = is_single, since: int = 0, **attributes: Any) -> None:
    """Register an op of one operand that ONNX has unchanged. ``attributes`` maps ONNX's attributes to the parameters
    that give them, or to numbers."""

    @exports(own, since=since, when=when)
    def write(b: Builder, type: TensorType, x: Any, **options: Any) -> str:
        given = {name: options.get(value, value) for name, value in attributes.items()}
        floats = {name: value if isinstance(value, str) else float(value) for name, value in given.items()}
        return b.op(theirs, b.operand(x, type.dtype), **floats)


for _op, _name, _attributes in counterparts():
    if _op.role == "activation":
        _same(_op.name, _name, since=_SINCE.get(_op.name, 0), **_attributes)
_same("relu", "Relu", is_float)
# above the threshold the two give the same number
_same("softplus", "Softplus", lambda a: is_single(a) and a["beta"] == 1.0 and a["threshold"] >= 20)
_same("hardsigmoid", "HardSigmoid", alpha=1 / 6, beta=0.5)
_same("silu", "Swish", since=24)


@exports("clip", when=lambda a: is_float(a) and all(isinstance(a[k], int | float | None) for k in "min max".split()))
def clip(b: Builder, type: TensorType, x: Any, min: Any, max: Any) -> str:
    low, high = (None if v is None else b.number(v, type.dtype) for v in (min, max))
    return b.op("Clip", b.operand(x, type.dtype), low, high)


@exports("prelu", when=lambda a: is_single(a) and type_of(a["weight"]) is not None and a["x"].type.rank > 0)
def prelu(b: Builder, type: TensorType, x: Value, weight: Value) -> str:
    """The weight has one number for each channel (axis 1), or one for all."""
    if weight.type.rank == 1 and weight.type.shape[0] != 1 and x.type.rank > 2:
        slope = b.op("Reshape", weight, b.integers(-1, *[1] * (x.type.rank - 2)))
    else:
        slope = weight.name
    return b.op("PRelu", x, slope)


@exports("dropout")
def dropout(b: Builder, type: TensorType, x: Any, p: float, training: bool) -> str:
    """Refuse dropout that draws random numbers; other dropout was removed before."""
    raise no("dropout in training mode draws random numbers; call eval() before tracing")


# -- reductions ------------------------------------------------------------------------------------
def _reduce(b: Builder, kind: str, x: Any, axis: Any, keepdims: bool, rank: int) -> str:
    if axis == ():
        return b.name(x)
    axes = axis if isinstance(axis, tuple) else (axis,)
    return b.op(kind, x, None if axis is None else b.integers(*(a % rank for a in axes)), keepdims=int(keepdims))


@exports(sum="ReduceSum", prod="ReduceProd", max="ReduceMax", min="ReduceMin", mean="ReduceMean", when=is_array)
def reduction(b: Builder, type: TensorType, x: Value, axis: Any, keepdims: bool, initial: Any = None) -> str:
    own = x.type.dtype if b.kind in ("ReduceMax", "ReduceMin") else type.dtype
    computed = WIDE.get(own, own)
    held = b.operand(x, computed)
    return b.cast(_reduce(b, b.kind, held, axis, keepdims, x.type.rank), computed, type.dtype)


@exports(any="any", all="all")
def truth(b: Builder, type: TensorType, x: Value, axis: Any, keepdims: bool) -> str:
    """Compute any by a sum of truth values, which also works without elements; all is "not any that are not"."""
    held = b.operand(x, dtypes.bool_)
    held = b.cast(held if b.kind == "any" else b.op("Not", held), dtypes.bool_, dtypes.int64)
    number = _reduce(b, "ReduceSum", held, axis, keepdims, x.type.rank)
    return b.op("Greater" if b.kind == "any" else "Equal", number, b.number(0, dtypes.int64))


@exports(argmax="ArgMax", argmin="ArgMin")
def positions(b: Builder, type: TensorType, x: Value, axis: Any, keepdims: bool) -> str:
    wide = WIDE.get(x.type.dtype, x.type.dtype)
    held, rank = b.operand(x, wide), x.type.rank
    if axis is None:
        flat = b.reshape(held, (product(x.type.shape),))
        found = b.op(b.kind, flat, axis=0, keepdims=0)
        return b.op("Reshape", found, b.integers(*[1] * rank)) if keepdims and rank else found
    return b.op(b.kind, held, axis=axis % rank, keepdims=int(keepdims))


@exports(softmax="Softmax", log_softmax="LogSoftmax", when=is_float)
def softmax(b: Builder, type: TensorType, x: Value, axis: int) -> str:
    return b.op(b.kind, x, axis=axis % type.rank)


@exports("logsumexp", when=is_float)
def logsumexp(b: Builder, type: TensorType, x: Value, axis: Any, keepdims: bool) -> str:
    return _reduce(b, "ReduceLogSumExp", x, axis, keepdims, x.type.rank)


@exports("dynamic_scale")
def dynamic_scale(b: Builder, type: TensorType, x: Value, axis: Any, keepdims: bool, qmax: int) -> str:
    size = b.op("Abs", b.operand(x, dtypes.float32))
    largest = _reduce(b, "ReduceMax", size, axis, keepdims, x.type.rank)
    found = b.op("Mul", largest, b.number(1 / qmax, dtypes.float32))
    return b.op("Max", found, b.number(2.0**-120, dtypes.float32))
