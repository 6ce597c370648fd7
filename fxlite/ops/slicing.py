"""Parts of an axis: slice and select, and what can be proved about the dims they make.

In: one tensor, an axis, bounds in dims (ints or named). Out: views. :func:`slice_bounds` is the one
place where Python's slice rules meet named dims: a bound written as an int clips as in NumPy
(``x[:4]`` has size ``Min(4, T)``); a bound written with named dims is taken as it is and checked
when the program runs; a named axis that is sliced is taken to be not empty, so that ``x[1:]`` has
the size ``T - 1`` and not ``Max(T - 1, 0)``.
"""

from __future__ import annotations

import builtins
import functools
from typing import Any

import numpy as np
import sympy

from fxlite import dtypes, expr, shapes
from fxlite.errors import ArgumentError, ShapeError
from fxlite.expr import Expr, MultiIndex, Reader
from fxlite.index import Index
from fxlite.op import Tensor, normalize_axis, op
from fxlite.ops.view import dims_of, known_type
from fxlite.samples import Bad, S
from fxlite.shapes import Dim
from fxlite.types import TensorType


# -- proofs ----------------------------------------------------------------------------------------
def never_negative(dim: Dim, nonempty: bool = False) -> bool:
    """True if the dim is provably >= 0 for all sizes; ``nonempty``: for all sizes but 0."""
    if nonempty and isinstance(dim, sympy.Expr):
        dim = dim.xreplace({s: s + 1 for s in dim.free_symbols})
    return _never_negative(shapes.normalize(dim))


@functools.lru_cache(maxsize=4096)
def _never_negative(dim: Dim) -> bool:
    if type(dim) is int:
        return dim >= 0
    if dim.is_nonnegative:
        return True
    dim = sympy.expand(dim)
    atoms = dim.atoms(sympy.Min, sympy.Max, shapes.FloorDiv)
    for atom in sorted(atoms, key=sympy.default_sort_key):
        coeff = dim.coeff(atom)
        if coeff == 0 or not coeff.is_Integer:  # inside another atom, or times a dim
            continue
        rest = dim - coeff * atom
        if isinstance(atom, shapes.FloorDiv):  # (a - b + 1) / b <= a // b <= a / b
            a, b = atom.args
            if b.is_Integer:
                bound = (a / b) if coeff < 0 else (a - b + 1) / b
                return _never_negative(sympy.expand(rest + coeff * bound))
            continue
        enough = any if isinstance(atom, sympy.Min) == (coeff < 0) else all
        return enough(_never_negative(sympy.expand(rest + coeff * a)) for a in atom.args)
    return False


def smaller(a: Dim, b: Dim) -> Dim:
    """``min(a, b)`` of dims, folded where one is smaller for all sizes but 0."""
    if never_negative(a - b, nonempty=True):
        return b
    return a if never_negative(b - a, nonempty=True) else shapes.minimum(a, b)


def larger(a: Dim, b: Dim) -> Dim:
    """``max(a, b)`` of dims, folded where one is larger for all sizes but 0."""
    if never_negative(a - b, nonempty=True):
        return a
    return b if never_negative(b - a, nonempty=True) else shapes.maximum(a, b)


