"""Programs with control flow on values, as people write them, with arguments."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from typing import Any

import numpy as np


def floats(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def integers(*shape: int, seed: int = 0, most: int = 100) -> Any:
    return np.random.default_rng(seed).integers(0, most, shape)


def bisection(target: Any) -> Any:
    low, high = 0.0, 4.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        if middle * middle > target[0]:
            high = middle
        else:
            low = middle
    return low


def newton(a: Any) -> Any:
    x, steps = a[0], 0
    while abs(x * x - a[0]) > 1e-10 and steps < 50:
        x = (x + a[0] / x) / 2
        steps += 1
    return x, steps


def newton_until_it_is_there(a: Any) -> Any:
    x = np.abs(a) + 1
    while True:
        new = 0.5 * (x + a / x)
        if np.abs(new - x).max() < 1e-9:
            return new
        x = new


def one_of_two_ways_out(x: Any) -> Any:
    count = 0
    while True:
        x = x * 0.5
        count += 1
        if x.sum() < 1:
            return x, count
        if count > 3:
            return x * 2, -count


def left_by_an_outer_jump(x: Any) -> Any:
    total = 0.0
    for i in range(3):
        y = x[i]
        while True:
            y = y / 2
            if y < 0.3:
                return total + 100
            if y < 1:
                break
        total = total + y
    return total


def statements_that_nothing_reaches(x: Any) -> Any:
    while 1:
        x = x - 1
        if x[0] < 0:
            return x
    return x * 1000


def collatz(start: Any) -> Any:
    n, count = int(start[0]), 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        count += 1
    return count


def gcd(pair: Any) -> Any:
    a, b = pair[0], pair[1]
    while b:
        a, b = b, a % b
    return a


def insertion_sort(values: Any) -> Any:
    for i in range(1, len(values)):
        key, j = values[i], i - 1
        while j >= 0 and values[j] > key:
            values[j + 1] = values[j]
            j -= 1
        values[j + 1] = key
    return values


def bubble_sort(values: Any) -> Any:
    values = values.copy()
    for i in range(len(values)):
        swapped = False
        for j in range(len(values) - 1 - i):
            if values[j] > values[j + 1]:
                t = values[j]
                values[j] = values[j + 1]
                values[j + 1] = t
                swapped = True
        if not swapped:
            break
    return values


def life(board: Any) -> Any:
    rows, columns = board.shape
    out = np.zeros_like(board)
    for i in range(rows):
        for j in range(columns):
            count = 0
            for di in (-1, 0, 1):
                for dj in (-1, 0, 1):
                    if di or dj:
                        count += board[(i + di) % rows, (j + dj) % columns]
            if (board[i, j] and 2 <= count <= 3) or (not board[i, j] and count == 3):
                out[i, j] = 1
    return out


def masked_filter(image: Any, mask: Any) -> Any:
    rows, columns = image.shape
    out = np.zeros_like(image)
    for i in range(1, rows - 1):
        for j in range(1, columns - 1):
            if not mask[i, j]:
                out[i, j] = image[i, j]
                continue
            total, weight = 0.0, 0
            for k in range(-1, 2):
                for m in range(-1, 2):
                    if mask[i + k, j + m]:
                        total += image[i + k, j + m]
                        weight += 1
            out[i, j] = total / weight
    return out


def viterbi(start: Any, move: Any, emit: Any, seen: Any) -> Any:
    steps, states = len(seen), len(start)
    best = np.zeros((steps, states))
    back = np.zeros((steps, states), np.int64)
    best[0] = start + emit[:, seen[0]]
    for t in range(1, steps):
        for s in range(states):
            top, where = -math.inf, 0
            for p in range(states):
                score = best[t - 1, p] + move[p, s]
                if score > top:
                    top, where = score, p
            best[t, s] = top + emit[s, seen[t]]
            back[t, s] = where
    path = np.zeros(steps, np.int64)
    path[-1] = best[-1].argmax()
    for t in range(steps - 2, -1, -1):
        path[t] = back[t + 1, path[t + 1]]
    return path


def first_above(values: Any, limit: Any) -> Any:
    for i in range(len(values)):
        if values[i] > limit[0]:
            return i
    return -1


def binary_search(values: Any, wanted: Any) -> Any:
    low, high = 0, len(values) - 1
    while low <= high:
        middle = (low + high) // 2
        if values[middle] == wanted[0]:
            return middle
        if values[middle] < wanted[0]:
            low = middle + 1
        else:
            high = middle - 1
    return -1


def k_means(points: Any, centers: Any) -> Any:
    moved, rounds = 1.0, 0
    while moved > 1e-6 and rounds < 20:
        distances = ((points[:, None, :] - centers[None, :, :]) ** 2).sum(axis=2)
        nearest = distances.argmin(axis=1)
        new = np.zeros_like(centers)
        for c in range(len(centers)):
            mine = nearest == c
            count = mine.sum()
            if count > 0:
                new[c] = (points * mine[:, None]).sum(axis=0) / count
            else:
                new[c] = centers[c]
        moved = np.abs(new - centers).max()
        centers = new
        rounds += 1
    return centers, rounds


def power_iteration(matrix: Any) -> Any:
    x = np.ones(len(matrix))
    value = 0.0
    for _ in range(100):
        y = matrix @ x
        new = np.sqrt((y * y).sum())
        x = y / new
        if abs(new - value) < 1e-12:
            break
        value = new
    return value, x


def prefix_until_negative(values: Any) -> Any:
    total = 0.0
    for v in values:
        if v < 0:
            break
        total += v
    else:
        total += 1000
    return total


def counts(values: Any) -> Any:
    bins = np.zeros(4, np.int64)
    for v in values:
        if v < 25:
            bins[0] += 1
        elif v < 50:
            bins[1] += 1
        elif v < 75:
            bins[2] += 1
        else:
            bins[3] += 1
    return bins


def sieve(n: Any) -> Any:
    prime = np.ones(30, dtype=bool)
    prime[0] = prime[1] = False
    i = 2
    while i * i < 30:
        if prime[i]:
            j = i * i
            while j < 30:
                prime[j] = False
                j += i
        i += 1
    return prime, n + 1


def edit_distance(a: Any, b: Any) -> Any:
    table = np.zeros((len(a) + 1, len(b) + 1), np.int64)
    for i in range(len(a) + 1):
        table[i, 0] = i
    for j in range(len(b) + 1):
        table[0, j] = j
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            cost = 0 if a[i - 1] == b[j - 1] else 1
            table[i, j] = min(table[i - 1, j] + 1, table[i, j - 1] + 1, table[i - 1, j - 1] + cost)
    return table[len(a), len(b)]


def clamp(x: Any) -> Any:
    return x if 0 < x.sum() < 10 else (x * 0 if x.sum() <= 0 else x / x.sum())


def sign_of(x: Any) -> Any:
    if x[0] > 0:
        return 1
    elif x[0] < 0:
        return -1
    return 0


def helper_with_branches(v: Any, low: Any = 0.0, *, high: Any = 1.0) -> Any:
    if v < low:
        return low
    if v > high:
        return high
    return v


def calls_helpers(x: Any) -> Any:
    return np.float32([helper_with_branches(v) for v in x]) + helper_with_branches(x[1], high=0.25)


def closures(x: Any) -> Any:
    count = 0

    def visit(v: Any) -> None:
        nonlocal count
        if v > 0:
            count += 1

    for v in x:
        visit(v)
    return count


def views_in_branches(x: Any) -> Any:
    head, tail = x[:2], x[2:]
    if x.sum() > 0:
        head += 10
    else:
        tail[:] = 0
    return x, head, tail


def aliases(x: Any) -> Any:
    y = x
    if x[0] > 0:
        y = x * 2
    return y + 1


def relax(grid: Any) -> Any:
    change, rounds = 1.0, 0
    while change > 1e-3:
        old = grid.copy()
        grid[1:-1] = (old[:-2] + old[2:]) / 2
        change = np.abs(grid - old).max()
        rounds += 1
    return rounds


def double_buffer(x: Any) -> Any:
    old, new = x.copy(), x.copy()
    for _ in range(20):
        new[1:-1] = 0.5 * (old[:-2] + old[2:])
        old, new = new, old
        if np.abs(old - new).max() < 0.05:
            break
    return old


def mandelbrot_point(c: Any) -> Any:
    zr = zi = 0.0
    n = 0
    while n < 50 and zr * zr + zi * zi <= 4.0:
        zr, zi = zr * zr - zi * zi + c[0], 2 * zr * zi + c[1]
        n += 1
    return n


def horner(x: Any, coefficients: Any) -> Any:
    total = 0
    for c in coefficients[::-1]:
        total = total * x + c
    return total


def pairs(a: Any, b: Any) -> Any:
    best, at = -1.0, -1
    for i, (p, q) in enumerate(zip(a, b)):
        d = abs(p - q)
        if d > best:
            best, at = d, i
    return best, at


def countdown(n: Any) -> Any:
    total = 0
    for i in range(int(n[0]), 0, -2):
        total += i
    return total


def steps_to(n: Any, out: Any) -> Any:
    for i in range(n[0]):
        out[i] = i * i
    return out


def nested_returns(x: Any) -> Any:
    for i in range(len(x)):
        for j in range(i + 1, len(x)):
            if x[i] + x[j] == 0:
                return i, j
    return -1, -1


def and_or(x: Any) -> Any:
    y = 0
    if (x[0] > 0 and x[1] > 0) or not x[2] > 0:
        y += 1
    if x[0] > 0 or (x[1] > 0 and x[2] > 0):
        y += 2
    return y


def collected(x: Any) -> Any:
    parts = []
    for i in range(3):
        if x[i] > 0:
            v = x[i] * 2
        else:
            v = x[i]
        parts.append(v)
    return np.stack(parts)


def state_in_dict(x: Any) -> Any:
    state = {"sum": 0.0, "n": 0, "pair": (0.0, 1)}
    for v in x:
        if v > 0:
            state["sum"] += v
            state["n"] += 1
            state["pair"] = (v, state["n"])
    return state["sum"], state["n"], state["pair"]


def tree_reduce(x: Any) -> Any:
    n = len(x)
    work = x.copy()
    step = 1
    while step < n:
        for i in range(0, n - step, 2 * step):
            work[i] += work[i + step]
        step *= 2
    return work[0]


def fibonacci(n: Any) -> Any:
    a, b = 0, 1
    for _ in range(n[0]):
        a, b = b, a + b
    return a


def matrix_walk(m: Any) -> Any:
    i = j = 0
    total = m[0, 0]
    while i < 3 and j < 3:
        if m[i + 1, j] > m[i, j + 1]:
            i += 1
        else:
            j += 1
        total = total + m[i, j]
    return total, i, j


def last_value_behind(x: Any) -> Any:
    for i in range(4):
        y = x[i] * 2
        if y > 3:
            break
    return i, y


def while_else(x: Any) -> Any:
    i = 0
    while i < 3:
        if x[i] > 100:
            break
        i += 1
    else:
        i = -5
    return i


def largest_distance_to_a_set(x: Any, y: Any) -> Any:
    """Hausdorff's distance, which leaves the inner loop early; only its ``else`` binds the result."""
    largest = 0.0
    for i in range(len(x)):
        least = np.inf
        for j in range(len(y)):
            distance = abs(x[i] - y[j])
            if distance < largest:
                break
            least = min(least, distance)
        else:
            largest = max(largest, least)
    return largest


