/* mean: f32[N,8] = mean
 * program.py:1 */
static void k0_mean(const float *restrict x, float *restrict mean, int64_t H, int64_t N, int64_t W,
    int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (H*N*W*8 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < N; ++i) {
        double wide[8] = {0};
        for (int64_t block = 0; block < H*W; block += 96) {
            float lanes[8] = {0};
            for (int64_t r = 0; r < fx_min(96, H*W - block); ++r) {
                #pragma omp simd
                for (int64_t lane = 0; lane < 8; ++lane) {
                    lanes[lane] += x[(i*H*W + block + r)*8 + lane];
                }
            }
            #pragma omp simd
            for (int64_t lane = 0; lane < 8; ++lane) {
                wide[lane] += (double)lanes[lane];
            }
        }
        #pragma omp simd
        for (int64_t lane = 0; lane < 8; ++lane) {
            mean[i*8 + lane] = (float)wide[lane] / (float)(H*W);
        }
    }
}
