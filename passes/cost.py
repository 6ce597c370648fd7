"""What a graph costs: arithmetic operations, as a number or an expression in its named dims.

In: a typed GraphModule. Out: FLOPs: scalar operations, a multiply-add counting as two, so that a
matrix product of [M, K] by [K, N] counts 2*M*N*K. What a single node costs is said in
:mod:`fxlite.cost`.
"""

from __future__ import annotations

from fxlite import shapes
from fxlite.cost import node_flops
from fxlite.graph import Node
from fxlite.graph_module import GraphModule
from fxlite.shapes import Dim


def flops(gm: GraphModule) -> Dim:
    """Arithmetic operations of one run: an int, or a sympy expression in the named dims.

    Raises GraphError for a graph without types or with leaf modules, whose work is unknown."""
    total: Dim = 0
    for count in flops_by_node(gm).values():
        total = total + count
    return shapes.normalize(total)


def flops_by_node(gm: GraphModule) -> dict[Node, Dim]:
    """Arithmetic operations of each call; a composite's are those of its expansion."""
    return {node: node_flops(node) for node in gm.graph.nodes if node.op.startswith("call_")}
