"""NumPy's functions that write into selected elements: ``np.put``, ``np.place``, ``np.putmask`` and ``np.copyto``.

In: a selection, and what to write where. Out: writes of the selection itself, ``s[i] = v`` and ``s[...] = values``,
which know whether it is a view.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.base.state import is_traced
from fxlite.ops.op import lookup
from fxlite.tracing.numpy_functions import by_name
from fxlite.tracing.selections.masked import Masked
from fxlite.types import dtypes


def copyto(dst: Masked, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    """np.copyto."""
    kind = src if isinstance(src, dtypes.NUMBERS) else src.dtype if hasattr(src, "dtype") else np.asarray(src).dtype
    if casting != "unsafe" and not np.can_cast(np.result_type(kind, dst.dtype), dst.dtype, casting):  # type: ignore[arg-type]
        raise dst.tracer.error(
            f"np.copyto would have to turn {np.result_type(kind)} into {dst.dtype}, which NumPy does not do in place",
            "cast the values first: .astype",
        )
    dst[...] = src if where is True else np.where(where, src, dst)


def put(a: Masked, ind: Any, v: Any, mode: str = "raise") -> None:
    """np.put: writes values, repeated as needed, to positions."""
    if a.ndim > 1 or mode != "raise":
        raise a.refusal("np.put with mode=, or into rows")
    index = np.ravel(ind)
    if is_traced(v) or np.ndim(v):
        v = np.ravel(v)
        v = v if len(v.shape) and v.shape[0] is index.shape[0] else np.resize(v, index.shape[0])
    a[index] = v


def putmask(a: Masked, mask: Any, values: Any) -> None:
    """np.putmask: values of another size are used by position, repeated as needed."""
    copyto(a, _in_turn(a, values, True), "unsafe", mask)


def place(arr: Masked, mask: Any, vals: Any) -> None:
    """np.place: writes values, repeated as needed, where the mask is true."""
    copyto(arr, _in_turn(arr, np.ravel(vals), mask), "unsafe", mask)


def _in_turn(a: Masked, values: Any, mask: Any) -> Any:
    """For each element where the mask is true, the next of the values."""
    if isinstance(values, Masked) or not np.ndim(values):
        return values
    size = values.shape[0]
    if a.ndim > 1 or np.ndim(values) > 1 or size == 0:
        raise a.refusal("a write of several values into rows")
    if size == 1:
        return values[0]
    counts = np.where(mask, a.like(lookup("full")(a.values.type.shape, 1, dtypes.int64)), 0)
    return a.tracer.constant(values)[(np.cumsum(counts) - 1) % size]


FUNCTIONS = by_name(np, copyto, put, putmask, place)
