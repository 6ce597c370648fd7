"""Pictures of graphs: the front door, and how a picture is written.

In: a graph, a file name and what to show; or a :class:`~fxlite.show.drawing.picture.Picture`. Out:
SVG by the own layout, an HTML page to explore, DOT text, or PNG and PDF through Graphviz.
``graph.draw`` and ``graph.to_dot`` lead here.

SVG text stands on its own: boxes of modules, lines, nodes with a tooltip, the legend and the
caption. A page loads nothing from anywhere; it zooms and pans, opens and closes modules on a click,
searches, and tells about the node that was clicked; without scripts it shows the picture as SVG. It
holds the parts as data, in order, each with the number of the part around it, and the edges between
nodes. ``layout.js`` places what is open, ``viewer.js`` draws it and answers to the mouse. In DOT text
modules are clusters; files are rendered by the program ``dot``, or by pygraphviz, which brings
Graphviz along.
"""

from __future__ import annotations

import itertools
import shutil
import textwrap
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Unpack

from fxlite.base.console import write_whole
from fxlite.base.outside_text import dot_string, json_in_html, markup
from fxlite.graph.graph import Graph, Node
from fxlite.ops.op import Op
from fxlite.show.drawing.colours import Colour, DrawError
from fxlite.show.drawing.layout import Box, Line
from fxlite.show.drawing.outline import Outline, Part
from fxlite.show.drawing.picture import (
    ADVANCE,
    BIG,
    LINE_HEIGHT,
    SMALL,
    Options,
    Picture,
    laid_out,
    picture,
    repeated,
    size,
    texts,
    title,
    tooltip,
)
from fxlite.show.text.pretty import node_line, type_text

#: Endings of the files that can be written.
ENDINGS = (".svg", ".html", ".dot", ".png", ".pdf")


def draw(graph: Graph, path: str | Path, **options: Unpack[Options]) -> None:
    """Write a picture; the ending says which: ``.svg`` and ``.html`` (nothing to install),
    ``.dot``, ``.png`` or ``.pdf``. Options:

    - ``weights``: draw the weights, too
    - ``color``: what colours say: "op" (its kind; the default), "dtype" (int8 stands out), "time",
      "change", "scope" (modules) or "sqnr"
    - ``depth``: levels of modules that are shown, those on the last one as closed boxes with the
      types of what goes in and out; default as many as stay readable, about 300 boxes
    - ``fold``: draw equal modules and stretches that follow each other once, as "×12"; default True
    - ``times``: seconds by node (or name), or a profile; colours by time
    - ``changed_from``: the graph to compare with (:func:`fxlite.diff`); colours by change
    - ``sqnr``: signal-to-noise ratios in dB by module path or name of node
      (``q.sensitivity(...).sqnr(scheme)``); colours by them

    Raises DrawError for other endings and options that do not fit, and for PNG and PDF where
    Graphviz is missing."""
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        known = f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"
        raise DrawError(f"{path.name}: pictures are written as {known}, not {ending!r}")
    if ending == ".svg":
        write_whole(path, to_svg(graph, **options))
    elif ending == ".html":
        write_whole(path, to_html(graph, title=path.stem, **options))
    elif ending == ".dot":
        write_whole(path, to_dot(graph, **options))
    else:
        write_whole(path, rendered(to_dot(graph, **options), ending[1:], path.name))


def to_svg(graph: Graph, **options: Unpack[Options]) -> str:
    """The graph as SVG text; options as in :func:`draw`."""
    return svg_text(picture(graph, **options))


def to_dot(graph: Graph, **options: Unpack[Options]) -> str:
    """The graph as DOT text; options as in :func:`draw`."""
    return dot_text(picture(graph, **options))


def to_html(graph: Graph, title: str = "graph", **options: Unpack[Options]) -> str:
    """The graph as one HTML page to explore, which loads nothing; options as in :func:`draw`."""
    return page_text(picture(graph, **options), title)


