"""Pictures as one HTML page to explore, which loads nothing from anywhere.

In: a :class:`~fxlite.show.drawing.picture.Picture`. Out: a page that zooms and pans, opens and
closes modules on a click, searches, and tells about the node that was clicked. Without scripts it
shows the picture as :mod:`fxlite.show.drawing.svg` draws it.

The page holds the parts as data, in order, each with the number of the part around it, and the
edges between nodes. ``layout.js`` places what is open, ``viewer.js`` draws it and answers to the
mouse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

from fxlite.base.outside_text import json_in_html, markup
from fxlite.graph.graph import Node
from fxlite.ops.op import Op
from fxlite.show.drawing.outline import Outline, Part
from fxlite.show.drawing.picture import Picture, repeated, size, texts, title
from fxlite.show.drawing.svg import MARKER, STYLE, legend_row, svg_text
from fxlite.show.text.pretty import node_line, type_text

#: Nodes and boxes that a page holds at most; what does not fit stays closed.
LARGEST_PAGE = 20_000


def page_text(drawn: Picture, heading: str) -> str:
    """The page as text."""
    data = page_data(drawn, room=LARGEST_PAGE)
    held = sum(part["kind"] == "node" for part in data["parts"])
    count = len(drawn.outline.nodes)
    legend, width = legend_row(drawn.colours.legend, 2)
    key = f'<svg width="{width:.0f}" height="16">{legend}</svg>' if legend else ""
    caption = f"<p>{markup(drawn.caption)}</p>" if drawn.caption else ""
    return f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{markup(heading)}</title>
<style>
{STYLE}{viewer_style()}</style>
</head>
<body>
<header>
<h1>{markup(heading)}</h1>
<span id="count">{count:,} nodes{f", {held:,} on this page" if held != count else ""}</span>
<input id="search" type="search" placeholder="search: name, op, type, module, file:line">
<span class="buttons"><button id="fit">fit</button><button id="in">+</button><button
 id="out">−</button><button id="open-all">open all</button><button id="close-all">close
 all</button></span>
</header>
<main>
<div id="picture">{svg_text(drawn)}</div>
<aside>
<div id="results"></div>
<div id="details"><p>Click a node to see its line and where it comes from, a closed module to open
it, and the title of an open one to close it. Drag to move, turn the wheel to zoom.</p></div>
</aside>
</main>
<footer>{key}{caption}</footer>
<template id="marker"><svg>{MARKER}</svg></template>
{json_element("graph", data)}
<script>
{viewer_script()}
fxViewer().load(JSON.parse(document.getElementById("graph").textContent));
</script>
</body>
</html>
"""


def viewer_script() -> str:
    """JavaScript that draws pictures that are given as data: ``fxViewer().load(data)``."""
    return _resource("layout.js") + _resource("viewer.js")


def viewer_style() -> str:
    """The style of a page with such a picture."""
    return _resource("viewer.css")


def _resource(name: str) -> str:
    return files("fxlite.show.drawing").joinpath(name).read_text(encoding="utf-8")


def json_element(name: str, data: Any) -> str:
    """A script element that holds data and that no text in the data can end."""
    return f'<script type="application/json" id="{name}">{json_in_html(data)}</script>'


def page_data(
    drawn: Picture, more: Callable[[Part], Mapping[str, Any]] = lambda part: {}, room: int = LARGEST_PAGE
) -> dict[str, Any]:
    """The picture as plain data: ``parts`` in order, outer ones before what is in them, and
    ``edges``, pairs of numbers of parts without children.

    ``more`` gives what is to be added to the data of a part; ``room``: parts at most."""
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
    return {"parts": parts, "edges": [edge for edge in edges if edge[0] != edge[1]]}


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
    fill, border = drawn.colours.of(part)
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
        "fill": fill,
        "border": border,
    }
    if part.children:
        data |= {"open": part.is_open and has_children, "label": part.title or repeated(part)}
        data["can_open"] = has_children
        data["details"] = [("nodes", f"{part.end - part.start:,}")]
    else:
        data |= {"round": node.op in ("placeholder", "output"), "label": node.name}
        data["details"] = _details(node)
    if note := drawn.colours.note(part):
        data["details"].append(("time", note))
    return data


def _details(node: Node) -> list[tuple[str, str]]:
    """What the page tells about a node."""
    rows = [("line", node_line(node))]
    if isinstance(node.target, Op):
        rows.append(("op", node.target.name))
    if node.type is not None:
        rows.append(("type", type_text(node.type)))
    if node.scope is not None and node.scope.path:
        rows.append(("module", str(node.scope)))
    if node.loc is not None:
        rows += [("place", node.loc.short), ("source", node.loc.expression)]
    return [(name, text) for name, text in rows if text]
