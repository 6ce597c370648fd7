/* cast_bf16: bf16[24,40] = cast -> cast
 * program.py:1 */
static void k0_cast_bf16(const uint16_t *restrict x, uint16_t *restrict cast_bf16) {
    #pragma omp simd
    for (int64_t i = 0; i < 960; ++i) {
        cast_bf16[i] = fx_bf16_from_f32(fx_f32_from_bf16(x[i]));
    }
}

/* relu: f32[24,32] = linear -> relu
 * program.py:1
 * m = 24, n = 32, k = 40; tiles of PAIR_ROWS x 32.
 * The weight is packed, in panels of 32 columns.
 * K is short: the epilogue runs in the registers of a tile.
 * The left operand is bf16, the weight rounded to it; sums are float. */
inline __attribute__((always_inline))
static void k1_relu_sums(const int rows, const int columns, int64_t row_0, int64_t column_0,
                         const uint32_t *a_tile, int64_t a_row, const uint32_t *b_tile,
                         const uint16_t *restrict cast_bf16, const uint32_t *restrict weight_packed,
                         float *restrict relu)
{
    #pragma GCC unroll 4
    for (int first = 0; first < columns; first += 2 * float_lanes) {
        const int vectors = columns - first > float_lanes ? 2 : 1;
        float_vec sum[TILE_ROWS][2];
        sum_rows_bf16(rows, vectors, 1, 20, a_tile, a_row, b_tile + first, sum);
        #pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            const int64_t row = row_0 + i;
            #pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) {
                const int count = columns - first - v * float_lanes;
                const int64_t column = column_0 + first + v * float_lanes;
                store_float(&relu[row*32 + column], maximum_float(sum[i][v], all_float(0.0f)),
                    count);
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
    #ifdef HAS_TILES
    float tile[PAIR_ROWS * 32];
    multiply_tile_bf16(rows, columns, 20, a_tile, a_row, b_tile, tile);
    for (int i = 0; i < rows; i++) {
        const int64_t row = row_0 + i;
        #pragma GCC unroll 8
        for (int v = 0; v < (columns + float_lanes - 1) / float_lanes; v++) {
            const int count = columns - v * float_lanes;
            const int64_t column = column_0 + v * float_lanes;
            store_float(&relu[row*32 + column], maximum_float((*(float_vec *)(tile + i * 32 + v
                * float_lanes)), all_float(0.0f)), count);
        }
    }
    #else
    /* Tiles have LOW rows, or one more. */
    enum { LOW = 24 / ((24 + TILE_ROWS - 1) / TILE_ROWS), HIGH = LOW < TILE_ROWS ? LOW + 1 : LOW };
    if (rows == LOW)
        k1_relu_sums(LOW, 32, row_0, column_0, a_tile, a_row, b_tile, cast_bf16, weight_packed,
            relu);
    else
        k1_relu_sums(HIGH, 32, row_0, column_0, a_tile, a_row, b_tile, cast_bf16, weight_packed,
            relu);
    #endif
}

static void k1_relu(const uint16_t *restrict cast_bf16, const uint32_t *restrict weight_packed,
                    float *restrict relu)
{
    const int64_t row_tiles = (24 + PAIR_ROWS - 1) / PAIR_ROWS;
    const int64_t row_blocks = count_row_blocks(row_tiles, PAIR_ROWS * 80, 1, 1);
    for (int64_t row_block = 0; row_block < row_blocks; row_block++) {
        for (int64_t panel = 0; panel < 1; panel++) {
            const int64_t column_0 = panel * 32;
            const int columns = 32;
            const uint32_t *const b_panel = weight_packed + panel * 640;
            take_tiles();
            for (int64_t tile_index = row_block * row_tiles / row_blocks;
                 tile_index < (row_block + 1) * row_tiles / row_blocks; tile_index++) {
                const int64_t row_0 = first_tile_row(tile_index, row_tiles, 24, PAIR_ROWS);
                const int rows = first_tile_row(tile_index + 1, row_tiles, 24, PAIR_ROWS) - row_0;
                k1_relu_tile(rows, columns, row_0, column_0,
                    (const uint32_t *)(cast_bf16 + row_0 * 40), 20, b_panel, cast_bf16,
                    weight_packed, relu);
            }
            release_tiles();
        }
    }
}
