"""How much memory the values of a graph need over time: which values are held while each node (or
kernel) runs.

In: a typed graph. Out: the largest number of bytes that values computed by the graph hold at one
moment, if nodes run one by one in the graph's order and each value is dropped after its last
reader. Results count up to the end; inputs and weights, which exist beforehand, do not count. A view
(reshape, permute, slice, ...) holds no memory itself but keeps its base alive; the copy that NumPy
makes for the reshape of a permuted array is not counted. Compiled code needs less where it fuses
nodes.

In: a typed graph and sizes of its named dims, or the memory plan of a compiled program. Out: a
:class:`MemoryTimeline`, which prints with a bar for each value and can be drawn as SVG.
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
from fxlite.base.console import Printed, picture_html
from fxlite.base.errors import GraphError, number_of, sizes_text
from fxlite.base.on_demand import sympy
from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.costing.costs import check_dims
from fxlite.show.node_cost import is_view, quantity_text
from fxlite.show.text.pretty import type_text
from fxlite.types import shapes
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType

#: Bytes as a polynomial: products of named dims (1 for the constant term) to their factors.
Polynomial = dict[Any, int]


@dataclass(frozen=True)
class Peak:
    """The moment when the most memory is held: ``nbytes`` while ``node`` runs. ``values`` lists the
    values held with their bytes, the largest first."""

    nbytes: int
    node: Node
    values: tuple[tuple[Node, int], ...]


@checked
def peak_memory(graph: Graph, sizes: Mapping[str, int] | None = None) -> Dim:
    """Bytes at the peak: an int, or an expression in the named dims that ``sizes`` does not give.

    Raises GraphError for a value without a type."""
    largest = Largest()
    for moment in moments(graph, sizes):
        largest.add(moment.held)
    return largest.value


def find_peak(graph: Graph, sizes: Mapping[str, int] | None = None) -> Peak | None:
    """The first moment at which the peak is reached; None for a graph that computes nothing.

    Raises GraphError for a value without a type, or one whose size depends on a named dim that
    ``sizes`` does not give."""
    nbytes, peak = -1, None
    for moment in moments(graph, sizes):
        missing = [key for key in moment.held if key != 1]
        if missing:
            unknown = ", ".join(sorted(shapes.names(missing)))
            raise GraphError(f"{moment.node.describe()} has a size that depends on {unknown}")
        if moment.held.get(1, 0) > nbytes:
            nbytes, peak = moment.held.get(1, 0), moment.node
    for moment in moments(graph, sizes):
        if moment.node is peak:
            listed = [(node, stored(node, sizes).get(1, 0)) for node in moment.values]
            return Peak(nbytes, moment.node, tuple(sorted(listed, key=lambda pair: -pair[1])))
    return None


class Largest:
    """The largest of several polynomials."""

    def __init__(self) -> None:
        self._candidates: list[Polynomial] = []  # no candidate is covered by another

    def add(self, held: Polynomial) -> None:
        """Add a candidate."""
        if not any(_is_covered(held, other) for other in self._candidates):
            self._candidates = [c for c in self._candidates if not _is_covered(c, held)]
            self._candidates.append(dict(held))

    @property
    def value(self) -> Dim:
        """An int or an expression, with ``Max`` if the sizes decide; 0 if nothing was added."""
        return functools.reduce(shapes.maximum, map(as_dim, self._candidates), 0)


@dataclass(frozen=True)
class Moment:
    """While ``node`` runs, ``values`` hold ``held`` bytes. The next step changes both in place."""

    node: Node
    held: Polynomial
    values: dict[Node, None]


def moments(graph: Graph, sizes: Mapping[str, int] | None = None) -> Iterator[Moment]:
    """A moment for every call, in order. Raises GraphError for a value without a type."""
    owners = _owners(graph)
    last = _last_readers(graph, owners)
    dropped: dict[Node, list[Node]] = {}
    for owner, reader in last.items():
        dropped.setdefault(reader, []).append(owner)
    held: Polynomial = {}
    values: dict[Node, None] = {}
    for node in graph.nodes:
        if owners.get(node) is node:
            values[node] = None
            _add(held, stored(node, sizes), 1)
        if node.op.startswith("call_"):
            yield Moment(node, held, values)
        dead = dropped.get(node, [])
        if owners.get(node) is node and node not in last:
            dead = [*dead, node]
        for value in dead:
            del values[value]
            _add(held, stored(value, sizes), -1)


def lifetimes(graph: Graph) -> dict[Node, tuple[int, int]]:
    """For each value that holds memory, the numbers of the first and the last call during which it
    exists; results exist up to the last call."""
    owners = _owners(graph)
    last = _last_readers(graph, owners)
    calls = [node for node in graph.nodes if node.op.startswith("call_")]
    number = {node: step for step, node in enumerate(calls)}
    final = len(calls) - 1
    return {
        node: (step, number.get(last.get(node, node), final))
        for node, step in number.items()
        if owners.get(node) is node
    }


def _last_readers(graph: Graph, owners: dict[Node, Node]) -> dict[Node, Node]:
    last: dict[Node, Node] = {}
    for node in graph.nodes:
        last.update((owners[used], node) for used in node.all_input_nodes if used in owners)
    return last


def _owners(graph: Graph) -> dict[Node, Node]:
    """For each computed value, the node whose memory it uses; views of inputs and of weights have
    none."""
    owners: dict[Node, Node] = {}
    for node in graph.nodes:
        if not node.op.startswith("call_"):
            continue
        if node.op == "call_function" and node.all_input_nodes and is_view(node.target):
            source = owners.get(node.all_input_nodes[0])
            if source is not None:
                owners[node] = source
        else:
            owners[node] = node
    return owners


def stored(node: Node, sizes: Mapping[str, int] | None = None) -> Polynomial:
    """Bytes of a node's value. Raises GraphError for one without a type."""
    total: Polynomial = {}
    env = tuple((sizes or {}).items())
    for type in node.type if isinstance(node.type, tuple | list) else (node.type,):
        if not isinstance(type, TensorType):
            raise GraphError(f"{node.describe()} has no type; trace with input types")
        _add(total, _type_bytes(type, env), 1)
    return total


