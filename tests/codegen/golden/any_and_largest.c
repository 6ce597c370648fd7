/* any: bool[B] = gt -> any
 * program.py:1 */
static void k0_any(const int32_t *restrict x, unsigned char *restrict any, int64_t B, int64_t N,
    int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (B*N*2 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < B; ++i) {
        bool total = false;
        for (int64_t r = 0; r < N; ++r) {
            total = total || x[i*N + r] > 3;
        }
        any[i] = total;
    }
}

/* max: i32[B] = max
 * program.py:1 */
static void k1_max(const int32_t *restrict x, int32_t *restrict max, int64_t B, int64_t N,
    int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (B*N >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < B; ++i) {
        int32_t lanes[16];
        for (int e = 0; e < 16; ++e) lanes[e] = INT32_MIN;
        for (int64_t block = 0; block < (N / 16)*16; block += 16) {
            #pragma omp simd
            for (int64_t lane = 0; lane < 16; ++lane) {
                lanes[lane] = fx_maximum_i32(lanes[lane], x[i*N + block + lane]);
            }
        }
        for (int64_t rest = 0; rest < N % 16; ++rest) {
            lanes[0] = fx_maximum_i32(lanes[0], x[i*N + (N / 16)*16 + rest]);
        }
        int32_t total = INT32_MIN;
        for (int64_t lane = 0; lane < 16; ++lane) {
            total = fx_maximum_i32(total, lanes[lane]);
        }
        max[i] = total;
    }
}
