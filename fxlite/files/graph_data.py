"""Converts a graph to plain data, the JSON of a ``.fxl`` file, and back.

In: a graph. Out: tables of values that nodes share, and columns with one entry for each node, in order::

    {"types": [null, {"type": "f32[B,3]"}], "scopes": [null, [path, class]],
     "locations": [null, [file, line, function, expression]],
     "calls": [["call_function", "add", [{"input": 0}, 1], {}]],
     "name": ["add", ...], "call": [0, ...], "type": [1, ...], "scope": [0, ...], "loc": [0, ...],
     "inputs": [...], "meta": {"add": {...}}, "interface": ...,
     "dims": {"T": [1, 512, 8]}, "guards": [["T <= 512", [file, line, function, check]]],
     "specialized": {"B": 8}, "ops": {"swiglu": "my_ops"}}

An attribute that is a sub-graph is ``{"body": [graph, [names of its inputs]]}``.

The columns ``call``, ``type``, ``scope`` and ``loc`` are positions in the tables. ``{"input": 0}`` is the first
operand of a node, and ``inputs`` has the positions of the operands of all nodes in sequence. ``ops`` are those of
programs, with the modules that register them, which reading never imports. A model has few different calls on few
different types, so reading can check everything in a file and still be fast: each of them is checked once.
"""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Callable, Collection, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import compress, pairwise
from keyword import iskeyword
from typing import Any

from fxlite.base.errors import FileFormatError, FxliteError
from fxlite.base.location import Location, Scope
from fxlite.base.on_demand import sympy
from fxlite.base.outside_text import are_names, is_name, is_path_part, line
from fxlite.files.json_values import Operand, by_name, decode, encode
from fxlite.graph import pytree
from fxlite.graph.graph import OPCODES, Graph, Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.node import immutable, immutable_dict
from fxlite.graph.subgraph import SubGraph, bodies_of
from fxlite.ops.op import REGISTRY, Op, lookup
from fxlite.ops.own.register import OwnOp
from fxlite.types import guards, shapes
from fxlite.types.facts import Facts
from fxlite.types.shapes import symbols
from fxlite.types.tensor_type import TensorType

#: The entries that were left out, while a file of a newer minor version is read.
skipped: ContextVar[list[str] | None] = ContextVar("skipped", default=None)

_DEEPEST_PATH = 100  # parts in the path of a weight


# -- writing ---------------------------------------------------------------------------------------
class _Table:
    """Distinct values in order of appearance, each of which is written once. Values are equal if they are written in
    the same way."""

    def __init__(self, write: Callable[[Any], Any]) -> None:
        self.entries: list[Any] = []
        self._write = write
        self._by_identity: dict[int, int] = {}  # the graph keeps the values alive
        self._by_text: dict[str, int] = {}

    def position(self, value: Any) -> int:
        found = self._by_identity.get(id(value))
        if found is None:
            entry = self._write(value)
            found = self._by_text.setdefault(json.dumps(entry), len(self.entries))
            if found == len(self.entries):
                self.entries.append(entry)
            self._by_identity[id(value)] = found
        return found


