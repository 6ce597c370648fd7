/* The matrix tile for products of bf16 with float sums (matmul_precision="medium"), and the same
 * for operands that are sums of two bf16 ("high").
 *
 * Measured on a Zen 4 core (one vdpbf16ps of 64 bytes per cycle, peak 236 GFLOP/s): 215 to 227
 * from 32 rows on. With this instruction, three such products of split operands take longer than
 * one of float; they are only worthwhile on the tiles of AMX. */

/* ---- Products of bf16 with sums of float --------------------------------------------------------
 * A bf16 is the upper half of a float with 8 significant bits, so a rounded operand is off by at
 * most 2^-8 of its value. Products of two are exact in float; sums are float. Two numbers that
 * are adjacent along k form a pair, with the first in the lower half. AVX512_BF16 multiplies 16
 * pairs at once and treats subnormal operands as zero; elsewhere the halves are widened to float,
 * and sums are the same except for their order. */
#if VECTOR_BYTES == 64
#include <immintrin.h>
#endif

typedef uint32_t pair_vec VECTOR(VECTOR_BYTES, 4);

/* Floats rounded to the nearest bf16, ties to even, in the upper halves; the lower halves are
 * zero. Numbers above 3.39e38 become infinity; a NaN stays a NaN. */
static inline pair_vec round_bf16(float_vec x)
{
    const pair_vec bits = (pair_vec)bits_of_float(x), is_nan = (pair_vec)MASK(x != x);
    const pair_vec rounded = bits + 0x7fff + (bits >> 16 & 1);
    return ((is_nan & (bits | 0x400000)) | (~is_nan & rounded)) & 0xffff0000;
}

/* The first or second halves of pairs, as floats. */
static inline float_vec halves_of_pairs(pair_vec pairs, int half)
{
    return float_of_bits((float_index)(pairs << (16 - 16 * half) & 0xffff0000));
}

/* Pairs of the elements of two vectors, with `first` rounded in the lower halves. */
static inline pair_vec round_to_pairs(float_vec first, float_vec second)
{
#if VECTOR_BYTES == 64 && defined(__AVX512BF16__)
    const __m512bh halves = _mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
    const __m512i woven = _mm512_set_epi16(
        31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,
        23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return (pair_vec)_mm512_permutexvar_epi16(woven, (__m512i)halves);
#else
    return (round_bf16(first) >> 16) | round_bf16(second);
#endif
}

/* Loads vectors of bf16 from memory as floats, and stores floats rounded to bf16: `count`
 * elements, or a whole vector if there are more. */
typedef uint16_t half_vec VECTOR(VECTOR_BYTES / 2, 2);

static inline float_vec load_bf16(const uint16_t *from, int count)
{
    half_vec halves = {0};
    if (count >= float_lanes) /* the usual case, without a call */
        memcpy(&halves, from, sizeof(halves));
    else
        memcpy(&halves, from, (size_t)count * 2);
#if VECTOR_BYTES == 64 /* one instruction for each, instead of four and one */
    return (float_vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)halves), 16);
#else
    return float_of_bits((float_index)(CONVERT(halves, pair_vec) << 16));
#endif
}

static inline void store_bf16(uint16_t *to, float_vec x, int count)
{
#if VECTOR_BYTES == 64 && defined(__AVX512BF16__)
    const half_vec halves = (half_vec)_mm512_cvtneps_pbh((__m512)x);
#else
    const half_vec halves = CONVERT(round_bf16(x) >> 16, half_vec);
#endif
    if (count >= float_lanes)
        memcpy(to, &halves, sizeof(halves));
    else
        memcpy(to, &halves, (size_t)count * 2);
}

/* One half of a pair, and a float rounded to bf16, as floats: for plain loops. */
static inline float half_of_pair(uint32_t pair, int half)
{
    return LANE(halves_of_pairs((pair_vec){pair}, half), 0);
}

