"""Parts of a traced program that a graph needs: its checks of its own sizes, modules that stay one node, and
constants, arrays and modules that the program made while it ran.

In: the running frame of the user's program, at a comparison of named dims that cannot be decided.
Out: the value with which the check passes (an ``assert`` holds, an ``if`` whose body only raises is not
taken) and the place of the statement; None for every other use, where continuing would choose a branch for
all sizes.

A check is recognized if the comparison is the whole test, or a part whose value is necessary for the check
to pass: ``a and b`` in an assert, ``a or b`` before a raise, ``not``, and chains such as ``1 <= T <= 512``.
A statement inside a ``try`` with handlers is not a check, because the program may continue if it fails.

In: the traced module, and ``leaf=`` by object, class, path or glob of the path. Out: the paths of leaves, and
a module with the attributes of the program and of the objects that the graph adopted.
"""

from __future__ import annotations

import ast
import difflib
import functools
import itertools
import linecache
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import CodeType, FrameType, ModuleType
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError
from fxlite.base.location import REGENERATED, Location, is_own_file
from fxlite.base.outside_text import is_path_part
from fxlite.graph.graph_module import NOT_WEIGHTS
from fxlite.nn.container import ModuleDict, ModuleList, Sequential
from fxlite.nn.module import Module, Parameter
from fxlite.types import shapes
from fxlite.types.dtypes import is_same_array

#: First line, last line, first column, column after the last; columns count bytes, as in code objects.
_Place = tuple[int | None, int | None, int | None, int | None]


def running_check(is_truth: bool) -> tuple[bool, Location] | None:
    """The check whose test the program is evaluating, called by a special method of a NamedDim: (the value
    that the comparison must have, the statement); None if it is not a check. ``is_truth``: a size is used as
    a truth value, not in a comparison."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename in _CALLERS:
        frame = frame.f_back
    if frame is None:
        return None
    file = frame.f_code.co_filename
    if is_own_file(file) and not file.startswith(REGENERATED):
        return None
    # a jump has the place of its statement; the previous instruction has that of the size
    position = frame.f_lasti // 2 - is_truth
    place = next(itertools.islice(frame.f_code.co_positions(), position, None))
    found = _checks(frame.f_code).get(place)
    if found is None:
        return None
    wanted, statement = found
    code = frame.f_code
    text = _text_of_check(code.co_filename, statement)
    return wanted, Location(resolved=(code.co_filename, statement.lineno, code.co_name, text))


#: The files of the functions that a comparison in the program calls on the way to this one.
_CALLERS = frozenset((__file__, shapes.__file__, __file__.replace("traced_program", "tracer")))


@functools.lru_cache(maxsize=256)
def _checks(code: CodeType) -> dict[_Place, tuple[bool, ast.Assert | ast.If]]:
    """A dict from the place of a part of a test to (its value if the check passes, the statement), for all checks in
    the file of a function. Empty if there is no source."""
    lines = linecache.getlines(code.co_filename)
    return _checks_of_file("".join(lines))


@functools.lru_cache(maxsize=32)
def _checks_of_file(source: str) -> dict[_Place, tuple[bool, ast.Assert | ast.If]]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return {}
    found: dict[_Place, tuple[bool, ast.Assert | ast.If]] = {}
    for statement in _checking_statements(tree):
        for part, wanted in _required(statement.test, isinstance(statement, ast.Assert)):
            found[_place(part)] = wanted, statement
    return found


@functools.lru_cache(maxsize=256)
def _text_of_check(file: str, statement: ast.Assert | ast.If) -> str:
    """The text of a check, found when it is shown: that goes through the whole file."""
    test = ast.get_source_segment("".join(linecache.getlines(file)), statement.test) or ast.unparse(statement.test)
    is_assert = isinstance(statement, ast.Assert)
    return " ".join(f"{'assert' if is_assert else 'if'} {test}".split()) + ("" if is_assert else ": raise")


def _checking_statements(tree: ast.AST) -> Iterator[ast.Assert | ast.If]:
    work: list[ast.AST] = [tree]
    while work:
        node = work.pop()
        if isinstance(node, ast.Assert) or (isinstance(node, ast.If) and _only_raises(node)):
            yield node
        if isinstance(node, (ast.Try, ast.TryStar)) and node.handlers:
            work += [*node.handlers, *node.orelse, *node.finalbody]
        else:
            work += ast.iter_child_nodes(node)


def _only_raises(statement: ast.If) -> bool:
    """True for a body that only prepares and raises an exception."""
    *before, last = statement.body
    return isinstance(last, ast.Raise) and all(isinstance(s, (ast.Assign, ast.Expr)) for s in before)


def _required(test: ast.expr, wanted: bool) -> Iterator[tuple[ast.expr, bool]]:
    """The parts of a test, with the values that all of them must have for the test to be ``wanted``."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _required(test.operand, not wanted)
    elif isinstance(test, ast.BoolOp):
        if isinstance(test.op, ast.And) is wanted:
            for value in test.values:
                yield from _required(value, wanted)
    elif not (isinstance(test, ast.Compare) and len(test.ops) > 1 and not wanted):
        yield test, wanted


