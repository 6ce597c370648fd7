"""Pictures of costs as self-contained SVG: a memory timeline, and plots over the size of a dim.

In: a :class:`~fxlite.passes.costing.timeline.MemoryTimeline`. Out: a picture with steps from left to
right, bytes upwards, and an area for each value. Without a plan the values are stacked in the order
of their first step, so that the outline is the memory held; with a plan each value is drawn at its
place in the arena.

In: one or two cost reports, a quantity and sizes. Out: a plot with a line for each program, which may
be written to a file. Both axes begin at 0.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxlite.base.errors import ArgumentError, sizes_text
from fxlite.base.outside_text import markup
from fxlite.passes.costing.costs import QUANTITIES, TITLES, SizeRanges, sizes_that_pay
from fxlite.show.drawing.colours import KINDS, OTHER, Colour, css_class, kind_of
from fxlite.show.drawing.svg import legend_row, opening, style_text
from fxlite.show.node_cost import quantity_text
from fxlite.show.text.pretty import type_text

if TYPE_CHECKING:
    from fxlite.passes.costing.cost_report import CostReport
    from fxlite.passes.costing.timeline import Buffer, MemoryTimeline

#: Pixels of the plot and of what is around it.
_WIDTH, _HEIGHT, _LEFT, _TOP, _BELOW = 900, 320, 76, 58, 66
#: Values with an area of their own, and columns; of the steps in a column the fullest is drawn.
_MOST_AREAS, _MOST_COLUMNS = 200, 450
_REST: Colour = ("#e4e7eb", "#7b8794")
_LETTER = 6.4  # width of a character in pixels


@dataclass(frozen=True)
class _Area:
    """Where a value is drawn: columns ``first`` up to, but not including, ``first + len(spans)``, with
    the lower and upper bytes in each. Without a buffer it stands for all smaller values together."""

    buffer: Buffer | None
    first: int
    spans: list[tuple[int, int]]


def svg_text(timeline: MemoryTimeline) -> str:
    """The picture as text."""
    columns = _columns(timeline)
    highest = timeline.peak or 1
    scale = _HEIGHT / highest
    step_width = _WIDTH / max(len(columns), 1)
    areas = _planned(timeline, columns) if timeline.slots else _stacked(timeline, columns)
    body = [*_slot_lines(timeline, scale)]
    kinds: dict[str, Colour] = {}
    for area in areas:
        colour = _REST
        if area.buffer is not None:
            kind = kind_of(area.buffer.node)
            colour = kinds.setdefault(kind, KINDS.get(kind, OTHER))
        body.append(_drawn(timeline, area, colour, step_width, scale))
    rows = tuple(kinds.items())
    if any(area.buffer is None for area in areas):
        rows += (("smaller values", _REST),)
    legend, _ = legend_row(rows, _TOP + _HEIGHT + 42)
    width, height = _LEFT + _WIDTH + 24, _TOP + _HEIGHT + _BELOW
    around = [*_heading(timeline), *_axes(timeline, columns, highest, scale, step_width)]
    body += _peak_mark(timeline, columns, step_width)
    shown = f"{timeline.name}: memory by step, {_about(timeline)}"
    return plot_picture(width, height, shown, [*kinds.values(), _REST], around, _TOP, body, legend)


def plot_picture(
    width: int,
    height: int,
    name: str,
    colours: Iterable[Colour],
    around: Iterable[str],
    top: int,
    body: Iterable[str],
    legend: str | None,
    left: float = _LEFT,
) -> str:
    """SVG text of a plot with its frame, title and axes, and the legend if there is one."""
    return "\n".join(
        [
            opening(width, height, name, size=11),
            f"<style>\n{style_text(dict.fromkeys(colours))}</style>",
            f'<rect class="page" width="{width}" height="{height}"/>',
            *around,
            f'<g transform="translate({left:g} {top})">',
            *body,
            "</g>",
            "" if legend is None else f'<g transform="translate({left:g} 0)">{legend}</g>',
            "</svg>\n",
        ]
    )


def _columns(timeline: MemoryTimeline) -> list[int]:
    """The step that each column shows: every step, or the fullest of each stretch of steps."""
    count = len(timeline.steps)
    if count <= _MOST_COLUMNS:
        return list(range(count))
    bounds = [column * count // _MOST_COLUMNS for column in range(_MOST_COLUMNS + 1)]
    return [max(range(start, stop), key=timeline.held.__getitem__) for start, stop in itertools.pairwise(bounds)]


def _planned(timeline: MemoryTimeline, columns: list[int]) -> list[_Area]:
    areas = []
    for buffer in timeline.buffers:
        shown = [c for c, step in enumerate(columns) if buffer.first <= step <= buffer.last]
        low = buffer.start
        if shown:
            areas.append(_Area(buffer, shown[0], [(low, low + buffer.nbytes)] * len(shown)))
    return areas


def _stacked(timeline: MemoryTimeline, columns: list[int]) -> list[_Area]:
    """The largest values in the order of their first step, stacked on all smaller ones together."""
    shown = timeline.shown(_MOST_AREAS)
    first: dict[Buffer, int] = {}
    spans: dict[Buffer, list[tuple[int, int]]] = {}
    rest: list[tuple[int, int]] = []
    begun = 0
    alive: list[Buffer] = []
    for column, step in enumerate(columns):
        while begun < len(shown) and shown[begun].first <= step:
            alive.append(shown[begun])
            begun += 1
        alive = [b for b in alive if b.last >= step]
        low = timeline.held[step] - sum(b.nbytes for b in alive)
        rest.append((0, low))
        for buffer in alive:
            first.setdefault(buffer, column)
            spans.setdefault(buffer, []).append((low, low + buffer.nbytes))
            low += buffer.nbytes
    areas = [_Area(buffer, first[buffer], spans[buffer]) for buffer in first]
    return [_Area(None, 0, rest), *areas] if any(high for _, high in rest) else areas


def _drawn(timeline: MemoryTimeline, area: _Area, colour: Colour, step_width: float, scale: float) -> str:
    """The area as a path with a tooltip, and its name if there is room."""
    left = area.first * step_width
    upper = _edge([high for _, high in area.spans], left, step_width, scale)
    lower = _edge([low for low, _ in area.spans], left, step_width, scale)
    path = "M" + " L".join(f"{x:.1f},{y:.1f}" for x, y in [*upper, *reversed(lower)]) + "z"
    shape = f'<path class="{css_class(colour)}" d="{path}" stroke-width="0.7"/>'
    tooltip = f"<title>{markup(_tooltip(timeline, area))}</title>"
    return f"<g>{tooltip}{shape}{_name(area, left, step_width, scale)}</g>"


def _edge(values: list[int], left: float, step_width: float, scale: float) -> list[tuple[float, float]]:
    """Corners of a line that has one height in each column."""
    points: list[tuple[float, float]] = []
    position = 0
    for value, run in itertools.groupby(values):
        y = _HEIGHT - value * scale
        points.append((left + position * step_width, y))
        position += len(list(run))
        points.append((left + position * step_width, y))
    return points


def _name(area: _Area, left: float, step_width: float, scale: float) -> str:
    """The name of an area, in its longest stretch of even height, if it fits."""
    if area.buffer is None:
        return ""
    best, at, position = 0, 0, 0
    for _, run in itertools.groupby(area.spans):
        length = len(list(run))
        if length > best:
            best, at = length, position
        position += length
    low, high = area.spans[at]
    name = area.buffer.node.name
    if best * step_width < len(name) * _LETTER + 4 or (high - low) * scale < 12:
        return ""
    x = left + (at + best / 2) * step_width
    y = _HEIGHT - (low + high) / 2 * scale + 4
    return f'<text class="type" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{markup(name)}</text>'


def _tooltip(timeline: MemoryTimeline, area: _Area) -> str:
    buffer = area.buffer
    if buffer is None:
        return "smaller values"
    place = f"\n{buffer.node.origin}" if buffer.node.origin else ""
    slot = f", slot {buffer.slot}" if buffer.slot is not None else ""
    if timeline.is_packed:
        slot = f" from byte {buffer.start:,} on"
    return (
        f"{buffer.node.name}: {type_text(buffer.node.type)}, {buffer.nbytes:,} bytes{slot}\n"
        f"steps {buffer.first + 1} ({timeline.steps[buffer.first]}) to {buffer.last + 1} "
        f"({timeline.steps[buffer.last]}){place}"
    )


# -- around the plot -------------------------------------------------------------------------------
def _heading(timeline: MemoryTimeline) -> Iterator[str]:
    sizes = sizes_text(timeline.sizes)
    yield f'<text class="heading" x="{_LEFT}" y="20">{markup(timeline.name + sizes)}</text>'
    yield f'<text class="small" x="{_LEFT}" y="37">{markup(_about(timeline))}</text>'


def _about(timeline: MemoryTimeline) -> str:
    if timeline.slots:
        return f"arena {timeline.arena_text}"
    while_ = f" while {timeline.steps[timeline.fullest]} runs" if timeline.steps else ""
    return f"peak {timeline.peak:,} bytes{while_}"


def _axes(timeline: MemoryTimeline, columns: list[int], highest: int, scale: float, step_width: float) -> Iterator[str]:
    """Grid lines labelled with bytes, and the numbers of steps."""
    bottom = _TOP + _HEIGHT
    for value in ticks(highest):
        y = bottom - value * scale
        yield f'<path class="grid" d="M{_LEFT},{y:.1f} h{_WIDTH}"/>'
        text = quantity_text(value, "B") if value else "0"
        yield note(_LEFT - 6, y + 4, text, "end")
    yield f'<path class="axis" d="M{_LEFT},{bottom} h{_WIDTH}"/>'
    for column in range(0, len(columns), max(1, -(-len(columns) // 15))):
        x = _LEFT + (column + 0.5) * step_width
        yield note(x, bottom + 15, str(columns[column] + 1), "middle")
    yield note(_LEFT + _WIDTH / 2, bottom + 30, "step", "middle")


def note(x: float, y: float, text: str, anchor: str) -> str:
    """A short text beside a mark or a line; ``anchor`` says which end of the text is at ``x``."""
    return f'<text class="small" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def ticks(highest: int) -> list[int]:
    """Four to ten round numbers, starting at 0."""
    power = 10 ** (len(str(highest)) - 1)
    size = next((power * f // 10 for f in (1, 2, 5, 10, 20) if highest * 10 <= power * f * 9), power * 2)
    return list(range(0, highest + 1, max(size, 1)))


def _slot_lines(timeline: MemoryTimeline, scale: float) -> Iterator[str]:
    """The borders of the arena's slots, with their numbers if there are several."""
    for number, start in enumerate(itertools.accumulate(timeline.slots, initial=0)):
        y = _HEIGHT - start * scale
        yield f'<path class="axis" d="M0,{y:.1f} h{_WIDTH}"/>'
        if not timeline.is_packed and number < len(timeline.slots) and timeline.slots[number] * scale > 12:
            yield note(_WIDTH - 4, y - 4, str(number), "end")