def describe(graph: Graph, dropped: list[str]) -> dict[str, Any]:
    """The graph as data for JSON. Names of ``meta`` entries that JSON cannot represent are added to ``dropped``. Raises
    GraphError for a graph that does not pass lint."""
    types, scopes, places = _Table(encode), _Table(_scope_data), _Table(_location_data)
    calls: dict[Any, int] = {}
    templates: list[Any] = []
    names: list[str] = []
    columns: list[tuple[int, int, int, int]] = []
    inputs: list[int] = []
    positions: dict[Node, int] = {}
    noted: list[Node] = []
    own: dict[str, str] = {}  # ops of programs, with the modules that register them

    def key(value: Any) -> Any:
        """A key that distinguishes calls, but ignores their operands, which are appended to the list of operands."""
        kind = value.__class__
        if kind is Node:
            inputs.append(positions[value])
            return Node
        if kind is int or kind is str or kind is bool or value is None:
            return kind, value
        if kind is tuple:
            return tuple([key(v) for v in value])
        if kind is SubGraph:
            return kind, id(value)  # equal sub-graphs may have different names
        return kind, json.dumps(encode(value, note))

    def note(node: Node) -> None:
        inputs.append(positions[node])

    try:
        for node in graph.nodes:
            op, target, args, kwargs = node.op, node.target, node.args, node.kwargs
            call_key: Any = (op, target, *[key(a) for a in args])
            if kwargs:
                call_key = call_key, tuple([(k, key(v)) for k, v in kwargs.items()])
            call = calls.get(call_key)
            if call is None:
                call = calls[call_key] = len(calls)
                templates.append(_template(node))
                if isinstance(target, OwnOp):
                    own[target.name] = target.module
            columns.append((call, types.position(node.type), scopes.position(node.scope), places.position(node.loc)))
            if node._meta:
                noted.append(node)
            positions[node] = len(names)
            names.append(node.name)
    except KeyError:
        graph.lint(full=True)
        raise
    graph.output_node()  # without an output it could not be loaded
    known = set(names) if noted else set()
    meta = {node.name: _encode_meta(node, known, dropped) for node in noted}
    call_column, type_column, scope_column, loc_column = zip(*columns) if columns else [()] * 4
    data = {
        "types": types.entries,
        "scopes": scopes.entries,
        "locations": places.entries,
        "calls": templates,
        "name": names,
        "call": call_column,
        "type": type_column,
        "scope": scope_column,
        "loc": loc_column,
        "inputs": inputs,
        "meta": meta,
    }
    if graph.interface is not None:
        data["interface"] = encode(pytree.to_data(graph.interface))
    if own:
        data["ops"] = dict(sorted(own.items()))
    if graph.declared_dims:
        data["dims"] = {
            name: [dim.facts.minimum, dim.facts.maximum, dim.facts.multiple_of]
            for name, dim in graph.declared_dims.items()
        }
    if graph.guards:
        data["guards"] = [[str(guard), _location_data(guard.loc)] for guard in graph.guards]
    if graph.specialized:
        data["specialized"] = {n: encode(value) for n, value in graph.specialized.items()}
    return data


def _template(node: Node) -> list[Any]:
    """The call with numbers in place of its operands."""
    count = -1

    def number(_: Node) -> dict[str, int]:
        nonlocal count
        count += 1
        return {"input": count}

    target = node.target.name if isinstance(node.target, Op) else node.target
    args = [encode(a, number) for a in node.args]
    bodies = bodies_of(node)
    kwargs = {k: {"body": _body_data(bodies[k])} if k in bodies else encode(v, number) for k, v in node.kwargs.items()}
    return [node.op, target, args, kwargs]


def _body_data(body: SubGraph) -> list[Any]:
    """A sub-graph: its graph, and the names of its inputs in order."""
    return [describe(body.graph, []), [node.name for node in body.inputs]]


def _body(content: Any) -> SubGraph:
    """The sub-graph of :func:`_body_data`."""
    data, names = content
    graph = rebuild(data)
    inputs = {node.name: node for node in graph.placeholders}
    if sorted(names) != sorted(inputs):
        raise FileFormatError("the inputs of a sub-graph are not the ones that it declares")
    return SubGraph(graph, [inputs[name] for name in names])


def _scope_data(scope: Scope | None) -> Any:
    return None if scope is None else [line(scope.path), line(scope.class_name)]


def _location_data(place: Location | None) -> Any:
    if place is None:
        return None
    return [line(place.file), place.line, line(place.function), line(place.expression)]


def _encode_meta(node: Node, names: set[str], dropped: list[str]) -> dict[str, Any]:
    def name_of(other: Node) -> Any:
        if other.name not in names:  # the node was erased
            raise TypeError
        return by_name(other)

    meta: dict[str, Any] = {}
    for key, value in node.meta.items():
        try:
            if not isinstance(key, str):
                raise TypeError
            meta[key] = encode(value, name_of)
        except TypeError:
            dropped.append(f"meta[{key!r}] of {node.name} ({type(value).__name__})")
    return meta


# -- reading ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Call:
    """A checked entry of ``calls``. ``args`` and ``kwargs`` contain Operands. ``is_plain``: ``args`` are exactly the
    operands in order."""

    op: str
    target: Any
    args: tuple[Any, ...]
    kwargs: immutable_dict
    count: int
    is_plain: bool


_KEYS = frozenset(
    "types scopes locations calls name call type scope loc inputs meta interface dims guards specialized ops".split()
)


def check_keys(content: Any, known: Collection[str], what: str) -> None:
    """Raise FileFormatError for an entry that the format does not have, because it may be a damaged one that reading
    would ignore. In a file of a newer minor version such an entry is skipped, see :data:`skipped`."""
    for key in content:
        if key not in known:
            left_out = skipped.get()
            if left_out is not None:
                left_out.append(f"{_quoted(key)} of {what}")
                continue
            raise FileFormatError(f"{what} has an entry {_quoted(key)}, which the format does not have")


