"""``numpy.linalg`` as the ops ``cholesky``, ``solve``, ``slogdet``, ``qr_rows``, ``eigh_rows`` and ``svd_rows``,
norms as reductions, and polynomials.

In: traced values (integers are converted to float64) and the arguments of NumPy's functions, over any leading axes.
Out: calls of ops. Signs that the definition of a decomposition leaves open are chosen by the ops; in NumPy they depend
on LAPACK. Complex matrices are reduced to real ones by :mod:`reflections`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxlite.base.state import is_traced
from fxlite.ops.op import broadcast_shapes, lookup, normalize_axes
from fxlite.tracing.functions import reflections
from fxlite.tracing.functions.rearranging import known_size
from fxlite.tracing.numpy_functions import by_name, is_complex, matrix_transpose, ravel, value_type
from fxlite.types import dtypes, shapes

_QR = type(np.linalg.qr(np.eye(1)))
_EIGH = type(np.linalg.eigh(np.eye(1)))
_SVD = type(np.linalg.svd(np.eye(1)))
_SLOGDET = type(np.linalg.slogdet(np.eye(1)))


def as_float(x: Any) -> Any:
    """A value, with integers and bools converted to float64."""
    return x if value_type(x).dtype.is_inexact else lookup("cast")(x, "f64")


def alike(*values: Any) -> list[Any]:
    """The values as traced ones of the same float dtype."""
    tracer = next(v.tracer for v in values if is_traced(v))
    made = [tracer.constant(v) for v in values]
    common = dtypes.result_type(*(value_type(as_float(v)).dtype for v in made))
    return [lookup("cast")(v, common) for v in made]


def require_square(x: Any) -> Any:
    """Square matrices, as floats. Raises ValueError for others."""
    kind = value_type(x)
    if kind.rank < 2 or not shapes.equal(kind.shape[-1], kind.shape[-2]):
        raise ValueError(f"the last two axes must be square, not those of {kind}")
    return as_float(x)


def cholesky(a: Any, /, *, upper: bool = False) -> Any:
    """np.linalg.cholesky."""
    a = require_square(a)
    if upper:
        return matrix_transpose(lookup("cholesky")(matrix_transpose(a)))
    return lookup("cholesky")(a)


def solve(a: Any, b: Any) -> Any:
    """np.linalg.solve; a ``b`` of rank 1 is one column."""
    a, b = alike(a, b)
    a = require_square(a)
    one = value_type(b).rank == 1
    b = lookup("unsqueeze")(b, -1) if one else b
    lead = broadcast_shapes(value_type(a).shape[:-2], value_type(b).shape[:-2])
    found = lookup("solve")(_spread(a, lead), _spread(b, lead))
    return lookup("squeeze")(found, -1) if one else found


def _spread(x: Any, lead: tuple[Any, ...]) -> Any:
    shape = (*lead, *value_type(x).shape[-2:])
    return x if shape == value_type(x).shape else lookup("expand")(x, shape)


def inv(a: Any) -> Any:
    """np.linalg.inv: solves for the columns of the identity matrix."""
    a = require_square(a)
    size = value_type(a).shape[-1]
    numbers = lookup("arange")(0, shapes.for_user(size), 1, "i64")
    eye = lookup("cast")(lookup("eq")(lookup("unsqueeze")(numbers, 1), numbers), value_type(a).dtype)
    return solve(a, eye)


def slogdet(a: Any) -> Any:
    """np.linalg.slogdet."""
    both = lookup("slogdet")(require_square(a))
    sign, log = (lookup("select")(both, axis=-1, index=place) for place in (0, 1))
    return _SLOGDET(sign, log.real)


def det(a: Any) -> Any:
    """np.linalg.det."""
    sign, log = slogdet(a)
    return sign * np.exp(log)


# -- norms -----------------------------------------------------------------------------------------
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """np.linalg.vector_norm."""
    x = as_float(x)
    size = np.abs(x)
    if ord in (None, 2):
        squares = np.square(x.real)
        if value_type(x).dtype.is_complex:
            squares = squares + np.square(x.imag)
        return np.sqrt(np.sum(squares, axis=axis, keepdims=keepdims))
    if ord == 1:
        return np.sum(size, axis=axis, keepdims=keepdims)
    if ord == math.inf:
        return _largest_size(size, axis, keepdims)
    if ord == -math.inf:
        return np.min(size, axis=axis, keepdims=keepdims)
    if ord == 0:
        count = np.sum(np.not_equal(x, 0), axis=axis, keepdims=keepdims)
        return lookup("cast")(count, value_type(size).dtype)
    if isinstance(ord, str):
        raise ValueError(f"vectors have no norm {ord!r}")
    return np.sum(size**ord, axis=axis, keepdims=keepdims) ** (1.0 / ord)


def _largest_size(size: Any, axis: Any, keepdims: bool) -> Any:
    """The largest of non-negative numbers; 0 if there are none."""
    kind = value_type(size)
    none = any(kind.shape[a] == 0 for a in normalize_axes(axis, kind.rank))
    return (np.sum if none else np.max)(size, axis=axis, keepdims=keepdims)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """np.linalg.matrix_norm."""
    return norm(x, ord, (-2, -1), keepdims)


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """np.linalg.norm."""
    kind = value_type(x)
    if axis is None and (ord is None or kind.rank > 2):
        if ord is not None:
            raise ValueError(f"ord={ord!r} needs one or two axes, and the array has {kind.rank}")
        return vector_norm(x, keepdims=keepdims)
    if axis is None:
        axis = (0,) if kind.rank == 1 else (0, 1)
    axes = (axis,) if isinstance(axis, (int, np.integer)) else tuple(axis)
    if len(axes) == 1:
        return vector_norm(x, axis=axes[0], keepdims=keepdims, ord=ord)
    if len(axes) != 2:
        raise ValueError(f"a norm is taken along one or two axes, not {len(axes)}")
    row, column = (a % kind.rank for a in axes)
    if row == column:
        raise ValueError("the two axes are the same")
    normalize_axes(axes, kind.rank)
    if ord in (None, "fro", "f"):
        return vector_norm(x, axis=axes, keepdims=keepdims)
    if ord in (2, -2, "nuc"):
        return _of_singular_values(x, ord, row, column, keepdims)
    if ord not in (1, -1, math.inf, -math.inf):
        raise ValueError(f"norms of matrices have ord fro, nuc, 1, -1, 2, -2, inf, -inf, not {ord!r}")
    summed, kept = (row, column) if abs(ord) == 1 else (column, row)
    sums = np.sum(np.abs(as_float(x)), axis=summed, keepdims=True)
    found = _largest_size(sums, kept, True) if ord > 0 else np.min(sums, axis=kept, keepdims=True)
    if keepdims:
        return found
    for a in sorted((row, column), reverse=True):
        found = lookup("squeeze")(found, a)
    return found


def _of_singular_values(x: Any, ord: Any, row: int, column: int, keepdims: bool) -> Any:
    values = svdvals(np.moveaxis(x, (row, column), (-2, -1)))
    found = lookup({2: "max", -2: "min", "nuc": "sum"}[ord])(values, axis=-1)
    return np.expand_dims(found, (row, column)) if keepdims else found


# -- tensors ---------------------------------------------------------------------------------------
def tensorinv(a: Any, ind: int = 2) -> Any:
    """np.linalg.tensorinv."""
    shape = value_type(a).shape
    if ind <= 0:
        raise ValueError("ind must be 1 or more")
    rows = shapes.product(shape[ind:])
    square = lookup("reshape")(a, (shapes.product(shape[:ind]), rows))
    return lookup("reshape")(inv(square), (*shape[ind:], *shape[:ind]))


def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    """np.linalg.tensorsolve."""
    a, b = alike(a, b)
    rank = value_type(a).rank
    if axes is not None:
        order = [k for k in range(rank) if k not in axes]
        a = np.transpose(a, (*order, *axes))
    shape = value_type(a).shape[value_type(b).rank :]
    columns = shapes.product(shape)
    found = solve(lookup("reshape")(a, (columns, columns)), ravel(b))
    return lookup("reshape")(found, tuple(shape))


def _matrices(x: Any, what: str) -> Any:
    kind = value_type(x)
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
    if mode not in ("reduced", "complete", "r", "raw"):
        raise ValueError(f'mode must be "reduced", "complete", "r" or "raw", not {mode!r}')
    a = _matrices(a, "np.linalg.qr")
    if mode == "raw":
        compact, scales = reflections.triangular(a)
        return matrix_transpose(compact), scales
    m, n = _sizes(a)
    if is_complex(a):
        q, r = reflections.qr(a, mode)
        return r if mode == "r" else _QR(q, r)
    rows = lookup("qr_rows")(a, complete=mode == "complete")
    r = _columns(rows, m, shapes.normalize(m + n))
    return r if mode == "r" else _QR(matrix_transpose(_columns(rows, 0, m)), r)


def _symmetric(a: Any, UPLO: str, what: str) -> Any:
    if UPLO.upper() not in ("L", "U"):
        raise ValueError(f"UPLO must be 'L' or 'U', not {UPLO!r}")
    a = require_square(_matrices(a, what))
    return a if UPLO.upper() == "L" else reflections.adjoint(a)


def eigh(a: Any, UPLO: str = "L") -> Any:
    """np.linalg.eigh."""
    a = _symmetric(a, UPLO, "np.linalg.eigh")
    turn, a = reflections.tridiagonal(a) if is_complex(a) else (None, a)
    rows = lookup("eigh_rows")(a)
    values = _first(rows)
    vectors = matrix_transpose(_columns(rows, 1, shapes.normalize(_sizes(a)[1] + 1)))
    return _EIGH(values, vectors if turn is None else np.matmul(turn, vectors))


def eigvalsh(a: Any, UPLO: str = "L") -> Any:
    """np.linalg.eigvalsh."""
    a = _symmetric(a, UPLO, "np.linalg.eigvalsh")
    return _first(lookup("eigh_rows")(reflections.tridiagonal(a)[1] if is_complex(a) else a, vectors=False))


def svdvals(x: Any, /) -> Any:
    """np.linalg.svdvals."""
    x = _matrices(x, "a singular value")
    return _first(lookup("svd_rows")(_bidiagonal(x)[1] if is_complex(x) else x, vectors=False))


def _bidiagonal(a: Any) -> tuple[Any, Any, Any]:
    """A complex matrix as ``left @ real @ right``, where the real matrix is square."""
    m, n = _sizes(a)
    q, square = reflections.qr(a, "reduced")
    if shapes.equal(shapes.minimum(m, n), n):
        left, real, right = reflections.bidiagonal(square)
        return np.matmul(q, left), real, reflections.adjoint(right)
    other, square = reflections.qr(reflections.adjoint(square), "reduced")
    left, real, right = reflections.bidiagonal(reflections.adjoint(square))
    return np.matmul(q, left), real, reflections.adjoint(np.matmul(other, right))


def _reduced_svd(a: Any) -> tuple[Any, Any, Any]:
    if is_complex(a):
        first, real, last = _bidiagonal(a)
        left, values, right = _reduced_svd(real)
        return np.matmul(first, left), values, np.matmul(right, last)
    m, n = _sizes(a)
    rows = lookup("svd_rows")(a)
    end = shapes.normalize(m + 1)
    return matrix_transpose(_columns(rows, 1, end)), _first(rows), _columns(rows, end, shapes.normalize(end + n))


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """np.linalg.svd. The vectors that ``full_matrices`` adds come from a QR decomposition of the others."""
    if not compute_uv:
        return svdvals(a)
    a = _matrices(a, "np.linalg.svd")
    left, values, right = _reduced_svd(a)
    m, n = _sizes(a)
    if full_matrices and not shapes.equal(m, n):
        rows, columns = known_size(a, -2, "np.linalg.svd"), known_size(a, -1, "np.linalg.svd")
        if rows > columns:
            left = _completed(left, columns, rows)
        else:
            right = reflections.adjoint(_completed(reflections.adjoint(right), rows, columns))
    return _SVD(left, values, right)


def _completed(x: Any, have: int, size: int) -> Any:
    """Orthonormal columns, extended to as many as there are rows."""
    more = lookup("slice")(qr(x, "complete")[0], axis=-1, start=have, stop=size)
    return np.concatenate([x, more], axis=-1)


# -- functions based on decompositions -------------------------------------------------------------
def epsilon(x: Any) -> float:
    """The distance from 1 to the next number of the dtype."""
    return float(np.finfo(value_type(x).dtype.numpy).eps)


def _for_each_matrix(value: Any) -> Any:
    """Numbers for stacked matrices, to be used beside their singular values."""
    return np.expand_dims(value if is_traced(value) else np.asarray(value), -1) if np.ndim(value) else value


def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    """np.linalg.pinv."""
    a = _matrices(a, "np.linalg.pinv")
    left, values, right = _reduced_svd(a)
    if rcond is not None and rtol is not None:
        raise ValueError("`rtol` and `rcond` can't be both set.")
    part = 1e-15 if rcond is None and rtol is None else rtol if rcond is None else rcond
    large = values > _largest_size(values, -1, True) * _for_each_matrix(part)
    if not shapes.shapes_equal(large.type.shape, values.type.shape):
        raise ValueError(
            f"the cutoffs, of shape {np.shape(part)}, must be one number, or one for each of the matrices, "
            f"which have the shape {np.shape(a)}"
        )
    inverse = np.where(large, 1 / np.where(large, values, 1), 0)
    scaled = reflections.adjoint(right) * lookup("unsqueeze")(lookup("cast")(inverse, value_type(values).dtype), -2)
    return lookup("matmul")(scaled, reflections.adjoint(left))


def matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    """np.linalg.matrix_rank."""
    if tol is not None and rtol is not None:
        raise ValueError("`tol` and `rtol` can't be both set.")
    if value_type(A).rank < 2:
        return A.tracer.python_number(lookup("cast")(lookup("any")(lookup("ne")(A, 0)), "i64"))
    values = abs(eigvalsh(A)) if hermitian else svdvals(A)
    if tol is None:
        size = max(known_size(A, axis, "np.linalg.matrix_rank") for axis in (-1, -2))
        part = size * epsilon(values) if rtol is None else _for_each_matrix(rtol)
        return np.count_nonzero(values > _largest_size(values, -1, True) * part, axis=-1)
    return np.count_nonzero(values > _for_each_matrix(tol), axis=-1)


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
    """np.linalg.lstsq. With more rows than columns, there are residuals for matrices of any rank; NumPy has none if the
    rank is not full."""
    a, b = alike(_matrices(a, "np.linalg.lstsq"), b)
    if value_type(a).rank != 2:
        raise ValueError(f"np.linalg.lstsq takes one matrix, not {value_type(a)}")
    m, n = (known_size(a, axis, "np.linalg.lstsq") for axis in (0, 1))
    one = value_type(b).rank == 1
    b = lookup("unsqueeze")(b, -1) if one else b
    left, values, right = _reduced_svd(a)
    part = epsilon(a) * max(m, n) if rcond is None else rcond
    least = _largest_size(values, -1, True) * (part if is_traced(part) or part >= 0 else epsilon(a))
    kept = values > least
    inverse = lookup("cast")(np.where(kept, 1 / np.where(kept, values, 1), 0), value_type(values).dtype)
    parts = lookup("matmul")(reflections.adjoint(left), b) * lookup("unsqueeze")(inverse, -1)
    x = lookup("matmul")(reflections.adjoint(right), parts)
    rest = b - lookup("matmul")(a, x)
    rest = np.square(abs(rest) if is_complex(rest) else rest).sum(axis=0)
    rest = rest if m > n else lookup("slice")(rest, axis=0, start=0, stop=0)
    rank = lookup("cast")(np.count_nonzero(kept), "i32")
    return (lookup("squeeze")(x, -1) if one else x), rest, rank, values


# -- polynomials -----------------------------------------------------------------------------------
def polymul(a1: Any, a2: Any) -> Any:
    """np.polymul of coefficients."""
    return np.convolve(a1, a2)


def polyint(p: Any, m: int = 1, k: Any = None) -> Any:
    """np.polyint of coefficients."""
    constants = [0.0] * m if k is None else list(np.ravel(k))
    constants = constants * m if len(constants) == 1 else constants
    if m < 0 or len(constants) < m:
        raise ValueError(f"m is 0 or more, and k has as many constants, not {m} and {constants}")
    for constant in constants[:m]:
        size = known_size(p, 0, "np.polyint")
        p = np.concatenate([p / np.arange(size, 0, -1), np.asarray([constant], np.float64)])
    return p


def polyfit(x: Any, y: Any, deg: Any, rcond: Any = None, full: bool = False, w: Any = None, cov: Any = False) -> Any:
    """np.polyfit of coefficients, by least squares."""
    if full or cov or not isinstance(deg, (int, np.integer)):
        raise ValueError("np.polyfit is traced for a degree, without full= and cov=")
    x, y = alike(x, y)
    powers = np.stack([x**power for power in range(deg, -1, -1)], axis=-1)
    if w is not None:
        powers, y = powers * np.expand_dims(w, -1), y * (np.expand_dims(w, -1) if value_type(y).rank == 2 else w)
    scale = np.sqrt(np.square(powers).sum(axis=0))
    count = known_size(x, 0, "np.polyfit")
    found = lstsq(powers / scale, y, count * epsilon(x) if rcond is None else rcond)[0]
    return found / (np.expand_dims(scale, -1) if value_type(y).rank == 2 else scale)


FUNCTIONS = by_name(
    np.linalg, cholesky, solve, inv, slogdet, det, norm, matrix_norm, vector_norm, tensorinv, tensorsolve
) | by_name(np.linalg, qr, eigh, eigvalsh, svd, svdvals, pinv, matrix_rank, cond, lstsq)
FUNCTIONS |= by_name(np, polymul, polyint, polyfit)
