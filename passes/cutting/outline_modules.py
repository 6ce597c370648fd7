"""The program's modules: find the nodes that one call of a module made, and replace them by calls of
GraphModules; the inverse of ``inline_modules``.

In: a traced module, and ``"layers.*.attn"``, ``"Linear"`` or ``nn.Linear``. Out: one
:class:`SourcePartition` for each call, in the graph's order, like torch.fx's
``get_source_partitions``: the nodes to replace, to quantize or to look at as one piece.

A graph knows in which module a node was made, but not in which call of it. Calls of one module are
told apart as follows. A stretch of nodes that are adjacent in the graph's order (not counting
weights) is a call. If such a stretch does the same several times on the same weights, and some of it
is made in the module itself and not in one inside it, each repetition is a call. So ``fc(fc(x))``
gives two partitions. Two adjacent calls of a module that only calls others (``Sequential``), or has
no weights, remain one partition; a module that loops over its own weights gives several.

:func:`outline_modules` makes each of them a call. Before::

    linear: f32[B,8] = ops.linear(x, self.fc.weight, self.fc.bias)
    relu: f32[B,8] = ops.relu(linear)

After::

    fc: f32[B,8] = self.fc(x)
    relu: f32[B,8] = ops.relu(fc)

In: a GraphModule whose nodes know in which module they were made. Out: a GraphModule that calls
another one for each module of the program, nested as in the program. A module is outlined if its
nodes can run together, all its calls do the same, all weights that it reads are its own, and nobody
else reads those of its own weights that it does not read itself. If a pass has mixed its nodes with
others, they stay where they are, and the modules inside it are outlined separately. Numbered
containers (``ModuleList``, ``Sequential``) are not called; their items are.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fxlite.base.checked import checked
from fxlite.base.errors import ArgumentError, ParseError, did_you_mean
from fxlite.base.outside_text import is_name, is_number, syntax_tree
from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.base import as_module
from fxlite.passes.cutting.split_module import CallingModule, entangled
from fxlite.passes.cutting.subgraph import Region, bind_named_dims, build, cut, element_source
from fxlite.show.comparison.compare import find_difference
from fxlite.show.query.parser import path_key, path_pattern
from fxlite.show.summary import outer_modules


@dataclass
class SourcePartition:
    """One call of a module: its path and class, the nodes it made, and what goes in and out.

    ``input_nodes`` are values from outside that ``nodes`` read; ``params`` are the get_attr nodes that
    they read; ``output_nodes`` are those of ``nodes`` that are read outside. ``class_name`` is '' if
    no value was made in the module itself, as in most ``Sequential``. ``source`` is the source that
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

    A source is a path (``*`` is any name, ``**`` any number of names, "" the whole program), a
    class, or the name of a class. Raises ArgumentError for a source that names no module of the
    graph; the message lists the nearest names."""
    nodes = [n for n in gm.graph.nodes if n.op not in ("get_attr", "output")]
    origins = {node: _origin(gm, node) for node in nodes}
    classes: dict[tuple[str, str], None] = {o: None for o in origins.values() if o is not None}
    paths = {prefix for path, _ in classes for prefix in outer_modules(path)}
    wanted: dict[str, set[str]] = {}  # path of a module -> requested classes; "" stands for any class
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
    """The calls of each wanted source, by source. A source is a path, a class or a class name as in
    :func:`source_partitions`, or an op, each call of which is a partition. ``filter_fn`` must be true
    for all nodes of a partition. Sources without calls are left out. Raises ArgumentError for a graph
    without an owner."""
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
    """Path and class of the module that made a node; None for inputs. A leaf module is its own origin."""
    if node.op == "call_module":
        return node.target, type(gm.get_submodule(node.target)).__name__
    return None if node.scope is None else (node.scope.path, node.scope.class_name)


def _resolve(source: str | type, paths: set[str], classes: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The modules that a source names: pairs of a path and a class, where '' matches any class."""
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
    """The positions of the nodes of each call, told apart as the module's docstring says."""
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
    """What a node does and on which weights; equal for the same step of two calls."""
    weights = tuple(n.target for n in node.all_input_nodes if n.op == "get_attr")
    return node.op, node.target, weights, origin, repr(node.kwargs)


def _period(items: list[Any]) -> int:
    """Length of the shortest piece whose repetition gives the whole list, by the failure function of
    Knuth, Morris and Pratt (1977)."""
    border = [0] * len(items)  # for each prefix, the length of its longest proper suffix that is a prefix
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


# -- modules that are called -----------------------------------------------------------------------
Path = tuple[str, ...]
Origin = tuple[str, str]


@checked
def outline_modules(program: Any) -> GraphModule:
    """Replace the nodes of each module of the program by a call of a GraphModule, under the module's
    path and with its weights.

    ``passes.inline_modules`` flattens the result again. A named size that a module needs and that no
    argument has is passed in by an additional argument."""
    return _outlined(as_module(program), ())