static inline float rounded_bf16(float x)
{
    return LANE(float_of_bits((float_index)round_bf16((float_vec){x})), 0);
}

/* A pair that may have been stored as two bf16. */
typedef uint32_t stored_pair MAY_ALIAS ALIGNED(2);

/* sum[i * step][v] += the pair a[i * a_row] times the pairs b[v], for each row and vector. */
static TILE_INLINE void add_pairs(
    const int rows, const int vectors, const int step, const uint32_t *a, int64_t a_row,
    const uint32_t *b, float_vec sum[TILE_ROWS][2])
{
    const stored_pair *const a_k = (const stored_pair *)a;
    pair_vec b_k[2];
    #pragma GCC unroll 2
    for (int v = 0; v < vectors; v++)
        b_k[v] = *(const volatile pair_vec *)(b + v * float_lanes);
#if VECTOR_BYTES == 64 && defined(__AVX512BF16__)
    #pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        const __m512bh a_i = (__m512bh)_mm512_set1_epi32((int)a_k[i * a_row]);
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            sum[i * step][v] = (float_vec)_mm512_dpbf16_ps(
                (__m512)sum[i * step][v], a_i, (__m512bh)b_k[v]);
    }
#else
    #pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        #pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            const float_vec a_i = halves_of_pairs(a_k[i * a_row] - (pair_vec){0}, half);
            #pragma GCC unroll 2
            for (int v = 0; v < vectors; v++)
                sum[i * step][v] += a_i * halves_of_pairs(b_k[v], half);
        }
    }
#endif
}

/* sum_rows_float_vec for pairs: sum[i * split][v] = sum over k < 2 * depth of a[i][k] * b[k][j]. */
static TILE_INLINE void sum_rows_bf16(
    const int rows, const int vectors, const int split, int64_t depth,
    const uint32_t *a, int64_t a_row, const uint32_t *b, float_vec sum[TILE_ROWS][2])
{
    #pragma GCC unroll 16
    for (int i = 0; i < rows * split; i++) {
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            sum[i][v] = (float_vec){0};
    }
    for (; split > 1 && depth >= split; depth -= split, a += split, b += split * float_panel) {
        #pragma GCC unroll 4
        for (int s = 0; s < split; s++)
            add_pairs(rows, vectors, split, a + s, a_row, b + s * float_panel, sum + s);
    }
    for (int64_t k = 0; k < depth; k++)
        add_pairs(rows, vectors, split, a + k, a_row, b + k * float_panel, sum);
    join_parts_float_vec(rows, vectors, split, sum);
}

/* The same, stored to memory: tile[i][j]. */
static TILE_INLINE void multiply_rows_bf16(
    const int rows, const int vectors, const int split, int64_t depth,
    const uint32_t *a, int64_t a_row, const uint32_t *b, float *restrict tile)
{
    float_vec sum[TILE_ROWS][2];
    sum_rows_bf16(rows, vectors, split, depth, a, a_row, b, sum);
    #pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            *(float_vec *)(tile + i * float_panel + v * float_lanes) = sum[i * split][v];
    }
}

/* multiply_pair_float and multiply_single_float_vec for pairs. */
TILE_FUNCTION static void multiply_pair_bf16(
    int rows, int64_t depth, const uint32_t *a, int64_t a_row, const uint32_t *b,
    float *restrict tile)
{
    switch (rows) {
    ROW_CASES(multiply_rows_bf16, 2, depth, a, a_row, b, tile)
    }
}

TILE_FUNCTION static void multiply_single_bf16(
    int rows, int64_t depth, const uint32_t *a, int64_t a_row, const uint32_t *b,
    float *restrict tile)
{
    switch (rows) {
    ROW_CASES(multiply_rows_bf16, 1, depth, a, a_row, b, tile)
    }
}

