"""Printing a matrix product whose sums are long: K is cut into blocks.

In: the function under construction (`gemm._Gemm`) and its `LongPlan`. Out: its loops. There are two
reasons to cut K, and one way of doing it:

- A and B both exceed the second-level cache, and so do a few rows of A: blocks of K are taken one
  after the other, so that a block of A stays in that cache while the panels of B pass by, and B is
  read from memory once;
- the result has few tiles: *slices* of K become tasks of several threads ("split-K").

Sums of the blocks of one slice are added up in the workspace. Then, behind a barrier, slices are
added in order and the epilogue runs. The cuts depend on sizes alone: results do not depend on the
number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fxlite.codegen.c.product.gemm_spec import WidenedOperand
from fxlite.codegen.c.product.packed_operands import ITEM_BYTES, PARALLEL_PRODUCTS, panel_columns
from fxlite.codegen.c.product.spelled import TextSpec
from fxlite.codegen.c.text.template_text import add, atom, divide_up, multiply

if TYPE_CHECKING:
    from fxlite.codegen.c.product.gemm import _Gemm

LARGE = 16 << 20
"""Bytes of B that the last-level cache does not keep. (Where it does, whole sums are as fast:
measured for 8 MiB.)"""

LARGE_ROWS = 64
"""Rows from which A's are so many that B would be read several times."""

LARGEST_SUMS = 8 << 20
"""Bytes of sums that the workspace may hold."""

BLOCK = 512
"""About how many steps of K are in a block: 23 tiles of A take half of a cache of 1 MiB then."""

LEAST_SLICE = 256
"""Steps of K in a slice at least: to add a tile to another costs as much as 5 steps."""

ENOUGH_TILES = 8
"""Tiles that keep the threads busy; with fewer there are slices."""


@dataclass(frozen=True)
class LongPlan:
    """K in ``slices`` of ``blocks`` blocks each."""

    slices: int
    blocks: int

    @property
    def cuts(self) -> int:
        """How many blocks there are in all."""
        return self.slices * self.blocks


