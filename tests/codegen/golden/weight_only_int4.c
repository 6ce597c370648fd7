/* linear_weight_only: f32[B,32] = linear_weight_only
 * program.py:1
 * The weight has 4 bits, one scale for each 32 of a row.
 * m = B, n = 32, k = 128; tiles of TILE_ROWS x 32.
 * Threads widen the weight to floats, once for a block of rows. */
static void k0_linear_weight_only_of_many_rows(const float *restrict x,
        const int32_t *restrict weight_packed, const float *restrict scale_packed,
        float *restrict linear_weight_only, int64_t B, void *restrict workspace, int n_threads)
{
    const int64_t row_tiles = (B + TILE_ROWS - 1) / TILE_ROWS;
    const int64_t row_blocks = count_row_blocks(row_tiles, TILE_ROWS*512, 1, n_threads);
    /* A panel of B for each thread, and its size including a gap. */
    const int64_t share = 142*32 + 32;
    float *const b_panels = workspace;
    #pragma omp parallel for schedule(static) num_threads(n_threads) \
            if (n_threads > 1 && B*4096 + 8192 > PARALLEL_PRODUCTS)
    for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
        const float *const b_panel = widen_panel_int4(0, 128, 32, weight_packed, scale_packed,
            b_panels + share*this_thread());
        for (int64_t tile_index = row_block*row_tiles / row_blocks;
             tile_index < (row_block + 1)*row_tiles / row_blocks; ++tile_index) {
            const int64_t row_0 = tile_index*B / row_tiles;
            const int rows = (int)((tile_index + 1)*B / row_tiles - row_0);
            float tile[TILE_ROWS*32];
            multiply_tile_float(rows, 32, 128, x + row_0*128, 128, b_panel, tile);
            repair_int4(1, rows, 32, 128, 32, x + row_0*128, 128, weight_packed, scale_packed,
                tile);
            for (int64_t i = 0; i < rows; ++i) {
                const int64_t row = row_0 + i;
                #pragma omp simd
                for (int64_t j = 0; j < 32; ++j) {
                    linear_weight_only[row*32 + j] = tile[i*32 + j];
                }
            }
        }
    }
}

/* linear_weight_only: f32[B,32] = linear_weight_only
 * program.py:1
 * m = B, n = 32, k = 128; up to TILE_ROWS rows x 32.
 * The weight has 4 bits, one scale for each 32 of a row. It is packed in panels of 32 columns. */
static void k0_linear_weight_only(const float *restrict x, const int32_t *restrict weight_packed,
                                  const float *restrict scale_packed,
                                  float *restrict linear_weight_only, int64_t B,
                                  void *restrict workspace, int n_threads)
{
    if (B > TILE_ROWS) {
        k0_linear_weight_only_of_many_rows(x, weight_packed, scale_packed, linear_weight_only, B,
            workspace, n_threads);
        return;
    }
    float tile[TILE_ROWS*32];
    const int rows = (int)B;
    multiply_scaled_int4(rows, 32, 128, 32, x, 128, weight_packed, scale_packed, tile);
    repair_int4(1, rows, 32, 128, 32, x, 128, weight_packed, scale_packed, tile);
    for (int64_t i = 0; i < B; ++i) {
        #pragma omp simd
        for (int64_t j = 0; j < 32; ++j) {
            linear_weight_only[i*32 + j] = tile[i*32 + j];
        }
    }
}
