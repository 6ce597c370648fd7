"""fxlite.lazy: what an unchanged NumPy script gives, it gives with lazy arrays, too."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

import fxlite.lazy as lazy
from fxlite.base.errors import ArgumentError, TraceError
from fxlite.lazy import recorder
from tests import npbench


@pytest.fixture(autouse=True)
def settings() -> Iterator[recorder.Recorder]:
    """The settings are those of a new process, and nothing was computed at once."""
    own = lazy.RECORDER
    own.settings = recorder.Settings(backend="interpreter")
    own.fallbacks.clear()
    yield own
    own.settings = recorder.Settings()


def same(lazily: Any, eager: Any) -> None:
    """The same values, dtype and shape."""
    found = np.asarray(lazily)
    assert found.dtype == np.asarray(eager).dtype
    np.testing.assert_array_equal(found, eager)


# -- programs --------------------------------------------------------------------------------------
def views(np: Any) -> Any:
    a = np.arange(12.0).reshape(3, 4)
    b = a[1:].T
    b[0] = 7
    a += 1
    c = a.ravel()
    c[-1] = -5
    return a, b, c


def numbers(np: Any) -> Any:
    x = np.arange(6, dtype=np.float32)
    total = x.sum()
    before = total
    total += 1  # NumPy's numbers are immutable
    return before, total, x[2] * 2, x * 2.5, x.mean() if x.max() > 3 else x


def looks(np: Any) -> Any:
    x = np.linspace(0.0, 1.0, 5)
    found = [float(x[1]), int(x[-1]), bool(x.any()), x.tolist(), x.sum().item(), f"{x[2]:.2f}"]
    found += [str(x), repr(x), len(x), [float(v) for v in x], 1.0 in x, list(range(3))[x.argmin()]]
    return found


def until_it_converges(np: Any) -> Any:
    x = np.ones((8, 8))
    rounds = 0
    while True:
        new = x.copy()
        new[1:-1, 1:-1] = 0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]) - 0.01
        rounds += 1
        if np.abs(new - x).max() < 1e-3 or rounds == 40:
            return new, rounds
        x = new


def masks(np: Any) -> Any:
    x = np.array([3.0, -1.0, 2.0, -4.0])
    y = x[x > 0]
    x[x < 0] *= -1
    z = np.where(x > 2, x, 0)
    return x, y, z, np.nonzero(z)[0], np.sort(x), np.unique(np.array([1, 3, 1]))


def in_place_methods(np: Any) -> Any:
    x = np.array([3, 1, 2])
    v = x[::-1]
    x.sort()
    v[0] = 9
    y = np.zeros((2, 3))
    np.copyto(y, x)
    np.add(y[1:], 1, out=y[:1])
    y.fill(4) if y[0, 0] < 0 else None
    np.put(x, [0], [100])
    np.random.default_rng(0).shuffle(x)
    return x, v, y


def windows(np: Any) -> Any:
    x = np.arange(6.0)
    w = np.lib.stride_tricks.sliding_window_view(x, 3)
    x[0] = 50
    part = x[1:3]
    part += 1
    return w, x, w.sum(axis=1), part


def other_dtypes(np: Any) -> Any:
    names = np.array(["b", "a"])
    z = np.array([1 + 2j, 3])
    part = z[:1]
    z[0] = 5j
    times = np.array(["2020-01-01", "2020-01-03"], dtype="datetime64[D]")
    return np.sort(names), z * 2.0, part, z.real, times[1] - times[0]


def constructors(np: Any) -> Any:
    x = np.ndarray((2, 2), dtype=np.int32)
    x[:] = 3
    made = [np.array([x[0, 0], 1.5]), np.asarray(x, dtype=np.float32), np.eye(3), np.full((2,), 2.5)]
    made += [np.zeros_like(x), np.stack([x, x]), np.array(x, ndmin=3), np.ascontiguousarray(x)]
    return [*made, np.random.default_rng(3).normal(size=4), np.fft.fft(np.ones(4)), np.pi]


def modules(np: Any) -> Any:
    a = np.array([[4.0, 1.0], [1.0, 3.0]])
    values, vectors = np.linalg.eigh(a)
    vectors = abs(vectors)  # their signs are free
    q, r = np.linalg.qr(a)
    return values, vectors, q @ r, np.linalg.inv(a), np.histogram(a, bins=3), divmod(a, 2.0)


PROGRAMS = [
    *(views, numbers, looks, until_it_converges, masks, in_place_methods),
    *(windows, other_dtypes, constructors, modules),
]


def compare(found: Any, wanted: Any, close: bool = False) -> None:
    if isinstance(wanted, (tuple, list)):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted):
            compare(one, other, close)
    elif isinstance(wanted, (np.ndarray, np.generic)):
        assert np.asarray(found).dtype == wanted.dtype
        if close:
            np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-6, atol=1e-8)
        else:
            same(found, wanted)
    else:
        assert found == wanted and type(found) is type(wanted)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_programs(program: Callable[..., Any]) -> None:
    compare(program(lazy), program(np))


@pytest.mark.parametrize("program", [views, until_it_converges], ids=lambda p: p.__name__)
def test_a_structure_that_comes_again_is_compiled(program: Callable[..., Any]) -> None:
    lazy.configure(backend="c", compile_after=2)
    for _ in range(3):
        compare(program(lazy), program(np), close=True)
    assert any(p.compiled is not None for p in lazy.RECORDER._programs.values())
    assert "compiled" in lazy.explain()


@pytest.mark.parametrize(("elements", "computations"), [(5, 20_000), (10_000_000, 10)])
def test_what_is_soon_interpreted_is_compiled_late(elements: int, computations: int) -> None:
    """Dynamic programming, element by element, has hundreds of small structures, each of which would take longer to
    compile than the whole script takes."""
    settings, program = recorder.Settings(), recorder._Program(3, 3 * recorder.NODE + 3 * elements)
    lazy.RECORDER.settings = settings
    for program.uses in range(1, computations + 1):
        if lazy.RECORDER._is_worth_compiling(program):
            break
    assert computations // 2 < program.uses <= computations


# -- random programs -------------------------------------------------------------------------------
def _random_program(np: Any, seed: int) -> list[Any]:
    """Views, writes through them, writes of NumPy's own, and looks at values."""
    random = Random(seed)
    pool: list[Any] = [np.arange(12.0).reshape(3, 4), np.arange(6, dtype=np.int64), np.ones((4, 3))]

    def one() -> Any:
        return random.choice(pool)

    for _ in range(25):
        x = one()
        step = random.randrange(13)
        if x.ndim == 0 or x.size > 200 or x.size == 0:
            step = 3
        views: list[Callable[[], Any]] = [
            lambda x=x: x[random.randrange(len(x)) :],
            lambda x=x: x.T,
            lambda x=x: x[random.randrange(len(x))],
            lambda: np.zeros((2, 3)) + random.randrange(3),
            lambda x=x: x.reshape(-1),
            lambda x=x: x[np.argmax(x) % len(x)],  # at a place that is computed
            lambda x=x: np.lib.stride_tricks.sliding_window_view(x, 1, axis=0),
            lambda x=x: np.abs(x) * 2 - x,
        ]
        if step < len(views):
            pool.append(views[step]())
        elif step == 8:
            x[random.randrange(len(x))] = random.randrange(50)
        elif step == 9:
            x += 1
        elif step == 10:
            x[x > random.randrange(20)] = random.randrange(20)
        elif step == 11:
            x.sort(axis=0)
        elif x.max() > 10:
            pool.append(x.sum(axis=0) * 1.0)
        if len(pool) > 12:
            del pool[random.randrange(len(pool))]
    return pool


