"""Versions of a function for :func:`fxlite.jit`: which arguments each of them serves.

In: the bound arguments of a call. Out: a key of what a trace bakes in, and, for each version,
whether it serves arrays of some shapes and, if not, why.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fxlite.graph import pytree
from fxlite.graph.graph_module import GraphModule
from fxlite.nn.module import Module
from fxlite.tracing.read_state import ATOMS, ReadState, number_key

Shapes = tuple[tuple[int, ...], ...]
#: The usual kind of parameter.
PLAIN = inspect.Parameter.POSITIONAL_OR_KEYWORD
ARRAYS = (np.ndarray, np.generic)


def key_of(value: Any, arrays: list[Any]) -> Any:
    """What two arguments that one version may serve have in common; arrays are collected."""
    if isinstance(value, ARRAYS):
        arrays.append(value)
        return value.dtype, value.ndim
    if type(value) in ATOMS:
        return number_key(value)
    found = pytree.children_of(value)
    if found is not None:
        kind, keys, values = found
        return kind, type(value), tuple(keys), tuple(key_of(v, arrays) for v in values)
    try:
        hash(value)
    except TypeError:
        return type(value), id(value)
    return type(value), value


def leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """What is no container in an argument, by path."""
    found = pytree.children_of(value)
    if found is None:
        yield path, value
        return
    kind, keys, values = found
    for key, part in zip(keys, values):
        named = kind in ("dataclass", "namedtuple")
        yield from leaves(part, f"{path}.{key}" if named else f"{path}[{key!r}]")


def mapped(value: Any, path: str, leaf: Callable[[str, Any], Any]) -> Any:
    """An argument with other leaves; ``leaf`` makes each from its path and value."""
    structure = pytree.structure_of(value, path, lambda v, where, _: pytree.Structure("leaf", where, v))
    return pytree.build(structure, lambda s: leaf(s.name, s.value))


class Seen:
    """What a version remembers of an array."""

    def __init__(self, array: Any) -> None:
        self.dtype, self.ndim = array.dtype, array.ndim

    def __repr__(self) -> str:
        return "an array"


@dataclass
class Version:
    """One compiled version of a function: ``compiled`` is what :func:`fxlite.compile` made of
    ``module``; ``reason`` says why it was needed, ``fixed`` why some sizes are numbers.

    ``arguments`` are those of the first call; ``pattern`` has a number or a name for each size of
    each array, whose ``paths`` tell where they are; ``state`` is what the program reads besides,
    None where nobody looks; ``parameters`` are those of the compiled function; ``states`` the
    buffers that the program changes: module, name and path of each."""

    module: GraphModule
    compiled: Any
    reason: str
    fixed: Sequence[str]
    arguments: Mapping[str, Any]
    state: ReadState | None
    paths: Sequence[str]
    pattern: Sequence[Sequence[int | str]]
    parameters: Sequence[inspect.Parameter]
    states: Sequence[tuple[Module, str, str]] = ()
    used: int = 0
    _accepted: set[Shapes] = field(default_factory=set)

    def call(self, bound: Mapping[str, Any]) -> Any:
        """Call it with those of the bound arguments that are inputs."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for parameter in self.parameters:
            value, kind = bound[parameter.name], parameter.kind
            if kind is PLAIN:
                args.append(value)
            elif kind is parameter.VAR_POSITIONAL:
                args.extend(value)
            elif kind is parameter.VAR_KEYWORD:
                kwargs.update(value)
            elif kind is parameter.KEYWORD_ONLY:
                kwargs[parameter.name] = value
            else:
                args.append(value)
        if not self.states:
            return self.compiled(*args, **kwargs)
        holder: GraphModule = getattr(self.compiled, "holder", self.compiled.graph_module)
        for module, name, path in self.states:
            if module._buffers[name] is not holder.get_attribute(path):
                holder.put_state(path, module._buffers[name])
        result = self.compiled(*args, **kwargs)
        for module, name, path in self.states:
            module._buffers[name] = holder.get_attribute(path)
        return result

    def fits(self, shapes: Shapes) -> bool:
        """Whether it serves arrays of these shapes."""
        if shapes in self._accepted:
            return True
        fits = self._misfit(shapes) is None
        if fits:
            self._accepted.add(shapes)
        return fits

    def _misfit(self, shapes: Shapes) -> str | None:
        """Which size it was not made for."""
        sizes: dict[str, int] = {}
        for path, shape, pattern in zip(self.paths, shapes, self.pattern, strict=True):
            for axis, (size, wanted) in enumerate(zip(shape, pattern, strict=True)):
                place = f"axis {axis} of {path}"
                if isinstance(wanted, int):
                    if size != wanted:
                        return f"{place} is {size}, was {wanted}"
                elif sizes.setdefault(wanted, size) != size:
                    return f"{place} is {size}, and {wanted} is {sizes[wanted]}"
                elif size < 2:
                    return f"{place} is {size}, was more than 1"
        for condition in self.module.graph.conditions():
            if not condition.holds(sizes):
                return condition.reason
        return None

    def differences(self, arguments: Mapping[str, Any], shapes: Shapes) -> list[str]:
        """Why it does not serve a call."""
        found: list[str] = []
        for name, value in arguments.items():
            here, there = dict(leaves(value, name)), dict(leaves(self.arguments[name], name))
            if here.keys() != there.keys():
                found.append(f"{name} has another structure")
                continue
            said = (_leaf_difference(path, leaf, there[path]) for path, leaf in here.items())
            found += filter(None, said)
        if found:
            return found
        changed = self.state.difference() if self.state is not None else None
        return [changed or self._misfit(shapes) or "the structure of an argument differs"]

    def __str__(self) -> str:
        inputs = [f"{p.target}: {p.type}" for p in self.module.graph.placeholders]
        for name, value in self.arguments.items():
            for path, leaf in leaves(value, name):
                if not isinstance(leaf, Seen):
                    inputs.append(f"{path} = {leaf!r}")
        return ", ".join(inputs)


def _leaf_difference(path: str, new: Any, old: Any) -> str | None:
    is_array = isinstance(new, ARRAYS)
    if not isinstance(old, Seen) or not is_array:
        same = not is_array and not isinstance(old, Seen) and key_of(new, []) == key_of(old, [])
        return None if same else f"{path} is {'an array' if is_array else repr(new)}, was {old!r}"
    if new.dtype != old.dtype:
        return f"{path} is {new.dtype}, was {old.dtype}"
    return None if new.ndim == old.ndim else f"{path} has {new.ndim} axes, had {old.ndim}"
