/* sub: f32[N,4] = take -> mean -> sub
 * program.py:1
 * program.py:2 */
static void k0_sub(const int64_t *restrict i, const float *restrict table, float *restrict sub,
    int64_t N, fx_error *error, int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (N*24 >= PARALLEL_OPERATIONS)
    for (int64_t j = 0; j < N; ++j) {
        const int64_t t0 = fx_index(i[j], 10, 0, error);
        float total = 0.0f;
        for (int64_t r = 0; r < 4; ++r) {
            total += (t0 >= 0 ? table[t0*4 + r] : 0);
        }
        const float mean = total / 4.0f;
        #pragma omp simd
        for (int64_t k = 0; k < 4; ++k) {
            sub[j*4 + k] = (t0 >= 0 ? table[t0*4 + k] : 0) - mean;
        }
    }
}
