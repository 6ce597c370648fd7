"""Partitions: groups of nodes that can run as a whole, for instance on a back end.

In: a GraphModule and a predicate on nodes. Out: connected groups of supported nodes such that no
group depends on itself through nodes outside it; :func:`fuse_partitions` makes a submodule of each.
:class:`CapabilityBasedPartitioner` does the same with torch.fx's classes, where objects decide
whether a node is supported.

The algorithm takes time near-linear in the size of the graph:

1. *Levels.* A node's level is the largest number of changes from a supported to an unsupported node
   on any path that leads to it. Levels never fall along an edge, and rise where a path leaves a
   group; hence supported neighbours of the same level may be united without creating a cycle. This
   one walk (with union-find) finds most groups.
2. *Merging.* Two neighbouring groups A -> B of different levels may be merged unless another path
   leads from A to B. All groups and unsupported nodes are kept in a topological order, updated as in
   D. J. Pearce and P. H. J. Kelly, "A dynamic topological sort algorithm for directed acyclic
   graphs", ACM JEA 11 (2006): only items between A and B are searched, forwards from A and backwards
   from B, and only those are moved. This is repeated until no neighbours can be merged. All searches
   together take at most ``EFFORT`` steps for each node and edge of the graph; if that is not enough
   (which takes thousands of groups entangled across the whole graph), groups stay smaller than they
   could be, but are still valid.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fxlite.base.checked import checked
from fxlite.base.errors import ArgumentError, expect
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.nn.module import Module
from fxlite.ops.op import Op, as_op
from fxlite.passes.cutting.split_module import dependencies, fuse_by_partitions, split_module
from fxlite.passes.cutting.subgraph import element_source
from fxlite.types.dtypes import dtype as as_dtype
from fxlite.types.tensor_type import TensorType

#: Steps of searching, for each node and edge of the graph.
EFFORT = 16


class Partition:
    """Supported nodes, in graph order, that may become one submodule. As in torch.fx, ``nodes`` is a
    dict whose values are None, or the places of the nodes if ``node_orders`` gave them."""

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
    nodes; no two neighbouring groups could be merged without a cycle of dependencies. With
    ``connected=False`` this holds for any two groups, so that independent nodes may also share one.

    The predicate is called for every call. Elements of a call with several results go with it, and
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
    """Replace each partition in ``gm`` by a call of a submodule ``submod_ID``; all other nodes stay.

    Raises ArgumentError for partitions of another graph, and GraphError if they depend on each other
    in a cycle (those of :func:`partition` do not)."""
    ids = {node: p.id for p in partitions for node in p.nodes}
    for node in ids:
        if node.graph is not gm.graph:
            raise ArgumentError(f"{node.name} belongs to another graph; partition this one")
    return split_module(gm, ids.get)


class _Groups:
    """Merges items 0, 1, ..., each of which comes after the items it depends on."""

    def __init__(self, supported: list[bool], edges: list[tuple[int, int]]) -> None:
        self.supported = supported
        self.parent = list(range(len(supported)))
        self.before: list[set[int]] = [set() for _ in supported]
        self.after: list[set[int]] = [set() for _ in supported]
        for a, b in edges:
            self.before[b].add(a)
            self.after[a].add(b)
        self.place: dict[int, int] = {}  # a topological order of the remaining items
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
        """Unite two items; the one with more edges takes over the edges of the other."""
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
        """Set places in a topological order (Kahn's algorithm)."""
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
        """Try to merge each group with the groups it reads, the nearest first. True if any were merged."""
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
        """Merge groups that do not read each other, each with the first possible one."""
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
        """Merge ``a`` with ``b``, which comes after it, unless a path through other items leads from
        ``a`` to ``b``."""
        low, high = self.place[a], self.place[b]

        def search_forwards() -> set[int] | None:
            return self._reached(a, b, self.after, lambda place: place < high)

        def search_backwards() -> set[int] | None:
            return self._reached(b, a, self.before, lambda place: place > low)

        forwards_first = len(self.after[a]) <= len(self.before[b])  # probably the cheaper direction
        if forwards_first:
            forwards = search_forwards()
            backwards = search_backwards() if forwards else set()
        else:
            backwards = search_backwards()
            forwards = search_forwards() if backwards else set()
        if forwards is None or backwards is None:
            return False
        if forwards and backwards:  # the items before b, then the new group, then the items after a
            ordered = [sorted(s, key=self.place.__getitem__) for s in (backwards, forwards)]
            places = sorted(self.place[i] for i in (a, b, *backwards, *forwards))
            self.place |= dict(zip(ordered[0], places))
            self.place |= dict(zip(ordered[1], places[len(backwards) + 2 :]))
            middle = places[len(backwards)]
        elif backwards or (forwards_first and not forwards):
            middle = high  # no item after a lies between
        else:
            middle = low  # no item before b lies between
        self.place[self._union(a, b)] = middle
        return True

    def _reached(self, start: int, end: int, edges: list[set[int]], between: Callable[[int], bool]) -> set[int] | None:
        """The items between ``start`` and ``end`` that ``start`` leads to; None if one of them leads
        to ``end`` (or the effort is used up)."""
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


# -- torch.fx's classes ----------------------------------------------------------------------------
IsNodeSupported = Callable[[Mapping[str, Module], Node], bool]
#: Dtypes of the operands by position, and of those by name; None, for one or all: any.
SupportedDtypes = tuple[Sequence[Sequence[Any] | None], Mapping[str, Sequence[Any]]] | None


def get_node_target(submodules: Mapping[str, Module], node: Node) -> str:
    """The name of the callee of a call: of the op, or of the leaf module's class."""
    if node.op == "call_module":
        return type(submodules[node.target]).__name__
    return node.target.name if isinstance(node.target, Op) else str(node.target)


class OperatorSupportBase(abc.ABC):
    """Decides whether a back end supports a node; subclass it, or use :func:`create_op_support`."""

    @abc.abstractmethod
    def is_node_supported(self, submodules: Mapping[str, Module], node: Node) -> bool:
        """Whether the node is supported; ``submodules`` holds the leaf modules by path."""


class OperatorSupport(OperatorSupportBase):
    """Supports the entries of a table: ops (or their names, or functions that stand for one) and
    classes of leaf modules (or their names), each with None or the dtypes of its operands."""

    _support_dict: Mapping[Any, SupportedDtypes] = {}

    def __init__(self, support_dict: Mapping[Any, SupportedDtypes] | None = None) -> None:
        if support_dict is not None:
            self._support_dict = support_dict

    def is_node_supported(self, submodules: Mapping[str, Module], node: Node) -> bool:
        if not node.op.startswith("call_"):
            return True
        name = get_node_target(submodules, node)
        for key, dtypes in self._support_dict.items():
            if _name_of(key) == name:
                return dtypes is None or _has_dtypes(node, *dtypes)
        return False


def _name_of(key: Any) -> str:
    """The name of an op or class in a table."""
    if isinstance(key, str):
        return key.rpartition(".")[2]
    return key.__name__ if isinstance(key, type) else as_op(key).name


def _has_dtypes(node: Node, by_position: Sequence[Sequence[Any] | None], by_name: Mapping[str, Sequence[Any]]) -> bool:
    wanted = [*zip(node.args, by_position), *((node.kwargs.get(k), v) for k, v in by_name.items())]
    return all(dtypes is None or not isinstance(value, Node) or _has_one_of(value, dtypes) for value, dtypes in wanted)


def _has_one_of(node: Node, dtypes: Iterable[Any]) -> bool:
    kind = node.type
    return isinstance(kind, TensorType) and any(kind.dtype == as_dtype(d) for d in dtypes)


def create_op_support(is_node_supported: IsNodeSupported) -> OperatorSupportBase:
    """An :class:`OperatorSupportBase` that calls a function."""

    class FunctionalOperatorSupport(OperatorSupportBase):
        def is_node_supported(self, submodules: Mapping[str, Module], node: Node) -> bool:
            return is_node_supported(submodules, node)

    return FunctionalOperatorSupport()


def chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Support for the nodes that all of the given objects support."""
    return create_op_support(lambda modules, node: all(s.is_node_supported(modules, node) for s in op_support))


def any_chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Support for the nodes that at least one of the given objects supports."""
    return create_op_support(lambda modules, node: any(s.is_node_supported(modules, node) for s in op_support))


class OpSupports:
    """Common reasons to decline a node, for use with :func:`chain`."""

    @classmethod
    def decline_if_input_dtype(cls, dtype: Any) -> OperatorSupportBase:
        """Declines nodes that read a value of the given dtype."""
        return create_op_support(lambda _, node: not any(_has_one_of(used, [dtype]) for used in node.all_input_nodes))

    @classmethod
    def decline_if_node_in_names(cls, disallow_set: set[str]) -> OperatorSupportBase:
        """Declines nodes with these names."""
        return create_op_support(lambda _, node: node.name not in disallow_set)


class CapabilityBasedPartitioner:
    """Groups the nodes that ``operator_support`` supports. Unless ``skip_horizontal_fusion`` is set,
    nodes that do not depend on each other may share a group. Without
    ``allows_single_node_partition`` a group must have at least two calls, not counting those of
    ``non_compute_ops`` (and elements of results), or one call of
    ``allowed_single_node_partition_ops``. Both are ops or their names."""

    def __init__(
        self,
        graph_module: GraphModule,
        operator_support: OperatorSupportBase,
        allows_single_node_partition: bool = False,
        non_compute_ops: Sequence[Any] | None = None,
        allowed_single_node_partition_ops: Sequence[Any] | None = None,
        skip_horizontal_fusion: bool = False,
    ) -> None:
        expect(graph_module, GraphModule, "what is partitioned")
        expect(
            operator_support,
            OperatorSupportBase,
            "operator_support",
            "make one of a function: create_op_support(lambda modules, node: ...)",
        )
        self.graph_module = graph_module
        self.operator_support = operator_support
        self.allows_single_node_partition = allows_single_node_partition
        self.non_compute_ops = {_name_of(op) for op in non_compute_ops or ()}
        self.allowed_single = {_name_of(op) for op in allowed_single_node_partition_ops or ()}
        self.skip_horizontal_fusion = skip_horizontal_fusion

    def propose_partitions(self) -> list[Partition]:
        """The groups in the order of their first nodes; see :func:`fxlite.passes.partition`."""
        modules = dict(self.graph_module.named_modules())

        def is_supported(node: Node) -> bool:
            return self.operator_support.is_node_supported(modules, node)

        found = partition(self.graph_module, is_supported, connected=self.skip_horizontal_fusion)
        return [p for p in found if self.allows_single_node_partition or self._is_large(p)]

    def _is_large(self, found: Partition) -> bool:
        modules = dict(self.graph_module.named_modules())
        names = [get_node_target(modules, node) for node in found.nodes]
        computing = [n for n in names if n != "getitem" and n not in self.non_compute_ops]
        return len(computing) > 1 or any(name in self.allowed_single for name in names)

    def remove_bookend_non_compute_ops(self, partitions: Iterable[Partition]) -> None:
        """Remove calls of ``non_compute_ops`` at the border of a group: those before all or after all
        computing nodes of the group."""
        for group in partitions:
            calls = list(group.nodes)
            for nodes in (calls, calls[::-1]):
                inner: set[Node] = set()  # nodes that compute, or come after one that does
                for node in nodes:
                    near = node.all_input_nodes if nodes is calls else node.users
                    is_free = isinstance(node.target, Op) and node.target.name in (self.non_compute_ops)
                    if not is_free or any(n in inner for n in near):
                        inner.add(node)
                    elif node in group.nodes:
                        group.remove_node(node)

    def fuse_partitions(self, partitions: Iterable[Partition], prefix: str = "fused_") -> GraphModule:
        """Replace the groups in the module itself by calls of submodules."""
        return fuse_by_partitions(self.graph_module, [p.nodes for p in partitions], prefix)

    def partition_and_fuse(self, prefix: str = "fused_") -> GraphModule:
        """Propose the partitions and fuse them."""
        return self.fuse_partitions(self.propose_partitions(), prefix)
