/* scatter_add: f32[N,C] = scatter_add
 * program.py:1 */
static void k0_scatter_add(const float *restrict x, const int64_t *restrict i,
    const float *restrict y, float *restrict scatter_add, int64_t C, int64_t M, int64_t N,
    fx_error *error, int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if ((N + M)*C >= PARALLEL_OPERATIONS)
    for (int64_t j = 0; j < N; ++j) {
        #pragma omp simd
        for (int64_t k = 0; k < C; ++k) {
            scatter_add[j*C + k] = x[j*C + k];
        }
    }
    #pragma omp parallel for num_threads(n_threads) if ((N + M)*C >= PARALLEL_OPERATIONS)
    for (int64_t r = 0; r < C; ++r) {
        for (int64_t s = 0; s < M; ++s) {
            const int64_t t0 = fx_index(i[s*C + r], N, 0, error);
            if (t0 >= 0) {
                scatter_add[t0*C + r] += y[s*C + r];
            }
        }
    }
}
