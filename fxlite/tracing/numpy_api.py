"""NumPy's spellings of the ops: a table from ufuncs, NumPy functions and ndarray methods to ops.

In: a call on proxies as NumPy dispatches it. Out: calls of ops, so that ``np.maximum(x, 0)``, ``x.clip(0)`` and
``F.relu(x)`` are the same node. A function that is not in the table raises an error with its name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, reduce
from itertools import accumulate
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.errors import FxliteError
from fxlite.base.location import with_place
from fxlite.base.on_demand import is_expression
from fxlite.base.state import is_traced
from fxlite.ops.op import REGISTRY, Op, lookup, normalize_axes, normalize_axis
from fxlite.tracing import numpy_functions as functions
from fxlite.tracing.capture.answers import holds_computed
from fxlite.tracing.capture.capture import captured
from fxlite.tracing.capture.known import as_known_number, known_value
from fxlite.tracing.functions import fourier, linear, padding, quantiles, rearranging, selecting, statistics
from fxlite.tracing.functions.padding import part_of
from fxlite.tracing.functions.rearranging import known_size
from fxlite.tracing.numpy_functions import value_type
from fxlite.tracing.selections import compact, masked, spans
from fxlite.tracing.selections.formulas import FUNCTIONS as FORMULAS
from fxlite.tracing.selections.masked import FUNCTIONS as OF_SELECTED
from fxlite.tracing.selections.written import FUNCTIONS as WRITING
from fxlite.tracing.writes.in_place import copyto, fill, store
from fxlite.tracing.writes.scatter import update_at
from fxlite.tracing.writes.shared_memory import fresh
from fxlite.types import dtypes, shapes

if TYPE_CHECKING:
    from fxlite.tracing.proxy import Proxy
    from fxlite.tracing.tracer import Tracer

# -- ufuncs that are compositions of ops, or have two results --------------------------------------
#: The most steps of a reduction or scan without an op that are unrolled, and the most slices that one is made of.
_MOST_UNROLLED, _MOST_SLICES = 64, 256


def _result(ufunc: np.ufunc, *operands: Any) -> list[dtypes.DType]:
    """The result dtypes of a NumPy ufunc."""
    ones = [np.ones((), value_type(v).dtype.numpy) if is_traced(v) or np.ndim(v) else v for v in operands]
    with np.errstate(all="ignore"):
        found = ufunc(*ones)
    return [dtypes.dtype(np.asarray(f).dtype) for f in (found if ufunc.nout > 1 else [found])]


def _divmod(x: Any, y: Any) -> tuple[Any, Any]:
    return lookup("floor_divide")(x, y), lookup("remainder")(x, y)


def _modf(x: Any) -> tuple[Any, Any]:
    kind, _ = _result(np.modf, x)
    x = lookup("cast")(x, kind)
    whole = lookup("trunc")(x)
    rest = lookup("where")(lookup("isinf")(x), lookup("cast")(0, kind), x - whole)
    return lookup("copysign")(rest, x), whole


def _frexp(x: Any) -> tuple[Any, Any]:
    kind, _ = _result(np.frexp, x)
    x = lookup("cast")(x, kind)
    exponent = lookup("exponent")(x)
    return _scaled(x, -exponent, kind), exponent


def _scaled(x: Any, exponent: Any, kind: dtypes.DType) -> Any:
    """``x * 2**exponent`` in two steps, neither of which overflows unless the result does."""
    wide = kind.compute
    exponent = np.clip(exponent, -2100, 2100)
    half = lookup("right_shift")(exponent, 1)
    powers = [lookup("exp2")(lookup("cast")(e, wide)) for e in (half, exponent - half)]
    return lookup("cast")(lookup("cast")(x, wide) * powers[0] * powers[1], kind)


def _ldexp(x: Any, y: Any) -> Any:
    (kind,) = _result(np.ldexp, x, y)
    tracer = next(v.tracer for v in (x, y) if is_traced(v))
    y = y if is_traced(y) else tracer.constant(np.asarray(y, np.int64))
    return _scaled(x, lookup("cast")(y, "i64"), kind)


def _spacing(x: Any) -> Any:
    """The distance to the next number; for the largest number, that to the previous one."""
    (kind,) = _result(np.spacing, x)
    x = lookup("cast")(x, kind)
    size = lookup("abs")(x)
    info = np.finfo(kind.numpy) if kind is not dtypes.bfloat16 else None
    step = lookup("nextafter")(size, np.inf) - size
    if info is not None:
        last = float(info.max) - float(np.nextafter(info.max, 0, dtype=kind.numpy))
        step = lookup("where")(size == float(info.max), lookup("cast")(last, kind), step)
    return lookup("copysign")(step, x)


def _positive(x: Any) -> Any:
    if value_type(x).dtype.is_bool:
        raise TypeError("np.positive is not defined for bools")
    return fresh(x, number=True)


def _matvec(x: Any, y: Any) -> Any:
    return lookup("squeeze")(np.matmul(x, lookup("unsqueeze")(y, -1)), -1)


def _vecmat(x: Any, y: Any) -> Any:
    return lookup("squeeze")(np.matmul(lookup("unsqueeze")(functions.conj(x), -2), y), -2)


#: Ufuncs without an op of their own.
UFUNCS: dict[np.ufunc, Callable[..., Any]] = {
    np.divmod: _divmod,
    np.modf: _modf,
    np.frexp: _frexp,
    np.ldexp: _ldexp,
    np.spacing: _spacing,
    np.positive: _positive,
    np.radians: lambda x: lookup("deg2rad")(x),
    np.degrees: lambda x: lookup("rad2deg")(x),
    np.matvec: _matvec,
    np.vecmat: _vecmat,
}


def fold(combine: Callable[..., Any], identity: Any, x: Any, axis: Any, keepdims: bool, initial: Any = None) -> Any:
    """``ufunc.reduce`` for a ufunc without a reduction op, from ``initial`` or the first element to the last."""
    shape = value_type(x).shape
    axes = normalize_axes(axis, len(shape))
    start = identity if initial is None else initial
    if not axes and initial is not None:
        return combine(initial, x)
    if any(type(shape[a]) is int and shape[a] == 0 for a in axes):
        if start is None:
            raise ValueError("there is nothing to reduce, and the ufunc has no identity")
        x = _filled(x, start, tuple(1 if a in axes else size for a, size in enumerate(shape)))
        axes_left: tuple[int, ...] = ()
    else:
        axes_left = tuple(axes)
    for one in reversed(axes_left):
        before = initial if one == axes[0] else None
        size = value_type(x).shape[one]
        if type(size) is int and size <= _MOST_UNROLLED:
            parts = [part_of(x, one, number, number + 1) for number in range(size)]
            x = reduce(combine, parts if before is None else [before, *parts])
            continue
        first = identity if before is None else before
        sizes = tuple(1 if a == one else d for a, d in enumerate(value_type(x).shape))
        found = part_of(x, one, 0, 1) if first is None else _filled(x, first, sizes)
        line = np.moveaxis(x, one, 0)

        def body(number: Any, found: Any, line: Any = line, axis: int = one) -> Any:
            return combine(found, lookup("unsqueeze")(line[number], axis))

        x = x.tracer.loop(0 if first is not None else 1, shapes.for_user(size), body, found)
    return x if keepdims else fresh(functions.squeeze(x, tuple(axes)), number=True)


def _filled(x: Any, number: Any, shape: tuple[Any, ...]) -> Any:
    """An array of one number, with the dtype of ``x``."""
    return lookup("expand")(x.tracer.constant(lookup("cast")(number, value_type(x).dtype)), shape)


def accumulated(combine: Callable[..., Any], x: Any, axis: Any) -> Any:
    """``ufunc.accumulate`` for a ufunc without a scan op."""
    axis = normalize_axis(0 if axis is None else axis, value_type(x).rank)
    size = value_type(x).shape[axis]
    if type(size) is int and size <= _MOST_UNROLLED:
        found = [*accumulate((part_of(x, axis, number, number + 1) for number in range(size)), combine)]
        return lookup("concat")(tuple(found), axis=axis) if found else x
    made = fresh(np.moveaxis(x, axis, 0))

    def body(number: Any, made: Any) -> Any:
        made[number] = combine(made[number - 1], made[number])
        return made

    return np.moveaxis(x.tracer.loop(1, shapes.for_user(size), body, made), 0, axis)


def reduced_at(ufunc: np.ufunc, x: Any, indices: Any, axis: Any = 0, dtype: Any = None) -> Any:
    """``ufunc.reduceat``: reduces the slices from each index to the next, or a single element if that slice is
    empty."""
    axis = normalize_axis(axis, x.ndim if isinstance(x, masked.Masked) else value_type(x).rank)
    is_selected = any(isinstance(v, masked.Masked) for v in (x, indices))
    if is_selected or (is_traced(indices) and known_value(indices) is None):
        return _reduced_at_computed(ufunc, x, indices, axis, {} if dtype is None else {"dtype": dtype})
    size = known_size(x, axis, "reduceat")
    starts = [int(i) for i in np.asarray(indices)]
    if any(not 0 <= i < size for i in starts):
        raise ValueError(f"indices lie from 0 to {size - 1}")
    if len(starts) > _MOST_SLICES:
        raise ValueError(f"{len(starts)} slices are more than the {_MOST_SLICES} that are traced")
    found = []
    for start, end in zip(starts, [*starts[1:], size]):
        part = part_of(x, axis, start, end if end > start else start + 1)
        options = {} if dtype is None else {"dtype": dtype}
        found.append(ufunc.reduce(part, axis=axis, keepdims=True, **options))
    return lookup("concat")(tuple(found), axis=axis)


def _reduced_at_computed(ufunc: np.ufunc, x: Any, indices: Any, axis: int, options: dict[str, Any]) -> Any:
    """:func:`reduced_at` for computed indices, with a loop, for a ufunc with a reduction. ``x`` and the indices may be
    selected elements."""
    if ufunc not in _REDUCE:
        raise ValueError("with computed indices it is traced for add, multiply, maximum, minimum and the logical ones")
    tracer = indices.tracer if hasattr(indices, "tracer") else x.tracer
    x, size = _counted(tracer, x, axis)
    starts, number = _counted(tracer, indices, 0)
    rows, most = np.moveaxis(x, axis, 0), shapes.for_user(starts.type.shape[0])
    starts = lookup("where")(spans.counting(tracer, most) < number, lookup("cast")(starts, "i64"), 0)
    room = shapes.for_user(rows.type.shape[0])
    starts = rearranging.within(lookup("where")(starts < size, starts, room), room, "raise")
    whole = ufunc.reduce(rows, axis=0, **options).type  # only its type is used

    def body(i: Any, out: Any) -> Any:
        start = starts[i]
        end = lookup("where")(i + 1 < number, starts[lookup("minimum")(i + 1, most - 1)], size)
        out[i] = ufunc.reduce(rows[start : lookup("maximum")(end, start + 1)], axis=0, **options)
        return out

    out = lookup("full")((starts.type.shape[0], *whole.shape), 0, whole.dtype)
    out = np.moveaxis(tracer.loop(0, number, body, out), 0, axis)
    return masked.first_of(out, number, out.ndim - 1 - axis) if isinstance(indices, masked.Masked) else out


def _counted(tracer: Tracer, x: Any, axis: int) -> tuple[Any, Any]:
    """An array, and how many elements along an axis it has: of a selection, the first so many."""
    if not isinstance(x, masked.Masked):
        x = tracer.constant(x)
        return x, shapes.for_user(x.type.shape[axis])
    if x.before != axis:
        raise x.refusal("ufunc.reduceat along another axis than the selected one")
    first = compact.compact(x)
    return first.values, first.count


# -- ufuncs ----------------------------------------------------------------------------------------
_UFUNCS: dict[np.ufunc, Op] = {o.ufunc: o for o in REGISTRY.values() if o.ufunc is not None}
#: Functions that compute ufuncs.
_COMPUTED: dict[np.ufunc, Callable[..., Any]] = {**UFUNCS, **_UFUNCS}
_REDUCE: dict[Any, str] = {
    np.add: "sum",
    np.multiply: "prod",
    np.maximum: "max",
    np.minimum: "min",
    np.logical_and: "all",
    np.logical_or: "any",
}
_ACCUMULATE = {np.add: "cumsum", np.multiply: "cumprod", np.maximum: "cummax", np.minimum: "cummin"}


def call_ufunc(tracer: Tracer, ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Record a call of a ufunc with a proxy among its inputs or in ``out=``."""
    out, where, casting = kwargs.pop("out", None), kwargs.pop("where", True), kwargs.pop("casting", "same_kind")
    for ignored in ("subok", "order"):
        kwargs.pop(ignored, None)
    name = f"np.{ufunc.__name__}{'' if method == '__call__' else '.' + method}"
    if out is None and where is not True and method == "__call__":
        raise tracer.error(
            f"{name}(..., where=...) leaves elements that are not computed", "use np.where(mask, a, b), or give out="
        )
    if method == "__call__":
        implementation: Callable[..., Any] = partial(_called, tracer, casting)
    else:
        implementation = _UFUNC_METHODS[method]
    if method == "reduce" and where is not True:
        kwargs["where"], where = where, True
    result = _located(tracer, name, implementation, (ufunc, *inputs), kwargs)
    if result is NotImplemented and getattr(np, ufunc.__name__, None) is not ufunc:
        raise tracer.error(
            f"{ufunc.__name__} is a ufunc that is not NumPy's own, of which only the results are known",
            "for a function of Python use np.vectorize(f, otypes=[float]), which is traced, and not np.frompyfunc, "
            "which makes arrays of objects; or write it with NumPy's functions",
        )
    if result is NotImplemented:
        raise tracer.error(
            f"{name} has no fxlite op", f"write it with these: {', '.join(sorted(u.__name__ for u in _UFUNCS))}"
        )
    if isinstance(result, tuple):
        return _stored_parts(result, out, name, casting, where)
    if out is None:
        return result
    what = f"{name}(out=...)"
    return store(out[0] if isinstance(out, tuple) else out, result, what, casting, where=where)


