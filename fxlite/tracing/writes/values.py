"""What is written into traced memory: values as NumPy casts and broadcasts them on their way in.

In: a value of the program and the type of its destination. Out: a node or number of the
destination's dtype. What NumPy refuses is a TraceError here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.errors import DTypeError, FxliteError, ShapeError
from fxlite.base.location import Location, here
from fxlite.base.state import is_traced
from fxlite.ops.op import broadcast_shapes, lookup
from fxlite.ops.view import fill_value
from fxlite.types import dtypes, shapes
from fxlite.types.dtypes import plain_array
from fxlite.types.tensor_type import TensorType

if TYPE_CHECKING:
    from fxlite.graph.graph import Node
    from fxlite.tracing.tracer import Tracer


def prepared(
    tracer: Tracer, destination: TensorType, value: Any, what: str, casting: str = "unsafe",
    instead: str = "",
) -> Any:  # fmt: skip
    """``value`` as a node (or Python number) of the destination's dtype that broadcasts to its
    shape. Raises TraceError where NumPy would refuse it."""
    target = destination.dtype
    if isinstance(value, (list, tuple)):
        if any(is_traced(v) for v in value):
            value = lookup("stack")(tuple(value))
        else:
            value = np.asarray(value)
    if isinstance(value, shapes.NamedDim):
        return tracer.size_as_tensor(value, target)
    if isinstance(value, (np.generic, np.ndarray)):
        scalar = isinstance(value, np.generic)
        value = plain_array(value, f"the values of {what}")
        if scalar and not np.can_cast(value.dtype, target.numpy, casting):  # type: ignore[arg-type]
            raise _not_cast(tracer, value.dtype, destination, what, instead)
        value = value.item() if scalar else value  # NumPy refuses a scalar that does not fit, too
    if isinstance(value, (bool, int, float)):
        if casting != "unsafe" and not _fits(np.result_type(value), target):
            raise _not_cast(tracer, type(value).__name__, destination, what, instead)
        return _number(tracer, value, target, what)
    if not is_traced(value):
        value = np.asarray(value)
        if not np.can_cast(value.dtype, target.numpy, casting):  # type: ignore[arg-type]
            raise _not_cast(tracer, value.dtype, destination, what, instead)
        value = value.astype(target.numpy)
        if not value.ndim:
            return _number(tracer, value.item(), target, what)
        shape = value.shape
        while len(shape) > destination.rank and shape[0] == 1:
            value = value[0]
            shape = value.shape
        _check_shape(tracer, shape, destination, what)
        return tracer.create_arg(value)
    found = value.type
    if found.dtype is not target:
        if casting != "unsafe" and not np.can_cast(found.dtype.numpy, target.numpy, casting):  # type: ignore[arg-type]
            raise _not_cast(tracer, found.dtype, destination, what, instead)
        value = lookup("cast")(value, target)
    while value.type.rank > destination.rank and value.type.shape[0] == 1:
        value = lookup("squeeze")(value, 0)
    _check_shape(tracer, value.type.shape, destination, what)
    return value.node


def _number(tracer: Tracer, value: Any, target: dtypes.DType, what: str) -> Any:

    try:
        return fill_value(value, target)
    except DTypeError as error:
        raise tracer.error(f"{what}: {error}") from None


def _fits(source: Any, target: dtypes.DType) -> bool:
    kinds = "biuf"
    order = {"b": 0, "i": 1, "u": 1, "f": 2}
    kind = "f" if target.is_float else "b" if target.is_bool else "i"
    return source.kind in kinds and order[source.kind] <= order[kind]


def _not_cast(
    tracer: Tracer, source: Any, destination: TensorType, what: str, instead: str
) -> FxliteError:
    return tracer.error(
        f"{what} would have to turn {source} into {destination.dtype}, which NumPy does not do in "
        f"place",
        instead or "cast the values first: .astype",
    )


def _check_shape(tracer: Tracer, shape: Any, destination: TensorType, what: str) -> None:
    try:
        fits = shapes.shapes_equal(broadcast_shapes(destination.shape, shape), destination.shape)
    except ShapeError:
        fits = False
    if not fits:
        text = f"({', '.join(map(str, shape))})"
        raise tracer._located(
            ShapeError(f"{what}: values of shape {text} do not fit {destination}"), program_line()
        )


def program_line() -> Location | None:
    """The line of the program that writes, for errors."""

    return here(3)


def chosen(tracer: Tracer, condition: Any, value: Any, node: Node) -> Node:
    """``np.where(condition, value, node)`` in node's dtype."""
    dtype = node.type.dtype
    if isinstance(value, (bool, int, float)) and dtype is dtypes.bfloat16:
        value = lookup("full")((), value, dtype)  # not weak beside bfloat16
    new = tracer.record(
        lookup("where"), {"condition": condition, "x": as_proxy(tracer, value),
                          "y": tracer.proxy(node)},
    )  # fmt: skip
    if new.type.dtype is not dtype:
        new = lookup("cast")(new, dtype)
    return new.node  # type: ignore[no-any-return]


def as_proxy(tracer: Tracer, value: Any) -> Any:
    """A node as its proxy; anything else as it is."""
    return tracer.proxy(value) if hasattr(value, "all_input_nodes") else value
