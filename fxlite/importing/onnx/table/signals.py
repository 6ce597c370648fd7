"""ONNX's transforms of signals."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.importing.onnx import proto
from fxlite.importing.onnx.registry import Call, axis_of, cast, is_one, onnx_op, rank, shape


def _as_complex(x: Any) -> Any:
    """Of values whose last axis holds real (and imaginary) parts the numbers."""
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
    """Triangles between frequencies that are apart equally in mel. Everything must be known."""
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
