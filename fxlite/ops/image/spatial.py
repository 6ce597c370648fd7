"""Helpers of the ops that slide a window over spatial axes: attributes, window counts, guards.

``stride=2`` and ``stride=(2, 2)`` are one call and are stored as one: :func:`shortest` is the
stored form (an int where all axes agree), :func:`per_axis` the form that rules compute with.
Convolution, pooling and resizing share them. No op is registered here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fxlite.base.errors import ArgumentError, ShapeError
from fxlite.ops.op import Op
from fxlite.scalar import expr
from fxlite.scalar.expr import Expr
from fxlite.scalar.index import Index
from fxlite.types import shapes
from fxlite.types.tensor_type import TensorType, type_of

#: Names of the axes of an input with one or two spatial axes, for messages.
LAYOUTS = {1: ("N", "C", "L"), 2: ("N", "C", "H", "W")}


def per_axis(value: Any, rank: int, what: str, least: int = 1) -> tuple[int, ...]:
    """One int for each of ``rank`` spatial axes, from an int or that many ints, all >= ``least``.

    Raises ArgumentError naming the attribute."""
    values = (value,) * rank if type(value) is int else value
    if isinstance(values, (tuple, list)) and all(type(v) is int for v in values):
        if rank > 1 and len(values) == 1:
            values = tuple(values) * rank
        if len(values) == rank:
            if min(values) < least:
                raise ArgumentError(f"{what} must be at least {least}, not {value!r}")
            return tuple(values)
    wanted = "an int" if rank == 1 else f"an int or {rank} ints"
    raise ArgumentError(f"{what} must be {wanted}, not {value!r}")


def shortest(values: Sequence[Any]) -> Any:
    """The stored form of one value for each axis: the value itself where all axes agree."""
    return values[0] if all(v == values[0] for v in values) else tuple(values)


def ints(rank: int, what: str, least: int = 1) -> Callable[[Any], Any]:
    """Canonical form of an attribute that holds ints for ``rank`` axes."""
    return lambda value: shortest(per_axis(value, rank, what, least))


def rewrite(record: Op, bound: Mapping[str, Any], new: Mapping[str, Any]) -> Any:
    """What a canonical rule returns: the call with new attributes, or None if nothing changes."""
    changed = any(
        type(bound[name]) is not type(value) or bound[name] != value
        for name, value in new.items()
        if name in bound
    )
    return (record, {**bound, **new}) if changed else None


def canonical_forms(record: Op, forms: Mapping[str, Callable[[Any], Any]]) -> None:
    """Attach the canonical rule that stores each attribute in the form ``forms`` gives it."""

    def rule(**bound: Any) -> Any:
        try:
            new = {name: form(bound[name]) for name, form in forms.items() if name in bound}
        except ArgumentError as error:
            raise ArgumentError(f"{record.name}: {error}") from None
        return rewrite(record, bound, new)

    record.canonical(rule)


def checked_type(record: Op, **bound: Any) -> TensorType:
    """Result type of a call on arrays (and numbers); the errors are the ones tracing gives."""
    types = record.map_tensors(
        lambda v: v if isinstance(v, (bool, int, float)) else type_of(v), bound
    )
    found: TensorType = record.result_type(types)
    return found


def require_layout(value: Any, rank: int, what: str = "x") -> TensorType:
    """A tensor with batch, channel and ``rank`` spatial axes. Raises ShapeError for others."""
    layout = ", ".join(LAYOUTS[rank])
    if not isinstance(value, TensorType) or value.rank != rank + 2:
        hint = ""
        if isinstance(value, TensorType) and value.rank == rank + 1:
            hint = f"; add the batch axis with {what}[None]"
        elif isinstance(value, TensorType) and rank + 3 - value.rank in (0, 2) and value.rank > 2:
            hint = f"; there is an op for {value.rank - 2} spatial axes"
        found = value.rank if isinstance(value, TensorType) else 0
        raise ShapeError(f"{what} must be [{layout}] (rank {rank + 2}), not rank {found}{hint}")
    return value


def window_count(
    size: Any, span: int, stride: int, low: int, high: int, axis: str, ceil_mode: bool = False
) -> Any:
    """Number of windows of ``span`` elements along an axis padded by ``low`` and ``high``:
    ``(size + low + high - span) // stride + 1``; with ``ceil_mode`` rounded up, where the last
    window must start inside the axis or its low padding (torch.nn.MaxPool2d).

    Raises ShapeError if a size that is a number has no window."""
    room = size + low + high - span
    missing = stride - 1 if ceil_mode else 0  # elements that the last window may go without
    if type(room) is int and (room + missing < 0 or (ceil_mode and size == 0)):
        raise ShapeError(
            f"a window that spans {span} does not fit along {axis}: the size is {size}, with "
            f"padding {size + low + high}; pad more, or use a smaller kernel or dilation"
        )
    if not ceil_mode:
        return shapes.normalize(shapes.floordiv(room, stride) + 1)
    rounded_up = shapes.normalize(shapes.floordiv(room + stride - 1, stride) + 1)
    starts_inside = shapes.normalize(shapes.floordiv(size + low - 1, stride) + 1)
    return shapes.minimum(rounded_up, starts_inside)


def requires_windows(record: Op) -> None:
    """Calls of the op must have a window along each spatial axis; a pool's window an element."""
    is_pool = "ceil_mode" in record.signature.parameters

    @record.elements
    def sizes(x: Any, **others: Any) -> list[Any]:
        types = [record.inferred({"x": x, **others}), *([x] if is_pool else [])]
        axes = slice(1, -1) if others.get("layout") == "NHWC" else slice(2, None)
        return [size for type in types for size in type.shape[axes]]


def requires_elements(record: Op) -> None:
    """Calls of the op must have an element along each spatial axis."""
    record.elements(lambda x, **others: x.shape[2:])


def not_negative(index: Index) -> Expr:
    """``index >= 0``, decided now where it can be."""
    if index.is_nonnegative():
        return expr.TRUE
    return expr.apply("ge", expr.index_value(index), expr.index_value(0))


def reduce_over(kind: str, extents: Sequence[Any], body: Callable[..., Expr]) -> Expr:
    """:func:`fxlite.scalar.expr.reduce` without loops of one iteration."""
    looped = [n for n, e in enumerate(extents) if Index.of(e).constant != 1]

    def inner(*variables: Index) -> Expr:
        at = [Index.of(0)] * len(extents)
        for n, v in zip(looped, variables):
            at[n] = v
        return body(*at)

    return expr.reduce(kind, [extents[n] for n in looped], inner) if looped else inner()
