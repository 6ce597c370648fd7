/* recurrence: f32[T+2,B,8] = recurrence
 * program.py:1
 * c' = sigmoid(f) * c + sigmoid(i) * tanh(g), h' = sigmoid(o) * tanh(c');
 * blocks of 32 hidden units. */
static void k0_recurrence(const float *restrict gates, const float *restrict weight_hh,
                          const float *restrict h0, const float *restrict c0,
                          const float *restrict bias_hh, float *restrict states, int64_t steps,
                          int64_t batch, int n_threads)
{
    const int64_t size = 8;
    float *const last_state = states + steps * batch * size;
    float *const cells = last_state + batch * size;  /* of the current step */
    fx_copy(cells, c0, batch * size * sizeof(float));
    const float *const final_state = steps == 0 ? h0
                                     : last_state - batch * size;
    const int64_t blocks = (size + 31) / 32;
    int64_t row_tiles = (batch + TILE_ROWS - 1) / TILE_ROWS;
    if (row_tiles > 2) row_tiles = (row_tiles + 3) / 4 * 4;  /* threads share evenly */
    /* Threads take tiles of rows for all steps; where there are not enough tiles for them,
     * blocks of hidden units, step by step. */
    const int by_rows = row_tiles >= n_threads;
    int64_t parts = by_rows || n_threads <= blocks ? n_threads : blocks;
    const int64_t step_work = batch * size * size * 4;
    if (by_rows ? steps * step_work < PARALLEL_PRODUCTS
        : step_work < 40000) /* multiply-adds of a parallel loop */
        parts = 1;
    for (int64_t round = 0; round < (by_rows ? 1 : steps); round++) {
        #pragma omp parallel for schedule(static) num_threads(parts) if (parts > 1)
        for (int64_t part = 0; part < parts; part++) {
            const int64_t first_tile = by_rows ? part * row_tiles / parts : 0;
            const int64_t end_tile = by_rows ? (part + 1) * row_tiles / parts : row_tiles;
            const int64_t first_block = !by_rows ? part * blocks / parts : 0;
            const int64_t end_block = !by_rows ? (part + 1) * blocks / parts : blocks;
            const int64_t end_step = by_rows ? steps : round + 1;
            for (int64_t step = round; step < end_step; step++) {
                const int64_t time = step;
                const float *const state = step == 0 ? h0 : states + (time - 1) * batch * size;
                float *const next = states + time * batch * size;
                const float *const inputs = gates + time * batch * size * 4;
                for (int64_t block = first_block; block < end_block; block++) {
                    for (int64_t tile = first_tile; tile < end_tile; tile++) {
                        const int64_t row_0 = tile * batch / row_tiles;
                        const int rows = (int)((tile + 1) * batch / row_tiles - row_0);
                        const int64_t unit_0 = block * 32;
                        const int units = (int)(size - unit_0 < 32 ? size - unit_0 : 32);
                        float sums[4][TILE_ROWS * 32];
                        for (int64_t gate = 0; gate < 4; gate++)
                            multiply_tile_float(rows, units, size, state + row_0 * size, size,
                                weight_hh + (block * 4 + gate) * size * 32, sums[gate]);
                        for (int64_t i = 0; i < rows; i++) {
                            const int64_t row = row_0 + i;
                            #pragma omp simd
                            for (int64_t j = 0; j < units; j++) {
                                const int64_t unit = unit_0 + j;
                                const float in = fx_sigmoid_f32(inputs[row * 4 * size + unit]
                                    + (sums[0][i * 32 + j] + bias_hh[unit]));
                                const float forget = fx_sigmoid_f32(inputs[row * 4 * size + size
                                    + unit] + (sums[1][i * 32 + j] + bias_hh[size + unit]));
                                const float fresh = fx_tanh_f32(inputs[row * 4 * size + size * 2
                                    + unit] + (sums[2][i * 32 + j] + bias_hh[size * 2 + unit]));
                                const float out = fx_sigmoid_f32(inputs[row * 4 * size + size * 3
                                    + unit] + (sums[3][i * 32 + j] + bias_hh[size * 3 + unit]));
                                const float cell = forget * cells[row * size + unit] + in * fresh;
                                cells[row * size + unit] = cell;
                                next[row * size + unit] = out * fx_tanh_f32(cell);
                            }
                        }
                    }
                }
            }
        }
    }
    fx_copy(last_state, final_state, batch * size * sizeof(*states));
}
