"""Plots of costs over the size of a dim, with a line for each program.

In: one cost report or two, a quantity and sizes. Out: SVG text that stands on its own, and maybe a
file. Both axes begin at 0.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxlite.base.errors import ArgumentError
from fxlite.base.outside_text import markup
from fxlite.passes.costing.costs import QUANTITIES, TITLES, SizeRanges, sizes_that_pay
from fxlite.passes.costing.timeline_svg import note, ticks
from fxlite.show.drawing.colours import Colour
from fxlite.show.drawing.draw import FONT, legend_row
from fxlite.show.node_cost import short_text

if TYPE_CHECKING:
    from fxlite.passes.costing.cost_report import CostReport


_COUNTED = ("flops", "parameters", "intensity")  # the other quantities are bytes


def plot(
    reports: Mapping[str, CostReport], quantity: str, path: str | os.PathLike[str] | None, sizes: Mapping[str, Any]
) -> str:
    """A line for each report, by name; of two, the sizes at which the second begins or ceases to
    pay are marked. Raises ArgumentError as CostReport.table and CostTable.column do, and for costs
    that are unknown."""
    fixed = {name: value for name, value in sizes.items() if isinstance(value, int)}
    tables = {name: report.table(**sizes) for name, report in reports.items()}
    dim = next(iter(tables.values())).dim
    ordered = sorted(set(sizes[dim]))
    lines = {}
    for name, table in tables.items():
        by_size = dict(zip(table.values, table.column(quantity)))
        if None in by_size.values():
            raise ArgumentError(f"{quantity} of {name} is unknown: there are leaf modules, or no types")
        lines[name] = [by_size[size] for size in ordered]
    marks: dict[int, str] = {}
    if len(reports) == 2 and quantity in QUANTITIES:
        before, after = reports.values()
        found = _break_even(before, after, dim, quantity, fixed)
        ends = [end for pair in found.ranges for end in pair if end is not None]
        marks = {end: f"pays: {found}" for end in ends if ordered[0] < end < ordered[-1]}
    names = " and ".join(dict.fromkeys(report.module.name for report in reports.values()))
    at = "".join(f", {name}={size}" for name, size in fixed.items())
    unit = "" if quantity in _COUNTED else "B"
    text = plot_svg(Plot(f"{names}: {TITLES[quantity]}{at}", dim, unit, ordered, lines, marks))
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def _break_even(before: CostReport, after: CostReport, dim: str, quantity: str, fixed: Mapping[str, int]) -> SizeRanges:
    """The sizes that pay."""
    dims = {*before.dims, *after.dims}
    if dim not in dims:
        return SizeRanges(dim, ())
    known = {n: s for n, s in fixed.items() if n in dims}
    return sizes_that_pay(before.total, after.total, dim, quantity, known)


# -- SVG -------------------------------------------------------------------------------------------
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
        yield note(-6, y + 4, f"{short_text(value)}{plot.unit}" if value else "0", "end")
    yield f'<path class="axis" d="M0,0 v{_HEIGHT} h{_WIDTH}"/>'
    for value in ticks(max(widest, 1)):
        yield note(value * across, _HEIGHT + 16, str(value), "middle")
    yield note(_WIDTH / 2, _HEIGHT + 34, markup(plot.dim), "middle")


def _lines(plot: Plot, colours: Mapping[str, Colour], across: float, upwards: float) -> Iterator[str]:
    for size, text in plot.marks.items():
        x = size * across
        yield f'<path class="mark" d="M{x:.1f},0 v{_HEIGHT}"/>'
        yield note(x, -5, markup(text), "end" if x > _WIDTH / 2 else "start")
    for name, values in plot.lines.items():
        points = [f"{size * across:.1f},{_HEIGHT - value * upwards:.1f}" for size, value in zip(plot.sizes, values)]
        yield (
            f'<path d="M{" L".join(points)}" fill="none" stroke="{colours[name][0]}" '
            f'stroke-width="2"><title>{markup(name)}</title></path>'
        )
