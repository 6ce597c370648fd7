/* permute_1: f32[B,60,4,8] = reshape -> permute -> scaled_dot_product_attention -> permute
 * program.py:1
 * program.py:2
 * 60 queries and 60 keys of 8, values of 8; tiles of TILE_ROWS queries,
 * blocks of 512 keys, which stay in the second-level cache. */
static void k0_scaled_dot_product_attention(const float *restrict x, const float *restrict mask,
        float *restrict permute_1, int64_t B, void *restrict workspace, int n_threads)
{
    const int64_t row_tiles = (TILE_ROWS + 59) / TILE_ROWS;
    const int64_t row_blocks = count_query_blocks(row_tiles, B*4, n_threads);
    #pragma omp parallel for collapse(3) schedule(static) num_threads(n_threads) \
            if (n_threads > 1 && B*230400 > PARALLEL_PRODUCTS)
    for (int64_t batch_0 = 0; batch_0 < B; ++batch_0) {
        for (int64_t batch_1 = 0; batch_1 < 4; ++batch_1) {
            for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
                const float *const q_item = x + batch_0*1920 + batch_1*8;
                const float *const k_item = x + batch_0*1920 + batch_1*8;
                const float *const v_item = x + batch_0*1920 + batch_1*8;
                /* This thread's part of the workspace. */
                const int64_t share = 8*512 + 32*512 + 11*528 + 11*32 + 11*32*32 + 11*32 + 11*32
                    + 32;
                float *const k_panels = (float *)workspace + this_thread()*share;
                float *const v_panels = k_panels + 8*512;
                float *const scores = v_panels + 32*512;
                float *const q_rows = scores + 11*528;
                float *const sums = q_rows + 11*32;
                float *const highest = sums + 11*32*32;
                float *const totals = highest + 11*32;
                const int64_t first_tile = row_block*row_tiles / row_blocks;
                const int64_t end_tile = (row_block + 1)*row_tiles / row_blocks;
                const int64_t first_row = first_tile*60 / row_tiles;
                const int64_t end_row = end_tile*60 / row_tiles;
                const int64_t block_rows = end_row - first_row;
                for (int64_t i = 0; i < block_rows; ++i) {
                    highest[i] = -INFINITY;
                    totals[i] = 0;
                }
                for (int64_t i = 0; i < block_rows*32; ++i) {
                    sums[i] = 0;
                }
                pack_panels_float(8, 60, k_item, 1, 32, k_panels);
                pack_panels_float(60, 8, v_item, 32, 1, v_panels);
                for (int64_t tile_index = first_tile; tile_index < end_tile; ++tile_index) {
                    const int64_t row_0 = tile_index*60 / row_tiles;
                    const int rows = (int)((tile_index*60 + 60) / row_tiles - row_0);
                    float tile[TILE_ROWS*32], rescale[TILE_ROWS];
                    /* Scaled queries, their scores, weights and weighted values. */
                    for (int64_t i = 0; i < rows; ++i) {
                        #pragma omp simd
                        for (int64_t feature = 0; feature < 8; ++feature) {
                            q_rows[i*32 + feature] = q_item[(row_0 + i)*32 + feature] * 0.35355338f;
                        }
                    }
                    for (int64_t column_0 = 0; column_0 < 60; column_0 += 32) {
                        const int columns = (int)fx_min(60 - column_0, 32);
                        multiply_tile_float(rows, columns, 8, q_rows, 32, k_panels + column_0*8,
                            tile);
                        for (int64_t i = 0; i < rows; ++i) {
                            const int64_t row = row_0 + i;
                            #pragma omp simd
                            for (int64_t j = 0; j < columns; ++j) {
                                const int64_t key = column_0 + j;
                                scores[i*528 + column_0 + j] = tile[i*32 + j] + mask[row*60 + key];
                            }
                        }
                    }
                    const int64_t place = row_0 - first_row;
                    for (int64_t i = 0; i < rows; ++i) {
                        rescale[i] = soften_float(60, scores + i*528, highest + place + i,
                            totals + place + i);
                    }
                    multiply_tile_float(rows, 8, 60, scores, 528, v_panels, tile);
                    for (int64_t i = 0; i < rows; ++i) {
                        float *const sum = sums + place*32 + i*32;
                        #pragma omp simd
                        for (int64_t j = 0; j < 8; ++j) {
                            sum[j] = sum[j] * rescale[i] + tile[i*32 + j];
                        }
                    }
                }
                for (int64_t row = first_row; row < end_row; ++row) {
                    const float inverse = totals[row - first_row] == 0 ? 0
                        : 1 / totals[row - first_row];
                    #pragma omp simd
                    for (int64_t column = 0; column < 8; ++column) {
                        const float value = sums[(row - first_row)*32 + column] * inverse;
                        permute_1[((batch_0*60 + row)*4 + batch_1)*8 + column] = value;
                    }
                }
            }
        }
    }
}
