"""Lists, deques, sets and heaps that a loop fills and empties: a jitted function gives what the function gives, and has
more room for them where a call needs it. What is not computed of them is an error."""

from __future__ import annotations

import bisect
import dataclasses
import heapq
import math
from collections import deque
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import TraceError
from tests.core.test_programs_people_write import floats, integers, same
from tests.oracle import flatten


def sorted_by_a_stack(a: Any) -> Any:
    """Quicksort without recursion."""
    a = a.copy()
    stack = [(0, len(a) - 1)]
    while stack:
        low, high = stack.pop()
        if low >= high:
            continue
        pivot, i = a[high], low
        for j in range(low, high):
            if a[j] < pivot:
                a[i], a[j] = a[j], a[i]
                i += 1
        a[i], a[high] = a[high], a[i]
        stack.append((low, i - 1))
        stack.append((i + 1, high))
    return a


def labelled_areas(x: Any) -> Any:
    rows, columns = x.shape
    labels, count = np.zeros((rows, columns), int), 0
    for i in range(rows):
        for j in range(columns):
            if x[i, j] > 0.4 and labels[i, j] == 0:
                count += 1
                labels[i, j] = count
                stack = [(i, j)]
                while stack:
                    a, b = stack.pop()
                    for da, db in ((1, 0), (-1, 0), (0, 1), (0, -1)):
                        c, d = a + da, b + db
                        if 0 <= c < rows and 0 <= d < columns and x[c, d] > 0.4 and labels[c, d] == 0:
                            labels[c, d] = count
                            stack.append((c, d))
    return labels, count


def reached_in_order(x: Any) -> Any:
    """A search in breadth."""
    waiting, seen, order = deque([0]), {0}, []
    while waiting:
        u = waiting.popleft()
        order.append(u)
        for v in range(len(x)):
            if x[u, v] > 0.5 and v not in seen:
                seen.add(v)
                waiting.append(v)
    return order, len(seen), len(waiting)


def shortest_ways_by_a_heap(x: Any) -> Any:
    lengths = [math.inf] * len(x)
    lengths[0] = 0.0
    heap, rounds = [(0.0, 0)], 0
    while heap:
        length, u = heapq.heappop(heap)
        rounds += 1
        if length > lengths[u]:
            continue
        for v in range(len(x)):
            new = length + x[u, v]
            if new < lengths[v]:
                lengths[v] = new
                heapq.heappush(heap, (new, v))
    return np.array(lengths), rounds


def common_part(x: Any) -> Any:
    """The longest common subsequence of two rows."""
    a, b = (x[0] * 4).astype(int), (x[1] * 4).astype(int)
    n, m = len(a), len(b)
    lengths = np.zeros((n + 1, m + 1), int)
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            if a[i - 1] == b[j - 1]:
                lengths[i, j] = lengths[i - 1, j - 1] + 1
            else:
                lengths[i, j] = max(lengths[i - 1, j], lengths[i, j - 1])
    found = []
    i, j = n, m
    while i > 0 and j > 0:
        if a[i - 1] == b[j - 1]:
            found.append(a[i - 1])
            i -= 1
            j -= 1
        elif lengths[i - 1, j] >= lengths[i, j - 1]:
            i -= 1
        else:
            j -= 1
    return found[::-1], lengths[n, m]


def around_the_points(x: Any) -> Any:
    """A convex hull by gift wrapping."""
    points, hull = x[:, :2], []
    p = start = int(np.argmin(points[:, 0]))
    while True:
        hull.append(p)
        q = (p + 1) % len(points)
        for r in range(len(points)):
            one, other = points[q] - points[p], points[r] - points[p]
            if one[0] * other[1] - one[1] * other[0] < 0:
                q = r
        p = q
        if p == start:
            return hull, points[hull]


def way_back(x: Any) -> Any:
    goal, place = (0, 0), (len(x) - 1, len(x) - 1)
    way = [place]
    while place != goal:
        i, j = place
        if j == 0 or (i > 0 and x[i - 1, j] < x[i, j - 1]):
            place = (i - 1, j)
        else:
            place = (i, j - 1)
        way.append(place)
    way.reverse()
    return way, len(way), sum(x[i, j] for i, j in way)


def halved(x: Any) -> Any:
    steps = [x * 1.0]
    while np.abs(steps[-1]).max() > 0.01:
        steps.append(steps[-1] * 0.5)
    return np.array(steps), steps[-1], len(steps)


