"""Programs of sizes that are numbers, compiled in a process of their own to see what they import."""

from __future__ import annotations

from typing import Any

import numpy as np

import fxlite as fx


def slices_and_indices(x: Any, n: int) -> Any:
    out = np.zeros_like(x)
    for i in range(n):
        out[i, 1:-1] = x[i, :-2] + x[i, 2:] - 2 * x[i, None, 1:-1][0]
    return out[::-1, [0, 2]], np.where(x > 0, x, 0).sum(axis=0)


def solved(x: Any, n: int) -> Any:
    total = np.eye(n)
    for k in range(n - 1):
        total[k + 1 :, k] = x[k + 1 :, k] @ x[k + 1 :, k + 1 : n]
    return np.linalg.solve(total + 4 * np.eye(n), x)


def run() -> None:
    x = np.random.default_rng(0).normal(size=(6, 6))
    for program in (slices_and_indices, solved):
        result = fx.jit(program, backend="c", dynamic=False)(x, 6)
        assert all(map(np.allclose, result, program(x, 6)))
