"""NumPy's functions of selected elements that are formulas of others, or that NumPy writes in Python: they give what
NumPy gives for the elements that are there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import TraceError
from tests.oracle import flatten

SETS = [
    (np.random.default_rng(0).random(20), np.random.default_rng(1).random((20, 2))),
    (np.random.default_rng(2).random(31), np.random.default_rng(3).random((31, 2))),
]


def averages(x: Any, rows: Any) -> Any:
    s, t = x[x > 0.3], rows[x > 0.3]
    return np.average(s, weights=s), np.average(t, axis=0, weights=s), np.average(s), np.mean(t, axis=0)


def without_nan(x: Any, rows: Any) -> Any:
    s = np.where(x < 0.5, np.nan, x)[x > 0.3]
    return np.nanmean(s), np.nansum(s), np.nanmax(s), np.nanmin(s), np.nanstd(s), np.nanmedian(s)


def products(x: Any, rows: Any) -> Any:
    s, t = x[x > 0.3], rows[x > 0.3]
    whole = np.vdot(s, s), np.inner(s, s + 1), np.linalg.multi_dot([t.T, t, t.T @ s])
    return *whole, np.einsum("ij,ik->jk", t, t), np.einsum("ij,ij->i", t, t), np.einsum("ij,i->j", t, s)


def norms(x: Any, rows: Any) -> Any:
    s, t = x[x > 0.3] - 0.6, rows[x > 0.3]
    return [np.linalg.norm(s, k) for k in (1, 2, 3, 0, np.inf, -np.inf)], np.linalg.norm(t, 1, axis=1)


def covariances(x: Any, rows: Any) -> Any:
    s, t = x[x > 0.3], rows[x > 0.3]
    return np.cov(s, s**2), np.corrcoef(s, s**2), np.cov(t.T), np.cov(t, rowvar=False), np.cov(s)


def element_by_element(x: Any, rows: Any) -> Any:
    s = x[x > 0.3]
    found = np.select([s < 0.5, s < 0.8], [s, -s], 3.0), np.piecewise(s, [s < 0.5], [lambda v: v * 2, lambda v: v + 1])
    return *found, np.digitize(s, [0.4, 0.6, 0.8]), np.polyval([1.0, 2.0, 3.0], s), np.sinc(s), np.angle(s + 0j)


def in_another_order(x: Any, rows: Any) -> Any:
    s, t = x[x > 0.3], rows[x > 0.3]
    order = np.lexsort((s, np.round(s, 1)))
    return order, np.sort(t, axis=0), np.median(t, axis=0), s[::2], s[1::3], t[::2], np.maximum.accumulate(s)


def more_or_fewer(x: Any, rows: Any) -> Any:
    s = x[x > 0.3]
    parts = np.delete(s, 0), np.delete(s, -1), np.insert(s, 1, 5.0), np.tile(s, 2), np.ediff1d(s), np.vander(s, 3)
    return *parts, np.compress(s > 0.6, s), np.minimum.outer(s, s).sum(), np.trapezoid(s, dx=0.5)


def as_python_does(x: Any, rows: Any) -> Any:
    s = x[x > 0.3]
    return max(s), min(s, key=lambda v: -v), sorted(s), sorted(s, reverse=True)[0], s.tolist(), np.array_equal(s, s)


def applied(x: Any, rows: Any) -> Any:
    return np.vectorize(lambda v: v * 2 if v > 0.7 else 0.0)(x[x > 0.3])


def between_points(x: Any, rows: Any) -> Any:
    gaps, filled = x < 0.3, x.copy()
    filled[gaps] = np.interp(np.flatnonzero(gaps), np.flatnonzero(~gaps), x[~gaps])
    s = np.sort(x[x > 0.5])
    return filled, np.interp([0.1, 0.6, 0.7, 5.0], s, np.arange(len(s))), np.interp(x, s, s**2, left=-1.0)


def totals_of_groups(x: Any, rows: Any) -> Any:
    keys = np.sort((x * 9).astype(int)[x > 0.2])
    starts = np.flatnonzero(np.concatenate(([True], np.diff(keys) != 0)))
    found = np.add.reduceat(rows[x > 0.2], starts, axis=0), np.maximum.reduceat(x, np.flatnonzero(x > 0.5))
    return *found, keys[starts], np.diff(np.append(starts, len(keys)))


def fitted(x: Any, rows: Any) -> Any:
    keep = rows[:, 0] > 0.3
    design = np.column_stack([np.ones(keep.sum()), x[keep]])
    solution, rest, rank, values = np.linalg.lstsq(design, rows[keep, 1], rcond=None)
    return (
        solution,
        rest,
        rank,
        values,
        np.polyfit(x[keep], rows[keep, 1], 2),
        np.polyfit(x[keep], x[keep], 1, w=x[keep]),
    )


PROGRAMS = [
    averages,
    without_nan,
    products,
    norms,
    covariances,
    element_by_element,
    in_another_order,
    more_or_fewer,
    as_python_does,
    applied,
    between_points,
    totals_of_groups,
    fitted,
]


def same(found: Any, expected: Any) -> None:
    for a, b in zip(flatten(found), flatten(expected), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("backend", ["python", "c"])
def test_they_are_those_of_numpy(program: Any, backend: str) -> None:
    jitted = fx.jit(program, backend=backend)
    for given in SETS:
        same(jitted(*given), program(*given))


def counts_of_bytes(x: Any) -> Any:
    return np.bincount(x[x > 5]), np.bincount(x[x > 5] - 6, minlength=300)


def test_counts_of_unsigned_numbers() -> None:
    """What is not selected is no number that is counted, as 255 would be."""
    for backend in ("python", "c"):
        jitted = fx.jit(counts_of_bytes, backend=backend)
        for most in (20, 250):
            x = np.random.default_rng(most).integers(0, most, 200).astype(np.uint8)
            same(jitted(x), counts_of_bytes(x))


def pairs(x: Any) -> Any:
    found, i = [], 0
    while i < len(x):
        j = i
        while j < len(x) and x[j] == x[i]:
            j += 1
        found.append((x[i], (j - i) * 0.5))
        i = j
    return np.array(found)


def longest_without_repetition(x: Any) -> Any:
    last, start, longest = [-1] * 200, 0, 0
    counts = [0] * 256
    for i in range(len(x)):
        c = x[i]
        if last[c] >= start:
            start = last[c] + 1
        last[c] = i
        counts[c] += 1
        longest = max(longest, i - start + 1)
    return longest, max(counts), counts


@pytest.mark.parametrize("program", [pairs, longest_without_repetition])
def test_lists_of_many_elements(program: Any) -> None:
    for backend in ("python", "c"):
        jitted = fx.jit(program, backend=backend)
        for kind in (np.int64, np.uint8):
            for size in (40, 300):
                x = np.random.default_rng(size).integers(0, 9, size).astype(kind)
                same(jitted(x), program(x))


def too_few_values(x: Any) -> Any:
    y = x.copy()
    y[x > 0.5] = np.arange(3.0)
    return y


def test_too_few_values_are_the_error_of_numpy() -> None:
    jitted = fx.jit(too_few_values, backend="python")
    x = np.array([0.1, 0.6, 0.7, 0.8])
    same(jitted(x), too_few_values(x))
    for function in (jitted, too_few_values):
        with pytest.raises(ValueError) as caught:
            function(np.ones(7))
    assert "more or fewer values" in str(caught.value) or "cannot assign" in str(caught.value)


def of_two_masks(x: Any) -> Any:
    return np.einsum("i,i->", x[x > 0.5], x)


def test_what_is_not_selected_alike_is_refused() -> None:
    with pytest.raises(TraceError, match="selected in some of the operands only"):
        fx.jit(of_two_masks, backend="python")(SETS[0][0])
