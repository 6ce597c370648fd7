"""Match contraction groups to the GEMM and convolution templates of C.

In: a group anchored at a matmul, linear or convolution, and the module's weights. Out: the C
function of that group, packed weights, and scratch. The template's slots (operand addresses,
epilogue) are filled with text printed from the group's expressions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite import expr
from fxlite.codegen.c import conv
from fxlite.codegen.c.conv import ConvSpec, pack_conv_weight, render_conv
from fxlite.codegen.c.gemm import RESERVED, GemmSpec, Operand, PackedOperand, pack_b, render_gemm
from fxlite.codegen.contraction import (
    Epilogue,
    avoid,
    is_matrix_product,
    matrix_product,
    named,
    strides,
)
from fxlite.codegen.evaluate import Evaluator
from fxlite.codegen.kernel_ir import Buffer
from fxlite.codegen.lower import Contraction, buffer_name, lower_contraction
from fxlite.codegen.printer import CPrinter, compute_type
from fxlite.codegen.schedule import divides, document, is_flat
from fxlite.errors import CodegenError
from fxlite.expr import Expr, Load, MultiIndex
from fxlite.graph import Node
from fxlite.index import Index, Var, flatten
from fxlite.passes.group import Group


@dataclass(frozen=True)
class TemplateFunction:
    """A rendered template. ``arguments`` are the C expressions its parameters take, in order;
    ``packed`` maps the names of packed weights to arrays; ``scratch`` is a number of bytes in C."""

    name: str
    text: str
    arguments: tuple[str, ...]
    packed: dict[str, np.ndarray[Any, Any]]
    scratch: str


def claims(node: Node) -> bool:
    """True for contractions that a template computes: float matrix products and convolutions."""
    if is_matrix_product(node):
        return True
    if node.target.name not in ("conv1d", "conv2d") or node.type.dtype.name not in ("f32", "f64"):
        return False
    if any(n.type.dtype is not node.type.dtype for n in node.all_input_nodes):
        return False
    weight = node.args[1]
    return isinstance(weight, Node) and weight.op == "get_attr"


def render(
    group: Group, name: str, weights: dict[Node, Any], locations: list[str]
) -> TemplateFunction:
    """The group's C function. Raises CodegenError where the group fits no template after all."""
    contraction = lower_contraction(group)
    if contraction.anchor.target.name.startswith("conv"):
        return _render_conv(group, contraction, name, weights, locations)
    return _render_gemm(group, contraction, name, weights, locations)


# -- matrix products -------------------------------------------------------------------------------
def _render_gemm(
    group: Group, c: Contraction, name: str, weights: dict[Node, Any], locations: list[str]
) -> TemplateFunction:
    c, output, old = avoid(c, RESERVED)
    p = matrix_product(c, output)
    m, n, k = p.m, p.n, p.k
    emitter = _epilogue(c, output, p.value, p.store, locations, old)
    rows = p.batch_index
    packed: dict[str, np.ndarray[Any, Any]] = {}
    weight = next((w for w in weights if buffer_name(w) == old.get(p.b.buffer, p.b.buffer)), None)
    if weight is not None and not (expr.free_variables(p.b) - {k, n}):
        key = f"{buffer_name(weight)}_packed"
        packed[key] = pack_b(_matrix(p.b, k, n, np.asarray(weights[weight])))
        right: Operand | PackedOperand = PackedOperand(key)
    else:
        right = _operand(p.b, c.buffer(p.b.buffer), k, n, rows)
    left = _operand(p.a, c.buffer(p.a.buffer), m, k, rows)
    parameters = emitter.parameters([p.a.buffer], [*packed] or [p.b.buffer])
    spec = GemmSpec(
        name=name, ctype=compute_type(output.dtype), parameters=", ".join(t for t, _ in parameters),
        batch=tuple((p.batch_names[v], emitter.text(v.extent)) for v in p.batch),
        m="1" if m is None else emitter.text(m.extent),
        n=emitter.text(n.extent), k=emitter.text(k.extent), a=left, b=right,
        epilogue=lambda total, row, column: emitter.print(
            total, {**rows, n: named(column, n), **({} if m is None else {m: named(row, m)})}
        ),
        comment=document(group),
    )  # fmt: skip
    rendered = render_gemm(spec)
    arguments = tuple(a for _, a in parameters) + _extra(rendered.extra_parameters)
    return TemplateFunction(
        name, rendered.text, arguments, packed, _outside(rendered.workspace, old)
    )


