"""Loops over columns, in which rows do not meet, go row by row in C; others stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import passes
from fxlite.codegen.c.emit import emit
from tests.oracle import agree

X = np.random.default_rng(0).normal(size=(21, 30))


def forward(x: Any) -> Any:
    y = np.zeros_like(x)
    y[:, 0] = x[:, 0]
    for k in range(2, x.shape[1]):
        y[:, k] = 0.5 * x[:, k] + 0.25 * x[:, k - 1] - 0.5 * y[:, k - 1] + 0.125 * y[:, k - 2]
    return y


def backward(x: Any) -> Any:
    y = np.zeros_like(x)
    for k in range(x.shape[1] - 3, -1, -1):
        y[:, k] = x[:, k] * 0.5 - y[:, k + 1] + 0.5 * y[:, k + 2]
    return y


def thomas(x: Any) -> Any:
    """A tridiagonal system for each row: values between the kernels of an iteration, and a carried row."""
    c, d = np.zeros_like(x), np.zeros_like(x)
    c[:, 0], d[:, 0] = -0.2, x[:, 0]
    for k in range(1, x.shape[1]):
        m = 1.0 / (2.5 + 0.2 * c[:, k - 1])
        c[:, k] = -0.2 * m
        d[:, k] = (x[:, k] + 0.2 * d[:, k - 1]) * m
    y = np.zeros_like(x)
    last = d[:, -1]
    y[:, -1] = last
    for k in range(x.shape[1] - 2, -1, -1):
        last = d[:, k] - c[:, k] * last
        y[:, k] = last
    return y


def over_rows(x: Any) -> Any:
    y = np.zeros_like(x)
    for k in range(1, x.shape[0]):
        y[k] = x[k] - 0.5 * y[k - 1]
    return y


def turned_round(x: Any) -> Any:
    y = x.copy()
    for k in range(1, x.shape[1]):
        y[:, k] = x[:, k] - 0.5 * y[::-1, k - 1]
    return y


def of_the_row_above(x: Any) -> Any:
    y = x.copy()
    for k in range(1, x.shape[1]):
        y[1:, k] = x[1:, k] - 0.5 * y[:-1, k - 1]
    return y


def counted_up(x: Any) -> Any:
    y, total = x.copy(), 0.0
    for k in range(1, x.shape[1]):
        y[:, k] -= 0.5 * y[:, k - 1]
        total += y[3, k]
    return y * total


def of_two_widths(x: Any) -> Any:
    """Values of 4 and of 8 bytes between the kernels of an iteration."""
    c, d = np.zeros_like(x), np.zeros_like(x)
    for k in range(1, x.shape[1]):
        m, n = (x[:, k] * 0.5).astype(np.float32), np.exp(x[:, k] * 0.1)
        c[:, k] = m * c[:, k - 1] + n
        d[:, k] = n * d[:, k - 1] - m
    return c + d


def _text(program: Callable[..., Any], kind: str) -> str:
    text = emit(passes.dce(fx.symbolic_trace(program, kind, loops="keep"))).functions
    return text[text.index("a loop that gives") :]


@pytest.mark.parametrize("program", [forward, backward, thomas, of_two_widths])
def test_rows_go_first(program: Callable[..., Any]) -> None:
    """In all iterations, of known and named sizes, in several dimensions, of any number of rows."""
    for x in (X, X[:1], X[:8], X.astype(np.float32)):
        agree(program, x, loops="keep")
    agree(program, X, types=["f64[H,W]"], loops="keep")

    def in_three(x: Any) -> Any:
        y = np.zeros_like(x)
        for k in range(1, x.shape[2]):
            y[:, :, k] = x[:, :, k] + y[:, :, k - 1] * 0.5
        return y

    agree(in_three, X.reshape(3, 7, 30), loops="keep")
    text = _text(program, "f64[H,W]")
    assert text.count("rows += 8") == text.count("a loop that gives") == (2 if program is thomas else 1)
    assert "fx_index" not in text.partition("select")[0]
    assert "rows += 8" in _text(program, "f64[21,30]")
    assert "rows += 8" in _text(in_three, "f64[3,7,W]")


@pytest.mark.parametrize("program", [over_rows, turned_round, of_the_row_above, counted_up])
def test_other_loops_stay(program: Callable[..., Any]) -> None:
    """Rows that meet, or lie in the order of the loop already."""
    agree(program, X, loops="keep")
    assert "rows += 8" not in _text(program, f"f64[{X.shape[0]},{X.shape[1]}]")


def test_a_part_is_written_where_elements_beside_it_are_read() -> None:
    """The new column is computed where it is stored; one that is read as it is written has a place of its own."""
    assert "scratch" not in _text(forward, "f64[H,W]")
    assert "scratch" in _text(turned_in_place, "f64[21,30]")
    agree(turned_in_place, X, loops="keep")


def turned_in_place(x: Any) -> Any:
    y = x.copy()
    for k in range(x.shape[1]):
        y[:, k] = y[::-1, k] * 0.5 + x[:, k]
    return y


def written_after_the_loop(x: Any) -> Any:
    y = forward(x)
    y[:, -1] = 2.0 * x[:, -1]
    y[:, -1] = y[:, -1] + y[:, -2]
    return y


def test_what_only_an_iteration_reads_stays_in_registers() -> None:
    """The loops of an iteration become one; of two stores to an element, only the last one stays."""
    text = _text(thomas, "f64[H,W]")
    for function in text.split("a loop that gives")[1:]:
        (head, *loops) = function.partition("\n}\n")[0].split("#pragma omp simd")
        assert len(loops) == 1 and "count" in head
        assert ("scratch" in head) is ("last" in head)  # the row that the second loop carries
    assert "count" not in _text(thomas, "f64[24,30]")  # whole vectors
    agree(thomas, np.tile(X, (8, 1))[:24], loops="keep")

    def stored_twice(x: Any) -> Any:
        y = np.zeros_like(x)
        for k in range(1, x.shape[1]):
            y[:, k] = x[:, k] * 2.0
            y[:, k] = np.sqrt(np.abs(y[:, k])) + y[:, k - 1] * 0.5
        return y

    agree(stored_twice, X, loops="keep")
    assert _text(stored_twice, "f64[24,30]").count("] = t") == 1


def test_parts_written_after_a_loop_are_all_that_is_written() -> None:
    agree(written_after_the_loop, X, loops="keep")
    after = _text(written_after_the_loop, "f64[21,30]").partition("\n}\n")[2]
    assert "29" in after and "j < " not in after.partition("int kernel_check")[0], after


def triangle(a: Any, b: Any) -> Any:
    """Products of a triangle, row by row: rows below have not been written yet."""
    y = b.copy()
    for i in range(y.shape[0]):
        y[i] += a[i + 1 :, i] @ y[i + 1 :]
    return y * 2


def substitution(a: Any, b: Any) -> Any:
    """A triangular system with many right sides: rows above are solutions."""
    y = b.copy()
    for i in range(y.shape[0]):
        y[i] = (y[i] - a[i, :i] @ y[:i]) / (2 + abs(a[i, i]))
    return y


def of_columns_beside(a: Any, b: Any) -> Any:
    y = b.copy()
    for i in range(1, y.shape[0]):
        y[i] += a[i, :i] @ y[:i, ::-1]
    return y


def of_a_total(a: Any, b: Any) -> Any:
    y = b.copy()
    for i in range(1, y.shape[0]):
        y[i] += a[i, :i] @ y[:i] + y[i - 1].sum() / 100
    return y


@pytest.mark.parametrize("width", [300, 384, 519])
@pytest.mark.parametrize("program", [triangle, substitution, of_columns_beside, of_a_total])
def test_columns_that_do_not_meet_go_through_all_rows(program: Callable[..., Any], width: int) -> None:
    random = np.random.default_rng(1)
    for dtype in ("f4", "f8", "c16"):
        a, b = (random.standard_normal(shape).astype(dtype) / 30 for shape in ((40, 40), (40, width)))
        compiled = fx.jit(program, backend="c", loops="keep", dynamic=False)
        for threads in (1, 2):
            found = fx.compile(compiled.lower(a, b).graph_module, threads=threads)(a, b)
            np.testing.assert_allclose(found, program(a, b), rtol=1e-4 if dtype == "f4" else 1e-9, atol=1e-6)
        is_apart = program in (triangle, substitution)
        assert ("column_0 += " in compiled.source) == is_apart, compiled.source
