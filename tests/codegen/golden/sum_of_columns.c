/* sum: f32[C] = abs -> sum
 * program.py:1 */
static void k0_sum(const float *restrict x, float *restrict sum, int64_t C, int64_t N,
    int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (C*N*3 >= PARALLEL_OPERATIONS)
    for (int64_t block = 0; block < C; block += 256) {
        double wide[256] = {0};
        for (int64_t block1 = 0; block1 < N; block1 += 96) {
            float lanes[256] = {0};
            for (int64_t r = 0; r < (fx_min(96, N - block1) / 4)*4; r += 4) {
                #pragma omp simd
                for (int64_t lane = 0; lane < fx_min(256, C - block); ++lane) {
                    lanes[lane] += fx_abs_f32(x[(block1 + r)*C + block + lane])
                        + fx_abs_f32(x[block1*C + r*C + C + block + lane])
                        + fx_abs_f32(x[block1*C + r*C + C*2 + block + lane])
                        + fx_abs_f32(x[block1*C + r*C + C*3 + block + lane]);
                }
            }
            for (int64_t r = 0; r < fx_min(96, N - block1) % 4; ++r) {
                #pragma omp simd
                for (int64_t lane = 0; lane < fx_min(256, C - block); ++lane) {
                    lanes[lane] += fx_abs_f32(x[(block1 + (fx_min(96, N - block1) / 4)*4 + r)*C
                        + block + lane]);
                }
            }
            #pragma omp simd
            for (int64_t lane = 0; lane < fx_min(256, C - block); ++lane) {
                wide[lane] += (double)lanes[lane];
            }
        }
        #pragma omp simd
        for (int64_t lane = 0; lane < fx_min(256, C - block); ++lane) {
            sum[block + lane] = (float)wide[lane];
        }
    }
}
