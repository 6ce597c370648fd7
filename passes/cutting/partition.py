"""Partitions: groups of nodes that a back end, say, can run as a whole.

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
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fxlite.base.checked import checked
from fxlite.base.errors import ArgumentError
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.cutting.split_module import dependencies, split_module
from fxlite.passes.cutting.subgraph import element_source

#: Steps of searching, for each node and edge of the graph.
EFFORT = 16


class Partition:
    """Supported nodes, in graph order, that may become one submodule. ``nodes`` is a dict of them
    with None, or with their places if ``node_orders`` said so, as in torch.fx."""

    def __init__(
        self, id: int | None = None, nodes: Iterable[Node] = (), node_orders: Iterable[int] | None = None
    ) -> None:
        self.id = id
        self.nodes: dict[Node, int | None] = dict.fromkeys(nodes or ())
        if node_orders is not None:
            self.nodes = dict(zip(self.nodes, node_orders, strict=True))

    def add_node(self, node: Node, node_order: int | None = None) -> None:
        self.nodes[node] = node_order

    def remove_node(self, node: Node) -> None:
        del self.nodes[node]

    def size(self) -> int:
        return len(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        return f"Partition({self.id}: {', '.join(n.name for n in self.nodes)})"


@checked
def partition(
    gm: GraphModule, is_supported: Callable[[Node], bool], min_size: int = 1, connected: bool = True
) -> list[Partition]:
    """Groups of connected nodes for which ``is_supported(node)`` is true, in order of their first
    nodes; no two neighbouring groups could be one group without a circle of dependencies. Without
    ``connected`` this holds for any two groups, so that what is computed side by side is one, too.

    The predicate is asked for every call; elements of a call with several results go with it, and
    weights need not be supported. Groups of fewer than ``min_size`` nodes are left out."""
    calls = [n for n in gm.graph.nodes if n.op.startswith("call_")]
    sources = {n: element_source(n) for n in calls}
    heads = [n for n in calls if sources[n] is None]
    index = {n: i for i, n in enumerate(heads)}
    for node in calls:
        index[node] = index[sources[node] or node]
    edges = {(index[a], index[b]) for a, b in dependencies(gm) if index[a] != index[b]}
    group_of = _Groups([bool(is_supported(n)) for n in heads], sorted(edges)).run(connected)
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

    def run(self, connected: bool) -> list[int | None]:
        """The group of each item; None for unsupported ones."""
        self._unite_levels()
        self._sort()
        merged = True
        while merged and self.effort > 0:
            merged = self._sweep()
        if not connected:
            self._merge_side_by_side()
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

    def _merge_side_by_side(self) -> None:
        """Merge groups that do not read each other, each with the first that it can be one with."""
        groups: list[int] = []
        for item in sorted((i for i in self.place if self.supported[i]), key=self.place.__getitem__):
            for index, other in enumerate(groups):
                self.effort -= 1
                first, second = sorted((other, item), key=self.place.__getitem__)
                if self.effort > 0 and self._merge(first, second):
                    groups[index] = self._find(item)
                    break
            else:
                groups.append(item)

    def _merge(self, a: int, b: int) -> bool:
        """Merge ``a`` and ``b``, which stands behind it, unless a path that is longer than from one
        to its reader leads from ``a`` to ``b``."""
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

    def _reached(self, start: int, end: int, edges: list[set[int]], between: Callable[[int], bool]) -> set[int] | None:
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
