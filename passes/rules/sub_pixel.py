"""Transposed convolutions as ordinary ones: the output pixels at one position between the strides are
a convolution with a part of the kernel ("sub-pixel convolution").

Before::

    up: f32[B,8,16,16] = ops.conv_transpose2d(x, self.up.weight, self.up.bias, stride=2)  # 2x2

After (shortened; the weight's part is computed when the program is compiled)::

    up_conv2d: f32[B,32,8,8] = ops.conv2d(x, up_weight, up_bias)  # 1x1, four pixels of 8 channels
    up_reshape: f32[B,8,2,2,8,8] = ops.reshape(up_conv2d, shape=(B, 8, 2, 2, 8, 8))
    up_permute: f32[B,8,8,2,8,2] = ops.permute(up_reshape, axes=(0, 1, 4, 2, 5, 3))
    up: f32[B,8,16,16] = ops.reshape(up_permute, shape=(B, 8, 16, 16))

Along one axis, position ``o`` of the result (before padding is cut off) is ``stride*q + phase``;
kernel position ``r`` reaches it from ``q + (phase - r*dilation) / stride`` if that is whole. The
kernel positions that reach a phase are equally spaced: they form a kernel of their own, reversed.
Source: Shi et al., "Is the deconvolution layer the same as a convolutional layer?", 2016.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import fxlite.nn.functional as F
from fxlite import nn, ops
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.ops.image.spatial import per_axis
from fxlite.ops.op import lookup
from fxlite.passes.base import graph_pass, refuse
from fxlite.passes.rules.decompose import replace_each
from fxlite.types import shapes


@graph_pass(exactness="allclose")
def sub_pixel(gm: GraphModule) -> None:
    """Compute transposed convolutions (over one to three axes, with all strides, paddings, dilations
    and groups) by ordinary ones, for which there are fast kernels.

    Phases with equally many kernel positions become channels of one convolution: a single convolution
    if the stride divides the kernel's size, otherwise up to two for each axis. No product is computed
    that the definition does not have. Integers and half floats are left alone, and so are groups whose
    named number of channels may not divide; the ledger has a line for them. Run it after fuse_conv_bn
    and before const_fold, which computes the parts of known weights; a weight that the program computes
    is taken apart in each call."""
    how: dict[Node, Callable[[Mapping[str, Any]], Any]] = {}
    for node in gm.graph.nodes:
        if node.op != "call_function" or node.target.transposes is None:
            continue
        weight = node.arguments["weight"]
        types = [read.type for read in node.all_input_nodes]
        if {t.dtype.name for t in types} not in ({"f32"}, {"f64"}) or 0 in weight.type.shape:
            continue
        if shapes.remainder(weight.type.shape[0], node.arguments.get("groups", 1)) != 0:
            reason = "its groups have channels of a named number, which may not divide; say 2*C for an even one"
            refuse(gm, "sub_pixel", node, reason, [node])
            continue
        how[node] = partial(_by_phases, lookup(node.target.transposes))
    replace_each(gm, how)


@dataclass(frozen=True)
class _Phases:
    """Adjacent phases along one axis, and the kernel positions ``first + i`` (for the i-th phase) plus
    multiples of ``step`` that reach them: ``taps`` of them, which are ``dilation`` apart in x. The
    first one is reached from ``q + shift``."""

    count: int
    first: int
    step: int
    taps: int
    dilation: int
    shift: int


def _phases(stride: int, dilation: int, size: int) -> list[_Phases]:
    """All phases of an axis, in order; ``size`` is that of the kernel."""
    if dilation == 1:
        long = size % stride
        parts = ((0, long, size // stride + 1), (long, stride - long, size // stride))
        return [_Phases(n, at, stride, taps, 1, 0) for at, n, taps in parts if n]
    divisor = math.gcd(stride, dilation)
    step = stride // divisor
    found = []
    for phase in range(stride):
        first = next((r for r in range(size) if (phase - r * dilation) % stride == 0), size)
        shift = (phase - first * dilation) // stride
        taps = -(-(size - first) // step)
        found.append(_Phases(1, first, step, taps, dilation // divisor, shift))
    return found


def _by_phases(convolution: Any, given: Mapping[str, Any]) -> Any:
    """The transposed convolution with these arguments: x [N, C, ...], weight [C, K/groups, ...]."""
    x, weight, bias, groups = given["x"], given["weight"], given.get("bias"), given.get("groups", 1)
    rank = len(x.shape) - 2
    axes = range(rank)
    steps, gaps = (per_axis(given.get(n, 1), rank, n) for n in ("stride", "dilation"))
    pads, extra = (per_axis(given.get(n, 0), rank, n, 0) for n in ("padding", "output_padding"))
    kernel = weight.shape[2:]
    outputs = weight.shape[1] * groups
    spans = [gaps[a] * (kernel[a] - 1) + 1 for a in axes]
    sizes = [(x.shape[2 + a] - 1) * steps[a] - 2 * pads[a] + spans[a] + extra[a] for a in axes]
    families = [_phases(steps[a], gaps[a], kernel[a]) for a in axes]
    # the positions q = o // stride that padding leaves, except those for which no pixel of x counts
    starts: list[int] = []
    stops: list[int] = []  # counted from the end of x
    for a in axes:
        reached = [p for p in families[a] if p.taps]
        first = min((p.taps - 1) * p.dilation - p.shift for p in reached)
        starts.append(min(pads[a] // steps[a], first))
        last = (spans[a] + extra[a] - pads[a] - 1) // steps[a]
        stops.append(max(last, *(-p.shift for p in reached)))
    extents = [x.shape[2 + a] + stops[a] - starts[a] for a in axes]
    batch = x.shape[0]

    def part(phases: tuple[_Phases, ...]) -> Any:
        """[N, K, phases of each axis..., extents...]"""
        counts = [p.count for p in phases]
        whole = (batch, outputs, *counts, *extents)
        if 0 in (p.taps for p in phases):
            zeros = ops.full(whole, 0, dtype=x.dtype)
            return zeros if bias is None else zeros + bias.reshape(outputs, *[1] * (2 * rank))
        around = tuple(
            ((p.taps - 1) * p.dilation - p.shift - start, stop + p.shift)
            for p, start, stop in zip(phases, starts, stops)
        )
        made = convolution(
            x,
            _weight(weight, phases, groups),
            _repeated(bias, counts),
            padding=around,
            groups=groups,
            dilation=tuple(p.dilation for p in phases),
        )
        return made.reshape(whole)

    parts = [part(phases) for phases in itertools.product(*families)]
    for axis in reversed(axes):
        length = len(families[axis])
        parts = [
            ops.concat(parts[i : i + length], axis=2 + axis) if length > 1 else parts[i]
            for i in range(0, len(parts), length)
        ]
    order = [0, 1] + [2 + half * rank + a for a in axes for half in (1, 0)]
    result = ops.permute(parts[0], order)
    result = result.reshape(batch, outputs, *(extents[a] * steps[a] for a in axes))
    for a in axes:
        first = pads[a] - starts[a] * steps[a]
        if first or result.shape[2 + a] != sizes[a]:
            result = ops.slice(result, 2 + a, first, first + sizes[a])
    return result


def _weight(weight: Any, phases: tuple[_Phases, ...], groups: int) -> Any:
    """The part of a weight [C, K/groups, ...] that reaches some phases, as the weight of a convolution:
    [K * phases, C/groups, taps...]."""
    rank = len(phases)
    inputs, outputs = weight.shape[0] // groups, weight.shape[1]
    for a, p in enumerate(phases):
        axis = 2 + 2 * a
        # whole rows of `step` positions, the first of which are the phases
        weight = ops.slice(weight, axis, p.first, p.first + (p.taps - 1) * p.step + p.count)
        missing = p.taps * p.step - weight.shape[axis]
        if missing:
            around = [(0, 0)] * len(weight.shape)
            around[axis] = (0, missing)
            weight = ops.pad(weight, tuple(around))
        weight = weight.reshape(*weight.shape[:axis], p.taps, p.step, *weight.shape[axis + 1 :])
        weight = ops.flip(ops.slice(weight, axis + 1, 0, p.count), axis)
    taps, counts = [p.taps for p in phases], [p.count for p in phases]
    split = weight.reshape(groups, inputs, outputs, *weight.shape[2:])
    order = [0, 2, *(4 + 2 * a for a in range(rank)), 1, *(3 + 2 * a for a in range(rank))]
    rows = groups * outputs * math.prod(counts)
    return ops.permute(split, order).reshape(rows, inputs, *taps)


def _repeated(bias: Any, counts: list[int]) -> Any:
    """A bias [K], repeated for each phase of each channel."""
    times = math.prod(counts)
    if bias is None or times == 1:
        return bias
    return ops.expand(bias.reshape(-1, 1), (bias.shape[0], times)).reshape(-1)


# -- examples --------------------------------------------------------------------------------------
class _Up(nn.Module):
    """The upsampling of a U-Net."""

    def __init__(self, size: int = 2, **options: Any) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(4, 3, size, stride=2, **options)

    def forward(self, x: Any) -> Any:
        return F.relu(self.up(x))


class _Decoder(_Up):
    def __init__(self) -> None:
        super().__init__(3, padding=1, output_padding=1)


sub_pixel.example(_Up, "pixels do not overlap: one 1x1 convolution", x="f32[B,4,8,8]")
sub_pixel.example(_Decoder, "three pixels by 2 to 4 products, the fourth by one", x="f32[B,4,8,8]")
sub_pixel.counterexample(
    lambda x, w: F.conv_transpose2d(x, w, stride=2),
    "sums of half floats are rounded once",
    x="f16[1,2,4,4]",
    w="f16[2,3,2,2]",
)
