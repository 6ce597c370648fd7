"""Lists whose elements depend on values: comprehensions with conditions, ``append`` in a branch. What is computed of
them, and what they are as results, is what Python has; what cannot be known is an error."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import TraceError
from tests.core.test_programs_people_write import floats, same
from tests.oracle import flatten

SETS = (floats(6), floats(9, seed=3))


def selected(x: Any) -> Any:
    found = [v for v in x if v > 0.3 if v < 0.9]
    places = [i for i in range(len(x)) if x[i] > 0.5]
    return found, places, len(found), sum(places), x[places], np.array(places), np.mean(found), found[0], found[-1]


def counted(x: Any) -> Any:
    ones = sum(1 for v in x if v > 0.5), sum(v for v in x if v > 0.5), len([1 for v in x if v > 2])
    truths = any(v > 0.9 for v in x if v < 1), all(v > 0.1 for v in x if v > 0.5), any(v > 2 for v in x if v > 0.1)
    return ones, truths, max((v for v in x if v > 0.5), default=0.0), min((v for v in x if v > 2), default=-1.0)


def largest_of_pairs(x: Any) -> Any:
    found = []
    for i, v in enumerate(x):
        if v > 0.3:
            found.append((v > 0.5, v, i))
    by_place = max(found, key=lambda one: one[2]), min(found, key=lambda one: (one[0], -one[2]))
    none = max([(v, i) for i, v in enumerate(x) if v > 2], default=(0.0, -1))
    return max(found), min(found), by_place, none


def apart(x: Any) -> Any:
    low, high = [], [x[0]]
    for v in x[1:]:
        if v > 0.5:
            high.append(v)
        else:
            low.append(v * 2)
    middle = sum(low) / max(len(low), 1) if low else 0.0
    return low, high, len(low) - len(high), middle, np.array(high).max()


def in_groups(x: Any) -> Any:
    found: dict[str, list[Any]] = {"low": [], "high": []}
    for i, v in enumerate(x):
        if v > 0.3:
            if i % 2 == 0:
                found["high"].append(i)
            elif v > 0.6:
                found["low"].extend([i, -i])
    return found, {name: len(group) for name, group in found.items()}


def pairs(x: Any) -> Any:
    close = []
    for i in range(len(x)):
        for j in range(i + 1, len(x)):
            if abs(x[i] - x[j]) < 0.2:
                close.append((i, j))
    total = 0.0
    for i, j in close:
        total += x[i] * x[j]
    return close, total


def peaks(x: Any) -> Any:
    found = []
    x[2] = 2
    for i in range(1, len(x) - 1):
        if x[i - 1] < x[i] > x[i + 1]:
            found.append(i)
    rows = [row for row in np.outer(x, x) if row.sum() > 1]
    return np.array(found), np.array(rows), [v for v in x if v > 9]


def grows_while(x: Any) -> Any:
    found, i = [], 0
    while i < len(x) and x[i] < 0.9:
        if x[i] > 0.2:
            found.append(i)
        i += 1
    return found


def takes_one_back(x: Any) -> Any:
    waiting = []
    for v in x:
        if v > 0.5:
            waiting.append(v)
    last = waiting.pop() if waiting else 0.0
    waiting.insert(1, 7.0)
    return last, waiting, len(waiting)


def beside_other_conditions(x: Any) -> Any:
    seen, sums, rest = [], [], []
    for v in x:
        if v > 0.5 and seen:
            sums.append(v * 2)
        if v > 0.3:
            seen.append(v)
        if not (v > 0.7 or rest) or (v > 0.2 and not sums):
            rest.append(v)
    return sums, len(rest), [v for v in x if v > 0.4 and rest], 1 if x[0] > 0.1 and not seen else 2


def by_itself(x: Any) -> Any:
    found = [v for v in x if v > 0.5]
    return [v * 2 for v in found]


@pytest.mark.parametrize(
    "program",
    [
        beside_other_conditions,
        selected,
        counted,
        largest_of_pairs,
        apart,
        in_groups,
        pairs,
        peaks,
        grows_while,
        takes_one_back,
        by_itself,
    ],
)
def test_lists_that_depend_on_values(program: Any) -> None:
    for backend in ("python", "c"):
        for dynamic in (True, False):
            jitted = fx.jit(program, backend=backend, dynamic=dynamic)
            for x in SETS:
                same(jitted(x.copy()), program(x.copy()))


def test_they_are_lists_of_numbers_as_results() -> None:
    found = fx.jit(selected)(floats(6))
    assert type(found[0]) is type(found[1]) is list and {type(v) for v in found[1]} == {int}
    assert {type(v) for v in found[0]} == {np.float64} and type(found[2]) is int
    assert fx.jit(pairs)(floats(6))[0] == pairs(floats(6))[0]
    assert fx.jit(peaks)(floats(6))[2] == []


def counts_by_value(x: Any) -> Any:
    counts = [0] * 3
    for v in x:
        counts[int(v * 3)] += 1
    return counts


def shortest_ways(x: Any) -> Any:
    """Dijkstra's algorithm on lists."""
    lengths, n = np.abs(x[:, None] - x) + 0.1, len(x)
    found, done = [float("inf")] * n, [False] * n
    found[0] = 0.0
    for _ in range(n):
        nearest = -1
        for v in range(n):
            if not done[v] and (nearest == -1 or found[v] < found[nearest]):
                nearest = v
        done[nearest] = True
        for v in range(n):
            if found[nearest] + lengths[nearest, v] < found[v]:
                found[v] = found[nearest] + lengths[nearest, v]
    return np.array(found), done


