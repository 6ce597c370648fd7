"""Match contraction groups to CUDA's matrix-product template.

In: a group anchored at a matmul or linear. Out: its kernel, with operand addresses and epilogue
printed from the group's expressions, and its launch. Weights stay as they are: the kernel reads any
strides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fxlite.codegen.contraction import Epilogue, avoid, matrix_product, named, strides
from fxlite.codegen.cuda.gemm import (
    RESERVED,
    TILE,
    CudaGemmSpec,
    Operand,
    RenderedKernel,
    render_gemm,
)
from fxlite.codegen.cuda.printer import CudaPrinter
from fxlite.codegen.kernel_ir import Buffer
from fxlite.codegen.lower import lower_contraction
from fxlite.codegen.printer import compute_type
from fxlite.codegen.schedule import document
from fxlite.expr import Load
from fxlite.index import Index, Var
from fxlite.passes.group import Group


@dataclass(frozen=True)
class CudaTemplate:
    """A rendered template, the names of the buffers and dims it takes, and the old names of dims
    that its launch calls otherwise."""

    rendered: RenderedKernel
    arguments: tuple[str, ...]
    old_names: Mapping[str, str]


def render(group: Group, name: str, locations: list[str]) -> CudaTemplate:
    """The group's kernel. Raises CodegenError where the group is no strided matrix product."""
    c, output, old = avoid(lower_contraction(group), RESERVED)
    p = matrix_product(c, output)
    m, n, k, batch = p.m, p.n, p.k, p.batch_index
    printer = CudaPrinter((*c.buffers, output), locations)
    epilogue = Epilogue(c, output, p.value, p.store, RESERVED, printer, old)

    def operand(load: Load, row: Var | None, column: Var | None) -> Operand:
        buffer: Buffer = c.buffer(load.buffer)
        return Operand(load.buffer, *map(printer.index, strides(load, buffer, row, column, batch)))

    def finish(total: str, row: str, column: str) -> str:
        env = {**batch, n: named(column, n)}
        if m is not None:
            env[m] = named(row, m)
        return epilogue.print(total, env)

    a, b = operand(p.a, m, k), operand(p.b, k, n)
    parameters = epilogue.parameters([p.a.buffer], [p.b.buffer])
    rendered = render_gemm(
        CudaGemmSpec(
            name=name,
            ctype=compute_type(output.dtype),
            parameters=", ".join(text for text, _ in parameters),
            batch=tuple((p.batch_names[v], printer.index(v.extent)) for v in p.batch),
            m=printer.index(Index.of(1) if m is None else m.extent),
            n=printer.index(n.extent),
            k=printer.index(k.extent),
            a=a,
            b=b,
            epilogue=finish,
            comment=f"{document(group)}\nOne block for each tile of {TILE} x {TILE} elements.",
        )
    )
    return CudaTemplate(rendered, tuple(argument for _, argument in parameters), old)
