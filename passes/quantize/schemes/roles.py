"""The role of a call in quantization: a product, an op that moves or compares integers unchanged, or
one that computes with floats.

In: a node of a typed graph. Out: its role, its multiply-adds, and for a product that stays in float
the reason. Everything here looks at a single node.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.base.errors import FxliteError
from fxlite.graph.graph import Node
from fxlite.ops.integer.quantized_product import largest_depth
from fxlite.passes.quantize.schemes.scheme import QConfig, QuantizedWeight, Scheme, quantize_weight
from fxlite.passes.rewrite.rule import is_call
from fxlite.show.node_cost import node_flops
from fxlite.types import dtypes, shapes
from fxlite.types.shapes import Dim, decide
from fxlite.types.tensor_type import TensorType

#: The room that a sum leaves for a bias in its int32.
BIAS_ROOM = 2**24


def operands(node: Node) -> list[Node]:
    """The tensor operands of a call that are nodes, in order."""
    return [v for v in node.target.tensors(node.arguments) if isinstance(v, Node)]


def is_float32(node: Any) -> bool:
    """True for a node that is a float32 array."""
    return isinstance(node, Node) and isinstance(node.type, TensorType) and node.type.dtype is dtypes.float32


def clip_bounds(node: Node) -> tuple[float | None, float | None] | None:
    """(least, largest) of an op that clips: relu, relu6, hardtanh, clip; otherwise None."""
    if node.op != "call_function":
        return None
    arguments = node.bound
    name = node.target.name
    if name == "relu":
        return 0.0, None
    if name == "relu6":
        return 0.0, 6.0
    if name == "hardtanh":
        return arguments["min_val"], arguments["max_val"]
    if name == "clip":
        return arguments["min"], arguments["max"]
    return None


def factor(node: Node) -> float | None:
    """The positive number by which ``x * c`` or ``x / c`` multiplies ``x``, the first operand:
    integers stay as they are, and the scale changes. None for other nodes."""
    if not is_call(node, "mul", "div") or not is_float32(node):
        return None
    x, y = node.args
    if not isinstance(x, Node) or x.type != node.type:
        return None
    if isinstance(y, Node):
        owner = node.graph.owning_module
        if y.op != "get_attr" or y.type.rank != 0 or owner is None:
            return None
        y = float(np.asarray(owner.get_attribute(y.target)))
    if not 1e-6 < y < 1e6:
        return None
    return float(y if node.target.name == "mul" else 1 / y)


def carries(node: Node) -> bool:
    """True for an op that can run on integers, in the scale of its operands: views, max pooling,
    joins, selection, padding with zero, relu after one of those, and multiplication by a positive
    number."""
    if node.op != "call_function":
        return False
    name = node.target.name
    if factor(node) is not None:
        return True
    if name == "pad":
        return node.bound["value"] == 0 and is_float32(node)
    bounds = clip_bounds(node)
    if bounds is not None:
        source = operands(node)[0]
        is_relu = bounds == (0, None)  # other bounds need not be representable in the operand's scale
        return is_relu and is_float32(node) and carries(source) and clip_bounds(source) is None
    if name == "getitem":
        return is_call(node.args[0], "split") and carries(node.args[0])
    if not node.target.moves_values:
        return False
    if name == "split" and is_call(node.args[0], "recurrence"):  # states, and a cell state
        return False
    if name == "interpolate" and node.bound["mode"] != "nearest":
        return False
    if node.target.kind == "pointwise" and len(operands(node)) != 2:
        return False
    return all(map(is_float32, moved(node))) and _runs_on_integers(node)


def moved(node: Node) -> list[Node]:
    """The operands whose numbers an op that carries integers moves (not the indices of a take)."""
    if factor(node) is not None:
        return [node.args[0]]
    if is_call(node, "take"):
        return [node.arguments["x"]]
    return operands(node)


def _runs_on_integers(node: Node) -> bool:
    """True if the op's type rule takes u8 in place of float32."""

    def as_integers(value: Any) -> Any:
        found = value.type if isinstance(value, Node) else value
        if isinstance(found, tuple):
            return tuple(as_integers(t) for t in found)
        if isinstance(found, TensorType) and found.dtype is dtypes.float32:
            return TensorType(found.shape, dtypes.uint8)
        return found

    try:
        node.target.result_type(node.target.map_tensors(as_integers, node.arguments))
    except FxliteError:
        return False
    return True


