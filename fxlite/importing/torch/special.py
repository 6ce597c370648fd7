"""ATen's special functions, composed of elementary ones. They are computed in float64, so that float32 results
lose no precision."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import fxlite as fx
from fxlite.importing.torch.table import Call, as_array, aten, cast, op
from fxlite.tracing.functions.special import erfc, log_gamma, reflected, scaled_erfc
from fxlite.types import dtypes

_FAR = 25.0  # from here on, Bessel functions are computed from their asymptotic series
_TERMS = 20  # terms of this series
#: Bernoulli's numbers B2, B4, ...
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)


def _special(names: str) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """A decorator that adds a function of a float64 value to the table."""

    def enter(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        aten(*names.split())(lambda c, x: cast(function(cast(x, dtypes.float64)), c.dtype))
        return function

    return enter


def _polynomial(x: Any, coefficients: tuple[float, ...]) -> Any:
    """A polynomial by Horner's scheme, with the coefficient of the highest power first."""
    found = coefficients[0]
    for each in coefficients[1:]:
        found = found * x + each
    return found


_special("lgamma special_gammaln")(log_gamma)


@_special("digamma special_psi special_digamma")
def _digamma(x: Any) -> Any:
    is_low, y, turn = reflected(x)
    far = y + 10.0
    found = op("log")(far) - 0.5 / far - sum(1.0 / (y + float(i)) for i in range(10))
    square = 1.0 / (far * far)
    found = found - square * _polynomial(square, tuple(b / (2 * k) for k, b in enumerate(_BERNOULLI, 1))[::-1])
    found = op("where")(is_low, found - math.pi / op("tan")(turn), found)
    pole = op("where")(op("eq")(x, 0.0), -op("copysign")(math.inf, x), math.nan)
    return op("where")(op("logical_and")(x <= 0.0, op("eq")(turn, 0.0)), pole, found)


def _of_cotangent(order: int) -> tuple[float, ...]:
    """The derivative of the cotangent of an order, as a polynomial of the cotangent, with the highest power first."""
    found = np.polynomial.Polynomial([0.0, 1.0])
    for _ in range(order):
        found = -found.deriv() * np.polynomial.Polynomial([1.0, 0.0, 1.0])
    return tuple(map(float, found.coef[::-1]))


def _derivative(x: Any, order: int) -> Any:
    """The derivative of the digamma function of an order from 1 on: a sum over the first numbers, and Euler and
    Maclaurin's formula for the rest. The values below 1/2 are found by reflection."""
    is_low, y, turn = reflected(x)
    factorial, first = math.factorial(order), 10 + order
    far = y + float(first)
    square = 1.0 / (far * far)
    rest, factor = _polynomial(square, tuple(b * _rising(order, k) for k, b in enumerate(_BERNOULLI, 1))[::-1]), far
    found = (1.0 / order + 0.5 / factor + square * rest) * (1.0 / factor) ** order
    found = factorial * (found + sum((1.0 / (y + float(i))) ** (order + 1) for i in range(first)))
    cotangent = op("cos")(turn) / op("sin")(turn)
    low = -found - _polynomial(cotangent, _of_cotangent(order)) * math.pi ** (order + 1)
    found = op("where")(is_low, low, -found if order % 2 == 0 else found)
    pole = math.inf if order % 2 else -math.inf
    return op("where")(op("logical_and")(x <= 0.0, op("eq")(turn, 0.0)), pole, found)


def _rising(order: int, k: int) -> float:
    """The factor of Bernoulli's number 2k in the remainder of a sum of powers."""
    return math.prod(range(order + 1, order + 2 * k)) / math.factorial(2 * k)


@aten("polygamma", "special_polygamma")
def _polygamma(c: Call, n: Any, x: Any) -> Any:
    n, x = (n, x) if isinstance(n, int) else (x, n)  # polygamma_ has them in reverse order
    x = cast(x, dtypes.float64)
    return cast(_derivative(x, n) if n else _digamma(x), c.dtype)


