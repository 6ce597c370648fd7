"""The tracer's results for functions of NumPy and Python that a captured program calls.

In: the call as in the program. Out: for NumPy's functions that make arrays, called without a traced array, a traced
array with memory of its own, so that traced values can be written into it and its shape may contain named dims. Its
contents are known while tracing (:func:`fxlite.tracing.capture.known.known_value`) until a traced value is written
into it. For Python's builtins, the result that they have in eager Python, also for traced arguments that the builtin
itself could not take.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import math
import operator
import warnings
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.errors import DTypeError
from fxlite.base.location import here
from fxlite.base.state import UNKNOWN_TEXT, is_traced
from fxlite.graph import pytree
from fxlite.graph.few_numbers import FEW_ELEMENTS
from fxlite.ops.op import broadcast_shapes, lookup
from fxlite.tracing.capture.known import as_known_number, known_value, require_one_truth
from fxlite.tracing.capture.texts import OneText
from fxlite.tracing.selections.blocks import Block
from fxlite.tracing.selections.bounds import MORE_ROOM
from fxlite.tracing.selections.masked import Masked, first_of, is_block
from fxlite.tracing.selections.spans import at_least, counting, first_positions, highest, sum_of
from fxlite.tracing.writes.aliasing import laid_out, layout_of, take_order_for_granted
from fxlite.tracing.writes.shared_memory import attach, contiguous, fresh, is_number, may_hold, tie, view_of
from fxlite.types import dtypes, shapes
from fxlite.types.shapes import NamedDim

if TYPE_CHECKING:
    from fxlite.tracing.tracer import Tracer


Make = Callable[..., Any]


def constant_array(tracer: Tracer, value: np.ndarray[Any, Any]) -> Any:
    """A traced array with the contents of ``value``; the array itself if tensors cannot have its dtype."""
    try:
        dtype = dtypes.dtype(value.dtype)
    except DTypeError:
        return value
    tracer.makes_arrays = True
    first, last = (value.flat[n].item() for n in (0, -1)) if value.size else (0, 0)
    if first == last and np.all(value == first) and str(first) != "-0.0":
        return fresh(_record(tracer, "full", value.shape, first, dtype))
    return fresh(tracer.constant(value))


def fresh_array(tracer: Tracer, result: np.ndarray[Any, Any], given: Iterable[Any]) -> Any:
    """The result of a call of NumPy, as an array that the program made; a view of a given array is returned
    unchanged."""
    arrays = [v for v in given if isinstance(v, np.ndarray)]
    if not result.flags.writeable or any(np.may_share_memory(result, a) for a in arrays):
        return result
    if result.flags.f_contiguous and not result.flags.c_contiguous:
        return constant_array(tracer, np.ascontiguousarray(result.T)).transpose()
    return constant_array(tracer, result)


def holds_computed(value: Any) -> bool:
    """Whether a value is a traced value or a named size, or a nested list or tuple that contains one."""
    if isinstance(value, (tuple, list)):
        return any(map(holds_computed, value))
    return isinstance(value, NamedDim) or is_traced(value)


def _made(symbolic: Make, from_few: bool = False) -> Make:
    """Calls NumPy if all arguments are NumPy's or Python's own, and ``symbolic`` if sizes are among them. It is also
    called for a large array of whole numbers, ``from_few``, whose elements take less time to compute than to read."""
    signature = inspect.signature(symbolic)

    def make(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not (any(map(holds_computed, args)) or any(map(holds_computed, kwargs.values()))):
            result = function(*args, **kwargs)
            if type(result) is not np.ndarray:
                return result
            given = (*args, *kwargs.values())
            is_large = from_few and result.size > FEW_ELEMENTS and result.dtype.kind in "biufc"
            if not is_large or any(isinstance(v, (float, np.floating)) for v in given):
                return fresh_array(tracer, result, args)
        tracer.makes_arrays = True
        order = kwargs.get("order")
        for name in ("order", "device", "like", "subok"):
            kwargs.pop(name, None)
        try:
            arguments = signature.bind(tracer, *args, **kwargs)
        except TypeError as error:
            raise tracer.error(f"np.{function.__name__}: {error}") from None
        result = symbolic(*arguments.args, **arguments.kwargs)
        is_given = any(result is a for a in args) and kwargs.get("copy", True) in (False, None, np._CopyMode.IF_NEEDED)
        return laid_out(result, order, copies=not is_given) if is_traced(result) else result

    return make


def _shape(tracer: Tracer, shape: Any) -> tuple[Any, ...]:
    return tuple(s if isinstance(s, NamedDim) else int(s) for s in shapes.as_tuple(shape))


def counted(tracer: Tracer, shape: Any, whole: Callable[[tuple[Any, ...]], Any]) -> Any:
    """An array with computed sizes, such as ``np.zeros(len(x[mask]))``: the first elements of the ``whole``, which has
    the largest possible sizes."""
    sizes = [*shape] if isinstance(shape, (tuple, list)) else [shape]
    computed = [n for n, s in enumerate(sizes) if is_traced(s) and known_value(s) is None]
    found = {id(sizes[axis]): sizes[axis] for axis in computed}
    bounded = {key: _bounded(tracer, size, len(computed)) for key, size in found.items()}
    counts = {axis: bounded[id(sizes[axis])] for axis in computed}
    for axis, (_, most) in counts.items():
        sizes[axis] = shapes.for_user(most)
    made = whole(tuple(sizes))
    if len(computed) < 2:
        return first_of(made, counts[computed[0]][0], len(sizes) - computed[0] - 1) if computed else made
    return Block(made, {axis - len(sizes): first_positions(tracer, most, n) for axis, (n, most) in counts.items()})


def _bounded(tracer: Tracer, count: Any, axes: int) -> tuple[Any, Any]:
    """A computed size, one of several ``axes`` of an array, as one that is not negative, and the most that it can
    be."""
    number = sum_of(tracer, count)
    most = highest(tracer, number)
    if axes > 1 and most == tracer.room:  # that of a line, of which several are too many
        most = None
    if most is None and axes > 1 and all(tracer.input_numbers.get(str(node.target)) for node, _ in number.terms):
        raise tracer.error(  # fx.jit then traces again, for this number
            "sizes of an array are NumPy's integers among the arguments",
            "give an int of Python: f(x, int(n))",
            count.node,
        )
    if not tracer.is_finished:
        if most is not None and at_least(tracer, count, 0):
            return count, most
        raise tracer.error(
            f"the size of an array is computed, {count.node.name}, and how large it can be is not known",
            "make an array of the largest size, and cut it: np.zeros(100)[:n]; a size such as len(x[mask]) has a "
            "bound, and an argument of fx.jit that is an int of Python, f(x, int(n)), is a known number",
            count.node,
        )
    if not at_least(tracer, count, 0):
        count = tracer.unless(count, count < 0, ValueError("negative dimensions are not allowed"))
        if most is not None:
            most = shapes.maximum(most, 0)
            tracer.ranges[count.node] = 0, shapes.for_user(shapes.normalize(most + 1))
    if most is None:
        most = room_of(tracer.room, axes)
        count = tracer.within_room(count, "an array", most)
    return count, most


def room_of(room: int, axes: int) -> int:
    """The largest size of each of the computed ``axes`` of an array: 256, or 64 x 64, and more with more room."""
    return room if axes == 1 else int((room * MORE_ROOM ** (axes - 1)) ** (1 / axes) + 0.5)


def _filled(value: Any) -> Make:
    def make(tracer: Tracer, shape: Any, dtype: Any = float) -> Any:
        return counted(tracer, shape, lambda sizes: _full(tracer, sizes, value, dtype))

    return make


def _unwritten(zeros: Any) -> Make:
    """Uninitialized arrays, which contain zeros, because the accidental contents of memory are not part of a
    graph."""
    made = _made(_filled(0))

    def make(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if zeros is not np.zeros_like:
            return made(tracer, zeros, args, kwargs)
        args = (kwargs.pop("prototype"), *args) if "prototype" in kwargs else args
        result = zeros(*args, **kwargs)  # NumPy calls a method of the traced array
        return result if is_traced(result) else fresh_array(tracer, result, args)

    return make


def _full_of(tracer: Tracer, shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    return counted(tracer, shape, lambda sizes: _full(tracer, sizes, fill_value, dtype))


def _full(tracer: Tracer, shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    if not is_traced(fill_value):
        found = np.asarray(fill_value).dtype if dtype is None else dtype
        number = np.asarray(fill_value, dtypes.dtype(found).numpy).item()
        return _record(tracer, "full", _shape(tracer, shape), number, dtypes.dtype(found))
    if dtype is not None:
        fill_value = lookup("cast")(fill_value, dtype)
    return lookup("expand")(fill_value, _shape(tracer, shape))


def _record(tracer: Tracer, name: str, *args: Any) -> Any:
    op = lookup(name)
    return tracer.record(op, op.bind(args, {}))


def _arange(tracer: Tracer, start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Any:
    first, last = (0, start) if stop is None else (start, stop)
    if is_traced(last) and known_value(last) is None and type(first) is int and first == 0 and step == 1:
        if not at_least(tracer, last, 0):  # there may be no elements
            last = tracer.python_number(lookup("maximum")(last, 0))
        found = counted(tracer, last, lambda sizes: _arange(tracer, *sizes))
        return found if dtype is None else found.astype(dtype)
    if any(is_traced(b) and b.is_typed and known_value(b) is None for b in (first, last, step)):
        return _computed_range(tracer, first, last, step, dtype)
    bounds = [b if isinstance(b, (NamedDim, float)) else int(b) for b in (first, last, step)]
    return _record(tracer, "arange", *bounds, None if dtype is None else dtypes.dtype(dtype))


def _computed_range(tracer: Tracer, first: Any, last: Any, step: Any, dtype: Any) -> Any:
    """``np.arange`` with computed numbers; the distance of its elements is that of the first two, as in NumPy."""
    bounds = [tracer.number_of_size(b) if isinstance(b, NamedDim) else b for b in (first, last, step)]
    kind = dtypes.result_type(*(stacked(tracer, b).type.dtype for b in bounds), dtypes.int64)
    if is_traced(step):
        step = tracer.unless(step, lookup("eq")(step, 0), ZeroDivisionError("division by zero"))
    if kind.is_integer:
        number = -((first - last) // step)
    else:
        number = tracer.python_number(lookup("cast")(np.ceil((last - first) / step), dtypes.int64))
    number = tracer.python_number(lookup("maximum")(number, 0))
    places = lookup("cast")(_arange(tracer, number), kind)
    found = first + places * (first + step - first)
    return found if dtype is None else found.astype(dtypes.dtype(dtype).numpy)


def _matrix(compared: Callable[[Any, Any], Any]) -> Make:
    """np.eye and np.tri: 1 where ``compared`` holds for column - row and ``k``."""

    def make(tracer: Tracer, N: Any, M: Any = None, k: Any = 0, dtype: Any = float) -> Any:
        def whole(sizes: tuple[Any, ...]) -> Any:
            rows, columns = (_arange(tracer, size) for size in sizes)
            return lookup("cast")(compared(columns - lookup("unsqueeze")(rows, 1), k), dtypes.dtype(dtype))

        return counted(tracer, (N, N if M is None else M), whole)

    return make


def _identity(tracer: Tracer, n: Any, dtype: Any = float) -> Any:
    return _matrix(operator.eq)(tracer, n, dtype=dtype or float)


def _linspace(
    tracer: Tracer,
    start: Any,
    stop: Any,
    num: Any = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    start, stop = (stacked(tracer, v) if isinstance(v, (list, tuple)) else v * 1.0 for v in (start, stop))
    parts = lookup("maximum")(stacked(tracer, num - 1 if endpoint else num), 1)
    positions = _arange(tracer, num)
    for _ in range(max(getattr(start, "ndim", 0), getattr(stop, "ndim", 0))):
        positions = lookup("unsqueeze")(positions, positions.type.rank)
    # as in NumPy: the step first, and the last of several values exactly as given
    wide = dtypes.result_type(*(stacked(tracer, v).type.dtype for v in (start, stop) if is_traced(v)), 1.0)
    step = (stop - start) / lookup("cast")(parts, wide)
    values = lookup("cast")(positions, wide) * step + start
    if endpoint:
        values = lookup("where")(positions == parts, stop, values)
    if dtype is not None:
        whole = lookup("floor")(values) if dtypes.dtype(dtype).is_integer else values
        values = lookup("cast")(whole, dtypes.dtype(dtype))
    if axis:
        values = np.moveaxis(values, 0, axis)
    if not retstep:
        return values
    alone = known_value(parts) is not None and num == int(endpoint)  # a single point, without a step
    return values if isinstance(values, Masked) else fresh(values), math.nan if alone else step


def _logspace(
    tracer: Tracer,
    start: Any,
    stop: Any,
    num: Any = 50,
    endpoint: bool = True,
    base: Any = 10.0,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """np.logspace of one base: its powers."""
    values = np.power(base * 1.0, _linspace(tracer, start, stop, num, endpoint, axis=axis))
    return values if dtype is None else lookup("cast")(values, dtypes.dtype(dtype))


def _geomspace(
    tracer: Tracer, start: Any, stop: Any, num: Any = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0
) -> Any:
    """np.geomspace: powers of ten between the logarithms, with the ends exactly as given. Both ends are turned so that
    the first one is a positive number."""
    start, stop = (stacked(tracer, v) for v in (start, stop))
    wide = dtypes.result_type(start.type.dtype, stop.type.dtype, dtypes.float64)
    start, stop = (lookup("cast")(v, wide) for v in (start, stop))
    sign = np.sign(start)
    first, last = start / sign, stop / sign
    powers = _linspace(tracer, np.log10(first), np.log10(last), num, endpoint)
    values = np.power(10.0, powers)
    places = _arange(tracer, num)
    for _ in range(values.ndim - 1):
        places = lookup("unsqueeze")(places, places.type.rank)
    values = np.where(places == 0, first, values)
    if endpoint:
        values = np.where((places == num - 1) & (places > 0), last, values)
    values = values * sign
    if dtype is not None:
        values = lookup("cast")(values, dtypes.dtype(dtype))
    return np.moveaxis(values, 0, axis) if axis else values


def _array(tracer: Tracer, object: Any, dtype: Any = None, copy: Any = True, ndmin: int = 0) -> Any:
    """np.array of traced values, and of lists that contain traced values."""
    value = stacked(tracer, object)
    if dtype is not None and value.type.dtype is not dtypes.dtype(dtype):
        value = lookup("cast")(value, dtypes.dtype(dtype))
    while value.type.rank < ndmin:
        value = lookup("unsqueeze")(value, 0)
    return value


def stacked(tracer: Tracer, value: Any, dtype: dtypes.DType | None = None) -> Any:
    """A value, or nested lists and tuples of values, numbers and sizes, as one traced array with ``dtype``, or with
    the dtype that NumPy chooses."""
    if isinstance(value, (list, tuple)) and value and holds_computed(value):
        parts = [stacked(tracer, part, dtype) for part in value]
        if dtype is None:
            wanted = dtypes.result_type(*(part.type.dtype for part in parts))
            parts = [lookup("cast")(part, wanted) for part in parts]
        return lookup("stack")(parts)
    if isinstance(value, NamedDim):
        return tracer.size(value) if dtype is None else tracer.size_as_tensor(value, dtype)
    array = tracer.constant(np.asarray(value) if isinstance(value, (list, tuple)) else value)
    return array if dtype is None else lookup("cast")(array, dtype)


class Items(list[Any]):
    """A list or tuple of arrays and numbers, for reading it at a traced position."""

    def __getitem__(self, place: Any) -> Any:
        return item_at(place.tracer, [*self], place)


def are_python_numbers(values: Iterable[Any]) -> bool:
    """Whether all values are Python numbers, known or not."""
    return all(hasattr(v, "python_type") or type(v) in (*dtypes.NUMBERS, NamedDim) for v in values)


def item_at(tracer: Tracer, values: Sequence[Any], place: Any) -> Any:
    """The item of a list at a traced position: an array, a number, or a list or tuple of these."""
    first = values[0]
    if all(isinstance(v, (tuple, list)) and type(v) is type(first) and len(v) == len(first) for v in values):
        parts = [item_at(tracer, part, place) for part in zip(*values)]
        made = pytree.rebuilt(first, parts)
        if type(first) is list:  # a change of one of them would have to show in the other
            tracer.one_of_several.update((id(value), value) for value in (made, *values))
            tracer.needs_flow = tracer.was_asked = True  # captured control flow sees changes of lists
        return made
    kinds = (np.ndarray, np.generic, *dtypes.NUMBERS, NamedDim)
    other = next((type(v).__name__ for v in values if not (is_traced(v) or isinstance(v, kinds))), None)
    if other is not None:
        raise tracer.error(
            f"an item of a list or dict is taken at a place that is not known while tracing, and one is a {other}",
            "let all be arrays and numbers, or lists and tuples of as many of these; or choose between results with if",
        )
    found = stacked(tracer, values)[place]
    return tracer.python_number(found) if are_python_numbers(values) else _one_of(found, values, place)


def _one_of(found: Any, values: Sequence[Any], place: Any) -> Any:
    """``found``, the item of a list at a traced position. An array is the one in the list: a write into one of them is
    one into the other."""
    if not found.type.shape:
        return found
    tracer, found = found.tracer, fresh(found)
    arrays = {number: tracer.constant(value) for number, value in enumerate(values)}
    alike = all(array.type == found.type for array in arrays.values())
    views = {number: view_of(array) for number, array in arrays.items()}
    if not (alike and tie(found, place.node, views, True, len(values))):
        for array in arrays.values():
            may_hold(found, array)
    return found


#: NumPy's functions that take several arrays as one list.
_OF_LISTS = frozenset(
    "concatenate stack vstack hstack dstack column_stack row_stack block select choose piecewise multi_dot einsum "
    "einsum_path meshgrid broadcast_arrays ix_ lexsort ravel_multi_index histogramdd at".split()
)


#: Functions of an array that take several sizes or positions as one list.
_OF_SIZES = frozenset((np.tile, np.pad, np.broadcast_to, np.reshape, np.split, np.array_split))


def with_stacked(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The arguments of a NumPy function, with arrays in place of lists and tuples that contain traced values,
    because NumPy does not dispatch on the elements of lists."""
    if getattr(function, "__name__", "") in _OF_LISTS:
        return args, kwargs
    if function in _OF_SIZES and args and any(map(_holds_traced, args[1:])):
        x = args[0]
        return (x if isinstance(x, Masked) or is_block(x) else stacked(tracer, x), *args[1:]), kwargs
    operand = functools.partial(_operand, tracer)
    return tuple(map(operand, args)), dict(zip(kwargs, map(operand, kwargs.values(), kwargs)))


