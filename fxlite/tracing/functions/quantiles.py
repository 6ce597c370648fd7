"""Quantiles: ``np.quantile``, ``np.percentile``, ``np.median``, and those that ignore NaN.

In: traced values and the arguments of NumPy's functions, with all of NumPy's methods. Out: a ``sort``, elements of it,
and interpolations between them. Positions are numbers if the size and the quantile are known, else they are computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from fxlite.base.state import is_traced
from fxlite.ops.op import lookup, normalize_axes
from fxlite.tracing.numpy_functions import value_type
from fxlite.tracing.writes.shared_memory import fresh
from fxlite.types import dtypes, shapes

#: Methods that interpolate: alpha and beta of Hyndman and Fan, Sample Quantiles in Statistical
#: Packages, The American Statistician 50 (1996).
_CONTINUOUS = {
    "interpolated_inverted_cdf": (0, 1),
    "hazen": (0.5, 0.5),
    "weibull": (0, 0),
    "linear": (1, 1),
    "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
}
#: Methods that choose an element: the place of a quantile among n elements, counted from 0, and the rounding of
#: its fraction.
_CHOOSING: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "lower": lambda place: (np.floor(place), 0.0),
    "higher": lambda place: (np.ceil(place), 0.0),
    "nearest": lambda place: (np.rint(place), 0.0),
    "midpoint": lambda place: (np.floor(place), 0.5 * (place != np.floor(place))),
}


#: Computes a value of a dtype from an element, the next one, and the distance from the former.
Between: TypeAlias = Callable[[Any, Any, Any, dtypes.DType], Any]


def place_of(method: str, n: Any, q: Any) -> tuple[Any, Any]:
    """The position (from 0) of the element before a quantile, and the distance from it."""
    if method in _CHOOSING:
        return _CHOOSING[method]((n - 1) * q)
    if method == "inverted_cdf":
        return np.maximum(np.ceil(n * q) - 1, 0), 0.0
    if method == "averaged_inverted_cdf":
        place = n * q - 1
        whole = np.floor(place)
        return whole, np.where(place == whole, 0.5, 1.0)
    if method == "closest_observation":
        place = n * q - 1 - 0.5
        whole = np.floor(place)
        is_even = (place == whole) & (whole % 2 == 1)
        return np.where(is_even, whole, whole + 1), 0.0
    if method not in _CONTINUOUS:
        known = ", ".join([*_CONTINUOUS, *_CHOOSING, "inverted_cdf", "averaged_inverted_cdf", "closest_observation"])
        raise ValueError(f"the method {method!r} is none of {known}")
    alpha, beta = _CONTINUOUS[method]
    place = n * q + (alpha + q * (1 - alpha - beta)) - 1
    if method == "linear":
        place = (n - 1) * q
    whole = np.floor(place)
    return whole, place - whole


def _quantile(
    a: Any,
    q: Any,
    axis: Any,
    method: str,
    keepdims: bool,
    weights: Any = None,
    scale: int = 1,
    skips_nan: bool = False,
    between: Between | None = None,
) -> Any:
    """np.quantile; ``q`` goes from 0 to ``scale``; ``skips_nan``: NaN is ignored; ``between`` computes a value from two
    neighbours, by default by interpolation."""
    if weights is not None:
        raise ValueError("quantiles with weights are not traced")
    kind, rank = value_type(a), value_type(a).rank
    if not is_traced(q) and np.any((np.asarray(q) < 0) | (np.asarray(q) > scale)):
        raise ValueError(f"quantiles lie between 0 and {scale}")
    place_of(method, 1, 0.5)  # raises an error for an unknown method
    asked: Any = np.quantile
    two = np.ones(2, kind.dtype.numpy)
    result = np.median(two).dtype if between else asked(two, _like(q) / scale, method=method).dtype
    q = lookup("cast")(q, "f64") / scale if is_traced(q) else np.asarray(q, np.float64) / scale
    axes = normalize_axes(tuple(axis) if isinstance(axis, list) else axis, rank)
    others = [x for x in range(rank) if x not in axes]
    rows = lookup("permute")(a, (*others, *axes))
    lead = tuple(kind.shape[x] for x in others)
    size = shapes.product(kind.shape[x] for x in axes)
    rows = lookup("sort")(lookup("reshape")(rows, (*lead, size)), axis=-1)
    if size == 0:
        raise ValueError("there are no elements")
    found = _quantiles(rows, size, q, method, dtypes.dtype(result), skips_nan, between or interpolated)
    q_rank = value_type(q).rank if is_traced(q) else np.ndim(q)
    if keepdims:
        shape = tuple(1 if x in axes else d for x, d in enumerate(kind.shape))
        return lookup("reshape")(found, (*value_type(found).shape[:q_rank], *shape))
    return fresh(found, number=True)


def _like(q: Any) -> Any:
    """A stand-in for the quantile with which NumPy determines the dtype of the result."""
    if is_traced(q):
        return np.zeros((1,) * value_type(q).rank, value_type(q).dtype.numpy)
    return q if type(q) in (int, float) else np.zeros_like(q)


def _quantiles(
    rows: Any, size: Any, q: Any, method: str, result: dtypes.DType, skips_nan: bool, between: Between
) -> Any:
    """The quantiles of sorted rows, with the axes of ``q`` first."""
    kind = value_type(rows)
    skips_nan = skips_nan and kind.dtype.is_float
    if skips_nan:
        n: Any = lookup("sum")(lookup("cast")(~np.isnan(rows), "f64"), axis=-1)
    else:
        n = shapes.for_user(size)
    shape = np.shape(q) if not is_traced(q) else value_type(q).shape
    if skips_nan or is_traced(q):
        wide_q = np.reshape(q, (*shape, *[1] * (kind.rank - 1)))
        below, rest = place_of(method, n, wide_q)
        last = n - 1
        first = _taken(rows, np.clip(below, 0, last), len(shape))
        second = _taken(rows, np.clip(below + 1, 0, last), len(shape))
        found = between(first, second, rest, result)
        return _or_nan(found, rows, kind, skips_nan, n)
    parts = []
    if not isinstance(n, (int, np.integer)):
        traced = rows.tracer.size(n)
        for one in np.asarray(q).reshape(-1):
            below, rest = place_of(method, traced * 1.0, one)
            last = traced - 1.0
            first = lookup("take")(rows, _whole(np.clip(below, 0, last)), axis=-1)
            second = lookup("take")(rows, _whole(np.clip(below + 1, 0, last)), axis=-1)
            parts.append(between(first, second, rest, result))
    else:
        for one in np.asarray(q).reshape(-1):
            below, rest = place_of(method, n, one)
            places = [int(np.clip(p, 0, n - 1)) for p in (below, below + 1)]
            first, second = (lookup("select")(rows, axis=-1, index=p) for p in places)
            rest = 0.0 if places[0] == places[1] else float(rest)
            parts.append(between(first, second, rest, result))
    found = lookup("stack")(tuple(parts), axis=0)
    found = lookup("reshape")(found, (*shape, *value_type(found).shape[1:]))
    return _or_nan(found, rows, kind, skips_nan, n)


def _whole(place: Any) -> Any:
    return lookup("cast")(place, "i64") if is_traced(place) else np.int64(place)


def _taken(rows: Any, places: Any, added: int) -> Any:
    """The elements of the last axis at positions that have ``added`` more axes at the start."""
    index = _whole(places)
    if not is_traced(index):
        return lookup("take")(rows, index, axis=-1)
    lead = value_type(rows).shape
    for _ in range(added):
        rows = lookup("unsqueeze")(rows, 0)
    wide = lookup("unsqueeze")(index, -1)
    shape = (*value_type(index).shape[:added], *lead[:-1], 1)
    return lookup("squeeze")(lookup("gather")(rows, lookup("expand")(wide, shape), axis=-1), -1)


def interpolated(first: Any, second: Any, rest: Any, result: dtypes.DType) -> Any:
    """The interpolation between one element and the next, exact at both ends. Their difference is computed in their
    dtype, everything else in that of the result."""
    number = not is_traced(rest) and np.ndim(rest) == 0
    if number and rest == 0:
        return lookup("cast")(first, result)
    step, first, second = (lookup("cast")(v, result) for v in (second - first, first, second))
    if number:
        part = float(rest)
        return second - step * (1 - part) if part >= 0.5 else first + step * part
    way: Any = lookup("cast")(rest, result) if is_traced(rest) else np.asarray(rest, result.numpy)
    return lookup("where")(way >= 0.5, second - step * (1 - way), first + step * way)


def mean_of_two(first: Any, second: Any, rest: Any, result: dtypes.DType) -> Any:
    """The mean of the two elements in the middle, or the one that is alone there, as NumPy's median is: it differs from
    their interpolation where their difference is not a number of their dtype."""
    if not is_traced(rest) and np.ndim(rest) == 0 and rest == 0:
        return lookup("cast")(first, result)
    first, second = (lookup("cast")(v, result.compute) for v in (first, second))
    mean = lookup("cast")((first + second) / 2, result)
    if not is_traced(rest) and np.ndim(rest) == 0:
        return mean
    return lookup("where")(rest == 0, lookup("cast")(first, result), mean)


def _or_nan(found: Any, rows: Any, kind: Any, skips_nan: bool, n: Any) -> Any:
    """NaN if there is a NaN among the elements or, with ``skips_nan``, if there is nothing else."""
    if not kind.dtype.is_float:
        return found
    last = lookup("select")(rows, axis=-1, index=shapes.normalize(kind.shape[-1] - 1))
    missing = (n == 0) if skips_nan else np.isnan(last)
    return lookup("where")(missing, np.nan, found)


def _quantiles_of(scale: int = 1, skips_nan: bool = False) -> Callable[..., Any]:
    def call(
        a: Any,
        q: Any,
        axis: Any = None,
        out: Any = None,
        overwrite_input: bool = False,
        method: str = "linear",
        keepdims: bool = False,
        *,
        weights: Any = None,
    ) -> Any:
        return _quantile(a, q, axis, method, keepdims, weights, scale, skips_nan)

    return call


def _median_of(skips_nan: bool) -> Callable[..., Any]:
    def call(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: bool = False) -> Any:
        return _quantile(a, 0.5, axis, "linear", keepdims, skips_nan=skips_nan, between=mean_of_two)

    return call


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.quantile: _quantiles_of(),
    np.percentile: _quantiles_of(100),
    np.median: _median_of(False),
    np.nanquantile: _quantiles_of(skips_nan=True),
    np.nanpercentile: _quantiles_of(100, skips_nan=True),
    np.nanmedian: _median_of(True),
}
