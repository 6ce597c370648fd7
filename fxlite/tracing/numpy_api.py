"""NumPy's spellings of the ops: one table from ufuncs, NumPy functions and ndarray methods to ops.

In: a call on proxies as NumPy dispatches it. Out: calls of ops, so that ``np.maximum(x, 0)``,
``x.clip(0)`` and ``F.relu(x)`` are the same node. What the table does not hold is refused by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np
import sympy

from fxlite.ops.op import REGISTRY, Op, lookup
from fxlite.tracing import numpy_fourier as fourier
from fxlite.tracing import numpy_functions as functions
from fxlite.tracing.capture.capture import captured
from fxlite.tracing.writes.in_place import copyto, fill, store
from fxlite.types import dtypes, shapes

if TYPE_CHECKING:
    from fxlite.tracing.proxy import Proxy
    from fxlite.tracing.tracer import Tracer


# -- ufuncs ----------------------------------------------------------------------------------------
_UFUNCS: dict[np.ufunc, Op] = {o.ufunc: o for o in REGISTRY.values() if o.ufunc is not None}
_REDUCE = {np.add: "sum", np.multiply: "prod", np.maximum: "max", np.minimum: "min",
           np.logical_and: "all", np.logical_or: "any"}  # fmt: skip
_ACCUMULATE = {np.add: "cumsum", np.multiply: "cumprod", np.maximum: "cummax",
               np.minimum: "cummin"}  # fmt: skip


def call_ufunc(
    tracer: Tracer, ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A ufunc is called with a proxy among its inputs or in ``out=``."""
    kwargs = dict(kwargs)
    dtype, out, where = (
        kwargs.pop("dtype", None),
        kwargs.pop("out", None),
        kwargs.pop("where", True),
    )
    casting = kwargs.pop("casting", "same_kind")
    for name in ("subok", "order"):
        kwargs.pop(name, None)
    name = f"np.{ufunc.__name__}"
    if out is None and where is not True:
        raise tracer.error(
            f"{name}(..., where=...) leaves elements that nobody computes",
            "use np.where(mask, a, b), or give out=",
        )
    if method == "at":
        raise tracer.error(
            f"{name}.at writes in place, once for each index, which cannot be traced",
            "np.add.at: y = fx.ops.scatter_add(y, index, values, axis)",
        )
    if ufunc is np.vecdot and method == "__call__" and out is None:
        return functions.vecdot(*inputs, **kwargs)
    axis, keepdims = kwargs.pop("axis", 0), kwargs.pop("keepdims", False)
    if method == "__call__" and ufunc in _UFUNCS and not kwargs:
        operands = [*map(_number, inputs)]
        if dtype is not None:
            operands = _computed_as(tracer, ufunc, operands, dtype, casting)
        result = _UFUNCS[ufunc](*operands)
    elif method == "reduce" and ufunc in _REDUCE and not kwargs:
        target = _REDUCE[ufunc]
        if dtype is not None and target in ("sum", "prod"):
            result = functions.reduction(target)(*inputs, axis, dtype, keepdims=keepdims)
        else:
            result = lookup(target)(*inputs, axis=axis, keepdims=keepdims)
    elif method == "outer" and ufunc in _UFUNCS and not kwargs and len(inputs) == 2:
        rank = functions.value_type(inputs[1]).rank
        left = functions.expand_dims(inputs[0], tuple(range(-rank, 0))) if rank else inputs[0]
        result = _UFUNCS[ufunc](left, inputs[1])
    elif method == "accumulate" and ufunc in _ACCUMULATE and not kwargs:
        result = functions.scan(_ACCUMULATE[ufunc])(inputs[0], axis, dtype)
    else:
        raise tracer.error(
            f"{name}{'' if method == '__call__' else '.' + method} has no fxlite op",
            f"write it with these: {', '.join(sorted(u.__name__ for u in _UFUNCS))}",
        )
    if dtype is not None:
        result = lookup("cast")(result, dtype)
    if out is None:
        return result
    what = f"{name}(out=...)"
    return store(out[0] if isinstance(out, tuple) else out, result, what, casting, where=where)


