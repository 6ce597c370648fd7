"""C text of the matrix tile, the one loop nest in which every product spends its time, and the
layout its operands are packed in.

`PREAMBLE` goes once into a translation unit, before any function of `gemm.py` or `conv.py`. It
defines, for ``float`` and ``double``,

- the vector type and its number of lanes (64, 32 or 16 bytes, whatever the target has),
- ``multiply_tile_T``: `rows` rows of A times a panel of B, into a small array,
- ``pack_panel_T`` and ``copy_transposed_T`` (`gemm_copy`): how operands that are not packed at
  compile time are brought into the layout the tile reads,
- ``load_T``, ``store_T``, ``maximum_T``...: for epilogues that run in registers (`gemm_fused`),
- ``count_row_blocks``: how a product is cut into tasks for the caches and the threads.

It needs no header but <stdint.h>, no OpenMP, no intrinsics; unused functions cost nothing. Compile
with ``-std=gnu11`` (or later): under ``-std=c11`` GCC does not fuse multiplications and additions.

Why this tile. Measured on a Zen 4 core (one 64-byte FMA per cycle, peak 117.5 GFLOP/s): 3 to 11
rows by 2 vectors run at 116 to 118 GFLOP/s with A read in place (no packing of A). From 12 rows on
GCC 12 spills row addresses and loses 7 %. B's panel rows are 128 bytes on every target, so packed
weights do not depend on the machine: a narrower target walks the panel in several steps.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from fxlite.codegen.c.product.amx_tile import AMX_PREAMBLE
from fxlite.codegen.c.product.gemm_copy import COPY, weaves

PARALLEL_PRODUCTS = 400_000
"""Multiply-adds from which a second thread pays: 7 us of work, against 1 us for fork and join where
the threads are awake, and several where one has to be woken (measured on the digits model)."""

PANEL_BYTES = 128
"""Bytes of one row of a panel of B: two cache lines, two AVX-512 vectors."""

ITEM_BYTES = {"float": 4, "double": 8}


def panel_columns(ctype: str) -> int:
    """Columns of B in a full panel: 32 for float, 16 for double."""
    return PANEL_BYTES // ITEM_BYTES[ctype]


def pack_b(
    b: np.ndarray[Any, Any], packed: np.ndarray[Any, Any] | None = None
) -> np.ndarray[Any, Any]:
    """Pack a [K, N] matrix of float32 or float64 into panels of 32 columns (16 for float64).

    Panel p starts at element p * K * 32 and holds columns 32p ... 32p+31 row by row; columns that
    the last panel lacks are zero. So the result has K * (N rounded up to a multiple of 32)
    elements. It should be 64-byte aligned in memory; ``packed`` is where to put it.
    """
    depth, n = b.shape
    panel = PANEL_BYTES // b.dtype.itemsize
    whole, rest = divmod(n, panel)
    if packed is None:
        packed = np.empty(packed_size(depth, n, b.dtype.itemsize), b.dtype)
    panels = packed.reshape(-(-n // panel), depth, panel)
    panels[:whole] = b[:, : whole * panel].reshape(depth, whole, panel).swapaxes(0, 1)
    if rest:
        panels[whole, :, :rest] = b[:, whole * panel :]
        panels[whole, :, rest:] = 0
    return packed


def packed_size(depth: int, n: int, itemsize: int) -> int:
    """Elements of what `pack_b` makes of a [depth, n] matrix."""
    panel = PANEL_BYTES // itemsize
    return depth * -(-n // panel) * panel


_TARGET = """\
/* ---- Matrix tiles: what every matrix product and convolution below is built from ---------- */

/* Bytes of a vector register, and rows of a tile: two vectors of sums for each row, the operands
 * and a few addresses fill the registers (32 of them, or 16). */
#if defined(__AVX512F__)
enum { VECTOR_BYTES = 64, TILE_ROWS = 11 };
#elif defined(__AVX__)
enum { VECTOR_BYTES = 32, TILE_ROWS = 6 };
#elif defined(__aarch64__)
enum { VECTOR_BYTES = 16, TILE_ROWS = 11 };
#else
enum { VECTOR_BYTES = 16, TILE_ROWS = 6 };
#endif

