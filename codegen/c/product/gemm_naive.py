"""Printing the plain loops of a matrix product, to check the fast version against.

In: a `GemmSpec`, and the parameters that the fast version takes beyond the caller's. Out: a C
function that takes the same ones.
"""

from __future__ import annotations

from fxlite.codegen.c.product.gemm_spec import GemmSpec, Operand, PackedOperand
from fxlite.codegen.c.product.gemm_walk import Product, Tile
from fxlite.codegen.c.text.template_text import Rendered, atom, rendered
from fxlite.codegen.kernel.builder import Pointer, bare
from fxlite.scalar.index import Index


class _Naive(Product):
    """The three loops and the epilogue."""

    def __init__(self, spec: GemmSpec, tile: Tile, extra: tuple[str, ...]) -> None:
        super().__init__(spec, tile)
        self.spec, self.extra = spec, extra

    def render(self) -> Rendered:
        """They take no workspace and one thread."""
        spec, body = self.spec, self.body
        for name in self.extra:
            body.put(f"(void){name};")
        loops = [*spec.batch, ("row", spec.m), ("column", spec.n)]
        with body.shared(loops, "") as (*batch, row, column):
            self.name_batch(batch)
            body.put(f"{spec.ctype} sum = 0;")
            with body.loop("k", spec.k) as k:
                body.put(f"sum += {self.term(row, column, k)};")
            body.put(spec.epilogue("sum", row, column))
        said = spec.comment, "The plain loops, to check the fast version against."
        return rendered(spec.name, spec.parameters, said, body.lines(), extra=self.extra)

    def term(self, row: Index, column: Index, k: Index) -> str:
        """One product, in C."""
        spec, low = self.spec, ""
        step = k // 2 if spec.bf16 else k
        a = spec.prologue_a(row, k) if spec.prologue_a else spec.a.at(row, k)
        if spec.bf16 == "a":
            a = spec.a.at(row, step)
        if isinstance(spec.b, Operand):
            b = spec.b.at(k, column)
        else:
            assert isinstance(spec.b, PackedOperand)  # what is widened has no naive twin
            part, width = self.depth * self.width, self.width
            start = Pointer(atom(spec.b.pointer)) + column // width * (part * self.kind.parts)
            start = start + step * width + column % width
            b, low = start[0], start[part]
        if spec.a_is_bf16:
            a = f"fx_f32_from_bf16({a})"
        if spec.bf16:
            pair, other = (a, b) if spec.bf16 == "a" else (b, a)
            half = f"half_of_pair({pair}, {bare(k % 2)})"
            if spec.split:
                a, b = other, f"({half} + half_of_pair({low}, {bare(k % 2)}))"
            else:
                a, b = f"rounded_bf16({other})", half
        return f"{atom(a)} * {b}"


def naive_product(spec: GemmSpec, tile: Tile, extra: tuple[str, ...]) -> Rendered:
    """The function of plain loops."""
    return _Naive(spec, tile, extra).render()
