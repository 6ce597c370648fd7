"""NumPy programs with what Python itself has for numbers: ``sorted``, ``map``, ``math``, ``copy``, lists of an array's
elements. A jitted function gives what the function gives, down to the type of a number."""

from __future__ import annotations

import bisect
import copy
import decimal
import functools
import itertools
import math
import statistics
from typing import Any, NamedTuple

import numpy as np
import pytest

import fxlite as fx
from tests.core.control_programs import asserts, catches_an_assert  # pytest changes those of this file
from tests.core.test_programs_people_write import check, copied, floats, integers, same
from tests.oracle import agree

SETS = ((floats(5),), (floats(8, seed=1),))


# -- order -----------------------------------------------------------------------------------------
def in_order(x: Any) -> Any:
    return sorted(x), sorted(x, reverse=True)[:2], sorted(x.tolist())[0]


def by_a_key(x: Any) -> Any:
    best = sorted(range(len(x)), key=lambda i: -x[i])
    return best, x[best[0]], sorted(zip(x, x * 2), key=lambda pair: pair[1])[0]


def of_equal_keys(x: Any) -> Any:
    pairs = [(v > 0.5, i) for i, v in enumerate(x)]
    return sorted(pairs, key=lambda p: p[0]), sorted(pairs, key=lambda p: p[0], reverse=True), sorted(pairs)


def extremes_by_a_key(x: Any) -> Any:
    near = min(x, key=lambda v: abs(v - 0.5))
    return max(range(len(x)), key=x.__getitem__), near, max(zip(x, range(len(x)))), max([], default=0)


def rows_in_order(x: Any) -> Any:
    points = np.stack([np.round(x), x], axis=1)
    return np.array(sorted(map(tuple, points))), sorted(points, key=lambda p: p[1])[0]


@pytest.mark.parametrize("program", [in_order, by_a_key, of_equal_keys, extremes_by_a_key, rows_in_order])
def test_sorted_min_and_max(program: Any) -> None:
    check(program, *SETS, versions=2)


# -- functions that Python calls -------------------------------------------------------------------
def doubled(value: Any) -> Any:
    return value * 2 if value > 0.5 else 0.0


def called_by_python(x: Any) -> Any:
    a, b = map(np.array, (x, x[::-1]))
    a[0] = b[1]
    halves = list(map(functools.partial(doubled), x))
    total = functools.reduce(max, x), list(itertools.accumulate(x, max)), list(map(float, x[:2]))
    return a, b, halves, total, list(itertools.starmap(pow, [(x[0], 2)])), sum(map(doubled, x))


def test_functions_that_python_calls() -> None:
    check(called_by_python, *SETS, versions=2)


# -- math and copy ---------------------------------------------------------------------------------
def of_math(x: Any) -> Any:
    v, n = x[0], int(x[1] * 100)
    return (
        (math.degrees(v), math.radians(v), math.erf(v), math.cbrt(v), math.dist((v, 1.0), (x[1], x[2]))),
        (math.gcd(n, 12), math.lcm(n, 4), math.isqrt(n), math.modf(v * 3)),
        (math.isclose(v, v + 1e-12), math.isclose(v, v + 1e-3), math.isclose(v, v + 1e-3, rel_tol=0.1)),
    )


def copies(x: Any) -> Any:
    y, z = copy.deepcopy(x), copy.copy(x)
    y[0], z[1] = 1, 2
    return y, z, copy.deepcopy([x, x[0]])


@pytest.mark.parametrize("program", [of_math, copies])
def test_math_and_copy(program: Any) -> None:
    check(program, *SETS, versions=None)


def special_functions(x: Any) -> Any:
    given = [(math.erfc(v), math.gamma(v), math.lgamma(v), math.exp2(v)) for v in x]
    return given, [(math.remainder(v, 0.75), math.ulp(v), math.nextafter(v, 3.0), math.hypot(v, 2, 1)) for v in x]


