"""Convolutions over one or two spatial axes, as in torch. The rules hold for any number of axes
(:mod:`fxlite.ops.image.volume`).

Attributes are ints, or a tuple with one int for each spatial axis; they are stored as an int if all axes
agree. Padding is stored as an int, a tuple of ints, or ``((top, bottom), (left, right))`` if the two ends
of an axis differ; "valid" is stored as 0, and "same" as the numbers for which it stands, if the type of
the weight is known. dtypes are promoted as in NumPy; half types are summed in float32 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, DTypeError, ShapeError, number_of
from fxlite.ops.contraction import common_dtype, require_bias
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
    requires_windows,
    shortest,
    stored,
    window_count,
)
from fxlite.ops.op import Op, OptionalTensor, Tensor, op
from fxlite.ops.parameters import Attribute
from fxlite.ops.samples import Bad
from fxlite.scalar import expr
from fxlite.scalar.expr import Expr, MultiIndex, Reader
from fxlite.scalar.index import Index
from fxlite.types import shapes
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import TensorType, type_of

Ints = Any  # an int or a tuple of ints, one for each spatial axis
Pairs = tuple[tuple[int, int], ...]  # padding (low, high) of each spatial axis

#: Elements of the matrix of unrolled windows that the NumPy reference builds at a time.
_COLUMN_LIMIT = 1 << 25


# -- attributes ------------------------------------------------------------------------------------
def padding_pairs(padding: Any, kernel: Sequence[Any], stride: Sequence[int], dilation: Sequence[int]) -> Pairs:
    """The (low, high) padding of each axis, from any form of the ``padding`` attribute.

    "same" puts the odd element at the high end, as torch does. Raises ArgumentError."""
    rank = len(stride)
    if padding == "valid":
        return ((0, 0),) * rank
    if padding == "same":
        if any(s != 1 for s in stride):
            raise ArgumentError(f'padding="same" needs stride 1, not {shortest(stride)!r}; give the padding as numbers')
        totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return tuple((t // 2, t - t // 2) for t in totals)
    if isinstance(padding, str):
        raise ArgumentError(f'padding must be ints, "same" or "valid", not {padding!r}')
    if isinstance(padding, (tuple, list)) and len(padding) == rank:
        ends = [p if isinstance(p, (tuple, list)) else (p, p) for p in padding]
        if all(len(e) == 2 and all(type(v) is int and v >= 0 for v in e) for e in ends):
            return tuple((e[0], e[1]) for e in ends)
    if isinstance(padding, (tuple, list)) and any(isinstance(p, (tuple, list)) for p in padding):
        raise ArgumentError(f"padding must be {rank} pairs (low, high) of ints >= 0, not {padding!r}")
    return tuple((p, p) for p in per_axis(padding, rank, "padding", least=0))


def stored_padding(pairs: Pairs) -> Any:
    """The stored form of padding: an int, a tuple of ints, or pairs if the ends of an axis differ."""
    if all(low == high for low, high in pairs):
        return shortest([low for low, _ in pairs])
    return pairs


def _known_type(value: Any) -> TensorType | None:
    """The type of a node or array; None in a graph without types."""
    if isinstance(value, np.ndarray):
        return type_of(value)
    found = value if isinstance(value, TensorType) else getattr(value, "type", None)
    return found if isinstance(found, TensorType) else None


def _stored_padding(rank: int, bound: Attributes, new: Attributes) -> Attributes:
    """The padding in stored form; "same" stays where the kernel is not known."""
    stride = per_axis(new.get("stride", 1), rank, "stride")
    dilation = per_axis(new.get("dilation", 1), rank, "dilation")
    padding, kernel = bound.get("padding", 0), ()
    if padding == "same":
        weight = _known_type(bound["weight"])
        if weight is None or weight.rank != rank + 2 or not all(type(k) is int for k in weight.shape[2:]):
            return {}
        kernel = weight.shape[2:]
    return {"padding": stored_padding(padding_pairs(padding, kernel, stride, dilation))}


# -- type rules ------------------------------------------------------------------------------------
def checked_operands(rank: int, x: Any, weight: Any, groups: Any, form: str) -> tuple[TensorType, TensorType]:
    """x and weight, checked for their ranks and kernel sizes. Raises ShapeError or ArgumentError."""
    x = require_layout(x, rank)
    kernel = ("kd", "kh", "kw")[-rank:] if rank > 1 else ("k",)
    if not isinstance(weight, TensorType) or weight.rank != rank + 2:
        found = weight.rank if isinstance(weight, TensorType) else 0
        raise ShapeError(f"weight must be [{form}, {', '.join(kernel)}] (rank {rank + 2}), not rank {found}")
    if any(type(k) is not int or k < 1 for k in weight.shape[2:]):
        raise ShapeError(f"the kernel size must be numbers >= 1, not {list(weight.shape[2:])}")
    if type(groups) is not int or groups < 1:
        raise ArgumentError(f"groups must be an int >= 1, not {groups!r}")
    channels = weight.shape[0]
    if type(channels) is int and channels % groups:
        raise ShapeError(f"weight.shape[0] = {channels} does not divide into groups={groups}")
    return x, weight


def require_channels(x: TensorType, expected: Any, how: str) -> None:
    """Raise ShapeError unless axis 1 of ``x`` has ``expected`` channels; ``how`` explains this number."""
    if not shapes.equal(x.shape[1], expected):
        hint = f"x must have {number_of(expected, 'channel')} on axis 1"
        if shapes.equal(x.shape[-1], expected):
            hint = "x looks channels-last: permute it to [N, C, ...]"
        raise ShapeError(f"x has {number_of(x.shape[1], 'channel')}, but weight takes {expected} ({how}); {hint}")


def result_dtype(x: TensorType, weight: TensorType, bias: Any) -> DType:
    """The common dtype of a convolution's operands. Raises DTypeError for bool."""
    result = common_dtype(x, weight, bias)
    if result.is_bool:
        raise DTypeError("not defined for bool; cast x and weight to a float or an integer first")
    return result


