"""Arrays whose size values decide: what masks select, np.nonzero, np.unique, np.repeat; as results, where
their order counts, and from round to round of loops, on all rungs as NumPy has them."""

from __future__ import annotations

import runpy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import FxliteError, TraceError

RNG = np.random.default_rng(5)
X = RNG.normal(0, 2, 11)
K = RNG.integers(-3, 4, 17)

PROGRAMS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "selected": (lambda x: x[x > 0], [X]),
    "none": (lambda x: (x[x > 99], np.flatnonzero(x > 99), len(x[x > 99]) + x), [X]),
    "nested": (lambda x: {"a": (x[x > 0] * 2, x.sum()), "b": [x[x < 0]]}, [X]),
    "rows": (lambda x: (x[x[:, 0] > 0], x[x > 1], x[x[:, 1] > 0].sum(axis=1)), [X[:10].reshape(5, 2)]),
    "order": (
        lambda x: (
            np.sort(x[x > 0]),
            np.argsort(x[x < 1]),
            np.cumsum(x[x > 0]),
            np.diff(x[x > 0]),
            x[x > 0].argmax() * x,
            np.argmin(x[x > 0]),
            np.median(x[x > 0]),
        ),
        [X],
    ),
    "parts": (
        lambda x: (x[x > 0][0], x[x > 0][-1], x[x > 0][1:], x[x > 0][:-1][::-1], x[x > 0][np.array([1, 0])]),
        [X],
    ),
    "pairs": (lambda x: (x[x > 0][1:] - x[x > 0][:-1]).sum(), [X]),
    "joined": (lambda x: np.concatenate([x[x > 0], x[x < -1], x[:2]]), [X]),
    "dot": (lambda x: (x[x > 0] @ x[x > 0], np.dot(x[x > 0], x[x > 0] + 1)), [X]),
    "nonzero": (lambda k: (np.nonzero(k), np.flatnonzero(k > 1), np.argwhere(k < 0), k[np.nonzero(k)]), [K]),
    "nonzero of two axes": (lambda k: (np.nonzero(k), np.argwhere(k > 0), k.nonzero()[0]), [K[:12].reshape(3, 4)]),
    "unique": (lambda k: np.unique(k), [K]),
    "unique and more": (
        lambda k: np.unique(k, return_index=True, return_inverse=True, return_counts=True),
        [K.astype(np.float64)],
    ),
    "unique of some": (lambda k: (np.unique(k[k > 0]), np.unique(k[k != 1], return_counts=True)), [K]),
    "unique with NaN": (lambda x: np.unique(x, return_counts=True), [np.array([np.nan, 1, 1, np.nan, 0])]),
    "unique rows": (
        lambda k: (np.unique(k, axis=0), np.unique(k[:, ::-1], axis=-1, return_index=True, return_inverse=True)),
        [K[:16].reshape(8, 2) % 2],
    ),
    "unique rows and more": (
        lambda k: np.unique(k, axis=0, return_index=True, return_inverse=True, return_counts=True),
        [K[:16].reshape(8, 2, 1) % 2],
    ),
    "unique columns with NaN": (
        lambda x: np.unique(x, axis=1, return_counts=True),
        [np.array([[np.nan, 1, 1, np.nan, 0], [0, 2, 2, 0, 0]])],
    ),
    "along an axis": (
        lambda x, k: (x[:, k > 0], x[:, k > 0] * 2 + 1, x[..., k > 0].sum(axis=1), x[1, k > 0], x[k[:3] > 0, 1]),
        [X[:9].reshape(3, 3), K[3:6]],
    ),
    "between axes": (
        lambda x, k: (x[:, k > 0], x[:, k > 0, 1], x[1:, k > 0, ::2], x[:, k > 0].max(axis=1, initial=0)),
        [RNG.normal(size=(2, 5, 3)), K[:5]],
    ),
    "made as long": (
        lambda x: (
            np.zeros(len(x[x > 0])),
            np.ones((2, len(x[x > 0])), np.float32),
            np.full(x[x > 1].shape[0], 2.5) + x[x > 1],
            np.arange(len(x[x < 0])) * x[x < 0],
            np.zeros((x[x > 0].shape[0], 3)).sum(axis=1),
        ),
        [X],
    ),
    "looped over by number": (lambda x: _by_number(x), [X]),
    "repeat": (lambda x, n: (np.repeat(x, np.minimum(n, 3)), np.repeat(x, n % 2), x.repeat(n > 0)), [X[:5], K[:5] % 5]),
    "repeat by bounds": (
        lambda x, n: (
            np.repeat(x, np.clip(np.minimum(n, 1), 2, None)),
            np.repeat(x, np.maximum(np.minimum(n, 2) * 2 - 3, 0)),
            np.repeat(x, (n % 3 + 1) // 2),
            np.repeat(x, np.where(n > 0, n & 1, 2)),
            np.repeat(x, np.argsort(n)[::-1]),
            np.repeat(x, np.minimum(n.max() - n, 3)),
        ),
        [X[:5], K[:5]],
    ),
    "compress": (lambda x, k: (np.compress(k > 0, x), np.extract(x > 0, x) * 2), [X[:6], K[:6]]),
    "loop": (lambda x: _halved(x), [X]),
    "loop of lists": (lambda x: _escaping(x), [RNG.uniform(0, 1.3, 12)]),
    "nested branches": (lambda x: _escaping(x), [RNG.uniform(0, 1.3, 12)]),
    "branch": (lambda x: _either(x), [X]),
    "compact loop": (lambda x: _longest(x), [X]),
    "counted": (
        lambda k, d, x: (
            np.bincount(k % 5),
            np.bincount(np.abs(k).astype(np.uint8)).sum(),
            np.bincount(np.argmin(d, axis=1)),
            np.bincount((d > 0).sum(axis=1), weights=x[:4]),
            np.bincount(np.unique(k, return_inverse=True)[1]),
            np.bincount(np.digitize(x, [-1.0, 0.0, 1.0])),
            np.bincount(np.array([0, 2, 2, 1]), weights=x[:4]),
            len(np.bincount(k % 5)),
        ),
        [K, RNG.normal(size=(4, 6)), X],
    ),
    "trimmed": (
        lambda x, a: (
            np.trim_zeros(np.round(x / 4)),
            np.trim_zeros(np.round(x / 4), "f").sum(),
            np.trim_zeros(x * 0, "b"),
            np.trim_zeros(np.maximum(a, 1) - 1),
            np.trim_zeros(a * 0, axis=1),
        ),
        [X, RNG.normal(size=(4, 5))],
    ),
    "places in a selection": (
        lambda x, k: (
            np.nonzero(k[x > 0])[0],
            np.flatnonzero(x[x < 1] > 0),
            np.argwhere(k[k < 2]),
            np.bincount(np.flatnonzero(x > 0) % 3, weights=x[np.flatnonzero(x > 0)]),
            np.bincount(np.flatnonzero(x > 0)),
            np.bincount(k[k > 0], minlength=9),
            np.bincount(k % 4)[np.bincount(k % 4).nonzero()],
            np.where(x[x > 0] < 2)[0].sum(),
        ),
        [X, K[:11]],
    ),
    "products and parts of two axes": (
        lambda x, a, i: (
            np.outer(x[x > 0], x[x > 1]),
            a[x[:5] > 0] @ a[x[:5] > -1].T,
            a[x[:5] > 0] @ a,
            a[:, x[:5] > 0] @ x[x > 0][: len(x[:5][x[:5] > 0])],
            a[i:, i:][1:, 0],
            a[i:, :i][:, -1:],
            a[x[:5] > 0][:, x[:5] > 0][0, :1],
            a[i:, i:][-1],
        ),
        [X, RNG.normal(size=(5, 5)), np.int64(2)],
    ),
    "beside itself in another order": (
        lambda x, k: (
            np.cumsum(x[x > 0])[x[x > 0] < 2],
            x[k > 1][::-1],
            np.ptp(x[k > 0]),
            x[x > 99][np.flatnonzero(x[x > 99])],
            x[k[0] % 2 :][::-1].sum(),
        ),
        [X, K[:11]],
    ),
    "meshes": (
        lambda a, m: (
            a[np.ix_(m, m)],
            a[np.ix_(m, ~m)].sum(axis=0),
            a[np.ix_(m, [0, 1])] * 2,
            a[np.ix_(m, m)] @ a[np.ix_(m, m)].T,
            a[m][:, m],
            a[:, m][m],
            a[np.flatnonzero(m)][:, np.flatnonzero(~m)],
            a[m][:, 0],
            a[:, m][[1, 0]],
        ),
        [RNG.normal(size=(5, 5)), np.array([True, False, True, True, False])],
    ),
    "cut along two axes": (
        lambda a, i: (a[i[0] :, : i[1]], a[1 : i[1], i[0] : i[1]] * 2, a[i[1] :, i[1] :]),
        [RNG.normal(size=(5, 6)), np.array([1, 3])],
    ),
}


