"""The facts that a page's panel shows about a node or a module: operands, cost, time, place in the
program, kernels, and the passes that touched it.

In: a report, one of its stages, and a part of the stage's outline. Out: plain data, mostly rows of a
name and a text.

In addition: the lines of the user's program around the places of nodes, each once.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fxlite.base.location import Location
from fxlite.graph.graph import Node, nodes_in
from fxlite.ops.op import Op
from fxlite.passes.costing.costs import dim_text
from fxlite.passes.profiling.profile import Setting
from fxlite.passes.profiling.record import Profile, Row
from fxlite.passes.profiling.tables import reached_text, seconds_text
from fxlite.show.drawing.outline import Outline, Part
from fxlite.show.node_cost import Cost, node_cost, quantity_text, sum_of_costs, total, weights_by_node, weights_of
from fxlite.show.text.pretty import type_text, value_text
from fxlite.types.shapes import Dim, names

if TYPE_CHECKING:
    from fxlite.codegen.reporting.report import ModelReport, Stage


#: Lines shown before and behind the one of a node.
CONTEXT = 6


class SourceLines:
    """Collects lines by file."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._lines: list[dict[int, str]] = []

    def place(self, location: Location | None) -> dict[str, Any] | None:
        """The number of the file, the line, and the first and last column of the expression (None:
        unknown); None if the source is not available."""
        if location is None:
            return None
        lines = location.file_lines()
        if not 0 < location.line <= len(lines):
            return None
        number = self._numbers.setdefault(location.file, len(self._lines))
        if number == len(self._lines):
            self._lines.append({})
        first = max(1, location.line - CONTEXT)
        for line in range(first, min(len(lines), location.line + CONTEXT) + 1):
            self._lines[number][line] = lines[line - 1].rstrip()
        return {"file": number, "line": location.line, "columns": location.columns}

    def data(self) -> list[dict[str, Any]]:
        """The name and lines of each file. A name is a path below the current folder, or else without
        folders, because a page should not reveal where a user keeps files."""
        return [{"name": _shown_name(file), "lines": self._lines[number]} for file, number in self._numbers.items()]


def _shown_name(file: str) -> str:
    folder = os.path.join(os.getcwd(), "")
    return file.removeprefix(folder) if file.startswith(folder) else os.path.basename(file)


Rows = list[tuple[str, str]]

#: Different costs of nodes that are added up in a formula.
_MOST_TERMS = 24


