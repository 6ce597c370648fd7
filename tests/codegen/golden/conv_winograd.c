/* relu: f32[1,32,16,16] = conv2d -> relu
 * program.py:1
 * 3x3, 32 -> 32 channels; Winograd's F(4x4, 3x3): 36 products for 16 pixels instead of 144.
 * As many rows of tiles at once as have points for half of the second-level cache; 1 x 32 output
 *   channels. */
static void k0_relu(const float *restrict x, const float *restrict weight_packed,
                    const float *restrict bias, float *restrict relu, void *restrict workspace,
                    int n_threads)
{
    const int64_t tiles_down = 4, tiles_across = 4;
    /* Tiles in a group: of one row, or all tiles of so many short rows. */
    const int64_t across = tiles_across < 16 ? tiles_across : 16;
    const int64_t pitch = (across * 4 + 15) / 16 * 16;
    const int64_t group_rows = 64 / pitch;
    const int64_t groups_across = (tiles_across + across - 1) / across;
    const int64_t block_rows = winograd_block_rows(4, 18432);
    const int64_t point_step = block_rows * tiles_across * 32 + 16;
    float *const pixels = workspace, *const points = pixels + (block_rows * 4 + 2) * 16 * 32;
    int32_t *const finite = (int32_t *)(points + 36 * point_step);
    static const float zeros[32] = {0};
    for (int64_t n = 0; n < 1; n++) {
        for (int64_t row_0 = 0; row_0 < tiles_down; row_0 += block_rows) {
            const int64_t rest = tiles_down - row_0;
            const int64_t rows = rest < block_rows ? rest : block_rows;
            /* The image's rows under these tiles, channels last. */
            int64_t from = row_0 * 4 - 1, to = from + rows * 4 + 2;
            from = from > 0 ? from : 0;
            to = to < 16 ? to : 16;
            #pragma omp parallel for schedule(static) num_threads(n_threads) if (n_threads > 1)
            for (int64_t chunk = 0; chunk < ((to - from) * 16 + 63) / 64; chunk++) {
                const int64_t left = (to - from) * 16 - chunk * 64;
                const int count = left < 64 ? (int)left : 64;
                float *const turned = pixels + chunk * 64 * 32;
                copy_transposed_float(32, count, x + n * 8192 + from * 16 + chunk * 64, 256,
                    turned, 32);
            }
            /* The points of each tile. */
            #pragma omp parallel for schedule(static) num_threads(n_threads) if (n_threads > 1)
            for (int64_t tile = 0; tile < rows * tiles_across; tile++) {
                const float *pixel[36];
                find_tile_pixels(6, (tile / tiles_across) * 4 + row_0 * 4 - 1,
                    tile % tiles_across * 4 - 1, from, to, 16, 32, pixels, zeros, pixel);
                finite[tile] = winograd_input_4(32, pixel, points + tile * 32, point_step);
            }
            /* Times the weights, and back to pixels. */
            #pragma omp parallel for collapse(2) schedule(static) num_threads(n_threads) \
                    if (n_threads > 1)
            for (int64_t panel = 0; panel < 1; panel++) {
                for (int64_t group = 0; group < (rows + group_rows - 1) / group_rows
                    * groups_across; group++) {
                    const int columns = 32;
                    const float *const weights = weight_packed + panel * 36864;
                    const int64_t row_1 = group / groups_across * group_rows;
                    const int64_t tile_1 = group % groups_across * across;
                    const int64_t down = rows - row_1 < group_rows ? rows - row_1 : group_rows;
                    const int64_t width = tiles_across - tile_1 < across ? tiles_across - tile_1
                        : across;
                    const int64_t first = row_1 * tiles_across + tile_1;
                    const int count = (int)(down * width);
                    float products[36][TILE_ROWS * 32], square[256 * 32];
                    float turned[32 * 64];
                    const int parts = (count + TILE_ROWS - 1) / TILE_ROWS;
                    for (int part = 0; part < parts; part++) {
                        const int start = part * count / parts;
                        const int tiles = (part + 1) * count / parts - start;
                        for (int p = 0; p < 36; p++) {
                            multiply_tile_float(tiles, columns, 32,
                                points + p * point_step + (first + start) * 32, 32,
                                weights + p * 1024, products[p]);
                        }
                        for (int i = 0; i < tiles; i++) {
                            const int64_t row = (start + i) / width, tile = (start + i) % width;
                            winograd_output_4(columns, &products[0][i * 32], TILE_ROWS * 32,
                                square + (row * pitch + tile) * 128, pitch * 32);
                            if (!finite[first + start + i]) {
                                const float *pixel[36];
                                find_tile_pixels(6, (row_1 + row) * 4 + row_0 * 4 - 1,
                                    (tile_1 + tile) * 4 - 1, from, to, 16, 32, pixels, zeros,
                                    pixel);
                                winograd_direct_4(columns, 32, pixel, weights,
                                    square + (row * pitch + tile) * 128, pitch * 32);
                            }
                        }
                    }
                    const int64_t ow_0 = tile_1 * 4, oh_0 = (row_0 + row_1) * 4;
                    const int pixels_here = 16 - ow_0 < width * 4 ? 16 - ow_0 : width * 4;
                    for (int64_t i_0 = 0; i_0 < down * 4 && oh_0 + i_0 < 16; i_0++) {
                        const int64_t oh = oh_0 + i_0;
                        copy_transposed_float(pitch, 32, square + i_0 * pitch * 32, 32, turned, 64);
                        for (int64_t j = 0; j < columns; j++) {
                            const int64_t k = panel * 32 + j;
                            #pragma omp simd
                            for (int64_t i = 0; i < pixels_here; i++) {
                                const int64_t ow = ow_0 + i;
                                relu[(k*16 + oh)*16 + ow] =
                                    fx_maximum_f32(turned[j * 64 + i] + bias[k], 0.0f);
                            }
                        }
                    }
                }
            }
        }
    }
}