def long_plan(spec: TextSpec, depth: str, item_bytes: int) -> LongPlan | None:
    """How K is cut; None if it is not. ``depth`` is what the tile takes for K (pairs for bf16)."""
    extents = [extent for _, extent in spec.batch]
    if spec.measured.get("K") == "whole":
        return None
    if not all(size.isdecimal() for size in (spec.m, spec.n, depth, *extents)):
        return None
    m, n, k = int(spec.m), int(spec.n), int(depth)
    repeats = int(multiply(*extents))
    width = panel_columns(spec.ctype)
    tiles = repeats * -(-m // 11) * -(-n // width)
    slices = 1
    if tiles < ENOUGH_TILES and repeats * m * n * k >= PARALLEL_PRODUCTS:
        slices = max(1, min(-(-ENOUGH_TILES // tiles), k // LEAST_SLICE))
    sums = slices * repeats * (m + 10) * -(-n // width) * width * ITEM_BYTES[spec.ctype]
    large = n * k * item_bytes > LARGE and m >= LARGE_ROWS and k >= 8 * BLOCK
    large &= not isinstance(spec.b, WidenedOperand)  # which is smaller, and cut along K anyway
    if sums > LARGEST_SUMS or not (large or slices > 1):
        return None
    return LongPlan(slices, max(1, round(k / slices / BLOCK)))


def sums_items(g: _Gemm, plan: LongPlan) -> str:
    """Elements of the sums in the workspace: a tile for each slice, rows of a tile and panel."""
    rows = add(g.spec.m, "31" if g.spec.bf16 else "10")  # rows of a tile times tiles, at least
    return multiply(*g.extents, str(plan.slices), rows, g.panels, str(g.width))


def long_reason(plan: LongPlan) -> str:
    """How K is cut, for the function's comment."""
    each = f"{plan.blocks} blocks" if plan.blocks > 1 else "one block"
    if plan.slices > 1:
        return f"K is cut into {plan.slices} slices, for the threads, of {each}."
    return f"K is cut into {each}: A and B are larger than the second-level cache."


def declare_panel_blocks(g: _Gemm, plan: LongPlan) -> tuple[str, str]:
    """Declare how many blocks of panels there are; returns how deep a block of K is, and how many
    tasks there are for a block of rows."""
    repeats = multiply(*g.extents, str(plan.slices))
    count = f"count_panel_blocks({g.panels}, {multiply('row_tiles', repeats)}, n_threads)"
    g.out.put(f"const int64_t panel_blocks = {count};")
    depth = divide_up(g.depth, plan.cuts)
    return depth, multiply(repeats, "panel_blocks")


def multiply_long(g: _Gemm, plan: LongPlan) -> None:
    """The loops, within a parallel region: sums of all slices, then what becomes of them."""
    spec, out = g.spec, g.out
    slices = [("slice", str(plan.slices))] if plan.slices > 1 else []
    total = str(plan.cuts)
    loops = [*spec.batch, *slices, ("row_block", "row_blocks"), ("panel_block", "panel_blocks")]
    with out.loops(loops, f"#pragma omp for collapse({len(loops)}) schedule(static)"):
        g.declare_batch_index()
        first = multiply("slice", str(plan.blocks)) if slices else "0"
        out.put(f"const int64_t first_block = {first};")
        if spec.bf16:
            out.put("take_tiles();")
        out.put("for (int64_t block = first_block;")
        with out.block(f"     block < first_block + {plan.blocks}; block++)"):
            out.put(f"const int64_t k_0 = block * {atom(g.depth)} / {total};")
            out.put(f"const int64_t depth = (block + 1) * {atom(g.depth)} / {total} - k_0;")
            out.put(f"for (int64_t panel = panel_block * {g.panels} / panel_blocks;")
            end = f"     panel < (panel_block + 1) * {g.panels} / panel_blocks; panel++)"
            with out.block(end):
                g.declare_columns()
                g.declare_panel("k_0", "depth")
                out.put("for (int64_t tile_index = row_block * row_tiles / row_blocks;")
                end = "     tile_index < (row_block + 1) * row_tiles / row_blocks; tile_index++)"
                with out.block(end):
                    _add_tile(g, plan)
        if spec.bf16:
            out.put("release_tiles();")
    _finish(g, plan)


def _tile_sums(g: _Gemm, plan: LongPlan, slice_index: str) -> str:
    """Where the sums of a tile are."""
    item = "batch_index" if g.spec.batch else "0"
    index = add(multiply(item, str(plan.slices)), slice_index)
    index = add(multiply(index, "row_tiles"), "tile_index")
    index = add(multiply(index, g.panels), "panel")
    return add("sums", multiply(index, g.tile_rows, str(g.width)))


def _add_tile(g: _Gemm, plan: LongPlan) -> None:
    """One tile's sums over one block of K."""
    out, ctype = g.out, g.spec.ctype
    g.declare_rows()
    a_start, a_row = g.a_start()
    index = "slice" if plan.slices > 1 else "0"
    out.put(f"{ctype} *const total = {_tile_sums(g, plan, index)};")
    if plan.blocks == 1:
        out.put(g.tile_call("depth", add(a_start, "k_0"), a_row, "total"))
        return
    out.put(f"{ctype} tile[{g.tile_rows} * {g.width}];")
    target = "block == first_block ? total : tile"
    out.put(g.tile_call("depth", add(a_start, "k_0"), a_row, target))
    out.put("#pragma omp simd")
    out.put(f"for (int64_t i = 0; i < (block == first_block ? 0 : rows * {g.width}); i++)")
    out.put("    total[i] += tile[i];")


def _finish(g: _Gemm, plan: LongPlan) -> None:
    """Slices added in order, and the epilogue."""
    spec, out = g.spec, g.out
    out.put("/* All sums are there: the epilogue. */")
    loops = [*spec.batch, ("tile_index", "row_tiles"), ("panel", g.panels)]
    with out.loops(loops, f"#pragma omp for collapse({len(loops)}) schedule(static)"):
        g.declare_batch_index()
        g.declare_columns()
        g.declare_rows()
        out.put(f"{spec.ctype} *const total = {_tile_sums(g, plan, '0')};")
        if plan.slices > 1:
            step = multiply("row_tiles", g.panels, g.tile_rows, str(g.width))
            with out.loops([("slice", str(plan.slices - 1))]):
                out.put("#pragma omp simd")
                out.put(f"for (int64_t i = 0; i < rows * {g.width}; i++)")
                out.put(f"    total[i] += total[(slice + 1) * {step} + i];")
        g.finish(out, f"total[i * {g.width} + j]")