# -- Graphviz --------------------------------------------------------------------------------------
def dot_text(drawn: Picture) -> str:
    """The picture as DOT text: modules as clusters, name and type on every node."""
    lines = [
        "digraph {",
        '  node [shape=box style="rounded,filled" fontname="monospace" fontsize=11 height=0.3];',
        '  graph [fontname="monospace" fontsize=10 style=rounded labeljust=l color="#9fb3c8"];',
        '  edge [color="#627d98" arrowsize=0.7];',
    ]
    if drawn.caption:
        lines.append(f"  label={dot_string(drawn.caption)};")
    stack: list[Part | str] = [*drawn.outline.root.children[::-1]]
    depth, clusters = 1, itertools.count()
    while stack:
        item = stack.pop()
        indent = "  " * min(depth, 20)
        if isinstance(item, str):
            depth -= 1
            lines.append(indent[2:] + item)
        elif item.is_drawn_whole:
            lines.append(indent + _dot_node(drawn, item))
        else:
            lines.append(f"{indent}subgraph cluster_{next(clusters)} {{")
            depth += 1
            lines.append(f"{indent}  label={dot_string(title(item))};")
            stack += ["}", *item.children[::-1]]
    names = ((_name(drawn, a), _name(drawn, b)) for a, b in drawn.outline.edges())
    lines += [f"  {dot_string(a)} -> {dot_string(b)};" for a, b in names]
    return "\n".join([*lines, "}\n"])


def _name(drawn: Picture, part: Part) -> str:
    first = drawn.outline.nodes[part.start].name
    return f"{first} …" if part.children else first


def _dot_node(drawn: Picture, part: Part) -> str:
    fill, border = drawn.colours.of(part)
    label = "\\n".join(dot_string(text)[1:-1] for _, text in texts(drawn, part))
    name = dot_string(_name(drawn, part))
    return f'{name} [label="{label}" fillcolor="{fill}" color="{border}"];'


def rendered(dot: str, format: str, name: str) -> bytes:
    """A file of DOT text in ``format`` ("png", "pdf"), by whichever Graphviz there is.

    Raises DrawError, which says what to install, where there is none; ``name`` is the file's."""
    if shutil.which("dot"):
        import graphviz

        return graphviz.Source(dot).pipe(format=format)  # type: ignore[no-any-return]
    try:
        import pygraphviz
    except ImportError:
        raise DrawError(
            f"{name}: PNG and PDF need Graphviz, and this machine has none. Either draw an .svg or "
            ".html, which need nothing, or run pip install 'fxlite[draw]' (brings Graphviz along), "
            "or install the program `dot` with the system's package manager"
        ) from None
    return pygraphviz.AGraph(string=dot).draw(format=format, prog="dot")  # type: ignore[no-any-return]


# -- SVG -------------------------------------------------------------------------------------------
FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
_SHADOW = 4  # pixels by which the copies behind a folded part stick out
_NARROWEST_CAPTION = 60  # characters


def svg_text(drawn: Picture) -> str:
    """The picture as SVG text. Nodes carry their line of code and origin as a tooltip."""
    root, placed = laid_out(drawn)
    legend, legend_width = legend_row(drawn.colours.legend, root.height + 14)
    columns = max(_NARROWEST_CAPTION, int(root.width / (SMALL * ADVANCE)))
    caption = textwrap.wrap(drawn.caption, columns)
    caption_width = max(map(len, caption), default=0) * SMALL * ADVANCE + 8
    below = root.height + 14 + LINE_HEIGHT + 12  # the bottom, but for the caption
    width = max(root.width, legend_width, caption_width) + 16
    height = below + len(caption) * LINE_HEIGHT
    body = [_open_box(part, box) for part, box in placed if not part.is_drawn_whole]
    body += [line_path(ln) for box in (root, *(b for _, b in placed)) for ln in box.lines]
    body += [_svg_node(drawn, part, box) for part, box in placed if part.is_drawn_whole]
    shift = 8 + max(0.0, (width - 16 - root.width) / 2)
    lines = [
        f'<text class="title" x="12" y="{below + 8 + n * LINE_HEIGHT:.1f}">{markup(line)}</text>'
        for n, line in enumerate(caption)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="{FONT}" font-size="{BIG}">',
            f"<style>\n{STYLE}</style>",
            MARKER,
            f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>',
            f'<g transform="translate({shift:.1f} 8)">',
            *body,
            "</g>",
            f'<g transform="translate(12 8)">{legend}</g>',
            *lines,
            "</svg>\n",
        ]
    )


