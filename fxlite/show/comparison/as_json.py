"""A diff as data.

In: a GraphDiff. Out: a dict of numbers, text, lists and dicts that ``json.dumps`` takes::

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
from typing import TYPE_CHECKING, Any

from fxlite.graph.graph import Node
from fxlite.ops.op import Op
from fxlite.show.comparison.changes import NodeChange
from fxlite.show.comparison.weights import WeightChange
from fxlite.show.text.pretty import type_text
from fxlite.types import shapes
from fxlite.types.shapes import Dim

if TYPE_CHECKING:
    from fxlite.show.comparison.graph_diff import GraphDiff


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
        "differences": [
            {"what": what, "before": before, "after": after} for what, before, after in change.what
        ],
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
        "scope": node.scope.path if node.scope is not None else "",
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