def binds_in_the_else_of_while(x: Any) -> Any:
    i, found = 0, x[1]
    while i < 3:
        if x[i] > 5:
            break
        i += 1
    else:
        found = x[0] * 2
    return found, i


def running_maximum(x: Any) -> Any:
    out = np.empty_like(x)
    top = x[0]
    for i, v in enumerate(x):
        top = max(top, v)
        out[i] = top
    return out


def histogram_of_bytes(data: Any) -> Any:
    crc = 0xFFFF
    for b in data:
        current = 0xFF & b
        for _ in range(8):
            if (crc & 1) ^ (current & 1):
                crc = (crc >> 1) ^ 0x8408
            else:
                crc >>= 1
            current >>= 1
    return crc & 0xFFFF


def positive(x: Any) -> Any:
    assert x.min() > 0, "numbers are positive"
    return x


def asserts(x: Any) -> Any:
    assert np.all(x < 3), "too large"
    total = 0.0
    for i in range(len(x)):
        assert x[i] >= 0, "negative"
        if x[i] > 1:
            assert x[i] != 2
            total += np.sqrt(x[i])
    return total


def catches_an_assert(x: Any) -> Any:
    try:
        assert x[0] > 0
    except AssertionError:
        return x * 0
    return x * 2


def settles_in_a_while_loop(a: Any, v: Any) -> Any:
    converged, rounds = False, 0
    while not converged:
        w = a @ v  # of integers in the first round
        v = w / np.sqrt((w * w).sum())
        rounds += 1
        converged = np.abs(a @ v - (v @ a @ v) * v).max() < 1e-9 or rounds >= 90
    return v, rounds