STYLE = f"""\
.box {{ fill: #1f4e79; fill-opacity: .045; stroke: #9fb3c8; }}
.title {{ font-size: {SMALL}px; fill: #627d98; }}
.note {{ font-size: {SMALL}px; fill: #7b341e; }}
.name {{ font-weight: bold; fill: #102a43; }}
.more {{ font-weight: normal; fill: #486581; }}
.type {{ fill: #243b53; }}
.line {{ fill: none; stroke: #627d98; stroke-width: 1.2; }}
"""
MARKER = """<defs><marker id="arrow" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7"
 markerHeight="7" orient="auto"><path d="M0,1 L8,4 L0,7 z" fill="#627d98"/></marker></defs>"""


def _open_box(part: Part, box: Box) -> str:
    shadow = _shadow(box, 8, 'class="box"') if part.times > 1 else ""
    return (
        f'{shadow}<rect class="box" x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" '
        f'height="{box.height:.1f}" rx="8"/>'
        f'<text class="title" x="{box.x + 9:.1f}" y="{box.y + 14:.1f}">{markup(box.title)}</text>'
    )


def _shadow(box: Box, radius: float, style: str) -> str:
    """The edge of a copy behind a folded part, to the right and below."""
    right, bottom, s = box.x + box.width, box.y + box.height, _SHADOW
    path = (
        f"M{right:.1f},{box.y + s + radius:.1f} h{s} V{bottom + s - radius:.1f} "
        f"q0,{radius:.1f} {-radius:.1f},{radius:.1f} H{box.x + s + radius:.1f} v{-s} "
        f"H{right - radius:.1f} q{radius:.1f},0 {radius:.1f},{-radius:.1f} z"
    )
    return f'<path {style} d="{path}"/>'


def line_path(line: Line) -> str:
    """A piece of an edge."""
    middle = (line.bend0 + line.bend1) / 2
    path = f"M{line.x0:.1f},{line.y0:.1f}"
    if abs(line.x1 - line.x0) > 0.05:
        path += f" V{line.bend0:.1f} C{line.x0:.1f},{middle:.1f} {line.x1:.1f},{middle:.1f}"
        path += f" {line.x1:.1f},{line.bend1:.1f}"
    path += f" V{line.y1:.1f}"
    return f'<path class="line" d="{path}"' + (' marker-end="url(#arrow)"/>' if line.ends else "/>")


def _svg_node(drawn: Picture, part: Part, box: Box) -> str:
    node = drawn.outline.nodes[part.start]
    fill, border = drawn.colours.of(part)
    is_end = not part.children and node.op in ("placeholder", "output")
    radius = box.height / 2 if is_end else 6
    middle, y = box.x + box.width / 2, box.y + 1
    style = f'fill="{fill}" stroke="{border}"'
    parts = [
        f"<g><title>{markup(tooltip(drawn.outline, part))}</title>",
        _shadow(box, radius, style) if part.times > 1 else "",
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" '
        f'height="{box.height:.1f}" rx="{radius:.1f}" {style}/>',
    ]
    for css, text in texts(drawn, part):
        y += LINE_HEIGHT
        shown = markup(text)
        if css == "name" and not part.children:
            name, _, more = text.partition(" ")
            shown = markup(name) + (f' <tspan class="more">{markup(more)}</tspan>' if more else "")
        place = f'x="{middle:.1f}" y="{y:.1f}" text-anchor="middle"'
        parts.append(f'<text class="{css}" {place}>{shown}</text>')
    return "".join([*parts, "</g>"])


def legend_row(rows: tuple[tuple[str, Colour], ...], y: float) -> tuple[str, float]:
    """Coloured squares with their meaning; and the width of the row."""
    parts, x = [], 0.0
    for name, (fill, border) in rows:
        parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="11" height="11" rx="2" fill="{fill}" stroke="{border}"/>')
        parts.append(f'<text class="title" x="{x + 16:.1f}" y="{y + 9.5:.1f}">{markup(name)}</text>')
        x += 16 + len(name) * SMALL * ADVANCE + 16
    return "".join(parts), x


# -- the page --------------------------------------------------------------------------------------
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
