"""Versions of a function for :func:`fxlite.jit`, and the calls for which each of them can be used.

In: a function, and the bound arguments of a call. Out: a key of the facts about the arguments that a trace fixes;
for each :class:`Version`, whether it fits arrays of some shapes and, if not, why; and :class:`ReadState`, everything
that the function reads besides its arguments, which can tell whether it has changed. Compiled code holds these values
as constants, so it may be used only as long as they stay the same.

The functions that may run are found without running any of them: by following the names in the code of a function to
the functions, classes and objects of the program for which they stand. NumPy, fxlite and the standard library are
assumed not to change.
"""

from __future__ import annotations

import copy
import enum
import functools
import inspect
import types
import weakref
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from fxlite.base.errors import OutOfRoom, number_of
from fxlite.graph import pytree
from fxlite.graph.graph_module import GraphModule
from fxlite.nn.module import Module
from fxlite.tracing.capture.capture import is_program
from fxlite.tracing.writes.lent import Refills

#: Stands for a value that does not exist.
MISSING = object()
_NUMBERS = (bool, int, float, complex)
#: Types of values that are compared directly.
ATOMS = frozenset((*_NUMBERS, str, bytes, type(None), type(Ellipsis), slice, range))
#: The attributes in which a module keeps its members.
_HELD = ("_parameters", "_buffers", "_modules")
_FUNCTIONS = (types.FunctionType, types.MethodType)
#: Classes of the standard library whose objects hold values that a program reads.
_CONTAINERS = (dict, list, tuple, deque, types.MappingProxyType, types.SimpleNamespace, functools.partial)


def number_key(value: Any) -> Any:
    """A key that is equal for two numbers or texts if a program cannot distinguish them: 1, 1.0 and True differ,
    and so do 0.0 and -0.0, but NaN equals NaN."""
    kind = type(value)
    if kind is float:
        return kind, value if value and value == value else repr(value)
    if kind is complex:
        return kind, repr(value)
    if kind is slice:
        return kind, tuple(map(number_key, (value.start, value.stop, value.step)))
    return kind, value


# -- values ----------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class _Frozen:
    """A value as it is now, to find out whether a later value differs, and to describe the difference."""

    is_like: Callable[[Any], bool]
    said: Callable[[str, Any], str]

    def difference(self, value: Any, path: str) -> str | None:
        """What has changed, in words; None if nothing has changed."""
        return None if self.is_like(value) else self.said(path, value)


