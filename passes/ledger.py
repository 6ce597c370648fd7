"""The ledger: what passes refused to do, why, and what that leaves on the table; what a back end
decided about kernels where there were alternatives; and what a trace made of loops.

In: refusals as passes meet them. Out: a list on the module they made, carried from pass to pass,
which prints as a table, the dearest first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fxlite.base.checked import checked
from fxlite.base.console import Printed
from fxlite.base.location import Location, Scope
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.node import origin_text
from fxlite.show.node_cost import node_cost, total
from fxlite.types import shapes
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType


@dataclass(frozen=True)
class Refusal:
    """One place where a pass did not fire, and why.

    ``nodes`` are the names of the nodes it would have replaced, ``bytes`` the size of the values
    between them, which would not be stored, ``flops`` their arithmetic: estimates, 0 where types
    are missing."""

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
        """Where the node comes from in the user's program, found out when somebody asks."""
        return origin_text(self.scope, self.loc)

    @property
    def cost(self) -> tuple[float, float]:
        """Bytes and FLOPs as numbers, every named size counting as 1: what the ledger is sorted
        by."""
        return _number(self.bytes), _number(self.flops)

    def __str__(self) -> str:
        where = f" ({self.origin})" if self.origin else ""
        return f"{self.pass_name}: {self.node}{where}: {self.reason}"


class Ledger(Printed, list[Refusal]):
    """Refusals, those that cost most first; prints as a table."""

    @property
    def about(self) -> str:
        return f"{len(self)} refusals"

    def __rich__(self) -> Any:
        from rich.table import Table

        if not self:
            return "nothing was refused"
        table = Table(box=None, header_style="bold", pad_edge=False)
        for heading in ("pass", "node", "why not"):
            table.add_column(heading, overflow="fold")
        for heading in ("bytes", "FLOPs"):
            table.add_column(heading, justify="right")
        for entry in self:
            node = f"{entry.node} ({entry.origin})" if entry.origin else entry.node
            table.add_row(entry.pass_name, node, entry.reason, _shown(entry.bytes), _shown(entry.flops))
        return table


@checked
def ledger(module: GraphModule) -> Ledger:
    """Everything the passes that made this module refused to do, the dearest first."""
    entries = Ledger(refusals(module))
    entries.sort(key=lambda entry: entry.cost, reverse=True)
    return entries


def refusals(module: GraphModule) -> list[Refusal]:
    """The same in the order in which it was refused."""
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
    """Note in the module's ledger that the pass left ``node`` alone; ``nodes`` are all those it
    would have replaced."""
    add_refusals(module, [refusal(pass_name, node, reason, nodes)])


def refusal(pass_name: str, node: Node, reason: str, nodes: Sequence[Node] = ()) -> Refusal:
    """An entry of the ledger, with its cost."""
    between = [n.type for n in nodes if n is not node and isinstance(n.type, TensorType)]
    stored = total([(type.nbytes, 1) for type in between]) or 0
    flops = total([(node_cost(n).flops or 0, 1) for n in nodes]) or 0
    names = tuple(n.name for n in nodes)
    return Refusal(pass_name, node.name, reason, node.scope, node.loc, names, stored, flops)


def add_refusals(module: GraphModule, entries: Sequence[Refusal]) -> None:
    """Enter refusals in the module's ledger."""
    module.__dict__.setdefault("_ledger", []).extend(entries)


def expect_refusals(module: GraphModule, to_come: Callable[[], Any]) -> None:
    """Call ``to_come``, which enters more refusals, when somebody reads the module's ledger."""
    module.__dict__["_ledger_to_come"] = to_come


def set_ledger(module: GraphModule, entries: list[Refusal]) -> None:
    """Give a module the ledger of the one it was made from."""
    module.__dict__["_ledger"] = list(entries)


def _number(dim: Dim) -> float:
    return float(shapes.substitute(dim, dict.fromkeys(shapes.names(dim), 1)))


def _shown(dim: Dim) -> str:
    return f"{dim:,}" if isinstance(dim, int) else shapes.to_text(dim)
