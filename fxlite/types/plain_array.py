"""Which arrays may enter a program: as an input, weight, constant, or in a state_dict.

In: what a user gives. Out: the same values as a plain ndarray, or a DTypeError that says why not
and what to pass instead. A subclass gives operations another meaning (a masked array leaves
elements out, ``*`` of a matrix is a product of matrices), which neither a graph nor compiled code
would keep.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.base.errors import DTypeError
from fxlite.types import dtypes

Array = np.ndarray[Any, Any]


def plain_array(value: Any, what: str = "") -> Array:
    """``value`` as an ndarray of a known dtype in this machine's byte order; ``what`` is its name
    in messages. Files in memory (np.memmap) and Parameters are plain, too. Raises DTypeError."""
    require_plain(value, what)
    if type(value) is np.ndarray and value.dtype in dtypes.BY_NUMPY:
        return value
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RecursionError) as error:
        raise DTypeError(f"{_start(what)}{type(value).__name__} is no array: {error}") from None
    try:
        dtypes.dtype(array.dtype)
    except DTypeError as error:
        raise DTypeError(f"{_start(what)}{error}") from None
    if not array.dtype.isnative:
        raise DTypeError(
            f"{_start(what)}the array is in foreign byte order ({array.dtype.str}); pass "
            f"x.astype(x.dtype.newbyteorder('='))"
        )
    return array


def require_plain(value: Any, what: str = "") -> None:
    """Raise DTypeError for an array of a class that gives operations another meaning. What is no
    array passes."""
    kind = type(value)
    if kind in (np.ndarray, np.memmap) or not isinstance(value, np.ndarray):
        return
    if getattr(kind, "is_plain_array", False):
        return
    reason, instead = "a subclass may give operations another meaning", "np.asarray(x)"
    if isinstance(value, np.ma.MaskedArray):
        reason, instead = "its mask would be lost", "x.filled(number), or x and its mask apart"
    elif isinstance(value, np.matrix):
        reason = "its * is a product of matrices, and its slices keep two axes"
    raise DTypeError(f"{_start(what)}a {kind.__name__} is refused: {reason}; pass {instead}")


def _start(what: str) -> str:
    return f"{what}: " if what else ""
