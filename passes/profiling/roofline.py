"""A roofline plot as self-contained SVG: how much of the machine's speed a program reaches.

In: a :class:`~fxlite.passes.profiling.record.Profile` with roofs. Out: a plot of FLOP/s over FLOPs per byte, both
in powers of ten. The roofs rise with the rate of memory (and of the cache) and end at the rate of arithmetic. Each
row is a disc, larger the more time it takes; its distance below the roof is the possible gain. The model is that of
Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for multicore architectures"
(2009).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fxlite.base.errors import ArgumentError
from fxlite.base.outside_text import markup
from fxlite.passes.costing.pictures import note, plot_picture
from fxlite.passes.profiling.tables import reached_text, seconds_text
from fxlite.show.drawing.colours import KINDS, Colour, css_class, kind_of
from fxlite.show.drawing.svg import legend_row
from fxlite.show.node_cost import Roofs, quantity_text

if TYPE_CHECKING:
    from fxlite.passes.profiling.record import Profile, Row

#: Pixels of the plot, and of the smallest and largest disc.
_WIDTH, _HEIGHT, _TOP, _BELOW = 640.0, 360.0, 58, 84
_SMALLEST, _LARGEST = 3.0, 18.0
_MOST_NAMES = 6  # rows whose names are printed beside their discs
_LETTER = 6.8  # width of a character in pixels


_Disc = tuple[str, float, float, float]  # name, place and radius
_Box = tuple[float, float, float, float]  # left, top, right, bottom


class _Scale:
    """A logarithmic scale with powers of ten from ``low`` to ``high`` over a number of pixels."""

    def __init__(self, values: list[float], pixels: float) -> None:
        self.low = math.floor(math.log10(min(values)))
        self.high = max(math.ceil(math.log10(max(values)) + 0.05), self.low + 1)
        self.pixels = pixels

    def at(self, value: float) -> float:
        """The pixel of a value, counted from the low end."""
        return (math.log10(value) - self.low) / (self.high - self.low) * self.pixels

    def powers(self) -> list[float]:
        return [10.0**power for power in range(self.low, self.high + 1)]


def roofline_svg(profile: Profile) -> str:
    """The plot as SVG text. Raises ArgumentError for a profile without roofs, and if no row has FLOPs."""
    if profile.roofs is None:
        raise ArgumentError("a roofline needs the roofs of the machine, which this profile was made without")
    rows = [row for row in profile.rows if row.flops and row.bytes and row.flops_per_second]
    if not rows:
        raise ArgumentError(f"a roofline needs rows with FLOPs and bytes, and {profile.name} has none")
    lines = _roofs(profile.roofs, profile.threads)
    highest = max(peak for _, _, peak in lines)
    ridges = [peak / rate for _, rate, peak in lines]
    across = _Scale([*ridges, *map(_intensity, rows)], _WIDTH)
    upwards = _Scale([highest, *(row.flops_per_second or 1.0 for row in rows)], _HEIGHT)
    kinds = {kind_of(row.node): KINDS[kind_of(row.node)] for row in rows}
    legend, _ = legend_row(tuple(kinds.items()), _TOP + _HEIGHT + 56)
    body = [*_axes(across, upwards), *_lines(lines, across, upwards), *_discs(profile, rows, across, upwards)]
    name = f"{profile.name}: roofline, {profile.threads} thread{'s' * (profile.threads > 1)}"
    around = [
        f'<text class="heading" x="76" y="20">{markup(name)}</text>',
        f'<text class="small" x="76" y="37">{markup(profile.roofs.cpu)}; a disc is as large as its time</text>',
    ]
    size = int(_WIDTH) + 100, int(_TOP + _HEIGHT + _BELOW)
    return plot_picture(*size, name, kinds.values(), around, _TOP, body, legend)


def _intensity(row: Row) -> float:
    return (row.flops or 0) / (row.bytes or 1)


def _roofs(roofs: Roofs, threads: int) -> list[tuple[str, float, float]]:
    """Names, bytes per second, and the FLOP/s at which each roof ends."""
    peak = roofs.compute("f32", threads)
    places = [(name, roof) for name, roof in (("memory", "read"), ("cache", "cached_read")) if roof in roofs.roofs]
    return [(name, roofs.rate(roof, threads), peak) for name, roof in places]


def _axes(across: _Scale, upwards: _Scale) -> Iterator[str]:
    for value in upwards.powers():
        y = _HEIGHT - upwards.at(value)
        yield f'<path class="grid" d="M0,{y:.1f} h{_WIDTH}"/>'
        yield note(-6, y + 4, quantity_text(value), "end")
    for value in across.powers():
        x = across.at(value)
        yield f'<path class="grid" d="M{x:.1f},0 v{_HEIGHT}"/>'
        yield note(x, _HEIGHT + 16, f"{value:g}", "middle")
    yield f'<path class="axis" d="M0,0 v{_HEIGHT} h{_WIDTH}"/>'
    yield note(_WIDTH / 2, _HEIGHT + 36, "FLOPs per byte", "middle")
    yield note(-6, -8, "FLOP/s", "end")


def _lines(lines: list[tuple[str, float, float]], across: _Scale, upwards: _Scale) -> Iterator[str]:
    for name, rate, peak in lines:
        left = max(10.0**across.low, 10.0**upwards.low / rate)
        ridge, top = across.at(peak / rate), _HEIGHT - upwards.at(peak)
        start = f"{across.at(left):.1f},{_HEIGHT - upwards.at(left * rate):.1f}"
        told = f"{name}: {quantity_text(rate, 'B/s')}"
        yield (
            f'<path class="line" style="stroke-width: 2" d="M{start} L{ridge:.1f},{top:.1f} H{_WIDTH}">'
            f"<title>{markup(told)}</title></path>"
        )
        place = (ridge + 8, top + 16, "start") if name == "memory" else (ridge - 8, top - 6, "end")
        yield note(place[0], place[1], markup(told), place[2])
    yield note(_WIDTH, _HEIGHT - upwards.at(lines[0][2]) - 6, quantity_text(lines[0][2], "FLOP/s"), "end")


def _discs(profile: Profile, rows: list[Row], across: _Scale, upwards: _Scale) -> Iterator[str]:
    total = profile.rows_seconds or 1.0
    placed: list[_Disc] = []
    for row in sorted(rows, key=lambda row: -row.median):
        share = row.median / total
        x, y = across.at(_intensity(row)), _HEIGHT - upwards.at(row.flops_per_second or 1.0)
        radius = max(_SMALLEST, _LARGEST * math.sqrt(share))
        placed.append((row.name, x, y, radius))
        colour: Colour = KINDS[kind_of(row.node)]
        reached = f", {reached_text(row.efficiency)} of what {row.bound} allows" if row.efficiency is not None else ""
        rate = quantity_text(row.flops_per_second or 0, "FLOP/s")
        told = f"{row.name}: {seconds_text(row.median)}, {share:.1%}\n{rate}{reached}"
        yield (
            f'<circle class="{css_class(colour)}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}">'
            f"<title>{markup(told)}</title></circle>"
        )
    yield from _names(placed)


def _names(discs: list[_Disc]) -> Iterator[str]:
    """The names of the largest discs, each beside its disc, above or below it, where it covers no disc and no name.
    One for which there is no place is in the title of its disc alone."""
    taken = [(x - radius, y - radius, x + radius, y + radius) for _, x, y, radius in discs]
    for name, x, y, radius in discs[:_MOST_NAMES]:
        length = len(name) * _LETTER
        for left, base in (
            (x + radius + 4, y + 4),
            (x - radius - 4 - length, y + 4),
            (x - length / 2, y - radius - 6),
            (x - length / 2, y + radius + 13),
        ):
            box = (left, base - 10, left + length, base + 3)
            is_inside = left >= 0 and box[1] >= 0 and box[2] <= _WIDTH and box[3] <= _HEIGHT
            if is_inside and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                yield note(left, base, markup(name), "start")
                break


def _overlap(one: _Box, other: _Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
