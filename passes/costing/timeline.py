"""Memory over time: which values are held while each node (or kernel) runs.

In: a typed graph and sizes of its named dims, or the memory plan of a compiled program. Out: a
:class:`MemoryTimeline`, which prints with a bar for each value and draws as SVG.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from fxlite.base.checked import checked
from fxlite.base.console import Printed
from fxlite.base.errors import GraphError
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.costing.cost_report import check_dims
from fxlite.passes.costing.peak_memory import lifetimes, peak_memory, stored
from fxlite.show.node_cost import short_text
from fxlite.show.text.pretty import type_text
from fxlite.types import shapes
from fxlite.types.shapes import Dim


@dataclass(frozen=True)
class Buffer:
    """A value that holds ``nbytes`` from step ``first`` to step ``last``, both included; in a
    planned program in a ``slot`` of the arena, from its byte ``start`` on."""

    node: Node
    nbytes: int
    first: int
    last: int
    slot: int | None = None
    start: int = 0


@dataclass(frozen=True, repr=False)
class MemoryTimeline(Printed):
    """``steps`` names what runs, in order; ``buffers`` are in order of their first step. ``slots``
    are the bytes of the arena's slots, none where memory is not planned; in a packed program it is
    one, in which values lie side by side. ``formula``: bytes at the peak (of the arena) in the
    named dims, of which ``sizes`` are those of this timeline."""

    name: str
    sizes: Mapping[str, int]
    steps: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    formula: Dim
    slots: tuple[int, ...] = ()

    @property
    def about(self) -> str:
        return f"{len(self.buffers)} values in {len(self.steps)} steps of {self.name}"

    @functools.cached_property
    def held(self) -> tuple[int, ...]:
        """Bytes that all values together hold during each step."""
        changes = [0] * (len(self.steps) + 1)
        for buffer in self.buffers:
            changes[buffer.first] += buffer.nbytes
            changes[buffer.last + 1] -= buffer.nbytes
        return tuple(itertools.accumulate(changes[:-1]))

    @property
    def peak(self) -> int:
        """Bytes held at most; of a planned program, those of the arena, which is there all the
        time."""
        return sum(self.slots) if self.slots else max(self.held, default=0)

    @property
    def is_packed(self) -> bool:
        """Whether values start anywhere in the arena, and not with slots."""
        return len(self.slots) == 1

    @functools.cached_property
    def fullest(self) -> int:
        """The first step during which values hold the most."""
        return self.held.index(max(self.held)) if self.held else 0

    def at(self, step: int) -> list[Buffer]:
        """The values held during a step."""
        return [b for b in self.buffers if b.first <= step <= b.last]

    def is_at_peak(self, buffer: Buffer) -> bool:
        """Whether a value is held during the fullest step."""
        return buffer.first <= self.fullest <= buffer.last

    def shown(self, most: int) -> list[Buffer]:
        """At most so many values, in order of time: those held at the peak, then the largest."""
        ordered = sorted(self.buffers, key=lambda b: (not self.is_at_peak(b), -b.nbytes))
        chosen = set(ordered[:most])
        return [b for b in self.buffers if b in chosen]

    @property
    def arena_text(self) -> str:
        """How large the arena of a planned program is."""
        slots = "" if self.is_packed else f" in {len(self.slots)} slots"
        return f"{self.peak:,} bytes{slots}"

    def to_svg(self, path: str | os.PathLike[str] | None = None) -> str:
        """A picture: values as areas over the steps; written to ``path`` if there is one. Returns
        it."""
        from fxlite.passes.costing.pictures import svg_text

        text = svg_text(self)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def __rich_console__(self, console: Any, options: Any) -> Iterable[Any]:
        yield from timeline_parts(self, options.max_width)


@checked
def memory_timeline(gm: GraphModule, sizes: Mapping[str, int] | None = None) -> MemoryTimeline:
    """The values that are held while the nodes of a module run one by one, as in
    :mod:`fxlite.passes.costing.peak_memory`: inputs and weights are not counted, views hold
    nothing.

    Raises ArgumentError for a dim that the program does not have, GraphError for a value without a
    type and for one whose size depends on a dim that ``sizes`` does not give."""
    given = dict(sizes or {})
    check_dims(gm.graph, given)
    buffers = []
    for node, (first, last) in lifetimes(gm.graph).items():
        held = stored(node, given)
        missing = sorted(shapes.names([key for key in held if key != 1]))
        if missing:
            raise GraphError(
                f"{node.describe()} has a size that depends on {', '.join(missing)}; give sizes: "
                f"memory_timeline(gm, {{{missing[0]!r}: 8}})"
            )
        buffers.append(Buffer(node, held.get(1, 0), first, last))
    steps = tuple(node.name for node in gm.graph.nodes if node.op.startswith("call_"))
    return MemoryTimeline(gm.name, given, steps, tuple(buffers), peak_memory(gm.graph))


# -- text: a bar for each value --------------------------------------------------------------------
#: Values that are listed one by one: those at the peak, then the largest.
MOST_ROWS = 24
_LONGEST_NAME, _LONGEST_TYPE = 28, 22
_HEIGHTS = " ▁▂▃▄▅▆▇█"


def timeline_parts(timeline: MemoryTimeline, width: int) -> Iterator[Text]:
    """Facts, how much is held at each time, and the values or slots."""
    yield from _facts(timeline)
    if not timeline.buffers:
        return
    shown = timeline.shown(MOST_ROWS)
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
        line.append(_bar(axis, buffer), style="cyan" if timeline.is_at_peak(buffer) else "blue")
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
        yield Text(f"arena    {timeline.arena_text}, for {values} of {total:,} bytes")
    elif timeline.buffers:
        step = timeline.fullest
        held = timeline.at(step)
        values = "1 value" if len(held) == 1 else f"{len(held)} values"
        yield Text(f"peak     {timeline.peak:,} bytes in {values} while {timeline.steps[step]} runs, step {step + 1}")
    else:
        yield Text("peak     0 bytes: nothing is held")
    if not isinstance(timeline.formula, int):
        yield Text(f"formula  {shapes.to_text(timeline.formula)}")


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
        return range(column * self.steps // self.columns, -(-(column + 1) * self.steps // self.columns))


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
