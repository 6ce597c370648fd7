"""A diff as one HTML page: no network, no fonts or scripts from elsewhere, light and dark.

In: a GraphDiff. Out: the page as text. Unchanged nodes are folded into ``<details>`` elements that
open with a click, so the page needs no script; what a node costs and where it comes from stands
beside its line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fxlite.base.outside_text import markup
from fxlite.graph.graph import Node
from fxlite.show.comparison.as_text import (
    cost_difference,
    fact_text,
    folded,
    signed,
    totals,
    weight_text,
)
from fxlite.show.comparison.changes import NodeChange, WeightChange, line
from fxlite.show.comparison.compare import title
from fxlite.show.node_cost import short_text
from fxlite.types.shapes import Dim

if TYPE_CHECKING:
    from fxlite.show.comparison.graph_diff import GraphDiff

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
        *_weights(diff.weights),
        "<h2>Nodes</h2>",
        '<div class="graph">',
        *_rows(diff),
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


def _weights(weights: Sequence[WeightChange]) -> Iterator[str]:
    if not weights:
        return
    marks = {"removed": "-", "added": "+", "changed": "~", "renamed": "~"}
    yield "<h2>Weights</h2>"
    yield '<ul class="weights">'
    for change in weights:
        mark = f'<span class="mark">{marks[change.kind]}</span>'
        yield f'<li class="{change.kind}">{mark} <code>{markup(weight_text(change))}</code></li>'
    yield "</ul>"


def _rows(diff: GraphDiff) -> Iterator[str]:
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
