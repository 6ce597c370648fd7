/* relu: f32[1,32,16,16] = conv2d -> relu
 * program.py:1
 * 3x3, 32 -> 32 channels; Winograd's F(4x4, 3x3): 36 products for 16 pixels instead of 144.
 * Rows of tiles are computed together as long as their points fit in half of the second-level
 *   cache; 1 x 32 output channels. */
static void k0_relu(const float *restrict x, const float *restrict weight_packed,
                    const float *restrict bias, float *restrict relu, void *restrict workspace,
                    int n_threads)
{
    const int64_t block_rows = winograd_block_rows(4, 18432, 147456);
    const int64_t point_step = block_rows*128 + 16;
    float *const pixels = workspace;
    float *const points = pixels + block_rows*2048 + 1024;
    int32_t *const finite = (int32_t *)(points + point_step*36);
    static const float zeros[32] = {0};
    for (int64_t row_0 = 0; row_0 < 4; row_0 += block_rows) {
        const int64_t rows = fx_min(4 - row_0, block_rows);
        /* The image's rows under these tiles, channels last. */
        const int64_t from = fx_max(row_0*4 - 1, 0);
        const int64_t to = fx_min((row_0 + rows)*4 + 1, 16);
        const int64_t held = to*16 - from*16;
        #pragma omp parallel for schedule(static) num_threads(n_threads) if (n_threads > 1)
        for (int64_t chunk = 0; chunk < (held + 63) / 64; ++chunk) {
            const int count = (int)fx_min(held - chunk*64, 64);
            float *const turned = pixels + chunk*2048;
            copy_transposed_float(32, count, x + from*16 + chunk*64, 256, turned, 32);
        }
        /* The points of each tile. */
        #pragma omp parallel for schedule(static) num_threads(n_threads) if (n_threads > 1)
        for (int64_t tile = 0; tile < rows*4; ++tile) {
            const float *pixel[36];
            find_tile_pixels(6, (tile / 4 + row_0)*4 - 1, (tile % 4)*4 - 1, from, to, 16, 32,
                pixels, zeros, pixel);
            finite[tile] = winograd_input_4(32, pixel, points + tile*32, point_step);
        }
        /* Multiply by the weights, and transform back to pixels. */
        #pragma omp parallel for schedule(static) num_threads(n_threads) if (n_threads > 1)
        for (int64_t group = 0; group < (rows + 3) / 4; ++group) {
            const float *const weights = weight_packed;
            const int64_t row_1 = group*4;
            const int64_t down = rows - row_1;
            const int64_t first = row_1*4;
            const int count = (int)(down*4);
            float products[36][528], square[8192];
            float turned[2048];
            const int64_t parts = (count + TILE_ROWS - 1) / TILE_ROWS;
            for (int64_t p = 0; p < 36; ++p) {
                for (int64_t part = 0; part < parts; ++part) {
                    const int64_t start = count*part / parts;
                    const int tiles = (int)((part + 1)*count / parts - start);
                    multiply_tile_float(tiles, 32, 32, points + (first + start)*32 + p*point_step,
                        32, weights + p*1024, &products[p][start*32]);
                }
            }
            for (int64_t i = 0; i < count; ++i) {
                const int64_t row = i / 4;
                const int64_t tile = i % 4;
                winograd_output_4(32, &products[0][i*32], 528, square + row*2048 + tile*128, 512);
                if (!finite[first + i]) {
                    const float *pixel[36];
                    find_tile_pixels(6, (row_1 + row + row_0)*4 - 1, tile*4 - 1, from, to, 16, 32,
                        pixels, zeros, pixel);
                    winograd_direct_4(32, 32, pixel, weights, square + row*2048 + tile*128, 512);
                }
            }
            const int64_t rows_here = fx_min(down*4, 16 - row_0*4 - row_1*4);
            for (int64_t i_0 = 0; i_0 < rows_here; ++i_0) {
                const int64_t oh = (row_0 + row_1)*4 + i_0;
                copy_transposed_float(16, 32, square + i_0*512, 32, turned, 64);
                for (int64_t j = 0; j < 32; ++j) {
                    #pragma omp simd
                    for (int64_t i = 0; i < 16; ++i) {
                        relu[(j*16 + oh)*16 + i] = fx_maximum_f32(turned[j*64 + i] + bias[j], 0.0f);
                    }
                }
            }
        }
    }
}
