"""Pictures of graphs: SVG by the own layout, DOT text, and PNG or PDF through Graphviz.

In: a graph. Out: a picture in which every node shows its name and type, modules are titled boxes
and the colour says what kind of op it is; weights are left out unless asked for. ``graph.draw``
and ``graph.to_dot`` lead here.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path

from fxlite.drawing.layout import Box, Line, layout
from fxlite.errors import FxliteError
from fxlite.graph import Graph, Node, nodes_in
from fxlite.op import Op
from fxlite.text.pretty import node_line, type_text, value_text

#: Kind of node -> (fill, border); ops by :attr:`Op.kind`.
COLOURS = {
    "input": ("#eceff1", "#78909c"),
    "weight": ("#f5f5f5", "#bdbdbd"),
    "contraction": ("#dbe7fd", "#5c85d6"),
    "composite": ("#dceefb", "#4f9fd0"),
    "window": ("#d9f2ee", "#3fa796"),
    "pointwise": ("#e3f3dc", "#6aa84f"),
    "reduction": ("#fdebd0", "#e09b3d"),
    "scan": ("#fdebd0", "#e09b3d"),
    "view": ("#f4f4f4", "#a6a6a6"),
    "gather": ("#ece3f8", "#9673c9"),
    "scatter": ("#ece3f8", "#9673c9"),
    "creation": ("#fbf6d5", "#c9b037"),
    "opaque": ("#fbe0e0", "#d06a6a"),
    "random": ("#fbe0e0", "#d06a6a"),
    "module": ("#fbe0e0", "#d06a6a"),
}
FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
LINE_HEIGHT, BIG, SMALL = 15.0, 12.0, 10.5  # pixels: text lines, names and types, titles
ADVANCE = 0.605  # width of a character of a monospaced font, in ems
LONGEST = 34  # characters of one text


class DrawError(FxliteError, RuntimeError):
    """A picture cannot be made: unknown file type, or nothing on the machine that writes it."""


def kind_of(node: Node) -> str:
    """A key of :data:`COLOURS`."""
    if isinstance(node.target, Op):
        return node.target.kind
    kinds = {"get_attr": "weight", "call_module": "module"}
    return kinds.get(node.op, "input")


def module_tree(graph: Graph, weights: bool = False) -> Box:
    """The nodes as leaves of nested boxes, one for each visit of a module (a run of nodes whose
    scopes share a path). A module with one node is a titled leaf. Keys of leaves are nodes."""
    drawn = [n for n in graph.nodes if weights or n.op != "get_attr"]
    paths = [tuple(n.scope.path.split(".")) if n.scope and n.scope.path else () for n in drawn]
    classes = {n.scope.path: n.scope.class_name for n in drawn if n.scope}
    root = Box(None)
    work = [(root, range(len(drawn)), 0)]
    while work:
        box, members, depth = work.pop()
        for part, run in itertools.groupby(members, lambda i: paths[i][depth : depth + 1]):  # noqa: B023
            inside = list(run)
            if not part:
                box.children += [Box(drawn[i]) for i in inside]
                continue
            path, below = paths[inside[0]], depth + 1
            if len(inside) == 1:
                below = len(path)
            while below < len(path) and len({paths[i][below : below + 1] for i in inside}) == 1:
                below += 1  # a box that would hold nothing but one box
            title, name = ".".join(path[depth:below]), classes.get(".".join(path[:below]))
            child = Box(drawn[inside[0]] if len(inside) == 1 else inside[0])
            child.title = f"{title} ({name})" if name else title
            box.children.append(child)
            if len(inside) > 1:
                work.append((child, range(inside[0], inside[-1] + 1), below))
    return root


def _texts(node: Node) -> tuple[str, str, str]:
    """Name, attributes and type of a node, short enough for a picture."""
    values = [] if node.op == "output" else [v for v in node.args if not list(nodes_in(v))]
    parts = [value_text(v) for v in values if v is not None]
    parts += [f"{k}={value_text(v)}" for k, v in node.kwargs.items() if not list(nodes_in(v))]
    name = str(node.target) if node.op == "get_attr" else node.name
    return (
        name,
        _short(" ".join(parts)),
        _short(type_text(node.type) if node.type is not None else ""),
    )


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _leaves(box: Box) -> Iterator[Box]:
    for inner in _boxes(box):
        if not inner.children:
            yield inner


def _boxes(box: Box) -> Iterator[Box]:
    """All boxes below ``box``, outer ones first."""
    stack = box.children[::-1]
    while stack:
        inner = stack.pop()
        yield inner
        stack += inner.children[::-1]


def _edges(leaves: Iterable[Box]) -> Iterator[tuple[Node, Node]]:
    drawn = [leaf.key for leaf in leaves]
    known = set(drawn)
    for node in drawn:
        for used in node.all_input_nodes:
            if used in known:
                yield used, node


# -- SVG -------------------------------------------------------------------------------------------
def to_svg(graph: Graph, weights: bool = False) -> str:
    """The graph as SVG text. Nodes carry their line of code and origin as a tooltip."""
    root = module_tree(graph, weights)
    for box in _boxes(root):
        box.title_width = len(box.title) * SMALL * ADVANCE
        if not box.children:
            name, attributes, type_ = _texts(box.key)
            first = f"{name} {attributes}".rstrip()
            widest = max(len(first), len(type_))
            box.width = max(widest * BIG * ADVANCE, box.title_width) + 18
            box.height = LINE_HEIGHT * (1 + bool(type_) + bool(box.title)) + 9
    leaves = list(_leaves(root))
    layout(root, _edges(leaves))
    kinds = list(dict.fromkeys(k for k in map(kind_of, (b.key for b in leaves)) if k != "input"))
    legend, legend_width = _legend(kinds, root.height + 14)
    width, height = max(root.width, legend_width) + 16, root.height + 14 + LINE_HEIGHT + 12
    body = [_svg_box(box) for box in _boxes(root) if box.children]
    body += [_svg_line(line) for box in (root, *_boxes(root)) for line in box.lines]
    body += [_svg_node(leaf) for leaf in leaves]
    shift = 8 + max(0.0, (legend_width - root.width) / 2)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="{FONT}" font-size="{BIG}">',
            STYLE,
            f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>',
            f'<g transform="translate({shift:.1f} 8)">',
            *body,
            "</g>",
            f'<g transform="translate(12 8)">{legend}</g>',
            "</svg>\n",
        ]
    )


STYLE = f"""<style>
.box {{ fill: #1f4e79; fill-opacity: .045; stroke: #9fb3c8; }}
.title {{ font-size: {SMALL}px; fill: #627d98; }}
.name {{ font-weight: bold; fill: #102a43; }}
.more {{ font-weight: normal; fill: #486581; }}
.type {{ fill: #243b53; }}
.line {{ fill: none; stroke: #627d98; stroke-width: 1.2; }}
</style>
<defs><marker id="arrow" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7" markerHeight="7"
 orient="auto"><path d="M0,1 L8,4 L0,7 z" fill="#627d98"/></marker></defs>"""


def _svg_box(box: Box) -> str:
    return (
        f'<rect class="box" x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" '
        f'height="{box.height:.1f}" rx="8"/>'
        f'<text class="title" x="{box.x + 9:.1f}" y="{box.y + 14:.1f}">{escape(box.title)}</text>'
    )


def _svg_line(line: Line) -> str:
    middle = (line.bend0 + line.bend1) / 2
    path = f"M{line.x0:.1f},{line.y0:.1f}"
    if abs(line.x1 - line.x0) > 0.05:
        path += f" V{line.bend0:.1f} C{line.x0:.1f},{middle:.1f} {line.x1:.1f},{middle:.1f}"
        path += f" {line.x1:.1f},{line.bend1:.1f}"
    path += f" V{line.y1:.1f}"
    return f'<path class="line" d="{path}"' + (' marker-end="url(#arrow)"/>' if line.ends else "/>")


def _svg_node(leaf: Box) -> str:
    node: Node = leaf.key
    fill, border = COLOURS[kind_of(node)]
    radius = leaf.height / 2 if node.op in ("placeholder", "output") else 6
    middle, y = leaf.x + leaf.width / 2, leaf.y + 1
    name, attributes, type_ = _texts(node)
    more = f' <tspan class="more">{escape(attributes)}</tspan>' if attributes else ""
    texts = [("title", escape(leaf.title)), ("name", escape(name) + more), ("type", escape(type_))]
    origin = f"\n{node.origin}" if node.origin else ""
    parts = [
        f"<g><title>{escape(node_line(node) + origin)}</title>",
        f'<rect x="{leaf.x:.1f}" y="{leaf.y:.1f}" width="{leaf.width:.1f}" '
        f'height="{leaf.height:.1f}" rx="{radius:.1f}" fill="{fill}" stroke="{border}"/>',
    ]
    for css, text in texts:
        if text:
            y += LINE_HEIGHT
            place = f'x="{middle:.1f}" y="{y:.1f}" text-anchor="middle"'
            parts.append(f'<text class="{css}" {place}>{text}</text>')
    return "".join([*parts, "</g>"])


def _legend(kinds: list[str], y: float) -> tuple[str, float]:
    """Coloured squares with the names of the kinds; and their width."""
    parts, x = [], 0.0
    for kind in kinds:
        fill, border = COLOURS[kind]
        parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="11" height="11" rx="2" fill="{fill}" '
                     f'stroke="{border}"/>')  # fmt: skip
        parts.append(f'<text class="title" x="{x + 16:.1f}" y="{y + 9.5:.1f}">{kind}</text>')
        x += 16 + len(kind) * SMALL * ADVANCE + 16
    return "".join(parts), x


# -- DOT and files ---------------------------------------------------------------------------------
def to_dot(graph: Graph, weights: bool = False) -> str:
    """The graph as DOT text: modules as clusters, name and type on every node."""
    lines = [
        "digraph {",
        '  node [shape=box style="rounded,filled" fontname="monospace" fontsize=11 height=0.3];',
        '  graph [fontname="monospace" fontsize=10 style=rounded labeljust=l color="#9fb3c8"];',
        '  edge [color="#627d98" arrowsize=0.7];',
    ]
    root = module_tree(graph, weights)
    stack: list[Box | str] = [*root.children[::-1]]
    depth, clusters = 1, itertools.count()
    while stack:
        item = stack.pop()
        indent = "  " * depth
        if isinstance(item, str):
            depth -= 1
            lines.append(indent[2:] + item)
        elif item.children:
            lines.append(f"{indent}subgraph cluster_{next(clusters)} {{")
            depth += 1
            lines.append(f"{indent}  label={_quoted(item.title)};")
            stack += ["}", *item.children[::-1]]
        else:
            lines.append(indent + _dot_node(item))
    lines += [f"  {_quoted(a.name)} -> {_quoted(b.name)};" for a, b in _edges(_leaves(root))]
    return "\n".join([*lines, "}\n"])


def _dot_node(leaf: Box) -> str:
    node: Node = leaf.key
    fill, border = COLOURS[kind_of(node)]
    name, attributes, type_ = _texts(node)
    texts = [leaf.title, f"{name} {attributes}".rstrip(), type_]
    label = "\\n".join(_quoted(t)[1:-1] for t in texts if t)
    return f'{_quoted(node.name)} [label="{label}" fillcolor="{fill}" color="{border}"];'


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def draw(graph: Graph, path: str | Path, weights: bool = False) -> None:
    """Write a picture; the ending says which: ``.svg`` (nothing to install), ``.dot``, ``.png`` or
    ``.pdf``.

    Raises DrawError for other endings, and for PNG and PDF where Graphviz is missing."""
    path = Path(path)
    ending = path.suffix.lower()
    if ending == ".svg":
        path.write_text(to_svg(graph, weights), encoding="utf-8")
    elif ending == ".dot":
        path.write_text(to_dot(graph, weights), encoding="utf-8")
    elif ending in (".png", ".pdf"):
        path.write_bytes(_graphviz(to_dot(graph, weights), ending[1:], path.name))
    else:
        raise DrawError(
            f"{path.name}: pictures are written as .svg, .dot, .png or .pdf, not {ending!r}"
        )


def _graphviz(dot: str, format: str, name: str) -> bytes:
    """A rendered picture, by the ``dot`` program or by pygraphviz, whichever is there."""
    if shutil.which("dot"):
        import graphviz

        return graphviz.Source(dot).pipe(format=format)  # type: ignore[no-any-return]
    try:
        import pygraphviz
    except ImportError:
        raise DrawError(
            f"{name}: PNG and PDF need Graphviz, and this machine has none. Either draw an .svg, "
            "which needs nothing, or run pip install 'fxlite[draw]' (brings Graphviz along), or "
            "install the program `dot` with the system's package manager"
        ) from None
    return pygraphviz.AGraph(string=dot).draw(format=format, prog="dot")  # type: ignore[no-any-return]
