/* conv2d: f32[N,8,H,W] = conv2d
 * program.py:1
 * 3x3, each of 8 channels on its own; tiles of 4 output rows of a vector of pixels. */
static void k0_conv2d(const float *restrict x, const float *restrict weight_packed,
                      const float *restrict bias, float *restrict conv2d, int64_t H, int64_t N,
                      int64_t W, void *restrict workspace, int n_threads)
{
    if (H <= 0 || W <= 0)
        return;
    #pragma omp parallel num_threads(n_threads) if (n_threads > 1 && H*N*W*72 > PARALLEL_PRODUCTS)
    {
        const int64_t own_size = W*4 + H*W + 68;
        float *const sums = (float *)workspace + own_size*this_thread();
        float *const copy = sums + W*4 + 32;
        #pragma omp for collapse(2) schedule(static)
        for (int64_t n = 0; n < N; ++n) {
            for (int64_t k = 0; k < 8; ++k) {
                const float *const image = readable_image_float(x, H*N*W*8, (n*8 + k)*H*W, H*W, 1,
                    19, copy);
                for (int64_t oh_0 = 0; oh_0 < H; oh_0 += 4) {
                    sum_depthwise_rows_float(4, 3, 3, 1, 1, image, H, W, oh_0 - 1, -1,
                        weight_packed + k*9, W, sums);
                    const int64_t rows = fx_min(H - oh_0, 4);
                    #pragma omp simd
                    for (int64_t i = 0; i < rows*W; ++i) {
                        const int64_t ow = oh_0*W + i;
                        conv2d[(n*8 + k)*H*W + ow] = sums[i] + bias[k];
                    }
                }
            }
        }
    }
}
