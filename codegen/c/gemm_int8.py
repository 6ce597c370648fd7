"""C text of one integer product, of u8 or i8 with sums in int32, and the epilogue (requantize, or
dequantize and what follows) over each finished tile.

In goes an `Int8Spec`, out comes a `Rendered`, as in `gemm.py`; the arithmetic is in `int8_tile`.
Rows of the left operand are read in place. The right one is a weight, packed when the model was
compiled, or computed: then it is packed into the workspace first, and what its zero point adds to
the sums of a row is known from the sum of that row of the left operand. Blocks of rows times panels
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
    divide_up,
    mentions,
    multiply,
    signature,
)
from fxlite.codegen.c.int8_tile import PANEL_COLUMNS, packed_rows

FASTER = 4
"""How many products of 8-bit integers take as long as one of floats (measured: 3.7 to 3.9)."""


@dataclass(frozen=True)
class Right:
    """The right operand, [k, n], where it is computed; ``zero_point`` is its own,
    ``left_zero_point`` that of the left operand."""

    operand: Operand
    type: str
    zero_point: int
    left_zero_point: int

    @property
    def offset(self) -> int:
        """What is subtracted from a number as the tile reads it, signed."""
        return self.zero_point - (128 if self.type == "u8" else 0)


@dataclass(frozen=True)
class Int8Spec:
    """One product; C expressions as in `gemm_spec.GemmSpec`.

    a           the left operand, [m, k], elements of a row adjacent
    type        "u8" or "i8", of the left operand
    b           the right operand, or the name of the weight, [k, n] as `int8_tile.pack_int8` packs
                it
    epilogue    (sum, row, column) -> C statements that consume one element
    """

    name: str
    parameters: str
    batch: tuple[tuple[str, str], ...]
    m: str
    n: str
    k: str
    a: Operand
    type: str
    b: Right | str
    epilogue: Callable[[str, str, str], str]
    comment: str


def render_int8(spec: Int8Spec) -> Rendered:
    """Print the function of one product."""
    extents = [extent for _, extent in spec.batch]
    panels = divide_up(spec.n, PANEL_COLUMNS)
    work = divide_up(multiply(*extents, add(spec.m, "2"), spec.n, spec.k), FASTER)
    threads = not (work.isdecimal() and int(work) < PARALLEL_PRODUCTS)
    large = "" if work.isdecimal() else f" && {work} > PARALLEL_PRODUCTS"
    team = f"num_threads(n_threads) if (n_threads > 1{large})" if threads else ""
    out = Lines()
    workspace = "0"
    if isinstance(spec.b, Right):
        workspace = _pack_right(spec, spec.b, panels, out, team)
    out.put(f"const int64_t row_tiles = ({spec.m} + QUAD_ROWS - 1) / QUAD_ROWS;")
    tile, others = multiply(spec.k, "QUAD_ROWS"), multiply(*extents, panels)
    n_threads = "n_threads" if threads else "1"
    blocks = f"count_row_blocks(row_tiles, {tile}, {others}, {n_threads})"
    out.put(f"const int64_t row_blocks = {blocks};")
    loops = [*spec.batch, ("row_block", "row_blocks"), ("panel", panels)]
    with out.loops(loops, _parallel(len(loops), team)):
        _multiply_panel(spec, panels, out)
    extra = (("workspace",) if workspace != "0" else ()) + (("n_threads",) if threads else ())
    packed = "The weight" if isinstance(spec.b, str) else "The right operand"
    head = [
        *block_comment(
            spec.comment,
            f"m = {spec.m}, n = {spec.n}, k = {spec.k}; tiles of QUAD_ROWS x {PANEL_COLUMNS}.",
            f"{packed} is packed, in panels of {PANEL_COLUMNS} columns of quads.",
        ),
        *signature(spec.name, spec.parameters, extra),
    ]
    text = "\n".join([*head, "{", *out.lines, "}"]) + "\n"
    return Rendered(text, workspace, extra)


def _parallel(loops: int, team: str) -> str:
    """The pragma of so many nested loops that all threads share out."""
    return f"#pragma omp parallel for collapse({loops}) schedule(static) {team}" if team else ""


def _packed_rows(spec: Int8Spec) -> str:
    """`int8_tile.packed_rows` in C."""
    return str(packed_rows(int(spec.k))) if spec.k.isdecimal() else f"({add(spec.k, '7')}) / 4"


def _matrix(spec: Int8Spec) -> str:
    """The number of a matrix of the batch."""
    index = "0"
    for variable, extent in spec.batch:
        index = variable if index == "0" else add(multiply(f"({index})", extent), variable)
    return index if index in ("0", *(v for v, _ in spec.batch)) else f"({index})"


def _pack_right(spec: Int8Spec, right: Right, panels: str, out: Lines, team: str) -> str:
    """Pack all right operands, and sum up the left ones' rows if that matters; returns the bytes of
    workspace for it."""
    b, width = right.operand, PANEL_COLUMNS
    left_offset = right.left_zero_point + (128 if spec.type == "i8" else 0)
    matrices = multiply(*(extent for _, extent in spec.batch)) if spec.batch else "1"
    size = multiply(panels, _packed_rows(spec), str(width))
    out.put("int32_t *const packed = workspace;")
    loops = [*spec.batch, ("panel", panels)]
    with out.loops(loops, _parallel(len(loops), team)):
        column = multiply(f"panel * {width}", b.col_stride)
        panel = multiply("panel", _packed_rows(spec), str(width))
        rest = f"{atom(spec.n)} - panel * {width}"
        out.put(
            f"pack_panel_{right.type}({spec.k}, {rest} < {width} ? {rest} : {width}, "
            f"{add(b.pointer, b.offset, column)}, {b.row_stride}, {b.col_stride}, {left_offset}, "
            f"{right.offset}, {add('packed', multiply(_matrix(spec), size), panel)});"
        )
    if right.offset == 0:
        return multiply(matrices, size, "4")
    out.put(f"int32_t *const row_sums = packed + {multiply(matrices, size)};")
    loops = [*spec.batch, ("row", spec.m)]
    with out.loops(loops, _parallel(len(loops), team)):
        row = add(spec.a.pointer, spec.a.offset, multiply("row", spec.a.row_stride))
        at = add(multiply(_matrix(spec), spec.m), "row")
        out.put(f"row_sums[{at}] = sum_row_{spec.type}({spec.k}, {row}) * {right.offset};")
    return multiply(add(multiply(matrices, size), multiply(matrices, spec.m)), "4")


def _multiply_panel(spec: Int8Spec, panels: str, out: Lines) -> None:
    """Tile by tile, the sums and the epilogue."""
    width = PANEL_COLUMNS
    out.put(f"const int64_t column_0 = panel * {width};")
    known = spec.n.isdecimal() and (int(spec.n) < width or int(spec.n) % width == 0)
    rest = f"{atom(spec.n)} - column_0"
    columns = str(min(int(spec.n), width)) if known else f"{rest} < {width} ? {rest} : {width}"
    out.put(f"const int columns = {columns};")
    matrix = multiply(_matrix(spec), panels, _packed_rows(spec), str(width))
    start = add(spec.b, "0") if isinstance(spec.b, str) else add("packed", matrix)
    start = add(start, multiply("panel", _packed_rows(spec), str(width)))
    out.put(f"const int32_t *const b_panel = {start};")
    out.put("take_tiles();")
    out.put("for (int64_t tile_index = row_block * row_tiles / row_blocks;")
    with out.block("     tile_index < (row_block + 1) * row_tiles / row_blocks; tile_index++)"):
        after = f"row_tiles, {spec.m}, QUAD_ROWS)"
        out.put(f"const int64_t row_0 = first_tile_row(tile_index, {after};")
        out.put(f"const int rows = first_tile_row(tile_index + 1, {after} - row_0;")
        out.put(f"int32_t tile[QUAD_ROWS * {width}];")
        rows = add(spec.a.pointer, spec.a.offset, multiply("row_0", spec.a.row_stride))
        out.put(
            f"multiply_tile_{spec.type}(rows, columns, {spec.k}, {rows}, {spec.a.row_stride}, "
            f"b_panel, tile);"
        )
        total = f"tile[i * {width} + j]"
        has_sums = isinstance(spec.b, Right) and spec.b.offset != 0
        if has_sums:
            total = f"({total} - row_sum)"
        statements = spec.epilogue(total, "row", "column")
        with out.block("for (int64_t i = 0; i < rows; i++)"):
            if has_sums or mentions(statements, "row"):
                out.put("const int64_t row = row_0 + i;")
            if has_sums:
                at = add(multiply(_matrix(spec), spec.m), "row")
                out.put(f"const int32_t row_sum = row_sums[{at}];")
            out.put("#pragma omp simd")
            with out.block("for (int64_t j = 0; j < columns; j++)"):
                if mentions(statements, "column"):
                    out.put("const int64_t column = column_0 + j;")
                out.put(statements)
    out.put("release_tiles();")