class Facts:
    """Facts about the parts of one stage's outline."""

    def __init__(self, report: ModelReport, stage: Stage, outline: Outline, source: SourceLines):
        self.report, self.stage, self.outline, self.source = report, stage, outline, source
        self.setting = Setting(report.dims, None, 1)
        self._amounts: dict[tuple[Dim | None, str], str] = {}
        self.seconds: dict[str, float] = {}
        self.row_of: dict[str, Row] = {}
        if stage.profile is not None:
            seconds = stage.profile.node_seconds()
            self.seconds = {node.name: value for node, value in seconds.items()}
            for row in stage.profile.rows:
                for part in row.parts:
                    self.row_of.setdefault(part.node.name, row)
        self.weights = weights_by_node(stage.module)
        self.kernels = _kernels(report, stage)
        is_traced = stage is report.traced
        self.history = report.history.traced if is_traced else report.history.optimized
        self.copies: dict[int, list[Node]] = {}
        for place, drawn in enumerate(outline.drawn_as):
            self.copies.setdefault(drawn, []).append(outline.nodes[place])

    def flops(self) -> dict[str, float]:
        """FLOPs of each node at the report's sizes, by name."""
        costs = self.stage.costs.by_node.items()
        return {node.name: float(self.setting.number(cost.flops) or 0) for node, cost in costs}

    def of(self, part: Part) -> dict[str, Any]:
        """The facts about a node, or about a module (or another box)."""
        found = self._of_box(part) if part.children else self._of_node(part)
        return {name: value for name, value in found.items() if value}

    # -- nodes ---------------------------------------------------------------------------------
    def _of_node(self, part: Part) -> dict[str, Any]:
        node = self.outline.nodes[part.start]
        copies = self.copies[part.start]
        kernels = [k for copy in copies for k in self.kernels.get(copy.name, ())]
        return {
            "inputs": _operands(node),
            "cost": self._costs(node),
            "time": self._time(node, copies),
            "source": self.source.place(node.loc),
            "kernels": self.kernels.get(node.name, ()),
            "others": len(dict.fromkeys(kernels)) - len(self.kernels.get(node.name, ())),
            "history": list(self.history.get(node.name, ())),
        }

    def _costs(self, node: Node) -> Rows:
        costs = self.stage.costs.by_node.get(node)
        if costs is None:  # not a call
            return []
        formulas = node_cost(node)
        rows = [
            ("FLOPs", self._amount(formulas.flops)),
            ("bytes read", self._amount(formulas.read, "B")),
            ("bytes written", self._amount(formulas.written, "B")),
            ("FLOPs per byte", self._intensity(formulas)),
        ]
        if costs.parameters != 0:
            rows.append(("parameters", self._amount(costs.parameters)))
        if costs.peak is not None:
            rows.append(("memory meanwhile", self._amount(costs.peak, "B")))
        return rows

    def _amount(self, value: Dim | None, unit: str = "") -> str:
        """A number, or a formula with its value."""
        if (value, unit) not in self._amounts:
            text = dim_text(value, unit)
            if value is not None and names(value) and (found := self.setting.number(value)) is not None:
                text += f" = {dim_text(found, unit)}"
            self._amounts[value, unit] = text
        return self._amounts[value, unit]

    def _intensity(self, cost: Cost) -> str:
        flops, moved = self.setting.number(cost.flops), self.setting.number(cost.bytes)
        if flops is None or moved is None:
            return "?"
        return quantity_text(flops / moved) if moved else "moves no bytes"

    # -- times ---------------------------------------------------------------------------------
    def _time(self, node: Node, copies: Sequence[Node]) -> Rows:
        profile = self.stage.profile
        if profile is None or not node.op.startswith("call_"):
            return []
        row = self.row_of.get(node.name)
        rows: Rows = [("", "none of its own: its value is a view")]
        if row is not None:
            rows = _row_facts(row, profile)
            if len(row.parts) > 1:
                own = seconds_text(self.seconds[node.name])
                rows.append(("this node", f"about {own} of the kernel's time, by its FLOPs"))
        if len(copies) > 1:
            rows.append((f"all {len(copies)} copies", self._together(copies)))
        return rows

    def _together(self, nodes: Sequence[Node]) -> str:
        seconds = sum(self.seconds.get(node.name, 0.0) for node in nodes)
        profile = self.stage.profile
        assert profile is not None
        return f"{seconds_text(seconds)}, {seconds / (profile.rows_seconds or 1):.1%} of the time"

    # -- modules -------------------------------------------------------------------------------
    def _of_box(self, part: Part) -> dict[str, Any]:
        inside = self.outline.nodes[part.start : part.stop]
        calls = [node for node in inside if node.op.startswith("call_")]
        parameters = [w for w in weights_of(calls, self.weights) if w.is_parameter]
        flops, moved = self._work(calls)
        cost: Rows = [
            ("FLOPs", self._amount(flops)),
            ("bytes", self._amount(moved, "B")),
            ("parameters", f"{sum(w.size for w in parameters):,}"),
        ]
        time: Rows = []
        if self.stage.profile is not None:
            time.append(("in this one" if part.times > 1 else "in all", self._together(calls)))
            if part.times > 1:
                copies = self.outline.nodes[part.start : part.end]
                time.append((f"in all {part.times}", self._together(copies)))
        if part.times > 1:
            every = None if flops is None else flops * part.times
            cost.append((f"FLOPs of all {part.times}", self._amount(every)))
        kernels = [k for node in calls for k in self.kernels.get(node.name, ())]
        return {"cost": cost, "time": time, "runs": list(dict.fromkeys(kernels))}

    def _work(self, calls: Sequence[Node]) -> tuple[Dim | None, Dim | None]:
        """The FLOPs and bytes of all calls: formulas, or numbers if the formulas would have many terms."""
        formulas = Counter(map(node_cost, calls))
        if len(formulas) > _MOST_TERMS:
            costs = [self.stage.costs.by_node[node] for node in calls]
            return total((c.flops, 1) for c in costs), total((c.bytes, 1) for c in costs)
        found = sum_of_costs(formulas)
        return found.flops, found.bytes


def _operands(node: Node) -> Rows:
    """The names and types of a call's operands."""
    if not isinstance(node.target, Op):
        return [(value_text(n), _type(n)) for n in node.all_input_nodes]
    return [
        (name, f"{value_text(read)}: {_type(read)}")
        for name, value in node.arguments.items()
        for read in nodes_in(value)
    ]


def _type(node: Node) -> str:
    return "type unknown" if node.type is None else type_text(node.type)


def _row_facts(row: Row, profile: Profile) -> Rows:
    """The measurements of a node or kernel."""
    is_kernel = profile.target.part == "kernel"
    rows = [
        (
            f"{'kernel ' * is_kernel}in {profile.target.runner}",
            f"{row.name}: {seconds_text(row.median)}" if is_kernel else seconds_text(row.median),
        ),
        ("least", seconds_text(row.least)),
        ("share", f"{row.median / (profile.rows_seconds or 1):.1%} of the time"),
    ]
    rates = []
    if row.flops_per_second:
        rates.append(quantity_text(row.flops_per_second, "FLOP/s"))
    if row.bytes_per_second:
        rates.append(quantity_text(row.bytes_per_second, "B/s"))
    if rates:
        rows.append(("rate", ", ".join(rates)))
    if row.efficiency is not None:
        rows.append(("bound by", f"{row.bound}; reaches {reached_text(row.efficiency)} of that roof"))
    return rows


def _kernels(report: ModelReport, stage: Stage) -> dict[str, list[int]]:
    """Numbers of the kernels that compute a node, by its name; for a traced node those of the nodes that
    replaced it."""
    found: dict[str, list[int]] = {}
    if report.program is None:
        return found
    for number, call in enumerate(report.program.calls):
        for node in call.group.members:
            found.setdefault(node.name, []).append(number)
    if stage is report.optimized:
        return found
    return {
        name: list(dict.fromkeys(k for each in became for k in found.get(each, ())))
        for name, became in report.history.became.items()
    }
