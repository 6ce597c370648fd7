/* conv2d: f32[N,8,9,9] = conv2d
 * program.py:1
 * 3x3, 4 -> 8 channels in 2 groups; tiles of 4 output channels x 4 rows x 64 pixels. */
static void k0_conv2d(const float *restrict x, const float *restrict weight_packed,
                      float *restrict conv2d, int64_t N, void *restrict workspace, int n_threads)
{
    /* The offset of each weight's pixel from the pixel of the first weight. */
    const int64_t tap[9] = {0, 1, 2, 19, 20, 21, 38, 39, 40};
    float *const padded = workspace;
    #pragma omp parallel num_threads(n_threads) if (n_threads > 1 && N*11664 > PARALLEL_PRODUCTS)
    {
        float *const image = padded + this_thread()*564;
        for (int64_t i = 0; i < 532; ++i) {
            image[i] = 0;
        }
        #pragma omp for collapse(2) schedule(static)
        for (int64_t n = 0; n < N; ++n) {
            for (int64_t group = 0; group < 2; ++group) {
                for (int64_t c = 0; c < 2; ++c) {
                    for (int64_t i = 0; i < 9; ++i) {
                        const float *const from = x + (((n*2 + group)*2 + c)*9 + i)*9;
                        float *const to = image + c*266 + i*19 + 19;
                        #pragma omp simd
                        for (int64_t j = 0; j < 9; ++j) {
                            to[j + 1] = from[j];
                        }
                    }
                }
                for (int64_t row_4 = 0; row_4 < 3; ++row_4) {
                    const float *const weights = weight_packed + group*72;
                    float sums[1024];
                    sum_segment_float(4, 9, 2, 9, image + row_4*76, 266, tap, 19, weights, sums,
                        64);
                    const int rows = (int)fx_min(9 - row_4*4, 4);
                    for (int64_t o = 0; o < 4; ++o) {
                        const int64_t k = group*4 + o;
                        for (int64_t p = 0; p < rows; ++p) {
                            const int64_t oh = row_4*4 + p;
                            #pragma omp simd
                            for (int64_t i = 0; i < 9; ++i) {
                                conv2d[((n*8 + k)*9 + oh)*9 + i] = sums[(o*4 + p)*64 + i];
                            }
                        }
                    }
                }
            }
        }
    }
}
