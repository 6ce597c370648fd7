/* The tile of linear layers with integer weights and float activations.
 *
 * The speed of a few rows of activations is limited by how fast weights come from memory, so
 * weights stay integers there and become floats in registers, once for the rows of a tile. If
 * there are more rows, a panel of weights is converted to floats in the cache, once for all rows,
 * and the tile of floats multiplies it. Panels have 32 columns, like those of floats; a row of a
 * panel has four bytes of each column: four numbers of i8, or eight of int4, that are adjacent
 * along k, with the first one in the lowest bits. With AVX-512, int4 are looked up by their bits
 * in a register that holds the numbers from -8 to 7 as floats. In registers the sum of a group is
 * multiplied by its scale, so that a weight needs no multiplication of its own. */

/* Integers of BITS bits, STEP of them in a word. */
#if INSTANCE == 0
#define INT int8
#define BITS 8
#define STEP 4
#else
#define INT int4
#define BITS 4
#define STEP 8
#endif

/* ---- Products of floats and integers of 8 or 4 bits ----------------------------------------- */
#if VECTOR_BYTES == 64
#include <immintrin.h>
#endif

typedef int32_t word_vec VECTOR(VECTOR_BYTES, 4);

/* Number `i` of each lane's word, as floats. */
static TILE_INLINE float_vec numbers_of_int8(word_vec four, const int i)
{
    return CONVERT(four << (24 - 8 * i) >> 24, float_vec);
}

static TILE_INLINE float_vec numbers_of_int4(word_vec eight, const int i)
{
#if VECTOR_BYTES == 64
    const __m512 numbers = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
    return (float_vec)_mm512_permutexvar_ps((__m512i)(eight >> 4 * i), numbers);
#else
    return CONVERT(eight << (28 - 4 * i) >> 28, float_vec);
#endif
}

/* sum[i * split + turn][v] += a[i][s] * number s of the words at b, for `rows` rows of A, a_row
 * apart (from the seventh on addressed from a_6), and `vectors` vectors v. */
static TILE_INLINE void add_number_INT(
    const int rows, const int vectors, const int split, const int turn, const int s,
    const float *a, const float *a_6, int64_t a_row, const int32_t *b,
    float_vec sum[TILE_ROWS][2])
{
    float_vec b_k[2];
    #pragma GCC unroll 2
    for (int v = 0; v < vectors; v++)
        b_k[v] = numbers_of_INT(*(const word_vec *)(b + v * float_lanes), s);
    #pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        const float_vec a_i = all_float((i < 6 ? a + i * a_row : a_6 + (i - 6) * a_row)[s]);
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            ADD_PRODUCT_float(sum[i * split + turn][v], a_i, b_k[v]);
    }
}

/* tile[i][j] = sum over groups g of scale[g][j] * sum over k in g of a[i][k] * b[k][j], for a
 * panel of integers of BITS bits and `rows` rows of A. The last group is the rest of `depth`. */
static TILE_INLINE void sum_scaled_INT(
    const int rows, const int vectors, const int split, int64_t depth, int64_t group_size,
    const float *a, int64_t a_row, const int32_t *b, const float *scale, float *restrict tile)
{
    int64_t end = group_size, next;
    for (int64_t k_0 = 0; k_0 < depth; k_0 = next) {
        next = end < depth ? end : depth;
        next = next - k_0 > SUM_STEPS ? k_0 + SUM_STEPS : next;
        float_vec sum[TILE_ROWS][2];
        #pragma GCC unroll 16
        for (int i = 0; i < rows * split; i++) {
            #pragma GCC unroll 2
            for (int v = 0; v < vectors; v++)
                sum[i][v] = (float_vec){0};
        }
        const float *a_6 = opaque_pointer(a + 6 * a_row);
        int64_t left = next - k_0;
        for (; left >= STEP; left -= STEP, a += STEP, a_6 += STEP, b += float_panel) {
            PREFETCH(b + 512, 0, 3);
            #pragma GCC unroll 8
            for (int s = 0; s < STEP; s++) /* the numbers of a word */
                add_number_INT(rows, vectors, split, s % split, s, a, a_6, a_row, b, sum);
        }
        for (int s = 0; s < left; s++) /* of the last word, which may not be full */
            add_number_INT(rows, vectors, split, 0, s, a, a_6, a_row, b, sum);
        join_parts_float_vec(rows, vectors, split, sum);
        #pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            #pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) {
                float_vec *const total = (float_vec *)(tile + i * float_panel + v * float_lanes);
                const float_vec before = k_0 ? *total : (float_vec){0};
                *total = before + sum[i * split][v] * *(const float_vec *)(scale + v * float_lanes);
            }
        }
        if (next == end)
            end += group_size, scale += float_panel;
    }
}

/* The same for 1 <= rows <= TILE_ROWS and two vectors of a panel, or one; see multiply_pair_T. */
TILE_FUNCTION static void multiply_scaled_pair_INT(
    int rows, int64_t depth, int64_t group_size, const float *a, int64_t a_row, const int32_t *b,
    const float *scale, float *restrict tile)
{
    switch (rows) {
    ROW_CASES(sum_scaled_INT, 2, depth, group_size, a, a_row, b, scale, tile)
    }
}