def _called(tracer: Tracer, casting: str, ufunc: np.ufunc, *inputs: Any, dtype: Any = None, **options: Any) -> Any:
    """``np.add(x, y)``"""
    if ufunc is np.vecdot:
        return functions.vecdot(*inputs, **options)
    if _COMPUTED.get(ufunc) is None or options or (dtype is not None and ufunc not in _UFUNCS):
        return NotImplemented
    operands = [*map(_number, inputs)]
    if ufunc in UFUNCS:
        return UFUNCS[ufunc](*operands)
    if dtype is None:
        return _UFUNCS[ufunc](*operands)
    operands = _computed_as(tracer, ufunc, operands, dtype, casting)
    return lookup("cast")(_UFUNCS[ufunc](*operands), dtype)


def _reduced(
    ufunc: np.ufunc,
    x: Any,
    axis: Any = 0,
    dtype: Any = None,
    keepdims: bool = False,
    initial: Any = np._NoValue,
    where: Any = True,
) -> Any:
    """``np.add.reduce(x)``"""
    target: str | None = _REDUCE.get(ufunc)
    combine = _COMPUTED.get(ufunc)
    initial = None if initial is np._NoValue else initial
    options = {} if initial is None else {"initial": initial}
    if where is not True:
        options["where"] = where
    if target in ("sum", "prod"):
        return METHODS[target](x, axis, dtype, keepdims=keepdims, **options)
    if target is not None:
        found = METHODS[target](x, axis, keepdims=keepdims, **options)
    elif combine is not None and where is True and dtype is None:
        found = fold(combine, ufunc.identity, _as_its_result(ufunc, x), axis, keepdims, initial)
    else:
        return NotImplemented
    return found if dtype is None else lookup("cast")(found, dtype)


