"""The rules of ops that go along whole axes, or to positions, for the graph of axes.

In: the graph of axes and a call. Out: joined and tied axes. An axis that is scanned, sorted,
factored or looked into stays whole: what stands at one position depends on the others, or is found
by its number. The other axes, those of a batch, go with the result.
"""

from __future__ import annotations

import numpy as np

from fxlite.graph.graph import Node
from fxlite.ops.indexing import parts_of_update
from fxlite.passes.surgery.axes import AxisGraph, Slot, parts_of
from fxlite.passes.surgery.joining import argument, axes_of, join, slots, tie
from fxlite.passes.surgery.layer_rules import RULES as RULES
from fxlite.passes.surgery.layer_rules import rule
from fxlite.types import shapes


def whole(found: AxisGraph, node: Node) -> None:
    """Of an op that ``needs_whole`` axes: the others stand in the result in their order, under the
    same numbers where the ranks are equal, else in front. What else the result has is made of the
    whole ones."""
    why, rank = "needs all of it", len(slots(node))
    made_of_whole = set(range(rank))
    for name in node.target.tensor_kinds:
        operand, named = node.arguments.get(name), node.target.needs_whole.get(name, ())
        if not isinstance(operand, Node):
            continue
        size = len(slots(operand))
        needed = axes_of(node, size, named) if isinstance(named, str) else {a % size for a in named}
        out, keeps = 0, size == rank
        for axis in range(size):
            if axis in needed:
                tie(found, operand, axis, node, why)
            else:
                join(found, operand, axis, node, out)
                made_of_whole.discard(out)
            out += keeps or axis not in needed
    for axis in made_of_whole:
        tie(found, node, axis, node, why)


def scattered(found: AxisGraph, node: Node) -> None:
    """Along other axes an index stands at its own position, perhaps only at the first ones."""
    x, index, source = (node.arguments[n] for n in node.target.tensor_kinds)
    written = argument(node, "axis") % len(slots(node))
    for axis in range(len(slots(node))):
        if axis == written:
            tie(found, x, axis, node, "writes to positions in it")
            tie(found, node, axis, node, "writes to positions in it")
            for each in (index, source):
                tie(found, each, axis, node, "writes its elements one after the other")
            continue
        join(found, x, axis, node, axis)
        join(found, index, axis, source, axis)
        own, there = Slot(node, axis), Slot(index, axis)
        sizes = [parts_of(each)[0].shape[axis] for each in (node, index)]
        if all(isinstance(size, int) for size in sizes):
            found.join(own, there, np.arange(found.sizes[there]))
        elif shapes.equal(*sizes):
            found.join(own, there)
        else:
            for each in (node, index):
                tie(found, each, axis, node, "writes to a part of a named size")


def written(found: AxisGraph, node: Node) -> None:
    """Axes that are written from end to end go with those of the values."""
    x, values = node.arguments["x"], node.arguments["values"]
    own = []  # the axes of the part, of which the others are fixed
    for axis, part in enumerate(parts_of_update(node.bound)):
        join(found, x, axis, node, axis)
        size = parts_of(node)[0].shape[axis]
        is_slice = isinstance(part, tuple)
        if is_slice:
            own.append(axis)
        if not is_slice or part[3] != 1 or not shapes.equal(part[2], size):
            tie(found, node, axis, node, "writes to positions in it")
    if isinstance(values, Node):
        count = len(slots(values))
        for at, axis in zip(range(-1, -count - 1, -1), reversed(own)):
            size, whole_size = (parts_of(v)[0].shape[a] for v, a in ((values, at), (node, axis)))
            if shapes.equal(size, whole_size):
                join(found, values, at, node, axis)
            elif size != 1:
                tie(found, values, at, node, "writes it to a part of an axis")


@rule("take", "embedding")
def _take(found: AxisGraph, node: Node) -> None:
    """The axes of the index stand in the place of the one that is looked into."""
    name, table, axis = node.target.looks_up
    x, index = node.arguments[table], node.arguments[name]
    looked = (argument(node, "axis") if axis is None else axis) % len(slots(x))
    count = len(slots(index)) if isinstance(index, Node) else 0
    for axis in range(len(slots(x))):
        if axis == looked:
            tie(found, x, axis, node, "looks into it by number")
        else:
            join(found, x, axis, node, axis + (count - 1) * (axis > looked))
    for axis in range(count):
        join(found, index, axis, node, looked + axis)


@rule("gather")
def _gather(found: AxisGraph, node: Node) -> None:
    x, index = node.arguments["x"], node.arguments["index"]
    looked = argument(node, "axis") % len(slots(node))
    for axis in range(len(slots(node))):
        join(found, index, axis, node, axis)
        if axis == looked:
            tie(found, x, axis, node, "looks into it by number")
        else:
            join(found, x, axis, node, axis)


@rule("index")
def _index(found: AxisGraph, node: Node) -> None:
    """The common axes of the indices stand in the place of those that are looked into."""
    x, indices = node.arguments["x"], node.arguments["indices"]
    first = (argument(node, "axis") or 0) % len(slots(x))
    behind = len(slots(x)) - first - len(indices)  # axes
    for axis in range(len(slots(x))):
        if axis < first:
            join(found, x, axis, node, axis)
        elif axis < first + len(indices):
            tie(found, x, axis, node, "looks into it by number")
        else:
            join(found, x, axis, node, len(slots(node)) - len(slots(x)) + axis)
    for index in indices:
        for back in range(1, len(slots(index)) + 1 if isinstance(index, Node) else 1):
            join(found, index, -back, node, -back - behind)
