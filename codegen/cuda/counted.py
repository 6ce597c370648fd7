"""The axes that a product on CUDA counts: the rows, columns and steps of k of a matrix product, or of a
convolution treated as one: its rows are output pixels, its columns output channels, and its k runs over
a window. The image is read in place, so nothing is copied first.

In: a lowered group. Out: :class:`Counted`, over which :mod:`fxlite.codegen.cuda.gemm` walks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fxlite.codegen.c.product.gemm_spec import ProductSpec
from fxlite.codegen.cuda.schedule import CudaPrinter
from fxlite.codegen.kernel.builder import Body
from fxlite.codegen.kernel.kernel_ir import Buffer
from fxlite.codegen.kernel.lower import Contraction, Epilogue, address, buffer_of, lower_contraction, matrix_product
from fxlite.codegen.kernel.names import own_name
from fxlite.codegen.kernel.printer import CPrinter
from fxlite.codegen.kernel.schedule import document
from fxlite.graph.graph import Node
from fxlite.passes.group import Group
from fxlite.scalar import expr
from fxlite.scalar.expr import Expr, Load, MultiIndex
from fxlite.scalar.index import DimVar, Index, Var, flatten, product, unflatten

FOUR = 4
"""The number of adjacent elements that are read at once if possible."""

SMALL = 2**30
"""The most elements of arrays for which positions in them, and slightly beyond their ends, are an int."""

LEAST_GROUP = 16
"""The least output channels of a group for which a tile of columns is worthwhile; depthwise convolutions are
loops."""

Place = Mapping[Var, Index]
"""The names of variables in the kernel."""


def is_convolution(node: Node) -> bool:
    """True for convolutions of floats or integers over one or two axes."""
    return bool((node.target.is_convolution and node.type.rank <= 4) or node.target.name == "int_conv2d")


def is_wide_convolution(node: Node) -> bool:
    """True for convolutions with many output channels for each of their groups."""
    if not is_convolution(node):
        return False
    groups = node.bound["groups"]
    return bool(groups == 1 or node.args[1].type.shape[0] >= groups * LEAST_GROUP)


@dataclass(frozen=True)
class Axis:
    """The numbers of rows, columns or steps along k: ``parts`` are the variables that one number is made of,
    outermost first, with their names."""

    whole: Var
    parts: tuple[tuple[str, Var], ...] = ()
    ctype: str = "int64_t"

    def located(self, body: Body, index: Index) -> dict[Var, Index]:
        """The variables at an index, with names for its parts."""
        parts = unflatten(index, [v.extent for _, v in self.parts])
        named = {v: body.let(name, p, self.ctype) for (name, v), p in zip(self.parts, parts)}
        return {self.whole: index, **named}


@dataclass(frozen=True)
class Axes:
    """The axes of a product, or of each product of a ``batch``.

    place           the variables of the batch by their names
    sizes           names for long expressions of the parameters, used by all the others
    rows_adjacent   results of adjacent rows are adjacent in memory
    ctype           of indices: ``int``, with which a GPU computes faster, if all arrays are known to be
                    small enough
    """

    rows: Axis
    columns: Axis
    depth: Axis
    batch: tuple[tuple[str, Index], ...] = ()
    place: Place = field(default_factory=dict)
    sizes: tuple[tuple[str, Index], ...] = ()
    rows_adjacent: bool = False
    ctype: str = "int64_t"

    @property
    def is_plain(self) -> bool:
        """Whether rows and steps of k each consist of a single variable."""
        return not self.rows.parts and not self.depth.parts


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """One side of a product.

    load        the load of an element. If its guard does not hold, the value is 0 and no memory is read
    axes        of the product
    printer     prints the load
    along_k     adjacent elements along k, rather than along lines, are adjacent in memory
    count       the number of adjacent elements that, at every such step, begin at an address divisible
                by that number of elements and are allowed by the guard all or none; or 1
    """

    load: Load
    axes: Axes
    printer: CPrinter
    along_k: bool = True
    count: int = 1

    def at(self, body: Body, place: Place, k: Index) -> tuple[str, str]:
        """C expressions of a number, and of the guard, empty if there is none. ``place`` has the variables of
        the line."""
        env = {**self.axes.place, **place, **self.axes.depth.located(body, k)}
        guard = self.load.guard and self.printer.value(expr.substitute_index(self.load.guard, env))
        number = expr.substitute_index(replace(self.load, guard=None), env)
        return self.printer.value(number), guard or ""


@dataclass(frozen=True, kw_only=True)
class CountedSpec(ProductSpec):
    """One product: its operands ``a`` and ``b``, and the axes for the batch, m, n and k."""

    a: Gathered
    b: Any
    axes: Axes


@dataclass(frozen=True)
class Counted:
    """A contraction as rows, columns and k; ``a_inner`` and ``b_inner`` are the variables of k along which
    adjacent elements may be adjacent in memory. ``origin`` is the contraction before sizes had names, from
    which their dims are known."""

    c: Contraction
    output: Buffer
    a: Load
    b: Load
    value: Expr
    store: MultiIndex
    a_inner: Var | None
    b_inner: Var
    axes: Axes
    origin: tuple[Contraction, Buffer]

    def operand(self, load: Load, printer: CPrinter) -> dict[str, Any]:
        """The fields of :class:`Gathered` for ``a`` or ``b``."""
        inner, line = (self.a_inner, self.axes.rows) if load is self.a else (self.b_inner, self.axes.columns)
        buffer = self.c.buffer(load.buffer)
        along_k = inner is not None and _step(address(load, buffer), inner) == 1
        along = inner if along_k else line.whole
        in_fours = along is not None and _in_fours(load, buffer, along)
        return {
            "load": load,
            "axes": self.axes,
            "printer": printer,
            "along_k": along_k,
            "count": FOUR if in_fours else 1,
        }

    def fields(self, group: Group, name: str, printer: CudaPrinter, right: Sequence[str] = ()) -> dict[str, Any]:
        """The fields that the spec of any product has: its name, parameters and sizes, the axes and the
        epilogue. ``right`` are the buffers of the right operand, if they are not those of ``b``."""
        epilogue, axes = Epilogue(self.c, self.output, self.value, self.store, printer), self.axes
        own, output = self.origin
        whole = Epilogue(own, output, own.value, own.store, printer)
        parameters = whole.parameters([self.a.buffer], right or [self.b.buffer])

        def finish(total: str, row: Index, column: Index) -> str:
            body = Body()
            place = {**axes.rows.located(body, row), **axes.columns.located(body, column), **axes.place}
            body.put(epilogue.print(total, place))
            return str(body)

        return {
            "name": name,
            "parameters": ", ".join(text for text, _ in parameters),
            "batch": axes.batch,
            "m": axes.rows.whole.extent,
            "n": axes.columns.whole.extent,
            "k": axes.depth.whole.extent,
            "axes": axes,
            "epilogue": finish,
            "comment": document(group),
        }


def counted(group: Group, locations: list[str]) -> tuple[Counted, CudaPrinter]:
    """A group as a product, and a printer of its values. Raises CodegenError if it is not a product."""
    c = lower_contraction(group)
    output = buffer_of(c.root, is_output=True)
    sizes = [product(b.shape).constant for b in (*c.buffers, output)]
    ctype = "int" if all(size is not None and size <= SMALL for size in sizes) else "int64_t"
    found = (_convolution if is_convolution(c.anchor) else _product)(c, output, ctype)
    return found, CudaPrinter((*found.c.buffers, found.output), locations)


def _product(c: Contraction, output: Buffer, ctype: str) -> Counted:
    """A matrix product, or a batch of them."""
    p = matrix_product(c, output)
    row = p.m or Var("row", Index.of(1))
    batch = tuple((p.batch_names[v], v.extent) for v in p.batch)
    axes = Axes(Axis(row), Axis(p.n), Axis(p.k), batch, p.batch_index, ctype=ctype)
    return Counted(c, output, p.a, p.b, p.value, p.store, p.k, p.k, axes, (c, output))


def _convolution(c: Contraction, output: Buffer, ctype: str) -> Counted:
    """A convolution as a product, or one for each group: rows are output pixels, columns output
    channels, and k runs over the window."""
    last = c.anchor.bound.get("layout") == "NHWC"
    groups, rank = Index.of(c.anchor.bound["groups"]), len(c.coordinates) - 2
    channel = c.coordinates[-1 if last else 1]
    column = Var("col", channel.extent // groups)
    batch = (("batch", groups),) if groups != 1 else ()
    first = Var("batch", groups) * column.extent if batch else Index.of(0)
    spatial = range(1, 1 + rank) if last else range(2, 2 + rank)
    origin = c, output
    c, output, sizes = _with_named_sizes(c, output, spatial, {channel: first + column})
    pixels = [v for v in c.coordinates if v != column]
    window = [*c.reduced[1:], c.reduced[0]] if last else [*c.reduced]
    row = Var("row", product(v.extent for v in pixels))
    k = Var("k", product(v.extent for v in window))
    names = _window_names(c)
    # if the weight lies in the order of k, a single variable addresses it
    parts = unflatten(Index.of(k), [v.extent for v in window])
    flat = expr.substitute_index(c.b, dict(zip(window, parts)))
    assert isinstance(flat, Load)
    in_order = address(flat, c.buffer(c.b.buffer)).coefficient(k) is not None
    axes = Axes(
        Axis(row, tuple(zip(("image", *("out_row", "out_col")[-rank:]), pixels)), ctype),
        Axis(column),
        Axis(k, tuple((names[v], v) for v in window), ctype),
        batch,
        sizes=sizes,
        ctype=ctype,
        rows_adjacent=_step(flatten(c.store, output.shape), column) != 1,
    )
    a_inner, b_inner = window[-1] if last else None, k if in_order else window[-1]
    b = flat if in_order else c.b
    return Counted(c, output, c.a, b, c.value, c.store, a_inner, b_inner, axes, origin)


def _with_named_sizes(
    c: Contraction, output: Buffer, axes: Sequence[int], env: dict[Var, Index]
) -> tuple[Contraction, Buffer, tuple[tuple[str, Index], ...]]:
    """The convolution with names for output sizes that are expressions of named dims, and with other indices
    in place of some coordinates."""
    sizes = {
        c.coordinates[axis].extent: name
        for axis, name in zip(axes, map(own_name, ("out_h", "out_w")[-len(axes) :]))
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
    """The names of the variables of the window, by their places in the weight's index."""
    axes = zip(c.b.index[1:], ("channel", *("kernel_row", "kernel_col")[2 - len(c.b.index[2:]) :]))
    return {v: name for i, name in axes if isinstance(v := i.single_atom, Var)}


def _step(address: Index, v: Var) -> int | None:
    """The distance of adjacent elements along a variable, if it is known."""
    step = address.coefficient(v)
    return None if step is None else step.constant


def _in_fours(load: Load, buffer: Buffer, v: Var) -> bool:
    """Whether elements along a variable are adjacent, every fourth one begins four elements at an address
    divisible by 4, and the load's guard is the same for all four. (Arrays begin at such addresses.)"""
    if load.guard is not None and v in expr.free_variables(load.guard):
        return False
    own = address(load, buffer)
    multiples = (*v.extent.terms.values(), *(own - Index.of(v)).terms.values())
    return _step(own, v) == 1 and all(factor % FOUR == 0 for factor in multiples)
