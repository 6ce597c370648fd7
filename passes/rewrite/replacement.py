"""Replacements: new nodes in place of a match.

In: a function, and the values that its parameters have at a match. Out: new nodes in the graph. The
function is traced with the types of those values, so it may ask for shapes; one trace serves all
matches with the same types and numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fxlite.base.errors import ArgumentError, FxliteError, number_of
from fxlite.graph.graph import Graph, Node, map_nodes, nodes_in
from fxlite.graph.graph_module import GraphModule
from fxlite.nn.module import Module
from fxlite.passes.base import unique_attribute
from fxlite.passes.rewrite.matcher import same_arrays
from fxlite.passes.rewrite.pattern import (
    Operand,
    Parameters,
    Pattern,
    Program,
    as_graph_module,
    parameters_of,
    trace_call,
)
from fxlite.types.tensor_type import TensorType

if TYPE_CHECKING:
    from fxlite.passes.rewrite.match import Match


class Traced:
    """One trace of a replacement: its graph, the sources of its inputs, and its results."""

    def __init__(self, name: str, module: GraphModule, inputs: Mapping[str, tuple[str, int | None]]) -> None:
        self.name = name
        self.module = module
        self.inputs = [(node, *inputs[node.target]) for node in module.graph.placeholders]
        self.calls = [n for n in module.graph.nodes if n.op not in ("placeholder", "output")]
        self.results = list(nodes_in(module.graph.output_node().args[0]))
        self.is_typed = all(isinstance(n.type, TensorType) for n, _, _ in self.inputs)


class Replacement:
    """A function (module, op, graph) that computes new values from those that a pattern bound."""

    def __init__(self, program: Program, pattern: Pattern, name: str, by_position: bool = False) -> None:
        """``name`` is recorded in the ``from`` chain of new nodes. With ``by_position`` the parameters
        are the pattern's in the same order, whatever their names. Raises ArgumentError for parameters
        that the pattern does not have."""
        self.program = program
        self.name = name
        self.outputs = pattern.outputs
        mine = parameters_of(program)
        if by_position and len(mine.names) == len(pattern.parameters.names):
            self.names = dict(zip(mine.names, pattern.parameters.names))
        else:
            self.names = match_names(mine, pattern.parameters)
        self._traced: dict[Any, Traced] = {}

    def at(self, bindings: Mapping[str, Any]) -> Traced:
        """The trace for these values of the pattern's parameters."""
        values = {mine: bindings[theirs] for mine, theirs in self.names.items()}
        key = tuple([_key(v) for v in values.values()])
        found = self._traced.get(key)
        if found is None:
            found = self._traced[key] = self._trace(values)
        return found

    def why_not(self, match: Match) -> str | None:
        """Why it cannot replace a match without changing types, or None."""
        try:
            traced = self.at(match.bindings)
        except FxliteError as error:
            return f"the replacement does not fit: {str(error).splitlines()[0]}"
        required = traced.module.graph.guards
        if not set(required) <= set(match.anchors[0].graph.guards):
            return f"the replacement is for some sizes only: {required[0].reason}"
        for anchor, result in zip(match.anchors, traced.results):
            known = traced.is_typed and anchor.type is not None
            if known and result.type != anchor.type:
                return f"the replacement gives {result.type}, what it replaces is {anchor.type}"
        return None

    def _trace(self, values: dict[str, Any]) -> Traced:
        program = self.program
        if isinstance(program, (Graph, GraphModule)):
            names = {mine: (theirs, None) for mine, theirs in self.names.items()}
            traced = Traced(self.name, as_graph_module(program), names)
        else:
            nodes = [n for v in values.values() for n in nodes_in(v)]
            typed = all(isinstance(n.type, TensorType) for n in nodes)
            inputs: dict[str, tuple[str, int | None]] = {}

            def operand(value: Any, name: str, source: str, index: int | None) -> Any:
                if not isinstance(value, Node):
                    return value
                inputs[name] = (source, index)
                return Operand(name, value.type if typed else None)

            arguments: dict[str, Any] = {}
            for mine, theirs in self.names.items():
                value = values[mine]
                if isinstance(value, tuple):
                    arguments[mine] = tuple(operand(v, f"{mine}_{i}", theirs, i) for i, v in enumerate(value))
                else:
                    arguments[mine] = operand(value, mine, theirs, None)
            traced = Traced(self.name, trace_call(program, arguments)[0], inputs)
        if len(traced.results) != self.outputs:
            raise ArgumentError(
                f"the replacement returns {number_of(len(traced.results), 'value')}, the pattern {self.outputs}"
            )
        return traced


