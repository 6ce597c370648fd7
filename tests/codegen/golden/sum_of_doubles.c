/* sum: f64 = mul -> sum
 * program.py:1 */
static void k0_sum(const double *restrict x, double *restrict sum, int64_t N) {
    double wide[16] = {0};
    double left[16] = {0};
    for (int64_t block = 0; block < (N / 16)*16; block += 1024) {
        double lanes[16] = {0};
        for (int64_t block1 = 0; block1 < fx_min(1024, (N / 16)*16 - block); block1 += 16) {
            #pragma omp simd
            for (int64_t lane = 0; lane < 16; ++lane) {
                const double t0 = x[block + block1 + lane];
                lanes[lane] += t0 * t0;
            }
        }
        #pragma omp simd
        for (int64_t lane = 0; lane < 16; ++lane) {
            const double t0 = lanes[lane];
            const double t1 = wide[lane] + t0;
            const double t2 = t1 - wide[lane];
            left[lane] += wide[lane] - (t1 - t2) + (t0 - t2);
            wide[lane] += t0;
        }
    }
    for (int64_t rest = 0; rest < N % 16; ++rest) {
        const double t0 = x[(N / 16)*16 + rest];
        const double mul = t0 * t0;
        const double t1 = wide[0] + mul;
        const double t2 = t1 - wide[0];
        left[0] += wide[0] - (t1 - t2) + (mul - t2);
        wide[0] += mul;
    }
    double wide1 = 0.0;
    double left1 = 0.0;
    for (int64_t lane = 0; lane < 16; ++lane) {
        const double t0 = wide[lane];
        const double t1 = wide1 + t0;
        const double t2 = t1 - wide1;
        left1 += wide1 - (t1 - t2) + (t0 - t2);
        wide1 += t0;
        left1 += left[lane];
    }
    const double total = fx_isnan_f64(left1) ? wide1 : wide1 + left1;
    sum[0] = total;
}
