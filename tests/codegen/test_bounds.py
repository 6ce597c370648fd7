"""Checks of indices that depend on sizes alone are made before the loops, at both ends of a range,
and what they find is what a check of each element finds: an IndexError, or nothing."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.codegen.kernel.bounds import checked_before
from fxlite.codegen.kernel.ranges import ranges_of
from fxlite.scalar import expr
from fxlite.scalar.expr import CheckedIndex
from fxlite.scalar.index import Index
from fxlite.types import dtypes, shapes
from tests.codegen.compiling import c_file
from tests.oracle import RUNGS, agree


def laplacian(x: Any, out: Any) -> Any:
    n, m = out.shape
    middle = x[1 : n + 1, 1 : m + 1]
    return 4 * middle - (x[2 : n + 2, 1 : m + 1] + x[:n, 1 : m + 1]) - (x[1 : n + 1, 2 : m + 2] + x[1 : n + 1, :m])


def positions(tokens: Any, table: Any, places: Any) -> Any:
    return table[tokens] + places[: tokens.shape[1]]


def sums(x: Any, w: Any) -> Any:
    return (x[:, 2 : w.shape[0] + 2] * w).sum(axis=-1)


RNG = np.random.default_rng(11)
TOKENS = RNG.integers(0, 50, (2, 4))


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape)


@pytest.mark.parametrize(
    ("program", "types", "arguments"),
    [
        (laplacian, ("f64[A,B]", "f64[N,M]"), (numbers(7, 9), numbers(5, 6))),
        (laplacian, ("f64[A,B]", "f64[N,M]"), (numbers(2, 9), numbers(0, 6))),
        (positions, ("i64[B,T]", "f64[50,3]", "f64[P,3]"), (TOKENS, numbers(50, 3), numbers(4, 3))),
        (sums, ("f64[B,K]", "f64[N]"), (numbers(3, 30), numbers(25))),
    ],
)
def test_in_range(program: Any, types: tuple[str, ...], arguments: tuple[Any, ...]) -> None:
    agree(program, *arguments, types=types)
    text = c_file(program, *types)
    loops = text[text.index("for (int64_t") :]
    checks = [line for line in loops.splitlines() if "fx_index(" in line]
    assert all("if (" in line or "tokens[" in line for line in checks), "a check of sizes inside of a loop"


@pytest.mark.parametrize(
    ("program", "types", "arguments"),
    [
        (laplacian, ("f64[A,B]", "f64[N,M]"), (numbers(6, 9), numbers(5, 6))),
        (laplacian, ("f64[A,B]", "f64[N,M]"), (numbers(7, 7), numbers(5, 6))),
        (positions, ("i64[B,T]", "f64[50,3]", "f64[P,3]"), (TOKENS, numbers(50, 3), numbers(3, 3))),
        (sums, ("f64[B,K]", "f64[N]"), (numbers(3, 26), numbers(25))),
    ],
)
def test_out_of_range(program: Any, types: tuple[str, ...], arguments: tuple[Any, ...]) -> None:
    module = fx.symbolic_trace(program, *types)
    for rung in ("kernel", "c"):
        with pytest.raises(IndexError, match=r"out of (range|bounds)"):
            RUNGS[rung](module)(arguments)


def test_the_ends_that_lie_farthest_out_are_checked() -> None:
    """Of several indices on one axis, and only where they may be out of range; one that may count
    from the end keeps its check."""
    size, axis = shapes.dims("N E")
    extent = Index.of(axis)
    i = expr.fresh_var(size)

    def check(index: Any) -> Any:
        return CheckedIndex(dtypes.int64, expr.index_value(index), extent, "x")

    at = [check(Index.of(i) + 1), check(Index.of(i) + 3), check(Index.of(i) - 1)]
    value, is_inside = checked_before(expr.apply("add", expr.apply("add", at[0], at[1]), at[2]), [i], ranges_of({}))
    assert [n for n in expr.walk(value) if isinstance(n, CheckedIndex)] == [at[2]]
    (made,) = (n for n in expr.walk(is_inside) if isinstance(n, CheckedIndex))
    assert expr.as_index(made.operand) == Index.of(size) + 2


# -- numbers that are surely in range --------------------------------------------------------------
def clipped(x: Any, k: Any) -> Any:
    return x[np.clip(k, 0, 9)] + x[np.clip(k + 1, 0, 8) + (k > 0)]


def through_memory(x: Any, k: Any) -> Any:
    place = np.clip(k, 2, 9)
    out = np.zeros(10)
    np.add.at(out, place, x[0])
    return out, np.cumsum(place), x[place.reshape(-1, 1)]


def of_bytes(table: Any, k: Any) -> Any:
    return table[k] * 2


def around(x: Any, k: Any) -> Any:
    turns = x[np.mod(k, 10)] + x[k % 7 + 3] + x[-(k % -4)] + x[k & 7] + x[np.abs(np.clip(k, -9, 3))]
    return turns + x[np.clip(k, 0, 29) // 3] + x[np.clip(k, 0, 39) >> 2]


def of_named_sizes(x: Any, k: Any) -> Any:
    n = x.shape[0]
    last = x[np.clip(k, 0, n - 1)] + x[np.minimum(k % n, n - 1)] + x[np.where(k > 0, k % n, n - 1)]
    return last + x[np.maximum(k % (n - 2), 1)]


def histogram(x: Any) -> Any:
    return np.histogram(x, 10, range=(-2.0, 2.0))[0]


INTEGERS = np.array([3, -100, 5, 9, 10, 2**62, -(2**63), 0])


@pytest.mark.parametrize(
    ("program", "types", "arguments"),
    [
        (clipped, ("f64[10]", "i64[N]"), (numbers(10), INTEGERS)),
        (through_memory, ("f64[10]", "i64[N]"), (numbers(10), INTEGERS)),
        (around, ("f64[10]", "i64[N]"), (numbers(10), INTEGERS)),
        (of_named_sizes, ("f64[N+5]", "i64[M]"), (numbers(10), INTEGERS)),
        (of_bytes, ("f64[256]", "u8[N]"), (numbers(256), np.arange(256, dtype=np.uint8))),
        (histogram, ("f64[N+1]",), (numbers(100),)),
    ],
)
def test_surely_in_range(program: Any, types: tuple[str, ...], arguments: tuple[Any, ...]) -> None:
    agree(program, *arguments, types=types)
    assert "fx_index(" not in c_file(program, *types)


def test_a_function_without_checks_serves_no_other_index() -> None:
    """The calls have the same form, but the second one's index may be out of range."""

    def added(x: Any, k: Any, m: Any) -> Any:
        out, other, place = np.zeros(10), np.zeros(10), np.clip(k, 0, 9)
        np.add.at(out, place, x)
        np.add.at(other, m, x)
        return out, other, np.cumsum(place)

    x, k = numbers(8), INTEGERS
    agree(added, x, k, np.clip(k, -10, 9), types=["f64[N]", "i64[N]", "i64[N]"])
    compiled: Any = fx.compile(added, "f64[N]", "i64[N]", "i64[N]", threads=1)
    with pytest.raises(IndexError, match="out of bounds"):
        compiled(x, k, k)


