"""ATen's indexing and its makers of values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxlite.importing.torch.table import (
    Call,
    along,
    as_array,
    aten,
    axis_of,
    cast,
    dtype_of_value,
    is_number,
    op,
    rank_of,
    same,
    same_sizes,
    shape_of,
)
from fxlite.types import dtypes


@aten("index", "_unsafe_index")
def _index(c: Call, x: Any, indices: Any) -> Any:
    """x[indices], None for a whole axis. Masks select an unknown number of elements: refused."""
    if any(i is not None and dtype_of_value(i) is dtypes.bool_ for i in indices) and not all(
        i is None or isinstance(i, np.ndarray) for i in indices
    ):
        raise c.refuse("a mask selects a number of elements that depends on its values")
    return x[tuple(slice(None) if i is None else i for i in indices)]


@aten("index_select")
def _index_select(c: Call, x: Any, dim: int, index: Any) -> Any:
    return op("take")(x, index, axis_of(x, dim))


@aten("take")
def _take(c: Call, x: Any, index: Any) -> Any:
    return op("take")(x.reshape(-1), index, 0)


@aten("gather")
def _gather(c: Call, x: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    """Torch lets the index be smaller than the value along other axes, which is cut then."""
    return op("gather")(_cut(x, index, dim), index, axis_of(x, dim))


same("take_along_dim", lambda x, index, dim: np.take_along_axis(x, index, dim))


def _cut(x: Any, index: Any, dim: int) -> Any:
    axis = axis_of(x, dim)
    bounds = []
    for i, (own, wanted) in enumerate(zip(shape_of(x), shape_of(index))):
        bounds.append(slice(None) if i == axis or same_sizes((own,), (wanted,)) else slice(0, wanted))
    return x if all(b == slice(None) for b in bounds) else x[tuple(bounds)]


@aten("scatter", "scatter_add", "scatter_reduce")
def _scatter(c: Call, x: Any, dim: int, index: Any, source: Any, mode: Any = None, **named: Any) -> Any:
    name = c.name
    how = "add" if name == "scatter_add" else mode or named.get("reduce")
    kinds = {None: "set", "add": "add", "sum": "add", "multiply": "mul", "prod": "mul", "amax": "max", "amin": "min"}
    if how not in kinds or (name == "scatter_reduce" and named.get("include_self", True) is False):
        raise c.refuse(f"the reduction {how}, without the values that are there")
    if is_number(source):
        source = op("expand")(as_array(source, c.dtype), shape_of(index))
    source = _cut(source, index, rank_of(index)) if not same_sizes(shape_of(source), shape_of(index)) else source
    return op(f"scatter_{kinds[how]}")(x, index, cast(source, c.dtype), axis_of(x, dim))


@aten("index_add")
def _index_add(c: Call, x: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    axis = axis_of(x, dim)
    shape = [1] * rank_of(source)
    shape[axis] = -1
    wide = op("expand")(index.reshape(tuple(shape)), shape_of(source))
    return op("scatter_add")(x, wide, source if alpha == 1 else source * alpha, axis)


def _written(c: Call, x: Any, key: Any, value: Any) -> Any:
    """A value in which something is written at ``key``."""
    found = c.run.importer.as_proxy(x).copy()
    found[key] = value
    return found


@aten("index_fill", "index_copy")
def _index_fill(c: Call, x: Any, dim: int, index: Any, value: Any) -> Any:
    return _written(c, x, along(x, dim, index), cast(value, c.dtype) if c.name.startswith("index_fill") else value)


@aten("index_put", "_unsafe_index_put", "_index_put_impl")
def _index_put(c: Call, x: Any, indices: Any, values: Any, accumulate: bool = False, *_: Any) -> Any:
    values = cast(values, dtype_of_value(x))
    if len(indices) == 1 and dtype_of_value(indices[0]) is dtypes.bool_ and not rank_of(values):
        mask = indices[0]
        mask = mask.reshape((*shape_of(mask), *[1] * (rank_of(x) - rank_of(mask))))
        return op("where")(mask, x + values if accumulate else values, x)
    key = tuple(slice(None) if i is None else i for i in indices)
    if not accumulate:
        return _written(c, x, key, values)
    found = c.run.importer.as_proxy(x).copy()
    np.add.at(found, key, values)  # type: ignore[arg-type]
    return found


@aten("select_scatter")
def _select_scatter(c: Call, x: Any, source: Any, dim: int, index: Any) -> Any:
    return _written(c, x, along(x, dim, index), source)


@aten("slice_scatter")
def _slice_scatter(
    c: Call, x: Any, source: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    if type(end) is int and end >= 1 << 62:
        end = None
    return _written(c, x, along(x, dim, slice(start, end, step)), source)


@aten("masked_scatter")
def _masked_scatter(c: Call, x: Any, mask: Any, source: Any) -> Any:
    """The elements of ``source`` in order where the mask is set."""
    mask = op("expand")(mask, shape_of(x)).reshape(-1)
    count = op("cumsum")(cast(mask, dtypes.int64), 0) - 1
    taken = op("take")(source.reshape(-1), op("maximum")(count, 0), 0)
    return op("where")(mask, taken, x.reshape(-1)).reshape(shape_of(x))


# -- made of sizes ---------------------------------------------------------------------------------
def _full(shape: Any, value: Any, dtype: Any) -> Any:
    shape = tuple(shape)
    if all(type(n) is int for n in shape) and not hasattr(value, "expr") and is_number(value):
        return np.full(shape, value, dtype.numpy)
    return op("expand")(as_array(value, dtype), shape)


@aten("full", "new_full")
def _full_of(c: Call, *args: Any, **_: Any) -> Any:
    size, value = args[-2:]
    return _full(size, value, c.dtype)


@aten("full_like", "empty_like", "zeros_like", "ones_like")
def _full_like(c: Call, x: Any, value: Any = None, **_: Any) -> Any:
    return _full(shape_of(x), (1 if "ones" in c.name else 0) if value is None else value, c.dtype)


@aten(
    "zeros",
    "ones",
    "empty",
    "new_zeros",
    "new_ones",
    "new_empty",
    "empty_permuted",
    "empty_strided",
    "new_empty_strided",
)
def _zeros(c: Call, *args: Any, **_: Any) -> Any:
    name = c.name
    return _full(args[1] if name.startswith("new_") else args[0], 1 if "ones" in name else 0, c.dtype)


@aten("scalar_tensor", "_local_scalar_tensor")
def _scalar_tensor(c: Call, value: Any, **_: Any) -> Any:
    return as_array(value, c.dtype)


@aten("arange")
def _arange(c: Call, *args: Any, **_: Any) -> Any:
    start, stop, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    if all(type(v) in (int, float) for v in (start, stop, step)):
        # torch computes start + i * step in double, NumPy's arange of another dtype may not
        count = max(0, math.ceil((stop - start) / step))
        return (start + np.arange(count) * step).astype(c.dtype.numpy)
    return op("arange")(start, stop, step, c.dtype)


@aten("linspace")
def _linspace(c: Call, start: Any, end: Any, steps: Any, **_: Any) -> Any:
    return np.linspace(start, end, steps).astype(c.dtype.numpy)


@aten("eye")
def _eye(c: Call, n: Any, m: Any = None, **_: Any) -> Any:
    return np.eye(n, m, dtype=c.dtype.numpy)


@aten("meshgrid")
def _meshgrid(c: Call, tensors: Any, *, indexing: str = "ij") -> Any:
    return list(np.meshgrid(*tensors, indexing=indexing))  # type: ignore[call-overload]


@aten("tril_indices", "triu_indices")
def _tril_indices(c: Call, row: int, col: int, offset: int = 0, **_: Any) -> Any:
    found = np.tril_indices if "tril" in c.name else np.triu_indices
    return np.stack(found(row, offset, col)).astype(c.dtype.numpy)


@aten("hann_window")
def _hann_window(c: Call, length: int, periodic: bool = True, **_: Any) -> Any:
    count = length + 1 if periodic else length
    return np.hanning(count)[:length].astype(c.dtype.numpy)
