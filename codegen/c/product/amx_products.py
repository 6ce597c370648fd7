"""C text of matrix products on the tiles of AMX, if a file is compiled for a processor that has
them (see `amx_tile`), elsewhere by vectors.

- `AMX_BF16` is part of `gemm_bf16.BF16_PREAMBLE`: ``multiply_tile_bf16``; and for operands that are
  sums of two bf16 (``matmul_precision="high"``) ``split_rows_bf16`` and ``multiply_tile_split``.
- `AMX_INT8` is part of `int8_tile.INT8_PREAMBLE`: ``multiply_tile_u8`` and ``multiply_tile_i8``,
  and the same for a block of k.
"""

from __future__ import annotations

AMX_BF16 = """\

/* 32 floats as sums of two bf16: 16 pairs of upper and of lower parts. Where the nearest bf16 is
 * infinite the upper part is cut, not rounded; an infinity or a NaN leaves 0. */
static inline void split_pairs(const float *source, uint32_t *upper_pairs, uint32_t *lower_pairs)
{
    uint32_t upper[32];
    float rest[32];
    for (int j = 0; j < 32; j += float_lanes) {
        const float_vec x = *(const float_vec *)(source + j);
        const pair_vec infinite = (pair_vec){0} + 0x7f800000, bits = (pair_vec)x;
        const pair_vec is_finite = (pair_vec)((bits & infinite) != infinite);
        const pair_vec nearest = round_bf16(x);
        const pair_vec cut = is_finite & (pair_vec)((nearest & infinite) == infinite);
        const pair_vec taken = (cut & bits & 0xffff0000) | (~cut & nearest);
        *(pair_vec *)(upper + j) = taken;
        *(pair_vec *)(rest + j) = is_finite & (pair_vec)(x - (float_vec)taken);
    }
    for (int j = 0; j < 16; j++)
        upper_pairs[j] = upper[2 * j] >> 16 | upper[2 * j + 1];
    round_pairs(rest, lower_pairs);
}

/* round_rows_bf16 for sums of two bf16: target[i][p] are upper parts, `low` further lower ones. */
__attribute__((unused)) static void split_rows_bf16(
    int64_t rows, int64_t depth, const float *a, int64_t row_stride, int64_t column_stride,
    uint32_t *restrict target, int64_t target_row, int64_t low)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t k = 0; k < depth; k += 32) {
            const float *source = a + i * row_stride + k * column_stride;
            float part[32] = {0};
            if (column_stride != 1 || depth - k < 32) {
                for (int64_t j = 0; j < depth - k && j < 32; j++)
                    part[j] = source[j * column_stride];
                source = part;
            }
            uint32_t *const upper = target + i * target_row + k / 2;
            split_pairs(source, upper, upper + low);
        }
    }
}

#ifdef HAS_TILES
TILE_FUNCTION static void multiply_tiles_bf16(
    int rows, int columns, int64_t depth, const uint32_t *a, int64_t a_row, const uint32_t *b,
    float *restrict tile)
{
    multiply_tiles(1, 1, 0, rows, columns, 4 * depth, a, 0, 4 * a_row, 0, b, 0, tile);
}
#endif

#ifdef HAS_TILES
TILE_FUNCTION static void multiply_tiles_split(
    int rows, int columns, int64_t depth, const uint32_t *a, int64_t a_low, int64_t a_row,
    const uint32_t *b, int64_t b_low, float *restrict tile)
{
    multiply_tiles(1, 2, 0, rows, columns, 4 * depth, a, 4 * a_low, 4 * a_row, 0, b, b_low, tile);
}
#endif

/* multiply_tile_float for pairs: A is rows x depth pairs, the panel of B depth x 32 pairs, and
 * 1 <= rows <= PAIR_ROWS; between take_tiles and release_tiles. The array `tile` has PAIR_ROWS
 * rows, and those that are not asked for may be written, too. */
__attribute__((unused)) static inline void multiply_tile_bf16(
    int rows, int columns, int64_t depth, const uint32_t *a, int64_t a_row, const uint32_t *b,
    float *restrict tile)
{
#ifdef HAS_TILES
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

/* Whether there is a NaN in tile[rows][32]. */
__attribute__((unused)) static inline int has_nan(int rows, int columns, const float *tile)
{
    int found = 0;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++)
            found |= tile[i * float_panel + j] != tile[i * float_panel + j];
    return found;
}

/* The NaN in tile[rows][32] replaced by what `other` has there. */
__attribute__((unused)) static inline void replace_nan(
    int rows, int columns, float *restrict tile, const float *other)
{
    for (int i = 0; i < rows * float_panel; i++) {
        if (i % float_panel < columns && tile[i] != tile[i])
            tile[i] = other[i];
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
#ifdef HAS_TILES
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
    if (has_nan(rows, columns, tile)) {
        multiply_tile_bf16(rows, columns, depth, a, a_row, b, other);
        replace_nan(rows, columns, tile, other);
    }
}
"""

_INT8 = """\

#ifdef HAS_TILES
TILE_FUNCTION static void multiply_tiles_TYPE(
    int rows, int columns, int64_t depth, const void *a, int64_t a_row, const int32_t *b,
    const int32_t *start, int32_t *restrict tile)
{
    multiply_tiles(0, 1, FLIP, rows, columns, depth, a, 0, a_row, start, b, 0, tile);
}
#endif

/* tile[rows][32] = start + A (rows x depth numbers of TYPE, rows a_row apart) times one panel of
 * weights, of which b is the first quad, 1 <= rows <= QUAD_ROWS; between take_tiles and
 * release_tiles. `start` is the panel's own row of sums, or, if that is null, `tile`. The array
 * `tile` has QUAD_ROWS rows, and those that are not asked for may be written, too. What is needed
 * later, from `next` on, is fetched meanwhile, 64 bytes for each quad: otherwise the first tile of
 * few rows waits for memory, and others, which find the panel in the cache, let memory rest. */
__attribute__((unused)) static inline void add_block_TYPE(
    int rows, int columns, int64_t depth, const void *a, int64_t a_row, const int32_t *b,
    const int32_t *start, const int32_t *next, int32_t *tile)
{
#ifdef HAS_TILES
    if (tiles_allowed()) {
        int32_t other[QUAD_ROWS * 32];
        multiply_tiles_TYPE(rows, columns, depth, a, a_row, b, start, start ? tile : other);
        for (int i = 0; i < (start ? 0 : rows * 32); i++)
            tile[i] += other[i];
        return;
    }
#endif
    for (int row = 0; row < rows; row += TILE_ROWS) {
        const int count = rows - row < TILE_ROWS ? rows - row : TILE_ROWS;
        multiply_vectors_TYPE(count, columns, depth, (const uint8_t *)a + row * a_row, a_row, b,
                              start ? start : tile + row * int_panel, start ? 0 : int_panel, next,
                              tile + row * int_panel);
    }
}

/* tile[rows][32] = A times one panel of weights, which opens with its row of sums. */
__attribute__((unused)) static inline void multiply_tile_TYPE(
    int rows, int columns, int64_t depth, const void *a, int64_t a_row, const int32_t *b,
    int32_t *restrict tile)
{
    add_block_TYPE(rows, columns, depth, a, a_row, b + 32, b, b, tile);
}
"""

AMX_INT8 = "".join(
    _INT8.replace("TYPE", name).replace("FLIP", flip) for name, flip in (("u8", "0"), ("i8", "128"))
)
