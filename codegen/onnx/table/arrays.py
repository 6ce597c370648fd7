"""Ops that make, cut, join and rearrange arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxlite.codegen.onnx.builder import TO_END, Builder
from fxlite.codegen.onnx.registry import Value, exports, no
from fxlite.types import dtypes, shapes
from fxlite.types.tensor_type import TensorType


@exports("reshape")
def reshape(b: Builder, type: TensorType, x: Value, shape: Any) -> str:
    return str(b.op("Reshape", x, b.shape(type.shape), allowzero=1 if 0 in type.shape else None))


@exports("flatten")
def flatten(b: Builder, type: TensorType, x: Value, **_: Any) -> str:
    return str(reshape(b, type, x, None))


@exports("permute")
def permute(b: Builder, type: TensorType, x: Value, axes: Sequence[int]) -> str:
    if not type.rank:
        return x.name
    return str(b.op("Transpose", x, perm=[a % type.rank for a in axes]))


@exports("expand")
def expand(b: Builder, type: TensorType, x: Value, shape: Any) -> str:
    return str(b.op("Expand", x, b.sizes(type.shape)))


@exports("squeeze")
def squeeze(b: Builder, type: TensorType, x: Value, axis: int) -> str:
    return str(b.op("Squeeze", x, b.integers(axis % x.type.rank)))


@exports("unsqueeze")
def unsqueeze(b: Builder, type: TensorType, x: Value, axis: int) -> str:
    return str(b.op("Unsqueeze", x, b.integers(axis % type.rank)))


def cut(b: Builder, x: Any, axis: int, start: Any, stop: Any, step: int = 1) -> str:
    """``x[start:stop:step]`` along one axis."""
    end = b.integers(TO_END if step > 0 else -TO_END) if stop is None else b.size(stop)
    return str(b.op("Slice", x, b.size(start), end, b.integers(axis), None if step == 1 else b.integers(step)))


@exports("slice")
def slice_(b: Builder, type: TensorType, x: Value, axis: int, start: Any, stop: Any, step: int) -> str:
    return cut(b, x, axis % x.type.rank, start, stop, step)


@exports("flip")
def flip(b: Builder, type: TensorType, x: Value, axis: int) -> str:
    return cut(b, x, axis % type.rank, -1, None, -1)


@exports("roll")
def roll(b: Builder, type: TensorType, x: Value, shift: int, axis: int) -> str:
    axis %= type.rank
    size = type.shape[axis]
    if size in (0, 1):
        return x.name
    back = shapes.remainder(shift, size)
    middle = size - back
    return str(b.op("Concat", cut(b, x, axis, middle, None), cut(b, x, axis, 0, middle), axis=axis))


@exports("select")
def select(b: Builder, type: TensorType, x: Value, axis: int, index: Any) -> str:
    at = b.number(index, dtypes.int64) if isinstance(index, int) else b.op("Squeeze", b.size(index), b.integers(0))
    return str(b.op("Gather", x, at, axis=axis % x.type.rank))


@exports("concat")
def concat(b: Builder, type: TensorType, tensors: Sequence[Any], axis: int) -> str:
    return str(b.op("Concat", *(b.operand(t, type.dtype) for t in tensors), axis=axis % type.rank))


@exports("stack")
def stack(b: Builder, type: TensorType, tensors: Sequence[Any], axis: int) -> str:
    at = b.integers(axis % type.rank)
    return str(
        b.op("Concat", *(b.op("Unsqueeze", b.operand(t, type.dtype), at) for t in tensors), axis=axis % type.rank)
    )


@exports("split")
def split(b: Builder, type: Any, x: Value, sizes: Sequence[Any], axis: int) -> list[str]:
    made = b.op("Split", x, b.sizes(sizes), results=len(sizes), axis=axis % x.type.rank)
    return [made] if isinstance(made, str) else list(made)


@exports("pad")
def pad(b: Builder, type: TensorType, x: Value, padding: Any, value: Any) -> str:
    if not type.rank:
        return x.name
    ends = [low for low, _ in padding] + [high for _, high in padding]
    return str(b.op("Pad", x, b.sizes(ends), b.number(value, type.dtype)))


@exports("tril", "triu")
def triangle(b: Builder, type: TensorType, x: Value, k: int) -> str:
    upper = b.kind == "triu"
    return str(b.op("Trilu", x, b.number(k, dtypes.int64), upper=int(upper)))


@exports("full", "zeros", "ones")
def full(b: Builder, type: TensorType, shape: Any, value: Any = None, dtype: Any = None) -> str:
    if b.kind != "full":
        value = 0 if b.kind == "zeros" else 1
    if not isinstance(value, int | float | complex | np.generic):
        number = b.cast(b.op("Squeeze", b.size(value), b.integers(0)), dtypes.int64, type.dtype)
        return str(b.op("Expand", number, b.sizes(type.shape))) if type.rank else number
    if all(isinstance(d, int) for d in type.shape):
        if type.rank == 0:
            return b.number(value, type.dtype)
        if 0 in type.shape:
            return b.constant(np.zeros(type.shape, type.dtype.numpy))
    if type.dtype is dtypes.bfloat16:
        return str(b.op("Expand", b.number(value, type.dtype), b.sizes(type.shape)))
    held = b.onnx.numpy_helper.from_array(np.full(1, value, type.dtype.numpy), "value")
    return str(b.op("ConstantOfShape", b.sizes(type.shape), value=held))


@exports("arange")
def arange(b: Builder, type: TensorType, start: Any, stop: Any, step: Any, dtype: Any) -> str:
    if stop is None:
        start, stop = 0, start
    if all(isinstance(v, int | float) for v in (start, stop, step)):
        return b.constant(np.arange(start, stop, step).astype(type.dtype.numpy))
    ends = [b.op("Squeeze", b.size(v), b.integers(0)) for v in (start, stop, step)]
    return b.cast(b.op("Range", *ends), dtypes.int64, type.dtype)


@exports("one_hot")
def one_hot(b: Builder, type: TensorType, x: Value, num_classes: Any, dtype: Any) -> str:
    index = b.cast(x, x.type.dtype, dtypes.int64)
    if isinstance(num_classes, int):
        depth = b.number(num_classes, dtypes.int64)
    else:
        depth = b.op("Squeeze", b.size(num_classes), b.integers(0))
    numbers = b.constant(np.array([0, 1], np.float32 if type.dtype.is_float else np.int64))
    if not x.type.rank:  # OneHot takes no single number
        index = b.op("Unsqueeze", index, b.integers(0))
    found = b.op("OneHot", index, depth, numbers)
    if not x.type.rank:
        found = b.op("Squeeze", found, b.integers(0))
    return b.cast(found, dtypes.float32 if type.dtype.is_float else dtypes.int64, type.dtype)


@exports("philox")
def philox(b: Builder, type: TensorType, **_: Any) -> str:
    raise no("random numbers of fxlite's generator are not written; draw them outside")
