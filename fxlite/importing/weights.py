"""Weights of an imported model, as parameters and buffers of modules with the model's names.

In: arrays by name, ``layers.0.attention.weight``. Out: a tree of modules that holds these arrays,
not copies of them, so that arrays which are mapped from a file or shared with another library stay
so.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.base.outside_text import is_name
from fxlite.importing.names import valid_name
from fxlite.nn.module import Module, Parameter


class Weights:
    """The arrays of one model. ``root`` is the module that has them; ``paths`` says where each is."""

    def __init__(self, root: Module) -> None:
        self.root = root
        self.paths: dict[str, str] = {}

    def add(self, name: str, array: np.ndarray[Any, Any], is_parameter: bool | None = None) -> np.ndarray[Any, Any]:
        """Keep an array under its name, or the nearest one that a module can have. Returns what the
        module holds: the array itself, or a Parameter over its memory. Floats of one axis or more are
        parameters unless ``is_parameter`` says otherwise."""
        if is_parameter is None:
            is_parameter = array.ndim > 0 and array.dtype.kind not in "biu"
        owner, path = self._place(name)
        own = path.rpartition(".")[2]
        self.paths[name] = path
        if is_parameter:
            owner.register_parameter(own, Parameter(array))
            return owner._parameters[own]  # type: ignore[no-any-return]
        owner.register_buffer(own, array)
        return owner._buffers[own]  # type: ignore[no-any-return]

    def _place(self, name: str) -> tuple[Module, str]:
        """The module for an array of that name, and the free path of the array."""
        *modules, last = [p if p.isdecimal() else valid_name(p, "weight") for p in name.split(".") if p] or ["weight"]
        if last.isdecimal():
            modules, last = [], valid_name(name, "weight")
        owner, path = self.root, ""
        for part in modules:
            found = owner._modules.get(part)
            if found is None:
                if _has(owner, part):  # an array of that name: the rest of the path goes into the last name
                    owner, last = self.root, valid_name(name.replace(".", "_"), "weight")
                    break
                found = Module()
                owner.add_module(part, found)
            owner, path = found, f"{path}{part}."
        wish, number = last if is_name(last) else f"{last}_", 0
        made = wish
        while _has(owner, made):
            number += 1
            made = f"{wish}_{number}"
        return owner, path + made


def _has(module: Module, name: str) -> bool:
    state = module.__dict__
    groups = ("_parameters", "_buffers", "_modules")
    return name in state or hasattr(type(module), name) or any(name in state[g] for g in groups)
