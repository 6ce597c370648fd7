"""Fair timing on a machine that others use too.

In: callables that run one block of repetitions, one per engine. Out: :class:`Timing` for each.
The engines take turns (A B C, B C A, ...), so that a slow minute hits all of them. For every block
the processor time that *other* programs used is read from ``/proc/stat``; rounds in which they took
more than a fraction of a core are left out, or, where too few quiet ones remain, the noisiest half
is. Noisy times of engines with one thread are processor times, which do not count the time others
have the core. Speed-ups are medians of ratios within a round, never ratios of times measured
minutes apart.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Cores of other programs up to which a block counts as quiet.
QUIET = 0.15
#: Rounds that must be quiet; with fewer the result is marked noisy.
ENOUGH = 4


@dataclass(frozen=True)
class Block:
    """Repetitions in a row: median seconds of one, processor seconds of one, how many there were,
    and the cores others used."""

    seconds: float
    processor: float
    repetitions: int
    foreign: float


@dataclass
class Timing:
    """Blocks of one engine, one per round."""

    blocks: list[Block] = field(default_factory=list)


@dataclass
class Comparison:
    """Timings of engines that took turns, each with ``threads`` threads."""

    engines: dict[str, Timing]
    threads: int

    @property
    def noise(self) -> list[float]:
        """The cores others used in each round, at most."""
        blocks = zip(*(timing.blocks for timing in self.engines.values()), strict=True)
        return [max(b.foreign for b in one_round) for one_round in blocks]

    @property
    def rounds(self) -> list[int]:
        """The rounds that count."""
        noise = self.noise
        quiet = [r for r, cores in enumerate(noise) if cores < QUIET]
        if len(quiet) >= min(ENOUGH, len(noise)):
            return quiet
        return sorted(range(len(noise)), key=noise.__getitem__)[: (len(noise) + 1) // 2]

    @property
    def is_noisy(self) -> bool:
        """Whether other programs ran during the rounds that count."""
        noise = self.noise
        return any(noise[r] >= QUIET for r in self.rounds)

    @property
    def uses_processor_time(self) -> bool:
        """Whether times are processor times: noise, and one thread."""
        return self.threads == 1 and self.is_noisy

    def _times(self, engine: str) -> list[float]:
        blocks = [self.engines[engine].blocks[r] for r in self.rounds]
        return [b.processor if self.uses_processor_time else b.seconds for b in blocks]

    def seconds(self, engine: str) -> float:
        """Median seconds of one call."""
        return statistics.median(self._times(engine))

    def speedups(self, engine: str, over: str) -> list[float]:
        """How many times faster ``engine`` is than ``over`` in each of the rounds that count."""
        pairs = zip(self._times(engine), self._times(over), strict=True)
        return [theirs / mine for mine, theirs in pairs]

    def speedup(self, engine: str, over: str) -> float:
        """How many times faster ``engine`` is than ``over``: median of the ratios within rounds."""
        return statistics.median(self.speedups(engine, over))


def busy_seconds() -> float:
    """Processor seconds all programs of the machine have used; 0 where the system does not say."""
    try:
        fields = [int(f) for f in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except (OSError, ValueError):
        return 0.0
    idle = fields[3] + fields[4]
    return float(sum(fields) - idle) / float(os.sysconf("SC_CLK_TCK"))


def block(
    call: Callable[[], Any],
    seconds: float,
    warm: float | None = 0.02,
    least: int = 3,
    before: Callable[[], Any] | None = None,
) -> Block:
    """Call for about ``seconds``, at least ``least`` times, after ``warm`` seconds of warming up, at least one call
    (None: without). ``before`` is called before each call and is not timed: it makes arguments what they were."""
    end = time.perf_counter() + (warm or 0.0)
    while warm is not None:
        if before is not None:
            before()
        call()
        if time.perf_counter() >= end:
            break
    gc.collect()
    gc.disable()
    durations: list[float] = []
    used = 0.0
    busy, own, start = busy_seconds(), time.process_time(), time.perf_counter()
    now = start
    while now - start < seconds or len(durations) < least:
        if before is not None:
            before()
        processor, begin = time.process_time(), time.perf_counter()
        call()
        now = time.perf_counter()
        used += time.process_time() - processor
        durations.append(now - begin)
    own = time.process_time() - own
    foreign = max(0.0, (busy_seconds() - busy - own) / (now - start))
    gc.enable()
    count = len(durations)
    return Block(statistics.median(durations), used / count, count, foreign)


def compare(
    engines: Mapping[str, Callable[[], Block]], threads: int, rounds: int, most: int, pause: float = 0.02
) -> Comparison:
    """Let the engines run block after block in turns: at least ``rounds`` rounds, and further ones,
    up to ``most``, until enough are quiet. In the ``pause`` between blocks, in seconds, threads
    that spin for work fall asleep."""
    names = list(engines)
    result = Comparison({name: Timing() for name in names}, threads)
    for number in range(most):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            time.sleep(pause)
            result.engines[name].blocks.append(engines[name]())
        quiet = sum(cores < QUIET for cores in result.noise)
        if number + 1 >= rounds and quiet >= min(ENOUGH, rounds):
            break
    return result
