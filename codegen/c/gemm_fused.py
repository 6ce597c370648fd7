"""Printing a matrix product whose sums are short: its epilogue runs in the registers of the tile.

In: the function under construction (`gemm._Gemm`), whose spec has a ``vector_epilogue``. Out: a
function of one tile that finishes and stores each vector of sums where it is, to be called in the
place of ``multiply_tile_T`` and a loop over its result. To store and read the sums takes as long as
7 steps of K, so this gains for small K alone (measured: a third at K = 16, a tenth at K = 96).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fxlite.codegen.c.gemm_spec import GemmSpec
from fxlite.codegen.c.gemm_text import Lines, mentions, signature

if TYPE_CHECKING:
    from fxlite.codegen.c.gemm import _Gemm

LONGEST = 256
"""Steps of K up to which this is done."""

LEAST_ROWS = 12
"""Rows from which this is done: tiles have at most two heights, which are known then."""


def is_fused(spec: GemmSpec) -> bool:
    """Whether a product is printed this way."""
    sizes = (spec.m, spec.n, spec.k)
    if spec.vector_epilogue is None or spec.bf16 or not all(size.isdecimal() for size in sizes):
        return False
    if spec.measured.get("sums") == "stored":
        return False
    return int(spec.m) >= LEAST_ROWS and int(spec.n) > 0 and 0 < int(spec.k) <= LONGEST


def _names(parameters: str) -> list[str]:
    """The names in a parameter list."""
    return [re.split(r"[ *]+", part.strip())[-1] for part in parameters.split(",") if part.strip()]


def fused_call(g: _Gemm, a_start: str, a_row: str) -> str:
    """The call of the tile's function."""
    own = ["rows", "columns", "row_0", "column_0", a_start, a_row, "b_panel"]
    batch = [variable for variable, _ in g.spec.batch]
    return f"{g.spec.name}_tile({', '.join([*own, *batch, *_names(g.spec.parameters)])});"


def fused_tile(g: _Gemm) -> list[str]:
    """The tile's function, and before it the one that it calls; in lines."""
    t, batch = g.spec.ctype, "".join(f", int64_t {variable}" for variable, _ in g.spec.batch)
    own = f"int64_t row_0, int64_t column_0, const {t} *a_tile, int64_t a_row, const {t} *b_tile"
    parameters = f"{own}{batch}, {g.spec.parameters}"
    return [*_sums(g, parameters), "", *_switch(g, parameters), ""]


def _sums(g: _Gemm, parameters: str) -> list[str]:
    """The function that computes, finishes and stores the sums of a tile."""
    spec, t, out = g.spec, g.spec.ctype, Lines()
    assert spec.vector_epilogue is not None
    statements = spec.vector_epilogue("sum[i][v]", "row", "column", "count")
    out.put("#pragma GCC unroll 4")
    with out.block(f"for (int first = 0; first < columns; first += 2 * {t}_lanes)"):
        out.put(f"const int vectors = columns - first > {t}_lanes ? 2 : 1;")
        out.put(f"{t}_vec sum[TILE_ROWS][2];")
        tile = f"{spec.k}, a_tile, a_row, b_tile + first, {g.width}"
        out.put(f"sum_rows_{t}(rows, vectors, 1, {tile}, sum);")
        out.put("#pragma GCC unroll 16")
        with out.block("for (int i = 0; i < rows; i++)"):
            if mentions(statements, "row"):
                out.put("const int64_t row = row_0 + i;")
            out.put("#pragma GCC unroll 2")
            with out.block("for (int v = 0; v < vectors; v++)"):
                out.put(f"const int count = columns - first - v * {t}_lanes;")
                out.put(f"const int64_t column = column_0 + first + v * {t}_lanes;")
                out.put(statements)
    head = signature(f"{spec.name}_sums", f"const int rows, const int columns, {parameters}", ())
    inline = "inline __attribute__((always_inline))"
    return [inline, *head, "{", *out.lines, "}"]


def _switch(g: _Gemm, parameters: str) -> list[str]:
    """The function of one tile, for the two heights of tiles and the two widths of panels."""
    spec, n, out = g.spec, int(g.spec.n), Lines()
    rest = ", ".join(_names(parameters))
    widths = sorted({min(n, g.width), n % g.width or min(n, g.width)})
    tiles = f"(({spec.m} + TILE_ROWS - 1) / TILE_ROWS)"
    out.put("/* Tiles have LOW rows, or one more. */")
    out.put(f"enum {{ LOW = {spec.m} / {tiles}, HIGH = LOW < TILE_ROWS ? LOW + 1 : LOW }};")
    for height in ("LOW", "HIGH"):
        for columns in widths:
            conditions = ["rows == LOW"] * (height == "LOW")
            conditions += [f"columns == {columns}"] * (columns != widths[-1])
            word = "" if (height, columns) == ("LOW", widths[0]) else "else "
            out.put(f"{word}if ({' && '.join(conditions)})" if conditions else "else")
            out.put(f"    {spec.name}_sums({height}, {columns}, {rest});")
    head = signature(f"{spec.name}_tile", f"int rows, int columns, {parameters}", ())
    return ["TILE_FUNCTION", *head, "{", *out.lines, "}"]
