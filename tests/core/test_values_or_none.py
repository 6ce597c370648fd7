"""Variables that are None or a value, and which of them is not known while tracing: a jitted function gives what
Python gives, with the graph and in C, and raises TypeError where the program computes with None."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import TraceError
from tests.oracle import flatten

LARGE = np.random.default_rng(0).random(20)
MORE = np.random.default_rng(1).random(300)
SMALL = np.random.default_rng(2).random(30) * 0.1
FEW = np.r_[0.9, np.zeros(6)]


def nearest_row(x: Any) -> Any:
    best, least = None, np.inf
    for row in x.reshape(-1, 2):
        distance = np.sum((row - 0.5) ** 2)
        if distance < least:
            best, least = row, distance
    return best, least


def position_of_the_largest(x: Any) -> Any:
    best = None
    for i in range(len(x)):
        if x[i] < 0.5 and (best is None or x[i] > x[best]):
            best = i
    if best is None:
        return -1
    return best


def two_largest(x: Any) -> Any:
    first = second = None
    for v in x:
        if first is None or v > first:
            first, second = v, first
        elif second is None or v > second:
            second = v
    return first, second


def tuples(x: Any) -> Any:
    best = None
    for i in range(len(x)):
        for j in range(i):
            if x[i] > 0.5 and (best is None or (x[i] - x[j], i) < best[:2]):
                best = (x[i] - x[j], i, j)
    if best is None:
        return None
    difference, i, j = best
    return difference * 2, i + j


def set_back(x: Any) -> Any:
    current, count, total = None, 0, 0.0
    for v in x:
        if v > 0.3:
            current = v if current is None else max(current, v)
        else:
            if current is not None:
                count += 1
                total += current
            current = None
    return count, total, current is None


def first_found(x: Any) -> Any:
    def found(limit: float) -> Any:
        for i in range(len(x)):
            if x[i] > limit:
                return i
        return None

    place, other = found(0.9), found(2.0)
    return -1 if place is None else place, place is not None, other is None


def ends_without_a_value(x: Any) -> Any:  # noqa: RET503
    if x.sum() > 5:
        return x * 2


def while_there_is_none(x: Any) -> Any:
    i, found = 0, None
    while found is None and i < len(x):
        if x[i] > 0.9:
            found = x[i] * 2
        i += 1
    return found, i


def asked_otherwise(x: Any) -> Any:
    place = None
    for i, v in enumerate(x):
        if v > 0.85:
            place = i
    return not place, (place or 7) + 1, place == None, isinstance(place, int), place != None  # noqa: E711


def lists_and_texts(x: Any) -> Any:
    pair, state = None, None
    for i, v in enumerate(x):
        if v > 0.5:
            pair = [v, float(i)]
            state = "large"
    if pair is None:
        return np.zeros(2), state
    return np.array(pair), state


def an_array_of_the_caller(x: Any) -> Any:
    out = None
    for i in range(len(x)):
        if x[i] > 0.85:
            out = x
    return out


def in_each_row(x: Any) -> Any:
    out = np.zeros(len(x) - 4)
    for i in range(len(x) - 4):
        best = None
        for j in range(4):
            if x[i + j] < 0.2 and (best is None or x[i + j] > best):
                best = x[i + j]
        out[i] = -1.0 if best is None else best
    return out


class Rises:
    def __init__(self) -> None:
        self.last: Any = None
        self.count = 0

    def push(self, v: Any) -> None:
        if self.last is not None and v > self.last:
            self.count += 1
        self.last = v


def attributes(x: Any) -> Any:
    rises = Rises()
    for v in x:
        if v > 0.2:
            rises.push(v)
    return rises.count, rises.last


@dataclass
class Fit:
    values: Any
    error: Any


def objects(x: Any) -> Any:
    best = None
    for k in range(1, 4):
        values = x * k - 0.5
        error = np.abs(values.mean())
        if best is None or error < best.error:
            best = Fit(values, error)
    return best.values, best.error  # type: ignore[union-attr]


def on_one_way(x: Any) -> Any:
    total = None
    if x.sum() > 5:
        total = x + x[0]
    if total is not None:
        return total.mean()
    return x[0]


def smallest_or_none(x: Any) -> Any:
    best = min((v for v in x if v > 0.5), default=None)
    largest = max((v for v in x if v < 0.5), key=lambda v: -v, default=None)
    return best is None, largest, sum((v for v in x if v > 0.5), 1.0)


@pytest.mark.parametrize(
    "program",
    [
        nearest_row,
        position_of_the_largest,
        two_largest,
        tuples,
        set_back,
        first_found,
        ends_without_a_value,
        while_there_is_none,
        asked_otherwise,
        lists_and_texts,
        an_array_of_the_caller,
        in_each_row,
        attributes,
        objects,
        on_one_way,
        smallest_or_none,
    ],
)
@pytest.mark.parametrize("backend", ["python", "c"])
def test_they_are_those_of_python(program: Any, backend: str) -> None:
    jitted = fx.jit(program, backend=backend)
    for x in (LARGE, MORE[:-1], SMALL, FEW) if program is not nearest_row else (LARGE, MORE, SMALL):
        found, expected = jitted(x.copy()), program(x.copy())
        assert (found is None) == (expected is None)
        if isinstance(expected, tuple):
            assert [v is None for v in found] == [v is None for v in expected]
        for a, b in zip(flatten(found), flatten(expected), strict=True):
            np.testing.assert_array_equal(a, b) if a.dtype.kind not in "fc" else np.testing.assert_allclose(a, b)


def computes_with_it(x: Any) -> Any:
    best = None
    for v in x:
        if v > 0.5:
            best = v
    return best * 2.0  # type: ignore[operator]


def after_a_check(x: Any) -> Any:
    best = None
    for v in x:
        if v > 0.5:
            best = v
    if best is None:
        raise ValueError("there is none")
    return best * 2.0


@pytest.mark.parametrize("program, error", [(computes_with_it, TypeError), (after_a_check, ValueError)])
def test_none_is_no_number(program: Any, error: type[Exception]) -> None:
    jitted = fx.jit(program, backend="python")
    for x in (LARGE, MORE):
        assert jitted(x) == program(x)
    for function in (jitted, program):
        with pytest.raises(error):
            function(SMALL)


def of_which_type(x: Any) -> Any:
    best = x[0] if x.sum() > 5 else None
    return type(best) is float


def compared_by_elements(x: Any) -> Any:
    best = x if x.sum() > 5 else None
    return best == None  # noqa: E711


@pytest.mark.parametrize(
    "program, said",
    [(of_which_type, "asks for the type of a value that may be None"), (compared_by_elements, "write: x is None")],
)
def test_refused(program: Any, said: str) -> None:
    with pytest.raises(TraceError, match=said):
        fx.jit(program, backend="python")(LARGE)


def test_a_graph_does_not_return_none() -> None:
    with pytest.raises(TraceError, match="a value or None"):
        fx.symbolic_trace(ends_without_a_value, "f64[8]")