def _infer(
    rank: int, x: Any, weight: Any, bias: Any, stride: Ints, padding: Any, dilation: Ints, groups: Any
) -> TensorType:
    x, weight = checked_operands(rank, x, weight, groups, "C_out, C_in/groups")
    expected = shapes.normalize(weight.shape[1] * groups)
    require_channels(x, expected, f"weight.shape[1] * groups = {weight.shape[1]} * {groups}")
    if bias is not None:
        require_bias(bias, weight.shape[0])
    steps, gaps = per_axis(stride, rank, "stride"), per_axis(dilation, rank, "dilation")
    pairs = padding_pairs(padding, weight.shape[2:], steps, gaps)
    sizes = [
        window_count(x.shape[2 + a], gaps[a] * (weight.shape[2 + a] - 1) + 1, steps[a], *pairs[a], LAYOUTS[rank][2 + a])
        for a in range(rank)
    ]
    return TensorType((x.shape[0], weight.shape[0], *sizes), result_dtype(x, weight, bias))


# -- references ------------------------------------------------------------------------------------
def windows_of(x: Any, kernel: Sequence[int], stride: Sequence[int], pairs: Pairs, dilation: Sequence[int]) -> Any:
    """The windows of an image [N, C, ...] that a kernel multiplies: [N, C, places..., kernel...]."""
    if any(p != (0, 0) for p in pairs):
        x = np.pad(x, ((0, 0), (0, 0), *pairs))
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilation)]
    windows = np.lib.stride_tricks.sliding_window_view(x, spans, axis=tuple(range(2, 2 + len(spans))))
    steps = (*(slice(None, None, s) for s in stride), *(slice(None, None, d) for d in dilation))
    return windows[(slice(None), slice(None), *steps)]