def is_elementwise(node: Node) -> bool:
    """True for float arithmetic on each element separately, which can be part of a product's
    epilogue."""
    if node.op != "call_function" or not is_float32(node):
        return False
    return bool(node.target.kind == "pointwise" or node.target.role == "activation")


def is_reducing(node: Node) -> bool:
    """True for means and sums over a few axes, pooling included."""
    return node.op == "call_function" and node.target.role == "sum" and is_float32(node)


# -- products --------------------------------------------------------------------------------------
def is_weight(node: Any) -> bool:
    """True for a node that reads a weight of the program."""
    return isinstance(node, Node) and node.op == "get_attr"


def source_weight(value: Any) -> Node | None:
    """The weight behind fake quantization, None for a computed value."""
    while is_call(value, "fake_quantize") or value.op == "call_module":
        value = value.args[0]
    return value if value.op == "get_attr" else None


def is_expanded(node: Node) -> bool:
    """True for a product whose weight, if only it is quantized, is expanded to floats in memory, because
    no kernel reads it as integers."""
    return bool(node.op == "call_function" and node.target.expands_weight)


def data_slots(node: Node) -> list[Node]:
    """The operands of a product that are computed, and therefore observed. (A recurrence rounds its
    states itself: prepare observes them where they are computed.)"""
    if node.target.name == "matmul":
        return [v for v in operands(node) if not is_weight(v)]
    if node.target.name == "recurrence":
        return []
    return [node.arguments["x"]]


def weight_operand(product: Node) -> Node:
    """The operand that is the weight of a product; for a matmul the right one."""
    found: Node = product.arguments[product.target.weight]
    return found


def product_weights(node: Node) -> list[Node]:
    """The weights by which a product multiplies, or the table of an embedding."""
    if is_call(node, "matmul"):
        return [v for v in node.args if is_weight(v)]
    weight = node.arguments.get(node.target.weight or "weight")
    return [weight] if weight is not None and is_weight(weight) else []


def weight_axis(product: Node, weight: Node) -> int:
    """The axis of a weight that corresponds to the channels of the result, each of which has its own scale."""
    if product.target.name != "matmul":
        return 0
    rank: int = weight.type.rank
    if rank == 1:
        return 0
    return rank - 1 if weight is product.args[1] else rank - 2


def is_transposed(product: Node) -> bool:
    """True if the integers of a product's weight are stored with its axes exchanged, as rows of
    outputs: ``x @ weight`` becomes a linear layer."""
    if not is_call(product, "matmul"):
        return False
    x, y = product.args
    return y.type.rank == 2 and source_weight(y) is not None and source_weight(x) is None


def summed_axes(product: Node, weight: Node, transposed: bool = False) -> tuple[int, ...]:
    """The axes of a weight (or of its transpose) along which a channel's numbers share a scale; for an
    embedding the axes of a row."""
    rank: int = weight.type.rank
    if rank == 1:
        return (0,)
    is_first = transposed or product.target.role == "table"
    channel = 0 if is_first else weight_axis(product, weight)
    return tuple(axis for axis in range(rank) if axis != channel)


def weight_integers(product: Node, weight: Node, array: Any, scheme: Scheme, least_scale: Any = 0.0) -> QuantizedWeight:
    """The integers of a product's weight, given as an array, in the layout that convert stores."""
    array = array.T if is_transposed(product) else array
    return quantize_weight(array, scheme, summed_axes(product, weight, is_transposed(product)), least_scale)


def depth(node: Node) -> Dim:
    """How many products are added in one sum (for a transposed convolution: to how many sums a number
    contributes)."""
    if node.target.name == "matmul":
        return node.args[0].type.shape[-1]
    return shapes.normalize(shapes.product(weight_operand(node).type.shape[1:]))


