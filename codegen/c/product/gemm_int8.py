"""C text of one integer product, of u8 or i8 with sums in int32, and the epilogue (requantize, or
dequantize and what follows) over each finished tile.

In goes an `Int8Spec`, out comes a `Rendered`, as in `gemm.py`; the arithmetic is in `tiles/int8.h`.
Rows of the left operand are read in place. The right one is a weight, packed when the model was
compiled, or computed: then it is packed into the workspace first, and what its zero point adds to
the sums of a row is known from the sum of that row of the left operand. Blocks of rows times panels
are the tasks of the threads.

While tiles of rows pass over a panel, they fetch the next one: the first tile would wait for memory
else, which lies idle during the others. A *long* K is cut into blocks, one after the other, so that
what one panel has of a block, and the next one, stay in the second-level cache, and all rows' too;
sums are in the workspace meanwhile. (A single tile of rows fetches nothing: processors do that
themselves where all that is read lies side by side, and 8 rows took 1.15 of the time.) Measured for
16 rows, K = 17768, N = 512 on a core of Zen 4: 0.72 ms for 0.95 (0.62 is what multiplying takes),
for 256 rows 10.9 for 12.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fxlite.codegen.c.dynamic_scale import Beside
from fxlite.codegen.c.product.gemm_int8_fused import fused_int8_call, fused_int8_tile, is_fused_int8
from fxlite.codegen.c.product.gemm_spec import Operand, Rendered
from fxlite.codegen.c.product.packed_operands import PANEL_COLUMNS, PARALLEL_PRODUCTS, packed_rows
from fxlite.codegen.c.product.spelled import text_operand
from fxlite.codegen.c.text.template_text import (
    Lines,
    add,
    atom,
    block_comment,
    divide_up,
    expression,
    mentions,
    multiply,
    signature,
)

FASTER = 4
"""How many products of 8-bit integers take as long as one of floats (measured: 3.7 to 3.9)."""


LONG = 8192
"""Steps of K from which it is cut: a panel of so many is 256 KiB."""

BLOCK = 1984
"""Steps of K in a block, 64 KiB of a panel; whole tiles of AMX."""


SMALL = 1 << 14
"""Bytes of a right operand of which all panels stay in the first-level cache."""

FEW_TILES = 4
"""Tiles of rows that then go through all panels together."""


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
    b           the right operand, or the name of the weight, [k, n] as `pack_int8` packs
                it
    epilogue    (sum, row, column) -> C statements that consume one element
    split_epilogue   (sums, row, first column, count) -> those for a vector of sums, in two parts,
                see `vector_printer.print_integer_vectors`; None where there is no such form
    beside      what is computed beside the result, tile by tile
    fetched     (address of a tile's first element, distance of rows) of arrays of floats that the
                epilogue stores or reads there, which are fetched while the tile is summed up
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
    beside: Beside | None = None
    fetched: tuple[tuple[str, str], ...] = ()
    split_epilogue: Callable[[str, str, str, str], tuple[str, str]] | None = None


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
    n_threads = "n_threads" if threads else "1"
    if _is_long(spec):
        tiles = multiply(panels, add(spec.m, "31"), str(PANEL_COLUMNS))  # of AMX, which has most
        workspace = multiply(tiles, "4")
        _multiply_blocks(spec, panels, out, n_threads, team)
    else:
        tile, others = multiply(spec.k, "QUAD_ROWS"), multiply(*extents, panels)
        blocks = f"count_row_blocks(row_tiles, {tile}, {others}, {n_threads})"
        if _is_small(spec):
            blocks = f"(row_tiles + {FEW_TILES - 1}) / {FEW_TILES}"
            out.put(f"/* {FEW_TILES} tiles of rows at a time pass over the whole, small weight. */")
        out.put(f"const int64_t row_blocks = {blocks};")
        loops = [*spec.batch, ("row_block", "row_blocks"), ("panel", panels)]
        with out.loops(loops, _parallel(len(loops), team)):
            _declare_panel(spec, panels, out)
            out.put("take_tiles();")
            _multiply_panel(spec, out)
            out.put("release_tiles();")
    extra = (("workspace",) if workspace != "0" else ()) + (("n_threads",) if threads else ())
    packed = "The weight" if isinstance(spec.b, str) else "The right operand"
    fused = fused_int8_tile(spec, lambda lines: _finish(spec, lines)) if is_fused_int8(spec) else ()
    head = [
        *fused,
        *block_comment(
            spec.comment,
            f"m = {spec.m}, n = {spec.n}, k = {spec.k}; tiles of QUAD_ROWS x {PANEL_COLUMNS}.",
            f"{packed} is packed, in panels of {PANEL_COLUMNS} columns of quads.",
            *[f"K is cut into blocks of {BLOCK}, with sums in the workspace."] * _is_long(spec),
        ),
        *signature(spec.name, spec.parameters, extra),
    ]
    body = out.lines
    if spec.beside is not None:
        body = [f"    {spec.beside.before}", *body, f"    {spec.beside.after}"]
    text = "\n".join([*head, "{", *body, "}"]) + "\n"
    return Rendered(text, expression(workspace), extra)


def _parallel(loops: int, team: str) -> str:
    """The pragma of so many nested loops that all threads share out."""
    return f"#pragma omp parallel for collapse({loops}) schedule(static) {team}" if team else ""


def _packed_rows(spec: Int8Spec) -> str:
    """`packed_rows` in C."""
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
    a, b, width = text_operand(spec.a), text_operand(right.operand), PANEL_COLUMNS
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
        row = add(a.pointer, a.offset, multiply("row", a.row_stride))
        at = add(multiply(_matrix(spec), spec.m), "row")
        out.put(f"row_sums[{at}] = sum_row_{spec.type}({spec.k}, {row}) * {right.offset};")
    return multiply(add(multiply(matrices, size), multiply(matrices, spec.m)), "4")


def _is_small(spec: Int8Spec) -> bool:
    """Whether all panels stay in the first-level cache: rows of the result are then written whole,
    panel after panel for a few tiles, and not each panel's columns of all rows."""
    sizes = (spec.n, spec.k)
    return all(s.isdecimal() for s in sizes) and int(spec.n) * int(spec.k) <= SMALL


