"""What each operation joins: the rules of the graph of axes.

In: a module. Out: its :class:`AxisGraph`, closed. Operations that only move elements are asked
where each comes from, by running them on positions; elementwise ones join what broadcasting puts
together; products, convolutions, norms and attention have a rule each. An axis of which no rule
speaks is tied. Where several axes become one (flatten, the heads of attention) or one becomes
several, the outermost of them that can go stands for it, and the others stay whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.surgery.axes import AxisGraph, Slot, moved_from, operands_of, parts_of

RULES: dict[str, Callable[[AxisGraph, Node], None]] = {}


def rule(name: str) -> Callable[[Any], Any]:
    """Enter the rule of an op."""

    def enter(function: Any) -> Any:
        RULES[name] = function
        return function

    return enter


def axis_graph(gm: GraphModule) -> AxisGraph:
    """The groups of all axes of a module."""
    found = AxisGraph(gm)
    weights: dict[int, Node] = {}  # by the array, which may be at several paths
    merged: list[tuple[Slot, list[tuple[Slot, Any, Any]]]] = []
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            _tie_all(found, node, f"{node.target} is an input")
        elif node.op == "get_attr":
            first = weights.setdefault(id(gm.get_attribute(node.target)), node)
            if first is not node:
                _join_same(found, first, node)
        elif node.op == "output":
            for result in node.all_input_nodes:
                _tie_all(found, result, f"{result.name} is a result")
        elif not parts_of(node) or not all(parts_of(n) for n in operands_of(node)):
            _tie_call(found, node, "has no type")
        elif node.op == "call_module":
            _tie_call(found, node, "is a leaf module")
        else:
            _call(found, node, merged)
    found.close()
    for whole, candidates in merged:
        free = [c for c in candidates if found.is_free(c[0])]
        chosen = (free or candidates)[0]
        found.join(chosen[0], whole, chosen[1], chosen[2])
        for other, _, _ in candidates:
            if other is not chosen[0]:
                found.tie(other, f"{other} is one of the axes that {whole} holds together")
    found.close()
    return found


def _call(found: AxisGraph, node: Node, merged: list[Any]) -> None:
    op = node.target
    operands = operands_of(node)
    special = RULES.get(op.name)
    if special is not None:
        special(found, node)
    elif op.moves_values or op.kind == "view":
        _moves(found, node, operands, merged)
    elif op.kind == "pointwise":
        for operand in operands:
            _broadcast(found, operand, node)
    elif op.kind == "reduction" or "keepdims" in op.signature.parameters:
        _reduction(found, node)
    elif list(op.tensor_kinds.values()) == ["Tensor"] and operands and len(parts_of(node)) == 1:
        _layer(found, node)
    else:
        _tie_call(found, node, "has no rule for its axes")


# -- tying and joining -----------------------------------------------------------------------------
def _slots(node: Node) -> list[Slot]:
    return [
        Slot(node, axis, part)
        for part, type in enumerate(parts_of(node))
        for axis in range(type.rank)
    ]


def _tie_all(found: AxisGraph, node: Node, reason: str) -> None:
    for slot in _slots(node):
        found.tie(slot, reason)


def _tie_call(found: AxisGraph, node: Node, why: str) -> None:
    for each in (node, *operands_of(node)):
        _tie_all(found, each, f"{node.describe()} {why}")


def _tie(found: AxisGraph, node: Any, axis: int, at: Node, why: str) -> None:
    if isinstance(node, Node):
        (type,) = parts_of(node)
        found.tie(Slot(node, axis % type.rank), f"{at.describe()} {why}")


def _join(found: AxisGraph, a: Any, axis: int, b: Any, other: int) -> None:
    """Join two axes of the same size; nothing where an operand is left out."""
    if isinstance(a, Node) and isinstance(b, Node):
        first, second = Slot(a, axis % len(_slots(a))), Slot(b, other % len(_slots(b)))
        if found.sizes[first] == found.sizes[second]:
            found.join(first, second)


def _join_same(found: AxisGraph, a: Node, b: Node) -> None:
    for axis in range(len(_slots(a))):
        _join(found, a, axis, b, axis)


def _broadcast(found: AxisGraph, operand: Node, result: Node) -> None:
    rank, own = len(_slots(result)), len(_slots(operand))
    for back in range(1, own + 1):
        if found.sizes[Slot(operand, own - back)] == found.sizes[Slot(result, rank - back)]:
            _join(found, operand, own - back, result, rank - back)


def _argument(node: Node, name: str) -> Any:
    return node.arguments.get(name, node.target.defaults.get(name))


# -- whole kinds of ops ----------------------------------------------------------------------------
def _moves(found: AxisGraph, node: Node, operands: list[Node], merged: list[Any]) -> None:
    try:
        sources = list(moved_from(node, operands))
    except Exception:  # sizes that the small numbers do not fit
        _tie_call(found, node, "is not understood for small sizes")
        return
    if any(source.dtype != np.int64 for _, source, _ in sources):
        _tie_call(found, node, "changes the numbers by which elements are told apart")
        return
    op, is_known = node.target, node.target.keeps_order or node.target.starts_at is not None
    is_known = is_known or op.name == "concat" or op.name == "flatten"
    for operand, source, shape in sources:
        there = np.nonzero(source >= 0)
        coordinates = np.unravel_index(source[there], shape)
        halves: dict[Slot, list[tuple[Slot, Any, Any]]] = {}
        for a, at_a in enumerate(coordinates):
            own = Slot(operand, a)
            for b, at_b in enumerate(there):
                result = Slot(node, b)
                if shape[a] != found.sizes[own] or source.shape[b] != found.sizes[result]:
                    continue  # a named size, which is tied
                pairs = np.unique(np.stack([at_a, at_b]), axis=1)
                to_a, to_b = (len(np.unique(side)) == pairs.shape[1] for side in pairs)
                if min(shape[a], source.shape[b]) < 2 or not (to_a or to_b):
                    continue
                if to_a and to_b:
                    is_same = pairs.shape[1] == shape[a] == source.shape[b]
                    if is_known or (is_same and bool((pairs[0] == pairs[1]).all())):
                        found.join(own, result, pairs[0], pairs[1])
                    else:
                        found.tie(own, f"{node.describe()} picks its elements by number")
                        found.tie(result, f"{node.describe()} picks its elements by number")
                elif to_b:  # the result's axis holds several of the operand's
                    halves.setdefault(result, []).append((own, pairs[0], pairs[1]))
                else:
                    halves.setdefault(own, []).append((result, pairs[1], pairs[0]))
        merged += halves.items()
        for axis, size in enumerate(shape):  # an element that is taken by its number
            slot = Slot(operand, axis)
            left_out = np.unique(coordinates[axis]).size < size
            if left_out and op.starts_at != "start" and size == found.sizes[slot]:
                found.tie(slot, f"{node.describe()} picks its elements by number")
            elif left_out and _argument(node, "step") not in (None, 1):
                found.tie(slot, f"{node.describe()} steps over it")


def _axes(node: Node, rank: int) -> set[int]:
    axis = _argument(node, "axis")
    if axis is None:
        return set(range(rank))
    return {a % rank for a in (axis if isinstance(axis, tuple) else (axis,))}


def _reduction(found: AxisGraph, node: Node) -> None:
    operand = operands_of(node)[0]
    rank = len(_slots(operand))
    reduced, keepdims = _axes(node, rank), bool(_argument(node, "keepdims"))
    out = 0
    for axis in range(rank):
        if axis not in reduced:
            _join(found, operand, axis, node, out)
        elif parts_of(node)[0].dtype.is_integer and not parts_of(operand)[0].dtype.is_integer:
            _tie(found, operand, axis, node, "gives positions in it")
        out += keepdims or axis not in reduced


def _layer(found: AxisGraph, node: Node) -> None:
    """One array in, one out: windows go over all axes behind the second one, scans and norms over
    their ``axis``, others look at each element by itself."""
    (operand,), rank = operands_of(node), len(_slots(node))
    whole: set[int] = set()
    if "axis" in node.target.signature.parameters:
        whole = _axes(node, rank)
    elif node.target.kind == "window":
        whole = {1, 2} if _argument(node, "layout") == "nhwc" else set(range(2, rank))
    elif parts_of(node) != parts_of(operand):
        _tie_call(found, node, "has no rule for its axes")
        return
    for axis in range(rank):
        if axis in whole or len(_slots(operand)) != rank:
            for each in (operand, node):
                _tie(found, each, axis, node, "needs all of it")
        else:
            _join(found, operand, axis, node, axis)


# -- ops with weights ------------------------------------------------------------------------------
@rule("linear")
def _linear(found: AxisGraph, node: Node) -> None:
    x, weight, bias = (node.arguments.get(n) for n in node.target.tensor_kinds)
    assert isinstance(x, Node)
    _join(found, x, -1, weight, 1)
    _join(found, weight, 0, node, -1)
    _join(found, bias, 0, node, -1)
    for axis in range(len(_slots(x)) - 1):
        _join(found, x, axis, node, axis)


@rule("matmul")
def _matmul(found: AxisGraph, node: Node) -> None:
    x, y = (node.arguments[n] for n in node.target.tensor_kinds)
    ranks = [len(_slots(n)) for n in (x, y, node)]
    if min(ranks) < 2:
        _tie_call(found, node, "multiplies vectors")
        return
    _join(found, x, -1, y, -2)
    _join(found, x, -2, node, -2)
    _join(found, y, -1, node, -1)
    for each in (x, y):
        for back in range(3, len(_slots(each)) + 1):
            _join(found, each, -back, node, -back)


@rule("conv1d")
@rule("conv2d")
@rule("conv_transpose1d")
@rule("conv_transpose2d")
def _conv(found: AxisGraph, node: Node) -> None:
    """Channels of a group go with the same place of a weight that all groups share; where each
    group has one channel (depthwise), groups go as a whole."""
    x, weight, bias = (node.arguments.get(n) for n in node.target.tensor_kinds)
    assert isinstance(x, Node) and isinstance(weight, Node)
    groups, rank = int(_argument(node, "groups") or 1), len(_slots(node))
    channel = rank - 1 if _argument(node, "layout") == "nhwc" else 1
    if len(_slots(x)) != rank:
        _tie_call(found, node, "has no batch axis")
        return
    _join(found, x, 0, node, 0)
    for axis in range(1, rank):
        for each in (x, node) if axis != channel else ():
            _tie(found, each, axis, node, "goes over it with a window")
    for axis in range(2, rank):
        _tie(found, weight, axis, node, "has a window of that size")
    _join(found, bias, 0, node, channel)
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


@rule("batch_norm")
@rule("instance_norm")
@rule("group_norm")
def _batch_norm(found: AxisGraph, node: Node) -> None:
    x, *numbers = (node.arguments.get(n) for n in node.target.tensor_kinds)
    assert isinstance(x, Node)
    _join_same(found, x, node)
    for each in numbers:
        _join(found, each, 0, node, 1)


@rule("layer_norm")
@rule("rms_norm")
def _layer_norm(found: AxisGraph, node: Node) -> None:
    x, *numbers = (node.arguments.get(n) for n in node.target.tensor_kinds)
    assert isinstance(x, Node)
    _join_same(found, x, node)
    for each in numbers:
        if isinstance(each, Node):
            _broadcast(found, each, node)


@rule("embedding")
def _embedding(found: AxisGraph, node: Node) -> None:
    x, weight = (node.arguments[n] for n in node.target.tensor_kinds)
    _tie(found, weight, 0, node, "looks up its rows by number")
    _join(found, weight, 1, node, -1)
    for axis in range(len(_slots(x))):
        _join(found, x, axis, node, axis)


@rule("scaled_dot_product_attention")
def _attention(found: AxisGraph, node: Node) -> None:
    operands: list[Any] = [node.arguments.get(n) for n in node.target.tensor_kinds]
    query, key, value, mask = operands
    if not len(_slots(query)) == len(_slots(key)) == len(_slots(value)) == len(_slots(node)):
        _tie_call(found, node, "broadcasts its operands")
        return
    for axis in range(len(_slots(node)) - 2):
        for each in (query, key, value):
            if found.sizes[Slot(each, axis)] != found.sizes[Slot(node, axis)]:
                for one in (query, key, value, node):
                    _tie(found, one, axis, node, "shares heads among queries")
            _join(found, each, axis, node, axis)
    if isinstance(mask, Node):
        _broadcast(found, mask, node)
        _tie(found, mask, -1, node, "masks it")
    for each in (query, key):
        _tie(found, each, -1, node, "scales by its size")
    _join(found, query, -2, node, -2)
    _join(found, key, -2, value, -2)
    _join(found, value, -1, node, -1)


@rule("tril")
@rule("triu")
def _triangle(found: AxisGraph, node: Node) -> None:
    (x,) = operands_of(node)
    _join_same(found, x, node)
    for axis in (-1, -2):
        _tie(found, node, axis, node, "keeps a triangle of it")


@rule("getitem")
def _getitem(found: AxisGraph, node: Node) -> None:
    source, index = node.args[0], _argument(node, "index")
    if not isinstance(source.type, tuple) or not isinstance(index, int):
        _tie_call(found, node, "picks its elements by number")
        return
    part = index % len(source.type)
    for axis in range(len(_slots(node))):
        found.join(Slot(source, axis, part), Slot(node, axis))


@rule("split")
def _split(found: AxisGraph, node: Node) -> None:
    x, rank = node.args[0], parts_of(node)[0].rank
    (split_axis,) = _axes(node, rank)
    start = 0
    for part in range(len(parts_of(node))):
        for axis in range(rank):
            own = Slot(node, axis, part)
            if axis != split_axis:
                found.join(Slot(x, axis), own)
                continue
            found.join(Slot(x, axis), own, np.arange(start, start + found.sizes[own]))
            start += found.sizes[own]
