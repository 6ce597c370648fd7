"""The error of products and convolutions does not grow with the length of their sums: at most 530
roundings (docs/numerics.md), and on all data but the worst no more than sums are allowed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite.types import dtypes
from tests.codegen.test_sums import adversarial, bound, exact
from tests.oracle import RUNGS

MOST = 530
"""512 products in a register, 16 blocks of them, what joins these, and the rounding of a product
where multiply-adds are not fused."""


def check(result: Any, rows: dict[str, Any]) -> None:
    """``result[row, ...]`` is the sum of a row, however often."""
    for (name, row), sums in zip(rows.items(), result, strict=False):
        u, scale = (float(np.finfo(row.dtype).eps) / 2, float(np.abs(row.astype(np.longdouble)).sum()))
        error = np.abs(np.asarray(sums, np.longdouble) - exact(row)).max() / (u * scale)
        assert error <= (MOST if name == "one and crumbs" else bound(len(row))), (name, len(row))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_products(dtype: str) -> None:
    """Few rows and many, a right operand that is packed for the product and one that is not."""
    function = fx.compile(lambda x, y: x @ y, f"{dtype}[M,K]", f"{dtype}[K,N]")
    for k in (512, 513, 2049, 1000, 7000, 70001):
        rows = adversarial(k, dtypes.dtype(dtype).numpy)
        x = np.array(list(rows.values()))
        ones = np.ones((k, 33), x.dtype)
        check(function(x, ones), rows)
        check(function(np.tile(x, (3, 1)), ones), rows)
        check([function(row[None], ones) for row in x], rows)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dot_products_of_rows(dtype: Any) -> None:
    """Of few rows, and of a matrix by a vector."""
    for k in (513, 8193, 16385, 300001):
        rows = adversarial(k, dtype)
        x, ones = np.array(list(rows.values())), np.ones((9, k), dtype)
        check(fx.compile(lambda x, y: x @ y.T, ones[:1], x)(ones[:1], x).T, rows)
        check(fx.compile(lambda x, y: x @ y.T, x, ones[:8])(x, ones[:8]), rows)
        check(fx.compile(lambda x, y: x @ y, x, ones[0])(x, ones[0])[:, None], rows)


def test_weights() -> None:
    """Products with packed weights, with integer ones, and on a GPU."""
    rows = adversarial(3001, np.float32)
    x = np.array(list(rows.values()))
    weight, integers = np.ones((7, 3001), np.float32), np.ones((7, 3001), np.int8)
    scale = np.ones(7, np.float32)

    def program(x: Any) -> Any:
        return F.linear(x, weight), fx.ops.linear_weight_only(x, integers, scale)

    module = fx.symbolic_trace(program, "f32[B,3001]")
    for rung in ("c", "cuda"):
        for result in RUNGS[rung](module)((x,)):
            check(result, rows)


@pytest.mark.parametrize("outputs", [2, 40])
def test_convolutions(outputs: int) -> None:
    """Sums over channels and taps, for few output channels and many."""
    rows = adversarial(900 * 9, np.float32)
    weight = np.ones((outputs, 900, 3, 3), np.float32)
    function = fx.compile(lambda x: F.conv2d(x, weight), "f32[6,900,3,3]")
    check(function(np.array(list(rows.values())).reshape(6, 900, 3, 3)), rows)