def rebuild(content: dict[str, Any]) -> Graph:
    """The graph from the result of :func:`describe`. It passes lint, except for weights, which the caller checks.

    Raises FileFormatError, or what the type rules raise, for data that is not such a graph."""
    check_keys(content, _KEYS, "the graph")
    graph = Graph()
    _read_dims(graph, content)
    own = graph.declared_dims
    types = [_type(entry, own) for entry in content["types"]]
    scopes = [_scope(entry) for entry in content["scopes"]]
    places = [_location(entry) for entry in content["locations"]]
    modules = _modules(content.get("ops", {}))
    calls = [_call(entry, own, modules) for entry in content["calls"]]
    names, inputs = content["name"], content["inputs"]
    columns = [content[column] for column in ("call", "type", "scope", "loc")]
    for column, table in zip((*columns, inputs), (calls, types, scopes, places, names)):
        if column and not 0 <= min(column) <= max(column) < len(table):
            raise FileFormatError("a node refers to an entry that is not there")
    if not are_names(names):
        wrong = next(name for name in names if not is_name(name))
        if iskeyword(wrong):
            raise FileFormatError(f"the name {wrong!r} is used twice or not allowed")
        raise FileFormatError(f"{_quoted(wrong)} cannot be the name of a value")
    made: list[Node] = []
    checked: set[tuple[int, ...]] = set()
    start = 0
    for name, call_number, type_number, scope, place in zip(names, *columns, strict=True):
        call = calls[call_number]
        places_read = inputs[start : start + call.count]
        start += call.count
        try:
            operands = [made[p] for p in places_read]
        except IndexError:
            raise FileFormatError(f"{name} reads a value before it is computed") from None
        args, kwargs = call.args, call.kwargs
        if call.is_plain:
            args = tuple(operands)
        elif call.count:
            args = _filled(args, operands)
            if call.op == "call_module":
                kwargs = immutable(_filled(kwargs, operands))
        stored = types[type_number]
        signature = (call_number, type_number, *[columns[1][p] for p in places_read])
        if signature not in checked:
            _check_type(graph, name, call, args, kwargs, stored)
            checked.add(signature)
        node = graph._append(call.op, call.target, args, kwargs, name, stored, (scopes[scope], places[place]))
        if node.name != name:
            raise FileFormatError(f"the name {name!r} is used twice or not allowed")
        made.append(node)
    _check_ends(made, start == len(inputs))
    _check_guards(graph)
    _read_meta(content["meta"], made)
    if "interface" in content:
        graph.interface = pytree.from_data(decode(content["interface"]))
    graph.journal.forget()
    return graph


def _read_dims(graph: Graph, content: dict[str, Any]) -> None:
    """Read the facts and guards on the named dims."""
    dims = {n: symbols.symbol(n, Facts(*facts)) for n, facts in content.get("dims", {}).items()}
    graph.declare_dims({n: d for n, d in dims.items() if isinstance(d, symbols.FactSymbol)})
    graph.guards = [guards.parse(text, _location(place)) for text, place in content.get("guards", ())]
    graph.specialized = {n: decode(v) for n, v in content.get("specialized", {}).items()}
    for name, value in graph.specialized.items():
        if not is_name(name) or not isinstance(value, (int, sympy.Expr)):
            raise FileFormatError(f"{_quoted(name)} cannot have been a named dim, or its value")


def _check_guards(graph: Graph) -> None:
    """Check that every condition can be checked in a call."""
    known = graph.input_dims
    for guard in graph.guards:
        if unknown := sorted(guard.names - known):
            raise FileFormatError(f"{guard}: {unknown[0]} is not a named dim of an input")


def _modules(content: Any) -> Mapping[str, str]:
    """The modules that register ops of programs, by the names of the ops."""
    for name, module in content.items():
        if not is_name(name) or not isinstance(module, str) or not all(map(is_name, module.split("."))):
            raise FileFormatError(f"{_quoted(name)} cannot be an op of a module {_quoted(str(module))}")
    return content  # type: ignore[no-any-return]


