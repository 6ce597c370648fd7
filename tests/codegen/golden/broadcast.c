/* add: f32[B,3,N] = exp -> gt -> mul -> where -> add
 * program.py:1 */
static void k0_add(const float *restrict x, const float *restrict y, float *restrict add,
    int64_t B, int64_t N, int n_threads) {
    #pragma omp parallel for collapse(2) num_threads(n_threads) if (B*N*12 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < B; ++i) {
        for (int64_t j = 0; j < 3; ++j) {
            const float exp = fx_exp_f32(x[i*3 + j]);
            #pragma omp simd
            for (int64_t k = 0; k < N; ++k) {
                const float t0 = y[i*N + k];
                add[(i*3 + j)*N + k] = exp + (t0 > 0.0f ? t0 : 2.0f * t0);
            }
        }
    }
}