@aten("special_zeta")
def _zeta(c: Call, x: Any, q: Any) -> Any:
    """Hurwitz's zeta function, a sum of ``(q + k) ** -x``: at least ten numbers up to 10 or more one by one, and Euler
    and Maclaurin's formula for the rest."""
    x, q = np.broadcast_arrays(*(c.run.importer.as_proxy(as_array(v, dtypes.float64)) for v in (x, q)))
    found, at = q * 0.0, q
    for _ in range(10):
        found, at = found + at**-x, at + 1.0
    found, at = fx.while_loop(
        lambda found, at: op("any")(at < 10.0),
        lambda found, at: (op("where")(at < 10.0, found + at**-x, found), op("where")(at < 10.0, at + 1.0, at)),
        (found, at),
    )
    power = at**-x
    found = found + power * (at / (x - 1.0) + 0.5)
    factor = power * x / at
    for k, number in enumerate(_BERNOULLI, 1):
        found = found + number / math.factorial(2 * k) * factor
        factor = factor * (x + (2.0 * k - 1.0)) * (x + 2.0 * k) / (at * at)
    is_whole = op("eq")(op("floor")(q), q)
    found = op("where")(q <= 0.0, op("where")(is_whole, math.inf, found), found)
    undefined = op("logical_and")(q <= 0.0, op("ne")(op("floor")(x), x))
    found = op("where")(op("logical_and")(undefined, op("logical_not")(is_whole)), math.nan, found)
    return cast(op("where")(op("eq")(x, 1.0), math.inf, op("where")(x < 1.0, math.nan, found)), c.dtype)


#: The largest order of a polynomial, which is unrolled.
_LARGEST_ORDER = 100
#: Orthogonal polynomials: ``(a, b)`` of the one of order 1, ``a * x + b``.
_FIRST = {
    "chebyshev_polynomial_t": (1.0, 0.0),
    "chebyshev_polynomial_u": (2.0, 0.0),
    "chebyshev_polynomial_v": (2.0, -1.0),
    "chebyshev_polynomial_w": (2.0, 1.0),
    "hermite_polynomial_h": (2.0, 0.0),
    "hermite_polynomial_he": (1.0, 0.0),
    "laguerre_polynomial_l": (-1.0, 1.0),
    "legendre_polynomial_p": (1.0, 0.0),
}


def _following(name: str, k: int) -> tuple[float, float, float]:
    """``(a, b, c)`` of the polynomial of order k + 1: ``(a * x + b)`` times that of order k, less ``c`` times that
    before."""
    return {
        "hermite_polynomial_h": (2.0, 0.0, 2.0 * k),
        "hermite_polynomial_he": (1.0, 0.0, 1.0 * k),
        "laguerre_polynomial_l": (-1.0 / (k + 1), (2.0 * k + 1) / (k + 1), k / (k + 1)),
        "legendre_polynomial_p": ((2.0 * k + 1) / (k + 1), 0.0, k / (k + 1)),
    }.get(name, (2.0, 0.0, 1.0))


@aten(*(f"special_{kind}{name}" for kind in ("", "shifted_") for name in _FIRST if not kind or "chebyshev" in name))
def _orthogonal(c: Call, x: Any, n: Any) -> Any:
    if not isinstance(n, int) or n > _LARGEST_ORDER:
        raise c.refuse(f"an order that is not an integer up to {_LARGEST_ORDER}")
    name, x = c.name.removeprefix("special_"), cast(x, dtypes.float64)
    if name.startswith("shifted_"):
        name, x = name.removeprefix("shifted_"), 2.0 * x - 1.0
    slope, start = _FIRST[name]
    before, found = x * 0.0 + (1.0 if n >= 0 else 0.0), slope * x + start
    for k in range(1, n):
        slope, start, less = _following(name, k)
        before, found = found, (slope * x + start) * found - less * before
    return cast(found if n >= 1 else before, c.dtype)


@_special("erfinv special_erfinv")
def _erfinv(y: Any) -> Any:
    """A rational approximation followed by two steps of Newton's method, as in torch."""
    size = op("abs")(y)
    z = y * y
    middle = _polynomial(z, (-0.140543331, 0.914624893, -1.645349621, 0.886226899))
    middle = y * middle / _polynomial(z, (0.012229801, -0.329097515, 1.442710462, -2.118377725, 1.0))
    z = op("sqrt")(-op("log")((1.0 - size) / 2.0))
    end = _polynomial(z, (1.641345311, 3.429567803, -1.624906493, -1.970840454))
    end = op("copysign")(end / _polynomial(z, (1.637067800, 3.543889200, 1.0)), y)
    x = op("where")(size <= 0.7, middle, end)
    for _ in range(2):
        x = x - (op("erf")(x) - y) * op("exp")(x * x) * (math.sqrt(math.pi) / 2)
    return op("where")(op("eq")(size, 1.0), op("copysign")(math.inf, y), x)


_special("special_erfc erfc")(erfc)


@_special("special_erfcx")
def _erfcx(x: Any) -> Any:
    found = scaled_erfc(op("abs")(x))
    return op("where")(x < 0.0, 2.0 * op("exp")(x * x) - found, found)


