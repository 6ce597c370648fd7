/* cast_bf16: bf16[24,40] = cast -> cast
 * program.py:1 */
static void k0_cast_bf16(const uint16_t *restrict x, uint16_t *restrict cast_bf16) {
    #pragma omp simd
    for (int64_t i = 0; i < 960; ++i) {
        cast_bf16[i] = fx_bf16_from_f32(fx_f32_from_bf16(x[i]));
    }
}

/* A tile of the function below: sums are finished in registers, and stored. */
TILE_INLINE
static void k1_relu_sums(const int rows, const int columns, int64_t row_0, int64_t column_0,
                         const uint32_t *a_tile, int64_t a_row, const uint32_t *b_tile,
                         const uint16_t *restrict cast_bf16, const uint32_t *restrict weight_packed,
                         float *restrict relu)
{
    (void)cast_bf16, (void)weight_packed;
    #pragma GCC unroll 4
    for (int first = 0; first < columns; first += 2*float_lanes) {
        const int vectors = columns - first > float_lanes ? 2 : 1;
        float_vec sums[TILE_ROWS][2];
        sum_rows_bf16(rows, vectors, 1, 20, a_tile, a_row, b_tile + first, sums);
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            const int count = columns - first - v*float_lanes;
            const int64_t column = column_0 + first + v*float_lanes;
            #pragma GCC unroll 16
            for (int i = 0; i < rows; i++) {
                const int64_t row = row_0 + i;
                const float_vec sum = sums[i][v];
                store_float(&relu[row*32 + column], maximum_float(sum, all_float(0.0f)), count);
            }
        }
    }
}

TILE_FUNCTION
static void k1_relu_tile(int rows, int columns, int64_t row_0, int64_t column_0,
                         const uint32_t *a_tile, int64_t a_row, const uint32_t *b_tile,
                         const uint16_t *restrict cast_bf16, const uint32_t *restrict weight_packed,
                         float *restrict relu)
{
    (void)columns, (void)cast_bf16, (void)weight_packed;
    #ifdef HAS_TILES
    float tile[PAIR_ROWS*32];
    multiply_tile_bf16(rows, columns, 20, a_tile, a_row, b_tile, tile);
    for (int64_t j = 0; j < columns; j += float_lanes) {
        const int count = (int)(columns - j);
        const int64_t column = column_0 + j;
        for (int64_t i = 0; i < rows; ++i) {
            const int64_t row = row_0 + i;
            const float_vec sum = *(const float_vec *)&tile[i*32 + j];
            store_float(&relu[row*32 + column], maximum_float(sum, all_float(0.0f)), count);
        }
    }
    #else
    /* Tiles have LOW rows, or one more where LOW does not divide all rows. */
    enum { TILES = (24 + TILE_ROWS - 1) / TILE_ROWS };
    enum { LOW = 24 / TILES, HIGH = LOW + (24 % TILES > 0) };
    if (rows == LOW || LOW == HIGH)
        k1_relu_sums(LOW, 32, row_0, column_0, a_tile, a_row, b_tile, cast_bf16, weight_packed,
            relu);
    else
        k1_relu_sums(HIGH, 32, row_0, column_0, a_tile, a_row, b_tile, cast_bf16, weight_packed,
            relu);
    #endif
}

/* relu: f32[24,32] = linear -> relu
 * program.py:1
 * m = 24, n = 32, k = 40; tiles of PAIR_ROWS x 32.
 * The weight is packed, in panels of 32 columns.
 * K is short: the epilogue runs in the registers of a tile.
 * The left operand is bf16, the weight rounded to it; sums are float. */
static void k1_relu(const uint16_t *restrict cast_bf16, const uint32_t *restrict weight_packed,
                    float *restrict relu)
{
    const int64_t row_tiles = (24 + PAIR_ROWS - 1) / PAIR_ROWS;
    const int64_t row_blocks = count_row_blocks(row_tiles, PAIR_ROWS*80, 1, 1);
    for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
        take_tiles();
        const uint32_t *const b_panel = weight_packed;
        for (int64_t tile_index = row_block*row_tiles / row_blocks;
             tile_index < (row_block + 1)*row_tiles / row_blocks; ++tile_index) {
            const int64_t row_0 = first_tile_row(tile_index, row_tiles, 24, PAIR_ROWS);
            const int rows = (int)(first_tile_row(tile_index + 1, row_tiles, 24, PAIR_ROWS)
                - row_0);
            k1_relu_tile(rows, 32, row_0, 0, (const uint32_t *)(cast_bf16 + row_0*40), 20, b_panel,
                cast_bf16, weight_packed, relu);
        }
        release_tiles();
    }
}
