"""A picture as self-contained SVG text, and the parts that other pictures share with it: font, style, legend, dark
mode.

In: a :class:`~fxlite.show.drawing.picture.Picture`. Out: boxes of modules, lines, nodes with a tooltip, the legend
and the caption. Colours are CSS classes, each with its own rule, so that a picture is light or dark like the page or
desktop (``prefers-color-scheme``), and light in programs that do not support this, and in print. A picture has a name
and a description for screen readers.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from fxlite.base.outside_text import markup
from fxlite.show.drawing.colours import Colour, css_class, dark
from fxlite.show.drawing.layout import Box, Line
from fxlite.show.drawing.outline import Part
from fxlite.show.drawing.picture import ADVANCE, BIG, LINE_HEIGHT, SMALL, Picture, described, laid_out, texts, tooltip

FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
_SHADOW = 4  # pixels by which the shadows of a folded part stick out
_NARROWEST_CAPTION = 60  # characters

# -- style -----------------------------------------------------------------------------------------
#: The CSS class of all pictures, which keeps their rules from the rest of a page.
ROOT = "fx-picture"
#: Selector -> declarations for a light page, and those that differ on a dark one.
_RULES: dict[str, tuple[str, str]] = {
    "": ("color: #102a43", "color: #e6edf3"),
    ".page": ("fill: #ffffff", "fill: #0d1117"),
    ".box": ("fill: #1f4e79; fill-opacity: .045; stroke: #7d93a8", "fill: #a9c7e8; fill-opacity: .06; stroke: #6b7f93"),
    ".title": ("font-weight: 600; fill: #334e68", "fill: #b9cadb"),
    ".small": (f"font-size: {SMALL:g}px; fill: #486581", "fill: #a3b4c5"),
    ".heading": ("font-weight: bold; font-size: 13px; fill: #102a43", "fill: #e6edf3"),
    ".note": (f"font-size: {SMALL:g}px; fill: #5f2310", "fill: #ffd5bb"),
    ".name": ("font-weight: bold; fill: #102a43", "fill: #f0f4f8"),
    ".more": ("font-weight: normal; fill: #22364a", "fill: #d0dbe5"),
    ".weight": (f"font-size: {SMALL:g}px; fill: #22364a", "fill: #d0dbe5"),
    ".type": ("fill: #1b3148", "fill: #dbe4ec"),
    ".line": ("fill: none; stroke: #5a7590; stroke-width: 1.2", "stroke: #8ea6bd"),
    ".tip": ("fill: #5a7590", "fill: #8ea6bd"),
    ".axis": ("fill: none; stroke: #7d8b99", "stroke: #7d8b99"),
    ".grid": ("stroke: #e1e6eb", "stroke: #2a323b"),
    ".mark": ("fill: none; stroke: #b34700; stroke-dasharray: 4 3", "stroke: #ff9c66"),
}


def style_text(used: Iterable[Colour]) -> str:
    """The CSS rules of a picture with these colours."""
    light = {selector: rule for selector, (rule, _) in _RULES.items()}
    night = {selector: rule for selector, (_, rule) in _RULES.items()}
    for colour in used:
        light[f".{css_class(colour)}"] = _painted(colour)
        night[f".{css_class(colour)}"] = _painted(dark(colour))
    return f"{_sheet(light)}@media screen and (prefers-color-scheme: dark) {{\n{_sheet(night)}}}\n"


def _painted(colour: Colour) -> str:
    fill, border = colour
    return f"fill: {fill}; stroke: {border}; background: {fill}; border-color: {border}"


def _sheet(rules: dict[str, str]) -> str:
    return "".join(f".{ROOT} {selector} {{ {rule}; }}\n" for selector, rule in rules.items())


MARKER = """<defs><marker id="arrow" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7"
 markerHeight="7" orient="auto"><path class="tip" d="M0,1 L8,4 L0,7 z"/></marker></defs>"""


def opening(width: float, height: float, name: str, description: str = "", size: float = BIG, font: str = FONT) -> str:
    """The start tag of a picture, with its name and description for people who cannot see it."""
    told = f"<desc>{markup(description)}</desc>" if description else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{ROOT}" role="img" aria-label="{markup(name)}" '
        f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'font-family="{font}" font-size="{size:g}">{told}'
    )


# -- a graph ---------------------------------------------------------------------------------------
def svg_text(drawn: Picture, is_placed: bool = False) -> str:
    """The picture as SVG text. Nodes have their line of code and origin as a tooltip. With ``is_placed``, it is for
    programs that know no lists of fonts and no centred text of several styles: each piece of text has its place."""
    root, placed = laid_out(drawn)
    legend, legend_width = legend_row(drawn.colours.legend, root.height + 14)
    columns = max(_NARROWEST_CAPTION, int(root.width / (SMALL * ADVANCE)))
    caption = textwrap.wrap(drawn.caption, columns)
    caption_width = max(map(len, caption), default=0) * SMALL * ADVANCE + 8
    below = root.height + 14 + LINE_HEIGHT + 12  # the bottom, without the caption
    width = max(root.width, legend_width, caption_width) + 16
    height = below + len(caption) * LINE_HEIGHT
    body = [_open_box(part, box) for part, box in placed if not part.is_drawn_whole]
    sideways = drawn.direction == "LR"
    body += [_line_path(ln, sideways) for box in (root, *(b for _, b in placed)) for ln in box.lines]
    body += [_svg_node(drawn, part, box, is_placed) for part, box in placed if part.is_drawn_whole]
    shift = 8 + max(0.0, (width - 16 - root.width) / 2)
    lines = [
        f'<text class="small" x="12" y="{below + 8 + n * LINE_HEIGHT:.1f}">{markup(line)}</text>'
        for n, line in enumerate(caption)
    ]
    used = [drawn.colours.of(part) for part, _ in placed if part.is_drawn_whole]
    used += [colour for _, colour in drawn.colours.legend]
    return "\n".join(
        [
            opening(width, height, *described(drawn), font="monospace" if is_placed else FONT),
            f"<style>\n{style_text(dict.fromkeys(used))}</style>",
            MARKER,
            f'<rect class="page" width="{width:.0f}" height="{height:.0f}"/>',
            f'<g transform="translate({shift:.1f} 8)">',
            *body,
            "</g>",
            f'<g transform="translate(12 8)">{legend}</g>',
            *lines,
            "</svg>\n",
        ]
    )


def _open_box(part: Part, box: Box) -> str:
    shadow = _shadow(box, 8, 'class="box"') if part.times > 1 else ""
    return (
        f'{shadow}<rect class="box" x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" '
        f'height="{box.height:.1f}" rx="8"/>'
        f'<text class="title" x="{box.x + 9:.1f}" y="{box.y + 16:.1f}">{markup(box.title)}</text>'
    )


def _shadow(box: Box, radius: float, style: str) -> str:
    """The edge of a shadow of a folded part, to the right and below."""
    right, bottom, s = box.x + box.width, box.y + box.height, _SHADOW
    path = (
        f"M{right:.1f},{box.y + s + radius:.1f} h{s} V{bottom + s - radius:.1f} "
        f"q0,{radius:.1f} {-radius:.1f},{radius:.1f} H{box.x + s + radius:.1f} v{-s} "
        f"H{right - radius:.1f} q{radius:.1f},0 {radius:.1f},{-radius:.1f} z"
    )
    return f'<path {style} d="{path}"/>'


def _line_path(line: Line, sideways: bool) -> str:
    """The SVG path of a piece of an edge."""
    middle, along = (line.bend0 + line.bend1) / 2, "H" if sideways else "V"

    def at(x: float, y: float) -> str:
        return f"{y:.1f},{x:.1f}" if sideways else f"{x:.1f},{y:.1f}"

    path = f"M{at(line.x0, line.y0)}"
    if abs(line.x1 - line.x0) > 0.05:
        path += f" {along}{line.bend0:.1f} C{at(line.x0, middle)} {at(line.x1, middle)} {at(line.x1, line.bend1)}"
    path += f" {along}{line.y1:.1f}"
    return f'<path class="line" d="{path}"' + (' marker-end="url(#arrow)"/>' if line.ends else "/>")


def _svg_node(drawn: Picture, part: Part, box: Box, is_placed: bool) -> str:
    node = drawn.outline.nodes[part.start]
    is_end = not part.children and node.op in ("placeholder", "output")
    radius = box.height / 2 if is_end else 6
    middle, y = box.x + box.width / 2, box.y + 1
    style = f'class="{css_class(drawn.colours.of(part))}"'
    parts = [
        f"<g><title>{markup(tooltip(drawn.outline, part))}</title>",
        _shadow(box, radius, style) if part.times > 1 else "",
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" '
        f'height="{box.height:.1f}" rx="{radius:.1f}" {style}/>',
    ]
    for css, text in texts(drawn, part):
        y += LINE_HEIGHT
        name, _, more = text.partition(" ") if css == "name" else (text, "", "")
        if more and is_placed:
            left = middle - len(text) * BIG * ADVANCE / 2
            for style, words, before in ((css, name, 0), ("more", more, len(name) + 1)):
                x = left + before * BIG * ADVANCE
                parts.append(f'<text class="{style}" x="{x:.1f}" y="{y:.1f}">{markup(words)}</text>')
        else:
            shown = markup(name) + (f' <tspan class="more">{markup(more)}</tspan>' if more else "")
            parts.append(f'<text class="{css}" x="{middle:.1f}" y="{y:.1f}" text-anchor="middle">{shown}</text>')
    return "".join([*parts, "</g>"])


def legend_row(rows: tuple[tuple[str, Colour], ...], y: float, marks: Sequence[str] = ()) -> tuple[str, float]:
    """Coloured squares with their meanings, or in place of squares the paths in ``marks``; and the width of the row."""
    parts, x = [], 0.0
    for number, (name, colour) in enumerate(rows):
        style = f'class="{css_class(colour)}"'
        if marks:
            place = f"translate({x + 5.5:.1f} {y + 5.5:.1f})"
            parts.append(f'<path {style} transform="{place}" stroke-width="1.6" d="{marks[number % len(marks)]}"/>')
        else:
            parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="11" height="11" rx="2" {style}/>')
        parts.append(f'<text class="small" x="{x + 16:.1f}" y="{y + 9.5:.1f}">{markup(name)}</text>')
        x += 16 + len(name) * SMALL * ADVANCE + 16
    return "".join(parts), x