def _outlined(gm: GraphModule, prefix: Path) -> GraphModule:
    """The same for a part of the program, the module at ``prefix``; paths are relative to it."""
    finder = _Finder(gm, prefix)
    assignment, children = finder.calls()
    if not assignment:
        return gm
    regions = _regions(gm.graph, assignment)
    made: dict[Path, GraphModule] = {}
    called: dict[Any, tuple[str, GraphModule]] = {}
    for key, region in regions.items():
        path, _ = key
        inner = path[len(prefix) :]
        if path not in made:
            flat = build(gm, region, path[-1], f"{'.'.join(inner)}.")
            made[path] = _outlined(flat, path)
            made[path].name = children[path]
        called[key] = ".".join(inner), made[path]
    return CallingModule(gm, assignment, regions, called).make()


def _regions(graph: Graph, assignment: Mapping[Node, Any]) -> dict[Any, Region]:
    """The regions to call. For modules that are called several times, inputs are in the order in
    which they are read, which is the same for all equal calls, and results are in the graph's order.
    For others, inputs are in the graph's order, and results in the order in which they are read,
    which is mostly the order in which the program returns them."""
    found: dict[Any, Region] = {}
    by_use = cut(graph, assignment)
    calls = Counter(path for path, _ in by_use)
    for key, region in by_use.items():
        found[key] = region.in_graph_order()
        if calls[key[0]] == 1:
            found[key].outputs = region.outputs
        else:
            found[key].inputs = region.inputs
        bind_named_dims(graph, found[key])
    return found


class _Finder:
    """Finds which nodes belong to which calls of which modules."""

    def __init__(self, gm: GraphModule, prefix: Path) -> None:
        self.gm, self.prefix = gm, prefix
        self.nodes = [n for n in gm.graph.nodes if n.op not in ("get_attr", "output")]
        self.origins: dict[Node, Origin | None] = dict.fromkeys(self.nodes)
        self.paths: dict[Node, Path] = {}
        for node in self.nodes:
            scope = (element_source(node) or node).scope
            if node.op.startswith("call_") and scope is not None:
                self.origins[node] = scope.path, scope.class_name
            parts = tuple(scope.path.split(".")) if node in self.origins and scope else ()
            is_path = all(is_number(part) or self.is_free(part) for part in parts)
            self.paths[node] = parts if is_path else ()
        found = reversed([o for o in self.origins.values() if o is not None and o[1]])
        self.class_names = dict(found)  # by path: the first class name found
        own = {path for path in self.paths.values() if path[: len(prefix)] == prefix}
        self.inside: dict[Path, set[str]] = {}  # path -> names of its attributes
        for path in own:
            for end in range(len(path)):
                self.inside.setdefault(path[:end], set()).add(path[end])
        self.own = own
        self.weights: dict[str, list[Node]] = {}  # by each prefix of their paths
        for weight in gm.graph.find_nodes(op="get_attr"):
            names = weight.target.split(".")
            for end in range(1, len(names)):
                self.weights.setdefault(".".join(names[:end]) + ".", []).append(weight)

    def is_free(self, name: str) -> bool:
        """Whether a GraphModule may have a module of this name as an attribute."""
        return is_name(name) and not hasattr(GraphModule, name) and name not in vars(self.gm)

    def calls(self) -> tuple[dict[Node, Any], dict[Path, str]]:
        """Each node's call, as a path and a number, and the class name of each module."""
        assignment: dict[Node, Any] = {}
        names: dict[Path, str] = {}
        waiting = self.below(self.prefix)
        while waiting:
            tried: dict[Node, Any] = {}
            again: list[Path] = []
            for path in waiting:
                calls = self.calls_of(path)
                if calls is None:
                    again += self.below(path)
                    continue
                names[path] = self.class_name(path)
                for number, call in enumerate(calls):
                    tried |= dict.fromkeys(call, (path, number))
            while mixed := entangled(self.gm, assignment | tried):
                # The calls accepted before were not mixed up with others; if some are now, the call
                # that is being tried is the cause.
                bad = {key[0] for key in mixed} & {key[0] for key in tried.values()}
                tried = {n: key for n, key in tried.items() if key[0] not in bad}
                again += [inner for path in sorted(bad) for inner in self.below(path)]
            assignment |= tried
            waiting = again
        return assignment, names

    def below(self, path: Path) -> list[Path]:
        """The modules inside one; a numbered container is replaced by its items."""
        found: list[Path] = []
        for name in self.inside.get(path, ()):
            child = (*path, name)
            within = self.inside.get(child, set())
            if child not in self.own and within and all(map(is_number, within)):
                found += self.below(child)
            else:
                found.append(child)
        return found

    def class_name(self, path: Path) -> str:
        """The class name of the module, or a name derived from its path."""
        known = self.class_names.get(".".join(path))
        if known is not None:
            return known
        words = [part for part in path if not is_number(part)]
        return words[-1] if words else "Part"

    def calls_of(self, path: Path) -> list[list[Node]] | None:
        """The nodes of each call of a module; None if it cannot be outlined."""
        members = [i for i, n in enumerate(self.nodes) if self.paths[n][: len(path)] == path]
        calls = calls_in(members, self.nodes, ".".join(path), self.origins)
        found = [[self.nodes[i] for i in call] for call in calls]
        inner = ".".join(path[len(self.prefix) :]) + "."
        read = (n for call in found for node in call for n in (node, *node.all_input_nodes))
        held = {n.target for n in read if n.op in ("get_attr", "call_module")}
        if not all(target.startswith(inner) for target in held):
            return None
        if any(
            weight.target not in held and self.is_read_outside(weight, path) for weight in self.weights.get(inner, ())
        ):
            return None  # a weight of it that it does not read itself is read elsewhere
        return found if len(found) == 1 or self.are_alike(found, inner) else None

    def is_read_outside(self, weight: Node, path: Path) -> bool:
        """Whether some node outside a module reads a weight."""
        return any(self.paths.get(n, ())[: len(path)] != path for n in weight.users)

    def are_alike(self, calls: Iterable[list[Node]], inner: str) -> bool:
        """Whether the calls do the same with their arguments."""
        assignment = {node: i for i, call in enumerate(calls) for node in call}
        regions = cut(self.gm.graph, assignment)
        graphs: list[Graph] = []
        for by_use in regions.values():
            region = replace(by_use.in_graph_order(), inputs=by_use.inputs)
            bind_named_dims(self.gm.graph, region)
            made = build(self.gm, region, "call", inner).graph
            for number, node in enumerate(made.placeholders):
                node.target = f"input_{number}"
            graphs.append(made)
        return all(find_difference(graphs[0], other) is None for other in graphs[1:])


