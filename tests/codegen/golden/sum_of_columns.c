/* sum: f32[C] = abs -> sum
 * program.py:1 */
static void k0_sum(const float *restrict x, float *restrict sum, int64_t C, int64_t N,
    int n_threads) {
    const int64_t parts = fx_max(fx_max(fx_min(C / 1024, 8), (C + 4095) / 4096), 1);
    const int64_t width = fx_max(fx_floor_div(C - 1, parts) + 1, 1);
    #pragma omp parallel for num_threads(n_threads) if (C*N*2 >= PARALLEL_OPERATIONS)
    for (int64_t part = 0; part < fx_floor_div(C - 1, width) + 1; ++part) {
        const int64_t count = fx_min(width, C - width*part);
        const int64_t together = C <= 64 ? 8 : 1;
        double wide[4096];
        for (int64_t e = 0; e < count; ++e) wide[e] = 0.0;
        for (int64_t block = 0; block < N; block += 96) {
            float lanes[4096];
            for (int64_t e = 0; e < count*together; ++e) lanes[e] = 0.0f;
            const int64_t joined = C <= 64 ? (fx_min(96, N - block) / 8) : 0;
            for (int64_t r = 0; r < joined; ++r) {
                #pragma omp simd
                for (int64_t lane = 0; lane < count*8; ++lane) {
                    lanes[lane] += fx_abs_f32(x[(block + r*8)*C + lane]);
                }
            }
            const int64_t whole = count <= 1024 ? 0 : (fx_min(96, N - block) / 8)*8 - joined*8;
            for (int64_t r = 0; r < whole; r += 8) {
                #pragma omp simd
                for (int64_t lane = 0; lane < count; ++lane) {
                    lanes[lane] += fx_abs_f32(x[(block + joined*8 + r)*C + width*part + lane])
                        + fx_abs_f32(x[block*C + joined*C*8 + r*C + C + width*part + lane])
                        + fx_abs_f32(x[block*C + joined*C*8 + r*C + C*2 + width*part + lane])
                        + fx_abs_f32(x[block*C + joined*C*8 + r*C + C*3 + width*part + lane])
                        + fx_abs_f32(x[block*C + joined*C*8 + r*C + C*4 + width*part + lane])
                        + fx_abs_f32(x[block*C + joined*C*8 + r*C + C*5 + width*part + lane])
                        + fx_abs_f32(x[block*C + joined*C*8 + r*C + C*6 + width*part + lane])
                        + fx_abs_f32(x[block*C + joined*C*8 + r*C + C*7 + width*part + lane]);
                }
            }
            for (int64_t r = 0; r < fx_min(96, N - block) - joined*8 - whole; ++r) {
                #pragma omp simd
                for (int64_t lane = 0; lane < count; ++lane) {
                    lanes[lane] += fx_abs_f32(x[(block + joined*8 + whole + r)*C + width*part
                        + lane]);
                }
            }
            for (int64_t r = 0; r < together; ++r) {
                #pragma omp simd
                for (int64_t lane = 0; lane < count; ++lane) {
                    wide[lane] += (double)lanes[count*r + lane];
                }
            }
        }
        #pragma omp simd
        for (int64_t lane = 0; lane < count; ++lane) {
            sum[width*part + lane] = (float)wide[lane];
        }
    }
}
