"""Memory over time: which values are held while each node (or kernel) runs.

In: a typed graph and sizes of its named dims, or the memory plan of a compiled program. Out: a
:class:`MemoryTimeline`, which prints with a bar for each value and draws as SVG.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fxlite.base.checked import checked
from fxlite.base.errors import GraphError
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.costing.cost_report import check_dims
from fxlite.passes.costing.peak_memory import lifetimes, peak_memory, stored
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


@dataclass(frozen=True)
class MemoryTimeline:
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

    def to_svg(self, path: str | os.PathLike[str] | None = None) -> str:
        """A picture: values as areas over the steps; written to ``path`` if there is one. Returns
        it."""
        from fxlite.passes.costing.timeline_svg import svg_text

        text = svg_text(self)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def __rich_console__(self, console: Any, options: Any) -> Iterable[Any]:
        from fxlite.passes.costing.timeline_text import timeline_parts

        yield from timeline_parts(self, options.max_width)

    def __str__(self) -> str:
        from fxlite.base.console import plain_text

        return plain_text(self)

    __repr__ = __str__


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
