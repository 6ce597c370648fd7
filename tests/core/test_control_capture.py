"""Programs with control flow on values, captured from their source: all rungs give what eager NumPy
gives, loops stay loops or are unrolled, and the ledger says which."""

from __future__ import annotations

import itertools
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, passes
from fxlite.base.errors import ArgumentError, OptionError, ShapeError
from fxlite.tracing.capture.flow import Flow
from fxlite.types import dtypes
from tests.core.control_programs import PROGRAMS, floats, positive
from tests.graphs import ops_of
from tests.oracle import agree, agree_on_all, compare, written

RUNGS = ("graph", "python")


def named(given: tuple[Any, ...]) -> list[str]:
    """Types in which equal sizes but 0 and 1 are one named dim."""
    return [f"{dtypes.of_value(a)}[{','.join(f'N{s}' if s > 1 else str(s) for s in a.shape)}]" for a in given]


@pytest.mark.parametrize("loops", ["auto", "keep", "unroll"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, loops: str) -> None:
    program, sets = PROGRAMS[name]
    compiled = {"auto": ("kernel", "c"), "keep": ("c",), "unroll": ()}[loops]
    agree_on_all(program, sets, rungs=(*RUNGS, *compiled), loops=loops)


#: What needs numbers: lists of as many values as there are elements.
_NEEDS_SIZES = {"calls_helpers"}


@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - _NEEDS_SIZES))
def test_programs_with_named_sizes(name: str) -> None:
    program, sets = PROGRAMS[name]
    agree_on_all(program, sets, types=named, rungs=RUNGS)


# -- which loops stay loops ------------------------------------------------------------------------
def sums(x: Any) -> Any:
    total = 0.0
    for i in range(len(x)):
        total = total * 0.5 + x[i] * i
    return total


def test_short_loops_are_unrolled_and_long_ones_stay() -> None:
    assert "fori_loop" not in ops_of(fx.symbolic_trace(sums, "f32[20]"))
    long = fx.symbolic_trace(sums, "f32[2000]")
    assert "fori_loop" in ops_of(long) and len(long.graph) < 8
    (entry,) = passes.ledger(long)
    assert str(entry).startswith("trace: for (test_control_capture.py:")
    assert "stays a loop: unrolled it would have 3 x 2000 nodes" in str(entry)
    assert len(fx.symbolic_trace(sums, "f32[2000]", loops="unroll").graph) > 4000
    assert "fori_loop" in ops_of(fx.symbolic_trace(sums, "f32[4]", loops="keep"))
    assert "fori_loop" in ops_of(fx.symbolic_trace(sums, "f32[N]"))
    agree(sums, floats(2000), rungs=RUNGS)


def test_loops_that_write_into_arrays_stay_before_they_are_long() -> None:
    def chain(x: Any) -> Any:
        for i in range(1, len(x)):
            x[i] += x[i - 1]
        return x

    def triangle(x: Any) -> Any:
        for i in range(19, -1, -1):  # the inner loop has no rounds in the first one
            for j in range(i + 1, 20):
                x[j] = max(x[j], x[i] + 1)
        return x

    def products(x: Any, w: Any) -> Any:
        for i in range(20):
            x[i] = x[i] @ w @ w
        return x

    assert ops_of(fx.symbolic_trace(chain, "f64[20]")) == ["fori_loop", "getitem"]
    assert "fori_loop" not in ops_of(fx.symbolic_trace(chain, "f64[8]"))
    assert ops_of(fx.symbolic_trace(triangle, "f64[20]")) == ["fori_loop", "getitem"]
    assert "fori_loop" not in ops_of(fx.symbolic_trace(products, "f64[20,3,3]", "f64[3,3]"))
    for program in (chain, triangle):
        agree(program, floats(20), rungs=RUNGS)


