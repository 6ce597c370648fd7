"""Joining and cutting: concat, stack, split, and getitem, which reads one of several results.

In: sequences of tensors (concat, stack), one tensor (split). Out: one tensor; for ``split`` a tuple
of them, which a traced program sees as a list of ``getitem`` values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, ShapeError
from fxlite.ops.op import Tensor, Tensors, normalize_axis, op
from fxlite.ops.samples import Bad, S
from fxlite.ops.slicing import slice_, slice_bounds
from fxlite.ops.view import as_shape, unsqueeze
from fxlite.scalar import expr
from fxlite.scalar.expr import Expr, MultiIndex, Reader
from fxlite.scalar.index import Index
from fxlite.types import dtypes, shapes
from fxlite.types.tensor_type import TensorType


def _tensor_types(tensors: tuple[Any, ...]) -> tuple[TensorType, ...]:
    if not tensors:
        raise ArgumentError("at least one tensor is needed")
    for number, tensor in enumerate(tensors):
        if not isinstance(tensor, TensorType):
            raise ArgumentError(f"operand {number} is the number {tensor!r}, not a tensor")
    return tensors


@op("gather", moves_values=True, participle="joined", aliases=("concatenate", "cat"),
    samples=[S(["f32[B,2]", "f32[B,3]", "f32[B,1]"], 1, dims={"B": 3}),
             S(["f32[T,2]", "f32[S,2]"], 0, dims={"T": 3, "S": 2}), S(["f32[3]"]),
             S(["f32[2,3]", "f64[1,3]"]), S(["i32[2]", "f32[2]", "bool[1]"]),
             S(["f32[0,2]", "f32[2,2]"]),
             S(["f32[2,1]", "f32[2,0]", "f32[2,2]"], -1), S(["f32[0]", "f32[0]"]),
             S(["bf16[2]", "bf16[3]"]),
             S(["f16[2]", "f32[1]"]), S(["i8[2]", "u8[2]"])],
    bad=[Bad(["f32[2,3]", "f32[2,4]"], 0, match="axis 1 is 3 and 4"),
         Bad(["f32[2]", "f32[2,1]"], match="same rank"), Bad(["f32[]", "f32[]"], match="stack"),
         Bad(["f32[2]", "f32[2]"], 1, match="out of range"),
         Bad(["f32[B,2]", "f32[C,3]"], 1, dims={"B": 2, "C": 2}, match="is B and C")])  # fmt: skip
def concat(tensors: Tensors, axis: int = 0) -> Tensor:
    """The tensors one after the other along ``axis``; other axes must be equal, dtypes are
    promoted.

    Raises ShapeError where shapes differ on another axis."""
    return np.concatenate(tensors, axis)


@concat.infer
def _(tensors: Any, axis: int = 0) -> TensorType:
    types = _tensor_types(tensors)
    first = types[0]
    if first.rank == 0:
        raise ShapeError("tensors of rank 0 have no axis to join; use stack")
    axis = normalize_axis(axis, first.rank)
    for other in types[1:]:
        if other.rank != first.rank:
            raise ShapeError(f"the tensors must have the same rank, not {first.rank}, {other.rank}")
        for a, (d, e) in enumerate(zip(first.shape, other.shape)):
            if a != axis and not shapes.equal(d, e):
                raise ShapeError(
                    f"tensors may differ on axis {axis} alone; axis {a} is {d} and {e}"
                )
    total = shapes.normalize(sum(t.shape[axis] for t in types))
    shape = (*first.shape[:axis], total, *first.shape[axis + 1 :])
    return TensorType(shape, dtypes.result_type(*(t.dtype for t in types)))


@concat.body
def _(i: MultiIndex, tensors: tuple[Reader, ...], axis: int = 0) -> Expr:
    axis = normalize_axis(axis, len(i))
    dtype = dtypes.result_type(*(t.dtype for t in tensors))
    start = Index.of(0)
    parts: list[tuple[Reader, Index, Index]] = []  # reader, its first and its last + 1 position
    for tensor in tensors:
        stop = start + tensor.shape[axis]
        if tensor.shape[axis].constant != 0:
            parts.append((tensor, start, stop))
        start = stop
    result: Expr | None = None
    for tensor, begin, end in reversed(parts):
        here = i[axis] - begin
        before_end = expr.TRUE if result is None else expr.less(i[axis], end)
        guard = expr.both(expr.less(begin - 1, i[axis]), before_end)
        index = (*i[:axis], here, *i[axis + 1 :])
        value = expr.cast(expr.read_guarded(tensor, index, guard, 0), dtype)
        result = value if result is None else expr.where(before_end, value, result)
    return expr.const(0, dtype) if result is None else result


@op("composite", moves_values=True, added_axes=1,
    samples=[S(["f32[B,2]", "f32[B,2]"], 1, dims={"B": 3}), S(["f32[]", "f32[]", "f32[]"]),
             S(["f32[3]"], -1),
             S(["f32[2]", "i64[2]"]), S(["bf16[2,2]", "bf16[2,2]"], -1), S(["f64[0]", "f64[0]"])],
    bad=[Bad(["f32[2]", "f32[3]"], match="same shape"),
         Bad(["f32[2]", "f32[2]"], 2, match="out of range")])  # fmt: skip
def stack(tensors: Tensors, axis: int = 0) -> Tensor:
    """Tensors of one shape side by side along a new axis; dtypes are promoted.

    Raises ShapeError where shapes differ."""
    return np.stack(tensors, axis)


@stack.infer
def _(tensors: Any, axis: int = 0) -> TensorType:
    types = _tensor_types(tensors)
    for other in types[1:]:
        if not shapes.shapes_equal(types[0].shape, other.shape):
            raise ShapeError(f"all tensors must have the same shape, not {types[0]} and {other}")
    axis = normalize_axis(axis, types[0].rank + 1)
    shape = (*types[0].shape[:axis], len(types), *types[0].shape[axis:])
    return TensorType(shape, dtypes.result_type(*(t.dtype for t in types)))


@stack.expansion
def _(tensors: Any, axis: int = 0) -> Any:
    return concat(tuple(unsqueeze(t, axis) for t in tensors), axis)


@op("composite", shares_memory="always", moves_values=True, any_order=True, guards="parts",
    samples=[S("f32[B,6]", (1, 2, 3), 1, dims={"B": 3}), S("f32[4]", (4,)), S("f64[5,2]", (0, 5)),
             S("i32[2,3]", (1, 1, 1), -1), S("bf16[4]", (2, 2))],
    bad=[Bad("f32[4]", (1, 2), match="add up to 3, but axis 0 has size 4"),
         Bad("f32[4]", (5, -1), match="negative"),
         Bad("f32[T]", (2, 2), dims={"T": 4}, match="axis 0 has size T")])  # fmt: skip
def split(x: Tensor, sizes: tuple[int, ...], axis: int = 0) -> Any:
    """A tuple of tensors: ``x`` cut along ``axis`` into parts of the given sizes, in order.

    Raises ShapeError if the sizes do not add up to the size of the axis."""
    return np.split(x, np.cumsum(sizes)[:-1].astype(np.int64), axis)


@split.infer
def _(x: TensorType, sizes: Any, axis: int = 0) -> tuple[TensorType, ...]:
    axis = normalize_axis(axis, x.rank)
    parts = as_shape(sizes, "sizes")
    if any(type(p) is int and p < 0 for p in parts):
        raise ShapeError(f"sizes {sizes} must not be negative")
    total = shapes.normalize(sum(parts))
    if not shapes.equal(total, x.shape[axis]):
        size = x.shape[axis]
        raise ShapeError(f"sizes {sizes} add up to {total}, but axis {axis} has size {size}")
    result: list[TensorType] = []
    for start, stop in cuts_of(parts):
        _, _, length = slice_bounds(x.shape[axis], start, stop)
        result.append(x.with_shape((*x.shape[:axis], length, *x.shape[axis + 1 :])))
    return tuple(result)


def cuts_of(sizes: tuple[Any, ...]) -> list[tuple[Any, Any]]:
    """(start, stop) of each part; the last goes to the end."""
    cuts: list[Any] = [0]
    for size in sizes:
        cuts.append(shapes.normalize(cuts[-1] + size))
    return [*zip(cuts, [*cuts[1:-1], None])]


@split.expansion
def _(x: Any, sizes: Any, axis: int = 0) -> Any:
    parts = as_shape(sizes, "sizes")
    return tuple(slice_(x, axis, start, stop) for start, stop in cuts_of(parts))


@op(
    "composite",
    any_order=True,
    samples=[S(["f32[B,2]", "i32[3]"], 1, dims={"B": 2}), S(["f32[3]"], 0)],
)
def getitem(x: Tensor, index: int) -> Tensor:
    """Result ``index`` of an op with several results. Raises ShapeError if there are fewer."""
    return x[index]


@getitem.infer
def _(x: Any, index: int) -> Any:
    if not isinstance(x, (tuple, list)):
        raise ShapeError(f"x is one tensor {x}, not several; use slice or select on a tensor")
    if type(index) is not int or not -len(x) <= index < len(x):
        raise ShapeError(f"result {index!r} of {len(x)} results")
    return x[index]


@getitem.expansion
def _(x: Any, index: int) -> Any:
    return x[index]
