"""NumPy's functions that are more than one op, or need a shape: ``np.split``, ``np.tile``, ``x.transpose(1, 0)``,
``np.linalg.norm`` and others.

In: proxies (or arrays) and arguments as in NumPy. Out: calls of ops. If NumPy returns a copy, the result has memory of
its own (:func:`fxlite.tracing.writes.shared_memory.fresh`), whichever ops make it.
"""

from __future__ import annotations

import itertools
import math
import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxlite.base.errors import number_of
from fxlite.base.state import is_traced, stands_for_any
from fxlite.ops.op import lookup, normalize_axes, normalize_axis
from fxlite.tracing.writes.aliasing import layout_of, take_order_for_granted
from fxlite.tracing.writes.shared_memory import attach, attach_whole, contiguous, fresh, is_number, view_of
from fxlite.types import dtypes, shapes
from fxlite.types.tensor_type import TensorType


def value_type(x: Any) -> TensorType:
    """The type of a proxy, array or number."""
    if is_traced(x):
        return x.type
    array = np.asarray(x)
    return TensorType(array.shape, dtypes.dtype(array.dtype))


def by_name(space: Any, *functions: Callable[..., Any]) -> dict[Any, Callable[..., Any]]:
    """A dict from the NumPy functions in ``space`` to implementations with the same names."""
    return {getattr(space, function.__name__): function for function in functions}


def is_complex(x: Any) -> bool:
    """Whether a value is known to consist of complex numbers."""
    return bool(getattr(x, "is_typed", True)) and value_type(x).dtype.is_complex


def real_(x: Any) -> Any:
    """``x.real`` and np.real: for real numbers, x itself."""
    return lookup("real")(x) if is_complex(x) or not getattr(x, "is_typed", True) else x


def imag_(x: Any) -> Any:
    """``x.imag`` and np.imag: for real numbers, zeros."""
    return lookup("imag")(x)


def conj(x: Any) -> Any:
    """``x.conj()``: for real numbers, x itself."""
    return lookup("conj")(x) if is_complex(x) or not getattr(x, "is_typed", True) else x


def triangle(name: str) -> Callable[..., Any]:
    """np.tril and np.triu; for a one-dimensional array, of the matrix all of whose rows are this array."""

    def call(m: Any, k: int = 0) -> Any:
        shape = m.type.shape
        return lookup(name)(lookup("expand")(m, shape * 2) if len(shape) == 1 else m, k)

    return call


def angle(z: Any, deg: bool = False) -> Any:
    """np.angle, in radians or degrees."""
    found = lookup("atan2")(imag_(z), real_(z)) if is_complex(z) else lookup("atan2")(0, z)
    return lookup("mul")(found, 180 / math.pi) if deg else found


def reshape(x: Any, *shape: Any, order: str = "C", copy: bool | None = None) -> Any:
    """``x.reshape(2, -1)`` and ``np.reshape(x, (2, -1))``."""
    if copy:
        x = fresh(x)
    if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
        shape = tuple(shape[0])
    if _order_of(x, order) == "F":
        return transpose(lookup("reshape")(transpose(x), tuple(shape[::-1])))
    return lookup("reshape")(x, tuple(shape))


def transpose(x: Any, *axes: Any) -> Any:
    if len(axes) == 1 and is_traced(axes[0]):
        axes = tuple(np.asarray(axes[0]))  # an array of axes, which must be known while tracing
    elif len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))):
        axes = tuple(axes[0]) if axes[0] is not None else ()
    rank = value_type(x).rank
    order = [operator.index(axis) for axis in axes] or reversed(range(rank))
    return lookup("permute")(x, tuple(order))


def matrix_transpose(x: Any) -> Any:
    """np.matrix_transpose."""
    return swapaxes(x, -1, -2)


def swapaxes(x: Any, axis1: int, axis2: int) -> Any:
    rank = value_type(x).rank
    order = list(range(rank))
    a, b = normalize_axis(axis1, rank), normalize_axis(axis2, rank)
    order[a], order[b] = order[b], order[a]
    return lookup("permute")(x, tuple(order))


