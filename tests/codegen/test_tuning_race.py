"""Candidates that take turns: who wins, who is given up, and that noise decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from fxlite.codegen.tuning.harness import EARLY, LEAST_ROUNDS, MOST_ROUNDS, race


class Clock:
    """Times that are made up: of candidate i what ``of(i, how often it ran before)`` says."""

    def __init__(self, of: Callable[[int, int], float]) -> None:
        self.of = of
        self.runs: list[int] = []

    def __call__(self, candidate: int) -> float:
        self.runs.append(candidate)
        return self.of(candidate, self.runs.count(candidate) - 1)


def steady(times: Sequence[float]) -> Clock:
    return Clock(lambda candidate, run: times[candidate])


@pytest.mark.parametrize(
    ("times", "winner"),
    [([10, 11, 8], 2), ([10, 9, 9.5], 1), ([10, 10.4, 11], 0), ([10, 9.8, 10], 0), ([10], 0)],
    ids=["fastest", "two are faster", "model is right", "a tie is the model's", "alone"],
)
def test_who_wins(times: list[float], winner: int) -> None:
    found = race(steady(times), len(times))
    assert found.winner == winner
    assert found.median(0) == times[0]
    assert found.speedup(len(times) - 1) == pytest.approx(times[0] / times[-1])


def test_they_take_turns_and_the_first_round_does_not_count() -> None:
    clock = Clock(lambda candidate, run: 100.0 if run == 0 else 1.0)
    found = race(clock, 3)
    assert clock.runs[:9] == [0, 1, 2, 0, 1, 2, 1, 2, 0]
    assert set(found.times[0]) == {1.0}


def test_as_many_rounds_as_there_is_time_for() -> None:
    assert len(race(steady([1.0, 1.0]), 2, budget=0).times[0]) == LEAST_ROUNDS
    assert len(race(steady([0.1, 0.1]), 2, budget=2.1).times[0]) == 10
    assert len(race(steady([1e-6, 1e-6]), 2).times[0]) == MOST_ROUNDS


def test_one_that_is_clearly_worse_is_given_up() -> None:
    found = race(steady([10, 20, 9]), 3, budget=1e9)
    assert [len(times) for times in found.times] == [2 * MOST_ROUNDS, EARLY, 2 * MOST_ROUNDS]
    found = race(steady([10, 20, 30]), 3, budget=1e9)
    assert [len(times) for times in found.times] == [EARLY] * 3, "nobody is left to compare with"
    found = race(steady([10, 5, 20]), 3, budget=1e9)
    assert found.winner == 1 and len(found.times[2]) == EARLY


def test_a_slow_moment_meets_all_and_decides_nothing() -> None:
    noise = np.random.default_rng(0)

    def of(candidate: int, run: int) -> float:
        load = 1 + run / 5  # the machine gets slower
        hiccup = 20.0 if noise.random() < 0.2 else 1.0
        return (10.0, 9.0, 10.0)[candidate] * load * hiccup

    found = race(Clock(of), 3, budget=1e9)
    assert found.winner == 1 and found.speedup(1) == pytest.approx(10 / 9)


def test_the_winner_has_to_win_again() -> None:
    at_first = Clock(lambda candidate, run: (10.0, 8.0 if run <= LEAST_ROUNDS else 10.0)[candidate])
    found = race(at_first, 2, budget=0)
    assert len(found.times[1]) == 2 * LEAST_ROUNDS and found.winner == 0


def test_faster_at_times_is_not_faster() -> None:
    found = race(Clock(lambda candidate, run: (10.0, 5.0 if run % 2 else 10.1)[candidate]), 2)
    assert found.winner == 0
