"""Scatters in C: what they read is computed in their loops, which go along memory, on threads, too."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.codegen.c import templates
from fxlite.codegen.kernel.kernel_ir import For, statements
from fxlite.codegen.kernel.schedule import schedule
from fxlite.codegen.program.program import optimize, plan
from tests.codegen.compiling import emitted
from tests.graphs import ops_of
from tests.oracle import agree

_AT = np.array([3, -1, 3, 0, 3, 2])


def messages(x: Any, y: Any, i: Any) -> Any:
    """Rows that are looked up, weighted and added to others, as in a graph network."""
    out = np.zeros_like(x)
    np.add.at(out, i, x[i[::-1]] * y[:, None])
    return np.maximum(out, 0)


def columns(x: Any, y: Any, i: Any) -> Any:
    out = x * 2
    np.maximum.at(out, (slice(None), i), x[:, :1] + y)
    return out


def middle(x: Any, y: Any, i: Any) -> Any:
    out = np.stack([x, -x], 1)
    np.add.at(out, (slice(None), i % 2), (x[:, None, :1] + y[:, None]) * np.ones(x.shape[1]))
    return out


def written(x: Any, y: Any, i: Any) -> Any:
    x[i] = y[:, None]
    x[:, i] = x[:, i] + y
    return x


def pairs(x: Any, y: Any, i: Any) -> Any:
    np.add.at(x, (i, i[::-1]), abs(y))
    return x


def counted(x: Any, y: Any, i: Any) -> Any:
    out = np.zeros(4, np.int64)
    np.add.at(out, i, 1)
    return out, np.bincount(i + 1, y, 8)


@pytest.mark.parametrize("program", [messages, columns, middle, written, pairs, counted], ids=lambda p: p.__name__)
@pytest.mark.parametrize("width", [4, 64])
def test_all_ways_agree(program: Callable[..., Any], width: int) -> None:
    rng = np.random.default_rng(0)
    agree(program, rng.normal(size=(4, width)), rng.normal(size=6), _AT)


def nests(program: Callable[..., Any], *given: Any) -> list[list[str]]:
    """The kinds of the loops, outermost first, of each kernel that scatters."""
    module, _ = optimize(fx.symbolic_trace(program, *given))
    groups = [g for g in plan(module, templates.claims).groups if g.kind == "scatter"]
    found = []
    for group in groups:
        *_, last = (s for s in schedule(group, "kernel").body if isinstance(s, For))
        found.append([s.kind for s in statements((last,)) if isinstance(s, For)])
    return found


def test_rows_are_the_inner_loop() -> None:
    x, y, i = np.ones((4, 40)), np.ones(6), _AT
    assert nests(messages, x, y, i) == [["serial", "simd"]]
    assert nests(messages, np.ones((4, 128)), y, i) == [["parallel", "serial", "simd"]]
    assert nests(columns, x, y, i) == [["parallel", "serial"]]


def test_cheap_operands_need_no_kernel() -> None:
    made = emitted(messages, "f32[N,64]", "f32[M]", "i64[M]")
    assert [call.name for call in made.calls] == ["k0_scatter_add", "k1_relu"]


def test_expensive_operands_are_computed_in_vectors() -> None:
    def program(x: Any, y: Any, i: Any) -> Any:
        out = np.zeros_like(x)
        np.add.at(out, i, np.exp(y)[:, None])
        return out

    made = emitted(program, np.ones((4, 64)), np.ones(6), _AT)
    assert [call.name for call in made.calls] == ["k0_exp", "k1_scatter_add"]


def test_threads_give_the_same_bits() -> None:
    rng = np.random.default_rng(1)
    given = rng.normal(size=(50, 256)).astype("f4"), rng.normal(size=3000).astype("f4"), rng.integers(-50, 50, 3000)

    def program(x: Any, y: Any, i: Any) -> Any:
        out = np.zeros_like(x)
        np.add.at(out, i, x[i] * y[:, None])
        return out

    one, two = (fx.compile(program, *given, threads=n)(*given) for n in (1, 2))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_allclose(one, program(*given), rtol=1e-4, atol=1e-3)


def histogram(x: Any, v: Any, i: Any) -> Any:
    counts, sums, largest = np.zeros(37, np.int64), np.zeros(37, np.float32), np.full((9, 3), -2.0)
    np.add.at(counts, i, 1)
    np.add.at(sums, i % 37, v)
    np.maximum.at(largest, i % 9, x)
    return counts, sums, largest


def selected(x: Any, v: Any, i: Any) -> Any:
    return np.bincount(i[v > 0] + 37, v[v > 0], 80), np.histogram(v, 30, (-2, 2))[0]


@pytest.mark.parametrize("program", [histogram, selected], ids=lambda p: p.__name__)
@pytest.mark.parametrize("size", [150_001, "N"])
def test_threads_fill_tables_of_their_own(program: Callable[..., Any], size: Any) -> None:
    rng, count = np.random.default_rng(2), 150_001
    given = rng.normal(size=(count, 3)), rng.normal(size=count).astype("f4"), rng.integers(-37, 37, count)
    types = [f"f64[{size},3]", f"f32[{size}]", f"i64[{size}]"]
    calls = [fx.compile(program, inputs=dict(zip("xvi", types)), threads=n) for n in (1, 2, 3)]
    found = [call(*given) for call in calls]
    for each in found[1:]:
        for one, other in zip(found[0], each, strict=True):
            np.testing.assert_array_equal(one, other)
    for one, expected in zip(found[0], program(*given), strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-3, atol=1e-3)
    source = "".join(calls[0].sources.values())
    assert len(re.findall(r"\w+ of_place\[\d+\]( = \{0\})?;", source)) == len(found[0]), source
    if size == "N":
        few = [a[:5] for a in given]
        for one, expected in zip(calls[1](*few), program(*few), strict=True):
            np.testing.assert_allclose(one, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("types", [None, ["f64[N,3]", "f32[N]", "i64[N]"]], ids=["fixed", "named"])
def test_all_ways_agree_on_tables(types: list[str] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fxlite.codegen.kernel.schedule.LONG", 64)
    monkeypatch.setattr("fxlite.codegen.kernel.schedule.FEWEST_ADDED", 1)
    rng = np.random.default_rng(3)
    given = rng.normal(size=(301, 3)), rng.normal(size=301).astype("f4"), rng.integers(-37, 37, 301)
    agree(histogram, *given, types=types)
    agree(selected, *given)


def test_a_wrong_position_is_an_error_on_all_threads() -> None:
    given = np.ones((150_001, 3)), np.ones(150_001, "f4"), np.zeros(150_001, np.int64)
    call = fx.compile(histogram, *given, threads=2)
    given[2][140_000] = 37
    with pytest.raises(IndexError, match="index 37 is out of bounds for size 37: node scatter_add"):
        call(*given)


@pytest.mark.parametrize("wrong", [4, -5])
def test_positions_out_of_range_are_errors(wrong: int) -> None:
    given = np.ones((4, 40)), np.ones(6), np.array([0, 1, wrong, 0, 0, 0])
    with pytest.raises(IndexError, match=rf"index {wrong} is out of bounds for size 4: node scatter_add"):
        fx.compile(messages, np.ones((4, 40)), np.ones(6), _AT)(*given)


def steps(y: Any, i: Any, v: Any) -> Any:
    """Scatters of all kinds into one array, from elements of it, at positions that depend on it."""
    for t in range(i.shape[0]):
        np.add.at(y, i[t], v[t])
        y[i[t]] = y[i[t][::-1]] * 0.5
        np.maximum.at(y, i[t], y[i[t] - 1])
        y[np.abs(y[i[t, :4]]).astype(np.int64) % 7] = v[t, :4]
    return y


@pytest.mark.parametrize("loops", ["keep", "unroll"])
def test_an_array_that_only_its_scatter_reads_is_not_copied(loops: str) -> None:
    rng = np.random.default_rng(0)
    y, i, v = rng.normal(size=500), rng.integers(0, 500, (5, 6)), rng.normal(size=(5, 6))
    agree(steps, y, i, v, loops=loops)
    agree(steps, y, i, v, loops=loops, types=["f64[N]", "i64[5,6]", "f64[5,6]"])
    call = fx.jit(steps, loops=loops, dynamic=False)
    mine, yours = y.copy(), y.copy()
    assert call(mine, i, v) is mine
    np.testing.assert_allclose(mine, steps(yours, i, v))
    assert "500; ++" not in call.source, call.source

    def read_later(y: Any, i: Any, v: Any) -> Any:
        z = y * 1.0
        np.add.at(y, i[0], v[0])
        w = z.copy()
        np.add.at(w, i[1], v[1])
        return y + z, w

    agree(read_later, y, i, v)


def where_a_mask_says(y: Any, i: Any, v: Any) -> Any:
    """Writes at positions that a mask selects, of one axis and of both."""
    rows, columns = i % y.shape[0], i[::-1] % y.shape[1]
    chosen = v > 0
    y[rows[chosen], columns[chosen]] = v[chosen]
    y[rows[chosen]] += 1
    chosen = np.flatnonzero(v < -0.5)
    y[rows[chosen], columns[chosen]] = chosen
    np.add.at(y, (rows[chosen], columns[chosen]), v[chosen])
    np.subtract.at(y, rows[chosen], v[chosen][:, None])
    np.maximum.at(y, rows[v > 1], 0.25)
    np.multiply.at(y, (rows[v > 1], columns[v > 1]), 0.5)
    mesh = np.ix_(np.flatnonzero(y[:, 0] > y[:, 1]), np.flatnonzero(y[0] > 0))
    np.add.at(y, mesh, 2.0)
    y[mesh] += 1
    return y


@pytest.mark.parametrize("types", [None, ["f64[A,B]", "i64[N]", "f64[N]"]])
def test_what_a_mask_leaves_out_is_not_written(types: list[str] | None) -> None:
    rng = np.random.default_rng(2)
    y, i, v = np.full((4, 7), -0.0), rng.integers(0, 900, 400), rng.normal(size=400)
    found = agree(where_a_mask_says, y, i, v, types=types)
    names = set(ops_of(found))
    assert not names & {"concat", "slice"}
    compiled = fx.compile(found, backend="c")
    for few in (v, np.abs(v), -np.abs(v), np.zeros_like(v)):
        mine, yours = y.copy(), y.copy()
        where_a_mask_says(yours, i, few)
        compiled(mine, i, few)
        np.testing.assert_allclose(mine, yours)
        np.testing.assert_array_equal(np.signbit(mine), np.signbit(yours))


def test_writes_at_pairs_of_positions_are_in_place() -> None:
    def program(y: Any, i: Any, j: Any, v: Any) -> Any:
        y[i, j] = v
        y[i[v > 0.5], j[v > 0.5]] = 0.0

    call = fx.jit(program, backend="c", dynamic=False)
    rng = np.random.default_rng(3)
    y, i, j, v = rng.normal(size=(20, 30)), rng.integers(-20, 20, 50), rng.integers(0, 30, 50), rng.random(50)
    mine, yours = y.copy(), y.copy()
    call(mine, i, j, v)
    program(yours, i, j, v)
    np.testing.assert_array_equal(mine, yours)
    assert "600; ++" not in call.source, call.source
    assert "fx_copy(y" not in call.source, call.source
