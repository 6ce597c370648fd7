"""Sorting: ``sort``, ``argsort``, ``argtopk``, ``searchsorted``, ``flatnonzero``.

In: a tensor and an axis. Out: its elements in ascending order (stable, NaN last, as in NumPy), or the
positions (int64) of all or of the first k of them. C uses merge sort
(``codegen/c/tiles/numeric/sorting.h``). Back ends without it count the elements that precede each one,
which takes n² comparisons.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, DTypeError, ShapeError, number_of
from fxlite.base.on_demand import is_expression
from fxlite.ops.composite import created
from fxlite.ops.op import Tensor, normalize_axis, op, ops, shape_of, weak_dtype
from fxlite.ops.parameters import Attribute
from fxlite.ops.samples import Bad, S, special, uniform
from fxlite.types import dtypes, shapes
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType

_SAMPLES = [
    "f32[B,5] B=3; i32[B,7](-3,3) axis=0 B=9; f64[2,40]; i64[3,4,5](0,3) axis=1; f32[3,9]! axis=1; f64[11]!; f16[4,9]",
    "bf16[3,8]! axis=0; u8[30](0,9); bool[2,9]; i8[5,1]; u64[6]; f32[0,3] axis=0; f32[0,3]; f32[1]",
]
_BAD = [
    Bad("f32[3]", axis=1, match="out of range"),
    Bad("f32[]", match="out of range"),
    Bad("c64[3]", match="cannot be ordered"),
]


def _steps(x: TensorType, axis: int = -1) -> Dim:
    """The number of comparisons: n log2(n) for each row; if n is a named size, log2 of the longest row that
    fits a machine is used."""
    length = x.shape[normalize_axis(axis, x.rank)]
    depth = max(length - 1, 1).bit_length() if type(length) is int else 10
    return shapes.normalize(x.size * depth)


def _ordered(x: Any) -> Any:
    """Numbers in a dtype with NumPy's order; the order of bfloat16 does not include NaN."""
    x = np.asarray(x)
    return x.astype(np.float32) if dtypes.dtype(x.dtype) is dtypes.bfloat16 else x


def _is_before(x: Any, y: Any) -> Any:
    """Whether ``x`` precedes ``y`` and is not equal to it; NaN is the last."""
    less = x < y
    if not dtypes.dtype(x.dtype).is_float:
        return less
    return less | (ops.isnan(y) & ~ops.isnan(x))


def _positions(x: Any, axis: int = -1, count: Any = None, descending: bool = False) -> Any:
    """The sorted positions, for all places or the first ``count``: the place of an element is the number of
    elements that precede it."""
    axis = normalize_axis(axis, x.ndim)
    size = x.shape[axis]
    if dtypes.dtype(x.dtype).is_bool:
        x = ops.cast(x, "i8")
    last = x if axis == x.ndim - 1 else ops.permute(x, _moved(x.ndim, axis, x.ndim - 1))
    one, other = ops.unsqueeze(last, -1), ops.unsqueeze(last, -2)
    numbers = created(x, ops.arange, 0, size, 1, "i64")
    earlier = ops.unsqueeze(numbers, 0) < ops.unsqueeze(numbers, 1)
    first, second = (one, other) if descending else (other, one)
    before = _is_before(first, second) | (earlier & ~_is_before(second, first))
    goes = ops.sum(ops.cast(before, "i64"), axis=-1)
    places = numbers if count is None else created(x, ops.arange, 0, count, 1, "i64")
    here = ops.eq(ops.unsqueeze(goes, -2), ops.unsqueeze(places, 1))
    found = ops.sum(ops.where(here, numbers, 0), axis=-1)
    return found if axis == x.ndim - 1 else ops.permute(found, _moved(x.ndim, x.ndim - 1, axis))


def _moved(rank: int, source: int, target: int) -> tuple[int, ...]:
    order = [a for a in range(rank) if a != source]
    order.insert(target, source)
    return tuple(order)


def _require_order(x: TensorType, axis: int) -> None:
    """Raise an error unless ``x`` has that axis and a dtype with an order."""
    normalize_axis(axis, x.rank)
    if x.dtype.is_complex:
        raise DTypeError(f"{x.dtype} cannot be ordered; sort by .real, .imag or abs of the numbers")


