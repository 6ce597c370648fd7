"""Partitions by source: the nodes that one call of a module made.

In: a traced module, and ``"layers.*.attn"``, ``"Linear"`` or ``nn.Linear``. Out: one
:class:`SourcePartition` for each call, in the graph's order, as torch.fx's
``get_source_partitions`` gives them: what to replace, to quantize or to look at as one piece.

A graph knows in which module a node was made, not in which call of it. Calls of one module are told
apart in this way: a call is a stretch of nodes that stand together in the graph's order (weights
apart); and where such a stretch does the same on the same weights several times over, with some of
it made in the module itself and not in one inside it, each time is a call. So ``fc(fc(x))`` is two
partitions. What stays one are two calls, one right behind the other, of a module that only calls
others (``Sequential``) or has no weights; a module that loops over its own weights is several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from fxlite.base.checked import checked
from fxlite.base.errors import ArgumentError, did_you_mean
from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule
from fxlite.show.query.parser import path_key, path_pattern
from fxlite.show.summary import outer_modules


@dataclass
class SourcePartition:
    """One call of a module: its path and class, the nodes it made, and what goes in and out.

    ``input_nodes`` are values from outside that ``nodes`` read, ``params`` the get_attr nodes among
    what they read, ``output_nodes`` those of ``nodes`` that are read outside. ``class_name`` is ''
    where no value was made in the module itself, as in most ``Sequential``. ``source`` is what
    was asked for, or the class."""

    nodes: list[Node]
    source: Any
    input_nodes: list[Node] = field(default_factory=list)
    output_nodes: list[Node] = field(default_factory=list)
    params: list[Node] = field(default_factory=list)
    path: str = ""
    class_name: str = ""

    def __repr__(self) -> str:
        names = ", ".join(node.name for node in self.nodes[:4])
        more = f", … {len(self.nodes)} nodes" if len(self.nodes) > 4 else ""
        title = f"{self.path} ({self.class_name})" if self.class_name else self.path
        return f"SourcePartition({title}: {names}{more})"


@checked
def source_partitions(gm: GraphModule, *sources: str | type) -> list[SourcePartition]:
    """The calls of the modules that ``sources`` name, in the graph's order of their first nodes.

    A source is a path (``*`` is any name, ``**`` any number of them, "" the whole), a class, or
    the name of one. Raises ArgumentError for a source that names no module of the graph, with the
    nearest names."""
    nodes = [n for n in gm.graph.nodes if n.op not in ("get_attr", "output")]
    origins = {node: _origin(gm, node) for node in nodes}
    classes: dict[tuple[str, str], None] = {o: None for o in origins.values() if o is not None}
    paths = {prefix for path, _ in classes for prefix in outer_modules(path)}
    wanted: dict[str, set[str]] = {}  # path of a module -> classes that were asked for, "": any
    for source in sources:
        if not isinstance(source, str | type):
            raise ArgumentError(
                f"a source is a path or a class, not {source!r}; give several of them one after another"
            )
        for path, name in _resolve(source, paths, classes):
            wanted.setdefault(path, set()).add(name)
    wanted = {path: {""} if "" in names else names for path, names in wanted.items()}
    found: list[tuple[int, SourcePartition]] = []
    for (path, name), members in _members(nodes, origins, wanted).items():
        own = name or next((c for p, c in classes if p == path), "")
        for call in calls_in(members, nodes, path, origins):
            found.append((call[0], _partition(own, [nodes[i] for i in call], path, own)))
    return [partition for _, partition in sorted(found, key=lambda pair: pair[0])]


@checked
def get_source_partitions(
    graph: Graph, wanted_sources: Iterable[Any], filter_fn: Callable[[Node], bool] | None = None
) -> dict[Any, list[SourcePartition]]:
    """The calls of each wanted source that there are: of a path, class or class name as in
    :func:`source_partitions`, or of an op, each call of which is a
    partition. ``filter_fn`` must be true for all nodes of a
    partition. Raises ArgumentError for a graph without an owner."""
    gm = graph.owning_module
    if not isinstance(gm, GraphModule):
        raise ArgumentError("the graph belongs to no GraphModule, which knows leaf modules")
    found: dict[Any, list[SourcePartition]] = {}
    for source in wanted_sources:
        if isinstance(source, str | type):
            try:
                made = source_partitions(gm, source)
            except ArgumentError:
                continue
        else:
            nodes = graph.find_nodes(op="call_function", target=source)
            made = [_partition(source, [node], node.module_path, "") for node in nodes]
        for partition in made:
            partition.source = source
        if made:
            found[source] = [p for p in made if filter_fn is None or all(map(filter_fn, p.nodes))]
    return found


def check_subgraphs_connected(subgraph1: SourcePartition, subgraph2: SourcePartition) -> bool:
    """Whether a node of ``subgraph2`` reads one of ``subgraph1``."""
    inside = set(subgraph1.nodes)
    return any(used in inside for node in subgraph2.nodes for used in node.all_input_nodes)


def _origin(gm: GraphModule, node: Node) -> tuple[str, str] | None:
    """Path and class of the module that made a node; None for inputs. A leaf module is its own."""
    if node.op == "call_module":
        return node.target, type(gm.get_submodule(node.target)).__name__
    return None if node.scope is None else (node.scope.path, node.scope.class_name)


def _resolve(source: str | type, paths: set[str], classes: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The modules that a source names: pairs of a path and a class, '' where any will do."""
    if isinstance(source, str):
        pattern = path_pattern(source) if source else path_pattern("**")
        matching = [p for p in paths if (pattern.fullmatch(path_key(p)) if source else p == "")]
        if matching:
            return [(path, "") for path in matching]
    name = source if isinstance(source, str) else source.__name__
    matching_classes = [(path, own) for path, own in classes if own == name]
    if not matching_classes:
        known = dict.fromkeys((*(c for _, c in classes), *sorted(p for p in paths if p)))
        hint = did_you_mean(name.replace("*", ""), known)
        if not hint and known:
            hint = f"; it has {', '.join(list(known)[:12])}{', …' if len(known) > 12 else ''}"
        raise ArgumentError(f"the graph has no value made in a module {name!r}{hint}")
    return matching_classes


