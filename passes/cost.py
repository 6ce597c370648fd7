"""What a graph costs: arithmetic operations, as a number or an expression in its named dims.

In: a typed GraphModule. Out: FLOPs: scalar operations, a multiply-add counting as two, so that a
matrix product of [M, K] by [K, N] counts 2*M*N*K. They are read off the ops' bodies, composites
being expanded first; comparisons and selections for padding and masks are not arithmetic.
"""

from __future__ import annotations

from fxlite import shapes
from fxlite.errors import GraphError
from fxlite.graph import Node
from fxlite.graph_module import GraphModule
from fxlite.passes.decompose import decompose
from fxlite.shapes import Dim


def flops(gm: GraphModule) -> Dim:
    """Arithmetic operations of one run: an int, or a sympy expression in the named dims.

    Raises GraphError for a graph without types or with leaf modules, whose work is unknown."""
    total: Dim = 0
    for count in flops_by_node(decompose(gm)).values():
        total = total + count
    return shapes.normalize(total)


def flops_by_node(gm: GraphModule) -> dict[Node, Dim]:
    """Arithmetic operations of each call; 0 for composites (run decompose before)."""
    return {node: node_flops(node) for node in gm.graph.nodes if node.op not in _FREE}


_FREE = ("placeholder", "get_attr", "output")


def node_flops(node: Node) -> Dim:
    """Arithmetic operations of one call. Raises GraphError for one without a type."""
    if node.op == "call_module":
        raise GraphError(f"{node.describe()}: the cost of a leaf module is unknown")
    if node.op != "call_function":
        return 0
    if node.type is None:
        raise GraphError(f"{node.describe()} has no type; trace with input types")
    if isinstance(node.type, tuple):
        return 0
    types = node.target.map_tensors(
        lambda value: value.type if isinstance(value, Node) else value, node.arguments
    )
    return node.target.flops(types, node.type)
