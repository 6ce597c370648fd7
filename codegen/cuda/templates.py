"""Match contraction groups to CUDA's templates.

In: a group anchored at an op that a template :func:`claims`. Out: its kernel, with operand
addresses and epilogue printed from the group's expressions, and its launch. Weights stay as they
are: the kernels read any strides.
"""

from __future__ import annotations

from dataclasses import dataclass

from fxlite.codegen.cuda.gemm import CudaGemmSpec, Operand, render_gemm
from fxlite.codegen.cuda.gemm_text import RenderedKernel
from fxlite.codegen.cuda.gemv import is_single_row, render_gemv
from fxlite.codegen.cuda.integer_products import is_integer_product, render_integer_product
from fxlite.codegen.cuda.printer import CudaPrinter
from fxlite.codegen.cuda.weight_only import IntegerWeight
from fxlite.codegen.kernel.contraction import (
    Epilogue,
    is_matrix_product,
    matrix_product,
    require_some,
    strides,
)
from fxlite.codegen.kernel.kernel_ir import Buffer
from fxlite.codegen.kernel.lower import Contraction, buffer_name, buffer_of, lower_contraction
from fxlite.codegen.kernel.schedule import document
from fxlite.graph.graph import Node
from fxlite.passes.group import Group
from fxlite.scalar.expr import Load
from fxlite.scalar.index import Index, Var


@dataclass(frozen=True)
class CudaTemplate:
    """A rendered template and the names of the buffers and dims it takes."""

    rendered: RenderedKernel
    arguments: tuple[str, ...]


def claims(node: Node) -> bool:
    """True for nodes that a template computes."""
    is_product = is_matrix_product(node) or node.target.name == "linear_weight_only"
    return is_product or is_integer_product(node)


def render(group: Group, name: str, locations: list[str]) -> CudaTemplate:
    """The group's kernel. Raises CodegenError where the group fits no template after all."""
    assert group.anchor is not None
    require_some(group)
    if is_integer_product(group.anchor):
        rendered, parameters = render_integer_product(group, name, locations)
        return CudaTemplate(rendered, tuple(argument for _, argument in parameters))
    return _render_gemm(group, name, locations)


def _render_gemm(group: Group, name: str, locations: list[str]) -> CudaTemplate:
    c = lower_contraction(group)
    output = buffer_of(c.root, is_output=True)
    p = matrix_product(c, output)
    m, n, k, batch = p.m, p.n, p.k, p.batch_index
    printer = CudaPrinter((*c.buffers, output), locations)
    epilogue = Epilogue(c, output, p.value, p.store, printer)

    def operand(load: Load, row: Var | None, column: Var | None) -> Operand:
        buffer: Buffer = c.buffer(load.buffer)
        return Operand(load.buffer, *map(printer.index, strides(load, buffer, row, column, batch)))

    def finish(total: str, row: str, column: str) -> str:
        return epilogue.print(total, p.named_place(row, column))

    columns, depth = printer.index(n.extent), printer.index(k.extent)
    weight = _integer_weight(c, columns, depth)
    if weight is None:
        b, right = operand(p.b, k, n), [p.b.buffer]
    else:
        b, right = Operand(weight.weight, "0", "1", weight.k), [weight.weight, weight.scale]
    parameters = epilogue.parameters([p.a.buffer], right)
    a = operand(p.a, m, k)
    spec = CudaGemmSpec(
        name=name,
        ctype=c.anchor.type.dtype.c_name,
        parameters=", ".join(text for text, _ in parameters),
        batch=tuple((p.batch_names[v], printer.index(v.extent)) for v in p.batch),
        m=printer.index(Index.of(1) if m is None else m.extent),
        n=columns,
        k=depth,
        a=a,
        b=b,
        prologue_b=weight.element if weight else None,
        fill_b=weight.fill() if weight else (),
        share_b=weight.share(a.at("row", "(k + j)")) if weight else (),
        epilogue=finish,
        comment=document(group),
    )
    rendered = render_gemv(spec) if is_single_row(spec) else render_gemm(spec)
    return CudaTemplate(rendered, tuple(argument for _, argument in parameters))


def _integer_weight(c: Contraction, n: str, k: str) -> IntegerWeight | None:
    """The weights of a linear_weight_only, which are integers and scales; None for other ops."""
    if c.anchor.target.name != "linear_weight_only":
        return None
    weight, scale = (buffer_name(node) for node in c.anchor.args[1:3])
    attributes = c.anchor.arguments
    group_size = attributes.get("group_size") or 0
    return IntegerWeight(weight, scale, n, k, attributes.get("bits", 8), group_size)
