"""Offsets of values in one block: no two that are held at one time overlap, and little is lost."""

from __future__ import annotations

import random
from itertools import pairwise

from fxlite.codegen.program.memory import Extent, ends, pack


def drawn(seed: int, count: int) -> list[Extent]:
    """Values of a network: most are held for a few steps, some for long, some are empty."""
    rng = random.Random(seed)
    values = []
    for _ in range(count):
        first = rng.randrange(count)
        last = first + rng.choice((0, 1, 1, 1, 2, 3, 20))
        values.append(Extent(64 * rng.choice((0, 1, 2, 3, 8, 50, 100)), first, last))
    return values


def held(values: list[Extent], step: int) -> list[int]:
    return [n for n, value in enumerate(values) if value.first <= step <= value.last]


def test_values_held_at_one_time_lie_side_by_side() -> None:
    for seed in range(20):
        values = drawn(seed, 60)
        offsets = pack(values)
        assert offsets is not None
        found = ends(values, offsets, 90)
        for step in range(90):
            here = sorted((offsets[n], offsets[n] + values[n].nbytes) for n in held(values, step))
            filled = [place for place in here if place[0] < place[1]]
            assert all(stop <= start for (_, stop), (start, _) in pairwise(filled))
            assert found[step] == max((stop for _, stop in here), default=0)


def test_by_hand() -> None:
    """A chain whose slots would be 48, 18 and 12: small values go beside each other where the large
    one was, the one that is held longest first among equals."""
    values = [Extent(12, 0, 1), Extent(48, 1, 2), Extent(12, 2, 5), Extent(18, 3, 4), Extent(18, 4, 5)]
    assert pack(values) == [48, 0, 48, 0, 18]
    assert pack([Extent(8, 0, 0), Extent(8, 0, 4), Extent(8, 4, 4)]) == [8, 0, 8]
    assert pack([]) == [] and ends([], [], 2) == [0, 0]


def test_little_is_lost() -> None:
    lost = []
    for seed in range(20):
        values = drawn(seed, 200)
        offsets = pack(values)
        assert offsets is not None
        most = max(sum(values[n].nbytes for n in held(values, step)) for step in range(220))
        lost.append(max(o + v.nbytes for o, v in zip(offsets, values)) / most)
    assert max(lost) < 1.25 and sum(lost) / len(lost) < 1.1


def test_many_values() -> None:
    """A long chain is packed; thousands that are all held until the end are not,
    because each would be compared with each."""
    offsets = pack([Extent(64 * (n % 7 + 1), n, n + 2) for n in range(30_000)])
    assert offsets is not None and max(offsets) < 64 * 7 * 3
    assert pack([Extent(64, n, 3000) for n in range(3000)]) is None
