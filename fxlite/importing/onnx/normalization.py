"""ONNX's normalizations, softmaxes and losses."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxlite import ops
from fxlite.importing.narrow import cast
from fxlite.importing.onnx import proto
from fxlite.importing.onnx.registry import MICROSOFT, Call, axis_of, onnx_op, rank, shape


def _flat_before_13(n: Call, x: Any, function: Callable[..., Any]) -> Any:
    """Before opset 13 the axes from ``axis`` on are joined to one."""
    axis = axis_of(n["axis"], rank(x))
    if n.opset >= 13 or axis == rank(x) - 1:
        return function(x, axis=axis)
    flat = x.reshape((math.prod(shape(x)[:axis]), math.prod(shape(x)[axis:])))
    return function(flat, axis=1).reshape(shape(x))


@onnx_op("Softmax")
def softmax(n: Call, x: Any) -> Any:
    return _flat_before_13(n, x, ops.softmax)


@onnx_op("LogSoftmax")
def log_softmax(n: Call, x: Any) -> Any:
    return _flat_before_13(n, x, ops.log_softmax)


@onnx_op("BatchNormalization", traced=True)
def batch_normalization(n: Call, x: Any, scale: Any, bias: Any, mean: Any, var: Any) -> Any:
    """In training mode the statistics are those of the batch, and the new running ones are additional results."""
    kind = x.dtype
    scale, bias, mean_, var_ = (cast(v, kind) for v in (scale, bias, mean, var))
    if not n["training_mode"]:
        if n["spatial"] == 0:
            return (x - mean_) / np.sqrt(var_ + n["epsilon"]) * scale + bias
        return ops.batch_norm(x, mean_, var_, scale, bias, eps=n["epsilon"])
    axes = (0, *range(2, rank(x)))
    own_mean, own_var, keep = np.mean(x, axis=axes), np.var(x, axis=axes), n["momentum"]
    found = ops.batch_norm(x, own_mean, own_var, scale, bias, eps=n["epsilon"])
    return (
        found,
        cast(mean * keep + own_mean * (1 - keep), mean.dtype),
        cast(var * keep + own_var * (1 - keep), var.dtype),
    )


@onnx_op("InstanceNormalization")
def instance_normalization(n: Call, x: Any, scale: Any, bias: Any) -> Any:
    return ops.instance_norm(*n.proxies((x,)), None, None, scale, bias, eps=n["epsilon"])


@onnx_op("GroupNormalization", traced=True)
def group_normalization(n: Call, x: Any, scale: Any, bias: Any) -> Any:
    """There is a scale for each channel; before opset 21, for each group."""
    groups, channels = n["num_groups"], shape(x)[1]
    if n.opset < 21 and groups != channels:
        scale, bias = np.repeat(scale, channels // groups), np.repeat(bias, channels // groups)
    return ops.group_norm(x, scale, bias, num_groups=groups, eps=n["epsilon"])


def _computed(n: Call, x: Any) -> np.dtype[Any]:
    """The type in which statistics are computed: float32 for half types."""
    number = n["stash_type"]
    stash = np.dtype(x.dtype) if number is None else proto.element(number, "stash_type")
    return stash if np.dtype(x.dtype).itemsize == 2 else np.dtype(x.dtype)


@onnx_op("LayerNormalization")
def layer_normalization(n: Call, x: Any, scale: Any, bias: Any = None) -> Any:
    axis = axis_of(n["axis"], rank(x))
    (x,) = n.proxies((x,))
    axes, sizes = tuple(range(axis, rank(x))), shape(x)[axis:]
    kind, wide = x.dtype, _computed(n, x)
    fits = all(v is None or _has_shape(v, sizes) for v in (scale, bias))
    x = cast(x, wide)
    if fits and kind == wide:
        found = ops.layer_norm(x, scale, bias, normalized_shape=sizes, eps=n["epsilon"])
    else:
        found = cast(ops.layer_norm(x, normalized_shape=sizes, eps=n["epsilon"]), kind) * scale
        found = found if bias is None else found + bias
    if not (n.wants(1) or n.wants(2)):
        return found
    mean = np.mean(x, axis=axes, keepdims=True)
    return found, mean, 1 / np.sqrt(np.var(x, axis=axes, keepdims=True) + n["epsilon"])


def _has_shape(value: Any, sizes: tuple[Any, ...]) -> bool:
    known = shape(value)
    return len(known) == len(sizes) and all(type(a) is type(b) and str(a) == str(b) for a, b in zip(known, sizes))


@onnx_op("RMSNormalization")
@onnx_op("SimplifiedLayerNormalization", domain=MICROSOFT)
@onnx_op("SimplifiedLayerNormalization")
def rms_normalization(n: Call, x: Any, scale: Any) -> Any:
    axis = axis_of(-1 if n["axis"] is None else n["axis"], rank(x))
    (x,) = n.proxies((x,))
    kind, wide, sizes = x.dtype, _computed(n, x), shape(x)[axis:]
    eps = 1e-5 if n["epsilon"] is None else n["epsilon"]
    if kind == wide and _has_shape(scale, sizes) and scale.dtype == kind:
        return ops.rms_norm(x, scale, normalized_shape=sizes, eps=eps)
    return cast(ops.rms_norm(cast(x, wide), normalized_shape=sizes, eps=eps), kind) * scale


@onnx_op("MeanVarianceNormalization")
def mean_variance_normalization(n: Call, x: Any) -> Any:
    axes = tuple(axis_of(a, rank(x)) for a in n["axes"])
    centred = x - np.mean(x, axis=axes, keepdims=True)
    return centred / (np.sqrt(np.mean(centred * centred, axis=axes, keepdims=True)) + 1e-9)


@onnx_op("LpNormalization")
def lp_normalization(n: Call, x: Any) -> Any:
    """A row of zeros stays a row of zeros."""
    axis = axis_of(n["axis"], rank(x))
    if n["p"] == 1:
        norm = np.sum(np.abs(x), axis=axis, keepdims=True)
    else:
        norm = np.sqrt(np.sum(x * x, axis=axis, keepdims=True))
    return x / np.where(np.equal(norm, 0), cast(np.ones_like(norm), x.dtype), norm)


@onnx_op("LRN", traced=True)
def lrn(n: Call, x: Any) -> Any:
    """Sums of squares over windows of channels, computed from slices of a padded axis."""
    size, channels = n["size"], shape(x)[1]
    low, high = (size - 1) // 2, size - 1 - (size - 1) // 2
    squares = np.pad(x * x, ((0, 0), (low, high), *[(0, 0)] * (rank(x) - 2)))
    total = squares[:, 0:channels]
    for start in range(1, size):
        total = total + squares[:, start : start + channels]
    return x / (n["bias"] + n["alpha"] / size * total) ** n["beta"]


# -- losses ----------------------------------------------------------------------------------------
def _loss(n: Call, log_probabilities: Any, target: Any, weight: Any) -> Any:
    """The negative log-likelihoods of the classes along axis 1; targets with the ignored index are ignored."""
    ignored, reduction = n["ignore_index"], n["reduction"]
    kind = log_probabilities.dtype
    kept = np.ones_like(target, dtype=bool) if ignored is None else np.not_equal(target, ignored)
    safe = np.where(kept, target, cast(np.zeros_like(target), target.dtype))
    index = np.expand_dims(safe, 1)
    own = np.squeeze(np.take_along_axis(log_probabilities, index, axis=1), 1)
    factor = cast(kept, kind)
    if weight is not None:
        factor = np.take(weight, safe, axis=0) * factor
    loss = -own * factor
    if reduction == "none":
        return loss
    total = np.sum(loss)
    return (
        total
        if reduction == "sum"
        else total / np.sum(factor)
        if (weight is not None or ignored is not None)
        else (np.mean(loss))
    )


@onnx_op("NegativeLogLikelihoodLoss")
def negative_log_likelihood_loss(n: Call, x: Any, target: Any, weight: Any = None) -> Any:
    return _loss(n, *n.proxies((x, target, weight)))


@onnx_op("SoftmaxCrossEntropyLoss", traced=True)
def softmax_cross_entropy_loss(n: Call, x: Any, target: Any, weight: Any = None) -> Any:
    probabilities = ops.log_softmax(x, axis=1)
    loss = _loss(n, probabilities, target, weight)
    return (loss, probabilities) if n.wants(1) else loss


# -- ops of com.microsoft --------------------------------------------------------------------------
def _normalized(n: Call, x: Any, scale: Any, bias: Any, is_rms: bool, usual: float = 1e-12) -> Any:
    """``usual``: the epsilon of the op if a node has none."""
    sizes, eps = shape(x)[-1:], usual if n["epsilon"] is None else n["epsilon"]
    if is_rms:
        return ops.rms_norm(x, scale, normalized_shape=sizes, eps=eps)
    return ops.layer_norm(x, scale, bias, normalized_shape=sizes, eps=eps)


@onnx_op("LayerNormalization", domain=MICROSOFT, traced=True)
def layer_normalization_microsoft(n: Call, x: Any, scale: Any, bias: Any = None) -> Any:
    return _normalized(n, x, scale, bias, False, 1e-5)


def _skipped(n: Call, values: tuple[Any, ...], scale: Any, beta: Any, is_rms: bool) -> Any:
    whole = values[0]
    for value in values[1:]:
        whole = whole if value is None else whole + value
    found = _normalized(n, whole, scale, beta, is_rms)
    return (found, None, None, whole) if n.wants(3) else found


@onnx_op("SkipLayerNormalization", domain=MICROSOFT, traced=True)
def skip_layer_normalization(n: Call, x: Any, skip: Any, scale: Any, beta: Any = None, bias: Any = None) -> Any:
    return _skipped(n, (x, skip, bias), scale, beta, False)


@onnx_op("SkipSimplifiedLayerNormalization", domain=MICROSOFT, traced=True)
def skip_simplified_layer_normalization(n: Call, x: Any, skip: Any, scale: Any, bias: Any = None) -> Any:
    return _skipped(n, (x, skip, bias), scale, None, True)


@onnx_op("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(
    n: Call,
    ids: Any,
    segments: Any,
    words: Any,
    places: Any,
    kinds: Any,
    scale: Any,
    beta: Any,
    mask: Any = None,
    positions: Any = None,
) -> Any:
    """The second result is the number of elements in each row for which the mask is set."""
    ids, segments, words, places, kinds = n.proxies((ids, segments, words, places, kinds))
    scale, beta, mask, positions = n.proxies((scale, beta, mask, positions))
    at = places[: shape(ids)[1]] if positions is None else ops.embedding(positions, places)
    whole = ops.embedding(ids, words) + at
    if segments is not None:
        whole = whole + ops.embedding(segments, kinds)
    found = _normalized(n, whole, scale, beta, False)
    counted = np.zeros_like(ids[:, 0]) if mask is None else cast(np.sum(mask, axis=1), np.int32)
    return found, counted, whole
