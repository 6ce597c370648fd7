"""Which of several ways to compute the same is the fastest: measured in turns.

In: a function that runs one candidate once and says how long that took. Out: a :class:`Race`. The
candidates take turns (0 1 2, 1 2 0, ...), so that a slow moment hits all of them, and are compared
within rounds. One that is clearly worse is not run again.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

#: Rounds, at least and at most; between them as many as fit into the time for a kernel.
LEAST_ROUNDS, MOST_ROUNDS = 5, 21
#: Seconds for a kernel.
BUDGET = 0.4
#: Rounds after which a candidate may be given up, and how many times as long as the fastest one it
#: then took in each of them.
EARLY, CLEARLY = 3, 1.25
#: How many times faster than the model's choice another must be: less is a tie.
MARGIN = 1.03


@dataclass(frozen=True)
class Race:
    """``times[i]``: what candidate i took in each round that it ran in. Candidate 0 is the model's
    choice, with which the others are compared."""

    times: tuple[tuple[float, ...], ...]

    def median(self, candidate: int) -> float:
        """The usual time of a candidate."""
        return statistics.median(self.times[candidate])

    def speedup(self, candidate: int) -> float:
        """How many times faster than candidate 0: the median of the ratios within rounds."""
        return statistics.median(self._ratios(candidate))

    def _ratios(self, candidate: int) -> list[float]:
        # rounds are counted from the first on: who is given up runs in none that follow
        return [mine / its for mine, its in zip(self.times[0], self.times[candidate])]

    @property
    def winner(self) -> int:
        """The fastest candidate; 0 unless another is faster by more than :data:`MARGIN`, and in
        three rounds of four."""
        best = max(range(len(self.times)), key=self.speedup)
        ratios = sorted(self._ratios(best))
        clear = self.speedup(best) > MARGIN and ratios[len(ratios) // 4] > 1
        return best if clear else 0


def race(run: Callable[[int], float], count: int, budget: float = BUDGET) -> Race:
    """Let ``count`` candidates take turns. ``run(i)`` runs one and returns seconds; the first round
    says how many fit into ``budget`` and does not count. Who would win has as many rounds more with
    candidate 0: of several, one is the fastest by chance."""
    first = sum(run(i) for i in range(count))
    rounds = int(min(MOST_ROUNDS, max(LEAST_ROUNDS, budget / first if first > 0 else MOST_ROUNDS)))
    times: list[list[float]] = [[] for _ in range(count)]
    running = list(range(count))
    for number in range(rounds):
        turn = number % len(running)
        for candidate in running[turn:] + running[:turn]:
            times[candidate].append(run(candidate))
        if number + 1 < EARLY:
            continue
        best = [min(taken) for taken in zip(*(times[i] for i in running))]
        kept = [i for i in running if any(t <= CLEARLY * b for t, b in zip(times[i], best))]
        if 0 not in kept or kept == [0]:
            break
        running = kept
    first_winner = Race(tuple(map(tuple, times))).winner
    for number in range(rounds if first_winner else 0):
        for candidate in (0, first_winner) if number % 2 else (first_winner, 0):
            times[candidate].append(run(candidate))
    return Race(tuple(map(tuple, times)))
