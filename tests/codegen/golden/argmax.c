/* argmax: i64[B] = argmax
 * program.py:1 */
static void k0_argmax(const float *restrict x, int64_t *restrict argmax, int64_t B, int64_t N,
    int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (B*N*6 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < B; ++i) {
        float lanes[64];
        for (int e = 0; e < 64; ++e) lanes[e] = -INFINITY;
        float others = -INFINITY;
        const int64_t count = (N / 64)*64;
        for (int64_t block = 0; block < count; block += 64) {
            #pragma omp simd
            for (int64_t lane = 0; lane < 64; ++lane) {
                lanes[lane] = fx_maximum_f32(lanes[lane], x[i*N + block + lane]);
            }
        }
        #pragma omp simd
        for (int64_t lane = 0; lane < 32; ++lane) {
            lanes[lane] = fx_maximum_f32(lanes[lane], lanes[lane + 32]);
        }
        #pragma omp simd
        for (int64_t lane = 0; lane < 16; ++lane) {
            lanes[lane] = fx_maximum_f32(lanes[lane], lanes[lane + 16]);
        }
        const int64_t count1 = (N / 16)*16;
        for (int64_t block = 0; block < count1 - count; block += 16) {
            #pragma omp simd
            for (int64_t lane = 0; lane < 16; ++lane) {
                lanes[lane] = fx_maximum_f32(lanes[lane], x[i*N + count + block + lane]);
            }
        }
        for (int64_t rest = 0; rest < N % 16; ++rest) {
            others = fx_maximum_f32(others, x[i*N + count1 + rest]);
        }
        #pragma omp simd
        for (int64_t lane = 0; lane < 8; ++lane) {
            lanes[lane] = fx_maximum_f32(lanes[lane], lanes[lane + 8]);
        }
        #pragma omp simd
        for (int64_t lane = 0; lane < 4; ++lane) {
            lanes[lane] = fx_maximum_f32(lanes[lane], lanes[lane + 4]);
        }
        const float total = fx_maximum_f32(fx_maximum_f32(fx_maximum_f32(lanes[0], lanes[1]),
            fx_maximum_f32(lanes[2], lanes[3])), others);
        int64_t lanes1[16];
        for (int e = 0; e < 16; ++e) lanes1[e] = 9223372036854775807LL;
        int64_t others1 = 9223372036854775807LL;
        const int64_t count2 = (N / 16)*16;
        for (int64_t block = 0; block < count2; block += 16) {
            #pragma omp simd
            for (int64_t lane = 0; lane < 16; ++lane) {
                const float t0 = x[i*N + block + lane];
                lanes1[lane] = fx_minimum_i64(lanes1[lane],
                    ((t0 == total || fx_isnan_f32(t0)) ? block + lane : N));
            }
        }
        for (int64_t rest = 0; rest < N % 16; ++rest) {
            const float t0 = x[i*N + count2 + rest];
            others1 = fx_minimum_i64(others1,
                ((t0 == total || fx_isnan_f32(t0)) ? count2 + rest : N));
        }
        #pragma omp simd
        for (int64_t lane = 0; lane < 8; ++lane) {
            lanes1[lane] = fx_minimum_i64(lanes1[lane], lanes1[lane + 8]);
        }
        #pragma omp simd
        for (int64_t lane = 0; lane < 4; ++lane) {
            lanes1[lane] = fx_minimum_i64(lanes1[lane], lanes1[lane + 4]);
        }
        const int64_t total1 = fx_minimum_i64(fx_minimum_i64(fx_minimum_i64(lanes1[0], lanes1[1]),
            fx_minimum_i64(lanes1[2], lanes1[3])), others1);
        argmax[i] = total1;
    }
}
