/* max_pool2d: f32[B,3,(H-1)//2+1,(W-1)//2+1] = max_pool2d
 * program.py:1 */
static void k0_max_pool2d(const float *restrict x, float *restrict max_pool2d, int64_t B,
    int64_t H, int64_t W, int n_threads) {
    #pragma omp parallel for collapse(2) num_threads(n_threads) if (fx_floor_div(H - 1, \
            2)*fx_floor_div(W - 1, 2)*B*3 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < B*3; ++i) {
        for (int64_t block = 0; block < fx_floor_div(H - 1, 2) + 1; block += 8) {
            const int64_t count = fx_min(8, fx_floor_div(H - 1, 2) - block + 1);
            for (int64_t block1 = 0; block1 < fx_floor_div(W - 1, 2) + 1; block1 += 256) {
                const int64_t count1 = fx_min(256, fx_floor_div(W - 1, 2) - block1 + 1);
                const int64_t t0 = fx_max(0, 1 - block1*2);
                const int64_t t1 = fx_min(count1*2 + 1, W - block1*2 + 1);
                float columns[4104];
                for (int64_t e = 0; e < (count1*2 + 1)*count; ++e) columns[e] = -INFINITY;
                for (int64_t r = 0; r < 3; ++r) {
                    for (int64_t row = 0; row < count; ++row) {
                        if ((block + row)*2 + r - 1 >= 0 && (block + row)*2 + r - 1 < H) {
                            #pragma omp simd
                            for (int64_t lane = 0; lane < t1 - t0; ++lane) {
                                columns[count1*row*2 + row + t0 + lane] =
                                    fx_maximum_f32(columns[count1*row*2 + row + t0 + lane],
                                    x[((block + row)*W + block1)*2 + i*H*W + r*W + t0 + lane - W
                                    - 1]);
                            }
                        }
                    }
                }
                for (int64_t row = 0; row < count; ++row) {
                    #pragma omp simd
                    for (int64_t lane = 0; lane < count1; ++lane) {
                        max_pool2d[i + fx_floor_div(W - 1, 2)*i + fx_floor_div(H - 1, 2)*i
                            + fx_floor_div(H - 1, 2)*fx_floor_div(W - 1, 2)*i + block
                            + fx_floor_div(W - 1, 2)*block + row + fx_floor_div(W - 1, 2)*row
                            + block1 + lane] = fx_maximum_f32(fx_maximum_f32(columns[(count1*row
                            + lane)*2 + row], columns[(count1*row + lane)*2 + row + 1]),
                            columns[count1*row*2 + row + lane*2 + 2]);
                    }
                }
            }
        }
    }
}
