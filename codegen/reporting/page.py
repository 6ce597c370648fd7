"""A report as one self-contained HTML page.

In: a :class:`~fxlite.codegen.reporting.report.ModelReport`. Out: the text of the page: tabs with the
graph to explore, times, memory, modules, passes, their rewrites one by one, and the machine. Without
scripts, or when printed, the tabs are shown one below the other and the graph is a picture.

All text from the program is escaped, or is in a script element as JSON that cannot end the element;
``report.js`` inserts it as text only.

A stage of the report is a graph as data for ``report.js``: its picture, its colours in each colouring,
and the facts about each part; and a :class:`~fxlite.show.drawing.picture.Picture` for a page without
scripts.

The tab of rewrites shows one rewrite at a time: what it changed, with the surrounding graph, and the
values there. ``report.js`` steps forward and backward; without scripts, or when printed, all rewrites
are shown one below the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from fxlite.base.console import plain_text, shrinking
from fxlite.base.errors import FxliteError
from fxlite.base.outside_text import markup
from fxlite.codegen.reporting.facts import Facts, SourceLines
from fxlite.graph.graph import Node
from fxlite.passes.costing.costs import dim_text
from fxlite.passes.ledger import ledger
from fxlite.passes.profiling.record import Profile, Row, flame_svg
from fxlite.passes.profiling.tables import bound_text, fact_lines, seconds_text
from fxlite.passes.stepper import HEADINGS, Rewrite, Rewrites
from fxlite.show.comparison.graph_diff import row_elements, weight_elements
from fxlite.show.drawing.colours import (
    CHANGES,
    DTYPES,
    KINDS,
    OTHER,
    SCHEMES,
    Colour,
    Colours,
    by_share,
    css_class,
    every_colour,
    kind_of,
)
from fxlite.show.drawing.outline import Outline, Part, close_below, outline
from fxlite.show.drawing.page import BUTTONS, SEARCH, json_element, page_data, panes, viewer_script, viewer_style
from fxlite.show.drawing.picture import Picture, counted, ratios_by_node
from fxlite.show.drawing.svg import style_text
from fxlite.show.node_cost import Roofs, quantity_text, short_text
from fxlite.show.text.pretty import type_text
from fxlite.types.tensor_type import TensorType

if TYPE_CHECKING:
    from fxlite.codegen.reporting.report import ModelReport, Stage

# -- stages ----------------------------------------------------------------------------------------
#: Nodes and boxes of a stage that a page holds at most; what does not fit stays closed.
LARGEST_STAGE = 5_000


def stage_data(report: ModelReport, stage: Stage, source: SourceLines) -> tuple[dict[str, Any], Picture]:
    """The data of a stage, and its picture, coloured by op."""
    changes = _changes(report, stage)
    found = outline(stage.module.graph, marks=changes)
    close_below(found, None)
    facts = Facts(report, stage, found, source)
    colours = _colours(found, facts, changes)
    ratios = ratios_by_node(stage.module.graph, report.sqnr)
    if ratios:
        colours["SQNR"] = SCHEMES["sqnr"](found, ratios)
    palette: dict[str, int] = {}

    def number(colour: Colour) -> int:
        return palette.setdefault(css_class(colour), len(palette))

    def more(part: Part) -> dict[str, Any]:
        paint = {name: [number(c.of(part)), c.note(part)] for name, c in colours.items()}
        return {"paint": paint, "facts": facts.of(part)}

    graph = stage.module.graph
    drawn = Picture(found, colours["op"], "", counted(graph, graph, found))
    data = page_data(drawn, more, LARGEST_STAGE)
    for part in data["parts"]:
        if "source" in part["facts"]:  # then its lines are shown
            part["details"] = [row for row in part["details"] if row[0] != "source"]

    data |= {
        "title": stage.title,
        "count": drawn.count,
        "colours": {
            name: {"legend": [(row, number(c)) for row, c in colour.legend], "remark": colour.remark}
            for name, colour in colours.items()
        },
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
    """The ways to colour the graph, each with a legend for all nodes, including those in closed boxes."""
    dtypes = (repr(n.type.dtype) for n in found.nodes if isinstance(n.type, TensorType))
    kinds = (kind_of(n) for n in found.nodes)
    colours = {
        "op": _with_legend(SCHEMES["op"](found, None), kinds, KINDS),
        "dtype": _with_legend(SCHEMES["dtype"](found, None), dtypes, DTYPES),
        "change": _with_legend(
            SCHEMES["change"](found, changes), (changes.get(n, "unchanged") for n in found.nodes), CHANGES
        ),
        "FLOPs": by_share(found, facts.flops(), _flops_text, "of the FLOPs"),
    }
    if facts.stage.profile is not None:
        colours["time"] = SCHEMES["time"](found, facts.seconds)
    return colours


def _with_legend(colours: Colours, names: Iterable[str], table: Mapping[str, Colour]) -> Colours:
    legend = tuple((name, table.get(name, OTHER)) for name in dict.fromkeys(names))
    return Colours(colours.of, tuple(row for row in legend if row[0] != "input"), colours.note)


def _flops_text(value: float) -> str:
    return f"{short_text(int(value))} FLOPs"


# -- the page --------------------------------------------------------------------------------------
#: Rows of a table of times; all are in the graph.
MOST_ROWS = 100
_WIDTH = 110  # columns of text tables
#: What a browser may do on the page: nothing but show it.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def page_text(report: ModelReport) -> str:
    """The text of the page."""
    source = SourceLines()
    stages, pictures = zip(*(stage_data(report, s, source) for s in _stages(report)))
    calls = report.program.calls if report.program is not None else ()
    data = {
        "stages": stages,
        "files": source.data(),
        "kernels": _kernels(report),
        "functions": {call.function: call.text for call in calls},
    }
    tabs = {
        "graph": _graph(pictures[0]),
        "time": "".join(_time(report)),
        "memory": "".join(_memory(report)),
        "modules": _pre(report.traced.module.summary().table(_WIDTH)),
        "passes": "".join(_passes(report)),
        "rewrites": "".join(rewrites_tab(report)),
        "machine": "".join(_machine(report.roofs)),
    }
    buttons = "".join(f'<button role="tab" id="tab-{name}" aria-controls="{name}">{name}</button>' for name in tabs)
    panels = "\n".join(
        f'<section id="{name}" role="tabpanel" tabindex="0" aria-labelledby="tab-{name}">\n'
        f'<h2 class="tab-title">{name}</h2>\n{text}\n</section>'
        for name, text in tabs.items()
    )
    notes = "".join(f'<p class="missing">{markup(note)}</p>' for note in report.notes)
    return f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{markup(report.name)}</title>
<style id="picture-style">
{style_text(every_colour())}</style>
<style>
{viewer_style()}{_resource("report.css")}</style>
</head>
<body>
<header>
<h1>{markup(report.name)}</h1>
<span id="about">{_about(report)}</span>
<nav role="tablist">{buttons}</nav>
</header>
{notes}
{panels}
{json_element("report", data)}
<script>
{viewer_script()}{_resource("report.js")}</script>
</body>
</html>
"""


