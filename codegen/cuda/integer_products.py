"""Products of 8-bit integers on CUDA: their template, and which groups it computes.

In: a group anchored at an int_linear, int_matmul or int_conv2d. Out: its kernel. A convolution is a
product, too, whose rows are output pixels, whose columns are output channels and whose k runs over
a window; its image is read in place, so nothing is copied before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fxlite.codegen.c.product.gemm_spec import ProductSpec
from fxlite.codegen.cuda.gemm import LANES, SLICE, TILE, Product, Side, element, where
from fxlite.codegen.cuda.schedule import CudaPrinter, KernelText
from fxlite.codegen.kernel.builder import Body, bare
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

# -- CUDA C text of one product of 8-bit integers with exact sums in int32, and its epilogue -------
# In: a :class:`CudaInt8Spec`. Out: its kernel. The loops are those of
# :mod:`fxlite.codegen.cuda.gemm`, but an item is a *quad*, four neighbours along k in one 32-bit
# word, and ``__dp4a`` adds the four products of two quads to a sum. Its bytes are signed on both
# sides: of a u8 the top bit is flipped as it is loaded, which subtracts 128. What remains of the zero
# points is taken off the finished sums:
#
#     sum (a - y)(b - z) = sum a*b - y * sum b - z * sum a + k*y*z
#
# with the sums of a row of A or a column of B made from the tiles by a few of the threads. Bytes
# beyond k are 0 on both sides and count for nothing. Corrections are modulo 2**32, so they are exact.


QUAD = 4  # bytes of a word
ONES = "0x01010101"  # a quad that sums up the bytes of another

Place = Mapping[Var, Index]
"""What variables are in the kernel."""


@dataclass(frozen=True)
class Axis:
    """What the rows, the columns or the steps along k count: ``parts`` are the variables that one
    is made of, outermost first, and their names."""

    whole: Var
    parts: tuple[tuple[str, Var], ...] = ()

    def located(self, body: Body, index: Index) -> dict[Var, Index]:
        """The variables at an index, with names for its parts."""
        parts = unflatten(index, [v.extent for _, v in self.parts])
        named = {v: body.let(name, p) for (name, v), p in zip(self.parts, parts)}
        return {self.whole: index, **named}


@dataclass(frozen=True)
class Axes:
    """What a product, or each of a ``batch`` of them, counts.

    place           the variables of the batch by their names
    sizes           names of long expressions of the parameters, for all of the others
    rows_adjacent   results of neighbouring rows are next to each other in memory
    """

    rows: Axis
    columns: Axis
    depth: Axis
    batch: tuple[tuple[str, Index], ...] = ()
    place: Place = field(default_factory=dict)
    sizes: tuple[tuple[str, Index], ...] = ()
    rows_adjacent: bool = False


@dataclass(frozen=True)
class Int8Operand:
    """One side of a product.

    load        of an element. Where its guard does not hold, there is a 0 and no memory
    zero_point  what stands for 0
    along_k     neighbours along k are next to each other in memory
    in_quads    every fourth k begins four numbers that lie at an address divisible by 4, and of
                which the guard allows all or none
    """

    load: Load
    zero_point: int
    along_k: bool = True
    in_quads: bool = False

    @property
    def offset(self) -> int:
        """The zero point of the signed bytes."""
        return self.zero_point - (128 if self.load.dtype.name == "u8" else 0)


@dataclass(frozen=True, kw_only=True)
class CudaInt8Spec(ProductSpec):
    """One product of integers.

    a, b        the operands
    axes        what is counted, of which the batch, m, n and k are the numbers
    printer     prints the operands
    """

    a: Int8Operand
    b: Int8Operand
    axes: Axes
    printer: CPrinter


class _Integers(Product):
    """A product of u8 or i8."""

    item = "int"
    steps = QUAD

    def __init__(self, spec: CudaInt8Spec) -> None:
        super().__init__(spec)
        self.spec, self.axes = spec, spec.axes
        self.rows_adjacent, self.sizes = self.axes.rows_adjacent, self.axes.sizes
        self.along_k = spec.a.along_k, spec.b.along_k
        is_plain = not self.axes.rows.parts and not self.axes.depth.parts
        self.in_warps = spec.m == 1 and spec.b.along_k and is_plain
        self.lines = {"a": (spec.a, self.axes.rows), "b": (spec.b, self.axes.columns)}
        # the sums of lines that the other operand's zero point is multiplied with
        self.summed = [n for n, other in (("b", spec.a), ("a", spec.b)) if other.offset]

    def declare(self) -> None:
        for name in self.summed:
            self.body.put(f"__shared__ int {element(f'{name}_sums', TILE)};")

    def begin(self) -> None:
        if self.summed:
            self.body.assign("int line_sum", "0")

    def fill(self, side: Side, k_0: Index) -> None:
        operand, axis = self.lines[side.name]
        with self.filling(side) as (i, j, line, inside):
            place, k = axis.located(self.body, line), k_0 + j * QUAD
            if operand.in_quads:
                k, is_k = self.named("k", k, self.spec.k)
                quad = where(self._quad(operand, place, k), inside, is_k)
            else:
                quad = self._gathered("quad", operand, place, k, inside)
            self.body.assign(element(f"{side.name}_tile", j, i), quad)

    def add(self, total: str, a: str, b: str) -> str:
        return f"{total} = __dp4a({a}, {b}, {total});"

    def after_slice(self, k_0: Index) -> None:
        for name, test, line in self._summing():
            with self.body.block(f"if ({test})"), self.body.loop("tile_k", SLICE, ctype="int") as k:
                self.body.put(self.add("line_sum", element(f"{name}_tile", k, line), ONES))

    def after_slices(self) -> None:
        for name, test, line in self._summing():
            self.body.put(f"if ({test}) {element(f'{name}_sums', line)} = line_sum;")
        if self.summed:
            self.body.call("__syncthreads")

    def _summing(self) -> list[tuple[str, str, Index]]:
        """Which lines are summed, by which of the threads, and which of them each one sums."""
        tests = f"thread < {TILE}", f"thread >= {TILE} && thread < {2 * TILE}"
        return [(n, tests[i], self.thread - i * TILE) for i, n in enumerate(self.summed)]

    def total(self, i: Index, j: Index) -> str:
        lines = element("a_sums", self.thread_row + i), element("b_sums", self.thread_col + j)
        whole = self._corrected(element("sums", i, j), *lines)
        if not self.summed:
            return whole
        self.body.assign("const int sum", whole)
        return "sum"

    def total_of_warp(self, lane: Index, column: Index) -> str:
        body, spec = self.body, self.spec
        sums = ["sums", *(f"{name}_sums" for name in self.summed)]
        body.put(f"int {', '.join(f'{name} = 0' for name in sums)};")
        lines = {"a": Index.of(0), "b": column}
        with body.loop("k_begin", spec.k, lane * QUAD, QUAD * LANES) as k:
            for name, (operand, axis) in self.lines.items():
                place = axis.located(body, lines[name])
                if operand.in_quads:
                    body.assign(f"const int {name}_part", self._quad(operand, place, k))
                else:
                    self._gathered(f"{name}_part", operand, place, k)
            body.put(self.add("sums", "a_part", "b_part"))
            for name in self.summed:
                body.put(self.add(f"{name}_sums", f"{name}_part", ONES))
        for name in sums:
            body.assign(name, f"(int)fx_warp_sum((uint32_t){name})")
        return self._corrected("sums", "a_sums", "b_sums")

    # -- operands --------------------------------------------------------------------------------
    def _at(self, operand: Int8Operand, place: Place, k: Index) -> tuple[str, str]:
        """C expressions of a number, and of the guard if there is one."""
        env = {**self.axes.place, **place, **self.axes.depth.located(self.body, k)}
        load, printer = operand.load, self.spec.printer
        guard = load.guard and printer.value(expr.substitute_index(load.guard, env))
        return printer.value(expr.substitute_index(replace(load, guard=None), env)), guard or ""

    def _quad(self, operand: Int8Operand, place: Place, k: Index) -> str:
        """C expression of the four signed bytes from a ``k`` on that begins a quad."""
        number, guard = self._at(operand, place, k)
        quad = f"fx_quad(&{number}){' ^ 0x80808080' if operand.load.dtype.name == 'u8' else ''}"
        zero = f"(int)0x{operand.offset % 256 * 0x01010101:08x}"
        return f"({guard} ? {quad} : {zero})" if guard else quad

    def _gathered(self, name: str, operand: Int8Operand, place: Place, k_0: Index, inside: str = "") -> str:
        """Declare the four signed bytes from ``k_0`` on, 0 beyond the matrix; the name."""
        self.body.assign(f"int {name}", "0")
        with self.unrolled("step", QUAD) as step:
            k, is_k = self.named("k", k_0 + step, self.spec.k)
            byte, guard = self._at(operand, place, k)
            byte = f"({byte} ^ 128)" if operand.load.dtype.name == "u8" else byte
            if guard and operand.offset:
                byte, guard = f"({guard} ? {byte} : {operand.offset})", ""
            bits = where(f"(int)(({byte} & 255u) << {bare(step * 8)})", inside, is_k, guard)
            self.body.assign(name, bits, "|=")
        return name

    def _corrected(self, total: str, a_sum: str, b_sum: str) -> str:
        """C expression of a finished sum, from that of the signed bytes and those of the row of A
        and the column of B: modulo 2**32, as unsigned numbers are."""
        y, z, k = self.spec.a.offset, self.spec.b.offset, self.spec.k
        depth = f"(uint32_t)({bare(k)})" if k.constant is None else f"{k.constant}u"
        terms = [(-y, b_sum), (-z, a_sum), (y * z, depth)]
        text = "".join(f" {'-' if f < 0 else '+'} {abs(f)}u * {x}" for f, x in terms if f)
        return f"(int)({total}{text})" if text else total


def render_int8(spec: CudaInt8Spec) -> KernelText:
    """The kernel of one product."""
    return _Integers(spec).render()


# -- which groups, and what of them is counted -----------------------------------------------------
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
