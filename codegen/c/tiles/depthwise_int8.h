/* Depthwise convolutions of 8-bit integers.
 *
 * Four adjacent rows of an image whose channels are last are *interleaved* column by column into
 * a quad for each channel. An interleaved column serves every column of the kernel that meets it
 * and, with stride 1, two output rows: for a kernel of three rows these have the weights (w0, w1,
 * w2, 0) and (0, w0, w1, w2). The image is read in place. A row outside it is a single pixel of
 * the zero point, read with a step of 0.
 *
 * Measured on a Zen 4 core, 3x3 of 14 x 14 x 384: 10 cycles for 16 results with their epilogue,
 * of which 3 are products and 1.5 shuffles. */

/* Channels of a tile: one vector of bytes or several; and the most output pixels in a row of
 * it. */
#define CHANNEL_BLOCK 64
#define MOST_PLACES 8

#if INSTANCE == 0
#define TYPE u8
#define IS_SIGNED 0
#define ADDED 0
#else
#define TYPE i8
#define IS_SIGNED 1
#define ADDED 128
#endif

/* ---- Depthwise convolutions of 8-bit integers --------------------------------------------------
 * Four adjacent rows are interleaved ("woven"): a quad for each column and channel. */

/* Finds where `count` rows of an image from number `first` on begin, `dilation` rows apart, and
 * how far the pixels of each are apart: a row outside the image is one pixel, read repeatedly. */
static void find_rows(
    int64_t first, int count, int64_t dilation, int64_t height, int64_t row_bytes, int64_t pixel,
    const uint8_t *image, const uint8_t *outside, const uint8_t **rows, int64_t *steps)
{
    for (int i = 0; i < count; i++, first += dilation) {
        const int is_inside = first >= 0 && first < height;
        rows[i] = is_inside ? image + first * row_bytes : outside;
        steps[i] = is_inside ? pixel : 0;
    }
}

/* woven[m] = quads of x[0][c], x[1][c], x[2][c], x[3][c] for channels c = m * int_lanes + (0, 1,
 * ...), for m < vectors, of which `bytes` are read. Numbers of i8 become unsigned by adding
 * 128. */
#if VECTOR_BYTES == 64 && defined(__AVX512BW__)
static TILE_INLINE void weave_rows(
    const uint8_t *const x[4], int64_t bytes, int vectors, const int is_signed,
    int_vec *restrict woven)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __mmask64 read = bytes < 64 ? ((__mmask64)1 << bytes) - 1 : ~(__mmask64)0;
    __m512i p[4];
    #pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        p[i] = _mm512_permutexvar_epi32(order, _mm512_maskz_loadu_epi8(read, x[i]));
        if (is_signed)
            p[i] = _mm512_xor_si512(p[i], _mm512_set1_epi8(-128));
    }
    const __m512i low_a = _mm512_unpacklo_epi8(p[0], p[1]);
    const __m512i low_b = _mm512_unpacklo_epi8(p[2], p[3]);
    const __m512i high_a = _mm512_unpackhi_epi8(p[0], p[1]);
    const __m512i high_b = _mm512_unpackhi_epi8(p[2], p[3]);
    woven[0] = (int_vec)_mm512_unpacklo_epi16(low_a, low_b);
    if (vectors > 1)
        woven[1] = (int_vec)_mm512_unpackhi_epi16(low_a, low_b);
    if (vectors > 2)
        woven[2] = (int_vec)_mm512_unpacklo_epi16(high_a, high_b);
    if (vectors > 3)
        woven[3] = (int_vec)_mm512_unpackhi_epi16(high_a, high_b);
}
#elif VECTOR_BYTES == 32 && defined(__AVX2__)
static TILE_INLINE void weave_rows(
    const uint8_t *const x[4], int64_t bytes, int vectors, const int is_signed,
    int_vec *restrict woven)
{
    const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
    __m256i p[4];
    #pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        uint8_t end[32] = {0};
        const uint8_t *from = x[i];
        if (bytes < 32)
            from = memcpy(end, from, (size_t)bytes);
        p[i] = _mm256_loadu_si256((const __m256i *)from);
        p[i] = _mm256_permutevar8x32_epi32(p[i], order);
        if (is_signed)
            p[i] = _mm256_xor_si256(p[i], _mm256_set1_epi8(-128));
    }
    const __m256i low_a = _mm256_unpacklo_epi8(p[0], p[1]);
    const __m256i low_b = _mm256_unpacklo_epi8(p[2], p[3]);
    const __m256i high_a = _mm256_unpackhi_epi8(p[0], p[1]);
    const __m256i high_b = _mm256_unpackhi_epi8(p[2], p[3]);
    woven[0] = (int_vec)_mm256_unpacklo_epi16(low_a, low_b);
    if (vectors > 1)
        woven[1] = (int_vec)_mm256_unpackhi_epi16(low_a, low_b);
    if (vectors > 2)
        woven[2] = (int_vec)_mm256_unpacklo_epi16(high_a, high_b);
    if (vectors > 3)
        woven[3] = (int_vec)_mm256_unpackhi_epi16(high_a, high_b);
}
#else
static TILE_INLINE void weave_rows(
    const uint8_t *const x[4], int64_t bytes, int vectors, const int is_signed,
    int_vec *restrict woven)
{
    uint32_t quads[VECTOR_BYTES] = {0};
    for (int c = 0; c < vectors * int_lanes && c < bytes; c++) {
        const uint32_t low = x[0][c] | (uint32_t)x[1][c] << 8;
        const uint32_t high = x[2][c] | (uint32_t)x[3][c] << 8;
        quads[c] = (low | high << 16) ^ (is_signed ? 0x80808080 : 0);
    }
    memcpy(woven, quads, (size_t)vectors * sizeof *woven);
}
#endif

