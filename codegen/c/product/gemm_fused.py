"""Printing a matrix product whose sums are short: its epilogue runs in the registers of the tile.

In: the function under construction (`gemm._Gemm`), whose spec has a ``vector_epilogue``. Out: a
function of one tile that finishes and stores each vector of sums where it is, to be called in the
place of ``multiply_tile_T`` and a loop over its result. To store and read the sums takes as long as
7 steps of K, so this gains for small K alone (measured: a third at K = 16, a tenth at K = 96; in
bf16, where a step is two of K, twice that).

The tiles of AMX leave registers by memory in any case: there products of bf16 store the sums, and
finish these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxlite.codegen.c.product.spelled import TextSpec
from fxlite.codegen.c.text.template_text import Lines, mentions, parameter_names, signature

if TYPE_CHECKING:
    from fxlite.codegen.c.product.gemm import _Gemm

LONGEST = 256
"""Steps of K up to which this is done; in bf16 a step is a pair."""

LEAST_ROWS = 12
"""Rows from which this is done: tiles have at most two heights, which are known then."""


def is_fused(spec: TextSpec) -> bool:
    """Whether a product is printed this way."""
    sizes = (spec.m, spec.n, spec.k)
    if spec.vector_epilogue is None or spec.split or not all(size.isdecimal() for size in sizes):
        return False
    if spec.measured.get("sums") == "stored":
        return False
    steps = -(-int(spec.k) // 2) if spec.bf16 else int(spec.k)
    return int(spec.m) >= LEAST_ROWS and int(spec.n) > 0 and 0 < steps <= LONGEST


def fused_call(g: _Gemm, a_start: str, a_row: str) -> str:
    """The call of the tile's function."""
    own = ["rows", "columns", "row_0", "column_0", a_start, a_row, "b_panel"]
    batch = [variable for variable, _ in g.spec.batch]
    return f"{g.spec.name}_tile({', '.join([*own, *batch, *parameter_names(g.spec.parameters)])});"


def fused_tile(g: _Gemm) -> list[str]:
    """The tile's function, and before it the one that it calls; in lines."""
    t, batch = g.item_type, "".join(f", int64_t {variable}" for variable, _ in g.spec.batch)
    own = f"int64_t row_0, int64_t column_0, const {t} *a_tile, int64_t a_row, const {t} *b_tile"
    parameters = f"{own}{batch}, {g.spec.parameters}"
    return [*_sums(g, parameters), "", *_switch(g, parameters), ""]


def _sums(g: _Gemm, parameters: str) -> list[str]:
    """The function that computes, finishes and stores the sums of a tile."""
    spec, t, out = g.spec, g.spec.ctype, Lines()
    out.put("#pragma GCC unroll 4")
    with out.block(f"for (int first = 0; first < columns; first += 2 * {t}_lanes)"):
        out.put(f"const int vectors = columns - first > {t}_lanes ? 2 : 1;")
        out.put(f"{t}_vec sum[TILE_ROWS][2];")
        name, step = ("bf16", "") if spec.bf16 else (t, f", {g.width}")
        tile = f"{g.depth}, a_tile, a_row, b_tile + first{step}"
        out.put(f"sum_rows_{name}(rows, vectors, 1, {tile}, sum);")
        out.put("#pragma GCC unroll 16")
        _finish(g, out, "2", "vectors", "first", "sum[i][v]")
    head = signature(f"{spec.name}_sums", f"const int rows, const int columns, {parameters}", ())
    inline = "inline __attribute__((always_inline))"
    return [inline, *head, "{", *out.lines, "}"]


def _finish(g: _Gemm, out: Lines, unroll: str, vectors: str, first: str, total: str) -> None:
    """The epilogue over the rows i and vectors v of sums from column `first` of the tile on."""
    spec, t = g.spec, g.spec.ctype
    assert spec.vector_epilogue is not None
    statements = spec.vector_epilogue(total, "row", "column", "count")
    with out.block("for (int i = 0; i < rows; i++)"):
        if mentions(statements, "row"):
            out.put("const int64_t row = row_0 + i;")
        out.put(f"#pragma GCC unroll {unroll}")
        with out.block(f"for (int v = 0; v < {vectors}; v++)"):
            before = f" - {first}" if first else ""
            out.put(f"const int count = columns{before} - v * {t}_lanes;")
            start = f"column_0 + {first}" if first else "column_0"
            out.put(f"const int64_t column = {start} + v * {t}_lanes;")
            out.put(statements)


def _switch(g: _Gemm, parameters: str) -> list[str]:
    """The function of one tile, for the two heights of tiles and the two widths of panels."""
    spec, n, out = g.spec, int(g.spec.n), Lines()
    rest = ", ".join(parameter_names(parameters))
    if spec.bf16:
        out.put("#ifdef HAS_TILES")
        out.put(f"float tile[PAIR_ROWS * {g.width}];")
        out.put(f"multiply_tile_bf16(rows, columns, {g.depth}, a_tile, a_row, b_tile, tile);")
        vectors = "(columns + float_lanes - 1) / float_lanes"
        total = f"(*(float_vec *)(tile + i * {g.width} + v * float_lanes))"
        _finish(g, out, "8", vectors, "", total)
        out.put("#else")
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
    if spec.bf16:
        out.put("#endif")
    head = signature(f"{spec.name}_tile", f"int rows, int columns, {parameters}", ())
    return ["TILE_FUNCTION", *head, "{", *out.lines, "}"]
