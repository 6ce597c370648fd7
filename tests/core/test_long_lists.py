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


def compared_with_numpy(program: Any, backend: str, rtol: float) -> Any:
    """The jitted program, whose results are those of the program."""
    call = fx.jit(program, backend=backend)
    found, expected = flatten(call(LONG)), flatten(program(LONG))
    for a, b in zip(found, expected, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=rtol)
    return call


@pytest.mark.parametrize("backend", ["c", "python"])
@pytest.mark.parametrize(
    "program",
    [only_a_list, smoothed, in_two_loops, of_pairs, integrated, until_a_value, in_order],
    ids=lambda f: f.__name__,
)
def test_loops_that_fill_lists_stay_loops(program: Any, backend: str) -> None:
    call = compared_with_numpy(program, backend, 1e-12)
    assert any(node.target in (lookup("fori_loop"), lookup("while_loop")) for node in call.graph.nodes)
    assert len(call.graph.nodes) < 150


def in_lists(x: Any) -> Any:
    """Lists of lists, of numbers and of pairs."""
    table = [[abs(a - b) for a in x[:70]] for b in x[:80]]
    pairs = [[(a * b, i) for i, a in enumerate(x[:66])] for b in x[:65]]
    rows = []
    for i in range(70):
        row = []
        for j in range(90):
            row.append(x[i] * j + i)
        rows.append(row)
    total = 0.0
    for row in table:
        total += max(row) + row[3] - row[-1] + len(row)
    whole = np.array(table)
    parts = table[5][-2], sum(rows[7]), len(rows[int(x[0] * 60)]), pairs[3][4], pairs[-1]
    return whole, whole.T @ np.array(rows)[:70, :80].T, total, parts


def in_lists_of_lists(x: Any) -> Any:
    return np.array([[[a + b + c for a in x[:65]] for b in x[:66]] for c in x[:67]])


def compared(x: Any) -> Any:
    """All with all, as a nested comprehension."""
    points = x[:200].reshape(-1, 2)
    return np.array([[np.sum((p - q) ** 2) for p in points] for q in points])


def known_indices(x: Any) -> Any:
    """A long list that no value decides stays known."""
    wanted = [i * i % 7 for i in range(300)]
    long = [np.sum(np.cos(x[:5] + i) * np.sin(x[5:10] * i) - np.sqrt(x[:5] + i)) for i in range(300)]
    return x[:7][wanted[:9]], wanted[4], np.array(long), long[wanted[3]], [value * 2 for value in long][:3]


@pytest.mark.parametrize("program", [in_lists, in_lists_of_lists, compared, known_indices], ids=lambda f: f.__name__)
def test_long_comprehensions_stay_loops(program: Any) -> None:
    call = compared_with_numpy(program, "c", 1e-9)
    assert any(node.target is lookup("fori_loop") for node in call.graph.nodes)
    assert len(call.graph.nodes) < 700


def changes_a_row_later(x: Any) -> Any:
    rows = []
    for i in range(70):
        row = []
        for j in range(90):
            row.append(x[i] * j + i)
        rows.append(row)
        row.append(x[0])
    return rows[3][-1], len(rows[4])


def shares_a_row(x: Any) -> Any:
    rows, row = [], []
    for i in range(70):
        row.append(x[i] * 2 + x[0] - 3 * x[i] * x[i] / x[2])
        rows.append(row)
    return rows[3][-1], len(rows[4])


def writes_into_a_row(x: Any) -> Any:
    rows = [[a * b for a in x[:70]] for b in x[:80]]
    rows[3][2] = x[0]
    rows[4].append(x[1])
    return np.array(rows[3]), rows[4][-1], rows[3][2]


def grows_under_another_name(x: Any) -> Any:
    rows = [[a * b for a in x[:70]] for b in x[:80]]
    first = rows[0]
    first[1] = x[5]
    return rows[0][1], first[1]


def rows_of_several_lengths(x: Any) -> Any:
    rows = [[a * b for a in x[: 65 + i % 3]] for i, b in enumerate(x[:70])]
    return rows[1][-1], len(rows[2]), sum(len(row) for row in rows)


@pytest.mark.parametrize(
    "program",
    [changes_a_row_later, shares_a_row, writes_into_a_row, grows_under_another_name, rows_of_several_lengths],
    ids=lambda f: f.__name__,
)
def test_lists_in_lists_that_change_are_those_of_python_or_refused(program: Any) -> None:
    try:
        found = fx.jit(program, backend="python")(LONG)
    except fx.errors.TraceError as error:
        assert "test_long_lists.py" in str(error)
        return
    for a, b in zip(found, program(LONG), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


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
