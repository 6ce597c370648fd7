"""Sizes that depend on values in C: what a mask selects is computed with as long as it is, and what is found is what
NumPy finds, whether the mask holds nowhere, seldom or everywhere."""

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import passes
from fxlite.codegen.program.data_sizes import with_data_sizes
from fxlite.codegen.program.program import Program
from tests.codegen.compiling import c_file, make_test

X = np.random.default_rng(0).random(600)
#: Bounds of X above which are none of its numbers, few, and all.
BOUNDS = (2.0, 0.97, -1.0)


def _elements(x: Any, t: Any) -> Any:
    s = x[x > t]
    return np.exp(s) * 2, np.sort(s), np.cumsum(s), s.astype(np.float32), np.where(s > 0.99, s, 1 - s)


def _numbers(x: Any, t: Any) -> Any:
    s = x[x > t]
    return s.sum(), len(s), (s > 0.98).sum(), np.histogram(s, bins=4, range=(0.0, 1.0))[0], np.any(s > 0.99)


def _positions(x: Any, t: Any) -> Any:
    i = np.nonzero(x > t)[0]
    return i, x[i] - x[i - 1], np.sin(i * 0.5), np.diff(i), i[2:] * i[:-2], x[i][3:]


def _selections(x: Any, t: Any) -> Any:
    s = x[x > t]
    again = s[s < 0.99]
    return np.sqrt(again), s[1:], np.append(s, 0.5), np.unique(np.round(s, 1))


def _writes(x: Any, t: Any) -> Any:
    i, y = np.flatnonzero(x > t), np.zeros((5, 120))
    y[i % 5, i // 5] = x[i]
    np.add.at(y, (i % 2, i % 3), x[i] + 1)
    return y, np.sort(x[i])


PROGRAMS = [_elements, _numbers, _positions, _selections, _writes]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("shape", ["f64[N]", "f64[600]"])
def test_as_numpy(program: Callable[..., Any], shape: str) -> None:
    module = fx.symbolic_trace(program, shape, "f64[]")
    compiled = fx.compile(module, backend="c")
    assert "fx_min(*" in next(iter(compiled.program.sources.values())), "no size depends on values"
    for bound in BOUNDS:
        for got, expected in zip(compiled(X, np.float64(bound)), program(X, bound), strict=True):
            assert np.shape(got) == np.shape(expected)
            np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-12)


def _loops(function: Callable[..., Any], *types: str) -> list[str]:
    """The calls of the run function in C."""
    return re.findall(r"^    (k\d.*);", c_file(function, *types), re.MULTILINE)


def test_what_is_selected_is_all_that_is_computed() -> None:
    calls = _loops(lambda x: np.exp(x[x > 0.9]), "f64[N]")
    assert [call for call in calls if "take" in call and "n_sum" in call], calls


@pytest.mark.parametrize("program", [np.diff, lambda i: i[1:] * i[:-1], lambda i: i[5:]])
def test_of_what_is_selected_a_part_is_computed_as_short(program: Callable[..., Any]) -> None:
    last = _loops(lambda x: program(np.flatnonzero(x > 0.9)), "f64[600]")[-1]
    assert "n_sum" in last, last


def test_of_few_positions_all_are_computed_with() -> None:
    assert not [call for call in _loops(lambda x: np.exp(x[x > 0.9]), "f64[100]") if "n_sum" in call]


def _sum_of_tails(x: Any) -> Any:
    places = fx.ops.flatnonzero(x > 0.9)
    return fx.ops.sum(fx.ops.take(x, places)), fx.ops.max(fx.ops.take(x, places)), places


def test_elements_that_do_not_count_are_read() -> None:
    """Of ``flatnonzero`` itself all elements are results, and in a sum the element at 0 stands for each that
    does not count."""
    module = fx.symbolic_trace(_sum_of_tails, "f64[N]")
    assert not with_data_sizes(module)[1]
    for got, expected in zip(fx.compile(module, backend="c")(X), module(X), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)


def _read(x: Any, i: Any) -> Any:
    s = np.sort(x[x > 0.97])
    return s[i], s[-1]


def test_a_position_behind_the_count_is_an_error() -> None:
    function = fx.compile(fx.symbolic_trace(_read, "f64[N]", "i64[]"), backend="c")
    count = int((X > 0.97).sum())
    expected = np.sort(X[X > 0.97])
    for place in (0, count - 1, -1, -count):
        np.testing.assert_array_equal(function(X, np.int64(place)), (expected[place], expected[-1]))
    for place in (count, count + 1, -count - 1, 600, -601):
        with pytest.raises(IndexError):
            function(X, np.int64(place))


