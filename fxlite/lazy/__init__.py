"""NumPy, computed on demand: ``import fxlite.lazy as np``.

All of NumPy's names are here. Functions return lazy arrays (:class:`Array`), which record operations and are computed
when their values are needed: by ``print``, ``float()``, ``if``, an index, ``numpy.asarray``. A recorded computation is
interpreted at first, and runs as compiled code when its structure occurs often enough, as in a loop. Writes into
arrays and views have the same effect as in NumPy. Operations without an op of fxlite are computed by NumPy at once;
:func:`explain` lists them.

An error of the computation, such as an index out of bounds, is raised when the value is used, with a note that names
the line that recorded it.
"""

from __future__ import annotations

import functools
import importlib
import sys
from types import ModuleType
from typing import Any

import numpy

from fxlite.backend import find_backend
from fxlite.base.errors import ArgumentError
from fxlite.base.state import is_traced
from fxlite.lazy.array import Array, by_numpy, constant, run
from fxlite.lazy.recorder import RECORDER
from fxlite.tracing.capture.answers import ARRAYS
from fxlite.tracing.writes.aliasing import laid_out

Array._namespace = sys.modules[__name__]
__array_api_version__ = "2024.12"

#: Types of NumPy's functions that dispatch to the classes of their arguments.
_DISPATCHES = (numpy.ufunc, type(numpy.concatenate))
#: Classes of NumPy that are replaced here.
_CLASSES: dict[Any, Any] = {numpy.ndarray: Array}


def configure(*, backend: str | None = None, compile_after: int | None = None, window: int | None = None) -> None:
    """Configure how lazy arrays are computed.

    ``backend``: the back end of :func:`fxlite.compile`, or "interpreter" to use only NumPy's functions.
    ``compile_after``: the number of computations of a structure after which it is compiled, in place of the point at
    which interpreting it is estimated to have taken as long as compiling it takes. ``window``: the largest number of
    recorded nodes before all live arrays are computed. Raises ArgumentError for other values."""
    settings = RECORDER.settings
    if backend is not None:
        if backend != "interpreter":
            find_backend(backend)
        settings.backend = backend
    for name, value in (("compile_after", compile_after), ("window", window)):
        if value is None:
            continue
        if not isinstance(value, int) or value < 1:
            raise ArgumentError(f"{name} must be a number of at least 1, not {value!r}")
        setattr(settings, name, value)


def compute(*arrays: Any) -> None:
    """Compute these arrays now, all in one go."""
    RECORDER.compute([a._proxy for a in arrays if isinstance(a, Array) and a._proxy is not None])


def explain() -> str:
    """A text on what has been computed so far, and how; and on what was not recorded, and why."""
    return RECORDER.explain()


def asarray(a: Any, dtype: Any = None, order: Any = None, *, device: Any = None, copy: bool | None = None) -> Any:
    """A lazy array; ``a`` itself if it is one with that dtype. A NumPy array is copied."""
    if device not in (None, "cpu"):
        raise ValueError(f'the device of lazy arrays is "cpu", not {device!r}')
    if isinstance(a, Array):
        if dtype is None or a.dtype == numpy.dtype(dtype):
            return _in_order(a.copy() if copy else a, order)
        if copy is False:
            raise ValueError(f"{a.dtype} cannot be {numpy.dtype(dtype)} without a copy")
        return _in_order(a.astype(dtype), order)
    if copy is False and not isinstance(a, numpy.ndarray):
        raise ValueError(f"a {type(a).__name__} cannot be an array without a copy")
    return array(a, dtype=dtype)


def _in_order(a: Array, order: Any) -> Any:
    """The array itself if its elements have that order in memory, else a copy."""
    return a if order not in ("C", "F") or not a.ndim else run(_laid_out, (a, order), {}, "asarray")


def _laid_out(a: Any, order: str) -> Any:
    return laid_out(a, order) if is_traced(a) else numpy.asarray(a, order=order)  # type: ignore[call-overload]


