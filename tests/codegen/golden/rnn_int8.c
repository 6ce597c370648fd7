/* int_recurrence: f32[5,1,32] = int_recurrence
 * program.py:1
 * h' = tanh(x + W h);
 * each row of h is rounded to i8 by a scale of its own in each step;
 * blocks of 32 hidden units. */
static void k0_int_recurrence(const float *restrict gates, const int32_t *restrict weight_hh,
                              const float *restrict weight_scale, const float *restrict h0,
                              float *restrict states, void *restrict workspace)
{
    /* After the states of all steps comes the last one. */
    float *const last_state = states + 128;
    /* The state before a step. */
    float *const row_scales = workspace;
    uint8_t *const rounded = (uint8_t *)(row_scales + 1);
    take_tiles();
    for (int64_t step = 0; step < 4; ++step) {
        float *const next = states + step*32;
        const float *const state = step == 0 ? h0 : next - 32;
        const float *const inputs = gates + step*32;
        row_scales[0] = scale_of_state(32, state);
        round_state(32, state, row_scales[0], 0, -127, 127, 128, rounded);
        int32_t sums[1][QUAD_ROWS*32];
        multiply_tile_u8(1, 32, 32, rounded, 32, weight_hh, sums[0]);
        const float row_scale = row_scales[0];
        #pragma omp simd
        for (int64_t j = 0; j < 32; ++j) {
            next[j] = fx_tanh_f32(inputs[j] + fx_product_f32((float)sums[0][j],
                row_scale * weight_scale[j]));
        }
    }
    release_tiles();
    fx_copy(last_state, last_state - 32, 32 * (int64_t)sizeof(float));
}
