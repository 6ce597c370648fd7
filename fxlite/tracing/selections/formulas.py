"""NumPy's functions of selected elements that are formulas of others, such as ``np.average`` and ``np.polyfit``.

In: selections among the arguments. Out: what a program gets that writes the formula itself. Least squares are solved
for all equations, of which those that are not selected are 0 = 0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from fxlite.ops.op import lookup
from fxlite.tracing.functions import linear
from fxlite.tracing.numpy_functions import by_name, value_type
from fxlite.tracing.selections.compact import compact
from fxlite.tracing.selections.masked import Masked, first_of, same_mask
from fxlite.tracing.selections.spans import sum_of
from fxlite.types import dtypes, shapes


def _equations(*values: Any) -> tuple[list[Any], Any, Any]:
    """The values at all positions, with 0 where they are not selected; the mask, and the number of those selected."""
    first = next(v for v in values if isinstance(v, Masked))
    if not all(isinstance(v, Masked) and not v.before and v.mask.ndim == 1 for v in values):
        raise first.refusal("least squares of selected and other equations", "select both by the same mask")
    count = first.count
    if not all(same_mask(first.mask.node, v.mask.node) for v in values):
        values = tuple(map(compact, values))
        first = values[0]
        if not all(shapes.equal(v.values.type.shape[0], first.values.type.shape[0]) for v in values):
            raise first.refusal("least squares of equations from different arrays")
        for v in values[1:]:
            if not sum_of(first.tracer, v.count).same(sum_of(first.tracer, count)):
                error = ValueError("least squares of different numbers of equations")
                count = first.tracer.unless(count, lookup("ne")(v.count, count), error)
    rows = [np.where(first.mask.reshape((-1, *[1] * (v.ndim - 1))), v.values, 0) for v in values]
    return rows, first.mask, count


def lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    """np.linalg.lstsq."""
    (a, b), _, count = _equations(a, b)
    columns = a.shape[1]
    if rcond is None:
        rcond = linear.epsilon(linear.as_float(a)) * lookup("maximum")(count, columns)
    x, rest, rank, values = linear.lstsq(a, b, rcond)
    if rest.shape[0]:
        rest = first_of(rest, lookup("where")(count > columns, rest.shape[0], 0))
    return x, rest, rank, first_of(values, lookup("minimum")(count, columns))


def polyfit(x: Any, y: Any, deg: Any, rcond: Any = None, full: bool = False, w: Any = None, cov: Any = False) -> Any:
    """np.polyfit of coefficients."""
    given = (x, y) if w is None else (x, y, w)
    (x, y, *more), mask, count = _equations(*given)
    if rcond is None:
        rcond = linear.epsilon(linear.as_float(x)) * count
    kind = dtypes.result_type(value_type(linear.as_float(x)).dtype, value_type(linear.as_float(y)).dtype)
    return linear.polyfit(x, y, deg, rcond, full, more[0] if more else lookup("cast")(mask, kind), cov)


# -- sums ------------------------------------------------------------------------------------------
def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = False) -> Any:
    """np.average."""
    if weights is None:
        found = np.mean(a, axis=axis, keepdims=keepdims)
        return (found, np.ones_like(found) * (a.size if axis is None else a.shape[axis])) if returned else found
    if np.ndim(weights) < a.ndim and axis is not None:
        weights = weights.reshape(*[-1 if k == axis % a.ndim else 1 for k in range(a.ndim)])
        total = weights.sum()
    else:
        total = np.sum(weights, axis=axis, keepdims=keepdims)
    found = np.sum(a * weights, axis=axis, keepdims=keepdims) / total
    return (found, np.ones_like(found) * total) if returned else found


def vdot(a: Any, b: Any) -> Any:
    """np.vdot of one axis."""
    return np.dot(np.conj(a), b)


def inner(a: Any, b: Any) -> Any:
    """np.inner of one axis."""
    first = a if isinstance(a, Masked) else b
    if np.ndim(a) != 1 or np.ndim(b) != 1:
        raise first.refusal("np.inner of several axes", "write it with @ and .T")
    return np.dot(a, b)


def einsum(equation: Any, *operands: Any, optimize: Any = False) -> Any:
    """np.einsum with a text, for operands whose selected axes have the same letter."""
    selected = [v for v in operands if isinstance(v, Masked)]
    left, arrow, right = equation.replace(" ", "").partition("->") if isinstance(equation, str) else ("", "", "")
    terms = left.split(",")
    if not arrow or "." in left or len(terms) != len(operands) or any(v.mask.ndim > 1 for v in selected):
        raise selected[0].refusal("np.einsum without ->, or with ...", "write all letters: 'ij,ij->i'")
    letters = {term[v.before] for term, v in zip(terms, operands) if isinstance(v, Masked)}
    alone = [v for term, v in zip(terms, operands) if not isinstance(v, Masked) and letters & {*term}]
    if len(letters) != 1 or alone:
        raise selected[0].refusal("np.einsum of axes that are selected in some of the operands only")
    if not all(same_mask(selected[0].mask.node, v.mask.node) for v in selected):
        operands = tuple(compact(v) if isinstance(v, Masked) else v for v in operands)
    first = next(v for v in operands if isinstance(v, Masked))
    found = np.einsum(equation, *(v.filled(0) if isinstance(v, Masked) else v for v in operands))
    (letter,) = letters
    return first.like(found, len(right) - 1 - right.index(letter)) if letter in right else found


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    """np.array_equal of one axis each."""
    one, other = (v if isinstance(v, Masked) else np.ravel(v) for v in (a1, a2))
    first: Any = one if isinstance(one, Masked) else other
    if equal_nan or one.ndim != 1 or other.ndim != 1:
        raise first.refusal("np.array_equal of several axes, or with equal_nan=")
    if isinstance(one, Masked) and isinstance(other, Masked) and one.same(other):
        return first.tracer.python_number(np.all(one == other))
    raise first.refusal("np.array_equal of elements that two masks select", "compare their sizes, then np.all(a == b)")


def _without_nan(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(a: Any, *args: Any, **options: Any) -> Any:
        axis = args[0] if args and function not in (np.percentile, np.quantile) else options.get("axis")
        if a.ndim > 1 and axis is not None:
            raise a.refusal(f"np.nan{function.__name__} along an axis")
        a = np.ravel(a)
        return function(a[~np.isnan(a)], *args, **options) if a.dtype.kind in "fc" else function(a, *args, **options)

    return call


def cov(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: Any = None, **more: Any) -> Any:
    """np.cov."""
    first = m if isinstance(m, Masked) else y
    if any(value is not None for value in more.values()):
        raise first.refusal(f"np.cov with {' and '.join(more)}")
    rows = [
        v if v.ndim > 1 and rowvar else np.expand_dims(v.T, 0) if v.ndim == 1 else v.T for v in (m, y) if v is not None
    ]
    ddof = ddof if ddof is not None else 0 if bias else 1
    whole = rows[0] if len(rows) == 1 else np.concatenate(rows, axis=0)
    whole = whole - np.mean(whole, axis=1, keepdims=True)
    found = (whole @ np.conj(whole).T) / (whole.shape[1] - ddof)
    return found if found.shape[0] > 1 else found.reshape(())


def corrcoef(x: Any, y: Any = None, rowvar: bool = True) -> Any:
    """np.corrcoef."""
    found = cov(x, y, rowvar)
    spread = np.sqrt(np.diag(found))
    return np.clip(found / spread[:, None] / spread[None, :], -1, 1)


# -- element by element ----------------------------------------------------------------------------
def select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    """np.select."""
    return reduce(lambda rest, case: np.where(case[0], case[1], rest), [*zip(condlist, choicelist)][::-1], default)


def piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Any:
    """np.piecewise; a further function is for the elements that no condition holds for."""
    found = np.zeros_like(x)
    if len(funclist) == len(condlist) + 1:
        condlist = [*condlist, np.logical_not(reduce(np.logical_or, condlist))]
    for condition, part in zip(condlist, funclist):
        value = part(x, *args, **kw) if callable(part) else part
        found = np.where(condition, value, found).astype(x.dtype)
    return found


# -- in another order, or more of them -------------------------------------------------------------
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """np.ediff1d."""
    parts = [to_begin, np.diff(np.ravel(ary)), to_end]
    parts = [np.ravel(part) for part in parts if part is not None]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def lexsort(keys: Any, axis: int = -1) -> Any:
    """np.lexsort of one axis."""
    order = np.argsort(keys[0], kind="stable")
    for key in keys[1:]:
        order = order[np.argsort(key[order], kind="stable")]
    return order


def vander(x: Any, N: Any = None, increasing: bool = False) -> Any:
    """np.vander for a known number of columns."""
    if not isinstance(N, int):
        raise x.refusal("np.vander without a number of columns")
    powers = range(N) if increasing else range(N - 1, -1, -1)
    return np.stack([x**power for power in powers], axis=1)


def delete(arr: Any, obj: Any, axis: Any = None) -> Any:
    """np.delete of one element at a known place."""
    if not isinstance(obj, int) or arr.ndim > 1:
        raise arr.refusal("np.delete of several elements, or along an axis", "give a mask: x[keep]")
    return np.concatenate([arr[:obj], arr[obj + 1 :]]) if obj != -1 else arr[:-1]


def insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> Any:
    """np.insert at a known place."""
    if not isinstance(obj, int) or arr.ndim > 1:
        raise arr.refusal("np.insert at several places, or along an axis", "join the parts by np.concatenate")
    return np.concatenate([arr[:obj], np.atleast_1d(values).astype(arr.dtype), arr[obj:]])


def compress(condition: Any, a: Any, axis: Any = None) -> Any:
    """np.compress of one axis."""
    if np.ndim(a) != 1:
        raise (a if isinstance(a, Masked) else condition).refusal("np.compress of several axes", "write x[mask]")
    return a[condition]


def multi_dot(arrays: Any) -> Any:
    """np.linalg.multi_dot, from the left to the right."""
    return reduce(np.matmul, arrays)


def tile(A: Any, reps: Any) -> Any:
    """np.tile of one axis, a known number of times."""
    if A.ndim > 1 or not isinstance(reps, int) or not 0 < reps <= 16:
        raise A.refusal("np.tile of several axes, or a computed number of times")
    return A if reps == 1 else np.concatenate([A] * reps)


def accumulated(ufunc: np.ufunc, x: Any, axis: Any = 0, dtype: Any = None) -> Any:
    """``ufunc.accumulate`` along the selected axis: what follows the selected elements changes none of them."""
    first = compact(x)
    if np.arange(first.ndim)[axis] != first.before:
        raise x.refusal(f"np.{ufunc.__name__}.accumulate along another axis than the selected one")
    return first.like(ufunc.accumulate(first.values, axis=first.before, dtype=dtype))


def outer(ufunc: np.ufunc, x: Any, y: Any) -> Any:
    """``ufunc.outer`` of two axes."""
    return ufunc(x[:, None], y[None] if isinstance(y, Masked) else np.expand_dims(y, 0))


FUNCTIONS = by_name(np.linalg, lstsq, multi_dot)
FUNCTIONS |= by_name(np, polyfit, average, vdot, inner, einsum, array_equal, cov, corrcoef, select, piecewise)
FUNCTIONS |= by_name(np, ediff1d, lexsort, vander, delete, insert, compress, tile)
FUNCTIONS |= {"accumulate": accumulated, "outer": outer}
FUNCTIONS |= {
    getattr(np, f"nan{f.__name__}"): _without_nan(f)
    for f in (np.sum, np.prod, np.mean, np.max, np.min, np.std, np.var, np.median, np.percentile, np.quantile)
}