@op("composite", stands_alone=True, puts_in_order=True, needs_whole={"x": "axis"}, samples=_SAMPLES, bad=_BAD)
def argsort(x: Tensor, axis: int = -1) -> Tensor:
    """The positions (int64) that sort ``x`` in ascending order along ``axis``. The sort is stable, and NaN is
    last."""
    return np.argsort(_ordered(x), axis=axis, kind="stable")


@argsort.infer
def _(x: TensorType, axis: int) -> TensorType:
    _require_order(x, axis)
    return TensorType(x.shape, dtypes.int64)


@op(
    "composite",
    stands_alone=True,
    puts_in_order=True,
    moves_values=True,
    needs_whole={"x": "axis"},
    samples=_SAMPLES,
    bad=_BAD,
)
def sort(x: Tensor, axis: int = -1) -> Tensor:
    """``x`` in ascending order along ``axis``. The sort is stable, and NaN is last."""
    return np.sort(_ordered(x), axis=axis, kind="stable").astype(np.asarray(x).dtype)


@sort.infer
def _(x: TensorType, axis: int) -> TensorType:
    _require_order(x, axis)
    return x


argsort.expansion(_positions)


@sort.expansion
def _(x: Any, axis: int) -> Any:
    return ops.gather(x, _positions(x, axis), axis=axis)


for _record in (argsort, sort):
    _record.cost(_steps)


# -- the first few ---------------------------------------------------------------------------------
_TOP_SAMPLES = [
    "f32[B,9] 3 B=4; f64[2,200] 5; f64[300] 100; i32[3,40](-3,3) 7 largest=False; i64[3,30,5](0,3) 4 axis=1",
    "f32[3,N] 2 largest=False N=17; f32[4,40]! 9; f32[2,400]! 30; i16[500](0,3) 40 largest=False",
    "f64[40]! 6 largest=False; f16[4,9] 2; bf16[3,8]! 8 axis=-1; u8[90](0,9) 10; bool[2,9] 3; f32[5] 0; f32[0,3] 2",
    "f32[0] 0",
]


@op(
    "composite",
    stands_alone=True,
    needs_whole={"x": "axis"},
    samples=_TOP_SAMPLES,
    bad=[
        Bad("f32[3]", 4, match="has 3 elements, not 4"),
        Bad("f32[3]", -1, match="k must be"),
        Bad("f32[3]", 1, axis=1, match="out of range"),
        Bad("c64[3]", 1, match="cannot be ordered"),
    ],
)
def argtopk(x: Tensor, k: Attribute, axis: int = -1, largest: bool = True) -> Tensor:
    """The positions (int64) of the ``k`` largest elements along ``axis`` in descending order or, if ``largest``
    is False, of the smallest in ascending order. Of equal elements the first ones are taken, in order. NaN is
    the largest, as in torch.topk. ``k`` is an int or a named dim, at most the size of the axis.

    Raises ArgumentError for another ``k``, ShapeError if the axis has fewer elements, and DTypeError for
    complex numbers."""
    x = _ordered(x)
    if not largest:
        found = np.argsort(x, axis=axis, kind="stable")
    else:  # reversing the input, too, brings equal elements into the right order
        backward = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
        found = x.shape[axis] - 1 - np.flip(backward, axis)
    return np.take(found, np.arange(k), axis)


@argtopk.infer
def _(x: TensorType, k: Any, axis: int, largest: bool) -> TensorType:
    _require_order(x, axis)
    if not is_expression(k) and (type(k) is not int or k < 0):
        raise ArgumentError(f"k must be an int >= 0 or a named dim, not {k!r}")
    axis = normalize_axis(axis, x.rank)
    room = shapes.normalize(x.shape[axis] - k)
    if type(room) is int and room < 0:
        raise ShapeError(f"axis {axis} of x has {number_of(x.shape[axis], 'element')}, not {k}")
    return TensorType((*x.shape[:axis], k, *x.shape[axis + 1 :]), dtypes.int64)


@argtopk.elements
def _(x: TensorType, k: Any, axis: int, largest: bool) -> list[Dim]:
    return [shapes.normalize(x.shape[normalize_axis(axis, x.rank)] - k + 1)]


@argtopk.expansion
def _(x: Any, k: Any, axis: int, largest: bool) -> Any:
    return _positions(x, axis, k, largest)