# -- slice and select ------------------------------------------------------------------------------
def slice_bounds(size: Dim, start: Dim, stop: Dim | None, step: int = 1) -> tuple[Dim, Dim, Dim]:
    """(start, stop, length) of ``[start:stop:step]`` on an axis of the given size, as non-negative
    dims; ``step`` >= 1. See the module's text for the rules with named dims."""
    if type(step) is not int or step < 1:
        raise ArgumentError(f"step must be an int >= 1, not {step!r}; flip(x, axis) reverses x")
    if type(size) is int and type(start) is int and (stop is None or type(stop) is int):
        first, last, _ = builtins.slice(start, stop).indices(size)
        return first, last, len(range(first, last, step))
    first, last = shapes.normalize(start), size if stop is None else shapes.normalize(stop)
    if type(first) is int and first < 0:
        first = larger(shapes.normalize(size + first), 0)
    if type(last) is int:
        if last < 0:
            last = larger(shapes.normalize(size + last), 0)
        else:
            last = smaller(last, size)
    if isinstance(first, sympy.Max):  # stop - Max(a, b) == Min(stop - a, stop - b)
        length = functools.reduce(smaller, (shapes.normalize(last - a) for a in first.args))
    elif isinstance(last, sympy.Min):
        length = functools.reduce(smaller, (shapes.normalize(a - first) for a in last.args))
    else:
        length = shapes.normalize(last - first)
    length = larger(length, 0)
    return first, last, length if step == 1 else shapes.floordiv(length + (step - 1), step)


@op("view", name="slice",
    samples=[S("f32[B,6]", 1, 2, 5, dims={"B": 3}), S("f32[B,4]", 0, 1, dims={"B": 3}),
             S("f32[B,T]", 1, -1, dims={"B": 2, "T": 4}), S("f32[T]", 0, -3, dims={"T": 2}),
             S("f32[T]", 0, 0, 4, dims={"T": 3}), S("f32[T,2]", 0, 3, None, 2, dims={"T": 8}),
             S("f32[T,2]", 0, 1, -1, dims={"T": 5}), S("f64[7]", 0, 1, None, 3),
             S("i32[3]", 0, 2, 1),
             S("bool[4]", 0, -100, 100), S("bf16[2,5]", -1, 0, 4, 2), S("f16[0,3]", 0, 1)],
    bad=[Bad("f32[3]", 1, match="out of range"), Bad("f32[3]", 0, 0, 2, -1, match="flip"),
         Bad("f32[3]", 0, 1.5, match="bounds must be ints")])  # fmt: skip
def slice_(x: Tensor, axis: int, start: int = 0, stop: int | None = None, step: int = 1) -> Tensor:
    """``x[start:stop:step]`` along one axis, with Python's rules; ``step`` is at least 1.

    On a named axis an int bound clips as in NumPy (``x[:4]`` has size ``Min(4, T)``); a bound that
    holds named dims must lie within the axis: IndexError at run time otherwise."""
    lead = (builtins.slice(None),) * normalize_axis(axis, np.ndim(x))
    return x[(*lead, builtins.slice(start, stop, step))]


def _check_bounds(*bounds: Any) -> None:
    for bound in bounds:
        if not (bound is None or type(bound) is int or isinstance(bound, sympy.Expr)):
            raise ArgumentError(f"bounds must be ints, named dims or None, not {bound!r}")


@slice_.canonical
def _(x: Any, axis: Any, start: Any = 0, stop: Any = None, step: Any = 1) -> Any:
    known = known_type(x)
    if known is None or type(axis) is not int or not -known.rank <= axis < known.rank:
        return None
    _check_bounds(start, stop)
    if start is None:
        start = 0
    size = known.shape[axis]
    first, last, _ = slice_bounds(size, start, stop, step)
    end = None if shapes.equal(last, size) else last
    if (first, end) == (start, stop):
        return None
    return slice_, {"x": x, "axis": axis, "start": first, "stop": end, "step": step}


@slice_.infer
def _(x: TensorType, axis: int, start: Any = 0, stop: Any = None, step: Any = 1) -> TensorType:
    axis = normalize_axis(axis, x.rank)
    _check_bounds(start, stop)
    _, _, length = slice_bounds(x.shape[axis], start, stop, step)
    return x.with_shape((*x.shape[:axis], length, *x.shape[axis + 1 :]))