/* Interleaves `columns` columns of four rows, from column column_0 on, with `vectors` vectors of
 * channels of each: woven[column][channel]. */
static TILE_INLINE void weave_columns(
    const int is_signed, int vectors, int64_t bytes, int64_t columns, int64_t channel,
    int64_t column_0, int64_t width, const uint8_t *const *rows, const int64_t *steps,
    int32_t outside, int32_t *restrict woven)
{
    const uint8_t *x[4];
    #pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        x[i] = rows[i] + column_0 * steps[i] + channel;
    for (int64_t q = 0; q < columns; q++, woven += CHANNEL_BLOCK) {
        int_vec *const column = (int_vec *)woven;
        if (column_0 + q >= 0 && column_0 + q < width) {
            weave_rows(x, bytes, vectors, is_signed, column);
        } else {
            for (int m = 0; m < vectors; m++)
                column[m] = outside - (int_vec){0};
        }
        #pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            x[i] = opaque_pointer(x[i] + steps[i]);
    }
}

/* Loads the weights for a vector of channels: those of each column of the kernel and output
 * row. */
static TILE_INLINE void load_kernel(
    const int outputs, const int s, const int32_t *weights, int_vec (*restrict kernel)[2])
{
    #pragma GCC unroll 16
    for (int i = 0; i < s * outputs; i++)
        kernel[i / outputs][i % outputs] = *(const int_vec *)(weights + i * CHANNEL_BLOCK);
}

/* Adds to the sums of a pixel in `outputs` (1 or 2) rows the interleaved columns, from its first
 * one on, times the kernel. */
static TILE_INLINE void add_columns(
    const int outputs, const int s, const int32_t *woven, int_vec (*kernel)[2],
    int_vec *restrict sum)
{
    #pragma GCC unroll 16
    for (int k = 0; k < s; k++) {
        #pragma GCC unroll 2
        for (int o = 0; o < outputs; o++)
            sum[o] = add_quads(sum[o], *(const int_vec *)(woven + k * CHANNEL_BLOCK), kernel[k][o]);
    }
}

/* The same for `places` pixels and all channels: tile[output][place][channel] = the sums so far,
 * or their initial values, plus that. `kernel` has room for its columns. */
static TILE_INLINE void add_tile(
    const int outputs, const int s, int places, int channels, int64_t stride,
    const int32_t *starts, const int32_t *weights, const int32_t *woven,
    int_vec (*restrict kernel)[2], int32_t *restrict tile)
{
    for (int j = 0; j < channels; j += int_lanes) {
        load_kernel(outputs, s, weights + j, kernel);
        for (int64_t i = 0; i < places; i++) {
            int_vec sum[2];
            int32_t *const at = tile + i * CHANNEL_BLOCK + j;
            #pragma GCC unroll 2
            for (int o = 0; o < outputs; o++) {
                const int32_t *const sums = at + o * MOST_PLACES * CHANNEL_BLOCK;
                sum[o] = *(const int_vec *)(starts ? starts + j : sums);
            }
            add_columns(outputs, s, woven + i * stride * CHANNEL_BLOCK + j, kernel, sum);
            #pragma GCC unroll 2
            for (int o = 0; o < outputs; o++)
                *(int_vec *)(at + o * MOST_PLACES * CHANNEL_BLOCK) = sum[o];
        }
    }
}

/* Interleaves `columns` columns of up to CHANNEL_BLOCK channels, from column column_0 on, of four
 * rows that find_rows found: woven[column][channel]. */
TILE_FUNCTION static void weave_TYPE(
    int64_t columns, int channels, int64_t column_0, int64_t width, const uint8_t *const *rows,
    const int64_t *steps, int zero_point, int32_t *restrict woven)
{
    const int32_t outside = (int32_t)(0x01010101u * (uint8_t)(zero_point + ADDED));
    for (int c = 0; c < channels; c += VECTOR_BYTES) {
        const int64_t bytes = channels - c < VECTOR_BYTES ? channels - c : VECTOR_BYTES;
        const int vectors = (int)((bytes + int_lanes - 1) / int_lanes);
        weave_columns(IS_SIGNED, vectors, bytes, columns, c, column_0, width, rows, steps, outside,
                      woven + c);
    }
}
