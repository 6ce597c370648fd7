/* prod: f64[5] = prod
 * program.py:1 */
static void k0_prod(const double *restrict x, double *restrict prod) {
    double total[5];
    for (int e = 0; e < 5; ++e) total[e] = 1.0;
    for (int64_t r = 0; r < 3; ++r) {
        #pragma omp simd
        for (int64_t lane = 0; lane < 5; ++lane) {
            total[lane] *= x[lane*3 + r];
        }
    }
    #pragma omp simd
    for (int64_t lane = 0; lane < 5; ++lane) {
        prod[lane] = total[lane];
    }
}
