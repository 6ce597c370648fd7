"""A picture as a self-contained HTML page to explore.

In: a :class:`~fxlite.show.drawing.picture.Picture`. Out: a page that zooms and pans, opens and closes modules,
searches, and shows details of the selected node, with mouse and keyboard; without scripts it shows the picture as
SVG. The page has the parts as data, in order, each with the number of the part around it, and the edges between
nodes. ``layout.js`` places the open parts; ``viewer.js`` draws them and handles mouse and keyboard. Reports have the
same picture and viewer (:mod:`fxlite.codegen.reporting`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

from fxlite.base.outside_text import json_in_html, markup
from fxlite.graph.graph import Node
from fxlite.ops.op import Op
from fxlite.show.drawing.colours import css_class, every_colour
from fxlite.show.drawing.outline import Outline, Part, is_element
from fxlite.show.drawing.picture import Picture, described, line_type, repeated, size, texts, title, tooltip
from fxlite.show.drawing.svg import MARKER, ROOT, legend_row, style_text, svg_text
from fxlite.show.text.pretty import node_line, type_text

#: The most nodes and boxes that a page holds; boxes that do not fit stay closed.
LARGEST_PAGE = 10_000


def page_text(drawn: Picture, heading: str) -> str:
    """The page as text."""
    data = page_data(drawn, room=LARGEST_PAGE)
    held = sum(part["kind"] == "node" for part in data["parts"])
    drawn_nodes = len(set(drawn.outline.drawn_as))
    rest = f"; {held:,} are on this page" if held != drawn_nodes else ""
    key = "".join(  # one picture for each colour, so that a narrow window breaks the line
        f'<svg class="{ROOT}" aria-hidden="true" width="{width:.0f}" height="16">{square}</svg>'
        for square, width in (legend_row((row,), 2) for row in drawn.colours.legend)
    )
    caption = f"<p>{markup(drawn.caption)}</p>" if drawn.caption else ""
    return f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{markup(heading)}</title>
<style id="picture-style">
{style_text(every_colour())}</style>
<style>
{viewer_style()}</style>
</head>
<body>
<header>
<h1>{markup(heading)}</h1>
<span id="count">{markup(drawn.count)}{rest}</span>
{SEARCH}
{BUTTONS}
</header>
<main>
{panes(drawn, "")}
</main>
<footer>{key}{caption}</footer>
{json_element("graph", data)}
<script>
{viewer_script()}
fxViewer().load(JSON.parse(document.getElementById("graph").textContent));
</script>
</body>
</html>
"""


#: The part of a page above its picture.
SEARCH = (
    '<input id="search" type="search" aria-label="search for nodes" '
    'placeholder="search: name, op, file:line  ( / )" title="by name, op, type, module, or file and line">'
)
BUTTONS = """\
<span class="buttons"><button id="fit">fit</button><button id="in" aria-label="larger">+</button><button
 id="out" aria-label="smaller">−</button><button id="open-all">open all</button><button id="close-all">close
 all</button><button id="turn">turn</button><button id="save-svg">SVG</button><button
 id="save-png">PNG</button></span>"""


def panes(drawn: Picture, more: str) -> str:
    """The picture and the panel next to it, which contains an explanation until a node is selected. ``more`` names the
    additional information that a click on a node shows."""
    name, told = described(drawn)
    rows = "".join(f"<p>{markup(sentence)}</p>" for sentence in filter(None, told.split(". ")))
    return f"""\
<div id="picture">{svg_text(drawn)}</div>
<aside aria-label="details" tabindex="0">
<div id="results" aria-live="polite"></div>
<div id="details"><h2>{markup(name)}</h2>{rows}
<p>Click a node to see its line and where it comes from{more}, a closed module to open it, and the title
of an open one to close it. Drag to move, turn the wheel to zoom.</p>
<dl class="keys"><dt>/</dt><dd>search</dd><dt>↓ ↑</dt><dd>along an edge, to a reader or an operand</dd>
<dt>← →</dt><dd>to the node before or after</dd><dt>Enter</dt><dd>open a module</dd><dt>Esc</dt><dd>close the
module around, or end the search</dd><dt>+ − 0</dt><dd>larger, smaller, all of it</dd></dl></div>
</aside>
<template id="marker"><svg>{MARKER}</svg></template>"""


