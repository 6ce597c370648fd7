/* mul: f32[40,50,3] = permute -> mul
 * program.py:1 */
static void k0_mul(const float *restrict x, float *restrict mul) {
    #pragma omp simd
    for (int64_t i = 0; i < 2000; ++i) {
        for (int64_t j = 0; j < 3; ++j) {
            mul[i*3 + j] = x[j*2000 + i] * 2.0f;
        }
    }
}
