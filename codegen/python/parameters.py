"""The arguments and results of a regenerated program, nested as in the original program.

In: how a graph's flat inputs are parts of parameters (``fxlite.graph.pytree.Interface``). Out: the
parameters, and for each input the text that reads it: ``cache[0][1]``, ``batch["ids"]``; and the result with
instances of the program's classes.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fxlite.base.outside_text import docstring, python_string
from fxlite.graph.graph import Graph
from fxlite.graph.pytree import NAMED, Interface, Structure, fits
from fxlite.show.text.pretty import type_text

#: The kinds of structures that are a :class:`Record`.
_RECORDS = ("dataclass", "namedtuple", "first")
_STARS = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}


@dataclass
class Parameters:
    """The parameters of a program. ``texts`` has the text that reads an input, by its target. By text,
    ``lists`` has the number of items of lists and tuples, and ``items`` the numbers of items of those."""

    names: list[tuple[str, str]] = field(default_factory=list)  # with kinds
    inputs: dict[str, str] = field(default_factory=dict)  # target of those that are arrays
    texts: dict[str, str] = field(default_factory=dict)
    lists: dict[str, int] = field(default_factory=dict)
    items: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, kind: str, structure: Structure) -> None:
        self.names.append((name, kind))
        if structure.kind == "leaf":
            self.inputs[name] = structure.name
        self._add(structure, name)

    def _add(self, structure: Structure, text: str) -> None:
        if structure.kind == "leaf":
            self.texts[structure.name] = text
        children = structure.children
        if structure.kind in ("tuple", "list"):
            self.lists[text] = len(children)
            if all(c.kind == "tuple" for c in children) and len({*map(_size, children)}) == 1:
                self.items[text] = len(children[0].children)
        for key, child in zip(structure.keys, children):
            self._add(child, _part(structure.kind, text, key))

    def head(self, defaults: Mapping[str, str]) -> Iterator[str]:
        """The parameters as in a definition, with the defaults of inputs, except for those before a parameter
        without one."""
        kinds = [kind for _, kind in self.names]
        is_needed = [
            kind.startswith("POSITIONAL") and self.inputs.get(name) not in defaults for name, kind in self.names
        ]
        for number, (name, kind) in enumerate(self.names):
            before = {*kinds[:number]}
            if kind == "KEYWORD_ONLY" and not {"KEYWORD_ONLY", "VAR_POSITIONAL"} & before:
                yield "*"
            default = defaults.get(self.inputs.get(name, ""), "")
            if default and (kind == "KEYWORD_ONLY" or not any(is_needed[number:])):
                yield f"{name}={default}"
            else:
                yield f"{_STARS.get(kind, '')}{name}"
            if kind == "POSITIONAL_ONLY" and "POSITIONAL_ONLY" not in kinds[number + 1 :]:
                yield "/"


def _size(structure: Structure) -> int:
    return len(structure.children)


def _part(kind: str, text: str, key: Any) -> str:
    if kind in NAMED:
        return f"{text}.{key}"
    return f"{text}[{python_string(key) if isinstance(key, str) else repr(key)}]"


def interface_of(graph: Graph) -> Interface | None:
    """How a graph's inputs are parts of parameters; None if they are parameters themselves, as after an edit
    that added one."""
    found = graph.interface
    is_whole = found is not None and found.covers(str(n.target) for n in graph.placeholders)
    return found if is_whole else None


def roots(graph: Graph) -> list[tuple[str, str, Structure]]:
    """The parameters of a program: name, kind and structure."""
    interface = interface_of(graph)
    if interface is not None:
        return [*interface.parameters]
    plain = "POSITIONAL_OR_KEYWORD"
    return [(t, plain, Structure("leaf", t)) for n in graph.placeholders for t in [str(n.target)]]


def parameters_of(graph: Graph, unique: Callable[[str], str]) -> Parameters:
    """The parameters, with names that are valid in the text."""
    made = Parameters()
    for name, kind, structure in roots(graph):
        is_usable = not keyword.iskeyword(name) and name != "self"
        made.add(unique(name if is_usable else f"{name}_"), kind, structure)
    made.texts |= {target: f"self.{target}" for target, _ in graph.states}
    return made


@dataclass(frozen=True)
class Record:
    """An instance of one of the program's classes in its result (a dataclass or a named tuple), or the first
    elements of an array, with their number."""

    structure: Structure
    values: tuple[Any, ...]


def results_of(graph: Graph) -> Any:
    """What a program returns, with instances of its classes."""
    value, interface = graph.output_node().args[0], graph.interface
    if interface is not None and interface.writes:
        value = value[0]  # the values written into inputs follow it
    form = None if interface is None else interface.result
    return value if form is None or not fits(form, value) else _rebuilt(form, value)


def _rebuilt(structure: Structure, value: Any) -> Any:
    if not structure.has_class:
        return value
    values = value.values() if isinstance(value, dict) else value
    made = [_rebuilt(child, v) for child, v in zip(structure.children, values)]
    if structure.kind in _RECORDS:
        return Record(structure, tuple(made))
    if structure.kind in ("dict", "namespace"):
        return dict(zip(structure.keys, made))
    return made if structure.kind in ("list", "deque") else tuple(made)


def records_in(value: Any) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Kind, name and fields of the classes in a result."""
    if isinstance(value, Record):
        form, value = value.structure, value.values
        if form.kind != "first":
            yield form.kind, form.class_name.rpartition(":")[2].rpartition(".")[2], form.keys
    elif hasattr(value, "_fields"):
        yield "namedtuple", type(value).__name__, value._fields
    if isinstance(value, (tuple, list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from records_in(part)


def types_of(graph: Graph) -> Iterator[tuple[str, str]]:
    """The name of each parameter, with stars, and its type as text."""
    types = {str(n.target): n.type for n in graph.placeholders}

    def nested(structure: Structure) -> str:
        if structure.kind == "leaf":
            found = types.get(structure.name)
            return "Any" if found is None else str(found)
        if structure.kind == "constant":
            return repr(structure.value)
        inner = [nested(child) for child in structure.children]
        if structure.kind in ("tuple", "list", "deque", "namedtuple"):
            return listed(inner, "[]" if structure.kind in ("list", "deque") else "()")
        pairs = (f"{key}: {text}" for key, text in zip(structure.keys, inner))
        return "{" + ", ".join(pairs) + "}"

    for name, kind, structure in roots(graph):
        is_untyped = structure.kind == "leaf" and types.get(structure.name) is None
        yield f"{_STARS.get(kind, '')}{name}", "" if is_untyped else docstring(nested(structure))


def nested_text(value: Any) -> str:
    """The types of nested results; equal ones are written once."""
    if isinstance(value, (tuple, list)):
        return listed([*map(nested_text, value)], "[]" if isinstance(value, list) else "()")
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {nested_text(v)}" for key, v in value.items()) + "}"
    return type_text(value)


def listed(texts: Sequence[str], brackets: str) -> str:
    """``(f32[4], i64[2])``, ``[f32[4]] * 12``"""
    left, right = brackets[0], brackets[1]
    if len(texts) > 2 and len({*texts}) == 1:
        return f"{left}{texts[0]}{',' * (left == '(')}{right} * {len(texts)}"
    comma = "," if left == "(" and len(texts) == 1 else ""
    return f"{left}{', '.join(texts)}{comma}{right}"
