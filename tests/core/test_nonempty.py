"""Slices whose type is true for axes that are not empty: what a call must fulfil, in every back
end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from tests.oracle import agree


def guards(program: Any, type: Any) -> list[str]:
    return [str(guard) for guard in fx.symbolic_trace(program, type).graph.guards]


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (lambda x: x[:, -1:], ["T >= 1"]),
        (lambda x: x[:, 1:] - x[:, :-1], ["T >= 1"]),
        (lambda x: x[:, :1], ["T >= 1"]),
        (lambda x: x[:, -2:], []),
        (lambda x: x[:, :2], []),
        (lambda x: x[:, 1:3], ["T >= 1"]),
        (lambda x: x[:1, 1:], ["B >= 1", "T >= 1"]),
        (lambda x: x[:, :, 1:], []),
        (lambda x: x[:, : x.shape[0]], []),
        (lambda x: x[:, ::2], []),
    ],
)
def test_what_is_required(program: Any, expected: list[str]) -> None:
    """Where nothing is required, the type says what NumPy does, for empty axes too."""
    gm = fx.symbolic_trace(program, "f32[B,T,4]")
    assert sorted(map(str, gm.graph.guards)) == expected
    x = np.zeros((0, 0, 4), np.float32)
    if not expected:
        fx.ShapeProp(gm).propagate(x)


def test_a_named_bound_counts_from_the_end() -> None:
    def program(x: Any, y: Any) -> Any:
        n = y.shape[0]
        return x[-n:] * 2, x[:-n] + 1, x[-2 * n :]

    gm = fx.symbolic_trace(program, "f32[M]", "f32[N]")
    assert {str(guard) for guard in gm.graph.guards} == {"N >= 1"}
    for sizes in ((5, 2), (3, 4), (4, 4)):
        x, y = (np.arange(n, dtype=np.float32) for n in sizes)
        agree(gm, x, y)
        for found, expected in zip(gm(x, y), program(x, y), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_a_fact_decides() -> None:
    length = fx.dims("T", min=1)
    assert guards(lambda x: x[-1:], fx.TensorType((length,), fx.float32)) == []


def test_an_empty_axis_is_refused_with_the_line() -> None:
    class Last(nn.Module):
        def forward(self, x: Any) -> Any:
            return np.exp(x[:, -1:])

    gm = fx.symbolic_trace(Last(), "f32[B,T,4]")
    rule = r"T >= 1 is required by test_nonempty.py:\d+: x\[:, -1:\]; got T ?= ?0"
    for function in (gm, fx.compile(gm, backend="c", threads=1), fx.Interpreter(gm).run):
        assert function(np.ones((2, 3, 4), np.float32)).shape == (2, 1, 4)
        with pytest.raises(ValueError, match=rule):
            function(np.zeros((2, 0, 4), np.float32))


def test_a_graph_that_was_edited_needs_elements_in_compiled_code_too() -> None:
    gm = fx.symbolic_trace(lambda x: x + 1, x="f32[N]")
    (add,) = gm.graph.find_nodes(op="call_function")
    with gm.graph.inserting_after(add):
        largest = gm.graph.call_function(fx.ops.max, (add,))
    add.replace_all_uses_with(largest, lambda user: user is not largest)
    compiled = fx.compile(gm)
    assert compiled(np.arange(3, dtype=np.float32)) == 3
    with pytest.raises(ValueError, match="N >= 1 is required by test_nonempty"):
        compiled(np.zeros(0, np.float32))


@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "u16"])
def test_a_size_that_becomes_a_number_fits_its_type(dtype: str) -> None:
    """NumPy refuses ``x + 200`` for int8; compiled code would wrap. So the size has a bound."""
    limit = int(np.iinfo(fx.dtypes.dtype(dtype).numpy).max)

    def program(x: Any, n: Any) -> Any:
        return x + n.shape[0]

    module = fx.symbolic_trace(program, f"{dtype}[2]", "f32[N]")
    compiled = fx.compile(module, backend="c")
    x = np.zeros(2, fx.dtypes.dtype(dtype).numpy)
    for run in (module, compiled):
        assert run(x, np.zeros(limit, np.float32)).tolist() == [limit, limit]
        with pytest.raises(ValueError, match=rf"N <= {limit} is required by test_nonempty"):
            run(x, np.zeros(limit + 1, np.float32))


def test_a_size_is_compared_as_it_is() -> None:
    """NumPy compares with any Python int, also one that the dtype does not hold."""
    for size in (3, 300):
        x = np.array([[5, -5]] * size, np.int8)
        agree(lambda x: (x > x.shape[0], x.shape[0] != x), x, types=["i8[N,2]"])


def test_a_write_into_a_slice_needs_its_elements() -> None:
    def program(x: Any) -> Any:
        y = x * 1
        y[::-1, 1:] = np.float32(3)
        return y

    module = fx.symbolic_trace(program, "f32[2,B]")
    compiled = fx.compile(module, backend="c")
    for size in (1, 2, 5):
        x = np.ones((2, size), np.float32)
        assert all(np.array_equal(run(x), program(x)) for run in (module, compiled))


def test_an_array_has_no_negative_size() -> None:
    module = fx.symbolic_trace(lambda x: fx.ops.zeros((x.shape[0] - 2,)), "f32[B]")
    for run in (module, fx.compile(module, backend="c")):
        assert run(np.ones(3, np.float32)).shape == (1,)
        with pytest.raises(ValueError, match="B >= 2 is required by test_nonempty"):
            run(np.ones(1, np.float32))


def test_numbers_are_not_squared_as_arrays_are() -> None:
    """``np.True_ ** 2`` is int64 and ``np.array([True]) ** 2`` is int8."""
    agree(lambda x: (x.all() ** 2, x**2, x.any(keepdims=True) ** 2), np.array([True, False]))


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_square_roots_by_power(dtype: str) -> None:
    x = np.array([-0.0, -np.inf, 0.0, 4.0, np.inf, np.nan]).astype(fx.dtypes.dtype(dtype).numpy)
    module = agree(lambda x: x**0.5, x)
    assert np.signbit(fx.Interpreter(module).run(x)[0])