@_special("special_ndtri")
def _ndtri(p: Any) -> Any:
    """The normal quantile: a rational approximation from the nearer end, followed by two steps of Halley's method."""
    is_low = p < 0.5
    rest = 2.0 * op("where")(is_low, p, 1.0 - p)
    t = op("sqrt")(-2.0 * op("log")(rest / 2.0))
    x = math.sqrt(0.5) * (t - (2.30753 + t * 0.27061) / (1.0 + t * (0.99229 + t * 0.04481)))
    for _ in range(2):
        error = erfc(x) - rest
        x = x + error / (2 / math.sqrt(math.pi) * op("exp")(-x * x) - x * error)
    x = math.sqrt(2) * op("where")(op("eq")(rest, 0.0), math.inf, x)
    return op("where")(is_low, -x, x)


# -- Bessel functions: means over a circle, for which the trapezoidal rule is exact, or Hankel's series ------------
def _turns(x: Any, count: int = 64) -> tuple[Any, Any]:
    """The arguments that are near 0 (others limited), with an axis for the angles of a circle; and these angles."""
    return op("minimum")(x, _FAR)[..., None], np.arange(count) * (2 * math.pi / count)


def _hankel(x: Any, order: int) -> list[Any]:
    """The terms of the asymptotic series, for arguments that are large enough and finite (others limited)."""
    x = op("clip")(x, _FAR, 1e300)
    terms = [x * 0.0 + 1.0]
    for k in range(1, _TERMS):
        terms.append(terms[-1] * ((4 * order**2 - (2 * k - 1) ** 2) / (8 * k)) / x)
    return terms


def _scaled_i(x: Any, order: int) -> Any:
    """The modified Bessel function of the first kind, times exp(-|x|)."""
    size = op("abs")(x)
    near, turns = _turns(size)
    found = op("mean")(op("exp")(near * (np.cos(turns) - 1)) * np.cos(order * turns), (-1,))
    series = sum((-1) ** k * term for k, term in enumerate(_hankel(size, order)))
    found = op("where")(size <= _FAR, found, series / op("sqrt")(2 * math.pi * size))
    return _odd(x, found * op("sign")(x), 0.5 * x * (1 + x * x / 8) * op("exp")(-size)) if order else found


def _j(x: Any, order: int) -> Any:
    size = op("abs")(x)
    near, turns = _turns(size)
    found = op("mean")(op("cos")(order * turns - near * np.sin(turns)), (-1,))
    found = op("where")(size <= _FAR, found, _far(size, order)[0])
    return _odd(x, found * op("sign")(x), 0.5 * x * (1 - x * x / 8)) if order else found


def _far(x: Any, order: int) -> tuple[Any, Any]:
    """The Bessel functions of the first and second kind of large arguments."""
    turn = x - (order / 2 + 0.25) * math.pi
    even, odd = (sum((-1) ** k * t for k, t in enumerate(_hankel(x, order)[first::2])) for first in (0, 1))
    size, cos, sin = op("sqrt")(2 / (math.pi * x)), op("cos")(turn), op("sin")(turn)
    return (even * cos - odd * sin) * size, (even * sin + odd * cos) * size


def _y(x: Any, order: int) -> Any:
    """The Bessel function of the second kind: near 0 Neumann's series of those of the first kind (Abramowitz and
    Stegun, 9.1.88 and 9.1.89), whose orders are summed before the mean over the circle."""
    near, turns = _turns(op("maximum")(x, 1e-300), 128)
    orders = range(1, 32)
    if order:
        weights = sum((-1) ** k * (2 * k + 1) / (k * (k + 1)) * np.sin((2 * k + 1) * turns) for k in orders)
        others = op("mean")(weights * op("sin")(near * np.sin(turns)), (-1,))
    else:
        weights = sum((-1) ** k * 2 / k * np.cos(2 * k * turns) for k in orders)
        others = op("mean")(weights * op("cos")(near * np.sin(turns)), (-1,))
    start = near[..., 0]
    found = (op("log")(start / 2) + np.euler_gamma - order) * _j(start, order) - others
    found = (found - _j(start, 0) / start if order else found) * (2 / math.pi)
    found = op("where")(x <= _FAR, found, _far(x, order)[1])
    return op("where")(op("eq")(x, 0.0), -math.inf, op("where")(x < 0.0, math.nan, found))


def _odd(x: Any, found: Any, near: Any) -> Any:
    """A function of order 1. Near 0 its series is used, because sums of numbers around 1 would cancel there."""
    return op("where")(op("abs")(x) < 1e-4, near, found)


