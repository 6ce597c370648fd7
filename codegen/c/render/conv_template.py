"""Match convolutions to their templates: those of floats (`conv`, also on the tiles of AMX) and of
8-bit integers (`conv_int8`).

In and out as in :mod:`fxlite.codegen.c.templates`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fxlite.codegen.c.conv.conv import TileConvSpec, packed_conv_tiles, render_conv, render_conv_tiles, tile_spec
from fxlite.codegen.c.conv.conv_int8 import Int8ConvSpec, pack_conv_int8, packed_conv_int8_size, render_conv_int8
from fxlite.codegen.c.conv.conv_plan import (
    ConvSpec,
    is_pointwise,
    pack_conv_weight,
    packed_conv_size,
    plan_of,
    reads_pairs,
    reads_runs,
    winograd_tile,
)
from fxlite.codegen.c.dynamic_scale import beside_of
from fxlite.codegen.c.render.alternatives import NO_CHOICE, Choice, Decision, conv_decisions
from fxlite.codegen.c.render.product_templates import render_gemm_node, render_int_linear, with_packed_integers
from fxlite.codegen.c.render.template_parts import (
    TemplateFunction,
    at_the_element,
    declines_weights,
    described,
    epilogue_of,
    is_innermost,
    padding_of,
    pair_of,
    parameter_list,
    template_function,
)
from fxlite.codegen.c.render.vector_printer import print_integer_vectors, print_vectors
from fxlite.codegen.c.weights import Array, Packed, PackedWeight
from fxlite.codegen.kernel.builder import symbol
from fxlite.codegen.kernel.kernel_ir import Buffer, Stmt
from fxlite.codegen.kernel.loops import divides, is_flat
from fxlite.codegen.kernel.lower import (
    Contraction,
    Epilogue,
    buffer_name,
    buffer_of,
    declines_types,
    lower_contraction,
    named,
)
from fxlite.codegen.kernel.names import derived
from fxlite.codegen.kernel.schedule import document
from fxlite.codegen.runtime.toolchain import has_bf16_tiles
from fxlite.graph.graph import Node
from fxlite.ops.image.spatial import TO_FIRST
from fxlite.passes.group import Group
from fxlite.scalar import expr
from fxlite.scalar.index import Index, Var, flatten

#: In the metadata of a convolution whose weights may not be stored larger than they are.
SMALL_WEIGHTS = "small_weights"


@dataclass(frozen=True)
class _Matched:
    """A group that is a convolution: the printer of its epilogue, the spec except for the type of the numbers,
    the name of the packed weight, and the weight's values [K, C / groups, R, S] if they are known."""

    c: Contraction
    emitter: Epilogue
    spec: ConvSpec
    packed_name: str
    weight: Array | None

    def place(self, n: Index, k: Index, oh: Index, ow: Index) -> dict[Var, Index]:
        """The values of the result's coordinates at a position."""
        coordinates = self.c.coordinates
        axes = (n, k, ow) if len(coordinates) == 3 else (n, k, oh, ow)
        if self.spec.x_last:
            axes = (n, oh, ow, k)
        return {v: _named_as(index, v) for v, index in zip(coordinates, axes, strict=True)}

    def epilogue(self, total: str, n: Index, k: Index, oh: Index, ow: Index) -> str:
        """The statements that finish and store a sum."""
        return self.emitter.print(total, self.place(n, k, oh, ow))

    def statements(self, total: str, **place: Index) -> tuple[Sequence[Stmt], list[Buffer], Var]:
        """The epilogue as statements, with the buffers that they use, and the variable of channels."""
        env = self.place(**place)
        channel = env[self.channel].single_atom
        assert isinstance(channel, Var)
        buffers = [*self.c.buffers, self.emitter.output]
        return self.emitter.statements(total, env), buffers, channel

    @property
    def channel(self) -> Var:
        """The coordinate of channels."""
        return self.c.coordinates[3 if self.spec.x_last else 1]