def _as_its_result(ufunc: np.ufunc, x: Any) -> Any:
    """``x`` in the dtype of what the ufunc makes of two of its elements."""
    (kind,) = _result(ufunc, x, x)
    return x if kind is value_type(x).dtype else lookup("cast")(x, kind)


def _accumulated(ufunc: np.ufunc, x: Any, axis: Any = 0, dtype: Any = None) -> Any:
    """``np.add.accumulate(x)``"""
    if ufunc in _ACCUMULATE:
        return functions.scan(_ACCUMULATE[ufunc])(x, axis, dtype)
    combine = _COMPUTED.get(ufunc)
    if combine is None or dtype is not None:
        return NotImplemented
    return accumulated(combine, _as_its_result(ufunc, x), axis)


def _outer(ufunc: np.ufunc, x: Any, y: Any, dtype: Any = None) -> Any:
    """``np.add.outer(x, y)``"""
    combine = _COMPUTED.get(ufunc)
    if combine is None or ufunc.signature is not None:
        return NotImplemented
    rank = functions.value_type(y).rank
    found = combine(functions.expand_dims(x, tuple(range(-rank, 0))) if rank else x, y)
    return found if dtype is None else lookup("cast")(found, dtype)


def _at(ufunc: np.ufunc, a: Any, indices: Any, b: Any = None) -> None:
    """``np.add.at(y, i, x)``"""
    update_at(a, indices, b, ufunc, _COMPUTED.get(ufunc))


