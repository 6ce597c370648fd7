"""Offsets of values in one block of memory: values that are held at one time lie side by side.

In: the bytes of each value and the steps at which it is held. Out: the byte at which each starts.
A small block is worth more than its bytes: parts that a run has not touched yet are fetched from
memory to be written, because all that the last run read has passed through the caches since.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

#: Pairs of values held at one time, of each value and beside that, up to which they are packed:
#: what keeps the work near-linear.
_PAIRS_A_VALUE, _PAIRS = 16, 500_000


@dataclass(frozen=True)
class Extent:
    """A value of ``nbytes`` that is held from step ``first`` to step ``last``, both included."""

    nbytes: int
    first: int
    last: int


def pack(values: Sequence[Extent]) -> list[int] | None:
    """The offset of each value, in bytes; None where so many values are held at one time that all
    pairs of them would be too many.

    Greedy by size (Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference,
    2020, arXiv 2001.03288): the largest value first, each into the smallest gap that holds it
    between those placed before that are held at some step with it. Of values of one size the one
    held longest comes first. Linear in the pairs held at one time, but for the sorting."""
    together = _held_together(values)
    if together is None:
        return None
    offsets: dict[int, int] = {}
    for number in sorted(range(len(values)), key=lambda n: _rank(values[n])):
        taken = sorted(
            (offsets[other], offsets[other] + values[other].nbytes)
            for other in together[number]
            if other in offsets
        )
        offsets[number] = _smallest_gap(taken, values[number].nbytes)
    return [offsets[number] for number in range(len(values))]


def ends(values: Sequence[Extent], offsets: Sequence[int], steps: int) -> list[int]:
    """Where the values held at each of so many steps end: the bytes behind are free then."""
    beginning: dict[int, list[tuple[int, int]]] = {}
    for value, offset in zip(values, offsets):
        beginning.setdefault(value.first, []).append((-offset - value.nbytes, value.last))
    held: list[tuple[int, int]] = []  # a heap: the value that ends last comes first
    found = []
    for step in range(steps):
        for entry in beginning.get(step, ()):
            heapq.heappush(held, entry)
        while held and held[0][1] < step:
            heapq.heappop(held)
        found.append(-held[0][0] if held else 0)
    return found


def _rank(value: Extent) -> tuple[int, int, int]:
    return -value.nbytes, value.first - value.last, value.first


def _smallest_gap(taken: list[tuple[int, int]], nbytes: int) -> int:
    """Where ``nbytes`` go among ranges in order of their starts; behind all if no gap holds
    them."""
    end, best, smallest = 0, None, None
    for start, stop in taken:
        gap = start - end
        if gap >= nbytes and (smallest is None or gap < smallest):
            best, smallest = end, gap
        end = max(end, stop)
    return end if best is None else best


def _held_together(values: Sequence[Extent]) -> list[list[int]] | None:
    """For each value the others held at some step with it; None if they are too many."""
    found: list[list[int]] = [[] for _ in values]
    ending: dict[int, list[int]] = {}
    held: dict[int, None] = {}
    left = _PAIRS_A_VALUE * len(values) + _PAIRS
    step = 0
    for number in sorted(range(len(values)), key=lambda n: values[n].first):
        for passed in range(step, values[number].first):
            for gone in ending.pop(passed, ()):
                del held[gone]
        step = values[number].first
        left -= len(held)
        if left < 0:
            return None
        for other in held:
            found[other].append(number)
        found[number].extend(held)
        held[number] = None
        ending.setdefault(values[number].last, []).append(number)
    return found
