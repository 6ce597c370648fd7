"""``x[mask]`` of a mask that is computed: what is done to each element, to all of them, and to
where they stood is traced; all that asks for their number is an error that says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import TraceError
from fxlite.tracing.capture import known
from tests.graphs import ops_of
from tests.oracle import agree, compare


def _beside_numbers(x: Any, v: Any) -> Any:
    """Selected places of one axis beside a number for another one."""
    rows, y = np.flatnonzero(v[:4] > 0), x.copy()
    y[rows, 2] = 5
    y[rows, -1] += 1
    y[2, np.flatnonzero(v > 0)] *= 2
    np.add.at(y, (rows, 1), v[rows])
    k = np.argmax(v) % 4
    y[k, np.flatnonzero(x[k] > 0)] -= x[k, np.flatnonzero(x[k] > 0)]
    return y, x[rows, 3].sum(), x[rows, k].max(initial=0), x[-1, np.flatnonzero(x[k] > 0)].sum()


def _of_two_axes(x: Any, v: Any) -> Any:
    """Products and writes of rows at the places of a mask of two axes, as of experts and the tokens that chose them."""
    out, weights = np.zeros_like(x), np.outer(v[:5], v[1:])
    for choice in range(2):
        token, place = np.nonzero(np.argsort(-x, axis=1)[:, :2] == choice)
        out[token] += np.maximum(x[token] @ weights, 0) * x[token, place][:, None]
    i, j = np.nonzero(x > 0)
    y = x[i]
    z = y
    y -= np.cumsum(x[i, j])[:, None]
    return out, z.sum(), (x[i] @ weights).sum(), x[i].T @ x[i], x[x > 0] @ x[x > 0]


def _of_a_known_shape(x: Any, v: Any) -> Any:
    """All elements but one of each row, and two columns."""
    keep, few = np.arange(5) != np.argmin(x, axis=1)[:, None], np.argsort(v[:5]) < 2
    return x[keep].reshape(4, 4), np.reshape(x[~keep], (4, 1)) @ v[None], x[:, few].reshape(2, 2, 2).sum(axis=1)


def _as_many_as_places(x: Any, v: Any) -> Any:
    """Selections that together have an element for each place that is written: rows sorted into groups, which are split
    where the groups end, and go back to their places; and rows at the places of a mask of two axes."""
    group, shares = np.argmax(x, axis=1) % 3, np.argmax(x, axis=1)
    order = np.argsort(group, kind="stable")
    parts = np.split(x[order], np.cumsum(np.bincount(group, minlength=3))[:-1])
    rows = np.concatenate([part * (n + 2) for n, part in enumerate(parts)])
    y, total, columns, whole = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x), np.empty_like(x)
    y[order] = rows
    np.add.at(total, shares % 2, rows)
    columns[:, [4, 3, 2, 1, 0]] = np.concatenate((x[:, v[:5] > 0], x[:, v[:5] <= 0]), axis=1)
    whole[...] = rows
    deep = x[:, :4].reshape(2, 2, 4) * 1
    m = deep[..., 0] > 0
    deep[~m] += np.concatenate((deep[~m][:1], deep[~m][1:]))
    return y, total, columns, whole, deep


def _masks_beside_numbers(x: Any, v: Any) -> Any:
    """A mask of one axis beside a computed number for another one."""
    rows, y = v[:4] > 0, x.copy()
    k = np.argmax(v) % 4
    y[rows, k] = 5
    y[rows, k - 1] += x[rows, -1]
    y[k, v[1:] > 0] -= x[k, v[1:] > 0]
    z, columns = x[:, :, None] * v[:2], v[1:] > 0
    return y, x[rows, k].sum(), x[k, columns].max(initial=0), z[k, columns].sum(axis=0), z[rows, :, k % 2].sum(axis=0)


def _repeated(x: Any, v: Any) -> Any:
    """np.repeat of what a mask selects, by a number, and by what it selects."""
    m, counts = v > 0, np.minimum(np.abs(v * 3).astype(np.int64), 4)
    return np.repeat(v[m], 2).sum(), np.cumsum(np.repeat(v[m], counts[m])).max(initial=0)


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "beside numbers": _beside_numbers,
    "masks beside numbers": _masks_beside_numbers,
    "of two axes": _of_two_axes,
    "of a known shape": _of_a_known_shape,
    "as many as places": _as_many_as_places,
    "repeated": _repeated,
    "reductions": lambda x, v: (
        x[x > 0].mean(),
        np.sum(x[x > 0]),
        x[x < 1].max(),
        np.min(x[x > -2]),
        x[x > 0].std(),
        np.var(x[x > 0], ddof=1),
        (x[x > 0] > 1).any(),
        np.all(x[x > 0] < 9),
        x[x > 5].sum(),
        np.prod(x[x > 1]),
        x[x > 0].size,
        np.count_nonzero(x[x > 0] > 0.5),
        x * len(x[x > 0]),
    ),
    "each element": lambda x, v: (
        (2 * x[x > 0] + 1).sum(),
        np.sqrt(x[x > 0]).mean(),
        (x[x > 0] ** 2 - x[x > 0]).sum(),
        np.where(x[x > 0] > 1, 1.0, x[x > 0]).sum(),
        (-x[x < 0]).max(),
        (v[0] * x[x > 0]).sum(),
        abs(x[x < 0]).sum(),
        np.clip(x[x > 0], 0, 1).mean(),
        x[x > 0].astype(np.float32).sum(),
    ),
    "rows": lambda x, v: (
        x[v[:4] > 0].sum(),
        x[v[:4] > 0].sum(axis=0),
        x[v[:4] > 0].mean(0),
        x[v[:4] > 0, ...].max(),
        (x[v[:4] > 0] * x[0]).sum(axis=0),
    ),
    "along an axis with all elements": lambda x, v: (
        np.linalg.norm(x[v[:4] > 0] - x[0], axis=1).sum(),
        np.argmax(x[v[:4] > 0], 1).sum(),
        x[v[:4] > 0].argmin(axis=1).max(),
        np.sort(x[v[:4] > 0]).sum(axis=0),
        np.cumsum(x[v[:4] > 0], axis=1).max(axis=0),
        np.median(x[v[:4] > 0], axis=1).sum(),
        np.diff(x[v[:4] > 0], 2).sum(),
        np.ptp(x[v[:4] > 0], axis=-1).max(),
        np.linalg.norm(x[v[:4] > 0]),
        np.linalg.norm(x[v[:4] > 0], axis=0),
        np.linalg.norm((9 * x).astype(int)[x > 0]),
    ),
    "integers": lambda x, v: (x.astype(int)[x > 0].sum(), x.astype(int)[x > 0].max(), np.mean(x.astype(int)[x > 0])),
    "written back": lambda x, v: _written(x),
    "pairs": lambda x, v: _pairs(v),
}


def _pairs(v: Any) -> Any:
    s = v[v > 0]
    apart = np.abs(s[:, None] - s[None, :]).sum(axis=1).max(), np.exp(-((s[:, np.newaxis] - s) ** 2)).max()
    return apart, (s[None] * 2).sum(), (s[:, None] + np.arange(3)).sum(axis=0)


def _written(x: Any) -> Any:
    y, z, w = x.copy(), x.copy(), x.copy()
    y[y > 0] = y[y > 0] ** (-1.5)
    positive = z > 0
    z[positive] += 1
    z[positive] *= z[positive]
    w[positive] = np.sqrt(x[positive]) + 1
    rows = x[:, 0] > 0
    u = x.copy()
    u[rows] = u[rows] * 2 + x[0]
    return y, z, w, u


def arrays() -> list[Any]:
    rng = np.random.default_rng(1)
    return [rng.normal(0, 2, (4, 5)), rng.normal(0, 2, 6)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    agree(PROGRAMS[name], *arrays(), rungs=("graph", "python", "kernel", "c", "cuda"))


def test_of_named_sizes() -> None:
    program = lambda x: (x[x > 0].mean(), x[x > 0].max())  # noqa: E731
    agree(program, arrays()[0], types=["f64[N,5]"], rungs=("graph", "python", "c"))


def test_the_largest_of_none_is_an_error_when_it_runs() -> None:
    module = fx.symbolic_trace(lambda x: x[x > 9].max(), "f64[3]")
    for function in (module, fx.compile(module)):
        with pytest.raises(IndexError):
            function(np.zeros(3))


REFUSED: dict[str, Callable[[Any], Any]] = {
    "an array beside it": lambda x: (x[x > 0] * x).sum(),
    "a loop": lambda x: sum(map(abs, x[x > 0])),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_asks_for_their_number_is_refused(name: str) -> None:
    with pytest.raises(TraceError, match=r"(?s)a boolean mask selects.*test_masked\.py"):
        fx.symbolic_trace(REFUSED[name], "f64[6]")


def test_two_selections_need_as_many_elements() -> None:
    def program(x: Any) -> Any:
        high, low = x[x > 2], x[x < 1]
        return high * low, np.where(high > 4, low, 0), high @ low, (high - low).sum()

    def runs(x: Any) -> Any:
        ends = np.flatnonzero(np.diff(x > 1)) + 1
        starts, ends = np.concatenate(([0], ends)), np.concatenate((ends, [len(x)]))
        return starts, ends - starts, (ends - starts).max()

    sets = [(program, [1, 2, 3, 0, 5, -2]), *((runs, v) for v in ([1, 2, 2, 0, 5], [1, 1, 0, 1, 1], [2, 0, 2, 0, 2]))]
    for function, numbers in sets:
        values = np.array(numbers, float)
        module = fx.symbolic_trace(function, values)
        for way in (module, fx.compile(module)):
            compare(function.__name__, way(values), function(values))
    with pytest.raises(IndexError):
        fx.symbolic_trace(program, "f64[6]")(np.array([1.0, 2.0, 3.0, 0.0, 5.0, 2.0]))


def test_a_write_under_another_mask_needs_as_many_elements() -> None:
    def program(x: Any) -> Any:
        y = x.copy()
        y[x > 2] = x[x < 1]
        return y

    agree(program, np.array([1.0, 2.0, 3.0, 0.0, 5.0, -2.0]))
    with pytest.raises(IndexError):
        fx.symbolic_trace(program, "f64[6]")(np.array([1.0, 2.0, 3.0, 0.0, 5.0, 2.0]))


def _values_of_arrays(x: Any, mask: Any, each: Any, rows: Any, columns: Any) -> Any:
    """Arrays with an element for each that a mask selects, and with one for all of them."""
    y, z, w, u = x.copy(), x.copy(), x.copy(), x.copy()
    y[x > 0] = each
    z[mask] = rows
    z[mask] += rows * 2
    z[:, x[2] > 0] = columns
    w[1:][mask[1:]] = rows[1:]
    u[mask] = rows[:1]
    np.add.at(u, mask, rows)
    return y, z, w, u, (x[mask] * rows + rows[:, :1]).sum(0), (each - x[x > 0]).max()


def test_arrays_beside_a_selection_and_written_to_it() -> None:
    rng = np.random.default_rng(0)
    x, mask = rng.standard_normal((4, 5)), np.array([True, False, True, True])
    each, columns = rng.standard_normal((x > 0).sum()), rng.standard_normal((4, (x[2] > 0).sum()))
    agree(_values_of_arrays, x, mask, each, rng.standard_normal((3, 5)), columns)


def _joined_along_other_axes(x: Any, mask: Any, rows: Any) -> Any:
    found, places = x[mask], np.nonzero(x > 0)
    return (
        np.hstack((found, found * 2)).sum(0),
        np.hstack((found[:, 0], found[:, 1])).sum(),
        np.column_stack((found, found * 3)).max(0),
        np.concatenate((found[:, :2], rows), -1).sum(0),
        np.concatenate((found, found * 3), -2).sum(0),
        (np.concatenate([place[:, None] for place in places], 1) @ np.array([3, 1])).sum(),
    )


def test_selections_are_joined_along_other_axes() -> None:
    rng = np.random.default_rng(1)
    x, mask = rng.standard_normal((4, 5)), np.array([True, False, True, True])
    agree(_joined_along_other_axes, x, mask, rng.standard_normal((3, 2)))


@pytest.mark.parametrize("count", [0, 2, 4])
def test_an_array_beside_a_selection_has_as_many_elements(count: int) -> None:
    def program(x: Any, values: Any) -> Any:
        y = x.copy()
        y[x > 0] = values
        return y

    module = fx.symbolic_trace(program, "f64[5]", f"f64[{count}]")
    for function in (module, fx.compile(module)):
        x = np.where(np.arange(5) < count, 1.0, -1.0)
        np.testing.assert_array_equal(function(x, np.arange(float(count))), program(x, np.arange(float(count))))
        with pytest.raises(IndexError):
            function(np.array([1.0, 1.0, 1.0, -1.0, -1.0]), np.ones(count))


def test_all_of_a_selection_is_written() -> None:
    def program(x: Any, n: Any) -> Any:
        y, z, w = x[x > 1], x[x > 1], x[x < 2].astype(int)
        y[:] = 0
        z[...] = x[x > 1] * 2
        w[:] = 2.7
        part = x[1 : n[0]]
        part[:] = 7
        part[...] = part * 2
        return y.sum(), z.sum(), w.sum(), x

    agree(program, np.array([1.0, 2.0, 3.0, 0.0, 5.0]), np.array([3]))


def selected(x: Any, y: Any) -> Any:
    return x + 1, x[y > 0]


def test_what_moves_a_result_is_at_the_program_and_not_at_its_caller() -> None:
    graph = fx.symbolic_trace(selected, "f32[N]", "f32[N]").graph
    first = selected.__code__.co_firstlineno
    lines = {n.name: n.loc.line for n in graph.find_nodes(op="call_function") if n.loc is not None}
    assert {"flatnonzero", "take"} <= lines.keys() and set(lines.values()) == {first, first + 1}


# -- views -----------------------------------------------------------------------------------------
def parts_of_a_selection(x: Any) -> Any:
    y, rows = x[x > 0], np.stack([x, x * 2], 1)[x > 0]
    part, column, turned, line = y[1:], rows[:, 1], rows.T, y[::-1]
    part[0], column[1] = 50, 60
    part += 5
    turned[0] *= 2
    line[0] = 7
    y[1] = 77
    rows[:, 0] = 3
    rows[1:, 0] -= 1
    flat = y.ravel()
    flat[-1] = 4
    y[1:] -= y[:-1].copy()
    y[y > 60] += 100
    return y, rows, part.copy(), column.copy(), turned.copy(), line.copy()


def parts_of_a_part(x: Any) -> Any:
    n = int(np.sum(x > 0))
    y, rows = x[1:n], x.reshape(-1, 2)[: n // 2]
    part = y[1:]
    part[0] = 100
    x[3] = 9
    y[0] += 3
    y[::-1][0] = 4
    rows.T[1] *= 2
    rows[0, 0] = 8
    return y.copy(), part.copy(), rows.copy(), x


def written_in_loops(x: Any) -> Any:
    y = x[x > 0]
    same, out, ends = y, np.zeros(len(y)), np.zeros((len(y) + 1, 2))
    for i in range(len(y)):
        for j in range(i + 1, len(y)):
            if y[j] > y[i]:
                y[i], y[j] = y[j], y[i]
        out[i] = y[i] * 2
        ends[i + 1, 0] = i
    for i in range(30):
        y += 1
        same[0] = i
    if x[0] > 2:
        same[1] = 100
    ends[1:, 1] = np.cumsum(out)
    ends[0] = [5, 6]
    x[x > 0] = y
    return y, same, out, ends, x


def filled_and_sorted(x: Any) -> Any:
    y = x[x > 0]
    same = y
    y.sort()
    y[::-1][:2].sort()
    np.copyto(same, y * 2)
    z = np.empty((np.count_nonzero(x > 0), 2))
    z.fill(3)
    z[:, 0] = same
    return y, same, z


def meshes(x: Any) -> Any:
    a, m = x[:4, None] * 10 + x[None, :4], x[:4] > 0
    b = a.copy()
    a[np.ix_(m, m)] += 3
    b[np.ix_(m, m)] = a[np.ix_(m, m)].T
    b[np.ix_(~m, m)] = 0
    b[np.ix_(m, [0, 1])] *= 2
    rows = a[m]
    rows[:, ::-1][0] = 5
    rows[::-1, ::-1][0, 0] = 7
    return a, b, a[m][:, m][..., ::-1], b[m][:, m][::-1, ::-1].sum(0), rows, np.fliplr(rows)


def written_by_functions(x: Any) -> Any:
    a, b, c, n = x[x > 0], x[x > 0], x.copy(), int(x[1])
    np.put(a, [0, 2, -1], [9.0, 8.0])
    np.putmask(a, a > 3, a * 3)
    np.place(a, a < 9, [5.0, 6.0])
    np.copyto(a, -1, where=a == 5)
    np.add.at(b, [0, 1, 0, -1], [1.0, 2.0, 3.0, 4.0])
    b[[1, 2]] = x[:2]
    b[(np.cumsum(b) > 5) & (b < 4)] = 0
    same = a
    a[::3] = x[0]
    same[1:4:2] = 77
    part = c[:n]
    np.put(part, 0, 5)
    np.copyto(c[:n], 3, where=c[:n] > 4)
    np.putmask(c[:n], c[:n] < 0, 9)
    np.add.at(c[1:], [0, 0], 1)
    return a, b, c


@pytest.mark.parametrize(
    "program",
    [meshes, parts_of_a_selection, parts_of_a_part, written_in_loops, filled_and_sorted, written_by_functions],
)
def test_parts_are_views(program: Any) -> None:
    for backend in ("python", "c"):
        compiled = fx.jit(program, backend=backend)
        for x in ([3.0, 1, -2, 5, 4, -1, 2, 6], [-1.0, 4, 2, 9, 1, 1, 3, -2, 7, 1]):
            given, own = np.array(x), np.array(x)
            for found, expected in zip((*compiled(given), given), (*program(own), own), strict=True):
                np.testing.assert_array_equal(found, expected)


def test_masks_of_arrays_that_are_known_fill_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program without inputs is not computed while it is traced, if that takes much memory."""

    def escape() -> Any:
        c = np.linspace(-2, 0.5, 90) + np.linspace(-1, 1, 80)[:, None] * 1j
        z, count = np.zeros_like(c), np.zeros(c.shape, np.int64)
        for n in range(25):
            inside = np.abs(z) < 2
            count[inside] = n
            z[inside] = z[inside] ** 2 + c[inside]
        return z, count

    assert len(fx.symbolic_trace(escape).graph) < 9
    monkeypatch.setattr(known, "MOST_BYTES", 2**20)
    gm = fx.symbolic_trace(escape)
    assert len(gm.graph) > 100
    assert fx.trace_doctor(escape)  # whose tracer makes one attempt
    for found, wanted in zip(gm(), escape()):
        np.testing.assert_array_equal(found, wanted)


