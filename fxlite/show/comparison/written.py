"""A diff as it is written: as one HTML page (no network, no fonts or scripts from elsewhere, light
and dark), or as lines of text, plain or coloured for a terminal.

In: a GraphDiff and a width in columns. Out: lines with the marks ``-`` (before), ``+`` (after),
``~`` (another type, or a weight) and none (unchanged, or a note), wrapped to the width; runs of
unchanged lines are folded. On the page they are ``<details>`` elements that open with a click, so
that it needs no script; what a node costs and where it comes from stands beside its line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from fxlite.base.outside_text import markup
from fxlite.graph.graph import Node
from fxlite.show.comparison.changes import NodeChange, Row, WeightChange, line
from fxlite.show.comparison.compare import title
from fxlite.show.node_cost import Cost, short_text
from fxlite.show.text.pretty import attribute_text, wrap_code
from fxlite.types import shapes
from fxlite.types.shapes import Dim

if TYPE_CHECKING:
    from rich.text import Text

    from fxlite.show.comparison.graph_diff import GraphDiff


# -- page ------------------------------------------------------------------------------------------
_STYLE = """\
:root { color-scheme: light dark; --page: #fff; --text: #1f2328; --faint: #59636e;
  --line: #d1d9e0; --fold: #eef2f6; --removed: #ffebe9; --added: #dafbe1; --red: #b3202a;
  --green: #116329; --yellow: #7d4e00; }
@media (prefers-color-scheme: dark) { :root { --page: #0d1117; --text: #e6edf3;
  --faint: #9198a1; --line: #3d444d; --fold: #1a212b; --removed: #3c1418; --added: #12341d;
  --red: #ff938a; --green: #56d364; --yellow: #e3b341; } }
body { margin: 2rem auto; max-width: 90rem; padding: 0 1rem; background: var(--page);
  color: var(--text); font: 14px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.3rem; margin: 0 0 .3rem; }
h2 { font-size: 1rem; margin: 1.6rem 0 .5rem; }
.summary { margin: 0 0 1rem; color: var(--faint); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: .15rem .9rem .15rem 0; text-align: left; vertical-align: top; }
th { color: var(--faint); font-weight: 500; }
.graph { border: 1px solid var(--line); border-radius: 6px; overflow: hidden; }
.row { display: grid; grid-template-columns: 1.4rem minmax(0, 1fr) minmax(0, 22rem);
  gap: .3rem; padding: .1rem .6rem; }
.row code, .weights code { font: 12.5px/1.6 ui-monospace, Menlo, Consolas, monospace;
  white-space: pre-wrap; overflow-wrap: anywhere; }
.side { color: var(--faint); font-size: 12px; line-height: 1.7; overflow-wrap: anywhere; }
.removed { background: var(--removed); } .added { background: var(--added); }
.removed .mark, .gain { color: var(--red); } .added .mark, .saved { color: var(--green); }
.note { padding: .3rem .6rem .1rem 2.3rem; color: var(--yellow); font-size: 12.5px;
  overflow-wrap: anywhere; }
.mark { text-align: center; font-family: ui-monospace, monospace; user-select: none; }
summary { cursor: pointer; padding: .15rem .6rem .15rem 2.3rem; background: var(--fold);
  color: var(--faint); font-size: 12.5px; }
summary:hover { color: var(--text); }
ul.weights { list-style: none; margin: 0; padding: 0; }
@media (max-width: 50rem) { .row { grid-template-columns: 1.4rem minmax(0, 1fr); }
  .side { grid-column: 2; } }
"""


def page(diff: GraphDiff) -> str:
    """The whole page."""
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        '<head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Graph diff: {markup(diff.summary)}</title>",
        f"<style>\n{_STYLE}</style></head>",
        "<body>",
        "<h1>Graph diff</h1>",
        f'<p class="summary">{markup(diff.summary)}</p>',
        *_totals(diff),
        *weight_elements(diff.weights),
        "<h2>Nodes</h2>",
        '<div class="graph">',
        *row_elements(diff),
        "</div>",
        "</body>",
        "</html>",
    ]
    return "\n".join(parts) + "\n"


def _totals(diff: GraphDiff) -> Iterator[str]:
    yield "<table>"
    yield "<tr><th></th><th>before</th><th>after</th><th>difference</th></tr>"
    for name, before, after in totals(diff):
        cells = [_dim(before), _dim(after), _difference(before, after)]
        yield f"<tr><th>{name}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
    yield "</table>"


def _dim(value: Dim | None) -> str:
    """A cost in short, the whole of it as the title."""
    if value is None:
        return "unknown"
    return f'<span title="{markup(str(value))}">{markup(short_text(value))}</span>'


def _difference(before: Dim | None, after: Dim | None) -> str:
    if before is None or after is None:
        return "unknown"
    delta = after - before
    return "–" if delta == 0 else _signed(delta)


def _signed(delta: Dim, unit: str = "") -> str:
    text = signed(delta)
    kind = "saved" if text.startswith("-") else "gain"
    shown = markup(f"{text} {unit}".rstrip())
    return f'<span class="{kind}" title="{markup(str(delta))}">{shown}</span>'


def weight_elements(weights: Sequence[WeightChange]) -> Iterator[str]:
    """The weights of a diff."""
    if not weights:
        return
    marks = {"removed": "-", "added": "+", "changed": "~", "renamed": "~"}
    yield "<h2>Weights</h2>"
    yield '<ul class="weights">'
    for change in weights:
        mark = f'<span class="mark">{marks[change.kind]}</span>'
        yield f'<li class="{change.kind}">{mark} <code>{markup(weight_text(change))}</code></li>'
    yield "</ul>"


def row_elements(diff: GraphDiff) -> Iterator[str]:
    """The nodes of a diff, changed ones and those around them."""
    for part in folded(diff.rows, diff.context):
        if isinstance(part, list):
            yield f"<details><summary>… {len(part)} unchanged nodes</summary>"
            for node in part:
                yield _row(" ", "", line(node), _place(node))
            yield "</details>"
        elif isinstance(part, NodeChange):
            yield from _change(part)
        else:
            yield _row(" ", "", line(part), _place(part))


def _change(change: NodeChange) -> Iterator[str]:
    costs = "".join(
        f"<br>{_signed(delta, unit)}"
        for unit in ("FLOPs", "bytes")
        if (delta := cost_difference(change.old_cost, change.new_cost, unit)) is not None and delta
    )
    if change.what:
        facts = "; ".join(fact_text(*found) for found in change.what)
        yield f'<div class="note">{markup(f"{title(change.node)}: {facts}")}</div>'
    if change.old is not None:
        side = _place(change.old) + (costs if change.new is None else "")
        yield _row("-", "removed", change.old_text, side)
    if change.new is not None:
        yield _row("+", "added", change.new_text, _place(change.new) + costs)


def _place(node: Node) -> str:
    """Module and line; the file's path and the expression as the title."""
    if node.op == "output" or not node.origin:
        return ""
    told = f"{node.loc}: {node.loc.expression}".removesuffix(": ") if node.loc else ""
    return f'<span title="{markup(told)}">{markup(node.origin)}</span>'


def _row(mark: str, kind: str, text: str, side: str) -> str:
    head = f'<div class="row {kind}">' if kind else '<div class="row">'
    return (
        f'{head}<span class="mark">{mark}</span><code>{markup(text)}</code>'
        f'<span class="side">{side.removeprefix("<br>")}</span></div>'
    )


# -- text ------------------------------------------------------------------------------------------
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
    deltas = [(cost_difference(change.old_cost, change.new_cost, unit), unit) for unit in ("FLOPs", "bytes")]
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
        yield from (Line(marks[change.kind], part) for part in _wrap(weight_text(change), width - 2))
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
