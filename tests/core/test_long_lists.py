"""Arrays that are made of long lists of values, which a program computes one by one; and lists that long loops fill,
which stay loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.ops.op import lookup
from tests.oracle import flatten

X = np.random.default_rng(0).random(150)


def of_a_comprehension(x: Any) -> Any:
    return np.array([x[i] * i - x[i - 1] for i in range(len(x))])


def of_appended_values(x: Any) -> Any:
    found = []
    for value in x:
        found.append(value * 2 if value > 0.5 else value)
    return np.array(found)


def of_a_list_that_is_written(x: Any) -> Any:
    found = [0.0] * len(x)
    for i in range(1, len(x)):
        found[i] = found[i - 1] * 0.5 + x[i]
    return np.array(found)


def of_rows(x: Any) -> Any:
    return np.concatenate([x[i : i + 2] * i for i in range(len(x) - 1)])


@pytest.mark.parametrize("backend", ["c", "python"])
@pytest.mark.parametrize(
    "program", [of_a_comprehension, of_appended_values, of_a_list_that_is_written, of_rows], ids=lambda f: f.__name__
)
def test_arrays_of_long_lists(program: Any, backend: str) -> None:
    result, expected = fx.jit(program, backend=backend)(X), program(X)
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(result, expected)


# -- lists that loops fill -------------------------------------------------------------------------
LONG = np.random.default_rng(1).random(600)


def smoothed(x: Any) -> Any:
    found, s = [], 0.0
    for v in x:
        s = 0.9 * s + 0.1 * v
        found.append(s)
    a = np.array(found)
    return a, len(found), a.reshape(-1, 2)[3], found[7], found


def in_two_loops(x: Any) -> Any:
    found = [0.0]
    for v in x:
        found.append(found[-1] * 0.5 + v)
    found.append(7.0)
    more = found[1:] + [1.0]  # noqa: RUF005
    for v in x:
        if v > 0.9:
            more.append(v)
    return np.array(found), np.array(more), found[3], len(more), more[-1]


def of_pairs(x: Any) -> Any:
    found = []
    for i in range(len(x)):
        for j in range(3):
            if x[i] * (j + 1) > 1.5:
                found.append((i, j))
    return np.array(found), len(found), found[0], sum(i * j for i, j in found)


def integrated(x: Any) -> Any:
    t, pos, vel = [0.0], [1.0], [0.0]
    for _ in range(500):
        acc = -4 * pos[-1] + x[0]
        vel.append(vel[-1] + acc * 0.01)
        pos.append(pos[-1] + vel[-1] * 0.01)
        t.append(t[-1] + 0.01)
    return np.array(t), np.array(pos), np.array(vel)


def until_a_value(x: Any) -> Any:
    found = []
    for v in x:
        if v > 0.995:
            break
        found.append(v * v)
    return np.array(found), len(found)


def in_order(x: Any) -> Any:
    found = []
    for i, v in enumerate(x):
        s = v * i % 0.7
        found.append(s + (0.5 if s > 0.3 else 0.25))
    return np.argmin(found), np.sort(found)[::50], sum(found[:20]), sorted(found[30:35])


def only_a_list(x: Any) -> Any:
    found = [x[0]]
    for v in x:
        found.append(found[-1] * 0.5 + v * v)
    return found


@pytest.mark.parametrize("backend", ["c", "python"])
@pytest.mark.parametrize(
    "program",
    [only_a_list, smoothed, in_two_loops, of_pairs, integrated, until_a_value, in_order],
    ids=lambda f: f.__name__,
)
def test_loops_that_fill_lists_stay_loops(program: Any, backend: str) -> None:
    call = fx.jit(program, backend=backend)
    found, expected = flatten(call(LONG)), flatten(program(LONG))
    for a, b in zip(found, expected, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=1e-12)
    assert any(node.target in (lookup("fori_loop"), lookup("while_loop")) for node in call.graph.nodes)
    assert len(call.graph.nodes) < 150


def of_unlike_elements(x: Any) -> Any:
    found = []
    for i in range(len(x)):
        found.append(x[:3] * i if i % 2 else x[i : i + 2] + 1 - x[0] * 2)
    return sum(part.sum() for part in found)


def test_a_loop_whose_list_holds_unlike_arrays_is_unrolled() -> None:
    call = fx.jit(of_unlike_elements, backend="python")
    np.testing.assert_allclose(call(LONG[:100]), of_unlike_elements(LONG[:100]))


def test_room_suffices_without_another_version() -> None:
    """A graph that is traced by itself has no other one with more room."""
    graph = fx.symbolic_trace(of_pairs, "f64[600]")
    found = graph(LONG)
    np.testing.assert_array_equal(found[0], of_pairs(LONG)[0])
