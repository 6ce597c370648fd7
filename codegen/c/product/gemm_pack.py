"""The layout in which operands of products are packed for the tile of `tiles/matrix.h`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.codegen.c.tiles.library import constant

PARALLEL_PRODUCTS = constant("matrix", "PARALLEL_PRODUCTS")
"""Multiply-adds from which a second thread pays: 7 us of work, against 1 us for fork and join where
the threads are awake, and several where one has to be woken (measured on the digits model)."""

PANEL_BYTES = 128
"""Bytes of one row of a panel of B: two cache lines, two AVX-512 vectors."""

ITEM_BYTES = {"float": 4, "double": 8}


def panel_columns(ctype: str) -> int:
    """Columns of B in a full panel: 32 for float, 16 for double."""
    return PANEL_BYTES // ITEM_BYTES[ctype]


def pack_b(
    b: np.ndarray[Any, Any], packed: np.ndarray[Any, Any] | None = None
) -> np.ndarray[Any, Any]:
    """Pack a [K, N] matrix of float32 or float64 into panels of 32 columns (16 for float64).

    Panel p starts at element p * K * 32 and holds columns 32p ... 32p+31 row by row; columns that
    the last panel lacks are zero. So the result has K * (N rounded up to a multiple of 32)
    elements. It should be 64-byte aligned in memory; ``packed`` is where to put it.
    """
    depth, n = b.shape
    panel = PANEL_BYTES // b.dtype.itemsize
    whole, rest = divmod(n, panel)
    if packed is None:
        packed = np.empty(packed_size(depth, n, b.dtype.itemsize), b.dtype)
    panels = packed.reshape(-(-n // panel), depth, panel)
    panels[:whole] = b[:, : whole * panel].reshape(depth, whole, panel).swapaxes(0, 1)
    if rest:
        panels[whole, :, :rest] = b[:, whole * panel :]
        panels[whole, :, rest:] = 0
    return packed


def packed_size(depth: int, n: int, itemsize: int) -> int:
    """Elements of what `pack_b` makes of a [depth, n] matrix."""
    panel = PANEL_BYTES // itemsize
    return depth * -(-n // panel) * panel
