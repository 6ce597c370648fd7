"""Statistics: sorting, histograms, interpolation, convolution, and the functions that ignore NaN.

In: traced values and the arguments of NumPy's functions. Out: compositions of ``sort``, ``searchsorted``, ``gather``,
``scatter_add`` and reductions. Results have a size that is known while tracing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxlite.base.errors import number_of
from fxlite.base.state import is_traced
from fxlite.ops.op import lookup, normalize_axis
from fxlite.tracing.functions.padding import part_of
from fxlite.tracing.functions.rearranging import known_size
from fxlite.tracing.functions.selecting import count_of, spread
from fxlite.tracing.numpy_functions import astype, by_name, ravel, squeeze, value_type
from fxlite.tracing.writes.in_place import store
from fxlite.types import dtypes, shapes

_KINDS = (None, "quicksort", "heapsort", "mergesort", "stable")


# -- sorting ---------------------------------------------------------------------------------------
def _sorting(name: str) -> Callable[..., Any]:
    def call(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
        if kind not in _KINDS or order is not None:
            raise ValueError(f"kind={kind!r} and order={order!r} are not traced")
        if axis is None:
            a, axis = ravel(a), -1
        axis = normalize_axis(axis, value_type(a).rank)
        if value_type(a).dtype.is_complex:
            order = _complex_order(a, axis)
            return order if name == "argsort" else lookup("gather")(a, order, axis=axis)
        return lookup(name)(a, axis=axis)

    return call


sort, argsort = _sorting("sort"), _sorting("argsort")


def _complex_order(a: Any, axis: int) -> Any:
    """The positions that sort complex numbers: by real part, then by imaginary part. Numbers whose imaginary part is
    NaN come after these, then those whose real part is NaN, then those whose parts both are."""
    places = lookup("cast")(np.isnan(a.imag), "i8") + lookup("cast")(np.isnan(a.real), "i8") * 2
    return lexsort((a.imag, a.real, places), axis)


def sort_complex(a: Any) -> Any:
    """np.sort_complex."""
    found = sort(a)
    kind = value_type(found).dtype
    if kind.is_complex:
        return found
    is_small = kind.is_integer and kind.itemsize < 4
    return lookup("cast")(found, dtypes.complex64 if is_small else dtypes.complex128)


def partition(a: Any, kth: Any, axis: Any = -1, kind: str = "introselect", order: Any = None) -> Any:
    """np.partition, by sorting."""
    _check_kth(a, kth, axis)
    return sort(a, axis)


def argpartition(a: Any, kth: Any, axis: Any = -1, kind: str = "introselect", order: Any = None) -> Any:
    """np.argpartition, by sorting."""
    _check_kth(a, kth, axis)
    return argsort(a, axis)


def _check_kth(a: Any, kth: Any, axis: Any) -> None:
    kind = value_type(a)
    size = kind.size if axis is None else kind.shape[normalize_axis(axis, kind.rank)]
    for k in np.ravel(kth):
        if type(size) is not int:
            a.tracer.require(size, ">", k if k >= 0 else -k - 1)
        elif not -size <= k < size:
            raise ValueError(f"kth ({k}) is out of bounds for {number_of(size, 'element')}")


def sort_in_place(a: Any, axis: int = -1, kind: Any = None, order: Any = None) -> None:
    """``x.sort()``."""
    store(a, sort(a, axis, kind, order), ".sort()")


def partition_in_place(a: Any, kth: Any, axis: int = -1, kind: Any = None) -> None:
    """``x.partition(k)``."""
    store(a, partition(a, kth, axis), ".partition()")


def lexsort(keys: Any, axis: int = -1) -> Any:
    """np.lexsort: the last key is the primary one, and earlier keys decide between equal elements."""
    keys = list(keys) if isinstance(keys, (tuple, list)) else [*keys]
    found: Any = None
    for key in keys:
        given = key if found is None else np.take_along_axis(key, found, axis)
        order = argsort(given, axis)
        found = order if found is None else np.take_along_axis(found, order, axis)
    return found


def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """np.searchsorted."""
    if sorter is not None:
        a = np.take(a, sorter)
    kinds = [x if type(x) in (bool, int, float) else value_type(x).dtype for x in (a, v)]
    common = dtypes.result_type(*kinds)
    tracer = next(x.tracer for x in (a, v) if is_traced(x))
    given = [_traced(tracer, x, common) for x in (a, v)]
    return lookup("searchsorted")(*given, side=side)


def _traced(tracer: Any, value: Any, dtype: dtypes.DType) -> Any:
    """A value as a traced one of this dtype; complex numbers are no real ones."""
    if value_type(value).dtype.is_complex and not dtype.is_complex:
        raise ValueError(f"the numbers must be real, and some are {value_type(value).dtype}")
    if not is_traced(value):
        return tracer.constant(np.asarray(value).astype(dtype.numpy))
    return lookup("cast")(value, dtype)


def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    """np.digitize; computed bins are assumed to be monotonic."""
    side = "left" if right else "right"
    if is_traced(bins):
        count = shapes.for_user(value_type(bins).shape[0])
        down = count - searchsorted(bins[::-1], x, "right" if right else "left")
        return lookup("where")(bins[0] <= bins[-1], searchsorted(bins, x, side), down)
    bins = np.asarray(bins)
    steps = np.diff(bins)
    if (steps >= 0).all():
        return searchsorted(bins, x, side)
    if not (steps <= 0).all():
        raise ValueError("bins must ascend or descend")
    return len(bins) - searchsorted(bins[::-1].copy(), x, "right" if right else "left")


# -- without NaN -----------------------------------------------------------------------------------
def _with(x: Any, other: Any) -> Any:
    """``x`` with NaN replaced by ``other``."""
    return lookup("where")(np.isnan(x), other, x) if value_type(x).dtype.is_float else x


def _nan_extreme(name: str, other: float) -> Callable[..., Any]:
    def call(
        a: Any, axis: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True
    ) -> Any:
        start = {} if initial is None else {"initial": initial}
        if not value_type(a).dtype.is_float:
            return getattr(np, name)(a, axis=axis, keepdims=keepdims, where=where, **start)
        start = {"initial": other} if start else {}
        missing = np.isnan(a) if where is True else np.isnan(a) | ~_condition(where)
        found = getattr(np, name)(lookup("where")(missing, other, a), axis=axis, keepdims=keepdims, **start)
        none = np.all(np.isnan(a) if where is True else missing, axis=axis, keepdims=keepdims)
        found = lookup("where")(none, np.nan, found)
        if initial is None:
            return found
        return lookup("where")(none, initial, getattr(np, f"{name}imum")(found, initial))

    return call


def _condition(where: Any) -> Any:
    return where if is_traced(where) else np.asarray(where)


def _nan_arg(name: str, other: float) -> Callable[..., Any]:
    def call(a: Any, axis: Any = None, out: Any = None, *, keepdims: bool = False) -> Any:
        found = getattr(np, name)(_with(a, other), axis=axis, keepdims=keepdims)
        if not value_type(a).dtype.is_float:
            return found
        none = np.all(np.isnan(a), axis=axis, keepdims=keepdims)
        # a row of NaN has none: an error at run time, as in NumPy
        return a.tracer.unless(found, np.any(none), ValueError("All-NaN slice encountered"))

    return call


def _counted_numbers(a: Any, where: Any) -> Any:
    """The elements that a condition includes and that are numbers."""
    return ~np.isnan(a) if where is True else ~np.isnan(a) & _condition(where)


def nanmean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False, *, where: Any = True
) -> Any:
    """np.nanmean."""
    if not value_type(a).dtype.is_float:
        return np.mean(a, axis=axis, dtype=dtype, keepdims=keepdims, where=where)
    return np.mean(a, axis=axis, dtype=dtype, keepdims=keepdims, where=_counted_numbers(a, where))


def nanvar(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: bool = False,
    *,
    where: Any = True,
    mean: Any = None,
    correction: Any = None,
) -> Any:
    """np.nanvar."""
    ddof = ddof if correction is None else correction
    if not value_type(a).dtype.is_float:
        return spread(a, axis, dtype, None, ddof, keepdims, where=where, mean=mean)
    counted = _counted_numbers(a, where)
    found = spread(a, axis, dtype, None, ddof, keepdims, where=counted, mean=mean)
    left = count_of(a, axis, keepdims, counted, found) - ddof
    return lookup("where")(left <= 0, np.nan, found)


def nanstd(*args: Any, **kwargs: Any) -> Any:
    """np.nanstd."""
    return lookup("sqrt")(nanvar(*args, **kwargs))


def nancumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """np.nancumprod."""
    return np.cumprod(_with(a, 1.0), axis=axis, dtype=dtype)


# -- counts ----------------------------------------------------------------------------------------
def _counted(places: Any, count: Any, addends: Any, tracer: Any) -> Any:
    """The sums of ``addends`` for each place of an array with ``count`` elements."""
    kind = value_type(addends)
    zeros = tracer.constant(lookup("full")((count,), 0, dtype=kind.dtype))
    return lookup("scatter_add")(zeros, places, addends, axis=0)


def _as(value: Any, dtype: dtypes.DType) -> Any:
    return astype(value, dtype, copy=False) if is_traced(value) else value.astype(dtype.numpy)


def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: Any = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> Any:
    """np.cov. Negative weights raise an error at run time."""
    given = [v if is_traced(v) else np.asarray(v) for v in (m, y) if v is not None]
    wide = dtypes.result_type(*(value_type(v).dtype for v in given), dtypes.float64)
    kind = wide if dtype is None else dtypes.dtype(dtype)
    rows = [_as(v, kind) for v in given]
    rows = [v.T if not rowvar and v.ndim == 2 else v if v.ndim == 2 else v[None] for v in rows]
    x = rows[0] if y is None else np.concatenate(rows, axis=0)
    ddof = (0 if bias else 1) if ddof is None else ddof
    named = {n: w for n, w in (("fweights", fweights), ("aweights", aweights)) if w is not None}
    weights: list[Any] = [np.multiply(w, 1.0) for w in named.values()]
    for name, w in zip(named, weights):
        if tuple(w.shape) != (x.shape[1],):
            raise ValueError(f"{name} must be one number for each of {x.shape[1]} observations, not of shape {w.shape}")
    if not weights:
        mean, count = x.mean(axis=1), max(x.shape[1] - ddof, 0)
        x = x - mean[:, None]
        return squeeze(_as(np.dot(x, x.T.conj()) * np.true_divide(1, count), kind))
    both = weights[0] * weights[-1] if len(weights) == 2 else weights[0]
    total = both.sum()
    count = total
    if ddof:
        count = total - (ddof if aweights is None else ddof * (both * weights[-1]).sum() / total)
    x = x - ((x * both).sum(axis=1) / total)[:, None]
    found = squeeze(_as(np.dot(x, (x * both).T.conj()) * np.true_divide(1, np.maximum(count, 0.0)), kind))
    for name, w in zip(named, weights):
        negative, error = np.any(np.less(w, 0)), ValueError(f"{name} cannot be negative")
        if is_traced(negative):
            found = found.tracer.unless(found, negative, error)
        elif negative:
            raise error
    return found


def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    """np.histogram_bin_edges: known if bins and range are, else computed."""
    return _bin_edges(a, bins, range, [value_type(a).dtype])


def _bin_edges(a: Any, bins: Any, range: Any, kinds: list[Any]) -> Any:
    """The edges of the bins for ``a``. Their dtype is that of ``kinds`` together with the ends of ``range``, or float64
    if this is no float."""
    if value_type(a).dtype.is_complex:
        raise ValueError("complex numbers have no order in which they could lie in bins")
    if isinstance(bins, str):
        raise ValueError(f"bins={bins!r}: how many there are depends on values; give a number")
    if is_traced(bins) and not value_type(bins).rank:
        raise ValueError("how many bins there are must be known while tracing")
    if not isinstance(bins, (int, np.integer)):
        edges = bins if is_traced(bins) else np.asarray(bins)
        if not is_traced(edges) and (edges.ndim != 1 or (np.diff(edges) < 0).any()):
            raise ValueError("bins must ascend")
        return edges
    if bins < 1:
        raise ValueError(f"there must be 1 bin or more, not {bins}")
    bins = int(bins)
    if range is not None:
        kinds = [*kinds, *(v if type(v) in (bool, int, float) else value_type(v).dtype for v in range)]
    common = dtypes.result_type(*kinds)
    kind = common if common.is_float else dtypes.float64
    if range is not None and not any(map(is_traced, range)):
        return np.histogram_bin_edges(np.zeros(0, kind.numpy), bins, range)
    if range is None:
        if value_type(a).size == 0:
            return np.linspace(0.0, 1.0, bins + 1)
        if not is_traced(a):
            return np.histogram_bin_edges(a, bins)
        low, high = np.min(a), np.max(a)
        if value_type(a).dtype.is_float:
            is_finite = np.isfinite(low) & np.isfinite(high)
            low = a.tracer.unless(low, ~is_finite, ValueError("autodetected range is not finite"))
        range = low, high
    low, high = (lookup("cast")(v, "f64") for v in range)
    same = lookup("eq")(low, high)
    first, last = lookup("where")(same, low - 0.5, low), lookup("where")(same, high + 0.5, high)
    step = (last - first) / bins
    inner = np.arange(bins + 1) * step + first
    return lookup("cast")(lookup("where")(np.arange(bins + 1) == bins, last, inner), kind)


def _bin_of(x: Any, edges: Any, even: bool, own: bool) -> tuple[Any, Any]:
    """The bin of each element, and whether it has one; the last bin includes its upper edge. For ``even`` bins it is
    computed and then corrected by comparison with the adjacent edges, as in NumPy. ``own``: the first and the last edge
    are the least and the largest element, so that each has a bin, and the second result is True."""
    count = shapes.for_user(value_type(edges).shape[0] - 1)
    kinds = [value_type(v).dtype for v in (x, edges)]
    common = dtypes.result_type(*kinds)
    tracer = x.tracer if is_traced(x) else edges.tracer
    x, edges = _traced(tracer, x, common), _traced(tracer, edges, common)
    first, last = edges[0], edges[-1]
    inside = own or (x >= first) & (x <= last)
    if even and common.is_float and type(count) is int:
        place = (x - first) / (last - first) * count
        place = lookup("cast")(place if own else lookup("where")(inside, place, 0.0), "i64")
        place = np.clip(place, 0, count - 1)
        place = place - lookup("cast")(x < np.take(edges, place), "i64")
        place = np.clip(place, 0, count - 1)  # only changes elements without a bin
        place = place + lookup("cast")(x >= np.take(edges, place + 1), "i64")
        return np.clip(place, 0, count - 1), inside
    place = lookup("searchsorted")(edges, x, side="right") - 1
    place = lookup("where")(x == last, count - 1, place)
    return np.clip(place, 0, count - 1), inside


def histogram(a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> tuple[Any, Any]:
    """np.histogram with a number of bins that is known while tracing."""
    edges = histogram_bin_edges(a, bins, range)
    a = np.ravel(a)
    even = isinstance(bins, (int, np.integer))
    places, inside = _bin_of(a, edges, even, even and range is None)
    if weights is None:
        addends = (
            lookup("full")(value_type(places).shape, 1, "i64") if inside is True else lookup("cast")(inside, "i64")
        )
    else:
        flat = np.ravel(weights)
        zero = lookup("cast")(0, value_type(flat).dtype)
        addends = flat if inside is True else lookup("where")(inside, flat, zero)
    found = _counted(places, value_type(edges).shape[0] - 1, addends, places.tracer)
    if density:
        found = found / np.diff(edges) / found.sum()
    return found, edges


def histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> tuple[Any, Any]:
    """np.histogramdd."""
    if isinstance(sample, (tuple, list)):
        columns = list(sample)
    else:
        rank = value_type(sample).rank
        sample = sample if rank > 1 else lookup("unsqueeze")(sample, -1)
        columns = [sample[:, c] for c in np.arange(known_size(sample, 1, "np.histogramdd"))]
    each = list(bins) if isinstance(bins, (tuple, list)) else [bins] * len(columns)
    ranges = [None] * len(columns) if range is None else list(range)
    if not len(each) == len(ranges) == len(columns):
        raise ValueError(f"bins and range must be given for {len(columns)} dimensions")
    common = dtypes.result_type(*(value_type(column).dtype for column in columns))
    columns = [_as(column if is_traced(column) else np.asarray(column), common) for column in columns]
    # a given range decides alone what the edges are; numbers of Python are float64
    kinds = [common if limits is None else dtypes.bool_ for limits in ranges]
    edges = [_bin_edges(c, b, r, [kind]) for c, b, r, kind in zip(columns, each, ranges, kinds)]
    total: Any = 0
    inside: Any = True
    for column, edge, given, limits in zip(columns, edges, each, ranges):
        even = isinstance(given, (int, np.integer))
        place, holds = _bin_of(column, edge, even, even and limits is None)
        total = total * (value_type(edge).shape[0] - 1) + place
        inside = holds if inside is True else inside if holds is True else inside & holds
    shape = [value_type(edge).shape[0] - 1 for edge in edges]
    given = 1.0 if weights is None else weights
    addends = lookup("where")(np.broadcast_to(inside, value_type(total).shape), given, 0.0)
    found = _counted(total, math.prod(shape), _traced(total.tracer, addends, dtypes.float64), total.tracer)
    found = lookup("reshape")(found, tuple(shape))
    if density:
        whole = found.sum()
        for axis, edge in enumerate(edges):
            found = found / np.reshape(np.diff(edge), tuple(-1 if a == axis else 1 for a in range(len(shape))))
        found = found / whole
    return found, edges


def histogram2d(
    x: Any, y: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> tuple[Any, Any, Any]:
    """np.histogram2d."""
    given = bins if isinstance(bins, (tuple, list)) and len(bins) == 2 else [bins, bins]
    found, edges = histogramdd([x, y], list(given), range, density, weights)
    return found, edges[0], edges[1]


# -- curves ----------------------------------------------------------------------------------------
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """np.interp: linear interpolation between points in ascending order. Real and imaginary parts are interpolated
    separately; where ``x`` is NaN, the imaginary part is 0."""
    tracer = next(v.tracer for v in (x, xp, fp) if is_traced(v))
    if value_type(fp).dtype.is_complex:
        parts: list[Any] = []
        for take in (np.real, np.imag):
            first, last = (None if v is None else take(v) for v in (left, right))
            parts.append(interp(x, xp, take(fp), first, last, period))
        parts[1] = lookup("where")(np.isnan(x), 0.0, parts[1])
        return lookup("complex")(*parts)
    x, xp, fp = (_traced(tracer, v, dtypes.float64) for v in (x, xp, fp))
    if period is not None:
        period = abs(period)
        if period == 0:
            raise ValueError("period must not be 0")
        x, xp = x % period, xp % period
        order = np.argsort(xp)
        xp, fp = np.take(xp, order), np.take(fp, order)
        xp = np.concatenate([xp[-1:] - period, xp, xp[:1] + period])
        fp = np.concatenate([fp[-1:], fp, fp[:1]])
    size = value_type(xp).shape[0]
    if size == 0:
        raise ValueError("there are no points")
    last = shapes.for_user(shapes.normalize(size - 1))
    before = np.clip(lookup("searchsorted")(xp, x, side="right") - 1, 0, last)
    after = np.minimum(before + 1, last)
    x0, y0, x1, y1 = (np.take(v, i) for v, i in ((xp, before), (fp, before), (xp, after), (fp, after)))
    slope = (y1 - y0) / (x1 - x0)
    found = slope * (x - x0) + y0
    other = slope * (x - x1) + y1
    found = lookup("where")(np.isnan(found), other, found)
    found = lookup("where")(np.isnan(found) & (y0 == y1), y0, found)
    found = lookup("where")((x == x0) | (before == last), y0, found)
    found = lookup("where")(x > xp[-1], fp[-1] if right is None else right, found)
    found = lookup("where")(x < xp[0], fp[0] if left is None else left, found)
    return lookup("where")(np.isnan(x), x, found)


def correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    """np.correlate: sums of products with the second argument, shifted along the first."""
    return _correlated(a, np.conj(v) if value_type(v).dtype.is_complex else v, mode, turns=False)


def convolve(a: Any, v: Any, mode: str = "full") -> Any:
    """np.convolve."""
    return _correlated(a, v, mode, turns=True)


def _correlated(a: Any, v: Any, mode: str, turns: bool) -> Any:
    a, v = (np.atleast_1d(x) for x in (a, v))
    n, m = (value_type(x).shape[0] for x in (a, v))
    if value_type(a).rank != 1 or value_type(v).rank != 1:
        raise ValueError("both must have rank 1")
    if n == 0 or m == 0:
        raise ValueError("neither may be empty")
    if mode not in ("valid", "same", "full"):
        raise ValueError(f'mode is "valid", "same" or "full", not {mode!r}')
    swapped = type(n) is int and (type(m) is not int or m > n)
    if swapped:  # the shorter one is shifted along the longer one
        a, v, n, m = v, a, m, n
    if type(m) is not int:
        raise ValueError(f"one of them must have a size that is known, not {n} and {m}")
    v = v[::-1] if turns else v
    common = dtypes.result_type(value_type(a).dtype, value_type(v).dtype)
    before = {"valid": 0, "same": m // 2, "full": m - 1}[mode]
    after = {"valid": 0, "same": m - 1 - m // 2, "full": m - 1}[mode]
    tracer = next(x.tracer for x in (a, v) if is_traced(x))
    a, v = _traced(tracer, a, common), _traced(tracer, v, common)
    count = shapes.normalize(n + before + after - m + 1)
    wide = lookup("pad")(a, ((before, after),))
    if common.is_float:
        line = lookup("reshape")(wide, (1, 1, value_type(wide).shape[0]))
        found = lookup("conv1d")(line, lookup("reshape")(v, (1, 1, m)))
        found = lookup("reshape")(found, (count,))
    else:
        starts = lookup("arange")(0, shapes.for_user(count), 1, "i64")
        starts = starts if is_traced(starts) else np.asarray(starts)
        windows = lookup("take")(wide, lookup("unsqueeze")(starts, 1) + np.arange(m), axis=0)
        found = lookup("cast")(windows @ v, common)
    return found[::-1] if swapped and not turns else found


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """np.ediff1d."""
    flat = ravel(ary)
    size = value_type(flat).shape[0]
    inner = part_of(flat, 0, 1, size) - part_of(flat, 0, 0, shapes.normalize(size - 1))
    kind = value_type(flat).dtype
    ends = [None if end is None else _flat_as(end, kind) for end in (to_begin, to_end)]
    found = [part for part in (ends[0], inner, ends[1]) if part is not None]
    return lookup("concat")(tuple(found), axis=0) if len(found) > 1 else inner


def _flat_as(value: Any, dtype: dtypes.DType) -> Any:
    if is_traced(value):
        return lookup("cast")(ravel(value), dtype)
    return np.ravel(value).astype(dtype.numpy)


FUNCTIONS = by_name(
    np, sort_complex, partition, argpartition, lexsort, searchsorted, digitize, nanmean, nanvar, nanstd, nancumprod
)
FUNCTIONS |= by_name(
    np, sort_complex, cov, histogram, histogram2d, histogramdd, histogram_bin_edges, interp, correlate, convolve
)
FUNCTIONS |= by_name(np, sort_complex, convolve, ediff1d) | {
    np.sort: sort,
    np.argsort: argsort,
    np.nanmax: _nan_extreme("max", -math.inf),
    np.nanmin: _nan_extreme("min", math.inf),
    np.nanargmax: _nan_arg("argmax", -math.inf),
    np.nanargmin: _nan_arg("argmin", math.inf),
}