def _op(name: Any, modules: Mapping[str, str]) -> Op:
    """The op that a call names. Raises FileFormatError for an op of a program that this process does not have, and
    ArgumentError for an unknown op."""
    if name not in modules:
        return lookup(name)
    module, found = modules[name], REGISTRY.get(name)
    if found is None and module == "__main__":
        raise FileFormatError(
            f"the graph calls the op {name}, which the program that saved it registered (fx.op) in "
            f"its main file; register it before the graph is read, or move it into a module, and "
            f"save the graph again"
        )
    if found is None:
        raise FileFormatError(
            f"the graph calls the op {name}, which the module {module} registers (fx.op); import "
            f"it before the graph is read: import {module}, or fxlite ... --import {module}"
        )
    if not isinstance(found, OwnOp):
        raise FileFormatError(
            f"the graph calls the op {name} of the module {module}, but here {name} is an op of "
            f"fxlite; give it another name, and save the graph again"
        )
    if found.module != module:
        warnings.warn(
            f"the graph calls the op {name} of the module {module}; here the op is that of {found.module}", stacklevel=2
        )
    return found


def _call(entry: list[Any], own: Mapping[str, Any], modules: Mapping[str, str]) -> _Call:
    """Check one call and bring it to canonical form. ``own``: the graph's named dims with facts; ``modules``: those
    of ops of programs."""
    op, target, args, kwargs = entry
    seen: list[int] = []
    args = tuple([decode(a, _operand(seen)) for a in args])
    kwargs = {k: decode(v, _attribute(seen)) for k, v in kwargs.items()}
    if own and op == "call_function":
        kwargs = {k: shapes.substitute(v, own) for k, v in kwargs.items()}
    if op not in OPCODES:
        raise FileFormatError(f"unknown opcode {op!r}")
    if not all(map(is_name, kwargs)):
        wrong = next(name for name in kwargs if not is_name(name))
        raise FileFormatError(f"{_quoted(wrong)} cannot be the name of an argument")
    if seen != list(range(len(seen))):
        raise FileFormatError(f"the operands of {target} must be numbered in order, not {seen}")
    if op == "call_function":
        called = _op(target, modules)
        target, bound = called.canonicalize(called.bind(args, kwargs))
        if not all(map(_is_operand, target.tensors(bound))):
            raise FileFormatError(f"an operand of {target.name} is neither a value nor a number")
        args, kwargs = target.split_arguments(bound)
        if seen != [o.number for o in _operands(args)]:
            raise FileFormatError(f"an attribute of {target.name} cannot be a value")
    elif kwargs and op != "call_module":
        raise FileFormatError(f"a {op} has no arguments by name")
    else:
        _check_target(op, target)
        most = {"placeholder": 1, "get_attr": 0, "output": 1}.get(op, len(args))
        if len(args) > most or (seen and op == "placeholder"):
            raise FileFormatError(f"the arguments of {target} do not fit a {op}")
    count = len(seen)
    is_plain = len(args) == count and all(a.__class__ is Operand for a in args)
    return _Call(op, target, immutable(args), immutable(kwargs), count, is_plain)


def _operand(seen: list[int]) -> Callable[[str, Any], Any]:
    def read(kind: str, content: Any) -> Any:
        if kind != "input" or type(content) is not int:
            raise FileFormatError(f"expected {{'input': number}}, not {{{kind!r}: {content!r}}}")
        seen.append(content)
        return Operand(content)

    return read


def _attribute(seen: list[int]) -> Callable[[str, Any], Any]:
    operand = _operand(seen)
    return lambda kind, content: _body(content) if kind == "body" else operand(kind, content)


def _operands(value: Any) -> list[Operand]:
    if isinstance(value, Operand):
        return [value]
    return [o for v in value for o in _operands(v)] if isinstance(value, (tuple, list)) else []


def _is_operand(value: Any) -> bool:
    return value is None or isinstance(value, (Operand, bool, int, float, complex))


def _filled(value: Any, operands: list[Node]) -> Any:
    """``value`` with the operands inserted in their places."""
    kind = value.__class__
    if kind is Operand:
        return operands[value.number]
    if kind is tuple:
        return tuple([_filled(v, operands) for v in value])
    if isinstance(value, list):
        return [_filled(v, operands) for v in value]
    if isinstance(value, dict):
        return {k: _filled(v, operands) for k, v in value.items()}
    return value


def _check_type(graph: Graph, name: str, call: _Call, args: Any, kwargs: immutable_dict, stored: Any) -> None:
    """Check that the declared type is that of the op's rule."""
    if call.op not in ("call_function", "output"):
        return
    try:
        expected = graph._infer(call.op, call.target, args, kwargs)
    except FxliteError as error:
        raise FileFormatError(f"{name}: {error}") from error
    if expected is not None and expected != stored:
        raise FileFormatError(f"{name} has type {stored}, but the op's rule gives {expected}")


