"""The ledger: what passes refused to do, why, and what that costs; what a back end decided where it
had alternatives for a kernel; what a trace did with loops. Also the origins of the nodes that a pass
created.

In: refusals as passes meet them. Out: a list on the module they made, carried from pass to pass,
which prints as a table, the most expensive first.

In: a graph and its journal since a pass began. Out: ``node.meta["from"]`` on each node that the pass
created without recording an origin: a chain of (pass or rule, name of the node that it looked at),
the most recent first. The origin is a node that the pass removed, of the same module and line: the
one whose name is a prefix of the new node's name, or else the next one; failing that, a value that
the new node reads, or a reader of it. Rules record origins themselves, and those are kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fxlite.base.checked import checked
from fxlite.base.console import Printed, borderless
from fxlite.base.errors import number_of
from fxlite.base.location import Location, Scope
from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.node import origin_text
from fxlite.show.node_cost import node_cost
from fxlite.types import shapes
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType


@dataclass(frozen=True)
class Refusal:
    """One place where a pass did not fire, and why.

    ``nodes`` are the names of the nodes it would have replaced; ``bytes`` is the size of the values
    between them, which would not be stored, and ``flops`` their arithmetic. Both are estimates, and
    0 if types are missing."""

    pass_name: str
    node: str
    reason: str
    scope: Scope | None = None
    loc: Location | None = None
    nodes: tuple[str, ...] = ()
    bytes: Dim = 0
    flops: Dim = 0

    @property
    def origin(self) -> str:
        """The place in the user's program that the node comes from, looked up on demand."""
        return origin_text(self.scope, self.loc)

    @property
    def cost(self) -> tuple[float, float]:
        """Bytes and FLOPs as numbers by which the ledger is sorted; every named size counts as 1."""
        return _number(self.bytes), _number(self.flops)

    def __str__(self) -> str:
        where = f" ({self.origin})" if self.origin else ""
        return f"{self.pass_name}: {self.node}{where}: {self.reason}"


class Ledger(Printed, list[Refusal]):
    """Refusals, the most expensive first; prints as a table."""

    @property
    def about(self) -> str:
        return f"{number_of(len(self), 'refusal')}"

    def __rich__(self) -> Any:
        if not self:
            return "nothing was refused"
        table = borderless(("pass", "node", "why not"), ("bytes", "FLOPs"))
        for entry in self:
            node = f"{entry.node} ({entry.origin})" if entry.origin else entry.node
            table.add_row(entry.pass_name, node, entry.reason, _shown(entry.bytes), _shown(entry.flops))
        return table


@checked
def ledger(module: GraphModule) -> Ledger:
    """Everything the passes that made this module refused to do, the most expensive first."""
    entries = Ledger(refusals(module))
    entries.sort(key=lambda entry: entry.cost, reverse=True)
    return entries


def refusals(module: GraphModule) -> list[Refusal]:
    """The same refusals, in the order in which they were recorded."""
    to_come = module.__dict__.pop("_ledger_to_come", None)
    if to_come is not None:
        to_come()
    notes = module.__dict__.pop("_trace_notes", {})
    if notes:
        said = [Refusal("trace", kind, text, None, loc) for loc, (kind, text) in notes.items()]
        set_ledger(module, [*said, *module.__dict__.get("_ledger", ())])
    return list(module.__dict__.get("_ledger", ()))


@checked
def refuse(module: GraphModule, pass_name: str, node: Node, reason: str, nodes: Sequence[Node] = ()) -> None:
    """Record in the module's ledger that the pass left ``node`` alone; ``nodes`` are all nodes that
    it would have replaced."""
    add_refusals(module, [refusal(pass_name, node, reason, nodes)])


def refusal(pass_name: str, node: Node, reason: str, nodes: Sequence[Node] = ()) -> Refusal:
    """An entry of the ledger, with its estimated cost."""
    stored: Dim = 0
    flops: Dim = 0
    for each in nodes:
        flops = flops + (node_cost(each).flops or 0)
        if each is not node and isinstance(each.type, TensorType):
            stored = stored + each.type.nbytes
    names = tuple(n.name for n in nodes)
    costs = shapes.normalize(stored), shapes.normalize(flops)
    return Refusal(pass_name, node.name, reason, node.scope, node.loc, names, *costs)


def add_refusals(module: GraphModule, entries: Sequence[Refusal]) -> None:
    """Add refusals to the module's ledger."""
    module.__dict__.setdefault("_ledger", []).extend(entries)


def expect_refusals(module: GraphModule, to_come: Callable[[], Any]) -> None:
    """Call ``to_come``, which adds more refusals, when the module's ledger is first read."""
    module.__dict__["_ledger_to_come"] = to_come


def copy_with_ledger(module: GraphModule) -> GraphModule:
    """A copy of a module, which was refused the same."""
    made = module.copy()
    made.__dict__["_ledger"] = refusals(module)
    return made


def set_ledger(module: GraphModule, entries: list[Refusal]) -> None:
    """Give a module the ledger of the module it was made from."""
    module.__dict__["_ledger"] = list(entries)


def _number(dim: Dim) -> float:
    return float(shapes.substitute(dim, dict.fromkeys(shapes.names(dim), 1)))


def _shown(dim: Dim) -> str:
    return f"{dim:,}" if isinstance(dim, int) else shapes.to_text(dim)


# -- where nodes come from -------------------------------------------------------------------------
FROM = "from"


def note_origins(name: str, graph: Graph, position: int) -> None:
    """Record the origins of the nodes created since the journal had ``position`` records."""
    records = graph.journal.records[position:]
    made: dict[Node, None] = {r: None for r in records if r.__class__ is Node}
    removed: dict[Node, int] = {}  # the last record that mentions each removed node
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
    """The same for a graph that a pass built from scratch: nodes whose names are not in ``before``."""
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
    """Let a removed node be the origin of the nodes at its place that have none yet."""
    for node in waiting.pop(_place(gone), ()):
        origins[node] = gone


def _named(node: Node, by_name: dict[Any, Node]) -> Node | None:
    """The removed node of this name, or of a name that is a prefix of this one."""
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
    for node in reversed(left):  # nodes that were made only for other new nodes
        chains = ((n._meta or {}).get(FROM) for n in (*node.users, *node.all_input_nodes))
        chain = next(filter(None, chains), None)
        if chain:
            node.meta[FROM] = chain
