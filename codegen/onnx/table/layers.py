"""Layers: normalization, attention, recurrent ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fxlite.codegen.onnx.builder import Builder
from fxlite.codegen.onnx.registry import Value, exports, is_single, no, type_of
from fxlite.codegen.onnx.table.arrays import cut
from fxlite.types import dtypes
from fxlite.types.tensor_type import TensorType


def _is_plain(bound: Mapping[str, Any]) -> bool:
    """Whether a layer's weights have its operand's dtype."""
    types = [t for t in map(type_of, bound.values()) if t is not None]
    return is_single(bound) and len({t.dtype for t in types}) == 1


def _vector(b: Builder, value: Any, number: float, size: Any, type: TensorType) -> str:
    """A weight of a norm, or what stands for one that is left out."""
    if value is not None:
        return b.operand(value, type.dtype)
    sizes = size if isinstance(size, tuple) else (size,)
    if not all(isinstance(s, int) for s in sizes):
        raise no("a norm over a named size has weights")
    return b.constant(np.full(sizes, number, type.dtype.numpy))


@exports("layer_norm", when=lambda a: _is_plain(a) and all(isinstance(s, int) for s in _tuple(a["normalized_shape"])))
def layer_norm(
    b: Builder, type: TensorType, x: Value, weight: Any, bias: Any, normalized_shape: Any, eps: float
) -> str:
    sizes = _tuple(normalized_shape)
    scale = _vector(b, weight, 1.0, sizes, type)
    offset = None if bias is None else b.operand(bias, type.dtype)
    return str(b.op("LayerNormalization", x, scale, offset, axis=type.rank - len(sizes), epsilon=eps))


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


@exports(
    "rms_norm", since=23, when=lambda a: _is_plain(a) and all(isinstance(s, int) for s in _tuple(a["normalized_shape"]))
)
def rms_norm(b: Builder, type: TensorType, x: Value, weight: Any, normalized_shape: Any, eps: Any) -> str:
    sizes = _tuple(normalized_shape)
    scale = _vector(b, weight, 1.0, sizes, type)
    least = float(np.finfo(type.dtype.numpy).eps) if eps is None else eps
    return str(b.op("RMSNormalization", x, scale, axis=type.rank - len(sizes), epsilon=least))


@exports("batch_norm", when=lambda a: _is_plain(a) and not a["training"] and isinstance(a["x"].type.shape[1], int))
def batch_norm(
    b: Builder,
    type: TensorType,
    x: Value,
    running_mean: Value,
    running_var: Value,
    weight: Any,
    bias: Any,
    training: bool,
    momentum: Any,
    eps: float,
) -> str:
    channels = type.shape[1]
    given = _vector(b, weight, 1.0, channels, type), _vector(b, bias, 0.0, channels, type)
    return str(b.op("BatchNormalization", x, *given, running_mean, running_var, epsilon=eps))


@exports("group_norm", since=21, when=lambda a: _is_plain(a) and isinstance(a["x"].type.shape[1], int))
def group_norm(b: Builder, type: TensorType, x: Value, weight: Any, bias: Any, num_groups: int, eps: float) -> str:
    channels = type.shape[1]
    given = _vector(b, weight, 1.0, channels, type), _vector(b, bias, 0.0, channels, type)
    return str(b.op("GroupNormalization", x, *given, num_groups=num_groups, epsilon=eps))


@exports(
    "instance_norm", when=lambda a: _is_plain(a) and a["use_input_stats"] and isinstance(a["x"].type.shape[1], int)
)
def instance_norm(
    b: Builder,
    type: TensorType,
    x: Value,
    running_mean: Any,
    running_var: Any,
    weight: Any,
    bias: Any,
    use_input_stats: bool,
    momentum: Any,
    eps: float,
) -> str:
    channels = type.shape[1]
    given = _vector(b, weight, 1.0, channels, type), _vector(b, bias, 0.0, channels, type)
    return str(b.op("InstanceNormalization", x, *given, epsilon=eps))


def _attends(bound: Mapping[str, Any]) -> bool:
    """Whether Attention computes this: four axes, one dtype, rows that a mask empties left open."""
    types = [type_of(bound[k]) for k in ("query", "key", "value")]
    mask = bound["attn_mask"]
    fits = all(t is not None and t.rank == 4 and t.dtype is types[0].dtype for t in types)  # type: ignore[union-attr]
    causal = bound["is_causal"] and (mask is not None or types[0].shape[2] != types[1].shape[2])  # type: ignore[union-attr]
    return fits and mask is None and not causal and bound["masked_score"] == -np.inf


@exports("scaled_dot_product_attention", since=23, when=_attends)
def attention(
    b: Builder, type: TensorType, query: Value, key: Value, value: Value, is_causal: bool, scale: Any, **_: Any
) -> str:
    given = None if scale is None else float(scale)
    return str(b.op("Attention", query, key, value, is_causal=int(is_causal), scale=given))


# -- recurrent layers ------------------------------------------------------------------------------
#: Of the gates as fxlite (and torch) have them, those that ONNX has: i f g o -> i o f c, r z n -> z r h.
_ORDER = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}


def _gates(b: Builder, value: Value) -> str:
    """A weight or bias with ONNX's order of gates."""
    order = _ORDER[b.kind]
    if len(order) == 1:
        return value.name
    held = b.known(value)
    if held is not None:
        parts = np.split(held, len(order))
        return b.weight(f"{value.name}.onnx", np.concatenate([parts[g] for g in order]))
    made = b.op("Split", value, results=len(order), axis=0, num_outputs=len(order))
    return str(b.op("Concat", *(made[g] for g in order), axis=0))


