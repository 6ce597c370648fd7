"""Replace layers by others: by module, by class, or where a query finds nodes.

In: a module, places in it, and a layer (a Module, a GraphModule, a function) that takes the values
that the places read. Out: a module with the layer's nodes at the places, under the path of the
replaced ones: its weights are at ``layers.0.norm.weight`` if those of the old layer were. This is what
torch.fx's users do with ``replace_submodule`` and a second trace, for layers whose nodes are in the
graph.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fxlite import ops
from fxlite.base.errors import ArgumentError, DTypeError, GraphError, QueryError, ShapeError, expect, number_of
from fxlite.base.location import Scope
from fxlite.graph.graph import Graph, Node, map_nodes
from fxlite.graph.graph_module import GraphModule
from fxlite.nn.module import Module
from fxlite.passes.base import Pass, unique_attribute
from fxlite.passes.cutting.inline_modules import inline
from fxlite.passes.cutting.outline_modules import source_partitions
from fxlite.passes.cutting.subgraph import cut, in_order, with_elements
from fxlite.passes.rewrite.matcher import same_arrays
from fxlite.passes.surgery.places import nodes_at
from fxlite.show.comparison.compare import types_equal
from fxlite.show.query.search import QueryMatch
from fxlite.tracing.symbolic_trace import symbolic_trace
from fxlite.types.shapes import as_tuple
from fxlite.types.tensor_type import TensorType

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Place:
    """A place for a new layer: one call of a module, or nodes that a query found.

    ``path`` is where the weights of the new layer go. ``inputs`` are the values that the nodes read
    from outside, in that order, which are also the layer's arguments; ``outputs`` are the values that
    are read outside, which the layer must return. ``weights`` are the arrays that the nodes read, by
    their path below ``path`` (or by their full path if they are elsewhere)."""

    path: str
    class_name: str
    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    weights: Mapping[str, Array]

    def __str__(self) -> str:
        return f"{self.path} ({self.class_name})" if self.class_name else self.path


@functools.partial(Pass, name="swap", exactness="changes")
def swap(
    gm: GraphModule, where: Any, layer: Callable[..., Any] | None = None, *, make: Callable[[Place], Any] | None = None
) -> None:
    """Replace layers by another layer.

    ``where`` is the path of a module, in which ``*`` is any name (``"layers.*.norm"``), a class or
    its name (``nn.ReLU``), or nodes: a query, a match of one (all of its nodes together are the
    place), a node, or several of all these. ``layer`` is a Module, a GraphModule or a function. Its
    arguments are the values that the place reads, in the order in which it reads them, and it must
    return as many results of the same types. Instead of it, ``make`` is a function of a
    :class:`Place` that returns the layer for it; if the layer has weights, each place needs its own.
    Calls of one module get the same layer.

    Weights of the new layer at ``fc`` are named as the layer names them, ``fc.weight``; if other nodes
    still read a weight below that path, they go to ``fc_1.weight``. Weights that are no longer read
    are dropped. The layer runs in the mode (training or not) of ``gm``.

    Raises ArgumentError if nothing is found, if places overlap, and for a layer with another number
    of arguments or results; ShapeError and DTypeError if the types of its results differ from those
    that it replaces."""
    if (layer is None) == (make is None):
        raise ArgumentError("give either layer=, or make=, a function that makes one for a place")
    if isinstance(layer, type):
        raise ArgumentError(
            f"{layer.__name__} is a class: give a layer, {layer.__name__}(...), or "
            f"make=lambda place: {layer.__name__}(...)"
        )
    by_path: dict[str, list[Place]] = {}
    for place in _places(gm, where):
        by_path.setdefault(place.path, []).append(place)
    if layer is not None and len(by_path) > 1 and isinstance(layer, Module) and layer.state_dict():
        raise ArgumentError(
            f"{_name(layer)} has weights and would be used at {', '.join(list(by_path)[:4])}: give "
            "make=, a function that makes a layer for each of them"
        )
    for path, calls in by_path.items():
        calls = [_reading_now(gm, place) for place in calls]
        own = layer if make is None else make(calls[0])
        expect(own, Callable, "the layer", "give a Module, a GraphModule or a function")
        inside = {node for place in calls for node in place.nodes}
        free = path
        if any(
            n.target.startswith(f"{path}.") and not inside.issuperset(n.users)
            for n in gm.graph.find_nodes(op="get_attr")
        ):
            free = unique_attribute(gm, path)
        _replace(gm, free, calls, own)
    gm.delete_all_unused_submodules()


# -- where -----------------------------------------------------------------------------------------
def _places(gm: GraphModule, where: Any) -> list[Place]:
    """The places, in the graph's order. Raises ArgumentError."""
    is_several = isinstance(where, Iterable) and not isinstance(where, (str, type, QueryMatch))
    found = [group for part in (where if is_several else [where]) for group in _groups(gm, part)]
    if not found:
        raise ArgumentError("where= names no place: it is empty")
    taken: set[Node] = set()
    for nodes, _ in found:
        for node in nodes:
            if not node.op.startswith("call_"):
                raise ArgumentError(f"{node.describe()} is not a call, so no layer can take its place")
            if node in taken:
                raise ArgumentError(f"{node.describe()} is in two of the places of where=")
            taken.add(node)
    order = {n: i for i, n in enumerate(gm.graph.nodes)}
    found.sort(key=lambda group: order[group[0][0]])
    return [_place(gm, nodes, path) for nodes, path in found]


