/* The tile of depthwise convolutions.
 *
 * A tile is up to 8 output rows of one vector of pixels. Each input row under it is loaded once
 * per column of the kernel and used for all rows of the tile that need it, so a 3x3 kernel needs
 * one load for about three multiply-adds. The image is read in place: lanes left and right of it
 * are masked, and rows above and below it are skipped. Measured on a Zen 4 core, tiles of 7 and 8
 * rows of images of 7x7 to 112x112 pixels run at 70 to 78 % of the peak; with bias, relu6 and the
 * stores at 35 to 50 %. */

/* The most rows and columns of a kernel. The most output rows of a tile: with a 3x3 kernel, 8
 * sums, 9 weights and 3 masks fit in registers. The most rows of the image under a tile. */
#define MOST_COLUMNS 11
#define MOST_PLACES 8
#define MOST_ROWS 25

#if INSTANCE == 0
#define T float
#define INTEGER int32_t
#define V float_vec
#define SIZE VECTOR_BYTES
#elif INSTANCE == 1
#define T float
#define INTEGER int32_t
#define V float_half
#define SIZE HALF_BYTES
#elif INSTANCE == 2
#define T double
#define INTEGER int64_t
#define V double_vec
#define SIZE VECTOR_BYTES
#else
#define T double
#define INTEGER int64_t
#define V double_half
#define SIZE HALF_BYTES
#endif

/* ---- Tiles of depthwise convolutions --------------------------------------------------------- */

static const int32_t float_positions[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

static const int64_t double_positions[] = {0, 1, 2, 3, 4, 5, 6, 7};

/* One image of which `before` and `after` elements around it may be read: the image itself, or a
 * copy of it if these are not all within the `count` elements of all images. */
static const T *readable_image_T(
    const T *images, int64_t count, int64_t start, int64_t size, int64_t before, int64_t after,
    T *restrict copy)
{
    if (start >= before && start + size + after <= count)
        return images + start;
    for (int64_t i = 0; i < size; i++)
        copy[before + i] = images[start + i];
    return copy + before;
}

typedef INTEGER V_lane VECTOR(SIZE, sizeof(T));

/* The vector of bits. */
static inline V V_of_lane(V_lane bits)
{
#if VECTOR_BYTES > 4
    return (V)bits;
#else
    V x;
    memcpy(&x, &bits, sizeof x);
    return x;
#endif
}

/* Every second element of two half vectors (see even_16). */
#if VECTOR_BYTES == 64
#define float_half_even(a, b) even_8(float_half_lane, a, b)
#define float_half_odd(a, b) odd_8(float_half_lane, a, b)
#elif VECTOR_BYTES == 32
#define float_half_even(a, b) even_4(float_half_lane, a, b)
#define float_half_odd(a, b) odd_4(float_half_lane, a, b)
#elif VECTOR_BYTES == 16
#define float_half_even(a, b) even_4(float_half_lane, a, b)
#define float_half_odd(a, b) odd_4(float_half_lane, a, b)
#else
#define float_half_even(a, b) (a)
#define float_half_odd(a, b) (b)
#endif

#if VECTOR_BYTES == 64
#define double_half_even(a, b) even_4(double_half_lane, a, b)
#define double_half_odd(a, b) odd_4(double_half_lane, a, b)
#elif VECTOR_BYTES == 32
#define double_half_even(a, b) even_2(double_half_lane, a, b)
#define double_half_odd(a, b) odd_2(double_half_lane, a, b)
#elif VECTOR_BYTES == 16
#define double_half_even(a, b) even_2(double_half_lane, a, b)
#define double_half_odd(a, b) odd_2(double_half_lane, a, b)
#else
#define double_half_even(a, b) (a)
#define double_half_odd(a, b) (b)
#endif

/* sums[p][lane] = sum over rows r and columns s of the kernel of
 *     weight[r][s] * x[top + p * down + r][left + lane * across + s]
 * for `places` rows of a vector of output pixels; x is 0 outside its h rows and w columns.
 * `down` and `across` are the strides; across is 1 or 2. */
static TILE_INLINE void sum_depthwise_V(
    const int places, const int rows, const int columns, const int down, const int across,
    const T *x, int64_t h, int64_t w, int64_t top, int64_t left, const T *weight,
    T *restrict sums, int64_t sums_step)
{
    const V_lane position = *(const V_lane *)T_positions * across;
    V_lane inside[MOST_COLUMNS];
    V sum[MOST_PLACES];
    #pragma GCC unroll MOST_COLUMNS
    for (int s = 0; s < columns; s++) {
        const int64_t rest = w - left - s, end = rest < V_lanes * 2 ? rest : V_lanes * 2;
        inside[s] = MASK((position >= (INTEGER)(-left - s)) & (position < (INTEGER)end));
    }
    #pragma GCC unroll MOST_PLACES
    for (int p = 0; p < places; p++)
        sum[p] = (V){0};
    #pragma GCC unroll MOST_ROWS
    for (int i = 0; i < (places - 1) * down + rows; i++) {
        if (top + i < 0 || top + i >= h)
            continue;
        const T *const row = x + (top + i) * w + left;
        V_lane pixels[MOST_COLUMNS + 1];
        #pragma GCC unroll MOST_COLUMNS
        for (int s = 0; s < columns; s += across) {
            pixels[s] = *(const V_lane *)(row + s);
            if (across == 2) { /* every second pixel of two vectors, from the first and the next */
                const V_lane first = pixels[s], second = *(const V_lane *)(row + s + V_lanes);
                pixels[s] = V_even(first, second);
                pixels[s + 1] = V_odd(first, second);
            }
        }
        #pragma GCC unroll MOST_COLUMNS
        for (int s = 0; s < columns; s++) {
            const V pixel = V_of_lane(pixels[s] & inside[s]);
            #pragma GCC unroll MOST_PLACES
            for (int p = 0; p < places; p++) {
                const int r = i - p * down;
                if (r >= 0 && r < rows)
                    sum[p] += weight[r * columns + s] * pixel;
            }
        }
    }
    #pragma GCC unroll MOST_PLACES
    for (int p = 0; p < places; p++)
        *(V *)(sums + p * sums_step) = sum[p];
}

/* sums[places][out_w], the same for whole rows. Up to a vector after the last sum is overwritten.
 * The last vectors of a row overlap. */
static TILE_INLINE void sum_depthwise_rows_T(
    const int places, const int rows, const int columns, const int down, const int across,
    const T *x, int64_t h, int64_t w, int64_t top, int64_t left, const T *weight,
    int64_t out_w, T *restrict sums)
{
    if (out_w <= T_half_lanes) {
        sum_depthwise_T_half(places, rows, columns, down, across, x, h, w, top, left, weight, sums,
                             out_w);
        return;
    }
    for (int64_t i = 0; i < out_w; i += T_lanes) {
        const int64_t ow = i + T_lanes <= out_w || out_w < T_lanes ? i : out_w - T_lanes;
        sum_depthwise_T_vec(places, rows, columns, down, across, x, h, w, top,
                            left + ow * across, weight, sums + ow, out_w);
    }
}
