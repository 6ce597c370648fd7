/* add: u64[N] = sub -> floor_divide -> mul -> add
 * program.py:1 */
static void k0_add(const uint64_t *restrict x, const uint16_t *restrict y, uint64_t *restrict add,
    int64_t N, int n_threads) {
    #pragma omp parallel for simd num_threads(n_threads) if (parallel: N*11 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < N; ++i) {
        add[i] = fx_floordiv_u64(x[i] - 1ULL, 3ULL) + (uint64_t)(uint16_t)(y[i] * 70);
    }
}

/* mul_1: u16[N] = neg -> mul
 * program.py:1 */
static void k1_mul_1(const uint16_t *restrict y, uint16_t *restrict mul_1, int64_t N,
    int n_threads) {
    #pragma omp parallel for simd num_threads(n_threads) if (parallel: N*2 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < N; ++i) {
        const uint16_t t0 = y[i];
        mul_1[i] = (uint16_t)((uint16_t)(-t0) * t0);
    }
}

/* lt: bool[N] = lt
 * program.py:1 */
static void k2_lt(const uint64_t *restrict x, const int64_t *restrict z,
    unsigned char *restrict lt, int64_t N, int n_threads) {
    #pragma omp parallel for simd num_threads(n_threads) if (parallel: N*3 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < N; ++i) {
        const int64_t t0 = z[i];
        const uint64_t t1 = x[i];
        lt[i] = t0 < 0 ? false : t1 < (uint64_t)t0;
    }
}

/* gt: bool[N] = gt
 * program.py:1 */
static void k3_gt(const uint64_t *restrict x, unsigned char *restrict gt, int64_t N,
    int n_threads) {
    #pragma omp parallel for simd num_threads(n_threads) if (parallel: N >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < N; ++i) {
        gt[i] = x[i] > 9223372036854775808ULL;
    }
}
