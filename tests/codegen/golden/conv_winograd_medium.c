/* conv2d: f32[1,16,16,32] = conv2d
 * program.py:1
 * 3x3, 32 -> 32 channels; Winograd's F(2x2, 3x3): 16 products for 4 pixels instead of 36.
 * As many rows of tiles at once as have points for half of the second-level cache; 1 x 32 output
 *   channels.
 * The points are rounded to bf16, in pairs of channels; sums are float. */
static void k0_conv2d(const float *restrict x, const uint32_t *restrict weight_packed,
                      float *restrict conv2d, void *restrict workspace, int n_threads)
{
    const int64_t tiles_down = 8, tiles_across = 8;
    /* Tiles in a group: of one row, or all tiles of so many short rows. */
    const int64_t across = tiles_across < 32 ? tiles_across : 32;
    const int64_t pitch = (across * 2 + 15) / 16 * 16;
    const int64_t group_rows = 64 / pitch;
    const int64_t groups_across = (tiles_across + across - 1) / across;
    const int64_t block_rows = winograd_block_rows(8, 8192);
    const int64_t point_step = block_rows * tiles_across * 16 + 16;
    uint32_t *const points = workspace;
    int32_t *const finite = (int32_t *)(points + 16 * point_step);
    static const float zeros[32] = {0};
    for (int64_t n = 0; n < 1; n++) {
        for (int64_t row_0 = 0; row_0 < tiles_down; row_0 += block_rows) {
            const int64_t rest = tiles_down - row_0;
            const int64_t rows = rest < block_rows ? rest : block_rows;
            const int64_t from = 0, to = 16;
            const float *const pixels = x + n * 8192;
            /* The points of each tile. */
            #pragma omp parallel for schedule(static) num_threads(n_threads) if (n_threads > 1)
            for (int64_t tile = 0; tile < rows * tiles_across; tile++) {
                const float *pixel[16];
                find_tile_pixels(4, (tile / tiles_across) * 2 + row_0 * 2 - 1,
                    tile % tiles_across * 2 - 1, from, to, 16, 32, pixels, zeros, pixel);
                finite[tile] = winograd_input_2_bf16(32, pixel, points + tile * 16, point_step);
            }
            /* Times the weights, and back to pixels. */
            #pragma omp parallel for collapse(2) schedule(static) num_threads(n_threads) \
                    if (n_threads > 1)
            for (int64_t panel = 0; panel < 1; panel++) {
                for (int64_t group = 0; group < (rows + group_rows - 1) / group_rows
                    * groups_across; group++) {
                    const int columns = 32;
                    const uint32_t *const weights = weight_packed + panel * 8192;
                    const int64_t row_1 = group / groups_across * group_rows;
                    const int64_t tile_1 = group % groups_across * across;
                    const int64_t down = rows - row_1 < group_rows ? rows - row_1 : group_rows;
                    const int64_t width = tiles_across - tile_1 < across ? tiles_across - tile_1
                        : across;
                    const int64_t first = row_1 * tiles_across + tile_1;
                    const int count = (int)(down * width);
                    float products[16][PAIR_ROWS * 32], square[128 * 32];
                    const int parts = (count + PAIR_ROWS - 1) / PAIR_ROWS;
                    take_tiles();
                    for (int part = 0; part < parts; part++) {
                        const int start = part * count / parts;
                        const int tiles = (part + 1) * count / parts - start;
                        for (int p = 0; p < 16; p++) {
                            multiply_tile_bf16(tiles, columns, 16,
                                points + p * point_step + (first + start) * 16, 16,
                                weights + p * 512, products[p]);
                        }
                        for (int i = 0; i < tiles; i++) {
                            const int64_t row = (start + i) / width, tile = (start + i) % width;
                            winograd_output_2(columns, &products[0][i * 32], PAIR_ROWS * 32,
                                square + (row * pitch + tile) * 64, pitch * 32);
                            if (!finite[first + start + i]) {
                                const float *pixel[16];
                                find_tile_pixels(4, (row_1 + row) * 2 + row_0 * 2 - 1,
                                    (tile_1 + tile) * 2 - 1, from, to, 16, 32, pixels, zeros,
                                    pixel);
                                winograd_direct_2_bf16(columns, 32, pixel, weights,
                                    square + (row * pitch + tile) * 64, pitch * 32);
                            }
                        }
                    }
                    release_tiles();
                    const int64_t ow_0 = tile_1 * 2, oh_0 = (row_0 + row_1) * 2;
                    const int pixels_here = 16 - ow_0 < width * 2 ? 16 - ow_0 : width * 2;
                    for (int64_t i_0 = 0; i_0 < down * 2 && oh_0 + i_0 < 16; i_0++) {
                        const int64_t oh = oh_0 + i_0;
                        for (int64_t i = 0; i < pixels_here; i++) {
                            const int64_t ow = ow_0 + i;
                            #pragma omp simd
                            for (int64_t j = 0; j < columns; j++) {
                                const int64_t k = j;
                                conv2d[((n*16 + oh)*16 + ow)*32 + k] =
                                    square[(i_0 * pitch + i) * 32 + j];
                            }
                        }
                    }
                }
            }
        }
    }
}