def _enter(order: int) -> None:
    _special(f"special_i{order}e")(lambda x: _scaled_i(x, order))
    name = f"special_i{order} special_modified_bessel_i{order}"
    _special(name if order else f"i0 {name}")(lambda x: _scaled_i(x, order) * op("exp")(op("abs")(x)))
    _special(f"special_bessel_j{order}")(lambda x: _j(x, order))
    _special(f"special_bessel_y{order}")(lambda x: _y(x, order))


for _order in (0, 1):
    _enter(_order)


# -- incomplete gamma functions --------------------------------------------------------------------
_LARGE = 100.0  # from here on, an integral by Gauss and Legendre's rule replaces series and fraction
_STEPS = 250  # terms of these


def _incomplete_gamma(a: Any, x: Any) -> tuple[Any, Any]:
    """The regularized lower and upper incomplete gamma functions (Numerical Recipes, 3rd edition, 6.2)."""
    is_far = x >= a + 1.0
    factor = op("exp")(a * op("log")(x) - x - log_gamma(a))

    def step(k: Any, state: Any) -> Any:
        term, total, b, c, d, fraction = state
        number = cast(k, dtypes.float64) + 1.0
        term = term * x / (a + number)
        b = b + 2.0
        up = -number * (number - a)
        d = 1.0 / _away_from_zero(up * d + b)
        c = _away_from_zero(b + up / c)
        return term, total + term, b, c, d, fraction * c * d

    one, first = 1.0 / a, x + 1.0 - a
    inverse = 1.0 / _away_from_zero(first)
    state = fx.fori_loop(0, _STEPS, step, (one, one, first, first * 0.0 + 1e300, inverse, inverse))
    low, high = state[1] * factor, state[5] * factor
    low, high = op("where")(is_far, 1.0 - high, low), op("where")(is_far, high, 1.0 - low)
    below, above = _integrated(op("maximum")(a, _LARGE), x)
    is_large = a >= _LARGE
    low, high = op("where")(is_large, below, low), op("where")(is_large, above, high)
    for at, values in (
        (op("eq")(a, 0.0), (1.0, 0.0)),
        (op("eq")(x, 0.0), (0.0, 1.0)),
        (op("isinf")(x), (1.0, 0.0)),
        (op("isinf")(a), (0.0, 1.0)),
        (op("logical_and")(op("isinf")(a), op("isinf")(x)), (math.nan, math.nan)),
        (op("logical_and")(op("eq")(a, 0.0), op("eq")(x, 0.0)), (math.nan, math.nan)),
        (op("logical_or")(a < 0.0, x < 0.0), (math.nan, math.nan)),
    ):
        low, high = op("where")(at, values[0], low), op("where")(at, values[1], high)
    return low, high


def _away_from_zero(x: Any) -> Any:
    return op("where")(op("abs")(x) < 1e-300, 1e-300, x)


def _integrated(a: Any, x: Any) -> tuple[Any, Any]:
    """The functions for large ``a``: an integral from ``x`` away from the peak to where the integrand is negligible."""
    peak = a - 1.0
    width, is_above = op("sqrt")(peak), x > peak
    end = op("where")(
        is_above,
        op("maximum")(peak + 11.5 * width, x + 6.0 * width),
        op("maximum")(0.0, op("minimum")(peak - 7.5 * width, x - 5.0 * width)),
    )
    most = 40.0 * x / op("maximum")(op("abs")(peak - x), 1e-300)
    length = op("maximum")(-most, op("minimum")(most, end - x))
    places, weights = np.polynomial.legendre.leggauss(32)
    part = ((x - peak)[..., None] + length[..., None] * (0.5 * places + 0.5)) / peak[..., None]
    powers = peak[..., None] * (op("log1p")(part) - part)
    inverse = 1.0 / peak
    stirling = inverse * (1 / 12 - inverse * inverse * (1 / 360 - inverse * inverse / 1260))
    found = op("sum")(0.5 * weights * op("exp")(powers), (-1,)) * length / (op("sqrt")(2 * math.pi * peak))
    found = found * op("exp")(-stirling)
    return op("where")(is_above, 1.0 - found, -found), op("where")(is_above, found, 1.0 + found)


@aten("igamma", "special_gammainc", "igammac", "special_gammaincc")
def _igamma(c: Call, a: Any, x: Any) -> Any:
    a, x = np.broadcast_arrays(*(c.run.importer.as_proxy(cast(v, dtypes.float64)) for v in (a, x)))
    return cast(_incomplete_gamma(a, x)[c.name in ("igammac", "special_gammaincc")], c.dtype)
