"""ATen's layers, each of which stays one node: convolutions, pooling, normalization, attention, recurrences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

import fxlite.nn.functional as F
from fxlite.importing.torch.table import (
    Call,
    aten,
    cast,
    dtype_of_value,
    ints,
    op,
    pair,
    rank_of,
    same,
    same_sizes,
    shape_of,
)
from fxlite.types import dtypes
from fxlite.types.shapes import NamedDim


# -- convolutions ----------------------------------------------------------------------------------
def _spatial(x: Any, dims: int, layer: Callable[[Any], Any]) -> Any:
    """A layer over [B, C, *spatial], for a value that may lack the batch axis."""
    batched = rank_of(x) == dims + 2
    found = layer(x if batched else op("unsqueeze")(x, 0))
    return found if batched else op("squeeze")(found, 0)


def _windows(name: str, dims: int) -> Any:
    """A layer whose arguments are those of an op; lists of numbers become settings."""

    def entry(c: Call, x: Any, *given: Any) -> Any:
        settings = _settings(given)
        return _spatial(x, dims, lambda v: op(name)(v, *settings))

    return entry


def _settings(given: Sequence[Any]) -> list[Any]:
    """Arguments for an op; an empty list, a stride of ATen, means that there is none."""
    return [None if isinstance(v, (list, tuple)) and not v else ints(v) for v in given]


for _dims in (1, 2, 3):
    aten(f"conv{_dims}d")(_windows(f"conv{_dims}d", _dims))
    aten(f"conv_transpose{_dims}d")(_windows(f"conv_transpose{_dims}d", _dims))


@aten("convolution", "_convolution")
def _convolution_of(c: Call, x: Any, weight: Any, bias: Any, *settings: Any) -> Any:
    dims = rank_of(weight) - 2
    stride, padding, dilation, transposed, output_padding, groups = settings[:6]
    if transposed:
        given = (stride, padding, output_padding, groups, dilation)
        return _windows(f"conv_transpose{dims}d", dims)(c, x, weight, bias, *given)
    return _windows(f"conv{dims}d", dims)(c, x, weight, bias, stride, padding, dilation, groups)


# -- pooling ---------------------------------------------------------------------------------------
def _max_pool(dims: int) -> Any:
    def entry(c: Call, x: Any, *given: Any) -> Any:
        settings = _settings(given)
        found = _spatial(x, dims, lambda v: op(f"max_pool{dims}d")(v, *settings))
        return _with_positions(c, found, lambda: _spatial(x, dims, lambda v: op("max_pool_positions")(v, *settings)))

    return entry


def _with_positions(c: Call, found: Any, positions: Callable[[], Any]) -> Any:
    """The largest elements and, if the call also returns them, their positions if they are read."""
    if not isinstance(c.value, (tuple, list)):
        return found
    return found, positions() if _reads_second(c.node) else None


def _reads_second(node: Any) -> bool:
    """Whether a result of a node other than the first one is read."""
    return any(
        len(user.args) != 2 or user.args[1] != 0 for user in node.users if user.users or user.args[0] is not node
    )


@aten("max_unpool2d", "max_unpool3d")
def _max_unpool(c: Call, x: Any, positions: Any, output_size: Any, *_: Any) -> Any:
    """Elements put at their positions on a plane of zeros; kernel and stride only determine its size."""
    dims = len(output_size)
    undo, batched = getattr(F, f"max_unpool{dims}d"), rank_of(x) == dims + 2
    values, places = (x, positions) if batched else (op("unsqueeze")(v, 0) for v in (x, positions))
    found = undo(values, places, 1, output_size=tuple(output_size))
    return found if batched else op("squeeze")(found, 0)


def _filled_up(c: Call, x: Any, kernel: Any, stride: Any, padding: Any) -> Any:
    """The operand of a pool, padded with zeros as far as its windows reach. Raises TraceError for sizes that are not
    fixed."""
    dims = len(kernel)
    sizes, counts = shape_of(x)[-dims:], c.value.shape[-dims:]
    if not all(type(n) is int for n in (*sizes, *counts)):
        raise c.refuse("divisor_override with windows beyond a size that may differ")
    before, steps = pair(padding, dims), pair(stride if stride else kernel, dims)
    reached = [(n - 1) * s + k - p - own for n, s, k, p, own in zip(counts, steps, kernel, before, sizes)]
    around = [(p, max(p, more)) for p, more in zip(before, reached)]
    return op("pad")(x, ((0, 0),) * (rank_of(x) - dims) + tuple(around))


def _avg_pool(dims: int) -> Any:
    def entry(
        c: Call,
        x: Any,
        kernel: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        whole = count_include_pad or divisor_override is not None
        if divisor_override is not None and ceil_mode:
            x, padding, ceil_mode = _filled_up(c, x, pair(kernel, dims), stride, padding), 0, False
        settings = _settings((kernel, stride, padding, ceil_mode, whole))
        found = _spatial(x, dims, lambda v: op(f"avg_pool{dims}d")(v, *settings))
        if divisor_override is None:
            return found
        return found * (math.prod(pair(kernel, dims)) / divisor_override)

    return entry


def _adaptive(name: str, dims: int) -> Any:
    def entry(c: Call, x: Any, output_size: Any) -> Any:
        kept = zip(pair(output_size, dims), shape_of(x)[-dims:])  # a named size has to be given by name
        size = ints([None if isinstance(n, NamedDim) and same_sizes((n,), (own,)) else n for n, own in kept])
        found = _spatial(x, dims, lambda v: op(name)(v, size))
        return _with_positions(
            c, found, lambda: _spatial(x, dims, lambda v: op("adaptive_max_pool_positions")(v, size))
        )

    return entry


def _fractional_starts(samples: Any, size: int, count: int, window: int) -> Any:
    """The first positions [B, C, count] of windows along an axis, from random numbers [B, C]."""
    samples = samples[..., None]
    step = np.asarray((size - window) / max(count - 1, 1), dtype_of_value(samples).numpy)
    numbers = np.arange(count, dtype=step.dtype)
    starts = cast((numbers + samples) * step, dtypes.int64) - cast(samples * step, dtypes.int64)
    return op("where")(np.arange(count) == count - 1, size - window, starts)


@aten("fractional_max_pool2d", "fractional_max_pool3d")
def _fractional_max_pool(c: Call, x: Any, kernel: Any, output_size: Any, samples: Any) -> Any:
    """The largest elements of windows whose places are chosen by random numbers [B, C, dims], which are given; and
    their positions. In two dimensions, the first number is that of the last axis."""
    dims = len(output_size)
    outer, sizes = shape_of(x)[:-dims], shape_of(x)[-dims:]
    if not all(type(size) is int for size in sizes):
        raise c.refuse("windows at fractions of a size that may differ")
    samples = samples if rank_of(x) == dims + 2 else samples[0]
    positions: Any = 0
    for axis, (size, count, window) in enumerate(zip(sizes, output_size, kernel)):
        starts = _fractional_starts(samples[..., 1 - axis if dims == 2 else axis], size, count, window)
        inside = [1] * (2 * dims)
        inside[axis], inside[dims + axis] = count, window
        positions = positions * size + (starts[..., None] + np.arange(window)).reshape((*outer, *inside))
    flat = positions.reshape((*outer, -1))
    found = np.take_along_axis(x.reshape((*outer, math.prod(sizes))), flat, -1)
    windows = (*outer, *output_size, math.prod(kernel))
    found, positions = found.reshape(windows), flat.reshape(windows)
    best = op("argmax")(found, -1)[..., None]
    return np.take_along_axis(found, best, -1)[..., 0], np.take_along_axis(positions, best, -1)[..., 0]


for _dims in (1, 2, 3):
    aten(f"max_pool{_dims}d", f"max_pool{_dims}d_with_indices")(_max_pool(_dims))
    aten(f"avg_pool{_dims}d")(_avg_pool(_dims))
    aten(f"adaptive_avg_pool{_dims}d", f"_adaptive_avg_pool{_dims}d")(_adaptive(f"adaptive_avg_pool{_dims}d", _dims))
    aten(f"adaptive_max_pool{_dims}d")(_adaptive(f"adaptive_max_pool{_dims}d", _dims))


@aten("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def _grid_sample(c: Call, x: Any, grid: Any, mode: int, padding: int, align_corners: bool) -> Any:
    modes, paddings = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
    return op("grid_sample")(x, grid, modes[mode], paddings[padding], align_corners)


#: Resampling that no op of fxlite does over all axes at once: the op, coordinates and rounding of each.
_BY_AXIS = {
    "bicubic": ("cubic", "half_pixel", "floor"),
    "trilinear": ("linear", "half_pixel", "floor"),
    "nearest-exact": ("nearest", "half_pixel", "round_prefer_ceil"),
    "nearest3d": ("nearest", "asymmetric", "floor"),
}


def _length(c: Call, x: Any, axis: int, length: Any, scale: Any) -> Any:
    """The size of an axis that torch states; for a named one, as a multiple of the old size."""
    if not isinstance(length, torch.SymInt):
        return length
    if scale is None or not float(scale).is_integer():
        raise c.refuse(
            f"a size that may differ, {shape_of(x)[axis]}, times {scale}, would have to be rounded in floating point; "
            "give size= in the model, or export it with a number there"
        )
    return shape_of(x)[axis] * int(scale)


def _resize(mode: str, aligned: bool) -> Any:
    def entry(c: Call, x: Any, size: Any, *args: Any, scale_factors: Any = None, **_: Any) -> Any:
        align_corners, rest = (bool(args[0]), args[1:]) if aligned and args else (False, args)
        scales = [s for s in rest if s is not None]
        if scales and isinstance(scales[0], (list, tuple)):
            scales = list(scales[0])
        sizes = tuple(size) if size is not None else None
        whole = tuple(c.value.shape[2:])
        if mode in _BY_AXIS:
            how = _BY_AXIS[mode]
            place = "align_corners" if align_corners else how[1]
            for i, length in enumerate(sizes or whole):
                scale = scales[i] if scales and not align_corners else None
                x = op("resize")(
                    x, _length(c, x, 2 + i, length, scales[i] if scales else None), 2 + i, how[0], place, how[2], scale
                )
            return x
        if scales and not align_corners:
            exact = all(
                type(n) is int and float(n * s) == int(n * s) for n, s in zip(shape_of(x)[2:], scales, strict=False)
            )
            if not exact or sizes is None:
                return op("interpolate")(x, None, tuple(scales), mode, align_corners)
        lengths = [_length(c, x, 2 + i, n, scales[i] if scales else None) for i, n in enumerate(sizes or whole)]
        return op("interpolate")(x, tuple(lengths), None, mode, align_corners)

    return entry


for _name, _mode, _aligned in (
    ("upsample_nearest1d", "nearest", False),
    ("upsample_nearest2d", "nearest", False),
    ("upsample_nearest3d", "nearest3d", False),
    *((f"_upsample_nearest_exact{dims}d", "nearest-exact", False) for dims in (1, 2, 3)),
    ("upsample_linear1d", "linear", True),
    ("upsample_bilinear2d", "bilinear", True),
    ("upsample_bicubic2d", "bicubic", True),
    ("upsample_trilinear3d", "trilinear", True),
):
    aten(_name)(_resize(_mode, _aligned))


def _resize_smoothly(mode: str) -> Any:
    """Resizes one axis after another, with kernels that are stretched if the axis becomes shorter (as in Pillow)."""

    def entry(c: Call, x: Any, size: Any, align_corners: bool, *scales: Any, scale_factors: Any = None) -> Any:
        if align_corners:
            raise c.refuse("antialias=True with align_corners=True has positions that no op of fxlite has")
        sizes = tuple(size) if size is not None else tuple(c.value.shape[2:])
        given = scale_factors or (scales[0] if scales and isinstance(scales[0], (list, tuple)) else scales)
        for place, length in enumerate(sizes):
            x = op("resize")(
                x,
                _length(c, x, 2 + place, length, given[place] if given else None),
                2 + place,
                mode,
                scale=given[place] if given else None,
                coefficient=-0.5,
                antialias=True,
                exclude_outside=True,
            )
        return x

    return entry


aten("_upsample_bilinear2d_aa")(_resize_smoothly("linear"))
aten("_upsample_bicubic2d_aa")(_resize_smoothly("cubic"))


# -- normalization ---------------------------------------------------------------------------------
def _statistics(c: Call, x: Any, axes: tuple[int, ...], eps: float) -> tuple[Any, Any]:
    """The means and inverse deviations by which a norm was computed, in the shapes of torch's further results, which
    are empty where torch has none. None for those that the program does not use."""
    read = {user.args[1] for user in c.node.users}
    x = cast(x, dtype_of_value(x).compute)

    def result(number: int, made: Callable[[], Any]) -> Any:
        sizes = tuple(map(c.run.size, c.value[number].shape))
        if number not in read:
            return None
        return op("full")(sizes, 0, dtypes.float32) if 0 in sizes else made().reshape(sizes)

    mean = result(1, lambda: op("mean")(x, axes))
    return mean, result(2, lambda: op("rsqrt")(op("var")(x, axes, 0) + eps))


def _batch_statistics(c: Call, x: Any, eps: float) -> tuple[Any, Any]:
    return _statistics(c, x, (0, *range(2, rank_of(x))), eps)


@aten("layer_norm", "native_layer_norm")
def _layer_norm(c: Call, x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any) -> Any:
    found = F.layer_norm(x, tuple(shape), weight, bias, eps)
    if not isinstance(c.value, (tuple, list)):
        return found
    return found, *_statistics(c, x, tuple(range(-len(shape), 0)), eps)


@aten("rms_norm", "_fused_rms_norm")
def _rms_norm(c: Call, x: Any, shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    found = F.rms_norm(x, tuple(shape), weight, eps)
    if not isinstance(c.value, (tuple, list)):
        return found
    x = cast(x, dtype_of_value(x).compute)
    square = op("mean")(op("square")(x), tuple(range(-len(shape), 0)), True)
    return found, op("rsqrt")(square + (float(np.finfo(dtype_of_value(x).numpy).eps) if eps is None else eps))


@aten("group_norm")
def _group_norm(c: Call, x: Any, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any) -> Any:
    return F.group_norm(x, groups, weight, bias, eps)


@aten("native_group_norm")
def _native_group_norm(
    c: Call, x: Any, weight: Any, bias: Any, n: Any, channels: Any, rest: Any, groups: int, eps: float
) -> Any:
    found = F.group_norm(x, groups, weight, bias, eps)
    return found, *_statistics(c, x.reshape((n, groups, channels // groups * rest)), (-1,), eps)


@aten("batch_norm")
def _batch_norm(
    c: Call, x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float, *_: Any
) -> Any:
    if training and mean is not None:
        raise c.refuse("batch statistics that change buffers; call model.eval() before the import")
    return op("batch_norm")(x, mean, var, weight, bias, training, momentum, eps)


@aten("_native_batch_norm_legit_no_training", "_batch_norm_no_update")
def _batch_norm_of_statistics(
    c: Call, x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
) -> Any:
    return op("batch_norm")(x, mean, var, weight, bias, False, momentum, eps), *_batch_statistics(c, x, eps)


@aten("_native_batch_norm_legit_functional")
def _training_batch_norm(
    c: Call, x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> Any:
    """Also returns the new running statistics, whose variance is the unbiased one."""
    if not training:
        found = op("batch_norm")(x, mean, var, weight, bias, False, momentum, eps)
        return found, *_batch_statistics(c, x, eps), mean, var
    found = op("batch_norm")(x, None, None, weight, bias, True, momentum, eps)
    axes = (0, *range(2, rank_of(x)))
    new_mean = mean * (1 - momentum) + op("mean")(x, axes) * momentum
    new_var = var * (1 - momentum) + op("var")(x, axes, 1) * momentum
    return found, *_batch_statistics(c, x, eps), new_mean, new_var


@aten("_native_batch_norm_legit.no_stats")
def _batch_norm_without(c: Call, x: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float) -> Any:
    return op("batch_norm")(x, None, None, weight, bias, True, momentum, eps), *_batch_statistics(c, x, eps)


@aten("instance_norm")
def _instance_norm(
    c: Call,
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    *_: Any,
) -> Any:
    kept = (None, None) if use_input_stats else (mean, var)
    return op("instance_norm")(x, *kept, weight, bias, use_input_stats, momentum, eps)


# -- attention and embeddings ----------------------------------------------------------------------
@aten("scaled_dot_product_attention")
def _attention(
    c: Call,
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    if dropout_p:
        raise c.refuse("dropout while training draws random numbers; call model.eval() before the import")
    if enable_gqa and not same_sizes(shape_of(key)[-3:-2], shape_of(query)[-3:-2]):
        groups = shape_of(query)[-3] // shape_of(key)[-3]
        key, value = (_repeated_heads(v, groups) for v in (key, value))
    return op("scaled_dot_product_attention")(query, key, value, mask, is_causal, scale)


def _repeated_heads(x: Any, groups: int) -> Any:
    """Each head [..., H, T, D] repeated ``groups`` times in sequence."""
    *lead, heads, length, size = shape_of(x)
    wide = op("expand")(op("unsqueeze")(x, len(lead) + 1), (*lead, heads, groups, length, size))
    return op("reshape")(wide, (*lead, heads * groups, length, size))


@aten("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_efficient_attention")
def _flash_attention(
    c: Call,
    query: Any,
    key: Any,
    value: Any,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Any = None,
    scale: float | None = None,
) -> Any:
    return _attention(c, query, key, value, attn_mask, dropout_p, is_causal, scale=scale), None


@aten("_native_multi_head_attention")
def _multi_head_attention(
    c: Call,
    query: Any,
    key: Any,
    value: Any,
    width: int,
    heads: int,
    weight: Any,
    bias: Any,
    out_weight: Any,
    out_bias: Any,
    mask: Any = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> Any:
    """The function that torch's attention layer calls if no gradients are needed. The mask excludes scores (mask type
    0), keys (1), or scores of each head (2)."""
    if query is key is value:
        parts = op("linear")(query, weight, bias)
        parts = [parts[..., i * width : (i + 1) * width] for i in range(3)]
    else:
        rows = [slice(i * width, (i + 1) * width) for i in range(3)]
        parts = [op("linear")(x, weight[own], bias[own]) for x, own in zip((query, key, value), rows)]
    q, k, v = (op("permute")(p.reshape((*shape_of(p)[:2], heads, width // heads)), (0, 2, 1, 3)) for p in parts)
    if mask is not None:
        mask = op("logical_not")(cast(mask, dtypes.bool_))
        mask = mask[:, None, None, :] if mask_type == 1 else mask
    weights = None
    if need_weights:
        scores = op("matmul")(q, k.mT) * (width // heads) ** -0.5
        weights = op("softmax")(scores if mask is None else op("where")(mask, scores, -math.inf), -1)
        found = op("matmul")(weights, v)
        weights = op("mean")(weights, (1,)) if average_attn_weights else weights
    else:
        found = op("scaled_dot_product_attention")(q, k, v, mask)
    return op("linear")(op("permute")(found, (0, 2, 1, 3)).reshape(shape_of(query)), out_weight, out_bias), weights


@aten("_transformer_encoder_layer_fwd")
def _encoder_layer(
    c: Call, x: Any, width: int, heads: int, *weights: Any, mask: Any = None, mask_type: int | None = None
) -> Any:
    """The attention layer and the two linear layers that follow, with norms before or after them."""
    mask, mask_type = (*weights[15:], mask, mask_type)[:2]
    attention, (use_gelu, norm_first, eps) = weights[:4], weights[4:7]
    norm_1, norm_2, up, down = (weights[i : i + 2] for i in range(7, 15, 2))

    def attended(y: Any) -> Any:
        return _multi_head_attention(c, y, y, y, width, heads, *attention, mask, False, mask_type=mask_type)[0]

    def passed(y: Any) -> Any:
        return op("linear")((F.gelu if use_gelu else F.relu)(op("linear")(y, *up)), *down)

    for layer, (scale, shift) in ((attended, norm_1), (passed, norm_2)):
        if norm_first:
            x = x + layer(F.layer_norm(x, (width,), scale, shift, eps))
        else:
            x = F.layer_norm(x + layer(x), (width,), scale, shift, eps)
    return x


@aten("_safe_softmax")
def _safe_softmax_of(c: Call, x: Any, dim: int, dtype: Any = None) -> Any:
    found = op("softmax")(cast(x, c.dtype), dim)
    nothing = op("max")(x, (dim % rank_of(x),), True) == -math.inf
    return op("where")(nothing, 0.0, found)


@aten("embedding")
def _embedding(c: Call, weight: Any, indices: Any, *_: Any) -> Any:
    return op("embedding")(indices, weight)


same("one_hot", F.one_hot)


@aten("embedding_bag")
def _embedding_bag(c: Call, weight: Any, indices: Any, offsets: Any, *settings: Any, **named: Any) -> Any:
    """A negative ``padding_idx`` counts from the end."""
    given = [*settings]
    if len(given) == 6 and given[5] is not None:
        given[5] = given[5] % shape_of(weight)[0]
    return _bags(c, weight, indices, offsets, *given, **named)


@aten("_embedding_bag", "_embedding_bag_forward_only")
def _bags(
    c: Call,
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = -1,
) -> Any:
    """The sum, mean or largest elements of the rows in each bag, which starts at its element of ``offsets``. A negative
    ``padding_idx`` means that there is none."""
    starts = offsets[:-1] if include_last_offset else offsets
    place, bags = op("arange")(0, shape_of(indices)[0], 1, dtypes.int64), shape_of(starts)[0]
    bag = op("sum")(cast(starts <= place[:, None], dtypes.int64), 1) - 1
    rows, kept = op("embedding")(indices, weight), op("ne")(indices, -1 if padding_idx is None else padding_idx)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[:, None]
    neutral = -math.inf if mode == 2 else 0.0
    rows = op("where")(kept[:, None], rows, neutral)
    made, none = (
        op("full")(sizes, fill, kind)
        for sizes, fill, kind in (((bags, shape_of(weight)[1]), neutral, c.dtype), ((bags,), 0, dtypes.int64))
    )
    wide = op("expand")(bag[:, None], shape_of(rows))
    found = op("scatter_max" if mode == 2 else "scatter_add")(made, wide, rows, 0)
    count = op("scatter_add")(none, bag, cast(kept, dtypes.int64), 0)[:, None]
    if mode == 1:
        found = found / cast(op("maximum")(count, 1), c.dtype)
    return (op("where")(count == 0, 0.0, found), *[None] * (len(c.value) - 1))


# -- recurrences -----------------------------------------------------------------------------------
def _recurrent(name: str, nonlinearity: str | None = None) -> Any:
    """The layers of aten.lstm.input, aten.gru.input and aten.rnn_*.input, with four parameters (two without biases)
    for each layer and direction."""

    def entry(
        c: Call,
        x: Any,
        state: Any,
        params: Any,
        has_biases: bool,
        layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> Any:
        if train and dropout and layers > 1:
            raise c.refuse("dropout while training draws random numbers; call model.eval() before the import")
        states = list(state) if isinstance(state, (list, tuple)) else [state]
        x = op("permute")(x, (1, 0, *range(2, rank_of(x)))) if batch_first else x
        each, ways = 4 if has_biases else 2, 2 if bidirectional else 1
        ends: list[list[Any]] = [[] for _ in states]
        for layer in range(layers):
            outputs = []
            for way in range(ways):
                number = layer * ways + way
                given = list(params[number * each : (number + 1) * each])
                starts = [s[number] for s in states]
                extra = {} if nonlinearity is None else {"nonlinearity": nonlinearity}
                biases = given[2:] if has_biases else [None, None]
                found = op(name)(x, *starts, *given[:2], *biases, **extra, reverse=bool(way))
                outputs.append(found[0])
                for end, value in zip(ends, found[1:]):
                    end.append(value)
            x = outputs[0] if ways == 1 else op("concat")(outputs, rank_of(x) - 1)
        x = op("permute")(x, (1, 0, *range(2, rank_of(x)))) if batch_first else x
        return (x, *(op("stack")(end, 0) for end in ends))

    return entry


aten("lstm.input")(_recurrent("lstm"))
aten("gru.input")(_recurrent("gru"))
aten("rnn_tanh.input")(_recurrent("rnn", "tanh"))
aten("rnn_relu.input")(_recurrent("rnn", "relu"))


# -- losses ----------------------------------------------------------------------------------------
_REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}


@aten("cross_entropy_loss")
def _cross_entropy(
    c: Call,
    x: Any,
    target: Any,
    weight: Any = None,
    reduction: int = 1,
    ignore_index: int = -100,
    smoothing: float = 0.0,
) -> Any:
    return F.cross_entropy(
        x, target, weight, ignore_index=ignore_index, reduction=_REDUCTIONS[reduction], label_smoothing=smoothing
    )


@aten("mse_loss", "l1_loss")
def _loss(c: Call, x: Any, target: Any, reduction: int = 1) -> Any:
    return op(c.name)(x, target, _REDUCTIONS[reduction])


@aten("nll_loss", "nll_loss_nd")
def _nll_loss(c: Call, x: Any, target: Any, weight: Any = None, reduction: int = 1, ignore_index: int = -100) -> Any:
    return F.nll_loss(x, target, weight, ignore_index=ignore_index, reduction=_REDUCTIONS[reduction])


@aten("multilabel_margin_loss_forward")
def _multilabel_margin_loss(c: Call, x: Any, target: Any, reduction: int) -> Any:
    """Targets are the classes before the first negative number of a row. Also returns which classes are targets.
    (Torch's decomposition also counts some behind the first negative number.)"""
    rows, targets = (v.reshape((1, -1)) if rank_of(v) < 2 else v for v in (x, target))
    count = shape_of(rows)[-1]
    is_given = op("eq")(op("cumsum")(cast(targets < 0, dtypes.int64), -1), 0)
    classes = op("arange")(0, count, 1, dtypes.int64)
    is_own = op("logical_and")(op("eq")(targets[..., None], classes), is_given[..., None])
    is_target = op("any")(is_own, -2)
    own = np.take_along_axis(rows, op("maximum")(targets, 0), -1)
    excess = op("maximum")(1 - own[..., None] + rows[..., None, :], 0)
    counts = op("logical_and")(is_given[..., None], op("logical_not")(is_target)[..., None, :])
    loss = op("sum")(op("where")(counts, excess, 0), (-2, -1)) / count
    is_target = cast(is_target, dtype_of_value(x)).reshape(shape_of(target))
    if _REDUCTIONS[reduction] == "none":
        return loss.reshape(shape_of(x)[:-1]), is_target
    return op(_REDUCTIONS[reduction])(loss), is_target
