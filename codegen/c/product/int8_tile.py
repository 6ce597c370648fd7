"""The layout in which weights of integer products are packed for the tile of `tiles/int8.h`.

It is the one of float with a *quad*, four numbers that follow each other along k, in the place of
one float: a row of a panel is 32 columns of quads, 128 bytes. Before the rows of a panel stand the
numbers that sums start from: what has to be added because the tile multiplies unsigned activations.
It computes ``sum(u * w)`` where u is x itself or, for i8, ``x + 128`` (the highest bit is turned
over), so that ``sum((x - z) * w) = sum(u * w) - (z + 128 or 0) * sum(w)``; both parts of that are
known.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.codegen.c.product.gemm_pack import pack_b

QUAD = 4
"""Numbers of a quad."""

PANEL_COLUMNS = 32
"""Columns of a panel."""


def packed_rows(depth: int) -> int:
    """Rows of a panel: the starts of the sums, and quads."""
    return 1 + -(-depth // QUAD)


def pack_int8(
    weight: np.ndarray[Any, Any], offset: int, packed: np.ndarray[Any, Any] | None = None
) -> np.ndarray[Any, Any]:
    """An i8 matrix [N, K] in panels of 32 columns, as int32: each panel has a row of
    ``-offset * sum of a column``, then ceil(K / 4) rows of quads, the first number of a quad in its
    lowest byte and zeros after the end. ``packed`` is where to put it."""
    columns, depth = weight.shape
    rows = packed_rows(depth)
    padded = np.zeros((columns, QUAD * (rows - 1)), np.int8)
    padded[:, :depth] = weight
    matrix = np.empty((rows, columns), np.int32)
    matrix[0] = -offset * weight.sum(axis=1, dtype=np.int32)
    matrix[1:] = padded.view("<i4").T
    return pack_b(matrix, packed)
