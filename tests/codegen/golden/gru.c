/* recurrence: f32[5,B,8] = recurrence
 * program.py:1
 * h' = (1 - sigmoid(z)) * tanh(n + sigmoid(r) * n_h) + sigmoid(z) * h;
 * blocks of 32 hidden units. */
static void k0_recurrence(const float *restrict gates, const float *restrict weight_hh,
                          const float *restrict h0, const float *restrict bias_hh,
                          float *restrict states, int64_t batch, void *restrict workspace,
                          int n_threads)
{
    /* After the states of all steps comes the last one. */
    float *const last_state = states + batch*32;
    float *const panels = workspace;
    for (int64_t gate = 0; gate < 3; ++gate) {
        pack_panel_float(8, 8, weight_hh + gate*64, 1, 8, panels + gate*256);
    }
    const int64_t row_tiles = count_row_tiles(batch, TILE_ROWS);
    const int64_t step_work = batch*192;
    const int64_t parts = step_work*4 < PARALLEL_PRODUCTS ? 1 : fx_min(n_threads, row_tiles);
    #pragma omp parallel for schedule(static) num_threads(parts) if (parts > 1)
    for (int64_t part = 0; part < parts; ++part) {
        const int64_t first_tile = part*row_tiles / parts;
        const int64_t end_tile = (part + 1)*row_tiles / parts;
        for (int64_t step = 0; step < 4; ++step) {
            float *const next = states + batch*step*8;
            const float *const state = step == 0 ? h0 : next - batch*8;
            const float *const inputs = gates + batch*step*24;
            for (int64_t tile = first_tile; tile < end_tile; ++tile) {
                const int64_t row_0 = batch*tile / row_tiles;
                const int rows = (int)((tile + 1)*batch / row_tiles - row_0);
                float sums[3][TILE_ROWS*32];
                for (int64_t gate = 0; gate < 3; ++gate) {
                    multiply_tile_float(rows, 8, 8, state + row_0*8, 8, panels + gate*256,
                        sums[gate]);
                }
                for (int64_t i = 0; i < rows; ++i) {
                    const int64_t row = row_0 + i;
                    #pragma omp simd
                    for (int64_t j = 0; j < 8; ++j) {
                        const float reset = fx_sigmoid_f32(inputs[row*24 + j]
                            + (sums[0][i*32 + j] + bias_hh[j]));
                        const float keep = fx_sigmoid_f32(inputs[row*24 + j + 8]
                            + (sums[1][i*32 + j] + bias_hh[j + 8]));
                        const float fresh = fx_tanh_f32(inputs[row*24 + j + 16] + reset
                            * (sums[2][i*32 + j] + bias_hh[j + 16]));
                        next[row*8 + j] = (1 - keep) * fresh + keep * state[row*8 + j];
                    }
                }
            }
        }
    }
    fx_copy(last_state, last_state - batch*8, batch*8 * (int64_t)sizeof(float));
}
