"""Losses, and dropout.

All losses take predictions ``x`` first and are reduced to a scalar by ``reduction="mean"`` or ``"sum"``,
or not at all (``"none"``). The class axis is axis 1 (axis 0 of an unbatched ``x``), as in torch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, CodegenError, DTypeError, ShapeError
from fxlite.base.state import generator
from fxlite.ops.composite import composite, number
from fxlite.ops.op import OptionalTensor, Tensor, broadcast_shapes, op, ops, require_float
from fxlite.ops.samples import Bad, S, uniform
from fxlite.types import shapes
from fxlite.types.tensor_type import TensorType


def _reduced(element: TensorType, reduction: str) -> TensorType:
    if reduction not in ("mean", "sum", "none"):
        raise ArgumentError(f'reduction must be "mean", "sum" or "none", not {reduction!r}')
    return element if reduction == "none" else element.with_shape(())


def _reduce(values: Any, reduction: str) -> Any:
    return values if reduction == "none" else {"mean": ops.mean, "sum": ops.sum}[reduction](values)


def _reduce_reference(values: Any, reduction: str) -> Any:
    if reduction == "none":
        return values
    return values.mean() if reduction == "mean" else values.sum()


def _same_shape(x: TensorType, target: TensorType) -> TensorType:
    require_float(x, "x")
    if not shapes.shapes_equal(x.shape, target.shape):
        raise ShapeError(f"x {x} and target {target} must have the same shape")
    return x


# -- distances -------------------------------------------------------------------------------------
def _infer_distance(x: TensorType, target: TensorType, reduction: str = "mean") -> TensorType:
    return _reduced(_same_shape(x, target), reduction)


_PAIRS = [
    "f32[B,4] f32[B,4] B=3; f32[3,4] f32[3,4] reduction='sum'; f32[3,4] f32[3,4] reduction='none'; f64[5] f64[5]",
    "f16[4] f16[4]; bf16[2,3] bf16[2,3]",
]
_PAIRS_BAD = [
    Bad("f32[3]", "f32[4]", match="same shape"),
    Bad("f32[3]", "f32[3]", reduction="max", match="reduction must"),
]


def _mse(x: Any, target: Any, reduction: str = "mean") -> Any:
    return _reduce(ops.square(x - target), reduction)


@composite(infer=_infer_distance, expansion=_mse, samples=_PAIRS, bad=_PAIRS_BAD)
def mse_loss(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """``(x - target)**2``, reduced."""
    return _reduce_reference((x - target) ** 2, reduction)


def _l1(x: Any, target: Any, reduction: str = "mean") -> Any:
    return _reduce(ops.abs(x - target), reduction)


@composite(infer=_infer_distance, expansion=_l1, samples=_PAIRS, bad=_PAIRS_BAD)
def l1_loss(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """``|x - target|``, reduced."""
    return _reduce_reference(np.abs(x - target), reduction)


def _infer_bce(
    x: TensorType, target: TensorType, weight: Any = None, pos_weight: Any = None, reduction: str = "mean"
) -> TensorType:
    element = _same_shape(x, target)
    for name, value in (("weight", weight), ("pos_weight", pos_weight)):
        if value is not None and not shapes.shapes_equal(broadcast_shapes(x.shape, value.shape), x.shape):
            raise ShapeError(f"{name} {value} does not broadcast to x {x}")
    return _reduced(element, reduction)


def _bce(x: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: str = "mean") -> Any:
    # -log sigmoid(x) = log(1 + exp(-|x|)) + max(-x, 0)
    negative_log = ops.log1p(ops.exp(-ops.abs(x))) + ops.relu(-x)
    if pos_weight is not None:
        negative_log = negative_log * (target * (pos_weight - 1.0) + 1.0)
    values = (1.0 - target) * x + negative_log
    return _reduce(values if weight is None else values * weight, reduction)


@composite(
    infer=_infer_bce,
    expansion=_bce,
    samples=[
        "f32[B,4] f32[B,4](0,1) B=3; f32[3,4](-90,90) f32[3,4](0,1) f32[4] reduction='sum'",
        "f32[3,4] f32[3,4](0,1) None f32[4](1,3) reduction='none'; f64[5] f64[5](0,1); f16[5] f16[5](0,1)",
        "bf16[5] bf16[5](0,1)",
    ],
    bad=[*_PAIRS_BAD, Bad("f32[3]", "f32[3]", "f32[2,3]", match="weight")],
)
def binary_cross_entropy_with_logits(
    x: Tensor, target: Tensor, weight: OptionalTensor = None, pos_weight: OptionalTensor = None, reduction: str = "mean"
) -> Tensor:
    """``-weight * (pos_weight * target * log(s) + (1 - target) * log(1 - s))`` with s = sigmoid(x),
    reduced; also accurate for large ``|x|``."""
    factor = 1 if pos_weight is None else 1 + target * (pos_weight - 1)
    values = (1 - target) * x + factor * np.logaddexp(0, -x)
    return _reduce_reference(values if weight is None else values * weight, reduction)


# -- classes ---------------------------------------------------------------------------------------
def _class_shape(x: TensorType) -> tuple[int, tuple[Any, ...]]:
    """(axis of the classes, shape without it)."""
    require_float(x, "x")
    if x.rank == 0:
        raise ShapeError("x must be [classes] or [batch, classes, ...], not a scalar")
    axis = 1 if x.rank > 1 else 0
    return axis, x.shape[:axis] + x.shape[axis + 1 :]


def _infer_nll(
    x: TensorType, target: TensorType, weight: Any = None, reduction: str = "mean", **others: Any
) -> TensorType:
    axis, shape = _class_shape(x)
    if not target.dtype.is_integer:
        raise DTypeError(f"target must hold integer class numbers, not {target}")
    if not shapes.shapes_equal(target.shape, shape):
        text = ", ".join(map(str, shape))
        raise ShapeError(f"target must be [{text}] (x {x} without its class axis {axis}), not {target}")
    _check_weight(x, axis, weight)
    return _reduced(x.with_shape(shape), reduction)


def _check_weight(x: TensorType, axis: int, weight: Any) -> None:
    if weight is not None and not shapes.shapes_equal(weight.shape, (x.shape[axis],)):
        raise ShapeError(f"weight must be [{x.shape[axis]}], one for each class, not {weight}")


def _nll(
    x: Any,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    spread: Any = None,
    label_smoothing: float = 0.0,
) -> Any:
    """The loss; ``spread`` is the smoothing term of each element before masking."""
    axis = 1 if x.ndim > 1 else 0
    counted = target != ignore_index
    index = ops.where(counted, target, 0)
    picked = ops.squeeze(ops.gather(x, ops.unsqueeze(index, axis), axis=axis), axis)
    factor = ops.cast(counted, x.dtype)
    if weight is not None:
        factor = factor * ops.take(weight, index, axis=0)
    values = ops.where(counted, -picked * factor, 0.0)
    if spread is not None:
        values = values * (1 - label_smoothing) + ops.where(counted, spread, 0.0)
    if reduction == "mean":
        return ops.sum(values) / ops.sum(factor)
    return _reduce(values, reduction)


def _nll_reference(
    x: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean", smoothing: float = 0.0
) -> Any:
    axis = 1 if x.ndim > 1 else 0
    moved = np.moveaxis(x, axis, -1)
    classes = moved.shape[-1]
    counted = target != ignore_index
    scale = np.ones(classes, x.dtype) if weight is None else weight
    values = np.zeros(target.shape, x.dtype)
    chosen = target[counted]
    rows = moved[counted]
    spread = -(rows * scale).sum(axis=-1) * (smoothing / classes) if smoothing else 0.0
    values[counted] = -(1 - smoothing) * rows[np.arange(len(rows)), chosen] * scale[chosen] + spread
    if reduction == "mean":
        return values.sum() / scale[chosen].sum()
    return _reduce_reference(values, reduction)


_TARGET = uniform("i64[B]", 0, 5)
_CLASS_SAMPLES = [
    S("f32[B,5]", _TARGET, dims={"B": 6}),
    S("f32[B,5]", _TARGET, reduction="sum", dims={"B": 6}),
    "f32[6,5] i64[6](0,5) f32[5](0.5,2) ignore_index=2",
    "f32[2,5,3,4] i64[2,3,4](0,5) f32[5](0.5,2) ignore_index=0 reduction='none'; f64[4,3] i32[4](0,3)",
    "f32[5] i64[](0,5); f16[4,3] i64[4](0,3); bf16[4,3] i64[4](0,3); f32[2,3] i64[2](1,2) ignore_index=1",
]
_CLASS_BAD = [
    Bad("f32[4,3]", "i64[3]", match="target must be [4]"),
    Bad("f32[4,3]", "i64[4]", "f32[4]", match="one for each class"),
    Bad("f32[4,3]", "i64[4]", reduction="max", match="reduction must"),
]


@composite(
    looks_up=("target", "x", 1),
    infer=_infer_nll,
    expansion=_nll,
    samples=_CLASS_SAMPLES,
    bad=[*_CLASS_BAD, Bad("f32[4,3]", "f32[4]", match="integer class")],
)
def nll_loss(
    x: Tensor, target: Tensor, weight: OptionalTensor = None, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    """``-weight[target] * x[target]`` for log-probabilities ``x`` [N, C, ...] and class numbers ``target``
    [N, ...]. ``"mean"`` divides by the sum of the weights of all targets. Targets equal to
    ``ignore_index`` are ignored."""
    return _nll_reference(x, target, weight, ignore_index, reduction)


def _infer_cross_entropy(
    x: TensorType, target: TensorType, weight: Any, reduction: str, label_smoothing: float, **others: Any
) -> TensorType:
    if not 0 <= label_smoothing <= 1:
        raise ArgumentError(f"label_smoothing must be in [0, 1], not {label_smoothing}")
    if not target.dtype.is_float:
        return _infer_nll(x, target, weight, reduction)
    axis, shape = _class_shape(x)
    if not shapes.shapes_equal(x.shape, target.shape):
        raise ShapeError(f"target {target} must hold class numbers, or probabilities with the shape of x {x}")
    _check_weight(x, axis, weight)
    return _reduced(x.with_shape(shape), reduction)


def _along(weight: Any, x: Any) -> Any:
    """Class weights [C] in a shape that broadcasts along the class axis of ``x``."""
    if weight is None or x.ndim <= 2:
        return weight
    return ops.reshape(weight, (x.shape[1], *(1,) * (x.ndim - 2)))


def _cross_entropy(x: Any, target: Any, weight: Any, ignore_index: int, reduction: str, label_smoothing: float) -> Any:
    axis = 1 if x.ndim > 1 else 0
    logs = ops.log_softmax(x, axis=axis)
    if np.dtype(target.dtype).kind in "biu":
        if not label_smoothing:
            return _nll(logs, target, weight, ignore_index, reduction)
        weighted = logs if weight is None else logs * _along(weight, x)
        spread = ops.mean(weighted, axis=axis) * -label_smoothing
        return _nll(logs, target, weight, ignore_index, reduction, spread, label_smoothing)
    if label_smoothing:
        share = label_smoothing / number(x.shape[axis], x.dtype)
        target = target * (1 - label_smoothing) + share
    products = logs * target if weight is None else logs * target * _along(weight, x)
    values = -ops.sum(products, axis=axis)
    return _reduce(values, reduction)


@composite(
    looks_up=("target", "x", 1),
    infer=_infer_cross_entropy,
    expansion=_cross_entropy,
    samples=[
        *_CLASS_SAMPLES,
        "f32[6,5] i64[6](0,5) label_smoothing=0.1",
        "f32[2,5,3] i64[2,3](0,5) f32[5](0.5,2) ignore_index=1 label_smoothing=0.2; f32[B,5] f32[B,5](0,1) B=3",
        "f32[2,5,3] f32[2,5,3](0,1) f32[5](0.5,2) reduction='none' label_smoothing=0.2; f32[3,4](-90,90) i64[3](0,4)",
    ],
    bad=[
        *_CLASS_BAD,
        Bad("f32[4,3]", "f32[4]", match="probabilities"),
        Bad("f32[4,3]", "i64[4]", label_smoothing=2.0, match="label_smoothing"),
    ],
)
def cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: OptionalTensor = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """The cross entropy of softmax(x) and ``target``: x [N, C, ...] (or [C]), and class numbers [N, ...] or
    probabilities [N, C, ...] as the target.

    ``label_smoothing`` e mixes the target with e times the uniform distribution. ``"mean"`` divides by the
    sum of the weights of all targets for class numbers, and by the number of samples for probabilities.
    Class numbers equal to ``ignore_index`` are ignored."""
    axis = 1 if x.ndim > 1 else 0
    wide = x.astype(np.float64)
    wide = wide - wide.max(axis=axis, keepdims=True)
    logs = wide - np.log(np.exp(wide).sum(axis=axis, keepdims=True))
    if target.dtype.kind in "biu":
        return _nll_reference(logs, target, weight, ignore_index, reduction, label_smoothing)
    smooth = (1 - label_smoothing) * target + label_smoothing / x.shape[axis]
    terms = np.moveaxis(-logs * smooth, axis, -1) * (1 if weight is None else weight)
    return _reduce_reference(terms.sum(axis=-1), reduction)


# -- dropout ---------------------------------------------------------------------------------------
@op(
    "random",
    shares_memory="perhaps",
    samples=["f32[B,4] p=0.0 B=3; f32[3,4] p=0.5 training=False; bf16[4] p=0.0; f64[0,3] p=0.0"],
    bad=[Bad("f32[3]", p=1.5, match="between 0 and 1")],
)
def dropout(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """``x`` with each element set to 0 with probability ``p``, else divided by ``1 - p``; unchanged unless
    ``training``. Random numbers come from the generator that ``nn.init.manual_seed`` seeds."""
    array = np.asarray(x)
    _check_probability(p)
    if not training or p == 0:
        return array
    scale = 0.0 if p == 1 else 1 / (1 - p)
    keep = generator().random(array.shape) >= p
    return (array * (keep * np.float32(scale)).astype(array.dtype)).astype(array.dtype)


def _check_probability(p: Any) -> None:
    if not 0 <= p <= 1:
        raise ArgumentError(f"the probability p must be between 0 and 1, not {p}")


@dropout.infer
def _(x: TensorType, p: float, training: bool) -> TensorType:
    _check_probability(p)
    require_float(x, "x")
    return x


@dropout.expansion
def _(x: Any, p: float, training: bool) -> Any:
    if not training or p == 0:
        return x
    raise CodegenError("dropout in training mode has no compiled form; call model.eval() before tracing")
