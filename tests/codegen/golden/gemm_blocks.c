/* matmul: f32[64,1056] = matmul
 * program.py:1
 * m = 64, n = 1056, k = 4100; tiles of TILE_ROWS x 32.
 * Threads pack the right operand, a panel of 32 columns at a time.
 * K is cut into 8 blocks: A and B are larger than the second-level cache. */
static void k0_matmul(const float *restrict x, const float *restrict y, float *restrict matmul,
                      void *restrict workspace, int n_threads)
{
    const int64_t row_tiles = (64 + TILE_ROWS - 1) / TILE_ROWS;
    const int64_t panel_blocks = count_panel_blocks(33, row_tiles, n_threads);
    const int64_t row_blocks = count_row_blocks(row_tiles, TILE_ROWS * 2052, panel_blocks,
        n_threads);
    float *const b_panels = workspace;
    float *const sums = (void *)((char *)workspace + n_threads * 65792);
    #pragma omp parallel num_threads(n_threads) if (n_threads > 1)
    {
        #pragma omp for collapse(2) schedule(static)
        for (int64_t row_block = 0; row_block < row_blocks; row_block++) {
            for (int64_t panel_block = 0; panel_block < panel_blocks; panel_block++) {
                const int64_t first_block = 0;
                for (int64_t block = first_block;
                     block < first_block + 8; block++) {
                    const int64_t k_0 = block * 4100 / 8;
                    const int64_t depth = (block + 1) * 4100 / 8 - k_0;
                    for (int64_t panel = panel_block * 33 / panel_blocks;
                         panel < (panel_block + 1) * 33 / panel_blocks; panel++) {
                        const int64_t column_0 = panel * 32;
                        const int columns = 32;
                        float *const b_panel = b_panels + this_thread() * 16448;
                        pack_panel_float(depth, columns, y + column_0 + k_0 * 1056, 1056, 1,
                            b_panel);
                        for (int64_t tile_index = row_block * row_tiles / row_blocks;
                             tile_index < (row_block + 1) * row_tiles / row_blocks; tile_index++) {
                            const int64_t row_0 = tile_index * 64 / row_tiles;
                            const int rows = (tile_index + 1) * 64 / row_tiles - row_0;
                            float *const total = sums + (tile_index * 33 + panel) * TILE_ROWS * 32;
                            float tile[TILE_ROWS * 32];
                            multiply_tile_float(rows, columns, depth, x + row_0 * 4100 + k_0, 4100,
                                b_panel, block == first_block ? total : tile);
                            #pragma omp simd
                            for (int64_t i = 0; i < (block == first_block ? 0 : rows * 32); i++)
                                total[i] += tile[i];
                        }
                    }
                }
            }
        }
        /* All sums are there: the epilogue. */
        #pragma omp for collapse(2) schedule(static)
        for (int64_t tile_index = 0; tile_index < row_tiles; tile_index++) {
            for (int64_t panel = 0; panel < 33; panel++) {
                const int64_t column_0 = panel * 32;
                const int columns = 32;
                const int64_t row_0 = tile_index * 64 / row_tiles;
                const int rows = (tile_index + 1) * 64 / row_tiles - row_0;
                float *const total = sums + (tile_index * 33 + panel) * TILE_ROWS * 32;
                for (int64_t i = 0; i < rows; i++) {
                    const int64_t row = row_0 + i;
                    #pragma omp simd
                    for (int64_t j = 0; j < columns; j++) {
                        const int64_t column = column_0 + j;
                        matmul[row*1056 + column] = total[i * 32 + j];
                    }
                }
            }
        }
    }
}
