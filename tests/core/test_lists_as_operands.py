# ruff: noqa: RUF005, SIM300 - the operands stand where programs put them
"""Lists and tuples beside traced values: NumPy makes arrays of them, and so does a trace."""

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import TraceError
from tests.oracle import agree

X = np.arange(6.0).reshape(2, 3) - 2
B = np.array([True, False, True])
I = np.array([1, 2, 3])

PROGRAMS = {
    "add": lambda x, b, i: (1, 2, 3) + x,
    "subtract": lambda x, b, i: x - [1, 2, 3],
    "subtract from": lambda x, b, i: (1, 2, 3) - x,
    "multiply": lambda x, b, i: [1, 2, 3] * x,
    "divide": lambda x, b, i: x / [[1.0], [2.0]],
    "power": lambda x, b, i: [5, 4, 3] ** i,
    "shift": lambda x, b, i: i >> [1, 0, 0],
    "matmul": lambda x, b, i: x @ [1, 2, 3],
    "matmul from the left": lambda x, b, i: [1.0, 2.0] @ x,
    "and": lambda x, b, i: (1, 0, 1) & i,
    "equal": lambda x, b, i: (1, 0, 3) == i,
    "not equal": lambda x, b, i: i != [1, 0, 3],
    "less": lambda x, b, i: [1, 0, 1] < x,
    "traced values in it": lambda x, b, i: x[0] * [x[1, 0], 2, x[0, 1]],
    "a size in it": lambda x, b, i: i + [x.shape[0], 1, x.shape[1]],
    "ufunc": lambda x, b, i: np.bitwise_and((1, 0, 1), b),
    "ufunc of two results": lambda x, b, i: np.divmod(i, [1, 2, 2]),
    "maximum": lambda x, b, i: np.maximum(x, [1, 2, 3]),
    "arctan2": lambda x, b, i: np.arctan2([1, 2, 3], x),
    "where": lambda x, b, i: np.where([True, False, True], x, 0),
    "clip": lambda x, b, i: np.clip(x, [0, 1, 2], [1, 2, 3]),
    "dot": lambda x, b, i: np.dot([[1, 2], [3, 4]], x),
    "weights": lambda x, b, i: np.average(i, weights=[1, 2, 3]),
    "Python repeats a list": lambda x, b, i: i + len([0] * len(i)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_numpy(name):
    """The graph and compiled code give what NumPy gives, in its dtype."""
    program = PROGRAMS[name]
    expected = program(X, B, I)
    graph = fx.symbolic_trace(program, x="f64[2,3]", b="bool[3]", i="i64[3]")
    for found in (graph(X, B, I), fx.jit(program)(X, B, I)):
        several = isinstance(expected, tuple)
        for one, other in zip(found if several else [found], expected if several else [expected], strict=True):
            np.testing.assert_allclose(one, other)
            assert np.asarray(one).dtype == np.asarray(other).dtype


def test_a_list_that_is_written_into():
    """``x += [1, 2, 3]`` changes the caller's array."""

    @fx.jit
    def program(x):
        x += [1, 2, 3]

    x = X.copy()
    program(x)
    np.testing.assert_array_equal(x, X + [1, 2, 3])


@pytest.mark.parametrize("operand", [["a", "b", "c"], [[1, 2], [3]], [1, None, 2]])
def test_what_is_no_array(operand):
    with pytest.raises(TraceError, match=r"add: .* is not an array: .*\n  at .*test_lists_as_operands.py:\d+: x \+ op"):
        fx.symbolic_trace(lambda x: x + operand, x="f32[3]")


@pytest.mark.parametrize("other", [None, "text", b"bytes", {}, {1}, slice(2), ..., object()])
def test_what_is_no_number_is_equal_to_no_element(other) -> None:
    """NumPy compares each element with what is no number, and gives an array."""

    def program(x: Any) -> Any:
        return x == other, x != other, other == x, (x[0] == other) | (x[1] != other), np.where(x != other, x, 0)

    agree(program, np.arange(6.0).reshape(2, 3))
    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    for found, expected in zip(fx.jit(program)(x), program(x), strict=True):
        np.testing.assert_array_equal(found, expected)
    lazily = fx.lazy.asarray(x)
    for found, expected in zip((lazily == other, lazily != other), (x == other, x != other), strict=True):
        np.testing.assert_array_equal(np.asarray(found), expected)


def test_an_array_beside_none_is_no_condition() -> None:
    with pytest.raises(ValueError, match="ambiguous"):
        fx.jit(lambda x: x if x == None else -x)(np.ones(3))  # noqa: E711
    assert fx.jit(lambda x: 1 if x.sum() == None else 2)(np.ones(3)) == 2  # noqa: E711


class Anything:
    """What compares in a way of its own is asked first, as NumPy does by ``__array_ufunc__``."""

    __array_ufunc__ = None

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def test_what_compares_in_its_own_way_is_asked() -> None:
    x = np.ones(3)
    assert (x == Anything()) is True
    gm = fx.symbolic_trace(lambda x: x + (1 if x == Anything() else 2), "f64[3]")
    np.testing.assert_array_equal(gm(x), x + 1)