def moveaxis(x: Any, source: Any, destination: Any) -> Any:
    rank = value_type(x).rank
    one = isinstance(source, (int, np.integer))
    sources = [normalize_axis(a, rank) for a in ([source] if one else source)]
    targets = [normalize_axis(a, rank) for a in ([destination] if one else destination)]
    order = [a for a in range(rank) if a not in sources]
    for target, source_axis in sorted(zip(targets, sources)):
        order.insert(target, source_axis)
    return lookup("permute")(x, tuple(order))


def _order_of(x: Any, order: str | None) -> str:
    """The meaning of an order for a value: "C" or "F". Raises ValueError if it depends on a layout that is not
    known."""
    order = (order or "C").upper()
    if order in ("C", "F"):
        return order
    if order not in ("A", "K"):
        raise ValueError(f"order must be one of 'C', 'F', 'A' and 'K', not {order!r}")
    found = _order_in_memory(x)
    if is_traced(x) and x.tracer.runs_program:
        take_order_for_granted(view_of(x), x.tracer, always=True)
    if found or (found == "" and order == "A"):
        return found or "C"
    raise ValueError(f"order={order!r} depends on where memory has the elements of {x.node.name}; give 'C' or 'F'")


def _is_turned(x: Any, order: str | None) -> bool:
    """Whether an array made with this order in the likeness of another one is column-major."""
    order = (order or "K").upper()
    return (_order_in_memory(x) if order in ("A", "K") else order) == "F"


def _order_in_memory(x: Any) -> str | None:
    """The order of a value's elements in memory: "C" or "F", "" for another one, None if it is not known."""
    shape = value_type(x).shape
    layout = layout_of(x) if is_traced(x) else contiguous(shape)
    if layout is None or layout == contiguous(shape):
        return None if layout is None else "C"
    return "F" if layout.strides == contiguous(shape[::-1]).strides[::-1] else ""


def ravel(x: Any, order: str = "C") -> Any:
    whole = transpose(x) if _order_of(x, order) == "F" else x
    found = lookup("reshape")(whole, (-1,))
    return attach_whole(found, whole) if is_traced(whole) and whole.is_typed else found


def flatten(x: Any, order: str = "C") -> Any:
    """``x.flatten()``, which makes a copy, unlike ravel."""
    return fresh(ravel(x, order), in_c_order=True)


def squeeze(x: Any, axis: Any = None) -> Any:
    """np.squeeze. Without an axis, named sizes are required not to be 1, because their axes would then be removed."""
    if axis is None:
        sizes = value_type(x).shape
        axis = tuple(a for a, d in enumerate(sizes) if type(d) is int and d == 1)
        for size in sizes:
            if type(size) is not int:
                x.tracer.require(size, "!=", 1)
    for a in sorted(normalize_axes(axis, value_type(x).rank), reverse=True):
        x = lookup("squeeze")(x, axis=a)
    return x


def expand_dims(x: Any, axis: Any) -> Any:
    axes = shapes.as_tuple(axis)
    rank = value_type(x).rank + len(axes)
    for a in normalize_axes(tuple(axes), rank):
        x = lookup("unsqueeze")(x, axis=a)
    return x


def var(x: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: int = 0, keepdims: bool = False) -> Any:
    if dtype is not None:
        if not dtypes.dtype(dtype).is_inexact:
            raise ValueError(f"a variance in {dtypes.dtype(dtype)} is not traced")
        x = astype(x, dtype)
    if is_complex(x):  # the variance is the sum of those of both parts
        real, imag = (var(part(x), axis, ddof=ddof, keepdims=keepdims) for part in (real_, imag_))
        return lookup("add")(real, imag)
    return lookup("var")(x, axis=axis, correction=ddof, keepdims=keepdims)


