"""Fake quantization: a float rounded to the numbers that integers of a scale stand for.

It is what quantization-aware training puts in the place of quantize and dequantize: the values are
those of the integer program, the type stays float32, and gradients pass ("straight through") as if
nothing were rounded.
"""

from __future__ import annotations

from typing import Any

from fxlite.base.errors import DTypeError
from fxlite.ops.image.spatial import checked_type, rewrite
from fxlite.ops.integer.quantized import dequantize, quantize
from fxlite.ops.op import OptionalTensor, Tensor, op
from fxlite.ops.samples import Bad, S, special, uniform
from fxlite.types import dtypes
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import TensorType


@op("composite", gradient="straight_through",
    samples=[S("f32[B,5]", 0.05, dims={"B": 3}), S("f32[4,6]", 0.02, 7, dtype="u8"),
             S("f32[3,5]", uniform("f32[3,1]", 0.01, 0.1), qmin=-127),
             S("f32[4]", uniform("f32[]", 0.01, 0.1), "i32[]"), S(special("f32[9]"), 0.01),
             S("f32[0,3]", 0.1)],
    bad=[Bad("f16[4]", 0.1, match="x must be f32"),
         Bad("f32[4]", 0.1, dtype="i32", match="must be i8 or u8"),
         Bad("f32[2,3,4,4]", "f32[3]", match="do not broadcast")])  # fmt: skip
def fake_quantize(
    x: Tensor, scale: Tensor, zero_point: OptionalTensor = None, dtype: DType = "i8",  # type: ignore[assignment]
    qmin: int | None = None, qmax: int | None = None,
) -> Tensor:  # fmt: skip
    """``dequantize(quantize(x, scale, zero_point, dtype, qmin, qmax), scale, zero_point)``, float32
    to float32.

    The gradient with respect to ``x`` is that of the identity where the integer lies within the
    range, and 0 where it was cut off (Bengio et al., "Estimating or propagating gradients through
    stochastic neurons", 2013; Jacob et al., 2018). Types, ranges and errors as in quantize."""
    checked_type(fake_quantize, x=x, scale=scale, zero_point=zero_point, dtype=dtype, qmin=qmin,
                 qmax=qmax)  # fmt: skip
    return _rounded(x, scale, zero_point, dtype, qmin, qmax)


@fake_quantize.infer
def _(
    x: Any, scale: Any, zero_point: Any = None, dtype: Any = "i8", qmin: Any = None,
    qmax: Any = None,
) -> TensorType:  # fmt: skip
    if isinstance(x, TensorType) and x.dtype is not dtypes.float32:
        raise DTypeError(f"x must be f32, not {x.dtype}")
    given = {"x": x, "scale": scale, "zero_point": zero_point, "dtype": dtype, "qmin": qmin}
    integers = quantize.inferred({**given, "qmax": qmax})
    return TensorType(integers.shape, dtypes.float32)


@fake_quantize.expansion
def _rounded(
    x: Any, scale: Any, zero_point: Any = None, dtype: Any = "i8", qmin: Any = None,
    qmax: Any = None,
) -> Any:  # fmt: skip
    integers = quantize(x, scale, zero_point, dtype=dtype, qmin=qmin, qmax=qmax)
    return dequantize(integers, scale, zero_point)


@fake_quantize.canonical
def _(**bound: Any) -> Any:
    _, stored = quantize.canonicalize(dict(bound))
    return rewrite(fake_quantize, bound, {n: stored.get(n) for n in ("qmin", "qmax")})
