"""Normalizations: batch, layer, RMS, group and instance norm.

``x`` is the first operand, followed by tensors with statistics and affine parameters. The result has the
shape and dtype of x. Variances are computed without correction, in two passes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, ShapeError
from fxlite.ops.composite import composite
from fxlite.ops.op import Op, OptionalTensor, Tensor, ops, require_float
from fxlite.ops.samples import Bad, S, uniform
from fxlite.types import dtypes, shapes
from fxlite.types.tensor_type import TensorType


def _standardize(x: Any, axes: tuple[int, ...], eps: float) -> Any:
    """``x`` with mean 0 and variance 1 over ``axes``."""
    centered = x - ops.mean(x, axis=axes, keepdims=True)
    return centered * ops.rsqrt(ops.mean(ops.square(centered), axis=axes, keepdims=True) + eps)


def _standardize_reference(x: Any, axes: tuple[int, ...], eps: float) -> Any:
    mean, var = x.mean(axis=axes, keepdims=True), x.var(axis=axes, keepdims=True)
    return (x - mean) / np.sqrt(var + x.dtype.type(eps))


def _affine(x: Any, weight: Any, bias: Any) -> Any:
    """``x * weight + bias``, each of them optional."""
    if weight is not None:
        x = x * weight
    return x if bias is None else x + bias


def _per_channel(value: Any, rank: int) -> Any:
    """[C] as [C, 1, ...]: broadcasts along axis 1 of a value of that rank."""
    if value is None or rank <= 2:
        return value
    shape = (value.shape[0], *(1,) * (rank - 2))
    return value.reshape(shape) if isinstance(value, np.ndarray) else ops.reshape(value, shape)


def _check_channels(x: TensorType, low: int, **vectors: Any) -> None:
    require_float(x, "x")
    if x.rank < low:
        raise ShapeError(f"x must have rank {low} or more (batch, channels, ...), not {x}")
    for name, value in vectors.items():
        if value is not None and not shapes.shapes_equal(value.shape, (x.shape[1],)):
            raise ShapeError(f"{name} must be [{x.shape[1]}], one for each channel of {x}, not {value}")


# -- layer norm and RMS norm -----------------------------------------------------------------------
def _infer_last_axes(x: TensorType, weight: Any, normalized_shape: Any, bias: Any = None, **others: Any) -> TensorType:
    require_float(x, "x")
    shape = _as_tuple(normalized_shape)
    if not shape or not shapes.shapes_equal(x.shape[-len(shape) :], shape):
        text = ", ".join(map(str, shape))
        raise ShapeError(f"the last axes of x must be normalized_shape ({text}), x is {x}")
    for name, value in (("weight", weight), ("bias", bias)):
        if value is not None and not shapes.shapes_equal(value.shape, shape):
            raise ShapeError(f"{name} must have normalized_shape {shape}, not {value}")
    return x


def _as_tuple(value: Any) -> tuple[Any, ...]:
    if value is None:
        raise ArgumentError("normalized_shape must be an int or a tuple of ints")
    return value if isinstance(value, tuple) else (value,)


def _one_spelling(record: Op) -> None:
    """Store ``normalized_shape=8`` as ``(8,)``."""

    def canonical(**bound: Any) -> Any:
        shape = bound["normalized_shape"]
        return None if isinstance(shape, tuple) else (record, {**bound, "normalized_shape": (shape,)})

    record.canonical(canonical)


def _layer_norm(x: Any, weight: Any, bias: Any, normalized_shape: Any, eps: float) -> Any:
    axes = tuple(range(-len(_as_tuple(normalized_shape)), 0))
    return _affine(_standardize(x, axes, eps), weight, bias)


@composite(
    infer=_infer_last_axes,
    expansion=_layer_norm,
    samples=[
        "f32[B,8] f32[8] f32[8] normalized_shape=(8,) B=3; f32[2,3,4] f32[3,4] f32[3,4] normalized_shape=(3,4)",
        "f32[B,T,6] normalized_shape=6 B=2 T=3; f32[2,5] f32[5] normalized_shape=(5,) eps=0.1",
        "f32[3,40](90,110) None f32[40] normalized_shape=(40,); f64[3,5] f64[5] f64[5] normalized_shape=(5,)",
        "f16[3,8] f16[8] f16[8] normalized_shape=(8,); bf16[3,8] f32[8] f32[8] normalized_shape=(8,)",
        "f32[0,4] f32[4] normalized_shape=(4,); f32[3,1] normalized_shape=(1,)",
    ],
    bad=[
        Bad("f32[2,8]", normalized_shape=(4,), match="normalized_shape"),
        Bad("f32[2,8]", "f32[4]", normalized_shape=(8,), match="weight must"),
        Bad("i32[2,8]", normalized_shape=(8,), match="must be a float"),
    ],
)
def layer_norm(
    x: Tensor,
    weight: OptionalTensor = None,
    bias: OptionalTensor = None,
    *,
    normalized_shape: tuple[int, ...],
    eps: float = 1e-5,
) -> Tensor:
    """``(x - mean) / sqrt(var + eps) * weight + bias`` over the last axes, whose sizes are
    ``normalized_shape``."""
    axes = tuple(range(x.ndim - len(_as_tuple(normalized_shape)), x.ndim))
    return _affine(_standardize_reference(x, axes, eps), weight, bias)


def _epsilon(x: Any, eps: float | None) -> float:
    """``eps``, or for None the machine epsilon of the dtype of the computation, as in torch."""
    return float(np.finfo(dtypes.dtype(x.dtype).numpy).eps) if eps is None else eps


def _rms_norm(x: Any, weight: Any, normalized_shape: Any, eps: float | None) -> Any:
    axes = tuple(range(-len(_as_tuple(normalized_shape)), 0))
    power = ops.mean(ops.square(x), axis=axes, keepdims=True)
    return _affine(x * ops.rsqrt(power + _epsilon(x, eps)), weight, None)


@composite(
    infer=_infer_last_axes,
    expansion=_rms_norm,
    samples=[
        "f32[B,8] f32[8] normalized_shape=(8,) B=3; f32[2,3,4] f32[3,4] normalized_shape=(3,4) eps=1e-05",
        "f32[3,6] normalized_shape=6; f64[3,5] f64[5] normalized_shape=(5,); f16[3,8] f16[8] normalized_shape=(8,)",
        "bf16[3,8] f32[8] normalized_shape=(8,) eps=1e-06; f32[2,4](0,1e-05) normalized_shape=(4,)",
        "f32[0,4] f32[4] normalized_shape=(4,)",
    ],
    bad=[Bad("f32[2,8]", normalized_shape=(4,), match="normalized_shape")],
)
def rms_norm(
    x: Tensor, weight: OptionalTensor = None, *, normalized_shape: tuple[int, ...], eps: float | None = None
) -> Tensor:
    """``x / sqrt(mean(x**2) + eps) * weight`` over the last axes, whose sizes are
    ``normalized_shape``. If ``eps`` is None, it is the machine epsilon of the dtype of the computation."""
    axes = tuple(range(x.ndim - len(_as_tuple(normalized_shape)), x.ndim))
    power = (x * x).mean(axis=axes, keepdims=True)
    return _affine(x / np.sqrt(power + x.dtype.type(_epsilon(x, eps))), weight, None)


_one_spelling(layer_norm)
_one_spelling(rms_norm)


# -- batch, group and instance norm ----------------------------------------------------------------
def _infer_batch_norm(x: TensorType, running_mean: Any, running_var: Any, training: bool, **others: Any) -> TensorType:
    vectors = {name: others.get(name) for name in ("weight", "bias")}
    _check_channels(x, 2, running_mean=running_mean, running_var=running_var, **vectors)
    if not training and (running_mean is None or running_var is None):
        raise ArgumentError("running_mean and running_var are needed unless training=True")
    return x


def _batch_norm(
    x: Any, running_mean: Any, running_var: Any, weight: Any, bias: Any, training: bool, eps: float, **others: Any
) -> Any:
    weight, bias = _per_channel(weight, x.ndim), _per_channel(bias, x.ndim)
    if training:
        return _affine(_standardize(x, (0, *range(2, x.ndim)), eps), weight, bias)
    mean, var = _per_channel(running_mean, x.ndim), _per_channel(running_var, x.ndim)
    return _affine((x - mean) * ops.rsqrt(var + eps), weight, bias)


_POSITIVE = uniform("f32[4]", 0.2, 3)


@composite(
    infer=_infer_batch_norm,
    expansion=_batch_norm,
    samples=[
        S("f32[B,4,3,5]", "f32[4]", _POSITIVE, "f32[4]", "f32[4]", dims={"B": 2}),
        S("f32[B,4]", "f32[4]", _POSITIVE, dims={"B": 3}),
        S("f32[2,4,7]", "f32[4]", _POSITIVE, "f32[4]", eps=0.01),
        S("f32[B,4,3]", "f32[4]", _POSITIVE, "f32[4]", "f32[4]", training=True, dims={"B": 5}),
        "f64[2,3,4] f64[3] f64[3](0.2,3) None f64[3]; f16[2,3,4] f16[3] f16[3](0.2,3) f16[3] f16[3]",
        "bf16[2,3,4] f32[3] f32[3](0.2,3) f32[3] f32[3]",
        S("f32[0,4,2]", "f32[4]", _POSITIVE),
    ],
    bad=[
        Bad("f32[2,3]", "f32[4]", "f32[4]", match="running_mean must"),
        Bad("f32[3]", match="rank 2"),
        Bad("f32[2,3]", match="are needed"),
    ],
)
def batch_norm(
    x: Tensor,
    running_mean: OptionalTensor = None,
    running_var: OptionalTensor = None,
    weight: OptionalTensor = None,
    bias: OptionalTensor = None,
    training: bool = False,
    momentum: float | None = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """``(x - mean) / sqrt(var + eps) * weight + bias`` for each channel (axis 1), with the running
    statistics or, if ``training``, with those of ``x``. The running statistics are never updated
    (``nn.BatchNorm2d`` updates them); ``momentum`` is accepted for compatibility with torch and has no
    effect."""
    weight, bias = _per_channel(weight, x.ndim), _per_channel(bias, x.ndim)
    if training:
        return _affine(_standardize_reference(x, (0, *range(2, x.ndim)), eps), weight, bias)
    mean, var = _per_channel(running_mean, x.ndim), _per_channel(running_var, x.ndim)
    return _affine((x - mean) / np.sqrt(var + x.dtype.type(eps)), weight, bias)


def _infer_group_norm(x: TensorType, weight: Any, bias: Any, num_groups: int, eps: float) -> TensorType:
    _check_channels(x, 2, weight=weight, bias=bias)
    channels = x.shape[1]
    if type(num_groups) is not int or num_groups < 1:
        raise ArgumentError(f"num_groups must be a positive int, not {num_groups!r}")
    if not shapes.equal(shapes.normalize(shapes.floordiv(channels, num_groups) * num_groups), channels):
        raise ShapeError(f"the channels of {x} do not divide into {num_groups} groups")
    return x


def _group_norm(x: Any, weight: Any, bias: Any, num_groups: int, eps: float) -> Any:
    size, channels, *rest = x.shape
    grouped = ops.reshape(x, (size, num_groups, channels // num_groups, *rest))
    normal = ops.reshape(_standardize(grouped, tuple(range(2, x.ndim + 1)), eps), x.shape)
    return _affine(normal, _per_channel(weight, x.ndim), _per_channel(bias, x.ndim))


@composite(
    infer=_infer_group_norm,
    expansion=_group_norm,
    samples=[
        "f32[B,6,4,5] f32[6] f32[6] num_groups=3 B=2; f32[2,4] num_groups=2; f32[B,4,H] f32[4] num_groups=1 B=2 H=5",
        "f64[2,4,3] f64[4] f64[4] num_groups=2; f16[2,4,8] f16[4] num_groups=2; bf16[2,4,8] f32[4] f32[4] num_groups=4",
        "f32[0,4,2] num_groups=2",
    ],
    bad=[
        Bad("f32[2,6,4]", num_groups=4, match="do not divide"),
        Bad("f32[2,6,4]", "f32[4]", num_groups=3, match="weight must"),
    ],
)
def group_norm(
    x: Tensor, weight: OptionalTensor = None, bias: OptionalTensor = None, *, num_groups: int, eps: float = 1e-5
) -> Tensor:
    """``x`` with each of ``num_groups`` groups of channels (axis 1) of each sample normalized to mean 0 and
    variance 1, then ``* weight + bias`` for each channel."""
    grouped = x.reshape(x.shape[0], num_groups, x.shape[1] // num_groups, *x.shape[2:])
    normal = _standardize_reference(grouped, tuple(range(2, grouped.ndim)), eps).reshape(x.shape)
    return _affine(normal, _per_channel(weight, x.ndim), _per_channel(bias, x.ndim))


def _infer_instance_norm(
    x: TensorType, running_mean: Any, running_var: Any, use_input_stats: bool, **others: Any
) -> TensorType:
    vectors = {name: others.get(name) for name in ("weight", "bias")}
    _check_channels(x, 3, running_mean=running_mean, running_var=running_var, **vectors)
    if not use_input_stats and (running_mean is None or running_var is None):
        raise ArgumentError("running_mean and running_var are needed unless use_input_stats=True")
    return x


def _instance_norm(x: Any, weight: Any, bias: Any, use_input_stats: bool, eps: float, **others: Any) -> Any:
    if not use_input_stats:
        return _batch_norm(x, weight=weight, bias=bias, training=False, eps=eps, **others)
    normal = _standardize(x, tuple(range(2, x.ndim)), eps)
    return _affine(normal, _per_channel(weight, x.ndim), _per_channel(bias, x.ndim))


@composite(
    infer=_infer_instance_norm,
    expansion=_instance_norm,
    samples=[
        "f32[B,4,3,5] None None f32[4] f32[4] B=2; f32[2,4,7]",
        S("f32[2,4,7]", "f32[4]", _POSITIVE, "f32[4]", "f32[4]", use_input_stats=False),
        "f64[2,3,4]; f16[2,3,8]; bf16[2,3,8] None None f32[3]; f32[2,3,4] eps=0.1; f32[0,3,4]",
    ],
    bad=[Bad("f32[2,3]", match="rank 3"), Bad("f32[2,3,4]", use_input_stats=False, match="are needed")],
)
def instance_norm(
    x: Tensor,
    running_mean: OptionalTensor = None,
    running_var: OptionalTensor = None,
    weight: OptionalTensor = None,
    bias: OptionalTensor = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """``x`` with each channel of each sample normalized to mean 0 and variance 1 (or by the running
    statistics), then ``* weight + bias``. The running statistics are never updated; ``momentum`` has no
    effect."""
    if use_input_stats:
        normal = _standardize_reference(x, tuple(range(2, x.ndim)), eps)
    else:
        mean, var = _per_channel(running_mean, x.ndim), _per_channel(running_var, x.ndim)
        normal = (x - mean) / np.sqrt(var + x.dtype.type(eps))
    return _affine(normal, _per_channel(weight, x.ndim), _per_channel(bias, x.ndim))