def _convolve(
    x: Any, weight: Any, bias: Any, stride: Sequence[int], pairs: Pairs, dilation: Sequence[int], groups: int
) -> Any:
    """Unroll windows into the columns of a matrix, then compute a matrix product for each group."""
    result = common_dtype(x, weight, bias)
    wide = result.compute.numpy
    x, weight = x.astype(wide, copy=False), weight.astype(wide, copy=False)
    rank, outputs = len(stride), weight.shape[0]
    windows = windows_of(x, weight.shape[2:], stride, pairs, dilation)
    sizes = windows.shape[2 : 2 + rank]
    columns = windows.transpose(0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank))
    points, depth = math.prod(sizes), math.prod(weight.shape[1:])
    matrix = weight.reshape(groups, outputs // groups, depth)
    total = np.empty((x.shape[0], groups, outputs // groups, points), wide)
    step = max(1, _COLUMN_LIMIT // max(1, groups * depth * points))
    for start in range(0, x.shape[0], step):
        part = columns[start : start + step]
        part = part.reshape(part.shape[0], groups, depth, points)
        np.matmul(matrix, part, out=total[start : start + step])
    return finish(total.reshape(x.shape[0], outputs, *sizes), bias, result)


def finish(total: Any, bias: Any, result: DType) -> Any:
    """The last step of the reference: add the bias to each channel (axis 1) and cast to ``result``."""
    if bias is not None:
        total = total + np.asarray(bias).astype(total.dtype).reshape(-1, *[1] * (total.ndim - 2))
    return np.ascontiguousarray(total.astype(result.numpy, copy=False))


# -- bodies ----------------------------------------------------------------------------------------
def _body(
    i: MultiIndex, x: Reader, weight: Reader, bias: Any, stride: Ints, padding: Any, dilation: Ints, groups: int
) -> Expr:
    rank = len(i) - 2
    kernel = [k.constant for k in weight.shape[2:]]
    steps, gaps = per_axis(stride, rank, "stride"), per_axis(dilation, rank, "dilation")
    pairs = padding_pairs(padding, kernel, steps, gaps)
    result = common_dtype(x, weight, bias)
    first = group_of(i[1], weight.shape[0], groups) * weight.shape[1]

    def element(c: Index, *r: Index) -> Expr:
        place: list[Index] = []
        conditions: list[Expr] = []
        for a, (low, high) in enumerate(pairs):
            at = i[2 + a] * steps[a] + r[a] * gaps[a] - low
            # without padding at an end, no window extends beyond the array there
            if low:
                conditions.append(not_negative(at))
            if high:
                conditions.append(expr.less(at, x.shape[2 + a]))
            place.append(at)
        value = expr.read_guarded(x, (i[0], first + c, *place), expr.both(*conditions), 0)
        return expr.cast(value, result.compute) * expr.cast(weight[(i[1], c, *r)], result.compute)

    total = reduce_over("sum", [weight.shape[1], *weight.shape[2:]], element)
    return add_bias(total, i[1], bias, result)


def group_of(channel: Index, outputs: Index, groups: int) -> Index:
    """The group to which an output channel belongs."""
    return Index.of(0) if groups == 1 else channel // (outputs // groups)


def add_bias(total: Expr, channel: Index, bias: Reader | None, result: DType) -> Expr:
    """:func:`finish` for one element: the sum plus the bias of its channel, cast to ``result``."""
    if bias is not None:
        total = total + expr.cast(bias[channel], result.compute)
    return expr.cast(total, result)


# -- records ---------------------------------------------------------------------------------------
@op(
    "contraction",
    weight="weight",
    role="product",
    expands_weight=True,
    is_convolution=True,
    samples=[
        "f32[B,3,H] f32[4,3,3] f32[4] padding=1 B=2 H=7; f32[2,4,9] f32[6,2,2] stride=2 groups=2",
        "f32[2,3,9] f32[2,3,3] dilation=2; f32[2,2,6] f32[3,2,4] padding='same'; f64[1,2,5] f64[3,2,1] f64[3]",
        "f16[2,2,6] f16[3,2,3] f16[3] padding=1; i32[1,2,6] i32[3,2,3]; f32[0,3,7] f32[4,3,3]",
        "f32[2,3,6] f32[3,1,3] padding=((2,0),) groups=3; f32[2,3,H] f32[2,3,3] stride=2 H=8",
    ],
    bad=[
        Bad("f32[2,3,7]", "f32[4,2,3]", match="x has 3 channels, but weight takes 2"),
        Bad("f32[3,7]", "f32[4,3,3]", match="add the batch axis with x[None]"),
        Bad("f32[2,3,4]", "f32[4,3,5]", match="does not fit along L"),
        Bad("f32[2,3,7]", "f32[4,3,3]", stride=0, match="stride must be at least 1"),
    ],
)
def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: OptionalTensor = None,
    stride: Ints = 1,
    padding: Attribute = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution over one axis (torch.nn.functional.conv1d): ``x [N, C, L]``, ``weight [C_out,
    C/groups, k]``, ``bias [C_out]`` to ``[N, C_out, L_out]``. See :func:`conv2d`."""
    return run_convolution(1, x, weight, bias, stride, padding, dilation, groups)


@op(
    "contraction",
    weight="weight",
    role="product",
    expands_weight=True,
    is_convolution=True,
    samples=[
        "f32[B,3,H,W] f32[4,3,3,3] f32[4] padding=1 B=2 H=6 W=5; f32[2,3,7,8] f32[4,3,3,2] stride=(2,1) padding=(1,0)",
        "f32[B,4,H,W] f32[6,2,3,3] f32[6] stride=2 padding=1 groups=2 B=1 H=7 W=8",
        "f32[2,3,7,7] f32[3,1,3,3] f32[3] padding=1 groups=3; f32[1,2,9,8] f32[3,2,3,3] dilation=(2,3) padding=2",
        "f32[B,3,5,5] f32[4,3,1,1] B=2; f32[2,3,5,6] f32[2,3,1,1] stride=2; f32[1,2,5,6] f32[3,2,2,4] padding='same'",
        "f32[1,2,5,6] f32[3,2,3,3] padding='valid'; f32[1,2,5,6] f32[3,2,3,3] padding=((0,2),(1,0))",
        "f64[1,2,5,5] f64[3,2,3,3] f64[3]; f16[1,2,5,5] f16[3,2,3,3] f16[3] padding=1",
        "bf16[1,2,4,4] bf16[3,2,3,3] padding=1; i32[1,2,4,4] i32[3,2,3,3]; f32[0,3,5,5] f32[4,3,3,3] f32[4]",
        "f32[2,3,3,3] f32[4,3,3,3]; f32[1,2,H,W] f32[2,2,3,3] stride=2 H=8 W=7",
        "f32[B,H,W,3] f32[4,3,3,3] f32[4] padding=1 layout='NHWC' B=2 H=6 W=5",
        "f32[2,5,6,4] f32[6,2,1,1] stride=2 groups=2 layout='NHWC'",
        "f32[1,9,8,5] f32[5,1,3,3] f32[5] padding=1 groups=5 layout='NHWC'",
        "f64[1,9,8,2] f64[3,2,2,3] dilation=(2,3) padding='same' layout='NHWC'",
        "f16[1,5,5,2] f16[3,2,3,3] f16[3] layout='NHWC'; f32[0,5,5,3] f32[4,3,1,1] f32[4] layout='NHWC'",
    ],
    bad=[
        Bad("f32[2,3,7,7]", "f32[4,2,3,3]", match="x has 3 channels, but weight takes 2"),
        Bad("f32[2,7,7,3]", "f32[4,3,3,3]", match="channels-last"),
        Bad("f32[3,7,7]", "f32[4,3,3,3]", match="add the batch axis with x[None]"),
        Bad("f32[2,3,7,7]", "f32[4,3,3]", match="weight must be [C_out, C_in/groups, kh, kw]"),
        Bad("f32[2,3,7,7]", "f32[4,3,3,3]", "f32[3]", match="bias must be [4]"),
        Bad("f32[2,4,7,7]", "f32[5,2,3,3]", groups=2, match="does not divide into groups=2"),
        Bad("f32[2,3,2,7]", "f32[4,3,3,3]", match="does not fit along H"),
        Bad("f32[2,3,7,7]", "f32[4,3,3,3]", stride=2, padding="same", match="needs stride 1"),
        Bad("f32[2,3,7,7]", "f32[4,3,3,3]", padding=(1, 2, 3), match="an int or 2 ints"),
        Bad("f32[2,3,7,7]", "f32[4,3,3,3]", padding="full", match='"same" or "valid"'),
        Bad("f32[2,3,7,7]", "f32[4,3,3,3]", dilation=1.5, match="dilation must be"),
        Bad("bool[2,3,7,7]", "bool[4,3,3,3]", match="not defined for bool"),
        Bad("f32[2,7,7,3]", "f32[4,3,3,3]", layout="HWCN", match='must be "NCHW" or "NHWC"'),
        Bad("f32[7,7,3]", "f32[4,3,3,3]", layout="NHWC", match="[N, H, W, C]"),
    ],
)
def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: OptionalTensor = None,
    stride: Ints = 1,
    padding: Attribute = 0,
    dilation: Ints = 1,
    groups: int = 1,
    layout: str = "NCHW",
) -> Tensor:
    """Convolution over two axes (torch.nn.functional.conv2d; a cross-correlation).

    ``x [N, C, H, W]``, ``weight [C_out, C/groups, kh, kw]``, ``bias [C_out]`` to
    ``[N, C_out, H_out, W_out]`` with
    ``H_out = (H + top + bottom - dilation*(kh - 1) - 1) // stride + 1``.

    ``padding`` is the number of zeros on both ends: an int, (h, w), or ((top, bottom), (left, right)).
    "valid" is 0; "same" (only with stride 1) keeps the size, with an odd element at the bottom and right.
    With ``layout="NHWC"``, x is ``[N, H, W, C]`` and the result is ``[N, H_out, W_out, C_out]``; the
    weight is the same.

    Raises ShapeError for an unbatched input and for channels or kernels that do not fit, and
    ArgumentError for attributes that are not ints in range."""
    x = channels_first(x, layout)
    return stored(run_convolution(2, x, weight, bias, stride, padding, dilation, groups), layout)


def run_convolution(
    rank: int, x: Any, weight: Any, bias: Any, stride: Ints, padding: Any, dilation: Ints, groups: int
) -> Any:
    """The reference of a convolution over ``rank`` axes."""
    x, weight = np.asarray(x), np.asarray(weight)
    steps, gaps = per_axis(stride, rank, "stride"), per_axis(dilation, rank, "dilation")
    pairs = padding_pairs(padding, weight.shape[2:], steps, gaps)
    return _convolve(x, weight, bias, steps, pairs, gaps, groups)


def convolves(record: Op, rank: int) -> None:
    """Attach the rules of a convolution over ``rank`` axes."""
    rules = partial(_infer, rank), _body
    infer, body = in_layouts(*rules) if rank == 2 else rules
    record.infer(infer)
    record.body(body)
    requires_windows(record)
    canonical_forms(record, {n: ints(rank, n) for n in ("stride", "dilation")}, partial(_stored_padding, rank))


convolves(conv1d, 1)
convolves(conv2d, 2)
