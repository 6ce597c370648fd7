"""Print a product whose sums are short, so that its epilogue runs in the registers of the tile.

In: the function under construction, whose spec has an epilogue for ``vectors``. Out: a function of one
tile that finishes and stores each vector of sums directly, and its call. Storing and reading sums takes
as long as 7 steps of K, so this only helps for small K (measured time saved in float: a third at K = 16,
a tenth at K = 96; in bf16, where a step covers two of K, twice that; in integers a third at K = 16, a
tenth at K = 64, 3 % at K = 256).

The tiles of AMX leave registers through memory in any case: there a tile is stored, and then finished.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fxlite.codegen.c.product.gemm_spec import (
    ITEM_BYTES,
    MOST_PACKED,
    PACKED_BLOCK,
    PAIR_BYTES,
    PANEL_COLUMNS,
    PARALLEL_PRODUCTS,
    GemmSpec,
    PackedOperand,
    ProductSpec,
    WidenedOperand,
    at_most,
    multiplies_rows,
    packs_b,
    panel_columns,
    reads_strips,
)
from fxlite.codegen.c.product.gemm_walk import Cut
from fxlite.codegen.kernel.builder import (
    Argument,
    Body,
    bare,
    divide_up,
    ignoring,
    parameter_names,
    spelled_argument,
    static_head,
    symbol,
    text_of,
)
from fxlite.scalar.index import Index, extremum, product

if TYPE_CHECKING:
    from fxlite.codegen.c.product.gemm_walk import Place, Product


LONGEST = 256
"""The most steps of K for which this is done; in bf16 a step is a pair."""

LONGEST_UNKNOWN = 64
"""The same for a product whose rows or columns have no known number. Only whole tiles are then finished in registers,
and rows that are left are a tile of their own."""

LEAST_ROWS = 12
"""The least rows for which this is done: then tiles have at most two heights, which are known at compile time."""

SUMS_COMMENT = ["/* A tile of the function below: sums are finished in registers, and stored. */"]


def is_short(spec: ProductSpec, steps: int) -> bool:
    """Whether a product with an epilogue for vectors may be printed this way; ``steps`` of K form one step of
    the tile."""
    m, n, k = (size.constant for size in (spec.m, spec.n, spec.k))
    if spec.vectors is None or m is None or n is None or k is None:
        return False
    return m >= LEAST_ROWS and n > 0 and 0 < -(-k // steps) <= LONGEST


def is_fused(spec: GemmSpec) -> bool:
    """Whether a product of floats is printed this way."""
    if spec.split or multiplies_rows(spec) or spec.measured.get("sums") == "stored":
        return False
    sizes = spec.m.constant, spec.n.constant
    if None in sizes and not spec.bf16:
        few = at_most(spec.m, LEAST_ROWS - 1) or at_most(spec.n, panel_columns(spec.ctype) - 1)
        return spec.vectors is not None and at_most(spec.k, LONGEST_UNKNOWN) and 0 not in (*sizes, spec.k) and not few
    return is_short(spec, 2 if spec.bf16 else 1)


def fused_call(p: Product, at: Place, *operands: Argument) -> str:
    """The call of the tile's function."""
    own = [at.rows, at.columns, at.row_0, at.column_0, *operands]
    batch = [variable for variable, _ in p.base.batch]
    given = [*map(spelled_argument, own), *batch, *parameter_names(p.base.parameters)]
    return f"{p.base.name}_tile({', '.join(given)});"


def fused_tile(
    p: Product, own: str, sums: Callable[[Body, str], None], stored: Callable[[Body, Place], None]
) -> list[str]:
    """The lines of the tile's function, preceded by those of the one that it calls. ``own`` are the
    parameters for the operands. ``sums(body, name)`` puts the sums of two vectors from column ``first`` on
    into an array; ``stored`` puts the sums of a whole tile at a place in memory."""
    spec, kind = p.base, p.kind
    batch = "".join(f"int64_t {variable}, " for variable, _ in spec.batch)
    places = f"int64_t row_0, int64_t column_0, {own}"
    parameters = f"{places}, {batch}{spec.parameters}"
    vectors = _sums_function(p, parameters, sums)
    body = Body()
    m, n = spec.m.constant, spec.n.constant

    def by_memory(body: Body) -> None:
        at = p.whole_tile()
        body.declare(f"{kind.ctype} tile[{text_of(kind.sums)}]")
        stored(body, at)
        finish_vectors(p, body, at)

    rest = ", ".join(parameter_names(parameters))
    put_switch(body, f"{spec.name}_sums", None if m is None else str(m), n, rest, width=p.width)
    if m is None or n is None:
        with body.block("else"):
            by_memory(body)
    bodies = [body.lines()]
    if kind.rows != "TILE_ROWS":
        body = Body()
        by_memory(body)
        bodies.insert(0, body.lines())
    head = f"int rows, int columns, {parameters}"
    return [*vectors, "", *tile_function(f"{spec.name}_tile", head, bodies), ""]


