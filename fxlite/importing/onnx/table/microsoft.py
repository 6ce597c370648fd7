"""Ops of com.microsoft that exporters and optimizers write: fused activations, normalizations,
products, weights of few bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite import ops
from fxlite.base.state import is_traced
from fxlite.importing.onnx.registry import MICROSOFT, Call, cast, onnx_op, shape


@onnx_op("Gelu", domain=MICROSOFT)
def gelu(n: Call, x: Any) -> Any:
    return ops.gelu(x)


@onnx_op("BiasGelu", domain=MICROSOFT)
def bias_gelu(n: Call, x: Any, bias: Any) -> Any:
    return ops.gelu(x + bias)


@onnx_op("FastGelu", domain=MICROSOFT)
def fast_gelu(n: Call, x: Any, bias: Any = None) -> Any:
    return ops.gelu(x if bias is None else x + bias, "tanh")


@onnx_op("QuickGelu", domain=MICROSOFT)
def quick_gelu(n: Call, x: Any) -> Any:
    return x * ops.sigmoid(x * (1.702 if n["alpha"] is None else n["alpha"]))


@onnx_op("FusedMatMul", domain=MICROSOFT)
def fused_matmul(n: Call, a: Any, b: Any) -> Any:
    a, b = n.proxies((a, b))
    if n["transBatchA"] or n["transBatchB"]:
        raise n.refuse("transBatchA and transBatchB are not done")
    found = np.matmul(np.swapaxes(a, -1, -2) if n["transA"] else a, np.swapaxes(b, -1, -2) if n["transB"] else b)
    return found if n["alpha"] in (None, 1.0) else found * n["alpha"]


def _normalized(n: Call, x: Any, scale: Any, bias: Any, is_rms: bool) -> Any:
    sizes, eps = shape(x)[-1:], 1e-5 if n["epsilon"] is None else n["epsilon"]
    if is_rms:
        return ops.rms_norm(x, scale, normalized_shape=sizes, eps=eps)
    return ops.layer_norm(x, scale, bias, normalized_shape=sizes, eps=eps)


@onnx_op("LayerNormalization", domain=MICROSOFT)
def layer_normalization(n: Call, x: Any, scale: Any, bias: Any = None) -> Any:
    x, scale, bias = n.proxies((x, scale, bias))
    return _normalized(n, x, scale, bias, False)


def _skipped(n: Call, values: tuple[Any, ...], scale: Any, beta: Any, is_rms: bool) -> Any:
    whole = values[0]
    for value in values[1:]:
        whole = whole if value is None else whole + value
    found = _normalized(n, whole, scale, beta, is_rms)
    return (found, None, None, whole) if n.wants(3) else found


@onnx_op("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(n: Call, x: Any, skip: Any, scale: Any, beta: Any = None, bias: Any = None) -> Any:
    x, skip, scale, beta, bias = n.proxies((x, skip, scale, beta, bias))
    return _skipped(n, (x, skip, bias), scale, beta, False)


@onnx_op("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_normalization(n: Call, x: Any, skip: Any, scale: Any, bias: Any = None) -> Any:
    x, skip, scale, bias = n.proxies((x, skip, scale, bias))
    return _skipped(n, (x, skip, bias), scale, None, True)


@onnx_op("EmbedLayerNormalization", domain=MICROSOFT, partly="no mask index")
def embed_layer_normalization(
    n: Call, ids: Any, segments: Any, words: Any, places: Any, kinds: Any, scale: Any, beta: Any, *rest: Any
) -> Any:
    if n.wants(1) or any(r is not None for r in rest[1:]):
        raise n.refuse("the mask index and position ids are not done")
    ids, segments, words, places, kinds, scale, beta = n.proxies((ids, segments, words, places, kinds, scale, beta))
    whole = ops.embedding(ids, words) + places[: shape(ids)[1]]
    if segments is not None:
        whole = whole + ops.embedding(segments, kinds)
    found = _normalized(n, whole, scale, beta, False)
    return (found, None, whole) if n.wants(2) else found


@onnx_op("MatMulNBits", domain=MICROSOFT, folds=False)
def matmul_n_bits(
    n: Call, x: Any, packed: Any, scales: Any, zeros: Any = None, groups: Any = None, bias: Any = None
) -> Any:
    """A linear layer whose weights are integers of 2, 4 or 8 bits in blocks along the features, each
    with a scale and a zero point. They are unpacked while importing, to int8 without their zero point."""
    bits, rows, depth, block = n["bits"] or 4, n["N"], n["K"], n["block_size"]
    if groups is not None or is_traced(packed) or is_traced(zeros):
        raise n.refuse("its weights must be constants, in order")
    count = -(-depth // block)
    held = _unpacked(np.asarray(packed).reshape(rows, -1), bits).reshape(rows, count * block)
    middle = 2 ** (bits - 1)
    if zeros is None:
        points: Any = middle
    elif np.asarray(zeros).dtype == np.uint8:
        points = _unpacked(np.asarray(zeros).reshape(rows, -1), bits)[:, :count].astype(np.int32).repeat(block, axis=1)
    else:
        raise n.refuse("its zero points are floats; integers are done")
    whole = held.astype(np.int32) - points
    (x, scales, bias) = n.proxies((x, scales, bias))
    kind = np.int8 if np.abs(whole).max(initial=0) <= 127 else np.int16
    name = n.name or "weight"
    own = n.walk.importer.weights.add(f"{name}.weight", whole[:, :depth].astype(kind), False)
    spread = np.repeat(scales.reshape((rows, count)), block, axis=1)[:, :depth]
    weight = cast(n.proxy(own), x.dtype) * cast(spread, x.dtype)
    found = ops.linear(x, weight)
    return found if bias is None else found + bias


def _unpacked(packed: Any, bits: int) -> Any:
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return ((np.expand_dims(packed, -1) >> shifts) & (2**bits - 1)).reshape(*packed.shape[:-1], -1)


@onnx_op("FusedConv", domain=MICROSOFT)
def fused_conv(n: Call, x: Any, weight: Any, bias: Any = None, other: Any = None) -> Any:
    """A convolution, what is added to it, and an activation."""
    from fxlite.importing.onnx.table.products import conv

    n.defaults.setdefault("group", 1)
    found = conv(n, x, weight, bias)
    found = found if other is None else found + other
    parameters = n["activation_params"] or []
    activations = {
        "Relu": ops.relu,
        "Tanh": np.tanh,
        "Sigmoid": ops.sigmoid,
        "LeakyRelu": lambda v: ops.leaky_relu(v, *parameters[:1]),
        "Clip": lambda v: ops.clip(v, *parameters[:2]),
    }
    name = n["activation"]
    if name and name not in activations:
        raise n.refuse(f"the activation {name} is not done")
    return activations[name](found) if name else found
