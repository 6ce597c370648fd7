"""Element types that fxlite lacks: float8, float4, and integers of 4 and 2 bits. Values of these
types are computed in a wider one; becoming one of them is rounding."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from fxlite import ops
from fxlite.importing.onnx.registry import Call, cast


def rounded(n: Call, x: Any, wanted: np.dtype[Any], saturate: bool, mode: str) -> Any:
    """A value as elements of a narrow type, held in the wider one: to the nearest one, halves to
    the even one; what is too large becomes the largest, or with ``saturate`` off infinity or NaN."""
    (x,) = n.proxies((x,))
    if "int" in wanted.name:
        return n.stored_as(_integer(x, wanted), wanted)
    x = cast(x, np.float32)
    found = _power_of_two(x, mode) if wanted.name == "float8_e8m0fnu" else _float(x, wanted, saturate)
    return n.stored_as(found, wanted)


def _integer(x: Any, wanted: np.dtype[Any]) -> Any:
    """The low bits of an integer; a float is truncated first."""
    info = ml_dtypes.iinfo(wanted)
    count = int(info.max) - int(info.min) + 1
    whole = cast(np.trunc(x) if np.dtype(x.dtype).kind in "fV" else x, np.int32)
    low = np.bitwise_and(whole, count - 1)
    if info.min < 0:
        low = np.where(np.greater(low, int(info.max)), low - count, low)
    return cast(low, np.int8 if info.min < 0 else np.uint8)


def _float(x: Any, wanted: np.dtype[Any], saturate: bool) -> Any:
    """Rounded to the spacing of the type's elements around each value."""
    info = ml_dtypes.finfo(wanted)
    largest, digits = float(info.max), int(info.nmant)
    lowest = int(info.minexp)
    magnitude = np.abs(x)
    safe = np.where(np.isfinite(x), np.maximum(magnitude, np.float32(2.0**lowest)), np.float32(1.0))
    spacing = np.exp2(cast(cast(ops.exponent(safe), np.int32) - 1 - digits, np.float32))
    found = np.round(np.where(np.isfinite(x), x, np.float32(0.0)) / spacing) * spacing
    has_infinity = wanted.name == "float8_e5m2"
    is_float4 = wanted.name == "float4_e2m1fn"
    beyond = np.greater(np.abs(found), np.float32(largest))
    sign = np.copysign(np.float32(1.0), x)
    edge = sign * np.float32(largest)
    nan = np.float32(np.nan)
    if saturate or is_float4:
        found = np.where(np.logical_or(beyond, np.isinf(x)), edge, found)
    else:
        outside = sign * np.float32(np.inf) if has_infinity else nan
        found = np.where(np.logical_or(beyond, np.isinf(x)), outside, found)
    if "fnuz" in wanted.name:
        found = np.where(np.equal(found, 0), np.float32(0.0), found)  # there is no negative zero
    else:
        found = np.copysign(found, x)
    return np.where(np.isnan(x), np.float32(-0.0) if is_float4 else nan, found)


def _power_of_two(x: Any, mode: str) -> Any:
    """float8_e8m0: a power of two, without a sign."""
    magnitude = np.maximum(np.abs(x), np.float32(2.0**-126))
    exponent = cast(ops.exponent(magnitude), np.int32) - 1
    low = np.exp2(cast(exponent, np.float32))
    if mode == "up":
        found = np.where(np.greater(magnitude, low), low * np.float32(2.0), low)
    elif mode == "nearest":
        found = np.where(np.greater_equal(magnitude, low * np.float32(1.5)), low * np.float32(2.0), low)
    else:
        found = low
    found = np.minimum(found, np.float32(2.0**127))
    return np.where(np.isnan(x), np.float32(np.nan), found)
