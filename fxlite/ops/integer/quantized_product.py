"""Products of integers with exact sums: linear, matmul and convolution of i8 and u8 into i32. Also integer
weights of float products: i8, or pairs of int4, which take a quarter or an eighth of the bytes of float32.

Operands are the integers that :mod:`fxlite.ops.integer.quantized` makes. Only zero points appear here, as
Python numbers; scales are applied to the sums (requantize, dequantize). Sums are exact: a product that is
long enough to overflow int32 raises an error. A bias is int32 in the scale of the sums and is added modulo
2**32.

Integer weights of linear layers are scaled where they are read, other weights by an op of their own. Each
row of a weight has a scale, or one for each group of ``group_size`` numbers along the row; the last group
may be shorter. A row of int4 with odd length ends with half a byte that is not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, DTypeError, ShapeError
from fxlite.ops.contraction import linear, matmul
from fxlite.ops.image.convolution import Ints, conv2d
from fxlite.ops.image.spatial import is_channels_last, requires_windows, rewrite
from fxlite.ops.integer.quantized import int4_element, integer_range, unpack_int4
from fxlite.ops.op import Op, OptionalTensor, Tensor, op
from fxlite.ops.parameters import Attribute
from fxlite.ops.samples import Bad
from fxlite.scalar import expr
from fxlite.scalar.expr import Expr, MultiIndex, Reader
from fxlite.scalar.index import Index
from fxlite.types import dtypes, shapes
from fxlite.types.dtypes import DType
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType

Types = Mapping[str, Any]  # types (tensors) and attributes of a call, by parameter

_LARGEST_SUM = 2**31 - 1


# -- zero points and exact sums --------------------------------------------------------------------
def largest_depth(x: DType, y: DType, x_zero_point: int = 0, y_zero_point: int = 0) -> int:
    """The largest number of products of ``x - x_zero_point`` and ``y - y_zero_point`` whose sum fits int32,
    whatever the values: 65,793 for u8 and i8, 131,071 for i8 and i8 without zero points."""
    return _LARGEST_SUM // (_magnitude(x, x_zero_point) * _magnitude(y, y_zero_point))


def _magnitude(dtype: DType, zero_point: int) -> int:
    low, high = integer_range(dtype)
    return max(high - zero_point, zero_point - low)


def _check(name: str, value: Any, zero_point: Any) -> TensorType:
    """Raise DTypeError unless a tensor is i8 or u8, and ArgumentError unless its zero point is a number of
    that type."""
    if not isinstance(value, TensorType) or value.dtype.name not in ("i8", "u8"):
        raise DTypeError(f"{name} must be an i8 or u8 tensor, not {value}; quantize it")
    low, high = integer_range(value.dtype)
    if type(zero_point) is not int or not low <= zero_point <= high:
        raise ArgumentError(f"the zero point of {name} must be an int in {low}..{high}, not {zero_point!r}")
    return value


def _check_weight_and_bias(weight: Any, bias: Any) -> None:
    if not isinstance(weight, TensorType) or weight.dtype is not dtypes.int8:
        raise DTypeError(f"weight must be an i8 tensor, not {weight}; quantize it")
    if isinstance(bias, TensorType) and bias.dtype is not dtypes.int32:
        raise DTypeError(
            f"bias must be i32, not {bias.dtype}: the float bias divided by the scale of the sums, "
            f"x_scale * weight_scale"
        )


def _check_depth(depth: Any, most: int) -> None:
    """Raise ShapeError if int32 cannot hold the sum of ``depth`` products. Named sizes are accepted."""
    if type(depth) is int and depth > most:
        raise ShapeError(
            f"sums in int32 hold {most} products of these types for certain, and there are "
            f"{depth}; split the reduced axis, or leave this product in float"
        )


def _in_int32(record: Op, bound: Types) -> Types:
    """The arguments for the corresponding float op, with int32 values."""
    own = {name: value for name, value in bound.items() if name in record.signature.parameters}
    return record.map_tensors(lambda t: TensorType(t.shape, dtypes.int32), own)


def _type_of_sums(record: Op, **bound: Any) -> TensorType:
    """The type of the result, whose shape comes from the rule of the float op."""
    found: TensorType = record.inferred(_in_int32(record, bound))
    return found


def _operations(record: Op, **bound: Any) -> Any:
    """Additions and multiplications, counted as for the float op. (The cost of zero points depends on the
    kernel, which may use sums of the weights instead of a difference for each product.)"""
    same = _in_int32(record, bound)
    return record.flops(same, record.inferred(same))


@dataclass(frozen=True)
class _Difference:
    """Reads ``x - zero_point`` in int32. With such readers, the bodies of the float ops compute the
    products."""

    reader: Reader
    zero_point: int = 0
    dtype = dtypes.int32

    @property
    def shape(self) -> MultiIndex:
        return self.reader.shape

    def __getitem__(self, index: Any) -> Expr:
        wide = expr.cast(self.reader[index], dtypes.int32)
        return wide - self.zero_point if self.zero_point else wide

    __iter__ = None  # because of __getitem__, a loop over it would otherwise never end


def _exact(value: Any, zero_point: int, largest: int) -> Any:
    """``value - zero_point`` in a float type in which sums up to ``largest`` are exact in any order: float32
    has every integer up to 2**24, and float64 up to 2**53. NumPy computes products of floats with BLAS, but
    not those of integers."""
    wide = np.asarray(value).astype(np.float32 if largest <= 2**24 else np.float64)
    return np.subtract(wide, zero_point, out=wide)


def _as_sums(total: Any, bias: Any) -> Any:
    """Sums that were computed in float as int32, plus the bias."""
    total = np.asarray(total).astype(np.int32)
    return total if bias is None else total + np.asarray(bias)


# -- linear ----------------------------------------------------------------------------------------
@op(
    "contraction",
    is_linear=True,
    samples=[
        "i8[B,4](-128,128) i8[3,4](-128,128) i32[3] B=5; u8[2,3,40](0,256) i8[5,40](-128,128) x_zero_point=128",
        "u8[2,3,40](0,256) i8[5,40](-128,128) i32[5] x_zero_point=7; i8[B,T,D](-128,128) i8[2*D,D] B=2 T=3 D=4",
        "i8[7] i8[3,7] x_zero_point=-128; i8[0,4] i8[3,4]; u8[2,0] i8[3,0] i32[3]",
        "u8[3,700](250,256) i8[2,700](-128,-120)",
    ],
    bad=[
        Bad("i8[2,4]", "i8[3,5]", match="x has 4 features, but weight takes 5"),
        Bad("f32[2,4]", "i8[3,4]", match="x must be an i8 or u8 tensor"),
        Bad("i8[2,4]", "u8[3,4]", match="weight must be an i8 tensor"),
        Bad("i8[2,4]", "i8[3,4]", "f32[3]", match="bias must be i32"),
        Bad("i8[2,4]", "i8[3,4]", "i32[4]", match="bias must be [3]"),
        Bad("u8[2,4]", "i8[3,4]", x_zero_point=-1, match="must be an int in 0..255"),
        Bad("u8[1,65794]", "i8[1,65794]", match="hold 65793 products"),
    ],
)
def int_linear(x: Tensor, weight: Tensor, bias: OptionalTensor = None, x_zero_point: int = 0) -> Tensor:
    """``sum((x - x_zero_point) * weight) + bias`` in int32, exactly: ``x [..., K]`` (i8 or u8),
    ``weight [N, K]`` (i8), ``bias [N]`` (i32) to i32 ``[..., N]``.

    Raises ShapeError if the numbers of features do not fit or K is so large that a sum could overflow
    (:func:`largest_depth`), and DTypeError for other types."""
    x, weight = np.asarray(x), np.asarray(weight)
    largest = weight.shape[1] * 128 * _magnitude(dtypes.dtype(x.dtype), x_zero_point)
    wide = _exact(x, x_zero_point, largest)
    return _as_sums(np.matmul(wide, weight.astype(wide.dtype).T), bias)


@int_linear.infer
def _(x: Any, weight: Any, bias: Any, x_zero_point: Any) -> TensorType:
    x = _check("x", x, x_zero_point)
    _check_weight_and_bias(weight, bias)
    found = _type_of_sums(linear, x=x, weight=weight, bias=bias)
    _check_depth(x.shape[-1], largest_depth(x.dtype, dtypes.int8, x_zero_point))
    return found


@int_linear.body
def _(i: MultiIndex, x: Reader, weight: Reader, bias: Reader | None, x_zero_point: int) -> Expr:
    operands = {"x": _Difference(x, x_zero_point), "weight": _Difference(weight), "bias": bias}
    return linear.element(i, operands)


int_linear.cost(partial(_operations, linear))


# -- matmul ----------------------------------------------------------------------------------------
@op(
    "contraction",
    reads_views=True,
    samples=[
        "i8[B,4](-128,128) i8[4,5](-128,128) B=3; u8[3,K](0,256) i8[K,2] x_zero_point=3 K=7",
        "u8[B,H,T,4](0,256) u8[B,H,4,T](0,256) x_zero_point=120 y_zero_point=130 B=2 H=3 T=5; i8[2,1,3,4] i8[5,4,2]",
        "i8[4] i8[4,3]; i8[3,0] i8[0,2]; i8[4] i8[4] x_zero_point=1 y_zero_point=-1",
    ],
    bad=[
        Bad("i8[3,4]", "i8[5,6]", match="last axis of x is 4, but axis -2 of y is 5"),
        Bad("f32[3,4]", "i8[4,6]", match="x must be an i8 or u8 tensor"),
        Bad("i8[3,4]", "i32[4,6]", match="y must be an i8 or u8 tensor"),
        Bad("i8[3,4]", "i8[4,6]", y_zero_point=1.0, match="the zero point of y"),
        Bad("u8[1,33026]", "u8[33026,1]", match="hold 33025 products"),
    ],
)
def int_matmul(x: Tensor, y: Tensor, x_zero_point: int = 0, y_zero_point: int = 0) -> Tensor:
    """``(x - x_zero_point) @ (y - y_zero_point)`` in int32, exactly: operands i8 or u8, with the shapes of
    matmul, to i32.

    Raises ShapeError if the shapes do not fit or K is so large that a sum could overflow
    (:func:`largest_depth`), and DTypeError for other types."""
    x, y = np.asarray(x), np.asarray(y)
    a, b = dtypes.dtype(x.dtype), dtypes.dtype(y.dtype)
    largest = x.shape[-1] * _magnitude(a, x_zero_point) * _magnitude(b, y_zero_point)
    return _as_sums(np.matmul(_exact(x, x_zero_point, largest), _exact(y, y_zero_point, largest)), None)


@int_matmul.infer
def _(x: Any, y: Any, x_zero_point: Any, y_zero_point: Any) -> TensorType:
    x, y = _check("x", x, x_zero_point), _check("y", y, y_zero_point)
    found = _type_of_sums(matmul, x=x, y=y)
    _check_depth(x.shape[-1], largest_depth(x.dtype, y.dtype, x_zero_point, y_zero_point))
    return found


@int_matmul.body
def _(i: MultiIndex, x: Reader, y: Reader, x_zero_point: int, y_zero_point: int) -> Expr:
    operands = {"x": _Difference(x, x_zero_point), "y": _Difference(y, y_zero_point)}
    return matmul.element(i, operands)


int_matmul.cost(partial(_operations, matmul))


# -- convolution -----------------------------------------------------------------------------------
@op(
    "contraction",
    samples=[
        "i8[B,3,H,W](-128,128) i8[4,3,3,3](-128,128) i32[4] padding=1 B=2 H=6 W=5",
        "u8[2,3,7,8](0,256) i8[4,3,3,2](-128,128) stride=(2,1) padding=(1,0) x_zero_point=128",
        "i8[1,4,7,8] i8[6,2,3,3] i32[6] stride=2 padding=1 groups=2",
        "u8[2,3,7,7] i8[3,1,3,3] padding=1 groups=3 x_zero_point=5",
        "i8[1,2,9,8] i8[3,2,3,3] dilation=(2,3) padding=2 x_zero_point=-4; i8[2,3,5,6] i8[2,3,1,1] stride=2",
        "i8[1,2,5,6] i8[3,2,2,4] padding='same'; i8[0,3,5,5] i8[4,3,3,3]",
        "u8[B,H,W,3](0,256) i8[4,3,3,3](-128,128) i32[4] padding=1 x_zero_point=9 layout='NHWC' B=2 H=6 W=5",
        "i8[1,9,8,5] i8[5,1,3,3] i32[5] stride=2 groups=5 layout='NHWC'",
    ],
    bad=[
        Bad("i8[2,3,7,7]", "i8[4,2,3,3]", match="x has 3 channels, but weight takes 2"),
        Bad("i8[7,7,3]", "i8[4,3,3,3]", layout="NHWC", match="[N, H, W, C]"),
        Bad("f32[2,3,7,7]", "i8[4,3,3,3]", match="x must be an i8 or u8 tensor"),
        Bad("i8[2,3,7,7]", "f32[4,3,3,3]", match="weight must be an i8 tensor"),
        Bad("i8[2,3,7,7]", "i8[4,3,3,3]", "f32[4]", match="bias must be i32"),
        Bad("i8[2,3,7,7]", "i8[4,3,3,3]", stride=0, match="stride must be at least 1"),
        Bad("u8[1,8000,3,3]", "i8[1,8000,3,3]", match="hold 65793 products"),
    ],
)
def int_conv2d(
    x: Tensor,
    weight: Tensor,
    bias: OptionalTensor = None,
    stride: Ints = 1,
    padding: Attribute = 0,
    dilation: Ints = 1,
    groups: int = 1,
    x_zero_point: int = 0,
    layout: str = "NCHW",
) -> Tensor:
    """``sum((x - x_zero_point) * weight) + bias`` over windows, in int32, exactly: conv2d with
    ``x [N, C, H, W]`` (or in the ``layout``; i8 or u8), ``weight`` (i8) and ``bias`` (i32), to i32. Padding
    counts as zero, as if ``x`` were padded with its zero point.

    Attributes and errors are those of conv2d. Also raises ShapeError if a sum could overflow
    (:func:`largest_depth`), and DTypeError for other types."""
    x, weight = np.asarray(x), np.asarray(weight)
    depth = weight[0].size if len(weight) else 0
    wide = _exact(x, x_zero_point, depth * 128 * _magnitude(dtypes.dtype(x.dtype), x_zero_point))
    total = conv2d(wide, weight.astype(wide.dtype), None, stride, padding, dilation, groups, layout)
    if bias is not None and not is_channels_last(layout):
        bias = np.asarray(bias)[:, None, None]
    return _as_sums(total, bias)


requires_windows(int_conv2d)


@int_conv2d.infer
def _(x: Any, weight: Any, bias: Any, x_zero_point: Any, **attributes: Any) -> TensorType:
    x = _check("x", x, x_zero_point)
    _check_weight_and_bias(weight, bias)
    found = _type_of_sums(conv2d, x=x, weight=weight, bias=bias, **attributes)
    depth = shapes.normalize(shapes.product(weight.shape[1:]))
    _check_depth(depth, largest_depth(x.dtype, dtypes.int8, x_zero_point))
    return found


@int_conv2d.body
def _(i: MultiIndex, x: Reader, weight: Reader, bias: Reader | None, x_zero_point: int, **attributes: Any) -> Expr:
    operands = {"x": _Difference(x, x_zero_point), "weight": _Difference(weight), "bias": bias}
    return conv2d.element(i, {**operands, **attributes})


int_conv2d.cost(partial(_operations, conv2d))


@int_conv2d.canonical
def _(**bound: Any) -> Any:
    own = {name: value for name, value in bound.items() if name in conv2d.signature.parameters}
    _, stored = conv2d.canonicalize(own)
    attributes = {n: v for n, v in stored.items() if n not in conv2d.tensor_kinds}
    return rewrite(int_conv2d, bound, attributes)


# -- integer weights -------------------------------------------------------------------------------
def _wide(weight: Any, scale: Any, depth: int, bits: int, group_size: int | None) -> Any:
    """The weight ``[N, depth]`` in float32."""
    integers = unpack_int4(weight)[:, :depth] if bits == 4 else np.asarray(weight)
    scales = np.repeat(np.asarray(scale).reshape(len(integers), -1), group_size or depth, axis=1)
    return np.asarray(integers * scales[:, :depth])


def _element(weight: Reader, scale: Reader, n: Index, k: Index, bits: int, group_size: int | None) -> Expr:
    """One number of the weight in float32."""
    integer = int4_element(weight, (n, k)) if bits == 4 else weight[(n, k)]
    group = () if group_size is None else (k // group_size,)
    return expr.apply("product", expr.cast(integer, dtypes.float32), scale[(n, *group)])


def _parts(size: Dim, of: int) -> Dim:
    """The number of parts of size ``of`` in a size; the last part may be smaller."""
    return shapes.floordiv(shapes.normalize(size + (of - 1)), of)


def _depth(weight: Any, wanted: Dim, bits: Any) -> Dim:
    """The number of elements in a row of a weight: ``wanted``, if that is possible. Raises an error for a
    tensor that cannot be a weight."""
    if bits not in (8, 4):
        raise ArgumentError(f"bits must be 8 or 4, not {bits!r}")
    dtype = dtypes.uint8 if bits == 4 else dtypes.int8
    if not isinstance(weight, TensorType) or weight.dtype is not dtype:
        packed = ", from pack_int4," if bits == 4 else ""
        raise DTypeError(f"weight must be {dtype}{packed} for bits={bits}, not {weight}")
    if weight.rank != 2:
        raise ShapeError(f"weight must have rank 2, not {weight}")
    if bits == 8:
        return weight.shape[1]
    is_wanted = shapes.equal(_parts(wanted, 2), weight.shape[1])
    return wanted if is_wanted else shapes.normalize(weight.shape[1] * 2)


def _check_scale(scale: Any, weight: TensorType, depth: Dim, group_size: Any) -> None:
    """Raise an error unless the scales fit rows of ``depth`` numbers."""
    expected = weight.shape[:1]
    if group_size is not None:
        if type(group_size) is not int or group_size < 1:
            raise ArgumentError(f"group_size must be an int >= 1, not {group_size!r}")
        expected = (*expected, _parts(depth, group_size))
    if not isinstance(scale, TensorType) or not shapes.shapes_equal(scale.shape, expected):
        raise ShapeError(f"scale must be [{', '.join(map(str, expected))}], not {scale}")
    _check_float32(scale=scale)


def _check_float32(**values: Any) -> None:
    for name, value in values.items():
        if isinstance(value, TensorType) and value.dtype is not dtypes.float32:
            raise DTypeError(f"{name} must be f32, not {value.dtype}")


# -- linear layers ---------------------------------------------------------------------------------
@op(
    "contraction",
    samples=[
        "f32[B,8] i8[3,8](-128,128) f32[3](0.01,0.1) f32[3] B=4",
        "f32[2,3,8] i8[5,8](-128,128) f32[5,2](0.01,0.1) group_size=4",
        "f32[2,9] i8[3,9](-128,128) f32[3,2](0.01,0.1) group_size=8",
        "f32[B,8] u8[3,4](0,256) f32[3,4](0.01,0.1) f32[3] bits=4 group_size=2 B=4",
        "f32[B,7] u8[3,4](0,256) f32[3,2](0.01,0.1) bits=4 group_size=4 B=2",
        "f32[8] u8[3,4](0,256) f32[3](0.01,0.1) bits=4; f32[0,8] i8[3,8] f32[3]",
    ],
    bad=[
        Bad("f32[2,8]", "i8[3,9]", "f32[3]", match="x has 8 features, but weight takes 9"),
        Bad("f32[2,7]", "u8[3,3]", "f32[3]", bits=4, match="x has 7 features, but weight takes 6"),
        Bad("f32[2,8]", "i8[3,8]", "f32[4]", match="scale must be [3]"),
        Bad("f32[2,8]", "i8[3,8]", "f32[3]", group_size=4, match="scale must be [3, 2]"),
        Bad("f32[2,8]", "i8[3,8]", "f32[3,2]", group_size=3, match="scale must be [3, 3]"),
        Bad("f32[2,8]", "i8[3,8]", "f32[3]", group_size=0, match="group_size must be an int >= 1"),
        Bad("f32[2,8]", "i8[3,4]", "f32[3]", bits=4, match="weight must be u8"),
        Bad("f32[2,8]", "i8[3,8]", "f32[3]", bits=2, match="bits must be 8 or 4"),
        Bad("i8[2,8]", "i8[3,8]", "f32[3]", match="x must be f32"),
    ],
)
def linear_weight_only(
    x: Tensor, weight: Tensor, scale: Tensor, bias: OptionalTensor = None, bits: int = 8, group_size: int | None = None
) -> Tensor:
    """``linear(x, weight * scale, bias)`` in float32, with weights that stay integers in memory: ``x [..., K]``
    (f32), ``weight``, ``scale`` and ``bias [N]`` (f32) to f32 ``[..., N]``.

    ``weight`` is i8 ``[N, K]`` or, for ``bits=4``, u8 ``[N, K/2]`` as :func:`pack_int4` packs it (with a
    zero appended if K is odd). ``scale`` is f32 ``[N]`` or, with a scale for each group of weights along K,
    ``[N, K/group_size]`` (rounded up: the last group may be shorter).

    Sums are float32 and their order is up to the back end, as in linear. Raises ShapeError if shapes do not
    fit, ArgumentError for other bits or groups, and DTypeError for other types."""
    return linear(x, _wide(weight, scale, np.shape(x)[-1], bits, group_size), bias)


def _in_float(x: Any, weight: TensorType, bias: Any, depth: Dim) -> dict[str, Any]:
    """The types of the float linear that is computed."""
    wide = TensorType((weight.shape[0], depth), dtypes.float32)
    return {"x": x, "weight": wide, "bias": bias}


@linear_weight_only.infer
def _(x: Any, weight: Any, scale: Any, bias: Any, bits: Any, group_size: Any) -> TensorType:
    _check_float32(x=x, bias=bias)
    wanted = x.shape[-1] if isinstance(x, TensorType) and x.rank else 1
    depth = _depth(weight, wanted, bits)
    found: TensorType = linear.inferred(_in_float(x, weight, bias, depth))
    _check_scale(scale, weight, depth, group_size)
    return found


@linear_weight_only.body
def _(
    i: MultiIndex, x: Reader, weight: Reader, scale: Reader, bias: Reader | None, bits: int, group_size: int | None
) -> Expr:
    def element(k: Index) -> Expr:
        return x[(*i[:-1], k)] * _element(weight, scale, i[-1], k, bits, group_size)

    total = expr.reduce("sum", [x.shape[-1]], element)
    return total if bias is None else total + bias[i[-1:]]


@linear_weight_only.cost
def _(x: Any, weight: Any, scale: Any, bias: Any, **how: Any) -> Any:
    same = _in_float(x, weight, bias, x.shape[-1])
    return linear.flops(same, linear.inferred(same))


# -- weights of other products ---------------------------------------------------------------------
@op(
    "gather",
    participle="expanded",
    samples=[
        "i8[3,18](-128,128) f32[3](0.01,0.1) shape=(3,2,3,3)",
        "i8[2,6](-128,128) f32[2,2](0.01,0.1) shape=(2,3,2) group_size=4",
        "u8[4,5](0,256) f32[4,3](0.01,0.1) shape=(4,1,3,3) bits=4 group_size=4",
        "u8[4,3](0,256) f32[4](0.01,0.1) shape=(4,6) bits=4",
    ],
    bad=[
        Bad("i8[3,8]", "f32[3]", shape=(3, 9), match="hold no [3, 9]"),
        Bad("u8[3,4]", "f32[3]", shape=(3, 9), bits=4, match="hold no [3, 9]"),
        Bad("i8[3,8]", "f32[3]", shape=(4, 8), match="hold no [4, 8]"),
        Bad("i8[3,8]", "f32[3]", shape=(), match="shape must be"),
        Bad("i8[3,8]", "f16[3]", shape=(3, 8), match="scale must be f32"),
        Bad("i8[3,8]", "f32[3]", shape=(3, 8), group_size=3, match="scale must be [3, 3]"),
        Bad("i8[3,8]", "f32[3]", shape=(3, 8), bits=4, match="weight must be u8"),
    ],
)
def dequantize_weight(
    weight: Tensor, scale: Tensor, shape: tuple[int, ...], bits: int = 8, group_size: int | None = None
) -> Tensor:
    """A weight of ``shape`` in float32 from its integers and scales, which are stored as in
    :func:`linear_weight_only`: the first axis counts the rows, and all other axes together form a row. It is
    for weights that no kernel reads as integers (those of convolutions): they are small on disk, and
    converted to floats when the program is compiled.

    Raises ShapeError if integers or scales do not fit the shape, ArgumentError for other bits, groups or
    shapes, and DTypeError for other types."""
    depth = int(np.prod(shape[1:], dtype=np.int64))
    return np.asarray(_wide(weight, scale, depth, bits, group_size).reshape(shape))


@dequantize_weight.infer
def _(weight: Any, scale: Any, shape: Any, bits: Any, group_size: Any) -> TensorType:
    if not isinstance(shape, (tuple, list)) or len(shape) < 2:
        raise ArgumentError(f"shape must be that of a weight, of two sizes or more, not {shape!r}")
    wanted = shapes.normalize(shapes.product(shape[1:]))
    depth = _depth(weight, wanted, bits)
    if not shapes.shapes_equal((weight.shape[0], depth), (shape[0], wanted)):
        text = ", ".join(map(str, shape))
        raise ShapeError(f"{weight.shape[0]} rows of {depth} numbers hold no [{text}]")
    _check_scale(scale, weight, depth, group_size)
    return TensorType(tuple(shape), dtypes.float32)


@dequantize_weight.body
def _(i: MultiIndex, weight: Reader, scale: Reader, shape: Any, bits: int, group_size: int | None) -> Expr:
    k = Index.of(0)
    for size, position in zip(shape[1:], i[1:], strict=True):
        k = k * size + position
    return _element(weight, scale, i[0], k, bits, group_size)
