/* The matrix tile of integer products (u8 or i8 by i8 into int32).
 *
 * Its layout is that of floats with a *quad*, four numbers that are adjacent along k, in place of
 * one float: a row of a panel is 32 columns of quads, 128 bytes. Intermediate sums may wrap
 * around and the result is still right, because arithmetic is modulo 2**32. AVX512_VNNI computes
 * the products of 16 quads in one instruction; SSE2, AVX2 and AVX512BW multiply pairs of 16 bits,
 * which cannot saturate as vpmaddubsw does; elsewhere each byte of a quad is multiplied
 * separately. Measured on a Zen 4 core (one vpdpbusd of 64 bytes per cycle, peak 470 billion
 * multiplications and additions a second): 425 to 460 from 32 rows on, 150 for one row. */

#if INSTANCE == 0
#define TYPE u8
#define IS_SIGNED 0
#define FLIP (int32_t)0x80808080
#define UNSIGNED 0
#else
#define TYPE i8
#define IS_SIGNED 1
#define FLIP 0
#define UNSIGNED 128
#endif

/* ---- Products of 8-bit integers with sums of 32 bits --------------------------------------------
 * Four numbers that are adjacent along k form a quad, with the first in the lowest byte. Quads of
 * activations are unsigned, those of weights signed; sums start from the first row of a panel of
 * weights, which corrects for that. */
#if VECTOR_BYTES > 4 && defined(__SSE2__)
#include <immintrin.h>
#endif

typedef int32_t int_vec VECTOR(VECTOR_BYTES, 4);
enum { int_lanes = sizeof(int_vec) / 4, int_panel = 32 };

/* The quad at `a` in all lanes; numbers of i8 are made unsigned by adding 128. */
static TILE_INLINE int_vec load_quad(const uint8_t *a,
                                                               const int is_signed)
{
    int32_t quad;
    memcpy(&quad, a, 4);
    int_vec all = quad - (int_vec){0};
    if (is_signed)
        all ^= (int32_t)0x80808080;
    return all;
}

/* `sum` plus the products of the numbers in each pair of quads. */
static TILE_INLINE int_vec add_quads(int_vec sum, int_vec a, int_vec b)
{
#if VECTOR_BYTES == 64 && defined(__AVX512VNNI__)
    return (int_vec)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
#elif VECTOR_BYTES == 64 && defined(__AVX512BW__)
    const __m512i even_a = (__m512i)(a & 0x00ff00ff), odd_a = (__m512i)(a >> 8 & 0x00ff00ff);
    const __m512i even_b = _mm512_srai_epi16(_mm512_slli_epi16((__m512i)b, 8), 8);
    const __m512i odd_b = _mm512_srai_epi16((__m512i)b, 8);
    sum += (int_vec)_mm512_madd_epi16(even_a, even_b);
    return sum + (int_vec)_mm512_madd_epi16(odd_a, odd_b);
#elif VECTOR_BYTES == 32 && defined(__AVX2__)
    const __m256i even_a = (__m256i)(a & 0x00ff00ff), odd_a = (__m256i)(a >> 8 & 0x00ff00ff);
    const __m256i even_b = _mm256_srai_epi16(_mm256_slli_epi16((__m256i)b, 8), 8);
    const __m256i odd_b = _mm256_srai_epi16((__m256i)b, 8);
    sum += (int_vec)_mm256_madd_epi16(even_a, even_b);
    return sum + (int_vec)_mm256_madd_epi16(odd_a, odd_b);
#elif VECTOR_BYTES == 16 && defined(__SSE2__)
    const __m128i even_a = (__m128i)(a & 0x00ff00ff), odd_a = (__m128i)(a >> 8 & 0x00ff00ff);
    const __m128i even_b = _mm_srai_epi16(_mm_slli_epi16((__m128i)b, 8), 8);
    const __m128i odd_b = _mm_srai_epi16((__m128i)b, 8);
    sum += (int_vec)_mm_madd_epi16(even_a, even_b);
    return sum + (int_vec)_mm_madd_epi16(odd_a, odd_b);
#else
    #pragma GCC unroll 4
    for (int n = 0; n < 32; n += 8)
        sum += (a >> n & 255) * (b << (24 - n) >> 24);
    return sum;
#endif
}

/* Whether quads are widened to two pairs of 16 bits: with only 16 registers, those of the rows
 * are widened before they are multiplied, and those of a panel one pair at a time. */
#if VECTOR_BYTES == 32 && defined(__AVX2__)
#define WIDENS_QUADS 1
#else
#define WIDENS_QUADS 0
#endif

