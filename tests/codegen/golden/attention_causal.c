/* scaled_dot_product_attention: f64[B,T,8] = scaled_dot_product_attention
 * program.py:1
 * T queries and T keys of 8, values of 8; tiles of TILE_ROWS queries,
 * blocks of 512 keys, which stay in the second-level cache.
 * Sums are rescaled from block to block, to the highest score so far. */
static void k0_scaled_dot_product_attention(const double *restrict q, const double *restrict k,
        const double *restrict v, double *restrict scaled_dot_product_attention, int64_t B,
        int64_t T, void *restrict workspace, int n_threads)
{
    const int64_t row_tiles = (T + TILE_ROWS - 1) / TILE_ROWS;
    const int64_t row_blocks = count_query_blocks(row_tiles, B, n_threads);
    #pragma omp parallel for collapse(2) schedule(dynamic) num_threads(n_threads) \
            if (n_threads > 1 && B*T*T*16 > PARALLEL_PRODUCTS)
    for (int64_t batch = 0; batch < B; ++batch) {
        for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
            const double *const q_item = q + batch*T*8;
            const double *const k_item = k + batch*T*8;
            const double *const v_item = v + batch*T*8;
            /* This thread's part of the workspace. */
            const int64_t share = 8*512 + 16*512 + 11*528 + 11*32 + 11*32*16 + 11*32 + 11*32 + 32;
            double *const k_panels = (double *)workspace + this_thread()*share;
            double *const v_panels = k_panels + 8*512;
            double *const scores = v_panels + 16*512;
            double *const q_rows = scores + 11*528;
            double *const sums = q_rows + 11*32;
            double *const highest = sums + 11*32*16;
            double *const totals = highest + 11*32;
            const int64_t first_tile = row_block*row_tiles / row_blocks;
            const int64_t end_tile = (row_block + 1)*row_tiles / row_blocks;
            const int64_t first_row = first_tile*T / row_tiles;
            const int64_t end_row = end_tile*T / row_tiles;
            const int64_t block_rows = end_row - first_row;
            for (int64_t i = 0; i < block_rows; ++i) {
                highest[i] = -INFINITY;
                totals[i] = 0;
            }
            for (int64_t i = 0; i < block_rows*16; ++i) {
                sums[i] = 0;
            }
            /* Keys after a row are left out, unless their weight, 0, times an infinite
             * or NaN value is NaN. */
            const bool skips = all_finite_double(T, 8, v_item, 8, 1);
            const int64_t end_key = skips && end_row < T ? end_row : T;
            for (int64_t key_0 = 0; key_0 < end_key; key_0 += 512) {
                const int64_t keys = fx_min(end_key - key_0, 512);
                pack_panels_double(8, keys, k_item + key_0*8, 1, 8, k_panels);
                pack_panels_double(keys, 8, v_item + key_0*8, 8, 1, v_panels);
                for (int64_t tile_index = first_tile; tile_index < end_tile; ++tile_index) {
                    const int64_t row_0 = tile_index*T / row_tiles;
                    const int rows = (int)((tile_index + 1)*T / row_tiles - row_0);
                    const int64_t before = row_0 + rows - key_0;
                    const int64_t tile_keys = skips && before < keys ? before : keys;
                    if (tile_keys > 0) {
                        double tile[TILE_ROWS*16], rescale[TILE_ROWS];
                        /* Scaled queries, their scores, weights and weighted values. */
                        for (int64_t i = 0; i < rows; ++i) {
                            #pragma omp simd
                            for (int64_t feature = 0; feature < 8; ++feature) {
                                q_rows[i*32 + feature] = q_item[(row_0 + i)*8 + feature]
                                    * 0.35355339059327373;
                            }
                        }
                        for (int64_t column_0 = 0; column_0 < tile_keys; column_0 += 16) {
                            const int columns = (int)fx_min(tile_keys - column_0, 16);
                            multiply_tile_double(rows, columns, 8, q_rows, 32,
                                k_panels + column_0*8, tile);
                            for (int64_t i = 0; i < rows; ++i) {
                                const int64_t row = row_0 + i;
                                #pragma omp simd
                                for (int64_t j = 0; j < 16; ++j) {
                                    const int64_t key = key_0 + column_0 + j;
                                    scores[i*528 + column_0 + j] =
                                        key <= row ? tile[i*16 + j] : -INFINITY;
                                }
                            }
                        }
                        const int64_t place = row_0 - first_row;
                        for (int64_t i = 0; i < rows; ++i) {
                            rescale[i] = soften_double(tile_keys, scores + i*528,
                                highest + place + i, totals + place + i);
                        }
                        multiply_tile_double(rows, 8, tile_keys, scores, 528, v_panels, tile);
                        for (int64_t i = 0; i < rows; ++i) {
                            double *const sum = sums + place*16 + i*16;
                            #pragma omp simd
                            for (int64_t j = 0; j < 8; ++j) {
                                sum[j] = sum[j] * rescale[i] + tile[i*16 + j];
                            }
                        }
                    }
                }
            }
            for (int64_t row = first_row; row < end_row; ++row) {
                const double inverse = T == 0 ? 0 : 1 / totals[row - first_row];
                #pragma omp simd
                for (int64_t column = 0; column < 8; ++column) {
                    const double value = sums[(row - first_row)*16 + column] * inverse;
                    scaled_dot_product_attention[(batch*T + row)*8 + column] = value;
                }
            }
        }
    }
}
