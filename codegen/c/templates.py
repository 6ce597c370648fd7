"""Match contraction groups to the GEMM and convolution templates of C.

In: a group anchored at a matmul, linear or convolution, and the module's weights. Out: the C function of
that group, packed weights, and scratch. The template's slots (operand addresses, epilogue) are filled
with text printed from the group's expressions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite import expr
from fxlite.codegen.c.conv import ConvSpec, pack_conv_weight, render_conv
from fxlite.codegen.c.gemm import RESERVED, GemmSpec, Operand, PackedOperand, pack_b, render_gemm
from fxlite.codegen.evaluate import Evaluator
from fxlite.codegen.kernel_ir import Buffer, Stmt, Store
from fxlite.codegen.lower import ACCUMULATOR, Contraction, address, buffer_name, buffer_of, lower_contraction
from fxlite.codegen.printer import CPrinter, compute_type, storage_type
from fxlite.codegen.rename import rename
from fxlite.codegen.schedule import Nest, document, is_flat, divides
from fxlite.errors import CodegenError
from fxlite.expr import Expr, Load, Local, MultiIndex
from fxlite.graph import Node
from fxlite.index import DimVar, Index, Var, flatten
from fxlite.passes.group import Group


@dataclass(frozen=True)
class TemplateFunction:
    """A rendered template. ``arguments`` are the C expressions its parameters take, in order; ``packed`` maps
    the names of packed weights to arrays; ``scratch`` is a C expression of bytes."""

    name: str
    text: str
    arguments: tuple[str, ...]
    packed: dict[str, np.ndarray[Any, Any]]
    scratch: str


def claims(node: Node) -> bool:
    """True for contractions that a template computes: float matrix products and convolutions."""
    name = node.target.name
    operands = node.all_input_nodes
    if any(n.type.dtype is not node.type.dtype for n in operands):
        return False
    if node.type.dtype.name not in ("f32", "f64"):
        return False
    if name in ("matmul", "linear"):
        return all(isinstance(a, Node) and a.type.rank >= 2 for a in node.args[:2])
    if name in ("conv1d", "conv2d"):
        weight = node.args[1]
        return isinstance(weight, Node) and weight.op == "get_attr"
    return False


def render(group: Group, name: str, weights: dict[Node, Any], locations: list[str]) -> TemplateFunction:
    """The group's C function. Raises CodegenError where the group does not fit a template after all."""
    contraction = lower_contraction(group)
    if contraction.anchor.target.name.startswith("conv"):
        return _render_conv(group, contraction, name, weights, locations)
    return _render_gemm(group, contraction, name, weights, locations)


