/* mean: f32 = mean
 * program.py:1 */
static void k0_mean(const float *restrict x, float *restrict mean, int64_t N, int n_threads) {
    const int64_t parts = fx_max(fx_min(N / 65536, 16), 1);
    const int64_t size = fx_floor_div(N - 1, parts*16)*16 + 16;
    double totals[16];
    for (int64_t e = 0; e < parts; ++e) totals[e] = 0.0;
    #pragma omp parallel for num_threads(n_threads) if (N*3 >= PARALLEL_OPERATIONS)
    for (int64_t part = 0; part < parts; ++part) {
        double total = 0.0;
        if (fx_max(fx_min(size, N - size*part), 0) < 16) {
            for (int64_t rest = 0; rest < fx_max(fx_min(size, N - size*part), 0); ++rest) {
                total += (double)x[size*part + rest];
            }
        }
        if (fx_max(fx_min(size, N - size*part), 0) >= 16) {
            double wide = 0.0;
            for (int64_t block = 0; block < fx_max(fx_min(size, N - size*part), 0); block += 1024) {
                float lanes[16] = {0};
                const int64_t count = fx_floor_div(fx_min(1024,
                    fx_max(fx_min(size, N - size*part), 0) - block), 16)*16;
                for (int64_t block1 = 0; block1 < count; block1 += 16) {
                    #pragma omp simd
                    for (int64_t lane = 0; lane < 16; ++lane) {
                        lanes[lane] += x[size*part + block + block1 + lane];
                    }
                }
                const int64_t left = fx_floor_mod(fx_min(1024,
                    fx_max(fx_min(size, N - size*part), 0) - block), 16);
                if (left > 0) {
                    #pragma omp simd
                    for (int64_t lane = 0; lane < 16; ++lane) {
                        const float t0 = lanes[lane]
                            + x[size*part + block + count + left + lane - 16];
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
            total = wide;
        }
        totals[part] = total;
    }
    double total = 0.0;
    for (int64_t part = 0; part < parts; ++part) {
        total += totals[part];
    }
    const float total1 = (float)total;
    mean[0] = total1 / (float)N;
}
