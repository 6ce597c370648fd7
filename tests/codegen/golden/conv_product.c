/* add: f32[N,32,8,8] = conv2d -> add
 * program.py:1
 * 1x1, 16 -> 32 channels: weight [k, c] @ x [c, h * w].
 * m = 32, n = 64, k = 16; tiles of TILE_ROWS x 32.
 * Threads pack the right operand, a panel of 32 columns at a time. */
static void k0_add(const float *restrict x, const float *restrict weight_packed,
                   const float *restrict y, float *restrict add, int64_t N,
                   void *restrict workspace, int n_threads)
{
    const int64_t row_tiles = (32 + TILE_ROWS - 1) / TILE_ROWS;
    const int64_t row_blocks = count_row_blocks(row_tiles, TILE_ROWS*64, N*2, n_threads);
    /* A panel of B for each thread, and its size including a gap. */
    const int64_t share = 16*32 + 32;
    float *const b_panels = workspace;
    #pragma omp parallel for collapse(3) schedule(static) num_threads(n_threads) \
            if (n_threads > 1 && N*34816 > PARALLEL_PRODUCTS)
    for (int64_t n = 0; n < N; ++n) {
        for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
            for (int64_t panel = 0; panel < 2; ++panel) {
                const int64_t column_0 = panel*32;
                float *const b_panel = b_panels + share*this_thread();
                pack_panel_float(16, 32, x + n*1024 + column_0, 64, 1, b_panel);
                for (int64_t tile_index = row_block*row_tiles / row_blocks;
                     tile_index < (row_block + 1)*row_tiles / row_blocks; ++tile_index) {
                    const int64_t row_0 = tile_index*32 / row_tiles;
                    const int rows = (int)((tile_index*32 + 32) / row_tiles - row_0);
                    float tile[TILE_ROWS*32];
                    multiply_tile_float(rows, 32, 16, weight_packed + row_0*16, 16, b_panel, tile);
                    const int64_t first_oh = column_0 / 8;
                    const int64_t first_ow = column_0 % 8;
                    for (int64_t i = 0; i < rows; ++i) {
                        const int64_t k = row_0 + i;
                        int64_t oh = first_oh, ow_0 = first_ow;
                        for (int64_t j_0 = 0, run; j_0 < 32; j_0 += run) {
                            run = fx_min(8 - ow_0, 32 - j_0);
                            #pragma omp simd
                            for (int64_t j = j_0; j < j_0 + run; ++j) {
                                const int64_t ow = ow_0 + j - j_0;
                                add[((n*32 + k)*8 + oh)*8 + ow] = tile[i*32 + j] + y[ow];
                            }
                            oh++, ow_0 = 0;
                        }
                    }
                    /* For the next panel. */
                    const int64_t ahead = 32 - column_0;
                    fetch_rows(rows, ahead, add + (n*32 + row_0)*64 + column_0 + 32, 64);
                }
            }
        }
    }
}
