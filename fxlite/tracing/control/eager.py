"""Loops and conditions on arrays: what they own of what they are given and give.

A traced body is a function of values. So that eager programs do what traced ones do, a loop works
on copies of the arrays that it starts with, which its body may write into, and no two values that
it carries share memory; a branch of a condition cannot write into its operands.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from fxlite.base.errors import DTypeError
from fxlite.graph import pytree


def truth(value: Any, what: str) -> bool:
    """One bool as Python's. Raises DTypeError for anything else."""
    if type(value) is bool:
        return value
    array = np.asarray(value)
    if array.ndim or array.dtype != np.bool_:
        raise DTypeError(
            f"{what} must be one bool, not {array.dtype}{list(array.shape)}: compare it, x > 0, or "
            "take x.any() or x.all() of several"
        )
    return bool(array[()])


def _mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    found = pytree.children_of(value)
    if found is None:
        return function(value)
    _, keys, values = found
    mapped = [_mapped(v, function) for v in values]
    if isinstance(value, dict):
        return dict(zip(keys, mapped))
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(mapped)
    return type(value)(**dict(zip(keys, mapped)))


def _copied(value: Any) -> Any:
    """An array of its own; a number, also in an array of rank 0, is immutable."""
    if not isinstance(value, np.ndarray):
        return value
    return np.array(value) if value.ndim else value[()]


def owned(value: Any) -> Any:
    """The nested value with copies of the arrays in it."""
    return _mapped(value, _copied)


def read_only(value: Any) -> Any:
    """The nested value with views of the arrays in it that cannot be written to."""

    def view(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        made = value.view()
        made.flags.writeable = False
        return made

    return _mapped(value, view)


def iterate(
    function: Callable[..., Any],
    init: Any,
    leads: Iterable[tuple[Any, ...]] | None = None,
    test: Callable[..., Any] | None = None,
) -> Any:
    """A loop: ``function`` is given what is in ``leads`` and the carried values, or with a ``test``
    the carried values one by one, as long as that is true of them.

    Where the first iteration makes a number of NumPy of a Python number, the loop starts with one
    of that type, as it does where it is traced."""
    values = owned(init)
    is_first = True
    for lead in itertools.repeat(()) if leads is None else leads:
        if test is not None and not truth(test(*values), "what cond_fn gives"):
            break
        new = run_body(function, lead, values, test is not None)
        if is_first:
            start = _typed(init, new)
            if start is not init:
                new = run_body(function, lead, owned(start), test is not None)
            is_first = False
        values = new
    return values


def _leaves(value: Any) -> list[Any]:
    found: list[Any] = []
    _mapped(value, found.append)
    return found


def _typed(init: Any, new: Any) -> Any:
    """What a loop starts with, its Python numbers in the types that they become; ``init`` itself
    where none becomes one."""
    after = iter(_leaves(new))
    changed = []

    def typed(value: Any) -> Any:
        then = next(after, None)
        if type(value) not in (bool, int, float) or not isinstance(then, np.generic | np.ndarray):
            return value
        changed.append(then)
        return then.dtype.type(value)

    made = _mapped(init, typed)
    return made if changed else init


def run_body(function: Callable[..., Any], lead: tuple[Any, ...], carried: Any, spread: bool = False) -> Any:
    """What one iteration makes of the carried values (``spread``: given as arguments). An array
    that the body gives where it got it is the loop's own already; others are copied."""
    result = function(*lead, *(carried if spread else (carried,)))
    if spread and isinstance(result, list):
        result = tuple(result)
    if spread and not isinstance(result, tuple) and len(carried) == 1:
        result = (result,)
    before = iter(_leaves(carried))
    return _mapped(result, lambda v: v if v is next(before, None) else _copied(v))
