"""NumPy's functions that are written in Python over others are traced through; some have a form of
their own. All rungs give what NumPy gives, in its dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import TraceError
from tests.oracle import agree

PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "append": lambda x, v: np.append(v, v),
    "array_equal": lambda x, v: np.array_equal(x, x),
    "atleast_2d": lambda x, v: np.atleast_2d(v),
    "average": lambda x, v: np.average(x, axis=0),
    "average, weighted": lambda x, v: np.average(x, axis=1, weights=np.abs(v[:5]), returned=True),
    "average of integers": lambda x, v: np.average(x.astype(int), returned=True),
    "column_stack": lambda x, v: np.column_stack([v, v]),
    "corrcoef": lambda x, v: np.corrcoef(x),
    "count_nonzero": lambda x, v: np.count_nonzero(x > 0, axis=1),
    "cov": lambda x, v: np.cov(x),
    "cov of columns": lambda x, v: np.cov(x, rowvar=False, bias=True),
    "cov, weighted": lambda x, v: (
        np.cov(x, aweights=np.abs(v[:5])),
        np.cov(x, fweights=np.abs(v[:5]).astype(int) + 1, aweights=np.abs(v[1:])),
        np.cov(x, x[::-1], aweights=np.abs(v[:5]), ddof=0),
    ),
    "cov of float32": lambda x, v: np.cov(x.astype(np.float32), dtype=np.float32),
    "cross": lambda x, v: np.cross(x[:, :3], x[:, 2:]),
    "diag": lambda x, v: (np.diag(v), np.diag(v, 1), np.diag(v, -2), np.diag(x), np.diag(x, -1)),
    "diagonal": lambda x, v: (np.diagonal(x, 1), x.diagonal(), np.stack([x, x]).diagonal(0, 1, 2)),
    "diff": lambda x, v: (np.diff(x), np.diff(x, n=2, axis=0)),
    "dstack": lambda x, v: np.dstack([x, x]),
    "fix": lambda x, v: np.fix(v),
    "fliplr": lambda x, v: (np.fliplr(x), np.flipud(x), np.rot90(x)),
    "geomspace": lambda x, v: (
        np.geomspace(np.abs(v[0]), np.abs(v[0]) * 100, 5),
        np.geomspace(-1.0, -np.abs(v[1]), 4, endpoint=False),
        np.geomspace([1.0, np.abs(v[2]) + 1], [10.0, np.abs(v[3]) + 5], 4, axis=1),
    ),
    "gradient": lambda x, v: (np.gradient(v), *np.gradient(x)),
    "inner": lambda x, v: (np.inner(x, x), np.inner(v, v), np.vdot(x, x), np.vecdot(x, x)),
    "isclose": lambda x, v: (np.isclose(x, x + 1e-9), np.allclose(x, x)),
    "isin": lambda x, v: np.isin(v, [0.0, 1.0]),
    "ix_": lambda x, v: x[np.ix_([0, 2], [1, 3])],
    "linalg": lambda x, v: (np.linalg.matrix_power(x[:, :4], 3), np.linalg.multi_dot([x, x.T, x])),
    "linspace": lambda x, v: (
        *np.linspace(v[0], v[1], 5, retstep=True),
        *np.linspace(v[0], v[1], 5, endpoint=False, retstep=True),
        np.linspace(v[:3], v[3:], 4, axis=-1),
    ),
    "nansum": lambda x, v: np.nansum(np.where(x > 1, np.nan, x)),
    "outer": lambda x, v: np.linalg.outer(v, v),
    "polyval": lambda x, v: np.polyval([1.0, 2, 3], v),
    "ptp": lambda x, v: np.ptp(x, axis=1),
    "resize": lambda x, v: np.resize(v, (2, 6)),
    "sinc": lambda x, v: np.sinc(v),
    "tensordot": lambda x, v: np.tensordot(x, x, ((1,), (1,))),
    "trace": lambda x, v: (np.trace(x), x.trace(1)),
    "trapezoid": lambda x, v: np.trapezoid(v),
    "unstack": lambda x, v: np.unstack(x),
    "unwrap": lambda x, v: np.unwrap(v * 3),
}


def arrays() -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((4, 5)), rng.standard_normal(6)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_functions_written_in_python(name: str) -> None:
    agree(PROGRAMS[name], *arrays(), rungs=("graph", "python", "kernel"))


def test_all_of_them_compiled() -> None:
    def every(x: Any, v: Any) -> Any:
        return [program(x, v) for program in PROGRAMS.values()]

    agree(every, *arrays(), rungs=("c",))


def test_weights_of_cov_that_are_negative_or_too_few_are_an_error() -> None:
    jitted = fx.jit(lambda x, w: np.cov(x, aweights=w), backend="python")
    with pytest.raises(ValueError, match="aweights cannot be negative"):
        jitted(np.ones((2, 3)), np.array([1.0, -1, 1]))
    with pytest.raises(TraceError, match="aweights must be one number for each of 4 observations"):
        jitted(np.ones((2, 4)), np.ones(1))


def test_those_that_cannot_be_traced_are_named() -> None:
    with pytest.raises(TraceError, match=r"np\.\w+ has no fxlite op(, and .*)?\n.*test_numpy_functions\.py:"):
        fx.symbolic_trace(lambda x: np.roots(x), "f64[4]")


def test_parts_from_computed_places_on_are_reduced() -> None:
    def sums(x: Any, i: Any) -> Any:
        return (
            np.add.reduceat(x, i),
            np.maximum.reduceat(x, i, axis=1),
            np.add.reduceat(x > 0, i),
            np.multiply.reduceat(x[0], i, dtype=np.float32),
        )

    x = np.random.default_rng(1).normal(size=(6, 6))
    for places in ([0, 2, 1, 4], [5], [5, 0, 0, 2]):
        agree(sums, x, np.array(places), rungs=("graph", "python", "c"))
    with pytest.raises(IndexError, match="out of bounds"):
        fx.jit(sums, backend="python")(x, np.array([0, 6]))


@pytest.mark.parametrize("function", [np.diagonal, np.diag])
def test_a_diagonal_is_a_view(function: Any) -> None:
    def program(x: Any) -> Any:
        y = x + 0
        diagonal = function(y)
        y[0, 0] = 5
        np.fill_diagonal(y[1:, 1:], 7)
        return diagonal + 1, diagonal

    agree(program, np.arange(16.0).reshape(4, 4), rungs=("graph", "python", "kernel", "c"))

    def of_columns(x: Any) -> Any:
        y = (x + 0).T
        diagonal = function(y)
        y[0, 0] = 5
        return diagonal + 1

    with pytest.raises(TraceError, match="may or may not share memory"):
        fx.symbolic_trace(of_columns, "f64[4,4]")


def _like_columns(x: Any) -> Any:
    y = np.zeros_like(x.T)
    y.reshape(-1)[0] = 7  # a copy: y has the order of x.T
    return y, x.T.ravel(order="A"), np.ravel(x.T, order="K"), x.T.flatten("A")


def _columns_first(x: Any) -> Any:
    y = np.zeros((3, 2), order="F")
    y[:] = x.T
    y.reshape(-1)[1] = 7
    y.ravel("K")[:2] += 5
    return y, x.ravel("F"), x.reshape(3, 2, order="F"), x.T.reshape(2, 3, order="A"), x[:, ::2].ravel("A")


def _copied_columns(x: Any) -> Any:
    y = x.copy(order="F")
    view = y.ravel("K")
    view[1] = 50
    y.T.ravel()[2] = 8
    return y, view


@pytest.mark.parametrize("program", [_like_columns, _columns_first, _copied_columns])
def test_orders_of_memory(program: Any) -> None:
    """What is a view and what a copy, and in which order elements are read."""
    agree(program, np.arange(6.0).reshape(2, 3), rungs=("graph", "python", "kernel", "c"))


def test_an_order_that_is_not_known_is_refused() -> None:
    with pytest.raises(TraceError, match="depends on where memory has the elements"):
        fx.symbolic_trace(lambda x: (x.T + 1).ravel("K"), "f64[2,3]")


@pytest.mark.parametrize(
    "program",
    [lambda x: divmod(x, 2), lambda x: divmod(x[0], 0.5), lambda x: divmod(7.0, x), lambda x: divmod(x, x[::-1] + 1)],
)
def test_divmod_and_round_of_python(program: Any) -> None:
    agree(program, np.arange(4.0) + 0.25, rungs=("graph", "python", "c"))


def _numbers_in_place(x: Any) -> Any:
    y = np.nan_to_num(x, copy=False)
    y[0] = 3
    z = np.array(x, copy=False)
    z[1] = 4
    w = np.nan_to_num(x)
    w[...] = 0
    return x * 1, y


def _rolled(x: Any) -> Any:
    return np.roll(x, [1, 2], axis=1), np.roll(x, 1, axis=(0, 1)), np.roll(x, [1], axis=(0, 1))


@pytest.mark.parametrize("program", [_numbers_in_place, _rolled])
def test_arguments_that_are_seldom_given(program: Any) -> None:
    agree(program, np.arange(6.0).reshape(2, 3), rungs=("graph", "python", "c"))


NAMED: dict[str, Any] = {
    "a diagonal matrix": lambda x, y: (np.diag(x[:5]), np.diag(x, 1), np.diag(y, -2)),
    "bins that are computed": lambda x, y: (np.histogram(x, y)[0], np.histogram(x, y, density=True)[0]),
    "digitize": lambda x, y: np.digitize(x, y),
    "known elements of many": lambda x, y: (np.isin(5.0, x), np.isin([0.5, 2], y), np.isin(x[0], x)),
}


@pytest.mark.parametrize("name", NAMED)
def test_with_named_sizes(name: str) -> None:
    draw = np.random.default_rng(0)
    x, y = draw.random(90), np.sort(draw.random(20))
    module = fx.symbolic_trace(NAMED[name], "f64[N]", "f64[M]")
    for function in (module, fx.compile(module, backend="c")):
        found, expected = function(x, y), NAMED[name](x, y)
        pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
        for one, other in pairs:
            np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["c64", "c128"])
def test_complex_numbers_in_order(dtype: str) -> None:
    nan = np.nan
    parts = [(1, 2), (1, -2), (nan, 1), (1, nan), (0, nan), (nan, nan), (-3, 0), (nan, -1), (0, 2)]
    z = np.array([complex(*part) for part in parts], np.complex64 if dtype == "c64" else np.complex128)

    def program(z: Any, x: Any, k: Any) -> Any:
        places = np.argsort(z)
        return np.sort(z), places, np.sort(z.reshape(3, 3), axis=0), np.sort_complex(x), np.sort_complex(k)

    agree(
        program,
        z,
        np.array([2.0, -1.0], np.float32),
        np.array([3, 1], np.int8),
        types=[f"{dtype}[9]", "f32[N]", "i8[M]"],
    )


def test_einsum_of_no_letters_is_a_number() -> None:
    def program(a: Any, v: Any) -> Any:
        alone = np.einsum("ii->", a), np.einsum("ii", a), np.einsum("i->", v)
        return *alone, np.einsum("i,i", v, v), np.einsum("ij,ij->", a, a), np.einsum("i,i,i", v, v, v)

    a, v = np.arange(9.0).reshape(3, 3), np.arange(3.0)
    for found, expected in zip(fx.jit(program)(a, v), program(a, v), strict=True):
        assert type(found) is type(expected) is np.float64 and found == expected


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_a_histogram_whose_range_is_not_finite_is_an_error(wrong: float) -> None:
    """As in NumPy; it had no elements."""
    x = np.array([1.0, 2.0, wrong, 3.0])
    for function in (lambda x: np.histogram(x, 3), lambda x: np.histogramdd([x, x], 3)[0]):
        for call in (function, fx.jit(function), fx.jit(function, backend="python")):
            with pytest.raises(ValueError, match="autodetected range"):
                call(x)


A = np.random.default_rng(0).standard_normal((4, 3, 3))
CUTOFFS: list[Any] = [0.5, [0.1, 0.5, 1, 2], np.array([0.5]), np.array([0.1, 0.5, 1, 2]), np.array([[0.1], [0.5]])]


@pytest.mark.parametrize("cutoff", CUTOFFS, ids=repr)
@pytest.mark.parametrize(
    "function",
    [
        lambda a, t: np.linalg.matrix_rank(a, tol=t),
        lambda a, t: np.linalg.matrix_rank(a, rtol=t),
        lambda a, t: np.linalg.matrix_rank(a + a.swapaxes(-1, -2), t, True),
        lambda a, t: np.linalg.pinv(a, t),
        lambda a, t: np.linalg.pinv(a, rtol=t),
    ],
    ids=["tol", "rtol", "hermitian", "pinv", "pinv rtol"],
)
def test_a_cutoff_for_each_of_several_matrices(function: Any, cutoff: Any) -> None:
    for a in (A, A[0], A[:1]):
        jitted = fx.jit(function, backend="python")
        try:
            expected = function(a, cutoff)
        except ValueError:
            with pytest.raises((ValueError, TraceError), match="must be one number, or one for each of the matrices"):
                jitted(a, cutoff)
            continue
        found = jitted(a, cutoff)
        assert type(found) is type(expected)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_the_rank_of_a_vector_is_an_int() -> None:
    for x in (A[0, 0], A[0, 0] * 0):
        found = fx.jit(np.linalg.matrix_rank, backend="python")(x)
        assert (type(found), found) == (int, np.linalg.matrix_rank(x))
    with pytest.raises(ValueError, match="can't be both set"):
        np.linalg.matrix_rank(A, tol=1, rtol=1)
    with pytest.raises((ValueError, TraceError), match="can't be both set"):
        fx.jit(lambda a: np.linalg.matrix_rank(a, tol=1, rtol=1), backend="python")(A)
