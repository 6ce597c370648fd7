"""CUDA C text of one matrix product of floats, and its epilogue.

In: a :class:`CudaGemmSpec`. Out: its kernel; the loops are those of
:mod:`fxlite.codegen.cuda.gemm_walk`. The right operand may be an :class:`IntegerWeight`, whose
numbers are unpacked and scaled in registers on the way to the tile: 32 bits at a time (four i8 or
eight int4) where rows and groups are made of whole words, else one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

from fxlite.codegen.c.product.gemm_spec import Operand, ProductSpec, at_most
from fxlite.codegen.c.text.template_text import atom
from fxlite.codegen.cuda.gemm_walk import LANES, MICRO, SLICE, Product, Side, element, where
from fxlite.codegen.cuda.printer import KernelText
from fxlite.codegen.kernel.builder import Body, bare, divide_up
from fxlite.scalar.index import Index

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
