"""Slices with bounds that are computed, in loops that stay loops: reduced, multiplied, written, and
those of a known number of elements; each is NumPy's on all rungs. And what cannot be had is an error
that says what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import FxliteError, TraceError
from tests.codegen.compiling import c_file
from tests.oracle import agree

RNG = np.random.default_rng(3)
STARTS = np.array([0, 2, 2, 5, 40], np.uint32)


def cholesky(x: Any) -> Any:
    a = x @ x.T + 9 * np.eye(x.shape[0])
    for i in range(a.shape[0]):
        for j in range(i):
            a[i, j] -= np.dot(a[i, :j], a[j, :j])
            a[i, j] /= a[j, j]
        a[i, i] = np.sqrt(a[i, i] - a[i, :i] @ a[i, :i])
    return a


def sparse_product(rows: Any, columns: Any, values: Any, x: Any) -> Any:
    y = np.empty(rows.size - 1, values.dtype)
    for i in range(rows.size - 1):
        some = columns[rows[i] : rows[i + 1]]
        y[i] = values[rows[i] : rows[i + 1]] @ x[some]
    return y


def triangle(c: Any, a: Any) -> Any:
    for i in range(c.shape[0]):
        c[i, : i + 1] *= 0.5
        for k in range(a.shape[1]):
            c[i, : i + 1] += a[i, k] * a[: i + 1, k]
    return c.sum()


def levinson(r: Any) -> Any:
    y = np.zeros_like(r)
    y[0] = -r[0]
    for k in range(1, len(r)):
        y[:k] += 0.1 * np.flip(y[:k]) + r[k] * y[:k][::-1]
        y[k] = r[:k] @ y[:k]
    return y


def both_sides(data: Any) -> Any:
    size = data.shape[1]
    out = np.eye(size)
    for i in range(size - 1):
        out[i + 1 : size, i] = out[i, i + 1 : size] = data[:, i] @ data[:, i + 1 : size]
    return out


def moved(x: Any) -> Any:
    y = np.zeros_like(x)
    for i in range(1, len(x)):
        y[:i] = y[:i] + x[len(x) - i :]
        y[i : i + 1] = x[i - 1 : i]
    return y


def windows(x: Any, w: Any) -> Any:
    out = np.zeros(len(x) - 2)
    for i in range(len(out)):
        out[i] = (x[i : i + 3] * w).sum()
    return out


def reduced(x: Any) -> Any:
    out = np.zeros((len(x), 6))
    for i in range(1, len(x)):
        part = x[i // 2 : i + 1]
        out[i, 0], out[i, 1], out[i, 2] = part.max(), part.mean(), np.add.reduce(part)
        out[i, 3], out[i, 4], out[i, 5] = len(part), (part > 0).any(), x[-i:].min()
    return out


def views(x: Any) -> Any:
    for i in range(len(x)):
        row = x[i:]
        x[i] += 1
        row *= 1.5
        np.add(row, 1, out=row)
        x[0] += row.sum()
    return x.copy()


def of_numbers(x: Any, n: Any) -> Any:
    return x[n:].sum(), x[:n].sum(), x[n : n + 2].sum(), x[2 - n : n].size


def stepped(x: Any) -> Any:
    """Writes at computed steps: a sieve, columns, and those of a selection."""
    is_prime = np.ones(60, bool)
    for i in range(2, 8):
        if is_prime[i]:
            is_prime[i * i :: i] = False
    some = x[x > 0.2]
    some[1::2], some[-3::2], some[:-2:3] = 0.0, 5.0, -1.0
    for i in range(1, 7):
        x[i % 3, i:6:i] = i
        x[:, ::i] = x[0, 1] * i
        x[2, -5::i] = 7.0
        some[-i:9:i] = i * 0.5
    return is_prime, x, some.sum(), np.cumsum(some).max()


PROGRAMS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "cholesky": (cholesky, [RNG.normal(size=(30, 30))]),
    "sparse product": (
        sparse_product,
        [STARTS, RNG.integers(0, 9, 40).astype(np.uint32), RNG.normal(size=40), RNG.normal(size=9)],
    ),
    "triangle": (triangle, [RNG.normal(size=(26, 26)), RNG.normal(size=(26, 3))]),
    "levinson": (levinson, [RNG.uniform(0, 0.1, 28)]),
    "both sides": (both_sides, [RNG.normal(size=(4, 7))]),
    "moved": (moved, [RNG.normal(size=7)]),
    "windows": (windows, [RNG.normal(size=9), RNG.normal(size=3)]),
    "reduced": (reduced, [RNG.normal(size=30)]),
    "views": (views, [RNG.normal(size=6)]),
    "stepped": (stepped, [RNG.normal(size=(3, 8))]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    program, inputs = PROGRAMS[name]
    module = agree(program, *inputs, loops="keep")
    assert any("loop" in n.target.name for n in module.graph.find_nodes(op="call_function"))


@pytest.mark.parametrize("n", [0, 1, 4, 5, -1, -3])
def test_bounds_that_are_inputs(n: int) -> None:
    """Also negative ones, and those outside of the axis, but where the length has to be known."""
    agree(lambda x, n: (x[n:].sum(), x[:n].sum(), x[n - 9 : n].max(initial=0)), RNG.normal(size=5), np.int64(n))


def test_a_slice_of_known_length_is_inside() -> None:
    module = fx.symbolic_trace(lambda x, n: x[n : n + 3], "f64[5]", "i64[]")
    assert str(module.graph.output_node().type) == "f64[3]"
    np.testing.assert_array_equal(module(np.arange(5.0), np.int64(1)), [1, 2, 3])
    for function in (module, fx.compile(module)):
        for n in (-1, 3):
            with pytest.raises(IndexError):
                function(np.arange(5.0), np.int64(n))


def test_values_of_another_length_are_an_error_when_it_runs() -> None:
    def program(x: Any, n: Any) -> Any:
        y = x.copy()
        y[:n] = x[1:]
        return y

    module = fx.symbolic_trace(program, "f64[5]", "i64[]")
    for function in (module, fx.compile(module)):
        np.testing.assert_array_equal(function(np.arange(5.0), np.int64(4)), [1, 2, 3, 4, 4])
        with pytest.raises(IndexError):
            function(np.arange(5.0), np.int64(3))


def test_c_visits_what_is_between_the_bounds() -> None:
    assert "r < 40" not in c_file(sparse_product, "u32[5]", "u32[40]", "f64[40]", "f64[9]")


def order_statistics(x: Any, starts: Any) -> Any:
    out, smooth = np.zeros((len(starts) - 1, 3)), np.zeros(len(x))
    for i in range(len(starts) - 1):
        s = x[starts[i] : starts[i + 1]]
        smooth[starts[i] : starts[i + 1]] = np.interp(s, np.linspace(-2, 2, 5), np.arange(5.0))
        out[i, 0] = np.percentile(s, 30) + np.quantile(s, 0.9, method="higher")
        out[i, 1:] = np.quantile(s, [0.25, 1.0])
        out[i, 0] += np.partition(s, 1)[1] + np.partition(s, [-1, 0])[0] + np.abs(np.diff(s)).sum()
    return out, smooth


def test_order_statistics_of_segments_and_selections() -> None:
    x, starts = RNG.normal(size=23), np.array([0, 2, 9, 23])
    agree(order_statistics, x, starts, loops="keep")
    found = fx.jit(order_statistics, backend="c")
    for wrong in (np.array([0, 1, 23]), np.array([0, 9, 9, 23])):
        for program in (found, order_statistics):
            with pytest.raises((ValueError, IndexError)):
                program(x, wrong)
    agree(
        lambda x: (
            np.percentile(x[x > 0], 40),
            np.partition(x[x > 0], 2)[2],
            np.interp(x[x > 0], [0, 1], [2, 5]).sum(),
        ),
        x,
    )


def _carried(x: Any, n: Any) -> Any:
    y = x.copy()
    part = y[:n]
    for i in range(len(x)):
        if x[i] > 0:
            part = y[:i]
        part *= 2
    return y


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "a step": (lambda x, n: x[:n:2].sum(), "step"),
    "a float": (lambda x, n: x[: n * 0.5].sum(), "integers"),
    "a mask as a bound": (lambda x, n: x[: x > 0].sum(), "by a mask in brackets"),
    "beside an index": (lambda x, n: x.reshape(3, 3)[:n, np.array([0, 2])].sum(), "index arrays"),
    "a view in a loop": (lambda x, n: _carried(x, n), r"x\[a:b\]\.copy"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_had_is_refused(name: str) -> None:
    program, said = REFUSED[name]
    with pytest.raises(
        (TraceError, FxliteError), match=rf"(?s){said}.*test_computed_slices\.py|test_computed_slices.*{said}"
    ):
        fx.symbolic_trace(program, "f64[9]", "i64[]")