def match_names(mine: Parameters, pattern: Parameters, what: str = "the replacement") -> dict[str, str]:
    """Map each of the parameters ``mine`` to one of the pattern: the one with the same name or, if the
    names differ, the one in the same place. Raises ArgumentError if they do not fit."""
    names = [n for n in mine.names if n in pattern.names or n not in mine.optional]
    if set(names) <= set(pattern.names):
        return {name: name for name in names}
    if len(names) == len(pattern.names):
        return dict(zip(names, pattern.names))
    raise ArgumentError(f"{what} takes {mine}, the pattern {pattern}: give its parameters the same names")


def _key(value: Any) -> Any:
    """The key that a trace depends on: types of nodes, numbers and attributes by value and class."""
    if value.__class__ is Node:
        return value.type
    if isinstance(value, tuple):
        return tuple([_key(v) for v in value])
    return value.__class__, repr(value)


class Inserter:
    """Inserts traced replacements into a module's graph. Weights of the replacement are added to the
    module and read once, after the inputs; an array that the module already holds is read where it is."""

    def __init__(self, gm: GraphModule) -> None:
        self.gm = gm
        self.graph = gm.graph
        self._paths: dict[int, tuple[str, Any]] = {}  # by id of the array or module, which is kept alive
        self._entered: list[tuple[str, Any]] = []
        self._reads: dict[str, Node] = {}
        self._behind_inputs: Node | None = None
        for node in self.graph.nodes:
            if node.op in ("get_attr", "call_module"):
                value = gm.get_attribute(node.target)
                self._paths[id(value)] = (node.target, value)
            if self._behind_inputs is None:
                if node.op == "get_attr":
                    self._reads[node.target] = node
                elif node.op != "placeholder":
                    self._behind_inputs = node

    def insert(
        self, traced: Traced, bindings: Mapping[str, Any], anchor: Node, before: Node
    ) -> tuple[list[Any], list[Node]]:
        """Insert new nodes before ``before`` with the scope and place of ``anchor``. Returns the
        results and the new nodes. Raises the graph's error if a call does not fit."""
        graph = self.graph
        required = traced.module.graph.guards
        if required:  # only replace_pattern gets here: a rule does not fire if it needs new guards
            graph.guards = (*graph.guards, *required)
        values: dict[Node, Any] = {}
        for node, name, index in traced.inputs:
            value = bindings[name]
            values[node] = value if index is None else value[index]
        made: list[Node] = []
        chain = ((traced.name, anchor.name), *(anchor._meta or {}).get("from", ()))
        with graph.inserting_before(before), graph.with_origin(anchor):
            for node in traced.calls:
                if node.op == "get_attr":
                    values[node] = self._read(self._path(traced.module, node.target), made)
                    continue
                new = self._copy(traced, node, values)
                new.meta["from"] = chain
                values[node] = new
                made.append(new)
        return [values[r] for r in traced.results], made

    def _copy(self, traced: Traced, node: Node, values: dict[Node, Any]) -> Node:
        graph = self.graph
        args = map_nodes(node.args, values.__getitem__)
        if traced.is_typed and node.op == "call_function":
            return graph.call_op(node.target, args, node.kwargs)  # already canonical for these types
        if node.op == "call_module":
            kwargs = map_nodes(node.kwargs, values.__getitem__)
            return graph.call_module(self._path(traced.module, node.target), args, kwargs, node.type)
        return graph.call_function(node.target, args, node.kwargs)

    def _path(self, module: GraphModule, target: str) -> str:
        value = module.get_attribute(target)
        known = self._paths.get(id(value))
        if known is None:
            known = next((e for e in self._entered if _same_weight(e[1], value)), None)
            if known is None:  # each trace of a replacement copies the arrays it refers to
                path = unique_attribute(self.gm, target)
                self.gm.set_attribute(path, value)
                known = (path, value)
                self._entered.append(known)
            self._paths[id(value)] = (known[0], value)
        return known[0]

    def _read(self, path: str, made: list[Node]) -> Node:
        node = self._reads.get(path)
        if node is None:
            with self.graph.inserting_before(self._behind_inputs):
                node = self._reads[path] = self.graph.get_attr(path)
            made.append(node)
        return node


def _same_weight(a: Any, b: Any) -> bool:
    return type(a) is type(b) and not isinstance(a, Module) and same_arrays(a, b)
