"""The layout in which integer weights of linear layers with float activations are packed for the
tile of `tiles/weight_only.h`: panels of 32 columns, as those of floats; a row of a panel has four
bytes of each column, four numbers of i8 or eight of int4 that follow each other along k, the first
one in the lowest bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

PANEL_COLUMNS = 32
"""Columns of a panel."""

WORD = 4
"""Bytes of a column that stay together."""


def packed_integers_size(columns: int, depth: int, bits: int) -> int:
    """Bytes of what `pack_integers` makes."""
    return -(-columns // PANEL_COLUMNS) * PANEL_COLUMNS * WORD * words_of(depth, bits)


def words_of(depth: int, bits: int) -> int:
    """How many words of four bytes hold ``depth`` numbers."""
    return -(-depth * bits // (8 * WORD))


def pack_integers(
    weight: np.ndarray[Any, Any], bits: int, packed: np.ndarray[Any, Any] | None = None
) -> np.ndarray[Any, Any]:
    """A weight i8 [N, K], or for 4 bits u8 [N, K / 2] (rounded up) as pack_int4 packs it, in panels
    of 32 columns of words, as bytes; rows end with zeros. ``packed`` is where to put it."""
    columns, width = weight.shape
    if packed is None:
        packed = np.empty(packed_integers_size(columns, width * 8 // bits, bits), np.uint8)
    words = -(-width // WORD)
    panels = packed.reshape(-1, words, PANEL_COLUMNS, WORD)
    whole = np.zeros((len(panels) * PANEL_COLUMNS, words * WORD), np.uint8)
    whole[:columns, :width] = weight.view(np.uint8)
    panels[:] = whole.reshape(len(panels), PANEL_COLUMNS, -1, WORD).swapaxes(1, 2)
    return packed
