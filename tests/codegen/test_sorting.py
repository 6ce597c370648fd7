"""Sorting in C: rows side by side, by merging, and by digits; each dtype and size against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.codegen.c.render.routine_template import MOST_IN_LANES
from tests.oracle import agree

DTYPES = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]
#: Sizes of rows around those where another way begins.
SIZES = [1, 2, 3, 15, 16, 17, 31, 33, 64, 96, 197, 257, 513, MOST_IN_LANES, MOST_IN_LANES + 1, 1500]


def _numbers(kind: str, shape: tuple[int, ...]) -> Any:
    """Numbers with equal ones among them; of floats NaN of both signs, infinities and zeros of both signs, too."""
    rng = np.random.default_rng(3)
    if kind[0] != "f":
        info = np.iinfo(kind)
        found = rng.integers(info.min, info.max, shape, dtype=kind, endpoint=True)
        flat = found.reshape(-1)
        flat[::5] = flat[0]
        return found
    found = (rng.standard_normal(shape) * 40).astype(kind)
    flat = found.reshape(-1)
    for start, step, value in ((0, 7, np.nan), (1, 9, -np.inf), (2, 11, -0.0), (3, 11, 0.0), (4, 13, -np.nan)):
        flat[start::step] = value
    return found


def _check(x: Any, axis: int, threads: int) -> None:
    dtype = f"{x.dtype.kind}{8 * x.dtype.itemsize}"
    module = fx.symbolic_trace(
        lambda x: (np.sort(x, axis), np.argsort(x, axis, kind="stable")), f"{dtype}[{','.join(map(str, x.shape))}]"
    )
    values, positions = fx.compile(module, threads=threads)(x)
    np.testing.assert_array_equal(values, np.sort(x, axis))
    np.testing.assert_array_equal(positions, np.argsort(x, axis, kind="stable"))


@pytest.mark.parametrize("kind", DTYPES)
def test_named_rows(kind: str) -> None:
    """One build for all sizes: of few rows and of many, alone and among the last axes."""
    dtype = f"{kind[0]}{8 * int(kind[1])}"
    for axis in (0, 1):
        compiled = fx.compile(
            fx.symbolic_trace(
                lambda x, axis=axis: (np.sort(x, axis), np.argsort(x, axis, kind="stable")), f"{dtype}[R,N]"
            )
        )
        for shape in [(rows, n) for n in SIZES for rows in (1, 2, 3, 70)]:
            x = _numbers(kind, shape if axis else shape[::-1])
            values, positions = compiled(x)
            np.testing.assert_array_equal(values, np.sort(x, axis), err_msg=str(x.shape))
            np.testing.assert_array_equal(positions, np.argsort(x, axis, kind="stable"), err_msg=str(x.shape))


@pytest.mark.parametrize("kind", ["i1", "i8", "f4"])
@pytest.mark.parametrize(
    ("shape", "axis"), [((70, 31), 1), ((5, 7, 3), 1), ((2000,), 0), ((3, 1024), 1), ((17, 1025), 1)]
)
def test_fixed_rows(kind: str, shape: tuple[int, ...], axis: int) -> None:
    for threads in (1, 2):
        _check(_numbers(kind, shape), axis, threads)


def test_bools() -> None:
    x = np.random.default_rng(0).random((40, 33)) < 0.5
    found = fx.compile(fx.symbolic_trace(lambda x: np.sort(x, 1), "bool[40,33]"))(x)
    np.testing.assert_array_equal(found, np.sort(x, 1))


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8", "u1"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_places_in_order(side: Any, dtype: str) -> None:
    """In any number of elements, of which some are equal; NaN comes last, as a value and among the elements."""
    rng = np.random.default_rng(0)
    values = rng.integers(0, 12, 60).astype(dtype)
    if dtype[0] == "f":
        values[::7] = np.nan
        values[1], values[2] = np.inf, -np.inf
    for count, missing in ((0, 0), (1, 0), (1, 1), (2, 1), (9, 4), (64, 3)):
        ordered = np.sort(rng.integers(0, 12, count)).astype(dtype)
        if dtype[0] == "f":
            ordered[count - missing :] = np.nan
        agree(lambda x, v: np.searchsorted(x, v, side=side), ordered, values)


@pytest.mark.parametrize(
    "program",
    [
        lambda v: np.searchsorted(np.sort(v), 0.5) + 1,
        lambda v: np.interp(0.5, np.sort(v), v),
        lambda v: np.digitize(0.5, np.sort(v)) * v,
        lambda v: v[np.argmax(v)] + np.count_nonzero(v > 0),
    ],
)
def test_a_place_that_others_compute_with(program: Any) -> None:
    """A single integer is computed where it is read only if loops can do that."""
    v = np.array([0.3, -1.0, 2.0, 0.5])
    np.testing.assert_array_equal(fx.compile(fx.symbolic_trace(program, v))(v), program(v))
