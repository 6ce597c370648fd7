"""ATen's reductions, scans, sorts and products."""

from __future__ import annotations

from typing import Any

import numpy as np

import fxlite.nn.functional as F
from fxlite.importing.torch.table import (
    Call,
    along,
    as_array,
    aten,
    axes_of,
    axis_of,
    cast,
    dtype_of_value,
    each,
    is_number,
    op,
    rank_of,
    same,
    same_sizes,
    shape_of,
)
from fxlite.types import dtypes


def _reduction(own: str, casts: bool) -> Any:
    """An entry for a reduction. ``casts``: it is computed in the dtype of the result."""

    def entry(c: Call, x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        return op(own)(cast(x, c.dtype) if casts else x, axes_of(dim, rank_of(x)), keepdim)

    return entry


for _name, _own in each("sum mean prod logsumexp special_logsumexp=logsumexp"):
    aten(_name)(_reduction(_own, True))
for _name, _own in each("amax=max amin=min max.default=max min.default=min any all"):
    aten(_name)(_reduction(_own, False))
aten("nansum")(
    lambda c, x, *args, **named: _reduction("sum", True)(c, op("where")(op("isnan")(x), 0, x), *args, **named)
)


@aten("max.other", "min.other")
def _larger(c: Call, x: Any, y: Any) -> Any:
    return op("maximum" if "max" in c.name else "minimum")(cast(x, c.dtype), cast(y, c.dtype))


@aten("max.dim", "min.dim")
def _extreme_of_axis(c: Call, x: Any, dim: int, keepdim: bool = False) -> Any:
    name = c.name
    return op(name)(x, (axis_of(x, dim),), keepdim), op(f"arg{name}")(x, axis_of(x, dim), keepdim)


@aten("argmax", "argmin")
def _argmax(c: Call, x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    name = c.name
    return op(name)(x, None if dim is None else axis_of(x, dim), keepdim)


@aten("count_nonzero")
def _count_nonzero(c: Call, x: Any, dim: Any = None) -> Any:
    return op("sum")(cast(op("ne")(x, 0), c.dtype), axes_of(dim, rank_of(x)))


def _spread_arguments(args: Any, correction: Any, unbiased: Any) -> tuple[Any, Any, bool]:
    """The arguments dim, correction and keepdim of var and std, whose overloads differ."""
    given = list(args)
    if (given and isinstance(given[0], bool)) or (unbiased is not None and not given):
        return None, int(given[0] if given else unbiased), False
    dim = given[0] if given else None
    if len(given) > 1:
        correction = int(given[1])
    return dim, correction, bool(given[2]) if len(given) > 2 else False


@aten("var", "std", "var_mean", "std_mean")
def _spread(c: Call, x: Any, *args: Any, correction: Any = None, keepdim: bool = False, unbiased: Any = None) -> Any:
    dim, correction, keep = _spread_arguments(args, correction, unbiased)
    axes, keep = axes_of(dim, rank_of(x)), keep or keepdim
    parts = (op("real")(x), op("imag")(x)) if dtype_of_value(x).is_complex else (x,)
    found, *more = (op("var")(part, axes, 1 if correction is None else correction, keep) for part in parts)
    found = found + more[0] if more else found
    found = op("sqrt")(found) if c.name.startswith("std") else found
    return (found, op("mean")(x, axes, keep)) if c.name.endswith("mean") else found


@aten("norm", "linalg_vector_norm", "linalg_norm", "frobenius_norm")
def _norm(c: Call, x: Any, p: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    if "frobenius" in c.name:
        p, dim, keepdim = 2, p, bool(dim)
    count = rank_of(x) if dim is None else len(dim) if isinstance(dim, (list, tuple)) else 1
    if c.name == "linalg_norm" and count == 2 and p not in (None, "fro"):
        return _matrix_norm(c, x, p, (-2, -1) if dim is None else dim, keepdim)
    x = op("abs")(x) if dtype_of_value(x).is_complex else x  # before the cast to the dtype of the result
    return _of_order(cast(x, c.dtype), 2 if p is None or p == "fro" else p, axes_of(dim, rank_of(x)), keepdim)


def _of_order(x: Any, p: float, axes: Any, keepdim: bool = False) -> Any:
    """The vector norm of order p over axes."""
    x = op("abs")(x) if dtype_of_value(x).is_complex else x
    if p == 2:
        return op("sqrt")(op("sum")(x * x, axes, keepdim))
    if p == 1:
        return op("sum")(op("abs")(x), axes, keepdim)
    if p in (float("inf"), float("-inf")):
        return op("max" if p > 0 else "min")(op("abs")(x), axes, keepdim)
    if p == 0:
        return op("sum")(cast(op("ne")(x, 0), dtype_of_value(x)), axes, keepdim)
    return op("pow")(op("sum")(op("pow")(op("abs")(x), p), axes, keepdim), 1 / p)


@aten("embedding_renorm")
def _embedding_renorm(c: Call, weight: Any, indices: Any, max_norm: float, norm_type: float) -> Any:
    """A table in which the rows that are looked up are scaled down to at most ``max_norm``."""
    rows, flat = shape_of(weight)[0], indices.reshape(-1)
    count = op("scatter_add")(np.zeros(rows, np.int64), flat, op("full")(shape_of(flat), 1, dtypes.int64), 0)
    norm = _of_order(weight, norm_type, (1,), True)
    is_long = op("logical_and")((count > 0)[:, None], norm > max_norm)
    return op("where")(is_long, weight * (max_norm / (norm + 1e-7)), weight)


@aten("linalg_matrix_norm")
def _matrix_norm(
    c: Call, x: Any, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None
) -> Any:
    x = op("abs")(x) if dtype_of_value(x).is_complex and ord not in (2, -2, "nuc") else x
    return np.linalg.norm(x if dtype is None else cast(x, c.dtype), ord, tuple(dim), keepdim)


@aten("linalg_vecdot")
def _vecdot(c: Call, x: Any, y: Any, *, dim: int = -1) -> Any:
    x = op("conj")(x) if dtype_of_value(x).is_complex else x
    return op("sum")(cast(x, c.dtype) * cast(y, c.dtype), dim)


@aten("_weight_norm", "_weight_norm_interface")
def _weight_norm(c: Call, v: Any, g: Any, dim: int = 0) -> Any:
    others = tuple(a for a in range(rank_of(v)) if a != axis_of(v, dim)) if dim != -1 else axes_of(None, rank_of(v))
    norm = op("sqrt")(op("sum")(v * v, others, True))
    found = v * (g / norm)
    return (found, norm) if isinstance(c.value, (tuple, list)) else found


# -- along an axis ---------------------------------------------------------------------------------
@aten("cumsum", "cumprod")
def _cumulative(c: Call, x: Any, dim: int, *, dtype: Any = None) -> Any:
    return op(c.name)(cast(x, c.dtype), axis_of(x, dim))


@aten("softmax", "_softmax", "log_softmax", "_log_softmax")
def _softmax(c: Call, x: Any, dim: int, dtype: Any = None) -> Any:
    return op(c.name.removeprefix("_"))(cast(x, c.dtype), axis_of(x, dim))


@aten("sort")
def _sort(c: Call, x: Any, dim: Any = -1, descending: bool = False, stable: Any = None) -> Any:
    axis = axis_of(x, dim)
    order = _order(x, axis, descending)
    return op("gather")(x, order, axis), order


def _order(x: Any, axis: int, descending: bool) -> Any:
    """The positions that sort x, stably. In descending order, NaN comes first; they are those of a sort of the
    reversed array, read backwards."""
    if not descending or not rank_of(x):
        return op("argsort")(x, axis)
    backwards = op("flip")(op("argsort")(op("flip")(x, axis), axis), axis)
    return shape_of(x)[axis] - 1 - backwards


@aten("msort")
def _msort(c: Call, x: Any) -> Any:
    return op("sort")(x, 0)


@aten("kthvalue")
def _kthvalue(c: Call, x: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    return _at_rank(x, k - 1, dim, keepdim)


@aten("median", "nanmedian")
def _median(c: Call, x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower of the two middle elements. ``median`` returns NaN if there is one; ``nanmedian``
    ignores NaN."""
    if dim is None:
        return _median(c, x.reshape(-1), 0)[0]
    count: Any = shape_of(x)[axis_of(x, dim)] if rank_of(x) else 1
    if dtype_of_value(x).is_float and rank_of(x):
        missing = op("sum")(cast(op("isnan")(x), dtypes.int64), axis_of(x, dim), True)
        middle = (count - 1) // 2
        rank = op("where")(missing > 0, count - 1, middle) if c.name == "median" else (count - missing - 1) // 2
        return _at_rank(x, op("maximum")(rank, 0), dim, keepdim)
    return _at_rank(x, (count - 1) // 2, dim, keepdim)


def _at_rank(x: Any, rank: Any, dim: int, keepdim: bool) -> Any:
    """The element with a rank (from 0) in sorted order, and its position. ``rank`` may be an array [..., 1, ...]."""
    axis = axis_of(x, dim)
    if not rank_of(x):
        return x, np.zeros((), np.int64)
    order = op("argsort")(x, axis)
    one = is_number(rank)
    place = op("unsqueeze")(order[along(x, axis, rank)], axis) if one else op("gather")(order, rank, axis)
    found = op("gather")(x, place, axis), place
    return found if keepdim else tuple(op("squeeze")(v, axis) for v in found)


@aten("mode")
def _mode(c: Call, x: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """The most frequent element of an axis (of several, the smallest), and its last position."""
    x = np.moveaxis(x, dim, -1)
    count = op("sum")(cast(op("eq")(x[..., :, None], x[..., None, :]), dtypes.int64), (-1,))
    order = op("argsort")(x, rank_of(x) - 1)
    best = op("argmax")(op("gather")(count, order, rank_of(x) - 1), rank_of(x) - 1, True)
    found = op("gather")(x, op("gather")(order, best, rank_of(x) - 1), rank_of(x) - 1)
    place = op("arange")(0, shape_of(x)[-1], 1, dtypes.int64)
    place = op("max")(op("where")(op("eq")(x, found), place, -1), (-1,), True)
    return tuple(np.moveaxis(v, -1, dim) if keepdim else v[..., 0] for v in (found, place))


@aten("cummax", "cummin")
def _running_extreme(c: Call, x: Any, dim: int) -> Any:
    """Also returns the position of the last element that is at least as large as all before it."""
    if not rank_of(x):
        return x, np.zeros((), np.int64)
    axis = axis_of(x, dim)
    found = op(c.name)(x, axis)
    size = shape_of(x)[axis]
    place = op("arange")(0, size, 1, dtypes.int64).reshape([size if a == axis else 1 for a in range(rank_of(x))])
    is_new = op("eq")(x, found)
    is_new = op("logical_or")(is_new, op("isnan")(x)) if dtype_of_value(x).is_float else is_new
    return found, op("cummax")(op("where")(is_new, place, 0), axis)


@aten("logcumsumexp")
def _logcumsumexp(c: Call, x: Any, dim: int) -> Any:
    """Computed by doubling, in log2(n) steps: each element adds the sum that ends just before its own."""
    axis, distance = axis_of(x, dim), 1
    size = shape_of(x)[axis] if rank_of(x) else 1
    if type(size) is not int:
        raise c.refuse(f"along an axis of {size} elements, whose number may differ")
    while distance < size:
        first, rest, before = (
            x[along(x, axis, part)] for part in (slice(distance), slice(distance, None), slice(-distance))
        )
        x, distance = op("concat")([first, op("logaddexp")(rest, before)], axis), 2 * distance
    return x


@aten("argsort")
def _argsort(c: Call, x: Any, dim: int = -1, descending: bool = False, stable: Any = None) -> Any:
    return _sort(c, x, dim, descending)[1]


@aten("topk")
def _topk(c: Call, x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    axis = axis_of(x, dim)
    order = op("slice")(_order(x, axis, largest), axis, 0, k)
    return op("gather")(x, order, axis), order


@aten("diff")
def _diff(c: Call, x: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Any:
    found = [part for part in (prepend, x, append) if part is not None]
    return np.diff(op("concat")(found, axis_of(x, dim)) if len(found) > 1 else x, n, axis_of(x, dim))


@aten("bucketize")
def _bucketize(c: Call, x: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False) -> Any:
    boundaries, x = (as_array(v, c.promoted()) for v in (boundaries, x))
    return cast(op("searchsorted")(boundaries, x, "right" if right else "left"), c.dtype)


@aten("histogram.bins_tensor", "histogram.bin_ct")
def _histogram(
    c: Call, x: Any, bins: Any = 100, *, range: Any = None, weight: Any = None, density: bool = False
) -> Any:
    """How many elements are in each bin, and the edges of the bins."""
    return np.histogram(x.reshape(-1), bins, range, density, weight if weight is None else weight.reshape(-1))


@aten("histc")
def _histc(c: Call, x: Any, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    x = x.reshape(-1)
    if min == max:  # the range of the elements, widened if all are equal
        low, high = op("min")(x), op("max")(x)
        is_one = op("eq")(low, high)
        min, max = op("where")(is_one, low - 1, low), op("where")(is_one, high + 1, high)
    place = np.minimum(np.floor((x - min) * bins / (max - min)), bins - 1)
    place = op("where")((x >= min) & (x <= max), place, -1.0)
    return (place[:, None] == np.arange(bins, dtype=np.float32)).sum(0).astype(c.dtype.numpy)


@aten("searchsorted")
def _searchsorted(
    c: Call,
    x: Any,
    values: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    x, values = (as_array(v, c.promoted()) for v in (x, values))
    if sorter is not None:
        x = np.take_along_axis(x, sorter, -1) if rank_of(x) > 1 else x[sorter]
    right = right if side is None else side == "right"
    if rank_of(x) > 1:  # count the elements before each place
        lower, value = x[..., None, :], values[..., :, None]
        return op("sum")(cast(lower <= value if right else lower < value, c.dtype), rank_of(x))
    return cast(op("searchsorted")(x, values, "right" if right else "left"), c.dtype)


@aten("segment_reduce")
def _segment_reduce(
    c: Call,
    data: Any,
    reduce: str,
    *,
    lengths: Any = None,
    indices: Any = None,
    offsets: Any = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Any:
    """A reduction of each segment of the first axis, which its length or its first and next offset give."""
    segments = lengths if lengths is not None else offsets
    if segments is None or rank_of(segments) != 1 or axis:
        raise c.refuse("segments that are not given by lengths or offsets along the first axis")
    ends = op("cumsum")(cast(lengths, dtypes.int64), 0) if lengths is not None else cast(offsets, dtypes.int64)[1:]
    starts = ends - cast(lengths, dtypes.int64) if lengths is not None else cast(offsets, dtypes.int64)[:-1]
    rows = op("arange")(0, shape_of(data)[0], 1, dtypes.int64)
    inside = op("logical_and")(rows >= starts[:, None], rows < ends[:, None])
    inside = inside.reshape(*shape_of(inside), *[1] * (rank_of(data) - 1))
    neutral = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -np.inf, "min": np.inf}[reduce]
    found = op("sum" if reduce == "mean" else reduce)(op("where")(inside, data[None], neutral), (1,))
    if initial is not None:
        start = {"sum": np.add, "mean": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[reduce]
        found = start(found, initial)
    if reduce == "mean":
        count = cast((ends - starts).reshape(-1, *[1] * (rank_of(data) - 1)), c.dtype)
        found = found / count if initial is None else op("where")(count > 0, found / op("maximum")(count, 1), initial)
    return cast(found, c.dtype)


# -- products --------------------------------------------------------------------------------------
@aten("mm", "bmm", "matmul", "mv", "dot", "linalg_matmul", "vdot")
def _matmul(c: Call, x: Any, y: Any) -> Any:
    if c.name == "vdot" and dtype_of_value(x).is_complex:
        x = op("conj")(x)
    return op("matmul")(cast(x, c.dtype), cast(y, c.dtype))


@aten("_scaled_mm")
def _scaled_mm(
    c: Call,
    x: Any,
    y: Any,
    scale_a: Any,
    scale_b: Any,
    bias: Any = None,
    scale_result: Any = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Any:
    """The product of float8 matrices, with a scale for each, or for each of its rows or columns."""
    if scale_result is not None:
        raise c.refuse("a scale of the result")
    scales = [shape_of(s) for s in (scale_a, scale_b) if rank_of(s) == 2]
    if not all(any(same_sizes((n,), (1,)) for n in sizes) for sizes in scales):
        raise c.refuse("scales of blocks")
    found = op("matmul")(x, y) * scale_a * scale_b
    return cast(found if bias is None else found + bias, c.dtype)


@aten("_grouped_mm", "transformers.grouped_mm_fallback")
def _grouped_mm(c: Call, x: Any, weight: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """The product of the rows of ``x`` with the matrix of their group, which ends at its element of ``offs``."""
    if rank_of(x) != 2 or rank_of(weight) != 3 or bias is not None:
        raise c.refuse("groups along other axes than the rows of the first operand")
    rows = op("arange")(0, shape_of(x)[0], 1, dtypes.int64)
    group = (rows[:, None] >= offs).sum(1)
    count = shape_of(weight)[0]
    found = (x[:, None, :] @ weight[np.minimum(group, count - 1)])[:, 0, :]
    return cast(op("where")((group < count)[:, None], found, 0.0), c.dtype)


same("inner", np.inner)
same("outer ger", lambda x, y: x[:, None] * y)
same("linear", op("linear"))
same("bilinear", F.bilinear)
same("cosine_similarity", op("cosine_similarity"))
same("trace", np.trace)


@aten("addmm", "addbmm", "baddbmm", "addmv")
def _addmm(c: Call, bias: Any, x: Any, y: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    if not (c.dtype.is_float or c.dtype.is_complex):
        beta, alpha = int(beta), int(alpha)
    found = op("matmul")(x, y)
    if "addbmm" in c.name and "baddbmm" not in c.name:
        found = op("sum")(found, (0,))
    found = found if alpha == 1 else found * alpha
    return found if beta == 0 else found + (bias if beta == 1 else bias * beta)


@aten("einsum")
def _einsum(c: Call, equation: str, operands: Any, path: Any = None) -> Any:
    letters = [char for char in equation if char.isalpha()]
    if len({*letters}) > 52:
        raise c.refuse("more than 52 letters")
    return np.einsum(equation.replace(" ", ""), *(cast(v, c.dtype) for v in operands))


@aten("tensordot")
def _tensordot(c: Call, x: Any, y: Any, dims_x: Any, dims_y: Any) -> Any:
    return np.tensordot(x, y, (tuple(dims_x), tuple(dims_y)))


@aten("linalg_cross")
def _linalg_cross(c: Call, x: Any, y: Any, dim: int = -1) -> Any:
    return np.cross(x, y, axis=dim)


@aten("cross")
def _cross(c: Call, x: Any, y: Any, dim: int | None = None) -> Any:
    """Without ``dim``, the first axis with three elements is used."""
    return np.cross(x, y, axis=[*shape_of(x)].index(3) if dim is None else dim)


@aten("dist")
def _dist(c: Call, x: Any, y: Any, p: float = 2) -> Any:
    apart = x - y
    return _of_order(apart, p, axes_of(None, rank_of(apart)))


@aten("pdist", "_pdist_forward")
def _pdist(c: Call, x: Any, p: float = 2) -> Any:
    one, other = np.triu_indices(shape_of(x)[0], 1)
    return _of_order(x[one] - x[other], p, (1,))


@aten("cdist", "_cdist_forward")
def _cdist(c: Call, x: Any, y: Any, p: float = 2, *_: Any) -> Any:
    apart = x[..., :, None, :] - y[..., None, :, :]
    return _of_order(apart, p, (rank_of(apart) - 1,))
