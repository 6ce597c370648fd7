"""One value of the elements of a comprehension, an array or a range, of which there may be any number: ``max``,
``min``, ``next``, ``math.prod``, ``bisect``. A graph for all sizes gives what Python gives, exceptions included."""

from __future__ import annotations

import bisect
import itertools
import math
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import TraceError
from tests.core.test_programs_people_write import check
from tests.oracle import agree

X = np.array([3.0, -1.0, 2.0, 0.5, -7.0, 3.0])


def extremes(x: Any) -> Any:
    return max(v * 2 for v in x), min([v * 3 for v in x]), max(x), min(i * x[i] for i in range(len(x)))


def extremes_of_some(x: Any) -> Any:
    return max(v * 2 for v in x if v < 1), min([i for i, v in enumerate(x) if v > 0])


def extremes_by_a_key(x: Any) -> Any:
    return max(range(len(x)), key=lambda i: x[i]), min(range(len(x)), key=lambda i: x[i]), min(x, key=abs)


def of_ranges(x: Any) -> Any:
    return max(i * 2 for i in range(3, len(x))), min(i - 5 for i in range(len(x)))


def products(x: Any) -> Any:
    return math.prod(x), math.prod(v + 1 for v in x if v > 0)


def firsts(x: Any) -> Any:
    return next(v for v in x if v < 1), next(i for i, v in enumerate(x) if v < 0)


def firsts_or_others(x: Any) -> Any:
    return next((v * 2 for v in x if v > 100), 7.0), next((i for i in range(len(x)) if x[i] < 1), -1)


def known_firsts(x: Any) -> Any:
    return x * next(i for i in itertools.count() if i * i > 20) + next((i for i in range(10) if i > 20), 2)


PROGRAMS = [extremes, extremes_of_some, extremes_by_a_key, of_ranges, products, firsts, firsts_or_others, known_firsts]


@pytest.mark.parametrize("types", [["f64[6]"], ["f64[N]"]], ids=["six", "any"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_they_are_those_of_python(program: Any, types: Any) -> None:
    agree(program, X, types=types)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_a_version_serves_all_sizes(program: Any) -> None:
    check(program, (X,), (X[:4],), (np.append(X, [9.0, -9.0]),), versions=None)


@pytest.mark.parametrize("x", [np.array([-1.0]), np.array([5.0]), np.zeros(0)], ids=["low", "high", "none"])
@pytest.mark.parametrize("program", [extremes, extremes_of_some, firsts], ids=lambda p: p.__name__)
def test_of_none_it_raises_what_python_raises(program: Any, x: Any) -> None:
    jitted = fx.jit(program)
    jitted(X)
    try:
        expected = program(x)
    except (ValueError, StopIteration) as error:
        with pytest.raises(type(error)):
            jitted(x)
    else:
        assert jitted(x) == expected


def found_in_order(x: Any) -> Any:
    line = np.sort(x)
    return bisect.bisect([0.0, 1.0, 2.0], x[0]), bisect.bisect_left(line, 3.0), bisect.bisect_right(line, x[0])


def test_bisect() -> None:
    agree(found_in_order, X)


def longest_ascent(x: Any) -> Any:
    tails, length = np.full(len(x), np.inf), 0
    for v in x:
        k = np.searchsorted(tails[:length], v)
        tails[k] = v
        length = max(length, k + 1)
    return length


def in_selections(x: Any, q: Any) -> Any:
    line = np.sort(x[x > 0])
    return np.searchsorted(line, q), np.searchsorted(line, q, "right"), np.searchsorted(np.sort(q), x[x > 1]).sum()


def test_searchsorted_in_parts() -> None:
    agree(longest_ascent, X, types=["f64[N]"])
    agree(in_selections, X, np.array([3.0, 0.1, np.inf, np.nan, -9.0]), types=["f64[N]", "f64[M]"])


@pytest.mark.parametrize(
    "program",
    [lambda x: math.fsum(v * 2 for v in x), lambda x: math.fsum(x), lambda x: bisect.bisect([1.0, 2.0], x[0], 1)],
    ids=["fsum of some", "fsum", "bisect from"],
)
def test_what_a_graph_does_otherwise_is_refused(program: Any) -> None:
    with pytest.raises(TraceError, match=r"math.fsum\(\) rounds once|bisect_right\(\) of values") as caught:
        fx.symbolic_trace(program, "f64[6]")
    assert "instead: " in str(caught.value)


def bounds(k: Any, x: Any) -> Any:
    total, count = 0, 0
    for i in range(k[0], len(x)):
        total += i * i
    for i in range(k[0], len(x) // 2):
        count += i
    for i in range(k[0], min(len(x), 3)):
        count += 100 * i
    for i in range(len(x) % 3, k[0] + 2):
        count += 1000 * i
    return total, count


def test_a_loop_from_a_value_to_a_size_whose_body_reads_no_size() -> None:
    agree(bounds, np.array([1]), np.arange(7.0), types=["i64[1]", "f64[N]"])


def test_the_truth_of_an_array_is_the_error_of_numpy() -> None:
    def neither(x: Any) -> Any:
        return 1 if not x else 2

    def larger(x: Any) -> Any:
        return max(x, x + 1)

    def among(x: Any) -> Any:
        return any([x[0] > 0, x])

    for program in (neither, larger, among, lambda x: bool(x), lambda x: x and 1, lambda x: 1 < x < 2):
        for run in (program, fx.jit(program)):
            with pytest.raises(ValueError, match="truth"):
                run(-X)
