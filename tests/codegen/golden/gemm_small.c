/* matmul: f32[1,48] = matmul
 * program.py:1
 * m = 1, n = 48, k = 64; tiles of all rows x 64.
 * The right operand is read in place, a strip of columns at a time. */
static void k0_matmul(const float *restrict x, const float *restrict y, float *restrict matmul,
                      void *restrict workspace)
{
    const int64_t strip = strip_columns(48, 64, 1);
    const int64_t strips = (48 + strip - 1) / strip;
    /* The sums of a strip for each thread. */
    float *const sums = workspace;
    for (int64_t panel = 0; panel < strips; ++panel) {
        const int64_t column_0 = panel*strip;
        const int64_t columns = fx_min(strip, 48 - column_0);
        float *const total = sums;
        const int64_t apart = strip + 32;
        multiply_strip_float(1, 1, columns, 64, x, 64, 1, y + column_0, 48, total, apart);
        #pragma omp simd
        for (int64_t j = 0; j < columns; ++j) {
            const int64_t column = column_0 + j;
            matmul[column] = total[j];
        }
    }
}
