"""Functions with torch.nn.functional's names and argument orders.

Every function takes arrays or traced values and returns a new value. ``inplace=`` is accepted for
compatibility with torch and ignored: nothing is ever written in place. torch's deprecated
``size_average`` and ``reduce`` do not exist; arguments that follow them in torch are keyword-only here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from inspect import Parameter, Signature
from typing import Any

import numpy as np

from fxlite import ops
from fxlite.base.checked import checked, public_names
from fxlite.base.errors import ArgumentError, ShapeError
from fxlite.base.state import is_traced
from fxlite.ops.composite import created
from fxlite.ops.image.resize import factors_of, target_sizes
from fxlite.ops.image.spatial import per_axis
from fxlite.ops.op import Op, lookup, normalize_axis
from fxlite.types import shapes

Tensor = Any


def _of(record: Op, inplace: bool = False) -> Callable[..., Tensor]:
    """A function that calls an op, with the op's parameters and, for some, torch's ``inplace``."""
    parameters = [*record.signature.parameters.values()]
    most = len(parameters)
    if inplace:
        parameters.append(Parameter("inplace", Parameter.POSITIONAL_OR_KEYWORD, default=False))

    def call(*args: Any, **kwargs: Any) -> Tensor:
        if inplace:
            kwargs.pop("inplace", None)
            args = args[:most] if len(args) == most + 1 else args
        return record(*args, **kwargs)

    call.__name__ = call.__qualname__ = record.name
    call.__doc__ = record.__doc__
    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return call


# -- activations -----------------------------------------------------------------------------------
relu = _of(ops.relu, inplace=True)
relu6 = _of(ops.relu6, inplace=True)
elu = _of(ops.elu, inplace=True)
selu = _of(ops.selu, inplace=True)
celu = _of(ops.celu, inplace=True)
leaky_relu = _of(ops.leaky_relu, inplace=True)
silu = _of(ops.silu, inplace=True)
mish = _of(ops.mish, inplace=True)
hardswish = _of(ops.hardswish, inplace=True)
hardsigmoid = _of(ops.hardsigmoid, inplace=True)
hardtanh = _of(ops.hardtanh, inplace=True)
threshold = _of(ops.threshold, inplace=True)
prelu = _of(ops.prelu)
gelu = _of(ops.gelu)
softplus = _of(ops.softplus)
hardshrink = _of(ops.hardshrink)
softshrink = _of(ops.softshrink)
softsign = _of(ops.softsign)
logsigmoid = _of(ops.logsigmoid)
tanhshrink = _of(ops.tanhshrink)
tanh = _of(ops.tanh)
sigmoid = _of(ops.sigmoid)


def glu(x: Tensor, dim: int = -1) -> Tensor:
    """``a * sigmoid(b)``, where a and b are the halves of ``x`` along ``dim``."""
    return ops.glu(x, axis=dim)


def _axis(dim: int | None, axis: int | None, name: str) -> int:
    if dim is not None and axis is not None:
        raise ArgumentError(f"{name}: dim= and axis= are two names of one argument; give one")
    found = axis if dim is None else dim
    if found is None:
        raise ArgumentError(f"{name} needs dim=, the axis that sums to 1 (torch guesses one)")
    return found


def _cast(x: Tensor, dtype: Any) -> Tensor:
    return x if dtype is None else ops.cast(x, dtype)


def softmax(x: Tensor, dim: int | None = None, dtype: Any = None, *, axis: int | None = None) -> Tensor:
    """``exp(x) / sum(exp(x))`` along ``dim``. Raises ArgumentError without ``dim``."""
    return ops.softmax(_cast(x, dtype), axis=_axis(dim, axis, "softmax"))


def softmin(x: Tensor, dim: int | None = None, dtype: Any = None, *, axis: int | None = None) -> Tensor:
    """``softmax(-x)`` along ``dim``. Raises ArgumentError without ``dim``."""
    return ops.softmax(ops.neg(_cast(x, dtype)), axis=_axis(dim, axis, "softmin"))


def log_softmax(x: Tensor, dim: int | None = None, dtype: Any = None, *, axis: int | None = None) -> Tensor:
    """``log(softmax(x))`` along ``dim``. Raises ArgumentError without ``dim``."""
    return ops.log_softmax(_cast(x, dtype), axis=_axis(dim, axis, "log_softmax"))


# -- linear and convolution ------------------------------------------------------------------------
linear = _of(ops.linear)
conv1d = _of(ops.conv1d)
conv2d = _of(ops.conv2d)
conv3d = _of(ops.conv3d)
conv_transpose1d = _of(ops.conv_transpose1d)
conv_transpose2d = _of(ops.conv_transpose2d)
conv_transpose3d = _of(ops.conv_transpose3d)


def bilinear(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor = None) -> Tensor:
    """``out[o] = sum over i, j of x[i] * weight[o, i, j] * y[j] + bias[o]``."""
    result = ops.einsum((x, weight, y), "...i,oij,...j->...o")
    return result if bias is None else result + bias


# -- normalization ---------------------------------------------------------------------------------
instance_norm = _of(ops.instance_norm)


def batch_norm(
    x: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor = None,
    bias: Tensor = None,
    training: bool = False,
    momentum: float | None = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize each channel of x. Running statistics are never updated here; ``nn.BatchNorm2d`` updates
    them."""
    return ops.batch_norm(x, running_mean, running_var, weight, bias, training=training, eps=eps)