def test_many_rounds_that_read_arrays_at_other_places_stay() -> None:
    """Each of them would be a kernel; rounds that compute element by element are one."""

    def smoothed(x: Any) -> Any:
        for _ in range(100):
            x = 0.5 * x + 0.25 * (np.roll(x, 1) + np.roll(x, -1))
        return x

    def scaled(x: Any) -> Any:
        for _ in range(100):
            x = x * 0.5 + 1
        return x

    def layers(x: Any, w: Any) -> Any:
        for k in range(100):
            x = np.tanh(x @ w[k % 2])
        return x

    gm = fx.symbolic_trace(smoothed, "f64[20]")
    assert ops_of(gm) == ["fori_loop", "getitem"]
    assert "it has 100 rounds, which read arrays at other places" in str(passes.ledger(gm)[0])
    assert "fori_loop" not in ops_of(fx.symbolic_trace(scaled, "f64[20]"))
    assert "fori_loop" not in ops_of(fx.symbolic_trace(layers, "f64[2,3]", "f64[2,3,3]"))
    agree(smoothed, floats(20), rungs=RUNGS)


def _escapes(x: Any, places: Any) -> Any:
    z, n = x[0], 0
    for _ in range(80):
        if abs(z) <= 2:
            z = z * z + x[1]
            n += 1
    return z, n


def _written_where_found(x: Any, places: Any) -> Any:
    for _ in range(20):
        x[places] = x[places] * 0.5 + 1
    return x


@pytest.mark.parametrize("program", [_escapes, _written_where_found])
def test_many_rounds_with_a_condition_or_a_scatter_stay(program: Any) -> None:
    """Unrolled, each of them would be a kernel of its own."""
    gm = fx.symbolic_trace(program, "f64[3]", "i64[5]")
    assert [name for name in ops_of(gm) if name in ("fori_loop", "while_loop", "cond", "scatter_set")] == ["fori_loop"]
    agree(program, np.array([0.3, -0.4, 0.2]), np.array([2, 0, 1, 1, 0]), rungs=RUNGS)


def test_loops_inside_each_other_are_found_to_be_long_in_their_first_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = []
    record = fx.Tracer.record
    monkeypatch.setattr(
        fx.Tracer, "record", lambda self, *given, **more: recorded.append(0) or record(self, *given, **more)
    )

    def program(x: Any) -> Any:
        for a in range(10):
            for b in range(10):
                for c in range(10):
                    for d in range(10):
                        x = x * a + np.sin(x + b) * c + d
        return x

    gm = fx.symbolic_trace(program, "f64[3]")
    assert len(recorded) < 1200 and ops_of(gm)[0] == "fori_loop"
    np.testing.assert_allclose(gm(np.ones(3)), program(np.ones(3)), rtol=1e-5)


def test_short_loops_around_loops_stay_if_they_are_large() -> None:
    def program(x: Any, w: Any) -> Any:
        for a in range(3):
            for b in range(3):
                for k in range(len(x)):
                    for c in range(4):
                        x[k] = x[k] * w[a, b, c] + np.sin(x[k] * w[b, a, c]) * np.cos(x[k])
        return x

    gm = fx.symbolic_trace(program, "f64[30]", "f64[3,3,4]")
    assert ops_of(gm).count("fori_loop") == 1 and str(gm.graph).count("index_update(") == 12
    x, w = np.ones(30), np.random.default_rng(0).random((3, 3, 4))
    np.testing.assert_allclose(gm(x.copy(), w), program(x.copy(), w))


