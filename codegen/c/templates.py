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
from fxlite.codegen.c.conv_plan import packed_conv_size, reads_pairs, winograd_tile
from fxlite.codegen.c.decisions import NO_CHOICE, Choice
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
from fxlite.codegen.c.recurrence import (
    RecurrenceSpec,
    pack_recurrent_weight,
    render_recurrence,
)
from fxlite.codegen.c.template_parts import (
    TemplateFunction,
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
from fxlite.codegen.printer import CPrinter, compute_type
from fxlite.codegen.runtime.toolchain import has_bf16_tiles
from fxlite.codegen.schedule import divides, document, is_flat
from fxlite.errors import CodegenError
from fxlite.expr import Load
from fxlite.graph import Node
from fxlite.index import Index, Var, flatten
from fxlite.ops.layout import TO_FIRST
from fxlite.passes.group import Group


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

    def place(row: str, column: str) -> dict[Var, Index]:
        return {**rows, n: named(column, n), **({} if m is None else {m: named(row, m)})}

    def vectors(total: str, row: str, column: str, count: str) -> str:
        statements = emitter.statements(total, place(row, column))
        buffers = (*c.buffers, output)
        return print_vectors(statements, buffers, Var(column, n.extent), total, count)

    parameters = emitter.parameters([p.a.buffer], [*packed] or [p.b.buffer])
    spec = GemmSpec(
        name=name, ctype=ctype, parameters=_parameters(parameters, packed),
        batch=tuple((p.batch_names[v], emitter.text(v.extent)) for v in p.batch),
        m="1" if m is None else emitter.text(m.extent),
        n=emitter.text(n.extent), k=emitter.text(k.extent), a=left, b=right,
        epilogue=lambda total, row, column: emitter.print(total, place(row, column)),
        vector_epilogue=vectors if vectors("sum", "row", "column", "count") else None,
        comment=_document(group, choice), bf16=bf16, split=bool(bf16) and parts == 2,
        measured=choice,
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
    """``parts`` as for products; of others than channels-last 1x1 convolutions, 1 alone counts."""
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
        fetched=_at_the_element(c, output) if ctype == "float" and not x_last else (),
    )  # fmt: skip
    channel = c.coordinates[3 if x_last else 1]
    y_last = is_innermost(channel, c.store, output)
    if x_last or y_last:
        spec = replace(spec, x_last=x_last, y_last=y_last)
    packed = {packed_name: _packed_conv_weight(weight, array, spec)}
    rendered = render_conv(replace(spec, parameters=_parameters(parameters, packed)))
    arguments = tuple(a for _, a in parameters) + workspace_arguments(rendered.extra_parameters)
    return TemplateFunction(
        name, rendered.text, arguments, packed, in_callers_names(rendered.workspace, old),
        conv_decisions(spec),
    )  # fmt: skip


def _packed_conv_weight(weight: Node, array: Array, spec: ConvSpec) -> PackedWeight:
    def fill(packed: Array) -> None:
        pack_conv_weight(np.ascontiguousarray(array), spec, packed)

    pairs = reads_pairs(spec)
    how = (conv.plan_of(spec), winograd_tile(spec), spec.groups, pairs, array.shape)
    dtype = np.dtype(np.uint32) if pairs else array.dtype
    return PackedWeight((weight, *how), dtype, packed_conv_size(spec), fill)


def _at_the_element(c: Contraction, output: Buffer) -> tuple[str, ...]:
    """The arrays of the output's type that are written and read at the output's coordinates."""
    here = tuple(Index.of(0 if v.extent.constant == 1 else v) for v in c.coordinates)
    shapes = {b.name: b.shape for b in c.buffers}
    read = (
        node.buffer
        for node in expr.walk(c.value)
        if isinstance(node, Load) and node.index == here and node.dtype is output.dtype
        and shapes[node.buffer] == output.shape
    )  # fmt: skip
    return tuple(dict.fromkeys((output.name, *read))) if c.store == here else ()


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


# -- recurrences -----------------------------------------------------------------------------------
def _claims_recurrence(node: Node) -> bool:
    """True for recurrences of one float dtype."""
    types = {n.type.dtype.name for n in node.all_input_nodes}
    return types in ({"f32"}, {"f64"})


def _render_recurrence(
    group: Group, name: str, weights: dict[Node, Any], locations: list[str]
) -> TemplateFunction:
    node = group.root
    operands = node.arguments
    gates, weight = operands["gates"], operands["weight_hh"]
    ctype = compute_type(node.type.dtype)
    known = {"steps": gates.type.shape[0], "batch": gates.type.shape[1],
             "size": weight.type.shape[1]}  # fmt: skip
    sizes = {n: str(d) if type(d) is int else n for n, d in known.items()}
    spec = RecurrenceSpec(
        name, ctype, operands.get("mode", "lstm"), **sizes, has_bias="bias_hh" in operands,
        is_packed=weight in weights, reverse=operands.get("reverse", False),
        comment=document(group),
    )  # fmt: skip
    rendered = render_recurrence(spec)
    packed: Packed = {}
    arrays = {n: buffer_name(operands[n]) for n in spec.arrays}
    if spec.is_packed:
        arrays["weight_hh"] = f"{buffer_name(weight)}_units"
        packed[arrays["weight_hh"]] = _packed_recurrence(weight, weights[weight], spec.gates)
    dims = {n: CPrinter(()).index(Index.of(known[n])) for n in spec.named_sizes}
    arguments = (*arrays.values(), buffer_name(node), *dims.values())
    return TemplateFunction(
        name, rendered.text, arguments + workspace_arguments(rendered.extra_parameters), packed,
        in_callers_names(rendered.workspace, {n: f"({d})" for n, d in dims.items()}),
    )  # fmt: skip


def _packed_recurrence(weight: Node, array: Array, gates: int) -> PackedWeight:
    def fill(packed: Array) -> None:
        packed[:] = pack_recurrent_weight(array, gates)

    rows, size = array.shape
    total = gates * packed_size(size, rows // gates, array.itemsize)
    return PackedWeight((weight, gates), array.dtype, total, fill)


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
    "recurrence": Template(_claims_recurrence, _render_recurrence),
}  # fmt: skip
"""The template of each op that has one."""
