/* matmul: f32[8,96] = matmul
 * program.py:1
 * m = 8, n = 96, k = 544; tiles of TILE_ROWS x 32.
 * The weight is packed, in panels of 32 columns.
 * K is cut into 2 slices, for the threads, of one block. */
static void k0_matmul(const float *restrict x, const float *restrict weight_packed,
                      float *restrict matmul, void *restrict workspace, int n_threads)
{
    const int64_t row_tiles = (8 + TILE_ROWS - 1) / TILE_ROWS;
    const int64_t panel_blocks = count_panel_blocks(3, row_tiles * 2, n_threads);
    const int64_t row_blocks = count_row_blocks(row_tiles, TILE_ROWS * 1088, panel_blocks * 2,
        n_threads);
    float *const sums = workspace;
    #pragma omp parallel num_threads(n_threads) if (n_threads > 1)
    {
        #pragma omp for collapse(3) schedule(static)
        for (int64_t slice = 0; slice < 2; slice++) {
            for (int64_t row_block = 0; row_block < row_blocks; row_block++) {
                for (int64_t panel_block = 0; panel_block < panel_blocks; panel_block++) {
                    const int64_t first_block = slice;
                    for (int64_t block = first_block;
                         block < first_block + 1; block++) {
                        const int64_t k_0 = block * 544 / 2;
                        const int64_t depth = (block + 1) * 544 / 2 - k_0;
                        for (int64_t panel = panel_block * 3 / panel_blocks;
                             panel < (panel_block + 1) * 3 / panel_blocks; panel++) {
                            const int64_t column_0 = panel * 32;
                            const int columns = 32;
                            const float *const b_panel = weight_packed + panel * 17408 + k_0 * 32;
                            for (int64_t tile_index = row_block * row_tiles / row_blocks;
                                 tile_index < (row_block + 1) * row_tiles / row_blocks;
                                     tile_index++) {
                                const int64_t row_0 = tile_index * 8 / row_tiles;
                                const int rows = (tile_index + 1) * 8 / row_tiles - row_0;
                                float *const total = sums
                                    + ((slice * row_tiles + tile_index) * 3 + panel) * TILE_ROWS
                                    * 32;
                                multiply_tile_float(rows, columns, depth, x + row_0 * 544 + k_0,
                                    544, b_panel, total);
                            }
                        }
                    }
                }
            }
        }
        /* All sums are there: the epilogue. */
        #pragma omp for collapse(2) schedule(static)
        for (int64_t tile_index = 0; tile_index < row_tiles; tile_index++) {
            for (int64_t panel = 0; panel < 3; panel++) {
                const int64_t column_0 = panel * 32;
                const int columns = 32;
                const int64_t row_0 = tile_index * 8 / row_tiles;
                const int rows = (tile_index + 1) * 8 / row_tiles - row_0;
                float *const total = sums + (tile_index * 3 + panel) * TILE_ROWS * 32;
                for (int64_t slice = 0; slice < 1; slice++) {
                    #pragma omp simd
                    for (int64_t i = 0; i < rows * 32; i++)
                        total[i] += total[(slice + 1) * row_tiles * TILE_ROWS * 96 + i];
                }
                for (int64_t i = 0; i < rows; i++) {
                    const int64_t row = row_0 + i;
                    #pragma omp simd
                    for (int64_t j = 0; j < columns; j++) {
                        const int64_t column = column_0 + j;
                        matmul[row*96 + column] = total[i * 32 + j];
                    }
                }
            }
        }
    }
}
