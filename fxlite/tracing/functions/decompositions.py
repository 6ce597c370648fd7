"""``numpy.linalg``'s decompositions, and what follows from them, as the ops ``qr_rows``,
``eigh_rows`` and ``svd_rows``.

In: traced values (integers are computed as float64) and the arguments of NumPy's functions, over
any leading axes. Out: parts of the ops' rows. Signs that mathematics leaves open are the ops';
NumPy's are those that LAPACK happens to give.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fxlite.ops.op import lookup
from fxlite.tracing.functions.linear import alike, as_float, inv, norm, require_square
from fxlite.tracing.functions.rearranging import known_size
from fxlite.tracing.numpy_functions import matrix_transpose, value_type
from fxlite.types import shapes

_QR = type(np.linalg.qr(np.eye(1)))
_EIGH = type(np.linalg.eigh(np.eye(1)))
_SVD = type(np.linalg.svd(np.eye(1)))


def _real(x: Any, what: str) -> Any:
    kind = value_type(x)
    if kind.dtype.is_complex:
        raise ValueError(f"{what} is traced for real matrices, not {kind}")
    if kind.rank < 2:
        raise ValueError(f"{what} takes matrices, [..., m, n], not {kind}")
    return as_float(x)


def _columns(rows: Any, start: Any, stop: Any) -> Any:
    return lookup("slice")(rows, axis=-1, start=start, stop=stop)


def _first(rows: Any) -> Any:
    return lookup("select")(rows, axis=-1, index=0)


def _sizes(x: Any) -> tuple[Any, Any]:
    m, n = value_type(x).shape[-2:]
    return m, n


# -- decompositions --------------------------------------------------------------------------------
def qr(a: Any, mode: str = "reduced") -> Any:
    """np.linalg.qr."""
    if mode not in ("reduced", "complete", "r"):
        raise ValueError(f'mode must be "reduced", "complete" or "r", not {mode!r}')
    a = _real(a, "np.linalg.qr")
    m, n = _sizes(a)
    rows = lookup("qr_rows")(a, complete=mode == "complete")
    r = _columns(rows, m, shapes.normalize(m + n))
    return r if mode == "r" else _QR(matrix_transpose(_columns(rows, 0, m)), r)


def _symmetric(a: Any, UPLO: str, what: str) -> Any:
    if UPLO.upper() not in ("L", "U"):
        raise ValueError(f"UPLO must be 'L' or 'U', not {UPLO!r}")
    a = require_square(_real(a, what))
    return a if UPLO.upper() == "L" else matrix_transpose(a)


def eigh(a: Any, UPLO: str = "L") -> Any:
    """np.linalg.eigh."""
    a = _symmetric(a, UPLO, "np.linalg.eigh")
    rows = lookup("eigh_rows")(a)
    return _EIGH(_first(rows), matrix_transpose(_columns(rows, 1, shapes.normalize(_sizes(a)[1] + 1))))


def eigvalsh(a: Any, UPLO: str = "L") -> Any:
    """np.linalg.eigvalsh."""
    return _first(lookup("eigh_rows")(_symmetric(a, UPLO, "np.linalg.eigvalsh"), vectors=False))


def svdvals(x: Any, /) -> Any:
    """np.linalg.svdvals."""
    return _first(lookup("svd_rows")(_real(x, "a singular value"), vectors=False))


def _reduced_svd(a: Any) -> tuple[Any, Any, Any]:
    m, n = _sizes(a)
    rows = lookup("svd_rows")(a)
    end = shapes.normalize(m + 1)
    return matrix_transpose(_columns(rows, 1, end)), _first(rows), _columns(rows, end, shapes.normalize(end + n))


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """np.linalg.svd; the vectors that ``full_matrices`` adds are those of a QR decomposition of the
    others."""
    if not compute_uv:
        return svdvals(a)
    a = _real(a, "np.linalg.svd")
    left, values, right = _reduced_svd(a)
    m, n = _sizes(a)
    if full_matrices and not shapes.equal(m, n):
        rows, columns = known_size(a, -2, "np.linalg.svd"), known_size(a, -1, "np.linalg.svd")
        if rows > columns:
            left = _completed(left, columns, rows)
        else:
            right = matrix_transpose(_completed(matrix_transpose(right), rows, columns))
    return _SVD(left, values, right)


def _completed(x: Any, have: int, size: int) -> Any:
    """Orthonormal columns and more of them, as many as there are rows."""
    more = lookup("slice")(qr(x, "complete")[0], axis=-1, start=have, stop=size)
    return np.concatenate([x, more], axis=-1)


# -- what follows from them ------------------------------------------------------------------------
def _epsilon(x: Any) -> float:
    return float(np.finfo(value_type(x).dtype.numpy).eps)


def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    """np.linalg.pinv."""
    a = _real(a, "np.linalg.pinv")
    left, values, right = _reduced_svd(a)
    part = 1e-15 if rcond is None and rtol is None else rtol if rcond is None else rcond
    least = _largest(values) * (np.expand_dims(part, -1) if np.ndim(part) else part)
    inverse = np.where(values > least, 1 / np.where(values > least, values, 1), 0)
    scaled = matrix_transpose(right) * lookup("unsqueeze")(lookup("cast")(inverse, value_type(a).dtype), -2)
    return lookup("matmul")(scaled, matrix_transpose(left))


def _largest(values: Any) -> Any:
    return lookup("max")(values, axis=-1, keepdims=True)


def matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    """np.linalg.matrix_rank."""
    if value_type(A).rank < 2:
        return lookup("cast")(lookup("any")(lookup("ne")(A, 0)), "i64")
    values = abs(eigvalsh(A)) if hermitian else svdvals(A)
    if tol is None:
        size = max(known_size(A, axis, "np.linalg.matrix_rank") for axis in (-1, -2))
        tol = _largest(values) * (size * _epsilon(values) if rtol is None else rtol)
    return np.count_nonzero(values > tol, axis=-1)


def cond(x: Any, p: Any = None) -> Any:
    """np.linalg.cond."""
    if p in (None, 2, -2):
        values = svdvals(x)
        first, last = (lookup("select")(values, axis=-1, index=place) for place in (0, -1))
        found = last / first if p == -2 else first / last
    else:
        found = norm(x, p, (-2, -1)) * norm(inv(x), p, (-2, -1))
    has_nan = lookup("any")(np.isnan(x), axis=(-2, -1))
    return np.where(np.isnan(found) & ~has_nan, np.inf, found)


def lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    """np.linalg.lstsq; with more rows than columns the residuals are there for matrices of any
    rank, where NumPy has none if the rank is not full."""
    a, b = alike(_real(a, "np.linalg.lstsq"), b)
    if value_type(a).rank != 2:
        raise ValueError(f"np.linalg.lstsq takes one matrix, not {value_type(a)}")
    m, n = (known_size(a, axis, "np.linalg.lstsq") for axis in (0, 1))
    one = value_type(b).rank == 1
    b = lookup("unsqueeze")(b, -1) if one else b
    left, values, right = _reduced_svd(a)
    least = _largest(values) * (_epsilon(a) * max(m, n) if rcond is None else rcond if rcond >= 0 else _epsilon(a))
    kept = values > least
    inverse = lookup("cast")(np.where(kept, 1 / np.where(kept, values, 1), 0), value_type(a).dtype)
    parts = lookup("matmul")(matrix_transpose(left), b) * lookup("unsqueeze")(inverse, -1)
    x = lookup("matmul")(matrix_transpose(right), parts)
    rest = np.square(b - lookup("matmul")(a, x)).sum(axis=0)
    rest = rest if m > n else lookup("slice")(rest, axis=0, start=0, stop=0)
    rank = lookup("cast")(np.count_nonzero(kept), "i32")
    return (lookup("squeeze")(x, -1) if one else x), rest, rank, values


def polyfit(x: Any, y: Any, deg: Any, rcond: Any = None, full: bool = False, w: Any = None, cov: Any = False) -> Any:
    """np.polyfit of coefficients, by least squares."""
    if full or cov or not isinstance(deg, int):
        raise ValueError("np.polyfit is traced for a degree, without full= and cov=")
    x, y = alike(x, y)
    powers = np.stack([x**power for power in range(deg, -1, -1)], axis=-1)
    if w is not None:
        powers, y = powers * np.expand_dims(w, -1), y * (np.expand_dims(w, -1) if value_type(y).rank == 2 else w)
    scale = np.sqrt(np.square(powers).sum(axis=0))
    count = known_size(x, 0, "np.polyfit")
    found = lstsq(powers / scale, y, count * _epsilon(x) if rcond is None else rcond)[0]
    return found / (np.expand_dims(scale, -1) if value_type(y).rank == 2 else scale)


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.linalg.qr: qr,
    np.linalg.eigh: eigh,
    np.linalg.eigvalsh: eigvalsh,
    np.linalg.svd: svd,
    np.linalg.svdvals: svdvals,
    np.linalg.pinv: pinv,
    np.linalg.matrix_rank: matrix_rank,
    np.linalg.cond: cond,
    np.linalg.lstsq: lstsq,
    np.polyfit: polyfit,
}
