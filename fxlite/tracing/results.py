"""The results of a traced program as they are in NumPy: arrays, NumPy numbers, or Python numbers.

In: the result of a traced program. Out: a function that converts the result of a call to what the program
itself returns, because a graph returns only arrays (also of rank 0) and no texts; None if there is nothing to
convert.
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from fxlite.base.state import is_traced
from fxlite.graph import pytree
from fxlite.tracing.capture.lists import is_open, listed
from fxlite.tracing.capture.places import OrNone
from fxlite.tracing.capture.texts import OneText
from fxlite.tracing.selections import growing
from fxlite.tracing.writes.shared_memory import is_number
from fxlite.types.dtypes import NUMBERS
from fxlite.types.shapes import NamedDim

Finish = Callable[[Any], Any]

#: Classes of values that programs return beside arrays, and that do not depend on these.
_CONSTANTS = (*pytree.CONSTANTS, bytes, enum.Enum, np.generic, np.dtype, np.ufunc, type)


def is_constant(value: Any) -> bool:
    """Whether a value that is no array and no container of arrays is known while tracing, and the same in all calls."""
    if isinstance(value, (set, frozenset)):
        return all(map(is_constant, value))
    if isinstance(value, (slice, range)):
        return all(map(is_constant, (value.start, value.stop, value.step)))
    return isinstance(value, _CONSTANTS) or value is Ellipsis


def finish_of(value: Any) -> Finish | None:
    """The function that converts the result of a call; see the docstring of the module."""
    if is_traced(value):
        if not value.is_typed or value.type.shape:
            return None
        if hasattr(value, "python_type"):
            return _as_python
        number = is_number(value)
        return _as_number if number or (number is None and value._node.op != "placeholder") else np.asarray
    if isinstance(value, np.generic):
        return _as_number
    if type(value) in (*NUMBERS, NamedDim):
        return _as_python
    if isinstance(value, OneText):
        texts = [*value.tracer.texts]
        return lambda code: texts[int(code)]
    if isinstance(value, OrNone):
        return partial(_if_there, finish_of(value.value))
    if is_open(value):
        return listed(value)
    rows = growing.rows_of(value)
    if rows is not None:
        return growing.listed(rows)
    if is_constant(value):
        return lambda _: copy.copy(value)
    parts = None if hasattr(type(value), "__fx_children__") else pytree.children_of(value)
    if parts is None:  # also for selected elements, which are an array
        return None
    kind, keys, values = parts
    found = {key: finish for key, finish in zip(keys, map(finish_of, values)) if finish is not None}
    return _Parts(kind, found) if found else None


def _if_there(finish: Finish | None, value: Any) -> Any:
    """The program's result of (whether there is a value, the value)."""
    is_there, found = value
    return None if not is_there else found if finish is None else finish(found)


class _Parts:
    """Converts the parts of a nested result in place: the result belongs to the call."""

    def __init__(self, kind: str, finishes: dict[Any, Finish]) -> None:
        self.kind, self.finishes = kind, finishes

    def __call__(self, value: Any) -> Any:
        if type(value) is dict or self.kind in ("list", "deque"):
            for key, finish in self.finishes.items():
                value[key] = finish(value[key])
            return value
        if self.kind == "dataclass":
            for key, finish in self.finishes.items():
                object.__setattr__(value, key, finish(getattr(value, key)))
            return value
        found = pytree.children_of(value)
        assert found is not None
        keys, parts = found[1:]
        return pytree.rebuilt(value, [self.finishes[k](v) if k in self.finishes else v for k, v in zip(keys, parts)])


def _as_number(value: Any) -> Any:
    return value[()] if isinstance(value, np.ndarray) else value


def _as_python(value: Any) -> Any:
    return value.item() if isinstance(value, np.ndarray | np.generic) else value
