"""Ufuncs that are compositions of ops, or have two results, and the methods of ufuncs.

In: a ufunc's operands. Out: calls of ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxlite.base.state import is_traced
from fxlite.ops.op import lookup, normalize_axis
from fxlite.tracing.functions.padding import part_of
from fxlite.tracing.functions.rearranging import known_size
from fxlite.tracing.numpy_functions import value_type
from fxlite.tracing.writes.shared_memory import fresh
from fxlite.types import dtypes

#: Steps of a reduction or scan for which there is no op.
_MOST_STEPS = 256


def _result(ufunc: np.ufunc, *operands: Any) -> list[dtypes.DType]:
    """The dtypes that NumPy's ufunc gives."""
    ones = [np.ones((), value_type(v).dtype.numpy) if is_traced(v) or np.ndim(v) else v for v in operands]
    with np.errstate(all="ignore"):
        found = ufunc(*ones)
    return [dtypes.dtype(np.asarray(f).dtype) for f in (found if ufunc.nout > 1 else [found])]


def _divmod(x: Any, y: Any) -> tuple[Any, Any]:
    return lookup("floor_divide")(x, y), lookup("remainder")(x, y)


def _modf(x: Any) -> tuple[Any, Any]:
    kind, _ = _result(np.modf, x)
    x = lookup("cast")(x, kind)
    whole = lookup("trunc")(x)
    rest = lookup("where")(lookup("isinf")(x), lookup("cast")(0, kind), x - whole)
    return lookup("copysign")(rest, x), whole


def _frexp(x: Any) -> tuple[Any, Any]:
    kind, _ = _result(np.frexp, x)
    x = lookup("cast")(x, kind)
    exponent = lookup("exponent")(x)
    return _scaled(x, -exponent, kind), exponent


def _scaled(x: Any, exponent: Any, kind: dtypes.DType) -> Any:
    """``x * 2**exponent`` in two steps, of which none overflows where the result does not."""
    wide = kind.compute
    exponent = np.clip(exponent, -2100, 2100)
    half = lookup("right_shift")(exponent, 1)
    powers = [lookup("exp2")(lookup("cast")(e, wide)) for e in (half, exponent - half)]
    return lookup("cast")(lookup("cast")(x, wide) * powers[0] * powers[1], kind)


def _ldexp(x: Any, y: Any) -> Any:
    (kind,) = _result(np.ldexp, x, y)
    tracer = next(v.tracer for v in (x, y) if is_traced(v))
    y = y if is_traced(y) else tracer.proxy(tracer.create_arg(np.asarray(y, np.int64)))
    return _scaled(x, lookup("cast")(y, "i64"), kind)


def _spacing(x: Any) -> Any:
    """The distance to the next number, of the largest one that to the number before."""
    (kind,) = _result(np.spacing, x)
    x = lookup("cast")(x, kind)
    size = lookup("abs")(x)
    info = np.finfo(kind.numpy) if kind is not dtypes.bfloat16 else None
    step = lookup("nextafter")(size, np.inf) - size
    if info is not None:
        last = float(info.max) - float(np.nextafter(info.max, 0, dtype=kind.numpy))
        step = lookup("where")(size == float(info.max), lookup("cast")(last, kind), step)
    return lookup("copysign")(step, x)


def _positive(x: Any) -> Any:
    if value_type(x).dtype.is_bool:
        raise TypeError("np.positive is not defined for bools")
    return fresh(x, number=True)


def _matvec(x: Any, y: Any) -> Any:
    return lookup("squeeze")(np.matmul(x, lookup("unsqueeze")(y, -1)), -1)


def _vecmat(x: Any, y: Any) -> Any:
    return lookup("squeeze")(np.matmul(lookup("unsqueeze")(x, -2), y), -2)


#: Ufuncs without an op of their own.
UFUNCS: dict[np.ufunc, Callable[..., Any]] = {
    np.divmod: _divmod,
    np.modf: _modf,
    np.frexp: _frexp,
    np.ldexp: _ldexp,
    np.spacing: _spacing,
    np.positive: _positive,
    np.radians: lambda x: lookup("deg2rad")(x),
    np.degrees: lambda x: lookup("rad2deg")(x),
    np.matvec: _matvec,
    np.vecmat: _vecmat,
}


# -- methods ---------------------------------------------------------------------------------------
def _steps_of(x: Any, axis: Any, what: str) -> tuple[int, int]:
    """The axis and its size, where it may be unrolled."""
    axis = normalize_axis(0 if axis is None else axis, value_type(x).rank)
    size = known_size(x, axis, what)
    if size > _MOST_STEPS:
        raise ValueError(f"{what} of {size} elements: without an op up to {_MOST_STEPS} are traced")
    return axis, size


def fold(combine: Callable[..., Any], identity: Any, x: Any, axis: Any, keepdims: bool) -> Any:
    """``ufunc.reduce`` without an op, from the first element to the last."""
    rank = value_type(x).rank
    if axis is None or isinstance(axis, tuple):
        axes = range(rank) if axis is None else sorted({a % rank for a in axis})
        for one in reversed(axes):
            x = fold(combine, identity, x, one, True)
        return x if keepdims else _dropped(x, list(axes))
    axis, size = _steps_of(x, axis, "reduce")
    if size == 0:
        if identity is None:
            raise ValueError("there is nothing to reduce, and the ufunc has no identity")
        shape = list(value_type(x).shape)
        shape[axis] = 1
        found = lookup("expand")(lookup("cast")(identity, value_type(x).dtype), tuple(shape))
    else:
        parts = [part_of(x, axis, number, number + 1) for number in range(size)]
        found = parts[0]
        for part in parts[1:]:
            found = combine(found, part)
    return found if keepdims else lookup("squeeze")(found, axis=axis)


def _dropped(x: Any, axes: Sequence[int]) -> Any:
    for axis in reversed(axes):
        x = lookup("squeeze")(x, axis=axis)
    return x


def accumulated(combine: Callable[..., Any], x: Any, axis: Any) -> Any:
    """``ufunc.accumulate`` without an op."""
    axis, size = _steps_of(x, axis, "accumulate")
    if size == 0:
        return x
    found = [part_of(x, axis, 0, 1)]
    for number in range(1, size):
        found.append(combine(found[-1], part_of(x, axis, number, number + 1)))
    return lookup("concat")(tuple(found), axis=axis)


def reduced_at(ufunc: np.ufunc, x: Any, indices: Any, axis: Any = 0, dtype: Any = None) -> Any:
    """``ufunc.reduceat``: of slices from each index to the next, or of one element where that is
    none."""
    axis = normalize_axis(axis, value_type(x).rank)
    size = known_size(x, axis, "reduceat")
    starts = [int(i) for i in np.asarray(indices)]
    if any(not 0 <= i < size for i in starts):
        raise ValueError(f"indices lie from 0 to {size - 1}")
    if len(starts) > _MOST_STEPS:
        raise ValueError(f"{len(starts)} slices are more than the {_MOST_STEPS} that are traced")
    found = []
    for start, end in zip(starts, [*starts[1:], size]):
        part = part_of(x, axis, start, end if end > start else start + 1)
        options = {} if dtype is None else {"dtype": dtype}
        found.append(ufunc.reduce(part, axis=axis, keepdims=True, **options))
    return lookup("concat")(tuple(found), axis=axis)