def _check_ends(nodes: list[Node], all_read: bool) -> None:
    outputs = [node.op == "output" for node in nodes]
    if not any(outputs):
        raise FileFormatError("the graph has no output node")
    if sum(outputs) > 1 or not outputs[-1]:
        raise FileFormatError("the output must be the last node")
    if not all_read:
        raise FileFormatError("there are more operands than nodes read")
    targets = sorted(node.target for node in nodes if node.op == "placeholder")
    twice = next(compress(targets, (a == b for a, b in pairwise(targets))), None)
    if twice is not None:
        raise FileFormatError(f"two inputs are called {twice!r}")


def _read_meta(content: dict[str, Any], nodes: list[Node]) -> None:
    if not content:
        return
    by_name = {node.name: node for node in nodes}

    def read(kind: str, name: Any) -> Node:
        if kind != "node":
            raise FileFormatError(f"unknown kind of value {kind!r}")
        return by_name[name]

    for name, entries in content.items():
        meta = {k: decode(v, read) for k, v in entries.items()}
        if not _is_chain(meta.get("from", ())):
            raise FileFormatError(f"meta['from'] of {name} is not a list of pairs of names")
        by_name[name].meta = meta


def _is_chain(value: Any) -> bool:
    """Whether a value is a list of the rewrites by which a node was made, in the form that passes read."""
    pairs = isinstance(value, tuple) and all(isinstance(v, tuple) and len(v) == 2 for v in value)
    return pairs and all(isinstance(text, str) for pair in value for text in pair)


def _type(entry: Any, own: Mapping[str, Any]) -> Any:
    found = decode(entry)
    if not _is_type(found):
        raise FileFormatError(f"{entry!r} is not a type")
    return _with_dims(found, own) if own else found


def _with_dims(found: Any, own: Mapping[str, Any]) -> Any:
    """A type with the symbols of the graph."""
    if isinstance(found, TensorType):
        return found.substitute(own)
    if isinstance(found, dict):
        return {k: _with_dims(v, own) for k, v in found.items()}
    if isinstance(found, (tuple, list)):
        return type(found)(_with_dims(v, own) for v in found)
    return found


def _is_type(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_is_type, value))
    if isinstance(value, dict):
        return all(map(_is_type, value.values()))
    return value is None or isinstance(value, TensorType)


def _scope(entry: Any) -> Scope | None:
    if entry is None:
        return None
    path, class_name = map(_text, entry)
    return Scope(path, class_name)


def _location(entry: Any) -> Location | None:
    if entry is None:
        return None
    file, number, function, expression = entry
    if type(number) is not int or not 0 <= number < 1 << 31:
        raise FileFormatError(f"{_quoted(number)} is not the number of a line")
    return Location(resolved=(_text(file), number, _text(function), _text(expression)))


def _text(value: Any) -> str:
    """A text for comments, which must be on one line."""
    if not isinstance(value, str):
        raise FileFormatError(f"{_quoted(value)} must be text: a scope, file, function or source")
    return line(value)


def _quoted(value: Any) -> str:
    """A value for a message."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def _check_target(op: str, target: Any) -> None:
    """Check a target: names become part of regenerated source, so they must really be names."""
    if op == "placeholder":
        if not is_name(target):
            raise FileFormatError(f"{_quoted(target)} cannot be the name of an input")
    elif op == "output":
        if target != "output":
            raise FileFormatError(f"{_quoted(target)} cannot be the name of the output")
    else:
        check_path(target)


@functools.cache
def _reserved_names() -> frozenset[str]:
    """The names of a GraphModule's own attributes."""
    graph = Graph()
    graph.output(None)
    return frozenset(vars(GraphModule({}, graph))) - {"name"}


def check_path(path: Any) -> None:
    """Raise FileFormatError unless ``path`` can be the path of a weight or module."""
    parts = path.split(".") if isinstance(path, str) else [""]
    if len(parts) > _DEEPEST_PATH or not all(map(_fits_path, parts)):
        raise FileFormatError(f"{_quoted(path)} cannot be the path of a weight")


@functools.lru_cache(maxsize=4096)  # the paths of a model repeat few names
def _fits_path(part: str) -> bool:
    return is_path_part(part) and part not in _reserved_names()