def split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """np.split: equal parts, or cuts at indices. Equal parts of a named size require that it is divisible."""
    if not isinstance(indices_or_sections, (int, np.integer)):
        return array_split(x, indices_or_sections, axis)
    sections, size = int(indices_or_sections), _size_of_axis(x, axis)
    if shapes.remainder(size, _checked_sections(sections)) == 0:
        return _parts(x, (shapes.floordiv(size, sections),) * sections, axis)
    if type(size) is int:
        raise ValueError(f"axis {axis} of size {size} does not split into {sections} equal parts")
    x.tracer.require(shapes.remainder(size, sections), "==", 0)
    return array_split(x, sections, axis)


def array_split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """np.array_split: parts whose sizes differ by at most one, the longer ones first, or cuts at indices."""
    size = _size_of_axis(x, axis)
    if is_traced(indices_or_sections) and not indices_or_sections.ndim:
        raise indices_or_sections.tracer.error(
            "into how many parts an axis is split is computed, and how many results there are must be known",
            "cut the parts in a loop: for k in range(n): part = x[k * size // n : (k + 1) * size // n]",
            indices_or_sections.node,
        )
    if not isinstance(indices_or_sections, (int, np.integer)):
        if any(map(is_traced, indices_or_sections)):
            before, ends = (slice(None),) * normalize_axis(axis, value_type(x).rank), [0, *indices_or_sections, None]
            return [x[(*before, slice(a, b))] for a, b in itertools.pairwise(ends)]
        cuts = [0, *(_clamped(cut, size) for cut in indices_or_sections), size]
        sizes = [shapes.normalize(b - a) for a, b in itertools.pairwise(cuts)]
        return _parts(x, sizes, axis)
    sections = _checked_sections(int(indices_or_sections))
    ends = [shapes.normalize(size + sections - 1 - number) for number in range(sections)]
    return _parts(x, [shapes.floordiv(end, sections) for end in ends], axis)


def _clamped(cut: Any, size: Any) -> Any:
    """A cut limited to the axis; it may be counted from the end, or lie outside."""
    if isinstance(cut, (int, np.integer)) and cut < 0:
        return shapes.maximum(shapes.normalize(size + cut), 0)
    return shapes.minimum(cut, size)


def _size_of_axis(x: Any, axis: int) -> Any:
    type = value_type(x)
    return type.shape[normalize_axis(axis, type.rank)]


def _checked_sections(sections: int) -> int:
    if sections < 1:
        raise ValueError(f"an axis is split into 1 part or more, not {sections}")
    return sections


def _parts(x: Any, sizes: Sequence[Any], axis: int) -> list[Any]:
    """The parts of those sizes; the last one is the rest of the axis."""
    last = shapes.normalize(_size_of_axis(x, axis) - sum(sizes[:-1]))
    return list(lookup("split")(x, (*sizes[:-1], last), axis=axis))


_NUMBERS = (*dtypes.NUMBERS, type(None))


def clip(x: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None, out: Any = None) -> Any:
    low, high = (a_min if min is None else min), (a_max if max is None else max)
    if all(type(b) in _NUMBERS or hasattr(b, "is_wildcard") for b in (low, high)):
        return lookup("clip")(x, low, high)
    if is_traced(x):
        x.tracer.may_be_numbers(low, high)
    if getattr(x, "is_typed", True):
        from fxlite.ops.elementwise import clip_bounds

        low, high = clip_bounds(value_type(x).dtype, low, high)
    x = _as_clipped(x, [b for b in (low, high) if b is not None])
    if low is not None:
        x = lookup("maximum")(x, low)
    return x if high is None else lookup("minimum")(x, high)


def _as_clipped(x: Any, bounds: list[Any]) -> Any:
    """``x`` in the dtype in which np.clip computes, if all types are known."""
    values = (x, *bounds)
    if any(isinstance(v, shapes.NamedDim) or not getattr(v, "is_typed", True) for v in values):
        return x
    from fxlite.ops.elementwise import as_numpy

    plain = dtypes.NUMBERS
    weak = [v if type(v) in plain else value_type(v).dtype for v in values]
    return astype(x, as_numpy(np.clip if len(bounds) == 2 else np.maximum)(*weak), copy=False)


