"""In-place writes are traced with NumPy's aliasing, or refused: never lost."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fxlite as fx
from fxlite import nn, ops
from fxlite.base.errors import ArgumentError, ShapeError, TraceError
from fxlite.ops.op import REGISTRY, Op
from fxlite.types.shapes import substitute
from tests.oracle import agree, agree_on_all, compare, flatten

X = np.arange(12, dtype=np.float32).reshape(4, 3) - 5


def write_then_view(x: Any) -> Any:
    y = x.copy()
    y[0] = 1
    z = y[1:]
    z += 2
    return y, z


def view_then_write(x: Any) -> Any:
    y = x * 1
    z = y[1:]
    y[2, 1] = 9
    return z, y


def lost_in_torch_fx(x: Any) -> Any:
    x = x + 0
    y = x[0]
    y += 1
    return x


def erased_in_torch_fx(x: Any) -> Any:
    x = x.copy()
    x[...] *= 0
    return x


def buffer_row_by_row(x: Any) -> Any:
    buffer = np.zeros_like(x)
    for i in range(4):
        buffer[i] = x[i] * i
    return buffer


def buffer_of_ops(x: Any) -> Any:
    buffer = ops.zeros((3, 4), "f32")
    for i in range(4):
        buffer[:, i] = x[i]
    return buffer


def through_reshape(x: Any) -> Any:
    h = x + 1
    a = h.reshape(2, -1)
    a *= 2
    return h


def through_transposes(x: Any) -> Any:
    y = x + 1
    y.T[0] = 7
    np.swapaxes(y, 0, 1)[1, ::2] = y[0, 0]
    np.moveaxis(y[None], 0, -1)[3] -= 1
    return y


def through_new_axes(x: Any) -> Any:
    y = x.copy()
    y[..., None][1] = 5
    np.expand_dims(y, 0)[0, 2] += 1
    y[None].squeeze(0)[0] = y[3]
    return y


def steps_and_directions(x: Any) -> Any:
    y = x * 2
    y[::2, ::-1] -= x[:2]
    y[::-1][0] = 3
    y[-1:0:-2][:, 1:] = x[:2, :2]
    return y


def overlapping_views(x: Any) -> Any:
    y = x.copy()
    a, b = y[:3], y[1:]
    a += 10
    b *= 2
    a[:, 0] = b[:, 2]
    return y, a, b


def shifted_within_itself(x: Any) -> Any:
    y = x.copy()
    y[1:] = y[:-1]
    y[:, :2] += y[:, 1:]
    return y


def slices_of_slices(x: Any) -> Any:
    y = x.copy()
    y[1:][1:][0, 1] = 4
    y[::2][1][1:] = 8
    y[1:, 1:][:, 0] += y[0, 0]
    return y


def out_arguments(x: Any) -> Any:
    y = x * 1
    z = np.exp(x, out=y)
    np.add(y, x, out=y[...])
    np.multiply(y[:2], 2, out=y[2:])
    np.clip(y, 0, 3, out=y)
    y.clip(0.5, 2, out=y)
    s = np.zeros_like(x[0])
    x.sum(axis=0, out=s)
    np.concatenate([x[:1], x[1:2]], out=y[:2])
    np.subtract(x, 1, out=y, where=x > 2)
    return y, z, s


def copies_of_parts(x: Any) -> Any:
    rows, turned = x[::2].astype(np.float32), x.T[::-1].astype(np.float32)
    flat, one, other = rows.reshape(-1), turned.T.reshape(-1), turned.reshape(-1)
    rows[0], turned[0] = 7, 8
    return rows, flat, turned, one, other


def copyto_and_fill(x: Any) -> Any:
    y = np.empty_like(x) if isinstance(x, np.ndarray) else np.zeros_like(x)
    y.fill(2)
    np.copyto(y[1], x[0])
    np.copyto(y, x, where=x > 0)
    np.copyto(y[3:], 6)
    return y


def masks(x: Any) -> Any:
    y = x.copy()
    y[y > 3] = 0
    y[x[:, 0] > 0] = x[0]
    y[:, np.array([True, False, True])] = 1
    y[0][x[0] < -4] = 9
    y[np.array([[True, False, False]] * 4)] = np.arange(4, dtype=np.float32)
    return y


def integer_arrays(x: Any) -> Any:
    y = x.copy()
    y[[0, 2]] = x[:2]
    y[np.array([3, 3, -1])] = x[1:]
    y[:, [2, 0]] += 1
    y[[0, 1], [1, 2]] = x[0, :2]
    y[[1, -2], 1:] *= 2
    y[[[0, 1], [2, 3]], 0] = 7
    return y


def not_adjacent(x: Any) -> Any:
    y = np.stack([x, x + 1, x + 2], axis=1)
    y[[0, 2], :, [1, 2]] = x[:2]
    y[1:, [0, 2], 1] = 5
    return y


def of_other_dtypes(x: Any) -> Any:
    n = (x * 2).astype(np.int32)
    n[0] = x[0] / 2
    n //= 2
    n[1] = 1.7
    half = x.astype(np.float16)
    half += x
    half *= 1.5
    keep = x > 0
    keep[0] = True
    keep |= x < -4
    return n, half, keep


def numbers_are_immutable(x: Any) -> Any:
    total = x.sum()
    first = total
    total += 1
    corner = x[0, 0]
    other = corner
    corner *= 2
    y = x.copy()
    row = y[0]
    row[0] += 1
    return first, total, corner, other, y


def numbers_as_arrays(x: Any) -> Any:
    total = x.sum()
    a = total.reshape(1, 1)
    a[0] = 3
    b = total[...]
    c = b
    b *= 2
    d = np.copy(total)
    e = d
    d += 1
    f = +d
    g = f
    f += 1
    h = total.copy()
    i = h
    h -= 1
    return total, a, b, c, d, e, f, g, h, i


def rank_zero_views(x: Any) -> Any:
    y = x[0].copy()
    z = y[0, ...]
    z += 1
    w = y[1:2].reshape(())
    w *= 3
    y[2, ...] = 4
    return y, z


def copies_are_copies(x: Any) -> Any:
    y = x + 1
    a, b, c, d, e, f = (y.copy(), y.astype(np.float32), +y, y.flatten(), y[[0, 1]], np.repeat(y, 1, 0))
    g, h, i = np.tile(y, 1), np.full_like(y, y[0, 0]), np.take(y, 0, axis=0)
    y += 1
    for v in (a, b, c, d, e, f, g, h, i):
        v *= 2
    return y, a, b, c, d, e, f, g, h, i


def parts_are_views(x: Any) -> Any:
    y = x.copy()
    a, b = np.split(y, 2)
    a += 1
    y[3] = 0
    first, *_ = list(y)
    first -= 1
    return y, a, b


def ravel_is_a_view_or_not(x: Any) -> Any:
    y = x + 1
    y.ravel()[5:7] = 1
    y.T.ravel()[:] = 2  # a copy
    y.T.reshape(-1)[0] = 3  # a copy
    y[:, :2].reshape(8)[:] = 4  # a copy
    y[:2].reshape(-1)[0] = 5
    y[::2].reshape(2, 3, 1)[1] = 6
    return y


def loops(x: Any) -> Any:
    y = x.copy()
    for i in range(1, 4):
        y[i] += y[i - 1] * 0.5
    for row in y:
        row /= 2
    y @= np.eye(3, dtype=np.float32) * 2
    return y


def parts_of_complex_numbers(x: Any) -> Any:
    z, w = x + 1j * x[::-1], x.T * 1j
    z.imag[0] = 7
    z.real[...] += 3
    row = z[1:].T.real
    row[0] = -1
    np.add(z.real, 1, out=z.imag)
    z.real[z.imag > 2] = 9
    w.real = 5
    w.imag -= 2
    np.imag(w).sort(axis=0)
    for i in range(3):
        z.imag[i, 0] = x[i, 1] * i
    return z, z.real, w


def functions_into_views(x: Any) -> Any:
    """Views whose flattened form is a copy."""
    y = np.stack([x, x + 1, x * 2])
    np.put(y[:, 1], [0, 2], x[0, :2])
    np.put(y.T, [1, 5], x[1, 0])
    np.put(y[::2, ::-1], [0, 3, -1], [7.0, 8.0])
    y.T.put([2, 3], x[1, :2])
    np.place(y[0].T, y[0].T > 5, x[0])
    y[1, :, 1:].flat = x[1, :2]
    y[2].T.flat[[0, 2, 1]] = [4, 3]
    np.add.at(y[1].T, ([0, 0, 1], [1, 1, 2]), x[0])
    np.maximum.at(y[1].T, (slice(None), 0), x[2])
    np.subtract.at(y[::2], (0, [1, 1]), x[1])
    return y


PROGRAMS: list[Callable[[Any], Any]] = [
    functions_into_views,
    write_then_view,
    view_then_write,
    lost_in_torch_fx,
    erased_in_torch_fx,
    buffer_row_by_row,
    buffer_of_ops,
    through_reshape,
    through_transposes,
    through_new_axes,
    steps_and_directions,
    overlapping_views,
    shifted_within_itself,
    slices_of_slices,
    out_arguments,
    copies_of_parts,
    copyto_and_fill,
    masks,
    integer_arrays,
    not_adjacent,
    of_other_dtypes,
    numbers_are_immutable,
    numbers_as_arrays,
    rank_zero_views,
    copies_are_copies,
    parts_are_views,
    ravel_is_a_view_or_not,
    loops,
    parts_of_complex_numbers,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_traced_as_numpy_does_it(program: Callable[[Any], Any]) -> None:
    agree(program, X.copy())


def test_named_dims() -> None:
    def program(x: Any, i: Any) -> Any:
        y = x.copy()
        y[0] = 1
        y[-1, 1:] += 2
        y[1:][0] = x[0]
        y[1:-1, ::2] *= 3
        y[y > 5] = 0
        rows = np.zeros_like(x)
        rows[i] = 1
        rows[:, 1] = x.shape[0]
        back = y.reshape(-1)
        back[0] = 4
        return y, rows

    i = np.array([2, -1, 2])
    agree(program, X.copy(), i, types=("f32[T,3]", "i64[N]"))


def test_run_time_indices_on_a_named_axis() -> None:
    def program(x: Any, i: Any) -> Any:
        rows, column = np.zeros_like(x), x.copy()
        rows[i] = x[: i.shape[0]]
        column[i, 0] = 9
        return rows, column

    sets = [(X.copy(), np.array(i, np.int64)) for i in ([2, -1, 2], [], [0])]
    agree_on_all(program, sets, types=("f32[T,3]", "i64[N]"))


def test_run_time_indices() -> None:
    def program(x: Any, i: Any, k: Any) -> Any:
        y = x.copy()
        y[i] = x[:2]
        y[:, i[:1]] += 1
        y[k] = 5
        y[i, k - 1] = x[0, :2]
        return y

    module = agree(program, X.copy(), np.array([2, -3]), np.int64(1))
    with pytest.raises(IndexError):
        module(X, np.array([2, 4]), np.int64(1))


def test_select_out_of_range_is_an_error_when_the_program_runs() -> None:
    def program(x: Any) -> Any:
        y = x.copy()
        y[5] = 1
        return y

    for backend in ("python", "c"):
        run = fx.compile(program, x="f32[T,3]", backend=backend)
        with pytest.raises(IndexError):
            run(X)


def test_leaf_and_constant_change_between_uses() -> None:
    table = np.ones(3, np.float32)

    def program(x: Any) -> Any:
        table[:] = 1
        y = x + table
        table[0] = 5
        return y + table

    agree(program, X.copy())


# -- refused ---------------------------------------------------------------------------------------
class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(np.ones(3, np.float32))
        self.register_buffer("seen", np.zeros(3, np.float32))


class WritesParameter(Counter):
    def forward(self, x: Any) -> Any:
        self.weight[0] = 1
        return x * self.weight


def into_input(x: Any) -> Any:
    x[...] *= 0
    return x


def into_view_of_input(x: Any) -> Any:
    y = x.T[0]
    y += 1
    return x


def into_plain_array(x: Any) -> Any:
    out = np.zeros((4, 3), np.float32)
    np.add(x, x, out=out)
    return out


def into_plain_array_by_operator(x: Any) -> Any:
    out = np.zeros((4, 3), np.float32)
    out += x
    return out


def into_broadcast(x: Any) -> Any:
    y = np.broadcast_to(x * 1, (2, 4, 3))
    y[0] = 1
    return y


def into_other_dtype(x: Any) -> Any:
    n = x.astype(np.int32)
    n += x
    return n


def copy_of_a_signed_number(x: Any) -> Any:
    y = x.astype(np.uint32)
    np.copyto(y, np.int8(3))
    return y


def into_number(x: Any) -> Any:
    total = x.sum()
    total[...] = 1
    return total


def resized_in_place(x: Any) -> Any:
    y = x.copy()
    y.resize(2)
    return y


def unbuffered(x: Any) -> Any:
    y = x.copy()
    np.power.at(y, [0, 0], 2)
    return y


def larger_result(x: Any) -> Any:
    y = x[0] * 1
    y += x
    return y


def perhaps_a_view(x: Any) -> Any:
    y = np.einsum("ij->ji", x * 1)
    z = y.reshape(-1)
    z += 1
    return y


REFUSED = {
    into_broadcast: (TraceError, "read-only"),
    into_other_dtype: (TraceError, "i32"),
    into_number: (TraceError, "NumPy number"),
    copy_of_a_signed_number: (TraceError, "turn int8 into u32"),
    resized_in_place: (TraceError, "resize"),
    unbuffered: (TraceError, "is traced for add"),
    larger_result: (TraceError, "does not fit"),
    perhaps_a_view: (TraceError, "may or may not"),
}


@pytest.mark.parametrize("program", REFUSED, ids=lambda p: p.__name__)
def test_refused_with_a_way_out(program: Callable[[Any], Any]) -> None:
    kind, text = REFUSED[program]
    with pytest.raises(kind) as caught:
        fx.symbolic_trace(program, x="f32[4,3]")
    assert text in str(caught.value)
    assert "test_in_place.py" in str(caught.value)


def test_parameters_belong_to_the_model() -> None:
    with pytest.raises(TraceError, match=r"parameter, buffer or constant.*\n.*test_in_place"):
        fx.symbolic_trace(WritesParameter(), x="f32[4,3]")


def test_values_that_do_not_fit() -> None:
    def program(x: Any) -> Any:
        y = x.copy()
        y[0] = x[:, 0]
        return y

    with pytest.raises(ShapeError, match=r"(?s)shape \(4\).*test_in_place"):
        fx.symbolic_trace(program, x="f32[4,3]")


def test_a_leaf_may_keep_what_it_is_given() -> None:
    class Leaf(nn.Module):
        def forward(self, x: Any) -> Any:
            return x

        def infer(self, x: Any) -> Any:
            return x

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.leaf = Leaf()

        def forward(self, x: Any) -> Any:
            y = x * 1
            z = self.leaf(y)
            y += 1
            return z

    with pytest.raises(TraceError, match="leaf"):
        fx.symbolic_trace(Model(), x="f32[4,3]", leaf=[Leaf])


def test_views_that_a_graph_module_makes() -> None:
    inner = fx.symbolic_trace(lambda x: (x.T[1:], np.split(x, 2)[0]), x="f32[4,3]")

    def program(x: Any) -> Any:
        y = x * 1
        z, _ = inner(y)
        y[0] = 1
        z *= 2
        return y, z

    agree(program, X.copy())

    def unclear(x: Any) -> Any:
        y = x * 1
        _, part = inner(y)
        y += 1
        return part

    with pytest.raises(TraceError, match="may or may not"):
        fx.symbolic_trace(unclear, x="f32[4,3]")


def _parts_on_conditions(z: Any, x: Any) -> Any:
    for k in range(x.shape[0]):
        if x[k] > 0:
            z.real *= -1
        else:
            z.imag = x[k]
        z.flat = z + 1
    return z


def test_attributes_of_arrays_are_written_in_branches() -> None:
    jitted, z = fx.jit(_parts_on_conditions, backend="c"), np.arange(4) + 1j
    for x in ([1.0, -1, 2], [-1.0, 1, -2]):
        found, expected = z.copy(), z.copy()
        np.testing.assert_array_equal(jitted(found, np.array(x)), _parts_on_conditions(expected, np.array(x)))
        np.testing.assert_array_equal(found, expected)


def test_a_wrapped_function_may_keep_what_it_is_given() -> None:
    @fx.wrap
    def same(x: Any) -> Any:
        return x

    def program(x: Any) -> Any:
        y = x * 1
        z = same(y)
        y[0] = 1
        return z

    def result(x: Any) -> Any:
        z = same(x * 1)
        z += 1
        return z

    for wrong in (program, result):
        with pytest.raises(TraceError, match="function"):
            fx.symbolic_trace(wrong, x="f32[4,3]")


# -- what the rules rest on ------------------------------------------------------------------------
def _runs(op: Op) -> Any:
    """(inputs, results) of the op's samples."""
    for sample in op.samples:
        arrays = sample.arrays()
        bound: dict[str, Any] = {}
        sample.call(lambda *a, **k: bound.update(op.bind(a, k)), arrays)  # noqa: B023
        with np.errstate(all="ignore"):
            result = op.reference(**{k: substitute(v, sample.dims) for k, v in bound.items()})
        yield arrays, result if isinstance(result, (tuple, list)) else [result]


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_ops_that_share_memory_say_so(name: str) -> None:
    op = REGISTRY[name]
    for arrays, results in _runs(op):
        for result in results:
            if name != "getitem" and not op.shares_memory:
                assert not any(np.may_share_memory(result, a) for a in arrays)
            if not op.any_order and not op.shares_memory:
                assert np.asarray(result).flags.c_contiguous


