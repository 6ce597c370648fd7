"""``numpy.linalg`` as the ops ``cholesky``, ``solve`` and ``slogdet``, and norms as reductions.

In: traced values (integers are computed as float64) and the arguments of NumPy's functions, over
any leading axes. Out: calls of ops.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxlite.base.state import is_traced
from fxlite.ops.op import broadcast_shapes, lookup, normalize_axes
from fxlite.tracing.functions.rearranging import known_size
from fxlite.tracing.numpy_functions import matrix_transpose, ravel, value_type
from fxlite.types import dtypes, shapes

_SLOGDET = type(np.linalg.slogdet(np.eye(1)))


def as_float(x: Any) -> Any:
    """Integers and bools as float64."""
    return x if value_type(x).dtype.is_inexact else lookup("cast")(x, "f64")


def alike(*values: Any) -> list[Any]:
    """The values as traced ones of one float dtype."""
    tracer = next(v.tracer for v in values if is_traced(v))
    made = [v if is_traced(v) else tracer.proxy(tracer.create_arg(np.asarray(v))) for v in values]
    common = dtypes.result_type(*(value_type(as_float(v)).dtype for v in made))
    return [lookup("cast")(v, common) for v in made]


def require_square(x: Any) -> Any:
    """Matrices that are square, as floats. Raises ValueError."""
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
    """np.linalg.inv: the solution for the columns of the identity."""
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
        return _largest(size, axis, keepdims)
    if ord == -math.inf:
        return np.min(size, axis=axis, keepdims=keepdims)
    if ord == 0:
        count = np.sum(np.not_equal(x, 0), axis=axis, keepdims=keepdims)
        return lookup("cast")(count, value_type(size).dtype)
    if isinstance(ord, str):
        raise ValueError(f"vectors have no norm {ord!r}")
    return np.sum(size**ord, axis=axis, keepdims=keepdims) ** (1.0 / ord)


def _largest(size: Any, axis: Any, keepdims: bool) -> Any:
    """The largest of numbers that are not negative; of none 0."""
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
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
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
    found = _largest(sums, kept, True) if ord > 0 else np.min(sums, axis=kept, keepdims=True)
    if keepdims:
        return found
    for a in sorted((row, column), reverse=True):
        found = lookup("squeeze")(found, a)
    return found


def _of_singular_values(x: Any, ord: Any, row: int, column: int, keepdims: bool) -> Any:
    if value_type(x).dtype.is_complex:
        raise ValueError(f"ord={ord!r} is traced for real matrices, not {value_type(x)}")
    rows = lookup("svd_rows")(as_float(np.moveaxis(x, (row, column), (-2, -1))), vectors=False)
    how = {2: "max", -2: "min", "nuc": "sum"}[ord]
    found = lookup(how)(lookup("select")(rows, axis=-1, index=0), axis=-1)
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


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.linalg.cholesky: cholesky,
    np.linalg.solve: solve,
    np.linalg.inv: inv,
    np.linalg.slogdet: slogdet,
    np.linalg.det: det,
    np.linalg.norm: norm,
    np.linalg.matrix_norm: matrix_norm,
    np.linalg.vector_norm: vector_norm,
    np.linalg.tensorinv: tensorinv,
    np.linalg.tensorsolve: tensorsolve,
    np.polymul: polymul,
    np.polyint: polyint,
}
