"""Lazy arrays: they look like NumPy arrays and record operations on them.

In: calls of NumPy's functions, methods and operators. Out: the same results as from NumPy, computed when their values
are needed (``print``, ``float()``, ``np.asarray``, ``if``, an index). Operations that the tracer cannot record are
computed by NumPy at once, on the values.

An array is recorded (``_proxy``), or holds a NumPy array (``_value``) if tensors cannot have its dtype, or if it is a
view that the recorder does not know.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fxlite.base.errors import DTypeError, FxliteError
from fxlite.base.state import active_tracer
from fxlite.graph.graph import Node
from fxlite.lazy.recorder import RECORDER
from fxlite.ops.elementwise import COMPARISONS
from fxlite.ops.op import OPERATORS, lookup
from fxlite.tracing.proxy import Proxy
from fxlite.tracing.selections.masked import Masked
from fxlite.tracing.writes.aliasing import layout_of
from fxlite.tracing.writes.in_place import is_no_number
from fxlite.tracing.writes.shared_memory import View, root_of, view_of
from fxlite.types import dtypes
from fxlite.types.dtypes import plain_array

#: Errors for programs that a tracer refuses, but NumPy may be able to run.
_REFUSED = (FxliteError, TypeError, ValueError, LookupError, AttributeError, NotImplementedError)


class Array:
    """An array that behaves like a NumPy array but is computed when its value is needed. The functions of
    :mod:`fxlite.lazy`, such as ``asarray``, make it."""

    __slots__ = ("__weakref__", "_proxy", "_shared", "_value")
    __array_priority__ = 2000.0
    _namespace: Any = None  # fxlite.lazy, which sets this
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, shape: Any, dtype: Any = float, *args: Any, **kwargs: Any) -> None:
        """Like numpy.ndarray: an array of that shape with unspecified contents."""
        self._hold(np.ndarray(shape, dtype, *args, **kwargs), shared=bool(args or kwargs))

    @classmethod
    def of(cls, value: Any, shared: bool = False) -> Array:
        """The array for a proxy, or for a NumPy array that no other code writes into; ``shared``: other code may."""
        made = cls.__new__(cls)
        made._hold(value, shared)
        return made

    def _hold(self, value: Any, shared: bool) -> None:
        is_proxy = isinstance(value, Proxy)
        self._proxy: Proxy | None = value if is_proxy else None
        self._value: np.ndarray[Any, Any] | None = None if is_proxy else value
        self._shared = shared
        RECORDER.enter(self)

    # -- attributes that need no value -------------------------------------------------------------
    @property
    def _known(self) -> Any:
        return self._value if self._proxy is None else self._proxy

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._known.shape)

    @shape.setter
    def shape(self, shape: Any) -> None:
        made = self.reshape(shape)
        self._proxy, self._value, self._shared = made._proxy, made._value, made._shared

    @property
    def dtype(self) -> np.dtype[Any]:
        found: np.dtype[Any] = self._known.dtype
        return found

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """The strides that the array would have in NumPy, not those of the computed value."""
        return self.__array__().strides if self._proxy is None else self._proxy.strides

    @property
    def flags(self) -> Any:
        return np.lib.stride_tricks.as_strided(np.empty(1, self.dtype), self.shape, self.strides).flags

    @property
    def flat(self) -> Flat:
        return Flat(self)

    @flat.setter
    def flat(self, value: Any) -> None:
        Flat(self)[...] = value

    T = property(lambda self: run(np.transpose, (self,), {}))
    mT = property(lambda self: run(lambda x: x.mT, (self,), {}, "mT"))
    real = property(lambda self: run(np.real, (self,), {}), lambda self, value: _set_part(self, "real", value))
    imag = property(lambda self: run(np.imag, (self,), {}), lambda self, value: _set_part(self, "imag", value))

    @property
    def device(self) -> str:
        return "cpu"

    def to_device(self, device: Any, /, *, stream: Any = None) -> Any:
        """The array itself, because ``"cpu"`` is the only device. Raises ValueError for another one."""
        if device != "cpu" or stream is not None:
            raise ValueError(f'the device of lazy arrays is "cpu", without streams, not {device!r}')
        return self

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        known = ("2021.12", "2022.12", "2023.12", "2024.12", None)
        if api_version not in known:
            raise ValueError(f"fxlite.lazy knows the array API up to 2024.12, not {api_version}")
        return Array._namespace

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    # -- operations that compute it ----------------------------------------------------------------
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """The value, which is read-only unless it is a copy."""
        value = value_of(self)
        if copy or (dtype is not None and value.dtype != dtype):
            return np.array(value, dtype)
        if self._proxy is not None:
            value = value.view()
            value.flags.writeable = False
        return value

    def item(self, *args: Any) -> Any:
        return value_of(self).item(*args)

    def tolist(self) -> Any:
        return value_of(self).tolist()

    def tobytes(self, order: Any = "C") -> bytes:
        return value_of(self).tobytes(order)

    def __contains__(self, value: Any) -> bool:
        return value_of(value) in value_of(self) if isinstance(value, Array) else (value in value_of(self))

    def __repr__(self) -> str:
        return repr(self.__array__()[()] if not self.shape else self.__array__())

    def __str__(self) -> str:
        return str(self.__array__()[()] if not self.shape else self.__array__())

    def __format__(self, spec: str) -> str:
        return format(value_of(self)[()], spec) if not self.shape else format(str(self), spec)

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    def __copy__(self, memo: Any = None) -> Any:
        return run(np.copy, (self,), {})

    __deepcopy__ = __copy__

    def __reduce__(self) -> tuple[Any, ...]:
        return Array.of, (np.array(value_of(self)),)

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> Any:
        options = {"max_version": max_version, "dl_device": dl_device, "copy": copy}
        return np.array(value_of(self)).__dlpack__(stream=stream, **options)

    def __dlpack_device__(self) -> Any:
        return value_of(self).__dlpack_device__()

    # -- operations that are recorded --------------------------------------------------------------
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        function = ufunc if method == "__call__" else getattr(ufunc, method)
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        return run(function, inputs, kwargs, name)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return run(function, args, kwargs)

    def __getitem__(self, index: Any) -> Any:
        return run(operator.getitem, (self, index), {}, "x[...]")

    def __setitem__(self, index: Any, value: Any) -> None:
        run(operator.setitem, (self, index, value), {}, "x[...] = value")

    def __getattr__(self, name: str) -> Any:
        found = getattr(np.ndarray, name, None)
        if name.startswith("__") or found is None:
            raise AttributeError(f"arrays of NumPy have no attribute or method {name!r}")
        if not callable(found):
            return getattr(self.__array__(), name)

        def method(*args: Any, **kwargs: Any) -> Any:
            return run(_method, (name, self, *args), kwargs, f".{name}")

        return method


class Flat:
    """``x.flat`` of a lazy array, its elements along one axis, for subscripts, in loops, and as an array. Reads make
    copies, and writes change ``x``."""

    def __init__(self, x: Array) -> None:
        self.base = x

    def copy(self) -> Any:
        """A copy of all elements, along one axis."""
        return self.base.flatten()

    def __len__(self) -> int:
        return int(self.base.size)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.copy())

    def __getitem__(self, index: Any) -> Any:
        return self.copy()[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        whole = self.copy()
        whole[index] = value
        self.base[...] = whole.reshape(self.base.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.copy(), dtype)


def _method(name: str, x: Any, *args: Any, **kwargs: Any) -> Any:
    return getattr(x, name)(*args, **kwargs)


def _set_part(x: Array, name: str, value: Any) -> None:
    run(setattr, (x, name, value), {}, f"x.{name} = value")


def _operator(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    return lambda self, *other: run(function, (self, *other), {}, name)


def _reflected(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    return lambda self, other: run(function, (other, self), {}, name)


def _equality(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """``==`` or ``!=``; as in NumPy, elements are also compared with values that are not numbers, to which none is
    equal."""

    def method(self: Any, other: Any) -> Any:
        if not isinstance(other, Array) and is_no_number(other):
            return run(np.full_like, (self, name == "ne"), {"dtype": np.bool_}, name)
        return run(function, (self, other), {}, name)

    return method


for _method_name in OPERATORS:
    setattr(Array, f"__{_method_name}__", _operator(getattr(operator, f"__{_method_name}__"), _method_name))
    setattr(Array, f"__r{_method_name}__", _reflected(getattr(operator, f"__{_method_name}__"), _method_name))
    setattr(Array, f"__i{_method_name}__", _operator(getattr(operator, f"__i{_method_name}__"), _method_name))
for _method_name in (*COMPARISONS, "neg", "pos", "abs", "invert"):
    _made_by = _equality if _method_name in COMPARISONS and lookup(_method_name).commutative else _operator
    setattr(Array, f"__{_method_name}__", _made_by(getattr(operator, _method_name), _method_name))
for _conversion in (bool, int, float, complex, operator.index):
    setattr(Array, f"__{_conversion.__name__}__", lambda self, to=_conversion: to(value_of(self)))
setattr(Array, "__divmod__", _operator(divmod, "divmod"))  # noqa: B010
setattr(Array, "__rdivmod__", _reflected(divmod, "divmod"))  # noqa: B010


# -- values ----------------------------------------------------------------------------------------
def value_of(array: Array) -> np.ndarray[Any, Any]:
    """The value of an array; if it is recorded, the value is only for reading."""
    if array._proxy is None:
        assert array._value is not None
        return array._value
    return RECORDER.value(array._proxy)


def has_tensors(dtype: np.dtype[Any]) -> bool:
    """Whether arrays of that dtype can be recorded."""
    try:
        found = dtypes.dtype(dtype)
    except (DTypeError, TypeError):
        return False
    return found.numpy == dtype


def _mapped(value: Any, function: Callable[[Array], Any]) -> Any:
    """``value`` with the arrays in its containers and slices replaced by ``function(array)``."""
    if isinstance(value, Array):
        return function(value)
    kind = type(value)
    if kind is tuple or kind is list:
        return kind(_mapped(v, function) for v in value)
    if kind is dict:
        return {k: _mapped(v, function) for k, v in value.items()}
    if kind is slice:
        bounds = (value.start, value.stop, value.step)
        return slice(*(operator.index(b) if isinstance(b, Array) else b for b in bounds))
    return value


def _operand(array: Array) -> Proxy:
    """The proxy for an array while a call is recorded."""
    if array._proxy is not None:
        return array._proxy
    assert array._value is not None and not array._shared
    array._proxy = RECORDER.given(plain_array(array._value, "an array"))
    array._value = None
    return array._proxy


def run(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], name: str = "") -> Any:
    """Make a call with lazy arrays among its arguments: it is recorded, or computed by NumPy."""
    with RECORDER.lock:
        arrays: list[Array] = []
        _mapped((args, kwargs), arrays.append)
        reason = ""
        opaque = next((a for a in arrays if a._proxy is None and not has_tensors(a.dtype)), None)
        if opaque is not None:
            reason = f"no tensor is {opaque.dtype}"
        elif any(a._shared for a in arrays):  # it may be written into
            reason = "on views that NumPy made"
        if not reason:
            RECORDER.window()
            known = {id(_operand(array)): array for array in arrays}
            given, named = _mapped((args, kwargs), _operand)
            token = active_tracer.set(RECORDER.tracer)
            try:
                return _wrapped(function(*given, **named), known)
            except _REFUSED as error:
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            finally:
                active_tracer.reset(token)
        return by_numpy(function, args, kwargs, name or _name(function), reason)


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", function))


def _wrapped(result: Any, known: dict[int, Array]) -> Any:
    """The result of a recorded call, with arrays in place of proxies."""
    if isinstance(result, Proxy):
        found = known.get(id(result))
        return Array.of(result) if found is None else found
    if isinstance(result, Masked):
        raise result.refusal("x[mask]")
    if isinstance(result, np.ndarray):
        return Array.of(result)
    if isinstance(result, (tuple, list)):
        parts = [_wrapped(part, known) for part in result]
        if hasattr(result, "_fields"):
            return type(result)(*parts)
        return type(result)(parts)
    return result


# -- calls that NumPy computes at once -------------------------------------------------------------
def by_numpy(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], name: str = "", reason: str = ""
) -> Any:
    """Make a call that is not recorded. Arrays into which it writes get the written values."""
    with RECORDER.lock:
        arrays: list[Array] = []
        _mapped((args, kwargs), arrays.append)
        try:
            result, values = _call(function, args, kwargs, writes=False)
        except ValueError as error:
            if "read-only" not in str(error) and "WRITEABLE" not in str(error):
                raise
            result, values = _call(function, args, kwargs, writes=True)
        shared = [
            array
            for array in arrays
            for value in [values[id(array)]]
            if any(r is not value and np.may_share_memory(r, value) for r in _arrays_in(result))
        ]
        if any(a._proxy is not None for a in shared):
            for array in shared:
                _pin(array)
            result, values = _call(function, args, kwargs, writes=False)
        for array in shared:
            array._shared = True
        if arrays:
            RECORDER.fallbacks[name or _name(function), reason] += 1
        own = {id(value): array for array in arrays for value in [values[id(array)]]}
        return _made(result, own, [values[id(a)] for a in shared])


def _call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], writes: bool
) -> tuple[Any, dict[int, np.ndarray[Any, Any]]]:
    values: dict[int, np.ndarray[Any, Any]] = {}
    copied: list[tuple[Array, np.ndarray[Any, Any]]] = []

    def value(array: Array) -> np.ndarray[Any, Any]:
        found = values.get(id(array))
        if found is None:
            if array._proxy is None:
                found = value_of(array)
            elif writes:
                found = np.array(value_of(array))
                copied.append((array, found))
            else:
                found = array.__array__()
            values[id(array)] = found
        return found

    given, named = _mapped((args, kwargs), value)
    result = function(*given, **named)
    for array, now in copied:
        if now.shape != array.shape or now.tobytes() != value_of(array).tobytes():
            _write_back(array, now)
    return result, values


def _write_back(array: Array, value: np.ndarray[Any, Any]) -> None:
    """Give an array, and all arrays that share its memory, the values that NumPy has written into a copy of it."""
    token = active_tracer.set(RECORDER.tracer)
    try:
        _operand(array)[...] = RECORDER.given(value)
    finally:
        active_tracer.reset(token)


def _arrays_in(result: Any) -> Iterator[np.ndarray[Any, Any]]:
    if isinstance(result, np.ndarray):
        yield result
    elif isinstance(result, (tuple, list)):
        for part in result:
            yield from _arrays_in(part)


def _made(result: Any, own: dict[int, Array], shared: list[np.ndarray[Any, Any]]) -> Any:
    if isinstance(result, np.ndarray):
        if id(result) in own:
            return own[id(result)]
        is_view = any(np.may_share_memory(result, value) for value in shared)
        is_lent = result.base is not None or not result.flags.writeable
        is_opaque = not has_tensors(result.dtype)
        if is_lent and not is_view and not is_opaque:
            result = np.array(result)
        return Array.of(result, shared=is_view or is_opaque)
    if type(result) is tuple or type(result) is list or hasattr(result, "_fields"):
        parts = [_made(part, own, shared) for part in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return result


def _pin(array: Array) -> None:
    """Turn an array, and all arrays that share its memory, into NumPy arrays from now on, because there is a view of
    it that the recorder does not know."""
    proxy = array._proxy
    if proxy is None:
        return
    root = None if proxy._view is None else root_of(proxy._view)
    if root is None:
        root = view_of(proxy)
    tree = [
        other
        for other in RECORDER.arrays()
        for p in [other._proxy]
        if p is not None and (p is proxy or (p._view is not None and root_of(p._view) is root))
    ]
    whole = _laid_out(root)

    def memory(view: View | None) -> Any:
        if view is None or view.parent is None:
            return whole
        if view.op is None:
            return np.array(RECORDER.value(RECORDER.tracer.proxy(view.node)))
        attributes = {
            name: int(RECORDER.value(RECORDER.tracer.proxy(v))) if isinstance(v, Node) else v
            for name, v in view.attributes.items()
        }
        # a row at a computed position, which NumPy's take would copy
        op = lookup("select") if view.op.name == "take" else view.op
        return op.evaluate(op.bind((memory(view.parent),), attributes))

    for other in tree:
        assert other._proxy is not None
        other._value = np.asarray(memory(other._proxy._view))
        other._shared = True
    for other in tree:
        other._proxy = None


def _laid_out(root: View) -> np.ndarray[Any, Any]:
    """A copy of the contents of a memory, with the layout that it has in NumPy."""
    tracer = RECORDER.tracer
    value = RECORDER.value(tracer.proxy(root.node))
    proxy = tracer.proxy(root.node)
    proxy._view = root
    layout = layout_of(proxy)
    if layout is None:
        raise tracer.error(
            f"the values that share memory with {root.node.name} depends on its layout, which is not known",
            "copy it first: y = y.copy()",
            root.node,
        )
    order = sorted(range(value.ndim), key=lambda axis: -abs(int(layout.strides[axis])))
    made = np.empty([value.shape[axis] for axis in order], value.dtype)
    made = made.transpose([order.index(axis) for axis in range(value.ndim)])
    made[...] = value
    return made


def constant(value: np.ndarray[Any, Any]) -> Any:
    """An array that a NumPy function made without array arguments; if all its elements are equal, it is recorded."""
    if value.size > 1 and has_tensors(value.dtype):
        first = value.flat[0]
        if np.all(value == first) and str(first) != "-0.0":
            with RECORDER.lock:
                RECORDER.window()
                op = lookup("full")
                kind = dtypes.dtype(value.dtype)
                bound = op.bind((value.shape, first.item(), kind), {})
                return Array.of(RECORDER.tracer.record(op, bound))
    return Array.of(value, shared=not has_tensors(value.dtype))
