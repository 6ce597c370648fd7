/* add: f32[4096,32] = int_linear -> dequantize -> add
 * program.py:1
 * m = 4096, n = 32, k = 8192; tiles of QUAD_ROWS x 32.
 * The weight is packed, in panels of 32 columns of quads.
 * K is cut into blocks of 1984, with sums in the workspace. */
static void k0_add(const uint8_t *restrict x, const int32_t *restrict weight_packed,
                   const float *restrict y, float *restrict add, void *restrict workspace,
                   int n_threads)
{
    const int64_t row_tiles = (4096 + QUAD_ROWS - 1) / QUAD_ROWS;
    const int64_t panel_blocks = n_threads == 1 ? 1 : 1 < 4 * n_threads ? 1 : 4 * n_threads;
    const int64_t row_blocks = count_row_blocks(row_tiles, QUAD_ROWS * 1984, 1, n_threads);
    int32_t *const sums = workspace;
    #pragma omp parallel for collapse(2) schedule(static) num_threads(n_threads) if (n_threads > 1)
    for (int64_t row_block = 0; row_block < row_blocks; row_block++) {
        for (int64_t panel_block = 0; panel_block < panel_blocks; panel_block++) {
            take_tiles();
            for (int64_t k_0 = 0; k_0 < 8192; k_0 += 1984) {
                const int64_t depth = 8192 - k_0 < 1984 ? 8192 - k_0 : 1984;
                for (int64_t panel = panel_block * 1 / panel_blocks;
                     panel < (panel_block + 1) * 1 / panel_blocks; panel++) {
                    const int64_t column_0 = panel * 32;
                    const int columns = 32;
                    const int32_t *const b_panel = weight_packed + panel * 65568;
                    const int32_t *const quads = b_panel + k_0 * 8 + 32;
                    /* What tiles of rows fetch meanwhile: the panel behind this one. */
                    const int32_t *const next = quads + (row_tiles > 1 ? 65568 : 0);
                    for (int64_t tile_index = row_block * row_tiles / row_blocks;
                         tile_index < (row_block + 1) * row_tiles / row_blocks; tile_index++) {
                        const int64_t row_0 = first_tile_row(tile_index, row_tiles, 4096,
                            QUAD_ROWS);
                        const int rows = first_tile_row(tile_index + 1, row_tiles, 4096,
                            QUAD_ROWS) - row_0;
                        int32_t *const tile = sums + (panel * row_tiles + tile_index) * QUAD_ROWS
                            * 32;
                        fetch_tile(rows, columns, add + row_0*32 + column_0, 32);
                        fetch_tile(rows, columns, y + row_0*32 + column_0, 32);
                        add_block_u8(rows, columns, depth, x + row_0 * 8192 + k_0, 8192, quads,
                            k_0 == 0 ? b_panel : 0, next + tile_index % 2 * (depth / 4 * 16), tile);
                        if (k_0 + 1984 < 8192)
                            continue;
                        for (int j = 0; j < columns; j += int_lanes) {
                            const int count = columns - j;
                            const int64_t column = column_0 + j;
                            for (int64_t i = 0; i < rows; i++) {
                                const int64_t row = row_0 + i;
                                const int_vec sum = *(const int_vec *)&tile[i * 32 + j];
                                store_f32(&add[row*32 + column],
                                    product_f32(__builtin_convertvector(sum, float_vec),
                                    (0.5f - (float_vec){0}))
                                        + load_f32(&y[row*32 + column], count), count);
                            }
                        }
                    }
                }
            }
            release_tiles();
        }
    }
}