/* sum += a vector. GCC would first add the products of both halves of quads, and spill sums. */
#if defined(__clang__)
#define ADD_INTEGERS(sum, vector) ((sum) += (int_vec)(vector))
#else
#define ADD_INTEGERS(sum, vector) __asm__("vpaddd %1, %0, %0" : "+x"(sum) : "x"(vector))
#endif

/* sum[i * split][v] += the sum over `quads` quads of a row of a times those of a panel; for each
 * of them 64 bytes of `next` are prefetched. */
static TILE_INLINE void add_wide_quads(
    const int rows, const int vectors, const int split, const int is_signed, int64_t quads,
    const uint8_t *a, int64_t a_row, const int32_t *b, const int32_t *next,
    int_vec (*restrict sum)[2])
{
#if WIDENS_QUADS
    enum { MOST_QUADS = 64 };
    int32_t pairs[2][TILE_ROWS][MOST_QUADS];
    for (int count; quads > 0; quads -= count, a += 4 * count) {
        count = quads < MOST_QUADS ? (int)quads : MOST_QUADS;
        for (int i = 0; i < rows; i++) {
            for (int k = 0; k < count; k++) {
                int32_t quad;
                memcpy(&quad, a + i * a_row + 4 * k, 4);
                if (is_signed)
                    quad ^= (int32_t)0x80808080;
                pairs[0][i][k] = quad & 0x00ff00ff;
                pairs[1][i][k] = quad >> 8 & 0x00ff00ff;
            }
        }
        for (int k = 0; k < count; k++, b += int_panel, next += 16) {
            PREFETCH(next, 0, 2);
            #pragma GCC unroll 2
            for (int half = 0; half < 2; half++) {
                __m256i b_k[2];
                #pragma GCC unroll 2
                for (int v = 0; v < vectors; v++) {
                    b_k[v] = (__m256i)*(const volatile int_vec *)(b + v * int_lanes);
                    b_k[v] = _mm256_srai_epi16(half ? b_k[v] : _mm256_slli_epi16(b_k[v], 8), 8);
                }
                #pragma GCC unroll 16
                for (int i = 0; i < rows; i++) {
                    const __m256i a_i = _mm256_set1_epi32(pairs[half][i][k]);
                    #pragma GCC unroll 2
                    for (int v = 0; v < vectors; v++)
                        ADD_INTEGERS(sum[i * split][v], _mm256_madd_epi16(a_i, b_k[v]));
                }
            }
        }
    }
#else
    (void)rows, (void)vectors, (void)split, (void)is_signed, (void)quads;
    (void)a, (void)a_row, (void)b, (void)next, (void)sum;
#endif
}

/* sum[i][v] = a vector of start[i][j] + the sum over k of a[i][k] * b[k / 4][j][k % 4], for
 * `quads` quads of a row and, unless `last` is null, one more, which is last[i]. `split` sums of
 * a row are computed side by side. For each quad of several rows, 64 bytes of `next` are
 * prefetched. */
static TILE_INLINE void sum_rows_int8(
    const int rows, const int vectors, const int split, const int is_signed, int64_t quads,
    const uint8_t *a, int64_t a_row, const uint8_t *last, const int32_t *b, const int32_t *start,
    int64_t start_row, const int32_t *next, int_vec (*restrict total)[2])
{
    int_vec sum[TILE_ROWS][2], b_k[2];
    #pragma GCC unroll 16
    for (int i = 0; i < rows * split; i++) {
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            sum[i][v] = i % split ? (int_vec){0}
                : *(const int_vec *)(start + i / split * start_row + v * int_lanes);
    }
    for (; split > 1 && quads >= split; quads -= split, a += 4 * split) {
        #pragma GCC unroll 4
        for (int s = 0; s < split; s++, b += int_panel) {
            #pragma GCC unroll 16
            for (int i = 0; i < rows; i++) {
                const int_vec a_i = load_quad(a + i * a_row + 4 * s, is_signed);
                #pragma GCC unroll 2
                for (int v = 0; v < vectors; v++)
                    sum[i * split + s][v] = add_quads(
                        sum[i * split + s][v], a_i, *(const int_vec *)(b + v * int_lanes));
            }
        }
    }
    for (;;) {
        const uint8_t *const a_6 = opaque_pointer(a + 6 * a_row);
        if (WIDENS_QUADS) {
            add_wide_quads(rows, vectors, split, is_signed, quads, a, a_row, b, next, sum);
            b += quads * int_panel, next += quads * 16;
        }
        for (int64_t k = 0; !WIDENS_QUADS && k < 4 * quads; k += 4, b += int_panel, next += 16) {
            PREFETCH(next, 0, 2);
            #pragma GCC unroll 2
            for (int v = 0; v < vectors; v++)
                b_k[v] = *(const volatile int_vec *)(b + v * int_lanes);
            #pragma GCC unroll 16
            for (int i = 0; i < rows; i++) {
                const uint8_t *const row = i < 6 ? a + i * a_row : a_6 + (i - 6) * a_row;
                const int_vec a_i = load_quad(row + k, is_signed);
                #pragma GCC unroll 2
                for (int v = 0; v < vectors; v++)
                    sum[i * split][v] = add_quads(sum[i * split][v], a_i, b_k[v]);
            }
        }
        if (!last)
            break;
        a = last, a_row = 4, quads = 1, last = 0;
    }
    #pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            total[i][v] = sum[i * split][v];
            #pragma GCC unroll 4
            for (int s = 1; s < split; s++)
                total[i][v] += sum[i * split + s][v];
        }
    }
}

