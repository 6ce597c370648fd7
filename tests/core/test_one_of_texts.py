"""Variables that are one of several texts, such as the state of a machine: branches and loops pass them on, and
programs compare them, look them up and return them. What reads their characters is an error."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import TraceError
from tests.core.test_programs_people_write import floats


def machine(x: Any) -> Any:
    state, runs, i = "idle", 0, 0
    while i < len(x) and state != "done":
        if state == "idle":
            if x[i] > 0.7:
                state = "run"
        elif state == "run":
            runs += 1
            state = "idle" if x[i] < 0.3 else "done" if x[i] > 0.95 else state
        i += 1
    return runs, i, state, state in ("run", "done"), isinstance(state, str)


def traded(x: Any) -> Any:
    position, cash, held = "flat", 10.0, 0.0
    for t in range(1, len(x)):
        move = x[t] - x[t - 1]
        match position:
            case "flat":
                if move > 0.2:
                    position, held, cash = "long", cash / x[t], 0.0
                elif move < -0.5:
                    position = "short"
            case "long" if move < 0:
                position, cash, held = "flat", held * x[t], 0.0
            case "short":
                position = "flat" if move > 0 else "short"
    return {"position": position, "worth": cash + held * x[-1]}


NEXT = {"green": "yellow", "yellow": "red", "red": "green"}


def lights(x: Any) -> Any:
    weights = {"red": 0.0, "green": 1.0, "yellow": 0.5}
    colour, total, seen = "red", 0.0, ["", "red", "green"]
    for v in x:
        total += weights[colour]
        if v > 0.5:
            colour = NEXT[colour]
    return total, colour, seen[np.argmax(x) % 3], colour == seen[np.argmin(x) % 3]


class Walker:
    """An object with a text that its method changes."""

    def __init__(self) -> None:
        self.heading, self.at = "north", 0

    def step(self, v: Any) -> None:
        self.at += {"north": 1, "south": -1}[self.heading]
        if v > 0.6:
            self.heading = "south" if self.heading == "north" else "north"


def walked(x: Any) -> Any:
    walker = Walker()
    for v in x:
        walker.step(v)
    return walker.at, walker.heading


def named(x: Any) -> Any:
    def grade(v: Any) -> str:
        if v > 0.8:
            return "high"
        if v > 0.4:
            return "middle"
        return ""

    grades = [grade(v) for v in x[:4]]
    last = grade(x[-1])
    best = grades[0] if grades[0] else "none"
    return best, last or "low", grades[1] != last, sum(g == "high" for g in grades)


@pytest.mark.parametrize("backend", ["python", "c"])
@pytest.mark.parametrize("program", [machine, traded, lights, walked, named])
def test_texts_that_branches_and_loops_change(program: Any, backend: str) -> None:
    for dynamic in (True, False):
        call = fx.jit(program, backend=backend, dynamic=dynamic)
        for x in (floats(9), floats(9, seed=2), floats(300, seed=3), np.full(9, 0.99)):
            found, expected = call(x), program(x)
            assert type(found) is type(expected)
            if isinstance(found, dict):
                assert found.keys() == expected.keys()
                found, expected = found.values(), expected.values()
            for a, b in zip(found, expected, strict=True):
                if isinstance(b, str):
                    assert a == b
                else:
                    np.testing.assert_allclose(a, b)


def _state(x: Any) -> Any:
    state = "low"
    for v in x:
        if v > 0.5:
            state = "high"
    return state


def joined(x: Any) -> Any:
    return x, len(_state(x) + "est")


def upper(x: Any) -> Any:
    return x if _state(x).upper() == "HIGH" else -x


def as_a_key(x: Any) -> Any:
    return x * {("low", 1): 1.0, ("high", 1): 2.0}[_state(x), 1]


def put_into_a_list(x: Any) -> Any:
    found, i = [], 0
    while x[i] < 0.9:
        found.append(_state(x[: i + 1]))
        i += 1
    return found


@dataclasses.dataclass
class Answer:
    state: str
    x: Any


def in_a_dataclass(x: Any) -> Any:
    return Answer(_state(x), x)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (joined, "reads a text that is one of several"),
        (upper, "reads a text that is one of several"),
        (as_a_key, "reads a text that is one of several"),
        (put_into_a_list, "a str is put into a list"),
        (in_a_dataclass, "returns a text that is one of several"),
    ],
)
def test_refused(program: Any, said: str) -> None:
    with pytest.raises(TraceError, match=rf"(?s){said}.*test_one_of_texts.py:\d+.*instead: "):
        fx.jit(program)(floats(5))


def test_a_graph_returns_no_text() -> None:
    with pytest.raises(TraceError, match="returns a text that is one of several"):
        fx.symbolic_trace(_state, "f64[5]")


def counted_by_state(x: Any) -> Any:
    state, counts = "low", {"low": 0, "high": 0}
    for v in x:
        if state == "low" and v > 0.7:
            state = "high"
        elif state == "high" and v < 0.3:
            state = "low"
        counts[state] += 1
    counts[state] = counts[state] * 10
    return counts


def test_an_item_of_one_of_several_keys_is_set() -> None:
    jitted = fx.jit(counted_by_state, backend="python")
    for size in (9, 40):
        x = np.random.default_rng(size).random(size)
        assert jitted(x) == counted_by_state(x)


def or_none(x: Any) -> Any:
    state = None
    for v in x:
        if v > 0.9:
            state = "high"
        elif v < 0.05:
            state = "low"
    return x if state == "high" else -x, state != "low", state


def test_a_text_that_may_be_none_is_compared() -> None:
    jitted = fx.jit(or_none, backend="python")
    for x in (np.full(5, 0.5), np.array([0.5, 0.01, 0.5, 0.95, 0.5]), np.array([0.95, 0.5, 0.01, 0.5, 0.5])):
        found, expected = jitted(x), or_none(x)
        np.testing.assert_array_equal(found[0], expected[0])
        assert found[1:] == expected[1:]