def _peak_mark(timeline: MemoryTimeline, columns: list[int], step_width: float) -> Iterator[str]:
    """A line over the fullest step."""
    if timeline.slots or not columns:
        return
    column = next(c for c, step in enumerate(columns) if step >= timeline.fullest)
    x = (column + 0.5) * step_width
    yield f'<path class="mark" d="M{x:.1f},-6 v{_HEIGHT + 6}"/>'


# -- plots of costs --------------------------------------------------------------------------------
_COUNTED = ("flops", "parameters", "intensity")  # all other quantities are in bytes


def plot(
    reports: Mapping[str, CostReport], quantity: str, path: str | os.PathLike[str] | None, sizes: Mapping[str, Any]
) -> str:
    """Plot a line for each report, by name. For two reports, the sizes at which the second begins or
    ceases to pay are marked. Raises ArgumentError as CostReport.table and CostTable.column do, and
    for costs that are unknown."""
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
    at = sizes_text(fixed)
    unit = "" if quantity in _COUNTED else "B"
    text = plot_svg(Plot(f"{names}: {TITLES[quantity]}{at}", dim, unit, ordered, lines, marks))
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def _break_even(before: CostReport, after: CostReport, dim: str, quantity: str, fixed: Mapping[str, int]) -> SizeRanges:
    """The sizes for which the second report costs less."""
    dims = {*before.dims, *after.dims}
    if dim not in dims:
        return SizeRanges(dim, ())
    known = {n: s for n, s in fixed.items() if n in dims}
    return sizes_that_pay(before.total, after.total, dim, quantity, known)


