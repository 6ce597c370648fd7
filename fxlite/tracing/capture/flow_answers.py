"""The tracer's results for Python's builtins, if the control flow of a program is captured.

Iterables over which a loop can go by number: ranges, arrays along their first axis, and ``enumerate``, ``zip``,
``reversed`` and ``itertools.product`` of these, even if a bound or a length is not known while tracing. They become
:class:`Counted`: the number of elements, and the element with a given number. Also Python numbers from traced values,
``int(x)``, ``float(x)``, ``round(x)``, ``math.sqrt(x)``, which are not known while tracing. Where Python raises an
exception (``math.sqrt(-1)``, ``int(nan)``), they have the value that NumPy computes, as a graph has no exceptions.
"""

from __future__ import annotations

import bisect
import builtins
import cmath
import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.state import is_traced
from fxlite.ops.op import lookup
from fxlite.tracing.capture.answers import holds_computed, item_at, stacked
from fxlite.tracing.capture.known import known_value
from fxlite.tracing.capture.lists import as_array, is_open
from fxlite.tracing.capture.rounds import Rounds, numbers_of
from fxlite.tracing.functions import special
from fxlite.tracing.functions.elements import Flat, position
from fxlite.tracing.numpy_functions import is_complex
from fxlite.tracing.proxy import DTYPES, Proxy, PythonNumber
from fxlite.tracing.selections import growing
from fxlite.tracing.selections.masked import FUNCTIONS, Masked, is_block
from fxlite.tracing.selections.spans import as_number
from fxlite.types import shapes
from fxlite.types.shapes import NamedDim

if TYPE_CHECKING:
    from fxlite.tracing.tracer import Tracer


class Counted:
    """``count`` elements (an int, a named size, or a traced number), of which ``item(k)`` returns the one with a
    number, which may be traced. ``bounds``: those of a range with step 1, whose elements are numbers. ``held_by``: the
    lists, tuples, dicts and sets of the program from which elements are taken, which the loop must not change."""

    def __init__(
        self,
        tracer: Tracer,
        count: Any,
        item: Callable[[Any], Any],
        bounds: tuple[Any, Any] | None = None,
        held_by: tuple[Any, ...] = (),
    ) -> None:
        self.tracer, self.count, self.item, self.held_by = tracer, count, item, held_by
        self.bounds = bounds if bounds is not None else (0, count)
        self.is_range = bounds is not None
        self.is_rest = False

    @property
    def is_listed(self) -> bool:
        """Whether elements are numbers in a list that are known, which the program may take one by one."""
        return bool(self.held_by) and all(growing.rows_of(held) is None for held in self.held_by)

    def rest(self) -> Counted:
        """All elements except the first one."""
        bounds = (self.bounds[0] + 1, self.bounds[1]) if self.is_range else None
        found = Counted(self.tracer, self.count - 1, lambda k: self.item(k + 1), bounds, self.held_by)
        found.is_rest = True
        return found

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self.count, NamedDim):
            return (self.item(k) for k in range(operator.index(self.count)))
        if type(self.count) is not int:
            raise self.tracer.error(
                "the number of elements is not known while tracing, so no list can be made of them",
                "append to a list in a for statement, or write into an array of the largest size there",
                getattr(self.count, "node", None),
            )
        return (self.item(k) for k in range(self.count))

    def __len__(self) -> int:
        return int(self.count)


def counted(tracer: Tracer, value: Any) -> Counted | None:
    """The values over which a ``for`` statement iterates, by number; None if that is impossible."""
    if isinstance(value, Counted):
        return value
    if isinstance(value, Rounds):
        return value.over  # type: ignore[no-any-return]
    if isinstance(value, range):
        first, step = value.start, value.step
        bounds = (value.start, value.stop) if step == 1 else None
        return Counted(tracer, len(value), lambda k: first + k * step, bounds)
    if isinstance(value, Proxy) and value.is_typed and value.ndim:
        return Counted(tracer, value.shape[0], lambda k: value[k])
    if isinstance(value, Masked) and not value.before:
        selected = FUNCTIONS["compact"](value)
        return Counted(tracer, selected.count, lambda k: selected.values[k])
    if is_block(value):
        return Counted(tracer, value.shape[0], lambda k: value[k])
    if is_open(value):
        return counted(tracer, as_array(tracer, value))
    rows = growing.rows_of(value)
    if rows is not None:
        return Counted(tracer, rows.count, rows.at, held_by=(value,))
    if isinstance(value, Flat):
        return Counted(tracer, value.x.size, value.element)
    if isinstance(value, np.ndarray) and value.ndim:
        return Counted(tracer, len(value), lambda k: value[k] if type(k) is int else tracer.constant(value)[k])
    numbers = numbers_of(value, 0) if tracer.loops == "keep" else numbers_of(value)
    if numbers is None:
        return None
    return Counted(
        tracer, len(numbers), lambda k: _number_at(tracer, numbers, k), held_by=(getattr(value, "mapping", value),)
    )


