/* argmax: i64[B] = argmax
 * program.py:1 */
static void k0_argmax(const float *restrict x, int64_t *restrict argmax, int64_t B, int64_t N,
    int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (B*N*8 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < B; ++i) {
        float best = -INFINITY;
        int64_t where = -1;
        for (int64_t r = 0; r < N; ++r) {
            const float t0 = x[i*N + r];
            if (t0 > best || (fx_isnan_f32(t0) && !fx_isnan_f32(best)) || where < 0) {
                best = t0;
                where = r;
            }
        }
        argmax[i] = where;
    }
}
