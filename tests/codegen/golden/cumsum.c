/* cumsum: f32[B,N] = cumsum
 * program.py:1 */
static void k0_cumsum(const float *restrict x, float *restrict cumsum, int64_t B, int64_t N,
    int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (B*N >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < B; ++i) {
        float total = 0.0f;
        for (int64_t r = 0; r < N; ++r) {
            total += x[i*N + r];
            cumsum[i*N + r] = total;
        }
    }
}
