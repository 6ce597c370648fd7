/* add: f32[B,N] = tanh -> mul -> add
 * program.py:1 */
static void k0_add(const float *restrict x, const float *restrict y, float *restrict add,
    int64_t B, int64_t N, int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (B*N*10 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < B; ++i) {
        #pragma omp simd
        for (int64_t j = 0; j < N; ++j) {
            add[i*N + j] = fx_tanh_f32(x[i*N + j]) * y[j] + 1.0f;
        }
    }
}