def _extra(names: Sequence[str]) -> tuple[str, ...]:
    return tuple("scratch" if n == "workspace" else n for n in names)


def _outside(text: str, old: Mapping[str, str]) -> str:
    """An expression of the template's parameters in the caller's names."""
    return re.sub(r"\w+", lambda found: old.get(found[0], found[0]), text)


def _epilogue(
    c: Contraction, output: Buffer, value: Expr, store: MultiIndex, locations: list[str],
    old: Mapping[str, str],
) -> Epilogue:  # fmt: skip
    printer = CPrinter((*c.buffers, output), locations)
    return Epilogue(c, output, value, store, RESERVED, printer, old)


def _matrix(load: Load, k: Var, n: Var, weight: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The [K, N] matrix a load of a weight reads."""
    extents = [k.extent.constant, n.extent.constant]
    if None in extents:
        raise CodegenError("a packed weight needs known sizes")
    env = {k.name: np.arange(extents[0] or 0)[:, None], n.name: np.arange(extents[1] or 0)[None, :]}
    found = Evaluator(env, {load.buffer: weight})(Load(load.dtype, load.buffer, load.index))
    return np.ascontiguousarray(np.broadcast_to(found, (extents[0] or 0, extents[1] or 0)))


def _operand(
    load: Load, buffer: Buffer, row: Var | None, column: Var | None, batch: dict[Var, Index]
) -> Operand:
    """Strides of a load along two variables; the rest of its address is the offset."""
    printer = CPrinter([buffer])
    return Operand(
        load.buffer, *(printer.index(i) for i in strides(load, buffer, row, column, batch))
    )


# -- convolutions ----------------------------------------------------------------------------------
def _render_conv(
    group: Group, c: Contraction, name: str, weights: dict[Node, Any], locations: list[str]
) -> TemplateFunction:
    anchor = c.anchor
    weight = anchor.args[1]
    array = np.asarray(weights[weight])
    attributes = anchor.arguments
    one_d = anchor.target.name == "conv1d"
    stride, dilation = (_pair(attributes.get(n, 1), one_d) for n in ("stride", "dilation"))
    padding = _padding(attributes.get("padding", 0), one_d)
    if one_d:
        array = array[:, :, None, :]
    c, output, old = avoid(c, conv.RESERVED)
    data = c.a.buffer
    emitter = _epilogue(c, output, c.value, c.store, locations, old)
    shape = [emitter.text(extent) for extent in c.buffer(data).shape]
    if one_d:
        shape.insert(2, "1")
    packed_name = f"{buffer_name(weight)}_packed"
    parameters = emitter.parameters([data], [packed_name])

    def epilogue(total: str, n: str, k: str, oh: str, ow: str) -> str:
        names = (n, k, ow) if one_d else (n, k, oh, ow)
        return emitter.print(total, {v: named(t, v) for v, t in zip(c.coordinates, names)})

    spec = ConvSpec(
        name=name, ctype=compute_type(output.dtype), parameters=", ".join(p for p, _ in parameters),
        n=shape[0], c=int(shape[1]), h=shape[2], w=shape[3], k=array.shape[0], r=array.shape[2],
        s=array.shape[3], x=data, weight=packed_name, epilogue=epilogue, stride=stride,
        padding=padding, dilation=dilation, groups=attributes.get("groups", 1),
        joinable=one_d or _joinable(c, output), comment=document(group),
    )  # fmt: skip
    rendered = render_conv(spec)
    packed = {packed_name: pack_conv_weight(np.ascontiguousarray(array), spec)}
    arguments = tuple(a for _, a in parameters) + _extra(rendered.extra_parameters)
    return TemplateFunction(
        name, rendered.text, arguments, packed, _outside(rendered.workspace, old)
    )


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


def _pair(value: Any, one_d: bool) -> tuple[int, int]:
    if one_d:
        return (1, value[0] if isinstance(value, tuple) else value)
    return (value[0], value[1]) if isinstance(value, tuple) else (value, value)


def _padding(value: Any, one_d: bool) -> tuple[int, int, int, int]:
    """(top, left, bottom, right)"""
    if isinstance(value, int):
        value = (value,) if one_d else (value, value)
    pairs = [v if isinstance(v, tuple) else (v, v) for v in value]
    if one_d:
        pairs.insert(0, (0, 0))
    return (pairs[0][0], pairs[1][0], pairs[0][1], pairs[1][1])
