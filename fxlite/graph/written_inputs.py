"""Inputs that a program writes into: the graph computes their last values, and a call of it writes
these into the caller's arrays, after everything is computed. Those that are states of the module
are put there.

In: the arrays of a call by placeholder's target, and what the graph's output node gives, ``(result,
*values)``. Out: the result. Results never share memory with the caller's arrays, or with states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, GraphError
from fxlite.graph import pytree

#: How much work is spent to find out whether two arrays overlap (``np.shares_memory``).
_MAX_WORK = 10_000


def check(name: str, writes: Sequence[str], values: Mapping[str, Any], labels: Mapping[str, str]) -> None:
    """Raises ArgumentError for an array that cannot be written into, and for one that shares
    memory with another input, where NumPy's result would depend on the order of reads and
    writes."""
    for target in writes:
        array, label = values[target], labels.get(target, target)
        if not isinstance(array, np.ndarray):
            raise ArgumentError(f"{name} writes into {label}, which must be an array, not {type(array).__name__}")
        if not array.flags.writeable:
            raise ArgumentError(f"{name} writes into {label}, and the array is read-only; pass {label}.copy()")
        for other, value in values.items():
            if other != target and isinstance(value, np.ndarray) and _overlap(array, value):
                shown = labels.get(other, other)
                raise ArgumentError(
                    f"{name} writes into {label}, which shares memory with {shown}; pass {shown}.copy()"
                )


def _overlap(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    if not np.may_share_memory(a, b):
        return False
    try:
        return bool(np.shares_memory(a, b, max_work=_MAX_WORK))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def write_back(
    name: str,
    writes: Sequence[str],
    values: Mapping[str, Any],
    result: Any,
    states: Mapping[str, str] = MappingProxyType({}),
    put: Callable[[str, Any], None] | None = None,
) -> Any:
    """Write the values behind the result into the arrays; returns the program's own result. What
    belongs to ``states``, paths by target, is given to ``put``, with the path.

    Raises GraphError for a graph whose output is not what ``writes`` says."""
    if not isinstance(result, tuple) or len(result) != 1 + len(writes):
        raise GraphError(
            f"{name} writes into {', '.join(writes)}, so its output must be (result, "
            f"{', '.join(f'new {w}' for w in writes)}); set graph.interface = None to make these "
            "values plain results"
        )
    arrays = [values[target] for target in writes if target not in states]

    def apart(value: Any) -> Any:
        """The value in memory of its own: an input that is passed on is read before it changes."""
        is_array = isinstance(value, np.ndarray)
        return value.copy() if is_array and any(_overlap(value, a) for a in arrays) else value

    own, *new = result
    own = pytree.plain(own, apart)
    # a state that is another array than before; one that is the same was written in place
    changed = {t: np.asarray(v) for t, v in zip(writes, new) if t in states and v is not values[t]}
    if changed:  # what a caller has is not changed by later calls, and cannot change the state
        given = [value for value in values.values() if isinstance(value, np.ndarray)]
        own = pytree.plain(own, lambda value: _apart_from(value, [*changed.values()]))
        for target, value in changed.items():
            changed[target] = _apart_from(value, given)
    written = [apart(value) for target, value in zip(writes, new) if target not in states]
    for array, value in zip(arrays, written):
        np.copyto(array, value)
    for target, value in changed.items():
        assert put is not None
        put(states[target], value)
    return own


def _apart_from(value: Any, others: Sequence[Any]) -> Any:
    is_array = isinstance(value, np.ndarray)
    return value.copy() if is_array and any(_overlap(value, np.asarray(other)) for other in others) else value