@slice_.body
def _(i: MultiIndex, x: Reader, axis: int, start: Any = 0, stop: Any = None, step: int = 1) -> Expr:
    axis = normalize_axis(axis, len(x.shape))
    size = dims_of(x)[axis]
    first, last, _ = slice_bounds(size, start, stop, step)
    position = i[axis] * step + Index.of(first)
    if never_negative(first) and never_negative(size - last):
        return x[(*i[:axis], position, *i[axis + 1 :])]
    value = expr.index_value(position)
    if not never_negative(first):  # a negative position is an error here: it does not wrap around
        inside = expr.apply("ge", value, expr.index_value(0))
        value = expr.where(inside, value, expr.index_value(x.shape[axis]))
    text = f"slice along axis {axis}"
    return _read_checked(x, (*i[:axis], position, *i[axis + 1 :]), axis, value, text)


def _read_checked(x: Reader, index: MultiIndex, axis: int, value: Expr, where_text: str) -> Expr:
    """``x[index]``, an IndexError where ``value``, the position on ``axis``, is out of range."""
    checked = expr.CheckedIndex(dtypes.int64, value, x.shape[axis], where_text)
    return expr.add_guard(x[index], expr.apply("ge", checked, expr.const(0, dtypes.int64)))


@op("view",
    samples=[S("f32[B,6]", 1, 2, dims={"B": 3}), S("f32[B,T,4]", 1, 0, dims={"B": 2, "T": 3}),
             S("f32[T,4]", 0, -1, dims={"T": 3}), S("f32[T]", 0, 2, dims={"T": 3}),
             S("f64[3,4]", -1, -2),
             S("i32[1]", 0, 0), S("bool[2,2]", 0, 1), S("bf16[3,0]", 0, 2)],
    bad=[Bad("f32[3,4]", 1, 4, match="index 4 is out of range for axis 1 of size 4"),
         Bad("f32[3]", 0, -4, match="out of range"), Bad("f32[3]", 0, 1.0, match="must be an int"),
         Bad("f32[3]", 1, 0, match="axis 1 is out of range")])  # fmt: skip
def select(x: Tensor, axis: int, index: int) -> Tensor:
    """Element ``index`` along ``axis``, which is dropped: ``x[:, index]`` for axis 1. A negative
    index counts from the end.

    Raises ShapeError (IndexError at run time for a named axis) if out of range."""
    lead = (builtins.slice(None),) * normalize_axis(axis, np.ndim(x))
    return x[(*lead, index)]


@select.canonical
def _(x: Any, axis: Any, index: Any) -> Any:
    known = known_type(x)
    if known is None or type(axis) is not int or not -known.rank <= axis < known.rank:
        return None
    size = known.shape[axis]
    if type(size) is int and type(index) is int and -size <= index < 0:
        return select, {"x": x, "axis": axis, "index": index + size}
    return None


@select.infer
def _(x: TensorType, axis: int, index: Any) -> TensorType:
    axis = normalize_axis(axis, x.rank)
    size = x.shape[axis]
    if not (type(index) is int or isinstance(index, sympy.Expr)):
        raise ArgumentError(f"index must be an int or a named dim, not {index!r}; arrays: use take")
    if type(size) is int and type(index) is int and not -size <= index < size:
        raise ShapeError(f"index {index} is out of range for axis {axis} of size {size}")
    return x.with_shape(x.shape[:axis] + x.shape[axis + 1 :])


@select.body
def _(i: MultiIndex, x: Reader, axis: int, index: Any) -> Expr:
    axis = normalize_axis(axis, len(x.shape))
    size = dims_of(x)[axis]
    if type(size) is int and type(index) is int:
        return x[(*i[:axis], Index.of(index % size if size else 0), *i[axis:])]
    if never_negative(index) and never_negative(size - 1 - index):
        return x[(*i[:axis], Index.of(index), *i[axis:])]
    text = f"select on axis {axis}"
    if type(index) is int:
        position = Index.of(index) + (x.shape[axis] if index < 0 else 0)
        at = (*i[:axis], position, *i[axis:])
        return _read_checked(x, at, axis, expr.index_value(index), text)
    return expr.read_at_value(x, axis, i[:axis], expr.index_value(index), i[axis:], text)
