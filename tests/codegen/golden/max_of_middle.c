/* max: f32[A,C] = max
 * program.py:1 */
static void k0_max(const float *restrict x, float *restrict max, int64_t A, int64_t C, int64_t N,
    int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (A*C >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < A; ++i) {
        #pragma omp simd
        for (int64_t j = 0; j < C; ++j) {
            max[i*C + j] = -INFINITY;
        }
        for (int64_t r = 0; r < N; ++r) {
            #pragma omp simd
            for (int64_t j = 0; j < C; ++j) {
                max[i*C + j] = fx_maximum_f32(max[i*C + j], x[(i*N + r)*C + j]);
            }
        }
    }
}
