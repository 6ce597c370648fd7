"""Weights: a module that only holds arrays; regenerated Python builds its tree of weights from it.

``Weights(weight="f32[16,3,3,3]", bias="f32[16]")`` has two parameters of zeros, to be filled by
``load_state_dict``. Children and arrays are reached as attributes or, where the name is a number or
not an identifier, by index: ``layers[0].weight``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError
from fxlite.nn.module import Module, Parameter
from fxlite.types.tensor_type import parse_type


class Buffer(str):
    """The type text of an array that is not trained:
    ``Weights(running_mean=Buffer("f32[16]"))``."""


class Weights(Module):
    """Named arrays and children. A value is a type text (a parameter of zeros), a :class:`Buffer`
    (a buffer of zeros) or a module; ``children`` maps names that are not identifiers to values."""

    def __init__(self, children: Mapping[Any, Any] | None = None, /, **named: Any) -> None:
        super().__init__()
        for name, value in {**(children or {}), **named}.items():
            self.add(str(name), value)

    def add(self, name: str, value: Any) -> None:
        """Enter an array or a child. Raises ArgumentError for what is neither."""
        if isinstance(value, Module):
            self.add_module(name, value)
        elif isinstance(value, Buffer):
            self.register_buffer(name, zeros(value))
        elif isinstance(value, str):
            self.register_parameter(name, Parameter(zeros(value)))
        else:
            raise ArgumentError(f"{name!r} must be a type text or a module, not {value!r}")

    def __getitem__(self, name: int | str) -> Any:
        name = str(name)
        found = self._modules.get(name)
        return self.__getattr__(name) if found is None else found

    def extra_repr(self) -> str:
        arrays = {**self._parameters, **self._buffers}
        return ", ".join(f"{n}={v.dtype}{list(v.shape)}" for n, v in arrays.items())


def zeros(text: str) -> np.ndarray[Any, Any]:
    """An array of zeros of a concrete type, such as ``f32[16,3]``."""
    type = parse_type(text)
    if not type.is_concrete:
        raise ArgumentError(f"a weight needs a type without named dims, not {text!r}")
    return np.zeros(type.shape, type.dtype.numpy)
