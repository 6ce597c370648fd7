"""C text of one linear layer with integer weights and float activations, and its epilogue over each
finished tile.

In goes a `WeightOnlySpec`, out comes a `Rendered`, as in `gemm.py`; the arithmetic is in
`weight_only_tile`. Rows of activations are read in place. Blocks of rows times panels of weights
are the tasks of the threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fxlite.codegen.c.gemm_pack import PARALLEL_PRODUCTS
from fxlite.codegen.c.gemm_spec import Operand, Rendered
from fxlite.codegen.c.gemm_text import (
    Lines,
    add,
    atom,
    block_comment,
    mentions,
    multiply,
    signature,
)
from fxlite.codegen.c.weight_only_tile import PANEL_COLUMNS


@dataclass(frozen=True)
class WeightOnlySpec:
    """One product; C expressions as in `gemm_spec.GemmSpec`.

    m           a literal is not 0; n and k are known, and not 0
    a           the activations, [m, k], elements of a row adjacent
    bits        8 or 4, of a weight
    group_size  weights along k that have one scale; divides k, and is of whole words of 4 bytes
    weight      what `pack_integers` made of it
    scale       [k / group_size, n] as `gemm_pack.pack_b` packs it
    epilogue    (sum, row, column) -> C statements that consume one element
    """

    name: str
    parameters: str
    batch: tuple[tuple[str, str], ...]
    m: str
    n: int
    k: int
    a: Operand
    bits: int
    group_size: int
    weight: str
    scale: str
    epilogue: Callable[[str, str, str], str]
    comment: str


def render_weight_only(spec: WeightOnlySpec) -> Rendered:
    """Print the function of one product."""
    width, groups = PANEL_COLUMNS, spec.k // spec.group_size
    panels = -(-spec.n // width)
    extents = [extent for _, extent in spec.batch]
    work = multiply(*extents, add(spec.m, "2"), str(spec.n), str(spec.k))
    threads = not (work.isdecimal() and int(work) < PARALLEL_PRODUCTS)
    large = "" if work.isdecimal() else f" && {work} > PARALLEL_PRODUCTS"
    out = Lines()
    out.put(f"const int64_t row_tiles = ({spec.m} + TILE_ROWS - 1) / TILE_ROWS;")
    tile, others = multiply(str(4 * spec.k), "TILE_ROWS"), multiply(*extents, str(panels))
    n_threads = "n_threads" if threads else "1"
    blocks = f"count_row_blocks(row_tiles, {tile}, {others}, {n_threads})"
    out.put(f"const int64_t row_blocks = {blocks};")
    loops = [*spec.batch, ("row_block", "row_blocks"), ("panel", str(panels))]
    pragma = f"#pragma omp parallel for collapse({len(loops)}) schedule(static) "
    pragma += f"num_threads(n_threads) if (n_threads > 1{large})"
    with out.loops(loops, pragma if threads else ""):
        out.put(f"const int64_t column_0 = panel * {width};")
        rest = f"{spec.n} - column_0"
        known = spec.n < width or spec.n % width == 0
        columns = str(min(spec.n, width)) if known else f"{rest} < {width} ? {rest} : {width}"
        out.put(f"const int columns = {columns};")
        weights = add(spec.weight, multiply("panel", str(width * spec.k * spec.bits // 32)))
        out.put(f"const int32_t *const weights = {weights};")
        scales = add(spec.scale, multiply("panel", str(width * groups)))
        out.put(f"const float *const scales = {scales};")
        _multiply_panel(spec, groups, out)
    extra = ("n_threads",) if threads else ()
    grouped = f", one scale for each {spec.group_size} of a row" if groups > 1 else ""
    head = [
        *block_comment(
            spec.comment,
            f"m = {spec.m}, n = {spec.n}, k = {spec.k}; tiles of TILE_ROWS x {width}.",
            f"The weight has {spec.bits} bits{grouped}; it is packed in panels of {width} columns.",
        ),
        *signature(spec.name, spec.parameters, extra),
    ]
    text = "\n".join([*head, "{", *out.lines, "}"]) + "\n"
    return Rendered(text, "0", extra)


def _multiply_panel(spec: WeightOnlySpec, groups: int, out: Lines) -> None:
    """Tile by tile, the sums and the epilogue."""
    width, m = PANEL_COLUMNS, atom(spec.m)
    out.put("for (int64_t tile_index = row_block * row_tiles / row_blocks;")
    with out.block("     tile_index < (row_block + 1) * row_tiles / row_blocks; tile_index++)"):
        out.put(f"const int64_t row_0 = tile_index * {m} / row_tiles;")
        out.put(f"const int rows = (tile_index + 1) * {m} / row_tiles - row_0;")
        out.put(f"float tile[TILE_ROWS * {width}];")
        rows = add(spec.a.pointer, spec.a.offset, multiply("row_0", spec.a.row_stride))
        out.put(
            f"multiply_scaled_int{spec.bits}(rows, columns, {groups}, {spec.group_size}, {rows}, "
            f"{spec.a.row_stride}, weights, scales, tile);"
        )
        statements = spec.epilogue(f"tile[i * {width} + j]", "row", "column")
        with out.block("for (int64_t i = 0; i < rows; i++)"):
            if mentions(statements, "row"):
                out.put("const int64_t row = row_0 + i;")
            out.put("#pragma omp simd")
            with out.block("for (int64_t j = 0; j < columns; j++)"):
                if mentions(statements, "column"):
                    out.put("const int64_t column = column_0 + j;")
                out.put(statements)