def settles_in_a_for_loop(x: Any, limit: Any) -> Any:
    total, state = 0, ()
    for i in range(len(x)):
        total = total + x[i] * np.ones(3)
        state = (x[i], 2 * x[i]) if len(state) == 0 else (state[0] + x[i], state[1] * x[i])
        if total.sum() > limit[0]:
            break
    else:
        total = total * 10
    return total, state, i


def matched(x: Any) -> Any:
    out = np.zeros_like(x)
    for i in range(len(x)):
        match int(x[i]) % 4:
            case 0:
                out[i] = 1
            case 1 | 2 if x[i] > 5:
                continue
            case 3:
                return out
            case other:
                out[i] = 2 * x[i] + other
    return out


def matched_in_parts(x: Any) -> Any:
    out = np.zeros_like(x)
    for i, v in enumerate(x):
        match v % 3, v % 5:
            case 0, 0:
                out[i] = 15
            case 0, _:
                out[i] = 3
            case (1, k) if k > 2:
                out[i] = -k
            case _, (0 | 1) as k:
                out[i] = 5 + k
            case _:
                out[i] = v
        match out[i]:
            case 3 | 5 as k:
                out[i] += k
            case n if n > 12:
                out[i] -= n
            case n:
                out[i] += n * 100
    return out


