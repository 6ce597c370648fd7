"""ATen's ops for indexing and for creating values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxlite.base.state import is_traced
from fxlite.importing.torch.table import (
    Call,
    along,
    as_array,
    aten,
    axis_of,
    bounded,
    cast,
    dtype_of_value,
    identity,
    is_array,
    is_number,
    op,
    rank_of,
    same,
    same_sizes,
    shape_of,
    sized,
)
from fxlite.tracing.selections.compact import with_returns
from fxlite.tracing.selections.masked import Masked
from fxlite.types import dtypes
from fxlite.types.shapes import NamedDim, as_tuple


@aten("index", "_unsafe_index")
def _index(c: Call, x: Any, indices: Any) -> Any:
    """x[indices], where None stands for a whole axis."""
    x = c.run.importer.as_proxy(x) if any(is_array(i) and not isinstance(i, np.ndarray) for i in indices) else x
    return x[tuple(slice(None) if i is None else i for i in indices)]


@aten("index_select")
def _index_select(c: Call, x: Any, dim: int, index: Any) -> Any:
    return op("take")(x, index.reshape(-1) if not rank_of(index) and rank_of(x) else index, axis_of(x, dim))


@aten("take")
def _take(c: Call, x: Any, index: Any) -> Any:
    return op("take")(x.reshape(-1), index, 0)


@aten("gather")
def _gather(c: Call, x: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    """In torch the index may be smaller than the value along other axes; the value is then cropped. An index without
    elements may have any rank."""
    if any(same_sizes((n,), (0,)) for n in shape_of(index)):
        return op("full")(shape_of(index), 0, c.dtype)
    return op("gather")(_cut(x, index, dim), index, axis_of(x, dim))


same("take_along_dim", lambda x, index, dim: np.take_along_axis(x, index, dim))


def _cut(x: Any, index: Any, dim: int | None = None) -> Any:
    """The part of a value that an index covers, along all axes except ``dim``."""
    axis = None if dim is None else axis_of(x, dim)
    bounds = []
    for i, (own, wanted) in enumerate(zip(shape_of(x), shape_of(index))):
        bounds.append(slice(None) if i == axis or same_sizes((own,), (wanted,)) else slice(0, wanted))
    return x if all(b == slice(None) for b in bounds) else x[tuple(bounds)]


@aten("scatter", "scatter_add", "scatter_reduce")
def _scatter(c: Call, x: Any, dim: int, index: Any, source: Any, mode: Any = None, **named: Any) -> Any:
    name = c.name
    how = "add" if name == "scatter_add" else mode or named.get("reduce")
    if is_number(source):
        source = op("expand")(as_array(source, c.dtype), shape_of(index))
    source = _cut(source, index)
    return _reduced(x, axis_of(x, dim), index, cast(source, c.dtype), how, named.get("include_self", True))


_HOW = {None: "set", "add": "add", "sum": "add", "mean": "add", "multiply": "mul", "prod": "mul"}


def _reduced(x: Any, axis: int, index: Any, source: Any, how: str | None, with_own: bool) -> Any:
    """Elements of ``source`` combined at the positions of the index, with or without the elements that are already
    there."""
    if not with_own:
        places, marks = (_full(shape_of(v), mark, dtypes.bool_) for v, mark in ((x, False), (index, True)))
        written = op("scatter_set")(places, index, marks, axis)
        kind = dtype_of_value(x)
        limits = (-math.inf, math.inf) if kind.is_float else (np.iinfo(kind.numpy).min, np.iinfo(kind.numpy).max)
        neutral = {"prod": 1, "amax": limits[0], "amin": limits[1]}.get(how or "", 0)
        x = op("where")(written, neutral, x)
    found = op(f"scatter_{_HOW.get(how) or str(how)[1:]}")(x, index, source, axis)
    if how != "mean":
        return found
    start, ones = (_full(shape_of(v), each, dtypes.int64) for v, each in ((x, int(with_own)), (index, 1)))
    count = op("maximum")(op("scatter_add")(start, index, ones, axis), 1)
    return found / count if dtype_of_value(x).is_float else op("floor_divide")(found, count)


@aten("index_add")
def _index_add(c: Call, x: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    axis, source = axis_of(x, dim), source if alpha == 1 else source * alpha
    if not axis and (isinstance(index, Masked) or isinstance(source, Masked)):
        found = c.run.importer.as_proxy(x).copy()
        np.add.at(found, index, source)
        return found
    return op("scatter_add")(x, _spread(index, source, axis), source, axis)


@aten("index_reduce")
def _index_reduce(c: Call, x: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True) -> Any:
    axis = axis_of(x, dim)
    return _reduced(x, axis, _spread(index, source, axis), source, reduce, include_self)


def _spread(index: Any, source: Any, axis: int) -> Any:
    """An index of slices along an axis, as an index of elements."""
    shape = [1] * rank_of(source)
    shape[axis] = -1
    return op("expand")(index.reshape(tuple(shape)), shape_of(source))


def _written(c: Call, x: Any, key: Any, value: Any) -> Any:
    """A copy of a value in which something is written at ``key``."""
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


@aten("put")
def _put(c: Call, x: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    """Writes elements at positions of the flattened value."""
    flat = _reduced(x.reshape(-1), 0, index.reshape(-1), source.reshape(-1), "add" if accumulate else None, True)
    return flat.reshape(shape_of(x))


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


@aten("fill_diagonal")
def _fill_diagonal(c: Call, x: Any, value: Any, wrap: bool = False) -> Any:
    """Fills the diagonal of a matrix, or of a value whose axes all have the same size."""
    sizes = shape_of(x)
    if wrap or not all(type(n) is int for n in sizes):
        raise c.refuse("a diagonal that begins again, or of sizes that may differ")
    place = np.arange(min(sizes))
    return _written(c, x, (place,) * len(sizes), value)


@aten("diagonal_scatter")
def _diagonal_scatter(c: Call, x: Any, source: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    moved = np.moveaxis(x, (dim1, dim2), (-2, -1))
    step = np.arange(shape_of(source)[-1])
    key = (..., step + max(-offset, 0), step + max(offset, 0))
    return np.moveaxis(_written(c, moved, key, source), (-2, -1), (dim1, dim2))


@aten("as_strided", "as_strided_copy", "as_strided_scatter")
def _as_strided(c: Call, x: Any, *args: Any) -> Any:
    """Elements by their positions in memory, which are known if it has no gaps and all sizes are fixed."""
    *source, size, stride, offset = (*args, None)[: 4 if c.name.endswith("scatter") else 3]
    whole = c.node.args[0].meta["val"]
    if not all(type(n) is int for n in (*size, *stride, *shape_of(x))):
        raise c.refuse("places in memory of a value whose sizes may differ")
    order = sorted(range(whole.ndim), key=lambda axis: (-whole.stride(axis), axis))  # order of the axes in memory
    if not whole.permute(order).is_contiguous():
        raise c.refuse("places in memory of a value whose elements have others between them, or are the same ones")
    places = np.full((), whole.storage_offset() if offset is None else offset)
    for count, step in zip(size, stride):
        places = places[..., None] + np.arange(count) * step
    places = places.astype(np.int64) - whole.storage_offset()
    if places.size and not 0 <= places.min() <= places.max() < whole.numel():
        raise c.refuse("places in memory outside of the value; give the whole value of which it is a part")
    in_order = x if order == [*range(whole.ndim)] else np.transpose(x, order)
    if not source:
        return op("take")(in_order.reshape(-1), places, 0)
    written = _written(c, in_order.reshape(-1), places, source[0]).reshape(shape_of(in_order))
    return written if in_order is x else np.transpose(written, np.argsort(order).tolist())


@aten("nonzero", "argwhere")
def _nonzero(c: Call, x: Any) -> Any:
    return np.argwhere(x) if rank_of(x) else np.argwhere(x.reshape(1))[:, :0]


@aten("nonzero_static")
def _nonzero_static(c: Call, x: Any, *, size: int, fill_value: int = -1) -> Any:
    """The first ``size`` places, with the fill value after the last one."""
    is_set = cast(op("ne")(x.reshape((-1,) if rank_of(x) else (1,)), 0), dtypes.int64)
    wanted = np.arange(1, size + 1)
    is_there = op("le")(wanted, op("sum")(is_set))
    place = np.searchsorted(op("cumsum")(is_set, 0), wanted)
    found = []
    for length in shape_of(x)[::-1]:
        found.append(op("where")(is_there, place % length, fill_value))
        place = place // length
    return op("stack")(found[::-1], 1) if found else op("full")((size, 0), 0, dtypes.int64)


@aten("nonzero_numpy")
def _nonzero_numpy(c: Call, x: Any) -> Any:
    return list(np.nonzero(x))


@aten("masked_select")
def _masked_select(c: Call, x: Any, mask: Any) -> Any:
    x, mask = np.broadcast_arrays(c.run.importer.as_proxy(x), c.run.importer.as_proxy(mask))
    return x[mask] if rank_of(x) else x.reshape(1)[mask.reshape(1)]


@aten("_unique2", "unique_dim")
def _unique(c: Call, x: Any, *args: Any, **named: Any) -> Any:
    """The distinct values in order, the number of the value that each element equals, and the counts."""
    axis = axis_of(x, args[0]) if c.name == "unique_dim" else None
    inverse, counts = c.options(args[1 if axis is None else 2 :], named, "return_inverse", "return_counts")
    unique: Any = np.unique
    return _with_none(unique(x, False, inverse, counts, axis=axis, equal_nan=False), inverse, counts)


def _with_none(found: Any, inverse: bool, counts: bool) -> tuple[Any, Any, Any]:
    """What NumPy returns of the distinct values as torch does, with None for what was not asked for."""
    parts = as_tuple(found)
    return parts[0], parts[1] if inverse else None, parts[-1] if counts else None


@aten("bincount")
def _bincount(c: Call, x: Any, weights: Any = None, minlength: int = 0) -> Any:
    """The result has ``minlength`` counts; a larger number raises an error at run time."""
    if not minlength:
        raise c.refuse("the number of counts depends on values; give minlength=, which is above all of them")
    return cast(np.bincount(x, weights, minlength), c.dtype)


@aten("unique_consecutive")
def _unique_consecutive(c: Call, x: Any, *args: Any, **named: Any) -> Any:
    """The values that differ from the previous one."""
    inverse, counts = c.options(args, named, "return_inverse", "return_counts")
    if (args[2] if len(args) > 2 else named.get("dim")) is not None:
        raise c.refuse("rows that are compared along an axis; number them, and compare the numbers")
    sizes, x = shape_of(x), c.run.importer.as_proxy(x).reshape(-1)
    place: Any = op("arange")(0, shape_of(x)[0], 1, dtypes.int64)
    before = op("take")(x, op("maximum")(place - 1, 0), axis=0)
    is_new = op("logical_or")(op("ne")(x, before), place == 0)
    found = with_returns(x[is_new], place, is_new, shape_of(x)[0], False, inverse, counts, (None, sizes))
    return _with_none(found, inverse, counts)


@aten("masked_scatter")
def _masked_scatter(c: Call, x: Any, mask: Any, source: Any) -> Any:
    """Writes the elements of ``source``, in order, where the mask is set."""
    x, mask = np.broadcast_arrays(x, mask)
    mask = mask.reshape(-1)
    if isinstance(source, Masked):  # which may have no elements that could be taken where the mask is not set
        first = source.reshape(-1)[: np.count_nonzero(mask)]
        return _written(c, x.reshape(-1), mask, first).reshape(shape_of(x))
    count = op("cumsum")(cast(mask, dtypes.int64), 0) - 1
    taken = op("take")(source.reshape(-1), op("maximum")(count, 0), 0)
    return op("where")(mask, taken, x.reshape(-1)).reshape(shape_of(x))


# -- created from sizes ----------------------------------------------------------------------------
def _full(shape: Any, value: Any, dtype: Any) -> Any:
    shape = tuple(shape)
    if all(type(n) is int for n in shape) and not hasattr(value, "expr") and is_number(value):
        return np.full(shape, value, dtype.numpy)
    return sized(
        shape,
        lambda sizes: (
            op("full")(sizes, value, dtype) if is_number(value) else op("expand")(as_array(value, dtype), sizes)
        ),
    )


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


@aten("_local_scalar_dense", "item")
def _number(c: Call, x: Any) -> Any:
    """The only element, as a traced value of rank 0, which operators on numbers also accept."""
    return bounded(x.reshape(()), c.bounds)


@aten("scalar_tensor")
def _scalar_tensor(c: Call, value: Any, **_: Any) -> Any:
    return as_array(value, c.dtype)


@aten("arange")
def _arange(c: Call, *args: Any, **_: Any) -> Any:
    start, stop, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    if is_traced(stop) and type(start) is int and (start, step) == (0, 1):
        return sized((stop,), lambda sizes: cast(op("arange")(0, *sizes, 1, dtypes.int64), c.dtype))
    if all(type(v) in (int, float) for v in (start, stop, step)):
        # torch computes start + i * step in double precision; NumPy's arange of another dtype may not
        count = max(0, math.ceil((stop - start) / step))
        return (start + np.arange(count) * step).astype(c.dtype.numpy)
    if all(isinstance(v, NamedDim) or float(v).is_integer() for v in (start, stop, step)):
        start, stop, step = (v if isinstance(v, NamedDim) else int(v) for v in (start, stop, step))
        return cast(op("arange")(start, stop, step, dtypes.int64), c.dtype)
    return op("arange")(start, stop, step, c.dtype)


@aten("linspace")
def _linspace(c: Call, start: Any, end: Any, steps: Any, **_: Any) -> Any:
    return np.linspace(start, end, steps).astype(c.dtype.numpy)


@aten("eye")
def _eye(c: Call, n: Any, m: Any = None, **_: Any) -> Any:
    return identity((n, n if m is None else m), c.dtype)


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