def _members(
    nodes: list[Node], origins: dict[Node, tuple[str, str] | None], wanted: dict[str, set[str]]
) -> dict[tuple[str, str], list[int]]:
    """Positions of the nodes made in each wanted module or inside it."""
    members: dict[tuple[str, str], list[int]] = {}
    modules: dict[tuple[str, str], list[tuple[str, str]]] = {}  # origin -> wanted modules around it
    for position, node in enumerate(nodes):
        origin = origins[node]
        if origin is None:
            continue
        if origin not in modules:
            path, own = origin
            modules[origin] = [
                (prefix, name)
                for prefix in outer_modules(path)
                for name in wanted.get(prefix, ())
                if not name or prefix != path or name == own
            ]
        for module in modules[origin]:
            members.setdefault(module, []).append(position)
    return members


def calls_in(
    members: list[int], nodes: list[Node], path: str, origins: dict[Node, tuple[str, str] | None]
) -> list[list[int]]:
    """The positions of each call; see the module's text."""
    stretches: list[list[int]] = []
    for position in members:
        if stretches and stretches[-1][-1] == position - 1:
            stretches[-1].append(position)
        else:
            stretches.append([position])
    calls: list[list[int]] = []
    for stretch in stretches:
        period = _period([_signature(nodes[i], origins[nodes[i]]) for i in stretch])
        once = [nodes[i] for i in stretch[:period]]
        has_weights = any(
            node.op == "call_module" or any(n.op == "get_attr" for n in node.all_input_nodes) for node in once
        )
        is_own = any(origin is not None and origin[0] == path for origin in map(origins.get, once))
        size = period if has_weights and is_own else len(stretch)
        calls.extend(stretch[i : i + size] for i in range(0, len(stretch), size))
    return calls


def _signature(node: Node, origin: tuple[str, str] | None) -> Any:
    """What a node does and on which weights: equal for the same step of two calls."""
    weights = tuple(n.target for n in node.all_input_nodes if n.op == "get_attr")
    return node.op, node.target, weights, origin, repr(node.kwargs)


def _period(items: list[Any]) -> int:
    """Length of the shortest piece that a list repeats from beginning to end, by the failure
    function of Knuth, Morris and Pratt (1977)."""
    border = [0] * len(items)  # of each beginning: length of the longest end that is a beginning
    length = 0
    for position in range(1, len(items)):
        while length and items[position] != items[length]:
            length = border[length - 1]
        length += items[position] == items[length]
        border[position] = length
    period = len(items) - border[-1]
    return period if len(items) % period == 0 else len(items)


def _partition(source: Any, nodes: list[Node], path: str, class_name: str) -> SourcePartition:
    inside = set(nodes)
    read = dict.fromkeys(used for node in nodes for used in node.all_input_nodes)
    outside = [node for node in read if node not in inside]
    return SourcePartition(
        nodes,
        source,
        [node for node in outside if node.op != "get_attr"],
        [node for node in nodes if any(user not in inside for user in node.users)],
        [node for node in outside if node.op == "get_attr"],
        path,
        class_name,
    )
