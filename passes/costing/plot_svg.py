"""Costs over the size of a dim as SVG: a line for each program.

In: names and values of the lines. Out: SVG text that stands on its own. Both axes begin at 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fxlite.base.outside_text import markup
from fxlite.passes.costing.timeline_svg import ticks
from fxlite.show.drawing.colours import Colour
from fxlite.show.drawing.svg import FONT, legend_row
from fxlite.show.node_cost import short_text

#: Pixels of the plot and of what is around it.
_WIDTH, _HEIGHT, _LEFT, _TOP, _BELOW = 640, 320, 76, 42, 76
_COLOURS: tuple[Colour, ...] = (("#2f6f9f", "#2f6f9f"), ("#c05621", "#c05621"))
_STYLE = """<style>
.heading { font-weight: bold; font-size: 13px; fill: #102a43; }
.note, .title { fill: #486581; }
.axis { stroke: #9aa5b1; fill: none; }
.grid { stroke: #e4e7eb; }
.mark { stroke: #8e1f14; stroke-dasharray: 4 3; }
</style>"""


@dataclass(frozen=True)
class Plot:
    """``lines``: by name, a value for each of ``sizes`` (of the dim ``dim``, in ascending order);
    at most two. ``marks`` are sizes to be pointed out, with what there is to say of them."""

    title: str
    dim: str
    unit: str
    sizes: Sequence[int]
    lines: Mapping[str, Sequence[float]]
    marks: Mapping[int, str]


def plot_svg(plot: Plot) -> str:
    """The picture as text."""
    highest = max((value for line in plot.lines.values() for value in line), default=0)
    widest = max(plot.sizes, default=0)
    across, upwards = _WIDTH / (widest or 1), _HEIGHT / (highest or 1)
    width, height = _LEFT + _WIDTH + 24, _TOP + _HEIGHT + _BELOW
    colours = dict(zip(plot.lines, _COLOURS))
    legend, _ = legend_row(tuple(colours.items()), _TOP + _HEIGHT + 50)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="{FONT}" font-size="11">',
            _STYLE,
            f'<rect width="{width}" height="{height}" fill="white"/>',
            f'<text class="heading" x="{_LEFT}" y="20">{markup(plot.title)}</text>',
            f'<g transform="translate({_LEFT} {_TOP})">',
            *_axes(plot, highest, widest, across, upwards),
            *_lines(plot, colours, across, upwards),
            "</g>",
            f'<g transform="translate({_LEFT} 0)">{legend}</g>' if len(plot.lines) > 1 else "",
            "</svg>\n",
        ]
    )


def _axes(plot: Plot, highest: float, widest: int, across: float, upwards: float) -> Iterator[str]:
    for value in ticks(max(int(highest), 1)):
        y = _HEIGHT - value * upwards
        yield f'<path class="grid" d="M0,{y:.1f} h{_WIDTH}"/>'
        yield _note(-6, y + 4, f"{short_text(value)}{plot.unit}" if value else "0", "end")
    yield f'<path class="axis" d="M0,0 v{_HEIGHT} h{_WIDTH}"/>'
    for value in ticks(max(widest, 1)):
        yield _note(value * across, _HEIGHT + 16, str(value), "middle")
    yield _note(_WIDTH / 2, _HEIGHT + 34, markup(plot.dim), "middle")


def _lines(
    plot: Plot, colours: Mapping[str, Colour], across: float, upwards: float
) -> Iterator[str]:
    for size, text in plot.marks.items():
        x = size * across
        yield f'<path class="mark" d="M{x:.1f},0 v{_HEIGHT}"/>'
        yield _note(x, -5, markup(text), "end" if x > _WIDTH / 2 else "start")
    for name, values in plot.lines.items():
        points = [
            f"{size * across:.1f},{_HEIGHT - value * upwards:.1f}"
            for size, value in zip(plot.sizes, values)
        ]
        yield (
            f'<path d="M{" L".join(points)}" fill="none" stroke="{colours[name][0]}" '
            f'stroke-width="2"><title>{markup(name)}</title></path>'
        )


def _note(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text class="note" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'
