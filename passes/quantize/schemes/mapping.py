"""Which op gets which config: :class:`QConfigMapping`, with torch's names and precedence.

In: rules for everything, for types of ops and modules, for module names by regular expression, and
for single modules. Out: the config of every call of a graph, and which rules matched nothing. A rule
for a module that does not exist is an error, because it would silently quantize nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fxlite import nn
from fxlite.graph.graph import Graph, Node
from fxlite.nn.module import Module
from fxlite.ops.op import ALIASES, REGISTRY, Op
from fxlite.passes.quantize.schemes.scheme import QConfig, QConfigError, as_qconfig, unknown


class QConfigMapping:
    """Rules in increasing order of precedence: for everything (``set_global``); for an op or a class of
    modules (``set_object_type``); for module names that match a regular expression from their start
    (``set_module_name_regex``; the first matching one counts); and for a module and everything inside
    it (``set_module_name``; the innermost counts). A config of None means float.

    Methods change the mapping and return it."""

    def __init__(self) -> None:
        self.global_qconfig: QConfig | None = None
        self.object_types: dict[str, QConfig | None] = {}
        self.module_name_regexes: dict[str, QConfig | None] = {}
        self.module_names: dict[str, QConfig | None] = {}

    def set_global(self, qconfig: QConfig | str | None) -> QConfigMapping:
        """Set the config of everything that no other rule covers."""
        self.global_qconfig = as_qconfig(qconfig)
        return self

    def set_object_type(self, object_type: Any, qconfig: QConfig | str | None) -> QConfigMapping:
        """Set the config of an op (``fx.ops.linear``, "linear", ``F.linear``), or of everything in
        modules of a class (``nn.Linear``, "Linear") whose own forward computes something; a graph knows
        no other classes. Raises QConfigError for anything else."""
        self.object_types[type_name(object_type)] = as_qconfig(qconfig)
        return self

    def set_module_name_regex(self, pattern: str, qconfig: QConfig | str | None) -> QConfigMapping:
        """Set the config of modules whose path matches the pattern from its start. Raises QConfigError
        for an invalid regular expression."""
        try:
            re.compile(_name(pattern, "a pattern"))
        except re.error as error:
            raise QConfigError(f"{pattern!r} is not a regular expression: {error}") from None
        self.module_name_regexes[pattern] = as_qconfig(qconfig)
        return self

    def set_module_name(self, module_name: str, qconfig: QConfig | str | None) -> QConfigMapping:
        """Set the config of the module at a path and the modules inside it. Raises QConfigError if the
        name is not a string."""
        self.module_names[_name(module_name, "a module's path")] = as_qconfig(qconfig)
        return self

    def __repr__(self) -> str:
        def shown(qconfig: QConfig | None) -> str:
            return "float" if qconfig is None else str(qconfig)

        lines = [f"  global: {shown(self.global_qconfig)}"]
        for title, rules in self._groups():
            lines += [f"  {title} {name}: {shown(qconfig)}" for name, qconfig in rules.items()]
        return "\n".join(["QConfigMapping", *lines])

    def _groups(self) -> Iterator[tuple[str, dict[str, QConfig | None]]]:
        yield "object type", self.object_types
        yield "module name regex", self.module_name_regexes
        yield "module name", self.module_names


def _name(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise QConfigError(f"{what} is text, such as 'layers.0.fc', not {value!r}")
    return value


def type_name(object_type: Any) -> str:
    """The name by which rules know an op or a class; ops are known by their own name, whatever alias is
    given.

    Raises QConfigError for anything else. Names given as text may be those of a program's own classes
    and are checked when the program is known."""
    if isinstance(object_type, Op):
        return object_type.name
    if isinstance(object_type, type) and issubclass(object_type, Module):
        return object_type.__name__
    name = object_type if isinstance(object_type, str) else getattr(object_type, "__name__", "")
    if name in REGISTRY or name in ALIASES:
        return (REGISTRY.get(name) or ALIASES[name]).name
    if isinstance(object_type, str):
        return object_type
    raise QConfigError(
        f"an object type is an op (fx.ops.linear), a class of modules (nn.Linear) or the name of "
        f"one, not {object_type!r}"
    )


@dataclass(frozen=True)
class Resolution:
    """The config of each call (None: float), the rule that gave it, and the rules that matched nothing,
    as text."""

    qconfigs: dict[Node, QConfig | None]
    rules: dict[Node, str]
    unmatched: tuple[str, ...]


def resolve(mapping: QConfigMapping, graph: Graph) -> Resolution:
    """The config of every call in a graph. Raises QConfigError for modules and types that the
    program does not have, with the nearest names."""
    if not isinstance(mapping, QConfigMapping):
        raise QConfigError(f"give a QConfigMapping: QConfigMapping().set_global(static_int8()), not {mapping!r}")
    calls = [n for n in graph.nodes if n.op == "call_function"]
    classes: dict[str, str] = {}  # module path -> class name, "" if the module itself makes no call
    for node in calls:
        for path in _ancestors(node):
            classes.setdefault(path, "")
        if node.scope is not None:
            classes[node.scope.path] = node.scope.class_name
    _check_names(mapping, classes)
    matched: set[tuple[str, str]] = set()
    by_place: dict[tuple[Any, str], tuple[str, QConfig | None]] = {}
    qconfigs: dict[Node, QConfig | None] = {}
    rules: dict[Node, str] = {}
    for node in calls:
        place = node.scope, node.target.name
        if place not in by_place:
            by_place[place] = _strongest(mapping, node, classes, matched)
        rules[node], qconfigs[node] = by_place[place]
    unmatched = [
        f"{title} {name!r}" for title, group in mapping._groups() for name in group if (title, name) not in matched
    ]
    return Resolution(qconfigs, rules, tuple(unmatched))


def _strongest(
    mapping: QConfigMapping, node: Node, classes: dict[str, str], matched: set[tuple[str, str]]
) -> tuple[str, QConfig | None]:
    """The rule for a call and its config; all rules that fit are added to ``matched``."""
    found: list[tuple[str, QConfig | None]] = []
    paths = _ancestors(node)
    for path in paths:  # innermost first
        if path in mapping.module_names:
            matched.add(("module name", path))
            found.append((f"module name {path!r}", mapping.module_names[path]))
    for pattern, qconfig in mapping.module_name_regexes.items():
        if paths and re.match(pattern, paths[0]):
            matched.add(("module name regex", pattern))
            found.append((f"module name regex {pattern!r}", qconfig))
    root = node.scope.class_name if node.scope is not None and not paths else classes.get("", "")
    for name in (node.target.name, *(classes[path] for path in paths), root):
        if name in mapping.object_types:
            matched.add(("object type", name))
            found.append((f"object type {name!r}", mapping.object_types[name]))
    return found[0] if found else ("global", mapping.global_qconfig)


def _ancestors(node: Node) -> list[str]:
    """Paths of the modules that contain a call, innermost first, without the root."""
    paths: list[str] = []
    path = node.module_path
    while path:
        paths.append(path)
        path = path.rpartition(".")[0]
    return paths


def _check_names(mapping: QConfigMapping, classes: dict[str, str]) -> None:
    paths = [path for path in classes if path]
    for name in mapping.module_names:
        if name not in paths:
            if not paths:
                raise QConfigError(
                    f"there is no module {name!r}: the program is a function without modules; use set_object_type"
                )
            raise unknown("module", name, paths)
    layers = {n for n in dir(nn) if isinstance(getattr(nn, n), type)}
    known = {*REGISTRY, *layers, *filter(None, classes.values())}
    for name in mapping.object_types:
        if name not in known:
            found = unknown("op or class of modules", name, known)
            raise QConfigError(f"{found} (a class is known by what its own forward computes)")
