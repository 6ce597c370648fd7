"""Containers: Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict.

Weights: a module that only holds arrays; regenerated Python builds its tree of weights from it.

``Weights(weight="f32[16,3,3,3]", bias="f32[16]")`` has two parameters of zeros, to be filled by
``load_state_dict``. Children and arrays are attributes or, if the name is a number or not an
identifier, accessed by index: ``layers[0].weight``.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, overload

import numpy as np

from fxlite.base.errors import ArgumentError
from fxlite.base.outside_text import is_number
from fxlite.nn.module import Module, Parameter
from fxlite.types.tensor_type import parse_type


class _Indexed(Module):
    """Children named "0", "1", ...: the common part of Sequential and ModuleList."""

    def _key(self, index: int) -> str:
        size, position = len(self), operator.index(index)
        if not -size <= position < size:
            raise IndexError(f"index {index} is out of range for {type(self).__name__} of {size}")
        keys: list[str] = list(self._modules)
        return keys[position % size]

    def _renumber(self, modules: Iterable[Module]) -> None:
        self.__dict__["_modules"] = {str(i): m for i, m in enumerate(modules)}

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Any: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self._sliced(index)
        return self._modules[self._key(index)]

    def _sliced(self, index: slice) -> Any:
        return type(self)(list(self._modules.values())[index])  # type: ignore[call-arg]

    def __setitem__(self, index: int, module: Module) -> None:
        self._modules[self._key(index)] = module

    def __delitem__(self, index: int | slice) -> None:
        modules = list(self._modules.values())
        del modules[index]
        self._renumber(modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def append(self, module: Module) -> Any:
        """Add a module at the end; returns the container."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """Add modules at the end; returns the container."""
        for module in list(modules):
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Any:
        """Insert a module before position ``index``; returns the container."""
        modules = list(self._modules.values())
        modules.insert(index, module)
        self._renumber(modules)
        return self

    def pop(self, index: int) -> Any:
        """Remove and return the module at ``index``."""
        module = self[index]
        del self[index]
        return module


class Sequential(_Indexed):
    """Modules that are called in sequence, given one by one or as one dict from name to module.

    ``model[0]`` is the first of them, and ``model[1:3]`` is a Sequential over the same modules."""

    def __init__(self, *modules: Any) -> None:
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            for name, module in modules[0].items():
                self.add_module(name, module)
        else:
            for position, module in enumerate(modules):
                self.add_module(str(position), module)

    def _sliced(self, index: slice) -> Sequential:
        return Sequential(dict(list(self._modules.items())[index]))

    def __delitem__(self, index: int | slice) -> None:
        keys = list(self._modules)
        for key in keys[index] if isinstance(index, slice) else [self._key(index)]:
            del self._modules[key]
        if all(map(is_number, keys)):
            self._renumber(list(self._modules.values()))

    def forward(self, x: Any) -> Any:
        for module in self._modules.values():
            x = module(x)
        return x


class ModuleList(_Indexed):
    """A list of registered modules; it has no forward()."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        self.extend(modules or ())

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])


class ModuleDict(Module):
    """A dict of registered modules; it has no forward()."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        self.update(modules or {})

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def keys(self) -> Iterable[str]:
        """Names, in order."""
        return list(self._modules)

    def values(self) -> Iterable[Any]:
        """Modules, in order."""
        return list(self._modules.values())

    def items(self) -> Iterable[tuple[str, Any]]:
        """(name, module), in order."""
        return list(self._modules.items())

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Add or replace modules."""
        pairs = modules.items() if isinstance(modules, Mapping) else modules
        for key, module in pairs:
            self[key] = module

    def pop(self, key: str) -> Any:
        """Remove and return the module ``key``."""
        return self._modules.pop(key)


class ParameterList(Module):
    """A list of registered parameters; arrays given to it become parameters."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self.extend(values or ())

    def __getitem__(self, index: int) -> Any:
        size, position = len(self), operator.index(index)
        if not -size <= position < size:
            raise IndexError(f"index {index} is out of range for a ParameterList of {size}")
        return getattr(self, str(position % size))

    def __setitem__(self, index: int, parameter: Any) -> None:
        setattr(self, str(operator.index(index) % len(self)), _as_parameter(parameter))

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def append(self, parameter: Any) -> ParameterList:
        """Add a parameter at the end; returns the list."""
        self.register_parameter(str(len(self)), _as_parameter(parameter))
        return self

    def extend(self, parameters: Iterable[Any]) -> ParameterList:
        """Add parameters at the end; returns the list."""
        for parameter in list(parameters):
            self.append(parameter)
        return self


class ParameterDict(Module):
    """A dict of registered parameters; arrays given to it become parameters."""

    def __init__(self, parameters: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        for key, parameter in (parameters or {}).items():
            self[key] = parameter

    def __getitem__(self, key: str) -> Any:
        if key not in self._parameters:
            raise KeyError(key)
        return getattr(self, key)

    def __setitem__(self, key: str, parameter: Any) -> None:
        self.register_parameter(key, _as_parameter(parameter))

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __contains__(self, key: str) -> bool:
        return key in self._parameters

    def keys(self) -> Iterable[str]:
        """Names, in order."""
        return list(self._parameters)

    def items(self) -> Iterable[tuple[str, Any]]:
        """(name, parameter), in order."""
        return [(key, self[key]) for key in self._parameters]


def _as_parameter(value: Any) -> Parameter:
    if isinstance(value, Parameter) and value.is_parameter:
        return value
    return Parameter(value)


# -- weights alone ---------------------------------------------------------------------------------
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
        """Add an array or a child. Raises ArgumentError for any other value."""
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
