"""Views, joining, creation and indexing in NumPy's spellings: traced programs against NumPy itself,
with concrete and named dims, and what must be refused."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fxlite as fx
from fxlite import ops
from fxlite.base.errors import FxliteError, ShapeError, TraceError
from fxlite.ops.samples import S
from fxlite.ops.slicing import never_negative, slice_bounds
from fxlite.types import shapes
from tests.graphs import of_arrays, ops_of
from tests.ops.body_check import check_body
from tests.oracle import RUNGS, agree

SIZES = (0, 1, 2, 3, 5)
FAST = ("graph", "python")
INTERPRETED = [r for r in ("graph", "python", "kernel") if r in RUNGS]


def arange(*shape: int) -> np.ndarray[Any, Any]:
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)


def run_all(program: Any, *inputs: Any, types: Any = None) -> fx.GraphModule:
    """Every rung that needs no compiler (the samples of the ops run the compiled ones too)."""
    return agree(program, *inputs, types=types, rungs=INTERPRETED)


# -- subscripts ------------------------------------------------------------------------------------
SUBSCRIPTS: list[tuple[str, Any, list[str]]] = [
    ("x[:]", lambda x: x[:] + 0, ["add"]),
    ("x[1:]", lambda x: x[1:], ["slice"]),
    ("x[:, :-1]", lambda x: x[:, :-1], ["slice"]),
    ("x[:, -1:]", lambda x: x[:, -1:], ["slice"]),
    ("x[:, 0]", lambda x: x[:, 0], ["select"]),
    ("x[-1]", lambda x: x[-1], ["select"]),
    ("x[..., 2]", lambda x: x[..., 2], ["select"]),
    ("x[:, ::-1]", lambda x: x[:, ::-1], ["flip"]),
    ("x[:, ::-2]", lambda x: x[:, ::-2], ["flip", "slice"]),
    ("x[:, :4]", lambda x: x[:, :4], ["slice"]),
    ("x[:, -4:]", lambda x: x[:, -4:], ["slice"]),
    ("x[:, -4:-1:2]", lambda x: x[:, -4:-1:2], ["slice"]),
    ("x[:, 2::-1]", lambda x: x[:, 2::-1], ["flip", "slice"]),
    ("x[:, :-3:-1]", lambda x: x[:, :-3:-1], ["flip", "slice"]),
    ("x[:, None]", lambda x: x[:, None], ["unsqueeze"]),
    ("x[None, ..., None]", lambda x: x[None, ..., None], ["unsqueeze", "unsqueeze"]),
    ("x[1:, 0, None, ::2]", lambda x: x[1:, 0, None, ::2], ["slice", "select", "unsqueeze", "slice"]),
    ("x[[1, 0]]", lambda x: x[[1, 0]], ["take"]),
    ("x[:, [0, -1, 0]]", lambda x: x[:, [0, -1, 0]], ["take"]),
    ("x[0, :, [1, 2]]", lambda x: x[0, :, [1, 2]], ["select", "take", "permute"]),
    ("x[[1, 0], [2, 1]]", lambda x: x[[1, 0], [2, 1]], ["index"]),
    ("x[[1, 0], :, [2, 1]]", lambda x: x[[1, 0], :, [2, 1]], ["permute", "index"]),
    ("x[:, [[1], [0]], [2, 1]]", lambda x: x[:, [[1], [0]], [2, 1]], ["index"]),
    ("x[[1, 0], None, 0]", lambda x: x[[1, 0], None, 0], ["unsqueeze", "select", "take"]),
    ("x[1][2][3]", lambda x: x[1][2][3], ["select", "select", "select"]),
]


@pytest.mark.parametrize(("text", "program", "expected"), SUBSCRIPTS, ids=[s[0] for s in SUBSCRIPTS])
@pytest.mark.parametrize("declared", ["f32[2,5,4]", "f32[B,T,4]"])
def test_subscript(text: str, program: Any, expected: list[str], declared: str) -> None:
    module = run_all(program, arange(2, 5, 4), types=[declared])
    assert ops_of(module) == expected


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize(
    "program",
    [
        lambda x: x[1:] - x[:-1],
        lambda x: x[-1:],
        lambda x: x[:1],
        lambda x: x[:4] * 2,
        lambda x: x[-4:],
        lambda x: x[2:],
        lambda x: x[2:-2],
        lambda x: x[::3],
        lambda x: x[1::2],
        lambda x: x[::-3],
        lambda x: x[-2::-1],
        lambda x: x[:2:-1],
        lambda x: x[: x.shape[0] // 2],
        lambda x: x[x.shape[0] // 2 :],
        lambda x: x[x.shape[0] - 1 :],
        lambda x: np.concatenate([x[1:], x[:1]]) + x,
        lambda x: x[x.shape[0] // 2],
    ],
)
def test_slices_of_a_named_axis_are_right_for_all_sizes(program: Any, size: int) -> None:
    run_all(program, arange(size), types=["f32[T]"])


def test_sizes_of_named_slices_read_well() -> None:
    def shape_of(program: Any, declared: str = "f32[T]") -> str:
        return str(fx.symbolic_trace(program, declared).graph.output_node().type)

    assert shape_of(lambda x: x[1:]) == "f32[T-1]"
    assert shape_of(lambda x: x[:-1]) == "f32[T-1]"
    assert shape_of(lambda x: x[-1:]) == "f32[1]"
    assert shape_of(lambda x: x[:1]) == "f32[1]"
    assert shape_of(lambda x: x[:4]) == "f32[Min(4,T)]"
    assert shape_of(lambda x: x[-4:]) == "f32[Min(4,T)]"
    assert shape_of(lambda x: x[:, 2:], "f32[B,4*D]") == "f32[B,4*D-2]"
    assert shape_of(lambda x: x[: x.shape[0] // 2], "f32[2*D]") == "f32[D]"


def test_prefix_of_a_table_as_long_as_the_input() -> None:
    table = arange(6, 2)

    module = fx.symbolic_trace(lambda x, t: x + t[: x.shape[1]], "f32[B,T,2]", "f32[6,2]")
    x = arange(3, 4, 2)
    np.testing.assert_array_equal(module(x, table), x + table[:4])


def test_traced_numbers_and_arrays_as_indices() -> None:
    tokens = np.array([[0, 2], [1, -1]])
    run_all(lambda x, i: x[i], arange(3, 4), tokens, types=["f32[V,D]", "i64[B,T]"])
    run_all(lambda x, i: x[:, i], arange(2, 3), np.array(1), types=["f32[B,3]", "i64[]"])
    run_all(lambda x, i: x[i, 1:, i], arange(3, 4, 3), np.array(2))
    run_all(lambda x, i: x[i[0], :, i], arange(3, 4, 3), np.array([2, 1]))
    run_all(lambda x, i, j: x[:, i, j], arange(2, 3, 4), np.array([0, 2]), np.array([[1], [3]]))
    run_all(lambda x, i, j: x[i, ..., j], arange(2, 3, 4), np.array([0, 1]), np.array([1, -4]))


def test_index_out_of_range_is_an_index_error_when_run() -> None:
    module = fx.symbolic_trace(lambda x, i: x[i], "f32[3,2]", "i64[B]")
    for rung in INTERPRETED:
        with pytest.raises(IndexError):
            RUNGS[rung](module)((arange(3, 2), np.array([0, 3])))
    module = fx.symbolic_trace(lambda x: x[:, 3], "f32[2,T]")
    for rung in INTERPRETED:
        with pytest.raises(IndexError):
            RUNGS[rung](module)((arange(2, 3),))


@pytest.mark.parametrize(
    ("program", "error", "match"),
    [
        (lambda x: x[3], ShapeError, "index 3 is out of range for axis 0 of size 3"),
        (lambda x: x[0, -5], ShapeError, "out of range for axis 0 of size 4"),
        (lambda x: x[0, 0, 0], ShapeError, "3 indices for f32[3,4], which has rank 2"),
        (lambda x: x[..., ...], FxliteError, "at most one '...'"),
        (lambda x: x[1.5], FxliteError, "not 1.5"),
        (lambda x: x["a"], FxliteError, "not 'a'"),
        (lambda x: x[np.array([0.5])], FxliteError, "float64"),
        (lambda x: x[::0], FxliteError, "other than 0"),
        (lambda x: x[x], FxliteError, "must hold integers"),
        (lambda x: x[: x.sum()], TraceError, "bounds of a slice are integers"),
    ],
)
def test_refused_subscripts_say_why_and_where(program: Any, error: Any, match: str) -> None:
    with pytest.raises(error) as caught:
        fx.symbolic_trace(program, "f32[3,4]")
    assert match in str(caught.value)
    assert "test_view_indexing.py" in str(caught.value)


def test_untyped_traces_need_types_for_subscripts() -> None:
    with pytest.raises(TraceError, match="no types"):
        fx.symbolic_trace(lambda x: x[1:])


def test_untyped_traces_take_slice_ops() -> None:
    module = fx.symbolic_trace(lambda x: ops.slice(x, 1, -2))
    x = arange(2, 4)
    np.testing.assert_array_equal(module(x), x[:, -2:])


# -- NumPy's functions -----------------------------------------------------------------------------
FUNCTIONS: list[Any] = [
    lambda x: x.reshape(x.shape[0], -1),
    lambda x: x.reshape(-1),
    lambda x: np.reshape(x, (x.shape[0], 2, 2, 3)).transpose(0, 2, 1, 3).reshape(x.shape[0], -1, 6),
    lambda x: x.reshape((x.shape[0] * x.shape[1], x.shape[2])),
    lambda x: x.T,
    lambda x: x.transpose(0, 2, 1),
    lambda x: np.transpose(x, (2, 0, 1)),
    lambda x: np.swapaxes(x, 1, 2),
    lambda x: np.moveaxis(x, -1, 0),
    lambda x: np.broadcast_to(x, (2, *x.shape)),
    lambda x: np.expand_dims(x, (0, -1)),
    lambda x: np.squeeze(x[:, :1], 1),
    lambda x: np.flip(x, 1),
    lambda x: np.flip(x),
    lambda x: np.roll(x, 1, axis=1),
    lambda x: np.roll(x, (1, -2), axis=(0, 1)),
    lambda x: np.roll(x, 5),
    lambda x: np.pad(x, ((0, 0), (1, 2), (0, 1)), constant_values=3),
    lambda x: np.pad(x, 1),
    lambda x: np.tril(x) + np.triu(x, 1),
    lambda x: np.concatenate([x, x[:, :1], x * 2], axis=1),
    lambda x: np.stack([x, x + 1], axis=-1),
    lambda x: np.vstack([x[0], x[1]]),
    lambda x: np.hstack([x, x]),
    lambda x: np.split(x, 2, axis=1)[1],
    lambda x: tuple(np.split(x, [1, 3], axis=2)),
    lambda x: np.repeat(x, 2, axis=1),
    lambda x: np.tile(x, (2, 1, 1)),
    lambda x: np.take(x, [0, 1], axis=1),
    lambda x: np.take_along_axis(x, x.argmax(axis=1, keepdims=True), axis=1),
    lambda x: np.zeros_like(x) + np.ones_like(x, dtype=np.int32) + np.full_like(x, 2.5),
    lambda x: ops.embedding(x.astype(np.int64) % 3, np.float32([[1, 2], [3, 4], [5, 6]])),
    lambda x: ops.one_hot(x.astype(np.int64) % 5, 5, "f32"),
]


@pytest.mark.parametrize("number", range(len(FUNCTIONS)))
@pytest.mark.parametrize("declared", ["f32[3,4,3]", "f32[B,4,3]", "f32[B,2*T,3]"])
def test_numpy_functions(number: int, declared: str) -> None:
    if "T" in declared and number == 2:  # [B, 2*T, 3] has no four rows to cut in halves
        pytest.skip("needs four rows")
    run_all(FUNCTIONS[number], arange(3, 4, 3), types=[declared])


def test_named_dims_in_created_tensors() -> None:
    def created(x: Any) -> Any:
        b, t = x.shape
        return (
            ops.zeros((b, 3)),
            ops.ones((t,), "i64"),
            ops.full((b, t), 2.5),
            ops.full((), t, "i64"),
            ops.full((2,), b * t, "f32"),
            ops.arange(t),
            ops.arange(1, t + 4, 2),
            ops.arange(t - 1, -1, -1),
            ops.arange(b, dtype="f32") * x[:, 0],
            x[:, t // 2],
            ops.pad(x, ((0, b), (t, 0))),
            ops.roll(x, t - 1, 1),
            ops.expand(x[:, None], (b, b, t)),
            ops.reshape(x, (t, b)),
            ops.tril(x, t),
            ops.one_hot(ops.arange(t), t),
        )

    for size in ((2, 3), (1, 1), (4, 6), (5, 2)):
        run_all(created, arange(*size), types=["f32[B,T]"])


def test_dims_as_numbers() -> None:
    run_all(lambda x: x.sum() / (x.shape[0] * 2), arange(3, 2).astype(np.float64), types=["f64[B,2]"])


def test_split_gives_types_and_shapes_of_its_parts() -> None:
    module = run_all(lambda x: tuple(ops.split(x, (2, 1, 3), 1)), arange(4, 6), types=["f32[B,6]"])
    assert [str(t) for t in module.graph.output_node().type] == ["f32[B,2]", "f32[B,1]", "f32[B,3]"]
    assert ops_of(module) == ["split", "getitem", "getitem", "getitem"]
    parts = ops.lookup("split").expand({"x": arange(4, 6), "sizes": (2, 1, 3), "axis": 1})
    assert [p.shape for p in parts] == [(4, 2), (4, 1), (4, 3)]


def test_spellings_are_one_node() -> None:
    def first(program: Any) -> Any:
        (node,) = [n for n in fx.symbolic_trace(program, "f32[B,T,4]").graph.nodes if n.op == "call_function"]
        return node.target.name, dict(node.kwargs)

    assert first(lambda x: x[:, -1:]) == first(lambda x: ops.slice(x, 1, -1))
    assert first(lambda x: x[..., :2]) == first(lambda x: ops.slice(x, 2, 0, -2))
    assert first(lambda x: x[..., -1]) == first(lambda x: ops.take(x, 3, 2))
    assert first(lambda x: np.transpose(x, (0, 2, 1))) == first(lambda x: ops.permute(x, (0, -1, -2)))
    assert first(lambda x: x.reshape(-1)) == first(lambda x: ops.reshape(x, -1))
    assert first(lambda x: ops.zeros(x.type.shape)) == first(lambda x: np.zeros_like(x))


def test_division_free_maps() -> None:
    """What reshape and permute do to an index is decided when the body is built."""
    from fxlite.scalar import expr
    from fxlite.scalar.index import DimVar, Index

    b, t, d = (Index.of(DimVar(n)) for n in "BTD")
    loops = [expr.fresh_var(s) for s in (b, t, 4, d)]
    reader = _Reader((b, t, d * 4))
    element = ops.reshape.element(
        tuple(Index.of(v) for v in loops),
        {"x": reader, "shape": (*map(shapes.symbols.symbol, "BT"), 4, shapes.symbols.symbol("D"))},
    )
    i, j, h, k = (Index.of(v) for v in loops)
    assert element.index == (i, j, h * d + k)


class _Reader:
    def __init__(self, shape: Any) -> None:
        from fxlite.types import dtypes

        self.shape, self.dtype = shape, dtypes.float32

    def __getitem__(self, index: Any) -> Any:
        from fxlite.scalar import expr

        return expr.Load(self.dtype, "x", index)


# -- properties ------------------------------------------------------------------------------------
bounds = st.none() | st.integers(-6, 6)
slices = st.builds(slice, bounds, bounds, st.none() | st.sampled_from([1, 2, 3, -1, -2]))


@st.composite
def subscripts(draw: Any) -> tuple[tuple[int, ...], Any]:
    """A shape and a subscript with slices, ints, None, Ellipsis and integer arrays that fits it."""
    shape = tuple(draw(st.lists(st.sampled_from(SIZES), min_size=1, max_size=4)))
    common = draw(st.sampled_from([(2,), (1,), (0,), (3, 2), (2, 1)]))
    arrays = draw(st.booleans())
    items: list[Any] = []
    used = draw(st.integers(0, len(shape)))
    for axis in range(used):
        while draw(st.integers(0, 4)) == 0:
            items.append(None)
        choice = draw(st.sampled_from(["slice", "slice", "int", "array" if arrays else "slice"]))
        at = axis
        if choice == "slice" or shape[at] == 0:
            items.append(draw(slices))
        elif choice == "int":
            items.append(draw(st.integers(-shape[at], shape[at] - 1)))
        else:
            kind = draw(st.sampled_from([common, common, ()]))
            count = int(np.prod(kind))
            positions = st.integers(-shape[at], shape[at] - 1)
            values = draw(st.lists(positions, min_size=count, max_size=count))
            items.append(np.array(values, dtype=np.int64).reshape(kind))
    if draw(st.booleans()) and used == len(shape):
        items.insert(draw(st.integers(0, len(items))), Ellipsis)
    elif draw(st.booleans()):
        items.append(Ellipsis)
    return shape, tuple(items)


@settings(max_examples=150, deadline=None)
@given(subscripts(), st.booleans(), st.sampled_from(["f32", "f64", "i32", "bool", "bf16", "i8"]))
def test_random_subscripts(case: Any, named: bool, dtype: str) -> None:
    shape, index = case
    x = arange(*shape).astype(fx.dtypes.dtype(dtype).numpy)
    declared = "f32[" + ",".join(f"D{a}" if s else "0" for a, s in enumerate(shape)) + "]"
    types = [declared.replace("f32", dtype)] if named else None
    agree(lambda x: x[index], x, types=types, rungs=FAST)


@settings(max_examples=60, deadline=None)
@given(subscripts())
def test_random_subscripts_with_traced_indices(case: Any) -> None:
    shape, index = case
    arrays = [i for i in index if isinstance(i, np.ndarray)]

    def program(x: Any, *values: Any) -> Any:
        given_values = iter(values)
        return x[tuple(next(given_values) if isinstance(i, np.ndarray) else i for i in index)]

    agree(of_arrays(program, 1 + len(arrays)), arange(*shape), *arrays, rungs=FAST)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_chains_of_reshape_and_permute(data: Any) -> None:
    shape = tuple(data.draw(st.lists(st.sampled_from(SIZES), min_size=1, max_size=4)))
    steps: list[tuple[str, tuple[int, ...]]] = []
    current = shape
    for _ in range(data.draw(st.integers(1, 4))):
        if data.draw(st.booleans()):
            order = tuple(data.draw(st.permutations(range(len(current)))))
            steps.append(("permute", order))
            current = tuple(current[a] for a in order)
        else:
            size, new = int(np.prod(current)), []
            for factor in (2, 3, 5):
                if size and size % factor == 0 and data.draw(st.booleans()):
                    new.append(factor)
                    size //= factor
            new.insert(data.draw(st.integers(0, len(new))), -1 if size and data.draw(st.booleans()) else size)
            steps.append(("reshape", tuple(new)))
            current = np.empty(current, np.int8).reshape(new).shape

    def program(x: Any) -> Any:
        for name, attribute in steps:
            x = np.transpose(x, attribute) if name == "permute" else x.reshape(attribute)
        return x

    agree(program, arange(*shape), rungs=FAST)
    x = shape
    for name, attribute in steps:
        check_body(ops.lookup(name), S(f"f32[{','.join(map(str, x))}]", attribute))
        x = ops.lookup(name)(np.empty(x), attribute).shape


@settings(max_examples=200, deadline=None)
@given(bounds, bounds, st.integers(1, 3), st.sampled_from(["T", "2*T", "T+1", "3*T+2"]), st.integers(1, 7))
def test_named_slice_bounds_are_pythons(start: Any, stop: Any, step: int, text: str, size: int) -> None:
    named = slice_bounds(shapes.parse(text), start or 0, stop, step)
    got = [shapes.substitute(v, {"T": size}) for v in named]
    total = shapes.substitute(shapes.parse(text), {"T": size})
    positions = range(total)[start:stop:step]
    assert got[2] == len(positions)
    assert got[0] >= 0
    assert [got[0] + k * step for k in range(got[2])] == list(positions)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 9), st.integers(0, 9), st.integers(-4, 4), st.integers(-4, 4), st.integers(-2, 2))
def test_never_negative_is_sound(t: int, s: int, a: int, b: int, c: int) -> None:
    texts = (
        f"Min({a}+4, T) - Max(T-{b + 4}, 0)",
        f"T - T//2 + {a}",
        f"T + {a} - Min(T, S)",
        f"{c}*Max(T, S+{a}) + T*2 + {b}",
        f"S//3 + {c}*Min(T, 4) + {a}",
        f"2*(T//2) - T + {a}",
    )
    for text in texts:
        dim = shapes.parse(text.replace("+-", "-"))
        if never_negative(dim):
            assert shapes.substitute(dim, {"T": t, "S": s}) >= 0, text
        if t and s and never_negative(dim, nonempty=True):
            assert shapes.substitute(dim, {"T": t, "S": s}) >= 0, text


_PIECES = (slice(None), 0, [0, 1], Ellipsis, None, np.array([True, False, True]))


def test_every_subscript_of_a_few_pieces() -> None:
    """An Ellipsis parts index arrays, though it may cover no axis: reads and writes as NumPy."""
    x, count = np.arange(120.0).reshape(2, 3, 4, 5), 0
    for length in (1, 2, 3, 4, 5):
        for pieces in itertools.product(_PIECES, repeat=length):
            dots = sum(p is Ellipsis for p in pieces)
            if dots > 1 or (length > 3 and not dots):
                continue
            try:
                wanted = x[pieces]
            except IndexError:
                continue
            found = fx.symbolic_trace(lambda x, pieces=pieces: x[pieces], "f64[2,3,4,5]")(x)
            assert found.shape == wanted.shape and np.array_equal(found, wanted), pieces
            count += 1
            if length > 4 or any(isinstance(p, np.ndarray) for p in pieces):
                continue  # a mask beside other index arrays cannot be written to
            given = np.arange(wanted.size).reshape(wanted.shape)
            written = x.copy()
            written[pieces] = given

            def program(x: Any, given: Any, pieces: Any = pieces) -> Any:
                y = x.copy()
                y[pieces] = given
                return y

            assert np.array_equal(fx.symbolic_trace(program, x, given)(x, given), written), pieces
    assert count > 1_000