def _resource(name: str) -> str:
    return files("fxlite.codegen.reporting").joinpath(name).read_text(encoding="utf-8")


def _stages(report: ModelReport) -> tuple[Stage, Stage]:
    return report.traced, report.optimized


def _about(report: ModelReport) -> str:
    """One line about the model: types, sizes, parameters, FLOPs."""
    graph, costs = report.traced.module.graph, report.traced.costs.total
    inputs = ", ".join(f"{n.name}: {type_text(n.type)}" for n in graph.placeholders)
    texts = [f"{inputs} → {type_text(graph.output_node().type)}"]
    if report.dims:
        texts.append(", ".join(f"{name}={size}" for name, size in report.dims.items()))
    texts.append(f"{short_text(costs.parameters)} parameters")
    if costs.flops is not None:
        texts.append(f"{short_text(costs.flops)} FLOPs")
    for stage in _stages(report):
        if stage.profile is not None:
            runner, least = stage.profile.target.runner, seconds_text(_least(stage.profile))
            texts.append(f"{stage.title} in {runner} {least}")
    return " · ".join(f"<span>{markup(text)}</span>" for text in texts)


def _least(profile: Profile) -> float:
    return min(profile.plain_seconds)


def _kernels(report: ModelReport) -> list[dict[str, Any]]:
    """The name of each kernel, the function it calls (which several may share), and the nodes it
    computes."""
    if report.program is None:
        return []
    return [
        {
            "name": call.name,
            "function": call.function,
            "root": call.group.root.name,
            "nodes": [node.name for node in call.group.members],
        }
        for call in report.program.calls
    ]


# -- tabs ------------------------------------------------------------------------------------------
def _graph(drawn: Picture) -> str:
    return f"""\
<div class="bar">
<label class="slider"><span>traced</span><input type="range" id="stage" min="0" max="1" value="0"
 aria-label="before or after optimization"><span>optimized</span></label>
<label>colour <select id="colour"></select></label>
{SEARCH}
{BUTTONS}
</div>
<div class="view">
{panes(drawn, ", what it costs, how long it takes, which kernel computes it and what passes did to it")}
</div>
<div id="legend"></div>"""