/* multiply_tile_float for pairs: A is rows x depth pairs, the panel of B depth x 32 pairs. */
static inline void multiply_vectors_bf16(
    int rows, int columns, int64_t depth, const uint32_t *a, int64_t a_row, const uint32_t *b,
    float *restrict tile)
{
    for (int j = 0; j < columns; j += 2 * float_lanes) {
        if (columns - j > float_lanes)
            multiply_pair_bf16(rows, depth, a, a_row, b + j, tile + j);
        else
            multiply_single_bf16(rows, depth, a, a_row, b + j, tile + j);
    }
}

/* Rounds 32 floats to 16 pairs. */
static inline void round_pairs(const float *source, uint32_t *target)
{
#if VECTOR_BYTES == 64 && defined(__AVX512BF16__)
    const __m512 first = _mm512_loadu_ps(source), second = _mm512_loadu_ps(source + 16);
    _mm512_storeu_si512(target, (__m512i)_mm512_cvtne2ps_pbh(second, first));
#else
    uint32_t bits[32];
    for (int j = 0; j < 32; j += float_lanes)
        *(pair_vec *)(bits + j) = round_bf16(*(const float_vec *)(source + j));
    for (int j = 0; j < 16; j++)
        target[j] = bits[2 * j] >> 16 | bits[2 * j + 1];
#endif
}

/* 32 numbers that are `stride` apart as adjacent ones, followed by zeros if `count` is smaller:
 * in place if they are adjacent there, otherwise in `part`. */
static inline const float *in_a_row(const float *a, int64_t stride, int64_t count, float part[32])
{
    if (stride == 1 && count >= 32)
        return a;
    for (int64_t j = 0; j < 32; j++)
        part[j] = j < count ? a[j * stride] : 0;
    return part;
}

/* Rounds rows of A: target[i][p] = the pair of a[i * row_stride + k * column_stride], k = 2p and
 * 2p + 1, with 0 for k >= depth, up to the next multiple of 16 pairs. Rows are stored one after
 * the other. */
static void round_rows_bf16(
    int64_t rows, int64_t depth, const float *a, int64_t row_stride, int64_t column_stride,
    uint32_t *restrict target, int64_t target_row)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t k = 0; k < depth; k += 32) {
            float part[32];
            const float *const source =
                in_a_row(a + i * row_stride + k * column_stride, column_stride, depth - k, part);
            round_pairs(source, target + i * target_row + k / 2);
        }
    }
}

/* The same for an A that is bf16 already; rows of target end at `depth`. */
static void pair_rows_bf16(
    int64_t rows, int64_t depth, const uint16_t *a, int64_t row_stride, int64_t column_stride,
    uint32_t *restrict target, int64_t target_row)
{
    for (int64_t i = 0; i < rows; i++, a += row_stride, target += target_row) {
        const int64_t whole = column_stride == 1 ? depth / 2 * 2 : 0;
        memcpy(target, a, (size_t)whole * 2);
        for (int64_t k = whole; k < depth; k += 2) {
            const uint32_t second = k + 1 < depth ? a[(k + 1) * column_stride] : 0;
            target[k / 2] = a[k * column_stride] | second << 16;
        }
    }
}

/* target[j] = the pair of first[j] and second[j], for j < count; a null `second` stands for
 * zeros. */
static inline void round_row_pairs(
    int64_t count, const float *first, const float *second, uint32_t *restrict target)
{
    const float_vec zero = {0};
    int64_t j = 0;
    for (; j + float_lanes <= count; j += float_lanes)
        *(pair_vec *)(target + j) = round_to_pairs(
            *(const float_vec *)(first + j), second ? *(const float_vec *)(second + j) : zero);
    if (j < count) {
        const int rest = (int)(count - j) % float_lanes;
        float_vec last[2] = {zero, zero};
        for (int i = 0; i < rest; i++) {
            LANE(last[0], i) = first[j + i];
            LANE(last[1], i) = second ? second[j + i] : 0;
        }
        const pair_vec pairs = round_to_pairs(last[0], last[1]);
        for (int i = 0; i < rest; i++)
            target[j + i] = LANE(pairs, i);
    }
}

