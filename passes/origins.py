"""Where nodes come from that a pass has made: ``node.meta["from"]``, a chain of (pass or rule, name
of the node that it looked at), the last one first.

In: a graph and its journal since the pass began. Out: an entry on each node that the pass made and
said nothing of. The node that it stands for is one that the pass removed, of the same module and
line, else a value that it reads or a reader. Rules write their own entries, which stay.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from fxlite.graph.graph import Graph, Node

FROM = "from"


def note_origins(name: str, graph: Graph, position: int) -> None:
    """Note where the nodes come from that were made since the journal had ``position`` records."""
    made: dict[Node, None] = {}
    gone: dict[Node, None] = {}
    for record in graph.journal.records[position:]:
        if record.__class__ is Node:
            made[record] = None
        elif record[1].__class__ is Node and record[1]._erased and record[1] not in made:
            gone[record[1]] = None
    _note(name, made, gone)


def note_origins_in(name: str, graph: Graph, before: Graph) -> None:
    """The same for a graph that a pass made anew: what has a name that is not in ``before``."""
    old, new = ({n.name: n for n in g.nodes} for g in (before, graph))
    made = {n: None for key, n in new.items() if key not in old}
    _note(name, made, {n: None for key, n in old.items() if key not in new})


def _note(name: str, made: dict[Node, None], gone: Iterable[Node]) -> None:
    by_place: dict[Any, list[Node]] = {}
    for node in gone:
        by_place.setdefault((node.loc, node.scope), []).append(node)
    waiting = []
    for node in made:
        if not node._erased and node.op != "placeholder" and not (node._meta or {}).get(FROM):
            origin = _origin(node, by_place.get((node.loc, node.scope), ()), made)
            if origin is None:
                waiting.append(node)
            else:
                node.meta[FROM] = ((name, origin.name), *(origin._meta or {}).get(FROM, ()))
    for node in reversed(waiting):  # made for other nodes that the pass made
        chains = ((n._meta or {}).get(FROM) for n in (*node.users, *node.all_input_nodes))
        chain = next(filter(None, chains), None)
        if chain:
            node.meta[FROM] = chain


def _origin(node: Node, gone: Iterable[Node], made: dict[Node, None]) -> Node | None:
    alike = (n for n in gone if n.op == node.op and n.target == node.target)
    calls = (n for n in gone if n.op != "get_attr")
    near = (n for n in (*node.all_input_nodes, *node.users) if n not in made)
    return next(itertools.chain(alike, calls, gone, near), None)
