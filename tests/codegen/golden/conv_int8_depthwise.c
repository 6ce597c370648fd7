/* requantize: u8[1,8,8,16] = int_conv2d -> requantize
 * program.py:1
 * program.py:2
 * 3x3, each of 16 channels on its own; tiles of two output rows of up to 8 pixels x 64 channels.
 * Four rows of the image are interleaved into quads, one for each column and channel. */
static void k0_requantize(const uint8_t *restrict x, const int32_t *restrict weight_packed,
                          const float *restrict scale, uint8_t *restrict requantize)
{
    for (int64_t row_step = 0; row_step < 4; ++row_step) {
        const int32_t *const weights = weight_packed;
        const int64_t oh_0 = row_step*2;
        uint8_t outside[64];
        memset(outside, 7, 64);
        const uint8_t *rows[4];
        int64_t steps[4];
        find_rows(oh_0 - 1, 4, 1, 8, 128, 16, x, outside, rows, steps);
        /* The columns of the image that a tile reads: four rows in a quad. */
        int32_t woven[640];
        weave_u8(10, 16, -1, 8, rows, steps, 7, woven);
        for (int j = 0; j < 16; j += int_lanes) {
            const int count = (int)(16 - j);
            const float_vec scale_at_j = load_f32(&scale[j], count);
            int_vec kernel[3][2];
            load_kernel(2, 3, weights + j + 64, kernel);
            for (int64_t i = 0; i < 8; ++i) {
                int_vec sums[2];
                #pragma GCC unroll 2
                for (int64_t o = 0; o < 2; ++o) {
                    sums[o] = *(const int_vec *)(weights + j);
                }
                add_columns(2, 3, woven + i*64 + j, kernel, sums);
                #pragma GCC unroll 2
                for (int64_t o = 0; o < 2; ++o) {
                    const int64_t oh = oh_0 + o;
                    const int_vec sum = sums[o];
                    store_rounded_u8(&requantize[(oh*8 + i)*16 + j],
                        CONVERT(sum, float_vec) * scale_at_j, 3, 0, 255,
                        count);
                }
            }
        }
    }
}
