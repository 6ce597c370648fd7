"""Elementwise ops: arithmetic, comparison, logic, rounding, exponentials, activations, casts.

All of them broadcast and promote dtypes as NumPy does (Python scalars are weak). A record's body is a
scalar function of its operands, which are cast to the dtype in which NumPy computes. The record defines
that function (:mod:`fxlite.scalar.functions`) with all its properties, so a new one needs only its record
here and, in ``codegen/c/fx_math.h``, its body.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxlite.base.errors import DTypeError, LiteralError
from fxlite.ops.op import Op, Tensor, broadcast_shapes, float_dtype, op, shape_of, weak_dtype
from fxlite.ops.samples import Bad, S, Samples, uniform
from fxlite.scalar import expr
from fxlite.scalar.expr import Expr, MultiIndex, Reader, read_broadcast
from fxlite.scalar.functions import FUNCTIONS, Function, define
from fxlite.types import dtypes
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import TensorType

DTypeRule = Callable[..., DType]  # operand dtypes (or Python scalars) -> dtype of the computation
Result = DType | Callable[[DType], DType] | None


def promoted(*operands: Any) -> DType:
    """NumPy's common dtype."""
    return dtypes.result_type(*operands)


def floating(*operands: Any) -> DType:
    """The common dtype; for integers, the float dtype that NumPy's ufuncs give."""
    return float_dtype(dtypes.result_type(*operands))


def as_numpy(function: Callable[..., Any]) -> DTypeRule:
    """A rule that calls NumPy's ``function`` to find the dtype in which it computes, and that of its
    result."""

    def rule(*operands: Any) -> DType:
        return _asked(function, tuple(o if isinstance(o, DType) else type(o) for o in operands))

    return rule


@functools.cache
def _asked(function: Callable[..., Any], operands: tuple[Any, ...]) -> DType:
    ones = [np.ones((), o.numpy) if isinstance(o, DType) else o(1) for o in operands]
    try:
        with np.errstate(all="ignore"):
            return dtypes.dtype(np.asarray(function(*ones)).dtype)
    except TypeError:
        raise refused(operands, _instead(operands)) from None


def _instead(operands: Sequence[Any]) -> str:
    if any(o is complex or (isinstance(o, DType) and o.is_complex) for o in operands):
        return "take .real, .imag or abs of the complex operand"
    return "cast an operand"


def refused(operands: Sequence[Any], what: str) -> DTypeError:
    """The error for operands that an op does not accept."""
    names = ", ".join(o.name if isinstance(o, DType) else o.__name__ for o in operands)
    return DTypeError(f"NumPy does not define it for {names}; {what}")


def truth(*operands: Any) -> DType:
    """The dtype of operands that are used as true or false."""
    return dtypes.bool_


def require_literals(computed: DType, operands: Sequence[Any]) -> None:
    """Raise LiteralError for a number among the operands that the dtype of the computation cannot
    represent, as NumPy raises OverflowError."""
    for value in operands:
        if not isinstance(value, TensorType):
            dtypes.literal(value, computed)


def as_truth(value: Expr) -> Expr:
    """An operand as a bool: not equal to zero."""
    if value.dtype.is_bool:
        return value
    return expr.apply("ne", value, expr.const(0, value.dtype))


def attach(record: Op, rule: DTypeRule, scalar: Callable[..., Expr], result: Result) -> None:
    """Attach the type rule and body of an elementwise op. ``scalar`` maps operands that are cast to the dtype
    of ``rule`` to the result. ``result`` is the output dtype if it is not the dtype of the computation, or a
    function of that dtype."""
    names = list(record.tensor_kinds)

    def infer(**bound: Any) -> TensorType:
        operands = [bound[n] for n in names]
        shape = broadcast_shapes(*(shape_of(o) for o in operands))
        computed = rule(*(weak_dtype(o) for o in operands))
        if result is not dtypes.bool_ or any(weak_dtype(o) is dtypes.bool_ for o in operands):
            require_literals(computed, operands)
        if callable(result):
            return TensorType(shape, result(computed))
        return TensorType(shape, result or computed)

    def body(i: MultiIndex, **bound: Any) -> Expr:
        readers = [bound[n] for n in names]
        if rule is truth:
            return scalar(*(as_truth(read_broadcast(r, i)) for r in readers))
        computed = rule(*(_weak(r) for r in readers))
        if result is dtypes.bool_ and not all(_holds(computed, r) for r in readers):
            # a number outside of the range compares the same with every integer
            numbers = (r.value if isinstance(r, expr.ConstReader) else 0 for r in readers)
            return expr.const(bool(record.reference(*numbers)), dtypes.bool_)
        if result is dtypes.bool_ and _mixed_signs(computed, readers):
            return _compared(record, scalar, *(read_broadcast(r, i) for r in readers))
        return scalar(*(read_as(r, i, computed) for r in readers))

    record.infer(infer)
    record.body(body)


