"""``sorted``, and ``min`` and ``max`` with ``key=`` or ``default=``, of traced values.

In: values of the same form: numbers, arrays, or tuples of these. Out: the same values in the order of their keys,
which the graph computes. Keys are numbers, or tuples of numbers, which are compared lexicographically. As in Python,
``sorted`` is stable, and the extreme value is the first of several equal ones.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.state import is_traced
from fxlite.graph import pytree
from fxlite.tracing.capture.answers import BUILTINS, are_python_numbers, item_at, stacked
from fxlite.types.shapes import NamedDim

if TYPE_CHECKING:
    from fxlite.tracing.tracer import Tracer

_NUMBERS = (bool, int, float, complex)


def _holds_traced(key: Any) -> bool:
    return any(map(_holds_traced, key)) if isinstance(key, (tuple, list)) else is_traced(key)


def _known_start(keys: Sequence[Any]) -> list[Any] | None:
    """The first parts of keys that are tuples, if these are known and all different, so that they decide the order, as
    in ``sorted(d.items())``; else None."""
    if not all(type(key) is tuple for key in keys):
        return None
    for size in range(1, min(map(len, keys), default=0)):
        known = [key[:size] for key in keys]
        if any(isinstance(part[-1], NamedDim) or not isinstance(part[-1], (*_NUMBERS, str)) for part in known):
            return None
        if len(set(known)) == len(known):
            return known
    return None


def _columns(tracer: Tracer, keys: Sequence[Any]) -> list[Any]:
    """One traced array for each part of the keys, in order."""
    sizes = {len(k) if isinstance(k, (tuple, list)) else None for k in keys}
    if len(sizes) > 1:
        raise tracer.error("keys of different forms are compared", "let all keys be numbers, or tuples of one length")
    (size,) = sizes
    if size is not None:
        return [column for part in zip(*keys) for column in _columns(tracer, part)]
    found = stacked(tracer, list(keys))
    if found.ndim != 1:
        raise ValueError("the truth value of an array with more than one element is ambiguous: compare numbers")
    return [found]


def _order(tracer: Tracer, keys: Sequence[Any], reverse: bool) -> Any:
    """The positions of the values in the order of their keys."""
    columns = _columns(tracer, keys[::-1] if reverse else keys)
    places = np.lexsort(tuple(columns[::-1]))
    return (len(keys) - 1 - places)[::-1] if reverse else places


def _sorted(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``sorted(values, key=f, reverse=True)``"""
    values, keys = _with_keys(args, kwargs) if len(args) == 1 else ([], [])
    if not any(map(_holds_traced, keys)):
        return function(values, **kwargs) if len(args) == 1 else function(*args, **kwargs)
    known = _known_start(keys)
    if known is not None:
        return [values[n] for n in function(range(len(values)), **{**kwargs, "key": known.__getitem__})]
    return _taken(tracer, values, _order(tracer, keys, bool(kwargs.get("reverse", False))))


def _taken(tracer: Tracer, values: Sequence[Any], order: Any) -> list[Any]:
    """The values at these positions. Numbers are stacked once for all of them."""
    first = values[0]
    if all(type(v) is type(first) and isinstance(v, tuple) and len(v) == len(first) for v in values):
        columns = [_taken(tracer, part, order) for part in zip(*values)]
        return [pytree.rebuilt(first, parts) for parts in zip(*columns)]
    if not all(isinstance(v, (*_NUMBERS, np.generic)) or (is_traced(v) and not v.ndim) for v in values):
        return [item_at(tracer, values, order[number]) for number in range(len(values))]
    found = stacked(tracer, values)[order]
    is_python = are_python_numbers(values)
    return [tracer.python_number(found[n]) if is_python else found[n] for n in range(len(values))]


def _with_keys(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    values, key = list(args[0] if len(args) == 1 else args), kwargs.get("key")
    return values, values if key is None else [key(value) for value in values]


def _extreme(function: Any, reverse: bool) -> Callable[..., Any]:
    """``max(values, key=f, default=0)``"""

    def call(tracer: Tracer, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        values, keys = _with_keys(args, kwargs)
        if not any(map(_holds_traced, keys)) and not (keys is values and any(isinstance(k, NamedDim) for k in keys)):
            return function(values, **kwargs)
        known = _known_start(keys)
        if known is not None:
            return values[function(range(len(values)), key=known.__getitem__)]
        if keys is values and not any(isinstance(k, (tuple, list)) for k in keys):
            return BUILTINS[function](tracer, function, (values,), {})
        return item_at(tracer, values, _order(tracer, keys, reverse)[0])

    return call


#: ``f(tracer, function, args, kwargs)`` by the function that a program calls.
ORDERED: dict[Any, Callable[..., Any]] = {
    builtins.sorted: _sorted,
    builtins.max: _extreme(builtins.max, True),
    builtins.min: _extreme(builtins.min, False),
}