def _turned(y: Any) -> Any:
    return y[np.array([1, 0])]


def _halved(x: Any) -> Any:
    for _ in range(4):
        x = x[x > x.mean()]
        if len(x) < 2:
            break
    return x, x.sum()


def _escaping(c: Any) -> Any:
    z, out = np.zeros(c.shape), np.zeros(c.shape, np.int64)
    where = np.arange(len(c))
    for i in range(5):
        if not len(z):
            break
        np.multiply(z, z, z)
        np.add(z, c, z)
        gone = abs(z) > 1.2
        out[where[gone]] = i + 1
        np.logical_not(gone, gone)
        z, c, where = z[gone], c[gone], where[gone]
    return out, z


def _either(x: Any) -> Any:
    y = x[x > 0]
    if x.sum() > 0:
        y = y[y > 1]
    return y


def _by_number(x: Any) -> Any:
    y, out, total = x[x > 0], np.zeros(len(x)), 0.0
    for i in range(len(y)):
        total += y[i] * i
        out[i] = 2 * y[i]
    return total, out[: len(y)]


def _longest(x: Any) -> Any:
    places = np.flatnonzero(x > 0)
    best = 0.0
    for i in range(len(places) - 1):
        best = max(best, x[places[i]] + x[places[i + 1]])
    return best


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    program, inputs = PROGRAMS[name]
    module = fx.symbolic_trace(program, *inputs, loops="keep" if "loop" in name else "auto")
    module.graph.lint()
    expected = program(*(x.copy() for x in inputs))
    for rung in (fx.Interpreter(module).run, module, fx.compile(module)):
        _same(rung(*inputs), expected)