@pytest.mark.parametrize("window", [5, 40, 5_000])
def test_random_programs(window: int) -> None:
    lazy.configure(window=window)
    unknown = 0
    for seed in range(60):
        outcomes = []
        for module in (np, lazy):
            try:
                outcomes.append((_random_program(module, seed), None))
            except TraceError as error:  # NumPy's layout decides, and is not known
                assert "layout" in str(error) or "may or may not share memory" in str(error)
                unknown += 1
                break
            except ValueError as error:  # a write into a read-only window
                outcomes.append(([], str(error)))
        else:
            (wanted, refused), (found, reason) = outcomes
            assert (refused is None) == (reason is None), (seed, refused, reason)
            assert len(found) == len(wanted), seed
            for one, other in zip(found, wanted):
                same(one, other)
    assert unknown < 12


@pytest.mark.skipif(not npbench.names(), reason="NPBench is not there")
@pytest.mark.parametrize("name", npbench.names() or ["-"])
def test_programs_by_others_run_unchanged(name: str) -> None:
    benchmark = npbench.load(name)
    namespace = dict(benchmark.function.__globals__)
    for key, value in list(namespace.items()):
        if value is np:
            namespace[key] = lazy
        elif getattr(value, "__module__", "") == benchmark.function.__module__:
            parts = (value.__code__, namespace, key, value.__defaults__, value.__closure__)
            namespace[key] = types.FunctionType(*parts)
    eager = copy.deepcopy(dict(benchmark.arguments))
    given = {k: lazy.array(v) if isinstance(v, np.ndarray) else v for k, v in eager.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = benchmark.function(**eager)
        found = namespace[benchmark.function.__name__](**given)
    compare(found, wanted, close=True)
    compare([given[n] for n in benchmark.arrays], [eager[n] for n in benchmark.arrays], close=True)


# -- what is recorded ------------------------------------------------------------------------------
def test_nothing_is_computed_before_somebody_looks() -> None:
    x = lazy.asarray([1.0, 2.0])
    before = lazy.RECORDER.computations
    y = (x * 3 + 1).sum()
    assert lazy.RECORDER.computations == before
    assert float(y) == 11.0
    assert lazy.RECORDER.computations == before + 1


def test_what_is_on_the_way_is_computed_once() -> None:
    x = lazy.asarray([1.0, 2.0])
    y = x * 2
    assert float((y + 1).sum()) == 8.0
    before = lazy.RECORDER.computations
    same(y, [2.0, 4.0])
    assert lazy.RECORDER.computations == before


def test_numbers_of_other_kinds_are_other_structures() -> None:
    x = lazy.asarray(np.array([2], np.int32))
    for factor in (2, 2.0, True, -0.0, 0.0, 0):
        same(x * factor, np.array([2], np.int32) * factor)
        assert np.signbit(np.asarray(x * factor)[0]) == np.signbit(np.int32(2) * factor)


def test_memory_is_bounded() -> None:
    lazy.configure(window=50)
    x = lazy.zeros(3)
    part = x[1:]
    for _ in range(1_000):
        x = x + 1
        part += 1
    assert len(lazy.RECORDER.tracer.graph) < 150
    same(x, np.full(3, 1000.0))
    same(part, np.full(2, 1000.0))


def test_a_failure_is_raised_where_somebody_looks() -> None:
    lazy.configure(window=30)
    bad = lazy.take(lazy.arange(4.0), lazy.asarray([9])) + 1
    x = lazy.zeros(2)
    for _ in range(200):
        x = x + 1
    same(x, np.full(2, 200.0))
    with pytest.raises(IndexError, match="out of bounds"):
        print(bad)


def test_arrays_that_nobody_holds_are_forgotten() -> None:
    lazy.configure(window=300)  # others may be alive, and wait
    for _ in range(400):
        float((lazy.ones(2) * 2).sum())
    gc.collect()
    assert len(lazy.RECORDER.tracer.graph) < 2 * recorder.FEW_NODES + 50
    assert len(lazy.RECORDER.values) < 2 * recorder.FEW_NODES + 50


def test_functions_that_have_returned_hold_no_arrays() -> None:
    """Recording keeps no frame of the program: its arrays would live on, and be computed with all others."""

    def inner(values: list[Any], function: Any) -> None:
        held = lazy.arange(3.0) + 1
        values.append(weakref.ref(held))
        function(held)

    values: list[Any] = []
    lazy.apply_along_axis(lambda row: inner(values, lambda x: x * 2) or row, 0, lazy.ones((2, 2)))
    inner(values, lambda x: x * 2)
    lazy.ones(1) + 1  # another line is the last one
    gc.collect()
    assert [reference() for reference in values] == [None] * len(values)


def test_an_error_names_the_line_that_recorded_it() -> None:
    x = lazy.arange(4.0)
    y = lazy.take(x, lazy.asarray([9])) + 1  # the line
    with pytest.raises(IndexError, match="out of bounds") as info:
        print(y)
    notes = getattr(info.value, "__notes__", [])
    assert any("test_lazy.py" in note and "lazy.take" in note for note in notes)
    same(x, np.arange(4.0))  # nothing else is lost


def test_what_numpy_refuses_is_refused_as_it_does() -> None:
    x = lazy.ones((2, 3))
    with pytest.raises(ValueError, match="broadcast"):
        x + lazy.ones(4)
    with pytest.raises(IndexError, match="out of bounds"):
        x[5]
    with pytest.raises(ValueError, match="ambiguous"):
        bool(x)
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)
    with pytest.raises(AttributeError, match="no attribute or method 'foo'"):
        x.foo  # noqa: B018
    with pytest.raises(AttributeError, match="NumPy has no 'foo'"):
        lazy.foo  # noqa: B018
    with pytest.raises(TypeError):
        x << 1.5
    same(x, np.ones((2, 3)))


