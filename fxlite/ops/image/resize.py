"""Interpolation over one or two spatial axes, with torch's index arithmetic.

The source coordinate of output element ``o`` of an axis of ``n`` elements resized to ``m`` is
``o * scale`` (nearest, and linear with aligned corners) or ``max((o + 0.5) * scale - 0.5, 0)``
(linear), where ``scale`` is ``n / m`` for a given size, ``1 / scale_factor`` for a given factor,
and ``(n - 1) / (m - 1)`` with aligned corners. torch computes it in float32 (in float64 for linear
interpolation of float64), and so do reference and body: ``floor(41 * float32(1 / 41))`` is 0, not
1. (For "nearest" with float64, torch's code paths disagree in such places; here it is always float32.)
The body of "nearest" uses integers if the result is the same, which is nearly always the case.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, ShapeError
from fxlite.base.on_demand import is_expression, sympy
from fxlite.ops.image.spatial import LAYOUTS, require_layout, requires_elements, rewrite, shortest
from fxlite.ops.op import Tensor, op, require_float
from fxlite.ops.parameters import Attribute
from fxlite.ops.samples import Bad
from fxlite.scalar import expr
from fxlite.scalar.expr import Expr, MultiIndex, Reader
from fxlite.scalar.index import Index, Value
from fxlite.types import dtypes, shapes
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import TensorType

#: The assumed largest size of axes with a named size, where integers replace float32.
_LONGEST = 1 << 16
_LARGEST_DENOMINATOR = 4096
_MODES = {1: ("nearest", "linear"), 2: ("nearest", "bilinear")}


# -- attributes ------------------------------------------------------------------------------------
def _per_axis(value: Any, rank: int, what: str, kinds: tuple[type, ...]) -> tuple[Any, ...]:
    values: Any = value if isinstance(value, (tuple, list)) else (value,) * rank
    if len(values) == 1:
        values = tuple(values) * rank
    wanted = "ints >= 1 or named dims" if what == "size" else "numbers > 0"
    good = (is_expression(v) or (type(v) is not bool and v > 0) for v in values)
    if len(values) != rank or not all(isinstance(v, kinds) for v in values) or not all(good):
        raise ArgumentError(f"{what} must be one or {rank} {wanted}, not {value!r}")
    return tuple(values)


def factors_of(scale_factor: Any, rank: int) -> tuple[float, ...]:
    """One factor for each axis. Raises ArgumentError."""
    return tuple(float(f) for f in _per_axis(scale_factor, rank, "scale_factor", (int, float)))


def target_sizes(size: Any, scale_factor: Any, lengths: tuple[Any, ...]) -> tuple[Any, ...]:
    """The sizes of the spatial axes of the result, as dims. Raises ArgumentError or ShapeError."""
    rank = len(lengths)
    if (size is None) == (scale_factor is None):
        raise ArgumentError("give either size or scale_factor")
    if size is not None:
        return _per_axis(size, rank, "size", (int, sympy.Expr))
    found = []
    for axis, (n, factor) in enumerate(zip(lengths, factors_of(scale_factor, rank))):
        if type(n) is int:
            m = math.floor(n * factor)
            if m < 1:
                raise ShapeError(f"scale_factor {factor} leaves nothing of {LAYOUTS[rank][2 + axis]} = {n}")
            found.append(m)
            continue
        exact = Fraction(factor)
        if exact.denominator > _LARGEST_DENOMINATOR:
            raise ArgumentError(
                f"scale_factor {factor} of the named dim {n}: the size would have to be rounded in "
                f"floating point; give size=, or trace with a number for {n}"
            )
        found.append(shapes.floordiv(n * exact.numerator, exact.denominator))
    return tuple(found)


# -- source positions ------------------------------------------------------------------------------
def _scale(n: int, m: int, factor: float | None, how: str, dtype: Any) -> Any:
    """The number of source elements for each output element, rounded as in torch. ``how`` is nearest,
    nearest2d, linear or corners. torch ignores the factor if the size stays the same (linear and
    nearest2d) or doubles (nearest2d)."""
    if how == "corners":
        return dtype(n - 1) / dtype(m - 1) if m > 1 else dtype(0)
    same = m == n and how in ("linear", "nearest2d")
    if factor is None or same or (m == 2 * n and how == "nearest2d"):
        return dtype(n) / dtype(m)
    return dtype(1.0 / factor)


def _how(mode: str, rank: int, align_corners: bool) -> str:
    if mode == "nearest":
        return "nearest" if rank == 1 else "nearest2d"
    return "corners" if align_corners else "linear"


def _nearest(n: int, m: int, factor: float | None, how: str) -> np.ndarray[Any, Any]:
    """The source element of each output element."""
    scale = _scale(n, m, factor, how, np.float32)
    at = np.floor(np.arange(m, dtype=np.float32) * scale).astype(np.int64)
    return np.asarray(np.minimum(at, n - 1))


def _linear(n: int, m: int, factor: float | None, how: str, dtype: Any) -> Any:
    """The two source elements and the weight of the second one, for each output element."""
    scale = _scale(n, m, factor, how, dtype)
    o = np.arange(m, dtype=dtype)
    at = o * scale if how == "corners" else (o + dtype(0.5)) * scale - dtype(0.5)
    at = np.maximum(at, dtype(0))
    low = np.minimum(at.astype(np.int64), n - 1)
    return low, np.minimum(low + 1, n - 1), np.clip(at - low.astype(dtype), 0, 1)


@functools.lru_cache(maxsize=1024)
def _is_ratio(scale: float, numerator: int, denominator: int, count: int) -> bool:
    """Whether ``floor(o * scale)`` in float32 is ``o * numerator // denominator`` for o < count."""
    o = np.arange(count)
    rounded = np.floor(o.astype(np.float32) * np.float32(scale)).astype(np.int64)
    return bool(np.array_equal(rounded, o * numerator // denominator))


def _nearest_index(o: Index, n: Index, m: Index, factor: float | None, how: str) -> Index:
    """The source element of output element ``o``, in integers if that gives the same."""
    if n == m and factor is None:
        return o
    step = _scale_value(n, m, factor, how, dtypes.float32)
    if isinstance(step, expr.Const):
        ratio = Fraction(1 / step.value).limit_denominator(_LARGEST_DENOMINATOR)
        top, bottom = ratio.denominator, ratio.numerator
        if _is_ratio(float(step.value), top, bottom, m.constant or _LONGEST):
            return o * top // bottom
    at = expr.apply("floor", expr.cast(expr.index_value(o), dtypes.float32) * step)
    return _clamped(expr.cast(at, dtypes.int64), n)


def _scaled(n: Index, factor: float) -> Index:
    """The size of an axis after resizing by a factor, as in :func:`target_sizes`."""
    if n.constant is not None:
        return Index.of(math.floor(n.constant * factor))
    exact = Fraction(factor)
    return n * exact.numerator // exact.denominator


def _clamped(position: Expr, n: Index) -> Index:
    return Index.of(Value(expr.apply("minimum", position, expr.index_value(n - 1))))


def _scale_value(n: Index, m: Index, factor: float | None, how: str, dtype: DType) -> Expr:
    """:func:`_scale` as an expression; a constant if both sizes are numbers."""
    if n.constant is not None and m.constant is not None:
        value = _scale(n.constant, m.constant, factor, how, dtype.numpy.type)
        return expr.const(float(value), dtype)

    def number(index: Index) -> Expr:
        return expr.cast(expr.index_value(index), dtype)

    if how == "corners":
        quotient = number(n - 1) / number(m - 1)
        return expr.where(expr.less(1, m), quotient, expr.const(0, dtype))
    if factor is None:
        return number(n) / number(m)
    scale: Expr = expr.const(float(dtype.numpy.type(1.0 / factor)), dtype)
    if how == "nearest2d" and 2 < factor < 3:  # besides 2, only these factors can double a size
        scale = expr.where(expr.equals(m, 2 * n), 0.5, scale)
    if how in ("linear", "nearest2d") and 1 < factor < 2:  # besides 1, only these can keep it the same
        scale = expr.where(expr.equals(m, n), 1.0, scale)
    return scale


def _linear_index(
    o: Index, n: Index, m: Index, factor: float | None, how: str, dtype: DType
) -> tuple[Index, Index, Expr]:
    """The two source elements of output element ``o``, and the weight of the second one."""
    scale = _scale_value(n, m, factor, how, dtype)
    at = expr.cast(expr.index_value(o), dtype)
    at = at * scale if how == "corners" else (at + 0.5) * scale - 0.5
    at = expr.apply("maximum", at, expr.const(0, dtype))
    last = expr.index_value(n - 1)
    low = expr.apply("minimum", expr.cast(at, dtypes.int64), last)
    high = expr.apply("minimum", low + 1, last)
    weight = at - expr.cast(low, dtype)
    weight = expr.apply("maximum", weight, expr.const(0, dtype))
    weight = expr.apply("minimum", weight, expr.const(1, dtype))
    return Index.of(Value(low)), Index.of(Value(high)), weight


# -- the record ------------------------------------------------------------------------------------
@op(
    "window",
    moves_values=True,
    samples=[
        "f32[B,2,H,W] scale_factor=2 B=2 H=3 W=4; f32[B,2,H,W] size=(5,3) B=2 H=4 W=7; f32[1,2,3,4] size=(7,6)",
        "f32[1,1,2,2] (82,41); f32[1,2,5,6] 3; f32[1,2,5,6] scale_factor=(1.7,0.6)",
        "f32[1,1,4,3] scale_factor=(1.1,2.25); f32[1,1,H,W] scale_factor=(1.25,2.25) H=3 W=3",
        "f32[1,1,H,W] scale_factor=1.25 mode='bilinear' H=3 W=6; f32[1,1,H,W] (4,47) H=3 W=1",
        "i32[1,2,3,4] scale_factor=2; f32[B,2,H,W] scale_factor=2 mode='bilinear' B=2 H=3 W=4",
        "f32[B,2,H,W] scale_factor=0.5 mode='bilinear' B=1 H=7 W=4",
        "f32[1,2,H,W] scale_factor=2 mode='bilinear' align_corners=True H=3 W=4",
        "f32[1,2,3,4] (5,1) mode='bilinear' align_corners=True; f32[1,2,6,5] (3,7) mode='bilinear'",
        "f64[1,2,3,4] (5,6) mode='bilinear'; f16[1,2,3,4] (5,6) mode='bilinear'; bf16[1,2,3,4] scale_factor=2",
        "f32[B,2,L] scale_factor=3 B=2 L=4; f32[1,2,7] 4 mode='linear'",
        "f32[1,2,L] 5 mode='linear' align_corners=True L=3; f32[0,2,3,4] scale_factor=2; f32[1,2,3,3] 3",
    ],
    bad=[
        Bad("f32[2,3,4]", 2, mode="bilinear", match="mode must be 'nearest' or 'linear'"),
        Bad("f32[3,4]", 2, match="x must be [N, C, L] or [N, C, H, W]"),
        Bad("f32[1,2,3,4]", match="give either size or scale_factor"),
        Bad("f32[1,2,3,4]", (2, 3, 4), match="size must be"),
        Bad("f32[1,2,3,4]", scale_factor=-1.0, match="scale_factor must be"),
        Bad("f32[1,2,3,4]", scale_factor=0.1, match="leaves nothing of H"),
        Bad("f32[1,2,H,4]", scale_factor=1.3, dims={"H": 3}, match="named dim H"),
        Bad("f32[1,2,3,4]", 2, align_corners=True, match="align_corners is for"),
        Bad("i32[1,2,3,4]", 2, mode="bilinear", match="must be a float tensor"),
    ],
)
def interpolate(
    x: Tensor,
    size: Attribute = None,
    scale_factor: Attribute = None,
    mode: str = "nearest",
    align_corners: bool = False,
) -> Tensor:
    """``x [N, C, L]`` or ``[N, C, H, W]``, resized (torch.nn.functional.interpolate).

    Either ``size`` (ints or named dims) or ``scale_factor`` must be given; with the latter the size is
    ``floor(n * scale_factor)``. ``mode`` is "nearest", "linear" (one axis) or "bilinear" (two).

    Raises ShapeError for other ranks, ArgumentError for attributes that do not fit, and DTypeError for
    linear interpolation of integers."""
    value = np.asarray(x)
    rank = value.ndim - 2
    factors = (None,) * rank if scale_factor is None else factors_of(scale_factor, rank)
    lengths: list[Any] = list(zip(value.shape[2:], target_sizes(size, scale_factor, value.shape[2:]), factors))
    how = _how(mode, rank, align_corners)
    if mode == "nearest":
        for axis, (n, m, factor) in enumerate(lengths, start=2):
            value = np.take(value, _nearest(n, m, factor, how), axis)
        return value
    wide = value.astype(dtypes.dtype(value.dtype).compute.numpy)
    for axis, (n, m, factor) in reversed(list(enumerate(lengths, start=2))):
        low, high, weight = _linear(n, m, factor, how, wide.dtype.type)
        weight = weight.reshape(-1, *[1] * (value.ndim - 1 - axis))
        wide = np.take(wide, low, axis) * (1 - weight) + np.take(wide, high, axis) * weight
    return wide.astype(value.dtype, copy=False)


@interpolate.canonical
def _(x: Any, size: Any = None, scale_factor: Any = None, **rest: Any) -> Any:
    bound: dict[str, Any] = {"x": x, **rest}
    new: dict[str, Any] = {}
    for name, value in (("size", size), ("scale_factor", scale_factor)):
        if value is None:
            continue
        bound[name] = new[name] = value
        if isinstance(value, (tuple, list)) and value:
            new[name] = shortest(value)
        if name == "scale_factor":
            stored = new[name] if isinstance(new[name], tuple) else (new[name],)
            if all(type(v) in (int, float) for v in stored):
                stored = tuple(float(v) for v in stored)
                new[name] = shortest(stored)
    return rewrite(interpolate, bound, new)


requires_elements(interpolate)


@interpolate.infer
def _(x: Any, size: Any, scale_factor: Any, mode: Any, align_corners: Any) -> TensorType:
    rank = x.rank - 2 if isinstance(x, TensorType) else 0
    if rank not in _MODES:
        raise ShapeError(f"x must be [N, C, L] or [N, C, H, W], not {x}")
    x = require_layout(x, rank)
    if mode not in _MODES[rank]:
        names = " or ".join(map(repr, _MODES[rank]))
        raise ArgumentError(f"mode must be {names} for rank {x.rank}, not {mode!r}")
    if mode != "nearest":
        require_float(x, "x")
    elif align_corners:
        raise ArgumentError('align_corners is for mode="linear" and "bilinear" only')
    if any(type(n) is int and n < 1 for n in x.shape[2:]):
        raise ShapeError("there is nothing to interpolate: a spatial axis has size 0")
    return TensorType((*x.shape[:2], *target_sizes(size, scale_factor, x.shape[2:])), x.dtype)


@interpolate.body
def _(i: MultiIndex, x: Reader, size: Any, scale_factor: Any, mode: str, align_corners: bool) -> Expr:
    rank = len(i) - 2
    factors: tuple[float | None, ...] = (None,) * rank
    if scale_factor is None:
        target = [Index.of(m) for m in _per_axis(size, rank, "size", (int, sympy.Expr))]
    else:
        factors = factors_of(scale_factor, rank)
        target = [_scaled(n, f) for n, f in zip(x.shape[2:], factors) if f is not None]
    axes = list(zip(i[2:], x.shape[2:], target, factors))
    how = _how(mode, rank, align_corners)
    if mode == "nearest":
        return x[(*i[:2], *(_nearest_index(*each, how) for each in axes))]
    computed = x.dtype.compute
    sources = [_linear_index(*each, how, computed) for each in axes]

    def blend(axis: int, place: MultiIndex) -> Expr:
        if axis == rank:
            return expr.cast(x[(*i[:2], *place)], computed)
        low, high, weight = sources[axis]
        first, second = blend(axis + 1, (*place, low)), blend(axis + 1, (*place, high))
        return first * (1 - weight) + second * weight

    return expr.cast(blend(0, ()), x.dtype)
