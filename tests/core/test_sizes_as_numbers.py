"""Arithmetic of named sizes with numbers: sizes stay sizes where they can, and are numbers that the
program computes where they cannot; on the graph and in C as Python and NumPy have it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import ShapeError, TraceError

#: Programs of ``x: f64[N]`` that hold for all N.
PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "minus a float": lambda x: x / (x.shape[0] - 1.0),
    "a float minus": lambda x: x * (1.0 - x.shape[0]),
    "times a float": lambda x: x * (0.5 * x.shape[0]) + x * (x.shape[0] * 0.25),
    "plus a float": lambda x: x * (-x.shape[0] + 1.5),
    "halves": lambda x: x * (x.shape[0] / 2) + (3 / x.shape[0]),
    "reciprocal": lambda x: x * (1.0 / x.shape[0]),
    "powers": lambda x: x * x.shape[0] ** 2 + x.shape[0] ** 0.5 + 2.0 ** x.shape[0] + x.shape[0] ** -1,
    "built-in pow": lambda x: x * pow(x.shape[0], 3),
    "floor by a float": lambda x: x * (x.shape[0] // 2.0) + x.shape[0] % 2.5,
    "divmod": lambda x: x * divmod(x.shape[0], 3)[0] + divmod(x.shape[0], 3)[1] + divmod(50, x.shape[0])[1],
    "bits": lambda x: x * (x.shape[0] & 1) + (x.shape[0] | 8) + (x.shape[0] ^ 3) + (x.shape[0] >> 1) + ~x.shape[0],
    "abs": lambda x: x * abs(x.shape[0] - 9) + abs(x.shape[0] - 9.5) + (+x.shape[0]),
    "rounded": lambda x: (
        x * round(x.shape[0]) + math.floor(x.shape[0]) + math.ceil(x.shape[0]) + math.trunc(x.shape[0])
    ),
    "of NumPy's floats": lambda x: x * (x.shape[0] * np.float64(0.5)),
    "size of all": lambda x: x * (x.size - 1.0) / x.size,
    "root of a quotient": lambda x: x * np.sqrt(x.shape[0] / 2),
    "complex": lambda x: np.exp(-2j * np.pi * np.arange(x.shape[0]) / x.shape[0]) * x,
    "complex number": lambda x: x * (1j * x.shape[0]),
    "smallest and largest": lambda x: (
        x[: min(x.shape[0], 3)].sum() + x * max(x.shape[0], 9, 2) + np.ones(min([x.shape[0] - 1, 4])).sum()
    ),
    "compared with a float": lambda x: x * (x.shape[0] / 2 > 3.5),
    "shapes of powers": lambda x: np.zeros(x.shape[0] ** 2) + x.sum(),
}

#: Programs that need a value: fx.jit takes numbers for their sizes.
NEED_VALUES: dict[str, Callable[[Any], Any]] = {
    "int": lambda x: x[: int(x.shape[0] / 2)],
    "share": lambda x: x[int(x.shape[0] * 0.25) :],
    "round": lambda x: x * round(x.shape[0] / 2),
    "ceil": lambda x: np.zeros(math.ceil(x.shape[0] / 3)) + x.sum(),
    "bit_length": lambda x: x * (x.shape[0] - 1).bit_length(),
    "power of two": lambda x: x * 2 ** x.shape[0],
    "shift": lambda x: x * (1 << x.shape[0]),
    "tens": lambda x: x * round(x.shape[0], -1),
    "format": lambda x: x * float(f"{x.shape[0]:d}"),
    "key": lambda x: x * {7: 2.0, 12: 3.0}[x.shape[0]],
}


def _same(found: Any, expected: Any) -> None:
    assert np.asarray(found).dtype == np.asarray(expected).dtype
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_graph_for_all_sizes(name: str) -> None:
    program = PROGRAMS[name]
    module = fx.symbolic_trace(program, "f64[N]")
    compiled = fx.compile(module, backend="c")
    for size in (1, 7, 12):
        x = np.linspace(0.5, 2, size)
        _same(module(x), program(x))
        _same(compiled(x), program(x))


@pytest.mark.parametrize("name", NEED_VALUES)
def test_jit_takes_numbers_where_the_program_needs_them(name: str) -> None:
    program = NEED_VALUES[name]
    call = fx.jit(program, backend="python")
    for size in (7, 12):
        x = np.linspace(0.5, 2, size)
        _same(call(x), program(x))


def test_float32_stays() -> None:
    """A size is a number of Python: it does not widen what it is multiplied with."""
    module = fx.symbolic_trace(lambda x: x * (x.shape[0] / 2) - (1.0 - x.shape[0]), "f32[N]")
    assert str(module.graph.output_node().args[0].type) == "f32[N]"


@pytest.mark.parametrize("program", [lambda x: x * 2 ** x.shape[0], lambda x: x * (1 << x.shape[0])])
def test_integers_without_bounds_are_refused(program: Callable[[Any], Any]) -> None:
    """Python's integers do not overflow; 64 bits would."""
    with pytest.raises(TraceError, match=r"an integer of any size needs a number, but the size N .*"):
        fx.symbolic_trace(program, "f64[N]")


def test_any_error_of_named_sizes_is_tried_with_numbers() -> None:
    def program(x: Any) -> Any:
        if x.shape[0].__class__ is not int:
            raise RuntimeError("no number")
        return x + 1

    call = fx.jit(program, backend="python")
    _same(call(np.zeros(3)), np.ones(3))
    assert "RuntimeError: no number" in str(call.explain())
    with pytest.raises(ZeroDivisionError):  # what the program raises in any case
        fx.jit(lambda x: x * (1 // 0), backend="python")(np.zeros(3))


def _padded(x: Any) -> Any:
    """Rows padded to groups of four, as models with windows do it."""
    more = (4 - x.shape[1] % 4) % 4
    groups = np.pad(x, ((0, 0), (0, more))).reshape(x.shape[0], -1, 4)
    groups = groups - groups.mean(-1, keepdims=True)
    return groups.reshape(x.shape[0], -1)[:, : x.shape[1]] * groups.shape[1]


def test_sizes_that_are_whole_in_all_but_not_in_their_parts() -> None:
    gm = fx.symbolic_trace(_padded, x="f32[B,T]")
    for fn in (gm, fx.compile(gm)):
        for size in (1, 3, 4, 7, 8):
            x = np.arange(2 * size, dtype=np.float32).reshape(2, size)
            np.testing.assert_allclose(fn(x), _padded(x), rtol=1e-6)


@pytest.mark.parametrize("more", [lambda x: x[: x.shape[0] // 2], lambda x: x[:2], lambda x: x[: -x.shape[0] % 3]])
def test_parts_are_not_taken_for_whole_that_are_not(more: Any) -> None:
    """They were, where a size had several terms."""

    def program(x: Any) -> Any:
        return np.concatenate([x, more(x)]).reshape(-1, 4)

    with pytest.raises(ShapeError, match="4 does not divide"):
        fx.symbolic_trace(program, x="f32[T]")
    gm = fx.symbolic_trace(_rounded_down, x="f32[T,S]")
    for height in (2, 3):
        x = np.ones((height, 5), np.float32)
        assert gm(x).shape == fx.compile(gm)(x).shape == _rounded_down(x).shape


def _rounded_down(x: Any) -> Any:
    return np.ones(((x.shape[0] + 1) * x.shape[1]) // (2 * x.shape[1]))
