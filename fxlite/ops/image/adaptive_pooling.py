"""Adaptive pooling: the output size is given, and window ``i`` of an axis runs from
``floor(i*size/out)`` to ``ceil((i+1)*size/out)`` (torch.nn.functional.adaptive_avg_pool2d), which
are ``ceil((i*size % out + size) / out)`` elements.

Inputs are ``[N, C, L]`` or ``[N, C, H, W]``. ``output_size`` is an int, or one int or None (keep
the size) for each axis; it is stored as an int where all axes agree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, DTypeError
from fxlite.ops.image.spatial import (
    canonical_forms,
    checked_type,
    reduce_over,
    require_layout,
    requires_elements,
    shortest,
)
from fxlite.ops.op import Op, Tensor, op, require_float
from fxlite.ops.samples import Bad, S, special
from fxlite.scalar import expr
from fxlite.scalar.expr import Expr, MultiIndex, Reader
from fxlite.scalar.index import Index, product
from fxlite.types import dtypes
from fxlite.types.tensor_type import TensorType

#: Windows of an axis are made one by one.
LARGEST_OUTPUT = 2**20
Sizes = Any  # an int, or one int or None for each spatial axis


def output_sizes(output_size: Any, rank: int) -> tuple[int | None, ...]:
    """One int or None for each axis. Raises ArgumentError."""
    sizes = (
        (output_size,) * rank if output_size is None or type(output_size) is int else output_size
    )
    if isinstance(sizes, (tuple, list)) and len(sizes) == 1:
        sizes = tuple(sizes) * rank
    if not isinstance(sizes, (tuple, list)):
        sizes = ()
    if len(sizes) == rank and all(
        s is None or (type(s) is int and 1 <= s <= LARGEST_OUTPUT) for s in sizes
    ):
        return tuple(sizes)
    wanted = (
        "an int of 1 to 2**20"
        if rank == 1
        else f"an int of 1 to 2**20, or {rank} of them (None: keep the size)"
    )
    raise ArgumentError(f"output_size must be {wanted}, not {output_size!r}")


def _windows(o: Index, size: Index, out: int | None) -> tuple[Index, Index]:
    """(start, length) of the window of output element ``o``."""
    if out is None or size == out:
        return o, Index.of(1)
    if out == 1:
        return Index.of(0), size
    return o * size // out, (o * size % out + size + (out - 1)) // out


def _body(kind: str, i: MultiIndex, x: Reader, output_size: Any) -> Expr:
    computed = x.dtype.compute if kind == "sum" else x.dtype
    sizes = output_sizes(output_size, len(i) - 2)
    windows = [_windows(*each) for each in zip(i[2:], x.shape[2:], sizes)]

    def element(*r: Index) -> Expr:
        place = (start + offset for (start, _), offset in zip(windows, r))
        return expr.cast(x[(*i[:2], *place)], computed)

    lengths = [length for _, length in windows]
    total = reduce_over(kind, lengths, element)
    if kind == "sum":
        total = total / expr.cast(expr.index_value(product(lengths)), computed)
    return expr.cast(total, x.dtype)


def _pool_axis(x: Any, axis: int, out: int | None, reduce: Callable[..., Any]) -> Any:
    """One axis at a time: windows of several axes are products of windows of one."""
    size = x.shape[axis]
    if out is None or size == out:
        return x
    if out == 1:
        return reduce(x, axis=axis, keepdims=True)
    leading = (slice(None),) * axis
    parts = [
        reduce(x[(*leading, slice(n * size // out, -(-(n + 1) * size // out)))], axis=axis)
        for n in range(out)
    ]
    return np.stack(parts, axis=axis)


def _run(record: Op, x: Any, output_size: Any, rank: int, reduce: Callable[..., Any]) -> Any:
    checked_type(record, x=x, output_size=output_size)
    x = np.asarray(x)
    result = dtypes.dtype(x.dtype)
    wide = x.astype(result.compute.numpy, copy=False) if reduce is np.mean else x
    with np.errstate(all="ignore"):
        for axis, out in enumerate(output_sizes(output_size, rank), start=2):
            wide = _pool_axis(wide, axis, out, reduce)
    return np.array(wide, dtype=result.numpy)


_SAMPLES_1D = [
    S("f32[B,3,L]", 3, dims={"B": 2, "L": 7}),
    S("f32[2,3,L]", 1, dims={"L": 5}),
    S("f32[1,2,3]", 5),
    S("f64[1,2,8]", (4,)),
    S("f16[1,2,5]", 2),
    S("f32[1,2,5]", (None,)),
    S("f32[0,2,5]", 2),
]
_SAMPLES_2D = [
    S("f32[B,3,H,W]", (3, 2), dims={"B": 2, "H": 7, "W": 5}),
    S("f32[B,2,H,W]", 1, dims={"B": 2, "H": 4, "W": 5}),
    S("f32[1,2,6,8]", (3, None)),
    S("f32[1,2,6,6]", 3),
    S("f32[1,2,3,5]", (5, 4)),
    S("f32[B,2,6,H]", (None, 4), dims={"B": 1, "H": 6}),
    S("f64[1,2,5,4]", 2),
    S("f16[1,2,5,4]", 2),
    S("bf16[1,2,5,4]", (1, 3)),
    S("f32[1,2,4,4]", 4),
    S("f32[0,2,5,5]", 2),
]
_SPECIAL = [S(special("f32[1,1,5,5]"), 3), S("i32[1,2,5,4]", 2)]
_BAD_1D = [
    Bad("f32[3,8]", 2, match="add the batch axis"),
    Bad("f32[2,3,8]", (2, 2), match="output_size must be"),
]
_BAD_2D = [
    Bad("f32[3,8,8]", 2, match="add the batch axis"),
    Bad("f32[2,3,8,8]", 0, match="output_size must be"),
    Bad("f32[2,3,8,8]", (2, 2, 2), match="output_size must be"),
]
_BAD_DTYPE = [Bad("i32[2,3,8,8]", 2, match="must be a float tensor")]


@op("window", role="sum", scales=True, samples=_SAMPLES_2D, bad=_BAD_2D + _BAD_DTYPE)
def adaptive_avg_pool2d(x: Tensor, output_size: Sizes) -> Tensor:
    """Mean of each window: ``x [N, C, H, W]`` to ``[N, C, *output_size]``.

    Raises ShapeError for unbatched inputs, DTypeError for integers, ArgumentError for an
    ``output_size`` that is not ints >= 1 or None."""
    return _run(adaptive_avg_pool2d, x, output_size, 2, np.mean)


@op("window", moves_values=True, scales=True, samples=_SAMPLES_2D + _SPECIAL, bad=_BAD_2D)
def adaptive_max_pool2d(x: Tensor, output_size: Sizes) -> Tensor:
    """Largest element of each window, NaN wins: ``x [N, C, H, W]`` to ``[N, C, *output_size]``.

    Raises ShapeError for unbatched inputs, ArgumentError for an ``output_size`` that is not ints
    >= 1 or None."""
    return _run(adaptive_max_pool2d, x, output_size, 2, np.max)


@op("window", role="sum", scales=True, samples=_SAMPLES_1D, bad=_BAD_1D)
def adaptive_avg_pool1d(x: Tensor, output_size: Sizes) -> Tensor:
    """Mean of each window: ``x [N, C, L]`` to ``[N, C, output_size]``. See
    :func:`adaptive_avg_pool2d`."""
    return _run(adaptive_avg_pool1d, x, output_size, 1, np.mean)


@op("window", moves_values=True, scales=True, samples=_SAMPLES_1D, bad=_BAD_1D)
def adaptive_max_pool1d(x: Tensor, output_size: Sizes) -> Tensor:
    """Largest element of each window: ``x [N, C, L]`` to ``[N, C, output_size]``. See
    :func:`adaptive_max_pool2d`."""
    return _run(adaptive_max_pool1d, x, output_size, 1, np.max)


def _attach(record: Op, rank: int, kind: str) -> None:
    def infer(x: Any, output_size: Any) -> TensorType:
        x = require_layout(x, rank)
        if kind == "sum":
            require_float(x, "x")
        elif x.dtype.is_bool:
            raise DTypeError("not defined for bool; use fx.ops.any, or cast to an integer first")
        sizes = output_sizes(output_size, rank)
        kept = (n if out is None else out for n, out in zip(x.shape[2:], sizes))
        return TensorType((*x.shape[:2], *kept), x.dtype)

    def body(i: MultiIndex, x: Reader, output_size: Any) -> Expr:
        return _body(kind, i, x, output_size)

    record.infer(infer)
    record.body(body)
    requires_elements(record)
    canonical_forms(record, {"output_size": lambda value: shortest(output_sizes(value, rank))})


_attach(adaptive_avg_pool1d, 1, "sum")
_attach(adaptive_avg_pool2d, 2, "sum")
_attach(adaptive_max_pool1d, 1, "max")
_attach(adaptive_max_pool2d, 2, "max")