@pytest.mark.parametrize("name", sorted(n for n, op in REGISTRY.items() if op.samples))
def test_ops_that_give_numbers(name: str) -> None:
    """Where a result of rank 0 is taken for an immutable number, it is one."""
    for arrays, results in _runs(REGISTRY[name]):
        for result in results:
            if np.ndim(result) == 0 and REGISTRY[name].gives_number:
                assert isinstance(result, np.generic), arrays


# -- random programs -------------------------------------------------------------------------------
SHAPES = [(4, 3), (6,), (2, 3, 2)]


_NUMBER = st.integers(0, 20)
_PART = st.one_of(
    st.integers(-2, 1),
    st.builds(
        slice, st.none() | st.integers(-3, 3), st.none() | st.integers(-3, 4), st.sampled_from([None, 1, 2, -1, -2])
    ),
    st.just(None),
    st.just(Ellipsis),
)
_INDEX = st.lists(_PART, min_size=1, max_size=3).map(tuple)
_FANCY = st.one_of(st.lists(st.integers(-2, 1), min_size=1, max_size=3), st.just("mask"))
_STEP = st.one_of(
    st.tuples(st.just("view"), _NUMBER, _INDEX),
    st.tuples(st.just("permute"), _NUMBER, st.just(None)),
    st.tuples(st.just("reshape"), _NUMBER, st.sampled_from([(-1,), (2, -1), (-1, 1), (-1, 3)])),
    st.tuples(st.just("flip"), _NUMBER, st.just(None)),
    st.tuples(st.just("compute"), _NUMBER, st.sampled_from(["add", "copy", "sum", "astype"])),
    st.tuples(st.just("set"), _NUMBER, _INDEX, _NUMBER),
    st.tuples(st.just("set"), _NUMBER, _FANCY.map(lambda f: (f,)), _NUMBER),
    st.tuples(st.just("augment"), _NUMBER, st.sampled_from(["+", "*"]), _NUMBER),
    st.tuples(st.just("out"), _NUMBER, _NUMBER),
    st.tuples(st.just("copyto"), _NUMBER, _NUMBER),
)
PROGRAMS = st.tuples(st.sampled_from(SHAPES), st.lists(_STEP, min_size=3, max_size=12))
"""A shape and steps; each step names values by number, modulo how many there are."""