def array(
    object: Any, dtype: Any = None, *, copy: Any = True, order: Any = "K", subok: bool = False, ndmin: int = 0
) -> Any:
    """Like numpy.array: a new lazy array from numbers, lists or arrays, which may contain lazy arrays."""
    if isinstance(object, Array):
        found = object if dtype is None else object.astype(dtype)
        found = _in_order(found.copy() if found is object and copy else found, order)
        return found.reshape((1,) * (ndmin - found.ndim) + found.shape) if ndmin else found
    if _has_arrays(object):
        return run(_array_of, (object, dtype, ndmin), {}, "array")
    return constant(numpy.array(object, dtype, ndmin=ndmin))


def _array_of(object: Any, dtype: Any, ndmin: int) -> Any:
    tracer = RECORDER.tracer
    if any(hasattr(leaf, "__fx_record__") for leaf in _leaves(object)):
        kwargs = {} if dtype is None else {"dtype": dtype}
        return ARRAYS[numpy.array](tracer, numpy.array, (object,), {**kwargs, "ndmin": ndmin})
    return numpy.array(object, dtype, ndmin=ndmin)


def _leaves(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        for part in value:
            yield from _leaves(part)
    else:
        yield value


def _has_arrays(value: Any) -> bool:
    if isinstance(value, Array):
        return True
    if isinstance(value, (tuple, list)):
        return any(map(_has_arrays, value))
    return type(value) is dict and any(map(_has_arrays, value.values()))


# -- NumPy's names ---------------------------------------------------------------------------------
class _Namespace:
    """A module or an object of NumPy whose functions take and return lazy arrays."""

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        found = _lazy_name(getattr(self._wrapped, name))
        if isinstance(self._wrapped, ModuleType):
            self.__dict__[name] = found
        return found

    def __dir__(self) -> list[str]:
        return dir(self._wrapped)

    def __repr__(self) -> str:
        return f"<{self._wrapped!r}, with lazy arrays>"


def _lazy_name(found: Any) -> Any:
    if isinstance(found, ModuleType):
        return _Namespace(found)
    if isinstance(found, type):
        return _CLASSES.get(found, found)
    if isinstance(found, numpy.ufunc) or not callable(found):
        return found

    @functools.wraps(found)
    def function(*args: Any, **kwargs: Any) -> Any:
        if _has_arrays(args) or _has_arrays(kwargs):
            if isinstance(found, _DISPATCHES):
                return run(found, args, kwargs)
            return _of_numpy(by_numpy(found, args, kwargs, found.__name__, "NumPy's alone"))
        return _of_numpy(found(*args, **kwargs))

    return function


def _of_numpy(result: Any) -> Any:
    if type(result) is numpy.ndarray:
        own = result.base is None and result.flags.writeable
        return constant(result if own else numpy.array(result))
    if type(result) in (tuple, list):
        return type(result)(map(_of_numpy, result))
    if isinstance(result, (numpy.random.Generator, numpy.random.RandomState)):
        return _Namespace(result)
    return result


def asanyarray(a: Any, dtype: Any = None, order: Any = None) -> Any:
    """Like :func:`asarray`."""
    return asarray(a, dtype, order)


def ascontiguousarray(a: Any, dtype: Any = None) -> Any:
    """Like :func:`asarray`, with at least one axis."""
    found = asarray(a, dtype, "C")
    return found if found.ndim else found.reshape(1)


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    """``x`` converted to another dtype."""
    if device not in (None, "cpu"):
        raise ValueError(f'the device of lazy arrays is "cpu", not {device!r}')
    return x if not copy and x.dtype == numpy.dtype(dtype) else x.astype(dtype)


@functools.cache  # not as globals, because ``np.any`` would hide Python's in the code above
def _name_of_numpy(name: str) -> Any:
    try:
        value = getattr(numpy, name)
    except AttributeError:
        try:
            value = importlib.import_module(f"numpy.{name}")
        except ImportError:
            raise AttributeError(f"NumPy has no {name!r}") from None
    return _lazy_name(value)


def __getattr__(name: str) -> Any:
    return _name_of_numpy(name)


def __dir__() -> list[str]:
    return sorted({*dir(numpy), *(name for name in globals() if not name.startswith("_"))})
