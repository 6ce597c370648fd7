/* linear: f32[B,T,32] = linear
 * program.py:1
 * m = B*T, n = 32, k = 40; tiles of PAIR_ROWS x 32.
 * The weight is packed, in panels of 32 columns.
 * Operands are rounded to bf16, sums are float. */
static void k0_linear(const float *restrict x, const uint32_t *restrict weight_packed,
                      float *restrict linear, int64_t B, int64_t T, void *restrict workspace,
                      int n_threads)
{
    const int64_t row_tiles = (B*T + PAIR_ROWS - 1) / PAIR_ROWS;
    const int64_t row_blocks = count_row_blocks(row_tiles, PAIR_ROWS * 80, 1, n_threads);
    uint32_t *const a_rows = workspace;
    #pragma omp parallel num_threads(n_threads) \
            if (n_threads > 1 && (B*T + 2) * 1280 > PARALLEL_PRODUCTS)
    {
        /* The rows of A, in bf16. */
        #pragma omp for
        for (int64_t tile_index = 0; tile_index < row_tiles; tile_index++) {
            const int64_t row_0 = first_tile_row(tile_index, row_tiles, B*T, PAIR_ROWS);
            const int rows = first_tile_row(tile_index + 1, row_tiles, B*T, PAIR_ROWS) - row_0;
            round_rows_bf16(rows, 40, x + row_0 * 40, 40, 1, a_rows + row_0 * 36, 36);
        }
        /* The product. */
        #pragma omp for collapse(2) schedule(static)
        for (int64_t row_block = 0; row_block < row_blocks; row_block++) {
            for (int64_t panel = 0; panel < 1; panel++) {
                const int64_t column_0 = panel * 32;
                const int columns = 32;
                const uint32_t *const b_panel = weight_packed + panel * 640;
                take_tiles();
                for (int64_t tile_index = row_block * row_tiles / row_blocks;
                     tile_index < (row_block + 1) * row_tiles / row_blocks; tile_index++) {
                    const int64_t row_0 = first_tile_row(tile_index, row_tiles, B*T, PAIR_ROWS);
                    const int rows = first_tile_row(tile_index + 1, row_tiles, B*T, PAIR_ROWS)
                        - row_0;
                    float tile[PAIR_ROWS * 32];
                    multiply_tile_bf16(rows, columns, 20, a_rows + row_0 * 36, 36, b_panel, tile);
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
}