@argtopk.cost
def _(x: TensorType, k: Any, axis: int, largest: bool) -> Dim:
    return shapes.normalize(2 * x.size)


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
        "f32[0] f32[3]",
        S(np.array([0.25]), "f64[]"),
        S(np.array([-0.5, 0.5], np.float16), "f16[7]"),
        "bf16[1] bf16[7]",
    ],
    bad=[
        Bad("f32[3,2]", "f32[3]", match="rank 1"),
        Bad("f32[3]", "f64[3]", match="one dtype"),
        Bad("f32[3]", "f32[3]", side="middle", match="side must be"),
    ],
)
def searchsorted(x: Tensor, values: Tensor, side: str = "left") -> Tensor:
    """The position (int64) at which each of ``values`` would be inserted into ``x`` [n], which must be sorted
    in ascending order: before equal elements (``side="left"``) or after them ("right"). NaN is the largest.

    Raises ShapeError unless ``x`` has rank 1, DTypeError if the dtypes differ, and ArgumentError for another
    side."""
    return np.searchsorted(np.asarray(x), values, side=side)  # type: ignore[call-overload]


@searchsorted.infer
def _(x: TensorType, values: Any, side: str) -> TensorType:
    if x.rank != 1:
        raise ShapeError(f"x must have rank 1, not {x.rank}")
    if weak_dtype(values) is not x.dtype:
        raise DTypeError(f"x and values must have one dtype, not {x.dtype} and {values}")
    if x.dtype.is_complex:
        raise DTypeError(f"{x.dtype} cannot be ordered; search among .real, .imag or abs")
    if side not in ("left", "right"):
        raise ArgumentError(f'side must be "left" or "right", not {side!r}')
    return TensorType(shape_of(values), dtypes.int64)


@searchsorted.expansion
def _(x: Any, values: Any, side: str) -> Any:
    values = ops.unsqueeze(values, -1)
    if dtypes.dtype(x.dtype).is_bool:
        x, values = ops.cast(x, "i8"), ops.cast(values, "i8")
    before = _is_before(x, values) if side == "left" else ~_is_before(values, x)
    return ops.sum(ops.cast(before, "i64"), axis=-1)


@searchsorted.cost
def _(x: TensorType, values: Any, side: str) -> Dim:
    length = x.shape[0]
    depth = length.bit_length() if type(length) is int else 10
    return shapes.normalize(shapes.product(shape_of(values)) * depth)


# -- positions of true elements --------------------------------------------------------------------
@op(
    "composite",
    stands_alone=True,
    needs_whole={"x": (0,)},
    samples=["bool[N] N=9; bool[1]; bool[300]; bool[0]", S("bool[40]", size=5), S("bool[N]", size=8, dims={"N": 9})],
    bad=[Bad("bool[3,2]", match="rank 1"), Bad("f32[3]", match="bool"), Bad("bool[3]", size=4, match="size is 4")],
)
def flatnonzero(x: Tensor, size: int | None = None) -> Tensor:
    """The positions (int64 [size]) at which the mask ``x`` (bool [n]) is true, in order, followed by zeros, as
    jnp.nonzero with ``size``. If there are more than ``size``, only the first ones. The default of ``size`` is n.

    Raises ShapeError unless ``x`` has rank 1 and at least ``size`` elements, and DTypeError unless it is bool."""
    found = np.zeros(len(x) if size is None else size, np.int64)
    places = np.flatnonzero(x)[: len(found)]
    found[: len(places)] = places
    return found


@flatnonzero.infer
def _(x: TensorType, size: int | None) -> TensorType:
    if x.rank != 1:
        raise ShapeError(f"x must have rank 1, not {x.rank}")
    if not x.dtype.is_bool:
        raise DTypeError(f"x must be bool, not {x.dtype}; compare it with 0")
    if size is not None and shapes.decide(size, "<=", x.shape[0]) is False:
        raise ShapeError(f"size is {size}, but x has {number_of(x.shape[0], 'element')}")
    return TensorType(x.shape if size is None else (size,), dtypes.int64)


@flatnonzero.expansion
def _(x: Any, size: int | None) -> Any:
    whole = x.shape[0]
    size = whole if size is None else size
    before = ops.cumsum(ops.cast(x, "i64"), axis=0) - 1
    place = ops.where(x, ops.minimum(before, size), size)
    empty = created(x, ops.full, (size + 1,), 0, "i64")
    found = ops.scatter_set(empty, place, created(x, ops.arange, 0, whole, 1, "i64"), axis=0)
    return ops.slice(found, 0, 0, size)


flatnonzero.cost(lambda x, size=None: x.size)
