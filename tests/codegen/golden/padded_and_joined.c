/* add: f32[B,N+11] = pad -> flip -> concat -> add
 * program.py:1 */
static void k0_add(const float *restrict y, const float *restrict x, float *restrict add,
    int64_t B, int64_t N, int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (B*N >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < B; ++i) {
        #pragma omp simd
        for (int64_t j = 0; j < 11; ++j) {
            add[i*11 + i*N + j] = (j - 1 >= 0 && j - 1 < 8 ? x[i*8 + j - 1] : 0) + 1.0f;
        }
        #pragma omp simd
        for (int64_t j = 0; j < N; ++j) {
            add[i*11 + i*N + j + 11] = y[i*N + N - j - 1] + 1.0f;
        }
    }
}