def test_values_are_for_reading() -> None:
    x = lazy.ones(3)
    value = np.asarray(x)
    with pytest.raises(ValueError, match="read-only"):
        value[0] = 2
    mine = np.array([1.0, 2.0])
    y = lazy.asarray(mine)
    mine[0] = 100
    same(y, [1.0, 2.0])


def test_elements_in_one_axis() -> None:
    x, eager = lazy.zeros((3, 3)), np.zeros((3, 3))
    for y in (x, eager):
        y.flat[::4] += 10
        y.T.flat[1] = -1
        y[:, 2].flat = 5
    same(x, eager)
    same(x.flat[2:5], eager.flat[2:5])
    assert [float(v) for v in x.flat] == [*eager.flat]
    assert len(x.flat) == 9 and np.asarray(x.flat).shape == (9,)


def test_copies_pickles_and_forms() -> None:
    x = lazy.arange(3.0)
    for other in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.copy()):
        assert type(other) is lazy.ndarray
        other[0] = 9
    same(x, [0.0, 1.0, 2.0])
    x.shape = (3, 1)
    assert (x.shape, x.ndim, x.size, x.nbytes, x.T.shape) == ((3, 1), 2, 3, 24, (1, 3))
    assert x.to_device("cpu") is x and x.__array_namespace__() is lazy
    with pytest.raises(ValueError, match="cpu"):
        x.to_device("cuda")
    same(np.from_dlpack(x), np.arange(3.0).reshape(3, 1))


def test_threads() -> None:
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            x = lazy.full(4, float(number))
            for _ in range(30):
                x = x * 1.0 + 1
                assert float(x[0]) > number
            same(x, np.full(4, number + 30.0))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_settings_are_checked() -> None:
    with pytest.raises(ArgumentError, match="fortran"):
        lazy.configure(backend="fortran")
    with pytest.raises(ArgumentError, match="a number of at least 1"):
        lazy.configure(window=0)
    assert lazy.RECORDER.settings.backend == "interpreter"


def test_explain_names_what_was_not_recorded() -> None:
    lazy.linalg.eigvals(lazy.eye(2))
    assert "eigvals, 1 time" in lazy.explain()
    assert {"linalg", "sin", "configure", "explain"} <= set(dir(lazy))
