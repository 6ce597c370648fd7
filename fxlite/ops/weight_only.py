"""Linear with integer weights and float activations: weights stay i8, or int4 in pairs, in memory
and are scaled where they are read: a quarter or an eighth of the bytes of float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite import dtypes, expr, shapes
from fxlite.errors import ArgumentError, DTypeError, ShapeError
from fxlite.expr import Expr, MultiIndex, Reader
from fxlite.index import Index
from fxlite.op import OptionalTensor, Tensor, op
from fxlite.ops.contraction import linear
from fxlite.ops.quantized import int4_element, unpack_int4
from fxlite.ops.spatial import checked_type
from fxlite.samples import Bad, S, uniform
from fxlite.types import TensorType


@op("contraction",
    samples=[S("f32[B,8]", uniform("i8[3,8]", -128, 128), uniform("f32[3]", 0.01, 0.1), "f32[3]",
               dims={"B": 4}),
             S("f32[2,3,8]", uniform("i8[5,8]", -128, 128), uniform("f32[5,2]", 0.01, 0.1),
               group_size=4),
             S("f32[B,8]", uniform("u8[3,4]", 0, 256), uniform("f32[3,4]", 0.01, 0.1), "f32[3]",
               dims={"B": 4}, bits=4, group_size=2),
             S("f32[8]", uniform("u8[3,4]", 0, 256), uniform("f32[3]", 0.01, 0.1), bits=4),
             S("f32[0,8]", "i8[3,8]", "f32[3]")],
    bad=[Bad("f32[2,8]", "i8[3,9]", "f32[3]", match="x has 8 features, but weight takes 9"),
         Bad("f32[2,8]", "i8[3,8]", "f32[4]", match="scale must be [3]"),
         Bad("f32[2,8]", "i8[3,8]", "f32[3]", group_size=4, match="scale must be [3, 2]"),
         Bad("f32[2,8]", "i8[3,8]", "f32[3,2]", group_size=3, match="divide"),
         Bad("f32[2,8]", "i8[3,4]", "f32[3]", bits=4, match="weight must be u8"),
         Bad("f32[2,8]", "i8[3,8]", "f32[3]", bits=2, match="bits must be 8 or 4"),
         Bad("i8[2,8]", "i8[3,8]", "f32[3]", match="x must be f32")])  # fmt: skip
def linear_weight_only(
    x: Tensor, weight: Tensor, scale: Tensor, bias: OptionalTensor = None, bits: int = 8,
    group_size: int | None = None,
) -> Tensor:  # fmt: skip
    """``linear(x, weight * scale, bias)`` in float32 with weights that stay integers in memory:
    ``x [..., K]`` (f32); ``weight`` i8 ``[N, K]``, or for ``bits=4`` u8 ``[N, K/2]`` as
    :func:`pack_int4` packs it; ``scale`` f32 ``[N]``, or ``[N, K/group_size]`` with one scale for
    each group of weights along K; ``bias [N]`` (f32) to f32 ``[..., N]``.

    Sums are float32 and their order is up to the back end, as in linear. Raises ShapeError where
    shapes do not fit, ArgumentError for other bits or groups, DTypeError for other types."""
    checked_type(linear_weight_only, x=x, weight=weight, scale=scale, bias=bias, bits=bits,
                 group_size=group_size)  # fmt: skip
    integers = unpack_int4(weight) if bits == 4 else np.asarray(weight)
    groups = group_size or integers.shape[1]
    scales = np.repeat(np.asarray(scale).reshape(len(integers), -1), groups, axis=1)
    return linear(x, integers * scales, bias)


def _unpacked(weight: TensorType, bits: int) -> TensorType:
    """The type of the integers that are stored."""
    if bits == 8 or weight.rank == 0:
        return weight
    return TensorType((*weight.shape[:-1], shapes.normalize(weight.shape[-1] * 2)), dtypes.int8)


def _in_float(x: Any, weight: TensorType, bias: Any, bits: int) -> dict[str, Any]:
    """The types of the linear that is computed."""
    wide = TensorType(_unpacked(weight, bits).shape, dtypes.float32)
    return {"x": x, "weight": wide, "bias": bias}


@linear_weight_only.infer
def _(
    x: Any, weight: Any, scale: Any, bias: Any = None, bits: Any = 8, group_size: Any = None
) -> TensorType:
    if bits not in (8, 4):
        raise ArgumentError(f"bits must be 8 or 4, not {bits!r}")
    for name, value in (("x", x), ("scale", scale), ("bias", bias)):
        if isinstance(value, TensorType) and value.dtype is not dtypes.float32:
            raise DTypeError(f"{name} must be f32, not {value.dtype}")
    wanted = dtypes.uint8 if bits == 4 else dtypes.int8
    if not isinstance(weight, TensorType) or weight.dtype is not wanted:
        packed = ", from pack_int4," if bits == 4 else ""
        raise DTypeError(f"weight must be {wanted}{packed} for bits={bits}, not {weight}")
    shape = _unpacked(weight, bits).shape
    found: TensorType = linear.inferred(_in_float(x, weight, bias, bits))
    expected = shape[:1]
    if group_size is not None:
        if type(group_size) is not int or group_size < 1:
            raise ArgumentError(f"group_size must be an int >= 1, not {group_size!r}")
        if not shapes.equal(shapes.remainder(shape[1], group_size), 0):
            raise ShapeError(f"{shape[1]} features do not divide into groups of {group_size}")
        expected = (shape[0], shapes.floordiv(shape[1], group_size))
    if not isinstance(scale, TensorType) or not shapes.shapes_equal(scale.shape, expected):
        text = ", ".join(map(str, expected))
        raise ShapeError(f"scale must be [{text}], not {scale}")
    return found


@linear_weight_only.body
def _(
    i: MultiIndex, x: Reader, weight: Reader, scale: Reader, bias: Reader | None = None,
    bits: int = 8, group_size: int | None = None,
) -> Expr:  # fmt: skip
    def element(k: Index) -> Expr:
        at = (i[-1], k)
        integer = int4_element(weight, at) if bits == 4 else weight[at]
        group = () if group_size is None else (k // group_size,)
        return x[(*i[:-1], k)] * (expr.cast(integer, dtypes.float32) * scale[(i[-1], *group)])

    total = expr.reduce("sum", [x.shape[-1]], element)
    return total if bias is None else total + bias[i[-1:]]


@linear_weight_only.cost
def _(x: Any, weight: Any, scale: Any, bias: Any = None, bits: int = 8, **group: Any) -> Any:
    same = _in_float(x, weight, bias, bits)
    return linear.flops(same, linear.inferred(same))
