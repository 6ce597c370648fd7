/* avg_pool2d: f32[B,3,4,4] = avg_pool2d
 * program.py:1 */
static void k0_avg_pool2d(const float *restrict x, float *restrict avg_pool2d, int64_t B,
    int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (B*624 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < B*12; ++i) {
        float columns[8] = {0};
        for (int64_t r = 0; r < 2; ++r) {
            #pragma omp simd
            for (int64_t lane = 0; lane < 8; ++lane) {
                columns[lane] += x[(r + i*2)*8 + lane];
            }
        }
        #pragma omp simd
        for (int64_t lane = 0; lane < 4; ++lane) {
            avg_pool2d[i*4 + lane] = (columns[lane*2] + columns[lane*2 + 1]) / 4.0f;
        }
    }
}
