"""The scalar functions that every back end supports: one table for the printers, the evaluator of kernels,
the grouping and the tests.

An op that is such a function defines it in its own record (:mod:`fxlite.ops.elementwise`). This file has
those that are not an op, or belong to several. For a function without an operator, C and CUDA call
``fx_NAME_DTYPE`` of fx_math.h.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite.types import dtypes
from fxlite.types.dtypes import DType


@dataclass(frozen=True)
class Function:
    """One function. All its operands have the same dtype (for ``where``, the last two)."""

    name: str
    arity: int
    #: Computes the function with NumPy on arrays; half types are passed as float32.
    compute: Callable[..., Any]
    #: The operator in C, between two operands or in front of one.
    operator: str = ""
    #: The dtype of the result, if it is not that of the operands, or a function of the latter.
    result: DType | Callable[[DType], DType] | None = None
    #: The cost, roughly in additions. A function that costs more than one is not computed twice to save memory.
    cost: int = 1
    #: The largest error of ``fx_NAME_f32`` in units in the last place; 0: it is exact.
    ulp: float = 0.0
    #: Whether terms cancel, so that errors are in units in the last place of 1 for results that are smaller.
    cancels: bool = False
    #: Whether the result is one of the operands, or a number that every float type has which has the operands.
    keeps: bool = False
    #: The function that replaces this one for bools.
    of_bools: str = ""
    #: Whether half types have functions of their own: the result depends on the type's numbers.
    halves: bool = False
    #: The number of real operations that it takes for complex numbers.
    complex_cost: int = 2
    #: The float types for which C calls its library for one number at a time; for others it is SIMD code.
    calls: tuple[str, ...] = ()
    #: The float types for which C computes a row at a time, by ``fx_NAME_row_DTYPE``, if there are no large numbers in
    #: it in less time.
    rows: tuple[str, ...] = ()

    def operations(self, operand: DType) -> int:
        """The number of operations on real numbers that it takes for operands of a dtype."""
        return self.complex_cost if operand.is_complex else 1

    def gives(self, operand: DType) -> DType:
        """The dtype of its result for operands of a dtype."""
        if self.result is None or isinstance(self.result, DType):
            return self.result or operand
        return self.result(operand)


FUNCTIONS: dict[str, Function] = {}


def define(function: Function) -> None:
    """Add a function to the table."""
    assert function.name not in FUNCTIONS, function.name
    FUNCTIONS[function.name] = function


def complex_of(x: Any, y: Any) -> Any:
    """The complex numbers with these real and imaginary parts, float32 or float64. Unlike ``x + 1j * y``, it
    keeps infinities and the signs of zeros."""
    x, y = np.asarray(x), np.asarray(y)
    parts = np.empty(np.broadcast_shapes(x.shape, y.shape), np.result_type(x, y, np.complex64))
    parts.real, parts.imag = x, y
    return parts[()]


def _complex_dtype(part: DType) -> DType:
    return dtypes.complex64 if part is dtypes.float32 else dtypes.complex128


def _part(dtype: DType) -> DType:
    return dtype.real


def _exp_weight(x: Any) -> Any:
    x = np.asarray(x)
    least = -708 if x.dtype == np.float64 else -87
    return np.where(x < least, x.dtype.type(0), np.exp(np.minimum(x, 0)))[()]


for _function in (
    Function("and", 2, np.bitwise_and, operator="&"),
    Function("or", 2, np.bitwise_or, operator="|"),
    Function("xor", 2, np.bitwise_xor, operator="^"),
    Function("where", 3, np.where, keeps=True),
    Function("fma", 3, lambda a, b, c: a * b + c),
    # the complex number from two parts, and the functions of a complex number
    Function("complex", 2, complex_of, result=_complex_dtype, complex_cost=0),
    Function("real", 1, np.real, result=_part, keeps=True, complex_cost=0),
    Function("imag", 1, np.imag, result=_part, keeps=True, complex_cost=0),
    Function("conj", 1, np.conjugate, keeps=True, complex_cost=1),
    # a product that is rounded: never part of a fused multiply-add
    Function("product", 2, np.multiply),
    # x limited to [low, high]; NaN becomes low
    Function(
        "saturate", 3, lambda x, low, high: np.where(x > low, np.where(x < high, x, high), low), result=dtypes.int32
    ),
    # exp(min(x, 0)), but 0 where that is nearly subnormal
    Function("exp_weight", 1, _exp_weight, cost=8, ulp=1.1),
    # the maximum of abs(x) and a number that is -inf or not negative
    Function("larger_magnitude", 2, lambda largest, x: np.maximum(largest, np.abs(x))),
):
    define(_function)


@dataclass(frozen=True)
class Combination:
    """How a reduction combines its numbers: the function of the total and the next number, and the start
    value. If the result is the position of a number, the function tells whether the next number is
    better."""

    function: str
    neutral: float
    positions: bool = False

    @property
    def counts_all(self) -> bool:
        """Whether the result depends on how many equal elements there are."""
        return math.isfinite(self.neutral) and self.function not in ("or", "and")

    def start(self, dtype: DType) -> Any:
        """The start value, as a number of the dtype."""
        if dtype.is_complex:
            is_finite = math.isfinite(self.neutral)
            return complex(self.neutral, 0.0 if is_finite else self.neutral)
        if dtype.is_float:
            return float(self.neutral)
        if dtype.is_bool:
            return self.neutral > 0
        if math.isfinite(self.neutral):
            return int(self.neutral)
        info = np.iinfo(dtype.numpy)
        return int(info.max if self.neutral > 0 else info.min)


COMBINATIONS = {
    "sum": Combination("add", 0),
    "prod": Combination("mul", 1),
    "max": Combination("maximum", -math.inf),
    "min": Combination("minimum", math.inf),
    "any": Combination("or", 0),
    "all": Combination("and", 1),
    "argmax": Combination("gt", -math.inf, positions=True),
    "argmin": Combination("lt", math.inf, positions=True),
}
