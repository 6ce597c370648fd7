/* linear: f32[B,50] = linear
 * program.py:1
 * The plain loops, to check the fast version against. */
static void k0_linear(const float *restrict x, const float *restrict weight_packed,
                      const float *restrict bias, float *restrict linear, int64_t B, int n_threads)
{
    (void)n_threads;
    for (int64_t row = 0; row < B; ++row) {
        for (int64_t column = 0; column < 50; ++column) {
            float sum = 0;
            for (int64_t k = 0; k < 40; ++k) {
                sum += x[row*40 + k] * weight_packed[((column / 32)*40 + k)*32 + (column % 32)];
            }
            linear[row*50 + column] = sum + bias[column];
        }
    }
}
