"""Integer weights of float products: i8, or int4 in pairs, a quarter or an eighth of the bytes of
float32. Those of linear layers are scaled where they are read, other ones by an op of their own.

Rows of a weight have one scale each, or one for each group of ``group_size`` numbers along the row;
the last group may be shorter. An odd row of int4 ends with half a byte that nobody reads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, DTypeError, ShapeError
from fxlite.ops.contraction import linear
from fxlite.ops.image.spatial import checked_type
from fxlite.ops.integer.quantized import int4_element, unpack_int4
from fxlite.ops.op import OptionalTensor, Tensor, op
from fxlite.ops.samples import Bad, S, uniform
from fxlite.scalar import expr
from fxlite.scalar.expr import Expr, MultiIndex, Reader
from fxlite.scalar.index import Index
from fxlite.types import dtypes, shapes
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType


# -- what both ops share ---------------------------------------------------------------------------
def _wide(weight: Any, scale: Any, depth: int, bits: int, group_size: int | None) -> Any:
    """The weight ``[N, depth]`` in float32."""
    integers = unpack_int4(weight)[:, :depth] if bits == 4 else np.asarray(weight)
    scales = np.repeat(np.asarray(scale).reshape(len(integers), -1), group_size or depth, axis=1)
    return np.asarray(integers * scales[:, :depth])


def _element(
    weight: Reader, scale: Reader, n: Index, k: Index, bits: int, group_size: int | None
) -> Expr:
    """One number of the weight in float32."""
    integer = int4_element(weight, (n, k)) if bits == 4 else weight[(n, k)]
    group = () if group_size is None else (k // group_size,)
    return expr.apply("product", expr.cast(integer, dtypes.float32), scale[(n, *group)])


def _parts(size: Dim, of: int) -> Dim:
    """How many parts of ``of`` a size has; the last one may be smaller."""
    return shapes.floordiv(shapes.normalize(size + (of - 1)), of)


def _depth(weight: Any, wanted: Dim, bits: Any) -> Dim:
    """How many numbers a row of a weight has: ``wanted``, if it may be as many. Raises for what is
    no weight."""
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
    """Raise unless the scales are those of rows of ``depth`` numbers."""
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
@op("contraction",
    samples=[S("f32[B,8]", uniform("i8[3,8]", -128, 128), uniform("f32[3]", 0.01, 0.1), "f32[3]",
               dims={"B": 4}),
             S("f32[2,3,8]", uniform("i8[5,8]", -128, 128), uniform("f32[5,2]", 0.01, 0.1),
               group_size=4),
             S("f32[2,9]", uniform("i8[3,9]", -128, 128), uniform("f32[3,2]", 0.01, 0.1),
               group_size=8),
             S("f32[B,8]", uniform("u8[3,4]", 0, 256), uniform("f32[3,4]", 0.01, 0.1), "f32[3]",
               dims={"B": 4}, bits=4, group_size=2),
             S("f32[B,7]", uniform("u8[3,4]", 0, 256), uniform("f32[3,2]", 0.01, 0.1),
               dims={"B": 2}, bits=4, group_size=4),
             S("f32[8]", uniform("u8[3,4]", 0, 256), uniform("f32[3]", 0.01, 0.1), bits=4),
             S("f32[0,8]", "i8[3,8]", "f32[3]")],
    bad=[Bad("f32[2,8]", "i8[3,9]", "f32[3]", match="x has 8 features, but weight takes 9"),
         Bad("f32[2,7]", "u8[3,3]", "f32[3]", bits=4, match="x has 7 features, but weight takes 6"),
         Bad("f32[2,8]", "i8[3,8]", "f32[4]", match="scale must be [3]"),
         Bad("f32[2,8]", "i8[3,8]", "f32[3]", group_size=4, match="scale must be [3, 2]"),
         Bad("f32[2,8]", "i8[3,8]", "f32[3,2]", group_size=3, match="scale must be [3, 3]"),
         Bad("f32[2,8]", "i8[3,8]", "f32[3]", group_size=0, match="group_size must be an int >= 1"),
         Bad("f32[2,8]", "i8[3,4]", "f32[3]", bits=4, match="weight must be u8"),
         Bad("f32[2,8]", "i8[3,8]", "f32[3]", bits=2, match="bits must be 8 or 4"),
         Bad("i8[2,8]", "i8[3,8]", "f32[3]", match="x must be f32")])  # fmt: skip
def linear_weight_only(
    x: Tensor, weight: Tensor, scale: Tensor, bias: OptionalTensor = None, bits: int = 8,
    group_size: int | None = None,
) -> Tensor:  # fmt: skip
    """``linear(x, weight * scale, bias)`` in float32 with weights that stay integers in memory:
    ``x [..., K]`` (f32); ``weight`` i8 ``[N, K]``, or for ``bits=4`` u8 ``[N, K/2]`` as
    :func:`pack_int4` packs it (an odd K with a zero behind); ``scale`` f32 ``[N]``, or ``[N,
    K/group_size]`` with one scale for each group of weights along K (rounded up: the last group may
    be shorter); ``bias [N]`` (f32) to f32 ``[..., N]``.

    Sums are float32 and their order is up to the back end, as in linear. Raises ShapeError where
    shapes do not fit, ArgumentError for other bits or groups, DTypeError for other types."""
    checked_type(linear_weight_only, x=x, weight=weight, scale=scale, bias=bias, bits=bits,
                 group_size=group_size)  # fmt: skip
    return linear(x, _wide(weight, scale, np.shape(x)[-1], bits, group_size), bias)


def _in_float(x: Any, weight: TensorType, bias: Any, depth: Dim) -> dict[str, Any]:
    """The types of the linear that is computed."""
    wide = TensorType((weight.shape[0], depth), dtypes.float32)
    return {"x": x, "weight": wide, "bias": bias}


@linear_weight_only.infer
def _(
    x: Any, weight: Any, scale: Any, bias: Any = None, bits: Any = 8, group_size: Any = None
) -> TensorType:
    _check_float32(x=x, bias=bias)
    wanted = x.shape[-1] if isinstance(x, TensorType) and x.rank else 1
    depth = _depth(weight, wanted, bits)
    found: TensorType = linear.inferred(_in_float(x, weight, bias, depth))
    _check_scale(scale, weight, depth, group_size)
    return found


@linear_weight_only.body
def _(
    i: MultiIndex, x: Reader, weight: Reader, scale: Reader, bias: Reader | None = None,
    bits: int = 8, group_size: int | None = None,
) -> Expr:  # fmt: skip
    def element(k: Index) -> Expr:
        return x[(*i[:-1], k)] * _element(weight, scale, i[-1], k, bits, group_size)

    total = expr.reduce("sum", [x.shape[-1]], element)
    return total if bias is None else total + bias[i[-1:]]


@linear_weight_only.cost
def _(x: Any, weight: Any, scale: Any, bias: Any = None, **how: Any) -> Any:
    same = _in_float(x, weight, bias, x.shape[-1])
    return linear.flops(same, linear.inferred(same))


# -- weights of other products ---------------------------------------------------------------------
@op("gather", participle="expanded",
    samples=[S(uniform("i8[3,18]", -128, 128), uniform("f32[3]", 0.01, 0.1), shape=(3, 2, 3, 3)),
             S(uniform("i8[2,6]", -128, 128), uniform("f32[2,2]", 0.01, 0.1), shape=(2, 3, 2),
               group_size=4),
             S(uniform("u8[4,5]", 0, 256), uniform("f32[4,3]", 0.01, 0.1), shape=(4, 1, 3, 3),
               bits=4, group_size=4),
             S(uniform("u8[4,3]", 0, 256), uniform("f32[4]", 0.01, 0.1), shape=(4, 6), bits=4)],
    bad=[Bad("i8[3,8]", "f32[3]", shape=(3, 9), match="hold no [3, 9]"),
         Bad("u8[3,4]", "f32[3]", shape=(3, 9), bits=4, match="hold no [3, 9]"),
         Bad("i8[3,8]", "f32[3]", shape=(4, 8), match="hold no [4, 8]"),
         Bad("i8[3,8]", "f32[3]", shape=(), match="shape must be"),
         Bad("i8[3,8]", "f16[3]", shape=(3, 8), match="scale must be f32"),
         Bad("i8[3,8]", "f32[3]", shape=(3, 8), group_size=3, match="scale must be [3, 3]"),
         Bad("i8[3,8]", "f32[3]", shape=(3, 8), bits=4, match="weight must be u8")])  # fmt: skip
def dequantize_weight(
    weight: Tensor, scale: Tensor, shape: tuple[int, ...], bits: int = 8,
    group_size: int | None = None,
) -> Tensor:  # fmt: skip
    """A weight of ``shape`` in float32 from its integers and scales, which are stored as those of
    :func:`linear_weight_only`: its first axis are the rows, all other ones together the numbers of
    a row. For weights that no kernel reads as integers (those of convolutions): small on the disk,
    and floats from the time on when the program is compiled.

    Raises ShapeError where integers or scales do not fit the shape, ArgumentError for other bits,
    groups or shapes, DTypeError for other types."""
    checked_type(dequantize_weight, weight=weight, scale=scale, shape=shape, bits=bits,
                 group_size=group_size)  # fmt: skip
    depth = int(np.prod(shape[1:], dtype=np.int64))
    return np.asarray(_wide(weight, scale, depth, bits, group_size).reshape(shape))


@dequantize_weight.infer
def _(weight: Any, scale: Any, shape: Any, bits: Any = 8, group_size: Any = None) -> TensorType:
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
def _(
    i: MultiIndex, weight: Reader, scale: Reader, shape: Any, bits: int = 8,
    group_size: int | None = None,
) -> Expr:  # fmt: skip
    k = Index.of(0)
    for size, position in zip(shape[1:], i[1:], strict=True):
        k = k * size + position
    return _element(weight, scale, i[0], k, bits, group_size)