@pytest.mark.parametrize(
    "program",
    [
        lambda x, k: x[np.clip(k, 0, 10)],
        lambda x, k: x[np.clip(k, 0, len(k) - 1)],
        lambda x, k: x[np.minimum(k, 9) % len(k)],
        lambda x, k: x[np.where(k > 0, k % 10, k)],
        lambda x, k: x[np.clip(k, -1, 9)],
        lambda x, k: x[np.clip(k, 0, 9) - (k > 3)],
        lambda x, k: x[np.clip(k, 0, 5) * 2],
        lambda x, k: x[np.minimum(k, 9)],
        lambda x, k: x[np.maximum(k, 0)],
        lambda x, k: x[np.clip(k, 0, None) + 2**62 + 2**62],
        lambda x, k: x[k % 11],
        lambda x, k: x[k % -3],
        lambda x, k: x[np.mod(k, np.clip(k, -1, 10))],
        lambda x, k: x[np.fmod(k, 10)],
        lambda x, k: x[np.clip(k, 0, 10) // 1],
        lambda x, k: x[np.clip(k, 0, 9) // np.clip(k, 0, 2)],
        lambda x, k: x[np.clip(k, 0, 9) >> k],
        lambda x, k: x[k & -8],
        lambda x, k: x[np.abs(k) % 9 - 1],
        lambda x, k: x[np.clip(x, 0, 9).astype(np.int64)[0] + k],
    ],
)
def test_perhaps_not_in_range(program: Any) -> None:
    """What is one too large, negative, or wraps around is checked."""
    assert "fx_index(" in c_file(program, "f64[10]", "i64[N]")


@pytest.mark.parametrize(
    "program",
    [
        lambda x, y: np.zeros(len(y))[x],
        lambda x, y: np.ones(len(y), bool)[x],
        lambda x, y: np.ones((len(y), 2))[x].sum(axis=1) + y[0],
        lambda x, y: np.full((len(y), len(x)), 2j)[x, x % 2],
        lambda x, y: np.full(len(y), y[0])[x],
        lambda x, y: np.take_along_axis(np.zeros(len(y)), x, 0),
        lambda x, y: np.where(y[0] > 0, np.zeros((len(y), 4))[:, x[0]], 0.0),
    ],
)
def test_a_position_is_checked_where_all_elements_are_alike(program: Any) -> None:
    compiled: Any = fx.compile(program, "i64[N]", "f64[M]")
    x, y = np.array([3, 0, -1]), np.ones(5)
    np.testing.assert_array_equal(compiled(x, y), program(x, y))
    x[0] = 7
    with pytest.raises(IndexError):
        compiled(x, y)


# -- one check for each index ----------------------------------------------------------------------
def corners(x: Any, k: Any, m: Any) -> Any:
    return x[k][:, m] + x[m][:, k] * x[k][:, m]


def test_each_index_of_two_is_checked_once() -> None:
    """``x[k][:, m]`` checks an element of k and one of m, and neither again because the other is in range."""
    places = np.array([2, -4, 0, 3])
    agree(corners, numbers(4, 4), places, places[::-1].copy(), types=["f64[N,N]", "i64[K]", "i64[K]"])
    compiled: Any = fx.compile(corners, "f64[N,N]", "i64[K]", "i64[K]", threads=1)
    (text,) = (t for name, t in compiled.sources.items() if name.endswith(".c"))
    assert text.count("fx_index(") == 4  # k and m on either axis
    for wrong in ((places + 1, places), (places, places - 1)):
        with pytest.raises(IndexError, match="out of bounds"):
            compiled(numbers(4, 4), *wrong)


def neighbours_on_a_torus(x: Any) -> Any:
    n, m = x.shape
    y = x.copy()
    for i in range(n):
        for j in range(m):
            y[i, j] = y[i, j] * 0.5 + x[(i - 1) % n, j] + x[(i + 1) % n, (j - 2) % m] + x[i % n, (j + m) % m]
            y[(i + 1) % n, j] += y[i, j]
    return y


@pytest.mark.parametrize("sizes", [(5, 4), (2, 3), (9, 2)])
def test_neighbours_on_a_torus_need_no_division(sizes: tuple[int, int]) -> None:
    agree(neighbours_on_a_torus, numbers(*sizes), types=["f64[N+2,M+2]"], rungs=("kernel", "c"), loops="keep")
    text = c_file(neighbours_on_a_torus, "f64[N+2,M+2]", loops="keep")
    assert "fx_mod" not in text and "fx_index(" not in text


# -- indices that all rows use ---------------------------------------------------------------------
def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def columns(x: Any, k: Any) -> Any:
    return x[:, k]


def sums_of_columns(x: Any, k: Any) -> Any:
    return x[:, k].sum(1), x[:, k].max(1), softmax(x[:, k]), (x[:, k] * x[:, k + 1]).sum(1)


def pairs(x: Any, k: Any) -> Any:
    return x[:, :, None][:, k, k - k]


COLUMNS = np.array([3, -1, 0, 4, 2, -5] * 7)


@pytest.mark.parametrize("program", [columns, sums_of_columns, pairs])
@pytest.mark.parametrize("types", [("f32[40,70]", "i64[42]"), ("f32[N,70]", "i64[K]"), ("f32[N,M]", "i64[K]")])
def test_columns_that_every_row_reads_are_checked_once(program: Any, types: tuple[str, ...]) -> None:
    x = numbers(40, 70).astype("f4")
    agree(program, x, COLUMNS, types=types)
    compiled = fx.compile(program, *types, threads=1)
    text = "".join(t for name, t in compiled.sources.items() if name.endswith(".c"))
    kernels = text[text.index("static void k") : text.index("_run(")]
    others = re.sub(r"if \(!\(.*?\n    +\}\n    \}\n", "", kernels, flags=re.DOTALL)  # without looking for a wrong one
    assert "fx_index(" in kernels and "fx_index(" not in others, kernels
    for wrong in (70, -71, 2**40):
        k = COLUMNS.copy()
        k[17] = wrong
        for rung in ("kernel", "c"):
            with pytest.raises(IndexError, match=r"out of bounds|out of range"):
                RUNGS[rung](fx.symbolic_trace(program, *types))((x, k))


def test_nothing_is_looked_up_for_no_rows() -> None:
    x = np.zeros((0, 70), "f4")
    agree(columns, x, COLUMNS, types=("f32[N,70]", "i64[K]"))
    agree(columns, numbers(3, 70), COLUMNS[:0], types=("f64[N,70]", "i64[K]"))


def test_elements_from_which_much_is_computed_are_checked_before() -> None:
    """Comparisons alone find whether all indices are in range; which one is not is looked for only then."""
    x, k = numbers(500).astype("f4"), RNG.integers(-500, 500, 300)
    programs: list[Any] = [lambda x, k: np.exp(x[k]) * 2, lambda x, k: np.log(np.abs(x[k]) + 1).sum()]
    for program in programs:
        for types in (("f32[500]", "i64[300]"), ("f32[N]", "i64[K]")):
            agree(program, x, k, types=types)
            text = "".join(t for name, t in fx.compile(program, *types).sources.items() if name.endswith(".c"))
            kernel = text[text.index("static void k") : text.index("_run(")]
            checks, loops = kernel.split("fx_index(")
            assert "if (!(" in checks and "for (" in loops, kernel
            for wrong in (500, -501):
                with pytest.raises(IndexError, match=f"{wrong}.*out of (range|bounds)"):
                    RUNGS["c"](fx.symbolic_trace(program, *types))((x, np.where(np.arange(300) == 77, wrong, k)))


# -- divisions of loops ----------------------------------------------------------------------------
def test_quotients_and_remainders_of_joined_loops() -> None:
    """What loops are divided by is divided by their steps first: ``(i*56 + j) // 392`` is ``i // 7`` for j < 56."""
    random = np.random.default_rng(1)
    for _ in range(300):
        loops = [expr.fresh_var(int(n)) for n in random.choice([2, 3, 5, 7, 8], 3)]
        steps = random.choice([0, 1, 2, 3, 6, 8, 12, 16, 24, -2, -6], 3)
        index = Index.of(int(random.choice([0, 0, 1, 5, -3])))
        for loop, step in zip(loops, steps, strict=True):
            index = index + Index.of(loop) * int(step)
        by = int(random.choice([2, 4, 6, 8, 12, 24, 48, 9]))
        for place in np.ndindex(*(v.extent.constant or 0 for v in loops)):
            env = {v.name: n for v, n in zip(loops, place, strict=True)}
            number = index.evaluate(env)
            assert (index // by).evaluate(env) == number // by and (index % by).evaluate(env) == number % by
    i, j = Index.of(expr.fresh_var(700)), Index.of(expr.fresh_var(56))
    assert (i * 56 + j) // 392 == i // 7 and (i * 56 + j) % 392 == i % 7 * 56 + j
    text = "".join(fx.compile(lambda x: x.max(), x="i32[2,65536]").sources.values())
    assert "% 65536" not in text[text.index("static void k0") : text.index("_check(void)")]
