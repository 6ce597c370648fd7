"""Bodies of loops compute the part of a value that their readers need, where it lies between computed bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from tests.codegen.compiling import c_file
from tests.oracle import agree

X = np.random.default_rng(0).uniform(-1, 1, size=24)
M = np.random.default_rng(1).uniform(-1, 1, size=(24, 3))
STARTS = np.array([0, 3, 4, 11, 12, 24])


def softmax(a: Any, starts: Any) -> Any:
    out = np.zeros(len(starts) - 1)
    for i in range(len(starts) - 1):
        s = a[starts[i] : starts[i + 1]]
        e = np.exp(s - s.max())
        out[i] = e.sum() + np.log(e).mean()
    return out


def standardized(a: Any, starts: Any) -> Any:
    out = a.copy()
    for i in range(len(starts) - 1):
        s = a[starts[i] : starts[i + 1]]
        out[starts[i] : starts[i + 1]] = (s - s.mean()) / (s.std() + 1e-9)
    return out


def covariances(a: Any, starts: Any) -> Any:
    out, b = np.zeros(len(starts) - 1), np.sin(a * 7)
    for i in range(len(starts) - 1):
        s, t = a[starts[i] : starts[i + 1]], b[starts[i] : starts[i + 1]]
        out[i] = ((s - s.mean()) * (t - t.mean())).sum() / np.sqrt(((s - s.mean()) ** 2).sum() + 1)
    return out


def gathered(a: Any, starts: Any) -> Any:
    out, order = np.zeros(len(starts) - 1), (np.arange(len(a)) * 7) % len(a)
    for i in range(len(starts) - 1):
        s = a[order[starts[i] : starts[i + 1]]]
        out[i] = s.sum() * s.max()
    return out


def neighbours(a: Any, starts: Any) -> Any:
    total = 0.0
    for i in range(1, len(starts) - 1):
        s, t = a[starts[i - 1] : starts[i]], a[starts[i] : starts[i + 1]]
        total += np.abs(s.mean() - t.mean()) / (s.std() + t.std() + 1.0)
    return total


def windows(a: Any, starts: Any) -> Any:
    i, best = 0, -1.0
    while i < len(a):
        j = min(i + 7, len(a))
        v = a[i:j].var()
        if v > best:
            best = v
        i = j
    return best


def of_columns(a: Any, starts: Any) -> Any:
    out = np.zeros((len(starts) - 1, 3))
    for i in range(len(starts) - 1):
        r, w = a[starts[i] : starts[i + 1]], a[starts[i] : starts[i + 1], 0]
        out[i] = r.mean(0) + r.std(0) + r.max(0) - r.min(0) + w @ r
    return out


def gram_matrices(a: Any, starts: Any) -> Any:
    out = np.zeros((3, 3))
    for i in range(len(starts) - 1):
        r = a[starts[i] : starts[i + 1]]
        r = r - r.mean(0)
        out += r.T @ r
    return out


def in_order(a: Any, starts: Any) -> Any:
    out, order = np.zeros(len(a)), np.zeros(len(a), np.int64)
    for i in range(len(starts) - 1):
        b, e = starts[i], starts[i + 1]
        out[b:e] = np.sort(a[b:e])
        order[b:e] = np.argsort(a[b:e])
    return out, order


def running_totals(a: Any, starts: Any) -> Any:
    out, spans = a.copy(), np.zeros(len(starts) - 1)
    for i in range(len(starts) - 1):
        b, e = starts[i], starts[i + 1]
        out[b:e] = np.cumsum(a[b:e] / np.abs(a[b:e]).sum())
        w = np.cumsum(np.exp(a[b:e]))
        spans[i] = w.max() - w.min() + w[-1]
    return out, spans


def middle_elements(a: Any, starts: Any) -> Any:
    out, coefficients = np.zeros(len(starts) - 1), np.zeros(len(starts) - 1)
    for i in range(len(starts) - 1):
        s = np.sort(np.exp(a[starts[i] : starts[i + 1]]))
        c = np.cumsum(s)
        coefficients[i] = (len(s) + 1 - 2 * c.sum() / c[-1]) / len(s) + s[1:-1].sum()
        out[i] = np.median(a[starts[i] : starts[i + 1]]) + s[0]
    return out, coefficients


VECTORS = [softmax, standardized, covariances, gathered, neighbours, windows, in_order, running_totals, middle_elements]
MATRICES = [of_columns, gram_matrices]


@pytest.mark.parametrize("program", [*VECTORS, *MATRICES])
def test_programs(program: Callable[..., Any]) -> None:
    given, size = (M, "f64[N,3]") if program in MATRICES else (X, "f64[N]")
    agree(program, given, STARTS, loops="keep")
    found = fx.compile(fx.symbolic_trace(program, size, "i64[M]", loops="keep"), backend="c", threads=2)
    for part, starts in ((given, STARTS), (given[:5], np.array([0, 2, 5]))):
        ours, theirs = (f(part, starts) for f in (found, program))
        for one, other in zip(*(r if isinstance(r, tuple) else (r,) for r in (ours, theirs))):
            np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("program", [*VECTORS, *MATRICES])
def test_no_loop_runs_to_the_size_of_the_array(program: Callable[..., Any]) -> None:
    size = "f64[N,3]" if program in MATRICES else "f64[N]"
    text = c_file(program, size, "i64[M]", loops="keep")
    loop = text.partition("_loop(")[2]
    loop = loop[: loop.index("\n}")]
    heads = [line for line in loop.splitlines() if "for (" in line and "< " in line]
    assert heads and not any("< N;" in h or "N - " in h.partition("<")[2] for h in heads), loop
    assert not any("_loop_" in line and ", N," in line for line in loop.splitlines()), loop  # calls of routines


def written_over(b: Any, starts: Any) -> Any:
    order, out = np.arange(len(b))[::-1].copy(), np.zeros(len(starts))
    for i in range(len(starts)):
        b[: starts[i]] = np.cumsum(b[: starts[i]])
        s = b[order[: starts[i]]]
        out[i] = s.sum() * np.any(s > 0.3)
    return b, out


def test_arrays_that_a_kernel_before_fills_are_stored_whole() -> None:
    """A part with computed bounds is stored over the running totals of all elements."""
    agree(written_over, X, STARTS, loops="keep")


def out_of_range(a: Any, places: Any, starts: Any) -> Any:
    out = np.zeros(len(starts) - 1)
    for i in range(len(starts) - 1):
        s = a[places[starts[i] : starts[i + 1]]]
        out[i] = s.sum() * np.abs(s).sum()
    return out


def test_indices_that_nobody_needs_are_not_checked() -> None:
    found = fx.compile(fx.symbolic_trace(out_of_range, "f64[N]", "i64[K]", "i64[M]", loops="keep"), backend="c")
    places = np.array([3, 50, 1, 2, 50])
    inside = np.array([0, 1]), np.array([2, 4]), np.array([1, 1]), np.array([5, 5])
    for starts in inside:
        np.testing.assert_allclose(found(X, places, starts), out_of_range(X, places, starts))
    for program in (found, out_of_range):
        with pytest.raises(IndexError):
            program(X, places, np.array([0, 2]))


# -- read by loops inside of the loop ----------------------------------------------------------------
def merge_sort(a: Any) -> Any:
    a, n, width = a.copy(), len(a), 1
    while width < n:
        for low in range(0, n, 2 * width):
            middle, high = min(low + width, n), min(low + 2 * width, n)
            left, right = a[low:middle].copy(), a[middle:high].copy()
            i = j = 0
            for k in range(low, high):
                if i < len(left) and (j >= len(right) or left[i] <= right[j]):
                    a[k] = left[i]
                    i += 1
                else:
                    a[k] = right[j]
                    j += 1
        width *= 2
    return a


def test_merge_sort_copies_no_more_than_it_merges() -> None:
    agree(merge_sort, X, loops="keep")
    compiled = fx.compile(fx.symbolic_trace(merge_sort, "f64[N]", loops="keep"), backend="c")
    for given in (X, X[:7], X[:1]):
        np.testing.assert_array_equal(compiled(given), np.sort(given))
    text = "".join(compiled.sources.values()).partition("while (")[2].partition("\n}")[0]
    assert text and "fx_copy(" not in text and "< N;" not in text


def sums_of_pairs(a: Any, starts: Any) -> Any:
    out, totals = a.copy(), np.zeros(len(starts) - 1)
    for i in range(len(starts) - 1):
        s = np.exp(out[starts[i] : starts[i + 1]])
        for k in range(i, len(a) - i):
            if k < len(s):
                out[k] = s[k] * 0.25 + s[len(s) - 1 - k]
        totals[i] = (s * s).sum() + s.max()
    return out, totals


@pytest.mark.parametrize("size", ["f64[24]", "f64[N]"])
def test_elements_that_an_inner_loop_reads(size: str) -> None:
    agree(sums_of_pairs, X, STARTS, loops="keep")
    found = fx.compile(fx.symbolic_trace(sums_of_pairs, size, "i64[M]", loops="keep"), backend="c", threads=2)
    np.testing.assert_allclose(np.hstack(found(X, STARTS)), np.hstack(sums_of_pairs(X, STARTS)), rtol=1e-12)


def first_elements(a: Any, starts: Any) -> Any:
    for i in range(len(starts) - 1):
        s = a[: starts[i]].copy()
        for k in range(len(s)):
            a[k] = s[len(s) - 1 - k] + 1
    return a


def test_copies_of_the_first_elements_are_copies() -> None:
    agree(first_elements, X, STARTS, loops="keep")


def of_a_constant_array(a: Any, starts: Any) -> Any:
    total, s = 0.0, a * 2
    for i in range(len(starts)):
        for k in range(i, len(a) - i):
            total += s[k] * starts[i]
    return total


@pytest.mark.parametrize("size", ["f64[24]", "f64[N]"])
def test_numbers_of_iterations_are_unknown_before_the_loop(size: str) -> None:
    found = fx.compile(fx.symbolic_trace(of_a_constant_array, size, "i64[M]", loops="keep"), backend="c")
    np.testing.assert_allclose(found(X, STARTS), of_a_constant_array(X, STARTS), rtol=1e-12)
