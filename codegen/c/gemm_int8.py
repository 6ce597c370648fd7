"""C text of one integer product with a constant weight: sums of u8 or i8 by i8 in int32, and the
epilogue (requantize, or dequantize and what follows) over each finished tile.

In goes an `Int8Spec`, out comes a `Rendered`, as in `gemm.py`; the arithmetic is in `int8_tile`.
Rows of activations are read in place. Blocks of rows times panels of weights are the tasks of the
threads.
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
    divide_up,
    mentions,
    multiply,
    signature,
)
from fxlite.codegen.c.int8_tile import PANEL_COLUMNS, packed_rows

FASTER = 4
"""How many products of 8-bit integers take as long as one of floats (measured: 3.7 to 3.9)."""


@dataclass(frozen=True)
class Int8Spec:
    """One product; C expressions as in `gemm_spec.GemmSpec`.

    m           a literal is not 0; n and k are known, and not 0
    a           the activations, [m, k], elements of a row adjacent
    type        "u8" or "i8", of the activations
    weight      the packed weight, [k, n] as `int8_tile.pack_int8` packs it
    epilogue    (sum, row, column) -> C statements that consume one element
    """

    name: str
    parameters: str
    batch: tuple[tuple[str, str], ...]
    m: str
    n: int
    k: int
    a: Operand
    type: str
    weight: str
    epilogue: Callable[[str, str, str], str]
    comment: str


def render_int8(spec: Int8Spec) -> Rendered:
    """Print the function of one product."""
    extents = [extent for _, extent in spec.batch]
    panels = divide_up(str(spec.n), PANEL_COLUMNS)
    work = divide_up(multiply(*extents, add(spec.m, "2"), str(spec.n), str(spec.k)), FASTER)
    threads = not (work.isdecimal() and int(work) < PARALLEL_PRODUCTS)
    large = "" if work.isdecimal() else f" && {work} > PARALLEL_PRODUCTS"
    out = Lines()
    out.put(f"const int64_t row_tiles = ({spec.m} + TILE_ROWS - 1) / TILE_ROWS;")
    tile, others = multiply(str(spec.k), "TILE_ROWS"), multiply(*extents, panels)
    n_threads = "n_threads" if threads else "1"
    blocks = f"count_row_blocks(row_tiles, {tile}, {others}, {n_threads})"
    out.put(f"const int64_t row_blocks = {blocks};")
    loops = [*spec.batch, ("row_block", "row_blocks"), ("panel", panels)]
    pragma = f"#pragma omp parallel for collapse({len(loops)}) schedule(static) "
    pragma += f"num_threads(n_threads) if (n_threads > 1{large})"
    with out.loops(loops, pragma if threads else ""):
        _multiply_panel(spec, out)
    extra = ("n_threads",) if threads else ()
    head = [
        *block_comment(
            spec.comment,
            f"m = {spec.m}, n = {spec.n}, k = {spec.k}; tiles of TILE_ROWS x {PANEL_COLUMNS}.",
            f"The weight is packed, in panels of {PANEL_COLUMNS} columns of quads.",
        ),
        *signature(spec.name, spec.parameters, extra),
    ]
    text = "\n".join([*head, "{", *out.lines, "}"]) + "\n"
    return Rendered(text, "0", extra)


def _multiply_panel(spec: Int8Spec, out: Lines) -> None:
    """Tile by tile, the sums and the epilogue."""
    width, m = PANEL_COLUMNS, atom(spec.m)
    out.put(f"const int64_t column_0 = panel * {width};")
    if spec.n < width or spec.n % width == 0:
        out.put(f"const int columns = {min(spec.n, width)};")
    else:
        rest = f"{spec.n} - column_0"
        out.put(f"const int columns = {rest} < {width} ? {rest} : {width};")
    start = add(spec.weight, multiply("panel", str(packed_rows(spec.k)), str(width)))
    out.put(f"const int32_t *const b_panel = {start};")
    out.put("for (int64_t tile_index = row_block * row_tiles / row_blocks;")
    with out.block("     tile_index < (row_block + 1) * row_tiles / row_blocks; tile_index++)"):
        out.put(f"const int64_t row_0 = tile_index * {m} / row_tiles;")
        out.put(f"const int rows = (tile_index + 1) * {m} / row_tiles - row_0;")
        out.put(f"int32_t tile[TILE_ROWS * {width}];")
        rows = add(spec.a.pointer, spec.a.offset, multiply("row_0", spec.a.row_stride))
        out.put(
            f"multiply_tile_{spec.type}(rows, columns, {spec.k}, {rows}, {spec.a.row_stride}, "
            f"b_panel, tile);"
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
