"""Indexing by run-time integers: take, index, gather, embedding, scatters, index_update, one_hot.

In: tensors and integer tensors. Negative indices count from the end; an index out of range raises
IndexError when the program runs, also in compiled code. :mod:`fxlite.tracing.subscript` expresses NumPy's
``x[...]`` with these ops and views.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, DTypeError, ShapeError
from fxlite.base.on_demand import is_expression
from fxlite.ops.op import Op, Tensor, Tensors, broadcast_shapes, normalize_axis, op, shape_of, weak_dtype
from fxlite.ops.parameters import Attribute
from fxlite.ops.samples import Bad, S, uniform
from fxlite.ops.slicing import parts_of, select, slice_update, updated_type
from fxlite.ops.view import dims_of, fill_value
from fxlite.scalar import expr
from fxlite.scalar.expr import CheckedIndex, Expr, MultiIndex, Reader
from fxlite.scalar.functions import COMBINATIONS
from fxlite.scalar.index import Index, Value
from fxlite.types import dtypes, shapes
from fxlite.types.dtypes import DType
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType


def require_integers(value: Any, name: str) -> None:
    """Raise DTypeError unless the tensor (or number) holds integers."""
    dtype = weak_dtype(value)
    if type(dtype) is int or (isinstance(dtype, DType) and dtype.is_integer):
        return
    shown = dtype if isinstance(dtype, DType) else type(dtype).__name__
    hint = "; for a mask use np.where(mask, a, b)" if shown in (dtypes.bool_, "bool") else ""
    raise DTypeError(f"{name} must hold integers, not {shown}{hint}")


def checked_position(position: Expr, extent: Index, where_text: str) -> tuple[Index, Expr]:
    """A run-time index, counted from the start and bounds-checked, and the condition under which it may be
    used."""
    position = expr.cast(position, dtypes.int64)
    known = expr.as_index(position)
    if known is not None and Index.of(0) <= known and known < extent:
        return known, expr.TRUE
    checked = CheckedIndex(dtypes.int64, position, extent, where_text)
    return Index.of(Value(checked)), expr.apply("ge", checked, expr.const(0, dtypes.int64))


# -- reading ---------------------------------------------------------------------------------------
@op(
    "gather",
    moves_values=True,
    shares_memory="perhaps",
    gives_number=True,
    reads_some_of="x",
    looks_up=("index", "x", None),
    samples=[
        "f32[V,4] i64[B](-3,3) V=3 B=5; f32[3,4] i32[2,2](-4,4) 1; f64[5] i64[](0,5); f32[2,3,4] u8[3](0,4) -1",
        "i32[3] i64[0](0,1); bool[2,2] i8[3](-2,2) 0; bf16[4,2] i16[3](0,4); f32[3,0] i64[2](0,3); f16[3,2] -1 1",
    ],
    bad=[
        Bad("f32[3]", "f32[2]", match="must hold integers"),
        Bad("f32[3]", "bool[3]", match="np.where"),
        Bad("f32[3]", "i64[2]", 1, match="out of range"),
    ],
)
def take(x: Tensor, index: Tensor, axis: int = 0) -> Tensor:
    """The elements of ``x`` at the integers ``index`` along ``axis``, as np.take. In the result, the axes of
    ``index`` replace ``axis``.

    Raises DTypeError unless ``index`` holds integers, and IndexError at run time for one out of range."""
    return np.take(x, index, axis)


@take.canonical
def _(x: Any, index: Any, axis: Any = 0) -> Any:
    return (select, {"x": x, "axis": axis, "index": index}) if type(index) is int else None


@take.infer
def _(x: TensorType, index: Any, axis: int) -> TensorType:
    require_integers(index, "index")
    axis = normalize_axis(axis, x.rank)
    return x.with_shape((*x.shape[:axis], *shape_of(index), *x.shape[axis + 1 :]))


@take.body
def _(i: MultiIndex, x: Reader, index: Reader, axis: int) -> Expr:
    axis = normalize_axis(axis, len(x.shape))
    end = axis + len(index.shape)
    text = f"take along axis {axis}"
    return expr.read_at_value(x, axis, i[:axis], index[i[axis:end]], i[end:], text)


@op(
    "gather",
    reads_some_of="x",
    any_order=True,
    samples=[
        S("f32[3,4]", [uniform("i64[B]", -3, 3), uniform("i64[B]", -4, 4)], dims={"B": 5}),
        S("f32[2,3,4]", [uniform("i32[2,1]", 0, 3), uniform("i64[5]", 0, 4)], 1),
        S("f64[2,2,2]", [uniform("i64[3]", 0, 2), uniform("i64[]", 0, 2), uniform("i8[1]", -2, 0)]),
        S("i32[3]", [uniform("i64[2]", 0, 3)]),
        S("bf16[2,2]", [uniform("i64[0]", 0, 2), 1]),
    ],
    bad=[
        Bad("f32[3]", ["i64[2]", "i64[2]"], match="2 indices from axis 0"),
        Bad("f32[3,3]", ["i64[2]", "f32[2]"], match="must hold integers"),
        Bad("f32[3,3]", ["i64[2]", "i64[3]"], match="do not broadcast"),
    ],
)
def index(x: Tensor, indices: Tensors, axis: int = 0) -> Tensor:
    """``x[:, i, j]`` for ``indices=(i, j)``, ``axis=1``: integer tensors, broadcast against each other, index
    the axes from ``axis`` on. In the result, their common shape replaces these axes.

    Raises DTypeError unless they hold integers, and IndexError at run time for one out of range."""
    lead = (builtins.slice(None),) * normalize_axis(axis, np.ndim(x))
    return x[(*lead, *(np.asarray(i) for i in indices))]


@index.infer
def _(x: TensorType, indices: Any, axis: int) -> TensorType:
    axis = normalize_axis(axis, x.rank)
    end = axis + len(indices)
    if not indices or end > x.rank:
        raise ShapeError(f"{len(indices)} indices from axis {axis} on do not fit rank {x.rank}")
    for one in indices:
        require_integers(one, "indices")
    common = broadcast_shapes(*(shape_of(one) for one in indices))
    return x.with_shape((*x.shape[:axis], *common, *x.shape[end:]))


@index.body
def _(i: MultiIndex, x: Reader, indices: tuple[Reader, ...], axis: int) -> Expr:
    axis = normalize_axis(axis, len(x.shape))
    end = axis + max(len(one.shape) for one in indices)
    positions: list[Index] = []
    guards: list[Expr] = []
    for number, one in enumerate(indices, start=axis):
        value = expr.read_broadcast(one, i[axis:end])
        position, guard = checked_position(value, x.shape[number], f"index on axis {number}")
        positions.append(position)
        guards.append(guard)
    around = (*i[:axis], *i[end:])
    return expr.add_guard(x[(*i[:axis], *positions, *i[end:])], expr.both(*guards), around)


@op(
    "gather",
    numpy="np.take_along_axis x index axis:",
    reads_some_of="x",
    looks_up=("index", "x", None),
    aliases=("take_along_axis",),
    samples=[
        "f32[B,4] i64[B,2](-4,4) 1 B=3; f32[3,4] i64[1,4](0,3) 0; f64[5] i32[7](-5,5) 0; f32[1,4] i64[3,2](0,4) -1",
        "f32[3,2] i8[1,5](0,2) 1; bool[2,2] i64[2,0](0,1) 1; bf16[2,3] u8[2,1](0,3) 1",
    ],
    bad=[
        Bad("f32[3,4]", "i64[3]", 1, match="rank"),
        Bad("f32[3,4]", "f32[3,4]", 1, match="must hold integers"),
        Bad("f32[3,4]", "i64[2,4]", 1, match="do not broadcast"),
    ],
)
def gather(x: Tensor, index: Tensor, axis: int) -> Tensor:
    """``out[i, j] = x[i, index[i, j]]`` for axis 1, as np.take_along_axis: ``index`` has the rank of ``x``,
    and the other axes broadcast.

    Raises DTypeError unless ``index`` holds integers, and IndexError at run time for one out of range."""
    return np.take_along_axis(x, index, axis)


@gather.infer
def _(x: TensorType, index: Any, axis: int) -> TensorType:
    require_integers(index, "index")
    if not isinstance(index, TensorType) or index.rank != x.rank:
        raise ShapeError(f"index must have the rank of x, {x.rank}, not {len(shape_of(index))}")
    axis = normalize_axis(axis, x.rank)
    others = [(*t.shape[:axis], 1, *t.shape[axis + 1 :]) for t in (x, index)]
    common = broadcast_shapes(*others)
    return x.with_shape((*common[:axis], index.shape[axis], *common[axis + 1 :]))


@gather.body
def _(i: MultiIndex, x: Reader, index: Reader, axis: int) -> Expr:
    axis = normalize_axis(axis, len(x.shape))

    def fitted(reader: Reader) -> MultiIndex:  # the axes that are broadcast read position 0
        return tuple(Index.of(0) if a != axis and size.constant == 1 else i[a] for a, size in enumerate(reader.shape))

    at = fitted(x)
    text = f"gather along axis {axis}"
    return expr.read_at_value(x, axis, at[:axis], index[fitted(index)], at[axis + 1 :], text)


@op(
    "composite",
    reads_some_of="weight",
    looks_up=("x", "weight", 0),
    role="table",
    samples=["i64[B,T](0,5) f32[5,4] B=2 T=3; i32[](0,3) f64[3,2]; i64[0](0,1) f32[3,2]; u8[4](0,6) bf16[6,1]"],
    bad=[Bad("f32[3]", "f32[4,2]", match="must hold integers"), Bad("i64[3]", "f32[4]", match="rank 2")],
)
def embedding(x: Tensor, weight: Tensor) -> Tensor:
    """The rows of ``weight`` [V, D] at the integers ``x``, with the shape ``x.shape + (D,)``.

    Raises DTypeError unless ``x`` holds integers, and IndexError at run time for one out of range."""
    return np.take(weight, x, 0)


@embedding.infer
def _(x: Any, weight: TensorType) -> TensorType:
    require_integers(x, "x")
    if weight.rank != 2:
        raise ShapeError(f"weight must have rank 2, [words, size], not {weight}")
    return weight.with_shape((*shape_of(x), weight.shape[1]))


@embedding.expansion
def _(x: Any, weight: Any) -> Any:
    return take(weight, x, 0)


# -- writing ---------------------------------------------------------------------------------------
_SCATTERED = [
    "f32[B,5] i64[B,7](-5,5) f32[B,7] 1 B=2; f32[4] i32[9](0,4) f32[9] 0; f64[3,3] i64[2,2](0,3) f64[2,2] 0",
    "i32[4] i64[6](0,2) i32[6] 0; f32[3,2] i64[0,2](0,1) f32[0,2] 0; bf16[3] i64[5](0,3) bf16[5] -1",
    "i8[2] u8[3](0,2) i8[3] 0; f16[2,3] i64[2,4](-3,3) f16[2,4] 1",
    "f32[B,5] i64[B,7](-9,9) f32[B,7] 1 'drop' B=2; i32[4] u8[6](0,9) i32[6] 0 'drop'",
    "bf16[3] i8[5](-5,5) bf16[5] 0 'drop'; f64[3,2] i64[4,2](-4,5) f64[4,2] 0 'drop'",
]
_NOT_SCATTERED = [
    Bad("f32[3]", "f32[2]", "f32[2]", 0, match="must hold integers"),
    Bad("f32[3]", "i64[2]", "f32[3]", 0, match="shape of index"),
    Bad("f32[3]", "i64[2]", "f64[2]", 0, match="dtype of x"),
    Bad("f32[3,3]", "i64[4,2]", "f32[4,2]", 1, match="larger than x on axis 0"),
    Bad("f32[3,3]", "i64[4]", "f32[4]", 0, match="rank of x"),
    Bad("f32[3]", "i64[2]", "f32[2]", 0, "clip", match="mode must be"),
]
_RAISES = """{} ``index`` and ``source`` have the same shape, which is not larger than that of ``x`` on other axes.

    An index out of range raises IndexError at run time (``mode="raise"``), or its element is left out ("drop").
    Raises ShapeError or DTypeError if they do not fit."""

#: A position that is in range nowhere, for elements that a scatter with ``mode="drop"`` leaves out.
NOWHERE = int(np.iinfo(np.int64).max)


def counted_from_start(position: Expr, size: Index) -> Expr:
    """A run-time position, counted from the end if it is negative, as one that is counted from the start."""
    from_end = expr.apply("add", position, expr.index_value(size))
    return expr.where(expr.apply("lt", position, expr.const(0, dtypes.int64)), from_end, position)


def _write(out: Any, at: Any, source: Any) -> None:
    out[at] = source


def _register_scatter(name: str, combines: str, write: Callable[..., Any], doc: str) -> Op:
    """Register an op that copies ``x`` and puts the elements of ``source``, in order, at the positions
    ``index`` along ``axis``. ``combines``: the reduction that combines several elements for one place;
    "last": the last one stays."""
    is_last = combines == "last"

    def call(x: Tensor, index: Tensor, source: Tensor, axis: int, mode: str = "raise") -> Tensor:
        array = np.asarray(x)
        axis = normalize_axis(axis, array.ndim)
        kind = dtypes.dtype(array.dtype)
        out = array.copy() if is_last else array.astype(kind.compute.numpy)
        at: list[Any] = list(np.indices(np.shape(index), sparse=True))
        at[axis] = places = np.asarray(index)
        values = np.asarray(source).astype(out.dtype)
        if mode == "drop":
            kept = (places >= -array.shape[axis]) & (places < array.shape[axis])
            at, values = [np.broadcast_to(a, kept.shape)[kept] for a in at], values[kept]
        with np.errstate(all="ignore"):
            write(out, tuple(at), values)
        return out.astype(array.dtype)

    call.__doc__ = _RAISES.format(doc)
    samples = [*_SCATTERED, "bool[3] i64[5](0,3) bool[5] 0"]
    bad = [*_NOT_SCATTERED, Bad("bool[3]", "i64[2]", "bool[2]", 0, match="not bool")]
    record = op(
        "scatter",
        name=name,
        looks_up=("index", "x", None),
        combines=combines,
        samples=samples if is_last else _SCATTERED,
        bad=_NOT_SCATTERED if is_last else bad,
    )(call)

    def infer(x: TensorType, index: Any, source: Any, axis: int, mode: str) -> TensorType:
        require_integers(index, "index")
        axis = normalize_axis(axis, x.rank)
        if mode not in ("raise", "drop"):
            raise ArgumentError(f'mode must be "raise" or "drop", not {mode!r}')
        if len(shape_of(index)) != x.rank:
            given = len(shape_of(index))
            raise ShapeError(f"index must have the rank of x, {x.rank}, not {given}")
        if not shapes.shapes_equal(shape_of(index), shape_of(source)):
            raise ShapeError(f"source must have the shape of index, {index}, not {source}")
        if weak_dtype(source) is not x.dtype:
            raise DTypeError(f"source must have the dtype of x, {x.dtype}; cast it with .astype")
        if x.dtype.is_bool and not is_last:
            raise DTypeError("x must hold numbers, not bool; cast it to an integer")
        for a, (size, limit) in enumerate(zip(index.shape, x.shape)):
            if a != axis and not shapes.at_least(limit, size):
                raise ShapeError(f"index ({size}) is larger than x on axis {a} ({limit})")
        return x

    def body(i: MultiIndex, x: Reader, index: Reader, source: Reader, axis: int, mode: str) -> Expr:
        axis = normalize_axis(axis, len(x.shape))
        computed = dtypes.int64 if x.dtype.is_integer else x.dtype.compute
        inside = expr.both(*(expr.less(i[a], size) for a, size in enumerate(index.shape) if a != axis))

        def chosen(position: Index) -> tuple[Expr, MultiIndex]:
            """Whether an element of the source is put at this place, and its index."""
            at = (*i[:axis], position, *i[axis + 1 :])
            target = expr.read_guarded(index, at, inside, 0)
            place = expr.cast(target, dtypes.int64)
            if mode == "drop":
                place = counted_from_start(place, x.shape[axis])
            else:
                place = CheckedIndex(dtypes.int64, place, x.shape[axis], f"{name} along axis {axis}")
            return expr.both(inside, expr.apply("eq", place, expr.index_value(i[axis]))), at

        def term(position: Index) -> Expr:
            holds, at = chosen(position)
            value = expr.cast(expr.read_guarded(source, at, inside, 0), computed)
            neutral = expr.Const(computed, COMBINATIONS[combines].start(computed))
            return expr.where(holds, value, neutral)

        def number(position: Index) -> Expr:
            return expr.where(chosen(position)[0], expr.index_value(position), expr.const(-1, dtypes.int64))

        if is_last:
            last = expr.reduce("max", [index.shape[axis]], number)
            found = expr.apply("ge", last, expr.const(0, dtypes.int64))
            at = (*i[:axis], Index.of(Value(last)), *i[axis + 1 :])
            return expr.where(found, expr.read_guarded(source, at, found, 0), x[i])
        total = expr.reduce(combines, [index.shape[axis]], term)
        function = COMBINATIONS[combines].function
        return expr.cast(expr.apply(function, expr.cast(x[i], computed), total), x.dtype)

    def cost(x: TensorType, index: Any, source: Any, axis: int, mode: str) -> Any:
        return 0 if is_last else shapes.product(shape_of(index))  # the body compares each place with all of them

    record.infer(infer)
    record.body(body)
    record.cost(cost)
    return record


scatter_add = _register_scatter(
    "scatter_add",
    "sum",
    np.add.at,
    "A copy of ``x`` with ``out[i, index[i, j]] += source[i, j]`` for axis 1, as "
    "torch.scatter_add; equal indices add up.",
)
scatter_mul = _register_scatter(
    "scatter_mul", "prod", np.multiply.at, "A copy of ``x`` with ``out[i, index[i, j]] *= source[i, j]`` for axis 1."
)
scatter_max = _register_scatter(
    "scatter_max",
    "max",
    np.maximum.at,
    "A copy of ``x`` with ``out[i, index[i, j]] = max(out[i, index[i, j]], source[i, j])`` for axis 1; NaN wins.",
)
scatter_min = _register_scatter(
    "scatter_min",
    "min",
    np.minimum.at,
    "A copy of ``x`` with ``out[i, index[i, j]] = min(out[i, index[i, j]], source[i, j])`` for axis 1; NaN wins.",
)
scatter_set = _register_scatter(
    "scatter_set",
    "last",
    _write,
    "A copy of ``x`` with ``out[i, index[i, j]] = source[i, j]`` for axis 1; of equal indices the "
    "last one counts, as in NumPy.",
)


@op(
    "gather",
    writes_part=True,
    samples=[
        S("f32[B,6]", "f32[6]", [uniform("i64[]", -3, 3)], (None,), dims={"B": 3}),
        S("f32[4,3]", "f32[]", [uniform("i64[]", 0, 4), uniform("i32[]", 0, 3)], (None, None)),
        S("f64[4,5]", "f64[2]", [uniform("i64[]", -4, 0)], (None, (1, 3, 1))),
        S("f64[4,5]", 2.5, [uniform("i64[]", 0, 5)], ((0, None, 2), None)),
        S("i32[3,4]", "i32[1]", [uniform("u8[]", 0, 3)], (None, (1, 2, 1))),
        S("bool[4]", True, [uniform("i64[]", 0, 4)], (None,)),
        S("bf16[4,2]", "bf16[2]", [uniform("i64[]", 0, 4)], (None,)),
        S("f16[2,2,3]", "f16[3]", [uniform("i64[]", 0, 2)], (1, None)),
    ],
    bad=[
        Bad("f32[3]", "f32[2]", ["i64[]"], (None,), match="do not broadcast"),
        Bad("f32[3]", "f64[]", ["i64[]"], (None,), match="dtype of x"),
        Bad("f32[3]", "f32[]", ["f32[]"], (None,), match="must hold integers"),
        Bad("f32[3]", "f32[]", ["i64[2]"], (None,), match="one integer"),
        Bad("f32[3,2]", "f32[]", ["i64[]"], (None, None), match="2 positions in at"),
    ],
)
def index_update(x: Tensor, values: Tensor, positions: Tensors, at: Attribute) -> Tensor:
    """A copy of ``x`` with ``out[at] = values``, where each None in ``at`` stands for the next of the integers
    ``positions``; otherwise as slice_update. ``out[i] = v`` with a computed ``i`` is traced as this op.

    Raises ShapeError if ``values`` do not fit, DTypeError unless they have the dtype of ``x``, and
    IndexError at run time for a position out of range."""
    out = np.array(x)
    given = iter(positions)
    found = [next(given) if part is None else part for part in at]
    out[tuple(builtins.slice(*p) if isinstance(p, tuple) else np.asarray(p)[()] for p in found)] = values
    return out


def _known_parts(positions: Any, at: Any, shape: Any) -> list[Any]:
    """``at`` for each axis, with None for the axes that positions index."""
    if not isinstance(at, tuple) or len(at) > len(shape):
        raise ArgumentError(f"at must hold at most {len(shape)} ints, slices and None, not {at!r}")
    count = sum(part is None for part in at)
    if count != len(positions):
        raise ArgumentError(f"there are {count} positions in at, but {len(positions)} given")
    whole = tuple((0, None, 1) if part is None else part for part in at)
    found = parts_of(whole, shape)
    return [None if n < len(at) and at[n] is None else part for n, part in enumerate(found)]


def parts_of_update(bound: Mapping[str, Any]) -> list[Any]:
    """The part that a call of slice_update or index_update writes, for each axis: a position, None for a
    computed position, or (start, stop, length, step)."""
    return _known_parts(bound.get("positions", ()), bound["at"], bound["x"].type.shape)


def part_size(bound: Mapping[str, Any]) -> Dim:
    """The number of elements that a call of slice_update or index_update writes."""
    return shapes.product(part[2] for part in parts_of_update(bound) if isinstance(part, tuple))


@index_update.canonical
def _(x: Any, values: Any, positions: Any, at: Any) -> Any:
    if not isinstance(at, tuple):
        return None
    fixed = tuple(value for value in positions if type(value) is int)
    if not positions or fixed:
        given = iter(positions)
        whole = [next(given, None) if part is None else part for part in at]
        moving = tuple(v for v in positions if type(v) is not int)
        new = tuple(p if type(p) is int or isinstance(p, tuple) else None for p in whole)
        if moving:
            return index_update, {"x": x, "values": values, "positions": moving, "at": new}
        return slice_update, {"x": x, "values": values, "at": new}
    return None


@index_update.infer
def _(x: TensorType, values: Any, positions: Any, at: Any) -> TensorType:
    for one in positions:
        require_integers(one, "positions")
        if shape_of(one):
            raise ShapeError(f"a position is one integer, not {one}")
    part = tuple(p[2] for p in _known_parts(positions, at, x.shape) if isinstance(p, tuple))
    return updated_type(x, values, part)


@index_update.body
def _(i: MultiIndex, x: Reader, values: Reader, positions: tuple[Reader, ...], at: Any) -> Expr:
    given = iter(positions)
    known, free, taken = [], [], []
    conditions: list[Expr] = []
    for axis, part in enumerate(_known_parts(positions, at, dims_of(x))):
        if part is not None:
            known.append(at[axis] if axis < len(at) else (0, None, 1))
            free.append(i[axis])
            taken.append(axis)
            continue
        value = expr.cast(next(given)[()], dtypes.int64)
        text = f"index_update on axis {axis}"
        checked = CheckedIndex(dtypes.int64, value, x.shape[axis], text)
        conditions.append(expr.apply("eq", checked, expr.index_value(i[axis])))
    inside = expr.both(*conditions)

    class Part:
        """A reader of the elements at the positions, for the body of slice_update."""

        dtype, shape = x.dtype, tuple(x.shape[axis] for axis in taken)

        def __getitem__(self, index: Any) -> Expr:
            return x[i]

    if not taken:
        new = (
            expr.const(fill_value(values.value, x.dtype), x.dtype)
            if isinstance(values, expr.ConstReader)
            else values[()]
        )
    else:
        new = slice_update.element(tuple(free), {"x": Part(), "values": values, "at": tuple(known)})
    return expr.where(inside, new, x[i])


@op(
    "gather",
    samples=["i64[B](-3,3) 3 B=5; i32[2,2](0,4) 4 'f32'; i64[0] 2; u8[3](0,1) 1 'bool'; i64[](0,3) 3 'bf16'"],
    bad=[
        Bad("f32[3]", 3, match="must hold integers"),
        Bad("i64[3]", 0, match="at least 1"),
        Bad("i64[3]", 2.0, match="num_classes must be"),
    ],
)
def one_hot(x: Tensor, num_classes: int, dtype: DType = "i64") -> Tensor:  # type: ignore[assignment]
    """1 where the position on a new last axis (of size ``num_classes``) equals the integer ``x``, else 0. The
    default dtype is i64, as in torch; negative integers count from the end, as in ``np.eye(n)[x]``.

    Raises DTypeError unless ``x`` holds integers, and IndexError at run time for one out of range."""
    return np.eye(num_classes, dtype=dtypes.dtype(dtype).numpy)[np.asarray(x)]


@one_hot.infer
def _(x: Any, num_classes: Any, dtype: Any) -> TensorType:
    require_integers(x, "x")
    if not (type(num_classes) is int or is_expression(num_classes)):
        raise ArgumentError(f"num_classes must be an int or a named dim, not {num_classes!r}")
    if type(num_classes) is int and num_classes < 1:
        raise ShapeError(f"num_classes must be at least 1, not {num_classes}")
    return TensorType((*shape_of(x), num_classes), dtypes.dtype(dtype))


@one_hot.body
def _(i: MultiIndex, x: Reader, num_classes: Any, dtype: Any) -> Expr:
    label = expr.cast(x[i[:-1]], dtypes.int64)
    checked = CheckedIndex(dtypes.int64, label, Index.of(num_classes), "one_hot")
    equal = expr.apply("eq", checked, expr.index_value(i[-1]))
    return expr.cast(equal, dtypes.dtype(dtype))