def test_special_functions_of_math() -> None:
    x = np.array([-3.25, -0.5, -1e-5, 1e-8, 0.3, 1, 1.5, 2, 5, 10, 19.5, 22, 100.25, 170.5])
    found, expected = fx.jit(special_functions)(x), special_functions(x)
    assert np.allclose(np.ravel(found[0]), np.ravel(expected[0]), rtol=2e-13, atol=0)
    assert np.allclose(np.ravel(found[1]), np.ravel(expected[1]), rtol=1e-15, atol=0)
    whole = np.arange(1.0, 60)
    assert fx.jit(lambda x: [math.gamma(v) for v in x])(whole) == [math.gamma(v) for v in whole]


def test_math_on_whole_roots() -> None:
    roots = fx.jit(lambda n: [math.isqrt(v) for v in n])
    for base in (1, 3, 94906265, 3037000499):
        n = np.array([base * base - 1, base * base, base * base + 1])
        assert roots(n) == [math.isqrt(int(v)) for v in n]


def test_what_cannot_be_computed_of_traced_values_says_so() -> None:
    with pytest.raises(fx.errors.TraceError, match=r"(?s)statistics.mean\(\) needs values.*of_python.py:\d+"):
        fx.jit(lambda x: statistics.mean(x))(floats(4))


def prints(x: Any) -> Any:
    y = x.sum()
    print(f"sum {y:.3f}", y)
    return x * 2


def test_print_warns(capsys: Any) -> None:
    with pytest.warns(
        UserWarning, match=r"print\(\) runs once, while the program is traced, and shows no values"
    ) as said:
        fx.jit(prints)(floats(4))
    assert {warning.filename for warning in said} == {__file__}
    assert "sum" in capsys.readouterr().out


# -- what the results are --------------------------------------------------------------------------
class Found(NamedTuple):
    place: int
    value: float


def results_of_all_kinds(x: Any) -> Any:
    best, place = 0.0, -1
    for i, v in enumerate(x):
        if v > best:
            best, place = v, i
    inside = 0.5 in x
    numbers = {"sum": x.sum(), "n": len(x), "half": len(x) / 2, "count": int((x > 0.5).sum()), "none": None}
    return Found(place, float(best)), best, numbers, [x.mean(), inside, not x[0] > 2], np.zeros(()), x


def types_of(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: types_of(part) for key, part in value.items()}
    return [types_of(part) for part in value] if isinstance(value, (list, tuple)) else type(value)


@pytest.mark.parametrize("backend", ["python", "c"])
def test_numbers_are_numbers(backend: str) -> None:
    for dynamic in (True, False):
        jitted = fx.jit(results_of_all_kinds, backend=backend, dynamic=dynamic)
        for size in (5, 8):
            mine, eager = jitted(floats(size)), results_of_all_kinds(floats(size))
            assert type(mine) is type(eager) and type(mine[0]) is Found
            assert types_of(mine) == types_of(eager)
    assert type(fx.jit(np.sum)(integers(4))) is np.int64


# -- arguments of rank 0 ---------------------------------------------------------------------------
def adds_to_a_number(x: Any, b: Any, n: Any) -> Any:
    before = b
    if x[0] > 0.5:
        b += 1
        n -= 1
    for v in x:
        b += v
    return b, n, before


def adds_in_a_while_loop(x: Any, b: Any, n: Any) -> Any:
    i, own = 0, np.zeros(())
    other = own
    while i < len(x) and x[i] < 0.9:
        b += x[i]
        own += 1
        i += 1
    if x[0] > 0:
        n += 1
    return other


@pytest.mark.parametrize("program", [adds_to_a_number, adds_in_a_while_loop])
def test_arguments_of_rank_0_are_numbers_or_arrays(program: Any) -> None:
    numbers = [(floats(40), np.float64(2), np.int64(3)), (floats(50), np.float64(3), np.int64(4))]
    arrays = [(x, np.array(b), np.array(n)) for x, b, n in numbers]
    for sets in (numbers, arrays):
        check(program, *sets, versions=None)
    jitted = fx.jit(program)
    for given in (*numbers, *arrays):
        mine, eager = copied(given), copied(given)
        assert types_of(jitted(*mine)) == types_of(program(*eager))
        same(mine, eager)


