"""What an iteration needs of the one before: elements stay in variables, and products that wait for it come first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from tests.codegen.test_control_flow import loop_of
from tests.oracle import agree

RNG = np.random.default_rng(4)


def smoothed(x: Any) -> Any:
    y = np.zeros_like(x)
    y[0] = x[0]
    for i in range(1, len(x)):
        y[i] = 0.3 * x[i] + 0.7 * y[i - 1]
    return y


def swept_back(x: Any) -> Any:
    """Backwards, and two arrays; the first element that is read may not exist."""
    y, z = x.copy(), np.zeros_like(x)
    for i in range(len(x) - 2, -1, -1):
        y[i] = x[i] * 2 - 0.5 * y[i + 1]
        z[i] = z[i + 1] + y[i] * y[i + 1]
    return y, z


def table(a: Any, b: Any) -> Any:
    """Rows of a table, whose left neighbours are at hand."""
    best = np.zeros((len(a) + 1, len(b) + 1))
    for i in range(len(a)):
        for j in range(len(b)):
            best[i + 1, j + 1] = max(best[i, j] + a[i] * b[j], best[i + 1, j] - 0.5, best[i, j + 1] - 0.5)
    return best


def two_of_a_kind(x: Any) -> Any:
    """Two arrays, each of which is read where the iteration before stored it."""
    c, d = np.zeros_like(x), x.copy()
    for i in range(1, len(x)):
        m = 1 / (2 - 0.5 * c[i - 1])
        c[i] = 0.3 * m
        d[i] = (x[i] - 0.5 * d[i - 1]) * m
    return c, d


def oscillator(x: Any) -> Any:
    """Numbers that a loop carries."""
    position, speed, places = 1.0, 0.0, np.zeros_like(x)
    for i in range(len(x)):
        force = x[i] * 0.1 - 0.3 * position
        position, speed = 0.5 * x[i] + 0.9 * position + 0.1 * speed, x[i] * 0.2 - speed * 0.4 + force
        places[i] = position
    return places, speed


def two_back(x: Any) -> Any:
    """The element before the last one is read, and the last one after it was replaced."""
    y = x.copy()
    for i in range(2, len(x)):
        y[i] = x[i] * 0.5 + y[i - 2] * 0.5
        y[i - 1] = y[i - 1] + y[i]
    return y


def at_computed_places(x: Any) -> Any:
    y = x.copy()
    for i in range(1, len(x)):
        y[i] = y[i - 1] * 0.5 + y[(i * i) % len(x)]
    return y


PROGRAMS: list[Callable[..., Any]] = [smoothed, swept_back, two_of_a_kind, oscillator, two_back, at_computed_places]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.parametrize("size", [2, 3, 11])
def test_agrees(program: Callable[..., Any], size: int) -> None:
    x = RNG.normal(size=size)
    agree(program, x, types=["f64[N+1]"], rungs=("kernel", "c"), loops="keep")
    agree(program, x, rungs=("c",), loops="keep")


def test_rows_agree() -> None:
    agree(table, RNG.normal(size=5), RNG.normal(size=7), types=["f64[N]", "f64[M]"], rungs=("kernel", "c"))


def test_what_may_not_exist_is_not_read() -> None:
    module = fx.symbolic_trace(swept_back, "f64[N+1]", loops="keep")
    compiled = fx.compile(module, backend="c")
    for found in compiled(np.array([3.0])):
        assert found.shape == (1,)


def test_the_element_before_is_a_variable_in_the_first_product() -> None:
    loop = loop_of(smoothed, "f64[N+2]")
    assert "index_update_last = 0.7 * index_update_last + 0.3 * x[i];" in loop
    assert "[i - 1]" not in loop


def test_numbers_that_a_loop_carries_are_in_the_first_product() -> None:
    loop = loop_of(oscillator, "f64[N]")
    assert "-(0.3 * position) + t0 * 0.1" in loop
    assert "0.9 * position + 0.5 * take" in loop


@pytest.mark.parametrize("program", [two_back], ids=lambda p: p.__name__)
def test_arrays_that_are_written_twice_are_read(program: Callable[..., Any]) -> None:
    assert "_last" not in loop_of(program, "f64[N+2]")