def _is_long(spec: Int8Spec) -> bool:
    """Whether K is cut: the sums take no more than the activations then."""
    if isinstance(spec.b, Right) or spec.batch or (spec.m.isdecimal() and int(spec.m) < 12):
        return False
    sizes = (spec.n, spec.k)
    return all(s.isdecimal() for s in sizes) and int(spec.k) >= max(LONG, 4 * int(spec.n))


def _multiply_blocks(spec: Int8Spec, panels: str, out: Lines, n_threads: str, team: str) -> None:
    """Block after block of K, all panels and tiles of rows of a task."""
    tasks = f"4 * {n_threads}"
    count = f"{n_threads} == 1 ? 1 : {panels} < {tasks} ? {panels} : {tasks}" if team else "1"
    out.put(f"const int64_t panel_blocks = {count};")
    blocks = f"count_row_blocks(row_tiles, QUAD_ROWS * {BLOCK}, {panels}, {n_threads})"
    out.put(f"const int64_t row_blocks = {blocks};")
    out.put("int32_t *const sums = workspace;")
    loops = [("row_block", "row_blocks"), ("panel_block", "panel_blocks")]
    with out.loops(loops, _parallel(len(loops), team)):
        out.put("take_tiles();")
        with out.block(f"for (int64_t k_0 = 0; k_0 < {spec.k}; k_0 += {BLOCK})"):
            rest = f"{spec.k} - k_0"
            out.put(f"const int64_t depth = {rest} < {BLOCK} ? {rest} : {BLOCK};")
            out.put(f"for (int64_t panel = panel_block * {panels} / panel_blocks;")
            with out.block(f"     panel < (panel_block + 1) * {panels} / panel_blocks; panel++)"):
                _declare_panel(spec, panels, out)
                _multiply_panel(spec, out)
        out.put("release_tiles();")


def _declare_panel(spec: Int8Spec, panels: str, out: Lines) -> None:
    """Where a panel is, and how many columns it has."""
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