# -- objects ---------------------------------------------------------------------------------------
class Means:
    def __init__(self, k: int) -> None:
        self.k = k
        self.centers = self.labels = None

    def fit(self, x: Any) -> Means:
        self.centers = x[: self.k].copy()
        for _ in range(10):
            distances = np.sqrt(((x[:, None] - self.centers[None]) ** 2).sum(-1))
            self.labels = distances.argmin(1)
            new = np.array([x[self.labels == j].mean(axis=0) for j in range(self.k)])
            if np.allclose(new, self.centers):
                break
            self.centers = new
        return self


def attributes_that_are_none_at_first(x: Any) -> Any:
    found = Means(3).fit(x)
    return found.centers, found.labels


def test_attributes_that_each_round_sets_anew() -> None:
    check(attributes_that_are_none_at_first, (floats(20, 2),), (floats(30, 2),), versions=None)


class Box:
    limit = 0.5

    def __init__(self, values: Any, scale: float = 2.0) -> None:
        self.values, self._scale = values, scale
        self.__hidden = scale

    @property
    def area(self) -> Any:
        parts = np.zeros(2)
        for i in range(2):
            parts[i] = self.values[i] * self.scale if self.values[i] > self.limit else 0
        return parts.sum()

    @property
    def scale(self) -> float:
        return self._scale + self.__hidden

    @scale.setter
    def scale(self, value: float) -> None:
        self._scale = value * 2

    def __call__(self, y: Any) -> Any:
        if y.sum() > 1:
            return self.values * y
        return self.values - y


def properties_and_calls(x: Any) -> Any:
    box = Box(x)
    area = box.area
    box.scale = 1.5
    return area, box.area, box(x), box(-x), box.scale


def test_properties_and_calls_of_objects() -> None:
    check(properties_and_calls, *SETS, versions=None)


class Span:
    """An object that decides what is in it and what it equals, and that has no hash."""

    def __init__(self, low: Any, high: Any) -> None:
        self.low, self.high = low, high

    def __contains__(self, value: Any) -> Any:
        if value < self.low:
            return False
        return value < self.high

    def __iter__(self) -> Any:
        return iter((self.low, self.high))

    def __eq__(self, other: Any) -> Any:
        return (self.low == other.low) & (self.high == other.high)

    def __call__(self, value: Any) -> Any:
        return value - self.low if value > self.low else value


def own_comparisons(x: Any) -> Any:
    one, other = Span(x[0], x[1] + 1), Span(0.25, 0.75)
    total = 0
    for value in x:
        if value in one and value not in other:
            total += value
    return total, 0.5 in one, one == other, one(x[2]), one in [one], [*one]


def ordered_by_names(x: Any) -> Any:
    """Tuples whose first parts are different and known."""
    found = dict(zip("cab", x))
    pairs = [(2, x[0]), (1, x[1])]
    by_name = [value for _, value in sorted(found.items(), reverse=True)]
    return by_name, max(pairs), min(found.items())[1], sorted(pairs, key=lambda p: (p[0], -p[1]))


class Ring:
    """A grid whose rows go round, with a number of entries and a truth of its own."""

    def __init__(self, cells: Any) -> None:
        self.cells, self.count = cells, 0

    def __getitem__(self, place: Any) -> Any:
        i = place
        if i > 2:
            i -= 3
        return self.cells[i]

    def __setitem__(self, place: Any, value: Any) -> None:
        if value > 0.5:
            self.cells[place] = value
            self.count += 1

    def __len__(self) -> Any:
        return self.count if self.count < 2 else 2

    def __bool__(self) -> bool:
        return self.count > 1


