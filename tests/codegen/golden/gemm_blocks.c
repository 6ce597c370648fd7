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
    const int64_t tile_size = TILE_ROWS*32;
    const int64_t row_blocks = count_row_blocks(row_tiles, TILE_ROWS*2052, panel_blocks, n_threads);
    /* A panel of B for each thread, and its size including a gap. */
    const int64_t share = 513*32 + 32;
    float *const b_panels = workspace;
    float *const sums = b_panels + n_threads*share;
    #pragma omp parallel for collapse(2) schedule(static) num_threads(n_threads) if (n_threads > 1)
    for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
        for (int64_t panel_block = 0; panel_block < panel_blocks; ++panel_block) {
            for (int64_t block = 0; block < 8; ++block) {
                const int64_t k_0 = block*4100 / 8;
                const int64_t depth = (block*4100 + 4100) / 8 - k_0;
                for (int64_t panel = panel_block*33 / panel_blocks;
                     panel < (panel_block*33 + 33) / panel_blocks; ++panel) {
                    const int64_t column_0 = panel*32;
                    float *const b_panel = b_panels + share*this_thread();
                    pack_panel_float(depth, 32, y + k_0*1056 + column_0, 1056, 1, b_panel);
                    for (int64_t tile_index = row_block*row_tiles / row_blocks;
                         tile_index < (row_block + 1)*row_tiles / row_blocks; ++tile_index) {
                        const int64_t row_0 = tile_index*64 / row_tiles;
                        const int rows = (int)((tile_index*64 + 64) / row_tiles - row_0);
                        const int64_t number = tile_index*33 + panel;
                        float *const total = sums + number*tile_size;
                        float tile[TILE_ROWS*32];
                        multiply_tile_float(rows, 32, depth, x + row_0*4100 + k_0, 4100, b_panel,
                            block == 0 ? total : tile);
                        const int64_t more = block == 0 ? 0 : rows*32;
                        #pragma omp simd
                        for (int64_t i = 0; i < more; ++i) {
                            total[i] += tile[i];
                        }
                        if (block == 7) {
                            for (int64_t i = 0; i < rows; ++i) {
                                const int64_t row = row_0 + i;
                                #pragma omp simd
                                for (int64_t j = 0; j < 32; ++j) {
                                    const int64_t column = column_0 + j;
                                    matmul[row*1056 + column] = total[i*32 + j];
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