def _groups(gm: GraphModule, where: Any) -> Iterator[tuple[list[Node], str]]:
    """The nodes of each place, and, if known, the path of the module that they are a call of."""
    graph = gm.graph
    unknown: ArgumentError | None = None
    if where == "":
        raise ArgumentError("the program as a whole is not a place in it; name modules or nodes")
    if isinstance(where, (str, type)):
        try:
            for each in source_partitions(gm, where):
                yield with_elements(graph, each.nodes), each.path
            return
        except ArgumentError as error:
            unknown = error
    if unknown is not None and isinstance(where, type):
        raise unknown
    matches: list[Any] = [where]
    if isinstance(where, str):
        with contextlib.suppress(QueryError):
            matches = graph.find(where) or [where]
    for match in matches:
        nodes = match.nodes if isinstance(match, QueryMatch) else match
        try:
            found = nodes_at(gm, nodes)
        except (ArgumentError, QueryError) as error:
            raise (unknown or error) from None
        yield with_elements(graph, found) or found, ""


def _place(gm: GraphModule, nodes: list[Node], path: str) -> Place:
    graph = gm.graph
    region = cut(graph, dict.fromkeys(nodes, 0))[0]
    common = path or _common({n.module_path for n in nodes})
    calls = source_partitions(gm, common) if common else []
    whole = next((c for c in calls if set(with_elements(graph, c.nodes)) == set(nodes)), None)
    reads = in_order(graph, (u for n in nodes for u in n.all_input_nodes if u.op == "get_attr"))
    if whole is None:
        common = _path_of_weights(graph, reads, nodes) or unique_attribute(
            gm, f"{common}.{nodes[-1].name}" if common else nodes[-1].name
        )
    weights = {n.target.removeprefix(f"{common}."): gm.get_attribute(n.target) for n in reads}
    return Place(
        common,
        whole.class_name if whole is not None else "",
        tuple(nodes),
        tuple(region.inputs),
        tuple(region.in_graph_order().outputs),
        weights,
    )


def _reading_now(gm: GraphModule, place: Place) -> Place:
    """The place with the values that it reads by now, after other layers were replaced."""
    return replace(place, inputs=tuple(cut(gm.graph, dict.fromkeys(place.nodes, 0))[0].inputs))


def _path_of_weights(graph: Graph, reads: list[Node], nodes: list[Node]) -> str:
    """The module whose weights only these nodes read; "" if there is none."""
    paths = {n.target.rpartition(".")[0] for n in reads}
    path = paths.pop() if len(paths) == 1 else ""
    others = (n for n in graph.find_nodes(op="get_attr") if n.target.startswith(f"{path}."))
    return path if all(set(nodes).issuperset(n.users) for n in others) else ""


def _common(paths: Iterable[str]) -> str:
    """The innermost module that contains or equals all of these."""
    first, *others = (path.split(".") for path in paths)
    count = 0
    while count < len(first) and all(p[: count + 1] == first[: count + 1] for p in others):
        count += 1
    return ".".join(first[:count])


# -- what ------------------------------------------------------------------------------------------
def _name(layer: Any) -> str:
    return getattr(layer, "__name__", None) or type(layer).__name__


@contextlib.contextmanager
def _in_mode(layer: Any, training: bool) -> Iterator[None]:
    """A context in which the layer is in training mode or not."""
    modules = list(layer.modules()) if isinstance(layer, Module) else []
    before = [(module, module.training) for module in modules]
    for module in modules:
        module.training = training
    try:
        yield
    finally:
        for module, mode in before:
            module.training = mode


