"""Stretches of a graph that repeat: twelve equal layers, a loop that was unrolled.

In: nodes in order, and consecutive ranges of them (module calls and single nodes). Out: which
ranges follow each other with the same content: ops, attributes, types and wiring inside. Only the
weights' values and the values read from outside may differ; and indices may count, as those of the
steps of a recurrent layer do.

Ranges are compared by numbers: a node's own (op, attributes, types) and, for each operand, how far
from the start of the range it stands, or which of the outside values it is. Stretches of up to
``_LONGEST_PERIOD`` ranges are tried, so that the work is linear in the number of nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from fxlite.graph.graph import Node
from fxlite.graph.node import map_nodes
from fxlite.show.comparison.compare import operands
from fxlite.show.comparison.pairing import call_key
from fxlite.show.text.pretty import type_text

_LONGEST_PERIOD = 32
#: Nodes that a fold has to save: equal modules, and other stretches of nodes.
_FEWEST_IN_MODULES, _FEWEST_ELSEWHERE = 5, 12
#: Attributes that may count up or down from one stretch to the next.
_COUNTING = ("index", "start", "stop")

#: The rows of a range: numbers of its nodes and of what they read; and its indices.
Content = tuple[list[tuple[int, ...]], list[int]]


@dataclass(frozen=True)
class Repeat:
    """``times`` equal stretches of ``period`` ranges each, from range ``first`` on."""

    first: int
    period: int
    times: int


class Signatures:
    """Numbers for nodes and ranges of nodes that are equal where the content is.

    ``marks`` are facts by node that count as content, too."""

    def __init__(self, nodes: Sequence[Node], marks: Mapping[Node, Hashable]) -> None:
        numbers: dict[Hashable, int] = defaultdict()
        numbers.default_factory = numbers.__len__  # type: ignore[attr-defined]
        self._place = {node: place for place, node in enumerate(nodes)}
        self._reads = [operands(node) for node in nodes]
        self._indices = [_indices(node) for node in nodes]
        self._numbers = [
            numbers[
                _own_key(node),
                tuple(type_text(read.type) for read in reads if read.op == "get_attr"),
                marks.get(node),
            ]
            for node, reads in zip(nodes, self._reads)
        ]

    def number(self, place: int) -> int:
        """The number of a node by itself."""
        return self._numbers[place]

    def content(self, start: int, stop: int) -> Content:
        """What stands in a range of nodes, the indices apart."""
        outside: dict[Node, int] = {}
        rows = []
        for place in range(start, stop):
            row = [self._numbers[place]]
            for read in self._reads[place]:
                at = self._place.get(read, -1)
                inside = start <= at < stop
                row.append(at - start if inside else ~outside.setdefault(read, len(outside)))
            rows.append(tuple(row))
        return rows, [i for place in range(start, stop) for i in self._indices[place]]


def _own_key(node: Node) -> Hashable:
    class_name = node.scope.class_name if node.scope else ""
    if node.op == "get_attr":  # the path differs; a called module says nothing but its path
        return node.op, class_name, type_text(node.type)
    key: Hashable = call_key(node)
    if _indices(node):
        others = {k: v for k, v in node.kwargs.items() if k not in _COUNTING}
        kept = map_nodes((node.args, others), lambda _: None)
        key = node.op, node.target, repr(kept), tuple(k for k in _COUNTING if k in node.kwargs)
    return key, class_name, type_text(node.type)


def _indices(node: Node) -> list[int]:
    kwargs = node.kwargs
    return [kwargs[k] for k in _COUNTING if type(kwargs.get(k)) is int] if kwargs else []


def find_repeats(ranges: Sequence[range], signatures: Signatures) -> list[Repeat]:
    """Stretches that repeat at once, in order, none inside another. ``ranges`` follow each other
    without a gap."""
    keys = [(len(r), signatures.number(r.start)) for r in ranges]
    found = []
    first = 0
    while first < len(ranges):
        best = None
        for period in range(1, min(_LONGEST_PERIOD, (len(ranges) - first) // 2) + 1):
            if keys[first] != keys[first + period]:
                continue
            repeat = Repeat(first, period, _times(ranges, keys, signatures, first, period))
            if _saves_enough(ranges, repeat) and (best is None or _saved(repeat) > _saved(best)):
                best = repeat
        if best is None:
            first += 1
        else:
            found.append(best)
            first += best.period * best.times
    return found


def _times(
    ranges: Sequence[range],
    keys: Sequence[tuple[int, int]],
    signatures: Signatures,
    first: int,
    period: int,
) -> int:
    """How often the ``period`` ranges at ``first`` stand there in a row."""
    rows: list[tuple[int, ...]] | None = None
    indices: list[int] = []
    steps: list[int] | None = None
    times = 1
    for start in range(first + period, len(ranges) - period + 1, period):
        if keys[start : start + period] != keys[first : first + period]:
            break
        if rows is None:
            rows, indices = signatures.content(*_ends(ranges, first, period))
        next_rows, next_indices = signatures.content(*_ends(ranges, start, period))
        next_steps = [b - a for a, b in zip(indices, next_indices)]
        if next_rows != rows or (steps is not None and next_steps != steps):
            break
        indices, steps = next_indices, next_steps
        times += 1
    is_count = times > 2 or not any(steps or ())  # of two different numbers nobody can tell
    return times if is_count else 1


def _ends(ranges: Sequence[range], first: int, period: int) -> tuple[int, int]:
    """Start and stop of ``period`` ranges."""
    return ranges[first].start, ranges[first + period - 1].stop


def _saved(repeat: Repeat) -> int:
    return repeat.period * (repeat.times - 1)


def _saves_enough(ranges: Sequence[range], repeat: Repeat) -> bool:
    last = ranges[repeat.first + repeat.period - 1]
    length = last.stop - ranges[repeat.first].start
    is_module = repeat.period == 1 and length > 1
    fewest = _FEWEST_IN_MODULES if is_module else _FEWEST_ELSEWHERE
    return length * (repeat.times - 1) >= fewest