/* Multiply-adds from which a second thread pays: a core does them in 7 us, and threads are started
 * and awaited in 1 us where they are awake, in several where they are not. */
enum { PARALLEL_PRODUCTS = WORTH };

/* Products that are added one after the other in a register, and blocks of so many that are added
 * to one sum: docs/numerics.md. Longer sums are added without loss. */
enum { SUM_STEPS = 512, SUM_BLOCKS = 16 };

#ifdef _OPENMP
int omp_get_thread_num(void);
#endif

/* A pointer of which the compiler forgets how it was computed. The rows of a tile are addressed
 * from two: the distances of eleven rows from one take more registers than there are, and GCC
 * fetches them from vector registers (measured: 102 against 115 GFLOP/s). */
__attribute__((unused)) static inline const void *opaque_pointer(const void *pointer)
{
    __asm__("" : "+r"(pointer));
    return pointer;
}

/* For tiles: one copy of the code, whoever calls it; on a cache line of its own, because where the
 * inner loop starts within one was seen to make a difference of 4 % (20 % for depthwise). */
#ifdef __clang__
#define TILE_FUNCTION __attribute__((noinline, unused, aligned(64)))
#else
#define TILE_FUNCTION __attribute__((noinline, noclone, unused, aligned(64)))
#endif

/* The vector of those elements of a (numbered from 0) and b (following a's) that are listed. */
#ifdef __clang__
#define SHUFFLE(index, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(index, a, b, ...) __builtin_shuffle(a, b, (index){__VA_ARGS__})
#endif

/* The number of the calling thread in its team; 0 when compiled without OpenMP. */
static inline int64_t this_thread(void)
{
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

/* Bytes of a core's second-level cache; fxlite gives its machine's with -DL2_BYTES. */
#ifndef L2_BYTES
#define L2_BYTES 1048576
#endif

/* How many blocks of whole row tiles a product is cut into: so that the rows of A in one block stay
 * in half of the second-level cache while the panels of B pass by, and so that the blocks times
 * `other_tasks` give each thread at least four tasks, and the thread with most of them as few tiles
 * as can be. */
static inline int64_t count_row_blocks(int64_t row_tiles, int64_t tile_bytes,
                                       int64_t other_tasks, int n_threads)
{
    const int64_t for_cache = row_tiles * tile_bytes / (L2_BYTES / 2) + 1;
    const int64_t for_threads = other_tasks > 0 ? (4 * n_threads - 1) / other_tasks + 1 : 1;
    const int64_t least = for_cache > for_threads ? for_cache : for_threads;
    if (least >= row_tiles || n_threads == 1)
        return least < row_tiles ? least : row_tiles;
    int64_t best = least, fewest = INT64_MAX;
    for (int64_t blocks = least; blocks <= row_tiles && blocks < least + 2 * n_threads; blocks++) {
        const int64_t tasks = (blocks * other_tasks + n_threads - 1) / n_threads;
        const int64_t tiles = tasks * ((row_tiles + blocks - 1) / blocks);
        if (tiles < fewest)
            best = blocks, fewest = tiles;
    }
    return best;
}

/* How many blocks the panels are cut into where K is (each reads all rows of A): one, if `tiles` of
 * rows are enough for the threads. */
__attribute__((unused)) static inline int64_t count_panel_blocks(int64_t panels, int64_t tiles,
                                                                 int n_threads)
{
    return tiles >= 4 * n_threads ? 1 : panels < n_threads ? panels : n_threads;
}
"""

_TYPE = """\

typedef T T_vec __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(T)), may_alias));
typedef INDEX T_index __attribute__((vector_size(VECTOR_BYTES)));
enum { T_lanes = VECTOR_BYTES / sizeof(T), T_panel = PANEL };

/* For epilogues in registers: a vector of one value, and `count` elements from or to memory (a
 * whole vector, if there are more). Minimum and maximum are those of fx_math.h: a NaN wins. */
__attribute__((unused)) static inline T_vec all_T(T x)
{
    return x - (T_vec){0}; /* which leaves -0 as it is */
}

__attribute__((unused)) static inline T_vec load_T(const T *from, int count)
{
    T_vec x = {0};
    if (count >= T_lanes) /* without a call */
        return *(const T_vec *)from;
    __builtin_memcpy(&x, from, count * sizeof(T));
    return x;
}

