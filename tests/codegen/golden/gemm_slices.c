/* matmul: f32[8,96] = matmul
 * program.py:1
 * m = 8, n = 96, k = 544; tiles of TILE_ROWS x 32.
 * The weight is packed, in panels of 32 columns.
 * K is cut into 2 slices, for the threads, of one block. */
static void k0_matmul(const float *restrict x, const float *restrict weight_packed,
                      float *restrict matmul, void *restrict workspace, int n_threads)
{
    const int64_t row_tiles = (8 + TILE_ROWS - 1) / TILE_ROWS;
    const int64_t panel_blocks = count_panel_blocks(3, row_tiles*2, n_threads);
    const int64_t tile_size = TILE_ROWS*32;
    const int64_t row_blocks = count_row_blocks(row_tiles, TILE_ROWS*1088, panel_blocks*2,
        n_threads);
    const int64_t panel_size = 544*32;
    float *const sums = workspace;
    #pragma omp parallel for collapse(3) schedule(static) num_threads(n_threads) if (n_threads > 1)
    for (int64_t slice = 0; slice < 2; ++slice) {
        for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
            for (int64_t panel_block = 0; panel_block < panel_blocks; ++panel_block) {
                const int64_t k_0 = slice*272;
                for (int64_t panel = panel_block*3 / panel_blocks;
                     panel < (panel_block*3 + 3) / panel_blocks; ++panel) {
                    const float *const b_panel = weight_packed + panel*panel_size + k_0*32;
                    for (int64_t tile_index = row_block*row_tiles / row_blocks;
                         tile_index < (row_block + 1)*row_tiles / row_blocks; ++tile_index) {
                        const int64_t row_0 = tile_index*8 / row_tiles;
                        const int rows = (int)((tile_index*8 + 8) / row_tiles - row_0);
                        const int64_t number = (row_tiles*slice + tile_index)*3 + panel;
                        float *const total = sums + number*tile_size;
                        multiply_tile_float(rows, 32, 272, x + row_0*544 + k_0, 544, b_panel,
                            total);
                    }
                }
            }
        }
    }
    /* All sums are there: the epilogue. */
    #pragma omp parallel for collapse(2) schedule(static) num_threads(n_threads) if (n_threads > 1)
    for (int64_t tile_index = 0; tile_index < row_tiles; ++tile_index) {
        for (int64_t panel = 0; panel < 3; ++panel) {
            const int64_t column_0 = panel*32;
            const int64_t row_0 = tile_index*8 / row_tiles;
            const int rows = (int)((tile_index*8 + 8) / row_tiles - row_0);
            const int64_t number = tile_index*3 + panel;
            float *const total = sums + number*tile_size;
            const int64_t step = row_tiles*tile_size*3;
            #pragma omp simd
            for (int64_t i = 0; i < rows*32; ++i) {
                total[i] += total[step + i];
            }
            for (int64_t i = 0; i < rows; ++i) {
                const int64_t row = row_0 + i;
                #pragma omp simd
                for (int64_t j = 0; j < 32; ++j) {
                    const int64_t column = column_0 + j;
                    matmul[row*96 + column] = total[i*32 + j];
                }
            }
        }
    }
}
