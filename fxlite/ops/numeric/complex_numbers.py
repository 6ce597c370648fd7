"""Complex numbers: their parts, the conjugate, and the number of two parts.

What else is computed of them is that of other ops, in NumPy's meaning (docs/numerics.md): most
elementwise functions, products, sums, comparisons.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.ops.elementwise import attach, floating, promoted, refused, unary
from fxlite.ops.op import Tensor, op
from fxlite.ops.samples import Bad
from fxlite.scalar import expr
from fxlite.scalar.expr import Expr
from fxlite.scalar.functions import complex_of
from fxlite.types import dtypes
from fxlite.types.dtypes import DType

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
    "The real part; real numbers are their own.",
    rule=promoted,
    result=_part,
    unless=_unless_complex,
    shares_memory="perhaps",
    gives_number=None,
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
    shares_memory="perhaps",
    gives_number=None,
    samples=_SAMPLES,
    numpy="np.imag x",
)
unary(
    "conj",
    np.conjugate,
    "The complex conjugate; real numbers are their own.",
    unless=_unless_complex,
    inverse="conj",
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
    """The complex numbers of these real and imaginary parts: what ``x + 1j * y`` is for finite
    ones. Parts of float32 or less give complex64, others complex128."""
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
