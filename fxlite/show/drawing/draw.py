"""Pictures of graphs: the entry points, and writing pictures to files.

In: a graph, a file name and options; or a :class:`~fxlite.show.drawing.picture.Picture`. Out: SVG with fxlite's own
layout, an HTML page to explore, DOT text, or PNG and PDF made by libraries that read SVG. ``graph.draw`` and
``graph.to_dot`` are implemented here. In DOT text, modules are clusters.
"""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Unpack

from fxlite.base.console import picture_html, write_whole
from fxlite.base.outside_text import dot_string, markup
from fxlite.base.state import paused_gc
from fxlite.graph.graph import Graph
from fxlite.show.drawing.colours import DrawError
from fxlite.show.drawing.outline import Part
from fxlite.show.drawing.page import page_text
from fxlite.show.drawing.picture import Options, Picture, picture, texts, title
from fxlite.show.drawing.svg import svg_text

_ZOOM = 2.0  # pixels of a PNG for each pixel of the picture
#: Endings of the files that can be written.
ENDINGS = (".svg", ".html", ".dot", ".png", ".pdf")


def draw(graph: Graph, path: str | Path, **options: Unpack[Options]) -> None:
    """Write a picture. The ending of the file decides the format: ``.svg`` and ``.html`` (nothing to install),
    ``.dot``, ``.png`` or ``.pdf``. Options:

    - ``weights``: also draw a node for each weight, constant and element of a tuple, which are otherwise shown on the
      nodes that read them
    - ``color``: the meaning of colours: "op" (its kind; the default), "dtype" (int8 stands out), "time", "change",
      "scope" (modules) or "sqnr"
    - ``depth``: the number of levels of modules to show; modules on the last level are closed boxes with the types of
      their inputs and outputs. The default is the largest number that stays readable (about 300 boxes)
    - ``fold``: draw consecutive equal modules and stretches of nodes once, marked "×12"; default True
    - ``direction``: "TB", from top to bottom (the default), or "LR", from left to right
    - ``times``: seconds by node (or name), or a profile; colours nodes by time
    - ``changed_from``: a graph to compare with (:func:`fxlite.diff`); colours nodes by change
    - ``sqnr``: signal-to-noise ratios in dB by module path or node name (``q.sensitivity(...).sqnr(scheme)``); colours
      nodes by ratio

    Raises DrawError for other endings and options that do not fit, and for PNG and PDF if the tool that writes them is
    missing."""
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        known = f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"
        raise DrawError(f"{path.name}: pictures are written as {known}" + (f", not {ending!r}" if ending else ""))
    if ending == ".svg":
        write_whole(path, to_svg(graph, **options))
    elif ending == ".html":
        write_whole(path, to_html(graph, title=path.stem, **options))
    elif ending == ".dot":
        write_whole(path, to_dot(graph, **options))
    else:
        write_whole(path, rendered(picture(graph, **options), ending[1:], path.name))


@paused_gc()
def to_svg(graph: Graph, **options: Unpack[Options]) -> str:
    """The graph as SVG text; options as in :func:`draw`."""
    return svg_text(picture(graph, **options))


@paused_gc()
def in_notebook(graph: Graph) -> str:
    """The picture for a notebook, with equal parts folded, and closed boxes if there is too much to draw."""
    drawn = picture(graph)
    return picture_html(svg_text(drawn)) + f"<p>{markup(drawn.count)}</p>"


@paused_gc()
def to_dot(graph: Graph, **options: Unpack[Options]) -> str:
    """The graph as DOT text; options as in :func:`draw`."""
    return dot_text(picture(graph, **options))


@paused_gc()
def to_html(graph: Graph, title: str = "graph", **options: Unpack[Options]) -> str:
    """The graph as a self-contained HTML page to explore; options as in :func:`draw`."""
    return page_text(picture(graph, **options), title)


# -- Graphviz --------------------------------------------------------------------------------------
def dot_text(drawn: Picture) -> str:
    """The picture as DOT text, with modules as clusters, and the name and type on every node."""
    lines = [
        "digraph {",
        '  node [shape=box style="rounded,filled" fontname="monospace" fontsize=11 height=0.3];',
        '  graph [fontname="monospace" fontsize=10 style=rounded labeljust=l color="#9fb3c8"];',
        '  edge [color="#627d98" arrowsize=0.7];',
    ]
    if drawn.direction != "TB":
        lines.append(f"  rankdir={drawn.direction};")
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


def rendered(drawn: Picture, format: str, name: str) -> bytes:
    """The picture as ``format`` ("png" or "pdf"), rendered from the SVG by a library or, if there is none, drawn by
    the program ``dot``.

    Raises DrawError, which says what to install, if neither is available; ``name`` is that of the file."""
    try:
        if format == "png":
            import resvg_py

            return bytes(resvg_py.svg_to_bytes(svg_string=svg_text(drawn), zoom=_ZOOM))
        import cairosvg

        return cairosvg.svg2pdf(bytestring=svg_text(drawn, is_placed=True).encode())  # type: ignore[no-any-return]
    except (ImportError, OSError):  # OSError: the C library that it needs is missing
        if shutil.which("dot"):
            import graphviz

            return graphviz.Source(dot_text(drawn)).pipe(format=format)  # type: ignore[no-any-return]
    needs = "resvg-py" if format == "png" else "cairosvg and the system's library cairo"
    raise DrawError(
        f"{name}: {format.upper()} needs {needs}, or the program `dot`, and this machine has neither. Either draw "
        "an .svg or .html, which need nothing, or run pip install 'fxlite[draw]', or install Graphviz with the "
        "system's package manager"
    )
