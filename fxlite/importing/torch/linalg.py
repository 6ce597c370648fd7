"""ATen's linear algebra. Results that only report success, and factors for gradients, are None."""

from __future__ import annotations

from typing import Any

import numpy as np

import fxlite as fx
from fxlite.importing.torch.table import (
    Call,
    aten,
    cast,
    dtype_of_value,
    identity,
    op,
    rank_of,
    same,
    same_sizes,
    shape_of,
)
from fxlite.tracing.functions import reflections
from fxlite.types import dtypes, shapes
from fxlite.types.dtypes import DType


def _turned(x: Any) -> Any:
    return op("conj")(x.mT) if dtype_of_value(x).is_complex else x.mT


def _filled(c: Call, *found: Any) -> Any:
    """The results of a call, filled up to torch's number of results: with zeros for the last one if it reports success,
    since without success the program fails, and else with None."""
    if not isinstance(c.value, (tuple, list)):
        return found[0]
    rest: list[Any] = [None] * (len(c.value) - len(found))
    if rest and c.node.target._schema.returns[-1].name == "info":
        rest[-1] = op("full")(shape_of(found[0])[: c.value[-1].dim()], 0, dtypes.int32)
    return (*found, *rest)


def _places(size: Any) -> Any:
    return op("arange")(0, size, 1, dtypes.int64)


def _least(a: Any) -> Any:
    """The smaller size of a matrix."""
    height, width = map(shapes.normalize, shape_of(a)[-2:])
    return shapes.for_user(shapes.minimum(height, width))


@aten("linalg_solve", "linalg_solve_ex", "_linalg_solve_ex")
def _solve(c: Call, a: Any, b: Any, *, left: bool = True, check_errors: bool = False) -> Any:
    """The x with ``a @ x = b``, or with ``x @ a = b``; b may be a vector for each matrix."""
    if rank_of(b) == rank_of(a) - 1 and same_sizes(shape_of(b), shape_of(a)[:-1]):
        return _filled(c, np.linalg.solve(a, b[..., None])[..., 0])
    return _filled(c, np.linalg.solve(a, b) if left else np.linalg.solve(a.mT, b.mT).mT)


