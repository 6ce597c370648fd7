"""C text of the matrix tile, the one loop nest in which every product spends its time, and the
layout its operands are packed in.

`PREAMBLE` goes once into a translation unit, before any function of `gemm.py` or `conv.py`. It
defines, for ``float`` and ``double``,

- the vector type and its number of lanes (64, 32 or 16 bytes, whatever the target has),
- ``multiply_tile_T``: `rows` rows of A times a panel of B, into a small array,
- ``pack_panel_T`` and ``copy_transposed_T``: how operands that are not packed at compile time are
  brought into the layout the tile reads,
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

#ifdef _OPENMP
int omp_get_thread_num(void);
int omp_get_num_threads(void);
#endif

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

/* How many threads the calling thread's team has. */
__attribute__((unused)) static inline int64_t team_size(void)
{
#ifdef _OPENMP
    return omp_get_num_threads();
#else
    return 1;
#endif
}

/* Bytes of a core's second-level cache; fxlite gives its machine's with -DL2_BYTES. */
#ifndef L2_BYTES
#define L2_BYTES 1048576
#endif

/* How many blocks of whole row tiles a product is cut into: so that the rows of A in one block stay
 * in half of the second-level cache while the panels of B pass by, and so that the blocks times
 * `other_tasks` give each thread at least four tasks, and all threads equally many. */
static inline int64_t count_row_blocks(int64_t row_tiles, int64_t tile_bytes,
                                       int64_t other_tasks, int n_threads)
{
    const int64_t for_cache = row_tiles * tile_bytes / (L2_BYTES / 2) + 1;
    const int64_t for_threads = other_tasks > 0 ? (4 * n_threads - 1) / other_tasks + 1 : 1;
    int64_t blocks = for_cache > for_threads ? for_cache : for_threads;
    if (blocks * other_tasks % n_threads != 0)
        blocks = (blocks + n_threads - 1) / n_threads * n_threads;
    return blocks < row_tiles ? blocks : row_tiles;
}
"""

_TYPE = """\

typedef T T_vec __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(T)), may_alias));
enum { T_lanes = VECTOR_BYTES / sizeof(T), T_panel = PANEL };

/* tile[i][j] = sum over k of a[i][k] * b[k][j], for `rows` rows of A and `vectors` vectors of B.
 * The sums stay in registers. `rows`, `vectors`, `split` are constants where this is inlined; with
 * few rows the sum over k is split into `split` independent ones to hide the latency of the FMA.
 * B is read through volatile so that GCC loads a vector once for all rows: left alone it folds the
 * load into every FMA when rows <= 4, and is bound by loads (measured: 85 against 117 GFLOP/s). */
static inline __attribute__((always_inline)) void multiply_rows_T(
    const int rows, const int vectors, const int split, int64_t depth,
    const T *a, int64_t a_row, const T *b, int64_t b_row, T *restrict tile)
{
    T_vec sum[TILE_ROWS][2], b_k[2];
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
    for (int64_t k = 0; k < depth; k++) {
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            b_k[v] = *(const volatile T_vec *)(b + k * b_row + v * T_lanes);
        #pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            #pragma GCC unroll 2
            for (int v = 0; v < vectors; v++)
                sum[i * split][v] += a[i * a_row + k] * b_k[v];
        }
    }
    #pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            #pragma GCC unroll 4
            for (int s = 1; s < split; s++)
                sum[i * split][v] += sum[i * split + s][v];
            *(T_vec *)(tile + i * T_panel + v * T_lanes) = sum[i * split][v];
        }
    }
}

/* tile[rows][PANEL] = A (rows x depth, rows a_row apart) times one panel of B (depth x columns,
 * rows PANEL apart), 1 <= rows <= TILE_ROWS. Computes whole vectors: the columns beyond `columns`
 * hold what the panel makes of them. */
TILE_FUNCTION static void multiply_tile_T(
    int rows, int columns, int64_t depth, const T *a, int64_t a_row, const T *b, T *restrict tile)
{
    for (int j = 0; j < columns; j += 2 * T_lanes, b += 2 * T_lanes, tile += 2 * T_lanes) {
        if (columns - j > T_lanes) {
            switch (rows) {
CASES_2
            }
        } else {
            switch (rows) {
CASES_1
            }
        }
    }
}

/* The same for one or two rows of A and a B that is not packed: its rows are b_row apart. */
TILE_FUNCTION static void multiply_low_tile_T(
    int rows, int columns, int64_t depth, const T *a, int64_t a_row, const T *b, int64_t b_row,
    T *restrict tile)
{
    for (int j = 0; j < columns; j += T_lanes, b += T_lanes, tile += T_lanes) {
        if (rows == 1)
            multiply_rows_T(1, 1, 4, depth, a, a_row, b, b_row, tile);
        else
            multiply_rows_T(2, 1, 2, depth, a, a_row, b, b_row, tile);
    }
}

/* target[j][i] = source[i][j] for `rows` x `columns` values: whole squares of one vector's lanes by
 * log2(lanes) rounds of interleaving row i with row i + lanes/2, the rest one by one. */
TILE_FUNCTION static void copy_transposed_T(
    int64_t rows, int64_t columns, const T *source, int64_t source_row,
    T *restrict target, int64_t target_row)
{
    const int64_t whole_rows = rows - rows % T_lanes, whole_columns = columns - columns % T_lanes;
    for (int64_t i = 0; i < whole_rows; i += T_lanes) {
        for (int64_t j = 0; j < whole_columns; j += T_lanes) {
            T_vec square[T_lanes], woven[T_lanes];
            #pragma GCC unroll 16
            for (int r = 0; r < T_lanes; r++)
                square[r] = *(const T_vec *)(source + (i + r) * source_row + j);
            #pragma GCC unroll 4
            for (int round = 1; round < T_lanes; round *= 2) {
                #pragma GCC unroll 8
                for (int r = 0; r < T_lanes / 2; r++) {
                    woven[2 * r] = T_weave_low(square[r], square[r + T_lanes / 2]);
                    woven[2 * r + 1] = T_weave_high(square[r], square[r + T_lanes / 2]);
                }
                #pragma GCC unroll 16
                for (int r = 0; r < T_lanes; r++)
                    square[r] = woven[r];
            }
            #pragma GCC unroll 16
            for (int r = 0; r < T_lanes; r++)
                *(T_vec *)(target + (j + r) * target_row + i) = square[r];
        }
        for (int64_t j = whole_columns; j < columns; j++)
            for (int r = 0; r < T_lanes; r++)
                target[j * target_row + i + r] = source[(i + r) * source_row + j];
    }
    for (int64_t i = whole_rows; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            target[j * target_row + i] = source[i * source_row + j];
}

/* One panel of B: panel[k][j] = b[k * row_stride + j * column_stride], and 0 for j >= columns. */
__attribute__((unused)) static void pack_panel_T(
    int64_t depth, int columns, const T *b, int64_t row_stride, int64_t column_stride,
    T *restrict panel)
{
    if (row_stride == 1 && column_stride != 1) {
        copy_transposed_T(columns, depth, b, column_stride, panel, PANEL);
    } else if (column_stride == 1 && columns == PANEL) {
        for (int64_t k = 0; k < depth; k++)
            for (int j = 0; j < PANEL; j++)
                panel[k * PANEL + j] = b[k * row_stride + j];
    } else {
        for (int64_t k = 0; k < depth; k++)
            for (int j = 0; j < columns; j++)
                panel[k * PANEL + j] = b[k * row_stride + j * column_stride];
    }
    for (int64_t k = 0; columns < PANEL && k < depth; k++)
        for (int j = columns; j < PANEL; j++)
            panel[k * PANEL + j] = 0;
}

/* Rows of A one after the other: target[i][k] = a[i * row_stride + k * column_stride]. */
__attribute__((unused)) static void pack_rows_T(
    int64_t rows, int64_t depth, const T *a, int64_t row_stride, int64_t column_stride,
    T *restrict target, int64_t target_row)
{
    if (row_stride == 1 && column_stride != 1) {
        copy_transposed_T(depth, rows, a, column_stride, target, target_row);
        return;
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < depth; k++)
            target[i * target_row + k] = a[i * row_stride + k * column_stride];
}
"""