def _mixed_signs(computed: DType, readers: Sequence[Reader]) -> bool:
    """Whether a signed integer is combined with an unsigned one of 64 bits; their common dtype is a float."""
    return len(readers) == 2 and computed.is_float and all(r.dtype.is_integer for r in readers)


def _compared(record: Op, compare: Callable[..., Expr], x: Expr, y: Expr) -> Expr:
    """Compare a signed integer with an unsigned one exactly, as NumPy does: a negative number is less than
    every unsigned one."""
    least, signed, wide = ((0, -1), y, x.dtype) if x.dtype.is_unsigned else ((-1, 0), x, y.dtype)
    return expr.where(
        expr.apply("lt", signed, expr.const(0, signed.dtype)),
        expr.const(bool(record.reference(*least)), dtypes.bool_),
        compare(expr.cast(x, wide), expr.cast(y, wide)),
    )


def read_as(reader: Reader, i: MultiIndex, dtype: DType) -> Expr:
    """The element of an operand at output index ``i``, as ``dtype``; Python numbers are weak."""
    if isinstance(reader, expr.ConstReader):
        return expr.Const(dtype, dtypes.literal(reader.value, dtype, wraps=True))
    return expr.cast(read_broadcast(reader, i), dtype)


def _holds(dtype: DType, reader: Reader) -> bool:
    """False for a Python integer that the dtype cannot represent."""
    if not dtype.is_integer or not isinstance(reader, expr.ConstReader):
        return True
    info = np.iinfo(dtype.numpy)
    return bool(info.min <= reader.value <= info.max)


def _weak(reader: Reader) -> Any:
    return reader.value if isinstance(reader, expr.ConstReader) else reader.dtype


#: Facts of a record that are facts of the scalar function that it defines.
_OF_FUNCTION = frozenset(
    ("operator", "cost", "cancels", "keeps", "of_bools", "halves", "complex_cost", "calls", "rows")
)


def elementwise(
    call: Callable[..., Any],
    name: str,
    ufunc: Callable[..., Any],
    doc: str,
    *,
    rule: DTypeRule | None = None,
    scalar: str | Callable[..., Expr] | None = None,
    unless: Callable[..., Expr | None] | None = None,
    result: Result = None,
    compute: Callable[..., Any] | None = None,
    ulp: float = 0.0,
    aliases: tuple[str, ...] = (),
    **facts: Any,
) -> Op:
    """Register an op with the signature of ``call``.

    It is computed in the dtype that ``rule`` returns (None: that of ``ufunc``). Its element is the scalar
    function of its name, or of the name ``scalar``, which is defined unless it already exists; if
    ``unless`` returns an expression, this is used instead. ``scalar`` may also be a function from the
    operands to the element. ``compute`` evaluates the scalar function if ``ufunc`` does not."""
    call.__doc__ = doc
    own = {fact: facts.pop(fact) for fact in _OF_FUNCTION & facts.keys()}
    if isinstance(ufunc, np.ufunc):
        facts["ufunc"] = ufunc
        if ufunc.__name__ != name:
            aliases = (ufunc.__name__, *aliases)
    record = op("pointwise", name=name, aliases=aliases, ulp=ulp, **facts)(call)
    function = name if scalar is None else scalar
    if not callable(function):
        if function not in FUNCTIONS:
            arity = len(record.tensor_kinds)
            define(Function(function, arity, compute or ufunc, result=result, ulp=ulp, **own))
        function = _applied(function, unless)
    attach(record, rule or as_numpy(ufunc), function, result)
    return record


def _applied(name: str, unless: Callable[..., Expr | None] | None) -> Callable[..., Expr]:
    def element(*operands: Expr) -> Expr:
        other = None if unless is None else unless(*operands)
        return expr.apply(name, *operands) if other is None else other

    return element


def unary(
    name: str,
    ufunc: Callable[[Any], Any],
    doc: str,
    *,
    reference: Callable[[Any], Any] | None = None,
    samples: Samples | None = None,
    warns: bool = True,
    **facts: Any,
) -> Op:
    """Register an op of one operand, whose reference is ``ufunc`` unless another is given; see
    :func:`elementwise`. ``warns``: NumPy may issue warnings about values."""
    implementation = _quiet(reference or ufunc) if warns else reference or ufunc

    def call(x: Tensor) -> Tensor:
        return implementation(x)

    base = ["f32[B,5] B=3; f64[7]; f32[]; f32[9]!; f16[4,3]; bf16[6]; i32[5]; f32[0,3]; u32[5]"]
    base += ["bool[4]"] if name in ("square", "relu") else []
    found = base if samples is None else samples
    facts["samples"] = [*found, *_COMPLEX] if _takes_complex(ufunc, 1) else found
    return elementwise(call, name, ufunc, doc, **facts)


_COMPLEX = ["c64[B,5] B=3; c128[7]; c128[]"]
_COMPLEX_PAIRS = ["c64[B,4] c64[4] B=3", S("c128[5]", 1 - 2.5j), S("f32[4]", 1j), "i32[4] c64[4]; 2.0 c64[3]"]


