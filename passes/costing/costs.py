"""What something costs: FLOPs, bytes, parameters and memory.

In: ints or expressions in named dims. Out: :class:`Costs`.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy

from fxlite.show.node_cost import short_text
from fxlite.types import shapes
from fxlite.types.shapes import Dim

_LONGEST_FORMULA = 300  # letters; longer ones are shortened

#: What :class:`Costs` holds, and what is derived from that.
QUANTITIES = ("flops", "read", "written", "bytes", "parameters", "parameter_bytes", "peak")
#: What tables call them, and FLOPs per byte.
TITLES = {"flops": "FLOPs", "read": "bytes read", "written": "written", "bytes": "bytes",
          "parameters": "parameters", "parameter_bytes": "their bytes", "peak": "peak memory",
          "intensity": "FLOP/byte"}  # fmt: skip


@dataclass(frozen=True)
class Costs:
    """Of a node, of a module, or of a whole program, in ints or expressions; None is unknown.

    ``flops``; bytes ``read`` and ``written``; ``parameters`` (elements, each weight once) and
    ``parameter_bytes``; ``peak``: bytes that all values computed by the program hold while this
    runs, at most."""

    flops: Dim | None = 0
    read: Dim | None = 0
    written: Dim | None = 0
    parameters: Dim = 0
    parameter_bytes: Dim = 0
    peak: Dim | None = 0

    @property
    def bytes(self) -> Dim | None:
        """Bytes read and written together."""
        if self.read is None or self.written is None:
            return None
        return shapes.normalize(self.read + self.written)

    @property
    def intensity(self) -> Any:
        """FLOPs for each byte moved: a float or an expression; None where unknown or no byte is."""
        moved = self.bytes
        if moved is None or self.flops is None or moved == 0:
            return None
        if isinstance(moved, int) and isinstance(self.flops, int):
            return self.flops / moved
        return sympy.cancel(sympy.sympify(self.flops) / moved)

    @property
    def dims(self) -> frozenset[str]:
        """Named dims that the costs depend on."""
        return shapes.names([v for v in dataclasses.astuple(self) if v is not None])

    def evaluate(self, sizes: Mapping[str, int]) -> Costs:
        """The same at these sizes of named dims."""
        return self._map(lambda value: shapes.substitute(value, sizes))

    def __sub__(self, other: Costs) -> Costs:
        """The differences; None where one side is unknown."""
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other))
        return Costs(
            *(None if a is None or b is None else shapes.normalize(a - b) for a, b in pairs)
        )

    def _map(self, change: Callable[[Dim], Dim]) -> Costs:
        values = (getattr(self, field.name) for field in dataclasses.fields(self))
        return Costs(*(None if v is None else change(v) for v in values))

    def __str__(self) -> str:
        return "\n".join(costs_text(self))


# -- text ------------------------------------------------------------------------------------------
def costs_text(costs: Costs, width: int = 100) -> list[str]:
    """A line for each quantity: formula or number."""
    rows = [
        ("FLOPs", dim_text(costs.flops)),
        ("bytes read", dim_text(costs.read, "B")),
        ("bytes written", dim_text(costs.written, "B")),
        ("parameters", f"{dim_text(costs.parameters)}, {short_text(costs.parameter_bytes)}B"),
        ("peak memory", dim_text(costs.peak, "B")),
        ("FLOPs per byte", intensity_text(costs)),
    ]
    lines = []
    for title, text in rows:
        start = f"{title:<15}"
        wrapped = textwrap.wrap(
            text, width, initial_indent=start, subsequent_indent=" " * 17, break_long_words=False
        )
        lines += wrapped
    return lines


def dim_text(value: Dim | None, unit: str = "") -> str:
    """``1,234,567 (1.23M)`` or a formula; ``?`` where it is unknown."""
    if value is None:
        return "?"
    if isinstance(value, int):
        short = short_text(value)
        return f"{value:,}" if short == str(value) else f"{value:,} ({short}{unit})"
    text = shapes.to_text(value)
    return text if len(text) <= _LONGEST_FORMULA else short_text(value)


def short(value: Dim | None) -> str:
    """A few letters; nothing for 0, ``?`` where it is unknown."""
    if value is None:
        return "?"
    return short_text(value) if value != 0 else ""


def intensity_text(costs: Costs) -> str:
    """FLOPs by bytes."""
    value = costs.intensity
    if value is None:
        return "-" if costs.bytes == 0 else "?"
    if isinstance(value, float):
        return f"{value:.3g}"
    text = shapes.to_text(value)
    if len(text) <= _LONGEST_FORMULA:
        return text
    return f"({short_text(costs.flops)})/({short_text(costs.bytes)})"
