"""Proxy: what a traced program computes with. It looks like an ndarray and records nodes.

Operators, ndarray methods, ufuncs and NumPy functions all end in the same ops
(:mod:`fxlite.numpy_api` holds the table). What needs a value that does not exist at trace time
(``if x > 0``, ``float(x)``, ``np.asarray(x)``) raises a TraceError that says what to write instead.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite import shapes
from fxlite.errors import TraceError
from fxlite.types import TensorType

if TYPE_CHECKING:
    from fxlite.graph import Node
    from fxlite.op import Op
    from fxlite.tracer import Tracer


class Proxy:
    """Stands for the value of ``node`` while a program is traced."""

    __slots__ = ("__weakref__", "base", "node", "tracer", "views")
    __array_priority__ = 1000.0

    def __init__(self, node: Node, tracer: Tracer) -> None:
        self.node = node
        self.tracer = tracer
        self.base: Proxy | None = None  # the proxy this one may share memory with, in eager NumPy
        self.views: list[weakref.ref[Proxy]] = []

    # Called by ops: record a call that has this proxy among its arguments.
    def __fx_record__(self, op: Op, bound: dict[str, Any]) -> Any:
        return self.tracer.record(op, bound)

    # -- what an ndarray knows ---------------------------------------------------------------
    @property
    def type(self) -> TensorType:
        """The value's type. Raises TraceError in a trace without types."""
        if not isinstance(self.node.type, TensorType):
            raise self.tracer.error(
                f"the shape or dtype of {self.node.name} is needed, but this trace has no types; "
                f'give the input types: fx.symbolic_trace(model, x="f32[B,3,224,224]")'
            )
        return self.node.type

    @property
    def shape(self) -> tuple[Any, ...]:
        """Ints, and :class:`~fxlite.shapes.NamedDim` for named dims."""
        return tuple(shapes.for_user(d) for d in self.type.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.type.dtype.numpy

    @property
    def ndim(self) -> int:
        return self.type.rank

    @property
    def size(self) -> Any:
        return shapes.for_user(self.type.size)

    @property
    def T(self) -> Any:
        return _api().transpose(self)

    @property
    def mT(self) -> Any:
        return _api().swapaxes(self, -1, -2)

    def __len__(self) -> int:
        if not self.type.shape:
            raise TypeError("len() of a rank-0 value")
        return int(shapes.for_user(self.type.shape[0]))  # a named dim raises its own TraceError

    def __pos__(self) -> Proxy:
        return self

    def __iter__(self) -> Iterator[Any]:
        if not isinstance(self.node.type, TensorType):
            return self.tracer.iter(self)  # type: ignore[no-any-return]
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> Any:
        return _api().subscript(self, index)

    # -- what needs a value ------------------------------------------------------------------
    def __bool__(self) -> bool:
        return self.tracer.to_bool(self)

    def _no_value(self, what: str, instead: str) -> TraceError:
        return self.tracer.error(
            f"{what} needs the value of {self.node.name}, which does not exist while tracing",
            instead,
            self.node,
        )

    def __float__(self) -> float:
        raise self._no_value("float()", "keep it an array, or compute the number before tracing")

    def __int__(self) -> int:
        raise self._no_value("int()", "keep it an array, or compute the number before tracing")

    def __index__(self) -> int:
        raise self._no_value("indexing or range()", "use np.take for run-time indices")

    def item(self, *args: Any) -> Any:
        raise self._no_value(".item()", "keep it an array, or compute the number before tracing")

    def tolist(self) -> Any:
        raise self._no_value(".tolist()", "keep it an array, or compute the list before tracing")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise self._no_value(
            "np.asarray, np.array or the index of a plain array",
            "use the value as it is; for array[x] or np.take(array, x) write fx.ops.take(array, x)",
        )

    def __contains__(self, value: Any) -> bool:
        raise self._no_value("'in'", "use (x == value).any()")

    def __hash__(self) -> int:
        return id(self)

    # -- writes ------------------------------------------------------------------------------
    def __setitem__(self, index: Any, value: Any) -> None:
        raise self.tracer.error(
            f"writing into {self.node.name} in place cannot be traced",
            "build the new value: np.where(mask, value, x), np.concatenate([...]) or "
            "fx.ops.scatter_add",
            self.node,
        )

    def _in_place(self, symbol: str, operation: Callable[[Any, Any], Any], other: Any) -> Any:
        """``y += other``: NumPy writes into y's memory. Traced as a new value for this very proxy,
        which is the same thing as long as nobody else sees that memory; refused otherwise."""
        node = self.node
        alias = self.base is not None or any(view() is not None for view in self.views)
        if node.op != "call_function" or alias:
            whose = "shares memory with another value" if alias else "belongs to the caller"
            raise self.tracer.error(
                f"'{symbol}=' writes into {node.name}, which {whose}",
                f"write y = y {symbol} ..., which makes a new value",
                node,
            )
        result = operation(self, other)
        if isinstance(node.type, TensorType) and result.node.type != node.type:
            raise self.tracer.error(
                f"'{symbol}=' would change {node.name} from {node.type} to {result.node.type}, "
                "which "
                f"an in-place operation cannot",
                f"write y = y {symbol} ...",
                node,
            )
        self.node = result.node
        return self

    def made_view_of(self, base: Proxy) -> None:
        """Note that this value shares memory with ``base`` when the program runs on arrays."""
        self.base = base
        base.views.append(weakref.ref(self))

    # -- dispatch ----------------------------------------------------------------------------
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return _api().call_ufunc(self.tracer, ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _api().call_function(self.tracer, function, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        method = _api().METHODS.get(name)
        if method is None:
            if name.startswith("__"):
                raise AttributeError(name)
            raise self.tracer.error(
                f"a traced value has no attribute or method {name!r}",
                f"known methods: {', '.join(sorted(_api().METHODS))}",
                self.node,
                AttributeError,
            )
        return lambda *args, **kwargs: method(self, *args, **kwargs)

    def __repr__(self) -> str:
        return f"Proxy({self.node.name}: {self.node.type})"


def _api() -> Any:
    from fxlite import numpy_api

    return numpy_api


def _operator(name: str, reflected: bool = False) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        if not _api().is_operand(other):
            return NotImplemented
        op = _api().ops_by_name(name)
        return op(other, self) if reflected else op(self, other)

    return method


def _in_place_operator(symbol: str, name: str) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        return self._in_place(symbol, _api().ops_by_name(name), other)

    return method


_BINARY = {
    "add": ("+", "add"), "sub": ("-", "sub"), "mul": ("*", "mul"), "truediv": ("/", "div"),
    "floordiv": ("//", "floor_divide"), "mod": ("%", "remainder"), "pow": ("**", "pow"),
    "matmul": ("@", "matmul"), "and": ("&", "bitwise_and"), "or": ("|", "bitwise_or"),
    "xor": ("^", "bitwise_xor"), "lshift": ("<<", "left_shift"), "rshift": (">>", "right_shift"),
}  # fmt: skip
for _name, (_symbol, _target) in _BINARY.items():
    setattr(Proxy, f"__{_name}__", _operator(_target))
    setattr(Proxy, f"__r{_name}__", _operator(_target, reflected=True))
    setattr(Proxy, f"__i{_name}__", _in_place_operator(_symbol, _target))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Proxy, f"__{_name}__", _operator(_name))
for _name, _target in (("neg", "neg"), ("abs", "abs"), ("invert", "bitwise_not")):
    setattr(Proxy, f"__{_name}__", lambda self, _target=_target: _api().ops_by_name(_target)(self))
