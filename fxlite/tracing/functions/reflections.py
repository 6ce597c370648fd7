"""Householder reflections as loops over columns: QR decompositions in LAPACK's compact form, and complex matrices
reduced to real ones for which there are ops.

In: traced matrices [..., m, n] of real or complex numbers. A reflection is ``1 - scale * v @ v^H``, with a 1 in ``v``
at its own row and zeros above. The compact form of a product of reflections has the rest of each ``v`` below the
diagonal. Vectors and scales are those of LAPACK (geqrf).

Golub and Van Loan, Matrix Computations, 5.2, 5.4.8 and 8.3.1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.base.state import is_traced
from fxlite.ops.op import lookup
from fxlite.tracing.numpy_functions import matrix_transpose, value_type
from fxlite.types import shapes


def adjoint(x: Any) -> Any:
    """The conjugate transpose of matrices."""
    turned = matrix_transpose(x)
    return np.conj(turned) if value_type(x).dtype.is_complex else turned


def _places(size: Any) -> Any:
    return lookup("arange")(0, shapes.for_user(size), 1, "i64")


def identity(like: Any, rows: Any, columns: Any) -> Any:
    """The identity matrix [..., rows, columns], for each matrix of ``like`` and in its dtype."""
    kind = value_type(like)
    both = lookup("eq")(lookup("unsqueeze")(_places(rows), 1), _places(columns))
    return lookup("expand")(lookup("cast")(both, kind.dtype), (*kind.shape[:-2], rows, columns))


def _element(values: Any, at_place: Any) -> Any:
    """The element of each vector at one place; 0 if the vectors do not have this place."""
    return np.sum(np.where(at_place, values, 0), axis=-1, keepdims=True)


def _reflection(column: Any, place: Any) -> tuple[Any, Any, Any]:
    """The vector and the scale of the reflection whose adjoint makes a column zero below a place; and its element
    there, which is real."""
    places = _places(value_type(column).shape[-1])
    own, rest = _element(column, places == place), np.where(places > place, column, 0)
    largest = np.maximum(abs(own), np.max(abs(rest), axis=-1, keepdims=True, initial=0))
    is_none = largest < np.finfo(value_type(largest).dtype.numpy).tiny  # also of numbers whose reciprocal is infinite
    unit = np.where(is_none, 1, largest)
    below = np.sum(np.square(abs(rest / unit)), axis=-1, keepdims=True)
    length = unit * np.sqrt(np.square(abs(own / unit)) + below)
    is_done = below == 0
    if value_type(column).dtype.is_complex:
        is_done = is_done & (own.imag == 0)
    is_done = is_done | is_none
    found = np.where(is_done, own.real, np.where(own.real < 0, length, -length))
    scale = np.where(is_done, 0, (found - own) / np.where(found == 0, 1, found))
    vector = np.where(places == place, 1, rest / np.where(is_done, 1, own - found))
    kind = value_type(column).dtype
    return lookup("cast")(vector, kind), lookup("cast")(scale, kind), found


def _conj(x: Any) -> Any:
    return np.conj(x) if value_type(x).dtype.is_complex else x


def _from_left(x: Any, vector: Any, scale: Any) -> Any:
    """``(1 - scale * v @ v^H) @ x``."""
    row = np.sum(_conj(vector)[..., None] * x, axis=-2)
    return x - vector[..., None] * (scale * row)[..., None, :]


def _from_right(x: Any, vector: Any, scale: Any) -> Any:
    """``x @ (1 - scale * v @ v^H)``."""
    column = np.sum(x * vector[..., None, :], axis=-1)
    return x - (scale * column)[..., None] * _conj(vector)[..., None, :]


def _column(x: Any, number: Any) -> Any:
    return lookup("take")(x, number, -1)


def triangular(a: Any) -> tuple[Any, Any]:
    """A QR decomposition in compact form: R and, below its diagonal, the vectors; and the scales."""
    *outer, height, width = value_type(a).shape
    rows, columns, count = _places(height), _places(width), shapes.minimum(height, width)
    numbers = _places(count)

    def step(k: Any, state: Any) -> Any:
        a, scales = state
        vector, scale, found = _reflection(_column(a, k), k)
        changed = np.where(columns > k, _from_left(a, vector, _conj(scale)), a)
        own = np.where(rows > k, vector, np.where(rows == k, found, _column(a, k)))
        a = np.where(columns == k, own[..., None], changed)
        return lookup("cast")(a, kind), np.where(numbers == k, scale, scales)

    kind = value_type(a).dtype
    scales = lookup("full")((*outer, count), 0, kind)
    compact, scales = a.tracer.loop(0, shapes.for_user(count), step, (a, scales))
    return compact, scales


def reflected(compact: Any, scales: Any, x: Any, turned: bool = False) -> Any:
    """``Q @ x``, or ``Q^H @ x`` if ``turned``, where Q is the product of the reflections of a compact form."""
    rows, count = _places(value_type(compact).shape[-2]), value_type(scales).shape[-1]

    def step(k: Any, x: Any) -> Any:
        k = k if turned else shapes.for_user(count) - 1 - k
        vector = np.where(rows == k, 1, np.where(rows > k, _column(compact, k), 0))
        scale = lookup("unsqueeze")(_column(scales, k), -1)
        return _from_left(x, vector, _conj(scale) if turned else scale)

    tracer = next(v.tracer for v in (compact, scales, x) if is_traced(v))
    return tracer.loop(0, shapes.for_user(count), step, x)


def qr(a: Any, mode: str) -> tuple[Any, Any]:
    """Q and R; ``mode`` is "reduced" or "complete". The diagonal of R is real."""
    height, width = value_type(a).shape[-2:]
    compact, scales = triangular(a)
    size = height if mode == "complete" else shapes.minimum(height, width)
    upper = lookup("slice")(lookup("triu")(compact, 0), axis=-2, start=0, stop=size)
    return reflected(compact, scales, identity(a, height, size)), upper


def tridiagonal(a: Any) -> tuple[Any, Any]:
    """Q and T with ``a = Q @ T @ Q^H``, for Hermitian matrices, of which the lower triangle is read. T is real, and its
    lower triangle has numbers on and next to the diagonal only."""
    size = value_type(a).shape[-1]
    a = lookup("tril")(a, -1) + adjoint(lookup("tril")(a, 0))
    a = np.where(_places(size)[:, None] == _places(size), a.real, a)

    def step(k: Any, state: Any) -> Any:
        a, q = state
        vector, scale, _ = _reflection(_column(a, k), k + 1)
        a = _from_right(_from_left(a, vector, _conj(scale)), vector, scale)
        return a, _from_right(q, vector, scale)

    found, q = a.tracer.loop(0, shapes.for_user(size), step, (a, identity(a, size, size)))
    return q, lookup("triu")(found.real, -1)


def bidiagonal(a: Any) -> tuple[Any, Any, Any]:
    """P, B and Q with ``a = P @ B @ Q^H``, for square matrices. B is real, with numbers on the diagonal and next to it
    above."""
    size = value_type(a).shape[-1]

    def step(k: Any, state: Any) -> Any:
        a, p, q = state
        vector, scale, _ = _reflection(_column(a, k), k)
        a, p = _from_left(a, vector, _conj(scale)), _from_right(p, vector, scale)
        vector, scale, _ = _reflection(_conj(lookup("take")(a, k, -2)), k + 1)
        return _from_right(a, vector, scale), p, _from_right(q, vector, scale)

    unit = identity(a, size, size)
    found, p, q = a.tracer.loop(0, shapes.for_user(size), step, (a, unit, unit))
    return p, lookup("triu")(lookup("tril")(found.real, 1), 0), q
