"""Computes the coefficients in codegen/c/fx_math.h: polynomials of least largest error.

In: names of `POLYNOMIALS`, or none for all: ``python tests/codegen/remez.py [NAME ...]``. Out, for
each: its coefficients, lowest power first, and log2 of the largest weighted error that they leave.

The method is Remez's second algorithm (E. Remez, 1934; Muller, "Elementary Functions", ch. 3) in
50-digit arithmetic: solve for the polynomial whose weighted error alternates between +e and -e at
degree + 2 points, move the points to the extrema of the error, repeat. The coefficients are then
rounded to the working precision; the forms are chosen so that this hardly adds to the error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath  # type: ignore[import-untyped]
import numpy as np
from mpmath import mp, mpf

mp.dps = 50
Function = Callable[[Any], Any]
GRID = 1000  # points at which the error is looked at between iterations


@dataclass(frozen=True)
class Polynomial:
    """``target(x) ~ sum of coefficient[k] * x**k, k <= degree`` for `low` <= x <= `high`, least in
    ``weight(x) * error``; `numpy` is the type the coefficients are rounded to."""

    target: Function
    weight: Function
    degree: int
    low: float
    high: float
    numpy: type[np.floating[Any]] = np.float32


def minimax(target: Function, weight: Function, powers: Sequence[int], low: Any, high: Any) -> tuple[list[Any], Any]:
    """Coefficients of x**powers of least largest weighted error, and that error."""
    count = len(powers) + 1
    points = [(low + high) / 2 - (high - low) / 2 * mpmath.cos(mp.pi * (2 * i + 1) / (2 * count)) for i in range(count)]
    grid = [(low + high) / 2 - (high - low) / 2 * mpmath.cos(mp.pi * i / GRID) for i in range(GRID + 1)]
    targets, weights = [target(x) for x in grid], [weight(x) for x in grid]
    coefficients: list[Any] = []
    for _ in range(30):
        rows = [[x**p for p in powers] + [(-1) ** i / weight(x)] for i, x in enumerate(points)]
        solution = list(mpmath.lu_solve(mp.matrix(rows), mp.matrix([target(x) for x in points])))
        coefficients, level = solution[:-1], abs(solution[-1])
        errors = [
            w * (t - sum(c * x**p for c, p in zip(coefficients, powers))) for x, t, w in zip(grid, targets, weights)
        ]
        extrema = _alternating(errors, count)
        largest = max(abs(e) for e in errors)
        if extrema is None or largest < level * mpf("1.001"):
            return coefficients, largest
        points = [grid[i] for i in extrema]
    return coefficients, largest


def _alternating(errors: Sequence[Any], count: int) -> list[int] | None:
    """The places of `count` extrema of alternating sign with the largest errors, or None."""
    best: list[int] = []
    for i, error in enumerate(errors):
        if best and (errors[best[-1]] > 0) == (error > 0):
            if abs(error) > abs(errors[best[-1]]):
                best[-1] = i
        else:
            best.append(i)
    while len(best) > count:
        best.pop(0 if abs(errors[best[0]]) < abs(errors[best[-1]]) else -1)
    return best if len(best) == count else None


def fit(polynomial: Polynomial) -> tuple[list[float], float]:
    """The rounded coefficients, and log2 of the largest weighted error."""
    low, high = mpf(polynomial.low), mpf(polynomial.high)
    powers = range(polynomial.degree + 1)
    exact, _ = minimax(polynomial.target, polynomial.weight, powers, low, high)
    rounded = [float(polynomial.numpy(float(c))) for c in exact]

    def error(x: Any) -> Any:
        value = sum(mpf(c) * x**k for k, c in enumerate(rounded))
        return abs(polynomial.weight(x) * (polynomial.target(x) - value))

    steps = [low + (high - low) * i / 4000 for i in range(4001)]
    return rounded, float(mpmath.log(max(error(x) for x in steps), 2))


def _series(function: Function, terms: Sequence[tuple[int, Any]], power: int) -> Function:
    """(function(x) - its first Taylor terms) / x**power; near 0 in more digits, for they cancel."""

    def remainder(x: Any) -> Any:
        with mp.workdps(140):
            x = mpf(x) if x else mpf(10) ** -30
            return (function(x) - sum(mpf(c) * x**k for k, c in terms)) / x**power

    return remainder


def _of_square(function: Function) -> Function:
    """The function of x as one of u = x**2."""
    return lambda u: function(mpmath.sqrt(u))


HALF_LN2, QUARTER_PI, SQRT2 = 0.34660, 0.78541, 1.41422
with mp.workdps(200):
    TWO_THIRDS = mpf(2) / 3
sine, cosine = mpmath.sin, mpmath.cos

# The weight turns the error of the inner polynomial into the relative error of the function.
POLYNOMIALS = {
    # exp(r) = 1 + r + r^2 P(r)
    "exp": Polynomial(
        _series(mpmath.exp, [(0, 1), (1, 1)], 2),
        lambda r: r * r / mpmath.exp(r) + mpf(2) ** -40,
        4,
        -HALF_LN2,
        HALF_LN2,
    ),
    # expm1(r) = r + r^2 P(r)
    "expm1": Polynomial(
        _series(mpmath.expm1, [(1, 1)], 2),
        lambda r: abs(r * r / mpmath.expm1(r)) + mpf(2) ** -40 if r else mpf(2) ** -40,
        5,
        -HALF_LN2,
        HALF_LN2,
    ),
    # log(1 + f) = f - f^2/2 + f^3 P(f)
    "log": Polynomial(
        _series(mpmath.log1p, [(1, 1), (2, -0.5)], 3),
        lambda f: abs(f**3 / mpmath.log1p(f)) + mpf(2) ** -40 if f else mpf(2) ** -40,
        8,
        1 / SQRT2 - 1,
        SQRT2 - 1,
    ),
    # tanh(x) = x + x^3 P(x^2)
    "tanh": Polynomial(
        _of_square(_series(mpmath.tanh, [(1, 1)], 3)),
        lambda u: u**1.5 / mpmath.tanh(mpmath.sqrt(u)) + mpf(2) ** -40 if u else mpf(2) ** -40,
        4,
        0.0,
        0.625**2,
    ),
    # erf(x) = x + x P(x^2) below 1
    "erf_small": Polynomial(
        _of_square(_series(mpmath.erf, [(1, 1)], 1)),
        lambda u: mpmath.sqrt(u) / mpmath.erf(mpmath.sqrt(u)) if u else mpf("0.8862"),
        6,
        0.0,
        1.0,
    ),
    # erfc(2.4375 + t) = P(t), absolute
    "erf_large": Polynomial(lambda t: mpmath.erfc(mpf("2.4375") + t), lambda t: mpf(1), 15, -1.4375, 1.5),
    # sin(r) = r + r^3 P(r^2)
    "sin": Polynomial(
        _of_square(_series(sine, [(1, 1)], 3)),
        lambda u: u**1.5 / sine(mpmath.sqrt(u)) + mpf(2) ** -40 if u else mpf(2) ** -40,
        2,
        0.0,
        QUARTER_PI**2,
    ),
    # cos(r) = 1 - r^2/2 + r^4 P(r^2)
    "cos": Polynomial(
        _of_square(_series(cosine, [(0, 1), (2, -0.5)], 4)),
        lambda u: u * u / cosine(mpmath.sqrt(u)) + mpf(2) ** -40,
        2,
        0.0,
        QUARTER_PI**2,
    ),
    # sinh(x) = x + x^3 P(x^2) below 1
    "sinh": Polynomial(
        _of_square(_series(mpmath.sinh, [(1, 1)], 3)),
        lambda u: u**1.5 / mpmath.sinh(mpmath.sqrt(u)) + mpf(2) ** -40 if u else mpf(2) ** -40,
        3,
        0.0,
        1.0,
    ),
    # asin(x) = x + x^3 P(x^2) below 1/2
    "asin": Polynomial(
        _of_square(_series(mpmath.asin, [(1, 1)], 3)),
        lambda u: u**1.5 / mpmath.asin(mpmath.sqrt(u)) + mpf(2) ** -40 if u else mpf(2) ** -40,
        4,
        0.0,
        0.25,
    ),
    # atan(x) = x + x^3 P(x^2) below 1
    "atan": Polynomial(
        _of_square(_series(mpmath.atan, [(1, 1)], 3)),
        lambda u: u**1.5 / mpmath.atan(mpmath.sqrt(u)) + mpf(2) ** -40 if u else mpf(2) ** -40,
        8,
        0.0,
        1.0,
    ),
    # log2((1 + s) / (1 - s)) = s P(s^2), in double for pow
    "log2": Polynomial(
        _of_square(lambda s: 2 * mpmath.atanh(s) / s / mpmath.ln(2) if s else 2 / mpmath.ln(2)),
        _of_square(lambda s: s * mpmath.ln(2) / 2 / mpmath.atanh(s) if s else mpmath.ln(2) / 2),
        4,
        0.0,
        float((SQRT2 - 1) / (SQRT2 + 1)) ** 2,
        np.float64,
    ),
    # 2^r = 1 + r P(r), in double for pow
    "exp2": Polynomial(
        _series(lambda r: mpf(2) ** r, [(0, 1)], 1),
        lambda r: abs(r) / mpf(2) ** r + mpf(2) ** -60,
        5,
        -0.5,
        0.5,
        np.float64,
    ),
    # expm1(r) = r + r^2 P(r), in double
    "expm1_f64": Polynomial(
        _series(mpmath.expm1, [(1, 1)], 2),
        lambda r: abs(r * r / mpmath.expm1(r)) + mpf(2) ** -80 if r else mpf(2) ** -80,
        10,
        -HALF_LN2,
        HALF_LN2,
        np.float64,
    ),
    # log((1 + s) / (1 - s)) = 2 s + s^3 P(s^2), in double
    "log_f64": Polynomial(
        _of_square(_series(lambda s: 2 * mpmath.atanh(s), [(1, 2)], 3)),
        lambda u: u / 2 + mpf(2) ** -80,
        6,
        0.0,
        float((SQRT2 - 1) / (SQRT2 + 1)) ** 2,
        np.float64,
    ),
    # log((1 + s) / (1 - s)) = 2 s + 2/3 s^3 + s^5 P(s^2), in double for pow
    "pow_f64": Polynomial(
        _of_square(_series(lambda s: 2 * mpmath.atanh(s), [(1, 2), (3, TWO_THIRDS)], 5)),
        lambda u: u * u / 2 + mpf(2) ** -90,
        8,
        0.0,
        float((SQRT2 - 1) / (SQRT2 + 1)) ** 2,
        np.float64,
    ),
    # atan(x) = x + x^3 P(x^2) below tan(pi/8), in double
    "atan_f64": Polynomial(
        _of_square(_series(mpmath.atan, [(1, 1)], 3)),
        lambda u: u**1.5 / mpmath.atan(mpmath.sqrt(u)) + mpf(2) ** -80 if u else mpf(2) ** -80,
        11,
        0.0,
        0.41422**2,
        np.float64,
    ),
    # asin(x) = x + x^3 P(x^2) below 1/2, in double
    "asin_f64": Polynomial(
        _of_square(_series(mpmath.asin, [(1, 1)], 3)),
        lambda u: u**1.5 / mpmath.asin(mpmath.sqrt(u)) + mpf(2) ** -80 if u else mpf(2) ** -80,
        11,
        0.0,
        0.25,
        np.float64,
    ),
    # sin(r) = r + r^3 P(r^2), in double
    "sin_f64": Polynomial(
        _of_square(_series(sine, [(1, 1)], 3)),
        lambda u: u**1.5 / sine(mpmath.sqrt(u)) + mpf(2) ** -80 if u else mpf(2) ** -80,
        5,
        0.0,
        QUARTER_PI**2,
        np.float64,
    ),
    # cos(r) = 1 - r^2/2 + r^4 P(r^2), in double
    "cos_f64": Polynomial(
        _of_square(_series(cosine, [(0, 1), (2, -0.5)], 4)),
        lambda u: u * u / cosine(mpmath.sqrt(u)) + mpf(2) ** -80,
        5,
        0.0,
        QUARTER_PI**2,
        np.float64,
    ),
    # cbrt(1 + f) = P(f), which one step of Halley's makes exact
    "cbrt": Polynomial(lambda f: mpmath.cbrt(1 + f), lambda f: 1 / mpmath.cbrt(1 + f), 2, 1 / SQRT2 - 1, SQRT2 - 1),
    "cbrt_f64": Polynomial(
        lambda f: mpmath.cbrt(1 + f), lambda f: 1 / mpmath.cbrt(1 + f), 5, 1 / SQRT2 - 1, SQRT2 - 1, np.float64
    ),
    # erf(x) = x + x P(x^2) below 1, in double
    "erf_small_f64": Polynomial(
        _of_square(_series(mpmath.erf, [(1, 1)], 1)),
        lambda u: mpmath.sqrt(u) / mpmath.erf(mpmath.sqrt(u)) if u else mpf("0.8862"),
        12,
        0.0,
        1.0,
        np.float64,
    ),
    # erfc(x) = exp(-x^2) P(x - 3.5) from 1 to 6, absolute
    "erf_large_f64": Polynomial(
        lambda t: mpmath.erfc(mpf("3.5") + t) * mpmath.exp((mpf("3.5") + t) ** 2),
        lambda t: mpmath.exp(-((mpf("3.5") + t) ** 2)),
        20,
        -2.5,
        2.5,
        np.float64,
    ),
}


def main(names: Sequence[str]) -> None:
    for name in names or POLYNOMIALS:
        polynomial = POLYNOMIALS[name]
        coefficients, error = fit(polynomial)
        print(f"{name}: largest error 2^{error:.1f}")
        suffix, digits = ("", 17) if polynomial.numpy is np.float64 else ("f", 9)
        print("   ", ", ".join(f"{c:.{digits}g}{suffix}" for c in coefficients))


if __name__ == "__main__":
    main(sys.argv[1:])
