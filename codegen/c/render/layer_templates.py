"""Match attention (`attention`) and recurrences (`recurrence`) to their templates.

In and out as in :mod:`fxlite.codegen.c.templates`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxlite.codegen.c.attention import AttentionSpec, render_attention
from fxlite.codegen.c.decisions import NO_CHOICE, Choice
from fxlite.codegen.c.product.gemm_spec import packed_rows, packed_size
from fxlite.codegen.c.recurrence import (
    IntegerState,
    RecurrenceSpec,
    pack_recurrent_int8,
    pack_recurrent_weight,
    render_recurrence,
)
from fxlite.codegen.c.render.alternatives import attention_decisions
from fxlite.codegen.c.render.template_parts import (
    TemplateFunction,
    described,
    epilogue_of,
    is_constant,
    strided_operand,
    template_function,
    workspace_arguments,
)
from fxlite.codegen.c.weights import Array, Packed, PackedWeight
from fxlite.codegen.kernel.builder import bare, symbol
from fxlite.codegen.kernel.lower import Epilogue, buffer_name, buffer_of, lower_attention, named
from fxlite.codegen.kernel.names import derived
from fxlite.codegen.kernel.schedule import document
from fxlite.graph.graph import Node
from fxlite.passes.group import Group
from fxlite.scalar import expr
from fxlite.scalar.index import Index, Var
from fxlite.types import dtypes


def claims_attention(node: Node) -> bool:
    """True for attention of floats whose mask, if any, is of bools or of the same dtype."""
    dtypes = [n.type.dtype for n in node.args if isinstance(n, Node)]
    mask = dtypes[3:]
    return dtypes[0].name in ("f32", "f64") and all(d.is_bool or d is dtypes[0] for d in mask)


def render_attention_node(
    group: Group, name: str, weights: dict[Node, Any], locations: list[str], choice: Choice = NO_CHOICE
) -> TemplateFunction:
    """Attention over any strides, with or without a mask."""
    c = lower_attention(group)
    output = buffer_of(c.root, is_output=True)
    *outer, row, column = c.coordinates
    feature, key = c.reduced
    batch = {v: Index.of(0) for v in outer}
    several = [v for v in outer if v.extent != 1]
    names = {v: f"batch_{i}" if several[1:] else "batch" for i, v in enumerate(several)}
    batch |= {v: named(n, v) for v, n in names.items()}
    emitter = epilogue_of(c, output, c.value, c.store, locations)
    axes = ((row, feature), (key, feature), (key, column), (row, key))
    q, k, v, *mask = (
        strided_operand(load, c.buffer(load.buffer), *pair, batch) for load, pair in zip(c.operands, axes)
    )
    parameters = emitter.parameters([o.buffer for o in c.operands], [])
    attributes = c.anchor.arguments
    ctype = c.anchor.type.dtype.c_name
    spec = AttentionSpec(
        name=name,
        ctype=ctype,
        parameters=", ".join(t for t, _ in parameters),
        batch=tuple((name, v.extent) for v, name in names.items()),
        rows=row.extent,
        keys=key.extent,
        features=feature.extent,
        columns=column.extent,
        q=q,
        k=k,
        v=v,
        scale=_scale(attributes.get("scale"), feature, emitter, ctype),
        epilogue=lambda total, at_row, at_column: emitter.print(total, {**batch, row: at_row, column: at_column}),
        mask=mask[0] if mask else None,
        mask_is_bool=bool(mask) and c.operands[3].dtype.is_bool,
        masked_score=_number(attributes.get("masked_score", -math.inf), emitter, ctype),
        causal=attributes.get("is_causal", False),
        empty_is_nan=not mask or attributes.get("empty_rows") == "nan",
        comment=described(group, choice),
        measured=choice,
    )
    rendered = render_attention(spec)
    return template_function(name, rendered, parameters, {}, attention_decisions(spec))


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
def claims_recurrence(node: Node) -> bool:
    """True for recurrences of one float dtype."""
    types = {n.type.dtype.name for n in node.all_input_nodes}
    return types in ({"f32"}, {"f64"})


def claims_int_recurrence(node: Node) -> bool:
    """True for recurrences in integers with a weight that is known when compiling."""
    return is_constant(node.arguments["weight_hh"])


def render_recurrence_node(group: Group, name: str, weights: dict[Node, Any], locations: list[str]) -> TemplateFunction:
    """A recurrence of either kind; its weight is packed when the model is compiled, or if it is
    computed, in each call."""
    node = group.root
    operands = node.arguments
    gates, weight = operands["gates"], operands["weight_hh"]
    known = {"steps": gates.type.shape[0], "batch": gates.type.shape[1], "size": weight.type.shape[1]}
    sizes = {n: Index.of(d) if type(d) is int else symbol(n) for n, d in known.items()}
    integers = None
    if node.target.name == "int_recurrence":
        integers = IntegerState(operands.get("state_scale"), operands.get("state_zero_point"))
    spec = RecurrenceSpec(
        name,
        node.type.dtype.c_name,
        operands.get("mode", "lstm"),
        **sizes,
        has_bias=operands.get("bias_hh") is not None,
        is_packed=weight in weights,
        reverse=operands.get("reverse", False),
        comment=document(group),
        integers=integers,
    )
    rendered = render_recurrence(spec)
    packed: Packed = {}
    arrays = {n: buffer_name(operands[n]) for n in spec.arrays}
    if spec.is_packed:
        arrays["weight_hh"] = derived(buffer_name(weight), "units")
        packed[arrays["weight_hh"]] = _packed(weight, weights[weight], spec)
    dims = {n: Index.of(known[n]) for n in spec.named_sizes}
    arguments = (*arrays.values(), buffer_name(node), *map(bare, dims.values()))
    workspace = rendered.workspace.substitute({sizes[n].single_atom: d for n, d in dims.items()})
    return TemplateFunction(
        name, rendered.text, arguments + workspace_arguments(rendered.extra_parameters), packed, bare(workspace)
    )


def _packed(weight: Node, array: Array, spec: RecurrenceSpec) -> PackedWeight:
    rows, size = array.shape
    columns, gates, integers = rows // spec.gates, spec.gates, spec.integers
    if integers is None:

        def fill(packed: Array, array: Array = array) -> None:
            packed[:] = pack_recurrent_weight(array, gates)

        total = gates * packed_size(size, columns, array.itemsize)
        return PackedWeight((weight, gates), array.dtype, total, fill)

    def fill_integers(packed: Array) -> None:
        packed[:] = pack_recurrent_int8(array, gates, integers.offset)

    total = gates * packed_size(packed_rows(size), columns, 4)
    how = (weight, gates, integers.offset)
    return PackedWeight(how, np.dtype(np.int32), total, fill_integers)