# -- SVG -------------------------------------------------------------------------------------------
#: Pixels of the plot and of what is around it.
_PLOT_WIDTH, _PLOT_TOP, _PLOT_BELOW = 640, 42, 76
_COLOURS: tuple[Colour, ...] = (("#0b62a8", "#0b62a8"), ("#b34700", "#b34700"))


@dataclass(frozen=True)
class Plot:
    """``lines`` holds, by name, a value for each of ``sizes`` (of the dim ``dim``, in ascending
    order); there are at most two lines. ``marks`` are sizes to point out, with a text for each."""

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
    across, upwards = _PLOT_WIDTH / (widest or 1), _HEIGHT / (highest or 1)
    width, height = _LEFT + _PLOT_WIDTH + 24, _PLOT_TOP + _HEIGHT + _PLOT_BELOW
    colours = dict(zip(plot.lines, _COLOURS))
    legend, _ = legend_row(tuple(colours.items()), _PLOT_TOP + _HEIGHT + 50)
    body = [*_plot_axes(plot, highest, widest, across, upwards), *_plot_lines(plot, colours, across, upwards)]
    heading = f'<text class="heading" x="{_LEFT}" y="20">{markup(plot.title)}</text>'
    return plot_picture(
        width, height, plot.title, colours.values(), [heading], _PLOT_TOP, body, legend if len(plot.lines) > 1 else None
    )


