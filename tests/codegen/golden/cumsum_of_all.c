/* cumsum: i64[N] = cumsum
 * program.py:1 */
static void k0_cumsum(const int32_t *restrict x, int64_t *restrict cumsum, int64_t N) {
    int64_t total = 0;
    for (int64_t r = 0; r < N; ++r) {
        total += (int64_t)x[r];
        cumsum[r] = total;
    }
}
