"""Images that are enlarged linearly along one axis after the other.

Before::

    interpolate: f32[B,8,64,64] = ops.interpolate(x, scale_factor=2.0, mode='bilinear')

After (shortened)::

    rows: f32[B*8,32,64] = ops.interpolate(ops.reshape(x, (B*8, 32, 32)), scale_factor=2.0, mode='linear')
    columns: f32[B*8,64,64] = ops.interpolate(ops.permute(rows, (0, 2, 1)), scale_factor=2.0, mode='linear')
    interpolate: f32[B,8,64,64] = ops.reshape(ops.permute(columns, (0, 2, 1)), (B, 8, 64, 64))

A row of the image is then interpolated once, and not for each row of the result that it is part of, and the
second step reads whole rows, while elements of the first are gathered from two places of a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import fxlite.nn.functional as F
from fxlite import ops
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.ops.image.resize import factors_of, target_sizes
from fxlite.passes.base import graph_pass
from fxlite.passes.rules.decompose import replace_each

#: The shortest row of a result for which this is done: shorter ones fill no vector.
SHORTEST = 8


@graph_pass(exactness="allclose")
def separate_axes(gm: GraphModule) -> None:
    """Interpolate images that become larger (``mode="bilinear"``, float32 and float64) along each axis on its own.

    Left alone: images that become smaller, of which the second axis would leave out rows that the first has
    interpolated, and images with channels last, whose pixels are vectors."""
    found = [node for node in gm.graph.nodes if node.op == "call_function" and _is_enlarged(node)]
    replace_each(gm, dict.fromkeys(found, _separated))


separate_axes.example(
    lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), "32 rows are interpolated once", x="f32[B,8,32,32]"
)
separate_axes.counterexample(
    lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear"), "it becomes smaller", x="f32[B,8,32,32]"
)


def _is_enlarged(node: Node) -> bool:
    """Whether a node interpolates an image to one that has at least as many rows."""
    if node.target is not ops.interpolate or node.type.rank != 4 or node.arguments.get("mode") != "bilinear":
        return False
    x = node.arguments["x"]
    if node.type.dtype.name not in ("f32", "f64") or (x.op == "call_function" and x.target is ops.permute):
        return False
    (rows, _), (more, columns) = x.type.shape[2:], node.type.shape[2:]
    if type(columns) is int and columns < SHORTEST:
        return False
    factor = node.arguments.get("scale_factor")
    if factor is not None:
        return factors_of(factor, 2)[0] >= 1
    return type(rows) is int and type(more) is int and rows <= more


def _separated(given: Mapping[str, Any]) -> Any:
    """The interpolation with these arguments."""
    x, size, factor = given["x"], given.get("size"), given.get("scale_factor")
    images, channels, height, width = x.shape
    sizes = (None, None) if size is None else target_sizes(size, None, (height, width))
    factors = (None, None) if factor is None else factors_of(factor, 2)
    result = ops.reshape(x, (images * channels, height, width))
    for axis in (1, 0):
        named = {"size": sizes[axis], "scale_factor": factors[axis], "mode": "linear"}
        named["align_corners"] = given.get("align_corners", False)
        result = ops.permute(ops.interpolate(result, **named), (0, 2, 1))
    return ops.reshape(result, (images, channels, *result.shape[1:]))
