/* cast_bf16: bf16[N,H,W,16] = cast -> cast
 * program.py:1 */
static void k0_cast_bf16(const uint16_t *restrict x, uint16_t *restrict cast_bf16, int64_t H,
    int64_t N, int64_t W, int n_threads) {
    #pragma omp parallel for simd num_threads(n_threads) \
            if (parallel: H*N*W*16 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < H*N*W*16; ++i) {
        cast_bf16[i] = fx_bf16_from_f32(fx_f32_from_bf16(x[i]));
    }
}

/* conv2d: f32[N,H-2,W-2,32] = conv2d
 * program.py:2
 * 3x3, 16 -> 32 channels, NHWC -> NHWC; tiles of TILE_ROWS pixels of a row x 32 output channels.
 * Operands are rounded to bf16, in pairs of input channels; sums are float. */
static void k1_conv2d(const uint16_t *restrict cast_bf16, const uint32_t *restrict weight_packed,
                      float *restrict conv2d, int64_t H, int64_t N, int64_t W,
                      void *restrict workspace, int n_threads)
{
    const int64_t out_h = H - 2;
    const int64_t out_w = W - 2;
    const int64_t padded_h = out_h + 4;
    const int64_t padded_w = out_w + 4;
    /* The offset of each weight's pixel from the pixel of the first weight. */
    const int64_t tap[9] = {0, 16, 32, padded_w*16, padded_w*16 + 16, padded_w*16 + 32,
        padded_w*32, padded_w*32 + 16, padded_w*32 + 32};
    const int64_t most_images = fx_min(N, fx_max(n_threads*524288 / (padded_h*padded_w*32 + 1), 1));
    for (int64_t n_0 = 0; n_0 < N; n_0 += most_images) {
        const int64_t images = fx_min(N - n_0, most_images);
        const int64_t row_blocks = count_row_blocks(out_h, padded_w*32, images, n_threads);
        uint32_t *const padded = workspace;
        /* The images with zeros around them. */
        #pragma omp parallel for collapse(2) schedule(static) num_threads(n_threads) \
                if (n_threads > 1 && out_h*out_w*N*4608 > PARALLEL_PRODUCTS)
        for (int64_t n = 0; n < images; ++n) {
            for (int64_t i = 0; i < padded_h; ++i) {
                pad_row_bf16(i >= 1 && i < H + 1 ? W : 0, 16,
                    cast_bf16 + (n_0 + n)*H*W*16 + (i - 1)*W*16, 1, padded_w, 8,
                    padded + (n*padded_h + i)*padded_w*8);
            }
        }
        /* The convolution. */
        #pragma omp parallel for collapse(2) schedule(static) num_threads(n_threads) \
                if (n_threads > 1 && out_h*out_w*N*4608 > PARALLEL_PRODUCTS)
        for (int64_t n = 0; n < images; ++n) {
            for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
                const uint32_t *const weights = weight_packed;
                const uint32_t *const image = padded + n*padded_h*padded_w*8;
                float tile[TILE_ROWS*32];
                const int64_t image_n = n_0 + n;
                for (int64_t oh = out_h*row_block / row_blocks;
                     oh < (row_block + 1)*out_h / row_blocks; ++oh) {
                    const int64_t tiles = (out_w + TILE_ROWS - 1) / TILE_ROWS;
                    for (int64_t tile_index = 0; tile_index < tiles; ++tile_index) {
                        const int64_t ow_0 = out_w*tile_index / tiles;
                        const int pixels = (int)((tile_index + 1)*out_w / tiles - ow_0);
                        sum_tile_bf16(pixels, 32, 8, 9, image + oh*padded_w*8 + ow_0*8, 1, tap, 8,
                            weights, tile);
                        for (int64_t i = 0; i < pixels; ++i) {
                            const int64_t ow = ow_0 + i;
                            #pragma omp simd
                            for (int64_t j = 0; j < 32; ++j) {
                                conv2d[((image_n*H + oh - image_n*2)*W + image_n*4 + ow
                                    - image_n*H*2 - oh*2)*32 + j] = tile[i*32 + j];
                            }
                        }
                    }
                }
            }
        }
    }
}
