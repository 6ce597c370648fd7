"""Recurrent layers as ops: ``lstm``, ``gru`` and ``rnn``, each of which is one layer in one direction over
a whole sequence, and ``recurrence``, the loop over time that they share.

In: a sequence [T, B, I], the initial states [B, H], and weights in torch's layout (with the gates in
sequence along the rows: LSTM i, f, g, o; GRU r, z, n). Out: all states [T, B, H] and the final ones. A
layer consists of a ``linear``, which computes the inputs' contributions to all gates and steps at once,
and a ``recurrence``, which adds the contribution of the previous state, ``weight_hh @ h + bias_hh``. A back
end with a template runs a recurrence of any length in one kernel; others unroll it, for which the length
must be known.

The equations are those of torch.nn.LSTM, GRU and RNN (Hochreiter and Schmidhuber, 1997, with the
forget gate of Gers et al., 2000; Cho et al., 2014, with the reset gate after the product; Elman,
1990).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, ShapeError
from fxlite.ops.composite import composite
from fxlite.ops.op import OptionalTensor, Tensor, ops, require_float
from fxlite.ops.samples import Bad, S
from fxlite.types import shapes
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType

#: Gates of each kind of cell.
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def step(mode: str, size: Dim, x: Any, gates: Any, state: Any, cell: Any = None) -> tuple[Any, Any]:
    """One step: (new state, new cell state or None), from the contributions of the input ``x`` and of the
    hidden state ``gates`` to the gates, both [B, G*size], and the states [B, size]."""

    def part(of: Any, number: int) -> Any:
        return ops.slice(of, axis=-1, start=number * size, stop=(number + 1) * size)

    if mode == "lstm":
        both = x + gates
        i, f, g, o = (part(both, number) for number in range(4))
        cell = ops.sigmoid(f) * cell + ops.sigmoid(i) * ops.tanh(g)
        return ops.sigmoid(o) * ops.tanh(cell), cell
    if mode == "gru":
        reset = ops.sigmoid(part(x, 0) + part(gates, 0))
        update = ops.sigmoid(part(x, 1) + part(gates, 1))
        new = ops.tanh(part(x, 2) + reset * part(gates, 2))
        return (1 - update) * new + update * state, None
    return (ops.tanh if mode == "rnn_tanh" else ops.relu)(x + gates), None


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def step_in_numpy(mode: str, x: Any, gates: Any, state: Any, cell: Any) -> tuple[Any, Any]:
    """:func:`step` on arrays."""
    if mode == "lstm":
        i, f, g, o = np.split(x + gates, 4, axis=-1)
        cell = _sigmoid(f) * cell + _sigmoid(i) * np.tanh(g)
        return _sigmoid(o) * np.tanh(cell), cell
    if mode == "gru":
        (r, z, n), (hidden_r, hidden_z, hidden_n) = (np.split(v, 3, axis=-1) for v in (x, gates))
        new = np.tanh(n + _sigmoid(r + hidden_r) * hidden_n)
        update = _sigmoid(z + hidden_z)
        return new + update * (state - new), None
    return (np.tanh(x + gates) if mode == "rnn_tanh" else np.maximum(x + gates, 0)), None


# -- type rules ------------------------------------------------------------------------------------
def _expect(what: str, value: TensorType, shape: Sequence[Dim], meaning: str) -> None:
    """Raise ShapeError unless ``value`` has that shape, DTypeError unless it is a float tensor."""
    require_float(value, what)
    if not shapes.shapes_equal(value.shape, tuple(shape)):
        wanted = ", ".join(shapes.to_text(d) for d in shape)
        raise ShapeError(f"{what} must be {meaning}, here [{wanted}], not {value}")


def infer_recurrence(
    gates: TensorType, weight_hh: TensorType, h0: TensorType, c0: Any, bias_hh: Any, mode: str, **others: Any
) -> TensorType:
    """The type rule of :func:`recurrence`. Raises ShapeError, DTypeError, ArgumentError."""
    if mode not in GATES:
        raise ArgumentError(f"mode must be one of {', '.join(GATES)}, not {mode!r}")
    count = GATES[mode]
    for what, value, rank, meaning in (
        ("gates", gates, 3, f"[T, B, {count}*H]"),
        ("weight_hh", weight_hh, 2, f"[{count}*H, H]"),
        ("h0", h0, 2, "[B, H]"),
    ):
        require_float(value, what)
        if value.rank != rank:
            raise ShapeError(f"{what} must be {meaning}, not {value}")
    length, batch, _ = gates.shape
    size = weight_hh.shape[1]
    rows = shapes.normalize(count * size)
    _expect("weight_hh", weight_hh, (rows, size), f"[{count}*H, H]")
    _expect("gates", gates, (length, batch, rows), f"[T, B, {count}*H]")
    _expect("h0", h0, (batch, size), "[B, H]")
    if (c0 is None) == (mode == "lstm"):
        raise ArgumentError("an lstm has a cell state c0, other modes have none")
    if c0 is not None:
        _expect("c0", c0, (batch, size), "[B, H]")
    if bias_hh is not None:
        _expect("bias_hh", bias_hh, (rows,), f"[{count}*H]")
    last = 2 if mode == "lstm" else 1
    return TensorType((shapes.normalize(length + last), batch, size), gates.dtype)


def _infer_layer(
    kind: str,
    x: TensorType,
    h0: TensorType,
    weight_ih: TensorType,
    weight_hh: TensorType,
    c0: Any = None,
    bias_ih: Any = None,
    bias_hh: Any = None,
    nonlinearity: str = "tanh",
    **others: Any,
) -> tuple[TensorType, ...]:
    mode = _elman(nonlinearity) if kind == "rnn" else kind
    require_float(x, "x")
    if x.rank != 3:
        raise ShapeError(f"x must be [T, B, I], not {x}")
    require_float(weight_ih, "weight_ih")
    gates = ops.linear.result_type({"x": x, "weight": weight_ih, **({} if bias_ih is None else {"bias": bias_ih})})
    states = infer_recurrence(gates, weight_hh, h0, c0, bias_hh, mode)
    length, batch, _ = x.shape
    size = states.shape[2]
    last = TensorType((batch, size), x.dtype)
    first = TensorType((length, batch, size), x.dtype)
    return (first, last, last) if mode == "lstm" else (first, last)


# -- the loop over time ----------------------------------------------------------------------------
def unroll(
    hidden: Callable[[Any], Any], gates: Any, size: Dim, h0: Any, c0: Any, mode: str = "lstm", reverse: bool = False
) -> Any:
    """A recurrence as a sequence of steps; ``hidden`` computes the contribution of a state to the gates."""
    times = range(gates.shape[0])
    state, cell = h0, c0
    states = []
    for t in reversed(times) if reverse else times:
        given = hidden(state)
        state, cell = step(mode, size, ops.select(gates, axis=0, index=t), given, state, cell)
        states.append(state)
    if reverse:
        states.reverse()
    return ops.stack((*states, state, *(() if cell is None else (cell,))), axis=0)


def run_recurrence(
    hidden: Callable[[Any], Any], gates: Any, h0: Any, c0: Any, mode: str, reverse: bool, dtype: Any
) -> Any:
    """The reference of a recurrence with states of ``dtype``: :func:`unroll` in NumPy."""
    state, cell = h0, c0
    states = np.zeros((len(gates), *h0.shape), dtype)
    times = range(len(gates))
    for t in reversed(times) if reverse else times:
        state, cell = step_in_numpy(mode, gates[t], hidden(state), state, cell)
        states[t] = state
    return np.concatenate([states, state[None], *([] if cell is None else [cell[None]])])


def _unrolled(gates: Any, weight_hh: Any, h0: Any, c0: Any, bias_hh: Any, **how: Any) -> Any:
    return unroll(lambda state: ops.linear(state, weight_hh, bias_hh), gates, weight_hh.shape[1], h0, c0, **how)


_GATES, _WEIGHT, _STATE = "f32[4,B,12]", "f32[12,3]", "f32[B,3]"


@composite(
    weight="weight_hh",
    role="product",
    expands_weight=True,
    stands_alone=True,
    infer=infer_recurrence,
    expansion=_unrolled,
    first="gates",
    samples=[
        S(_GATES, _WEIGHT, _STATE, _STATE, "f32[12]", dims={"B": 2}),
        S(_GATES, _WEIGHT, _STATE, _STATE, reverse=True, dims={"B": 5}),
        "f32[3,2,9] f32[9,3] f32[2,3] None f32[9] mode='gru'; f64[3,B,3] f64[3,3] f64[B,3] mode='rnn_tanh' B=1",
        "f32[2,3,35] f32[35,35] f32[3,35] None f32[35] mode='rnn_relu'; f16[2,3,8] f16[8,2] f16[3,2] f16[3,2]",
        "f32[0,2,4] f32[4,1] f32[2,1] f32[2,1]; f32[2,0,4] f32[4,1] f32[0,1] f32[0,1]",
    ],
    bad=[
        Bad("f32[3,2,8]", "f32[8,2]", "f32[2,2]", "f32[2,2]", mode="rnn", match="mode must"),
        Bad("f32[3,2,8]", "f32[8,2]", "f32[2,2]", match="cell state"),
        Bad("f32[3,2,8]", "f32[6,2]", "f32[2,2]", "f32[2,2]", match="weight_hh must be"),
        Bad("f32[3,2,8]", "f32[8,2]", "f32[1,2]", "f32[2,2]", match="h0 must be"),
        Bad("f32[2,8]", "f32[8,2]", "f32[1,2]", "f32[2,2]", match="gates must be"),
    ],
)
def recurrence(
    gates: Tensor,
    weight_hh: Tensor,
    h0: Tensor,
    c0: OptionalTensor = None,
    bias_hh: OptionalTensor = None,
    mode: str = "lstm",
    reverse: bool = False,
) -> Tensor:
    """The loop over time of a recurrent layer: ``gates`` [T, B, G*H], the inputs' contributions to the gates,
    to [T + 1, B, H], the state after each step followed by the final state. For "lstm" the result is
    [T + 2, B, H], whose last row is the final cell state.

    ``mode`` is "lstm", "gru", "rnn_tanh" or "rnn_relu"; ``reverse`` goes from the last step to the first.
    Raises ShapeError if sizes do not fit, and ArgumentError for another mode."""
    bias = 0 if bias_hh is None else bias_hh
    return run_recurrence(lambda state: state @ weight_hh.T + bias, gates, h0, c0, mode, reverse, gates.dtype)


@recurrence.cost
def recurrence_operations(
    gates: TensorType, weight_hh: TensorType, h0: TensorType, bias_hh: Any, mode: str, **others: Any
) -> Dim:
    """The number of floating-point operations of :func:`recurrence`."""
    count = GATES[mode]
    pointwise = {"lstm": 13, "gru": 11}.get(mode, 2)  # operations of step() for each element
    product = count * (2 * weight_hh.shape[1] + (bias_hh is not None))
    return gates.shape[0] * h0.size * (product + pointwise)


# -- layers ----------------------------------------------------------------------------------------
def _layer(
    kind: str,
    x: Any,
    h0: Any,
    weight_ih: Any,
    weight_hh: Any,
    c0: Any = None,
    bias_ih: Any = None,
    bias_hh: Any = None,
    nonlinearity: str = "tanh",
    reverse: bool = False,
) -> tuple[Any, ...]:
    mode = _elman(nonlinearity) if kind == "rnn" else kind
    gates = ops.linear(x, weight_ih, bias_ih)
    states = ops.recurrence(gates, weight_hh, h0, c0, bias_hh, mode=mode, reverse=reverse)
    count = 2 if mode == "lstm" else 1
    y, *last = ops.split(states, (x.shape[0], *[1] * count), axis=0)
    return (y, *(ops.squeeze(state, axis=0) for state in last))


def _layer_in_numpy(
    mode: str, x: Any, h0: Any, c0: Any, weight_ih: Any, weight_hh: Any, bias_ih: Any, bias_hh: Any, reverse: bool
) -> tuple[Any, ...]:
    gates = x @ weight_ih.T + (0 if bias_ih is None else bias_ih)
    rows = ops.recurrence(gates, weight_hh, h0, c0, bias_hh, mode=mode, reverse=reverse)
    return (rows[: len(x)], *rows[len(x) :])


@composite(
    opened_in=("static", "dynamic", "weight_only"),
    infer=partial(_infer_layer, "lstm"),
    expansion=partial(_layer, "lstm"),
    samples=[
        "f32[4,B,5] f32[B,3] f32[B,3] f32[12,5] f32[12,3] f32[12] f32[12] B=2",
        "f32[3,1,2] f32[1,4] f32[1,4] f32[16,2] f32[16,4] reverse=True",
        "f64[2,3,2] f64[3,4] f64[3,4] f64[16,2] f64[16,4]; f16[2,3,2] f16[3,4] f16[3,4] f16[16,2] f16[16,4]",
        "bf16[2,3,2] bf16[3,4] bf16[3,4] bf16[16,2] bf16[16,4]; f32[0,1,2] f32[1,4] f32[1,4] f32[16,2] f32[16,4]",
    ],
    bad=[
        Bad("f32[3,2]", "f32[2,4]", "f32[2,4]", "f32[16,2]", "f32[16,4]", match="x must be [T, B, I]"),
        Bad("f32[3,2,2]", "f32[2,4]", "f32[1,4]", "f32[16,2]", "f32[16,4]", match="c0 must be [B, H], here [2, 4]"),
        Bad("f32[3,2,2]", "f32[2,4]", "f32[2,4]", "f32[16,3]", "f32[16,4]", match="features"),
    ],
)
def lstm(
    x: Tensor,
    h0: Tensor,
    c0: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: OptionalTensor = None,
    bias_hh: OptionalTensor = None,
    reverse: bool = False,
) -> Any:
    """One layer of a long short-term memory in one direction: x [T, B, I], states [B, H], weights
    [4*H, I] and [4*H, H] with gates i, f, g, o, biases [4*H], to (states [T, B, H], final hidden
    state, final cell state).

    ``reverse`` goes from the last step to the first. Raises ShapeError if sizes do not fit."""
    return _layer_in_numpy("lstm", x, h0, c0, weight_ih, weight_hh, bias_ih, bias_hh, reverse)


@composite(
    opened_in=("static", "dynamic", "weight_only"),
    infer=partial(_infer_layer, "gru"),
    expansion=partial(_layer, "gru"),
    samples=[
        "f32[4,B,5] f32[B,3] f32[9,5] f32[9,3] f32[9] f32[9] B=2; f32[3,1,2] f32[1,4] f32[12,2] f32[12,4] reverse=True",
        "f64[2,3,2] f64[3,4] f64[12,2] f64[12,4]; f16[2,3,2] f16[3,4] f16[12,2] f16[12,4]",
    ],
    bad=[Bad("f32[3,2,2]", "f32[2,4]", "f32[12,2]", "f32[16,4]", match="weight_hh must be [3*H, H]")],
)
def gru(
    x: Tensor,
    h0: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: OptionalTensor = None,
    bias_hh: OptionalTensor = None,
    reverse: bool = False,
) -> Any:
    """One layer of gated recurrent units in one direction: x [T, B, I], state [B, H], weights
    [3*H, I] and [3*H, H] with gates r, z, n, biases [3*H], to (states [T, B, H], final state).

    ``reverse`` goes from the last step to the first. Raises ShapeError if sizes do not fit."""
    return _layer_in_numpy("gru", x, h0, None, weight_ih, weight_hh, bias_ih, bias_hh, reverse)


def _elman(nonlinearity: str) -> str:
    if nonlinearity not in ("tanh", "relu"):
        raise ArgumentError(f'nonlinearity must be "tanh" or "relu", not {nonlinearity!r}')
    return f"rnn_{nonlinearity}"


@composite(
    opened_in=("static", "dynamic", "weight_only"),
    infer=partial(_infer_layer, "rnn"),
    expansion=partial(_layer, "rnn"),
    samples=[
        "f32[4,B,5] f32[B,3] f32[3,5] f32[3,3] f32[3] f32[3] B=2",
        "f32[3,1,2] f32[1,4] f32[4,2] f32[4,4] nonlinearity='relu' reverse=True; f64[2,3,2] f64[3,4] f64[4,2] f64[4,4]",
    ],
    bad=[Bad("f32[3,1,2]", "f32[1,4]", "f32[4,2]", "f32[4,4]", nonlinearity="gelu", match="nonlinearity must")],
)
def rnn(
    x: Tensor,
    h0: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: OptionalTensor = None,
    bias_hh: OptionalTensor = None,
    nonlinearity: str = "tanh",
    reverse: bool = False,
) -> Any:
    """One layer of an Elman network in one direction: x [T, B, I], state [B, H], weights [H, I] and
    [H, H], biases [H], to (states [T, B, H], final state).

    ``nonlinearity`` is "tanh" or "relu"; ``reverse`` goes from the last step to the first. Raises
    ShapeError if sizes do not fit, and ArgumentError for another nonlinearity."""
    mode = _elman(nonlinearity)
    return _layer_in_numpy(mode, x, h0, None, weight_ih, weight_hh, bias_ih, bias_hh, reverse)
