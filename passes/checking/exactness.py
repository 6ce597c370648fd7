"""How closely a pass promises to keep a program's results, and the comparison of two results.

In: what a pass declares: ``exact``, ``allclose(rtol=..., atol=...)`` or ``sqnr(db)``. Out: the
first place where a result breaks the promise, or None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite import dtypes
from fxlite.errors import ArgumentError

Array = np.ndarray[Any, Any]

KINDS = ("exact", "allclose", "sqnr")

#: Relative tolerance of ``allclose`` by dtype: some ten times what reordering a sum of a few
#: hundred terms changes.
DEFAULT_RTOL = {"f16": 4e-3, "bf16": 3e-2, "f32": 2e-5, "f64": 2e-12}
DEFAULT_DB = 30.0


@dataclass(frozen=True)
class Exactness:
    """What may change in the results of a program.

    - ``exact``: nothing; NaN stays NaN and the sign of zeros counts (the bits inside a NaN do not).
    - ``allclose``: rounding. Numbers differ by at most ``atol + rtol * (largest finite number
      expected)``; without ``rtol`` that of the dtype. Rounding makes no finite number of a NaN or
      an infinity and none of them of a finite number: so what is finite stays finite and close,
      what is not stays so (an infinity may become a NaN: ``inf * (2 - 1)`` and ``2 * inf - inf``).
    - ``sqnr``: quantization. Ten times the decimal logarithm of (power of the result) / (power of
      the error) is at least ``db``; what is finite stays finite; float dtypes may differ.

    Integers and bools are equal, except for ``sqnr``, where integers count as numbers."""

    kind: str
    rtol: float | None = None
    atol: float | None = None
    db: float | None = None

    def __str__(self) -> str:
        if self.kind == "sqnr":
            return f"sqnr({self.db:g} dB)"
        given = [
            f"{n}={v:g}" for n, v in (("rtol", self.rtol), ("atol", self.atol)) if v is not None
        ]
        return f"{self.kind}({', '.join(given)})" if given else self.kind

    def relative_tolerance(self, dtype: np.dtype[Any]) -> float | None:
        """The relative tolerance for results of a dtype; None where every bit counts."""
        if self.kind == "exact":
            return None
        if self.kind == "sqnr":
            return float(10 ** (-(self.db or 0.0) / 20))
        name = dtypes.dtype(dtype).name
        return self.rtol if self.rtol is not None else DEFAULT_RTOL.get(name)


exact = Exactness("exact")


def allclose(rtol: float | None = None, atol: float | None = None) -> Exactness:
    """Rounding may differ, see :class:`Exactness`; without ``rtol`` that of the dtype, see
    :data:`DEFAULT_RTOL`."""
    return Exactness("allclose", rtol, atol)


def sqnr(db: float = DEFAULT_DB) -> Exactness:
    """The result keeps a signal-to-noise ratio of ``db`` decibels, see :class:`Exactness`."""
    return Exactness("sqnr", db=db)


def as_exactness(value: Exactness | str) -> Exactness:
    """An Exactness itself, or the one that "exact", "allclose" or "sqnr" names. Raises
    ArgumentError."""
    if isinstance(value, Exactness):
        return value
    if value not in KINDS:
        raise ArgumentError(
            f"exactness must be one of {', '.join(KINDS)}, allclose(...) or sqnr(...), "
            f"not {value!r}"
        )
    return sqnr() if value == "sqnr" else Exactness(value)


@dataclass(frozen=True)
class Mismatch:
    """The first place where two results differ; ``text`` says it in a line."""

    text: str


def first_mismatch(expected: Any, actual: Any, promise: Exactness) -> Mismatch | None:
    """The first place where ``actual`` is not ``expected``; results may be tuples of arrays."""
    if isinstance(expected, (tuple, list)) or isinstance(actual, (tuple, list)):
        if not isinstance(expected, (tuple, list)) or not isinstance(actual, (tuple, list)):
            return Mismatch(f"expected {_kind(expected)}, got {_kind(actual)}")
        if len(expected) != len(actual):
            return Mismatch(f"expected {len(expected)} results, got {len(actual)}")
        for number, (e, a) in enumerate(zip(expected, actual, strict=True)):
            found = first_mismatch(e, a, promise)
            if found is not None:
                return Mismatch(f"result {number}: {found.text}")
        return None
    e, a = np.asarray(expected), np.asarray(actual)
    if e.shape != a.shape or not _dtypes_fit(e.dtype, a.dtype, promise):
        return Mismatch(f"expected {e.dtype}{list(e.shape)}, got {a.dtype}{list(a.shape)}")
    if promise.kind == "sqnr" and e.dtype.kind != "b":
        return _too_noisy(e, a, promise.db or 0.0)
    bad = _bad_places(e, a, promise)
    if bad is None or not bad.any():
        return None
    place = tuple(int(i) for i in np.argwhere(bad)[0])
    count = int(np.count_nonzero(bad))
    at = f" at {list(place)}" if place else ""
    return Mismatch(
        f"expected {e[place]!s}, got {a[place]!s}{at}; {count} of {bad.size} elements differ"
        f"{_largest_error(e, a)}"
    )


def _kind(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"{len(value)} results"
    array = np.asarray(value)
    return f"one result {array.dtype}{list(array.shape)}"


def _dtypes_fit(expected: Any, actual: Any, promise: Exactness) -> bool:
    if promise.kind != "sqnr":
        return bool(expected == actual)
    return all(d == expected or dtypes.dtype(d).is_float for d in (expected, actual))


def _bad_places(e: Array, a: Array, promise: Exactness) -> Array | None:
    """A mask of the elements that break the promise; None where there are none."""
    if e.dtype.kind in "biu":
        return None if np.array_equal(e, a) else np.asarray(e != a)
    if promise.kind == "exact":
        if e.tobytes() == a.tobytes():
            return None
        same = (e == a) & (np.signbit(e) == np.signbit(a)) | np.isnan(e) & np.isnan(a)
        return np.asarray(~same)
    x, y = e.astype(np.float64), a.astype(np.float64)
    finite = np.isfinite(x)
    if not finite.all():
        largest = np.abs(x, where=finite, out=np.zeros_like(x)).max(initial=0.0)
    else:
        largest = np.abs(x).max(initial=0.0)
    rtol = promise.relative_tolerance(e.dtype)
    with np.errstate(invalid="ignore"):
        near = np.abs(x - y) <= (promise.atol or 0.0) + (rtol or 0.0) * largest
    return np.asarray(np.where(finite, ~near, np.isfinite(y)))


def _largest_error(e: Array, a: Array) -> str:
    if e.dtype.kind in "b":
        return ""
    x, y = e.astype(np.float64), a.astype(np.float64)
    both = np.isfinite(x) & np.isfinite(y)
    if not both.any():
        return ""
    return f", the largest error is {np.abs(x - y)[both].max():.3g}"


def _too_noisy(e: Array, a: Array, db: float) -> Mismatch | None:
    x, y = e.astype(np.float64), a.astype(np.float64)
    finite = np.isfinite(x)
    if not np.isfinite(y[finite]).all():
        return Mismatch("a finite number became NaN or infinite")
    signal = float(np.square(x[finite]).sum())
    noise = float(np.square((x - y)[finite]).sum())
    if noise == 0 or (signal > 0 and 10 * np.log10(signal / noise) >= db):
        return None
    ratio = f"{10 * np.log10(signal / noise):.1f} dB" if signal else "-inf dB"
    return Mismatch(f"the signal-to-noise ratio is {ratio}, promised are {db:g} dB")