@pytest.mark.parametrize("program", [counts_by_value, shortest_ways])
def test_lists_at_computed_positions(program: Any) -> None:
    for dynamic in (True, False):
        jitted = fx.jit(program, dynamic=dynamic)
        for x in SETS:
            same(jitted(x.copy()), program(x.copy()))


def test_a_list_has_no_element_there() -> None:
    with pytest.raises(IndexError):
        fx.jit(counts_by_value)(floats(6) + 1)


def test_selected_elements_are_copied_by_array() -> None:
    def program(x: Any) -> Any:
        y = np.array(x[x > 0.5])
        return y, np.asarray(x[x > 0.3], np.float32)

    same(fx.jit(program)(floats(6)), program(floats(6)))


def in_another_order(x: Any) -> Any:
    waiting = []
    for v in x:
        if v > 0.5:
            waiting.append(v)
    waiting.sort()
    return waiting


def of_several_types(x: Any) -> Any:
    return [(i, v) for i, v in enumerate(x) if v > 0.5]


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (in_another_order, r"(?s)sort\(\) changes a list.*that_grow.py:\d+"),
        (of_several_types, r"(?s)have different types.*that_grow.py:\d+"),
    ],
)
def test_what_is_not_known_of_them_is_an_error(program: Any, said: str) -> None:
    with pytest.raises(fx.errors.TraceError, match=said):
        fx.jit(program)(floats(6))


def names_either(x: Any) -> Any:
    best, current = [0.0, 0.0], [x[0], x[1]]
    for v in x:
        current[0] = current[0] + v
        if current[0] > 1:
            best = current
    return best, current


def grows_under_another_name(x: Any) -> Any:
    rows = [[x[0]], [x[1]]]
    if x[0] < x[1]:
        rows[1] = copy.copy(rows[0])
        rows[1].append(x[1])
    return rows[1]


def changes_a_copy(x: Any) -> Any:
    best, current = [0.0, 0.0], [x[0], x[1]]
    for v in x:
        current[0] = current[0] + v
        if current[0] > 1:
            best = current[:]
            best[1] = v
    return best, current


def test_a_list_that_a_condition_gives_another_name() -> None:
    x = np.array([0.3, 0.7, 0.2])
    for program in (names_either, changes_what_has_two_names):
        with pytest.raises(TraceError, match="may name or not"):
            fx.jit(program, backend="python", dynamic=False)(x)
    for given in (x, -x):
        for program in (changes_a_copy, grows_under_another_name):
            assert fx.jit(program, backend="python", dynamic=False)(given) == program(given)