def _number_at(tracer: Tracer, values: Sequence[Any], place: Any) -> Any:
    """The element of a sequence of numbers, or of tuples of numbers, at a place."""
    if type(place) is int:
        return values[place]
    if type(values[0]) is tuple:
        return tuple(_number_at(tracer, column, place) for column in zip(*values))
    found = item_at(tracer, values, place)
    if isinstance(values[0], (int, np.integer)):
        least, most = int(min(values)), int(max(values))
        tracer.ranges[found.node] = least, most + 1
        tracer.magnitudes[found.node] = float(max(-least, most))
    return found


def _is_counted(value: Any) -> bool:
    is_counted = isinstance(value, (Counted, Proxy, Masked, Flat)) or is_open(value) or is_block(value)
    return is_counted or growing.rows_of(value) is not None


def _given(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], over: Counted) -> Any:
    """What ``enumerate``, ``zip`` and so on give: the elements by number if some are computed, else Python's iterator,
    from which a loop can take them by number, too."""
    if any(map(_is_counted, args)):
        return over
    return Rounds(function(*args, **kwargs), over.count, over)


def _known_bound(value: Any) -> Any:
    """A bound of a range, as an int if it is known."""
    known = known_value(value) if is_traced(value) else None
    return value if known is None else int(known[()])


