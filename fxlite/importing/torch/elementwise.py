"""ATen's element-wise ops. Torch's promotion rules apply: operands are cast to the dtype in the exported program if
NumPy's rules would give another one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import fxlite.nn.functional as F
from fxlite.importing.torch.table import (
    Call,
    as_array,
    aten,
    cast,
    dtype_of_value,
    each,
    is_number,
    op,
    rank_of,
    same,
    shape_of,
)
from fxlite.types import dtypes

#: Functions whose operand keeps its dtype.
_KEEP = "isnan isinf isfinite signbit logical_not abs real imag".split()


def _unary(own: str) -> Any:
    def entry(c: Call, x: Any, **_: Any) -> Any:
        if own not in _KEEP:
            x = cast(x, c.dtype)
        if own == "sigmoid" and c.dtype.is_complex:
            return 1 / (1 + op("exp")(-x))
        return op(own)(x)

    return entry


for _name, _own in each(
    "abs neg exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh "
    "atanh erf sigmoid reciprocal floor ceil trunc relu silu mish relu6 hardswish hardsigmoid selu signbit "
    "deg2rad rad2deg isnan isinf isfinite square logical_not bitwise_not conj _conj=conj conj_physical=conj "
    "_conj_physical=conj real imag arcsin=asin arccos=acos arctan=atan negative=neg absolute=abs fix=trunc "
    "log_sigmoid=logsigmoid special_expit=sigmoid special_erf=erf special_log1p=log1p"
):
    aten(_name)(_unary(_own))


@aten("sign", "sgn")
def _sign(c: Call, x: Any) -> Any:
    kind = dtype_of_value(x)
    if kind is dtypes.bool_:
        return x
    return op("where")(op("isnan")(x), 0, op("sign")(x)) if kind.is_float else op("sign")(x)


@aten("round")
def _round(c: Call, x: Any, *, decimals: int = 0) -> Any:
    return np.round(x, decimals) if decimals else op("round")(x)


@aten("ldexp")
def _ldexp(c: Call, x: Any, exponent: Any) -> Any:
    return cast(x, c.dtype) * op("exp2")(cast(exponent, c.dtype))


@aten("frexp")
def _frexp(c: Call, x: Any) -> Any:
    exponent = op("exponent")(x)
    half = cast(exponent, c.dtype) * 0.5  # the whole power of two may overflow or underflow
    return x / op("exp2")(op("floor")(half)) / op("exp2")(op("ceil")(half)), exponent


@aten("frac")
def _frac(c: Call, x: Any) -> Any:
    return x - op("trunc")(x)


@aten("logit", "special_logit")
def _logit(c: Call, x: Any, eps: float | None = None) -> Any:
    x = cast(x, c.dtype)
    x = x if eps is None else op("clip")(x, eps, 1 - eps)
    return op("log")(x / (1 - x))


@aten("angle")
def _angle(c: Call, x: Any) -> Any:
    if dtype_of_value(x).is_complex:
        return op("atan2")(op("imag")(x), op("real")(x))
    x = cast(x, c.dtype)
    return op("where")(x < 0, math.pi, op("where")(op("isnan")(x), x, 0))


# -- binary ops ------------------------------------------------------------------------------------
def _both(c: Call, x: Any, y: Any) -> tuple[Any, Any]:
    """Both operands in the dtype of the result; if both are numbers, the first as an array."""
    x, y = cast(x, c.dtype), cast(y, c.dtype)
    return (as_array(x, c.dtype), y) if is_number(x) and is_number(y) else (x, y)


def _binary(own: str) -> Any:
    def entry(c: Call, x: Any, y: Any) -> Any:
        return op(own)(*_both(c, x, y))

    return entry


for _name, _own in each(
    "mul multiply=mul maximum minimum fmax fmin remainder fmod atan2 arctan2=atan2 hypot copysign logaddexp "
    "logaddexp2 bitwise_and bitwise_or bitwise_xor __and__=bitwise_and __or__=bitwise_or __xor__=bitwise_xor "
    "bitwise_left_shift=left_shift bitwise_right_shift=right_shift __lshift__=left_shift __rshift__=right_shift "
    "floor_divide true_divide=div nextafter gcd lcm float_power"
):
    aten(_name)(_binary(_own))


@aten("pow")
def _pow(c: Call, x: Any, y: Any) -> Any:
    """Negative powers of integers are fractions, which torch truncates: the result is 0, unless x is 1 or -1."""
    x, y = _both(c, x, y)
    if is_number(y) or not c.dtype.is_integer or c.dtype.is_unsigned:
        return op("pow")(x, y)
    x = as_array(x, c.dtype)
    whole = op("where")(op("eq")(x, -1), 1 - 2 * op("bitwise_and")(y, 1), cast(op("eq")(x, 1), c.dtype))
    return op("where")(y < 0, whole, op("pow")(x, op("maximum")(y, 0)))


@aten("heaviside")
def _heaviside(c: Call, x: Any, y: Any) -> Any:
    """In torch the result for NaN is 0."""
    found = op("heaviside")(x, y)
    return op("where")(op("isnan")(x), 0, found) if c.dtype.is_float else found


aten("complex")(lambda c, x, y: op("complex")(x, y))


@aten("add", "sub", "subtract")
def _add(c: Call, x: Any, y: Any, *, alpha: Any = 1) -> Any:
    x, y = _both(c, x, y)
    return op("add" if c.name.startswith("add") else "sub")(x, y if alpha == 1 else y * alpha)


@aten("rsub")
def _rsub(c: Call, x: Any, y: Any, alpha: Any = 1) -> Any:
    x, y = _both(c, x, y)
    return op("sub")(y, x if alpha == 1 else x * alpha)


@aten("div", "divide")
def _div(c: Call, x: Any, y: Any, *, rounding_mode: str | None = None) -> Any:
    x, y = _both(c, x, y)
    if rounding_mode == "floor":
        return op("floor_divide")(x, y)
    if rounding_mode == "trunc":
        if c.dtype.is_float:
            return op("trunc")(op("div")(x, y))
        quotient = op("floor_divide")(x, y)
        return op("where")(op("logical_and")(quotient * y != x, quotient < 0), quotient + 1, quotient)
    return op("div")(x, y)


def _comparison(own: str) -> Any:
    def entry(c: Call, x: Any, y: Any) -> Any:
        dtype = c.promoted()
        x, y = cast(x, dtype), cast(y, dtype)
        return op(own)(as_array(x, dtype) if is_number(x) and is_number(y) else x, y)

    return entry


for _name, _own in each("eq ne lt le gt ge not_equal=ne less=lt less_equal=le greater=gt greater_equal=ge"):
    aten(_name)(_comparison(_own))
for _name in "logical_and logical_or logical_xor".split():
    aten(_name)(lambda c, x, y, _own=_name: op(_own)(x, y))


same("isclose", np.isclose)


@aten("lerp")
def _lerp(c: Call, x: Any, end: Any, weight: Any) -> Any:
    """Computed from the nearer end, so that a weight of 1 gives exactly ``end``, however large x is."""
    step = end - x
    if is_number(weight):
        return x + weight * step if abs(weight) < 0.5 else end - step * (1 - weight)
    return op("where")(abs(weight) < 0.5, x + weight * step, end - step * (1 - weight))


@aten("addcmul")
def _addcmul(c: Call, x: Any, y: Any, z: Any, *, value: Any = 1) -> Any:
    return x + (y * z if value == 1 else value * y * z)


@aten("addcdiv")
def _addcdiv(c: Call, x: Any, y: Any, z: Any, *, value: Any = 1) -> Any:
    return x + (y / z if value == 1 else value * y / z)


# -- choices ---------------------------------------------------------------------------------------
@aten("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def _where(c: Call, condition: Any, x: Any, y: Any) -> Any:
    condition = cast(condition, dtypes.bool_)
    x, y = _both(c, x, y)
    return op("where")(condition, x, y)


@aten("masked_fill")
def _masked_fill(c: Call, x: Any, mask: Any, value: Any) -> Any:
    value = cast(value, c.dtype)
    return op("where")(cast(mask, dtypes.bool_), value, cast(x, c.dtype))


@aten("clamp", "clip")
def _clamp(c: Call, x: Any, min: Any = None, max: Any = None) -> Any:
    x = cast(x, c.dtype)
    if all(v is None or (is_number(v) and not hasattr(v, "expr")) for v in (min, max)):
        return op("clip")(x, min, max)
    x = x if min is None else op("maximum")(x, cast(min, c.dtype))
    return x if max is None else op("minimum")(x, cast(max, c.dtype))


aten("clamp_min")(lambda c, x, min: _clamp(c, x, min, None))
aten("clamp_max")(lambda c, x, max: _clamp(c, x, None, max))


@aten("nan_to_num")
def _nan_to_num(
    c: Call, x: Any, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Any:
    if not c.dtype.is_float:
        return x
    limits = np.finfo(c.dtype.numpy) if c.dtype.numpy.kind == "f" else None
    most = float(limits.max) if limits is not None else 3.3895313892515355e38
    high, low = most if posinf is None else posinf, -most if neginf is None else neginf
    found = op("where")(op("isnan")(x), 0.0 if nan is None else nan, x)
    found = op("where")(op("eq")(found, math.inf), high, found)
    return op("where")(op("eq")(found, -math.inf), low, found)


# -- activations with parameters -------------------------------------------------------------------
for _function in (F.gelu, F.leaky_relu, F.celu, F.softplus, F.softsign, F.tanhshrink, F.threshold, F.softshrink):
    same(_function.__name__, _function)
same("hardshrink", F.hardshrink)
same("glu", F.glu)


@aten("elu")
def _elu(c: Call, x: Any, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
    if input_scale != 1:
        raise c.refuse("input_scale is not 1")
    found = F.elu(x, alpha)
    return found if scale == 1 else found * scale


@aten("hardtanh")
def _hardtanh(c: Call, x: Any, min_val: float = -1, max_val: float = 1) -> Any:
    if not dtype_of_value(x).is_float:
        return _clamp(c, x, min_val, max_val)
    return F.relu6(x) if (min_val, max_val) == (0, 6) else F.hardtanh(x, min_val, max_val)


@aten("prelu", "_prelu_kernel")
def _prelu(c: Call, x: Any, weight: Any) -> Any:
    if rank_of(weight) > 1:
        weight = weight.reshape(-1)
    return F.prelu(x, weight)


@aten("rrelu", "rrelu_with_noise")
def _rrelu(c: Call, x: Any, *args: Any, **_: Any) -> Any:
    given = [a for a in args if isinstance(a, (int, float)) and not isinstance(a, bool)]
    if any(a is True for a in args):
        raise c.refuse("training draws random numbers")
    low, high = (given + [1 / 8, 1 / 3][len(given) :])[:2]
    return F.leaky_relu(x, (low + high) / 2)


_FAKE = "fake_quantize_per_{}_affine"
_KINDS = [_FAKE.format(of) + more for of in ("tensor", "channel") for more in ("", "_cachemask")]


@aten(*_KINDS, f"_{_FAKE.format('tensor')}_cachemask_tensor_qparams")
def _fake_quantize(c: Call, x: Any, scale: Any, zero_point: Any, *args: Any) -> Any:
    """x rounded to the values for which integers from args[-2] to args[-1] stand."""
    *axis, low, high = args
    if "channel" in c.name:
        shape = [-1 if a == axis[0] else 1 for a in range(rank_of(x))]
        scale, zero_point = scale.reshape(shape), zero_point.reshape(shape)
    inverse = op("reciprocal")(scale) if not is_number(scale) else 1 / scale
    zero_point = zero_point if is_number(zero_point) else cast(zero_point, c.dtype)
    places = op("round")(x * inverse) + zero_point
    found = (op("clip")(places, low, high) - zero_point) * scale
    return found if not isinstance(c.value, (tuple, list)) else (found, None)


# -- ops without effect ----------------------------------------------------------------------------
@aten(*"contiguous clone detach alias lift_fresh_copy lift_fresh lift positive resolve_conj resolve_neg".split())
@aten("detach_copy", "alias_copy")
def _same(c: Call, x: Any, *_: Any, **__: Any) -> Any:
    return x


@aten("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout", "native_dropout")
def _dropout(c: Call, x: Any, p: float, train: bool | None = True) -> Any:
    if train and p:
        raise c.refuse("dropout while training draws random numbers; call model.eval() before the import")
    return (x, np.ones((), bool)) if isinstance(c.value, (tuple, list)) else x


@aten("to", "_to_copy", "type_as", "_cast_Float", "convert_element_type")
def _to(c: Call, x: Any, *_: Any, **__: Any) -> Any:
    return cast(x, c.dtype)


@aten("copy")
def _copy(c: Call, x: Any, source: Any, *_: Any) -> Any:
    return op("expand")(cast(source, dtype_of_value(x)), shape_of(x))


aten("fill")(lambda c, x, value: op("expand")(as_array(value, c.dtype), shape_of(x)))
aten("zero")(lambda c, x: op("expand")(as_array(0, c.dtype), shape_of(x)))
