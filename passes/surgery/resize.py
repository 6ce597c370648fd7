"""Shrink axes together with everything that depends on them: weights, types and attributes, in one
transaction.

In: a module, and an axis of a node with the positions to keep (:func:`resize`), or an amount of
channels or heads, of which the least important are removed (:func:`prune_channels`,
:func:`prune_heads`). Out: a smaller module whose weights have the same names, and a :class:`Resized`
that records what happened to each.

A group of the graph of axes is removed as a whole; its importance is that of all numbers in its
weights (H. Li et al., "Pruning Filters for Efficient ConvNets", ICLR 2017, for one layer; G. Fang et
al., "DepGraph", CVPR 2023, for groups).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite import nn
from fxlite.base.checked import checked
from fxlite.base.console import Printed, borderless
from fxlite.base.errors import ArgumentError, FxliteError, number_of
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.node import stored_kwargs
from fxlite.graph.retype import retype
from fxlite.nn import functional as F
from fxlite.nn.module import Parameter
from fxlite.passes.base import as_module, graph_pass
from fxlite.passes.ledger import refuse
from fxlite.passes.surgery.axes import Array, AxisGraph, Slot, axis_of, channel_axis, parts_of
from fxlite.passes.surgery.axis_rules import axis_graph
from fxlite.passes.surgery.places import node_at, nodes_at
from fxlite.types import shapes
from fxlite.types.tensor_type import type_of


@dataclass(frozen=True, repr=False)
class Resized(Printed):
    """What a resize changed: the weights by path and the nodes by name, each with its type before
    and after. The resulting module has it in ``gm.meta["resized"]``."""

    weights: dict[str, tuple[Any, Any]]
    nodes: dict[str, tuple[Any, Any]]

    @property
    def about(self) -> str:
        return f"{number_of(len(self.weights), 'weight')} and {number_of(len(self.nodes), 'value')}"

    def __rich__(self) -> Any:
        table = borderless(("weight or value", "before", "after"))
        for name, (before, after) in (*self.weights.items(), *self.nodes.items()):
            table.add_row(name, str(before), str(after))
        return table


@checked
def resize(gm: Any, node: Any, axis: int, keep: Iterable[int]) -> GraphModule:
    """A module in which ``axis`` of the node has only the positions ``keep``, in their order. All that
    depends on them is adapted, upstream and downstream: weights under their own names, norms,
    additions, concatenations, the features after a flatten, groups of depthwise convolutions::

        smaller = passes.resize(gm, "conv1", 1, range(12))
        print(smaller.meta["resized"])     # every weight and value with its shapes

    ``node`` is a node, its name, or a query that finds one; it may be a weight. ``gm`` is left as it
    was; ``smaller.undo()`` reverts the change. In general the smaller program computes other results,
    unless the removed values were zero.

    Raises ArgumentError if positions do not exist or are not in order, if the axis is tied to an
    input, a result or an operation that needs all of it, if removing the positions would remove more
    of the axis, and if groups of a convolution would become unequal."""
    made = as_module(gm).copy()
    place = node_at(made, node)
    axis = axis_of(place, axis, "resize it")
    slot, graph = Slot(place, axis), axis_graph(made)
    size, kept = parts_of(place)[0].shape[axis], np.array(list(keep), dtype=np.int64)
    if isinstance(size, int) and (kept.size == 0 or (np.diff(kept) <= 0).any() or kept[0] < 0 or kept[-1] >= size):
        raise ArgumentError(
            f"{slot} has positions 0 to {size - 1}; keep= must name some of them in ascending order, "
            f"not {kept.tolist()}"
        )
    if not isinstance(size, int):
        kept = np.arange(0)
    groups = graph.groups(slot)
    gone = np.setdiff1d(groups, groups[kept])
    also = np.flatnonzero(np.isin(groups[kept], groups[np.setdiff1d(np.arange(len(groups)), kept)]))
    if not all(graph.reason(int(g)) for g in groups) and also.size:
        raise ArgumentError(
            f"{slot}: position {kept[also[0]]} belongs to one that is removed, because other values "
            f"hold both together; what belongs together: {_together(groups)}"
        )
    remove_groups(made, graph, gone if gone.size else groups[:0], "resize", slot)
    return made


def _together(groups: Array) -> str:
    sets = [np.flatnonzero(groups == g).tolist() for g in dict.fromkeys(groups.tolist())]
    shown = ", ".join("{" + ", ".join(map(str, s)) + "}" for s in sets[:4])
    return shown + (", ..." if len(sets) > 4 else "")


def remove_groups(gm: GraphModule, found: AxisGraph, gone: Array, label: str, at: Slot | None = None) -> None:
    """Remove groups from a module in one transaction. Raises ArgumentError, before anything changes,
    for tied groups, axes that would be empty and convolutions whose groups would differ. If the
    result cannot be typed, the change is reverted."""
    for group in gone:
        reason = found.reason(int(group))
        if reason:
            where = f"{at} cannot change: " if at is not None else ""
            raise ArgumentError(f"{where}{reason}")
    kept = found.kept(gone)
    for slot, positions in kept.items():
        if not positions.size:
            raise ArgumentError(f"nothing would be left of {slot}")
    graph, kept_of = gm.graph, _by_node(kept)
    attributes = {n: _attributes(n, found, kept_of) for n in graph.nodes if n.op == "call_function"}
    sizes = {s: parts_of(s.node)[s.part].shape[s.axis] for s in found.starts}
    before = {n.name: n.type for n in graph.nodes if n.op.startswith("call_")}
    weights: dict[str, tuple[Any, Any]] = {}
    with graph.transaction(label):
        tied: dict[int, Any] = {}  # the new array for an old one, which may be at several paths
        for node in graph.find_nodes(op="get_attr"):
            cuts = {slot.axis: positions for slot, positions in kept_of.get(node, {}).items()}
            if cuts and node.target not in weights:
                value = gm.get_attribute(node.target)
                if id(value) not in tied:
                    tied[id(value)] = value, _cut(value, cuts)
                gm._put(*gm._parent(node.target), tied[id(value)][1])  # readers are typed later
                weights[node.target] = node.type, type_of(tied[id(value)][1])
        for node, new in attributes.items():
            if new:
                graph._store.assign(node, node._args, stored_kwargs({**node._kwargs, **new}))
        try:
            retype(graph, next(iter(graph.nodes)), list(graph.nodes))
        except FxliteError as error:
            raise ArgumentError(f"{label}: the smaller program has no types: {error}") from error
        for slot, old in sizes.items():
            left = len(kept[slot]) if slot in kept else old
            shape = parts_of(slot.node)[slot.part].shape
            if not shapes.equal(shape[slot.axis], left):
                raise ArgumentError(f"{label}: {slot} would be {shape[slot.axis]}, where {left} are left")
    changed = {n.name: n.type for n in graph.nodes if n.name in before}
    nodes = {n: (before[n], t) for n, t in changed.items() if t != before[n]}
    gm.meta["resized"] = Resized(weights, nodes)


def _cut(value: Any, positions: dict[int, Array]) -> Any:
    """The smaller weight."""
    array = np.asarray(value)
    for axis, kept in positions.items():
        array = np.take(array, kept, axis=axis)
    array = np.ascontiguousarray(array)
    is_parameter = isinstance(value, Parameter) and value.is_parameter
    return Parameter(array, value.requires_grad) if is_parameter else array


def _by_node(kept: dict[Slot, Array]) -> dict[Node, dict[Slot, Array]]:
    """The axes that shrink, with the positions that remain, of each node."""
    found: dict[Node, dict[Slot, Array]] = {}
    for slot, positions in kept.items():
        found.setdefault(slot.node, {})[slot] = positions
    return found


def _attributes(node: Node, found: AxisGraph, kept_of: dict[Node, dict[Slot, Array]]) -> dict[str, Any]:
    """The arguments of a call that change with its axes."""
    old, own = node._kwargs, list(kept_of.get(node, ()))
    read = [slot for n in node.all_input_nodes for slot in kept_of.get(n, ())]
    new: dict[str, Any] = {}
    if not own and not read:
        return new
    kept = {slot: positions for n in (node, *node.all_input_nodes) for slot, positions in kept_of.get(n, {}).items()}
    if "groups" in old and old["groups"] > 1:
        new["groups"] = _groups_of(node, found, kept)
    if "num_groups" in old:
        _require_equal(node, Slot(node, 1), old["num_groups"], found, kept)
    for name in ("shape", "normalized_shape"):
        if name in old and own:
            rank = len(parts_of(node)[0].shape)
            shape = list(old[name])
            for slot in own:
                at = slot.axis - (rank - len(shape))
                if at >= 0 and shape[at] == found.sizes[slot]:
                    shape[at] = len(kept[slot])
            new[name] = tuple(shape)
    if "sizes" in old:
        axis = old.get("axis", node.target.defaults.get("axis", 0)) % parts_of(node)[0].rank
        slots = [Slot(node, axis, part) for part in range(len(parts_of(node)))]
        new["sizes"] = tuple(len(kept[s]) if s in kept else found.sizes[s] for s in slots)
    if node.target.starts_at == "start" and read:
        new |= _bounds(node, read, kept, found)
    return {name: value for name, value in new.items() if old.get(name) != value}


def _bounds(node: Node, read: list[Slot], kept: dict[Slot, Array], found: AxisGraph) -> dict[str, Any]:
    """Start and stop of a slice, counted in the remaining positions."""
    rank = parts_of(node)[0].rank
    axis = node.arguments.get("axis", node.target.defaults.get("axis", 0)) % rank
    new = {}
    for slot in read:
        for name in ("start", "stop") if slot.axis == axis else ():
            value = node._kwargs.get(name)
            if isinstance(value, int):
                position = value + found.sizes[slot] if value < 0 else value
                new[name] = int(np.searchsorted(kept[slot], position))
    return new


def _groups_of(node: Node, found: AxisGraph, kept: dict[Slot, Array]) -> int:
    """How many groups of a convolution remain."""
    groups = int(node._kwargs["groups"])
    x, weight = node.args[0], node.args[1]
    channel = channel_axis(node)
    if found.sizes[Slot(weight, 1)] == 1:
        narrow = node if node.target.transposes else x
        slot = Slot(narrow, channel)
        return len(kept[slot]) if slot in kept else groups
    for each in (x, node):
        _require_equal(node, Slot(each, channel), groups, found, kept)
    return groups


def _require_equal(node: Node, slot: Slot, groups: int, found: AxisGraph, kept: dict[Slot, Array]) -> None:
    if slot not in kept:
        return
    counts = np.bincount(kept[slot] // (found.sizes[slot] // groups), minlength=groups)
    if (counts != counts[0]).any():
        raise ArgumentError(
            f"{node.describe()} has {groups} groups, of which {counts.min()} to {counts.max()} "
            f"channels of axis {slot.axis} would be left: take the same number from each"
        )


# -- pruning ---------------------------------------------------------------------------------------
#: Importance of the numbers of a weight, by name: the sum of this over a group.
MEASURES: dict[str, Callable[[Array], Array]] = {"l1": np.abs, "l2": np.square}

#: A measure: the importance of each number of a weight, as an array of its shape.
Measure = str | Callable[[Array], Array]


@graph_pass(exactness="changes", inside=False)
def prune_channels(gm: GraphModule, amount: float = 0.3, by: Measure = "l1", where: Any = None) -> None:
    """Remove the least important channels of convolutions, and everything that depends on them.

    Each convolution loses ``amount`` (0 to 1) of its channels, rounded down: the filters, and what
    depends on them in norms, residual additions, concatenations, depthwise and grouped convolutions
    and linear layers after a flatten. Weights keep their names; ``meta["resized"]`` of the result
    records what happened to each.

    ``by`` is "l1" or "l2", or a function that gives the importance of each number of a weight; that
    of a channel is the sum over all its weights with more than one axis. ``where`` names the calls
    whose channels (axis 1; for linear layers the last axis) are pruned, by default all convolutions.
    Layers whose channels are added up lose the same ones. Channels that are tied to an input or a
    result stay, and the ledger says why."""
    nodes = [n for n in gm.graph.nodes if _is_convolution(n)] if where is None else nodes_at(gm, where)
    slots = []
    for node in nodes:
        parts = parts_of(node)
        if len(parts) != 1 or parts[0].rank < 2:
            raise ArgumentError(f"{node.describe()} has no axis of channels, or no known type")
        last = parts[0].rank - 1
        slots.append(Slot(node, channel_axis(node) if _is_convolution(node) else last))
    _prune(gm, slots, amount, by, "prune_channels")


@graph_pass(exactness="changes", inside=False)
def prune_heads(gm: GraphModule, amount: float = 0.25, by: Measure = "l1", where: Any = None) -> None:
    """Remove the least important heads of attention.

    Each attention loses ``amount`` (0 to 1) of its heads, rounded down: their rows of the
    projections of queries, keys and values and their columns of the output projection. The size of a
    head and the width of the model stay. ``by`` is as in :func:`prune_channels`. ``where`` names
    calls of scaled_dot_product_attention, by default all (:func:`fuse_attention` makes them from
    products and a softmax). Heads stay if several queries share a key; the ledger lists them."""
    attention = gm.graph.find_nodes(op="call_function", target="scaled_dot_product_attention")
    nodes = attention if where is None else nodes_at(gm, where)
    slots = []
    for node in nodes:
        if node not in attention or parts_of(node)[0].rank < 3:
            raise ArgumentError(
                f"{node.describe()} is not a scaled_dot_product_attention with heads; "
                "passes.fuse_attention makes such calls"
            )
        slots.append(Slot(node, parts_of(node)[0].rank - 3))
    _prune(gm, slots, amount, by, "prune_heads")


def _is_convolution(node: Node) -> bool:
    return node.op == "call_function" and "groups" in node.target.signature.parameters


def _prune(gm: GraphModule, slots: list[Slot], amount: float, by: Measure, label: str) -> None:
    if not 0 < amount < 1:
        raise ArgumentError(f"amount= is the share to remove, between 0 and 1, not {amount}")
    if isinstance(by, str) and by not in MEASURES:
        raise ArgumentError(f"by= is {' or '.join(MEASURES)} or a function, not {by!r}")
    found = axis_graph(gm)
    importance = _importance(gm, found, MEASURES[by] if isinstance(by, str) else by)
    gone: list[int] = []
    reasons: dict[Node, str] = {}
    divided = _divided(gm, found, slots)
    for together in _coupled(found, slots):
        groups = list(dict.fromkeys(int(g) for slot in together for g in found.groups(slot)))
        free = [g for g in groups if not found.reason(g)]
        if len(free) < len(groups):
            reason = next(found.reason(g) for g in groups if found.reason(g))
            reasons |= {slot.node: reason for slot in together}
            continue
        cells: dict[Any, list[int]] = {}
        for group in groups:
            cells.setdefault(divided.get(group), []).append(group)
        for cell in cells.values():
            ranked = sorted(cell, key=lambda g: (importance[g], g))
            gone += ranked[: min(math.floor(amount * len(cell) + 1e-9), len(cell) - 1)]
    for node, reason in reasons.items():
        refuse(gm, label, node, f"it stays whole: {reason}")
    if gone:
        remove_groups(gm, found, np.array(gone), label)


def _importance(gm: GraphModule, found: AxisGraph, measure: Callable[[Array], Array]) -> Array:
    """The importance of each group, by its label."""
    total = np.zeros(len(found.labels))
    seen: set[str] = set()
    for node in gm.graph.find_nodes(op="get_attr"):
        value = np.asarray(gm.get_attribute(node.target))
        if node.target in seen or value.ndim < 2 or value.dtype.kind not in "fV":
            continue
        seen.add(node.target)
        numbers = np.asarray(measure(value.astype(np.float64)))
        if numbers.shape != value.shape:
            raise ArgumentError(f"by= must give an array of the weight's shape {value.shape}, not {numbers.shape}")
        for axis in range(value.ndim):
            others = tuple(a for a in range(value.ndim) if a != axis)
            np.add.at(total, found.groups(Slot(node, axis)), numbers.sum(axis=others))
    return total


def _coupled(found: AxisGraph, slots: Sequence[Slot]) -> list[list[Slot]]:
    """Sets of axes that share a group."""
    holders: dict[int, list[Slot]] = {}
    for slot in slots:
        for group in set(found.groups(slot).tolist()):
            holders.setdefault(group, []).append(slot)
    sets: list[list[Slot]] = []
    seen: set[Slot] = set()
    for slot in slots:
        if slot in seen:
            continue
        seen.add(slot)
        together = [slot]
        for member in together:
            for group in found.groups(member).tolist():
                more = [other for other in holders.pop(group, ()) if other not in seen]
                seen.update(more)
                together += more
        sets.append(together)
    return sets


def _divided(gm: GraphModule, found: AxisGraph, slots: Sequence[Slot]) -> dict[int, tuple[Any, ...]]:
    """Which part of a convolution or norm, which divides channels into groups, holds a group of the axes: those
    held alike are a cell. Each cell must lose the same number, so that all parts keep equally many."""
    wanted = np.unique([group for slot in slots for group in found.groups(slot)])
    cells: dict[int, tuple[Any, ...]] = {}
    for node in gm.graph.find_nodes(op="call_function"):
        count = node.arguments.get("groups", node.arguments.get("num_groups"))
        if not isinstance(count, int) or count < 2:
            continue
        channel = channel_axis(node)
        ends = [Slot(node.args[0], channel), Slot(node, channel)]
        if any(found.sizes[slot] == count for slot in ends):
            continue  # groups of one channel are removed as a whole
        for slot in ends:
            labels = found.groups(slot)
            if not np.isin(labels, wanted).any():
                continue
            part = np.arange(len(labels)) // (len(labels) // count)
            for group in np.intersect1d(labels, wanted).tolist():
                cells[group] = (*cells.get(group, ()), slot, *part[labels == group].tolist())
    return cells


# -- examples --------------------------------------------------------------------------------------
class _TwoConvolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 2, 1)

    def forward(self, x: Any) -> Any:
        return self.second(np.maximum(self.first(x), 0))


prune_channels.example(_TwoConvolutions, "one channel of four goes; the results stay two", x="f32[B,1,8,8]")
prune_channels.counterexample(
    lambda x, w: F.conv2d(x, w), "its channels are a result", x="f32[B,1,8,8]", w="f32[4,1,3,3]"
)


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 4, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.attention(x, x, x, need_weights=False)[0]


prune_heads.example(_Attention, "one head of four goes", x="f32[B,5,8]")
prune_heads.counterexample(
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
    "the heads are inputs",
    q="f32[B,4,5,8]",
    k="f32[B,4,5,8]",
    v="f32[B,4,5,8]",
)
