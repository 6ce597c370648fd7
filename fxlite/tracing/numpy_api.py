"""NumPy's spellings of the ops: one table from ufuncs, NumPy functions and ndarray methods to ops.

In: a call on proxies as NumPy dispatches it. Out: calls of ops, so that ``np.maximum(x, 0)``,
``x.clip(0)`` and ``F.relu(x)`` are the same node. What the table does not hold is refused by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np
import sympy

from fxlite.ops.op import REGISTRY, Op, lookup
from fxlite.tracing import numpy_fourier as fourier
from fxlite.tracing import numpy_functions as functions
from fxlite.tracing.capture.capture import captured
from fxlite.tracing.functions import (
    decompositions,
    linear,
    padding,
    quantiles,
    rearranging,
    selecting,
    statistics,
    ufuncs,
)
from fxlite.tracing.selections import compact
from fxlite.tracing.selections.masked import FUNCTIONS as OF_SELECTED
from fxlite.tracing.writes.in_place import copyto, fill, store
from fxlite.tracing.writes.scatter import update_at
from fxlite.types import dtypes, shapes

if TYPE_CHECKING:
    from fxlite.tracing.proxy import Proxy
    from fxlite.tracing.tracer import Tracer


# -- ufuncs ----------------------------------------------------------------------------------------
_UFUNCS: dict[np.ufunc, Op] = {o.ufunc: o for o in REGISTRY.values() if o.ufunc is not None}
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
    """A ufunc is called with a proxy among its inputs or in ``out=``."""
    options = {n: v for n, v in kwargs.items() if n not in ("subok", "order", "out", "where")}
    out, where = kwargs.get("out"), kwargs.get("where", True)
    casting = options.pop("casting", "same_kind")
    name = f"np.{ufunc.__name__}{'' if method == '__call__' else '.' + method}"
    if out is None and where is not True and method == "__call__":
        raise tracer.error(
            f"{name}(..., where=...) leaves elements that nobody computes", "use np.where(mask, a, b), or give out="
        )
    if method == "__call__":
        implementation: Callable[..., Any] = partial(_called, tracer, casting)
    else:
        implementation = _UFUNC_METHODS[method]
    if method == "reduce" and where is not True:
        options["where"], where = where, True
    result = _located(tracer, name, implementation, (ufunc, *inputs), options)
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


def _plain(ufunc: np.ufunc) -> Callable[..., Any] | None:
    """What computes a ufunc."""
    return _UFUNCS.get(ufunc) or ufuncs.UFUNCS.get(ufunc)


def _called(tracer: Tracer, casting: str, ufunc: np.ufunc, *inputs: Any, dtype: Any = None, **options: Any) -> Any:
    """``np.add(x, y)``"""
    if ufunc is np.vecdot:
        return functions.vecdot(*inputs, **options)
    if _plain(ufunc) is None or options or (dtype is not None and ufunc not in _UFUNCS):
        return NotImplemented
    operands = [*map(_number, inputs)]
    if ufunc in ufuncs.UFUNCS:
        return ufuncs.UFUNCS[ufunc](*operands)
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
    combine = _plain(ufunc)
    initial = None if initial is np._NoValue else initial
    options = {} if initial is None else {"initial": initial}
    if where is not True:
        options["where"] = where
    if target in ("sum", "prod"):
        return METHODS[target](x, axis, dtype, keepdims=keepdims, **options)
    if target is not None:
        found = METHODS[target](x, axis, keepdims=keepdims, **options)
    elif combine is not None and where is True and dtype is None:
        found = ufuncs.fold(combine, ufunc.identity, x, axis, keepdims)
        found = found if initial is None else combine(initial, found)
    else:
        return NotImplemented
    return found if dtype is None else lookup("cast")(found, dtype)


def _accumulated(ufunc: np.ufunc, x: Any, axis: Any = 0, dtype: Any = None) -> Any:
    """``np.add.accumulate(x)``"""
    if ufunc in _ACCUMULATE:
        return functions.scan(_ACCUMULATE[ufunc])(x, axis, dtype)
    combine = _plain(ufunc)
    if combine is None or dtype is not None:
        return NotImplemented
    return ufuncs.accumulated(combine, x, axis)


def _outer(ufunc: np.ufunc, x: Any, y: Any, dtype: Any = None) -> Any:
    """``np.add.outer(x, y)``"""
    combine = _plain(ufunc)
    if combine is None or ufunc.signature is not None:
        return NotImplemented
    rank = functions.value_type(y).rank
    found = combine(functions.expand_dims(x, tuple(range(-rank, 0))) if rank else x, y)
    return found if dtype is None else lookup("cast")(found, dtype)


def _at(ufunc: np.ufunc, a: Any, indices: Any, b: Any = None) -> None:
    """``np.add.at(y, i, x)``"""
    update_at(a, indices, b, ufunc, _plain(ufunc))


OF_SELECTED["at"] = _at


_UFUNC_METHODS: dict[str, Callable[..., Any]] = {
    "reduce": _reduced,
    "accumulate": _accumulated,
    "outer": _outer,
    "reduceat": ufuncs.reduced_at,
    "at": _at,
}


def _stored_parts(results: tuple[Any, ...], out: Any, name: str, casting: str, where: Any) -> tuple[Any, ...]:
    """The results of a ufunc that has several, written into those arrays that are given."""
    places = (None,) * len(results) if out is None else tuple(out)
    return tuple(
        r if o is None else store(o, r, f"{name}(out=...)", casting, where=where) for r, o in zip(results, places)
    )


def _computed_as(tracer: Tracer, ufunc: Any, operands: list[Any], dtype: Any, casting: str) -> list[Any]:
    """The operands of ``np.add(x, y, dtype=...)``, which computes in that dtype."""
    target = dtypes.dtype(dtype)
    try:
        if target.is_bool and any(type(v) in (int, float, complex) for v in operands):
            raise TypeError("a number is no bool")
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
    """sympy's dims, as ``fx.dims`` makes them, as sizes; everything else as it is."""
    return shapes.for_user(shapes.own_dims(value)) if isinstance(value, sympy.Expr) else value


