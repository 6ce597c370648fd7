"""Nested inputs and results: dicts, tuples, lists, deques, namespaces, dataclasses and named tuples of arrays.

In: the inputs and results of a program. Out: :class:`Structure`, the form of one nested value, and
:class:`Interface`, the form of a whole call. The graph itself is flat: it has one placeholder for
each array (``batch_ids``, ``batch_mask``), and its interface says how ``batch`` is taken apart and
how the result is put together.

Structures are data. A saved structure names its classes, but loading it imports nothing: a class is
found only if this process has traced with it or called :func:`register_class`. Otherwise a dict stands
for a dataclass, a tuple for a named tuple, and a plain dict, list or tuple for one of a class derived from it.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import keyword
import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, FileFormatError, number_of
from fxlite.base.outside_text import is_name
from fxlite.types.dtypes import is_same_array
from fxlite.types.tensor_type import TensorType

#: Types of values that a structure may contain as they are.
CONSTANTS = (bool, int, float, complex, str, type(None))

#: The kinds of containers whose parts a program reads as attributes.
NAMED = ("dataclass", "namedtuple", "namespace")
#: The kinds of containers that a program can change.
CHANGEABLE = ("dict", "list", "deque", "namespace")
#: The class of a container of a kind if it is none that is derived from it.
_PLAIN = {"dict": dict, "list": list, "tuple": tuple, "deque": deque, "namespace": SimpleNamespace}
#: The classes that know how to fill an object of a class that is derived from them.
_BASES = (defaultdict, OrderedDict, *_PLAIN.values())
#: The kind of the plain value, in a graph's output node, of a container of another kind.
_IN_PLACE = {"namedtuple": "tuple", "dataclass": "dict", "first": "tuple", "deque": "list", "namespace": "dict"}

#: The deepest nesting of containers in a value.
_DEEPEST = 100

_CLASSES: dict[str, type] = {f"collections:{cls.__name__}": cls for cls in (Counter, OrderedDict)}


class _Placeholder:
    """Marks the leaves of ``concrete_args`` that stay inputs."""

    def __repr__(self) -> str:
        return "fx.PH"


PH = _Placeholder()


@dataclass(frozen=True)
class Structure:
    """The form of a nested value.

    ``kind`` is "leaf" (an array; ``name`` is the target of its placeholder), "constant" (``value``),
    one of "tuple", "list", "dict", "deque", "namespace", "namedtuple" and "dataclass", which have ``keys`` and
    ``children``, or "first": the first elements of an array along the axis ``value`` (None: 0), with the array and the
    number of elements as children. ``value`` is also the default_factory of a dict and the maxlen of a deque, and
    ``cls`` the class of a container, if it is not that of its kind. Values of other classes, which list their parts in
    ``__fx_children__``, occur in inputs only."""

    kind: str
    name: str = ""
    value: Any = None
    keys: tuple[Any, ...] = ()
    children: tuple[Structure, ...] = ()
    class_name: str = ""
    cls: type | None = field(default=None, compare=False, repr=False)

    def leaves(self) -> Iterator[Structure]:
        """The leaves, in order."""
        if self.kind == "leaf":
            yield self
        for child in self.children:
            yield from child.leaves()

    def items(self, path: str) -> Iterator[tuple[str, Any, Structure]]:
        """(path, key, structure) of each child."""
        for key, child in zip(self.keys, self.children, strict=True):
            yield _step(self.kind, path, key), key, child

    @property
    def has_class(self) -> bool:
        """True if it contains a part of an array, or anything other than plain dicts, lists and tuples."""
        return bool(self.class_name) or self.kind in _IN_PLACE or any(c.has_class for c in self.children)


LEAF = Structure("leaf")


class _Like:
    """A sample value from which others of its class can be made. All samples of a kind compare equal."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Like) and self.value.__fx_form__ == other.value.__fx_form__

    __hash__ = None  # type: ignore[assignment]


def _step(kind: str, path: str, key: Any) -> str:
    return f"{path}.{key}" if kind in NAMED else f"{path}[{key!r}]"


def register_class(cls: type) -> type:
    """Let loaded graphs take and return instances of a dataclass, a named tuple, or a class derived from dict, list
    or tuple. Tracing with such a class registers it. Raises ArgumentError for any other class."""
    if _kind_of_class(cls) is None or cls in _PLAIN.values():
        raise ArgumentError(
            f"{cls.__qualname__} is neither a dataclass nor a named tuple, nor is it derived from dict, list or tuple"
        )
    _CLASSES[_class_name(cls)] = cls
    return cls