def _sums_function(p: Product, parameters: str, sums: Callable[[Body, str], None]) -> list[str]:
    """The function that computes, finishes and stores the sums of a tile."""
    spec, body, t = p.base, Body(), p.vector
    body.put("#pragma GCC unroll 4")
    with body.block(f"for (int first = 0; first < columns; first += 2*{t}_lanes)"):
        body.assign("const int vectors", f"columns - first > {t}_lanes ? 2 : 1")
        body.declare(f"{t}_vec sums[TILE_ROWS][2]")
        sums(body, "sums")
        assert spec.vectors is not None
        row, column = p.named("row", spec.m), p.named("column", spec.n)
        loads, statements = spec.vectors("sum", row, column, "count")
        body.put("#pragma GCC unroll 2")
        with body.block("for (int v = 0; v < vectors; v++)"):
            body.assign("const int count", f"columns - first - v*{t}_lanes")
            body.let("column", f"column_0 + first + v*{t}_lanes")
            body.put(loads)
            body.put("#pragma GCC unroll 16")
            with body.block("for (int i = 0; i < rows; i++)"):
                body.let("row", "row_0 + i")
                body.assign(f"const {t}_vec sum", "sums[i][v]")
                body.put(statements)
    given, lines = f"const int rows, const int columns, {parameters}", body.lines()
    ignored = ignoring(given, "\n".join(lines))
    head = static_head(f"{spec.name}_sums", given)
    return [*SUMS_COMMENT, "TILE_INLINE", *head, "{", *ignored, *lines, "}"]


def finish_vectors(
    p: Product, body: Body, at: Place, sums: str = "sum", before: Callable[[Body, Index], None] | None = None
) -> None:
    """Finish and store a tile in memory, vector by vector of its columns; values that depend only on the
    column are loaded once for all rows. ``sums`` is the value to finish, in terms of ``sum``; ``before``
    prints what the statements of a row read."""
    spec, t = p.base, p.vector
    assert spec.vectors is not None
    with body.block(f"for (int64_t j = 0; j < {bare(at.columns)}; j += {t}_lanes)"):
        j = symbol("j", at.columns - 1)
        body.assign("const int count", f"(int)({bare(at.columns - j)})")
        column = body.let("column", at.column_0 + j, like=spec.n - 1)
        row = at.row_0 + (0 if at.rows == 1 else symbol("i", at.rows - 1))
        if at.rows != 1 and row.single_atom is None:
            row = p.named("row", spec.m)
        loads, statements = spec.vectors(sums, row, column, "count")
        body.put(loads)
        with body.loop("i", at.rows) as i:
            row = body.let("row", at.row_0 + i, like=spec.m - 1)
            if before is not None:
                before(body, row)
            body.assign(f"const {t}_vec sum", f"*(const {t}_vec *)&{at.sum(i, j)}")
            body.put(statements)


def tile_function(name: str, parameters: str, bodies: Sequence[Sequence[str]]) -> list[str]:
    """The lines of the function of a tile. Of two bodies, the first is for processors with AMX."""
    ignored = ignoring(parameters, *map("\n".join, bodies))
    lines = [*bodies[-1]]
    if len(bodies) > 1:
        lines = ["    #ifdef HAS_TILES", *bodies[0], "    #else", *lines, "    #endif"]
    return ["TILE_FUNCTION", *static_head(name, parameters), "{", *ignored, *lines, "}"]


def put_switch(
    body: Body, name: str, m: str | None, n: int | None, rest: str, rows: str = "rows", width: int = PANEL_COLUMNS
) -> None:
    """Print the call of the function ``name`` with a tile's numbers of ``rows`` and columns, known at compile
    time, and with ``rest``. If there are m rows, all tiles have nearly the same number. If m or n is None, which stands
    for a number that is not known, only whole tiles are cases, and others are left to what is printed next."""
    heights: Sequence[str] = ("TILE_ROWS",)
    if m is not None:
        heights = ("LOW", "HIGH")
        body.put("/* Tiles have LOW rows, or one more where LOW does not divide all rows. */")
        body.put(f"enum {{ TILES = ({m} + TILE_ROWS - 1) / TILE_ROWS }};")
        body.put(f"enum {{ LOW = {m} / TILES, HIGH = LOW + ({m} % TILES > 0) }};")
    whole = width if n is None else min(n, width)
    widths: Sequence[int] = [width] if n is None else sorted({whole, n % width or whole})
    tests = {"LOW": f"{rows} == LOW || LOW == HIGH", "HIGH": "", "TILE_ROWS": f"{rows} == TILE_ROWS"}
    word = ""
    for height in heights:
        for columns in widths:
            is_last = n is not None and columns == widths[-1]
            conditions = [f"columns == {columns}"] * (not is_last)
            if test := tests[height]:
                conditions.append(f"({test})" if conditions and "||" in test else test)
            body.put(f"{word}if ({' && '.join(conditions)})" if conditions else "else")
            body.put(f"    {name}({height}, {columns}, {rest});")
            word = "else "


