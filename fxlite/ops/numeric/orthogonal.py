"""QR decomposition, eigenvalues of symmetric matrices and singular values, over any leading axes.

In: matrices of float32 or float64 (half types are computed in float32). Out: one array whose rows
hold what belongs together (a singular value and its two vectors), which the functions of
``numpy.linalg`` take apart (:mod:`fxlite.tracing.functions.decompositions`). Where mathematics
leaves signs open, references and routines choose the same ones. C and CUDA have routines
(``codegen/c/tiles/numeric/orthogonal.h``), in CUDA one thread for each matrix; back ends of loops
alone have none. A matrix with NaN has factors of NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fxlite.base.errors import ShapeError, TraceError
from fxlite.ops.composite import composite, created
from fxlite.ops.numeric.linalg import require_square
from fxlite.ops.op import Op, Tensor, lookup, ops, require_float
from fxlite.ops.samples import Bad, S
from fxlite.types import dtypes, shapes
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType

Array = np.ndarray[Any, Any]


def _routine(infer: Callable[..., TensorType], **facts: Any) -> Callable[[Callable[..., Any]], Op]:
    """Register an op that back ends have a routine for, in float32 and float64."""

    def register(reference: Callable[..., Any]) -> Op:
        def expand(x: Any, **attributes: Any) -> Any:
            kind = dtypes.dtype(x.dtype)
            known = infer(TensorType(tuple(shapes.normalize(d) for d in x.shape), kind), **attributes)
            if known.size == 0:
                return created(x, ops.full, known.shape, 0.0, kind)
            if kind.compute is kind:
                raise TraceError(f"{reference.__name__} is no composition of other ops")
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
    """Rows [..., k, w], all but their first number times the sign with which the first number from
    column ``start`` on that is not small there (at least 0.37 of the largest) is positive."""
    sizes = np.abs(rows[..., start:])
    if not sizes.size:
        return rows
    first = np.argmax(sizes > 0.37 * sizes.max(axis=-1, keepdims=True), axis=-1)
    negative = np.take_along_axis(rows[..., start:], first[..., None], axis=-1) < 0
    return np.concatenate([rows[..., :1], np.where(negative, -rows[..., 1:], rows[..., 1:])], axis=-1)


_BAD = [Bad("f32[3]", match="must hold matrices"), Bad("i32[3,3]", match="must be a float")]


# -- QR --------------------------------------------------------------------------------------------
def _infer_qr(x: TensorType, complete: bool = False) -> TensorType:
    m, n = _require_matrices(x)
    rows = m if complete else shapes.minimum(m, n)
    return TensorType((*x.shape[:-2], rows, shapes.normalize(m + n)), x.dtype)


@_routine(
    _infer_qr,
    samples=[
        "f64[5,3]; f32[2,3,5]; f64[4,4]; f32[6,2] complete=True; f64[2,1,3,3] complete=True; f64[M,3] M=9; f64[1,1]",
        "f64[40,37]",
        S(np.triu(np.arange(1.0, 10).reshape(3, 3))),
        "f16[4,3]; bf16[3,3]; f32[0,3]; f32[0,3,3]",
    ],
    bad=_BAD,
)
def qr_rows(x: Tensor, complete: bool = False) -> Tensor:
    """QR decomposition of ``x`` [..., m, n], as [..., k, m + n]: row j is column j of Q, which has
    orthonormal columns, and row j of R, which is upper triangular. k is the smaller of m and n, or
    if ``complete`` m. Signs are LAPACK's, whose reflections are these.

    Golub and Van Loan, Matrix Computations, 5.2.2."""
    q, r = np.linalg.qr(x, mode="complete" if complete else "reduced")
    return np.concatenate([np.swapaxes(q, -1, -2), r], axis=-1)


@qr_rows.cost
def _(x: TensorType, complete: bool = False) -> Dim:
    return shapes.normalize(4 * x.size * _infer_qr(x, complete).shape[-2])


# -- eigenvalues -----------------------------------------------------------------------------------
def _infer_eigh(x: TensorType, vectors: bool = True) -> TensorType:
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
    """Eigenvalues of symmetric ``x`` [..., n, n], of which the lower triangle is read, in ascending
    order, as [..., n, 1 + n]: row j is eigenvalue j and its eigenvector, of length 1. Without
    ``vectors`` [..., n, 1]. The first number of a vector that is not small, at least 0.37 of the
    largest, is positive.

    Householder's tridiagonal form and implicit QR steps: Golub and Van Loan, Matrix Computations,
    8.3."""
    if not vectors:
        return np.linalg.eigvalsh(x)[..., None]
    values, found = np.linalg.eigh(x)
    rows = np.concatenate([values[..., None], np.swapaxes(found, -1, -2)], axis=-1)
    return signed(np.ascontiguousarray(rows), 1)


@eigh_rows.cost
def _(x: TensorType, vectors: bool = True) -> Dim:
    return shapes.normalize(9 * x.size * x.shape[-1])


# -- singular values -------------------------------------------------------------------------------
def _infer_svd(x: TensorType, vectors: bool = True) -> TensorType:
    m, n = _require_matrices(x)
    width = shapes.normalize(1 + m + n) if vectors else 1
    return TensorType((*x.shape[:-2], shapes.minimum(m, n), width), x.dtype)


def _of_rank(rank: int, *shape: int) -> Array:
    rng = np.random.default_rng(rank)
    return rng.standard_normal((shape[0], rank)) @ rng.standard_normal((rank, shape[1]))


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
    """Singular values of ``x`` [..., m, n] in descending order, as [..., k, 1 + m + n] with k the
    smaller of m and n: row j is singular value j, its left and its right singular vector, of length
    1. Without ``vectors`` [..., k, 1]. The first number of a right vector that is not small, at
    least 0.37 of the largest, is positive.

    Golub and Kahan's bidiagonal form and implicit QR steps: Golub and Van Loan, Matrix
    Computations, 8.6.3."""
    if not vectors:
        return np.linalg.svd(x, compute_uv=False)[..., None]
    left, values, right = np.linalg.svd(x, full_matrices=False)
    return signed(np.concatenate([values[..., None], np.swapaxes(left, -1, -2), right], axis=-1), 1 + x.shape[-2])


@svd_rows.cost
def _(x: TensorType, vectors: bool = True) -> Dim:
    return shapes.normalize(20 * x.size * _infer_svd(x).shape[-2])