@pytest.mark.parametrize(
    "program",
    [labelled_areas, reached_in_order, shortest_ways_by_a_heap, common_part, around_the_points, way_back, halved],
)
def test_of_matrices(program: Any) -> None:
    for backend in ("python", "c"):
        jitted = fx.jit(program, backend=backend)
        for x in (floats(4, 4), floats(4, 4, seed=2)):
            same(jitted(x.copy()), program(x.copy()))


def last_three(x: Any) -> Any:
    recent, total, i = deque([0.0], maxlen=3), 0.0, 0
    while x[i] > -2.5 and i < 5:
        recent.append(x[i])
        total += sum(recent) * len(recent)
        i += 1
    return recent, recent.copy(), total


def first_two(x: Any) -> Any:
    recent = deque([0.0], maxlen=2)
    for value in x:
        if value > 0:
            recent.appendleft(value)
    return recent, recent[0], len(recent)


def not_kept(x: Any) -> Any:
    nothing: Any = deque(maxlen=0)
    many = deque([0.0], maxlen=1000)
    for value in x:
        if value > 0:
            many.append(value)
            nothing.append(value)
    return many, len(nothing)


@pytest.mark.parametrize("program", [last_three, first_two, not_kept])
def test_deques_that_forget(program: Any) -> None:
    for backend in ("python", "c"):
        jitted = fx.jit(program, backend=backend)
        for x in (floats(9), floats(9, seed=2), -np.abs(floats(9)), np.abs(floats(9))):
            result, expected = jitted(x), program(x)
            same(result, expected)
            assert [v.maxlen for v in result if isinstance(v, deque)] == [
                v.maxlen for v in expected if isinstance(v, deque)
            ]

    def shortened(x: Any) -> Any:
        found, i = deque([0.0]), 0
        while x[i] > -2.5 and i < 5:
            found.append(x[i])
            i += 1
        return deque(found, 2)

    with pytest.raises(TraceError, match="the number of elements of a deque is known only when the program runs"):
        fx.jit(shortened)(floats(9))


def test_a_stack() -> None:
    for backend in ("python", "c"):
        jitted = fx.jit(sorted_by_a_stack, backend=backend)
        for a in (integers(20, most=50), integers(33, seed=1, most=50)):
            same(jitted(a), np.sort(a))
        assert len(jitted.versions) == 1


def methods(x: Any) -> Any:
    found, ends = [3], deque([5, 6])
    i = 0
    while x[i] > -2.5 and i < 2:
        found.append(i)
        found.insert(1, 10 + i)
        found.insert(-1, 20 + i)
        found += [4, 7]
        ends.append(i)
        ends.appendleft(-i)
        if found[-3] == 0:
            found.remove(4)
        i += 1
        found.reverse()
        del found[-1]
        found[0] += 100
    last = found.pop(2) if len(found) > 2 else 5
    place = found.index(20) if 20 in found else -1
    total, doubled = 0, []
    for k, value in enumerate(found):
        total = total * 3 + value + k
        if value > 3:
            doubled.append(value * 2)
    pairs = [found.count(4), 4 in found, 99 in found, 99 not in found, len(ends), ends[0], ends[-1], ends.popleft()]
    numbers = (sum(found), max(found), min(found), any(v > 20 for v in found), sum(v for v in found if v > 3))
    return found, last, place, total, doubled, pairs, numbers, found[::-1], np.array(found), list(ends), x[found[0] % 4]


def members(x: Any) -> Any:
    seen, i = {1}, 0
    while i < 3 and x[i] > -2:
        seen.add(int(abs(x[i])))
        seen.discard(2)
        i += 1
    return len(seen), 1 in seen, 2 in seen, 3 in seen


def in_branches(x: Any) -> Any:
    heap, ends, numbers = [], deque(), [3, 1, 2]
    for i in range(4):
        if x[i % 3] > 0:
            heapq.heappush(heap, x[i % 3] * (i - 2))
            ends.append(i)
    if x[1] > 0:
        numbers.sort()
    if x[2] > 0:
        numbers.insert(1, 7)
        numbers.remove(3)
        del numbers[0]
    return len(heap), len(ends), heapq.heappop(heap) if heap else -9.0, numbers


def grows(x: Any) -> Any:
    rows: list[Any] = []
    while x.sum() > 1:
        x = x / 2
        rows.append(x)
    return rows[-1]


def queue(x: Any) -> Any:
    waiting, rounds = deque([0]), 0
    while waiting:
        rounds += 1
        if x[waiting.popleft()] > 0 and rounds < 4:
            waiting.append(rounds)
    return rounds


