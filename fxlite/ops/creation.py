"""Creation: full, zeros, ones and arange, which make tensors that depend on no input.

In: shapes and bounds in dims (ints or named), numbers. Out: records without tensor operands. Traced
programs call ``fx.ops.zeros((B, 4))`` where ``np.zeros((B, 4))`` cannot know ``B``. If all sizes are
ints, a call runs at once, and the array is a constant of the traced program.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, DTypeError, ShapeError
from fxlite.base.on_demand import is_expression
from fxlite.ops.op import Op, Tensor, op
from fxlite.ops.parameters import Attribute
from fxlite.ops.samples import S
from fxlite.ops.slicing import larger
from fxlite.ops.view import as_shape, fill_value
from fxlite.scalar import expr
from fxlite.scalar.expr import Expr, MultiIndex
from fxlite.scalar.index import Index
from fxlite.types import dtypes, shapes
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import TensorType


def _default_dtype(*values: Any) -> DType:
    """NumPy's dtype for Python numbers; a named dim counts as an int."""
    kinds = {type(v) if type(v) in dtypes.NUMBERS else int for v in values}
    if complex in kinds:
        return dtypes.complex128
    if float in kinds:
        return dtypes.float64
    return dtypes.bool_ if kinds == {bool} else dtypes.int64


def _fill(value: Any, dtype: DType) -> Any:
    return value if is_expression(value) else fill_value(value, dtype)


def _created(shape: Any, dtype: DType) -> TensorType:
    sizes = as_shape(shape)
    if any(type(d) is int and d < 0 for d in sizes):
        raise ShapeError(f"shape {shape} has a negative size")
    return TensorType(sizes, dtype)


@op(
    "creation",
    guards="shape",
    samples=[
        "(2,3) 1.5; () 7; (3,) True; (0,2) 1 'f32'; (2,) -1 'i8'; 4 2.5 'bf16'",
        S((2,), float("-inf"), "f16"),
        S((2,), 1 - 2j),
        S(3, complex("inf-0j"), "c64"),
        "(2,2) 0.5 'c128'",
    ],
)
def full(shape: tuple[int, ...], value: float, dtype: DType | None = None) -> Tensor:
    """A tensor of ``shape`` filled with a number (or a named dim). The default dtype is NumPy's for that
    number: f64, i64 or bool.

    Raises ShapeError for a negative size, and DTypeError for a value that the dtype cannot represent."""
    found = _default_dtype(value) if dtype is None else dtypes.dtype(dtype)
    return np.full(shape, value, found.numpy)


@full.canonical
def _(shape: Any, value: Any, dtype: Any = None) -> Any:
    target = _default_dtype(value) if dtype is None else dtype
    new = (as_shape(shape), _fill(value, target), target)
    if new == (shape, value, dtype) and type(new[1]) is type(value):
        return None
    return full, dict(zip(("shape", "value", "dtype"), new))


@full.infer
def _(shape: Any, value: Any, dtype: Any) -> TensorType:
    target = _default_dtype(value) if dtype is None else dtype
    _fill(value, target)
    return _created(shape, target)


@full.body
def _(i: MultiIndex, shape: Any, value: Any, dtype: Any) -> Expr:
    target = _default_dtype(value) if dtype is None else dtype
    if is_expression(value):
        return expr.cast(expr.index_value(value), target)
    return expr.const(fill_value(value, target), target)


def _constant(name: str, value: int) -> Op:
    def call(shape: Attribute, dtype: Attribute = "f32") -> Any:
        return np.full(shape, value, dtypes.dtype(dtype).numpy)

    call.__doc__ = f"A tensor of ``shape`` filled with {value}. The default dtype is f32, as in torch (np.{name}: f64)."
    samples = ["(2,3); () 'i64'; 3 'bool'; (0,) 'f64'; (2,1) 'bf16'; (2,) 'f16'"]
    record = op("creation", name=name, samples=samples)(call)

    def canonical(shape: Any, dtype: Any = "f32") -> Any:
        return full, {"shape": shape, "value": value, "dtype": dtypes.dtype(dtype)}

    def infer(shape: Any, dtype: Any = "f32") -> TensorType:
        return _created(shape, dtypes.dtype(dtype))

    def body(i: MultiIndex, shape: Any, dtype: Any = "f32") -> Expr:
        return expr.const(value, dtypes.dtype(dtype))

    record.canonical(canonical)
    record.infer(infer)
    record.body(body)
    return record


