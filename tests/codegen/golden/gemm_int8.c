/* requantize: u8[B,32] = int_linear -> requantize
 * program.py:1
 * program.py:2
 * m = B, n = 32, k = 300; tiles of QUAD_ROWS x 32.
 * The weight is packed, in panels of 32 columns of quads. */
static void k0_requantize(const uint8_t *restrict x, const int32_t *restrict weight_packed,
                          const int32_t *restrict bias, const float *restrict scale,
                          uint8_t *restrict requantize, int64_t B, int n_threads)
{
    const int64_t row_tiles = (B + QUAD_ROWS - 1) / QUAD_ROWS;
    /* 4 tiles of rows at a time pass over the small weight. */
    const int64_t row_blocks = (row_tiles + 3) / 4;
    const int64_t panel_size = (75 + 1)*32;
    #pragma omp parallel for schedule(static) num_threads(n_threads) \
            if (n_threads > 1 && B*2400 + 4800 > PARALLEL_PRODUCTS)
    for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
        take_tiles();
        const int32_t *const b_panel = weight_packed;
        const int32_t *const quads = b_panel + 32;
        /* Tiles of rows fetch the next panel meanwhile. */
        const int32_t *const next = quads + (row_tiles > 1 ? panel_size : 0);
        for (int64_t tile_index = row_block*row_tiles / row_blocks;
             tile_index < (row_block + 1)*row_tiles / row_blocks; ++tile_index) {
            const int64_t row_0 = first_tile_row(tile_index, row_tiles, B, QUAD_ROWS);
            const int rows = (int)(first_tile_row(tile_index + 1, row_tiles, B, QUAD_ROWS) - row_0);
            int32_t tile[QUAD_ROWS*32];
            add_block_u8(rows, 32, 300, x + row_0*300, 300, quads, b_panel,
                next + (tile_index % 2)*1200, tile);
            for (int64_t j = 0; j < 32; j += int_lanes) {
                const int count = (int)(32 - j);
                const int_vec bias_at_j = load_i32(&bias[j], count);
                const float_vec scale_at_j = load_f32(&scale[j], count);
                for (int64_t i = 0; i < rows; ++i) {
                    const int64_t row = row_0 + i;
                    const int_vec sum = *(const int_vec *)&tile[i*32 + j];
                    store_rounded_u8(&requantize[row*32 + j],
                        CONVERT(sum + bias_at_j, float_vec) * scale_at_j, 3, 0,
                        255, count);
                }
            }
        }
        release_tiles();
    }
}
