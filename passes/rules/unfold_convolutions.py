"""Convolutions without a kernel of their own, computed from their windows ("im2col") by ops that have one: those
over three axes by convolutions over two, the others by matrix products.

Before::

    conv3d: f32[B,16,8,8,8] = ops.conv3d(x, self.conv.weight, padding=1)

After (shortened)::

    conv3d_reshape: f32[8*B,48,8,8] = ops.reshape(...)  # padded, unfolded and turned: three planes for each depth
    conv3d_conv2d: f32[8*B,16,8,8] = ops.conv2d(conv3d_reshape, conv3d_weight, padding=1)
    conv3d: f32[B,16,8,8,8] = ops.permute(...)  # of conv3d_conv2d

The planes under a kernel become channels of the image: each is stored as many times as the kernel is deep, and the
kernels for two axes do the rest. If the target has none of those either (``keep``), all windows are stored and read
by a product, which is as fast as other products. Source: Chellapilla et al., "High performance convolutional neural
networks for document processing", 2006.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import fxlite.nn.functional as F
from fxlite import ops
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.ops.image.convolution import padding_pairs
from fxlite.ops.image.spatial import TO_FIRST, TO_LAST, per_axis
from fxlite.passes.base import graph_pass, refuse
from fxlite.passes.rules.decompose import Keep, replace_each

#: Bytes of windows up to which they are stored; sizes that are named count as small.
MOST_BYTES = 1 << 28
#: Outputs of a group from which a product with its windows pays: fewer are computed as fast without.
FEW_OUTPUTS = 4


@graph_pass(exactness="allclose")
def unfold_convolutions(gm: GraphModule, keep: Keep = frozenset()) -> None:
    """Compute convolutions of floats over three axes by convolutions over two, and those over one or two axes by
    products of the weight and the windows of the image, except those in ``keep`` (names, or a predicate on nodes),
    for which the target has kernels.

    Convolutions with groups of fewer than four outputs do not become products, and windows of more than 256 MiB are
    not stored; the ledger has a line for them. Run it before const_fold, which computes the weights."""
    is_kept = keep if callable(keep) else lambda node: node.target.name in keep
    found = [node for node in _convolutions(gm) if not is_kept(node)]
    replace_each(gm, {node: _by_planes for node in found if node.type.rank == 5 and _depth(node) != 1})
    kept = [node for node in _convolutions(gm) if not is_kept(node)]
    reasons = {node: _reason(node) for node in kept}
    for node, reason in reasons.items():
        if reason:
            refuse(gm, "unfold_convolutions", node, reason, [node])
    replace_each(gm, {node: _by_windows for node, reason in reasons.items() if not reason})


def _convolutions(gm: GraphModule) -> list[Node]:
    """The convolutions of floats."""
    nodes = [n for n in gm.graph.nodes if n.op == "call_function" and n.target.is_convolution]
    types = {n: {read.type.dtype.name for read in n.all_input_nodes} for n in nodes}
    return [n for n in nodes if types[n] in ({"f32"}, {"f64"}) and 0 not in n.type.shape]


def _depth(node: Node) -> Any:
    """Number of products per output."""
    return math.prod(node.arguments["weight"].type.shape[1:])


def _reason(node: Node) -> str:
    """Why a convolution does not become a product; empty if it does."""
    outputs, depth, groups = node.arguments["weight"].type.shape[0], _depth(node), node.arguments.get("groups", 1)
    if depth == 1:
        return "its windows are single pixels"
    if groups > 1:
        if type(outputs) is not int or type(depth) is not int:
            return "it has groups, and numbers of channels that are not known"
        if outputs // groups < FEW_OUTPUTS:
            return f"the outputs of a group, {outputs // groups}, are too few for a product to pay"
    size = node.type.size // outputs * groups * depth * node.type.dtype.itemsize
    if type(size) is int and size > MOST_BYTES:
        return f"its windows would take {size >> 20} MiB"
    return ""


def _by_planes(given: Mapping[str, Any]) -> Any:
    """A convolution over three axes as one over two. Adjacent axes without windows are joined; otherwise
    the windows along the first axis become channels."""
    x, weight, groups = given["x"], given["weight"], given.get("groups", 1)
    steps, gaps = (per_axis(given.get(n, 1), 3, n) for n in ("stride", "dilation"))
    padding = padding_pairs(given.get("padding", 0), weight.shape[2:], steps, gaps)
    plain = [(weight.shape[2 + a], steps[a], *padding[a]) == (1, 1, 0, 0) for a in range(3)]
    (n, c), sizes, (outputs, inputs, *kernel) = x.shape[:2], x.shape[2:], weight.shape

    def convolve(x: Any, weight: Any, *axes: int) -> Any:
        options = {name: tuple(values[a] for a in axes) for name, values in (("stride", steps), ("dilation", gaps))}
        around = tuple(padding[a] for a in axes)
        return ops.conv2d(x, weight, given.get("bias"), padding=around, groups=groups, **options)

    depth, height, width = sizes
    if plain[1] and plain[2]:
        flat = x.reshape(n, c, depth, height * width)
        total = convolve(flat, weight.reshape(outputs, inputs, kernel[0], 1), 0, 1)
        return total.reshape(n, outputs, total.shape[2], height, width)
    if plain[0] and plain[1]:
        flat = x.reshape(n, c, depth * height, width)
        total = convolve(flat, weight.reshape(outputs, inputs, 1, kernel[2]), 0, 2)
        return total.reshape(n, outputs, depth, height, total.shape[3])
    if any(padding[0]):
        x = ops.pad(x, ((0, 0), (0, 0), padding[0], (0, 0), (0, 0)))
    x = ops.unfold(x, 2, gaps[0] * (kernel[0] - 1) + 1, steps[0])
    if gaps[0] > 1:
        x = x[..., :: gaps[0]]
    places = x.shape[2]
    planes = ops.permute(x, (0, 2, 1, 5, 3, 4)).reshape(n * places, c * kernel[0], height, width)
    total = convolve(planes, weight.reshape(outputs, inputs * kernel[0], *kernel[1:]), 1, 2)
    return ops.permute(total.reshape(n, places, outputs, *total.shape[2:]), (0, 2, 1, 3, 4))


def _by_windows(given: Mapping[str, Any]) -> Any:
    """A convolution as a product for each image and group."""
    x, weight, bias, groups = given["x"], given["weight"], given.get("bias"), given.get("groups", 1)
    is_last = given.get("layout") == "NHWC"
    if is_last:
        x = ops.permute(x, TO_FIRST)
    rank, kernel, outputs = len(x.shape) - 2, weight.shape[2:], weight.shape[0]
    axes = range(rank)
    steps, gaps = (per_axis(given.get(n, 1), rank, n) for n in ("stride", "dilation"))
    padding = padding_pairs(given.get("padding", 0), kernel, steps, gaps)
    if any(map(any, padding)):
        x = ops.pad(x, ((0, 0), (0, 0), *padding))
    for a in axes:
        x = ops.unfold(x, 2 + a, gaps[a] * (kernel[a] - 1) + 1, steps[a])
        if gaps[a] > 1:
            x = x[..., :: gaps[a]]
    batch, sizes = x.shape[0], x.shape[2 : 2 + rank]
    x = ops.permute(x, (0, 1, *(2 + rank + a for a in axes), *(2 + a for a in axes)))
    depth, pixels = math.prod(weight.shape[1:]), math.prod(sizes)
    if groups == 1:
        total = weight.reshape(outputs, depth) @ x.reshape(batch, depth, pixels)
    else:
        total = weight.reshape(groups, outputs // groups, depth) @ x.reshape(batch, groups, depth, pixels)
        total = total.reshape(batch, outputs, pixels)
    if bias is not None:
        total = total + bias.reshape(outputs, 1)
    total = total.reshape(batch, outputs, *sizes)
    return ops.permute(total, TO_LAST) if is_last else total


# -- examples --------------------------------------------------------------------------------------
unfold_convolutions.example(
    lambda x, w: F.conv3d(x, w, padding=1),
    "the target has a kernel for two axes",
    {"keep": {"conv2d"}},
    x="f32[B,2,4,4,4]",
    w="f32[8,2,3,3,3]",
)
unfold_convolutions.counterexample(
    lambda x, weight: F.conv2d(x, weight, padding=1, groups=4),
    "each channel has a kernel of its own",
    x="f32[2,4,6,6]",
    weight="f32[4,1,3,3]",
)
