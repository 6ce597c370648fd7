"""Pictures of graphs: the front door.

In: a graph, a file name and what to show. Out: SVG by the own layout, an HTML page to explore, DOT
text, or PNG and PDF through Graphviz. ``graph.draw`` and ``graph.to_dot`` lead here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from fxlite.base.whole import write_whole
from fxlite.graph.graph import Graph
from fxlite.show.drawing.colours import DrawError
from fxlite.show.drawing.dot import dot_text, rendered
from fxlite.show.drawing.page import page_text
from fxlite.show.drawing.picture import Options, picture
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
