"""The matrices of Winograd's convolution, and weights transformed by them; `tiles/winograd.h` says
what it computes, and how exact it is."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

Tile = Literal[2, 4]

_POINTS: dict[Tile, tuple[float, ...]] = {2: (0, 1, -1), 4: (0, 0.75, -0.75, 1.5, -1.5)}
"""The finite points; each is exact in float32, and so are the matrices A and B."""


def kernel_matrix(m: Tile) -> np.ndarray[Any, Any]:
    """G, [m+2, 3]: a kernel's values at the points, divided as B's rows are not."""
    rows = [[0.0, 0.0, 1.0]]
    for t in reversed(_POINTS[m]):
        scale = math.prod([t - other for other in _POINTS[m] if other != t])
        # For m = 2 the transform of the input has the first row's sign turned.
        rows.insert(0, [power / (-scale if m == 2 and t == 0 else scale) for power in (1, t, t**2)])
    return np.array(rows)


def input_matrix(m: Tile) -> np.ndarray[Any, Any]:
    """B^T, [m+2, m+2]."""
    points = _POINTS[m]
    rows = [np.poly([p for p in points if p != t])[::-1] for t in points]
    rows = [np.append(-row if m == 2 and t == 0 else row, 0) for row, t in zip(rows, points)]
    return np.array([*rows, np.poly(points)[::-1]])


def output_matrix(m: Tile) -> np.ndarray[Any, Any]:
    """A^T, [m, m+2]."""
    columns = [[t**power for power in range(m)] for t in _POINTS[m]]
    return np.array([*columns, [0] * (m - 1) + [1]], float).T


def transform_weight(weight: np.ndarray[Any, Any], m: Tile) -> np.ndarray[Any, Any]:
    """[K, C, 3, 3] -> [(m+2)**2, C, K], computed in float64."""
    g = kernel_matrix(m)
    k, c = weight.shape[:2]
    taps = weight.transpose(2, 3, 1, 0).astype(np.float64, order="C").reshape(3, 3, c * k)
    points = np.einsum("bs,asn->abn", g, np.einsum("ar,rsn->asn", g, taps))
    return np.asarray(points.reshape((m + 2) ** 2, c, k), weight.dtype)