def multiply_adds(node: Node) -> Dim:
    """Multiply-adds of a call; 0 for ops that are not products."""
    if node.op != "call_function":
        return 0
    name, arguments = node.target.name, node.arguments
    if node.target.role == "product" and node.target.kind == "contraction":
        return shapes.normalize(node.type.size * depth(node))
    if name.startswith("conv_transpose"):
        return shapes.normalize(arguments["x"].type.size * depth(node))
    if name == "scaled_dot_product_attention":
        query, value = arguments["query"].type, arguments["value"].type
        rows = shapes.product(node.type.shape[:-1])
        per_row = value.shape[-2] * (query.shape[-1] + value.shape[-1])
        return shapes.normalize(rows * per_row)
    if name == "recurrence":
        length, batch, _ = arguments["gates"].type.shape
        return shapes.normalize(length * batch * arguments["weight_hh"].type.size)
    if "weight_ih" in arguments:
        length, batch, _ = arguments["x"].type.shape
        weights = arguments["weight_ih"].type.size + arguments["weight_hh"].type.size
        return shapes.normalize(length * batch * weights)
    if name == "einsum" and len(arguments["operands"]) > 1:
        return shapes.floordiv(node_flops(node), 2)
    return 0


def why_not_table(node: Node, qconfig: QConfig | None, rule: str) -> str | None:
    """Why the rows of an embedding stay in float; None if they become integers."""
    if qconfig is None:
        return _left_in_float(rule)
    if qconfig.mode == "cast":
        return None
    weight = node.arguments["weight"]
    if not is_weight(weight):
        return "its weight is computed in the graph"
    if not is_float32(weight):
        return "its weight is not float32"
    return "its rows are single numbers" if weight.type.shape[1] == 1 else None


def _left_in_float(rule: str) -> str:
    return "no rule of the mapping applies to it" if rule == "global" else f"{rule} keeps it in float"


def why_not(node: Node, qconfig: QConfig | None, rule: str) -> str | None:
    """Why a product stays in float; None if it is computed as its config says."""
    if qconfig is None:
        return _left_in_float(rule)
    name, mode = node.target.name, qconfig.mode
    if mode == "cast":
        return None
    op = node.target
    if op.role != "product" and not (mode == "weight_only" and op.expands_weight):
        if op.opened_in and mode not in op.opened_in:
            return "both operands of its products are computed; static_int8 quantizes them"
        return f"there is no integer {name}"
    if not all(is_float32(v) for v in operands(node)) or not is_float32(node):
        return "its operands are not all float32"
    if name == "matmul":
        return _why_not_matmul(node, qconfig)
    if is_call(weight_operand(node), "dequantize_weight"):
        return "its weight is stored in integers already"
    if not is_weight(weight_operand(node)):
        return "its weight is computed in the graph"
    if node.arguments.get("layout", "NCHW") != "NCHW":
        return f"its layout is {node.arguments['layout']}; quantize before the layout pass"
    if name != "recurrence" and node.arguments["x"].type.rank == 0:
        return "its operand has rank 0"
    return None if mode == "weight_only" else _why_not_exact(node, qconfig)


def _why_not_matmul(node: Node, qconfig: QConfig) -> str | None:
    x, y = node.args
    if is_weight(x) and is_weight(y):
        return "both operands are constants; const_fold computes it"
    if qconfig.mode == "static":
        return _why_not_exact(node, qconfig)
    if not is_weight(y) or y.type.rank != 2:
        return "the right operand is not a [K, N] weight; static_int8 quantizes products of activations"
    return None if qconfig.mode == "weight_only" else _why_not_exact(node, qconfig)


def _why_not_exact(node: Node, qconfig: QConfig) -> str | None:
    """Why int32 is not certain to hold the sums, or None."""
    scheme = qconfig.activation
    assert scheme is not None
    length = depth(node)
    activation = dtypes.dtype(scheme.dtype)
    other = activation if node.target.name == "matmul" and qconfig.mode == "static" else dtypes.int8
    most = largest_depth(activation, other)
    if decide(length, "<=", most, node.graph.guards) is False:
        has = f"{length:,}" if isinstance(length, int) else shapes.to_text(length)
        return f"int32 is certain to hold the sum of {most:,} products, and it has {has}"
    if not isinstance(length, int):  # a named dim, for which convert adds a guard
        return None
    bias = node.arguments.get("bias") if node.target.name != "matmul" else None
    magnitudes = (255 if scheme.dtype == "u8" else 128) * 128
    if bias is not None and 2**31 - length * magnitudes < BIAS_ROOM:
        return f"its sums of {length:,} products leave no room for the bias in int32"
    return None