@functools.lru_cache(maxsize=4096)
def _type_bytes(type: TensorType, env: tuple[tuple[str, int], ...]) -> Polynomial:
    nbytes = shapes.substitute(type.nbytes, dict(env))
    if isinstance(nbytes, int):
        return {1: nbytes}
    terms = nbytes.as_coefficients_dict()
    return {1 if key == 1 else key: int(factor) for key, factor in terms.items()}


def _add(total: Polynomial, terms: Polynomial, sign: int) -> None:
    """Add terms to a polynomial in place; terms that cancel are removed."""
    for key, factor in terms.items():
        total[key] = total.get(key, 0) + sign * factor
        if not total[key]:
            del total[key]


def _is_covered(small: Polynomial, large: Polynomial) -> bool:
    """True if no term of ``small`` is larger than in ``large``, so that it cannot be more for any
    sizes. A term that might be negative has to be the same in both."""
    for key in small.keys() | large.keys():
        difference = large.get(key, 0) - small.get(key, 0)
        if difference < 0 or (difference > 0 and key != 1 and not key.is_nonnegative):
            return False
    return True


def as_dim(terms: Polynomial) -> Dim:
    """A polynomial as an int or an expression."""
    if not terms.keys() - {1}:
        return terms.get(1, 0)
    return shapes.normalize(sum((sympy.Integer(f) * key for key, f in terms.items()), start=0))


# -- over time -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Buffer:
    """A value that holds ``nbytes`` from step ``first`` to step ``last``, both included. In a planned
    program it is in a ``slot`` of the arena, from byte ``start`` on."""

    node: Node
    nbytes: int
    first: int
    last: int
    slot: int | None = None
    start: int = 0


@dataclass(frozen=True, repr=False)
class MemoryTimeline(Printed):
    """``steps`` names what runs, in order; ``buffers`` are in the order of their first step. ``slots``
    holds the bytes of the arena's slots and is empty if memory is not planned; in a packed program
    there is one slot, in which values lie side by side. ``formula`` gives the bytes at the peak (or of
    the arena) in terms of the named dims, whose ``sizes`` apply to this timeline."""

    name: str
    sizes: Mapping[str, int]
    steps: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    formula: Dim
    slots: tuple[int, ...] = ()

    @property
    def about(self) -> str:
        return f"{number_of(len(self.buffers), 'value')} in {number_of(len(self.steps), 'step')} of {self.name}"

    @functools.cached_property
    def held(self) -> tuple[int, ...]:
        """The bytes that all values together hold during each step."""
        changes = [0] * (len(self.steps) + 1)
        for buffer in self.buffers:
            changes[buffer.first] += buffer.nbytes
            changes[buffer.last + 1] -= buffer.nbytes
        return tuple(itertools.accumulate(changes[:-1]))

    @property
    def peak(self) -> int:
        """The most bytes held at once; in a planned program the size of the arena, which is allocated
        all the time."""
        return sum(self.slots) if self.slots else max(self.held, default=0)

    @property
    def is_packed(self) -> bool:
        """Whether values may start anywhere in the arena, and not only at the start of a slot."""
        return len(self.slots) == 1

    @functools.cached_property
    def fullest(self) -> int:
        """The first step during which values hold the most memory."""
        return self.held.index(max(self.held)) if self.held else 0

    def at(self, step: int) -> list[Buffer]:
        """The values held during a step."""
        return [b for b in self.buffers if b.first <= step <= b.last]

    def is_at_peak(self, buffer: Buffer) -> bool:
        """Whether a value is held during the fullest step."""
        return buffer.first <= self.fullest <= buffer.last

    def shown(self, most: int) -> list[Buffer]:
        """At most this many values, in order of time; those held at the peak are chosen first, then the largest."""
        ordered = sorted(self.buffers, key=lambda b: (not self.is_at_peak(b), -b.nbytes))
        chosen = set(ordered[:most])
        return [b for b in self.buffers if b in chosen]

    @property
    def arena_text(self) -> str:
        """The size of the arena of a planned program, as text."""
        slots = "" if self.is_packed else f" in {number_of(len(self.slots), 'slot')}"
        return f"{self.peak:,} bytes{slots}"

    def to_svg(self, path: str | os.PathLike[str] | None = None) -> str:
        """A picture of the values as areas over the steps. Returns SVG text, which is also written to
        ``path`` if given."""
        from fxlite.passes.costing.pictures import svg_text

        text = svg_text(self)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def _repr_html_(self) -> str:
        """The picture, for notebooks."""
        return picture_html(self.to_svg())

    def __rich_console__(self, console: Any, options: Any) -> Iterable[Any]:
        yield from timeline_parts(self, options.max_width)


