"""Structured pruning: the least important channels and heads go, with all that depends on them.

In: a module, an amount, a measure of importance. Out: a smaller module under the same weight names.
What goes together is a group of the graph of axes; its importance is that of all numbers of the
weights that it holds (H. Li et al., "Pruning Filters for Efficient ConvNets", ICLR 2017, for one
layer; G. Fang et al., "DepGraph", CVPR 2023, for groups).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from fxlite import nn
from fxlite.base.errors import ArgumentError
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.nn import functional as F
from fxlite.passes.base import graph_pass
from fxlite.passes.ledger import refuse
from fxlite.passes.surgery.axes import Array, AxisGraph, Slot, parts_of
from fxlite.passes.surgery.axis_rules import axis_graph
from fxlite.passes.surgery.joining import channel_axis
from fxlite.passes.surgery.places import nodes_at
from fxlite.passes.surgery.resize import remove_groups

#: Importance of the numbers of a weight, by name: the sum of this over a group.
MEASURES: dict[str, Callable[[Array], Array]] = {"l1": np.abs, "l2": np.square}

#: A measure: the importance of each number of a weight, as an array of its shape.
Measure = str | Callable[[Array], Array]


@graph_pass(exactness="changes", inside=False)
def prune_channels(gm: GraphModule, amount: float = 0.3, by: Measure = "l1", where: Any = None) -> None:
    """Take out the least important channels of convolutions, and all that depends on them.

    Of each convolution go ``amount`` (0 to 1) of its channels, rounded down: the filters, and what
    depends on them in norms, residual additions, concatenations, depthwise and grouped convolutions
    and linear layers behind a flatten. Weights keep their names; ``meta["resized"]`` of the result
    says what became of each.

    ``by``: "l1" or "l2", or a function that gives the importance of each number of a weight; that
    of a channel is the sum over all weights of more than one axis. ``where``: the calls whose
    channels (axis 1; of linear layers the last axis) are pruned, by default all convolutions.
    Layers whose channels are added up lose the same ones. Channels that are tied to an input or a
    result stay, and the ledger says why."""
    if where is None:
        nodes = [n for n in gm.graph.nodes if _is_convolution(n)]
    else:
        nodes = nodes_at(gm, where)
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
    """Take out the least important heads of attention.

    Of each attention go ``amount`` (0 to 1) of its heads, rounded down: their rows of the
    projections of queries, keys and values and their columns of the output projection. The size of
    a head and that of the model stay. ``by`` as in
    :func:`prune_channels`. ``where``: calls of scaled_dot_product_attention, by default all
    (:func:`fuse_attention` makes them of products and a softmax). Heads stay where several queries
    share a key, and the ledger says so."""
    attention = gm.graph.find_nodes(op="call_function", target="scaled_dot_product_attention")
    nodes = attention if where is None else nodes_at(gm, where)
    slots = []
    for node in nodes:
        if node not in attention or parts_of(node)[0].rank < 3:
            raise ArgumentError(
                f"{node.describe()} is no scaled_dot_product_attention with heads; "
                "passes.fuse_attention makes such calls"
            )
        slots.append(Slot(node, parts_of(node)[0].rank - 3))
    _prune(gm, slots, amount, by, "prune_heads")


def _is_convolution(node: Node) -> bool:
    return node.op == "call_function" and "groups" in node.target.signature.parameters


def _prune(gm: GraphModule, slots: list[Slot], amount: float, by: Measure, label: str) -> None:
    if not 0 < amount < 1:
        raise ArgumentError(f"amount= is the share that goes, between 0 and 1, not {amount}")
    if isinstance(by, str) and by not in MEASURES:
        raise ArgumentError(f"by= is {' or '.join(MEASURES)} or a function, not {by!r}")
    found = axis_graph(gm)
    importance = _importance(gm, found, MEASURES[by] if isinstance(by, str) else by)
    gone: list[int] = []
    reasons: dict[Node, str] = {}
    for together in _coupled(found, slots):
        groups = list(dict.fromkeys(int(g) for slot in together for g in found.groups(slot)))
        free = [g for g in groups if not found.reason(g)]
        if len(free) < len(groups):
            reason = next(found.reason(g) for g in groups if found.reason(g))
            reasons |= {slot.node: reason for slot in together}
            continue
        for cell in _cells(gm, found, groups):
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


def _coupled(found: AxisGraph, slots: Iterable[Slot]) -> list[list[Slot]]:
    """Axes that share a group, together."""
    sets: list[tuple[set[int], list[Slot]]] = []
    for slot in slots:
        groups, members = set(found.groups(slot).tolist()), [slot]
        apart = []
        for other, others in sets:
            if groups.isdisjoint(other):
                apart.append((other, others))
            else:
                groups, members = groups | other, [*others, *members]
        sets = [*apart, (groups, members)]
    return [members for _, members in sets]


def _cells(gm: GraphModule, found: AxisGraph, groups: list[int]) -> list[list[int]]:
    """The groups in cells of which each loses the same number: of what is divided in groups by a
    convolution or norm, each must have as much left as the others."""
    wanted = np.array(groups)
    cells: dict[int, tuple[Any, ...]] = dict.fromkeys(groups, ())
    for node in gm.graph.find_nodes(op="call_function"):
        count = node.arguments.get("groups", node.arguments.get("num_groups"))
        if not isinstance(count, int) or count < 2:
            continue
        channel = channel_axis(node)
        ends = [Slot(node.args[0], channel), Slot(node, channel)]
        if any(found.sizes[slot] == count for slot in ends):
            continue  # groups of one channel go as a whole
        for slot in ends:
            labels = found.groups(slot)
            if not np.isin(labels, wanted).any():
                continue
            part = np.arange(len(labels)) // (len(labels) // count)
            for group in np.intersect1d(labels, wanted):
                cells[int(group)] += (slot, *part[labels == group].tolist())
    found_cells: dict[tuple[Any, ...], list[int]] = {}
    for group, cell in cells.items():
        found_cells.setdefault(cell, []).append(group)
    return list(found_cells.values())


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
