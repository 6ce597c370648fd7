"""What passes did to each node: made, replaced, rewired or removed it, and out of what.

In: the traced graph, and the report of the passes that ran on a copy of it. Out: :class:`History`,
lines of text by node of the traced and of the optimized graph.

It is read from the journal. A node that was removed became what its readers read in its place, and
what the same pass made with the same place and module: passes give new nodes the origin of those
they come from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fxlite.graph.graph import Graph, Node, nodes_in
from fxlite.graph.node_store import undo_assign, undo_erase
from fxlite.passes.manager import Report
from fxlite.show.text.pretty import value_text

_MOST_NAMES = 8
_MOST_AT_ONE_PLACE = 50  # nodes made there, of which it is not known what each comes from


@dataclass(frozen=True)
class History:
    """Lines by name of node: of the ``traced`` graph and of the ``optimized`` one. ``became``: for
    each node of the traced graph those of the optimized one that compute what it did."""

    traced: Mapping[str, list[str]]
    optimized: Mapping[str, list[str]]
    became: Mapping[str, list[str]]


def history(traced: Graph, optimized: Graph, report: Report) -> History:
    """The history of all nodes. Names of nodes that no pass made are those of the traced graph."""
    lines: dict[Node, list[str]] = {}
    refused: dict[str, list[str]] = {}
    became: dict[Node, list[Node]] = {}
    made: set[Node] = set()
    removed: dict[Node, None] = {}
    edits = [_edits(step.records) for step in report]
    _fill_in_reads(edits)
    for step, found in zip(report, edits):
        made.update(found.made)
        removed.update(found.removed)
        for node, text in _told(step.name, found, became):
            lines.setdefault(node, []).append(text)
        for entry in step.refusals:
            refused.setdefault(entry.node, []).append(f"{step.name}: left alone: {entry.reason}")
    names = {node.name for node in traced.nodes}
    kept = [n for n in (*optimized.nodes, *removed) if n not in made and n.name in names]

    def all_lines(node: Node) -> list[str]:
        return lines.get(node, []) + refused.get(node.name, [])

    return History(
        {node.name: all_lines(node) for node in kept},
        {node.name: all_lines(node) for node in optimized.nodes},
        {node.name: _alive(node, became) for node in kept},
    )


@dataclass
class _Edits:
    """What one pass did: nodes made and removed; for each node that was there and that it gave new
    arguments the nodes ``read`` before, and those it ``reads`` since."""

    made: dict[Node, None] = field(default_factory=dict)
    removed: dict[Node, None] = field(default_factory=dict)
    read: dict[Node, list[Node]] = field(default_factory=dict)
    reads: dict[Node, list[Node]] = field(default_factory=dict)


def _edits(records: Iterable[Any]) -> _Edits:
    found = _Edits()
    for record in records:
        if record.__class__ is not tuple:
            found.made[record] = None
        elif record[0] is undo_erase:
            if record[1] in found.made:
                del found.made[record[1]]
            else:
                found.removed[record[1]] = None
        elif record[0] is undo_assign and record[1] not in found.made:
            found.read.setdefault(record[1], list(nodes_in(record[2:])))
    return found


def _fill_in_reads(edits: list[_Edits]) -> None:
    """What a node reads after a pass is what it reads before the next one that changes it."""
    later: dict[Node, list[Node]] = {}
    for found in reversed(edits):
        for node, before in found.read.items():
            now = later.get(node)
            found.reads[node] = list(nodes_in((node.args, node.kwargs))) if now is None else now
            later[node] = before


def _told(
    name: str, edits: _Edits, became: dict[Node, list[Node]]
) -> Iterable[tuple[Node, str]]:  # fmt: skip
    """Lines about a pass; fills in ``became``."""
    in_place: dict[Node, Node] = {}
    for reader, now in edits.reads.items():
        was = edits.read[reader]
        if len(was) == len(now):
            in_place.update((old, new) for old, new in zip(was, now) if old is not new)
    made_at: dict[Hashable, list[Node]] = {}
    for node in edits.made:
        if node.op != "get_attr":
            made_at.setdefault(_origin(node), []).append(node)
    sources: dict[Node, list[str]] = {}
    ends = set(in_place.values())
    calls = [old for old in edits.removed if old.op != "get_attr"]
    removed_at = Counter(map(_origin, calls))
    for old in calls:
        origin, instead = _origin(old), in_place.get(old)
        candidates = made_at.get(origin, [])
        if removed_at[origin] == 1:
            new = list(candidates)
        elif instead is not None and instead in edits.made:
            new = _made_for(instead, edits.made, ends)  # of what stands there its own part
        else:
            new = list(candidates) if len(candidates) <= _MOST_AT_ONE_PLACE else []
        if new:
            yield old, f"{name}: replaced by {_names(new)}"
        elif instead is not None:
            yield old, f"{name}: removed; {instead.name} is read in its place"
        else:
            yield old, f"{name}: removed{'' if candidates else '; nothing reads it any more'}"
        if instead is not None and instead not in new:
            new.append(instead)
            yield instead, f"{name}: stands for {old.name}, too"
        became[old] = new
        for node in new:
            sources.setdefault(node, []).append(old.name)
    for node in edits.made:
        yield node, f"{name}: made{_from(node, sources.get(node, []))}"
    for node, now in edits.reads.items():
        text = _reads_text(edits.read[node], now)
        if text and node not in edits.removed:
            yield node, f"{name}: {text}"


def _made_for(end: Node, made: Mapping[Node, None], ends: set[Node]) -> list[Node]:
    """The nodes that a pass made to compute ``end``, in order: what it reads, with the same origin,
    up to the ``ends`` of other replacements."""
    origin = _origin(end)
    found = {end: None}
    work = [end]
    while work:
        for read in work.pop().all_input_nodes:
            if read in made and read not in ends and read not in found and _origin(read) == origin:
                found[read] = None
                work.append(read)
    return list(found)[::-1]


def _reads_text(was: list[Node], now: list[Node]) -> str:
    """How operands changed, by name; nothing where a value was made anew under its old name."""
    was_names, now_names = (list(map(value_text, nodes)) for nodes in (was, now))
    new = [name for name in now_names if name not in was_names]
    gone = [name for name in was_names if name not in now_names]
    if new and gone:
        return f"reads {_listed(new)} in place of {_listed(gone)}"
    if new or gone:
        return f"reads {_listed(new)}, too" if new else f"no longer reads {_listed(gone)}"
    return ""


def _from(node: Node, sources: list[str]) -> str:
    chain = (node._meta or {}).get("from", ())
    if chain:
        rule, anchor = chain[0]
        return f" by the rule {rule} from {anchor}"
    return f" from {_listed(sources)}" if sources else ""


def _origin(node: Node) -> Hashable:
    return node.loc, node.scope


def _alive(node: Node, became: Mapping[Node, list[Node]]) -> list[str]:
    """Names of the nodes that stand for a node in the end."""
    found: dict[str, None] = {}
    seen = {node}
    work = [node]
    while work:
        current = work.pop()
        if not current._erased:
            found[current.name] = None
        fresh = [new for new in became.get(current, ()) if new not in seen]
        seen.update(fresh)
        work += reversed(fresh)
    return list(found)


def _names(nodes: list[Node]) -> str:
    return _listed([node.name for node in nodes])


def _listed(names: list[str]) -> str:
    shown = ", ".join(dict.fromkeys(names[:_MOST_NAMES]))
    more = len(names) - _MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown or "nothing"