COMPUTED: dict[str, Callable[[Any], Any]] = {
    "add": lambda v: v + 1,
    "copy": lambda v: v.copy(),
    "sum": lambda v: v.sum(),
    "astype": lambda v: v.astype(np.float32),
}


def run_steps(x: Any, steps: list[tuple[Any, ...]]) -> Any:
    """The program: all values made, after all writes. A step that NumPy would refuse is left out;
    which ones that are depends on shapes alone."""
    values = [x * 1]
    for kind, where, *rest in steps:
        v = values[where % len(values)]
        other = values[rest[-1] % len(values)] if kind in ("set", "augment", "out", "copyto") else v
        fits = _fits(other.shape, v.shape)
        if kind == "view" and _valid(v.shape, rest[0]):
            values.append(v[rest[0]])
        elif kind == "permute":
            values.append(v.T)
        elif kind == "reshape" and _reshapes(v.shape, rest[0]):
            values.append(v.reshape(rest[0]))
        elif kind == "flip" and len(v.shape):
            values.append(np.flip(v, 0))
        elif kind == "compute":
            values.append(COMPUTED[rest[0]](v))
        elif kind == "set" and len(v.shape):
            index = rest[0]
            if index == ("mask",):
                v[v > 2] = rest[1]
            elif _valid(v.shape, index):
                shape = np.empty(v.shape)[index].shape
                v[index] = other if _fits(other.shape, shape) else rest[1]
        elif kind == "augment":
            if rest[0] == "+":
                v += other if fits else 1
            else:
                v *= 2
            values[where % len(values)] = v
        elif kind == "out" and len(v.shape) and fits:
            np.maximum(other, 1, out=v)
        elif kind == "copyto" and len(v.shape) and fits:
            np.copyto(v, other)
    return tuple(values)


