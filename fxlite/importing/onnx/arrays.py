"""ONNX's ops without arithmetic: ops that make arrays, return shapes, rearrange or convert. Values of element types
that fxlite lacks (float8, float4, integers of 4 and 2 bits) are computed in a wider type; a conversion to one of them
rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxlite import ops
from fxlite.base.state import is_traced
from fxlite.importing import narrow
from fxlite.importing.narrow import cast
from fxlite.importing.onnx import proto
from fxlite.importing.onnx.registry import (
    MICROSOFT,
    Call,
    as_sizes,
    axis_of,
    broadcast,
    is_named,
    is_sizes,
    onnx_op,
    rank,
    same,
    shape,
)
from fxlite.tracing.capture.answers import counted
from fxlite.tracing.selections.masked import Masked
from fxlite.types.dtypes import dtype
from fxlite.types.shapes import NamedDim


# -- shapes ----------------------------------------------------------------------------------------
@onnx_op("Shape")
def shape_(n: Call, x: Any) -> Any:
    """Named sizes stay named sizes."""
    found = shape(x)
    return as_sizes(found[slice(n["start"] or 0, n["end"])])


@onnx_op("Size")
def size(n: Call, x: Any) -> Any:
    return as_sizes([math.prod(shape(x))]).reshape(())


@onnx_op("Reshape", sizes=(1,), moves=True)
def reshape(n: Call, x: Any, wanted: Any = None) -> Any:
    """0 stands for the size of the input on that axis, -1 for the rest."""
    sizes = list(n["shape"]) if wanted is None else n.sizes(wanted, "the shape")
    known = shape(x)
    if not n["allowzero"]:
        sizes = [known[i] if type(s) is int and s == 0 else s for i, s in enumerate(sizes)]
    return x.reshape(tuple(sizes))


@onnx_op("Flatten", moves=True)
def flatten(n: Call, x: Any) -> Any:
    axis = n["axis"]
    axis = axis + rank(x) if axis < 0 else axis
    rows, columns = shape(x)[:axis], shape(x)[axis:]
    return x.reshape((math.prod(rows), math.prod(columns)))


def _axes(n: Call, axes: Any) -> list[int] | None:
    return n["axes"] if axes is None else n.numbers(axes, "axes")


@onnx_op("Squeeze", sizes=(0, 1), moves=True)
def squeeze(n: Call, x: Any, axes: Any = None) -> Any:
    found = _axes(n, axes)
    if found is None:
        found = [a for a, s in enumerate(shape(x)) if type(s) is int and s == 1]
    return np.squeeze(x, axis=tuple(axis_of(a, rank(x)) for a in found)) if found else x


@onnx_op("Unsqueeze", sizes=(0, 1), moves=True)
def unsqueeze(n: Call, x: Any, axes: Any = None) -> Any:
    found = _axes(n, axes) or []
    return np.expand_dims(x, tuple(axis_of(a, rank(x) + len(found)) for a in found)) if found else x


same("Transpose", np.transpose, "perm", moves=True)


@onnx_op("Expand", sizes=(1,), moves=True)
def expand(n: Call, x: Any, wanted: Any) -> Any:
    """Both shapes broadcast: a size of 1 in the requested shape keeps that of the input. An input whose sizes are all
    larger than 1 remains as it is, whatever the requested shape is computed from."""
    known, (count,) = shape(x), shape(wanted)
    selected = isinstance(x, Masked) and not x.before and rank(x) == count
    kept = known[1:] if selected else known[-count:] if type(count) is int else ()
    if (kept or selected) and rank(x) >= count and all(type(size) is int and size > 1 for size in kept):
        return _as_many(x, wanted[0]) if selected else x
    sizes = n.bounds(wanted, "the shape", limited=True)
    length = max(len(sizes), len(known))
    own = [1] * (length - len(known)) + list(known)
    asked = [1] * (length - len(sizes)) + sizes
    x = n.proxy(x) if any(map(is_traced, asked)) else x
    return broadcast(x, tuple(o if type(a) is int and a == 1 else a for o, a in zip(own, asked)))


def _as_many(x: Masked, number: Any) -> Masked:
    """Selected elements that are expanded to a number, which is theirs. If it is not, there is an error at run time."""
    differs = np.not_equal(x.shape[0], number)
    error = ValueError("selected elements are expanded to a number that is not theirs")
    return x.like(x.tracer.unless(x.values, differs, error))


@onnx_op("Tile", sizes=(1,), moves=True)
def tile(n: Call, x: Any, repeats: Any, axis: Any = None) -> Any:
    """Before opset 6 it repeats along one axis."""
    if axis is not None:
        counts: list[Any] = [1] * rank(x)
        counts[n.numbers(axis, "the axis")[0]] = n.sizes(repeats, "the count")[0]
    else:
        counts = n.sizes(repeats, "the counts")
    return np.tile(x, tuple(counts))


@onnx_op("Concat", moves=True)
def concat(n: Call, *values: Any) -> Any:
    axis = 1 if n["axis"] is None else n["axis"]
    return np.concatenate(values, axis=axis) if len(values) > 1 else values[0]


@onnx_op("Split", sizes=(1,), moves=True)
def split(n: Call, x: Any, parts: Any = None) -> Any:
    """The number of equal parts is ``num_outputs`` (the last part may be smaller), or that of the node's outputs."""
    axis = axis_of(n["axis"] or 0, rank(x))
    if parts is not None or n["split"]:
        sizes = n["split"] if parts is None else n.bounds(parts, "the sizes of the parts")
    else:
        count, length = n["num_outputs"] or n.n_outputs, shape(x)[axis]
        if isinstance(length, NamedDim):
            return tuple(np.split(x, count, axis=axis))
        each = -(-length // count)
        sizes = [each] * (length // each) + ([length % each] if length % each else [])
        sizes += [0] * (count - len(sizes))
    return in_parts(n, x, sizes, axis)


def in_parts(n: Call, x: Any, sizes: Sequence[Any], axis: int) -> tuple[Any, ...]:
    """The parts of these sizes along an axis, which they make up."""
    length = shape(x)[axis]
    if any(map(is_traced, sizes)):
        if type(length) is int and not length:
            return (x,) * len(sizes)
        found, start, x = [], 0, n.proxy(x)
        for size in sizes:
            found.append(x[(*[slice(None)] * axis, slice(start, start + size))])
            start = start + size
        return tuple(found)
    if not any(map(is_named, (length, *sizes))) and (sum(sizes) != length or min(sizes, default=0) < 0):
        raise n.refuse(f"parts of the sizes {[int(s) for s in sizes]} do not make up an axis of size {length}")
    if is_traced(x):
        return tuple(ops.split(x, tuple(sizes), axis=axis))
    return tuple(np.split(x, np.cumsum(sizes)[:-1].tolist(), axis=axis))


@onnx_op("DepthToSpace")
def depth_to_space(n: Call, x: Any) -> Any:
    b, (batch, channels, height, width) = n["blocksize"], shape(x)
    if n["mode"] == "CRD":
        parts = x.reshape((batch, channels // (b * b), b, b, height, width)).transpose((0, 1, 4, 2, 5, 3))
    else:
        parts = x.reshape((batch, b, b, channels // (b * b), height, width)).transpose((0, 3, 4, 1, 5, 2))
    return parts.reshape((batch, channels // (b * b), height * b, width * b))


@onnx_op("SpaceToDepth")
def space_to_depth(n: Call, x: Any) -> Any:
    b, (batch, channels, height, width) = n["blocksize"], shape(x)
    parts = x.reshape((batch, channels, height // b, b, width // b, b))
    order = (0, 1, 3, 5, 2, 4) if n["mode"] == "CRD" else (0, 3, 5, 1, 2, 4)
    return parts.transpose(order).reshape((batch, channels * b * b, height // b, width // b))


# -- creation --------------------------------------------------------------------------------------
@onnx_op("Constant")
def constant(n: Call) -> Any:
    kinds = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    for name, value in n.attributes.items():
        if name == "value":
            return value
        if name in kinds:
            return np.asarray(value, kinds[name])
        if name in ("value_string", "value_strings"):
            return np.asarray(value, dtype="U")
    raise n.refuse("it holds a sparse tensor, which fxlite cannot represent")


@onnx_op("ConstantOfShape", sizes=(0,), folds=True)
def constant_of_shape(n: Call, wanted: Any) -> Any:
    sizes, value = n.sizes(wanted, "the shape"), n["value"]
    value = np.zeros(1, np.float32) if value is None else np.asarray(value)
    if any(map(is_named, sizes)) or math.prod(sizes) > 4096:
        return broadcast(n.proxy(value.reshape(())), tuple(sizes))
    return np.full(sizes, value.reshape(-1)[0], value.dtype)


@onnx_op("Range", sizes=(0, 1, 2))
def range_(n: Call, start: Any, stop: Any, step: Any) -> Any:
    kind = n.dtype(start)
    if kind.kind in "iu":
        (first,), (last,) = n.sizes(start, "the start"), n.sizes(stop, "the end")
        (by,) = n.numbers(step, "the step")
        if is_traced(last) and type(first) is int and (first, by) == (0, 1):
            return counted(last.tracer, (last,), lambda size: n.proxy(ops.arange(0, *size, 1, dtype=dtype(kind))))
        if isinstance(first, NamedDim) or isinstance(last, NamedDim):
            return ops.arange(first, last, by, dtype=dtype(kind))
        return np.arange(int(first), int(last), by).astype(kind)
    bounds = [n.known(v, w).item() for v, w in ((start, "the start"), (stop, "the end"), (step, "the step"))]
    if any(map(is_named, bounds)):
        if is_named(bounds[2]) or not all(is_named(b) or float(b).is_integer() for b in bounds):
            raise n.refuse(f"a range from {bounds[0]} to {bounds[1]} by {bounds[2]} has no size; give it in sizes=")
        first, last, by = (b if is_named(b) else int(b) for b in bounds)
        return ops.arange(first, last, by, dtype="i64").astype(dtype(kind).numpy)
    count = max(math.ceil((bounds[1] - bounds[0]) / bounds[2]), 0)
    return (bounds[0] + np.arange(count) * bounds[2]).astype(kind)


@onnx_op("EyeLike")
def eye_like(n: Call, x: Any) -> Any:
    rows, columns = shape(x)
    kind = n.dtype(x) if n["dtype"] is None else proto.element(n["dtype"], "the result")
    if isinstance(rows, int) and isinstance(columns, int):
        return np.eye(rows, columns, n["k"], dtype=kind)
    index = [ops.arange(0, size, 1, dtype="i64") for size in (rows, columns)]
    return np.equal(np.expand_dims(index[0] + n["k"], 1), index[1]).astype(dtype(kind).numpy)


@onnx_op("OneHot", sizes=(1,))
def one_hot(n: Call, indices: Any, depth: Any, values: Any) -> Any:
    count, axis = n.sizes(depth, "the depth")[0], axis_of(n["axis"], rank(indices) + 1)
    if indices.dtype.kind == "f":
        indices = indices.astype(np.int64)
    index = np.expand_dims(np.where(np.less(indices, 0), indices + count, indices), axis)
    numbers = ops.arange(0, count, 1, dtype="i64").reshape(
        tuple(-1 if a == axis else 1 for a in range(rank(indices) + 1))
    )
    off, on = (values[i] if is_traced(values) else np.asarray(values)[i] for i in (0, 1))
    return np.where(np.equal(index, numbers), on, off)


@onnx_op("Trilu", sizes=(1,))
@onnx_op("Trilu", domain=MICROSOFT, sizes=(1,))
def trilu(n: Call, x: Any, k: Any = None) -> Any:
    offset = 0 if k is None else n.numbers(k, "k")[0]
    return np.tril(x, offset) if n["upper"] == 0 else np.triu(x, offset)


# -- types -----------------------------------------------------------------------------------------
@onnx_op("Cast", folds=True)
def cast_(n: Call, x: Any) -> Any:
    return converted(n, x, proto.element(n["to"], "the result"))


@onnx_op("CastLike")
def cast_like(n: Call, x: Any, like: Any) -> Any:
    return converted(n, x, n.dtype(like))


def converted(n: Call, x: Any, wanted: np.dtype[Any]) -> Any:
    """A value converted to another type. Sizes that become int64 or int32 stay sizes."""
    held = n.dtype(x)
    if is_sizes(x) and wanted in (np.int64, np.int32):
        return x.copy() if wanted == np.int64 else n.stored_as(x.copy(), wanted)
    if held.kind in "OUS":
        raise n.refuse("it holds text (string), for which fxlite has no dtype")
    if is_sizes(x):
        x = n.proxy(x)
    if wanted == held:
        return x
    wide = narrow.widened(wanted)
    if wide == wanted:
        return x.astype(wanted)
    saturate = n["saturate"] is None or bool(n["saturate"])
    return rounded(n, x, wanted, saturate, n["round_mode"] or "up")


@onnx_op("BitCast")
def bit_cast(n: Call, x: Any) -> Any:
    """The bits of each element read as another type of the same size."""
    wanted = proto.element(n["to"], "the result")
    if not is_traced(x):
        return np.asarray(x).view(wanted)
    if narrow.widened(wanted) != wanted:
        raise n.refuse(f"bits are read as {wanted}, a type that fxlite holds in a wider one")
    return ops.bitcast(x, wanted)


# -- element types that fxlite lacks ---------------------------------------------------------------
def rounded(n: Call, x: Any, wanted: np.dtype[Any], saturate: bool, mode: str) -> Any:
    """A value rounded to a narrow type, but stored in the wider one: to the nearest element, with halves to even.
    Values that are too large become the largest element, or without ``saturate`` infinity or NaN."""
    (x,) = n.proxies((x,))
    if "int" in wanted.name:
        return n.stored_as(narrow.integer(x, wanted), wanted)
    x = cast(x, np.float32)
    found = narrow.power_of_two(x, mode) if wanted.name == "float8_e8m0fnu" else narrow.rounded(x, wanted, saturate)
    return n.stored_as(found, wanted)