# -- constants -------------------------------------------------------------------------------------
_CONSTANT = re.compile(r"constant_\d+")  # the tracer's names for arrays that no module holds
NUMBER = "fxlite.number"  # in the meta of a constant that may be written as a number


def with_own_constants(program: GraphModule) -> GraphModule:
    """A copy in which the constants of a trace belong to the modules that read them, so that these
    modules can be outlined, and in which equal constants are one. :data:`NUMBER` is noted on a constant if
    all its readers are elementwise ops with another operand, for which a Python number means the same."""
    gm = program.copy()
    taken: dict[str, set[str]] = {}
    reads = gm.graph.find_nodes(op="get_attr")
    for node in reads:
        parent, _, name = node.target.rpartition(".")
        taken.setdefault(parent, set()).add(name)
    order = {node: number for number, node in enumerate(gm.graph.nodes)}
    read_by: list[tuple[Node, str, list[Node]]] = []
    for node in reads:
        if not _CONSTANT.fullmatch(node.target):
            continue
        readers: dict[str, list[Node]] = {}
        for user in node.users:
            path = user.scope.path if user.scope is not None else ""
            readers.setdefault(path, []).append(user)
        read_by += [(node, path, users) for path, users in readers.items()]
        if not readers:
            gm.graph.erase_node(node)
    # ordered by where they are read, because a constant that modules share stands before the first of them
    for node, path, users in sorted(read_by, key=lambda read: min(map(order.__getitem__, read[2]))):
        own, value = node, gm.get_attribute(node.target)
        if path:
            target = f"{path}.{_free_name(users[0], node, taken.setdefault(path, set()))}"
            gm.set_attribute(target, value)
            with gm.graph.inserting_before(node), gm.graph.with_origin(users[0]):
                own = gm.graph.get_attr(target, node.type)
            for user in users:
                user.replace_input_with(node, own)
        if value.ndim == 0 and value.dtype.isbuiltin == 1 and np.isfinite(value):
            own.meta[NUMBER] = all(map(_is_elementwise, users))
        if not node.users:
            gm.graph.erase_node(node)
    return gm


def _is_elementwise(node: Node) -> bool:
    is_call = node.op == "call_function" and node.target.kind == "pointwise"
    return is_call and any(n.op != "get_attr" for n in node.all_input_nodes)


def _free_name(user: Node, constant: Node, taken: set[str]) -> str:
    """The program's name for a constant, ``mask`` in ``np.where(self.mask, x, 0)``, if it can be
    found; otherwise ``constant_0``, ..."""
    wish, count = "constant", 0
    try:
        found = syntax_tree(user.loc.expression.strip()) if user.loc is not None else None
    except (SyntaxError, ParseError):
        found = None
    if isinstance(found, ast.Expression) and isinstance(found.body, ast.Call):
        given = dict(zip(user.args, found.body.args)).get(constant)
        if isinstance(given, ast.Attribute) and len(found.body.args) == len(user.args):
            wish = given.attr
    name = wish if wish != "constant" and is_name(wish) else f"{wish}_{count}"
    while name in taken:
        count += 1
        name = f"{wish}_{count}"
    taken.add(name)
    return name
