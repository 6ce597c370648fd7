"""Which axes each operation joins: the rules of the graph of axes.

In: a module. Out: its :class:`AxisGraph`, closed. Operations that only move elements run on positions
instead of numbers, which shows where each element comes from; elementwise ops join the axes that
broadcasting aligns; products, convolutions, norms and attention have a rule each. An axis that no
rule covers is tied. If several axes become one (flatten, the heads of attention) or one becomes
several, the outermost axis that can be pruned stands for it, and the others stay whole.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from fxlite.base.errors import FxliteError
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.ops.op import REGISTRY, Op
from fxlite.passes.surgery import layer_rules
from fxlite.passes.surgery.axes import (
    AxisGraph,
    Slot,
    argument,
    axes_of,
    broadcast,
    channel_axis,
    join,
    join_same,
    moved_from,
    operands_of,
    parts_of,
    slots,
    tie,
    tie_all,
    tie_call,
)
from fxlite.tracing.symbolic_trace import symbolic_trace


def axis_graph(gm: GraphModule, is_part: bool = False) -> AxisGraph:
    """The groups of all axes of a module. The axes of inputs and results are tied; if the module
    ``is_part`` of another one, those of constants are tied instead."""
    found = AxisGraph(gm)
    weights: dict[int, Node] = {}  # by the array, which may be at several paths
    merged: list[tuple[Slot, list[tuple[Slot, Any, Any]]]] = []
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            if not is_part:
                tie_all(found, node, f"{node.target} is an input")
        elif node.op == "get_attr":
            if is_part:
                tie_all(found, node, f"{node.target} is a constant")
            first = weights.setdefault(id(gm.get_attribute(node.target)), node)
            if first is not node:
                join_same(found, first, node)
        elif node.op == "output":
            for result in () if is_part else node.all_input_nodes:
                tie_all(found, result, f"{result.name} is a result")
        elif not parts_of(node) or not all(parts_of(n) for n in operands_of(node)):
            tie_call(found, node, "has no type")
        elif node.op == "call_module":
            tie_call(found, node, "is a leaf module")
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
    op: Op = node.target
    operands = operands_of(node)
    known = layer_rules.RULES.get(op.name) if REGISTRY.get(op.name) is op else None
    if known is not None:
        known(found, node)
    elif op.needs_whole:
        layer_rules.whole(found, node)
    elif op.kind == "scatter":
        layer_rules.scattered(found, node)
    elif op.writes_part:
        layer_rules.written(found, node)
    elif op.kind == "pointwise":
        for operand in operands:
            broadcast(found, operand, node)
    elif op.kind == "reduction":
        _reduction(found, node)
    elif op.kind == "window":
        _window(found, node)
    elif op.moves_values or op.kind == "view":
        _moves(found, node, operands, merged)
    elif op.has_expansion:
        _expanded(found, node)
    else:
        tie_call(found, node, "has no rule for its axes")


# -- whole kinds of ops ----------------------------------------------------------------------------
def _moves(found: AxisGraph, node: Node, operands: list[Node], merged: list[Any]) -> None:
    try:
        sources = list(moved_from(node, operands))
    except Exception:  # the small numbers that replace named sizes do not work here
        tie_call(found, node, "is not understood for small sizes")
        return
    if any(source.dtype != np.int64 for _, source, _ in sources):
        tie_call(found, node, "changes the numbers by which elements are told apart")
        return
    op, is_known = node.target, node.target.keeps_order or node.target.starts_at is not None
    is_known = is_known or op.name == "concat" or op.name == "flatten"
    for operand, source, shape in sources:
        if not shape or not source.shape:
            continue
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
                if min(len(np.unique(side)) for side in pairs) < 2 or not (to_a or to_b):
                    continue  # broadcast: every position reads the same element
                if to_a and to_b:
                    is_same = pairs.shape[1] == shape[a] == source.shape[b]
                    if is_known or (is_same and bool((pairs[0] == pairs[1]).all())):
                        found.join(own, result, pairs[0], pairs[1])
                    else:
                        tie(found, operand, a, node, "picks its elements by number")
                        tie(found, node, b, node, "picks its elements by number")
                elif to_b:  # one position of the result's axis holds several of the operand's
                    halves.setdefault(result, []).append((own, pairs[0], pairs[1]))
                else:
                    halves.setdefault(own, []).append((result, pairs[1], pairs[0]))
        merged += halves.items()
        for axis, size in enumerate(shape):  # an element that is selected by its number
            slot = Slot(operand, axis)
            left_out = np.unique(coordinates[axis]).size < size
            if left_out and op.starts_at != "start" and size == found.sizes[slot]:
                tie(found, operand, axis, node, "picks its elements by number")
            elif left_out and argument(node, "step") not in (None, 1):
                tie(found, operand, axis, node, "steps over it")


def _reduction(found: AxisGraph, node: Node) -> None:
    operand = operands_of(node)[0]
    rank = len(slots(operand))
    reduced, keepdims = axes_of(node, rank), bool(argument(node, "keepdims"))
    out = 0
    for axis in range(rank):
        if axis not in reduced:
            join(found, operand, axis, node, out)
        out += keepdims or axis not in reduced


def _window(found: AxisGraph, node: Node) -> None:
    """Windows slide over all axes except those of images and channels."""
    operand, channel = operands_of(node)[0], channel_axis(node)
    for axis in range(len(slots(node))):
        if axis in (0, channel):
            join(found, operand, axis, node, axis)
        else:
            for each in (operand, node):
                tie(found, each, axis, node, "goes over it with a window")


def _expanded(found: AxisGraph, node: Node) -> None:
    """Join axes as the ops of the expansion do."""
    operands: list[Node] = []
    node.target.map_tensors(lambda v: operands.append(v) if isinstance(v, Node) else None, node.arguments)
    key = node.target, tuple(n.type for n in operands), repr(node.kwargs)
    if key not in found.expansions:
        found.expansions[key] = _inside(node, operands)
    inside = found.expansions[key]
    if inside is None:
        tie_call(found, node, "is made of ops that are not known without numbers")
        return
    inputs, results, inner = inside
    first: dict[int, int] = {}  # by group of the inner graph
    for outer, own, part in [
        *((n, p, 0) for n, p in zip(operands, inputs)),
        *((node, r, part) for part, r in enumerate(results)),
    ]:
        for axis in range(parts_of(own)[0].rank):
            slot = Slot(outer, axis, part)
            elements, groups = found.ids(slot), inner.groups(Slot(own, axis))
            start = [first.setdefault(int(g), int(e)) for g, e in zip(groups, elements)]
            found._pairs.append((np.array(start, dtype=np.int64), elements))
            for group, element in zip(groups, elements):
                if reason := inner.reason(group):
                    text = f"{node.describe()}: {reason} (axis {axis} of {outer.name})"
                    found.ties.setdefault(int(element), text)


def _inside(node: Node, operands: list[Node]) -> Any:
    """The inputs, results and graph of axes of an expansion; None where it cannot be traced."""

    def call(*values: Any) -> Any:
        given = iter(values)
        arguments = node.target.map_tensors(lambda v: next(given) if isinstance(v, Node) else v, node.arguments)
        return node.target.expand(arguments)

    kind = inspect.Parameter.POSITIONAL_ONLY
    names = [f"x{i}" for i in range(len(operands))]
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, kind) for name in names]
    )
    try:
        gm = symbolic_trace(call, *(n.type for n in operands))
    except FxliteError:
        return None
    results = gm.graph.output_node().args[0]
    results = results if isinstance(results, tuple) else (results,)
    types = tuple(r.type for r in results if isinstance(r, Node))
    if types != parts_of(node):
        return None
    return gm.graph.placeholders, results, axis_graph(gm, is_part=True)
