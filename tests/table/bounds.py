"""How far a result may be from NumPy's, by function.

Everything is exact (same bits, but for the payload of a NaN) unless it stands here. Bounds are in
units in the last place of the result's dtype, across the ends of the range too: infinity follows
the largest number. The records say by how much elementary functions are off (``Op.ulp``; in float64 C
is off by up to 2.7 ulp), and NumPy's are off by up to 2 ulp in float32 and 4 in float64 (on AVX-512): a
bound is the sum of both errors. Those of sums are what docs/numerics.md promises for the longest ones of
the table, 4 P(1037) u, which is about 56 ulp.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.scalar.functions import FUNCTIONS
from fxlite.tracing import numpy_api
from fxlite.types import agreement

Array = np.ndarray[Any, Any]

#: ulp by function: (float32, float64); 16-bit results are computed in float32 and may round to the
#: other neighbour: 1.
ULP = {
    **{u.__name__: (round(o.ulp) + 2, 7) for u, o in numpy_api._UFUNCS.items() if o.ulp},
    "power": (5, 7),  # 2.5 where it is a product
    **dict.fromkeys("prod cumsum cumprod dot matmul einsum".split(), (16, 16)),
    **dict.fromkeys("var std mean sum norm reduce".split(), (64, 64)),
}


#: Sums of products: their error is measured by the largest result, since terms may cancel.
SUMS = frozenset("sum mean prod var std cumsum cumprod norm dot matmul einsum".split())


def _is_near_the_largest(a: Array, e: Array, bound: int) -> Array:
    """Where finite values differ by no more than ``bound`` ulp of the largest, or of 1: the terms
    that are added up in the table are not smaller."""
    wide, expected = a.astype(np.float64), e.astype(np.float64)
    finite = np.isfinite(wide) & np.isfinite(expected)
    largest = np.abs(expected, where=finite, out=np.zeros_like(expected)).max(initial=0.0)
    step = float(np.spacing(np.asarray(max(largest, 1.0), e.dtype)).astype(np.float64))
    with np.errstate(all="ignore"):
        return np.asarray(finite & (np.abs(wide - expected) <= bound * step))


#: Functions of :mod:`fxlite.nn.functional` are computed by other formulas than their references.
#: They may be off by so many ulp of the larger of the result and 1: their terms may cancel.
_ALONE = dict.fromkeys(
    "elu selu celu leaky_relu gelu silu mish hardswish hardsigmoid hardtanh softplus hardshrink "
    "softshrink threshold softsign logsigmoid tanhshrink tanh sigmoid glu prelu relu relu6".split(),
    8,
)
#: So may be scalar functions whose records say that they cancel.
CANCEL = {name: 8 for name, function in FUNCTIONS.items() if function.cancels}
_ALONE.update(CANCEL)
#: Those that add numbers: ulp of the largest result in a slice of the first axis, or of 1. Weights
#: of attention are exponentials of scores, which are off by 64 ulp of numbers up to 88.
_ADDED = {"attention_weights": 5632, "scaled_dot_product_attention": 5632}
_ADDED_ELSE = 64


def _is_near_by_the_larger(a: Array, e: Array, name: str) -> Array:
    """Where finite results of functions that may cancel are as near as they must be."""
    wide, expected = a.astype(np.float64), e.astype(np.float64)
    finite = np.isfinite(wide) & np.isfinite(expected)
    size = np.abs(expected, where=np.isfinite(expected), out=np.zeros_like(expected))
    bound = _ALONE.get(name) or _ADDED.get(name, _ADDED_ELSE)
    if name not in _ALONE and e.ndim:
        size = size.max(axis=tuple(range(1, e.ndim)), keepdims=True, initial=0.0)
    if e.dtype.itemsize == 2:
        bound = 1
    with np.errstate(all="ignore"):
        step = np.spacing(np.maximum(size, 1.0).astype(e.dtype)).astype(np.float64)
        return np.asarray(finite & (np.abs(wide - expected) <= bound * step))


def ulp_bound(function: str, dtype: np.dtype[Any]) -> int:
    """Largest distance allowed."""
    found = ULP.get(function, (0, 0))
    if dtype == np.float64:
        return found[1]
    if dtype == np.float32:
        return found[0]
    return 1 if found[0] else 0


_BITS = {2: np.int16, 4: np.int32, 8: np.int64}


def ordered(values: Array) -> Array:
    """Floats as integers in their order, neighbours being one apart; zeros are alike."""
    bits = np.ascontiguousarray(values).view(_BITS[values.dtype.itemsize]).astype(object)
    lowest = -(2 ** (8 * values.dtype.itemsize - 1))
    return np.where(bits < 0, lowest - bits, bits)


def difference(actual: Any, expected: Any, function: str) -> str | None:
    """What differs, in words; None: nothing that may not."""
    a, e = np.asarray(actual), np.asarray(expected)
    if a.dtype != e.dtype:
        return f"dtype {a.dtype}, NumPy has {e.dtype}"
    if a.shape != e.shape:
        return f"shape {a.shape}, NumPy has {e.shape}"
    if function.startswith("complex."):  # rounded as an operation of complex numbers
        found = agreement.compare(e, a)
        return None if found.agrees else str(found)
    if e.dtype.kind in "biu":
        wrong = a != e
    else:
        with np.errstate(all="ignore"):
            same = (a == e) | (np.isnan(a) & np.isnan(e))
            zeros = (a == 0) & (e == 0)
            wrong = ~same | zeros & (np.signbit(a) != np.signbit(e))
        bound = ulp_bound(function, e.dtype)
        if function.startswith("functional.") or function in CANCEL:
            wrong = wrong & ~_is_near_by_the_larger(a, e, function.removeprefix("functional."))
        if bound and wrong.any():
            near = np.zeros(a.shape, bool)
            near[wrong] = np.abs(ordered(a[wrong]) - ordered(e[wrong])) <= bound
            if function in SUMS:
                near |= _is_near_the_largest(a, e, bound)
            wrong = wrong & ~(near & ~np.isnan(a) & ~np.isnan(e) & ~zeros)
    if not wrong.any():
        return None
    at = np.flatnonzero(wrong)
    return f"{at.size} of {e.size} values differ: at {at[0]}, {a.ravel()[at[0]]!r} where NumPy has {e.ravel()[at[0]]!r}"
