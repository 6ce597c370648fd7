"""An element that each iteration of a loop writes stays in a variable in C, where no iteration reads it otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import passes
from fxlite.codegen.c.emit import emit
from fxlite.codegen.kernel.hold import held_element
from fxlite.codegen.kernel.kernel_ir import Buffer, Kernel, Store
from fxlite.scalar import expr
from fxlite.scalar.expr import Load
from fxlite.scalar.index import Given, Index
from fxlite.types import dtypes
from tests.codegen.compiling import c_file
from tests.oracle import agree

X = np.random.default_rng(0).normal(size=(9, 9))


def largest_split(x: Any) -> Any:
    """Dynamic programming over intervals, as in matrix chains and foldings."""
    n = x.shape[0]
    best = np.zeros((n, n), x.dtype)
    for i in range(n - 1, -1, -1):
        for j in range(i + 1, n):
            best[i, j] = x[i, j]
            for k in range(i + 1, j):
                best[i, j] = max(best[i, j], best[i, k] + best[k, j])
    return best


def eliminated(x: Any) -> Any:
    """Doolittle's decomposition, number by number."""
    a, n = x + 4.0 * np.eye(x.shape[0], dtype=x.dtype), x.shape[0]
    for i in range(n):
        for j in range(i):
            for k in range(j):
                a[i, j] = a[i, j] * 1.0 - a[i, k] * a[k, j] / (1.0 + abs(a[i, k]))
            a[i, j] = a[i, j] / a[j, j]
    return a


def beside(x: Any) -> Any:
    """Iterations read every element but the one that they write: the one after theirs at the earliest."""
    y = x[0].copy()
    for i in range(y.shape[0]):
        for k in range(i + 1, y.shape[0]):
            y[i] = y[i] * 0.5 + np.sin(y[k])
    return y


def counted_to_itself(x: Any) -> Any:
    """The last iteration reads the element itself."""
    y = x[0].copy()
    for i in range(y.shape[0]):
        for k in range(i + 1):
            y[i] = y[i] * 0.5 + np.sin(y[k])
    return y


def at_any_place(x: Any) -> Any:
    y, at = x[0].copy(), (np.abs(x[1]) * 3).astype(np.int64)
    for i in range(y.shape[0]):
        for k in range(y.shape[0]):
            y[i] = y[i] * 0.5 + np.sin(y[at[k]])
    return y


def past_the_end(x: Any) -> Any:
    """The element does not exist where no iteration runs."""
    y, n = x[0].copy(), x.shape[0]
    for i in range(n + 2):
        for k in range(i, n - 1):
            y[i] = y[i] * 0.5 + np.sin(y[k + 1])
    return y


def _text(program: Callable[..., Any], kind: str) -> str:
    return emit(passes.dce(fx.symbolic_trace(program, kind, loops="keep"))).functions


@pytest.mark.parametrize(
    ("program", "x"),
    [
        (largest_split, X),
        (largest_split, (X * 10).astype(np.int32)),
        (eliminated, X),
        (eliminated, X.astype(np.float32)),
        (beside, X),
    ],
)
def test_the_element_stays_in_a_variable(program: Callable[..., Any], x: Any) -> None:
    dtype = dtypes.dtype(x.dtype).name
    agree(program, x, loops="keep")
    agree(program, x, types=[f"{dtype}[N,N]"], loops="keep")
    for kind in (f"{dtype}[9,9]", f"{dtype}[N,N]"):
        text = _text(program, kind)
        assert "_element" in text
        # GCC would gather numbers of a column for wide vectors; sums of floats stay in order, without vectors.
        assert ("FX_NARROW" in text) is (dtype == "i32")


def test_an_element_of_fewer_digits_is_stored() -> None:
    assert "_element" not in _text(largest_split, "bf16[9,9]")


@pytest.mark.parametrize("program", [counted_to_itself, at_any_place, past_the_end])
def test_an_element_that_is_read_otherwise_is_stored(program: Callable[..., Any]) -> None:
    agree(program, X, loops="keep")
    assert "_element" not in _text(program, "f64[9,9]")


def test_an_element_that_is_read_under_a_guard_is_stored() -> None:
    """Such a load is 0 where its guard fails, which a variable is not."""
    iteration = Given("k", Index.of(5), Index.of(0))
    number, size = expr.index_value(Index.of(iteration)), (Index.of(3),)

    def found(guard: Any) -> Any:
        load = Load(dtypes.float64, "y", (Index.of(1),), guard)
        store = Store("y", (Index.of(1),), expr.apply("add", load, expr.cast(number, dtypes.float64)))
        kernel = Kernel("kernel", (Buffer("y", dtypes.float64, size, is_output=True),), (), (store,))
        return held_element([kernel], {"y": size}, str, iteration)

    assert found(None) is not None and found(expr.apply("lt", number, expr.const(3, dtypes.int64))) is None


def test_what_all_iterations_read_at_a_computed_place_is_read_before_them() -> None:
    """GCC makes SIMD code of the inner loop only then."""

    def program(x: Any) -> Any:
        y = x
        for t in range(100):
            k = t % 9
            y = np.maximum(y, y[:, k, None] + y[k])
        return y

    agree(program, X)
    text = c_file(program, "f64[9,9]")
    inner = text[text.index("#pragma omp simd") :].partition("}")[0]
    assert "i*9 + j]" in inner and "i*9 + remainder" not in inner
    assert "fx_index" not in text
