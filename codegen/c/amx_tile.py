"""C text of products on the matrix tiles of AMX, where a file is compiled for a processor that has
them (``__AMX_BF16__``, ``__AMX_INT8__``); elsewhere the same functions take vectors.

- `AMX_PREAMBLE` is part of `gemm_pack.PREAMBLE`: asking the system for the tiles, and
  ``take_tiles`` and ``release_tiles``, between which a thread uses them.
- `AMX_BF16` is part of `gemm_bf16.BF16_PREAMBLE`: ``multiply_tile_bf16``, and
  ``multiply_tile_split`` for operands that are split in two bf16 (``matmul_precision="high"``).
- `amx_int8_tile.AMX_INT8` is part of `int8_tile.INT8_PREAMBLE`.

Panels of pairs and of quads are what the instructions want of B: 16 rows of 64 bytes are 16 columns
of 32 (64) steps along k. So packed weights do not depend on the machine, and A is read where it is.
All tiles have 16 rows, so that a thread configures them once for many products (200 cycles). What
is not whole is made so: of 17 to 31 rows the second tile is the last 16, and computes some again;
fewer than 16 rows, and what is left of k, are copied with zeros.

None of this was measured where it stands, on a machine with AMX; of a plainer program with the same
inner loop it is known that a core reaches 890 to 1660 GFLOP/s in bf16, and 370 to 530 in three
products of split operands, where float32 reaches 180.
"""

from __future__ import annotations

AMX_PREAMBLE = """\

/* ---- The matrix tiles of AMX -------------------------------------------------------------------
 * Registers of 16 rows of 64 bytes. A thread takes them before its products and releases them
 * after: as long as it has them, the system saves 8 KiB more whenever it changes threads. */
#if (defined(__AMX_BF16__) || defined(__AMX_INT8__)) && defined(__linux__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#define HAS_TILES
#endif

/* Whether this process may use tiles. Linux allows it when asked (ARCH_REQ_XCOMP_PERM, XTILEDATA),
 * unless the processor has none, or a sandbox forbids it: then products take vectors. */
static inline int tiles_allowed(void)
{
#ifdef HAS_TILES
    static int answer; /* 0: not asked yet */
    int known = __atomic_load_n(&answer, __ATOMIC_RELAXED);
    if (known == 0) {
        known = syscall(SYS_arch_prctl, 0x1023, 18) == 0 ? 1 : -1;
        __atomic_store_n(&answer, known, __ATOMIC_RELAXED);
    }
    return known == 1;
#else
    return 0;
#endif
}

/* The first row of a tile of sums, number `tile` of `tiles`, which have up to `most` rows: they are
 * cut evenly, between whole registers where there are tiles. */
static inline int64_t first_tile_row(int64_t tile, int64_t tiles, int64_t rows, int most)
{
    const int64_t unit = most == 32 ? 16 : 1, units = (rows + unit - 1) / unit;
    const int64_t row = tile * units / tiles * unit;
    return row < rows ? row : rows;
}

/* Before the products of a thread: eight tiles, of 16 rows of 64 bytes each. */
static inline void take_tiles(void)
{
#ifdef HAS_TILES
    static const struct {
        uint8_t palette, first_row, unused[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shape __attribute__((aligned(64))) = {
        .palette = 1,
        .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
        .rows = {16, 16, 16, 16, 16, 16, 16, 16},
    };
    if (tiles_allowed())
        _tile_loadconfig(&shape);
#endif
}

/* After them. */
static inline void release_tiles(void)
{
#ifdef HAS_TILES
    if (tiles_allowed())
        _tile_release();
#endif
}
"""