def test_arrays_that_repeat_a_few_elements_are_not_kept() -> None:
    def turned(x: Any) -> Any:
        for step in (1, 2, 4):
            turns = np.exp(-2j * np.pi * np.arange(2 * step) / (4 * step))
            x = x * np.repeat(turns, len(x) // (2 * step))
        return x

    gm = fx.symbolic_trace(turned, "c128[8192]")
    assert sorted(w.size for w in gm.state_dict().values()) == [2, 4, 8]
    agree(turned, np.arange(8192) * (1 - 1j))


def test_many_large_constants_are_computed_in_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "MOST_BYTES", 2**18)

    def program(x: Any) -> Any:
        for k in range(1, 9):
            x = x + np.sqrt(np.cumsum(np.arange(5000.0)) + k)
        return x

    gm = fx.symbolic_trace(program, "f64[5000]")
    assert ops_of(gm).count("sqrt") > 2
    agree(program, np.ones(5000))


def lists_of_selections(x: Any, v: Any) -> Any:
    """They are arrays, also the tuple that np.nonzero returns, with one array for each axis."""
    return (
        np.append(np.where(v > 0), 9),
        np.append(-1, np.nonzero(v > 0)),
        np.array(np.where(x > 0)),
        np.asarray(np.where(v > 0)),
        np.ravel(np.nonzero(v > 0)),
        np.transpose(np.nonzero(x > 0)),
        np.vstack(np.nonzero(x > 0)).T,
        np.column_stack([v[v > 0], 2 * v[v > 0]]),
    )