def names_bound_in_conditions(x: Any) -> Any:
    """``:=`` behind ``and`` and ``or``, where Python may not come to it."""
    n = m = i = total = 0
    for v in x:
        if v > 1 and (s := v * 2) < 9:
            n += s
        elif v == 0 or (t := v + n) > 12:
            m += v
        else:
            m += t
    while i < len(x) and (new := total + x[i]) < 12 and i < 7:
        total, i = new, i + 1
    else:
        i += 100
    return n, m, total, i


def left_without_a_value(x: Any) -> Any:
    """``return`` in a loop of a function that is called for what it writes."""

    def sift(x: Any, k: Any) -> None:
        while k + 1 < len(x):
            if x[k] <= x[k + 1]:
                return
            x[k], x[k + 1] = x[k + 1], x[k]
            k += 1

    def first(x: Any) -> None:
        for i in range(len(x)):
            if x[i] > 4:
                x[i] = 0
                return
        x[0] = 5

    x = x.copy()
    for start in range(len(x) - 2, -1, -1):
        sift(x, start)
    first(x)
    first(x)
    return x


#: name -> (program, sets of arguments)
def fourier_sums(x: Any) -> Any:
    out = np.zeros(len(x), dtype=complex)
    for k in range(len(x)):
        total = 0j
        for t in range(len(x)):
            total += x[t] * cmath.exp(-2j * cmath.pi * k * t / len(x))
        out[k] = total
    return out


def escape_times(x: Any, y: Any) -> Any:
    out = np.zeros((len(x), len(y)), dtype=int)
    for i in range(len(x)):
        for j in range(len(y)):
            z, c, steps = 0, complex(x[i], y[j]), 0
            while abs(z) <= 2 and steps < 20:
                z, steps = z * z + c, steps + 1
            out[i, j] = steps
    return out


def roots_of_either_kind(p: Any) -> Any:
    square = p[0] * p[0] - 4 * p[1]
    root = complex(0, math.sqrt(-square)) if square < 0 else complex(math.sqrt(square))
    z = (-p[0] + root) / 2
    return z, z.real, z.imag, z.conjugate(), cmath.phase(z), cmath.sqrt(square)


def folded_comprehensions(x: Any) -> Any:
    squares = sum(a * a for a in x), sum([a for a in x if a > 0]), sum(i * a for i, a in enumerate(x))
    rises = any(a > 2 for a in x if a < 3), all(x[i] < x[i + 1] + 9 for i in range(len(x) - 1))
    return squares, rises, sum(1 for a, b in zip(x, x[::-1]) if a < b)


def sorted_until_nothing_moves(x: Any) -> Any:
    x, moved = x.copy(), True

    def once(first: int) -> bool:
        swapped = False
        for i in range(first, len(x) - 1, 2):
            if x[i] > x[i + 1]:
                x[i], x[i + 1], swapped = x[i + 1], x[i], True
        return swapped

    while moved is True:
        even, odd = once(0), once(1)
        moved = even or odd
    return x


def primes_below(n: Any) -> Any:
    return sum(i for i in range(2, n[0]) if all(i % j for j in range(2, i))), any(i > 20 for i in range(n[0]))


