/* sum: f32[B] = sum
 * program.py:1 */
static void k0_sum(const float *restrict x, float *restrict sum, int64_t B, int64_t N,
    int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (B*N >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < B; ++i) {
        double wide[16] = {0};
        for (int64_t block = 0; block < (N / 16)*16; block += 1024) {
            float lanes[16] = {0};
            for (int64_t block1 = 0; block1 < fx_min(1024, (N / 16)*16 - block); block1 += 16) {
                #pragma omp simd
                for (int64_t lane = 0; lane < 16; ++lane) {
                    lanes[lane] += x[i*N + block + block1 + lane];
                }
            }
            #pragma omp simd
            for (int64_t lane = 0; lane < 16; ++lane) {
                wide[lane] += (double)lanes[lane];
            }
        }
        for (int64_t rest = 0; rest < N % 16; ++rest) {
            wide[0] += (double)x[i*N + (N / 16)*16 + rest];
        }
        double wide1 = 0.0;
        for (int64_t lane = 0; lane < 16; ++lane) {
            wide1 += wide[lane];
        }
        const float total = (float)wide1;
        sum[i] = total;
    }
}
