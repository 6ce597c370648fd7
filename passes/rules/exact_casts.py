"""Which chains of casts are one cast, used by simplify.

In: dtypes. Out: whether a conversion keeps every value, and whether an intermediate one can go.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from fxlite.types.dtypes import DType


def keeps_every_value(source: DType, target: DType) -> bool:
    """True if ``target`` holds every value of ``source``: NaN, infinities and subnormals too."""
    if source is target:
        return True
    if target.is_bool:
        return False
    bits, room = _bits(source), _bits(target)
    if source.is_float:
        return target.is_float and bits <= room and _reach(source) <= _reach(target)
    if target.is_float:
        return bits <= min(room, _reach(target))
    return bits <= room and not (source.kind == "signed" and target.is_unsigned)


def _bits(dtype: DType) -> int:
    """Bits of magnitude of an integer, or of a float's significand with the leading one."""
    if dtype.is_float:
        return int(ml_dtypes.finfo(dtype.numpy).nmant) + 1
    return int(np.iinfo(dtype.numpy).max).bit_length() if dtype.is_integer else 1


def _reach(dtype: DType) -> int:
    """The largest exponent of a float dtype."""
    return int(ml_dtypes.finfo(dtype.numpy).maxexp) - 1


def cast_of_cast(source: DType, between: DType, target: DType) -> bool:
    """True if ``source -> between -> target`` equals ``source -> target`` for every value."""
    if not keeps_every_value(source, between):
        return False
    if target.is_bool or target.is_float:
        return True
    if source.is_float:
        return source is target  # out of range, the answer depends on the dtype cast from
    return not between.is_float or keeps_every_value(source, target)