/* Rounds one panel of B: panel[p][j] = the pair of b[k * row_stride + j * column_stride], k = 2p
 * and 2p + 1, with 0 for k >= depth and for j >= columns. */
static void round_panel_bf16(
    int64_t depth, int columns, const float *b, int64_t row_stride, int64_t column_stride,
    uint32_t *restrict panel)
{
    for (int64_t k = 0; k < depth; k += 2, panel += float_panel) {
        const float *first = b + k * row_stride, *second = k + 1 < depth ? first + row_stride : 0;
        float rows[2][32];
        if (column_stride != 1) {
            for (int j = 0; j < columns; j++) {
                rows[0][j] = first[j * column_stride];
                rows[1][j] = second ? second[j * column_stride] : 0;
            }
            first = rows[0], second = rows[1];
        }
        round_row_pairs(columns, first, second, panel);
        for (int j = columns; j < float_panel; j++)
            panel[j] = 0;
    }
}

/* Splits 32 floats into sums of two bf16: 16 pairs of upper and 16 of lower parts. If the nearest
 * bf16 is infinite, the upper part is truncated instead of rounded; an infinity or a NaN has the
 * lower part 0. */
static inline void split_pairs(const float *source, uint32_t *upper_pairs, uint32_t *lower_pairs)
{
    uint32_t upper[32];
    float rest[32];
    for (int j = 0; j < 32; j += float_lanes) {
        const float_vec x = *(const float_vec *)(source + j);
        const pair_vec infinite = (pair_vec){0} + 0x7f800000, bits = (pair_vec)bits_of_float(x);
        const pair_vec is_finite = (pair_vec)MASK((bits & infinite) != infinite);
        const pair_vec nearest = round_bf16(x);
        const pair_vec cut = is_finite & (pair_vec)MASK((nearest & infinite) == infinite);
        const pair_vec taken = (cut & bits & 0xffff0000) | (~cut & nearest);
        *(pair_vec *)(upper + j) = taken;
        const float_vec left = x - float_of_bits((float_index)taken);
        *(pair_vec *)(rest + j) = is_finite & (pair_vec)bits_of_float(left);
    }
    for (int j = 0; j < 16; j++)
        upper_pairs[j] = upper[2 * j] >> 16 | upper[2 * j + 1];
    round_pairs(rest, lower_pairs);
}

/* round_rows_bf16 for sums of two bf16: target[i][p] are upper parts, with lower parts `low`
 * further. */
static void split_rows_bf16(
    int64_t rows, int64_t depth, const float *a, int64_t row_stride, int64_t column_stride,
    uint32_t *restrict target, int64_t target_row, int64_t low)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t k = 0; k < depth; k += 32) {
            float part[32];
            const float *const source =
                in_a_row(a + i * row_stride + k * column_stride, column_stride, depth - k, part);
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
 * rows, and rows beyond `rows` may be overwritten. */
static inline void multiply_tile_bf16(
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
static inline int has_nan(int rows, int columns, const float *tile)
{
    int found = 0;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++)
            found |= tile[i * float_panel + j] != tile[i * float_panel + j];
    return found;
}

/* Replaces each NaN in tile[rows][32] by the number of `other` in its place. */
static inline void replace_nan(
    int rows, int columns, float *restrict tile, const float *other)
{
    for (int i = 0; i < rows * float_panel; i++) {
        if (i % float_panel < columns && tile[i] != tile[i])
            tile[i] = other[i];
    }
}

/* The same for operands that are sums of two bf16: a and the numbers a_low further on, b and
 * those b_low further on. Products of two lower parts are left out: they are 2^-16 of the result.
 * An infinity times a lower part of 0, or of the other sign, would give a wrong NaN; everything
 * that such a number contributes to is infinite or NaN, and is computed from the upper parts
 * alone. */
static inline void multiply_tile_split(
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
