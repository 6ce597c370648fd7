"""Match products of float matrices to their template (`gemm`).

In and out as in :mod:`fxlite.codegen.c.templates`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.base.errors import CodegenError
from fxlite.codegen.c.decisions import NO_CHOICE, Choice
from fxlite.codegen.c.product.gemm import (
    GemmSpec,
    Operand,
    PackedOperand,
    pack_b,
    pack_b_bf16,
    pack_b_split,
    render_gemm,
)
from fxlite.codegen.c.product.gemm_spec import copies_a
from fxlite.codegen.c.product.packed_operands import packed_size
from fxlite.codegen.c.render.alternatives import gemm_decisions
from fxlite.codegen.c.render.template_parts import (
    TemplateFunction,
    described,
    epilogue_of,
    parameter_list,
    product_fields,
    strided_operand,
    template_function,
    vectors_of,
)
from fxlite.codegen.c.render.vector_printer import print_vectors
from fxlite.codegen.c.weights import Array, Packed, PackedWeight
from fxlite.codegen.kernel.contraction import matrix_product, strides
from fxlite.codegen.kernel.kernel_ir import Buffer
from fxlite.codegen.kernel.lower import buffer_name, buffer_of, lower_contraction
from fxlite.codegen.kernel.names import derived
from fxlite.graph.graph import Node
from fxlite.passes.group import Group
from fxlite.scalar import expr
from fxlite.scalar.expr import Load
from fxlite.scalar.index import Var

SPLIT_ROWS = 16
"""Rows from which products of split operands are taken. With fewer, to read the weight is what
takes the time, and split it is as large as it was."""


def render_gemm_node(
    group: Group, name: str, weights: dict[Node, Any], locations: list[str], parts: int = 0, choice: Choice = NO_CHOICE
) -> TemplateFunction:
    """A product of two matrices, or batches of them. ``parts``: how many bf16 stand for an operand
    of a product with a weight; 0 for itself."""
    c = lower_contraction(group)
    output = buffer_of(c.root, is_output=True)
    p = matrix_product(c, output)
    m, n, k = p.m, p.n, p.k
    emitter = epilogue_of(c, output, p.value, p.store, locations)
    packed: Packed = {}
    weight = next((w for w in weights if buffer_name(w) == p.b.buffer), None)
    ctype = c.anchor.type.dtype.c_name
    bf16 = ""
    if weight is not None and not (expr.free_variables(p.b) - {k, n}):
        key = derived(buffer_name(weight), "packed")
        few = m is None or (m.extent.constant or SPLIT_ROWS) < SPLIT_ROWS
        if ctype != "float" or (parts == 2 and few):
            parts = 0
        bf16 = "b" if parts else ""
        packed[key] = _packed_matrix(p.b, c.buffer(p.b.buffer), k, n, weight, weights[weight], parts)
        right: Operand | PackedOperand = PackedOperand(key)
    else:
        right = strided_operand(p.b, c.buffer(p.b.buffer), k, n, p.batch_index)

    def vectors(statements: Any, buffers: Any, along: Var, rows: Any, sums: str, count: str) -> Any:
        return "", print_vectors(statements, buffers, along, sums, count, halves=parts == 1)

    parameters = emitter.parameters([p.a.buffer], [*packed] or [p.b.buffer])
    spec = GemmSpec(
        name=name,
        ctype=ctype,
        parameters=parameter_list(parameters, packed),
        b=right,
        vectors=vectors_of(p, emitter, vectors),
        comment=described(group, choice),
        bf16=bf16,
        split=bool(bf16) and parts == 2,
        a_is_bf16=c.buffer(p.a.buffer).dtype.name == "bf16",
        measured=choice,
        **product_fields(c, p, emitter),
    )
    rendered = render_gemm(spec)
    return template_function(name, rendered, parameters, packed, gemm_decisions(spec, copies_a(spec)))


def _packed_matrix(load: Load, buffer: Buffer, k: Var, n: Var, weight: Node, array: Array, parts: int) -> PackedWeight:
    """The [K, N] matrix that a load of a weight reads, in panels; of pairs of bf16, if of parts."""
    depth, columns = k.extent.constant, n.extent.constant
    offset, *steps = (i.constant for i in strides(load, buffer, k, n, {}))
    if depth is None or columns is None or offset is None or None in steps:
        raise CodegenError(f"a packed weight needs known sizes, and {weight.name} has not")

    def fill(packed: Array, array: Array = array) -> None:
        flat = np.ascontiguousarray(array).reshape(-1)[offset:]
        apart = [(step or 0) * flat.itemsize for step in steps]
        matrix = np.lib.stride_tricks.as_strided(flat, (depth, columns), apart, writeable=False)
        if parts == 2:
            pack_b_split(matrix, packed)
        elif parts == 1:
            packed[:] = pack_b_bf16(matrix)
        else:
            pack_b(matrix, packed)

    dtype = np.dtype(np.uint32) if parts else array.dtype
    size = packed_size(-(-depth // 2) * parts if parts else depth, columns, dtype.itemsize)
    return PackedWeight((weight, depth, columns, offset, *steps, parts), dtype, size, fill)
