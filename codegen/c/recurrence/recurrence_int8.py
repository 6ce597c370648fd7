"""What a recurrence in integers needs beside the loop over time (`recurrence`): the packed weight,
how rows of the state are rounded (by `tiles/recurrence.h`), and the scale of the sums.

The tile multiplies unsigned activations (`tiles/int8.h`). So a symmetric state, i8, is stored with
128 added, and one with a zero point, u8, as it is; the first row of each panel of the weight takes
off what that adds to the sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite.codegen.c.product.packed_operands import PANEL_COLUMNS, QUAD, pack_int8, packed_rows
from fxlite.codegen.c.text.template_text import Lines, add, multiply
from fxlite.ops.integer.quantized_recurrence import LARGEST

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

    @property
    def row_scale(self) -> str:
        """The scale of a row of the state before a step, in C."""
        return "row_scales[row]" if self.scale is None else _literal(self.scale)

    @property
    def note(self) -> str:
        """How states are rounded, for the comment of the function."""
        if self.scale is None:
            return "each row of h is rounded to i8 by a scale of its own in each step"
        kind = "i8" if self.zero_point is None else "u8"
        offset = "" if self.zero_point is None else f", zero point {self.zero_point}"
        return f"h is rounded to {kind}, scale {np.float32(self.scale)!s}{offset}"


def pack_recurrent_int8(
    weight: np.ndarray[Any, Any], gates: int, offset: int
) -> np.ndarray[Any, Any]:
    """Pack an i8 matrix [G*H, H] as int32: for each block of 32 hidden units one panel of
    `pack_int8` for each gate."""
    rows, size = weight.shape
    by_gate = weight.reshape(gates, rows // gates, size)
    packed = [pack_int8(gate, offset) for gate in by_gate]
    panel = packed_rows(size) * PANEL_COLUMNS
    panels = [gate.reshape(gate.size // panel, panel) for gate in packed]
    return np.ascontiguousarray(np.stack(panels, axis=1)).ravel()


def workspace_of_state(integers: IntegerState, batch: str, size: str) -> str:
    """Bytes of the integers of a state, and of the scales of its rows, in C; of a batch of none a
    few, too, because the function names them."""
    row = size if integers.scale is not None else f"({add(size, '4')})"
    return add(multiply(batch, row), "4")


def panel_at(number: str) -> str:
    """Where a panel of the weight starts."""
    return multiply(number, f"(1 + (size + {QUAD - 1}) / {QUAD})", str(PANEL_COLUMNS))


def declare_integers(integers: IntegerState, out: Lines) -> None:
    """The parts of the workspace."""
    if integers.scale is not None:
        out.put("uint8_t *const rounded = workspace;  /* the state before a step */")
        return
    out.put("float *const row_scales = workspace;  /* of the state before a step */")
    out.put("uint8_t *const rounded = (uint8_t *)(row_scales + batch);")


def round_rows(integers: IntegerState, first: str, end: str, out: Lines) -> None:
    """Round rows of the state."""
    low, high, zero_point = -LARGEST, LARGEST, 0
    if integers.zero_point is not None:
        low, high, zero_point = 0, 255, integers.zero_point
    stored = integers.offset - zero_point
    with out.block(f"for (int64_t row = {first}; row < {end}; row++)"):
        if integers.scale is None:
            out.put("row_scales[row] = scale_of_state(size, state + row * size);")
        out.put(
            f"round_state(size, state + row * size, {integers.row_scale}, {zero_point}, {low}, "
            f"{high}, {stored}, rounded + row * size);"
        )


def scaled_sum(total: str, offset: str) -> str:
    """A sum in float, in C, where `row_scale` is the state's; ``offset`` is the row of the
    weight."""
    return f"fx_product_f32((float){total}, row_scale * weight_scale[{offset}])"


def product_of_quads(gates: int) -> str:
    """For the plain loops: the product of number k of a row of the state and of a hidden unit's
    weights of one gate, in C."""
    quad = f"weight_hh[{column_at(gates)} + (k / {QUAD} + 1) * {PANEL_COLUMNS}]"
    return f"rounded[row * size + k] * (int8_t)({quad} >> k % {QUAD} * 8)"


def column_at(gates: int) -> str:
    """For the plain loops: where the column of a hidden unit and gate starts, with the number that
    its sum starts from."""
    panel = panel_at(f"(unit / {PANEL_COLUMNS} * {gates} + gate)")
    return f"{panel} + unit % {PANEL_COLUMNS}"


def _literal(value: float) -> str:
    return f"{np.float32(value)!s}f"
