"""Hard values for each dtype.

In: a role (what the values are for) and a concrete type. Out: an array, the same in each run. The
role ``hard`` is for functions of one value: zeros of both signs, one, the ends of the range and
their neighbours, halves, numbers that lose bits in a narrower type, subnormal, tiny and huge ones,
infinities, NaN, and the edges of exp. ``left`` and ``right`` together are all pairs of them.
``mild`` is for sums and products of many numbers, ``count`` for exponents and shifts, ``whole`` for
conversions to integers, ``truth`` for conditions, ``index`` for positions along an axis of five,
``class`` for those of which some count for nothing. A ``2`` behind a role: other numbers than those
of the role alone. ``salted`` is ``mild`` with one hard value in
each slice of the first axis, NaN, infinities and the ends of the range first.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np

from fxlite.types.tensor_type import TensorType, parse_type

Array = np.ndarray[Any, Any]

_SMALL = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    3.0,
    0.1,
    2.0,
    0.9999999,
    1.0000001,
    49.999996,
    4.5,
    -3.5,
    7.0,
    10.0,
    127.0,
    128.0,
    255.0,
    256.0,
    -129.0,
    65504.0,
    1e4,
)
_EDGES = (
    88.72,
    88.73,
    -87.33,
    -87.34,
    -103.9,
    -104.1,
    709.78,
    709.79,
    -708.4,
    -745.1,
    -746.0,
    11.08,
    11.09,
    -9.7,
    -17.3,
    -16.6,
    710.47,
    89.41,
    3.1415927,
    1.5707964,
    1e5,
    8388607.5,
    16777217.0,
    9007199254740993.0,
    4503599627370495.5,
    2147483648.0,
    9.3e18,
)
_SIGNED = (0, 1, -1, 2, 3, -2, 5, 7, -7, 10, 100, -100)


@functools.cache
def hard(name: str) -> tuple[Any, ...]:
    """The hard values of a dtype, by its long name."""
    dtype = parse_type(f"{name}[]").dtype
    if dtype.is_bool:
        return (False, True)
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        ends = [info.min, info.min + 1, info.max, info.max - 1, info.max // 2, info.max // 2 + 1]
        lost = [2**24 + 1, -(2**24) - 1, 2**53 + 1, -(2**53) - 1, 2**31, 2**31 - 1, 250, 200, 127]
        found = dict.fromkeys([*_SIGNED, *ends, *lost])
        return tuple(v for v in found if info.min <= v <= info.max)
    import ml_dtypes

    info = ml_dtypes.finfo(dtype.numpy)
    ends = [
        float(info.max),
        float(info.tiny),
        float(info.smallest_subnormal),
        float(info.eps),
        float(info.tiny) * 1.5,
        float(info.max) / 2,
        float(info.tiny) / 2,
    ]
    both = [*ends, *(-v for v in ends)]
    special = [np.nan, np.inf, -np.inf]
    with np.errstate(all="ignore"):
        made = np.array([*_SMALL, *special, *both, *_EDGES], np.float64).astype(dtype.numpy)
    return tuple(made)


def _pairs(name: str, other: str) -> tuple[list[Any], list[Any]]:
    left, right = hard(name), hard(other)
    return [a for a in left for _ in right], [b for _ in left for b in right]


def make(role: str, text: str, sizes: dict[str, int]) -> Array:
    """The array for a role (``left:i8`` names the dtype of the other operand) and a type."""
    kind: TensorType = parse_type(text).substitute(sizes)
    dtype, shape = kind.dtype, tuple(int(d) for d in kind.shape)
    count = int(np.prod(shape, dtype=np.int64))
    role, _, other = role.partition(":")
    rng = np.random.default_rng(len(text) + count + role.endswith("2"))
    role = role.removesuffix("2")
    values: Any
    if role in ("left", "right"):
        names = (dtype.name, other) if role == "left" else (other, dtype.name)
        values = _pairs(*names)[role == "right"]
        if count < len(values):  # some of the pairs, the same ones on both sides
            chosen = np.random.default_rng(count).permutation(len(values))[:count]
            values = [values[i] for i in chosen]
    elif role == "hard":
        values = list(hard(dtype.name))
    elif role == "salted":
        return _salted(make("mild", text, sizes), dtype.name, rng)
    elif role == "mild":
        if dtype.is_complex:
            values = np.round(rng.uniform(-2, 2, (2, max(count, 1))), 2)
            values = values[0] + 1j * values[1]
        elif dtype.is_float:
            values = np.round(rng.uniform(-2, 2, max(count, 1)), 2)
        else:
            low = 0 if dtype.is_bool or np.iinfo(dtype.numpy).min == 0 else -6
            values = rng.integers(low, 2 if dtype.is_bool else 7, max(count, 1))
    elif role == "count":
        values = [0, 1, 2, 3, 7, 8, 5, 31, 15]
        values = [v % 2 for v in values] if dtype.is_bool else values
    elif role == "whole":
        values = [0.0, 1.0, 1.5, 100.25, 99.9, 2.0, 3.7, 127.0, -0.0]
    elif role == "truth":
        values = [1, 0, 0, 1, 1]
    elif role == "class":
        values = [0, 4, 2, 1, 3, 2 if dtype.name == "u8" else -100]
    else:
        assert role == "index", role
        values = [0, 4, 2, 1, 3, 2]
    found = np.array(values, dtype.numpy) if role != "whole" else np.array(values).astype(dtype.numpy)
    return np.asarray(np.resize(found, shape))


def _salted(mild: Array, name: str, rng: np.random.Generator) -> Array:
    """One hard value in each slice of the first axis."""
    values, first = hard(name), len(_SMALL)
    if mild.size:
        slices = mild.reshape(mild.shape[0] if mild.ndim else 1, -1)
        for row, value in zip(slices, itertools.cycle([*values[first:], *values[:first]])):
            row[rng.integers(row.size)] = value
    return mild
