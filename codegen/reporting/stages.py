"""A graph of a report as data: its picture, coloured in each way, with the facts about each part.

In: a report and one of its stages. Out: plain data for ``report.js`` and a
:class:`~fxlite.show.drawing.picture.Picture` for a page without scripts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fxlite.codegen.reporting.facts import Facts
from fxlite.codegen.reporting.source import SourceLines
from fxlite.graph.graph import Node
from fxlite.show.drawing.colours import (
    CHANGES,
    DTYPES,
    KINDS,
    OTHER,
    SCHEMES,
    Colour,
    Colours,
    by_share,
    kind_of,
)
from fxlite.show.drawing.outline import Outline, Part, close_below, outline
from fxlite.show.drawing.page import page_data
from fxlite.show.drawing.picture import Picture, ratios_by_node
from fxlite.show.node_cost import short_text
from fxlite.types.tensor_type import TensorType

if TYPE_CHECKING:
    from fxlite.codegen.reporting.report import ModelReport, Stage

#: Nodes and boxes of a stage that a page holds at most; what does not fit stays closed.
LARGEST_STAGE = 5_000


def stage_data(
    report: ModelReport, stage: Stage, source: SourceLines
) -> tuple[dict[str, Any], Picture]:
    """The data of a stage, and its picture, coloured by op."""
    changes = _changes(report, stage)
    found = outline(stage.module.graph, marks=changes)
    close_below(found, None)
    facts = Facts(report, stage, found, source)
    colours = _colours(found, facts, changes)
    ratios = ratios_by_node(stage.module.graph, report.sqnr)
    if ratios:
        colours["SQNR"] = SCHEMES["sqnr"](found, ratios)
    palette: dict[Colour, int] = {}

    def number(colour: Colour) -> int:
        return palette.setdefault(colour, len(palette))

    def more(part: Part) -> dict[str, Any]:
        paint = {name: [number(c.of(part)), c.note(part)] for name, c in colours.items()}
        return {"paint": paint, "facts": facts.of(part)}

    drawn = Picture(found, colours["op"], "")
    data = page_data(drawn, more, LARGEST_STAGE)
    for part in data["parts"]:
        if "source" in part["facts"]:  # its lines are shown
            part["details"] = [row for row in part["details"] if row[0] != "source"]

    data |= {
        "title": stage.title,
        "nodes": len(found.nodes),
        "held": sum(part["kind"] == "node" for part in data["parts"]),
        "colours": {
            name: {"legend": [(row, number(c)) for row, c in colour.legend],
                   "remark": colour.remark}
            for name, colour in colours.items()
        },
    }  # fmt: skip
    numbers = {p["label"]: n for n, p in enumerate(data["parts"]) if p["kind"] == "node"}
    pairs = ((n.name, found.nodes[place].name) for n, place in zip(found.nodes, found.drawn_as))
    data["aliases"] = {
        name: numbers[drawn] for name, drawn in pairs if name != drawn and drawn in numbers
    }
    data["palette"] = list(palette)
    return data, drawn


def _changes(report: ModelReport, stage: Stage) -> dict[Node, str]:
    found = report.changes
    if stage is report.traced:
        gone = {change.node: "removed" for change in found.removed}
        return gone | {c.old: "changed" for c in found.changed if c.old is not None}
    new = {change.node: "added" for change in found.added}
    return new | {change.node: "changed" for change in found.changed}


def _colours(found: Outline, facts: Facts, changes: Mapping[Node, str]) -> dict[str, Colours]:
    """The ways to colour, each with a legend for all nodes, those in closed boxes, too."""
    dtypes = (repr(n.type.dtype) for n in found.nodes if isinstance(n.type, TensorType))
    kinds = (kind_of(n) for n in found.nodes)
    colours = {
        "op": _with_legend(SCHEMES["op"](found, None), kinds, KINDS),
        "dtype": _with_legend(SCHEMES["dtype"](found, None), dtypes, DTYPES),
        "change": _with_legend(
            SCHEMES["change"](found, changes),
            (changes.get(n, "unchanged") for n in found.nodes), CHANGES,
        ),
        "FLOPs": by_share(found, facts.flops(), _flops_text, "of the FLOPs"),
    }  # fmt: skip
    if facts.stage.profile is not None:
        colours["time"] = SCHEMES["time"](found, facts.seconds)
    return colours


def _with_legend(
    colours: Colours, names: Iterable[str], table: Mapping[str, Colour]
) -> Colours:  # fmt: skip
    legend = tuple((name, table.get(name, OTHER)) for name in dict.fromkeys(names))
    return Colours(colours.of, tuple(row for row in legend if row[0] != "input"), colours.note)


def _flops_text(value: float) -> str:
    return f"{short_text(int(value))} FLOPs"
