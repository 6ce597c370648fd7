"""Arrays with several sizes that are computed, parts with computed steps, and NumPy's functions of computed sizes: what
``fx.jit`` gives is what eager NumPy gives, with more room when more is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import TraceError
from fxlite.types import agreement

GIVEN = [np.array([3, 2, 5, 1, 4, 0, 2, 3, 1, 5, 4, 2]), np.array([2, 1, 3, 1, 0, 0, 2, 3, 1, 2, 1, 2])]


def creations(x: Any) -> Any:
    n = int(x.max()) + 1
    made = np.zeros((n, n)), np.ones((n, 3)) * x[:3], np.full((2, n, n), 3.5), np.empty((n, n, 3)).shape
    eyes = np.eye(n), np.eye(n, 4), np.eye(3, n, k=1), np.eye(n, n, -1, dtype=int), np.tri(n, 3), np.identity(n)
    return made, eyes, np.eye(n)[x], np.zeros((n, n)).size


def ranges(x: Any) -> Any:
    n, a = int(x.max()) + 1, int(x[0])
    down = np.arange(a, -n, -1), np.arange(n, 0, -2), np.arange(a, a), np.arange(0, 20, n)
    floats = np.arange(0.5, n, 0.3), np.arange(n, dtype=np.float32), np.arange(0, 1, 1 / n)
    spaces = np.linspace(0, a, n), np.geomspace(1, 100, n), np.logspace(0, 2, n), np.logspace(0, 3, 4, base=a)
    return down, floats, spaces, np.prod(np.arange(1, n)), np.logspace(1, 2, n, endpoint=False, base=n)


def adjacency(x: Any) -> Any:
    n = int(x.max()) + 1
    z, y = np.zeros((n, n), int), np.zeros((n, n), int)
    for i in range(len(x) - 1):
        z[x[i], x[i + 1]] += 1
        y[x[i]][x[i + 1]] = i
    return z, y, y[0], y[:, 1], y.sum(axis=1), z[x[:-1], x[1:]]


def longest_common(x: Any) -> Any:
    n, m = int(x[0]) + 2, int(x[1]) + 3
    d = np.zeros((n + 1, m + 1), int)
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            d[i, j] = d[i - 1, j - 1] + 1 if x[i] == x[j + 2] else max(d[i - 1, j], d[i, j - 1])
    return d[n, m], d[-1, -1], d


def knapsack(x: Any) -> Any:
    most = int(x.sum()) // 4
    k = np.zeros((len(x) + 1, most + 1), int)
    for i in range(1, len(x) + 1):
        for j in range(most + 1):
            k[i, j] = k[i - 1, j]
            if x[i - 1] <= j:
                k[i, j] = max(k[i, j], k[i - 1, j - x[i - 1]] + x[i - 1] * 2)
    return k[len(x), most]


def pascal(x: Any) -> Any:
    n = int(x.max()) + 1
    t = np.zeros((n, n), int)
    t[:, 0] = 1
    for i in range(1, n):
        t[i, 1 : i + 1] = t[i - 1, :i] + t[i - 1, 1 : i + 1]
    return t


def shortest_paths(x: Any) -> Any:
    n = int(x.max()) + 1
    d, e = np.full((n, n), 99.0), np.full((n, n), 99.0)
    for i in range(len(x) - 1):
        d[x[i], x[i + 1]] = e[x[i], x[i + 1]] = 1 + i % 3
    for k in range(n):
        d = np.minimum(d, d[:, k][:, None] + d[k][None, :])
        for i in range(n):
            for j in range(n):
                if e[i, k] + e[k, j] < e[i, j]:
                    e[i, j] = e[i, k] + e[k, j]
    return d, e


def parts(x: Any) -> Any:
    n = int(x.max()) + 1
    z, s = np.ones((n, n)), 0.0
    for row in z:
        s += row.sum()
    z[0], z[:, 1], z[1:3, 0], z[-1, -1] = 5, 7, 9, 2
    i = np.arange(n)
    z[i, i] = 3
    z[z > 6] = -1
    t = i[:, None] * 10 + i
    return (
        s,
        z,
        z[z > 2],
        (z > 0).sum(),
        t[x],
        t[x, x],
        t[:, x],
        t[[0, 1], [1, 0]],
        t[i, i[::-1]],
        np.trace(t),
        z.argmax(),
    )


def carried(x: Any) -> Any:
    n = int(x.max()) + 1
    t, a = np.ones((n, n)), np.eye(n) * 0.5
    for _ in range(30):
        t = t * 0.9 + t.T * 0.05
    for _ in range(3):
        a = a @ a + np.eye(n)
    if x[0] > 2:
        t = t * 2
    else:
        t[0, 0] = 9
    return t, a, np.diag(a), t.argmin(axis=0), np.argmax(t, axis=1)


def reshaped(x: Any) -> Any:
    n = int(x[0])
    y = x.reshape(-1, n).sum(axis=1), x.reshape(n, -1).T, x.reshape((n, -1, 2)).max(axis=(0, 2))
    return y, np.reshape(x, (n, -1))[0], x.reshape(n, len(x) // n)


def counts(x: Any) -> Any:
    y, n = x[::-1], int(x.max()) + 1
    return np.bincount(x * n + y, minlength=n * n).reshape(n, n), np.bincount(x, minlength=n + 2)


def grids(x: Any) -> Any:
    n = int(x[1])
    (a, b), (c, d), (e, f) = np.mgrid[0:n, 0:3], np.indices((n, n + 1)), np.ogrid[0:n, 1:n]
    return a, b, c * 10 + d, e, f, e + f


def tiles(x: Any) -> Any:
    n = int(x[1])
    two = np.tile(x.reshape(3, 4), (2, n)), np.tile(x[:2], (n, n)), np.tile(x[:2], (n, 1, 2))
    return np.tile(x[:3], n), np.tile(x[:3], (n, 2)), two, np.tile([1.5, 2], n), np.tile(x[:2], 0 * n)


def pads(x: Any) -> Any:
    n, m = int(x[1]), x.reshape(3, 4)
    lines = np.pad(x, n), np.pad(x, (0, n), constant_values=7), np.pad(x, n, "reflect"), np.pad(x, (n, 1), "symmetric")
    more = np.pad(m, ((n, 0), (1, 1))), np.pad(m, ((0, 0), (n, 2)), mode="wrap"), np.pad(m * 1.5, ((1, n), (n, 1)))
    return lines, more, np.pad(m, n, mode="edge"), np.pad(m, ((n, n), (0, 0)), constant_values=-1)


def steps(x: Any) -> Any:
    n, m = int(x[1]), x.reshape(3, 4)
    lines = x[::n], x[1::n].sum(), x[1:9:n], x[-5::n], x[:-3:n], x[20::n]
    return lines, m[:, ::n], m[::n, 1], m[1:, ::n] * 2


def splits(x: Any) -> Any:
    n = int(x[1])
    return np.split(x, [n]), np.array_split(x, [n, n + 3]), np.split(x.reshape(4, 3), [n], axis=0)


def broadcasts(x: Any) -> Any:
    n = int(x[1])
    return np.broadcast_to(x, (n, 12)), np.broadcast_to(x[:3, None], (3, n)), np.broadcast_to(2.5, (n, n))


def views(x: Any) -> Any:
    n = int(x.max()) + 1
    z = np.zeros((n, n))
    w, v, r, c, s = z, z.T, z[1], z[:, 2], z[1:3, 1:]
    z += 1
    v[0, 1], r[0], c[-1], s[...], s[0, 0] = 5, 7, 9, 3, 4
    w[x[0], x[1]] -= 100
    z[0], z[:, -1] = np.arange(n), x[0]
    z[[0, 1]] = z[[1, 0]]
    y = z.copy()
    y[0, 0] = -50
    z *= 2
    s[[0, 1]] = 8
    return z, w.sum(), v, r, c, s, y


def written_steps(x: Any) -> Any:
    n, k = int(x[1]), int(x[0]) - 3
    y, out, m = x * 1.5, np.zeros(12), (x * 0.5).reshape(3, 4)
    out[::n] = 1
    out[1::n] = y[1::n]
    out[k::n] += 2
    m[:, ::n] = 0
    m[::n] *= 2
    return out, m, y[::n].mean(), np.sort(y[::n]), y[::n][::-1], len(y[::n])


def classified(x: Any) -> Any:
    y = np.roll(x, 1)
    n = int(max(x.max(), y.max())) + 1
    hot = np.eye(n, dtype=int)[x]
    both, counted, places = hot.T @ np.eye(n, dtype=int)[y], np.zeros((n, n), dtype=int), np.zeros((len(x), n))
    np.add.at(counted, (x, y), 1)
    places[np.arange(len(x)), x] = 1
    return hot, both, counted, places, np.diag(both) / np.maximum(both.sum(axis=0), 1), (both == counted).all()


def connected(x: Any) -> Any:
    y = x[::-1]
    n = int(max(x.max(), y.max())) + 1
    adjacent = np.zeros((n, n), bool)
    adjacent[x, y] = True
    adjacent |= adjacent.T
    degree, reach = adjacent.sum(axis=1), adjacent.copy()
    for k in range(n):
        reach |= reach[:, k][:, None] & reach[k]
    seen, order, queue = np.zeros(n, bool), [], [0]
    seen[0] = True
    while queue:
        u = queue.pop(0)
        order.append(u)
        for v in range(n):
            if adjacent[u, v] and not seen[v]:
                seen[v] = True
                queue.append(v)
    return degree, reach, np.diag(degree) - adjacent.astype(int), np.array(order)


PROGRAMS = [creations, ranges, adjacency, longest_common, knapsack, pascal, shortest_paths, parts, carried]
PROGRAMS += [
    views,
    written_steps,
    classified,
    connected,
    reshaped,
    counts,
    grids,
    tiles,
    pads,
    steps,
    splits,
    broadcasts,
]


@pytest.mark.parametrize("backend", ["c", "python"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_programs(program: Callable[..., Any], backend: str) -> None:
    call = fx.jit(program, backend=backend)
    for x in GIVEN:
        expected, found = (agreement.leaves(run(x.copy())) for run in (program, call))
        assert [(v.shape, v.dtype) for v in found] == [(v.shape, v.dtype) for v in expected]
        for one, other in zip(found, expected):
            np.testing.assert_allclose(one, other, rtol=1e-12)


def test_more_room() -> None:
    def program(x: Any) -> Any:
        n = int(x.max()) + 1
        z, i = np.zeros((n, n)), np.arange(n)
        z[i, i[::-1]] = i
        return z @ z

    call = fx.jit(program, backend="c")
    for most in (3, 100, 20):
        x = np.array([1, most])
        np.testing.assert_array_equal(call(x), program(x))


@pytest.mark.parametrize(
    ("program", "error"),
    [
        (lambda x: np.zeros((int(x.max()) + 1, int(x[0])))[x[1] + 1, 0], IndexError),
        (lambda x: np.eye(int(x[0]))[x], IndexError),
        (lambda x: np.zeros((int(x[0]) - 9, int(x[0]))), ValueError),
        (lambda x: x.reshape(int(x[0]), 5), ValueError),
        (lambda x: x[:: int(x[0]) - 3], ValueError),
        (lambda x: np.arange(0, 9, int(x[0]) - 3), ZeroDivisionError),
        (lambda x: np.pad(x, int(x[0]) - 9), ValueError),
    ],
)
def test_errors_of_values(program: Any, error: type[Exception]) -> None:
    x = np.array([3, 7, 2])
    for run in (program, fx.jit(program, backend="c"), fx.jit(program, backend="python")):
        with pytest.raises(error):
            run(x)


def test_a_part_may_be_the_result_of_a_program_that_raises() -> None:
    def program(x: Any) -> Any:
        if x[0] < 0:
            raise ValueError("a negative number")
        return x[: int(x[0])], x[:: int(x[0])]

    for one, other in zip(fx.jit(program)(GIVEN[0]), program(GIVEN[0]), strict=True):
        np.testing.assert_array_equal(one, other)


def test_writes_into_a_copy_that_is_a_view_in_numpy() -> None:
    def through_a_step(x: Any) -> Any:
        y = x[:: int(x[0])]
        y[0] = 7
        return x * 2

    def through_a_shape(x: Any) -> Any:
        y = x.reshape(int(x[0]), -1)
        y[0, 0] = 7
        return x * 2

    for program in (through_a_step, through_a_shape):
        with pytest.raises(TraceError, match="copy"):
            fx.jit(program)(np.arange(3, 9))


def test_what_is_refused_says_what_to_write() -> None:
    def program(x: Any) -> Any:
        n = int(x[0])
        return np.linalg.solve(np.eye(n), np.ones(n))

    with pytest.raises(TraceError, match="give the sizes to the function as ints of Python") as caught:
        fx.jit(program)(np.arange(3, 9))
    assert "more problem" not in str(caught.value)
    with pytest.raises(TraceError, match="cut the parts in a loop"):
        fx.jit(lambda x: np.array_split(x, int(x[0])))(np.arange(3, 9))
