"""The places that a pass changed, each with the work it saves or adds.

In: a module that a pass has edited, and what its nodes were before. Out: :class:`Rewrite` objects.
Nodes that were made, erased or turned into another call belong to one rewrite if one reads the
other, or stands where the other was; rewrites that touch each other count as one.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.checking.edits import Edits, changed_places
from fxlite.show.node_cost import Cost, node_cost
from fxlite.types.shapes import Dim


@dataclass(frozen=True)
class Rewrite:
    """One place: names of the ops ``before`` and ``after``, or the op ``instead``, which was there
    already and is read now; the ``rule`` that made it (empty for a pass without rules), its
    ``origin`` in the user's program, and what it adds to the whole in FLOPs and bytes (negative:
    saves; None: unknown), each node counting as run by itself."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    instead: str
    rule: str
    origin: str
    flops: int | None
    bytes: int | None

    def __str__(self) -> str:
        made = _counted(self.after) or (self.instead and f"{self.instead} (there already)")
        return f"{_counted(self.before) or 'nothing'} → {made or 'nothing'}"


@dataclass(frozen=True)
class Was:
    """What a node was: its op, cost and operands."""

    op: str
    cost: Cost
    inputs: tuple[Node, ...]


def as_it_is(graph: Graph) -> dict[Node, Was]:
    """What each call of a graph is now, to be compared after a pass."""
    return {n: _now(n) for n in graph.nodes if n.op.startswith("call_")}


def find_rewrites(
    gm: GraphModule,
    start: int,
    before: Mapping[Node, Was],
    number: Callable[[Dim | None], int | None],
) -> tuple[Rewrite, ...]:
    """The rewrites since position ``start`` of the module's journal, in the order of the program.

    ``number`` evaluates costs at the sizes of the named dims."""
    edits = Edits(gm, start)
    places = {n: changed_places(old, n, edits.changed) for n, old in edits.original.items()}
    gone = {n for n in before if n in edits.erased or (n in places and places[n] is None)}
    new = {n for n in (*edits.created, *places) if _is_call(n) and not n._erased}
    new -= {n for n in places if places[n] is not None}
    groups = _Groups()
    for node in gone:
        groups.join(node, (n for n in before[node].inputs if n in gone))
    for node in new:
        groups.join(node, (n for n in node.all_input_nodes if n in new))
    instead: dict[Node, Node] = {}
    for pair in itertools.chain(*(pairs or () for pairs in places.values())):
        if pair.before in gone and pair.after in new:
            groups.join(pair.before, [pair.after])
        elif pair.before in gone and _is_call(pair.after):
            instead[pair.before] = pair.after
    members: dict[Node, tuple[list[Node], list[Node]]] = {}
    for node in before:
        if node in gone:
            members.setdefault(groups.find(node), ([], []))[0].append(node)
    for node in gm.graph.nodes if new else ():
        if node in new:
            members.setdefault(groups.find(node), ([], []))[1].append(node)
    return tuple(_rewrite(old, made, instead, before, number) for old, made in members.values())


def _is_call(node: Node) -> bool:
    return node.op.startswith("call_")


def _now(node: Node) -> Was:
    op = node.target.name if node.op == "call_function" else node.op
    return Was(op, node_cost(node), tuple(node.all_input_nodes))


def _rewrite(
    old: list[Node],
    made: list[Node],
    instead: Mapping[Node, Node],
    before: Mapping[Node, Was],
    number: Callable[[Dim | None], int | None],
) -> Rewrite:
    was, now = [before[n] for n in old], [_now(n) for n in made]
    chains = (n.meta.get("from") for n in made if n not in before)
    rule = next((chain[0][0] for chain in chains if chain), "")
    flops, moved = (
        _difference([number(getattr(w.cost, what)) for w in now],
                    [number(getattr(w.cost, what)) for w in was])
        for what in ("flops", "bytes")
    )  # fmt: skip
    origin = next((n.origin for n in (*old, *made) if n.origin), "")
    there = "" if made else next((_now(instead[n]).op for n in old if n in instead), "")
    ops, made_ops = tuple(w.op for w in was), tuple(w.op for w in now)
    return Rewrite(ops, made_ops, there, rule, origin, flops, moved)


def _difference(after: list[int | None], before: list[int | None]) -> int | None:
    total = 0
    for sign, values in ((1, after), (-1, before)):
        for value in values:
            if value is None:
                return None
            total += sign * value
    return total


def _counted(ops: tuple[str, ...]) -> str:
    """``conv2d, 2 relu``"""
    return ", ".join(op if n == 1 else f"{n} {op}" for op, n in Counter(ops).items())


class _Groups:
    """Disjoint sets of nodes, which grow together (union-find with path halving)."""

    def __init__(self) -> None:
        self._above: dict[Node, Node] = {}

    def find(self, node: Node) -> Node:
        """The node that stands for the set of this one."""
        above = self._above
        while (up := above.get(node, node)) is not node:
            above[node] = above.get(up, up)
            node = up
        return node

    def join(self, node: Node, others: Iterable[Node]) -> None:
        """Make one set of those of a node and of others."""
        for other in others:
            self._above[self.find(other)] = self.find(node)


def relative(before: float | None, after: float | None) -> float | None:
    """``after`` by ``before``, less 1; None where one is unknown or there was nothing."""
    if before is None or after is None or not before:
        return None
    return after / before - 1
