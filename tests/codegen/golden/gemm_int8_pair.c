/* dequantize: f32[B,T,U] = int_matmul -> dequantize
 * program.py:1
 * m = T, n = U, k = 20; tiles of QUAD_ROWS x 32.
 * The right operand is packed, in panels of 32 columns of quads. */
static void k0_dequantize(const uint8_t *restrict x, const uint8_t *restrict y,
                          float *restrict dequantize, int64_t B, int64_t T, int64_t U,
                          void *restrict workspace, int n_threads)
{
    const int64_t row_tiles = (T + QUAD_ROWS - 1) / QUAD_ROWS;
    const int64_t panels = (U + 31) / 32;
    const int64_t row_blocks = count_row_blocks(row_tiles, QUAD_ROWS*80, panels*B, n_threads);
    const int64_t panel_size = (5 + 1)*32;
    int32_t *const packed = workspace;
    int32_t *const row_sums = packed + ((U + 31) / 32)*panel_size*B;
    #pragma omp parallel for collapse(2) schedule(static) num_threads(n_threads) \
            if (n_threads > 1 && (T + 2)*B*U*5 > PARALLEL_PRODUCTS)
    for (int64_t batch = 0; batch < B; ++batch) {
        for (int64_t panel = 0; panel < panels; ++panel) {
            const int64_t column_0 = panel*32;
            const int columns = (int)fx_min(U - column_0, 32);
            pack_panel_u8(20, columns, y + batch*U*20 + column_0, U, 1, 7, -28,
                packed + (batch*panels + panel)*panel_size);
        }
    }
    #pragma omp parallel for collapse(2) schedule(static) num_threads(n_threads) \
            if (n_threads > 1 && (T + 2)*B*U*5 > PARALLEL_PRODUCTS)
    for (int64_t batch = 0; batch < B; ++batch) {
        for (int64_t row = 0; row < T; ++row) {
            row_sums[batch*T + row] = sum_row_u8(20, x + batch*T*20 + row*20) * -28;
        }
    }
    #pragma omp parallel for collapse(3) schedule(static) num_threads(n_threads) \
            if (n_threads > 1 && (T + 2)*B*U*5 > PARALLEL_PRODUCTS)
    for (int64_t batch = 0; batch < B; ++batch) {
        for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
            for (int64_t panel = 0; panel < panels; ++panel) {
                take_tiles();
                const int64_t column_0 = panel*32;
                const int columns = (int)fx_min(U - column_0, 32);
                const int32_t *const b_panel = packed + (batch*panels + panel)*panel_size;
                const int32_t *const quads = b_panel + 32;
                /* Tiles of rows fetch the next panel meanwhile. */
                const int32_t *const next = quads + (row_tiles > 1 ? panel_size : 0);
                for (int64_t tile_index = row_block*row_tiles / row_blocks;
                     tile_index < (row_block + 1)*row_tiles / row_blocks; ++tile_index) {
                    const int64_t row_0 = first_tile_row(tile_index, row_tiles, T, QUAD_ROWS);
                    const int rows = (int)(first_tile_row(tile_index + 1, row_tiles, T,
                        QUAD_ROWS) - row_0);
                    int32_t tile[QUAD_ROWS*32];
                    add_block_u8(rows, columns, 20, x + batch*T*20 + row_0*20, 20, quads, b_panel,
                        next + (tile_index % 2)*80, tile);
                    for (int64_t j = 0; j < columns; j += int_lanes) {
                        const int count = (int)(columns - j);
                        const int64_t column = column_0 + j;
                        for (int64_t i = 0; i < rows; ++i) {
                            const int64_t row = row_0 + i;
                            const int32_t row_sum = row_sums[batch*T + row];
                            const int_vec sum = *(const int_vec *)&tile[i*32 + j];
                            store_f32(&dequantize[(batch*T + row)*U + column],
                                product_f32(CONVERT((sum - row_sum), float_vec),
                                    (0.5f - (float_vec){0})), count);
                        }
                    }
                }
                release_tiles();
            }
        }
    }
}
