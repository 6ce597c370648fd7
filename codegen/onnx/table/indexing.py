"""Reading and writing at positions, sorting, sums along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxlite.codegen.onnx.builder import Builder
from fxlite.codegen.onnx.registry import Value, exports
from fxlite.codegen.onnx.table.arrays import cut
from fxlite.types import dtypes
from fxlite.types.shapes import product
from fxlite.types.tensor_type import TensorType


def _wide(b: Builder, index: Any) -> str:
    """An index as i64."""
    return b.operand(index, dtypes.int64)


@exports("take")
def take(b: Builder, type: TensorType, x: Value, index: Any, axis: int) -> str:
    return str(b.op("Gather", x, _wide(b, index), axis=axis % x.type.rank))


@exports("embedding")
def embedding(b: Builder, type: TensorType, x: Value, weight: Value) -> str:
    return str(b.op("Gather", weight, _wide(b, x), axis=0))


@exports("gather")
def gather(b: Builder, type: TensorType, x: Value, index: Value, axis: int) -> str:
    """GatherElements takes parts of other axes, where fxlite broadcasts."""
    axis %= type.rank
    source = [s if a == axis else d for a, (s, d) in enumerate(zip(x.type.shape, type.shape))]
    whole = x.name if tuple(source) == x.type.shape else b.op("Expand", x, b.sizes(source))
    at = _wide(b, index)
    if index.type.shape != type.shape:
        at = b.op("Expand", at, b.sizes(type.shape))
    return str(b.op("GatherElements", whole, at, axis=axis))


@exports("index")
def index(b: Builder, type: TensorType, x: Value, indices: Sequence[Any], axis: int) -> str:
    """GatherND, whose indexed axes come first: others go behind them and back."""
    axis %= x.type.rank
    count, rank = len(indices), x.type.rank
    common = type.rank - (rank - count)  # axes of the indices
    shape = type.shape[axis : axis + common]
    rows = []
    for value in indices:
        at = _wide(b, value)
        if getattr(getattr(value, "type", None), "shape", ()) != shape:
            at = b.op("Expand", at, b.sizes(shape))
        rows.append(b.op("Unsqueeze", at, b.integers(common)))
    places = rows[0] if count == 1 else b.op("Concat", *rows, axis=common)
    source = x.name
    if axis:
        order = [*range(axis, axis + count), *range(axis), *range(axis + count, rank)]
        source = b.op("Transpose", source, perm=order)
    found = b.op("GatherND", source, places)
    if axis and common:
        back = [*range(common, common + axis), *range(common), *range(common + axis, type.rank)]
        found = b.op("Transpose", found, perm=back)
    return str(found)


@exports("scatter_add", kind="add")
@exports("scatter_mul", kind="mul")
@exports("scatter_max", kind="max")
@exports("scatter_min", kind="min")
@exports("scatter_set", kind="none")
def scatter(b: Builder, type: TensorType, x: Any, index: Any, source: Any, axis: int) -> str:
    values = b.operand(source, type.dtype)
    return str(
        b.op(
            "ScatterElements",
            b.operand(x, type.dtype),
            _wide(b, index),
            values,
            axis=axis % type.rank,
            reduction=b.kind,
        )
    )


@exports("slice_update")
def slice_update(b: Builder, type: TensorType, x: Any, values: Any, at: Sequence[Any]) -> str:
    return str(index_update(b, type, x, values, (), at))


@exports("index_update")
def index_update(b: Builder, type: TensorType, x: Any, values: Any, positions: Sequence[Any], at: Sequence[Any]) -> str:
    """The numbers of all elements are cut as the program cuts the array, and the values go to those that
    are left."""
    total = product(type.shape)
    numbers = _numbers(b, total)
    part = b.op("Reshape", numbers, b.shape(type.shape), allowzero=1 if 0 in type.shape else None)
    axis, waiting = 0, list(positions)
    for place in at:
        if place is None:
            part = b.op("Gather", part, _wide(b, waiting.pop(0)), axis=axis)
        elif isinstance(place, tuple):
            start, stop, step = place
            if (start, stop, step) != (0, None, 1):
                part = cut(b, part, axis, start, stop, step)
            axis += 1
        else:
            index = b.op("Squeeze", b.size(place), b.integers(0))
            part = b.op("Gather", part, index, axis=axis)
    new = b.op("Expand", b.operand(values, type.dtype), b.op("Shape", part))
    flat = b.integers(-1)
    places = b.op("Reshape", part, flat)
    held = b.op("Reshape", b.operand(x, type.dtype), flat)
    found = b.op("ScatterElements", held, places, b.op("Reshape", new, flat), axis=0)
    return str(b.op("Reshape", found, b.shape(type.shape), allowzero=1 if 0 in type.shape else None))


def _numbers(b: Builder, total: Any) -> str:
    if isinstance(total, int) and total <= 64:
        return b.constant(np.arange(total))
    end = b.op("Squeeze", b.size(total), b.integers(0))
    return str(b.op("Range", b.number(0, dtypes.int64), end, b.number(1, dtypes.int64)))


# -- along an axis ---------------------------------------------------------------------------------
@exports("cumsum")
def cumsum(b: Builder, type: TensorType, x: Value, axis: int) -> str:
    wide = type.dtype
    if wide not in (dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64):
        wide = dtypes.float32 if wide.is_float else dtypes.int64
    found = b.op("CumSum", b.operand(x, wide), b.number(axis % type.rank, dtypes.int64))
    return b.cast(found, wide, type.dtype)


def _ranked(b: Builder, x: Value, k: str, axis: int, largest: bool) -> tuple[str, str]:
    """Values and positions of TopK, which has fewer types: others are widened, in the same order."""
    wide = x.type.dtype
    if wide not in (dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64):
        wide = dtypes.float32 if wide.is_float else dtypes.int64
    values, places = b.op("TopK", b.operand(x, wide), k, results=2, axis=axis, largest=int(largest))
    return b.cast(values, wide, x.type.dtype), places


@exports("argtopk")
def argtopk(b: Builder, type: TensorType, x: Value, k: Any, axis: int, largest: bool) -> str:
    return _ranked(b, x, b.size(k), axis % type.rank, largest)[1]


@exports("argsort", "sort")
def sort(b: Builder, type: TensorType, x: Value, axis: int) -> str:
    axis %= type.rank
    found = _ranked(b, x, b.size(type.shape[axis]), axis, False)
    return found[0 if b.kind == "sort" else 1]
