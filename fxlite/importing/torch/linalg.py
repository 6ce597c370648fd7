"""ATen's linear algebra. What only tells whether it worked, and factors for gradients, are results
that are not there (None)."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.importing.torch.table import Call, aten, dtype_of_value, op, rank_of, same, same_sizes, shape_of
from fxlite.types import dtypes


def _turned(x: Any) -> Any:
    return op("conj")(x.mT) if dtype_of_value(x).is_complex else x.mT


def _filled(c: Call, *found: Any) -> Any:
    """The results of a call, as many as torch has."""
    if not isinstance(c.value, (tuple, list)):
        return found[0]
    return (*found, *[None] * (len(c.value) - len(found)))


@aten("linalg_solve", "linalg_solve_ex", "_linalg_solve_ex")
def _solve(c: Call, a: Any, b: Any, *, left: bool = True, check_errors: bool = False) -> Any:
    """The x of ``a @ x = b``, or of ``x @ a = b``; b may be a vector for each matrix."""
    if rank_of(b) == rank_of(a) - 1 and same_sizes(shape_of(b), shape_of(a)[:-1]):
        return _filled(c, np.linalg.solve(a, b[..., None])[..., 0])
    return _filled(c, np.linalg.solve(a, b) if left else np.linalg.solve(a.mT, b.mT).mT)


@aten("linalg_solve_triangular")
def _solve_triangular(c: Call, a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    a = op("triu" if upper else "tril")(a, 0)
    if unitriangular:
        size = shape_of(a)[-1]
        a = op("where")(np.eye(size, dtype=bool), 1, a)
    return np.linalg.solve(a, b) if left else np.linalg.solve(a.mT, b.mT).mT


@aten("triangular_solve")
def _triangular_solve(
    c: Call, b: Any, a: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    a, upper = (a.mT, not upper) if transpose else (a, upper)
    return _solve_triangular(c, a, b, upper=upper, unitriangular=unitriangular), a


@aten("linalg_cholesky", "linalg_cholesky_ex", "cholesky")
def _cholesky(c: Call, a: Any, upper: bool = False, *, check_errors: bool = False) -> Any:
    found = np.linalg.cholesky(_turned(a) if upper else a)
    return _filled(c, _turned(found) if upper else found)


@aten("cholesky_solve", "cholesky_inverse")
def _cholesky_solve(c: Call, *args: Any) -> Any:
    """The x of ``l @ l.mT @ x = b``; the inverse has no b."""
    first = args[0] if c.name == "cholesky_solve" else np.eye(shape_of(args[0])[-1], dtype=c.dtype.numpy)
    factor, upper = (args[1:] if c.name == "cholesky_solve" else args)[0], args[-1] is True
    return np.linalg.solve(_turned(factor) @ factor if upper else factor @ _turned(factor), first)


@aten("linalg_inv", "inverse", "linalg_inv_ex")
def _inverse(c: Call, a: Any, *, check_errors: bool = False) -> Any:
    return _filled(c, np.linalg.inv(a))


@aten("linalg_det", "det", "_linalg_det")
def _det(c: Call, a: Any) -> Any:
    return _filled(c, np.linalg.det(a))


@aten("linalg_slogdet", "slogdet", "_linalg_slogdet")
def _slogdet(c: Call, a: Any) -> Any:
    return _filled(c, *np.linalg.slogdet(a))


@aten("logdet")
def _logdet(c: Call, a: Any) -> Any:
    sign, log = np.linalg.slogdet(a)
    return op("where")(sign < 0, np.nan, log)


@aten("linalg_matrix_exp", "matrix_exp")
def _matrix_exp(c: Call, a: Any) -> Any:
    """Taylor's series of the matrix halved 12 times, which is squared as often, in double precision."""
    x = op("cast")(a, dtypes.complex128 if c.dtype.is_complex else dtypes.float64) * 2.0**-12
    one = np.eye(shape_of(a)[-1])
    found = one
    for order in range(18, 0, -1):
        found = one + (x @ found) * (1 / order)
    for _ in range(12):
        found = found @ found
    return op("cast")(found, c.dtype)


@aten("linalg_qr")
def _qr(c: Call, a: Any, mode: Any = "reduced") -> Any:
    return np.linalg.qr(a, mode) if mode != "r" else (None, np.linalg.qr(a, "r"))


@aten("linalg_eigh", "_linalg_eigh")
def _eigh(c: Call, a: Any, UPLO: Any = "L", compute_v: bool = True) -> Any:
    return tuple(np.linalg.eigh(a, UPLO)) if compute_v else (np.linalg.eigvalsh(a, UPLO), None)


same("linalg_eigvalsh", lambda a, UPLO="L": np.linalg.eigvalsh(a, UPLO))
same("linalg_svdvals", lambda a, driver=None: np.linalg.svdvals(a))


@aten("linalg_svd")
def _svd(c: Call, a: Any, full_matrices: bool = True, *, driver: str | None = None) -> Any:
    return tuple(np.linalg.svd(a, full_matrices))


@aten("_linalg_svd")
def _svd_or_values(
    c: Call, a: Any, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> Any:
    return tuple(np.linalg.svd(a, full_matrices)) if compute_uv else (None, np.linalg.svdvals(a), None)


@aten("linalg_pinv")
def _pinv(c: Call, a: Any, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Any:
    """Singular values count from a part of the largest one on. Of a Hermitian matrix the lower half is read."""
    if hermitian:
        a = op("tril")(a, 0) + _turned(op("tril")(a, -1))
    if atol is not None or not all(type(n) is int for n in shape_of(a)[-2:]):
        raise c.refuse("an absolute tolerance, or a matrix whose sizes may differ")
    part = rcond if rtol is None else rtol
    return np.linalg.pinv(a, max(shape_of(a)[-2:]) * float(np.finfo(c.dtype.numpy).eps) if part is None else part)
