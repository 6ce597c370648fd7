"""Complex numbers: their parts, the conjugate, and the construction of a number from two parts.

Other ops compute with them as NumPy does (docs/numerics.md): most elementwise functions, products, sums
and comparisons.

This file also has the discrete Fourier transform along an axis, from which all of np.fft is built
(:mod:`fxlite.tracing.functions.fourier`). Its body is the sum that defines it; back ends with a fast
transform take the roots of unity from here.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from fxlite.base.errors import DTypeError, ShapeError
from fxlite.ops.elementwise import attach, floating, promoted, refused, unary
from fxlite.ops.op import Tensor, normalize_axis, op
from fxlite.ops.samples import Bad
from fxlite.scalar import expr
from fxlite.scalar.expr import Expr, MultiIndex, Reader
from fxlite.scalar.functions import complex_of
from fxlite.scalar.index import Index
from fxlite.types import dtypes
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import TensorType

_SAMPLES = ["c64[9]!; f32[5]; i32[4]; c128[0,3]; bool[3]; bf16[3]"]


def _unless_complex(x: Expr) -> Expr | None:
    return None if x.dtype.is_complex else x


def _no_imaginary_part(x: Expr) -> Expr | None:
    return None if x.dtype.is_complex else expr.const(0, x.dtype)


def _part(dtype: DType) -> DType:
    return dtype.real


unary(
    "real",
    np.real,
    "The real part of x; for a real number, x itself.",
    rule=promoted,
    result=_part,
    unless=_unless_complex,
    shares_memory="parts",
    gives_number=None,
    keeps_python_numbers=True,
    samples=_SAMPLES,
    numpy="np.real x",
    moves_values=True,
)
unary(
    "imag",
    np.imag,
    "The imaginary part; that of real numbers is 0.",
    rule=promoted,
    result=_part,
    unless=_no_imaginary_part,
    shares_memory="parts",
    gives_number=None,
    keeps_python_numbers=True,
    samples=_SAMPLES,
    numpy="np.imag x",
)
unary(
    "conj",
    np.conjugate,
    "The complex conjugate of x; for a real number, x itself.",
    unless=_unless_complex,
    inverse="conj",
    keeps_python_numbers=True,
    samples=_SAMPLES,
)


@op(
    "pointwise",
    name="complex",
    samples=[
        "f32[B,4] f32[4] B=3; f64[5] f32[5]; f32[3] 0.0; 1.5 f64[3]; f64[9]! f64[9]; i32[3] i32[3]; f16[3] f32[3]",
        "f32[0,2] f32[2]",
    ],
    bad=[Bad("f32[3]", "f32[4]", match="do not broadcast"), Bad("c64[3]", "f32[3]", match="real numbers")],
)
def complex_(x: Tensor, y: Tensor) -> Tensor:
    """The complex numbers with these real and imaginary parts, which for finite numbers are ``x + 1j * y``.
    Parts of float32 or smaller give complex64, others complex128."""
    parts = _of_parts(*(v if type(v) in dtypes.NUMBERS else dtypes.of_value(v) for v in (x, y)))
    return complex_of(*(np.asarray(v).astype(parts.numpy) for v in (x, y)))


def _of_parts(x: Any, y: Any) -> DType:
    """The dtype of the parts."""
    found = floating(x, y)
    if found.is_complex:
        raise refused((x, y), "the parts of a complex number are real numbers")
    return dtypes.float32 if found.is_half else found


def _joined(x: Expr, y: Expr) -> Expr:
    return expr.apply("complex", x, y)


attach(complex_, _of_parts, _joined, lambda d: dtypes.result_type(d, dtypes.complex64))


# -- the discrete Fourier transform ----------------------------------------------------------------
Array = np.ndarray[Any, Any]


@functools.lru_cache(maxsize=64)
def roots_of_unity(size: int, dtype: str, inverse: bool = False) -> Array:
    """``exp(-2 pi i k / size)`` for k = 0, 1, ...: exact at multiples of a quarter turn, and elsewhere computed
    from angles of at most an eighth of a turn, so that each is rounded correctly or nearly so."""
    k = np.arange(size, dtype=np.int64)
    octant, rest = np.divmod(8 * k, size) if size else (k, k)  # the rest is rest / (8 size) of a turn
    odd = octant % 2 == 1
    angle = np.where(odd, size - rest, rest) * (math.pi / 4 / max(size, 1))
    cos, sin = np.cos(angle), np.sin(angle)
    cos, sin = np.where(odd, sin, cos), np.where(odd, cos, sin)  # within a quarter turn
    quarter = octant // 2
    real = np.choose(quarter, [cos, -sin, -cos, sin]) if size else cos
    imag = np.choose(quarter, [sin, cos, -sin, -cos]) if size else sin
    found = np.empty(size, np.complex128)
    found.real, found.imag = real + 0.0, (imag if inverse else -imag) + 0.0
    found = found.astype(dtype)
    found.flags.writeable = False
    return found


@op(
    "contraction",
    stands_alone=True,
    any_order=True,
    needs_whole={"x": "axis"},
    samples=[
        "c64[B,6] B=3; c128[2,3,8] inverse=True; c128[1]; c64[0,4]; c64[35] inverse=True; c128[2]",
        "c64[2,6,B] B=3 axis=1; c128[14,5] inverse=True axis=0",
    ],
    bad=[
        Bad("f32[4]", match="complex numbers, not f32[4]"),
        Bad("c64[]", match="no axis"),
        Bad("c64[2,0]", match="no transform of 0 numbers"),
        Bad("c64[N]", match="named size N"),
    ],
)
def dft(x: Tensor, inverse: bool = False, axis: int = -1) -> Tensor:
    """The discrete Fourier transform of x along ``axis``, which has n numbers: ``sum over j of x[j] *
    exp(-2 pi i j k / n)``. With ``inverse``, the sum has i in place of -i, and is n times the inverse
    transform.

    Raises ShapeError if n is 0 or a named size, and DTypeError for numbers that are not complex."""
    if x.size and x.shape[axis] <= _DEFINED:
        roots, k = roots_of_unity(x.shape[axis], "complex128", inverse), np.arange(x.shape[axis])
        sums = np.matmul(np.moveaxis(x, axis, -1), roots[np.outer(k, k) % len(k)])
        return np.moveaxis(sums, -1, axis).astype(x.dtype)
    return np.fft.ifft(x, axis=axis, norm="forward") if inverse else np.fft.fft(x, axis=axis)


#: The most points for which the reference is the sum that defines the transform.
_DEFINED = 8


@dft.infer
def _infer(x: TensorType, inverse: bool, axis: int) -> TensorType:
    if not x.dtype.is_complex:
        raise DTypeError(f"x must be complex numbers, not {x}; cast it with .astype('c64')")
    if not x.rank:
        raise ShapeError("a number has no axis to transform")
    size = x.shape[normalize_axis(axis, x.rank)]
    if type(size) is not int:
        raise ShapeError(f"the axis {axis} has the named size {size}; trace it with a number")
    if size == 0:
        raise ShapeError("there is no transform of 0 numbers")
    return x


@dft.body
def _(i: MultiIndex, x: Reader, inverse: bool, axis: int) -> Expr:
    axis = normalize_axis(axis, len(i))
    k, n = i[axis], x.shape[axis]
    turn = expr.const((1 if inverse else -1) * 2 * math.pi / int(n.constant or 1), dtypes.float64)

    def term(j: Index) -> Expr:
        angle = expr.apply("mul", expr.cast(expr.index_value((j * k) % n), dtypes.float64), turn)
        parts = (expr.cast(expr.apply(f, angle), x.dtype.real) for f in ("cos", "sin"))
        return expr.apply("mul", x[(*i[:axis], j, *i[axis + 1 :])], expr.apply("complex", *parts))

    return expr.reduce("sum", [n], term)


@dft.cost
def _(x: TensorType, inverse: bool, axis: int) -> Any:
    """5 n log2 n operations for each row, as for a fast transform whose size is a power of two."""
    return x.size * max(round(5 * math.log2(int(x.shape[axis]))), 1)
