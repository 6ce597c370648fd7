"""Match recurrences, of floats and of integers, to their template (`recurrence`).

In and out as in :mod:`fxlite.codegen.c.templates`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.codegen.c.product.packed_operands import packed_rows, packed_size
from fxlite.codegen.c.recurrence.recurrence import RecurrenceSpec, pack_recurrent_weight, render_recurrence
from fxlite.codegen.c.recurrence.recurrence_int8 import IntegerState, pack_recurrent_int8
from fxlite.codegen.c.render.template_parts import TemplateFunction, is_constant, workspace_arguments
from fxlite.codegen.c.weights import Array, Packed, PackedWeight
from fxlite.codegen.kernel.builder import bare, symbol
from fxlite.codegen.kernel.lower import buffer_name
from fxlite.codegen.kernel.names import derived
from fxlite.codegen.kernel.schedule import document
from fxlite.graph.graph import Node
from fxlite.passes.group import Group
from fxlite.scalar.index import Index


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
