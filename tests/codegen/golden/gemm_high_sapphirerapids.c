/* linear: f32[40,64] = linear
 * program.py:1
 * m = 40, n = 64, k = 64; tiles of PAIR_ROWS x 32.
 * The weight is packed, in panels of 32 columns.
 * Operands are split in two bf16; three of their four products are summed. */
static void k0_linear(const float *restrict x, const uint32_t *restrict weight_packed,
                      float *restrict linear, void *restrict workspace)
{
    const int64_t row_tiles = (40 + PAIR_ROWS - 1) / PAIR_ROWS;
    const int64_t row_blocks = count_row_blocks(row_tiles, PAIR_ROWS*256, 2, 1);
    /* The rows of A, and how far they are apart. */
    const int64_t a_low = 32 + 16;
    const int64_t a_pitch = 2*(32 + 16);
    uint32_t *const a_rows = workspace;
    const int64_t panel_size = 32*32*2;
    /* The rows of A, in bf16. */
    for (int64_t tile_index = 0; tile_index < row_tiles; ++tile_index) {
        const int64_t row_0 = first_tile_row(tile_index, row_tiles, 40, PAIR_ROWS);
        const int rows = (int)(first_tile_row(tile_index + 1, row_tiles, 40, PAIR_ROWS) - row_0);
        split_rows_bf16(rows, 64, x + row_0*64, 64, 1, a_rows + a_pitch*row_0, a_pitch, a_low);
    }
    /* The product. */
    for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
        for (int64_t panel = 0; panel < 2; ++panel) {
            take_tiles();
            const int64_t column_0 = panel*32;
            const uint32_t *const b_panel = weight_packed + panel*panel_size;
            for (int64_t tile_index = row_block*row_tiles / row_blocks;
                 tile_index < (row_block + 1)*row_tiles / row_blocks; ++tile_index) {
                const int64_t row_0 = first_tile_row(tile_index, row_tiles, 40, PAIR_ROWS);
                const int rows = (int)(first_tile_row(tile_index + 1, row_tiles, 40, PAIR_ROWS)
                    - row_0);
                float tile[PAIR_ROWS*32];
                multiply_tile_split(rows, 32, 32, a_rows + a_pitch*row_0, a_low, a_pitch, b_panel,
                    1024, tile);
                for (int64_t i = 0; i < rows; ++i) {
                    const int64_t row = row_0 + i;
                    #pragma omp simd
                    for (int64_t j = 0; j < 32; ++j) {
                        const int64_t column = column_0 + j;
                        linear[row*64 + column] = tile[i*32 + j];
                    }
                }
            }
            release_tiles();
        }
    }
}
