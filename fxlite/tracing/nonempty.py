"""Calls that need elements: slices of named axes, which are assumed not to be empty, and reductions without an
identity.

The rule of ``slice`` gives ``x[1:]`` the size ``T - 1`` and ``x[-1:]`` the size 1, whereas in NumPy both are 0 for an
empty axis (see :mod:`fxlite.ops.slicing`). These sizes are right if there is at least one element. So a program that
slices this way requires it, and a call with fewer raises an error that names the line.

The largest of no values does not exist, nor does its position: NumPy raises an error, while loops would give their
start value. An axis of size 0 raises an error while tracing, and a named axis becomes a guard.

In: a call of an op as the program made it, or a whole graph. Out: guards for the graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fxlite.base.errors import ShapeError
from fxlite.base.location import Location
from fxlite.graph.graph import Graph
from fxlite.ops.op import Op
from fxlite.ops.slicing import cuts_of, slice_bounds
from fxlite.ops.view import as_shape
from fxlite.types import dtypes, shapes
from fxlite.types.dtypes import DType
from fxlite.types.guards import Guard
from fxlite.types.shapes import Dim, decide
from fxlite.types.tensor_type import TensorType

#: The size that is assumed for the other named dims.
_SOME = 4
#: The largest size that is tried as a bound.
_MOST = 1 << 20


def guards_of_call(op: Op, types: Mapping[str, Any], place: Location | None, known: Sequence[Guard]) -> list[Guard]:
    """The guards that a call of ``op`` needs in addition to the ``known`` ones. ``types`` has its bound arguments,
    with types in place of tensors. Raises ShapeError as :func:`element_guards` does."""
    if op.guards == "parts":
        found = nonempty_guards(types, place)
    elif op.guards == "shape":
        found = _guards_of_sizes(types["shape"], place)
        if op.name == "full":
            found += _guards_of_number(types["value"], types["dtype"], place)
        found = [g for g in found if decide(g.left, g.relation, g.right, known) is not True]
    elif op.needs_elements:
        found = element_guards(op, types, place, known)
    else:
        return []
    return [guard for guard in found if guard not in known]


def _guards_of_sizes(shape: Any, place: Location | None) -> list[Guard]:
    """The guards for the sizes of a created array, such as ``B >= 1`` for one with ``B - 1`` rows."""
    found = []
    for size in as_shape(shape):
        if not isinstance(size, int) and not shapes.at_least(size, 0):
            dim, least = _least(size + 1)
            is_bound = dim != size + 1 or str(dim) in shapes.names(size)
            left, right = (dim, least) if is_bound else (size, 0)
            found.append(Guard(left, ">=", right, place))
    return found


def _guards_of_number(value: Any, dtype: DType | None, place: Location | None) -> list[Guard]:
    """The guards for a size that becomes a number, such as ``N <= 127`` for the type i8."""
    if dtype is None or not dtype.is_integer or not shapes.names(value):
        return []
    limits = np.iinfo(dtype.numpy)
    return [
        Guard(value, relation, int(limit), place)
        for relation, limit in (("<=", limits.max), (">=", limits.min))
        if abs(int(limit)) < np.iinfo(np.int64).max
    ]


def element_guards(
    op: Op, types: Mapping[str, Any], place: Location | None, known: Sequence[Guard] = ()
) -> list[Guard]:
    """The guards for the elements that a call of ``op`` needs: ``N >= 1`` for axes that it reduces without an
    identity, and ``H >= 3`` if a window of 3 must fit; none that follow from ``known`` guards. Raises ShapeError for
    an axis without elements."""
    if any(not isinstance(t, (TensorType, *dtypes.NUMBERS)) for t in op.tensors(types)):
        return []
    needed = op.needed_sizes(types)
    if any(type(size) is int and size == 0 for size in needed):
        shown = ", ".join(str(t) for t in op.tensors(types))
        raise ShapeError(
            f"{op.name}({shown}): {op.name} is not defined for an axis without elements; make the axis "
            f"longer, or join it with the value that an empty axis should give"
        )
    found: list[Guard] = []
    for size in needed:
        dim, least = _least(size)
        if decide(dim, ">=", least, (*known, *found)) is not True:
            found.append(Guard(dim, ">=", least, place))
    return found


def missing_guards(graph: Graph) -> list[Guard]:
    """The guards that calls in a graph need and that the graph lacks. A traced graph has them; one that was edited,
    decomposed or read from a file may not, and loops of compiled code would then give their start values, or read out
    of bounds. Raises ShapeError as :func:`element_guards` does."""
    guards = list(graph.guards)
    for node in graph.find_nodes(op="call_function"):
        op = node.target
        if op.guards or op.needs_elements:
            types = op.map_tensors(lambda value: getattr(value, "type", value), node.arguments)
            guards += guards_of_call(op, types, node.loc, guards)
    return guards[len(graph.guards) :]


def _least(size: Dim) -> tuple[Dim, int]:
    """``size >= 1`` as a bound of its only named dim, if there is exactly one and ``size`` grows with it."""
    free = sorted(shapes.names(size))
    if len(free) != 1 or str(size) == free[0]:
        return size, 1

    def holds(value: int) -> bool:
        return bool(shapes.substitute(size, {free[0]: value}) >= 1)

    high = 1
    while not holds(high):
        high *= 2
        if high > _MOST:
            return size, 1
    low = high // 2  # the condition does not hold here, or it is 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    least = 0 if high == 1 and holds(0) else high
    grows = all(holds(n) == (n >= least) for n in (0, least // 2, least + 1, 2 * least + 1, _MOST))
    return (next(iter(size.free_symbols)), least) if grows else (size, 1)


def nonempty_guards(arguments: Mapping[str, Any], place: Location | None) -> list[Guard]:
    """The guards on the axis of a slice or a split under which its type is right: ``T >= 1``, or none."""
    if not isinstance(type := arguments["x"], TensorType):
        return []
    size = type.shape[arguments.get("axis", 0)]
    if size is None or isinstance(size, int):
        return []
    if "sizes" in arguments:  # a split, whose parts are slices
        cuts = cuts_of(as_shape(arguments["sizes"], "sizes"))
        parts = ({**arguments, "sizes": None, "start": a, "stop": b} for a, b in cuts)
        return [guard for part in parts for guard in _guards_of_slice(part, size, place)]
    return _guards_of_slice(arguments, size, place)


def _guards_of_slice(arguments: Mapping[str, Any], size: Any, place: Location | None) -> list[Guard]:
    start, stop = arguments.get("start") or 0, arguments.get("stop")
    names = shapes.names(size)
    if not shapes.names((start, stop)) <= names:
        return []
    step = arguments.get("step", 1)
    first, last, length = slice_bounds(size, start, stop, step)
    found = []
    for dim in sorted(size.free_symbols, key=str):
        sizes = {name: 0 if name == dim.name else _SOME for name in names}
        real, begin, end, count = shapes.substitute((size, first, last, length), sizes)
        true = begin >= 0 and end <= real and count == len(range(begin, end, step))
        if real >= 0 and not true and not shapes.at_least(dim, 1):
            found.append(Guard(dim, ">=", 1, place))
    return found
