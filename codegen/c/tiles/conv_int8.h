/* What convolutions of 8-bit integers need besides the tile of products, whose quads, panels and
 * sums they use. The numbers under a kernel lie in runs of adjacent ones. A run is read in whole
 * quads; the weights for the numbers after its end are zero. */

/* ---- Convolutions of 8-bit integers ----------------------------------------------------------
 * For images whose channels are last, surrounded by pixels of the zero point. */

/* One row of a padded image: `left` pixels of `zero`, the w pixels of `row` (w is 0 above and
 * below the image), and `zero` up to `columns` pixels. Adjacent pixels of `row` are `pixel`
 * apart, channels `channel`; the bits of `flip` are inverted in them. */
static void pad_row_bytes(
    int64_t w, int64_t channels, const void *row, int64_t pixel, int64_t channel, int64_t left,
    int64_t columns, int zero, int flip, uint8_t *restrict target)
{
    const uint8_t *const x = row;
    const int64_t inside = w > 0 ? w : 0, first = w > 0 ? left : columns;
    if (first > 0)
        memset(target, zero, (size_t)(first * channels));
    target += first * channels;
    if (channel == 1 && pixel == channels) {
        if (!flip)
            memcpy(target, x, (size_t)(inside * channels));
        for (int64_t j = 0; flip && j < inside * channels; j++)
            target[j] = (uint8_t)(x[j] ^ flip);
    } else {
        for (int64_t c = 0; c < channels; c++) {
            for (int64_t j = 0; j < inside; j++)
                target[j * channels + c] = (uint8_t)(x[j * pixel + c * channel] ^ flip);
        }
    }
    if (inside)
        memset(target + w * channels, zero, (size_t)((columns - left - w) * channels));
}

/* sum[i][v] = a vector of b[0][j] + the sum over runs r and numbers k of 4 * quads of
 *     x[i * x_step + run[r] + k] * b[1 + r * quads + k / 4][j][k % 4] */
static TILE_INLINE void sum_pixels_int8(
    const int rows, const int vectors, int64_t runs, int64_t quads, const uint8_t *x,
    int64_t x_step, const int64_t *run, const int32_t *b, int_vec (*restrict sum)[2])
{
    int_vec b_k[2];
    #pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            sum[i][v] = *(const int_vec *)(b + v * int_lanes);
    }
    b += int_panel;
    for (int64_t r = 0; r < runs; r++) {
        const uint8_t *const a = x + run[r], *const a_6 = opaque_pointer(a + 6 * x_step);
        if (WIDENS_QUADS && quads >= 8) { /* fewer take longer to widen than to multiply */
            add_wide_quads(rows, vectors, 1, 0, quads, a, x_step, b, b + quads * int_panel, sum);
            b += quads * int_panel;
            continue;
        }
        #pragma GCC unroll 1 /* otherwise a few quads are unrolled: 5 % slower */
        for (int64_t k = 0; k < 4 * quads; k += 4, b += int_panel) {
            #pragma GCC unroll 2
            for (int v = 0; v < vectors; v++)
                b_k[v] = *(const volatile int_vec *)(b + v * int_lanes);
            #pragma GCC unroll 16
            for (int i = 0; i < rows; i++) {
                const uint8_t *const row = i < 6 ? a + i * x_step : a_6 + (i - 6) * x_step;
                const int_vec a_i = load_quad(row + k, 0);
                #pragma GCC unroll 2
                for (int v = 0; v < vectors; v++)
                    sum[i][v] = add_quads(sum[i][v], a_i, b_k[v]);
            }
        }
    }
}

/* tile[i][j] = these sums. */
static TILE_INLINE void store_pixels_int8(
    const int rows, const int vectors, int64_t runs, int64_t quads, const uint8_t *x,
    int64_t x_step, const int64_t *run, const int32_t *b, int32_t *restrict tile)
{
    int_vec sum[TILE_ROWS][2];
    sum_pixels_int8(rows, vectors, runs, quads, x, x_step, run, b, sum);
    #pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            *(int_vec *)(tile + i * int_panel + v * int_lanes) = sum[i][v];
    }
}

/* The same for 1 <= pixels <= TILE_ROWS; see sum_block_pair_T. */
TILE_FUNCTION static void sum_runs_pair_u8(
    int pixels, int64_t runs, int64_t quads, const uint8_t *x, int64_t x_step, const int64_t *run,
    const int32_t *b, int32_t *restrict tile)
{
    switch (pixels) {
    PIXEL_CASES(store_pixels_int8, 2, runs, quads, x, x_step, run, b, tile)
    }
}

TILE_FUNCTION static void sum_runs_single_u8(
    int pixels, int64_t runs, int64_t quads, const uint8_t *x, int64_t x_step, const int64_t *run,
    const int32_t *b, int32_t *restrict tile)
{
    switch (pixels) {
    PIXEL_CASES(store_pixels_int8, 1, runs, quads, x, x_step, run, b, tile)
    }
}

/* tile[pixels][32] = sums of `pixels` places of an image, x_step apart, with one panel of
 * weights, 1 <= pixels <= TILE_ROWS. Computes whole vectors, like multiply_tile_float. */
static inline void sum_runs_u8(
    int pixels, int columns, int64_t runs, int64_t quads, const uint8_t *x, int64_t x_step,
    const int64_t *run, const int32_t *b, int32_t *restrict tile)
{
    const int step = 2 * int_lanes;
    for (int j = 0; j < columns; j += step, b += step, tile += step) {
        if (columns - j > int_lanes)
            sum_runs_pair_u8(pixels, runs, quads, x, x_step, run, b, tile);
        else
            sum_runs_single_u8(pixels, runs, quads, x, x_step, run, b, tile);
    }
}
