"""The nodes of two graphs that were removed, added or changed, given pairs of corresponding nodes; and the weights that
differ by value.

In: two graphs, pairs of their nodes and, if available, the modules that own their weights. Out: the rows of a diff:
unchanged nodes, and for each other node a :class:`NodeChange` with texts, costs and differences; and a
:class:`WeightChange` for each weight that was added, removed, changed or renamed.

A node that reads another value than before is changed, unless the old value was replaced as a whole by something that
the diff shows anyway (:meth:`_Reads.are_explained`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite.graph.disjoint import DisjointSets
from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.subgraph import SubGraph, bodies_of
from fxlite.show.comparison.compare import bits_differ, differences, operands
from fxlite.show.comparison.pairing import Pairs, call_key, moved_modules, moved_path
from fxlite.show.node_cost import Cost, node_cost
from fxlite.show.text.pretty import node_line, value_text, without_bodies
from fxlite.types.dtypes import has_same_bits
from fxlite.types.tensor_type import TensorType, type_of


# -- nodes -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class NodeChange:
    """A node that was "removed" (``new`` is None), "added" (``old`` is None) or "changed".

    ``what`` lists the differences of a changed node as (attribute, before, after). The first item may also be "op",
    "type", "argument N", "arguments", "reads" or "order". Texts and costs are those at the time of the comparison."""

    kind: str
    old: Node | None
    new: Node | None
    what: tuple[tuple[str, str, str], ...]
    old_text: str
    new_text: str
    old_cost: Cost
    new_cost: Cost

    @property
    def node(self) -> Node:
        """The node; the new one if there are two."""
        node = self.old if self.new is None else self.new
        assert node is not None
        return node

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def bodies(self) -> dict[str, tuple[SubGraph, SubGraph]]:
        """The bodies of a loop or condition that differ, before and after, by attribute."""
        if self.old is None or self.new is None:
            return {}
        before, after = bodies_of(self.old), bodies_of(self.new)
        return {name: (before[name], after[name]) for name in before if before[name] != after.get(name, before[name])}


Row = NodeChange | Node  # a change, or an unchanged node of the new graph


def find_rows(a: Graph, b: Graph, pairs: Pairs, renamed: Mapping[str, str]) -> Iterator[Row]:
    """The nodes of ``b`` in order, with those removed from ``a`` after the node that they followed.

    ``renamed``: weights of ``b`` that are weights of ``a`` with another path (new -> old)."""
    old_of = {new: old for old, new in pairs.items()}
    reads = _Reads(a, b, pairs, old_of, renamed)
    moved = _moved_effects(a, b, old_of)
    behind: dict[Node | None, list[Node]] = {None: []}
    last: Node | None = None
    for node in a.nodes:
        if node in pairs:
            last = node
        elif node.op != "get_attr":
            behind.setdefault(last, []).append(node)
    yield from map(_removed, behind[None])
    for node in b.nodes:
        old = old_of.get(node)
        if old is not None:
            what = [*differences(old, node), *moved.get(node, ())]
            if not any(name == "op" or name.startswith("argument") for name, _, _ in what):
                what += reads.changes(old, node)
            yield _changed(old, node, tuple(what)) if what else node
            yield from map(_removed, behind.get(old, ()))
        elif node.op != "get_attr":
            yield _added(node)


def _removed(node: Node) -> NodeChange:
    return NodeChange("removed", node, None, (), line(node), "", node_cost(node), Cost())


def _added(node: Node) -> NodeChange:
    return NodeChange("added", None, node, (), "", line(node), Cost(), node_cost(node))


def _changed(old: Node, new: Node, what: tuple[tuple[str, str, str], ...]) -> NodeChange:
    return NodeChange("changed", old, new, what, line(old), line(new), node_cost(old), node_cost(new))


def line(node: Node) -> str:
    """A node as a line of a diff, without its bodies."""
    text = without_bodies(node, node_line(node))
    return f"{text} = input" if node.op == "placeholder" else text


def _moved_effects(a: Graph, b: Graph, old_of: Pairs) -> dict[Node, tuple[tuple[str, str, str], ...]]:
    """Nodes with side effects that now run after a node before which they ran."""
    place = {node: number for number, node in enumerate(a.nodes)}
    moved: dict[Node, tuple[tuple[str, str, str], ...]] = {}
    latest: Node | None = None
    for node in b.nodes:
        if node not in old_of or not _has_effects(node):
            continue
        if latest is not None and place[old_of[node]] < place[old_of[latest]]:
            moved[node] = (("order", f"before {old_of[latest].name}", f"after {latest.name}"),)
        else:
            latest = node
    return moved


class _Reads:
    """Decides whether a node reads the same values as before."""

    def __init__(self, a: Graph, b: Graph, new_of: Pairs, old_of: Pairs, renamed: Mapping[str, str]) -> None:
        self.a, self.new_of, self.old_of, self.renamed = a, new_of, old_of, renamed
        self.paths_a = {n.target for n in a.nodes if n.op == "get_attr"}
        self.paths_b = {self.identity(n) for n in b.nodes if n.op == "get_attr"}
        #: The values that the readers of an old value read now, for readers that are paired with a new node.
        self.now: dict[Hashable, set[Hashable]] = {}
        for old, new in new_of.items():
            for p, q in zip(operands(old), operands(new)):
                self.now.setdefault(_own(p), set()).add(self.identity(q))
        gone = [n for n in a.nodes if n.op != "get_attr" and n not in new_of]
        come = [n for n in b.nodes if n.op != "get_attr" and n not in old_of]
        self.removed = _region_inputs(gone, _own)
        self.added = _region_inputs(come, self.identity)
        self.values = _value_numbers(a) if gone else {}

    def identity(self, new: Node) -> Hashable:
        """The counterpart of a new node in the old graph: a node, the path of a weight, or itself."""
        if new.op == "get_attr":
            return str(self.renamed.get(new.target, new.target))
        return self.old_of.get(new, new)

    def changes(self, old: Node, new: Node) -> Iterator[tuple[str, str, str]]:
        """("reads", before, after) for each operand whose value is another one than before."""
        for p, q in dict.fromkeys(zip(operands(old), operands(new))):
            if _own(p) != self.identity(q) and not self.are_explained(p, q):
                yield "reads", value_text(p), value_text(q)

    def are_explained(self, p: Node, q: Node) -> bool:
        """True if other lines already show that ``q`` is read in place of ``p``: all readers of ``p`` do so, and

        - ``p`` was removed and ``q`` was added, or
        - ``p`` was removed, and ``q`` is read by the nodes that were removed with it, or is an equal node, or
        - ``q`` was added, and the nodes that were added with it read ``p``.

        This never applies to a weight that replaces another one, because weights are listed separately."""
        if p.op == q.op == "get_attr" or len(self.now[_own(p)]) > 1:
            return False
        gone = p.target not in self.paths_b if p.op == "get_attr" else p not in self.new_of
        come = self.identity(q) not in self.paths_a if q.op == "get_attr" else q not in self.old_of
        if gone and come:
            return True
        if gone and p in self.removed:
            is_equal = self.values[p] == self.values.get(self.old_of.get(q, p), None)
            return self.identity(q) in self.removed[p] or (q in self.old_of and is_equal)
        return come and q in self.added and _own(p) in self.added[q]


def _own(node: Node) -> Hashable:
    """A node, or the path of a weight, which several nodes may read."""
    return node.target if node.op == "get_attr" else node


def _region_inputs(nodes: list[Node], identity: Any) -> dict[Node, set[Hashable]]:
    """For each node, the values that its region reads from outside. Nodes that read each other form a region."""
    sets, inside = DisjointSets(), set(nodes)
    for node in nodes:
        sets.join(node, inside.intersection(operands(node)))
    inputs: dict[Node, set[Hashable]] = {}
    for node in nodes:
        read = {identity(operand) for operand in operands(node) if operand not in inside}
        inputs.setdefault(sets.find(node), set()).update(read)
    return {node: inputs[sets.find(node)] for node in nodes}


def _value_numbers(graph: Graph) -> dict[Node, int]:
    """A number for each node, which is equal for nodes that compute the same; nodes with side effects have unique
    ones."""
    numbers: dict[Hashable, int] = {}
    found: dict[Node, int] = {}
    for node in graph.nodes:
        key: Hashable = node
        if node.op == "get_attr":
            key = node.target
        elif node.op != "call_module" and not node.is_impure():
            key = (call_key(node), *(found[n] for n in operands(node)))
        found[node] = numbers.setdefault(key, len(numbers))
    return found


# -- weights ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class WeightChange:
    """The change of one weight: ``kind`` is "added", "removed", "changed" or "renamed".

    ``differing`` is the number of elements that differ, and ``max_difference`` the largest absolute difference
    (infinity if a number is compared with NaN or infinity). Both are None if the types differ or the values are not
    known."""

    kind: str
    old_path: str | None
    new_path: str | None
    old_type: TensorType | None
    new_type: TensorType | None
    differing: int | None = None
    max_difference: float | None = None

    @property
    def path(self) -> str:
        """The path; that of the new graph if there are two."""
        return self.new_path or self.old_path or ""


def changed_weights(a: Graph, b: Graph, modules: tuple[GraphModule, GraphModule] | None) -> list[WeightChange]:
    """The differences of the weights that the graphs read, in the order in which they are read. Without ``modules``,
    only paths and types are compared, because values are not known."""
    old, new = weight_types(a), weight_types(b)
    differing = [path for path, type in old.items() if path in new and _differs(path, type, new[path], modules)]
    renamed = {} if modules is None else _renamed(old, new, set(differing), modules)
    taken = set(renamed.values())
    found: list[WeightChange] = []
    for path, type in old.items():
        if path not in renamed and (path not in new or path in taken):
            found.append(WeightChange("removed", path, None, type, None))
    for path in differing:
        if path not in renamed and path not in taken:
            found.append(_compared(path, old[path], new[path], modules))
    for path, type in new.items():
        if path not in taken and (path not in old or path in renamed):
            found.append(WeightChange("added", None, path, None, type))
    for path, other in renamed.items():
        found.append(WeightChange("renamed", path, other, old[path], new[other], 0, 0.0))
    return found


def weight_types(graph: Graph) -> dict[str, Any]:
    """The types of the weights that a graph reads, by path."""
    return {n.target: n.type for n in graph.nodes if n.op == "get_attr"}


def _renamed(
    old: Mapping[str, Any], new: Mapping[str, Any], differing: set[str], modules: tuple[GraphModule, GraphModule]
) -> dict[str, str]:
    """A dict from old to new paths of weights with the type and bytes of a weight under another path. That path must
    not be in both graphs, or must have other bytes in the other module (after the removal of a layer, the numbers of
    later layers decrease by one).

    Weights whose elements are all equal, such as the zeros of a bias, may agree by chance. They count as renamed if
    other weights have moved between the same two modules, or inside of one module."""
    buckets: dict[Hashable, list[str]] = defaultdict(list)
    for path in new:
        if path not in old or path in differing:
            buckets[_print_of(_array(modules[1], path))].append(path)
    found: dict[str, str] = {}
    taken: set[str] = set()
    moved = {("", "")}  # pairs of modules between which weights have moved
    waiting = {path: _array(modules[0], path) for path in old if path not in new or path in differing}
    uniform = {path for path, array in waiting.items() if _is_uniform(array.tobytes())}
    for path in sorted(waiting, key=uniform.__contains__):
        others = [other for other in buckets.get(_print_of(waiting[path]), ()) if other not in taken]
        others = [other for other in others if has_same_bits(waiting[path], _array(modules[1], other))]
        best = max(others, key=lambda other: _alike(path, other, moved), default=None)
        if best is None:
            continue
        if path in uniform and (path in differing or best in differing or not _alike(path, best, moved)[0]):
            continue  # it may still follow its module, see below
        found[path] = best
        taken.add(best)
        moved.add((path.rpartition(".")[0], best.rpartition(".")[0]))
    for path, other in _followers(found, old, new):
        if other not in taken and path not in found:
            array = _array(modules[0], path)
            if has_same_bits(array, _array(modules[1], other)) and _is_uniform(array.tobytes()):
                found[path] = other
                taken.add(other)
    return found


def _followers(found: Mapping[str, str], old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The other weights below renamed modules: ``layers.3.norm.bias`` and ``layers.2.norm.bias``, if
    ``layers.3.fc.weight`` is now ``layers.2.fc.weight``."""
    moved = moved_modules(found)
    for path in old:
        other = moved_path(path, moved)
        if other != path and other in new:
            yield path, other