def _takes_complex(ufunc: Callable[..., Any], arity: int) -> bool:
    """Whether NumPy defines a function for complex numbers."""
    try:
        with np.errstate(all="ignore"):
            ufunc(*[np.ones((), np.complex64)] * arity)
    except TypeError:
        return False
    return True


def binary(
    name: str,
    ufunc: Callable[[Any, Any], Any],
    doc: str,
    *,
    reference: Callable[[Any, Any], Any] | None = None,
    samples: Samples | None = None,
    **facts: Any,
) -> Op:
    """Like :func:`unary`, for two operands."""
    implementation = _quiet(reference or ufunc)

    def call(x: Tensor, y: Tensor) -> Tensor:
        return implementation(x, y)

    base = [
        "f32[B,4] f32[B,4] B=3; f32[3,1,4] f32[2,1]; f32[5] 2.5; 3 i32[4]; i32[4] i32[4](1,5); f16[3,3] f32[3]",
        "f64[6]! f64[6]; bf16[4] 0.5; f32[0,4] f32[4]",
    ]
    facts.setdefault("bad", [Bad("f32[3]", "f32[4]", match="do not broadcast")])
    found = base if samples is None else samples
    facts["samples"] = [*found, *_COMPLEX_PAIRS] if _takes_complex(ufunc, 2) else found
    return elementwise(call, name, ufunc, doc, **facts)


