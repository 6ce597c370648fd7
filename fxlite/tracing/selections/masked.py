"""``x[mask]`` for a computed mask, and ``x[a:b]`` for computed bounds. The number of selected elements is known only at
run time, but operations on each of them, on all of them together, or at their positions do not need it.

In: a traced value and a mask of some of its axes. Out: a :class:`Masked` value. Ufuncs and operators compute it for all
elements of the whole array; reductions and products use ``where``; and ``y[mask] = ...`` under the same mask writes it
back with ``np.where``. Any other operation raises an error that says so.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.errors import TraceError
from fxlite.base.state import is_traced
from fxlite.ops.elementwise import COMPARISONS
from fxlite.ops.op import OPERATORS, lookup
from fxlite.scalar.functions import COMBINATIONS
from fxlite.tracing.selections.spans import (
    Span,
    at_least,
    at_most,
    counting,
    first_positions,
    is_computed,
    mask_of,
    span_of,
    sum_of,
    taken,
)
from fxlite.tracing.writes.shared_memory import copy_of, may_hold
from fxlite.types import dtypes, shapes
from fxlite.types.shapes import Dim

if TYPE_CHECKING:
    from fxlite.graph.graph import Node
    from fxlite.tracing.proxy import Proxy
    from fxlite.tracing.tracer import Tracer

REDUCTIONS = frozenset(
    (np.sum, np.prod, np.mean, np.max, np.min, np.amax, np.amin, np.any, np.all, np.std, np.var, np.count_nonzero)
)
REDUCED: dict[np.ufunc, Any] = {
    np.add: np.sum,
    np.multiply: np.prod,
    np.maximum: np.max,
    np.minimum: np.min,
    np.logical_and: np.all,
    np.logical_or: np.any,
}
ELEMENTWISE = frozenset(
    getattr(np, name)
    for name in "where clip round around nan_to_num isclose zeros_like ones_like full_like real imag angle isreal "
    "iscomplex sinc i0 fix isneginf isposinf".split()
)
#: Functions along one axis, with the axis that they use if none is given.
ALONG: dict[Any, int | None] = {
    **dict.fromkeys((np.sort, np.argsort, np.diff), -1),
    **dict.fromkeys((np.argmax, np.argmin, np.cumsum, np.cumprod, np.median, np.average, np.ptp, np.linalg.norm)),
}


#: Whether an op that is defined for no values is being expanded.
takes_none: ContextVar[bool] = ContextVar("takes_none", default=False)


class PlaceFirst(BaseException):
    """Raised by a write into a part of a selection that was made outside of the running body: the trace starts again,
    and the elements selected at the ``place`` have memory of their own from the start."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.place = place