def _operand(tracer: Tracer, value: Any, name: str = "") -> Any:
    """An argument. Traced numbers in lists that are known while tracing are replaced by their values."""
    if type(value) in (list, tuple):
        value = _with_rows(type(value)(map(as_known_number, value)))
    return stacked(tracer, value) if name != "out" and _holds_traced(value) else value


def _with_rows(value: Any) -> Any:
    """An array in place of a list or tuple of selected elements, such as the result of np.nonzero."""
    is_list = isinstance(value, (tuple, list)) and bool(value) and all(isinstance(part, Masked) for part in value)
    return np.stack(value) if is_list else value


def _holds_traced(value: Any) -> bool:
    """Whether a list or tuple consists of arrays and numbers, some of which are traced."""
    if not isinstance(value, (tuple, list)):
        return False
    return any(is_traced(part) or _holds_traced(part) for part in value)


def _array_of(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """np.array, which copies, also for selected elements."""
    args = (*map(_with_rows, args[:1]), *args[1:])
    if not (args and isinstance(args[0], Masked)):
        return _ARRAY(tracer, function, args, kwargs)
    wanted = kwargs.get("dtype", args[1] if len(args) > 1 else None)
    return args[0].copy() if wanted is None else args[0].astype(wanted)


def _as_array(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """np.asarray, which returns a traced array unchanged, and a number as an array."""
    args = (*map(_with_rows, args[:1]), *args[1:])
    if args and isinstance(args[0], Masked):
        wanted = kwargs.get("dtype", args[1] if len(args) > 1 else None)
        return args[0] if wanted is None else args[0].astype(wanted)
    if not (args and is_traced(args[0])):
        return _ARRAY(tracer, function, args, kwargs)
    x, wanted = args[0], kwargs.get("dtype", args[1] if len(args) > 1 else None)
    if wanted is not None and dtypes.dtype(wanted) is not x.type.dtype:
        x = lookup("cast")(x, dtypes.dtype(wanted))
    x = fresh(x) if is_number(x) else x
    order = _ORDERS.get(function) or kwargs.get("order", args[2] if len(args) > 2 else None)
    if function is np.require:
        asked = "".join(kwargs.get("requirements", args[2] if len(args) > 2 else None) or "").upper()
        order = next((name for name in "CF" if name in asked), None)
    if function in _ORDERS and not x.ndim:
        return lookup("reshape")(x, (1,))
    return laid_out(x, order)


#: Functions that return an array of at least one axis in a given memory order.
_ORDERS = {np.ascontiguousarray: "C", np.asfortranarray: "F"}


def _from_iterable(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``np.fromiter(values, dtype, count)``"""
    given = dict(zip(("iter", "dtype", "count"), args)) | kwargs
    values = list(given["iter"]) if "iter" in given else []
    if not any(map(is_traced, values)):
        return fresh_array(tracer, function(values, **{k: v for k, v in given.items() if k != "iter"}), ())
    count = given.get("count", -1)
    return _ARRAY(tracer, np.array, (values if count < 0 else values[:count],), {"dtype": given["dtype"]})


def _as_strided(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``np.lib.stride_tricks.as_strided`` of a value without gaps in memory, as a copy that must not be written
    into."""
    given: dict[str, Any] = dict(zip(("x", "shape", "strides", "subok", "writeable"), args)) | kwargs
    x = given["x"]
    if not is_traced(x):
        return function(*args, **kwargs)
    if layout_of(x) != contiguous(x.type.shape):
        raise tracer.error(
            f"as_strided() of {x.node.name}, whose elements are not contiguous in memory",
            "copy it: np.ascontiguousarray(x)",
            x.node,
        )
    sizes = x.shape if given.get("shape") is None else _shape(tracer, given["shape"])
    steps = x.strides if given.get("strides") is None else tuple(given["strides"])
    if len(sizes) != len(steps):
        raise ValueError(f"there are {len(sizes)} sizes and {len(steps)} strides")
    take_order_for_granted(view_of(x), tracer, always=True)
    numbers = [step // x.itemsize for step in steps]
    if any(bool(step % x.itemsize) for step in steps):
        raise ValueError(f"strides {steps} are not multiples of the {x.itemsize} bytes of an element")
    if all(type(n) is int for n in (*sizes, *numbers, x.size)) and 0 not in sizes:
        ends = [(size - 1) * step for size, step in zip(sizes, numbers)]
        if sum(e for e in ends if e < 0) < 0 or sum(e for e in ends if e > 0) >= x.size:
            raise ValueError(f"shape {sizes} and strides {steps} reach outside of the {x.size} elements of the array")
    places = _record(tracer, "full", (), 0, dtypes.int64)
    for axis, (size, step) in enumerate(zip(sizes, numbers)):
        line = counting(tracer, shapes.normalize(size)) * step
        for _ in sizes[axis + 1 :]:
            line = lookup("unsqueeze")(line, line.ndim)
        places = places + line
    found = lookup("take")(lookup("reshape")(x, (-1,)), places, axis=0)
    attach(found, x, None, {})
    return found


def _broadcast(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    """``np.broadcast(x, y).shape``"""
    if not any(map(is_traced, args)):
        return function(*args, **kwargs)
    found = broadcast_shapes(*(a.type.shape if is_traced(a) else np.shape(a) for a in args))
    return SimpleNamespace(shape=tuple(map(shapes.for_user, found)), ndim=len(found))


def _as_scalar(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``np.float32(x)``."""
    if len(args) == 1 and holds_computed(args[0]):
        return lookup("cast")(stacked(tracer, args[0]), dtypes.dtype(function))
    return function(*args, **kwargs)


def _coordinates(tracer: Tracer, lines: Sequence[Any], is_sparse: bool) -> Any:
    """The coordinates of a grid, each the elements of its line along its own axis; where sizes of lines are computed,
    a tuple of them."""
    sizes, rank = [line.shape[0] for line in lines], len(lines)

    def along(axis: int, size: Any) -> Any:
        line = lines[axis]
        line = lookup("slice")(line.values, 0, 0, size) if isinstance(line, Masked) else line
        return lookup("reshape")(line, tuple(size if a == axis else 1 for a in range(rank)))

    def coordinate(axis: int) -> Any:
        if not is_sparse:
            return counted(tracer, sizes, lambda whole: lookup("expand")(along(axis, whole[axis]), whole))
        own = [n if a == axis else 1 for a, n in enumerate(sizes)]
        return counted(tracer, own, lambda whole: along(axis, whole[axis]))

    found = tuple(map(coordinate, range(rank)))
    return found if is_sparse or any(isinstance(line, Masked) for line in lines) else lookup("stack")(found)


def _indices(tracer: Tracer, dimensions: Any, dtype: Any = int, sparse: bool = False) -> Any:
    """np.indices."""
    return _coordinates(tracer, [_arange(tracer, n, dtype=dtype) for n in dimensions], sparse)


_ARRAY = _made(_array)

#: NumPy's functions that make arrays, and how: ``make(tracer, function, args, kwargs)``.
ARRAYS: dict[Any, Make] = {
    np.zeros: _made(_filled(0)),
    np.ones: _made(_filled(1)),
    np.empty: _unwritten(np.zeros),
    np.ndarray: _unwritten(np.zeros),
    np.empty_like: _unwritten(np.zeros_like),
    np.full: _made(_full_of),
    np.arange: _made(_arange, from_few=True),
    np.eye: _made(_matrix(operator.eq), from_few=True),
    np.identity: _made(_identity, from_few=True),
    np.tri: _made(_matrix(operator.le), from_few=True),
    np.indices: _made(_indices, from_few=True),
    np.linspace: _made(_linspace),
    np.geomspace: _made(_geomspace),
    np.logspace: _made(_logspace),
    np.array: _array_of,
    np.fromiter: _from_iterable,
    np.broadcast: _broadcast,
    np.asarray: _as_array,
    np.asanyarray: _as_array,
    np.lib.stride_tricks.as_strided: _as_strided,
    np.ascontiguousarray: _as_array,
    np.asfortranarray: _as_array,
    np.require: _as_array,
    **{d.numpy.type: _as_scalar for d in dtypes.ALL if d.stored is d.numpy},
}


# -- subscripts that make arrays -------------------------------------------------------------------
def _grid_of(tracer: Tracer, owner: Any, index: tuple[Any, ...]) -> Any:
    """``np.mgrid[0:h, 0:w]`` and ``np.ogrid``."""
    is_known = not any(holds_computed((i.start, i.stop, i.step)) for i in index if isinstance(i, slice))
    if is_known and not _is_large(index):
        result = owner[index if len(index) > 1 else index[0]]
        parts = result if isinstance(result, (tuple, list)) else None
        return (
            fresh_array(tracer, result, ()) if parts is None else type(parts)(fresh_array(tracer, p, ()) for p in parts)
        )
    lines = [_line(tracer, i) for i in index]
    return lines[0] if len(lines) == 1 else _coordinates(tracer, lines, owner.sparse)


def _is_large(index: tuple[Any, ...]) -> bool:
    """Whether a grid of whole numbers has many points."""
    if not all(isinstance(i, slice) for i in index):
        return False
    bounds = [(0 if i.start is None else i.start, i.stop, 1 if i.step is None else i.step) for i in index]
    if not all(type(b) is int for line in bounds for b in line) or any(step == 0 for _, _, step in bounds):
        return False
    return math.prod(len(range(*line)) for line in bounds) > FEW_ELEMENTS


def _line(tracer: Tracer, piece: slice) -> Any:
    """The numbers of one slice of a grid; an imaginary step gives their count."""
    start, step = (0 if piece.start is None else piece.start), (1 if piece.step is None else piece.step)
    if isinstance(step, complex):
        return _linspace(tracer, start, piece.stop, int(abs(step)))
    return _arange(tracer, start, piece.stop, step)


def _joined(tracer: Tracer, owner: Any, index: tuple[Any, ...]) -> Any:
    """``np.r_[0, x, 1:n]`` and ``np.c_[x, y]``."""
    pieces = [p for p in index if not isinstance(p, slice)] + [
        v for p in index if isinstance(p, slice) for v in (p.start, p.stop, p.step)
    ]
    if not any(map(holds_computed, pieces)) and not any(hasattr(p, "refusal") for p in pieces):
        return fresh_array(tracer, owner[index if len(index) > 1 else index[0]], ())
    if any(isinstance(p, str) for p in index):
        raise tracer.error("np.r_ with a text cannot be traced", "join the arrays: np.concatenate(arrays, axis)")
    parts = []
    for piece in index:
        part = _line(tracer, piece) if isinstance(piece, slice) else piece
        if not hasattr(part, "refusal"):  # np.concatenate handles selected elements
            part = stacked(tracer, part)
            part = lookup("reshape")(part, (1,)) if not part.type.shape else part
        if owner.ndmin == 2 and part.ndim == 1:
            part = lookup("unsqueeze")(part, 1)
        parts.append(part)
    return np.concatenate(parts, axis=owner.axis)


#: Functions that make an array from a subscript, by the type of the subscripted object.
SUBSCRIPTS: dict[type, Callable[[Tracer, Any, tuple[Any, ...]], Any]] = {
    type(np.mgrid): _grid_of,
    type(np.ogrid): _grid_of,
    type(np.r_): _joined,
    type(np.c_): _joined,
}


# -- Python's own functions -------------------------------------------------------------------------
Call = Callable[..., Any]


def _extreme(relation: str) -> Call:
    """``max(a, b)`` or ``min(a, b)``: the first extreme value, in the order of Python's comparisons."""

    def call(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        values = list(args if len(args) != 1 else args[0])
        if kwargs or not any(map(holds_computed, values)):
            return function(*(args if len(args) != 1 else (values,)), **kwargs)
        if all(isinstance(value, (int, NamedDim)) for value in values):
            of_sizes = shapes.maximum if relation == "gt" else shapes.minimum
            return shapes.for_user(functools.reduce(of_sizes, map(shapes.normalize, values)))
        best = values[0]
        for value in values[1:]:
            better = lookup(relation)(value, best)
            if is_traced(better):
                require_one_truth(better)
                best = lookup("where")(better, value, best)
            elif better:  # both are known numbers, which keep their types
                best = value
        return tracer.python_number(best) if are_python_numbers(values) else best

    return call


def _truths(name: str) -> Call:
    """``any(...)`` and ``all(...)`` of traced values."""

    def call(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        values = list(args[0]) if len(args) == 1 else []
        if kwargs or not any(map(is_traced, values)):
            return function(values) if len(args) == 1 else function(*args, **kwargs)
        result = values[0]
        for value in values:
            if is_traced(value):
                require_one_truth(value)
        for value in values[1:]:
            result = lookup(name)(result, value)
        return _python_bool(tracer, result)

    return call


def _python_bool(tracer: Tracer, value: Any) -> Any:
    tracer.needs_flow = tracer.was_asked = True  # ``flag is True`` may follow
    return tracer.python_number(lookup("cast")(value, bool))


def _bool(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``bool(x)``: the truth of a traced value, a condition that ``np.where`` can use, but not ``if``."""
    if len(args) == 1 and is_traced(args[0]) and args[0].is_typed and not args[0].ndim:
        return _python_bool(tracer, args[0])
    return bool(*args, **kwargs)


def _len(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``len(x)``, which may be a named dim."""
    if len(args) == 1 and (isinstance(args[0], Masked) or is_block(args[0]) or (is_traced(args[0]) and args[0].ndim)):
        return args[0].shape[0]
    return function(*args, **kwargs)


def _kind(value: Any) -> type | None:
    """The type of the object for which a traced value or a named size stands; None for anything else."""
    if isinstance(value, OneText):
        return str
    if isinstance(value, shapes.NamedDim):
        return int
    if isinstance(value, Masked) or is_block(value):
        return np.ndarray
    is_own = type(value).__module__.startswith("fxlite.")  # not a Proxy subclass of a user's tracer
    if not is_traced(value) or not value.is_typed or not is_own:
        return None
    if hasattr(value, "python_type"):
        return value.python_type  # type: ignore[no-any-return]
    return value.dtype.type if not value.type.shape and is_number(value) else np.ndarray


def _of_kind(answer: Callable[..., Any]) -> Call:
    """A function on the type of a value, ``f(value)`` or ``f(value, what)``, which uses the type for which a traced
    value stands."""

    def call(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        kind = _kind(args[0]) if args and len(args) < 3 and not kwargs else None
        return function(*args, **kwargs) if kind is None else answer(kind, *args[1:])

    return call


def _isinstance(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """``isinstance(x, types)``; ``isinstance(x, fx.Proxy)``, which authors of tracers use, is true, too."""
    return bool(isinstance(*args, **kwargs) or _of_kind(issubclass)(tracer, function, args, kwargs))


#: The warnings that were given, by which Python gives each of them once.
_SAID: dict[Any, Any] = {}


def _print(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """``print(...)``, with a warning if values should be shown, because a graph does not print."""
    if any(map(holds_computed, args)) or any(isinstance(a, (str, OneText)) and UNKNOWN_TEXT in str(a) for a in args):
        place = here(2)
        if place is not None:
            text = (
                "print() runs once, while the program is traced, and shows no values, but names and types, such as "
                "Proxy(sum: f64); return what is to be seen, and print it after the call"
            )
            warnings.warn_explicit(text, UserWarning, place.file, place.line, registry=_SAID)
        tracer.note_statement("print", "runs while tracing: a graph prints nothing")
    function(*args, **kwargs)


BUILTINS: dict[Any, Call] = {
    builtins.type: _of_kind(lambda kind: kind),
    builtins.isinstance: _isinstance,
    builtins.hasattr: _of_kind(hasattr),
    np.isscalar: _of_kind(lambda kind: issubclass(kind, (np.generic, int, float))),
    builtins.print: _print,
    builtins.max: _extreme("gt"),
    builtins.min: _extreme("lt"),
    builtins.any: _truths("logical_or"),
    builtins.all: _truths("logical_and"),
    builtins.bool: _bool,
    builtins.len: _len,
}