def _time(report: ModelReport) -> Iterator[str]:
    profiles = [s.profile for s in (report.optimized, report.traced) if s.profile is not None]
    if not profiles:
        yield "<p>Nothing was measured.</p>"
    for profile in profiles:
        is_traced = profile is report.traced.profile
        stage = report.traced if is_traced else report.optimized
        yield f"<h3>The {stage.title} graph in {profile.target.runner}</h3>"
        facts = "\n".join(line.plain for line in fact_lines(profile))
        yield f"<pre>{markup(facts)}</pre>"
        yield _isolated(flame_svg(profile))
        if profile.roofs is not None and any(row.flops and row.bytes for row in profile.rows):
            yield _isolated(profile.to_roofline())
        yield _times(profile, 0 if is_traced else 1)
        if profile.roofs is not None and profile.target.part == "kernel":
            yield _pre(profile.cliffs())


def _times(profile: Profile, stage: int) -> str:
    """The rows of a profile, slowest first; clicking a name shows the node."""
    what = profile.target.part
    total = profile.rows_seconds or 1.0
    ordered = sorted(profile.rows, key=lambda row: -row.median)
    rows = [_time_row(row, total, stage) for row in ordered[:MOST_ROWS]]
    if len(ordered) > MOST_ROWS:
        rest = sum(row.median for row in ordered[MOST_ROWS:])
        more = f"{len(ordered) - MOST_ROWS} more"
        rows.append([more, "", "", "", seconds_text(rest), f"{rest / total:.1%}", "", "", ""])
    headings = (what, "computes", "module", "line", "median", "share", "FLOP/s", "B/s", "bound by")
    return _table(headings, rows, left=4)


def _time_row(row: Row, total: float, stage: int) -> list[str]:
    name = markup(row.name)
    rates = [(row.flops_per_second, ""), (row.bytes_per_second, "")]
    return [
        f'<a class="node" data-stage="{stage}" data-node="{markup(row.node.name)}">{name}</a>',
        markup(row.covers),
        markup(row.module),
        markup(row.location.short if row.location is not None else ""),
        seconds_text(row.median),
        f"{row.median / total:.1%}",
        *("" if rate is None else quantity_text(rate, unit) for rate, unit in rates),
        bound_text(row),
    ]


def _memory(report: ModelReport) -> Iterator[str]:
    timelines = report.timelines()
    for title, timeline in timelines:
        yield f"<h3>{markup(title)}</h3>{_isolated(timeline.to_svg())}"
    if not timelines:
        yield "<p>The sizes of some values are not known.</p>"


def _passes(report: ModelReport) -> Iterator[str]:
    yield "<h3>Before and after</h3>"
    yield _table(("", *(stage.title for stage in _stages(report))), list(_totals(report)), left=1)
    yield f"<h3>Passes</h3>{_pre(report.passes)}"
    refused = ledger(report.optimized.module)
    if refused:
        yield f"<h3>Where passes did not fire</h3>{_pre(refused)}"


def _totals(report: ModelReport) -> Iterator[list[str]]:
    stages = _stages(report)
    yield ["nodes", *(f"{len(stage.module.graph):,}" for stage in stages)]
    for name, quantity, unit in (
        ("FLOPs", "flops", ""),
        ("bytes read", "read", "B"),
        ("bytes written", "written", "B"),
        ("peak bytes", "peak", "B"),
    ):
        values = [getattr(stage.costs.total, quantity) for stage in stages]
        yield [name, *(dim_text(value, unit) for value in values)]
    if report.program is not None:
        yield ["kernels", "", f"{len(report.program.calls):,}"]
    if all(stage.profile is not None for stage in stages):
        times = []
        for stage in stages:
            assert stage.profile is not None
            runner = stage.profile.target.runner
            times.append(f"{seconds_text(_least(stage.profile))} in {runner}")
        yield ["least time of a call", *times]


def _machine(roofs: Roofs | None) -> Iterator[str]:
    if roofs is None:
        yield "<p>What the machine can do at most was not measured.</p>"
        return
    yield f"<p>{markup(roofs.cpu)}, measured on {markup(roofs.measured)}.</p>"
    rows = [
        [
            markup(roof.name),
            quantity_text(roof.one_thread, roof.unit),
            quantity_text(roof.all_threads, roof.unit),
            markup(roof.how),
        ]
        for roof in roofs.roofs.values()
    ]
    yield _table(("roof", "1 thread", f"{roofs.threads} threads", "how it was measured"), rows, 1)
    yield from (f"<p>Left out: {markup(text)}</p>" for text in roofs.left_out)


