/* conv2d: f32[N,8,7,7] = conv2d
 * program.py:1
 * 3x3, 1 -> 8 channels; tiles of 4 output channels x 64 pixels. */
static void k0_conv2d(const float *restrict x, const float *restrict weight_packed,
                      float *restrict conv2d, int64_t N, void *restrict workspace, int n_threads)
{
    /* The offset of each weight's pixel from the pixel of the first weight. */
    const int64_t tap[9] = {0, 1, 2, 9, 10, 11, 18, 19, 20};
    float *const padded = workspace;
    /* The images with zeros around them. */
    #pragma omp parallel for schedule(static) num_threads(n_threads) \
            if (n_threads > 1 && N*3528 > PARALLEL_PRODUCTS)
    for (int64_t plane = 0; plane < N; ++plane) {
        pad_plane_float(7, 7, x + plane*49, 1, 1, 11, 9, padded + plane*99);
    }
    /* The convolution. */
    #pragma omp parallel for collapse(2) schedule(static) num_threads(n_threads) \
            if (n_threads > 1 && N*3528 > PARALLEL_PRODUCTS)
    for (int64_t n = 0; n < N; ++n) {
        for (int64_t block = 0; block < 2; ++block) {
            const float *const image = padded + n*99;
            const float *const weights = weight_packed + block*36;
            float sums[256];
            sum_segment_float(4, 16, 1, 9, image, 99, tap, 16, weights, sums, 16);
            for (int64_t o = 0; o < 4; ++o) {
                const int64_t k = block*4 + o;
                for (int64_t p = 0; p < 7; ++p) {
                    #pragma omp simd
                    for (int64_t i = 0; i < 7; ++i) {
                        conv2d[((n*8 + k)*7 + p)*7 + i] = sums[o*64 + p*9 + i];
                    }
                }
            }
        }
    }
}
