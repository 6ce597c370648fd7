"""Repeated calls of a program as loops: equal layers, the steps of a recurrence.

In: the calls of a program, in order. Out: steps, each the number of a call or a loop over such steps;
and sets of values that should share a place in the arena, so that each iteration of a loop uses the
same buffers.

The same calls run with and without loops: a call in a loop represents calls at equal distances, and
each has the arguments it had. So nothing has to be proved about a loop. Whether its text is shorter
depends on how the arguments differ, which is judged when they are printed.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite.codegen.c.calls import common_path
from fxlite.codegen.program.program import Program, with_one_place
from fxlite.graph.graph import Node
from fxlite.types import shapes
from fxlite.types.tensor_type import TensorType


@dataclass(frozen=True)
class Loop:
    """``count`` repetitions of the ``body``, which holds the calls of the first iteration; ``size`` is the
    number of calls in one iteration."""

    body: tuple[Step, ...]
    count: int
    size: int


Step = int | Loop

_LONGEST_BODY = 400  # calls
_LEAST_SAVED = 4  # calls; a loop adds nearly as many lines
_ALIGNMENTS = 1_000_000  # the most scopes examined to choose where a loop begins
_TURNS = 1000  # the most iterations for which alternating values are looked for


def rolled(keys: Sequence[Hashable], paths: Sequence[str]) -> tuple[Step, ...]:
    """The steps of a sequence of calls, in which calls with equal ``keys`` may be combined into loops.
    ``paths`` are the modules of the calls: if a loop could begin at several calls, it is placed so that
    its iterations are modules."""
    number: dict[Hashable, int] = {}
    codes = np.array([number.setdefault(key, len(number)) for key in keys], np.int64)

    def steps(start: int, stop: int) -> list[Step]:
        found = _longest_repeat(codes[start:stop])
        if found is None:
            return list(range(start, stop))
        period, first, end = found[0], start + found[1], start + found[2]
        first, count = _aligned(first, end, period, paths)
        end = first + period * count
        loop = Loop(tuple(steps(first, first + period)), count, period)
        return [*steps(start, first), loop, *steps(end, stop)]

    return tuple(steps(0, len(codes)))


def _longest_repeat(codes: np.ndarray[Any, Any]) -> tuple[int, int, int] | None:
    """The stretch of calls that saves the most as a loop: the number of calls that repeat, and its first and
    last positions. None if a loop would save too few calls."""
    best: tuple[int, int, int, int] | None = None
    for period in range(1, min(len(codes) // 2, _LONGEST_BODY) + 1):
        equal = np.concatenate(([False], codes[period:] == codes[:-period], [False]))
        edges = np.flatnonzero(equal[1:] != equal[:-1])
        firsts, ends = edges[::2], edges[1::2]
        saved = (ends - firsts) // period * period
        if len(saved) and saved.max() >= _LEAST_SAVED:
            at = int(saved.argmax())
            found = -int(saved[at]), period, int(firsts[at]), int(ends[at]) + period
            best = found if best is None else min(best, found)
    return None if best is None else best[1:]


def _aligned(first: int, end: int, period: int, paths: Sequence[str]) -> tuple[int, int]:
    """Where a loop begins in a stretch of repeating calls, and how many iterations it has."""

    def modules(begin: int) -> int:
        found = (common_path(paths[at : at + period]) for at in range(begin, end - period + 1, period))
        return len({path for path in found if path})

    begins = [first]
    if (end - first) * period <= _ALIGNMENTS:
        begins = [b for b in range(first, first + period) if b + 2 * period <= end]
    best = max(begins, key=lambda b: (modules(b), (end - b) // period, -b))
    return best, (end - best) // period


def leaves(steps: Iterable[Step], around: tuple[Loop, ...] = ()) -> Iterator[tuple[int, tuple[Loop, ...]]]:
    """The calls in steps, each with the loops around it, outermost first."""
    for step in steps:
        if isinstance(step, Loop):
            yield from leaves(step.body, (*around, step))
        else:
            yield step, around


def numbers(call: int, loops: Sequence[Loop]) -> np.ndarray[Any, Any]:
    """The numbers of the calls that one call in loops represents; an axis for each loop."""
    found = np.full([loop.count for loop in loops], call, np.int64)
    for axis, loop in enumerate(loops):
        shape = [1] * len(loops)
        shape[axis] = loop.count
        found += (np.arange(loop.count) * loop.size).reshape(shape)
    return found


# -- memory ----------------------------------------------------------------------------------------
def with_steady_memory(
    program: Program, steps: Sequence[Step], read: Sequence[Sequence[Node]], turns: Collection[Loop] = ()
) -> tuple[Program, list[list[Node]]]:
    """The program with a memory plan in which the iterations of loops use the same places, as far as
    values held at the same time allow; and the sets of values that share a place. ``read`` are the values
    that calls read, in the order of their arguments. In the iterations of the loops in ``turns`` two
    places alternate."""
    places = _Places(program)
    for call, loops in leaves(steps):
        if not loops:
            continue
        every = numbers(call, loops).ravel().tolist()
        stored = zip(*(program.groups[n].stored for n in every))
        for values in [*stored, *zip(*(read[n] for n in every))]:
            if loops[0] not in turns and places.join(values):
                continue
            if len(values) <= _TURNS:
                for one, other in zip(values, values[2:]):
                    places.join((one, other))
    sets = [values for values in places.sets() if len(values) > 1]
    return (with_one_place(program, sets) if sets else program), sets


def _of_one_size(one: TensorType, other: TensorType) -> bool:
    return one.dtype == other.dtype and shapes.equal(one.nbytes, other.nbytes)


class _Places:
    """Sets of values that are never held at the same time, each with the spans in which they are held."""

    def __init__(self, program: Program) -> None:
        self.held = program.lifetimes
        self.set_of: dict[Node, list[Node]] = {}

    def join(self, values: Iterable[Node]) -> bool:
        """Unite the sets of the values; returns False and does nothing if that is impossible. Values that
        are not in the arena are ignored."""
        sets: dict[int, list[Node]] = {}
        for value in values:
            if value in self.held:
                own = self.set_of.setdefault(value, [value])
                sets.setdefault(id(own), own)
        if len(sets) < 2:
            return True
        together = sorted((v for own in sets.values() for v in own), key=self.held.__getitem__)
        kind = together[0].type
        for before, after in itertools.pairwise(together):
            if self.held[before][1] >= self.held[after][0]:
                return False
        if not all(v.type is kind or _of_one_size(v.type, kind) for v in together):
            return False
        for value in together:
            self.set_of[value] = together
        return True

    def sets(self) -> list[list[Node]]:
        """Each set once, its values in the order in which they are computed."""
        return list({id(own): own for own in self.set_of.values()}.values())
