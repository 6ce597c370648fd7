"""Match products to their templates: those of float matrices (`gemm`), and of integers: linear and matmul
of i8 and u8, and linear layers with integer weights.
In and out as in :mod:`fxlite.codegen.c.templates`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fxlite.base.errors import CodegenError
from fxlite.codegen.c.dynamic_scale import beside_of
from fxlite.codegen.c.product.gemm import render_gemm
from fxlite.codegen.c.product.gemm_integers import Int8Spec, Right, WeightOnlySpec, render_gemm_weight_only, render_int8
from fxlite.codegen.c.product.gemm_spec import (
    STRIP_ROWS,
    GemmSpec,
    Operand,
    PackedOperand,
    at_most,
    copies_a,
    pack_b,
    pack_b_bf16,
    pack_b_split,
    pack_int8,
    pack_integers,
    packed_integers_size,
    packed_rows,
    packed_size,
    plan_of_turned,
)
from fxlite.codegen.c.render.alternatives import NO_CHOICE, Choice, gemm_decisions
from fxlite.codegen.c.render.template_parts import (
    TemplateFunction,
    at_the_element,
    declines_weights,
    described,
    is_innermost,
    matched_product,
    parameter_list,
    product_fields,
    strided_operand,
    template_function,
    vectors_of,
)
from fxlite.codegen.c.render.vector_printer import print_integer_vectors, print_vectors
from fxlite.codegen.c.weights import Array, Packed, PackedWeight
from fxlite.codegen.kernel.builder import Pointer
from fxlite.codegen.kernel.kernel_ir import Buffer
from fxlite.codegen.kernel.lower import Contraction, MatrixProduct, address, buffer_name, strides
from fxlite.codegen.kernel.names import derived
from fxlite.codegen.kernel.schedule import document
from fxlite.graph.graph import Node
from fxlite.passes.group import Group
from fxlite.scalar import expr
from fxlite.scalar.expr import Load
from fxlite.scalar.index import Index, Var, flatten, product
from fxlite.types import dtypes

SPLIT_ROWS = 16
"""Rows from which products of split operands are used. With fewer, most of the time goes into reading the weight, and
the split weight is as large as the original."""

SPLIT_SIDES = 64
"""Columns and steps of K from which they are used. Measured with AMX, relative to the time of floats: 12544 x 16 x 96
3.0, 784 x 144 x 32 1.8, 3136 x 64 x 64 1.05, 784 x 128 x 128 0.63."""


def render_gemm_node(
    group: Group, name: str, weights: dict[Node, Any], locations: list[str], parts: int = 0, choice: Choice = NO_CHOICE
) -> TemplateFunction:
    """A product of two matrices, or batches of them. ``parts`` is the number of bf16 into which an operand of
    a product with a weight is split; 0 if it stays as it is."""
    c, p, emitter = matched_product(group, locations)
    by_name = {buffer_name(weight): weight for weight in weights}
    if not parts and _is_better_transposed(c, p, p.b.buffer in by_name):
        assert p.m is not None
        p = replace(p, a=p.b, b=p.a, m=p.n, n=p.m)
    m, n, k = p.m, p.n, p.k
    packed: Packed = {}
    weight = by_name.get(p.b.buffer)
    ctype = c.anchor.type.dtype.c_name
    bf16 = ""
    if weight is not None and not (expr.free_variables(p.b) - {k, n}):
        key = derived(buffer_name(weight), "packed")
        few = m is None or (m.extent.constant or SPLIT_ROWS) < SPLIT_ROWS
        few |= any(side is None or (side.extent.constant or 0) < SPLIT_SIDES for side in (n, k))
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

    def spec_of(p: MatrixProduct, right: Operand | PackedOperand, plan: str = "") -> GemmSpec:
        return GemmSpec(
            name=f"{name}_turned" if plan else name,
            ctype=ctype,
            parameters=parameter_list(parameters, packed),
            b=right,
            vectors=vectors_of(p, emitter, vectors),
            comment=described(group, choice),
            bf16=bf16,
            split=bool(bf16) and parts == 2,
            a_is_bf16=c.buffer(p.a.buffer).dtype.name == "bf16",
            plan=plan,
            measured=choice,
            **product_fields(c, p, emitter),
        )

    spec = spec_of(p, right)
    if isinstance(right, Operand) and p.m is not None and (plan := plan_of_turned(spec)):
        turned = replace(p, a=p.b, b=p.a, m=p.n, n=p.m)
        other = spec_of(turned, strided_operand(p.a, c.buffer(p.a.buffer), k, p.m, p.batch_index), plan)
        is_known = n.extent.constant is not None
        spec = replace(other, name=name) if is_known else replace(spec, turned=other)
    rendered = render_gemm(spec)
    return template_function(name, rendered, parameters, packed, gemm_decisions(spec, copies_a(spec)))


def _is_better_transposed(c: Contraction, p: MatrixProduct, is_weight: bool) -> bool:
    """Whether the transposed product is faster: if its results are stored row by row, as of ``(x @ w).T``, and to store
    them takes longer than to read its operands, or these are read in place; or if rows of the left operand, which are
    in many pieces, would have to be copied, though its columns are rows of the transposed product, and the other
    matrix, which is then read in place or packed row by row, has few columns. ``is_weight`` says whether the right
    operand can be packed at compile time."""
    if p.m is None:
        return False
    left = address(p.a, c.buffer(p.a.buffer))
    is_stored = is_innermost(p.m, p.store, p.output) and not at_most(p.m.extent, FEW_STORED)
    known = p.m.extent.constant
    if is_stored and at_most(p.k.extent, FEW_STEPS // 3 if known is None else min(known, FEW_STEPS)):
        return True
    right = address(p.b, c.buffer(p.b.buffer))
    if is_stored and not is_weight and right.coefficient(p.k) == 1:
        return True
    if left.coefficient(p.m) != 1 or left.coefficient(p.k) == 1:
        return False
    if is_stored:
        return True
    if at_most(p.n.extent, STRIP_ROWS):
        return True
    return at_most(p.n.extent, MOST_TURNED) and p.n.extent * 4 <= p.m.extent and not at_most(p.k.extent, FEW_STEPS)


def _packed_matrix(load: Load, buffer: Buffer, k: Var, n: Var, weight: Node, array: Array, parts: int) -> PackedWeight:
    """The [K, N] matrix that a load of a weight reads, in panels; with ``parts``, of pairs of bf16."""
    depth, columns = k.extent.constant, n.extent.constant
    offset, *steps = (i.constant for i in strides(load, buffer, k, n, {}))
    if depth is None or columns is None or offset is None or None in steps:
        raise CodegenError(f"a packed weight needs known sizes, and {weight.name} has none")

    def pack(packed: Array, array: Array) -> None:
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
    return PackedWeight((weight, depth, columns, offset, *steps, parts), dtype, size, pack, array)


FEW_STORED = 15
"""The most rows whose results, though they lie side by side, fill no vector."""

MOST_TURNED = 64
"""The most columns of a product that is computed as its transpose, so that few rows are copied and not many."""


FEW_STEPS = 96
"""The most steps of K for which copying rows takes less time than storing tiles in columns. (Measured for 600 and 5000
rows, as the time of the transposed product: 1.3 to 2.4 times as long for 8 to 32 steps and 16 to 48 columns, 1.0 to
1.2 for 64 steps, 0.9 to 1.05 for 128, and 0.5 for 512 steps and 16 columns.)"""


# -- of floats -------------------------------------------------------------------------------------
FETCHED = 1 << 19
"""Bytes of a float array from which its tiles are prefetched: half a second-level cache."""

FETCHING_DEPTH = 64
"""The least steps of K that leave time for it."""


def declines_int_linear(node: Node) -> str:
    """The template computes integer products with a weight that is known at compile time, if there are elements."""
    weight = node.args[1]
    if reason := declines_weights(weight):
        return reason
    return "there are no elements" if 0 in (*weight.type.shape, *node.type.shape) else ""


def render_int_linear(group: Group, name: str, weights: dict[Node, Any], locations: list[str]) -> TemplateFunction:
    """A product of integers and a weight that is packed at compile time."""
    c, p, emitter = matched_product(group, locations)
    x, weight = c.anchor.args[:2]
    zero_point = c.anchor.bound["x_zero_point"]
    packed_name = derived(buffer_name(weight), "packed")
    parameters = with_packed_integers(emitter.parameters([p.a.buffer], [packed_name]), packed_name)

    image = p.batch_names[p.batch[0]] if p.batch else None
    if c.coordinates[0].extent.constant == 1:
        image = "0"
    rows = () if p.m is None else (p.m,)
    beside = beside_of(group, emitter, p.output, p.store, (*p.batch, *rows, p.n), p.m, image)
    if beside is not None:
        parameters.append(beside.parameter)
    depth = weight.type.shape[1]
    spec = Int8Spec(
        name=name,
        parameters=parameter_list(parameters, {}),
        type=x.type.dtype.name,
        b=packed_name,
        comment=document(group),
        beside=beside,
        fetched=_fetched(c, p) if depth >= FETCHING_DEPTH else None,
        vectors=vectors_of(p, emitter, print_integer_vectors),
        **product_fields(c, p, emitter),
    )
    rendered = render_int8(spec)
    offset = zero_point + (128 if spec.type == "i8" else 0)
    packed = {packed_name: _packed_int8(weight, weights[weight], offset)}
    return template_function(name, rendered, parameters, packed)


def _fetched(c: Contraction, p: MatrixProduct) -> Callable[[Index, Index], list[tuple[Pointer, Index]]] | None:
    """For each large float array of the output's size, the start of a tile and the distance of its
    rows."""
    output = p.output
    size = product(output.shape).constant
    if output.dtype is not dtypes.float32 or p.m is None or not size or 4 * size < FETCHED:
        return None
    address = flatten(p.store, output.shape)
    step = address.coefficient(p.m)
    if step is None or address.coefficient(p.n) != 1:
        return None

    def fetched(row: Index, column: Index) -> list[tuple[Pointer, Index]]:
        start = address.substitute(p.place(row, column))
        return [(Pointer(name, start), step) for name in at_the_element(c, output)]

    return fetched


def declines_int_matmul(node: Node) -> str:
    """The template computes integer products of two matrices, or batches of them, whose right operand is computed."""
    vectors = [str(v) for v in node.args if not isinstance(v, Node) or v.type.rank < 2]
    return f"{' and '.join(vectors)} is not a matrix" if vectors else ""


def render_int_matmul(group: Group, name: str, weights: dict[Node, Any], locations: list[str]) -> TemplateFunction:
    """A product of two activations; the right one is packed into the workspace in each call."""
    c, p, emitter = matched_product(group, locations)
    parameters = emitter.parameters([p.a.buffer, p.b.buffer], [])
    zero_points = [c.anchor.bound[f"{v}_zero_point"] for v in "xy"]

    x, y = (c.buffer(load.buffer) for load in (p.a, p.b))
    spec = Int8Spec(
        name=name,
        parameters=parameter_list(parameters, {}),
        type=x.dtype.name,
        b=Right(strided_operand(p.b, y, p.k, p.n, p.batch_index), y.dtype.name, zero_points[1], zero_points[0]),
        comment=document(group),
        vectors=vectors_of(p, emitter, print_integer_vectors),
        **product_fields(c, p, emitter),
    )
    rendered = render_int8(spec)
    return template_function(name, rendered, parameters, {})


def with_packed_integers(parameters: Sequence[tuple[str, str]], packed_name: str) -> list[tuple[str, str]]:
    """Parameters and arguments, with the packed weight as quads."""
    quads = f"const int32_t *restrict {packed_name}"
    return [(quads if name == packed_name else text, name) for text, name in parameters]


def _packed_int8(weight: Node, array: Array, offset: int) -> PackedWeight:
    columns, depth = array.shape[:2]
    size = packed_size(packed_rows(depth), columns, 4)

    def pack(packed: Array, array: Array) -> None:
        pack_int8(array.reshape(columns, depth), offset, packed)

    return PackedWeight((weight, "int8", offset), np.dtype(np.int32), size, pack, array)


# -- integer weights alone -------------------------------------------------------------------------
def declines_weight_only(node: Node) -> str:
    """The template takes constant weights and scales, with one group or groups of whole words of 32 bits."""
    weight, scale = node.args[1:3]
    if reason := declines_weights(weight) or declines_weights(scale):
        return reason
    if 0 in (*weight.type.shape, *node.type.shape):
        return "there are no elements"
    group_size, word = node.bound["group_size"] or 0, 32 // node.bound["bits"]
    is_whole = group_size % word == 0 or group_size >= node.args[0].type.shape[-1]
    return "" if is_whole else f"group_size is {group_size}, and must be a multiple of {word} or all columns"


def render_weight_only(group: Group, name: str, weights: dict[Node, Any], locations: list[str]) -> TemplateFunction:
    """A product of floats and an 8-bit or 4-bit weight, which is unpacked in registers."""
    c, p, emitter = matched_product(group, locations)
    x, weight, scale = c.anchor.args[:3]
    bits = c.anchor.bound["bits"]
    columns, depth = weight.type.shape[0], x.type.shape[-1]
    group_size = min(c.anchor.bound["group_size"] or depth, depth)
    weight_name, scale_name = (derived(buffer_name(v), "packed") for v in (weight, scale))
    parameters = with_packed_integers(emitter.parameters([p.a.buffer], [weight_name, scale_name]), weight_name)

    spec = WeightOnlySpec(
        name=name,
        parameters=parameter_list(parameters, {}),
        bits=bits,
        group_size=group_size,
        weight=weight_name,
        scale=scale_name,
        comment=document(group),
        **product_fields(c, p, emitter),
    )

    def pack_weight(packed: Array, array: Array) -> None:
        pack_integers(np.ascontiguousarray(array), bits, packed.view(np.uint8))

    def pack_scales(packed: Array, array: Array) -> None:
        pack_b(np.ascontiguousarray(array).reshape(columns, -1).T, packed)

    packed = {
        weight_name: PackedWeight(
            (weight, "integers", bits),
            np.dtype(np.int32),
            packed_integers_size(columns, depth, bits) // 4,
            pack_weight,
            weights[weight],
        ),
        scale_name: PackedWeight(
            (scale, "scales"), np.dtype(np.float32), packed_size(spec.groups, columns, 4), pack_scales, weights[scale]
        ),
    }
    rendered = render_gemm_weight_only(spec)
    return template_function(name, rendered, parameters, packed)
