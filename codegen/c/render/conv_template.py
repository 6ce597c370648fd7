"""Match convolutions of floats to their templates (`conv`, on the tiles of AMX `conv_amx`).

In and out as in :mod:`fxlite.codegen.c.templates`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from fxlite.codegen.c.conv import conv
from fxlite.codegen.c.conv.conv import ConvSpec, pack_conv_weight, render_conv
from fxlite.codegen.c.conv.conv_amx import (
    TileConvSpec,
    packed_conv_tiles,
    render_conv_tiles,
    suits_tiles,
)
from fxlite.codegen.c.conv.conv_plan import packed_conv_size, reads_pairs, winograd_tile
from fxlite.codegen.c.decisions import NO_CHOICE, Choice, Decision
from fxlite.codegen.c.render.alternatives import conv_decisions
from fxlite.codegen.c.render.gemm_template import render_gemm_node
from fxlite.codegen.c.render.template_parts import (
    TemplateFunction,
    at_the_element,
    described,
    epilogue_of,
    is_constant,
    is_innermost,
    padding_of,
    pair_of,
    parameter_list,
    template_function,
)
from fxlite.codegen.c.text.vector_printer import print_vectors
from fxlite.codegen.c.weights import Array, PackedWeight
from fxlite.codegen.kernel.contraction import named
from fxlite.codegen.kernel.kernel_ir import Buffer
from fxlite.codegen.kernel.loops import divides, is_flat
from fxlite.codegen.kernel.lower import Contraction, buffer_name, buffer_of, lower_contraction
from fxlite.codegen.kernel.names import derived
from fxlite.codegen.runtime.target import has_bf16_tiles
from fxlite.graph.graph import Node
from fxlite.ops.image.spatial import TO_FIRST
from fxlite.passes.group import Group
from fxlite.scalar import expr
from fxlite.scalar.index import Index, Var, flatten


def claims_conv(node: Node) -> bool:
    """True for float convolutions with weights that are known when compiling."""
    if node.type.dtype.name not in ("f32", "f64"):
        return False
    if any(n.type.dtype is not node.type.dtype for n in node.all_input_nodes):
        return False
    weight = node.args[1]
    return is_constant(weight) and math.prod(weight.type.shape[1:]) > 1  # else there is no sum


def render_conv_node(
    group: Group, name: str, weights: dict[Node, Any], locations: list[str], parts: int = 0,
    choice: Choice = NO_CHOICE,
) -> TemplateFunction:  # fmt: skip
    """A convolution in either layout; one of 1x1 whose rows are pixels is a product. ``parts`` as
    for products; 2 counts for products, and on tiles."""
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
        return render_gemm_node(group, name, weights, locations, parts, choice)  # rows are pixels
    if one_d:
        array = array[:, :, None, :]
    output = buffer_of(c.root, is_output=True)
    data = c.a.buffer
    emitter = epilogue_of(c, output, c.value, c.store, locations)
    shape = [emitter.text(extent) for extent in c.buffer(data).shape]
    if one_d:
        shape.insert(2, "1")
    if x_last:
        shape = [shape[axis] for axis in TO_FIRST]
    packed_name = derived(buffer_name(weight), "packed")
    parameters = emitter.parameters([data], [packed_name])

    def place(n: str, k: str, oh: str, ow: str) -> dict[Var, Index]:
        names = (n, k, ow) if one_d else (n, oh, ow, k) if x_last else (n, k, oh, ow)
        return {v: named(t, v) for v, t in zip(c.coordinates, names)}

    def epilogue(total: str, n: str, k: str, oh: str, ow: str) -> str:
        return emitter.print(total, place(n, k, oh, ow))

    ctype = c.anchor.type.dtype.c_name
    spec = ConvSpec(
        name=name, ctype=ctype, parameters="",
        n=shape[0], c=int(shape[1]), h=shape[2], w=shape[3], k=array.shape[0], r=array.shape[2],
        s=array.shape[3], x=data, weight=packed_name, epilogue=epilogue, stride=stride,
        padding=padding, dilation=dilation, groups=attributes.get("groups", 1),
        joinable=one_d or (not x_last and _joinable(c, output)), comment=described(group, choice),
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
            statements = emitter.statements(total, place(n, k, oh, ow))
            at, buffers = Var(k, channel.extent), (*c.buffers, output)
            return print_vectors(statements, buffers, at, total, count, halves=True)

        if vectors("sum", "n", "k", "oh", "ow", "count"):
            spec = replace(spec, vector_epilogue=vectors)
    if parts and not choice and has_bf16_tiles() and suits_tiles(spec, parts):
        spec = TileConvSpec(**{**vars(spec), "parts": parts})
    packed = {packed_name: _packed_conv_weight(weight, array, spec)}
    spec = replace(spec, parameters=parameter_list(parameters, packed))
    decisions: tuple[Decision, ...] = ()
    if isinstance(spec, TileConvSpec):
        rendered = render_conv_tiles(spec)
    else:
        rendered, decisions = render_conv(spec), conv_decisions(spec)
    return template_function(name, rendered, parameters, packed, decisions)


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
    that one loop may run over both. The loop's index stands for the column: there is none in the
    addresses of images that are one pixel wide."""
    row, column = c.coordinates[2:]
    if column.extent == 1:
        return False
    joined = expr.fresh_var(row.extent * column.extent, "c")
    env = {row: Index.of(joined) // column.extent, column: Index.of(joined) % column.extent}
    shapes = {b.name: b.shape for b in c.buffers}
    store = flatten((i.substitute(env) for i in c.store), output.shape)
    return is_flat(expr.substitute_index(c.value, env), joined, shapes) and not divides(
        store, joined
    )
