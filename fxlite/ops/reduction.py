"""Reductions (sum, mean, prod, max, min, any, all, argmax, argmin over axes) and scans such as cumsum.

``axis`` is None (all axes), an int or a tuple; ``keepdims`` keeps reduced axes with size 1. dtypes are
those of NumPy: sums and products of integers have 64 bits, and a float16 sum is accumulated in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, ShapeError
from fxlite.ops.op import Axis, Op, Tensor, normalize_axes, normalize_axis, op
from fxlite.ops.parameters import Attribute
from fxlite.ops.samples import Bad, S, Samples
from fxlite.scalar import expr
from fxlite.scalar.expr import Expr, MultiIndex, Reader
from fxlite.scalar.functions import COMBINATIONS
from fxlite.scalar.index import Index, product
from fxlite.types import dtypes
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import TensorType

_SAMPLES = [
    "f32[B,5] axis=1 B=3; f32[B,5] axis=0 B=7; f32[3,4,5] axis=(0,2) keepdims=True; f32[3,40]; f64[2,3] axis=-1",
    "f16[4,9] axis=1; u8[3,4] axis=1; u64[3,4] axis=0; bf16[3,8] axis=1; i32[4,5] axis=0; f32[2,100] axis=1; f32[]",
    "c64[3,5] axis=1; c128[2,200]; c64[B,40] axis=0 keepdims=True B=3",
]
_BAD = [Bad("f32[3,4]", axis=2, match="out of range"), Bad("f32[3,4]", axis=(1, -1), match="twice")]


def reduced_shape(x: TensorType, axis: Any, keepdims: bool) -> tuple[Any, ...]:
    """The shape after reducing ``axis``."""
    axes = normalize_axes(axis, x.rank)
    if keepdims:
        return tuple(1 if a in axes else d for a, d in enumerate(x.shape))
    return tuple(d for a, d in enumerate(x.shape) if a not in axes)


def reduce_over(
    kind: str, i: MultiIndex, x: Reader, axis: Any, keepdims: bool, element: Callable[[Expr], Expr]
) -> Expr:
    """The reduction of ``element(x[...])`` over ``axis`` at output index ``i``."""
    rank = len(x.shape)
    axes = normalize_axes(axis, rank)
    kept = [a for a in range(rank) if a not in axes]
    outer = dict(zip(kept, [i[a] for a in kept] if keepdims else i))

    def inner(*r: Index) -> Expr:
        inside = dict(zip(axes, r))
        return element(x[tuple(outer[a] if a in outer else inside[a] for a in range(rank))])

    return expr.reduce(kind, [x.shape[a] for a in axes], inner) if axes else element(x[i])


def accumulated(dtype: DType) -> DType:
    """The result dtype of sum and prod."""
    return dtype.accumulator


def reduced_sizes(x: TensorType, axis: Any = None, keepdims: bool = False, initial: Any = None) -> list[Any]:
    """The sizes of the reduced axes, which must not be 0 for a reduction without an identity and ``initial``."""
    return [] if initial is not None else [x.shape[a] for a in normalize_axes(axis, x.rank)]


_NAMED = "axis= keepdims="  # the arguments of NumPy's reductions


def same(dtype: DType) -> DType:
    """The dtype rule of reductions that keep the dtype."""
    return dtype


def _register(
    name: str,
    reference: Callable[..., Any],
    rule: Callable[[DType], DType],
    doc: str,
    kind: str,
    samples: Samples | None = None,
    aliases: tuple[str, ...] = (),
    **facts: Any,
) -> Op:
    def call(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
        return reference(x, axis, keepdims)

    def with_initial(x: Tensor, axis: Axis = None, keepdims: bool = False, initial: Attribute = None) -> Tensor:
        if initial is not None:
            check_initial(dtypes.dtype(np.asarray(x).dtype), initial)
        return reference(x, axis, keepdims, initial)

    def check_initial(dtype: DType, initial: Any) -> None:
        if initial is not None and initial != (start := COMBINATIONS[kind].start(dtype)):
            raise ArgumentError(f"initial must be {start!r}, which no number of {dtype} changes, not {initial!r}")

    is_extreme = kind in ("max", "min")
    call.__doc__ = with_initial.__doc__ = doc
    found = _SAMPLES if samples is None else samples
    facts["numpy"] = f".{name} {_NAMED}{' initial=' if is_extreme else ''}"
    bad = [*_BAD, Bad("f32[3,4]", initial=1.0, match="initial must be")] if is_extreme else _BAD
    record = op("reduction", name=name, samples=found, bad=bad, aliases=aliases, **facts)(
        with_initial if is_extreme else call
    )

    def infer(x: TensorType, axis: Any = None, keepdims: bool = False, initial: Any = None) -> TensorType:
        check_initial(x.dtype, initial)
        return TensorType(reduced_shape(x, axis, keepdims), rule(x.dtype))

    def body(i: MultiIndex, x: Reader, axis: Any = None, keepdims: bool = False, initial: Any = None) -> Expr:
        result = rule(x.dtype)
        computed = result.compute

        def element(value: Expr) -> Expr:
            if kind in ("any", "all"):
                return value if value.dtype.is_bool else expr.apply("ne", value, expr.const(0, value.dtype))
            return expr.cast(value, computed)

        combined = {"max": "any", "min": "all"}.get(kind, kind) if result.is_bool else kind
        return expr.cast(reduce_over(combined, i, x, axis, keepdims, element), result)

    record.infer(infer)
    record.body(body)
    return record


def _numpy(function: Callable[..., Any], widen: bool) -> Callable[..., Any]:
    """NumPy's reduction, with half types accumulated in float32 and rounded once."""

    def call(x: Any, axis: Any, keepdims: bool, initial: Any = None) -> Any:
        array = np.asarray(x)
        more = {} if initial is None else {"initial": initial}
        dtype = dtypes.dtype(array.dtype)
        with np.errstate(all="ignore"):
            if widen and dtype.compute is not dtype:
                wide = function(array.astype(np.float32), axis=axis, keepdims=keepdims)
                return np.asarray(wide).astype(dtype.numpy)[()]
            return function(array, axis=axis, keepdims=keepdims, **more)

    return call


