"""Ops that create, slice, join and rearrange arrays, read and write at positions, sort, and sum along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxlite.codegen.onnx.builder import Builder, Value, exports, no
from fxlite.types import dtypes, shapes
from fxlite.types.dtypes import DType
from fxlite.types.shapes import product
from fxlite.types.tensor_type import TensorType


@exports("reshape", "flatten")
def reshape(b: Builder, type: TensorType, x: Value, **_: Any) -> str:
    return b.reshape(x, type.shape)


@exports("permute")
def permute(b: Builder, type: TensorType, x: Value, axes: Sequence[int]) -> str:
    if not type.rank:
        return x.name
    return b.op("Transpose", x, perm=[a % type.rank for a in axes])


@exports("expand")
def expand(b: Builder, type: TensorType, x: Value, shape: Any) -> str:
    return b.expand(x, type.shape)


@exports("squeeze")
def squeeze(b: Builder, type: TensorType, x: Value, axis: int) -> str:
    return b.op("Squeeze", x, b.integers(axis % x.type.rank))


@exports("unsqueeze")
def unsqueeze(b: Builder, type: TensorType, x: Value, axis: int) -> str:
    return b.op("Unsqueeze", x, b.integers(axis % type.rank))


@exports("slice")
def slice_(b: Builder, type: TensorType, x: Value, axis: int, start: Any, stop: Any, step: int) -> str:
    return b.cut(x, axis % x.type.rank, start, stop, step)


@exports("flip")
def flip(b: Builder, type: TensorType, x: Value, axis: int) -> str:
    return b.cut(x, axis % type.rank, -1, None, -1)


@exports("roll")
def roll(b: Builder, type: TensorType, x: Value, shift: int, axis: int) -> str:
    axis %= type.rank
    size = type.shape[axis]
    if size in (0, 1):
        return x.name
    back = shapes.remainder(shift, size)
    middle = size - back
    return b.op("Concat", b.cut(x, axis, middle, None), b.cut(x, axis, 0, middle), axis=axis)


@exports("unfold")
def unfold(b: Builder, type: TensorType, x: Value, axis: int, size: Any, step: int) -> str:
    axis %= x.type.rank
    first, within = (b.counting(n) for n in (type.shape[axis], type.shape[-1]))
    first = b.op("Unsqueeze", b.op("Mul", first, b.integers(step)), b.integers(1))
    taken = b.op("Gather", x, b.op("Add", first, within), axis=axis)
    order = (*range(axis + 1), *range(axis + 2, type.rank), axis + 1)
    return b.op("Transpose", taken, perm=order)


@exports("select")
def select(b: Builder, type: TensorType, x: Value, axis: int, index: Any) -> str:
    at = b.number(index, dtypes.int64) if isinstance(index, int) else b.number_of(index)
    return b.pick(x, axis % x.type.rank, at)


@exports("concat")
def concat(b: Builder, type: TensorType, tensors: Sequence[Any], axis: int) -> str:
    return b.op("Concat", *(b.operand(t, type.dtype) for t in tensors), axis=axis % type.rank)


@exports("stack")
def stack(b: Builder, type: TensorType, tensors: Sequence[Any], axis: int) -> str:
    at = b.integers(axis % type.rank)
    return b.op("Concat", *(b.op("Unsqueeze", b.operand(t, type.dtype), at) for t in tensors), axis=axis % type.rank)


@exports("split")
def split(b: Builder, type: Any, x: Value, sizes: Sequence[Any], axis: int) -> list[str]:
    return b.results(len(sizes), "Split", x, b.sizes(sizes), axis=axis % x.type.rank)


@exports("pad")
def pad(b: Builder, type: TensorType, x: Value, padding: Any, value: Any) -> str:
    if not type.rank:
        return x.name
    ends = [low for low, _ in padding] + [high for _, high in padding]
    return b.op("Pad", x, b.sizes(ends), b.number(value, type.dtype))


@exports("tril", "triu")
def triangle(b: Builder, type: TensorType, x: Value, k: int) -> str:
    return b.op("Trilu", x, b.number(k, dtypes.int64), upper=int(b.kind == "triu"))


@exports("full", "zeros", "ones")
def full(b: Builder, type: TensorType, shape: Any, value: Any = None, dtype: Any = None) -> str:
    if b.kind != "full":
        value = 0 if b.kind == "zeros" else 1
    if not isinstance(value, int | float | complex | np.generic):
        number = b.cast(b.number_of(value), dtypes.int64, type.dtype)
        return b.expand(number, type.shape) if type.rank else number
    if all(isinstance(d, int) for d in type.shape):
        if type.rank == 0:
            return b.number(value, type.dtype)
        if 0 in type.shape:
            return b.constant(np.zeros(type.shape, type.dtype.numpy))
    if type.dtype is dtypes.bfloat16:
        return b.expand(b.number(value, type.dtype), type.shape)
    held = b.onnx.numpy_helper.from_array(np.full(1, value, type.dtype.numpy), "value")
    return b.op("ConstantOfShape", b.sizes(type.shape), value=held)


@exports("arange")
def arange(b: Builder, type: TensorType, start: Any, stop: Any, step: Any, dtype: Any) -> str:
    if stop is None:
        start, stop = 0, start
    if all(isinstance(v, int | float) for v in (start, stop, step)):
        return b.constant(np.arange(start, stop, step).astype(type.dtype.numpy))
    ends = [b.number_of(v) for v in (start, stop, step)]
    return b.cast(b.op("Range", *ends), dtypes.int64, type.dtype)


@exports("one_hot")
def one_hot(b: Builder, type: TensorType, x: Value, num_classes: Any, dtype: Any) -> str:
    index = b.cast(x, x.type.dtype, dtypes.int64)
    depth = b.number(num_classes, dtypes.int64) if isinstance(num_classes, int) else b.number_of(num_classes)
    numbers = b.constant(np.array([0, 1], np.float32 if type.dtype.is_float else np.int64))
    if not x.type.rank:  # OneHot does not take a single number
        index = b.op("Unsqueeze", index, b.integers(0))
    found = b.op("OneHot", index, depth, numbers)
    if not x.type.rank:
        found = b.op("Squeeze", found, b.integers(0))
    return b.cast(found, dtypes.float32 if type.dtype.is_float else dtypes.int64, type.dtype)


@exports("philox")
def philox(b: Builder, type: TensorType, **_: Any) -> str:
    raise no("random numbers of fxlite's generator are not written; draw them outside")


# -- at positions ----------------------------------------------------------------------------------
def _wide(b: Builder, index: Any) -> str:
    """An index as i64."""
    return b.operand(index, dtypes.int64)


@exports("take")
def take(b: Builder, type: TensorType, x: Value, index: Any, axis: int) -> str:
    return b.op("Gather", x, _wide(b, index), axis=axis % x.type.rank)


@exports("embedding")
def embedding(b: Builder, type: TensorType, x: Value, weight: Value) -> str:
    return b.op("Gather", weight, _wide(b, x), axis=0)


@exports("gather")
def gather(b: Builder, type: TensorType, x: Value, index: Value, axis: int) -> str:
    """Write a gather. GatherElements takes parts of other axes, while fxlite broadcasts."""
    axis %= type.rank
    source = [s if a == axis else d for a, (s, d) in enumerate(zip(x.type.shape, type.shape))]
    whole = x.name if tuple(source) == x.type.shape else b.expand(x, source)
    at = _wide(b, index)
    if index.type.shape != type.shape:
        at = b.expand(at, type.shape)
    return b.op("GatherElements", whole, at, axis=axis)


@exports("index")
def index(b: Builder, type: TensorType, x: Value, indices: Sequence[Any], axis: int) -> str:
    """Write GatherND, whose indexed axes come first: the other axes are moved behind them and back."""
    axis %= x.type.rank
    count, rank = len(indices), x.type.rank
    common = type.rank - (rank - count)  # number of axes of the indices
    shape = type.shape[axis : axis + common]
    rows = []
    for value in indices:
        at = _wide(b, value)
        if getattr(getattr(value, "type", None), "shape", ()) != shape:
            at = b.expand(at, shape)
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
    return found


@exports(scatter_add="add", scatter_mul="mul", scatter_max="max", scatter_min="min", scatter_set="none")
def scatter(b: Builder, type: TensorType, x: Any, index: Any, source: Any, axis: int, mode: str) -> str:
    values, axis = b.operand(source, type.dtype), axis % type.rank
    held, places = b.operand(x, type.dtype), _wide(b, index)
    if mode == "drop":  # the array is longer by one place, for all that is out of range
        size, zero = b.number_of(type.shape[axis]), b.number(0, dtypes.int64)
        places = b.op("Where", b.op("Less", places, zero), b.op("Add", places, size), places)
        inside = b.op("And", b.op("GreaterOrEqual", places, zero), b.op("Less", places, size))
        places = b.op("Where", inside, places, size)
        spare = [1 if a == axis else n for a, n in enumerate(type.shape)]
        held = b.op("Concat", held, b.expand(b.number(0, type.dtype), spare), axis=axis)
    found = b.op("ScatterElements", held, places, values, axis=axis, reduction=b.kind)
    return b.cut(found, axis, 0, type.shape[axis]) if mode == "drop" else found


@exports("slice_update", "index_update")
def update(b: Builder, type: TensorType, x: Any, values: Any, at: Sequence[Any], positions: Sequence[Any] = ()) -> str:
    """Number all elements, slice these numbers as the program slices the array, and scatter the values to the
    numbers that remain."""
    total = product(type.shape)
    part = b.reshape(b.counting(total), type.shape)
    axis, waiting = 0, list(positions)
    for place in at:
        if place is None:
            part = b.pick(part, axis, _wide(b, waiting.pop(0)))
        elif isinstance(place, tuple):
            start, stop, step = place
            if (start, stop, step) != (0, None, 1):
                part = b.cut(part, axis, start, stop, step)
            axis += 1
        else:
            part = b.pick(part, axis, b.number_of(place))
    shape = b.shape_of(part)
    assert shape is not None
    new = b.reshape(b.expand(b.operand(values, type.dtype), shape), (product(shape),))
    held = b.reshape(b.operand(x, type.dtype), (total,))
    found = b.op("ScatterElements", held, b.reshape(part, (product(shape),)), new, axis=0)
    return b.reshape(found, type.shape)


# -- along an axis ---------------------------------------------------------------------------------
def _ranked_type(dtype: DType) -> DType:
    """The type in which CumSum and TopK, which support few types, compute: one that holds all numbers of ``dtype``."""
    if dtype in (dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64):
        return dtype
    return dtypes.float32 if dtype.is_float else dtypes.int64


@exports("cumsum")
def cumsum(b: Builder, type: TensorType, x: Value, axis: int) -> str:
    wide = _ranked_type(type.dtype)
    found = b.op("CumSum", b.operand(x, wide), b.number(axis % type.rank, dtypes.int64))
    return b.cast(found, wide, type.dtype)


@exports(cumprod="Mul", cummax="Max", cummin="Min")
def running(b: Builder, type: TensorType, x: Value, axis: int) -> str:
    """Write a Scan whose state is the result so far, along the first axis, which all runtimes support."""
    if 0 in type.shape:  # runtimes fail on scans without elements
        return b.op("Identity", x)
    wide, base, axis = _ranked_type(type.dtype), b.result, axis % type.rank
    part = TensorType((*type.shape[:axis], *type.shape[axis + 1 :]), wide)
    limits = (-np.inf, np.inf) if wide.is_float else (np.iinfo(wide.numpy).min, np.iinfo(wide.numpy).max)
    first = {"Mul": 1, "Max": limits[0], "Min": limits[1]}[b.kind]
    start = b.expand(b.number(first, wide), part.shape)
    order = [axis, *(a for a in range(type.rank) if a != axis)]
    values = b.op("Transpose", b.operand(x, wide), perm=order)
    with b.inside() as nodes:
        names = [b.fresh(f"{base}_state"), b.fresh(f"{base}_element")]
        state = b.op(b.kind, *names)
        outputs = [b.info(name, part) for name in (state, b.op("Identity", state))]
        body = b.onnx.helper.make_graph(nodes, f"{base}_body", [b.info(name, part) for name in names], outputs)
    _, found = b.results(2, "Scan", start, values, num_scan_inputs=1, body=body)
    found = b.op("Transpose", found, perm=[order.index(a) for a in range(type.rank)])
    return b.cast(found, wide, type.dtype)


def _ranked(b: Builder, x: Value, k: Any, axis: int, largest: bool) -> list[str]:
    """The values and positions of a TopK."""
    wide = _ranked_type(x.type.dtype)
    found = b.results(2, "TopK", b.operand(x, wide), b.size(k), axis=axis, largest=int(largest))
    shape = (*x.type.shape[:axis], k, *x.type.shape[axis + 1 :])
    values, places = (b.shaped(shape, name) for name in found)
    return [b.cast(values, wide, x.type.dtype), places]


@exports("argtopk")
def argtopk(b: Builder, type: TensorType, x: Value, k: Any, axis: int, largest: bool) -> str:
    return _ranked(b, x, k, axis % type.rank, largest)[1]


@exports("argsort", "sort")
def sort(b: Builder, type: TensorType, x: Value, axis: int) -> str:
    axis %= type.rank
    found = _ranked(b, x, type.shape[axis], axis, False)
    return found[0 if b.kind == "sort" else 1]