/* tile[i][j] = these sums; `tile` may be `start`. */
static TILE_INLINE void multiply_rows_int8(
    const int rows, const int vectors, const int split, const int is_signed, int64_t quads,
    const uint8_t *a, int64_t a_row, const uint8_t *last, const int32_t *b, const int32_t *start,
    int64_t start_row, const int32_t *next, int32_t *tile)
{
    int_vec sum[TILE_ROWS][2];
    sum_rows_int8(rows, vectors, split, is_signed, quads, a, a_row, last, b, start, start_row, next,
                  sum);
    #pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            *(int_vec *)(tile + i * int_panel + v * int_lanes) = sum[i][v];
    }
}

/* Prefetches the lines of a tile that will be written or read, of rows `step` floats apart: the
 * epilogue would wait for each of them, because rows are too far apart for the processor to
 * predict. */
static inline void fetch_tile(
    int64_t rows, int columns, const float *from, int64_t step)
{
    for (int64_t i = 0; i < rows; i++)
        for (int j = 0; j < columns; j += 16)
            PREFETCH(from + i * step + j, 1, 3);
}

/* Packs a panel of quads of a computed right operand of TYPE: [depth, columns], with elements of
 * a column b_row apart and those of a row b_column apart. Numbers of u8 are made signed by
 * subtracting 128. The first row has the initial values of the sums; offsets are the numbers to
 * subtract from those of the left operand, and from those of this one. */
static void pack_panel_TYPE(
    int64_t depth, int columns, const void *from, int64_t b_row, int64_t b_column,
    int32_t left_offset, int32_t offset, int32_t *restrict panel)
{
    const uint8_t *const b = from;
    const int32_t flip = FLIP;
    int32_t *const quads = panel + int_panel;
    const int64_t whole = depth / 4, rest = depth % 4;
    int_vec sums[int_panel / int_lanes] = {0};
    if (b_row == 1) {
        for (int64_t j = 0; j < columns; j++) {
            for (int64_t q = 0; q < whole; q++) {
                int32_t quad;
                memcpy(&quad, b + j * b_column + 4 * q, 4);
                quads[q * int_panel + j] = quad ^ flip;
            }
        }
    } else if (b_column == 1) {
        for (int64_t q = 0; q < whole; q++) {
            const uint8_t *const row = b + 4 * q * b_row;
            for (int64_t j = 0; j < columns; j++) {
                const uint32_t low = row[j] | (uint32_t)row[j + b_row] << 8;
                const uint32_t high = row[j + 2 * b_row] | (uint32_t)row[j + 3 * b_row] << 8;
                quads[q * int_panel + j] = (int32_t)(low | high << 16) ^ flip;
            }
        }
    }
    const int is_strided = b_row != 1 && b_column != 1;
    for (int64_t q = is_strided ? 0 : whole; q < whole + (rest > 0); q++) {
        for (int64_t j = 0; j < columns; j++) {
            uint32_t quad = 0;
            for (int64_t i = 0; i < (q < whole ? 4 : rest); i++)
                quad |= (uint32_t)(b[(4 * q + i) * b_row + j * b_column] ^ (flip & 255)) << 8 * i;
            quads[q * int_panel + j] = (int32_t)quad;
        }
    }
    for (int64_t q = 0; q < whole + (rest > 0); q++) {
        for (int64_t j = columns; j < int_panel; j++)
            quads[q * int_panel + j] = 0;
        #pragma GCC unroll 8
        for (int v = 0; v < int_panel / int_lanes; v++)
            sums[v] = add_quads(sums[v], 0x01010101 - (int_vec){0},
                                *(const int_vec *)(quads + q * int_panel + v * int_lanes));
    }
    #pragma GCC unroll 8
    for (int v = 0; v < int_panel / int_lanes; v++)
        *(int_vec *)(panel + v * int_lanes) = left_offset * ((int32_t)depth * offset - sums[v]);
}

