/* sum: f32[N] = sum
 * program.py:1 */
static void k0_sum(const float *restrict x, float *restrict sum, int64_t A, int64_t N,
    int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (A*N*80 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < N; ++i) {
        double wide = 0.0;
        for (int64_t block = 0; block < (A + 15) / 16; ++block) {
            float lanes[16] = {0};
            for (int64_t r = 0; r < fx_min(16, A - block*16); ++r) {
                for (int64_t block1 = 0; block1 < 64; block1 += 16) {
                    #pragma omp simd
                    for (int64_t lane = 0; lane < 16; ++lane) {
                        lanes[lane] += x[((block*16 + r)*N + i)*64 + block1 + lane];
                    }
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
        const float total = (float)wide;
        sum[i] = total;
    }
}

/* sum_1: f32[N] = sum
 * program.py:1 */
static void k1_sum_1(const float *restrict y, float *restrict sum_1, int64_t A, int64_t N,
    int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (A*N*6 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < N; ++i) {
        double wide = 0.0;
        for (int64_t r = 0; r < A; ++r) {
            float total = 0.0f;
            for (int64_t s = 0; s < 5; ++s) {
                total += y[(r*N + i)*5 + s];
            }
            wide += (double)total;
        }
        const float total = (float)wide;
        sum_1[i] = total;
    }
}
