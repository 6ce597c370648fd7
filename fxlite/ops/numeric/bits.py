"""``bitcast``: reads the bits of numbers as numbers of another dtype of the same size.

In and out are as in :mod:`fxlite.ops.elementwise`. Kernels have functions for float32 and float64; the bits
of half types are computed from those of float32, which can represent all their numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.base.errors import DTypeError, number_of
from fxlite.ops.op import Tensor, op, shape_of
from fxlite.ops.samples import Bad, S, uniform
from fxlite.scalar import expr
from fxlite.scalar.expr import Expr, MultiIndex, Reader
from fxlite.scalar.functions import Function, define
from fxlite.types import dtypes
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import TensorType

_I32, _F32 = dtypes.int32, dtypes.float32


def _define(target: DType) -> None:
    define(Function(f"as_{target.name}", 1, lambda x: np.asarray(x).view(target.numpy)[()], result=target))


for _dtype in (dtypes.int32, dtypes.int64, dtypes.float32, dtypes.float64):
    _define(_dtype)


@op(
    "pointwise",
    gives_number=None,
    samples=[
        "f32[B,3] 'i32' B=2; i32[5] 'f32'; f64[4] 'i64'; i64[3] 'f64'; f32[9]! 'u32'; f64[9]! 'u64'; u8[4] 'i8'",
        "f16[6] 'i16'; f16[9]! 'u16'; bf16[6] 'u16'; i16[5] 'f16'; bool[4] 'u8'; i32[3] 'u32'; f32[0,2] 'i32'",
        S(uniform("u16[64]", 0, 0x7C00), "f16"),
        S(uniform("u16[64]", 0, 0x7F80), "bf16"),
    ],
    bad=[Bad("f32[3]", "f64", match="4 bytes"), Bad("c64[3]", "i64", match="complex")],
)
def bitcast(x: Tensor, dtype: DType) -> Tensor:
    """The bits of each element of ``x``, read as a number of ``dtype``, which must have the same size, as in
    ``x.view(dtype)`` for an array. Raises DTypeError for another size, and for complex numbers."""
    array, target = np.asarray(x), dtypes.dtype(dtype)
    _require(dtypes.dtype(array.dtype), target)
    if target.is_bool:  # NumPy has no bools with other bits than those of 0 and 1
        return array.view(np.uint8) != 0
    return array.copy().view(target.numpy)[()]


def _require(held: DType, target: DType) -> None:
    if held.is_complex or target.is_complex:
        raise DTypeError(f"bits of {held} read as {target}: complex numbers have two parts; read x.real and x.imag")
    if held.itemsize != target.itemsize:
        raise DTypeError(
            f"an element of {held} has {number_of(held.itemsize, 'byte')}, and one of {target} {target.itemsize}; "
            "x.view(dtype) of an array reads several as one, or one as several"
        )


@bitcast.infer
def _(x: Any, dtype: Any) -> TensorType:
    target = dtypes.dtype(dtype)
    _require(dtypes.of_value(x) if not hasattr(x, "dtype") else dtypes.dtype(x.dtype), target)
    return TensorType(shape_of(x), target)


@bitcast.body
def _(i: MultiIndex, x: Reader, dtype: Any) -> Expr:
    value, target = x[i], dtypes.dtype(dtype)
    if target is value.dtype:
        return value
    if target.is_bool:
        return expr.apply("ne", expr.cast(value, dtypes.dtype("u8")), expr.Const(dtypes.dtype("u8"), 0))
    bits = _bits(value)
    return _read(bits, target) if target.is_float else expr.cast(bits, target)


def _number(value: int | float) -> Expr:
    return expr.Const(_I32 if type(value) is int else _F32, value)


def _bits(x: Expr) -> Expr:
    """The bits of a number, as an integer of at least the same size."""
    if not x.dtype.is_float:
        return x
    if not x.dtype.is_half:
        return expr.apply("as_i64" if x.dtype.itemsize == 8 else "as_i32", x)
    wide = expr.cast(x, _F32)
    bits = expr.apply("as_i32", wide)
    if x.dtype is not dtypes.float16:
        return expr.apply("shr", bits, _number(16))
    # exponents of float16 are smaller by 112, and the 10 bits of the fraction are 13 bits lower
    low = expr.apply("as_i32", expr.apply("mul", expr.apply("abs", wide), _number(2.0**-112)))
    found = expr.apply("shr", low, _number(13))
    found = expr.where(expr.apply("isinf", wide), _number(0x7C00), found)
    found = expr.where(expr.apply("isnan", wide), _number(0x7E00), found)
    sign = expr.apply("and", expr.apply("shr", bits, _number(16)), _number(0x8000))
    return expr.apply("or", found, sign)


def _read(bits: Expr, target: DType) -> Expr:
    """The number of a float dtype with these bits."""
    if not target.is_half:
        integer = dtypes.int64 if target.itemsize == 8 else _I32
        return expr.apply(f"as_{target.name}", expr.cast(bits, integer))
    bits = expr.cast(bits, _I32)
    if target is not dtypes.float16:
        return expr.cast(expr.apply("as_f32", expr.apply("shl", bits, _number(16))), target)
    low = expr.apply("shl", expr.apply("and", bits, _number(0x7FFF)), _number(13))
    size = expr.apply("mul", expr.apply("as_f32", low), _number(2.0**112))
    special = expr.apply("eq", expr.apply("and", bits, _number(0x7C00)), _number(0x7C00))
    size = expr.where(special, expr.apply("as_f32", expr.apply("or", low, _number(0x7F800000))), size)
    sign = expr.apply("shl", expr.apply("and", bits, _number(0x8000)), _number(16))
    return expr.cast(expr.apply("as_f32", expr.apply("or", expr.apply("as_i32", size), sign)), target)