sum = _register("sum", _numpy(np.sum, True), accumulated, "Sum over ``axis``.", "sum", role="sum")
prod = _register("prod", _numpy(np.prod, True), accumulated, "Product over ``axis``.", "prod")
_EXTREMES = [*_SAMPLES, "f32[3,3]! axis=1; bool[3,4] axis=1"]
max = _register(
    "max",
    _numpy(np.max, False),
    same,
    "Largest value over ``axis``; NaN wins. With ``initial``, the smallest value of the dtype, also of no values.",
    "max",
    [*_EXTREMES, S("f32[B,3]", axis=0, initial=-math.inf, dims={"B": 4}), S("i8[B]", initial=-128, dims={"B": 5})],
    ("amax",),
    moves_values=True,
)
min = _register(
    "min",
    _numpy(np.min, False),
    same,
    "Smallest value over ``axis``; NaN wins. With ``initial``, the largest value of the dtype, also of no values.",
    "min",
    [*_EXTREMES, S("f32[B,3]", axis=0, initial=math.inf, dims={"B": 4}), S("u16[B]", initial=65535, dims={"B": 5})],
    ("amin",),
    moves_values=True,
)
_TRUTH = ["bool[3,4] axis=1; f32[3,4]; i32[2,3,4] axis=(0,1) keepdims=True; c64[3,2] axis=1"]
any = _register(
    "any",
    lambda x, a, k: np.any(x, axis=a, keepdims=k),
    lambda d: dtypes.bool_,
    "True where at least one element along ``axis`` is not zero.",
    "any",
    _TRUTH,
)
all = _register(
    "all",
    lambda x, a, k: np.all(x, axis=a, keepdims=k),
    lambda d: dtypes.bool_,
    "True where no element along ``axis`` is zero.",
    "all",
    _TRUTH,
)


