"""Printing a matrix product whose right operand is widened, a panel of it in blocks along K.

In: the function under construction (`gemm._Gemm`), whose B is a `WidenedOperand`. Out: its loops.
Floats of a whole panel would leave the second-level cache where K is long, so a block of them is
widened, multiplied by all rows of a block of rows, and overwritten by the next one; sums wait in
memory of the thread's own. The cuts depend on K alone: results do not depend on the number of
threads. (One product of `gemm_long` has all panels for a block of K: there B is not to be read
twice. Here it is read in the order in which it lies in memory, which hides how long that takes.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxlite.codegen.c.product.gemm_long import BLOCK
from fxlite.codegen.c.product.gemm_spec import WidenedOperand
from fxlite.codegen.c.product.spelled import TextSpec
from fxlite.codegen.c.text.template_text import add, multiply

if TYPE_CHECKING:
    from fxlite.codegen.c.product.gemm import _Gemm

MOST_TILES = 16
"""Tiles of a block of rows, whose sums a thread keeps: with 512 steps of K their rows take a third
of a cache of 1 MiB, and to widen a weight costs as much as to multiply it by 3 to 5 rows."""

TILE_BYTES = f"L2_BYTES / 2 / {MOST_TILES}"
"""What `count_row_blocks` is told, so that no block of rows has more tiles."""


def widened_blocks(spec: TextSpec) -> int:
    """In how many blocks of K a panel is widened."""
    if not isinstance(spec.b, WidenedOperand) or int(spec.k) < 2 * BLOCK:
        return 1
    return round(int(spec.k) / BLOCK)


def sums_of_tiles(g: _Gemm) -> str:
    """Elements of a thread's sums; a tile has up to 11 rows."""
    return multiply(str(MOST_TILES * 11), str(g.width))


def multiply_widened(g: _Gemm, blocks: int) -> None:
    """What a task does: one panel times one block of rows, and the epilogue."""
    spec, out, tile = g.spec, g.out, multiply(g.tile_rows, str(g.width))
    out.put(f"{spec.ctype} *const sums = {g.own_panel()} + {g.panel_items};")
    with out.block(f"for (int64_t block = 0; block < {blocks}; block++)"):
        out.put(f"const int64_t k_0 = block * {spec.k} / {blocks};")
        out.put(f"const int64_t depth = (block + 1) * {spec.k} / {blocks} - k_0;")
        g.declare_panel("k_0", "depth")
        out.put("const int64_t first_tile = row_block * row_tiles / row_blocks;")
        out.put("for (int64_t tile_index = first_tile;")
        with out.block("     tile_index < (row_block + 1) * row_tiles / row_blocks; tile_index++)"):
            g.declare_rows()
            a_start, a_row = g.a_start()
            out.put(f"{spec.ctype} *const total = sums + (tile_index - first_tile) * {tile};")
            out.put(f"{spec.ctype} tile[{tile}];")
            target = "block == 0 ? total : tile"
            out.put(g.tile_call("depth", add(a_start, "k_0"), a_row, target))
            out.put("#pragma omp simd")
            out.put(f"for (int64_t i = 0; i < (block == 0 ? 0 : rows * {g.width}); i++)")
            out.put("    total[i] += tile[i];")
            with out.block(f"if (block == {blocks - 1})"):
                g.finish(out, f"total[i * {g.width} + j]")
