/* conv1d: f32[N,6,L-2] = conv1d
 * program.py:1
 * 1x3, 4 -> 6 channels; tiles of 4 output channels x 64 pixels. */
static void k0_conv1d(const float *restrict x, const float *restrict weight_packed,
                      float *restrict conv1d, int64_t L, int64_t N, void *restrict workspace,
                      int n_threads)
{
    const int64_t out_w = L - 2;
    const int64_t pitch = ((out_w + 63) / 64)*64 + 3;
    /* The offset of each weight's pixel from the pixel of the first weight. */
    const int64_t tap[3] = {0, 1, 2};
    float *const padded = workspace;
    const int64_t most_images = fx_min(N, fx_max(n_threads*524288 / (pitch*16 + 1), 1));
    for (int64_t n_0 = 0; n_0 < N; n_0 += most_images) {
        const int64_t images = fx_min(N - n_0, most_images);
        /* The images with zeros around them. */
        #pragma omp parallel for schedule(static) num_threads(n_threads) \
                if (n_threads > 1 && out_w*N*72 > PARALLEL_PRODUCTS)
        for (int64_t plane = 0; plane < images*4; ++plane) {
            pad_plane_float(1, L, x + (n_0*4 + plane)*L, 0, 0, 1, pitch, padded + pitch*plane);
        }
        /* The convolution. */
        #pragma omp parallel for collapse(2) schedule(static) num_threads(n_threads) \
                if (n_threads > 1 && out_w*N*72 > PARALLEL_PRODUCTS)
        for (int64_t n = 0; n < images; ++n) {
            for (int64_t block = 0; block < 2; ++block) {
                const float *const image = padded + n*pitch*4;
                const int64_t image_n = n_0 + n;
                const float *const weights = weight_packed + block*48;
                const int channels = (int)fx_min(6 - block*4, 4);
                for (int64_t ow_0 = 0; ow_0 < out_w; ow_0 += 64) {
                    const int pixels = (int)fx_min(out_w - ow_0, 64);
                    float sums[256];
                    sum_segment_float(4, 16, 4, 3, image + ow_0, pitch, tap, 16, weights, sums, 16);
                    for (int64_t o = 0; o < channels; ++o) {
                        const int64_t k = block*4 + o;
                        #pragma omp simd
                        for (int64_t i = 0; i < pixels; ++i) {
                            const int64_t ow = ow_0 + i;
                            conv1d[(image_n*6 + k)*L + ow - image_n*12 - k*2] = sums[o*64 + i];
                        }
                    }
                }
            }
        }
    }
}
