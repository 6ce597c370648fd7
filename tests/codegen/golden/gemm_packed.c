/* A tile of the function below: sums are finished in registers, and stored. */
TILE_INLINE
static void k0_mul_sums(const int rows, const int columns, int64_t row_0, int64_t column_0,
                        const float *a_tile, int64_t a_row, const float *b_tile, struct ahead ahead,
                        const float *restrict x, const float *restrict weight_packed,
                        const float *restrict bias, float *restrict mul, int64_t B)
{
    (void)x, (void)weight_packed, (void)B;
    #pragma GCC unroll 4
    for (int first = 0; first < columns; first += 2*float_lanes) {
        const int vectors = columns - first > float_lanes ? 2 : 1;
        float_vec sums[TILE_ROWS][2];
        sum_rows_float_vec(rows, vectors, 1, 40, a_tile, a_row, b_tile + first, 32, ahead, sums);
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            const int count = columns - first - v*float_lanes;
            const int64_t column = column_0 + first + v*float_lanes;
            #pragma GCC unroll 16
            for (int i = 0; i < rows; i++) {
                const int64_t row = row_0 + i;
                const float_vec sum = sums[i][v];
                store_float(&mul[row*50 + column],
                    maximum_float(sum + load_float(&bias[column], count),
                    all_float(0.0f)) * 2.0f, count);
            }
        }
    }
}

TILE_FUNCTION
static void k0_mul_tile(int rows, int columns, int64_t row_0, int64_t column_0, const float *a_tile,
                        int64_t a_row, const float *b_tile, struct ahead ahead,
                        const float *restrict x, const float *restrict weight_packed,
                        const float *restrict bias, float *restrict mul, int64_t B)
{
    if (columns == 18 && rows == TILE_ROWS)
        k0_mul_sums(TILE_ROWS, 18, row_0, column_0, a_tile, a_row, b_tile, ahead, x, weight_packed,
            bias, mul, B);
    else if (rows == TILE_ROWS)
        k0_mul_sums(TILE_ROWS, 32, row_0, column_0, a_tile, a_row, b_tile, ahead, x, weight_packed,
            bias, mul, B);
    else {
        float tile[TILE_ROWS*32];
        multiply_tile_float(rows, columns, 40, a_tile, a_row, b_tile, tile);
        for (int64_t j = 0; j < columns; j += float_lanes) {
            const int count = (int)(columns - j);
            const int64_t column = column_0 + j;
            for (int64_t i = 0; i < rows; ++i) {
                const int64_t row = row_0 + i;
                const float_vec sum = *(const float_vec *)&tile[i*32 + j];
                store_float(&mul[row*50 + column],
                    maximum_float(sum + load_float(&bias[column], count),
                    all_float(0.0f)) * 2.0f, count);
            }
        }
    }
}

/* mul: f32[B,50] = linear -> relu -> mul
 * program.py:1
 * m = B, n = 50, k = 40; tiles of TILE_ROWS x 32.
 * The weight is packed, in panels of 32 columns.
 * K is short: the epilogue runs in the registers of a tile. */
static void k0_mul(const float *restrict x, const float *restrict weight_packed,
                   const float *restrict bias, float *restrict mul, int64_t B, int n_threads)
{
    const int64_t row_tiles = (B + TILE_ROWS - 1) / TILE_ROWS;
    const int64_t row_blocks = count_row_blocks(row_tiles, TILE_ROWS*160, 2, n_threads);
    const int64_t panel_size = 40*32;
    #pragma omp parallel for collapse(2) schedule(static) num_threads(n_threads) \
            if (n_threads > 1 && B*2000 + 4000 > PARALLEL_PRODUCTS)
    for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
        for (int64_t panel = 0; panel < 2; ++panel) {
            const int64_t column_0 = panel*32;
            const int columns = (int)fx_min(50 - column_0, 32);
            const float *const b_panel = weight_packed + panel*panel_size;
            for (int64_t tile_index = row_block*row_tiles / row_blocks;
                 tile_index < (row_block + 1)*row_tiles / row_blocks; ++tile_index) {
                const int64_t row_0 = TILE_ROWS*tile_index;
                const int rows = (int)fx_min(TILE_ROWS, B - row_0);
                const struct ahead ahead = part_ahead(b_panel + 1280, 40, 128,
                    tile_index - row_block*row_tiles / row_blocks,
                    (row_tiles + row_blocks - 1) / row_blocks);
                k0_mul_tile(rows, columns, row_0, column_0, x + row_0*40, 40, b_panel, ahead, x,
                    weight_packed, bias, mul, B);
            }
        }
    }
}
