"""The parts that the templates of C share: the function they render, and the text of its slots.

In: a contraction (:mod:`fxlite.codegen.kernel.lower`). Out: operands, epilogues and arguments in C.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite.codegen.c.product.gemm_spec import Operand
from fxlite.codegen.c.render.alternatives import Choice, Decision
from fxlite.codegen.c.weights import Packed
from fxlite.codegen.kernel.builder import Rendered, bare
from fxlite.codegen.kernel.kernel_ir import Buffer
from fxlite.codegen.kernel.lower import (
    Contraction,
    Epilogue,
    MatrixProduct,
    buffer_of,
    lower_contraction,
    matrix_product,
    named,
    strides,
)
from fxlite.codegen.kernel.printer import CPrinter
from fxlite.codegen.kernel.schedule import document
from fxlite.graph.graph import Node
from fxlite.passes.group import Group
from fxlite.scalar import expr
from fxlite.scalar.expr import Expr, Load, MultiIndex
from fxlite.scalar.index import Index, Var, flatten


@dataclass(frozen=True)
class TemplateFunction:
    """A rendered template. ``arguments`` are the C expressions for its parameters, in order; ``packed`` holds
    the packed weights by name; ``scratch`` is a number of bytes in C; ``decisions`` are those made about
    it."""

    name: str
    text: str
    arguments: tuple[str, ...]
    packed: Packed
    scratch: str
    decisions: tuple[Decision, ...] = ()


def template_function(
    name: str,
    rendered: Rendered,
    parameters: Sequence[tuple[str, str]],
    packed: Packed,
    decisions: tuple[Decision, ...] = (),
) -> TemplateFunction:
    """The rendered function with these pairs (parameter, argument)."""
    arguments = tuple(a for _, a in parameters) + workspace_arguments(rendered.extra_parameters)
    return TemplateFunction(name, rendered.text, arguments, packed, bare(rendered.workspace), decisions)


def is_constant(value: Any) -> bool:
    """True for a weight, which is known at compile time."""
    return isinstance(value, Node) and value.op == "get_attr"


def declines_weights(value: Any) -> str:
    """Why a value is not a weight; empty if it is."""
    return "" if is_constant(value) else f"{value} is computed, and must be known when compiling"


def workspace_arguments(names: Sequence[str]) -> tuple[str, ...]:
    """The arguments for the parameters that rendering appended."""
    return tuple("scratch" if n == "workspace" else n for n in names)


def described(group: Group, choice: Choice) -> str:
    """A description of a kernel's computation, and which decisions about it were measured."""
    measured = "; ".join(f"{subject}: {name}" for subject, name in choice.items())
    return document(group) + (f"\nMeasured to be the fastest here: {measured}." if measured else "")


def parameter_list(pairs: Sequence[tuple[str, str]], packed: Packed) -> str:
    """The parameter list; weights packed as pairs of bf16 are pointers to those."""
    bf16 = {name for name, weight in packed.items() if weight.dtype == np.uint32}
    return ", ".join(
        text.replace("const float ", "const uint32_t ") if argument in bf16 else text for text, argument in pairs
    )


def epilogue_of(c: Contraction, output: Buffer, value: Expr, store: MultiIndex, locations: list[str]) -> Epilogue:
    """The printer of what a group does with each element of its anchor."""
    return Epilogue(c, output, value, store, CPrinter((*c.buffers, output), locations))


def matched_product(group: Group, locations: list[str]) -> tuple[Contraction, MatrixProduct, Epilogue]:
    """A group as a matrix product, and the printer of its epilogue."""
    c = lower_contraction(group)
    p = matrix_product(c, buffer_of(c.root, is_output=True))
    return c, p, epilogue_of(c, p.output, p.value, p.store, locations)


def strided_operand(
    load: Load, buffer: Buffer, row: Var | None, column: Var | None, batch: dict[Var, Index]
) -> Operand:
    """Strides of a load along two variables; the rest of its address is the offset."""
    return Operand(load.buffer, *strides(load, buffer, row, column, batch))


def product_fields(c: Contraction, p: MatrixProduct, emitter: Epilogue) -> dict[str, Any]:
    """The fields that the spec of any product has: sizes, the left operand, the epilogue."""
    return {
        "batch": tuple((p.batch_names[v], v.extent) for v in p.batch),
        "m": Index.of(1) if p.m is None else p.m.extent,
        "n": p.n.extent,
        "k": p.k.extent,
        "a": strided_operand(p.a, c.buffer(p.a.buffer), p.m, p.k, p.batch_index),
        "epilogue": lambda total, row, column: emitter.print(total, p.place(row, column)),
    }


def vectors_of(
    p: MatrixProduct, emitter: Epilogue, spell: Callable[..., tuple[str, str]]
) -> Callable[[str, Index, Index, str], tuple[str, str]] | None:
    """The statements for a vector of sums, if there is such a form. ``spell`` is a printer of
    `vector_printer`; it takes statements, buffers, the variable of columns and the names of those of rows,
    the sums and how many of them are needed."""

    def vectors(total: str, row: Index, column: Index, count: str) -> tuple[str, str]:
        statements = emitter.statements(total, p.place(row, column))
        (along,), rows = column.variables(), [v.name for v in row.variables()]
        return spell(statements, (*emitter.c.buffers, emitter.output), along, rows, total, count)

    first = named("row", p.n if p.m is None else p.m), named("column", p.n)
    return vectors if vectors("sum", *first, "count")[1] else None


def at_the_element(c: Contraction, output: Buffer) -> tuple[str, ...]:
    """The arrays of the output's type that are written or read at the output's coordinates."""
    here = tuple(Index.of(0 if v.extent.constant == 1 else v) for v in c.coordinates)
    shapes = {b.name: b.shape for b in c.buffers}
    read = (
        node.buffer
        for node in expr.walk(c.value)
        if isinstance(node, Load)
        and node.index == here
        and node.dtype is output.dtype
        and shapes[node.buffer] == output.shape
    )
    return tuple(dict.fromkeys((output.name, *read))) if c.store == here else ()


def is_innermost(variable: Var, store: MultiIndex, output: Buffer) -> bool:
    """Whether adjacent results along the variable are adjacent in the output."""
    step = flatten(store, output.shape).coefficient(variable)
    return step is not None and step.constant == 1


def pair_of(value: Any, one_d: bool) -> tuple[int, int]:
    """An attribute such as a stride for both axes of an image; for a signal the first axis has 1."""
    if one_d:
        return (1, value[0] if isinstance(value, tuple) else value)
    return (value[0], value[1]) if isinstance(value, tuple) else (value, value)


def padding_of(value: Any, one_d: bool) -> tuple[int, int, int, int]:
    """(top, left, bottom, right)"""
    if isinstance(value, int):
        value = (value,) if one_d else (value, value)
    pairs = [v if isinstance(v, tuple) else (v, v) for v in value]
    if one_d:
        pairs.insert(0, (0, 0))
    return (pairs[0][0], pairs[1][0], pairs[0][1], pairs[1][1])
