"""The scale of values that are quantized by their own range, found while the program runs.

In: a tensor and the axes whose elements share a scale (a row of tokens, an image). Out: float32
scales, as :func:`quantize` takes them. It is one op, so that a back end may find the scale where
the tensor is computed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, DTypeError
from fxlite.ops.image.spatial import checked_type
from fxlite.ops.op import Axis, Tensor, op
from fxlite.ops.reduction import reduce_over, reduced_shape
from fxlite.ops.samples import Bad, S, special, uniform
from fxlite.scalar import expr
from fxlite.scalar.expr import Expr, MultiIndex, Reader
from fxlite.types import dtypes
from fxlite.types.tensor_type import TensorType

SMALLEST_SCALE = 2.0**-120
"""The least scale: below 2**-126 its reciprocal is not a float32."""


def least_magnitude(qmax: int) -> float:
    """The magnitude that tensors of nothing but smaller numbers are taken to have."""
    return SMALLEST_SCALE * qmax


@op("reduction",
    samples=[S("f32[B,5]", axis=1, keepdims=True, dims={"B": 3}), S("f32[3,40]", qmax=255),
             S("f32[2,3,4,5]", axis=(1, 2, 3), keepdims=True), S(special("f32[3,3]"), axis=1),
             S("f32[2,100]", axis=-1, keepdims=True), S("f16[4,9]", axis=1), S("bf16[3,8]", axis=1),
             S(uniform("f32[2,33]", 0, 1e-38), axis=1), S("f32[2,70,3]", axis=(0, 1)), S("f32[]")],
    bad=[Bad("f32[3,4]", axis=2, match="out of range"),
         Bad("i32[3,4]", axis=1, match="x must be f32, f16 or bf16"),
         Bad("f32[3,4]", axis=1, qmax=0, match="qmax must be an int")])  # fmt: skip
def dynamic_scale(x: Tensor, axis: Axis = None, keepdims: bool = False, qmax: int = 127) -> Tensor:
    """``max(abs(x)) / qmax`` over ``axis``, in float32: the scale by which the largest magnitude
    becomes the integer ``qmax``. It is the product with ``1 / qmax``, which is rounded before, and
    2**-120 at least; a NaN gives NaN. ``x`` is f32, f16 or bf16.

    Raises DTypeError for other types, ShapeError for wrong axes, ArgumentError for a ``qmax`` that
    is not in 1..255."""
    checked_type(dynamic_scale, x=x, axis=axis, keepdims=keepdims, qmax=qmax)
    magnitudes = np.abs(np.asarray(x).astype(np.float32))
    largest = np.max(magnitudes, axis=axis, keepdims=keepdims, initial=0)
    return np.maximum(largest, np.float32(least_magnitude(qmax))) * np.float32(1 / qmax)


@dynamic_scale.infer
def _(x: Any, axis: Any = None, keepdims: bool = False, qmax: Any = 127) -> TensorType:
    if x.dtype.name not in ("f32", "f16", "bf16"):
        raise DTypeError(f"x must be f32, f16 or bf16, not {x.dtype}")
    if type(qmax) is not int or not 1 <= qmax <= 255:
        raise ArgumentError(f"qmax must be an int in 1..255, not {qmax!r}")
    return TensorType(reduced_shape(x, axis, keepdims), dtypes.float32)


@dynamic_scale.body
def _(i: MultiIndex, x: Reader, axis: Any = None, keepdims: bool = False, qmax: Any = 127) -> Expr:
    largest = reduce_over(
        "max", i, x, axis, keepdims, lambda v: expr.apply("abs", expr.cast(v, dtypes.float32))
    )
    least = expr.const(least_magnitude(qmax), dtypes.float32)
    factor = expr.const(float(np.float32(1 / qmax)), dtypes.float32)
    return expr.apply("maximum", largest, least) * factor
