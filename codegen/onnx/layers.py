"""Layers: normalization, attention and recurrent layers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fxlite.codegen.onnx.builder import Builder, Value, exports, is_single, type_of
from fxlite.types import dtypes
from fxlite.types.shapes import as_tuple
from fxlite.types.tensor_type import TensorType


def _is_plain(bound: Mapping[str, Any]) -> bool:
    """Whether a layer's weights have the dtype of its operand."""
    types = [t for t in map(type_of, bound.values()) if t is not None]
    return is_single(bound) and len({t.dtype for t in types}) == 1


def _vector(b: Builder, value: Any, number: float, sizes: tuple[int, ...], type: TensorType) -> str:
    """A weight of a norm, or its default if it is left out."""
    return b.operand(value, type.dtype) if value is not None else b.constant(np.full(sizes, number, type.dtype.numpy))


def _sizes(bound: Mapping[str, Any]) -> tuple[Any, ...]:
    """The sizes of the axes over which a norm is computed."""
    return as_tuple(bound["normalized_shape"])


def _of_numbers(bound: Mapping[str, Any]) -> bool:
    return _is_plain(bound) and all(isinstance(s, int) for s in _sizes(bound))


@exports("layer_norm", when=_of_numbers)
def layer_norm(b: Builder, type: TensorType, x: Value, weight: Any, bias: Any, eps: float, **shape: Any) -> str:
    sizes = _sizes(shape)
    scale = _vector(b, weight, 1.0, sizes, type)
    offset = None if bias is None else b.operand(bias, type.dtype)
    return b.op("LayerNormalization", x, scale, offset, axis=type.rank - len(sizes), epsilon=eps)


@exports("rms_norm", since=23, when=_of_numbers)
def rms_norm(b: Builder, type: TensorType, x: Value, weight: Any, eps: Any, **shape: Any) -> str:
    sizes = _sizes(shape)
    scale = _vector(b, weight, 1.0, sizes, type)
    least = float(np.finfo(type.dtype.numpy).eps) if eps is None else eps
    return b.op("RMSNormalization", x, scale, axis=type.rank - len(sizes), epsilon=least)


def _by_channel(bound: Mapping[str, Any]) -> bool:
    """Whether the number of channels is known."""
    return _is_plain(bound) and isinstance(bound["x"].type.shape[1], int)


@exports(when=lambda a: _by_channel(a) and not a["training"], batch_norm="BatchNormalization")
@exports(when=lambda a: _by_channel(a) and a["use_input_stats"], instance_norm="InstanceNormalization")
@exports(since=21, when=_by_channel, group_norm="GroupNormalization")
def norm(b: Builder, type: TensorType, x: Value, weight: Any, bias: Any, eps: float, **settings: Any) -> str:
    """Norms with one weight for each channel."""
    channels = type.shape[1:2]
    given = [_vector(b, weight, 1.0, channels, type), _vector(b, bias, 0.0, channels, type)]
    given += [settings["running_mean"], settings["running_var"]] if b.kind == "BatchNormalization" else []
    return b.op(b.kind, x, *given, num_groups=settings.get("num_groups"), epsilon=eps)


def _attends(bound: Mapping[str, Any]) -> bool:
    """Whether Attention computes this: four axes, one dtype, and no rule for rows that a mask empties."""
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
    return b.op("Attention", query, key, value, is_causal=int(is_causal), scale=given)


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
    made = b.results(len(order), "Split", value, axis=0, num_outputs=len(order))
    return b.op("Concat", *(made[g] for g in order), axis=0)


@exports(lstm="LSTM", gru="GRU", rnn="RNN", when=_is_plain)
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
        return b.op("Unsqueeze", value, front)

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
    made = b.results(count, b.kind, x, *own, offset, None, *states, direction=direction, **options)
    return [b.op("Squeeze", v, second if i == 0 else front) for i, v in enumerate(made)]


def _unpacked(b: Builder, packed: Value, count: Any) -> str:
    """The i8 values of bytes that hold two 4-bit numbers, along the last axis, the low one first."""
    low = b.op("BitwiseAnd", packed, b.number(15, dtypes.uint8))
    high = b.op("BitShift", packed, b.number(4, dtypes.uint8), direction="RIGHT")
    last = b.integers(packed.type.rank)
    pairs = b.op("Concat", b.op("Unsqueeze", low, last), b.op("Unsqueeze", high, last), axis=packed.type.rank)
    shape = (*packed.type.shape[:-1], 2 * packed.type.shape[-1])
    whole = b.cast(b.reshape(pairs, shape), dtypes.uint8, dtypes.int32)
    signed = b.op("Sub", b.op("BitwiseXor", whole, b.number(8, dtypes.int32)), b.number(8, dtypes.int32))
    found = b.cast(signed, dtypes.int32, dtypes.int8)
    return found if count == shape[-1] else b.cut(found, packed.type.rank - 1, 0, count)


@exports("unpack_int4")
def unpack_int4(b: Builder, type: TensorType, packed: Value) -> str:
    return _unpacked(b, packed, type.shape[-1])


def _floats(b: Builder, weight: Value, scale: Value, size: int, bits: int, group_size: Any) -> str:
    """Integers times their scales, one for each row or group: DequantizeLinear."""
    own = weight.name if bits == 8 else _unpacked(b, weight, size)
    if scale.type.rank == 1:
        return b.op("DequantizeLinear", own, scale, axis=0)
    groups = b.constant(np.arange(size) // int(group_size))
    return b.op("Mul", b.cast(own, dtypes.int8, dtypes.float32), b.op("Gather", scale, groups, axis=1))


@exports("linear_weight_only")
def linear_weight_only(
    b: Builder, type: TensorType, x: Value, weight: Value, scale: Value, bias: Any, bits: int, group_size: Any
) -> str:
    floats = _floats(b, weight, scale, int(x.type.shape[-1]), bits, group_size)
    found = b.op("MatMul", x, b.op("Transpose", floats, perm=[1, 0]))
    return found if bias is None else b.op("Add", found, bias)


@exports("dequantize_weight")
def dequantize_weight(
    b: Builder, type: TensorType, weight: Value, scale: Value, shape: Any, bits: int, group_size: Any
) -> str:
    count = math.prod(int(s) for s in type.shape[1:])
    return b.reshape(_floats(b, weight, scale, count, bits, group_size), type.shape)
