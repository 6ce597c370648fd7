/* scatter_add: f32[N,C] = scatter_add
 * program.py:1 */
static void k0_scatter_add(const float *restrict x, const int64_t *restrict i,
    const float *restrict y, float *restrict scatter_add, int64_t C, int64_t M, int64_t N,
    fx_error *error, int n_threads) {
    #pragma omp parallel for simd num_threads(n_threads) \
            if (parallel: (N + M)*C >= PARALLEL_OPERATIONS)
    for (int64_t j = 0; j < C*N; ++j) {
        scatter_add[j] = x[j];
    }
    for (int64_t j = 0; j < M; ++j) {
        #pragma omp simd
        for (int64_t k = 0; k < C; ++k) {
            const int64_t t0 = fx_index(i[j*C + k], N, 0, error);
            if (t0 >= 0) {
                scatter_add[t0*C + k] += y[j*C + k];
            }
        }
    }
}
