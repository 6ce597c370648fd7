"""Helpers for ops on images: attributes, window counts and guards of ops that slide a window over spatial
axes, and the ``layout`` attribute of ops on [N, C, H, W].

``stride=2`` and ``stride=(2, 2)`` are the same call and are stored in the same way: :func:`shortest` gives
the stored form (an int if all axes agree), :func:`per_axis` the form with which rules compute.
Convolution, pooling and resizing share them.

"NCHW" is torch's order. In "NHWC" (channels-last, torch's ``memory_format=channels_last``) the channels
of a pixel are adjacent. The rules of an op are written once, for NCHW; :func:`in_layouts` makes them work
for both layouts, and :func:`channels_first` and :func:`stored` do the same for arrays. No op is registered
here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, ShapeError
from fxlite.ops.op import Op
from fxlite.scalar import expr
from fxlite.scalar.expr import Expr, MultiIndex, Reader
from fxlite.scalar.index import Index
from fxlite.types import shapes
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import TensorType

#: The names of the axes of an input by the number of its spatial axes, for messages.
LAYOUTS = {1: ("N", "C", "L"), 2: ("N", "C", "H", "W"), 3: ("N", "C", "D", "H", "W")}


def per_axis(value: Any, rank: int, what: str, least: int = 1) -> tuple[int, ...]:
    """One int for each of ``rank`` spatial axes, from an int or that many ints, all >= ``least``.

    Raises ArgumentError, which names the attribute."""
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
    """The stored form of a value for each axis: the value itself if all axes agree."""
    return values[0] if all(v == values[0] for v in values) else tuple(values)


def ints(rank: int, what: str, least: int = 1) -> Callable[[Any], Any]:
    """A function that brings an attribute with ints for ``rank`` axes into canonical form."""
    return lambda value: shortest(per_axis(value, rank, what, least))


def rewrite(record: Op, bound: Mapping[str, Any], new: Mapping[str, Any]) -> Any:
    """The return value of a canonical rule: the call with new attributes, or None if nothing changes."""
    changed = any(
        type(bound[name]) is not type(value) or bound[name] != value for name, value in new.items() if name in bound
    )
    return (record, {**bound, **new}) if changed else None


Attributes = Mapping[str, Any]


def canonical_forms(
    record: Op,
    forms: Mapping[str, Callable[[Any], Any]],
    more: Callable[[Attributes, Attributes], Attributes] | None = None,
) -> None:
    """Attach the canonical rule that stores each attribute in the form that ``forms`` makes of it, and those that
    ``more`` gives, from the bound arguments and these forms."""

    def rule(**bound: Any) -> Any:
        try:
            new: Attributes = {name: form(bound[name]) for name, form in forms.items() if name in bound}
            new = new if more is None else {**new, **more(bound, new)}
        except ArgumentError as error:
            raise ArgumentError(f"{record.name}: {error}") from None
        return rewrite(record, bound, new)

    record.canonical(rule)


def require_layout(value: Any, rank: int) -> TensorType:
    """A tensor with batch, channel and ``rank`` spatial axes. Raises ShapeError for others."""
    layout = ", ".join(LAYOUTS[rank])
    if not isinstance(value, TensorType) or value.rank != rank + 2:
        hint = ""
        if isinstance(value, TensorType) and value.rank == rank + 1:
            hint = "; add the batch axis with x[None]"
        elif isinstance(value, TensorType) and rank + 3 - value.rank in (0, 2) and value.rank > 2:
            hint = f"; there is an op for {value.rank - 2} spatial axes"
        found = value.rank if isinstance(value, TensorType) else 0
        raise ShapeError(f"x must be [{layout}] (rank {rank + 2}), not rank {found}{hint}")
    return value


def window_count(size: Any, span: int, stride: int, low: int, high: int, axis: str, ceil_mode: bool = False) -> Any:
    """The number of windows of ``span`` elements along an axis padded by ``low`` and ``high``:
    ``(size + low + high - span) // stride + 1``. With ``ceil_mode`` it is rounded up, if the last window
    then starts inside the axis or its low padding (torch.nn.MaxPool2d).

    Raises ShapeError if the size is a number and there is no window."""
    room = size + low + high - span
    missing = stride - 1 if ceil_mode else 0  # the number of elements that the last window may lack
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
    """Require that calls of the op have a window along each spatial axis, and for pooling, that windows have
    an element."""
    is_pool = "ceil_mode" in record.signature.parameters

    @record.elements
    def sizes(x: Any, **others: Any) -> list[Any]:
        types = [record.inferred({"x": x, **others}), *([x] if is_pool else [])]
        axes = slice(1, -1) if others.get("layout") == "NHWC" else slice(2, None)
        return [size for type in types for size in type.shape[axes]]


def requires_elements(record: Op) -> None:
    """Require that calls of the op have an element along each spatial axis."""
    record.elements(lambda x, **others: x.shape[2:])


def not_negative(index: Index) -> Expr:
    """``index >= 0``; a constant if it can be decided."""
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


# -- layouts ---------------------------------------------------------------------------------------
TO_LAST = (0, 2, 3, 1)
"""The axes of an image [N, C, H, W] in the order NHWC, for ``permute``."""

TO_FIRST = (0, 3, 1, 2)
"""The axes of an image [N, H, W, C] in the order NCHW, for ``permute``."""


def is_channels_last(layout: Any) -> bool:
    """True for "NHWC", False for "NCHW". Raises ArgumentError for anything else."""
    if layout not in ("NCHW", "NHWC"):
        raise ArgumentError(f'layout must be "NCHW" or "NHWC", not {layout!r}')
    return bool(layout == "NHWC")


def channels_first(x: Any, layout: str) -> Any:
    """A view [N, C, H, W] of an array with that layout; an array of another rank is returned unchanged."""
    x = np.asarray(x)
    return x.transpose(TO_FIRST) if is_channels_last(layout) and x.ndim == 4 else x


def stored(y: Any, layout: str) -> Any:
    """An array [N, C, H, W] converted to that layout, contiguous."""
    return np.ascontiguousarray(y.transpose(TO_LAST)) if is_channels_last(layout) else y


def in_layouts(
    infer: Callable[..., TensorType], body: Callable[..., Expr]
) -> tuple[Callable[..., TensorType], Callable[..., Expr]]:
    """A type rule and a body with an attribute ``layout``, for an op whose image is ``x``, from rules for
    NCHW.

    The rules raise ArgumentError for an unknown layout, and ShapeError for an NHWC image that does not have
    four axes."""

    def infer_any(x: Any, layout: str = "NCHW", **others: Any) -> TensorType:
        if not is_channels_last(layout):
            return infer(x, **others)
        if not isinstance(x, TensorType) or x.rank != 4:
            rank = x.rank if isinstance(x, TensorType) else 0
            raise ShapeError(f"x must be [N, H, W, C] (rank 4), not rank {rank}")
        found = infer(x.with_shape(tuple(x.shape[a] for a in TO_FIRST)), **others)
        return found.with_shape(tuple(found.shape[a] for a in TO_LAST))

    def body_any(i: MultiIndex, x: Reader, layout: str = "NCHW", **others: Any) -> Expr:
        if not is_channels_last(layout):
            return body(i, x, **others)
        return body(tuple(i[a] for a in TO_FIRST), _ChannelsFirst(x), **others)

    return infer_any, body_any


class _ChannelsFirst:
    """Reads an image [N, H, W, C] with indices n, c, h, w."""

    def __init__(self, x: Reader) -> None:
        self.x = x
        self.shape: MultiIndex = tuple(x.shape[a] for a in TO_FIRST)
        self.dtype: DType = x.dtype

    def __getitem__(self, index: Any) -> Expr:
        return self.x[tuple(index[a] for a in TO_LAST)]

    __iter__ = None  # because of __getitem__, a loop over it would otherwise never end