def _fits(source: Any, target: Any) -> bool:
    try:
        return np.broadcast_shapes(source, target) == tuple(target)
    except ValueError:
        return False


class _Valid:
    """Asks NumPy, also while a program is traced: the calls in objects are not captured."""

    def __call__(self, shape: Any, index: Any) -> bool:
        try:
            return np.empty(shape)[index].size > 0
        except IndexError:
            return False


_valid = _Valid()


def _reshapes(shape: Any, new: Any) -> bool:
    try:
        return np.empty(shape).reshape(new) is not None
    except ValueError:
        return False


def test_random_programs() -> None:
    """Traced, each gives what NumPy gives; few are refused, and only for what is not known."""
    count = {"traced": 0, "refused": 0}

    @settings(max_examples=400, deadline=None)
    @given(PROGRAMS)
    def one(program: tuple[tuple[int, ...], list[tuple[Any, ...]]]) -> None:
        shape, steps = program
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        expected = run_steps(x, steps)
        try:
            module = fx.symbolic_trace(lambda x: run_steps(x, steps), x=x)
        except TraceError as error:
            assert "may or may not" in str(error) or "is not known" in str(error), error
            count["refused"] += 1
            return
        count["traced"] += 1
        module.graph.lint()
        compare("traced", fx.Interpreter(module).run(x), expected)

    one()
    assert count["refused"] <= 0.05 * count["traced"], count


