"""Transposed convolutions over one or two spatial axes (torch's conv_transpose): the gradient of a
convolution with respect to its input. Attributes, dtypes and layouts are as in
:mod:`fxlite.ops.image.convolution`.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, ShapeError
from fxlite.ops.contraction import common_dtype, require_bias
from fxlite.ops.image.convolution import (
    Ints,
    add_bias,
    checked_operands,
    finish,
    group_of,
    require_channels,
    result_dtype,
)
from fxlite.ops.image.spatial import (
    LAYOUTS,
    canonical_forms,
    ints,
    not_negative,
    per_axis,
    reduce_over,
    requires_windows,
)
from fxlite.ops.op import Op, OptionalTensor, Tensor, op
from fxlite.ops.samples import Bad
from fxlite.scalar import expr
from fxlite.scalar.expr import Expr, MultiIndex, Reader
from fxlite.scalar.index import Index, extremum
from fxlite.types import shapes
from fxlite.types.tensor_type import TensorType


def _infer(
    rank: int,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Ints,
    padding: Ints,
    output_padding: Ints,
    groups: Any,
    dilation: Ints,
) -> TensorType:
    x, weight = checked_operands(rank, x, weight, groups, "C_in, C_out/groups")
    require_channels(x, weight.shape[0], f"weight.shape[0] = {weight.shape[0]}")
    outputs = shapes.normalize(weight.shape[1] * groups)
    if bias is not None:
        require_bias(bias, outputs)
    steps, gaps = per_axis(stride, rank, "stride"), per_axis(dilation, rank, "dilation")
    pads = per_axis(padding, rank, "padding", least=0)
    extra = per_axis(output_padding, rank, "output_padding", least=0)
    sizes: list[Any] = []
    for a in range(rank):
        if extra[a] >= max(steps[a], gaps[a]):
            raise ArgumentError(
                f"output_padding {extra[a]} must be smaller than stride {steps[a]} or dilation {gaps[a]}"
            )
        span = gaps[a] * (weight.shape[2 + a] - 1) + 1
        size = shapes.normalize((x.shape[2 + a] - 1) * steps[a] - 2 * pads[a] + span + extra[a])
        if type(size) is int and size < 1:
            raise ShapeError(
                f"nothing is left along {LAYOUTS[rank][2 + a]}: the size would be {size}; use "
                f"less padding than {pads[a]}"
            )
        sizes.append(size)
    return TensorType((x.shape[0], outputs, *sizes), result_dtype(x, weight, bias))


def run_transposed(
    rank: int,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Ints,
    padding: Ints,
    output_padding: Ints,
    groups: int,
    dilation: Ints,
) -> Any:
    """The reference of a transposed convolution over ``rank`` axes: a matrix product for each group, whose columns
    are added at the place of each kernel position."""
    x, weight = np.asarray(x), np.asarray(weight)
    steps, gaps = per_axis(stride, rank, "stride"), per_axis(dilation, rank, "dilation")
    pads, extra = per_axis(padding, rank, "padding", 0), per_axis(output_padding, rank, "output_padding", 0)
    result = common_dtype(x, weight, bias)
    wide = result.compute.numpy
    x, weight = x.astype(wide, copy=False), weight.astype(wide, copy=False)
    batch, channels, *sizes = x.shape
    kernel = weight.shape[2:]
    outputs = weight.shape[1] * groups
    depth = math.prod(weight.shape[1:])
    matrix = weight.reshape(groups, channels // groups, depth).swapaxes(1, 2)
    points = x.reshape(batch, groups, channels // groups, math.prod(sizes))
    parts = np.matmul(matrix, points).reshape(batch, outputs, *kernel, *sizes)
    full = [(n - 1) * s + d * (k - 1) + 1 + e for n, s, d, k, e in zip(sizes, steps, gaps, kernel, extra)]
    total = np.zeros((batch, outputs, *full), wide)
    for position in np.ndindex(*kernel):
        first = [p * d for p, d in zip(position, gaps)]
        place = (slice(f, f + (n - 1) * s + 1, s) for f, n, s in zip(first, sizes, steps))
        total[(slice(None), slice(None), *place)] += parts[(slice(None), slice(None), *position)]
    kept = (slice(p, n - p) for p, n in zip(pads, full))
    return finish(total[(slice(None), slice(None), *kept)], bias, result)


def _body(
    i: MultiIndex,
    x: Reader,
    weight: Reader,
    bias: Reader | None,
    stride: Ints,
    padding: Ints,
    groups: int,
    dilation: Ints,
    **others: Any,
) -> Expr:
    """The body, as a gather: the sum over the kernel positions ``r`` for which ``(o + padding -
    r*dilation) / stride`` is a place in x. Without dilation these are ``r = (o + padding) % stride +
    stride*t``, and only these are visited."""
    rank = len(i) - 2
    steps, gaps = per_axis(stride, rank, "stride"), per_axis(dilation, rank, "dilation")
    pads = per_axis(padding, rank, "padding", least=0)
    result = common_dtype(x, weight, bias)
    channels = x.shape[1] if groups == 1 else x.shape[1] // groups
    group = group_of(i[1], weight.shape[1] * groups, groups)
    direct = [gaps[a] == 1 for a in range(rank)]
    shifted = [i[2 + a] + pads[a] for a in range(rank)]
    extents = [
        (weight.shape[2 + a] - shifted[a] % steps[a] + (steps[a] - 1)) // steps[a] if direct[a] else weight.shape[2 + a]
        for a in range(rank)
    ]

    def element(c: Index, *t: Index) -> Expr:
        place: list[Index] = []
        position: list[Index] = []
        conditions: list[Expr] = []
        for a, step in enumerate(steps):
            if direct[a]:
                position.append(shifted[a] % step + t[a] * step)
                place.append(shifted[a] // step - t[a])
                conditions.append(expr.within(place[a], x.shape[2 + a]))
                continue
            distance = shifted[a] - t[a] * gaps[a]
            reached = extremum("max", distance, 0)  # so that no negative number is divided
            position.append(t[a])
            place.append(reached // step)
            conditions += [not_negative(distance), expr.equals(reached % step, 0), expr.less(place[a], x.shape[2 + a])]
        at = group * channels + c
        value = expr.read_guarded(x, (i[0], at, *place), expr.both(*conditions), 0)
        factor = weight[(at, i[1] - group * weight.shape[1], *position)]
        return expr.cast(value, result.compute) * expr.cast(factor, result.compute)

    total = reduce_over("sum", [channels, *extents], element)
    return add_bias(total, i[1], bias, result)


@op(
    "contraction",
    weight="weight",
    expands_weight=True,
    transposes="conv1d",
    samples=[
        "f32[B,3,H] f32[3,4,3] f32[4] stride=2 padding=1 B=2 H=5",
        "f32[2,4,5] f32[4,3,4] stride=3 groups=2 output_padding=1; f32[1,2,5] f32[2,3,3] stride=2 dilation=3",
        "f32[2,3,4] f32[3,2,3]; f64[1,2,4] f64[2,3,2] stride=2; f16[1,2,4] f16[2,3,3] f16[3]; f32[0,3,5] f32[3,4,3]",
        "f32[1,2,4] f32[2,2,1] stride=2",
    ],
    bad=[
        Bad("f32[2,3,7]", "f32[4,2,3]", match="x has 3 channels, but weight takes 4"),
        Bad("f32[2,3,7]", "f32[3,2,3]", output_padding=1, match="must be smaller than stride 1"),
        Bad("f32[2,3,1]", "f32[3,2,3]", padding=2, match="nothing is left along L"),
    ],
)
def conv_transpose1d(
    x: Tensor,
    weight: Tensor,
    bias: OptionalTensor = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Tensor:
    """Transposed convolution over one axis (torch.nn.functional.conv_transpose1d): ``x [N, C, L]``,
    ``weight [C, C_out/groups, k]``. See :func:`conv_transpose2d`."""
    return run_transposed(1, x, weight, bias, stride, padding, output_padding, groups, dilation)


@op(
    "contraction",
    weight="weight",
    expands_weight=True,
    transposes="conv2d",
    samples=[
        "f32[B,3,H,W] f32[3,2,3,3] f32[2] stride=2 padding=1 output_padding=1 B=2 H=4 W=3",
        "f32[1,4,4,3] f32[4,3,2,4] f32[6] stride=(2,3) groups=2 padding=(0,1)",
        "f32[1,2,4,3] f32[2,3,3,3] stride=(2,1) dilation=(2,3) padding=1; f32[B,2,3,4] f32[2,3,3,2] B=2",
        "f32[1,3,3,3] f32[3,1,3,3] groups=3 stride=2 padding=1; f64[1,2,3,3] f64[2,2,2,2] stride=2",
        "bf16[1,2,3,3] bf16[2,2,2,2] stride=2; f16[1,2,3,3] f16[2,2,3,3] f16[2]; i32[1,2,3,3] i32[2,2,3,3] stride=2",
        "f32[0,3,5,5] f32[3,4,3,3]; f32[1,2,3,3] f32[2,2,1,1] stride=3",
    ],
    bad=[
        Bad("f32[2,3,7,7]", "f32[4,2,3,3]", match="x has 3 channels, but weight takes 4"),
        Bad("f32[3,7,7]", "f32[3,2,3,3]", match="add the batch axis with x[None]"),
        Bad("f32[2,3,7,7]", "f32[3,2,3,3]", "f32[3]", match="bias must be [2]"),
        Bad("f32[2,3,7,7]", "f32[3,2,3,3]", padding="same", match="padding must be"),
        Bad("f32[2,3,7,7]", "f32[3,2,3,3]", stride=2, output_padding=2, match="must be smaller than stride 2"),
    ],
)
def conv_transpose2d(
    x: Tensor,
    weight: Tensor,
    bias: OptionalTensor = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Tensor:
    """Transposed convolution (torch.nn.functional.conv_transpose2d), the gradient of conv2d.

    ``x [N, C, H, W]``, ``weight [C, C_out/groups, kh, kw]``, ``bias [C_out]`` to
    ``[N, C_out, H_out, W_out]`` with
    ``H_out = (H - 1)*stride - 2*padding + dilation*(kh - 1) + output_padding + 1``.

    Raises ShapeError for channels that do not fit and for an empty result, and ArgumentError for attributes
    that are not ints in range and for an ``output_padding`` that is smaller than neither stride nor dilation."""
    return run_transposed(2, x, weight, bias, stride, padding, output_padding, groups, dilation)


def convolves_transposed(record: Op, rank: int) -> None:
    """Attach the rules of a transposed convolution over ``rank`` axes."""
    record.infer(partial(_infer, rank))
    record.body(_body)
    requires_windows(record)
    forms = {name: ints(rank, name) for name in ("stride", "dilation")}
    pads = {name: ints(rank, name, least=0) for name in ("padding", "output_padding")}
    canonical_forms(record, forms | pads)


convolves_transposed(conv_transpose1d, 1)
convolves_transposed(conv_transpose2d, 2)
