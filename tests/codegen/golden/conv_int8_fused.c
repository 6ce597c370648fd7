/* A tile of the function below: sums are finished in registers, and stored. */
TILE_INLINE
static void k0_requantize_sums(const int pixels, const int columns, const uint8_t *place,
                               const int64_t *run, const int32_t *weights, const int32_t *ends,
                               int64_t n, int64_t oh_0, int64_t ow_0, int64_t first_channel,
                               const uint8_t *restrict x, const int32_t *restrict weight_packed,
                               const float *restrict scale, uint8_t *restrict requantize)
{
    (void)ends, (void)n, (void)x, (void)weight_packed;
    #pragma GCC unroll 4
    for (int first = 0; first < columns; first += 2 * int_lanes) {
        const int vectors = columns - first > int_lanes ? 2 : 1;
        int_vec sums[TILE_ROWS][2];
        sum_pixels_int8(pixels, vectors, 3, 12, place, 16, run, weights + first, sums);
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            const int count = (int)(columns - first - int_lanes*v);
            const int64_t k = first_channel + first + int_lanes*v;
            const float_vec scale_at_k = load_f32(&scale[k], count);
            #pragma GCC unroll 16
            for (int64_t i = 0; i < pixels; ++i) {
                const int64_t ow = ow_0 + i;
                const int_vec sum = sums[i][v];
                store_rounded_u8(&requantize[(oh_0*8 + ow)*32 + k],
                    CONVERT(sum, float_vec) * scale_at_k, 3, 0,
                    255, count);
            }
        }
    }
}

TILE_FUNCTION
static void k0_requantize_tile(int64_t rows, int pixels, int columns, const uint8_t *place,
                               const int64_t *run, const int32_t *weights, const int32_t *ends,
                               int64_t n, int64_t oh_0, int64_t ow_0, int64_t first_channel,
                               const uint8_t *restrict x, const int32_t *restrict weight_packed,
                               const float *restrict scale, uint8_t *restrict requantize)
{
    (void)rows, (void)columns, (void)n, (void)x, (void)weight_packed;
    #ifdef HAS_TILES
    int32_t tile[QUAD_ROWS * 32] ALIGNED(64);
    sum_places_u8(rows, pixels, columns, 3, 12, place, 16, 160, run, weights, ends, tile);
    for (int64_t row = 0; row < rows; ++row) {
        const int64_t oh = oh_0 + row;
        const int32_t *const sums = tile + place_of_row(row, pixels, 16, 160)*32;
        for (int j = 0; j < columns; j += int_lanes) {
            const int count = (int)(columns - j);
            const int64_t k = first_channel + j;
            const float_vec scale_at_k = load_f32(&scale[k], count);
            for (int64_t i = 0; i < pixels; ++i) {
                const int64_t ow = ow_0 + i;
                const int_vec sum = *(const int_vec *)&sums[i*32 + j];
                store_rounded_u8(&requantize[(oh*8 + ow)*32 + k],
                    CONVERT(sum, float_vec) * scale_at_k, 3, 0, 255,
                    count);
            }
        }
    }
    #else
    /* Tiles have LOW rows, or one more where LOW does not divide all rows. */
    enum { TILES = (8 + TILE_ROWS - 1) / TILE_ROWS };
    enum { LOW = 8 / TILES, HIGH = LOW + (8 % TILES > 0) };
    if (pixels == LOW || LOW == HIGH)
        k0_requantize_sums(LOW, 32, place, run, weights, ends, n, oh_0, ow_0, first_channel, x,
            weight_packed, scale, requantize);
    else
        k0_requantize_sums(HIGH, 32, place, run, weights, ends, n, oh_0, ow_0, first_channel, x,
            weight_packed, scale, requantize);
    #endif
}

/* requantize: u8[1,8,8,32] = int_conv2d -> requantize
 * program.py:1
 * program.py:2
 * 3x3, 16 -> 32 channels; tiles of QUAD_ROWS pixels x 32 output channels.
 * The weight is packed, in panels of 32 columns of quads. */
static void k0_requantize(const uint8_t *restrict x, const int32_t *restrict weight_packed,
                          const float *restrict scale, uint8_t *restrict requantize,
                          void *restrict workspace)
{
    /* The offset of each run of the kernel from its first pixel. */
    const int64_t run[3] = {0, 160, 320};
    const int64_t at_once = rows_at_once(8, 16, 160);
    const int64_t row_groups = (at_once + 7) / at_once;
    const int64_t row_blocks = count_row_blocks(row_groups, at_once*160, 1, 1);
    uint8_t *const padded = workspace;
    /* The images, channels last, with their padding. */
    for (int64_t i = 0; i < 10; ++i) {
        pad_row_bytes(i >= 1 && i < 9 ? 8 : 0, 16, x + i*128 - 128, 16, 1, 1, 10, 7, 0,
            padded + i*160);
    }
    /* The convolution. */
    for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
        const int32_t *const weights = weight_packed;
        const uint8_t *const image = padded;
        int32_t ends[1536];
        copy_ends(3, 12, weights + 32, ends);
        take_tiles();
        for (int64_t row_group = row_block*row_groups / row_blocks;
             row_group < (row_block + 1)*row_groups / row_blocks; ++row_group) {
            const int64_t oh_0 = at_once*row_group;
            const int64_t rows = rows_of_tile(8 - oh_0, at_once);
            const int64_t tiles = (QUAD_ROWS + 7) / QUAD_ROWS;
            for (int64_t tile_index = 0; tile_index < tiles; ++tile_index) {
                const int64_t ow_0 = first_tile_row(tile_index, tiles, 8, QUAD_ROWS);
                const int pixels = (int)(first_tile_row(tile_index + 1, tiles, 8, QUAD_ROWS)
                    - ow_0);
                k0_requantize_tile(rows, pixels, 32, image + oh_0*160 + ow_0*16, run, weights,
                    ends, 0, oh_0, ow_0, 0, x, weight_packed, scale, requantize);
            }
        }
        release_tiles();
    }
}
