"""Integers of Python, which have no end there and 64 bits here: they are right, or an OverflowError says so; and what
cannot become large is not checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx


def factorial(n: Any) -> Any:
    total = 1
    for i in range(1, int(n) + 1):
        total *= i
    return total


def fibonacci(n: Any) -> Any:
    a, b = 0, 1
    while n > 0:
        a, b, n = b, a + b, n - 1
    return a


def doubled_below(n: Any) -> Any:
    total = -1
    for _ in range(n):
        total = total - 3 - total * -2
    return total


def power(n: Any) -> Any:
    return 2 ** int(n), 1 << int(n)


def sums_of_powers(n: Any) -> Any:
    total = 0
    for i in range(n):
        total += 2**i
    return total


def digits(n: Any) -> Any:
    number = 0
    for i in range(n):
        number = number * 10 + (i + 1) % 10
    return number


def nested(n: Any) -> Any:
    total = 1
    for _ in range(n):
        for _ in range(5):
            total = total + total
    return total


def halved_and_tripled(n: Any) -> Any:
    n, steps = int(n), 0
    while n != 1:
        n = 3 * n + 1 if n % 2 else n // 2
        steps += 1
    return steps


def unrolled(n: Any) -> Any:
    n = int(n)
    for _ in range(7):
        n = n * n
    return n


@pytest.mark.parametrize("backend", ["python", "c"])
@pytest.mark.parametrize(
    ("program", "fits", "too_large"),
    [
        (factorial, 20, 21),
        (fibonacci, 91, 94),
        (doubled_below, 36, 45),
        (power, 62, 63),
        (sums_of_powers, 62, 70),
        (digits, 18, 20),
        (nested, 12, 13),
        (halved_and_tripled, 97, 2**62 + 1),
        (unrolled, 1, 9),
    ],
)
def test_integers_are_right_or_an_error(program: Callable[..., Any], fits: int, too_large: int, backend: str) -> None:
    jitted = fx.jit(program, backend=backend)
    assert jitted(np.int64(fits)) == program(np.int64(fits))
    with pytest.raises(OverflowError, match="larger than 64 bits") as caught:
        jitted(np.int64(too_large))
    assert "test_large_integers.py" in "".join(caught.value.__notes__)


def counted(x: Any) -> Any:
    total, squares, low, high = 0, 0, 0, len(x)
    for i in range(len(x)):
        total += int(x[i])
        squares += i * i
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if x[middle] < 7 else (low, middle)
    return total, squares, low


def powers_of_a_remainder(x: Any) -> Any:
    base, power, found = int(x[0]), int(x[1]), 1
    while power > 0:
        if power & 1:
            found = found * base % 1000003
        base, power = base * base % 1000003, power >> 1
    return found


def hashed(x: Any) -> Any:
    found = 2166136261
    for value in x:
        found = ((found ^ int(value)) * 16777619) & 0xFFFFFFFF
    return found


def common_divisor(x: Any) -> Any:
    a, b = int(x[0]), int(x[1])
    while b:
        a, b = b, a % b
    return a


@pytest.mark.parametrize("program", [counted, powers_of_a_remainder, hashed, common_divisor])
def test_what_stays_small_is_not_checked(program: Callable[..., Any]) -> None:
    x = np.arange(4, 60)
    jitted = fx.jit(program, backend="python")
    assert jitted(x) == program(x)
    graph = jitted.versions[-1].module.graph
    assert not any("exception" in n.name for n in graph.nodes) and "the_exception" not in graph.text(full=True)


def below_64_bits(x: Any) -> Any:
    n, mask = int(x), 0xFFFFFFFFFFFFFFFF
    return n & mask, mask & n, n % (1 << 64), n & (mask << 3)


@pytest.mark.parametrize("backend", ["python", "c"])
def test_masks_and_divisors_of_more_than_64_bits(backend: str) -> None:
    jitted = fx.jit(below_64_bits, backend=backend)
    for n in (5, 2**50 + 3, 0):
        assert jitted(np.int64(n)) == below_64_bits(np.int64(n))
    with pytest.raises(OverflowError, match="larger than 64 bits"):
        jitted(np.int64(-1))


def test_integers_that_are_known_and_too_large_are_said_to_be() -> None:
    def known(x: Any) -> Any:
        return x * 2, 2**70

    with pytest.raises(fx.errors.DTypeError, match=r"an integer of 71 bits.*compute with floats"):
        fx.jit(known)(np.ones(3))
