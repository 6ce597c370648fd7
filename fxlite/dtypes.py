"""Data types: the ten dtypes a value may have, their text names and NumPy's promotion rules.

In: names (``"f32"``), NumPy dtypes, Python scalars. Out: :class:`DType` constants such as
:data:`float32`, and :func:`result_type`, which answers what NumPy answers (NEP 50: a Python scalar
is weak and takes the dtype of the array beside it).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from fxlite.errors import DTypeError, LiteralError

if TYPE_CHECKING:
    from fxlite.types import TensorType


@dataclass(frozen=True)
class DType:
    """One data type. ``name`` is what prints in types (``f32``); ``numpy`` is the NumPy dtype;
    ``c_name`` is how C and CUDA spell the *storage* type."""

    name: str
    long_name: str
    numpy: np.dtype[Any]
    c_name: str

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        return self.name in ("f16", "bf16", "f32", "f64")

    @property
    def is_integer(self) -> bool:
        """True for the signed and unsigned integers; bool is not an integer."""
        return self.name in ("u8", "i8", "i16", "i32", "i64")

    @property
    def is_bool(self) -> bool:
        return self.name == "bool"

    @property
    def compute(self) -> DType:
        """The dtype arithmetic is done in: half types are computed in float32, and every op of a
        program rounds its result, as NumPy does."""
        return float32 if self.name in ("f16", "bf16") else self

    def __getitem__(self, shape: Any) -> TensorType:
        """``fx.float32[B, T, 64]``: the type ``f32[B,T,64]``, with the dims' facts. Raises
        ShapeError for what is no size."""
        from fxlite.types import TensorType, checked_shape

        return TensorType(checked_shape(shape if isinstance(shape, tuple) else (shape,)), self)

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return (dtype, (self.name,))


bool_ = DType("bool", "bool", np.dtype(np.bool_), "unsigned char")
uint8 = DType("u8", "uint8", np.dtype(np.uint8), "uint8_t")
int8 = DType("i8", "int8", np.dtype(np.int8), "int8_t")
int16 = DType("i16", "int16", np.dtype(np.int16), "int16_t")
int32 = DType("i32", "int32", np.dtype(np.int32), "int32_t")
int64 = DType("i64", "int64", np.dtype(np.int64), "int64_t")
float16 = DType("f16", "float16", np.dtype(np.float16), "uint16_t")
bfloat16 = DType("bf16", "bfloat16", np.dtype(ml_dtypes.bfloat16), "uint16_t")
float32 = DType("f32", "float32", np.dtype(np.float32), "float")
float64 = DType("f64", "float64", np.dtype(np.float64), "double")

ALL = (bool_, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64)
FLOATS = (float16, bfloat16, float32, float64)
INTEGERS = (uint8, int8, int16, int32, int64)

_BY_NAME = {d.name: d for d in ALL} | {d.long_name: d for d in ALL}
_LONGEST = 100  # characters of the name of a dtype
_BY_NUMPY = {d.numpy: d for d in ALL}


def dtype(value: Any) -> DType:
    """The :class:`DType` meant by a name (``"f32"``, ``"float32"``), a NumPy dtype or scalar type,
    a Python type (``float`` is f64, ``int`` i64, ``bool`` bool) or a DType.

    Raises DTypeError for anything else, unsigned 16-64 bit integers and complex included."""
    if isinstance(value, DType):
        return value
    if isinstance(value, str) and value in _BY_NAME:
        return _BY_NAME[value]
    try:
        if not isinstance(value, str) or len(value) <= _LONGEST:
            return _BY_NUMPY[np.dtype(value).newbyteorder("=")]
    except (TypeError, KeyError, ValueError, SyntaxError):
        pass
    known = " ".join(d.name for d in ALL)
    shown = repr(value)[:200]
    raise DTypeError(f"{shown} is not a dtype fxlite knows; use one of: {known}") from None


_PROMOTED: dict[tuple[Any, ...], DType] = {}


def result_type(*operands: DType | bool | int | float) -> DType:
    """The dtype NumPy gives to arithmetic on these operands. Python scalars are weak (NEP 50).

    Raises DTypeError where NumPy (with ml_dtypes) has no common type."""
    key = tuple(o if isinstance(o, DType) else type(o) for o in operands)
    found = _PROMOTED.get(key)
    if found is None:
        weak = [o if isinstance(o, DType) else type(o)(1) for o in operands]
        found = _PROMOTED[key] = _promote(weak)
    return found


def _promote(operands: list[Any]) -> DType:
    """Promotion without a cache."""
    strong = [o for o in operands if isinstance(o, DType)]
    weak = [o for o in operands if not isinstance(o, DType)]
    try:
        if bfloat16 in strong and weak:  # ml_dtypes: a Python scalar beside bfloat16 is not weak
            ones = [np.ones((), o.numpy) for o in strong]
            return dtype(functools.reduce(np.add, [*ones, *weak]).dtype)
        return dtype(np.result_type(*(o.numpy for o in strong), *weak))
    except TypeError:
        names = ", ".join(o.name for o in strong)
        raise DTypeError(f"no common dtype for {names}; cast one of them first") from None


def literal(value: bool | int | float, dtype: DType, wraps: bool = False) -> Any:
    """A Python number as an element of ``dtype``, as NumPy converts one (NEP 50): rounded to it,
    truncated to an integer, or, with ``wraps``, taken modulo the integers that there are.

    Raises LiteralError where the dtype does not hold it."""
    try:
        if dtype.is_bool:
            return bool(value)
        if dtype.is_float:
            wide = float(value)
            return wide if dtype.compute is dtype else float(_rounded(wide, dtype))
        whole = int(value)
    except (OverflowError, ValueError):
        raise LiteralError(f"the number {value} does not fit {dtype}") from None
    info = np.iinfo(dtype.numpy)
    if info.min <= whole <= info.max:
        return whole
    if wraps and -(2**63) <= whole < 2**64:
        return int(np.array(whole % 2**64, np.uint64).astype(dtype.numpy))
    raise LiteralError(
        f"the number {value} does not fit {dtype}, which holds {info.min} to {info.max}; cast the "
        f"tensor beside it to a wider dtype"
    )


def _rounded(value: float, dtype: DType) -> Any:
    with np.errstate(all="ignore"):
        return dtype.numpy.type(value)


def of_value(value: Any) -> DType:
    """dtype of an array or Python scalar (a Python float is f64 here, not weak)."""
    return dtype(value.dtype if hasattr(value, "dtype") else type(value))
