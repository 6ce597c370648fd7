"""Which chains of casts are one cast: a table about dtypes, used by simplify.

In: dtypes. Out: whether a conversion keeps every value, and whether an intermediate one can go.
"""

from __future__ import annotations

from fxlite.dtypes import DType

#: Bits of the significand (the leading one included) and largest exponent of a float dtype.
_FLOATS = {"f16": (11, 15), "bf16": (8, 127), "f32": (24, 127), "f64": (53, 1023)}
#: Bits of magnitude and whether negative values exist.
_INTEGERS = {"bool": (1, False), "u8": (8, False), "i8": (7, True), "i16": (15, True),
             "i32": (31, True), "i64": (63, True)}  # fmt: skip


def keeps_every_value(source: DType, target: DType) -> bool:
    """True if ``target`` holds every value of ``source``: NaN, infinities and subnormals too."""
    if source is target:
        return True
    if target.is_bool:
        return False
    if source.is_float:
        if not target.is_float:
            return False
        (bits, exponent), (room, reach) = _FLOATS[source.name], _FLOATS[target.name]
        return bits <= room and exponent <= reach
    magnitude, signed = _INTEGERS[source.name]
    if target.is_float:
        room, reach = _FLOATS[target.name]
        return magnitude <= room and magnitude <= reach
    room, target_signed = _INTEGERS[target.name]
    return magnitude <= room and (target_signed or not signed)


def cast_of_cast(source: DType, between: DType, target: DType) -> bool:
    """True if ``source -> between -> target`` equals ``source -> target`` for every value."""
    if not keeps_every_value(source, between):
        return False
    if target.is_bool or target.is_float:
        return True
    if source.is_float:
        return source is target  # out of range, the answer depends on the dtype cast from
    return not between.is_float or keeps_every_value(source, target)