_SUM = selecting.reduction("sum", functions.reduction("sum"), 0, "add")
_PROD = selecting.reduction("prod", functions.reduction("prod"), 1, "mul")
_MAX = selecting.extreme("max", functions.extreme("max"), combined="maximum")
_MIN = selecting.extreme("min", functions.extreme("min"), combined="minimum")
_ANY = selecting.extreme("any", functions.extreme("any"), False)
_ALL = selecting.extreme("all", functions.extreme("all"), True)

_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.sum: _SUM,
    np.mean: selecting.average,
    np.prod: _PROD,
    np.any: _ANY,
    np.all: _ALL,
    np.max: _MAX,
    np.min: _MIN,
    np.amax: _MAX,
    np.amin: _MIN,
    np.argmax: functions.extreme("argmax"),
    np.argmin: functions.extreme("argmin"),
    np.cumsum: functions.scan("cumsum"),
    np.cumprod: functions.scan("cumprod"),
    np.reshape: functions.reshape,
    np.transpose: functions.transpose_function,
    np.swapaxes: functions.swapaxes,
    np.moveaxis: functions.moveaxis,
    np.ravel: functions.ravel,
    np.squeeze: functions.squeeze,
    np.expand_dims: functions.expand_dims,
    np.concatenate: functions.join("concat"),
    np.stack: functions.join("stack"),
    np.vstack: functions.stacked(0, 2),
    np.hstack: functions.stacked(1, 1),
    np.split: functions.split,
    np.array_split: functions.array_split,
    np.clip: functions.clip,
    np.tile: functions.tile,
    np.where: functions.where,
    np.flip: functions.flip,
    np.roll: functions.roll,
    np.tril: lambda x, k=0: lookup("tril")(x, k),
    np.triu: lambda x, k=0: lookup("triu")(x, k),
    np.einsum: functions.einsum,
    np.dot: functions.dot,
    np.outer: functions.outer,
    np.broadcast_to: functions.broadcast_to,
    np.zeros_like: functions.like(0),
    np.empty_like: functions.like(0),
    np.ones_like: functions.like(1),
    np.full_like: functions.full_like,
    np.round: functions.round_,
    np.copy: functions.copy,
    np.average: functions.average,
    np.diag: functions.diag,
    np.diagonal: functions.diagonal,
    np.trace: functions.trace,
    np.inner: functions.inner,
    np.vdot: functions.vdot,
    np.count_nonzero: functions.count_nonzero,
    np.result_type: functions.result_type,
    np.real: functions.real_,
    np.imag: functions.imag_,
    np.angle: functions.angle,
    np.isreal: lambda x: lookup("eq")(functions.imag_(x), 0),
    np.iscomplex: lambda x: lookup("ne")(functions.imag_(x), 0),
    np.isrealobj: lambda x: not functions.is_complex(x),
    np.iscomplexobj: functions.is_complex,
    **fourier.FUNCTIONS,
    np.shape: lambda x: x.shape,
    np.ndim: lambda x: x.ndim,
    np.size: lambda x, axis=None: x.size if axis is None else x.shape[axis],
    np.pad: padding.pad,
    **rearranging.FUNCTIONS,
    **selecting.FUNCTIONS,
    **statistics.FUNCTIONS,
    **quantiles.FUNCTIONS,
    **linear.FUNCTIONS,
    **decompositions.FUNCTIONS,
    **compact.FUNCTIONS,
}


