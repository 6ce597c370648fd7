"""``fx.expr``: the language in which the body of an op computes one element of its result.

In: elements of operands and positions, in a function given to ``OP.scalar`` or ``OP.body``. Out: the
scalar expression (:mod:`fxlite.scalar.expr`) from which every back end generates loops.

Operators and functions are the element-wise ops of fxlite applied to single numbers, so dtypes are
promoted and half types rounded as NumPy does it for arrays. NumPy's own functions work, too
(``np.exp(x)``). For arrays or traced values, the functions in this module call the ops themselves, so a
function that computes one element can also compute all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, did_you_mean, number_of
from fxlite.ops.op import REGISTRY, Op, lookup
from fxlite.scalar import expr
from fxlite.scalar.expr import ConstReader, Expr, Reader
from fxlite.scalar.index import Index, Value
from fxlite.types import dtypes
from fxlite.types.dtypes import DType
from fxlite.types.shapes import as_tuple

_FUNCTIONS = (
    "abs acos arccos arcsin arctan arctan2 asin atan atan2 cast ceil clip copysign cos cosh equal "
    "erf exp expm1 floor floor_divide greater greater_equal hypot isfinite isinf isnan less "
    "less_equal log log1p log2 logaddexp logical_and logical_not logical_or logical_xor maximum "
    "minimum not_equal power reciprocal relu remainder round rsqrt sigmoid sign sin sinh sqrt "
    "square tan tanh trunc where"
).split()
_REDUCTIONS = ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin")

__all__ = [*sorted((*_FUNCTIONS, *_REDUCTIONS)), "Operand", "Position", "Scalar"]


def __dir__() -> list[str]:
    return __all__


def _operator(name: str, turned: bool = False) -> Any:
    def apply(self: Scalar, other: Any) -> Any:
        if not _is_number(other):
            return NotImplemented
        return _apply(lookup(name), (other, self) if turned else (self, other))

    return apply


class Scalar:
    """One number: an element of an operand, or a number computed from elements."""

    __slots__ = ("expr",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Expr) -> None:
        self.expr = value

    @property
    def dtype(self) -> DType:
        """The dtype in which NumPy would compute it."""
        return self.expr.dtype

    def astype(self, dtype: Any) -> Scalar:
        """The number converted as by NumPy's ``astype``."""
        return _apply(lookup("cast"), (self,), dtype=dtypes.dtype(dtype))

    __add__, __radd__ = _operator("add"), _operator("add", True)
    __sub__, __rsub__ = _operator("sub"), _operator("sub", True)
    __mul__, __rmul__ = _operator("mul"), _operator("mul", True)
    __truediv__, __rtruediv__ = _operator("div"), _operator("div", True)
    __floordiv__, __rfloordiv__ = _operator("floor_divide"), _operator("floor_divide", True)
    __mod__, __rmod__ = _operator("remainder"), _operator("remainder", True)
    __pow__, __rpow__ = _operator("pow"), _operator("pow", True)
    __and__, __rand__ = _operator("bitwise_and"), _operator("bitwise_and", True)
    __or__, __ror__ = _operator("bitwise_or"), _operator("bitwise_or", True)
    __xor__, __rxor__ = _operator("bitwise_xor"), _operator("bitwise_xor", True)
    __lshift__, __rshift__ = _operator("left_shift"), _operator("right_shift")
    __lt__, __le__, __gt__, __ge__ = map(_operator, ("lt", "le", "gt", "ge"))
    __eq__, __ne__ = _operator("eq"), _operator("ne")

    def __neg__(self) -> Scalar:
        return _apply(lookup("neg"), (self,))

    def __pos__(self) -> Scalar:
        return self

    def __abs__(self) -> Scalar:
        return _apply(lookup("abs"), (self,))

    def __invert__(self) -> Scalar:
        return _apply(lookup("bitwise_not"), (self,))

    def __bool__(self) -> bool:
        raise ArgumentError(
            "if, while, and, or, not need the value of an element, which a body does not know; use "
            "fx.expr.where(condition, a, b), & and |"
        )

    def _no_value(self) -> Any:
        raise ArgumentError(
            "a body says how an element is computed and does not know its value; use the functions "
            "of fx.expr or NumPy in place of Python's"
        )

    __float__ = __int__ = __index__ = __iter__ = __len__ = __complex__ = _no_value

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return self._no_value()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        found = next((op for op in REGISTRY.values() if op.ufunc is ufunc), None)
        if found is None or method != "__call__" or kwargs:
            name = f"np.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")
            raise ArgumentError(
                f"{name}{' with these options' if kwargs else ''} cannot be used in a body; "
                f"those that can: {', '.join(_FUNCTIONS)}"
            )
        return _apply(found, inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function not in (np.where, np.clip):
            raise ArgumentError(
                f"np.{function.__name__} cannot be used in a body, where x is one number; there are "
                f"{', '.join(_FUNCTIONS)}"
            )
        return _MADE[function.__name__](*args, **kwargs)

    def __repr__(self) -> str:
        return f"<{self.dtype.name} element>"


def _is_number(value: Any) -> bool:
    return isinstance(value, (Scalar, *dtypes.NUMBERS, np.generic)) or (
        isinstance(value, np.ndarray) and value.ndim == 0
    )


class Position(Scalar):
    """A position along an axis, or a size: an integer from loops or shapes. Positions and integers combine
    to positions (by ``+ - * // %``), with which operands can be read. In other arithmetic they are i64
    numbers."""

    __slots__ = ("index",)

    def __init__(self, index: Index) -> None:
        super().__init__(expr.index_value(index))
        self.index = index

    def __neg__(self) -> Scalar:
        return Position(-self.index)

    def __repr__(self) -> str:
        return f"<position {self.index}>"


class _Computed(Scalar):
    """A position that is computed in loops: a quotient or remainder of a number that may be negative."""

    __slots__ = ()


def _of_positions(name: str, compute: Callable[[Index, Index], Any], turned: bool = False) -> None:
    """Define an operator on positions and integers whose result is a position or a condition."""
    plain = getattr(Scalar, name)

    def apply(self: Position, other: Any) -> Any:
        index = _index(other)
        if index is None:
            return _computed(plain(self, other), other)
        a, b = (index, self.index) if turned else (self.index, index)
        if name.endswith(("div__", "mod__")) and not (a.is_nonnegative() and b.is_nonnegative()):
            return _computed(plain(self, other))  # indices do not divide negative numbers
        try:
            found = compute(a, b)
        except ZeroDivisionError:
            raise ArgumentError(f"{self!r} is divided by 0") from None
        return Position(found) if isinstance(found, Index) else Scalar(found)

    def apply_to_computed(self: _Computed, other: Any) -> Any:
        return _computed(plain(self, other), other)

    setattr(Position, name, apply)
    setattr(_Computed, name, apply_to_computed)


def _computed(value: Any, other: Any = 0) -> Any:
    """The number ``value``, computed from a position and ``other``, as a position if both are integers from
    positions."""
    is_place = isinstance(other, _Computed) or _index(other) is not None
    is_number = isinstance(value, Scalar) and value.dtype.is_integer
    return _Computed(value.expr) if is_place and is_number else value


def _not(condition: Expr) -> Expr:
    if isinstance(condition, expr.Const):
        return expr.FALSE if condition.value else expr.TRUE
    return expr.apply("logical_not", condition)


for _name, _compute in {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
}.items():
    _of_positions(f"__{_name}__", _compute)
    _of_positions(f"__r{_name}__", _compute, turned=True)
_of_positions("__lt__", expr.less)
_of_positions("__gt__", lambda a, b: expr.less(b, a))
_of_positions("__le__", lambda a, b: _not(expr.less(b, a)))
_of_positions("__ge__", lambda a, b: _not(expr.less(a, b)))
_of_positions("__eq__", expr.equals)
_of_positions("__ne__", lambda a, b: _not(expr.equals(a, b)))


def _index(value: Any) -> Index | None:
    """A position or integer as an index; None for other values."""
    if isinstance(value, Position):
        return value.index
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return Index.of(int(value))
    return None


def position(index: Index) -> Any:
    """An index as bodies see it: a plain int if it is known, else a Position."""
    constant = index.constant
    return Position(index) if constant is None else constant


class Operand:
    """An operand of a body: ``x[i, j]`` is an element, and ``x.shape`` holds the sizes.

    A position outside of the operand reads 0, or the number given to :meth:`get`. If a computed number is
    used as an index, it counts from the end if negative, and the call of the op raises IndexError if it is
    out of range."""

    def __init__(self, reader: Reader, name: str) -> None:
        self._reader = reader
        self._name = name

    @property
    def shape(self) -> tuple[Any, ...]:
        """The sizes: ints, and positions for named dims."""
        return tuple(map(position, self._reader.shape))

    @property
    def ndim(self) -> int:
        return len(self._reader.shape)

    @property
    def dtype(self) -> DType:
        return self._reader.dtype

    def __getitem__(self, index: Any) -> Scalar:
        return self.get(index)

    __iter__ = None  # because of __getitem__, a loop over it would otherwise never end

    def get(self, index: Any, outside: Any = 0) -> Scalar:
        """An element, or the number ``outside`` if the position is outside of the operand. Raises ArgumentError
        for an index that does not have one integer for each axis."""
        given = index if isinstance(index, tuple) else (index,)
        shape = self._reader.shape
        if len(given) != len(shape):
            raise ArgumentError(
                f"{self._name} has {number_of(len(shape), 'axis', 'axes')}, "
                f"and is read with {number_of(len(given), 'position')}"
            )
        inside: Expr = expr.TRUE
        checked: Expr = expr.TRUE
        places: list[Index] = []
        for part, size in zip(given, shape, strict=True):
            place = _index(part)
            if isinstance(part, _Computed):
                value, extent = part.expr, expr.index_value(size)
                low = expr.apply("ge", value, expr.const(0, dtypes.int64))
                holds = expr.both(low, expr.apply("lt", value, extent))
                whole = expr.CheckedIndex(dtypes.int64, value, size, self._name, holds)
                place, inside = Index.of(Value(whole)), expr.both(inside, holds)
            elif place is None:
                place, holds = self._computed(part, size)
                checked = expr.both(checked, holds)
            else:
                if place.constant is not None and place.constant < 0:
                    place = place + size
                inside = expr.both(inside, expr.within(place, size))
            places.append(place)
        fill = outside.expr if isinstance(outside, Scalar) else outside
        found = expr.read_guarded(self._reader, tuple(places), inside, fill)
        return Scalar(found if checked is expr.TRUE else expr.add_guard(found, checked))

    def _computed(self, part: Any, size: Index) -> tuple[Index, Expr]:
        if not isinstance(part, Scalar) or not part.dtype.is_integer:
            raise ArgumentError(f"{self._name} is read with {part!r}, but an integer or a position is needed")
        whole = expr.cast(part.expr, dtypes.int64)
        checked = expr.CheckedIndex(dtypes.int64, whole, size, self._name)
        holds = expr.apply("ge", checked, expr.const(0, dtypes.int64))
        return Index.of(Value(checked)), holds

    def __repr__(self) -> str:
        return f"<operand {self._name}: {self.dtype.name}, {number_of(self.ndim, 'axis', 'axes')}>"


class _Number:
    """Reads one number as an operand of rank 0, as ops expect it."""

    shape: tuple[Index, ...] = ()

    def __init__(self, value: Expr) -> None:
        self.value = value
        self.dtype = value.dtype

    def __getitem__(self, index: Any) -> Expr:
        return self.value

    __iter__ = None  # because of __getitem__, a loop over it would otherwise never end


def _reader(value: Any) -> Reader:
    if isinstance(value, Scalar):
        return _Number(value.expr)
    if isinstance(value, np.ndarray) and value.ndim:
        raise ArgumentError(
            f"a body computes with numbers, but it uses an array of shape {value.shape}; make it an operand of the op"
        )
    if isinstance(value, (np.generic, np.ndarray)):  # it has a dtype, as in NumPy
        return _Number(expr.const(value.item(), dtypes.dtype(value.dtype)))
    return ConstReader(value)


def _apply(op: Op, operands: Sequence[Any], **attributes: Any) -> Scalar:
    """An element-wise op applied to single numbers: its body, rounded to the dtype of its result."""
    target, bound = op.canonicalize(op.bind(operands, attributes))
    types = target.map_tensors(_type_of_number, bound)
    target.result_type(types)  # raises an error for dtypes that do not fit
    return Scalar(expr.rounded(target.element((), target.map_tensors(_reader, bound))))


def _type_of_number(value: Any) -> Any:
    from fxlite.types.tensor_type import TensorType

    return (
        value
        if isinstance(value, dtypes.NUMBERS) and not isinstance(value, np.generic)
        else TensorType((), dtypes.dtype(value.dtype))
    )


def _function(name: str) -> Callable[..., Any]:
    op = lookup(name)

    def call(*args: Any, **kwargs: Any) -> Any:
        if any(isinstance(v, Scalar) for v in (*args, *kwargs.values())):
            return _apply(op, args, **kwargs)
        return op(*args, **kwargs)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"``fx.ops.{op.name}`` of one number. {op.__doc__}"
    return call


def _reduction(kind: str) -> Callable[..., Scalar]:
    def reduce(sizes: Any, body: Callable[..., Any]) -> Scalar:
        extents = []
        for size in as_tuple(sizes):
            extent = _index(size)
            if extent is None:
                raise ArgumentError(f"fx.expr.{kind} runs over sizes, not over {size!r}")
            extents.append(extent)

        def inner(*places: Index) -> Expr:
            return element(body(*map(Position, places)))

        return Scalar(expr.rounded(expr.reduce(kind, extents, inner)))

    reduce.__name__ = reduce.__qualname__ = kind
    reduce.__doc__ = (
        f"``{kind}`` of ``body(k, ...)`` for all positions below ``sizes``: a size, or several, "
        f"each of which ``body`` takes a position of. The dtype is that of ``body``"
        f"{', for argmax and argmin i64' if kind.startswith('arg') else ''}."
    )
    return reduce


def element(value: Any) -> Expr:
    """The return value of a body as an expression. Raises ArgumentError for anything but a number."""
    if isinstance(value, Scalar):
        return value.expr
    if isinstance(value, (*dtypes.NUMBERS, np.generic)):
        return expr.const(
            value.item() if isinstance(value, np.generic) else value, dtypes.dtype(np.asarray(value).dtype)
        )
    raise ArgumentError(f"a body gives one number, not {type(value).__name__}: {value!r}"[:200])


#: The functions by name. (As names in this file, some would hide Python's own.)
_MADE = {name: _function(name) for name in _FUNCTIONS}
_MADE |= {name: _reduction(name) for name in _REDUCTIONS}


def __getattr__(name: str) -> Any:
    if name not in _MADE:
        raise AttributeError(f"fx.expr has no {name!r}{did_you_mean(name, __all__)}")
    return _MADE[name]