__attribute__((unused)) static inline void store_T(T *to, T_vec x, int count)
{
    if (count >= T_lanes)
        *(T_vec *)to = x;
    else
        __builtin_memcpy(to, &x, count * sizeof(T));
}

__attribute__((unused)) static inline T_vec maximum_T(T_vec a, T_vec b)
{
    const T_index second = (a <= b) | (b != b);
    return (T_vec)((second & (T_index)b) | (~second & (T_index)a));
}

__attribute__((unused)) static inline T_vec minimum_T(T_vec a, T_vec b)
{
    const T_index second = (a >= b) | (b != b);
    return (T_vec)((second & (T_index)b) | (~second & (T_index)a));
}

/* sum[i * split][v] = sum over k of a[i][k] * b[k][j], for `rows` rows of A and `vectors` vectors v
 * of B. The sums stay in registers. `rows`, `vectors`, `split` are constants where this is inlined;
 * with few rows the sum over k is split into `split` independent ones to hide the latency of the
 * FMA. B is read through volatile so that GCC loads a vector once for all rows: left alone it folds
 * the load into every FMA when rows <= 4, and is bound by loads (measured: 85 against 117
 * GFLOP/s). */
static inline __attribute__((always_inline)) void sum_rows_T(
    const int rows, const int vectors, const int split, int64_t depth,
    const T *a, int64_t a_row, const T *b, int64_t b_row, T_vec sum[TILE_ROWS][2])
{
    T_vec b_k[2];
    #pragma GCC unroll 16
    for (int i = 0; i < rows * split; i++) {
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            sum[i][v] = (T_vec){0};
    }
    for (; split > 1 && depth >= split; depth -= split, a += split, b += split * b_row) {
        #pragma GCC unroll 4
        for (int s = 0; s < split; s++) {
            #pragma GCC unroll 2
            for (int v = 0; v < vectors; v++)
                b_k[v] = *(const volatile T_vec *)(b + s * b_row + v * T_lanes);
            #pragma GCC unroll 16
            for (int i = 0; i < rows; i++) {
                #pragma GCC unroll 2
                for (int v = 0; v < vectors; v++)
                    sum[i * split + s][v] += a[i * a_row + s] * b_k[v];
            }
        }
    }
    const T *const a_6 = opaque_pointer(a + 6 * a_row);
    for (int64_t k = 0; k < depth; k++) {
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            b_k[v] = *(const volatile T_vec *)(b + k * b_row + v * T_lanes);
        #pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            #pragma GCC unroll 2
            for (int v = 0; v < vectors; v++)
                sum[i * split][v] += (i < 6 ? a + i * a_row : a_6 + (i - 6) * a_row)[k] * b_k[v];
        }
    }
    #pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            #pragma GCC unroll 4
            for (int s = 1; s < split; s++)
                sum[i * split][v] += sum[i * split + s][v];
        }
    }
}

/* The same into memory: tile[i][j], or added to what is there. */
static inline __attribute__((always_inline)) void multiply_rows_T(
    const int rows, const int vectors, const int split, int64_t depth,
    const T *a, int64_t a_row, const T *b, int64_t b_row, const int adds, T *restrict tile)
{
    T_vec sum[TILE_ROWS][2];
    sum_rows_T(rows, vectors, split, depth, a, a_row, b, b_row, sum);
    #pragma GCC unroll 16
    for (int i = 0; adds && i < rows; i++) {
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            sum[i * split][v] += *(T_vec *)(tile + i * T_panel + v * T_lanes);
    }
    #pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            *(T_vec *)(tile + i * T_panel + v * T_lanes) = sum[i * split][v];
    }
}

/* The same for two vectors of a panel, or one, and 1 <= rows <= TILE_ROWS. Functions of their own:
 * so that fewer variables live around the inner loops. */
TILE_FUNCTION static void multiply_pair_T(
    int rows, int64_t depth, const T *a, int64_t a_row, const T *b, T *restrict tile)
{
    switch (rows) {
CASES_2
    }
}

TILE_FUNCTION static void multiply_single_T(
    int rows, int64_t depth, const T *a, int64_t a_row, const T *b, T *restrict tile)
{
    switch (rows) {
CASES_1
    }
}

