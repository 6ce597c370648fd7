"""Strides: where NumPy would put a value's elements, and whether a reshape of it is a view.

In: the nodes and view ops of a traced program. Out: strides in elements, as dims, or None where
they are not known. Inputs are taken to be C-contiguous, as compiled code makes them. The results of
ops are C-contiguous where all operands are in C order, because NumPy's ufuncs keep the order of
their operands; anything else is "not known", and never guessed.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fxlite.graph.graph import Node
from fxlite.ops.op import Op, normalize_axis
from fxlite.types import shapes
from fxlite.types.shapes import Dim, Shape
from fxlite.types.tensor_type import TensorType


@dataclass(frozen=True)
class Layout:
    """Strides in elements, one for each axis. ``in_order``: positive, and none smaller than the
    next (axes of one element aside), so that what NumPy computes from the value is
    C-contiguous."""

    strides: Shape
    in_order: bool = True


def contiguous(shape: Sequence[Dim]) -> Layout:
    """C order without gaps."""
    strides: list[Dim] = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = shapes.normalize(strides[axis + 1] * shape[axis + 1])
    return Layout(tuple(strides))


def copied(layout: Layout | None, shape: Sequence[Dim]) -> Layout | None:
    """Layout of a copy, in which NumPy keeps the order of axes and leaves no gaps."""
    if layout is None or layout.in_order:
        return None if layout is None else contiguous(shape)
    if not all(type(v) is int and v for v in (*layout.strides, *shape)):
        return None
    order = sorted(range(len(shape)), key=lambda axis: -abs(int(layout.strides[axis])))
    dense = contiguous([shape[axis] for axis in order]).strides
    return Layout(tuple(dense[order.index(axis)] for axis in range(len(shape))), False)


def view_layout(layout: Layout | None, op: Op, attributes: Mapping[str, Any], old: Any, new: Any) -> Layout | None:
    """Layout of ``op`` applied to a value of type ``old`` with that layout; ``new``: the result's
    type. None where it is not known, or where the result is a copy."""
    if layout is None or not isinstance(old, TensorType) or not isinstance(new, TensorType):
        return None
    if op.shares_memory == "contiguous":
        return reshaped(layout, old.shape, new.shape)[1]
    strides, in_order = list(layout.strides), layout.in_order
    if op.name == "permute":
        axes = attributes["axes"]
        return Layout(tuple(strides[a] for a in axes), in_order and [*axes] == sorted(axes))
    if op.name == "expand":
        extra = new.rank - old.rank
        kept = [s if shapes.equal(a, b) else 0 for s, a, b in zip(strides, old.shape, new.shape[extra:])]
        return Layout((0,) * extra + tuple(kept), in_order)
    rank = old.rank + max(op.added_axes, 0)
    axis = normalize_axis(attributes["axis"], rank)
    if op.name == "slice":
        strides[axis] = shapes.normalize(strides[axis] * attributes.get("step", 1))
    elif op.name == "flip":
        strides[axis], in_order = shapes.normalize(-strides[axis]), False
    elif op.added_axes > 0:
        strides.insert(axis, 0)
    elif op.added_axes < 0 or op.name == "take":  # at a number
        del strides[axis]
    else:
        return None
    return Layout(tuple(strides), in_order)


def reshaped(layout: Layout | None, old: Shape, new: Shape) -> tuple[bool | None, Layout | None]:
    """(True if NumPy's reshape is a view, False if a copy, None if not known; the view's layout).

    The rule is NumPy's (``_attempt_nocopy_reshape``): axes of one element aside, each group of axes
    that is merged or cut must be contiguous in itself."""
    if layout is None:
        return None, None
    before = [(d, s) for d, s in zip(old, layout.strides) if not _is(d, 1)]
    after = [d for d in new if not _is(d, 1)]
    named = bool(shapes.names((*old, *new)))
    if any(_is(d, 0) for d in old):
        return True, contiguous(new)
    made: list[Dim] = []
    start = 0
    product_old: Dim = 1
    product_new: Dim = 1
    pending: list[Dim] = []  # sizes of the new axes of the group
    used = 0
    for size in after:
        product_new = shapes.normalize(product_new * size)
        pending.append(size)
        while used < len(before) and not shapes.equal(product_old, product_new):
            if not named and product_old > product_new:
                break
            product_old = shapes.normalize(product_old * before[used][0])
            used += 1
        if not shapes.equal(product_old, product_new):
            if named:
                return None, None
            continue
        group = before[start:used]
        for (_, outer), (inner_size, inner) in itertools.pairwise(group):
            if not shapes.equal(outer, inner * inner_size):
                return (None if named else False), None
        stride = group[-1][1]
        strides: list[Dim] = []
        for part in reversed(pending):
            strides.insert(0, stride)
            stride = shapes.normalize(stride * part)
        made += strides
        start, pending = used, []
    rest = iter(made)
    strides_new = tuple(0 if _is(d, 1) else next(rest, 0) for d in new)
    return True, Layout(strides_new, layout.in_order)


def _is(dim: Dim, value: int) -> bool:
    return type(dim) is int and dim == value


def node_layout(node: Node, known: Mapping[Node, Layout | None], found: dict[Node, Layout | None]) -> Layout | None:
    """Layout of the array that the program has where the graph has ``node``. ``known``: nodes that
    stand for memory with another layout than their op would give; ``found``: answers so far, added
    to."""
    stack = [node]
    while stack:  # no recursion: graphs may be deep
        current = stack[-1]
        if current in found:
            stack.pop()
            continue
        if current in known:
            found[current] = known[current]
            continue
        missing = [n for n in current.all_input_nodes if n not in found]
        if missing and current.op == "call_function":
            stack += missing
            continue
        found[current] = _layout(current, found)
    return found[node]


def _layout(node: Node, known: Mapping[Node, Layout | None]) -> Layout | None:
    kind = node.type
    if not isinstance(kind, TensorType) or node.op == "call_module":
        return None
    if node.op != "call_function":
        return contiguous(kind.shape)
    inputs = node.all_input_nodes
    if node.target.kind == "view" and len(inputs) == 1 and node.target.shares_memory:
        return view_layout(known[inputs[0]], node.target, node.kwargs, inputs[0].type, kind)
    if sum(not _is(size, 1) for size in kind.shape) < 2:
        return contiguous(kind.shape)  # memory of its own, with one order only
    if node.target.any_order:
        return None
    layouts = [known[n] for n in inputs]
    if all(found is not None and found.in_order for found in layouts):
        return contiguous(kind.shape)
    return None