def _print_of(array: np.ndarray[Any, Any]) -> Hashable:
    """A fingerprint that is equal for arrays with the same type and bytes, and rarely for others."""
    ends = array.reshape(-1)[[*range(8), *range(-8, 0)]] if array.size >= 16 else array
    return str(type_of(array)), ends.tobytes()


def _alike(old: str, new: str, moved: set[tuple[str, str]]) -> tuple[bool, bool]:
    """Whether two paths belong to modules one of which has become the other, and have the same last name."""
    (inside, _, name), (other, _, new_name) = old.rpartition("."), new.rpartition(".")
    return inside == other or (inside, other) in moved, name == new_name


def _is_uniform(content: bytes) -> bool:
    """True for the bytes of an array whose elements are all equal, such as zeros or ones, which others may have by
    chance."""
    return len(content) <= 8 or content[8:] == content[:-8]


def _array(module: GraphModule, path: str) -> np.ndarray[Any, Any]:
    return np.asarray(module.get_attribute(path))


def _differs(path: str, old: Any, new: Any, modules: tuple[GraphModule, GraphModule] | None) -> bool:
    """Whether a weight in both graphs has another type, or other bits if these are known."""
    if modules is None:
        return bool(old != new)
    one, other = modules[0].get_attribute(path), modules[1].get_attribute(path)
    return one is not other and not has_same_bits(np.asarray(one), np.asarray(other))


