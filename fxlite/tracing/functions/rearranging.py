"""Functions that rearrange elements: ``np.block``, ``np.meshgrid``, ``np.delete``, ``np.kron``.

In: traced values and the arguments of NumPy's functions; the positions must be known while tracing. Out: compositions
of views, ``concat`` and ``take``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxlite.base.errors import number_of
from fxlite.base.state import is_traced
from fxlite.ops.op import broadcast_shapes, lookup, normalize_axis
from fxlite.tracing.capture.capture import captured
from fxlite.tracing.functions.elements import repeated
from fxlite.tracing.functions.padding import along
from fxlite.tracing.numpy_functions import by_name, diag, expand_dims, moveaxis, ravel, reshape, value_type
from fxlite.tracing.torch_names import method_advice
from fxlite.tracing.writes.in_place import store
from fxlite.tracing.writes.scatter import set_item
from fxlite.tracing.writes.shared_memory import attach, fresh
from fxlite.types import dtypes, shapes

#: The most calls of a function, each for one row of elements.
_MOST_ROWS = 1000


def known_size(x: Any, axis: int, what: str) -> int:
    """The size of an axis as a number. Raises ValueError for a named one."""
    size = value_type(x).shape[axis]
    if type(size) is not int:
        raise ValueError(f"{what} along an axis with a named size, {size}, is not traced")
    return size


def _with_rank(x: Any, rank: int) -> Any:
    have = value_type(x).rank
    return expand_dims(x, tuple(range(rank - have))) if have < rank else x


def block(arrays: Any) -> Any:
    """np.block: nested lists, joined from the innermost axis to the outermost."""

    def depth_of(value: Any) -> int:
        return 1 + max(map(depth_of, value), default=0) if isinstance(value, list) else 0

    def ranks(value: Any) -> int:
        return max(map(ranks, value)) if isinstance(value, list) else value_type(value).rank

    depth = depth_of(arrays)
    rank = max(depth, ranks(arrays))

    def joined(value: Any, level: int) -> Any:
        if not isinstance(value, list):
            if level != depth:
                raise ValueError("lists are nested to different depths")
            return _with_rank(value, rank)
        if not value:
            raise ValueError("a list is empty")
        parts = [joined(part, level + 1) for part in value]
        return np.concatenate(parts, axis=level - depth) if len(parts) > 1 else parts[0]

    found = joined(arrays, 0)
    return fresh(found) if is_traced(found) else found


def broadcast_arrays(*args: Any, subok: bool = False) -> tuple[Any, ...]:
    """np.broadcast_arrays."""
    common = broadcast_shapes(*(value_type(a).shape for a in args))
    return tuple(lookup("expand")(a, common) for a in args)


def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    """np.meshgrid."""
    if indexing not in ("xy", "ij"):
        raise ValueError(f'indexing is "xy" or "ij", not {indexing!r}')
    rank = len(xi)
    found = []
    for number, x in enumerate(xi):
        shape = [1] * rank
        place = 1 - number if indexing == "xy" and rank > 1 and number < 2 else number
        shape[place] = value_type(x).size
        found.append(lookup("reshape")(x, tuple(shape)))
    if sparse:
        return tuple(fresh(x) if copy and is_traced(x) else x for x in found)
    wide = broadcast_arrays(*found)
    return tuple(fresh(x) if copy and is_traced(x) else x for x in wide)


def diagflat(v: Any, k: int = 0) -> Any:
    """np.diagflat."""
    return diag(ravel(v), k)


def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    """np.fill_diagonal of a traced array."""
    kind = value_type(a)
    if kind.rank < 2:
        raise ValueError("the array must have rank 2 or more")
    sizes = [known_size(a, axis, "a diagonal") for axis in range(kind.rank)]
    if kind.rank > 2 and len(set(sizes)) > 1:
        raise ValueError("all axes must have the same size")
    filled = np.zeros(sizes, bool)
    np.fill_diagonal(filled, True, wrap)
    places = np.nonzero(filled)
    if np.ndim(val) or (is_traced(val) and val.type.rank):
        flat = np.ravel(val)
        val = np.resize(flat, len(places[0]))
    set_item(a, places, val)


def delete(arr: Any, obj: Any, axis: int | None = None) -> Any:
    """np.delete with positions that are known while tracing."""
    if axis is None:
        arr, axis = ravel(arr), 0
    axis = normalize_axis(axis, value_type(arr).rank)
    size = known_size(arr, axis, "np.delete")
    return fresh(along(arr, axis, np.delete(np.arange(size), _known(obj))))


def _known(obj: Any) -> Any:
    return obj if isinstance(obj, slice) else np.asarray(obj)


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    """np.insert before positions that are known while tracing."""
    if axis is None:
        arr, axis = ravel(arr), 0
    if not is_traced(arr):
        arr = next(v for v in (values, obj) if is_traced(v)).tracer.constant(arr)
    kind = value_type(arr)
    axis = normalize_axis(axis, kind.rank)
    size = known_size(arr, axis, "np.insert")
    place = _known(obj)
    if isinstance(place, slice):
        place = np.arange(*place.indices(size))
    if place.dtype == bool:
        place = np.flatnonzero(place)
    new = lookup("cast")(values, kind.dtype) if is_traced(values) else np.asarray(values)
    if not is_traced(new):
        new = new.astype(kind.dtype.numpy)
    new = _with_rank(new, kind.rank)
    if not place.ndim:
        new = moveaxis(new, 0, axis)
    count = value_type(new).shape[axis] if place.size == 1 else place.size
    shape = (*kind.shape[:axis], count, *kind.shape[axis + 1 :])
    wide = lookup("expand")(new, shape) if is_traced(new) else np.broadcast_to(new, shape)
    order = np.insert(np.arange(size), place, size + np.arange(count))
    return along(lookup("concat")((arr, wide), axis=axis), axis, order)


def repeat(x: Any, repeats: Any, axis: Any = None) -> Any:
    """np.repeat with numbers that are known while tracing."""
    from fxlite.tracing.numpy_functions import repeat as by_number

    if is_traced(repeats):
        repeats = np.asarray(repeats)  # raises an error unless it is known
    if np.ndim(repeats) == 0 or np.size(repeats) == 1:
        count = repeats if np.ndim(repeats) == 0 else np.ravel(repeats)[0]
        return by_number(x, int(count) if isinstance(count, np.generic) else count, axis)
    if axis is None:
        x, axis = ravel(x), 0
    axis = normalize_axis(axis, value_type(x).rank)
    size = known_size(x, axis, "np.repeat by a list")
    return fresh(along(x, axis, np.repeat(np.arange(size), repeats)))


def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """np.vander, which computes powers as running products."""
    kind = value_type(x)
    if kind.rank != 1:
        raise ValueError("x must have rank 1")
    count = N if N is not None else known_size(x, 0, "np.vander without N")
    target = dtypes.dtype(np.promote_types(kind.dtype.numpy, int))
    x = lookup("cast")(x, target)
    if count < 2:
        found = np.ones_like(lookup("expand")(expand_dims(x, 1), (kind.shape[0], count)))
    else:
        wide = lookup("expand")(expand_dims(x, 1), (kind.shape[0], count - 1))
        ones = np.ones_like(wide[:, :1])
        found = np.concatenate([ones, np.cumprod(wide, axis=1)], axis=1)
    return found if increasing else lookup("flip")(found, axis=1)


def kron(a: Any, b: Any) -> Any:
    """np.kron: the products of each element of ``a`` with ``b``, as blocks."""
    rank = max(value_type(a).rank, value_type(b).rank)
    a, b = _with_rank(a, rank), _with_rank(b, rank)
    left = expand_dims(a, tuple(range(1, 2 * rank, 2))) if rank else a
    right = expand_dims(b, tuple(range(0, 2 * rank, 2))) if rank else b
    shape = [shapes.normalize(m * n) for m, n in zip(value_type(a).shape, value_type(b).shape)]
    return lookup("reshape")(lookup("mul")(left, right), tuple(shape))


# -- positions -------------------------------------------------------------------------------------
def unravel_index(indices: Any, shape: Any, order: str = "C") -> tuple[Any, ...]:
    """np.unravel_index; a position that is out of range raises an error at run time."""
    sizes = [shape] if isinstance(shape, (int, np.integer)) else list(shape)
    sizes = sizes[::-1] if order == "F" else sizes
    rest = _checked(lookup("cast")(indices, "i64"), math.prod(sizes))
    found = []
    for size in reversed(sizes):
        found.append(rest % size)
        rest = rest // size
    return tuple(found if order == "F" else reversed(found))


def ravel_multi_index(multi_index: Any, dims: Any, mode: Any = "raise", order: str = "C") -> Any:
    """np.ravel_multi_index; errors for positions are raised at run time."""
    dims = (dims,) if isinstance(dims, (int, np.integer)) else tuple(dims)
    modes = (mode,) * len(dims) if isinstance(mode, str) else tuple(mode)
    places = [within(i, d, m) for i, d, m in zip(multi_index, dims, modes)]
    if order == "F":
        places, dims = places[::-1], dims[::-1]
    total: Any = 0
    for place, size in zip(places, dims):
        total = total * size + place
    return total


def within(index: Any, size: Any, mode: str) -> Any:
    """Positions on an axis according to the mode: "raise", "wrap" or "clip"."""
    if mode == "wrap":
        return index % size
    if mode == "clip":
        return np.clip(index, 0, size - 1)
    if mode != "raise":
        raise ValueError(f'mode is "raise", "wrap" or "clip", not {mode!r}')
    return _checked(index, size)


def _checked(index: Any, size: Any) -> Any:
    """Positions that must be in range; others, including negative ones, raise IndexError at run time."""
    places = np.arange(size)
    if not is_traced(index):
        return places[np.where(np.asarray(index) < 0, size, index)]
    return lookup("take")(places, lookup("where")(lookup("lt")(index, 0), size, index), axis=0)


# -- bits and rows ---------------------------------------------------------------------------------
def packbits(a: Any, axis: int | None = None, bitorder: str = "big") -> Any:
    """np.packbits."""
    if axis is None:
        a, axis = ravel(a), 0
    size = known_size(a, normalize_axis(axis, value_type(a).rank), "np.packbits")
    bits = lookup("ne")(moveaxis(a, axis, -1), 0)
    rank = value_type(bits).rank
    bits = lookup("pad")(bits, ((0, 0),) * (rank - 1) + ((0, -size % 8),))
    shape = value_type(bits).shape
    bits = lookup("reshape")(bits, (*shape[:-1], shape[-1] // 8, 8))
    weights = 1 << (np.arange(8)[::-1] if bitorder == "big" else np.arange(8))
    return moveaxis(lookup("cast")((bits * weights).sum(axis=-1), "u8"), -1, axis)


def unpackbits(a: Any, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Any:
    """np.unpackbits."""
    if value_type(a).dtype is not dtypes.dtype("u8"):
        raise TypeError("it takes arrays of uint8")
    if axis is None:
        a, axis = ravel(a), 0
    shifts = np.arange(8, dtype=np.uint8)[:: -1 if bitorder == "big" else 1]
    bits = (expand_dims(moveaxis(a, axis, -1), -1) >> shifts) & np.uint8(1)
    shape = value_type(bits).shape
    flat = lookup("reshape")(bits, (*shape[:-2], shapes.normalize(shape[-2] * 8)))
    if count is not None:
        flat = flat[..., :count]
        missing = 0 if count < 0 else count - known_size(flat, -1, "count=")
        rank = value_type(flat).rank
        flat = lookup("pad")(flat, ((0, 0),) * (rank - 1) + ((0, max(missing, 0)),))
    return moveaxis(flat, -1, axis)


def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """np.apply_along_axis: the function is traced for each one-dimensional slice."""
    kind = value_type(arr)
    axis = normalize_axis(axis, kind.rank)
    rows = moveaxis(arr, axis, -1)
    others = [known_size(rows, a, "np.apply_along_axis") for a in range(kind.rank - 1)]
    if math.prod(others) > _MOST_ROWS:
        raise ValueError(f"{math.prod(others):,} calls of the function would be traced; write it for all rows at once")
    if not math.prod(others):
        raise ValueError("an axis is empty")
    function = captured(func1d)
    found = [function(rows[place], *args, **kwargs) for place in np.ndindex(*others)]
    whole = np.stack([arr.tracer.constant(f) for f in found])
    made = value_type(whole).rank - 1
    whole = reshape(whole, (*others, *value_type(whole).shape[1:]))
    rank = value_type(whole).rank
    return moveaxis(whole, tuple(range(rank - made, rank)), tuple(range(axis, axis + made)))


# -- the bytes of elements -------------------------------------------------------------------------
def view(x: Any, dtype: Any = None, *sizes: Any) -> Any:
    """``x.view(dtype)``: the bytes of the elements, read as elements of another type. If that is smaller or larger,
    each element becomes several along the last axis, or several become one. The lowest byte comes first."""
    if sizes or isinstance(dtype, (tuple, list)) or type(dtype) is int or is_traced(dtype):
        raise x.tracer.error("x.view takes a dtype, and not sizes", method_advice("view"), x.node, AttributeError)
    if dtype is None or (isinstance(dtype, type) and issubclass(dtype, np.ndarray)):
        return x[...]
    held, target = value_type(x).dtype, dtypes.dtype(dtype)
    if target is held:
        return x[...]
    if target.itemsize == held.itemsize and not (target.is_complex or held.is_complex):
        found = lookup("bitcast")(x, target)
        attach(found, x, lookup("bitcast"), {"dtype": target})
        return found
    if not value_type(x).rank:
        raise ValueError(f"an array without axes cannot be read as {target}, of another size than {held}")
    if target.is_complex and held is not target.real:
        return view(view(x, target.real), target)
    found = _parts_of(x, held, target) if target.itemsize <= held.itemsize else _made_of(x, held, target)
    attach(found, x, None, {})
    return found


def _words(x: Any, target: dtypes.DType) -> Any:
    return lookup("bitcast")(x, target) if value_type(x).dtype is not target else x


def _parts_of(x: Any, held: dtypes.DType, target: dtypes.DType) -> Any:
    """Each element as one or several of at most its size, along the last axis."""
    if held.is_complex:
        flat = _joined([lookup("real")(x), lookup("imag")(x)])
        return flat if target is held.real else view(flat, target)
    count = held.itemsize // target.itemsize
    bits = _words(x, _unsigned(held.itemsize))
    shifted = [lookup("right_shift")(bits, 8 * target.itemsize * k) if k else bits for k in range(count)]
    narrow = _unsigned(target.itemsize)
    return _words(_joined([lookup("cast")(part, narrow) for part in shifted]), target)


def _joined(parts: Sequence[Any]) -> Any:
    whole = lookup("stack")(tuple(parts), axis=value_type(parts[0]).rank)
    *lead, size, count = value_type(whole).shape
    return lookup("reshape")(whole, (*lead, shapes.normalize(size * count)))


def _made_of(x: Any, held: dtypes.DType, target: dtypes.DType) -> Any:
    """Elements made from several along the last axis, whose size must be a multiple of their number."""
    *lead, size = value_type(x).shape
    count = target.itemsize // held.itemsize
    apart = reshape(x, (*(shapes.for_user(d) for d in lead), shapes.for_user(size) // count, count))
    if target.is_complex:
        return lookup("complex")(apart[..., 0], apart[..., 1])
    wide = _unsigned(target.itemsize)
    bits = lookup("cast")(_words(apart, _unsigned(held.itemsize)), wide)
    shifted = [lookup("left_shift")(bits[..., k], 8 * held.itemsize * k) if k else bits[..., k] for k in range(count)]
    return _words(functools.reduce(lookup("bitwise_or"), shifted), target)


def _unsigned(itemsize: int) -> dtypes.DType:
    return dtypes.dtype(f"u{8 * itemsize}")


# -- writing ---------------------------------------------------------------------------------------
def put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    """np.put: writes values, repeated as needed, to positions of the flattened array."""
    if isinstance(a, np.ndarray):
        a = next(x for x in (ind, v) if is_traced(x)).tracer.constant(a)  # which is not to be written into
    index = np.ravel(ind)
    if mode != "raise":
        index = within(index, a.size, mode)
    if is_traced(v) or np.ndim(v):
        v = repeated(v, value_type(index).shape[0])
    if a.ndim == 1:
        a[index] = v
    else:
        a.flat[index] = v


def place(arr: Any, mask: Any, vals: Any) -> None:
    """np.place: writes values, repeated as needed, where the mask is true."""
    values = np.ravel(vals)
    count = value_type(values).shape[0]
    if type(count) is not int or count == 0:
        raise ValueError("vals must hold a number of values")
    target = value_type(arr)
    condition = lookup("reshape")(_truth(mask, arr), target.shape)
    if count == 1:
        new: Any = values[0]
    else:
        order = lookup("reshape")(condition, (-1,)).astype(np.int64).cumsum() - 1
        places = lookup("reshape")(order % count, target.shape)
        new = lookup("take")(values, places, axis=0)
    store(arr, new, "np.place", "unsafe", where=condition)


def _truth(mask: Any, like: Any) -> Any:
    if not is_traced(mask):
        return like.tracer.constant(np.asarray(mask, bool))
    return mask if mask.type.dtype.is_bool else lookup("ne")(mask, 0)


def putmask(a: Any, mask: Any, values: Any) -> None:
    """np.putmask: values of another shape are used by flat position, repeated as needed."""
    shape = value_type(a).shape
    if is_traced(values) or np.ndim(values):
        kind = value_type(values)
        if kind.shape != shape:
            values = np.resize(values, shape) if kind.size != 1 else ravel(values)[0]
    store(a, values, "np.putmask", "unsafe", where=lookup("reshape")(_truth(mask, a), shape))


def sliding_window_view(
    x: Any, window_shape: Any, axis: Any = None, *, subok: bool = False, writeable: bool = False
) -> Any:
    """np.lib.stride_tricks.sliding_window_view, as a copy that must not be written into."""
    if not x.tracer.runs_program:
        raise ValueError("a view of windows is NumPy's own, except in a program that is traced as a whole")
    if writeable:
        raise ValueError("a window view that is written into is not traced; write into the array itself")
    sizes = shapes.as_tuple(window_shape)
    rank = value_type(x).rank
    if axis is None:
        axes = tuple(range(rank))
    else:
        axes = tuple(normalize_axis(a, rank) for a in shapes.as_tuple(axis))
    if len(axes) != len(sizes):
        raise ValueError(f"{number_of(len(sizes), 'window size')} for {number_of(len(axes), 'axis', 'axes')}")
    whole = x
    for size, a in zip(sizes, axes):
        places = shapes.normalize(value_type(x).shape[a] - size + 1)
        if type(places) is int and places < 1:
            raise ValueError("window shape cannot be larger than input array shape")
        x = lookup("unfold")(x, a, shapes.normalize(size))
    attach(x, whole, None, {})
    return x


FUNCTIONS = by_name(
    np, block, broadcast_arrays, meshgrid, diagflat, fill_diagonal, delete, insert, repeat, vander, kron
)
FUNCTIONS |= by_name(np, kron, unravel_index, ravel_multi_index, packbits, unpackbits, apply_along_axis)
FUNCTIONS |= by_name(np, put, place, putmask)
FUNCTIONS |= by_name(np.lib.stride_tricks, sliding_window_view)
