"""What a node of a quantized graph says about itself: a :class:`Record` in its
``meta["quantized"]``.

In: what convert knows when it makes the node. Out: plain data (numbers, text, named dims), which
files keep, and from which the report is made.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from fxlite.base.checked import checked
from fxlite.graph.graph import Node
from fxlite.types.shapes import Dim

KEY = "quantized"


@dataclass(frozen=True)
class Record:
    """``name`` and ``op`` are those of the float node, ``module`` its path. ``integer`` says
    whether its multiply-adds are integer arithmetic; ``bits`` are the weight's (of a product of
    activations theirs). ``low..high`` is the range of the first operand, (0, 0) if it is not fixed.
    Bytes are those of the weight, with its scales. ``sqnr`` is the weight's, in dB, None where
    there is none."""

    name: str
    op: str
    module: str
    qconfig: str
    scheme: str
    integer: bool
    bits: int
    multiply_adds: Dim
    low: float = 0.0
    high: float = 0.0
    bytes_before: int = 0
    bytes_after: int = 0
    sqnr: float | None = None


def attach(node: Node, record: Record) -> None:
    """Write a record into a node's meta."""
    node.meta[KEY] = dict(vars(record))


@checked
def record_of(node: Node) -> Record | None:
    """The record of a node, None where it has none."""
    data: dict[str, Any] | None = (node._meta or {}).get(KEY)
    if data is None:
        return None
    return Record(**{f.name: data[f.name] for f in fields(Record)})
