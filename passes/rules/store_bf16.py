"""Store activations as bf16 if no reader needs more: this halves the bytes between two layers.

Before::

    relu: f32[B,56,56,64] = ops.relu(conv2d)
    conv2d_1: f32[B,56,56,256] = ops.conv2d(relu, self.conv3.weight, layout="NHWC")  # 1x1

After::

    relu: f32[B,56,56,64] = ops.relu(conv2d)
    relu_bf16: bf16[B,56,56,64] = ops.cast(relu, dtype="bf16")
    conv2d_1: f32[B,56,56,256] = ops.conv2d(relu_bf16, self.conv3.weight, layout="NHWC")

This is for ``matmul_precision="medium"``, whose products round their operands to bf16 in any case: the
kernel that computes an activation rounds it while it is in registers, instead of the kernel that reads
it. Sums, bias and everything after them are float32 as before.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite import nn, ops
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.ops.image.spatial import per_axis
from fxlite.passes.base import graph_pass, refuse
from fxlite.types.dtypes import float32
from fxlite.types.tensor_type import TensorType

_LARGEST_KERNEL = 5  # rows and columns of a depthwise convolution's kernel
_FUSED = ("pointwise", "contraction", "composite")  # after other ops a cast may need a kernel of its own


@graph_pass(exactness="sqnr", inside=False)
def store_bf16(gm: GraphModule, tiles: bool = False) -> None:
    """Cast a float32 activation to bf16 if it is read only by products with constant weights (linear
    layers, channels-last convolutions) and depthwise convolutions.

    This is only for ``matmul_precision="medium"``, where products round their operands to bf16: for
    them the casts change no bit of a result. A depthwise convolution computes in float32, from an image
    that is now rounded (by at most 2^-9 of a value); its time is that of reading the image. Values with
    any other reader, such as a residual sum, stay float32; the ledger names the reader. So does the
    input of a 3x3 convolution of stride 1, because Winograd's algorithm rounds transformed points
    instead of pixels, unless the processor multiplies ``tiles`` of bf16 (AMX), which take the pixels.
    Run it after channels_last and merge_linears."""
    results = set(gm.graph.output_node().all_input_nodes)
    chosen: set[Node] = set()
    for node in reversed(gm.graph.nodes):
        if node in results or not _may_be_stored(node):
            continue
        wide = [user for user in node.users if not reads_bf16(user, node, tiles)]
        if not wide:
            chosen.add(node)
        elif len(wide) < len(node.users):
            reason = f"it stays float32, since {wide[0].name} reads it, too"
            refuse(gm, "store_bf16", node, reason, [node])
    for node in list(gm.graph.nodes):
        if node not in chosen:
            continue
        with gm.graph.inserting_after(node), gm.graph.with_origin(node):
            made = gm.graph.call_op(ops.cast, (node,), {"dtype": "bf16"}, f"{node.name}_bf16")
        node.replace_all_uses_with(made)


def reads_bf16(node: Node, image: Node, tiles: bool) -> bool:
    """Whether a call may read ``image`` as bf16 for ``matmul_precision="medium"``: as its first operand,
    with float32 weights that are known when compiling. ``tiles`` is true on a processor with AMX."""
    if node.op != "call_function":
        return False
    if not node.target.is_matrix_product and node.target.name != "conv2d":
        return False
    x, weight = node.args[:2]
    constant = isinstance(weight, Node) and weight.op == "get_attr"
    rest = [n for n in node.all_input_nodes if n is not image]
    if x is not image or not constant or any(n.type.dtype is not float32 for n in rest):
        return False
    return _conv_reads(node, tiles) if node.target.name == "conv2d" else _product_reads(x, weight)


def _product_reads(x: Node, weight: Node) -> bool:
    """Whether the rows consist of whole pairs."""
    return x.type.rank >= 2 and weight.type.rank == 2 and _is_even(x.type.shape[-1])


def _conv_reads(node: Node, tiles: bool) -> bool:
    """Whether a convolution's plan reads channels-last images of bf16."""
    given, shape = node.arguments, node.args[1].type.shape
    if given.get("layout") != "NHWC":
        return False
    stride, dilation = (per_axis(given.get(n, 1), 2, n) for n in ("stride", "dilation"))
    outputs, inputs, *kernel = shape
    groups = given.get("groups", 1)
    if groups == inputs * groups == outputs:  # depthwise
        fits = max(kernel) <= _LARGEST_KERNEL and stride[1] <= 2 and max(dilation) == 1
        return fits and max(kernel) > 1 and outputs >= 16
    if (*kernel, *stride, *dilation) == (3, 3, 1, 1, 1, 1) and groups == 1 and not tiles:
        return False  # Winograd's algorithm is used
    return _is_even(inputs)


def _is_even(size: object) -> bool:
    return type(size) is int and size > 0 and size % 2 == 0


def _may_be_stored(node: Node) -> bool:
    """Whether a value is float32 and its kernel may store it as bf16."""
    if node.op != "call_function" or not node.users or not isinstance(node.type, TensorType):
        return False
    if node.type.dtype is not float32 or node.type.rank < 2:
        return False
    if node.target.name == "permute":  # an image that is stored channels-last
        source = node.args[0]
        return len(source.users) == 1 and _is_fused(source)
    return _is_fused(node)


def _is_fused(node: Node) -> bool:
    """Whether a cast after a call joins the call's kernel."""
    if node.op != "call_function":
        return False
    return node.target.kind in _FUSED and node.target.name != "recurrence"


class _Bottleneck(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.narrow, self.wide = nn.Linear(64, 16), nn.Linear(16, 64)

    def forward(self, x: Any) -> Any:
        return x + self.wide(np.maximum(self.narrow(x), 0))


class _Residual(_Bottleneck):
    def forward(self, x: Any) -> Any:
        y = self.narrow(x)
        return self.wide(y).sum() + y


store_bf16.example(_Bottleneck, x="f32[B,64]")
store_bf16.counterexample(_Residual, "a sum reads it, too", x="f32[B,64]")
