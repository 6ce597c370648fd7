"""Where K of a product of floats is cut into blocks or slices (`gemm_walk.Cut`), and why.

In: a `GemmSpec`. Out: its cut, if any.
"""

from __future__ import annotations

from fxlite.codegen.c.product.gemm_spec import GemmSpec, Operand, WidenedOperand, packs_b
from fxlite.codegen.c.product.gemm_walk import Cut
from fxlite.codegen.c.product.packed_operands import ITEM_BYTES, PAIR_BYTES, PARALLEL_PRODUCTS, panel_columns
from fxlite.codegen.kernel.builder import divide_up
from fxlite.scalar.index import Index, extremum, product

LARGE = 16 << 20
"""Bytes of B that the last-level cache does not keep. (Where it does, whole sums are as fast:
measured for 8 MiB.)"""

LONG_ROWS = 6 << 10
"""Bytes of a row of A from which few rows fit in a second-level cache beside a B that is packed for this product
(measured with 512 KiB: 0.46 to 0.86 of the time of whole sums)."""

LARGE_ROWS = 64
"""Rows from which A's are so many that B would be read several times."""

LARGEST_SUMS = 16 << 20
"""Bytes of sums that the workspace may hold."""

BLOCK = 512
"""About how many steps of K are in a block: 23 tiles of A take half of a cache of 1 MiB then."""

LEAST_SLICE = 256
"""Steps of K in a slice at least: to add a tile to another costs as much as 5 steps."""

ENOUGH_TILES = 8
"""Tiles that keep the threads busy; with fewer there are slices."""

BLOCK_BYTES = 2048
"""Bytes of a row of A in a block, where sizes are named: a panel of B takes 64 KiB then."""

MOST_PANELS = 64
"""Panels whose sums a thread keeps where sizes are named, beside a block of A's rows that they all read."""


def cut_of(spec: GemmSpec) -> Cut | None:
    """How K is cut; None if it is not. What is widened, or of named sizes, is cut by K alone."""
    m, n, k = (size.constant for size in (spec.m, spec.n, spec.k))
    repeats = product(extent for _, extent in spec.batch).constant
    if not (m is None or n is None or k is None or repeats is None):
        found = _cut_of_sizes(spec, m, n, -(-k // 2) if spec.bf16 else k, repeats)
        if found is not None:
            return found
    if isinstance(spec.b, WidenedOperand):
        return Cut(1, Index.of(round(k / BLOCK)), own=1) if k is not None and k >= 2 * BLOCK else None
    if None not in (m, n, k) or not packs_b(spec) or spec.bf16 or spec.measured.get("K") == "whole":
        return None
    size = BLOCK_BYTES // ITEM_BYTES[spec.ctype]
    if k is not None and k * ITEM_BYTES[spec.ctype] < LONG_ROWS:
        return None
    return Cut(1, extremum("max", divide_up(spec.k, size), 1), size, MOST_PANELS)


def _cut_of_sizes(spec: GemmSpec, m: int, n: int, k: int, repeats: int) -> Cut | None:
    """The cut of a product of known sizes, of which ``k`` counts pairs for bf16."""
    if spec.measured.get("K") == "whole" or 0 in (m, n, k, repeats):
        return None
    item_bytes = PAIR_BYTES * (1 + spec.split) if spec.bf16 else ITEM_BYTES[spec.ctype]
    width = panel_columns(spec.ctype)
    tiles = repeats * -(-m // 11) * -(-n // width)
    slices = 1
    if tiles < ENOUGH_TILES and repeats * m * n * k >= PARALLEL_PRODUCTS:
        slices = max(1, min(-(-ENOUGH_TILES // tiles), k // LEAST_SLICE))
    sums = slices * repeats * (m + 10) * -(-n // width) * width * ITEM_BYTES[spec.ctype]
    large = n * k * item_bytes > LARGE and m >= LARGE_ROWS and k >= 8 * BLOCK
    large |= isinstance(spec.b, Operand) and m >= LARGE_ROWS and n >= LARGE_ROWS and k * item_bytes >= LONG_ROWS
    large &= not isinstance(spec.b, WidenedOperand)  # which is smaller, and cut along K anyway
    if sums > LARGEST_SUMS or not (large or slices > 1):
        return None
    return Cut(slices, Index.of(max(1, round(k / slices / BLOCK))))


def long_reason(cut: Cut) -> str:
    """How K is cut, for the function's comment."""
    if cut.size:
        return f"K is cut into blocks of {cut.size}, with sums for each thread."
    each = "one block" if cut.blocks == 1 else f"{cut.blocks} blocks"
    if cut.slices > 1:
        return f"K is cut into {cut.slices} slices, for the threads, of {each}."
    return f"K is cut into {each}: A and B are larger than the second-level cache."
