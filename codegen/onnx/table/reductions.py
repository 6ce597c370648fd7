"""Sums, means, extremes, and what is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fxlite.codegen.onnx.builder import Builder
from fxlite.codegen.onnx.registry import Value, exports, type_of
from fxlite.types import dtypes
from fxlite.types.tensor_type import TensorType

#: Types that runtimes reduce in: narrower ones are widened.
_WIDE = {
    dtypes.int8: dtypes.int32,
    dtypes.uint8: dtypes.int32,
    dtypes.int16: dtypes.int32,
    dtypes.uint16: dtypes.int32,
    dtypes.uint32: dtypes.int64,
    dtypes.bool_: dtypes.int32,
}


def axes_of(b: Builder, axis: Any, rank: int) -> str | None:
    """The axes of a reduction as an input; None for all."""
    if axis is None:
        return None
    found = axis if isinstance(axis, tuple) else (axis,)
    return b.integers(*(a % rank for a in found))


def _is_array(bound: Mapping[str, Any]) -> bool:
    return type_of(bound["x"]) is not None


def _reduce(b: Builder, kind: str, x: Any, axis: Any, keepdims: bool, rank: int) -> str:
    if axis == ():
        return b.name(x)
    return str(b.op(kind, x, axes_of(b, axis, rank), keepdims=int(keepdims)))


@exports("sum", kind="ReduceSum", when=_is_array)
@exports("prod", kind="ReduceProd", when=_is_array)
@exports("max", kind="ReduceMax", when=_is_array)
@exports("min", kind="ReduceMin", when=_is_array)
@exports("mean", kind="ReduceMean", when=_is_array)
def reduction(b: Builder, type: TensorType, x: Value, axis: Any, keepdims: bool) -> str:
    own = x.type.dtype if b.kind in ("ReduceMax", "ReduceMin") else type.dtype
    computed = _WIDE.get(own, own)
    held = b.operand(x, computed)
    return b.cast(_reduce(b, b.kind, held, axis, keepdims, x.type.rank), computed, type.dtype)


@exports("any", kind="ReduceMax")
@exports("all", kind="ReduceMin")
def truth(b: Builder, type: TensorType, x: Value, axis: Any, keepdims: bool) -> str:
    held = b.cast(b.operand(x, dtypes.bool_), dtypes.bool_, dtypes.int32)
    return b.cast(_reduce(b, b.kind, held, axis, keepdims, x.type.rank), dtypes.int32, dtypes.bool_)


@exports("argmax", kind="ArgMax")
@exports("argmin", kind="ArgMin")
def positions(b: Builder, type: TensorType, x: Value, axis: Any, keepdims: bool) -> str:
    wide = _WIDE.get(x.type.dtype, x.type.dtype)
    held, rank = b.operand(x, wide), x.type.rank
    if axis is None:
        flat = b.op("Reshape", held, b.integers(-1))
        found = b.op(b.kind, flat, axis=0, keepdims=0)
        return str(b.op("Reshape", found, b.integers(*[1] * rank))) if keepdims and rank else str(found)
    return str(b.op(b.kind, held, axis=axis % rank, keepdims=int(keepdims)))


def _is_float(bound: Mapping[str, Any]) -> bool:
    given = type_of(bound["x"])
    return given is not None and given.dtype.is_float


@exports("softmax", kind="Softmax", when=_is_float)
@exports("log_softmax", kind="LogSoftmax", when=_is_float)
def softmax(b: Builder, type: TensorType, x: Value, axis: int) -> str:
    return str(b.op(b.kind, x, axis=axis % type.rank))


@exports("logsumexp", when=_is_float)
def logsumexp(b: Builder, type: TensorType, x: Value, axis: Any, keepdims: bool) -> str:
    return _reduce(b, "ReduceLogSumExp", x, axis, keepdims, x.type.rank)


@exports("dynamic_scale")
def dynamic_scale(b: Builder, type: TensorType, x: Value, axis: Any, keepdims: bool, qmax: int) -> str:
    size = b.op("Abs", b.operand(x, dtypes.float32))
    largest = _reduce(b, "ReduceMax", size, axis, keepdims, x.type.rank)
    found = b.op("Mul", largest, b.number(1 / qmax, dtypes.float32))
    return str(b.op("Max", found, b.number(2.0**-120, dtypes.float32)))
