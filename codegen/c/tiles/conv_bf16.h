/* The tile of a convolution of bf16.
 *
 * It is the tile of the plan "channels" (sum_tile_float) with a pair of bf16 in place of one
 * float. Here a pair consists of two adjacent channels of one pixel. Therefore the image is
 * copied into planes of pairs, with rounding and with zeros around it, and strides, dilations and
 * kernels of any size cost as little as they do in float.
 *
 * Measured on a Zen 4 core (peak of vdpbf16ps 236 GFLOP/s), in the network: 200 to 211 GFLOP/s on
 * ResNet's 3x3 convolutions of stride 2, 126 on its first layer (7x7, 3 channels: the second pair
 * is half empty), where float reaches 106 to 110, and 90. */

/* ---- Tiles of convolutions of bf16 ----------------------------------------------------------- */

/* Two channels of an image with zeros around them: target[i][j] = the pair of first[i - top]
 * [j - left] and second[...], or 0 outside them, for `rows` rows of `pitch`. */
static void pad_plane_pairs(
    int64_t h, int64_t w, const float *first, const float *second, int64_t top, int64_t left,
    int64_t rows, int64_t pitch, uint32_t *restrict target)
{
    const int64_t begin = left < pitch ? left : pitch;
    const int64_t end = left + w < pitch ? left + w : pitch;
    for (int64_t i = 0; i < rows; i++, target += pitch) {
        const int inside = i >= top && i < top + h;
        const int64_t row = (i - top) * w;
        for (int64_t j = 0; j < (inside ? begin : pitch); j++)
            target[j] = 0;
        if (inside)
            round_row_pairs(end - begin, first + row, second ? second + row : 0, target + begin);
        for (int64_t j = end; inside && j < pitch; j++)
            target[j] = 0;
    }
}

/* The pixels of two channels that a strided 1x1 kernel reads: target[i][j] = the pair of
 * first[i * row_step + j * step] and second[...], for `rows` rows of `columns`. */
static void pick_pairs(
    int64_t rows, int64_t columns, const float *first, const float *second, int64_t row_step,
    int64_t step, uint32_t *restrict target)
{
    for (int64_t i = 0; i < rows; i++, target += columns) {
        for (int64_t j_0 = 0; j_0 < columns; j_0 += 64) {
            const int64_t count = columns - j_0 < 64 ? columns - j_0 : 64;
            float picked[2][64];
            for (int half = 0; half < (second ? 2 : 1); half++) {
                const float *const from = (half ? second : first) + i * row_step + j_0 * step;
                for (int64_t j = 0; step == 2 && j < count; j++) /* in vectors */
                    picked[half][j] = from[j * 2];
                for (int64_t j = 0; step != 2 && j < count; j++)
                    picked[half][j] = from[j * step];
            }
            round_row_pairs(count, picked[0], second ? picked[1] : 0, target + j_0);
        }
    }
}

/* pad_row_float with the channels of each pixel rounded, in pairs; `pitch` counts pairs. */
static void pad_row_pairs(
    int64_t w, int64_t channels, const float *row, int64_t left, int64_t columns, int64_t pitch,
    uint32_t *restrict target)
{
    for (int64_t j = 0; j < columns; j++, target += pitch) {
        const float *const pixel = row + (j - left) * channels;
        int64_t c = 0;
        if (j < left || j >= left + w) {
            for (; c < channels; c += 2)
                target[c / 2] = 0;
            continue;
        }
        for (; c + 32 <= channels; c += 32)
            round_pairs(pixel + c, target + c / 2);
        for (; c < channels; c += 2) {
            const float_vec first = {pixel[c]}, second = {c + 1 < channels ? pixel[c + 1] : 0};
            target[c / 2] = LANE(round_to_pairs(first, second), 0);
        }
    }
}

/* The same for a row that is bf16 already, with an even number of channels. */
static void pad_row_bf16(
    int64_t w, int64_t channels, const uint16_t *row, int64_t left, int64_t columns, int64_t pitch,
    uint32_t *restrict target)
{
    for (int64_t j = 0; j < columns; j++, target += pitch) {
        if (j < left || j >= left + w)
            memset(target, 0, (size_t)(2 * channels));
        else
            memcpy(target, row + (j - left) * channels, (size_t)(2 * channels));
    }
}

/* sum_pixels_float for pairs: `channels` counts pairs of channels, and so does b. */
static TILE_INLINE void sum_pixels_bf16(
    const int pixels, const int vectors, int channels, int taps, const uint32_t *x,
    int64_t channel_step, const int64_t *tap, int64_t pixel_step, const uint32_t *b,
    float *restrict tile)
{
    float_vec sum[TILE_ROWS][2];
    #pragma GCC unroll 16
    for (int i = 0; i < pixels; i++) {
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            sum[i][v] = (float_vec){0};
    }
    for (int c = 0; c < channels; c++, x += channel_step)
        for (int t = 0; t < taps; t++, b += float_panel)
            add_pairs(pixels, vectors, 1, x + tap[t], pixel_step, b, sum);
    #pragma GCC unroll 16
    for (int i = 0; i < pixels; i++) {
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            *(float_vec *)(tile + i * float_panel + v * float_lanes) = sum[i][v];
    }
}

/* The same for 1 <= pixels <= TILE_ROWS; see sum_block_pair_T. */
TILE_FUNCTION static void sum_tile_pair_bf16(
    int pixels, int channels, int taps, const uint32_t *x, int64_t channel_step,
    const int64_t *tap, int64_t pixel_step, const uint32_t *b, float *restrict tile)
{
    switch (pixels) {
    PIXEL_CASES(sum_pixels_bf16, 2, channels, taps, x, channel_step, tap, pixel_step, b, tile)
    }
}

TILE_FUNCTION static void sum_tile_single_bf16(
    int pixels, int channels, int taps, const uint32_t *x, int64_t channel_step,
    const int64_t *tap, int64_t pixel_step, const uint32_t *b, float *restrict tile)
{
    switch (pixels) {
    PIXEL_CASES(sum_pixels_bf16, 1, channels, taps, x, channel_step, tap, pixel_step, b, tile)
    }
}

/* sum_tile_float for pairs. */
static inline void sum_tile_bf16(
    int pixels, int columns, int channels, int taps, const uint32_t *x, int64_t channel_step,
    const int64_t *tap, int64_t pixel_step, const uint32_t *b, float *restrict tile)
{
    const int step = 2 * float_lanes;
    for (int j = 0; j < columns; j += step, b += step, tile += step) {
        if (columns - j > float_lanes)
            sum_tile_pair_bf16(pixels, channels, taps, x, channel_step, tap, pixel_step, b, tile);
        else
            sum_tile_single_bf16(pixels, channels, taps, x, channel_step, tap, pixel_step, b, tile);
    }
}
