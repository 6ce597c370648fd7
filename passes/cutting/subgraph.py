"""Cut a region out of a graph.

In: a GraphModule and some of its nodes. Out: a GraphModule of just these nodes. Its inputs are the
values that they read from outside, its outputs the values that are read outside; weights stay
weights. :mod:`fxlite.passes.cutting.inline_modules` is the inverse.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fxlite.base.checked import checked
from fxlite.base.errors import ArgumentError, GraphError, did_you_mean, expect
from fxlite.base.on_demand import is_expression, sympy
from fxlite.graph.graph import Graph, Node, map_nodes
from fxlite.graph.graph_module import GraphModule
from fxlite.types import shapes
from fxlite.types.tensor_type import TensorType


@dataclass
class Region:
    """Nodes to cut out. ``nodes`` are calls (and perhaps the graph's output) in graph order,
    ``inputs`` the values they read from outside except weights, and ``outputs`` the values read
    outside, or if there are none, those that nobody reads. Both are in order of use."""

    nodes: list[Node] = field(default_factory=list)
    inputs: dict[Node, None] = field(default_factory=dict)
    outputs: dict[Node, None] = field(default_factory=dict)

    def in_graph_order(self) -> Region:
        """The region with inputs and outputs in the order in which they are computed."""
        inputs, outputs = (dict.fromkeys(sorted(v)) for v in (self.inputs, self.outputs))
        return Region(self.nodes, inputs, outputs)


@checked
def extract_subgraph(
    gm: GraphModule,
    nodes: Iterable[Node | str] | None = None,
    *,
    inputs: Iterable[Node | str] | None = None,
    outputs: Iterable[Node | str] | None = None,
    name: str = "subgraph",
) -> GraphModule:
    """The part of ``gm`` that holds these nodes, as a GraphModule over the same weights.

    ``nodes`` (or their names) may be any set. Each value that they read from outside becomes an
    input with its producer's name and type. The values that are read outside are returned, or if
    there are none, those that nobody reads; both are in graph order. If the graph's output is in the
    set, the result has the structure of gm's result. Alternatively give a cut: ``outputs`` and
    everything they need up to ``inputs`` (by default gm's results and gm's inputs); inputs and
    results then have the order given. Results of a node with several results stay with that node. If
    the part uses a size in an attribute and none of its inputs has that size, the input of gm that
    has it becomes a further input.

    Raises ArgumentError for nodes of another graph, names that do not exist, or an empty set, and
    GraphError if an input of gm is needed that is not behind one of ``inputs``."""
    if (nodes is None) == (inputs is None and outputs is None):
        raise ArgumentError("extract_subgraph takes either nodes, or inputs= and outputs=")
    graph = gm.graph
    if nodes is not None:
        chosen = dict.fromkeys(_resolve(graph, nodes))
        found = cut(graph, dict.fromkeys(with_elements(graph, chosen), 0))
        region = found.get(0, Region()).in_graph_order()
        given = [n for n in graph.placeholders if n in chosen]
        region.inputs = dict.fromkeys(in_order(graph, [*given, *region.inputs]))
        if not region.nodes:
            raise ArgumentError("extract_subgraph: there is no call among the nodes given")
    else:
        region = _between(
            graph,
            None if inputs is None else _resolve(graph, inputs),
            None if outputs is None else _resolve(graph, outputs),
        )
    bind_named_dims(graph, region)
    made = build(gm, region, name)
    if region.nodes[-1:] == [graph.output_node()] and set(graph.placeholders) == set(region.inputs):
        made.graph.interface, made.graph.taps = graph.interface, graph.taps
        made.set_attributes({path: gm.get_attribute(path) for _, path in graph.states})
        made.recompile()
    return made


# -- which values cross the border -----------------------------------------------------------------
def cut(graph: Graph, assignment: Mapping[Node, Hashable]) -> dict[Any, Region]:
    """The regions of an assignment of calls to regions, by key, found in one walk.

    Nodes that are not assigned are outside all regions."""
    regions: dict[Any, Region] = {}
    for node in graph.nodes:
        own = assignment.get(node)
        if own is not None:
            regions.setdefault(own, Region()).nodes.append(node)
        for used in node.all_input_nodes:
            source = assignment.get(used)
            if source is not None and source != own:
                regions[source].outputs[used] = None
            if own is not None and source != own and used.op != "get_attr":
                regions[own].inputs[used] = None
    for region in regions.values():
        if not region.outputs:
            region.outputs = {n: None for n in region.nodes if not n.users and n.op != "output"}
    return regions


def element_source(node: Node) -> Node | None:
    """The call whose result a ``getitem`` takes an element of; None for other nodes."""
    source: Node | None = None
    while node.op == "call_function" and node.target.name == "getitem":
        node = source = node.args[0]
    return source if source is not None and source.op.startswith("call_") else None


def with_elements(graph: Graph, chosen: Iterable[Node]) -> list[Node]:
    """The calls (and output) among ``chosen``; elements of a call's result go with that call."""
    calls = {n for n in chosen if n.op not in ("placeholder", "get_attr")}
    sources = {n: element_source(n) for n in graph.nodes}
    return [n for n, source in sources.items() if (n if source is None else source) in calls]


def in_order(graph: Graph, nodes: Iterable[Node]) -> list[Node]:
    """These nodes in graph order, each once."""
    wanted = set(nodes)
    return [n for n in graph.nodes if n in wanted]


def _resolve(graph: Graph, nodes: Iterable[Node | str]) -> list[Node]:
    given = [nodes] if isinstance(nodes, (Node, str)) else list(nodes)
    names = {n.name: n for n in graph.nodes} if any(isinstance(n, str) for n in given) else {}
    found: list[Node] = []
    for node in given:
        if isinstance(node, str):
            if node not in names:
                raise ArgumentError(f"the graph has no node {node!r}{did_you_mean(node, names)}")
            node = names[node]
        expect(node, Node, "what is extracted", "give nodes or their names")
        if node.graph is not graph:
            raise ArgumentError(f"{node.name} belongs to another graph")
        found.append(node)
    return found


def _between(graph: Graph, inputs: list[Node] | None, outputs: list[Node] | None) -> Region:
    """The region of everything that ``outputs`` need, up to ``inputs``."""
    border = set(graph.placeholders if inputs is None else inputs)
    for node in border:
        if isinstance(node.type, (tuple, list)):
            raise GraphError(f"{node.describe()} has several results; give the one to cut at")
    results = graph.output_node().all_input_nodes if outputs is None else outputs
    reader: dict[Node, Node | None] = dict.fromkeys(results)
    work = list(results)
    while work:
        node = work.pop()
        if node in border:
            continue
        if node.op == "placeholder":
            path = [node]
            while (after := reader[path[-1]]) is not None:
                path.append(after)
            shown = [*path[:3], "...", path[-1]] if len(path) > 5 else path
            raise GraphError(
                f"{path[-1].describe()} is reached from the input {node.name} by a path that passes "
                f"through none of the given inputs: {' -> '.join(map(str, shown))}; add {node.name}, or a "
                f"value on this path, to inputs"
            )
        for used in node.all_input_nodes:
            if used not in reader:
                reader[used] = node
                work.append(used)
    inside = [n for n in graph.nodes if n in reader and n not in border]
    region = Region([n for n in inside if n.op != "get_attr"])
    reached = [n for n in graph.placeholders if n in reader]
    region.inputs = dict.fromkeys(reached if inputs is None else inputs)
    region.outputs = dict.fromkeys(results)
    return region


# -- named sizes -----------------------------------------------------------------------------------
def bind_named_dims(graph: Graph, region: Region) -> None:
    """Add inputs of the graph in front of the region's inputs until these determine its named sizes."""
    used = frozenset[str]().union(*(shapes.names(list(n.kwargs.values())) for n in region.nodes))
    if not _unbound(region.inputs, used):
        return
    added: dict[Node, None] = {}
    for node in graph.placeholders:
        missing = _unbound([*added, *region.inputs], used)
        if isinstance(node.type, TensorType) and missing & shapes.names(node.type.shape):
            added[node] = None
    region.inputs = added | region.inputs


def _unbound(inputs: Iterable[Node], used: frozenset[str]) -> frozenset[str]:
    """Named sizes that are used, or occur in the inputs' types, and cannot be solved from these types
    by :func:`fxlite.types.tensor_type.bind_dims`: bare names first, then the other sizes in order."""
    bound: set[str] = set()
    pending: list[Any] = []
    for node in inputs:
        for dim in node.type.shape if isinstance(node.type, TensorType) else ():
            if is_expression(dim):
                if dim.is_Symbol:
                    bound.add(dim.name)
                else:
                    pending.append(dim)
    unsolved: set[str] = set()
    for dim in pending:
        unknown = [s for s in dim.free_symbols if s.name not in bound]
        linear = len(unknown) == 1 and dim.is_polynomial(unknown[0])
        if linear and sympy.Poly(dim, unknown[0]).degree() == 1:
            bound.add(unknown[0].name)
        else:
            unsolved.update(s.name for s in unknown)
    return frozenset(unsolved | (used - bound))


# -- the new module --------------------------------------------------------------------------------
def build(gm: GraphModule, region: Region, name: str, prefix: str = "", as_tuple: bool = False) -> GraphModule:
    """A GraphModule of copies of the region's nodes over gm's weights. A single output is returned as
    it is (unless ``as_tuple``), several as a tuple. ``prefix`` is removed from the paths of the
    weights that it reads and the modules that it calls."""
    graph = Graph()
    graph.take_conditions(gm.graph, _sizes(region.inputs))
    values: dict[Node, Node] = {}
    taken: set[str] = set()
    last = reversed(region.inputs)
    optional = {*itertools.takewhile(lambda n: n.op == "placeholder" and n.args, last)}
    for node in region.inputs:
        values[node] = _placeholder(graph, node, taken, node in optional)
    outputs = tuple(region.outputs)
    result: Any = outputs[0] if len(outputs) == 1 and not as_tuple else outputs
    holder: dict[str, Any] = {}

    def value(node: Node) -> Node:
        if node not in values:  # a weight, which is read where it is first needed
            path = node.target.removeprefix(prefix)
            holder[path] = gm.get_attribute(node.target)
            values[node] = graph.node_copy(node)
            if path != node.target:
                values[node].target = path
        return values[node]

    for node in region.nodes:
        if node.op == "output":
            result = node.args[0]
        elif node not in values:
            for used in node.all_input_nodes:
                value(used)
            made = values[node] = graph.node_copy(node, value)
            if node.op == "call_module":
                made.target = node.target.removeprefix(prefix)
                holder[made.target] = gm.get_submodule(node.target)
    result = map_nodes(result, value)
    with graph.with_origin(gm.graph.output_node()):
        graph.output(result)
    module = GraphModule(holder, graph, name)
    module.training = gm.training
    return module


def _sizes(inputs: Iterable[Node]) -> frozenset[str]:
    """The named sizes that can be read off inputs."""
    shown = shapes.names([n.type.shape for n in inputs if isinstance(n.type, TensorType)])
    return shown - _unbound(inputs, frozenset())


def free_name(wish: str, taken: set[str]) -> str:
    """The first of ``wish``, ``wish_1``, ... that is not taken; it is added to ``taken``."""
    name, count = wish, 0
    while name in taken:
        count += 1
        name = f"{wish}_{count}"
    taken.add(name)
    return name


def _placeholder(graph: Graph, node: Node, taken: set[str], optional: bool) -> Node:
    """An input for a value computed outside. Inputs of the graph keep their parameter's name and their
    default, unless an input without a default follows."""
    target = node.target if node.op == "placeholder" else node.name
    target = free_name(target, taken)
    args = node.args if optional else ()
    with graph.with_origin(node):
        made = graph.create_node("placeholder", target, args, {}, node.name, node.type)
    made.meta = dict(node.meta)
    return made