def _place(node: ast.expr) -> _Place:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


# -- its modules and constants ---------------------------------------------------------------------
def leaf_paths(leaves: Iterable[Any], root: Module) -> frozenset[str]:
    """The paths of the modules below ``root`` that the texts among ``leaves`` name. ``*`` stands for one part
    of a path, or for a piece of one: "layers.*.attn".

    Raises ArgumentError, with the nearest names, for text that names no module, and for leaves of another
    kind."""
    wanted: list[str] = []
    for leaf in leaves:
        if not isinstance(leaf, (str, type, Module, ModuleType)):
            raise ArgumentError(f"leaf must be a module, a class or a path, not {leaf!r}")
        if isinstance(leaf, str):
            wanted.append(leaf)
    if not wanted:
        return frozenset()
    # a shared module has several paths, of which the tracer knows the first
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
        return "the program is not a module with children: give the module itself or its class"
    return f"there are {', '.join(shown)}"


def _matches(path: str, pattern: str) -> bool:
    parts, wanted = path.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


# -- objects that a graph adopts -------------------------------------------------------------------
def is_leaf(leaf: Any, module: Module) -> bool:
    """Whether ``leaf`` refers to a module: it is the module itself, its class, or the package of its class
    (``leaf=nn`` means all layers, as in torch.fx, but no containers)."""
    if isinstance(leaf, ModuleType):
        defined = type(module).__module__
        is_inside = defined == leaf.__name__ or defined.startswith(f"{leaf.__name__}.")
        return is_inside and not isinstance(module, (Sequential, ModuleList, ModuleDict))
    return leaf is module or (isinstance(leaf, type) and isinstance(module, leaf))


class TracedModule(Module):
    """The modules of the traced program, together with the constants and modules that its graph adopted. The
    program itself gets no new attributes."""

    def __init__(self, root: Module) -> None:
        super().__init__()
        self.__dict__["_root"] = root
        #: Arrays of the program that are attributes, or in its lists and dicts, by path.
        self.__dict__["_shared"] = {}
        self.training = root.training

    def get_attribute(self, target: str) -> Any:
        first = target.partition(".")[0]
        if first in self._buffers or first in self._parameters or first in self._modules:
            return super().get_attribute(target)
        shared: dict[str, Any] = self.__dict__["_shared"]
        return shared[target] if target in shared else self.__dict__["_root"].get_attribute(target)

    def get_submodule(self, target: str) -> Module:
        if not target or target.partition(".")[0] in self._modules:
            return super().get_submodule(target)
        return self.__dict__["_root"].get_submodule(target)  # type: ignore[no-any-return]


def adopt(owner: Module, root: Module, value: Any, wish: str, number: int = 0) -> str:
    """Give ``owner`` an array or module that no module of the root has, under a name that is unused in both;
    returns the name, the first free one of ``wish_0``, ``wish_1``, ... from ``number`` on."""
    while any(has_attribute(module, f"{wish}_{number}") for module in (owner, root)):
        number += 1
    name = f"{wish}_{number}"
    if isinstance(value, Module):
        owner.add_module(name, value)
    elif isinstance(value, Parameter) and value.is_parameter:
        owner.register_parameter(name, value)
    else:
        owner.register_buffer(name, value)
    return name


def has_attribute(module: Module, name: str) -> bool:
    """Whether a module has an attribute, array or child with that name."""
    state = module.__dict__
    return name in state or any(name in state[g] for g in ("_parameters", "_buffers", "_modules"))


_DEEPEST = 3  # levels of containers inside containers
_OF_MODULES = ("_parameters", "_buffers", "_modules", "_non_persistent", "training")


@dataclass(frozen=True)
class OwnArray:
    """The place of an array: it is ``container[key]`` in a module; the graph reads it as ``target``, and the
    program as ``text``."""

    target: str
    text: str
    value: np.ndarray[Any, Any]
    module: Module
    container: Any
    key: Any

    @property
    def is_weight(self) -> bool:
        """Whether it is a parameter or buffer, which a program can also access as an array."""
        state = vars(self.module)
        return self.container is state["_parameters"] or self.container is state["_buffers"]

    def is_as(self, before: np.ndarray[Any, Any]) -> bool:
        """Whether it is still the same array with the same contents."""
        try:
            held = self.container[self.key]
        except (LookupError, TypeError):
            return False
        return held is self.value and is_same_array(self.value, before)


def own_arrays(root: Module) -> dict[int, OwnArray]:
    """The arrays of a module and of all modules below it, by identity."""
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
    """(steps to the array, array, its container, its key) for each array in a value."""
    if isinstance(value, np.ndarray):
        yield steps, value, container, steps[-1]
    elif isinstance(value, _HOLD_ARRAYS) and len(steps) <= _DEEPEST:
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(part, _HOLD_ARRAYS) and isinstance(key, (str, int)):
                yield from _arrays(part, (*steps, key), value)
