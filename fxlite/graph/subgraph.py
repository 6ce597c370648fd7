"""SubGraph: a function inside a graph, such as the body of a loop or a branch of a condition.

In: a graph of inputs, calls of ops, and an output that is a tuple of values. Out: an immutable value
that a node holds as an attribute. Sub-graphs with the same calls in the same order compare equal,
whatever their names. To change one, a node gets a new one as a whole, through its graph's journal; so
undo, copies, files and comparisons need no special cases. A sub-graph reads only its inputs: weights
and values of the surrounding program are operands of the node that holds it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from fxlite.base.errors import GraphError, expect, number_of
from fxlite.graph.graph import Graph
from fxlite.graph.node import Node, map_nodes
from fxlite.graph.retype import infer_types
from fxlite.types import shapes
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType


class SubGraph:
    """The body of a loop or a branch of a condition: a function from values to a tuple of values.

    ``inputs`` are its placeholders, ``results`` the values that it returns. A SubGraph is immutable: its
    nodes are only for reading. To change it, edit the copy that :attr:`graph` returns, and give
    ``SubGraph(edited)`` to the node that holds it. Weights and values of the surrounding program are
    inputs, and operands of that node."""

    __slots__ = ("_copies", "_dims", "_fitted", "_graph", "_hash", "_key", "calls", "inputs", "results")

    def __init__(self, graph: Graph, inputs: Sequence[Node] | None = None) -> None:
        """Takes ownership of the graph, which must not be edited from now on. ``inputs``: its
        placeholders in another order than that of the graph. Raises GraphError for a graph that reads
        weights, calls leaf modules, or does not return a tuple of values."""
        expect(graph, Graph, "a sub-graph", "it is SubGraph(graph)")
        for node in graph.nodes:
            if node.op in ("get_attr", "call_module"):
                what = "reads a weight" if node.op == "get_attr" else "calls a leaf module"
                raise GraphError(
                    f"a sub-graph {what}, {node.target}; make its value an input and an operand of its node"
                )
        results = graph.output_node().args[0]
        if type(results) is not tuple or not all(type(r) is Node for r in results):
            raise GraphError(f"a sub-graph gives a tuple of values, not {results}")
        self._graph = graph
        #: The calls of ops, in order.
        self.calls: list[Node] = [node for node in graph.nodes if node.op == "call_function"]
        self.inputs: tuple[Node, ...] = tuple(graph.placeholders if inputs is None else inputs)
        self.results: tuple[Node, ...] = results
        self._key: Any = None
        self._hash: int | None = None
        self._dims: frozenset[Any] | None = None
        self._fitted: dict[Any, SubGraph] = {}
        self._copies: list[tuple[Graph, dict[Node, Node]]] = []  # that nobody edited; at most one

    @property
    def nodes(self) -> Any:
        """All nodes in order, for reading."""
        return self._graph.nodes

    @property
    def graph(self) -> Graph:
        """A copy that may be edited."""
        return self.copy()[0]

    def copy(self) -> tuple[Graph, dict[Node, Node]]:
        """A copy that may be edited, and the copy of each node."""
        try:
            return self._copies.pop()
        except IndexError:
            return self._graph.copy_with_nodes()

    def give_back(self, graph: Graph, copies: dict[Node, Node]) -> None:
        """Keep a copy that was not edited for the next who wants one: most passes leave most bodies as they are.
        One with notes on nodes that have none here is not kept."""
        if all(len(copy._meta or ()) == len(node._meta or ()) for node, copy in copies.items()):
            graph.owning_module = self._graph.owning_module
            self._copies[:] = [(graph, copies)]

    def edited(self, edit: Callable[[Graph], Any]) -> SubGraph:
        """The sub-graph that results if ``edit`` is applied to a copy; ``self`` if nothing changes."""
        graph, copies = self.copy()
        before = graph.journal.version
        edit(graph)
        if graph.journal.version == before:
            self.give_back(graph, copies)
            return self
        return SubGraph(graph, [copies[node] for node in self.inputs])

    def find(self, query: str, sizes: Mapping[str, int] | None = None) -> list[Any]:
        """Find nodes by a query, as :meth:`Graph.find` does."""
        return self._graph.find(query, sizes)

    def lint(self) -> None:
        """Check its invariants. Raises GraphError, which lists the violations."""
        self._graph.lint()

    @property
    def input_types(self) -> tuple[TensorType, ...]:
        return tuple(node.type for node in self.inputs)

    @property
    def output_types(self) -> tuple[TensorType, ...]:
        return tuple(node.type for node in self.results)

    @property
    def used(self) -> tuple[bool, ...]:
        """Whether each of the inputs is read."""
        return tuple(bool(node.users) for node in self.inputs)

    # -- other types, other inputs -------------------------------------------------------------
    def fitted(self, types: Iterable[TensorType]) -> SubGraph:
        """The same calls for inputs of other types. Raises what the type rules raise."""
        types = tuple(types)
        if types == self.input_types:
            return self
        found = self._fitted.get(types)
        if found is None:
            graph, copies = self.copy()
            mine = [copies[node] for node in self.inputs]
            infer_types(graph, dict(zip(mine, types, strict=True)), {})
            found = self._fitted[types] = SubGraph(graph, mine)
        return found

    def reading_order(self, start: int) -> list[int]:
        """The numbers, counted from ``start``, of the inputs from ``start`` on that are read, in the order
        of their first use."""
        number = {node: n for n, node in enumerate(self.inputs[start:])}
        read = (n for call in self.calls for n in call.all_input_nodes)
        return [number[n] for n in dict.fromkeys((*read, *self.results)) if n in number]

    def with_captured(self, start: int, place: Mapping[int, int]) -> SubGraph:
        """The sub-graph with other inputs from number ``start`` on. ``place`` maps the old to the new
        numbers, both counted from ``start``, of the inputs that stay; if several map to one number, the
        first of them stays."""
        graph, copies = self.copy()
        lead = [copies[node] for node in self.inputs[:start]]
        kept: dict[int, Node] = {}
        for number, node in enumerate(self.inputs[start:]):
            own = copies[node]
            if number in place and kept.setdefault(place[number], own) is own:
                continue
            if number in place:
                own.replace_all_uses_with(kept[place[number]])
            graph.erase_node(own)
        return SubGraph(graph, [*lead, *(kept[n] for n in sorted(kept))])

    def __fx_dims__(self) -> frozenset[Any]:
        """The named dims in its types and calls."""
        if self._dims is None:
            found: set[Any] = set()
            for node in self._graph.nodes:
                if isinstance(node.type, TensorType) and not node.type.is_concrete:
                    found |= shapes.named_dims(node.type.shape)
                for value in node._kwargs.values():
                    found |= shapes.named_dims(value)
            self._dims = frozenset(found)
        return self._dims

    def __fx_substitute__(self, env: Mapping[str, Dim]) -> SubGraph:
        """The sub-graph with other sizes in place of named dims."""
        others = {d.name for d in self.__fx_dims__() if env.get(d.name, d) is not d}
        if not others:
            return self
        key = tuple((name, env[name]) for name in sorted(others))
        found = self._fitted.get(key)
        if found is None:
            graph, copies = self.copy()
            types = {copies[n]: n.type.substitute(env) for n in self.inputs}
            infer_types(graph, types, env)
            found = self._fitted[key] = SubGraph(graph, [copies[n] for n in self.inputs])
        return found

    # -- running -------------------------------------------------------------------------------
    def __call__(self, *values: Any) -> tuple[Any, ...]:
        """Run it on arrays."""
        env = dict(zip(self.inputs, values, strict=True))
        for node in self.calls:
            args = map_nodes(node._args, env.__getitem__)
            try:
                env[node] = node.target(*args, **node._kwargs)
            except Exception as error:
                error.add_note(f"while running {node.describe()}")
                raise
        return tuple([env[node] for node in self.results])

    # -- as a value ----------------------------------------------------------------------------
    @property
    def key(self) -> Any:
        """A hashable key that is equal for equal sub-graphs."""
        if self._key is None:
            number = {node: n for n, node in enumerate(self.inputs)}
            rows: list[Any] = [self.input_types]
            for node in self.calls:
                args = map_nodes(node._args, lambda n: ("value", number[n]))
                number[node] = len(number)
                attributes = tuple((k, v, v.__class__) for k, v in node._kwargs.items())
                rows.append((node.target.name, _with_kinds(args), attributes, node.type))
            rows.append(tuple(number[node] for node in self.results))
            self._key = tuple(rows)
        return self._key

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SubGraph):
            return NotImplemented
        return self is other or self.key == other.key

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self.key)
        return self._hash

    def __copy__(self) -> SubGraph:
        return self

    def __deepcopy__(self, memo: Any) -> SubGraph:
        return self

    def __repr__(self) -> str:
        inputs = ", ".join(node.name for node in self.inputs)
        results = ", ".join(node.name for node in self.results)
        return f"<sub-graph ({inputs}) -> ({results}), {number_of(len(self.calls), 'call')}, {self.digest}>"

    @property
    def digest(self) -> str:
        """A text that is equal for equal sub-graphs, in every process."""
        return hashlib.sha256(repr(self.key).encode()).hexdigest()[:12]


def _with_kinds(value: Any) -> Any:
    """A key in which 1, 1.0 and True differ."""
    if type(value) is tuple:
        return tuple(map(_with_kinds, value))
    return value, value.__class__


class Names:
    """Unique names for the values of one function."""

    def __init__(self, taken: set[str]) -> None:
        self.taken = taken

    def free(self, wish: str) -> str:
        """``wish``, with the first number that makes it unique if it is taken."""
        name, number = wish, 0
        while name in self.taken:
            number += 1
            name = f"{wish}_{number}"
        self.taken.add(name)
        return name


def bodies_of(node: Node) -> dict[str, SubGraph]:
    """The sub-graphs of a node, by attribute name."""
    if not node._kwargs or node.op != "call_function" or getattr(node.target, "kind", "") != "control":
        return {}
    return {name: v for name, v in node._kwargs.items() if isinstance(v, SubGraph)}


def nodes_inside(graph: Graph) -> Iterator[Node]:
    """All nodes of a graph and of the sub-graphs in it."""
    for node in graph.nodes:
        yield node
        for body in bodies_of(node).values():
            yield from nodes_inside(body._graph)


class BodyBuilder:
    """Builds a sub-graph for a node of the graph ``outer``. Values of ``outer`` that it reads are
    *captured*: ``captured`` maps each of them to the input that stands for it here."""

    def __init__(self, outer: Graph) -> None:
        self.outer = outer
        self.graph = Graph(None, outer.tracer_cls)
        self.graph.is_body = True
        self.graph.declare_dims(outer.declared_dims)
        self.inputs: list[Node] = []
        self.captured: dict[Node, Node] = {}

    def input(self, name: str, type: TensorType | None) -> Node:
        """Add an input that is not captured."""
        self.inputs.append(self._placeholder(name, type))
        return self.inputs[-1]

    def capture(self, node: Node) -> Node:
        """The input that stands for a value of the outer graph."""
        if node not in self.captured:
            self.captured[node] = self._placeholder(node.name, node.type)
        return self.captured[node]

    def _placeholder(self, name: str, type: TensorType | None) -> Node:
        graph, known = self.graph, [*self.inputs, *self.captured.values()]
        with graph.inserting_after(known[-1]) if known else graph.inserting_before():
            name = graph._store.namer.unique(name)
            graph._store.namer.taken.discard(name)
            return graph.create_node("placeholder", name, (), {}, name, type)

    def finish(self, results: Sequence[Node], captured: Iterable[Node]) -> SubGraph:
        """The finished sub-graph. Its last inputs are those for ``captured``, not all of which it has to
        read."""
        self.graph.output(tuple(results))
        inner = [self.capture(node) for node in captured]
        return SubGraph(self.graph, [*self.inputs, *inner])
