"""ONNX's recurrent layers. The usual forms are fxlite's layers; other activations, peepholes, clips
and lengths of sequences are scans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxlite import ops
from fxlite.importing.onnx.registry import Call, onnx_op, shape
from fxlite.tracing.capture.control import scan

_USUAL = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
#: Of the gates as ONNX has them, those that fxlite (as torch) has: i o f c -> i f c o, z r h -> r z h.
_ORDER = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}


def _activation(name: str, alpha: float | None, beta: float | None) -> Callable[[Any], Any]:
    a, b = alpha, beta
    table: dict[str, Callable[[Any], Any]] = {
        "relu": ops.relu,
        "tanh": np.tanh,
        "sigmoid": ops.sigmoid,
        "affine": lambda x: x * (1.0 if a is None else a) + (b or 0.0),
        "leakyrelu": lambda x: ops.leaky_relu(x, 0.01 if a is None else a),
        "thresholdedrelu": lambda x: ops.threshold(x, 1.0 if a is None else a, 0.0),
        "scaledtanh": lambda x: (1.0 if a is None else a) * np.tanh((1.0 if b is None else b) * x),
        "hardsigmoid": lambda x: ops.clip(x * (0.2 if a is None else a) + (0.5 if b is None else b), 0.0, 1.0),
        "elu": lambda x: ops.elu(x, 1.0 if a is None else a),
        "softsign": ops.softsign,
        "softplus": lambda x: ops.softplus(x, threshold=float("inf")),
    }
    found = table.get(name.lower())
    if found is None:
        raise ValueError(f"the activation {name!r} is none of ONNX's")
    return found


def _reordered(value: Any, kind: str, hidden: int) -> Any:
    parts = [value[g * hidden : (g + 1) * hidden] for g in _ORDER[kind]]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _layer(
    n: Call, x: Any, w: Any, r: Any, b: Any, lengths: Any, h0: Any, c0: Any = None, peepholes: Any = None
) -> Any:
    kind = n.op
    hidden = int(shape(r)[2])
    by_batch = bool(n["layout"])
    x, w, r, b, lengths, h0, c0, peepholes = n.proxies((x, w, r, b, lengths, h0, c0, peepholes))
    if by_batch:
        x = np.swapaxes(x, 0, 1)
        h0, c0 = (None if v is None else np.swapaxes(v, 0, 1) for v in (h0, c0))
    batch = shape(x)[1]
    direction = n["direction"] or "forward"
    directions = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    zeros = n.proxy(ops.zeros((batch, hidden), dtype=str(x.type.dtype)))
    states, last_h, last_c = [], [], []
    for d, reverse in enumerate(directions):
        first = [zeros if v is None else v[d] for v in (h0, c0)]
        bias = None if b is None else (b[d][: _GATES[kind] * hidden], b[d][_GATES[kind] * hidden :])
        own = None if peepholes is None else peepholes[d]
        usual = _is_usual(n, kind, d) and lengths is None and own is None
        run = _usual if usual else _scanned
        ys, h, c = run(n, kind, x, w[d], r[d], bias, first, reverse, lengths, own, hidden, d)
        states.append(ys)
        last_h.append(h)
        last_c.append(c)
    y = np.stack(states, axis=1)
    found = [y, np.stack(last_h)] + ([np.stack(last_c)] if kind == "LSTM" else [])
    if by_batch:
        found = [np.transpose(y, (2, 0, 1, 3)), *[np.swapaxes(v, 0, 1) for v in found[1:]]]
    return tuple(found)


def _is_usual(n: Call, kind: str, direction: int) -> bool:
    count = len(_USUAL[kind])
    names = (n["activations"] or _USUAL[kind] * 2)[direction * count : (direction + 1) * count]
    usual = [a.lower() for a in names] == [a.lower() for a in _USUAL[kind]]
    relu = kind == "RNN" and names == ["Relu"]
    linear = kind != "GRU" or bool(n["linear_before_reset"])
    return (usual or relu) and n["clip"] is None and not n["input_forget"] and linear


def _usual(
    n: Call, kind: str, x: Any, w: Any, r: Any, bias: Any, first: Sequence[Any], reverse: bool, *rest: Any
) -> tuple[Any, Any, Any]:
    hidden, direction = rest[-2], rest[-1]
    weights = [_reordered(v, kind, hidden) for v in (w, r, *(bias or ()))]
    if kind == "LSTM":
        return tuple(ops.lstm(x, first[0], first[1], *weights, reverse=reverse))
    if kind == "GRU":
        ys, h = ops.gru(x, first[0], *weights, reverse=reverse)
    else:
        names = n["activations"] or ["Tanh"] * 2
        ys, h = ops.rnn(x, first[0], *weights, nonlinearity=names[direction].lower(), reverse=reverse)
    return ys, h, None


def _scanned(
    n: Call,
    kind: str,
    x: Any,
    w: Any,
    r: Any,
    bias: Any,
    first: Sequence[Any],
    reverse: bool,
    lengths: Any,
    peepholes: Any,
    hidden: int,
    direction: int,
) -> tuple[Any, Any, Any]:
    """The layer step by step. Behind its length a sequence keeps its state, and its rows are 0."""
    count = len(_USUAL[kind])
    names = (n["activations"] or _USUAL[kind] * 2)[direction * count : (direction + 1) * count]
    alphas, betas = (list(n[a] or []) for a in ("activation_alpha", "activation_beta"))
    start = direction * count
    acts = [
        _activation(name, *(v[start + i] if start + i < len(v) else None for v in (alphas, betas)))
        for i, name in enumerate(names)
    ]
    clip = n["clip"]
    cut = (lambda v: v) if clip is None else (lambda v: ops.clip(v, -clip, clip))
    total = np.matmul(x, np.transpose(w))
    r_bias = None
    if bias is not None:
        total, r_bias = total + bias[0], bias[1]
    steps = shape(x)[0]
    numbers = ops.arange(0, steps, 1, dtype="i64")
    if reverse and lengths is not None:
        total = _reversed(n, total, lengths)
    elif reverse:
        total = np.flip(total, 0)
    cell = {"LSTM": _lstm_cell, "GRU": _gru_cell, "RNN": _rnn_cell}[kind]

    def body(carried: Any, row: Any) -> Any:
        gates, step = row
        new = cell(n, gates, carried, r, r_bias, acts, cut, peepholes, hidden)
        out = new[0]
        if lengths is not None:
            going = np.expand_dims(np.less(step, lengths), 1)
            new = tuple(np.where(going, v, old) for v, old in zip(new, carried))
            out = np.where(going, out, np.zeros_like(out))
        return tuple(new), out

    begin = tuple(first) if kind == "LSTM" else (first[0],)
    carried, ys = scan(body, begin, (total, n.proxy(numbers)))
    if reverse:
        ys = _reversed(n, ys, lengths) if lengths is not None else np.flip(ys, 0)
    return ys, carried[0], carried[1] if kind == "LSTM" else None


def _reversed(n: Call, x: Any, lengths: Any) -> Any:
    """The first ``length`` rows of each sequence backwards."""
    steps = np.expand_dims(ops.arange(0, shape(x)[0], 1, dtype="i64"), 1)
    lengths = lengths.astype(np.int64)
    order = np.where(np.less(steps, lengths), lengths - 1 - steps, steps)
    return ops.gather(x, np.broadcast_to(np.expand_dims(order, 2), shape(x)), 0)


def _product(h: Any, r: Any, bias: Any) -> Any:
    found = np.matmul(h, np.transpose(r))
    return found if bias is None else found + bias


def _lstm_cell(
    n: Call, gates: Any, state: Any, r: Any, bias: Any, acts: Any, cut: Any, peepholes: Any, hidden: int
) -> tuple[Any, ...]:
    h, c = state
    whole = gates + _product(h, r, bias)
    i, o, f, g = (whole[:, k * hidden : (k + 1) * hidden] for k in range(4))
    p = [None] * 3 if peepholes is None else [peepholes[k * hidden : (k + 1) * hidden] for k in range(3)]
    i = acts[0](cut(i if p[0] is None else i + p[0] * c))
    f = 1 - i if n["input_forget"] else acts[0](cut(f if p[2] is None else f + p[2] * c))
    new = f * c + i * acts[1](cut(g))
    o = acts[0](cut(o if p[1] is None else o + p[1] * new))
    return o * acts[2](cut(new)), new


def _gru_cell(
    n: Call, gates: Any, state: Any, r: Any, bias: Any, acts: Any, cut: Any, peepholes: Any, hidden: int
) -> tuple[Any, ...]:
    (h,) = state
    parts = [gates[:, k * hidden : (k + 1) * hidden] for k in range(3)]
    rows = [r[k * hidden : (k + 1) * hidden] for k in range(3)]
    own = [None] * 3 if bias is None else [bias[k * hidden : (k + 1) * hidden] for k in range(3)]
    z = acts[0](cut(parts[0] + _product(h, rows[0], own[0])))
    reset = acts[0](cut(parts[1] + _product(h, rows[1], own[1])))
    if n["linear_before_reset"]:
        new = acts[1](cut(parts[2] + reset * _product(h, rows[2], own[2])))
    else:
        new = acts[1](cut(parts[2] + _product(reset * h, rows[2], own[2])))
    return ((1 - z) * new + z * h,)


def _rnn_cell(
    n: Call, gates: Any, state: Any, r: Any, bias: Any, acts: Any, cut: Any, peepholes: Any, hidden: int
) -> tuple[Any, ...]:
    return (acts[0](cut(gates + _product(state[0], r, bias))),)


@onnx_op("LSTM", folds=False)
def lstm(
    n: Call,
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    lengths: Any = None,
    h0: Any = None,
    c0: Any = None,
    peepholes: Any = None,
) -> Any:
    return _layer(n, x, w, r, b, lengths, h0, c0, peepholes)


@onnx_op("GRU", "RNN", folds=False)
def gru_or_rnn(n: Call, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h0: Any = None) -> Any:
    return _layer(n, x, w, r, b, lengths, h0)
