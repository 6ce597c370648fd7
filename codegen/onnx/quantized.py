"""Quantized values as QuantizeLinear and DequantizeLinear, and products of integers, with the same integers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fxlite.codegen.onnx.builder import Builder, Value, exports, type_of
from fxlite.codegen.onnx.products import back, first, kernel_of, numeric_padding, shape_before, window
from fxlite.types import dtypes
from fxlite.types.dtypes import DType
from fxlite.types.shapes import product
from fxlite.types.tensor_type import TensorType


def _axes(x: Any, *others: Any) -> set[int]:
    """The axes of ``x`` along which a scale or zero point varies; ONNX supports at most one."""
    rank, types = x.type.rank, [t for t in map(type_of, others) if t is not None]
    return {rank - t.rank + a for t in types for a, size in enumerate(t.shape) if size != 1}


def _quantizes(bound: Mapping[str, Any]) -> bool:
    type = type_of(bound["x"])
    whole = bound["qmin"] is None and bound["qmax"] is None
    few = type is not None and len(_axes(bound["x"], bound["scale"], bound["zero_point"])) <= 1
    return whole and few and type.dtype is dtypes.float32  # type: ignore[union-attr]


def _vector(b: Builder, value: Any, dtype: DType, axis: int | None, size: Any) -> str:
    """A scale or zero point in ONNX's form: one number, or a vector along the axis."""
    held = b.known(value)
    if held is not None:
        array = held.reshape(-1).astype(dtype.numpy)
        if axis is None:
            return b.constant(array.reshape(()))
        if array.size != 1:
            return b.constant(array)
        if not isinstance(size, int):
            return b.expand(b.constant(array), [size])
        return b.constant(np.broadcast_to(array, (size,)))
    name = b.operand(value, dtype)
    if axis is None:
        return name if not value.type.rank else b.op("Reshape", name, b.constant(np.zeros(0, np.int64)))
    flat = b.reshape(name, (product(value.type.shape),))
    return flat if value.type.size == size else b.expand(flat, [size])


def _linear(b: Builder, kind: str, x: Value, scale: Any, zero: Any, dtype: DType) -> str:
    """Write QuantizeLinear or DequantizeLinear; ``dtype`` is that of the integers."""
    axis = next(iter(_axes(x, scale, zero)), None)
    size = None if axis is None else x.type.shape[axis]
    step = _vector(b, scale, dtypes.float32, axis, size)
    return b.op(kind, x, step, None if zero is None else _vector(b, zero, dtype, axis, size), axis=axis)


@exports("quantize", when=_quantizes)
def quantize(b: Builder, type: TensorType, x: Value, scale: Any, zero_point: Any, **_: Any) -> str:
    return _linear(b, "QuantizeLinear", x, scale, 0 if zero_point is None else zero_point, type.dtype)


def _dequantizes(bound: Mapping[str, Any]) -> bool:
    type = type_of(bound["q"])
    if type is None or len(_axes(bound["q"], bound["scale"], bound["zero_point"])) > 1:
        return False
    return type.dtype in (dtypes.int8, dtypes.uint8) or (type.dtype is dtypes.int32 and bound["zero_point"] is None)


@exports("dequantize", when=_dequantizes)
def dequantize(b: Builder, type: TensorType, q: Value, scale: Any, zero_point: Any) -> str:
    return _linear(b, "DequantizeLinear", q, scale, zero_point, q.type.dtype)


@exports("requantize", when=lambda a: a["qmin"] is None and a["qmax"] is None and type_of(a["zero_point"]) is None)
def requantize(b: Builder, type: TensorType, acc: Value, scale: Any, zero_point: Any, **_: Any) -> str:
    """Write the product with the scale, quantized with the scale 1."""
    whole = b.op("Mul", b.operand(acc, dtypes.float32), b.operand(scale, dtypes.float32))
    zero = b.number(zero_point or 0, type.dtype)
    return b.op("QuantizeLinear", whole, b.number(1.0, dtypes.float32), zero)


# -- products of integers --------------------------------------------------------------------------
def _unsigned(b: Builder, value: Value, name: str) -> tuple[str, int]:
    """Integers as u8, and the number added: products of u8 and i8 saturate in some kernels of runtimes."""
    if value.type.dtype is dtypes.uint8:
        return name, 0
    held = b.weights.get(name)
    if held is not None:
        return b.weight(f"{name}.u8", (held.astype(np.int16) + 128).astype(np.uint8)), 128
    wide = b.op("Add", b.cast(name, dtypes.int8, dtypes.int32), b.number(128, dtypes.int32))
    return b.cast(wide, dtypes.int32, dtypes.uint8), 128


@exports("int_matmul")
def int_matmul(b: Builder, type: TensorType, x: Value, y: Value, x_zero_point: int, y_zero_point: int) -> str:
    one, more = _unsigned(b, x, x.name)
    other, less = _unsigned(b, y, y.name)
    zeros = b.number(x_zero_point + more, dtypes.uint8), b.number(y_zero_point + less, dtypes.uint8)
    return b.op("MatMulInteger", one, other, *zeros)


@exports("int_linear")
def int_linear(b: Builder, type: TensorType, x: Value, weight: Value, bias: Any, x_zero_point: int) -> str:
    """The weight is transposed in the model and keeps its layout in the file."""
    own, less = _unsigned(b, weight, weight.name)
    one, more = _unsigned(b, x, x.name)
    zeros = b.number(x_zero_point + more, dtypes.uint8), b.number(less, dtypes.uint8)
    found = b.op("MatMulInteger", one, b.op("Transpose", own, perm=[1, 0]), *zeros)
    return found if bias is None else b.op("Add", found, bias)


@exports("int_conv2d", when=numeric_padding)
def int_conv2d(
    b: Builder, type: TensorType, x: Value, weight: Value, bias: Any, x_zero_point: int, layout: str, **settings: Any
) -> str:
    """ConvInteger pads with the zero point."""
    held, more = _unsigned(b, x, first(b, x, layout))
    own, less = _unsigned(b, weight, weight.name)
    zeros = b.number(x_zero_point + more, dtypes.uint8), b.number(less, dtypes.uint8)
    found = b.op("ConvInteger", held, own, *zeros, **window(settings, 2, kernel_of(weight)))
    if bias is not None:
        found = b.shaped(shape_before(type, layout), found)
        found = b.op("Add", found, b.op("Reshape", bias, b.integers(-1, 1, 1)))
    return back(b, found, type, layout)