OF_SELECTED |= {"at": _at, "reduceat": reduced_at, **WRITING, **FORMULAS}


_UFUNC_METHODS: dict[str, Callable[..., Any]] = {
    "reduce": _reduced,
    "accumulate": _accumulated,
    "outer": _outer,
    "reduceat": reduced_at,
    "at": _at,
}


def _stored_parts(results: tuple[Any, ...], out: Any, name: str, casting: str, where: Any) -> tuple[Any, ...]:
    """The results of a ufunc with several, written into the given ``out`` arrays."""
    places = (None,) * len(results) if out is None else tuple(out)
    return tuple(
        r if o is None else store(o, r, f"{name}(out=...)", casting, where=where) for r, o in zip(results, places)
    )


def _computed_as(tracer: Tracer, ufunc: Any, operands: list[Any], dtype: Any, casting: str) -> list[Any]:
    """The operands of ``np.add(x, y, dtype=...)``, converted to that dtype."""
    target = dtypes.dtype(dtype)
    try:
        if target.is_bool and any(type(v) in (int, float, complex) for v in operands):
            raise TypeError("a number is not a bool")
        with np.errstate(all="ignore"):
            ufunc(*[np.ones((), target.numpy) for _ in operands], dtype=target.numpy)
        return [
            v if isinstance(v, (*dtypes.NUMBERS, shapes.NamedDim)) else functions.converted(v, target, casting)
            for v in operands
        ]
    except TypeError as error:
        if error.__class__ is TypeError or "ufunc" in str(error):
            raise tracer.error(f"np.{ufunc.__name__}(dtype={target}): {error}", "cast the operands: .astype") from error
        raise


