"""C text of one attention: y[row] = sum over keys of softmax(q[row] . k[key] * scale + mask)[key]
times v[key], with its epilogue; the matrix of scores is never in memory as a whole.

In goes an `AttentionSpec`; out comes a `Rendered` as from `gemm.py`: one ``static`` C function for
that node. There are two plans:

- "tiles": for each block of queries, keys and values are packed in blocks of KEYS. The matrix tile
  multiplies a tile of query rows by a block of keys into scratch, where the scores are scaled, masked and
  turned into weights; the weights times the values are added to the block's sums. From one block of keys
  to the next, sums are rescaled to the highest score so far (Milakov and Gimelshein, "Online normalizer
  calculation for softmax", 2018; Dao et al., "FlashAttention", 2022).
- "rows": one or two queries (decoding with a cache of keys and values) read everything once, without
  packing; blocks of keys are the threads' tasks, and their sums are combined afterwards.

The number of threads does not affect results, because tiles and blocks of keys do not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fxlite.codegen.c.product.gemm_spec import ITEM_BYTES, PARALLEL_PRODUCTS, Operand, panel_columns
from fxlite.codegen.c.tiles.library import constant
from fxlite.codegen.kernel.builder import (
    Body,
    Pointer,
    Rendered,
    Size,
    bare,
    divide_up,
    factors,
    rendered,
    round_up,
    smaller,
    symbol,
    text_of,
)
from fxlite.codegen.kernel.text import atom
from fxlite.scalar.index import Index, extremum, product

if TYPE_CHECKING:
    from fxlite.codegen.c.render.alternatives import Choice

BLOCK_TILES = constant("attention", "BLOCK_TILES")

MOST_ROWS = 11
"""The most rows of a tile: TILE_ROWS of any target."""


def render_attention(spec: AttentionSpec) -> Rendered:
    """Print the function of one attention."""
    sizes = spec.rows, spec.columns, *(extent for _, extent in spec.batch)
    if any(size == 0 for size in sizes):
        empty = Body()
        empty.comment("Nothing to compute.")
        return _function(spec, "An empty result.", empty)
    return (_Rows(spec) if has_few_rows(spec) else _Tiles(spec)).render()


def _function(spec: AttentionSpec, note: str, body: Body, workspace: Size = 0) -> Rendered:
    """The function of a body that needs ``workspace`` bytes of scratch."""
    return rendered(spec.name, spec.parameters, (spec.comment, note), body.lines(), workspace)


class _Attention:
    """The parts of the printed function that the plans share."""

    def __init__(self, spec: AttentionSpec) -> None:
        self.spec, self.body = spec, Body()
        self.block = keys_per_block(spec)
        self.items = product(extent for _, extent in spec.batch)
        work = self.items * spec.rows * spec.keys * (spec.features + spec.columns)
        known = work.constant
        self.is_shared = known is None or known > PARALLEL_PRODUCTS
        enough = "" if known is not None else f" && {text_of(work)} > PARALLEL_PRODUCTS"
        self.batch_at: list[Index] = []
        self.team = f" num_threads(n_threads) if (n_threads > 1{enough})" if self.is_shared else ""

    @contextmanager
    def shared(self, *loops: tuple[str, Index], schedule: str = "static") -> Iterator[list[Index]]:
        """Loops over the batch, and the given loops inside; yields the variables of the latter. Threads
        share all iterations if there is enough work."""
        directive = "omp parallel for" if self.is_shared else ""
        every = [*self.spec.batch, *loops]
        with self.body.shared(every, directive, self.team, schedule) as found:
            self.batch_at = found[: len(self.spec.batch)]
            yield found[len(self.spec.batch) :]

    def size_of(self, parts: Sequence[tuple[str, Sequence[Size]]]) -> Index:
        """The number of scratch elements in all parts."""
        return sum((product(extents) for _, extents in parts), Index.of(0))

    def declare_parts(self, parts: Sequence[tuple[str, Sequence[Size]]], start: str) -> None:
        """Declare a pointer to each part of some scratch; extents are kept as factors, to be recognized later."""
        for name, extents in parts:
            self.body.pointer(self.spec.ctype, name, start)
            start = f"{name} + {factors(extents)}"

    def masked(self, score: str, row: Index, key: Index) -> str:
        """The score of a row and key after masking."""
        spec = self.spec
        if spec.causal:
            return f"{bare(key)} <= {bare(row)} ? {score} : -INFINITY"
        if spec.mask is None:
            return score
        mask = spec.mask.at(row, key)
        choice = f"{mask} ? {score} : {spec.masked_score}"
        return choice if spec.mask_is_bool else f"{score} + {mask}"

    def put_result(self, row: Index, total: str, sums: Pointer) -> None:
        """Store a row of the result, from the sums of weighted values and the sum of the weights; without
        keys it is 0."""
        spec, body, t = self.spec, self.body, self.spec.ctype
        empty = f"{bare(spec.keys)} == 0" if spec.empty_is_nan else f"{total} == 0"
        known = spec.keys.constant if spec.empty_is_nan else None
        inverse = f"{empty} ? 0 : 1 / {total}" if known is None else f"1 / {total}"
        body.assign(f"const {t} inverse", "0" if known == 0 else inverse)
        with body.loop("column", spec.columns, pragma="#pragma omp simd") as column:
            body.assign(f"const {t} value", f"{sums[column]} * inverse")
            body.put(spec.epilogue("value", row, column))

    def scale_query(self, target: Pointer, q: Operand, row: Index) -> None:
        """Store a query times the scale."""
        spec, body = self.spec, self.body
        with body.loop("feature", spec.features, pragma="#pragma omp simd") as feature:
            body.assign(target[feature], f"{q.at(row, feature)} * {atom(spec.scale)}")

    def sizes(self) -> str:
        """The sizes, for the comment."""
        spec = self.spec
        return (
            f"{bare(spec.rows)} queries and {bare(spec.keys)} keys of {bare(spec.features)}, "
            f"values of {bare(spec.columns)}"
        )


# -- many queries ----------------------------------------------------------------------------------
class _Tiles(_Attention):
    """The plan "tiles": tiles of queries times blocks of keys."""

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__(spec)
        self.width = panel_columns(spec.ctype)
        self.score_pitch = self.block + 16  # rows are kept off multiples of 4 KiB
        self.q_pitch = round_up(spec.features, 16) + 16
        self.v_pitch = round_up(spec.columns, self.width)

    @property
    def parts(self) -> list[tuple[str, Sequence[Size]]]:
        """The parts of a thread's memory."""
        return [
            ("k_panels", (self.spec.features, self.block)),
            ("v_panels", (self.v_pitch, self.block)),
            ("scores", (MOST_ROWS, self.score_pitch)),
            ("q_rows", (MOST_ROWS, self.q_pitch)),
            ("sums", (MOST_ROWS, BLOCK_TILES, self.v_pitch)),
            ("highest", (MOST_ROWS, BLOCK_TILES)),
            ("totals", (MOST_ROWS, BLOCK_TILES)),
            ("unused", (32,)),  # keeps the memory of threads apart
        ]

    def render(self) -> Rendered:
        spec, body = self.spec, self.body
        row_tiles = row_blocks = Index.of(1)
        if spec.rows != 1:
            row_tiles = body.let("row_tiles", divide_up(spec.rows, symbol("TILE_ROWS")))
            threads = "n_threads" if self.is_shared else "1"
            count = f"count_query_blocks(row_tiles, {bare(self.items)}, {threads})"
            row_blocks = body.let("row_blocks", count)
        schedule = "dynamic" if spec.causal else "static"  # later rows have more keys
        share = self.size_of(self.parts)
        self.q_pitch = body.let("q_pitch", self.q_pitch)
        self.v_pitch = body.let("v_pitch", self.v_pitch)
        with self.shared(("row_block", row_blocks), schedule=schedule) as (row_block,):
            self.declare_scratch()
            first_tile = body.let("first_tile", row_block * row_tiles // row_blocks)
            end_tile = body.let("end_tile", (row_block + 1) * row_tiles // row_blocks)
            self.first_row = body.let("first_row", first_tile * spec.rows // row_tiles)
            self.end_row = body.let("end_row", end_tile * spec.rows // row_tiles)
            self.clear_sums()
            end_key = self.last_key()
            with body.loop("key_0", end_key, step=self.block) as key_0:
                keys = body.let("keys", smaller(end_key - key_0, self.block))
                self.pack_block(key_0, keys)
                with body.loop("tile_index", end_tile, start=first_tile) as tile:
                    row_0 = body.let("row_0", tile * spec.rows // row_tiles)
                    end = (tile + 1) * spec.rows // row_tiles
                    self.attend(row_0, body.let("rows", end - row_0, "int"), key_0, keys)
            with body.loop("row", self.end_row, start=self.first_row) as row:
                place = row - self.first_row
                total = Pointer("totals")[place]
                self.put_result(row, total, Pointer("sums") + place * self.v_pitch)
        note = (
            f"{self.sizes()}; tiles of TILE_ROWS queries,\nblocks of {self.block} keys, which stay "
            "in the second-level cache."
        )
        if not spec.keys <= self.block:
            note += "\nSums are rescaled from block to block, to the highest score so far."
        teams = symbol("n_threads") if self.is_shared else Index.of(1)
        return _function(spec, note, body, teams * share * ITEM_BYTES[spec.ctype])

    def declare_scratch(self) -> None:
        """Declare the operands of this batch item and the thread's memory."""
        spec, body, t = self.spec, self.body, self.spec.ctype
        for name, operand in (("q_item", spec.q), ("k_item", spec.k), ("v_item", spec.v)):
            body.pointer(f"const {t}", name, operand.start())
        memory = "workspace"
        if self.is_shared:
            body.comment("This thread's part of the workspace.")
            extents = " + ".join(factors(extents) for _, extents in self.parts)
            body.let("share", extents)
            memory = f"({t} *)workspace + this_thread()*share"
        self.declare_parts(self.parts, memory)

    def clear_sums(self) -> None:
        body = self.body
        rows = body.let("block_rows", self.end_row - self.first_row)
        with body.loop("i", rows) as i:
            body.assign(f"highest[{bare(i)}]", "-INFINITY")
            body.assign(f"totals[{bare(i)}]", "0")
        with body.loop("i", rows * self.v_pitch) as i:
            body.assign(f"sums[{bare(i)}]", "0")

    def last_key(self) -> Index:
        """The end of the keys that this block's rows read."""
        spec, body = self.spec, self.body
        if not spec.causal:
            return spec.keys
        body.comment(
            "Keys after a row are left out, unless their weight, 0, times an infinite\n * or NaN value is NaN."
        )
        keys, end = bare(spec.keys), bare(self.end_row)
        given = spec.keys, spec.columns, spec.v.row_stride, spec.v.col_stride
        rows, columns, *strides = map(bare, given)
        call = f"all_finite_{spec.ctype}({rows}, {columns}, v_item, {', '.join(strides)})"
        body.assign("const bool skips", call)
        return body.let("end_key", f"skips && {end} < {keys} ? {end} : {keys}")

    def pack_block(self, key_0: Index, keys: Index) -> None:
        """Pack keys, transposed, and values as panels."""
        spec, k, v = self.spec, self.spec.k, self.spec.v
        pack, call = f"pack_panels_{spec.ctype}", self.body.call
        keys_0, values_0 = (Pointer(n) + key_0 * x.row_stride for n, x in (("k_item", k), ("v_item", v)))
        call(pack, spec.features, keys, keys_0, k.col_stride, k.row_stride, "k_panels")
        call(pack, keys, spec.columns, values_0, v.row_stride, v.col_stride, "v_panels")

    def attend(self, row_0: Index, rows: Index, key_0: Index, keys: Index) -> None:
        """Process a tile of queries and a block of keys."""
        spec, body = self.spec, self.body
        reads: Index = keys
        some: AbstractContextManager[None] = nullcontext()
        if spec.causal:
            before = body.let("before", row_0 + rows - key_0)
            known = f"skips && {bare(before)} < {bare(keys)} ? {bare(before)} : {bare(keys)}"
            reads = body.let("tile_keys", known)
            some = body.block("if (tile_keys > 0)")
        with some:
            body.declare(f"{spec.ctype} tile[TILE_ROWS*{self.width}], rescale[TILE_ROWS]")
            body.comment("Scaled queries, their scores, weights and weighted values.")
            with body.loop("i", rows) as i:
                q = replace(spec.q, pointer="q_item", offset=Index.of(0))
                self.scale_query(Pointer("q_rows") + i * self.q_pitch, q, row_0 + i)
            self.score(row_0, rows, key_0, reads)
            self.sum_values(body.let("place", row_0 - self.first_row), rows, keys, reads)

    def score(self, row_0: Index, rows: Index, key_0: Index, keys: Index) -> None:
        """Compute and mask the tile's scores."""
        spec, body, width = self.spec, self.body, self.width
        with body.loop("column_0", keys, step=width) as column_0:
            columns = body.let("columns", smaller(keys - column_0, width), "int")
            queries, panel = ("q_rows", self.q_pitch), Pointer("k_panels") + column_0 * spec.features
            body.call(f"multiply_tile_{spec.ctype}", rows, columns, spec.features, *queries, panel, "tile")
            # Rows have room for whole panels, which are copied as whole vectors.
            whole = spec.mask is None and self.block % width == 0
            with body.loop("i", rows) as i:
                row = body.let("row", row_0 + i)
                with body.loop("j", Index.of(width) if whole else columns, pragma="#pragma omp simd") as j:
                    key = body.let("key", key_0 + column_0 + j)
                    score = Pointer("scores", i * self.score_pitch + column_0)[j]
                    body.assign(score, self.masked(Pointer("tile")[i * width + j], row, key))

    def sum_values(self, place: Index, rows: Index, keys: Index, reads: Index) -> None:
        """Turn scores into weights and add the weighted values to the sums."""
        spec, body, width = self.spec, self.body, self.width
        with body.loop("i", rows) as i:
            places = (Pointer(n) + place + i for n in ("highest", "totals"))
            given = ", ".join(map(str, (Pointer("scores") + i * self.score_pitch, *places)))
            body.assign(f"rescale[{bare(i)}]", f"soften_{spec.ctype}({bare(reads)}, {given})")
        with body.loop("column_0", spec.columns, step=width) as column_0:
            columns = body.let("columns", smaller(spec.columns - column_0, width), "int")
            weights, panel = ("scores", self.score_pitch), Pointer("v_panels") + column_0 * keys
            body.call(f"multiply_tile_{spec.ctype}", rows, columns, reads, *weights, panel, "tile")
            with body.loop("i", rows) as i:
                start = Pointer("sums") + (place + i) * self.v_pitch + column_0
                total = body.pointer(spec.ctype, "sum", start)
                with body.loop("j", columns, pragma="#pragma omp simd") as j:
                    more = f"rescale[{bare(i)}] + {Pointer('tile')[i * width + j]}"
                    body.assign(total[j], f"{total[j]} * {more}")


# -- one or two queries ----------------------------------------------------------------------------
class _Rows(_Attention):
    """The plan "rows": each key and value is read once."""

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__(spec)
        self.parts: list[tuple[str, Sequence[Size]]] = [  # of the scratch of one query and block of keys
            ("scores", (self.block,)),
            ("sums", (round_up(spec.columns, 16),)),
            ("q_rows", (round_up(spec.features, 16),)),
            ("highest", (16,)),  # the highest score, and the sum of the weights
        ]
        self.key_blocks = extremum("max", divide_up(spec.keys, self.block), 1)

    def render(self) -> Rendered:
        spec, body = self.spec, self.body
        blocks, share = self.key_blocks, self.size_of(self.parts)
        self.key_blocks = body.let("key_blocks", blocks)
        self.share = body.let("share", " + ".join(factors(extents) for _, extents in self.parts))
        body.pointer(spec.ctype, "parts", "workspace")
        with self.shared(("key_block", self.key_blocks)) as (key_block,):
            key_0 = body.let("key_0", key_block * self.block)
            keys = body.let("keys", smaller(spec.keys - key_0, self.block))
            with body.loop("row", spec.rows) as row:
                self.attend(row, key_block, key_0, keys)
                if blocks == 1:
                    self.put_result(row, "highest[1]", Pointer("sums"))
        if blocks != 1:
            with self.shared(("row", spec.rows)) as (row,):
                self.join(row)
        each = "each" if blocks == 1 else f"blocks of {self.block} keys, each"
        size = self.items * spec.rows * blocks * share * ITEM_BYTES[spec.ctype]
        return _function(spec, f"{self.sizes()}; {each} read once.", body, size)

    def declare_part(self, row: Index, key_block: Index) -> None:
        """Declare the scratch of this query and block of keys."""
        number = Index.of(0)
        for at, (_, extent) in zip(self.batch_at, self.spec.batch, strict=True):
            number = number * extent + at
        number = (number * self.key_blocks + key_block) * self.spec.rows + row
        self.body.pointer(self.spec.ctype, "part", Pointer("parts") + number * self.share)

    def attend(self, row: Index, key_block: Index, key_0: Index, keys: Index) -> None:
        """Compute a query's attention to a block of keys."""
        spec, body, t = self.spec, self.body, self.spec.ctype
        self.declare_part(row, key_block)
        self.declare_parts(self.parts, "part")
        self.scale_query(Pointer("q_rows"), spec.q, row)
        k, v = spec.k, spec.v
        body.call(
            f"multiply_by_rows_{t}", keys, spec.features, "q_rows", k.start(key_0), k.row_stride, k.col_stride, "scores"
        )
        if spec.mask is not None:
            with body.loop("j", keys, pragma="#pragma omp simd") as j:
                score = Pointer("scores")[j]
                body.assign(score, self.masked(score, row, body.let("key", key_0 + j)))
        body.assign("highest[0]", "-INFINITY")
        body.assign("highest[1]", "0")
        body.call(f"soften_{t}", keys, "scores", "highest", "highest + 1")
        body.call(
            f"sum_weighted_rows_{t}", keys, spec.columns, "scores", v.start(key_0), v.row_stride, v.col_stride, "sums"
        )

    def join(self, row: Index) -> None:
        """Combine the blocks' sums, rescaled to the highest of all scores, and run the epilogue."""
        spec, body, t = self.spec, self.body, self.spec.ctype
        (_, scores), (_, sums_size), (_, query), _ = self.parts
        step = body.let("step", self.share * spec.rows)  # from block to block
        self.declare_part(row, Index.of(0))
        sums = body.pointer(t, "sums", f"part + {factors(scores)}")
        highest = body.pointer(f"const {t}", "highest", f"sums + {factors(sums_size)} + {factors(query)}")
        body.put(f"{t} most = -INFINITY, total = 0;")
        with body.loop("key_block", self.key_blocks) as block:
            body.assign("most", f"{highest[block * step]} > most ? {highest[block * step]} : most")
        body.assign(f"const {t} shift", "most == -INFINITY ? 0 : most")
        with body.loop("key_block", self.key_blocks) as block:
            kind = "f32" if t == "float" else "f64"
            body.assign(f"const {t} rescale", f"fx_exp_weight_{kind}({highest[block * step]} - shift)")
            body.assign("total", f"{highest[block * step + 1]} * rescale", "+=")
            with body.loop("column", spec.columns, pragma="#pragma omp simd") as column:
                own, joined = sums[block * step + column], sums[column]
                body.assign(joined, f"{bare(block)} == 0 ? {own} * rescale : {joined} + {own} * rescale")
        self.put_result(row, "total", sums)


# -- its spec and its plan -------------------------------------------------------------------------
CACHE_BYTES = 128 * 1024
"""Bytes of packed keys (and of values) in one block: a part of the second-level cache."""

FEW_ROWS = 2
"""Up to this many queries, everything is read only once."""


@dataclass(frozen=True)
class AttentionSpec:
    """One attention.

    name        of the C function
    ctype       "float" or "double"
    parameters  C parameter list; `Rendered.extra_parameters` are appended
    batch       (loop variable, extent) of the loops around it, outermost first
    rows, keys, features, columns   queries, keys, elements of a query and key, elements of a value;
                each may be 0
    q, k, v     matrices [rows, features], [keys, features], [keys, columns]
    scale       C expression by which scores are multiplied
    epilogue    (element, row, column) -> C statements that consume one element: the body of a simd
                loop over columns
    mask        matrix [rows, keys] of bools, or of values to add to the scores
    mask_is_bool   whether the mask keeps scores where it is true, or is added to them
    masked_score   C expression: what a bool mask replaces the other scores by
    causal      whether row i reads only the keys 0 ... i
    empty_is_nan   whether a row of which the mask keeps nothing gives NaN, or else 0
    comment     what is computed, shapes, origin
    measured    by subject, which of `alternatives.attention_decisions` to use instead of the default
                choice
    """

    name: str
    ctype: str
    parameters: str
    batch: tuple[tuple[str, Index], ...]
    rows: Index
    keys: Index
    features: Index
    columns: Index
    q: Operand
    k: Operand
    v: Operand
    scale: str
    epilogue: Callable[[str, Index, Index], str]
    mask: Operand | None = None
    mask_is_bool: bool = False
    masked_score: str = "-INFINITY"
    causal: bool = False
    empty_is_nan: bool = True
    comment: str = ""
    measured: Choice = field(default_factory=dict)


def may_read_once(spec: AttentionSpec) -> bool:
    """Whether there are so few queries that each may read all keys and values itself."""
    return spec.rows <= FEW_ROWS and not spec.causal


def has_few_rows(spec: AttentionSpec) -> bool:
    """Whether the plan is "rows"."""
    return spec.measured["plan"] == "rows" if "plan" in spec.measured else may_read_once(spec)


def keys_per_block(spec: AttentionSpec) -> int:
    """Keys in one block: a multiple of a panel's columns."""
    if "keys in a block" in spec.measured:
        return int(spec.measured["keys in a block"])
    widths = spec.features.constant, spec.columns.constant
    wide = 128 if None in widths else max((w for w in widths if w), default=1)
    return min(512, max(64, CACHE_BYTES // (wide * ITEM_BYTES[spec.ctype]) // 64 * 64))
