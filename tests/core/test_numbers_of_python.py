"""Numbers of Python that a program computes, beside arrays of fewer bits: counters, quotients of counters and sizes,
and items of lists at computed positions. They take the dtype of the array, as by NumPy's rules for Python numbers."""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import TraceError
from tests.core.test_programs_people_write import check

X = np.arange(1, 7, dtype=np.float32)


def share_of_hits(x: Any) -> Any:
    hits = 0
    for value in x:
        if value > 2:
            hits += 1
    share = hits / len(x)
    entropy = -(share * math.log(share) + (1 - share) * math.log(1 - share))
    return share, x * share, x * entropy, 4 * hits / len(x) * x, x * (len(x) - hits), len(x) // (hits + 1) * x


def share_of_a_sum(x: Any) -> Any:
    hits = sum(1 for value in x if value > 2)
    other = int((x > 2).sum())
    return x * (hits / len(x)), x * (other / x.size), x * (len(x) / hits), x * (hits % len(x) - len(x) ** hits)


def last_place(x: Any) -> Any:
    k = len(x)
    while k > 1 and x[k - 1] > 3:
        k -= 1
    return x * (1 - k / len(x)), x / k, (k / len(x)) * x[0], k < len(x)


def counts_in_a_list(x: Any) -> Any:
    hits = [0, 0, 0]
    for value in x:
        hits[int(value) % 3] += 1
    return hits, x * hits[0], x * sum(hits), x * max(hits)


def weights_in_turn(x: Any) -> Any:
    total, last = 0.0, 0
    weights, counts = (0.25, 0.5), [1, 4, 2]
    for i in range(len(x)):
        total += weights[i % 2] * x[i]
        last = last + counts[i % 3]
    return total, x * last, weights[int(x[0]) % 2] * x, counts[-(int(x[1]) % 3 + 1)] * x


def moves(x: Any) -> Any:
    """Items that are tuples or lists of numbers."""
    across, down, board = 0, 0, [[1, 2, 3], [4, 5, 6]]
    for value in x:
        right, below = [(0, 1), (1, 0), (0, -1)][int(value) % 3]
        across, down = across + right, down + below
    return across, down, x * across, x * board[int(x[0]) % 2][int(x[1]) % 3]


def sorted_in_place(x: Any) -> Any:
    products = [a * b for a, b in zip(x, [3, 1, 2])]
    products.sort()
    pairs = [(x[0], 1), (x[2], 0), (x[1], 5)]
    pairs.sort(key=lambda pair: -pair[0])
    return products, pairs


def counts_in_a_dict(x: Any) -> Any:
    """Keys that are computed, of a dict that has them."""
    counts, pairs = dict.fromkeys(range(8), 0), {1: (1, x[0]), 6: (2, x[1])}
    names = {k: 0.5 * k for k in range(1, 7)}
    for value in x:
        counts[int(value)] += 1
    names[int(x[2])] = 4.0
    first, second = pairs[int(x[0])]
    return counts, x * counts[int(x[1])], names, x * names[int(x[4])], first, second


PROGRAMS = [
    counts_in_a_dict,
    share_of_hits,
    share_of_a_sum,
    last_place,
    counts_in_a_list,
    weights_in_turn,
    moves,
    sorted_in_place,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_they_keep_to_the_dtypes_beside_them(program: Any) -> None:
    check(program, (X,), (X[::-1].copy(),), versions=None)


def test_a_list_at_a_computed_position_is_not_changed() -> None:
    """It is one of several lists, and a change would have to show in that one."""

    def largest(x: Any) -> Any:
        rows = [[x[0], 1], [x[1], 2]]
        best = max(rows, key=lambda row: row[0])
        best[1] = 7
        return rows

    def grown(x: Any) -> Any:
        rows = [[x[0], 1], [x[1], 2]]
        sorted(rows, key=lambda row: row[0])[0].append(7)
        return rows

    def counted(x: Any) -> Any:
        board = [[0, 0], [0, 0]]
        board[int(x[0])][int(x[1])] += 1
        return board

    for program in (largest, grown, counted):
        with pytest.raises(TraceError, match="a list is changed that another variable may name") as caught:
            fx.symbolic_trace(program, "f32[6]")
        assert "instead: " in str(caught.value)


@dataclasses.dataclass
class Item:
    n: int


@pytest.mark.parametrize("kind", [Item, SimpleNamespace])
def test_an_object_that_is_one_of_two_is_not_changed(kind: Any) -> None:
    def program(x: Any) -> Any:
        one, other = kind(n=1), kind(n=2)
        best = one if x[0] > 0 else other
        best.n = 7
        return x * one.n + other.n

    with pytest.raises(TraceError, match=f"a {kind.__name__} is changed that another variable may name") as caught:
        fx.symbolic_trace(program, "f32[6]")
    assert "best = copy.copy(current)" in str(caught.value)


@pytest.mark.parametrize("backend", ["python", "c"])
def test_keys_that_a_dict_does_not_have(backend: str) -> None:
    def read(x: Any) -> Any:
        return x * {1: 2, 3: 4}[int(x[0])]

    def written(x: Any) -> Any:
        values = {1: 2, 3: 4}
        values[int(x[0])] = 7
        return x * values[1]

    for program, error in ((read, KeyError), (written, RuntimeError)):
        jitted = fx.jit(program, backend=backend)
        np.testing.assert_array_equal(jitted(X), program(X.copy()))
        with pytest.raises(error, match="dict"):
            jitted(X + 1)


def test_items_that_no_graph_holds() -> None:
    def chosen(x: Any) -> Any:
        return [np.sin, np.cos][int(x[0])](x)

    with pytest.raises(TraceError, match=r"place that is not known while tracing, and one is a ufunc") as caught:
        fx.symbolic_trace(chosen, "f32[6]")
    assert "test_numbers_of_python.py:" in str(caught.value)
