"""What a traced graph owns beside the program's weights: the constants it found, and the arrays and
modules that the program made while it ran.

In: the traced module. Out: a module that has the attributes of both.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.nn.module import Module, Parameter


class TracedModule(Module):
    """The traced program's modules and, beside them, the constants and modules its graph adopted;
    the program itself gets no new attributes."""

    def __init__(self, root: Module) -> None:
        super().__init__()
        self.__dict__["_root"] = root
        self.training = root.training

    def get_attribute(self, target: str) -> Any:
        if target.partition(".")[0] in (*self._parameters, *self._buffers, *self._modules):
            return super().get_attribute(target)
        return self.__dict__["_root"].get_attribute(target)

    def get_submodule(self, target: str) -> Module:
        if not target or target.partition(".")[0] in self._modules:
            return super().get_submodule(target)
        return self.__dict__["_root"].get_submodule(target)  # type: ignore[no-any-return]


def adopt(owner: Module, root: Module, value: Any, wish: str) -> str:
    """Give ``owner`` an array or module that no module of the root has, under a name that is free
    in both; returns the name: ``wish_0``, ``wish_1``, ..."""
    number = 0
    while any(_has(module, f"{wish}_{number}") for module in (owner, root)):
        number += 1
    name = f"{wish}_{number}"
    if isinstance(value, Module):
        owner.add_module(name, value)
    elif isinstance(value, Parameter) and value.is_parameter:
        owner.register_parameter(name, value)
    else:
        owner.register_buffer(name, value)
    return name


def is_unchanged(owner: Module, name: str, value: np.ndarray[Any, Any]) -> bool:
    """False if the program has written into an array since ``owner`` adopted it."""
    kept = owner._buffers.get(name)
    is_float = value.dtype.kind == "f"
    return kept is None or kept is value or np.array_equal(kept, value, equal_nan=is_float)


def _has(module: Module, name: str) -> bool:
    state = module.__dict__
    return name in state or any(name in state[g] for g in ("_parameters", "_buffers", "_modules"))