def _weaves(ctype: str, index_type: str) -> str:
    """The two shuffles of copy_transposed, for each width of vector."""
    lines = [
        "",
        f"typedef {index_type} {ctype}_index __attribute__((vector_size(VECTOR_BYTES)));",
    ]
    for directive, width in (
        ("#if defined(__AVX512F__)", 64),
        ("#elif defined(__AVX__)", 32),
        ("#else", 16),
    ):
        lanes = width // ITEM_BYTES[ctype]
        lines.append(directive)
        for name, start in (("low", 0), ("high", lanes // 2)):
            weave = ", ".join(f"{start + j // 2 + j % 2 * lanes}" for j in range(lanes))
            lines.append(f"#define {ctype}_weave_{name}(a, b) \\")
            lines.append(f"    SHUFFLE({ctype}_index, a, b, {weave})")
    lines.append("#endif")
    return "\n".join(lines) + "\n"


def _cases(ctype: str, vectors: int) -> str:
    """The switch over the number of rows; more than six need 32 vector registers."""
    lines = []
    for rows in range(1, 12):
        split = {1: 4, 2: 2, 3: 2}.get(rows, 1)
        if rows == 7:
            lines.append("#if defined(__AVX512F__) || defined(__aarch64__)")
        call = f"multiply_rows_{ctype}({rows}, {vectors}, {split}, depth, a, a_row, b, PANEL, tile)"
        lines.append(f"            case {rows}: {call}; break;")
    lines.append("#endif")
    return "\n".join(lines)


def _preamble(ctype: str, index_type: str) -> str:
    panel = panel_columns(ctype)
    text = _TYPE.replace("CASES_1", _cases(ctype, 1)).replace("CASES_2", _cases(ctype, 2))
    text = text.replace("PANEL", str(panel))
    words = {"T": ctype, **{f"T_{s}": f"{ctype}_{s}" for s in ("vec", "lanes", "panel")}}
    words |= {f"T_weave_{s}": f"{ctype}_weave_{s}" for s in ("low", "high")}
    for stem in (
        "multiply_rows",
        "multiply_tile",
        "multiply_low_tile",
        "copy_transposed",
        "pack_panel",
        "pack_rows",
    ):
        words[f"{stem}_T"] = f"{stem}_{ctype}"
    text = re.sub(r"\b\w+\b", lambda match: words.get(match[0], match[0]), text)
    head, tail = text.split("\n/* tile[i][j]", 1)
    return head + "\n" + _weaves(ctype, index_type) + "\n/* tile[i][j]" + tail


PREAMBLE = (
    _TARGET.replace("= WORTH }", f"= {PARALLEL_PRODUCTS} }}")
    + _preamble("float", "int32_t")
    + _preamble("double", "int64_t")
)
"""C text that must precede the functions of `gemm.py` and `conv.py` (after <stdint.h>)."""