def _named_as(index: Index, like: Var) -> Index:
    """An index; if it is a variable, within the limits of the coordinate that it replaces."""
    atom = index.single_atom
    return named(atom.name, like) if isinstance(atom, Var) else index


_SYMBOLS = {name: symbol(name) for name in ("n", "k", "oh", "ow")}


def _matched(c: Contraction, name: str, weights: dict[Node, Any], locations: list[str], comment: str) -> _Matched:
    """A convolution in either layout."""
    anchor = c.anchor
    one_d = anchor.target.name == "conv1d"
    attributes, given = anchor.arguments, anchor.args[1]
    stride, dilation = (pair_of(attributes.get(n, 1), one_d) for n in ("stride", "dilation"))
    shape, kernel = list(c.buffer(c.a.buffer).shape), list(given.type.shape)
    if one_d:
        kernel.insert(2, 1)
        shape.insert(2, Index.of(1))
    outputs, inputs = (d if type(d) is int else Index.of(d) for d in kernel[:2])
    weight = np.asarray(weights[given]).reshape(kernel) if given in weights else None
    x_last = attributes.get("layout") == "NHWC"
    if x_last:
        shape = [shape[axis] for axis in TO_FIRST]
    output, groups = buffer_of(c.root, is_output=True), attributes.get("groups", 1)
    packed_name = derived(buffer_name(given), "packed") if weight is not None else c.b.buffer
    spec = ConvSpec(
        name=name,
        ctype=anchor.type.dtype.c_name,
        parameters="",
        comment=comment,
        n=shape[0],
        c=inputs * groups,
        h=shape[2],
        w=shape[3],
        k=outputs,
        r=kernel[2],
        s=kernel[3],
        x=c.a.buffer,
        weight=packed_name,
        epilogue=lambda *_: "",
        stride=stride,
        dilation=dilation,
        groups=groups,
        x_last=x_last,
        padding=padding_of(attributes.get("padding", 0), one_d),
        small=SMALL_WEIGHTS in anchor.meta,
        computed=weight is None,
    )
    emitter = epilogue_of(c, output, c.value, c.store, locations)
    found = _Matched(c, emitter, spec, packed_name, weight)
    y_last = is_innermost(found.channel, c.store, output)
    return replace(found, spec=replace(spec, epilogue=found.epilogue, y_last=y_last))


# -- of floats -------------------------------------------------------------------------------------
def declines_conv(node: Node) -> str:
    """The template computes float convolutions."""
    return declines_types(node) or _declines_one(node.args[1])


def _declines_one(weight: Node) -> str:
    return "each output is of one product, and there is no sum" if math.prod(weight.type.shape[1:]) == 1 else ""


def render_conv_node(
    group: Group, name: str, weights: dict[Node, Any], locations: list[str], parts: int = 0, choice: Choice = NO_CHOICE
) -> TemplateFunction:
    """A convolution in either layout; a 1x1 convolution whose rows are pixels is a product. ``parts`` are as
    for products; 2 applies to products and to tiles."""
    c = lower_contraction(group)
    found = _matched(c, name, weights, locations, described(group, choice))
    spec, output = found.spec, found.emitter.output
    alone = "groups" not in c.anchor.arguments
    if spec.x_last and spec.r == spec.s == 1 and not any(spec.padding) and alone:
        return render_gemm_node(group, name, weights, locations, parts, choice)  # rows are pixels
    is_float, one_d = spec.ctype == "float", len(c.coordinates) == 3
    spec = replace(
        spec,
        joinable=one_d or (not spec.x_last and _joinable(c, output)),
        bf16=parts == 1 and is_float and not spec.computed,
        measured=choice.get("plan", ""),
        x_is_bf16=c.buffer(c.a.buffer).dtype.name == "bf16",
        fetched=at_the_element(c, output) if is_float and not spec.x_last else (),
    )
    if spec.y_last and parts == 1 and output.dtype.name == "bf16":

        def vectors(total: str, count: str, **place: Index) -> str:
            return print_vectors(*found.statements(total, **place), total, count, halves=True)

        if vectors("sum", "count", **_SYMBOLS):
            spec = replace(spec, vector_epilogue=vectors)
    if parts and not choice and not spec.computed and has_bf16_tiles():
        spec = tile_spec(spec, parts) or spec
    parameters = found.emitter.parameters([spec.x], [found.packed_name])
    packed: Packed = {}
    if found.weight is not None:
        packed[found.packed_name] = _packed_conv_weight(c.anchor.args[1], found.weight, spec)
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

    def pack(packed: Array, array: Array) -> None:
        pack_conv_weight(np.ascontiguousarray(array.reshape(shape)), spec, packed)

    pairs, shape = reads_pairs(spec), array.shape
    how = (plan_of(spec), winograd_tile(spec), spec.groups, pairs, reads_runs(spec), array.shape)
    dtype = np.dtype(np.uint32) if pairs else array.dtype
    return PackedWeight((weight, *how), dtype, packed_conv_size(spec), pack, array)


