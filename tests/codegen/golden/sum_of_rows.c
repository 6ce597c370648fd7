/* sum: f32[B] = sum
 * program.py:1 */
static void k0_sum(const float *restrict x, float *restrict sum, int64_t B, int64_t N,
    int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (B*N >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < B; ++i) {
        float total = 0.0f;
        if (N < 16) {
            for (int64_t rest = 0; rest < N; ++rest) {
                total += x[i*N + rest];
            }
        }
        if (N >= 16) {
            double wide = 0.0;
            for (int64_t block = 0; block < N; block += 1024) {
                float lanes[16] = {0};
                const int64_t count = (fx_min(1024, N - block) / 16)*16;
                for (int64_t block1 = 0; block1 < count; block1 += 16) {
                    #pragma omp simd
                    for (int64_t lane = 0; lane < 16; ++lane) {
                        lanes[lane] += x[i*N + block + block1 + lane];
                    }
                }
                const int64_t left = (fx_min(1024, N - block) % 16);
                if (left > 0) {
                    #pragma omp simd
                    for (int64_t lane = 0; lane < 16; ++lane) {
                        const float t0 = lanes[lane] + x[i*N + block + count + left + lane - 16];
                        lanes[lane] = lane >= 16 - left ? t0 : lanes[lane];
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
        sum[i] = total;
    }
}
