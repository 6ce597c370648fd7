"""What rules of the graph of axes are made of: joining axes of values, and tying them.

In: an :class:`~fxlite.passes.surgery.axes.AxisGraph`, nodes and axes. Out: pairs and ties in it.
"""

from __future__ import annotations

from typing import Any

from fxlite.graph.graph import Node
from fxlite.passes.surgery.axes import AxisGraph, Slot, operands_of, parts_of


def slots(node: Node) -> list[Slot]:
    """All axes of a value."""
    return [Slot(node, axis, part) for part, type in enumerate(parts_of(node)) for axis in range(type.rank)]


def argument(node: Node, name: str) -> Any:
    """An argument of a call, or its default."""
    return node.arguments.get(name, node.target.defaults.get(name))


def channel_axis(node: Node) -> int:
    """The axis of channels of what an image op reads and gives."""
    is_last = str(node.arguments.get("layout", "")).lower() == "nhwc"
    return parts_of(node)[0].rank - 1 if is_last else 1


def tie_slot(found: AxisGraph, slot: Slot, why: str) -> None:
    """The axis stays whole: ``why`` is a sentence about an operation."""
    found.tie(slot, f"{why} (axis {slot.axis} of {slot.node.name})")


def tie_all(found: AxisGraph, node: Node, why: str) -> None:
    """All axes of a value stay whole."""
    for slot in slots(node):
        tie_slot(found, slot, why)


def tie_call(found: AxisGraph, node: Node, why: str) -> None:
    """All axes of a call and of what it reads stay whole: ``why`` follows the node's name."""
    for each in (node, *operands_of(node)):
        tie_all(found, each, f"{node.describe()} {why}")


def tie(found: AxisGraph, node: Any, axis: int, at: Node, why: str) -> None:
    """An axis stays whole because of ``at``; nothing for an operand that is left out."""
    if isinstance(node, Node):
        (type,) = parts_of(node)
        tie_slot(found, Slot(node, axis % type.rank), f"{at.describe()} {why}")


def join(found: AxisGraph, a: Any, axis: int, b: Any, other: int) -> None:
    """Join two axes; nothing where an operand is left out, or where one is broadcast. Axes of
    other sizes are tied: nothing is known of them."""
    if not isinstance(a, Node) or not isinstance(b, Node):
        return
    first, second = Slot(a, axis % len(slots(a))), Slot(b, other % len(slots(b)))
    sizes = found.sizes[first], found.sizes[second]
    if sizes[0] == sizes[1]:
        found.join(first, second)
    elif 1 not in sizes:
        for slot in (first, second):
            tie_slot(found, slot, f"{a.name} and {b.name} have different sizes")


def join_same(found: AxisGraph, a: Node, b: Node) -> None:
    """Join all axes of values of one shape."""
    for axis in range(len(slots(a))):
        join(found, a, axis, b, axis)


def broadcast(found: AxisGraph, operand: Any, result: Any) -> None:
    """Join the axes that broadcasting puts together."""
    if isinstance(operand, Node) and isinstance(result, Node):
        for back in range(1, min(len(slots(operand)), len(slots(result))) + 1):
            join(found, operand, -back, result, -back)


def axes_of(node: Node, rank: int, name: str = "axis") -> set[int]:
    """The axes that a call names; all where it names none."""
    axis = argument(node, name)
    if axis is None:
        return set(range(rank))
    return {a % rank for a in (axis if isinstance(axis, tuple) else (axis,))}