def _joinable(c: Contraction, output: Buffer) -> bool:
    """True if the epilogue uses the output's row and column only to address arrays of that size, so that one
    loop may run over both. The loop's index then replaces the column; the addresses of images that are one
    pixel wide have no column."""
    row, column = c.coordinates[2:]
    if column.extent == 1:
        return False
    joined = expr.fresh_var(row.extent * column.extent, "c")
    env = {row: Index.of(joined) // column.extent, column: Index.of(joined) % column.extent}
    shapes = {b.name: b.shape for b in c.buffers}
    store = flatten((i.substitute(env) for i in c.store), output.shape)
    return is_flat(expr.substitute_index(c.value, env), joined, shapes) and not divides(store, joined)


# -- of integers -----------------------------------------------------------------------------------
def declines_int_conv(node: Node) -> str:
    """The template computes convolutions of integers with a weight that is known at compile time."""
    weight = node.args[1]
    if reason := declines_weights(weight):
        return reason
    return "the weight has no elements" if 0 in weight.type.shape else _declines_one(weight)


def render_int_conv(group: Group, name: str, weights: dict[Node, Any], locations: list[str]) -> TemplateFunction:
    """A convolution of integers in either layout, its weight packed when the model is compiled."""
    c = lower_contraction(group)
    found = _matched(c, name, weights, locations, document(group))
    base, emitter, output = found.spec, found.emitter, found.emitter.output
    if base.x_last and is_pointwise(base) and base.groups == 1:
        return render_int_linear(group, name, weights, locations)  # rows are pixels
    parameters = emitter.parameters([base.x], [found.packed_name])
    parameters = with_packed_integers(parameters, found.packed_name)

    def split(total: str, count: str, moving: Sequence[Index], **place: Index) -> tuple[str, str]:
        names = [atom.name for i in moving if isinstance(atom := i.single_atom, Var)]
        statements, buffers, channel = found.statements(total, **place)
        return print_integer_vectors(statements, buffers, channel, names, total, count)

    has_vectors = bool(split("sum", "count", (), **_SYMBOLS)[1])
    image = "0" if base.n == 1 else "n"
    beside = beside_of(group, emitter, output, c.store, c.coordinates, c.coordinates[2], image)
    if beside is not None:
        parameters.append(beside.parameter)
    changed = {
        "ctype": "int32_t",
        "parameters": ", ".join(text for text, _ in parameters),
        "type": c.anchor.args[0].type.dtype.name,
        "beside": beside,
        "zero_point": c.anchor.arguments.get("x_zero_point", 0),
        "split_epilogue": split if has_vectors else None,
    }
    spec = Int8ConvSpec(**{**vars(base), **changed})

    array = found.weight
    assert array is not None
    shape = array.shape

    def pack(packed: Array, array: Array) -> None:
        pack_conv_int8(array.reshape(shape), spec, packed)

    how = ("int8", spec.offset, spec.groups, spec.runs)
    key = (c.anchor.args[1], *how)
    packed = PackedWeight(key, np.dtype(np.int32), packed_conv_int8_size(spec), pack, array)
    return template_function(name, render_conv_int8(spec), parameters, {found.packed_name: packed})
