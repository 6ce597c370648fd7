"""Nested inputs and results: dicts, tuples, lists, dataclasses and named tuples of arrays.

In: what a program takes and gives. Out: :class:`Structure`, the form of one nested value, and
:class:`Interface`, the form of a whole call. The graph itself is flat: it has one placeholder for
each array (``batch_ids``, ``batch_mask``), and its interface says how ``batch`` is taken apart
and the result put together.

Structures are data. Saved ones name their classes and nothing is imported for them: a class is
found again if this process has traced with it or called :func:`register_class`; else its values are
dicts (of a dataclass) and tuples (of a named tuple).
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, FileFormatError
from fxlite.base.outside_text import is_name
from fxlite.types.tensor_type import TensorType

#: Values that may stand in a structure as they are.
CONSTANTS = (bool, int, float, str, type(None))

_CLASSES: dict[str, type] = {}


class _Placeholder:
    """Marks the leaves of ``concrete_args`` that stay inputs."""

    def __repr__(self) -> str:
        return "fx.PH"


PH = _Placeholder()


@dataclass(frozen=True)
class Structure:
    """The form of a nested value.

    ``kind`` is "leaf" (an array; ``name`` is its placeholder's target), "constant" (``value``),
    "tuple", "list", "dict", "namedtuple" or "dataclass", which have ``keys`` and ``children``."""

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
        """True if a dataclass or named tuple is in it."""
        return bool(self.class_name) or any(c.has_class for c in self.children)


LEAF = Structure("leaf")


def _step(kind: str, path: str, key: Any) -> str:
    return f"{path}.{key}" if kind in ("dataclass", "namedtuple") else f"{path}[{key!r}]"


def register_class(cls: type) -> type:
    """Let loaded graphs take and give instances of a dataclass or named tuple. Tracing with one
    registers it. Raises ArgumentError for another class."""
    if _kind_of_class(cls) is None:
        raise ArgumentError(f"{cls.__qualname__} is neither a dataclass nor a named tuple")
    _CLASSES[_class_name(cls)] = cls
    return cls


def _kind_of_class(cls: type) -> str | None:
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return "namedtuple"
    return "dataclass" if dataclasses.is_dataclass(cls) else None


def _class_name(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _fields(cls: Any, kind: str) -> tuple[str, ...]:
    if kind == "namedtuple":
        return cls._fields  # type: ignore[no-any-return]
    return tuple(f.name for f in dataclasses.fields(cls) if f.init)


def children_of(value: Any) -> tuple[str, Sequence[Any], Sequence[Any]] | None:
    """(kind, keys, values) of a container; None for anything else."""
    kind = value.__class__
    if isinstance(value, dict):
        return "dict", tuple(value), tuple(value.values())
    if isinstance(value, tuple):
        if hasattr(kind, "_fields"):
            return "namedtuple", _fields(kind, "namedtuple"), value
        return "tuple", range(len(value)), value
    if isinstance(value, list):
        return "list", range(len(value)), value
    if dataclasses.is_dataclass(kind) and not isinstance(value, TensorType):
        keys = _fields(kind, "dataclass")
        return "dataclass", keys, [getattr(value, k) for k in keys]
    return None


def structure_of(
    value: Any, path: str, leaf: Callable[[Any, str, tuple[Any, ...]], Structure],
    keys: tuple[Any, ...] = (),
) -> Structure:  # fmt: skip
    """The structure of ``value``; ``leaf(value, path, keys)`` makes that of what is no container.
    Raises ArgumentError for a dict whose keys are not text or numbers."""
    found = children_of(value)
    if found is None:
        return leaf(value, path, keys)
    kind, own_keys, values = found
    if kind == "dict":
        for key in own_keys:
            if not isinstance(key, CONSTANTS):
                raise ArgumentError(f"{path}: the key {key!r} of a dict must be text or a number")
    children = tuple(
        structure_of(v, _step(kind, path, k), leaf, (*keys, k)) for k, v in zip(own_keys, values)
    )
    if kind in ("namedtuple", "dataclass"):
        cls = register_class(value.__class__)
        return Structure(kind, "", None, tuple(own_keys), children, _class_name(cls), cls)
    return Structure(kind, "", None, tuple(own_keys), children)


def build(structure: Structure, leaf: Callable[[Structure], Any]) -> Any:
    """A value of that structure, its leaves made by ``leaf``."""
    if structure.kind == "leaf":
        return leaf(structure)
    if structure.kind == "constant":
        return structure.value
    return _assemble(structure, [build(child, leaf) for child in structure.children])


def _assemble(structure: Structure, values: list[Any]) -> Any:
    kind, cls = structure.kind, structure.cls
    if kind == "list":
        return values
    if kind == "dict" or (kind == "dataclass" and cls is None):
        return dict(zip(structure.keys, values))
    if kind == "tuple" or cls is None:
        return tuple(values)
    return cls(**dict(zip(structure.keys, values)))


def plain(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """``value`` with its dataclasses as dicts and ``leaf(v)`` for what is no container: what an
    output node holds."""
    found = children_of(value)
    if found is None:
        return leaf(value)
    kind, keys, values = found
    mapped = [plain(v, leaf) for v in values]
    if kind in ("dict", "dataclass"):
        return dict(zip(keys, mapped))
    return value.__class__(*mapped) if kind == "namedtuple" else value.__class__(mapped)


def fits(structure: Structure, value: Any) -> bool:
    """True if a plain value (of an output node) still has this structure."""
    if structure.kind in ("leaf", "constant"):
        return children_of(value) is None
    found = children_of(value)
    if found is None:
        return False
    shape = {"namedtuple": "tuple", "dataclass": "dict"}
    same_kind = shape.get(structure.kind, structure.kind) == shape.get(found[0], found[0])
    if not same_kind or len(found[2]) != len(structure.children):
        return False
    if structure.kind in ("dict", "dataclass") and tuple(found[1]) != structure.keys:
        return False
    return all(fits(c, v) for c, v in zip(structure.children, found[2]))


def rebuild(structure: Structure, value: Any) -> Any:
    """The program's result from the plain one: dataclasses and named tuples again."""
    if not structure.has_class:
        return value
    values = value.values() if isinstance(value, dict) else value
    return _assemble(structure, [rebuild(c, v) for c, v in zip(structure.children, values)])


def take_apart(structure: Structure, value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """(placeholder's target, value) for every leaf. Raises ArgumentError naming the path of what
    is missing, unexpected, of another kind, or differs from what was baked in."""
    if structure.kind == "leaf":
        yield structure.name, value
        return
    if structure.kind == "constant":
        if isinstance(value, np.ndarray) or value != structure.value:
            raise ArgumentError(
                f"{path} was {structure.value!r} when the program was traced and is baked in; "
                f"it cannot be {_short(value)}"
            )
        return
    found = children_of(value)
    wanted = structure.class_name.rpartition(":")[2] or structure.kind
    stands_for = {"namedtuple": "tuple", "dataclass": "dict"}.get(structure.kind)
    # what a loaded graph does not know the class of may be given as what it gives
    accepted = (structure.kind, stands_for if structure.cls is None else None)
    if found is None or found[0] not in accepted:
        raise ArgumentError(f"{path} must be a {wanted}, not {_short(value)}")
    _, keys, values = found
    if structure.kind in ("tuple", "list", "namedtuple"):
        if len(values) != len(structure.children):
            raise ArgumentError(
                f"{path} must have {len(structure.children)} items, not {len(values)}"
            )
        given = dict(zip(structure.keys, values))
    else:
        given = dict(zip(keys, values))
        missing = [_step(structure.kind, path, k) for k in structure.keys if k not in given]
        if missing:
            raise ArgumentError(f"{', '.join(missing)} is missing: {path} has {_listed(given)}")
        extra = [_step(structure.kind, path, k) for k in given if k not in structure.keys]
        if extra:
            raise ArgumentError(
                f"{', '.join(extra)} is unexpected: {path} was traced with "
                f"{_listed(structure.keys)}"
            )
    for inner, key, child in structure.items(path):
        yield from take_apart(child, given[key], inner)


def _listed(keys: Iterable[Any]) -> str:
    return ", ".join(map(repr, keys)) or "nothing"


def _short(value: Any) -> str:
    return repr(value) if isinstance(value, CONSTANTS) else f"a {type(value).__name__}"


@dataclass(frozen=True)
class Interface:
    """How a program is called where that is more than one array for each parameter:
    (name, kind as in :class:`inspect.Parameter`, structure) of its parameters, and the structure of
    its result where that has classes.

    ``writes`` are the inputs that the program writes into, by placeholder's target. The output node
    of such a graph holds ``(result, *values)``: after the program's own result, which may be None,
    the value that each of them has in the end."""

    parameters: tuple[tuple[str, str, Structure], ...]
    result: Structure | None = None
    writes: tuple[str, ...] = ()

    def covers(self, targets: Iterable[str]) -> bool:
        """True if every placeholder of the graph is still one of the leaves."""
        names = {leaf.name for _, _, s in self.parameters for leaf in s.leaves()}
        return names.issuperset(targets)

    def signature(self) -> inspect.Signature:
        """The program's signature, without the parameters that were baked in."""
        return inspect.Signature(
            [
                inspect.Parameter(name, getattr(inspect.Parameter, kind))
                for name, kind, _ in self.parameters
            ]
        )

    def flatten(self, arguments: Mapping[str, Any], partial: bool = False) -> dict[str, Any]:
        """Placeholder's target -> value, from arguments by parameter name. Raises ArgumentError
        naming the path of what does not fit."""
        flat: dict[str, Any] = {}
        for name, kind, structure in self.parameters:
            if partial and name not in arguments:
                continue
            empty: Any = {} if kind == "VAR_KEYWORD" else ()
            flat.update(take_apart(structure, arguments.get(name, empty), name))
        return flat

    def labels(self) -> dict[str, str]:
        """Placeholder's target -> ``batch['ids']``, for messages."""
        found: dict[str, str] = {}

        def walk(structure: Structure, path: str) -> None:
            if structure.kind == "leaf":
                found[structure.name] = path
            for inner, _, child in structure.items(path):
                walk(child, inner)

        for name, _, structure in self.parameters:
            walk(structure, name)
        return found


def to_data(interface: Interface) -> Any:
    """An interface as tuples, text and numbers."""

    def structure(s: Structure | None) -> Any:
        if s is None:
            return None
        return (s.kind, s.name, s.value, s.keys, tuple(map(structure, s.children)), s.class_name)

    parameters = tuple((name, kind, structure(s)) for name, kind, s in interface.parameters)
    data = (parameters, structure(interface.result))
    return (*data, interface.writes) if interface.writes else data


def from_data(data: Any) -> Interface:
    """The interface from :func:`to_data`. No class is imported for it. Raises FileFormatError for
    what is not an interface."""

    def structure(value: Any) -> Structure:
        kind, name, constant, keys, children, class_name = value
        if kind not in _KINDS or not isinstance(constant, CONSTANTS):
            raise FileFormatError(f"{kind!r} is not a kind of structure")
        has_class = kind in ("namedtuple", "dataclass")
        if name != "" and not (kind == "leaf" and is_name(name)):
            raise FileFormatError(f"{name!r} cannot be the name of an input")
        if not (_CLASS.fullmatch(class_name) if has_class else class_name == ""):
            raise FileFormatError(f"{class_name!r} cannot be the name of a class")
        if len(keys) != len(children) or (has_class and not all(map(is_name, keys))):
            raise FileFormatError(f"the keys of a {kind} do not fit what is in it")
        if kind in ("tuple", "list") and tuple(keys) != tuple(range(len(keys))):
            raise FileFormatError(f"the keys of a {kind} are not 0, 1, ...")
        cls = _CLASSES.get(class_name)
        if cls is not None and (_kind_of_class(cls) != kind or _fields(cls, kind) != tuple(keys)):
            cls = None
        inner = tuple(map(structure, children))
        return Structure(kind, name, constant, tuple(keys), inner, class_name, cls)

    parameters, result, writes = data if len(data) == 3 else (*data, ())
    made = []
    for name, kind, form in parameters:
        if not is_name(name) or kind not in _PARAMETER_KINDS:
            raise FileFormatError(f"{name!r} ({kind}) is not a parameter")
        made.append((name, kind, structure(form)))
        if not all(leaf.name for leaf in made[-1][2].leaves()):
            raise FileFormatError(f"an array of the parameter {name!r} is not an input")
    interface = Interface(tuple(made), None if result is None else structure(result), tuple(writes))
    for target in interface.writes:
        if not interface.covers([target]):
            raise FileFormatError(f"{target!r} is no input that a program could write into")
    try:
        interface.signature()
    except ValueError as error:
        raise FileFormatError(f"the parameters are not those of a program: {error}") from None
    return interface


_KINDS = ("leaf", "constant", "tuple", "list", "dict", "namedtuple", "dataclass")
_CLASS = re.compile(r"[\w.]+:[\w.<>]+")  # module and qualified name
_PARAMETER_KINDS = (
    "POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD", "VAR_POSITIONAL", "KEYWORD_ONLY", "VAR_KEYWORD",
)  # fmt: skip
