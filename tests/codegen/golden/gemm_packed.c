/* mul: f32[B,50] = linear -> relu -> mul
 * program.py:1
 * m = B, n = 50, k = 40; tiles of TILE_ROWS x 32.
 * The weight is packed, in panels of 32 columns. */
static void k0_mul(const float *restrict x, const float *restrict weight_packed,
                   const float *restrict bias, float *restrict mul, int64_t B, int n_threads)
{
    const int64_t row_tiles = (B + TILE_ROWS - 1) / TILE_ROWS;
    const int64_t row_blocks = count_row_blocks(row_tiles, TILE_ROWS*160, 2, n_threads);
    const int64_t panel_size = 40*32;
    #pragma omp parallel for collapse(2) schedule(static) num_threads(n_threads) \
            if (n_threads > 1 && B*2000 + 4000 > PARALLEL_PRODUCTS)
    for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
        for (int64_t panel = 0; panel < 2; ++panel) {
            const int64_t column_0 = panel*32;
            const int columns = (int)fx_min(50 - column_0, 32);
            const float *const b_panel = weight_packed + panel*panel_size;
            for (int64_t tile_index = row_block*row_tiles / row_blocks;
                 tile_index < (row_block + 1)*row_tiles / row_blocks; ++tile_index) {
                const int64_t row_0 = tile_index*B / row_tiles;
                const int rows = (int)((tile_index + 1)*B / row_tiles - row_0);
                float tile[TILE_ROWS*32];
                const struct ahead ahead = part_ahead(b_panel + 1280, 40, 128,
                    tile_index - row_block*row_tiles / row_blocks,
                    (row_tiles + row_blocks - 1) / row_blocks);
                multiply_next_float(rows, columns, 40, x + row_0*40, 40, b_panel, ahead, 0, tile);
                for (int64_t i = 0; i < rows; ++i) {
                    const int64_t row = row_0 + i;
                    #pragma omp simd
                    for (int64_t j = 0; j < columns; ++j) {
                        const int64_t column = column_0 + j;
                        mul[row*50 + column] = fx_maximum_f32(tile[i*32 + j] + bias[column],
                            0.0f) * 2.0f;
                    }
                }
            }
        }
    }
}
