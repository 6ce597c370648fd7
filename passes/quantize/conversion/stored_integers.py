"""Compute products of values that are stored as integers with the integers themselves.

In: a program that was quantized elsewhere (pt2e, QDQ in ONNX): ``dequantize`` before float products. Out: the same
program, in which a product of two such values is one of their integers, whose sums are scaled. Before::

    x: f32[B,64] = ops.dequantize(q, 0.05, 3)
    weight: f32[32,64] = ops.dequantize(self.weight, self.scale)
    linear: f32[B,32] = ops.linear(x, weight, self.bias)

After::

    linear_sums: i32[B,32] = ops.int_linear(q, self.weight, x_zero_point=3)
    linear: f32[B,32] = ops.dequantize(linear_sums, self.linear_scale) + self.bias

Integer sums are exact; only the rounding of the float sums that they replace changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite.base.checked import checked
from fxlite.base.errors import FxliteError
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.ops.op import REGISTRY
from fxlite.passes.base import unique_attribute
from fxlite.passes.ledger import refuse
from fxlite.passes.quantize.schemes.scheme import QuantizationError
from fxlite.passes.rewrite.rule import is_call
from fxlite.passes.rules.const_fold import fold_constants
from fxlite.types import dtypes


@checked
def integer_products(gm: GraphModule) -> GraphModule:
    """The program with integer products in place of float products of two dequantized values (``linear``, ``matmul``
    and ``conv2d``). A bias, and everything after it, is computed in float as before. The ledger says which products
    stay float although both operands are integers, and why."""
    made = gm.copy()
    fold_constants(made, skip=lambda node: is_call(node, "dequantize"))
    for node in list(made.graph.nodes):
        if node.op == "call_function" and f"int_{node.target.name}" in REGISTRY:
            _rewrite(made, node)
    made.graph.eliminate_dead_code()
    return made


@dataclass
class _Stored:
    """An operand: its integers, the node or number of their scale, and their zero point."""

    integers: Node
    scale: Any
    zero_point: int


def _rewrite(gm: GraphModule, node: Node) -> None:
    """Replace a product of two dequantized values."""
    operands = node.args[:2]
    if not all(isinstance(v, Node) and is_call(v, "dequantize") for v in operands):
        return
    graph, before = gm.graph, {*gm.graph.nodes}
    try:
        with graph.inserting_before(node), graph.with_origin(node):
            found = _product(gm, node, *(_stored(gm, v) for v in operands))
    except FxliteError as error:
        for made in reversed([n for n in graph.nodes if n not in before]):
            graph.erase_node(made)
        refuse(gm, "integer_products", node, str(error).splitlines()[0], [node])
        return
    node.replace_all_uses_with(found)
    graph.erase_node(node)


def _stored(gm: GraphModule, node: Node) -> _Stored:
    zero = node.arguments.get("zero_point")
    points = np.zeros(()) if zero is None else _known(gm, zero)
    if points is None or not points.size or np.ptp(points):
        raise QuantizationError(f"{node.name} has several zero points, or one that is computed")
    return _Stored(node.arguments["q"], node.arguments["scale"], int(points.flat[0]))


def _known(gm: GraphModule, value: Any) -> Any:
    """The array of a number or a weight; None for computed values."""
    if not isinstance(value, Node):
        return np.asarray(value)
    return np.asarray(gm.get_attribute(value.target)) if value.op == "get_attr" else None


def _product(gm: GraphModule, node: Node, x: _Stored, y: _Stored) -> Node:
    """The scaled sums. Raises QuantizationError, or whatever the integer op raises."""
    graph, op = gm.graph, REGISTRY[f"int_{node.target.name}"]
    taken = op.signature.parameters
    points = {"x_zero_point": x.zero_point, "y_zero_point": y.zero_point}
    for name, point in points.items():
        if point and name not in taken:
            raise QuantizationError(f"the weight of {node.name} has the zero point {point}, which must be 0")
    settings = {n: v for n, v in node.arguments.items() if n in taken and n not in ("x", "y", "weight", "bias")}
    if node.type.dtype is not dtypes.float32 or settings.get("layout", "NCHW") != "NCHW" or node.type.rank < 2:
        raise QuantizationError(f"{node.name} is not of float32, of vectors, or has its channels last")
    if not _is_window(node) and type(x.integers.type.shape[-1]) is not int:
        raise QuantizationError(f"how many products {node.name} adds is not known: sums in int32 may overflow")
    scale = _scale_of_sums(gm, node, x, y)
    used = {name: point for name, point in points.items() if point}
    sums = graph.call_function(op, (x.integers, y.integers), {**settings, **used}, name=f"{node.name}_sums")
    found = graph.call_function("dequantize", (sums, scale))
    bias = node.arguments.get("bias")
    if bias is None:
        return found
    if _is_window(node):
        bias = graph.call_function("reshape", (bias,), {"shape": (-1, *[1] * (node.type.rank - 2))})
    return graph.call_function("add", (found, bias))


def _is_window(node: Node) -> bool:
    return "stride" in node.target.signature.parameters


def _scale_of_sums(gm: GraphModule, node: Node, x: _Stored, y: _Stored) -> Any:
    """The product of both scales, in the shape in which it scales the sums. Raises QuantizationError for scales that
    differ along a summed axis."""
    rank, window, is_weight = node.type.rank, _is_window(node), "weight" in node.target.signature.parameters
    ours, theirs = _sizes(x), _sizes(y)
    summed = ours[1:] if window else ours[-1:]
    if is_weight:
        summed, wanted = summed + theirs[1:], (-1, *[1] * (rank - 2)) if window else (-1,)
    else:
        summed, wanted = summed + theirs[-2:-1], None
    if any(size != 1 for size in summed):
        raise QuantizationError(f"a scale of {node.name} differs along an axis that is summed")
    graph, known = gm.graph, [_known(gm, v.scale) for v in (x, y)]
    if all(k is not None for k in known):
        mine, its = (np.asarray(k, np.float32) for k in known)
        array = mine * (its.reshape(wanted if its.size > 1 else ()) if wanted else its)
        path = unique_attribute(gm, f"{node.name}_scale")
        gm.set_attribute(path, np.asarray(array))
        return graph.get_attr(path)
    other = y.scale
    if wanted and isinstance(other, Node):
        shape = wanted if any(size != 1 for size in theirs) else ()
        other = graph.call_function("reshape", (other,), {"shape": shape})
    return graph.call_function("mul", (x.scale, other))


def _sizes(stored: _Stored) -> list[Any]:
    """The sizes of a scale, one for each axis of the integers."""
    scale = stored.scale
    sizes = scale.type.shape if isinstance(scale, Node) else np.asarray(scale).shape
    return [*[1] * (stored.integers.type.rank - len(sizes)), *sizes]