def viewer_script() -> str:
    """JavaScript that draws pictures from data: ``fxViewer().load(data)``."""
    return _resource("layout.js") + _resource("viewer.js")


def viewer_style() -> str:
    """The style of a page with such a picture."""
    return _resource("viewer.css")


def _resource(name: str) -> str:
    return files("fxlite.show.drawing").joinpath(name).read_text(encoding="utf-8")


def json_element(name: str, data: Any) -> str:
    """A script element with data, which no text in the data can close."""
    return f'<script type="application/json" id="{name}">{json_in_html(data)}</script>'


def page_data(
    drawn: Picture, more: Callable[[Part], Mapping[str, Any]] = lambda part: {}, room: int = LARGEST_PAGE
) -> dict[str, Any]:
    """The picture as plain data: ``parts`` in order, outer ones before inner ones, and ``edges``, pairs of numbers of
    parts without children.

    ``more`` returns additional data for a part; ``room`` is the largest number of parts."""
    found = drawn.outline
    kept = _kept(found, room)
    numbers = {part: number for number, part in enumerate(kept)}
    owner = [-1] * len(found.nodes)
    parts = []
    for part in kept:
        has_children = bool(part.children) and part.children[0] in numbers
        if not has_children:
            owner[part.start : part.stop] = [numbers[part]] * (part.stop - part.start)
        parts.append({**_part_data(drawn, part, numbers, has_children), **more(part)})
    edges = dict.fromkeys((owner[a], owner[b]) for a, b in found.node_edges())
    shown = [edge for edge in edges if edge[0] != edge[1]]
    aliases = {node.name: owner[place] for node, place in zip(found.nodes, found.drawn_as) if owner[place] >= 0}
    for node in found.nodes:
        for near in (*node.users, *node.all_input_nodes):
            if near not in found and node.name in aliases:
                aliases.setdefault(near.name, aliases[node.name])
    for data in parts:
        aliases.pop(data["label"], None)
    return {"parts": parts, "edges": shown, "aliases": aliases, "sideways": drawn.direction == "LR"}


def _kept(found: Outline, room: int) -> list[Part]:
    """The parts that fit on a page, in order: level by level until it is full."""
    kept = {found.root}
    level = [found.root]
    while level:
        below = []
        for box in level:
            if 0 < len(box.children) <= room:
                room -= len(box.children)
                below += box.children
        kept.update(below)
        level = below
    return [part for part in found.parts() if part in kept]


def _part_data(drawn: Picture, part: Part, numbers: dict[Part, int], has_children: bool) -> dict[str, Any]:
    lines = texts(drawn, part)
    width, height = size(lines)
    node = drawn.outline.nodes[part.start]
    kind = "box" if part.children else "node"
    data: dict[str, Any] = {
        "kind": kind,
        "in": numbers.get(part.parent, -1) if part.parent else -1,
        "title": title(part),
        "times": part.times,
        "texts": lines,
        "width": width,
        "height": height,
        "css": css_class(drawn.colours.of(part)),
        "hint": tooltip(drawn.outline, part),
    }
    if part.children:
        data |= {"open": part.is_open and has_children, "label": part.title or repeated(part)}
        data["can_open"] = has_children
        into, out = drawn.outline.ends(part)
        data["details"] = [("nodes", f"{part.end - part.start:,}")]
        data["details"] += [
            (name, "\n".join(map(line_type, values))) for name, values in (("in", into), ("out", out)) if values
        ]
    else:
        data |= {"round": node.op in ("placeholder", "output"), "label": node.name}
        data["details"] = _details(node)
    if note := drawn.colours.note(part):
        data["details"].append(("time", note))
    return data


def _details(node: Node) -> list[tuple[str, str]]:
    """The details of a node that the page shows."""
    rows = [("line", node_line(node))]
    if isinstance(node.target, Op):
        rows.append(("op", node.target.name))
    if node.type is not None:
        rows.append(("type", type_text(node.type)))
    rows.append(("elements", ", ".join(user.name for user in node.users if is_element(user))))
    if node.scope is not None and node.scope.path:
        rows.append(("module", str(node.scope)))
    if node.loc is not None:
        rows += [("place", node.loc.short), ("source", node.loc.expression)]
    return [(name, text) for name, text in rows if text]
