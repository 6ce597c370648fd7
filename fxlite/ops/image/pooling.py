"""Pooling over one or two spatial axes: maximum and average, with fixed or adaptive windows.

Inputs are ``[N, C, L]`` or ``[N, C, H, W]``, and all attributes mean the same as in torch: padding never
wins a maximum, but NaN does; ``ceil_mode`` rounds the number of windows up, as long as the last one starts
inside the axis. Attributes are stored as an int if all axes agree, and ``stride`` only if it is not the
kernel size. Averages of half types are summed in float32 and rounded once.

Adaptive pooling takes the output size: an int, or one int or None (keep the size) for each axis. Window
``i`` of an axis goes from ``floor(i*size/out)`` to ``ceil((i+1)*size/out)``
(torch.nn.functional.adaptive_avg_pool2d) and has ``ceil((i*size % out + size) / out)`` elements.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, DTypeError
from fxlite.ops.image.spatial import (
    LAYOUTS,
    Attributes,
    canonical_forms,
    channels_first,
    in_layouts,
    ints,
    not_negative,
    per_axis,
    reduce_over,
    require_layout,
    requires_elements,
    requires_windows,
    shortest,
    stored,
    window_count,
)
from fxlite.ops.op import Op, Tensor, op, require_float
from fxlite.ops.parameters import Attribute
from fxlite.ops.samples import Bad
from fxlite.scalar import expr
from fxlite.scalar.expr import Expr, MultiIndex, Reader
from fxlite.scalar.index import Index, extremum, product
from fxlite.types import dtypes
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import TensorType, type_of

Ints = Any  # an int or a tuple of ints, one for each spatial axis


Windows = tuple[tuple[int, ...], ...]  # kernel, stride, padding and dilation of each axis


# -- fixed windows ---------------------------------------------------------------------------------
def windows_of(rank: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any = 1) -> Windows:
    """The kernel, stride, padding and dilation of each axis. Raises ArgumentError."""
    kernel = per_axis(kernel_size, rank, "kernel_size")
    steps = kernel if stride is None else per_axis(stride, rank, "stride")
    pads = per_axis(padding, rank, "padding", least=0)
    gaps = per_axis(dilation, rank, "dilation")
    for k, p, d in zip(kernel, pads, gaps):
        if p > (d * (k - 1) + 1) // 2:
            raise ArgumentError(
                f"padding {p} is more than half of the window of {d * (k - 1) + 1}, so a window "
                f"could lie outside the input; pad with fx.ops.pad first"
            )
    return kernel, steps, pads, gaps


def reaching(windows: Windows, sizes: Sequence[Any]) -> Windows:
    """The windows without places that lie beyond the input in all of them: with ``ceil_mode``, models have windows
    of thousands of places on images of four. ``sizes`` are those of the input; named sizes may reach every place."""
    kernel, steps, pads, gaps = windows
    places = [
        k if type(n) is not int else max(min(k, (n - 1 + p) // d + 1), 1)
        for k, n, p, d in zip(kernel, sizes, pads, gaps)
    ]
    return tuple(places), steps, pads, gaps


def pooled_type(rank: int, x: Any, windows: Windows, ceil_mode: bool) -> TensorType:
    """The type of x [N, C, ...] pooled over ``rank`` axes. Raises ShapeError."""
    x = require_layout(x, rank)
    sizes = [
        window_count(n, d * (k - 1) + 1, s, p, p, axis, ceil_mode)
        for n, k, s, p, d, axis in zip(x.shape[2:], *windows, LAYOUTS[rank][2:])
    ]
    return TensorType((*x.shape[:2], *sizes), x.dtype)


def _stored_stride(bound: Attributes, new: Attributes) -> Attributes:
    """A stride that is the size of the kernel is stored as None."""
    return {"stride": None} if new.get("stride") == new.get("kernel_size") else {}


def _require_order(dtype: DType) -> None:
    """Raise DTypeError for a dtype without an order, whose maximum cannot be pooled."""
    if dtype.is_bool:
        raise DTypeError("not defined for bool; use fx.ops.any, or cast to an integer first")
    if dtype.is_complex:
        raise DTypeError(f"not defined for {dtype}; take abs, .real or .imag first")


def lowest(dtype: DType) -> bool | int | float:
    """The value that never wins a maximum."""
    if dtype.is_float:
        return -math.inf
    return False if dtype.is_bool else int(np.iinfo(dtype.numpy).min)


def _shifted(x: Any, sizes: Sequence[int], windows: Windows, fill: Any) -> Callable[[tuple[int, ...]], Any]:
    """A function from a position in the window to the input elements at that position of all windows."""
    kernel, steps, pads, gaps = windows
    ends = [
        max((m - 1) * s + d * (k - 1) + 1 - p - n, 0)
        for m, s, d, k, p, n in zip(sizes, steps, gaps, kernel, pads, x.shape[2:])
    ]
    if any(pads) or any(ends):
        x = np.pad(x, ((0, 0), (0, 0), *zip(pads, ends)), constant_values=fill)

    def at(position: tuple[int, ...]) -> Any:
        first = [r * d for r, d in zip(position, gaps)]
        place = (slice(f, f + (m - 1) * s + 1, s) for f, m, s in zip(first, sizes, steps))
        return x[(slice(None), slice(None), *place)]

    return at


def run_max(rank: int, x: Any, windows: Windows, ceil_mode: bool, layout: str = "NCHW") -> Any:
    """The reference of max pooling over ``rank`` axes."""
    x = channels_first(x, layout)
    sizes = pooled_type(rank, type_of(x), windows, ceil_mode).shape[2:]
    windows = reaching(windows, x.shape[2:])
    at = _shifted(x, sizes, windows, x.dtype.type(lowest(dtypes.dtype(x.dtype))))
    positions = itertools.product(*(range(k) for k in windows[0]))
    best = np.ascontiguousarray(at(next(positions)))
    for position in positions:
        best = np.maximum(best, at(position))
    return stored(best, layout)


def run_avg(rank: int, x: Any, windows: Windows, ceil_mode: bool, count_include_pad: bool, layout: str = "NCHW") -> Any:
    """The reference of average pooling over ``rank`` axes."""
    x = channels_first(x, layout)
    sizes = pooled_type(rank, type_of(x), windows, ceil_mode).shape[2:]
    result = dtypes.dtype(x.dtype)
    read = reaching(windows, x.shape[2:])
    at = _shifted(x.astype(result.compute.numpy, copy=False), sizes, read, 0)
    with np.errstate(all="ignore"):
        total: Any = 0
        for position in itertools.product(*(range(k) for k in read[0])):
            total = total + at(position)
        count: Any = np.ones((), result.compute.numpy)
        for axis, (m, n, k, s, p, _) in enumerate(zip(sizes, x.shape[2:], *windows)):
            start = np.arange(m) * s - p
            end = np.minimum(start + k, n + p)
            if not count_include_pad:
                start, end = np.maximum(start, 0), np.minimum(end, n)
            lengths = (end - start).astype(count.dtype)
            count = count * lengths.reshape(-1, *[1] * (rank - 1 - axis))
        return stored((total / count).astype(result.numpy, copy=False), layout)


def _max_body(
    i: MultiIndex, x: Reader, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> Expr:
    windows = windows_of(len(i) - 2, kernel_size, stride, padding, dilation)

    def element(*r: Index) -> Expr:
        return _read(i, x, r, windows, ceil_mode, lowest(x.dtype))

    return reduce_over("max", places_read(windows, x), element)


def _avg_body(
    i: MultiIndex, x: Reader, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool
) -> Expr:
    windows = windows_of(len(i) - 2, kernel_size, stride, padding)
    computed = x.dtype.compute

    def element(*r: Index) -> Expr:
        return expr.cast(_read(i, x, r, windows, ceil_mode, 0), computed)

    lengths: list[Index] = []
    for o, n, k, s, p, _ in zip(i[2:], x.shape[2:], *windows):
        if not ceil_mode and (count_include_pad or not p):
            lengths.append(Index.of(k))
            continue
        start = o * s - p
        if count_include_pad:
            lengths.append(extremum("min", start + k, n + p) - start)
        else:
            lengths.append(extremum("min", start + k, n) - extremum("max", start, 0))
    total = reduce_over("sum", places_read(windows, x), element)
    count = expr.cast(expr.index_value(product(lengths)), computed)
    return expr.cast(total / count, x.dtype)


def places_read(windows: Windows, x: Reader) -> tuple[int, ...]:
    """The number of places of a window that are read along each axis."""
    sizes = (n.constant if isinstance(n, Index) else n for n in x.shape[2:])
    return reaching(windows, list(sizes))[0]


def place_of(
    i: MultiIndex, x: Reader, r: Sequence[Index], windows: Windows, ceil_mode: bool
) -> tuple[MultiIndex, Expr]:
    """The place in an image of element ``r`` of the window of output element ``i``, and whether it is no padding."""
    place: list[Index] = []
    conditions: list[Expr] = []
    for o, n, offset, _, s, p, d in zip(i[2:], x.shape[2:], r, *windows):
        at = o * s + offset * d - p
        # without padding and ceil_mode, no window extends beyond the array
        if p:
            conditions.append(not_negative(at))
        if p or ceil_mode:
            conditions.append(expr.less(at, n))
        place.append(at)
    return tuple(place), expr.both(*conditions)


def _read(i: MultiIndex, x: Reader, r: Sequence[Index], windows: Windows, ceil_mode: bool, fill: Any) -> Expr:
    """Element ``r`` of the window of output element ``i``, or ``fill`` in the padding."""
    place, condition = place_of(i, x, r, windows, ceil_mode)
    return expr.read_guarded(x, (*i[:2], *place), condition, fill)


_MAX_BAD_2D = [
    Bad("f32[3,8,8]", 2, match="add the batch axis with x[None]"),
    Bad("f32[2,3,8,8]", 2, padding=2, match="more than half of the window"),
    Bad("f32[2,3,8,1]", 2, match="does not fit along W"),
    Bad("f32[2,3,8,8]", (2, 2, 2), match="kernel_size must be an int or 2 ints"),
    Bad("f32[2,3,8,8]", 0, match="kernel_size must be at least 1"),
    Bad("f32[2,3,8,8]", match="'kernel_size' is missing"),
]
_BAD_LAYOUT = Bad("f32[8,8,3]", 2, layout="NHWC", match="[N, H, W, C] (rank 4)")


@op(
    "window",
    moves_values=True,
    scales=True,
    samples=[
        "f32[B,3,H,W] 2 B=2 H=7 W=6; f32[B,2,H,W] 3 2 1 B=1 H=8 W=7; f32[1,2,7,8] (3,2) stride=(2,1) padding=(1,0)",
        "f32[1,2,9,8] 3 stride=2 dilation=2 padding=1; f32[B,1,H,W] 3 2 1 ceil_mode=True B=2 H=6 W=9",
        "f32[1,2,6,5] 2 ceil_mode=True; f32[1,1,5,5]! 2 stride=1; f64[1,2,5,5] 2; f16[1,2,5,5] 2; bf16[1,2,4,4] 2",
        "i32[1,2,5,5] 3 1 1; u8[1,2,5,5] 3 1 1; f32[0,2,5,5] 2; f32[1,2,4,4] 1 2; f32[1,2,2,3] 9 7 3 ceil_mode=True",
        "f32[B,H,W,5] 3 2 1 layout='NHWC' B=2 H=8 W=7; f32[1,5,5,3]! (2,3) stride=1 layout='NHWC'",
        "i32[1,6,5,3] 3 2 1 ceil_mode=True layout='NHWC'; f32[0,5,5,2] 2 layout='NHWC'",
    ],
    bad=[*_MAX_BAD_2D, _BAD_LAYOUT],
)
def max_pool2d(
    x: Tensor,
    kernel_size: Ints,
    stride: Attribute = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    layout: str = "NCHW",
) -> Tensor:
    """The largest element of each window (torch.nn.functional.max_pool2d); NaN wins.

    ``x [N, C, H, W]`` to ``[N, C, H_out, W_out]`` with ``H_out = (H + 2*padding -
    dilation*(kernel_size - 1) - 1) // stride + 1``, which ``ceil_mode`` rounds up as long as the last
    window starts inside. ``stride=None`` is the kernel size. With ``layout="NHWC"``, x is
    ``[N, H, W, C]`` and the result has the same layout.

    Raises ShapeError for unbatched inputs and windows that do not fit, and ArgumentError for padding of
    more than half a window."""
    return run_max(2, x, windows_of(2, kernel_size, stride, padding, dilation), ceil_mode, layout)


@op(
    "window",
    moves_values=True,
    scales=True,
    samples=[
        "f32[B,3,L] 2 B=2 L=7; f32[1,2,8] 3 2 1 ceil_mode=True; f32[1,2,9] 3 stride=1 dilation=2",
        "f64[1,2,6] (2,) stride=(2,); f32[1,2,8]! 2; i32[1,2,6] 2; f32[0,2,6] 2",
    ],
    bad=[Bad("f32[3,8]", 2, match="add the batch axis"), Bad("f32[2,3,4]", 5, match="along L")],
)
def max_pool1d(
    x: Tensor,
    kernel_size: Ints,
    stride: Attribute = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """The largest element of each window of ``x [N, C, L]``. See :func:`max_pool2d`."""
    return run_max(1, x, windows_of(1, kernel_size, stride, padding, dilation), ceil_mode)


@op(
    "window",
    role="sum",
    scales=True,
    samples=[
        "f32[B,3,H,W] 2 B=2 H=7 W=6; f32[B,2,H,W] 3 2 1 B=1 H=8 W=7",
        "f32[1,2,7,8] (3,2) stride=(2,1) padding=(1,0) count_include_pad=False",
        "f32[B,1,H,W] 3 2 1 ceil_mode=True B=2 H=6 W=9",
        "f32[B,1,H,W] 3 2 1 ceil_mode=True count_include_pad=False B=2 H=6 W=9; f32[1,2,6,5] 2 ceil_mode=True",
        "f64[1,2,5,5] 2; f16[1,2,5,5] 2; bf16[1,2,4,4] 3 1 1; f32[0,2,5,5] 2; f32[1,2,4,4] 1 2",
        "f32[1,2,2,3] 9 ceil_mode=True; f32[1,2,2,3] 9 7 2 ceil_mode=True count_include_pad=False",
        "f32[B,H,W,5] 3 2 1 layout='NHWC' B=2 H=8 W=7",
        "f32[B,H,W,1] 3 2 1 ceil_mode=True count_include_pad=False layout='NHWC' B=2 H=6 W=9",
        "f64[1,5,6,3] (2,3) layout='NHWC'",
    ],
    bad=[*_MAX_BAD_2D, _BAD_LAYOUT, Bad("i32[2,3,8,8]", 2, match="must be a float tensor")],
)
def avg_pool2d(
    x: Tensor,
    kernel_size: Ints,
    stride: Attribute = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: str = "NCHW",
) -> Tensor:
    """The mean of each window (torch.nn.functional.avg_pool2d); sizes are as in :func:`max_pool2d`.

    The sum is divided by the number of elements of the window, including padding unless
    ``count_include_pad`` is False; elements that ``ceil_mode`` adds beyond the padding never count.
    Raises the errors of :func:`max_pool2d`, and DTypeError for integers."""
    return run_avg(2, x, windows_of(2, kernel_size, stride, padding), ceil_mode, count_include_pad, layout)


@op(
    "window",
    role="sum",
    scales=True,
    samples=[
        "f32[B,3,L] 2 B=2 L=7; f32[1,2,8] 3 2 1 ceil_mode=True; f32[1,2,8] 3 2 1 count_include_pad=False",
        "f64[1,2,6] (2,) stride=(1,); f16[1,2,6] 2; f32[0,2,6] 2",
    ],
    bad=[Bad("f32[3,8]", 2, match="add the batch axis"), Bad("f32[2,3,4]", 5, match="along L")],
)
def avg_pool1d(
    x: Tensor,
    kernel_size: Ints,
    stride: Attribute = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window of ``x [N, C, L]``. See :func:`avg_pool2d`."""
    return run_avg(1, x, windows_of(1, kernel_size, stride, padding), ceil_mode, count_include_pad)


