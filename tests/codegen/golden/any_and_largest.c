/* any: bool[B] = gt -> any
 * program.py:1 */
static void k0_any(const int32_t *restrict x, unsigned char *restrict any, int64_t B, int64_t N,
    int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (B*N*2 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < B; ++i) {
        int32_t total = 0;
        if (N < 16) {
            for (int64_t rest = 0; rest < N; ++rest) {
                total = total | (int32_t)(x[i*N + rest] > 3);
            }
        }
        if (N >= 16) {
            int32_t lanes[16] = {0};
            const int64_t count = (N / 16)*16;
            for (int64_t block = 0; block < count; block += 16) {
                #pragma omp simd
                for (int64_t lane = 0; lane < 16; ++lane) {
                    lanes[lane] = lanes[lane] | (int32_t)(x[i*N + block + lane] > 3);
                }
            }
            const int64_t left = (N % 16);
            if (left > 0) {
                #pragma omp simd
                for (int64_t lane = 0; lane < 16; ++lane) {
                    const int32_t t0 = lanes[lane] | (int32_t)(x[i*N + count + left + lane
                        - 16] > 3);
                    lanes[lane] = lane >= 16 - left ? t0 : lanes[lane];
                }
            }
            #pragma omp simd
            for (int64_t lane = 0; lane < 8; ++lane) {
                lanes[lane] = lanes[lane] | lanes[lane + 8];
            }
            #pragma omp simd
            for (int64_t lane = 0; lane < 4; ++lane) {
                lanes[lane] = lanes[lane] | lanes[lane + 4];
            }
            total = lanes[0] | lanes[1] | (lanes[2] | lanes[3]);
        }
        any[i] = total != 0;
    }
}

/* max: i32[B] = max
 * program.py:1 */
static void k1_max(const int32_t *restrict x, int32_t *restrict max, int64_t B, int64_t N,
    int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (B*N >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < B; ++i) {
        int32_t total = INT32_MIN;
        if (N < 16) {
            for (int64_t rest = 0; rest < N; ++rest) {
                total = fx_maximum_i32(total, x[i*N + rest]);
            }
        }
        if (N >= 16) {
            int32_t lanes[64];
            for (int e = 0; e < 64; ++e) lanes[e] = INT32_MIN;
            const int64_t count = (N / 64)*64;
            for (int64_t block = 0; block < count; block += 64) {
                #pragma omp simd
                for (int64_t lane = 0; lane < 64; ++lane) {
                    lanes[lane] = fx_maximum_i32(lanes[lane], x[i*N + block + lane]);
                }
            }
            #pragma omp simd
            for (int64_t lane = 0; lane < 32; ++lane) {
                lanes[lane] = fx_maximum_i32(lanes[lane], lanes[lane + 32]);
            }
            #pragma omp simd
            for (int64_t lane = 0; lane < 16; ++lane) {
                lanes[lane] = fx_maximum_i32(lanes[lane], lanes[lane + 16]);
            }
            const int64_t count1 = (N / 16)*16;
            for (int64_t block = 0; block < count1 - count; block += 16) {
                #pragma omp simd
                for (int64_t lane = 0; lane < 16; ++lane) {
                    lanes[lane] = fx_maximum_i32(lanes[lane], x[i*N + count + block + lane]);
                }
            }
            const int64_t left = (N % 16);
            if (left > 0) {
                #pragma omp simd
                for (int64_t lane = 0; lane < 16; ++lane) {
                    lanes[lane] = fx_maximum_i32(lanes[lane], x[i*N + count1 + left + lane - 16]);
                }
            }
            #pragma omp simd
            for (int64_t lane = 0; lane < 8; ++lane) {
                lanes[lane] = fx_maximum_i32(lanes[lane], lanes[lane + 8]);
            }
            #pragma omp simd
            for (int64_t lane = 0; lane < 4; ++lane) {
                lanes[lane] = fx_maximum_i32(lanes[lane], lanes[lane + 4]);
            }
            total = fx_maximum_i32(fx_maximum_i32(lanes[0], lanes[1]),
                fx_maximum_i32(lanes[2], lanes[3]));
        }
        max[i] = total;
    }
}