/* multiply_pair_T, added to what is there. */
TILE_FUNCTION static void multiply_pair_add_T(
    int rows, int64_t depth, const T *a, int64_t a_row, const T *b, T *restrict tile)
{
    switch (rows) {
CASES_ADD
    }
}

/* tile[rows][PANEL] = A (rows x depth, rows a_row apart) times one panel of B (depth x columns,
 * rows PANEL apart), 1 <= rows <= TILE_ROWS. Computes whole vectors: the columns beyond `columns`
 * hold what the panel makes of them. */
__attribute__((unused)) static inline void multiply_block_T(
    int rows, int columns, int64_t depth, const T *a, int64_t a_row, const T *b, T *restrict tile)
{
    for (int j = 0; j < columns; j += 2 * T_lanes) {
        if (columns - j > T_lanes)
            multiply_pair_T(rows, depth, a, a_row, b + j, tile + j);
        else
            multiply_single_T(rows, depth, a, a_row, b + j, tile + j);
    }
}

/* tile += part: a sum in blocks. */
__attribute__((unused)) static inline void add_block_T(
    int rows, int columns, const T *restrict part, T *restrict tile)
{
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < columns; j++)
            tile[i * T_panel + j] += part[i * T_panel + j];
    }
}

/* multiply_block_T, added to what is there. */
__attribute__((unused)) static inline void multiply_add_T(
    int rows, int columns, int64_t depth, const T *a, int64_t a_row, const T *b, T *restrict tile)
{
    T part[TILE_ROWS * PANEL];
    for (int j = 0; j < columns; j += 2 * T_lanes) {
        if (columns - j > T_lanes) {
            multiply_pair_add_T(rows, depth, a, a_row, b + j, tile + j);
        } else {
            multiply_single_T(rows, depth, a, a_row, b + j, part);
            add_block_T(rows, columns - j, part, tile + j);
        }
    }
}

/* The same for one or two rows of A and a B that is not packed: its rows are b_row apart. */
TILE_FUNCTION static void multiply_low_block_T(
    int rows, int columns, int64_t depth, const T *a, int64_t a_row, const T *b, int64_t b_row,
    T *restrict tile)
{
    for (int j = 0; j < columns; j += T_lanes, b += T_lanes, tile += T_lanes) {
        if (rows == 1)
            multiply_rows_T(1, 1, 4, depth, a, a_row, b, b_row, 0, tile);
        else
            multiply_rows_T(2, 1, 2, depth, a, a_row, b, b_row, 0, tile);
    }
}

__attribute__((unused)) static inline void multiply_low_add_T(
    int rows, int columns, int64_t depth, const T *a, int64_t a_row, const T *b, int64_t b_row,
    T *restrict tile)
{
    T part[2 * PANEL];
    multiply_low_block_T(rows, columns, depth, a, a_row, b, b_row, part);
    add_block_T(rows, columns, part, tile);
}

/* totals += tile, where `left` holds what rounding left out of the totals (Knuth's TwoSum); at last
 * the tile is what they hold. Beside an infinity what was left out is NaN, and of no account. */
__attribute__((unused)) static void add_tile_T(
    int rows, int columns, int is_last, T *restrict tile, T *restrict totals, T *restrict left)
{
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < columns; j++) {
            const int e = i * T_panel + j;
            const T sum = totals[e] + tile[e], kept = sum - totals[e];
            left[e] += (totals[e] - (sum - kept)) + (tile[e] - kept);
            totals[e] = sum;
            if (is_last)
                tile[e] = left[e] == left[e] ? sum + left[e] : sum;
        }
    }
}
"""

_SUMS = """
/* multiply_LOWblock_T in blocks of at most `most` steps: up to SUM_BLOCKS of them are added one
 * after the other, and sums of so many so that nothing is lost. */