def _traced(gm: GraphModule, place: Place, layer: Any) -> GraphModule:
    """The layer's graph for the types that the place reads. Raises ArgumentError, ShapeError or DTypeError."""
    forward = layer.forward if isinstance(layer, Module) else layer
    parameters = list(inspect.signature(forward).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = sum(p.default is p.empty for p in positional)
    takes_any = any(p.kind == p.VAR_POSITIONAL for p in parameters)
    count = len(place.inputs)
    if count < needed or (count > len(positional) and not takes_any):
        read = ", ".join(n.name for n in place.inputs) or "nothing"
        raise ArgumentError(
            f"{_name(layer)}{inspect.signature(forward)} takes {number_of(needed, 'value')}; {place}, which it "
            f"is to replace, reads {count}: {read}. Give a function that takes these values and calls it"
        )

    types = [n.type for n in place.inputs]
    is_typed = all(isinstance(type, TensorType) for type in types)
    with _in_mode(layer, gm.training):
        made = symbolic_trace(layer, *types) if is_typed else symbolic_trace(layer)
    if made.written_inputs():
        raise ArgumentError(f"{_name(layer)} writes into {', '.join(made.written_inputs())}")
    result = made.graph.output_node().args[0]
    results = as_tuple(result)
    wanted = ", ".join(f"{n.name} {n.type}" for n in place.outputs)
    if len(results) != len(place.outputs) or not all(isinstance(r, Node) for r in results):
        raise ArgumentError(
            f"{_name(layer)} returns {number_of(len(results), 'value')}; of {place}, which it should replace, "
            f"{len(place.outputs)} are read: {wanted}"
        )
    for given, old in zip(results, place.outputs):
        if is_typed and old.type is not None and not types_equal(given.type, old.type):
            dtypes = [getattr(n.type, "dtype", None) for n in (given, old)]
            kind = ShapeError if dtypes[0] == dtypes[1] else DTypeError
            reads = ", ".join(str(n.type) for n in place.inputs)
            raise kind(
                f"{_name(layer)} makes {given.type} of {reads}; it should replace {place}, which "
                f"gives {old.type}: {old.describe()}"
            )
    return made


# -- in place --------------------------------------------------------------------------------------
def _replace(gm: GraphModule, path: str, places: list[Place], layer: Any) -> None:
    """Put a layer at a path, for all calls of the former one. Raises ArgumentError if something that
    it would read depends on something that it would compute."""
    graph = gm.graph
    children = [_traced(gm, place, layer) for place in places]
    calls = []
    for place, child in zip(places, children):
        inputs = _reading_now(gm, place).inputs
        with graph.inserting_before(place.nodes[0]), graph.with_origin(place.outputs[0]):
            inner = child.graph.output_node().args[0]
            type = map_nodes(inner, lambda n: n.type)
            call = graph.create_node("call_module", path, inputs, {}, None, type)
            elements = [call]
            if isinstance(inner, (tuple, list)):
                elements = [graph.call_function(ops.getitem, (call, i)) for i in range(len(inner))]
        for old, new in zip(place.outputs, elements):
            old.replace_all_uses_with(new)
        calls.append(call)
    old_nodes = [n for place in places for n in place.nodes]
    weights = dict.fromkeys(u for n in old_nodes for u in n.all_input_nodes if u.op == "get_attr")
    for node in reversed(old_nodes):
        graph.erase_node(node)
    for node in weights:
        if not node.users:
            graph.erase_node(node)
    try:
        graph.topological_sort()
    except GraphError as error:
        listed = "; ".join(str(place) for place in places)
        raise ArgumentError(
            f"{listed}: the nodes between them read some of them and are read by others, so that no "
            f"single layer can take their place"
        ) from error
    held: dict[str, Any] = {}
    for child, call in zip(children, calls):
        own = {n.target: child.get_attribute(n.target) for n in _reads(child)}
        if not all(same_arrays(own[k], held[k]) for k in own.keys() & held.keys()):
            call.target = unique_attribute(gm, path)  # its constants have other sizes
        held = own | held
        gm.set_attribute(call.target, child)
        for old, new in inline(gm, call, prefix=True).items():
            if isinstance(new, Node) and old.op != "placeholder":
                new.scope = _scope(old.scope, path, layer)
        inner = f"{call.target}."
        kept = {n.target: gm.get_attribute(n.target) for n in _reads(gm) if n.target.startswith(inner)}
        gm.delete_submodule(call.target)
        gm.set_attributes(kept)


def _reads(gm: GraphModule) -> list[Node]:
    """The nodes that read something from the module."""
    return [n for n in gm.graph.nodes if n.op in ("get_attr", "call_module")]


def _scope(inner: Scope | None, path: str, layer: Any) -> Scope:
    """The scope of a node of the layer: the module at the path, or one inside it."""
    if inner is None or not inner.path:
        return Scope(path, inner.class_name if inner is not None else _name(layer))
    return Scope(f"{path}.{inner.path}", inner.class_name)