def changes_what_has_two_names(x: Any) -> Any:
    found = [1.0]
    other = found
    if x[0] > 0.1:
        found = [2.0]
    found.append(3.0)
    return sum(other)


# -- of one length or another ------------------------------------------------------------------------
def longer_on_one_way(x: Any) -> Any:
    found = [1.0, 2.0]
    if x[0] > 0:
        found = [1.0, x[1], 3.0]
    return np.array(found), len(found), sum(found), found[1]


def selected_on_one_way(x: Any) -> Any:
    found = [v for v in x if v > 1] if x[0] > 0 else [v for v in x if v < -2]
    other = [1.0, 2.0]
    if x[1] > 0:
        other = [v for v in x if v > 0.6]
    return sum(found), len(found), np.array(found), sum(other), len(other)


def made_on_each_way(x: Any) -> Any:
    if x[0] > 0:
        found = [x[0]]
    else:
        found = [x[1], x[2]]
    total = 0.0
    for v in found:
        total += v * 2
    found.append(5.0)
    return total, max(found), np.array(found)


def empty_or_not(x: Any) -> Any:
    run: list[Any] = []
    for v in x:
        if v > 0:
            run = [*run, v]
        else:
            run = []
    return np.array(run)


def returned_or_none(x: Any) -> Any:
    def picked() -> list[Any]:
        if x[0] > 0:
            return [x[0], x[1]]
        return []

    found = picked()
    if found:
        return found[0]
    return 0.0


@pytest.mark.parametrize(
    "program", [longer_on_one_way, selected_on_one_way, made_on_each_way, empty_or_not, returned_or_none]
)
def test_lists_of_one_length_or_another(program: Any) -> None:
    for x in ([3.0, 2.0, 0.5, 7.0], [3.0, -2.0, 0.5, 7.0], [-3.0, -2.0, -0.5, 7.0], [-3.0, 2.0, 0.5, -7.0]):
        for backend in ("python", "c"):
            found, expected = fx.jit(program, backend=backend)(np.array(x)), program(np.array(x))
            for a, b in zip(flatten(found), flatten(expected), strict=True):
                np.testing.assert_allclose(a, b)


def test_tuples_of_lists_of_one_length_or_another_are_compared() -> None:
    def program(x: Any) -> Any:
        found = [(x[0], 1)] if x[0] > 0 else [(x[1], 2), (x[2], 3)]
        return max(found)[1]

    jitted = fx.jit(program, backend="python")
    for x in ([1.0, 2, 3], [-1.0, 2, 3], [-1.0, 3, 2], [-1.0, 3, 3]):
        assert jitted(np.array(x)) == program(np.array(x))


def run_lengths(x: Any) -> Any:
    values, counts = [x[0]], [1]
    for v in x[1:]:
        if v == values[-1]:
            counts[-1] += 1
        else:
            values.append(v)
            counts.append(1)
    return values, counts


def counted_up(x: Any) -> Any:
    counts = [1]
    for v in x:
        if v > 1:
            counts.append(1)
        counts[-1] += 1
    return counts


def set_or_longer(x: Any) -> Any:
    found = [1, 2, 3]
    if x[0] > 1:
        found[-1] = 9
    else:
        found.append(4)
    return found


def set_and_longer(x: Any) -> Any:
    found = [1, 2, 3]
    if x[0] > 1:
        found[-1] = 9
        found.append(4)
        found[-1] += 1
    return found


def set_or_shorter(x: Any) -> Any:
    found = [1, 2, 3]
    if x[0] > 1:
        found[-1] += 9
    else:
        found.pop()
    return found


@pytest.mark.parametrize("program", [run_lengths, counted_up, set_or_longer, set_and_longer, set_or_shorter])
def test_the_last_item_of_a_list_that_may_be_longer(program: Any) -> None:
    """Which item is the last one depends on the way that the program takes."""
    for x in ([1, 1, 2, 2, 2, 3, 1], [1] * 7, [4, 3, 2, 1, 0, -1, -2], [0, 2, 2, 0, 0, 0, 5]):
        for backend in ("python", "c"):
            assert repr(fx.jit(program, backend=backend)(np.array(x))) == repr(program(np.array(x)))


