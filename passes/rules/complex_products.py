"""Products of complex matrices as one product of real matrices of twice the size.

Before::

    matmul: c64[M,N] = x @ y

After (shortened)::

    concat: f32[M,2*K] = ops.concat((x.real, x.imag), axis=-1)
    concat_3: f32[2*K,2*N] = [[y.real, y.imag], [-y.imag, y.real]]
    matmul: f32[M,2*N] = concat @ concat_3
    complex: c64[M,N] = ops.complex(matmul[:, :N], matmul[:, N:])

This is the four real products of the definition, computed by one fast kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fxlite import ops
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.base import graph_pass, refuse
from fxlite.passes.rules.decompose import replace_each

#: Rows, columns and steps from which it pays to store the parts side by side.
FEW = 5


@graph_pass(exactness="allclose")
def complex_products(gm: GraphModule) -> None:
    """Compute products of complex matrices, and of batches of them, by products of real ones.

    Products with fewer than five rows, columns or steps are left alone, with a line in the ledger. Run
    it before const_fold, which computes the real matrix of a constant weight."""
    found: list[Node] = []
    for node in gm.graph.nodes:
        if node.op != "call_function" or not node.target.is_matrix_product or node.target.is_linear:
            continue
        types = [read.type for read in node.all_input_nodes]
        is_complex = node.type.dtype.is_complex and all(t.dtype is node.type.dtype for t in types)
        if not is_complex or any(not isinstance(v, Node) or v.type.rank < 2 for v in node.args):
            continue
        sizes = (*node.type.shape[-2:], node.args[0].type.shape[-1])
        if any(type(size) is int and size < FEW for size in sizes):
            reason = f"it has fewer than {FEW} rows, columns or steps, and its parts would be copied"
            refuse(gm, "complex_products", node, reason, [node])
            continue
        found.append(node)
    replace_each(gm, dict.fromkeys(found, _by_parts))


def _by_parts(given: Mapping[str, Any]) -> Any:
    """The product of some arguments."""
    x, y = given.values()
    real, imaginary = ops.real(y), ops.imag(y)
    left = ops.concat((ops.real(x), ops.imag(x)), axis=-1)
    above, below = (ops.concat(pair, axis=-1) for pair in ((real, imaginary), (-imaginary, real)))
    total = left @ ops.concat((above, below), axis=-2)
    axis, columns = len(total.shape) - 1, y.shape[-1]
    return ops.complex(ops.slice(total, axis, 0, columns), ops.slice(total, axis, columns, 2 * columns))


# -- examples --------------------------------------------------------------------------------------
complex_products.example(lambda x, y: x @ y, "one product of parts", x="c64[B,8]", y="c64[8,8]")
complex_products.counterexample(lambda x, y: x @ y, "too small to pay", x="c64[2,8]", y="c64[8,8]")
