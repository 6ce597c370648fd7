/* int_recurrence: f32[5,1,32] = int_recurrence
 * program.py:1
 * h' = tanh(x + W h);
 * each row of h is rounded to i8 by a scale of its own in each step;
 * blocks of 32 hidden units. */
static void k0_int_recurrence(const float *restrict gates, const int32_t *restrict weight_hh,
                              const float *restrict weight_scale, const float *restrict h0,
                              float *restrict states, void *restrict workspace, int n_threads)
{
    const int64_t steps = 4;
    const int64_t batch = 1;
    const int64_t size = 32;
    float *const last_state = states + steps * batch * size;
    const float *const final_state = steps == 0 ? h0
                                     : last_state - batch * size;
    float *const row_scales = workspace;  /* of the state before a step */
    uint8_t *const rounded = (uint8_t *)(row_scales + batch);
    const int64_t blocks = (size + 31) / 32;
    int64_t row_tiles = (batch + QUAD_ROWS - 1) / QUAD_ROWS;
    if (row_tiles > 2) row_tiles = (row_tiles + 3) / 4 * 4;  /* threads share evenly */
    /* Threads take tiles of rows for all steps; where there are not enough tiles for them,
     * blocks of hidden units, step by step. */
    const int by_rows = row_tiles >= n_threads;
    int64_t parts = by_rows || n_threads <= blocks ? n_threads : blocks;
    const int64_t step_work = batch * size * size / 4;  /* by integers */
    if (by_rows ? steps * step_work < PARALLEL_PRODUCTS
        : step_work < 40000) /* multiply-adds of a parallel loop */
        parts = 1;
    for (int64_t round = 0; round < (by_rows ? 1 : steps); round++) {
        if (!by_rows) {
            const int64_t step = round;
            const int64_t time = step;
            const float *const state = step == 0 ? h0 : states + (time - 1) * batch * size;
            for (int64_t row = 0; row < batch; row++) {
                row_scales[row] = scale_of_state(size, state + row * size);
                round_state(size, state + row * size, row_scales[row], 0, -127, 127, 128,
                    rounded + row * size);
            }
        }
        #pragma omp parallel for schedule(static) num_threads(parts) if (parts > 1)
        for (int64_t part = 0; part < parts; part++) {
            take_tiles();
            const int64_t first_tile = by_rows ? part * row_tiles / parts : 0;
            const int64_t end_tile = by_rows ? (part + 1) * row_tiles / parts : row_tiles;
            const int64_t first_block = !by_rows ? part * blocks / parts : 0;
            const int64_t end_block = !by_rows ? (part + 1) * blocks / parts : blocks;
            const int64_t end_step = by_rows ? steps : round + 1;
            for (int64_t step = round; step < end_step; step++) {
                const int64_t time = step;
                const float *const state = step == 0 ? h0 : states + (time - 1) * batch * size;
                float *const next = states + time * batch * size;
                const float *const inputs = gates + time * batch * size * 1;
                if (by_rows) {
                    const int64_t first_row = first_tile * batch / row_tiles;
                    const int64_t end_row = end_tile * batch / row_tiles;
                    for (int64_t row = first_row; row < end_row; row++) {
                        row_scales[row] = scale_of_state(size, state + row * size);
                        round_state(size, state + row * size, row_scales[row], 0, -127, 127, 128,
                            rounded + row * size);
                    }
                }
                for (int64_t block = first_block; block < end_block; block++) {
                    for (int64_t tile = first_tile; tile < end_tile; tile++) {
                        const int64_t row_0 = tile * batch / row_tiles;
                        const int rows = (int)((tile + 1) * batch / row_tiles - row_0);
                        const int64_t unit_0 = block * 32;
                        const int units = (int)(size - unit_0 < 32 ? size - unit_0 : 32);
                        int32_t sums[1][QUAD_ROWS * 32];
                        for (int64_t gate = 0; gate < 1; gate++)
                            multiply_tile_u8(rows, units, size, rounded + row_0 * size, size,
                                weight_hh + (block * 1 + gate) * (1 + (size + 3) / 4) * 32,
                                sums[gate]);
                        for (int64_t i = 0; i < rows; i++) {
                            const int64_t row = row_0 + i;
                            const float row_scale = row_scales[row];
                            #pragma omp simd
                            for (int64_t j = 0; j < units; j++) {
                                const int64_t unit = unit_0 + j;
                                next[row * size + unit] =
                                    fx_tanh_f32(inputs[row * size + unit]
                                    + fx_product_f32((float)sums[0][i * 32 + j],
                                    row_scale * weight_scale[unit]));
                            }
                        }
                    }
                }
            }
            release_tiles();
        }
    }
    fx_copy(last_state, final_state, batch * size * sizeof(*states));
}
