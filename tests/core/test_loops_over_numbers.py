"""Loops over lists, tuples, dicts and sets of numbers, and what enumerate, zip, reversed and product make of them: long
ones stay loops over constant arrays where one over a range does, and iterators remain iterators."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import TraceError
from tests.oracle import agree

FLOATS = np.random.default_rng(1).normal(size=1000).tolist()
INTS = np.random.default_rng(2).integers(0, 40, size=1000).tolist()
X = np.random.default_rng(3).normal(size=43)


def lists(x: Any) -> Any:
    total, n = 0.0, 0
    for v in FLOATS:
        if x[0] > v:
            total = total * 0.5 + v * x[1]
    for k in tuple(INTS):
        if x[k] > 0:
            n = max(n, k) + k
    return total, n


def with_positions(x: Any) -> Any:
    total = 0.0
    for k, v in enumerate(FLOATS, 1):
        if x[0] > v:
            total = total * 0.5 + k
    for k, v in zip(INTS, FLOATS):
        if x[k] > v:
            total = total * 0.5 + v
    for v in reversed(FLOATS):
        if total < v:
            total = total * 0.5 + v * x[0]
    for n, (k, v) in enumerate(list(zip(INTS, FLOATS))):
        if x[k] > v:
            total = total * 0.5 + n
    return total


def dicts_and_sets(x: Any) -> Any:
    table, total = dict(enumerate(FLOATS)), 0.0
    for v in table.values():
        if x[0] > v:
            total = total * 0.5 + v
    for k in table:
        if x[k % 40] > 0:
            total = total * 0.5 + k
    for k, v in table.items():
        if x[k % 40] > v:
            total = total * 0.5 + k
    for k in set(range(500, 1500)):
        if x[k % 40] > total:
            total = total * 0.5 + k
    return total


def ranges_and_arrays(x: Any) -> Any:
    steps, a, total = range(3, 2000, 2), np.array(FLOATS), 0.0
    for n, k in enumerate(steps):
        if x[k % 40] > total:
            total = total * 0.5 + n
    for k, v in zip(reversed(steps), a):
        if x[k % 40] > v:
            total = total * 0.5 + v
    for (k,), v in np.ndenumerate(a):
        if x[k % 40] > v:
            total = total * 0.5 + v
    for v in a[:900].tolist():
        if x[3] > v:
            total = total * 0.5 + v
    return total


def into_arrays(x: Any) -> Any:
    out, y = np.zeros(1000), x.copy()
    for n, k in enumerate(INTS):
        out[n] = x[k] * 2
        y[k : k + 2] += 0.5
        y[:k] *= 0.999
    return out, y


def products(x: Any) -> Any:
    total = 0.0
    for k, v in itertools.product(INTS[:70], FLOATS[:70]):
        if x[k] > v:
            total = total * 0.5 + v
    return total


PROGRAMS = [lists, with_positions, dicts_and_sets, ranges_and_arrays, into_arrays, products]


@pytest.mark.parametrize("program", PROGRAMS)
def test_long_ones_stay_loops(program: Any) -> None:
    module = agree(program, X)
    assert len(module.graph.nodes) < 60
    agree(program, X, loops="keep", rungs=("graph",))


def few_of_them(x: Any) -> Any:
    for n in (1, 2, 3):
        x = np.concatenate([x, np.ones(n) * (x.sum() if x[0] > 0 else 1.0)])
    return x


def iterators(x: Any) -> Any:
    """They are consumed as in Python, and may be of use for something else."""
    one, other = iter(FLOATS), enumerate(FLOATS)
    total, _ = next(one), next(other)
    for v in itertools.islice(one, 70):
        if x[0] > v:
            total += v
    for k, v in other:
        if x[0] > v:
            total += k
        if k == 80:
            break
    return total + next(other)[0] + len(list(zip(FLOATS, INTS))) + dict(enumerate(FLOATS))[5]


def not_alike(x: Any) -> Any:
    total = 0.0
    for v in [1, 2.5] * 40:
        total = total * 0.5 + (x[0] > total) * v
    return total


def changes_its_list(x: Any) -> Any:
    values, total = [float(k) for k in range(100)], x[0] * 0
    for k, v in enumerate(values):
        if x[0] > v - 5:
            values[(k * 7) % 100] = v * 0.5
        total += v
    return total


def appends_to_its_list(x: Any) -> Any:
    values, total = [float(k) for k in range(100)], x[0] * 0
    for v in values:
        if v < 20:
            values.append(v + 500)
        total += v if x[1] > v - 90 else 0.0
    return total


def needs_the_numbers(x: Any) -> Any:
    total = x[0]
    for k in [3, 5] * 40:
        total = total * 0.1 + (np.ones(k) * x[1]).sum()
        if total > 100:
            total = total * 0
    return total


@pytest.mark.parametrize(
    "program", [few_of_them, iterators, not_alike, changes_its_list, appends_to_its_list, needs_the_numbers]
)
def test_others_are_unrolled(program: Any) -> None:
    agree(program, X, rungs=("graph", "python"))
    agree(program, abs(X) * 30, rungs=("graph", "python"))


def test_what_is_not_known_of_a_loop_that_is_kept_is_refused() -> None:
    with pytest.raises(TraceError, match=r"a for loop changes the list over which it goes(?s:.*)\[\*values\]"):
        fx.symbolic_trace(appends_to_its_list, "f64[43]", loops="keep")

    def twice(x: Any) -> Any:
        pairs, total = enumerate(FLOATS), 0.0
        for k, v in pairs:
            if x[0] > v:
                total = total * 0.5 + k
        for _, v in pairs:
            total += v
        return total

    with pytest.raises(TraceError, match="an iterator is read after a loop over it"):
        fx.symbolic_trace(twice, "f64[43]")
