"""The rules of single ops for the graph of axes: layers with weights, recurrence, attention, and ops
that work along whole axes or on positions.

In: the graph of axes and a call. Out: joined and tied axes. An axis that is scanned, sorted, factored
or indexed stays whole, because the value at one position depends on the others or is found by its
number. The other axes, those of a batch, are joined with the result's. Ops without a rule here are
handled by their kind, or by the ops of their expansion (:mod:`fxlite.passes.surgery.axis_rules`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fxlite.graph.graph import Node
from fxlite.ops.contraction import parse_equation
from fxlite.ops.indexing import parts_of_update
from fxlite.passes.surgery.axes import (
    AxisGraph,
    Slot,
    argument,
    axes_of,
    broadcast,
    channel_axis,
    join,
    join_same,
    operands_of,
    parts_of,
    slots,
    tie,
    tie_call,
    tie_slot,
)
from fxlite.types import shapes

RULES: dict[str, Callable[[AxisGraph, Node], None]] = {}


def rule(*names: str) -> Callable[[Any], Any]:
    """Register the rule for the ops of these names."""

    def enter(function: Any) -> Any:
        RULES.update(dict.fromkeys(names, function))
        return function

    return enter


@rule("linear", "int_linear")
def _linear(found: AxisGraph, node: Node) -> None:
    x, weight, bias = (node.arguments.get(n) for n in node.target.tensor_kinds)
    assert isinstance(x, Node)
    join(found, x, -1, weight, 1)
    join(found, weight, 0, node, -1)
    join(found, bias, 0, node, -1)
    for axis in range(len(slots(x)) - 1):
        join(found, x, axis, node, axis)


@rule("matmul", "int_matmul")
def _matmul(found: AxisGraph, node: Node) -> None:
    x, y = (node.arguments[n] for n in node.target.tensor_kinds)
    ranks = [len(slots(n)) for n in (x, y, node)]
    if min(ranks) < 2:
        tie_call(found, node, "multiplies vectors")
        return
    join(found, x, -1, y, -2)
    join(found, x, -2, node, -2)
    join(found, y, -1, node, -1)
    for each in (x, y):
        for back in range(3, len(slots(each)) + 1):
            join(found, each, -back, node, -back)


@rule("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "int_conv2d")
def _conv(found: AxisGraph, node: Node) -> None:
    """Channels of a group are joined with the position in the weight that all groups share; if each
    group has one channel (depthwise), whole groups are removed."""
    x, weight, bias = (node.arguments.get(n) for n in node.target.tensor_kinds)
    assert isinstance(x, Node) and isinstance(weight, Node)
    groups, rank = int(argument(node, "groups") or 1), len(slots(node))
    channel = channel_axis(node)
    if len(slots(x)) != rank:
        tie_call(found, node, "has no batch axis")
        return
    join(found, x, 0, node, 0)
    for axis in range(1, rank):
        for each in (x, node) if axis != channel else ():
            tie(found, each, axis, node, "goes over it with a window")
    for axis in range(2, rank):
        tie(found, weight, axis, node, "has a window of that size")
    join(found, bias, 0, node, channel)
    read, made = Slot(x, channel), Slot(node, channel)
    # the weight's axis 0 counts channels of all groups, its axis 1 those of each
    whole, each_group = (read, made) if node.target.transposes else (made, read)
    found.join(Slot(weight, 0), whole)
    if found.sizes[whole] == 0 or found.sizes[each_group] == 0:
        return
    inner = found.sizes[each_group] // groups
    if inner == 1 and groups > 1:
        outer = found.sizes[whole] // groups
        found.join(whole, each_group, None, np.arange(found.sizes[whole]) // outer)
    else:
        at = np.arange(found.sizes[each_group])
        found.join(each_group, Slot(weight, 1), at, at % inner)


@rule("batch_norm", "instance_norm", "group_norm", "layer_norm", "rms_norm")
def _norm(found: AxisGraph, node: Node) -> None:
    """One parameter for each channel, or for each element of the normalized axes."""
    x, *numbers = (node.arguments.get(n) for n in node.target.tensor_kinds)
    assert isinstance(x, Node)
    join_same(found, x, node)
    for each in numbers:
        if "normalized_shape" in node.target.signature.parameters:
            broadcast(found, each, node)
        else:
            join(found, each, 0, node, 1)


@rule("scaled_dot_product_attention")
def _attention(found: AxisGraph, node: Node) -> None:
    operands: list[Any] = [node.arguments.get(n) for n in node.target.tensor_kinds]
    query, key, value, mask = operands
    if not len(slots(query)) == len(slots(key)) == len(slots(value)) == len(slots(node)):
        tie_call(found, node, "broadcasts its operands")
        return
    for axis in range(len(slots(node)) - 2):
        for each in (query, key, value):
            if found.sizes[Slot(each, axis)] != found.sizes[Slot(node, axis)]:
                for one in (query, key, value, node):
                    tie(found, one, axis, node, "shares heads among queries")
            join(found, each, axis, node, axis)
    if isinstance(mask, Node):
        for back in range(2, len(slots(mask)) + 1):
            join(found, mask, -back, node, -back)
        join(found, mask, -1, key, -2)
        tie(found, mask, -1, node, "divides by the sum over it")
    for each in (query, key):
        tie(found, each, -1, node, "scales by its size")
    tie(found, key, -2, node, "divides by the sum over it")
    join(found, query, -2, node, -2)
    if argument(node, "is_causal"):
        tie(found, query, -2, node, "masks by the number of the position")
    join(found, key, -2, value, -2)
    join(found, value, -1, node, -1)


@rule("tril", "triu")
def _triangle(found: AxisGraph, node: Node) -> None:
    (x,) = operands_of(node)
    join_same(found, x, node)
    for axis in (-1, -2):
        tie(found, node, axis, node, "keeps a triangle of it")


@rule("getitem")
def _getitem(found: AxisGraph, node: Node) -> None:
    source, index = node.args[0], argument(node, "index")
    if not isinstance(source.type, tuple) or not isinstance(index, int):
        tie_call(found, node, "picks its elements by number")
        return
    part = index % len(source.type)  # another slot of the same node
    for axis in range(len(slots(node))):
        found.join(Slot(source, axis, part), Slot(node, axis))


@rule("split")
def _split(found: AxisGraph, node: Node) -> None:
    x, rank = node.args[0], parts_of(node)[0].rank
    (split_axis,) = axes_of(node, rank)
    sizes = [type.shape[split_axis] for type in parts_of(node)]
    is_known = all(isinstance(size, int) for size in (*sizes, parts_of(x)[0].shape[split_axis]))
    start = 0
    for part, size in enumerate(sizes):
        for axis in range(rank):
            own = Slot(node, axis, part)
            if axis != split_axis:
                found.join(Slot(x, axis), own)
            elif is_known:
                found.join(Slot(x, axis), own, np.arange(start, start + size))
            else:
                tie_slot(found, own, f"{node.describe()} takes it from an axis of a named size")
        start += size if is_known else 0


@rule("einsum")
def _einsum(found: AxisGraph, node: Node) -> None:
    """Axes with the same letter are joined."""
    operands = node.args[0]
    inputs, output = parse_equation(argument(node, "equation"), [len(slots(n)) for n in operands])
    first: dict[str, tuple[Node, int]] = {}
    places = [(n, labels) for n, labels in zip(operands, inputs)]
    for value, labels in [*places, (node, output)]:
        for axis, letter in enumerate(labels):
            if found.sizes[Slot(value, axis)] == 1:
                continue  # perhaps broadcast
            join(found, *first.setdefault(letter, (value, axis)), value, axis)


@rule("recurrence")
def _recurrence(found: AxisGraph, node: Node) -> None:
    """A hidden unit is joined with its row in each gate and its column in the recurrent weight."""
    gates, weight, state, *more = (node.arguments.get(n) for n in node.target.tensor_kinds)
    cell, bias = more
    hidden = Slot(node, 2)
    size = found.sizes[hidden]
    rows = [(gates, 2), (weight, 0), (bias, 0)]
    for each, axis in rows:
        if isinstance(each, Node) and size:
            slot = Slot(each, axis)
            found.join(slot, hidden, None, np.arange(found.sizes[slot]) % size)
    join(found, weight, 1, node, 2)
    for each in (state, cell):
        join(found, each, 1, node, 2)
        join(found, each, 0, node, 1)
    join(found, gates, 1, node, 1)
    for each in (gates, node):
        tie(found, each, 0, node, "goes through it step by step")


@rule("dropout")
def _dropout(found: AxisGraph, node: Node) -> None:
    join_same(found, operands_of(node)[0], node)


@rule("full")
def _full(found: AxisGraph, node: Node) -> None:
    """All its elements are equal, so that any of them can be removed."""


@rule("one_hot")
def _one_hot(found: AxisGraph, node: Node) -> None:
    (x,) = operands_of(node)
    for axis in range(len(slots(x))):
        join(found, x, axis, node, axis)
    tie(found, node, -1, node, "has a place for each number")


@rule("int_recurrence")
def _int_recurrence(found: AxisGraph, node: Node) -> None:
    tie_call(found, node, "has no rule for its axes")


# -- whole axes and positions ----------------------------------------------------------------------
def whole(found: AxisGraph, node: Node) -> None:
    """The rule of an op that ``needs_whole`` axes. The other axes appear in the result in order: under
    the same numbers if the ranks are equal, otherwise in front. All further axes of the result come
    from the whole ones."""
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
    """Along the other axes an index refers to its own position, perhaps only to the first ones."""
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
    """Axes that are written over their whole length are joined with those of the values."""
    x, values = node.arguments["x"], node.arguments["values"]
    own = []  # the axes of the part; all other axes are fixed
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
    """The axes of the index replace the axis that is indexed."""
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
    """The common axes of the indices replace those that are indexed."""
    x, indices = node.arguments["x"], node.arguments["indices"]
    first = (argument(node, "axis") or 0) % len(slots(x))
    behind = len(slots(x)) - first - len(indices)  # number of axes after them
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
