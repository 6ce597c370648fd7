/* sigmoid: f32[N,8,5,W] = int_conv2d -> dequantize -> sigmoid
 * program.py:1
 * program.py:2
 * 3x3, each of 8 channels on its own; tiles of two output rows of up to 8 pixels x 64 channels.
 * Four rows of the image are interleaved into quads, one for each column and channel. */
static void k0_sigmoid(const int8_t *restrict x, const int32_t *restrict weight_packed,
                       const float *restrict scale, float *restrict sigmoid, int64_t N, int64_t W,
                       void *restrict workspace, int n_threads)
{
    uint8_t *const padded = workspace;
    /* The images, channels last. */
    #pragma omp parallel for collapse(2) schedule(static) num_threads(n_threads) \
            if (n_threads > 1 && N*W*90 > PARALLEL_PRODUCTS)
    for (int64_t n = 0; n < N; ++n) {
        for (int64_t i = 0; i < 5; ++i) {
            pad_row_bytes(W, 8, x + (n*40 + i)*W, 1, W*5, 0, W, 0, 0, padded + (n*5 + i)*W*8);
        }
    }
    /* The convolution. */
    #pragma omp parallel for collapse(2) schedule(static) num_threads(n_threads) \
            if (n_threads > 1 && N*W*90 > PARALLEL_PRODUCTS)
    for (int64_t n = 0; n < N; ++n) {
        for (int64_t row_step = 0; row_step < 3; ++row_step) {
            const int32_t *const weights = weight_packed;
            const int64_t oh_0 = row_step*2;
            const int output_rows = (int)fx_min(5 - oh_0, 2);
            uint8_t outside[64];
            memset(outside, 0, 64);
            const uint8_t *rows[4];
            int64_t steps[4];
            find_rows(oh_0 - 1, 4, 1, 5, W*8, 8, padded + n*W*40, outside, rows, steps);
            /* The columns of the image that a tile reads: four rows in a quad. */
            int32_t woven[640];
            int32_t tile[1024];
            int_vec kernel[3][2];
            for (int64_t ow_0 = 0; ow_0 < W; ow_0 += 8) {
                const int pixels = (int)fx_min(W - ow_0, 8);
                weave_i8(pixels + 2, 8, ow_0 - 1, W, rows, steps, 0, woven);
                add_tile(2, 3, pixels, 8, 1, weights, weights + 64, woven, kernel, tile);
                for (int64_t o = 0; o < output_rows; ++o) {
                    const int64_t oh = oh_0 + o;
                    const int32_t *const sums = tile + o*512;
                    for (int64_t j = 0; j < 8; ++j) {
                        #pragma omp simd
                        for (int64_t i = 0; i < pixels; ++i) {
                            const int64_t ow = ow_0 + i;
                            sigmoid[((n*8 + j)*5 + oh)*W + ow] =
                                fx_sigmoid_f32(fx_product_f32((float)sums[i*64 + j], scale[j]));
                        }
                    }
                }
            }
        }
    }
}
