"""Traces ``y[index] = values`` for slices, masks and integer arrays. For the latter, it computes which element of the
values, if any, ends up at each place of ``y``.

In: an analyzed subscript (:class:`fxlite.tracing.subscript.Part`). Out: a write of the values, of ``np.where``, or of
``take`` on the current value and the new ones, joined. Of several values for one place the last one counts, and an
index that is out of range raises an error, as in NumPy. Values are cast and broadcast as in NumPy (:func:`prepared`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.errors import DTypeError, FxliteError, PositionError, ShapeError
from fxlite.base.location import Location, here
from fxlite.base.state import is_traced
from fxlite.ops.indexing import NOWHERE
from fxlite.ops.op import Op, broadcast_shapes, lookup
from fxlite.ops.view import fill_value
from fxlite.tracing.capture.answers import holds_computed, stacked
from fxlite.tracing.selections.blocks import Block, fitted, mask_of_all, several, taken_apart
from fxlite.tracing.selections.masked import Masked, aligned, one_by_one, same_mask, with_all_axes
from fxlite.tracing.selections.spans import Span, as_number, at_least, at_most, counting, is_computed, is_like, span_of
from fxlite.tracing.subscript import (
    Part,
    at_numbers,
    basic_part,
    cut,
    has_computed_step,
    items_of,
    looked_up,
    rank_of,
    stepped_places,
    subscript,
    with_selected_numbers,
    without_span,
)
from fxlite.tracing.writes.aliasing import Step, write
from fxlite.tracing.writes.shared_memory import View, is_number, view_of
from fxlite.types import dtypes, shapes
from fxlite.types.dtypes import plain_array
from fxlite.types.tensor_type import TensorType

if TYPE_CHECKING:
    from fxlite.graph.graph import Node
    from fxlite.tracing.proxy import Proxy
    from fxlite.tracing.tracer import Tracer


def prepared(
    tracer: Tracer, destination: TensorType, value: Any, what: str, casting: str = "unsafe", instead: str = ""
) -> Any:
    """``value`` as a node (or Python number) in the dtype of the destination that broadcasts to its shape. Raises
    TraceError if NumPy would reject it."""
    target = destination.dtype
    if isinstance(value, Masked):
        value = _as_many(value, destination, what)
    if isinstance(value, (list, tuple)):
        value = stacked(tracer, value, target) if holds_computed(value) else np.asarray(value)
    if isinstance(value, shapes.NamedDim):
        return tracer.size_as_tensor(value, target)
    if isinstance(value, (np.generic, np.ndarray)):
        scalar = isinstance(value, np.generic)
        value = plain_array(value, f"the values of {what}")
        if scalar and not np.can_cast(value.dtype, target.numpy, casting):  # type: ignore[arg-type]
            raise _not_cast(tracer, value.dtype, destination, what, instead)
        value = value.item() if scalar else value  # NumPy also rejects a scalar that does not fit
    if isinstance(value, dtypes.NUMBERS):
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
        if found.dtype.is_complex and not target.is_complex and not target.is_bool:
            said = tracer.error(f"{what}: {found} becomes {target}, which drops the imaginary part")
            warnings.warn(str(said), np.exceptions.ComplexWarning, stacklevel=2)
        value = lookup("cast")(value, target)
    while value.type.rank > destination.rank and value.type.shape[0] == 1:
        value = lookup("squeeze")(value, 0)
    _check_shape(tracer, value.type.shape, destination, what)
    return value.node


def _as_many(value: Masked, destination: TensorType, what: str) -> Any:
    """Selected elements as an array with one for each place along an axis of the destination; if there are more or
    fewer, a ValueError is raised at run time."""
    axis, sizes = destination.rank - value.after - 1, value.values.type.shape
    if axis < value.before:
        raise value.refusal(f"{what}, which has fewer axes than the elements of a selection")
    rest = sizes[len(sizes) - value.after :]
    return lookup("reshape")(value, (*sizes[: value.before], destination.shape[axis], *rest))


def _number(tracer: Tracer, value: Any, target: dtypes.DType, what: str) -> Any:
    try:
        return fill_value(value, target)
    except DTypeError as error:
        raise tracer.error(f"{what}: {error}") from None


def _fits(source: Any, target: dtypes.DType) -> bool:
    kinds = "biufc"
    order = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}
    kind = "c" if target.is_complex else "f" if target.is_float else "b" if target.is_bool else "i"
    return source.kind in kinds and order[source.kind] <= order[kind]


def _not_cast(tracer: Tracer, source: Any, destination: TensorType, what: str, instead: str) -> FxliteError:
    return tracer.error(
        f"{what} would have to turn {source} into {destination.dtype}, which NumPy does not do in place",
        instead or "cast the values first: .astype",
    )


def _check_shape(tracer: Tracer, shape: Any, destination: TensorType, what: str) -> None:
    try:
        fits = shapes.shapes_equal(broadcast_shapes(destination.shape, shape), destination.shape)
    except ShapeError:
        fits = False
    if not fits:
        text = f"({', '.join(map(str, shape))})"
        raise tracer._located(ShapeError(f"{what}: values of shape {text} do not fit {destination}"), program_line())


def program_line() -> Location | None:
    """The line of the program that writes, for errors."""
    return here(3)


def chosen(tracer: Tracer, condition: Any, value: Any, node: Node) -> Node:
    """``np.where(condition, value, node)`` in the dtype of ``node``."""
    dtype = node.type.dtype
    if isinstance(value, dtypes.NUMBERS) and dtype is dtypes.bfloat16:
        value = lookup("full")((), value, dtype)  # a number is not weak with bfloat16
    new = tracer.record(
        lookup("where"), {"condition": condition, "x": as_proxy(tracer, value), "y": tracer.proxy(node)}
    )
    if new.type.dtype is not dtype:
        new = lookup("cast")(new, dtype)
    return new.node  # type: ignore[no-any-return]


def as_proxy(tracer: Tracer, value: Any) -> Any:
    """The proxy of a node; any other value unchanged."""
    return tracer.proxy(value) if hasattr(value, "all_input_nodes") else value


# -- subscripts ------------------------------------------------------------------------------------
# -- which part -----------------------------------------------------------------------------------
class Planned:
    """A view that is not recorded: its type, and the steps that lead to it."""

    def __init__(self, tracer: Tracer, type: TensorType, steps: tuple[Step, ...] = ()) -> None:
        self.tracer, self.type, self.steps = tracer, type, steps

    @property
    def ndim(self) -> int:
        return self.type.rank

    def made_view_of(self, base: Planned) -> None:
        """Does nothing, because the steps already make it a view."""

    def __fx_record__(self, op: Op, bound: dict[str, Any]) -> Planned:
        target, typed = op.canonicalize(op.map_tensors(lambda v: _Typed(v.type), bound))
        plain = target.map_tensors(lambda v: v.type, typed)
        found = target.result_type(plain)
        positions = {n: self.tracer.create_arg(bound[n]) for n in target.tensor_kinds if bound[n] is not self}
        plain = target.with_defaults(plain) if positions else plain  # as those of a view at computed positions
        attributes = {n: v for n, v in plain.items() if n not in target.tensor_kinds} | positions
        return Planned(self.tracer, found, (*self.steps, (target, attributes, found)))


class _Typed:
    """A stand-in for a value, of which the canonical form of an op only uses the type."""

    def __init__(self, type: TensorType) -> None:
        self.type = type


def set_item(y: Proxy, index: Any, value: Any) -> None:
    """``y[index] = value``."""
    tracer = y.tracer
    what = "writing into a part"
    if not y.is_typed:
        raise tracer.untyped(f"writing into {y._node.name} in place needs types", y._node)
    if is_number(y):
        raise tracer.error(
            f"{y._node.name} is a NumPy number, which cannot be written to",
            "write y = ..., or keep the axis: keepdims=True, x[0:1]",
            y._node,
        )
    items = items_of(index)
    if any(map(is_computed, items)):
        if _is_own_part(y, items, value):
            return  # Python's store at the end of y[a:b] += 1
        if not _set_stepped(y, items, value, what):
            _set_span(y, items, value, what)
        return
    if any(isinstance(item, Masked) for item in items):
        _set_looked_up(y, items, value, what)
        return
    planned = Planned(tracer, y.type)
    try:
        part = basic_part(planned, items, tracer, masks=True)
    except FxliteError as error:
        raise tracer._located(error, program_line()) from None
    if part.mask is not None:
        _set_masked(y, part, value, items, what)
    elif any(_shape(a) for a in part.arrays):
        _set_indexed(y, part, value, what)
    else:
        _set_part(y, at_numbers(part), value, what)


def _set_part(y: Proxy, part: Planned, value: Any, what: str) -> None:
    """Write a value into a part of ``y``, unless it is that part: Python's store at the end of ``y[i] += 1``."""
    if isinstance(value, Masked) or not _is_same(value, view_of(y), part.steps):
        write(y, prepared(y.tracer, part.type, value, what), part.steps, what)


