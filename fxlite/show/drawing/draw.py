"""Pictures of graphs: the front door.

In: a graph, a file name and what to show. Out: SVG by the own layout, an HTML page to explore, DOT
text, or PNG and PDF through Graphviz. ``graph.draw`` and ``graph.to_dot`` lead here.

In DOT text modules are clusters; files are rendered by the program ``dot``, or by pygraphviz, which
brings Graphviz along.
"""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Unpack

from fxlite.base.console import write_whole
from fxlite.base.outside_text import dot_string
from fxlite.graph.graph import Graph
from fxlite.show.drawing.colours import DrawError
from fxlite.show.drawing.outline import Part
from fxlite.show.drawing.page import page_text
from fxlite.show.drawing.picture import Options, Picture, picture, texts, title
from fxlite.show.drawing.svg import svg_text

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
            lines.append(indent + _node(drawn, item))
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


def _node(drawn: Picture, part: Part) -> str:
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