def _multiply_panel(spec: Int8Spec, out: Lines) -> None:
    """Tile by tile, the sums and, if they are whole, the epilogue."""
    width, is_long, is_fused = PANEL_COLUMNS, _is_long(spec), is_fused_int8(spec)
    a = text_operand(spec.a)
    quads = add("b_panel", str(width), *(["k_0 * 8"] * is_long))
    out.put(f"const int32_t *const quads = {quads};")
    depth = "depth" if is_long else spec.k
    half = str(int(depth) // 4 * 16) if depth.isdecimal() else f"({atom(depth)} / 4 * 16)"
    ahead = multiply(_packed_rows(spec), str(width))
    out.put("/* What tiles of rows fetch meanwhile: the panel behind this one. */")
    out.put(f"const int32_t *const next = quads + (row_tiles > 1 ? {ahead} : 0);")
    out.put("for (int64_t tile_index = row_block * row_tiles / row_blocks;")
    with out.block("     tile_index < (row_block + 1) * row_tiles / row_blocks; tile_index++)"):
        after = f"row_tiles, {spec.m}, QUAD_ROWS)"
        out.put(f"const int64_t row_0 = first_tile_row(tile_index, {after};")
        out.put(f"const int rows = first_tile_row(tile_index + 1, {after} - row_0;")
        if is_long:
            at = multiply(add(multiply("panel", "row_tiles"), "tile_index"), f"QUAD_ROWS * {width}")
            out.put(f"int32_t *const tile = sums + {at};")
        elif not is_fused:
            out.put(f"int32_t tile[QUAD_ROWS * {width}];")
        rows = add(a.pointer, a.offset, multiply("row_0", a.row_stride))
        rows, start = (add(rows, "k_0"), "k_0 == 0 ? b_panel : 0") if is_long else (rows, "b_panel")
        for address, step in spec.fetched:
            out.put(f"fetch_tile(rows, columns, {address}, {step});")
        ahead = f"next + tile_index % 2 * {half}"
        if is_fused:
            out.put(fused_int8_call(spec, rows, ahead))
        else:
            out.put(
                f"add_block_{spec.type}(rows, columns, {depth}, {rows}, {a.row_stride}, "
                f"quads, {start}, {ahead}, tile);"
            )
        if is_long:
            out.put(f"if (k_0 + {BLOCK} < {spec.k})")
            out.put("    continue;")
        if not is_fused:
            _finish(spec, out)
        if spec.beside is not None:
            first = [*(variable for variable, _ in spec.batch), "row_0", "column_0"]
            out.put(spec.beside.tile("rows", "columns", first))


def _finish(spec: Int8Spec, out: Lines) -> None:
    """The epilogue of a tile: by vectors, where there is such a form; then what belongs to columns
    is loaded once for all rows."""
    has_sums = isinstance(spec.b, Right) and spec.b.offset != 0
    total = f"tile[i * {PANEL_COLUMNS} + j]"
    if spec.split_epilogue:
        sums = "(sum - row_sum)" if has_sums else "sum"
        loads, statements = spec.split_epilogue(sums, "row", "column", "count")
        with out.block("for (int j = 0; j < columns; j += int_lanes)"):
            out.put("const int count = columns - j;")
            out.put("const int64_t column = column_0 + j;")
            out.put(loads)
            with out.block("for (int64_t i = 0; i < rows; i++)"):
                _put_row(spec, statements, has_sums, out)
                out.put(f"const int_vec sum = *(const int_vec *)&{total};")
                out.put(statements)
        return
    statements = spec.epilogue(f"({total} - row_sum)" if has_sums else total, "row", "column")
    with out.block("for (int64_t i = 0; i < rows; i++)"):
        _put_row(spec, statements, has_sums, out)
        out.put("#pragma omp simd")
        with out.block("for (int64_t j = 0; j < columns; j++)"):
            if mentions(statements, "column"):
                out.put("const int64_t column = column_0 + j;")
            out.put(statements)


def _put_row(spec: Int8Spec, statements: str, has_sums: bool, out: Lines) -> None:
    """What the statements of row i use of that row."""
    if has_sums or mentions(statements, "row"):
        out.put("const int64_t row = row_0 + i;")
    if has_sums:
        at = add(multiply(_matrix(spec), spec.m), "row")
        out.put(f"const int32_t row_sum = row_sums[{at}];")
