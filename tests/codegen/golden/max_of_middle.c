/* max: f32[A,C] = max
 * program.py:1 */
static void k0_max(const float *restrict x, float *restrict max, int64_t A, int64_t C, int64_t N,
    int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (A*C*N >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < A; ++i) {
        for (int64_t block = 0; block < C; block += 256) {
            const int64_t count = fx_min(256, C - block);
            float total[256];
            for (int64_t e = 0; e < count; ++e) total[e] = -INFINITY;
            for (int64_t r = 0; r < N; ++r) {
                #pragma omp simd
                for (int64_t lane = 0; lane < count; ++lane) {
                    total[lane] = fx_maximum_f32(total[lane], x[(i*N + r)*C + block + lane]);
                }
            }
            #pragma omp simd
            for (int64_t lane = 0; lane < count; ++lane) {
                max[i*C + block + lane] = total[lane];
            }
        }
    }
}
