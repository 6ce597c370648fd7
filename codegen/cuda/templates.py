"""Match contraction groups to CUDA's templates.

In: a group anchored at an op that a template :func:`claims`. Out: its kernel, with operand
addresses and epilogue printed from the group's expressions, and its launch. Weights stay as they
are: the kernels read any strides, and integer weights of a linear_weight_only.
"""

from __future__ import annotations

from fxlite.codegen.c.render.template_parts import product_fields, strided_operand
from fxlite.codegen.cuda.gemm import CudaGemmSpec, IntegerWeight, render_gemm
from fxlite.codegen.cuda.integer_products import is_integer_product, render_integer_product
from fxlite.codegen.cuda.printer import CudaPrinter, KernelText
from fxlite.codegen.cuda.routines import is_routine, render_routine
from fxlite.codegen.kernel.contraction import Epilogue, is_matrix_product, matrix_product, require_some
from fxlite.codegen.kernel.lower import Contraction, buffer_name, buffer_of, lower_contraction
from fxlite.codegen.kernel.schedule import document
from fxlite.graph.graph import Node
from fxlite.passes.group import Group
from fxlite.scalar.index import Index


def claims(node: Node) -> bool:
    """True for nodes that a template computes."""
    is_product = is_matrix_product(node) or node.target.name == "linear_weight_only"
    return is_product or is_integer_product(node) or is_routine(node)


def render(group: Group, name: str, locations: list[str]) -> KernelText:
    """The group's kernel. Raises CodegenError where the group fits no template after all."""
    assert group.anchor is not None
    require_some(group)
    if is_routine(group.anchor):
        return render_routine(group, name)
    if is_integer_product(group.anchor):
        return render_integer_product(group, name, locations)
    return _render_gemm(group, name, locations)


def _render_gemm(group: Group, name: str, locations: list[str]) -> KernelText:
    c = lower_contraction(group)
    output = buffer_of(c.root, is_output=True)
    p = matrix_product(c, output)
    printer = CudaPrinter((*c.buffers, output), locations)
    epilogue = Epilogue(c, output, p.value, p.store, printer)
    weight = _integer_weight(c, p.k.extent)
    right = [p.b.buffer] if weight is None else [weight.weight, weight.scale]
    parameters = epilogue.parameters([p.a.buffer], right)
    spec = CudaGemmSpec(
        name=name,
        ctype=c.anchor.type.dtype.c_name,
        parameters=", ".join(text for text, _ in parameters),
        b=weight or strided_operand(p.b, c.buffer(p.b.buffer), p.k, p.n, p.batch_index),
        comment=document(group),
        **product_fields(c, p, epilogue),
    )
    return render_gemm(spec)


def _integer_weight(c: Contraction, k: Index) -> IntegerWeight | None:
    """The weights of a linear_weight_only, which are integers and scales; None for other ops."""
    if c.anchor.target.name != "linear_weight_only":
        return None
    weight, scale = (buffer_name(node) for node in c.anchor.args[1:3])
    attributes = c.anchor.arguments
    group_size = attributes.get("group_size") or 0
    return IntegerWeight(weight, scale, k, attributes.get("bits", 8), group_size)