def _quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` without NumPy's warnings: division by zero and overflow give values, as in compiled code."""

    def call(*operands: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*operands)

    return call


def float_samples(low: float = -3.0, high: float = 3.0) -> Samples:
    """Samples for a function of one float, with values within these bounds, and special values."""
    within, whole = f"({low},{high})", f"({max(low, 0)},4)"
    floats = (
        f"f32[B,5]{within} B=3; f64[7]{within}; f32[]{within}; f32[9]!; f16[4,3]{within}; bf16[6]{within}; f32[0,3]"
    )
    return [floats, f"i32[5]{whole}; i8[5]{whole}"]


# -- arithmetic ------------------------------------------------------------------------------------
binary(
    "add",
    np.add,
    "Sum ``x + y``.",
    onnx="Add",
    symbol="+",
    operator="+",
    commutative=True,
    associative=True,
    of_bools="or",
    participle="shifted",
)
binary("sub", np.subtract, "Difference ``x - y``.", onnx="Sub", symbol="-", operator="-")
binary(
    "mul",
    np.multiply,
    "Product ``x * y``.",
    onnx="Mul",
    symbol="*",
    operator="*",
    commutative=True,
    complex_cost=6,
    associative=True,
    of_bools="and",
    participle="scaled",
)
binary(
    "div",
    np.true_divide,
    "Quotient ``x / y``; integers give float64.",
    onnx="Div",
    symbol="/",
    operator="/",
    cost=8,
    complex_cost=12,
    aliases=("true_divide",),
)
_DIVISION_SAMPLES: Samples = [
    "f32[4,5] f32[5]; f64[8] 0.75; i32[9] i32[9](-4,5)",  # zero divisors included: 0, as in NumPy
    "i8[6] 3; u8[6](0,250) u8[6](0,7)",
    S(uniform("u16[6]", 0, 2**16), 7),
    S(uniform("u32[6]", 0, 2**32), uniform("u32[6]", 0, 7)),
    S(uniform("u64[6]", 0, 2**63), 10**9),
    "f32[6]! f32[6]",
]
binary(
    "floor_divide",
    np.floor_divide,
    "Floored quotient; integer ``x // 0`` is 0.",
    symbol="//",
    scalar="floordiv",
    cost=8,
    calls=("f64",),
    samples=_DIVISION_SAMPLES,
)
binary(
    "remainder",
    np.remainder,
    "Remainder with the sign of ``y``; integer ``x % 0`` is 0.",
    symbol="%",
    scalar="mod",
    cost=8,
    calls=("f64",),
    aliases=("mod",),
    samples=_DIVISION_SAMPLES,
)


def _power_dtype(x: Any, y: Any) -> DType:
    """NumPy's dtype of a power. Negative powers of integers are not defined."""
    found = as_numpy(np.power)(x, y)
    if not found.is_inexact and type(y) is int and y < 0:
        raise LiteralError(f"an integer raised to {y} is not an integer; raise floats to it: .astype('f32')")
    return found


def _power_reference(x: Any, y: Any) -> Any:
    """NumPy's operator computes exponents such as 2 and 0.5 by products and the square root; np.power rounds the
    results for complex numbers otherwise."""
    is_operator = type(y) in (int, float) and isinstance(x, np.ndarray) and x.dtype.kind in "fc"
    return x**y if is_operator else np.power(x, y)


#: Exponents whose powers are products, within 2.5 ulp for all numbers; with larger exponents they would be less exact.
_PRODUCTS = (3, 4, -1, -2, -0.5, 1.5, 2.5, -1.5)


def _simple_power(x: Expr, y: Expr) -> Expr | None:
    """NumPy uses the square root for the exponent 0.5 (for -0.0 the result is -0.0), and a product for 2. For other
    small exponents, a product is used, too, as no step becomes infinite or subnormal unless the power does."""
    power = y.value if isinstance(y, expr.Const) else None
    if power == 2:
        return expr.apply("mul", x, x)
    if power == 0.5:
        return expr.apply("sqrt", x)
    if power not in _PRODUCTS or x.dtype.is_complex:
        return None
    whole = math.trunc(power)
    if whole == power:
        factor = expr.apply("reciprocal", x) if power < 0 else x
        square = expr.apply("mul", factor, factor)
        products = {1: factor, 2: square, 3: expr.apply("mul", square, factor), 4: expr.apply("mul", square, square)}
        return products[abs(whole)]
    factor = expr.apply("add", x, expr.const(0.0, x.dtype))  # powers of -0.0 equal those of 0.0
    below = expr.apply("eq", x, expr.const(-math.inf, x.dtype))  # whose square root is NaN
    if power == -0.5:
        return expr.where(below, expr.const(0.0, x.dtype), expr.apply("rsqrt", factor))
    if power == -1.5:
        factor = expr.apply("reciprocal", factor)
        return expr.apply("mul", factor, expr.apply("sqrt", factor))
    product = factor if whole == 1 else expr.apply("mul", factor, factor)
    return expr.where(below, expr.const(math.inf, x.dtype), expr.apply("mul", product, expr.apply("sqrt", factor)))


binary(
    "pow",
    np.power,
    "``x`` to the power ``y``.",
    onnx="Pow",
    symbol="**",
    cost=8,
    ulp=0.8,
    reference=_power_reference,
    rule=_power_dtype,
    unless=_simple_power,
    samples=[
        "f32[3,4](0.1,3) f32[4]; f32[6] 2; f32[6] 3.0; f64[5](0.1,2) 0.5; i32[5] 3; 2.0 f32[4]; f64[5] -1.0",
        "f32[9]! 3; f64[9]! 4; f32[9]! -2; f32[9]! -0.5; f64[9]! 1.5; f16[9]! 2.5; f32[9]! -1.5; bf16[5] -1; i8[5] 4",
        "i64[4](0,5) i64[4](0,4)",
    ],
)
binary(
    "maximum",
    np.maximum,
    "The larger of x and y; NaN wins.",
    onnx="Max",
    keeps=True,
    moves_values=True,
    commutative=True,
    associative=True,
    of_bools="or",
)
binary(
    "minimum",
    np.minimum,
    "The smaller of x and y; NaN wins.",
    onnx="Min",
    keeps=True,
    moves_values=True,
    commutative=True,
    associative=True,
    of_bools="and",
)
binary("atan2", np.arctan2, "Angle of the point (y, x): ``arctan2(x, y)``.", cost=8, ulp=1.7)
binary("hypot", np.hypot, "``sqrt(x * x + y * y)``, without overflow in between.", cost=8, ulp=0.6, commutative=True)
binary(
    "logaddexp",
    np.logaddexp,
    "``log(exp(x) + exp(y))``, without overflow in between.",
    cost=8,
    ulp=1.1,
    cancels=True,
    commutative=True,
)
binary("copysign", np.copysign, "The magnitude of x with the sign of y.", keeps=True)
binary("nextafter", np.nextafter, "The next number of the dtype after x toward y.", keeps=True, halves=True)

unary(
    "neg", np.negative, "``-x``.", onnx="Neg", symbol="-", operator="-", keeps=True, inverse="neg", participle="negated"
)
unary(
    "abs",
    np.abs,
    "Absolute value.",
    onnx="Abs",
    numpy="np.abs x",
    keeps=True,
    nonnegative=True,
    keeps_python_numbers=True,
    rule=promoted,
    result=lambda d: d.real,
    complex_cost=4,
    unless=lambda x: x if x.dtype.is_bool else None,
)
unary("sign", np.sign, "-1, 0 or 1; NaN stays NaN.", onnx="Sign", keeps=True)
unary("square", np.square, "``x * x``; of bools int8.", scalar=lambda x: expr.apply("mul", x, x))
unary("fabs", np.fabs, "Absolute value; integers become floats.", scalar="abs")


def _of_float_abs(x: Any) -> Any:
    found = getattr(x, "type", None)
    return (_get("abs"), {"x": x}) if found is not None and found.dtype.is_float else None


def _reciprocal_of_integers(x: Expr) -> Expr | None:
    """The quotient truncated as in C; 0 gives the integer to which infinity is cast."""
    if x.dtype.is_inexact:
        return None
    wide = x.dtype.itemsize >= 4
    none = expr.const(np.iinfo(x.dtype.numpy).min if wide else 0, x.dtype)
    unit = expr.apply("eq", expr.apply("abs", x), expr.const(1, x.dtype))
    zero = expr.apply("eq", x, expr.const(0, x.dtype))
    return expr.where(zero, none, expr.where(unit, x, expr.const(0, x.dtype)))


unary(
    "reciprocal",
    np.reciprocal,
    "``1 / x``; for integers 1, -1 or 0, as in NumPy.",
    onnx="Reciprocal",
    unless=_reciprocal_of_integers,
)


# -- exponentials and trigonometry -----------------------------------------------------------------
def _reciprocal_root_of_halves(x: Expr) -> Expr | None:
    """``1 / sqrt(x)``, rounded after each of the two operations."""
    if x.dtype.compute is x.dtype:
        return None
    return expr.apply("reciprocal", expr.rounded(expr.apply("sqrt", x)))


unary(
    "exp",
    np.exp,
    "``e**x``.",
    onnx="Exp",
    cost=8,
    ulp=1.1,
    nonnegative=True,
    complex_cost=5,
    samples=float_samples(-20, 20),
)
unary("expm1", np.expm1, "``e**x - 1``, exact near 0.", cost=8, ulp=1.5, samples=float_samples(-5, 5))
unary("log", np.log, "Natural logarithm.", onnx="Log", cost=8, ulp=1.0, samples=float_samples(0.01, 100))
unary("log1p", np.log1p, "``log(1 + x)``, exact near 0.", cost=8, ulp=1.5, samples=float_samples(-0.9, 9))
unary(
    "log2", np.log2, "Logarithm to base 2, exact for powers of two.", cost=8, ulp=1.8, samples=float_samples(0.01, 100)
)
unary("sqrt", np.sqrt, "Square root.", onnx="Sqrt", cost=8, samples=float_samples(0, 100))
unary(
    "rsqrt",
    lambda x: 1 / np.sqrt(x),
    "``1 / sqrt(x)``.",
    cost=8,
    unless=_reciprocal_root_of_halves,
    samples=float_samples(0.01, 100),
)
unary("sin", np.sin, "Sine of x in radians.", onnx="Sin", cost=8, ulp=1.6, rows=("f32",), samples=float_samples(-9, 9))
unary(
    "cos", np.cos, "Cosine of x in radians.", onnx="Cos", cost=8, ulp=1.6, rows=("f32",), samples=float_samples(-9, 9)
)
unary("tan", np.tan, "Tangent of x in radians.", onnx="Tan", cost=8, ulp=3.7, samples=float_samples(-1.4, 1.4))
unary("sinh", np.sinh, "Hyperbolic sine.", onnx="Sinh", cost=8, ulp=2.0, samples=float_samples(-5, 5))
unary("cosh", np.cosh, "Hyperbolic cosine.", onnx="Cosh", cost=8, ulp=1.6, samples=float_samples(-5, 5))
unary("tanh", np.tanh, "Hyperbolic tangent.", onnx="Tanh", cost=8, ulp=1.5, samples=float_samples(-6, 6))
unary(
    "asin", np.arcsin, "Inverse of sin, in radians.", onnx="Asin", cost=8, ulp=2.5, samples=float_samples(-0.95, 0.95)
)
unary(
    "acos", np.arccos, "Inverse of cos, in radians.", onnx="Acos", cost=8, ulp=1.5, samples=float_samples(-0.95, 0.95)
)
unary(
    "atan", np.arctan, "Inverse of tan, in radians.", onnx="Atan", cost=8, ulp=1.7, samples=float_samples(-0.95, 0.95)
)


def real_array(x: Any) -> Any:
    """An array of real numbers. Raises TypeError for complex ones."""
    array = np.asarray(x)
    if array.dtype.kind == "c":
        raise TypeError(f"it takes real numbers, not {array.dtype}")
    return array


def erf_reference(x: Any) -> Any:
    """The error function: Python's ``math.erf`` for each element, rounded once to the dtype of x. Raises
    TypeError for complex numbers."""
    array = real_array(x)
    dtype = float_dtype(dtypes.dtype(array.dtype)).numpy
    wide = array.astype(np.float64)
    return _vector_erf(wide).astype(dtype)[()] if wide.size else wide.astype(dtype)


def _vector_erf(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """erf in float64 with |error| < 2e-16 relative to 1: W. J. Cody, "Rational Chebyshev approximation for
    the error function", Math. Comp. 23 (1969) 631-637, with the coefficients of his published tables."""
    y = np.abs(x)
    out = np.empty_like(y)
    small, middle = y <= 0.46875, (y > 0.46875) & (y <= 4.0)
    large = ~(small | middle)
    z = y[small] ** 2
    out[small] = y[small] * _ratio(_CODY_A, _CODY_B, z, lead=_CODY_A[4])
    t = y[middle]
    out[middle] = 1 - np.exp(-t * t) * _ratio(_CODY_C, _CODY_D, t, lead=_CODY_C[8])
    t = np.where(np.isnan(y[large]), 1.0, y[large])
    with np.errstate(all="ignore"):
        w = 1 / (t * t)
        r = w * _ratio(_CODY_P, _CODY_Q, w, lead=_CODY_P[5])
        tail = np.exp(-t * t) * (0.5641895835477562869 - r) / t
    out[large] = np.where(np.isnan(y[large]), np.nan, 1 - np.where(np.isfinite(tail), tail, 0.0))
    return np.copysign(out, x)  # type: ignore[no-any-return]


def _ratio(p: tuple[float, ...], q: tuple[float, ...], x: Any, lead: float) -> Any:
    top, bottom = lead * x, x
    for a, b in zip(p[: len(q) - 1], q[:-1]):
        top, bottom = (top + a) * x, (bottom + b) * x
    return (top + p[len(q) - 1]) / (bottom + q[-1])


_CODY_A = (
    3.16112374387056560e0,
    1.13864154151050156e2,
    3.77485237685302021e2,
    3.20937758913846947e3,
    1.85777706184603153e-1,
)
_CODY_B = (2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3)
_CODY_C = (
    5.64188496988670089e-1,
    8.88314979438837594e0,
    6.61191906371416295e1,
    2.98635138197400131e2,
    8.81952221241769090e2,
    1.71204761263407058e3,
    2.05107837782607147e3,
    1.23033935479799725e3,
    2.15311535474403846e-8,
)
_CODY_D = (
    1.57449261107098347e1,
    1.17693950891312499e2,
    5.37181101862009858e2,
    1.62138957456669019e3,
    3.29079923573345963e3,
    4.36261909014324716e3,
    3.43936767414372164e3,
    1.23033935480374942e3,
)
_CODY_P = (
    3.05326634961232344e-1,
    3.60344899949804439e-1,
    1.25781726111229246e-1,
    1.60837851487422766e-2,
    6.58749161529837803e-4,
    1.63153871373020978e-2,
)
_CODY_Q = (
    2.56852019228982242e0,
    1.87295284992346725e0,
    5.27905102951428412e-1,
    6.05183413124413191e-2,
    2.33520497626869185e-3,
)

_exact_erf = np.vectorize(math.erf, otypes=[np.float64])
unary(
    "erf",
    erf_reference,
    "Error function.",
    onnx="Erf",
    cost=8,
    ulp=1.3,
    compute=lambda x: _exact_erf(x.astype(np.float64)).astype(x.dtype),
    samples=float_samples(-4, 4),
)


def sigmoid_reference(x: Any) -> Any:
    """The logistic function, evaluated without overflow on either side. Raises TypeError for complex
    numbers."""
    array = real_array(x)
    dtype = float_dtype(dtypes.dtype(array.dtype))
    wide = array.astype(dtype.compute.numpy)
    with np.errstate(all="ignore"):
        e = np.exp(-np.abs(wide))
        return np.where(wide >= 0, 1 / (1 + e), np.where(np.isnan(wide), wide, e / (1 + e))).astype(dtype.numpy)[()]


unary(
    "sigmoid",
    sigmoid_reference,
    "Logistic function ``1 / (1 + exp(-x))``.",
    onnx="Sigmoid",
    cost=8,
    ulp=2.5,
    nonnegative=True,
    compute=lambda x: (1 / (1 + np.exp(-x.astype(np.float64)))).astype(x.dtype),
    samples=float_samples(-9, 9),
)


# -- rounding --------------------------------------------------------------------------------------
def _whole(x: Expr) -> Expr | None:
    """An integer itself, because rounding does not change it; None for other dtypes."""
    return None if x.dtype.is_inexact else x


_ROUNDING: dict[str, Any] = {"keeps": True, "unless": _whole, "samples": float_samples(-5, 5)}
unary("floor", np.floor, "The largest integer <= x.", onnx="Floor", **_ROUNDING)
unary("ceil", np.ceil, "The smallest integer >= x.", onnx="Ceil", **_ROUNDING)
unary("trunc", np.trunc, "The integer part of x (rounded toward zero).", aliases=("fix",), **_ROUNDING)
unary("round", np.rint, "The nearest integer; halves are rounded to even.", onnx="Round", **_ROUNDING)

# -- comparison and logic --------------------------------------------------------------------------
COMPARISONS: dict[str, tuple[str, np.ufunc, str]] = {
    "eq": ("==", np.equal, "Equal"),
    "ne": ("!=", np.not_equal, ""),
    "lt": ("<", np.less, "Less"),
    "le": ("<=", np.less_equal, "LessOrEqual"),
    "gt": (">", np.greater, "Greater"),
    "ge": (">=", np.greater_equal, "GreaterOrEqual"),
}
for _name, (_symbol, _comparison, _onnx) in COMPARISONS.items():
    binary(
        _name,
        _comparison,
        f"``x {_symbol} y``, a bool.",
        onnx=_onnx,
        rule=as_numpy(np.add),
        symbol=_symbol,
        operator=_symbol,
        result=dtypes.bool_,
        commutative=_name in ("eq", "ne"),
        samples=[
            "f32[B,4] f32[4] B=2; i32[9] 1; f32[6]! 0.0; bool[4] bool[4]; i64[5] f32[5]; bf16[5] 0.0; u64[5] i64[5]",
            "i8[5] u64[5]",
        ],
    )
_LOGIC = ["bool[3,4] bool[4]; f32[5] i32[5]; bool[4] True"]
_BITS = ["bool[3,4] bool[4]; i32[5] i32[5]; u8[5] 3; i64[5] i8[5]; u64[5] u32[5]"]
for _name in ("and", "or", "xor"):
    _symbol = {"and": "&", "or": "|", "xor": "^"}[_name]
    binary(
        f"logical_{_name}",
        getattr(np, f"logical_{_name}"),
        f"Logical {_name} of truth values.",
        onnx=_name.capitalize(),
        rule=truth,
        scalar=_name,
        result=dtypes.bool_,
        commutative=True,
        associative=True,
        samples=_LOGIC,
    )
    binary(
        f"bitwise_{_name}",
        getattr(np, f"bitwise_{_name}"),
        f"``x {_symbol} y``, bit by bit.",
        onnx=f"Bitwise{_name.capitalize()}",
        scalar=_name,
        symbol=_symbol,
        commutative=True,
        associative=True,
        samples=_BITS,
    )
_SHIFTS: Samples = [
    "i32[5] i32[5](0,8); i64[4] 3; u8[6](0,255) 2",
    S(uniform("u64[6]", 0, 2**63), 3),
    "bool[4] bool[4]",
]
binary("left_shift", np.left_shift, "``x << y``.", scalar="shl", symbol="<<", samples=_SHIFTS)
binary("right_shift", np.right_shift, "``x >> y``, arithmetic.", scalar="shr", symbol=">>", samples=_SHIFTS)
unary(
    "logical_not",
    np.logical_not,
    "True where x is zero or False.",
    onnx="Not",
    rule=truth,
    result=dtypes.bool_,
    operator="!",
    inverse="logical_not",
    samples=["bool[4]; f32[5]; i32[6]"],
)
unary(
    "bitwise_not",
    np.invert,
    "``x`` with all bits inverted.",
    onnx="BitwiseNot",
    symbol="~",
    operator="~",
    scalar="invert",
    inverse="bitwise_not",
    of_bools="logical_not",
    samples=["bool[4]; i32[5]; u8[6]"],
)
_SPECIALS = ["f32[9]!; f64[3,3]!; f16[4]; bf16[7]!"]
unary("isnan", np.isnan, "True where NaN.", onnx="IsNaN", rule=floating, result=dtypes.bool_, samples=_SPECIALS)
unary(
    "isinf", np.isinf, "True where x is infinite.", onnx="IsInf", rule=floating, result=dtypes.bool_, samples=_SPECIALS
)
unary(
    "isfinite",
    np.isfinite,
    "True where x is neither NaN nor infinite.",
    rule=floating,
    result=dtypes.bool_,
    scalar=lambda x: expr.apply("logical_not", expr.apply("or", expr.apply("isnan", x), expr.apply("isinf", x))),
    samples=_SPECIALS,
)

unary(
    "relu",
    lambda x: np.maximum(x, 0),
    "``maximum(x, 0)``; NaN stays NaN.",
    onnx="Relu",
    numpy="np.maximum x 0",
    nonnegative=True,
    scales=True,
    warns=False,
    scalar=lambda x: expr.apply("maximum", x, expr.const(0, x.dtype)),
)


def _relu_of_maximum(x: Any, y: Any) -> Any:
    for value, zero in ((x, y), (y, x)):
        if not isinstance(value, dtypes.NUMBERS) and _is_plain_zero(zero, value):
            return relu, {"x": value}
    return None


def _is_plain_zero(number: Any, x: Any) -> bool:
    """True for a 0 that does not change the dtype of ``x`` and is not -0.0."""
    if type(number) not in (int, float) or number != 0 or math.copysign(1, number) < 0:
        return False
    found = getattr(x, "type", None)
    return type(number) is int or found is None or found.dtype.is_inexact


def _get(name: str) -> Op:
    from fxlite.ops.op import REGISTRY

    return REGISTRY[name]


relu = _get("relu")
_get("fabs").canonical(_of_float_abs)
_get("maximum").canonical(_relu_of_maximum)


# -- with attributes -----------------------------------------------------------------------------
@op(
    "pointwise",
    numpy="np.where condition x y",
    gives_number=None,
    keeps_python_numbers=True,
    samples=[
        "bool[3,4] f32[3,4] f32[4]; bool[5] f32[5] 0.0; i32[4] 1 f32[4]; bool[B,1] i32[4] i64[B,4] B=3",
        "bool[4] bf16[4] 1.0",
    ],
    bad=[Bad("bool[3]", "f32[4]", 0.0, match="do not broadcast")],
    onnx="Where",
)
def where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """``x`` where ``condition`` holds, else ``y``; the three operands broadcast."""
    return np.where(condition, x, y)


def _choice(x: Any, y: Any) -> DType:
    """The dtype of np.where: that of np.result_type, which differs from that of ufuncs for bfloat16 and a
    Python number."""
    try:
        return dtypes.dtype(np.result_type(*(o.numpy if isinstance(o, DType) else o for o in (x, y))))
    except np.exceptions.DTypePromotionError:
        raise DTypeError(f"no common dtype for {x}, {y}; cast one of them first") from None


@where.infer
def _(condition: Any, x: Any, y: Any) -> TensorType:
    shape = broadcast_shapes(*(shape_of(v) for v in (condition, x, y)))
    computed = _choice(weak_dtype(x), weak_dtype(y))
    for value in (x, y):
        if not isinstance(value, TensorType):
            dtypes.literal(value, computed, wraps=True)
    return TensorType(shape, computed)


@where.body
def _(i: MultiIndex, condition: Reader, x: Reader, y: Reader) -> Expr:
    computed = _choice(_weak(x), _weak(y))
    a, b = (read_as(r, i, computed) for r in (x, y))
    return expr.where(as_truth(read_broadcast(condition, i)), a, b)


@op(
    "pointwise",
    aliases=("clamp",),
    samples=["f32[B,4] -0.5 0.5 B=3; f32[5] min=0.25; f64[5] max=0.0; i32[7] -2 2; f32[6]! -1.0 1.0; f16[4] -1 1"],
)
def clip(x: Tensor, min: float | None = None, max: float | None = None) -> Tensor:
    """``minimum(maximum(x, min), max)``, with Python numbers as bounds (None: no bound)."""
    return np.clip(x, min, max)


def clip_bounds(x: Any, min: Any, max: Any) -> tuple[Any, Any]:
    """The bounds, without those that all integers of the dtype satisfy; np.clip ignores these, too."""
    if not isinstance(x, DType) or not x.is_integer:
        return min, max
    info = np.iinfo(x.numpy)
    low = None if type(min) is int and min <= info.min else min
    return low, None if type(max) is int and max >= info.max else max


@clip.canonical
def _(x: Any, min: Any = None, max: Any = None) -> Any:
    low, high = clip_bounds(getattr(getattr(x, "type", None), "dtype", None), min, max)
    if high is None and _is_plain_zero(low, x):
        return relu, {"x": x}
    return None if (low, high) == (min, max) else (clip, {"x": x, "min": low, "max": high})


@clip.infer
def _(x: Any, min: Any, max: Any) -> TensorType:
    low, high = clip_bounds(weak_dtype(x), min, max)
    computed = _clipped(weak_dtype(x), low, high)
    require_literals(computed, [b for b in (low, high) if b is not None])
    return TensorType(shape_of(x), computed)


def _clipped(x: Any, low: Any, high: Any) -> DType:
    """The dtype of np.clip, which copies if there are no bounds."""
    found = [b for b in (low, high) if b is not None]
    rule = as_numpy(np.clip) if len(found) == 2 else as_numpy(np.maximum)
    return rule(x, *found) if found else promoted(x)


@clip.body
def _(i: MultiIndex, x: Reader, min: Any, max: Any) -> Expr:
    low, high = clip_bounds(x.dtype, min, max)
    computed = _clipped(x.dtype, low, high)
    value = expr.cast(x[i], computed)
    if low is not None:
        value = expr.apply("maximum", value, expr.const(low, computed))
    if high is not None:
        value = expr.apply("minimum", value, expr.const(high, computed))
    return value


@op(
    "pointwise",
    gives_number=None,
    aliases=("astype",),
    samples=[
        "f32[B,3] 'f64' B=2; f32[6](-5,5) 'i32'; i32[5] 'f32'; f32[4] 'bool'; bool[4] 'f32'; f64[5] 'f16'",
        "f32[5] 'bf16'; bf16[5] 'f32'; i64[5](-300,300) 'i8'; f16[4] 'f64'; f64[6](0,200) 'u8'; i8[4] 'i16'",
        "c64[5] 'c128'; c128[4] 'f32'; f32[4] 'c64'; i32[3] 'c128'; c64[4] 'bool'; c64[4](-9,9) 'i16'; bf16[3] 'c64'",
        "i64[5] 'u64'",
        S(uniform("u64[5]", 0, 2**63), "f32"),
        "f32[5](0,99) 'u32'",
    ],
)
def cast(x: Tensor, dtype: DType) -> Tensor:
    """``x`` converted to ``dtype``. From float to integer it truncates toward zero; from complex to another
    dtype it drops the imaginary part."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
        return np.asarray(x).astype(dtypes.dtype(dtype).numpy)


@cast.infer
def _(x: Any, dtype: Any) -> TensorType:
    return TensorType(shape_of(x), dtypes.dtype(dtype))


@cast.body
def _(i: MultiIndex, x: Reader, dtype: Any) -> Expr:
    value = x[i]
    target = dtypes.dtype(dtype)
    return as_truth(value) if target.is_bool else expr.cast(value, target)
