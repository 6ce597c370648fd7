"""Match integer products and convolutions to CUDA's template for them.

In: a group anchored at an int_linear, int_matmul or int_conv2d. Out: its kernel. A convolution is a
product, too, whose rows are output pixels, whose columns are output channels and whose k runs over
a window; its image is read in place, so nothing is copied before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fxlite.codegen.cuda.gemm import QUAD, Axes, Axis, CudaInt8Spec, Int8Operand, render_int8
from fxlite.codegen.cuda.printer import CudaPrinter, KernelText
from fxlite.codegen.kernel.builder import Body
from fxlite.codegen.kernel.contraction import Epilogue, matrix_product
from fxlite.codegen.kernel.kernel_ir import Buffer
from fxlite.codegen.kernel.lower import Contraction, address, buffer_of, lower_contraction
from fxlite.codegen.kernel.names import own_name
from fxlite.codegen.kernel.schedule import document
from fxlite.graph.graph import Node
from fxlite.passes.group import Group
from fxlite.scalar import expr
from fxlite.scalar.expr import Expr, Load, MultiIndex
from fxlite.scalar.index import DimVar, Index, Var, flatten, product, unflatten

LEAST_GROUP = 16
"""Output channels of a group from which a tile of 64 columns is worth it; depthwise convolutions
are loops."""


def is_integer_product(node: Node) -> bool:
    """True for what the template computes."""
    name = node.target.name
    if name == "int_conv2d":
        groups = node.bound["groups"]
        return bool(groups == 1 or node.args[1].type.shape[0] >= groups * LEAST_GROUP)
    if name == "int_matmul":
        return all(operand.type.rank >= 2 for operand in node.args[:2])
    return bool(name == "int_linear")


def render_integer_product(group: Group, name: str, locations: list[str]) -> KernelText:
    """The kernel. Raises CodegenError where the group is no such product."""
    c = lower_contraction(group)
    output = buffer_of(c.root, is_output=True)
    p = _convolution(c, output) if c.anchor.target.name == "int_conv2d" else _product(c, output)
    printer = CudaPrinter((*p.c.buffers, p.output), locations)
    epilogue = Epilogue(p.c, p.output, p.value, p.store, printer)
    axes = p.axes
    # sizes that have names are expressions of the dims that the original knows
    parameters = Epilogue(c, output, c.value, c.store, printer).parameters([p.a.buffer], [p.b.buffer])

    def operand(load: Load, inner: Var | None, zero_point: str) -> Int8Operand:
        buffer = p.c.buffer(load.buffer)
        along_k = inner is not None and _step(address(load, buffer), inner) == 1
        in_quads = along_k and inner is not None and _in_quads(load, buffer, inner)
        return Int8Operand(load, c.anchor.arguments.get(zero_point, 0), along_k, in_quads)

    def finish(total: str, row: Index, column: Index) -> str:
        body = Body()
        place = {**axes.rows.located(body, row), **axes.columns.located(body, column), **axes.place}
        body.put(epilogue.print(total, place))
        return str(body)

    spec = CudaInt8Spec(
        name=name,
        parameters=", ".join(parameter for parameter, _ in parameters),
        batch=axes.batch,
        m=axes.rows.whole.extent,
        n=axes.columns.whole.extent,
        k=axes.depth.whole.extent,
        a=operand(p.a, p.a_inner, "x_zero_point"),
        b=operand(p.b, p.b_inner, "y_zero_point"),
        axes=axes,
        printer=printer,
        epilogue=finish,
        comment=document(group),
    )
    return render_int8(spec)


@dataclass(frozen=True)
class _IntegerProduct:
    """A contraction as rows, columns and k; ``a_inner`` and ``b_inner`` are the variables of k
    along which neighbours may be adjacent."""

    c: Contraction
    output: Buffer
    a: Load
    b: Load
    value: Expr
    store: MultiIndex
    a_inner: Var | None
    b_inner: Var
    axes: Axes


def _product(c: Contraction, output: Buffer) -> _IntegerProduct:
    """A matrix product, or a batch of them."""
    p = matrix_product(c, output)
    row = p.m or Var("row", Index.of(1))
    batch = tuple((p.batch_names[v], v.extent) for v in p.batch)
    axes = Axes(Axis(row), Axis(p.n), Axis(p.k), batch, p.batch_index)
    return _IntegerProduct(c, output, p.a, p.b, p.value, p.store, p.k, p.k, axes)


def _convolution(c: Contraction, output: Buffer) -> _IntegerProduct:
    """A convolution as a product, or one for each group: rows are output pixels, columns output
    channels, and k runs over the window."""
    last = c.anchor.bound["layout"] == "NHWC"
    groups = Index.of(c.anchor.bound["groups"])
    channel = c.coordinates[3 if last else 1]
    column = Var("col", channel.extent // groups)
    batch = (("batch", groups),) if groups != 1 else ()
    first = Var("batch", groups) * column.extent if batch else Index.of(0)
    c, output, sizes = _with_named_sizes(c, output, (1, 2) if last else (2, 3), {channel: first + column})
    pixels = [v for v in c.coordinates if v != column]
    window = [*c.reduced[1:], c.reduced[0]] if last else [*c.reduced]
    row = Var("row", product(v.extent for v in pixels))
    k = Var("k", product(v.extent for v in window))
    names = _window_names(c)
    # where the weight lies in the order of k, its address says so
    parts = unflatten(Index.of(k), [v.extent for v in window])
    flat = expr.substitute_index(c.b, dict(zip(window, parts)))
    assert isinstance(flat, Load)
    in_order = address(flat, c.buffer(c.b.buffer)).coefficient(k) is not None
    axes = Axes(
        Axis(row, tuple(zip(("image", "out_row", "out_col"), pixels))),
        Axis(column),
        Axis(k, tuple((names[v], v) for v in window)),
        batch,
        sizes=sizes,
        rows_adjacent=_step(flatten(c.store, output.shape), column) != 1,
    )
    a_inner, b_inner = window[-1] if last else None, k if in_order else window[-1]
    b = flat if in_order else c.b
    return _IntegerProduct(c, output, c.a, b, c.value, c.store, a_inner, b_inner, axes)


def _with_named_sizes(
    c: Contraction, output: Buffer, axes: Sequence[int], env: dict[Var, Index]
) -> tuple[Contraction, Buffer, tuple[tuple[str, Index], ...]]:
    """The convolution with names for output sizes that are expressions of named dims, and with
    other indices in place of some coordinates."""
    sizes = {
        c.coordinates[axis].extent: name
        for axis, name in zip(axes, map(own_name, ("out_h", "out_w")))
        if not isinstance(c.coordinates[axis].extent.single_atom, DimVar)
        and c.coordinates[axis].extent.constant is None
    }
    known = {value: Index.of(DimVar(name)) for value, name in sizes.items()}
    env = {v: Index.of(Var(v.name, known.get(v.extent, v.extent))) for v in c.coordinates} | env

    def moved(load: Load) -> Load:
        result = expr.substitute_index(load, env)
        assert isinstance(result, Load)
        return result

    def named_shape(buffer: Buffer) -> Buffer:
        return replace(buffer, shape=tuple(known.get(s, s) for s in buffer.shape))

    changed = replace(
        c,
        coordinates=tuple(v for i in env.values() if isinstance(v := i.single_atom, Var)),
        operands=tuple(map(moved, c.operands)),
        value=expr.substitute_index(c.value, env),
        store=tuple(i.substitute(env) for i in c.store),
        buffers=tuple(map(named_shape, c.buffers)),
    )
    return changed, named_shape(output), tuple((name, value) for value, name in sizes.items())


def _window_names(c: Contraction) -> dict[Var, str]:
    """What the variables of the window are called, by where they stand in the weight's index."""
    axes = zip(c.b.index[1:], ("channel", "kernel_row", "kernel_col"))
    return {v: name for i, name in axes if isinstance(v := i.single_atom, Var)}


def _step(address: Index, v: Var) -> int | None:
    """How far apart neighbours along a variable are, if that is known."""
    step = address.coefficient(v)
    return None if step is None else step.constant


def _in_quads(load: Load, buffer: Buffer, k: Var) -> bool:
    """Whether every fourth step of ``k``, along which neighbours are adjacent, begins four numbers
    at an address divisible by 4, and the load's guard does not tell them apart. (Arrays begin at
    such addresses.)"""
    if load.guard is not None and k in expr.free_variables(load.guard):
        return False
    multiples = (*k.extent.terms.values(), *(address(load, buffer) - Index.of(k)).terms.values())
    return all(factor % QUAD == 0 for factor in multiples)
