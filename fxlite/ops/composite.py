"""Composites: ops that are defined by other ops. Each is one node until a back end expands it.

In: :func:`composite`, the decorator with which the families ``activation``, ``normalization``,
``attention`` and ``loss`` register their ops. Out: records with a type rule, an expansion, and a NumPy
reference that is written independently of the expansion. All of them share these rules:

- results have the dtype of ``x``, and weights and other float operands are converted to it;
- half types are computed in float32 and rounded once, at the end, in both definitions;
- an eager call raises the same error as a traced one, because the type rule is checked first.

This file has the softmax family, the variance and the vector norms.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fxlite.base.errors import DTypeError, ShapeError
from fxlite.base.state import is_traced
from fxlite.ops.op import Axis, Op, Tensor, broadcast_shapes, normalize_axes, normalize_axis, op, ops, require_float
from fxlite.ops.reduction import reduced_shape
from fxlite.ops.samples import Bad, S
from fxlite.types import dtypes, shapes
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import TensorType


def dtype_of(x: Any) -> DType | None:
    """The dtype of an array or proxy; None in a trace without types."""
    if is_traced(x):
        return x.node.type.dtype if isinstance(x.node.type, TensorType) else None
    return dtypes.dtype(x.dtype if hasattr(x, "dtype") else np.asarray(x).dtype)


def result_dtype(dtype: DType, complex_too: bool = False) -> DType:
    """The result dtype for an operand dtype: the same, but float64 for integers and bool, as in NumPy's mean.
    Raises DTypeError for complex numbers, unless ``complex_too``."""
    if dtype.is_complex and not complex_too:
        raise DTypeError(f"it takes real numbers, not {dtype}; take .real, .imag or abs first")
    return dtype if dtype.is_inexact else dtypes.float64


def widen(record: Op, bound: Mapping[str, Any], exact: tuple[str, ...], to: DType) -> dict[str, Any]:
    """The arguments with tensors converted to ``to``, except integers and booleans other than ``x`` (targets
    and masks) and those named in ``exact``."""

    def wide(value: Any) -> Any:
        known = dtype_of(value)
        if known is None or known is to:
            return value
        if is_traced(value):
            return ops.cast(value, to)
        return np.asarray(value).astype(to.numpy)

    result = dict(bound)
    for name in record.tensor_kinds:
        value = result.get(name)
        if value is None or name in exact:
            continue
        known = dtype_of(value)
        if name == "x" or known is None or known.is_float:
            result[name] = wide(value)
        elif not is_traced(value):
            result[name] = np.asarray(value)
    return result


def composite(
    *,
    infer: Callable[..., Any],
    expansion: Callable[..., Any],
    exact: tuple[str, ...] = (),
    first: str = "x",
    complex_too: bool = False,
    **facts: Any,
) -> Callable[[Callable[..., Any]], Op]:
    """Register a composite. The decorated function is the NumPy reference, and ``expansion`` the definition
    in other ops. Both get the tensors in the dtype of the computation, and their result is rounded to the
    dtype of the parameter ``first``, which may be complex if ``complex_too``."""

    def register(reference: Callable[..., Any]) -> Op:
        @functools.wraps(reference)
        def call(**bound: Any) -> Any:
            dtype = result_dtype(dtypes.dtype(np.asarray(bound[first]).dtype), complex_too)
            with np.errstate(all="ignore"):
                result = reference(**widen(record, bound, exact, dtype.compute))
            return _each(lambda r: np.asarray(r).astype(dtype.numpy, copy=False), result)

        def expand(**bound: Any) -> Any:
            known = dtype_of(bound[first])
            if known is None:
                return expansion(**bound)
            dtype = result_dtype(known, complex_too)
            result = expansion(**widen(record, bound, exact, dtype.compute))
            return _each(lambda r: r if dtype_of(r) is dtype else ops.cast(r, dtype), result)

        record = op("composite", **facts)(call)
        record.infer(infer)
        record.expansion(expand)
        return record

    return register


def _each(function: Callable[[Any], Any], result: Any) -> Any:
    """``function`` applied to a result, or to each of several."""
    return tuple(map(function, result)) if isinstance(result, tuple) else function(result)


def same_type(x: TensorType, **attributes: Any) -> TensorType:
    """The type rule of ops that keep the shape and dtype of a float tensor."""
    require_float(x, "x")
    return x


def created(like: Any, record: Op, *args: Any, **kwargs: Any) -> Any:
    """Call a creation op in the manner of ``like``: a node if that is traced, and an array if it is one. (A
    plain call with known sizes would run at once, and its array would be a constant of the graph.)"""
    if is_traced(like):
        return like.tracer.record(record, record.bind(args, kwargs))
    return record(*args, **kwargs)


def number(dim: Any, dtype: Any) -> Any:
    """A size as a number to compute with: a Python float, or a rank-0 tensor of ``dtype`` for a named dim."""
    value = dim.expr if isinstance(dim, shapes.NamedDim) else dim
    return float(value) if type(value) is int else ops.full((), value, dtype=dtypes.dtype(dtype))


# -- softmax ---------------------------------------------------------------------------------------
_SOFTMAX_SAMPLES = [
    "f32[B,5] B=3; f32[B,5] axis=0 B=7; f32[2,3,40] axis=-1; f32[2,3,4] 1; f32[4,6](-90,90) axis=1; f64[3,4] axis=-1",
    "f16[4,9] axis=1; bf16[3,8] axis=1; f32[0,4] axis=1; f32[3,1] axis=1; f32[3,3]! axis=1",
]
_SOFTMAX_BAD = [Bad("f32[3,4]", axis=2, match="out of range"), Bad("i32[3,4]", axis=1, match="must be a float")]


def _along_axis(x: TensorType, axis: int, **attributes: Any) -> TensorType:
    require_float(x, "x")
    normalize_axis(axis, x.rank)
    return x


def _softmax(x: Any, axis: int) -> Any:
    e = ops.exp(x - ops.max(x, axis=axis, keepdims=True))
    return e / ops.sum(e, axis=axis, keepdims=True)


@composite(
    nonnegative=True,
    needs_whole={"x": "axis"},
    infer=_along_axis,
    expansion=_softmax,
    samples=_SOFTMAX_SAMPLES,
    bad=_SOFTMAX_BAD,
)
def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """``exp(x) / sum(exp(x))`` along ``axis``; if all elements there are -inf, the result is NaN."""
    if not x.size:
        return x
    wide = x.astype(np.float64)
    e = np.exp(wide - wide.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def _log_softmax(x: Any, axis: int) -> Any:
    shifted = x - ops.max(x, axis=axis, keepdims=True)
    return shifted - ops.log(ops.sum(ops.exp(shifted), axis=axis, keepdims=True))


@composite(
    infer=_along_axis, expansion=_log_softmax, needs_whole={"x": "axis"}, samples=_SOFTMAX_SAMPLES, bad=_SOFTMAX_BAD
)
def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """``x - log(sum(exp(x)))`` along ``axis``."""
    if not x.size:
        return x
    wide = x.astype(np.float64)
    wide = wide - wide.max(axis=axis, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=axis, keepdims=True))


def _reduced(x: TensorType, axis: Any, keepdims: bool) -> TensorType:
    require_float(x, "x")
    return TensorType(reduced_shape(x, axis, keepdims), x.dtype)


def drop_axes(x: Any, axis: Any, rank: int) -> Any:
    """``x`` without the axes of size 1 named by ``axis``."""
    for a in reversed(normalize_axes(axis, rank)):
        x = ops.squeeze(x, axis=a)
    return x


def _logsumexp(x: Any, axis: Any, keepdims: bool) -> Any:
    largest = ops.max(x, axis=axis, keepdims=True)
    shift = ops.where(ops.isinf(largest), 0.0, largest)
    result = ops.log(ops.sum(ops.exp(x - shift), axis=axis, keepdims=True)) + shift
    return result if keepdims else drop_axes(result, axis, x.ndim)


@composite(
    infer=_reduced,
    expansion=_logsumexp,
    needs_whole={"x": "axis"},
    samples=[
        "f32[B,5] axis=1 B=3; f32[2,3,4] axis=(0,2); f32[3,7](-90,90) axis=1 keepdims=True; f64[3,4] axis=-1",
        "f16[4,5] axis=0; bf16[3,8] axis=1; f32[3,3]! axis=1",
    ],
    bad=_SOFTMAX_BAD,
)
def logsumexp(x: Tensor, axis: Axis, keepdims: bool = False) -> Tensor:
    """``log(sum(exp(x)))`` over ``axis``, computed without overflow and with the right infinities."""
    reduce: Any = np.logaddexp.reduce
    return reduce(x.astype(np.float64), axis=axis, keepdims=keepdims)


# -- variance and norms ----------------------------------------------------------------------------
def _infer_var(x: TensorType, axis: Any, correction: int, keepdims: bool) -> TensorType:
    return TensorType(reduced_shape(x, axis, keepdims), result_dtype(x.dtype))


def _var(x: Any, axis: Any, correction: int, keepdims: bool) -> Any:
    square = ops.square(x - ops.mean(x, axis=axis, keepdims=True))
    if correction == 0:
        return ops.mean(square, axis=axis, keepdims=keepdims)
    count = shapes.product(shapes.normalize(x.shape[a]) for a in normalize_axes(axis, x.ndim))
    count = shapes.maximum(shapes.normalize(count - correction), 0)  # as in NumPy
    return ops.sum(square, axis=axis, keepdims=keepdims) / number(count, x.dtype)


@composite(
    infer=_infer_var,
    expansion=_var,
    numpy=".var axis= ddof=correction keepdims=",
    samples=[
        "f32[B,5] axis=1 B=3; f32[B,5] axis=0 correction=1 B=7; f32[3,4,5] axis=(0,2) keepdims=True; f32[3,40]",
        "f64[2,3] axis=-1; f16[4,9] axis=1; bf16[3,8] axis=1; i32[4,5] axis=0; f32[3,1] axis=1; f32[3,3]! axis=1",
        "f32[0,4] axis=1",
    ],
    bad=[Bad("f32[3,4]", axis=2, match="out of range")],
)
def var(x: Tensor, axis: Axis = None, correction: int = 0, keepdims: bool = False) -> Tensor:
    """The variance over ``axis``: the sum of squared distances from the mean, divided by the number of
    elements minus ``correction``."""
    return np.var(x, axis=axis, ddof=correction, keepdims=keepdims)


def _norm(x: Any, p: float, axis: int) -> Any:
    if p == 2:
        return ops.sqrt(ops.sum(ops.square(x), axis=axis, keepdims=True))
    if p == 1:
        return ops.sum(ops.abs(x), axis=axis, keepdims=True)
    if p == float("inf"):
        return ops.max(ops.abs(x), axis=axis, keepdims=True)
    return ops.pow(ops.sum(ops.pow(ops.abs(x), p), axis=axis, keepdims=True), 1.0 / p)


def _normalize(x: Any, p: float, axis: int, eps: float) -> Any:
    return x / ops.maximum(_norm(x, p, axis), eps)


@composite(
    infer=functools.partial(_along_axis, axis=1),
    expansion=_normalize,
    needs_whole={"x": "axis"},
    samples=[
        "f32[B,5] B=3; f32[3,4,5] axis=-1; f32[3,4] p=1.0 axis=0; f64[3,4] p=3.0",
        S("f32[3,4]", p=float("inf")),
        "f16[3,4]; bf16[3,4]; f32[2,3](0,1e-30); f32[0,4]",
    ],
    bad=[Bad("f32[3]", match="out of range")],
)
def normalize(x: Tensor, p: float = 2.0, axis: int = 1, eps: float = 1e-12) -> Tensor:
    """``x / max(norm, eps)``, where norm is the p-norm along ``axis``."""
    return x / np.maximum(np.linalg.norm(x, ord=p, axis=axis, keepdims=True), x.dtype.type(eps))


def _infer_cosine(x: TensorType, y: TensorType, axis: int, eps: float) -> TensorType:
    require_float(x, "x")
    both = TensorType(broadcast_shapes(x.shape, y.shape), x.dtype)
    return TensorType(reduced_shape(both, normalize_axis(axis, both.rank), False), x.dtype)


def _cosine(x: Any, y: Any, axis: int, eps: float) -> Any:
    lengths = [ops.maximum(_norm(v, 2.0, axis), eps) for v in (x, y)]
    return ops.sum((x / lengths[0]) * (y / lengths[1]), axis=axis)


@composite(
    infer=_infer_cosine,
    expansion=_cosine,
    samples=[
        "f32[B,5] f32[B,5] B=3; f32[3,4,5] f32[3,1,5] axis=-1; f64[3,4] f64[3,4]; f16[3,4] f16[3,4]",
        "bf16[3,8] bf16[3,8]",
    ],
    bad=[Bad("f32[3,4]", "f32[3,5]", match="do not broadcast")],
)
def cosine_similarity(x: Tensor, y: Tensor, axis: int = 1, eps: float = 1e-8) -> Tensor:
    """``sum(x * y) / (|x| |y|)`` along ``axis``; each length counts as at least ``eps``."""
    x, y = np.broadcast_arrays(x, y)
    lengths = [np.maximum(np.sqrt((v * v).sum(axis=axis)), v.dtype.type(eps)) for v in (x, y)]
    x, y = (v / np.expand_dims(n, axis) for v, n in zip((x, y), lengths))
    return (x * y).sum(axis=axis)


# -- shape -----------------------------------------------------------------------------------------
@op(
    "composite",
    shares_memory="contiguous",
    moves_values=True,
    keeps_order=True,
    samples=[
        "f32[B,3,4] start_dim=1 B=2; f32[2,3,4]; i32[2,3,4] start_dim=0 end_dim=1; f32[]; bf16[3,4] start_dim=1",
        "f32[2,B,C] start_dim=1 B=3 C=0",
    ],
    bad=[Bad("f32[2,3]", start_dim=2, match="out of range"), Bad("f32[2,3]", start_dim=1, end_dim=0, match="after")],
)
def flatten(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """``x`` with the axes ``start_dim`` to ``end_dim`` joined to one. If the shape is known while tracing,
    ``F.flatten`` records a reshape instead."""
    array = np.asarray(x)
    if not array.ndim:
        return array.reshape(1)
    start, end = (normalize_axis(a, array.ndim) for a in (start_dim, end_dim))
    merged = int(np.prod(array.shape[start : end + 1]))
    return array.reshape(*array.shape[:start], merged, *array.shape[end + 1 :])


@flatten.infer
def _(x: TensorType, start_dim: int, end_dim: int) -> TensorType:
    if not x.rank:
        return x.with_shape((1,))
    start, end = (normalize_axis(a, x.rank) for a in (start_dim, end_dim))
    if start > end:
        raise ShapeError(f"start_dim {start_dim} comes after end_dim {end_dim}")
    merged = shapes.product(x.shape[start : end + 1])
    return x.with_shape((*x.shape[:start], merged, *x.shape[end + 1 :]))


@flatten.expansion
def _(x: Any, start_dim: int, end_dim: int) -> Any:
    given = TensorType(tuple(shapes.normalize(d) for d in x.shape), dtypes.dtype(x.dtype))
    wanted: TensorType = flatten.result_type({"x": given, "start_dim": start_dim, "end_dim": end_dim})
    return ops.reshape(x, tuple(shapes.for_user(d) for d in wanted.shape))