# -- pieces ----------------------------------------------------------------------------------------
def _pre(thing: Any) -> str:
    return f"<pre>{markup(plain_text(thing, _WIDTH))}</pre>"


def _table(headings: Iterable[str], rows: Sequence[Sequence[str]], left: int) -> str:
    """A table; the cells are HTML, and those after the first ``left`` columns are numbers."""

    def row(cells: Iterable[str], tag: str) -> str:
        kinds = ("" if place < left else ' class="number"' for place in range(len(rows[0])))
        return "".join(f"<{tag}{kind}>{cell}</{tag}>" for kind, cell in zip(kinds, cells))

    body = "".join(f"<tr>{row(cells, 'td')}</tr>\n" for cells in rows)
    head = f"<thead><tr>{row(headings, 'th')}</tr></thead>" if rows else ""
    return f'<div class="wide"><table>{head}<tbody>{body}</tbody></table></div>'


def _isolated(svg: str) -> str:
    """A picture in a shadow tree, so that its style does not affect the rest of the page."""
    style = "<style>@media print { svg { max-width: 100% !important; } }</style>"
    return f'<div class="wide"><template shadowrootmode="open">{style}{shrinking(svg)}</template></div>'


# -- rewrites --------------------------------------------------------------------------------------
#: Rewrites on a page, and nodes that are looked at for them: each is found by comparing the whole
#: graph before and after.
MOST_REWRITES, MOST_NODES = 80, 40_000
_MOST_VALUES = 12


def rewrites_tab(report: ModelReport) -> Iterator[str]:
    """The elements of the tab."""
    traced = report.traced.module
    found = Rewrites(traced, report.passes)
    count = min(len(found), MOST_REWRITES, max(MOST_NODES // len(traced.graph), 1))
    if not found:
        yield "<p>The passes change nothing.</p>"
        return
    yield (
        '<div class="step-bar"><button id="step-back">←</button><button id="step-next">→</button>'
        '<button id="step-pass">next pass</button> <span id="step-where"></span>'
        " <small>keys: n or →, b or ←, p for the next pass</small></div>"
    )
    if count < len(found):
        yield f"<p>The first {count} of {len(found)} rewrites.</p>"
    yield '<div id="steps" tabindex="0">'
    for index in range(count):
        yield from _rewrite(found, index, report)
    yield "</div>"


def _rewrite(rewrites: Rewrites, index: int, report: ModelReport) -> Iterator[str]:
    rewrite, count = rewrites[index], len(rewrites)
    name = markup(rewrite.pass_name)
    yield f'<article class="rewrite" data-pass="{name}" data-number="{rewrite.number}">'
    yield (
        f"<h3>Rewrite {index + 1} of {count}: {name} {rewrite.number} of {rewrite.count}</h3>"
        f'<p class="summary">{markup(rewrite.diff.summary)}</p><div class="diff">'
    )
    yield from row_elements(rewrite.diff, is_whole=False)  # otherwise each rewrite would list the whole graph
    yield "</div>"
    yield from weight_elements(rewrite.diff.weights)
    if report.inputs:
        yield from _values(rewrites, index, rewrite, report.inputs)
    yield "</article>"


def _values(rewrites: Rewrites, index: int, rewrite: Rewrite, inputs: Mapping[str, Any]) -> Iterator[str]:
    """The values at a rewrite; after the last rewrite of a pass also how far the results are from those before the
    first. Running the whole program for each rewrite would take longer than everything else on the page."""
    try:
        found = rewrite.values(inputs, with_results=False)
        results = rewrites.results(index, inputs) if rewrite.number == rewrite.count else ""
    except (FxliteError, ArithmeticError, ValueError) as error:
        yield f"<p>It does not run: {markup(str(error))}</p>"
        return
    if found.rows:
        head = "".join(f"<th>{heading}</th>" for heading in HEADINGS)
        rows = "".join(
            "<tr>" + "".join(f"<td>{markup(cell)}</td>" for cell in row) + "</tr>" for row in found.rows[:_MOST_VALUES]
        )
        yield f'<div class="wide"><table><thead><tr>{head}</tr></thead>{rows}</table></div>'
    if results:
        yield f"<p>Results, after all rewrites of {markup(rewrite.pass_name)}: {markup(results)}.</p>"