def heap(x: Any) -> Any:
    waiting: list[Any] = []
    for i in range(4):
        if x[i] > 0:
            heapq.heappush(waiting, i)
    return x[len(waiting) - 1]


def heap_sorted(x: Any) -> Any:
    heap: list[Any] = []
    for value in x:
        heapq.heappush(heap, value)
    return np.array([heapq.heappop(heap) for _ in range(len(x))]), len(heap)


def spanned(x: Any) -> Any:
    """Prim's algorithm, with the condition of a list and of a number."""
    weights = np.abs(np.subtract.outer(x, x * 2)) + 0.5
    seen, total, edges = [False] * len(x), 0.0, 0
    heap = [(0.0, 0)]
    while heap and edges < len(x):
        weight, u = heapq.heappop(heap)
        if seen[u]:
            continue
        seen[u] = True
        total += weight
        edges += 1
        for v in range(len(x)):
            if not seen[v]:
                heapq.heappush(heap, (weights[u, v], v))
    return total, edges


def slices(x: Any) -> Any:
    found, k = [], 0
    while k < 6 and x[0] * k < 9:
        found.append((x[k % 4], k))
        k += 1
    parts = found[1:], found[:-1], found[-2:], found[5:1:-2], found[::-1], found[2:k], found[-k:], found[4:2]
    return [len(p) for p in parts], [sum(v * (n + 1) for n, (v, _) in enumerate(p)) for p in parts[:-1]], parts[3]


def added(x: Any) -> Any:
    low, high = [x[0]], [x[1]]
    while high[-1] < 100 and len(low) < 7:
        low.append(low[-1] - 1)
        high.append(high[-1] * 2 + 3)
    both = low[:-1] + high[1:]
    both += low
    low.append(0.5)
    first = [1.0, *x] + high  # noqa: RUF005
    return np.array(both), np.array(first), np.array(low[-3:]), both[-1], len(both)


def kept_in_order(x: Any) -> Any:
    found, few, places = [], [], []
    for v in x:
        bisect.insort(few, v)
    while len(found) < 6:
        v = x[len(found) % 4] * (len(found) - 2) % 5
        places.append(bisect.bisect(found, v) * 10 + bisect.bisect_left(found, v))
        bisect.insort(found, v)
        bisect.insort_left(few, v)
    return np.array(found), few[:2], places, np.array(few)


def heapified(x: Any) -> Any:
    """A list that becomes a heap, of which the order shows, with several elements that are equal."""
    heap, few = [(v % 3, n) for n, v in enumerate([*x, x[1], x[0], x[3] - 1])], [x[2], x[0], x[1]]
    heapq.heapify(heap)
    heapq.heapify(few)
    second, order = heap[1][1] + few[0], 0
    while heap:
        order = order * 10 + heapq.heappop(heap)[1]
    return second, order, few


def of_selected_elements(x: Any) -> Any:
    """Lists, deques and sets of what a mask selects, and of a computed number of elements."""
    places, queue, total = list(np.flatnonzero(x > 1)), deque(zip(*np.nonzero(x[:, None] > x))), 0
    rows = [tuple(p) for p in np.argwhere(x[:, None] > x)]
    while queue:
        i, j = queue.popleft()
        total = total * 2 + i - j
        if j > 0 and len(rows) < 9:
            rows.append((i, j - 1))
    few = [v * 2 for v in x[x < 2.5]]
    up = [x[i] * i for i in range((x > 1).sum())]
    places.append(7)
    return places, total, rows, len(few), np.array(few).sum(), up, len(set(np.flatnonzero(x < 3)))


def comprehended(x: Any) -> Any:
    found = []
    while x.sum() > 1:
        x = x / 2
        found.append(x[0])
    return [2 * v for v in found], [v + 1 for v in [v for v in x if v > 0.5]]


METHODS = [
    *(
        comprehended,
        heapified,
        of_selected_elements,
        heap_sorted,
        spanned,
        methods,
        members,
        in_branches,
        grows,
        queue,
        heap,
    ),
    *(slices, added, kept_in_order),
]


@pytest.mark.parametrize("program", METHODS)
def test_methods(program: Any) -> None:
    for backend in ("python", "c"):
        jitted = fx.jit(program, backend=backend)
        for scale in (1.0, -1.0, -2.0):
            x = scale * np.arange(1.0, 5)
            if program is grows and scale < 0:
                continue  # it has no last row
            found, expected = jitted(x.copy()), program(x.copy())
            for a, b in zip(flatten(found), flatten(expected), strict=True):
                assert a.dtype == b.dtype
                np.testing.assert_array_equal(a, b)


