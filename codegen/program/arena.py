"""An arena: where values lie in memory in turns, by the steps in which they are held.

In: for each value its size, the first and last step at which it is held, and possibly another value
at whose place it has to lie. Out: offsets in one block, if all sizes are numbers (:func:`pack`), or
slots, whose sizes are formulas (:func:`in_slots`).
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from fxlite.types import shapes
from fxlite.types.shapes import Dim

ALIGNMENT = 64

Span = tuple[int, int]
"""The first and the last step at which a value is held."""

#: Pairs of values held at one time, of each value and beside that, up to which they are packed:
#: what keeps the work near-linear.
_PAIRS_A_VALUE, _PAIRS = 16, 500_000


@dataclass(frozen=True)
class Extent:
    """A value of ``nbytes`` that is held from step ``first`` to step ``last``, both included."""

    nbytes: int
    first: int
    last: int


def pack(values: Sequence[Extent], same: Sequence[int] | None = None) -> list[int] | None:
    """The offset of each value, in bytes; None where so many values are held at one time that all
    pairs of them would be too many. ``same``: for each value the number of the one at whose place
    it has to be, with which it is never held at one time, or its own.

    Greedy by size (Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference,
    2020, arXiv 2001.03288): the largest value first, each into the smallest gap that holds it
    between those placed before that are held at some step with it. Of values of one size the one
    held longest comes first. Linear in the pairs held at one time, but for the sorting."""
    together = _held_together(values)
    if together is None:
        return None
    place = range(len(values)) if same is None else same
    neighbours: dict[int, set[int]] = {}
    for number, others in enumerate(together):
        neighbours.setdefault(place[number], set()).update(place[other] for other in others)
    offsets: dict[int, int] = {}
    for number in sorted(neighbours, key=lambda n: _rank(values[n])):
        taken = sorted(
            (offsets[other], offsets[other] + values[other].nbytes) for other in neighbours[number] if other in offsets
        )
        offsets[number] = _smallest_gap(taken, values[number].nbytes)
    return [offsets[number] for number in place]


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


# -- slots -----------------------------------------------------------------------------------------
@dataclass
class Slot:
    """A piece of the arena, in which values lie one after another; ``sizes`` are the bytes they
    take, each size once."""

    sizes: list[Dim] = field(default_factory=list)

    @property
    def size(self) -> Dim:
        """Bytes: the largest of the sizes, an int or an expression in dims."""
        result = self.sizes[0]
        for size in self.sizes[1:]:
            result = shapes.maximum(result, size)
        return result

    def add(self, size: Dim) -> None:
        """Make room for a value of a size."""
        if size not in self.sizes:
            self.sizes.append(size)


def in_slots(
    sizes: Sequence[Dim], spans: Sequence[Span], same: Sequence[int] | None = None
) -> tuple[list[Slot], list[int]]:
    """Slots, and the one of each value; for ``same`` see :func:`pack`.

    Walk the steps; a value's slot is free again after its last reader. A value takes the free slot
    of its size, else the one that grows least, else a new one. One that lies where another does
    takes that slot, which nothing else takes while one of them is held."""
    same = range(len(sizes)) if same is None else same
    slots: list[Slot] = []
    slot_of: dict[int, int] = {}
    free: list[int] = []
    sets: dict[int, list[Span]] = {}
    ending: dict[int, list[int]] = {}
    for number, first in enumerate(same):
        sets.setdefault(first, []).append(spans[number])
        ending.setdefault(spans[number][1], []).append(number)
    reserved: dict[int, list[Span]] = {}
    step = 0
    for number in sorted(range(len(sizes)), key=lambda n: spans[n][0]):
        for passed in range(step, spans[number][0]):
            free += [slot_of[gone] for gone in ending.pop(passed, ())]
        step, size, first = spans[number][0], sizes[number], same[number]
        choice = slot_of.get(first)
        if choice is None:
            fitting = [s for s in free if _is_free(reserved.get(s, []), sets[first])]
            choice = _best(fitting, slots, size)
            if choice is None:
                slots.append(Slot())
                free.append(choice := len(slots) - 1)
            if len(sets[first]) > 1:
                reserved[choice] = sorted(reserved.get(choice, []) + sets[first])
        free.remove(choice)
        slots[choice].add(size)
        slot_of[number] = choice
    return slots, [slot_of[number] for number in range(len(sizes))]


def in_fewest_slots(
    sizes: Sequence[Dim], spans: Sequence[Span], same: Sequence[int]
) -> tuple[list[Slot], list[int]] | None:
    """What :func:`in_slots` gives, found in another order, which may lead to fewer slots or more:
    first what can lie in the fewest of them (Brelaz, New Methods to Color the Vertices of a Graph,
    1979). None for too many values."""
    together = _held_together([Extent(0, *span) for span in spans])
    if together is None or len(set(same)) > _MOST_COLORED:
        return None
    neighbours: dict[int, set[int]] = {first: set() for first in same}
    for number, others in enumerate(together):
        neighbours[same[number]].update(same[other] for other in others)
    slots: list[Slot] = []
    slot_of: dict[int, int] = {}
    taken: dict[int, set[int]] = {first: set() for first in neighbours}
    while len(slot_of) < len(neighbours):
        left = (first for first in neighbours if first not in slot_of)
        first = max(left, key=lambda n: (len(taken[n]), len(neighbours[n]), -spans[n][0]))
        free = [slot for slot in range(len(slots)) if slot not in taken[first]]
        choice = _best(free, slots, sizes[first])
        if choice is None:
            slots.append(Slot())
            choice = len(slots) - 1
        slots[choice].add(sizes[first])
        slot_of[first] = choice
        for other in neighbours[first]:
            taken[other].add(choice)
    return slots, [slot_of[first] for first in same]


_MOST_COLORED = 300
"""Values and sets of them: the time it takes grows with the square of their number."""


def _is_free(reserved: Sequence[Span], spans: Sequence[Span]) -> bool:
    """Whether a slot that is ``reserved`` for some steps, in order, is free at others."""
    for start, stop in spans:
        at = bisect.bisect_right(reserved, stop, key=lambda span: span[0])
        if at and reserved[at - 1][1] >= start:
            return False
    return True


def _best(free: list[int], slots: list[Slot], size: Dim) -> int | None:
    fitting = [i for i in free if shapes.at_least(slots[i].size, size)]
    if fitting:
        numbers = [i for i in fitting if type(slots[i].size) is int]
        return min(numbers, key=lambda i: slots[i].size) if numbers else fitting[0]
    growing = [i for i in free if shapes.at_least(size, slots[i].size)]
    return growing[-1] if growing else None
