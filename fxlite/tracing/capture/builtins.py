"""Python's builtins on traced values, as captured programs call them.

In: a call of a builtin. Out: what it gives in eager Python, where a traced value is among its
arguments that the builtin itself could not take.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.state import is_traced
from fxlite.ops.op import lookup
from fxlite.tracing.selections.masked import Masked
from fxlite.types.shapes import NamedDim

if TYPE_CHECKING:
    from fxlite.tracing.tracer import Tracer

Call = Callable[..., Any]


def _extreme(relation: str) -> Call:
    """``max(a, b)``: the first of those that no other is greater than, as Python compares."""

    def call(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        values = list(args if len(args) != 1 else args[0])
        if kwargs or not any(map(is_traced, values)):
            return function(*(args if len(args) != 1 else (values,)), **kwargs)
        best = values[0]
        for value in values[1:]:
            better = lookup(relation)(value, best)
            best = lookup("where")(better, value, best)
        return best

    return call


def _truths(name: str) -> Call:
    """``any(...)`` and ``all(...)`` of traced values."""

    def call(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        values = list(args[0]) if len(args) == 1 else []
        if kwargs or not any(map(is_traced, values)):
            return function(values) if len(args) == 1 else function(*args, **kwargs)
        result = values[0]
        for value in values[1:]:
            result = lookup(name)(result, value)
        return lookup("cast")(result, bool)

    return call


def _bool(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``bool(x)``: the truth of a traced value; a condition for ``np.where``, not for ``if``."""
    if len(args) == 1 and is_traced(args[0]) and args[0].is_typed and not args[0].ndim:
        return lookup("cast")(args[0], bool)
    return bool(*args, **kwargs)


def _len(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``len(x)``, which may be a named dim."""
    if len(args) == 1 and (isinstance(args[0], Masked) or (is_traced(args[0]) and args[0].ndim)):
        return args[0].shape[0]
    return function(*args, **kwargs)


def _isinstance(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """A traced value is an array, and a named size an int."""
    if len(args) == 2 and isinstance(args[0], NamedDim) and not isinstance(args[0], args[1]):
        return isinstance(0, args[1])
    if len(args) == 2 and is_traced(args[0]) and not isinstance(args[0], args[1]):
        return isinstance(np.empty(0), args[1])
    return isinstance(*args, **kwargs)


BUILTINS: dict[Any, Call] = {
    builtins.max: _extreme("gt"),
    builtins.min: _extreme("lt"),
    builtins.any: _truths("logical_or"),
    builtins.all: _truths("logical_and"),
    builtins.bool: _bool,
    builtins.len: _len,
    builtins.isinstance: _isinstance,
}
