/* prod: f64[5] = prod
 * program.py:1 */
static void k0_prod(const double *restrict x, double *restrict prod) {
    #pragma omp simd
    for (int64_t i = 0; i < 5; ++i) {
        prod[i] = 1.0;
    }
    for (int64_t r = 0; r < 3; ++r) {
        #pragma omp simd
        for (int64_t i = 0; i < 5; ++i) {
            prod[i] = prod[i] * x[i*3 + r];
        }
    }
}
