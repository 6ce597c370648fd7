/* A tile of the function below: sums are finished in registers, and stored. */
TILE_INLINE
static void k0_mul_sums(const int rows, const int columns, int64_t row_0, int64_t column_0,
                        const float *a_tile, int64_t a_row, const float *b_tile, struct ahead ahead,
                        const float *restrict x, const float *restrict weight_packed,
                        const float *restrict bias, float *restrict mul)
{
    (void)x, (void)weight_packed;
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
                store_float(&mul[row*32 + column],
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
                        const float *restrict bias, float *restrict mul)
{
    (void)columns;
    /* Tiles have LOW rows, or one more where LOW does not divide all rows. */
    enum { TILES = (24 + TILE_ROWS - 1) / TILE_ROWS };
    enum { LOW = 24 / TILES, HIGH = LOW + (24 % TILES > 0) };
    if (rows == LOW || LOW == HIGH)
        k0_mul_sums(LOW, 32, row_0, column_0, a_tile, a_row, b_tile, ahead, x, weight_packed, bias,
            mul);
    else
        k0_mul_sums(HIGH, 32, row_0, column_0, a_tile, a_row, b_tile, ahead, x, weight_packed,
            bias, mul);
}

/* mul: f32[24,32] = linear -> relu -> mul
 * program.py:1
 * m = 24, n = 32, k = 40; tiles of TILE_ROWS x 32.
 * The weight is packed, in panels of 32 columns.
 * K is short: the epilogue runs in the registers of a tile. */
static void k0_mul(const float *restrict x, const float *restrict weight_packed,
                   const float *restrict bias, float *restrict mul)
{
    const int64_t row_tiles = (24 + TILE_ROWS - 1) / TILE_ROWS;
    const int64_t row_blocks = count_row_blocks(row_tiles, TILE_ROWS*160, 1, 1);
    for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
        const float *const b_panel = weight_packed;
        for (int64_t tile_index = row_block*row_tiles / row_blocks;
             tile_index < (row_block + 1)*row_tiles / row_blocks; ++tile_index) {
            const int64_t row_0 = tile_index*24 / row_tiles;
            const int rows = (int)((tile_index*24 + 24) / row_tiles - row_0);
            const struct ahead ahead = part_ahead(b_panel + 1280, 40, 128,
                tile_index - row_block*row_tiles / row_blocks,
                (row_tiles + row_blocks - 1) / row_blocks);
            k0_mul_tile(rows, 32, row_0, 0, x + row_0*40, 40, b_panel, ahead, x, weight_packed,
                bias, mul);
        }
    }
}
