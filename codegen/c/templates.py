"""The templates of C, by the op that they compute: matrix products, convolutions, attention,
recurrences.

In: a group anchored at an op of :data:`TEMPLATES`, and the module's weights. Out: the C
function of that group, packed weights, and scratch. The template's slots (operand addresses,
epilogue) are filled with text printed from the group's expressions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from fxlite.codegen.c.decisions import NO_CHOICE, Choice
from fxlite.codegen.c.render import product_templates as products
from fxlite.codegen.c.render import routine_template as routines
from fxlite.codegen.c.render.conv_template import claims_conv, claims_int_conv, render_conv_node, render_int_conv
from fxlite.codegen.c.render.layer_templates import (
    claims_attention,
    claims_int_recurrence,
    claims_recurrence,
    render_attention_node,
    render_recurrence_node,
)
from fxlite.codegen.c.render.routine_template import claims_fourier, render_fourier_node
from fxlite.codegen.c.render.template_parts import TemplateFunction
from fxlite.codegen.kernel.lower import is_matrix_product, require_some
from fxlite.codegen.runtime.toolchain import has_bf16_tiles
from fxlite.graph.graph import Node
from fxlite.passes.group import Group
from fxlite.passes.rules.store_bf16 import reads_bf16
from fxlite.types.shapes import Dim


@dataclass(frozen=True)
class Template:
    """What computes the nodes of an op: those that it ``claims``; ``render`` makes the function of
    a group that is anchored at one. If it ``rounds``, it is told for ``matmul_precision="medium"`` and,
    where that is faster, "high" of how many bf16 ``parts`` an operand is made. All take a ``choice`` if
    their functions list decisions."""

    claims: Callable[[Node], bool]
    render: Callable[..., TemplateFunction]
    rounds: bool = False


def claims(node: Node) -> bool:
    """True for nodes that a template computes."""
    found = TEMPLATES.get(node.target.name)
    return found is not None and found.claims(node)


def plain_claims(node: Node) -> bool:
    """:func:`claims` for a target that computes by loops alone: what follows a product runs behind
    each of its sums."""
    return claims(node) and bool(node.target.has_body)


def claims_inside(node: Node) -> bool:
    """True for nodes of loops and conditions that a routine computes: those of arrays."""
    if not claims(node) or node.target.name not in ROUTINES:
        return False
    return all(value.type.rank for value in (node, *node.all_input_nodes))


def render_inside(group: Group, name: str, locations: list[str]) -> tuple[str, tuple[str, ...], Dim, bool]:
    """The function of a routine that a loop or condition calls: its text, the arguments of the call,
    bytes of scratch for a thread, and whether the threads share what is in it."""
    routine, _ = ROUTINES[group.root.target.name]
    made = routines.render_routine(routine, group, name, {}, locations)
    is_shared = routine.sizes(group.root)["items"] == 1
    return made.text, made.arguments, routines.scratch_of(routine, group.root), is_shared


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
    group: Group,
    name: str,
    weights: dict[Node, Any],
    locations: list[str],
    matmul_precision: str = "highest",
    choice: Choice = NO_CHOICE,
) -> TemplateFunction:
    """The group's C function; ``choice`` decides in place of the model. Raises CodegenError where
    the group fits no template after all."""
    assert group.anchor is not None
    require_some(group)
    template = TEMPLATES[group.anchor.target.name]
    given: dict[str, Any] = {"choice": choice} if choice else {}
    if template.rounds and (matmul_precision == "medium" or (matmul_precision == "high" and has_bf16_tiles())):
        given["parts"] = 1 if matmul_precision == "medium" else 2
    return template.render(group, name, weights, locations, **given)


_GEMM = Template(is_matrix_product, products.render_gemm_node, rounds=True)
_CONV = Template(claims_conv, render_conv_node, rounds=True)


ROUTINES = {
    "sort": (routines.SORT, routines.claims_numbers),
    "argsort": (routines.ARGSORT, routines.claims_numbers),
    "argtopk": (routines.ARGTOPK, routines.claims_numbers),
    "searchsorted": (routines.SEARCHSORTED, routines.claims_numbers),
    "philox": (routines.PHILOX, routines.claims_words),
    "cholesky": (routines.CHOLESKY, routines.claims_inexact),
    "solve": (routines.SOLVE, routines.claims_inexact),
    "slogdet": (routines.SLOGDET, routines.claims_inexact),
    "qr_rows": (routines.QR, routines.claims_matrices),
    "eigh_rows": (routines.EIGH, routines.claims_matrices),
    "svd_rows": (routines.SVD, routines.claims_matrices),
}
"""The routine of each op that has one, and the nodes that it computes. They are called in loops and
conditions, too."""

TEMPLATES = {
    "matmul": _GEMM,
    "linear": _GEMM,
    "conv1d": _CONV,
    "conv2d": _CONV,
    "int_linear": Template(products.claims_int_linear, products.render_int_linear),
    "linear_weight_only": Template(products.claims_weight_only, products.render_weight_only),
    "int_matmul": Template(products.claims_int_matmul, products.render_int_matmul),
    "int_conv2d": Template(claims_int_conv, render_int_conv),
    "scaled_dot_product_attention": Template(claims_attention, render_attention_node),
    "dft": Template(claims_fourier, render_fourier_node),
    "recurrence": Template(claims_recurrence, render_recurrence_node),
    "int_recurrence": Template(claims_int_recurrence, render_recurrence_node),
    **{
        name: Template(claimed, partial(routines.render_routine, routine))
        for name, (routine, claimed) in ROUTINES.items()
    },
}
"""The template of each op that has one."""
