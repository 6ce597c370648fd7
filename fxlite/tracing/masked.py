"""``x[mask]`` for a mask that is computed: how many elements it selects is known when the program
runs only, but what is done to each of them, to all of them together, or to where they stood, is not
a question of their number.

In: a traced value and a mask of its first axes. Out: a :class:`Masked` value, which ufuncs and
operators compute for all elements of the whole array; its reductions are those of ``where``; and
``y[mask] = ...`` under the same mask writes it back by ``np.where``. Everything else is an error
that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.errors import TraceError
from fxlite.ops.op import lookup
from fxlite.types import shapes

if TYPE_CHECKING:
    from fxlite.graph.graph import Node
    from fxlite.tracing.proxy import Proxy

_REDUCTIONS = frozenset(
    (np.sum, np.prod, np.mean, np.max, np.min, np.amax, np.amin, np.any, np.all, np.std, np.var, np.count_nonzero)
)
_ELEMENTWISE = frozenset(
    (np.where, np.clip, np.round, np.nan_to_num, np.real, np.isclose, np.zeros_like, np.ones_like, np.full_like)
)


class Masked:
    """The elements of ``values`` where ``mask``, of its first axes, holds."""

    __slots__ = ("mask", "values")
    __array_priority__ = 2000.0

    def __init__(self, values: Proxy, mask: Proxy) -> None:
        """What both hold now: later writes do not change what was selected."""
        tracer = values.tracer
        self.values, self.mask = tracer.proxy(values.node), tracer.proxy(mask.node)

    # -- what is known -----------------------------------------------------------------------
    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    @property
    def ndim(self) -> int:
        return self.values.ndim - self.mask.ndim + 1

    @property
    def size(self) -> Any:
        """How many elements there are: a traced number."""
        rest = shapes.product(self.values.type.shape[self.mask.ndim :])
        return lookup("mul")(self.mask.sum(), shapes.for_user(rest))

    def refusal(self, what: str) -> TraceError:
        """The error for what would need the number of elements."""
        tracer = self.values.tracer  # of a result nobody runs any more: where it was selected
        place = None if tracer.origin is None else self.mask.node.loc
        return tracer.error(
            f"{what}: a boolean mask selects a number of elements that is not known before the program runs",
            "keep the shape: np.where(mask, x, other), or (x * mask).sum() for a masked sum",
            self.mask.node,
            location=place,
        )

    # -- each element ------------------------------------------------------------------------
    def _applied(self, function: Callable[..., Any], operands: tuple[Any, ...], **kw: Any) -> Any:
        """``function`` of whole arrays, of which the same elements are selected."""
        given = []
        for operand in operands:
            if isinstance(operand, Masked):
                if not same_mask(self.mask.node, operand.mask.node):
                    raise self.refusal("values selected by two masks meet")
                operand = operand.values
            elif np.ndim(operand) > self.ndim - 1:
                raise self.refusal("an array beside x[mask]")
            given.append(operand)
        result = function(*given, **kw)
        if isinstance(result, tuple):
            return tuple(Masked(r, self.mask) for r in result)
        return Masked(result, self.mask)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__" or kwargs.get("out") is not None or "where" in kwargs:
            raise self.refusal(f"np.{ufunc.__name__}.{method}")
        return self._applied(ufunc, inputs, **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function in _REDUCTIONS and args and args[0] is self:
            return self._reduced(function, *args[1:], **kwargs)
        if function in _ELEMENTWISE:
            return self._applied(function, args, **kwargs)
        raise self.refusal(f"np.{function.__name__}")

    def __fx_create_arg__(self, tracer: Any) -> Any:
        raise self.refusal("the elements of a mask as a result, or beside other arrays")

    def astype(self, dtype: Any, **options: Any) -> Masked:
        return Masked(self.values.astype(dtype), self.mask)

    def copy(self) -> Masked:
        return Masked(self.values.copy(), self.mask)

    def clip(self, *bounds: Any, **options: Any) -> Any:
        return self._applied(np.clip, (self, *bounds), **options)

    def round(self, decimals: int = 0) -> Any:
        return self._applied(np.round, (self,), decimals=decimals)

    # -- all of them -------------------------------------------------------------------------
    def _condition(self) -> Any:
        rest = (1,) * (self.ndim - 1)
        return lookup("reshape")(self.mask, (*self.mask.type.shape, *rest)) if rest else self.mask

    def _axes(self, axis: Any, what: str) -> Any:
        """The axes of the whole array that are reduced."""
        if axis is None or (self.ndim == 1 and axis in (0, -1)):
            return None
        if axis == 0:
            return tuple(range(self.mask.ndim))
        raise self.refusal(f"{what} along axis {axis}")

    def _reduced(self, function: Callable[..., Any], axis: Any = None, dtype: Any = None, **options: Any) -> Any:
        name = function.__name__.removeprefix("a") if function in (np.amax, np.amin) else (function.__name__)
        axes = self._axes(axis, f"np.{name}")
        if options.pop("keepdims", False) or options.pop("out", None) is not None:
            raise self.refusal(f"np.{name} with keepdims= or out=")
        where, values = self._condition(), self.values
        if name == "count_nonzero":
            return np.sum(np.not_equal(values, 0), axis=axes, where=where)
        if function in (np.max, np.min, np.amax, np.amin):
            return self._extreme(name, axes, where, **options)
        if dtype is not None:
            options["dtype"] = dtype
        return function(values, axis=axes, where=where, **options)

    def _extreme(self, name: str, axes: Any, where: Any, initial: Any = None) -> Any:
        """The largest element; of none an error when the program runs, as in NumPy."""
        kind = self.values.type.dtype
        if kind.is_bool:
            other: Any = name == "min"
        elif kind.is_float:
            other = -np.inf if name == "max" else np.inf
        else:
            info = np.iinfo(kind.numpy)
            other = int(info.min if name == "max" else info.max)
        if initial is not None:
            return getattr(np, name)(self.values, axis=axes, where=where, initial=initial)
        found = getattr(np, name)(self.values, axis=axes, where=where, initial=other)
        none = lookup("cast")(lookup("logical_not")(self.mask.any()), "i64")
        lost = lookup("take")(np.zeros(1, np.int64), none, axis=0)
        return lookup("where")(lost == 0, found, other)

    def sum(self, axis: Any = None, dtype: Any = None, **options: Any) -> Any:
        return self._reduced(np.sum, axis, dtype, **options)

    def prod(self, axis: Any = None, dtype: Any = None, **options: Any) -> Any:
        return self._reduced(np.prod, axis, dtype, **options)

    def mean(self, axis: Any = None, dtype: Any = None, **options: Any) -> Any:
        return self._reduced(np.mean, axis, dtype, **options)

    def std(self, axis: Any = None, dtype: Any = None, **options: Any) -> Any:
        return self._reduced(np.std, axis, dtype, **options)

    def var(self, axis: Any = None, dtype: Any = None, **options: Any) -> Any:
        return self._reduced(np.var, axis, dtype, **options)

    def max(self, axis: Any = None, **options: Any) -> Any:
        return self._reduced(np.max, axis, **options)

    def min(self, axis: Any = None, **options: Any) -> Any:
        return self._reduced(np.min, axis, **options)

    def any(self, axis: Any = None, **options: Any) -> Any:
        return self._reduced(np.any, axis, **options)

    def all(self, axis: Any = None, **options: Any) -> Any:
        return self._reduced(np.all, axis, **options)

    # -- what needs their number -------------------------------------------------------------
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self.refusal(f".{name}")

    def __matmul__(self, other: Any) -> Any:
        raise self.refusal("a matrix product")

    __rmatmul__ = __matmul__

    def __len__(self) -> int:
        raise self.refusal("len()")

    def __iter__(self) -> Any:
        raise self.refusal("a loop")

    def __bool__(self) -> bool:
        raise self.refusal("if, while, and, or")

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise self.refusal("np.asarray")

    def __getitem__(self, index: Any) -> Any:
        raise self.refusal("a part of x[mask]")

    def __setitem__(self, index: Any, value: Any) -> None:
        raise self.refusal("a write into x[mask], which is a copy")


#: Python's operators and the ufuncs that they are.
_BINARY = """
add=add sub=subtract mul=multiply truediv=true_divide floordiv=floor_divide mod=remainder pow=power
and=bitwise_and or=bitwise_or xor=bitwise_xor lshift=left_shift rshift=right_shift
"""
_COMPARED = "lt=less le=less_equal gt=greater ge=greater_equal eq=equal ne=not_equal"
_UNARY = "neg=negative abs=absolute invert=invert"


def _operators(text: str) -> Iterator[tuple[str, Any]]:
    for pair in text.split():
        name, _, ufunc = pair.partition("=")
        yield name, getattr(np, ufunc)


def _operator(ufunc: np.ufunc, reflected: bool = False) -> Callable[[Any, Any], Any]:
    def method(self: Masked, other: Any) -> Any:
        operands = (other, self) if reflected else (self, other)
        return self.__array_ufunc__(ufunc, "__call__", *operands)

    return method


for _name, _ufunc in _operators(_BINARY):
    setattr(Masked, f"__{_name}__", _operator(_ufunc))
    setattr(Masked, f"__r{_name}__", _operator(_ufunc, reflected=True))
for _name, _ufunc in _operators(_COMPARED):
    setattr(Masked, f"__{_name}__", _operator(_ufunc))
for _name, _ufunc in _operators(_UNARY):
    setattr(Masked, f"__{_name}__", lambda self, _ufunc=_ufunc: _ufunc(self))
Masked.__hash__ = None  # type: ignore[assignment]


#: Calls above a mask that are looked at, to see whether two masks are the same.
_DEEPEST = 8


def same_mask(a: Node, b: Node, depth: int = _DEEPEST) -> bool:
    """Whether two nodes hold the same: one node, or the same call of the same."""
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


def is_masked(value: Any) -> bool:
    """Whether a value is ``x[mask]``."""
    return isinstance(value, Masked)
