"""Ops of graphs that were quantized by PyTorch (pt2e, ``quantized_decomposed``) in terms of fxlite's integer ops, which
passes and kernels for quantized models recognize. Also torch's ops for products of integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.importing.torch.table import (
    Call,
    as_array,
    aten,
    axis_of,
    cast,
    dtype_of,
    dtype_of_value,
    is_number,
    op,
    rank_of,
)
from fxlite.types import dtypes

_OWN = "quantized_decomposed."
_BYTES = (dtypes.int8, dtypes.uint8)


def _scale_of(c: Call, value: Any, x: Any, axis: int | None) -> Any:
    """A scale in float32: a single number, or one for each element along an axis of ``x``."""
    return _along(np.float32(value) if is_number(value) else cast(value, dtypes.float32), x, axis)


def _along(value: Any, x: Any, axis: int | None) -> Any:
    if is_number(value) or isinstance(value, np.generic) or not rank_of(value):
        return value
    if axis is None:
        return value.reshape(())
    return value.reshape([-1 if a == axis_of(x, axis) else 1 for a in range(rank_of(x))])


def _quantized(c: Call, x: Any, scale: Any, zero_point: Any, axis: int | None, low: int, high: int, dtype: Any) -> Any:
    """``clip(round(x / scale) + zero_point, low, high)``; as in torch, x is multiplied by the reciprocal of the
    scale."""
    wanted, x = dtype_of(dtype), cast(x, dtypes.float32)
    scale, zero_point = _scale_of(c, scale, x, axis), _along(zero_point, x, axis)
    if wanted in _BYTES:
        zero_point = as_array(zero_point, wanted) if is_number(zero_point) else cast(zero_point, wanted)
        return op("quantize")(x, scale, zero_point, wanted, low, high)
    places = op("round")(x * op("reciprocal")(scale)) + (
        zero_point if is_number(zero_point) else cast(zero_point, dtypes.float32)
    )
    return cast(op("clip")(places, low, high), wanted)


def _numbers(c: Call, x: Any, scale: Any, zero_point: Any, axis: int | None, out_dtype: Any) -> Any:
    """``(x - zero_point) * scale``"""
    scale, zero_point, own = _scale_of(c, scale, x, axis), _along(zero_point, x, axis), dtype_of_value(x)
    if own in (*_BYTES, dtypes.int32):
        if zero_point is not None:
            zero_point = as_array(zero_point, own) if is_number(zero_point) else cast(zero_point, own)
        return op("dequantize")(x, scale, zero_point)
    found = cast(x, dtypes.float32)
    if zero_point is not None:
        found = found - (zero_point if is_number(zero_point) else cast(zero_point, dtypes.float32))
    return found * scale


@aten(f"{_OWN}quantize_per_tensor")
def _quantize(c: Call, x: Any, scale: Any, zero_point: Any, quant_min: int, quant_max: int, dtype: Any) -> Any:
    return _quantized(c, x, scale, zero_point, None, quant_min, quant_max, dtype)


@aten(f"{_OWN}dequantize_per_tensor")
def _dequantize(c: Call, x: Any, scale: Any, zero_point: Any, *_: Any, out_dtype: Any = None) -> Any:
    return _numbers(c, x, scale, zero_point, None, out_dtype)


@aten(f"{_OWN}quantize_per_channel")
def _quantize_channels(
    c: Call, x: Any, scales: Any, zero_points: Any, axis: int, quant_min: int, quant_max: int, dtype: Any
) -> Any:
    return _quantized(c, x, scales, zero_points, axis, quant_min, quant_max, dtype)


@aten(f"{_OWN}dequantize_per_channel")
def _dequantize_channels(
    c: Call, x: Any, scales: Any, zero_points: Any, axis: int, *_: Any, out_dtype: Any = None
) -> Any:
    return _numbers(c, x, scales, zero_points, axis, out_dtype)


@aten(f"{_OWN}choose_qparams", f"{_OWN}choose_qparams_symmetric")
def _choose(c: Call, x: Any, quant_min: int, quant_max: int, eps: float, dtype: Any) -> Any:
    """The scale and zero point for the range of the values and 0, each as an array with one element."""
    x = cast(x, dtypes.float32)
    low, high = op("minimum")(op("min")(x), 0.0), op("maximum")(op("max")(x), 0.0)
    if c.name.endswith("symmetric"):
        scale = op("maximum")(op("maximum")(-low, high) / ((quant_max - quant_min) / 2), eps)
        middle = (quant_min + quant_max) // 2 if (quant_min, quant_max) != (0, 255) else 128
        point = op("full")((), middle if dtype_of(dtype) is dtypes.uint8 else 0, dtypes.int64)
    else:
        scale = op("maximum")((high - low) / float(quant_max - quant_min), eps)
        point = op("clip")(quant_min - cast(op("round")(low / scale), dtypes.int64), quant_min, quant_max)
    return cast(scale, dtypes.float64).reshape((1,)), point.reshape((1,))


@aten("quantize_per_tensor", "quantize_per_tensor_dynamic", "quantize_per_channel", "dequantize.self")
def _quantized_tensor(c: Call, *args: Any, **named: Any) -> Any:
    raise c.refuse(
        "tensors of torch's eager quantization; quantize the model by torchao or pt2e, whose integers are kept"
    )


@aten("_to_sparse", "_to_sparse_csr", "_to_sparse_csc", "_to_sparse_bsr", "_to_sparse_bsc", "_to_dense")
def _sparse_tensor(c: Call, *args: Any, **named: Any) -> Any:
    raise c.refuse("a sparse tensor; arrays of fxlite are dense, so leave it dense")


@aten("_int_mm")
def _int_mm(c: Call, x: Any, y: Any) -> Any:
    return op("int_matmul")(x, y)