def _computed_as(
    tracer: Tracer, ufunc: Any, operands: list[Any], dtype: Any, casting: str
) -> list[Any]:
    """The operands of ``np.add(x, y, dtype=...)``, which computes in that dtype."""
    target = dtypes.dtype(dtype)
    try:
        if target.is_bool and any(type(v) in (int, float, complex) for v in operands):
            raise TypeError("a number is no bool")
        with np.errstate(all="ignore"):
            ufunc(*[np.ones((), target.numpy) for _ in operands], dtype=target.numpy)
        return [
            v
            if isinstance(v, (*dtypes.NUMBERS, shapes.NamedDim))
            else functions.converted(v, target, casting)
            for v in operands
        ]
    except TypeError as error:
        if error.__class__ is TypeError or "ufunc" in str(error):
            raise tracer.error(
                f"np.{ufunc.__name__}(dtype={target}): {error}", "cast the operands: .astype"
            ) from error
        raise


def _number(value: Any) -> Any:
    """sympy's dims, as ``fx.dims`` makes them, as sizes; everything else as it is."""
    return shapes.for_user(shapes.own_dims(value)) if isinstance(value, sympy.Expr) else value


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.sum: functions.reduction("sum"),
    np.mean: functions.reduction("mean"),
    np.prod: functions.reduction("prod"),
    np.any: functions.extreme("any"),
    np.all: functions.extreme("all"),
    np.max: functions.extreme("max"),
    np.min: functions.extreme("min"),
    np.amax: functions.extreme("max"),
    np.amin: functions.extreme("min"),
    np.argmax: functions.extreme("argmax"),
    np.argmin: functions.extreme("argmin"),
    np.cumsum: functions.scan("cumsum"),
    np.cumprod: functions.scan("cumprod"),
    np.var: functions.var,
    np.std: functions.std,
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
    np.take: functions.take,
    np.repeat: functions.repeat,
    np.tile: functions.tile,
    np.pad: functions.pad,
    np.where: functions.where,
    np.flip: functions.flip,
    np.roll: functions.roll,
    np.tril: lambda x, k=0: lookup("tril")(x, k),
    np.triu: lambda x, k=0: lookup("triu")(x, k),
    np.einsum: functions.einsum,
    np.dot: functions.dot,
    np.outer: functions.outer,
    np.broadcast_to: functions.broadcast_to,
    np.take_along_axis: lambda x, indices, axis=-1: lookup("gather")(x, indices, axis=axis),
    np.zeros_like: functions.like(0),
    np.empty_like: functions.like(0),
    np.ones_like: functions.like(1),
    np.full_like: functions.full_like,
    np.linalg.norm: functions.norm,
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
}


def function_names() -> list[str]:
    """NumPy functions and ufuncs that have an op, without ``np.``."""
    return sorted({f.__name__ for f in (*_FUNCTIONS, *_UFUNCS)})


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


def _located(
    tracer: Tracer, name: str, implementation: Callable[..., Any], args: Any, kwargs: Any
) -> Any:
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
    "sum": functions.reduction("sum"),
    "mean": functions.reduction("mean"),
    "prod": functions.reduction("prod"),
    "max": functions.extreme("max"),
    "min": functions.extreme("min"),
    "argmax": functions.extreme("argmax"),
    "argmin": functions.extreme("argmin"),
    "any": functions.extreme("any"),
    "all": functions.extreme("all"),
    "cumsum": functions.scan("cumsum"),
    "cumprod": functions.scan("cumprod"),
    "var": functions.var,
    "std": functions.std,
    "reshape": functions.reshape,
    "transpose": functions.transpose,
    "swapaxes": functions.swapaxes,
    "ravel": functions.ravel,
    "flatten": functions.flatten,
    "squeeze": functions.squeeze,
    "clip": functions.clip,
    "take": functions.take,
    "repeat": functions.repeat,
    "round": functions.round_,
    "astype": functions.astype,
    "copy": functions.copy_method,
    "dot": functions.dot,
    "conj": functions.conj,
    "conjugate": functions.conj,
    "diagonal": functions.diagonal,
    "trace": functions.trace,
    "fill": fill,
    "sort": _refused_write("sort", "there is no sort among fx.ops yet"),
    "partition": _refused_write("partition", "use .max() or .min() along an axis"),
    "put": _refused_write("put", "write y[index] = values along one axis"),
    "resize": _refused_write("resize", "use np.pad, or a slice"),
}
for _name, _implementation in [*METHODS.items()]:
    if "out" in inspect.signature(_implementation).parameters:
        METHODS[_name] = _storing(f".{_name}", _implementation)
