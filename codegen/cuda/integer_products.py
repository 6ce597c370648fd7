"""Products of 8-bit integers on CUDA: their template, and the groups that it computes.

In: a group anchored at an int_linear, int_matmul or int_conv2d. Out: its kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fxlite.codegen.cuda.counted import CountedSpec, Gathered, Place, counted, is_wide_convolution
from fxlite.codegen.cuda.gemm import LANES, ZERO, Product, Side, element, where
from fxlite.codegen.cuda.schedule import KernelText
from fxlite.codegen.kernel.builder import Size, bare
from fxlite.graph.graph import Node
from fxlite.passes.group import Group
from fxlite.scalar.index import Index

# -- CUDA C text of one product of 8-bit integers with exact sums in int32, and its epilogue -------
# In: a :class:`CudaInt8Spec`. Out: its kernel. The loops are those of :mod:`fxlite.codegen.cuda.gemm`,
# but an item is a *quad*, four adjacent numbers along k in one 32-bit word, and ``__dp4a`` adds the four
# products of two quads to a sum. Its bytes are signed on both sides: the top bit of a u8 is flipped when
# it is loaded, which subtracts 128. The rest of the zero points is subtracted from the finished sums:
#
#     sum (a - y)(b - z) = sum a*b - y * sum b - z * sum a + k*y*z
#
# with the sums of a row of A or a column of B, which a few of the threads compute from the tiles. Bytes
# beyond k are 0 on both sides and have no effect. Corrections are modulo 2**32, so they are exact.


QUAD = 4  # bytes of a word
ONES = "0x01010101"  # a quad that sums the bytes of another


@dataclass(frozen=True, kw_only=True)
class Int8Operand(Gathered):
    """One side of a product. ``zero_point`` is the integer that represents 0."""

    zero_point: int

    @property
    def in_quads(self) -> bool:
        """Whether four adjacent numbers along k are read as a word."""
        return self.along_k and self.count == QUAD

    @property
    def offset(self) -> int:
        """The zero point of the signed bytes."""
        return self.zero_point - (128 if self.load.dtype.name == "u8" else 0)


@dataclass(frozen=True, kw_only=True)
class CudaInt8Spec(CountedSpec):
    """One product of integers."""

    a: Int8Operand
    b: Int8Operand


class _Integers(Product):
    """A product of u8 or i8."""

    item = "int"
    steps = QUAD

    def __init__(self, spec: CudaInt8Spec) -> None:
        super().__init__(spec)
        self.spec = spec
        self.lines = {"a": (spec.a, self.axes.rows), "b": (spec.b, self.axes.columns)}
        # the sums of lines by which the other operand's zero point is multiplied
        self.summed = [n for n, other in (("b", spec.a), ("a", spec.b)) if other.offset]

    def declare(self) -> None:
        for name in self.summed:
            self.body.put(f"__shared__ int {element(f'{name}_sums', self.shape.lines[name])};")

    def begin(self) -> None:
        if self.summed:
            self.body.assign("int line_sum", "0")

    def load(self, side: Side, line: Index, k: Index, inside: str, target: Callable[[Size], str]) -> None:
        operand, axis = self.lines[side.name]
        place = axis.located(self.body, line)
        if operand.in_quads:
            k, is_k = self.named("k", k, self.spec.k)
            quad = where(self._quad(operand, place, k), inside, is_k)
        else:
            quad = self._gathered("quad", operand, place, k, inside)
        self.body.assign(target(0), quad)

    def add(self, total: str, a: str, b: str) -> str:
        return f"{total} = __dp4a({a}, {b}, {total});"

    def after_slice(self) -> None:
        for name, test, line in self._summing():
            with self.body.block(f"if ({test})"), self.body.loop("item", self.shape.depth, ctype="int") as k:
                self.body.put(self.add("line_sum", element(f"{name}_tile", k, line), ONES))

    def after_slices(self) -> None:
        for name, test, line in self._summing():
            self.body.put(f"if ({test}) {element(f'{name}_sums', line)} = line_sum;")
        if self.summed:
            self.body.call("__syncthreads")

    def _summing(self) -> list[tuple[str, str, Index]]:
        """Which lines are summed, by which of the threads, and which of them each thread sums."""
        found, first = list[tuple[str, str, Index]](), 0
        for name in self.summed:
            end = first + self.shape.lines[name]
            below = f"thread >= {first} && " if first else ""
            found.append((name, f"{below}thread < {end}", self.thread - first))
            first = end
        return found

    def total(self, i: Index, j: Index) -> str:
        return self._corrected(super().total(i, j), element("a_sums", i), element("b_sums", j))

    def total_of_warp(self, lane: Index, column: Index) -> str:
        body, spec = self.body, self.spec
        sums = ["sums", *(f"{name}_sums" for name in self.summed)]
        body.put(f"int {', '.join(f'{name} = 0' for name in sums)};")
        lines = {"a": ZERO, "b": column}
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
    def _quad(self, operand: Int8Operand, place: Place, k: Index) -> str:
        """C expression of the four signed bytes from ``k``, the start of a quad, on."""
        number, guard = operand.at(self.body, place, k)
        quad = f"fx_quad(&{number}){' ^ 0x80808080' if operand.load.dtype.name == 'u8' else ''}"
        zero = f"(int)0x{operand.offset % 256 * 0x01010101:08x}"
        return f"({guard} ? {quad} : {zero})" if guard else quad

    def _gathered(self, name: str, operand: Int8Operand, place: Place, k_0: Index, inside: str = "") -> str:
        """Declare the four signed bytes from ``k_0`` on, 0 beyond the matrix; returns the name."""
        self.body.assign(f"int {name}", "0")
        with self.unrolled("step", QUAD) as step:
            k, is_k = self.named("k", k_0 + step, self.spec.k)
            byte, guard = operand.at(self.body, place, k)
            byte = f"({byte} ^ 128)" if operand.load.dtype.name == "u8" else byte
            if guard and operand.offset:
                byte, guard = f"({guard} ? {byte} : {operand.offset})", ""
            bits = where(f"(int)(({byte} & 255u) << {bare(step * 8)})", inside, is_k, guard)
            self.body.assign(name, bits, "|=")
        return name

    def _corrected(self, total: str, a_sum: str, b_sum: str) -> str:
        """C expression of a finished sum, from that of the signed bytes and those of the row of A and the column
        of B; unsigned arithmetic makes it modulo 2**32."""
        y, z, k = self.spec.a.offset, self.spec.b.offset, self.spec.k
        depth = f"(uint32_t)({bare(k)})" if k.constant is None else f"{k.constant}u"
        terms = [(-y, b_sum), (-z, a_sum), (y * z, depth)]
        text = "".join(f" {'-' if f < 0 else '+'} {abs(f)}u * {x}" for f, x in terms if f)
        return f"(int)({total}{text})" if text else total


def render_int8(spec: CudaInt8Spec) -> KernelText:
    """The kernel of one product."""
    return _Integers(spec).render()


# -- which groups ----------------------------------------------------------------------------------
def is_integer_product(node: Node) -> bool:
    """True for nodes that the template computes."""
    name = node.target.name
    if name == "int_matmul":
        return all(operand.type.rank >= 2 for operand in node.args[:2])
    return name == "int_linear" or (name == "int_conv2d" and is_wide_convolution(node))


def render_integer_product(group: Group, name: str, locations: list[str]) -> KernelText:
    """The kernel. Raises CodegenError if the group is not such a product."""
    p, printer = counted(group, locations)
    zero_points = (p.c.anchor.arguments.get(f"{side}_zero_point", 0) for side in "xy")
    a, b = (Int8Operand(zero_point=z, **p.operand(load, printer)) for z, load in zip(zero_points, (p.a, p.b)))
    return render_int8(CudaInt8Spec(a=a, b=b, **p.fields(group, name, printer)))
