"""Functions that C computes for a row of numbers at a time: sine and cosine of float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.scalar.functions import FUNCTIONS
from tests.codegen.compiling import c_file
from tests.oracle import agree


@pytest.mark.parametrize("name", ["sin", "cos"])
@pytest.mark.parametrize("largest", [1.0, 100.0, 65536.0, 65537.0, 3e38])
def test_errors(name: str, largest: float) -> None:
    """For rows without large numbers, with the largest ones that count as none, and with others."""
    function = getattr(np, name)
    compiled = fx.compile(lambda x: function(x), "f32[N]")
    x = np.random.default_rng(0).uniform(-largest, largest, 100_003).astype("f4")
    near = np.arange(1, 41_000) * (np.pi / 2)  # where one of them is nearly 0
    for given in (x, near[near < largest].astype("f4"), np.float32([largest]), x[:63], x[:0]):
        exact = function(given.astype("f8"))
        errors = np.abs(compiled(given) - exact) / np.spacing(np.abs(exact).astype("f4"))
        assert errors.max(initial=0) <= FUNCTIONS[name].ulp


def test_what_is_no_number_and_zeros() -> None:
    x = np.float32([0.0, -0.0, np.nan, np.inf, -np.inf] * 20)
    for given in (x, x[x == 0]):
        found = fx.compile(lambda x: (np.sin(x), np.cos(x)), "f32[N]")(given)
        with np.errstate(invalid="ignore"):
            for ours, expected in zip(found, (np.sin(given), np.cos(given)), strict=True):
                np.testing.assert_array_equal(ours, expected)
                np.testing.assert_array_equal(np.signbit(ours)[given == 0], np.signbit(expected)[given == 0])


def test_operands_and_results_are_computed_around_them() -> None:
    x = np.random.default_rng(1).normal(size=(7, 300)).astype("f4")

    def program(x: Any) -> Any:
        return np.sin(x * 3) * 2 + np.cos(x[:, ::-1]) - x, np.sin(np.cos(x)), np.sin(x.T), np.where(x > 0, np.sin(x), x)

    agree(program, x)
    agree(program, x, types=["f32[A,B]"])


def test_long_rows_of_floats_only() -> None:
    assert "fx_sin_row_f32(row, count)" in c_file(lambda x: np.sin(x), x="f32[B,N]")
    assert "_row_f32(" not in c_file(lambda x: np.sin(x), x="f32[9]")
    assert "_row_f32(" not in c_file(lambda x: np.sin(x), x="f64[B,N]")
    assert "_row_f32(" not in c_file(lambda x: np.sin(x).sum(), x="f32[B,N]")