def _same(found: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        found, expected = [*found.values()], [*expected.values()]
    if isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            _same(one, other)
        return
    expected = np.asarray(expected)
    assert (np.shape(found), np.asarray(found).dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_of_named_sizes() -> None:
    module = fx.symbolic_trace(lambda x: (x[x > 0], np.unique(x)), "f64[N]")
    for size in (0, 1, 9):
        x = RNG.integers(-2, 3, size).astype(float)
        for function in (module, fx.compile(module)):
            _same(function(x), (x[x > 0], np.unique(x)))


@pytest.mark.parametrize(
    ("program", "kind", "selected"),
    [
        (lambda x, m: x[:, m] * 2, "f64[3,N]", "f64[3, sum ≤ N]"),
        (lambda x, m: x[np.ix_(m, ~m)], "f64[N,N]", "f64[sum ≤ N, sum_1 ≤ N]"),
    ],
    ids=["one axis", "two axes"],
)
def test_along_axes_in_source_and_file(program: Any, kind: str, selected: str, tmp_path: Any) -> None:
    """What is selected along another axis than the first, or along two, is cut there, wherever the program went."""
    module = fx.symbolic_trace(program, x=kind, m="bool[N]")
    assert selected in module.graph.text(full=True)
    module.to_folder(str(tmp_path))
    fx.save(module, tmp_path / "m.fxl")
    (source,) = tmp_path.glob("*.py")
    space = runpy.run_path(str(source))
    x, m = RNG.normal(size=(3 if kind == "f64[3,N]" else 7, 7)), K[:7] > 0
    model = next(v for v in space.values() if isinstance(v, type) and v.__module__ == "<run_path>")
    for rung in (module, fx.compile(module), fx.load(tmp_path / "m.fxl"), model()):
        _same(rung(x, m), program(x, m))


def test_what_nobody_reads_of_a_selection_is_not_in_the_graph() -> None:
    graph = fx.symbolic_trace(lambda x: (x[x > 0].sum(), np.flatnonzero(x > 0), np.unique(x)), "f64[N]").graph
    assert not [node.name for node in graph.nodes if node.op == "call_function" and not node.users]


def test_the_number_of_elements_is_a_number_of_python() -> None:
    def counts(x: Any, i: Any) -> Any:
        cut = np.outer(x, x)[i:, :i], np.outer(x, x)[:, x > 0]
        sizes = cut[0].size, len(cut[0]), cut[1].size, len(np.bincount(np.arange(6) % 4 + (x > 9).sum()))
        return *sizes, len(x[i:]), len(x[x > 0]), np.ones(len(x[i:])).sum()

    function = fx.jit(counts, backend="python")
    for i in (np.int64(2), np.int64(-3)):
        found, expected = function(X.astype(np.float32), i), counts(X.astype(np.float32), i)
        assert found == expected and [*map(type, found)] == [*map(type, expected)]


def test_the_text_says_how_many() -> None:
    graph = fx.symbolic_trace(lambda x: x[x > 0], "f32[N]").graph
    assert "f32[sum ≤ N]" in graph.text(full=True)
    fx.parse(graph.text(full=True)).lint()


def test_kept_in_a_file(tmp_path: Any) -> None:
    module = fx.symbolic_trace(lambda x: (x[x > 0], x), "f64[5]")
    fx.save(module, tmp_path / "m.fxl")
    x = np.arange(-2.0, 3)
    _same(fx.load(tmp_path / "m.fxl")(x), (x[x > 0], x))


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "a mask as a shape": (lambda x: np.zeros(x > 0), "shape|integer|value"),
    "places without axes": (lambda x: np.nonzero(x.sum()), "np.atleast_1d"),
    "counts without a bound": (lambda x: np.bincount(x.astype(int)), "minlength="),
    "repeat without a bound": (lambda x: np.repeat(x, x.astype(int)), "np.minimum"),
    "a list that grows": (lambda x: _grown(x), "final size|length|shape"),
    "numbers apart from the mask": (lambda x: x.reshape(1, 3, 3)[0, :, x[:3] > 0], "mask"),
    "iterated": (lambda x: sum(map(abs, x[x > 0])), r"(?s)known before.*loop over positions: for i in range"),
    "a size without a bound": (lambda x: np.zeros(int(x.sum())), "largest size"),
    "rows of many columns": (lambda x: np.unique(np.outer(np.ones(3), np.arange(99)) * x[0], axis=0), "up to 64"),
}


def _grown(x: Any) -> Any:
    y = x[:1]
    while y.sum() < 9:
        y = np.concatenate([y, x])
    return y


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_had_is_refused(name: str) -> None:
    program, said = REFUSED[name]
    with pytest.raises(FxliteError, match=said) as found:
        fx.symbolic_trace(program, "f64[9]")
    assert "test_sizes_of_values.py" in str(found.value)
    assert isinstance(found.value, TraceError) or found.value


# -- sets ------------------------------------------------------------------------------------------
SETS: dict[str, Callable[..., Any]] = {
    "intersect1d": np.intersect1d,
    "setdiff1d": np.setdiff1d,
    "setxor1d": np.setxor1d,
    "union1d": np.union1d,
    "isin": np.isin,
    "of selections": lambda a, b: np.intersect1d(a[a > 20], b[b < 50]),
    "selected by a set": lambda a, b: a[np.isin(a, b[b > 40])],
    "of a list": lambda a, b: (np.setdiff1d(a, np.arange(50)), np.intersect1d([3, 4, 70], b)),
    "sizes": lambda a, b: len(np.intersect1d(a, b)) / len(np.union1d(a, b)),
}


@pytest.mark.parametrize("name", SETS)
def test_sets(name: str) -> None:
    draw = np.random.default_rng(3)
    a, b = draw.integers(0, 60, 100), draw.integers(30, 90, 70)
    for x, y in ((a, b), (a.astype(np.int32), b), (a, np.round(b * 0.5, 1))):
        function = fx.jit(SETS[name], backend="c")
        _same(function(x, y), SETS[name](x, y))
    with pytest.raises(TraceError, match="searchsorted"):
        fx.symbolic_trace(lambda a, b: np.intersect1d(a, b, return_indices=True), "i64[N]", "i64[M]")


def test_the_median_of_nothing_is_nan() -> None:
    function = fx.jit(lambda x: np.median(x[x > 0]), backend="c")
    for x in (np.array([-1.0, -2.0]), np.array([-1.0, 3.0]), np.array([np.nan, 2.0]), np.array([4.0, 1.0])):
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = np.median(x[x > 0])
        np.testing.assert_array_equal(function(x), expected)
