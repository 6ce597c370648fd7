"""Lists, dicts, sets and other containers of numbers that a program gets as arguments and changes, as in ``a[i] = x``
and ``a.append(x)``.

In: the arguments that a trace bakes in. Out: copies of them, new ones for each run of the program, so that tracing does
not change the caller's objects; and after the program, a :class:`Refills`, which changes the containers of a call
in the same way as the program changed the copies. It also puts the caller's objects into the result where the program
returns one of its arguments, list or array.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from fxlite.graph import pytree
from fxlite.tracing.capture.lists import is_open
from fxlite.tracing.selections.growing import rows_of

_CONSTANTS = (bool, int, float, complex, str, type(None))
_Steps = tuple[Any, ...]
#: From this many numbers on, those in a result that is known while tracing are not results of the graph.
MANY = 64
#: Makes a value from the caller's containers and the results of the graph.
_Make = Callable[[Callable[[_Steps], Any], list[Any]], Any]


class Lent:
    """Copies of the changeable containers among the arguments; several references to one object refer to one copy."""

    def __init__(self) -> None:
        #: Each copy with the steps from the arguments to the original, its first content, and the original.
        self._copies: list[tuple[Any, _Steps, Any, Any]] = []
        self._known: dict[int, Any] = {}

    def copied(self, value: Any, *steps: Any) -> Any:
        """The value with copies in place of containers that the program may change."""
        if id(value) in self._known:
            return self._known[id(value)]
        if isinstance(value, set):
            made: Any = value.copy()
        else:
            kind, keys, parts = _container(value) or ("", (), ())
            if not kind:
                return value
            copies = [self.copied(part, *steps, key) for key, part in zip(keys, parts)]
            if kind not in pytree.CHANGEABLE and all(one is other for one, other in zip(copies, parts)):
                return value
            made = pytree.rebuilt(value, copies)
            if kind not in pytree.CHANGEABLE:
                return made
        self._known[id(value)] = made
        self._copies.append((made, steps, _content(made), value))
        return made

    def refills(self, result: Any, inputs: Mapping[int, _Steps]) -> tuple[Refills, list[Any]] | None:
        """The program's changes to the copies, and the values that the graph has to return for these and for the
        program's result; None if the program has changed none of them and the result has few constants and none of the
        ``inputs``, arrays with the steps to the caller's. A program without a result may change its arguments, even if
        there is nothing to change in this call."""
        changed = [(copy, steps) for copy, steps, before, _ in self._copies if not _is_as(copy, before)]
        is_needed = changed or (result is None and self._copies) or _has_many_constants(result)
        if not is_needed and not _holds_one(result, inputs):
            return None
        values: list[Any] = []
        caller = {id(copy): steps for copy, steps, _, _ in self._copies} | dict(inputs)
        contents = [(steps, _made_of(copy, {**caller, id(copy): None}, values)) for copy, steps in changed]
        return Refills(contents, _made_of(result, caller, values)), values


def _holds_one(result: Any, inputs: Mapping[int, _Steps]) -> bool:
    """Whether a result is one of the inputs, or a list, tuple or dict with one."""
    found = _container(result)
    return id(result) in inputs if found is None else any(_holds_one(part, inputs) for part in found[2])


def _has_many_constants(result: Any) -> bool:
    """Whether a nested result has so many Python numbers that they should not all be results of the graph."""
    work, found = [result], 0
    while work and found < MANY:
        value = work.pop()
        if type(value) in (list, tuple):
            work += value
        found += isinstance(value, (bool, int, float, complex))
    return found == MANY


def _container(value: Any) -> tuple[str, Sequence[Any], Sequence[Any]] | None:
    """What :func:`pytree.children_of` gives for containers whose elements all exist, other than dataclasses."""
    if is_open(value) or rows_of(value) is not None:
        return None
    found = None if hasattr(type(value), "__fx_children__") else pytree.children_of(value)
    return None if found is None or found[0] == "dataclass" else found


def _content(value: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    """The keys and parts of a container, to find out whether the program changes it."""
    found = pytree.children_of(value)
    return (tuple(value), ()) if found is None else (found[1], [*found[2]])


def _is_as(copy: Any, before: tuple[Sequence[Any], Sequence[Any]]) -> bool:
    keys, parts = _content(copy)
    same_keys = set(keys) == set(before[0]) if isinstance(copy, set) else tuple(keys) == tuple(before[0])
    return same_keys and all(one is other for one, other in zip(parts, before[1]))


def _made_of(value: Any, caller: Mapping[int, _Steps | None], values: list[Any]) -> _Make:
    """A function that makes such a value in a call; the values that the graph has to return are appended to
    ``values``."""
    steps = caller.get(id(value))
    if steps is not None:
        return lambda place, _: place(steps)
    if isinstance(value, _CONSTANTS):
        return lambda *_: value
    if isinstance(value, set) and rows_of(value) is None:
        return lambda *_: value.copy()
    found = _container(value)
    if found is not None:
        parts = [_made_of(part, caller, values) for part in found[2]]
        return lambda *given: pytree.rebuilt(value, [part(*given) for part in parts])
    values.append(value)
    number = len(values) - 1
    return lambda _, found: found[number]


@dataclass(frozen=True)
class Refills:
    """Changes the containers of a call. ``contents`` tells which of them, with their new contents; ``result`` is
    the result of the program."""

    contents: Sequence[tuple[_Steps, _Make]]
    result: _Make

    def __call__(self, values: list[Any], arguments: Mapping[str, Any]) -> Any:
        """Make the changes and return the program's result; ``values`` are those that the graph returns."""

        def place(steps: _Steps) -> Any:
            return functools.reduce(pytree.part_of, steps, arguments)

        made = [(place(steps), make(place, values)) for steps, make in self.contents]
        result = self.result(place, values)
        for target, contents in made:
            target = vars(target) if isinstance(target, SimpleNamespace) else target
            target.clear()
            if isinstance(target, (dict, set)):
                target.update(contents if isinstance(contents, (dict, set)) else vars(contents))
            else:
                target.extend(contents)
        return result