def own_items(x: Any) -> Any:
    ring = Ring(x.copy())
    before = 1 if ring else 0
    for i in range(3):
        ring[i] = ring[i + int(x[0] > 0.5) * 2] + 0.25
        ring[i] *= 1.5
    return ring.cells, len(ring) + 1, before, 5 if ring else 6, bool(ring)


@pytest.mark.parametrize("program", [own_comparisons, ordered_by_names, own_items], ids=lambda p: p.__name__)
def test_what_is_compared(program: Any) -> None:
    check(program, *SETS, versions=None)


# -- what is selected ------------------------------------------------------------------------------
def by_positions_of_a_mask(x: Any) -> Any:
    places = np.where(x > 0.5)
    doubled = x[places] * 2
    x[x < 0.1] += 5
    return x[places], doubled, x[places].sum(), x[np.nonzero(x > 0.3)].mean()


def written_copies(x: Any) -> Any:
    y = x[x > 0.3]
    y[0] = 9
    y *= 2
    y[-1] = 7
    y[y > 8] = 1
    return y, x


def counted_in_bins(x: Any) -> Any:
    found = np.histogram(x[x > 0.3], bins=4, range=(0, 1)), np.histogram(x[x > 0.2], bins=np.array([0, 0.5, 1]))
    return found, np.histogram(x[x > 0.3], bins=3)


def odd_spellings(x: Any) -> Any:
    products = np.einsum(x, [0, 1], x, [2, 1], [0, 2]), np.einsum(x, [0, 1]), np.einsum(x, [0, ...])
    known = np.fromiter([1, 2], dtype=int), x[True], x[False], x[0][True]
    return products, known, np.fromiter((v * v for v in x[0]), float), np.fromiter((v > 0.5 for v in x[1]), bool, 2)


@pytest.mark.parametrize(
    ("program", "sets"),
    [
        (by_positions_of_a_mask, ((floats(4, 5),), (floats(6, 7),))),
        (written_copies, ((floats(9),), (floats(14),))),
        (counted_in_bins, ((floats(9),), (floats(14),))),
        (odd_spellings, ((floats(4, 5),), (floats(6, 7),))),
    ],
)
def test_selected_and_spelled(program: Any, sets: Any) -> None:
    check(program, *sets, versions=None)


def test_a_part_of_a_written_copy_is_a_view() -> None:
    def program(x: Any) -> Any:
        y = x[x > 0.3]
        part = y[1:3]
        y[0] = 9
        y *= 2
        return part

    def part_of_part(x: Any) -> Any:
        y = x[x > 0.3] + 1
        turned = y[::-1]
        part = turned[1:]
        part[-1] = 9
        return y, turned, part

    x = np.array([0.1, 0.5, 0.7, 0.9, 0.2, 0.4])
    np.testing.assert_array_equal(fx.jit(program)(x), program(x))
    for found, expected in zip(fx.jit(part_of_part)(x), part_of_part(x)):
        np.testing.assert_array_equal(found, expected)


def with_texts(x: Any) -> Any:
    return {"method": "newton", "x": x, "dtype": x.dtype.name}, "ok", None


def kinds(x: Any) -> Any:
    is_array = type(x) is np.ndarray, type(x[0]) is np.float64, type(len(x)) is int, type(x) == type(x.sum())  # noqa: E721
    return is_array, x if type(x) is np.ndarray else -x


def asked_for_their_types(x: Any, b: Any) -> Any:
    total = x.sum()
    numbers = [isinstance(v, np.ndarray) for v in (x, total, x[0], b)], [isinstance(v, float) for v in (total, b, x)]
    ints = isinstance(int(b), int), isinstance(len(x), (int, float)), isinstance(x[x > 0.5], np.ndarray)
    others = [np.isscalar(v) for v in (total, b, x, len(x))], [hasattr(v, "__len__") for v in (x, total, b)]
    return numbers, ints, others, total + 1 if isinstance(total, np.floating) else total