@aten("linalg_solve_triangular")
def _solve_triangular(c: Call, a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    a = op("triu" if upper else "tril")(a, 0)
    if unitriangular:
        a = op("where")(identity(shape_of(a)[-2:], dtypes.bool_), 1, a)
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
    """The x with ``l @ l.mT @ x = b``; only one triangle of the factor is read. For the inverse there is no b."""
    first = args[0] if c.name == "cholesky_solve" else identity(shape_of(args[0])[-2:], c.dtype)
    factor, upper = (args[1:] if c.name == "cholesky_solve" else args)[0], args[-1] is True
    factor = op("triu" if upper else "tril")(factor, 0)
    return np.linalg.solve(_turned(factor) @ factor if upper else factor @ _turned(factor), first)


@aten("linalg_inv", "inverse", "linalg_inv_ex")
def _inverse(c: Call, a: Any, *, check_errors: bool = False) -> Any:
    return _filled(c, np.linalg.inv(a))


same("linalg_tensorinv", lambda a, ind=2: np.linalg.tensorinv(a, ind))


@aten("linalg_det", "det", "_linalg_det")
def _det(c: Call, a: Any) -> Any:
    return _filled(c, np.linalg.det(a))


@aten("linalg_slogdet", "slogdet", "_linalg_slogdet")
def _slogdet(c: Call, a: Any) -> Any:
    return _filled(c, *np.linalg.slogdet(a))


@aten("logdet")
def _logdet(c: Call, a: Any) -> Any:
    sign, log = np.linalg.slogdet(a)
    return op("where")(sign < 0, np.nan, log) if not c.dtype.is_complex else op("log")(sign) + log


# -- factors with pivoting -------------------------------------------------------------------------
def _swapped(values: Any, one: Any, other: Any, axis: int) -> Any:
    """The values with rows ``one`` and ``other`` of each matrix exchanged; for vectors, elements."""
    rows = _places(shape_of(values)[axis])
    places = op("where")(rows == one, other[..., None], op("where")(rows == other[..., None], one, rows))
    if axis == -1:
        return np.take_along_axis(values, places, -1)
    return np.take_along_axis(values, op("expand")(places[..., None], shape_of(values)), -2)


def _size(x: Any) -> Any:
    """The size by which LAPACK chooses pivots."""
    return op("abs")(x) if not dtype_of_value(x).is_complex else op("abs")(x.real) + op("abs")(x.imag)


def _factors(a: Any) -> tuple[Any, Any]:
    """Both triangular factors in one matrix, and the pivot row of each step, counted from 1."""
    *outer, height, width = shape_of(a)
    rows, columns, steps = _places(height), _places(width), _least(a)

    def step(k: Any, state: Any) -> Any:
        a, taken = state
        pivot = op("argmax")(op("where")(rows >= k, _size(op("take")(a, k, -1)), -1), -1)
        a = _swapped(a, k, pivot, -2)
        row, column = op("take")(a, k, -2), op("take")(a, k, -1)
        own = op("take")(row, k, -1)[..., None]
        factor = op("where")(op("logical_and")(rows > k, own != 0), column / op("where")(own == 0, 1, own), 0)
        rest = a - factor[..., None] * op("where")(columns > k, row, 0)[..., None, :]
        a = op("where")(op("logical_and")((rows > k)[:, None], columns == k), factor[..., None], rest)
        return a, op("where")(_places(steps) == k, cast(pivot + 1, dtypes.int32)[..., None], taken)

    found = (cast(a, dtype_of_value(a)), op("full")((*outer, steps), 0, dtypes.int32))
    both, pivots = fx.fori_loop(0, steps, step, found)
    return both, pivots


def _order(pivots: Any, height: Any) -> Any:
    """For each row after all steps, the original row of the matrix."""
    rows = op("expand")(_places(height), (*shape_of(pivots)[:-1], height))

    def step(k: Any, rows: Any) -> Any:
        return _swapped(rows, k, cast(op("take")(pivots, k, -1), dtypes.int64) - 1, -1)

    return fx.fori_loop(0, shape_of(pivots)[-1], step, rows)


def _permutation(both: Any, pivots: Any, dtype: DType) -> Any:
    """The matrix P with ``a = P @ lower @ upper``."""
    height = shape_of(both)[-2]
    return cast(op("eq")(_places(height)[:, None], _order(pivots, height)[..., None, :]), dtype)


def _triangles(both: Any) -> tuple[Any, Any]:
    height, least = shape_of(both)[-2], _least(both)
    lower = op("tril")(both[..., :least], -1) + identity((height, least), dtype_of_value(both))
    return lower, op("triu")(both[..., :least, :], 0)


def _pivoting(c: Call, a: Any, pivot: bool) -> Any:
    """A matrix whose factors are to be computed."""
    if not pivot:
        raise c.refuse("factors without pivots, which torch does not compute on a CPU either")
    return a


@aten("_lu_with_info")
def _lu_with_info(c: Call, a: Any, pivot: bool = True, check_errors: bool = True) -> Any:
    return _lu_factor(c, a, pivot=pivot)


@aten("linalg_lu_factor", "linalg_lu_factor_ex")
def _lu_factor(c: Call, a: Any, *, pivot: bool = True, check_errors: bool = False) -> Any:
    """The last result, if there is one, is the number of the first step (from 1) whose pivot is 0; 0 if none is."""
    both, pivots = _factors(_pivoting(c, a, pivot))
    if not isinstance(c.value, (tuple, list)) or len(c.value) == 2:
        return both, pivots
    is_zero = op("eq")(np.diagonal(both, axis1=-2, axis2=-1), 0)
    first = op("where")(op("any")(is_zero, -1), op("argmax")(is_zero, -1) + 1, 0)
    return both, pivots, cast(first, dtypes.int32)


@aten("linalg_lu")
def _lu(c: Call, a: Any, *, pivot: bool = True) -> Any:
    return _lu_unpack(c, *_factors(_pivoting(c, a, pivot)))


@aten("lu_unpack")
def _lu_unpack(c: Call, both: Any, pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    places = _permutation(both, pivots, c.dtype) if unpack_pivots else None
    return places, *(_triangles(both) if unpack_data else (None, None))


@aten("linalg_lu_solve")
def _lu_solve(c: Call, both: Any, pivots: Any, b: Any, *, left: bool = True, adjoint: bool = False) -> Any:
    """The x with ``a @ x = b``, from the factors of ``a``."""
    lower, upper = _triangles(both)
    whole = _permutation(both, pivots, c.dtype) @ lower @ upper
    whole = _turned(whole) if adjoint else whole
    return np.linalg.solve(whole, b) if left else np.linalg.solve(whole.mT, b.mT).mT


@aten("linalg_matrix_exp", "matrix_exp")
def _matrix_exp(c: Call, a: Any) -> Any:
    """The Taylor series of the matrix divided by 2**12, squared 12 times, in double precision."""
    x = op("cast")(a, dtypes.complex128 if c.dtype.is_complex else dtypes.float64) * 2.0**-12
    found = one = identity(shape_of(a)[-2:], dtypes.float64)
    for order in range(18, 0, -1):
        found = one + (x @ found) * (1 / order)
    for _ in range(12):
        found = found @ found
    return op("cast")(found, c.dtype)


# -- reflections -----------------------------------------------------------------------------------
def _reflected(c: Call, a: Any, scales: Any, x: Any, transpose: bool = False) -> Any:
    """``Q @ x``, or ``Q^H @ x``, where Q is a product of reflections whose vectors are below the diagonal of ``a``."""
    if same_sizes((0,), shape_of(scales)[-1:]):
        return x
    return reflections.reflected(c.run.importer.as_proxy(a), c.run.importer.as_proxy(scales), x, transpose)


@aten("geqrf")
def _geqrf(c: Call, a: Any) -> Any:
    return reflections.triangular(c.run.importer.as_proxy(a))


@aten("linalg_householder_product", "orgqr")
def _householder_product(c: Call, a: Any, scales: Any) -> Any:
    """The first columns of the product."""
    unit = identity(shape_of(a)[-2:], dtype_of_value(a))
    return _reflected(c, a, scales, op("expand")(unit, shape_of(a)))


@aten("ormqr")
def _ormqr(c: Call, a: Any, scales: Any, x: Any, left: bool = True, transpose: bool = False) -> Any:
    if left:
        return _reflected(c, a, scales, x, transpose)
    return _turned(_reflected(c, a, scales, _turned(x), not transpose))


@aten("linalg_qr")
def _qr(c: Call, a: Any, mode: Any = "reduced") -> Any:
    return np.linalg.qr(a, mode) if mode != "r" else (None, np.linalg.qr(a, "r"))


@aten("linalg_eigh", "_linalg_eigh")
def _eigh(c: Call, a: Any, UPLO: Any = "L", compute_v: bool = True) -> Any:
    return tuple(np.linalg.eigh(a, UPLO)) if compute_v else (np.linalg.eigvalsh(a, UPLO), None)


same("linalg_eigvalsh", lambda a, UPLO="L": np.linalg.eigvalsh(a, UPLO))
same("linalg_svdvals", lambda a, driver=None: np.linalg.svdvals(a))


@aten("linalg_eig", "linalg_eigvals", "_linalg_eigvals")
def _eig(c: Call, a: Any) -> Any:
    raise c.refuse("eigenvalues of a general matrix; those of a symmetric or Hermitian one are torch.linalg.eigh")


@aten("linalg_ldl_factor", "linalg_ldl_factor_ex", "linalg_ldl_solve")
def _ldl(c: Call, *args: Any, **named: Any) -> Any:
    raise c.refuse("factors of a symmetric matrix; torch.linalg.lu_factor and lu_solve are there for any matrix")


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
    """Singular values below a fraction of the largest one are ignored. Only the lower triangle of a Hermitian matrix is
    read."""
    if hermitian:
        a = op("tril")(a, 0) + _turned(op("tril")(a, -1))
    if atol is not None or not all(type(n) is int for n in shape_of(a)[-2:]):
        raise c.refuse("an absolute tolerance, or a matrix whose sizes may differ")
    part = rcond if rtol is None else rtol
    return np.linalg.pinv(a, max(shape_of(a)[-2:]) * float(np.finfo(c.dtype.numpy).eps) if part is None else part)
