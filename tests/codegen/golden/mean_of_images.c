/* mean: f32[N,C] = mean
 * program.py:1 */
static void k0_mean(const float *restrict x, float *restrict mean, int64_t C, int64_t H, int64_t N,
    int64_t W, int n_threads) {
    const float t0 = (float)(H*W);
    #pragma omp parallel for num_threads(n_threads) if (C*H*N*W >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < C*N; ++i) {
        float total = 0.0f;
        if (H*W < 16) {
            for (int64_t rest = 0; rest < H*W; ++rest) {
                total += x[i*H*W + rest];
            }
        }
        if (H*W >= 16) {
            double wide = 0.0;
            for (int64_t block = 0; block < H*W; block += 1024) {
                float lanes[16] = {0};
                const int64_t count = (fx_min(1024, H*W - block) / 16)*16;
                for (int64_t block1 = 0; block1 < count; block1 += 16) {
                    #pragma omp simd
                    for (int64_t lane = 0; lane < 16; ++lane) {
                        lanes[lane] += x[i*H*W + block + block1 + lane];
                    }
                }
                const int64_t left = ((fx_min(1024, H*W - block)) % 16);
                if (left > 0) {
                    #pragma omp simd
                    for (int64_t lane = 0; lane < 16; ++lane) {
                        const float t1 = lanes[lane] + x[i*H*W + block + count + left + lane - 16];
                        lanes[lane] = lane >= 16 - left ? t1 : lanes[lane];
                    }
                }
                #pragma omp simd
                for (int64_t lane = 0; lane < 8; ++lane) {
                    lanes[lane] += lanes[lane + 8];
                }
                #pragma omp simd
                for (int64_t lane = 0; lane < 4; ++lane) {
                    lanes[lane] += lanes[lane + 4];
                }
                wide += (double)(lanes[0] + lanes[1] + (lanes[2] + lanes[3]));
            }
            total = (float)wide;
        }
        mean[i] = total / t0;
    }
}
