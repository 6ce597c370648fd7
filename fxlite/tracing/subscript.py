"""NumPy's subscripts, traced: ``x[:, -1]``, ``x[..., ::2, None]``, ``x[tokens]``, ``x[:, i, j]``.

In: a traced value (or an array with traced indices) and a subscript. Out: the same value from canonical ops,
from the first axis to the last: ``flip`` and ``slice`` for a slice, ``select`` for an int, ``unsqueeze`` for
None, then ``take`` (one index array) or ``index`` (several) and, if NumPy moves the indexed axes to the
front, ``permute``. A full slice makes no node.

A constant boolean mask becomes the positions that it selects. Masks that are computed and slices with
computed bounds give selections (:mod:`fxlite.tracing.selections`), whose size is known at run time only.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.errors import ArgumentError, FxliteError, ShapeError
from fxlite.base.location import here
from fxlite.base.on_demand import is_expression
from fxlite.base.state import is_traced
from fxlite.ops.indexing import index as index_op
from fxlite.ops.indexing import take
from fxlite.ops.op import lookup
from fxlite.ops.slicing import from_the_end, never_negative, select, slice_, slice_bounds
from fxlite.ops.view import flip, permute, unsqueeze
from fxlite.tracing.capture.answers import counted, stacked
from fxlite.tracing.capture.known import known_value
from fxlite.tracing.selections.blocks import several
from fxlite.tracing.selections.masked import FUNCTIONS as OF_MASKED
from fxlite.tracing.selections.masked import Masked, aligned
from fxlite.tracing.selections.spans import Span, as_number, at_least, counting, is_computed, mask_of, span_of, taken
from fxlite.tracing.writes.shared_memory import fresh, is_number, may_hold
from fxlite.types import dtypes, shapes
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType

if TYPE_CHECKING:
    from fxlite.tracing.tracer import Tracer


@dataclass(frozen=True)
class _Entry:
    """One item of a subscript: its kind is "slice", "new", "int", "array" (also for values of rank 0), "mask",
    or "apart" for an Ellipsis, which separates index arrays even if it covers no axis."""

    kind: str
    value: Any = None

    @property
    def is_advanced(self) -> bool:
        return self.kind in ("int", "array", "mask")


def subscript(x: Any, index: Any) -> Any:
    """``x[index]`` as in NumPy; on arrays, it runs at once.

    Raises TraceError for a subscript that cannot be traced, and ShapeError for an index that is out of range
    or does not fit the rank."""
    if type(index) is bool and is_traced(x):  # adds a first axis with one element or none
        return fresh(x[None][: int(index)])
    items = items_of(index)
    if any(isinstance(item, Masked) for item in items):
        return _looked_up(x, items)
    found = next((v for v in (x, *items) if is_traced(v)), None)
    if found is None:
        return x[index]
    if is_traced(x) and not x.type.shape and items in ([], [Ellipsis]):
        if not items:
            return fresh(x, number=True)
        return fresh(x) if is_number(x) else x
    if any(isinstance(item, slice) and is_traced(item.step) for item in items):
        return _stepped(found.tracer.constant(x), items)
    if any(_is_constant_mask(item) for item in items):
        items = _with_positions(x, items, found.tracer)
    if not is_traced(x) and any(map(is_computed, items)):
        x = found.tracer.constant(x)
    selected = _selected(x, items)
    if selected is not None:
        return selected
    if sum(map(is_computed, items)) > 1:
        return several(x, items, subscript)
    part = basic_part(x, items, found.tracer)
    if part.span is not None:
        return _cut(x, items, part)
    if not any(rank_of(a) for a in part.arrays):
        return at_numbers(part)
    return _take(part.x, part.axes, part.arrays, part.target)


def at_numbers(part: Part) -> Any:
    """The view that a subscript gives without index arrays: each traced number drops its axis, as an int does."""
    x = part.x
    for axis, array in sorted(zip(part.axes, part.arrays), key=lambda p: p[0], reverse=True):
        x = take(x, array, axis)
    return x


def _stepped(x: Any, items: list[Any]) -> Any:
    """``x[a:b:n]`` with a computed step, as a copy; a write into it leaves ``x`` in doubt."""
    tracer, found = x.tracer, x[tuple(slice(None) if has_computed_step(item) else item for item in items)]
    numbers = [n for n, item in enumerate(items) if has_computed_step(item)]
    if len(numbers) > 1 or not all(has_computed_step(i) or isinstance(i, (int, slice)) or i is None for i in items):
        raise tracer.error(
            "a slice with a computed step beside another one, or beside index arrays, cannot be traced",
            "cut one axis after the other: x[a::n][:, b::m]",
        )
    axis = sum(not isinstance(i, int) for i in items[: numbers[0]])
    places = stepped_places(tracer, items[numbers[0]], found.type.shape[axis])
    made: Masked = found[(*[slice(None)] * axis, places)]
    may_hold(made.values, found)
    made.origin = (x, tuple(items))
    return made


def stepped_places(tracer: Tracer, item: slice, size: Dim) -> Masked:
    """The positions of a slice with a computed step along an axis."""
    step = item.step
    if not at_least(tracer, step, 1):
        step = tracer.unless(step, step < 1, ValueError("a computed step of a slice must be positive"))
    span = span_of(tracer, slice(item.start, item.stop), size)
    length = as_number(tracer, shapes.for_user(size))
    first = lookup("maximum")(as_number(tracer, span.first), 0)
    last = lookup("minimum")(as_number(tracer, span.last), length)
    count = tracer.python_number(lookup("maximum")((last - first + step - 1) // step, 0))
    tracer.ranges[count.node] = 0, shapes.for_user(shapes.normalize(size + 1))
    return counted(  # type: ignore[no-any-return]
        tracer, count, lambda sizes: lookup("minimum")(first + counting(tracer, sizes[0]) * step, length - 1)
    )


def has_computed_step(item: Any) -> bool:
    """Whether an item of a subscript is a slice with a computed step."""
    return isinstance(item, slice) and is_traced(item.step)


def _selected(x: Any, items: list[Any]) -> Masked | None:
    """``x[mask]``, ``x[:, mask]``, ``x[mask, k]`` for one computed mask, together with slices and numbers."""
    masks = [item for item in items if is_traced(item) and _is_mask(item) and rank_of(item)]
    if not (is_traced(x) and len(masks) == 1):
        return None
    (mask,) = masks
    part = basic_part(x, items, x.tracer, masks=True)
    first, place = part.axes[0], part.target
    covered = part.x.type.shape[first : first + rank_of(mask)]
    _require_fit(mask.type.shape, covered, x.tracer)
    if place != first:  # if numbers are separated from the mask, the axis of both comes first
        return None
    return Masked(part.x, mask, part.x.ndim - first - rank_of(mask))


def _require_fit(mask: Any, covered: Any, tracer: Tracer) -> None:
    if not shapes.shapes_equal(mask, covered):
        sizes, given = (", ".join(map(str, s)) for s in (covered, mask))
        raise _located(ShapeError(f"a mask of shape [{given}] for axes [{sizes}]"), tracer)


def _looked_up(x: Any, items: list[Any]) -> Masked:
    """``x[m]`` for selected integers: the elements to which they point, selected in the same way."""
    if any(isinstance(item, Masked) and item.ndim > 1 for item in items):
        return OF_MASKED["mesh"](x, items)  # type: ignore[no-any-return]
    items = with_selected_numbers(items)
    found = looked_up(items)
    first, lead = found[0], next(n for n, item in enumerate(items) if isinstance(item, Masked))
    x = first.tracer.constant(x)
    in_order = iter(found)
    inside = tuple(next(in_order).filled(0) if isinstance(item, Masked) else item for item in items)
    whole = subscript(x, inside)
    return first.like(whole, whole.ndim - lead - first.mask.ndim)


def with_selected_numbers(items: list[Any]) -> list[Any]:
    """The items of a subscript with integers beside selected ones, which count for each of these, as such."""
    first = next(item for item in items if isinstance(item, Masked))

    def is_integer(item: Any) -> bool:
        if is_traced(item):
            return not item.type.shape and item.type.dtype.is_integer
        return isinstance(item, (int, np.integer)) and not isinstance(item, bool)

    def selected(number: Any) -> Masked:
        return first.like(lookup("expand")(first.tracer.constant(number), first.mask.type.shape), 0)

    return [selected(item) if is_integer(item) else item for item in items]


def looked_up(items: list[Any]) -> list[Masked]:
    """The selected integers of a subscript, which must be adjacent, of the same selection; all other items are whole
    axes."""
    found = [item for item in items if isinstance(item, Masked)]
    first, lead = found[0], next(n for n, item in enumerate(items) if isinstance(item, Masked))
    for item in found:
        if item.ndim > 1 or item.dtype.kind not in "iu":
            raise first.refusal(f"an index array of {item.dtype}")
    if not all(item.same(first) for item in found):
        first, *more = (item.one_by_one() for item in found)
        found = [first, *(first.like(aligned(item, first)) for item in more)]
    others = [item for item in items if not isinstance(item, Masked) and item is not Ellipsis]
    together = all(isinstance(item, Masked) for item in items[lead : lead + len(found)])
    if not together or not all(isinstance(item, slice) and item == slice(None) for item in others):
        raise first.refusal("an index array beside other parts of a subscript")
    return found


def cut(x: Any, items: list[Any]) -> Masked:
    """``x[a:b]`` with computed bounds, as the whole axis with a mask."""
    return _cut(x, items, basic_part(x, items, x.tracer, takes=False))


def _cut(x: Any, items: list[Any], part: Part) -> Masked:
    tracer = part.x.tracer
    place, span = part.span  # type: ignore[misc]
    if any(rank_of(a) for a in part.arrays) or sum(map(is_computed, items)) > 1:
        raise tracer.error(
            "a slice with computed bounds beside index arrays or another one cannot be traced", "cut first: x[a:b][i]"
        )
    whole = subscript(x, without_span(items))
    axis = place - sum(a < place for a in part.axes)
    mask = mask_of(tracer, span)
    made = Masked(whole, mask, whole.ndim - axis - 1, span)
    made.origin = (x, tuple(items))
    return made


def without_span(items: list[Any]) -> tuple[Any, ...]:
    """The subscript with the whole axis in place of a slice with computed bounds."""
    return tuple(slice(None) if is_computed(item) else item for item in items)


def items_of(index: Any) -> list[Any]:
    """The items of a subscript, with arrays in place of traced values that are known."""
    return [_known_item(i) for i in (index if isinstance(index, tuple) else (index,))]


def _known_item(item: Any) -> Any:
    if isinstance(item, slice):
        return slice(*map(_known_item, (item.start, item.stop, item.step)))
    if isinstance(item, range):
        return np.asarray(item, np.intp)
    if isinstance(item, list):
        found = next((v.tracer for v in item if is_traced(v)), None)
        return item if found is None else stacked(found, item)
    known = known_value(item) if is_traced(item) else None
    return item if known is None else known if known.ndim else known[()]


@dataclass(frozen=True)
class Part:
    """An analyzed subscript. Its slices, ints and new axes are applied and give the view ``x``. ``arrays``
    index its ``axes``, and the axes that result are at ``target`` in the result. Alternatively, a boolean
    ``mask`` covers the axes from ``axes[0]`` on. ``span`` is a slice with computed bounds that is not applied:
    its axis, and the result of :func:`span_of`."""

    x: Any
    axes: list[int]
    arrays: list[Any]
    target: int
    mask: Any = None
    span: tuple[int, Span] | None = None


def basic_part(x: Any, items: list[Any], tracer: Tracer, masks: bool = False, takes: bool = True) -> Part:
    """The :class:`Part` for a subscript. Boolean masks raise an error unless ``masks``. ``takes``: apply a slice
    with computed bounds whose distance is a known number."""
    entries = _entries(x, items, tracer, masks)
    scalar = all(e.kind in ("int", "apart") for e in entries)  # y[0] is a number, but y[0, ...] a view of rank 0
    scalar = scalar and not any(item is Ellipsis for item in items)
    advanced = [n for n, e in enumerate(entries) if e.is_advanced]
    masks_found = [e.value for e in entries if e.kind == "mask"]
    # beside a mask, a traced number drops its axis, as an int does
    arrays = [e.value for e in entries if e.kind == "array" and not (masks_found and rank_of(e.value) == 0)]
    if masks_found and (arrays or len(masks_found) > 1):
        raise tracer.error(
            "a boolean mask beside other index arrays cannot be traced",
            "use one mask for all axes: np.where(mask, new, y)",
        )
    together = not advanced or advanced[-1] - advanced[0] == len(advanced) - 1
    axis, target = 0, 0
    places: list[int] = []  # the axes that arrays index
    spans: list[tuple[int, Span]] = []
    for number, entry in enumerate(entries):
        if advanced and number == advanced[0]:
            target = axis if together else 0
        if entry.kind == "slice":
            if is_computed(entry.value):
                span = span_of(tracer, entry.value, _type(x).shape[axis])
                found = taken(x, axis, span) if takes else None
                if found is None:
                    spans.append((axis, span))
                else:
                    x = found
            else:
                x = _slice(x, axis, entry.value)
            axis += 1
        elif entry.kind == "new":
            x = unsqueeze(x, axis)
            axis += 1
        elif entry.kind == "apart":
            continue
        elif entry.kind == "int":
            whole, x = x, select(x, axis, entry.value)
            if not scalar and not _type(x).shape and is_traced(whole):
                x.made_view_of(whole)
        elif masks_found and entry.kind == "array":
            x = take(x, entry.value, axis)
        else:
            covered = rank_of(entry.value) if entry.kind == "mask" else 1
            places += range(axis, axis + covered)
            axis += covered
    if len(spans) > 1 or (spans and masks_found):
        raise tracer.error(
            "a subscript may have only one slice with computed bounds, and no mask beside it",
            "write a loop over the other axis",
        )
    return Part(x, places, arrays, target, masks_found[0] if masks_found else None, spans[0] if spans else None)


def rank_of(value: Any) -> int:
    """The number of axes of a traced value or of anything else."""
    return value.type.rank if is_traced(value) else int(np.ndim(value))


def _type(x: Any) -> TensorType:
    if is_traced(x):
        return x.type
    return TensorType(np.shape(x), dtypes.dtype(np.asarray(x).dtype))


def _located(error: FxliteError, tracer: Tracer) -> FxliteError:
    return tracer._located(error, here(2))


def _entries(x: Any, items: list[Any], tracer: Tracer, masks: bool) -> list[_Entry]:
    """The items of a subscript with the Ellipsis expanded: one for each axis of ``x`` and for each None; a mask is
    one item for all its axes."""
    rank = _type(x).rank
    if sum(item is Ellipsis for item in items) > 1:
        raise _located(ArgumentError("a subscript holds at most one '...'"), tracer)
    used = sum(rank_of(i) if masks and _is_mask(i) else i is not None and i is not Ellipsis for i in items)
    if used > rank:
        raise _located(ShapeError(f"{used} indices for {_type(x)}, which has rank {rank}"), tracer)
    full = [_Entry("slice", slice(None))] * (rank - used)
    if not any(item is Ellipsis for item in items):
        items = [*items, Ellipsis]
    result: list[_Entry] = []
    for item in items:
        if masks and _is_mask(item) and rank_of(item):
            result.append(_Entry("mask", np.asarray(item) if isinstance(item, list) else item))
        else:
            dots = [_Entry("apart", Ellipsis), *full]
            result += dots if item is Ellipsis else [_entry(item, tracer)]
    return result


def _is_mask(item: Any) -> bool:
    """True for booleans and arrays of them."""
    if is_traced(item):
        return isinstance(item._node.type, TensorType) and item.type.dtype.is_bool
    if isinstance(item, list):
        item = np.asarray(item) if item else 0
    return isinstance(item, (bool, np.bool_)) or (isinstance(item, np.ndarray) and item.dtype == np.bool_)


def _is_constant_mask(item: Any) -> bool:
    return not is_traced(item) and _is_mask(item) and rank_of(item) > 0


def _with_positions(x: Any, items: list[Any], tracer: Tracer) -> list[Any]:
    """A subscript with the index arrays for which constant masks stand, as in NumPy."""
    axis, made = 0, list[Any]()
    for entry in _entries(x, items, tracer, masks=True):
        if entry.kind != "mask" or is_traced(entry.value):
            made.append(entry.value)
            axis += entry.kind not in ("new", "apart")
            continue
        covered = _type(x).shape[axis : axis + rank_of(entry.value)]
        _require_fit(np.shape(entry.value), covered, tracer)
        made += np.nonzero(entry.value)
        axis += len(covered)
    return made


def _entry(item: Any, tracer: Tracer) -> _Entry:
    if item is None:
        return _Entry("new")
    if isinstance(item, slice):
        return _Entry("slice", item)
    if isinstance(item, (list, tuple)):
        item = np.asarray(item) if len(item) else np.zeros(0, np.int64)
    if _is_mask(item):
        raise tracer.error(
            "a boolean mask selects a number of elements that is not known before the program runs",
            "keep the shape: np.where(mask, x, other), or (x * mask).sum() for a masked sum",
            item.node if is_traced(item) else None,
        )
    if is_traced(item):
        return _Entry("array", item)
    if isinstance(item, shapes.NamedDim) or is_expression(item):
        return _Entry("int", shapes.normalize(item))
    if isinstance(item, np.ndarray) and item.ndim:
        if item.dtype.kind not in "iu":
            raise _located(ArgumentError(f"index arrays hold integers, not {item.dtype}"), tracer)
        fits = item.dtype.name in (d.long_name for d in dtypes.INTEGERS)
        return _Entry("array", item if fits else item.astype(np.int64))
    return _Entry("int", _int(item, tracer))


def _int(item: Any, tracer: Tracer) -> int:
    try:
        return operator.index(item)
    except TypeError as error:
        if isinstance(error, FxliteError):
            raise
        text = f"indices are ints, slices, None, '...' and integer arrays, not {item!r}"
        raise _located(ArgumentError(text), tracer) from None


def _bound(value: Any, tracer: Tracer) -> Any:
    """A bound of a slice: None, an int or a dim."""
    if value is None or isinstance(value, shapes.NamedDim) or is_expression(value):
        return value if value is None else shapes.normalize(value)
    return _int(value, tracer)


def _slice(x: Any, axis: int, piece: slice) -> Any:
    """``x[piece]`` on one axis; a negative step becomes a flip and a positive step."""
    size = _type(x).shape[axis]
    start, stop, step = (_bound(b, x.tracer) for b in (piece.start, piece.stop, piece.step))
    step = 1 if step is None else step
    if step == 0 or type(step) is not int:
        raise _located(ArgumentError(f"the step of a slice is an int other than 0, not {step}"), x.tracer)
    if step < 0:
        start, stop, step = _mirrored(start, size), _mirrored(stop, size), -step
    for bound in (start, stop):  # for n = 0, the bound of x[-n:] is the start of the axis
        if from_the_end(bound) and not never_negative(-1 - bound):
            for dim in sorted(bound.free_symbols, key=str):
                x.tracer.require(dim, ">=", 1)
    flipped = flip(x, axis) if piece.step is not None and piece.step < 0 else x
    first, last, _ = slice_bounds(size, 0 if start is None else start, stop, step)
    if step == 1 and shapes.equal(first, 0) and shapes.equal(last, size):
        return flipped
    return slice_(flipped, axis, first, last, step)


def _mirrored(bound: Any, size: Any) -> Any:
    """The bound counted from the other end; ints still count from an end, so that they are clipped."""
    if bound is None:
        return None
    return -1 - bound if type(bound) is int else shapes.normalize(size - 1 - bound)


def _take(x: Any, axes: list[int], arrays: list[Any], target: int) -> Any:
    """Index ``axes`` with ``arrays``; the axes that result are at ``target``."""
    rank = _type(x).rank
    if axes != list(range(axes[0], axes[0] + len(axes))):
        x = permute(x, (*axes, *(a for a in range(rank) if a not in axes)))
        axes = list(range(len(axes)))
    x = take(x, arrays[0], axes[0]) if len(axes) == 1 else index_op(x, tuple(arrays), axes[0])
    if axes[0] == target:
        return x
    made = range(axes[0], axes[0] + max(rank_of(a) for a in arrays))
    others = [a for a in range(_type(x).rank) if a not in made]
    return permute(x, (*others[:target], *made, *others[target:]))