def take(x: Any, indices: Any, axis: Any = None) -> Any:
    if axis is None:
        x, axis = ravel(x), 0
    if isinstance(indices, (list, tuple, int)):
        indices = np.asarray(indices)
    return lookup("take")(x, indices, axis=axis)


def repeat(x: Any, repeats: int, axis: Any = None) -> Any:
    """Repeat each element ``repeats`` times, by unsqueeze, expand and reshape."""
    if axis is None:
        x, axis = ravel(x), 0
    shape = list(value_type(x).shape)
    axis = normalize_axis(axis, len(shape))
    wide = [*shape[: axis + 1], repeats, *shape[axis + 1 :]]
    shape[axis] = shapes.normalize(shape[axis] * repeats)
    spread = lookup("expand")(lookup("unsqueeze")(x, axis + 1), tuple(wide))
    return fresh(lookup("reshape")(spread, tuple(shape)), in_c_order=True)


def tile(x: Any, reps: Any) -> Any:
    shape = list(value_type(x).shape)
    counts = [reps] if isinstance(reps, (int, np.integer)) else list(reps)
    rank = max(len(shape), len(counts))
    shape, counts = [1] * (rank - len(shape)) + shape, [1] * (rank - len(counts)) + counts
    paired = lookup("reshape")(x, tuple(d for s in shape for d in (1, s)))
    wide = lookup("expand")(paired, tuple(d for c, s in zip(counts, shape) for d in (c, s)))
    joined = lookup("reshape")(wide, tuple(shapes.normalize(c * s) for c, s in zip(counts, shape)))
    return fresh(joined, in_c_order=True)


def _part(value: Any) -> Any:
    """One of several arrays that are joined, which may be a number or a list of numbers."""
    if not isinstance(value, (tuple, list)):
        return np.asarray(value) if isinstance(value, dtypes.NUMBERS) else value
    found = next((v.tracer for v in value if is_traced(v)), None)
    if found is None:
        return np.asarray(value)
    from fxlite.tracing.capture.answers import stacked

    return stacked(found, value)


def join(name: str) -> Callable[..., Any]:
    """np.concatenate and np.stack."""

    def call(
        arrays: Sequence[Any], axis: int | None = 0, out: Any = None, dtype: Any = None, casting: str = "same_kind"
    ) -> Any:
        parts = tuple(map(_part, arrays))
        if dtype is not None:
            parts = tuple(converted(a, dtypes.dtype(dtype), casting) for a in parts)
        if axis is None:
            parts, axis = tuple(ravel(p) for p in parts), 0
        return lookup(name)(parts, axis=axis)

    return call


def stacked(axis: int, rank: int) -> Callable[..., Any]:
    """np.vstack and np.hstack."""

    def call(arrays: Sequence[Any], dtype: Any = None, casting: str = "same_kind") -> Any:
        parts = [*map(_part, arrays)]
        if dtype is not None:
            parts = [converted(p, dtypes.dtype(dtype), casting) for p in parts]
        for number, part in enumerate(parts):
            for _ in range(rank - value_type(part).rank):
                parts[number] = lookup("unsqueeze")(parts[number], 0)
        return lookup("concat")(tuple(parts), axis=axis if value_type(parts[0]).rank > 1 else 0)

    return call


def like(value: float) -> Callable[..., Any]:
    """np.zeros_like and np.ones_like."""
    return lambda x, dtype=None, order="K", subok=True, shape=None, device=None: full_like(
        x, value, dtype, order, shape=shape
    )