def _range(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    args = tuple(map(_known_bound, args))
    if kwargs or not any(is_traced(a) or isinstance(a, NamedDim) for a in args):
        return function(*args, **kwargs)
    for bound in args:
        if is_traced(bound) and (bound.type.shape or not bound.type.dtype.is_integer):
            raise tracer.error(
                f"range() takes integers, and {bound.node.name} is {bound.type}",
                "give it an integer: int(n)",
                bound.node,
            )
    start, stop = (0, args[0]) if len(args) == 1 else args[:2]
    step: Any = args[2] if len(args) == 3 else 1
    if type(step) is int and step == 0:
        raise ValueError("range() arg 3 must not be zero")
    if type(step) is int and step == 1:
        count = _at_least_0(tracer, stop - start) if len(args) > 1 else _at_least_0(tracer, stop)
        return Counted(tracer, count, lambda k: start + k, (start, stop))
    if type(step) is int and not is_traced(start) and not is_traced(stop):  # then the count is a size
        span = stop - start if step > 0 else start - stop
        count = _at_least_0(tracer, (span + (abs(step) - 1)) // abs(step))
        return Counted(tracer, count, lambda k: start + k * step)
    start, stop, step = (as_number(tracer, bound) for bound in (start, stop, step))
    upward: Any = step > 0
    sign = lookup("where")(upward, 1, -1) if is_traced(upward) else 1 if upward else -1
    count = (stop - start + (step - sign)) // step
    return Counted(tracer, _at_least_0(tracer, count), lambda k: start + k * step)


def _at_least_0(tracer: Tracer, count: Any) -> Any:
    count = _known_bound(count)
    if type(count) is int:
        return max(count, 0)
    return count if isinstance(count, NamedDim) else lookup("maximum")(count, 0)


def _enumerate(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    start = kwargs.get("start", args[1] if len(args) > 1 else 0)
    found = counted(tracer, args[0]) if args else None
    if found is None:
        return function(*args, **kwargs)
    over = Counted(tracer, found.count, lambda k: (k + start, found.item(k)), held_by=found.held_by)
    return _given(function, args, kwargs, over)


def _zip(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    parts = [counted(tracer, value) for value in args]
    found = [part for part in parts if part is not None]
    if not parts or len(found) < len(parts) or set(kwargs) - {"strict"}:
        return function(*args, **kwargs)
    count = found[0].count
    for part in found[1:]:
        if type(count) is int and type(part.count) is int:
            count = min(count, part.count)
        elif not (isinstance(count, NamedDim) and isinstance(part.count, NamedDim) and count.expr == part.count.expr):
            both = (as_number(tracer, count), as_number(tracer, part.count))
            count = lookup("minimum")(*both)
    held_by = tuple(itertools.chain.from_iterable(part.held_by for part in found))
    over = Counted(tracer, count, lambda k: tuple(part.item(k) for part in found), held_by=held_by)
    return _given(function, args, kwargs, over)


def _reversed(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    found = counted(tracer, args[0]) if args else None
    if found is None or isinstance(args[0], Rounds):  # Python refuses to reverse an iterator
        return function(*args, **kwargs)
    last = as_number(tracer, found.count) - 1
    over = Counted(tracer, found.count, lambda k: found.item(last - k), held_by=found.held_by)
    return _given(function, args, kwargs, over)


def _ndenumerate(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    is_array = len(args) == 1 and isinstance(args[0], (Proxy, np.ndarray)) and getattr(args[0], "is_typed", True)
    if kwargs or not is_array:
        return function(*args, **kwargs)
    (x,) = args

    def item(k: Any) -> Any:
        place = position(tracer, k, x.shape)
        return place, (tracer.constant(x) if any(map(is_traced, place)) else x)[place]

    return _given(function, args, kwargs, Counted(tracer, x.size, item))


def _ndindex(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    sizes = args[0] if len(args) == 1 and isinstance(args[0], (tuple, list)) else args
    if kwargs or not all(isinstance(size, (int, NamedDim)) for size in sizes):
        return function(*args, **kwargs)
    return Counted(
        tracer, shapes.for_user(shapes.product(map(shapes.normalize, sizes))), lambda k: position(tracer, k, sizes)
    )


def _repeat(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given = dict(zip(("object", "times"), args)) | kwargs
    times = _known_bound(given.get("times"))
    if given.keys() != {"object", "times"} or not (isinstance(times, (int, NamedDim)) or is_traced(times)):
        return function(*args, **kwargs)
    return Counted(tracer, _at_least_0(tracer, times), lambda _: given["object"])


def _product(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``itertools.product``, in which the last part varies fastest."""
    repeat = kwargs.get("repeat", 1)
    if type(repeat) is not int or kwargs.keys() - {"repeat"}:
        return function(*args, **kwargs)
    parts = [counted(tracer, value) for value in args] * repeat
    sizes = [part.count for part in parts if part is not None and isinstance(part.count, (int, NamedDim))]
    if not parts or len(sizes) < len(parts):
        return function(*args, **kwargs)

    def item(k: Any) -> Any:
        return tuple(part.item(at) for part, at in zip(parts, position(tracer, k, sizes)) if part is not None)

    held_by = tuple(itertools.chain.from_iterable(part.held_by for part in parts if part is not None))
    count = shapes.for_user(shapes.product(map(shapes.normalize, sizes)))
    return _given(function, args, kwargs, Counted(tracer, count, item, held_by=held_by))


def _nditer(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given = args[0] if args and isinstance(args[0], (tuple, list)) else args[:1]
    if not any(map(is_traced, given)):
        return function(*args, **kwargs)
    raise tracer.error(
        "np.nditer visits elements in the order of memory, which is not known while tracing",
        "loop over positions: for index in np.ndindex(x.shape): x[index] = ...",
    )


#: Builtins whose results a loop iterates over: ``f(tracer, function, args, kwargs)``.
COUNTED: dict[Any, Callable[..., Any]] = {
    builtins.range: _range,
    builtins.enumerate: _enumerate,
    builtins.zip: _zip,
    builtins.reversed: _reversed,
    itertools.product: _product,
    itertools.repeat: _repeat,
    np.ndenumerate: _ndenumerate,
    np.ndindex: _ndindex,
    np.nditer: _nditer,
}


Answer = Callable[..., Any]


def _open(value: Any) -> bool:
    """Whether a value is a single number that is not known while tracing."""
    if not is_traced(value) or not value.is_typed or known_value(value) is not None:
        return False
    return all(size == 1 for size in value.type.shape)


def _number(value: Any, kind: type) -> PythonNumber:
    """A value as a Python number."""
    if value.type.shape:
        value = lookup("reshape")(value, ())
    if value.type.dtype is not DTYPES[kind]:
        value = lookup("cast")(value, DTYPES[kind])
    return PythonNumber(value.node, value.tracer)


def number_of(value: Any) -> Any:
    """``x.item()``."""
    if not _open(value):
        return value.item()
    dtype = value.type.dtype
    return _number(value, bool if dtype.is_bool else float if dtype.is_float else int)


#: The most elements of an array that is made into a list.
_MOST_LISTED = 4096


def list_of(x: Any) -> Any:
    """``x.tolist()``: the elements as Python numbers, in lists nested like the axes of x."""
    if not x.is_typed or known_value(x) is not None:
        return x.tolist()
    if not x.ndim:
        return number_of(x)
    count = len(x)  # raises an error for a named size
    if int(x.size) > _MOST_LISTED:
        raise x.tracer.error(f"{x.node.name} is made into a list of {x.size} elements", "keep it an array", x.node)
    return [list_of(x[number]) for number in range(count)]


def _size_as_number(tracer: Tracer, value: Any) -> Any:
    """A named size as the number that it is at run time; any other value unchanged."""
    return tracer.number_of_size(value) if isinstance(value, shapes.NamedDim) else value


def _as(kind: type) -> Answer:
    def call(tracer: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], shapes.NamedDim):
            if kind is int:
                return args[0]
            args = (_size_as_number(tracer, args[0]),)
        if len(args) != 1 or kwargs or not _open(args[0]):
            return function(*args, **kwargs)
        return _number(args[0], kind)

    return call


def _round(tracer: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
    number, digits = args[0] if args else kwargs.get("number"), args[1] if len(args) > 1 else kwargs.get("ndigits")
    if not _open(number):
        return function(*args, **kwargs)
    if digits is None:
        return _number(np.round(number), int)
    rounded = np.round(number, digits)
    return tracer.python_number(rounded) if isinstance(number, PythonNumber) else rounded


def _power(tracer: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
    if len(args) != 2 or kwargs or not any(map(is_traced, args)):
        return function(*args, **kwargs)
    return args[0] ** args[1]


def _mathematical(computed: Callable[..., Any], kind: type, of: type = float) -> Answer:
    """A function of numbers of the type ``of`` that returns a number of ``kind``, or several."""

    def call(tracer: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
        args = tuple(_size_as_number(tracer, a) for a in args)
        if not any(map(_open, args)):
            return function(*args, **kwargs)
        found = computed(*(_number(a, of) if is_traced(a) else of(a) for a in args), **kwargs)
        return tuple(_number(v, kind) for v in found) if isinstance(found, tuple) else _number(found, kind)

    return call


def _complex(tracer: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
    """``complex(x)``, ``complex(real, imag)``"""
    parts = [_size_as_number(tracer, v) for v in args]
    if kwargs or len(args) > 2 or not any(map(_open, parts)):
        return function(*args, **kwargs)
    numbers: list[Any] = [_number(v, complex if is_complex(v) else float) if is_traced(v) else v for v in parts]
    if len(numbers) == 1:
        return _number(numbers[0], complex)
    if any(map(is_complex, numbers)):
        return numbers[0] + numbers[1] * 1j
    return tracer.python_number(lookup("complex")(*(v if is_traced(v) else float(v) for v in numbers)))


def _is_close(a: Any, b: Any, *, rel_tol: float = 1e-9, abs_tol: float = 0.0) -> Any:
    largest = np.maximum(rel_tol * np.maximum(abs(a), abs(b)), abs_tol)
    return (a == b) | ((abs(a - b) <= largest) & np.isfinite(a) & np.isfinite(b))


def _bisected(side: Any) -> Answer:
    """``bisect.bisect_left(values, x)`` and so on: the position in ascending values."""

    def call(tracer: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
        rows = growing.rows_of(args[0]) if args else None
        if len(args) < 2 or not (rows is not None or any(map(holds_computed, args))):
            return function(*args, **kwargs)
        if len(args) > 2 or kwargs:
            problem = f"{function.__name__}() of values that are not known while tracing is given lo, hi or key"
            raise tracer.error(problem, f"np.searchsorted(values[lo:hi], x, {side!r}) + lo")
        if rows is not None:
            return growing.bisected(rows, args[1], side)
        if not is_traced(args[0]) and not len(args[0]):
            return 0
        values: Any = args[0] if is_traced(args[0]) else stacked(tracer, list(args[0]))
        return _number(np.searchsorted(values, args[1], side), int)

    return call


def _exact_sum(tracer: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
    """``math.fsum``, which rounds once."""
    if len(args) == 1 and not is_traced(args[0]):
        args = ([*args[0]],)
    if any(map(holds_computed, args)):
        raise tracer.error(
            "math.fsum() rounds once, at the end, and a graph rounds each sum of two numbers",
            "sum(values) or np.sum(values), if that will do",
        )
    return function(*args, **kwargs)


#: The largest integer square root of a number that fits 64 bits.
_LARGEST_ROOT = 3037000499


def _whole_root(n: Any) -> Any:
    """``math.isqrt(n)``, computed from the square root of a float, which may be off by one."""
    root = np.minimum(np.floor(np.sqrt(n)).astype(np.int64), _LARGEST_ROOT)
    root = root - (root * root > n)
    return root + ((root < _LARGEST_ROOT) & ((root + 1) * (root + 1) <= n))


def _distance(tracer: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
    """``math.dist(p, q)``"""
    if len(args) != 2 or not any(map(holds_computed, args)):
        return function(*args, **kwargs)
    p, q = (stacked(tracer, list(a)) for a in args)
    return _number(np.sqrt(((p - q) ** 2).sum()), float)


#: Functions of Python's math module that NumPy has under the same names, by the types of their results.
_MATHEMATICAL = {
    float: "sqrt exp expm1 log2 log10 log1p sin cos tan sinh cosh tanh asin acos atan atan2 asinh acosh atanh fabs "
    "pow fmod copysign degrees radians cbrt modf exp2 nextafter",
    int: "floor ceil trunc",
    bool: "isnan isinf isfinite",
}


#: Those of cmath.
_COMPLEX = {complex: "sqrt exp log10 sin cos tan sinh cosh tanh", bool: "isnan isinf isfinite"}


def _log(kind: type) -> Answer:
    """``math.log(x)``, ``math.log(x, base)``, and those of cmath."""

    def call(tracer: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
        parts = [_mathematical(np.log, kind, of=kind)(tracer, function, (a,), kwargs) for a in args]
        return parts[0] if len(parts) == 1 else parts[0] / parts[1]

    return call


#: ``f(tracer, function, args, kwargs)`` by the function that a program calls.
CONVERSIONS: dict[Any, Answer] = {
    builtins.int: _as(int),
    builtins.float: _as(float),
    builtins.bool: _as(bool),
    builtins.round: _round,
    builtins.pow: _power,
    builtins.complex: _complex,
    math.log: _log(float),
    cmath.log: _log(complex),
    cmath.phase: _mathematical(np.angle, float, of=complex),
    cmath.polar: _mathematical(lambda z: (np.abs(z), np.angle(z)), float, of=complex),
    cmath.rect: _mathematical(lambda r, phi: lookup("complex")(r * np.cos(phi), r * np.sin(phi)), complex),
    math.erf: _mathematical(lambda x: lookup("erf")(x), float),
    math.erfc: _mathematical(special.erfc, float),
    math.gamma: _mathematical(special.gamma, float),
    math.lgamma: _mathematical(special.log_gamma, float),
    math.remainder: _mathematical(special.remainder, float),
    math.hypot: _mathematical(lambda *x: functools.reduce(np.hypot, x) if len(x) > 1 else np.abs(*x), float),
    math.ulp: _mathematical(lambda x: np.spacing(np.abs(x)), float),
    math.gcd: _mathematical(lambda *n: functools.reduce(np.gcd, n), int, of=int),
    math.lcm: _mathematical(lambda *n: functools.reduce(np.lcm, n), int, of=int),
    math.isqrt: _mathematical(_whole_root, int, of=int),
    math.isclose: _mathematical(_is_close, bool),
    math.dist: _distance,
    math.fsum: _exact_sum,
    bisect.bisect: _bisected("right"),
    bisect.bisect_left: _bisected("left"),
    **{
        getattr(math, n): _mathematical(getattr(np, n), kind)
        for kind, text in _MATHEMATICAL.items()
        for n in text.split()
    },
    **{
        getattr(cmath, n): _mathematical(getattr(np, n), kind, of=complex)
        for kind, text in _COMPLEX.items()
        for n in text.split()
    },
}
