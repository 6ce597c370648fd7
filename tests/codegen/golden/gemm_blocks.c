/* matmul: f32[64,1056] = matmul
 * program.py:1
 * m = 64, n = 1056, k = 4100; tiles of TILE_ROWS x 32.
 * The right operand is packed first, in panels of 32 columns.
 * K is cut into blocks of 512, with sums for each thread. */
static void k0_matmul(const float *restrict x, const float *restrict y, float *restrict matmul,
                      void *restrict workspace, int n_threads)
{
    const int64_t row_tiles = (64 + TILE_ROWS - 1) / TILE_ROWS;
    const int64_t panel_blocks = fx_max(1,
        fx_min(33, 4*n_threads / (TILE_ROWS*row_tiles*2048 / (L2_BYTES / 2) + 1)));
    const int64_t tile_size = TILE_ROWS*32;
    const int64_t row_blocks = count_row_blocks(row_tiles,
        fx_max(L2_BYTES / 2 / 16, TILE_ROWS*2048), panel_blocks, n_threads);
    const int64_t panel_size = 4100*32;
    float *const b_panels = workspace;
    /* For each thread a block of a panel of B and sums, and their size including a gap. */
    const int64_t block_size = 512*32;
    const int64_t share = block_size + 185856 + 32;
    float *const thread_panels = b_panels + 4329600;
    if (row_blocks > 1) {
        #pragma omp parallel for schedule(static) num_threads(n_threads) if (n_threads > 1)
        for (int64_t panel = 0; panel < 33; ++panel) {
            const int64_t column_0 = panel*32;
            pack_panel_float(4100, 32, y + column_0, 1056, 1, b_panels + panel*panel_size);
        }
    }
    #pragma omp parallel for collapse(2) schedule(static) num_threads(n_threads) if (n_threads > 1)
    for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
        for (int64_t panel_block = 0; panel_block < panel_blocks; ++panel_block) {
            for (int64_t block = 0; block < 9; ++block) {
                const int64_t k_0 = block*512;
                const int64_t depth = fx_min(4100 - k_0, 512);
                for (int64_t panel = panel_block*33 / panel_blocks;
                     panel < (panel_block*33 + 33) / panel_blocks; ++panel) {
                    const int64_t column_0 = panel*32;
                    float *const b_panel = row_blocks > 1 ? b_panels + panel*panel_size + k_0*32
                        : thread_panels + share*this_thread();
                    if (row_blocks == 1) {
                        pack_panel_float(depth, 32, y + k_0*1056 + column_0, 1056, 1, b_panel);
                    }
                    float *const sums = thread_panels + share*this_thread() + block_size;
                    for (int64_t tile_index = row_block*row_tiles / row_blocks;
                         tile_index < (row_block + 1)*row_tiles / row_blocks; ++tile_index) {
                        const int64_t row_0 = tile_index*64 / row_tiles;
                        const int rows = (int)((tile_index*64 + 64) / row_tiles - row_0);
                        const int64_t number = (panel - panel_block*33 / panel_blocks)*16
                            + tile_index - row_block*row_tiles / row_blocks;
                        float *const total = sums + number*tile_size;
                        if (row_blocks > 1) prefetch_part(b_panel + panel_size, depth*128,
                            tile_index - row_block*row_tiles / row_blocks,
                            (row_tiles + row_blocks - 1) / row_blocks);
                        multiply_part_float(rows, 32, depth, x + row_0*4100 + k_0, 4100, b_panel,
                            block, 9, 512, total, total + 185856);
                        if (block == 8) {
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
