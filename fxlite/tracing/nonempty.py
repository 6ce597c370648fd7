"""Slices of named axes that are taken to be not empty, as guards.

The rule of ``slice`` gives ``x[1:]`` the size ``T - 1`` and ``x[-1:]`` the size 1, where NumPy's
answer for an empty axis is 0 (see :mod:`fxlite.ops.slicing`). That is true from one element on, so
a program that slices this way requires it, and a call with fewer is refused with the line.

In: a call of ``slice`` as the program made it. Out: guards for the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fxlite import shapes
from fxlite.guards import Guard
from fxlite.location import Location
from fxlite.ops.slicing import slice_bounds

#: A size of the other named dims.
_SOME = 4


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
