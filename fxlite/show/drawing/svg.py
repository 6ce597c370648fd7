"""Pictures as SVG, by the own layout.

In: a :class:`~fxlite.show.drawing.picture.Picture`. Out: SVG text that stands on its own: boxes of
modules, lines, nodes with a tooltip, the legend and the caption.
"""

from __future__ import annotations

import textwrap

from fxlite.base.outside_text import markup
from fxlite.show.drawing.colours import Colour
from fxlite.show.drawing.layout import Box, Line
from fxlite.show.drawing.outline import Part
from fxlite.show.drawing.picture import ADVANCE, BIG, LINE_HEIGHT, SMALL, Picture, laid_out, texts, tooltip

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
    body += [_node(drawn, part, box) for part, box in placed if part.is_drawn_whole]
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


def _node(drawn: Picture, part: Part, box: Box) -> str:
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
