"""Linear algebra over any leading axes: ``cholesky``, ``solve``, ``slogdet``; QR decomposition, eigenvalues of
symmetric matrices, and singular values.

In: matrices of real or complex numbers, with 32 or 64 bits for each part (half types are computed in
float32). Out: factors, solutions, determinants. C has routines
(``codegen/c/tiles/numeric/factor.h``), which report a matrix without factors as NumPy does, with a
LinAlgError. Back ends without them unroll the loop over columns, up to :data:`MOST_COLUMNS`, and give NaN
or infinities for such a matrix.

Orthogonal factors are float32 or float64. They are in one array, each of whose rows has all parts of one element
(a singular value and its two vectors); the functions of ``numpy.linalg`` take it apart
(:mod:`fxlite.tracing.functions.linear`). Where the definition leaves signs open, references and routines
choose the same ones. C and CUDA have routines (``codegen/c/tiles/numeric/orthogonal.h``), in CUDA with one thread for
each matrix; back ends that only have loops cannot compute these ops. A matrix with NaN has factors of NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxlite.base.errors import DTypeError, ShapeError, TraceError
from fxlite.ops.composite import composite, created
from fxlite.ops.op import Op, Tensor, lookup, ops, require_float
from fxlite.ops.samples import Bad, S
from fxlite.types import dtypes, shapes
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType

Array = np.ndarray[Any, Any]
#: The most columns of a matrix for which back ends without routines unroll the computation.
MOST_COLUMNS = 64


def _scattered(seed: int, *shape: int) -> Any:
    """Numbers from -2 to 2 without a pattern, for samples. (Importing np.random takes longer than
    all of these samples.)"""
    places = np.arange(1, math.prod(shape) + 1, dtype=np.float64)
    return 2 * np.modf(1e4 * np.sin(places + 1e3 * seed))[0].reshape(shape)


def _drawn(shape: tuple[int, ...], dtype: str) -> Any:
    made = _scattered(sum(shape), *shape)
    return made + 1j * _scattered(-sum(shape), *shape) if dtypes.dtype(dtype).is_complex else made


def _definite(*shape: int, dtype: str = "f64") -> np.ndarray[Any, Any]:
    """Symmetric (or Hermitian) positive definite matrices."""
    made = _drawn(shape, dtype)
    made = made @ np.swapaxes(made.conj(), -1, -2) + shape[-1] * np.eye(shape[-1])
    return np.asarray(made.astype(dtypes.dtype(dtype).numpy))


def _regular(*shape: int, dtype: str = "f64") -> np.ndarray[Any, Any]:
    """Well-conditioned matrices whose rows must be exchanged during elimination."""
    made = _drawn(shape, dtype) + 3 * np.roll(np.eye(shape[-2], shape[-1]), 1, axis=0)
    return np.asarray(made.astype(dtypes.dtype(dtype).numpy))


def require_square(x: TensorType, name: str, complex_too: bool = False) -> None:
    """Raise an error unless ``x`` holds square matrices of floats or, if ``complex_too``, of complex numbers."""
    if not (complex_too and x.dtype.is_complex):
        require_float(x, name)
    if x.rank < 2 or not shapes.equal(x.shape[-1], x.shape[-2]):
        raise ShapeError(f"{name} must hold square matrices, [..., n, n], not {x}")


def _columns(x: Any, what: str) -> int:
    size = x.shape[-1]
    if type(size) is not int or size > MOST_COLUMNS:
        raise TraceError(
            f"{what} of {size} columns: without a routine for it a matrix may have up to "
            f"{MOST_COLUMNS}, a known number of them"
        )
    return size


def _column(x: Any, number: int) -> Any:
    return ops.slice(x, axis=-1, start=number, stop=number + 1)


def _row(x: Any, number: int) -> Any:
    return ops.slice(x, axis=-2, start=number, stop=number + 1)


def _numbers(x: Any, size: int) -> Any:
    """The row numbers, as a column."""
    return ops.unsqueeze(created(x, ops.arange, 0, size, 1, "i64"), 1)


# -- symmetric matrices ----------------------------------------------------------------------------
def _infer_cholesky(x: TensorType) -> TensorType:
    require_square(x, "x", complex_too=True)
    return x


def _cholesky(x: Any) -> Any:
    """The factor, column by column; each column times its transpose is subtracted from the remaining part."""
    size = _columns(x, "a Cholesky factor")
    found = []
    if not size:
        return x
    for number in range(size):
        column = _column(x, number)
        scaled = column / ops.sqrt(ops.real(_row(column, number)))
        column = ops.where(_numbers(x, size) >= number, scaled, 0.0)
        found.append(column)
        if number + 1 < size:
            x = x - ops.matmul(column, ops.conj(ops.permute(column, _exchanged(column.ndim))))
    return ops.concat(tuple(found), axis=-1)


def _exchanged(rank: int) -> tuple[int, ...]:
    return (*range(rank - 2), rank - 1, rank - 2)


@composite(
    infer=_infer_cholesky,
    expansion=_cholesky,
    complex_too=True,
    stands_alone=True,
    needs_whole={"x": (-2, -1)},
    numpy="np.linalg.cholesky x",
    samples=[
        S(_definite(5, 5)),
        S(_definite(2, 3, 3, dtype="f32")),
        S(_definite(1, 1)),
        S(_definite(2, 2, 7, 7, dtype="f32")),
        S(_definite(4, 4, dtype="f16")),
        S(_definite(3, 3, dtype="bf16")),
        S(_definite(5, 5, dtype="c128")),
        S(_definite(2, 3, 3, dtype="c64")),
        "f32[0,0]; f64[0,3,3]",
    ],
    bad=[Bad("f32[3,4]", match="square"), Bad("f32[3]", match="square"), Bad("i32[3,3]", match="must be a float")],
)
def cholesky(x: Tensor) -> Tensor:
    """The lower triangular L with ``x = L @ L.T`` (for complex numbers ``L @ L.T.conj()``), for symmetric (or
    Hermitian) positive definite matrices [..., n, n], of which only the lower triangle is read. Raises
    LinAlgError for other matrices.

    Golub and Van Loan, Matrix Computations, 4.2."""
    return np.linalg.cholesky(x)


@cholesky.cost
def _(x: TensorType) -> Dim:
    return shapes.normalize(shapes.floordiv(x.size * x.shape[-1], 3))


# -- systems of equations --------------------------------------------------------------------------
def _infer_solve(x: TensorType, b: TensorType) -> TensorType:
    require_square(x, "x", complex_too=True)
    if b.dtype is not x.dtype:
        raise DTypeError(f"x and b must have one dtype, not {x.dtype} and {b.dtype}")
    if x.rank != b.rank or not shapes.shapes_equal(x.shape[:-1], b.shape[:-1]):
        raise ShapeError(f"b must be [..., n, k] beside x [..., n, n], here {x}, not {b}")
    return TensorType(b.shape, b.dtype)


def _with_row(x: Any, number: int, other: Any, size: int) -> Any:
    """``x`` after exchanging the rows ``number`` and ``other`` [..., 1, 1]."""
    rows = _numbers(x, size)
    order = ops.where(rows == number, other, ops.where(rows == other, number, rows))
    return ops.gather(x, order, axis=-2)


def _pivot(column: Any, number: int, size: int) -> Any:
    """The row [..., 1, 1], among those from ``number`` on, with the largest element of a column."""
    below = ops.where(_numbers(column, size) >= number, ops.abs(column), -1.0)
    return ops.argmax(below, axis=-2, keepdims=True)


def _solve(x: Any, b: Any) -> Any:
    """Gauss-Jordan elimination with the largest element of each column as the pivot."""
    size = _columns(x, "a system of equations")
    if not size:
        return b
    both = ops.concat((x, b), axis=-1)
    for number in range(size):
        both = _with_row(both, number, _pivot(_column(both, number), number, size), size)
        row = _row(both, number)
        row = row / _column(row, number)
        others = ops.where(_numbers(x, size) == number, 0.0, _column(both, number))
        both = ops.where(_numbers(x, size) == number, row, both - others * row)
    return ops.slice(both, axis=-1, start=size, stop=both.shape[-1])


@composite(
    infer=_infer_solve,
    expansion=_solve,
    complex_too=True,
    stands_alone=True,
    needs_whole={"x": (-2, -1), "b": (-2,)},
    numpy="np.linalg.solve x b",
    samples=[
        S(_regular(5, 5), "f64[5,3]"),
        S(_regular(2, 4, 4, dtype="f32"), "f32[2,4,1]"),
        S(_regular(1, 1), "f64[1,1]"),
        S(_regular(7, 7), "f64[7,K]", dims={"K": 2}),
        S(_regular(4, 4, dtype="f16"), "f16[4,2]"),
        S(_regular(3, 3, dtype="bf16"), "bf16[3,2]"),
        S(_regular(5, 5, dtype="c128"), "c128[5,3]"),
        S(_regular(2, 4, 4, dtype="c64"), "c64[2,4,1]"),
        "f32[0,0] f32[0,2]",
        S(_regular(3, 3), "f64[3,0]"),
    ],
    bad=[
        Bad("f32[3,4]", "f32[3,1]", match="square"),
        Bad("f32[3,3]", "f32[4,1]", match="b"),
        Bad("f32[3,3]", "f32[3]", match="b must be"),
    ],
)
def solve(x: Tensor, b: Tensor) -> Tensor:
    """The y with ``x @ y = b``, for x [..., n, n] and b [..., n, k], by LU decomposition with partial
    pivoting. Raises LinAlgError for a singular ``x``.

    Golub and Van Loan, Matrix Computations, 3.4."""
    return np.linalg.solve(x, b)


@solve.cost
def _(x: TensorType, b: TensorType) -> Dim:
    product = shapes.normalize(2 * b.size * x.shape[-1])
    return shapes.normalize(shapes.floordiv(2 * x.size * x.shape[-1], 3) + product)


# -- determinants ----------------------------------------------------------------------------------
def _infer_slogdet(x: TensorType) -> TensorType:
    require_square(x, "x", complex_too=True)
    return TensorType((*x.shape[:-2], 2), x.dtype)


def _sign(x: Any) -> Any:
    """x / abs(x), and 0 for 0."""
    if not dtypes.dtype(x.dtype).is_complex:
        return ops.sign(x)
    size = ops.abs(x)
    return x / ops.where(size == 0, 1.0, size)


def _slogdet(x: Any) -> Any:
    size = _columns(x, "a determinant")
    lead = x.shape[:-2]
    kind = dtypes.dtype(x.dtype)
    sign: Any = created(x, ops.full, (*lead, 1, 1), 1.0, kind)
    log: Any = created(x, ops.full, (*lead, 1, 1), 0.0, kind)
    for number in range(size):
        other = _pivot(_column(x, number), number, size)
        x = _with_row(x, number, other, size)
        row = _row(x, number)
        pivot = _column(row, number)
        sign = sign * _sign(pivot) * ops.where(other == number, 1.0, -1.0)
        log = log + ops.log(ops.abs(pivot))
        factor = ops.where(_numbers(x, size) > number, _column(x, number) / pivot, 0.0)
        x = ops.where(pivot == 0, x, x - factor * row)
    both = ops.concat((sign, log), axis=-1)
    return ops.squeeze(both, axis=-2)


@composite(
    infer=_infer_slogdet,
    expansion=_slogdet,
    complex_too=True,
    stands_alone=True,
    needs_whole={"x": (-2, -1)},
    samples=[
        S(_regular(5, 5)),
        S(_regular(2, 4, 4, dtype="f32")),
        S(_regular(1, 1)),
        S(np.ones((3, 3))),
        S(np.zeros((2, 2, 2), np.float32)),
        S(_regular(4, 4, dtype="f16")),
        S(_regular(3, 3, dtype="bf16")),
        S(_regular(5, 5, dtype="c128")),
        S(_regular(2, 4, 4, dtype="c64")),
        S(np.zeros((2, 2), np.complex64)),
        "f32[0,0]; f64[0,3,3]",
    ],
    bad=[Bad("f32[3,4]", match="square")],
)
def slogdet(x: Tensor) -> Tensor:
    """The sign of the determinants of ``x`` [..., n, n] and the natural logarithm of their magnitudes, as
    [..., 2] of the same dtype; 0 and -inf for a singular matrix."""
    with np.errstate(all="ignore"):
        return np.stack(np.linalg.slogdet(x), axis=-1)


@slogdet.cost
def _(x: TensorType) -> Dim:
    return shapes.normalize(shapes.floordiv(2 * x.size * x.shape[-1], 3))


# -- orthogonal factors ----------------------------------------------------------------------------


def _routine(
    infer: Callable[..., TensorType], made_of: Callable[..., Any] | None = None, **facts: Any
) -> Callable[[Callable[..., Any]], Op]:
    """Register an op for which back ends have a routine in float32 and float64. ``made_of`` is its expansion into
    other ops, for back ends that have none."""

    def register(reference: Callable[..., Any]) -> Op:
        def expand(x: Any, **attributes: Any) -> Any:
            kind = dtypes.dtype(x.dtype)
            known = infer(TensorType(tuple(shapes.normalize(d) for d in x.shape), kind), **attributes)
            if known.size == 0:
                return created(x, ops.full, known.shape, 0.0, kind)
            if kind.compute is kind and made_of is not None:
                return made_of(x, **attributes)
            if kind.compute is kind:
                raise TraceError(f"{reference.__name__} is not composed of other ops")
            return ops.cast(lookup(reference.__name__)(ops.cast(x, kind.compute), **attributes), kind)

        made = composite(infer=infer, expansion=expand, stands_alone=True, needs_whole={"x": (-2, -1)}, **facts)
        record = made(reference)
        record.expansion(expand)
        return record

    return register


def _require_matrices(x: TensorType) -> tuple[Dim, Dim]:
    require_float(x, "x")
    if x.rank < 2:
        raise ShapeError(f"x must hold matrices, [..., m, n], not {x}")
    return x.shape[-2], x.shape[-1]


def signed(rows: Array, start: int) -> Array:
    """Rows [..., k, w], with all numbers but the first multiplied by a sign. It makes the first number that is
    not small (at least 0.37 of the largest) among those from column ``start`` on positive."""
    sizes = np.abs(rows[..., start:])
    if not sizes.size:
        return rows
    first = np.argmax(sizes > 0.37 * sizes.max(axis=-1, keepdims=True), axis=-1)
    negative = np.take_along_axis(rows[..., start:], first[..., None], axis=-1) < 0
    return np.concatenate([rows[..., :1], np.where(negative, -rows[..., 1:], rows[..., 1:])], axis=-1)


_BAD = [Bad("f32[3]", match="must hold matrices"), Bad("i32[3,3]", match="must be a float")]


# -- QR --------------------------------------------------------------------------------------------
def _infer_qr(x: TensorType, complete: bool) -> TensorType:
    m, n = _require_matrices(x)
    rows = m if complete else shapes.minimum(m, n)
    return TensorType((*x.shape[:-2], rows, shapes.normalize(m + n)), x.dtype)


def _reflected(x: Any, complete: bool) -> Any:
    """Householder reflections, column by column; a column that is zero below the diagonal is not reflected."""
    height, width = (_columns(v, "a QR decomposition") for v in (ops.permute(x, _exchanged(x.ndim)), x))
    rows, kind = _numbers(x, height), dtypes.dtype(x.dtype)
    unit = ops.cast(ops.eq(rows, created(x, ops.arange, 0, height, 1, "i64")), kind)
    q = ops.expand(unit, (*x.shape[:-2], height, height))
    for number in range(min(height, width)):
        column = ops.where(rows >= number, _column(x, number), 0.0)
        largest = ops.max(ops.abs(column), axis=-2, keepdims=True)
        column = column / ops.where(largest == 0, 1.0, largest)
        own = _row(column, number)
        below = ops.sum(ops.where(rows > number, ops.square(column), 0.0), axis=-2, keepdims=True)
        size = ops.sqrt(ops.square(own) + below)
        column = ops.where(rows == number, own + ops.where(own < 0, -size, size), column)
        across = ops.permute(column, _exchanged(x.ndim))
        part = column * ops.where(below == 0, 0.0, 1.0 / ops.where(below == 0, 1.0, size * (size + ops.abs(own))))
        x = x - ops.matmul(part, ops.matmul(across, x))
        q = q - ops.matmul(ops.matmul(q, part), across)
    both = ops.concat((ops.permute(q, _exchanged(x.ndim)), ops.triu(x, 0)), axis=-1)
    return both if complete else ops.slice(both, axis=-2, start=0, stop=min(height, width))


@_routine(
    _infer_qr,
    made_of=_reflected,
    samples=[
        "f64[5,3]; f32[2,3,5]; f64[4,4]; f32[6,2] complete=True; f64[2,1,3,3] complete=True; f64[M,3] M=9; f64[1,1]",
        "f64[40,37]",
        S(np.triu(np.arange(1.0, 10).reshape(3, 3))),
        "f16[4,3]; bf16[3,3]; f32[0,3]; f32[0,3,3]",
    ],
    bad=_BAD,
)
def qr_rows(x: Tensor, complete: bool = False) -> Tensor:
    """The QR decomposition of ``x`` [..., m, n], as [..., k, m + n]: row j is column j of Q, which has
    orthonormal columns, followed by row j of R, which is upper triangular. k is the smaller of m and n or,
    if ``complete``, m. Signs are those of LAPACK, which uses the same reflections.

    Golub and Van Loan, Matrix Computations, 5.2.2."""
    q, r = np.linalg.qr(x, mode="complete" if complete else "reduced")
    return np.concatenate([np.swapaxes(q, -1, -2), r], axis=-1)


@qr_rows.cost
def _(x: TensorType, complete: bool) -> Dim:
    return shapes.normalize(4 * x.size * _infer_qr(x, complete).shape[-2])


# -- eigenvalues -----------------------------------------------------------------------------------
def _infer_eigh(x: TensorType, vectors: bool) -> TensorType:
    require_square(x, "x")
    n = x.shape[-1]
    return TensorType((*x.shape[:-1], shapes.normalize(n + 1) if vectors else 1), x.dtype)


@_routine(
    _infer_eigh,
    samples=[
        "f64[5,5]; f32[2,4,4]; f64[N,N] N=9; f64[30,30]",
        S(np.ones((4, 4)), vectors=False),
        S(np.array([[0.0, 1.0], [1.0, 0.0]])),
        S(np.diag([3.0, 1.0, 2.0, -5.0])),
        S(np.diag([1e-200, 1e200, 3e199]), vectors=False),
        "f32[3,6,6] vectors=False; f64[1,1]",
        S(np.zeros((3, 3), np.float32), vectors=False),
        "f16[3,3]; bf16[3,3] vectors=False; f32[0,0]; f32[0,3,3]",
    ],
    bad=[*_BAD[1:], Bad("f32[3,4]", match="square")],
)
def eigh_rows(x: Tensor, vectors: bool = True) -> Tensor:
    """The eigenvalues of symmetric ``x`` [..., n, n] in ascending order, as [..., n, 1 + n]: row j is
    eigenvalue j and its eigenvector, which has length 1. Without ``vectors`` the result is [..., n, 1]. Only
    the lower triangle is read. In each vector, the first number that is not small (at least 0.37 of the
    largest) is positive.

    Reduction to tridiagonal form by Householder reflections, then implicit QR steps: Golub and Van Loan,
    Matrix Computations, 8.3."""
    if not vectors:
        return np.linalg.eigvalsh(x)[..., None]
    values, found = np.linalg.eigh(x)
    rows = np.concatenate([values[..., None], np.swapaxes(found, -1, -2)], axis=-1)
    return signed(np.ascontiguousarray(rows), 1)


@eigh_rows.cost
def _(x: TensorType, vectors: bool) -> Dim:
    return shapes.normalize(9 * x.size * x.shape[-1])


# -- singular values -------------------------------------------------------------------------------
def _infer_svd(x: TensorType, vectors: bool) -> TensorType:
    m, n = _require_matrices(x)
    width = shapes.normalize(1 + m + n) if vectors else 1
    return TensorType((*x.shape[:-2], shapes.minimum(m, n), width), x.dtype)


def _of_rank(rank: int, *shape: int) -> Array:
    return np.asarray(_scattered(rank, shape[0], rank) @ _scattered(-rank, rank, shape[1]))


@_routine(
    _infer_svd,
    samples=[
        "f64[5,3]; f32[2,3,5]; f64[4,4]; f64[M,N] M=9 N=4; f64[33,30]",
        S(_of_rank(2, 5, 5), vectors=False),
        S(_of_rank(1, 4, 6), vectors=False),
        S(np.diag([2.0, 0.0, 3.0]), vectors=False),
        S(np.eye(4, k=1), vectors=False),
        S(np.diag([1.0, 2.0, -3.0])),
        S(1e200 * _of_rank(3, 3, 4), vectors=False),
        "f32[3,6,2] vectors=False; f64[1,4]; f64[1,1]",
        S(np.zeros((3, 2), np.float32), vectors=False),
        "f16[3,2]; bf16[3,3] vectors=False; f32[0,3]; f32[0,3,3]",
    ],
    bad=_BAD,
)
def svd_rows(x: Tensor, vectors: bool = True) -> Tensor:
    """The singular values of ``x`` [..., m, n] in descending order, as [..., k, 1 + m + n], where k is the
    smaller of m and n: row j is singular value j, its left and its right singular vector, which have length
    1. Without ``vectors`` the result is [..., k, 1]. In each right vector, the first number that is not small
    (at least 0.37 of the largest) is positive.

    Bidiagonal form of Golub and Kahan, then implicit QR steps: Golub and Van Loan, Matrix Computations,
    8.6.3."""
    if not vectors:
        return np.linalg.svd(x, compute_uv=False)[..., None]
    left, values, right = np.linalg.svd(x, full_matrices=False)
    return signed(np.concatenate([values[..., None], np.swapaxes(left, -1, -2), right], axis=-1), 1 + x.shape[-2])


@svd_rows.cost
def _(x: TensorType, vectors: bool) -> Dim:
    return shapes.normalize(20 * x.size * _infer_svd(x, True).shape[-2])
