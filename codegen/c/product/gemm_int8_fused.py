"""Printing an integer product whose sums are short: its epilogue runs in the registers of the tile,
as `gemm_fused` does for floats.

In: an `Int8Spec` that has a ``split_epilogue``. Out: a function of one tile that finishes and
stores each vector of sums where it is, and its call. What that gains, measured on a Zen 4 core: a
third of the time at K = 16, a fifth at K = 32, a tenth at K = 64, 3 % at K = 256. The tiles of AMX
leave registers by memory in any case, and are finished there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fxlite.codegen.c.product.gemm_fused import LEAST_ROWS
from fxlite.codegen.c.product.packed_operands import PANEL_COLUMNS, QUAD
from fxlite.codegen.c.text.template_text import Lines, mentions, parameter_names, signature
from fxlite.codegen.kernel.builder import text_of

if TYPE_CHECKING:
    from fxlite.codegen.c.product.gemm_int8 import Int8Spec

LONGEST = 256
"""Steps of K up to which this is done."""

SUMS_COMMENT = ["/* A tile of the function below: sums are finished in registers, and stored. */"]


def is_fused_int8(spec: Int8Spec) -> bool:
    """Whether a product is printed this way."""
    sizes = (spec.m, spec.n, spec.k)
    if spec.split_epilogue is None or not isinstance(spec.b, str):
        return False
    if not all(size.isdecimal() for size in sizes):
        return False
    m, n, k = map(int, sizes)
    return m >= LEAST_ROWS and n > 0 and 0 < k <= LONGEST and k % QUAD == 0


def fused_int8_call(spec: Int8Spec, rows: str, next_panel: str) -> str:
    """The call of the tile's function, for rows of the left operand from this address on."""
    own = [
        "rows",
        "columns",
        "row_0",
        "column_0",
        rows,
        text_of(spec.a.row_stride),
        "b_panel",
        next_panel,
    ]
    batch = [variable for variable, _ in spec.batch]
    return f"{spec.name}_tile({', '.join([*own, *batch, *parameter_names(spec.parameters)])});"


def fused_int8_tile(spec: Int8Spec, finish: Callable[[Lines], None]) -> list[str]:
    """The tile's function, and before it the one that it calls; in lines. ``finish`` puts the
    epilogue of a tile in memory."""
    batch = "".join(f"int64_t {variable}, " for variable, _ in spec.batch)
    own = "int64_t row_0, int64_t column_0, const void *a_tile, int64_t a_row"
    panels = "const int32_t *b_panel, const int32_t *next"
    parameters = f"{own}, {panels}, {batch}{spec.parameters}"
    return [*_sums(spec, parameters), "", *_switch(spec, parameters, finish), ""]


def _sums(spec: Int8Spec, parameters: str) -> list[str]:
    """The function that computes, finishes and stores the sums of a tile."""
    assert spec.split_epilogue is not None
    loads, statements = spec.split_epilogue("sum", "row", "column", "count")
    out, quads = Lines(), str(int(spec.k) // QUAD)
    out.put("#pragma GCC unroll 4")
    with out.block("for (int first = 0; first < columns; first += 2 * int_lanes)"):
        out.put("const int vectors = columns - first > int_lanes ? 2 : 1;")
        out.put("const int32_t *const starts = b_panel + first;")
        out.put("int_vec sums[TILE_ROWS][2];")
        out.put(
            f"sum_rows_int8(rows, vectors, 1, {int(spec.type == 'i8')}, {quads}, a_tile, a_row, 0, "
            f"starts + {PANEL_COLUMNS}, starts, 0, next, sums);"
        )
        put_finish(out, ("column", "column_0"), ("row", "row_0", "rows"), loads, statements)
    head = signature(f"{spec.name}_sums", f"const int rows, const int columns, {parameters}", ())
    return [*SUMS_COMMENT, "inline __attribute__((always_inline))", *head, "{", *out.lines, "}"]


def put_finish(
    out: Lines, column: tuple[str, str], row: tuple[str, str, str], loads: str, statements: str
) -> None:
    """Finish and store the vectors of ``sums`` by a split epilogue. ``column`` has the name that it
    gives to columns and where they start; ``row`` the same of rows, and their number."""
    out.put("#pragma GCC unroll 2")
    with out.block("for (int v = 0; v < vectors; v++)"):
        out.put("const int count = columns - first - v * int_lanes;")
        out.put(f"const int64_t {column[0]} = {column[1]} + first + v * int_lanes;")
        out.put(loads)
        out.put("#pragma GCC unroll 16")
        with out.block(f"for (int i = 0; i < {row[2]}; i++)"):
            if mentions(statements, row[0]):
                out.put(f"const int64_t {row[0]} = {row[1]} + i;")
            out.put("const int_vec sum = sums[i][v];")
            out.put(statements)


def _switch(spec: Int8Spec, parameters: str, finish: Callable[[Lines], None]) -> list[str]:
    """The function of one tile, for the two heights of tiles and the two widths of panels."""
    out, width, n = Lines(), PANEL_COLUMNS, int(spec.n)
    out.put("#ifdef HAS_TILES")
    out.put(f"int32_t tile[QUAD_ROWS * {width}];")
    out.put(
        f"add_block_{spec.type}(rows, columns, {spec.k}, a_tile, a_row, b_panel + {width}, b_panel,"
        f" next, tile);"
    )
    finish(out)
    out.put("#else")
    put_switch(out, f"{spec.name}_sums", spec.m, n, ", ".join(parameter_names(parameters)))
    out.put("#endif")
    head = signature(f"{spec.name}_tile", f"int rows, int columns, {parameters}", ())
    return ["TILE_FUNCTION", *head, "{", *out.lines, "}"]


def put_switch(
    out: Lines, name: str, m: str, n: int, rest: str, rows: str = "rows"
) -> None:  # fmt: skip
    """The call of the function ``name``, of a tile's numbers of ``rows`` and columns, which are
    known when compiling, and of ``rest``. Of m rows all tiles have nearly the same number."""
    out.put("/* Tiles have LOW rows or, if they do not divide all, one more. */")
    out.put(f"enum {{ TILES = ({m} + TILE_ROWS - 1) / TILE_ROWS }};")
    out.put(f"enum {{ LOW = {m} / TILES, HIGH = LOW + ({m} % TILES > 0) }};")
    whole = min(n, PANEL_COLUMNS)
    widths = sorted({whole, n % PANEL_COLUMNS or whole})
    for height in ("LOW", "HIGH"):
        for columns in widths:
            conditions = [f"columns == {columns}"] * (columns != widths[-1])
            if height == "LOW":
                is_low = f"{rows} == LOW || LOW == HIGH"
                conditions.append(f"({is_low})" if conditions else is_low)
            word = "" if (height, columns) == ("LOW", widths[0]) else "else "
            out.put(f"{word}if ({' && '.join(conditions)})" if conditions else "else")
            out.put(f"    {name}({height}, {columns}, {rest});")
