"""Lists, dicts and other containers that a jitted function is given and changes: each call changes those of its caller
as the function does, tracing changes nothing of them, and what was one object stays one."""

from __future__ import annotations

import copy
from collections import Counter, OrderedDict, defaultdict, deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import ShapeError

X = np.arange(3.0)


def of_constants(a: Any) -> Any:
    a[0] = 5
    return a[1]


def written_alone(a: Any, x: Any) -> None:
    for i in range(len(a)):
        a[i] = x[i] * 2


def in_branches(a: Any, x: Any) -> Any:
    for i in range(len(a)):
        if x[i] > 1:
            a[i] = 0
    return x


def of_elements_that_may_be(a: Any, x: Any) -> None:
    for value in x:
        if value > 0.5:
            a.append(float(value))


def rows(a: Any, x: Any) -> Any:
    a[0], a[1] = a[1], a[0]
    a[0][1] = x[2] + 1
    a.append([x[0]])
    return a, x * 2


def sorting(a: Any, x: Any) -> Any:
    a.sort()
    a.insert(0, a.pop())
    return len(a), x[0]


def of_a_dict(d: Any, x: Any) -> Any:
    d["sum"] = x.sum()
    d["count"] += 1
    del d["old"]
    return d


def of_any_number(*lists: Any) -> None:
    for part in lists:
        part[0] += 1


def of_other_containers(d: Any, x: Any) -> Any:
    d["counts"]["a"] += 2
    d["groups"]["b"].append(3)
    d["queue"].append(d["queue"].popleft())
    d["seen"].add(7)
    d["of"].k += 1
    d["sums"]["x"] = x.sum()
    d["sums"].move_to_end("y")
    return x * d["of"].k, len(d["seen"])


ROW = [1, 2]
CALLS: list[Any] = [
    (of_constants, [1, 2]),
    (written_alone, [1.0, 2.0, 3.0], X),
    (in_branches, [1, 2, 3], X),
    (of_elements_that_may_be, [0.5], X),
    (rows, [[1, 2], [3, 4]], X),
    (rows, [ROW, ROW], X),
    (sorting, [3, 1, 2], X),
    (of_a_dict, {"count": 1, "old": 2}, X),
    (
        of_other_containers,
        {
            "counts": Counter(a=1),
            "groups": defaultdict(list),
            "queue": deque([1, 2]),
            "seen": {1},
            "of": SimpleNamespace(k=1),
            "sums": OrderedDict(y=1, z=2),
        },
        X,
    ),
    (of_any_number, [1], [2]),
    (of_any_number, ROW, ROW),
]


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[0].__name__)
def test_each_call_changes_the_lists_of_its_caller(call: Any, dynamic: bool) -> None:
    function, *args = call
    jitted = fx.jit(function, dynamic=dynamic)
    for _ in range(2):  # the second is served by the version of the first
        ours, theirs = copy.deepcopy(args), copy.deepcopy(args)
        result, expected = jitted(*ours), function(*theirs)
        assert repr((result, ours)) == repr((expected, theirs))
        assert len(jitted.versions) == 1 or function is of_other_containers  # a set is known by its identity


def test_a_result_is_the_list_of_the_caller() -> None:
    given = [[1, 2], [3, 4]]
    first = given[0]
    result, _ = fx.jit(rows)(given, X)
    assert result is given
    assert given[1] is first


def test_an_error_leaves_the_lists_of_the_caller_as_they_were() -> None:
    def failing(a: Any, x: Any) -> Any:
        a[0] = 9
        return x @ np.ones((4, 4))

    given = [1]
    with pytest.raises(ShapeError):
        fx.jit(failing)(given, X)
    assert given == [1]


def table_of_powers(n: int, x: Any) -> Any:
    """Numbers that are known while tracing, and one that is not."""
    return [[i**j for j in range(n)] for i in range(n)], x.sum()


def test_numbers_that_are_known_are_no_results_of_the_graph() -> None:
    jitted = fx.jit(table_of_powers)
    assert repr(jitted(12, X)) == repr(table_of_powers(12, X))
    assert len(jitted.graph.nodes) < 5
    assert repr(jitted(3, X)) == repr(table_of_powers(3, X))


def test_lists_of_many_numbers_are_told_apart() -> None:
    def first(a: Any, x: Any) -> Any:
        return a[0] * x

    jitted = fx.jit(first)
    lists: list[Any] = [[0] * 9, [0.0] * 9, [-0.0] + [0.0] * 8, (0.0,) * 9, [1] * 9, [1, *[1.0] * 8], [True] * 9]
    for count in (1, 2):
        for given in lists:
            result, expected = jitted(given, X), first(given, X)
            assert result.dtype == expected.dtype
            np.testing.assert_array_equal(np.signbit(result), np.signbit(expected))
            np.testing.assert_array_equal(result, expected)
        assert len(jitted.versions) == len(lists), count