def heap_sort(x: Any) -> Any:
    """Whose inner condition doubles an integer of Python that the loop carries."""
    x = x.copy()
    for end in range(len(x) - 1, 0, -1):
        for top in range((end - 1) // 2, -1, -1):
            at = top
            while 2 * at + 1 <= end:
                child = 2 * at + 1
                if child + 1 <= end and x[child] < x[child + 1]:
                    child += 1
                if x[at] >= x[child]:
                    break
                x[at], x[child], at = x[child], x[at], child
        x[0], x[end] = x[end], x[0]
    return x


def written_or_bound_anew(x: Any) -> Any:
    """An array that one way writes into, and that another one gives to a name."""
    a, b = x * 2, x * 3
    before, v, parts = a, b[2:], {"a": x * 5}
    if x[0] > 0:
        a[0], parts["a"][0] = 5, 3
    else:
        a, parts["a"] = a * 2, x + 1
    if x[1] > 0:
        v[0], y = 100, b
    else:
        b[3], y = 7, x
    return a, before, b.copy(), v.copy(), y, parts["a"]


def handed_on_as_a_round_leaves_it(x: Any) -> Any:
    """An array that rounds write into, and that has another name behind them."""
    a, c = x * 2, x * 4
    whole, part = a, a[1:]
    for i in range(20):
        a[i % 4] += i
        whole, part = a, a[:3]
        if c[i % 4] > 3:
            c[i % 4] -= 1
            continue
        c = c + 1
    return whole.sum(), part.copy(), c


def stores_from_left_to_right(x: Any) -> Any:
    """What is on the right is computed first, and names are bound no earlier than Python binds them."""
    x, k = x.copy(), 0

    def pushed() -> Any:
        nonlocal k
        k += 1
        return x[k] * 2

    x[k] = pushed()
    x[k] = pushed()
    if x[0] > 0:
        x[k], k = x[0], 4
    k, x[k] = 3, 9
    (k, x[k]), j, *x[1:2] = (0, 77), 4, k
    for x[j], j in ((1, 2), (3, 4)):
        x[j] -= 1
    return x, k, j


def condition_that_writes(x: Any) -> Any:
    """The condition of a loop may change an array and bind names that are read behind the loop."""
    x, total = x.copy(), x[0] * 0

    def stepped() -> bool:
        x[1] += 1
        return bool(x[1] < x[0])

    while stepped():
        total += x[1]
    i = 0
    while (rest := x[0] - total) > 0 and i < 3:
        total += rest // 2
        i += 1
    for i in range(12):
        if (last := x[i % 2]) > 2:
            total += last
    return x, total, rest, last


PROGRAMS: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]]]] = {
    f.__name__: (f, given)
    for f, given in [
        (bisection, [(np.array([2.0]),), (np.array([9.0]),)]),
        (newton, [(np.array([2.0]),), (np.array([0.0]),)]),
        (collatz, [(np.array([27]),), (np.array([1]),)]),
        (gcd, [(np.array([12, 18]),), (np.array([7, 0]),)]),
        (insertion_sort, [(floats(6),), (floats(6)[::-1].copy(),)]),
        (bubble_sort, [(floats(6),), (np.arange(6.0, dtype=np.float32),)]),
        (life, [(integers(4, 5, most=2),)]),
        (masked_filter, [(floats(5, 6), integers(5, 6, most=2).astype(bool))]),
        (viterbi, [(floats(3), floats(3, 3, seed=1), floats(3, 4, seed=2), integers(5, most=4))]),
        (first_above, [(floats(6), np.float32([0.5])), (floats(6), np.float32([9]))]),
        (binary_search, [(np.arange(0, 20, 2), np.array([v])) for v in (6, 7, 18, -1)]),
        (k_means, [(floats(12, 2), floats(3, 2, seed=4))]),
        (power_iteration, [(np.eye(3) + np.ones((3, 3)),)]),
        (prefix_until_negative, [(np.float32([1, 2, -1, 4]),), (np.float32([1, 2, 3, 4]),)]),
        (counts, [(integers(10),)]),
        (sieve, [(np.array([1]),)]),
        (edit_distance, [(integers(4, most=3), integers(5, most=3, seed=1))]),
        (clamp, [(np.float32([1, 2]),), (np.float32([-1, -2]),), (np.float32([10, 20]),)]),
        (sign_of, [(np.float32([v]),) for v in (3, -3, 0)]),
        (calls_helpers, [(np.float32([0.5, 2, -1]),), (np.float32([0.5, 0.1, -1]),)]),
        (closures, [(floats(5),)]),
        (views_in_branches, [(np.float32([1, 2, 3, 4]),), (np.float32([-1, -2, 3, -4]),)]),
        (aliases, [(np.float32([1, 2]),), (np.float32([-1, 2]),)]),
        (relax, [(np.float32([0, 1, 5, 2, 0]),)]),
        (double_buffer, [(np.float32([0, 1, 5, 2, 0]),)]),
        (mandelbrot_point, [(np.array([0.1, 0.2]),), (np.array([1.0, 1.0]),)]),
        (horner, [(floats(3), np.float32([1, 2, 3]))]),
        (pairs, [(floats(5), floats(5, seed=3))]),
        (countdown, [(np.array([7]),), (np.array([0]),)]),
        (steps_to, [(np.array([3]), np.zeros(5)), (np.array([0]), np.zeros(5))]),
        (nested_returns, [(np.float32([3, 1, -1, 2]),), (np.float32([3, 1, 1, 2]),)]),
        (and_or, [(np.float32(v),) for v in ([1, 1, 1], [-1, 1, 1], [-1, -1, -1], [1, -1, 1])]),
        (collected, [(floats(3),)]),
        (state_in_dict, [(floats(5),)]),
        (tree_reduce, [(np.arange(7.0, dtype=np.float32),)]),
        (fibonacci, [(np.array([10]),), (np.array([0]),)]),
        (matrix_walk, [(floats(5, 5),)]),
        (last_value_behind, [(np.float32([1, 2, 3, 4]),), (np.float32([0, 1, 1, 1]),)]),
        (while_else, [(np.float32([1, 2, 3]),), (np.float32([1, 200, 3]),)]),
        (largest_distance_to_a_set, [(np.float64([1, 5, 2]), np.float64([1.5, 4])), (floats(3), floats(4, seed=2))]),
        (binds_in_the_else_of_while, [(np.float32([1, 2, 3]),), (np.float32([1, 9, 3]),)]),
        (running_maximum, [(floats(5),)]),
        (newton_until_it_is_there, [(np.float64([2, 3, 0.5]),), (np.float64([1, 1, 1]),)]),
        (one_of_two_ways_out, [(np.float32([4, 3, 1]),), (np.float32([900, 3, 1]),), (np.float32([0, 0, 0]),)]),
        (left_by_an_outer_jump, [(np.float32([4, 3, 6]),), (np.float32([1, 3, 0.5]),)]),
        (statements_that_nothing_reaches, [(np.float32([4, 3]),), (np.float32([0, 3]),)]),
        (settles_in_a_while_loop, [(np.eye(3, dtype=int) * 2 + 1, np.arange(3))]),
        (settles_in_a_for_loop, [(floats(40) ** 2, np.array([v])) for v in (9.0, 1e9, 1e-9)]),
        (matched, [(np.array([4.0, 9, 1, 8]),), (np.array([4.0, 7, 1]),)]),
        (matched_in_parts, [(np.array([0, 30, 7, 3, 4, 10, 14, 13, 5, 16]),)]),
        (names_bound_in_conditions, [(np.array(v),) for v in ([2, 0, 5, 1, 4, 9, 3], [1, 1, 2], [7, 7, 1, 0])]),
        (left_without_a_value, [(np.array(v),) for v in ([9, 3, 7, 1, 5], [1, 2, 3], [2, 1])]),
        (fourier_sums, [(np.float64([1, -2, 3, 0.5]),)]),
        (escape_times, [(np.float64([-1, 0.1, 0.3]), np.float64([0.2, 1]))]),
        (roots_of_either_kind, [(np.float64([1, 5]),), (np.float64([1, -5]),)]),
        (folded_comprehensions, [(floats(6),), (np.float64([1, 2.5, -3]),)]),
        (sorted_until_nothing_moves, [(np.array([5, 4, 3, 2, 1]),)]),
        (heap_sort, [(floats(9),), (floats(2),)]),
        (
            written_or_bound_anew,
            [(np.array(v),) for v in ([1, 2, 3, 4], [-1, -2, 3, 4], [1, -2, -3, 4], [-1, 1, -1, 1])],
        ),
        (handed_on_as_a_round_leaves_it, [(np.array([1, 2, 3, 4]),), (np.array([-1, 1, -1, 1]),)]),
        (stores_from_left_to_right, [(np.array([3, 1, 2, 5, 4]),), (np.array([3, -1, 2, 5, 4]),)]),
        (condition_that_writes, [(np.array([7, 2]),), (np.array([1, 2]),)]),
        (primes_below, [(np.array([v]),) for v in (0, 3, 23)]),
        (histogram_of_bytes, [(integers(5, most=256).astype(np.uint8),)]),
    ]
}
