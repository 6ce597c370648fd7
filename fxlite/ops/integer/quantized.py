"""Quantization: from floats to integers and back, and from integers with one scale to those with another.

An integer tensor is a plain array of i8, u8 or i32. The values for which its numbers stand are
``(q - zero_point) * scale``, with a scale and zero point that are given where the tensor is used. These are
operands and broadcast against the values as in NumPy, so a scale for all values, for each channel
(``[C,1,1]``) or for each token (``[B,T,1]``) needs the same op. docs/quantization.md has the semantics and
their sources.

Every step is a float32 operation rounded to nearest, with halves to even, and no product is part of a
fused multiply-add, so all back ends give the same bits. NaN becomes the smallest integer.

The scale of values that are quantized by their own range is computed while the program runs
(:func:`dynamic_scale`). This is one op, so that a back end can find the scale where it computes the
tensor. :func:`fake_quantize` replaces quantize and dequantize in quantization-aware training: the values are
those of the integer program, the type stays float32, and gradients pass "straight through", as if nothing
were rounded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, DTypeError, ShapeError
from fxlite.ops.image.spatial import rewrite
from fxlite.ops.op import Axis, Op, OptionalTensor, Tensor, broadcast_shapes, op, shape_of
from fxlite.ops.reduction import reduce_over, reduced_shape
from fxlite.ops.samples import Bad, S, uniform
from fxlite.scalar import expr
from fxlite.scalar.expr import ConstReader, Expr, MultiIndex, Reader, read_broadcast
from fxlite.types import dtypes, shapes
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import TensorType

#: Types that a quantized value may have. int4 is i8 with ``qmin=-8, qmax=7``.
QUANTIZED = (dtypes.int8, dtypes.uint8)


def integer_range(dtype: DType) -> tuple[int, int]:
    """The smallest and the largest number of an integer type."""
    info = np.iinfo(dtype.numpy)
    return int(info.min), int(info.max)


# -- rules that quantize and requantize share ------------------------------------------------------
def _range(dtype: Any, qmin: Any, qmax: Any) -> tuple[DType, int, int]:
    """The type and range of the result, from attributes. Raises DTypeError or ArgumentError."""
    target = dtypes.dtype(dtype)
    if target not in QUANTIZED:
        raise DTypeError(f"dtype must be i8 or u8, not {target}; int4 is i8 with qmin=-8, qmax=7")
    low, high = integer_range(target)
    least, largest = low if qmin is None else qmin, high if qmax is None else qmax
    for name, value in (("qmin", least), ("qmax", largest)):
        if type(value) is not int or not low <= value <= high:
            raise ArgumentError(f"{name} must be an int in {low}..{high}, the range of {target}, not {value!r}")
    if least >= largest:
        raise ArgumentError(f"qmin={least} must be less than qmax={largest}")
    return target, least, largest


def _canonical_range(record: Op) -> None:
    """Store a range that is that of the type as None."""

    def rule(**bound: Any) -> Any:
        try:
            target, low, high = _range(bound.get("dtype", "i8"), bound.get("qmin"), bound.get("qmax"))
        except ArgumentError as error:
            raise ArgumentError(f"{record.name}: {error}") from None
        least, largest = integer_range(target)
        return rewrite(
            record, bound, {"qmin": None if low == least else low, "qmax": None if high == largest else high}
        )

    record.canonical(rule)


def _operands(what: str, value: Any, scale: Any, zero_point: Any) -> tuple[shapes.Dim, ...]:
    """The shape of the value, to which scale and zero point must broadcast. Raises DTypeError if one of them
    has a wrong type, and ShapeError if it does not fit."""
    if not isinstance(value, TensorType):
        raise ArgumentError(f"{what} must be a tensor, not {value!r}")
    if isinstance(scale, TensorType) and scale.dtype is not dtypes.float32:
        raise DTypeError(f"scale must be f32, not {scale.dtype}; cast it")
    if isinstance(zero_point, TensorType) and zero_point.dtype.name not in ("i8", "u8", "i32"):
        raise DTypeError(f"zero_point must be i32, i8 or u8, not {zero_point.dtype}")
    if isinstance(zero_point, float):
        raise DTypeError(f"zero_point must be an integer, not {zero_point!r}")
    for name, operand in (("scale", scale), ("zero_point", zero_point)):
        found = shape_of(operand)
        if not shapes.shapes_equal(broadcast_shapes(value.shape, found), value.shape):
            raise ShapeError(
                f"{name} [{', '.join(map(str, found))}] does not broadcast to {what}, {value}; one "
                f"for each channel of [N, C, H, W] is [C, 1, 1]"
            )
    return value.shape


def _float32(value: Any) -> Any:
    return np.asarray(value).astype(np.float32, copy=False)


def _rounded(scaled: Any, zero_point: Any, dtype: Any, qmin: Any, qmax: Any) -> Any:
    """The last steps of the reference, in place: ``clip(rint(scaled) + zero_point)`` as integers."""
    target, low, high = _range(dtype, qmin, qmax)
    scaled = np.asarray(scaled)
    np.rint(scaled, out=scaled)
    if zero_point is not None:
        np.add(scaled, _float32(zero_point), out=scaled)
    np.fmax(scaled, np.float32(low), out=scaled)  # for NaN and a number, fmax gives the number
    np.minimum(scaled, np.float32(high), out=scaled)
    return scaled.astype(target.numpy)


def _rounded_body(
    i: MultiIndex, scaled: Expr, zero_point: Reader | None, dtype: Any = "i8", qmin: Any = None, qmax: Any = None
) -> Expr:
    """:func:`_rounded` for one element."""
    target, low, high = _range(dtype, qmin, qmax)
    value = expr.apply("round", scaled)
    if zero_point is not None:
        value = value + _read_float32(zero_point, i)
    bounds = (expr.const(bound, dtypes.float32) for bound in (low, high))
    return expr.cast(expr.apply("saturate", value, *bounds), target)


def _read_float32(x: Reader, i: MultiIndex) -> Expr:
    return expr.cast(read_broadcast(x, i), dtypes.float32)


def _reciprocal(scale: Expr) -> Expr:
    """``1 / scale``; a literal if ``scale`` is one."""
    if not isinstance(scale, expr.Const):
        return expr.apply("reciprocal", scale)
    with np.errstate(all="ignore"):
        return expr.const(float(np.float32(1) / np.float32(scale.value)), dtypes.float32)


# -- records ---------------------------------------------------------------------------------------
@op(
    "pointwise",
    asks_first=True,
    samples=[
        "f32[B,5] 0.05 B=3; f32[4,6] f32[](0.01,0.1); f32[2,3,4,4] f32[3,1,1](0.01,0.1)",
        "f32[B,T,6] f32[B,T,1](0.01,0.1) B=2 T=3; f32[4,6] 0.02 7 dtype='u8'; f32[7] 0.02 i32[]",
        "f32[3,5] f32[3,1](0.01,0.1) u8[3,1] dtype='u8'; f32[9]! 0.01; f32[9]! 0.01 128 dtype='u8'",
        "f32[4,6] 0.01 qmin=-127; f32[8] 0.3 dtype='i8' qmin=-8 qmax=7; f16[5] 0.05; bf16[5] 0.05; f32[0,3] 0.1",
    ],
    bad=[
        Bad("f32[4]", 0.1, dtype="i32", match="must be i8 or u8"),
        Bad("i32[4]", 0.1, match="x must be f32"),
        Bad("f64[4]", 0.1, match="x must be f32"),
        Bad("f32[4]", "f64[]", match="scale must be f32"),
        Bad("f32[4]", 0.1, 0.5, match="zero_point must be an integer"),
        Bad("f32[4]", 0.1, "f32[]", match="zero_point must be i32"),
        Bad("f32[2,3,4,4]", "f32[3]", match="do not broadcast"),
        Bad("f32[3,1]", "f32[4]", match="one for each channel"),
        Bad("f32[4]", 0.1, qmin=-129, match="qmin must be an int in -128..127"),
        Bad("f32[4]", 0.1, qmin=5, qmax=5, match="must be less than"),
    ],
)
def quantize(
    x: Tensor,
    scale: Tensor,
    zero_point: OptionalTensor = None,
    dtype: DType = "i8",  # type: ignore[assignment]
    qmin: int | None = None,
    qmax: int | None = None,
) -> Tensor:
    """``clip(rint(x * (1 / scale)) + zero_point, qmin, qmax)`` as ``dtype`` (i8 or u8), computed in float32:
    the reciprocal is rounded once, and halves are rounded to even (torch.quantize_per_tensor).

    ``scale`` (f32) and ``zero_point`` (an integer; None is 0) broadcast to ``x`` (f32, f16 or bf16). The
    default range is that of the type; ``qmin=-127`` gives a symmetric one, -8..7 that of int4. Infinities
    saturate, and NaN gives qmin; so does 0 if the scale is so small (below 2**-128) that its reciprocal is
    infinite.

    Raises DTypeError for other types, ShapeError for a scale that does not broadcast to ``x``, and
    ArgumentError for a range outside that of ``dtype``."""
    with np.errstate(all="ignore"):
        scaled = _float32(x) * (np.float32(1) / _float32(scale))
        return _rounded(scaled, zero_point, dtype, qmin, qmax)


@quantize.infer
def _(x: Any, scale: Any, zero_point: Any, dtype: Any, qmin: Any, qmax: Any) -> TensorType:
    shape = _operands("x", x, scale, zero_point)
    if x.dtype.name not in ("f32", "f16", "bf16"):
        raise DTypeError(f"x must be f32, f16 or bf16, not {x.dtype}")
    return TensorType(shape, _range(dtype, qmin, qmax)[0])


@quantize.body
def _(i: MultiIndex, x: Reader, scale: Reader, zero_point: Reader | None, **to: Any) -> Expr:
    scaled = expr.cast(x[i], dtypes.float32) * _reciprocal(_read_float32(scale, i))
    return _rounded_body(i, scaled, zero_point, **to)


_canonical_range(quantize)


@op(
    "pointwise",
    asks_first=True,
    samples=[
        "i8[B,5] 0.05 B=3; u8[4,6] f32[](0.01,0.1) 128; i8[2,3,4,4] f32[3,1,1](0.01,0.1)",
        "u8[3,5] f32[3,1](0.01,0.1) u8[3,1]",
        S(uniform("i32[B,T,6]", -(2**31), 2**31), uniform("f32[B,T,1]", 0.01, 0.1), dims={"B": 2, "T": 3}),
        S(uniform("i32[7]", -(2**31), 2**31), 0.25, 3),
        "i8[0,3] 0.1",
    ],
    bad=[
        Bad("f32[4]", 0.1, match="q must be i8, u8 or i32"),
        Bad("i8[4]", "f16[]", match="scale must be f32"),
        Bad("i8[4]", "f32[2,4]", match="does not broadcast to q"),
    ],
)
def dequantize(q: Tensor, scale: Tensor, zero_point: OptionalTensor = None) -> Tensor:
    """``(q - zero_point) * scale`` as float32: ``q`` (i8, u8 or an accumulator, i32) minus the zero point is
    computed in int32, rounded to float32, and multiplied by the scale.

    For i8 and u8, and scales from 2**-126 to 2**120, :func:`quantize` with the same scale and zero point
    is the exact inverse. Raises DTypeError and ShapeError as quantize does."""
    value = np.asarray(q)
    if zero_point is not None:
        value = value.astype(np.int32) - np.asarray(zero_point).astype(np.int32)
    with np.errstate(all="ignore"):
        return np.asarray(_float32(value) * _float32(scale))


@dequantize.infer
def _(q: Any, scale: Any, zero_point: Any) -> TensorType:
    shape = _operands("q", q, scale, zero_point)
    if q.dtype.name not in ("i8", "u8", "i32"):
        raise DTypeError(f"q must be i8, u8 or i32, not {q.dtype}")
    return TensorType(shape, dtypes.float32)


@dequantize.body
def _(i: MultiIndex, q: Reader, scale: Reader, zero_point: Reader | None) -> Expr:
    value = q[i]
    if zero_point is not None and not _is_zero(zero_point):
        offset = expr.cast(read_broadcast(zero_point, i), dtypes.int32)
        value = expr.cast(value, dtypes.int32) - offset
    return expr.apply("product", expr.cast(value, dtypes.float32), _read_float32(scale, i))


def _is_zero(reader: Reader) -> bool:
    return isinstance(reader, ConstReader) and reader.value == 0


_ACCUMULATORS = uniform("i32[B,5]", -300, 300)


@op(
    "pointwise",
    asks_first=True,
    samples=[
        S(_ACCUMULATORS, 0.31, dims={"B": 3}),
        S(_ACCUMULATORS, 0.31, 10, dims={"B": 3}),
        "i32[4,6](-9000,9000) f32[6](0.001,0.1) -3; i32[2,3,4,4](-9000,9000) f32[3,1,1](0.001,0.1) 128 dtype='u8'",
        S(uniform("i32[9]", -(2**31), 2**31), 1e-7, dtype="i8", qmin=0),
        S(uniform("i32[9]", -(2**31), 2**31), 0.5, "i32[]"),
        "i32[0,3] 0.1",
    ],
    bad=[
        Bad("i8[4]", 0.1, match="acc must be i32"),
        Bad("i32[4]", "i32[]", match="must be f32"),
        Bad("i32[4]", 0.1, dtype="i16", match="must be i8 or u8"),
    ],
)
def requantize(
    acc: Tensor,
    scale: Tensor,
    zero_point: OptionalTensor = None,
    dtype: DType = "i8",  # type: ignore[assignment]
    qmin: int | None = None,
    qmax: int | None = None,
) -> Tensor:
    """``clip(rint(acc * scale) + zero_point, qmin, qmax)`` as ``dtype``: converts the sums of an integer
    product (i32, rounded to float32) to the scale of its result. ``scale`` is
    ``x_scale * weight_scale / result_scale``. A relu in between corresponds to ``qmin=zero_point``.

    Types, ranges, shapes and errors are as in :func:`quantize`."""
    with np.errstate(all="ignore"):
        return _rounded(_float32(acc) * _float32(scale), zero_point, dtype, qmin, qmax)


@requantize.infer
def _(acc: Any, scale: Any, zero_point: Any, dtype: Any, qmin: Any, qmax: Any) -> TensorType:
    shape = _operands("acc", acc, scale, zero_point)
    if acc.dtype is not dtypes.int32:
        raise DTypeError(f"acc must be i32, the sums of an integer product, not {acc.dtype}")
    return TensorType(shape, _range(dtype, qmin, qmax)[0])


@requantize.body
def _(i: MultiIndex, acc: Reader, scale: Reader, zero_point: Reader | None, **to: Any) -> Expr:
    scaled = expr.cast(acc[i], dtypes.float32) * _read_float32(scale, i)
    return _rounded_body(i, scaled, zero_point, **to)


_canonical_range(requantize)


# -- int4 ------------------------------------------------------------------------------------------
@op(
    "gather",
    samples=["i8[B,6](-8,8) B=3; i8[2](-8,8); i8[4,2,8](-8,8); i8[0,4]; i8[8](-128,128)"],
    bad=[Bad("i8[3,5]", match="must be even"), Bad("u8[4]", match="must be i8"), Bad("i8[]", match="rank 0")],
)
def pack_int4(q: Tensor) -> Tensor:
    """Packs pairs of int4 into bytes: i8 ``[..., K]`` (numbers in -8..7; for others, the low four bits) to u8
    ``[..., K/2]``, with the element of even index in the low half.

    Raises ShapeError for an odd last axis, and DTypeError for other types."""
    low, high = np.asarray(q)[..., 0::2], np.asarray(q)[..., 1::2]
    return np.asarray((low & 15) | (high << 4)).view(np.uint8)


@pack_int4.infer
def _(q: Any) -> TensorType:
    q = _packable(q, dtypes.int8)
    if not shapes.equal(shapes.remainder(q.shape[-1], 2), 0):
        raise ShapeError(f"the last axis must be even, not {q.shape[-1]}; pad it with a zero")
    return TensorType((*q.shape[:-1], shapes.floordiv(q.shape[-1], 2)), dtypes.uint8)


def _packable(q: Any, dtype: DType) -> TensorType:
    if not isinstance(q, TensorType) or q.rank == 0:
        raise ShapeError("rank 0 cannot hold pairs of int4")
    if q.dtype is not dtype:
        raise DTypeError(f"the type must be {dtype}, not {q.dtype}")
    return q


@pack_int4.body
def _(i: MultiIndex, q: Reader) -> Expr:
    low, high = (expr.cast(q[(*i[:-1], i[-1] * 2 + half)], dtypes.int32) for half in (0, 1))
    four = expr.const(4, dtypes.int32)
    low = expr.apply("and", low, expr.const(15, dtypes.int32))
    return expr.cast(expr.apply("or", low, expr.apply("shl", high, four)), dtypes.uint8)


@op(
    "gather",
    samples=["u8[B,3](0,256) B=4; u8[1](0,256); u8[4,2,4](0,256); u8[0,4]"],
    bad=[Bad("i8[4]", match="must be u8"), Bad("u8[]", match="rank 0")],
)
def unpack_int4(packed: Tensor) -> Tensor:
    """The inverse of :func:`pack_int4`: u8 ``[..., K/2]`` to i8 ``[..., K]``, with numbers in -8..7.

    Raises ShapeError for rank 0, and DTypeError for other types."""
    signed = np.asarray(packed).view(np.int8)
    pairs = np.stack((np.left_shift(signed, 4) >> 4, signed >> 4), axis=-1)
    return pairs.reshape(*signed.shape[:-1], 2 * signed.shape[-1])


@unpack_int4.infer
def _(packed: Any) -> TensorType:
    packed = _packable(packed, dtypes.uint8)
    last = shapes.normalize(packed.shape[-1] * 2)
    return TensorType((*packed.shape[:-1], last), dtypes.int8)


@unpack_int4.body
def _(i: MultiIndex, packed: Reader) -> Expr:
    return int4_element(packed, i)


def int4_element(packed: Reader, i: MultiIndex) -> Expr:
    """Element ``i`` of the int4 values that :func:`pack_int4` packed."""
    pair = expr.cast(packed[(*i[:-1], i[-1] // 2)], dtypes.int32)
    # shifting the half to the top of the word and back extends its sign
    up = expr.cast(expr.index_value(28 - (i[-1] % 2) * 4), dtypes.int32)
    top = expr.apply("shl", pair, up)
    return expr.cast(expr.apply("shr", top, expr.const(28, dtypes.int32)), dtypes.int8)


# -- fake quantization -----------------------------------------------------------------------------
@op(
    "composite",
    gradient="straight_through",
    samples=[
        "f32[B,5] 0.05 B=3; f32[4,6] 0.02 7 dtype='u8'; f32[3,5] f32[3,1](0.01,0.1) qmin=-127",
        "f32[4] f32[](0.01,0.1) i32[]; f32[9]! 0.01; f32[0,3] 0.1",
    ],
    bad=[
        Bad("f16[4]", 0.1, match="x must be f32"),
        Bad("f32[4]", 0.1, dtype="i32", match="must be i8 or u8"),
        Bad("f32[2,3,4,4]", "f32[3]", match="do not broadcast"),
    ],
)
def fake_quantize(
    x: Tensor,
    scale: Tensor,
    zero_point: OptionalTensor = None,
    dtype: DType = "i8",  # type: ignore[assignment]
    qmin: int | None = None,
    qmax: int | None = None,
) -> Tensor:
    """``dequantize(quantize(x, scale, zero_point, dtype, qmin, qmax), scale, zero_point)``, from float32 to
    float32.

    The gradient with respect to ``x`` is that of the identity where the integer lies within the range, and
    0 where it was clipped (Bengio et al., "Estimating or propagating gradients through stochastic neurons",
    2013; Jacob et al., 2018). Types, ranges and errors are as in quantize."""
    return _quantized_and_back(x, scale, zero_point, dtype=dtype, qmin=qmin, qmax=qmax)


@fake_quantize.infer
def _(x: Any, **others: Any) -> TensorType:
    if isinstance(x, TensorType) and x.dtype is not dtypes.float32:
        raise DTypeError(f"x must be f32, not {x.dtype}")
    integers = quantize.inferred({"x": x, **others})
    return TensorType(integers.shape, dtypes.float32)


@fake_quantize.expansion
def _quantized_and_back(x: Any, scale: Any, zero_point: Any, **to: Any) -> Any:
    return dequantize(quantize(x, scale, zero_point, **to), scale, zero_point)


@fake_quantize.canonical
def _(**bound: Any) -> Any:
    _, stored = quantize.canonicalize(dict(bound))
    return rewrite(fake_quantize, bound, {n: stored.get(n) for n in ("qmin", "qmax")})


# -- scales found while the program runs -----------------------------------------------------------
SMALLEST_SCALE = 2.0**-120
"""The smallest scale: the reciprocals of scales below 2**-126 may not be float32 numbers."""


def least_magnitude(qmax: int) -> float:
    """The smallest magnitude that a tensor is assumed to have, even if all of its numbers are smaller."""
    return SMALLEST_SCALE * qmax


@op(
    "reduction",
    asks_first=True,
    samples=[
        "f32[B,5] axis=1 keepdims=True B=3; f32[3,40] qmax=255; f32[2,3,4,5] axis=(1,2,3) keepdims=True",
        "f32[3,3]! axis=1; f32[2,100] axis=-1 keepdims=True; f16[4,9] axis=1; bf16[3,8] axis=1",
        "f32[2,33](0,1e-38) axis=1; f32[2,70,3] axis=(0,1); f32[]",
    ],
    bad=[
        Bad("f32[3,4]", axis=2, match="out of range"),
        Bad("i32[3,4]", axis=1, match="x must be f32, f16 or bf16"),
        Bad("f32[3,4]", axis=1, qmax=0, match="qmax must be an int"),
    ],
)
def dynamic_scale(x: Tensor, axis: Axis = None, keepdims: bool = False, qmax: int = 127) -> Tensor:
    """``max(abs(x)) / qmax`` over ``axis``, in float32: the scale with which the largest magnitude becomes the
    integer ``qmax``. It is computed as a product with ``1 / qmax``, which is rounded first, and is at least
    2**-120; a NaN gives NaN. ``x`` is f32, f16 or bf16.

    Raises DTypeError for other types, ShapeError for wrong axes, and ArgumentError for a ``qmax`` that is
    not in 1..255."""
    magnitudes = np.abs(np.asarray(x).astype(np.float32))
    largest = np.max(magnitudes, axis=axis, keepdims=keepdims, initial=0)
    return np.maximum(largest, np.float32(least_magnitude(qmax))) * np.float32(1 / qmax)


@dynamic_scale.infer
def _(x: Any, axis: Any, keepdims: bool, qmax: Any) -> TensorType:
    if x.dtype.name not in ("f32", "f16", "bf16"):
        raise DTypeError(f"x must be f32, f16 or bf16, not {x.dtype}")
    if type(qmax) is not int or not 1 <= qmax <= 255:
        raise ArgumentError(f"qmax must be an int in 1..255, not {qmax!r}")
    return TensorType(reduced_shape(x, axis, keepdims), dtypes.float32)


@dynamic_scale.body
def _(i: MultiIndex, x: Reader, axis: Any, keepdims: bool, qmax: Any) -> Expr:
    largest = reduce_over("max", i, x, axis, keepdims, lambda v: expr.apply("abs", expr.cast(v, dtypes.float32)))
    least = expr.const(least_magnitude(qmax), dtypes.float32)
    factor = expr.const(float(np.float32(1 / qmax)), dtypes.float32)
    return expr.apply("maximum", largest, least) * factor
