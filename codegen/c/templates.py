"""The templates of C, by the op that they compute: matrix products, convolutions, attention,
recurrences. Attention and recurrences are matched here, the others in files of their own.

In: a group anchored at an op of :data:`TEMPLATES`, and the module's weights. Out: the C function of that
group, packed weights, and scratch. The template's slots (operand addresses, epilogue) are filled with
text printed from the group's expressions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, CodegenError
from fxlite.codegen.c.attention import AttentionSpec, render_attention
from fxlite.codegen.c.product.gemm_spec import packed_rows, packed_size
from fxlite.codegen.c.recurrence import (
    IntegerState,
    RecurrenceSpec,
    pack_recurrent_int8,
    pack_recurrent_weight,
    render_recurrence,
)
from fxlite.codegen.c.render import product_templates as products
from fxlite.codegen.c.render import routine_template as routines
from fxlite.codegen.c.render.alternatives import NO_CHOICE, Choice, attention_decisions
from fxlite.codegen.c.render.conv_template import declines_conv, declines_int_conv, render_conv_node, render_int_conv
from fxlite.codegen.c.render.routine_template import declines_fourier, render_fourier_node
from fxlite.codegen.c.render.template_parts import (
    TemplateFunction,
    declines_weights,
    described,
    epilogue_of,
    is_constant,
    strided_operand,
    template_function,
    workspace_arguments,
)
from fxlite.codegen.c.weights import Array, Packed, PackedWeight
from fxlite.codegen.kernel.builder import bare, symbol
from fxlite.codegen.kernel.lower import (
    Epilogue,
    buffer_name,
    buffer_of,
    declines_product,
    declines_types,
    lower_attention,
    named,
    require_some,
)
from fxlite.codegen.kernel.names import derived
from fxlite.codegen.kernel.schedule import document
from fxlite.codegen.runtime.toolchain import has_bf16_tiles
from fxlite.graph.graph import Node
from fxlite.passes.group import Group
from fxlite.passes.rules.store_bf16 import reads_bf16
from fxlite.scalar import expr
from fxlite.scalar.index import Index, Var
from fxlite.types import dtypes

FEW = 8
"""If a product has fewer rows and columns, packing a panel of its right operand takes longer than the product."""
SHORT = 96
"""The longest row of a matrix for which loops compute its product with a vector as fast."""


def declines_gemm(node: Node) -> str:
    """The template computes products of float matrices, and of a matrix and a vector. It declines products of one
    column or one step, and products of few rows and columns whose right operand is computed: their panels would consist
    mostly of padding, and loops read each operand in place."""
    x, y = node.args[:2]
    if isinstance(y, Node) and y.type.rank == 1 and isinstance(x, Node) and x.type.rank > 1:
        return declines_types(node) or _declines_vector(x, y)
    if reason := declines_product(node):
        return reason
    rows, columns = (x.type.shape[-2], node.type.shape[-1])
    if columns == 1:
        return "of one column, loops are as fast"
    if x.type.shape[-1] == 1:
        return "of one step, loops are faster"
    if _is_batch_last(node):
        return "whose matrices lie side by side in memory, loops compute a vector of them at a time"
    is_tiny = all(type(size) is int and size < FEW for size in (rows, columns))
    return f"of {rows} x {columns} elements, loops are faster" if is_tiny and not is_constant(y) else ""


def _is_batch_last(node: Node) -> bool:
    """True if loops over a batch whose matrices lie side by side, as in ``einsum("ikb,kjb->ijb")``, take less time than
    turning the operands for tiles, and their sums back: the product has few columns, or few steps."""
    turned = [n for n in (*node.args[:2], *node.users) if isinstance(n, Node)]
    if node.type.rank < 3 or len(turned) < 3:
        return False
    if any(n.op != "call_function" or n.target.name != "permute" for n in turned):
        return False
    rank = node.type.rank
    last: set[int] = {n.bound["axes"][-1] if n in node.users else n.bound["axes"].index(rank - 1) for n in turned}
    steps, columns, batch = node.args[0].type.shape[-1], node.type.shape[-1], node.type.shape[min(last)]
    if len(last) > 1 or max(last) >= rank - 2 or not all(type(n) is int for n in (steps, columns, batch)):
        return False
    vectors = -(-batch * node.type.dtype.itemsize // 64)
    by_loops = columns * (LOOP_STEP * steps * vectors + LOOP_ELEMENT)
    return bool(by_loops < batch * (TURNED * (steps + columns) + steps * columns / 16))


LOOP_STEP, LOOP_ELEMENT, TURNED = 3.5, 6.0, 5.0
"""Cycles of loops over a batch for a step of K and an element, and of turning an element for tiles or back."""


def _declines_vector(x: Node, y: Node) -> str:
    """The reason to compute the product of a matrix and a vector by loops, if there is one."""
    size = y.type.shape[0]
    if type(size) is int and size <= SHORT:
        return f"of rows of {size} elements, loops are as fast"
    computed = [n for n in (x, y) if n.op == "call_function" and len(n.users) == 1 and n.target.has_body]
    return f"loops compute {computed[0].name} where they read it" if computed else ""


FEW_KEYS, FEWER_KEYS = 56, 16
"""The most keys for which attention is computed by two products and a softmax: if all sizes are known, and otherwise.
The template's blocks of keys are then padding for the most part (measured for 49 keys of 32 features, as in the windows
of a Swin transformer: 1.7 ms and 1.3; for 1 key 1.1 ms and 0.1; for 64 keys as fast)."""


def declines_attention(node: Node) -> str:
    """The template computes attention of floats over more than a few keys; a mask must be of bools or of the same
    dtype."""
    kind, *others = [n.type.dtype for n in node.args if isinstance(n, Node)]
    if kind.name not in ("f32", "f64"):
        return f"it takes f32 or f64, not {kind}"
    wrong = [d for d in others[2:] if not d.is_bool and d is not kind]
    if wrong:
        return f"the mask is {wrong[0]}, and must be bool or {kind}"
    keys = node.args[1].type.shape[-2]
    few = FEW_KEYS if all(type(d) is int for d in node.args[0].type.shape) else FEWER_KEYS
    return f"with {keys} keys, two products and a softmax are faster" if type(keys) is int and keys <= few else ""


def render_attention_node(
    group: Group, name: str, weights: dict[Node, Any], locations: list[str], choice: Choice = NO_CHOICE
) -> TemplateFunction:
    """Attention with any strides, with or without a mask."""
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
    """The factor of the scores in C: the attribute, or 1 / sqrt(features)."""
    width = feature.extent.constant
    if scale is None and width is None:
        return f"({ctype})(1 / sqrt((double)fx_max({emitter.text(feature.extent)}, 1)))"
    factor = 1 / math.sqrt(max(width or 0, 1)) if scale is None else scale
    return _number(factor, emitter, ctype)


def _number(value: float, emitter: Epilogue, ctype: str) -> str:
    """A constant in C, of the type in which the function computes."""
    dtype = "f32" if ctype == "float" else "f64"
    return emitter.printer.constant(expr.const(value, dtypes.dtype(dtype)))


# -- recurrences -----------------------------------------------------------------------------------
def declines_int_recurrence(node: Node) -> str:
    """The template computes recurrences in integers whose weight is known at compile time."""
    return declines_weights(node.arguments["weight_hh"])


def render_recurrence_node(group: Group, name: str, weights: dict[Node, Any], locations: list[str]) -> TemplateFunction:
    """A recurrence of either kind. Its weight is packed when the model is compiled, or in each call if it
    is computed."""
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

        def pack(packed: Array, array: Array) -> None:
            packed[:] = pack_recurrent_weight(array, gates)

        total = gates * packed_size(size, columns, array.itemsize)
        return PackedWeight((weight, gates), array.dtype, total, pack, array)

    def pack_integers(packed: Array, array: Array) -> None:
        packed[:] = pack_recurrent_int8(array, gates, integers.offset)

    total = gates * packed_size(packed_rows(size), columns, 4)
    how = (weight, gates, integers.offset)
    return PackedWeight(how, np.dtype(np.int32), total, pack_integers, array)


# -- the templates by op ---------------------------------------------------------------------------
@dataclass(frozen=True)
class Template:
    """What computes the nodes of an op, except those that it ``declines``: for those, that function returns the
    reason, a sentence without capital and full stop; for others an empty string. ``render`` writes the function of a
    group anchored at a node. If it ``rounds``, it is told for ``matmul_precision="medium"``, and for "high" if that
    is faster, into how many bf16 ``parts`` an operand is split. All take a ``choice`` if their functions list
    decisions."""

    declines: Callable[[Node], str]
    render: Callable[..., TemplateFunction]
    rounds: bool = False


def claims(node: Node) -> bool:
    """True for nodes that a template computes."""
    found = TEMPLATES.get(node.target.name)
    return found is not None and not found.declines(node)


def explain_template(node: Node) -> str:
    """What computes a node of an optimized graph in C: the template of its op, or loops, with the reason: the
    template declines the node, or its op has no template. Raises ArgumentError for a node that computes nothing.

    >>> module = fx.symbolic_trace(lambda x, w: fx.ops.conv2d(x, w), "f16[1,3,8,8]", "f16[4,3,3,3]")
    >>> explain_template(module.graph.find_nodes(op="call_function")[0])
    'loops: the template of conv2d declines conv2d: it takes f32 or f64, not f16'
    """
    if node.op != "call_function":
        raise ArgumentError(f"{node.name} is a {node.op}, which computes nothing; give a node that calls an op")
    found = TEMPLATES.get(node.target.name)
    if found is None:
        return f"loops: {node.target.name} has no template"
    return _how(node, found.declines(node))


def how_computed(nodes: Iterable[Node], declined: str = "") -> str:
    """:func:`explain_template` of the first of a kernel's nodes whose op has a template, with the reason why that
    template ``declined`` the surrounding nodes; empty if no op has one."""
    for node in nodes:
        if (found := TEMPLATES.get(node.target.name)) is not None:
            return _how(node, declined or found.declines(node))
    return ""


def _how(node: Node, declined: str) -> str:
    template = f"the template of {node.target.name}"
    return f"loops: {template} declines {node.name}: {declined}" if declined else template


def plain_claims(node: Node) -> bool:
    """:func:`claims` for a target that computes only by loops: operations after a product run after each of its
    sums."""
    return claims(node) and bool(node.target.has_body)


def claims_inside(node: Node) -> bool:
    """True for nodes inside loops and conditions that a function of their own computes: routines on arrays, and
    products of two matrices."""
    if not claims(node) or not all(value.type.rank for value in (node, *node.args) if isinstance(value, Node)):
        return False
    return node.target.name in ROUTINES or (node.target.is_matrix_product and not declines_product(node))


def render_inside(group: Group, name: str, locations: list[str]) -> tuple[str, tuple[str, ...], str, bool]:
    """The function of a template that a loop or condition calls: its text, the arguments of the call, bytes of
    scratch as C, and whether the threads divide the work inside. Raises CodegenError if the group does not fit."""
    assert group.anchor is not None
    if any(n.type.dtype.is_bool and not n.type.rank for n in group.inputs):
        raise CodegenError("it reads a condition, which is a variable")
    made = render(group, name, {}, locations)
    routine = ROUTINES.get(group.anchor.target.name)
    return made.text, made.arguments, made.scratch, routine is None or routine[0].sizes(group.root)["items"] == 1


def claims_in(matmul_precision: str) -> Callable[[Node], bool]:
    """:func:`claims` for this precision; with "medium" it includes products of bf16 activations."""
    if matmul_precision != "medium":
        return claims
    return lambda node: claims(node) or (_holds_bf16(node) and reads_bf16(node, node.args[0], has_bf16_tiles()))


def _holds_bf16(node: Node) -> bool:
    """Whether the first operand of a call is bf16."""
    first = node.args[0] if node.args else None
    return isinstance(first, Node) and first.type.dtype.name == "bf16"


def render(
    group: Group,
    name: str,
    weights: dict[Node, Any],
    locations: list[str],
    matmul_precision: str = "highest",
    choice: Choice = NO_CHOICE,
) -> TemplateFunction:
    """The group's C function; ``choice`` overrides the model. Raises CodegenError if the group does not
    fit a template after all."""
    assert group.anchor is not None
    require_some(group)
    template = TEMPLATES[group.anchor.target.name]
    given: dict[str, Any] = {"choice": choice} if choice else {}
    if template.rounds and (matmul_precision == "medium" or (matmul_precision == "high" and has_bf16_tiles())):
        given["parts"] = 1 if matmul_precision == "medium" else 2
    return template.render(group, name, weights, locations, **given)


_GEMM = Template(declines_gemm, products.render_gemm_node, rounds=True)
_CONV = Template(declines_conv, render_conv_node, rounds=True)


ROUTINES = {
    "sort": (routines.SORT, routines.declines_numbers),
    "argsort": (routines.ARGSORT, routines.declines_numbers),
    "argtopk": (routines.ARGTOPK, routines.declines_numbers),
    "searchsorted": (routines.SEARCHSORTED, routines.declines_numbers),
    "flatnonzero": (routines.FLATNONZERO, routines.declines_numbers),
    "philox": (routines.PHILOX, routines.declines_words),
    "cholesky": (routines.CHOLESKY, routines.declines_inexact),
    "solve": (routines.SOLVE, routines.declines_inexact),
    "slogdet": (routines.SLOGDET, routines.declines_inexact),
    "qr_rows": (routines.QR, routines.declines_matrices),
    "eigh_rows": (routines.EIGH, routines.declines_matrices),
    "svd_rows": (routines.SVD, routines.declines_matrices),
}
"""The routine of each op that has one, and the function that says why it declines a node. They are also called in
loops and conditions."""

TEMPLATES = {
    "matmul": _GEMM,
    "linear": _GEMM,
    "conv1d": _CONV,
    "conv2d": _CONV,
    "int_linear": Template(products.declines_int_linear, products.render_int_linear),
    "linear_weight_only": Template(products.declines_weight_only, products.render_weight_only),
    "int_matmul": Template(products.declines_int_matmul, products.render_int_matmul),
    "int_conv2d": Template(declines_int_conv, render_int_conv),
    "scaled_dot_product_attention": Template(declines_attention, render_attention_node),
    "dft": Template(declines_fourier, render_fourier_node),
    "recurrence": Template(declines_types, render_recurrence_node),
    "int_recurrence": Template(declines_int_recurrence, render_recurrence_node),
    **{
        name: Template(declines, partial(routines.render_routine, routine))
        for name, (routine, declines) in ROUTINES.items()
    },
}
"""The template of each op that has one."""