def test_methods_of_a_number_that_is_known() -> None:
    """It is known because the program has written it, and traced nevertheless."""

    def program(x: Any) -> Any:
        y = x * 1
        y[None] = 1
        s = y.sum()
        made = [s.copy(), s.flatten(), s.repeat(2), s.take(0), s.astype(int), s.clip(0, 2), s.reshape(1), s.item()]
        return x, *made, np.zeros(int(s))

    x = np.ones((4, 3), np.float32)
    agree(program, x)
    with pytest.raises(TraceError, match=r"(?s)is a NumPy number, which cannot be written to.*in_place.py:\d+"):
        fx.symbolic_trace(lambda x: program(x)[1].fill(2), x)


def test_two_writes_at_run_time_places_share_no_local_of_an_ended_loop() -> None:
    def program(x: Any, i: Any) -> Any:
        rows = np.zeros_like(x)
        rows[i] = x[: i.shape[0]]
        rows[i, 0] = 9
        return rows

    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    agree(program, x, np.array([2, 0]), types=("f32[T,3]", "i64[N]"))


def _rows_of_values_and_numbers(x: Any) -> Any:
    y = np.zeros((3, 2), int)
    y[0] = x[0], 4
    y[1:] = [[1, x[1]], [x[2], 7]]
    z = np.zeros((2, 3))
    z[0] = [x[0], 2, x.shape[0]]
    z[:, 1] = (x[1], 5)
    return y, z


