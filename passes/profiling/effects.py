"""What :func:`fxlite.passes.before_after` finds: the state of a program before and after each pass,
and the change that the costs predict and the clock measures.

In: counts, and times of calls made in turns. Out: :class:`BeforeAfter`, which prints as a table.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fxlite.compiler import Backend, find_backend
from fxlite.passes.profiling.rewrites import Rewrite, relative
from fxlite.show.roofs import Roofs


@dataclass(frozen=True)
class State:
    """A program at one point of a pipeline: its ``parts`` (nodes that compute; of compiled code,
    kernels), their FLOPs and bytes, ``memory`` (bytes of values held at most; of compiled code, the
    workspace), ``least_seconds`` that the machine's roofs allow, all parts one after another, and
    the ``seconds`` of a call in each round. None: unknown."""

    parts: int
    flops: int | None
    bytes: int | None
    memory: int | None
    least_seconds: float | None
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median seconds of a call."""
        return statistics.median(self.seconds)


@dataclass(frozen=True)
class Change:
    """A relative change of the time: -0.25 is a quarter less. It lies between ``low`` and ``high``
    with a probability of 95 %."""

    value: float
    low: float
    high: float

    @property
    def is_noise(self) -> bool:
        """True if no change at all is as likely as that."""
        return self.low <= 0 <= self.high

    def __str__(self) -> str:
        return f"{100 * self.value:+.1f}% ±{50 * (self.high - self.low):.1f}"


@dataclass(frozen=True)
class PassEffect:
    """What one pass brings. ``is_same``: it changed nothing, or nothing of the compiled code, which
    then was not measured again. ``refused``: places that it looked at and left alone."""

    name: str
    before: State
    after: State
    rewrites: tuple[Rewrite, ...]
    refused: int
    is_same: bool

    @property
    def predicted(self) -> float | None:
        """Relative change of the least time that the roofs allow; None where it is unknown."""
        return predicted_change(self.before, self.after)

    @property
    def measured(self) -> Change:
        """Relative change of the time of a call."""
        return measured_change(self.before, self.after)


@dataclass(frozen=True)
class BeforeAfter:
    """A pipeline measured: ``before`` all passes, then a step for each; ``dims`` are the sizes of
    the named dims."""

    name: str
    backend: str
    threads: int
    dims: Mapping[str, int]
    before: State
    steps: tuple[PassEffect, ...]
    roofs: Roofs | None

    @property
    def target(self) -> Backend:
        """What ran it."""
        return find_backend(self.backend)

    @property
    def after(self) -> State:
        """The state after the last pass."""
        return self.steps[-1].after if self.steps else self.before

    @property
    def predicted(self) -> float | None:
        """Relative change that all passes together promise; None where it is unknown."""
        return predicted_change(self.before, self.after)

    @property
    def measured(self) -> Change:
        """Relative change that all passes together bring."""
        return measured_change(self.before, self.after)

    def __iter__(self) -> Iterator[PassEffect]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, name: str) -> PassEffect:
        """The first step of a pass, by its name. Raises KeyError."""
        for step in self.steps:
            if step.name == name:
                return step
        raise KeyError(f"{name!r} is none of the passes: {', '.join(s.name for s in self.steps)}")

    def __rich_console__(self, console: Any, options: Any) -> Iterable[Any]:
        from fxlite.passes.profiling.effects_table import effects_parts

        yield from effects_parts(self, options.max_width)

    def __str__(self) -> str:
        from fxlite.base.console import plain_text

        return plain_text(self)

    __repr__ = __str__


def predicted_change(before: State, after: State) -> float | None:
    """Relative change of the least seconds."""
    return relative(before.least_seconds, after.least_seconds)


def measured_change(before: State, after: State) -> Change:
    """The median of the ratios, round by round, and its 95 % interval, which is the one between two
    order statistics and asks nothing of the distribution: ranks n/2 ± 0.98 √n (Conover, "Practical
    Nonparametric Statistics")."""
    ratios = sorted(b / a for a, b in zip(before.seconds, after.seconds))
    count = len(ratios)
    low = max(math.floor(count / 2 - 0.98 * math.sqrt(count)), 0)
    high = min(math.ceil(count / 2 + 0.98 * math.sqrt(count)), count - 1)
    return Change(statistics.median(ratios) - 1, ratios[low] - 1, ratios[high] - 1)
