/* mul: f32[2*B,N] = concat -> slice -> mul
 * program.py:1 */
static void k0_mul(const float *restrict x, float *restrict mul, int64_t B, int64_t N,
    int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (B*N*2 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < B; ++i) {
        #pragma omp simd
        for (int64_t j = 0; j < N; ++j) {
            mul[i*N + j] = x[(i*N + j)*2 + i + 1] * 0.5f;
        }
    }
    #pragma omp parallel for num_threads(n_threads) if (B*N*2 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < B; ++i) {
        #pragma omp simd
        for (int64_t j = 0; j < N; ++j) {
            mul[(B + i)*N + j] = x[(i*N + j)*2 + i + 1] * 0.5f;
        }
    }
}