@pytest.mark.parametrize("kind", ["f64[3]", "f64[N]"])
def test_lists_of_values_and_numbers_are_written(kind: str) -> None:
    x = np.array([1.7, 2.2, 3.9])
    for found, expected in zip(fx.compile(_rows_of_values_and_numbers, x=kind)(x), _rows_of_values_and_numbers(x)):
        np.testing.assert_array_equal(found, expected)


# -- arrays that lie in memory in another order ----------------------------------------------------
def _through_reshape(x: Any) -> Any:
    x.reshape(-1)[0] = 7
    return x * 1


def _into_copy(x: Any) -> Any:
    y = x.T.ravel()  # a copy of an array in the order of rows, a view of one in that of columns
    y[0] = 7
    return x * 1


def _read_later(x: Any) -> Any:
    y = x.reshape(2, 6)
    x += 1
    return y * 1


def _of_a_result(x: Any) -> Any:
    y = x * 2
    y.reshape(-1)[1] = 7  # y has the order of x
    return y


def _keeps(x: Any) -> Any:
    return x.ravel(order="K") * 1


def _both(x: Any) -> Any:
    y = x * 2
    x.reshape(-1)[0] = 7
    return y.ravel(order="K"), x * 1  # asks less of x than the write does


def _no_matter(x: Any) -> Any:
    y = (x @ x.T).reshape(-1)  # a product is always in the order of rows
    y[0] = 7
    z = x.reshape(2, 6) * 1
    x[0] = 3
    return y, z, x.reshape(-1).sum()


