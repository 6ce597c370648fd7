"""The number of iterations (rounds) of a ``for`` statement, before the first one is traced.

In: the iterable of the program, such as ``range(100)``, an array, a long list of numbers, ``enumerate(x)``,
``np.ndindex(x.shape)``. Out: the number of its values if it follows from arrays and numbers, so that a loop that would
be long if unrolled is noticed in its second round; None for other iterables, such as a list of modules.
"""

from __future__ import annotations

import builtins
import itertools
import math
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from typing import Any

import numpy as np

from fxlite.base.state import is_traced
from fxlite.types.tensor_type import TensorType


class Rounds:
    """An iterator with the number of its values. ``over``: the values by number, until the first one is taken."""

    def __init__(self, values: Iterable[Any], count: int, over: Any = None) -> None:
        self._values, self.count, self.over = iter(values), count, over

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self.over = None
        return next(self._values)

    def use_up(self, error: Exception) -> None:
        """Raise an error if another value is taken: a loop of the graph has taken some, or all."""

        def refuse() -> Iterator[Any]:
            raise error
            yield

        self._values, self.over = refuse(), None


#: The most numbers in a list or tuple, or in the values of a dict, that are always taken one by one.
_FEW_NUMBERS = 64
_NUMBERS = (bool, int, float, complex, np.number, np.bool_)


def numbers_of(value: Any, few: int = _FEW_NUMBERS) -> tuple[Any, ...] | None:
    """The elements of a list, tuple, dict or set, or of a view of a dict, if these are more than ``few`` numbers
    of one type, or tuples of as many numbers of which those at each position have one type; else None."""
    if not isinstance(value, (list, tuple, dict, set, frozenset, KeysView, ValuesView, ItemsView)) or len(value) <= few:
        return None
    first = next(iter(value))
    if type(first) is not tuple and not isinstance(first, _NUMBERS):
        return None
    values = tuple(value)
    return values if _are_alike(values) else None


def _are_alike(values: Sequence[Any]) -> bool:
    first = values[0]
    if type(first) is tuple and first:
        same = all(type(v) is tuple and len(v) == len(first) for v in values)
        return same and all(map(_are_alike, zip(*values)))
    same = isinstance(first, _NUMBERS) and all(type(v) is type(first) for v in values)
    return same and (type(first) is not int or all(-(2**63) <= v < 2**63 for v in (min(values), max(values))))


def number_of_rounds(value: Any) -> int | None:
    """The number of values in a loop over ``value``; None if it is not known."""
    if isinstance(value, Rounds):
        return value.count
    if type(value) is range or (isinstance(value, np.ndarray) and value.ndim):
        return len(value)
    if numbers_of(value) is not None:
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
    if isinstance(value, np.ndarray):
        return value.size
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