class Masked:
    """The elements of ``values`` where ``mask`` is true. The mask covers the axes before the last ``after`` ones.
    ``span``: they are cut out of one axis, by computed bounds. ``origin``: the array and the subscript of which this
    is a view; None for a copy.

    With a span, ``values`` is the memory, and parts of the selection are views of it, as in NumPy. Without a span,
    ``values`` are the current ones as long as no part is written into; on the first such write, the elements are
    :meth:`placed` in sequence in memory of their own. Until then ``parts`` are copies, each with its ``base`` and the
    way in which it was taken."""

    __slots__ = ("__weakref__", "after", "base", "made", "mask", "origin", "parts", "span", "values")
    __array_priority__ = 2000.0
    __fx_selected__ = True  # makes ops call the tracer

    def __init__(self, values: Proxy, mask: Proxy, after: int | None = None, span: Span | None = None) -> None:
        """A selection of the current values, which are copied, by the current mask; with a span it is a view."""
        tracer = values.tracer
        self.values = values if span is not None else copy_of(values)
        self.mask = tracer.proxy(mask.node)
        self.after = values.ndim - mask.ndim if after is None else after
        self.span = span
        self.origin: tuple[Proxy, tuple[Any, ...]] | None = None
        self.parts: list[weakref.ref[Masked]] = []  # parts that are views in NumPy
        self.base: tuple[Masked, Callable[[Masked], Any]] | None = None
        self.made = self.values.node, self.mask.node
        if tracer.bodies:
            tracer.bodies[-1].own_object(self)
        if tracer.placed and span is None and self._place() in tracer.placed:
            self._become(FUNCTIONS["compact"](self))

    def like(self, values: Any, after: int | None = None) -> Masked:
        """The same positions of another array."""
        return Masked(values, self.mask, self.after if after is None else after, self.span)

    # -- memory ------------------------------------------------------------------------------
    def _place(self) -> str:
        return " ".join(str(node.loc) for node in self.made)

    def as_part(self, made: Any, again: Callable[[Masked], Any]) -> Any:
        """Register a result that is a view in NumPy: ``again`` takes the part again, unless this selection has memory
        of its own."""
        own = self.span is not None and self.base is None
        if not own and isinstance(made, Masked) and made is not self:
            made.base = self, again
            self.parts.append(weakref.ref(made))
            may_hold(made.values, self.values)
        return made

    def _alive(self) -> list[Masked]:
        """The parts that the program still has."""
        return [part for reference in self.parts if (part := reference()) is not None]

    def _owner(self) -> Masked:
        owner = self
        while owner.base is not None:
            owner = owner.base[0]
        return owner

    def placed(self, what: str) -> None:
        """Put the elements in sequence into memory of their own, of which parts are views from now on."""
        owner = self._owner()
        if owner.span is not None:
            return
        bodies = self.tracer.bodies
        if bodies and not bodies[-1].owns(owner):
            if owner._place() in self.tracer.placed:
                raise self.refusal(f"{what}, made outside of {bodies[-1].what},")
            raise PlaceFirst(owner._place())
        owner._become(FUNCTIONS["compact"](owner))

    def _become(self, other: Masked) -> None:
        may_hold(other.values, self.values)
        self.values, self.mask, self.after, self.span = other.values, other.mask, other.after, other.span
        parts, self.parts, self.base = self._alive(), [], None
        for part in parts:
            part._become(part.base[1](self))  # type: ignore[index]

    def _bounds(self) -> tuple[Any, Any]:
        """The bounds of the span for a slice, which are not negative."""
        bounds = self.span.first, self.span.last  # type: ignore[union-attr]
        first, last = (b if at_least(self.tracer, b, 0) else lookup("maximum")(b, 0) for b in bounds)
        return first, last

    # -- facts -------------------------------------------------------------------------------
    @property
    def tracer(self) -> Tracer:
        return self.values.tracer

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    @property
    def ndim(self) -> int:
        return self.values.ndim - self.mask.ndim + 1

    @property
    def before(self) -> int:
        """The number of axes before those of the mask."""
        return self.values.ndim - self.mask.ndim - self.after

    @property
    def count(self) -> Any:
        """The number of selected positions, traced or known."""
        if self.span is not None:
            return self.span.count(self.tracer)
        number = self.tracer.python_number(lookup("sum")(lookup("cast")(self.mask, "i64")))
        most = shapes.normalize(shapes.product(self.mask.type.shape) + 1)
        self.tracer.ranges[number._node] = (0, shapes.for_user(most))
        return number

    @property
    def shape(self) -> tuple[Any, ...]:
        sizes = tuple(map(shapes.for_user, self.values.type.shape))
        return (*sizes[: self.before], self.count, *sizes[self.values.ndim - self.after :])

    @property
    def size(self) -> Any:
        """The number of elements, a traced number."""
        sizes = self.values.type.shape
        rest = shapes.product((*sizes[: self.before], *sizes[self.values.ndim - self.after :]))
        return self.count if rest == 1 else self.tracer.python_number(lookup("mul")(self.count, shapes.for_user(rest)))

    def same(self, other: Masked) -> bool:
        """Whether both select the same positions of axes of the same size."""
        if self.span is not None and self.span.same(other.span):
            return True
        fits = shapes.shapes_equal(self.mask.type.shape, other.mask.type.shape)
        return fits and same_mask(self.mask.node, other.mask.node)

    def refusal(self, what: str, instead: str = "") -> TraceError:
        """The error for an operation that would need the number of elements. ``instead``: what to do, if that is not to
        keep the shape."""
        tracer = self.tracer  # for a result of a program that has ended, the place of the selection
        place = None if tracer.origin is None else self.mask.node.loc
        if self.span is not None:
            return tracer.error(
                f"{what}: the bounds of a slice are computed, so its size is not known before the program runs",
                instead or "take a fixed number of elements: x[i:i + n], or reduce it in the same line: x[i:j].sum()",
                self.mask.node,
                location=place,
            )
        return tracer.error(
            f"{what}: a boolean mask selects a number of elements that is not known before the program runs",
            instead or "keep the shape: np.where(mask, x, other), or (x * mask).sum() for a masked sum",
            self.mask.node,
            location=place,
        )

    # -- each element ------------------------------------------------------------------------
    def _applied(self, function: Callable[..., Any], operands: tuple[Any, ...], **kw: Any) -> Any:
        """``function`` of whole arrays, with the same elements selected."""
        selected = [o for o in operands if isinstance(o, Masked)]
        if self.span is not None and any(self._is_across(o) for o in operands):
            return FUNCTIONS["applied"](function, operands, **kw)
        if len({o.span is None for o in selected}) == 2 or (not all(map(self.same, selected)) and self.span is None):
            # selections of other positions are combined in sequence
            operands = tuple(FUNCTIONS["compact"](o) if isinstance(o, Masked) else o for o in operands)
            first: Masked = next(o for o in operands if isinstance(o, Masked))
            return first._applied(function, operands, **kw)
        given = []
        for operand in operands:
            if isinstance(operand, Masked) or not self.stretches(operand):
                operand = aligned(operand, self)
            given.append(operand)
        result = function(*given, **kw)
        if isinstance(result, tuple):
            return tuple(map(self.like, result))
        return self.like(result)

    def _is_across(self, operand: Any) -> bool:
        """Whether an operand is selected along other axes."""
        if isinstance(operand, Masked):
            return operand.span is not None and operand.after != self.after
        return is_block(operand)

    def stretches(self, operand: Any) -> bool:
        """Whether an operand is the same for all selected positions."""
        shape = operand.type.shape if is_traced(operand) else np.shape(operand)
        if len(shape) <= self.after:
            return True
        return self.mask.ndim == 1 and type(shape[-self.after - 1]) is int and shape[-self.after - 1] == 1

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if ufunc is np.matmul and method == "__call__" and not kwargs:
            return product(*inputs)
        if method == "reduce" and ufunc in REDUCED and inputs[0] is self:
            kwargs.setdefault("axis", 0)
            return self._reduced(REDUCED[ufunc], **kwargs)
        if method == "at" and not kwargs:
            return FUNCTIONS["at"](ufunc, *inputs)
        if method == "reduceat":
            return FUNCTIONS["reduceat"](ufunc, *inputs, **kwargs)
        if method in ("accumulate", "outer") and "out" not in kwargs:
            return FUNCTIONS[method](ufunc, *inputs, **kwargs)
        out = kwargs.pop("out", None)
        if method != "__call__" or "where" in kwargs:
            raise self.refusal(f"np.{ufunc.__name__}.{method}")
        result = self._applied(ufunc, inputs, **kwargs)
        return result if out is None else stored(out[0], result, f"np.{ufunc.__name__}(out=...)")

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function in REDUCTIONS and args and args[0] is self:
            return self._reduced(function, *args[1:], **kwargs)
        if function in ALONG and args and args[0] is self:
            second = args[1] if len(args) == 2 and function not in (np.diff, np.linalg.norm) else ALONG[function]
            axis = kwargs.get("axis", second)
            if isinstance(axis, (int, np.integer)) and axis % self.ndim != self.before and not kwargs.get("keepdims"):
                rest = args[1:] if second is ALONG[function] else ()
                return self._along(function, int(axis) % self.ndim, rest, kwargs)
        if function is np.where and len(args) == 1:
            function = np.nonzero
        if function in ELEMENTWISE:
            out = kwargs.pop("out", None)
            result = self._applied(function, args, **kwargs)
            return result if out is None else stored(out, result, f"np.{function.__name__}(out=...)")
        if function in FUNCTIONS:
            return FUNCTIONS[function](*args, **kwargs)
        return FUNCTIONS["of numpy itself"](self, function, args, kwargs)

    def __fx_children__(self) -> tuple[str, Sequence[str], Sequence[Any]]:
        """The parts that loops and branches pass on; after them, a view is a copy."""
        if self.origin is not None:
            raise self.tracer.error(
                "a part of an array with computed bounds goes from round to round of a loop, or out of a branch",
                "copy it: x[a:b].copy()",
                self.mask.node,
            )
        return "masked", ("values", "mask"), (self.values, self.mask)

    @property
    def __fx_form__(self) -> Any:
        return self.after

    def __fx_rebuilt__(self, parts: Sequence[Any]) -> Masked:
        return Masked._of(parts[0], parts[1], self.after)

    @staticmethod
    def _of(values: Proxy, mask: Proxy, after: int) -> Masked:
        """A selection that stands in the memory of an array."""
        made = Masked(values, mask, after)
        made.values = values
        return made

    def __fx_create_arg__(self, tracer: Any) -> Any:
        raise self.refusal("selected elements as an argument or a result")

    def astype(self, dtype: Any, **options: Any) -> Masked:
        if not options.get("copy", True) and np.dtype(dtype) == self.dtype:
            return self
        return self.like(self.values.astype(dtype))

    def copy(self) -> Masked:
        # loops inside of this one then read the elements, and not the array
        made: Masked = FUNCTIONS["compact"](self) if self.span is not None and self.tracer.bodies else self
        return self.like(self.values.copy()) if made is self else made

    def sort(self, axis: int = -1, kind: Any = None) -> None:
        self[...] = np.sort(self, axis, kind)

    def fill(self, value: Any) -> None:
        self[...] = value

    def clip(self, *bounds: Any, **options: Any) -> Any:
        return self._applied(np.clip, (self, *bounds), **options)

    def round(self, decimals: int = 0) -> Any:
        return self._applied(np.round, (self,), decimals=decimals)

    # -- all elements ------------------------------------------------------------------------
    @property
    def T(self) -> Any:
        """The selection with its axes in reverse order."""
        if self.mask.ndim > 1:
            self.placed(".T")
        return self.as_part(self.like(self.values.T, self.before), lambda m: m.T)

    @property
    def condition(self) -> Any:
        """The mask followed by axes of size 1, which broadcasts against the values."""
        rest = (1,) * self.after
        return lookup("reshape")(self.mask, (*self.mask.type.shape, *rest)) if rest else self.mask

    def filled(self, number: Any) -> Any:
        """The values, with a number in place of those that are not selected."""
        return chosen(self.condition, self.values, number)

    def _reduced(self, function: Callable[..., Any], axis: Any = None, dtype: Any = None, **options: Any) -> Any:
        name = function.__name__.removeprefix("a") if function in (np.amax, np.amin) else (function.__name__)
        if options.pop("out", None) is not None:
            raise self.refusal(f"np.{name} with out=")
        if axis is None:
            chosen = [*range(self.ndim)]
        else:
            chosen = [operator.index(a) % self.ndim for a in (axis if isinstance(axis, tuple) else (axis,))]
        if options.pop("keepdims", False):
            found = self._reduced(function, tuple(chosen), dtype, **options)
            for each in sorted(chosen):
                found = lookup("unsqueeze")(found, each)
            return found
        more, place = self.mask.ndim - 1, self.before
        axes: Any = tuple(a for c in chosen for a in range(c + more * (c > place), c + 1 + more * (c >= place)))
        where, values = self.condition, self.values
        if dtype is not None:
            options["dtype"] = dtype
        if place not in chosen:
            if name == "count_nonzero":
                return self.like(np.count_nonzero(values, axis=axes), self.after - sum(c > place for c in chosen))
            found = function(values, axis=axes, **options)
            return self.like(found, self.after - sum(c > place for c in chosen))
        axes = None if len(axes) == values.ndim else axes
        if name == "count_nonzero":
            return np.sum(np.not_equal(values, 0), axis=axes, where=where)
        if function in (np.max, np.min, np.amax, np.amin):
            return self._extreme(name, axes, where, **options)
        return function(values, axis=axes, where=where, **options)

    def _along(self, function: Callable[..., Any], axis: int, rest: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """A function along an axis that is whole."""
        is_after = axis > self.before
        whole = axis + (self.mask.ndim - 1) * is_after
        found = function(self.values, *rest, **{**options, "axis": whole})
        return self.like(found, self.after - (self.values.ndim - found.ndim) * is_after)

    def _extreme(self, name: str, axes: Any, where: Any, initial: Any = None) -> Any:
        """The largest or smallest element; if there is none, an error at run time, as in NumPy."""
        if initial is not None:
            return getattr(np, name)(self.values, axis=axes, where=where, initial=initial)
        return extreme(self.values, name, axes, where, self.mask)

    def dot(self, other: Any) -> Any:
        return product(self, other)

    def __matmul__(self, other: Any) -> Any:
        return product(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return product(other, self)

    # -- in place ----------------------------------------------------------------------------
    def changed(self, values: Masked) -> Masked:
        """``x[a:b] += ...``: replace the values at these positions, also in the array of which they are a view."""
        if self.origin is not None:
            x, items = self.origin
            x[items] = values
            return self
        if self.base is not None or self._alive():
            self.placed("a write into x[mask]")
        if self.span is not None:
            self.values[(*[slice(None)] * self.before, slice(*self._bounds()))] = values
            return self
        self.values[...] = values.values
        return self

    # -- operations that need their number ---------------------------------------------------
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self.refusal(f".{name}")

    def __len__(self) -> int:
        raise self.refusal("len() outside of captured code")

    def __iter__(self) -> Any:
        self.tracer.needs_flow = True  # a captured ``for`` statement can iterate over them
        raise self.refusal("a loop over them", "loop over positions: for i in range(len(y)): ... y[i] ..., y = x[mask]")

    def __bool__(self) -> bool:
        raise self.refusal("if, while, and, or")

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        self.tracer.needs_flow = True  # np.vectorize is captured
        raise self.refusal("np.asarray")

    def tolist(self) -> Any:
        """The elements as a list, which captured code has."""
        self.tracer.needs_flow = True
        raise self.refusal(".tolist() of several axes" if self.ndim > 1 else ".tolist()", "give the array itself")

    def __getitem__(self, index: Any) -> Any:
        index = index[0] if isinstance(index, tuple) and len(index) == 1 else index
        if isinstance(index, tuple) and index and all(type(i) is slice and i == slice(None) for i in index[1:]):
            index = index[0] if not self.before and index[0] is not None else index
        if isinstance(index, Masked) and index.dtype == bool and index.after == 0:
            some, those = (self, index) if index.same(self) else map(FUNCTIONS["compact"], (self, index))
            if those.same(some):
                mask = lookup("logical_and")(some.mask, those.values)
                return Masked(self.tracer.proxy(some.values.node), mask, self.after)
        if index is Ellipsis or (type(index) is slice and index == slice(None)):
            return self
        is_view = all(i is None or isinstance(i, (int, slice)) for i in (index if type(index) is tuple else (index,)))
        found = self._taken(index)
        return self.as_part(found, lambda m: m[index]) if is_view else found

    def _taken(self, index: Any) -> Any:
        if type(index) is slice and index == slice(None, None, -1) and not self.before:
            return flipped(self)
        items = tuple(map(_places, index if isinstance(index, tuple) else (index,)))
        others = self.before or len(items) > 1 or index is None
        if (self.span is not None or others) and self._has_whole(items):
            beside = self._beside_whole(items) if self.span is None else None
            if beside is not None:
                return beside
            return FUNCTIONS["part of axes"](self.one_by_one(), items)
        if len(items) > 1 and not any(isinstance(item, Masked) for item in items):
            return FUNCTIONS["part of axes"](self.one_by_one(), items)
        return FUNCTIONS["part"](self, index)

    def one_by_one(self) -> Masked:
        return self if self.span is not None else FUNCTIONS["compact"](self)

    def _has_whole(self, index: tuple[Any, ...]) -> bool:
        """Whether a subscript keeps the whole axis of computed size."""
        axes = with_all_axes([item for item in index if item is not None], self.ndim)
        return isinstance(axes[self.before], slice) and axes[self.before] == slice(None)

    def _beside_whole(self, index: tuple[Any, ...]) -> Masked | None:
        """``m[:, 0]``, ``m[:, a:b]``: parts along axes that are whole; None if other items are computed."""
        axes = with_all_axes(index, self.ndim)
        if not all(isinstance(item, int) or (isinstance(item, slice) and not is_computed(item)) for item in axes):
            return None
        axes[self.before : self.before + 1] = [slice(None)] * self.mask.ndim
        return self.like(self.values[tuple(axes)], sum(isinstance(i, slice) for i in axes[-self.after :][: self.after]))

    def __setitem__(self, index: Any, value: Any) -> None:
        index = index[0] if isinstance(index, tuple) and len(index) == 1 else index
        if isinstance(index, Masked) and index.dtype == bool and not (index.after or self.before):
            if not index.same(self):
                self.placed("a write into x[mask]")
            some, those = (self, index) if index.same(self) else map(FUNCTIONS["compact"], (self, index))
            those = aligned(those, some.like(some.values, 0))
            selected = lookup("logical_and")(some.mask, those)
            if isinstance(value, Masked) and not same_mask(value.mask.node, selected.node):
                raise value.refusal("a write of elements that one mask selects to positions that another one does")
            new = value.values if isinstance(value, Masked) else value
            if np.ndim(new) == 0 or isinstance(value, Masked):
                where = lookup("reshape")(those, some.condition.type.shape)
                self.changed(some.like(chosen(where, lookup("cast")(new, self.values.type.dtype), some.values)))
                return
        is_all = index is Ellipsis or (type(index) is slice and index == slice(None))
        if is_all and (value.same(self) if isinstance(value, Masked) else not np.ndim(value)):
            if not isinstance(value, Masked):
                value = self.like(lookup("expand")(self.tracer.constant(value), self.values.type.shape))
            new = value.like(lookup("cast")(value.values, self.values.type.dtype))
            stored(self, new, "a write into a selection")
            return
        if type(index) is slice and not _is_one(index.step) and self.ndim == 1 and not np.ndim(value):
            self[self._stepped(index)] = value
            return
        self.placed("a write into x[mask]")
        if isinstance(index, tuple) and any(hasattr(i, "ndim") or isinstance(i, list) for i in index):
            FUNCTIONS["set part of axes"](self, index, value)
        else:
            self.values[self.inside(index)] = value

    def _stepped(self, item: slice) -> Any:
        """Which elements a slice with a step takes."""
        start, stop, step = 0 if item.start is None else item.start, item.stop, item.step
        if not (at_least(self.tracer, step, 1) if is_traced(step) else step >= 1):
            raise self.refusal("a write into a part of it with a step that may not be positive")
        start, stop = (b if b is None else FUNCTIONS["clipped"](b, self.count, 0) for b in (start, stop))
        ones = self.like(lookup("full")(self.values.type.shape, 1, dtypes.int64))
        places = np.cumsum(ones)
        taken = np.logical_and(places > start, (places - 1 - start) % step == 0)
        return taken if stop is None else np.logical_and(taken, places <= stop)

    def inside(self, index: Any) -> tuple[Any, ...]:
        """The subscript of ``values`` for some of the elements, once they have memory."""
        items = with_all_axes(index if isinstance(index, tuple) else (index,), self.ndim)
        items = [self.tracer.constant(np.asarray(i)) if isinstance(i, (list, np.ndarray)) else i for i in items]
        arrays = [n for n, i in enumerate(items) if hasattr(i, "ndim") and i.ndim]
        known = arrays in ([], [self.before]) and not any(items[n].dtype == bool for n in arrays)
        if not known or any(isinstance(i, Masked) or i is None for i in items):
            raise self.refusal("a write into it at the places of a mask, at places on another axis, or with None")
        items[self.before] = self.place_of(items[self.before])
        return tuple(items)

    def place_of(self, item: Any) -> Any:
        """An integer, integers or a slice along the axis of computed size as those along the axis of ``values``. A
        position out of range raises an error."""
        (first, _), count = self._bounds(), self.count
        if isinstance(item, slice):
            if not _is_one(item.step):
                raise self.refusal("a write of several values into a part of it with a step")
            places = (FUNCTIONS["clipped"](b, count, other) for b, other in ((item.start, 0), (item.stop, count)))
            return slice(*(first + place for place in places))
        item = lookup("where")(item < 0, item + count, item) if is_traced(item) or item < 0 else item
        inside = lookup("logical_and")(item >= 0, count > item)
        return lookup("where")(inside, first + item, shapes.for_user(self.span.size))  # type: ignore[union-attr]


def _is_one(step: Any) -> bool:
    return step is None or (type(step) is int and step == 1)


def _places(item: Any) -> Any:
    """An item of a subscript, with a mask of one axis replaced by the positions that it selects."""
    is_mask = is_traced(item) and item.ndim == 1 and item.type.dtype.is_bool
    return np.nonzero(item)[0] if is_mask else item


def first_of(values: Any, count: Any, after: int | None = None) -> Masked:
    """The first ``count`` elements along an axis, the one before the last ``after`` axes (default: the first axis)."""
    tracer = values.tracer
    after = values.ndim - 1 if after is None else after
    size: Dim = values.type.shape[values.ndim - after - 1]
    span = first_positions(tracer, size, count)
    return Masked(tracer.proxy(values.node), mask_of(tracer, span), after, span)


def _operator(ufunc: Any, reflected: bool = False) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        operands = (other, self) if reflected else (self, other)
        return self.__array_ufunc__(ufunc, "__call__", *operands)

    return method


def _in_place(ufunc: Any, store: Callable[[Any, Any, str], Any]) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        return store(self, self.__array_ufunc__(ufunc, "__call__", self, other), f"np.{ufunc.__name__} in place")

    return method


def _method(function: Any) -> Callable[..., Any]:
    return lambda self, *args, **kwargs: self.__array_function__(function, (), (self, *args), kwargs)


def _reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *args, **kwargs: self._reduced(function, *args, **kwargs)


def give_operators(kind: type, store: Callable[[Any, Any, str], Any]) -> None:
    """Define Python's operators and reduction methods for a class of parts; ``store`` writes the result of ``+=``."""
    for name, op in OPERATORS.items():
        ufunc = lookup(op).ufunc
        setattr(kind, f"__{name}__", _operator(ufunc))
        setattr(kind, f"__r{name}__", _operator(ufunc, reflected=True))
        setattr(kind, f"__i{name}__", _in_place(ufunc, store))
    for name, (_, compared, _) in COMPARISONS.items():
        setattr(kind, f"__{name}__", _operator(compared))
    for name, unary in (("neg", np.negative), ("abs", np.absolute), ("invert", np.invert)):
        setattr(kind, f"__{name}__", lambda self, unary=unary: unary(self))
    for reduces in (np.sum, np.prod, np.mean, np.std, np.var, np.max, np.min, np.any, np.all):
        setattr(kind, reduces.__name__, _reduction(reduces))


_METHODS: tuple[Any, ...] = (np.nonzero, np.argsort, np.cumsum, np.cumprod, np.argmax, np.argmin)
for _called in _METHODS:
    setattr(Masked, _called.__name__, _method(_called))
give_operators(Masked, lambda out, result, what: stored(out, result, what))
Masked.__hash__ = None  # type: ignore[assignment]


def is_block(value: Any) -> bool:
    """Whether a value is a part of several axes (:mod:`fxlite.tracing.selections.blocks`)."""
    return getattr(type(value), "cuts_several_axes", False)


def all_of(values: Any) -> Masked:
    """All elements of the first axis, selected."""
    mask = lookup("full")((values.type.shape[0],), True, dtypes.bool_)
    return Masked._of(values, mask, values.ndim - 1)


# -- operations on two values ----------------------------------------------------------------------
def stored(out: Any, result: Any, what: str) -> Any:
    """Write a result into selected positions, for ``out=`` and ``+=``."""
    both = isinstance(out, Masked) and isinstance(result, Masked)
    if both and result.span is not None and not out.same(result):
        out.placed(what)
    if not (both and (out.same(result) or None not in (out.span, result.span))):
        raise result.refusal(f"{what}: an array, or elements that another mask selects, as the destination")
    if out.values.ndim != result.values.ndim or out.after != result.after:
        raise result.refusal(f"{what}: a destination with fewer axes")
    return out.changed(result.like(cast_in_place(out, result.values, what)))


def cast_in_place(out: Any, values: Any, what: str) -> Any:
    """Values in the dtype of those that they replace, which may only differ within the same kind."""
    if not np.can_cast(values.dtype, out.dtype, "same_kind"):
        raise out.tracer.error(
            f"{what} would have to turn {values.dtype} into {out.dtype}, which NumPy does not do in place",
            "cast the values first: .astype",
        )
    return lookup("cast")(values, out.values.type.dtype)


def product(x: Any, y: Any) -> Any:
    """``x @ y``, where one or both are selections."""
    one = x if isinstance(x, Masked) else y
    if any(map(is_block, (x, y))):
        return FUNCTIONS["product"](x, y)
    ranks = [v.ndim if isinstance(v, Masked | np.ndarray) or is_traced(v) else np.ndim(v) for v in (x, y)]
    if 0 in ranks:
        raise one.refusal("a matrix product")
    if any(isinstance(v, Masked) and v.mask.ndim > 1 for v in (x, y)):
        x, y = (FUNCTIONS["compact"](v) if isinstance(v, Masked) else v for v in (x, y))
    summed = [isinstance(x, Masked) and not x.after, isinstance(y, Masked) and y.after == (ranks[1] > 1)]
    if any(summed):
        if all(summed) and ranks == [1, 1] and (x.same(y) or None not in (x.span, y.span)):
            kind = dtypes.result_type(x.values.type.dtype, y.values.type.dtype)
            one, other = (y, x) if y.span is not None and y.span.is_first else (x, y)
            return np.sum(one.like(lookup("mul")(one.values, aligned(other, one))).filled(0), dtype=kind.numpy)
        if not all(summed) or not x.same(y):
            return FUNCTIONS["product"](x, y)
        return lookup("matmul")(x.filled(0), y.filled(0))
    if isinstance(x, Masked) and isinstance(y, Masked):
        return FUNCTIONS["product"](x, y)
    return FUNCTIONS["of positions"](lookup("matmul"), x, y)


def chosen(where: Any, x: Any, number: Any) -> Any:
    """``np.where(where, x, number)`` in the dtype of x."""
    kind = x.type.dtype if is_traced(x) else dtypes.dtype(np.asarray(x).dtype)
    if kind.is_bool and type(number) is int:
        number = bool(number)
    weak = type(number) in (bool, int, float) and dtypes.result_type(kind, number) is kind
    return lookup("where")(where, x, number if weak or is_traced(number) else lookup("cast")(number, kind))


def aligned(value: Any, to: Masked) -> Any:
    """Values of all positions that have the elements of ``value`` at the selected positions of ``to``, one by one. If
    their numbers differ, an IndexError is raised at run time."""
    tracer, span = to.tracer, to.span
    if isinstance(value, Masked) and value.after == to.after and value.same(to):
        return value.values
    if not isinstance(value, Masked) and to.stretches(value):
        return value
    if isinstance(value, Masked) and value.span is None and span is not None:
        value = FUNCTIONS["compact"](value)
    source = value.span if isinstance(value, Masked) else None
    if span is None and not isinstance(value, Masked):
        axis = np.ndim(value) - to.after - 1
        if not shapes.equal(shapes.normalize(value.shape[axis]), shapes.normalize(to.mask.size)):
            return one_by_one(to.mask, value, axis)
    if span is None or to.mask.ndim > 1 or (isinstance(value, Masked) and (source is None or value.after != to.after)):
        what = "values that another mask selects" if isinstance(value, Masked) else "an array with an element for each"
        raise to.refusal(f"{what}, beside those of a selection")
    own = value.values if source is not None else value
    own = tracer.constant(own)
    return beside(tracer, own, own.ndim - to.after - 1, span, source)


def beside(tracer: Tracer, value: Any, axis: int, span: Span, source: Span | None) -> Any:
    """Values of all positions of an axis, of which those in ``span`` are the elements of ``value``, or those in its own
    span ``source``, in order. If their numbers differ, an IndexError is raised at run time."""
    own = tracer.constant(value)
    size = own.type.shape[axis]
    places = counting(tracer, span.size) - span.first
    if source is not None:
        made = own.node
        if source.turned is not None and made.target is lookup("flip"):  # read a reversed part from its end
            own, places = tracer.proxy(made.args[0]), source.turned - 1 - places
        else:
            places = places + source.first
    places = lookup("where")(mask_of(tracer, span), places, 0)
    counts = span.count(tracer), shapes.for_user(size) if source is None else source.count(tracer)
    if type(size) is int and size == 0:  # an element that nothing reads, for positions outside of the span
        shape = (*own.type.shape[:axis], 1, *own.type.shape[axis + 1 :])
        own, size = tracer.constant(lookup("full")(shape, 0, own.type.dtype)), 1
    if not sum_of(tracer, counts[0]).same(sum_of(tracer, counts[1])):
        numbers = [tracer.size(c) if isinstance(c, shapes.NamedDim) else c for c in counts]
        places = lookup("where")(lookup("eq")(*numbers), places, shapes.for_user(size))  # out of range
    return lookup("take")(own, places, axis=axis)


def one_by_one(mask: Proxy, value: Any, axis: int) -> Any:
    """Values of all positions that a mask covers. Those where it is set are the elements of ``value`` along an axis, in
    order; one element is for all of them. If their numbers differ, a ValueError is raised at run time."""
    tracer = mask.tracer
    own = tracer.constant(value)
    before, (size, *after) = own.type.shape[:axis], own.type.shape[axis:]
    if type(size) is int and size == 1:
        return lookup("reshape")(own, (*before, *[1] * mask.ndim, *after))
    is_set = lookup("cast")(lookup("reshape")(mask, (-1,)), "i64")
    number = tracer.size(size) if isinstance(size, shapes.NamedDim) else size
    if type(size) is int and size == 0:  # an element that nothing reads
        own, size = tracer.constant(lookup("full")((*before, 1, *after), 0, own.type.dtype)), 1
    places = lookup("where")(lookup("eq")(is_set, 1), lookup("cumsum")(is_set, 0) - 1, 0)
    is_other = lookup("ne")(lookup("sum")(is_set, 0), number)
    what = "y[mask] = values: there are more or fewer values than elements that the mask selects"
    places = tracer.unless(lookup("where")(is_other, 0, places), is_other, ValueError(what))
    return lookup("reshape")(lookup("take")(own, places, axis=axis), (*before, *mask.type.shape, *after))


def extreme(values: Any, name: str, axes: Any, where: Any, mask: Any) -> Any:
    """The ``max`` or ``min`` of the values ``where`` they are selected. If the mask selects none, there is an error at
    run time, except in an op that is defined for no values, such as ``softmax``."""
    other = COMBINATIONS[name].start(values.type.dtype)
    found = getattr(np, name)(values, axis=axes, where=where, initial=other)
    if takes_none.get():
        return found
    what = f"zero-size array to reduction operation {name}imum which has no identity"
    return mask.tracer.unless(found, lookup("logical_not")(mask.any()), ValueError(what))


def with_all_axes(items: Sequence[Any], rank: int) -> list[Any]:
    """The items of a subscript, one for each axis, with whole slices for ``...`` and for axes that are left out."""
    places = [n for n, item in enumerate(items) if item is Ellipsis]
    rest = [slice(None)] * (rank - sum(item is not None and item is not Ellipsis for item in items))
    return [*items[: places[0]], *rest, *items[places[0] + 1 :]] if places else [*items, *rest]


def cut_axis(x: Any, axis: int, item: slice, takes: bool = True) -> Any:
    """``x[..., a:b, ...]`` along one axis: the elements if their number is known and ``takes``, else a :class:`Masked`
    value."""
    span = span_of(x.tracer, item, x.type.shape[axis])
    found = taken(x, axis, span) if takes else None
    return Masked(x, mask_of(x.tracer, span), x.ndim - axis - 1, span) if found is None else found


def flipped(x: Masked) -> Masked:
    """The selected elements from the last one to the first."""
    x = FUNCTIONS["compact"](x) if x.span is None else x
    tracer, size, (first, last) = x.tracer, x.span.size, x._bounds()  # type: ignore[union-attr]
    last = last if at_most(tracer, last, size) else lookup("minimum")(last, shapes.for_user(size))
    end = last
    first, last = shapes.for_user(size) - last, shapes.for_user(size) - first
    span = Span(size, sum_of(tracer, first), sum_of(tracer, last), first, last, first, None, end)
    backwards = (*[slice(None)] * x.before, slice(None, None, -1))
    return Masked(x.values[backwards], mask_of(tracer, span), x.after, span)


def _flip(m: Masked, axis: Any = None) -> Masked:
    if m.mask.ndim > 1 or (axis is None and m.ndim > 1) or isinstance(axis, tuple):
        raise m.refusal("np.flip of several axes")
    axis = (axis or 0) % m.ndim
    if axis != m.before:
        whole: Masked = m[(*[slice(None)] * axis, slice(None, None, -1))]
        return whole
    return flipped(m)


def _norm(x: Masked, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    is_line = isinstance(axis, int) or x.ndim == 1
    if not (ord is None or (is_line and isinstance(ord, (int, float)))):
        raise x.refusal(f"np.linalg.norm of matrices with ord={ord!r}")
    kind, given = x.values.type.dtype, {"axis": axis, "keepdims": keepdims}
    size: Any = np.abs(x) if kind.is_complex or ord not in (None, 2) else x
    size = size if size.values.type.dtype.is_float else size.astype(np.float64)
    if ord in (None, 2):
        return np.sqrt(np.sum(np.square(size), **given))
    if np.isinf(ord):
        return (np.max if ord > 0 else np.min)(size, **given)
    if ord == 0:
        return np.sum((size != 0).astype(size.dtype), **given)
    return np.sum(size, **given) if ord == 1 else np.sum(size**ord, **given) ** (1 / ord)


def _dot(a: Any, b: Any) -> Any:
    if any(np.ndim(v) == 0 if not isinstance(v, Masked) else False for v in (a, b)):
        return a * b
    return product(a, b)


#: NumPy's functions for selections.
FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.dot: _dot,
    np.flip: _flip,
    np.flipud: lambda m: _flip(m, 0),
    np.fliplr: lambda m: _flip(m, 1),
    np.linalg.norm: _norm,
    np.ndim: lambda a: a.ndim,
    np.shape: lambda a: a.shape,
    np.size: lambda a: a.size,
    np.copy: lambda a: a.copy(),
}


#: How many calls above a mask are examined to see whether two masks are the same.
_DEEPEST = 8


def same_mask(a: Node, b: Node, depth: int = _DEEPEST) -> bool:
    """Whether two nodes have the same value: they are the same node, or the same call on such nodes."""
    if a is b:
        return True
    if not (depth and a.op == b.op == "call_function" and a.target is b.target):
        return False
    if a.is_impure() or a.target.is_random or a.kwargs != b.kwargs or len(a.args) != len(b.args):
        return False
    return all(_same_argument(x, y, depth - 1) for x, y in zip(a.args, b.args))


def _same_argument(x: Any, y: Any, depth: int) -> bool:
    if hasattr(x, "all_input_nodes") and hasattr(y, "all_input_nodes"):
        return same_mask(x, y, depth)
    return type(x) is type(y) and x == y
