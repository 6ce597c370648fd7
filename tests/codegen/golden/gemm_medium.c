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
    const int64_t row_blocks = count_row_blocks(row_tiles, PAIR_ROWS*80, 1, n_threads);
    /* The rows of A, and how far they are apart. */
    const int64_t a_pitch = 20 + 16;
    uint32_t *const a_rows = workspace;
    /* The rows of A, in bf16. */
    #pragma omp parallel for schedule(static) num_threads(n_threads) \
            if (n_threads > 1 && B*T*1280 + 2560 > PARALLEL_PRODUCTS)
    for (int64_t tile_index = 0; tile_index < row_tiles; ++tile_index) {
        const int64_t row_0 = first_tile_row(tile_index, row_tiles, B*T, PAIR_ROWS);
        const int rows = (int)(first_tile_row(tile_index + 1, row_tiles, B*T, PAIR_ROWS) - row_0);
        round_rows_bf16(rows, 40, x + row_0*40, 40, 1, a_rows + a_pitch*row_0, a_pitch);
    }
    /* The product. */
    #pragma omp parallel for schedule(static) num_threads(n_threads) \
            if (n_threads > 1 && B*T*1280 + 2560 > PARALLEL_PRODUCTS)
    for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
        take_tiles();
        const uint32_t *const b_panel = weight_packed;
        for (int64_t tile_index = row_block*row_tiles / row_blocks;
             tile_index < (row_block + 1)*row_tiles / row_blocks; ++tile_index) {
            const int64_t row_0 = first_tile_row(tile_index, row_tiles, B*T, PAIR_ROWS);
            const int rows = (int)(first_tile_row(tile_index + 1, row_tiles, B*T, PAIR_ROWS)
                - row_0);
            float tile[PAIR_ROWS*32];
            multiply_tile_bf16(rows, 32, 20, a_rows + a_pitch*row_0, a_pitch, b_panel, tile);
            for (int64_t i = 0; i < rows; ++i) {
                const int64_t row = row_0 + i;
                #pragma omp simd
                for (int64_t j = 0; j < 32; ++j) {
                    linear[row*32 + j] = tile[i*32 + j];
                }
            }
        }
        release_tiles();
    }
}
