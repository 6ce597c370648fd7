"""Loops in which a slice with computed bounds is written: kernels compute that part alone, and not the whole array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from tests.codegen.compiling import c_file
from tests.oracle import agree

X = np.random.default_rng(0).normal(size=24)
M = np.random.default_rng(1).normal(size=(12, 9))


def scaled(a: Any) -> Any:
    n, length = len(a), 2
    while length <= n:
        for s in range(0, n, length):
            a[s : s + length // 2] = a[s : s + length // 2] * 0.5 + s
        length *= 2
    return a


def shifted(a: Any) -> Any:
    n, length = len(a), 2
    while length <= n - length:
        for s in range(0, n - length, length):
            a[s : s + length // 2] = a[s + length // 2 : s + 2 * (length // 2)] * 0.5 + 1
        length *= 2
    return a


def through_a_copy(a: Any) -> Any:
    n, length = len(a), 2
    while length <= n - length:
        for s in range(0, n - length, length):
            half = a[s : s + length // 2].copy()
            a[s + length // 2 : s + 2 * (length // 2)] = half * 0.5
        length *= 2
    return a


def into_another(a: Any) -> Any:
    b, length = np.zeros(len(a)), 2
    while length <= len(a) - length:
        for s in range(0, len(a) - length, length):
            b[s : s + length // 2] = a[s + length // 2 : s + 2 * (length // 2)] * 0.5 + 1
        length *= 2
    return a, b


def butterflies(a: Any) -> Any:
    a = a.astype(np.complex128)
    length = 2
    while length <= len(a) - length:
        w = np.exp(-2j * np.pi * np.arange(len(a))[: length // 2] / length)
        for s in range(0, len(a) - length, length):
            u = a[s : s + length // 2].copy()
            v = a[s + length // 2 : s + length] * w
            a[s : s + length // 2] = u + v
            a[s + length // 2 : s + length] = u - v
        length *= 2
    return a


def rows(a: Any) -> Any:
    size = 1
    while size < a.shape[0]:
        for s in range(size, a.shape[0], 2 * size):
            a[s : s + size] = a[s - size] - 2 * a[s : s + size]
        size += size
    return a


def columns(a: Any) -> Any:
    size = 1
    while size < a.shape[1]:
        for s in range(size, a.shape[1], 2 * size):
            a[1:-1, s : s + size] = a[:-2, s : s + size] + a[2:, s - 1][:, None]
        size += size
    return a


def blocks(a: Any) -> Any:
    size = 1
    while size < a.shape[1]:
        for s in range(size, a.shape[1], 2 * size):
            a[s : s + size, s - size : s] = a[0, 0] + size
        size += size
    return a


def from_the_end(a: Any) -> Any:
    k = 1
    while k < len(a) + 3:
        a[-k : len(a) - k // 2] = a[-k : len(a) - k // 2] - k
        k = 2 * k + 1
    return a


def the_old_one_is_read_later(a: Any) -> Any:
    total, size = np.zeros(len(a)), 1
    while size < len(a):
        for s in range(0, len(a), 2 * size):
            before = a.copy()
            a[s : s + size] = a[::-1][s : s + size] * 0.5
            total = total + before * a
        size += size
    return a, total


def two_arrays_take_turns(a: Any) -> Any:
    b, size = a * 2.0, 1
    while size < len(a):
        for s in range(0, len(a), 2 * size):
            c = a.copy()
            c[s : s + size] = b[::-1][s : s + size] * 0.5
            a, b = b, c
        size += size
    return a, b


def in_a_branch(a: Any) -> Any:
    size = 1
    while size < len(a):
        for s in range(0, len(a), 2 * size):
            if a[s] > 0:
                a[s : s + size] = a[::-1][s : s + size] - 0.25
            else:
                a[s] += size
        size += size
    return a


@pytest.mark.parametrize(
    "program",
    [
        scaled,
        shifted,
        through_a_copy,
        into_another,
        butterflies,
        from_the_end,
        the_old_one_is_read_later,
        two_arrays_take_turns,
        in_a_branch,
    ],
)
@pytest.mark.parametrize("size", ["f64[24]", "f64[N]"])
def test_parts_of_vectors(program: Callable[..., Any], size: str) -> None:
    agree(program, X, loops="keep")
    found = fx.compile(fx.symbolic_trace(program, size, loops="keep"), backend="c", threads=2)
    for given in (X, X[:17]) if "N" in size else (X,):
        np.testing.assert_allclose(
            np.hstack(found(given.copy())), np.hstack(program(given.copy())), rtol=1e-12, atol=1e-12
        )


@pytest.mark.parametrize("program", [rows, columns, blocks])
def test_parts_of_matrices(program: Callable[..., Any]) -> None:
    agree(program, M, loops="keep")
    found = fx.compile(fx.symbolic_trace(program, "f64[N,K]", loops="keep"), backend="c", threads=2)
    for given in (M, M[:5, :7]):
        np.testing.assert_allclose(found(given.copy()), program(given.copy()), rtol=1e-12)


@pytest.mark.parametrize("program", [scaled, shifted, through_a_copy, into_another, butterflies, rows])
def test_kernels_compute_the_part_alone(program: Callable[..., Any]) -> None:
    text = c_file(program, "f64[N,K]" if program is rows else "f64[N]")
    assert "< count;" in text and "first + " in text


def without_elements(a: Any) -> Any:
    size = 1
    while size < len(a):
        a[size:size] = a[size:size] * 2 - a[size:size]
        a[size : size + 1] = a[: size - size + 1] + a[size : size + 1]
        size = 2 * size
    return a


def nothing_else(a: Any) -> Any:
    size = 1
    while size < len(a):
        a[size:size] = np.sin(a[size:size])
        size = 2 * size
    return a


@pytest.mark.parametrize("size", ["f64[24]", "f64[N]"])
@pytest.mark.parametrize("program", [without_elements, nothing_else])
def test_parts_without_elements_are_nothing(program: Callable[..., Any], size: str) -> None:
    agree(program, X, loops="keep")
    found = fx.compile(fx.symbolic_trace(program, size, loops="keep"), backend="c")
    np.testing.assert_allclose(found(X.copy()), program(X.copy()), rtol=1e-12)


def test_parts_that_do_not_fit_are_an_error() -> None:
    """It is found even where no element changes."""

    def misfit(a: Any, k: Any) -> Any:
        at = k * 1
        while at < 20:
            a[at:at] = a[at : at + 3]
            at = at + 7
        return a

    with pytest.raises(ValueError):
        misfit(X.copy(), 1)
    compiled = fx.compile(fx.symbolic_trace(misfit, "f64[N]", "i64[]", loops="keep"), backend="c")
    with pytest.raises((ValueError, IndexError)):
        compiled(X.copy(), np.int64(1))
    np.testing.assert_array_equal(compiled(X.copy(), np.int64(24)), X)


# -- reductions of parts -----------------------------------------------------------------------------
def means_of_windows(a: Any) -> Any:
    out = np.zeros(len(a))
    for i in range(len(a)):
        lo, hi = max(0, i - 3), min(len(a), i + 4)
        out[i] = a[lo:hi].mean() - np.median(a[lo:hi])
    return out


def largest_of_segments(a: Any, starts: Any) -> Any:
    out, places = np.zeros(len(starts) - 1), np.zeros(len(starts) - 1, np.int64)
    for i in range(len(starts) - 1):
        s, e = starts[i], starts[i + 1]
        out[i] = a[s:e].max() - a[s:e].min()
        places[i] = s + np.argmax(a[s:e]) - np.argmin(a[s:e])
    return out, places


def counts_of_segments(a: Any, starts: Any) -> Any:
    out = np.zeros(len(starts) - 1)
    for i in range(len(starts) - 1):
        s, e = starts[i], starts[i + 1]
        if e > s:
            out[i] = np.mean(a[s:e] > 0) + np.any(a[s:e] > 1) + np.count_nonzero(a[s:e])
    return out


def sorted_windows(a: Any) -> Any:
    out = np.zeros((len(a), 3))
    for i in range(len(a)):
        window = a[max(i - 2, 0) : min(i + 3, len(a))]
        ranked = np.sort(window)
        out[i, 0], out[i, 1] = ranked[0], np.cumsum(window)[-1]
        out[i, 2] = ranked[-1] if len(window) > 3 else -1
    return out


STARTS = np.array([0, 3, 4, 11, 12, 24])


def test_windows_and_segments() -> None:
    for size in ("f64[24]", "f64[N]"):
        for program in (means_of_windows, sorted_windows):
            found = fx.compile(fx.symbolic_trace(program, size, loops="keep"), backend="c", threads=2)
            for given in (X, X[:5]) if "N" in size else (X,):
                np.testing.assert_allclose(found(given), program(given), rtol=1e-12)
    for program in (largest_of_segments, counts_of_segments):
        agree(program, X, STARTS, loops="keep")
        found = fx.compile(fx.symbolic_trace(program, "f64[N]", "i64[M]", loops="keep"), backend="c", threads=2)
        np.testing.assert_allclose(np.hstack(found(X, STARTS)), np.hstack(program(X, STARTS)), rtol=1e-12)


def up_to(a: Any, ends: Any) -> Any:
    out = np.zeros(len(ends))
    for i in range(len(ends)):
        k = ends[i]
        out[i] = np.where(np.arange(len(a)) <= k, a, 0.0).sum() + np.sum(np.arange(len(a)) > k)
        a[:] = np.where(np.arange(len(a)) <= k, a * 0.5, a)
        a[:] = np.where(np.arange(len(a)) > k, a * 2, a)
    return a, out


def test_masks_up_to_any_number() -> None:
    limits = np.iinfo(np.int64)
    ends = np.array([3, -1, 50, limits.max, limits.min, 0])
    for size in ("f64[24]", "f64[N]"):
        found = fx.compile(fx.symbolic_trace(up_to, size, "i64[6]", loops="keep"), backend="c")
        np.testing.assert_allclose(np.hstack(found(X.copy(), ends)), np.hstack(up_to(X.copy(), ends)), rtol=1e-12)


def test_empty_segments_raise_what_numpy_raises() -> None:
    starts = np.array([0, 5, 5, 24])
    found = fx.compile(fx.symbolic_trace(largest_of_segments, "f64[N]", "i64[M]", loops="keep"), backend="c")
    for program in (found, largest_of_segments):
        with pytest.raises((ValueError, IndexError)):
            program(X, starts)
    np.testing.assert_allclose(counts_of_segments(X, starts), fx.jit(counts_of_segments, backend="c")(X, starts))


def ranges_of_segments(a: Any, starts: Any) -> Any:
    return largest_of_segments(a, starts)[0]


def last_of_the_largest(a: Any, starts: Any) -> Any:
    places = np.zeros(len(starts) - 1, np.int64)
    for i in range(len(starts) - 1):
        places[i] = np.argmax(a[starts[i] : starts[i + 1]])
    return places


@pytest.mark.parametrize("program", [ranges_of_segments, counts_of_segments, last_of_the_largest])
def test_reductions_read_the_part_alone(program: Callable[..., Any]) -> None:
    """No loop runs to the size of the array."""
    text = c_file(program, "f64[N]", "i64[M]", loops="keep").partition("static void k")[2]
    assert "< N;" not in text and "min(size, N" not in text, text


def test_windows_have_room_for_the_most_elements() -> None:
    assert "sort_row_double(5, " in c_file(sorted_windows, "f64[N]", loops="keep")