def test_short_loops_inside_each_other_are_as_long_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a loop becomes is found out once, not in each round of the loops around it."""
    asked = []
    found_out = Flow._why_kept
    monkeypatch.setattr(Flow, "_why_kept", lambda *given: asked.append(given[2].count) or found_out(*given))

    def program(x: Any, w: Any) -> Any:
        y = np.zeros_like(x)
        for a in range(3):
            for b in range(3):
                for c in range(3):
                    for d in range(3):
                        for e in range(3):
                            for f in range(3):
                                for g in range(3):
                                    for h in range(3):
                                        if a >= d:
                                            y[a] += x[b] @ w * (c + e) + x[f] @ w * (g - h)
        return y

    given = floats(3, 2), floats(2, 2)
    gm = fx.symbolic_trace(program, "f32[3,2]", "f32[2,2]")
    assert len(asked) < 30 and len(gm.graph) < 20 and "fori_loop" in ops_of(gm)
    np.testing.assert_allclose(gm(*given), program(*given), rtol=1e-5)


def test_a_long_loop_that_cannot_stay_one_is_unrolled() -> None:
    def program(x: Any) -> Any:
        rows = []
        for i in range(1000):
            x = x * 0.5 + i
            rows.append(x)
        return rows[-1]

    gm = fx.symbolic_trace(program, "f32[3]")
    assert len(gm.graph) > 1000
    agree(program, floats(3), rungs=("graph",))


def test_options() -> None:
    with pytest.raises(OptionError, match="'auto', 'keep', 'unroll'"):
        fx.symbolic_trace(sums, "f32[4]", loops="always")
    with pytest.raises(OptionError, match="'auto', 'keep', 'unroll'"):
        fx.jit(sums, loops="always")
    with pytest.raises(ArgumentError, match="loops= to the tracer"):
        fx.symbolic_trace(sums, "f32[4]", loops="keep", tracer=fx.Tracer())
    gm = fx.symbolic_trace(sums, "f32[4]", tracer=fx.Tracer(loops="keep"))
    assert "fori_loop" in ops_of(gm)
    call = fx.jit(sums, backend="python", loops="keep", dynamic=False)
    np.testing.assert_allclose(call(floats(5)), sums(floats(5)), rtol=1e-6)
    assert "fori_loop" in ops_of(call.versions[0].module)


def test_what_is_known_is_decided_while_tracing() -> None:
    def program(x: Any, flag: Any = True) -> Any:
        n = 0
        while n < 3 and flag:
            n += 1
        if n == 3 and x.shape[0] == 2:
            x = x + 1
        return x if x.sum() > 0 else x * n

    assert ops_of(fx.symbolic_trace(program, "f32[2]")) == ["add", "sum", "gt", "cond", "getitem"]


def test_programs_without_control_flow_on_values_are_traced_once() -> None:
    runs = []

    def program(x: Any) -> Any:
        runs.append(1)
        return x + 1 if len(x) > 1 else x

    fx.symbolic_trace(program, "f32[3]")
    assert len(runs) == 1


# -- numbers ---------------------------------------------------------------------------------------
def test_python_s_numbers_keep_to_the_dtypes_beside_them() -> None:
    def program(x: Any) -> Any:
        scale, n = 1, 0
        while scale < x[0]:
            scale *= 2
            n += 1
        return x * scale, x / (n + 1), x * (1 if n > 2 else 2), n, scale * 0.5

    gm = agree(program, np.float32([5, 6]), rungs=RUNGS)
    kinds = [str(t) for t in gm.graph.output_node().type]
    assert kinds == ["f32[2]", "f32[2]", "f32[2]", "i64", "f64"]


def test_a_number_that_becomes_an_array() -> None:
    def program(x: Any) -> Any:
        total = 0
        for row in x:
            total = total + row * 2
        return total

    gm = agree(program, floats(3, 2), types=("f32[N,2]",), rungs=RUNGS)
    assert "assert N >= 1" in gm.graph.text(full=True)


def test_numbers_of_math_and_builtins() -> None:
    import math

    def program(x: Any) -> Any:
        steps = int(math.sqrt(x[0])) + round(float(x[1]))
        y = 0.0
        for i in range(steps):
            y += math.exp(-i) * math.hypot(float(x[0]), 3)
        whole, part = divmod(steps, 2)
        return y, steps, whole, part, abs(steps - 9), math.floor(x[0]), pow(steps, 2), x[1].item()

    agree(program, np.array([17.5, 2.4]), rungs=RUNGS)


# -- functions, classes, places --------------------------------------------------------------------
class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self._limit = 2.0

    def forward(self, x: Any) -> Any:
        x = self.linear(x)
        rounds = 0
        while np.abs(x).max() > self._limit:
            x = self.halved(x)
            rounds += 1
        return x, rounds

    def halved(self, x: Any) -> Any:
        if x.sum() > 0:
            return x / 2
        return x / 4


class Child(Counter):
    def halved(self, x: Any) -> Any:
        if x[0, 0] > 0:
            x = super().halved(x)
        return x * 0.5


@pytest.mark.parametrize("module", [Counter, Child])
def test_modules_methods_and_super(module: Any) -> None:
    nn.init.manual_seed(0)
    agree(module(), floats(2, 3) * 40, rungs=RUNGS)


_LIMIT = 3.0


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if result > _LIMIT:
            return result * 0 + _LIMIT
        return result

    return wrapper


@decorated
def limited(x: Any, *, power: int = 2) -> Any:
    total = x[0] * 0
    for v in x:
        if v > 0:
            total = total + v**power
    return total


def test_decorators_globals_and_defaults() -> None:
    agree(limited, np.float32([1, -2, 1]), rungs=RUNGS)
    agree(limited, np.float32([1, -2, 4]), rungs=RUNGS)


def test_lambdas_and_comprehensions() -> None:
    pick = lambda a, b: a if a > b else b  # noqa: E731

    def program(x: Any) -> Any:
        return np.stack([pick(x[i], x[i + 1]) if i else x[0] for i in range(3)])

    agree(program, floats(4), rungs=RUNGS)


def test_nodes_have_the_places_of_the_program() -> None:
    program, (given, *_) = PROGRAMS["newton"]
    gm = fx.symbolic_trace(program, *given)
    first = program.__code__.co_firstlineno
    (loop,) = gm.graph.find_nodes(op="call_function", target=fx.ops.while_loop)
    assert loop.loc.line == first + 2
    divided = next(n for n in loop.kwargs["body_fn"].calls if n.target is fx.ops.div)
    assert divided.loc.line == first + 3 and "a[0] / x" in divided.loc.expression


def test_tracebacks_show_the_program() -> None:
    def program(x: Any) -> Any:
        if x.sum() > 0:
            for _ in range(x.shape[0]):
                x = x + np.ones(7)
        return x

    with pytest.raises(ShapeError) as caught:
        fx.symbolic_trace(program, "f32[3]")
    lines = [f for f in traceback.extract_tb(caught.value.__traceback__) if f.filename == __file__]
    assert [f.name.partition(" ")[0] for f in lines[-3:]] == ["program", "<if", "<for"]
    assert lines[-1].line == "x = x + np.ones(7)"


def test_an_assert_on_values_is_said_to_be_dropped() -> None:
    def checked(x: Any) -> Any:
        return positive(x) * 2

    with pytest.warns(UserWarning, match=r"the assert is not checked"):
        gm = fx.symbolic_trace(checked, "f32[3]")
    assert [e.reason for e in passes.ledger(gm)] == ["is not checked: a graph has no exceptions"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_array_equal(gm(np.ones(3, np.float32)), 2)


def test_state_of_a_function_in_a_branch() -> None:
    class Box:
        total: Any = 0.0

        def add(self, v: Any) -> None:
            if v > 1:
                self.total = self.total + v

    def program(x: Any) -> Any:
        box = Box()
        for v in x:
            box.add(v)
        return box.total

    for loops in ("auto", "keep"):
        agree(program, floats(6).astype(np.float64), rungs=RUNGS, loops=loops)


def over_rows(x):
    total = x[0] * 0.0
    for row in x:
        total = np.maximum(total * 0.5, row) + np.minimum(total, row) * 0.25 + np.abs(row)
    return total


def over_numbered_rows(x):
    out = np.zeros(len(x))
    for number, row in enumerate(x):
        out[number] = row.sum()
    return out


def over_pairs(x):
    out = np.zeros(len(x))
    for k, (a, b) in enumerate(zip(x, reversed(x))):
        out[k] = a @ b
    return out


def over_positions(x):
    out = np.zeros(x.shape)
    for i, j in np.ndindex(x.shape):
        out[i, j] = x[i, j] + x[i - 1, j - 1]
    return out


def over_pairs_of_positions(x):
    out = np.zeros(x.shape)
    for i, j in itertools.product(range(1, x.shape[0]), range(x.shape[1])):
        out[i, j] = x[i, j] + x[i - 1, j - 1]
    return out


def over_positions_and_itself(x):
    total = 0.0
    for i, j in itertools.product(range(len(x) // 4), repeat=2):
        total = max(total * 0.5, x[i, 0]) + x[j, 1]
    return total


def over_nothing_that_is_repeated(x):
    total = x[0]
    for _ in itertools.repeat(None, 5 * len(x)):
        total = np.maximum(total * 0.5, x[1]) + np.minimum(total, x[2]) * 0.25 + x[3]
    return total


def over_elements(x):
    total = 0.0
    for (i, j), value in np.ndenumerate(x):
        total = max(total * 0.5, value) + i * 0.25 + j
    return total


def over_a_constant(x):
    total = x[0]
    for weight in WEIGHTS:
        total = np.maximum(total, x[1] * weight) + np.minimum(total, x[2] * weight) * weight
    return total


WEIGHTS = np.linspace(0.5, 1.5, 500)


@pytest.mark.parametrize(
    "program",
    [
        over_rows,
        over_numbered_rows,
        over_pairs,
        over_positions,
        over_pairs_of_positions,
        over_positions_and_itself,
        over_nothing_that_is_repeated,
        over_elements,
        over_a_constant,
    ],
)
def test_what_a_long_loop_of_known_rounds_may_go_through(program):
    """It stays a loop, whatever tells the number of rounds, and is not unrolled first."""
    x = np.random.default_rng(0).standard_normal((400, 6))
    graph = fx.symbolic_trace(program, x="f64[400,6]")
    assert len(graph.graph.nodes) < 40
    np.testing.assert_allclose(graph(x), program(x))
    np.testing.assert_allclose(fx.compile(graph)(x), program(x))


def sieve_of(flags):
    i = 2
    while i * i < len(flags):
        if flags[i]:
            flags[i * i :: i] = 0
        i += 1
    return flags


def left_by_break(x):
    k, best = 0, x[0]
    while True:
        if k >= len(x):
            break
        if x[k] > best:
            best = x[k]
        k += 1
    return best, k


def by_steps_of_a_float(x):
    t, y = 0.0, x * 1
    while t < 3:
        y = y + 0.001 * (np.sin(t) - y)
        t += 0.001
    return y, t


def rolled_on(x):
    n = 0
    while n < 500:
        x = x * 0.999 + 1e-3 * np.roll(x, 1)
        n += 1
    return x


def sorted_by_two_whiles(x):
    x = x.copy()
    i = 0
    while i < 50:
        j = i + 1
        while j < 50:
            if x[j] < x[i]:
                x[i], x[j] = x[j], x[i]
            j += 1
        i += 1
    return x


def counted_down_with_else(x):
    k, total = len(x), 0.0
    while k > 0:
        k -= 1
        if x[k] > 5:
            total += x[k]
    else:
        total += 1
    return total


def summed_solutions(x, points):
    total = np.zeros(3)
    for z in points:
        found = np.linalg.solve(x + z * np.eye(3), np.ones(3))
        if z < 1:
            found = -found
        total += found
    return total


def test_rounds_that_solve_stay_a_loop():
    """Nothing around becomes part of what a function of its own computes, so that unrolling gains nothing."""
    x, points = np.random.default_rng(0).normal(size=(3, 3)), np.linspace(0.5, 1.5, 12)
    agree(summed_solutions, x, points)
    gm = fx.symbolic_trace(summed_solutions, x, points)
    assert len(gm.graph) < 15
    assert "12 rounds, which compute solve" in str(passes.ledger(gm)[-1])
    assert "fori_loop" not in ops_of(fx.symbolic_trace(summed_solutions, x, points[:8]))


@pytest.mark.parametrize(
    "program", [sieve_of, left_by_break, by_steps_of_a_float, rolled_on, sorted_by_two_whiles, counted_down_with_else]
)
def test_a_long_while_loop_of_known_rounds_stays_one(program):
    """Its number of rounds is not known before it has run, so that it stays a loop after some of them."""
    x = np.abs(np.random.default_rng(0).standard_normal(10000)) + 0.5
    gm = fx.symbolic_trace(program, "f64[10000]")
    assert len(gm.graph.nodes) < 20
    assert any("stays a loop: " in str(entry) for entry in passes.ledger(gm))
    expected = program(x.copy())
    for run in (gm, fx.compile(gm), fx.jit(program)):
        found = run(x.copy())
        for one, other in zip(*((v if isinstance(v, tuple) else (v,)) for v in (found, expected)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9)


def transformed(x):
    """The FFT of a power of two of numbers, in place."""
    a, n = x.astype(complex), len(x)
    bits = n.bit_length() - 1
    for i in range(n):
        r = 0
        for b in range(bits):
            if i >> b & 1:
                r |= 1 << (bits - 1 - b)
        if r > i:
            a[i], a[r] = a[r], a[i]
    size = 2
    while size <= n:
        combined(a, size)
        size *= 2
    return a


def combined(a, size):
    half = size // 2
    w = np.exp(-2j * np.pi * np.arange(half) / size)
    for s in range(0, len(a), size):
        u, v = a[s : s + half].copy(), a[s + half : s + size] * w
        a[s : s + half] = u + v
        a[s + half : s + size] = u - v


def transformed_by_stages(x):
    n = len(x)
    order = np.zeros(n, int)
    for stage in range(n.bit_length() - 1):
        order[1 << stage : 2 << stage] = order[: 1 << stage] + (n >> (stage + 1))
    a = x[order].astype(complex)
    for stage in range(n.bit_length() - 1):
        combined(a, 2 << stage)
    return a


@pytest.mark.parametrize("program", [transformed, transformed_by_stages])
def test_a_loop_whose_arrays_differ_from_round_to_round_is_unrolled_and_writes_only_parts(program):
    """A loop over sizes that stayed one would compute whole arrays under masks. The loops in it stay loops, whichever
    of their rounds write, and each of their rounds writes only its own elements."""
    x = np.random.default_rng(0).standard_normal(2048)
    gm = fx.symbolic_trace(program, "f64[2048]")
    assert len(gm.graph.nodes) < 300
    inside = [n for node in gm.graph.nodes for b in node.kwargs.values() if hasattr(b, "calls") for n in b.calls]
    assert not any(n.target.name == "where" and 2048 in n.type.shape for n in inside)
    np.testing.assert_allclose(fx.compile(gm)(x), np.fft.fft(x), atol=1e-9)


def shifted(y):
    for i in range(40):
        y[i * 5 : i * 5 + 5] = y[i * 5 + 1 : i * 5 + 6] * 2 + y[0]
    return y


def shifted_under_a_condition(y):
    for i in range(30):
        if y[i] > 0:
            y[i : i + 100] = y[i + 2 : i + 102] - y[i : i + 100]
    return y


def rows_and_columns(y):
    z = y.reshape(21, 10).copy()
    for i in range(7):
        z[3 * i : 3 * i + 3] = y[i]
        z[:, i : i + 2] = z[:, i : i + 2] + y[i] * z[:, i + 1 : i + 3]
        z[i, i : i + 2], z[2:4, i : i + 3] = -1, y[:3]
    return z


def turned_in_place(y):
    for i in range(len(y) // 3):
        y[3 * i : 3 * i + 3] = y[3 * i : 3 * i + 3][::-1]
        y[3 * i : 3 * i + 1] = 3
    return y


def numbers_of_another_dtype(y):
    w = y.astype(np.float32)
    for i in range(100):
        w[i : i + 10] = w[i : i + 10] + y[:10]
        w[i : i + 3] = [1, 2, 3]
    return w


@pytest.mark.parametrize(
    "program", [shifted, shifted_under_a_condition, rows_and_columns, turned_in_place, numbers_of_another_dtype]
)
def test_slices_of_known_length_that_loops_write(program):
    y = np.random.default_rng(0).standard_normal(210)
    expected = program(y.copy())
    for loops in ("auto", "keep"):
        gm = fx.symbolic_trace(program, "f64[210]", loops=loops)
        for run in (gm, fx.compile(gm)):
            found = run(y.copy())
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found, expected, rtol=1e-5)


def every_so_many(y):
    for i in range(1, 30):
        y[i::i] = y[i] * i
        if y[i] > 0:
            y[i:-5:i] = i
            y[5000 * i : 4000 * i : i + 1] = 7
            y[-i :: i * 2**58] = -1
    return y


def every_so_many_rows(y):
    z = np.zeros((9000, 3))
    for i in range(1, 80):
        z[i * i :: i] = y[i] * i
        z[i, i % 2 :: i] = i
    return z


def with_parts_read(y):
    z = np.zeros_like(y)
    for i in range(1, 80):
        z[i:] += y[i::i].sum() * 2
        z[i::i] = y[i]
    return z


@pytest.mark.parametrize("size", ["12000", "N"])
@pytest.mark.parametrize("program", [every_so_many, every_so_many_rows, with_parts_read])
def test_slices_with_computed_steps_that_loops_write(program, size):
    y = np.random.default_rng(0).standard_normal(12000)
    gm = fx.symbolic_trace(program, f"f64[{size}]")
    inside = [n for node in gm.graph.nodes for b in node.kwargs.values() if hasattr(b, "calls") for n in b.calls]
    assert any(n.target.name == "fori_loop" for n in inside)
    for run in (gm, fx.compile(gm)):
        np.testing.assert_allclose(run(y.copy()), program(y.copy()))


def test_a_short_while_loop_of_known_rounds_stays_one_on_demand():
    def doubled(x):
        n = 1
        while n < 8:
            x = x * n + 1
            n *= 2
        return x

    x = np.random.default_rng(0).standard_normal(5)
    gm = fx.symbolic_trace(doubled, "f64[5]", loops="keep")
    assert any(node.op == "call_function" and node.target.name == "while_loop" for node in gm.graph.nodes)
    for run in (gm, fx.compile(gm)):
        np.testing.assert_allclose(run(x), doubled(x))


def test_a_long_while_loop_that_cannot_stay_one_is_unrolled():
    def parts(x):
        n, total = 1, 0.0
        while n < 100:
            total = total + np.ones((n, 2))[:, 0].sum() * (x[0] if x[n] > 0 else 2.0)
            n = n + 1
        return total

    x = np.random.default_rng(0).standard_normal(100)
    np.testing.assert_allclose(fx.symbolic_trace(parts, x="f64[100]")(x), parts(x))


def input_or_copy(x):
    y = x if x[0] > 0 else -x
    y[0] = 3
    return x, y


def exchanged(x):
    a, b = x * 1, x + 1
    first, second = (a, b) if x[0] > 0 else (b, a)
    first[0] = 77
    a[1] = 5
    second[1] += first[1]
    return a, b, first, second


def one_of_three(x):
    a, b, c = x * 1, x + 1, x * 3
    if x[0] > 2:
        d = a
    elif x[0] > 0:
        d = b
    else:
        d = c if x[1] > 0 else x * 5
    d[0] = 5
    a[1], b[2], c[3] = 2, 4, 6
    d[::-1][0] += 1
    return a, b, c, d


def larger_one(x):
    a, b = x * 1, x + np.array([1.0, -5.0, 2.0, 0.5])
    best = max(a, b, key=np.sum)
    best[0] = -9
    low, high = sorted([a, b], key=lambda v: v[1])
    low += 1
    high.sort()
    return a, b, best, low, high


def item_of_list(x):
    rows = [x * 1, x + 1, x * 2]
    k = int(abs(x[0])) % 3
    row = rows[k]
    row[0] = 9
    rows[1][1] = 8
    rows[k - 1] += row[1]
    return (*rows, row)


def two_buffers(x):
    buffers = [x * 1, np.zeros_like(x)]
    for step in range(60):
        old, new = buffers[step % 2], buffers[(step + 1) % 2]
        new[1:-1] = (old[:-2] + old[2:]) / 2
        new[0], new[-1] = old[0], old[-1]
    return buffers[0], buffers[1]


def proposals(x):
    a, b = x * 1, x + 1
    for i in range(60):
        c = a if a[i % 4] > b[0] else b
        c[0] += 0.25
        a[1] -= 0.125
    return a, b, c


def swapped_and_swapped(x):
    """As many conditions as elements, of which each exchanges the names."""
    x = np.concatenate([x, x[::-1] * 0.5])
    a, b = np.zeros(3), np.ones(3)
    first, c = a, np.full(3, 2.0)
    for v in x:
        if v > 0.5:
            a, b = b, a
        elif v > 2:
            b, c = c, b
        a += v
        np.add.at(b, [0, 0], v)
        first[1] -= 1
    return a, b, c, first


def arrays_of_rank_0(x):
    a, b = np.zeros(()), np.ones(())
    c = a if x[0] > 0 else b
    c += x[1]
    return a, b, c


@pytest.mark.parametrize(
    "program",
    [
        input_or_copy,
        exchanged,
        one_of_three,
        larger_one,
        item_of_list,
        two_buffers,
        proposals,
        arrays_of_rank_0,
        swapped_and_swapped,
    ],
)
def test_writes_into_one_of_several_arrays(program):
    """A write shows in the array that the name stands for, and one into that array shows under the name."""
    graph = fx.symbolic_trace(program, x="f64[4]")
    compiled = fx.compile(graph, backend="c")
    for given in ([1.0, 4.0, 2.0, 3.0], [-0.5, 0.0, 6.0, 2.5], [3.0, -0.25, 5.0, 1.0], [-7.0, 8.0, -0.5, 1.25]):
        expected = written(graph, program, (np.array(given),))
        for call in (graph, compiled):
            compare(program.__name__, written(graph, call, (np.array(given),)), expected)
