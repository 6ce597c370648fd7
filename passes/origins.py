"""Where nodes come from that a pass has made: ``node.meta["from"]``, a chain of (pass or rule, name
of the node that it looked at), the last one first.

In: a graph and its journal since the pass began. Out: an entry on each node that the pass made and
said nothing of. The node that it stands for is one that the pass removed, of the same module and
line: the one whose name its own begins with, or the next one; else a value that it reads or a
reader. Rules write their own entries, which stay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from fxlite.graph.graph import Graph, Node

FROM = "from"


def note_origins(name: str, graph: Graph, position: int) -> None:
    """Note where the nodes come from that were made since the journal had ``position`` records."""
    records = graph.journal.records[position:]
    made: dict[Node, None] = {r: None for r in records if r.__class__ is Node}
    removed: dict[Node, int] = {}  # the last record that speaks of it
    for number, record in enumerate(records):
        if record.__class__ is not Node and record[1].__class__ is Node and record[1]._erased:
            removed[record[1]] = number
    waiting: dict[Any, list[Node]] = defaultdict(list)
    origins: dict[Node, Node] = {}
    for number, record in enumerate(records):
        if record.__class__ is Node:
            waiting[_place(record)].append(record)
        elif removed.get(record[1]) == number and record[1] not in made:
            _claim(record[1], waiting, origins)
    _note(name, made, origins, [n for n in removed if n not in made])


def note_origins_in(name: str, graph: Graph, before: Graph) -> None:
    """The same for a graph that a pass made anew: what has a name that is not in ``before``."""
    old, new = ({n.name: n for n in g.nodes} for g in (before, graph))
    made = {n: None for key, n in new.items() if key not in old}
    waiting: dict[Any, list[Node]] = defaultdict(list)
    for node in made:
        waiting[_place(node)].append(node)
    origins: dict[Node, Node] = {}
    gone = [node for key, node in old.items() if key not in new]
    for node in gone:
        _claim(node, waiting, origins)
    _note(name, made, origins, gone)


def _place(node: Node) -> Any:
    return node.loc, node.scope, node.op == "get_attr"


def _claim(gone: Node, waiting: dict[Any, list[Node]], origins: dict[Node, Node]) -> None:
    """Let a node that was removed be the origin of those of its place that have none yet."""
    for node in waiting.pop(_place(gone), ()):
        origins[node] = gone


def _named(node: Node, by_name: dict[Any, Node]) -> Node | None:
    """The node that was removed under this name, or under one that this begins with."""
    place, name = _place(node), node.name
    while name:
        if (place, name) in by_name:
            return by_name[place, name]
        name = name.rpartition("_")[0]
    return None


def _note(name: str, made: dict[Node, None], origins: dict[Node, Node], gone: Iterable[Node]) -> None:
    by_name = {(_place(node), node.name): node for node in gone}
    left = []
    for node in made:
        if node._erased or node.op == "placeholder" or (node._meta or {}).get(FROM):
            continue
        around = (n for n in (*node.all_input_nodes, *node.users) if n not in made)
        origin = _named(node, by_name) or origins.get(node) or next(around, None)
        if origin is None:
            left.append(node)
        else:
            node.meta[FROM] = ((name, origin.name), *(origin._meta or {}).get(FROM, ()))
    for node in reversed(left):  # made for other nodes that the pass made
        chains = ((n._meta or {}).get(FROM) for n in (*node.users, *node.all_input_nodes))
        chain = next(filter(None, chains), None)
        if chain:
            node.meta[FROM] = chain