TILE_FUNCTION static void multiply_LOWblocks_T(
    int rows, int columns, int64_t depth, int64_t most, const T *a, int64_t a_row,
    const T *b,WITH_STEP T *restrict tile)
{
    T totals[TILE_ROWS * PANEL], left[TILE_ROWS * PANEL];
    const int64_t blocks = (depth + most - 1) / most;
    const int is_long = blocks > SUM_BLOCKS;
    for (int e = 0; is_long && e < TILE_ROWS * PANEL; e++)
        totals[e] = left[e] = 0;
    for (int64_t block = 0; block < blocks; block++) {
        const int64_t k = block * depth / blocks, steps = (block + 1) * depth / blocks - k;
        if (block % SUM_BLOCKS == 0)
            multiply_LOWblock_T(rows, columns, steps, a + k, a_row, b + k * NEXT,STEP tile);
        else
            multiply_LOWadd_T(rows, columns, steps, a + k, a_row, b + k * NEXT,STEP tile);
        if (is_long && (block + 1 == blocks || block % SUM_BLOCKS == SUM_BLOCKS - 1))
            add_tile_T(rows, columns, block + 1 == blocks, tile, totals, left);
    }
}

/* The product of a tile: multiply_LOWblock_T for any depth. Few rows are added in several
 * registers each, which share a longer block. */
__attribute__((unused)) static inline void multiply_LOWtile_T(
    int rows, int columns, int64_t depth, const T *a, int64_t a_row, const T *b,WITH_STEP
    T *restrict tile)
{
    const int64_t most = rows == 1 ? 4 * SUM_STEPS : rows <= 3 ? 2 * SUM_STEPS : SUM_STEPS;
    if (depth <= most)
        multiply_LOWblock_T(rows, columns, depth, a, a_row, b,STEP tile);
    else
        multiply_LOWblocks_T(rows, columns, depth, most, a, a_row, b,STEP tile);
}
"""


def _cases(ctype: str, vectors: int, adds: int = 0) -> str:
    """The switch over the number of rows; more than six need 32 vector registers. ``adds``: results
    are added to what is there."""
    lines = []
    for rows in range(1, 12):
        split = {1: 4, 2: 2, 3: 2}.get(rows, 1)
        if rows == 7:
            lines.append("#if defined(__AVX512F__) || defined(__aarch64__)")
        given = f"{rows}, {vectors}, {split}, depth, a, a_row, b, PANEL, {adds}, tile"
        lines.append(f"    case {rows}: multiply_rows_{ctype}({given}); break;")
    lines.append("#endif")
    return "\n".join(lines)


def _sums(low: str, with_step: str, step: str, following: str) -> str:
    """The functions of sums of any length. ``step``: an argument more; ``following``: the distance
    of B's rows."""
    text = _SUMS.replace("WITH_STEP", with_step).replace("STEP ", f"{step} ")
    return text.replace("LOW", low).replace("NEXT", following)


def _preamble(ctype: str, index_type: str) -> str:
    panel = panel_columns(ctype)
    text = _TYPE + _sums("", "", "", "PANEL")
    text += _sums("low_", " int64_t b_row,", " b_row,", "b_row")
    text = text.replace("CASES_1", _cases(ctype, 1)).replace("CASES_2", _cases(ctype, 2))
    text = text.replace("CASES_ADD", _cases(ctype, 2, adds=1))
    text += weaves(ctype, ITEM_BYTES[ctype]) + COPY
    text = text.replace("PANEL", str(panel)).replace("INDEX", index_type)
    words = {"T": ctype, **{f"T_{s}": f"{ctype}_{s}" for s in ("vec", "index", "lanes", "panel")}}
    words |= {f"T_weave_{s}": f"{ctype}_weave_{s}" for s in ("low", "high")}
    for stem in (
        "all",
        "load",
        "store",
        "maximum",
        "minimum",
        "sum_rows",
        "multiply_rows",
        "multiply_pair",
        "multiply_pair_add",
        "multiply_single",
        *(
            f"multiply_{low}{part}"
            for low in ("", "low_")
            for part in ("block", "add", "blocks", "tile")
        ),
        "add_block",
        "add_tile",
        "copy_transposed",
        "pack_panel",
        "pack_rows",
    ):
        words[f"{stem}_T"] = f"{stem}_{ctype}"
    return re.sub(r"\b\w+\b", lambda match: words.get(match[0], match[0]), text)


PREAMBLE = (
    _TARGET.replace("= WORTH }", f"= {PARALLEL_PRODUCTS} }}")
    + AMX_PREAMBLE
    + _preamble("float", "int32_t")
    + _preamble("double", "int64_t")
)
"""C text that must precede the functions of `gemm.py` and `conv.py` (after <stdint.h>)."""