def _outer(x: Any, y: Any) -> Any:
    i, j = fx.ops.flatnonzero(x > 0.9), fx.ops.flatnonzero(y > 0.9)
    a, b = fx.ops.take(x, i), fx.ops.take(x, j)
    return (a[:, None] * b[None, :]).max(axis=1).max(), (a[:, None] + b).min(axis=0).max()


def test_two_selections_in_one_value() -> None:
    module = fx.symbolic_trace(_outer, "f64[N]", "f64[N]")
    got = fx.compile(module, backend="c")(X, X[::-1].copy())
    np.testing.assert_allclose(got, module(X, X[::-1].copy()), rtol=1e-12)


def test_rows_that_a_mask_selects() -> None:
    rows = np.random.default_rng(1).normal(size=(400, 5))

    def program(x: Any) -> Any:
        s = x[x[:, 0] > 1.0]
        return s * 2, s.max(axis=1)

    compiled = fx.compile(fx.symbolic_trace(program, "f64[N,5]"), backend="c")
    for got, expected in zip(compiled(rows), program(rows), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_profile_and_memory_plan() -> None:
    module = fx.symbolic_trace(lambda x: np.sort(x[x > 0.97]) * 2, "f64[N]")
    found = passes.profile(module, X, backend="c", repeat=3)
    count = int((X > 0.97).sum())
    (sort,) = (row for row in found.rows if row.node.name == "sort")
    assert sort.bytes == 2 * 8 * (count + 1)
    plan = fx.compile(module, backend="c").memory_plan(N=600)
    assert {buffer.nbytes for buffer in plan.buffers if buffer.node.name != "gt"} == {600 * 8}


def test_self_test_of_a_folder(tmp_path: Path) -> None:
    fx.compile(fx.symbolic_trace(_elements, "f64[N]", "f64[]"), backend="c").save(tmp_path)
    done = make_test(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_size_that_would_be_known_too_late(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where groups stand in another order, all elements are computed with."""
    monkeypatch.setenv("FXLITE_CACHE", str(tmp_path))  # the program of another test is kept
    monkeypatch.setattr(Program, "knows_data_sizes", property(lambda program: not program.data_sizes))
    compiled = fx.compile(fx.symbolic_trace(_positions, "f64[N]", "f64[]"), backend="c")
    assert "fx_min(*" not in next(iter(compiled.program.sources.values()))
    for got, expected in zip(compiled(X, np.float64(0.97)), _positions(X, 0.97), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)


# -- random programs -------------------------------------------------------------------------------
SELECTIONS = ["x[x > {}]", "x[(x > {}) & (y < 0.7)]", "np.flatnonzero(x > {}) * 0.5", "np.compress(x > {}, y)"]
STEPS = (
    "np.exp(s)|s * 2 + 1|np.sort(s)|np.cumsum(s)|np.diff(s)|s[1:]|s[:-1]|s[s > s.mean()]|s[s < 0.95]|s[2:5]|-s|"
    "np.where(s > 0.5, s, 1 - s)|np.unique(np.round(s, 1))|np.append(s, 0.5)|np.concatenate((s, s * 2))"
).split("|")
ENDS = "s|s.sum()|(s.mean(), len(s))|np.histogram(s, bins=5, range=(0.0, 1.0))[0]|(s > 0.5).sum()|np.sort(s)[:3]"


def _program(seed: int) -> str:
    draw = random.Random(seed)
    lines = [f"s = {draw.choice(SELECTIONS).format(draw.choice(['0.97', '0.5', '-1']))}"]
    lines += [f"s = {draw.choice(STEPS)}" for _ in range(draw.randint(1, 3))]
    return "\n    ".join(["def program(x, y):", *lines, f"return {draw.choice(ENDS.split('|'))}"])


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed: int, tmp_path: Path) -> None:
    path = tmp_path / f"program_{seed}.py"
    path.write_text(f"import numpy as np\n{_program(seed)}\n", encoding="utf-8")
    space: dict[str, Any] = {"__name__": "p"}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), space)
    program, y = space["program"], X[::-1].copy()
    with np.errstate(all="ignore"):
        expected = program(X, y)
    got = fx.compile(fx.symbolic_trace(program, "f64[N]", "f64[N]"), backend="c")(X, y)
    parts = (got, expected) if isinstance(expected, tuple) else ((got,), (expected,))
    for one, other in zip(*parts, strict=True):
        assert np.shape(one) == np.shape(other)
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


# -- the positions below a number ------------------------------------------------------------------
def _attention(q: Any, keys: Any, values: Any, n: Any) -> Any:
    scores = q @ keys[:n].T
    return passes_softmax(scores) @ values[:n]


def passes_softmax(x: Any) -> Any:
    return fx.nn.functional.softmax(x, -1)


def _rows(q: Any, keys: Any, values: Any, n: Any) -> Any:
    hidden = np.tanh(keys[:n] @ q.T)
    return hidden.sum(0), np.sqrt(abs(hidden)).max(), np.where(np.arange(300) < n, (values * 2).sum(1), 0).sum()


def _heads(q: Any, keys: Any, values: Any, n: Any) -> Any:
    k, v = (a[:n].reshape(-1, 2, 4).transpose(1, 0, 2) for a in (keys, values))
    scores = q.reshape(-1, 2, 4).transpose(1, 0, 2) @ k.transpose(0, 2, 1) / np.float32(2)
    seen = np.arange(300)[:n] <= n - 2
    return passes_softmax(np.where(seen, scores, np.float32(-1e9))) @ v


def _masked(q: Any, keys: Any, values: Any, n: Any) -> Any:
    mask = n >= np.arange(300)
    whole = np.where(mask[:, None], values, 1)
    products = np.where(mask, q @ keys.T, 0)
    return products @ np.where(mask[:, None], values, 0), whole, products.sum(-1)


def _kept(q: Any, keys: Any, values: Any, n: Any) -> Any:
    scores = q @ keys.T
    total = np.where(np.arange(300) < n, scores, 0).sum(-1)
    return scores, total, (keys @ keys.T)[:n].sum(), scores[:, :n] @ values[:n]


@pytest.mark.parametrize("program", [_attention, _rows, _heads, _masked, _kept])
def test_of_the_first_positions_as_much_is_computed(program: Callable[..., Any]) -> None:
    """Numbers that are too large or count from the end, and what is not read may be anything."""
    rng = np.random.default_rng(0)
    q, keys, values = (rng.standard_normal((n, 8), np.float32) for n in (2, 300, 300))
    module = fx.symbolic_trace(program, q, keys, values, "i64[]")
    compiled = fx.compile(module, backend="c")
    (text, *_) = compiled.program.sources.values()
    assert re.search(r"^    k\d\w*\(.*n_.*// \w+: f32\[.*n_|matmul: f32\[.*n_", text, re.MULTILINE), "no product is cut"
    for n in (1, 2, 17, 299, 300, 301, 1000, -1, -20):
        given = [a.copy() for a in (keys, values)]
        if program is not _kept and program is not _masked and program is not _rows:
            for a in given:
                a[n if n >= 0 else 300 + n :] = np.nan
        expected = program(q, *given, n)
        found = compiled(q, *given, np.array(n))
        for one, other in zip(*((v if isinstance(v, tuple) else (v,)) for v in (found, expected)), strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-5, err_msg=str(n))


def test_other_products_take_all_positions() -> None:
    def unmasked(x: Any, y: Any, n: Any) -> Any:
        return np.where(np.arange(300) < n, x, 0) @ y  # what is infinite in y makes it NaN

    module = fx.symbolic_trace(unmasked, "f32[2,300]", "f32[300,8]", "i64[]")
    assert with_data_sizes(module)[0] is module


def test_an_index_that_nobody_needs_may_be_out_of_range() -> None:
    def looked_up(q: Any, keys: Any, places: Any, n: Any) -> Any:
        mask = np.arange(300) < n
        return np.where(mask, q @ keys[places].T, 0) @ np.where(mask[:, None], keys, 0)

    rng = np.random.default_rng(0)
    q, keys = (rng.standard_normal((n, 8), np.float32) for n in (2, 300))
    places = np.arange(300)[::-1].copy()
    compiled = fx.compile(fx.symbolic_trace(looked_up, q, keys, places, "i64[]"), backend="c")
    np.testing.assert_allclose(compiled(q, keys, places, np.array(7)), looked_up(q, keys, places, 7), rtol=1e-4)
    places[299] = 300
    for program in (compiled, looked_up):
        with pytest.raises(IndexError):
            program(q, keys, places, np.array(7))