/* The sum of the numbers in a row of TYPE, made unsigned for i8. */
static int32_t sum_row_TYPE(int64_t depth, const void *row)
{
    int32_t sum = 0;
    for (int64_t k = 0; k < depth; k++)
        sum += ((const uint8_t *)row)[k] ^ UNSIGNED;
    return sum;
}

/* multiply_rows_int8 for 1 <= rows <= TILE_ROWS and two vectors of a panel, or one; see
 * multiply_pair_T. `last`: the rest of each row, or 0. */
TILE_FUNCTION static void multiply_pair_TYPE(
    int rows, int64_t quads, const void *a, int64_t a_row, const uint8_t *last, const int32_t *b,
    const int32_t *start, int64_t start_row, const int32_t *next, int32_t *tile)
{
    switch (rows) {
    ROW_CASES(multiply_rows_int8, 2, IS_SIGNED, quads, a, a_row, last, b, start, start_row, next,
              tile)
    }
}

TILE_FUNCTION static void multiply_single_TYPE(
    int rows, int64_t quads, const void *a, int64_t a_row, const uint8_t *last, const int32_t *b,
    const int32_t *start, int64_t start_row, const int32_t *next, int32_t *tile)
{
    switch (rows) {
    ROW_CASES(multiply_rows_int8, 1, IS_SIGNED, quads, a, a_row, last, b, start, start_row, next,
              tile)
    }
}

/* tile[rows][32] = start + A (rows x depth numbers of TYPE, rows a_row apart) times one panel of
 * weights, 1 <= rows <= TILE_ROWS. Computes whole vectors, like multiply_tile_float. */
static inline void multiply_vectors_TYPE(
    int rows, int columns, int64_t depth, const void *a, int64_t a_row, const int32_t *b,
    const int32_t *start, int64_t start_row, const int32_t *next, int32_t *tile)
{
    const int step = 2 * int_lanes, rest = (int)(depth % 4);
    const int64_t quads = depth / 4;
    uint8_t ends[TILE_ROWS][4] = {{0}}, *const last = rest ? ends[0] : 0;
    for (int i = 0; rest && i < rows; i++)
        memcpy(ends[i], (const uint8_t *)a + i * a_row + 4 * quads, (size_t)rest);
    for (int j = 0; j < columns; j += step, b += step, start += step, tile += step) {
        if (columns - j > int_lanes)
            multiply_pair_TYPE(rows, quads, a, a_row, last, b, start, start_row, next, tile);
        else
            multiply_single_TYPE(rows, quads, a, a_row, last, b, start, start_row, next, tile);
    }
}

#ifdef HAS_TILES
TILE_FUNCTION static void multiply_tiles_TYPE(
    int rows, int columns, int64_t depth, const void *a, int64_t a_row, const int32_t *b,
    const int32_t *start, int32_t *restrict tile)
{
    multiply_tiles(0, 1, UNSIGNED, rows, columns, depth, a, 0, a_row, start, b, 0, tile);
}
#endif

/* tile[rows][32] = start + A (rows x depth numbers of TYPE, rows a_row apart) times one panel of
 * weights, of which b is the first quad, 1 <= rows <= QUAD_ROWS; between take_tiles and
 * release_tiles. `start` is the panel's own row of sums or, if that is null, `tile`. The array
 * `tile` has QUAD_ROWS rows, and rows beyond `rows` may be overwritten. What is needed later,
 * from `next` on, is prefetched meanwhile, 64 bytes for each quad: otherwise the first tile of
 * few rows would wait for memory, while the others, which find the panel in the cache, leave
 * memory idle. */
static inline void add_block_TYPE(
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

/* tile[rows][32] = A times one panel of weights, which begins with its row of sums. */
static inline void multiply_tile_TYPE(
    int rows, int columns, int64_t depth, const void *a, int64_t a_row, const int32_t *b,
    int32_t *restrict tile)
{
    add_block_TYPE(rows, columns, depth, a, a_row, b + 32, b, b, tile);
}