def test_types_are_those_of_what_values_stand_for() -> None:
    check(kinds, *SETS, versions=None)
    for b in (np.float64(2.5), np.array(2.5), np.int64(3)):
        for given in ((floats(4), b), (floats(7), b)):
            assert fx.jit(asked_for_their_types, backend="python")(*given) == asked_for_their_types(*given)


def flags_and_texts(x: Any) -> Any:
    rounds, going_on = 0, True
    while going_on is True:
        x = x * 0.5
        rounds += 1
        going_on = bool(x.max() > 0.1)
    done = any(v > 0.05 for v in x)
    return rounds, done is True, done is not False, x[0] in (0.25, x[0]), np.allclose(x, x)


def test_a_flag_is_true_or_false() -> None:
    given = floats(5)
    found, expected = fx.jit(flags_and_texts, backend="python")(given), flags_and_texts(given)
    assert found == expected and types_of(found) == types_of(expected)


def counted_in_tuples(a: Any, b: Any) -> Any:
    return (
        np.stack([a, b]).item(1),
        (a, 0, 5, b).count(0),
        [1, 2].count(a),
        (a, b).index(b),
        (1, b).index(a),
        a in {0, 5},
    )


def test_count_and_index_of_traced_numbers() -> None:
    jitted = fx.jit(counted_in_tuples, backend="python")
    for given in ((np.float64(1), np.float64(0)), (np.float64(5), np.float64(5))):
        assert jitted(*given) == counted_in_tuples(*given)
    with pytest.raises(ValueError, match="is not in the tuple"):
        jitted(np.float64(3), np.float64(4))


@pytest.mark.parametrize(
    "program",
    [
        lambda x: len(str(x[0])),
        lambda x: x + 1 if f"{x[0]}".startswith("0") else x,
        lambda x: "1" in f"a{x[0]} {x[1]}",
        lambda x: sum(int(d) for d in str(x[0]) + "0"),
        lambda x: "%s" % x[0] == "1",  # noqa: UP031
        lambda x: "%d" % x[0] == "1",  # noqa: UP031
    ],
)
def test_texts_of_values_are_not_read(program: Any) -> None:
    with pytest.raises(fx.errors.TraceError, match=r"(?s)a text .*that is not known|a text is made of a value"):
        fx.jit(program, backend="python")(floats(4))


def test_a_class_of_python_that_takes_no_traced_value() -> None:
    with pytest.raises(fx.errors.TraceError, match=r"(?s)decimal.Decimal\(\) needs values .*of_python.py:\d+"):
        fx.jit(lambda x: decimal.Decimal(x[0]) * 2, backend="python")(floats(3))


def test_texts_of_sizes_are_read_for_each_size() -> None:
    jitted = fx.jit(lambda x: (len(str(len(x))), x.sum(), int(f"{len(x)}")), backend="python")
    assert [jitted(floats(n))[::2] for n in (4, 11)] == [(1, 4), (2, 11)]


def counts_by_value(x: Any) -> Any:
    places = {}
    for i, v in enumerate(x):
        if 1 - v in places:
            return places[1 - v]
        places[v] = i
    return -1


def test_sets_of_traced_numbers_are_refused() -> None:
    def program(x: Any) -> Any:
        return len(set(x)) == len(x) if x[0] > 0 else len({float(v) for v in x})

    with pytest.raises(fx.errors.TraceError, match="put into a set"):
        fx.jit(program, backend="python")(np.array([1.0, 1.0]))


def test_keys_that_are_computed_are_refused() -> None:
    for dynamic in (True, False):
        with pytest.raises(fx.errors.TraceError, match=r"(?s)used as the key of a dict.*places\[v\]|in places"):
            fx.jit(counts_by_value, backend="python", dynamic=dynamic)(floats(4))