def _number(value: Any) -> Any:
    """A sympy dim, as from ``fx.dims``, as a size; any other value unchanged."""
    return shapes.for_user(shapes.own_dims(value)) if is_expression(value) else value


#: Functions of NumPy that arrays have as methods, too, with the same arguments.
_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": selecting.reduction("sum", functions.reduction("sum"), 0, "add"),
    "prod": selecting.reduction("prod", functions.reduction("prod"), 1, "mul"),
    "mean": selecting.average,
    "max": selecting.extreme("max", functions.extreme("max"), combined="maximum"),
    "min": selecting.extreme("min", functions.extreme("min"), combined="minimum"),
    "any": selecting.extreme("any", functions.extreme("any"), False),
    "all": selecting.extreme("all", functions.extreme("all"), True),
    "var": selecting.spread,
    "std": selecting.deviation,
    "argmax": functions.extreme("argmax"),
    "argmin": functions.extreme("argmin"),
    "cumsum": functions.scan("cumsum"),
    "cumprod": functions.scan("cumprod"),
    "take": selecting.take_at,
    "round": functions.round_,
}
_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    **{getattr(np, name): function for name, function in _REDUCTIONS.items()},
    np.amax: _REDUCTIONS["max"],
    np.amin: _REDUCTIONS["min"],
    np.transpose: lambda x, axes=None: functions.transpose(x, axes),
    np.concatenate: functions.join("concat"),
    np.stack: functions.join("stack"),
    np.vstack: functions.stacked(0, 2),
    np.hstack: functions.stacked(1, 1),
    np.tril: functions.triangle("tril"),
    np.triu: functions.triangle("triu"),
    np.zeros_like: functions.like(0),
    np.empty_like: functions.like(0),
    np.ones_like: functions.like(1),
    np.real: functions.real_,
    np.imag: functions.imag_,
    np.isreal: lambda x: lookup("eq")(functions.imag_(x), 0),
    np.iscomplex: lambda x: lookup("ne")(functions.imag_(x), 0),
    np.isrealobj: lambda x: not functions.is_complex(x),
    np.iscomplexobj: functions.is_complex,
    np.shape: lambda x: x.shape,
    np.ndim: lambda x: x.ndim,
    np.size: lambda x, axis=None: x.size if axis is None else x.shape[axis],
    np.pad: padding.pad,
    np.copyto: copyto,
    **functions.FUNCTIONS,
    **fourier.FUNCTIONS,
    **rearranging.FUNCTIONS,
    **selecting.FUNCTIONS,
    **statistics.FUNCTIONS,
    **quantiles.FUNCTIONS,
    **linear.FUNCTIONS,
    **compact.FUNCTIONS,
}


