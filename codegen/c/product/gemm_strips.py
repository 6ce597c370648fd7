"""C text of a product of few rows by a large matrix that is read in place, a strip of columns at a time
(`tiles/strips.h`).

In: a `GemmSpec`. Out: the function under construction, as `gemm` has it for other products. Strips are the tasks of the
threads; the value of an element does not depend on their width.
"""

from __future__ import annotations

from dataclasses import replace

from fxlite.codegen.c.product.gemm_spec import FEW_STRIP_ROWS, ITEM_BYTES, LINE, GemmSpec, Operand
from fxlite.codegen.c.product.gemm_walk import Place, Product, Tile
from fxlite.codegen.c.tiles.library import constant
from fxlite.codegen.kernel.builder import Pointer, bare, smaller, symbol
from fxlite.scalar.index import Index

STRIP_BYTES = 8 << 10
"""The most bytes of a row of a strip: long enough that memory is read ahead, and short enough that the sums of all rows
stay in the second-level cache (measured: strips of 2 KiB take 1.5 times as long)."""

_SUM_STEPS = constant("matrix", "SUM_STEPS")


class Strips(Product):
    """A product by strips."""

    def __init__(self, spec: GemmSpec) -> None:
        super().__init__(spec, Tile(spec.ctype, spec.ctype, ITEM_BYTES[spec.ctype]))
        self.spec, self.vector, self.height = spec, spec.ctype, "tiles of all rows"

    def _count(self) -> None:
        """Compute the width of a strip: all threads have equally many, of nearly equal width."""
        n, body = self.base.n, self.body
        self.row_tiles = self.row_blocks = self.panel_blocks = Index.of(1)
        most = STRIP_BYTES // self.kind.item_bytes
        self.widest = min(most, -(-(n.constant or most) // LINE) * LINE)
        self.width = self.widest
        given = f"{bare(n)}, {self.widest}, {bare(self.n_threads)}"
        self.strip = body.let("strip", f"strip_columns({given})")
        self.panels = body.let("strips", f"({bare(n)} + strip - 1) / strip", like=n)

    @property
    def one_tile(self) -> bool:
        return True

    def declare(self) -> None:
        parts = 1 if self.spec.k <= _SUM_STEPS else 3
        rows = self.spec.m if self.spec.m.constant is not None else smaller(self.spec.m, FEW_STRIP_ROWS)
        share = rows * (self.widest + LINE) * parts
        self.body.comment("The sums of a strip for each thread.")
        self.allot("sums", self.spec.ctype, self.n_threads * share, self.kind.item_bytes)
        self.own_sums = Pointer("sums") + (symbol("this_thread()") if self.threads else Index.of(0)) * share

    def _panel(self, at: Place, slice_: Index, number: Index) -> None:
        """Print a strip."""
        body, spec = self.body, self.spec
        assert isinstance(spec.b, Operand)
        column_0 = body.let("column_0", at.panel * self.strip)
        columns = body.let("columns", f"fx_min(strip, {bare(spec.n - column_0)})", like=spec.n)
        total = body.pointer(spec.ctype, "total", self.own_sums)
        apart = body.let("apart", self.strip + LINE)  # sums a power of two apart would share a cache set
        at = replace(at, column_0=column_0, columns=columns, rows=spec.m, sums=total, width=apart)
        left, right = (
            (spec.a.start(0), spec.a.row_stride, spec.a.col_stride),
            (spec.b.start(0, column_0), spec.b.row_stride),
        )
        known = [spec.m, 1] if spec.m.constant is not None else [spec.m]
        name = "multiply_strip" if len(known) > 1 else "multiply_strip_of_rows"
        body.call(f"{name}_{spec.ctype}", *known, columns, spec.k, *left, *right, total, apart)
        self.finish(at)

    def about(self) -> list[str]:
        return ["The right operand is read in place, a strip of columns at a time."]
