"""Memory layouts of images: the ``layout`` attribute of ops over [N, C, H, W].

"NCHW" is torch's order; in "NHWC" (channels-last, torch's ``memory_format=channels_last``) the
channels of a pixel are neighbours. An op's rules are written once, for NCHW: :func:`in_layouts`
makes them rules for both, :func:`channels_first` and :func:`stored` do so for arrays. No op is
registered here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, ShapeError
from fxlite.scalar.expr import Expr, MultiIndex, Reader
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import TensorType

TO_LAST = (0, 2, 3, 1)
"""Axes of an image [N, C, H, W] in the order of NHWC: for ``permute``."""

TO_FIRST = (0, 3, 1, 2)
"""Axes of an image [N, H, W, C] in the order of NCHW."""


def is_channels_last(layout: Any) -> bool:
    """True for "NHWC", False for "NCHW". Raises ArgumentError for anything else."""
    if layout not in ("NCHW", "NHWC"):
        raise ArgumentError(f'layout must be "NCHW" or "NHWC", not {layout!r}')
    return bool(layout == "NHWC")


def channels_first(x: Any, layout: str) -> Any:
    """An array of that layout as a view [N, C, H, W]; of another rank as it is."""
    x = np.asarray(x)
    return x.transpose(TO_FIRST) if is_channels_last(layout) and x.ndim == 4 else x


def stored(y: Any, layout: str) -> Any:
    """An array [N, C, H, W] in that layout, contiguous."""
    return np.ascontiguousarray(y.transpose(TO_LAST)) if is_channels_last(layout) else y


def in_layouts(
    infer: Callable[..., TensorType], body: Callable[..., Expr]
) -> tuple[Callable[..., TensorType], Callable[..., Expr]]:
    """Type rule and body of an op whose image is ``x``, from those for NCHW: they take ``layout``.

    The rules raise ArgumentError for an unknown layout and ShapeError for an NHWC image that has
    not four axes."""

    def infer_any(x: Any, layout: str = "NCHW", **others: Any) -> TensorType:
        if not is_channels_last(layout):
            return infer(x, **others)
        if not isinstance(x, TensorType) or x.rank != 4:
            rank = x.rank if isinstance(x, TensorType) else 0
            raise ShapeError(f"x must be [N, H, W, C] (rank 4), not rank {rank}")
        found = infer(x.with_shape(tuple(x.shape[a] for a in TO_FIRST)), **others)
        return found.with_shape(tuple(found.shape[a] for a in TO_LAST))

    def body_any(i: MultiIndex, x: Reader, layout: str = "NCHW", **others: Any) -> Expr:
        if not is_channels_last(layout):
            return body(i, x, **others)
        return body(tuple(i[a] for a in TO_FIRST), _ChannelsFirst(x), **others)

    return infer_any, body_any


class _ChannelsFirst:
    """Reads an image [N, H, W, C] by n, c, h, w."""

    def __init__(self, x: Reader) -> None:
        self.x = x
        self.shape: MultiIndex = tuple(x.shape[a] for a in TO_FIRST)
        self.dtype: DType = x.dtype

    def __getitem__(self, index: Any) -> Expr:
        return self.x[tuple(index[a] for a in TO_LAST)]
