/* What convolutions of channels-last images need besides the tiles of convolutions.
 *
 * In the tile of depthwise convolutions vectors hold channels, so that every load is contiguous,
 * no lane is wasted on an image's width, and kernels and strides of any size need no shuffles. A
 * tile consists of the next few pixels of one output row: a pixel of the input is loaded once for
 * all of them, and a vector of weights once for the tile. */

/* The most output pixels of a depthwise tile, and the number of kernel columns whose weights are
 * kept: 8 sums, 5 weights and a pixel fit in 16 registers. Wider kernels are read in parts of so
 * many columns, at most MOST_PARTS. The most columns of the image under a tile and a part. The
 * distance of the pixels in the array of a tile's sums. */
#define MOST_PLACES 8
#define KEPT_COLUMNS 5
#define MOST_PARTS 8
#define MOST_COLUMNS 64
#define PITCH 80

/* Images of kind IMAGE have elements of type ELEMENT. Their sums, of type T, are computed as V:
 * in vectors, by sum_last_VECTORS, or one by one. PIXEL loads one. */
#if INSTANCE == 0
#define T float
#define V float_vec
#define KIND float_vec
#define VECTORS float_vec
#define IMAGE float
#define ELEMENT float
#define PIXEL *(const V *)(row + j * channels)
#elif INSTANCE == 1
#define T float
#define V float
#define KIND float
#define VECTORS float_vec
#define IMAGE float
#define ELEMENT float
#define PIXEL *(const V *)(row + j * channels)
#elif INSTANCE == 2
#define T float
#define V float_vec
#define KIND bf16
#define VECTORS bf16
#define IMAGE bf16
#define ELEMENT uint16_t
#define PIXEL load_bf16(row + j * channels, float_lanes)
#elif INSTANCE == 3
#define T double
#define V double_vec
#define KIND double_vec
#define VECTORS double_vec
#define IMAGE double
#define ELEMENT double
#define PIXEL *(const V *)(row + j * channels)
#else
#define T double
#define V double
#define KIND double
#define VECTORS double_vec
#define IMAGE double
#define ELEMENT double
#define PIXEL *(const V *)(row + j * channels)
#endif

/* ---- Channels-last images ------------------------------------------------------------------- */

/* One row of an image with zeros around it: target[j] = row[j - left], or 0 left and right of it,
 * for `columns` pixels. `row` has w pixels of `channels` (w is 0 above and below the image);
 * pixels of `target` are `pitch` apart. */
static void pad_row_T(
    int64_t w, int64_t channels, const T *row, int64_t left, int64_t columns, int64_t pitch,
    T *restrict target)
{
    for (int64_t j = 0; j < columns; j++, target += pitch) {
        const int inside = j >= left && j < left + w;
        for (int64_t c = 0; inside && c < channels; c++)
            target[c] = row[(j - left) * channels + c];
        for (int64_t c = 0; !inside && c < channels; c++)
            target[c] = 0;
    }
}

/* sums[p][lane] = sum over rows r and columns s of the kernel of
 *     weight[r][s][lane] * x[top + r * under][left + p * across + s * beside][lane]
 * for `places` pixels of an output row; x is 0 outside its h rows and w columns. Pixels of x and
 * weights are `channels` apart. `across` is the stride; `under` and `beside` are the dilations.
 * `inside` promises that no column is outside. */
static TILE_INLINE void sum_last_KIND(
    const int places, const int rows, const int columns, const int across, const int under,
    const int beside, const int inside, const ELEMENT *x, int64_t h, int64_t w, int64_t channels,
    int64_t top, int64_t left, const T *weight, T *restrict sums)
{
    V sum[MOST_PLACES], weights[KEPT_COLUMNS];
    for (int j = 0; j < places * across; j++)
        PREFETCH(x + ((top + rows * under) * w + left + j) * channels, 0, 3);
    #pragma GCC unroll MOST_PLACES
    for (int p = 0; p < places; p++)
        sum[p] = (V){0};
    for (int r = 0; r < rows; r++) {
        const int64_t y = top + r * under;
        if (y < 0 || y >= h)
            continue;
        const ELEMENT *const row = x + (y * w + left) * channels;
        #pragma GCC unroll MOST_PARTS
        for (int first = 0; first < columns; first += KEPT_COLUMNS) {
            const int kept = columns - first < KEPT_COLUMNS ? columns - first : KEPT_COLUMNS;
            #pragma GCC unroll KEPT_COLUMNS
            for (int s = 0; s < kept; s++)
                weights[s] = *(const volatile V *)(weight + (r * columns + first + s) * channels);
            #pragma GCC unroll MOST_COLUMNS
            for (int i = 0; i < (places - 1) * across + (kept - 1) * beside + 1; i++) {
                const int64_t j = i + first * beside;
                if (!inside && (left + j < 0 || left + j >= w))
                    continue;
                const V pixel = PIXEL;
                #pragma GCC unroll MOST_PLACES
                for (int p = 0; p < places; p++) {
                    const int s = (i - p * across) / beside;
                    if (s * beside == i - p * across && s >= 0 && s < kept)
                        sum[p] += weights[s] * pixel;
                }
            }
        }
    }
    #pragma GCC unroll MOST_PLACES
    for (int p = 0; p < places; p++)
        *(V *)(sums + p * PITCH) = sum[p];
}

/* sums[places][PITCH], the same for `count` channels, at least a vector of them: the last
 * vectors overlap. */
static TILE_INLINE void sum_depthwise_last_IMAGE(
    const int places, const int rows, const int columns, const int across, const int under,
    const int beside, const ELEMENT *x, int64_t h, int64_t w, int64_t channels, int64_t top,
    int64_t left, const T *weight, int64_t count, T *restrict sums)
{
    const int reach = (places - 1) * across + (columns - 1) * beside + 1;
    const int inside = left >= 0 && left + reach <= w;
    for (int64_t i = 0; inside && i < count; i += T_lanes) {
        const int64_t c = i + T_lanes <= count ? i : count - T_lanes;
        sum_last_VECTORS(places, rows, columns, across, under, beside, 1, x + c, h, w, channels,
                         top, left, weight + c, sums + c);
    }
    for (int64_t i = 0; !inside && i < count; i += T_lanes) {
        const int64_t c = i + T_lanes <= count ? i : count - T_lanes;
        sum_last_VECTORS(places, rows, columns, across, under, beside, 0, x + c, h, w, channels,
                         top, left, weight + c, sums + c);
    }
}

/* The same for fewer channels than a vector has. */
static TILE_INLINE void sum_depthwise_few_T(
    const int places, const int rows, const int columns, const int across, const int under,
    const int beside, const T *x, int64_t h, int64_t w, int64_t channels, int64_t top, int64_t left,
    const T *weight, int64_t count, T *restrict sums)
{
    for (int64_t c = 0; c < count; c++)
        sum_last_T(places, rows, columns, across, under, beside, 0, x + c, h, w, channels, top,
                   left, weight + c, sums + c);
}
