/* The tiles of a convolution. They read the image through a table of taps: tap[t] is the distance
 * from the first pixel under the kernel to the one under its t-th weight. So they do not depend
 * on dilation and padding. */

#if INSTANCE == 0
#define T float
#define V float_vec
#define PANEL 32
#elif INSTANCE == 1
#define T float
#define V float_half
#define PANEL 32
#elif INSTANCE == 2
#define T double
#define V double_vec
#define PANEL 16
#else
#define T double
#define V double_half
#define PANEL 16
#endif

/* ---- Tiles of convolutions ------------------------------------------------------------------ */

/* Prefetches `count` floats of each row for writing: the sums of a tile go to many rows far
 * apart, and would wait for memory there (measured on 1x1 convolutions: 2 to 28 % of the
 * time). */
static void fetch_rows(
    int64_t rows, int64_t count, const float *from, int64_t step)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < count; j += 16)
            PREFETCH(from + i * step + j, 1, 3);
}

/* One channel of an image with zeros around it: target[i][j] = x[i - top][j - left], or 0 outside
 * x, for `rows` rows of `pitch`. */
static void pad_plane_T(
    int64_t h, int64_t w, const T *x, int64_t top, int64_t left, int64_t rows, int64_t pitch,
    T *restrict target)
{
    const int64_t first = left < pitch ? left : pitch;
    const int64_t last = left + w < pitch ? left + w : pitch;
    for (int64_t i = 0; i < rows; i++, target += pitch) {
        const int inside = i >= top && i < top + h;
        for (int64_t j = 0; j < (inside ? first : pitch); j++)
            target[j] = 0;
        for (int64_t j = first; inside && j < last; j++)
            target[j] = x[(i - top) * w + j - left];
        for (int64_t j = last; inside && j < pitch; j++)
            target[j] = 0;
    }
}

/* tile[i][j] = sum over channels c and taps t of x[c][i * pixel_step + tap[t]] * b[c][t][j] for
 * `pixels` pixels and `vectors` vectors of output channels; see multiply_rows_V. */
static TILE_INLINE void sum_pixels_V(
    const int pixels, const int vectors, int channels, int taps, const T *x, int64_t channel_step,
    const int64_t *tap, int64_t pixel_step, const T *b, T *restrict tile)
{
    V sum[TILE_ROWS][2], b_t[2];
    #pragma GCC unroll 16
    for (int i = 0; i < pixels; i++) {
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            sum[i][v] = (V){0};
    }
    for (int c = 0; c < channels; c++, x += channel_step) {
        for (int t = 0; t < taps; t++, b += T_panel) {
            const T *const x_t = x + tap[t];
            #pragma GCC unroll 2
            for (int v = 0; v < vectors; v++)
                b_t[v] = *(const volatile V *)(b + v * V_lanes);
            #pragma GCC unroll 16
            for (int i = 0; i < pixels; i++) {
                const V x_i = x_t[i * pixel_step] - (V){0};
                #pragma GCC unroll 2
                for (int v = 0; v < vectors; v++)
                    ADD_PRODUCT_T(sum[i][v], x_i, b_t[v]);
            }
        }
    }
    #pragma GCC unroll 16
    for (int i = 0; i < pixels; i++) {
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            *(V *)(tile + i * T_panel + v * V_lanes) = sum[i][v];
    }
}

/* The same for 1 <= pixels <= TILE_ROWS and two vectors of channels, or one. They are separate
 * functions, because the time in which GCC compiles a function grows faster than its size. */
TILE_FUNCTION static void sum_block_pair_T(
    int pixels, int channels, int taps, const T *x, int64_t channel_step, const int64_t *tap,
    int64_t pixel_step, const T *b, T *restrict tile)
{
    switch (pixels) {
    PIXEL_CASES(sum_pixels_T_vec, 2, channels, taps, x, channel_step, tap, pixel_step, b, tile)
    }
}

TILE_FUNCTION static void sum_block_single_V(
    int pixels, int channels, int taps, const T *x, int64_t channel_step, const int64_t *tap,
    int64_t pixel_step, const T *b, T *restrict tile)
{
    switch (pixels) {
    PIXEL_CASES(sum_pixels_V, 1, channels, taps, x, channel_step, tap, pixel_step, b, tile)
    }
}

