"""Activations: the scalar functions of neural networks that are not primitives.

All of them keep the shape and dtype of a float tensor ``x``, and are defined by an expression over other
ops. Arguments of functions that may overflow are limited even in branches that are not taken, so that
gradients of the expansions are finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, ShapeError
from fxlite.ops.composite import composite, same_type
from fxlite.ops.elementwise import erf_reference, sigmoid_reference
from fxlite.ops.op import Op, Tensor, normalize_axis, ops, require_float
from fxlite.ops.samples import Bad
from fxlite.types import shapes
from fxlite.types.tensor_type import TensorType

_BAD = [Bad("i32[3]", match="must be a float")]


def _samples(attributes: str = "") -> list[str]:
    usual = "f32[B,5] B=3; f32[40](-9,9); f64[7]; f32[]; f32[9]!; f16[4,3]; bf16[6]; f32[0,3]"
    return [usual, f"f32[3,7](-4,4) {attributes}"] if attributes else [usual]


def _activation(
    expansion: Callable[..., Any], attributes: str = "", **facts: Any
) -> Callable[[Callable[..., Any]], Op]:
    """The record of an activation of any float tensor; ``attributes`` are those of one sample."""
    return composite(
        role="activation", infer=same_type, expansion=expansion, bad=_BAD, samples=_samples(attributes), **facts
    )


@_activation(lambda x: x * ops.sigmoid(x), aliases=("swish",))
def silu(x: Tensor) -> Tensor:
    """``x * sigmoid(x)``."""
    return x * sigmoid_reference(x)


def _infer_gelu(x: TensorType, approximate: str) -> TensorType:
    if approximate not in ("none", "tanh"):
        raise ArgumentError(f'approximate must be "none" or "tanh", not {approximate!r}')
    return same_type(x)


def _gelu(x: Any, approximate: str) -> Any:
    if approximate == "tanh":
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return x * 0.5 * (ops.tanh(inner) + 1.0)
    return x * 0.5 * (ops.erf(x * math.sqrt(0.5)) + 1.0)


@composite(
    role="activation",
    infer=_infer_gelu,
    expansion=_gelu,
    samples=_samples("approximate='tanh'"),
    bad=[*_BAD, Bad("f32[3]", approximate="fast", match="approximate")],
    onnx="Gelu approximate=approximate",
)
def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """``x * P(Z <= x)`` for a standard normal Z; with ``approximate="tanh"``, the usual approximation by
    tanh."""
    wide = x.astype(np.float64)
    if approximate == "tanh":
        return 0.5 * wide * (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)))
    return 0.5 * wide * (1 + erf_reference(wide / math.sqrt(2)))


@_activation(lambda x: ops.clip(x, 0.0, 6.0), numpy="np.clip x 0 6")
def relu6(x: Tensor) -> Tensor:
    """``minimum(maximum(x, 0), 6)``."""
    return np.minimum(np.maximum(x, 0), 6)


@_activation(
    lambda x, min_val, max_val: ops.clip(x, min_val, max_val),
    "min_val=-2.0 max_val=0.5",
    numpy="np.clip x min_val max_val",
)
def hardtanh(x: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """``x`` limited to ``[min_val, max_val]``."""
    return np.minimum(np.maximum(x, min_val), max_val)


def _hardsigmoid(x: Any) -> Any:
    return ops.clip(x + 3.0, 0.0, 6.0) * (1 / 6)


@_activation(_hardsigmoid, nonnegative=True)
def hardsigmoid(x: Tensor) -> Tensor:
    """``relu6(x + 3) / 6``."""
    return np.minimum(np.maximum(x + 3, 0), 6) / 6


@_activation(lambda x: x * _hardsigmoid(x), onnx="HardSwish")
def hardswish(x: Tensor) -> Tensor:
    """``x * relu6(x + 3) / 6``."""
    return x * (np.minimum(np.maximum(x + 3, 0), 6) / 6)


def _elu(x: Any, alpha: float) -> Any:
    return ops.where(x > 0, x, ops.expm1(ops.minimum(x, 0.0)) * alpha)


@_activation(_elu, "alpha=0.5", onnx="Elu alpha=alpha")
def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """``x`` where it is positive, else ``alpha * (exp(x) - 1)``."""
    return np.where(x > 0, x, alpha * np.expm1(x))


_SELU_SCALE, _SELU_ALPHA = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717


@_activation(lambda x: _elu(x, _SELU_ALPHA) * _SELU_SCALE, onnx="Selu")
def selu(x: Tensor) -> Tensor:
    """``scale * elu(x, alpha)``, with the constants that preserve mean 0 and variance 1 (Klambauer et al. 2017,
    arXiv:1706.02515)."""
    return _SELU_SCALE * np.where(x > 0, x, _SELU_ALPHA * np.expm1(x))


@_activation(lambda x, alpha: ops.where(x > 0, x, ops.expm1(ops.minimum(x, 0.0) * (1 / alpha)) * alpha), "alpha=2.0")
def celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """``maximum(x, 0) + minimum(alpha * (exp(x / alpha) - 1), 0)``."""
    return np.maximum(x, 0) + np.minimum(alpha * np.expm1(x / alpha), 0)


@_activation(
    lambda x, negative_slope: ops.where(x > 0, x, x * negative_slope),
    "negative_slope=0.2",
    scales=True,
    onnx="LeakyRelu alpha=negative_slope",
)
def leaky_relu(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    """``x`` where it is positive, else ``negative_slope * x``."""
    return np.maximum(x, 0) + negative_slope * np.minimum(x, 0)


def _infer_prelu(x: TensorType, weight: TensorType) -> TensorType:
    require_float(x, "x")
    channels = x.shape[1] if x.rank > 1 else 1
    if weight.rank != 1 or not any(shapes.equal(weight.shape[0], c) for c in (1, channels)):
        raise ShapeError(f"weight must be [1] or [{channels}] (one slope for each channel), not {weight}")
    return x


def _prelu(x: Any, weight: Any) -> Any:
    if x.ndim > 2:
        weight = ops.reshape(weight, (weight.shape[0], *(1,) * (x.ndim - 2)))
    elif x.ndim == 0:
        weight = ops.reshape(weight, ())
    return ops.where(x > 0, x, x * weight)


@composite(
    role="activation",
    scales=True,
    infer=_infer_prelu,
    expansion=_prelu,
    samples=[
        "f32[B,5] f32[5] B=3; f32[2,3,4,4] f32[3]; f32[7] f32[1]; f64[2,3,4] f64[1]; f16[2,3] f16[3]",
        "bf16[2,3] bf16[3]; f32[9,1]! f32[1]; f32[0,3] f32[3]; f32[] f32[1]",
    ],
    bad=[Bad("f32[3,4]", "f32[3]", match="weight must be")],
)
def prelu(x: Tensor, weight: Tensor) -> Tensor:
    """``x`` where it is positive, else ``weight * x``. The weight is [C], where C is the size of axis 1,
    or [1]."""
    slope = weight.reshape(-1, *(1,) * (x.ndim - 2)) if x.ndim else weight.reshape(())
    return np.where(x > 0, x, slope * x)


def _softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    threshold = min(threshold, 40.0)  # above it the result is x itself, in every dtype
    scaled = x if beta == 1 else x * beta
    soft = ops.log1p(ops.exp(ops.minimum(scaled, threshold)))
    return ops.where(scaled > threshold, x, soft if beta == 1 else soft * (1 / beta))


@_activation(_softplus, "beta=2.0 threshold=5.0; f32[3,7](80,900) threshold=1000.0", nonnegative=True)
def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """``log(1 + exp(beta * x)) / beta``; ``x`` itself where ``beta * x > threshold``."""
    return np.where(beta * x > threshold, x, np.logaddexp(0, beta * x) / beta)


@_activation(lambda x: x / (ops.abs(x) + 1.0), onnx="Softsign")
def softsign(x: Tensor) -> Tensor:
    """``x / (1 + |x|)``."""
    return x / (1 + np.abs(x))


@_activation(lambda x: x * ops.tanh(_softplus(x)), onnx="Mish")
def mish(x: Tensor) -> Tensor:
    """``x * tanh(log(1 + exp(x)))`` (Misra 2019, arXiv:1908.08681)."""
    return x * np.tanh(np.logaddexp(0, x))


@_activation(lambda x: x - ops.tanh(x))
def tanhshrink(x: Tensor) -> Tensor:
    """``x - tanh(x)``."""
    return x - np.tanh(x)


@composite(
    infer=same_type,
    expansion=lambda x, lambd: ops.where(ops.abs(x) <= lambd, 0.0, x),
    samples=_samples("lambd=1.0"),
    bad=_BAD,
)
def hardshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    """0 where ``|x| <= lambd``, else ``x``."""
    return np.where((x >= -lambd) & (x <= lambd), 0, x)


@composite(
    infer=same_type, expansion=lambda x, lambd: x - ops.clip(x, -lambd, lambd), samples=_samples("lambd=1.0"), bad=_BAD
)
def softshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    """``x`` moved toward 0 by ``lambd``; 0 where ``|x| <= lambd``."""
    return np.sign(x) * np.maximum(np.abs(x) - lambd, 0)


@composite(
    infer=same_type,
    expansion=lambda x, threshold, value: ops.where(x <= threshold, float(value), x),
    bad=[Bad("i32[3]", 0.0, 1.0, match="must be a float")],
    samples=["f32[B,5] 0.1 20.0 B=3; f64[4] 0.0 1.0; bf16[4] 0.0 1.0; f16[5] 0.5 0.0; f32[6]! 0.1 7"],
)
def threshold(x: Tensor, threshold: float, value: float) -> Tensor:
    """``x`` where it is above ``threshold``, else ``value``; NaN stays NaN."""
    return np.where(x <= threshold, x.dtype.type(value), x)


@_activation(lambda x: ops.minimum(x, 0.0) - ops.log1p(ops.exp(-ops.abs(x))), aliases=("log_sigmoid",))
def logsigmoid(x: Tensor) -> Tensor:
    """``log(sigmoid(x))``, exact where sigmoid underflows."""
    return -np.logaddexp(0, -x)


def _infer_glu(x: TensorType, axis: int) -> TensorType:
    require_float(x, "x")
    axis = normalize_axis(axis, x.rank)
    size = x.shape[axis]
    half = shapes.floordiv(size, 2)
    if not shapes.equal(shapes.normalize(half * 2), size):
        raise ShapeError(f"axis {axis} of {x} must have an even size")
    return x.with_shape((*x.shape[:axis], half, *x.shape[axis + 1 :]))


def _glu(x: Any, axis: int) -> Any:
    half = x.shape[axis] // 2
    first = ops.slice(x, axis=axis, start=0, stop=half)
    return first * ops.sigmoid(ops.slice(x, axis=axis, start=half, stop=x.shape[axis]))


@composite(
    infer=_infer_glu,
    expansion=_glu,
    samples=["f32[B,6] B=3; f32[4,3,5] axis=0; f32[B,2*D] B=2 D=3; f64[2,4]; f16[2,4]; bf16[2,4]; f32[0,4]"],
    bad=[Bad("f32[2,3]", match="even"), Bad("f32[2,4]", axis=2, match="out of range")],
)
def glu(x: Tensor, axis: int = -1) -> Tensor:
    """``a * sigmoid(b)``, where a and b are the halves of ``x`` along ``axis``."""
    a, b = np.split(x, 2, axis=axis)
    return a * sigmoid_reference(b)
