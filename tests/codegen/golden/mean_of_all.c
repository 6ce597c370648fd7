/* mean: f32 = mean
 * program.py:1 */
static void k0_mean(const float *restrict x, float *restrict mean, int64_t N) {
    double wide[16] = {0};
    for (int64_t block = 0; block < (N / 16)*16; block += 1024) {
        float lanes[16] = {0};
        for (int64_t block1 = 0; block1 < fx_min(1024, (N / 16)*16 - block); block1 += 16) {
            #pragma omp simd
            for (int64_t lane = 0; lane < 16; ++lane) {
                lanes[lane] += x[block + block1 + lane];
            }
        }
        #pragma omp simd
        for (int64_t lane = 0; lane < 16; ++lane) {
            wide[lane] += (double)lanes[lane];
        }
    }
    for (int64_t rest = 0; rest < N % 16; ++rest) {
        wide[0] += (double)x[(N / 16)*16 + rest];
    }
    double wide1 = 0.0;
    for (int64_t lane = 0; lane < 16; ++lane) {
        wide1 += wide[lane];
    }
    const float total = (float)wide1;
    mean[0] = total / (float)N;
}
