"""CUDA C text of one matrix product of floats, and its epilogue.

In: a :class:`CudaGemmSpec`. Out: its kernel; the loops are those of
:mod:`fxlite.codegen.cuda.gemm_walk`. The right operand may be an :class:`IntegerWeight`, whose
numbers are unpacked and scaled in registers on the way to the tile: 32 bits at a time (four i8 or
eight int4) where rows and groups are made of whole words, else one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fxlite.codegen.c.product.gemm_spec import Operand, ProductSpec, at_most
from fxlite.codegen.cuda.gemm_walk import LANES, MICRO, SLICE, TILE, Product, Side, element, where
from fxlite.codegen.cuda.printer import KernelText
from fxlite.codegen.kernel.builder import Body, bare, divide_up
from fxlite.codegen.kernel.printer import CPrinter
from fxlite.codegen.kernel.text import atom
from fxlite.scalar import expr
from fxlite.scalar.expr import Load
from fxlite.scalar.index import Index, Var, unflatten

BLOCK = 24 * SLICE
"""Products that a thread adds in a row, and then to the sum of such blocks before them."""


@dataclass(frozen=True)
class IntegerWeight:
    """Weights [n, k] of ``bits`` (4 or 8) with scales [n], or [n, k / group_size], rounded up.

    weight, scale   names of the arrays
    group_size      weights along k that share a scale; 0: all of a row
    """

    weight: str
    scale: str
    k: Index
    bits: int
    group_size: int

    @property
    def in_words(self) -> int:
        """How many are read at once, as 32 bits from every word's beginning are of one row and one
        group; 0 if they are not."""
        count = 32 // self.bits
        return count if self.k % count == 0 and self.group_size % count == 0 else 0

    def _place(self, k: Index, column: Index) -> tuple[str, str]:
        """C expressions of where (column, k) is stored, and of its scale."""
        in_byte, group = 8 // self.bits, column
        if self.group_size:
            group = column * divide_up(self.k, self.group_size) + k // self.group_size
        place = column * divide_up(self.k, in_byte) + k // in_byte
        return element(self.weight, place), element(self.scale, group)

    def at(self, k: Index, column: Index) -> str:
        """C expression of one weight."""
        place, scale = self._place(k, column)
        if self.bits == 4:  # the half that is wanted to the top, and back, which repeats its sign
            place = f"((int)((uint32_t){place} << ({bare(28 - k % 2 * 4)})) >> 28)"
        return f"(float){place} * {scale}"

    def words(self, body: Body, k: Index, column: Index, *inside: str) -> None:
        """Declare the word from ``k`` on and its scale, 0 unless all is ``inside``."""
        place, scale = self._place(k, column)
        word = where(f"(uint32_t)fx_quad(&{place})", *inside)
        body.put(f"const uint32_t word = {word};")
        body.put(f"const float scale_of_word = {where(scale, *inside)};")

    def part(self, number: Index) -> str:
        """C expression of one of the weights in a ``word``."""
        top = 32 - self.bits
        bits = f"(int)(word << ({bare(top - number * self.bits)})) >> {top}"
        return f"(float)({bits}) * scale_of_word"


@dataclass(frozen=True, kw_only=True)
class CudaGemmSpec(ProductSpec):
    """One product.

    ctype   "float" or "double", in which the products are summed
    a, b    the operands
    """

    ctype: str
    a: Operand
    b: Operand | IntegerWeight


class _Floats(Product):
    """A product of float or double."""

    def __init__(self, spec: CudaGemmSpec) -> None:
        if spec.ctype not in ("float", "double"):
            raise ValueError(f"{spec.name}: ctype {spec.ctype!r} is neither 'float' nor 'double'")
        super().__init__(spec)
        self.spec, self.item = spec, spec.ctype
        b = (1, 0) if isinstance(spec.b, IntegerWeight) else (spec.b.row_stride, spec.b.col_stride)
        self.along_k = spec.a.row_stride != 1, b[1] != 1
        self.in_warps = spec.m == 1 and b[0] == 1
        self.in_blocks = not at_most(spec.k, BLOCK)

    def begin(self) -> None:
        if self.in_blocks:
            self.body.put(f"{self.item} {element('totals', MICRO, MICRO)} = {{}};")

    def fill(self, side: Side, k_0: Index) -> None:
        body, spec = self.body, self.spec
        if side.name == "b" and isinstance(spec.b, IntegerWeight) and spec.b.in_words:
            self._fill_words(spec.b, spec.b.in_words, side, k_0)
            return
        with self.filling(side) as (i, j, line, inside):
            k, is_k = self.named("k", k_0 + j, spec.k)
            number = spec.a.at(line, k) if side.name == "a" else spec.b.at(k, line)
            body.put(f"{element(f'{side.name}_tile', j, i)} = {where(number, inside, is_k)};")

    def _fill_words(self, weight: IntegerWeight, count: int, side: Side, k_0: Index) -> None:
        with self.filling(side, SLICE // count) as (i, j, column, inside):
            k, is_k = self.named("k", k_0 + j * count, self.spec.k)
            weight.words(self.body, k, column, inside, is_k)
            with self.unrolled("part", count) as part:
                target = element("b_tile", j * count + part, i)
                self.body.put(f"{target} = {weight.part(part)};")

    def add(self, total: str, a: str, b: str) -> str:
        return f"{total} += {a} * {b};"

    def after_slice(self, k_0: Index) -> None:
        if not self.in_blocks:
            return
        with self.body.block(f"if ({bare(k_0 % BLOCK)} == {BLOCK - SLICE})"), self.each_sum() as (i, j):
            total, part = element("totals", i, j), element("sums", i, j)
            self.body.put(f"{total} += {part};\n{part} = 0;")

    def total(self, i: Index, j: Index) -> str:
        if not self.in_blocks:
            return element("sums", i, j)
        whole = f"{element('totals', i, j)} + {element('sums', i, j)}"
        self.body.put(f"const {self.item} sum = {whole};")
        return "sum"

    def total_of_warp(self, lane: Index, column: Index) -> str:
        body, spec, b = self.body, self.spec, self.spec.b
        body.put(f"{self.item} sums = 0;")
        if isinstance(b, IntegerWeight) and b.in_words:
            count = b.in_words
            with body.loop("k", spec.k, lane * count, LANES * count) as k:
                b.words(body, k, column)
                with self.unrolled("part", count) as part:
                    body.put(f"sums += {spec.a.at(0, k + part)} * ({b.part(part)});")
        else:
            with body.loop("k", spec.k, lane, LANES) as k:
                body.put(f"sums += {spec.a.at(0, k)} * {atom(b.at(k, column))};")
        return "fx_warp_sum(sums)"


def render_gemm(spec: CudaGemmSpec) -> KernelText:
    """The kernel of one product.

    Raises:
        ValueError: the `ctype` is not a float type.
    """
    return _Floats(spec).render()


# -- CUDA C text of one product of 8-bit integers with exact sums in int32, and its epilogue -------
# In: a :class:`CudaInt8Spec`. Out: its kernel. The loops are those of
# :mod:`fxlite.codegen.cuda.gemm_walk`, but an item is a *quad*, four neighbours along k in one 32-bit
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
            self.body.put("int line_sum = 0;")

    def fill(self, side: Side, k_0: Index) -> None:
        operand, axis = self.lines[side.name]
        with self.filling(side) as (i, j, line, inside):
            place, k = axis.located(self.body, line), k_0 + j * QUAD
            if operand.in_quads:
                k, is_k = self.named("k", k, self.spec.k)
                quad = where(self._quad(operand, place, k), inside, is_k)
            else:
                quad = self._gathered("quad", operand, place, k, inside)
            self.body.put(f"{element(f'{side.name}_tile', j, i)} = {quad};")

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
            self.body.put("__syncthreads();")

    def _summing(self) -> list[tuple[str, str, Index]]:
        """Which lines are summed, by which of the threads, and which of them each one sums."""
        tests = f"thread < {TILE}", f"thread >= {TILE} && thread < {2 * TILE}"
        return [(n, tests[i], self.thread - i * TILE) for i, n in enumerate(self.summed)]

    def total(self, i: Index, j: Index) -> str:
        lines = element("a_sums", self.thread_row + i), element("b_sums", self.thread_col + j)
        whole = self._corrected(element("sums", i, j), *lines)
        if not self.summed:
            return whole
        self.body.put(f"const int sum = {whole};")
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
                    body.put(f"const int {name}_part = {self._quad(operand, place, k)};")
                else:
                    self._gathered(f"{name}_part", operand, place, k)
            body.put(self.add("sums", "a_part", "b_part"))
            for name in self.summed:
                body.put(self.add(f"{name}_sums", f"{name}_part", ONES))
        for name in sums:
            body.put(f"{name} = (int)fx_warp_sum((uint32_t){name});")
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
        self.body.put(f"int {name} = 0;")
        with self.unrolled("step", QUAD) as step:
            k, is_k = self.named("k", k_0 + step, self.spec.k)
            byte, guard = self._at(operand, place, k)
            byte = f"({byte} ^ 128)" if operand.load.dtype.name == "u8" else byte
            if guard and operand.offset:
                byte, guard = f"({guard} ? {byte} : {operand.offset})", ""
            bits = where(f"(int)(({byte} & 255u) << {bare(step * 8)})", inside, is_k, guard)
            self.body.put(f"{name} |= {bits};")
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
