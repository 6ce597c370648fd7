"""Views: ops each of whose output elements is an element of their operand (or, for ``pad``, ``tril`` and
``triu``, a constant).

In: a tensor and attributes in dims (ints or named). Out: a record whose body is an index map, so that a
back end can read through it instead of copying. Parts of an axis (``slice``, ``select``) are in
:mod:`fxlite.ops.slicing`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, ShapeError, number_of
from fxlite.base.on_demand import is_expression, sympy
from fxlite.ops.op import Op, Tensor, normalize_axis, op, to_dim
from fxlite.ops.samples import Bad, S, special
from fxlite.scalar import expr
from fxlite.scalar.expr import Expr, MultiIndex, Reader
from fxlite.scalar.index import Index, extremum, flatten, unflatten
from fxlite.types import dtypes, shapes
from fxlite.types.shapes import Dim, Shape, symbols
from fxlite.types.tensor_type import TensorType


# -- dims ------------------------------------------------------------------------------------------
def known_type(x: Any) -> TensorType | None:
    """The type of a node, if it has one; None for arrays and untyped nodes."""
    found = getattr(x, "type", None)
    return found if isinstance(found, TensorType) else None


def dims_of(x: Reader) -> Shape:
    """The shape of a body's input, as dims."""
    return tuple(to_dim(s) for s in x.shape)


def as_shape(shape: Any, what: str = "shape") -> Shape:
    """A shape as a tuple of dims; an int is a shape of rank 1. Raises ArgumentError or
    ShapeError."""
    if isinstance(shape, (str, float)) or shape is None:
        raise ArgumentError(f"{what} must be a tuple of ints or named dims, not {shape!r}")
    return tuple(shapes.normalize(d) for d in (shape if isinstance(shape, tuple) else (shape,)))


@functools.lru_cache(maxsize=4096)
def exact_quotient(total: Dim, part: Dim) -> Dim | None:
    """``total / part`` if that is an integer for all sizes, else None."""
    if type(total) is int and type(part) is int:
        return total // part if part and total % part == 0 else None
    (whole, by), back = symbols.in_multiples(total, part)
    quotient = sympy.cancel(whole / by)
    if sympy.fraction(quotient)[1] != 1:
        return None
    whole, parts = symbols.in_parts(quotient)
    if parts > 1 and not symbols.divides(parts, whole):
        return None
    return shapes.normalize(quotient.xreplace(back) if back else quotient)


# -- reshape ---------------------------------------------------------------------------------------
def resolve_shape(old: Shape, shape: Any) -> Shape:
    """The shape that results from ``reshape``, with -1 replaced. Raises ShapeError if the numbers of elements
    differ or cannot be proved equal."""
    new = as_shape(shape)
    total = shapes.product(old)
    unknown = [a for a, d in enumerate(new) if type(d) is int and d == -1]
    if any(type(d) is int and d < -1 for d in new) or len(unknown) > 1:
        raise ShapeError(f"shape {new} may hold one -1 (to be solved) and no other negative size")
    if unknown:
        known = shapes.product(d for a, d in enumerate(new) if a != unknown[0])
        solved = None if type(known) is int and known == 0 else exact_quotient(total, known)
        if solved is None:
            raise _no_reshape(old, new, f": {known} does not divide {total}")
        return tuple(solved if a == unknown[0] else d for a, d in enumerate(new))
    if not shapes.equal(total, shapes.product(new)):
        raise _no_reshape(old, new, f" ({number_of(shapes.product(new), 'element')})")
    return new


def _no_reshape(old: Shape, new: Shape, why: str) -> ShapeError:
    text = f"{_text(old)} ({number_of(shapes.product(old), 'element')}) cannot be reshaped to {_text(new)}{why}"
    named = shapes.names((*old, *new))
    hint = "; named dims must divide for all sizes: say 2*T for an even one" if named else ""
    return ShapeError(text + hint)


def _text(shape: Shape) -> str:
    return f"[{','.join(map(str, shape))}]"


def _prefixes(shape: Sequence[Index]) -> list[Index]:
    found = [Index.of(1)]
    for extent in shape:
        found.append(found[-1] * extent)
    return found


