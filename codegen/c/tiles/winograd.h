/* The transforms of Winograd's convolution.
 *
 * F(m x m, 3 x 3) computes a square of m x m output pixels from a square of (m+2) x (m+2) input
 * pixels with (m+2)**2 multiplications per channel, while the definition needs 9 * m**2: 2.25
 * times fewer for m = 2, 4 times fewer for m = 4. With Y the output, d the input, g the kernel:
 *
 *     Y = A^T [ (G g G^T) * (B^T d B) ] A        (summed over channels inside the brackets)
 *
 * Source: S. Winograd, Arithmetic Complexity of Computations, 1980; A. Lavin and S. Gray, Fast
 * Algorithms for Convolutional Neural Networks, CVPR 2016. The matrices are Cook-Toom's for the
 * points 0, 1, -1 (m = 2) and 0, 3/4, -3/4, 3/2, -3/2 (m = 4) and infinity. The points determine
 * the rounding error: on random images of 256 channels it is 0.5e-6 (m = 2) and 2.3e-6 (m = 4) of
 * the largest output, against 1.0e-6 for sums in the order of the definition; the usual points 0,
 * 1, -1, 2, -2 give 7e-6.
 *
 * For matmul_precision="medium" the points of m = 2 are rounded to bf16; transforms stay float.
 * The error is then 3.5e-3 of the largest output, against 2.4e-3 for the definition with bf16.
 * With m = 4 it would be 1.5e-2 (other points: 1.2e-2 to 7e-2), which is no longer acceptable for
 * bf16.
 *
 * A NaN or an infinity would spread over its whole tile; such a tile is computed pixel by
 * pixel. */

/* Squares of M x M outputs, whose points and transformed weights are stored as POINT. */
#define PANEL 32

#if INSTANCE == 0
#define NAME 2
#define M 2
#define SIDE 4
#define OUTPUTS 2
#define POINT float
#define STORE_POINT *(float_vec *)(points + (i * SIDE + j) * point_step + c) = done[j]
#define WEIGHTS *(const float_vec *)(weights + ((i * SIDE + j) * (int64_t)channels + c) * PANEL + k)
#elif INSTANCE == 1
#define NAME 4
#define M 4
#define SIDE 6
#define OUTPUTS 4
#define POINT float
#define STORE_POINT *(float_vec *)(points + (i * SIDE + j) * point_step + c) = done[j]
#define WEIGHTS *(const float_vec *)(weights + ((i * SIDE + j) * (int64_t)channels + c) * PANEL + k)
#else
#define NAME 2_bf16
#define M 2
#define SIDE 4
#define OUTPUTS 2
#define POINT uint32_t
#define STORE_POINT \
    store_bf16((uint16_t *)(points + (i * SIDE + j) * point_step + c / 2), done[j], float_lanes)
#define WEIGHTS halves_of_pairs(*(const pair_vec *)(weights \
    + ((i * SIDE + j) * (int64_t)((channels + 1) / 2) + c / 2) * PANEL + k), c % 2)
#endif

/* ---- Winograd's convolution F(m x m, 3 x 3): transforms -------------------------------------- */

/* How many rows of tiles are computed at once: so many that their points take half of the
 * second-level cache while the panels of weights pass by. If a panel is larger than that, most of
 * the time would go into reading weights again for each block, and points may fill several
 * caches. */
static inline int64_t winograd_block_rows(
    int64_t tiles_down, int64_t row_bytes, int64_t panel_bytes)
{
    const int64_t most = panel_bytes > L2_BYTES / 2 ? 4 * (int64_t)L2_BYTES : L2_BYTES / 2;
    const int64_t rows = most / (row_bytes > 0 ? row_bytes : 1);
    if (rows < 1)
        return 1;
    const int64_t blocks = (tiles_down + rows - 1) / rows;
    return blocks > 1 ? (tiles_down + blocks - 1) / blocks : tiles_down;
}

/* pixel[i * side + j] = the address of the channels of the pixel in row top + i and column left +
 * j of an image of width w, whose rows `from` up to `to` are in `pixels`; zeros outside. */
static void find_tile_pixels(
    int side, int64_t top, int64_t left, int64_t from, int64_t to, int64_t w, int64_t channels,
    const float *pixels, const float *zeros, const float **pixel)
{
    for (int i = 0; i < side * side; i++) {
        const int64_t row = top + i / side, column = left + i % side;
        const int inside = row >= from && row < to && column >= 0 && column < w;
        pixel[i] = inside ? pixels + ((row - from) * w + column) * channels : zeros;
    }
}

/* One axis of B^T d B: four pixels -> their polynomial at the points 0, 1, -1 and infinity. */
static inline void winograd_points_2(const float_vec d[4], float_vec v[4])
{
    v[0] = d[0] - d[2];
    v[1] = d[2] + d[1];
    v[2] = d[2] - d[1];
    v[3] = d[3] - d[1];
}

/* One axis of the inverse of G g G^T: four points -> three weights. */
static inline void winograd_weights_2(const float_vec u[4], float_vec g[3])
{
    g[0] = u[0];
    g[1] = u[1] - u[2];
    g[2] = u[3];
}

/* One axis of A^T m A: four points -> two pixels. */
static inline void winograd_pixels_2(const float_vec m[4], float_vec y[2])
{
    y[0] = m[0] + m[1] + m[2];
    y[1] = m[1] - m[2] + m[3];
}

