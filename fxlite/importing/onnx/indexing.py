"""ONNX's ops that read or write elements by index, slice and pad."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite import ops
from fxlite.base.state import is_traced
from fxlite.importing.onnx.registry import MICROSOFT, Call, axis_of, is_sizes, onnx_op, rank, shape
from fxlite.tracing.capture.known import known_value
from fxlite.tracing.selections.masked import Masked
from fxlite.types import shapes
from fxlite.types.shapes import NamedDim


@onnx_op("Slice", sizes=(0, 1, 2, 3, 4), moves=True)
def slice_(n: Call, x: Any, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None) -> Any:
    """Before opset 10 the bounds are attributes. Bounds beyond the ends are clipped."""
    first = n["starts"] if starts is None else n.bounds(starts, "the starts")
    last = n["ends"] if ends is None else n.bounds(ends, "the ends")
    x = n.proxy(x) if any(map(is_traced, (*first, *last))) else x
    along = n["axes"] if axes is None else n.numbers(axes, "axes")
    along = list(range(len(first))) if along is None else along
    by = [1] * len(first) if steps is None else n.numbers(steps, "the steps")
    index: list[Any] = [slice(None)] * rank(x)
    for start, stop, axis, step in zip(first, last, along, by):
        where = axis_of(axis, rank(x))
        if step < 0 and (is_traced(start) or is_traced(stop)):
            raise n.refuse("computed bounds of a slice that goes backwards")
        if step < 0 and type(start) is int and start < -1 and isinstance(shape(x)[where], NamedDim):
            n.walk.importer.tracer.require(shapes.normalize(shape(x)[where]), ">=", -start)
        index[where] = _slice(start, stop, step, shape(x)[where])
    return x[tuple(index)]


def _slice(start: Any, stop: Any, step: int, size: Any) -> slice:
    """Python's slice for the same elements; numbers such as 2**63 stand for an end of the axis. A start before the
    first element means the first element, also where the step is negative, in which Python finds nothing."""
    large = 2**31 - 1
    if step < 0:
        begin = None if type(start) is int and start >= large else start
        if type(size) is int and type(start) is int:
            begin = min(max(start + size if start < 0 else start, 0), max(size - 1, 0))
        end = stop
        if type(stop) is int:
            if stop <= -large or (type(size) is int and stop < -size):
                end = None
            elif type(size) is int and stop < 0:
                end = stop + size
        return slice(begin, end, step)
    begin = None if type(start) is int and start == 0 else start
    end = None if type(stop) is int and stop >= large else stop
    if type(start) is int and start < -large:
        begin = None
    return slice(begin, end, None if step == 1 else step)


@onnx_op("Gather", sizes=(0,), moves=True)
def gather(n: Call, x: Any, index: Any) -> Any:
    axis = axis_of(n["axis"] or 0, rank(x))
    if is_sizes(x):
        return np.take(x, n.numbers(index, "the index"), axis=axis).reshape(np.shape(index))
    if not (is_traced(index) or isinstance(index, Masked)):
        held = np.asarray(index)
        if not held.ndim and is_traced(x):
            return x[(*[slice(None)] * axis, int(held))]
        return np.take(x, held, axis=axis)
    if np.dtype(x.dtype).kind == "f" and rank(x) == 2 and axis == 0:
        return ops.embedding(index, x)
    return ops.take(x, index, axis=axis)


@onnx_op("ArrayFeatureExtractor", domain="ai.onnx.ml")
def array_feature_extractor(n: Call, x: Any, index: Any) -> Any:
    return ops.take(n.proxy(x), n.proxy(index).reshape(-1), axis=rank(x) - 1)


@onnx_op("Binarizer", domain="ai.onnx.ml")
def binarizer(n: Call, x: Any) -> Any:
    return np.greater(x, n["threshold"] or 0.0).astype(x.dtype)


@onnx_op("GatherElements", moves=True)
def gather_elements(n: Call, x: Any, index: Any) -> Any:
    axis = axis_of(n["axis"], rank(x))
    if is_traced(index) or is_traced(x):
        size = shape(x)[axis]
        index = np.where(np.less(index, 0), index + size, index)
        cut = tuple(slice(0, s) if a != axis and not _same(s, o) else slice(None) for a, (s, o) in _pairs(index, x))
        return ops.gather(x[cut], index, axis)
    cut = tuple(slice(0, s) if a != axis else slice(None) for a, (s, o) in _pairs(index, x))
    return np.take_along_axis(x[cut], index, axis)


def _pairs(index: Any, x: Any) -> Any:
    return enumerate(zip(shape(index), shape(x)))


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and (a == b if type(a) is int else str(a) == str(b))


@onnx_op("GatherND", moves=True)
def gather_nd(n: Call, x: Any, index: Any) -> Any:
    batch = n["batch_dims"] or 0
    count = shape(index)[-1]
    x = n.proxy(x) if is_traced(index) else x
    if isinstance(count, NamedDim):
        raise n.refuse(f"the last axis of the indices has the size {count}, and must be a number")
    lead = [_batch_index(shape(index)[:-1], a) for a in range(batch)]
    own = [index[..., k] for k in range(count)]
    return x[(*lead, *own)] if lead or own else x


def _batch_index(sizes: tuple[Any, ...], axis: int) -> Any:
    return np.arange(sizes[axis]).reshape(tuple(-1 if a == axis else 1 for a in range(len(sizes))))


@onnx_op("ScatterElements", "Scatter")
def scatter_elements(n: Call, x: Any, index: Any, updates: Any) -> Any:
    axis = axis_of(n["axis"], rank(x))
    x, index, updates = n.proxies((x, index, updates))
    index = np.where(np.less(index, 0), index + shape(x)[axis], index)
    reduction = n["reduction"] or "none"
    op = getattr(ops, f"scatter_{'set' if reduction == 'none' else reduction}")
    small = [a for a, (s, o) in _pairs(index, x) if a != axis and not _same(s, o)]
    if not small:
        return op(x, index, updates, axis)
    cut = tuple(slice(0, shape(index)[a]) if a in small else slice(None) for a in range(rank(x)))
    out = x.copy()
    out[cut] = op(x[cut], index, updates, axis)
    return out


def _ufunc(reduction: str) -> Any:
    return next(f for f in (np.add, np.multiply, np.maximum, np.minimum) if f.__name__.startswith(reduction[:2]))


@onnx_op("ScatterND")
def scatter_nd(n: Call, x: Any, index: Any, updates: Any) -> Any:
    count = shape(index)[-1]
    x, index, updates = n.proxies((x, index, updates))
    places = tuple(index[..., k] for k in range(count))
    out = x.copy()
    reduction = n["reduction"] or "none"
    if reduction == "none":
        out[places] = updates
    else:
        _ufunc(reduction).at(out, places, updates)
    return out


@onnx_op("TensorScatter")
def tensor_scatter(n: Call, cache: Any, update: Any, starts: Any = None) -> Any:
    """For each batch, writes rows from its own position on; with the circular ``mode`` they wrap around."""
    cache, update = n.proxies((cache, update))
    axis = axis_of(n["axis"], rank(cache))
    batch, length, steps = shape(cache)[0], shape(cache)[axis], shape(update)[axis]
    begin = np.zeros(batch, np.int64) if starts is None else starts
    places = np.expand_dims(begin, 1) + np.arange(steps)
    if n["mode"] == "circular":
        places = places % length
    index = places.reshape(tuple(batch if a == 0 else steps if a == axis else 1 for a in range(rank(cache))))
    return ops.scatter_set(cache, np.broadcast_to(n.proxy(index), shape(update)), update, axis)


# -- padding ---------------------------------------------------------------------------------------
_MODES = {"constant": "constant", "reflect": "reflect", "edge": "edge", "wrap": "wrap"}


@onnx_op("Pad", sizes=(1, 3))
@onnx_op("Pad", domain=MICROSOFT, sizes=(1, 3))
def pad(n: Call, x: Any, pads: Any = None, value: Any = None, axes: Any = None) -> Any:
    """Negative paddings crop. Before opset 11 they are an attribute."""
    given = (n["pads"] or n["paddings"]) if pads is None else n.sizes(pads, "the paddings")
    along = list(range(rank(x))) if axes is None else [axis_of(a, rank(x)) for a in n.numbers(axes, "axes")]
    each: list[Any] = [(0, 0)] * rank(x)
    for position, axis in enumerate(along):
        each[axis] = given[position], given[position + len(along)]
    cut = tuple(slice(_cut(low), (-_cut(high)) or None) for low, high in each)
    if any(c.start or c.stop for c in cut):
        x = x[cut]
    each = [tuple(0 if type(v) is int and v < 0 else v for v in pair) for pair in each]
    if not any(type(v) is not int or v for pair in each for v in pair):
        return x
    mode = n["mode"] or "constant"
    if mode != "constant":
        wide: Any = np.pad
        return wide(x, tuple(each), mode=_MODES[mode])
    if value is None or (isinstance(value, np.ndarray) and not value.size):
        return np.pad(x, tuple(each), constant_values=n["value"] or 0)
    if is_traced(value):
        inside = np.pad(np.ones_like(x, dtype=bool), tuple(each))
        return np.where(inside, np.pad(x, tuple(each)), value)
    return np.pad(x, tuple(each), constant_values=np.asarray(value).reshape(-1)[0].item())


def _cut(amount: Any) -> int:
    return -amount if type(amount) is int and amount < 0 else 0


# -- ops that depend on the values of elements -----------------------------------------------------
@onnx_op("Compress")
def compress(n: Call, x: Any, condition: Any) -> Any:
    axis = None if n["axis"] is None else axis_of(n["axis"], rank(x))
    if _is_computed(condition):
        return np.compress(condition, n.proxy(x), axis)
    return np.take(x.reshape(-1) if axis is None else x, np.flatnonzero(n.known(condition, "the condition")), axis or 0)


@onnx_op("NonZero")
def non_zero(n: Call, x: Any) -> Any:
    if _is_computed(x):
        return np.transpose(np.argwhere(x))
    return np.stack(np.nonzero(n.known(x, "the array"))).astype(np.int64)


def _is_computed(value: Any) -> bool:
    return is_traced(value) and known_value(value) is None


@onnx_op("Unique", partly="with sorted=0 the values must be known while importing")
def unique(n: Call, x: Any) -> Any:
    axis = n["axis"]
    held = x if _is_computed(x) and n["sorted"] else n.known(x, "the array")
    values, first, inverse, counts = np.unique(held, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not n["sorted"]:
        order = np.argsort(first)
        values = np.take(values, order, axis=axis or 0)
        first, counts = first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return values, *(found.astype(np.int64) for found in (first, inverse, counts))


@onnx_op("ReverseSequence")
def reverse_sequence(n: Call, x: Any, lengths: Any) -> Any:
    batch, time = n["batch_axis"], n["time_axis"]
    steps = shape(x)[time]
    index = ops.arange(0, steps, 1, dtype="i64")
    limit = np.expand_dims(lengths, 1)
    order = np.where(np.less(index, limit), limit - 1 - index, index)
    if batch > time:
        order = np.transpose(order)
    order = order.reshape(tuple(s if a in (batch, time) else 1 for a, s in enumerate(shape(x))))
    return (
        ops.gather(x, np.broadcast_to(n.proxy(order), shape(x)), time)
        if is_traced(x)
        else np.take_along_axis(x, np.broadcast_to(order, x.shape), time)
    )