@op("reduction", numpy=f".mean {_NAMED}", role="sum", samples=_SAMPLES, bad=_BAD)
def mean(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The arithmetic mean over ``axis``; integers give float64."""
    return _numpy(np.mean, True)(x, axis, keepdims)


def _mean_dtype(dtype: DType) -> DType:
    return dtype if dtype.is_inexact else dtypes.float64


@mean.infer
def _(x: TensorType, axis: Any, keepdims: bool) -> TensorType:
    return TensorType(reduced_shape(x, axis, keepdims), _mean_dtype(x.dtype))


@mean.body
def _(i: MultiIndex, x: Reader, axis: Any, keepdims: bool) -> Expr:
    computed = _mean_dtype(x.dtype).compute
    total = reduce_over("sum", i, x, axis, keepdims, lambda v: expr.cast(v, computed))
    count = product(x.shape[a] for a in normalize_axes(axis, len(x.shape)))
    return expr.cast(total / expr.cast(expr.index_value(count), computed), _mean_dtype(x.dtype))


def _register_arg(name: str, reference: Callable[..., Any]) -> Op:
    def call(x: Tensor, axis: int | None = None, keepdims: bool = False) -> Tensor:
        return reference(x, axis=axis, keepdims=keepdims)

    call.__doc__ = f"The index (int64) of the first {name[3:]}imum along ``axis`` (None: in the flattened x)."
    samples = [
        "f32[B,7] axis=1 B=3; f32[4,5]; i32[4,5] axis=0; f32[3,3]! axis=1; f64[2,3,40] axis=-1 keepdims=True",
        "f32[2,3] keepdims=True; bf16[4,6] axis=1; f32[]; u64[4,5] axis=0; c64[4,5] axis=1",
    ]
    numpy = f".{name} {_NAMED}"
    record = op("reduction", numpy=numpy, name=name, needs_whole={"x": "axis"}, samples=samples, bad=_BAD[:1])(call)

    def infer(x: TensorType, axis: Any = None, keepdims: bool = False) -> TensorType:
        if axis is not None and type(axis) is not int:
            raise ShapeError("axis must be an int or None")
        return TensorType(reduced_shape(x, axis, keepdims), dtypes.int64)

    def body(i: MultiIndex, x: Reader, axis: Any = None, keepdims: bool = False) -> Expr:
        if not x.shape:  # there is a single value, at 0
            return expr.const(0, dtypes.int64)
        return reduce_over(name, i, x, axis, keepdims, lambda v: v)

    record.infer(infer)
    record.body(body)
    return record


argmax = _register_arg("argmax", np.argmax)
argmin = _register_arg("argmin", np.argmin)
for _record in (max, min, argmax, argmin):
    _record.elements(reduced_sizes)


# -- scans -----------------------------------------------------------------------------------------
def _register_scan(
    name: str,
    ufunc: np.ufunc,
    kind: str,
    rule: Callable[[DType], DType],
    numpy: str,
    doc: str,
    moves_values: bool = False,
) -> Op:
    """Register a running reduction along one axis; half types are accumulated in float32."""
    samples = [
        "f32[B,9] axis=1 B=3; f32[7] axis=0; i32[3,4] axis=0; u8[3,4] axis=1; f64[2,3,4] axis=1; bool[6] axis=0",
        "f16[3,5] axis=-1; bf16[5]; c64[3,4] axis=1; f32[0,3]; i64[4,0] axis=1",
    ]
    samples += ["f32[3,9]! axis=1"] if moves_values else []

    def call(x: Tensor, axis: int = 0) -> Tensor:
        array = np.asarray(x)
        result = rule(dtypes.dtype(array.dtype))
        with np.errstate(all="ignore"):
            wide = ufunc.accumulate(array, axis=axis, dtype=result.compute.numpy)
            return wide.astype(result.numpy)

    call.__doc__ = doc
    bad = [Bad("f32[3]", axis=1, match="out of range")]
    facts: dict[str, Any] = {"needs_whole": {"x": "axis"}, "moves_values": moves_values, "combines": kind}
    record = op("scan", name=name, numpy=numpy, samples=samples, bad=bad, **facts)(call)

    def infer(x: TensorType, axis: int = 0) -> TensorType:
        normalize_axis(axis, x.rank)
        return TensorType(x.shape, rule(x.dtype))

    def body(i: MultiIndex, x: Reader, axis: int = 0) -> Expr:
        axis = normalize_axis(axis, len(x.shape))
        result = rule(x.dtype)

        def element(k: Index) -> Expr:
            return expr.cast(x[(*i[:axis], k, *i[axis + 1 :])], result.compute)

        return expr.cast(expr.reduce(kind, [i[axis] + 1], element), result)

    record.infer(infer)
    record.body(body)
    record.cost(lambda x, axis: x.size)  # unlike its body, which is a sum for each element
    return record


cumsum = _register_scan("cumsum", np.add, "sum", accumulated, ".cumsum axis:", "Cumulative sum along ``axis``.")
cumprod = _register_scan(
    "cumprod", np.multiply, "prod", accumulated, ".cumprod axis:", "Cumulative product along ``axis``."
)
cummax = _register_scan(
    "cummax",
    np.maximum,
    "max",
    same,
    "np.maximum.accumulate x axis:",
    "Largest value so far along ``axis``; from a NaN on, all are NaN.",
    moves_values=True,
)
cummin = _register_scan(
    "cummin",
    np.minimum,
    "min",
    same,
    "np.minimum.accumulate x axis:",
    "Smallest value so far along ``axis``; from a NaN on, all are NaN.",
    moves_values=True,
)
