/* linear: f32[40,32] = linear
 * program.py:1
 * m = 40, n = 32, k = 64; tiles of PAIR_ROWS x 32.
 * The weight is packed, in panels of 32 columns.
 * Operands are split in two bf16; three of their four products are summed. */
static void k0_linear(const float *restrict x, const uint32_t *restrict weight_packed,
                      float *restrict linear, void *restrict workspace)
{
    const int64_t row_tiles = (40 + PAIR_ROWS - 1) / PAIR_ROWS;
    const int64_t row_blocks = count_row_blocks(row_tiles, PAIR_ROWS * 256, 1, 1);
    uint32_t *const a_rows = workspace;
    /* The rows of A, in bf16. */
    for (int64_t tile_index = 0; tile_index < row_tiles; tile_index++) {
        const int64_t row_0 = first_tile_row(tile_index, row_tiles, 40, PAIR_ROWS);
        const int rows = first_tile_row(tile_index + 1, row_tiles, 40, PAIR_ROWS) - row_0;
        split_rows_bf16(rows, 64, x + row_0 * 64, 64, 1, a_rows + row_0 * 96, 96, 48);
    }
    /* The product. */
    for (int64_t row_block = 0; row_block < row_blocks; row_block++) {
        for (int64_t panel = 0; panel < 1; panel++) {
            const int64_t column_0 = panel * 32;
            const int columns = 32;
            const uint32_t *const b_panel = weight_packed + panel * 2048;
            take_tiles();
            for (int64_t tile_index = row_block * row_tiles / row_blocks;
                 tile_index < (row_block + 1) * row_tiles / row_blocks; tile_index++) {
                const int64_t row_0 = first_tile_row(tile_index, row_tiles, 40, PAIR_ROWS);
                const int rows = first_tile_row(tile_index + 1, row_tiles, 40, PAIR_ROWS) - row_0;
                float tile[PAIR_ROWS * 32];
                multiply_tile_split(rows, columns, 32, a_rows + row_0 * 96, 48, 96, b_panel, 1024,
                    tile);
                for (int64_t i = 0; i < rows; i++) {
                    const int64_t row = row_0 + i;
                    #pragma omp simd
                    for (int64_t j = 0; j < columns; j++) {
                        const int64_t column = column_0 + j;
                        linear[row*32 + column] = tile[i * 32 + j];
                    }
                }
            }
            release_tiles();
        }
    }
}