def _is_own_part(y: Proxy, items: list[Any], value: Any) -> bool:
    """Whether a value is the part of ``y`` that a subscript gives."""
    if not isinstance(value, (Masked, Block)) or value.origin is None:
        return False
    x, given = value.origin
    return x is y and len(given) == len(items) and all(is_like(y.tracer, a, b) for a, b in zip(given, items))


def _set_span(y: Proxy, items: list[Any], value: Any, what: str) -> None:
    """``y[a:b] = value`` with computed bounds: in a loop as a write to as many positions, if their number is known;
    else as a write of the whole axis with np.where."""
    window = _window(y, items, value)
    if window is not None:
        _set_part(y, window, value, what)
        return
    if sum(map(is_computed, items)) > 1:
        _set_block(y, items, value, what)
        return
    part = cut(y, items)
    new = aligned(value, part)
    kind = part.values.type.dtype
    if is_traced(new):
        new = y.tracer.proxy(prepared(y.tracer, part.values.type, new, what))
    else:
        new = np.asarray(prepared(y.tracer, part.values.type, new, what), kind.numpy) if np.ndim(new) == 0 else new
    set_item(y, without_span(items), lookup("where")(part.condition, new, part.values))


def _window(y: Proxy, items: list[Any], value: Any) -> Planned | None:
    """The part of ``y`` that a subscript with slices of computed bounds gives, if they have known numbers of elements,
    and either ``value`` is that part, or all elements are known to be inside of the axes and the write is in a loop or
    branch, where the whole axes would be computed in each round. Else None."""
    tracer, axis, spans = y.tracer, 0, list[Span]()
    if isinstance(value, (Masked, Block)) or any(map(_shape, items)):
        return None
    for item in with_all_axes(items, y.ndim):
        spans += [span_of(tracer, item, y.type.shape[axis])] if is_computed(item) else []
        axis += item is not None
    if any(span.length is None for span in spans):
        return None
    whole = Planned(tracer, y.type)
    part: Planned = several(whole, items, subscript) if len(spans) > 1 else at_numbers(basic_part(whole, items, tracer))
    if _is_same(value, view_of(y), part.steps):
        return part
    inside = all(at_least(tracer, s.first, 0) and at_most(tracer, s.last, s.size) for s in spans)
    return part if tracer.bodies and inside else None


