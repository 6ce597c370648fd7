"""What a recurrence in integers needs beside the loop over time (`recurrence`): the packed weight,
and how rows of the state are rounded (by `tiles/recurrence.h`).

The tile multiplies unsigned activations (`tiles/int8.h`). So a symmetric state, i8, is stored with
128 added, and one with a zero point, u8, as it is; the first row of each panel of the weight takes
off what that adds to the sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite.codegen.c.product.packed_operands import PANEL_COLUMNS, pack_int8, packed_rows
from fxlite.codegen.kernel.builder import Pointer
from fxlite.scalar.index import Index

_SIGN = 128


@dataclass(frozen=True)
class IntegerState:
    """``scale`` is that of all states, or None: each row has its own in each step, its largest
    magnitude over 127. Integers are i8 in -127..127, or with a ``zero_point`` u8."""

    scale: float | None = None
    zero_point: int | None = None

    @property
    def offset(self) -> int:
        """What a stored integer has above the number it stands for."""
        return _SIGN if self.zero_point is None else self.zero_point

    def row_scale(self, row: Index) -> str:
        """The scale of a row of the state before a step, in C."""
        return Pointer("row_scales")[row] if self.scale is None else f"{np.float32(self.scale)!s}f"

    @property
    def note(self) -> str:
        """How states are rounded, for the comment of the function."""
        if self.scale is None:
            return "each row of h is rounded to i8 by a scale of its own in each step"
        kind = "i8" if self.zero_point is None else "u8"
        offset = "" if self.zero_point is None else f", zero point {self.zero_point}"
        return f"h is rounded to {kind}, scale {np.float32(self.scale)!s}{offset}"


def pack_recurrent_int8(weight: np.ndarray[Any, Any], gates: int, offset: int) -> np.ndarray[Any, Any]:
    """Pack an i8 matrix [G*H, H] as int32: for each block of 32 hidden units one panel of
    `pack_int8` for each gate."""
    rows, size = weight.shape
    by_gate = weight.reshape(gates, rows // gates, size)
    packed = [pack_int8(gate, offset) for gate in by_gate]
    panel = packed_rows(size) * PANEL_COLUMNS
    panels = [gate.reshape(gate.size // panel, panel) for gate in packed]
    return np.ascontiguousarray(np.stack(panels, axis=1)).ravel()