def function_names() -> list[str]:
    """NumPy functions and ufuncs that have an op, without ``np.``."""
    return sorted({f.__name__ for f in (*_FUNCTIONS, *_UFUNCS, *ufuncs.UFUNCS)})


def call_function(tracer: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
    """A NumPy function is called with a proxy among its arguments."""
    implementation = _FUNCTIONS.get(function)
    kwargs = {key: value for key, value in kwargs.items() if value is not np._NoValue}
    name = f"{getattr(function, '__module__', 'numpy').replace('numpy', 'np')}.{function.__name__}"
    if implementation is not None:
        return _located(tracer, name, implementation, args, kwargs)
    # what NumPy writes in Python over its other functions is traced through
    reason: Exception | None = None
    written = getattr(function, "_implementation", None)
    if isinstance(written, FunctionType) and tracer.captures:
        try:
            return tracer.trace_library(captured(written, "library"), args, kwargs)
        except Exception as error:
            reason = error
    raise tracer.error(
        f"{name} has no fxlite op",
        "write it with NumPy functions that have one (fx.ops lists them), or compute it before "
        "tracing if it does not depend on the inputs",
    ) from reason


def call_method(x: Proxy, name: str, args: Any, kwargs: Any) -> Any:
    """A method of an ndarray is called on a proxy."""
    return _located(x.tracer, f"ndarray.{name}", METHODS[name], (x, *args), kwargs)


def _located(tracer: Tracer, name: str, implementation: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The call; what it refuses is an error with the program's line."""
    try:
        return implementation(*args, **kwargs)
    except (TypeError, ValueError) as error:
        if error.__class__ in (TypeError, ValueError):  # not one of fxlite's own, located already
            raise tracer.error(f"{name}: {error}") from error
        raise


def _storing(name: str, implementation: Callable[..., Any]) -> Callable[..., Any]:
    """The function with ``out=`` as in NumPy: the result is written there, and returned."""
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


_FUNCTIONS[np.copyto] = copyto
for _function, _implementation in [*_FUNCTIONS.items()]:
    if "out" in inspect.signature(_implementation).parameters:
        _FUNCTIONS[_function] = _storing(f"np.{_function.__name__}", _implementation)


#: Methods of ndarray that a Proxy has.
METHODS: dict[str, Callable[..., Any]] = {
    "sum": _SUM,
    "mean": selecting.average,
    "prod": _PROD,
    "max": _MAX,
    "min": _MIN,
    "argmax": functions.extreme("argmax"),
    "argmin": functions.extreme("argmin"),
    "any": _ANY,
    "all": _ALL,
    "cumsum": functions.scan("cumsum"),
    "cumprod": functions.scan("cumprod"),
    "var": selecting.spread,
    "std": selecting.deviation,
    "reshape": functions.reshape,
    "transpose": functions.transpose,
    "swapaxes": functions.swapaxes,
    "ravel": functions.ravel,
    "flatten": functions.flatten,
    "squeeze": functions.squeeze,
    "clip": functions.clip,
    "take": selecting.take_at,
    "nonzero": compact.nonzero,
    "repeat": compact.repeat,
    "choose": selecting.choose,
    "compress": lambda x, condition, axis=None: selecting.compress(condition, x, axis),
    "round": functions.round_,
    "astype": functions.astype,
    "copy": functions.copy_method,
    "dot": functions.dot,
    "conj": functions.conj,
    "conjugate": functions.conj,
    "diagonal": functions.diagonal,
    "trace": functions.trace,
    "fill": fill,
    "sort": statistics.sort_in_place,
    "argsort": statistics.argsort,
    "partition": statistics.partition_in_place,
    "argpartition": statistics.argpartition,
    "searchsorted": statistics.searchsorted,
    "put": rearranging.put,
    "resize": _refused_write("resize", "use np.pad, or a slice"),
}
for _name, _implementation in [*METHODS.items()]:
    if "out" in inspect.signature(_implementation).parameters:
        METHODS[_name] = _storing(f".{_name}", _implementation)
