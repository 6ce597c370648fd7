"""What the results of a traced program are in NumPy: arrays, NumPy's numbers, or Python's.

In: the result of a program that was traced. Out: a function that makes of the result of a call what the program
itself gives: a graph gives arrays alone, also of rank 0, and no texts; None where there are none of these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fxlite.base.state import is_traced
from fxlite.graph import pytree
from fxlite.tracing.capture.lists import is_open, listed
from fxlite.tracing.writes.shared_memory import is_number
from fxlite.types.dtypes import NUMBERS
from fxlite.types.shapes import NamedDim

Finish = Callable[[Any], Any]


def finish_of(value: Any) -> Finish | None:
    """See the module's text."""
    if is_traced(value):
        if not value.is_typed or value.type.shape:
            return None
        if hasattr(value, "python_type"):
            return _as_python
        number = is_number(value)
        return _as_number if number or (number is None and value._node.op != "placeholder") else np.asarray
    if isinstance(value, np.generic):
        return _as_number
    if isinstance(value, (*NUMBERS, NamedDim)):
        return _as_python
    if is_open(value):
        return listed(value)
    if isinstance(value, str):
        return lambda _: value
    parts = None if hasattr(type(value), "__fx_children__") else pytree.children_of(value)
    if parts is None:  # also of selected elements, which are an array
        return None
    kind, keys, values = parts
    found = {key: finish for key, finish in zip(keys, map(finish_of, values)) if finish is not None}
    return _Parts(kind in ("dataclass", "namedtuple"), found) if found else None


class _Parts:
    """Finishes the parts of a nested result, which belongs to the call."""

    def __init__(self, named: bool, finishes: dict[Any, Finish]) -> None:
        self.named, self.finishes = named, finishes

    def __call__(self, value: Any) -> Any:
        if isinstance(value, tuple):
            if self.named:
                return value._replace(**{k: f(getattr(value, k)) for k, f in self.finishes.items()})  # type: ignore[attr-defined]
            return tuple([self.finishes[k](part) if k in self.finishes else part for k, part in enumerate(value)])
        for key, finish in self.finishes.items():
            if self.named:
                object.__setattr__(value, key, finish(getattr(value, key)))
            else:
                value[key] = finish(value[key])
        return value


def _as_number(value: Any) -> Any:
    return value[()] if isinstance(value, np.ndarray) else value


def _as_python(value: Any) -> Any:
    return value.item() if isinstance(value, np.ndarray | np.generic) else value