/* tile[pixels][PANEL]: 1 <= pixels <= TILE_ROWS pixels of one output row, `columns` channels. */
static inline void sum_block_T(
    int pixels, int columns, int channels, int taps, const T *x, int64_t channel_step,
    const int64_t *tap, int64_t pixel_step, const T *b, T *restrict tile)
{
    for (int j = 0; j < columns; j += 2 * T_lanes, b += 2 * T_lanes, tile += 2 * T_lanes) {
        if (columns - j > T_lanes)
            sum_block_pair_T(pixels, channels, taps, x, channel_step, tap, pixel_step, b, tile);
        else if (columns - j > T_half_lanes)
            sum_block_single_T_vec(pixels, channels, taps, x, channel_step, tap, pixel_step, b,
                                   tile);
        else /* half a vector takes half the time on processors that split whole vectors */
            sum_block_single_T_half(pixels, channels, taps, x, channel_step, tap, pixel_step, b,
                                    tile);
    }
}

/* The same for any number of channels: blocks of at most SUM_STEPS products, or of one channel,
 * are added; more than SUM_BLOCKS of them are added together with their rounding errors. */
TILE_FUNCTION static void sum_long_tile_T(
    int pixels, int columns, int channels, int taps, const T *x, int64_t channel_step,
    const int64_t *tap, int64_t pixel_step, const T *b, T *restrict tile)
{
    T part[TILE_ROWS * PANEL], totals[TILE_ROWS * PANEL] = {0}, left[TILE_ROWS * PANEL] = {0};
    const int most = taps < SUM_STEPS ? SUM_STEPS / taps : 1, blocks = (channels + most - 1) / most;
    for (int block = 0; block < blocks; block++) {
        const int c = (int)((int64_t)block * channels / blocks);
        const int end = (int)((int64_t)(block + 1) * channels / blocks);
        T *const sums = block % SUM_BLOCKS == 0 ? tile : part;
        sum_block_T(pixels, columns, end - c, taps, x + c * channel_step, channel_step, tap,
                    pixel_step, b + (int64_t)c * taps * PANEL, sums);
        if (sums == part)
            add_block_T(pixels, columns, part, tile);
        if (blocks > SUM_BLOCKS && (block % SUM_BLOCKS == SUM_BLOCKS - 1 || block + 1 == blocks))
            add_tile_T(pixels, columns, block + 1 == blocks, tile, totals, left);
    }
}

static inline void sum_tile_T(
    int pixels, int columns, int channels, int taps, const T *x, int64_t channel_step,
    const int64_t *tap, int64_t pixel_step, const T *b, T *restrict tile)
{
    if ((int64_t)channels * taps <= SUM_STEPS)
        sum_block_T(pixels, columns, channels, taps, x, channel_step, tap, pixel_step, b, tile);
    else
        sum_long_tile_T(pixels, columns, channels, taps, x, channel_step, tap, pixel_step, b, tile);
}

/* tile[i][j] = sum over runs r and k < depth of x[i * pixel_step + run[r] + k] * b[r][k][j], or
 * this added to the tile; a run consists of adjacent numbers of a channels-last image. */
static TILE_INLINE void sum_run_pixels_V(
    const int pixels, const int vectors, int runs, const int64_t *run, int64_t depth, const T *x,
    int64_t pixel_step, const T *b, struct ahead ahead, int adds, T *restrict tile)
{
    const int64_t most = steps_between(ahead, depth);
    V sum[NARROW_ROWS][2], b_k[2];
    #pragma GCC unroll 24
    for (int i = 0; i < pixels; i++) {
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            sum[i][v] = (V){0};
    }
    for (int r = 0; r < runs; r++, b += depth * T_panel) {
        const T *const x_r = x + run[r], *const x_6 = opaque_pointer(x_r + 6 * pixel_step);
        const T *const x_12 = pixels > 12 ? opaque_pointer(x_6 + 6 * pixel_step) : x_6;
        const T *const x_18 = pixels > 18 ? opaque_pointer(x_12 + 6 * pixel_step) : x_6;
        for (int64_t first = 0; first < depth; first += most) {
            const int64_t end = depth - first > most ? first + most : depth;
            fetch_steps(ahead, r * depth + first, r * depth + end);
            #pragma GCC unroll STEPS_AT_ONCE
            for (int64_t k = first; k < end; k++) {
                #pragma GCC unroll 2
                for (int v = 0; v < vectors; v++) {
                    if (STEPS_AHEAD && vectors > 1)
                        PREFETCH(b + (k + STEPS_AHEAD) * T_panel + v * V_lanes, 0, 3);
                    b_k[v] = *(const volatile V *)(b + k * T_panel + v * V_lanes);
                }
                #pragma GCC unroll 24
                for (int i = 0; i < pixels; i++) {
                    const T *const first_i = i < 6 ? x_r : i < 12 ? x_6 : i < 18 ? x_12 : x_18;
                    const T *const x_i = first_i + i % 6 * pixel_step;
                    const V all_i = x_i[k] - (V){0};
                    #pragma GCC unroll 2
                    for (int v = 0; v < vectors; v++)
                        ADD_PRODUCT_T(sum[i][v], all_i, b_k[v]);
                }
            }
        }
    }
    #pragma GCC unroll 24
    for (int i = 0; i < pixels; i++) {
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            V *const total = (V *)(tile + i * T_panel + v * V_lanes);
            if (adds)
                sum[i][v] += *total;
            *total = sum[i][v];
        }
    }
}

