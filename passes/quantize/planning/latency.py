"""How long a product takes at least, in float and in integers: the estimate that plans go by.

In: a product of a typed graph, its config, sizes of the named dims, and the measured rates of a
machine. Out: seconds by the roofline model (:mod:`fxlite.show.roofs`): arithmetic at the machine's
rate for float32 or for 8-bit integers, and the bytes that are read and written; the larger of the
two.

It is a lower bound, the same for every back end, and knows nothing of how good a kernel is. What
stands between products is not counted: compiled code computes it in their loops. What a whole
model takes is measured by :func:`fxlite.passes.profile`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fxlite.graph.graph import Node
from fxlite.passes.quantize.schemes.roles import data_slots, is_expanded, weight_operand
from fxlite.passes.quantize.schemes.scheme import QConfig
from fxlite.passes.rewrite.node_rule import is_call
from fxlite.show.node_cost import node_cost
from fxlite.show.roofs import Roofs, limits
from fxlite.types import shapes

_FLOAT_BYTES = 4


def product_seconds(
    node: Node, qconfig: QConfig | None, weight_bytes: int, sizes: Mapping[str, int], roofs: Roofs
) -> float:
    """Least seconds of a product, or of reading rows of an embedding, on all threads. None is
    float32, with the costs of :mod:`fxlite.show.node_cost`; under a config the weight has
    ``weight_bytes``.

    Static: operands and result are 8-bit integers. Dynamic: the operand is read in float, written
    and read in integers; the result is float, as that of a recurrence always is. Weight-only: float
    arithmetic, fewer bytes; what is expanded when the program is compiled takes as long as in
    float."""

    def number(dim: Any) -> int:
        return int(shapes.substitute(dim or 0, sizes))

    if qconfig is not None and qconfig.mode == "weight_only" and is_expanded(node):
        qconfig = None
    cost = node_cost(node)
    operations, read, written = (number(part) for part in (cost.flops, cost.read, cost.written))
    dtype = "f32"
    if qconfig is not None and is_call(node, "embedding"):
        read = number(node.type.size)
    elif qconfig is not None and is_call(node, "recurrence"):
        dtype = "i8"
        read += weight_bytes - number(weight_operand(node).type.size) * _FLOAT_BYTES
    elif qconfig is not None:
        elements = sum(number(slot.type.size) for slot in data_slots(node))
        read = weight_bytes + elements * _FLOAT_BYTES
        if qconfig.activation is not None:
            dtype = "i8"
            read += elements * (1 - _FLOAT_BYTES)
        if qconfig.mode == "static":
            written = number(node.type.size)
        elif qconfig.mode == "dynamic":
            read += elements * _FLOAT_BYTES
            written += elements
    return limits(roofs, operations, read, written, dtype, roofs.threads).seconds
