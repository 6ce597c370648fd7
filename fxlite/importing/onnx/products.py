"""ONNX's matrix products, convolutions, pools and transforms of signals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxlite import ops
from fxlite.base.errors import number_of
from fxlite.importing.narrow import cast
from fxlite.importing.onnx import proto
from fxlite.importing.onnx.registry import MICROSOFT, Call, axis_of, is_one, onnx_op, rank, same, shape
from fxlite.types.shapes import NamedDim

# -- products --------------------------------------------------------------------------------------
# NumPy's products of bfloat16 are float32
same("MatMul", lambda x, y: cast(np.matmul(x, y), x.dtype))


@onnx_op("Gemm")
def gemm(n: Call, a: Any, b: Any, c: Any = None) -> Any:
    """A linear layer, if it has that form."""
    alpha, beta = n["alpha"], n["beta"]
    a = np.transpose(a) if n["transA"] else a
    whole = np.dtype(a.dtype).kind in "iu"
    is_linear = alpha == 1 and (c is None or (beta == 1 and rank(c) == 1 and _same_size(shape(c)[0], b, n["transB"])))
    if n["transB"] and is_linear and not whole:
        return cast(ops.linear(a, b, c), a.dtype)
    found = cast(np.matmul(a, np.transpose(b) if n["transB"] else b), a.dtype)
    found = found if alpha == 1 else cast(found * alpha, a.dtype)
    if c is None or beta == 0:
        return found
    return found + (c if beta == 1 else cast(c * beta, a.dtype))


def _same_size(size: Any, b: Any, is_transposed: Any) -> bool:
    return bool(type(size) is int and size == shape(b)[0 if is_transposed else 1])


@onnx_op("Einsum")
def einsum(n: Call, *values: Any) -> Any:
    equation = n["equation"].replace(" ", "")
    if equation.startswith("...ii->"):  # a letter twice in one operand is not supported with "..."
        values, equation = (np.diagonal(values[0], axis1=-2, axis2=-1),), equation.replace("ii", "i", 1)
    return cast(np.einsum(equation, *values), values[0].dtype)


same("Det", np.linalg.det)


# -- windows ---------------------------------------------------------------------------------------
def window(n: Call, x: Any, kernel: Sequence[int]) -> tuple[list[int], list[int], list[tuple[int, int]]]:
    """The strides, dilations and (before, after) paddings of the spatial axes."""
    count = len(kernel)
    strides, dilations = n.of_axes("strides", count), n.of_axes("dilations", count)
    pads, auto = n.of_axes("pads", 2 * count, 0), n["auto_pad"] or "NOTSET"
    if auto == "VALID":
        pads = [0] * (2 * count)
    each = list(zip(pads[:count], pads[count:]))
    if auto.startswith("SAME"):
        each = []
        for size, k, s, d in zip(shape(x)[2:], kernel, strides, dilations):
            if isinstance(size, NamedDim) and s != 1:
                raise n.refuse(f"auto_pad={auto} needs the size {size} as a number; give it in sizes=")
            wide = (k - 1) * d + 1
            total = wide - 1 if s == 1 else max((-(-size // s) - 1) * s + wide - size, 0)
            low = total // 2 if auto == "SAME_UPPER" else -(-total // 2)
            each.append((low, total - low))
    return strides, dilations, each


def padded(x: Any, pads: Sequence[tuple[int, int]], value: float = 0.0) -> tuple[Any, Any]:
    """The input and the paddings for a windowed op; paddings that differ before and after an axis are added to the
    input instead."""
    if all(low == high and low >= 0 for low, high in pads):
        return x, tuple(low for low, _ in pads)
    width = [(0, 0)] * (rank(x) - len(pads)) + list(pads)
    return np.pad(x, tuple(width), constant_values=value), tuple(0 for _ in pads)


_CONV = {1: ops.conv1d, 2: ops.conv2d, 3: ops.conv3d}
_TRANSPOSED = {1: ops.conv_transpose1d, 2: ops.conv_transpose2d, 3: ops.conv_transpose3d}


def _spatial(n: Call, x: Any, table: dict[int, Any]) -> Any:
    found = table.get(rank(x) - 2)
    if found is None:
        raise n.refuse(
            f"its input has {number_of(rank(x), 'axis', 'axes')}; "
            f"there is one for {' and '.join(str(r + 2) for r in table)}"
        )
    return found


@onnx_op("Conv")
def conv(n: Call, x: Any, weight: Any, bias: Any = None) -> Any:
    x, weight = n.proxies((x, weight))
    op = _spatial(n, x, _CONV)
    strides, dilations, pads = window(n, x, [int(k) for k in shape(weight)[2:]])
    x, padding = padded(x, pads)
    return op(x, weight, bias, tuple(strides), padding, tuple(dilations), n["group"])


@onnx_op("ConvTranspose")
def conv_transpose(n: Call, x: Any, weight: Any, bias: Any = None) -> Any:
    """Paddings crop the full result; an ``output_shape`` determines by how much."""
    x, weight = n.proxies((x, weight))
    op = _spatial(n, x, _TRANSPOSED)
    kernel = [int(k) for k in shape(weight)[2:]]
    count = len(kernel)
    strides, dilations = n.of_axes("strides", count), n.of_axes("dilations", count)
    extra, pads = n.of_axes("output_padding", count, 0), n.of_axes("pads", 2 * count, 0)
    wanted, auto = n["output_shape"], n["auto_pad"] or "NOTSET"
    if wanted or auto.startswith("SAME"):
        for i, size in enumerate(shape(x)[2:]):
            goal = wanted[-count:][i] if wanted else size * strides[i]
            total = strides[i] * (size - 1) + extra[i] + (kernel[i] - 1) * dilations[i] + 1 - goal
            if isinstance(total, NamedDim):
                raise n.refuse(f"its paddings need the size {size} as a number; give it in sizes=")
            if total < 0:  # the result is larger than the area of the windows
                extra[i], total = extra[i] - total, 0
            small = total // 2
            pads[i], pads[i + count] = (small, total - small) if auto == "SAME_UPPER" else (total - small, small)
    each = list(zip(pads[:count], pads[count:]))
    if all(low == high for low, high in each):
        padding = tuple(low for low, _ in each)
        if all(e < max(s, d) for e, s, d in zip(extra, strides, dilations)):
            return op(x, weight, bias, tuple(strides), padding, tuple(extra), n["group"], tuple(dilations))
    whole = op(x, weight, bias, tuple(strides), 0, 0, n["group"], tuple(dilations))
    if any(extra):
        grown = [(0, 0), (0, 0), *[(0, e) for e in extra]]
        whole = np.pad(op(x, weight, None, tuple(strides), 0, 0, n["group"], tuple(dilations)), tuple(grown))
        if bias is not None:
            whole = whole + bias.reshape((-1, *[1] * count))
    cut = tuple(slice(low, shape(whole)[2 + i] - high) for i, (low, high) in enumerate(each))
    return whole[(slice(None), slice(None), *cut)]


# -- pools -----------------------------------------------------------------------------------------
_MAX = {1: ops.max_pool1d, 2: ops.max_pool2d, 3: ops.max_pool3d}
_AVERAGE = {1: ops.avg_pool1d, 2: ops.avg_pool2d, 3: ops.avg_pool3d}


def _out_size(size: Any, k: int, s: int, d: int, pads: tuple[int, int], ceil: Any) -> Any:
    """The number of windows; the last one starts in the input or the padding before it."""
    room = size + pads[0] + pads[1] - ((k - 1) * d + 1)
    if not ceil:
        return room // s + 1
    count = -((-room) // s) + 1
    if type(count) is int and (count - 1) * s >= size + pads[0]:
        count -= 1
    return count


def _windows(n: Call, x: Any, fill: Any) -> tuple[Any, list[Any], tuple[int, ...]]:
    """The padded input; for each place in the window, the slice of the input with the elements of all windows at that
    place; and the size of a window. With these a pool is a fold over places. Windows may be far larger than the input;
    places that are beyond the input and its padding in all windows are left out."""
    kernel = list(n["kernel_shape"])
    strides, dilations, pads = window(n, x, kernel)
    sizes = [
        _out_size(size, k, s, d, p, n["ceil_mode"])
        for size, k, s, d, p in zip(shape(x)[2:], kernel, strides, dilations, pads)
    ]
    kernel = [
        max(min(k, (size - 1 + low + high) // d + 1), 1) if type(size) is int else k
        for k, size, d, (low, high) in zip(kernel, shape(x)[2:], dilations, pads)
    ]
    width = [(0, 0), (0, 0)]
    for size, out, k, s, d, (low, high) in zip(shape(x)[2:], sizes, kernel, strides, dilations, pads):
        need = (out - 1) * s + (k - 1) * d + 1 - size - low
        width.append((low, max(need, 0) if type(need) is int else high))
    used = tuple(slice(0, (out - 1) * s + (k - 1) * d + 1) for out, k, s, d in zip(sizes, kernel, strides, dilations))
    whole = np.pad(x, tuple(width), constant_values=fill)[(slice(None), slice(None), *used)]
    places = []
    for position in np.ndindex(*kernel):
        cut: list[Any] = [slice(None), slice(None)]
        for i, (p, out) in enumerate(zip(position, sizes)):
            start = p * dilations[i]
            cut.append(slice(start, start + (out - 1) * strides[i] + 1, strides[i]))
        places.append(tuple(cut))
    return whole, places, tuple(kernel)


@onnx_op("MaxPool", traced=True)
def max_pool(n: Call, x: Any) -> Any:
    kernel = list(n["kernel_shape"])
    strides, dilations, pads = window(n, x, kernel)
    kind = np.dtype(x.dtype)
    lowest: Any = -np.inf if kind.kind in "fV" else int(np.iinfo(kind).min)
    if n.wants(1):
        return _max_with_indices(n, x, lowest)
    op = _MAX.get(rank(x) - 2)
    fits = all(low == high and 2 * low <= k for (low, high), k in zip(pads, kernel))
    if op is not None and fits and kind.kind in "fV":
        padding = tuple(low for low, _ in pads)
        return op(x, tuple(kernel), tuple(strides), padding, tuple(dilations), bool(n["ceil_mode"]))
    whole, places, read = _windows(n, x, lowest)
    if op is not None and kind.kind in "fV":
        return op(whole, read, tuple(strides), 0, tuple(dilations), False)
    found = whole[places[0]]
    for place in places[1:]:
        found = np.maximum(found, whole[place])
    return found


def _max_with_indices(n: Call, x: Any, lowest: Any) -> tuple[Any, Any]:
    """The largest elements, and their positions in the flat input: the first one in the order of the window."""
    sizes = shape(x)
    count = math.prod(sizes)
    if isinstance(count, NamedDim):
        flat = ops.arange(0, count, 1, dtype="i64").reshape(sizes)
    else:
        flat = n.proxy(np.arange(count).reshape(sizes))
    if n["storage_order"]:
        inner = np.arange(math.prod(sizes[2:])).reshape(sizes[:1:-1]).transpose(range(rank(x) - 3, -1, -1))
        planes = np.arange(sizes[0] * sizes[1]).reshape((*sizes[:2], *[1] * (rank(x) - 2)))
        flat = n.proxy(planes * math.prod(sizes[2:]) + inner)
    whole, places, _ = _windows(n, x, lowest)
    indices, _, _ = _windows(n, flat, 0)
    best, where = whole[places[0]], indices[places[0]]
    for place in places[1:]:
        value = whole[place]
        larger = np.greater(value, best)
        best, where = np.where(larger, value, best), np.where(larger, indices[place], where)
    return best, where


@onnx_op("AveragePool", traced=True)
def average_pool(n: Call, x: Any) -> Any:
    kernel = list(n["kernel_shape"])
    strides, dilations, pads = window(n, x, kernel)
    op, counts_pads = _AVERAGE.get(rank(x) - 2), bool(n["count_include_pad"])
    fits = all(low == high and 2 * low <= k for (low, high), k in zip(pads, kernel)) and set(dilations) == {1}
    if op is not None and fits:
        padding = tuple(low for low, _ in pads)
        return op(x, tuple(kernel), tuple(strides), padding, bool(n["ceil_mode"]), counts_pads)
    whole, places, read = _windows(n, x, 0)
    ones = _counted(x, pads, counts_pads, whole)
    if op is not None and set(dilations) == {1}:  # all places of its windows have equal weight
        return op(whole, read, tuple(strides)) / op(ones, read, tuple(strides))
    total, held = whole[places[0]], ones[places[0]]
    for place in places[1:]:
        total, held = total + whole[place], held + ones[place]
    return total / held


def _counted(x: Any, pads: Any, counts_pads: bool, whole: Any) -> Any:
    """1 for elements of the padded input that count: those of the input and, optionally, its explicit padding. Elements
    that a rounded-up size adds at the end do not count."""
    ones = np.ones_like(x[:1, :1])
    spatial = ((0, 0), (0, 0), *pads)
    ones = np.pad(ones, spatial, constant_values=1) if counts_pads else np.pad(ones, spatial)
    missing = [size - have for size, have in zip(shape(whole)[2:], shape(ones)[2:])]
    ones = np.pad(ones, ((0, 0), (0, 0), *[(0, max(m, 0) if type(m) is int else m) for m in missing]))
    return ones[(slice(None), slice(None), *[slice(0, size) for size in shape(whole)[2:]])]


@onnx_op("LpPool", traced=True)
def lp_pool(n: Call, x: Any) -> Any:
    p = n["p"]
    whole, places, _ = _windows(n, np.abs(x) ** p, 0)
    total = whole[places[0]]
    for place in places[1:]:
        total = total + whole[place]
    return cast(total ** (1.0 / p), x.dtype)


def _spatial_axes(x: Any) -> tuple[int, ...]:
    return tuple(range(2, rank(x)))


same("GlobalAveragePool", lambda x: np.mean(x, axis=_spatial_axes(x), keepdims=True))
same("GlobalMaxPool", lambda x: np.max(x, axis=_spatial_axes(x), keepdims=True))


@onnx_op("GlobalLpPool")
def global_lp_pool(n: Call, x: Any) -> Any:
    total = np.sum(np.abs(x) ** n["p"], axis=_spatial_axes(x), keepdims=True)
    return cast(total ** (1.0 / n["p"]), x.dtype)


@onnx_op("MaxUnpool", sizes=(2,))
def max_unpool(n: Call, x: Any, indices: Any, wanted: Any = None) -> Any:
    """Each element is put where it was the largest; the indices refer to the smallest possible output."""
    x, indices = n.proxies((x, indices))
    kernel = list(n["kernel_shape"])
    strides, pads = list(n["strides"] or [1] * len(kernel)), list(n["pads"] or [0] * (2 * len(kernel)))
    count = len(kernel)
    small = [(s - 1) * strides[i] - pads[i] - pads[i + count] + kernel[i] for i, s in enumerate(shape(x)[2:])]
    sizes = [*shape(x)[:2], *small]
    out = ops.zeros((math.prod(sizes),), dtype=str(x.type.dtype))
    flat = ops.scatter_set(n.proxy(out), indices.reshape(-1), x.reshape(-1), 0).reshape(tuple(sizes))
    if wanted is None:
        return flat
    goal = n.numbers(wanted, "the output's shape")
    if goal[2:] == small:
        return flat
    grown = [(0, max(g - s, 0) if type(s) is int else g - s) for g, s in zip(goal[2:], small)]
    return np.pad(flat, ((0, 0), (0, 0), *grown))[tuple(slice(0, g) for g in goal)]


@onnx_op("Col2Im", sizes=(1, 2))
def col2im(n: Call, x: Any, image: Any, block: Any) -> Any:
    """The sum of blocks at their places, with a padded addition for each place in a block."""
    sizes, kernel = n.numbers(image, "the image's shape"), n.numbers(block, "the block's shape")
    count = len(kernel)
    strides, dilations = n.of_axes("strides", count), n.of_axes("dilations", count)
    pads = n.of_axes("pads", 2 * count, 0)
    whole = [s + pads[i] + pads[i + count] for i, s in enumerate(sizes)]
    steps = [(w - (k - 1) * d - 1) // s + 1 for w, k, d, s in zip(whole, kernel, dilations, strides)]
    (x,) = n.proxies((x,))
    batch, columns, _ = shape(x)
    channels = columns // math.prod(kernel)
    blocks = x.reshape((batch, channels, math.prod(kernel), *steps))
    out = n.proxy(ops.zeros((batch, channels, *whole), dtype=str(x.type.dtype))).copy()
    for number, position in enumerate(np.ndindex(*kernel)):
        cut = tuple(slice(p * d, p * d + (t - 1) * s + 1, s) for p, d, t, s in zip(position, dilations, steps, strides))
        out[(slice(None), slice(None), *cut)] += blocks[:, :, number]
    inner = tuple(slice(pads[i], pads[i] + s) for i, s in enumerate(sizes))
    return out[(slice(None), slice(None), *inner)]


# -- transforms of signals -------------------------------------------------------------------------
def _as_complex(x: Any) -> Any:
    """The numbers for values whose last axis has the real (and imaginary) parts."""
    return x[..., 0] + 1j * x[..., 1] if shape(x)[-1] == 2 else x[..., 0]


def _as_parts(x: Any, kind: Any) -> Any:
    return cast(np.stack([np.real(x), np.imag(x)], axis=-1), kind)


@onnx_op("DFT", sizes=(1, 2))
def dft(n: Call, x: Any, length: Any = None, axis: Any = None) -> Any:
    """Before opset 20 the axis is an attribute."""
    along = (1 if n["axis"] is None else n["axis"]) if axis is None else n.numbers(axis, "the axis")[0]
    if axis is None and n.opset >= 20:
        along = -2
    along = axis_of(along, rank(x))
    count = None if length is None else n.numbers(length, "the length")[0]
    kind = x.dtype
    values = _as_complex(n.proxy(x))
    is_real = is_one(shape(x)[-1])
    if n["inverse"]:
        if n["onesided"]:
            return np.expand_dims(cast(np.fft.irfft(values, count, axis=along), kind), -1)
        return _as_parts(np.fft.ifft(values, count, axis=along), kind)
    if n["onesided"] and is_real:
        return _as_parts(np.fft.rfft(values, count, axis=along), kind)
    found = np.fft.fft(values, count, axis=along)
    if n["onesided"]:
        size = shape(found)[along]
        found = found[tuple(slice(0, size // 2 + 1) if a == along else slice(None) for a in range(rank(found)))]
    return _as_parts(found, kind)


@onnx_op("STFT", sizes=(1, 3))
def stft(n: Call, signal: Any, step: Any, window: Any = None, length: Any = None) -> Any:
    hop = n.numbers(step, "the step")[0]
    size = n.numbers(length, "the length of a frame")[0] if length is not None else int(shape(window)[0])
    (signal,) = n.proxies((signal,))
    kind = signal.dtype
    values = _as_complex(signal) if rank(signal) == 3 else signal
    total = shape(values)[1]
    frames = 1 + (total - size) // hop
    index = np.expand_dims(np.arange(frames) * hop, 1) + np.arange(size)
    cut = np.take(values, index, axis=1)
    cut = cut if window is None else cut * window
    is_real = rank(signal) == 2 or is_one(shape(signal)[-1])
    if n["onesided"] and is_real:
        return _as_parts(np.fft.rfft(cut, axis=-1), kind)
    return _as_parts(np.fft.fft(cut, axis=-1), kind)


@onnx_op("MelWeightMatrix", sizes=(0, 1, 2))
def mel_weight_matrix(n: Call, bins: Any, length: Any, rate: Any, low: Any, high: Any) -> Any:
    """Triangles between frequencies that are equally spaced in mel. All inputs must be known."""
    count, size, sampling = (n.numbers(v, "a size")[0] for v in (bins, length, rate))
    first, last = (float(n.known(v, "a frequency").reshape(-1)[0]) for v in (low, high))
    ends = 2595 * np.log10(1 + np.array([first, last]) / 700)
    mel = ends[0] + np.arange(count + 2) * (ends[1] - ends[0]) / (count + 2)
    places = ((size + 1) * (700 * (10 ** (mel / 2595) - 1)) // sampling).astype(int)
    found = np.zeros((size // 2 + 1, count))
    for i in range(count):
        lower, centre, upper = places[i : i + 3]
        if centre == lower:
            found[centre, i] = 1
        else:
            found[lower : centre + 1, i] = np.arange(centre - lower + 1) / (centre - lower)
        if upper > centre:
            found[centre:upper, i] = (upper - np.arange(centre, upper)) / (upper - centre)
    return found.astype(proto.element(n["output_datatype"], "the result"))


# -- ops of com.microsoft --------------------------------------------------------------------------
same("Inverse", np.linalg.inv, domain=MICROSOFT, traced=True)


@onnx_op("CDist", domain=MICROSOFT, traced=True)
def cdist(n: Call, a: Any, b: Any) -> Any:
    """The distances between the rows of two matrices."""
    apart = np.sum(np.square(np.expand_dims(a, 1) - b), axis=-1)
    return np.sqrt(apart) if n["metric"] == "euclidean" else apart


@onnx_op("FusedMatMul", "TransposeMatMul", domain=MICROSOFT, traced=True)
def fused_matmul(n: Call, a: Any, b: Any) -> Any:
    """``transBatch``: the first axis is that of the rows, before the batch."""
    (a, b) = (np.moveaxis(v, 0, -2) if n[f"transBatch{which}"] else v for v, which in ((a, "A"), (b, "B")))
    found = np.matmul(*(np.swapaxes(v, -1, -2) if n[f"trans{which}"] else v for v, which in ((a, "A"), (b, "B"))))
    return found if n["alpha"] in (None, 1.0) else found * n["alpha"]


@onnx_op("FusedConv", domain=MICROSOFT)
def fused_conv(n: Call, x: Any, weight: Any, bias: Any = None, other: Any = None) -> Any:
    """A convolution, an addition, and an activation."""
    n.defaults.setdefault("group", 1)
    found = conv(n, x, weight, bias)
    found = found if other is None else found + other
    return _activated(n, found, list(n["activation_params"] or []))


@onnx_op("FusedGemm", domain=MICROSOFT, traced=True)
def fused_gemm(n: Call, a: Any, b: Any, c: Any = None) -> Any:
    for name, value in {"alpha": 1.0, "beta": 1.0}.items():
        n.defaults.setdefault(name, value)
    given = (n["activation_alpha"], n["activation_beta"], n["activation_gamma"])
    return _activated(n, gemm(n, a, b, c), [v for v in given if v is not None])


def _activated(n: Call, found: Any, parameters: list[float]) -> Any:
    """A value after the activation with which an op is fused."""
    alpha, beta = (*parameters, *[0.2, 0.5][len(parameters) :])[:2]
    activations = {
        "Relu": ops.relu,
        "Tanh": np.tanh,
        "Sigmoid": ops.sigmoid,
        "LeakyRelu": lambda v: ops.leaky_relu(v, *parameters[:1]),
        "Elu": lambda v: ops.elu(v, *parameters[:1]),
        "HardSigmoid": lambda v: ops.clip(v * alpha + beta, 0.0, 1.0),
        "Clip": lambda v: ops.clip(v, *parameters[:2]),
    }
    name = n["activation"]
    if name and name not in activations:
        raise n.refuse(f"the activation {name} is not supported")
    return activations[name](found) if name else found
