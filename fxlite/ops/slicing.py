"""Parts of an axis, and their combination: slice and select; slice_update, which writes a part; concat and
stack; split with getitem, which reads one of its results. Also proofs about the dims that result.

In: tensors, an axis, bounds in dims (ints or named). Out: views; a new value from slice_update, concat and
stack; for ``split`` a tuple, which a traced program sees as a list of ``getitem`` values.

:func:`slice_bounds` applies Python's slice rules to named dims. A bound that is an int is clipped as in
NumPy (``x[:4]`` has size ``Min(4, T)``). A bound with named dims is used unchanged and checked when the
program runs, unless it is negative for all sizes (``x[-n:]``): then it is clipped, too. A named axis that is
sliced is assumed not to be empty, so that ``x[1:]`` has the size ``T - 1`` and not ``Max(T - 1, 0)``; the
tracer records this as a guard (:mod:`fxlite.tracing.nonempty`).
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, DTypeError, PositionError, ShapeError, number_of
from fxlite.base.on_demand import is_expression, sympy
from fxlite.ops.op import Tensor, Tensors, broadcast_shapes, normalize_axis, op
from fxlite.ops.parameters import Attribute
from fxlite.ops.samples import Bad, S
from fxlite.ops.view import as_shape, dims_of, fill_value, known_type, unsqueeze
from fxlite.scalar import expr
from fxlite.scalar.expr import Expr, MultiIndex, Reader
from fxlite.scalar.index import Index
from fxlite.types import dtypes, shapes
from fxlite.types.shapes import Dim, symbols
from fxlite.types.tensor_type import TensorType


# -- proofs ----------------------------------------------------------------------------------------
def never_negative(dim: Dim, nonempty: bool = False) -> bool:
    """True if the dim is provably >= 0 for all sizes; with ``nonempty``, for all sizes except 0."""
    dim = shapes.normalize(dim)
    return dim >= 0 if type(dim) is int else symbols.never_negative(dim, nonempty)


def smaller(a: Dim, b: Dim) -> Dim:
    """``min(a, b)`` of dims, folded if one is smaller for all sizes except 0."""
    if never_negative(a - b, nonempty=True):
        return b
    return a if never_negative(b - a, nonempty=True) else shapes.minimum(a, b)


def larger(a: Dim, b: Dim) -> Dim:
    """``max(a, b)`` of dims, folded if one is larger for all sizes except 0."""
    if never_negative(a - b, nonempty=True):
        return a
    return b if never_negative(b - a, nonempty=True) else shapes.maximum(a, b)


# -- slice and select ------------------------------------------------------------------------------
def from_the_end(bound: Dim | None) -> bool:
    """Whether a bound with named dims counts from the end, as in ``x[-n:]``: it is negative for all sizes except 0."""
    return bound is not None and is_expression(bound) and never_negative(-1 - bound, nonempty=True)


def slice_bounds(size: Dim, start: Dim, stop: Dim | None, step: int = 1) -> tuple[Dim, Dim, Dim]:
    """(start, stop, length) of ``[start:stop:step]`` on an axis of the given size, as non-negative dims;
    ``step`` >= 1. The docstring of the module has the rules for named dims."""
    if type(step) is not int or step < 1:
        raise ArgumentError(f"step must be an int >= 1, not {step!r}; flip(x, axis) reverses x")
    if type(size) is int and type(start) is int and (stop is None or type(stop) is int):
        first, last, _ = builtins.slice(start, stop).indices(size)
        return first, last, len(range(first, last, step))
    first, last = shapes.normalize(start), size if stop is None else shapes.normalize(stop)
    if from_the_end(first) or (type(first) is int and first < 0):
        first = larger(shapes.normalize(size + first), 0)
    if from_the_end(last) or (type(last) is int and last < 0):
        last = larger(shapes.normalize(size + last), 0)
    elif type(last) is int:
        last = smaller(last, size)
    if isinstance(first, sympy.Max):  # stop - Max(a, b) == Min(stop - a, stop - b)
        length = functools.reduce(smaller, (shapes.normalize(last - a) for a in first.args))
    elif isinstance(last, sympy.Min):
        length = functools.reduce(smaller, (shapes.normalize(a - first) for a in last.args))
    else:
        length = shapes.normalize(last - first)
    length = larger(length, 0)
    return first, last, length if step == 1 else shapes.floordiv(length + (step - 1), step)


@op(
    "view",
    shares_memory="always",
    moves_values=True,
    guards="parts",
    starts_at="start",
    name="slice",
    participle="part",
    samples=[
        "f32[B,6] 1 2 5 B=3; f32[B,4] 0 1 B=3; f32[B,T] 1 -1 B=2 T=4; f32[T] 0 -3 T=2; f32[T] 0 0 4 T=3",
        "f32[T,2] 0 3 None 2 T=8; f32[T,2] 0 1 -1 T=5; f64[7] 0 1 None 3; i32[3] 0 2 1; bool[4] 0 -100 100",
        "bf16[2,5] -1 0 4 2; f16[0,3] 0 1",
    ],
    bad=[
        Bad("f32[3]", 1, match="out of range"),
        Bad("f32[3]", 0, 0, 2, -1, match="flip"),
        Bad("f32[3]", 0, 1.5, match="bounds must be ints"),
    ],
)
def slice_(x: Tensor, axis: int, start: int = 0, stop: int | None = None, step: int = 1) -> Tensor:
    """``x[start:stop:step]`` along one axis, with Python's rules; ``step`` is at least 1.

    On a named axis an int bound is clipped as in NumPy (``x[:4]`` has size ``Min(4, T)``). A bound with
    named dims must lie within the axis; otherwise it raises IndexError at run time."""
    lead = (builtins.slice(None),) * normalize_axis(axis, np.ndim(x))
    return x[(*lead, builtins.slice(start, stop, step))]


def _check_bounds(*bounds: Any) -> None:
    for bound in bounds:
        if not (bound is None or type(bound) is int or is_expression(bound)):
            raise ArgumentError(f"bounds must be ints, named dims or None, not {bound!r}")


@slice_.canonical
def _(x: Any, axis: Any, start: Any = 0, stop: Any = None, step: Any = 1) -> Any:
    known = known_type(x)
    if known is None or type(axis) is not int or not -known.rank <= axis < known.rank:
        return None
    _check_bounds(start, stop)
    if start is None:
        start = 0
    size = known.shape[axis]
    first, last, _ = slice_bounds(size, start, stop, step)
    end = None if shapes.equal(last, size) else last
    if (first, end) == (start, stop):
        return None
    return slice_, {"x": x, "axis": axis, "start": first, "stop": end, "step": step}


@slice_.infer
def _(x: TensorType, axis: int, start: Any, stop: Any, step: Any) -> TensorType:
    axis = normalize_axis(axis, x.rank)
    _check_bounds(start, stop)
    _, _, length = slice_bounds(x.shape[axis], start, stop, step)
    return x.with_shape((*x.shape[:axis], length, *x.shape[axis + 1 :]))


@slice_.body
def _(i: MultiIndex, x: Reader, axis: int, start: Any, stop: Any, step: int) -> Expr:
    axis = normalize_axis(axis, len(x.shape))
    size = dims_of(x)[axis]
    first, last, _ = slice_bounds(size, start, stop, step)
    position = i[axis] * step + Index.of(first)
    if never_negative(first) and never_negative(size - last):
        return x[(*i[:axis], position, *i[axis + 1 :])]
    value = expr.index_value(position)
    if not never_negative(first):  # a negative position is an error here, and does not count from the end
        inside = expr.apply("ge", value, expr.index_value(0))
        value = expr.where(inside, value, expr.index_value(x.shape[axis]))
    text = f"slice along axis {axis}"
    return _read_checked(x, (*i[:axis], position, *i[axis + 1 :]), axis, value, text)


def _read_checked(x: Reader, index: MultiIndex, axis: int, value: Expr, where_text: str) -> Expr:
    """``x[index]``, with an IndexError at run time if ``value``, the position on ``axis``, is out of range."""
    checked = expr.CheckedIndex(dtypes.int64, value, x.shape[axis], where_text)
    return expr.add_guard(x[index], expr.apply("ge", checked, expr.const(0, dtypes.int64)))


@op(
    "view",
    shares_memory="always",
    moves_values=True,
    added_axes=-1,
    starts_at="index",
    gives_number=True,
    samples=[
        "f32[B,6] 1 2 B=3; f32[B,T,4] 1 0 B=2 T=3; f32[T,4] 0 -1 T=3; f32[T] 0 2 T=3; f64[3,4] -1 -2; i32[1] 0 0",
        "bool[2,2] 0 1; bf16[3,0] 0 2",
    ],
    bad=[
        Bad("f32[3,4]", 1, 4, match="index 4 is out of range for axis 1 of size 4"),
        Bad("f32[3]", 0, -4, match="out of range"),
        Bad("f32[3]", 0, 1.0, match="must be an int"),
        Bad("f32[3]", 1, 0, match="axis 1 is out of range"),
    ],
)
def select(x: Tensor, axis: int, index: int) -> Tensor:
    """The element ``index`` along ``axis``, which the result does not have: ``x[:, index]`` for axis 1. A
    negative index counts from the end.

    Raises ShapeError (for a named axis, IndexError at run time) if it is out of range."""
    lead = (builtins.slice(None),) * normalize_axis(axis, np.ndim(x))
    return x[(*lead, index)]


@select.canonical
def _(x: Any, axis: Any, index: Any) -> Any:
    known = known_type(x)
    if known is None or type(axis) is not int or not -known.rank <= axis < known.rank:
        return None
    size = known.shape[axis]
    if type(size) is int and type(index) is int and -size <= index < 0:
        return select, {"x": x, "axis": axis, "index": index + size}
    return None


@select.infer
def _(x: TensorType, axis: int, index: Any) -> TensorType:
    axis = normalize_axis(axis, x.rank)
    size = x.shape[axis]
    if not (type(index) is int or is_expression(index)):
        raise ArgumentError(f"index must be an int or a named dim, not {index!r}; arrays: use take")
    if type(size) is int and type(index) is int and not -size <= index < size:
        raise PositionError(f"index {index} is out of range for axis {axis} of size {size}")
    return x.with_shape(x.shape[:axis] + x.shape[axis + 1 :])


@select.body
def _(i: MultiIndex, x: Reader, axis: int, index: Any) -> Expr:
    axis = normalize_axis(axis, len(x.shape))
    size = dims_of(x)[axis]
    if type(size) is int and type(index) is int:
        return x[(*i[:axis], Index.of(index % size if size else 0), *i[axis:])]
    known = _known_position(index, size)
    if known is not None:
        return x[(*i[:axis], Index.of(known), *i[axis:])]
    text = f"select on axis {axis}"
    if type(index) is int:
        position = Index.of(index) + (x.shape[axis] if index < 0 else 0)
        at = (*i[:axis], position, *i[axis:])
        return _read_checked(x, at, axis, expr.index_value(index), text)
    return expr.read_at_value(x, axis, i[:axis], expr.index_value(index), i[axis:], text)


def _known_position(index: Dim, size: Dim) -> Dim | None:
    """The position of an index, counted from the start of an axis, if it is in range for all possible sizes."""
    is_from_end = never_negative(-1 - index)
    place = shapes.normalize(index + size) if is_from_end else index
    return place if never_negative(place) and never_negative(size - 1 - place) else None


# -- writing ---------------------------------------------------------------------------------------
def parts_of(at: Any, shape: Sequence[Any]) -> list[Any]:
    """``at`` for each axis of ``shape``: an int, or (start, stop, length, step) as dims."""
    if not isinstance(at, tuple) or len(at) > len(shape):
        raise ArgumentError(f"at must hold at most {len(shape)} ints and slices, not {at!r}")
    result: list[Any] = []
    for axis, size in enumerate(shape):
        part = at[axis] if axis < len(at) else (0, None, 1)
        if isinstance(part, tuple):
            if len(part) != 3:
                raise ArgumentError(f"a slice is (start, stop, step), not {part!r}")
            _check_bounds(*part[:2])
            first, last, length = slice_bounds(size, *part)
            result.append((first, last, length, part[2]))
            continue
        if not (type(part) is int or is_expression(part)):
            raise ArgumentError(f"at holds ints and (start, stop, step), not {part!r}")
        if type(part) is int and type(size) is int and not -size <= part < size:
            raise PositionError(f"index {part} is out of range for axis {axis} of size {size}")
        result.append(part % size if type(part) is int and type(size) is int else part)
    return result


@op(
    "gather",
    writes_part=True,
    samples=[
        "f32[B,6] f32[B,3] ((0,None,1),(2,5,1)) B=3; f32[4,3] f32[3] (1,); f32[4,3] f32[4] ((0,None,1),-1)",
        "f32[7] f32[3] ((1,None,2),); f32[7,2] 1.5 ((2,7,3),0); f32[T,2] f32[T-1,2] ((1,None,1),) T=4",
        "f32[T] f32[] (2,) T=3; f32[T] 7 (-1,) T=3; i32[3,4] i32[1,2] ((0,2,1),(1,3,1)); bool[4] True ((0,2,1),)",
        "f64[0,3] 1.0 ((0,None,1),1); bf16[4] bf16[2] ((0,None,2),); f16[2,2] f16[2,2] (); f32[3] f32[0] ((1,1,1),)",
        "f32[3,2]! f32[2] (0,)",
    ],
    bad=[
        Bad("f32[3]", "f32[2]", ((0, None, 1),), match="do not broadcast"),
        Bad("f32[3]", "f64[3]", ((0, None, 1),), match="dtype of x"),
        Bad("f32[3]", "f32[]", (3,), match="out of range"),
        Bad("f32[3]", "f32[]", (1, 1), match="at most 1"),
        Bad("f32[3]", "f32[3]", ((2, None, -1),), match="flip"),
    ],
)
def slice_update(x: Tensor, values: Tensor, at: Attribute) -> Tensor:
    """A copy of ``x`` with ``out[at] = values``. ``at`` holds an int or (start, stop, step) for each of the
    leading axes, and ``values`` are broadcast to that part. In-place writes are traced as this op.

    Raises ShapeError if ``values`` do not fit, DTypeError unless they have the dtype of ``x``, and
    IndexError at run time for an int that is out of range on a named axis."""
    out = np.array(x)
    out[tuple(builtins.slice(*part) if isinstance(part, tuple) else part for part in at)] = values
    return out


@slice_update.canonical
def _(x: Any, values: Any, at: Any) -> Any:
    known = known_type(x)
    if known is None:
        return None
    plain: list[Any] = []
    for part, size in zip(parts_of(at, known.shape), known.shape):
        if isinstance(part, tuple):
            first, last, _, step = part
            part = (first, None if shapes.equal(last, size) else last, step)
        plain.append(part)
    while plain and plain[-1] == (0, None, 1):
        plain.pop()
    new = tuple(plain)
    return None if new == at else (slice_update, {"x": x, "values": values, "at": new})


def updated_type(x: TensorType, values: Any, part: Sequence[Any]) -> TensorType:
    """The type of ``x`` with ``values`` written into a part of that shape. Raises DTypeError or ShapeError if
    they do not fit."""
    if not isinstance(values, TensorType):
        fill_value(values, x.dtype)
        return x
    if values.dtype is not x.dtype:
        raise DTypeError(f"values must have the dtype of x, {x.dtype}; cast them with .astype")
    if not shapes.shapes_equal(broadcast_shapes(part, values.shape), part):
        text = f"({', '.join(map(str, part))})"
        raise ShapeError(f"values {values} do not broadcast to the part that is written, {text}")
    return x


@slice_update.infer
def _(x: TensorType, values: Any, at: Any) -> TensorType:
    part = tuple(p[2] for p in parts_of(at, x.shape) if isinstance(p, tuple))
    return updated_type(x, values, part)


@slice_update.body
def _(i: MultiIndex, x: Reader, values: Reader, at: Any) -> Expr:
    conditions: list[Expr] = []
    position: list[Index] = []  # the index in the part that is written
    for axis, part in enumerate(parts_of(at, dims_of(x))):
        if not isinstance(part, tuple):
            known = _known_position(part, dims_of(x)[axis])
            if known is not None:
                conditions.append(expr.equals(i[axis], known))
                continue
            text = f"slice_update on axis {axis}"
            index = expr.index_value(Index.of(part))
            checked = expr.CheckedIndex(dtypes.int64, index, x.shape[axis], text)
            conditions.append(expr.apply("eq", checked, expr.index_value(i[axis])))
            continue
        first, _, length, step = part
        shift = -first % step if type(first) is int else first * (step - 1)  # avoids negative dividends
        moved = i[axis] + Index.of(shift)
        k = moved // step - Index.of(shapes.floordiv(first + shift, step))
        if step > 1:
            conditions.append(expr.equals(moved % step, 0))
        if not (shapes.equal(first, 0) and step == 1 and shapes.equal(length, dims_of(x)[axis])):
            conditions.append(expr.within(k, length))
        position.append(k)
    inside = expr.both(*conditions)
    if isinstance(values, expr.ConstReader):
        new: Expr = expr.const(fill_value(values.value, x.dtype), x.dtype)
    else:
        offset = len(position) - len(values.shape)
        place = tuple(
            Index.of(0) if size.constant == 1 else position[offset + axis] for axis, size in enumerate(values.shape)
        )
        new = expr.read_guarded(values, place, inside, 0)
    return new if inside is expr.TRUE else expr.where(inside, new, x[i])


def _tensor_types(tensors: tuple[Any, ...]) -> tuple[TensorType, ...]:
    if not tensors:
        raise ArgumentError("at least one tensor is needed")
    for number, tensor in enumerate(tensors):
        if not isinstance(tensor, TensorType):
            raise ArgumentError(f"operand {number} is the number {tensor!r}, not a tensor")
    return tensors


@op(
    "gather",
    numpy="np.concatenate tensors axis=",
    moves_values=True,
    participle="joined",
    aliases=("concatenate", "cat"),
    samples=[
        S(["f32[B,2]", "f32[B,3]", "f32[B,1]"], 1, dims={"B": 3}),
        S(["f32[T,2]", "f32[S,2]"], 0, dims={"T": 3, "S": 2}),
        S(["f32[3]"]),
        S(["f32[2,3]", "f64[1,3]"]),
        S(["i32[2]", "f32[2]", "bool[1]"]),
        S(["f32[0,2]", "f32[2,2]"]),
        S(["f32[2,1]", "f32[2,0]", "f32[2,2]"], -1),
        S(["f32[0]", "f32[0]"]),
        S(["bf16[2]", "bf16[3]"]),
        S(["f16[2]", "f32[1]"]),
        S(["i8[2]", "u8[2]"]),
    ],
    bad=[
        Bad(["f32[2,3]", "f32[2,4]"], 0, match="axis 1 is 3 and 4"),
        Bad(["f32[2]", "f32[2,1]"], match="same rank"),
        Bad(["f32[]", "f32[]"], match="stack"),
        Bad(["f32[2]", "f32[2]"], 1, match="out of range"),
        Bad(["f32[B,2]", "f32[C,3]"], 1, dims={"B": 2, "C": 2}, match="is B and C"),
    ],
)
def concat(tensors: Tensors, axis: int = 0) -> Tensor:
    """The tensors joined along ``axis``. Their other axes must be equal, and dtypes are promoted.

    Raises ShapeError if shapes differ on another axis."""
    return np.concatenate(tensors, axis)


@concat.infer
def _(tensors: Any, axis: int) -> TensorType:
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
                raise ShapeError(f"tensors may differ on axis {axis} alone; axis {a} is {d} and {e}")
    total = shapes.normalize(sum(t.shape[axis] for t in types))
    shape = (*first.shape[:axis], total, *first.shape[axis + 1 :])
    return TensorType(shape, dtypes.result_type(*(t.dtype for t in types)))


@concat.body
def _(i: MultiIndex, tensors: tuple[Reader, ...], axis: int) -> Expr:
    axis = normalize_axis(axis, len(i))
    dtype = dtypes.result_type(*(t.dtype for t in tensors))
    start = Index.of(0)
    parts: list[tuple[Reader, Index, Index]] = []  # reader, its first position, and the one after its last
    for tensor in tensors:
        stop = start + tensor.shape[axis]
        if tensor.shape[axis].constant != 0:
            parts.append((tensor, start, stop))
        start = stop
    if not parts:
        return expr.const(0, dtype)

    befores = [expr.less(i[axis], end) for _, _, end in parts]

    def chosen(low: int, high: int) -> Expr:
        """The value from one of these parts. Many parts are halved recursively, so that nesting is not deep."""
        if high - low > 1:
            middle = low + (1 if high - low <= _MOST_IN_ORDER else (high - low) // 2)
            other = chosen(middle, high)
            return expr.where(befores[middle - 1], chosen(low, middle), other)
        tensor, begin, _ = parts[low]
        guard = expr.both(expr.less(begin - 1, i[axis]), expr.TRUE if high == len(parts) else befores[low])
        index = (*i[:axis], i[axis] - begin, *i[axis + 1 :])
        value = tensor[index] if guard is expr.TRUE else expr.add_guard(tensor[index], guard)
        return expr.cast(value, dtype)

    return chosen(0, len(parts))


#: The most parts that are tried one after the other.
_MOST_IN_ORDER = 8


@op(
    "composite",
    numpy="np.stack tensors axis=",
    moves_values=True,
    added_axes=1,
    samples=[
        S(["f32[B,2]", "f32[B,2]"], 1, dims={"B": 3}),
        S(["f32[]", "f32[]", "f32[]"]),
        S(["f32[3]"], -1),
        S(["f32[2]", "i64[2]"]),
        S(["bf16[2,2]", "bf16[2,2]"], -1),
        S(["f64[0]", "f64[0]"]),
    ],
    bad=[Bad(["f32[2]", "f32[3]"], match="same shape"), Bad(["f32[2]", "f32[2]"], 2, match="out of range")],
)
def stack(tensors: Tensors, axis: int = 0) -> Tensor:
    """Tensors of the same shape, stacked along a new axis; dtypes are promoted.

    Raises ShapeError if shapes differ."""
    return np.stack(tensors, axis)


@stack.infer
def _(tensors: Any, axis: int) -> TensorType:
    types = _tensor_types(tensors)
    for other in types[1:]:
        if not shapes.shapes_equal(types[0].shape, other.shape):
            raise ShapeError(f"all tensors must have the same shape, not {types[0]} and {other}")
    axis = normalize_axis(axis, types[0].rank + 1)
    shape = (*types[0].shape[:axis], len(types), *types[0].shape[axis:])
    return TensorType(shape, dtypes.result_type(*(t.dtype for t in types)))


@stack.expansion
def _(tensors: Any, axis: int) -> Any:
    return concat(tuple(unsqueeze(t, axis) for t in tensors), axis)


@op(
    "composite",
    shares_memory="always",
    moves_values=True,
    any_order=True,
    guards="parts",
    gives_parts=True,
    samples=["f32[B,6] (1,2,3) 1 B=3; f32[4] (4,); f64[5,2] (0,5); i32[2,3] (1,1,1) -1; bf16[4] (2,2)"],
    bad=[
        Bad("f32[4]", (1, 2), match="add up to 3, but axis 0 has size 4"),
        Bad("f32[4]", (5, -1), match="negative"),
        Bad("f32[T]", (2, 2), dims={"T": 4}, match="axis 0 has size T"),
    ],
)
def split(x: Tensor, sizes: tuple[int, ...], axis: int = 0) -> Any:
    """A tuple of tensors: ``x`` split along ``axis`` into parts of the given sizes, in order.

    Raises ShapeError if the sizes do not add up to the size of the axis."""
    return np.split(x, np.cumsum(sizes)[:-1].astype(np.int64), axis)


@split.infer
def _(x: TensorType, sizes: Any, axis: int) -> tuple[TensorType, ...]:
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
    """The (start, stop) of each part; the last part goes to the end."""
    cuts: list[Any] = [0]
    for size in sizes:
        cuts.append(shapes.normalize(cuts[-1] + size))
    return [*zip(cuts, [*cuts[1:-1], None])]


@split.expansion
def _(x: Any, sizes: Any, axis: int) -> Any:
    parts = as_shape(sizes, "sizes")
    return tuple(slice_(x, axis, start, stop) for start, stop in cuts_of(parts))


@op("composite", any_order=True, samples=[S(["f32[B,2]", "i32[3]"], 1, dims={"B": 2}), S(["f32[3]"], 0)])
def getitem(x: Tensor, index: int) -> Tensor:
    """The result with number ``index`` of an op with several results. Raises ShapeError if there are fewer."""
    return x[index]


@getitem.infer
def _(x: Any, index: int) -> Any:
    if not isinstance(x, (tuple, list)):
        raise ShapeError(f"x is one tensor {x}, not several; use slice or select on a tensor")
    if type(index) is not int or not -len(x) <= index < len(x):
        raise ShapeError(f"result {index!r} of {number_of(len(x), 'result')}")
    return x[index]


@getitem.expansion
def _(x: Any, index: int) -> Any:
    return x[index]