def full_like(
    x: Any,
    fill_value: Any,
    dtype: Any = None,
    order: str = "K",
    subok: bool = True,
    shape: Any = None,
    device: Any = None,
) -> Any:
    if shape is None and value_type(x).rank > 1 and _is_turned(x, order):
        if order.upper() in ("A", "K"):
            return transpose(full_like(transpose(x), fill_value, dtype))
        return transpose(full_like(x, fill_value, dtype, shape=value_type(x).shape[::-1]))
    known = value_type(x)
    if shape is not None:
        known = known.with_shape((shape,) if isinstance(shape, (int, np.integer)) else tuple(shape))
    target = known.dtype if dtype is None else dtypes.dtype(dtype)
    if is_traced(fill_value):
        return fresh(lookup("expand")(lookup("cast")(fill_value, target), known.shape))
    full = lookup("full")
    if is_traced(x):  # sizes may be named, and there may be no running trace
        made = x.tracer.record(full, full.bind((known.shape, fill_value), {"dtype": target}))
        if shape is None and known.rank > 1 and order.upper() in ("A", "K") and x.tracer.runs_program:
            view = view_of(made)  # with the memory order of x
            view.made, view.copied = x.node, True
        return made
    return full(known.shape, fill_value, dtype=target)


def dot(x: Any, y: Any, out: Any = None) -> Any:
    if value_type(x).rank == 0 or value_type(y).rank == 0:
        return lookup("mul")(*map(_strict, (x, y)))
    if value_type(y).rank > 2:  # np.dot pairs all rows with all columns
        return np.tensordot(x, y, axes=(-1, -2))
    return lookup("matmul")(x, y)


def _strict(x: Any) -> Any:
    """A number of Python as an array, whose dtype counts in a promotion, as NumPy's products take it."""
    if not is_traced(x):
        return np.asarray(x)
    return fresh(x) if hasattr(x, "python_type") else x


def outer(x: Any, y: Any, out: Any = None) -> Any:
    return lookup("mul")(lookup("unsqueeze")(ravel(x), -1), ravel(y))


def astype(x: Any, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True) -> Any:
    if stands_for_any(dtype):
        return lookup("cast")(x, dtype)
    target = dtypes.dtype(dtype)
    if is_traced(x) and x.is_typed and x.type.dtype is target:
        return fresh(x, number=is_number(x)) if copy else x
    if is_traced(x) and is_complex(x) and not target.is_complex and not target.is_bool:
        said = x.tracer.error(f"{x.type} becomes {target}, which drops the imaginary part", "x.real")
        warnings.warn(str(said), np.exceptions.ComplexWarning, stacklevel=2)
    return lookup("cast")(x, target)


def converted(x: Any, dtype: dtypes.DType, casting: str) -> Any:
    """``x`` as ``dtype``. Raises TypeError if NumPy's casting rule does not allow it."""
    found = value_type(x).dtype
    if not np.can_cast(found.numpy, dtype.numpy, casting):  # type: ignore[arg-type]
        raise TypeError(f"{found} does not become {dtype} by the rule {casting!r}")
    return astype(x, dtype, copy=False)


def _axis_of(x: Any, axis: Any) -> Any:
    """The axis for a reduction. In sum, max, argmax and cumsum, NumPy accepts axis 0 for a value of rank 0."""
    if axis in (0, -1) and getattr(x, "is_typed", True) and value_type(x).rank == 0:
        return None
    return axis


