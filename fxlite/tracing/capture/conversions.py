"""Python's numbers of traced values: ``int(x)``, ``float(x)``, ``round(x)``, ``math.sqrt(x)``.

In: a call of one of these, as a program with control flow has it. Out: a number of Python that is
not known while tracing. Where Python raises (``math.sqrt(-1)``, ``int(nan)``) it is what NumPy
computes: a graph has no exceptions.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.state import is_traced
from fxlite.ops.op import lookup
from fxlite.tracing.capture.known import known_value
from fxlite.tracing.python_numbers import DTYPES, PythonNumber
from fxlite.types.shapes import NamedDim

if TYPE_CHECKING:
    from fxlite.tracing.tracer import Tracer

Answer = Callable[..., Any]


def _open(value: Any) -> bool:
    """Whether a value is one number that is not known while tracing."""
    if not is_traced(value) or not value.is_typed or known_value(value) is not None:
        return False
    return all(size == 1 for size in value.type.shape)


def _number(value: Any, kind: type) -> PythonNumber:
    """A value as a number of Python."""
    if value.type.shape:
        value = lookup("reshape")(value, ())
    if value.type.dtype is not DTYPES[kind]:
        value = lookup("cast")(value, DTYPES[kind])
    return PythonNumber(value.node, value.tracer)


def number_of(value: Any) -> Any:
    """``x.item()``."""
    if not _open(value):
        return value.item()
    dtype = value.type.dtype
    return _number(value, bool if dtype.is_bool else float if dtype.is_float else int)


def _size_as_number(tracer: Tracer, value: Any) -> Any:
    """A named size as the number that it is when the program runs; anything else as it is."""
    return tracer.number_of_size(value) if isinstance(value, NamedDim) else value


def _as(kind: type) -> Answer:
    def call(tracer: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], NamedDim):
            if kind is int:
                return args[0]
            args = (_size_as_number(tracer, args[0]),)
        if len(args) != 1 or kwargs or not _open(args[0]):
            return function(*args, **kwargs)
        return _number(args[0], kind)

    return call


def _round(tracer: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
    if len(args) != 1 or kwargs or not _open(args[0]):
        return function(*args, **kwargs)
    return _number(np.round(args[0]), int)


def _divmod(tracer: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
    if not any(map(is_traced, args)):
        return function(*args, **kwargs)
    return args[0] // args[1], args[0] % args[1]


def _power(tracer: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
    if len(args) != 2 or kwargs or not any(map(is_traced, args)):
        return function(*args, **kwargs)
    return args[0] ** args[1]


def _mathematical(ufunc: Any, kind: type) -> Answer:
    def call(tracer: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
        args = tuple(_size_as_number(tracer, a) for a in args)
        if kwargs or not any(map(_open, args)):
            return function(*args, **kwargs)
        floats = [_number(a, float) if is_traced(a) else float(a) for a in args]
        return _number(ufunc(*floats), kind)

    return call


_FLOATS: dict[Any, Any] = {
    math.sqrt: np.sqrt,
    math.exp: np.exp,
    math.expm1: np.expm1,
    math.log2: np.log2,
    math.log10: np.log10,
    math.log1p: np.log1p,
    math.sin: np.sin,
    math.cos: np.cos,
    math.tan: np.tan,
    math.sinh: np.sinh,
    math.cosh: np.cosh,
    math.tanh: np.tanh,
    math.asin: np.arcsin,
    math.acos: np.arccos,
    math.atan: np.arctan,
    math.atan2: np.arctan2,
    math.asinh: np.arcsinh,
    math.acosh: np.arccosh,
    math.atanh: np.arctanh,
    math.fabs: np.fabs,
    math.hypot: np.hypot,
    math.pow: np.power,
    math.fmod: np.fmod,
    math.copysign: np.copysign,
}
_INTS: dict[Any, Any] = {math.floor: np.floor, math.ceil: np.ceil, math.trunc: np.trunc}
_BOOLS: dict[Any, Any] = {math.isnan: np.isnan, math.isinf: np.isinf, math.isfinite: np.isfinite}


def _log(tracer: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
    """``math.log(x)``, ``math.log(x, base)``"""
    parts = [_mathematical(np.log, float)(tracer, math.log, (a,), kwargs) for a in args]
    return parts[0] if len(parts) == 1 else parts[0] / parts[1]


#: ``f(tracer, function, args, kwargs)`` by what a program calls.
CONVERSIONS: dict[Any, Answer] = {
    builtins.int: _as(int),
    builtins.float: _as(float),
    builtins.bool: _as(bool),
    builtins.round: _round,
    builtins.divmod: _divmod,
    builtins.pow: _power,
    math.log: _log,
    **{f: _mathematical(ufunc, float) for f, ufunc in _FLOATS.items()},
    **{f: _mathematical(ufunc, int) for f, ufunc in _INTS.items()},
    **{f: _mathematical(ufunc, bool) for f, ufunc in _BOOLS.items()},
}
