/* softmax: f32[B,N] = max -> sub -> exp -> sum -> div
 * program.py:1 */
static void k0_softmax(const float *restrict x, float *restrict softmax, int64_t B, int64_t N,
    int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (B*N*19 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < B; ++i) {
        float lanes[16];
        for (int e = 0; e < 16; ++e) lanes[e] = -INFINITY;
        for (int64_t block = 0; block < (N / 16)*16; block += 16) {
            #pragma omp simd
            for (int64_t lane = 0; lane < 16; ++lane) {
                lanes[lane] = fx_maximum_f32(lanes[lane], x[i*N + block + lane]);
            }
        }
        for (int64_t rest = 0; rest < N % 16; ++rest) {
            lanes[0] = fx_maximum_f32(lanes[0], x[i*N + (N / 16)*16 + rest]);
        }
        float total = -INFINITY;
        for (int64_t lane = 0; lane < 16; ++lane) {
            total = fx_maximum_f32(total, lanes[lane]);
        }
        double wide[16] = {0};
        for (int64_t block = 0; block < (N / 16)*16; block += 1024) {
            float lanes1[16] = {0};
            for (int64_t block1 = 0; block1 < fx_min(1024, (N / 16)*16 - block); block1 += 16) {
                #pragma omp simd
                for (int64_t lane = 0; lane < 16; ++lane) {
                    lanes1[lane] += fx_exp_f32(x[i*N + block + block1 + lane] - total);
                }
            }
            #pragma omp simd
            for (int64_t lane = 0; lane < 16; ++lane) {
                wide[lane] += (double)lanes1[lane];
            }
        }
        for (int64_t rest = 0; rest < N % 16; ++rest) {
            wide[0] += (double)fx_exp_f32(x[i*N + (N / 16)*16 + rest] - total);
        }
        double wide1 = 0.0;
        for (int64_t lane = 0; lane < 16; ++lane) {
            wide1 += wide[lane];
        }
        const float total1 = (float)wide1;
        #pragma omp simd
        for (int64_t j = 0; j < N; ++j) {
            softmax[i*N + j] = fx_exp_f32(x[i*N + j] - total) / total1;
        }
    }
}