def test_texts_are_results() -> None:
    for size in (4, 6):
        found, text, nothing = fx.jit(with_texts)(floats(size))
        assert (found["method"], found["dtype"], text, nothing) == ("newton", "float64", "ok", None)
        same(found["x"], floats(size))


def test_texts_of_values_are_copied() -> None:
    def program(x: Any) -> Any:
        found = {"x": x * 2, "said": f"{x[0]}", "more": [str(x[1])]}
        return copy.deepcopy(found)["x"] + copy.copy(found)["x"] + len(copy.deepcopy([f"{x[2]}"]))

    check(program, *SETS, versions=None)


def test_texts_of_values_are_refused_and_those_of_sizes_are_of_their_size() -> None:
    with pytest.raises(fx.errors.TraceError, match="a text of a value that is not known"):
        fx.jit(lambda x: f"mean {x.mean():.2f}")(floats(4))
    sized = fx.jit(lambda x: (f"{len(x)} values", x.sum()))
    assert [sized(floats(n))[0] for n in (4, 6)] == ["4 values", "6 values"]


# -- random numbers of a seed -----------------------------------------------------------------------
def of_a_seed(x: Any) -> Any:
    state, generator = np.random.RandomState(1), np.random.default_rng(2)
    np.random.seed(3)
    weights = [state.randn(2, 3) * 0.1 for _ in range(2)]
    return x * np.random.rand(len(x)), state.permutation(3), weights, generator.normal(size=2) + x[:2]


def test_random_numbers_of_a_seed() -> None:
    before = np.random.get_state()
    check(of_a_seed, *SETS, versions=2)
    np.random.set_state(before)


# -- exceptions ------------------------------------------------------------------------------------
class NotConverged(Exception):
    def __init__(self, rounds: int) -> None:
        super().__init__(rounds)
        self.rounds = rounds


def checks_its_argument(x: Any) -> Any:
    if not np.all(x >= 0):
        raise ValueError("negative")
    if x[0] > 2:
        raise KeyError("large")
    return np.sqrt(x), x.sum()


def does_not_converge(x: Any) -> Any:
    y = 1.0
    for rounds in range(20):
        better = y - (y * y - x[0]) / (2 * y)
        if abs(better - y) < 1e-9:
            return better, rounds
        y = better
    raise NotConverged(20)


def would_not_end(x: Any) -> Any:
    if x[0] <= 0:
        raise ValueError("the step must be positive")
    t, steps = 0.0, 0
    while t < 1:
        t += x[0]
        steps += 1
    return steps


def only_checks(x: Any) -> Any:
    if x[0] < 0:
        raise ValueError("negative")


def raises_in_a_method(x: Any) -> Any:
    for i in range(len(x)):
        Positive().add(x, i)


class Positive:
    def add(self, x: Any, i: int) -> None:
        if x[i] < 0:
            raise OverflowError(i)
        x[i] += 1


def takes_the_largest(x: Any) -> Any:
    low = max(v for v in x[:3] if v > -1)
    if x[0] > 3:
        raise KeyError("large")
    return low + x[x > 0].max() + np.nanmax(x)


_RAISING = [
    takes_the_largest,
    only_checks,
    checks_its_argument,
    does_not_converge,
    would_not_end,
    raises_in_a_method,
    asserts,
]


@pytest.mark.parametrize("backend", ["python", "c"])
@pytest.mark.parametrize("program", _RAISING)
def test_exceptions_on_conditions(program: Any, backend: str) -> None:
    jitted = fx.jit(program, backend=backend)
    raised = 0
    for given in (floats(40), floats(50) + 3, -floats(40), np.zeros(40), floats(50)):
        mine, eager = given.copy(), given.copy()
        try:
            expected = program(eager)
        except Exception as error:
            raised += 1
            with pytest.raises(type(error)) as caught:
                jitted(mine)
            assert caught.value.args == error.args or program is raises_in_a_method
            assert any(f"{program.__module__.rpartition('.')[2]}.py:" in note for note in caught.value.__notes__)
        else:
            if expected is not None:
                same(jitted(mine), expected)
            else:
                jitted(mine)
            same(mine, eager)
    assert raised


