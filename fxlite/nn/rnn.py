"""Recurrent layers: LSTM, GRU, RNN and their cells.

Gates are in torch's order (LSTM i, f, g, o; GRU r, z, n). A layer in one direction is one call of
``ops.lstm``, ``ops.gru`` or ``ops.rnn``; the length T and the batch B may be numbers or named dims. With
``proj_size`` the loop over time is unrolled, and T must be a number in a trace.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxlite import ops
from fxlite.base.errors import ArgumentError, ShapeError, expect
from fxlite.nn import functional as F
from fxlite.nn import init
from fxlite.nn.linear import empty_parameter
from fxlite.nn.module import Module
from fxlite.ops.composite import created
from fxlite.ops.recurrent import GATES, step


def _zeros(x: Any, shape: tuple[Any, ...]) -> Any:
    """A state of zeros in the dtype of ``x``."""
    return created(x, ops.full, shape, 0.0, dtype=x.dtype)


class _Recurrent(Module):
    """A stack of recurrent layers, in one or both directions."""

    mode = ""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        for name, size in (("input", input_size), ("hidden", hidden_size), ("proj", proj_size)):
            expect(size, (int, np.integer), f"{name}_size")
        if proj_size < 0 or proj_size >= hidden_size:
            raise ArgumentError(f"proj_size {proj_size} must be less than hidden_size {hidden_size}")
        if num_layers < 1:
            raise ArgumentError(f"num_layers must be positive, not {num_layers}")
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, dropout
        self.bidirectional, self.proj_size = bidirectional, proj_size
        self.state_size = proj_size or hidden_size
        self.directions = 2 if bidirectional else 1
        rows = GATES[self.mode] * hidden_size
        for layer in range(num_layers):
            width = input_size if layer == 0 else self.state_size * self.directions
            for suffix in self._suffixes(layer):
                made: dict[str, tuple[int, ...]] = {"weight_ih": (rows, width), "weight_hh": (rows, self.state_size)}
                if bias:
                    made |= {"bias_ih": (rows,), "bias_hh": (rows,)}
                if proj_size:
                    made["weight_hr"] = (proj_size, hidden_size)
                for name, shape in made.items():
                    self.register_parameter(name + suffix, empty_parameter(*shape, dtype=dtype))
        self.reset_parameters()

    def _suffixes(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"][: self.directions]

    def reset_parameters(self) -> None:
        """Draw new weights: uniform in ±1/sqrt(hidden_size)."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def forward(self, x: Any, hx: Any = None) -> Any:
        outputs, final = self._run(x, None if hx is None else [hx])
        return outputs, final[0]

    def _run(self, x: Any, states: Any) -> tuple[Any, list[Any]]:
        """(outputs, final states). ``states`` is None, or holds an array [D*layers, (B,) size] for each
        state."""
        batched = x.ndim == 3
        if x.ndim not in (2, 3):
            raise ShapeError(f"{type(self).__name__} takes x of rank 2 or 3, not {x.ndim}")
        if not batched:
            x = ops.unsqueeze(x, 1)
            states = states and [ops.unsqueeze(s, 1) for s in states]
        elif self.batch_first:
            x = ops.permute(x, (1, 0, 2))
        finals: list[list[Any]] = [[], []]
        for layer in range(self.num_layers):
            outputs = []
            for direction, suffix in enumerate(self._suffixes(layer)):
                number = layer * self.directions + direction
                start = states and [s[number] for s in states]
                result, ends = self._scan(x, suffix, start, bool(direction))
                outputs.append(result)
                for group, end in zip(finals, ends):
                    group.append(end)
            x = outputs[0] if len(outputs) == 1 else ops.concat(tuple(outputs), axis=-1)
            if layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout, self.training)
        final = [ops.stack(tuple(group), axis=0) for group in finals if group]
        if not batched:
            return ops.squeeze(x, 1), [ops.squeeze(f, 1) for f in final]
        return (ops.permute(x, (1, 0, 2)) if self.batch_first else x), final

    def _scan(self, x: Any, suffix: str, start: Any, reverse: bool) -> tuple[Any, list[Any]]:
        """One direction of one layer: x [T, B, I] -> ([T, B, size], final states [B, size])."""
        weights = [getattr(self, f"{name}{suffix}", None) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        if start is None:
            start = [_zeros(x, (x.shape[1], self.state_size))]
            if self.mode == "lstm":
                same = self.state_size == self.hidden_size
                start.append(start[0] if same else _zeros(x, (x.shape[1], self.hidden_size)))
        if self.proj_size:
            project = getattr(self, f"weight_hr{suffix}")
            return self._scan_projected(x, start, weights, project, reverse)
        if self.mode == "lstm":
            y, *final = ops.lstm(x, *start, *weights, reverse=reverse)
        elif self.mode == "gru":
            y, *final = ops.gru(x, *start, *weights, reverse=reverse)
        else:
            kind = self.mode.removeprefix("rnn_")
            y, *final = ops.rnn(x, *start, *weights, nonlinearity=kind, reverse=reverse)
        return y, final

    def _scan_projected(
        self, x: Any, start: list[Any], weights: list[Any], project: Any, reverse: bool
    ) -> tuple[Any, list[Any]]:
        """:meth:`_scan` of an LSTM whose hidden states are projected; the loop is unrolled."""
        weight_ih, weight_hh, bias_ih, bias_hh = weights
        inputs = F.linear(x, weight_ih, bias_ih)
        state, cell = start
        outputs = []
        times = range(x.shape[0])
        for t in reversed(times) if reverse else times:
            gates = F.linear(state, weight_hh, bias_hh)
            state, cell = step(self.mode, self.hidden_size, inputs[t], gates, state, cell)
            state = F.linear(state, project)
            outputs.append(state)
        if reverse:
            outputs.reverse()
        if not outputs:
            return _zeros(x, (0, x.shape[1], self.proj_size)), [state, cell]
        return ops.stack(tuple(outputs), axis=0), [state, cell]

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        usual = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0}
        for name, value in {"proj_size": 0, **usual, "bidirectional": False}.items():
            if getattr(self, name) != value:
                text += f", {name}={getattr(self, name)}"
        return text


