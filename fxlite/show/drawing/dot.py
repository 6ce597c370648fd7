"""Pictures as DOT text, and as PNG and PDF through Graphviz.

In: a :class:`~fxlite.show.drawing.picture.Picture`. Out: DOT text with modules as clusters;
rendered files by the program ``dot``, or by pygraphviz, which brings Graphviz along.
"""

from __future__ import annotations

import itertools
import shutil

from fxlite.base.outside_text import dot_string
from fxlite.show.drawing.colours import DrawError
from fxlite.show.drawing.outline import Part
from fxlite.show.drawing.picture import Picture, texts, title


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