def _kind_of_class(cls: type) -> str | None:
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return "namedtuple"
    found = next((kind for kind, plain in _PLAIN.items() if issubclass(cls, plain)), None)
    if cls is MappingProxyType:
        return "dict"
    return "dataclass" if found is None and dataclasses.is_dataclass(cls) else found


def _class_name(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _fields(cls: Any, kind: str) -> tuple[str, ...]:
    if kind == "namedtuple":
        return cls._fields  # type: ignore[no-any-return]
    return tuple(f.name for f in dataclasses.fields(cls) if f.init)


def children_of(value: Any) -> tuple[str, Sequence[Any], Sequence[Any]] | None:
    """(kind, keys, values) of a container; None for anything else."""
    kind = value.__class__
    if hasattr(kind, "__fx_children__"):
        return value.__fx_children__()  # type: ignore[no-any-return]
    if isinstance(value, (dict, MappingProxyType)):
        return "dict", tuple(value), tuple(value.values())
    if isinstance(value, tuple):
        if hasattr(kind, "_fields"):
            return "namedtuple", _fields(kind, "namedtuple"), value
        return "tuple", range(len(value)), value
    if isinstance(value, (list, deque)):
        return "list" if isinstance(value, list) else "deque", range(len(value)), value
    if isinstance(value, SimpleNamespace):
        return "namespace", tuple(vars(value)), tuple(vars(value).values())
    if dataclasses.is_dataclass(kind) and not isinstance(value, TensorType):
        keys = _fields(kind, "dataclass")
        return "dataclass", keys, [getattr(value, k) for k in keys]
    return None


def contents_of(value: Any) -> Sequence[Any]:
    """What a container of the user's program has in it; nothing for anything else, such as a traced value that itself
    consists of several parts."""
    found = None if hasattr(value.__class__, "__fx_children__") else children_of(value)
    return () if found is None else found[2]


def is_changeable(value: Any) -> bool:
    """Whether a program can change a container."""
    kind = (children_of(value) or ("",))[0]
    return kind in CHANGEABLE or (kind == "dataclass" and not value.__dataclass_params__.frozen)


def part_of(value: Any, key: Any) -> Any:
    """The part of a container with one of its keys."""
    found = children_of(value)
    return getattr(value, key) if found is not None and found[0] in NAMED else value[key]


def structure_of(
    value: Any,
    path: str,
    leaf: Callable[[Any, str, tuple[Any, ...]], Structure],
    keys: tuple[Any, ...] = (),
    around: tuple[int, ...] = (),
) -> Structure:
    """The structure of ``value``. ``leaf(value, path, keys)`` makes the structure of a value that is not a container,
    and ``around`` holds the ids of the containers around ``value``. Raises ArgumentError for a dict whose keys are
    not text or numbers, and for a container that contains itself."""
    found = children_of(value)
    if found is None:
        return leaf(value, path, keys)
    kind, own_keys, values = found
    around = _within(value, path, around)
    if kind == "dict":
        for key in own_keys:
            if not _is_key(key):
                raise ArgumentError(
                    f"{path}: the key {key!r} of a dict is a {type(key).__name__}; use texts, numbers of Python, "
                    "int(key), or tuples of these"
                )
    children = tuple(structure_of(v, _step(kind, path, k), leaf, (*keys, k), around) for k, v in zip(own_keys, values))
    if hasattr(value, "__fx_rebuilt__"):
        return Structure(kind, "", _Like(value), tuple(own_keys), children)
    if kind == "first":
        return Structure(kind, "", value.axis or None, tuple(own_keys), children)
    cls = value.__class__
    if cls is _PLAIN.get(kind):
        return Structure(kind, "", extra_of(value), tuple(own_keys), children)
    if kind in _PLAIN and kind != "namespace" and getattr(value, "__dict__", None):
        raise ArgumentError(
            f"{path} is a {cls.__qualname__}, a {kind} with attributes of its own ({', '.join(vars(value))}), which "
            f"would get lost where it is taken apart; use a plain {kind}, and pass the attributes beside it"
        )
    register_class(cls)
    return Structure(kind, "", extra_of(value), tuple(own_keys), children, _class_name(cls), cls)


def _is_key(key: Any) -> bool:
    """Whether a key of a dict can be part of a structure."""
    return all(map(_is_key, key)) if type(key) is tuple else isinstance(key, CONSTANTS)


def extra_of(value: Any) -> Any:
    """What a container has besides its parts."""
    return value.maxlen if isinstance(value, deque) else getattr(value, "default_factory", None)


def rebuilt(value: Any, parts: Sequence[Any]) -> Any:
    """A container of the same class as ``value`` with the same keys and other parts."""
    if hasattr(value, "__fx_rebuilt__"):
        return value.__fx_rebuilt__(parts)
    found = children_of(value)
    assert found is not None
    return _made(found[0], value.__class__, extra_of(value), found[1], parts)


def with_parts(value: Any, of_part: Callable[[Any], Any]) -> Any:
    """A container of the user's program with ``of_part(part)`` in place of each part; the value itself if that changes
    nothing, or if it is no container."""
    parts = contents_of(value)
    made = [*map(of_part, parts)]
    return value if all(one is other for one, other in zip(parts, made)) else rebuilt(value, made)


def _made(kind: str, cls: Any, extra: Any, keys: Sequence[Any], parts: Sequence[Any]) -> Any:
    """A container of a class, made without calling an ``__init__`` of the program, as copies are."""
    if kind == "dataclass" and _has_own_init(cls):
        return cls(**dict(zip(keys, parts)))
    if kind in ("tuple", "namedtuple"):
        return tuple.__new__(cls, parts)
    if cls is MappingProxyType:
        return cls(dict(zip(keys, parts)))
    base: Any = object if kind == "dataclass" else next(base for base in _BASES if issubclass(cls, base))
    made = base.__new__(cls)
    if kind in NAMED:
        for name, part in zip(keys, parts):
            object.__setattr__(made, name, part)
    elif kind == "dict":
        base.__init__(made, *((extra,) if base is defaultdict else ()), zip(keys, parts))
    else:
        base.__init__(made, parts, *((extra,) if kind == "deque" else ()))
    return made


def leaves(value: Any, path: str = "", around: tuple[int, ...] = ()) -> Iterator[tuple[str, Any]]:
    """(path, value) of everything in a nested value that is not a container. ``around`` holds the ids of the
    containers around it. Raises ArgumentError for a container that contains itself."""
    found = children_of(value)
    if found is None:
        yield path, value
        return
    around = _within(value, path, around)
    for key, part in zip(found[1], found[2]):
        yield from leaves(part, _step(found[0], path, key), around)


def require_end(value: Any, path: str, around: tuple[int, ...] = ()) -> None:
    """Raise ArgumentError for a nested value that contains itself or is nested too deeply."""
    found = None if hasattr(value.__class__, "__fx_children__") else children_of(value)
    if found is not None:
        around = _within(value, path, around)
        for key, part in zip(found[1], found[2]):
            require_end(part, _step(found[0], path, key), around)


def _within(value: Any, path: str, around: tuple[int, ...]) -> tuple[int, ...]:
    """The ids of a container and of those around it. Raises ArgumentError if it contains itself."""
    if id(value) in around:
        raise ArgumentError(
            f"{path} is one of the containers that hold it, so that taking it apart has no end; leave that part out, "
            "or give what the program reads of it as a parameter of its own"
        )
    if len(around) >= _DEEPEST:
        raise ArgumentError(f"{path[:60]}... is nested more than {_DEEPEST} deep; use an array, or a flat list")
    return (*around, id(value))


def build(structure: Structure, leaf: Callable[[Structure], Any]) -> Any:
    """A value with this structure, whose leaves ``leaf`` makes."""
    if structure.kind == "leaf":
        return leaf(structure)
    if structure.kind == "constant":
        return structure.value
    return _assemble(structure, [build(child, leaf) for child in structure.children])


def _assemble(structure: Structure, values: list[Any]) -> Any:
    kind, cls = structure.kind, structure.cls
    if isinstance(structure.value, _Like):
        return structure.value.value.__fx_rebuilt__(values)
    if kind == "first":
        return values[0][(*(slice(None),) * (structure.value or 0), slice(int(values[1])))]
    if cls is None:  # a loaded graph does not know the class
        stands_for = _IN_PLACE.get(kind, kind) if structure.class_name else kind
        kind, cls = stands_for, _PLAIN[stands_for]
    return _made(kind, cls, structure.value, structure.keys, values)


def _has_own_init(cls: type) -> bool:
    """Whether a dataclass has the ``__init__`` that its fields give it, and not one of the program."""
    parameters: Any = getattr(cls, "__dataclass_params__", None)
    return parameters.init and "__init__" in vars(cls) and cls.__init__.__code__.co_filename == "<string>"  # type: ignore[misc]


def plain(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """``value`` with ``leaf(v)`` for each value that is not a container, in plain dicts, lists and tuples: the form
    that an output node holds."""
    found = children_of(value)
    if found is None:
        return leaf(value)
    kind, keys, values = found
    mapped = [plain(v, leaf) for v in values]
    if kind == "namedtuple":
        return _made(kind, value.__class__, None, keys, mapped)
    kind = _IN_PLACE.get(kind, kind)
    if kind == "dict":
        return dict(zip(keys, mapped))
    return mapped if kind == "list" else tuple(mapped)


def fits(structure: Structure, value: Any) -> bool:
    """True if the plain value of an output node still has this structure."""
    if structure.kind in ("leaf", "constant"):
        return children_of(value) is None
    found = children_of(value)
    if found is None:
        return False
    kind = _IN_PLACE.get(structure.kind, structure.kind)
    if kind != _IN_PLACE.get(found[0], found[0]) or len(found[2]) != len(structure.children):
        return False
    if kind == "dict" and tuple(found[1]) != structure.keys:
        return False
    return all(fits(c, v) for c, v in zip(structure.children, found[2]))


def rebuild(structure: Structure, value: Any) -> Any:
    """The program's result, with the containers of the program, from the plain value of the output node."""
    if not structure.has_class:
        return value
    values = value.values() if isinstance(value, dict) else value
    return _assemble(structure, [rebuild(c, v) for c, v in zip(structure.children, values)])


def take_apart(structure: Structure, value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """(placeholder target, value) for every leaf. Raises ArgumentError, which names the path of a value
    that is missing, unexpected, of another kind, or different from the value that was baked in."""
    if structure.kind == "leaf":
        yield structure.name, value
        return
    if structure.kind == "constant":
        if value is not structure.value and not _is_equal(value, structure.value):
            raise ArgumentError(
                f"{path} was {structure.value!r} when the program was traced and is baked in; "
                f"it cannot be {_short(value)}"
            )
        return
    found = children_of(value)
    wanted = structure.class_name.rpartition(":")[2] or structure.kind
    # a value whose class a loaded graph does not know may be given as the dict or tuple that it returns
    accepted = (structure.kind, _IN_PLACE.get(structure.kind) if structure.cls is None else None)
    if found is None or found[0] not in accepted:
        raise ArgumentError(f"{path} must be a {wanted}, not {_short(value)}")
    _, keys, values = found
    if structure.kind in ("tuple", "list", "deque", "namedtuple"):
        if len(values) != len(structure.children):
            raise ArgumentError(f"{path} must have {number_of(len(structure.children), 'item')}, not {len(values)}")
        given = dict(zip(structure.keys, values))
    else:
        given = dict(zip(keys, values))
        missing = [_step(structure.kind, path, k) for k in structure.keys if k not in given]
        if missing:
            raise ArgumentError(f"{', '.join(missing)} is missing: {path} has {_listed(given)}")
        extra = [_step(structure.kind, path, k) for k in given if k not in structure.keys]
        if extra:
            raise ArgumentError(f"{', '.join(extra)} is unexpected: {path} was traced with {_listed(structure.keys)}")
    for inner, key, child in structure.items(path):
        yield from take_apart(child, given[key], inner)


def _listed(keys: Iterable[Any]) -> str:
    return ", ".join(map(repr, keys)) or "nothing"


def _short(value: Any) -> str:
    return repr(value) if isinstance(value, CONSTANTS) else f"a {type(value).__name__}"


@dataclass(frozen=True)
class Baked:
    """A parameter whose value was fixed when the program was traced, by ``concrete_args`` or its
    default; every call must give the same value or leave it out.

    ``value`` is that value. If it is not plain data and the graph was loaded from a file, only its
    ``text`` is known. ``place`` is the position of the parameter: before the input parameter with that
    number."""

    place: int
    name: str
    kind: str
    value: Any = field(default=None, compare=False)
    text: str = ""

    def check(self, given: Any) -> None:
        """Raise ArgumentError if ``given`` differs from the fixed value."""
        if given is self.value or (not self.text and _is_equal(given, self.value)):
            return
        shown = self.text or (repr(self.value) if is_plain_data(self.value) else "another one")
        raise ArgumentError(
            f"{self.name} was {shown} when the program was traced and is baked in; it cannot be "
            f"{_short(given)}: trace the program with that value, or with a type for {self.name}"
        )


def _is_equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and is_same_array(a, b)
    if isinstance(a, float) and isinstance(b, float):
        return repr(a) == repr(b)  # NaN equals NaN, and 0.0 differs from -0.0
    try:
        return bool(a == b)
    except Exception:  # whatever was raised, the values are not known to be equal
        return False


def is_plain_data(value: Any) -> bool:
    """Whether a value is text, a number or None, or tuples, lists and dicts of these."""
    if isinstance(value, dict):
        return type(value) is dict and all(map(is_plain_data, (*value, *value.values())))
    if isinstance(value, (tuple, list)):
        return type(value) in (tuple, list) and all(map(is_plain_data, value))
    return type(value) in CONSTANTS or value is None


@dataclass(frozen=True)
class Interface:
    """How a program is called if a call is more than one array for each parameter: (name, kind as in
    :class:`inspect.Parameter`, structure) of each parameter, and the structure of the result if it has
    classes.

    ``writes`` are the inputs that the program writes into, by placeholder target. The output node of
    such a graph holds ``(result, *values)``: the program's own result, which may be None, then the
    final value of each of these inputs.

    ``states`` are those among them that no caller gives: (placeholder target, path) of the buffers that
    the program changes. A call reads them from the module and stores their new values there.

    ``baked`` are the parameters that are not inputs; a call may repeat the values that they had.

    ``orders`` are the inputs whose memory layout the trace had to assume, because NumPy's result depends
    on it: (placeholder target, "dense" for C order without gaps or "C" for C order, line of the
    program)."""

    parameters: tuple[tuple[str, str, Structure], ...]
    result: Structure | None = None
    writes: tuple[str, ...] = ()
    baked: tuple[Baked, ...] = ()
    states: tuple[tuple[str, str], ...] = ()
    orders: tuple[tuple[str, str, str], ...] = ()

    def covers(self, targets: Iterable[str]) -> bool:
        """True if every placeholder of the graph is still one of the leaves."""
        names = {leaf.name for _, _, s in self.parameters for leaf in s.leaves()}
        return names.union(dict(self.states)).issuperset(targets)

    @functools.cached_property
    def is_flat(self) -> bool:
        """True if a call passes one array for each input, in order, and gets flat results, no input is
        written or has to be checked, and parameters that are baked in come last."""
        return self.is_one_by_one and not self.writes and not self.orders

    @functools.cached_property
    def is_one_by_one(self) -> bool:
        """Like :attr:`is_flat`, but also true for programs that write into inputs."""
        plain = all(s.kind == "leaf" and k in _ONE_BY_ONE for _, k, s in self.parameters)
        last = len(self.parameters)
        return plain and all(baked.place == last for baked in self.baked) and self.result is None

    def signature(self, defaults: Mapping[str, Any] = MappingProxyType({})) -> inspect.Signature:
        """The program's signature: its inputs, with ``defaults`` by placeholder target, and the baked
        parameters with the values that they had. A default before a parameter without one is left out."""
        found: list[inspect.Parameter] = []
        needed = False  # whether a parameter without a default follows
        for place in range(len(self.parameters), -1, -1):
            here = [(b.name, b.kind, b.value) for b in self.baked if b.place == place]
            if place < len(self.parameters):
                name, kind, structure = self.parameters[place]
                here.append((name, kind, defaults.get(structure.name, inspect.Parameter.empty)))
            for name, kind, default in reversed(here):
                made = inspect.Parameter(name, getattr(inspect.Parameter, kind))
                if made.kind in _POSITIONS:
                    needed = needed or default is inspect.Parameter.empty
                if not (made.kind in _POSITIONS and needed):
                    made = made.replace(default=default)
                found.append(made)
        return inspect.Signature(found[::-1])

    @functools.cached_property
    def plain_signature(self) -> inspect.Signature:
        """The signature without defaults of inputs, which copies of a graph share."""
        return self.signature()

    def without(self, values: Mapping[str, Any]) -> Interface:
        """The interface after parameters are no longer inputs but fixed to ``values``."""
        kept = tuple(p for p in self.parameters if p[0] not in values)
        names = [name for name, *_ in kept]
        baked, place = [], 0
        for number, (name, kind, _) in enumerate(self.parameters):
            baked += [replace(b, place=place) for b in self.baked if b.place == number]
            if name in names:
                place += 1
            elif kind in _ONE_BY_ONE:
                baked.append(Baked(place, name, kind, values[name]))
        last = len(self.parameters)
        baked += [replace(b, place=place) for b in self.baked if b.place >= last]
        return replace(self, parameters=kept, baked=tuple(baked))

    def flatten(self, arguments: Mapping[str, Any], partial: bool = False) -> dict[str, Any]:
        """A dict from placeholder target to value, made of arguments by parameter name. Raises
        ArgumentError, which names the path of the value that does not fit."""
        flat: dict[str, Any] = {}
        for baked in self.baked:
            if baked.name in arguments:
                baked.check(arguments[baked.name])
        for name, kind, structure in self.parameters:
            if partial and name not in arguments:
                continue
            empty: Any = {} if kind == "VAR_KEYWORD" else ()
            flat.update(take_apart(structure, arguments.get(name, empty), name))
        return flat

    def labels(self) -> dict[str, str]:
        """A dict from placeholder target to a label such as ``batch['ids']``, for messages."""
        found: dict[str, str] = {}

        def walk(structure: Structure, path: str) -> None:
            if structure.kind == "leaf":
                found[structure.name] = path
            for inner, _, child in structure.items(path):
                walk(child, inner)

        for name, _, structure in self.parameters:
            walk(structure, name)
        return found | {target: f"self.{path}" for target, path in self.states}


#: The conditions on arrays in ``Interface.orders``, in the words of a message.
ORDERS = {"dense": "C-contiguous", "C": "in the order of rows (C)"}


@functools.lru_cache(maxsize=1024)
def one_by_one(targets: tuple[str, ...]) -> Interface:
    """The interface of a graph with one array for each parameter."""
    kind = "POSITIONAL_OR_KEYWORD"
    return Interface(tuple((target, kind, Structure("leaf", target)) for target in targets))


def state_target(path: str, taken: Collection[str]) -> str:
    """The placeholder target for the state at a path; ``taken`` are targets that are in use."""
    wish = re.sub(r"\W", "_", path)
    wish = wish if wish.isidentifier() and not keyword.iskeyword(wish) else f"state_{wish}"
    numbered = (f"{wish}_{number}" for number in itertools.count(1))
    return next(target for target in itertools.chain([wish], numbered) if target not in taken)


def to_data(interface: Interface) -> Any:
    """An interface as tuples, texts and numbers."""

    def structure(s: Structure | None) -> Any:
        if s is None:
            return None
        is_plain = isinstance(s.value, CONSTANTS)  # else it is the default_factory of a dict
        own = (s.value, s.class_name) if is_plain else (None, "")
        return (s.kind, s.name, own[0], s.keys, tuple(map(structure, s.children)), own[1])

    parameters = tuple((name, kind, structure(s)) for name, kind, s in interface.parameters)
    baked = tuple(map(_baked_data, interface.baked))
    data = [parameters, structure(interface.result), interface.writes, baked, interface.states, interface.orders]
    while len(data) > 2 and not data[-1]:
        data.pop()  # files of older versions do not have this entry
    return tuple(data)


def _baked_data(baked: Baked) -> tuple[Any, ...]:
    if not baked.text and is_plain_data(baked.value):
        return (baked.place, baked.name, baked.kind, baked.value, "")
    return (baked.place, baked.name, baked.kind, None, baked.text or f"a {_kind_name(baked.value)}")


def _kind_name(value: Any) -> str:
    name = type(value).__name__
    return name if is_name(name) else "value"


def from_data(data: Any) -> Interface:
    """The interface from the result of :func:`to_data`, without importing any class. Raises
    FileFormatError for data that is not an interface."""

    def structure(value: Any) -> Structure:
        kind, name, constant, keys, children, class_name = value
        if kind not in _KINDS or not isinstance(constant, CONSTANTS):
            raise FileFormatError(f"{kind!r} is not a kind of structure")
        needs_class = kind in ("namedtuple", "dataclass")
        has_class = needs_class or (class_name != "" and kind in _PLAIN)
        if name != "" and not (kind == "leaf" and is_name(name)):
            raise FileFormatError(f"{name!r} cannot be the name of an input")
        if not (_CLASS.fullmatch(class_name) if has_class else class_name == ""):
            raise FileFormatError(f"{class_name!r} cannot be the name of a class")
        if len(keys) != len(children) or (kind in NAMED and not all(map(is_name, keys))):
            raise FileFormatError(f"the keys of a {kind} do not fit what is in it")
        if kind == "first" and (len(children) != 2 or not (constant is None or type(constant) is int)):
            raise FileFormatError("a part of an array has two parts")
        if kind in ("tuple", "list", "deque") and tuple(keys) != tuple(range(len(keys))):
            raise FileFormatError(f"the keys of a {kind} are not 0, 1, ...")
        cls = _CLASSES.get(class_name)
        if cls is not None and (_kind_of_class(cls) != kind or (needs_class and _fields(cls, kind) != tuple(keys))):
            cls = None
        inner = tuple(map(structure, children))
        return Structure(kind, name, constant, tuple(keys), inner, class_name, cls)

    parts: tuple[Any, ...] = (*data, *[()] * (6 - len(data)))
    parameters, result, writes, all_baked, all_states, all_orders = parts
    made = []
    for name, kind, form in parameters:
        if not is_name(name) or kind not in _PARAMETER_KINDS:
            raise FileFormatError(f"{name!r} ({kind}) is not a parameter")
        made.append((name, kind, structure(form)))
        if not all(leaf.name for leaf in made[-1][2].leaves()):
            raise FileFormatError(f"an array of the parameter {name!r} is not an input")
    baked = tuple(map(_baked, all_baked))
    form = None if result is None else structure(result)
    states = tuple((target, path) for target, path in all_states)
    orders = tuple((target, kind, place) for target, kind, place in all_orders)
    if not all(is_name(target) and kind in ORDERS and isinstance(place, str) for target, kind, place in orders):
        raise FileFormatError(f"{orders!r} are not orders of inputs")
    interface = Interface(tuple(made), form, tuple(writes), baked, states, orders)
    for target in interface.writes:
        if not interface.covers([target]):
            raise FileFormatError(f"{target!r} is not an input that a program can write into")
    given = {leaf.name for _, _, form in made for leaf in form.leaves()}
    for target, path in states:
        if not is_name(target) or not isinstance(path, str) or target in given or target not in writes:
            raise FileFormatError(f"{target!r} ({path!r}) is not a state of a program")
    try:
        interface.signature()
    except ValueError as error:
        raise FileFormatError(f"the parameters are not those of a program: {error}") from None
    return interface


def _baked(data: Any) -> Baked:
    place, name, kind, value, text = data
    is_right = type(place) is int and is_name(name) and kind in _ONE_BY_ONE
    if not is_right or not isinstance(text, str) or not (is_plain_data(value) or text):
        raise FileFormatError(f"{name!r} ({kind}) is not a parameter")
    return Baked(place, name, kind, value, text)


_KINDS = ("leaf", "constant", *_PLAIN, "namedtuple", "dataclass", "first")
_CLASS = re.compile(r"[\w.]+:[\w.<>]+")  # module and qualified name
_ONE_BY_ONE = ("POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY")
_POSITIONS = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_PARAMETER_KINDS = ("POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD", "VAR_POSITIONAL", "KEYWORD_ONLY", "VAR_KEYWORD")


# -- what a graph returns --------------------------------------------------------------------------
def result_leaves(graph: Any) -> Iterator[tuple[Any, tuple[tuple[int, Any], ...]]]:
    """The nodes and numbers in a graph's result, in order. With each come the axes along which only the first
    elements belong to the result, because its size is known only when the program runs, and the nodes that give
    the number of these elements."""
    value, interface = graph.output_node().args[0], graph.interface
    form = None if interface is None else interface.result
    if form is None or not fits(form, value[0] if interface.writes else value):
        form = None  # an edit changed the structure of the result
    elif interface.writes:
        form = Structure("tuple", children=(form,))
    return _leaves_of(value, form)


def _leaves_of(value: Any, form: Structure | None) -> Iterator[tuple[Any, tuple[tuple[int, Any], ...]]]:
    if form is not None and form.kind == "first":
        for inner, cuts in _leaves_of(value[0], form.children[0]):
            yield inner, (*cuts, (form.value or 0, value[1]))
        return
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        forms = form.children if form is not None else ()
        for part, own in itertools.zip_longest(value, forms):
            yield from _leaves_of(part, own)
    elif value is not None:
        yield value, ()
