"""``int_recurrence``: the loop over time of an LSTM, GRU or RNN, with products of integers.

In: the inputs' contributions to the gates, in float32, and the weight of the state in i8, with a scale for
each row. Out: the states in float32, as from :func:`~fxlite.ops.recurrent.recurrence`. Each step rounds
the state to 8 bits, multiplies integers with exact sums, scales these, and continues in float: sums of
gates, sigmoid and tanh would lose too much precision in 8 bits, and they are a small part of the work.
docs/quantization.md tells which results are equal bit for bit on all back ends.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, DTypeError, ShapeError
from fxlite.ops.composite import composite
from fxlite.ops.integer.quantized_product import largest_depth
from fxlite.ops.op import OptionalTensor, Tensor, ops
from fxlite.ops.recurrent import GATES, infer_recurrence, recurrence_operations, run_recurrence, unroll
from fxlite.ops.samples import Bad, S, uniform
from fxlite.types import dtypes
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType

#: The largest integer of a symmetric state.
LARGEST = 127


def _infer(
    gates: TensorType,
    weight_hh: TensorType,
    weight_scale: TensorType,
    h0: TensorType,
    c0: Any,
    bias_hh: Any,
    mode: str,
    state_scale: Any,
    state_zero_point: Any,
    **others: Any,
) -> TensorType:
    if not isinstance(weight_hh, TensorType) or weight_hh.dtype is not dtypes.int8:
        raise DTypeError(f"weight_hh must be an i8 tensor, not {weight_hh}; quantize it")
    operands = {"gates": gates, "weight_scale": weight_scale, "h0": h0, "c0": c0, "bias_hh": bias_hh}
    for name, value in operands.items():
        if isinstance(value, TensorType) and value.dtype is not dtypes.float32:
            raise DTypeError(f"{name} must be f32, not {value.dtype}")
    weight = TensorType(weight_hh.shape, dtypes.float32)
    found = infer_recurrence(gates, weight, h0, c0, bias_hh, mode)
    if weight_scale.shape != weight_hh.shape[:1]:
        raise ShapeError(f"weight_scale must be [{GATES[mode]}*H], one for each row of {weight_hh}, not {weight_scale}")
    if state_scale is not None and not (isinstance(state_scale, float) and 0 < state_scale < math.inf):
        raise ArgumentError(
            f"state_scale must be a positive float, or None for a scale of each row, not {state_scale!r}"
        )
    if state_zero_point is not None and (
        type(state_zero_point) is not int or not 0 <= state_zero_point <= 255 or state_scale is None
    ):
        raise ArgumentError(
            f"state_zero_point must be an int in 0..255, and go with a state_scale, not {state_zero_point!r}"
        )
    state = dtypes.int8 if state_zero_point is None else dtypes.uint8
    size, most = weight_hh.shape[1], largest_depth(state, dtypes.int8, state_zero_point or 0)
    if type(size) is int and size > most:
        raise ShapeError(
            f"sums in int32 hold {most} products of these types for certain, and the state has "
            f"{size} numbers; leave this product in float"
        )
    return found


def _sums(state: Any, weight_hh: Any, state_scale: Any, state_zero_point: int | None) -> tuple[Any, Any]:
    """The scale of a state, and the integer sums of its product with the weight."""
    scale = state_scale
    if scale is None:
        scale = ops.dynamic_scale(state, axis=-1, keepdims=True, qmax=LARGEST)
    to = {"dtype": "i8", "qmin": -LARGEST}
    if state_zero_point is not None:
        to = {"dtype": "u8", "zero_point": state_zero_point}
    integers = ops.quantize(state, scale, **to)
    return scale, ops.int_linear(integers, weight_hh, x_zero_point=state_zero_point or 0)


def _unrolled(
    gates: Any,
    weight_hh: Any,
    weight_scale: Any,
    h0: Any,
    c0: Any,
    bias_hh: Any,
    state_scale: Any,
    state_zero_point: Any,
    **how: Any,
) -> Any:
    def hidden(state: Any) -> Any:
        scale, sums = _sums(state, weight_hh, state_scale, state_zero_point)
        found = ops.dequantize(sums, scale * weight_scale)
        return found if bias_hh is None else found + bias_hh

    return unroll(hidden, gates, weight_hh.shape[1], h0, c0, **how)


def _sample(
    mode: str,
    steps: str,
    batch: str,
    size: int,
    *,
    dims: dict[str, int] | None = None,
    has_bias: bool = True,
    **attributes: Any,
) -> Any:
    rows, state = GATES[mode] * size, f"f32[{batch},{size}]"
    return S(
        f"f32[{steps},{batch},{rows}]",
        uniform(f"i8[{rows},{size}]", -127, 128),
        uniform(f"f32[{rows}]", 0.001, 0.01),
        state,
        state if mode == "lstm" else None,
        f"f32[{rows}]" if has_bias else None,
        mode=mode,
        dims=dims or {},
        **attributes,
    )


_GOOD = ("f32[3,2,8]", "i8[8,2]", "f32[8]", "f32[2,2]", "f32[2,2]")


@composite(
    stands_alone=True,
    infer=_infer,
    expansion=_unrolled,
    first="gates",
    samples=[
        _sample("lstm", "4", "B", 3, dims={"B": 2}),
        _sample(
            "lstm", "3", "B", 5, dims={"B": 5}, has_bias=False, reverse=True, state_scale=0.02, state_zero_point=120
        ),
        _sample("gru", "3", "2", 35, state_scale=0.03),
        _sample("gru", "2", "1", 3),
        _sample("rnn_tanh", "3", "B", 3, dims={"B": 1}, state_scale=0.01, state_zero_point=128),
        _sample("rnn_relu", "3", "3", 33, reverse=True),
        _sample("rnn_relu", "2", "3", 7, state_scale=0.05, state_zero_point=0),
        _sample("lstm", "0", "2", 1),
        _sample("lstm", "2", "0", 1),
    ],
    bad=[
        Bad("f32[3,2,8]", "f32[8,2]", "f32[8]", "f32[2,2]", "f32[2,2]", match="weight_hh must be an i8 tensor"),
        Bad("f64[3,2,8]", "i8[8,2]", "f32[8]", "f32[2,2]", "f32[2,2]", match="gates must be f32"),
        Bad("f32[3,2,8]", "i8[8,2]", "f32[2]", "f32[2,2]", "f32[2,2]", match="weight_scale must be [4*H]"),
        Bad("f32[3,2,8]", "i8[8,2]", "f32[8]", "f32[1,2]", "f32[2,2]", match="h0 must be"),
        Bad(*_GOOD, state_scale=0.0, match="state_scale must be a positive float"),
        Bad(*_GOOD, state_scale=0.1, state_zero_point=-1, match="an int in 0..255"),
        Bad(*_GOOD, state_zero_point=3, match="go with a state_scale"),
    ],
)
def int_recurrence(
    gates: Tensor,
    weight_hh: Tensor,
    weight_scale: Tensor,
    h0: Tensor,
    c0: OptionalTensor = None,
    bias_hh: OptionalTensor = None,
    mode: str = "lstm",
    reverse: bool = False,
    state_scale: float | None = None,
    state_zero_point: int | None = None,
) -> Tensor:
    """``recurrence`` with ``weight_hh`` [G*H, H] in i8, where row i stands for
    ``weight_hh[i] * weight_scale[i]``. In each step, with ``q = quantize(h, scale)``, the state's
    contribution to the gates is ``dequantize(int_linear(q, weight_hh), scale * weight_scale) + bias_hh``.
    Everything else is float32.

    If ``state_scale`` is None, it is dynamic: in every step, each row of the state has its own scale, from
    :func:`~fxlite.ops.integer.quantized.dynamic_scale`. A number is the scale of all states. Quantized states
    are i8 in -127..127 or, with a ``state_zero_point``, u8.

    Raises ShapeError, DTypeError and ArgumentError as recurrence does, and ShapeError if a sum could overflow
    (:func:`~fxlite.ops.integer.quantized_product.largest_depth`)."""
    bias = 0 if bias_hh is None else bias_hh

    def hidden(state: Any) -> Any:
        scale, sums = _sums(state, weight_hh, state_scale and np.float32(state_scale), state_zero_point)
        return sums.astype(np.float32) * (scale * weight_scale) + bias

    return run_recurrence(hidden, gates, h0, c0, mode, reverse, np.float32)


@int_recurrence.cost
def _(gates: TensorType, weight_scale: TensorType, h0: TensorType, state_scale: Any, **others: Any) -> Dim:
    state = 4 + 2 * (state_scale is None)  # operations to quantize, and to find the largest magnitude
    in_float = recurrence_operations(gates, h0=h0, **others)
    return in_float + gates.shape[0] * (h0.size * state + gates.shape[1] * weight_scale.size)
