"""ATen's special functions, made of elementary ones. They are computed in float64, so that float32 loses nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxlite.importing.torch.table import Call, aten, cast, op
from fxlite.types import dtypes

_FAR = 25.0  # from there on Bessel functions are their asymptotic series
_TERMS = 20  # of it
#: Bernoulli's numbers B2, B4, ...
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
#: Lanczos' approximation of the gamma function, g = 7.
_LANCZOS = (
    0.99999999999980993,
    676.5203681218851,
    -1259.1392167224028,
    771.32342877765313,
    -176.61502916214059,
    12.507343278686905,
    -0.13857109526572012,
    9.9843695780195716e-6,
    1.5056327351493116e-7,
)

#: Chebyshev's coefficients of :func:`_tail`.
_TAIL = (
    -1.3026537197817094,
    6.4196979235649026e-1,
    1.9476473204185836e-2,
    -9.561514786808631e-3,
    -9.46595344482036e-4,
    3.66839497852761e-4,
    4.2523324806907e-5,
    -2.0278578112534e-5,
    -1.624290004647e-6,
    1.303655835580e-6,
    1.5626441722e-8,
    -8.5238095915e-8,
    6.529054439e-9,
    5.059343495e-9,
    -9.91364156e-10,
    -2.27365122e-10,
    9.6467911e-11,
    2.394038e-12,
    -6.886027e-12,
    8.94487e-13,
    3.13092e-13,
    -1.12708e-13,
    3.81e-16,
    7.106e-15,
    -1.523e-15,
    -9.4e-17,
    1.21e-16,
    -2.8e-17,
)


def _special(names: str) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Enters a function of a float64 value."""

    def enter(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        aten(*names.split())(lambda c, x: cast(function(cast(x, dtypes.float64)), c.dtype))
        return function

    return enter


def _polynomial(x: Any, coefficients: tuple[float, ...]) -> Any:
    """Horner's scheme, the coefficient of the highest power first."""
    found = coefficients[0]
    for each in coefficients[1:]:
        found = found * x + each
    return found


def _reflected(x: Any) -> tuple[Any, Any, Any]:
    """Whether x is below 1/2, x or 1 - x, which is not, and pi times what x is more than an integer."""
    is_low = x < 0.5
    return is_low, op("where")(is_low, 1.0 - x, x), math.pi * (x - op("floor")(x))


@_special("lgamma special_gammaln")
def _lgamma(x: Any) -> Any:
    is_low, y, turn = _reflected(x)
    y = y - 1.0
    parts = sum((each / (y + float(i)) for i, each in enumerate(_LANCZOS[1:], 1)), _LANCZOS[0])
    t = y + 7.5
    found = (y + 0.5) * op("log")(t) - t + op("log")(parts) + 0.5 * math.log(2 * math.pi)
    found = op("where")(is_low, math.log(math.pi) - op("log")(op("sin")(turn)) - found, found)
    is_pole = op("logical_or")(op("isinf")(x), op("logical_and")(x <= 0.0, op("eq")(turn, 0.0)))
    return op("where")(is_pole, math.inf, found)


@_special("digamma special_psi special_digamma")
def _digamma(x: Any) -> Any:
    is_low, y, turn = _reflected(x)
    far = y + 10.0
    found = op("log")(far) - 0.5 / far - sum(1.0 / (y + float(i)) for i in range(10))
    square = 1.0 / (far * far)
    found = found - square * _polynomial(square, tuple(b / (2 * k) for k, b in enumerate(_BERNOULLI, 1))[::-1])
    found = op("where")(is_low, found - math.pi / op("tan")(turn), found)
    pole = op("where")(op("eq")(x, 0.0), -op("copysign")(math.inf, x), math.nan)
    return op("where")(op("logical_and")(x <= 0.0, op("eq")(turn, 0.0)), pole, found)


def _trigamma(x: Any) -> Any:
    is_low, y, turn = _reflected(x)
    far = y + 10.0
    square = 1.0 / (far * far)
    series = 1.0 / far + 0.5 * square + square / far * _polynomial(square, _BERNOULLI[::-1])
    found = series + sum(1.0 / ((y + float(i)) * (y + float(i))) for i in range(10))
    sine = op("sin")(turn)
    return op("where")(is_low, (math.pi * math.pi) / (sine * sine) - found, found)


@aten("polygamma", "special_polygamma")
def _polygamma(c: Call, n: Any, x: Any) -> Any:
    n, x = (n, x) if isinstance(n, int) else (x, n)  # polygamma_ has them the other way round
    if n > 1:
        raise c.refuse(f"the derivative of order {n + 1} of lgamma; those of orders 1 and 2 are there")
    return cast((_trigamma if n else _digamma)(cast(x, dtypes.float64)), c.dtype)


@_special("erfinv special_erfinv")
def _erfinv(y: Any) -> Any:
    """A rational approximation, and two steps of Newton's method, as torch does it."""
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


def _tail(size: Any) -> Any:
    """erfc(size) times exp(size * size), of what is not negative: a Chebyshev series of its logarithm (W. H. Press et
    al., Numerical Recipes, 3rd edition, section 6.2.2)."""
    t = 2.0 / (2.0 + size)
    y = 4.0 * t - 2.0
    now, before = t * 0.0, t * 0.0
    for each in _TAIL[:0:-1]:
        now, before = y * now - before + each, now
    return t * op("exp")(0.5 * (_TAIL[0] + y * now) - before)


@_special("special_erfc erfc")
def _erfc(x: Any) -> Any:
    found = _tail(op("abs")(x)) * op("exp")(-x * x)
    return op("where")(x < 0.0, 2.0 - found, found)


@_special("special_erfcx")
def _erfcx(x: Any) -> Any:
    found = _tail(op("abs")(x))
    return op("where")(x < 0.0, 2.0 * op("exp")(x * x) - found, found)


@_special("special_ndtri")
def _ndtri(p: Any) -> Any:
    """The normal quantile: a rational approximation from the nearer end, and two steps of Halley's method."""
    is_low = p < 0.5
    rest = 2.0 * op("where")(is_low, p, 1.0 - p)
    t = op("sqrt")(-2.0 * op("log")(rest / 2.0))
    x = math.sqrt(0.5) * (t - (2.30753 + t * 0.27061) / (1.0 + t * (0.99229 + t * 0.04481)))
    for _ in range(2):
        error = _erfc(x) - rest
        x = x + error / (2 / math.sqrt(math.pi) * op("exp")(-x * x) - x * error)
    x = math.sqrt(2) * op("where")(op("eq")(rest, 0.0), math.inf, x)
    return op("where")(is_low, -x, x)


# -- Bessel functions: means over a circle, which the trapezoidal rule has exactly, or the series of Hankel --------
def _turns(x: Any) -> tuple[Any, Any]:
    """What is near enough, with an axis for the angles of a circle; and these."""
    return op("minimum")(x, _FAR)[..., None], np.arange(64) * (2 * math.pi / 64)


def _hankel(x: Any, order: int) -> list[Any]:
    """The terms of the asymptotic series at what is far enough, and not infinite."""
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
    terms = _hankel(size, order)
    turn = size - (order / 2 + 0.25) * math.pi
    even, odd = (sum((-1) ** k * term for k, term in enumerate(terms[first::2])) for first in (0, 1))
    far = (even * op("cos")(turn) - odd * op("sin")(turn)) * op("sqrt")(2 / (math.pi * size))
    found = op("where")(size <= _FAR, found, far)
    return _odd(x, found * op("sign")(x), 0.5 * x * (1 - x * x / 8)) if order else found


def _odd(x: Any, found: Any, near: Any) -> Any:
    """A function of order 1; near 0 its series, as of sums of numbers around 1 nothing is left there."""
    return op("where")(op("abs")(x) < 1e-4, near, found)


def _enter(order: int) -> None:
    _special(f"special_i{order}e")(lambda x: _scaled_i(x, order))
    _special("i0 special_i0" if not order else "special_i1")(lambda x: _scaled_i(x, order) * op("exp")(op("abs")(x)))
    _special(f"special_bessel_j{order}")(lambda x: _j(x, order))


for _order in (0, 1):
    _enter(_order)