def _compared(path: str, old: Any, new: Any, modules: tuple[GraphModule, GraphModule] | None) -> WeightChange:
    """The change of a weight that differs."""
    if modules is None:
        return WeightChange("changed", path, path, old, new)
    one, other = (_array(module, path) for module in modules)
    types = type_of(one), type_of(other)
    return WeightChange("changed", path, path, *types, *(difference(one, other) if types[0] == types[1] else ()))


def difference(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> tuple[int, float]:
    """The number of elements of two arrays of the same type that have different bits, and the largest absolute
    difference."""
    differ = bits_differ(a, b)
    count = int(np.count_nonzero(differ))
    places = slice(None) if count == differ.size else differ
    x, y = (np.asarray(v).reshape(-1)[places].astype(np.float64) for v in (a, b))
    with np.errstate(invalid="ignore"):
        gaps = x - y
    np.abs(gaps, out=gaps)
    if np.isnan(largest := gaps.max(initial=0.0)):
        gaps[(np.isnan(x) & np.isnan(y)) | (x == y)] = 0  # NaNs with different bits; equal infinities
        largest = math.inf if np.isnan(gaps).any() else gaps.max()
    return count, float(largest)


def _has_effects(node: Node) -> bool:
    """True for calls that are compared in order, even if their results are not read."""
    return node.op == "call_module" or (node.op == "call_function" and node.is_impure())