def _bits(array: Any) -> Any:
    """The bytes of an array, as an array that can be compared fast."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.hasobject:
        return None
    data = flat.view(np.uint8)
    return data.view(np.uint64) if data.size % 8 == 0 else data


def _frozen_array(value: Any) -> _Frozen:
    """An array or a NumPy scalar, by a copy of its numbers."""
    copy = np.array(value, subok=False)
    bits = _bits(copy)

    def has_type(new: Any) -> bool:
        return isinstance(new, (np.ndarray, np.generic)) and (new.dtype, new.shape) == (copy.dtype, copy.shape)

    def is_like(new: Any) -> bool:
        return has_type(new) and bits is not None and np.array_equal(bits, _bits(np.asarray(new)))

    return _Frozen(
        is_like, lambda path, new: f"numbers in {path} changed" if has_type(new) else _changed(path, copy, new)
    )


def _typed(array: Any) -> _Frozen:
    """An array of which only the type matters, not the numbers."""
    return _Frozen(
        lambda new: (getattr(new, "dtype", None), getattr(new, "shape", None)) == (array.dtype, array.shape),
        lambda path, new: f"{path} is {_shown(new)}, of another type than it was",
    )


def _same(value: Any, code: Any = None) -> _Frozen:
    """A value that is compared by identity; a function also by its code."""
    return _Frozen(
        lambda new: new is value and getattr(new, "__code__", None) is code,
        lambda path, new: f"{path} is another {type(new).__name__}",
    )


@dataclass(frozen=True, eq=False)
class _Items:
    """A dict, a list or a tuple, or the attributes of an object, item by item."""

    owner: Any
    kind: type
    items: dict[Any, _Frozen | _Items]
    step: str

    def difference(self, value: Any, path: str) -> str | None:
        if self.owner is not None and value is not self.owner():
            return f"{path} is another {type(value).__name__}"
        if self.owner is None and type(value) is not self.kind:
            return f"{path} is a {type(value).__name__}, was a {self.kind.__name__}"
        found = _items_of(value)
        if found.keys() != self.items.keys():
            changed = [k for k in {**found, **self.items} if (k in found) != (k in self.items)]
            return f"{self.step.format(path, changed[0])} was added or removed"
        for key, frozen in self.items.items():
            said = frozen.difference(found[key], self.step.format(path, key))
            if said is not None:
                return said
        return None


def _items_of(value: Any) -> Mapping[Any, Any]:
    attributes = _attributes_of(value)
    found = pytree.children_of(value) if isinstance(value, _CONTAINERS) else None
    if found is not None:
        return {**attributes, **dict(zip(*found[1:]))}
    if isinstance(value, functools.partial):
        return {"func": value.func, "args": value.args, "keywords": value.keywords}
    if isinstance(value, Module):  # with the names by which a program reads them
        held = [attributes.get(name, {}) for name in _HELD]
        rest = {name: part for name, part in attributes.items() if name not in _HELD}
        return {**rest, **held[0], **held[1], **held[2]}
    return attributes


def _attributes_of(value: Any) -> dict[str, Any]:
    """The attributes of an object, with those for which its classes have slots."""
    slots = [vars(base).get("__slots__", ()) for base in type(value).__mro__]
    names = {name for own in slots for name in ([own] if isinstance(own, str) else own)} - {"__dict__", "__weakref__"}
    found = {name: getattr(value, name) for name in sorted(names) if hasattr(value, name)}
    return {**found, **getattr(value, "__dict__", {})}


def _changed(path: str, old: Any, new: Any) -> str:
    if new is MISSING:
        return f"{path} is gone"
    return f"{path} is {_shown(new)}, was {_shown(old)}"


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def freeze(value: Any, seen: dict[int, Any]) -> _Frozen | _Items:
    """A record of the value as it is now; ``seen`` are the objects around it."""
    kind = type(value)
    if kind in ATOMS:
        key = number_key(value)
        return _Frozen(
            lambda new: new is value or (type(new) in ATOMS and number_key(new) == key),
            lambda path, new: _changed(path, value, new),
        )
    if isinstance(value, (np.ndarray, np.generic)):
        return _frozen_array(value)
    if id(value) in seen or isinstance(value, (type, types.ModuleType, enum.Enum)):
        return _same(value)
    if isinstance(value, (set, frozenset, bytearray, array)):
        copy = value[:] if isinstance(value, (bytearray, array)) else kind(value)
        return _Frozen(lambda new: type(new) is kind and new == copy, lambda path, new: _changed(path, copy, new))
    is_object = _is_object(value)
    if not is_object and not isinstance(value, _CONTAINERS):
        return _same(value, getattr(value, "__code__", None))
    seen[id(value)] = value
    items = {key: freeze(part, seen) for key, part in _items_of(value).items()}
    named = is_object or isinstance(value, (types.SimpleNamespace, functools.partial))
    step = "{}.{}" if named else "{}[{!r}]"
    return _Items(_reference(value) if is_object else None, kind, items, step)


def _reference(value: Any) -> Callable[[], Any]:
    """A reference to an object that does not keep it alive, if possible."""
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value


def _is_object(value: Any) -> bool:
    """Whether a value is an object of the program or a module, whose attributes matter."""
    if isinstance(value, Module):
        return True
    if isinstance(value, (*_FUNCTIONS, type)):
        return False
    return any(is_program(f.__code__.co_filename) for f in _methods(type(value)))


def _wrapped(value: Any) -> Any:
    """The function or object that a value wraps. ``__getattr__`` is not called, because it may raise an error or
    create a new object for any name, as that of ``unittest.mock.call`` does."""
    return inspect.getattr_static(value, "__wrapped__", None)


def _methods(cls: type) -> Iterator[types.FunctionType]:
    for base in cls.__mro__:
        for member in vars(base).values():
            function = getattr(member, "fget", None) or getattr(member, "__func__", member)
            if isinstance(function, types.FunctionType):
                yield function


# -- the state -------------------------------------------------------------------------------------
class ReadState:
    """Everything that is read by the functions that may run when ``function`` is called, and by the object of
    which it is a method. ``objects`` are further objects that it gets, by name."""

    def __init__(self, function: Callable[..., Any], objects: Mapping[str, Any] = MappingProxyType({})) -> None:
        self._seen: dict[int, Any] = {}
        self._read: dict[tuple[int, str], tuple[str, Callable[[], Any], _Frozen | _Items]] = {}
        self._code: set[Any] = set()
        if _is_object(function) or isinstance(function, functools.partial):
            self._note(id(function), "self", _reference(function))
        self._reach(function)
        for name, value in objects.items():
            self._note(id(value), name, _reference(value))
            self._reach(value)
        self._seen.clear()

    def difference(self) -> str | None:
        """What has changed since, in words; None if nothing has changed."""
        for label, get, frozen in self._read.values():
            said = frozen.difference(get(), label)
            if said is not None:
                return said
        return None

    @property
    def names(self) -> list[str]:
        """The names of everything that is read."""
        return [label for label, _, _ in self._read.values()]

    def let_change(self, module: Module, name: str) -> None:
        """Allow the numbers of a module's array to change, because the compiled code reads them in every call."""
        work: list[_Frozen | _Items] = [frozen for _, _, frozen in self._read.values()]
        array = module.get_attribute(name)
        while work:
            frozen = work.pop()
            if isinstance(frozen, _Items):
                work += frozen.items.values()
                if frozen.owner is not None and frozen.owner() is module and name in frozen.items:
                    frozen.items[name] = _typed(array)

    # -- what may run ------------------------------------------------------------------------------
    def _reach(self, value: Any) -> None:
        """Follow a value to the functions that a program may call by way of it."""
        ways = [value]
        while ways:
            here = ways.pop()
            inner = _wrapped(here)
            if isinstance(here, types.MethodType):
                owner = here.__self__
                self._note(id(owner), "self", _reference(owner))
                ways += [here.__func__, owner]
            elif isinstance(here, types.FunctionType):
                if here.__code__ not in self._code and is_program(here.__code__.co_filename):
                    self._code.add(here.__code__)
                    ways += self._names(here)
            elif isinstance(here, type):
                if here not in self._code:
                    self._code.add(here)
                    ways += [f for f in _methods(here) if is_program(f.__code__.co_filename)]
            elif callable(inner):
                pass
            elif _is_object(here):
                ways.append(type(here))
                ways += self._held(here)
            elif isinstance(here, _CONTAINERS):
                ways += [p for p in _items_of(here).values() if not isinstance(p, np.ndarray)]
            if callable(inner):
                ways.append(inner)

    def _held(self, owner: Any) -> Iterator[Any]:
        """The objects that an object contains, each once."""
        if id(owner) in self._code:
            return
        self._code.add(id(owner))
        for part in _items_of(owner).values():
            if not isinstance(part, np.ndarray) and type(part) not in ATOMS:
                yield part

    def _names(self, function: types.FunctionType) -> Iterator[Any]:
        """The values of the names in a function's code; they are recorded as read."""
        space, names = function.__globals__, set[str]()
        codes = [function.__code__]
        while codes:
            code = codes.pop()
            names.update(code.co_names)
            codes += [c for c in code.co_consts if isinstance(c, types.CodeType)]
        for name in sorted(names & space.keys()):
            value = space[name]
            if isinstance(value, types.ModuleType):
                yield from self._attributes(name, value, names)
                continue
            self._note(id(space), name, partial(space.get, name, MISSING))
            yield value
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            self._note(id(cell), name, partial(_content, cell))
            yield _content(cell)
        defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        yield from defaults

    def _attributes(self, label: str, module: types.ModuleType, names: set[str]) -> Iterator[Any]:
        """The values that a function may read from a module of the program."""
        if not is_program(getattr(module, "__file__", None) or "<frozen"):
            return
        space = vars(module)
        for name in sorted(names & space.keys()):
            if not isinstance(space[name], types.ModuleType):
                text = f"{label}.{name}"
                self._note(id(space), name, partial(space.get, name, MISSING), text)
                yield space[name]

    def _note(self, place: int, name: str, get: Callable[[], Any], label: str = "") -> None:
        if (place, name) not in self._read:
            frozen = freeze(get(), self._seen)
            self._read[place, name] = label or name, get, frozen


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the cell is not bound yet
        return MISSING


