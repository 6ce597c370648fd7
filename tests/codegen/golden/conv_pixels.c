/* relu: f32[N,8,(H-1)//2+1,(W-1)//2+1] = conv2d -> relu
 * program.py:1
 * 3x3, 3 -> 8 channels; tiles of 4 output channels x 4 rows x 64 pixels. */
static void k0_relu(const float *restrict x, const float *restrict weight_packed,
                    const float *restrict bias, float *restrict relu, int64_t H, int64_t N,
                    int64_t W, void *restrict workspace, int n_threads)
{
    const int64_t out_h = (H + 1) / 2;
    const int64_t out_w = (W + 1) / 2;
    const int64_t padded_h = ((out_h + 3) / 4)*8 + 2;
    const int64_t pitch = ((out_w + 15) / 16)*16 + 2;
    /* The offset of each weight's pixel from the pixel of the first weight. */
    const int64_t tap[9] = {0, padded_h*pitch, 1, pitch, (padded_h + 1)*pitch, pitch + 1, pitch*2,
        (padded_h + 2)*pitch, pitch*2 + 1};
    float *const padded = workspace;
    const int64_t most_images = fx_min(N, fx_max(n_threads*524288 / (padded_h*pitch*24 + 1), 1));
    for (int64_t n_0 = 0; n_0 < N; n_0 += most_images) {
        const int64_t images = fx_min(N - n_0, most_images);
        /* The images with zeros around them. */
        #pragma omp parallel for schedule(static) num_threads(n_threads) \
                if (n_threads > 1 && out_h*out_w*N*216 > PARALLEL_PRODUCTS)
        for (int64_t plane = 0; plane < images*3; ++plane) {
            float *const image = padded + padded_h*pitch*plane*2;
            for (int64_t i = 0; i < padded_h*pitch*2; ++i) {
                image[i] = 0;
            }
            for (int64_t i = 0; i < H; ++i) {
                const float *const from = x + ((n_0*3 + plane)*H + i)*W;
                float *const to = image + (i + 1)*pitch;
                #pragma omp simd
                for (int64_t j = 0; j < W / 2; ++j) {
                    to[j + 1] = from[j*2 + 1];
                }
                #pragma omp simd
                for (int64_t j = 0; j < (W + 1) / 2; ++j) {
                    to[padded_h*pitch + j] = from[j*2];
                }
            }
        }
        /* The convolution. */
        #pragma omp parallel for collapse(3) schedule(static) num_threads(n_threads) \
                if (n_threads > 1 && out_h*out_w*N*216 > PARALLEL_PRODUCTS)
        for (int64_t n = 0; n < images; ++n) {
            for (int64_t block = 0; block < 2; ++block) {
                for (int64_t row_4 = 0; row_4 < (out_h + 3) / 4; ++row_4) {
                    const float *const image = padded + n*padded_h*pitch*6;
                    const int64_t image_n = n_0 + n;
                    const float *const weights = weight_packed + block*108;
                    for (int64_t ow_0 = 0; ow_0 < out_w; ow_0 += 64) {
                        const int pixels = (int)fx_min(out_w - ow_0, 64);
                        float sums[1024];
                        sum_segment_float(4, pixels, 3, 9, image + pitch*row_4*8 + ow_0,
                            padded_h*pitch*2, tap, pitch*2, weights, sums, 64);
                        const int rows = (int)fx_min(out_h - row_4*4, 4);
                        for (int64_t o = 0; o < 4; ++o) {
                            const int64_t k = block*4 + o;
                            for (int64_t p = 0; p < rows; ++p) {
                                const int64_t oh = row_4*4 + p;
                                #pragma omp simd
                                for (int64_t i = 0; i < pixels; ++i) {
                                    const int64_t ow = ow_0 + i;
                                    relu[(image_n + fx_floor_div(W - 1, 2)*image_n
                                        + fx_floor_div(H - 1, 2)*image_n
                                        + fx_floor_div(H - 1, 2)*fx_floor_div(W - 1,
                                        2)*image_n)*8 + k + fx_floor_div(W - 1, 2)*k
                                        + fx_floor_div(H - 1, 2)*k
                                        + fx_floor_div(H - 1, 2)*fx_floor_div(W - 1, 2)*k + oh
                                        + fx_floor_div(W - 1, 2)*oh + ow] =
                                        fx_maximum_f32(sums[(o*4 + p)*64 + i] + bias[k], 0.0f);
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
