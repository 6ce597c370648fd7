/* recurrence: f32[T+2,B,8] = recurrence
 * program.py:1
 * c' = sigmoid(f) * c + sigmoid(i) * tanh(g), h' = sigmoid(o) * tanh(c');
 * blocks of 32 hidden units. */
static void k0_recurrence(const float *restrict gates, const float *restrict weight_hh,
                          const float *restrict h0, const float *restrict c0,
                          const float *restrict bias_hh, float *restrict states, int64_t steps,
                          int64_t batch, int n_threads)
{
    /* After the states of all steps comes the last one, and the cells of the current step. */
    float *const last_state = states + batch*steps*8;
    float *const cells = last_state + batch*8;
    fx_copy(cells, c0, batch*8 * (int64_t)sizeof(float));
    const int64_t row_tiles = count_row_tiles(batch, TILE_ROWS);
    const int64_t step_work = batch*256;
    const int64_t parts = step_work*steps < PARALLEL_PRODUCTS ? 1 : fx_min(n_threads, row_tiles);
    #pragma omp parallel for schedule(static) num_threads(parts) if (parts > 1)
    for (int64_t part = 0; part < parts; ++part) {
        const int64_t first_tile = part*row_tiles / parts;
        const int64_t end_tile = (part + 1)*row_tiles / parts;
        for (int64_t step = 0; step < steps; ++step) {
            float *const next = states + batch*step*8;
            const float *const state = step == 0 ? h0 : next - batch*8;
            const float *const inputs = gates + batch*step*32;
            for (int64_t tile = first_tile; tile < end_tile; ++tile) {
                const int64_t row_0 = batch*tile / row_tiles;
                const int rows = (int)((tile + 1)*batch / row_tiles - row_0);
                float sums[4][TILE_ROWS*32];
                for (int64_t gate = 0; gate < 4; ++gate) {
                    multiply_tile_float(rows, 8, 8, state + row_0*8, 8, weight_hh + gate*256,
                        sums[gate]);
                }
                for (int64_t i = 0; i < rows; ++i) {
                    const int64_t row = row_0 + i;
                    #pragma omp simd
                    for (int64_t j = 0; j < 8; ++j) {
                        const float in = fx_sigmoid_f32(inputs[row*32 + j]
                            + (sums[0][i*32 + j] + bias_hh[j]));
                        const float forget = fx_sigmoid_f32(inputs[row*32 + j + 8]
                            + (sums[1][i*32 + j] + bias_hh[j + 8]));
                        const float fresh = fx_tanh_f32(inputs[row*32 + j + 16]
                            + (sums[2][i*32 + j] + bias_hh[j + 16]));
                        const float out = fx_sigmoid_f32(inputs[row*32 + j + 24]
                            + (sums[3][i*32 + j] + bias_hh[j + 24]));
                        const float cell = forget * cells[row*8 + j] + in * fresh;
                        cells[row*8 + j] = cell;
                        next[row*8 + j] = out * fx_tanh_f32(cell);
                    }
                }
            }
        }
    }
    fx_copy(last_state, steps == 0 ? h0 : last_state - batch*8, batch*8 * (int64_t)sizeof(float));
}
