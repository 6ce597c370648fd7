/* sum: f32[C] = abs -> sum
 * program.py:1 */
static void k0_sum(const float *restrict x, float *restrict sum, int64_t C, int64_t N,
    int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (C*2 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < C; ++i) {
        double wide = 0.0;
        for (int64_t r = 0; r < N; ++r) {
            wide += (double)fx_abs_f32(x[r*C + i]);
        }
        const float total = (float)wide;
        sum[i] = total;
    }
}