zeros = _constant("zeros", 0)
ones = _constant("ones", 1)


@op(
    "creation",
    samples=[
        "5; 2 7; 1 10 3; 5 -1 -2; 0; 3 1; 0.0 1.0 0.25; 4 dtype='f32'; 1 2 0.3 'f32'; 3 dtype='i8'; 5 dtype='bf16'"
    ],
)
def arange(start: float, stop: float | None = None, step: float = 1, dtype: DType | None = None) -> Tensor:
    """``start, start + step, ...`` up to but without ``stop``; ``arange(n)`` starts at 0. Bounds may be
    named dims. The default dtype is i64, or f64 if one of the arguments is a float.

    Floats are computed in float64 as ``start + i * step`` and rounded once. Raises ArgumentError for a
    step of 0, and for a float combined with a named dim."""
    first, last = (0, start) if stop is None else (start, stop)
    target = _default_dtype(first, last, step) if dtype is None else dtypes.dtype(dtype)
    count = _count(first, last, step)
    computed = np.float64 if float in map(type, (first, last, step)) else np.int64
    values = computed(first) + np.arange(count).astype(computed) * computed(step)
    return values.astype(target.numpy)


def _count(start: Any, stop: Any, step: Any) -> Any:
    """The number of values, as a dim."""
    if type(step) not in (int, float) or step == 0:
        raise ArgumentError(f"step must be a number other than 0, not {step!r}")
    if all(type(v) in (bool, int, float) for v in (start, stop, step)):
        if not all(map(math.isfinite, (start, stop, step))):
            raise ArgumentError("start, stop and step must be finite")
        if float in (type(start), type(stop), type(step)):
            return max(0, math.ceil((stop - start) / step))
        return len(range(start, stop, step))
    if any(type(v) is float for v in (start, stop, step)):
        raise ArgumentError("with named dims, start, stop and step must be ints; scale the result")
    distance = stop - start if step > 0 else start - stop
    stride = abs(step)
    count = shapes.normalize(distance + (stride - 1))
    return larger(count if stride == 1 else shapes.floordiv(count, stride), 0)


def _bounds(start: Any, stop: Any) -> tuple[Any, Any]:
    return (0, start) if stop is None else (start, stop)


@arange.canonical
def _(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Any:
    if stop is not None and dtype is not None:
        return None
    first, last = _bounds(start, stop)
    target = _default_dtype(first, last, step) if dtype is None else dtype
    return arange, {"start": first, "stop": last, "step": step, "dtype": target}


@arange.infer
def _(start: Any, stop: Any, step: Any, dtype: Any) -> TensorType:
    first, last = _bounds(start, stop)
    target = _default_dtype(first, last, step) if dtype is None else dtype
    if target.is_bool:
        raise DTypeError("arange counts in integers or floats, not bool")
    return TensorType((_count(first, last, step),), target)


@arange.body
def _(i: MultiIndex, start: Any, stop: Any, step: Any, dtype: Any) -> Expr:
    first, last = _bounds(start, stop)
    target = _default_dtype(first, last, step) if dtype is None else dtype
    if float not in map(type, (first, last, step)):
        return expr.cast(expr.index_value(i[0] * step + Index.of(first)), target)
    position = expr.cast(expr.index_value(i[0]), dtypes.float64)
    value = expr.const(first, dtypes.float64) + position * expr.const(step, dtypes.float64)
    return expr.cast(value, target)
