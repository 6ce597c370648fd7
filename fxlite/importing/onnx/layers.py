"""Attention and positions, of ONNX and of com.microsoft, and recurrent layers. The usual forms become a single node,
fxlite's layer; those with other activations, peepholes, clipping or sequence lengths become scans."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxlite import ops
from fxlite.importing.narrow import cast
from fxlite.importing.onnx.registry import MICROSOFT, Call, is_one, onnx_op, rank, shape
from fxlite.tracing.capture.control import scan


def _heads(x: Any, count: int) -> Any:
    """[B, T, heads * size] as [B, heads, T, size]."""
    batch, length, wide = shape(x)
    return x.reshape((batch, length, count, wide // count)).transpose((0, 2, 1, 3))


def _joined(x: Any) -> Any:
    """[B, heads, T, size] as [B, T, heads * size]."""
    batch, count, length, size = shape(x)
    return x.transpose((0, 2, 1, 3)).reshape((batch, length, count * size))


def _shared(x: Any, heads: int) -> Any:
    """Keys or values with fewer heads, each repeated for several heads of the queries."""
    own = shape(x)[1]
    return x if own == heads else np.repeat(x, heads // own, axis=1)


@onnx_op("Attention")
def attention(n: Call, q: Any, k: Any, v: Any, mask: Any = None, *rest: Any) -> Any:
    """Without a cache, a cap on the scores and a window, this is fxlite's op; else it follows ONNX's definition."""
    has_more = any(value is not None for value in rest) or any(n.wants(i) for i in (1, 2, 3))
    special = n["softcap"] or n["softmax_precision"] or (n["left_window_size"] or -1) >= 0
    if has_more or special or (n["is_causal"] and mask is not None) or np.dtype(q.dtype).itemsize == 2:
        return NotImplemented
    q, k, v, mask = n.proxies((q, k, v, mask))
    flat = rank(q) == 3
    if flat:
        q, k, v = _heads(q, n["q_num_heads"]), _heads(k, n["kv_num_heads"]), _heads(v, n["kv_num_heads"])
    heads = shape(q)[1]
    k, v = _shared(k, heads), _shared(v, heads)
    if mask is not None and str(shape(mask)[-1]) != str(shape(k)[2]) and not is_one(shape(mask)[-1]):
        return NotImplemented
    found = ops.scaled_dot_product_attention(q, k, v, mask, is_causal=bool(n["is_causal"]), scale=n["scale"])
    return _joined(found) if flat else found


# -- rotary positions ------------------------------------------------------------------------------
def _rotated(x: Any, cos: Any, sin: Any, size: int, interleaved: bool) -> Any:
    """The first ``size`` elements of each head rotated by angles: x [B, heads, T, D], cosines and sines
    [B, 1, T, size / 2]."""
    turned, rest = x[..., :size], x[..., size:]
    if interleaved:
        one, other = turned[..., 0::2], turned[..., 1::2]
    else:
        one, other = turned[..., : size // 2], turned[..., size // 2 :]
    real, imaginary = one * cos - other * sin, one * sin + other * cos
    if interleaved:
        found = np.stack([real, imaginary], axis=-1).reshape(shape(turned))
    else:
        found = np.concatenate([real, imaginary], axis=-1)
    return found if size == shape(x)[-1] else np.concatenate([found, rest], axis=-1)


def _rotary(n: Call, x: Any, cos: Any, sin: Any, positions: Any, heads: int, size: int) -> Any:
    flat = rank(x) == 3
    x = _heads(x, heads) if flat else x
    size = size or int(shape(x)[-1])
    if positions is not None:
        cos, sin = np.take(cos, positions, axis=0), np.take(sin, positions, axis=0)
    cos, sin = (v if rank(v) == 3 else np.expand_dims(v, 0) for v in (cos, sin))
    cos, sin = np.expand_dims(cos, 1), np.expand_dims(sin, 1)
    found = _rotated(x, cos, sin, size, bool(n["interleaved"]))
    return _joined(found) if flat else found


@onnx_op("RotaryEmbedding", traced=True)
def rotary_embedding(n: Call, x: Any, cos: Any, sin: Any, positions: Any = None) -> Any:
    return _rotary(n, x, cos, sin, positions, n["num_heads"] or 0, n["rotary_embedding_dim"] or 0)


@onnx_op("RotaryEmbedding", domain=MICROSOFT, traced=True)
def rotary_embedding_microsoft(n: Call, x: Any, positions: Any, cos: Any, sin: Any) -> Any:
    """``positions`` may be a single number, the first position, from which the others follow."""
    size = n["rotary_embedding_dim"] or 2 * int(shape(cos)[1])
    heads = n["num_heads"] or (shape(x)[2] // size if rank(x) == 3 else shape(x)[1])
    if rank(positions) == 1:
        length = shape(x)[1] if rank(x) == 3 else shape(x)[2]
        positions = positions + ops.arange(0, length, 1, dtype="i64")
        positions = np.expand_dims(positions, 0)
    return _rotary(n, x, cos, sin, positions, int(heads), size)


# -- com.microsoft ---------------------------------------------------------------------------------
def _score_mask(n: Call, mask: Any, length: Any) -> Any:
    """The mask of com.microsoft's attention ops, which is 1 for keys to be used: [B, S], [B, T, S], or one for each
    head; or lengths [B]."""
    if mask is None:
        return None
    kept = (
        np.less(ops.arange(0, length, 1, dtype="i64"), np.expand_dims(mask, 1))
        if rank(mask) == 1
        else np.not_equal(mask, 0)
    )
    if rank(kept) == 2:
        return kept.reshape((shape(kept)[0], 1, 1, shape(kept)[1]))
    return np.expand_dims(kept, 1) if rank(kept) == 3 else kept


def _seen(rows: Any, columns: Any, window: int) -> Any:
    """A mask of the keys that are not after the query and less than ``window`` positions before it."""
    order = np.expand_dims(ops.arange(0, rows, 1, dtype="i64"), 1) + (columns - rows)
    place = ops.arange(0, columns, 1, dtype="i64")
    seen = np.greater_equal(order, place)
    return np.logical_and(seen, np.less(order - place, window)) if window > 0 else seen


def _attended(n: Call, q: Any, k: Any, v: Any, mask: Any, bias: Any, causal: bool) -> Any:
    """Attention over heads; masked scores get the op's filter value, a large negative number."""
    scale = n["scale"] or None
    if bias is None and not causal:
        low = -10000.0 if n["mask_filter_value"] is None else n["mask_filter_value"]
        return ops.scaled_dot_product_attention(
            q, k, v, mask, scale=scale, masked_score=low if mask is not None else -math.inf
        )
    if bias is None and mask is None and str(shape(q)[2]) == str(shape(k)[2]):
        return ops.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    if causal:
        own = _seen(shape(q)[2], shape(k)[2], 0)
        mask = own if mask is None else np.logical_and(mask, own)
    if mask is not None:
        low = cast(np.float32(-3.4e38 if np.dtype(q.dtype).itemsize > 2 else -65504), q.dtype)
        added = np.where(mask, cast(np.float32(0), q.dtype), low)
        bias = added if bias is None else bias + added
    return ops.scaled_dot_product_attention(q, k, v, bias, scale=scale)


