"""ONNX's reductions, scans, searches and sorts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fxlite import ops
from fxlite.importing.narrow import cast
from fxlite.importing.onnx.registry import Call, axis_of, is_sizes, onnx_op, rank


def _axes(n: Call, x: Any, given: Any) -> tuple[int, ...] | None:
    """The axes of a reduction, from an attribute or an input; None if nothing is reduced."""
    axes = n["axes"] if given is None else n.numbers(given, "axes")
    if axes:
        return tuple(axis_of(a, rank(x)) for a in axes)
    return None if n["noop_with_empty_axes"] else tuple(range(rank(x)))


def _sum(x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    """A sum in the type of its elements; sizes are added one by one."""
    if is_sizes(x):
        return np.sum(x, axis=axes, keepdims=keep)
    return cast(np.sum(x, axis=axes, keepdims=keep), x.dtype)


def _extreme(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Any, axes: tuple[int, ...], keep: bool) -> Any:
        if not is_sizes(x) and x.dtype == bool:
            return (np.any if function is np.max else np.all)(x, axis=axes, keepdims=keep)
        empty = [a for a in axes if type(x.shape[a]) is int and x.shape[a] == 0]
        if empty:  # the result is the identity of the reduction
            shape = [1 if a in axes else s for a, s in enumerate(x.shape)]
            kind = np.dtype(x.dtype)
            limits = (-np.inf, np.inf) if kind.kind == "f" else (np.iinfo(kind).min, np.iinfo(kind).max)
            found = np.full(shape, limits[function is np.min], kind)
            return found if keep else found.reshape([s for a, s in enumerate(x.shape) if a not in axes])
        return function(x, axis=axes, keepdims=keep)

    return call


def _mean(x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    return cast(np.mean(x, axis=axes, keepdims=keep), x.dtype)


def _prod(x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    found = np.prod(x, axis=axes, keepdims=keep)
    return found if is_sizes(x) else cast(found, x.dtype)


def _norm2(x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    return np.sqrt(_sum(np.square(x), axes, keep))


def _log_sum_exp(x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    if any(type(x.shape[a]) is int and x.shape[a] == 0 for a in axes):
        return np.log(_sum(np.exp(x), axes, keep))
    return ops.logsumexp(x, axis=axes, keepdims=keep)


_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "ReduceSum": _sum,
    "ReduceMean": _mean,
    "ReduceProd": _prod,
    "ReduceMax": _extreme(np.max),
    "ReduceMin": _extreme(np.min),
    "ReduceL1": lambda x, axes, keep: _sum(np.abs(x), axes, keep),
    "ReduceL2": _norm2,
    "ReduceSumSquare": lambda x, axes, keep: _sum(x * x, axes, keep),
    "ReduceLogSum": lambda x, axes, keep: np.log(_sum(x, axes, keep)),
    "ReduceLogSumExp": _log_sum_exp,
}
#: Reductions that change the elements even if no axis is reduced.
_NO_AXES: dict[str, Callable[..., Any]] = {
    "ReduceL1": np.abs,
    "ReduceL2": np.abs,
    "ReduceSumSquare": np.square,
    "ReduceLogSum": np.log,
}
#: Reductions for which integers are cast to floats, and back.
_OF_FLOATS = ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")


def _alone(name: str, x: Any) -> Any:
    return _NO_AXES[name](x) if name in _NO_AXES else x


def _enter(name: str, function: Callable[..., Any]) -> None:
    @onnx_op(name, sizes=(1,))
    def call(n: Call, x: Any, axes: Any = None) -> Any:
        found, kind = _axes(n, x, axes), x.dtype
        if name in _OF_FLOATS and np.dtype(kind).kind in "iu":
            x = cast(x, np.float64)
        if found is None or (not found and not rank(x)):  # a number has no axes
            return cast(_alone(name, x), kind)
        return cast(function(x, found, bool(n["keepdims"])), kind)


for _name, _function in _REDUCTIONS.items():
    _enter(_name, _function)


def _arg(n: Call, x: Any, function: Callable[..., Any]) -> Any:
    axis = axis_of(n["axis"], rank(x))
    if n["select_last_index"]:
        found = x.shape[axis] - 1 - function(np.flip(x, axis), axis=axis)
    else:
        found = function(x, axis=axis)
    return np.expand_dims(found, axis) if n["keepdims"] else found


@onnx_op("ArgMax")
def argmax(n: Call, x: Any) -> Any:
    return _arg(n, x, np.argmax)


@onnx_op("ArgMin")
def argmin(n: Call, x: Any) -> Any:
    return _arg(n, x, np.argmin)


def _scan(n: Call, x: Any, axis: Any, function: Callable[..., Any], start: int) -> Any:
    along = axis_of(n.numbers(axis, "the axis")[0], rank(x))
    if n["reverse"]:
        x = np.flip(x, along)
    found = cast(function(x, axis=along), x.dtype)
    if n["exclusive"]:
        first = [slice(None)] * rank(x)
        first[along] = slice(0, 1)
        rest = [slice(None)] * rank(x)
        rest[along] = slice(0, -1)
        ones = np.full_like(found[tuple(first)], start)
        found = np.concatenate([ones, found[tuple(rest)]], axis=along)
    return np.flip(found, along) if n["reverse"] else found


@onnx_op("CumSum", sizes=(1,))
def cumsum(n: Call, x: Any, axis: Any) -> Any:
    return _scan(n, x, axis, np.cumsum, 0)


@onnx_op("CumProd", sizes=(1,))
def cumprod(n: Call, x: Any, axis: Any) -> Any:
    return _scan(n, x, axis, np.cumprod, 1)


@onnx_op("TopK", sizes=(1,))
def topk(n: Call, x: Any, k: Any = None) -> Any:
    """Equal elements keep their order, as in ONNX, and NaN is the largest element. The order from the largest element
    on is that of a sort of the reversed array, read backwards."""
    count = n["k"] if k is None else n.sizes(k, "K")[0]
    axis = axis_of(-1 if n["axis"] is None else n["axis"], rank(x))
    if n["largest"] is None or n["largest"]:
        order = x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis=axis, stable=True), axis)
    else:
        order = np.argsort(x, axis=axis, stable=True)
    cut = tuple(slice(0, count) if a == axis else slice(None) for a in range(rank(x)))
    order = order[cut]
    return np.take_along_axis(x, order, axis=axis), cast(order, np.int64)


@onnx_op("Hardmax")
def hardmax(n: Call, x: Any) -> Any:
    axis = axis_of(n["axis"], rank(x))
    if n.opset < 13:
        whole = x.reshape(*x.shape[:axis], -1)
        return _hardmax(whole, axis).reshape(x.shape)
    return _hardmax(x, axis)


def _hardmax(x: Any, axis: int) -> Any:
    places = np.expand_dims(np.argmax(x, axis=axis), axis)
    index = np.arange(x.shape[axis]).reshape(tuple(-1 if a == axis else 1 for a in range(rank(x))))
    return cast(np.equal(index, places), x.dtype)