@checked
def memory_timeline(gm: GraphModule, sizes: Mapping[str, int] | None = None) -> MemoryTimeline:
    """The values that are held while the nodes of a module run one by one. Inputs and weights are not
    counted, and views hold nothing; see :mod:`fxlite.passes.costing.timeline`.

    Raises ArgumentError for a dim that the program does not have, and GraphError for a value without
    a type or whose size depends on a dim that ``sizes`` does not give."""
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
    """The totals, a chart of the memory held over time, and the values or slots."""
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
        yield Text(f"and {more} smaller values, {quantity_text(rest, 'B')} in all", style="dim")


def _facts(timeline: MemoryTimeline) -> Iterator[Text]:
    sizes = sizes_text(timeline.sizes)
    yield Text(f"{timeline.name}: {number_of(len(timeline.steps), 'step')}{sizes}", style="bold")
    if timeline.slots:
        values = number_of(len(timeline.buffers), "value")
        total = sum(b.nbytes for b in timeline.buffers)
        yield Text(f"arena    {timeline.arena_text}, for {values} of {number_of(total, 'byte')}")
    elif timeline.buffers:
        step = timeline.fullest
        held = timeline.at(step)
        values = number_of(len(held), "value")
        yield Text(f"peak     {timeline.peak:,} bytes in {values} while {timeline.steps[step]} runs, step {step + 1}")
    else:
        yield Text("peak     0 bytes: nothing is held")
    if not isinstance(timeline.formula, int):
        yield Text(f"formula  {shapes.to_text(timeline.formula)}")


def _labels(buffers: list[Buffer], width: int, is_packed: bool) -> list[str]:
    """Columns with the name of each value, its type if there is room, its bytes and where it starts."""
    cells = [[_cut(b.node.name, _LONGEST_NAME) for b in buffers]]
    if width >= 100:
        cells.append([_cut(type_text(b.node.type), _LONGEST_TYPE) for b in buffers])
    sizes = [quantity_text(b.nbytes, "B") for b in buffers]
    padded = [[text.ljust(max(map(len, column))) for text in column] for column in cells]
    padded.append([text.rjust(max(map(len, sizes))) for text in sizes])
    if is_packed:
        starts = [f"at {quantity_text(b.start, 'B')}" for b in buffers]
        padded.append([text.ljust(max(map(len, starts))) for text in starts])
    return ["  ".join(row) for row in zip(*padded)]


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


class Axis:
    """Maps steps to columns; each step has the same number of columns, or several steps share one."""

    def __init__(self, steps: int, room: int) -> None:
        self.steps = steps
        self.columns = steps * min(room // steps, 6) if steps <= room else max(room, 1)

    def column(self, step: int) -> int:
        """The first column of a step."""
        return step * self.columns // self.steps

    def end(self, step: int) -> int:
        """The column after the last one of a step."""
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
    """Spaces, then a bar from a value's first to its last step."""
    first = axis.column(buffer.first)
    return " " * first + "█" * (axis.end(buffer.last) - first)


def _slot_rows(timeline: MemoryTimeline, axis: Axis, left: int) -> Iterator[Text]:
    """Two rows for each slot: its values one after the other in two alternating shades, and their names."""
    inside: dict[int | None, list[Buffer]] = {}
    for buffer in timeline.buffers:
        inside.setdefault(buffer.slot, []).append(buffer)
    for number, nbytes in enumerate(timeline.slots[:MOST_ROWS]):
        line = Text(f"{f'slot {number}':<9}{quantity_text(nbytes, 'B'):>8}".ljust(left), no_wrap=True)
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
        yield Text(f"and {number_of(len(timeline.slots) - MOST_ROWS, 'more slot')}", style="dim")
