"""Epilogues of products as vectors: which ones are, and that they compute what NumPy does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx

RNG = np.random.default_rng(0)
WEIGHT = RNG.standard_normal((48, 41)).astype(np.float32)
BIAS = RNG.standard_normal(41).astype(np.float32)


def residual(x: Any, r: Any) -> Any:
    return np.maximum(np.minimum(x @ WEIGHT + BIAS, 6), -6) * 0.25 - r / 3


def row_scale(x: Any, r: Any) -> Any:
    return -(x @ WEIGHT) * r[:, :1] + 1


def exponential(x: Any, r: Any) -> Any:
    return np.exp(x @ WEIGHT * 0.1) + r


def transposed(x: Any, r: Any) -> Any:
    return x @ WEIGHT + r.reshape(41, 50).T


@pytest.mark.parametrize(
    ("program", "in_registers"), [(residual, True), (row_scale, True), (exponential, False), (transposed, False)]
)
def test_epilogues(program: Callable[..., Any], in_registers: bool, tmp_path: Path) -> None:
    x = RNG.standard_normal((50, 48)).astype(np.float32)
    r = RNG.standard_normal((50, 41)).astype(np.float32)
    x[3, 4] = np.nan
    compiled = fx.compile(program, x, r)
    compiled.save(tmp_path)
    sources = "".join(path.read_text() for path in tmp_path.glob("*.c"))
    assert ("_sums(" in sources) == in_registers
    np.testing.assert_allclose(compiled(x, r), program(x.astype(np.float64), r), rtol=1e-4, atol=1e-5)
