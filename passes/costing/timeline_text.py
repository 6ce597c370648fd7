"""A memory timeline as text: a bar for each value, time from left to right.

In: a :class:`~fxlite.passes.costing.timeline.MemoryTimeline` and a width in columns. Out: lines for
rich.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from fxlite.show.node_cost import short_text
from fxlite.show.text.pretty import type_text
from fxlite.types import shapes

if TYPE_CHECKING:
    from fxlite.passes.costing.timeline import Buffer, MemoryTimeline

#: Values that are listed one by one: those at the peak, then the largest.
MOST_ROWS = 24
_LONGEST_NAME, _LONGEST_TYPE = 28, 22
_HEIGHTS = " ▁▂▃▄▅▆▇█"


def timeline_parts(timeline: MemoryTimeline, width: int) -> Iterator[Text]:
    """Facts, how much is held at each time, and the values or slots."""
    yield from _facts(timeline)
    if not timeline.buffers:
        return
    shown = shown_buffers(timeline, MOST_ROWS)
    in_slots = bool(timeline.slots) and not timeline.is_packed
    labels = [" " * 18] if in_slots else _labels(shown, width, timeline.is_packed)
    left = max(map(len, labels)) + 2
    axis = Axis(len(timeline.steps), width - left)
    yield Text("")
    yield Text(f"{'':{left}}{' ' * axis.column(timeline.fullest)}▼", style="yellow")
    yield Text(f"{'all':{left}}{_heights(timeline, axis)}", style="bold", no_wrap=True)
    if in_slots:
        yield from _slot_rows(timeline, axis, left)
        return
    for buffer, text in zip(shown, labels):
        line = Text(f"{text:{left}}", no_wrap=True)
        line.append(_bar(axis, buffer), style="cyan" if _is_at_peak(timeline, buffer) else "blue")
        yield line
    more = len(timeline.buffers) - len(shown)
    if more:
        rest = sum(b.nbytes for b in timeline.buffers) - sum(b.nbytes for b in shown)
        yield Text(f"and {more} smaller values, {short_text(rest)}B in all", style="dim")


def _facts(timeline: MemoryTimeline) -> Iterator[Text]:
    sizes = "".join(f", {name}={size}" for name, size in timeline.sizes.items())
    yield Text(f"{timeline.name}: {len(timeline.steps)} steps{sizes}", style="bold")
    if timeline.slots:
        values = f"{len(timeline.buffers)} values"
        total = sum(b.nbytes for b in timeline.buffers)
        yield Text(f"arena    {arena_text(timeline)}, for {values} of {total:,} bytes")
    elif timeline.buffers:
        step = timeline.fullest
        held = timeline.at(step)
        values = "1 value" if len(held) == 1 else f"{len(held)} values"
        yield Text(
            f"peak     {timeline.peak:,} bytes in {values} while {timeline.steps[step]} runs, step "
            f"{step + 1}"
        )
    else:
        yield Text("peak     0 bytes: nothing is held")
    if not isinstance(timeline.formula, int):
        yield Text(f"formula  {shapes.to_text(timeline.formula)}")


def arena_text(timeline: MemoryTimeline) -> str:
    """How large the arena of a planned program is."""
    slots = "" if timeline.is_packed else f" in {len(timeline.slots)} slots"
    return f"{timeline.peak:,} bytes{slots}"


def shown_buffers(timeline: MemoryTimeline, most: int) -> list[Buffer]:
    """At most so many values, in order of time: those held at the peak, then the largest."""
    ordered = sorted(timeline.buffers, key=lambda b: (not _is_at_peak(timeline, b), -b.nbytes))
    chosen = set(ordered[:most])
    return [b for b in timeline.buffers if b in chosen]


def _is_at_peak(timeline: MemoryTimeline, buffer: Buffer) -> bool:
    return buffer.first <= timeline.fullest <= buffer.last


def _labels(buffers: list[Buffer], width: int, is_packed: bool) -> list[str]:
    """Name, type where there is room, bytes of each and where it starts, in columns."""
    cells = [[_cut(b.node.name, _LONGEST_NAME) for b in buffers]]
    if width >= 100:
        cells.append([_cut(type_text(b.node.type), _LONGEST_TYPE) for b in buffers])
    sizes = [f"{short_text(b.nbytes)}B" for b in buffers]
    padded = [[text.ljust(max(map(len, column))) for text in column] for column in cells]
    padded.append([text.rjust(max(map(len, sizes))) for text in sizes])
    if is_packed:
        starts = [f"at {short_text(b.start)}B" for b in buffers]
        padded.append([text.ljust(max(map(len, starts))) for text in starts])
    return ["  ".join(row) for row in zip(*padded)]


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


class Axis:
    """Steps as columns: each has the same number of them, or several share one."""

    def __init__(self, steps: int, room: int) -> None:
        self.steps = steps
        self.columns = steps * min(room // steps, 6) if steps <= room else max(room, 1)

    def column(self, step: int) -> int:
        """The first column of a step."""
        return step * self.columns // self.steps

    def end(self, step: int) -> int:
        """The column behind the last one of a step."""
        return -(-(step + 1) * self.columns // self.steps)

    def steps_of(self, column: int) -> range:
        """The steps in a column."""
        return range(
            column * self.steps // self.columns, -(-(column + 1) * self.steps // self.columns)
        )


def _heights(timeline: MemoryTimeline, axis: Axis) -> str:
    highest = max(timeline.held) or 1
    signs = []
    for column in range(axis.columns):
        held = max(timeline.held[step] for step in axis.steps_of(column))
        signs.append(_HEIGHTS[-(-held * (len(_HEIGHTS) - 1) // highest)])
    return "".join(signs)


def _bar(axis: Axis, buffer: Buffer) -> str:
    """Spaces and a bar from a value's first to its last step."""
    first = axis.column(buffer.first)
    return " " * first + "█" * (axis.end(buffer.last) - first)


def _slot_rows(timeline: MemoryTimeline, axis: Axis, left: int) -> Iterator[Text]:
    """Two rows for each slot: the values in it in turns, in two shades, and their names."""
    inside: dict[int | None, list[Buffer]] = {}
    for buffer in timeline.buffers:
        inside.setdefault(buffer.slot, []).append(buffer)
    for number, nbytes in enumerate(timeline.slots[:MOST_ROWS]):
        line = Text(f"{f'slot {number}':<9}{short_text(nbytes) + 'B':>8}".ljust(left), no_wrap=True)
        column = 0
        for turn, buffer in enumerate(inside[number]):
            start, end = max(axis.column(buffer.first), column), axis.end(buffer.last)
            line.append(" " * (start - column))
            line.append(("█", "▒")[turn % 2] * (end - start), style=("cyan", "blue")[turn % 2])
            column = max(end, column)
        yield line
        names = ", ".join(b.node.name for b in inside[number])
        yield Text(_cut(f"{'':4}{names}", left + axis.columns), style="dim", no_wrap=True)
    if len(timeline.slots) > MOST_ROWS:
        yield Text(f"and {len(timeline.slots) - MOST_ROWS} more slots", style="dim")