def layer_norm(
    x: Tensor, normalized_shape: Any, weight: Tensor = None, bias: Tensor = None, eps: float = 1e-5
) -> Tensor:
    """Normalize over the last axes, whose sizes are ``normalized_shape``."""
    return ops.layer_norm(x, weight, bias, normalized_shape=shapes.as_tuple(normalized_shape), eps=eps)


def rms_norm(x: Tensor, normalized_shape: Any, weight: Tensor = None, eps: float | None = None) -> Tensor:
    """Divide by the root mean square of the last axes, whose sizes are ``normalized_shape``."""
    return ops.rms_norm(x, weight, normalized_shape=shapes.as_tuple(normalized_shape), eps=eps)


def group_norm(x: Tensor, num_groups: int, weight: Tensor = None, bias: Tensor = None, eps: float = 1e-5) -> Tensor:
    """Normalize each group of channels of each sample."""
    return ops.group_norm(x, weight, bias, num_groups=num_groups, eps=eps)


def normalize(x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """``x`` divided by its p-norm along ``dim``."""
    return ops.normalize(x, p=p, axis=dim, eps=eps)


def cosine_similarity(x: Tensor, y: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between ``x`` and ``y`` along ``dim``."""
    return ops.cosine_similarity(x, y, axis=dim, eps=eps)


# -- losses ----------------------------------------------------------------------------------------
def cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """The cross entropy of softmax(x), for x [N, C, ...], and a target of class numbers [N, ...] or
    probabilities [N, C, ...]."""
    return ops.cross_entropy(
        x, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )


def nll_loss(
    x: Tensor, target: Tensor, weight: Tensor = None, *, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    """``-x[target]`` for log-probabilities x [N, C, ...] and class numbers [N, ...]."""
    return ops.nll_loss(x, target, weight, ignore_index=ignore_index, reduction=reduction)


def mse_loss(x: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """``(x - target)**2``, reduced."""
    return ops.mse_loss(x, target, reduction=reduction)


def l1_loss(x: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """``|x - target|``, reduced."""
    return ops.l1_loss(x, target, reduction=reduction)


def binary_cross_entropy_with_logits(
    x: Tensor, target: Tensor, weight: Tensor = None, *, reduction: str = "mean", pos_weight: Tensor = None
) -> Tensor:
    """The cross entropy of sigmoid(x) and ``target``."""
    return ops.binary_cross_entropy_with_logits(x, target, weight, pos_weight, reduction=reduction)


# -- dropout ---------------------------------------------------------------------------------------
def _probability(p: float) -> float:
    if not 0 <= p <= 1:
        raise ArgumentError(f"the dropout probability must be between 0 and 1, not {p}")
    return p


def dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Set each element to 0 with probability ``p``, else scale it by ``1 / (1 - p)``. Unless
    ``training``, returns ``x`` itself, and a trace records no node."""
    return ops.dropout(x, p=p) if training and _probability(p) else x


def dropout1d(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Set whole channels of x [N, C, L] or [C, L] to 0, each with probability ``p``."""
    return _channels(x, p, training, 1)


def dropout2d(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Set whole channels of x [N, C, H, W] or [C, H, W] to 0, each with probability ``p``."""
    return _channels(x, p, training, 2)


def _channels(x: Tensor, p: float, training: bool, spatial: int) -> Tensor:
    if not (training and _probability(p)):
        return x
    shape = (*x.shape[:-spatial], *(1,) * spatial)
    return x * ops.dropout(created(x, ops.ones, shape, dtype=x.dtype), p=p)


# -- attention and lookups -------------------------------------------------------------------------
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """``softmax(query @ key.T * scale + mask) @ value`` over [..., L, E], [..., S, E], [..., S, V].

    A bool mask is True where attention is allowed. ``dropout_p`` drops out weights; a trace then records
    softmax, dropout and matmul instead of one op."""
    if not _probability(dropout_p):
        return ops.scaled_dot_product_attention(query, key, value, attn_mask, is_causal=is_causal, scale=scale)
    if is_causal:
        attn_mask = causal_mask(query, key)
    weights = attention_weights(query, key, attn_mask, scale)
    return ops.matmul(ops.dropout(weights, p=dropout_p), value)


def causal_mask(query: Tensor, key: Tensor) -> Tensor:
    """A mask [L, S] that is True where the position of the key is not after that of the query."""
    return ops.tril(created(query, ops.ones, (query.shape[-2], key.shape[-2]), dtype="bool"))


def attention_weights(query: Tensor, key: Tensor, attn_mask: Tensor = None, scale: float | None = None) -> Tensor:
    """``softmax(query @ key.T * scale + mask)``: [..., L, E], [..., S, E] -> [..., L, S]."""
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    rank = key.ndim
    transposed = ops.permute(key, (*range(rank - 2), rank - 1, rank - 2))
    scores = ops.matmul(query * factor, transposed)
    if attn_mask is not None:
        keep = np.dtype(attn_mask.dtype) == np.bool_
        scores = ops.where(attn_mask, scores, -math.inf) if keep else scores + attn_mask
    return ops.softmax(scores, axis=-1)


def embedding(x: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """The rows of ``weight`` [N, D] at the integers x [...], as [..., D]. ``padding_idx`` only concerns
    training and has no effect."""
    return ops.embedding(x, weight)


def one_hot(x: Tensor, num_classes: int = -1) -> Tensor:
    """1 at position ``x`` along a new last axis of size ``num_classes``, else 0 (int64). ``num_classes``
    must be given, because the size would otherwise depend on values."""
    if num_classes < 0:
        raise ArgumentError("one_hot needs num_classes; it cannot depend on the values of x")
    return ops.one_hot(x, num_classes=num_classes)


# -- shapes: what moves, pools and resizes ---------------------------------------------------------
def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
    """The ``k`` largest elements of x along ``dim`` in descending order or, if ``largest`` is False, the
    smallest in ascending order, and their positions (this is torch.topk, which torch.nn does not have).
    Of equal elements the first ones are taken. ``sorted=False`` permits any order; here it is the same."""
    positions = ops.argtopk(x, k=k, axis=dim, largest=largest)
    return ops.gather(x, positions, axis=dim), positions


# -- pooling ---------------------------------------------------------------------------------------
def _max_pool(rank: int, return_indices: bool, x: Tensor, *windows: Any, **others: Any) -> Any:
    values = lookup(f"max_pool{rank}d")(x, *windows, **others)
    if not return_indices:
        return values
    if others.get("layout", "NCHW") != "NCHW":
        raise ArgumentError("return_indices is for images [N, C, H, W]; permute x before, or leave layout out")
    return values, ops.max_pool_positions(x, *windows)


def _adaptive_max_pool(rank: int, x: Tensor, output_size: Any, return_indices: bool) -> Any:
    values = lookup(f"adaptive_max_pool{rank}d")(x, output_size=output_size)
    return (values, ops.adaptive_max_pool_positions(x, output_size=output_size)) if return_indices else values


def _max_unpool(
    rank: int, x: Tensor, indices: Tensor, kernel_size: Any, stride: Any, padding: Any, output_size: Any
) -> Tensor:
    name = f"max_unpool{rank}d"
    if np.ndim(x) != rank + 2 or np.ndim(indices) != rank + 2:
        raise ShapeError(f"{name}: x and indices must have rank {rank + 2}, not {np.ndim(x)} and {np.ndim(indices)}")
    kernel, pads = per_axis(kernel_size, rank, "kernel_size"), per_axis(padding, rank, "padding", 0)
    steps = kernel if stride is None else per_axis(stride, rank, "stride")
    if output_size is None:
        output_size = [(n - 1) * s - 2 * p + k for n, s, p, k in zip(np.shape(x)[2:], steps, pads, kernel)]
    sizes = tuple(output_size)[-rank:]
    if len(sizes) != rank or len(output_size) not in (rank, rank + 2):
        raise ArgumentError(f"{name}: output_size must be {rank} sizes, or those of all axes, not {output_size!r}")
    lead = tuple(np.shape(x)[:2])
    plane = (*lead, math.prod(np.shape(x)[2:]))
    zeros = created(x, ops.full, (*lead, math.prod(sizes)), 0, x.dtype)
    flat = ops.scatter_set(zeros, ops.reshape(indices, plane), ops.reshape(x, plane), axis=-1)
    return ops.reshape(flat, (*lead, *sizes))


def max_unpool1d(
    x: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Tensor:
    """Put the elements of x [N, C, L] where ``indices`` tell; see :func:`max_unpool2d`."""
    return _max_unpool(1, x, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    x: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Tensor:
    """Put the elements of x [N, C, H, W] where ``indices`` tell, which come from a max pooling with
    ``return_indices``, and zeros elsewhere. The spatial size is ``output_size`` or, by default,
    ``(H - 1) * stride - 2 * padding + kernel_size``. Of equal indices (from overlapping windows) the
    last one counts.

    Raises ShapeError for other ranks, and IndexError at run time for an index that is out of range."""
    return _max_unpool(2, x, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    x: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Tensor:
    """Put the elements of x [N, C, D, H, W] where ``indices`` tell; see :func:`max_unpool2d`."""
    return _max_unpool(3, x, indices, kernel_size, stride, padding, output_size)


def max_pool1d(
    x: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Largest value of each window of x [N, C, L]; ``return_indices`` as in :func:`max_pool2d`."""
    return _max_pool(1, return_indices, x, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool2d(
    x: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    layout: str = "NCHW",
) -> Any:
    """Largest value of each window of x [N, C, H, W] or, with ``layout="NHWC"``, of x [N, H, W, C].
    With ``return_indices``, also its position (int64) among the elements of its channel, counted row by
    row: the first of equal values, the last of NaNs."""
    return _max_pool(2, return_indices, x, kernel_size, stride, padding, dilation, ceil_mode, layout=layout)


def max_pool3d(
    x: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Largest value of each window of x [N, C, D, H, W]; ``return_indices`` as in
    :func:`max_pool2d`."""
    return _max_pool(3, return_indices, x, kernel_size, stride, padding, dilation, ceil_mode)


adaptive_avg_pool3d = _of(ops.adaptive_avg_pool3d)


def adaptive_max_pool3d(x: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Largest value over windows so that x [N, C, D, H, W] becomes [N, C, *output_size]."""
    return _adaptive_max_pool(3, x, output_size, return_indices)


avg_pool1d = _of(ops.avg_pool1d)


def avg_pool2d(
    x: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    layout: str = "NCHW",
) -> Tensor:
    """Mean of each window of x [N, C, H, W] or, with ``layout="NHWC"``, of x [N, H, W, C]. With
    ``divisor_override``, the sum of the window divided by that number; this cannot be combined with
    ``ceil_mode``."""
    counted = count_include_pad or divisor_override is not None
    mean = ops.avg_pool2d(x, kernel_size, stride, padding, ceil_mode, counted, layout)
    return _divided_by(divisor_override, mean, 2, kernel_size, ceil_mode)


def avg_pool3d(
    x: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Mean of each window of x [N, C, D, H, W]; ``divisor_override`` as in :func:`avg_pool2d`."""
    counted = count_include_pad or divisor_override is not None
    mean = ops.avg_pool3d(x, kernel_size, stride, padding, ceil_mode, counted)
    return _divided_by(divisor_override, mean, 3, kernel_size, ceil_mode)


def _divided_by(divisor: int | None, mean: Tensor, rank: int, kernel_size: Any, ceil_mode: bool) -> Tensor:
    """The result of an average pooling that divides by ``divisor`` instead of the number of elements of a
    window."""
    if divisor is None:
        return mean
    if ceil_mode:
        raise ArgumentError(f"avg_pool{rank}d does not take divisor_override together with ceil_mode")
    return mean * (math.prod(per_axis(kernel_size, rank, "kernel_size")) / divisor)


adaptive_avg_pool1d = _of(ops.adaptive_avg_pool1d)
adaptive_avg_pool2d = _of(ops.adaptive_avg_pool2d)


def adaptive_max_pool1d(x: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Largest value over windows so that x [N, C, L] becomes [N, C, output_size]."""
    return _adaptive_max_pool(1, x, output_size, return_indices)


def adaptive_max_pool2d(x: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Largest value over windows so that x [N, C, H, W] becomes [N, C, *output_size]."""
    return _adaptive_max_pool(2, x, output_size, return_indices)


_RESIZED = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}


def interpolate(
    x: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resize the one to three spatial axes of x [N, C, ...] to ``size`` or by ``scale_factor``.
    ``mode`` is "nearest", "nearest-exact", "area", "linear", "bilinear", "trilinear" or "bicubic";
    "bilinear" and "bicubic" allow ``antialias``.

    Raises ArgumentError for an unknown mode, or one that does not fit the rank."""
    known = x.node.type if is_traced(x) else np.asarray(x)  # None in a trace without types
    is_volume = getattr(known, "ndim", getattr(known, "rank", 0)) == 5
    if mode in ("nearest", "linear", "bilinear") and not (antialias or recompute_scale_factor or is_volume):
        return ops.interpolate(x, size=size, scale_factor=scale_factor, mode=mode, align_corners=bool(align_corners))
    rank = np.ndim(x) - 2
    if mode not in (*_RESIZED, "nearest", "nearest-exact", "area") or _RESIZED.get(mode, rank) != rank:
        known = ["nearest", "nearest-exact", "area", *(m for m, r in _RESIZED.items() if r == rank)]
        raise ArgumentError(f"interpolate: mode must be one of {known} for rank {rank + 2}, not {mode!r}")
    if rank not in (1, 2, 3):
        raise ShapeError(f"interpolate: x must be [N, C, ...] with one to three spatial axes, not of rank {rank + 2}")
    if antialias and (mode not in ("bilinear", "bicubic") or align_corners):
        raise ArgumentError('interpolate: antialias is for mode="bilinear" and "bicubic" without align_corners')
    lengths = tuple(np.shape(x))[2:]
    sizes = target_sizes(size, scale_factor, tuple(map(shapes.normalize, lengths)))
    if mode == "area":
        return lookup(f"adaptive_avg_pool{rank}d")(x, output_size=sizes)
    factors: tuple[float | None, ...] = (None,) * rank
    if scale_factor is not None and not recompute_scale_factor:
        factors = factors_of(scale_factor, rank)
    given: dict[str, Any] = {"mode": "cubic" if mode == "bicubic" else "linear"}
    if mode == "nearest":
        given = {"coordinates": "asymmetric", "rounding": "floor"}
    elif mode == "nearest-exact":
        given = {"coordinates": "tf_half_pixel_for_nn", "rounding": "floor"}
    elif align_corners:
        given["coordinates"] = "align_corners"
    if antialias:
        given |= {"antialias": True, "exclude_outside": True}
        given |= {"coefficient": -0.5} if mode == "bicubic" else {}
    for axis, n, m, factor in reversed([*zip(range(2, rank + 2), lengths, sizes, factors)]):
        if n is not m and not (type(n) is type(m) is int and n == m and factor is None):
            x = ops.resize(x, size=shapes.for_user(m), axis=axis, scale=factor, **given)
    return x


def grid_sample(
    x: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Tensor:
    """x [N, C, H, W] sampled at the positions ``grid`` [N, H_out, W_out, 2], or x [N, C, D, H, W] at
    [N, D_out, H_out, W_out, 3]. Positions go from -1 to 1; see :func:`fxlite.ops.grid_sample`."""
    return ops.grid_sample(x, grid, mode=mode, padding_mode=padding_mode, align_corners=bool(align_corners))


def affine_grid(theta: Tensor, size: Sequence[Any], align_corners: bool | None = None) -> Tensor:
    """Positions for :func:`grid_sample` whose result has ``size``, (N, C, H, W) or (N, C, D, H, W): the
    positions of the result's elements, transformed by the matrices ``theta`` [N, 2, 3] or [N, 3, 4].

    Raises ArgumentError for another size, and ShapeError for matrices that do not fit."""
    rank = len(size) - 2
    if rank not in (2, 3):
        raise ArgumentError(f"affine_grid: size must be (N, C, H, W) or (N, C, D, H, W), not {tuple(size)}")
    if np.ndim(theta) != 3 or tuple(np.shape(theta)[1:]) != (rank, rank + 1):
        raise ShapeError(f"affine_grid: theta must be [N, {rank}, {rank + 1}], not {tuple(np.shape(theta))}")
    total = ops.reshape(theta[:, :, rank], (np.shape(theta)[0], *[1] * rank, rank))
    for axis, n in enumerate(size[2:]):
        steps = ops.cast(created(theta, ops.arange, 0, n, 1, "i64"), theta.dtype)
        if align_corners:
            along = steps * (2 / (n - 1)) - 1 if n != 1 else steps
        else:
            along = (steps * 2 + 1) / n - 1
        along = ops.reshape(along, (n, *[1] * (rank - axis)))
        column = ops.reshape(theta[:, :, rank - 1 - axis], (np.shape(theta)[0], *[1] * rank, rank))
        total = total + along * column
    return total


# -- shape -----------------------------------------------------------------------------------------
def pad(x: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Pad x; ``pad`` holds (before, after) for the last axis, then for the one before it, and so on."""
    if mode != "constant":
        raise ArgumentError(f"pad has mode='constant' only, not {mode!r}")
    if len(pad) % 2 or len(pad) > 2 * x.ndim:
        raise ArgumentError(f"pad must hold a pair for each of up to {x.ndim} axes, not {str(pad)[:60]}")
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    padding = ((0, 0),) * (x.ndim - len(pairs)) + tuple(reversed(pairs))
    return ops.pad(x, padding, value=0 if value is None else value)


def flatten(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Join the axes ``start_dim`` to ``end_dim`` to one (torch.flatten). If the shape is known, a trace
    records a reshape; without types it records the op ``flatten``."""
    if is_traced(x) and not x.is_typed:
        return ops.flatten(x, start_dim=start_dim, end_dim=end_dim)
    shape = x.shape
    if not shape:
        return ops.reshape(x, (1,))
    start, end = (normalize_axis(a, len(shape)) for a in (start_dim, end_dim))
    if start > end:
        raise ArgumentError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim}")
    merged = shapes.for_user(shapes.product(shapes.normalize(d) for d in shape[start : end + 1]))
    return ops.reshape(x, (*shape[:start], merged, *shape[end + 1 :]))


def unflatten(x: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """Split axis ``dim`` into axes of the given ``sizes``, one of which may be -1 (torch.unflatten)."""
    axis = normalize_axis(dim, x.ndim)
    return ops.reshape(x, (*x.shape[:axis], *_complete(sizes, x.shape[axis]), *x.shape[axis + 1 :]))


def _complete(sizes: Sequence[int], total: Any) -> tuple[Any, ...]:
    """``sizes`` with a -1 replaced by what is left of ``total``."""
    if -1 not in sizes:
        return tuple(sizes)
    known = shapes.product(s for s in sizes if s != -1)
    rest = shapes.for_user(shapes.floordiv(shapes.normalize(total), known))
    return tuple(rest if s == -1 else s for s in sizes)


def pixel_shuffle(x: Tensor, upscale_factor: int) -> Tensor:
    """Move blocks of channels into space: [N, C*r*r, H, W] -> [N, C, H*r, W*r]."""
    r = upscale_factor
    n, channels, h, w = x.shape
    split = ops.reshape(x, (n, channels // (r * r), r, r, h, w))
    return ops.reshape(ops.permute(split, (0, 1, 4, 2, 5, 3)), (n, channels // (r * r), h * r, w * r))


__all__ = public_names(globals())


def _check_all() -> None:
    """Make all functions of this module name an argument that they cannot accept."""
    for name in __all__:
        globals()[name] = checked(globals()[name], is_whole=True)


_check_all()


def __dir__() -> list[str]:
    return public_names(globals())