def reshaped_index(i: MultiIndex, new: MultiIndex, old: MultiIndex) -> MultiIndex:
    """The index into an array of shape ``old`` for element ``i`` of its reshape to ``new``. Runs of axes with
    equal products are mapped separately, so that unchanged axes need no division."""
    before, after = _prefixes(old), _prefixes(new)
    result: list[Index] = []
    p = q = 0
    for end in range(1, len(new) + 1):
        found = next((k for k in range(p, len(old) + 1) if before[k] == after[end]), None)
        if end == len(new):
            found = len(old)
        if found is not None:
            address = flatten(i[q:end], new[q:end])
            result += unflatten(address, old[p:found])
            p, q = found, end
    return tuple(result) if new else tuple(Index.of(0) for _ in old)


@op(
    "view",
    shares_memory="contiguous",
    moves_values=True,
    keeps_order=True,
    participle="reshaped",
    method="reshape",
    samples=[
        "f32[B,4,6] (-1,24) B=3; f32[B,T,6] (-1,2,3) B=2 T=5; f32[2,B,4*D] (-1,8) B=3 D=2; f32[3,4] (4,3)",
        "f32[12] (2,1,-1); f64[1] (); i32[] (1,1); f32[0,3] (3,0); f16[2,3,4] (6,4); bf16[2,6] (2,3,2); bool[4] (2,2)",
        "f32[6] -1",
    ],
    bad=[
        Bad("f32[3,4]", (5, 2), match="12 elements"),
        Bad("f32[3,4]", (5, -1), match="5 does not divide 12"),
        Bad("f32[T,3]", (2, -1), dims={"T": 2}, match="say 2*T"),
        Bad("f32[4]", (-1, -1), match="one -1"),
        Bad("f32[4]", 2.0, match="tuple of ints"),
    ],
)
def reshape(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """``x`` with the same elements in row-major order and another shape; one size may be -1.

    Raises ShapeError if the number of elements differs or, with named dims, may differ."""
    return np.reshape(x, shape)


@reshape.canonical
def _(x: Any, shape: Any) -> Any:
    return None if isinstance(shape, tuple) else (reshape, {"x": x, "shape": as_shape(shape)})


@reshape.infer
def _(x: TensorType, shape: Any) -> TensorType:
    return x.with_shape(resolve_shape(x.shape, shape))


@reshape.body
def _(i: MultiIndex, x: Reader, shape: Any) -> Expr:
    new = tuple(Index.of(d) for d in resolve_shape(dims_of(x), shape))
    if any(s.constant == 0 for s in x.shape):
        return expr.const(0, x.dtype)  # there is no element to read
    return x[reshaped_index(i, new, x.shape)]


# -- axes ------------------------------------------------------------------------------------------
@op(
    "view",
    shares_memory="always",
    moves_values=True,
    participle="permuted",
    method="transpose",
    samples=[
        "f32[B,T,4] (1,0,2) B=2 T=3; f32[2,3,4,5] (0,2,-1,1); f64[3,4] (1,0); i8[5] (0,); f32[] ()",
        "bool[2,0,3] (2,0,1); bf16[2,3] (1,0); f16[1,3,1] (2,1,0)",
    ],
    bad=[
        Bad("f32[2,3]", (0, 0), match="each of the axes 0..1 once"),
        Bad("f32[2,3]", (0,), match="each of the axes 0..1 once"),
        Bad("f32[2,3]", (0, 2), match="out of range"),
    ],
)
def permute(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """``x`` with its axes in the order ``axes``: output axis ``k`` is axis ``axes[k]`` of ``x``.

    Raises ShapeError if ``axes`` is not a permutation."""
    return np.transpose(x, axes)


@permute.canonical
def _(x: Any, axes: Any) -> Any:
    if isinstance(axes, tuple) and any(type(a) is int and -len(axes) <= a < 0 for a in axes):
        plain = tuple(a % len(axes) if -len(axes) <= a < 0 else a for a in axes)
        return permute, {"x": x, "axes": plain}
    return None


def _order(axes: Any, rank: int) -> tuple[int, ...]:
    order = tuple(normalize_axis(a, rank) for a in (axes if isinstance(axes, tuple) else (axes,)))
    if sorted(order) != [*range(rank)]:
        raise ShapeError(f"axes {axes} must name each of the axes 0..{rank - 1} once")
    return order


@permute.infer
def _(x: TensorType, axes: Any) -> TensorType:
    return x.with_shape(tuple(x.shape[a] for a in _order(axes, x.rank)))


@permute.body
def _(i: MultiIndex, x: Reader, axes: Any) -> Expr:
    order = _order(axes, len(x.shape))
    return x[tuple(i[order.index(a)] for a in range(len(order)))]


@op(
    "view",
    shares_memory="always",
    moves_values=True,
    guards="shape",
    aliases=("broadcast_to",),
    samples=[
        "f32[B,1,4] (-1,3,-1) B=2; f32[4] (3,4); f64[] (2,2); f32[B,1] (2,-1,5) B=3; i32[1] (0,); bool[3,1] (3,4)",
        "bf16[1,3] (2,3); f32[0,1] (0,3); f16[3] (3,)",
    ],
    bad=[
        Bad("f32[3]", (4,), match="axis -1 is 3, not 4"),
        Bad("f32[3,1]", (3,), match="rank 2"),
        Bad("f32[3]", (-1, 3), match="-1 keeps"),
        Bad("f32[T]", (4,), dims={"T": 4}, match="axis -1 is T, not 4"),
    ],
)
def expand(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """``x`` broadcast to ``shape``, axes aligned at the end; -1 keeps the size of ``x``.

    Raises ShapeError if an axis of ``x`` has neither size 1 nor the requested size."""
    old = np.shape(x)
    padded = (1,) * (len(shape) - len(old)) + old
    return np.broadcast_to(x, [p if s == -1 else s for s, p in zip(shape, padded)])


@expand.infer
def _(x: TensorType, shape: Any) -> TensorType:
    new = as_shape(shape)
    extra = len(new) - x.rank
    if extra < 0:
        raise ShapeError(f"shape {_text(new)} has fewer axes than x, which has rank {x.rank}")
    result = list(new)
    for axis, want in enumerate(new):
        have = x.shape[axis - extra] if axis >= extra else None
        if type(want) is int and want < 0:
            if want != -1 or have is None:
                raise ShapeError(f"shape {_text(new)}: -1 keeps an axis of x, other sizes are >= 0")
            result[axis] = have
        elif have is not None and not shapes.equal(have, 1) and not shapes.equal(have, want):
            raise ShapeError(
                f"{_text(x.shape)} does not broadcast to {_text(new)}: axis {axis - len(new)} is "
                f"{have}, not {want} or 1"
            )
    return x.with_shape(tuple(result))


@expand.body
def _(i: MultiIndex, x: Reader, shape: Any) -> Expr:
    return expr.read_broadcast(x, i)


@op(
    "view",
    numpy=".squeeze axis:",
    shares_memory="always",
    moves_values=True,
    keeps_order=True,
    added_axes=-1,
    inverse="unsqueeze",
    samples=["f32[B,1,4] 1 B=3; f32[1] 0; f64[2,1] -1; i32[1,0] 0; bf16[1,1,3] 0"],
    bad=[
        Bad("f32[3]", 0, match="size 3"),
        Bad("f32[T,2]", 0, dims={"T": 1}, match="named dim"),
        Bad("f32[1]", 1, match="out of range"),
    ],
)
def squeeze(x: Tensor, axis: int) -> Tensor:
    """``x`` without ``axis``, which must have size 1. Raises ShapeError otherwise."""
    return np.squeeze(x, axis)


@squeeze.infer
def _(x: TensorType, axis: int) -> TensorType:
    axis = normalize_axis(axis, x.rank)
    size = x.shape[axis]
    if type(size) is not int:
        raise ShapeError(f"axis {axis} has the named dim {size}, which need not be 1; use x[:, 0]")
    if size != 1:
        raise ShapeError(f"only an axis of size 1 can be squeezed, axis {axis} has size {size}")
    return x.with_shape(x.shape[:axis] + x.shape[axis + 1 :])


@squeeze.body
def _(i: MultiIndex, x: Reader, axis: int) -> Expr:
    axis = normalize_axis(axis, len(x.shape))
    return x[(*i[:axis], Index.of(0), *i[axis:])]


@op(
    "view",
    shares_memory="always",
    moves_values=True,
    keeps_order=True,
    added_axes=1,
    inverse="squeeze",
    aliases=("expand_dims",),
    samples=["f32[B,4] 1 B=3; f32[] 0; f64[2,3] -1; i32[0] 1; bool[3] -2; f16[2,2] 0"],
    bad=[Bad("f32[3]", 2, match="out of range for rank 2")],
)
def unsqueeze(x: Tensor, axis: int) -> Tensor:
    """``x`` with a new axis of size 1 at ``axis`` of the result."""
    return np.expand_dims(x, axis)


@unsqueeze.infer
def _(x: TensorType, axis: int) -> TensorType:
    axis = normalize_axis(axis, x.rank + 1)
    return x.with_shape((*x.shape[:axis], 1, *x.shape[axis:]))


@unsqueeze.body
def _(i: MultiIndex, x: Reader, axis: int) -> Expr:
    axis = normalize_axis(axis, len(i))
    return x[i[:axis] + i[axis + 1 :]]


# -- moving within axes ----------------------------------------------------------------------------
@op(
    "view",
    numpy="np.flip x axis:",
    shares_memory="always",
    moves_values=True,
    inverse="flip",
    samples=["f32[B,5] 1 B=3; f32[T,2] 0 T=4; f64[1] 0; i32[2,3] -1; bool[0] 0; f16[3,2] 0"],
    bad=[Bad("f32[3]", 1, match="out of range"), Bad("f32[]", 0, match="out of range")],
)
def flip(x: Tensor, axis: int) -> Tensor:
    """``x`` in reverse order along one axis."""
    return np.flip(x, axis)


def _same_type(x: TensorType, axis: int, shift: Any = 0) -> TensorType:
    normalize_axis(axis, x.rank)
    if not (type(shift) is int or is_expression(shift)):
        raise ArgumentError(f"shift must be an int or a named dim, not {shift!r}")
    return x


flip.infer(_same_type)


@flip.body
def _(i: MultiIndex, x: Reader, axis: int) -> Expr:
    axis = normalize_axis(axis, len(x.shape))
    return x[(*i[:axis], x.shape[axis] - 1 - i[axis], *i[axis + 1 :])]


@op(
    "view",
    numpy="np.roll x shift axis:",
    moves_values=True,
    samples=[
        "f32[B,5] 2 1 B=3; f32[T,2] 1 0 T=4; f32[T] -7 0 T=3; f64[1] 5 0; i32[2,3] -1 -1; bool[0] 1 0; f16[3,4] 9 1",
        "bf16[4] 0 0",
    ],
    bad=[Bad("f32[3]", 1, 1, match="out of range"), Bad("f32[3]", 0.5, 0, match="shift must be")],
)
def roll(x: Tensor, shift: int, axis: int) -> Tensor:
    """``x`` shifted by ``shift`` along one axis; elements that leave at the end re-enter at the start."""
    return np.roll(x, shift, axis)


@roll.infer
def _(x: TensorType, shift: Any, axis: int) -> TensorType:
    return _same_type(x, axis, shift)


@roll.body
def _(i: MultiIndex, x: Reader, shift: Any, axis: int) -> Expr:
    axis = normalize_axis(axis, len(x.shape))
    size, place = x.shape[axis], i[axis]
    # the position of the first element
    start = extremum("min", Index.of(shift) % extremum("max", size, 1), size)

    def moved(by: Index) -> Expr:
        return x[(*i[:axis], place + by, *i[axis + 1 :])]

    if start.constant == 0:
        return moved(start)
    before, behind = expr.less(place, start), expr.less(start - 1, place)
    wrapped = expr.add_guard(moved(size - start), before)
    return expr.where(before, wrapped, expr.add_guard(moved(-start), behind))


@op(
    "view",
    moves_values=True,
    samples=[
        "f32[B,6] 1 3 B=2; f32[T,2] 0 2 2 T=7; f64[5] 0 5; f64[4] 0 1 3; i32[2,4] -1 2; bool[3,2] 0 3; bf16[6] 0 2 3",
        "f32[T] 0 3 T=6; f32[2] 0 3; f16[0,3] 1 2",
    ],
    bad=[
        Bad("f32[3]", 0, 5, match="a window of 5 is larger than axis 0 of f32[3]"),
        Bad("f32[3]", 1, 1, match="out of range"),
        Bad("f32[3]", 0, 2, 0, match="step must be an int >= 1"),
        Bad("f32[3]", 0, -1, match="size must be at least 0"),
    ],
)
def unfold(x: Tensor, axis: int, size: int, step: int = 1) -> Tensor:
    """All windows of ``size`` consecutive elements along ``axis``, each of which starts ``step`` after the previous
    one, as torch.Tensor.unfold: ``out[..., w, ..., k]`` is ``x[..., step * w + k, ...]``, with the position in the
    window as the last axis. There are ``(n - size) // step + 1`` windows, perhaps none.

    Raises ShapeError for a window that is larger than the axis by more than one step."""
    axis = normalize_axis(axis, np.ndim(x))
    count = (np.shape(x)[axis] - size) // step + 1
    places = step * np.arange(count)[:, None] + np.arange(size)
    return np.ascontiguousarray(np.moveaxis(np.take(x, places, axis), axis + 1, -1))


@unfold.infer
def _(x: TensorType, axis: int, size: Any, step: int) -> TensorType:
    axis = normalize_axis(axis, x.rank)
    if type(step) is not int or step < 1:
        raise ArgumentError(f"step must be an int >= 1, not {step!r}")
    (size,) = as_shape(size, "size")
    if type(size) is int and size < 0:
        raise ShapeError(f"size must be at least 0, not {size}")
    count = shapes.normalize(shapes.floordiv(x.shape[axis] - size, step) + 1)
    if type(count) is int and count < 0:
        raise ShapeError(f"a window of {size} is larger than axis {axis} of {x}")
    return x.with_shape((*x.shape[:axis], count, *x.shape[axis + 1 :], size))


@unfold.elements
def _(x: TensorType, axis: int, size: Any, step: int) -> list[Dim]:
    count = shapes.floordiv(x.shape[normalize_axis(axis, x.rank)] - size, step) + 1
    return [] if shapes.at_least(count, 0) else [shapes.normalize(count + 1)]


@unfold.body
def _(i: MultiIndex, x: Reader, axis: int, size: Any, step: int) -> Expr:
    axis = normalize_axis(axis, len(x.shape))
    return x[(*i[:axis], i[axis] * step + i[-1], *i[axis + 1 : -1])]


# -- with a constant outside -----------------------------------------------------------------------
@op(
    "view",
    samples=[
        "f32[B,3] ((0,0),(1,2)) B=2; f32[T] ((2,1),) 1.5 T=3; f64[2,2] ((1,0),(0,1)) value=-1.0; i32[3] ((1,1),) 7",
        "f32[0] ((2,1),); bool[2] ((1,0),) True; f32[2,3] ((0,0),(0,0)); f32[] (); bf16[3] ((1,1),) 0.5",
        S("f16[2]", ((0, 2),), float("-inf")),
        "i8[2] ((1,0),) 2.5",
        S(special("f32[2,3]"), ((0, 1), (1, 0)), float("nan")),
    ],
    bad=[
        Bad("f32[3]", ((1, 1), (1, 1)), match="one (low, high) pair for each of the 1 axes"),
        Bad("f32[3]", ((-1, 0),), match="x[1:]"),
        Bad("f32[3]", (1, 2), match="(low, high) pair"),
        Bad("i32[3]", ((1, 1),), float("inf"), match="does not fit i32"),
    ],
)
def pad(x: Tensor, padding: tuple[tuple[int, int], ...], value: float = 0) -> Tensor:
    """``x`` with ``padding[axis] = (low, high)`` elements of ``value`` before and after each axis.

    Raises ShapeError for a negative padding, and DTypeError for a value that the dtype cannot represent."""
    return np.pad(x, padding, constant_values=value) if np.ndim(x) else np.array(x)


def fill_value(value: Any, dtype: dtypes.DType, wraps: bool = False) -> Any:
    """A Python number as an element of the dtype, but without rounding floats. Raises LiteralError if it does
    not fit; see :func:`fxlite.types.dtypes.literal`."""
    if type(value) not in dtypes.NUMBERS:
        raise ArgumentError(f"value must be a number, not {value!r}")
    found = dtypes.literal(value, dtype, wraps)
    return float(value) if dtype.is_float else complex(value) if dtype.is_complex else found


@pad.infer
def _(x: TensorType, padding: Any, value: Any) -> TensorType:
    pairs = padding if isinstance(padding, tuple) else ()
    if len(pairs) != x.rank or not all(isinstance(p, tuple) and len(p) == 2 for p in pairs):
        raise ArgumentError(f"padding must hold one (low, high) pair for each of the {x.rank} axes, not {padding!r}")
    fill_value(value, x.dtype, x.dtype.is_unsigned)  # as in NumPy, only unsigned integers wrap around
    sizes: list[Dim] = []
    for size, (low, high) in zip(x.shape, (as_shape(p, "padding") for p in pairs)):
        if any(type(p) is int and p < 0 for p in (low, high)):
            raise ShapeError(f"padding {low, high} is negative; slice instead: x[1:], x[:-1]")
        sizes.append(shapes.normalize(size + low + high))
    return x.with_shape(tuple(sizes))


@pad.body
def _(i: MultiIndex, x: Reader, padding: Any, value: Any) -> Expr:
    moved = tuple(k - Index.of(low) for k, (low, _) in zip(i, padding))
    inside = expr.both(
        *(expr.within(k, size) for k, size, (low, high) in zip(moved, x.shape, padding) if not (low == 0 and high == 0))
    )
    return expr.read_guarded(x, moved, inside, fill_value(value, x.dtype, x.dtype.is_unsigned))


_TRIANGLES = [
    "f32[B,3,3] B=2; f32[T,T] 1 T=4; f64[2,4] -1; i32[4,2] 1; bool[3,3]; f32[0,3]; bf16[3,3] 5; f16[2,2] -9",
    "f32[3,3]! 0",
]
_BAD_TRIANGLES = [Bad("f32[3]", match="rank 2"), Bad("f32[3,3]", 1.5, match="k must be")]


@op("view", numpy="np.tril x k=", keeps_triangle="lower", samples=_TRIANGLES, bad=_BAD_TRIANGLES)
def tril(x: Tensor, k: int = 0) -> Tensor:
    """``x`` on and below diagonal ``k`` of its last two axes, 0 elsewhere. Rank 2 or more."""
    return np.tril(x, k)


@op("view", numpy="np.triu x k=", keeps_triangle="upper", samples=_TRIANGLES, bad=_BAD_TRIANGLES)
def triu(x: Tensor, k: int = 0) -> Tensor:
    """``x`` on and above diagonal ``k`` of its last two axes, 0 elsewhere. Rank 2 or more."""
    return np.triu(x, k)


def _infer_triangle(x: TensorType, k: Any) -> TensorType:
    if x.rank < 2:
        raise ShapeError(f"x must have rank 2 or more, not {x.rank}")
    if not (type(k) is int or is_expression(k)):
        raise ArgumentError(f"k must be an int or a named dim, not {k!r}")
    return x


def _attach_triangle(record: Op, lower: bool) -> None:
    def body(i: MultiIndex, x: Reader, k: Any = 0) -> Expr:
        row, column = i[-2] + Index.of(k), i[-1]
        kept = expr.less(column, row + 1) if lower else expr.less(row, column + 1)
        return expr.read_guarded(x, i, kept, 0)

    record.infer(_infer_triangle)
    record.body(body)


_attach_triangle(tril, lower=True)
_attach_triangle(triu, lower=False)
