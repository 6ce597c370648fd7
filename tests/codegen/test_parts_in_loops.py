"""Loops over parts of arrays that begin or end at the number of an iteration: kernels compute the part alone,
and masks and positions are not stored."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.codegen.c.emit import emit
from tests.oracle import agree, agree_on_all

A = np.linspace(-1, 2, 24 * 20).reshape(24, 20)
V = np.linspace(0.5, 3, 50)


def covariance(x: Any) -> Any:
    n = x.shape[1]
    out = np.zeros((n, n))
    for i in range(n):
        out[i:n, i] = out[i, i:n] = x[:, i] @ x[:, i:n] / 3.0
    return out


def covariance_read_back(x: Any) -> Any:
    out = np.zeros((20, 20))
    for i in range(20):
        out[i:20, i] = x[:, i] @ x[:, i:20] / 3.0
        out[i, i:20] = out[i:20, i]
    return out


def edges(x: Any) -> Any:
    """Elements, rows and the inside of an array, written one after the other."""
    out = np.zeros_like(x)
    out[1:-1] = x[2:] - x[:-2]
    out[0], out[-1] = x[1] * 2, x[-2] * 3
    out[7] = x[3] + 1
    return out


def levinson(r: Any) -> Any:
    y = np.zeros_like(r)
    y[0] = -r[0]
    alpha, beta = -r[0], 1.0
    for k in range(1, r.shape[0]):
        beta *= 1.0 - alpha * alpha
        alpha = -(r[k] + np.dot(np.flip(r[:k]), y[:k])) / beta
        y[:k] += alpha * np.flip(y[:k])
        y[k] = alpha
    return y


def forward_substitution(l: Any) -> Any:
    x = np.zeros(l.shape[0])
    for i in range(l.shape[0]):
        x[i] = (1.0 - l[i, :i] @ x[:i]) / (3.0 + l[i, i % 20])
    return x


def shrinking_from_both_ends(x: Any) -> Any:
    out = x.copy()
    for i in range(1, 20):
        out[i:-i] = np.sqrt(np.abs(x[i:-i])) * 2 + out[i - 1 : -i - 1]
    return out


def maxima_of_tails(x: Any) -> Any:
    out = np.zeros(x.shape[0])
    for i in range(x.shape[0]):
        out[i] = np.max(x[i:]) - np.min(x[: i + 1])
    return out


def rows_below(x: Any) -> Any:
    out = x.copy()
    for i in range(19):
        out[i + 1 :] -= out[i] * 0.1
    return out


def read_also_whole(x: Any) -> Any:
    """A value of which one reader needs a part and another all."""
    total = np.zeros_like(x)
    for i in range(x.shape[0]):
        y = np.exp(-x * i)
        total[i:] += y[i:]
        total[0] += y.sum()
    return total


def read_by_a_later_round(x: Any) -> Any:
    """A value of which a part is read now, and all in the next round."""
    y, total = x.copy(), np.zeros_like(x)
    for i in range(x.shape[0]):
        total[i:] += y[i:]
        y = np.cos(y) + i
        total[:i] += y[:i]
    return total, y


PROGRAMS: dict[str, tuple[Callable[..., Any], np.ndarray[Any, Any]]] = {
    f.__name__: (f, x)
    for f, x in (
        (covariance, A),
        (covariance_read_back, np.tile(A, (5, 1))),
        (levinson, V * 0.01),
        (forward_substitution, A[:20]),
        (shrinking_from_both_ends, V),
        (maxima_of_tails, V),
        (rows_below, A),
        (read_also_whole, V[:9]),
        (read_by_a_later_round, V),
    )
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("named", [False, True])
def test_parts_are_as_numpy_has_them(name: str, named: bool) -> None:
    program, x = PROGRAMS[name]
    types = [f"f64[{','.join('AB'[: x.ndim])}]"] if named and name not in ("forward_substitution",) else None
    agree(program, x, types=types, loops="keep")


def _text(program: Callable[..., Any], kind: str) -> str:
    text = emit(fx.symbolic_trace(program, kind, loops="keep")).functions
    return text[text.index("fori_loop: a loop") :]


def test_only_the_part_that_is_read_is_computed() -> None:
    """A row of 500 sums is computed from the counter on: half of the work in all."""
    text = _text(covariance, "f64[B,500]")
    assert "lane < 500 - i_; ++lane" in text
    assert "?" not in text.partition("int64_t covariance_largest")[0].replace("fx_isnan_f64(left[lane]) ?", "")


def test_a_sum_is_computed_only_where_it_is_written() -> None:
    """Though what else stands there is read and stored again."""
    text = _text(covariance_read_back, "f64[B,20]").partition("int64_t covariance_read_back_largest")[0]
    assert "?" not in text.replace("fx_isnan_f64(left[lane]) ?", ""), text


@pytest.mark.parametrize("kind", ["f64[50]", "f64[50,4]"])
def test_each_part_of_an_array_is_a_loop(kind: str) -> None:
    """Nothing asks for each element by which assignment it was written."""
    agree(edges, V)
    text = emit(fx.symbolic_trace(edges, kind)).functions
    assert "?" not in text and "< 0;" not in text, text


def test_each_part_of_an_array_of_a_named_size_is_a_loop() -> None:
    lowered = fx.jit(lambda x: np.gradient(x), backend="c").lower(V)
    text = "".join(text for name, text in lowered.sources.items() if name.endswith(".c"))
    assert text.count("?") == 0, text


def test_padded_arrays_are_copied() -> None:
    """Only the edges of an array of named sizes compute where they read from."""
    modes = "reflect", "symmetric", "edge", "wrap"

    def padded(x: Any) -> Any:
        return [np.pad(x, ((2, 3), (1, 2)), mode=mode) for mode in modes]

    shapes = (7, 9), (2, 3), (1, 2)  # shorter than their edges, too
    sets = [(np.arange(np.prod(shape), dtype=float).reshape(shape),) for shape in shapes]
    agree_on_all(padded, sets, types=["f64[A,B]"])
    text = emit(fx.symbolic_trace(lambda x: np.pad(x, 2, mode="reflect"), "f64[N]")).functions
    assert re.search(r"for \(int64_t i = 0; i < N; \+\+i\) \{\n +take\[i \+ 2\] = x\[i\];\n", text), text


def test_sums_of_a_part_are_long_sums() -> None:
    """The dot product goes over the part in lanes, without checks of positions that are in range."""
    text = _text(levinson, "f64[N]").partition("int64_t levinson_largest")[0]
    assert re.search(r"for \(int64_t block = 0; block < i_; block \+= 1024\)", text) and "fx_index" not in text


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_mask_is_stored(name: str) -> None:
    program, x = PROGRAMS[name]
    text = _text(program, f"f64[{','.join(map(str, x.shape))}]").partition("_largest_bytes")[0]
    assert not re.search(r"(unsigned char|int64_t|bool) \*const \w+ = \((unsigned char|int64_t|bool) \*\)", text), text


def smoothed(p: Any, b: Any) -> Any:
    for _ in range(60):
        before = p.copy()
        p[1:-1, 1:-1] = (before[1:-1, 2:] + before[1:-1, :-2] + before[2:, 1:-1]) / 3 - b[1:-1, 1:-1]
        p[:, 0] = before[:, -1] + p[:, 1]
    return p + 0


def test_the_inside_of_an_array_is_computed_where_it_is_stored() -> None:
    """What is written to the inside is computed there, once, and copied around it; no element asks where it is."""
    rng = np.random.default_rng(0)
    given = rng.normal(size=(70, 80)) / 9, rng.normal(size=(70, 80)) / 90
    agree(smoothed, *given, loops="keep")
    text = emit(fx.symbolic_trace(smoothed, *given, loops="keep")).functions
    assert "?" not in text and text.count(" / 3.0") == 1
    assert "parallel" not in text  # it is small, and so are the rows around it


# -- what a loop writes over -----------------------------------------------------------------------
def recursive_filter(x: Any) -> Any:
    y = np.full_like(x, 7.0)
    y[0] = x[0]
    y[1] = x[1] - y[0]
    for i in range(2, x.shape[0]):
        y[i] = x[i] + 0.5 * y[i - 1] - 0.25 * y[i - 2]
    z = np.full_like(x, 8.0)
    z[:, -1] = x[:, 0]
    for i in range(x.shape[1] - 2, -1, -1):
        z[:, i] = 0.5 * z[:, i + 1] + y[:, i]
    y[0] = z[0] * 2
    for i in range(1, x.shape[0]):
        y[i] = z[i] + 0.5 * y[i - 1]
    return y + z


def itself_first(x: Any) -> Any:
    y = x * 2
    for i in range(1, x.shape[0]):
        y[i] = y[i] + 0.5 * y[i - 1]
    return y


def next_row(x: Any) -> Any:
    y = x * 2
    for i in range(x.shape[0] - 1):
        y[i] = 0.5 * y[i + 1] + x[i]
    return y


def last_row_first(x: Any) -> Any:
    y = x * 2
    for i in range(x.shape[0]):
        y[i] = 0.5 * y[i - 1] + x[i]  # y[-1] in the first iteration
    return y


def inside_only(x: Any) -> Any:
    y = x * 2
    for i in range(1, x.shape[0] - 1):
        y[i] = 0.5 * y[i - 1] + x[i]
    return y


def part_of_rows(x: Any) -> Any:
    y = x * 2
    for i in range(1, x.shape[0]):
        y[i, 1:] = 0.5 * y[i - 1, 1:] + x[i, 1:]
    return y


def start_is_read_later(x: Any) -> Any:
    start = x * 2
    y = start.copy()
    for i in range(1, x.shape[0]):
        y[i] = 0.5 * y[i - 1] + x[i]
    return y, start


def row_after_its_write(x: Any) -> Any:
    y = x * 2
    total = x[0] * 0
    for i in range(1, x.shape[0]):
        y[i] = 0.5 * y[i - 1] + x[i]
        total = total + y[(i + 3) % x.shape[0]]
    return y, total


LEFT_OUT = (recursive_filter,)
KEPT = (itself_first, next_row, last_row_first, inside_only, part_of_rows, start_is_read_later, row_after_its_write)


@pytest.mark.parametrize("program", [*LEFT_OUT, *KEPT], ids=lambda f: f.__name__)
@pytest.mark.parametrize("named", [False, True])
def test_rows_before_a_loop_writes_over_them(program: Callable[..., Any], named: bool) -> None:
    """Rows that are written before they are read have no value before the loop, all others do."""
    sets = [(A * k,) for k in (1, 3)]  # the second call finds other numbers in memory
    agree_on_all(program, sets, types=["f64[N+2,M+2]"] if named else None, loops="keep")


@pytest.mark.parametrize("kind", ["f64[24,20]", "f64[N+2,M+2]"])
def test_rows_that_a_loop_writes_are_not_filled_before(kind: str) -> None:
    text = emit(fx.symbolic_trace(recursive_filter, kind, loops="keep")).functions
    assert "7.0" not in text and "8.0" not in text, text
    for program in KEPT:
        text = emit(fx.symbolic_trace(program, kind, loops="keep")).functions
        assert "2.0*" in text.replace(" ", "") or "*2.0" in text.replace(" ", ""), text


def test_a_function_for_some_rows_serves_no_other_value() -> None:
    """The start of the loop and the other result have the same form, but only the result is needed in full."""

    def filtered(x: Any, w: Any) -> Any:
        y, other = x * 2, w * 2
        for i in range(1, x.shape[0]):
            y[i] = 0.5 * y[i - 1] + x[i]
        return y, other

    agree(filtered, A, A + 1, loops="keep")


def test_arrays_that_a_loop_writes_over_are_not_filled() -> None:
    def rows(x: Any) -> Any:
        y = np.zeros_like(x)
        total = 0.0
        for i in range(x.shape[0]):
            y[i] = x[i] * total
            total = total * 0.5 + x[i, 0]
        return y

    agree(rows, A, loops="keep")
    agree(rows, A, types=["f64[N,M]"], loops="keep")
    text = emit(fx.symbolic_trace(rows, "f64[24,20]", loops="keep")).functions
    assert "k0_" not in text and "< 0; ++" not in text, text


def test_long_sums_of_known_lengths_ask_for_no_length() -> None:
    text = emit(fx.symbolic_trace(lambda x: x.sum(), "f64[5000]")).functions
    assert "if (5000" not in text and "5000 - block" in text, text


# -- sums of rows below the diagonal, and what follows in place ------------------------------------
def triangular_product(a: Any, b: Any, alpha: Any) -> Any:
    for i in range(b.shape[0]):
        for j in range(b.shape[1]):
            b[i, j] += np.dot(a[i + 1 :, i], b[i + 1 :, j])
    b *= alpha


@pytest.mark.parametrize("named", [False, True])
def test_rows_below_the_diagonal_are_added_several_at_a_time(named: bool) -> None:
    """They begin at the diagonal, and the product is scaled where it lies."""
    rng = np.random.default_rng(2)
    given = rng.normal(size=(140, 140)) / 30, rng.normal(size=(140, 37)), np.float64(1.5)
    types = ["f64[N+2,N+2]", "f64[N+2,M+2]", "f64"] if named else [fx.types.type_of(value) for value in given]
    agree(triangular_product, *given, types=types, rungs=("graph", "c"), loops="keep")
    compiled: Any = fx.compile(fx.symbolic_trace(triangular_product, *types, loops="keep"), backend="c", threads=1)
    (text,) = (t for name, t in compiled.sources.items() if name.endswith(".c"))
    assert "r += 8" in text and "if (i_ + 1" not in text and "fx_copy" not in text, text


# -- made from a few numbers -----------------------------------------------------------------------
@pytest.mark.parametrize(("size", "masks"), [(100, 0), (8, 2)])
def test_masks_of_positions_are_no_weights(size: int, masks: int) -> None:
    """Masks of 100 x 100 places take no memory: a kernel compares positions. Small ones are stored."""
    x = np.random.default_rng(1).normal(size=(6, size))
    agree(covariance, x, loops="keep")
    module = fx.compile(fx.symbolic_trace(covariance, x, loops="keep"), backend="c").optimized
    assert not module.graph.find_nodes(op="call_function", target=fx.ops.fori_loop)
    assert sum(value.dtype == bool for _, value in module.named_buffers()) == masks


def test_large_arrays_of_a_few_numbers_are_no_weights() -> None:
    def filtered(x: Any) -> Any:
        y = np.zeros((100, 100))
        y[:, 3] = 5.0
        for i in range(1, 100):
            y[i] = x[i] - 0.5 * y[i - 1] * y[0, 3]
        return y

    x = np.random.default_rng(1).normal(size=(100, 100))
    agree(filtered, x, loops="keep")
    assert not list(fx.symbolic_trace(filtered, x, loops="keep").named_buffers())


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.eye(90, 80, 3),
        lambda: np.identity(100, np.float32),
        lambda: np.tri(100, k=-2),
        lambda: np.arange(5, 90000, 7),
        lambda: np.arange(10000, dtype=np.float32),
        lambda: np.ogrid[0:9000],
        lambda: np.ogrid[0:9000, 3:7][0],
    ],
    ids="eye identity tri arange floats line column".split(),
)
def test_large_arrays_of_whole_numbers_are_no_weights(make: Any) -> None:
    """Their elements take less time to compute than to read, and less still to write into the cache."""

    def added(x: Any) -> Any:
        return x + make()

    x = np.random.default_rng(1).normal(size=make().shape)
    agree(added, x)
    assert not list(fx.compile(added, x, backend="c").optimized.named_buffers())


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.mgrid[0:90, 5:60],
        lambda: np.mgrid[0:90:2, 260:5:-1],
        lambda: np.mgrid[0:9:0.1, 0:60],
        lambda: np.mgrid[0:1:90j, 0:60],
        lambda: np.indices((70, 80)),
        lambda: np.indices((70, 80), np.float32),
        lambda: np.arange(0.5, 9000),
        lambda: np.arange(True, 9000, np.int8(3)),
        lambda: np.eye(90, dtype=bool),
        lambda: np.eye(90, dtype=complex, order="F"),
    ],
)
def test_large_grids(make: Any) -> None:
    """They are those of NumPy, whether they are computed in the call or stored."""
    x = np.random.default_rng(1).normal(size=make().shape[-1])
    agree(lambda x: (x + make(), make()), x)


@pytest.mark.parametrize("inner", [2, 5])
@pytest.mark.parametrize("axis", [0, 1])
def test_repeated_elements_of_a_large_array_are_no_weights(inner: int, axis: int) -> None:
    def scaled(x: Any) -> Any:
        return (
            x * np.repeat(np.sqrt(np.arange(1, 8193)), inner)
            if axis
            else x * np.tile(np.sqrt(np.arange(1, 8193)), inner)
        )

    x = np.random.default_rng(1).normal(size=8192 * inner)
    agree(scaled, x)
    (stored,) = fx.compile(scaled, x, backend="c").optimized.named_buffers()
    assert stored[1].size == 8192


def test_a_single_place_of_a_row_is_stored_apart() -> None:
    """The others are filled, without asking for each element where it is."""

    def column(x: Any) -> Any:
        y = np.zeros((x.shape[0], 100))
        y[:, 40] = np.exp(x)
        return y

    agree(column, V)
    assert "?" not in emit(fx.symbolic_trace(column, "f64[50]")).functions


@pytest.mark.parametrize("kind", ["f32[300,400]", "f32[2,400,300]", "f32[M,N]"])
@pytest.mark.parametrize("k", [-500, -1, 0, 7, 299, 1000])
def test_a_long_row_is_divided_at_the_diagonal(kind: str, k: int) -> None:
    """Elements behind it, or before it, are zero and read nothing; where it does not meet a row, all or none are."""
    shape = {"f32[300,400]": (300, 400), "f32[2,400,300]": (2, 400, 300), "f32[M,N]": (290, 310)}[kind]
    x = np.random.default_rng(6).normal(size=shape).astype(np.float32)
    for program in (lambda x: np.tril(x, k), lambda x: np.triu(x, k)):
        compiled = fx.compile(program, kind, backend="c", threads=2)
        np.testing.assert_array_equal(compiled(x), program(x))
        (text,) = (t for name, t in compiled.sources.items() if name.endswith(".c"))
        assert " ? x[" not in text


def spread_rows(x: Any) -> Any:
    """Rows and columns with zeros between them."""
    y = np.zeros((3 * x.shape[0], 3 * x.shape[1]), x.dtype)
    y[1::3, ::3] = x
    return y


def woven_rows(x: Any) -> Any:
    """The rows of two arrays and those of two others take turns, and so do their columns."""
    columns = [np.stack(pair, 2).reshape(x.shape[0], -1) for pair in ((x, x + 1), (x * 2, x * 3))]
    return np.stack(columns, 1).reshape(-1, columns[0].shape[1])


def spread_volume(x: Any) -> Any:
    """A row depends on two conditions."""
    n = x.shape[0]
    y = np.ones((2 * n, 3 * n, 2 * x.shape[1]), x.dtype)
    y[::2, 2::3, 1::2] = x[:, None]
    return y[1:, :-1, 1:]


@pytest.mark.parametrize("program", [spread_rows, woven_rows, spread_volume])
@pytest.mark.parametrize("kind", ["f32[11,17]", "f64[11,N]", "f32[M,N]"])
def test_conditions_of_a_row_are_asked_once(program: Callable[..., Any], kind: str) -> None:
    """Rows between those that are spread are filled, and others read vectors."""
    for rows, columns in ((11, 17), (11, 1), (1, 40)) if "M" in kind else ((11, 17),):
        x = np.random.default_rng(6).normal(size=(rows, columns)).astype({"f32": "f4", "f64": "f8"}[kind[:3]])
        compiled = fx.compile(program, kind, backend="c", threads=1)
        np.testing.assert_array_equal(compiled(x), program(x))
        (text,) = (t for name, t in compiled.sources.items() if name.endswith(".c"))
        assert " ? x[" not in text
