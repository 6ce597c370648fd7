/* mean: f32 = mean
 * program.py:1 */
static void k0_mean(const float *restrict x, float *restrict mean, int64_t N) {
    float total = 0.0f;
    if (N < 16) {
        for (int64_t rest = 0; rest < N; ++rest) {
            total += x[rest];
        }
    }
    if (N >= 16) {
        double wide = 0.0;
        for (int64_t block = 0; block < N; block += 1024) {
            float lanes[16] = {0};
            float others = 0.0f;
            const int64_t count = (fx_min(1024, N - block) / 16)*16;
            for (int64_t block1 = 0; block1 < count; block1 += 16) {
                #pragma omp simd
                for (int64_t lane = 0; lane < 16; ++lane) {
                    lanes[lane] += x[block + block1 + lane];
                }
            }
            for (int64_t rest = 0; rest < fx_min(1024, N - block) % 16; ++rest) {
                others += x[block + count + rest];
            }
            #pragma omp simd
            for (int64_t lane = 0; lane < 8; ++lane) {
                lanes[lane] += lanes[lane + 8];
            }
            #pragma omp simd
            for (int64_t lane = 0; lane < 4; ++lane) {
                lanes[lane] += lanes[lane + 4];
            }
            wide += (double)(lanes[0] + lanes[1] + (lanes[2] + lanes[3]) + others);
        }
        total = (float)wide;
    }
    mean[0] = total / (float)N;
}
