"""Convolutions for which there is no kernel as matrix products with their windows ("im2col").

Before::

    conv3d: f32[B,16,8,8,8] = ops.conv3d(x, self.conv.weight, padding=1)

After (shortened)::

    conv3d_reshape: f32[B,432,512] = ops.reshape(...)  # pad, unfold three times, permute
    conv3d_matmul: f32[B,16,512] = conv3d_weight @ conv3d_reshape
    conv3d: f32[B,16,8,8,8] = ops.reshape(conv3d_matmul, shape=(B, 16, 8, 8, 8))

The windows are stored once and read by a product that is as fast as the others. Source: Chellapilla et al.,
"High performance convolutional neural networks for document processing", 2006.
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
from fxlite.passes.rewrite.rewire import Rewiring
from fxlite.passes.rules.decompose import Keep, Recorder

#: Bytes of windows up to which they are stored; sizes that are named count as small.
MOST_BYTES = 1 << 28
#: Outputs of a group from which a product with its windows pays: fewer are computed as fast without.
FEW_OUTPUTS = 4


@graph_pass(exactness="allclose")
def unfold_convolutions(gm: GraphModule, keep: Keep = frozenset()) -> None:
    """Compute convolutions of floats as products of the weight and the windows of the image, but those
    in ``keep`` (names, or a predicate on nodes), for which the target has kernels.

    Groups of fewer than four outputs are left alone, and windows of more than 256 MiB, with a line in the
    ledger. Run it after const_fold, when it is known which weights are constants."""
    recorder, rewiring = Recorder(gm), Rewiring(gm.graph)
    is_kept = keep if callable(keep) else lambda node: node.target.name in keep
    names: dict[Node, str] = {}
    for node in list(gm.graph.nodes):
        if node.op != "call_function" or not node.target.is_convolution or is_kept(node):
            continue
        types = [read.type for read in node.all_input_nodes]
        if {t.dtype.name for t in types} not in ({"f32"}, {"f64"}) or 0 in node.type.shape:
            continue
        if (reason := _reason(node)) is not None:
            refuse(gm, "unfold_convolutions", node, reason, [node])
            continue
        rewiring.refresh(node)
        made = recorder.run(node, _by_windows)
        rewiring.replace(node, made)
        names[made] = node.name
    rewiring.finish()
    for made, name in names.items():
        gm.graph.rename_node(made, name)


def _reason(node: Node) -> str | None:
    """Why a convolution is left alone."""
    weight, groups = node.arguments["weight"].type, node.arguments.get("groups", 1)
    outputs, depth = weight.shape[0], math.prod(weight.shape[1:])
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
    return None


def _by_windows(given: Mapping[str, Any]) -> Any:
    """The convolution of some arguments as a product for each image and group."""
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
    lambda x, w: F.conv3d(x, w, padding=1), "three spatial axes", x="f32[B,2,4,4,4]", w="f32[8,2,3,3,3]"
)
unfold_convolutions.counterexample(
    lambda x, weight: F.conv2d(x, weight, padding=1, groups=4),
    "each channel has a kernel of its own",
    x="f32[2,4,6,6]",
    weight="f32[4,1,3,3]",
)