/* The same for 1 <= pixels <= TILE_ROWS; see sum_block_pair_T. */
TILE_FUNCTION static void sum_runs_pair_T(
    int pixels, int runs, const int64_t *run, int64_t depth, const T *x, int64_t pixel_step,
    const T *b, struct ahead ahead, int adds, T *restrict tile)
{
    switch (pixels) {
    PIXEL_CASES(sum_run_pixels_T_vec, 2, runs, run, depth, x, pixel_step, b, ahead, adds, tile)
    }
}

TILE_FUNCTION static void sum_runs_single_V(
    int pixels, int runs, const int64_t *run, int64_t depth, const T *x, int64_t pixel_step,
    const T *b, struct ahead ahead, int adds, T *restrict tile)
{
    switch (pixels) {
    PIXEL_CASES(sum_run_pixels_V, 1, runs, run, depth, x, pixel_step, b, ahead, adds, tile)
    }
}

/* The same for the channels of a panel, with at most SUM_STEPS products; `adds` adds them to the
 * previous sum. */
static inline void sum_runs_T(
    int pixels, int columns, int runs, const int64_t *run, int64_t depth, const T *x,
    int64_t pixel_step, const T *b, struct ahead ahead, int adds, T *restrict tile)
{
    for (int j = 0; j < columns; j += 2 * T_lanes, b += 2 * T_lanes, tile += 2 * T_lanes) {
        if (columns - j > T_lanes)
            sum_runs_pair_T(pixels, runs, run, depth, x, pixel_step, b, ahead, adds, tile);
        else if (columns - j > T_half_lanes)
            sum_runs_single_T_vec(pixels, runs, run, depth, x, pixel_step, b, ahead, adds, tile);
        else
            sum_runs_single_T_half(pixels, runs, run, depth, x, pixel_step, b, ahead, adds, tile);
    }
}

/* The most pixels of a tile that sum_narrow_runs_T takes. */
static inline int narrow_rows_T(int columns)
{
    return columns > T_lanes ? TILE_ROWS : NARROW_ROWS;
}

/* The same for TILE_ROWS < pixels <= NARROW_ROWS and one vector of channels. */
TILE_FUNCTION static void sum_runs_narrow_V(
    int pixels, int runs, const int64_t *run, int64_t depth, const T *x, int64_t pixel_step,
    const T *b, T *restrict tile)
{
    switch (pixels) {
    NARROW_CASES(sum_run_pixels_V, runs, run, depth, x, pixel_step, b, nothing_ahead(), 0, tile)
    }
}

/* The same for a panel with at most half of its columns in use, as of a group of few channels. */
static inline void sum_narrow_runs_T(
    int pixels, int columns, int runs, const int64_t *run, int64_t depth, const T *x,
    int64_t pixel_step, const T *b, T *restrict tile)
{
    if (pixels <= TILE_ROWS)
        sum_runs_T(pixels, columns, runs, run, depth, x, pixel_step, b, nothing_ahead(), 0, tile);
    else if (columns > T_half_lanes)
        sum_runs_narrow_T_vec(pixels, runs, run, depth, x, pixel_step, b, tile);
    else
        sum_runs_narrow_T_half(pixels, runs, run, depth, x, pixel_step, b, tile);
}

/* sums[o][p][lane] = sum over channels c and taps t of
 *     x[c][p * place_step + lane + tap[t]] * weight[o][c][t]
 * for `outputs` output channels and one vector of pixels at each of 4 places (usually rows), or
 * this added to the sums. Weights of an output channel are `weight_step` apart. */