#: Positions of a slice with a computed step that are written at once in a loop, which would otherwise compute the whole
#: axis in each round.
_AT_ONCE = 4096


def _set_stepped(y: Proxy, items: list[Any], value: Any, what: str) -> bool:
    """``y[a::n] = value`` with a computed step; False for others."""
    steps = [n for n, item in enumerate(items) if has_computed_step(item)]
    if not steps:
        return False
    (number, *more), tracer = steps, y.tracer
    item, around = items[number], [i for n, i in enumerate(items) if n != number]
    if more or any(map(is_computed, around)) or any(i is None or i is Ellipsis for i in items[:number]):
        raise tracer.error(
            "a write into a slice with a computed step beside another computed one cannot be traced",
            "write row by row: for i in range(a, b): y[i, c::n] = ...",
        )
    dim = y.type.shape[number]
    size = shapes.for_user(dim)
    if isinstance(value, Masked) or np.ndim(value):
        set_item(y, (*items[:number], stepped_places(tracer, item, dim), *items[number + 1 :]), value)
        return True
    step = item.step
    if not at_least(tracer, step, 1):
        step = tracer.unless(step, step < 1, ValueError("a computed step of a slice must be positive"))
        step = np.maximum(step, 1)
    span = span_of(tracer, slice(item.start, item.stop), dim)
    first = span.first if at_least(tracer, span.first, 0) else np.maximum(span.first, 0)
    if tracer.bodies and len(items) == 1 and not (type(size) is int and size <= _AT_ONCE):
        length, last = as_number(tracer, size), as_number(tracer, span.last)
        last = last if at_most(tracer, span.last, dim) else lookup("minimum")(last, length)
        step = lookup("minimum")(step, np.maximum(length, 1))  # a larger one gives the same, and might overflow

        def written(k: Any, now: Proxy) -> Proxy:
            at = first + (k * _AT_ONCE + counting(tracer, _AT_ONCE)) * step
            _set_places(now, [lookup("minimum")(at, length - 1)], at < last, value, what, "scatter_set")
            return now

        parts = tracer.python_number(np.maximum((last - first - 1) // (step * _AT_ONCE) + 1, 0))
        set_item(y, Ellipsis, tracer.loop(0, parts, written, y))
        return True
    places = counting(tracer, size)  # the whole axis with np.where, which needs no positions
    at = (places >= first) & (places < span.last) & ((places - first) % step == 0)
    whole = (*items[:number], slice(None), *items[number + 1 :])
    now = y[whole]
    axis = sum(isinstance(i, slice) for i in items[:number])
    y[whole] = lookup("where")(at.reshape(size, *[1] * (now.ndim - axis - 1)), value, now)
    return True


def _set_block(y: Proxy, items: list[Any], value: Any, what: str) -> None:
    """``y[a:b, c:d] = value`` with several slices of computed bounds, as a write of whole axes with np.where."""
    whole, spans = taken_apart(several(y, items, subscript, takes=False))
    new = fitted(value, spans)
    if is_traced(new):
        new = y.tracer.proxy(prepared(y.tracer, whole.type, new, what))
    elif np.ndim(new) == 0:
        new = np.asarray(prepared(y.tracer, whole.type, new, what), whole.type.dtype.numpy)
    mask = Block(whole, spans).mask(spans)
    set_item(y, without_span(items), lookup("where")(mask, new, whole))


def _set_looked_up(y: Proxy, items: list[Any], value: Any, what: str, scatter: str = "scatter_set") -> None:
    """``y[m] = value`` for selected integers; values for others are written nowhere. ``scatter``: the op that writes,
    or combines the values with the current ones."""
    if any(isinstance(item, Masked) and item.ndim > 1 for item in items):
        _set_mesh(y, items, value, what, scatter)
        return
    items = with_selected_numbers(items)
    found = looked_up(items)
    first = found[0]
    if not all(isinstance(item, Masked) for item in items[: len(found)]):
        raise first.refusal("a write with an index array beside other parts of a subscript")
    rest = y.type.shape[len(found) :]
    selected = isinstance(value, Masked)
    if selected or not first.like(first.values, len(rest)).stretches(value):
        if not (selected and value.same(first)):
            found = [item.one_by_one() for item in found]
        first = found[0]
        value = aligned(value, first.like(first.values, len(rest)))
    _set_places(y, [item.filled(0) for item in found], first.mask, value, what, scatter)


def _set_mesh(y: Proxy, items: list[Any], value: Any, what: str, scatter: str) -> None:
    """``y[np.ix_(a, b)] = value`` for positions whose number is computed."""
    apart = [taken_apart(item) for item in items if item is not Ellipsis]
    spans = {axis: span for _, own in apart for axis, span in own.items()}
    ranks = {rank_of(v) for v, _ in apart if not isinstance(v, slice) and v is not None}
    if len(ranks) != 1 or any(isinstance(v, slice) or v is None for v, _ in apart) or items[0] is Ellipsis:
        raise next(i for i in items if isinstance(i, Masked)).refusal("a write at a mesh beside slices")
    behind = y.ndim - len(apart)
    places = [lookup("where")(mask_of_all(v, own), v, 0) if own else v for v, own in apart]
    first = next(v for v, own in apart if own)
    new = fitted(value, {axis - behind: span for axis, span in spans.items()})
    _set_places(y, places, mask_of_all(first, spans), new, what, scatter)


def _set_places(y: Proxy, indices: Sequence[Any], mask: Any, value: Any, what: str, scatter: str) -> None:
    """Write at positions of the first axes where a mask is true."""
    tracer = y.tracer
    sizes, rest = y.type.shape[: len(indices)], y.type.shape[len(indices) :]
    places: Any = 0
    for index, size in zip(indices, sizes):
        places = places * shapes.for_user(size) + lookup("take")(counting(tracer, size), index)
    shape = broadcast_shapes(places.type.shape, mask.type.shape)
    count, chosen_ones = shapes.product(sizes), shapes.product(shape)
    places = lookup("where")(mask, places, NOWHERE)
    kind = TensorType((*shape, *rest), y.type.dtype)
    node = tracer.create_arg(as_proxy(tracer, prepared(tracer, kind, value, what)))
    wide = (chosen_ones, *rest)
    if not hasattr(node, "all_input_nodes"):
        new = lookup("full")(wide, node, y.type.dtype)
    else:
        new = lookup("reshape")(lookup("expand")(tracer.proxy(node), kind.shape), wide)
    ones = (1,) * len(rest)
    index = lookup("expand")(lookup("reshape")(places, (chosen_ones, *ones)), wide)
    flat = lookup("reshape")(y, (count, *rest))
    written = lookup(scatter)(flat, index, new, axis=0, mode="drop")
    set_item(y, Ellipsis, lookup("reshape")(written, y.type.shape))


#: Ufuncs whose ``at`` is a scatter.
_SCATTERS = {np.add: "scatter_add", np.multiply: "scatter_mul", np.maximum: "scatter_max", np.minimum: "scatter_min"}


def _of_selected(y: Any, index: Any, value: Any, ufunc: np.ufunc, combine: Callable[..., Any] | None) -> None:
    """``ufunc.at(y, index, value)`` for a selected index or ``y``."""
    what = f"np.{ufunc.__name__}.at"
    if isinstance(y, Masked):
        y.placed(f"{what} into x[mask]")
        if isinstance(index, Masked):
            places: Any = index.like(y.inside(index.values)[0])
        else:
            places = y.inside(index)
        update_at(y.values, places, value, ufunc, combine)
        return
    items = items_of(index)
    if ufunc is np.subtract:
        ufunc, value = np.add, np.negative(value)
    if ufunc not in _SCATTERS:
        raise next(item for item in items if isinstance(item, Masked)).refusal(f"{what} with selected positions")
    _set_looked_up(y, items, value, what, _SCATTERS[ufunc])


def update_at(y: Any, index: Any, value: Any, ufunc: np.ufunc, combine: Callable[..., Any] | None) -> None:
    """``ufunc.at(y, index, value)``: applied once for each index, in sequence for equal ones."""
    if isinstance(y, Masked) or (is_traced(y) and any(isinstance(item, Masked) for item in items_of(index))):
        _of_selected(y, index, value, ufunc, combine)
        return
    if not is_traced(y):
        found = next(v for v in (index, value) if is_traced(v))
        raise found.tracer.error(
            f"np.{ufunc.__name__}.at writes into an array that exists before the program runs",
            "make the destination in the program: np.zeros_like(x)",
        )
    tracer, what = y.tracer, f"np.{ufunc.__name__}.at"
    items = items_of(index)
    part = basic_part(Planned(tracer, y.type), items, tracer, masks=True)
    if part.mask is not None and not is_traced(part.mask):
        places = [np.nonzero(v) if np.asarray(v).dtype == bool else (v,) for v in items]
        items = [one for found in places for one in found]
        part = basic_part(Planned(tracer, y.type), items, tracer)
    if part.mask is not None or not part.arrays:  # no place occurs twice
        if combine is None:
            raise tracer.error(f"{what} has no fxlite op", "write y[index] = ...")
        old = y[index]
        set_item(y, index, combine(old, value) if ufunc.nin == 2 else combine(old))
        return
    if ufunc is np.subtract:
        ufunc, value = np.add, lookup("neg")(value) if is_traced(value) else np.negative(value)
    if ufunc not in _SCATTERS:
        raise tracer.error(
            f"{what} is traced for add, subtract, multiply, maximum and minimum",
            "write y[index] = ..., where no index comes twice",
        )
    _set_indexed(y, part, value, what, _SCATTERS[ufunc])


def _is_same(value: Any, base: View, steps: tuple[Step, ...]) -> bool:
    """True for ``y[i] = t`` where ``t`` is the view y[i]: Python's store at the end of ``y[i] += 1``."""
    view = getattr(value, "_view", None)
    for op, attributes, _ in reversed(steps):
        if view is None or view.op is not op or view.attributes.keys() != attributes.keys():
            return False
        if not all(is_like(value.tracer, view.attributes[n], v) for n, v in attributes.items()):
            return False
        view = view.parent
    return view is base


def _set_masked(y: Proxy, part: Any, value: Any, items: list[Any], what: str) -> None:
    """``y[mask] = value`` with np.where. If there is a value for each selected element, a constant mask is an integer
    index, and the values are spread over the positions of any other mask."""
    tracer, mask, kind = y.tracer, part.mask, part.x.type
    covered = mask.type.shape if is_traced(mask) else np.shape(mask)
    first = part.axes[0]
    if not shapes.shapes_equal(covered, kind.shape[first : first + len(covered)]):
        text = f"({', '.join(map(str, covered))})"
        raise tracer._located(ShapeError(f"a mask of shape {text} does not fit {kind}"), program_line())
    after = kind.shape[first + len(covered) :]
    if isinstance(value, (list, tuple)):
        value = np.asarray(value)
    selected = isinstance(value, Masked)
    rank = 0 if selected else value.type.rank if is_traced(value) else np.ndim(value)
    if rank > len(after):
        if not is_traced(mask):
            position = next(n for n, item in enumerate(items) if item is mask or _is_list(item))
            set_item(y, (*items[:position], *np.nonzero(mask), *items[position + 1 :]), value)
            return
        value = one_by_one(mask, value, rank - len(after) - 1)
        after = kind.shape if first and value.type.rank == kind.rank else kind.shape[first:]
    if selected:
        if not is_traced(mask) or not same_mask(mask.node, value.mask.node):
            found: Any = np.nonzero(mask) if is_traced(mask) else ()
            places = [place.one_by_one() for place in found]
            if not places or items[0] is not mask:
                raise value.refusal("a write of elements that one mask selects to positions that another one does")
            _set_looked_up(y, [*places, *items[1:]], value, what)
            return
        after, value = kind.shape[first:], value.values
    shape = (*covered, *[1] * (kind.rank - first - len(covered)))
    condition = mask
    if len(shape) > len(covered) and is_traced(mask):
        condition = lookup("reshape")(mask, shape)
    elif len(shape) > len(covered):
        condition = np.reshape(mask, shape)
    new = prepared(tracer, TensorType(after, kind.dtype), value, what)
    write(y, lambda node: chosen(tracer, condition, new, node), part.x.steps, what)


def _is_list(item: Any) -> bool:
    return isinstance(item, list) and bool(item) and np.asarray(item).dtype == np.bool_


# -- arrays of indices -----------------------------------------------------------------------------
#: The most positions that each element is compared with to become a value that they share, outside of loops.
_FEW = 8


def _set_indexed(y: Proxy, part: Part, value: Any, what: str, scatter: str = "") -> None:
    """Write ``value`` to the positions in the arrays of ``part``; ``scatter``: combine it with the current values,
    once for each index."""
    tracer, x, axes = y.tracer, part.x, part.axes
    sizes = [x.type.shape[a] for a in axes]
    others = [a for a in range(x.type.rank) if a not in axes]
    rest = tuple(x.type.shape[a] for a in others)
    index_shapes = [_shape(a) for a in part.arrays]
    try:
        common = broadcast_shapes(*index_shapes)
    except ShapeError as error:
        raise tracer._located(error, program_line()) from None
    # the values with the axes of the index first, or without these axes if the values are all equal along them
    at = part.target
    result = TensorType((*rest[:at], *common, *rest[at:]), y.type.dtype)
    new = prepared(tracer, result, value, what)
    alike = not scatter and _alike(new, len(common), len(rest) - at)
    if not scatter and common and any(map(is_traced, part.arrays)):
        written = shapes.product(common)
        if not alike or tracer.bodies or type(written) is not int or written > _FEW:
            scatter, alike = "scatter_set", False
    axis = at if scatter and axes == [at] else 0  # a scatter along one axis does not move it
    before, behind = others[:axis], others[axis:]
    if [*before, *axes, *behind] != [*range(x.type.rank)]:
        x = lookup("permute")(x, (*before, *axes, *behind))
    count = shapes.product(sizes)
    if len(axes) > 1:
        x = lookup("reshape")(x, (count, *rest))
    positions = _positions(tracer, part.arrays, sizes, common, bool(scatter))
    wide = (*rest[:axis], shapes.product(common), *rest[axis:])
    if alike:
        new = _without(tracer, new, len(common), len(rest) - at)
    elif isinstance(new, dtypes.NUMBERS):
        new = tracer.record(lookup("full"), {"shape": wide, "value": new, "dtype": result.dtype}).node
    else:
        full = lookup("expand")(tracer.proxy(new), result.shape)
        made = range(at, at + len(common))
        left = [a for a in range(result.rank) if a not in made]
        order = (*left[:axis], *made, *left[axis:])
        if [*order] != sorted(order):
            full = lookup("permute")(full, order)
        new = lookup("reshape")(full, wide).node

    def changed(node: Node) -> Node:
        if scatter:
            return _scattered(tracer, node, positions, new, scatter, axis)
        return _changed(tracer, node, positions, count, new, alike, len(rest))

    write(y, changed, x.steps, what)


def _shape(array: Any) -> tuple[Any, ...]:
    return array.type.shape if is_traced(array) else np.shape(array)


def _positions(tracer: Tracer, arrays: list[Any], sizes: list[Any], common: Any, for_scatter: bool) -> Any:
    """The positions of the written elements on the indexed axes, joined to one: an array if they are known, else a
    proxy, of rank 1, or 0 for a single element. A scatter along one axis checks the positions itself."""
    if all(not is_traced(a) for a in arrays) and all(type(s) is int for s in sizes):
        flat = np.zeros((), np.int64)
        for array, size in zip(arrays, sizes):
            index = np.asarray(array).astype(np.int64)
            if index.size and not (-size <= index.min() and index.max() < size):
                wrong = index[(index < -size) | (index >= size)].flat[0]
                error = PositionError(f"index {wrong} is out of range for an axis of size {size}")
                raise tracer._located(error, program_line())
            flat = flat * size + np.where(index < 0, index + size, index)
        return flat.reshape(-1) if flat.ndim else flat
    total: Any = None
    for array, size in zip(arrays, sizes):
        if not is_traced(array):
            array = tracer.constant(array)
        if for_scatter and len(arrays) == 1:
            index = lookup("cast")(array, "i64")
        else:
            index = lookup("take")(counting(tracer, size), array)  # checks the range, and counts from 0
        total = index if total is None else total * shapes.for_user(size) + index
    return lookup("reshape")(total, (shapes.product(common),)) if common else total


def _alike(new: Any, made: int, after: int) -> bool:
    """True if the values do not vary along the axes of the index."""
    kind = getattr(new, "type", None)
    if kind is None or not made:
        return True
    own = kind.shape[: kind.rank - after][-made:] if kind.rank > after else ()
    return all(type(d) is int and d == 1 for d in own)


def _without(tracer: Tracer, new: Any, made: int, after: int) -> Any:
    """The values without the axes of size 1 that correspond to those of the index."""
    kind = getattr(new, "type", None)
    if kind is None or kind.rank <= after:
        return new
    before = kind.shape[: kind.rank - after]
    kept = (*before[: max(len(before) - made, 0)], *kind.shape[kind.rank - after :])
    return lookup("reshape")(tracer.proxy(new), kept).node if kept != kind.shape else new


def _scattered(tracer: Tracer, node: Node, positions: Any, new: Any, scatter: str, axis: int) -> Node:
    """``node`` with ``new`` written to ``positions`` of an axis by a scatter."""
    kind = new.type
    shape = tuple(d if a == axis else 1 for a, d in enumerate(kind.shape))
    if is_traced(positions):
        index = lookup("reshape")(positions, shape)
    else:
        index = tracer.constant(np.asarray(positions, np.int64).reshape(shape))
    index = lookup("expand")(index, kind.shape)
    made: Proxy = lookup(scatter)(tracer.proxy(node), index, tracer.proxy(new), axis=axis)
    return made.node


def _changed(tracer: Tracer, node: Node, positions: Any, count: Any, new: Any, alike: bool, trailing: int) -> Node:
    """``node`` with ``new`` at ``positions`` of its first axis (of ``count`` elements)."""
    places = lookup("arange")(0, shapes.for_user(count), 1, "i64")
    ones = (1,) * trailing
    constant = not is_traced(positions)
    if alike:
        if constant:
            mask: Any = np.isin(np.arange(count), positions).reshape(count, *ones)
        else:
            hits = (
                tracer.constant(places) == positions
                if not positions.type.rank
                else ((lookup("unsqueeze")(tracer.constant(places), 1) == positions).any(axis=1))
            )
            mask = lookup("reshape")(hits, (count, *ones)) if ones else hits
        return chosen(tracer, mask, new, node)
    if constant:
        source: Any = np.arange(count)
        # the last of equal positions counts
        source[positions] = count + np.arange(np.size(positions))
    else:
        source = lookup("where")(tracer.constant(places) == positions, shapes.for_user(count), tracer.constant(places))
    joined = lookup("concat")((tracer.proxy(node), tracer.proxy(new)), axis=0)
    taken: Proxy = lookup("take")(joined, source, axis=0)
    return taken.node
