/* conv2d: f32[1,16,16,32] = conv2d
 * program.py:1
 * 3x3, 32 -> 32 channels; Winograd's F(2x2, 3x3): 16 products for 4 pixels instead of 36.
 * Rows of tiles are computed together as long as their points fit in half of the second-level
 *   cache; 1 x 32 output channels.
 * The points are rounded to bf16, in pairs of channels; sums are float. */
static void k0_conv2d(const float *restrict x, const uint32_t *restrict weight_packed,
                      float *restrict conv2d, void *restrict workspace, int n_threads)
{
    const int64_t block_rows = winograd_block_rows(8, 8192, 32768);
    const int64_t point_step = block_rows*128 + 16;
    uint32_t *const points = workspace;
    int32_t *const finite = (int32_t *)(points + point_step*16);
    static const float zeros[32] = {0};
    for (int64_t row_0 = 0; row_0 < 8; row_0 += block_rows) {
        const int64_t rows = fx_min(8 - row_0, block_rows);
        const float *const pixels = x;
        /* The points of each tile. */
        #pragma omp parallel for schedule(static) num_threads(n_threads) if (n_threads > 1)
        for (int64_t tile = 0; tile < rows*8; ++tile) {
            const float *pixel[16];
            find_tile_pixels(4, (tile / 8 + row_0)*2 - 1, (tile % 8)*2 - 1, 0, 16, 16, 32, pixels,
                zeros, pixel);
            finite[tile] = winograd_input_2_bf16(32, pixel, points + tile*16, point_step);
        }
        /* Multiply by the weights, and transform back to pixels. */
        #pragma omp parallel for schedule(static) num_threads(n_threads) if (n_threads > 1)
        for (int64_t group = 0; group < (rows + 3) / 4; ++group) {
            const uint32_t *const weights = weight_packed;
            const int64_t row_1 = group*4;
            const int64_t down = fx_min(rows - row_1, 4);
            const int64_t first = row_1*8;
            const int count = (int)(down*8);
            float products[16][1040], square[4096];
            const int64_t parts = (count + PAIR_ROWS - 1) / PAIR_ROWS;
            take_tiles();
            for (int64_t p = 0; p < 16; ++p) {
                for (int64_t part = 0; part < parts; ++part) {
                    const int64_t start = count*part / parts;
                    const int tiles = (int)((part + 1)*count / parts - start);
                    multiply_tile_bf16(tiles, 32, 16, points + (first + start)*16 + p*point_step,
                        16, weights + p*512, &products[p][start*32]);
                }
            }
            for (int64_t i = 0; i < count; ++i) {
                const int64_t row = i / 8;
                const int64_t tile = i % 8;
                winograd_output_2(32, &products[0][i*32], 1040, square + row*1024 + tile*64, 512);
                if (!finite[first + i]) {
                    const float *pixel[16];
                    find_tile_pixels(4, (row_1 + row + row_0)*2 - 1, tile*2 - 1, 0, 16, 16, 32,
                        pixels, zeros, pixel);
                    winograd_direct_2_bf16(32, 32, pixel, weights, square + row*1024 + tile*64,
                        512);
                }
            }
            release_tiles();
            const int64_t rows_here = fx_min(down*2, 16 - row_0*2 - row_1*2);
            for (int64_t i_0 = 0; i_0 < rows_here; ++i_0) {
                const int64_t oh = (row_0 + row_1)*2 + i_0;
                for (int64_t i = 0; i < 16; ++i) {
                    #pragma omp simd
                    for (int64_t j = 0; j < 32; ++j) {
                        conv2d[(oh*16 + i)*32 + j] = square[(i_0*16 + i)*32 + j];
                    }
                }
            }
        }
    }
}
