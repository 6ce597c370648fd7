"""Quantized values: QuantizeLinear and DequantizeLinear, and products of integers, with the same integers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fxlite.codegen.onnx.builder import Builder
from fxlite.codegen.onnx.registry import Value, exports, type_of
from fxlite.codegen.onnx.table.products import back, first, numeric_padding, pads, several
from fxlite.types import dtypes
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import TensorType


def _spread(bound: Mapping[str, Any], x: str) -> tuple[bool, int | None]:
    """Whether scale and zero point are one number or those of one axis; which axis that is."""
    rank = bound[x].type.rank
    axes: set[int] = set()
    for name in ("scale", "zero_point"):
        type = type_of(bound[name])
        if type is not None:
            axes |= {rank - type.rank + a for a, size in enumerate(type.shape) if size != 1}
    return len(axes) <= 1, next(iter(axes), None)


def _quantizes(bound: Mapping[str, Any]) -> bool:
    type = type_of(bound["x"])
    whole = bound["qmin"] is None and bound["qmax"] is None
    return whole and type is not None and type.dtype is dtypes.float32 and _spread(bound, "x")[0]


def _vector(b: Builder, value: Any, dtype: DType, axis: int | None, size: Any) -> str:
    """A scale or zero point as ONNX takes it: one number, or a vector along the axis."""
    held = b.known(value)
    if held is not None:
        array = held.reshape(-1).astype(dtype.numpy)
        if axis is None:
            return b.constant(array.reshape(()))
        if array.size != 1:
            return b.constant(array)
        if not isinstance(size, int):
            return str(b.op("Expand", b.constant(array), b.sizes([size])))
        return b.constant(np.broadcast_to(array, (size,)))
    name = b.operand(value, dtype)
    if axis is None:
        return name if not value.type.rank else str(b.op("Reshape", name, b.constant(np.zeros(0, np.int64))))
    flat = b.op("Reshape", name, b.integers(-1))
    return str(flat) if value.type.size == size else str(b.op("Expand", flat, b.sizes([size])))


@exports("quantize", when=_quantizes)
def quantize(
    b: Builder, type: TensorType, x: Value, scale: Any, zero_point: Any, dtype: Any, qmin: Any, qmax: Any
) -> str:
    axis = _spread({"x": x, "scale": scale, "zero_point": zero_point}, "x")[1]
    size = None if axis is None else type.shape[axis]
    step = _vector(b, scale, dtypes.float32, axis, size)
    zero = _vector(b, 0 if zero_point is None else zero_point, type.dtype, axis, size)
    return str(b.op("QuantizeLinear", x, step, zero, axis=axis))


def _dequantizes(bound: Mapping[str, Any]) -> bool:
    type = type_of(bound["q"])
    if type is None or not _spread(bound, "q")[0]:
        return False
    return type.dtype in (dtypes.int8, dtypes.uint8) or (type.dtype is dtypes.int32 and bound["zero_point"] is None)


@exports("dequantize", when=_dequantizes)
def dequantize(b: Builder, type: TensorType, q: Value, scale: Any, zero_point: Any) -> str:
    axis = _spread({"q": q, "scale": scale, "zero_point": zero_point}, "q")[1]
    size = None if axis is None else type.shape[axis]
    step = _vector(b, scale, dtypes.float32, axis, size)
    zero = None if zero_point is None else _vector(b, zero_point, q.type.dtype, axis, size)
    return str(b.op("DequantizeLinear", q, step, zero, axis=axis))


@exports("requantize", when=lambda a: a["qmin"] is None and a["qmax"] is None and type_of(a["zero_point"]) is None)
def requantize(
    b: Builder, type: TensorType, acc: Value, scale: Any, zero_point: Any, dtype: Any, qmin: Any, qmax: Any
) -> str:
    """The product with the scale, quantized with the scale 1."""
    whole = b.op("Mul", b.operand(acc, dtypes.float32), b.operand(scale, dtypes.float32))
    zero = b.number(zero_point or 0, type.dtype)
    return str(b.op("QuantizeLinear", whole, b.number(1.0, dtypes.float32), zero))


# -- products of integers --------------------------------------------------------------------------
def _unsigned(b: Builder, value: Value, name: str) -> tuple[str, int]:
    """Integers as u8, and what was added: products of u8 and i8 saturate in some kernels of runtimes."""
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
    return str(b.op("MatMulInteger", one, other, *zeros))


@exports("int_linear")
def int_linear(b: Builder, type: TensorType, x: Value, weight: Value, bias: Any, x_zero_point: int) -> str:
    """The weight is transposed in the model, and keeps its layout in the file."""
    own, less = _unsigned(b, weight, weight.name)
    one, more = _unsigned(b, x, x.name)
    zeros = b.number(x_zero_point + more, dtypes.uint8), b.number(less, dtypes.uint8)
    found = str(b.op("MatMulInteger", one, b.op("Transpose", own, perm=[1, 0]), *zeros))
    return found if bias is None else str(b.op("Add", found, bias))


@exports("int_conv2d", when=numeric_padding)
def int_conv2d(
    b: Builder,
    type: TensorType,
    x: Value,
    weight: Value,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    x_zero_point: int,
    layout: str,
) -> str:
    """ConvInteger pads with the zero point."""
    held, more = _unsigned(b, x, first(b, x, layout))
    own, less = _unsigned(b, weight, weight.name)
    found = b.op(
        "ConvInteger",
        held,
        own,
        b.number(x_zero_point + more, dtypes.uint8),
        b.number(less, dtypes.uint8),
        kernel_shape=[int(k) for k in weight.type.shape[2:]],
        strides=several(stride, 2),
        pads=pads(padding, 2),
        dilations=several(dilation, 2),
        group=groups,
    )
    if bias is not None:
        found = b.op("Add", found, b.op("Reshape", bias, b.integers(-1, 1, 1)))
    return back(b, found, type.rank, layout)