@onnx_op("Attention", domain=MICROSOFT, partly="no past in a buffer of a fixed size")
def attention_microsoft(
    n: Call, x: Any, weight: Any, bias: Any = None, mask: Any = None, past: Any = None, position: Any = None, *rest: Any
) -> Any:
    """Attention whose queries, keys and values are projected by one product."""
    if any(r is not None for r in rest):
        raise n.refuse("a past in a buffer of a fixed size is not supported")
    x, weight, bias = n.proxies((x, weight, bias))
    whole = np.matmul(x, weight)
    return self_attended(n, whole if bias is None else whole + bias, mask, past, position)


def self_attended(n: Call, whole: Any, mask: Any, past: Any, position: Any = None) -> Any:
    """Attention for queries, keys and values in one array; also returns the keys and values, including past ones, as
    [2, B, heads, T, D]."""
    mask, past, position = n.proxies((mask, past, position))
    sizes = n["qkv_hidden_sizes"] or [int(shape(whole)[2]) // 3] * 3
    q, k, v = (_heads(part, n["num_heads"]) for part in ops.split(whole, tuple(sizes), axis=2))
    if past is not None:
        k, v = (np.concatenate([past[i], part], axis=2) for i, part in enumerate((k, v)))
    found = _attended(n, q, k, v, _score_mask(n, mask, shape(k)[2]), position, bool(n["unidirectional"]))
    return (_joined(found), np.stack([k, v])) if n.wants(1) else _joined(found)


@onnx_op("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
    n: Call,
    q: Any,
    k: Any = None,
    v: Any = None,
    bias: Any = None,
    mask: Any = None,
    position: Any = None,
    past_k: Any = None,
    past_v: Any = None,
    *rest: Any,
) -> Any:
    """Attention for projected queries, keys and values: separate, packed in one array, or with keys and values
    packed."""
    q, k, v, bias, mask, position, past_k, past_v = n.proxies((q, k, v, bias, mask, position, past_k, past_v))
    heads = n["num_heads"]
    if rank(q) == 5:  # [B, T, heads, 3, size]
        q, k, v = (q[:, :, :, i].transpose((0, 2, 1, 3)) for i in range(3))
    elif k is not None and rank(k) == 5:
        q, k, v = _heads(q, heads), *(k[:, :, :, i].transpose((0, 2, 1, 3)) for i in range(2))
    else:
        if bias is not None:
            wide, own = shape(q)[2], shape(v)[2]
            parts = (bias[:wide], bias[wide : 2 * wide], bias[2 * wide :])
            q, k = q + parts[0], k + parts[1] if rank(k) == 3 else k
            v = v + parts[2] if rank(v) == 3 and own is not None else v
        q, k, v = (_heads(part, heads) if rank(part) == 3 else part for part in (q, k, v))
    if past_k is not None:
        k, v = np.concatenate([past_k, k], axis=2), np.concatenate([past_v, v], axis=2)
    found = _attended(n, q, k, v, _score_mask(n, mask, shape(k)[2]), position, bool(n["unidirectional"]))
    return (_joined(found), k, v) if n.wants(1) else _joined(found)


@onnx_op(
    "GroupQueryAttention",
    domain=MICROSOFT,
    partly="the cache grows, and sequences of a batch are of one length; a cache of a fixed size is not supported",
)
def group_query_attention(
    n: Call,
    q: Any,
    k: Any,
    v: Any,
    past_k: Any = None,
    past_v: Any = None,
    lengths: Any = None,
    total: Any = None,
    cos: Any = None,
    sin: Any = None,
    *rest: Any,
) -> Any:
    """Causal attention with fewer heads of keys and values than of queries, optionally with rotary positions."""
    window, cap = n["local_window_size"] or -1, n["softcap"] or 0.0
    if any(r is not None for r in rest) or n["smooth_softmax"]:
        raise n.refuse("position ids, a bias and a smooth softmax are not supported")
    q, k, v, past_k, past_v, cos, sin = n.proxies((q, k, v, past_k, past_v, cos, sin))
    heads, own = n["num_heads"], n["kv_num_heads"]
    if k is None:  # packed
        size = shape(q)[2] // (heads + 2 * own)
        q, k, v = ops.split(q, (heads * size, own * size, own * size), axis=2)
    q, k, v = _heads(q, heads), _heads(k, own), _heads(v, own)
    before: Any = 0 if past_k is None else shape(past_k)[2]
    if n["do_rotary"]:
        length = shape(q)[2]
        rows = slice(before, before + length)
        cos, sin = (np.expand_dims(np.expand_dims(t[rows], 0), 0) for t in (cos, sin))
        size, pairs = 2 * int(shape(cos)[-1]), bool(n["rotary_interleaved"])
        q, k = (_rotated(part, cos, sin, size, pairs) for part in (q, k))
    if past_k is not None:
        k, v = np.concatenate([past_k, k], axis=2), np.concatenate([past_v, v], axis=2)
    keys, values = _shared(k, heads), _shared(v, heads)
    seen = _seen(shape(q)[2], shape(k)[2], window)
    if cap:
        scores = np.matmul(q, np.swapaxes(keys, -1, -2)) * (n["scale"] or 1 / math.sqrt(shape(q)[3]))
        scores = np.where(seen, np.tanh(scores / cap) * cap, cast(np.float32(-np.inf), q.dtype))
        return _joined(np.matmul(ops.softmax(scores, axis=-1), values)), k, v
    if window > 0:
        found = ops.scaled_dot_product_attention(q, keys, values, seen, scale=n["scale"] or None)
    else:
        found = _attended(n, q, keys, values, None, None, True)
    return _joined(found), k, v


# -- recurrent layers ------------------------------------------------------------------------------
_USUAL = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
#: The positions of the gates of fxlite (and torch) in ONNX's order: i o f c -> i f c o, z r h -> r z h.
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
        raise ValueError(f"the activation {name!r} is not one of ONNX's")
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


def _activations(n: Call, kind: str, direction: int) -> list[str]:
    """The names of the activations of a direction."""
    count = len(_USUAL[kind])
    return list(n["activations"] or _USUAL[kind] * 2)[direction * count : (direction + 1) * count]


def _is_usual(n: Call, kind: str, direction: int) -> bool:
    names = _activations(n, kind, direction)
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
    """The layer step by step. After the end of a sequence its state stays, and its rows are 0."""
    names = _activations(n, kind, direction)
    alphas, betas = (list(n[a] or []) for a in ("activation_alpha", "activation_beta"))
    start = direction * len(names)
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
    """Each sequence with its first ``length`` rows reversed."""
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
    return o * acts[2](new), new  # ONNX Runtime only clips the inputs of gates


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
