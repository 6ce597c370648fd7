/* conv2d: f32[N,8,7,7] = conv2d
 * program.py:1
 * 3x3, 1 -> 8 channels; tiles of 4 output channels x 64 pixels. */
static void k0_conv2d(const float *restrict x, const float *restrict weight_packed,
                      float *restrict conv2d, int64_t N, void *restrict workspace, int n_threads)
{
    /* The offset of each weight's pixel from the pixel of the first weight. */
    const int64_t tap[9] = {0, 1, 2, 9, 10, 11, 18, 19, 20};
    float *const padded = workspace;
    const int64_t most_images = fx_min(N, fx_max(n_threads*524288 / 396, 1));
    for (int64_t n_0 = 0; n_0 < N; n_0 += most_images) {
        const int64_t images = fx_min(N - n_0, most_images);
        /* The images with zeros around them. */
        #pragma omp parallel for schedule(static) num_threads(n_threads) \
                if (n_threads > 1 && N*3528 > PARALLEL_PRODUCTS)
        for (int64_t plane = 0; plane < images; ++plane) {
            pad_plane_float(7, 7, x + n_0*49 + plane*49, 1, 1, 11, 9, padded + plane*99);
        }
        /* The convolution. */
        #pragma omp parallel for collapse(2) schedule(static) num_threads(n_threads) \
                if (n_threads > 1 && N*3528 > PARALLEL_PRODUCTS)
        for (int64_t n = 0; n < images; ++n) {
            for (int64_t block = 0; block < 2; ++block) {
                const float *const image = padded + n*99;
                const int64_t image_n = n_0 + n;
                const float *const weights = weight_packed + block*36;
                float sums[256];
                sum_segment_float(4, 16, 1, 9, image, 99, tap, 16, weights, sums, 16);
                for (int64_t o = 0; o < 4; ++o) {
                    const int64_t k = block*4 + o;
                    for (int64_t p = 0; p < 7; ++p) {
                        #pragma omp simd
                        for (int64_t i = 0; i < 7; ++i) {
                            conv2d[((image_n*8 + k)*7 + p)*7 + i] = sums[o*64 + p*9 + i];
                        }
                    }
                }
            }
        }
    }
}
