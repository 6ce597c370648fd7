/* add: f32[N,B] = permute -> mul -> unsqueeze -> add
 * program.py:1 */
static void k0_add(const float *restrict x, const float *restrict y, float *restrict add,
    int64_t B, int64_t N, int n_threads) {
    #pragma omp parallel for collapse(2) num_threads(n_threads) if (B*N*3 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < (B + 31) / 32; ++i) {
        for (int64_t j = 0; j < (N + 31) / 32; ++j) {
            const int64_t count = fx_min(32, N - j*32);
            const int64_t count1 = fx_min(32, B - i*32);
            float tile[1024];
            copy_transposed_float(count1, count, &x[i*N*32 + j*32], N, tile, 32);
            for (int64_t k = 0; k < count; ++k) {
                #pragma omp simd
                for (int64_t l = 0; l < count1; ++l) {
                    add[(j*B + i)*32 + k*B + l] = tile[k*32 + l] * 2.0f + y[j*32 + k];
                }
            }
        }
    }
}
