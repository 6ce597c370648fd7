"""Several slices with computed bounds in one subscript, and parts with new axes, outer products and products of
parts: elimination, factorizations and windows as people write them, in loops that stay loops, on all rungs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import TraceError
from tests.oracle import agree

RNG = np.random.default_rng(3)
A = RNG.normal(size=(9, 9)) + np.eye(9) * 8


def lu_by_outer(a: Any) -> Any:
    a = a.copy()
    for k in range(a.shape[0] - 1):
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return a


def lu_by_new_axes(a: Any) -> Any:
    a = a.copy()
    for k in range(a.shape[0] - 1):
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= a[k + 1 :, k][:, None] * a[None, k, k + 1 :]
    return a


def lu_by_products(a: Any) -> Any:
    a = a.copy()
    for k in range(a.shape[0] - 1):
        a[k + 1 :, k] = a[k + 1 :, k] / a[k, k]
        a[k + 1 :, k + 1 :] = a[k + 1 :, k + 1 :] - a[k + 1 :, k : k + 1] @ a[k : k + 1, k + 1 :]
    return a


def rows_by_factors(a: Any) -> Any:
    a, factors = a.copy(), np.eye(a.shape[0])
    for k in range(a.shape[0] - 1):
        f = a[k + 1 :, k] / a[k, k]
        factors[k + 1 :, k] = f
        a[k + 1 :] -= f[:, np.newaxis] * a[k]
    return a, factors


def householder(a: Any) -> Any:
    a = a.copy()
    for k in range(a.shape[1] - 1):
        v = a[k:, k].copy()
        v[0] += np.sign(v[0]) * np.sqrt(np.sum(v * v))
        v /= np.sqrt(np.sum(v * v))
        a[k:, k:] -= 2.0 * np.outer(v, v @ a[k:, k:])
    return a


def cholesky(a: Any) -> Any:
    a = a @ a.T
    for k in range(a.shape[0]):
        a[k, k] = np.sqrt(a[k, k])
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k + 1 :, k])
    return np.tril(a)


def box_sums(a: Any) -> Any:
    out = np.zeros_like(a)
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            out[i, j] = a[max(i - 2, 0) : i + 3, max(j - 1, 0) : j + 2].sum()
    return out


def reductions(a: Any) -> Any:
    out = np.zeros((a.shape[0], 6))
    for i in range(a.shape[0]):
        part = a[i:, : i + 1]
        out[i, 0] = part.sum() + part.max() - part.min()
        out[i, 1] = part.mean(axis=0)[0] + part.sum(axis=1)[0]
        out[i, 2] = np.mean(part)
        out[i, 3] = (part > 0).any() + np.count_nonzero(part)
        out[i, 4] = np.sum(np.abs(part) * 2, axis=(0, 1)) + part.T.max()
        out[i, 5] = np.std(a[i:, i:]) + (a[: i + 1, i:].T @ a[: i + 1, i:]).sum()
    return out


def writes(a: Any) -> Any:
    out = np.zeros_like(a)
    for k in range(a.shape[0] - 1):
        out[k:, : k + 1] = k
        out[:k, k:] += a[:k, k:] * 2
        out[k : k + 2, k : k + 2] = a[k : k + 2, k : k + 2] + 1
    return out


def moved_parts(a: Any) -> Any:
    """Parts of the same size that begin elsewhere."""
    out = a.copy()
    for k in range(1, a.shape[0] - 1):
        out[k + 1 :, k + 1 :] = a[: -k - 1, : -k - 1] - out[k + 1 :, k + 1 :]
        out[:k, k:] -= a[-k:, k:]
    return out


def three_axes(a: Any) -> Any:
    x = np.stack([a, a * 2, a - 1])
    for k in range(1, a.shape[0]):
        x[1:, k:, :k] += x[:2, k:, :k] * 0.5
        x[k % 3, :k, k:] -= x[0, :k, k:].sum(axis=0)
    return x


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    f.__name__: f
    for f in (
        lu_by_outer,
        lu_by_new_axes,
        lu_by_products,
        rows_by_factors,
        householder,
        cholesky,
        box_sums,
        reductions,
        writes,
        moved_parts,
        three_axes,
    )
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_loops_that_are_kept_agree_with_numpy(name: str) -> None:
    agree(PROGRAMS[name], A, loops="keep")


@pytest.mark.parametrize("name", ["lu_by_outer", "householder", "moved_parts"])
def test_one_version_serves_all_sizes(name: str) -> None:
    call = fx.jit(PROGRAMS[name], backend="python", loops="keep")
    for size in (4, 9):
        a = A[:size, :size]
        np.testing.assert_allclose(call(a.copy()), PROGRAMS[name](a), rtol=1e-9, atol=1e-12)
    assert len(call.explain().splitlines()) < 4


def test_an_empty_part_has_no_largest_element() -> None:
    def largest(a: Any) -> Any:
        total = 0.0
        for k in range(a.shape[0] + 1):
            total += a[k:, k:].max()
        return total

    module = fx.symbolic_trace(largest, "f64[4,4]", loops="keep")
    with pytest.raises(IndexError):
        module(A[:4, :4])


@pytest.mark.parametrize(
    ("program", "match"),
    [
        (lambda a: a[a.argmax() :, a.argmin() :].reshape(-1), r"\.reshape"),
        (lambda a: np.sort(a[a.argmax() :, a.argmin() :]), r"np\.sort"),
        (lambda a: fx.cond(a[0, 0] > 0, lambda: a[a.argmax() :, a.argmin() :], lambda: a), "out of a branch"),
    ],
)
def test_what_needs_the_number_of_elements_says_so(program: Callable[[Any], Any], match: str) -> None:
    with pytest.raises(TraceError, match=match):
        fx.symbolic_trace(program, "f64[4,4]")
