"""Sorting: ``sort``, ``argsort``, ``searchsorted``.

In: a tensor and an axis. Out: its elements in ascending order, equal ones as they stood, NaN last,
as NumPy has it; or their positions (int64). C merges (``codegen/c/tiles/numeric/sorting.h``); back ends
without that count for each element those before it, which takes n² comparisons.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, DTypeError, ShapeError
from fxlite.ops.composite import created
from fxlite.ops.op import Tensor, normalize_axis, op, ops, shape_of, weak_dtype
from fxlite.ops.samples import Bad, S, special, uniform
from fxlite.types import dtypes, shapes
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType

_SAMPLES = [
    S("f32[B,5]", dims={"B": 3}),
    S(uniform("i32[B,7]", -3, 3), axis=0, dims={"B": 9}),
    S("f64[2,40]"),
    S(uniform("i64[3,4,5]", 0, 3), axis=1),
    S(special("f32[3,9]"), axis=1),
    S(special("f64[11]")),
    S("f16[4,9]"),
    S("bf16[3,8]", axis=0),
    S(uniform("u8[30]", 0, 9)),
    S("bool[2,9]"),
    S("i8[5,1]"),
    S("u64[6]"),
    S("f32[0,3]", axis=0),
    S("f32[0,3]"),
    S("f32[1]"),
]
_BAD = [
    Bad("f32[3]", axis=1, match="out of range"),
    Bad("f32[]", match="out of range"),
    Bad("c64[3]", match="in no order"),
]


def _steps(x: TensorType, axis: int = -1) -> Dim:
    """Comparisons: n log2(n) of each row, as for the longest that a machine holds where its size is
    a name."""
    length = x.shape[normalize_axis(axis, x.rank)]
    depth = max(length - 1, 1).bit_length() if type(length) is int else 10
    return shapes.normalize(x.size * depth)


def _is_before(x: Any, y: Any) -> Any:
    """Whether ``x`` stands before ``y``, and is not equal: NaN is the last."""
    less = x < y
    if not dtypes.dtype(x.dtype).is_float:
        return less
    return less | (ops.isnan(y) & ~ops.isnan(x))


def _positions(x: Any, axis: int = -1) -> Any:
    """How many elements stand before each one, which is where it goes; and who goes where."""
    axis = normalize_axis(axis, x.ndim)
    size = x.shape[axis]
    if dtypes.dtype(x.dtype).is_bool:
        x = ops.cast(x, "i8")
    last = x if axis == x.ndim - 1 else ops.permute(x, _moved(x.ndim, axis, x.ndim - 1))
    one, other = ops.unsqueeze(last, -1), ops.unsqueeze(last, -2)
    numbers = created(x, ops.arange, 0, size, 1, "i64")
    earlier = ops.unsqueeze(numbers, 0) < ops.unsqueeze(numbers, 1)
    before = _is_before(other, one) | (earlier & ~_is_before(one, other))
    goes = ops.sum(ops.cast(before, "i64"), axis=-1)
    here = ops.eq(ops.unsqueeze(goes, -2), ops.unsqueeze(numbers, 1))
    found = ops.sum(ops.where(here, numbers, 0), axis=-1)
    return found if axis == x.ndim - 1 else ops.permute(found, _moved(x.ndim, x.ndim - 1, axis))


def _moved(rank: int, source: int, target: int) -> tuple[int, ...]:
    order = [a for a in range(rank) if a != source]
    order.insert(target, source)
    return tuple(order)


def _require_order(x: TensorType, axis: int) -> None:
    """Raise unless ``x`` has that axis, and numbers that are in an order."""
    normalize_axis(axis, x.rank)
    if x.dtype.is_complex:
        raise DTypeError(f"{x.dtype} is in no order; sort by .real, .imag or abs of the numbers")


@op("composite", stands_alone=True, needs_whole={"x": "axis"}, samples=_SAMPLES, bad=_BAD)
def argsort(x: Tensor, axis: int = -1) -> Tensor:
    """Positions (int64) that bring ``x`` into ascending order along ``axis``; equal elements keep
    theirs, NaN is the last."""
    return np.argsort(np.asarray(x), axis=axis, kind="stable")


@argsort.infer
def _(x: TensorType, axis: int = -1) -> TensorType:
    _require_order(x, axis)
    return TensorType(x.shape, dtypes.int64)


@op("composite", stands_alone=True, moves_values=True, needs_whole={"x": "axis"}, samples=_SAMPLES, bad=_BAD)
def sort(x: Tensor, axis: int = -1) -> Tensor:
    """``x`` in ascending order along ``axis``; equal elements stay in their order, NaN is the
    last."""
    return np.sort(np.asarray(x), axis=axis, kind="stable")


@sort.infer
def _(x: TensorType, axis: int = -1) -> TensorType:
    _require_order(x, axis)
    return x


argsort.expansion(_positions)


@sort.expansion
def _(x: Any, axis: int = -1) -> Any:
    return ops.gather(x, _positions(x, axis), axis=axis)


for _record in (argsort, sort):
    _record.cost(_steps)


# -- searching -------------------------------------------------------------------------------------
@op(
    "composite",
    numpy="np.searchsorted x values side=",
    stands_alone=True,
    needs_whole={"x": (0,)},
    samples=[
        S(np.array([-1.0, 0.0, 0.0, 2.0], np.float32), "f32[B,5]", dims={"B": 3}),
        S(np.array([-1.0, 0.0, 0.0, 2.0]), special("f64[9]"), side="right"),
        S(np.array([1, 3, 3, 7]), uniform("i64[2,3]", 0, 9)),
        S(np.array([1, 3, 3, 7], np.uint8), uniform("u8[6]", 0, 9), side="right"),
        S(np.array([0.5, np.inf, np.nan], np.float32), special("f32[9]")),
        S("f32[0]", "f32[3]"),
        S(np.array([0.25]), "f64[]"),
        S(np.array([-0.5, 0.5], np.float16), "f16[7]"),
        S("bf16[1]", "bf16[7]"),
    ],
    bad=[
        Bad("f32[3,2]", "f32[3]", match="rank 1"),
        Bad("f32[3]", "f64[3]", match="one dtype"),
        Bad("f32[3]", "f32[3]", side="middle", match="side must be"),
    ],
)
def searchsorted(x: Tensor, values: Tensor, side: str = "left") -> Tensor:
    """Where (int64) each of ``values`` would stand in ``x`` [n], which ascends: before those that
    are equal to it (``side="left"``) or behind them ("right"). NaN is the largest number.

    Raises ShapeError unless ``x`` has rank 1, DTypeError for two dtypes, ArgumentError for another
    side."""
    return np.searchsorted(np.asarray(x), values, side=side)  # type: ignore[call-overload]


@searchsorted.infer
def _(x: TensorType, values: Any, side: str = "left") -> TensorType:
    if x.rank != 1:
        raise ShapeError(f"x must have rank 1, not {x.rank}")
    if weak_dtype(values) is not x.dtype:
        raise DTypeError(f"x and values must have one dtype, not {x.dtype} and {values}")
    if x.dtype.is_complex:
        raise DTypeError(f"{x.dtype} is in no order; search among .real, .imag or abs")
    if side not in ("left", "right"):
        raise ArgumentError(f'side must be "left" or "right", not {side!r}')
    return TensorType(shape_of(values), dtypes.int64)


@searchsorted.expansion
def _(x: Any, values: Any, side: str = "left") -> Any:
    values = ops.unsqueeze(values, -1)
    if dtypes.dtype(x.dtype).is_bool:
        x, values = ops.cast(x, "i8"), ops.cast(values, "i8")
    before = _is_before(x, values) if side == "left" else ~_is_before(values, x)
    return ops.sum(ops.cast(before, "i64"), axis=-1)


@searchsorted.cost
def _(x: TensorType, values: Any, side: str = "left") -> Dim:
    length = x.shape[0]
    depth = length.bit_length() if type(length) is int else 10
    return shapes.normalize(shapes.product(shape_of(values)) * depth)