Shapes = tuple[tuple[int, ...], ...]
#: The usual kind of parameter.
PLAIN = inspect.Parameter.POSITIONAL_OR_KEYWORD
ARRAYS = (np.ndarray, np.generic)
#: The keys of NumPy's numbers, by class.
NUMBERS = {t: (np.dtype(t), "number") for t in np.sctypeDict.values() if issubclass(t, (np.number, np.bool))}
#: Classes whose values are not traced.
PLAIN_CLASSES = frozenset({np.ndarray, float, int, bool, *NUMBERS})


#: Bytes of a result that is kept because it is always the same.
_MOST_KEPT = 16 << 20
#: The least number of numbers in a list that are compared together.
_MANY_NUMBERS = 8


def key_of(value: Any, arrays: list[Any]) -> Any:
    """A key that is equal for arguments for which the same version may be used. Arrays are appended to
    ``arrays``."""
    plain = type(value)
    if plain is np.ndarray or plain in NUMBERS:  # faster than isinstance, which matters in each call
        arrays.append(value)
        return NUMBERS.get(plain) or (value.dtype, value.ndim)
    if isinstance(value, ARRAYS):
        arrays.append(value)
        return value.dtype, value.ndim if isinstance(value, np.ndarray) else "number"
    kind = type(value)
    if kind in ATOMS:
        return number_key(value)
    if kind in (list, tuple) and len(value) >= _MANY_NUMBERS:
        kinds = set(map(type, value))
        if kinds == {float}:
            return kind, float, array("d", value).tobytes()
        if kinds == {int}:
            return kind, int, tuple(value)
    found = pytree.children_of(value)
    if found is not None:
        form, keys, values = found
        own = () if kind in (list, tuple, dict) else (pytree.extra_of(value),)
        return form, kind, tuple(keys), tuple(key_of(v, arrays) for v in values), *own
    try:
        hash(value)
    except TypeError:
        return type(value), id(value)
    return type(value), value