def counted_up(x: Any, y: Any) -> Any:
    found = []
    y[0] += 1
    while len(found) < x[0]:
        found.append(len(found) * 0.5)
        y[1] += 1
    return found


@pytest.mark.parametrize("backend", ["python", "c"])
def test_more_room_is_made(backend: str) -> None:
    """The call in which a list has too many elements runs again, from the arguments as they were."""
    jitted = fx.jit(counted_up, backend=backend)
    for count in (3, 300, 5):
        y, expected = np.zeros(2), np.zeros(2)
        found = jitted(np.array([float(count)]), y)
        assert found == counted_up(np.array([float(count)]), expected) and list(y) == list(expected)
    assert len(jitted.versions) == 1


def empty(x: Any) -> Any:
    found = []
    while x.sum() > 1:
        x = x / 2
        found.append(x[0])
    return found.pop()


def test_exceptions_are_those_of_the_program() -> None:
    with pytest.raises(IndexError, match="pop from empty list"):
        fx.jit(empty)(np.zeros(2))
    graph = fx.symbolic_trace(counted_up, "f64[1]", "f64[2]")
    with pytest.raises(IndexError):
        graph(np.array([300.0]), np.zeros(2))


# -- what is refused -------------------------------------------------------------------------------
def of_two_shapes(x: Any) -> Any:
    found = [(0, 0)]
    while x.sum() > 1:
        x = x / 2
        found.append((1, 2, 3))
    return found


def of_texts(x: Any) -> Any:
    found = []
    while x.sum() > 1:
        x = x / 2
        found.append("half")
    return len(found)


def written_afterwards(x: Any) -> Any:
    found, y = [], x.copy()
    while y.sum() > 1:
        y /= 2
        found.append(y)
    return found


def deleted_key(x: Any) -> Any:
    found = {"a": 1, "b": 2}
    if x[0] > 0:
        del found["a"]
    return len(found)


def deleted_attribute(x: Any) -> Any:
    class Holder:
        value: float

    holder = Holder()
    holder.value = 2.0
    if x[0] > 0:
        del holder.value
    return x * holder.value


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (of_two_shapes, r"gets elements of several kinds"),
        (of_texts, r"a str is put into a list"),
        (written_afterwards, r"an array into which a loop writes is put into a list|is an element of a list"),
        (deleted_key, r"a dict from outside of a branch is changed by del"),
        (deleted_attribute, r"Holder.value has a value only where it is false"),
    ],
)
def test_refused(program: Any, said: str) -> None:
    with pytest.raises(TraceError, match=rf"(?s){said}.*test_stacks_and_queues.py:\d+.*instead: "):
        fx.jit(program)(floats(3) + 1)


def deleted_items(x: Any) -> Any:
    found, more = [1, 2, 3], [1.0, 2.0, 3.0]
    if x[0] > 0:
        del found[0]
    for i in range(50):
        if x[i % 3] > 0 and len(more) > 1:
            del more[-1]
    return len(found), found[0], sum(more)


def test_del_in_a_branch() -> None:
    for x in (np.arange(1.0, 4), -np.arange(1.0, 4)):
        assert fx.jit(deleted_items)(x) == deleted_items(x)


class Version:
    def __init__(self, major: Any, minor: Any) -> None:
        self.major, self.minor = major, minor

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self.major == other.major and self.minor == other.minor

    def __lt__(self, other: Version) -> bool:
        return self.minor < other.minor if self.major == other.major else self.major < other.major

    __hash__ = None  # type: ignore[assignment]


@dataclasses.dataclass(order=True)
class Rank:
    first: Any
    last: Any
    name: str = dataclasses.field(default="", compare=False)


def compared(x: Any) -> Any:
    one, other = Version(x[0], 2), Version(x[1], x[2])
    low, high = Rank(x[0], 1, "low"), Rank(x[1], x[2], "high")
    pair, more = (x[0], x[1]), (x[1], x[2], 1)
    flags = pair < more, pair <= more, pair == more, pair != (x[0], x[1]), [x[0]] == [x[0]], pair > (x[0], 0.5)
    ranks = low == high, low != high, low < high, low >= high
    return one == other, one != other, one < other, one > other, flags, ranks, 1 if one < other else 2


def test_tuples_and_objects_are_compared() -> None:
    for x in ([1.0, 2.0, 3.0], [1.0, 1.0, 2.0], [2.0, 1.0, 5.0], [1.0, 1.0, 1.0]):
        assert fx.jit(compared)(np.array(x)) == compared(np.array(x))
