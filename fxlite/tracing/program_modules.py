"""Modules of a traced program: which of them stay one node, and what the graph owns beside them:
constants that it found, and arrays and modules that the program made while it ran.

In: the traced module, and ``leaf=`` by object, class, path or glob of the path. Out: paths of
leaves, and a module that has the attributes of the program and of what was adopted.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError
from fxlite.nn.module import Module, Parameter


def leaf_paths(leaves: Iterable[Any], root: Module) -> frozenset[str]:
    """Paths of the modules under ``root`` that the text among ``leaves`` names. ``*`` stands for
    one part of a path or a piece of one: "layers.*.attn".

    Raises ArgumentError, with the nearest names, for text that names no module, and for leaves of
    another kind."""
    wanted: list[str] = []
    for leaf in leaves:
        if not isinstance(leaf, (str, type, Module)):
            raise ArgumentError(f"leaf must be a module, a class or a path, not {leaf!r}")
        if isinstance(leaf, str):
            wanted.append(leaf)
    if not wanted:
        return frozenset()
    # a shared module is called by all its paths and known to the tracer by the first
    first: dict[int, str] = {}
    paths: dict[str, str] = {}
    for path, module in root.named_modules(remove_duplicate=False):
        if path:
            paths[path] = first.setdefault(id(module), path)
    found: set[str] = set()
    for pattern in wanted:
        matched = {paths[path] for path in paths if _matches(path, pattern)}
        if not matched:
            near = difflib.get_close_matches(pattern, paths, 3)
            known = f"did you mean {' or '.join(map(repr, near))}?" if near else _listed(paths)
            raise ArgumentError(f"leaf={pattern!r} names no module; {known}")
        found |= matched
    return frozenset(found)


def _listed(paths: Iterable[str]) -> str:
    shown = list(paths)[:8]
    if not shown:
        return "the program is no module with children: give the module itself or its class"
    return f"there are {', '.join(shown)}"


def _matches(path: str, pattern: str) -> bool:
    parts, wanted = path.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


# -- what a graph adopts ---------------------------------------------------------------------------
class TracedModule(Module):
    """The traced program's modules and, beside them, the constants and modules its graph adopted;
    the program itself gets no new attributes."""

    def __init__(self, root: Module) -> None:
        super().__init__()
        self.__dict__["_root"] = root
        self.training = root.training

    def get_attribute(self, target: str) -> Any:
        first = target.partition(".")[0]
        if first in self._buffers or first in self._parameters or first in self._modules:
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
