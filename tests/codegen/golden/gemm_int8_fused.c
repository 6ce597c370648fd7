/* A tile of the function below: sums are finished in registers, and stored. */
TILE_INLINE
static void k0_dequantize_sums(const int rows, const int columns, int64_t row_0, int64_t column_0,
                               const void *a_tile, int64_t a_row, const int32_t *b_panel,
                               const int32_t *next, const uint8_t *restrict x,
                               const int32_t *restrict weight_packed, const int32_t *restrict bias,
                               const float *restrict scale, float *restrict dequantize)
{
    (void)x, (void)weight_packed;
    #pragma GCC unroll 4
    for (int first = 0; first < columns; first += 2*int_lanes) {
        const int vectors = columns - first > int_lanes ? 2 : 1;
        int_vec sums[TILE_ROWS][2];
        const int32_t *const starts = b_panel + first;
        sum_rows_int8(rows, vectors, 1, 0, 10, a_tile, a_row, 0, starts + 32, starts, 0, next,
            sums);
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            const int count = columns - first - v*int_lanes;
            const int64_t column = column_0 + first + v*int_lanes;
            const int_vec bias_at_column = load_i32(&bias[column], count);
            const float_vec scale_at_column = load_f32(&scale[column], count);
            #pragma GCC unroll 16
            for (int i = 0; i < rows; i++) {
                const int64_t row = row_0 + i;
                const int_vec sum = sums[i][v];
                store_f32(&dequantize[row*32 + column],
                    product_f32(CONVERT(sum + bias_at_column, float_vec), scale_at_column), count);
            }
        }
    }
}

TILE_FUNCTION
static void k0_dequantize_tile(int rows, int columns, int64_t row_0, int64_t column_0,
                               const void *a_tile, int64_t a_row, const int32_t *b_panel,
                               const int32_t *next, const uint8_t *restrict x,
                               const int32_t *restrict weight_packed, const int32_t *restrict bias,
                               const float *restrict scale, float *restrict dequantize)
{
    (void)columns, (void)x, (void)weight_packed;
    #ifdef HAS_TILES
    int32_t tile[QUAD_ROWS*32];
    add_block_u8(rows, columns, 40, a_tile, a_row, b_panel + 32, b_panel, next, tile);
    for (int64_t j = 0; j < columns; j += int_lanes) {
        const int count = (int)(columns - j);
        const int64_t column = column_0 + j;
        const int_vec bias_at_column = load_i32(&bias[column], count);
        const float_vec scale_at_column = load_f32(&scale[column], count);
        for (int64_t i = 0; i < rows; ++i) {
            const int64_t row = row_0 + i;
            const int_vec sum = *(const int_vec *)&tile[i*32 + j];
            store_f32(&dequantize[row*32 + column],
                product_f32(CONVERT(sum + bias_at_column, float_vec), scale_at_column), count);
        }
    }
    #else
    /* Tiles have LOW rows, or one more where LOW does not divide all rows. */
    enum { TILES = (24 + TILE_ROWS - 1) / TILE_ROWS };
    enum { LOW = 24 / TILES, HIGH = LOW + (24 % TILES > 0) };
    if (rows == LOW || LOW == HIGH)
        k0_dequantize_sums(LOW, 32, row_0, column_0, a_tile, a_row, b_panel, next, x,
            weight_packed, bias, scale, dequantize);
    else
        k0_dequantize_sums(HIGH, 32, row_0, column_0, a_tile, a_row, b_panel, next, x,
            weight_packed, bias, scale, dequantize);
    #endif
}

/* dequantize: f32[24,32] = int_linear -> dequantize
 * program.py:1
 * m = 24, n = 32, k = 40; tiles of QUAD_ROWS x 32.
 * The weight is packed, in panels of 32 columns of quads. */
static void k0_dequantize(const uint8_t *restrict x, const int32_t *restrict weight_packed,
                          const int32_t *restrict bias, const float *restrict scale,
                          float *restrict dequantize)
{
    const int64_t row_tiles = (24 + QUAD_ROWS - 1) / QUAD_ROWS;
    /* 4 tiles of rows at a time pass over the small weight. */
    const int64_t row_blocks = (row_tiles + 3) / 4;
    const int64_t panel_size = (10 + 1)*32;
    for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
        take_tiles();
        const int32_t *const b_panel = weight_packed;
        const int32_t *const quads = b_panel + 32;
        /* Tiles of rows fetch the next panel meanwhile. */
        const int32_t *const next = quads + (row_tiles > 1 ? panel_size : 0);
        for (int64_t tile_index = row_block*row_tiles / row_blocks;
             tile_index < (row_block + 1)*row_tiles / row_blocks; ++tile_index) {
            const int64_t row_0 = first_tile_row(tile_index, row_tiles, 24, QUAD_ROWS);
            const int rows = (int)(first_tile_row(tile_index + 1, row_tiles, 24, QUAD_ROWS)
                - row_0);
            k0_dequantize_tile(rows, 32, row_0, 0, x + row_0*40, 40, b_panel,
                next + (tile_index % 2)*160, x, weight_packed, bias, scale, dequantize);
        }
        release_tiles();
    }
}
