"""The part of :mod:`fxlite.nn.functional` that moves, pools and resizes: shapes are the subject."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fxlite import ops
from fxlite.base.errors import ArgumentError
from fxlite.base.state import is_traced
from fxlite.ops.op import lookup, normalize_axis
from fxlite.types import shapes

Tensor = Any


# -- pooling ---------------------------------------------------------------------------------------
def _no_indices(return_indices: bool, name: str) -> None:
    if return_indices:
        raise ArgumentError(f"{name} does not return indices; leave return_indices out")


def _max_pool(
    name: str, x: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any,
    ceil_mode: bool, return_indices: bool, **others: Any,
) -> Tensor:  # fmt: skip
    _no_indices(return_indices, name)
    return lookup(name)(
        x, kernel_size=kernel_size, stride=stride, padding=padding, dilation=dilation,
        ceil_mode=ceil_mode, **others,
    )  # fmt: skip


def max_pool1d(
    x: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Tensor:  # fmt: skip
    """Largest value of each window of x [N, C, L]."""
    return _max_pool(
        "max_pool1d", x, kernel_size, stride, padding, dilation, ceil_mode, return_indices
    )


def max_pool2d(
    x: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False, layout: str = "NCHW",
) -> Tensor:  # fmt: skip
    """Largest value of each window of x [N, C, H, W]; with ``layout="NHWC"`` of x [N, H, W, C]."""
    return _max_pool(
        "max_pool2d", x, kernel_size, stride, padding, dilation, ceil_mode, return_indices,
        layout=layout,
    )  # fmt: skip


def avg_pool1d(
    x: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:  # fmt: skip
    """Mean of each window of x [N, C, L]."""
    return ops.avg_pool1d(
        x, kernel_size=kernel_size, stride=stride, padding=padding, ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
    )  # fmt: skip


def avg_pool2d(
    x: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None, layout: str = "NCHW",
) -> Tensor:  # fmt: skip
    """Mean of each window of x [N, C, H, W], or with ``layout="NHWC"`` of x [N, H, W, C]; with
    ``divisor_override`` the sum divided by it, which cannot be combined with ``ceil_mode``."""
    if divisor_override is not None and ceil_mode:
        raise ArgumentError("avg_pool2d does not take divisor_override together with ceil_mode")
    count_include_pad = count_include_pad or divisor_override is not None
    mean = ops.avg_pool2d(
        x, kernel_size=kernel_size, stride=stride, padding=padding, ceil_mode=ceil_mode,
        count_include_pad=count_include_pad, layout=layout,
    )  # fmt: skip
    if divisor_override is None:
        return mean
    sides = (kernel_size,) * 2 if isinstance(kernel_size, int) else tuple(kernel_size)
    return mean * (math.prod(sides) / divisor_override)


def adaptive_avg_pool1d(x: Tensor, output_size: Any) -> Tensor:
    """Mean over windows so that x [N, C, L] becomes [N, C, output_size]."""
    return ops.adaptive_avg_pool1d(x, output_size=output_size)


def adaptive_avg_pool2d(x: Tensor, output_size: Any) -> Tensor:
    """Mean over windows so that x [N, C, H, W] becomes [N, C, *output_size]."""
    return ops.adaptive_avg_pool2d(x, output_size=output_size)


def adaptive_max_pool1d(x: Tensor, output_size: Any, return_indices: bool = False) -> Tensor:
    """Largest value over windows so that x [N, C, L] becomes [N, C, output_size]."""
    _no_indices(return_indices, "adaptive_max_pool1d")
    return ops.adaptive_max_pool1d(x, output_size=output_size)


def adaptive_max_pool2d(x: Tensor, output_size: Any, return_indices: bool = False) -> Tensor:
    """Largest value over windows so that x [N, C, H, W] becomes [N, C, *output_size]."""
    _no_indices(return_indices, "adaptive_max_pool2d")
    return ops.adaptive_max_pool2d(x, output_size=output_size)


def interpolate(
    x: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:  # fmt: skip
    """Resize the spatial axes of x [N, C, ...] to ``size`` or by ``scale_factor``."""
    return ops.interpolate(
        x, size=size, scale_factor=scale_factor, mode=mode, align_corners=bool(align_corners)
    )


# -- shape -----------------------------------------------------------------------------------------
def pad(
    x: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """``pad`` holds (before, after) for the last axis, then the one before it, and so on."""
    if mode != "constant":
        raise ArgumentError(f"pad has mode='constant' only, not {mode!r}")
    if len(pad) % 2 or len(pad) > 2 * x.ndim:
        raise ArgumentError(
            f"pad must hold a pair for each of up to {x.ndim} axes, not {str(pad)[:60]}"
        )
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    padding = ((0, 0),) * (x.ndim - len(pairs)) + tuple(reversed(pairs))
    return ops.pad(x, padding, value=0 if value is None else value)


def flatten(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Axes ``start_dim`` to ``end_dim`` as one (torch.flatten). Where the shape is known this is a
    reshape; in a trace without types it is the op ``flatten``."""
    if is_traced(x) and not x.is_typed:
        return ops.flatten(x, start_dim=start_dim, end_dim=end_dim)
    shape = x.shape
    if not shape:
        return ops.reshape(x, (1,))
    start, end = (normalize_axis(a, len(shape), "axis") for a in (start_dim, end_dim))
    if start > end:
        raise ArgumentError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim}")
    merged = shapes.for_user(shapes.product(shapes.normalize(d) for d in shape[start : end + 1]))
    return ops.reshape(x, (*shape[:start], merged, *shape[end + 1 :]))


def unflatten(x: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """Axis ``dim`` as several axes of ``sizes``, one of which may be -1 (torch.unflatten)."""
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
    """[N, C*r*r, H, W] -> [N, C, H*r, W*r]."""
    r = upscale_factor
    n, channels, h, w = x.shape
    split = ops.reshape(x, (n, channels // (r * r), r, r, h, w))
    return ops.reshape(
        ops.permute(split, (0, 1, 4, 2, 5, 3)), (n, channels // (r * r), h * r, w * r)
    )
