"""Arrays that are made from a few numbers: positions, masks, an array of one number with rows of another.

To compute an element of such an array takes less time than to read it, so it is kept as the calls that make it, not
as a constant that fills memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fxlite.graph.node import Node
from fxlite.ops.op import lookup
from fxlite.scalar.functions import FUNCTIONS
from fxlite.types import dtypes
from fxlite.types.tensor_type import TensorType

_CAST = lookup("cast")
#: The fewest elements of an array that is not stored.
FEW_ELEMENTS = 4096
#: The most calls by which an element may be made.
MOST_CALLS = 10


def counts_positions(node: Node) -> bool:
    """Whether the positions along an axis are only read to make masks and other positions: these are computed where
    they are read, and loops leave out what a mask excludes, so the positions are not stored, whatever their number."""
    if node.type.rank != 1 or node.type.dtype is not dtypes.int64:
        return False
    if node.op == "call_function" and node.target.kind != "creation":
        return False
    pointwise = [user for user in node.users if user.op == "call_function" and user.target.kind == "pointwise"]
    return 0 < len(pointwise) == len(node.users) and all(
        u.type.dtype in (dtypes.bool_, dtypes.int64) for u in pointwise
    )


def made_from_few_numbers(nodes: Iterable[Node]) -> Mapping[Node, int]:
    """Those of the nodes, in order, that are such arrays of any size, each with the number of calls that make it."""
    found: dict[Node, int] = {}
    for node in nodes:
        if node.op != "call_function" or not isinstance(node.type, TensorType):
            continue
        op, inputs = node.target, node.all_input_nodes
        if op.writes_part:
            size = node.type.size
            inputs = [n for n in inputs if n is node.args[0] or n.type.size * 16 > size]
        elif op.kind == "pointwise":
            function = FUNCTIONS.get(op.name)
            if op is not _CAST and (function is None or function.cost > 1):
                continue
        elif op.kind not in ("creation", "view"):
            continue
        calls = 1 + sum(found.get(n, MOST_CALLS) for n in inputs)
        if calls <= MOST_CALLS:
            found[node] = calls
    return found