/* One axis of B^T d B: six pixels -> their polynomial at 0, 3/4, -3/4, 3/2, -3/2 and infinity. */
static inline void winograd_points_4(const float_vec d[6], float_vec v[6])
{
    const float_vec even_1 = d[4] - 2.25f * d[2], odd_1 = 0.75f * (d[3] - 2.25f * d[1]);
    const float_vec even_2 = d[4] - 0.5625f * d[2], odd_2 = 1.5f * (d[3] - 0.5625f * d[1]);
    v[0] = 1.265625f * d[0] - 2.8125f * d[2] + d[4];
    v[1] = even_1 + odd_1;
    v[2] = even_1 - odd_1;
    v[3] = even_2 + odd_2;
    v[4] = even_2 - odd_2;
    v[5] = 1.265625f * d[1] - 2.8125f * d[3] + d[5];
}

/* One axis of the inverse of G g G^T: six points -> three weights. */
static inline void winograd_weights_4(const float_vec u[6], float_vec g[3])
{
    g[0] = 1.265625f * u[0];
    g[1] = 1.265625f * (u[2] - u[1]);
    g[2] = u[5];
}

/* One axis of A^T m A: six points -> four pixels. */
static inline void winograd_pixels_4(const float_vec m[6], float_vec y[4])
{
    const float_vec sum_1 = m[1] + m[2], difference_1 = m[1] - m[2];
    const float_vec sum_2 = m[3] + m[4], difference_2 = m[3] - m[4];
    y[0] = m[0] + sum_1 + sum_2;
    y[1] = 0.75f * difference_1 + 1.5f * difference_2;
    y[2] = 0.5625f * sum_1 + 2.25f * sum_2;
    y[3] = 0.421875f * difference_1 + 3.375f * difference_2 + m[5];
}

/* points[p][c] = (B^T d B)[p] of one tile, `point_step` apart, for whole vectors of channels, or
 * pairs of them in bf16; pixel[i * SIDE + j] is the address of the channels of d[i][j]. Returns
 * whether all are finite. */
TILE_FUNCTION static int winograd_input_NAME(
    int channels, const float *const *pixel, POINT *restrict points, int64_t point_step)
{
    float_vec zero_or_nan = {0};
    for (int c = 0; c < channels; c += float_lanes) {
        float_vec half[SIDE][SIDE], line[SIDE], done[SIDE];
        #pragma GCC unroll SIDE
        for (int j = 0; j < SIDE; j++) {
            #pragma GCC unroll SIDE
            for (int i = 0; i < SIDE; i++)
                line[i] = *(const float_vec *)(pixel[i * SIDE + j] + c);
            winograd_points_M(line, done);
            #pragma GCC unroll SIDE
            for (int i = 0; i < SIDE; i++)
                half[i][j] = done[i];
            zero_or_nan += 0.0f * (done[0] + done[SIDE - 1]); /* these two use all pixels */
        }
        #pragma GCC unroll SIDE
        for (int i = 0; i < SIDE; i++) {
            winograd_points_M(half[i], done);
            #pragma GCC unroll SIDE
            for (int j = 0; j < SIDE; j++)
                STORE_POINT;
        }
    }
    int finite = 1;
    for (int lane = 0; lane < float_lanes; lane++)
        finite &= LANE(zero_or_nan, lane) == 0;
    return finite;
}

/* y[i][j][k] = (A^T m A)[i][j] of one tile, rows of y `row_step` apart, for up to PANEL output
 * channels; points are `point_step` apart. */
TILE_FUNCTION static void winograd_output_M(
    int columns, const float *points, int64_t point_step, float *restrict y, int64_t row_step)
{
    for (int k = 0; k < columns; k += float_lanes) {
        float_vec half[OUTPUTS][SIDE], line[SIDE], done[OUTPUTS];
        #pragma GCC unroll SIDE
        for (int j = 0; j < SIDE; j++) {
            #pragma GCC unroll SIDE
            for (int i = 0; i < SIDE; i++)
                line[i] = *(const float_vec *)(points + (i * SIDE + j) * point_step + k);
            winograd_pixels_M(line, done);
            #pragma GCC unroll OUTPUTS
            for (int i = 0; i < OUTPUTS; i++)
                half[i][j] = done[i];
        }
        #pragma GCC unroll OUTPUTS
        for (int i = 0; i < OUTPUTS; i++) {
            winograd_pixels_M(half[i], done);
            #pragma GCC unroll OUTPUTS
            for (int j = 0; j < OUTPUTS; j++)
                *(float_vec *)(y + i * row_step + j * PANEL + k) = done[j];
        }
    }
}

/* y as computed by winograd_output_M, but pixel by pixel: for a tile that contains NaN or
 * infinity, which must only reach those pixels whose kernels cover it. */
TILE_FUNCTION static void winograd_direct_NAME(
    int columns, int channels, const float *const *pixel, const POINT *weights,
    float *restrict y, int64_t row_step)
{
    for (int k = 0; k < columns; k += float_lanes) {
        float_vec sum[OUTPUTS][OUTPUTS] = {0};
        for (int c = 0; c < channels; c++) {
            float_vec half[3][SIDE], line[SIDE], g[3];
            for (int j = 0; j < SIDE; j++) {
                for (int i = 0; i < SIDE; i++)
                    line[i] = WEIGHTS;
                winograd_weights_M(line, g);
                for (int r = 0; r < 3; r++)
                    half[r][j] = g[r];
            }
            for (int r = 0; r < 3; r++) {
                winograd_weights_M(half[r], g);
                for (int i = 0; i < OUTPUTS; i++)
                    for (int j = 0; j < OUTPUTS; j++)
                        for (int s = 0; s < 3; s++)
                            sum[i][j] += pixel[(i + r) * SIDE + j + s][c] * g[s];
            }
        }
        for (int i = 0; i < OUTPUTS; i++)
            for (int j = 0; j < OUTPUTS; j++)
                *(float_vec *)(y + i * row_step + j * PANEL + k) = sum[i][j];
    }
}
