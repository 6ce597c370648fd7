"""Arrays whose size is known only at run time, but has a bound that is known before: selected elements in sequence, and
operations that depend on the position of an element in this sequence.

In: :class:`Masked` values; traced arrays from which NumPy makes an array of such a size (``np.nonzero``,
``np.unique``, ``np.repeat``). Out: :class:`Masked` values. A *compact* one consists of the first elements, up to a
count, of an array whose size is the bound.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from fxlite.base.state import is_traced
from fxlite.graph import pytree
from fxlite.ops.op import lookup, normalize_axis
from fxlite.scalar.functions import COMBINATIONS
from fxlite.tracing import numpy_functions
from fxlite.tracing.capture.answers import counted
from fxlite.tracing.capture.known import as_known_number, known_value
from fxlite.tracing.functions import padding, quantiles, rearranging
from fxlite.tracing.numpy_functions import by_name, ravel, value_type
from fxlite.tracing.selections.blocks import Block, made, taken_apart
from fxlite.tracing.selections.bounds import most_of
from fxlite.tracing.selections.masked import FUNCTIONS as OF_MASKED
from fxlite.tracing.selections.masked import Masked, aligned, chosen, first_of, is_block
from fxlite.tracing.selections.spans import Span, counting, highest, mask_of, sum_of
from fxlite.tracing.writes.shared_memory import may_hold
from fxlite.types import dtypes, shapes
from fxlite.types.shapes import Dim


def compact(m: Masked) -> Masked:
    """The same elements, in sequence from the start of the axis."""
    if m.span is not None and type(m.span.start.size) is int and m.span.start.size == 0:
        return m
    tracer, axis, mask = m.tracer, m.before, m.mask
    if m.span is not None:
        count, size, values = m.count, m.span.most(tracer), m.values
        places = lookup("maximum")(m.span.first, 0) + counting(tracer, size)
        source = lookup("minimum")(places, shapes.for_user(m.span.size) - 1)
    else:
        size = shapes.product(mask.type.shape)
        sizes, values = m.values.type.shape, m.values
        if mask.ndim > 1:
            values = lookup("reshape")(values, (*sizes[:axis], size, *sizes[axis + mask.ndim :]))
            mask = lookup("reshape")(mask, (size,))
        source, count = _positions(mask)
    tracer.ranges[count._node] = (0, shapes.for_user(shapes.normalize(size + 1)))
    chosen = source if _is_counting(m.values) else lookup("take")(values, source, axis=axis)
    return first_of(chosen, count, m.after)


def _is_counting(values: Any) -> bool:
    """Whether each element equals its own position."""
    node = values.node
    return node.op == "call_function" and node.target is lookup("arange") and node.bound["start"] == 0


def _positions(mask: Any) -> tuple[Any, Any]:
    """The positions at which a mask of one axis is true, followed by zeros; and their number."""
    count = mask.tracer.python_number(lookup("sum")(lookup("cast")(mask, "i64")))
    return lookup("flatnonzero")(mask), count


class Result:
    """Selected elements as a result of the program: the first ``count`` of ``elements`` along ``axis``. For several
    axes, they are nested."""

    def __init__(self, elements: Any, axis: int, count: Any) -> None:
        self.elements, self.axis, self.count = elements, axis, count

    def __fx_children__(self) -> tuple[str, Sequence[str], Sequence[Any]]:
        return "first", ("elements", "count"), (self.elements, self.count)


def _result(values: Any, parts: Sequence[tuple[Any, int, Span | None]]) -> Any:
    """``values`` cut to the selected elements along each axis, given by a mask, the number of axes after it, and a
    span."""
    counts = []
    for mask, after, span in parts:
        made = compact(Masked(values, mask, after, span))
        values, count = made.values, made.count
        counts.append((made.before, made.tracer.size(count) if isinstance(count, shapes.NamedDim) else count))
    return reduce(lambda inner, cut: Result(inner, *cut), counts, values)


def with_results(value: Any) -> Any:
    """A nested result with a :class:`Result` in place of each selection."""
    if isinstance(value, Masked):
        return _result(value.values, [(value.mask, value.after, value.span)])
    if is_block(value):
        cuts = [(mask_of(value.tracer, span), -axis - 1, span) for axis, span in value.spans.items()]
        return _result(value.values, cuts)
    return pytree.with_parts(value, with_results)


# -- parts -----------------------------------------------------------------------------------------
def part(m: Masked, index: Any) -> Any:
    """``m[i]``, ``m[a:b]``, ``m[places]``."""
    if m.before or isinstance(index, tuple) or index is None or index is Ellipsis:
        raise m.refusal("a part of it beside others axes")
    if isinstance(index, Masked):  # a position that is not selected may be out of range
        found = _at_places(compact(m), index.filled(0), lookup("logical_not")(index.condition))
        return index.like(found, m.after)
    return along(m, index)


def along(m: Masked, index: Any) -> Any:
    """A slice along the axis of computed size, or the elements at positions there."""
    if not isinstance(index, slice):
        return _at_places(compact(m), index)
    m = compact(m) if m.span is None else m
    if index.step not in (None, 1):
        step = index.step
        if type(step) is not int or step < 1:
            raise m.refusal(f"a part of it with step {step}")
        m = compact(along(m, slice(index.start, index.stop)))
        values = m.values[(*[slice(None)] * m.before, slice(None, None, step))]
        return first_of(values, (m.count + (step - 1)) // step, m.after)
    count = m.count
    start, stop = (_clipped(b, count, other) for b, other in ((index.start, 0), (index.stop, count)))
    first, tracer = m._bounds()[0], m.tracer
    if not (type(first) is int and first == 0):
        start, stop = first + start, first + stop
    span = Span(m.span.size, sum_of(tracer, start), sum_of(tracer, stop), start, stop, start, None)  # type: ignore[union-attr]
    return Masked(m.values, mask_of(tracer, span), m.after, span)


def _at_places(m: Masked, index: Any, anywhere: Any = False) -> Any:
    """The elements at positions among the first ones along an axis. Positions out of range raise IndexError at run
    time, except where they may be ``anywhere``."""
    count, size = m.count, shapes.for_user(m.span.size)  # type: ignore[union-attr]
    if not is_traced(index):
        index = np.asarray(index)
    if value_type(index).dtype.is_bool or not value_type(index).dtype.is_integer:
        raise m.refusal("a part of it at a position that is not an integer")
    index = index.item() if isinstance(index, np.ndarray) and not index.ndim else index
    negative = index < 0
    wrapped = index + count if negative is True else index
    if is_traced(index) or isinstance(index, np.ndarray):
        wrapped = lookup("where")(negative, index + count, index)
    inside = lookup("logical_and")(wrapped >= 0, wrapped < count)
    if anywhere is not False:
        inside = lookup("logical_or")(inside, anywhere)
    return lookup("take")(m.values, lookup("where")(inside, wrapped, size), axis=m.before)


def _clipped(bound: Any, count: Any, otherwise: Any) -> Any:
    if bound is None:
        return otherwise
    if type(bound) is int:
        if bound == 0:
            return 0
        return lookup("minimum")(count, bound) if bound > 0 else lookup("maximum")(count + bound, 0)
    bound = lookup("where")(bound < 0, bound + count, bound)
    return lookup("minimum")(lookup("maximum")(bound, 0), count)


# -- order -----------------------------------------------------------------------------------------
def _line(m: Masked, what: str) -> Masked:
    if m.ndim > 1:
        raise m.refusal(f"{what} of several axes")
    return compact(m)


def _last(kind: dtypes.DType) -> Any:
    """The value that is last in sorted order."""
    return np.nan if kind.is_float else COMBINATIONS["min"].start(kind)


def _ordered(name: str) -> Callable[..., Masked]:
    def call(a: Masked, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Masked:
        if a.ndim > 1 and (axis is None or np.arange(a.ndim)[axis] != a.before):
            raise a.refusal(f"np.{name} of several axes")
        m = compact(a)
        return m.like(lookup(name)(m.filled(_last(m.values.type.dtype)), axis=m.before))

    return call


def _number(m: Masked) -> Any:
    """The number of elements, which is checked."""
    count = m.count
    return m.tracer.size(count) if isinstance(count, shapes.NamedDim) else count


def _partitioned(name: str) -> Callable[..., Masked]:
    """np.partition and np.argpartition, by sorting."""

    def call(a: Masked, kth: Any, axis: Any = -1, kind: Any = None, order: Any = None) -> Masked:
        m = _ordered(name)(a, axis)
        count = _number(m)
        for k in (kth,) if is_traced(kth) else np.ravel(kth).tolist():
            wrong = lookup("logical_or")(count <= k, count + k < 0)
            count = m.tracer.unless(count, wrong, ValueError("kth is out of bounds"))
        return first_of(m.values, count)

    return call


def _quantile(scale: int) -> Callable[..., Any]:
    """np.quantile and np.percentile of one axis by known numbers."""

    def call(a: Masked, q: Any, axis: Any = None, out: Any = None, *ignored: Any, **options: Any) -> Any:
        method = options.pop("method", "linear")
        if is_traced(q) or out is not None or ignored or options:
            raise a.refusal("np.quantile by computed numbers, or with out= or keepdims=")
        if np.any((np.asarray(q) < 0) | (np.asarray(q) > scale)):
            raise ValueError(f"quantiles lie between 0 and {scale}")
        m = _ordered("sort")(a)
        kind = m.values.type.dtype
        result = np.quantile(np.ones(2, kind.numpy), np.zeros_like(q), method=method).dtype
        size = _number(m)
        size = m.tracer.unless(size, size < 1, IndexError("there are no elements"))
        last = lookup("maximum")(size - 1, 0)

        def element(place: Any) -> Any:
            here = lookup("minimum")(lookup("maximum")(lookup("cast")(place, dtypes.int64), 0), last)
            return lookup("take")(m.values, here)

        parts = []
        for one in (np.asarray(q, np.float64) / scale).ravel().tolist():
            below, rest = quantiles.place_of(method, size * 1.0, one)
            parts.append(quantiles.interpolated(element(below), element(below + 1), rest, dtypes.dtype(result)))
        found = lookup("reshape")(lookup("stack")(tuple(parts), axis=0), np.shape(q))
        return lookup("where")(np.isnan(element(last)), np.nan, found) if kind.is_float else found

    return call


def _interpolated(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """np.interp for selected elements, or between selected points, behind which the value of the last one stays."""
    if isinstance(xp, Masked) or isinstance(fp, Masked):
        first = xp if isinstance(xp, Masked) else fp
        if not (isinstance(xp, Masked) and isinstance(fp, Masked)) or right is not None or period is not None:
            raise first.refusal("np.interp between points that are selected apart, or with right= or period=")
        xp, fp = _line(xp.astype(np.float64), "np.interp"), _line(fp, "np.interp")
        error = ValueError("np.interp between no points, or of other sizes of xp and fp")
        is_wrong = lookup("logical_or")(xp.count < 1, lookup("ne")(xp.count, fp.count))
        last = fp.tracer.unless(lookup("maximum")(fp.count - 1, 0), is_wrong, error)
        behind = lookup("take")(xp.values, last) + 1 + counting(xp.tracer, xp.values.type.shape[0])
        xp, fp = chosen(xp.condition, xp.values, behind), fp.filled(lookup("take")(fp.values, last))
    found = np.interp(x.values if isinstance(x, Masked) else x, xp, fp, left, right, period)
    return x.like(found) if isinstance(x, Masked) else found


def _scanned(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(a: Masked, axis: Any = None, dtype: Any = None) -> Masked:
        m = _line(a, f"np.{function.__name__}")
        neutral = COMBINATIONS["prod" if function is np.cumprod else "sum"].start(m.values.type.dtype)
        return m.like(function(m.filled(neutral), axis=0, dtype=dtype))

    return call


def _arg(name: str) -> Callable[..., Any]:
    def call(a: Masked, axis: Any = None, keepdims: bool = False) -> Any:
        if a.ndim > 1 and axis is None:
            raise a.refusal(f"np.{name} of several axes")
        axis = 0 if axis is None else normalize_axis(axis, a.ndim)
        m = compact(np.moveaxis(a, axis, 0) if axis else a)  # type: ignore[type-var]
        low = COMBINATIONS[name].start(m.values.type.dtype)
        found = lookup(name)(m.filled(low), axis=0)
        place = part(first_of(counting(m.tracer, m.span.size), m.count), found)  # type: ignore[union-attr]
        return lookup("unsqueeze")(place, axis) if keepdims else place

    return call


def _searched(a: Any, v: Any, side: Any = "left", sorter: Any = None) -> Any:
    """np.searchsorted in selected elements, or for them."""
    if isinstance(v, Masked):
        return v.like(np.searchsorted(a, v.values, side, sorter))
    if sorter is not None:
        raise a.refusal("np.searchsorted with sorter=", "put them in order: np.sort(y)")
    m = _line(a, "np.searchsorted")
    found = np.searchsorted(m.filled(_last(m.values.type.dtype)), v, side)
    return lookup("minimum")(found, m.count)


def _diff(a: Masked, n: int = 1, axis: int = -1) -> Any:
    m = _line(a, "np.diff")
    for _ in range(n):
        m = part(m, slice(1, None)) - part(m, slice(None, -1))
    return m


def _joined(arrays: Sequence[Any], axis: Any = 0, **options: Any) -> Masked:
    """np.concatenate, where some arrays are selections: along the axis that is selected, or along another one."""
    one = next(a for a in arrays if isinstance(a, Masked))
    if options:
        raise one.refusal("np.concatenate with options")
    if axis is None:
        arrays = [_whole_line(a, one) for a in arrays]
    selected = [a for a in arrays if isinstance(a, Masked)]
    one = selected[0]
    axis = normalize_axis(axis or 0, one.ndim)
    if any((a.ndim, a.after) != (one.ndim, one.after) for a in selected):
        raise one.refusal("np.concatenate beside a selection along another axis")
    if axis != one.before:
        if len(selected) == len(arrays):
            return _side_by_side(selected, axis)
        if axis < one.before:
            raise one.refusal("np.concatenate beside an array that is not selected, along another axis,")
        after = axis - one.ndim
        return one._applied(lambda *values: np.concatenate(values, after), tuple(arrays))  # type: ignore[no-any-return]
    values: list[Any] = []
    masks: list[Any] = []
    for a in arrays:
        if isinstance(a, Masked):
            a = compact(a) if a.mask.ndim > 1 else a
            values, masks = [*values, a.values], [*masks, a.mask]
        else:
            a = np.asarray(a) if isinstance(a, (tuple, list)) else a
            values.append(a)
            size = value_type(a).shape[axis]
            masks.append(lookup("full")((size,), True, dtypes.bool_))
    whole: tuple[Any, Any] = np.concatenate(values, axis=axis), np.concatenate(masks)
    return Masked(*whole, one.after)


def _side_by_side(arrays: Sequence[Masked], axis: int) -> Masked:
    """Selections with the same number of elements, joined along an axis that is not the selected one."""
    first = arrays[0]
    if not all(a.same(first) for a in arrays):
        first, *_ = arrays = [a.one_by_one() for a in arrays]
    place = axis if axis < first.before else axis + first.mask.ndim - 1
    return first.like(np.concatenate([aligned(a, first) for a in arrays], axis=place))


def _stacked_lines(axis: int) -> Any:
    """np.vstack and np.column_stack, which stack lines, and join other arrays, along an axis."""

    def call(tup: Sequence[Any]) -> Any:
        if all(np.ndim(a) == 1 for a in tup):
            return np.stack(tup, axis)
        return _joined([np.expand_dims(a, axis) if np.ndim(a) == 1 else a for a in tup], axis)

    return call


def _hstack(tup: Sequence[Any]) -> Masked:
    one = next(a for a in tup if isinstance(a, Masked))
    return _joined([_whole_line(a, one) if np.ndim(a) == 0 else a for a in tup], min(one.ndim - 1, 1))


def _whole_line(value: Any, beside: Any) -> Any:
    """An operand of np.append as an array; a number or a size becomes an array of one element."""
    if isinstance(value, Masked):
        return np.ravel(value) if value.ndim > 1 else value
    if isinstance(value, shapes.NamedDim):
        value = beside.tracer.size(value)
    return ravel(value) if is_traced(value) else np.ravel(value)


def _unique_of(a: Masked, *options: Any, **named: Any) -> Any:
    m = _line(a, "np.unique")
    return unique(m, *options, **named)


# -- from whole arrays -----------------------------------------------------------------------------
def nonzero(a: Any) -> tuple[Masked, ...]:
    """np.nonzero."""
    if isinstance(a, Masked):
        m = _line(a, "np.nonzero")
        return (Masked(counting(m.tracer, m.span.size), lookup("logical_and")(m.mask, lookup("ne")(m.values, 0))),)  # type: ignore[union-attr]
    mask = lookup("ne")(a, 0) if not a.type.dtype.is_bool else a
    sizes, found = a.type.shape, []
    if not sizes:
        raise ValueError("an array without axes has no places: np.nonzero(np.atleast_1d(x))")
    for axis, size in enumerate(sizes):
        numbers = counting(a.tracer, size)
        if len(sizes) > 1:
            row = lookup("reshape")(numbers, (size, *[1] * (len(sizes) - axis - 1)))
            numbers = lookup("expand")(row, sizes)
        found.append(Masked(numbers, mask))
    return tuple(found)


def flatnonzero(a: Any) -> Masked:
    """np.flatnonzero."""
    return nonzero(a if isinstance(a, Masked) else ravel(a))[0]


def argwhere(a: Any) -> Masked:
    """np.argwhere."""
    found = nonzero(a)
    return Masked(lookup("stack")(tuple(m.values for m in found), axis=-1), found[0].mask, 1)


def compress(condition: Any, a: Any, axis: Any = None) -> Masked:
    """np.compress with a computed condition."""
    a, axis = (ravel(a), 0) if axis is None else (a, axis % value_type(a).rank)
    size, given = value_type(a).shape[axis], condition.type.shape[0]
    if not shapes.equal(size, given):
        a = lookup("slice")(a, axis, 0, given)
    return Masked(a, condition, value_type(a).rank - axis - 1)


def extract(condition: Any, arr: Any) -> Masked:
    """np.extract with a computed condition."""
    mask = condition if condition.type.dtype.is_bool else lookup("ne")(condition, 0)
    return Masked(ravel(arr), ravel(mask))


def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: Any = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,
) -> Any:
    """np.unique."""
    if axis is not None:
        return _unique_rows(ar, axis, return_index, return_inverse, return_counts)
    count = ar.count if isinstance(ar, Masked) else None
    shape = None if count is not None else value_type(ar).shape
    values = ar.filled(_last(ar.values.type.dtype)) if isinstance(ar, Masked) else ravel(ar)
    tracer, size, kind = values.tracer, values.type.shape[0], values.type.dtype
    order = np.argsort(values, axis=0)
    ranked = lookup("take")(values, order, axis=0)
    place: Any = counting(tracer, size)
    before = lookup("take")(ranked, lookup("maximum")(place - 1, 0), axis=0)
    differs = lookup("ne")(ranked, before)
    if kind.is_inexact and equal_nan:
        differs = lookup("logical_and")(differs, lookup("logical_not")(np.isnan(before)))
    is_new = lookup("logical_or")(differs, place == 0)
    if count is not None:
        is_new = lookup("logical_and")(is_new, counting(tracer, size) < count)
    known = (count, shape)
    return with_returns(
        compact(Masked(ranked, is_new)), order, is_new, size, return_index, return_inverse, return_counts, known
    )


# -- sets ------------------------------------------------------------------------------------------
def _among(a: Any, b: Any, *, invert: bool = False) -> Any:
    """A mask of the elements of ``a`` that are elements of ``b``; both may be selections."""
    if isinstance(a, Masked):
        return a.like(_among(a.values, b, invert=invert), a.after)
    if not isinstance(b, Masked):
        return np.isin(a, b, invert=invert)
    ranked = OF_MASKED[np.sort](_line(b, "np.isin"))
    place = np.searchsorted(ranked.values, a)
    last = shapes.for_user(ranked.span.size) - 1
    same = lookup("take")(ranked.values, lookup("minimum")(place, last), axis=0) == a
    found = lookup("logical_and")(place < ranked.count, same)
    return ~found if invert else found


def _sets(*given: Any) -> list[Any]:
    """The arguments as one-dimensional arrays, selected or whole, of the same dtype."""
    tracer = next(a.tracer for a in given if isinstance(a, Masked) or is_traced(a))
    lines = [
        a if isinstance(a, Masked) else ravel(a if is_traced(a) else tracer.constant(np.asarray(a))) for a in given
    ]
    kind = np.result_type(*(np.dtype(line.dtype) for line in lines))
    return [line.astype(kind) for line in lines]


def intersect1d(ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False) -> Any:
    """np.intersect1d."""
    a, b = _sets(ar1, ar2)
    if return_indices:
        raise a.tracer.error("np.intersect1d with return_indices= is not traced", "look them up by np.searchsorted")
    found = unique(a)
    return found[_among(found, b)]


def setdiff1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
    """np.setdiff1d."""
    a, b = _sets(ar1, ar2)
    found = a if assume_unique else unique(a)
    found = found[_among(found, b, invert=True)]
    return found.astype(ar1.dtype if hasattr(ar1, "dtype") else np.asarray(ar1).dtype)


def union1d(ar1: Any, ar2: Any) -> Any:
    """np.union1d."""
    return unique(_together(*_sets(ar1, ar2)))


def setxor1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
    """np.setxor1d."""
    a, b = map(unique, _sets(ar1, ar2))
    return unique(_together(a[_among(a, b, invert=True)], b[_among(b, a, invert=True)]))


def _together(a: Any, b: Any) -> Any:
    return (_joined if isinstance(a, Masked) or isinstance(b, Masked) else np.concatenate)((a, b))


#: The most elements of a diagonal of computed size that a matrix is made of.
MOST_ON_A_DIAGONAL = 1024

#: The most columns of rows that are sorted column by column.
MOST_COLUMNS = 64


def _unique_rows(a: Any, axis: int, index: bool, inverse: bool, counts: bool) -> Any:
    """np.unique of the parts along an axis, which are ordered by stable sorts by each of their elements, from the
    last to the first. A part with NaN is not equal to any other one, as in NumPy."""
    if isinstance(a, Masked):
        raise a.refusal("np.unique with axis=")
    rank, tracer = value_type(a).rank, a.tracer
    axis = operator.index(axis) % rank
    parts = np.moveaxis(a, axis, 0)
    sizes = parts.type.shape
    size, columns = sizes[0], shapes.product(sizes[1:])
    if type(columns) is not int or not 0 < columns <= MOST_COLUMNS:
        raise tracer.error(
            f"np.unique with axis= compares parts of {columns} elements, and up to {MOST_COLUMNS} are traced",
            "compare fewer columns, or numbers that stand for whole rows: np.unique(keys, return_index=True)",
            a.node,
        )
    rows = lookup("reshape")(parts, (size, columns))
    place: Any = counting(tracer, size)
    order: Any = None
    for column in reversed(range(columns)):
        keys = rows[:, column]
        keys = keys if order is None else lookup("take")(keys, order, axis=0)
        found = lookup("argsort")(keys, axis=0)
        order = found if order is None else lookup("take")(order, found, axis=0)
    ranked = lookup("take")(rows, order, axis=0)
    before = lookup("take")(ranked, lookup("maximum")(place - 1, 0), axis=0)
    is_new = lookup("logical_or")(np.any(lookup("ne")(ranked, before), axis=1), place == 0)
    whole = np.moveaxis(lookup("take")(parts, order, axis=0), 0, axis)
    return with_returns(compact(Masked(whole, is_new, rank - axis - 1)), order, is_new, size, index, inverse, counts)


def with_returns(
    values: Masked,
    order: Any,
    is_new: Any,
    size: Dim,
    index: bool,
    inverse: bool,
    counts: bool,
    known: tuple[Any, tuple[Dim, ...] | None] = (None, None),
) -> Any:
    """The results of np.unique: ``values``; for the elements in ``order``, some of which are marked as new, the
    number of the value that each equals; and how many are equal. ``known``: the number of elements if not all are
    selected, and the shape of the positions."""
    (count, shape), found = known, [values]
    if index:
        found.append(compact(Masked(order, is_new)))
    if inverse or counts:
        number = lookup("cumsum")(lookup("cast")(is_new, "i64"), axis=0) - 1
    if inverse:
        places = lookup("scatter_set")(lookup("full")((size,), 0, dtypes.int64), order, number, axis=0)
        if count is not None:
            found.append(first_of(places, count))
        else:
            found.append(places if shape is None else lookup("reshape")(places, shape))
    if counts:
        one: Any = lookup("full")((size,), 1, dtypes.int64)
        one = one if count is None else lookup("cast")(counting(order.tracer, size) < count, "i64")
        sums = lookup("scatter_add")(lookup("full")((size,), 0, dtypes.int64), number, one, axis=0)
        found.append(first_of(sums, values.count))
    return tuple(found) if len(found) > 1 else found[0]


def repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    """np.repeat, also with computed numbers of repetitions that have known bounds, or for which fxlite.jit makes
    room."""
    if not is_traced(repeats) or known_value(repeats) is not None:
        return rearranging.repeat(a, repeats, axis)
    if axis is None:
        a, axis = ravel(a), 0
    axis %= value_type(a).rank
    tracer, size = repeats.tracer, value_type(a).shape[axis]
    most = most_of(repeats)
    if most is None and not tracer.is_finished:
        raise tracer.error(
            "np.repeat with computed counts: how large its result can be is not known",
            "give an upper bound for the counts: np.repeat(x, np.minimum(counts, 4))",
            repeats.node,
        )
    counts = lookup("cast")(repeats, "i64")
    counts = lookup("expand")(counts, (size,)) if not counts.type.shape else counts
    ends = lookup("cumsum")(counts, axis=0)
    bound = tracer.room if most is None else shapes.normalize(size * most)
    place = lookup("searchsorted")(ends, counting(tracer, bound), side="right")
    total = tracer.python_number(lookup("sum")(counts))
    tracer.ranges[total._node] = (0, shapes.for_user(shapes.normalize(bound + 1)))
    total = tracer.within_room(total, "np.repeat") if most is None else total
    source = lookup("minimum")(place, shapes.for_user(size) - 1)
    return first_of(lookup("take")(tracer.constant(a), source, axis=axis), total, value_type(a).rank - axis - 1)


def _repeat_of(a: Any, repeats: Any, axis: Any = None) -> Any:
    """np.repeat of selected elements, or by selected numbers."""
    if isinstance(repeats, Masked):
        line = _line(repeats, "np.repeat")
        values, counts = aligned(a, line) if np.ndim(a) or isinstance(a, Masked) else a, line.filled(0)
    else:
        line = _line(a, "np.repeat")
        counts = aligned(repeats, line) if np.ndim(repeats) else repeats
        values, counts = line.values, chosen(line.mask, counts, 0)
    if not np.ndim(values):
        values = lookup("expand")(line.tracer.constant(values), line.values.type.shape)
    return repeat(values, counts, 0)


# -- copies of computed size -----------------------------------------------------------------------
def _gathered(x: Any, sizes: Mapping[int, Any], positions: Callable[[int, Any], Any]) -> Any:
    """``x`` with other, computed sizes of some axes: ``positions(axis, places)`` are those of the elements that come to
    the places."""
    tracer = next(size.tracer for size in sizes.values() if is_traced(size))
    x = tracer.constant(x)

    def whole(shape: tuple[Any, ...]) -> Any:
        found = x
        for axis in sizes:
            found = lookup("take")(found, positions(axis, counting(tracer, shape[axis])), axis=axis)
        return found

    return counted(tracer, [sizes.get(axis, shapes.for_user(d)) for axis, d in enumerate(x.type.shape)], whole)


def _computed(values: Sequence[Any]) -> list[int]:
    """The axes whose sizes are computed; those of patterns, which have no types, are not."""
    return [axis for axis, value in enumerate(values) if is_traced(value) and value.is_typed]


def tile(A: Any, reps: Any) -> Any:
    """np.tile, also with computed numbers of repetitions."""
    counts = [*map(as_known_number, shapes.as_tuple(reps))]
    if not _computed(counts):
        return numpy_functions.tile(A, counts if isinstance(reps, (tuple, list)) else counts[0])
    A = counts[_computed(counts)[0]].tracer.constant(A if is_traced(A) else np.asarray(A))
    x = numpy_functions.tile(A, [1 if is_traced(count) else count for count in counts])
    rank = value_type(x).rank
    counts = [1] * (rank - len(counts)) + counts
    old = [shapes.for_user(d) for d in value_type(x).shape]
    sizes = {axis: counts[axis].tracer.python_number(lookup("maximum")(counts[axis], 0)) for axis in _computed(counts)}
    return _gathered(x, {axis: n * old[axis] for axis, n in sizes.items()}, lambda axis, place: place % old[axis])


def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Any:
    """np.broadcast_to, also to computed sizes; then the result is a copy."""
    sizes = [*map(as_known_number, shapes.as_tuple(shape))]
    if not _computed(sizes):
        return lookup("expand")(array, tuple(sizes) if isinstance(shape, (tuple, list)) else sizes[0])
    tracer = sizes[_computed(sizes)[0]].tracer
    x = tracer.constant(array)
    own = [1] * (len(sizes) - x.ndim) + [shapes.for_user(d) for d in x.type.shape]
    for axis in _computed(sizes):
        if own[axis] != 1:
            raise tracer.error(
                f"np.broadcast_to: axis {axis} of {own[axis]} elements is broadcast to a computed size",
                "give the array an axis of size 1: x[:, None]",
                sizes[axis].node,
            )
    found = counted(tracer, sizes, lambda whole: lookup("expand")(x, whole))
    may_hold(taken_apart(found)[0], x)
    return found


def reshape(a: Any, *shape: Any, **options: Any) -> Any:
    """np.reshape, also to computed sizes; then the result is a copy, and a write into it leaves ``a`` in doubt."""
    sizes = [*shape[0]] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else [*shape]
    if len(sizes) == 1 and _computed(sizes) and sizes[0].ndim:  # a list of computed numbers, as an array
        sizes = [sizes[0][n] for n in range(sizes[0].shape[0])]
    sizes = [*map(as_known_number, sizes)]
    if not _computed(sizes) or (options.get("order") or "C") != "C":
        return numpy_functions.reshape(a, *shape, **options)
    return as_shape(a, sizes)


def as_shape(a: Any, shape: Sequence[Any]) -> Any:
    """An array or a selection in a shape of several computed sizes, of which one may be -1."""
    tracer, sizes = a.tracer, [*shape]
    line = _line(a, "np.reshape") if isinstance(a, Masked) else None
    flat = ravel(a) if line is None else line.values
    total = a.size if line is None else line.count
    total = tracer.size(total) if isinstance(total, shapes.NamedDim) else total
    wrong = ValueError("cannot reshape an array into a shape of another number of elements")
    if -1 in [s for s in sizes if type(s) is int]:
        rest: Any = reduce(operator.mul, (s for s in sizes if not (type(s) is int and s == -1)), 1)
        rest = tracer.python_number(tracer.unless(rest, lookup("lt")(rest, 1), wrong)) if is_traced(rest) else rest
        sizes = [total // rest if type(s) is int and s == -1 else s for s in sizes]
    some = _computed(sizes)[0]
    number = reduce(operator.mul, sizes, 1)
    sizes[some] = tracer.python_number(tracer.unless(sizes[some], number != total, wrong))
    last = shapes.for_user(flat.type.shape[0]) - 1

    def whole(largest: tuple[Any, ...]) -> Any:
        place: Any = 0
        for axis, size in enumerate(largest):
            own = lookup("reshape")(counting(tracer, size), (size, *[1] * (len(largest) - axis - 1)))
            place = place * sizes[axis] + own
        return lookup("take")(flat, lookup("minimum")(place, last), axis=0)

    found = counted(tracer, sizes, whole)
    may_hold(taken_apart(found)[0], flat)
    return found


def pad(array: Any, pad_width: Any, mode: Any = "constant", **options: Any) -> Any:
    """np.pad, also with computed widths."""
    rank = value_type(array).rank
    widths = padding.widths_of(pad_width, rank)
    some = [axis for axis, pair in enumerate(widths) if any(map(is_traced, pair))]
    if not some:
        return padding.pad(array, pad_width, mode, **options)
    tracer = next(w for pair in widths for w in pair if is_traced(w)).tracer
    value = options.pop("constant_values", 0)
    place_of = padding.POSITIONS.get("edge" if mode == "constant" else mode)
    if place_of is None or options or np.ndim(value):
        raise tracer.error(
            f"np.pad with a computed width is traced for one constant and for the modes {', '.join(padding.POSITIONS)}",
            "join the parts: np.concatenate((before, x, after))",
        )
    known = [(0, 0) if axis in some else pair for axis, pair in enumerate(widths)]
    more = {"constant_values": value} if mode == "constant" else {}
    x = padding.pad(array, known, mode, **more)
    old = [shapes.for_user(d) for d in value_type(x).shape]

    def checked(width: Any) -> Any:
        negative = ValueError("index can't contain negative values")
        return tracer.unless(width, lookup("lt")(width, 0), negative) if is_traced(width) else width

    widths = [(checked(before), checked(after)) for before, after in widths]
    sizes = {axis: widths[axis][0] + old[axis] + widths[axis][1] for axis in some}

    def position(axis: int, place: Any) -> Any:
        return place_of(place - widths[axis][0], old[axis])

    found = _gathered(x, sizes, position)
    if mode != "constant":
        return found
    values, spans = taken_apart(found)
    for axis in some:
        place: Any = counting(tracer, values.type.shape[axis]) - widths[axis][0]
        inside = lookup("logical_and")(place >= 0, place < old[axis])
        inside = lookup("reshape")(inside, (*inside.type.shape, *[1] * (rank - axis - 1)))
        values = lookup("where")(inside, values, lookup("cast")(value, values.type.dtype))
    return made(values, spans)


def bincount(x: Any, weights: Any = None, minlength: Any = 0) -> Any:
    """np.bincount. With ``minlength``, other numbers raise IndexError at run time; without it, the numbers must have a
    known bound, or fxlite.jit makes room for more counts."""
    some = _line(x, "np.bincount") if isinstance(x, Masked) else None
    if some is not None:
        x = some.like(lookup("cast")(some.values, dtypes.int64)).filled(-1)  # no unsigned number is -1
        weights = aligned(compact(weights) if isinstance(weights, Masked) else weights, some)
    tracer = next(v.tracer for v in (x, weights) if is_traced(v))
    if weights is not None and value_type(weights).dtype.is_complex:
        raise ValueError("weights are real numbers")
    known = known_value(x) if is_traced(x) else np.asarray(x)
    x = lookup("cast")(tracer.constant(x), dtypes.int64)
    size, count = as_known_number(minlength), None
    if is_traced(size):
        most, largest = highest(tracer, sum_of(tracer, size)), np.max(x, initial=-1)
        limit = most_of(x)
        count = tracer.python_number(lookup("maximum")(lookup("cast")(size, "i64"), largest + 1))
        if most is None or limit is None:
            if not tracer.is_finished:
                raise tracer.error(
                    "np.bincount: minlength is computed, and how large it, and what is counted, can be is not known",
                    "give a bound, np.minimum(n, 100), and numbers below it: np.bincount(x % 100, minlength=...)",
                    size.node,
                )
            size = tracer.room
            count, x = tracer.within_room(count, "np.bincount"), lookup("minimum")(x, size - 1)
        else:
            size = shapes.for_user(shapes.maximum(most, shapes.normalize(limit + 1)))
            tracer.ranges[count.node] = (0, shapes.for_user(shapes.normalize(size + 1)))
    elif known is not None:
        size = max(size, 1 + int(known.max(initial=-1)))
    elif type(size) is int and size < 1:
        most, largest = most_of(x), np.max(x, initial=-1)
        if most is None and not tracer.is_finished:
            raise tracer.error(
                "np.bincount: how many counts there are depends on values, and how large they can be is not known",
                "give minlength=, which must be larger than all numbers, or a bound: np.bincount(x % n)",
                x.node,
            )
        size = tracer.room if most is None else shapes.for_user(shapes.normalize(most + 1))
        tracer.ranges[largest.node] = (-1, size)
        count = tracer.python_number(largest + 1)
        if most is None:
            count, x = tracer.within_room(count, "np.bincount"), lookup("minimum")(x, size - 1)
    places = lookup("where")(x < 0, size, x)  # negative numbers are out of range, too
    addends = np.ones_like(x) if weights is None else lookup("cast")(tracer.constant(weights), dtypes.float64)
    if some is not None:
        places, addends = (chosen(some.mask, v, 0) for v in (places, addends))
    zeros = tracer.constant(lookup("full")((size,), 0, dtype=addends.type.dtype))
    counts = lookup("scatter_add")(zeros, places, addends, axis=0)
    return counts if count is None else first_of(counts, count)


def trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Any:
    """np.trim_zeros: a slice along each axis, with computed bounds."""
    ends, rank, there = trim.lower(), filt.ndim, lookup("ne")(filt, 0)
    if ends not in ("f", "b", "fb", "bf"):
        raise ValueError(f'trim is "f", "b" or "fb", not {trim!r}')
    items: list[Any] = [slice(None)] * rank
    for number in range(rank) if axis is None else axis if isinstance(axis, tuple) else (axis,):
        number = normalize_axis(number, rank)
        size = shapes.for_user(filt.type.shape[number])
        found = np.any(there, axis=tuple(a for a in range(rank) if a != number))
        places: Any = counting(filt.tracer, filt.type.shape[number])
        first = np.min(lookup("where")(found, places, size), initial=size)
        last = np.max(lookup("where")(found, places + 1, 0), initial=0)
        for bound in (first, last):
            filt.tracer.ranges[bound.node] = (0, shapes.for_user(shapes.normalize(filt.type.shape[number] + 1)))
        items[number] = slice(first if "f" in ends else None, last if "b" in ends else None)
    return filt[tuple(items)]


def open_mesh(*args: Any) -> tuple[Any, ...]:
    """np.ix_, which replaces a computed mask by the positions that it selects."""
    found = []
    for number, line in enumerate(args):
        if is_traced(line) and line.type.dtype.is_bool and known_value(line) is None:
            line = compact(nonzero(line)[0])
        elif not isinstance(line, Masked):
            line = line if is_traced(line) else np.asarray(line)
            line = np.flatnonzero(line) if line.dtype == bool else line
        if line.ndim != 1:
            raise ValueError(f"np.ix_ takes lines, not an array of {line.ndim} axes")
        new = [None] * (len(args) - 1)
        found.append(line[(*new[:number], slice(None), *new[number:])])
    return tuple(found)


def _histogram(a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:
    """np.histogram of selected elements: other elements are not counted and do not affect the bins."""
    if not isinstance(a, Masked):
        one = next(v for v in (bins, weights, *(range or ())) if isinstance(v, Masked))
        raise one.refusal(
            "np.histogram with bins or weights whose number is computed", "count integers: np.bincount(x)"
        )
    if weights is not None:
        raise a.refusal("np.histogram with weights=")
    a = compact(a) if a.ndim == 1 and not a.before else a
    if range is None and isinstance(bins, (int, np.integer)):
        range = np.min(a), np.max(a)
    there = lookup("cast")(lookup("expand")(a.condition, a.values.type.shape), "i64")
    return np.histogram(a.values, bins, range, density, there)


OF_MASKED.update(
    {
        "part": part,
        "along": along,
        "compact": compact,
        "clipped": _clipped,
        np.sort: _ordered("sort"),
        np.argsort: _ordered("argsort"),
        np.partition: _partitioned("sort"),
        np.argpartition: _partitioned("argsort"),
        np.quantile: _quantile(1),
        np.percentile: _quantile(100),
        np.interp: _interpolated,
        np.cumsum: _scanned(np.cumsum),
        np.cumprod: _scanned(np.cumprod),
        np.argmax: _arg("argmax"),
        np.argmin: _arg("argmin"),
        np.diff: _diff,
        np.searchsorted: _searched,
        np.concatenate: _joined,
        np.hstack: _hstack,
        np.vstack: _stacked_lines(0),
        np.column_stack: _stacked_lines(1),
        np.append: lambda arr, values, axis=None: _joined((arr, values), axis),
        np.unique: _unique_of,
        np.histogram: _histogram,
        np.nonzero: nonzero,
        np.ptp: lambda a, axis=None: np.max(a, axis=axis) - np.min(a, axis=axis),
        np.bincount: bincount,
        np.diag: lambda v, k=0: _diagonal_matrix(v, k),
        np.repeat: _repeat_of,
        np.flatnonzero: flatnonzero,
        np.argwhere: argwhere,
        np.median: lambda a, axis=None: _median(a, axis),
    }
)


def _diagonal_matrix(v: Masked, k: Any) -> Any:
    """np.diag of selected elements, of which there may not be many."""
    m = _line(v, "np.diag")
    size = m.values.type.shape[0]
    if k or type(size) is not int or size > MOST_ON_A_DIAGONAL:
        raise v.refusal("np.diag with k=, or of perhaps many elements,", "write into an array: out[i, i] = v")
    matrix: Any = np.diag(m.values)
    return Block(matrix, {-2: m.span, -1: m.span})  # type: ignore[dict-item]


def _median(a: Masked, axis: Any = None) -> Any:
    """np.median along the selected axis; NaN if there are no elements."""
    m = OF_MASKED[np.sort](a, -1 if a.ndim == 1 else axis)
    count, kind = m.count, m.values.type.dtype
    last = lookup("maximum")(count - 1, 0)
    places = last // 2, lookup("minimum")(count // 2, last), last
    low, high, end = (lookup("take")(m.values, i, axis=m.before) for i in places)
    wide = kind if kind.is_float else dtypes.float64
    middle = quantiles.mean_of_two(low, high, 0.5, wide)
    is_sound = lookup("logical_and")(count > 0, lookup("eq")(end, end))
    return chosen(is_sound, middle, np.nan)


_SETS = by_name(np, intersect1d, setdiff1d, setxor1d, union1d)
OF_MASKED.update({**_SETS, np.isin: lambda a, b, assume_unique=False, invert=False: _among(a, b, invert=invert)})

OF_MASKED[np.ix_] = open_mesh

FUNCTIONS = by_name(
    np, nonzero, flatnonzero, argwhere, unique, repeat, reshape, tile, pad, broadcast_to, bincount, trim_zeros
) | {
    **_SETS,
    np.ix_: open_mesh,
    np.unique_all: lambda x: unique(x, True, True, True, equal_nan=False),
    np.unique_counts: lambda x: unique(x, return_counts=True, equal_nan=False),
    np.unique_inverse: lambda x: unique(x, return_inverse=True, equal_nan=False),
    np.unique_values: lambda x: unique(x, equal_nan=False),
}
