"""The layout in which operands of products of bf16 with float sums (``matmul_precision="medium"``)
are packed for the tile of `tiles/bf16.h`; and the same for operands that are sums of two bf16
("high", see `is_split`).

It is the one of float, with a pair of bf16 that follow each other along k in the place of one
float: 32 pairs of columns are one row of a panel of B. So a product of k steps is one of k / 2, and
weights take half the bytes.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from fxlite.codegen.c.product.gemm_pack import PANEL_BYTES, pack_b, packed_size

PAIR_BYTES = 4
"""Bytes of two bf16."""


def bf16_pairs(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A float32 matrix [..., M, K] rounded to bf16 (to nearest, ties to even), as uint32
    [..., M, ceil(K/2)]: elements 2p (lower half) and 2p + 1 of a row make a pair; an odd K is
    filled up with zero."""
    k = rows.shape[-1]
    padded = np.zeros((*rows.shape[:-1], -(-k // 2) * 2), "<f4")
    padded[..., :k] = rows
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = padded.astype(ml_dtypes.bfloat16)
    return rounded.view("<u2").view("<u4")


def pack_b_bf16(b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """As `pack_b`, for a [K, N] matrix of float32: panels of 32 columns of pairs, as uint32."""
    return pack_b(np.ascontiguousarray(bf16_pairs(b.T).T))


def bf16_parts(x: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Two float32 arrays of bf16 numbers whose sum is x but for 2^-17 of it: x rounded to the
    nearest one, towards zero where that would be infinite; and the rest rounded, 0 where x is
    infinite or NaN."""
    finite = np.isfinite(x)
    with np.errstate(over="ignore", invalid="ignore"):
        upper = x.astype(ml_dtypes.bfloat16).astype(np.float32)
        cut = (np.ascontiguousarray(x, "<f4").view("<u4") & 0xFFFF0000).view("<f4")
        upper = np.where(finite & np.isinf(upper), cut, upper)
        return upper, np.where(finite, x - upper, np.float32(0))


def pack_b_split(
    b: np.ndarray[Any, Any], packed: np.ndarray[Any, Any] | None = None
) -> np.ndarray[Any, Any]:
    """As `pack_b_bf16`, for both `bf16_parts`: in each panel all upper ones, then all lower ones.
    ``packed`` is where to put it."""
    depth, columns = -(-b.shape[0] // 2), b.shape[1]
    if packed is None:
        packed = np.empty(2 * packed_size(depth, columns, PAIR_BYTES), np.uint32)
    width = PANEL_BYTES // PAIR_BYTES
    panels = packed.reshape(-(-columns // width), 2, depth * width)
    for part, matrix in enumerate(bf16_parts(b)):
        panels[:, part] = pack_b_bf16(matrix).reshape(panels.shape[::2])
    return packed