@exports("lstm", kind="LSTM", when=_is_plain)
@exports("gru", kind="GRU", when=_is_plain)
@exports("rnn", kind="RNN", when=_is_plain)
def recurrent(
    b: Builder,
    type: Sequence[TensorType],
    x: Value,
    h0: Value,
    weight_ih: Value,
    weight_hh: Value,
    bias_ih: Any,
    bias_hh: Any,
    reverse: bool,
    c0: Any = None,
    nonlinearity: str = "tanh",
) -> list[str]:
    front, second = b.integers(0), b.integers(1)

    def wide(value: str) -> str:
        return str(b.op("Unsqueeze", value, front))

    own = [wide(_gates(b, w)) for w in (weight_ih, weight_hh)]
    offset = None
    if bias_ih is not None or bias_hh is not None:
        size = (bias_ih or bias_hh).type
        zeros = b.constant(np.zeros(size.shape, size.dtype.numpy))
        offset = wide(b.op("Concat", *(zeros if v is None else _gates(b, v) for v in (bias_ih, bias_hh)), axis=0))
    options: dict[str, Any] = {"hidden_size": int(weight_hh.type.shape[1])}
    if b.kind == "GRU":
        options["linear_before_reset"] = 1
    if nonlinearity == "relu":
        options["activations"] = ["Relu"]
    states = [wide(h0.name)] + ([] if c0 is None else [wide(c0.name)])
    count = 3 if b.kind == "LSTM" else 2
    direction = "reverse" if reverse else "forward"
    made = b.op(b.kind, x, *own, offset, None, *states, results=count, direction=direction, **options)
    return [str(b.op("Squeeze", v, second if i == 0 else front)) for i, v in enumerate(made)]


def _unpacked(b: Builder, packed: Value, count: Any) -> str:
    """The i8 in bytes that hold two numbers of 4 bits, along the last axis, the low one first."""
    low = b.op("BitwiseAnd", packed, b.number(15, dtypes.uint8))
    high = b.op("BitShift", packed, b.number(4, dtypes.uint8), direction="RIGHT")
    last = b.integers(packed.type.rank)
    pairs = b.op("Concat", b.op("Unsqueeze", low, last), b.op("Unsqueeze", high, last), axis=packed.type.rank)
    shape = (*packed.type.shape[:-1], 2 * packed.type.shape[-1])
    whole = b.cast(b.op("Reshape", pairs, b.shape(shape)), dtypes.uint8, dtypes.int32)
    signed = b.op("Sub", b.op("BitwiseXor", whole, b.number(8, dtypes.int32)), b.number(8, dtypes.int32))
    found = b.cast(signed, dtypes.int32, dtypes.int8)
    return found if count == shape[-1] else cut(b, found, packed.type.rank - 1, 0, count)


@exports("unpack_int4")
def unpack_int4(b: Builder, type: TensorType, packed: Value) -> str:
    return _unpacked(b, packed, type.shape[-1])


def _floats(b: Builder, weight: Value, scale: Value, size: int, bits: int, group_size: Any) -> str:
    """Integers by their scales, one for each row or group: DequantizeLinear."""
    own = weight.name if bits == 8 else _unpacked(b, weight, size)
    if scale.type.rank == 1:
        return str(b.op("DequantizeLinear", own, scale, axis=0))
    groups = b.constant(np.arange(size) // int(group_size))
    return str(b.op("Mul", b.cast(own, dtypes.int8, dtypes.float32), b.op("Gather", scale, groups, axis=1)))


@exports("linear_weight_only")
def linear_weight_only(
    b: Builder, type: TensorType, x: Value, weight: Value, scale: Value, bias: Any, bits: int, group_size: Any
) -> str:
    floats = _floats(b, weight, scale, int(x.type.shape[-1]), bits, group_size)
    found = b.op("MatMul", x, b.op("Transpose", floats, perm=[1, 0]))
    return str(found if bias is None else b.op("Add", found, bias))


@exports("dequantize_weight")
def dequantize_weight(
    b: Builder, type: TensorType, weight: Value, scale: Value, shape: Any, bits: int, group_size: Any
) -> str:
    count = math.prod(int(s) for s in type.shape[1:])
    return str(b.op("Reshape", _floats(b, weight, scale, count, bits, group_size), b.shape(type.shape)))
