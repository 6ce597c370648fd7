"""ONNX's quantization (QDQ) and integer products in terms of fxlite's integer ops.

If an op of fxlite accepts the types and zero points, it represents the node, so that passes and kernels for quantized
models recognize it. Otherwise the same integers are computed with plain ops.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from fxlite import ops
from fxlite.base.state import is_traced
from fxlite.importing import narrow
from fxlite.importing.narrow import cast
from fxlite.importing.onnx import proto
from fxlite.importing.onnx.arrays import rounded
from fxlite.importing.onnx.layers import self_attended
from fxlite.importing.onnx.products import average_pool, padded, window
from fxlite.importing.onnx.registry import MICROSOFT, Call, axis_of, is_one, onnx_op, rank, shape
from fxlite.tracing.capture.known import known_value

_BYTES = (np.dtype(np.int8), np.dtype(np.uint8))


def _spread(value: Any, n: Call, x: Any, axis: int, block: int) -> Any:
    """A scale or zero point that broadcasts to ``x``: a single number, one for each element along an axis, or one for
    each block of elements there."""
    if value is None or not rank(value) or (rank(value) == 1 and is_one(shape(value)[0]) and not block):
        return value if value is None or not rank(value) else value.reshape(())
    along = axis_of(axis, rank(x))
    if block:
        wide = np.repeat(value, block, axis=along)
        length = shape(x)[along]
        return wide[tuple(slice(0, length) if a == along else slice(None) for a in range(rank(x)))]
    return value.reshape(tuple(-1 if a == along else 1 for a in range(rank(x))))


def _limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    info = ml_dtypes.iinfo(dtype)
    return int(info.min), int(info.max)


def _axis(n: Call) -> int:
    return 1 if n["axis"] is None else int(n["axis"])


def _scaled(n: Call, x: Any, scale: Any, zero_point: Any) -> tuple[Any, Any, Any]:
    """Traced values, of which the scale and the zero point broadcast to the first."""
    x, *others = n.proxies((x, scale, zero_point))
    scale, zero_point = (_spread(v, n, x, _axis(n), n["block_size"] or 0) for v in others)
    return x, scale, zero_point


@onnx_op("QuantizeLinear", folds=False)
@onnx_op("QuantizeLinear", domain=MICROSOFT, folds=False)
def quantize_linear(n: Call, x: Any, scale: Any, zero_point: Any = None) -> Any:
    number = n["output_dtype"]
    wanted = np.dtype(np.uint8) if zero_point is None else n.dtype(zero_point)
    if number:
        wanted = proto.element(number, "the result")
    x, scale, zero_point = _scaled(n, x, scale, zero_point)
    if "float" in wanted.name:
        return rounded(n, cast(x, np.float32) / cast(scale, np.float32), wanted, bool(n["saturate"]), "nearest")
    return _quantized(n, x, scale, zero_point, wanted)


def _quantized(n: Call, x: Any, scale: Any, zero_point: Any, wanted: np.dtype[Any]) -> Any:
    low, high = _limits(wanted)
    wide = np.dtype(x.dtype)
    if narrow.widened(wanted) in _BYTES and wide == np.float32 and scale.dtype == np.float32:
        name = "i8" if low < 0 else "u8"
        limits = {} if wanted in _BYTES else {"qmin": low, "qmax": high}
        if scale.node.op != "get_attr":  # the op multiplies by the reciprocal instead of dividing
            x, scale = x / scale, np.float32(1)
        return n.stored_as(ops.quantize(x, scale, zero_point, name, **limits), wanted)
    if wide.kind not in "fV":
        x = cast(x, np.float32)
    ratio = np.round(cast(x / cast(scale, x.dtype), np.float64))
    offset = 0.0 if zero_point is None else cast(zero_point, np.float64)
    return n.stored_as(
        cast(np.minimum(np.maximum(ratio + offset, float(low)), float(high)), narrow.widened(wanted)), wanted
    )


@onnx_op("DequantizeLinear", folds=False)
@onnx_op("DequantizeLinear", domain=MICROSOFT, folds=False)
def dequantize_linear(n: Call, x: Any, scale: Any, zero_point: Any = None) -> Any:
    held, kind = n.dtype(x), n.dtype(scale)
    number = n["output_dtype"]
    wanted = proto.element(number, "the result") if number else kind
    x, scale, zero_point = _scaled(n, x, scale, zero_point)
    if "float" in held.name:
        return cast(cast(x, scale.dtype) * scale, wanted)
    if np.dtype(x.dtype) in (*_BYTES, np.dtype(np.int32)) and kind == wanted == np.float32:
        return ops.dequantize(x, scale, zero_point)
    whole = cast(x, np.int32)
    if zero_point is not None:
        whole = whole - cast(zero_point, np.int32)
    return cast(cast(whole, np.float32) * cast(scale, np.float32), wanted)


@onnx_op("DynamicQuantizeLinear", folds=False, traced=True)
def dynamic_quantize_linear(n: Call, x: Any) -> Any:
    """Quantizes to uint8 over the range of the values and 0; if all are 0, the scale is 1, as in ONNX Runtime."""
    high, low = np.maximum(np.max(x), np.float32(0)), np.minimum(np.min(x), np.float32(0))
    scale = np.where(high == low, np.float32(1), (high - low) / np.float32(255))
    zero_point = cast(np.round(np.minimum(np.maximum(-low / scale, np.float32(0)), np.float32(255))), np.uint8)
    return ops.quantize(x / scale, np.float32(1), zero_point, "u8"), scale, zero_point


# -- products --------------------------------------------------------------------------------------
def _point(value: Any) -> int | None:
    """A zero point that is a single known number, else None."""
    if value is None:
        return 0
    held = known_value(value) if is_traced(value) else np.asarray(value)
    if held is None or not held.size or (held != held.reshape(-1)[0]).any():
        return None
    return int(held.reshape(-1)[0])


def _sums(n: Call, a: Any, b: Any, a_zero: Any, b_zero: Any) -> Any:
    """The product of integers minus their zero points, in int32."""
    one, other = _point(a_zero), _point(b_zero)
    a, b, a_zero, b_zero = n.proxies((a, b, a_zero, b_zero))
    if one is not None and other is not None and rank(a) > 1 and rank(b) > 1:
        return ops.int_matmul(a, b, one, other)
    a, b = cast(a, np.int32), cast(b, np.int32)
    if a_zero is not None:
        a = a - cast(
            a_zero.reshape((-1, 1)) if rank(a_zero) == 1 and not is_one(shape(a_zero)[0]) else a_zero, np.int32
        )
    if b_zero is not None:
        b = b - cast(b_zero, np.int32)
    return cast(np.matmul(a, b), np.int32)


@onnx_op("MatMulInteger", folds=False)
def matmul_integer(n: Call, a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    return _sums(n, a, b, a_zero, b_zero)


@onnx_op("MatMulIntegerToFloat", domain=MICROSOFT, folds=False)
def matmul_integer_to_float(
    n: Call, a: Any, b: Any, a_scale: Any, b_scale: Any, a_zero: Any = None, b_zero: Any = None, bias: Any = None
) -> Any:
    a_scale, b_scale = n.proxies((a_scale, b_scale))
    found = ops.dequantize(_sums(n, a, b, a_zero, b_zero), a_scale * b_scale)
    return found if bias is None else found + bias


@onnx_op("DynamicQuantizeMatMul", domain=MICROSOFT, folds=False)
def dynamic_quantize_matmul(n: Call, a: Any, b: Any, b_scale: Any, b_zero: Any = None, bias: Any = None) -> Any:
    whole, scale, zero = dynamic_quantize_linear(n, *n.proxies((a,)))
    return matmul_integer_to_float(n, whole, b, scale, b_scale, zero, b_zero, *n.proxies((bias,)))


@onnx_op("QAttention", domain=MICROSOFT, folds=False)
def q_attention(
    n: Call,
    x: Any,
    weight: Any,
    bias: Any,
    x_scale: Any,
    w_scale: Any,
    mask: Any = None,
    x_zero: Any = None,
    w_zero: Any = None,
    past: Any = None,
) -> Any:
    """Attention whose projections are a single product of integers."""
    whole = matmul_integer_to_float(n, x, weight, x_scale, w_scale, x_zero, w_zero, *n.proxies((bias,)))
    return self_attended(n, whole, mask, past)


@onnx_op("QGemm", domain=MICROSOFT, folds=False)
def q_gemm(
    n: Call,
    a: Any,
    a_scale: Any,
    a_zero: Any,
    b: Any,
    b_scale: Any,
    b_zero: Any,
    c: Any = None,
    y_scale: Any = None,
    y_zero: Any = None,
) -> Any:
    """A linear layer of integers; the result is float if it has no scale for it."""
    a, b = (np.transpose(v) if n[which] else v for v, which in ((a, "transA"), (b, "transB")))
    sums = _sums(n, a, b, a_zero, b_zero)
    a_scale, b_scale, c, y_scale, y_zero = n.proxies((a_scale, b_scale, c, y_scale, y_zero))
    sums = sums if c is None else sums + c
    a_scale = a_scale if n["alpha"] in (None, 1.0) else a_scale * np.float32(n["alpha"])
    if y_scale is None:
        return ops.dequantize(sums, a_scale * b_scale)
    return _requantized(n, sums, a_scale, b_scale, y_scale, y_zero)


@onnx_op("QLinearMatMul", folds=False)
def qlinear_matmul(
    n: Call, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, y_scale: Any, y_zero: Any
) -> Any:
    a_scale, b_scale, y_scale, y_zero = n.proxies((a_scale, b_scale, y_scale, y_zero))
    sums = _sums(n, a, b, a_zero, b_zero)
    return _requantized(n, sums, a_scale, b_scale, y_scale, y_zero)


def _requantized(n: Call, sums: Any, x_scale: Any, w_scale: Any, y_scale: Any, y_zero: Any) -> Any:
    wanted = n.dtype(y_zero)
    scale = cast(x_scale, np.float32) * cast(w_scale, np.float32) / cast(y_scale, np.float32)
    return ops.requantize(sums, scale, y_zero, "i8" if wanted == np.int8 else "u8")


def _convolution(n: Call, x: Any, weight: Any, x_zero: Any, w_zero: Any, bias: Any) -> Any:
    """The sums of a convolution of integers, in int32."""
    one, other = _point(x_zero), _point(w_zero)
    x, weight, x_zero, w_zero = n.proxies((x, weight, x_zero, w_zero))
    strides, dilations, pads = window(n, x, [int(k) for k in shape(weight)[2:]])
    options = {"stride": tuple(strides), "dilation": tuple(dilations), "groups": n["group"]}
    if one is not None and other == 0 and rank(x) == 4 and np.dtype(weight.dtype) == np.int8:
        x, padding = padded(x, pads, one)
        return ops.int_conv2d(x, weight, bias, padding=padding, x_zero_point=one, **options)
    count = rank(x) - 2
    conv = {1: ops.conv1d, 2: ops.conv2d, 3: ops.conv3d}[count]
    x, weight = cast(x, np.float64), cast(weight, np.float64)  # exact, because sums of products stay below 2**53
    if x_zero is not None:
        x = x - cast(x_zero.reshape(()), np.float64)
    if w_zero is not None:
        each = w_zero.reshape((-1, *[1] * (count + 1))) if rank(w_zero) else w_zero
        weight = weight - cast(each, np.float64)
    x, padding = padded(x, pads)
    found = cast(conv(x, weight, None, padding=padding, **options), np.int32)
    return found if bias is None else found + bias.reshape((-1, *[1] * count))


@onnx_op("ConvInteger", folds=False)
def conv_integer(n: Call, x: Any, weight: Any, x_zero: Any = None, w_zero: Any = None) -> Any:
    return _convolution(n, x, weight, x_zero, w_zero, None)


@onnx_op("QLinearConv", folds=False)
def qlinear_conv(
    n: Call,
    x: Any,
    x_scale: Any,
    x_zero: Any,
    weight: Any,
    w_scale: Any,
    w_zero: Any,
    y_scale: Any,
    y_zero: Any,
    bias: Any = None,
) -> Any:
    count = rank(x) - 2
    sums = _convolution(n, x, weight, x_zero, w_zero, bias)
    x_scale, w_scale, y_scale, y_zero = n.proxies((x_scale, w_scale, y_scale, y_zero))
    if rank(w_scale):
        w_scale = w_scale.reshape((-1, *[1] * count))
    return _requantized(n, sums, x_scale, w_scale, y_scale, y_zero)


# -- element-wise ops of com.microsoft -------------------------------------------------------------
def _real(x: Any, scale: Any, zero: Any) -> Any:
    return ops.dequantize(x, scale, zero)


def _whole(n: Call, x: Any, scale: Any, zero: Any, like: Any) -> Any:
    return ops.quantize(x, scale, zero, "i8" if n.dtype(like) == np.int8 else "u8")


@onnx_op("QLinearAdd", "QLinearMul", domain=MICROSOFT, folds=False, traced=True)
def qlinear_binary(
    n: Call, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, y_scale: Any, y_zero: Any = None
) -> Any:
    one, other = _real(a, a_scale, a_zero), _real(b, b_scale, b_zero)
    return _whole(n, one + other if n.op == "QLinearAdd" else one * other, y_scale, y_zero, a)


@onnx_op("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax", domain=MICROSOFT, folds=False, traced=True)
def qlinear_unary(n: Call, x: Any, x_scale: Any, x_zero: Any, y_scale: Any, y_zero: Any = None) -> Any:
    real = _real(x, x_scale, x_zero)
    if n.op == "QLinearSigmoid":
        found = ops.sigmoid(real)
    elif n.op == "QLinearSoftmax":
        found = ops.softmax(real, axis=-1 if n["axis"] is None else n["axis"])
    else:
        found = ops.leaky_relu(real, 0.01 if n["alpha"] is None else n["alpha"])
    return _whole(n, found, y_scale, y_zero, x)


@onnx_op("QLinearGlobalAveragePool", domain=MICROSOFT, folds=False, traced=True)
def qlinear_global_average_pool(n: Call, x: Any, x_scale: Any, x_zero: Any, y_scale: Any, y_zero: Any) -> Any:
    axes = tuple(range(1, rank(x) - 1)) if n["channels_last"] else tuple(range(2, rank(x)))
    return _whole(n, np.mean(_real(x, x_scale, x_zero), axis=axes, keepdims=True), y_scale, y_zero, x)


@onnx_op("QLinearAveragePool", domain=MICROSOFT, folds=False, traced=True)
def qlinear_average_pool(n: Call, x: Any, x_scale: Any, x_zero: Any, y_scale: Any, y_zero: Any = None) -> Any:
    return _whole(n, average_pool(n, _real(x, x_scale, x_zero)), y_scale, y_zero, x)


@onnx_op("QLinearConcat", domain=MICROSOFT, folds=False)
def qlinear_concat(n: Call, y_scale: Any, y_zero: Any, *values: Any) -> Any:
    y_scale, y_zero, *given = n.proxies((y_scale, y_zero, *values))
    parts = [_real(*given[i : i + 3]) for i in range(0, len(given), 3)]
    return _whole(n, np.concatenate(parts, axis=n["axis"]), y_scale, y_zero, y_zero)


# -- ops of com.microsoft with weights of few bits -------------------------------------------------
@onnx_op("MatMulNBits", domain=MICROSOFT, folds=False)
def matmul_n_bits(
    n: Call, x: Any, packed: Any, scales: Any, zeros: Any = None, groups: Any = None, bias: Any = None
) -> Any:
    """A linear layer whose weights are integers of 2, 4 or 8 bits in blocks along the features, each with a scale and a
    zero point. While importing they are unpacked to int8, with the zero point subtracted."""
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
        raise n.refuse("its zero points are floats; only integers are supported")
    whole = held.astype(np.int32) - points
    (x, scales, bias) = n.proxies((x, scales, bias))
    kind = np.int8 if np.abs(whole).max(initial=0) <= 127 else np.int16
    name = n.name or "weight"
    own = n.walk.importer.weights.add(f"{name}.weight", whole[:, :depth].astype(kind), False)
    spread = np.repeat(scales.reshape((rows, count)), block, axis=1)[:, :depth]
    weight = cast(n.proxy(own), x.dtype) * cast(spread, x.dtype)
    found = ops.linear(x, weight)
    return found if bias is None else found + bias


@onnx_op("GatherBlockQuantized", domain=MICROSOFT, folds=False)
def gather_block_quantized(n: Call, table: Any, indices: Any, scales: Any, zeros: Any = None) -> Any:
    """The rows, as floats, of a table of integers that has blocks along its last axis."""
    bits, block = n["bits"] or 4, n["block_size"] or 128
    if is_traced(table) or is_traced(zeros) or n["gather_axis"] or n["quantize_axis"] not in (None, 1, -1):
        raise n.refuse("its table must be constant, its rows read, and its blocks be those of a row")
    packs = np.asarray(table).dtype == np.uint8
    held, points = (v if v is None or not packs else _unpacked(np.asarray(v), bits) for v in (table, zeros))
    (indices, scales) = n.proxies((indices, scales))
    count = shape(scales)[1]
    points = (2 ** (bits - 1) if packs else 0) if points is None else points[:, :count].astype(np.int32)
    wide = points if np.ndim(points) == 0 else np.repeat(points, block, axis=1)[:, : held.shape[1]]
    whole = (held.astype(np.int32) - wide).astype(np.int16 if bits > 4 else np.int8)
    own = n.walk.importer.weights.add(f"{n.name or 'table'}.weight", whole, False)
    spread = np.repeat(np.take(scales, indices, axis=0), block, axis=-1)[..., : held.shape[1]]
    return cast(np.take(n.proxy(own), indices, axis=0), scales.dtype) * spread


def _unpacked(packed: Any, bits: int) -> Any:
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return ((np.expand_dims(packed, -1) >> shifts) & (2**bits - 1)).reshape(*packed.shape[:-1], -1)
