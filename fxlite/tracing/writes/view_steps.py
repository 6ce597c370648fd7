"""Steps from a value to a view of it, undone: where a write into a view ends up in the value.

In: view ops with their attributes, and the types between them. Out: the call of an op that undoes
one of them (:func:`undo_step`), and runs of slices and selects as one part of the value, which
``slice_update`` writes at once (:func:`folded`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fxlite.ops.op import Op, lookup, normalize_axis
from fxlite.types import shapes
from fxlite.types.tensor_type import TensorType

#: A slice of a slice of ... is written in one step; longer chains in several.
_MOST_FOLDED = 8


def undo_step(
    op: Op, attributes: Mapping[str, Any], before: TensorType, new: Any
) -> tuple[Op, tuple[Any, ...], dict[str, Any]]:
    """The call that gives the value of type ``before`` of which ``op`` gives ``new``."""
    if op.shares_memory == "contiguous":
        return lookup("reshape"), (new,), {"shape": before.shape}
    if op.name == "permute":
        axes = [normalize_axis(a, before.rank) for a in attributes["axes"]]
        inverse = tuple(axes.index(a) for a in range(before.rank))
        return op, (new,), {"axes": inverse}
    assert op.inverse is not None, op
    rank = before.rank + max(op.added_axes, 0)
    axis = normalize_axis(attributes["axis"], rank)
    return lookup(op.inverse), (new,), {"axis": axis}


def folded(
    ops: Sequence[tuple[Op, Mapping[str, Any]]], types: Sequence[Any], end: int
) -> tuple[int, tuple[Any, ...]]:
    """The longest run of slices and selects that ends at level ``end`` and is one part of the value
    at level ``first``: (first, ``at`` for slice_update); first is ``end`` if there is none."""
    first, at = end, ()
    while first and end - first < _MOST_FOLDED and ops[first - 1][0].starts_at:
        found = _part(ops[first - 1 : end], types[first - 1 : end])
        if found is None:
            break
        first, at = first - 1, found
    return first, at


def _part(
    ops: Sequence[tuple[Op, Mapping[str, Any]]], types: Sequence[TensorType]
) -> tuple[Any, ...] | None:
    """Slices and selects, one after the other, as one subscript of the value of type ``types[0]``;
    None where the bounds cannot be added up."""
    from fxlite.ops.slicing import slice_bounds

    whole = (0, None, 1)
    at: list[Any] = [whole] * types[0].rank
    axes = [*range(types[0].rank)]  # which axis of the value each axis of the part is
    for (op, attributes), before in zip(ops, types):
        position = normalize_axis(attributes["axis"], before.rank)
        axis, size = axes[position], before.shape[position]
        start, _, step = at[axis]
        if op.name == "select":
            index = attributes["index"]
            if at[axis] != whole:
                if type(index) is int and index < 0:
                    index = shapes.normalize(size + index)
                index = shapes.normalize(start + index * step)
            at[axis] = index
            del axes[position]
            continue
        bounds = (attributes.get("start", 0), attributes.get("stop"), attributes.get("step", 1))
        if at[axis] == whole:
            at[axis] = bounds
            continue
        first, last, length = slice_bounds(size, *bounds)
        ints = all(type(v) is int for v in (start, first, last, length))
        if not ints and (step != 1 or bounds[2] != 1):
            return None
        begin = shapes.normalize(start + first * step)
        end = shapes.normalize(start + last * step)
        if ints:
            end = begin if length == 0 else begin + (length - 1) * step * bounds[2] + 1
        at[axis] = (begin, end, step * bounds[2])
    return tuple(at)
