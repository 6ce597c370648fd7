"""``grid_sample``: samples an image at positions that another tensor holds.

In: images [N, C, H, W] or [N, C, D, H, W] and positions [N, ..., 2 or 3] between -1 and 1, with x (along
W) first. Out: the interpolated values there, [N, C, ...], as in torch.nn.functional.grid_sample and
ONNX's GridSample. Positions are limited before they are converted to integers, so that none is too large;
NaN counts as a position outside of the image.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, DTypeError, ShapeError
from fxlite.ops.image.resample import weight_within
from fxlite.ops.op import Tensor, op, require_float
from fxlite.ops.samples import Bad, S, uniform
from fxlite.scalar import expr
from fxlite.scalar.expr import Expr, MultiIndex, Reader
from fxlite.scalar.index import Index, Value
from fxlite.types import dtypes, shapes
from fxlite.types.tensor_type import TensorType

MODES = ("bilinear", "nearest", "bicubic")
PADDING_MODES = ("zeros", "border", "reflection")
#: The coefficient of torch and ONNX.
_CUBIC = -0.75


class _Numbers:
    """The functions that compute positions, for arrays."""

    floor: Callable[..., Any] = np.floor
    round: Callable[..., Any] = np.rint
    where: Callable[..., Any] = np.where

    @staticmethod
    def odd(x: Any) -> Any:
        return x - 2 * np.floor(x / 2) == 1

    @staticmethod
    def absolute(x: Any) -> Any:
        return np.abs(x)


class _Expressions:
    """The same functions, for expressions."""

    where: Callable[..., Any] = expr.where

    @staticmethod
    def floor(x: Expr) -> Expr:
        return expr.apply("floor", x)

    @staticmethod
    def round(x: Expr) -> Expr:
        return expr.apply("round", x)

    @staticmethod
    def odd(x: Expr) -> Expr:
        return expr.apply("eq", x - 2 * expr.apply("floor", x * 0.5), expr.const(1, x.dtype))

    @staticmethod
    def absolute(x: Expr) -> Expr:
        return expr.apply("abs", x)


Space = type[_Numbers] | type[_Expressions]


def _bounded(of: Space, at: Any, low: Any, high: Any) -> Any:
    """``at`` limited to [low, high]; NaN becomes ``low``."""
    at = of.where(at > low, at, low)
    return of.where(at < high, at, high)


def _reflected(of: Space, at: Any, n: Any, align_corners: bool) -> Any:
    """``at`` reflected at the ends until it lies between them. The ends are the centers of the outermost
    elements if ``align_corners``, else their outer edges."""
    low, span = (0.0, n - 1) if align_corners else (-0.5, n)
    if isinstance(span, Expr):
        size = of.where(span > 0, span, 1.0) if align_corners else span
    else:
        size = span if span > 0 else 1.0
    distance = of.absolute(at - low)
    turns = of.floor(distance / size)
    rest = distance - turns * size
    return of.where(of.odd(turns), size - rest, rest) + low


def _inside(of: Space, at: Any, n: Any, padding_mode: str, align_corners: bool) -> Any:
    """A position after padding: those that read zeros are limited to two elements beyond the ends."""
    if padding_mode == "zeros":
        return _bounded(of, at, -2.0, n + 1)
    if padding_mode == "reflection":
        at = _reflected(of, at, n, align_corners)
    return _bounded(of, at, 0.0, n - 1)


def _unnormalized(at: Any, n: Any, align_corners: bool) -> Any:
    return (at + 1) * 0.5 * (n - 1) if align_corners else ((at + 1) * n - 1) * 0.5


def _taps(of: Space, at: Any, n: Any, mode: str, padding_mode: str, align_corners: bool) -> list[tuple[Any, Any]]:
    """The positions (integers stored as floats) and weights of the elements that are added along an axis."""
    at = _unnormalized(at, n, align_corners)
    if mode == "nearest":
        return [(of.round(_inside(of, at, n, padding_mode, align_corners)), None)]
    if mode == "bilinear":
        at = _inside(of, at, n, padding_mode, align_corners)
        low = of.floor(at)
        high = low + 1 if padding_mode == "zeros" else of.where(low + 1 < n, low + 1, low)
        return [(low, 1 - (at - low)), (high, at - low)]
    at = _bounded(of, at, -1e6, 1e6)  # padding is applied to each tap
    low = of.floor(at)
    fraction = at - low
    distances = [(2, fraction + 1), (1, fraction), (1, 1 - fraction), (2, 2 - fraction)]
    return [
        (
            _inside(of, low + float(offset), n, padding_mode, align_corners),
            weight_within(reach, "cubic", distance, _CUBIC),
        )
        for offset, (reach, distance) in enumerate(distances, start=-1)
    ]


# -- the record ------------------------------------------------------------------------------------
_AROUND = uniform("f32[2,3,4,2]", -1.6, 1.6)
_EXTREME = np.array([[[[np.nan, 0.0], [np.inf, 0.2], [-1e30, 0.1], [1.0, -1.0], [0.3, 7.9]]]], np.float32)
_SAMPLES = [
    S("f32[2,3,H,W]", _AROUND, mode=mode, padding_mode=padding, align_corners=corners, dims={"H": 5, "W": 4})
    for mode, padding, corners in itertools.product(MODES, PADDING_MODES, (False, True))
]


@op(
    "window",
    needs_whole={"x": (2, 3), "grid": (-1,)},
    samples=[
        *_SAMPLES,
        "f32[B,2,3,4,5] f32[B,2,3,2,3](-1.3,1.3) B=2; f32[1,2,3,4,5] f32[1,2,3,2,3](-1.3,1.3) 'nearest' 'border'",
        "f64[1,2,3,4,2] f64[1,2,3,2,3](-2,2) padding_mode='reflection' align_corners=True",
        *(S("f32[1,2,4,5]", _EXTREME, padding_mode=padding) for padding in ("zeros", "border")),
        "f32[1,2,1,1] f32[1,2,2,2](-2,2) padding_mode='reflection' align_corners=True",
        "f16[1,2,4,5] f16[1,3,2,2](-1,1) 'nearest'; bf16[1,2,4,5] bf16[1,3,2,2](-1,1) padding_mode='border'",
        "f32[0,2,4,5] f32[0,3,2,2]; f32[2,2,4,5] f32[2,0,2,2]",
    ],
    bad=[
        Bad("f32[2,4,5]", "f32[2,4,1]", match="x must be [N, C, H, W] or [N, C, D, H, W]"),
        Bad("f32[2,3,4,5]", "f32[2,3,4,3]", match="grid must be [N, ..., 2]"),
        Bad("f32[2,3,4,5]", "f32[3,3,4,2]", match="grid must be [N, ..., 2]"),
        Bad("f32[2,3,4,5]", "f64[2,3,4,2]", match="one dtype"),
        Bad("i32[2,3,4,5]", "i32[2,3,4,2]", match="must be a float tensor"),
        Bad("f32[2,3,4,5]", "f32[2,3,4,2]", "cubic", match="mode must be"),
        Bad("f32[2,3,4,5]", "f32[2,3,4,2]", padding_mode="wrap", match="padding_mode must be"),
        Bad("f32[2,3,4,5,6]", "f32[2,3,4,2,3]", "bicubic", match="two spatial axes"),
        Bad("f32[2,3,0,5]", "f32[2,3,4,2]", match="nothing to read"),
    ],
)
def grid_sample(
    x: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool = False
) -> Tensor:
    """``x [N, C, H, W]`` sampled at the positions ``grid [N, H_out, W_out, 2]``, or ``x [N, C, D, H, W]`` at
    ``grid [N, D_out, H_out, W_out, 3]``. The last axis of ``grid`` holds x, y(, z) along W, H(, D); -1 and 1
    are the centers of the outermost elements if ``align_corners``, else their outer edges.

    ``mode`` is "bilinear" (trilinear over three axes), "nearest" (halves are rounded to even) or, over two
    axes, "bicubic" (with the coefficient -0.75). ``padding_mode`` gives the values outside of the image:
    "zeros", those of the nearest element ("border"), or those of the mirrored image ("reflection").

    Raises ShapeError, DTypeError or ArgumentError for arguments that do not fit."""
    x, grid = np.asarray(x), np.asarray(grid)
    computed = dtypes.dtype(x.dtype).compute.numpy
    sizes = x.shape[2:]
    with np.errstate(invalid="ignore", over="ignore"):
        axes = [
            _taps(_Numbers, grid[..., -1 - a].astype(computed), computed.type(n), mode, padding_mode, align_corners)
            for a, n in enumerate(sizes)
        ]
    batch = np.arange(len(x)).reshape(-1, *[1] * len(sizes))
    total: Any = 0
    for taps in itertools.product(*axes):
        places = [at.astype(np.int64) for at, _ in taps]
        read = np.all([(p >= 0) & (p < n) for p, n in zip(places, sizes)], axis=0)
        value = x[batch, :, *(np.clip(p, 0, n - 1) for p, n in zip(places, sizes))].astype(computed)
        value = np.where(read[..., None], value, 0)
        for _, weight in taps:
            value = value if weight is None else value * weight[..., None]
        total = total + value
    return np.ascontiguousarray(np.moveaxis(total, -1, 1)).astype(x.dtype, copy=False)


@grid_sample.infer
def _(x: Any, grid: Any, mode: str, padding_mode: str, align_corners: bool) -> TensorType:
    if not isinstance(x, TensorType) or x.rank not in (4, 5):
        raise ShapeError(f"x must be [N, C, H, W] or [N, C, D, H, W], not {x}")
    require_float(x, "x")
    rank = x.rank - 2
    if (
        not isinstance(grid, TensorType)
        or grid.rank != x.rank
        or grid.shape[-1] != rank
        or not shapes.equal(grid.shape[0], x.shape[0])
    ):
        raise ShapeError(f"grid must be [N, ..., {rank}] of rank {x.rank} beside x {x}, not {grid}")
    if grid.dtype is not x.dtype:
        raise DTypeError(f"x and grid must have one dtype, not {x.dtype} and {grid.dtype}")
    for name, value, known in (("mode", mode, MODES), ("padding_mode", padding_mode, PADDING_MODES)):
        if value not in known:
            raise ArgumentError(f"{name} must be one of {', '.join(known)}, not {value!r}")
    if mode == "bicubic" and rank != 2:
        raise ArgumentError('mode="bicubic" is for two spatial axes')
    if any(type(n) is int and n < 1 for n in x.shape[2:]):
        raise ShapeError("there is nothing to read: a spatial axis has size 0")
    return TensorType((*x.shape[:2], *grid.shape[1:-1]), x.dtype)


grid_sample.elements(lambda x, **others: x.shape[2:])


@grid_sample.body
def _(i: MultiIndex, x: Reader, grid: Reader, mode: str, padding_mode: str, align_corners: bool) -> Expr:
    computed = x.dtype.compute
    sizes = x.shape[2:]
    axes: list[list[tuple[Index, Any, Expr]]] = []
    for a, n in enumerate(sizes):
        at = expr.cast(grid[(i[0], *i[2:], Index.of(len(sizes) - 1 - a))], computed)
        size = expr.cast(expr.index_value(n), computed) if n.constant is None else float(n.constant)
        axes.append([])
        for tap, weight in _taps(_Expressions, at, size, mode, padding_mode, align_corners):
            place = expr.cast(expr.cast(tap, dtypes.int32), dtypes.int64)
            inside: Expr = expr.TRUE
            if padding_mode == "zeros":
                first = expr.apply("ge", place, expr.const(0, dtypes.int64))
                inside = expr.both(first, expr.apply("lt", place, expr.index_value(n)))
            axes[-1].append((Index.of(Value(place)), weight, inside))

    def value(taps: Sequence[tuple[Index, Any, Expr]]) -> Expr:
        inside = expr.both(*(condition for _, _, condition in taps))
        found = expr.cast(expr.read_guarded(x, (*i[:2], *(place for place, _, _ in taps)), inside, 0), computed)
        for _, weight, _ in taps:
            found = found if weight is None else found * weight
        return found

    total, *others = map(value, itertools.product(*axes))
    for other in others:
        total = total + other
    return expr.cast(total, x.dtype)
