"""Scales and zero points from ranges, and weights as integers.

In: ranges or arrays, and a :class:`~fxlite.passes.quantize.schemes.scheme.Scheme`. Out: float32
scales, int32 zero points, int8 arrays. The arithmetic is done in float64 and rounded once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite.ops.integer.quantized import SMALLEST_SCALE, pack_int4
from fxlite.passes.quantize.schemes.scheme import QuantizationError, Scheme

_SHRINKS = np.arange(1.0, 0.495, -0.0125)  # ranges tried by least mse, as parts of the whole


def parameters(low: Any, high: Any, scheme: Scheme) -> tuple[Any, Any]:
    """(scale f32, zero point i32) of ranges, numbers or arrays alike. Zero is always a number that
    the integers hold exactly, so padding and relu cost nothing (Jacob et al., "Quantization and
    training of neural networks", 2018, section 2.1).

    A range that holds zero alone gets the scale 1."""
    qmin, qmax = scheme.range
    low = np.minimum(np.asarray(low, np.float64), 0)
    high = np.maximum(np.asarray(high, np.float64), 0)
    if scheme.symmetric:
        width = np.maximum(-low, high)
        scale = _or_one(width, qmax)
        return scale, np.zeros(scale.shape, np.int32)
    scale = _or_one(high - low, qmax - qmin)
    exact = qmin - low / scale.astype(np.float64)
    return scale, np.clip(np.rint(exact), qmin, qmax).astype(np.int32)


def _or_one(width: Any, steps: int) -> Any:
    return np.where(width == 0, np.float32(1), _scale(width, steps))


def _scale(width: Any, steps: int) -> Any:
    return np.maximum(width / steps, SMALLEST_SCALE).astype(np.float32)


@dataclass(frozen=True)
class QuantizedWeight:
    """``integers`` (i8, in the weight's shape) times ``scale`` (f32; axes of size 1 broadcast; of
    groups [N, K/g], rounded up, where K is all behind the first axis) is the weight, but for
    ``sqnr``: signal over noise in dB."""

    integers: Any
    scale: Any
    sqnr: float


def quantize_weight(weight: Any, scheme: Scheme, axes: tuple[int, ...], least_scale: Any = 0.0) -> QuantizedWeight:
    """A weight as integers. ``axes`` are those that a product sums over: they share one scale per
    channel. Of groups, what lies behind the first axis is cut into pieces of
    ``scheme.group_size``, the last of which may be shorter.

    ``least_scale`` (broadcast) is a lower bound of the scale: what keeps a bias in the accumulator.
    Zeros alone get the least scale there is. Ranges are the extremes, or, ``observer="mse"``, the
    part of them (50 to 100 %) of least squared error."""
    array = np.asarray(weight).astype(np.float64)
    if scheme.per == "group":
        assert scheme.group_size is not None
        array = _in_groups(array, scheme.group_size)
        axes = (2,)
    elif scheme.per == "tensor":
        axes = tuple(range(array.ndim))
    qmin, qmax = scheme.range
    largest = np.abs(array).max(axis=axes, keepdims=True, initial=0)

    def rounded(scale: Any) -> Any:
        return np.clip(np.rint(array / scale), qmin, qmax)

    scale = np.maximum(_scale(largest, qmax), np.asarray(least_scale, np.float32))
    if scheme.observer == "mse":
        best = np.full(scale.shape, np.inf)
        for part in _SHRINKS:
            tried = np.maximum(_scale(largest * part, qmax), np.asarray(least_scale, np.float32))
            error = np.sum((rounded(tried) * tried - array) ** 2, axis=axes, keepdims=True)
            scale = np.where(error < best, tried, scale)
            best = np.minimum(error, best)
    integers = rounded(scale.astype(np.float64))
    sqnr = signal_to_noise(array, integers * scale)
    if scheme.per == "group":
        scale = scale[..., 0]
        rows = integers.reshape(len(weight), math.prod(integers.shape[1:]))
        integers = rows[:, : math.prod(weight.shape[1:])]
    return QuantizedWeight(integers.reshape(weight.shape).astype(np.int8), scale, sqnr)


def _in_groups(array: Any, size: int) -> Any:
    """Rows [N, ...] as [N, groups, size], the last group filled up with zeros."""
    depth = math.prod(array.shape[1:])
    groups = -(-depth // size)
    filled = np.zeros((len(array), groups * size), array.dtype)
    filled[:, :depth] = array.reshape(len(array), depth)
    return filled.reshape(len(array), groups, size)


def require_finite(path: str, array: Any) -> None:
    """Raise QuantizationError unless all of a weight are numbers."""
    if not np.isfinite(array).all():
        raise QuantizationError(
            f"the weight {path} holds {np.sum(~np.isfinite(array))} numbers that are NaN or "
            f"infinite; it cannot be quantized"
        )


def restored_weight(weight: QuantizedWeight, scheme: Scheme) -> Any:
    """The float32 numbers that the integers of a weight stand for."""
    scale, shape = weight.scale, weight.integers.shape
    if scheme.per == "group":
        assert scheme.group_size is not None
        depth = math.prod(shape[1:])
        scale = np.repeat(scale, scheme.group_size, axis=1)[:, :depth].reshape(shape)
    return weight.integers.astype(np.float32) * scale


def packed_rows(weight: QuantizedWeight, scheme: Scheme) -> Any:
    """The integers of a weight as :func:`~fxlite.ops.linear_weight_only` wants them: i8 [N, K], or
    u8 [N, K/2] (rounded up)."""
    shape = weight.integers.shape
    rows = weight.integers.reshape(shape[0], math.prod(shape[1:]))
    if scheme.dtype != "i4":
        return rows
    return np.asarray(pack_int4(np.pad(rows, ((0, 0), (0, rows.shape[1] % 2)))))


def packed_bytes(weight: QuantizedWeight, scheme: Scheme) -> int:
    """Bytes of :func:`packed_rows` and of the scales."""
    rows, *rest = weight.integers.shape
    return int(rows * -(-math.prod(rest) * scheme.bits // 8) + weight.scale.nbytes)


def signal_to_noise(signal: Any, approximation: Any) -> float:
    """10 log10(sum of squares of the signal over that of the error), in dB; infinite where they are
    equal."""
    noise = float(np.sum((signal - approximation) ** 2))
    power = float(np.sum(signal**2))
    if noise == 0:
        return float("inf")
    return float(10 * np.log10(power / noise)) if power else float("-inf")
