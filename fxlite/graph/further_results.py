"""Values that a graph's output node holds besides the program's own result: ``(result, *writes, *values)``.

``writes``: inputs that a program writes into. The graph computes their final values, and a call of it
writes these into the caller's arrays after everything is computed, or into the module if they are its
states. Results never share memory with the caller's arrays or with states.

``values``: values that are reported whenever a module runs (:func:`fxlite.passes.tap`). They are
results like any other, so that passes keep them and compiled code computes them. They are reported only
if a user calls the module, in Python or compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, GraphError
from fxlite.graph import pytree


@dataclass(frozen=True)
class Tap:
    """A function that receives a value of each call: ``function(name, value)``, with the name that the
    node had when the tap was set."""

    name: str
    function: Callable[[str, Any], Any]

    def tell(self, value: Any) -> None:
        """Call the function with a read-only array, because the result may share its memory. An exception
        of the function leaves the call with a note that names the tap."""
        if isinstance(value, np.ndarray):
            value = value.view()
            value.flags.writeable = False
        try:
            self.function(self.name, value)
        except Exception as error:
            error.add_note(f"raised by the function of passes.tap, told the value of {self.name}")
            raise


def take_taps(name: str, taps: Sequence[Tap], has_writes: bool, result: Any) -> tuple[Any, list[tuple[Tap, Any]]]:
    """Split a result of the output node into the part before the tapped values, and (tap, value) pairs.
    Raises GraphError for an output that lacks these values."""
    if not taps:
        return result, []
    count = len(taps)
    least = count + (2 if has_writes else 1)
    if not isinstance(result, tuple) or len(result) < least or (not has_writes and len(result) > least):
        raise GraphError(
            f"{name} has taps, so its output must be (result, {', '.join(t.name for t in taps)}); "
            "take the taps off before editing the output (passes.untap), or set graph.taps = () to "
            "make these values plain results"
        )
    own = result[:-count]
    return (own if has_writes else own[0]), list(zip(taps, result[-count:], strict=True))


#: The most work that is spent to find out whether two arrays overlap (``np.shares_memory``).
_MAX_WORK = 10_000


def check_writable(name: str, writes: Sequence[str], values: Mapping[str, Any], labels: Mapping[str, str]) -> None:
    """Raise ArgumentError for an array that cannot be written into, and for one that shares memory with
    another input: NumPy's result would then depend on the order of reads and writes."""
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


def check_orders(
    name: str, orders: Sequence[tuple[str, str, str]], values: Mapping[str, Any], labels: Mapping[str, str]
) -> None:
    """Raise ArgumentError for an array whose memory layout differs from the one that the trace assumed,
    if NumPy would then copy where the trace has a view, or the other way round."""
    for target, kind, place in orders:
        array, label = values.get(target), labels.get(target, target)
        if not isinstance(array, np.ndarray) or array.flags.c_contiguous:
            continue
        steps = [abs(s) for s, n in zip(array.strides, array.shape) if n > 1]
        if kind == "dense" or steps != sorted(steps, reverse=True):
            where = f", which decides whether {place} writes into a view or a copy" if place else ""
            raise ArgumentError(
                f"{name}: {label} must be {pytree.ORDERS[kind]}{where}; its strides are {array.strides} bytes: "
                f"pass np.ascontiguousarray({label})"
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
    """Write the values that follow the result into the arrays; returns the program's own result. Values
    of ``states`` (placeholder target -> path) are passed to ``put`` with their path.

    Raises GraphError for a graph whose output does not match ``writes``."""
    if not isinstance(result, tuple) or len(result) != 1 + len(writes):
        raise GraphError(
            f"{name} writes into {', '.join(writes)}, so its output must be (result, "
            f"{', '.join(f'new {w}' for w in writes)}); set graph.interface = None to make these "
            "values plain results"
        )
    arrays = [values[target] for target in writes if target not in states]

    def apart(value: Any) -> Any:
        """The value in memory of its own: an input that is returned is copied before it is written."""
        is_array = isinstance(value, np.ndarray)
        return value.copy() if is_array and any(_overlap(value, a) for a in arrays) else value

    own, *new = result
    own = pytree.plain(own, apart)
    # states that are a new array; compiled code writes others in place
    changed = {t: np.asarray(v) for t, v in zip(writes, new) if t in states and v is not values[t]}
    if changed:  # so that later calls do not change the caller's result, nor the caller the state
        given = [value for value in values.values() if isinstance(value, np.ndarray)]
        own = pytree.plain(own, lambda value: _apart_from(value, [*changed.values()]))
        for target, value in changed.items():
            changed[target] = _apart_from(value, given)
    # values that compiled code wrote in place need no copy
    written = [v if v is values[t] else apart(v) for t, v in zip(writes, new) if t not in states]
    for array, value in zip(arrays, written):
        if value is not array:
            np.copyto(array, value)
    for target, value in changed.items():
        assert put is not None
        put(states[target], value)
    return own


def _apart_from(value: Any, others: Sequence[Any]) -> Any:
    is_array = isinstance(value, np.ndarray)
    return value.copy() if is_array and any(_overlap(value, np.asarray(other)) for other in others) else value
