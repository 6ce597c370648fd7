"""``x[a:b, c:d]`` with computed bounds for several axes, and computations with such parts: ``np.outer(v[k:], w[k:])``,
``A[k:, k:] @ B[k:]``.

In: traced values with whole axes, and for some of their axes the :class:`Span` of positions that belong to the part.
Out: a :class:`Block`. Ufuncs and operators compute it for all positions, reductions and products leave out the others,
and a write goes to the whole axes under their masks. With a single such axis it is a :class:`Masked` value.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.errors import TraceError
from fxlite.base.state import is_traced
from fxlite.ops.op import lookup
from fxlite.scalar.functions import COMBINATIONS
from fxlite.tracing.selections import masked
from fxlite.tracing.selections.masked import FUNCTIONS, Masked, beside, give_operators, is_block, with_all_axes
from fxlite.tracing.selections.spans import Span, first_positions, is_computed, mask_of, sum_of
from fxlite.types import shapes

if TYPE_CHECKING:
    from fxlite.tracing.proxy import Proxy
    from fxlite.tracing.tracer import Tracer

#: Spans by axis, counted from the last one: -1, -2, ..., as broadcasting aligns axes.
Spans = Mapping[int, Span]


class Block:
    """The elements of ``values`` whose positions lie in the ``spans`` of some axes. ``origin``: the array and the
    subscript of which this is a view; None for a copy."""

    __slots__ = ("origin", "spans", "values")
    __array_priority__ = 2000.0
    cuts_several_axes = True

    def __init__(self, values: Proxy, spans: Spans) -> None:
        self.values, self.spans = values, dict(spans)
        self.origin: tuple[Proxy, tuple[Any, ...]] | None = None
        if values.tracer.bodies:
            values.tracer.bodies[-1].own_object(self)

    @property
    def tracer(self) -> Tracer:
        return self.values.tracer

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    @property
    def ndim(self) -> int:
        return self.values.ndim

    @property
    def shape(self) -> tuple[Any, ...]:
        sizes = map(shapes.for_user, self.values.type.shape)
        spans = (self.spans.get(axis) for axis in range(-self.ndim, 0))
        return tuple(s if span is None else span.count(self.tracer) for s, span in zip(sizes, spans))

    @property
    def size(self) -> Any:
        """The number of elements, a traced number."""
        return self.tracer.python_number(reduce(lookup("mul"), self.shape))

    @property
    def T(self) -> Any:
        return made(self.values.T, {-self.ndim - 1 - axis: span for axis, span in self.spans.items()})

    def refusal(self, what: str, instead: str = "") -> TraceError:
        """The error for an operation that would need the number of elements."""
        if self.origin is None:
            instead = instead or (
                "write it with element-wise functions, sums and products, or loops over positions; or give the sizes "
                "to the function as ints of Python, f(x, int(n)), which are known numbers"
            )
        return self._line(next(iter(self.spans))).refusal(what, instead)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if ufunc is np.matmul and method == "__call__" and not kwargs:
            return product(*inputs)
        if method == "at" and inputs[0] is self:
            items, left = self._placed(inputs[1])
            if left:
                raise self.refusal(f"np.{ufunc.__name__}.at for rows", "give an index for each axis")
            return ufunc.at(self.values, items, *inputs[2:])
        if method == "reduce" and ufunc in masked.REDUCED and inputs[0] is self:
            kwargs.setdefault("axis", 0)
            return self._reduced(masked.REDUCED[ufunc], **kwargs)
        if method != "__call__" or "where" in kwargs or "out" in kwargs:
            raise self.refusal(f"np.{ufunc.__name__}.{method} with out= or where=")
        return applied(ufunc, inputs, **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function in masked.REDUCTIONS and args and args[0] is self:
            return self._reduced(function, *args[1:], **kwargs)
        if function in masked.ELEMENTWISE:
            return applied(function, args, **kwargs)
        if function in (np.dot, np.outer):
            return (product if function is np.dot else outer)(*args, **kwargs)
        if function in (np.argmax, np.argmin):
            return self._place(function.__name__, *args[1:], **kwargs)
        if len(args) == 1 and not kwargs and function in _OF_ONE:
            return _OF_ONE[function](self)
        raise self.refusal(f"np.{function.__name__}")

    def __fx_create_arg__(self, tracer: Any) -> Any:
        raise self.refusal("a part of several axes beside other arrays")

    def __fx_children__(self) -> tuple[str, Sequence[str], Sequence[Any]]:
        """The parts that loops and branches pass on; after them, a view is a copy."""
        if self.origin is not None:
            raise self.refusal(
                "a part of several axes from round to round of a loop, or out of a branch",
                "copy it, x[a:b, c:d].copy(), or pass on the whole array and the bounds, and cut it where it is read",
            )
        bounds = [b for span in self.spans.values() for b in (span.first, span.last)]
        return "block", ("values", *(f"bounds {n}" for n in range(len(bounds)))), (self.values, *bounds)

    @property
    def __fx_form__(self) -> Any:
        return (*self.spans,)

    def __fx_rebuilt__(self, parts: Sequence[Any]) -> Block:
        values, *bounds = parts
        spans = {}
        for axis, first, last in zip(self.spans, bounds[::2], bounds[1::2]):
            start, stop = sum_of(self.tracer, first), sum_of(self.tracer, last)
            spans[axis] = Span(values.type.shape[axis], start, stop, first, last, first, None)
        return Block(values, spans)

    def astype(self, dtype: Any, **options: Any) -> Block:
        return Block(self.values.astype(dtype), self.spans)

    def copy(self) -> Block:
        return Block(self.values.copy(), self.spans)

    def _reduced(self, function: Callable[..., Any], axis: Any = None, dtype: Any = None, **options: Any) -> Any:
        name = function.__name__
        if options.pop("keepdims", False) or options.pop("out", None) is not None or "initial" in options:
            raise self.refusal(f"np.{name} with keepdims=, out= or initial=")
        rank = self.ndim
        axes = range(rank) if axis is None else axis if isinstance(axis, tuple) else (axis,)
        gone = {operator.index(a) % rank - rank for a in axes}
        left = {a: span for a, span in self.spans.items() if a not in gone}
        where = self.mask(gone)
        places = None if len(gone) == rank else tuple(sorted(a + rank for a in gone))
        if dtype is not None:
            options["dtype"] = dtype
        if where is None:
            found = function(self.values, axis=places, **options)
        elif name == "count_nonzero":
            found = np.sum(np.not_equal(self.values, 0), axis=places, where=where)
        elif function in (np.max, np.min, np.amax, np.amin):
            found = masked.extreme(self.values, name.removeprefix("a"), places, where, where)
        else:
            found = function(self.values, axis=places, where=where, **options)
        return made(found, {a + sum(g > a for g in gone): span for a, span in left.items()})

    def _place(self, name: str, axis: Any = None) -> Any:
        """``x.argmax()``, ``x.argmin(axis)``: other elements come last."""
        if not all(span.is_first for span in self.spans.values()):
            raise self.refusal(f"np.{name} of a part that does not start at 0")
        last = COMBINATIONS[name].start(self.values.type.dtype)
        whole = masked.chosen(mask_of_all(self.values, self.spans), self.values, last)
        if axis is not None:
            gone = operator.index(axis) % self.ndim - self.ndim
            left = {a + (a < gone): span for a, span in self.spans.items() if a != gone}
            return made(getattr(np, name)(whole, axis=gone), left)
        place, found = getattr(np, name)(whole), 0
        sizes = [shapes.for_user(d) for d in self.values.type.shape]
        for number, count in enumerate(self.shape):
            found = found * count + place // (math.prod(sizes[number + 1 :])) % sizes[number]
        return found

    def argmax(self, axis: Any = None) -> Any:
        return self._place("argmax", axis)

    def argmin(self, axis: Any = None) -> Any:
        return self._place("argmin", axis)

    def diagonal(self) -> Any:
        """The diagonal of a part of two axes that starts at 0."""
        if self.ndim != 2 or not all(span.is_first for span in self.spans.values()):
            raise self.refusal("np.diagonal of other parts than those that start at 0")
        rows, columns = self.shape
        most = shapes.minimum(*self.values.type.shape)
        count = lookup("minimum")(rows, columns)
        return made(np.diagonal(self.values), {-1: first_positions(self.tracer, most, count)})

    def trace(self) -> Any:
        return self.diagonal().sum()

    def mask(self, axes: Any) -> Any:
        """A mask of the positions in the spans of some axes, which broadcasts against the values; None if all are."""
        found = {axis: span for axis, span in self.spans.items() if axis in axes}
        return mask_of_all(self.values, found) if found else None

    def dot(self, other: Any) -> Any:
        return product(self, other)

    def __matmul__(self, other: Any) -> Any:
        return product(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return product(other, self)

    def changed(self, result: Any, what: str) -> Block:
        """``x[a:b, c:d] += ...``, which also changes the array of which this is a view."""
        new = masked.cast_in_place(self, fitted(result, self.spans), what)
        whole, items = (self.values, self._slices()) if self.origin is None else self.origin
        whole[items] = Block(new, self.spans)
        return self

    def _line(self, axis: int) -> Masked:
        """The part along one of its axes alone."""
        return _line(self.values, axis, self.spans[axis])

    def _slices(self) -> tuple[slice, ...]:
        """The slices of ``values`` that give this part."""
        axes = range(-self.ndim, 0)
        return tuple(slice(*self._line(axis)._bounds()) if axis in self.spans else slice(None) for axis in axes)

    def __getitem__(self, index: Any) -> Any:
        if is_block(index) and index.dtype == bool and index.ndim == self.ndim:
            whole = np.logical_and(fitted(index, self.spans), mask_of_all(self.values, self.spans))
            return Masked(self.values, whole)
        return part(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        if is_block(index) and index.dtype == bool and index.ndim == self.ndim:
            if not np.ndim(value):
                where = np.logical_and(fitted(index, self.spans), mask_of_all(self.values, self.spans))
                self.values[where] = value
                return
            raise self.refusal("a write of several values where a mask says")
        items, left = self._placed(index)
        if left:  # whole axes beside index arrays: elements outside of the spans stay
            now = self.values[items]
            mask, new = mask_of_all(self.values, left), fitted(value, left)
            self.values[items] = lookup("where")(
                mask, lookup("cast")(new, now.type.dtype) if is_traced(new) else new, now
            )
        else:
            self.values[items] = value

    def _placed(self, index: Any) -> tuple[tuple[Any, ...], Spans]:
        """A subscript of this part as one of ``values``; and the spans that it leaves out, where there are index arrays
        beside whole axes."""
        items = with_all_axes(index if isinstance(index, tuple) else (index,), self.ndim)
        arrays = [item for item in items if item is not None and not isinstance(item, slice) and _axes_left(item)]
        axis, left = -self.ndim, {}
        for number, item in enumerate(items):
            if item is None or (hasattr(item, "dtype") and item.dtype == bool):
                raise self.refusal("a write where a mask of one axis says, or with None")
            if axis in self.spans:
                is_array = not isinstance(item, slice) and _axes_left(item)
                span = self.spans[axis]
                if arrays and isinstance(item, slice) and item == slice(None):
                    left[-1 - sum(map(_axes_left, items[number + 1 :]))] = span
                elif is_array:
                    items[number] = _places(self.values, axis, span, item)
                else:
                    items[number] = self._line(axis).place_of(item)
            axis += 1
        if left and (len(arrays) > 1 or isinstance(arrays[0], (Masked, Block))):
            raise self.refusal("a write at several index arrays beside an axis of computed size")
        return tuple(items), left

    def __iter__(self) -> Any:
        raise self.refusal("a loop over it", "loop over positions: for i in range(n): ... x[a + i] ...")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self.refusal(f".{name}")


#: Functions of one array that do not need the number of elements.
_OF_ONE: dict[Any, Callable[[Block], Any]] = {
    np.copy: Block.copy,
    np.ndim: lambda x: x.ndim,
    np.shape: lambda x: x.shape,
    np.transpose: lambda x: x.T,
    np.trace: Block.trace,
    np.diagonal: Block.diagonal,
    np.diag: lambda x: x.diagonal().copy(),
}


def _beside(mask: Any, axis: int) -> Any:
    """A mask of one axis, followed by axes of size 1."""
    return mask if axis == -1 else lookup("reshape")(mask, (*mask.type.shape, *(1,) * (-axis - 1)))


def made(values: Any, spans: Spans) -> Any:
    """A part of values, given by spans of some axes."""
    if not spans:
        return values
    if len(spans) > 1:
        return Block(values, spans)
    ((axis, span),) = spans.items()
    return Masked(values, mask_of(values.tracer, span), -axis - 1, span)


def taken_apart(value: Any) -> tuple[Any, Spans]:
    """The whole values, and their spans."""
    if isinstance(value, Block):
        return value.values, value.spans
    if isinstance(value, Masked):
        value = value if value.span is not None else FUNCTIONS["compact"](value)
        return value.values, {-value.after - 1: value.span}
    return value, {}


def fitted(value: Any, spans: Spans) -> Any:
    """Whole values that have the elements of ``value`` in the ``spans``, element by element."""
    values, own = taken_apart(value)
    for axis in sorted({*spans, *own}):
        if axis in own and axis not in spans:
            raise value.refusal("a part of another size")
        sizes = values.type.shape if is_traced(values) else np.shape(values)
        if len(sizes) < -axis or (axis not in own and type(sizes[axis]) is int and sizes[axis] == 1):
            continue
        if axis in own and own[axis].same(spans[axis]):
            continue
        some = next(v for v in (spans[axis].first, spans[axis].last) if is_traced(v))
        values = beside(some.tracer, values, len(sizes) + axis, spans[axis], own.get(axis))
    return values


def applied(function: Callable[..., Any], operands: Sequence[Any], **options: Any) -> Any:
    """``function`` of whole arrays, restricted to the same positions."""
    spans: dict[int, Span] = {}
    for operand in operands:
        for axis, span in taken_apart(operand)[1].items():
            spans.setdefault(axis, span)
    result = function(*(fitted(o, spans) for o in operands), **options)
    return tuple(made(r, spans) for r in result) if isinstance(result, tuple) else made(result, spans)


def outer(a: Any, b: Any) -> Any:
    """``np.outer`` of parts of one-dimensional arrays."""
    lines = [taken_apart(value) for value in (a, b)]
    if any((v.ndim if is_traced(v) else np.ndim(v)) != 1 for v, _ in lines):
        raise next(v for v in (a, b) if isinstance(v, (Masked, Block))).refusal("np.outer of several axes")
    values, spans = lines[0]
    column = lookup("unsqueeze")(values, 1) if is_traced(values) else np.asarray(values)[:, None]
    return applied(np.multiply, (made(column, {axis - 1: span for axis, span in spans.items()}), b))


def product(x: Any, y: Any) -> Any:
    """``x @ y``, whose sums leave out elements outside of the parts."""
    (a, rows), (b, columns) = taken_apart(x), taken_apart(y)
    one = x if isinstance(x, (Masked, Block)) else y
    a, b = (v if is_traced(v) else one.tracer.constant(v) for v in (a, b))
    if not all(0 < v.ndim < 3 for v in (a, b)):
        raise one.refusal("a product of these ranks")
    inner = -min(b.ndim, 2)  # the axis of y over which it sums
    summed = [own for own in (rows.get(-1), columns.get(inner)) if own is not None]
    span = next((own for own in summed if own.is_first), next(iter(summed), None))
    if span is not None:
        sides = []
        for value, own, axis in ((a, rows.get(-1), -1), (b, columns.get(inner), inner)):
            if own is None or not own.same(span):
                value = beside(one.tracer, value, value.ndim + axis, span, own)
            sides.append(masked.chosen(_beside(mask_of(one.tracer, span), axis), value, 0))
        a, b = sides
    left = {}
    if -2 in rows:
        left[-1 if b.ndim == 1 else -2] = rows[-2]
    if -1 in columns and b.ndim == 2:
        left[-1] = columns[-1]
    return made(lookup("matmul")(a, b), left)


# -- subscripts ------------------------------------------------------------------------------------
def part(x: Any, index: Any) -> Any:
    """``m[:, None]``, ``m[:, 0]``, ``m[..., a:b]``, ``m[:, places]``: parts of a part."""
    values, spans = taken_apart(x)
    items = with_all_axes(index if isinstance(index, tuple) else (index,), values.ndim)
    values, spans, items = _cut_again(values, spans, items)
    arrays = [item for item in items if item is not None and not isinstance(item, slice) and _axes_left(item)]
    axis, left = -values.ndim, {}
    for number, item in enumerate(items):
        if item is None:
            continue
        behind = sum(map(_axes_left, items[number + 1 :]))
        if axis in spans:
            if isinstance(item, slice) and item == slice(None):
                left[-1 - behind] = spans[axis]
            elif _axes_left(item) and not isinstance(item, (slice, Block)):
                items[number] = _places(values, axis, spans[axis], item)
            else:
                raise x.refusal("a part of it along an axis of computed size, beside other axes")
        axis += 1
    if left and len(arrays) > 1:
        raise x.refusal("index arrays beside an axis of computed size, and other ones")
    for number, item in enumerate(items):
        if left and isinstance(item, Masked):
            places = FUNCTIONS["compact"](item)
            items[number], left[-1 - sum(map(_axes_left, items[number + 1 :]))] = places.filled(0), places.span
    found = values[tuple(items)]
    if not left:
        return found
    found, more = taken_apart(found)
    return made(found, {**left, **more})


def _places(values: Any, axis: int, span: Span, item: Any) -> Any:
    """Positions along an axis of computed size as those along the whole axis."""
    line = _line(values, axis, span)
    if isinstance(item, Masked):
        return item.like(line.place_of(item.values))
    places = item if is_traced(item) else values.tracer.constant(np.asarray(item))
    if places.type.dtype.is_bool:
        raise line.refusal("a part of it where a mask of one axis says")
    return line.place_of(places)


def _set_part(m: Masked, index: Any, value: Any) -> None:
    """``m[i, j] = value`` for a part along one axis."""
    Block(m.values, {-m.after - 1: m.span})[index] = value  # type: ignore[dict-item]


def _line(values: Any, axis: int, span: Span) -> Masked:
    """The part of values along one axis alone."""
    return Masked(values, mask_of(values.tracer, span), -axis - 1, span)


def _cut_again(values: Any, spans: Spans, items: list[Any]) -> tuple[Any, Spans, list[Any]]:
    """Apply the slices and numbers along axes of computed size; the items that are left have whole axes, index arrays
    or none there."""
    spans, items, axis = dict(spans), list(items), 0
    for number in reversed(range(len(items))):
        item = items[number]
        if item is None:
            continue
        axis -= 1
        is_number = isinstance(item, (int, np.integer)) or (is_traced(item) and not item.ndim)
        if axis not in spans or not (is_number or (isinstance(item, slice) and item.step in (None, 1, -1))):
            continue
        if isinstance(item, slice) and item == slice(None):
            continue
        line = _line(values, axis, spans.pop(axis))
        if is_number:  # a view
            values = values[(..., line.place_of(item), *[slice(None)] * (-axis - 1))]
            spans = {a + (a < axis): span for a, span in spans.items()}
            del items[number]
            axis += 1
            continue
        found = masked.flipped(line) if item == slice(None, None, -1) else FUNCTIONS["along"](line, item)
        values, (spans[axis], *_) = found.values, taken_apart(found)[1].values()
        items[number] = slice(None)
    return values, spans, items


def _axes_left(item: Any) -> int:
    """The number of axes in the result for an item of a subscript."""
    if item is None or isinstance(item, slice):
        return 1
    return int(item.ndim if hasattr(item, "ndim") else np.ndim(item))


def mesh(x: Any, items: list[Any]) -> Any:
    """``x[np.ix_(a, b)]`` for positions whose number is computed, each along its own axis."""
    lead = next(n for n, item in enumerate(items) if isinstance(item, (Masked, Block)))
    apart = [taken_apart(FUNCTIONS["compact"](i) if isinstance(i, Masked) else i) for i in items]
    indices = [v for v, _ in apart if not isinstance(v, slice) and v is not Ellipsis]
    one = items[lead]
    if any(isinstance(i, slice) for i, _ in apart[:lead]) or any(v is None for v in indices) or items[0] is Ellipsis:
        raise one.refusal("places in one axis for each of another one, beside other parts of a subscript")
    spans: dict[int, Span] = {}
    for _, own in apart:
        for axis, span in own.items():
            if not spans.setdefault(axis, span).same(span):
                raise one.refusal("places of two selections along one axis")
    whole = x[tuple(masked.chosen(mask_of_all(v, own), v, 0) if own else v for v, own in apart)]
    behind = whole.ndim - max(v.ndim if is_traced(v) else np.ndim(v) for v in indices)
    return made(whole, {axis - behind: span for axis, span in spans.items()})


def mask_of_all(values: Any, spans: Spans) -> Any:
    """A mask of the positions in the spans, which broadcasts against the values."""
    return reduce(lookup("logical_and"), (_beside(mask_of(values.tracer, span), axis) for axis, span in spans.items()))


def several(x: Any, items: list[Any], subscript: Callable[..., Any], takes: bool = True) -> Any:
    """``x[a:b, c:d]`` for several slices with computed bounds; with ``takes``, those of a known length are
    extracted."""
    if any(hasattr(item, "ndim") and item.ndim for item in items):
        raise x.tracer.error(
            "slices with computed bounds beside index arrays cannot be traced", "cut first: x[a:b, c:d], then index"
        )
    axes = with_all_axes(items, x.ndim)
    whole = subscript(x, tuple(slice(None) if is_computed(item) else item for item in axes))
    spans: dict[int, Span] = {}
    for number, item in enumerate(axes):
        if not is_computed(item):
            continue
        axis = sum(i is None or isinstance(i, slice) for i in axes[:number])
        found = masked.cut_axis(whole, axis, item, takes)
        if isinstance(found, Masked):
            whole, spans[axis - whole.ndim] = found.values, found.span  # type: ignore[assignment]
        else:
            whole = found
    result = made(whole, spans)
    if spans:
        result.origin = (x, tuple(items))
    return result


give_operators(Block, lambda out, result, what: out.changed(result, what))
Block.__hash__ = None  # type: ignore[assignment]
FUNCTIONS |= {
    "applied": applied,
    "product": product,
    "part of axes": part,
    "set part of axes": _set_part,
    "mesh": mesh,
    np.outer: outer,
}