def pools(max_pool: Op, avg_pool: Op, rank: int) -> None:
    """Attach the rules of pooling over ``rank`` axes."""

    def max_type(x: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> TensorType:
        found = pooled_type(rank, x, windows_of(rank, kernel_size, stride, padding, dilation), ceil_mode)
        _require_order(found.dtype)
        return found

    def avg_type(
        x: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool
    ) -> TensorType:
        found = pooled_type(rank, x, windows_of(rank, kernel_size, stride, padding), ceil_mode)
        require_float(found, "x")
        return found

    forms = {name: ints(rank, name) for name in ("kernel_size", "dilation")}
    forms |= {"padding": ints(rank, "padding", 0), "stride": lambda v: None if v is None else ints(rank, "stride")(v)}
    rules: list[tuple[Op, Any, Any]] = [(max_pool, max_type, _max_body), (avg_pool, avg_type, _avg_body)]
    for record, infer, body in rules:
        if rank == 2:
            infer, body = in_layouts(infer, body)
        record.infer(infer)
        record.body(body)
        requires_windows(record)
        canonical_forms(record, forms, _stored_stride)


pools(max_pool1d, avg_pool1d, 1)
pools(max_pool2d, avg_pool2d, 2)


#: The most windows along an axis, which are made one by one.
LARGEST_OUTPUT = 2**20
Sizes = Any  # an int, or one int or None for each spatial axis


def output_sizes(output_size: Any, rank: int) -> tuple[int | None, ...]:
    """One int or None for each axis. Raises ArgumentError."""
    sizes = (output_size,) * rank if output_size is None or type(output_size) is int else output_size
    if isinstance(sizes, (tuple, list)) and len(sizes) == 1:
        sizes = tuple(sizes) * rank
    if not isinstance(sizes, (tuple, list)):
        sizes = ()
    if len(sizes) == rank and all(s is None or (type(s) is int and 1 <= s <= LARGEST_OUTPUT) for s in sizes):
        return tuple(sizes)
    wanted = "an int of 1 to 2**20" if rank == 1 else f"an int of 1 to 2**20, or {rank} of them (None: keep the size)"
    raise ArgumentError(f"output_size must be {wanted}, not {output_size!r}")


def adaptive_window(o: Index, size: Index, out: int | None) -> tuple[Index, Index]:
    """The (start, length) of the window of output element ``o``."""
    if out is None or size == out:
        return o, Index.of(1)
    if out == 1:
        return Index.of(0), size
    return o * size // out, (o * size % out + size + (out - 1)) // out


def _body(kind: str, i: MultiIndex, x: Reader, output_size: Any) -> Expr:
    computed = x.dtype.compute if kind == "sum" else x.dtype
    sizes = output_sizes(output_size, len(i) - 2)
    windows = [adaptive_window(*each) for each in zip(i[2:], x.shape[2:], sizes)]

    def element(*r: Index) -> Expr:
        place = (start + offset for (start, _), offset in zip(windows, r))
        return expr.cast(x[(*i[:2], *place)], computed)

    lengths = [length for _, length in windows]
    total = reduce_over(kind, lengths, element)
    if kind == "sum":
        total = total / expr.cast(expr.index_value(product(lengths)), computed)
    return expr.cast(total, x.dtype)


def _pool_axis(x: Any, axis: int, out: int | None, reduce: Callable[..., Any]) -> Any:
    """Pool along one axis. Windows over several axes are products of windows over one, so axes are pooled one
    after another."""
    size = x.shape[axis]
    if out is None or size == out:
        return x
    if out == 1:
        return reduce(x, axis=axis, keepdims=True)
    leading = (slice(None),) * axis
    parts = [reduce(x[(*leading, slice(n * size // out, -(-(n + 1) * size // out)))], axis=axis) for n in range(out)]
    return np.stack(parts, axis=axis)


def run_adaptive(x: Any, output_size: Any, rank: int, reduce: Callable[..., Any]) -> Any:
    """The reference of adaptive pooling over ``rank`` axes."""
    x = np.asarray(x)
    result = dtypes.dtype(x.dtype)
    wide = x.astype(result.compute.numpy, copy=False) if reduce is np.mean else x
    with np.errstate(all="ignore"):
        for axis, out in enumerate(output_sizes(output_size, rank), start=2):
            wide = _pool_axis(wide, axis, out, reduce)
    return np.array(wide, dtype=result.numpy)


_SAMPLES_1D = [
    "f32[B,3,L] 3 B=2 L=7; f32[2,3,L] 1 L=5; f32[1,2,3] 5; f64[1,2,8] (4,); f16[1,2,5] 2; f32[1,2,5] (None,)",
    "f32[0,2,5] 2",
]
_SAMPLES_2D = [
    "f32[B,3,H,W] (3,2) B=2 H=7 W=5; f32[B,2,H,W] 1 B=2 H=4 W=5; f32[1,2,6,8] (3,None); f32[1,2,6,6] 3",
    "f32[1,2,3,5] (5,4); f32[B,2,6,H] (None,4) B=1 H=6; f64[1,2,5,4] 2; f16[1,2,5,4] 2; bf16[1,2,5,4] (1,3)",
    "f32[1,2,4,4] 4; f32[0,2,5,5] 2",
]
_SPECIAL = ["f32[1,1,5,5]! 3; i32[1,2,5,4] 2"]
_BAD_1D = [Bad("f32[3,8]", 2, match="add the batch axis"), Bad("f32[2,3,8]", (2, 2), match="output_size must be")]
_BAD_2D = [
    Bad("f32[3,8,8]", 2, match="add the batch axis"),
    Bad("f32[2,3,8,8]", 0, match="output_size must be"),
    Bad("f32[2,3,8,8]", (2, 2, 2), match="output_size must be"),
]
_BAD_DTYPE = [Bad("i32[2,3,8,8]", 2, match="must be a float tensor")]


@op("window", role="sum", scales=True, samples=_SAMPLES_2D, bad=_BAD_2D + _BAD_DTYPE)
def adaptive_avg_pool2d(x: Tensor, output_size: Sizes) -> Tensor:
    """The mean of each adaptive window: ``x [N, C, H, W]`` to ``[N, C, *output_size]``.

    Raises ShapeError for unbatched inputs, DTypeError for integers, and ArgumentError for an
    ``output_size`` that does not consist of ints >= 1 or None."""
    return run_adaptive(x, output_size, 2, np.mean)


@op("window", moves_values=True, scales=True, samples=_SAMPLES_2D + _SPECIAL, bad=_BAD_2D)
def adaptive_max_pool2d(x: Tensor, output_size: Sizes) -> Tensor:
    """The largest element of each adaptive window: ``x [N, C, H, W]`` to ``[N, C, *output_size]``. NaN wins.

    Raises ShapeError for unbatched inputs, and ArgumentError for an ``output_size`` that does not consist
    of ints >= 1 or None."""
    return run_adaptive(x, output_size, 2, np.max)


@op("window", role="sum", scales=True, samples=_SAMPLES_1D, bad=_BAD_1D)
def adaptive_avg_pool1d(x: Tensor, output_size: Sizes) -> Tensor:
    """The mean of each adaptive window: ``x [N, C, L]`` to ``[N, C, output_size]``. See
    :func:`adaptive_avg_pool2d`."""
    return run_adaptive(x, output_size, 1, np.mean)


@op("window", moves_values=True, scales=True, samples=_SAMPLES_1D, bad=_BAD_1D)
def adaptive_max_pool1d(x: Tensor, output_size: Sizes) -> Tensor:
    """The largest element of each adaptive window: ``x [N, C, L]`` to ``[N, C, output_size]``. See
    :func:`adaptive_max_pool2d`."""
    return run_adaptive(x, output_size, 1, np.max)


def pools_adaptively(record: Op, rank: int, kind: str) -> None:
    """Attach the rules of adaptive pooling over ``rank`` axes."""

    def infer(x: Any, output_size: Any) -> TensorType:
        x = require_layout(x, rank)
        if kind == "sum":
            require_float(x, "x")
        else:
            _require_order(x.dtype)
        sizes = output_sizes(output_size, rank)
        kept = (n if out is None else out for n, out in zip(x.shape[2:], sizes))
        return TensorType((*x.shape[:2], *kept), x.dtype)

    record.infer(infer)
    record.body(partial(_body, kind))
    requires_elements(record)
    canonical_forms(record, {"output_size": lambda value: shortest(output_sizes(value, rank))})


pools_adaptively(adaptive_avg_pool1d, 1, "sum")
pools_adaptively(adaptive_avg_pool2d, 2, "sum")
pools_adaptively(adaptive_max_pool1d, 1, "max")
pools_adaptively(adaptive_max_pool2d, 2, "max")
