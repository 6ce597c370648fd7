/* add_1: i32[N] = floor_divide -> remainder -> add -> clip -> add
 * program.py:1 */
static void k0_add_1(const int32_t *restrict x, const uint8_t *restrict y, int32_t *restrict add_1,
    int64_t N, int n_threads) {
    #pragma omp parallel for simd num_threads(n_threads) if (parallel: N*20 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < N; ++i) {
        const int32_t t0 = x[i];
        add_1[i] = fx_minimum_i32(fx_maximum_i32(fx_floordiv_i32(t0, 3) + fx_mod_i32(t0, 7), -5),
            300) + (int32_t)y[i];
    }
}

/* bitwise_and: u8[N] = left_shift -> bitwise_and
 * program.py:1 */
static void k1_bitwise_and(const uint8_t *restrict y, uint8_t *restrict bitwise_and, int64_t N,
    int n_threads) {
    #pragma omp parallel for simd num_threads(n_threads) if (parallel: N*2 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < N; ++i) {
        bitwise_and[i] = fx_shl_u8(y[i], 2) & 63;
    }
}
