/* max: f32[A,C] = max
 * program.py:1 */
static void k0_max(const float *restrict x, float *restrict max, int64_t A, int64_t C, int64_t N,
    int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (A*C*N >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < A; ++i) {
        const int64_t parts = fx_max(fx_max(fx_min(C / 1024, 8), (C + 4095) / 4096), 1);
        const int64_t width = fx_max(fx_floor_div(C - 1, parts) + 1, 1);
        for (int64_t part = 0; part < fx_floor_div(C - 1, width) + 1; ++part) {
            const int64_t count = fx_min(width, C - width*part);
            const int64_t together = C <= 64 ? 8 : 1;
            float total[4096];
            for (int64_t e = 0; e < count*together; ++e) total[e] = -INFINITY;
            const int64_t joined = C <= 64 ? (N / 8) : 0;
            for (int64_t r = 0; r < joined; ++r) {
                #pragma omp simd
                for (int64_t lane = 0; lane < count*8; ++lane) {
                    total[lane] = fx_maximum_f32(total[lane], x[i*C*N + r*C*8 + lane]);
                }
            }
            const int64_t whole = count <= 1024 ? 0 : (N / 8)*8 - joined*8;
            for (int64_t r = 0; r < whole; r += 8) {
                #pragma omp simd
                for (int64_t lane = 0; lane < count; ++lane) {
                    total[lane] = fx_maximum_f32(total[lane],
                        x[(i*N + joined*8 + r)*C + width*part + lane]);
                    total[lane] = fx_maximum_f32(total[lane],
                        x[i*C*N + joined*C*8 + r*C + C + width*part + lane]);
                    total[lane] = fx_maximum_f32(total[lane],
                        x[i*C*N + joined*C*8 + r*C + C*2 + width*part + lane]);
                    total[lane] = fx_maximum_f32(total[lane],
                        x[i*C*N + joined*C*8 + r*C + C*3 + width*part + lane]);
                    total[lane] = fx_maximum_f32(total[lane],
                        x[i*C*N + joined*C*8 + r*C + C*4 + width*part + lane]);
                    total[lane] = fx_maximum_f32(total[lane],
                        x[i*C*N + joined*C*8 + r*C + C*5 + width*part + lane]);
                    total[lane] = fx_maximum_f32(total[lane],
                        x[i*C*N + joined*C*8 + r*C + C*6 + width*part + lane]);
                    total[lane] = fx_maximum_f32(total[lane],
                        x[i*C*N + joined*C*8 + r*C + C*7 + width*part + lane]);
                }
            }
            for (int64_t r = 0; r < N - joined*8 - whole; ++r) {
                #pragma omp simd
                for (int64_t lane = 0; lane < count; ++lane) {
                    total[lane] = fx_maximum_f32(total[lane],
                        x[(i*N + joined*8 + whole + r)*C + width*part + lane]);
                }
            }
            for (int64_t r = 0; r < together - 1; ++r) {
                #pragma omp simd
                for (int64_t lane = 0; lane < count; ++lane) {
                    total[lane] = fx_maximum_f32(total[lane], total[count*r + count + lane]);
                }
            }
            #pragma omp simd
            for (int64_t lane = 0; lane < count; ++lane) {
                max[i*C + width*part + lane] = total[lane];
            }
        }
    }
}
