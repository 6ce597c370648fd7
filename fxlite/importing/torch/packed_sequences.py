"""Packed sequences (``torch.nn.utils.rnn.pack_padded_sequence``) for an export.

torch packs the steps that sequences have, without their padding, so that sizes depend on lengths. Here the data of a
packed sequence are the padded ones, ``[steps * batch, ...]``, and :class:`Lengths` stands for its ``batch_sizes``.
Recurrent layers compute all steps, and what they return is that of each sequence's own last step.

In: the arguments of torch's functions. Out: the same results. Where torch makes a result as long as the longest
sequence (``pad_packed_sequence`` without ``total_length``), it is as long as what was packed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_FUNCTIONS: Any = torch._VF
#: An input of a gate that alone decides its value, 0 or 1, in float16 too.
_CLOSED = 3e4


class Lengths:
    """The sizes of the batches in a packed sequence: how long each sequence is (``lengths``), of how many steps."""

    __iter__ = None  # because of __getitem__, a loop over it would otherwise go on until it fails
    device = torch.device("cpu")

    def __init__(self, lengths: Any, steps: Any) -> None:
        self.lengths, self.steps = lengths, steps

    def __getitem__(self, step: int) -> Any:
        """The number of sequences that have the first step, which is all of them."""
        if step != 0:
            raise NotImplementedError(f"batch_sizes[{step}] of a packed sequence depends on the lengths")
        return self.lengths.shape[0]

    def size(self, axis: int = 0) -> Any:
        return self.steps

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Makes torch's functions accept one where they take a tensor."""
        return NotImplemented

    def absent(self) -> Any:
        """``[steps, batch]``: where a sequence has ended."""
        return torch.arange(self.steps)[:, None] >= self.lengths

    def last(self, x: Any) -> Any:
        """The value of each sequence in its own last step, of ``[steps, batch, size]``."""
        return x.gather(0, (self.lengths - 1)[None, :, None].expand(1, *x.shape[1:]))

    def reversed(self, x: Any) -> Any:
        """``[steps, batch, size]`` with the steps of each sequence from its last to its first."""
        step = torch.arange(self.steps)[:, None]
        step = torch.where(step < self.lengths, self.lengths - 1 - step, step)
        return x.gather(0, step[:, :, None].expand(x.shape))


def _pack(x: Any, lengths: Any, batch_first: bool) -> Any:
    """torch._VF._pack_padded_sequence."""
    x = x.transpose(0, 1) if batch_first else x
    return x.flatten(0, 1), Lengths(lengths, x.shape[0])


def _pad(data: Any, sizes: Any, batch_first: bool, padding: float, total: Any) -> Any:
    """torch._VF._pad_packed_sequence."""
    x = data.reshape(sizes.steps, sizes[0], *data.shape[1:])
    absent = sizes.absent().reshape(*x.shape[:2], *[1] * (x.ndim - 2))
    x = torch.where(absent, torch.tensor(padding, dtype=x.dtype), x)
    if type(total) is not int or type(sizes.steps) is not int or total > sizes.steps:
        x = torch.cat([x, x.new_full((total - sizes.steps, *x.shape[1:]), padding)])
    return (x.transpose(0, 1) if batch_first else x), sizes.lengths


def _recurrent(function: Any) -> Callable[..., Any]:
    """torch._VF.lstm, gru, rnn_tanh or rnn_relu, which take the sizes of a packed sequence as their second argument."""
    is_lstm = function.__name__ == "lstm"

    def run(*args: Any) -> Any:
        if not isinstance(args[1], Lengths):
            return function(*args)
        data, sizes, state, params, biases, layers, dropout, train, both = args
        x, ways = data.reshape(sizes.steps, sizes[0], -1), 2 if both else 1
        count = len(params) // (layers * ways)
        ends: list[Any] = []
        for layer in range(layers):
            outputs = []
            for way in range(ways):
                at = layer * ways + way
                own = [s[at : at + 1] for s in (state if is_lstm else (state,))]
                weights = params[at * count : (at + 1) * count]
                given = sizes.reversed(x) if way else x
                if is_lstm:
                    given, weights = _ending(given, sizes, weights)
                found = function(given, own if is_lstm else own[0], weights, biases, 1, 0.0, False, False, False)
                ends.append((sizes.last(found[0]), *found[2:]))
                outputs.append(sizes.reversed(found[0]) if way else found[0])
            x = torch.cat(outputs, 2)
            x = torch.dropout(x, dropout, train) if layer + 1 < layers and train else x
        return (x.flatten(0, 1), *(torch.cat(parts) for parts in zip(*ends)))

    return run


def _ending(x: Any, sizes: Lengths, weights: Any) -> Any:
    """Inputs and weights of an LSTM with one more number in each step, which keeps the cell of a sequence that has
    ended as it is: the gates of the input are closed, and those of the cell are open."""
    flags = sizes.absent()[:, :, None].to(x.dtype)
    quarter = weights[0].shape[0] // 4
    gates = torch.tensor([-_CLOSED, _CLOSED, 0.0, 0.0], dtype=x.dtype).repeat_interleave(quarter)
    return torch.cat([x, flags], 2), [torch.cat([weights[0], gates[:, None]], 1), *weights[1:]]


#: Functions of torch and their definitions here.
DEFINITIONS: dict[Any, Callable[..., Any]] = {
    _FUNCTIONS._pack_padded_sequence: _pack,
    _FUNCTIONS._pad_packed_sequence: _pad,
    **{f: _recurrent(f) for f in (_FUNCTIONS.lstm, _FUNCTIONS.gru, _FUNCTIONS.rnn_tanh, _FUNCTIONS.rnn_relu)},
}
