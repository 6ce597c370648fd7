"""Data types: one record for each dtype that a value may have, NumPy's promotion rules, and the check of
arrays that enter a program.

In: names (``"f32"``), NumPy dtypes, Python scalars. Out: :class:`DType` constants such as
:data:`float32`, and :func:`result_type`, which gives the same answers as NumPy (NEP 50: a Python scalar
is weak and takes the dtype of the array that it is combined with). Files, pictures, text and emitted C
take everything about a dtype from its record; a new dtype needs a new record here, and the scalar
functions of its C type in ``codegen/c/fx_math.h``. An input, weight or constant becomes a plain ndarray
of the same values, or raises DTypeError: a subclass gives operations another meaning (a masked array
leaves elements out, ``*`` of matrices is a matrix product), which neither a graph nor compiled code would
preserve.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import ml_dtypes
import numpy as np

from fxlite.base.errors import DTypeError, LiteralError
from fxlite.base.facade import above

if TYPE_CHECKING:
    from fxlite.types.tensor_type import TensorType


__all__ = ["bfloat16", "bool_", "complex64", "complex128", "float16", "float32", "float64", "int8", "int16", "int32"]
__all__ += ["int64", "uint8", "uint16", "uint32", "uint64"]

#: Python's numbers, which are weak beside arrays (NEP 50).
Number: TypeAlias = bool | int | float | complex
NUMBERS = (bool, int, float, complex)


def plain_number(value: Any) -> Any:
    """A number of a class that is derived from int, float or complex as one of these; any other value unchanged."""
    base = next((kind for kind in NUMBERS if isinstance(value, kind)), None)
    return value if base in (None, type(value)) else base(value)


@dataclass(frozen=True, eq=False)
class DType:
    """One data type. There is one object for each, so they are compared by identity.

    - ``name``: the name in printed types (``f32``); in capitals, the name in safetensors files.
    - ``long_name``: NumPy's name.
    - ``numpy``: the NumPy dtype.
    - ``buffer``: the format characters of NumPy's buffers for the stored type; for complex numbers, the
      part after the ``Z``. Types that share a character, such as ``int`` and ``long``, differ in size.
    - ``c_name``: the C and CUDA type of a value in a register.
    - ``colours``: fill and border in pictures. The usual float32 is pale; types that are rare in a model
      of floats are not.
    - ``c_stored``: the C and CUDA type of a value in memory, if that is another one.
    - ``c_note``: what C has in memory, in words, if the type does not tell.
    - ``c_suffix``: the suffix of a literal in C. Signed types need it only from 2**31 on.
    - ``cuda_name``: the CUDA type of a value in memory, if C has another one.
    """

    name: str
    long_name: str
    kind: Literal["bool", "signed", "unsigned", "float", "complex"]
    buffer: str
    c_name: str
    colours: tuple[str, str]
    c_stored: str = ""
    c_note: str = ""
    c_suffix: str = ""
    cuda_name: str = ""
    numpy: np.dtype[Any] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "numpy", np.dtype(getattr(np, self.long_name, ml_dtypes.bfloat16)))
        object.__setattr__(self, "c_stored", self.c_stored or self.c_name)
        object.__setattr__(self, "c_note", self.c_note or self.c_stored)
        object.__setattr__(self, "cuda_name", self.cuda_name or self.c_stored)

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_complex(self) -> bool:
        return self.kind == "complex"

    @property
    def is_inexact(self) -> bool:
        """True for dtypes whose operations round: floats, and complex numbers, which are two floats."""
        return self.kind == "float" or self.kind == "complex"

    @property
    def real(self) -> DType:
        """The dtype of the parts of a complex number; any other dtype itself."""
        return self if self.kind != "complex" else dtype(self.numpy.type().real.dtype)

    @property
    def is_half(self) -> bool:
        """True for 16-bit floats, which are stored as bits and computed in float32."""
        return self.kind == "float" and self.numpy.itemsize == 2

    @property
    def is_integer(self) -> bool:
        """True for the signed and unsigned integers; bool is not an integer."""
        return self.kind == "signed" or self.kind == "unsigned"

    @property
    def is_unsigned(self) -> bool:
        return self.kind == "unsigned"

    @property
    def is_bool(self) -> bool:
        return self.kind == "bool"

    @property
    def compute(self) -> DType:
        """The dtype of the arithmetic: half types are computed in float32, and every op of a program rounds
        its result, as in NumPy."""
        return float32 if self.is_half else self

    @functools.cached_property
    def accumulator(self) -> DType:
        """The dtype of sums and products, as in NumPy: integers are accumulated in 64 bits."""
        return self if self.is_inexact else dtype(np.zeros(1, self.numpy).sum().dtype)

    @property
    def stored(self) -> np.dtype[Any]:
        """The NumPy dtype with which an array is passed to compiled code: NumPy's buffers do not support
        dtypes of other libraries, so these are passed as their bits."""
        return np.dtype(f"u{self.itemsize}") if self.numpy.kind == "V" else self.numpy

    def __getitem__(self, shape: Any) -> TensorType:
        """``fx.float32[B, T, 64]``: the type ``f32[B,T,64]``, with the facts of its dims. Raises
        ShapeError for an entry that is not a size."""
        return above("array_type")(self, shape)  # type: ignore[no-any-return]

    __iter__ = None  # because of __getitem__, a loop over a dtype would otherwise never end

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return (dtype, (self.name,))


bool_ = DType(
    "bool", "bool", "bool", "?", "bool", ("#f3dbe3", "#bb6f8a"), c_stored="unsigned char", c_note="one byte, 0 or 1"
)
uint8 = DType("u8", "uint8", "unsigned", "B", "uint8_t", ("#ffd08a", "#c47a00"))
uint16 = DType("u16", "uint16", "unsigned", "H", "uint16_t", ("#fbe3bd", "#94722c"))
uint32 = DType("u32", "uint32", "unsigned", "IL", "uint32_t", ("#ece4d3", "#85744e"), c_suffix="u")
uint64 = DType("u64", "uint64", "unsigned", "LQ", "uint64_t", ("#f0ebe0", "#857a63"), c_suffix="ULL")
int8 = DType("i8", "int8", "signed", "b", "int8_t", ("#ffb454", "#b85f00"))
int16 = DType("i16", "int16", "signed", "h", "int16_t", ("#f6e39a", "#8f7b14"))
int32 = DType("i32", "int32", "signed", "il", "int32_t", ("#e9e6d4", "#7d7748"))
int64 = DType("i64", "int64", "signed", "lq", "int64_t", ("#eeece2", "#7f7a60"), c_suffix="LL")
float16 = DType(
    "f16",
    "float16",
    "float",
    "e",
    "float",
    ("#c9ebe4", "#2f9a86"),
    c_stored="uint16_t",
    c_note="IEEE half, in uint16_t",
)
bfloat16 = DType(
    "bf16",
    "bfloat16",
    "float",
    "H",
    "float",
    ("#bfe3f2", "#2b8db3"),
    c_stored="uint16_t",
    c_note="the upper half of a float, in uint16_t",
)
float32 = DType("f32", "float32", "float", "f", "float", ("#e8eef4", "#6a8299"))
float64 = DType("f64", "float64", "float", "d", "double", ("#d9c8ee", "#7d55b3"))
complex64 = DType("c64", "complex64", "complex", "f", "float _Complex", ("#cfe6c4", "#5b9441"), cuda_name="fx_c64")
complex128 = DType("c128", "complex128", "complex", "d", "double _Complex", ("#a9d6b5", "#2f7d4a"), cuda_name="fx_c128")

ALL = tuple(d for d in globals().values() if isinstance(d, DType))
FLOATS = tuple(d for d in ALL if d.is_float)
INTEGERS = tuple(d for d in ALL if d.is_integer)
COMPLEX = tuple(d for d in ALL if d.is_complex)

BY_NAME = {d.name: d for d in ALL} | {d.long_name: d for d in ALL}
_LONGEST = 100  # characters in the name of a dtype
BY_NUMPY = {d.numpy: d for d in ALL}
#: The usual arguments of :func:`dtype`: dtypes themselves, those of arrays, and their names.
_USUAL: dict[Any, DType] = {**BY_NUMPY, **BY_NAME, **{d: d for d in ALL}}


def _differs(name: str, known: DType) -> bool:
    try:
        return np.dtype(name) != known.numpy
    except TypeError:
        return False


#: Names that mean another dtype in NumPy: ``"i8"`` has 8 bytes there, and 8 bits here.
_OTHER_IN_NUMPY = {name: np.dtype(name) for name, known in BY_NAME.items() if _differs(name, known)}


def as_numpy_reads(value: Any) -> Any:
    """An argument of a NumPy function or method; a text that names another dtype in NumPy than here becomes NumPy's
    dtype."""
    return _OTHER_IN_NUMPY.get(value, value) if type(value) is str else value


def dtype(value: Any) -> DType:
    """The :class:`DType` for a name (``"f32"``, ``"float32"``), a NumPy dtype or scalar type, a Python
    type (``complex`` is c128, ``float`` f64, ``int`` i64, ``bool`` bool) or a DType.

    Raises DTypeError for anything else."""
    try:
        found = _USUAL.get(value)
    except TypeError:  # not hashable
        found = None
    if found is not None:
        return found
    try:
        if not isinstance(value, str) or len(value) <= _LONGEST:
            return BY_NUMPY[np.dtype(value).newbyteorder("=")]
    except (TypeError, KeyError, ValueError, SyntaxError):
        pass
    known = " ".join(d.name for d in ALL)
    shown = repr(value)[:200]
    raise DTypeError(f"{shown} is not a dtype fxlite knows; use one of: {known}") from None


_PROMOTED: dict[tuple[Any, ...], DType] = {}


def result_type(*operands: DType | Number) -> DType:
    """The dtype that NumPy gives to arithmetic on these operands. Python scalars are weak (NEP 50).

    Raises DTypeError if NumPy (with ml_dtypes) has no common type."""
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
        if bfloat16 in strong and weak:  # ml_dtypes: a Python scalar combined with bfloat16 is not weak
            ones = [np.ones((), o.numpy) for o in strong]
            return dtype(functools.reduce(np.add, [*ones, *weak]).dtype)
        return dtype(np.result_type(*(o.numpy for o in strong), *weak))
    except TypeError:
        names = ", ".join(o.name for o in strong)
        raise DTypeError(f"no common dtype for {names}; cast one of them first") from None


def literal(value: Number, dtype: DType, wraps: bool = False) -> Any:
    """A Python number converted to an element of ``dtype`` as NumPy does it (NEP 50): rounded, or
    truncated for an integer dtype. With ``wraps``, an integer that is out of range wraps around.

    Raises LiteralError if the dtype cannot represent it."""
    if dtype.is_complex:
        number = complex(value)
        return number if dtype is complex128 else complex(_rounded(number, dtype))
    if isinstance(value, complex):
        if dtype.is_bool:
            return bool(value)
        raise LiteralError(
            f"the number {value} is complex and {dtype} is not; take its .real or cast the "
            f"tensor beside it to a complex dtype"
        )
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


def _rounded(value: float | complex, dtype: DType) -> Any:
    with np.errstate(all="ignore"):
        return dtype.numpy.type(value)


def of_value(value: Any) -> DType:
    """The dtype of an array or Python scalar (here a Python float is f64, not weak)."""
    return dtype(value.dtype if hasattr(value, "dtype") else type(value))


# -- which arrays may enter a program --------------------------------------------------------------
Array = np.ndarray[Any, Any]


def plain_array(value: Any, what: str = "") -> Array:
    """``value`` as an ndarray of a known dtype in this machine's byte order; ``what`` is its name in
    messages. Memory-mapped files (np.memmap) and Parameters are accepted, too. Raises DTypeError for other
    subclasses and dtypes."""
    require_plain(value, what)
    if type(value) is np.ndarray and value.dtype in BY_NUMPY:
        return value
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RecursionError) as error:
        raise DTypeError(f"{_start(what)}{type(value).__name__} is not an array: {error}") from None
    if array.dtype == object and array.size and all(type(v) is int for v in array.flat):
        bits = max(v.bit_length() for v in array.flat)
        raise DTypeError(
            f"{_start(what)}an integer of {bits} bits, and those of arrays have 64; compute with floats (1.0 in place "
            "of 1), or take the remainder in each round"
        )
    try:
        dtype(array.dtype)
    except DTypeError as error:
        raise DTypeError(f"{_start(what)}{error}") from None
    if not array.dtype.isnative:
        raise DTypeError(
            f"{_start(what)}the array is in foreign byte order ({array.dtype.str}); pass "
            f"x.astype(x.dtype.newbyteorder('='))"
        )
    return array


def has_same_bits(a: Any, b: Any) -> bool:
    """Whether two arrays, or NumPy numbers, have the same type and bits."""
    return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())


def is_same_array(a: Array, b: Array) -> bool:
    """Whether two arrays have the same contents; NaN equals NaN."""
    if a is b or a.dtype != b.dtype or a.dtype.isbuiltin != 1:
        return a is b or has_same_bits(a, b)
    return np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")


def require_plain(value: Any, what: str = "") -> None:
    """Raise DTypeError for an array of a class that gives operations another meaning. Values that are not
    arrays are accepted."""
    kind = type(value)
    if kind in (np.ndarray, np.memmap) or not isinstance(value, np.ndarray):
        return
    if getattr(kind, "is_plain_array", False):
        return
    reason, instead = "a subclass may give operations another meaning", "np.asarray(x)"
    if isinstance(value, np.ma.MaskedArray):
        reason, instead = "its mask would be lost", "x.filled(number), or x and its mask apart"
    elif isinstance(value, np.matrix):
        reason = "its * is a product of matrices, and its slices keep two axes"
    raise DTypeError(f"{_start(what)}a {kind.__name__} is refused: {reason}; pass {instead}")


def _start(what: str) -> str:
    return f"{what}: " if what else ""


def __dir__() -> list[str]:
    return [*__all__, "DType", "dtype", "result_type"]
