/* conv2d: f32[1,8,8,32] = conv2d
 * program.py:1
 * 3x3, 16 -> 32 channels; tiles of PAIR_ROWS pixels x 32 output channels.
 * Operands are split in two bf16, in pairs that lie side by side; sums are float.
 * For a processor with AMX. */
static void k0_conv2d(const float *restrict x, const uint32_t *restrict weight_packed,
                      float *restrict conv2d, void *restrict workspace)
{
    /* The offset of each run of the kernel from its first pixel. */
    const int64_t run[3] = {0, 320, 640};
    const int64_t at_once = rows_at_once(8, 32, 320);
    const int64_t row_groups = (at_once + 7) / at_once;
    const int64_t row_blocks = count_row_blocks(row_groups, at_once*320, 1, 1);
    uint16_t *const padded = workspace;
    memset(padded + 3200, 0, 64); /* behind the last run */
    /* The images, channels last, with their padding. */
    for (int64_t i = 0; i < 10; ++i) {
        pad_row_rounded(i >= 1 && i < 9 ? 8 : 0, 16, x + i*128 - 128, 16, 1, 1, 10, padded + i*160,
            padded + i*160 + 1600);
    }
    /* The convolution. */
    for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
        const uint32_t *const weights = weight_packed;
        const uint8_t *const image = (const uint8_t *)(padded);
        uint32_t ends[3072];
        copy_ends(3, 24, weights, ends);
        copy_ends(3, 24, weights + 2304, ends + 1536);
        take_tiles();
        for (int64_t row_group = row_block*row_groups / row_blocks;
             row_group < (row_block + 1)*row_groups / row_blocks; ++row_group) {
            const int64_t oh_0 = at_once*row_group;
            const int64_t rows = rows_of_tile(8 - oh_0, at_once);
            const int64_t tiles = (PAIR_ROWS + 7) / PAIR_ROWS;
            for (int64_t tile_index = 0; tile_index < tiles; ++tile_index) {
                const int64_t ow_0 = first_tile_row(tile_index, tiles, 8, PAIR_ROWS);
                const int pixels = (int)(first_tile_row(tile_index + 1, tiles, 8, PAIR_ROWS)
                    - ow_0);
                float tile[PAIR_ROWS * 32] ALIGNED(64);
                sum_places_split(rows, pixels, 32, 3, 48, image + oh_0*320 + ow_0*32, 3200, 32,
                    320, run, weights, ends, tile);
                for (int64_t row = 0; row < rows; ++row) {
                    const int64_t oh = oh_0 + row;
                    const float *const sums = tile + place_of_row(row, pixels, 32, 320)*32;
                    for (int64_t i = 0; i < pixels; ++i) {
                        const int64_t ow = ow_0 + i;
                        #pragma omp simd
                        for (int64_t j = 0; j < 32; ++j) {
                            conv2d[(oh*8 + ow)*32 + j] = sums[i*32 + j];
                        }
                    }
                }
            }
        }
        release_tiles();
    }
}