_BF16 = """\

/* Rows of a tile of a product of bf16. */
#if defined(__AMX_BF16__) && defined(HAS_TILES)
enum { PAIR_ROWS = 32 };
#else
enum { PAIR_ROWS = TILE_ROWS };
#endif

#if defined(__AMX_BF16__) && defined(HAS_TILES)
/* Up to 32 rows of 16 pairs into tiles 4 and 5, the second one from row `second` on. */
static inline __attribute__((always_inline)) void load_pair_rows(
    const int row_tiles, const uint32_t *a, int64_t a_row, int second)
{
    _tile_loadd(4, a, 4 * a_row);
    if (row_tiles > 1)
        _tile_loadd(5, a + second * a_row, 4 * a_row);
}

/* Up to 32 columns of 16 pairs, rows of a panel, into tiles 6 and 7. */
static inline __attribute__((always_inline)) void load_pair_columns(
    const int column_tiles, const uint32_t *b)
{
    _tile_loadd(6, b, 128);
    if (column_tiles > 1)
        _tile_loadd(7, b + 16, 128);
}

/* Tiles 0 to 3 += their products. */
static inline __attribute__((always_inline)) void add_pair_products(
    const int row_tiles, const int column_tiles)
{
    _tile_dpbf16ps(0, 4, 6);
    if (column_tiles > 1)
        _tile_dpbf16ps(1, 4, 7);
    if (row_tiles > 1)
        _tile_dpbf16ps(2, 5, 6);
    if (row_tiles > 1 && column_tiles > 1)
        _tile_dpbf16ps(3, 5, 7);
}

/* 16 steps of pairs: rows at a times columns at b are added to tiles 0 to 3. If `split`, the lower
 * parts are a_low and b_low further, and their products with the upper ones are added, too. */
static inline __attribute__((always_inline)) void add_pair_tiles(
    const int row_tiles, const int column_tiles, const int split, const uint32_t *a, int64_t a_low,
    int64_t a_row, int second, const uint32_t *b, int64_t b_low)
{
    load_pair_columns(column_tiles, b);
    if (split) {
        load_pair_rows(row_tiles, a + a_low, a_row, second);
        add_pair_products(row_tiles, column_tiles);
    }
    load_pair_rows(row_tiles, a, a_row, second);
    add_pair_products(row_tiles, column_tiles);
    if (split) {
        load_pair_columns(column_tiles, b + b_low);
        add_pair_products(row_tiles, column_tiles);
    }
}

/* block[32][16] = `rows` rows of `pairs` pairs, and zeros. */
static inline void copy_pair_rows(int rows, int64_t pairs, const uint32_t *a, int64_t a_row,
                                  uint32_t *restrict block)
{
    for (int i = 0; i < 32; i++)
        for (int j = 0; j < 16; j++)
            block[i * 16 + j] = i < rows && j < pairs ? a[i * a_row + j] : 0;
}

/* multiply_tile_bf16 on tiles, or multiply_tile_split. GCC does not know that a tile is loaded from
 * memory: what was stored before has to be there. */
static inline __attribute__((always_inline)) void multiply_pair_tiles(
    const int row_tiles, const int column_tiles, const int split, int rows, int64_t depth,
    const uint32_t *a, int64_t a_low, int64_t a_row, const uint32_t *b, int64_t b_low,
    float *restrict tile)
{
    const int second = row_tiles > 1 ? rows - 16 : 0;
    int64_t k = 0;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    __asm__ volatile("" ::: "memory");
    if (rows == 1 || rows >= 16) { /* one row is read 16 times */
        const int64_t step = rows == 1 ? 0 : a_row;
        for (; k + 16 <= depth; k += 16)
            add_pair_tiles(row_tiles, column_tiles, split, a + k, a_low, step, second,
                           b + k * 32, b_low);
    }
    for (; k < depth; k += 16) {
        const int64_t pairs = depth - k < 16 ? depth - k : 16;
        uint32_t a_block[2][32 * 16], b_block[2][16 * 32];
        for (int part = 0; part <= split; part++) {
            copy_pair_rows(rows, pairs, a + part * a_low + k, a_row, a_block[part]);
            const uint32_t *const columns = b + part * b_low + k * 32;
            for (int i = 0; pairs < 16 && i < 16 * 32; i++)
                b_block[part][i] = i < pairs * 32 ? columns[i] : 0;
        }
        __asm__ volatile("" ::: "memory");
        const int whole = pairs == 16;
        add_pair_tiles(row_tiles, column_tiles, split, a_block[0], 32 * 16, 16, second,
                       whole ? b + k * 32 : b_block[0], whole ? b_low : 16 * 32);
    }
    _tile_stored(0, tile, 128);
    if (column_tiles > 1)
        _tile_stored(1, tile + 16, 128);
    if (row_tiles > 1)
        _tile_stored(2, tile + second * 32, 128);
    if (row_tiles > 1 && column_tiles > 1)
        _tile_stored(3, tile + second * 32 + 16, 128);
}

TILE_FUNCTION static void multiply_tiles_bf16(
    int rows, int columns, int64_t depth, const uint32_t *a, int64_t a_row, const uint32_t *b,
    float *restrict tile)
{
CASES_BF16
}

TILE_FUNCTION static void multiply_tiles_split(
    int rows, int columns, int64_t depth, const uint32_t *a, int64_t a_low, int64_t a_row,
    const uint32_t *b, int64_t b_low, float *restrict tile)
{
CASES_SPLIT
}
#endif

/* multiply_tile_float for pairs: A is rows x depth pairs, the panel of B depth x 32 pairs, and
 * 1 <= rows <= PAIR_ROWS; between take_tiles and release_tiles. The array `tile` has PAIR_ROWS
 * rows, and those that are not asked for may be written, too. */
__attribute__((unused)) static inline void multiply_tile_bf16(
    int rows, int columns, int64_t depth, const uint32_t *a, int64_t a_row, const uint32_t *b,
    float *restrict tile)
{
#if defined(__AMX_BF16__) && defined(HAS_TILES)
    if (tiles_allowed()) {
        multiply_tiles_bf16(rows, columns, depth, a, a_row, b, tile);
        return;
    }
#endif
    for (int row = 0; row < rows; row += TILE_ROWS) {
        const int count = rows - row < TILE_ROWS ? rows - row : TILE_ROWS;
        multiply_vectors_bf16(count, columns, depth, a + row * a_row, a_row, b,
                              tile + row * float_panel);
    }
}

/* The same for operands that are sums of two bf16: a and the numbers a_low further, b and those
 * b_low further. Products of lower parts are left out: they are 2^-16 of the result. An infinity
 * times a lower part of 0, or of the other sign, is not what belongs there; all that such a number
 * is multiplied into is infinite or NaN, which the upper parts alone tell. */
__attribute__((unused)) static inline void multiply_tile_split(
    int rows, int columns, int64_t depth, const uint32_t *a, int64_t a_low, int64_t a_row,
    const uint32_t *b, int64_t b_low, float *restrict tile)
{
    float other[PAIR_ROWS * 32];
    int is_nan = 0;
#if defined(__AMX_BF16__) && defined(HAS_TILES)
    if (tiles_allowed())
        multiply_tiles_split(rows, columns, depth, a, a_low, a_row, b, b_low, tile);
    else
#endif
    {
        multiply_tile_bf16(rows, columns, depth, a + a_low, a_row, b, tile);
        for (int term = 1; term < 3; term++) {
            multiply_tile_bf16(rows, columns, depth, a, a_row, term == 1 ? b + b_low : b, other);
            for (int i = 0; i < rows; i++)
                for (int j = 0; j < columns; j++)
                    tile[i * 32 + j] += other[i * 32 + j];
        }
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++)
            is_nan |= tile[i * 32 + j] != tile[i * 32 + j];
    if (!is_nan)
        return;
    multiply_tile_bf16(rows, columns, depth, a, a_row, b, other);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++)
            if (tile[i * 32 + j] != tile[i * 32 + j])
                tile[i * 32 + j] = other[i * 32 + j];
}
"""


def _cases(split: bool) -> str:
    """The choice between one and two tiles of rows and of columns."""
    parts = "a, a_low, a_row, b, b_low" if split else "a, 0, a_row, b, 0"
    lines: list[str] = []
    for row_tiles, column_tiles in ((2, 2), (2, 1), (1, 2), (1, 1)):
        conditions = ["rows > 16"] * (row_tiles == 2) + ["columns > 16"] * (column_tiles == 2)
        word = "else " if lines else ""
        lines.append(f"    {word}if ({' && '.join(conditions)})" if conditions else "    else")
        numbers = f"{row_tiles}, {column_tiles}, {int(split)}"
        lines.append(f"        multiply_pair_tiles({numbers}, rows, depth, {parts}, tile);")
    return "\n".join(lines)


AMX_BF16 = _BF16.replace("CASES_BF16", _cases(False)).replace("CASES_SPLIT", _cases(True))
