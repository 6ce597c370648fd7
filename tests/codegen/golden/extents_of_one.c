/* add: f32[N,1,1] = mul -> reshape -> permute -> add
 * program.py:1 */
static void k0_add(const float *restrict x, const float *restrict y, float *restrict add,
    int64_t N, int n_threads) {
    #pragma omp parallel for simd num_threads(n_threads) if (parallel: N*2 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < N; ++i) {
        add[i] = x[i] * y[0] + 1.0f;
    }
}