def reduction(name: str) -> Callable[..., Any]:
    """np.sum, np.mean, np.prod, with ``dtype=``."""

    def call(x: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        axis = axis if name == "mean" else _axis_of(x, axis)
        if dtype is None:
            return lookup(name)(x, axis=axis, keepdims=keepdims)
        target = dtypes.dtype(dtype)
        if name == "mean" and not target.is_inexact:  # the sum in that dtype, divided as floats
            sizes = value_type(x).shape
            count = shapes.product(sizes[a] for a in normalize_axes(axis, len(sizes)))
            total = reduction("sum")(x, axis, target, keepdims=keepdims)
            return lookup("cast")(lookup("div")(total, shapes.for_user(count)), target)
        found = lookup(name)(_addends(x, target), axis=axis, keepdims=keepdims)
        return lookup("cast")(found, target)

    return call


def _addends(x: Any, target: dtypes.DType) -> Any:
    """``x`` as NumPy sums it with ``dtype=``. Integers wrap around in that dtype, also at the end, so that they may be
    added as int64."""
    made = astype(x, target)
    return astype(made, "i64") if target.is_integer else made


def extreme(name: str) -> Callable[..., Any]:
    """np.max, np.argmax, np.any and similar functions, which have no ``dtype=``."""

    def call(x: Any, axis: Any = None, out: Any = None, keepdims: bool = False, **initial: Any) -> Any:
        return lookup(name)(x, axis=_axis_of(x, axis), keepdims=keepdims, **initial)

    return call


def scan(name: str) -> Callable[..., Any]:
    """np.cumsum and similar functions, with ``dtype=``."""

    def call(x: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        if _axis_of(x, axis) is None:
            x, axis = ravel(x), 0
        if dtype is None:
            return lookup(name)(x, axis=axis)
        target = dtypes.dtype(dtype)
        return lookup("cast")(lookup(name)(_addends(x, target), axis=axis), target)

    return call


def _with_text(first: Any, *rest: Any) -> tuple[Any, ...]:
    """The arguments of np.einsum, with an equation in place of lists of axes after each array."""
    given = [first, *rest]
    axes = given[1::2]

    def letters(numbers: Any) -> str:
        return "".join("..." if n is Ellipsis else chr(ord("a") + int(n)) for n in numbers)

    right = "->" + letters(given[-1]) if len(given) % 2 else ""
    return ",".join(letters(numbers) for numbers in axes) + right, *given[: 2 * len(axes) : 2]


def einsum(equation: Any, *operands: Any, optimize: Any = False, dtype: Any = None) -> Any:
    if is_traced(equation) and operands and isinstance(operands[0], (list, tuple)):
        equation, *operands = _with_text(equation, *operands)  # type: ignore[assignment]
    if dtype is not None:
        raise ValueError("np.einsum is traced without dtype=; cast the operands: .astype")
    if stands_for_any(equation):  # a parameter of a pattern
        return lookup("einsum")(tuple(operands), equation)
    if not isinstance(equation, str):
        raise ValueError("np.einsum is traced with a text: 'ij,jk->ik'")
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if any(_repeated(term) for term in terms) and len(terms) == len(operands):
        if not arrow and "..." not in left:  # the letters that occur once, in order
            arrow, right = "->", "".join(sorted(c for c in {*left} - {","} if left.count(c) == 1))
        pairs = [_with_diagonals(term, x) for term, x in zip(terms, operands)]
        equation = ",".join(term for term, _ in pairs) + arrow + right
        operands = tuple(x for _, x in pairs)
    found = lookup("einsum")(tuple(operands), equation)
    is_number = optimize is False and getattr(found.node.type, "shape", None) == ()
    return fresh(found, number=True) if is_number else found


def _repeated(term: str) -> str:
    """A letter that occurs twice in the term of an operand; empty if there is none."""
    return next((c for c in term if c.isalpha() and term.count(c) > 1), "")


def _with_diagonals(term: str, x: Any) -> tuple[str, Any]:
    """The term of an operand and the operand, with a diagonal in place of each pair of equal letters."""
    while letter := _repeated(term):
        if "..." in term:
            raise ValueError(f"{letter!r} twice beside '...' is not traced; take the diagonal first: np.diagonal")
        first = term.index(letter)
        second = term.index(letter, first + 1)
        x = diagonal(x, 0, first, second)
        term = term.replace(letter, "", 2) + letter
    return term, x


def round_(x: Any, decimals: int = 0, out: Any = None) -> Any:
    """np.round. Integers have no decimals; to tens or hundreds they are rounded as float64."""
    if value_type(x).dtype.is_integer:
        if decimals >= 0:
            return fresh(x, number=True)
        return lookup("cast")(round_(lookup("cast")(x, "f64"), decimals), value_type(x).dtype)
    if not decimals:
        return lookup("round")(x)
    if value_type(x).dtype.is_bool:
        raise ValueError("np.round of bool takes no decimals")
    up, down = ("mul", "div") if decimals > 0 else ("div", "mul")
    power = 10.0 ** abs(decimals)
    return lookup(down)(lookup("round")(lookup(up)(x, power)), power)


def where(condition: Any, *values: Any) -> Any:
    """np.where; with only a condition, the positions at which it is true."""
    return lookup("where")(condition, *values) if values else np.nonzero(condition)


def copy(x: Any, order: str = "K", subok: bool = False) -> Any:
    """np.copy: a value with memory of its own."""
    return fresh(x)


def copy_method(x: Any, order: str = "C") -> Any:
    """``x.copy()``: a value with memory of its own, in C order, or that of a transposed copy."""
    if order == "F" and value_type(x).rank > 1:
        return transpose(fresh(transpose(x), in_c_order=True))
    return fresh(x, in_c_order=order == "C", number=is_number(x))


def flip(x: Any, axis: Any = None) -> Any:
    for a in normalize_axes(axis, value_type(x).rank):
        x = lookup("flip")(x, axis=a)
    return x


def roll(x: Any, shift: Any, axis: Any = None) -> Any:
    """np.roll; with tuples of shifts and axes, axes are rolled one after another."""
    if axis is None:
        return lookup("reshape")(roll(ravel(x), shift, 0), value_type(x).shape)
    axes = shapes.as_tuple(axis)
    if is_traced(shift) and shift.ndim == 1:
        shift = tuple(shift)
    shifts = shift if isinstance(shift, (tuple, list)) else (shift,) * len(axes)
    axes = axes if len(axes) != 1 else tuple(axes) * len(shifts)
    shifts = shifts if len(shifts) != 1 else tuple(shifts) * len(axes)
    if len(shifts) != len(axes):
        raise ValueError(f"{number_of(len(shifts), 'shift')} for {number_of(len(axes), 'axis', 'axes')}")
    for s, a in zip(shifts, axes):
        if is_traced(s):
            size = shapes.for_user(value_type(x).shape[a])
            x = lookup("take")(x, (np.arange(size) - s) % size, axis=a)
        else:
            x = lookup("roll")(x, s, axis=a)
    return x


def broadcast_to(x: Any, shape: Any, subok: bool = False) -> Any:
    return lookup("expand")(x, shapes.as_tuple(shape))


def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """np.diagonal, whose elements are the last axis."""
    whole, rank = x, value_type(x).rank
    if (normalize_axis(axis1, rank), normalize_axis(axis2, rank)) != (rank - 2, rank - 1):
        x = moveaxis(x, (axis1, axis2), (-2, -1))
    *others, rows, columns = value_type(x).shape
    if not all(type(size) is int for size in (rows, columns)):
        below, right = max(-offset, 0), max(offset, 0)
        size = shapes.minimum(shapes.normalize(rows - below), shapes.normalize(columns - right))
        size = size if shapes.at_least(size, 0) else shapes.maximum(size, 0)
        places = _positions(x, shapes.for_user(size))
        found = x[..., places + below, places + right]
        attach(found, whole, None, {})
        view_of(found).read_only = True
        return found
    start = offset if offset >= 0 else -offset * columns
    count = max(min(columns - max(offset, 0), rows + min(offset, 0)), 0)
    flat = lookup("reshape")(x, (*others, rows * columns))
    found = lookup("slice")(flat, axis=len(others), start=start, stop=start + count * (columns + 1), step=columns + 1)
    if is_traced(whole) and (x is not whole or not _is_contiguous(x)):
        attach(found, whole, None, {})  # a view of a value that may have been copied here
    if is_traced(found):
        view_of(found).read_only = True
    return found


def _is_contiguous(x: Any) -> bool:
    """Whether a value is in C order in NumPy, so that reshaping makes no copy."""
    return layout_of(x) == contiguous(value_type(x).shape)


def _positions(x: Any, size: Any) -> Any:
    """0, 1, ... up to but without a size, in the graph of a traced value."""
    return x.tracer.record(lookup("arange"), {"start": 0, "stop": size, "step": 1, "dtype": dtypes.int64})


#: The most rows of a mask that becomes a constant of a graph.
_SMALL = 64


def diag(x: Any, k: int = 0) -> Any:
    """np.diag: the diagonal of a matrix, which is a view of it, or a matrix with that diagonal."""
    if value_type(x).rank != 1:
        return diagonal(x, k)
    size = value_type(x).shape[0]
    if type(size) is int and size <= _SMALL:
        places: Any = np.eye(size, dtype=bool)
    else:
        counted = _positions(x, size)
        places = lookup("eq")(lookup("unsqueeze")(counted, 1), counted)
    matrix = lookup("where")(places, x, lookup("cast")(0, value_type(x).dtype))
    return lookup("pad")(matrix, ((max(-k, 0), max(k, 0)), (max(k, 0), max(-k, 0))))


def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Any:
    return reduction("sum")(diagonal(x, offset, axis1, axis2), -1, dtype)


def inner(x: Any, y: Any) -> Any:
    """np.inner: products along the last axes of both."""
    if not value_type(x).rank or not value_type(y).rank:
        return lookup("mul")(*map(_strict, (x, y)))
    found: Any = np.tensordot(x, y, axes=(-1, -1))
    return fresh(found, number=True)


def vdot(x: Any, y: Any) -> Any:
    return dot(conj(ravel(x)), ravel(y))


def vecdot(x: Any, y: Any, axis: int = -1) -> Any:
    x, y = (moveaxis(v, axis, -1) for v in (x, y))
    return lookup("einsum")((conj(x), y), "...i,...i->...")


def count_nonzero(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return reduction("sum")(lookup("ne")(x, 0), axis, np.intp, keepdims=keepdims)


def average(x: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False) -> Any:
    """np.average. If the sum of the weights is 0, the result is infinite or NaN, whereas NumPy raises an error."""
    if not value_type(x).dtype.is_inexact:
        x = lookup("cast")(x, dtypes.float64)
    rank, add = value_type(x).rank, reduction("sum")
    ones = full_like(x, 1)
    if weights is None:
        mean = reduction("mean")(x, axis, keepdims=keepdims)
        total = add(ones, axis, keepdims=keepdims)
    else:
        if value_type(weights).rank != rank:
            others = [a for a in range(rank) if a not in normalize_axes(axis, rank)]
            weights = expand_dims(weights, tuple(others))
        total = add(lookup("mul")(weights, ones), axis, keepdims=keepdims)
        mean = lookup("div")(add(lookup("mul")(x, weights), axis, keepdims=keepdims), total)
    return (mean, np.broadcast_to(total, mean.shape).copy()) if returned else mean


def result_type(*operands: Any) -> Any:
    """np.result_type, in which a traced value counts as an array of its dtype."""
    return np.result_type(*(v.dtype if is_traced(v) else v for v in operands))


FUNCTIONS = by_name(np, reshape, swapaxes, moveaxis, ravel, squeeze, expand_dims, split, array_split, clip, tile, where)
FUNCTIONS |= by_name(np, flip, roll, einsum, dot, outer, broadcast_to, full_like, copy, average, diag, diagonal, trace)
FUNCTIONS |= by_name(np, inner, vdot, count_nonzero, result_type, angle)
FUNCTIONS[np.astype] = lambda x, dtype, *, copy=True, device=None: astype(x, dtype, copy=copy)
#: Methods of ndarray of the same names.
METHODS = (reshape, transpose, swapaxes, ravel, flatten, squeeze, clip, dot, diagonal, trace, astype, conj)
