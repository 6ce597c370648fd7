"""Less common element-wise functions of NumPy: other bases, inverse hyperbolic functions, extremes that
ignore NaN, greatest common divisors.

In and out are as in :mod:`fxlite.ops.elementwise`. A record that is composed of other scalar functions has
the composition in ``scalar``; the others name a function of ``codegen/c/fx_math.h``.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from fxlite.base.errors import DTypeError
from fxlite.ops.elementwise import as_numpy, binary, float_samples, refused, unary
from fxlite.ops.samples import S, Samples, uniform
from fxlite.scalar import expr
from fxlite.scalar.expr import Expr
from fxlite.scalar.functions import Function, define
from fxlite.types import dtypes
from fxlite.types.dtypes import DType

# -- floats ----------------------------------------------------------------------------------------
unary("log10", np.log10, "Logarithm to base 10.", cost=8, ulp=2.5, samples=float_samples(0.01, 100))
unary("exp2", np.exp2, "``2**x``.", cost=8, ulp=1.5, nonnegative=True, samples=float_samples(-20, 20))
unary("cbrt", np.cbrt, "Cube root, also of negative numbers.", cost=8, ulp=1.5, samples=float_samples(-9, 9))
unary("asinh", np.arcsinh, "Inverse of sinh.", onnx="Asinh", cost=8, ulp=2.5, samples=float_samples(-9, 9))
unary(
    "acosh",
    np.arccosh,
    "Inverse of cosh, for numbers >= 1.",
    onnx="Acosh",
    cost=8,
    ulp=2.5,
    samples=float_samples(1, 9),
)
unary(
    "atanh",
    np.arctanh,
    "Inverse of tanh, of numbers between -1 and 1.",
    onnx="Atanh",
    cost=8,
    ulp=2.5,
    samples=float_samples(-0.9, 0.9),
)


def _times(numerator: float, denominator: float, x: Expr) -> Expr:
    """The product of ``x`` and a quotient of two numbers, both computed in the dtype of x, so that it is
    rounded twice, as in NumPy."""
    wide = x.dtype.compute
    kind = wide.numpy.type
    factor = expr.const(float(kind(numerator) / kind(denominator)), wide)
    return expr.cast(expr.apply("mul", expr.cast(x, wide), factor), x.dtype)


unary(
    "deg2rad",
    np.deg2rad,
    "Converts degrees to radians.",
    scalar=functools.partial(_times, math.pi, 180),
    samples=float_samples(-360, 360),
)
unary(
    "rad2deg",
    np.rad2deg,
    "Converts radians to degrees.",
    scalar=functools.partial(_times, 180, math.pi),
    samples=float_samples(-9, 9),
)


def _require_real(dtype: Any) -> None:
    """Raise DTypeError for complex numbers."""
    if dtype is complex or isinstance(dtype, complex) or getattr(dtype, "is_complex", False):
        raise refused((dtype,), "take .real, .imag or abs of the complex operand")


def _signbit(x: Expr) -> Expr:
    zero = expr.const(0, x.dtype)
    if not x.dtype.is_float:
        return expr.apply("lt", x, zero)
    return expr.apply("lt", expr.apply("copysign", expr.const(1, x.dtype), x), zero)


def _of_floats(dtype: Any) -> DType:
    """The dtype itself, but u8, which has no sign either, for bools. Raises DTypeError for complex numbers."""
    _require_real(dtype)
    return dtypes.dtype("u8") if dtype is dtypes.bool_ else dtypes.result_type(dtype)


unary(
    "signbit",
    np.signbit,
    "True where the sign bit is set, also for -0.0.",
    rule=_of_floats,
    scalar=_signbit,
    result=dtypes.bool_,
    samples=["f32[B,5] B=3; f64[9]!; f16[4]; bf16[6]; i32[5]; u8[4]"],
)

_PAIRS = [
    "f32[B,4] f32[B,4] B=3; f32[3,1,4] f64[2,1]; f32[5] 0.5; i32[4] i32[4](1,5); u8[4] u8[4](1,5); f16[3,3] f32[3]",
    "f64[6]! f64[6]; f32[6] f32[6]!; bf16[4] 0.5; f32[0,4] f32[4]",
]


def _without_nan(function: str, x: Expr, y: Expr) -> Expr:
    best = expr.apply(function, x, y)
    if not x.dtype.is_inexact:
        return best
    other = expr.where(expr.apply("isnan", y), x, best)
    return expr.where(expr.apply("isnan", x), y, other)


binary(
    "fmax",
    np.fmax,
    "Larger of the two; the other one where one is NaN.",
    commutative=True,
    associative=True,
    samples=_PAIRS,
    scalar=functools.partial(_without_nan, "maximum"),
)
binary(
    "fmin",
    np.fmin,
    "Smaller of the two; the other one where one is NaN.",
    commutative=True,
    associative=True,
    samples=_PAIRS,
    scalar=functools.partial(_without_nan, "minimum"),
)


def _integer_rest(x: Expr, y: Expr) -> Expr | None:
    """The remainder of integers with the sign of ``x``, from the one with the sign of ``y``."""
    if x.dtype.is_float:
        return None
    rest = expr.apply("mod", x, y)
    if x.dtype.is_unsigned or x.dtype.is_bool:
        return rest
    zero = expr.const(0, x.dtype)
    differ = expr.apply("xor", expr.apply("lt", x, zero), expr.apply("lt", rest, zero))
    wrong = expr.apply("and", differ, expr.apply("ne", rest, zero))
    return expr.where(wrong, expr.apply("sub", rest, y), rest)


binary(
    "fmod",
    np.fmod,
    "Remainder with the sign of ``x``, as C's fmod; for integers, the remainder of a division by 0 is 0.",
    cost=8,
    calls=("f64",),
    unless=_integer_rest,
    samples=[
        "f32[4,5] f32[5]; f64[8] 0.75; i32[9] i32[9](-4,5); i8[6] 3; u8[6](0,250) u8[6](0,7)",
        S(uniform("u64[6]", 0, 2**63), 10**9),
        "f32[6]! f32[6]; f16[4] 0.5; bf16[4] bf16[4]",
    ],
)


def _heaviside(x: Expr, y: Expr) -> Expr:
    zero, one = expr.const(0, x.dtype), expr.const(1, x.dtype)
    step = expr.where(expr.apply("gt", x, zero), one, x)  # NaN stays NaN
    step = expr.where(expr.apply("lt", x, zero), zero, step)
    return expr.where(expr.apply("eq", x, zero), y, step)


binary(
    "heaviside",
    np.heaviside,
    "0 for ``x < 0``, 1 for ``x > 0``, ``y`` for ``x == 0``; NaN stays NaN.",
    scalar=_heaviside,
    samples=_PAIRS,
)


def _logaddexp2(x: Expr, y: Expr) -> Expr:
    """``log2(2**x + 2**y)``; half types are computed in float32."""
    wide = x.dtype.compute
    x, y, dtype = expr.cast(x, wide), expr.cast(y, wide), x.dtype
    larger = expr.apply("maximum", x, y)
    apart = expr.apply("neg", expr.apply("abs", expr.apply("sub", x, y)))
    log = expr.apply("log1p", expr.apply("exp2", apart))
    total = larger + expr.apply("mul", log, expr.const(1 / math.log(2), wide))
    equal = expr.apply("eq", x, y)  # also for infinities, whose difference is NaN
    return expr.cast(expr.where(equal, x + expr.const(1, wide), total), dtype)


binary(
    "logaddexp2",
    np.logaddexp2,
    "``log2(2**x + 2**y)``, without overflow in between.",
    scalar=_logaddexp2,
    cost=8,
    ulp=4.0,
    commutative=True,
    samples=_PAIRS,
)


binary(
    "float_power",
    np.float_power,
    "``x`` to the power ``y`` in float64.",
    scalar="pow",
    ulp=0.8,
    rule=lambda x, y: dtypes.result_type(x, y, dtypes.float64),
    samples=["f32[3,4](0.1,3) f32[4]; i32[5] -2; f32[6] 3.0; f64[5](0.1,2) i64[5]; bf16[4](0.1,2) 2.5; bool[3] 2"],
)


def _split_float(dtype: Any) -> DType:
    _require_real(dtype)
    return as_numpy(np.exp)(dtype)


unary(
    "exponent",
    lambda x: np.frexp(x)[1],
    "The exponent e (int32) of ``x = m 2**e`` with m from 1/2 to 1, as np.frexp; 0 for zeros, infinities and NaN.",
    rule=_split_float,
    result=dtypes.int32,
    cost=8,
    samples=float_samples(-9, 9),
)


# -- integers --------------------------------------------------------------------------------------
define(Function("gcd", 2, np.gcd, cost=16))


def _integers(function: Any) -> Any:
    rule = as_numpy(function)

    def checked(x: Any, y: Any) -> DType:
        found = rule(x, y)
        if not found.is_integer:
            raise DTypeError(f"it is defined for integers, not for {x} and {y}")
        return found

    return checked


def _divisor(x: Expr, y: Expr) -> Expr:
    """The greatest common divisor, computed in 64-bit integers, the widest that exist."""
    wide = x.dtype if x.dtype.is_unsigned and x.dtype.itemsize == 8 else dtypes.int64
    return expr.apply("gcd", expr.cast(x, wide), expr.cast(y, wide))


def _multiple(x: Expr, y: Expr) -> Expr:
    """The least common multiple. A product that is too large wraps around and may then be negative, as in
    NumPy."""
    common = _divisor(x, y)
    x_size, y_size = (expr.apply("abs", expr.cast(v, common.dtype)) for v in (x, y))
    parts = expr.apply("floordiv", x_size, common)  # 0 if the divisor is 0
    return expr.cast(expr.apply("mul", parts, y_size), x.dtype)


_WHOLE: Samples = [
    "i32[B,4] i32[4] B=3; i64[5] 12; i8[6] i8[6]; u16[6](0,200) u8[6](0,200)",
    S(uniform("u64[6]", 0, 2**31), uniform("u64[6]", 0, 60)),
    "i32[0] 3",
]
binary(
    "gcd",
    np.gcd,
    "Greatest common divisor of integers; 0 for two zeros.",
    rule=_integers(np.gcd),
    scalar=lambda x, y: expr.cast(_divisor(x, y), x.dtype),
    commutative=True,
    associative=True,
    samples=_WHOLE,
)
binary(
    "lcm",
    np.lcm,
    "Least common multiple of integers; 0 if one of them is 0.",
    rule=_integers(np.lcm),
    scalar=_multiple,
    commutative=True,
    samples=_WHOLE,
)


def _ones(x: Expr) -> Expr:
    """The number of bits that are 1: bits are added in groups of two, four and eight in parallel, and a product
    adds the groups of eight."""
    word = dtypes.dtype("u64")

    def number(value: int) -> Expr:
        return expr.Const(word, value)

    if not x.dtype.is_unsigned and not x.dtype.is_bool:
        x = expr.apply("abs", expr.cast(x, dtypes.int64))
    x = expr.cast(x, word)
    halves = expr.apply("and", expr.apply("shr", x, number(1)), number(0x5555555555555555))
    x = expr.apply("sub", x, halves)
    pairs = number(0x3333333333333333)
    upper = expr.apply("and", expr.apply("shr", x, number(2)), pairs)
    x = expr.apply("add", expr.apply("and", x, pairs), upper)
    x = expr.apply("add", x, expr.apply("shr", x, number(4)))
    x = expr.apply("and", x, number(0x0F0F0F0F0F0F0F0F))
    total = expr.apply("mul", x, number(0x0101010101010101))
    return expr.cast(expr.apply("shr", total, number(56)), dtypes.dtype("u8"))


def _kept(dtype: Any) -> DType:
    found = dtypes.result_type(dtype)
    if found.is_inexact:
        raise DTypeError(f"bits are counted in integers, not in {dtype}")
    return found


unary(
    "bitwise_count",
    np.bitwise_count,
    "How many bits of the absolute value are 1, as uint8.",
    rule=_kept,
    scalar=_ones,
    result=dtypes.dtype("u8"),
    cost=12,
    samples=["i32[B,5] B=3; i8[7]", S(uniform("u64[5]", 0, 2**63)), "u8[9](0,255); i64[4]; bool[4]"],
)
