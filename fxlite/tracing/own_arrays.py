"""Arrays that the program's modules hold as plain attributes, also in lists and dicts.

In: the modules of a traced program. Out: for an array that the program computes with, the path
under which the graph reads it: ``inner.table`` for ``self.table``, ``inner.tables_0`` for
``self.tables[0]``. The array is shared with the module, as a parameter is. A program that changes
such an array while it is traced has no one graph, so that is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite.base.outside_text import is_path_part
from fxlite.graph.graph_module import NOT_WEIGHTS
from fxlite.nn.module import Module
from fxlite.types.dtypes import is_same_array

_DEEPEST = 3  # containers in containers
_OF_MODULES = ("_parameters", "_buffers", "_modules", "_non_persistent", "training")


@dataclass(frozen=True)
class OwnArray:
    """Where an array stands: ``container[key]`` is it, in a module, the graph reads it as
    ``target``, and the program as ``text``."""

    target: str
    text: str
    value: np.ndarray[Any, Any]
    module: Module
    container: Any
    key: Any

    @property
    def is_weight(self) -> bool:
        """Whether it is a parameter or buffer, which a program can also get at as an array."""
        state = vars(self.module)
        return self.container is state["_parameters"] or self.container is state["_buffers"]

    def is_as(self, before: np.ndarray[Any, Any]) -> bool:
        """Whether it still is the same array, and holds what it held before."""
        try:
            held = self.container[self.key]
        except (LookupError, TypeError):
            return False
        return held is self.value and is_same_array(self.value, before)


def own_arrays(root: Module) -> dict[int, OwnArray]:
    """The arrays of a module and all below, by identity."""
    found: dict[int, OwnArray] = {}
    for path, module in root.named_modules():
        state, dot = vars(module), f"{path}." if path else ""
        weights = (module._parameters, module._buffers)
        for group in weights:
            for name, value in group.items():
                if value is not None:
                    own = OwnArray(dot + name, dot + name, value, module, group, name)
                    found.setdefault(id(value), own)
        taken = {*NOT_WEIGHTS, *state, *module._modules}.union(*weights)
        for attribute, value in state.items():
            if attribute in _OF_MODULES or not isinstance(value, _HOLD_ARRAYS):
                continue
            for steps, array, container, key in _arrays(value, (attribute,), state):
                name, is_free = attribute, attribute not in NOT_WEIGHTS
                if len(steps) > 1:
                    name = "_".join(re.sub(r"\W", "_", str(step)) for step in steps)
                    is_free = name not in taken
                if id(array) in found or not is_free or not is_path_part(name):
                    continue
                taken.add(name)
                text = attribute + "".join(f"[{step!r}]" for step in steps[1:])
                found[id(array)] = OwnArray(dot + name, dot + text, array, module, container, key)
    return found


_HOLD_ARRAYS = (np.ndarray, list, tuple, dict)


def _arrays(
    value: Any, steps: tuple[Any, ...], container: Any
) -> Iterator[tuple[tuple[Any, ...], np.ndarray[Any, Any], Any, Any]]:
    """(steps to it, array, its container, its key) for each array in a value."""
    if isinstance(value, np.ndarray):
        yield steps, value, container, steps[-1]
    elif isinstance(value, _HOLD_ARRAYS) and len(steps) <= _DEEPEST:
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(part, _HOLD_ARRAYS) and isinstance(key, (str, int)):
                yield from _arrays(part, (*steps, key), value)