def function_names() -> list[str]:
    """The names of NumPy functions and ufuncs that have an op, without ``np.``."""
    return sorted({f.__name__ for f in (*_FUNCTIONS, *_UFUNCS, *UFUNCS)})


def call_function(tracer: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
    """Record a call of a NumPy function with a proxy among its arguments."""
    implementation = _FUNCTIONS.get(function)
    kwargs = {key: value for key, value in kwargs.items() if value is not np._NoValue}
    name = f"{getattr(function, '__module__', 'numpy').replace('numpy', 'np')}.{function.__name__}"
    if implementation is not None:
        return _located(tracer, name, implementation, args, kwargs)
    found, reason = _of_numpy_itself(tracer, function, args, kwargs)
    if found is not NotImplemented:
        return found
    why = f", and NumPy's own code of it cannot be traced: {str(reason).splitlines()[0]}" if str(reason or "") else ""
    raise tracer.error(
        f"{name} has no fxlite op{why}",
        "write it with NumPy functions that have one (fx.ops lists them), or compute it before "
        "tracing if it does not depend on the inputs",
    ) from reason


def _of_numpy_itself(tracer: Tracer, function: Any, args: Any, kwargs: Any) -> tuple[Any, Exception | None]:
    """What NumPy's own code of a function gives, which calls other functions of NumPy; NotImplemented if it has none in
    Python, or with the reason why it cannot be traced."""
    written = getattr(function, "_implementation", None)
    if not isinstance(written, FunctionType) or not tracer.captures:
        return NotImplemented, None
    try:
        return tracer.trace_library(captured(written, "library"), args, kwargs), None
    except Exception as error:
        return NotImplemented, error


def _of_selected(first: masked.Masked, function: Any, args: Any, kwargs: Any) -> Any:
    """A function of selected elements for which there is no other way than NumPy's own code."""
    found, reason = _of_numpy_itself(first.tracer, function, args, kwargs)
    if found is NotImplemented:
        raise first.refusal(f"np.{function.__name__}") from reason
    return found


OF_SELECTED["of numpy itself"] = _of_selected


def call_method(x: Proxy, name: str, args: Any, kwargs: Any) -> Any:
    """Record a call of an ndarray method on a proxy."""
    return _located(x.tracer, f"ndarray.{name}", METHODS[name], (x, *args), kwargs)


def _located(tracer: Tracer, name: str, implementation: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Make the call; its errors get the line of the program."""
    args = [*map(dtypes.as_numpy_reads, args)]
    kwargs = {name: dtypes.as_numpy_reads(value) for name, value in kwargs.items()}
    settled = [*map(as_known_number, args)]
    options = {name: value if name == "out" else as_known_number(value) for name, value in kwargs.items()}
    if name.startswith("ndarray."):  # the method of a traced value, also of one that is known
        args, kwargs = [args[0], *settled[1:]], options
    elif any(map(holds_computed, settled)):  # a traced value is left
        args, kwargs = settled, options
    try:
        return implementation(*args, **kwargs)
    except FxliteError as error:
        known = error.details is not None and error.details.location is not None
        raise error if known else with_place(error, tracer.place()) from None
    except (TypeError, ValueError, IndexError) as error:
        if error.__class__ in (TypeError, ValueError, IndexError, np.exceptions.AxisError):
            raise tracer.error(f"{name}: {error}") from error
        raise


def _storing(name: str, implementation: Callable[..., Any]) -> Callable[..., Any]:
    """The function with ``out=`` as in NumPy: the result is written there and returned."""
    position = [*inspect.signature(implementation).parameters].index("out")

    def call(*args: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", None)
        if len(args) > position:
            out, args = args[position], (*args[:position], None, *args[position + 1 :])
        result = implementation(*args, **kwargs)
        if out is None:
            return result
        return store(out, result, f"{name}(out=...)")

    return call


def _refused_write(name: str, instead: str) -> Callable[..., Any]:
    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        raise x.tracer.error(f".{name}() works in place and cannot be traced", instead, x._node)

    return call


def _takes_out(implementation: Callable[..., Any]) -> bool:
    """Whether a function has a parameter ``out``. (Its signature would take ten times as long to get.)"""
    code = getattr(inspect.unwrap(implementation), "__code__", None)
    if code is None:
        return "out" in inspect.signature(implementation).parameters
    return "out" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


for _function, _implementation in [*_FUNCTIONS.items()]:
    if _takes_out(_implementation):
        _FUNCTIONS[_function] = _storing(f"np.{_function.__name__}", _implementation)


#: Methods of ndarray that a Proxy has.
METHODS: dict[str, Callable[..., Any]] = {
    **_REDUCTIONS,
    **{function.__name__: function for function in functions.METHODS},
    "reshape": compact.reshape,
    "nonzero": compact.nonzero,
    "repeat": compact.repeat,
    "choose": selecting.choose,
    "compress": lambda x, condition, axis=None: selecting.compress(condition, x, axis),
    "copy": functions.copy_method,
    "conjugate": functions.conj,
    "fill": fill,
    "sort": statistics.sort_in_place,
    "argsort": statistics.argsort,
    "partition": statistics.partition_in_place,
    "argpartition": statistics.argpartition,
    "searchsorted": statistics.searchsorted,
    "put": rearranging.put,
    "view": rearranging.view,
    "resize": _refused_write("resize", "use np.pad, or a slice"),
}
for _name, _implementation in [*METHODS.items()]:
    if _takes_out(_implementation):
        METHODS[_name] = _storing(f".{_name}", _implementation)
