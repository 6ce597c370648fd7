/* add: f32[4096,32] = int_linear -> dequantize -> add
 * program.py:1
 * m = 4096, n = 32, k = 8192; tiles of QUAD_ROWS x 32.
 * The weight is packed, in panels of 32 columns of quads.
 * K is cut into blocks of 1984, with sums in the workspace. */
static void k0_add(const uint8_t *restrict x, const int32_t *restrict weight_packed,
                   const float *restrict y, float *restrict add, void *restrict workspace,
                   int n_threads)
{
    const int64_t row_tiles = (4096 + QUAD_ROWS - 1) / QUAD_ROWS;
    const int64_t tile_size = QUAD_ROWS*32;
    const int64_t row_blocks = count_row_blocks(row_tiles, QUAD_ROWS*1984, 1, n_threads);
    const int64_t panel_size = (2048 + 1)*32;
    int32_t *const sums = workspace;
    #pragma omp parallel for schedule(static) num_threads(n_threads) if (n_threads > 1)
    for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
        take_tiles();
        for (int64_t block = 0; block < 5; ++block) {
            const int64_t k_0 = block*1984;
            const int64_t depth = fx_min(8192 - k_0, 1984);
            const int32_t *const b_panel = weight_packed;
            const int32_t *const quads = b_panel + k_0*8 + 32;
            /* Tiles of rows fetch the next panel meanwhile. */
            const int32_t *const next = quads + (row_tiles > 1 ? panel_size : 0);
            for (int64_t tile_index = row_block*row_tiles / row_blocks;
                 tile_index < (row_block + 1)*row_tiles / row_blocks; ++tile_index) {
                const int64_t row_0 = first_tile_row(tile_index, row_tiles, 4096, QUAD_ROWS);
                const int rows = (int)(first_tile_row(tile_index + 1, row_tiles, 4096, QUAD_ROWS)
                    - row_0);
                int32_t *const total = sums + tile_index*tile_size;
                fetch_tile(rows, 32, add + row_0*32, 32);
                fetch_tile(rows, 32, y + row_0*32, 32);
                add_block_u8(rows, 32, depth, x + row_0*8192 + k_0, 8192, quads,
                    block == 0 ? b_panel : 0, next + (depth / 4)*(tile_index % 2)*16, total);
                if (block == 4) {
                    for (int64_t j = 0; j < 32; j += int_lanes) {
                        const int count = (int)(32 - j);
                        for (int64_t i = 0; i < rows; ++i) {
                            const int64_t row = row_0 + i;
                            const int_vec sum = *(const int_vec *)&total[i*32 + j];
                            store_f32(&add[row*32 + j],
                                product_f32(CONVERT(sum, float_vec), (0.5f - (float_vec){0}))
                                + load_f32(&y[row*32 + j], count), count);
                        }
                    }
                }
            }
        }
        release_tiles();
    }
}
