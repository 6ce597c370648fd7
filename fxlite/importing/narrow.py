"""Element types that fxlite lacks: float8, float4, and integers of 4 and 2 bits. Values of such a type are held in a
wider one that has all of its elements, and a conversion to it is computed as rounding.

In: an array or a traced value, and the narrow type as a dtype of ml_dtypes. Out: the same in the wider type.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from fxlite import ops
from fxlite.base.state import is_traced
from fxlite.types import dtypes


def widened(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which a value is computed: float32 for float8 and float4, 8-bit integers for those of fewer bits;
    any other dtype itself."""
    if dtype in dtypes.BY_NUMPY or dtype.kind in "OUS":
        return dtype
    if "int" in dtype.name:
        return np.dtype(np.uint8 if dtype.name.startswith("u") else np.int8)
    return np.dtype(np.float32)


def cast(value: Any, dtype: Any) -> Any:
    """A value cast to another dtype as in NumPy; unchanged if it already has that dtype."""
    wanted = np.dtype(dtype)
    if value.dtype == wanted:
        return value
    return value.astype(dtypes.dtype(wanted).numpy if is_traced(value) else wanted)


def integer(x: Any, wanted: np.dtype[Any]) -> Any:
    """The low bits of an integer; a float is truncated first."""
    info = ml_dtypes.iinfo(wanted)
    count = int(info.max) - int(info.min) + 1
    whole = cast(np.trunc(x) if np.dtype(x.dtype).kind in "fV" else x, np.int32)
    low = np.bitwise_and(whole, count - 1)
    if info.min < 0:
        low = np.where(np.greater(low, int(info.max)), low - count, low)
    return cast(low, np.int8 if info.min < 0 else np.uint8)


def rounded(x: Any, wanted: np.dtype[Any], saturate: bool) -> Any:
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
        found = np.where(np.equal(found, 0), np.float32(0.0), found)  # the type has no negative zero
    else:
        found = np.copysign(found, x)
    return np.where(np.isnan(x), np.float32(-0.0) if is_float4 else nan, found)


def power_of_two(x: Any, mode: str) -> Any:
    """A value rounded to float8_e8m0, whose elements are powers of two without a sign."""
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