def places_of_extremes(x: Any, v: Any) -> Any:
    """Along an axis that is selected."""
    kinds = np.unique(np.round(v))
    distances = np.abs(x[..., None] - kinds)
    columns = x[:, x[0] > 0]
    return (
        kinds[distances.argmin(axis=2)],
        np.argmax(distances, axis=-1, keepdims=True),
        np.argmin(distances, 0),
        columns.argmax(1),
        columns.argmin(axis=0),
    )


@pytest.mark.parametrize("program", [lists_of_selections, places_of_extremes])
@pytest.mark.parametrize("backend", ["python", "c"])
def test_several_results_of_selections(program: Any, backend: str) -> None:
    found, expected = fx.jit(program, backend=backend)(*arrays()), program(*arrays())
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


#: Ways to join selections of rows, columns and lines with each other and with arrays.
JOINS: dict[str, Callable[[Any, Any], Any]] = {
    "rows": lambda x, m: np.concatenate([x[m], x]),
    "rows, beside each other": lambda x, m: np.concatenate([x[m], x[m] * 2], axis=1),
    "columns": lambda x, m: np.concatenate([x[:, m], x, x[:, ~m]], axis=1),
    "columns, below each other": lambda x, m: np.concatenate([x[:, m], x[:, m] * 2]),
    "of another mask": lambda x, m: np.concatenate([x[m], x[m][::-1], np.cumsum(x[m, 0])[:, None]], axis=-1),
    "flat": lambda x, m: np.concatenate([x[m], x, x[:1]], axis=None),
    "slices": lambda x, m: np.concatenate([x[:, : m.sum()], x[:, 2 : m.sum()]], axis=1),
    "append": lambda x, m: np.append(x[m], x, axis=0),
    "append columns": lambda x, m: np.append(x[:, m], x, axis=1),
    "append, flat": lambda x, m: np.append(x[m], 3.0),
    "hstack": lambda x, m: np.hstack([x[m], x[m][:, :2]]),
    "hstack of lines": lambda x, m: np.hstack([0.5, x[0, m], x[1]]),
    "vstack": lambda x, m: np.vstack([x[m], x[0], x]),
    "vstack of columns": lambda x, m: np.vstack([x[:, m], x[:, m], x[0, m]]),
    "column_stack": lambda x, m: np.column_stack([x[0, m], x[m]]),
    "stack": lambda x, m: np.stack([x[0, m], np.flatnonzero(m)], axis=1),
    "stack of places": lambda x, m: np.stack(np.nonzero(x > 0), axis=1),
}


@pytest.mark.parametrize("name", JOINS)
def test_joins(name: str) -> None:
    x, m = arrays()[0][:, :4], np.array([True, False, True, True])
    for backend in ("python", "c") if name in ("rows", "columns", "of another mask", "hstack") else ("python",):
        found, expected = fx.jit(JOINS[name], backend=backend)(x, m), JOINS[name](x, m)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


def test_another_number_of_elements_than_a_shape_has() -> None:
    with pytest.raises(ValueError, match=r"cannot reshape the selected elements into shape \(2, 2\)"):
        fx.jit(lambda x: x[x > 0].reshape(2, 2), backend="c")(np.array([1.0, -1.0, 2.0, 3.0]))


def test_another_number_of_elements_than_places() -> None:
    def write(x: Any) -> Any:
        y = np.zeros(3)
        y[[2, 1, 0]] = x[x > 0]
        return y

    fn = fx.jit(write, backend="c")
    np.testing.assert_array_equal(fn(np.array([1.0, -1.0, 2.0, 3.0])), [3, 2, 1])
    with pytest.raises(ValueError, match=r"cannot reshape the selected elements into shape \(3\)"):
        fn(np.array([1.0, -1.0, -2.0, 3.0]))