@pytest.mark.parametrize(
    "program", [_through_reshape, _into_copy, _read_later, _of_a_result, _keeps, _both, _no_matter]
)
@pytest.mark.parametrize("order", ["C", "F", "gaps"])
def test_orders_of_arrays_are_numpys_or_refused(program: Any, order: str, tmp_path: Path) -> None:
    """What was taken for granted of an argument's order in memory is asked of each call, in every back end,
    and of what is stored in a file."""
    whole = np.arange(24.0).reshape(3, 8)
    x = {"C": np.arange(12.0).reshape(3, 4), "F": np.arange(12.0).reshape(4, 3).T, "gaps": whole[:, :4]}[order]
    module = fx.symbolic_trace(program, x="f64[3,4]")
    fx.save(module, tmp_path / "program.fxlite")
    loaded = fx.load(tmp_path / "program.fxlite")
    expected_x = x.copy(order="K") if order != "gaps" else np.arange(24.0).reshape(3, 8)[:, :4]
    expected = program(expected_x)
    for call in (module, loaded, fx.compile(module, backend="c"), fx.Interpreter(module).run, fx.jit(program)):
        given = x.copy(order="K") if order != "gaps" else np.arange(24.0).reshape(3, 8)[:, :4]
        try:
            result = call(given)
        except ArgumentError as error:
            assert program is not _no_matter and order != "C", error
            assert re.search(
                r"x must be (C-contiguous|in the order of rows).*pass np\.ascontiguousarray\(x\)", str(error)
            )
            continue
        for found, wanted in zip(flatten(result), flatten(expected), strict=True):
            np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(given, expected_x)


def row_by_name(x: Any, i: Any) -> Any:
    y = x.copy()
    row = y[i[0]]
    row[i[1]] = row[0] + 1
    row[i[1]] *= 2
    return y, row


def subscript_of_subscript(x: Any, i: Any) -> Any:
    y = x.copy()
    y[i[0]][i[1]] = 7
    y[i[0]][0] += 1
    y[i[0]][i[1]] += y[0][i[1]]
    return y


def part_of_a_part(x: Any, i: Any) -> Any:
    y = x.copy()
    y[:, 1:][i[0]][1] -= 3
    return y


@pytest.mark.parametrize("program", [row_by_name, subscript_of_subscript, part_of_a_part])
def test_run_time_places_of_parts_are_written_alone(program: Callable[..., Any]) -> None:
    """``y[i][j] = v`` writes one number into y, not a changed row."""
    gm = agree(program, X, np.array([2, 1]))
    written = [node for node in gm.graph.nodes if node.op == "call_function" and "_update" in node.target.name]
    assert written
    assert all(node.args[1].type.shape == () for node in written if hasattr(node.args[1], "type")), str(gm.graph)