static TILE_INLINE void sum_places_V(
    const int outputs, int channels, int taps, const T *x, int64_t channel_step,
    const int64_t *tap, int64_t place_step, const T *weight, int64_t weight_step, int adds,
    T *restrict sums, int sums_step)
{
    V sum[4][4], x_t[4];
    #pragma GCC unroll 4
    for (int o = 0; o < outputs; o++) {
        #pragma GCC unroll 4
        for (int p = 0; p < 4; p++)
            sum[o][p] = (V){0};
    }
    for (int c = 0; c < channels; c++, x += channel_step) {
        for (int t = 0; t < taps; t++, weight++) {
            #pragma GCC unroll 4
            for (int p = 0; p < 4; p++)
                x_t[p] = *(const volatile V *)(x + tap[t] + p * place_step);
            #pragma GCC unroll 4
            for (int o = 0; o < outputs; o++) {
                const V w_o = weight[o * weight_step] - (V){0};
                #pragma GCC unroll 4
                for (int p = 0; p < 4; p++)
                    ADD_PRODUCT_T(sum[o][p], w_o, x_t[p]);
            }
        }
    }
    if (adds) {
        #pragma GCC unroll 4
        for (int o = 0; o < outputs; o++) {
            #pragma GCC unroll 4
            for (int p = 0; p < 4; p++)
                sum[o][p] += *(V *)(sums + (o * 4 + p) * sums_step);
        }
    }
    #pragma GCC unroll 4
    for (int o = 0; o < outputs; o++) {
        #pragma GCC unroll 4
        for (int p = 0; p < 4; p++)
            *(V *)(sums + (o * 4 + p) * sums_step) = sum[o][p];
    }
}

/* sums[outputs][4][sums_step]: `pixels` pixels (whole vectors) at each of 4 places, for 1, 2 or 4
 * output channels. */
TILE_FUNCTION static void sum_channels_V(
    int outputs, int pixels, int channels, int taps, const T *x, int64_t channel_step,
    const int64_t *tap, int64_t place_step, const T *weight, int64_t weight_step, int adds,
    T *restrict sums, int sums_step)
{
    for (int i = 0; i < pixels; i += V_lanes, x += V_lanes, sums += V_lanes) {
        if (outputs == 1 && channels == 1 && taps == 9) /* depthwise 3x3, unrolled */
            sum_places_V(1, 1, 9, x, 0, tap, place_step, weight, 0, adds, sums, sums_step);
        else if (outputs == 1)
            sum_places_V(1, channels, taps, x, channel_step, tap, place_step, weight, weight_step,
                         adds, sums, sums_step);
        else if (outputs == 2)
            sum_places_V(2, channels, taps, x, channel_step, tap, place_step, weight, weight_step,
                         adds, sums, sums_step);
        else if (TILE_ROWS > 6)
            sum_places_V(4, channels, taps, x, channel_step, tap, place_step, weight, weight_step,
                         adds, sums, sums_step);
        else /* sixteen sums do not fit in the registers */
            for (int o = 0; o < 4; o += 2)
                sum_places_V(2, channels, taps, x, channel_step, tap, place_step,
                             weight + o * weight_step, weight_step, adds,
                             sums + o * 4 * sums_step, sums_step);
    }
}

/* The same in blocks of at most SUM_STEPS products, or of one channel, which are added. */
static inline void sum_segment_T(
    int outputs, int pixels, int channels, int taps, const T *x, int64_t channel_step,
    const int64_t *tap, int64_t place_step, const T *weight, T *restrict sums, int sums_step)
{
    const int64_t weight_step = (int64_t)channels * taps;
    const int rest = pixels % T_lanes, narrow = rest <= T_half_lanes ? rest : 0;
    const int wide = pixels - narrow; /* in whole vectors, or nearly; the others take half of one */
    const int most = weight_step <= SUM_STEPS ? channels : taps < SUM_STEPS ? SUM_STEPS / taps : 1;
    int c = 0;
    do {
        const int count = channels - c < most ? channels - c : most;
        const T *const x_c = x + c * channel_step, *const weight_c = weight + (int64_t)c * taps;
        sum_channels_T_vec(outputs, wide, count, taps, x_c, channel_step, tap, place_step, weight_c,
                           weight_step, c > 0, sums, sums_step);
        if (narrow > 0)
            sum_channels_T_half(outputs, narrow, count, taps, x_c + wide, channel_step, tap,
                                place_step, weight_c, weight_step, c > 0, sums + wide, sums_step);
        c += count;
    } while (c < channels);
}