def test_an_assert_that_is_caught_is_refused() -> None:
    with pytest.raises(fx.errors.TraceError, match=r"(?s)is inside a try.*control_programs.py:\d+"):
        fx.jit(catches_an_assert)(-floats(4))


def test_of_two_exceptions_none_is_guessed() -> None:
    def program(x: Any) -> Any:
        if x[0] > 0:
            raise ValueError("positive")
        raise ValueError("negative")

    with pytest.raises(fx.errors.TraceError, match="raises ValueError: positive, or ValueError: negative"):
        fx.jit(program)(floats(4))


# -- known numbers ---------------------------------------------------------------------------------
def known_numbers_as_options(x: Any) -> Any:
    k = np.array([1, 2, 4])[1]
    y = x.reshape(k, -1), np.sum(x, axis=k - 1), np.pad(x, k), np.triu(x, k), np.split(x, k), np.tile(x, k)
    z = np.flip(x, k - 1), x.swapaxes(0, k - 1), np.expand_dims(x, k), np.stack([x, x], axis=k), np.diag(x[0], k)
    return (
        y,
        z,
        np.broadcast_to(x[0, :2], (k, 2)),
        np.histogram(x, bins=k, range=(0, 1))[0],
        np.concatenate((x, x), k - 1),
    )


def streamed(f: Any) -> Any:
    """Of a lattice Boltzmann method: a loop with writes whose shifts are known, or not."""
    cx, cy = np.array([0, 1, 0, -1, 0, 1, -1, -1, 1]), np.array([0, 0, 1, 0, -1, 1, 1, -1, -1])
    for i, ex, ey in zip(range(9), cx, cy):
        f[:, :, i] = np.roll(f[:, :, i], ex, axis=1)
        f[:, :, i] = np.roll(f[:, :, i], ey, axis=0)
    shift = np.argmax(f[0, 0])
    return np.roll(f, shift, axis=0), np.roll(f, (shift, -1), axis=(0, 1)), np.roll(f[0, 0], -shift)


def test_known_numbers_are_options() -> None:
    check(known_numbers_as_options, (floats(4, 6),), versions=None)


def test_rolled_by_values() -> None:
    check(streamed, (floats(4, 6, 9),), (floats(5, 3, 9),), versions=None)


def test_minimum_of_known_and_computed_numbers() -> None:
    """Rows that are lists of numbers of Python: some of those that ``min`` compares are known, and keep their types."""

    def distance(x: Any, y: Any) -> Any:
        previous = list(range(len(y) + 1))
        for i, a in enumerate(x, 1):
            current = [i]
            for j, b in enumerate(y, 1):
                current.append(min(previous[j] + 1, current[j - 1] + 1, previous[j - 1] + (a != b)))
            previous = current
        return previous[-1]

    def clipped(x: Any) -> Any:
        return x * min(3, 2, x[0]), x * max(0.5, 1, x[1], 0)

    agree(distance, np.array([1, 0, 2, 1], np.uint8), np.array([0, 2, 1, 1, 2], np.uint8))
    agree(clipped, np.float32([1, 2, 3]))


def test_bisect_in_a_list_that_starts_empty() -> None:
    def inserted(x: Any) -> Any:
        return bisect.bisect_left([], x[0]), bisect.bisect([1, 3], x[0])

    def longest_rise(x: Any) -> int:
        tails: list[Any] = []
        for v in x:
            k = bisect.bisect_left(tails, v)
            if k == len(tails):
                tails.append(v)
            else:
                tails[k] = v
        return len(tails)

    agree(inserted, np.array([3, 1]))
    with pytest.raises(fx.errors.TraceError, match=r"(?s)list.*of_python.py:\d+: .*tails"):
        fx.symbolic_trace(longest_rise, "i64[4]")
