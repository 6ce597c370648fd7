"""The position of the largest element of each window: the ``return_indices`` of max pooling.

In: images [N, C, ...] with one to three spatial axes, and windows as in
:mod:`~fxlite.ops.image.pooling`. Out: positions (int64) among the elements of a channel, counted row by
row, as in torch. ``F.max_unpool2d``, which reverses a pooling, scatters by them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxlite.base.errors import ShapeError
from fxlite.ops.image.pooling import (
    Ints,
    Sizes,
    Windows,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_window,
    lowest,
    max_pool1d,
    max_pool2d,
    output_sizes,
    place_of,
    places_read,
    pooled_type,
    reaching,
    windows_of,
)
from fxlite.ops.image.spatial import reduce_over, rewrite, shortest
from fxlite.ops.image.volume import adaptive_max_pool3d, max_pool3d
from fxlite.ops.op import Op, Tensor, op
from fxlite.ops.parameters import Attribute
from fxlite.ops.samples import Bad, S
from fxlite.scalar import expr
from fxlite.scalar.expr import Expr, MultiIndex, Reader
from fxlite.scalar.index import Index
from fxlite.types import dtypes
from fxlite.types.tensor_type import TensorType, type_of

_POOLS = {1: max_pool1d, 2: max_pool2d, 3: max_pool3d}
_ADAPTIVE = {1: adaptive_max_pool1d, 2: adaptive_max_pool2d, 3: adaptive_max_pool3d}
_NONE = int(np.iinfo(np.int64).max)


def _pool_of(pools: dict[int, Op], x: Any) -> Op:
    """The pooling op for the rank of ``x``. Raises ShapeError for other ranks."""
    rank = x.rank - 2 if isinstance(x, TensorType) else 0
    if rank not in pools:
        raise ShapeError(f"x must be [N, C, L], [N, C, H, W] or [N, C, D, H, W], not {x}")
    return pools[rank]


def _follows(record: Op, pools: dict[int, Op]) -> None:
    """Attach rules to ``record`` that follow those of the op that pools the values."""

    def infer(x: Any, **attributes: Any) -> TensorType:
        values = _pool_of(pools, x).inferred({"x": x, **attributes})
        return TensorType(values.shape, dtypes.int64)

    def canonical(**bound: Any) -> Any:
        new = {}
        for name, value in bound.items():
            if isinstance(value, (tuple, list)) and len(value) and all(v is None or type(v) is int for v in value):
                new[name] = shortest(tuple(value))
        if bound.get("stride") is not None and new.get("stride", bound["stride"]) == new.get(
            "kernel_size", bound["kernel_size"]
        ):
            new["stride"] = None
        return rewrite(record, bound, new)

    record.infer(infer)
    record.canonical(canonical)
    record.elements(lambda x, **attributes: _pool_of(pools, x).needed_sizes({"x": x, **attributes}))


def _position_body(
    i: MultiIndex, x: Reader, extents: Sequence[Index], place_of: Callable[[Sequence[Index]], tuple[MultiIndex, Expr]]
) -> Expr:
    """The position of the largest element of a window: the first of equal elements, the last of NaNs.
    ``place_of`` gives the place of element r of the window, and whether it is inside of the image."""
    is_float = x.dtype.is_float
    strides = [Index.of(1)]
    for size in reversed(x.shape[3:]):
        strides.insert(0, strides[0] * size)

    def value(*r: Index) -> Expr:
        place, inside = place_of(r)
        return expr.read_guarded(x, (*i[:2], *place), inside, lowest(x.dtype))

    largest = reduce_over("max", extents, value)

    def key(*r: Index) -> Expr:
        place, inside = place_of(r)
        here = expr.read_guarded(x, (*i[:2], *place), inside, lowest(x.dtype))
        position = expr.index_value(sum((p * s for p, s in zip(place, strides)), Index.of(0)))
        found = expr.where(expr.both(inside, expr.apply("eq", here, largest)), position, _NONE)
        return expr.where(expr.apply("isnan", here), -position, found) if is_float else found

    first = reduce_over("min", extents, key)
    return expr.apply("abs", first) if is_float else first


# -- fixed windows ---------------------------------------------------------------------------------
def _reference(x: Any, sizes: Sequence[int], places: Callable[[int], Any], count: int) -> Any:
    """The reference. ``places(r)`` gives the positions of element ``r`` of all windows on the plane, and
    whether they are inside of it."""
    flat = x.reshape(*x.shape[:2], math.prod(x.shape[2:]))
    best: Any = None
    found: Any = None
    for r in range(count):
        at, inside = places(r)
        value = flat[:, :, np.where(inside, at, 0)]
        if found is None:
            found = np.full(value.shape, -1, np.int64)
            best = value.copy()
        better = inside & ((found < 0) | (value > best) | (value != value))
        best, found = np.where(better, value, best), np.where(better, at, found)
    return np.broadcast_to(found, (*x.shape[:2], *sizes)).copy()


def _on_plane(sizes: Sequence[int], axes: Sequence[Any]) -> tuple[Any, Any]:
    """Positions on the plane from positions along its axes, and whether they are inside of it."""
    grid = np.meshgrid(*axes, indexing="ij")
    at, inside = np.zeros_like(grid[0]), np.ones(grid[0].shape, bool)
    for size, along in zip(sizes, grid):
        at, inside = at * size + along, inside & (along >= 0) & (along < size)
    return at, inside


@op(
    "window",
    samples=[
        "f32[B,3,H,W] 2 B=2 H=7 W=6; f32[1,2,7,8] (3,2) stride=(2,1) padding=(1,0)",
        "f32[1,2,9,8] 3 stride=2 dilation=2 padding=1; f32[B,1,H,W] 3 2 1 ceil_mode=True B=2 H=6 W=9",
        "f32[1,1,5,5]! 3 1 1; f64[2,2,8]! 3 2 1",
        S(np.full((1, 1, 4), -np.inf, np.float32), 3, 1, 1),
        "i32[1,2,5,5](0,2) 3 1 1; u8[1,2,5,5](0,2) 3 1 1; f32[B,2,L] 3 B=2 L=8; f32[1,2,4,5,3] 2 1; f16[1,2,5,5] 2",
        "bf16[1,2,4,4] 2; f32[0,2,5,5] 2; f32[1,2,2,3] 9 7 4 ceil_mode=True",
    ],
    bad=[
        Bad("f32[8,8]", 2, match="x must be [N, C, L]"),
        Bad("f32[2,3,8,8]", 2, padding=2, match="more than half of the window"),
        Bad("f32[2,3,8,1]", 2, match="does not fit along W"),
        Bad("bool[2,3,8,8]", 2, match="not defined for bool"),
    ],
)
def max_pool_positions(
    x: Tensor,
    kernel_size: Ints,
    stride: Attribute = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """The position (int64) of the largest element of each window of ``x [N, C, L]``, ``[N, C, H, W]`` or
    ``[N, C, D, H, W]``, counted row by row among the elements of its channel (``return_indices`` of
    torch.nn.functional.max_pool2d). It is the first of equal elements and the last of NaNs; padding is
    never chosen. Attributes and errors are as in :func:`max_pool2d`."""
    x = np.asarray(x)
    rank = x.ndim - 2
    windows = windows_of(rank, kernel_size, stride, padding, dilation)
    sizes = pooled_type(rank, type_of(x), windows, ceil_mode).shape[2:]
    kernel, steps, pads, gaps = reaching(windows, x.shape[2:])
    offsets = list(itertools.product(*map(range, kernel)))

    def places(number: int) -> tuple[Any, Any]:
        axes = [np.arange(m) * s - p + r * d for m, s, p, r, d in zip(sizes, steps, pads, offsets[number], gaps)]
        return _on_plane(x.shape[2:], axes)

    return _reference(x, sizes, places, len(offsets))


@max_pool_positions.body
def _(i: MultiIndex, x: Reader, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Expr:
    windows: Windows = windows_of(len(i) - 2, kernel_size, stride, padding, dilation)
    read = [Index.of(k) for k in places_read(windows, x)]
    return _position_body(i, x, read, lambda r: place_of(i, x, r, windows, ceil_mode))


_follows(max_pool_positions, _POOLS)


# -- adaptive windows ------------------------------------------------------------------------------
@op(
    "window",
    samples=[
        "f32[B,3,H,W] (3,2) B=2 H=7 W=5; f32[1,2,6,8] (3,None); f32[1,2,3,5] (5,4); f32[1,1,5,5]! 3",
        "i32[1,2,5,4](0,2) 2; f32[B,2,L] 3 B=2 L=8; f32[1,2,4,5,3] 2; f16[1,2,5] 2; f32[0,2,5] 2",
    ],
    bad=[Bad("f32[3,8]", 2, match="x must be [N, C, L]"), Bad("f32[2,3,8,8]", 0, match="output_size must be")],
)
def adaptive_max_pool_positions(x: Tensor, output_size: Sizes) -> Tensor:
    """The position of the largest element of each window of adaptive pooling, as in
    :func:`max_pool_positions`. Windows and errors are as in :func:`adaptive_max_pool2d`."""
    x = np.asarray(x)
    sizes = [n if m is None else m for n, m in zip(x.shape[2:], output_sizes(output_size, x.ndim - 2))]
    edges = [[(o * n // m, -(-(o + 1) * n // m)) for o in range(m)] for n, m in zip(x.shape[2:], sizes)]
    longest = [max(end - start for start, end in along) for along in edges]
    offsets = list(itertools.product(*map(range, longest)))

    def places(number: int) -> tuple[Any, Any]:
        axes = [
            np.array([start + r if start + r < end else -1 for start, end in along])
            for along, r in zip(edges, offsets[number])
        ]
        return _on_plane(x.shape[2:], axes)

    return _reference(x, sizes, places, len(offsets))


@adaptive_max_pool_positions.body
def _(i: MultiIndex, x: Reader, output_size: Any) -> Expr:
    sizes = output_sizes(output_size, len(i) - 2)
    windows = [adaptive_window(*each) for each in zip(i[2:], x.shape[2:], sizes)]

    def place_of(r: Sequence[Index]) -> tuple[MultiIndex, Expr]:
        return tuple(start + offset for (start, _), offset in zip(windows, r)), expr.TRUE

    return _position_body(i, x, [length for _, length in windows], place_of)


_follows(adaptive_max_pool_positions, _ADAPTIVE)
