"""Products for which there are fast kernels, in place of others: of operands of one dtype, of real matrices, and stored
by rows.

`promote_operands`. Before::

    matmul: f64[B,64] = x @ self.weight

After::

    cast: f64[16,64] = ops.cast(self.weight, dtype='f64')
    matmul: f64[B,64] = x @ cast

An operand is then converted once, not again for each row or column that reads it, and the product is one
for which there are fast kernels.

`complex_products`. Before::

    matmul: c64[M,N] = x @ y

After (shortened)::

    concat: f32[M,2*K] = ops.concat((x.real, x.imag), axis=-1)
    concat_3: f32[2*K,2*N] = [[y.real, y.imag], [-y.imag, y.real]]
    matmul: f32[M,2*N] = concat @ concat_3
    complex: c64[M,N] = ops.complex(matmul[:, :N], matmul[:, N:])

This is the four real products of the definition, computed by one fast kernel.

`transposed_products`. Before::

    matmul: i64[M,N] = x @ y
    permute: i64[N,M] = ops.permute(matmul, (1, 0))

After::

    permute: i64[N,K] = ops.permute(y, (1, 0))
    permute_1: i64[K,M] = ops.permute(x, (1, 0))
    matmul: i64[N,M] = permute @ permute_1

Integers have no template, whose tiles may be stored in columns: rows of the result are then sums of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fxlite import ops
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.base import graph_pass, refuse
from fxlite.passes.rewrite.rule import Answer, Call, is_call, node_rule
from fxlite.passes.rules.decompose import replace_each
from fxlite.types import dtypes, shapes
from fxlite.types.tensor_type import TensorType

# -- operands of one dtype -------------------------------------------------------------------------
#: How often an element is read in a product for which an operand is converted first, and a constant one, which costs
#: nothing but the memory of its wider elements.
OFTEN, OFTEN_CONSTANT = 8, 2


@graph_pass(exactness="allclose")
def promote_operands(gm: GraphModule) -> None:
    """Convert the operands of products and convolutions to the dtype that NumPy's promotion gives them.

    Left alone: integers whose product is wider than their common dtype, and matrices that are multiplied by a
    few vectors, which are read from memory as they are. Run it before const_fold, which converts constant
    weights once and for all."""
    constant: set[Node] = set()
    mixed: list[Node] = []
    for node in gm.graph.nodes:
        reads = node.all_input_nodes
        if node.op == "get_attr" or (node.op == "call_function" and reads and constant.issuperset(reads)):
            constant.add(node)
        if node.op == "call_function" and _is_mixed(node, constant):
            mixed.append(node)
    replace_each(gm, {node: _promoted(node) for node in mixed})


promote_operands.example(lambda x, y: x @ y, "y becomes f64", x="f64[B,8]", y="f32[8,4]")
promote_operands.counterexample(lambda x, y: x @ y, "both are f32", x="f32[B,8]", y="f32[8,4]")
promote_operands.counterexample(lambda x, y: x @ y, "y is read once", x="f64[1,8]", y="f32[8,4]")
promote_operands.counterexample(
    lambda x, y: x * y, "an element is converted where it is read", x="f64[B,8]", y="f32[B,8]"
)


def _is_mixed(node: Node, constant: set[Node]) -> bool:
    if not (node.target.is_matrix_product or node.target.is_convolution) or not isinstance(node.type, TensorType):
        return False
    types = [read.type for read in node.all_input_nodes]
    if not all(isinstance(t, TensorType) for t in types):
        return False
    found = {t.dtype for t in types}
    if len(found) < 2 or dtypes.result_type(*found) is not node.type.dtype:
        return False
    others = [read for read in node.all_input_nodes if read.type.dtype is not node.type.dtype]
    return all(_is_worthwhile(read, node, OFTEN_CONSTANT if read in constant else OFTEN) for read in others)


def _is_worthwhile(operand: Node, product: Node, least: int) -> bool:
    """Whether each element of an operand is read so often in a product."""
    if not product.target.is_matrix_product or operand not in product.args[:2]:
        return True
    sums, steps = shapes.product(product.type.shape), product.args[0].type.shape[-1]
    size = shapes.product(operand.type.shape)
    if not all(type(n) is int for n in (sums, steps, size)):
        return True
    return bool(sums * steps >= size * least)


def _promoted(node: Node) -> Callable[[Mapping[str, Any]], Any]:
    wide = node.type.dtype
    others = {n for n, v in node.arguments.items() if isinstance(v, Node) and v.type.dtype is not wide}
    return lambda given: node.target(**{n: ops.cast(v, wide) if n in others else v for n, v in given.items()})


# -- complex matrices ------------------------------------------------------------------------------
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


complex_products.example(lambda x, y: x @ y, "one product of parts", x="c64[B,8]", y="c64[8,8]")
complex_products.counterexample(lambda x, y: x @ y, "too small to pay", x="c64[2,8]", y="c64[8,8]")


# -- transposed results ----------------------------------------------------------------------------
@node_rule("permute")
def transposed_products(node: Node) -> Answer:
    """A transposed product of integers is the product of the transposed operands, in reverse order.

    Left alone: products that something else reads, too, and those of floats, which have a kernel for each order."""
    product, axes = node.args[0], list(node.kwargs["axes"])
    if not is_call(product, "matmul") or len(product.users) > 1 or product.type.dtype.is_inexact:
        return None
    ranks = [operand.type.rank for operand in product.args if isinstance(operand, Node)]
    if len(ranks) < 2 or min(ranks) < 2 or axes != _swapped(len(axes)):
        return None
    y, x = (Call("permute", v, axes=tuple(_swapped(v.type.rank))) for v in product.args)
    return Call("matmul", x, y)


transposed_products.example(lambda x, y: (x @ y).T, "its rows are sums of rows", x="i64[B,8]", y="i64[8,4]")
transposed_products.counterexample(lambda x, y: (x @ y).T, "floats have a template", x="f32[B,8]", y="f32[8,4]")


def _swapped(rank: int) -> list[int]:
    """Axes, the last two of which change places."""
    return [*range(rank - 2), rank - 1, rank - 2]
