/* mul: f64[2,H,T,T] = permute -> matmul -> mul
 * program.py:1
 * m = T, n = T, k = 8; tiles of TILE_ROWS x 16.
 * The right operand is read in place. */
static void k0_mul_rows(const double *restrict x, const double *restrict y, double *restrict mul,
                        int64_t H, int64_t T, int n_threads)
{
    const int64_t row_tiles = (T + TILE_ROWS - 1) / TILE_ROWS;
    const int64_t panels = (T + 15) / 16;
    const int64_t row_blocks = count_row_blocks(row_tiles, TILE_ROWS*64, panels*H*2, n_threads);
    #pragma omp parallel for collapse(4) schedule(static) num_threads(n_threads) \
            if (n_threads > 1 && (T + 2)*H*T*16 > PARALLEL_PRODUCTS)
    for (int64_t batch_0 = 0; batch_0 < 2; ++batch_0) {
        for (int64_t batch_1 = 0; batch_1 < H; ++batch_1) {
            for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
                for (int64_t panel = 0; panel < panels; ++panel) {
                    const int64_t column_0 = panel*16;
                    const int columns = (int)fx_min(T - column_0, 16);
                    const double *const b_panel = y + ((batch_0*H + batch_1)*T + column_0)*8;
                    for (int64_t tile_index = row_block*row_tiles / row_blocks;
                         tile_index < (row_block + 1)*row_tiles / row_blocks; ++tile_index) {
                        const int64_t row_0 = tile_index*T / row_tiles;
                        const int rows = (int)((tile_index + 1)*T / row_tiles - row_0);
                        double tile[TILE_ROWS*16];
                        multiply_dots_double(rows, columns, 8,
                            x + ((batch_0*H + batch_1)*T + row_0)*8, 8, b_panel, 8, tile);
                        for (int64_t i = 0; i < rows; ++i) {
                            const int64_t row = row_0 + i;
                            #pragma omp simd
                            for (int64_t j = 0; j < columns; ++j) {
                                const int64_t column = column_0 + j;
                                mul[((batch_0*H + batch_1)*T + row)*T + column] =
                                    tile[i*16 + j] * 0.5;
                            }
                        }
                    }
                }
            }
        }
    }
}

/* A tile of the function below: sums are finished in registers, and stored. */
TILE_INLINE
static void k0_mul_sums(const int rows, const int columns, int64_t row_0, int64_t column_0,
                        const double *a_tile, int64_t a_row, const double *b_tile, int64_t batch_0,
                        int64_t batch_1, const double *restrict x, const double *restrict y,
                        double *restrict mul, int64_t H, int64_t T)
{
    (void)x, (void)y;
    #pragma GCC unroll 4
    for (int first = 0; first < columns; first += 2*double_lanes) {
        const int vectors = columns - first > double_lanes ? 2 : 1;
        double_vec sums[TILE_ROWS][2];
        sum_rows_double_vec(rows, vectors, 1, 8, a_tile, a_row, b_tile + first, 16,
            nothing_ahead(), sums);
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            const int count = columns - first - v*double_lanes;
            const int64_t column = column_0 + first + v*double_lanes;
            #pragma GCC unroll 16
            for (int i = 0; i < rows; i++) {
                const int64_t row = row_0 + i;
                const double_vec sum = sums[i][v];
                store_double(&mul[((batch_0*H + batch_1)*T + row)*T + column], sum * 0.5, count);
            }
        }
    }
}

TILE_FUNCTION
static void k0_mul_tile(int rows, int columns, int64_t row_0, int64_t column_0,
                        const double *a_tile, int64_t a_row, const double *b_tile, int64_t batch_0,
                        int64_t batch_1, const double *restrict x, const double *restrict y,
                        double *restrict mul, int64_t H, int64_t T)
{
    if (columns == 16 && rows == TILE_ROWS)
        k0_mul_sums(TILE_ROWS, 16, row_0, column_0, a_tile, a_row, b_tile, batch_0, batch_1, x, y,
            mul, H, T);
    else {
        double tile[TILE_ROWS*16];
        multiply_tile_double(rows, columns, 8, a_tile, a_row, b_tile, tile);
        for (int64_t j = 0; j < columns; j += double_lanes) {
            const int count = (int)(columns - j);
            const int64_t column = column_0 + j;
            for (int64_t i = 0; i < rows; ++i) {
                const int64_t row = row_0 + i;
                const double_vec sum = *(const double_vec *)&tile[i*16 + j];
                store_double(&mul[((batch_0*H + batch_1)*T + row)*T + column], sum * 0.5, count);
            }
        }
    }
}

/* mul: f64[2,H,T,T] = permute -> matmul -> mul
 * program.py:1
 * m = T, n = T, k = 8; tiles of TILE_ROWS x 16.
 * Threads pack the right operand, a panel of 16 columns at a time.
 * K is short: the epilogue runs in the registers of a tile. */
static void k0_mul(const double *restrict x, const double *restrict y, double *restrict mul,
                   int64_t H, int64_t T, void *restrict workspace, int n_threads)
{
    if (T <= 1 || T <= 2) {
        k0_mul_rows(x, y, mul, H, T, n_threads);
        return;
    }
    const int64_t row_tiles = (T + TILE_ROWS - 1) / TILE_ROWS;
    const int64_t panels = (T + 15) / 16;
    const int64_t row_blocks = count_row_blocks(row_tiles, TILE_ROWS*64, ((panels + 15) / 16)*H*2,
        n_threads);
    /* A panel of B for each thread, and its size including a gap. */
    const int64_t share = 8*16*16 + 32;
    double *const b_panels = workspace;
    #pragma omp parallel for collapse(4) schedule(static) num_threads(n_threads) \
            if (n_threads > 1 && (T + 2)*H*T*16 > PARALLEL_PRODUCTS)
    for (int64_t batch_0 = 0; batch_0 < 2; ++batch_0) {
        for (int64_t batch_1 = 0; batch_1 < H; ++batch_1) {
            for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
                for (int64_t panel_group = 0; panel_group < (panels + 15) / 16; ++panel_group) {
                    const int64_t first_panel = panel_group*16;
                    const int64_t last_panel = fx_min(panels, first_panel + 16);
                    for (int64_t panel = first_panel; panel < last_panel; ++panel) {
                        const int64_t column_0 = panel*16;
                        const int columns = (int)fx_min(T - column_0, 16);
                        double *const b_panel = b_panels + share*this_thread() + (panel % 16)*128;
                        pack_panel_double(8, columns, y + ((batch_0*H + batch_1)*T + column_0)*8,
                            1, 8, b_panel);
                    }
                    for (int64_t tile_index = row_block*row_tiles / row_blocks;
                         tile_index < (row_block + 1)*row_tiles / row_blocks; ++tile_index) {
                        const int64_t row_0 = TILE_ROWS*tile_index;
                        const int rows = (int)fx_min(TILE_ROWS, T - row_0);
                        for (int64_t panel = first_panel; panel < last_panel; ++panel) {
                            const int64_t column_0 = panel*16;
                            const int columns = (int)fx_min(T - column_0, 16);
                            const double *const b_panel =
                                b_panels + share*this_thread() + (panel % 16)*128;
                            k0_mul_tile(rows, columns, row_0, column_0,
                                x + ((batch_0*H + batch_1)*T + row_0)*8, 8, b_panel, batch_0,
                                batch_1, x, y, mul, H, T);
                        }
                    }
                }
            }
        }
    }
}
