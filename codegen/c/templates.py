"""Match groups to the templates of C: matrix products, convolutions, attention, recurrences.

In: a group anchored at an op of :data:`TEMPLATES`, and the module's weights. Out: the C
function of that group, packed weights, and scratch. The template's slots (operand addresses,
epilogue) are filled with text printed from the group's expressions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from fxlite import dtypes, expr
from fxlite.codegen.c import attention, conv
from fxlite.codegen.c import integer_templates as integers
from fxlite.codegen.c.alternatives import (
    attention_decisions,
    conv_decisions,
    gemm_decisions,
)
from fxlite.codegen.c.attention import AttentionSpec, render_attention
from fxlite.codegen.c.conv import ConvSpec, pack_conv_weight, render_conv
from fxlite.codegen.c.conv_amx import (
    TileConvSpec,
    packed_conv_tiles,
    render_conv_tiles,
    suits_tiles,
)
from fxlite.codegen.c.conv_plan import packed_conv_size, reads_pairs, winograd_tile
from fxlite.codegen.c.decisions import NO_CHOICE, Choice, Decision
from fxlite.codegen.c.gemm import (
    RESERVED,
    GemmSpec,
    Operand,
    PackedOperand,
    pack_b,
    pack_b_bf16,
    pack_b_split,
    render_gemm,
)
from fxlite.codegen.c.gemm_pack import packed_size
from fxlite.codegen.c.gemm_spec import copies_a
from fxlite.codegen.c.recurrence_template import (
    claims_int_recurrence,
    claims_recurrence,
    render_recurrence_node,
)
from fxlite.codegen.c.template_parts import (
    TemplateFunction,
    at_the_element,
    epilogue_of,
    in_callers_names,
    is_innermost,
    padding_of,
    pair_of,
    strided_operand,
    workspace_arguments,
)
from fxlite.codegen.c.vector_printer import print_vectors
from fxlite.codegen.c.weights import Array, Packed, PackedWeight
from fxlite.codegen.contraction import (
    Epilogue,
    avoid,
    is_matrix_product,
    matrix_product,
    named,
    strides,
)
from fxlite.codegen.kernel_ir import Buffer
from fxlite.codegen.lower import (
    Contraction,
    buffer_name,
    lower_attention,
    lower_contraction,
)
from fxlite.codegen.printer import compute_type
from fxlite.codegen.runtime.toolchain import has_bf16_tiles
from fxlite.codegen.schedule import divides, document, is_flat
from fxlite.errors import CodegenError
from fxlite.expr import Load
from fxlite.graph import Node
from fxlite.index import Index, Var, flatten
from fxlite.ops.layout import TO_FIRST
from fxlite.passes.group import Group
from fxlite.passes.store_bf16 import reads_bf16


@dataclass(frozen=True)
class Template:
    """What computes the nodes of an op: those that it ``claims``; ``render`` makes the function of
    a group that is anchored at one. ``render_medium`` and ``render_high``, if any, are used in its
    place for ``matmul_precision="medium"`` and, where that is faster, "high". All take a ``choice``
    if their functions list decisions."""

    claims: Callable[[Node], bool]
    render: Callable[..., TemplateFunction]
    render_medium: Callable[..., TemplateFunction] | None = None
    render_high: Callable[..., TemplateFunction] | None = None


def claims(node: Node) -> bool:
    """True for nodes that a template computes."""
    found = TEMPLATES.get(node.target.name)
    return found is not None and found.claims(node)


def claims_in(matmul_precision: str) -> Callable[[Node], bool]:
    """:func:`claims` for this precision: with "medium", products of bf16 activations, too."""
    if matmul_precision != "medium":
        return claims
    return lambda node: claims(node) or (_holds_bf16(node) and reads_bf16(node, node.args[0]))


def _holds_bf16(node: Node) -> bool:
    """Whether the first operand of a call is bf16."""
    first = node.args[0] if node.args else None
    return isinstance(first, Node) and first.type.dtype.name == "bf16"


def render(
    group: Group, name: str, weights: dict[Node, Any], locations: list[str],
    matmul_precision: str = "highest", choice: Choice = NO_CHOICE,
) -> TemplateFunction:  # fmt: skip
    """The group's C function; ``choice`` decides in place of the model. Raises CodegenError where
    the group fits no template after all."""
    assert group.anchor is not None
    template = TEMPLATES[group.anchor.target.name]
    other = template.render_medium if matmul_precision == "medium" else None
    if matmul_precision == "high" and has_bf16_tiles():
        other = template.render_high
    measured = {"choice": choice} if choice else {}
    return (other or template.render)(group, name, weights, locations, **measured)


SPLIT_ROWS = 16
"""Rows from which products of split operands are taken. With fewer, to read the weight is what
takes the time, and split it is as large as it was."""


# -- matrix products -------------------------------------------------------------------------------
def _render_gemm(
    group: Group, name: str, weights: dict[Node, Any], locations: list[str], parts: int = 0,
    choice: Choice = NO_CHOICE,
) -> TemplateFunction:  # fmt: skip
    """``parts``: how many bf16 stand for an operand of a product with a weight; 0 for itself."""
    c, output, old = avoid(lower_contraction(group), RESERVED)
    p = matrix_product(c, output)
    m, n, k = p.m, p.n, p.k
    emitter = epilogue_of(c, output, p.value, p.store, locations, old)
    rows = p.batch_index
    packed: Packed = {}
    weight = next((w for w in weights if buffer_name(w) == old.get(p.b.buffer, p.b.buffer)), None)
    ctype = compute_type(c.anchor.type.dtype)
    bf16 = ""
    if weight is not None and not (expr.free_variables(p.b) - {k, n}):
        key = f"{buffer_name(weight)}_packed"
        few = m is None or (m.extent.constant or SPLIT_ROWS) < SPLIT_ROWS
        if ctype != "float" or (parts == 2 and few):
            parts = 0
        bf16 = "b" if parts else ""
        packed[key] = _packed_matrix(
            p.b, c.buffer(p.b.buffer), k, n, weight, weights[weight], parts
        )
        right: Operand | PackedOperand = PackedOperand(key)
    else:
        right = strided_operand(p.b, c.buffer(p.b.buffer), k, n, rows)
    left = strided_operand(p.a, c.buffer(p.a.buffer), m, k, rows)
    a_is_bf16 = c.buffer(p.a.buffer).dtype.name == "bf16"

    def place(row: str, column: str) -> dict[Var, Index]:
        return {**rows, n: named(column, n), **({} if m is None else {m: named(row, m)})}

    def vectors(total: str, row: str, column: str, count: str) -> str:
        statements = emitter.statements(total, place(row, column))
        buffers = (*c.buffers, output)
        at = Var(column, n.extent)
        return print_vectors(statements, buffers, at, total, count, halves=parts == 1)

    parameters = emitter.parameters([p.a.buffer], [*packed] or [p.b.buffer])
    spec = GemmSpec(
        name=name, ctype=ctype, parameters=_parameters(parameters, packed),
        batch=tuple((p.batch_names[v], emitter.text(v.extent)) for v in p.batch),
        m="1" if m is None else emitter.text(m.extent),
        n=emitter.text(n.extent), k=emitter.text(k.extent), a=left, b=right,
        epilogue=lambda total, row, column: emitter.print(total, place(row, column)),
        vector_epilogue=vectors if vectors("sum", "row", "column", "count") else None,
        comment=_document(group, choice), bf16=bf16, split=bool(bf16) and parts == 2,
        a_is_bf16=a_is_bf16, measured=choice,
    )  # fmt: skip
    rendered = render_gemm(spec)
    arguments = tuple(a for _, a in parameters) + workspace_arguments(rendered.extra_parameters)
    return TemplateFunction(
        name, rendered.text, arguments, packed, in_callers_names(rendered.workspace, old),
        gemm_decisions(spec, copies_a(spec)),
    )  # fmt: skip


def _document(group: Group, choice: Choice) -> str:
    """What a kernel computes, and which decisions about it were measured."""
    measured = "; ".join(f"{subject}: {name}" for subject, name in choice.items())
    return document(group) + (f"\nMeasured to be the fastest here: {measured}." if measured else "")


def _parameters(pairs: Sequence[tuple[str, str]], packed: Packed) -> str:
    """The parameter list; weights that were packed as pairs of bf16 are pointers to these."""
    bf16 = {name for name, weight in packed.items() if weight.dtype == np.uint32}
    return ", ".join(
        text.replace("const float ", "const uint32_t ") if argument in bf16 else text
        for text, argument in pairs
    )


def _packed_matrix(
    load: Load, buffer: Buffer, k: Var, n: Var, weight: Node, array: Array, parts: int
) -> PackedWeight:
    """The [K, N] matrix that a load of a weight reads, in panels; of pairs of bf16, if of parts."""
    depth, columns = k.extent.constant, n.extent.constant
    offset, *steps = (i.constant for i in strides(load, buffer, k, n, {}))
    if depth is None or columns is None or offset is None or None in steps:
        raise CodegenError(f"a packed weight needs known sizes, and {weight.name} has not")

    def fill(packed: Array) -> None:
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


# -- convolutions ----------------------------------------------------------------------------------
def _claims_conv(node: Node) -> bool:
    """True for float convolutions with weights that are known when compiling."""
    if node.type.dtype.name not in ("f32", "f64"):
        return False
    if any(n.type.dtype is not node.type.dtype for n in node.all_input_nodes):
        return False
    weight = node.args[1]
    if not isinstance(weight, Node) or weight.op != "get_attr":
        return False
    products: int = math.prod(weight.type.shape[1:])
    return products > 1  # else there is no sum


def _render_conv(
    group: Group, name: str, weights: dict[Node, Any], locations: list[str], parts: int = 0,
    choice: Choice = NO_CHOICE,
) -> TemplateFunction:  # fmt: skip
    """``parts`` as for products; 2 counts for products, and on tiles."""
    c = lower_contraction(group)
    anchor = c.anchor
    weight = anchor.args[1]
    array = np.asarray(weights[weight])
    attributes = anchor.arguments
    one_d = anchor.target.name == "conv1d"
    stride, dilation = (pair_of(attributes.get(n, 1), one_d) for n in ("stride", "dilation"))
    padding = padding_of(attributes.get("padding", 0), one_d)
    x_last = attributes.get("layout") == "NHWC"
    if x_last and array.shape[2:] == (1, 1) and not any(padding) and "groups" not in attributes:
        return _render_gemm(group, name, weights, locations, parts, choice)  # rows are pixels
    if one_d:
        array = array[:, :, None, :]
    c, output, old = avoid(c, conv.RESERVED)
    data = c.a.buffer
    emitter = epilogue_of(c, output, c.value, c.store, locations, old)
    shape = [emitter.text(extent) for extent in c.buffer(data).shape]
    if one_d:
        shape.insert(2, "1")
    if x_last:
        shape = [shape[axis] for axis in TO_FIRST]
    packed_name = f"{buffer_name(weight)}_packed"
    parameters = emitter.parameters([data], [packed_name])

    def epilogue(total: str, n: str, k: str, oh: str, ow: str) -> str:
        names = (n, k, ow) if one_d else (n, oh, ow, k) if x_last else (n, k, oh, ow)
        return emitter.print(total, {v: named(t, v) for v, t in zip(c.coordinates, names)})

    ctype = compute_type(c.anchor.type.dtype)
    spec = ConvSpec(
        name=name, ctype=ctype, parameters="",
        n=shape[0], c=int(shape[1]), h=shape[2], w=shape[3], k=array.shape[0], r=array.shape[2],
        s=array.shape[3], x=data, weight=packed_name, epilogue=epilogue, stride=stride,
        padding=padding, dilation=dilation, groups=attributes.get("groups", 1),
        joinable=one_d or (not x_last and _joinable(c, output)), comment=_document(group, choice),
        bf16=parts == 1 and ctype == "float", measured=choice.get("plan", ""),
        x_is_bf16=c.buffer(data).dtype.name == "bf16",
        fetched=at_the_element(c, output) if ctype == "float" and not x_last else (),
    )  # fmt: skip
    channel = c.coordinates[3 if x_last else 1]
    y_last = is_innermost(channel, c.store, output)
    if x_last or y_last:
        spec = replace(spec, x_last=x_last, y_last=y_last)
    if y_last and parts == 1 and output.dtype.name == "bf16":

        def vectors(total: str, n: str, k: str, oh: str, ow: str, count: str) -> str:
            names = (n, k, ow) if one_d else (n, oh, ow, k) if x_last else (n, k, oh, ow)
            env = {v: named(t, v) for v, t in zip(c.coordinates, names)}
            at = Var(k, channel.extent)
            buffers = (*c.buffers, output)
            return print_vectors(emitter.statements(total, env), buffers, at, total, count, True)

        if vectors("sum", "n", "k", "oh", "ow", "count"):
            spec = replace(spec, vector_epilogue=vectors)
    if parts and not choice and has_bf16_tiles() and suits_tiles(spec, parts):
        spec = TileConvSpec(**{**vars(spec), "parts": parts})
    packed = {packed_name: _packed_conv_weight(weight, array, spec)}
    spec = replace(spec, parameters=_parameters(parameters, packed))
    decisions: tuple[Decision, ...] = ()
    if isinstance(spec, TileConvSpec):
        rendered = render_conv_tiles(spec)
    else:
        rendered, decisions = render_conv(spec), conv_decisions(spec)
    arguments = tuple(a for _, a in parameters) + workspace_arguments(rendered.extra_parameters)
    return TemplateFunction(
        name, rendered.text, arguments, packed, in_callers_names(rendered.workspace, old),
        decisions,
    )  # fmt: skip


def _packed_conv_weight(weight: Node, array: Array, spec: ConvSpec) -> PackedWeight:
    if isinstance(spec, TileConvSpec):
        return packed_conv_tiles(weight, array, spec)

    def fill(packed: Array) -> None:
        pack_conv_weight(np.ascontiguousarray(array), spec, packed)

    pairs = reads_pairs(spec)
    how = (conv.plan_of(spec), winograd_tile(spec), spec.groups, pairs, array.shape)
    dtype = np.dtype(np.uint32) if pairs else array.dtype
    return PackedWeight((weight, *how), dtype, packed_conv_size(spec), fill)


def _joinable(c: Contraction, output: Buffer) -> bool:
    """True if the epilogue uses the output's row and column only to address arrays of that size, so
    that one loop may run over both."""
    row, column = c.coordinates[2:]
    joined = expr.fresh_var(row.extent * column.extent, "c")
    env = {row: Index.of(joined) // column.extent, column: Index.of(joined) % column.extent}
    shapes = {b.name: b.shape for b in c.buffers}
    store = flatten((i.substitute(env) for i in c.store), output.shape)
    return is_flat(expr.substitute_index(c.value, env), joined, shapes) and not divides(
        store, joined
    )


# -- attention -------------------------------------------------------------------------------------
def _claims_attention(node: Node) -> bool:
    """True for attention of floats whose mask, if any, is of bools or of the same dtype."""
    dtypes = [n.type.dtype for n in node.args if isinstance(n, Node)]
    mask = dtypes[3:]
    return dtypes[0].name in ("f32", "f64") and all(d.is_bool or d is dtypes[0] for d in mask)


def _render_attention(
    group: Group, name: str, weights: dict[Node, Any], locations: list[str],
    choice: Choice = NO_CHOICE,
) -> TemplateFunction:  # fmt: skip
    c, output, old = avoid(lower_attention(group), attention.RESERVED)
    *outer, row, column = c.coordinates
    feature, key = c.reduced
    several = len(outer) > 1
    names = {v: f"batch_{i}" if several else "batch" for i, v in enumerate(outer)}
    batch = {v: named(n, v) for v, n in names.items()}
    emitter = epilogue_of(c, output, c.value, c.store, locations, old)
    axes = ((row, feature), (key, feature), (key, column), (row, key))
    q, k, v, *mask = (
        strided_operand(load, c.buffer(load.buffer), *pair, batch)
        for load, pair in zip(c.operands, axes)
    )
    parameters = emitter.parameters([o.buffer for o in c.operands], [])
    attributes = c.anchor.arguments
    ctype = compute_type(c.anchor.type.dtype)
    spec = AttentionSpec(
        name=name, ctype=ctype,
        parameters=", ".join(t for t, _ in parameters),
        batch=tuple((names[v], emitter.text(v.extent)) for v in outer),
        rows=emitter.text(row.extent), keys=emitter.text(key.extent),
        features=emitter.text(feature.extent), columns=emitter.text(column.extent),
        q=q, k=k, v=v, scale=_scale(attributes.get("scale"), feature, emitter, ctype),
        epilogue=lambda total, at_row, at_column: emitter.print(
            total, {**batch, row: named(at_row, row), column: named(at_column, column)}
        ),
        mask=mask[0] if mask else None, mask_is_bool=bool(mask) and c.operands[3].dtype.is_bool,
        masked_score=_number(attributes.get("masked_score", -math.inf), emitter, ctype),
        causal=attributes.get("is_causal", False),
        empty_is_nan=not mask or attributes.get("empty_rows") == "nan",
        comment=_document(group, choice), measured=choice,
    )  # fmt: skip
    rendered = render_attention(spec)
    arguments = tuple(a for _, a in parameters) + workspace_arguments(rendered.extra_parameters)
    return TemplateFunction(
        name, rendered.text, arguments, {}, in_callers_names(rendered.workspace, old),
        attention_decisions(spec),
    )  # fmt: skip


def _scale(scale: float | None, feature: Var, emitter: Epilogue, ctype: str) -> str:
    """What scores are multiplied by, in C: the attribute, or 1 / sqrt(features)."""
    width = feature.extent.constant
    if scale is None and width is None:
        return f"({ctype})(1 / sqrt((double)fx_max({emitter.text(feature.extent)}, 1)))"
    factor = 1 / math.sqrt(max(width or 0, 1)) if scale is None else scale
    return _number(factor, emitter, ctype)


def _number(value: float, emitter: Epilogue, ctype: str) -> str:
    """A constant in C, of the type that is computed in."""
    dtype = "f32" if ctype == "float" else "f64"
    return emitter.printer.constant(expr.const(value, dtypes.dtype(dtype)))


# -- the table -------------------------------------------------------------------------------------
_GEMM = Template(
    is_matrix_product, _render_gemm, partial(_render_gemm, parts=1), partial(_render_gemm, parts=2)
)
_CONV = Template(
    _claims_conv, _render_conv, partial(_render_conv, parts=1), partial(_render_conv, parts=2)
)
TEMPLATES = {
    "matmul": _GEMM, "linear": _GEMM, "conv1d": _CONV, "conv2d": _CONV,
    "int_linear": Template(integers.claims_int_linear, integers.render_int_linear),
    "linear_weight_only": Template(integers.claims_weight_only, integers.render_weight_only),
    "int_matmul": Template(integers.claims_int_matmul, integers.render_int_matmul),
    "int_conv2d": Template(integers.claims_int_conv, integers.render_int_conv),
    "scaled_dot_product_attention": Template(_claims_attention, _render_attention),
    "recurrence": Template(claims_recurrence, render_recurrence_node),
    "int_recurrence": Template(claims_int_recurrence, render_recurrence_node),
}  # fmt: skip
"""The template of each op that has one."""