class Known:
    """An integer of NumPy whose value a trace fixes, as that of a Python int."""

    def __init__(self, number: np.integer) -> None:
        self.number = number

    def __repr__(self) -> str:
        return repr(self.number)

    def __hash__(self) -> int:
        return hash(self.number)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Known) and repr(other) == repr(self)


def mapped(value: Any, path: str, leaf: Callable[[str, Any], Any]) -> Any:
    """An argument with other leaves, each of which ``leaf`` makes from its path and value."""
    structure = pytree.structure_of(value, path, lambda v, where, _: pytree.Structure("leaf", where, v))
    return pytree.build(structure, lambda s: leaf(s.name, s.value))


class Seen:
    """The facts about an array that a version remembers."""

    def __init__(self, array: Any) -> None:
        self.dtype, self.ndim = array.dtype, array.ndim

    def __repr__(self) -> str:
        return "an array"


@dataclass
class Version:
    """One compiled version of a function.

    ``compiled`` is the result of :func:`fxlite.compile` for ``module``. ``reason`` tells why the version was
    needed, and ``fixed`` why some sizes are numbers. ``arguments`` are those of the first call. ``pattern``
    has a number or a name for each size of each array, and ``paths`` the places of the arrays. ``state``
    holds what the program reads besides its arguments; it is None if that is not compared. ``signature`` is
    that of the compiled function. ``states`` are the buffers that the program changes: module, name and path
    of each. ``finish`` converts the result to what the program returns (:mod:`fxlite.tracing.results`), and
    ``refills`` makes the program's changes to the caller's lists (:mod:`fxlite.tracing.writes.lent`).
    ``exceptions`` are those that the program raises under conditions."""

    module: GraphModule
    compiled: Any
    reason: str
    fixed: Sequence[str]
    arguments: Mapping[str, Any]
    state: ReadState | None
    paths: Sequence[str]
    pattern: Sequence[Sequence[int | str]]
    signature: inspect.Signature
    states: Sequence[tuple[Module, str, str]] = ()
    finish: Callable[[Any], Any] | None = None
    refills: Refills | None = None
    exceptions: Mapping[tuple[str, int, type], Exception] = field(default_factory=dict)
    used: int = 0
    _accepted: set[Shapes] = field(default_factory=set)
    _constant: tuple[Any] | None = None

    @functools.cached_property
    def rooms(self) -> list[OutOfRoom]:
        """The errors of lists and arrays of the program that may have more elements than there is room for."""
        return [error for error in self.exceptions.values() if isinstance(error, OutOfRoom)]

    @functools.cached_property
    def names(self) -> tuple[str, ...] | None:
        """The names of its parameters if all of them can be given by position, else None."""
        parameters = self.signature.parameters
        return tuple(parameters) if all(p.kind is PLAIN for p in parameters.values()) else None

    @functools.cached_property
    def places(self) -> list[int] | None:
        """The positions of its inputs among the arrays of a call; None if a call does more than pass them on."""
        interface = self.module.graph.interface
        if self.states or not hasattr(self.compiled, "call_arrays"):
            return None
        labels = {} if interface is None else interface.labels()
        paths = [labels.get(p.target, p.target) for p in self.module.graph.placeholders]
        return [self.paths.index(path) for path in paths] if set(paths) <= set(self.paths) else None

    def call(self, bound: Mapping[str, Any], arrays: Sequence[Any]) -> Any:
        """Call it with the bound arguments that are inputs; ``arrays`` are the arrays in them. Without arrays and
        states, its result is always the same, and is computed once unless it is large."""
        if arrays or self.states:
            return self._called(bound, arrays)
        if self._constant is None:
            found = self._called(bound, arrays)
            size = sum(np.asarray(leaf).nbytes for _, leaf in pytree.leaves(found, "result"))
            if size > _MOST_KEPT:
                return found
            self._constant = (found,)
        return copy.deepcopy(self._constant[0])

    def _called(self, bound: Mapping[str, Any], arrays: Sequence[Any]) -> Any:
        if self.places is not None:
            result = self.compiled.call_arrays([arrays[place] for place in self.places])
            if result is not NotImplemented:
                return result
        if self.names is not None:
            args, kwargs = tuple([bound[name] for name in self.names]), {}
        else:
            given = {name: bound[name] for name in self.signature.parameters}
            arguments = inspect.BoundArguments(self.signature, given)
            args, kwargs = arguments.args, arguments.kwargs
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
        """Whether it can be used for arrays of these shapes."""
        if shapes in self._accepted:
            return True
        fits = self._misfit(shapes) is None
        if fits:
            self._accepted.add(shapes)
        return fits

    def _misfit(self, shapes: Shapes) -> str | None:
        """The size for which it was not made, in words; None if all sizes fit."""
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
        """The reasons why it cannot be used for a call."""
        found: list[str] = []
        for name, value in arguments.items():
            here, there = dict(pytree.leaves(value, name)), dict(pytree.leaves(self.arguments[name], name))
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
            for path, leaf in pytree.leaves(value, name):
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
    return None if new.ndim == old.ndim else f"{path} has {number_of(new.ndim, 'axis', 'axes')}, had {old.ndim}"