# -- matrix products -----------------------------------------------------------------------------------
def _render_gemm(
    group: Group, c: Contraction, name: str, weights: dict[Node, Any], locations: list[str]
) -> TemplateFunction:
    (k,) = c.reduced
    *outer, n = c.coordinates
    a, b, value, store = c.a, c.b, c.value, c.store
    if outer and outer[-1] in expr.free_variables(b):
        raise CodegenError(f"{c.anchor.describe()}: operands are not a matrix product")
    output = buffer_of(c.root, is_output=True)
    shapes = {x.name: x.shape for x in c.buffers} | {output.name: output.shape}
    m: Var | None = outer.pop() if outer else None
    while m is not None and outer and outer[-1] not in expr.free_variables(b):
        joined = expr.fresh_var(outer[-1].extent * m.extent, "c")
        env = {outer[-1]: Index.of(joined) // m.extent, m: Index.of(joined) % m.extent}
        new_a, new_value = expr.substitute_index(a, env), expr.substitute_index(value, env)
        new_store = tuple(i.substitute(env) for i in store)
        flat = is_flat(new_a, joined, shapes) and is_flat(new_value, joined, shapes)
        if not flat or divides(flatten(new_store, output.shape), joined):
            break
        assert isinstance(new_a, Load)
        a, value, store, m = new_a, new_value, new_store, joined
        outer.pop()
    emitter = _Epilogue(c, output, value, store, locations)
    batch_names = {v: f"batch_{i}" if len(outer) > 1 else "batch" for i, v in enumerate(outer)}
    rows = {v: Index.of(Var(batch_names[v], v.extent)) for v in outer}
    packed: dict[str, np.ndarray[Any, Any]] = {}
    weight = next((w for w in weights if buffer_name(w) == b.buffer), None)
    if weight is not None and not (expr.free_variables(b) - {k, n}):
        matrix = _matrix(b, k, n, np.asarray(weights[weight]))
        key = f"{b.buffer}_packed"
        packed[key] = pack_b(matrix)
        right: Operand | PackedOperand = PackedOperand(key)
    else:
        right = _operand(b, c.buffer(b.buffer), k, n, rows)
    left = _operand(a, c.buffer(a.buffer), m, k, rows)
    parameters = emitter.parameters([a.buffer], [*packed] or [b.buffer])
    spec = GemmSpec(
        name=name, ctype=compute_type(output.dtype), parameters=", ".join(p for p, _ in parameters),
        batch=tuple((batch_names[v], emitter.text(v.extent)) for v in outer),
        m="1" if m is None else emitter.text(m.extent), n=emitter.text(n.extent), k=emitter.text(k.extent),
        a=left, b=right,
        epilogue=lambda total, row, column: emitter.print(
            total, {**rows, n: _var(column, n), **({} if m is None else {m: _var(row, m)})}
        ),
        comment=document(group),
    )  # fmt: skip
    rendered = render_gemm(spec)
    arguments = tuple(a for _, a in parameters) + _extra(rendered.extra_parameters)
    return TemplateFunction(name, rendered.text, arguments, packed, rendered.workspace)


def _extra(names: Sequence[str]) -> tuple[str, ...]:
    return tuple("scratch" if n == "workspace" else n for n in names)


def _var(name: str, like: Var) -> Index:
    return Index.of(Var(name, like.extent))


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
    linear = address(load, buffer)
    strides: list[Index] = []
    for variable in (row, column):
        stride = Index.of(0) if variable is None else linear.coefficient(variable)
        if stride is None or not stride.is_polynomial or stride.variables():
            raise CodegenError(f"{load.buffer} is not read with one stride along {variable}")
        strides.append(stride)
    zero = {v: 0 for v in (row, column) if v is not None}
    offset = linear.substitute(zero).substitute(batch)
    printer = CPrinter([buffer])
    return Operand(load.buffer, *(printer.index(i) for i in (offset, *strides)))


# -- convolutions --------------------------------------------------------------------------------------
def _render_conv(
    group: Group, c: Contraction, name: str, weights: dict[Node, Any], locations: list[str]
) -> TemplateFunction:
    anchor = c.anchor
    x, weight = anchor.args[0], anchor.args[1]
    array = np.asarray(weights[weight])
    attributes = anchor.arguments
    one_d = anchor.target.name == "conv1d"
    stride, dilation = (_pair(attributes.get(n, 1), one_d) for n in ("stride", "dilation"))
    padding = _padding(attributes.get("padding", 0), one_d)
    if one_d:
        array = array[:, :, None, :]
    output = buffer_of(c.root, is_output=True)
    emitter = _Epilogue(c, output, c.value, c.store, locations)
    shape = [emitter.text(Index.of(d)) for d in x.type.shape]
    if one_d:
        shape.insert(2, "1")
    packed_name = f"{buffer_name(weight)}_packed"
    parameters = emitter.parameters([buffer_name(x)], [packed_name])

    def epilogue(total: str, n: str, k: str, oh: str, ow: str) -> str:
        names = (n, k, ow) if one_d else (n, k, oh, ow)
        return emitter.print(total, {v: _var(t, v) for v, t in zip(c.coordinates, names)})

    spec = ConvSpec(
        name=name, ctype=compute_type(output.dtype), parameters=", ".join(p for p, _ in parameters),
        n=shape[0], c=int(shape[1]), h=shape[2], w=shape[3], k=array.shape[0], r=array.shape[2],
        s=array.shape[3], x=buffer_name(x), weight=packed_name, epilogue=epilogue, stride=stride,
        padding=padding, dilation=dilation, groups=attributes.get("groups", 1), comment=document(group),
    )  # fmt: skip
    rendered = render_conv(spec)
    packed = {packed_name: pack_conv_weight(np.ascontiguousarray(array), spec)}
    arguments = tuple(a for _, a in parameters) + _extra(rendered.extra_parameters)
    return TemplateFunction(name, rendered.text, arguments, packed, rendered.workspace)


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


# -- epilogues -----------------------------------------------------------------------------------------
class _Epilogue:
    """Prints what happens to a finished sum, for the variable names a template chooses."""

    def __init__(
        self, c: Contraction, output: Buffer, value: Expr, store: MultiIndex, locations: list[str]
    ) -> None:
        self.c, self.output, self.value, self.store = c, output, value, store
        self.printer = CPrinter((*c.buffers, output), locations)
        self.taken = set(RESERVED) | {b.name for b in c.buffers} | {output.name}
        names = {b for i in (*store, *(s for b in c.buffers for s in b.shape)) for b in i.atoms()}
        self.dims = sorted({a.name for a in names if isinstance(a, DimVar)})
        extents = [v.extent for v in (*c.coordinates, *c.reduced)]
        self.dims = sorted({*self.dims, *(a.name for e in extents for a in e.atoms() if isinstance(a, DimVar))})
        self.taken |= set(self.dims)

    def text(self, i: Index) -> str:
        return self.printer.index(i)

    def print(self, total: str, env: dict[Var, Index]) -> str:
        """C statements that finish and store one element."""
        value = expr.substitute_index(self.value, env)
        store = tuple(i.substitute(env) for i in self.store)
        accumulator = Local(self.output.dtype.compute, total)

        def place(node: Expr) -> Expr:
            return accumulator if isinstance(node, Local) and node.name == ACCUMULATOR else node

        nest = Nest((), {})
        final = nest.bind(expr.transform(value, place))
        statements: list[Stmt] = [*nest.levels[0], Store(self.output.name, store, final)]
        return "\n".join(self.printer.block(rename(tuple(statements), self.taken), 0))

    def parameters(self, inputs: Sequence[str], weights: Sequence[str]) -> list[tuple[str, str]]:
        """(C parameter, argument) pairs: operands, what the epilogue reads, the output, dims."""
        coordinates = {v: Index.of(v) for v in self.c.coordinates}
        self.print("0", coordinates)  # finds out whether an index is checked
        extra = [
            n.buffer for n in expr.walk(self.value) if isinstance(n, Load)
        ]
        known = {b.name: b for b in self.c.buffers}
        pairs: list[tuple[str, str]] = []
        for name in dict.fromkeys((*inputs, *weights, *extra)):
            dtype = known[name].dtype if name in known else self.output.dtype
            pairs.append((f"const {storage_type(dtype)} *restrict {name}", name))
        out = self.output
        pairs.append((f"{storage_type(out.dtype)} *restrict {out.name}", out.name))
        pairs += [(f"int64_t {d}", d) for d in self.dims]
        if self.printer.uses_error:
            pairs.append(("fx_error *error", "error"))
        return pairs
