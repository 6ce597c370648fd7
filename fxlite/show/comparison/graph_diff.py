"""What an edit changed: nodes removed, added and changed, weights by value, and the cost of it.

In: two graphs or GraphModules. Out: a :class:`GraphDiff`, which is false where nothing changed and
prints as lines marked ``-`` and ``+``, as HTML and as JSON.

A node that reads another value than before is changed, unless the value it read was replaced as a
whole by something that is shown anyway: a node put in between is one line, a group that was fused
is so many removed and one added.

As data it is a dict of numbers, text, lists and dicts that ``json.dumps`` takes::

    {"format": "fxlite.diff", "version": 1,
     "same": bool,
     "summary": "2 removed, 1 added, 0 changed",
     "counts": {"removed": n, "added": n, "changed": n, "unchanged": n, "weights": n},
     "totals": {"flops": COST, "bytes": COST, "weight_bytes": COST},
     "nodes": [{"change": "removed" | "added" | "changed",
                "before": NODE or null, "after": NODE or null,
                "differences": [{"what": ..., "before": text, "after": text}],
                "flops": COST, "bytes": COST}],
     "weights": [{"change": "removed" | "added" | "changed" | "renamed",
                  "path_before": path or null, "path_after": path or null,
                  "type_before": type or null, "type_after": type or null,
                  "differing_elements": n or null,
                  "max_abs_difference": number, "inf" or null}]}

    COST  {"before": x, "after": x, "difference": x}: a number, a formula in the named dims as text,
          or null where it is unknown
    NODE  {"name", "op", "target", "text", "type": text or null, "scope": path, "class": name,
           "file": path or null, "line": number or null}

``nodes`` stand in the order of the new graph, removed ones where they stood. ``what`` is "op",
"type", "reads", "order", "arguments", "argument N" or the name of an attribute.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxlite.base.checked import checked
from fxlite.base.console import write_whole
from fxlite.base.state import paused_gc
from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule
from fxlite.ops.op import Op
from fxlite.show.comparison.changes import NodeChange, Row, WeightChange, changed_weights, find_rows
from fxlite.show.comparison.compare import graph_of
from fxlite.show.comparison.pairing import pair_nodes
from fxlite.show.node_cost import Cost, total, total_cost
from fxlite.show.text.pretty import type_text
from fxlite.types import shapes
from fxlite.types.shapes import Dim

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


@dataclass(frozen=True)
class GraphDiff:
    """What changed from one graph to another; false where nothing did.

    ``added``, ``removed`` and ``changed`` hold a :class:`NodeChange` each, ``weights`` a
    :class:`~fxlite.show.comparison.changes.WeightChange`. ``rows`` is the new graph in order, with
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
        from fxlite.show.comparison.written import diff_text

        return diff_text(self)

    __repr__ = __str__

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from fxlite.show.comparison.written import rich_lines

        yield from rich_lines(self, options.max_width)

    def to_json(self) -> dict[str, Any]:
        """The diff as data, as described in :mod:`fxlite.show.comparison.graph_diff`."""
        return to_json(self)

    def to_html(self, path: str | Path | None = None) -> str:
        """One page that needs nothing else; written to ``path`` if there is one. Returns it."""
        from fxlite.show.comparison.written import page

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


# -- as data ---------------------------------------------------------------------------------------
def to_json(diff: GraphDiff) -> dict[str, Any]:
    """The diff as described above."""
    counts = {kind: len(getattr(diff, kind)) for kind in ("removed", "added", "changed")}
    unchanged = [r for r in diff.rows if not isinstance(r, NodeChange) and r.op != "get_attr"]
    return {
        "format": "fxlite.diff",
        "version": 1,
        "same": not diff,
        "summary": diff.summary,
        "counts": {**counts, "unchanged": len(unchanged), "weights": len(diff.weights)},
        "totals": {
            "flops": _cost(diff.before.flops, diff.after.flops),
            "bytes": _cost(diff.before.bytes, diff.after.bytes),
            "weight_bytes": _cost(*diff.weight_bytes),
        },
        "nodes": [_change(row) for row in diff.rows if isinstance(row, NodeChange)],
        "weights": [_weight(change) for change in diff.weights],
    }


def _change(change: NodeChange) -> dict[str, Any]:
    return {
        "change": change.kind,
        "before": None if change.old is None else _node(change.old, change.old_text),
        "after": None if change.new is None else _node(change.new, change.new_text),
        "differences": [{"what": what, "before": before, "after": after} for what, before, after in change.what],
        "flops": _cost(change.old_cost.flops, change.new_cost.flops),
        "bytes": _cost(change.old_cost.bytes, change.new_cost.bytes),
    }


def _node(node: Node, text: str) -> dict[str, Any]:
    return {
        "name": node.name,
        "op": node.op,
        "target": node.target.name if isinstance(node.target, Op) else str(node.target),
        "text": text,
        "type": None if node.type is None else type_text(node.type),
        "scope": node.module_path,
        "class": node.scope.class_name if node.scope is not None else "",
        "file": node.loc.file if node.loc is not None else None,
        "line": node.loc.line if node.loc is not None else None,
    }


def _weight(change: WeightChange) -> dict[str, Any]:
    largest = change.max_difference
    return {
        "change": change.kind,
        "path_before": change.old_path,
        "path_after": change.new_path,
        "type_before": None if change.old_type is None else str(change.old_type),
        "type_after": None if change.new_type is None else str(change.new_type),
        "differing_elements": change.differing,
        "max_abs_difference": "inf" if largest is not None and math.isinf(largest) else largest,
    }


def _cost(before: Dim | None, after: Dim | None) -> dict[str, Any]:
    difference = None
    if before is not None and after is not None:
        difference = shapes.normalize(after - before)
    values = {"before": before, "after": after, "difference": difference}
    return {
        key: value if value is None or isinstance(value, int) else shapes.to_text(value)
        for key, value in values.items()
    }
