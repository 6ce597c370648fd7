"""The number of iterations (rounds) of a ``for`` statement, before the first one is traced.

In: the iterable of the program, such as ``range(100)``, an array, ``enumerate(x)``, ``np.ndindex(x.shape)``. Out: the
number of its values if it follows from arrays and numbers, so that a loop that would be long if unrolled is noticed
in its second round; None for other iterables, such as a list of modules.
"""

from __future__ import annotations

import builtins
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from fxlite.base.state import is_traced
from fxlite.types.tensor_type import TensorType


class Rounds:
    """An iterator with the number of its values."""

    def __init__(self, values: Iterable[Any], count: int) -> None:
        self._values, self.count = iter(values), count

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._values)


def number_of_rounds(value: Any) -> int | None:
    """The number of values in a loop over ``value``; None if it is not known."""
    if isinstance(value, Rounds):
        return value.count
    if type(value) is range or (isinstance(value, np.ndarray) and value.ndim):
        return len(value)
    kind = value.type if is_traced(value) else None
    size = kind.shape[0] if isinstance(kind, TensorType) and kind.shape else None
    return size if type(size) is int else None


def _first(value: Any, *_: Any, **__: Any) -> int | None:
    return number_of_rounds(value)


def _least(*values: Any, **_: Any) -> int | None:
    found = [number_of_rounds(value) for value in values]
    known = [count for count in found if count is not None]
    return min(known) if known and len(known) == len(found) else None


def _repeated(object: Any, times: Any = None) -> int | None:
    return max(times, 0) if type(times) is int else None


def _all_pairs(*values: Any, repeat: Any = 1) -> int | None:
    found = [count for count in map(number_of_rounds, values) if count is not None]
    return math.prod(found) ** repeat if len(found) == len(values) and type(repeat) is int else None


def _positions(*sizes: Any) -> int | None:
    given = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
    return math.prod(given) if all(type(size) is int for size in given) else None


def _elements(value: Any) -> int | None:
    return _positions(value.shape) if is_traced(value) and isinstance(value.type, TensorType) else None


_COUNTS: dict[Any, Callable[..., int | None]] = {
    builtins.enumerate: _first,
    builtins.reversed: _first,
    builtins.zip: _least,
    itertools.product: _all_pairs,
    itertools.repeat: _repeated,
    np.ndindex: _positions,
    np.ndenumerate: _elements,
}


def with_count(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> Any:
    """The result of a call, together with its number of values if that is known."""
    count = _COUNTS[function](*args, **kwargs) if function in _COUNTS and args else None
    return result if count is None else Rounds(result, count)
