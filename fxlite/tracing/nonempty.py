"""Calls that need elements: slices of named axes that are taken to be not empty, and reductions
without an identity.

The rule of ``slice`` gives ``x[1:]`` the size ``T - 1`` and ``x[-1:]`` the size 1, where NumPy's
answer for an empty axis is 0 (see :mod:`fxlite.ops.slicing`). That is true from one element on, so
a program that slices this way requires it, and a call with fewer is refused with the line.

The largest of no values does not exist, nor does its position: NumPy raises an error, and loops
would give the value they start from. An axis of size 0 is refused while tracing, a named one is a
guard.

In: a call of an op as the program made it. Out: guards for the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fxlite import shapes
from fxlite.errors import ShapeError
from fxlite.guards import Guard
from fxlite.location import Location
from fxlite.op import Op
from fxlite.ops.slicing import slice_bounds
from fxlite.types import TensorType

#: A size of the other named dims.
_SOME = 4


def element_guards(op: Op, types: Mapping[str, Any], place: Location | None) -> list[Guard]:
    """``N >= 1`` for the axes that a call of ``op`` reduces, where it has no value for none. Raises
    ShapeError for an axis without elements."""
    if any(not isinstance(t, (TensorType, int, float)) for t in op.tensors(types)):
        return []
    needed = op.needed_sizes(types)
    if any(type(size) is int and size == 0 for size in needed):
        shown = ", ".join(str(t) for t in op.tensors(types))
        raise ShapeError(
            f"{op.name}({shown}): there is no {op.name} of an axis without elements; make the axis "
            f"longer, or join one with what an empty one is to give"
        )
    return [Guard(s, ">=", 1, place) for s in needed if not shapes.at_least(s, 1)]


def nonempty_guards(arguments: Mapping[str, Any], place: Location | None) -> list[Guard]:
    """What the sizes of a slice's axis must be for its type to be true: ``T >= 1``, or nothing."""
    type = getattr(arguments["x"], "type", None)
    size = None if type is None else type.shape[arguments["axis"]]
    start, stop = arguments.get("start") or 0, arguments.get("stop")
    names = shapes.names(size)
    if size is None or isinstance(size, int) or not shapes.names((start, stop)) <= names:
        return []
    first, last, length = slice_bounds(size, start, stop, arguments.get("step", 1))
    found = []
    for dim in sorted(size.free_symbols, key=str):
        sizes = {name: 0 if name == dim.name else _SOME for name in names}
        real, begin, end, count = shapes.substitute((size, first, last, length), sizes)
        if real >= 0 and (begin < 0 or end > real or count < 0) and not shapes.at_least(dim, 1):
            found.append(Guard(dim, ">=", 1, place))
    return found
