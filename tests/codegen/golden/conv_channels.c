/* relu: f32[1,32,8,8] = conv2d -> relu
 * program.py:1
 * 3x3, 16 -> 32 channels; tiles of TILE_ROWS pixels of a row x 32 output channels.
 * Not Winograd's convolution: that is for stride 1, dilation 1 and one group. */
static void k0_relu(const float *restrict x, const float *restrict weight_packed,
                    const float *restrict bias, float *restrict relu, void *restrict workspace)
{
    /* The offset of each weight's pixel from the pixel of the first weight. */
    const int64_t tap[9] = {0, 1, 2, 18, 19, 20, 36, 37, 38};
    const int64_t row_blocks = count_row_blocks(8, 2304, 1, 1);
    float *const padded = workspace;
    /* The images with zeros around them. */
    for (int64_t plane = 0; plane < 16; ++plane) {
        pad_plane_float(16, 16, x + plane*256, 1, 1, 18, 18, padded + plane*324);
    }
    /* The convolution. */
    for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
        const float *const weights = weight_packed;
        const float *const image = padded;
        float tile[16 * 32] = {0}, turned[32 * 80];
        for (int64_t oh = row_block*8 / row_blocks; oh < (row_block*8 + 8) / row_blocks; ++oh) {
            fetch_rows(32, 8, relu + oh*8, 64);
            const int64_t tiles = (TILE_ROWS + 7) / TILE_ROWS;
            for (int64_t tile_index = 0; tile_index < tiles; ++tile_index) {
                const int64_t first = tile_index*8 / tiles;
                const int count = (int)((tile_index*8 + 8) / tiles - first);
                sum_tile_float(count, 32, 16, 9, image + oh*36 + first*2, 324, tap, 2, weights,
                    tile);
                copy_transposed_float(16, 32, tile, 32, turned + first, 80);
            }
            for (int64_t j = 0; j < 32; ++j) {
                #pragma omp simd
                for (int64_t i = 0; i < 8; ++i) {
                    relu[(j*8 + oh)*8 + i] = fx_maximum_f32(turned[j*80 + i] + bias[j], 0.0f);
                }
            }
        }
    }
}
