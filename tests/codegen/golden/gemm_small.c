/* matmul: f32[1,48] = matmul
 * program.py:1
 * m = 1, n = 48, k = 64; tiles of TILE_ROWS x 32.
 * The right operand is read in place, once or twice. */
static void k0_matmul(const float *restrict x, const float *restrict y, float *restrict matmul)
{
    const int64_t row_tiles = (1 + TILE_ROWS - 1) / TILE_ROWS;
    const int64_t row_blocks = count_row_blocks(row_tiles, TILE_ROWS * 256, 2, 1);
    for (int64_t row_block = 0; row_block < row_blocks; row_block++) {
        for (int64_t panel = 0; panel < 2; panel++) {
            const int64_t column_0 = panel * 32;
            const int columns = 48 - column_0 < 32 ? 48 - column_0 : 32;
            const float *const b_panel = y + column_0;
            for (int64_t tile_index = row_block * row_tiles / row_blocks;
                 tile_index < (row_block + 1) * row_tiles / row_blocks; tile_index++) {
                const int64_t row_0 = tile_index * 1 / row_tiles;
                const int rows = (tile_index + 1) * 1 / row_tiles - row_0;
                float tile[TILE_ROWS * 32];
                multiply_low_tile_float(rows, columns, 64, x + row_0 * 64, 64, b_panel, 48, tile);
                for (int64_t i = 0; i < rows; i++) {
                    const int64_t row = row_0 + i;
                    #pragma omp simd
                    for (int64_t j = 0; j < columns; j++) {
                        const int64_t column = column_0 + j;
                        matmul[row*48 + column] = tile[i * 32 + j];
                    }
                }
            }
        }
    }
}
