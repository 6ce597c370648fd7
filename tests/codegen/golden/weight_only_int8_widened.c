/* linear_weight_only: f32[64,64] = linear_weight_only
 * program.py:1
 * The weight has 8 bits.
 * m = 64, n = 64, k = 1056; tiles of TILE_ROWS x 32.
 * Threads widen the weight to floats, once for a block of rows, 528 steps of K at a time. */
static void k0_linear_weight_only(const float *restrict x, const int32_t *restrict weight_packed,
                                  const float *restrict scale_packed,
                                  float *restrict linear_weight_only, void *restrict workspace,
                                  int n_threads)
{
    const int64_t row_tiles = (64 + TILE_ROWS - 1) / TILE_ROWS;
    const int64_t tile_size = TILE_ROWS*32;
    const int64_t row_blocks = count_row_blocks(row_tiles, L2_BYTES / 2 / 16, 2, n_threads);
    /* For each thread a block of a panel of B and sums, and their size including a gap. */
    const int64_t block_size = 534*32;
    const int64_t share = block_size + 5632 + 32;
    float *const b_panels = workspace;
    const int64_t panel_words = 264*32;
    const int64_t panel_scales = 32;
    #pragma omp parallel for collapse(2) schedule(static) num_threads(n_threads) if (n_threads > 1)
    for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
        for (int64_t panel = 0; panel < 2; ++panel) {
            for (int64_t block = 0; block < 2; ++block) {
                const int64_t k_0 = block*528;
                const int64_t column_0 = panel*32;
                const float *const b_panel = widen_panel_int8(k_0, 528, 1056,
                    weight_packed + panel*panel_words, 0, b_panels + share*this_thread());
                float *const sums = b_panels + share*this_thread() + block_size;
                for (int64_t tile_index = row_block*row_tiles / row_blocks;
                     tile_index < (row_block + 1)*row_tiles / row_blocks; ++tile_index) {
                    const int64_t row_0 = tile_index*64 / row_tiles;
                    const int rows = (int)((tile_index*64 + 64) / row_tiles - row_0);
                    const int64_t number = tile_index - row_block*row_tiles / row_blocks;
                    float *const total = sums + number*tile_size;
                    float tile[TILE_ROWS*32];
                    multiply_tile_float(rows, 32, 528, x + row_0*1056 + k_0, 1056, b_panel,
                        block == 0 ? total : tile);
                    const int64_t more = block == 0 ? 0 : rows*32;
                    #pragma omp simd
                    for (int64_t i = 0; i < more; ++i) {
                        total[i] += tile[i];
                    }
                    if (block == 1) {
                        const float *const factor = repair_int8(0, rows, 32, 1056, 1056,
                            x + row_0*1056, 1056, weight_packed + panel*panel_words,
                            scale_packed + panel*panel_scales, total);
                        for (int64_t i = 0; i < rows; ++i) {
                            const int64_t row = row_0 + i;
                            #pragma omp simd
                            for (int64_t j = 0; j < 32; ++j) {
                                const int64_t column = column_0 + j;
                                linear_weight_only[row*64 + column] = (total[i*32 + j] * factor[j]);
                            }
                        }
                    }
                }
            }
        }
    }
}