class LSTM(_Recurrent):
    """Long short-term memory: x [T, B, I] (``batch_first``: [B, T, I]; unbatched: [T, I]) and
    optionally ``hx = (h0, c0)``, each [D*layers, B, H], to (outputs [T, B, D*H], (hn, cn)). D is 2 if
    ``bidirectional``, else 1. Missing states are 0."""

    mode = "lstm"

    def forward(self, x: Any, hx: Any = None) -> Any:
        outputs, final = self._run(x, None if hx is None else list(hx))
        return outputs, tuple(final)


class GRU(_Recurrent):
    """Gated recurrent unit: x [T, B, I] and optionally ``hx`` [D*layers, B, H], to (outputs [T, B,
    D*H], hn); axes as in LSTM."""

    mode = "gru"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, dtype)


class RNN(_Recurrent):
    """Elman network with tanh or relu: x [T, B, I] and optionally ``hx`` [D*layers, B, H], to
    (outputs [T, B, D*H], hn); axes as in LSTM."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        dtype: Any = None,
    ) -> None:
        self.mode = f"rnn_{_nonlinearity(nonlinearity)}"
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, dtype)
        self.nonlinearity = nonlinearity


def _nonlinearity(name: str) -> str:
    if name not in ("tanh", "relu"):
        raise ArgumentError(f'nonlinearity must be "tanh" or "relu", not {name!r}')
    return name


class _Cell(Module):
    """One step of a recurrent layer."""

    mode = ""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, dtype: Any = None) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = GATES[self.mode] * hidden_size
        self.weight_ih = empty_parameter(rows, input_size, dtype=dtype)
        self.weight_hh = empty_parameter(rows, hidden_size, dtype=dtype)
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, empty_parameter(rows, dtype=dtype) if bias else None)
        bound = 1 / math.sqrt(hidden_size) if hidden_size else 0.0
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def forward(self, x: Any, hx: Any = None) -> Any:
        return self._run(x, None if hx is None else (hx,))[0]

    def _run(self, x: Any, states: Any) -> tuple[Any, Any]:
        if states is None:
            state = cell = _zeros(x, (*x.shape[:-1], self.hidden_size))
        else:
            state, cell = states[0], states[-1]
        gates = F.linear(state, self.weight_hh, self.bias_hh)
        inputs = F.linear(x, self.weight_ih, self.bias_ih)
        return step(self.mode, self.hidden_size, inputs, gates, state, cell)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        return text if self.bias else f"{text}, bias=False"


class LSTMCell(_Cell):
    """One step: x [B, I] (or [I]) and ``hx = (h, c)``, each [B, H], to (h, c). Missing states are
    0."""

    mode = "lstm"

    def forward(self, x: Any, hx: Any = None) -> Any:
        return self._run(x, hx)


class GRUCell(_Cell):
    """One step: x [B, I] (or [I]) and ``hx`` [B, H] to h [B, H]. A missing state is 0."""

    mode = "gru"


class RNNCell(_Cell):
    """One step: x [B, I] (or [I]) and ``hx`` [B, H] to h [B, H]. A missing state is 0."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", dtype: Any = None
    ) -> None:
        self.mode = f"rnn_{_nonlinearity(nonlinearity)}"
        super().__init__(input_size, hidden_size, bias, dtype)
        self.nonlinearity = nonlinearity
