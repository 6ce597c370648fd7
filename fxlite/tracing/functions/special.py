"""Special functions, composed of elementary ones: those of Python's math that NumPy does not have, and some of ATen.

In: a traced number or array of float64. Out: the same with the results, which are exact except for a few roundings.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxlite.ops.op import lookup as op

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

#: Chebyshev's coefficients of :func:`scaled_erfc`.
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
#: The erfc of larger numbers is 0.
_NO_TAIL = 40.0
#: The largest integer x for which gamma(x + 1) is finite.
_LAST_FACTORIAL = 170
_FACTORIALS = np.array([math.gamma(n + 1.0) for n in range(_LAST_FACTORIAL + 1)])


def reflected(x: Any) -> tuple[Any, Any, Any]:
    """Whether x < 1/2; the one of x and 1 - x that is not; and pi times the difference of x and the nearest integer."""
    is_low = x < 0.5
    return is_low, op("where")(is_low, 1.0 - x, x), math.pi * (x - op("round")(x))


def _lanczos(x: Any) -> tuple[Any, Any, Any]:
    """For ``x`` >= 1/2: y, p and t with gamma(x) = sqrt(2 pi) * t ** (y + 1/2) * exp(-t) * p."""
    y = x - 1.0
    return y, sum((each / (y + float(i)) for i, each in enumerate(_LANCZOS[1:], 1)), _LANCZOS[0]), y + 7.5


def log_gamma(x: Any) -> Any:
    """The logarithm of the magnitude of gamma(x)."""
    is_low, y, turn = reflected(x)
    y, parts, t = _lanczos(y)
    found = (y + 0.5) * op("log")(t) - t + op("log")(parts) + 0.5 * math.log(2 * math.pi)
    found = op("where")(is_low, math.log(math.pi) - op("log")(op("abs")(op("sin")(turn))) - found, found)
    found = op("where")(op("eq")((x - 1.0) * (x - 2.0), 0.0), 0.0, found)
    is_pole = op("logical_or")(op("isinf")(x), op("logical_and")(x <= 0.0, op("eq")(turn, 0.0)))
    return op("where")(is_pole, math.inf, found)


def gamma(x: Any) -> Any:
    """gamma(x), which for an integer agrees with Python's math."""
    is_low, y, turn = reflected(x)
    y, parts, t = _lanczos(y)
    power = op("pow")(t, 0.5 * y + 0.25)  # a factor twice, because the power may overflow where the result does not
    found = power * op("exp")(-t) * power * (math.sqrt(2 * math.pi) * parts)
    sine = op("sin")(turn) * op("where")(op("eq")(op("round")(x) % 2.0, 0.0), 1.0, -1.0)
    found = op("where")(is_low, math.pi / (sine * found), found)
    whole = op("logical_and")(op("logical_and")(x >= 1.0, x <= _LAST_FACTORIAL + 1.0), op("eq")(op("floor")(x), x))
    exact = op("take")(_FACTORIALS, op("cast")(op("where")(whole, x, 1.0), "i64") - 1, axis=0)
    found = op("where")(whole, exact, found)
    pole = op("where")(op("eq")(x, 0.0), op("copysign")(math.inf, x), math.nan)
    found = op("where")(op("logical_and")(x <= 0.0, op("eq")(turn, 0.0)), pole, found)
    return op("where")(op("eq")(x, math.inf), math.inf, found)


def scaled_erfc(size: Any) -> Any:
    """erfc(size) * exp(size * size) for size >= 0, from a Chebyshev series of its logarithm (W. H. Press et al.,
    Numerical Recipes, 3rd edition, section 6.2.2)."""
    t = 2.0 / (2.0 + size)
    y = 4.0 * t - 2.0
    now, before = t * 0.0, t * 0.0
    for each in _TAIL[:0:-1]:
        now, before = y * now - before + each, now
    return t * op("exp")(0.5 * (_TAIL[0] + y * now) - before)


def erfc(x: Any) -> Any:
    """The complementary error function, 1 - erf(x)."""
    size = op("minimum")(op("abs")(x), _NO_TAIL)
    near = op("cast")(op("cast")(size, "f32"), "f64")  # whose square is exact
    found = scaled_erfc(size) * op("exp")(-near * near) * op("exp")((near - size) * (near + size))
    return op("where")(x < 0.0, 2.0 - found, found)


def remainder(x: Any, y: Any) -> Any:
    """``math.remainder(x, y)``: the difference of x and the nearest multiple of y, without rounding."""
    size, step = op("abs")(x), op("abs")(y)
    over = op("fmod")(size, step)
    rest = step - over
    middle = over - 2.0 * op("fmod")(0.5 * (size - over), step)  # if two multiples are equally near: the even one
    found = op("where")(over < rest, over, op("where")(over > rest, -rest, middle))
    return op("where")(op("isinf")(step), x, op("copysign")(1.0, x) * found)
