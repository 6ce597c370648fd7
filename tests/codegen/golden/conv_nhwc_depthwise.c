/* conv2d: f32[N,H,W,16] = conv2d
 * program.py:1
 * 3x3, each of 16 channels on its own, NHWC; tiles of 4 pixels of a row x 16 channels. */
static void k0_conv2d(const float *restrict x, const float *restrict weight_packed,
                      const float *restrict bias, float *restrict conv2d, int64_t H, int64_t N,
                      int64_t W, int n_threads)
{
    #pragma omp parallel for collapse(3) schedule(static) num_threads(n_threads) \
            if (n_threads > 1 && H*N*W*144 > PARALLEL_PRODUCTS)
    for (int64_t n = 0; n < N; ++n) {
        for (int64_t oh = 0; oh < H; ++oh) {
            for (int64_t tile_index = 0; tile_index < (W + 3) / 4; ++tile_index) {
                const int64_t ow_0 = tile_index*4;
                const int64_t pixels = fx_min(W - ow_0, 4);
                float sums[320];
                sum_depthwise_last_float(4, 3, 3, 1, 1, 1, x + n*H*W*16, H, W, 16, oh - 1,
                    ow_0 - 1, weight_packed, 16, sums);
                for (int64_t i = 0; i < pixels; ++i) {
                    const int64_t ow = ow_0 + i;
                    #pragma omp simd
                    for (int64_t j = 0; j < 16; ++j) {
                        conv2d[((n*H + oh)*W + ow)*16 + j] = sums[i*80 + j] + bias[j];
                    }
                }
            }
        }
    }
}
