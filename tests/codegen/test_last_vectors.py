"""Reductions of rows of any length in C: the remainder of a row is the new numbers of its last vector, some of which
are computed twice."""

from __future__ import annotations

import re

import numpy as np
import pytest

import fxlite as fx
from fxlite.nn import functional as F
from tests.codegen.compiling import c_file
from tests.oracle import agree

SIZES = (1, 15, 16, 17, 18, 31, 32, 33, 47, 100, 1023, 1025, 1041, 2050)


def reduced(x):
    """Reductions that count a number once, and those that need not."""
    near = 1 + x / 64
    return x.sum(1), near.prod(1), x.max(1), x.min(1), (x > 0).all(1), abs(x).max(1), x.argmax(1), (x * x).sum((0, 1))


def rows(size: int, dtype: str) -> np.ndarray:
    """Random numbers, and rows in which NaN, infinity or -0 is the last number or the one before the last vector."""
    x = np.random.default_rng(size).standard_normal((9, size)).astype(dtype)
    if np.dtype(dtype).kind == "f":
        x[1, -1], x[2, -1], x[3, -1] = np.nan, np.inf, -0.0
        x[4, max(size - 16, 0)], x[5, max(size - 17, 0)] = np.nan, -np.inf
    return x


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8"])
def test_rows_of_any_length(dtype: str) -> None:
    """Of sizes that are known, and of one with a name."""
    named = fx.compile(reduced, f"{dtype[0]}{8 * int(dtype[1])}[M,N]")
    with np.errstate(all="ignore"):
        for size in SIZES:
            x = rows(size, dtype)
            agree(reduced, x, rungs=("c",))
            for found, expected in zip(named(x), reduced(x), strict=True):
                np.testing.assert_allclose(found, expected, rtol=1e-5 if dtype == "f4" else 1e-12, atol=1e-4)


@pytest.mark.parametrize("size", SIZES)
def test_stored_rows(size: int) -> None:
    """The exponentials of a softmax are stored while they are added; where a row is written over itself, no number
    of it may be computed twice."""

    def softmax(x):
        return F.softmax(x, -1), F.log_softmax(x, -1)

    def in_place(x):
        for _ in range(3):
            x[:] = np.exp(x - x.max(1)[:, None])
            x /= x.sum(1)[:, None]
        return x.sum(0)

    x = np.random.default_rng(size).standard_normal((7, size)).astype(np.float32)
    agree(softmax, x, rungs=("c",))
    agree(in_place, x, rungs=("c",))


@pytest.mark.parametrize("size", SIZES)
def test_rows_of_costly_functions(size: int) -> None:
    """Rows that cannot be joined, since a row or a number for each of them is read beside."""

    def program(x, y, z):
        return np.tanh(x + y), x / y, np.sqrt(abs(x)) * z[:, None], F.softmax(np.stack([x, x * 2, x - y], 1), 1)

    random = np.random.default_rng(size)
    x, y, z = random.standard_normal((7, size)), random.uniform(1, 2, size), random.standard_normal(7)
    agree(program, x.astype("f4"), y.astype("f4"), z.astype("f4"), rungs=("c",))
    agree(program, x, y, z, rungs=("c",))


@pytest.mark.parametrize("size", SIZES)
def test_columns_of_short_rows(size: int) -> None:
    """Rows that are combined with each other have a second place for columns that are computed twice."""

    def program(x):
        middle = x.reshape(5, 9, size)
        written = x[:5] * 0
        written += np.exp(middle).sum(1)
        return x.sum(0), np.exp(x).sum(0), x.max(0), abs(middle).min(1), (x * x).mean(0), middle.argmax(1), written

    x = np.random.default_rng(size).standard_normal((45, size))
    x[3, -1], x[7, 0] = np.nan, -np.inf
    with np.errstate(all="ignore"):
        agree(program, x.astype("f4"), rungs=("c",))
        agree(program, x, rungs=("c",))
    agree(lambda x: (x.sum(0), (x // 3).max(0)), (x[10:] * 9).astype("i4"), rungs=("c",))


def test_remainders() -> None:
    """A remainder has no loop of its own, except a single number of a sum, and what is computed one by one."""
    sums = [c_file(lambda x: x.sum(1), f"f32[8,{n}]") for n in (47, 31, 33, 48)]
    assert ["others" in t for t in sums] == [False, False, True, False]
    assert ["lane >= 1" in t for t in sums] == [True, True, False, False]
    assert "others" not in c_file(lambda x: x.max(1), "f32[8,33]")
    assert "others" in c_file(lambda x: (x // 3).sum(1), "i32[8,47]")


def test_short_rows() -> None:
    """The last vector of a short row begins before its first new number, unless compilers do as well."""

    def begins(program, size: int, kind: str = "f32") -> bool:
        found = c_file(program, f"{kind}[M,{size}]", f"{kind}[{size}]")
        return re.search(rf"fx_min\(block\d*, {size - 16}\)", found) is not None

    def tanh(x, y):
        return np.tanh(x + y)

    assert [begins(tanh, n) for n in (16, 17, 24, 31, 47, 48, 1023)] == [False, False, False, True, True, False, False]
    assert begins(lambda x, y: x / y, 47) and not begins(lambda x, y: x + y, 47)
    assert begins(lambda x, y: x.sum(0) + y, 47) and begins(lambda x, y: x.max(0) + y, 47)
    assert not begins(lambda x, y: x // y, 47, "i32") and not begins(lambda x, y: x % y, 47, "i64")


def test_scattered_places_of_joined_axes_are_not_divided() -> None:
    """Threads share the elements of an array, whose places are divided by a named size only where that is needed."""

    def program(i):
        return np.bincount(i.ravel(), minlength=64)

    assert "N, 1)" not in c_file(program, "i64[128,N]")
    compiled = fx.compile(program, "i64[128,N]")
    for size in (0, 1, 700):
        i = np.random.default_rng(0).integers(0, 64, (128, size))
        np.testing.assert_array_equal(compiled(i), program(i))
