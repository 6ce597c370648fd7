"""What an edit changed: nodes removed, added and changed, weights by value, and the cost of it.

In: two graphs or GraphModules. Out: a :class:`GraphDiff`, which is false where nothing changed and
prints as lines marked ``-`` and ``+``, as HTML and as JSON.

A node that reads another value than before is changed, unless the value it read was replaced as a
whole by something that is shown anyway: a node put in between is one line, a group that was fused
is so many removed and one added.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxlite.base.checked import checked
from fxlite.base.paused_gc import paused_gc
from fxlite.base.whole import write_whole
from fxlite.graph.graph import Graph
from fxlite.graph.graph_module import GraphModule
from fxlite.show.comparison.changes import NodeChange, Row, find_rows
from fxlite.show.comparison.compare import graph_of
from fxlite.show.comparison.pairing import pair_nodes
from fxlite.show.comparison.weights import WeightChange, changed_weights
from fxlite.show.node_cost import Cost, total, total_cost
from fxlite.types.shapes import Dim

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


@dataclass(frozen=True)
class GraphDiff:
    """What changed from one graph to another; false where nothing did.

    ``added``, ``removed`` and ``changed`` hold a :class:`NodeChange` each, ``weights`` a
    :class:`~fxlite.show.comparison.weights.WeightChange`. ``rows`` is the new graph in order, with
    removed nodes where they stood; in text all but ``context`` unchanged lines around a change are
    folded. ``before`` and ``after`` are the costs of the whole graphs, with bytes of weights apart.
    Unchanged nodes are read when the diff is shown: show it before the graph is edited again."""

    added: tuple[NodeChange, ...]
    removed: tuple[NodeChange, ...]
    changed: tuple[NodeChange, ...]
    weights: tuple[WeightChange, ...]
    rows: tuple[Row, ...]
    before: Cost
    after: Cost
    weight_bytes: tuple[Dim | None, Dim | None]
    context: int = 3

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.weights)

    @property
    def summary(self) -> str:
        """``2 removed, 1 added, 0 changed; weights: 3 removed``, or ``no difference``."""
        if not self:
            return "no difference"
        kinds = ("removed", "added", "changed")
        counts = ", ".join(f"{len(getattr(self, kind))} {kind}" for kind in kinds)
        of_weights = Counter(w.kind for w in self.weights)
        told = ", ".join(f"{of_weights[k]} {k}" for k in (*kinds, "renamed") if of_weights[k])
        return f"{counts}; weights: {told}" if told else counts

    def __str__(self) -> str:
        from fxlite.show.comparison.as_text import diff_text

        return diff_text(self)

    __repr__ = __str__

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from fxlite.show.comparison.as_text import rich_lines

        yield from rich_lines(self, options.max_width)

    def to_json(self) -> dict[str, Any]:
        """The diff as data, as described in :mod:`fxlite.show.comparison.as_json`."""
        from fxlite.show.comparison.as_json import to_json

        return to_json(self)

    def to_html(self, path: str | Path | None = None) -> str:
        """One page that needs nothing else; written to ``path`` if there is one. Returns it."""
        from fxlite.show.comparison.html import page

        text = page(self)
        if path is not None:
            write_whole(path, text)
        return text


@checked
def diff(a: Graph | GraphModule, b: Graph | GraphModule, context: int = 3) -> GraphDiff:
    """What changed from ``a`` to ``b``, whatever the names.

    Nodes are paired by name and by what they compute, from the inputs and from the outputs. For two
    GraphModules the weights that are read are compared by value. Time is near-linear in the number
    of nodes. Raises TypeError for anything else."""
    graph_a, graph_b = graph_of(a), graph_of(b)
    modules = (a, b) if isinstance(a, GraphModule) and isinstance(b, GraphModule) else None
    weights = changed_weights(graph_a, graph_b, modules)
    renamed = {str(w.new_path): str(w.old_path) for w in weights if w.kind == "renamed"}
    with paused_gc():
        pairs = pair_nodes(graph_a, graph_b, renamed)
        rows = tuple(find_rows(graph_a, graph_b, pairs, renamed))
        before, after = total_cost(graph_a), total_cost(graph_b)
    found: dict[str, list[NodeChange]] = {"added": [], "removed": [], "changed": []}
    for row in rows:
        if isinstance(row, NodeChange):
            found[row.kind].append(row)
    return GraphDiff(
        **{kind: tuple(items) for kind, items in found.items()},
        weights=tuple(weights),
        rows=rows,
        before=before,
        after=after,
        weight_bytes=(_weight_bytes(graph_a), _weight_bytes(graph_b)),
        context=context,
    )


def _weight_bytes(graph: Graph) -> Dim | None:
    types = {n.target: n.type for n in graph.nodes if n.op == "get_attr"}
    return total((None if type is None else type.nbytes, 1) for type in types.values())