def backwards(x: Any) -> Any:
    places, pairs = [], []
    for i in range(len(x)):
        if x[i] > 1:
            places.append(i)
            pairs.append((i, x[i]))
    return places[::-1], places[1:3], pairs[1:], pairs[-1] if x[0] > 1 else (0, x[0])


def test_a_slice_of_a_list_is_a_list() -> None:
    """Of the elements that exist, whether the program finds them in rounds that are unrolled or in a loop."""
    for x in ([2, 1, 2, 3, 1], [2] * 70, [2, 0, 0]):
        for backend in ("python", "c"):
            assert repr(fx.jit(backwards, backend=backend)(np.array(x))) == repr(backwards(np.array(x)))


def union_of_intervals(x: Any) -> Any:
    found = [x[0].copy()]
    for start, end in x[1:]:
        if start <= found[-1][1]:
            found[-1][1] = max(found[-1][1], end)
        else:
            found.append(np.array([start, end]))
    return np.array(found)


def test_a_write_into_an_element_is_not_lost() -> None:
    """It is refused, soon also where the loop is so long that it would have to be unrolled for minutes."""
    starts = np.arange(400.0)
    for count in (5, 400):
        x = np.stack([starts[:count], starts[:count] * 1.1 + 0.5], 1)
        with pytest.raises(TraceError, match="is an element of a list, of which it is a copy"):
            fx.jit(union_of_intervals)(x)


# -- in loops of many rounds -------------------------------------------------------------------------
def little_at_first(x: Any) -> Any:
    last, found = -1.0, []
    for v in x:
        if last == -1.0:
            last = v
            continue
        if v > last:
            found.append(v - last)
        last = v
    return np.array(found)


def of_combinations(x: Any) -> Any:
    found = []
    for i, j in itertools.combinations(range(20), 2):
        if x[i] > x[j]:
            found.append(x[i] - x[j])
    return np.array(found)


@pytest.mark.parametrize("program", [little_at_first, of_combinations])
def test_loops_of_many_rounds_stay_loops(program: Any) -> None:
    gm = fx.symbolic_trace(program, "f64[100]")
    assert len(gm.graph.nodes) < 100
    x = np.random.default_rng(0).random(100)
    np.testing.assert_allclose(gm(x), program(x))


def directions(x: Any, most: int, rounds: int) -> Any:
    """The loop of L-BFGS: a jump that is not known in each round, and lists that grow behind it."""
    x, steps = x.copy(), []
    for _ in range(rounds):
        if np.sum(x) > 100:
            break
        q, factors = x * 1.0, []
        for step in reversed(steps):
            q = q + 2 * step
            factors.append(step[0])
        for step, factor in zip(steps, reversed(factors), strict=True):
            q = q * 0.5 + step * factor
        steps.append(q - x)
        if len(steps) > most:
            steps.pop(0)
        x = q * 0.1 + x * 0.2
    return x


def doubled(values: Any) -> Any:
    for value in values:
        yield value * 2


def grown_behind_jumps(x: Any, count: int) -> Any:
    """Rounds over a generator, over pairs and over what a function gives."""
    results = []
    for values in (doubled(x[:4]), (v + w for v, w in zip(x[:3], x[2:5], strict=True)), map(abs, x[:4])):
        total, found = 0.0, []
        for value in values:
            if total > 3:
                break
            for k in range(count):
                found.append(value + k)
            total = total + value
        results += [total, len(found), sum(found)]
    return results


def test_no_round_behind_a_jump_is_lost() -> None:
    """A branch is traced again if a list in it turns out to grow, from the round on with which it began."""
    for rounds in (1, 2, 3, 8):
        x = np.array([-1.2, 1.0])
        np.testing.assert_allclose(fx.jit(directions, backend="python")(x, 2, rounds), directions(x, 2, rounds))
    for x in (np.array([1, 2, 0.5, 0.25, -3]), np.array([9, 0.2, 0.5, -1.25, -3])):
        for count in (0, 2):
            found = fx.jit(grown_behind_jumps, backend="python")(x, count)
            np.testing.assert_allclose(found, grown_behind_jumps(x, count))
