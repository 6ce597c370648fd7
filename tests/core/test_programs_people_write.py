"""NumPy programs as people write them, without thinking of fxlite: a jitted function gives what NumPy
gives, its values, dtypes and what it writes into its arguments, with the graph, Python and C."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from tests.oracle import flatten

Given = tuple[Any, ...]


def floats(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).random(shape)


def integers(*shape: int, seed: int = 0, most: int = 5) -> Any:
    return np.random.default_rng(seed).integers(0, most, shape)


def same(actual: Any, expected: Any) -> None:
    for a, b in zip(flatten(actual), flatten(expected), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def copied(given: Given) -> Given:
    return tuple(a.copy() if isinstance(a, np.ndarray) else a for a in given)


def check(program: Callable[..., Any], *sets: Given, versions: int | None = 1) -> None:
    """``versions``: how many are compiled for all sets; None: as many as it takes."""
    for backend in ("python", "c"):
        jitted = fx.jit(program, backend=backend)
        for given in sets:
            eager, mine = copied(given), copied(given)
            same(jitted(*mine), program(*eager))
            same(mine, eager)
        assert versions in (None, len(jitted.versions)), jitted.explain()
        last, arrays = jitted.versions[-1], [a for a in copied(sets[-1]) if isinstance(a, (np.ndarray, np.generic))]
        if backend == "python" and last.refills is None:  # an argument that it returns is not a result of the graph
            same(last.module(*arrays), program(*copied(sets[-1])))


# -- sizes among Python's numbers ------------------------------------------------------------------
def deviation_by_hand(x: Any) -> Any:
    mean = sum(x) / len(x)
    return (sum((a - mean) ** 2 for a in x) / (len(x) - 1)) ** 0.5, sum(1 for a in x if a > mean), any(a > 2 for a in x)


def test_sums_of_any_number_of_elements() -> None:
    check(deviation_by_hand, (floats(30),), (floats(2000, seed=1),), (floats(40),))


def arrays_that_libraries_ask_for(x: Any) -> Any:
    return np.array(x, copy=None) + 1, np.array(x, copy=np._CopyMode.IF_NEEDED) * 2, np.array(x, copy=False)[0]


def test_arrays_that_are_copied_if_needed() -> None:
    check(arrays_that_libraries_ask_for, (floats(5),))


def means_by_hand(x: Any) -> Any:
    n = len(x)
    step = 1.0 / n
    inner = (1 - 0.85) / n + n / 2 + math.sqrt(n) + 2.0**-n + n**2 + float(n) * 0.5
    return x.sum() * step, inner, n // 2.0 + n % 2.5 + 7.5 % n, round(n / 3), math.ceil(n / 4)


def halves(x: Any) -> Any:
    if not isinstance(x.shape[0], int):
        raise TypeError("sizes are ints")
    cut = int(0.8 * x.shape[0])
    return x[:cut].sum(), x[cut:].mean()


def transformed(x: Any) -> Any:
    n = len(x)
    if n < 2.5:
        return x * (1 + 0j)
    k = np.arange(n)
    return np.exp(-2j * np.pi * k[:, None] * k / n) @ x


def resized(image: Any) -> Any:
    rows = np.linspace(0, image.shape[0] - 1, 4)
    low = np.floor(rows).astype(int)
    high = np.minimum(low + 1, image.shape[0] - 1)
    part = (rows - low)[:, None]
    return image[low] * (1 - part) + image[high] * part


def weak_beside_floats(x: Any) -> Any:
    return x / (len(x) * 1.5), x * (len(x) / 3)


@pytest.mark.parametrize("program", [means_by_hand, halves, transformed, weak_beside_floats])
def test_sizes_are_numbers(program: Any) -> None:
    check(program, (floats(5),), (floats(8),))


def test_sizes_are_numbers_beside_float32() -> None:
    check(weak_beside_floats, (floats(5).astype(np.float32),), (floats(7).astype(np.float32),))


def lines_between_values(x: Any) -> Any:
    lines = np.linspace(0, x.max(), 7), np.linspace(x[0], x[1], 3, endpoint=False), np.linspace(x[0], 5.5, 4, dtype=int)
    return lines, np.linspace(x, x + 1, 4), np.linspace([0, 1], [x[0], 2], 3), np.logspace(x[0], x[1], 4)


def test_linspace_between_values() -> None:
    for given in (floats(5), floats(5).astype(np.float32), integers(5)):
        found = fx.jit(lines_between_values, backend="python")(given)
        for a, b in zip(flatten(found), flatten(lines_between_values(given)), strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_allclose(a, b, rtol=1e-5 if given.dtype == np.float32 else 1e-12)


def test_correlate_takes_the_conjugate() -> None:
    a, v = floats(5) + 1j * floats(5, seed=1), floats(3) * 2j + 1
    for given in ((a, v), (a.real, v), (v, a), (a, v.real)):
        same(fx.jit(np.correlate, backend="python")(*given, "full"), np.correlate(*given, "full"))


def test_sizes_in_linspace() -> None:
    check(resized, (floats(5, 3),), (floats(9, 3),))


def bits(x: Any) -> Any:
    n = len(x)
    if n & (n - 1):
        raise ValueError("a power of two, please")
    return x[: 1 << (n.bit_length() - 2)]


def shuffled(x: Any) -> Any:
    return x[np.random.default_rng(3).choice(len(x), 2, replace=False)]


@pytest.mark.parametrize("program", [bits, shuffled])
def test_what_only_a_number_can_do_makes_sizes_numbers(program: Any) -> None:
    check(program, (floats(8),), (floats(16),), versions=2)


def test_an_error_of_the_program_is_its_own() -> None:
    with pytest.raises(ValueError, match="a power of two, please"):
        fx.jit(bits)(floats(6))


# -- lists and subscripts --------------------------------------------------------------------------
def lists_of_arrays(x: Any) -> Any:
    a, b = x[0], x[1]
    both = np.maximum.reduce([a, b, a + b]), np.mean([a, b], axis=0), np.add([a, b], 1)
    return *both, np.max((a.sum(), b.sum())), np.linalg.norm([a[0], b[0]]), np.median([a[0], a[1], b[0]])


def lists_as_subscripts(x: Any) -> Any:
    p = np.argmax(x[0]) % 2
    x[[0, p]] = x[[p, 0]]
    return x[np.argmax(x, axis=1)[:2] % 2, range(2)], x[[p, 1]]


def grids(x: Any) -> Any:
    rows, columns = np.mgrid[0 : x.shape[0], 0 : x.shape[1]]
    down, across = np.ogrid[: x.shape[0], : x.shape[1]]
    return x * rows + columns, down * across, np.mgrid[1:3:5j]


def joined(x: Any) -> Any:
    rises = np.r_[True, x[0, 1:] > x[0, :-1]]
    return np.r_[x[0], 1.0, x[:, 0], 0 : len(x)], np.c_[x[:, 0], x[:, 1]], rises


def places(x: Any) -> Any:
    i, j = np.where(x > 0.5)
    starts = np.flatnonzero(np.r_[True, x[0, 1:] > x[0, :-1]])
    return i, j, np.where(x[0] > 0.2)[0] + 1, starts


@pytest.mark.parametrize("program", [lists_of_arrays, lists_as_subscripts, grids, joined, places])
def test_lists_and_subscripts(program: Any) -> None:
    check(program, (floats(4, 5),), (floats(6, 7, seed=1),), versions=None)


# -- classes of the program ------------------------------------------------------------------------
class Field:
    """Values on a line, with operators."""

    def __init__(self, values: Any, step: float = 0.5) -> None:
        self.values, self.step = np.asarray(values), step
        if self.values[0] > 0.9:
            self.values = self.values * 0.5

    def __add__(self, other: Any) -> Field:
        if isinstance(other, Field):
            other = other.values
        made = np.zeros_like(self.values)
        made[:] = self.values + other
        return Field(made, self.step)

    __radd__ = __add__

    def __mul__(self, factor: float) -> Field:
        return Field(self.values * factor, self.step)

    def __call__(self, x: Any) -> Any:
        return np.interp(x, np.arange(len(self.values)), self.values)


def evolved(x: Any) -> Any:
    field = Field(x)
    for _ in range(3):
        field = field + field * 0.25 + 0.125
    field = 2.0 + field
    return field.values, field(x)


def test_objects_of_the_program_s_classes() -> None:
    check(evolved, (floats(5),), (floats(7),), versions=None)
    check(evolved, (floats(5) + 0.9,), versions=None)


# -- element by element ----------------------------------------------------------------------------
def tariff(used: float) -> float:
    if used < 0.3:
        return 0.1 * used
    elif used < 0.6:
        return 10 + 0.2 * used
    return 50 + 0.3 * used


@np.vectorize
def ordered(a: float, b: float) -> tuple[float, float]:
    return (a, a * b) if a > b else (b, a + b)


def vectorized(x: Any) -> Any:
    small = x.astype(np.float32)
    doubled = np.vectorize(lambda v: v * 2 + 1)(small)
    return np.vectorize(tariff)(x), ordered(x, x[0]), doubled, np.vectorize(tariff, otypes=[np.float32])(x[0])


def checkered(x: Any) -> Any:
    out, total = np.empty_like(x), 0.0
    for (i, j), value in np.ndenumerate(x):
        out[i, j] = value if (i + j) % 2 == 0 else -value
    for index in np.ndindex(*x.shape):
        if index[0] == index[1]:
            total += x[index]
    for value in x.flat:
        if value > 0.5:
            total += 1
    return out, total


def flat(x: Any) -> Any:
    y = x.copy()
    y.flat[:: x.shape[1] + 1] += 10
    turned = y.T
    turned.flat[0] = -1
    y[:, 1].flat = 3
    return y, turned.flat[2], y.flat[1:4], x.flat.copy()


@pytest.mark.parametrize("program", [vectorized, checkered, flat])
def test_element_by_element(program: Any) -> None:
    check(program, (floats(3, 4),), (floats(5, 6, seed=1),), versions=None)


def clipped(x: Any) -> Any:
    for value in np.nditer(x, op_flags=["readwrite"]):
        value[...] = min(max(value, 0.2), 0.8)
    return x


def test_nditer_is_refused() -> None:
    with pytest.raises(fx.errors.TraceError, match=r"(?s)order of memory.*people_write.py:\d+.*np.ndindex"):
        fx.jit(clipped)(floats(3, 3))


# -- aggregations ----------------------------------------------------------------------------------
def grouped(keys: Any, values: Any) -> Any:
    found, which, counts = np.unique(keys, return_inverse=True, return_counts=True)
    sums, most = np.zeros(len(found)), np.full(len(found), -np.inf)
    np.add.at(sums, which, values)
    np.maximum.at(most, which, values)
    return found, sums / counts, most


def counted_where(keys: Any, values: Any) -> Any:
    (large,) = np.nonzero(values > 0.4)
    counts, table, others = np.zeros(6, np.int32), np.zeros((6, 7)), np.ones(6)
    np.add.at(counts, keys[large], 1)
    np.add.at(table, (keys[large], keys[large]), values[large])
    np.add.at(table[:, 1], keys[large], 0.5)
    np.multiply.at(others, keys[large], values[large])
    np.minimum.at(others, keys[large], 0.7)
    np.subtract.at(others, keys[large], 0.5)
    return counts, table, others


def loop_over_selected(keys: Any, values: Any) -> Any:
    total = 0.0
    for key in np.unique(keys):
        total += values[keys == key].mean() * key
    for number, place in enumerate(np.flatnonzero(values > 0.5)):
        total += number * place
    return total


@pytest.mark.parametrize("program", [grouped, counted_where, loop_over_selected])
def test_aggregations(program: Any) -> None:
    check(program, (integers(9), floats(9)), (integers(20, seed=1), floats(20, seed=1)))


def test_aggregation_out_of_range() -> None:
    def into_fewer(keys: Any) -> Any:
        sums = np.zeros(len(np.unique(keys)))
        np.add.at(sums, keys, 1.0)
        return sums

    check(into_fewer, (np.array([0, 1, 0, 2]),))
    with pytest.raises(IndexError):
        fx.jit(into_fewer)(np.array([0, 3, 0, 0]))


def diagonals(x: Any) -> Any:
    both = np.einsum("iij->j", np.stack([x, x], 2)), np.einsum("ij,jj->i", x, x)
    return np.einsum("ii", x), np.einsum("ii->i", x), np.trace(x), np.diag(x).copy(), np.diagonal(x) * 2, *both


def test_diagonals() -> None:
    check(diagonals, (floats(4, 4),), (floats(6, 6, seed=1),))


# -- windows, and lists beside arrays --------------------------------------------------------------
def windows(x: Any) -> Any:
    seen = np.lib.stride_tricks.sliding_window_view(x, 3)
    return seen.max(axis=1), seen.std(axis=-1), np.lib.stride_tricks.sliding_window_view(x, 2, axis=0)[0]


def blocks(x: Any) -> Any:
    return np.lib.stride_tricks.sliding_window_view(x, (2, 3)).sum(axis=(2, 3))


def test_windows() -> None:
    check(windows, (floats(7),), (floats(9, seed=1),))
    check(blocks, (floats(4, 5),), (floats(6, 8),))


def runs(x: Any) -> Any:
    change = np.where(np.diff(x) != 0)[0] + 1
    starts = np.concatenate(([0], change))
    return x[starts], np.diff(np.append(starts, len(x))), np.concatenate(([7], x)), np.concatenate(([x[0]], x))


def dense(rows: Any, columns: Any, values: Any) -> Any:
    out = np.zeros((5, 5), values.dtype)
    np.add.at(out, (rows, columns), values)
    return out, np.ravel_multi_index((rows, columns), (5, 5))


def test_lists_beside_arrays() -> None:
    check(runs, (integers(9, most=2),), (integers(14, most=2, seed=1),))
    check(dense, (integers(7), integers(7, seed=1), floats(7)))


# -- what is refused, and how ----------------------------------------------------------------------
def in_an_object(x: Any) -> Any:
    return {"sum": x.sum(), "of": iter(x.shape)}


def different_values(x: Any) -> Any:
    return len(set(x))


def counted_in_a_dict(x: Any) -> Any:
    found: dict[Any, int] = {}
    for value in x:
        found[value] = found.get(value, 0) + 1
    return len(found)


def drawn(x: Any) -> Any:
    return np.random.default_rng(3).choice(len(x), p=x / x.sum())


def applied_to_each(x: Any) -> Any:
    return np.frompyfunc(lambda v: v + 1, 1, 1)(x)


def parted_behind_the_end(x: Any) -> Any:
    return np.partition(x, 9)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (applied_to_each, r"(?s)a ufunc that is not NumPy's own.*people_write.py:\d+.*np.vectorize\(f"),
        (parted_behind_the_end, r"(?s)kth \(9\) is out of bounds for 4 elements.*people_write.py:\d+"),
        (in_an_object, r"(?s)a tuple_iterator cannot be used.*people_write.py:\d+.*instead: return arrays"),
        (different_values, r"(?s)used as the key of a dict or put into a set.*people_write.py:\d+"),
        (counted_in_a_dict, r"(?s)used as the key of a dict or put into a set.*people_write.py:\d+"),
        (drawn, r"(?s)choice\(\) of a generator.*people_write.py:\d+.*np.searchsorted\(np.cumsum"),
    ],
)
def test_refusals_say_what_to_write(program: Any, said: str) -> None:
    with pytest.raises(fx.errors.TraceError, match=said):
        fx.jit(program)(floats(4))


@pytest.mark.parametrize("function", [np.partition, np.argpartition, np.sort, np.argsort, np.flip, np.delete])
def test_axes_that_do_not_exist_are_errors_with_a_line(function: Any) -> None:
    more = (0,) if function in (np.partition, np.argpartition, np.delete) else ()
    with pytest.raises(fx.errors.FxliteError, match=r"(?s)axis 3 .*people_write.py:\d+: function\(x"):
        fx.symbolic_trace(lambda x: function(x, *more, axis=3), "f64[N]")


# -- nested arguments ------------------------------------------------------------------------------
@dataclasses.dataclass
class Particle:
    x: Any
    v: Any
    mass: float = 2.0


def written_in_place(state: Any, particle: Any, rate: Any) -> Any:
    for key in state:
        state[key] -= rate * state[key]
    particle.x += 0.5 * particle.v
    particle.v[...] = particle.v / particle.mass
    while state["b"].max() > 0.125:
        state["b"] *= 0.5
    mine = dict(state)
    mine["a"] = mine["a"] * 2
    return mine, particle


def nested() -> Given:
    return {"a": floats(3), "b": floats(4)}, Particle(floats(3), floats(3, seed=1)), np.float64(0.1)


@pytest.mark.parametrize("backend", ["python", "c"])
def test_nested_arguments_are_written_in_place(backend: str) -> None:
    mine, eager = nested(), nested()
    jitted = fx.jit(written_in_place, backend=backend)
    same(jitted(*mine)[0], written_in_place(*eager)[0])
    same((mine[0], mine[1].x, mine[1].v), (eager[0], eager[1].x, eager[1].v))


def puts_into_dict(state: Any, particle: Any, rate: Any) -> Any:
    state["a"] = state["a"] - rate
    return state


def sets_field(state: Any, particle: Any, rate: Any) -> Any:
    particle.v = particle.v * rate
    return particle


def puts_in_a_loop(state: Any, particle: Any, rate: Any) -> Any:
    while state["a"][0] > 0:
        state["a"] = state["a"] - 0.5
    return state


def adds_a_key(state: Any, particle: Any, rate: Any) -> Any:
    state["c"] = state["a"] * rate
    return state


@pytest.mark.parametrize(
    ("program", "place"),
    [
        (puts_into_dict, r"state\['a'\]"),
        (sets_field, r"particle\.v"),
        (puts_in_a_loop, r"state\['a'\]"),
        (adds_a_key, "state"),
    ],
)
def test_what_a_caller_gives_is_not_filled_with_other_values(program: Any, place: str) -> None:
    with pytest.raises(fx.errors.TraceError, match=rf"(?s){program.__name__}.*changes {place}, .*\[\.\.\.\] = value"):
        fx.jit(program)(*nested())


# -- known arrays at computed positions ------------------------------------------------------------
TABLE = np.arange(10.0) ** 2
ROWS = TABLE.reshape(2, 5)
WEIGHTS = (0.5, 2, -1.5, 3)


def looked_up(x: Any) -> Any:
    return TABLE[np.argmax(x)], TABLE[np.argsort(x)], TABLE[1:][np.argmin(x), None], np.fft.rfftfreq(18)[x.argmax()]


def from_there_on(x: Any) -> Any:
    return TABLE[np.argmax(x) :].sum(), TABLE.take(np.argsort(x)), TABLE.searchsorted(x[0])


def from_a_list(x: Any) -> Any:
    names = {"rates": [0.25, 4, 16]}
    return WEIGHTS[(x > 1).sum() % 4], names["rates"][-1 - np.argmax(x[:3])] * x, WEIGHTS[len(x) - 5]


def in_a_loop(x: Any) -> Any:
    total = 0.0
    for i in range(len(x)):
        if x[i] > 1:
            total = total + TABLE[i] * WEIGHTS[i % 4]
    return total


@pytest.mark.parametrize("program", [looked_up, from_there_on, from_a_list, in_a_loop])
def test_known_arrays_at_computed_positions(program: Any) -> None:
    for inputs in (floats(8), floats(8, seed=1)[::-1] * 3):
        same(fx.symbolic_trace(program, "f64[8]")(inputs), program(inputs))
        same(fx.compile(program, "f64[8]")(inputs), program(inputs))
    check(program, (floats(8),), (floats(8, seed=3),), versions=None)


def test_positions_out_of_range_are_errors() -> None:
    for program in (lambda x: TABLE[np.argmax(x) + 5], lambda x: WEIGHTS[np.argmax(x)]):
        module = fx.symbolic_trace(program, "f64[8]")
        for x in (np.eye(8)[7], np.eye(8)[0]):
            try:
                expected = program(x)
            except IndexError:
                with pytest.raises(IndexError):
                    module(x)
            else:
                same(module(x), expected)


def writes_into_the_table(x: Any) -> Any:
    row = ROWS[np.argmax(x[:2])]  # a view
    row[0] = 5
    return row.sum()


def fills_the_table(x: Any) -> Any:
    TABLE.fill(x[0])
    return x * 2


@pytest.mark.parametrize("program", [writes_into_the_table, fills_the_table])
def test_known_arrays_are_not_written(program: Any) -> None:
    before = TABLE.copy()
    with pytest.raises(fx.errors.TraceError, match="constant of the program"):
        fx.symbolic_trace(program, "f64[8]")
    np.testing.assert_array_equal(TABLE, before)


def test_a_table_that_changes_makes_a_new_version() -> None:
    table = np.arange(8.0)
    run = fx.jit(lambda x: table[np.argmax(x)] * 1)
    assert run(np.eye(8)[3]) == 3
    table[3] = 30
    assert run(np.eye(8)[3]) == 30


def beside_numbers(x: Any) -> Any:
    return (
        np.hstack([x, 3.0, 4]),
        np.hstack((0, x)),
        np.hstack([x[0], x[1]]),
        np.vstack([x, [1.0] * 8, np.arange(8)]),
        np.vstack([x[0], 2]),
        np.stack([x[0], 3.0]),
        np.concatenate([x, [x[0], 2.0]]),
    )


def test_arrays_are_joined_with_numbers() -> None:
    same(fx.compile(beside_numbers, "f64[8]")(floats(8)), beside_numbers(floats(8)))