# -- where K of a product of floats is cut into blocks or slices (`gemm_walk.Cut`), and why --------
# In: a `GemmSpec`. Out: its cut, if any.


LARGE = 16 << 20
"""Bytes of B that the last-level cache does not hold. (If it does, whole sums are as fast; measured for 8 MiB.)"""

LONG_ROWS = 6 << 10
"""Bytes of a row of A from which few rows fit in a second-level cache next to a B that is packed for this product.
(Measured with 512 KiB: 0.46 to 0.86 of the time of whole sums.)"""

LARGE_ROWS = 64
"""Number of A's rows from which B would be read several times."""

LARGEST_SUMS = 16 << 20
"""Bytes of sums that the workspace may hold."""

BLOCK = 512
"""About how many steps of K form a block: 23 tiles of A then take half of a cache of 1 MiB."""

LEAST_SLICE = 256
"""The least steps of K in a slice: adding one tile to another costs as much as 5 steps."""

ENOUGH_TILES = 8
"""The number of tiles that keeps the threads busy; with fewer, K is divided into slices."""

BLOCK_BYTES = 2048
"""Bytes of a row of A in a block, if B is packed for this product: a panel of B then takes 64 KiB."""

MOST_PANELS = 64
"""Panels whose sums a thread then keeps, next to a block of A's rows that all of them read."""


def cut_of(spec: GemmSpec) -> Cut | None:
    """How K is divided; None if it is not. Operands that are widened, or packed here, are only divided along K."""
    if multiplies_rows(spec) or reads_strips(spec):
        return None
    m, n, k = (size.constant for size in (spec.m, spec.n, spec.k))
    repeats = product(extent for _, extent in spec.batch).constant
    if not (m is None or n is None or k is None or repeats is None):
        found = _cut_of_sizes(spec, m, n, -(-k // 2) if spec.bf16 else k, repeats)
        if found is not None:
            return found
    if isinstance(spec.b, WidenedOperand):
        return Cut(1, Index.of(round(k / BLOCK)), own=1) if k is not None and k >= 2 * BLOCK else None
    if spec.bf16 or spec.measured.get("K") == "whole":
        return None
    if isinstance(spec.b, PackedOperand):
        if at_most(spec.m, LEAST_ROWS) or k is None or not 2 * PACKED_BLOCK <= k <= MOST_PACKED:
            return None
        return Cut(1, symbol("blocks", -(-k // PACKED_BLOCK)), own=1)
    if not packs_b(spec):
        return None
    size = BLOCK_BYTES // ITEM_BYTES[spec.ctype]
    few = any(side is not None and side < LARGE_ROWS for side in (m, n)) and None not in (m, n, k)
    if few or (k is not None and k * ITEM_BYTES[spec.ctype] < LONG_ROWS):
        return None
    return Cut(1, extremum("max", divide_up(spec.k, size), 1), size, MOST_PANELS)


def _cut_of_sizes(spec: GemmSpec, m: int, n: int, k: int, repeats: int) -> Cut | None:
    """How a product of known sizes is divided; ``k`` counts pairs for bf16."""
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
    # A widened operand is smaller; it and one packed for this product are divided along K in any case.
    is_widened = isinstance(spec.b, WidenedOperand)
    large &= (bool(spec.bf16) and not is_widened) or (k > MOST_PACKED and isinstance(spec.b, PackedOperand))
    if sums > LARGEST_SUMS or not (large or slices > 1):
        return None
    return Cut(slices, Index.of(max(1, round(k / slices / BLOCK))))


def long_reason(cut: Cut) -> str:
    """How K is divided, for the function's comment."""
    if cut.size:
        return f"K is cut into blocks of {cut.size}, with sums for each thread."
    each = "one block" if cut.blocks == 1 else f"{cut.blocks} blocks"
    if cut.slices > 1:
        return f"K is cut into {cut.slices} slices, for the threads, of {each}."
    return f"K is cut into {each}: A and B are larger than the second-level cache."
