"""``resize``: resamples one axis, with the modes and coordinates of ONNX's Resize and torch's
``interpolate``.

In: a tensor, an axis and its size in the result. Out: the tensor with that axis resampled. Several
axes are resized one after another, because an interpolation over several axes (bilinear, bicubic) is the
product of interpolations over each. (:mod:`~fxlite.ops.image.resize` has torch's "nearest" and "bilinear"
as one op.)

The position of element o of the result along the axis is ``o * step + shift``, where step is the number
of elements of the operand for each element of the result. "nearest" rounds it in integers, so that float
rounding has no influence; linear and cubic interpolation compute it in the dtype of the computation.
Beyond the ends, the first or the last element is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, ShapeError
from fxlite.base.on_demand import is_expression
from fxlite.ops.image.spatial import reduce_over
from fxlite.ops.op import Tensor, normalize_axis, op, require_float
from fxlite.ops.parameters import Attribute
from fxlite.ops.samples import Bad
from fxlite.scalar import expr
from fxlite.scalar.expr import Expr, MultiIndex, Reader
from fxlite.scalar.index import Index, Value, extremum
from fxlite.types import dtypes
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import TensorType

MODES = ("nearest", "linear", "cubic")
COORDINATES = "half_pixel pytorch_half_pixel half_pixel_symmetric align_corners asymmetric tf_half_pixel_for_nn".split()
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
#: How far a kernel reaches from its middle.
_REACH = {"linear": 1, "cubic": 2}


# -- positions -------------------------------------------------------------------------------------
def _ratio(o: Any, n: Any, m: Any, scale: float | None, coordinates: str, extreme: Callable[..., Any]) -> Any:
    """The position of element ``o`` as numerator and denominator, for ints, arrays and indices."""
    p, q = n, m
    if scale is not None:
        inverse = 1 / Fraction(scale).limit_denominator(1 << 16)
        p, q = inverse.numerator, inverse.denominator
    if coordinates == "asymmetric":
        return o * p, q
    if coordinates == "align_corners":
        return o * (n - 1), extreme("max", m - 1, 1)
    if coordinates == "half_pixel_symmetric":
        return (o * 2 + 1 - m) * p + (n - 1) * q, 2 * q
    if coordinates == "tf_half_pixel_for_nn":
        return (o * 2 + 1) * p, 2 * q
    numerator = (o * 2 + 1) * p - q
    if coordinates == "pytorch_half_pixel":
        numerator = numerator * extreme("min", m - 1, 1)
    return numerator, 2 * q


def _nearest(numerator: Any, denominator: Any, rounding: str) -> Any:
    """A rounded quotient, as numerator and denominator of an equal quotient that is rounded down."""
    if rounding == "floor":
        return numerator, denominator
    if rounding == "ceil":
        return numerator + (denominator - 1), denominator
    rest = denominator - 1 if rounding == "round_prefer_floor" else denominator
    return numerator * 2 + rest, denominator * 2


def _extreme(kind: str, a: int, b: int) -> int:
    return max(a, b) if kind == "max" else min(a, b)


def _affine(n: Any, m: Any, scale: float | None, coordinates: str, unless_one: Callable[[Any], Any]) -> Any:
    """The step and shift of the positions, for sizes that are floats or expressions. ``unless_one`` maps a
    value to itself, or to 0 if the result has one element."""
    step = n / m if scale is None else 1.0 / scale
    if coordinates == "align_corners":
        return unless_one(step if m == 1 else (n - 1) / (m - 1)), 0.0
    if coordinates == "asymmetric":
        return step, 0.0
    if coordinates == "half_pixel_symmetric":
        return step, ((1 - m) * step + (n - 1)) * 0.5
    if coordinates == "tf_half_pixel_for_nn":
        return step, step * 0.5
    shift = step * 0.5 - 0.5
    return (unless_one(step), unless_one(shift)) if coordinates == "pytorch_half_pixel" else (step, shift)


# -- kernels ---------------------------------------------------------------------------------------
def _weight(mode: str, distance: Any, coefficient: float, where: Callable[..., Any]) -> Any:
    """The interpolation kernel at a distance >= 0 from its center, for arrays and expressions. R. Keys, Cubic
    convolution interpolation for digital image processing (1981)."""
    near = weight_within(1, mode, distance, coefficient)
    far = weight_within(2, mode, distance, coefficient) if mode == "cubic" else 0.0
    return where(distance < 1, near, where(distance < 2, far, 0.0) if mode == "cubic" else far)


def weight_within(reach: int, mode: str, d: Any, a: float) -> Any:
    """The interpolation kernel at a distance between ``reach - 1`` and ``reach``."""
    if mode == "linear":
        return 1 - d
    return ((a + 2) * d - (a + 3)) * d * d + 1 if reach == 1 else ((d - 5) * d + 8) * d * a - 4 * a


def _reference(
    n: int, m: int, scale: float | None, mode: str, coordinates: str, coefficient: float, antialias: bool
) -> list[tuple[Any, Any]]:
    """The positions and weights of the elements that are added, for all elements of the result at once."""
    step, shift = _affine(float(n), float(m), scale, coordinates, lambda v: v if m > 1 else 0.0)
    at = np.arange(m) * step + shift
    wide = max(step, 1.0) if antialias else 1.0
    low = np.floor(at).astype(np.int64)
    reach = int(np.ceil(_REACH[mode] * wide))
    found = []
    for tap in range(1 - reach, reach + 1):
        distance = np.abs(low + tap - at) / wide
        found.append((low + tap, _weight(mode, distance, coefficient, np.where)))
    return found


# -- the record ------------------------------------------------------------------------------------
@op(
    "window",
    needs_whole={"x": "axis"},
    samples=[
        "f32[B,H,3] 7 1 B=2 H=4; f32[2,5] 3; i32[2,5] 8 coordinates='asymmetric' rounding='floor'",
        "f64[7] 10 coordinates='align_corners' rounding='round_prefer_ceil'",
        "f32[10] 4 coordinates='asymmetric' rounding='ceil' scale=0.4; u8[9] 5 coordinates='tf_half_pixel_for_nn'",
        "f32[6] 1 coordinates='pytorch_half_pixel'; bool[2,N] 9 N=4; f32[2,4] 9 mode='linear'",
        "f32[2,9,3] 4 1 mode='linear' coordinates='align_corners'",
        "f32[B,W] 9 mode='linear' coordinates='asymmetric' B=2 W=5",
        "f32[2,5] 1 mode='linear' coordinates='pytorch_half_pixel'; f32[5] 1 mode='linear' coordinates='align_corners'",
        "f32[N] 1 mode='linear' coordinates='align_corners' N=4",
        "f32[7] 12 mode='linear' scale=1.8 coordinates='half_pixel_symmetric'; f32[2,5] 11 mode='cubic'",
        "f64[6,2] 4 0 mode='cubic' coefficient=-0.5; f32[B,W] 8 mode='cubic' coordinates='align_corners' B=2 W=5",
        "f32[2,5] 9 mode='cubic' exclude_outside=True; f32[2,12] 5 mode='linear' antialias=True",
        "f32[2,12] 5 mode='linear' antialias=True exclude_outside=True",
        "f32[3,13,2] 4 1 mode='cubic' antialias=True coefficient=-0.5 exclude_outside=True",
        "f32[W] 4 mode='cubic' antialias=True W=11; f32[2,4] 9 mode='linear' antialias=True; f16[2,5] 9 mode='cubic'",
        "bf16[2,5] 3 mode='linear'; f32[0,4] 9 mode='linear'; f32[1,1] 3 mode='cubic'",
    ],
    bad=[
        Bad("f32[3]", 0, match="size must be"),
        Bad("f32[3]", 2, 1, match="out of range"),
        Bad("f32[3]", 2, mode="bilinear", match="mode must be one of nearest, linear, cubic"),
        Bad("f32[3]", 2, coordinates="corners", match="coordinates must be one of"),
        Bad("f32[3]", 2, rounding="even", match="rounding must be one of"),
        Bad("f32[3]", 2, scale=-1.0, match="scale must be"),
        Bad("f32[3]", 2, antialias=True, match="antialias is for"),
        Bad("i32[3]", 2, mode="linear", match="must be a float tensor"),
        Bad("f32[0]", 2, match="nothing to resize"),
    ],
)
def resize(
    x: Tensor,
    size: Attribute,
    axis: int = -1,
    mode: str = "nearest",
    coordinates: str = "half_pixel",
    rounding: str = "round_prefer_floor",
    scale: Attribute = None,
    coefficient: float = -0.75,
    antialias: bool = False,
    exclude_outside: bool = False,
) -> Tensor:
    """``x`` with ``axis`` resampled to ``size`` elements, an int or a named dim.

    ``mode``: "nearest", "linear", or "cubic" with this ``coefficient`` (-0.75 in torch, -0.5 for
    Catmull-Rom). ``coordinates``: the position of an element of the result, by the names in ONNX
    (coordinate_transformation_mode). ``rounding``: how "nearest" rounds the position (nearest_mode).
    ``scale``: the number of elements of the result for each element of the operand, if that is not the
    quotient of the sizes. ``antialias``: stretch the kernels if the axis becomes shorter.
    ``exclude_outside``: elements beyond the ends have weight 0, and the other weights are scaled so that
    their sum is 1.

    Source: ONNX operator specification, Resize. Raises ArgumentError for attributes that do not fit,
    ShapeError for an axis without elements, and DTypeError for linear or cubic interpolation of
    integers."""
    x = np.asarray(x)
    axis = normalize_axis(axis, x.ndim)
    n, m = x.shape[axis], int(size)
    if mode == "nearest":
        above, below = _ratio(np.arange(m), n, m, scale, coordinates, _extreme)
        above, below = _nearest(above, below, rounding)
        return np.take(x, np.clip(above // below, 0, n - 1), axis)
    taps = _reference(n, m, scale, mode, coordinates, coefficient, antialias)
    computed = dtypes.dtype(x.dtype).compute.numpy
    total: Any = 0
    if exclude_outside:
        taps = [(at, np.where((at >= 0) & (at < n), weight, 0)) for at, weight in taps]
    if exclude_outside or antialias:
        whole = np.sum([weight for _, weight in taps], axis=0)
        taps = [(at, weight / whole) for at, weight in taps]
    for at, weight in taps:
        weight = weight.astype(computed).reshape(-1, *[1] * (x.ndim - 1 - axis))
        total = total + np.take(x, np.clip(at, 0, n - 1), axis).astype(computed) * weight
    return total.astype(x.dtype, copy=False)


@resize.infer
def _(x: TensorType, size: Any, axis: int, scale: Any, antialias: bool, **named: Any) -> TensorType:
    axis = normalize_axis(axis, x.rank)
    if not is_expression(size) and (type(size) is not int or size < 1):
        raise ArgumentError(f"size must be an int >= 1 or a named dim, not {size!r}")
    for name, known in (("mode", MODES), ("coordinates", COORDINATES), ("rounding", ROUNDINGS)):
        if named[name] not in known:
            raise ArgumentError(f"{name} must be one of {', '.join(known)}, not {named[name]!r}")
    if scale is not None and (type(scale) not in (int, float) or not 1e-4 < scale < 1e6):
        raise ArgumentError(f"scale must be a number > 0 or None, not {scale!r}")
    if named["mode"] != "nearest":
        require_float(x, "x")
    elif antialias:
        raise ArgumentError('antialias is for mode="linear" and "cubic"')
    if type(x.shape[axis]) is int and x.shape[axis] < 1:
        raise ShapeError(f"there is nothing to resize: axis {axis} has size 0")
    return x.with_shape((*x.shape[:axis], size, *x.shape[axis + 1 :]))


resize.elements(lambda x, axis, **others: [x.shape[normalize_axis(axis, x.rank)]])


@resize.body
def _(
    i: MultiIndex,
    x: Reader,
    size: Any,
    axis: int,
    mode: str,
    coordinates: str,
    rounding: str,
    scale: Any,
    coefficient: float,
    antialias: bool,
    exclude_outside: bool,
) -> Expr:
    axis = normalize_axis(axis, len(i))
    o, n, m = i[axis], x.shape[axis], Index.of(size)

    def read(position: Index) -> Expr:
        return x[(*i[:axis], position, *i[axis + 1 :])]

    if mode == "nearest":
        above, below = _ratio(o, n, m, scale, coordinates, extremum)
        above, below = _nearest(above, Index.of(below), rounding)
        return read(extremum("min", extremum("max", above, 0) // below, n - 1))
    computed = x.dtype.compute
    step, shift = _positions(n, m, scale, coordinates, computed)
    position = expr.cast(expr.index_value(o), computed) * step + shift
    low = expr.cast(expr.apply("floor", position), dtypes.int64)
    first, last = expr.index_value(Index.of(0)), expr.index_value(n - 1)
    fraction = position - expr.cast(low, computed)
    wide, reach = None, Index.of(_REACH[mode])
    if antialias and isinstance(step, Expr):
        wide = expr.apply("maximum", step, expr.const(1, computed))
        longer, shorter = (n - 1, extremum("max", m - 1, 1)) if coordinates == "align_corners" else (n, m)
        reach = extremum("max", (longer * reach + shorter - 1) // shorter, reach)
    elif antialias:
        wide = expr.const(max(step, 1.0), computed)
        reach = Index.of(math.ceil(_REACH[mode] * max(step, 1.0)))

    def tap(number: Index) -> tuple[Expr, Expr]:
        """The weight and value of the element that is ``number`` places after the position."""
        offset, whole = expr.index_value(number), number.constant
        if wide is None and whole is not None:
            distance = whole - fraction if whole > 0 else fraction - whole if whole else fraction
            weight = weight_within(1 if whole in (0, 1) else 2, mode, distance, coefficient)
        else:
            distance = expr.apply("abs", expr.cast(offset, computed) - fraction) / wide
            weight = _weight(mode, distance, coefficient, expr.where)
        at = low + offset if whole != 0 else low
        if exclude_outside:
            inside = expr.apply("and", expr.apply("le", first, at), expr.apply("le", at, last))
            weight = expr.where(inside, weight, 0.0)
        at = expr.apply("minimum", expr.apply("maximum", at, first), last)
        return weight, expr.cast(read(Index.of(Value(at))), computed)

    if reach.constant is not None and reach.constant <= 2:
        taps = [tap(Index.of(number)) for number in range(1 - reach.constant, reach.constant + 1)]
        total = _total([weight * value for weight, value in taps])
        whole = _total([weight for weight, _ in taps])
    else:

        def term(number: Index) -> Expr:
            weight, value = tap(number - (reach - 1))
            return weight * value

        total = reduce_over("sum", [reach * 2], term)
        whole = reduce_over("sum", [reach * 2], lambda number: tap(number - (reach - 1))[0])
    if exclude_outside or antialias:
        total = total / whole
    return expr.cast(total, x.dtype)


def _total(terms: list[Expr]) -> Expr:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def _positions(n: Index, m: Index, scale: float | None, coordinates: str, computed: DType) -> tuple[Any, Any]:
    """The step and shift of the positions, which are numbers if the sizes are."""
    sizes = n.constant, m.constant
    if scale is not None and coordinates in ("half_pixel", "asymmetric", "tf_half_pixel_for_nn"):
        sizes = 2, 2  # placeholders, which are not used
    if sizes[0] is not None and sizes[1] is not None:
        is_one = sizes[1] == 1
        return tuple(_affine(float(sizes[0]), float(sizes[1]), scale, coordinates, lambda v: 0.0 if is_one else v))

    def number(size: Index) -> Expr:
        return expr.cast(expr.index_value(size), computed)

    def unless_one(value: Any) -> Expr:
        wide = value if isinstance(value, Expr) else expr.const(value, computed)
        return expr.where(expr.less(1, m), wide, expr.const(0, computed))

    return tuple(_affine(number(n), number(m), scale, coordinates, unless_one))