TILE_FUNCTION static void multiply_scaled_single_INT(
    int rows, int64_t depth, int64_t group_size, const float *a, int64_t a_row, const int32_t *b,
    const float *scale, float *restrict tile)
{
    switch (rows) {
    ROW_CASES(sum_scaled_INT, 1, depth, group_size, a, a_row, b, scale, tile)
    }
}

/* The same for the first `columns` of a panel, in whole vectors. */
static inline void multiply_scaled_INT(
    int rows, int columns, int64_t depth, int64_t group_size, const float *a, int64_t a_row,
    const int32_t *b, const float *scale, float *restrict tile)
{
    const int step = 2 * float_lanes;
    for (int j = 0; j < columns; j += step, b += step, scale += step, tile += step) {
        if (columns - j > float_lanes)
            multiply_scaled_pair_INT(rows, depth, group_size, a, a_row, b, scale, tile);
        else
            multiply_scaled_single_INT(rows, depth, group_size, a, a_row, b, scale, tile);
    }
}

/* `count` words of a panel of integers of BITS bits as floats, times `scale` if `scaled`. The
 * words `ahead` of them, which are needed next, are prefetched. */
static TILE_INLINE void widen_words_INT(
    const int scaled, int64_t count, int64_t ahead, const int32_t *b, const float *scale,
    float *restrict panel)
{
    for (int64_t w = 0; w < count; w++) {
        PREFETCH(b + w * float_panel + ahead, 0, 2);
        PREFETCH(b + w * float_panel + ahead + 16, 0, 2);
        #pragma GCC unroll 8
        for (int j = 0; j < float_panel; j += float_lanes) {
            float_vec factor = {0};
            if (scaled)
                factor = *(const float_vec *)(scale + j);
            const word_vec word = *(const word_vec *)(b + w * float_panel + j);
            #pragma GCC unroll 8
            for (int s = 0; s < STEP; s++) {
                float_vec numbers = numbers_of_INT(word, s);
                if (scaled)
                    numbers *= factor;
                *(float_vec *)(panel + (w * STEP + s) * float_panel + j) = numbers;
            }
        }
    }
}

/* Rows k_0 to k_0 + depth of a panel of integers of BITS bits as floats, each times the scale of
 * its group (unchanged if `scale` is NULL). Returns the place of the first one in `panel`: whole
 * words are widened, so that up to STEP - 1 rows come before it and after the last. */
static const float *widen_panel_INT(
    int64_t k_0, int64_t depth, int64_t group_size, const int32_t *b, const float *scale,
    float *restrict panel)
{
    const int64_t first = k_0 / STEP, end = (k_0 + depth + STEP - 1) / STEP;
    const int64_t ahead = (end - first) * float_panel;
    b += first * float_panel;
    if (!scale) {
        widen_words_INT(0, end - first, ahead, b, scale, panel);
        return panel + k_0 % STEP * float_panel;
    }
    const int64_t words = group_size / STEP; /* of a group */
    for (int64_t w = first; w < end; ) {
        const int64_t group = w / words, after = (group + 1) * words;
        const int64_t count = (after < end ? after : end) - w;
        float *const to = panel + (w - first) * STEP * float_panel;
        widen_words_INT(1, count, ahead, b, scale + group * float_panel, to);
        w += count, b += count * float_panel;
    }
    return panel + k_0 % STEP * float_panel;
}

/* The factors by which tile[rows][32], which holds sums without the scale of their column (or
 * with it, if `scaled`), must still be multiplied. Sums that are not finite may only lack their
 * scale: they are computed again by the layer's definition, a[i][k] * (b[k][j] * scale), in
 * double. */
TILE_FUNCTION static const float *repair_INT(
    const int scaled, int rows, int columns, int64_t depth, int64_t group_size, const float *a,
    int64_t a_row, const int32_t *b, const float *scale, float *restrict tile)
{
    static const float ones[32] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                   1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    float_index bits = {0};
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j += float_lanes) {
            const float_vec sum = *(const float_vec *)(tile + i * float_panel + j);
            bits |= bits_of_float(sum - sum); /* 0, or the bits of a NaN */
        }
    int found = 0;
    for (int e = 0; e < float_lanes; e++)
        found |= LANE(bits, e);
    if (!found)
        return scaled ? ones : scale;
    for (int e = 0; e < rows * float_panel; e++) {
        const int i = e / float_panel, j = e % float_panel;
        if (j >= columns)
            continue;
        if (tile[e] - tile[e] == 0) {
            tile[e] *= scaled ? 1 : scale[j];
            continue;
        }
        double total = 0;
        for (int64_t k = 0; k < depth; k++) {
            const uint32_t word = (uint32_t)b[k / STEP * float_panel + j];
            const int number = (int32_t)(word << (32 - BITS * (k % STEP + 1))) >> (32 - BITS);
            const float weight = (float)number * scale[k / group_size * float_panel + j];
            const float product = a[i * a_row + k] * weight;
            total += product;
        }
        tile[e] = (float)total;
    }
    return ones;
}
