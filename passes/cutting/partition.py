"""Partitions: groups of nodes that a back end, say, can run as a whole, and the nodes that one call
of a module made.

By support:

In: a GraphModule and a predicate on nodes. Out: connected groups of supported nodes such that no
group depends on itself through nodes outside of it; :func:`fuse_partitions` makes a submodule of
each. What torch.fx calls CapabilityBasedPartitioner.

How, in time near-linear in the graph:

1. *Levels.* A node's level is the most changes from a supported to an unsupported node on any path
   that leads to it. Levels never fall along an edge, and rise where a path leaves a group; hence
   supported neighbours of one level may be united without making a circle. This one walk (with
   union-find) makes most groups.
2. *Merging.* Two neighbouring groups A -> B of different levels may be one unless another path
   leads from A to B. All groups and unsupported nodes stand in a topological order, which is kept
   true as in D. J. Pearce and P. H. J. Kelly, "A dynamic topological sort algorithm for directed
   acyclic graphs", ACM JEA 11 (2006): only what stands between A and B is searched, forwards from A
   and backwards from B, and only that is given new places. This is repeated until no neighbours can
   be merged. The searches together take at most ``EFFORT`` steps for each node and edge of the
   graph; where that does not suffice (which takes thousands of groups entangled across the whole
   graph) groups stay smaller than they could be, but right.

By the path or class of a module:

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
from dataclasses import dataclass
from typing import Any

from fxlite.base.checked import checked
from fxlite.base.errors import ArgumentError, did_you_mean
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.cutting.split_module import dependencies, split_module
from fxlite.passes.cutting.subgraph import element_source
from fxlite.show.query.parser import path_key, path_pattern
from fxlite.show.summary import outer_modules

#: Steps of searching, for each node and edge of the graph.
EFFORT = 16


@dataclass(frozen=True)
class Partition:
    """Supported nodes, in graph order, that may become one submodule."""

    id: int
    nodes: tuple[Node, ...]

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        return f"Partition({self.id}: {', '.join(n.name for n in self.nodes)})"


@checked
def partition(
    gm: GraphModule, is_supported: Callable[[Node], bool], min_size: int = 1
) -> list[Partition]:
    """Groups of connected nodes for which ``is_supported(node)`` is true, in order of their first
    nodes; no two neighbouring groups could be one group without a circle of dependencies.

    The predicate is asked for every call; elements of a call with several results go with it, and
    weights need not be supported. Groups of fewer than ``min_size`` nodes are left out."""
    calls = [n for n in gm.graph.nodes if n.op.startswith("call_")]
    sources = {n: element_source(n) for n in calls}
    heads = [n for n in calls if sources[n] is None]
    index = {n: i for i, n in enumerate(heads)}
    for node in calls:
        index[node] = index[sources[node] or node]
    edges = {(index[a], index[b]) for a, b in dependencies(gm) if index[a] != index[b]}
    group_of = _Groups([is_supported(n) for n in heads], sorted(edges)).run()
    members: dict[int, list[Node]] = {}
    for node in calls:
        group = group_of[index[node]]
        if group is not None:
            members.setdefault(group, []).append(node)
    sizes = {g: sum(sources[n] is None for n in nodes) for g, nodes in members.items()}
    large = [tuple(nodes) for g, nodes in members.items() if sizes[g] >= min_size]
    return [Partition(i, nodes) for i, nodes in enumerate(large)]


@checked
def fuse_partitions(gm: GraphModule, partitions: Iterable[Partition]) -> GraphModule:
    """``gm`` with a submodule ``submod_ID`` for each partition; all other nodes stay.

    Raises ArgumentError for partitions of another graph, GraphError where they depend on each other
    in a circle (those of :func:`partition` do not)."""
    ids = {node: p.id for p in partitions for node in p.nodes}
    for node in ids:
        if node.graph is not gm.graph:
            raise ArgumentError(f"{node.name} belongs to another graph; partition this one")
    return split_module(gm, ids.get)


class _Groups:
    """Merges items 0, 1, ..., of which each comes after those it depends on."""

    def __init__(self, supported: list[bool], edges: list[tuple[int, int]]) -> None:
        self.supported = supported
        self.parent = list(range(len(supported)))
        self.before: list[set[int]] = [set() for _ in supported]
        self.after: list[set[int]] = [set() for _ in supported]
        for a, b in edges:
            self.before[b].add(a)
            self.after[a].add(b)
        self.place: dict[int, int] = {}  # of the items that are left: a topological order
        self.effort = EFFORT * (len(supported) + len(edges))

    def run(self) -> list[int | None]:
        """The group of each item; None for unsupported ones."""
        self._unite_levels()
        self._sort()
        merged = True
        while merged and self.effort > 0:
            merged = self._sweep()
        return [self._find(i) if ok else None for i, ok in enumerate(self.supported)]

    # -- union-find ----------------------------------------------------------------------------
    def _find(self, item: int) -> int:
        while self.parent[item] != item:
            self.parent[item] = self.parent[self.parent[item]]
            item = self.parent[item]
        return item

    def _union(self, a: int, b: int) -> int:
        """One item for two; the larger one takes the edges of the smaller."""
        size = [len(self.before[i]) + len(self.after[i]) for i in (a, b)]
        if size[0] < size[1]:
            a, b = b, a
        self.parent[b] = a
        for mine, other in ((self.before, self.after), (self.after, self.before)):
            for neighbour in mine[b]:
                other[neighbour].discard(b)
                if neighbour != a:
                    other[neighbour].add(a)
                    mine[a].add(neighbour)
            mine[b] = set()
        self.place.pop(b, None)
        return a

    # -- 1: levels -----------------------------------------------------------------------------
    def _unite_levels(self) -> None:
        level = [0] * len(self.supported)
        pairs: list[tuple[int, int]] = []
        for item, ok in enumerate(self.supported):
            for used in self.before[item]:
                left = self.supported[used] and not ok
                level[item] = max(level[item], level[used] + left)
            if ok:
                pairs += [(u, item) for u in self.before[item] if self.supported[u]]
        for a, b in pairs:
            if level[a] == level[b] and self._find(a) != self._find(b):
                self._union(self._find(a), self._find(b))

    def _sort(self) -> None:
        """Places in a topological order (Kahn)."""
        items = [i for i in range(len(self.parent)) if self.parent[i] == i]
        waiting = {i: len(self.before[i]) for i in items}
        ready = [i for i in items if not waiting[i]]
        while ready:
            item = ready.pop()
            self.place[item] = len(self.place)
            for reader in self.after[item]:
                waiting[reader] -= 1
                if not waiting[reader]:
                    ready.append(reader)

    # -- 2: merging neighbours -----------------------------------------------------------------
    def _sweep(self) -> bool:
        """Try to merge each group with those it reads, the nearest first. True if any merged."""
        merged = False
        for item in sorted(self.place, key=self.place.__getitem__):
            group = self._find(item)
            if not self.supported[group]:
                continue
            near = [i for i in self.before[group] if self.supported[i]]
            self.effort -= 1 + len(near)
            for other in sorted(near, key=self.place.__getitem__, reverse=True):
                found = self._find(other)
                if found != group and self._merge(found, group):
                    group = self._find(group)
                    merged = True
        return merged

    def _merge(self, a: int, b: int) -> bool:
        """Merge ``a`` and its reader ``b`` unless another path leads from ``a`` to ``b``."""
        low, high = self.place[a], self.place[b]

        def search_forwards() -> set[int] | None:
            return self._reached(a, b, self.after, lambda place: place < high)

        def search_backwards() -> set[int] | None:
            return self._reached(b, a, self.before, lambda place: place > low)

        forwards_first = len(self.after[a]) <= len(self.before[b])  # likely the cheaper side
        if forwards_first:
            forwards = search_forwards()
            backwards = search_backwards() if forwards else set()
        else:
            backwards = search_backwards()
            forwards = search_forwards() if backwards else set()
        if forwards is None or backwards is None:
            return False
        if forwards and backwards:  # what leads to b, then the new group, then what a leads to
            ordered = [sorted(s, key=self.place.__getitem__) for s in (backwards, forwards)]
            places = sorted(self.place[i] for i in (a, b, *backwards, *forwards))
            self.place |= dict(zip(ordered[0], places))
            self.place |= dict(zip(ordered[1], places[len(backwards) + 2 :]))
            middle = places[len(backwards)]
        elif backwards or (forwards_first and not forwards):
            middle = high  # nothing that a leads to stands between
        else:
            middle = low  # nothing that leads to b stands between
        self.place[self._union(a, b)] = middle
        return True

    def _reached(
        self, start: int, end: int, edges: list[set[int]], between: Callable[[int], bool]
    ) -> set[int] | None:
        """What ``start`` leads to between it and ``end``; None if that leads to ``end`` (or the
        effort is used up)."""
        reached: set[int] = set()
        work = [start]
        while work:
            item = work.pop()
            for neighbour in edges[item]:
                self.effort -= 1
                if self.effort < 0 and len(edges[start]) > 1:
                    return None
                if neighbour == end:
                    if item != start:
                        return None
                elif neighbour not in reached and between(self.place[neighbour]):
                    reached.add(neighbour)
                    work.append(neighbour)
        return reached


# -- by source -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class SourcePartition:
    """One call of a module: its path and class, the nodes it made, and what goes in and out.

    ``inputs`` are values from outside that ``nodes`` read, ``weights`` the get_attr nodes among
    what they read, ``outputs`` those of ``nodes`` that are read outside. ``class_name`` is ''
    where no value was made in the module itself, as in most ``Sequential``."""

    path: str
    class_name: str
    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    weights: tuple[Node, ...]

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
            raise ArgumentError(f"a source is a path or a class, not {source!r}; give several of "
                                f"them one after another")  # fmt: skip
        for path, name in _resolve(source, paths, classes):
            wanted.setdefault(path, set()).add(name)
    wanted = {path: {""} if "" in names else names for path, names in wanted.items()}
    found: list[tuple[int, SourcePartition]] = []
    for (path, name), members in _members(nodes, origins, wanted).items():
        own = name or next((c for p, c in classes if p == path), "")
        for call in calls_in(members, nodes, path, origins):
            found.append((call[0], _partition(path, own, [nodes[i] for i in call])))
    return [partition for _, partition in sorted(found, key=lambda pair: pair[0])]


def _origin(gm: GraphModule, node: Node) -> tuple[str, str] | None:
    """Path and class of the module that made a node; None for inputs. A leaf module is its own."""
    if node.op == "call_module":
        return node.target, type(gm.get_submodule(node.target)).__name__
    return None if node.scope is None else (node.scope.path, node.scope.class_name)


def _resolve(
    source: str | type, paths: set[str], classes: Iterable[tuple[str, str]]
) -> list[tuple[str, str]]:
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
    nodes: list[Node],
    origins: dict[Node, tuple[str, str] | None],
    wanted: dict[str, set[str]],
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
    members: list[int],
    nodes: list[Node],
    path: str,
    origins: dict[Node, tuple[str, str] | None],
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
            node.op == "call_module" or any(n.op == "get_attr" for n in node.all_input_nodes)
            for node in once
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


def _partition(path: str, class_name: str, nodes: list[Node]) -> SourcePartition:
    inside = set(nodes)
    read = dict.fromkeys(used for node in nodes for used in node.all_input_nodes)
    outside = [node for node in read if node not in inside]
    return SourcePartition(
        path,
        class_name,
        tuple(nodes),
        tuple(node for node in outside if node.op != "get_attr"),
        tuple(node for node in nodes if any(user not in inside for user in node.users)),
        tuple(node for node in outside if node.op == "get_attr"),
    )