def _plot_axes(plot: Plot, highest: float, widest: int, across: float, upwards: float) -> Iterator[str]:
    for value in ticks(max(int(highest), 1)):
        y = _HEIGHT - value * upwards
        yield f'<path class="grid" d="M0,{y:.1f} h{_PLOT_WIDTH}"/>'
        yield note(-6, y + 4, quantity_text(value, plot.unit) if value else "0", "end")
    yield f'<path class="axis" d="M0,0 v{_HEIGHT} h{_PLOT_WIDTH}"/>'
    for value in ticks(max(widest, 1)):
        yield note(value * across, _HEIGHT + 16, str(value), "middle")
    yield note(_PLOT_WIDTH / 2, _HEIGHT + 34, markup(plot.dim), "middle")


def _plot_lines(plot: Plot, colours: Mapping[str, Colour], across: float, upwards: float) -> Iterator[str]:
    for size, text in plot.marks.items():
        x = size * across
        yield f'<path class="mark" d="M{x:.1f},0 v{_HEIGHT}"/>'
        yield note(x, -5, markup(text), "end" if x > _PLOT_WIDTH / 2 else "start")
    for name, values in plot.lines.items():
        points = [f"{size * across:.1f},{_HEIGHT - value * upwards:.1f}" for size, value in zip(plot.sizes, values)]
        yield (
            f'<path class="{css_class(colours[name])}" d="M{" L".join(points)}" style="fill: none" '
            f'stroke-width="2"><title>{markup(name)}</title></path>'
        )
