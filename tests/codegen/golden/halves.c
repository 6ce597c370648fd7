/* cast_1: f32[N] = mul -> cast -> add -> cast
 * program.py:1 */
static void k0_cast_1(const uint16_t *restrict x, const uint16_t *restrict y,
    float *restrict cast_1, int64_t N, int n_threads) {
    #pragma omp parallel for simd num_threads(n_threads) if (parallel: N*2 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < N; ++i) {
        cast_1[i] =
            fx_f32_from_f16(fx_f16_from_f32(fx_f32_from_f16(fx_f16_from_f32(fx_f32_from_f16(x[i])
            * 3.0f)) + fx_f32_from_f16(fx_f16_from_f32(fx_f32_from_bf16(y[i])))));
    }
}

/* exp: bf16[N] = exp
 * program.py:1 */
static void k1_exp(const uint16_t *restrict y, uint16_t *restrict exp, int64_t N, int n_threads) {
    #pragma omp parallel for simd num_threads(n_threads) if (parallel: N*8 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < N; ++i) {
        exp[i] = fx_bf16_from_f32(fx_exp_f32(fx_f32_from_bf16(y[i])));
    }
}
