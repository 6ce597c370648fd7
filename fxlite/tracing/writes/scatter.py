"""``y[index] = values`` with integer arrays, traced: which element of the values, if any, ends up
at each place of ``y``.

In: a subscript taken apart (:class:`fxlite.ops.subscript.Part`). Out: a write of ``np.where`` or of
``take`` on the present value and the new ones side by side. Of several values for one place the
last one counts, as in NumPy; an index that is out of range is an error, as there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.errors import PositionError, ShapeError
from fxlite.ops.op import broadcast_shapes, lookup
from fxlite.tracing.proxy import Proxy
from fxlite.tracing.writes.aliasing import write
from fxlite.tracing.writes.in_place import _as_proxy, _chosen, _here, prepared
from fxlite.types import shapes
from fxlite.types.tensor_type import TensorType

if TYPE_CHECKING:
    from fxlite.graph.graph import Node
    from fxlite.ops.subscript import Part
    from fxlite.tracing.tracer import Tracer


def set_indexed(y: Proxy, part: Part, value: Any, what: str) -> None:
    """Write ``value`` where the arrays of ``part`` point to."""
    tracer, x, axes = y.tracer, part.x, part.axes
    sizes = [x.kind.shape[a] for a in axes]
    others = [a for a in range(x.kind.rank) if a not in axes]
    rest = tuple(x.kind.shape[a] for a in others)
    index_shapes = [_shape(a) for a in part.arrays]
    try:
        common = broadcast_shapes(*index_shapes)
    except ShapeError as error:
        raise tracer._located(error, _here()) from None
    positions = _positions(tracer, part.arrays, sizes, common)
    if [*axes, *others] != [*range(x.kind.rank)]:
        x = lookup("permute")(x, (*axes, *others))
    count = shapes.product(sizes)
    if len(axes) > 1:
        x = lookup("reshape")(x, (count, *rest))
    # the values with the axes of the index first, or without them where they are all alike
    at = part.target
    result = TensorType((*rest[:at], *common, *rest[at:]), y.type.dtype)
    new = prepared(tracer, result, value, what)
    alike = _alike(new, len(common), len(rest) - at)
    if alike:
        new = _without(tracer, new, len(common), len(rest) - at)
    else:
        full = lookup("expand")(tracer.proxy(new), result.shape)
        made = range(at, at + len(common))
        order = (*made, *(a for a in range(result.rank) if a not in made))
        if [*order] != sorted(order):
            full = lookup("permute")(full, order)
        new = lookup("reshape")(full, (shapes.product(common), *rest)).node

    def changed(node: Node) -> Node:
        return _changed(tracer, node, positions, count, new, alike, len(rest))

    write(y, changed, x.steps, what)


def _shape(array: Any) -> tuple[Any, ...]:
    return array.type.shape if isinstance(array, Proxy) else np.shape(array)


def _positions(tracer: Tracer, arrays: list[Any], sizes: list[Any], common: Any) -> Any:
    """Which elements of the indexed axes, taken as one, are written: an array where that is known,
    else a proxy; of rank 1, or 0 for one element."""
    if all(not isinstance(a, Proxy) for a in arrays) and all(type(s) is int for s in sizes):
        flat = np.zeros((), np.int64)
        for array, size in zip(arrays, sizes):
            index = np.asarray(array).astype(np.int64)
            if index.size and not (-size <= index.min() and index.max() < size):
                wrong = index[(index < -size) | (index >= size)].flat[0]
                error = PositionError(f"index {wrong} is out of range for an axis of size {size}")
                raise tracer._located(error, _here())
            flat = flat * size + np.where(index < 0, index + size, index)
        return flat.reshape(-1) if flat.ndim else flat
    total: Any = None
    for array, size in zip(arrays, sizes):
        places = lookup("arange")(0, shapes.for_user(size), 1, "i64")
        if not isinstance(array, Proxy):
            array = _as_proxy(tracer, tracer.create_arg(np.asarray(array)))
        index = lookup("take")(_traced(tracer, places), array)  # checks the range, counts from 0
        if total is None:
            total = index
        else:
            total = total * shapes.for_user(size) + index
    return lookup("reshape")(total, (shapes.product(common),)) if common else total


def _traced(tracer: Tracer, value: Any) -> Proxy:
    return value if isinstance(value, Proxy) else tracer.proxy(tracer.create_arg(value))


def _alike(new: Any, made: int, after: int) -> bool:
    """True if the values do not vary along the axes that the index makes."""
    kind = getattr(new, "type", None)
    if kind is None or not made:
        return True
    own = kind.shape[: kind.rank - after][-made:] if kind.rank > after else ()
    return all(type(d) is int and d == 1 for d in own)


def _without(tracer: Tracer, new: Any, made: int, after: int) -> Any:
    """The values without the axes of size 1 that stand for those of the index."""
    kind = getattr(new, "type", None)
    if kind is None or kind.rank <= after:
        return new
    before = kind.shape[: kind.rank - after]
    kept = (*before[: max(len(before) - made, 0)], *kind.shape[kind.rank - after :])
    return lookup("reshape")(tracer.proxy(new), kept).node if kept != kind.shape else new


def _changed(
    tracer: Tracer, node: Node, positions: Any, count: Any, new: Any, alike: bool, trailing: int
) -> Node:
    """``node`` with ``new`` at ``positions`` of its first axis (of ``count`` elements)."""
    places = lookup("arange")(0, shapes.for_user(count), 1, "i64")
    ones = (1,) * trailing
    constant = not isinstance(positions, Proxy)
    number = np.size(positions) if constant else None
    if not constant and positions.type.rank:
        number = positions.type.shape[0]
    if alike:
        if constant:
            mask: Any = np.isin(np.arange(count), positions).reshape(count, *ones)
        else:
            hits = _traced(tracer, places) == positions if not positions.type.rank else (
                (lookup("unsqueeze")(_traced(tracer, places), 1) == positions).any(axis=1)
            )  # fmt: skip
            mask = lookup("reshape")(hits, (count, *ones)) if ones else hits
        return _chosen(tracer, mask, new, node)
    if constant:
        source: Any = np.arange(count)
        # of equal positions the last one stays
        source[positions] = count + np.arange(np.size(positions))
    else:
        hits = lookup("unsqueeze")(_traced(tracer, places), 1) == positions
        order = lookup("arange")(0, shapes.for_user(number), 1, "i64")
        last = lookup("where")(hits, _traced(tracer, order), -1)
        last = lookup("pad")(last, ((0, 0), (0, 1)), value=-1).max(axis=1)  # there may be none
        source = lookup("where")(last >= 0, last + shapes.for_user(count), _traced(tracer, places))
    joined = lookup("concat")((tracer.proxy(node), tracer.proxy(new)), axis=0)
    taken: Proxy = lookup("take")(joined, source, axis=0)
    return taken.node
