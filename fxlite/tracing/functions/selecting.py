"""Functions that choose among values: ``np.select``, ``np.choose``, ``np.piecewise``, reductions
with ``where=``.

In: traced values and the arguments of NumPy's functions. Out: compositions of ``where``, ``gather``
and ``take``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxlite.base.state import is_traced
from fxlite.ops.op import broadcast_shapes, lookup, normalize_axis
from fxlite.scalar.functions import COMBINATIONS
from fxlite.tracing.capture.known import known_value
from fxlite.tracing.functions.rearranging import within
from fxlite.tracing.numpy_functions import astype, by_name, ravel, take, value_type
from fxlite.tracing.numpy_functions import reduction as plain_reduction
from fxlite.tracing.selections import compact
from fxlite.tracing.selections.masked import chosen
from fxlite.types import dtypes, shapes


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    """np.select: the first condition that holds decides."""
    if len(condlist) != len(choicelist):
        raise ValueError(f"{len(condlist)} conditions for {len(choicelist)} choices")
    if not condlist:
        raise ValueError("there are no conditions")
    for condition in condlist:
        if not value_type(condition).dtype.is_bool:
            raise TypeError("conditions are arrays of bools")
    wanted = _common([*choicelist, default])
    found = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist)):
        found = lookup("where")(condition, choice, found)
    return found if wanted is None else astype(found, wanted, copy=False)


def _common(values: Sequence[Any]) -> dtypes.DType | None:
    kinds = [v if type(v) in (bool, int, float) else value_type(v).dtype for v in values]
    return dtypes.result_type(*kinds)


def choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> Any:
    """np.choose; a number that is out of range raises an error at run time."""
    parts = list(choices) if isinstance(choices, (tuple, list)) else [*choices]
    wanted = _common([*parts, 0][: len(parts)])
    common = broadcast_shapes(*(value_type(v).shape for v in (a, *parts)))
    if value_type(a).dtype.is_bool:
        a = lookup("cast")(a, "i64")
    index = within(a, len(parts), mode)
    wide = [_wide(p, common, wanted, a) for p in parts]
    whole = lookup("stack")(tuple(wide), axis=0)
    places = lookup("unsqueeze")(lookup("expand")(index, common), 0)
    return lookup("squeeze")(lookup("gather")(whole, places, axis=0), axis=0)


def piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Any:
    """np.piecewise. Functions are called with all of ``x``, and their results are used where the conditions hold."""
    is_one = not isinstance(condlist, (tuple, list)) and value_type(condlist).rank == value_type(x).rank
    conditions = [condlist] if is_one else [*condlist]
    missing = len(funclist) - len(conditions)
    if missing not in (0, 1):
        raise ValueError(f"{len(conditions)} conditions take as many functions or one more, not {len(funclist)}")
    if missing:
        conditions.append(np.logical_not(functools.reduce(np.logical_or, conditions)))
    found = np.zeros_like(x)
    for condition, function in zip(conditions, funclist):
        value = function(x, *args, **kw) if callable(function) else function
        found = np.where(condition, lookup("cast")(value, value_type(x).dtype), found)
    return found


def _wide(part: Any, shape: Any, dtype: Any, like: Any) -> Any:
    tracer = next((v.tracer for v in (part, like) if is_traced(v)), None)
    part = part if tracer is None else tracer.constant(part)
    return lookup("expand")(lookup("cast")(part, dtype), shape)


def compress(condition: Any, a: Any, axis: Any = None, out: Any = None) -> Any:
    """np.compress; the result is a selection if the condition is not known while tracing."""
    if is_traced(condition) and known_value(condition) is None:
        return compact.compress(condition, a, axis)
    if is_traced(condition):
        condition = np.asarray(condition)
    if axis is None:
        a, axis = ravel(a), 0
    return lookup("take")(a, np.flatnonzero(condition), axis=axis)


def extract(condition: Any, arr: Any) -> Any:
    """np.extract; the result is a selection if the condition is not known while tracing."""
    if is_traced(condition) and known_value(condition) is None:
        return compact.extract(condition, arr)
    condition = np.ravel(np.asarray(condition))
    return lookup("take")(ravel(arr), np.flatnonzero(condition), axis=0)


def take_at(x: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    """np.take in all its modes."""
    if mode == "raise":
        return take(x, indices, axis)
    if axis is None:
        x, axis = ravel(x), 0
    size = shapes.for_user(value_type(x).shape[axis])
    index = indices if is_traced(indices) else np.asarray(indices)
    return lookup("take")(x, within(index, size, mode), axis=axis)


def take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Any:
    """np.take_along_axis."""
    if axis is None:
        arr, axis = ravel(arr), 0
    return lookup("gather")(arr, indices, axis=axis)


#: The most values with which each element is compared one by one.
_FEW_TESTS = 16


def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, kind: Any = None
) -> Any:
    """np.isin: compares each element with all candidates if these are few, else searches the sorted candidates."""
    tests = ravel(test_elements) if is_traced(test_elements) else np.ravel(test_elements)
    count = value_type(tests).shape[0]
    if type(count) is int and count <= _FEW_TESTS:
        found = (lookup("unsqueeze")(element, -1) == tests).any(axis=-1)
    else:
        element = element if is_traced(element) else np.asarray(element)
        kind = np.result_type(value_type(element).dtype.numpy, value_type(tests).dtype.numpy)
        element, tests = (v.astype(kind) for v in (element, tests))
        ranked = np.sort(tests)
        place = np.minimum(np.searchsorted(ranked, element), shapes.for_user(count) - 1)
        found = lookup("take")(ranked, place, axis=0) == element
    return ~found if invert else found


# -- reductions of some elements -------------------------------------------------------------------
def reduction(name: str, plain: Callable[..., Any], neutral: Any = None, combined: str = "") -> Callable[..., Any]:
    """A reduction with ``where=`` and ``initial=`` as in NumPy. ``neutral`` replaces elements that are excluded (None:
    ``initial``), and ``combined`` is the op that combines two results."""

    def call(
        x: Any,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = True,
    ) -> Any:
        options = {"keepdims": bool(keepdims), **({} if dtype is None else {"dtype": dtype})}
        if initial is not None and not combined:
            raise ValueError(f"{name} takes no initial=")
        if where is not True:
            other = initial if neutral is None else neutral
            if other is None:
                raise ValueError(f"{name} of some elements needs initial=, as in NumPy")
            x = chosen(where, x, other)
        if initial is not None and neutral is None and not _has_elements(x, axis):
            options["initial"] = COMBINATIONS[name].start(value_type(x).dtype)
        found = plain(x, axis, **options)
        is_infinite = type(initial) is float and math.isinf(initial)
        if initial is None or (is_infinite and initial == COMBINATIONS[name].neutral):  # no effect
            return found
        return lookup(combined)(found, initial)

    return call


def _has_elements(x: Any, axis: Any) -> bool:
    """Whether none of the axes that are reduced has the size 0, whatever the named sizes are."""
    shape = value_type(x).shape
    axes = range(len(shape)) if axis is None else axis if isinstance(axis, tuple) else (axis,) if shape else ()
    return all(shapes.at_least(shape[normalize_axis(a, len(shape))], 1) for a in axes)


def average(
    x: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False, *, where: Any = True
) -> Any:
    """np.mean."""
    if where is True:
        return _MEAN(x, axis, dtype, keepdims=keepdims)
    return _mean_of_some(x, axis, dtype, keepdims, where)


_MEAN = plain_reduction("mean")


def extreme(name: str, plain: Callable[..., Any], neutral: Any = None, combined: str = "") -> Callable[..., Any]:
    """Like :func:`reduction`, for np.max and similar functions, which have no ``dtype=``."""
    whole = reduction(name, plain, neutral, combined)

    def call(
        x: Any, axis: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True
    ) -> Any:
        return whole(x, axis, None, None, keepdims, initial, where)

    return call


def _mean_of_some(x: Any, axis: Any, dtype: Any, keepdims: bool, where: Any) -> Any:
    kind = value_type(x).dtype if dtype is None else dtypes.dtype(dtype)
    wide = kind if kind.is_float else dtypes.float64
    some = chosen(where, lookup("cast")(x, wide), 0)
    total = np.sum(some, axis=axis, keepdims=keepdims)
    return lookup("cast")(total / count_of(x, axis, keepdims, where, total), wide)


def count_of(x: Any, axis: Any, keepdims: bool, where: Any, like: Any) -> Any:
    """The number of included elements along axes, in the dtype of ``like`` (float32 for half types)."""
    kind = value_type(like).dtype.compute
    wide = lookup("expand")(where, value_type(x).shape) if is_traced(where) else where
    if not is_traced(wide):
        sizes = value_type(x).shape
        wide = np.broadcast_to(np.asarray(where, bool), tuple(map(shapes.for_user, sizes)))
    return lookup("cast")(lookup("sum")(wide, axis=axis, keepdims=keepdims), kind)


def spread(
    x: Any,
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
    """np.var, with ``where=``, ``mean=`` and the array API's ``correction=``."""
    from fxlite.tracing.numpy_functions import var

    ddof = ddof if correction is None else correction
    if where is True and mean is None and type(ddof) is int:
        return var(x, axis, dtype, None, ddof, keepdims)
    if dtype is not None:
        x = astype(x, dtype, copy=False)
    kind = value_type(x).dtype
    wide = (kind if kind.is_float else dtypes.float64).compute
    x = lookup("cast")(x, wide)
    if mean is None:
        mean = _mean_of_some(x, axis, None, True, where)
    square = np.square(x - mean)
    if where is not True:
        square = chosen(where, square, 0)
    total = np.sum(square, axis=axis, keepdims=keepdims)
    left = np.maximum(count_of(x, axis, keepdims, where, total) - ddof, 0)
    return lookup("cast")(total / left, kind if kind.is_float else dtypes.float64)


def deviation(*args: Any, **kwargs: Any) -> Any:
    """np.std."""
    return lookup("sqrt")(spread(*args, **kwargs))


FUNCTIONS = by_name(np, select, choose, piecewise, compress, extract, take_along_axis, isin)
