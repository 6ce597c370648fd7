/* mean: f32[N,C] = mean
 * program.py:1 */
static void k0_mean(const float *restrict x, float *restrict mean, int64_t C, int64_t H, int64_t N,
    int64_t W, int n_threads) {
    const float t0 = (float)(H*W);
    #pragma omp parallel for num_threads(n_threads) if (C*H*N*W >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < C*N; ++i) {
        double wide[16] = {0};
        for (int64_t block = 0; block < (H*W / 16)*16; block += 1024) {
            float lanes[16] = {0};
            for (int64_t block1 = 0; block1 < fx_min(1024, (H*W / 16)*16 - block); block1 += 16) {
                #pragma omp simd
                for (int64_t lane = 0; lane < 16; ++lane) {
                    lanes[lane] += x[i*H*W + block + block1 + lane];
                }
            }
            #pragma omp simd
            for (int64_t lane = 0; lane < 16; ++lane) {
                wide[lane] += (double)lanes[lane];
            }
        }
        for (int64_t rest = 0; rest < (H*W) % 16; ++rest) {
            wide[0] += (double)x[i*H*W + (H*W / 16)*16 + rest];
        }
        double wide1 = 0.0;
        for (int64_t lane = 0; lane < 16; ++lane) {
            wide1 += wide[lane];
        }
        const float total = (float)wide1;
        mean[i] = total / t0;
    }
}
