/* dequantize: f32[B,T,U] = int_matmul -> dequantize
 * program.py:1
 * m = T, n = U, k = 20; tiles of QUAD_ROWS x 32.
 * The right operand is packed, in panels of 32 columns of quads. */
static void k0_dequantize(const uint8_t *restrict x, const uint8_t *restrict y,
                          float *restrict dequantize, int64_t B, int64_t T, int64_t U,
                          void *restrict workspace, int n_threads)
{
    int32_t *const packed = workspace;
    #pragma omp parallel for collapse(2) schedule(static) num_threads(n_threads) \
            if (n_threads > 1 && (B * (T + 2) * U * 20 + 3) / 4 > PARALLEL_PRODUCTS)
    for (int64_t batch = 0; batch < B; batch++) {
        for (int64_t panel = 0; panel < (U + 31) / 32; panel++) {
            pack_panel_u8(20, U - panel * 32 < 32 ? U - panel * 32 : 32,
                y + batch*U*20 + panel * 32, U, 1, 7, -28,
                packed + batch * (((U + 31) / 32) * 192) + panel * 192);
        }
    }
    int32_t *const row_sums = packed + B * (((U + 31) / 32) * 192);
    #pragma omp parallel for collapse(2) schedule(static) num_threads(n_threads) \
            if (n_threads > 1 && (B * (T + 2) * U * 20 + 3) / 4 > PARALLEL_PRODUCTS)
    for (int64_t batch = 0; batch < B; batch++) {
        for (int64_t row = 0; row < T; row++) {
            row_sums[batch * T + row] = sum_row_u8(20, x + batch*T*20 + row * 20) * -28;
        }
    }
    const int64_t row_tiles = (T + QUAD_ROWS - 1) / QUAD_ROWS;
    const int64_t row_blocks = count_row_blocks(row_tiles, QUAD_ROWS * 20, B * ((U + 31) / 32),
        n_threads);
    #pragma omp parallel for collapse(3) schedule(static) num_threads(n_threads) \
            if (n_threads > 1 && (B * (T + 2) * U * 20 + 3) / 4 > PARALLEL_PRODUCTS)
    for (int64_t batch = 0; batch < B; batch++) {
        for (int64_t row_block = 0; row_block < row_blocks; row_block++) {
            for (int64_t panel = 0; panel < (U + 31) / 32; panel++) {
                const int64_t column_0 = panel * 32;
                const int columns = U - column_0 < 32 ? U - column_0 : 32;
                const int32_t *const b_panel = packed + batch * ((U + 31) / 32) * 192 + panel * 192;
                take_tiles();
                const int32_t *const quads = b_panel + 32;
                /* What tiles of rows fetch meanwhile: the panel behind this one. */
                const int32_t *const next = quads + (row_tiles > 1 ? 192 : 0);
                for (int64_t tile_index = row_block * row_tiles / row_blocks;
                     tile_index < (row_block + 1) * row_tiles / row_blocks; tile_index++) {
                    const int64_t row_0 = first_tile_row(tile_index, row_tiles, T, QUAD_ROWS);
                    const int rows = first_tile_row(tile_index + 1, row_tiles, T, QUAD_ROWS)
                        - row_0;
                    int32_t tile[QUAD_ROWS * 32];
                    add_block_u8(rows, columns, 20, x + batch*T*20 + row_0 * 20, 20, quads,
                        b_panel, next + tile_index % 2 * 80, tile);
                    for (int j = 0; j < columns; j += int_lanes) {
                        const int count = columns - j;
                        const int64_t column = column_0 + j;
                        for (int64_t i = 0; i < rows; i++) {
                            const int64_t row = row_0 + i;
                            const int32_t row_sum = row_sums[batch * T + row];
                            const int_vec sum = *(const int_vec *)&tile[i * 32 + j];
                            store_f32(&dequantize[(batch*T + row)*U + column],
                                product_f32(__builtin_convertvector((sum - row_sum), float_vec),
                                    (0.5f - (float_vec){0})),
                                count);
                        }
                    }
                }
                release_tiles();
            }
        }
    }
}
