/* relu: f32[N,(H-1)//2+1,(W-1)//2+1,32] = conv2d -> relu
 * program.py:1
 * 3x3, 16 -> 32 channels, NHWC -> NHWC; tiles of TILE_ROWS pixels of a row x 32 output channels.
 * Pixels are read in runs of 48. */
static void k0_relu(const float *restrict x, const float *restrict weight_packed,
                    const float *restrict bias, float *restrict relu, int64_t H, int64_t N,
                    int64_t W, void *restrict workspace, int n_threads)
{
    const int64_t out_h = (H + 1) / 2;
    const int64_t out_w = (W + 1) / 2;
    const int64_t padded_h = out_h*2 + 2;
    const int64_t padded_w = out_w*2 + 2;
    /* Where the runs of a kernel begin, counted from its first pixel. */
    const int64_t run[3] = {0, padded_w*16, padded_w*32};
    const int64_t most_images = fx_min(N, fx_max(n_threads*524288 / (padded_h*padded_w*64 + 1), 1));
    for (int64_t n_0 = 0; n_0 < N; n_0 += most_images) {
        const int64_t images = fx_min(N - n_0, most_images);
        const int64_t row_blocks = count_row_blocks(out_h, padded_w*128, images, n_threads);
        float *const padded = workspace;
        /* The images with zeros around them. */
        #pragma omp parallel for collapse(2) schedule(static) num_threads(n_threads) \
                if (n_threads > 1 && out_h*out_w*N*4608 > PARALLEL_PRODUCTS)
        for (int64_t n = 0; n < images; ++n) {
            for (int64_t i = 0; i < padded_h; ++i) {
                pad_row_float(i >= 1 && i < H + 1 ? W : 0, 16, x + (n_0 + n)*H*W*16 + (i - 1)*W*16,
                    1, padded_w, 16, padded + (n*padded_h + i)*padded_w*16);
            }
        }
        /* The convolution. */
        #pragma omp parallel for collapse(2) schedule(static) num_threads(n_threads) \
                if (n_threads > 1 && out_h*out_w*N*4608 > PARALLEL_PRODUCTS)
        for (int64_t n = 0; n < images; ++n) {
            for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
                const float *const weights = weight_packed;
                const float *const image = padded + n*padded_h*padded_w*16;
                float tile[TILE_ROWS*32];
                const int64_t image_n = n_0 + n;
                for (int64_t oh = out_h*row_block / row_blocks;
                     oh < (row_block + 1)*out_h / row_blocks; ++oh) {
                    const int64_t tiles = (out_w + TILE_ROWS - 1) / TILE_ROWS;
                    for (int64_t tile_index = 0; tile_index < tiles; ++tile_index) {
                        const int64_t ow_0 = out_w*tile_index / tiles;
                        const int pixels = (int)((tile_index + 1)*out_w / tiles - ow_0);
                        sum_runs_float(pixels, 32, 3, run, 48, image + oh*padded_w*32 + ow_0*32,
                            32, weights, nothing_ahead(), 0, tile);
                        for (int64_t i = 0; i < pixels; ++i) {
                            const int64_t ow = ow_0 + i;
                            #pragma omp simd
                            for (int64_t j = 0; j < 32; ++j) {
                                relu[(image_n + fx_floor_div(W - 1, 2)*image_n
                                    + fx_floor_div(H - 1, 2)*image_n
                                    + fx_floor_div(H - 1, 2)*fx_floor_div(W - 1, 2)*image_n + oh
                                    + fx_floor_div(W - 1, 2)*oh + ow)*32 + j] =
                                    fx_maximum_f32(tile[i*32 + j] + bias[j], 0.0f);
                            }
                        }
                    }
                }
            }
        }
    }
}
