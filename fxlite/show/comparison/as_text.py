"""A diff as lines of text, plain or coloured for a terminal.

In: a GraphDiff and a width in columns. Out: lines with the marks ``-`` (before), ``+`` (after),
``~`` (another type, or a weight) and none (unchanged, or a note), wrapped to the width; runs of
unchanged lines are folded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from fxlite.graph.graph import Node
from fxlite.show.comparison.changes import NodeChange, Row, WeightChange, line
from fxlite.show.comparison.compare import title
from fxlite.show.node_cost import Cost, short_text
from fxlite.show.text.line_breaking import wrap_code
from fxlite.show.text.pretty import attribute_text
from fxlite.types import shapes
from fxlite.types.shapes import Dim

if TYPE_CHECKING:
    from rich.text import Text

    from fxlite.show.comparison.graph_diff import GraphDiff

#: Weights that are listed; ``diff.weights`` has all.
MOST_WEIGHTS = 24
_STYLES = {"-": "red", "+": "green", "~": "yellow", " ": "dim", "#": "cyan", "": "bold"}


@dataclass(frozen=True)
class Line:
    """A line: ``style`` is its mark, "#" for a note and "" for the summary."""

    style: str
    text: str

    def __str__(self) -> str:
        mark = self.style if self.style in ("-", "+", "~") else " "
        return f"{mark} {self.text}" if self.style else self.text


def diff_text(diff: GraphDiff, width: int = 100) -> str:
    """The whole as text of at most ``width`` columns where lines can be broken."""
    return "\n".join(str(line).rstrip() for line in diff_lines(diff, width))


def rich_lines(diff: GraphDiff, width: int) -> Iterator[Text]:
    """The same in colour."""
    from rich.text import Text

    for item in diff_lines(diff, width):
        yield Text(str(item).rstrip(), style=_STYLES[item.style], no_wrap=True, overflow="ignore")


def diff_lines(diff: GraphDiff, width: int = 100) -> Iterator[Line]:
    """Nodes, weights, summary and costs."""
    if diff.added or diff.removed or diff.changed:
        origin = ""  # shown where it is another than that of the change before
        for part in folded(diff.rows, diff.context):
            if isinstance(part, list):
                yield Line(" ", f"… {len(part)} lines")
            elif isinstance(part, NodeChange):
                yield from _change_lines(part, width, part.node.origin != origin)
                origin = part.node.origin
            else:
                yield from _code(" ", line(part), width)
    yield from _weight_lines(diff.weights, width)
    yield Line("", diff.summary)
    yield from _total_lines(diff, width)


def folded(rows: Sequence[Row], context: int) -> Iterator[Row | list[Node]]:
    """Changes, up to ``context`` unchanged nodes on both sides of them, and lists of the nodes in
    between; reads of weights are left out."""
    shown = [row for row in rows if isinstance(row, NodeChange) or row.op != "get_attr"]
    near = [False] * len(shown)
    for place, row in enumerate(shown):
        if isinstance(row, NodeChange):
            low, high = max(place - context, 0), min(place + context + 1, len(shown))
            near[low:high] = [True] * (high - low)
    for is_near, group in groupby(zip(near, shown), key=itemgetter(0)):
        nodes = [row for _, row in group]
        if is_near or len(nodes) == 1:  # one line in place of one line saves nothing
            yield from nodes
        else:
            yield [node for node in nodes if isinstance(node, Node)]


def _code(mark: str, text: str, width: int, note: str = "") -> list[Line]:
    """A line of code, broken to the width, with a note behind it or before it."""
    whole = f"{text}  # {note}" if note else text
    if len(whole) <= width - 2:
        return [Line(mark, whole)]
    before = _note(note, width)
    return [*before, *(Line(mark, part) for part in wrap_code(text, width - 2))]


def _note(text: str, width: int) -> list[Line]:
    """A comment, broken between its parts."""
    lines: list[Line] = []
    current = "#"
    for part in text.split("; ") if text else ():
        if current != "#" and len(current) + len(part) + 4 > width:
            lines.append(Line("#", current))
            current = "#  "
        current += f"; {part}" if len(current) > 3 else f" {part}"
    return [*lines, Line("#", current)] if text else []


def _change_lines(change: NodeChange, width: int, with_origin: bool) -> Iterator[Line]:
    parts = cost_texts(change)
    if with_origin and change.node.origin and change.node.op != "output":
        parts.append(change.node.origin)
    if change.kind == "removed":
        yield from _code("-", change.old_text, width, "; ".join(parts))
    elif change.kind == "added":
        yield from _code("+", change.new_text, width, "; ".join(parts))
    elif [what for what, _, _ in change.what] == ["type"]:
        yield from _code("~", retyped_text(change), width, "; ".join(parts))
    else:
        facts = [fact_text(*found) for found in change.what]
        facts[0] = f"{title(change.node)}: {facts[0]}"
        yield from _note("; ".join([*facts, *parts]), width)
        yield from _code("-", change.old_text, width)
        yield from _code("+", change.new_text, width)


def retyped_text(change: NodeChange) -> str:
    """``relu: f32[2,4] → f32[3,4] = ops.relu(x)``: a change of the type alone, in one line."""
    _, before, after = change.what[0]
    if change.node.op == "output":
        return f"{change.new_text}: {before} → {after}"
    return change.new_text.replace(f": {after}", f": {before} → {after}", 1)


def cost_texts(change: NodeChange) -> list[str]:
    """``["+12 FLOPs", "-48 bytes"]``, without those that stay or are unknown."""
    deltas = [
        (cost_difference(change.old_cost, change.new_cost, unit), unit)
        for unit in ("FLOPs", "bytes")
    ]
    return [f"{signed(delta)} {unit}" for delta, unit in deltas if delta is not None and delta != 0]


def fact_text(what: str, before: str, after: str) -> str:
    """``axis 1 → 0``"""
    return f"{before} → {after}" if what == "op" else f"{what} {before} → {after}"


def cost_difference(before: Cost, after: Cost, unit: str) -> Dim | None:
    """After less before, in FLOPs or bytes; None where it is unknown."""
    one, other = (c.flops if unit == "FLOPs" else c.bytes for c in (before, after))
    return None if one is None or other is None else shapes.normalize(other - one)


def signed(value: Dim) -> str:
    """``+1.2k``, ``-3*B``."""
    text = short_text(value)
    return text if text.startswith("-") else f"+{text}"


# -- weights and totals ----------------------------------------------------------------------------
def _weight_lines(weights: Sequence[WeightChange], width: int) -> Iterator[Line]:
    marks = {"removed": "-", "added": "+", "changed": "~", "renamed": "~"}
    for change in weights[:MOST_WEIGHTS]:
        yield from (
            Line(marks[change.kind], part) for part in _wrap(weight_text(change), width - 2)
        )
    if len(weights) > MOST_WEIGHTS:
        yield Line(" ", f"… {len(weights) - MOST_WEIGHTS} more weights")


def weight_text(change: WeightChange) -> str:
    """``self.fc.weight f32[3,4]: differs in 12 of 12 elements, by at most 0.0131``."""
    old, new = (attribute_text(p) if p else "" for p in (change.old_path, change.new_path))
    if change.kind == "removed":
        return f"{old} {change.old_type}"
    if change.kind == "added":
        return f"{new} {change.new_type}"
    if change.kind == "renamed":
        return f"{old} → {new} {change.new_type}: the same values"
    if change.differing is None:
        return f"{new} {change.old_type} → {change.new_type}"
    size = change.new_type.size if change.new_type is not None else 0
    return (
        f"{new} {change.new_type}: differs in {change.differing} of {size} elements, by at most "
        f"{change.max_difference:.3g}"
    )


def _wrap(text: str, width: int) -> list[str]:
    """Words in lines of at most ``width`` columns; further lines are indented."""
    lines: list[str] = []
    for word in text.split(" "):
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(f"    {word}" if lines else word)
    return lines


def _total_lines(diff: GraphDiff, width: int) -> Iterator[Line]:
    for name, before, after in totals(diff):
        if before is None or after is None:
            told = "unknown" if diff else ""
        elif shapes.equal(before, after):
            continue
        else:
            told = f"{short_text(before)} → {short_text(after)}  ({_gain(before, after)})"
        yield from (Line("", part) for part in _wrap(f"{name:<13} {told}", width) if told)


def totals(diff: GraphDiff) -> list[tuple[str, Dim | None, Dim | None]]:
    """(name, before, after) of the costs of the whole graphs."""
    return [
        ("FLOPs", diff.before.flops, diff.after.flops),
        ("bytes moved", diff.before.bytes, diff.after.bytes),
        ("weight bytes", *diff.weight_bytes),
    ]


def _gain(before: Dim, after: Dim) -> str:
    """``-20 %`` for numbers, the difference for formulas."""
    change = shapes.normalize(after - before)
    if isinstance(before, int) and isinstance(after, int) and before:
        return f"{100 * (after - before) / before:+.3g} %"
    return signed(change)
