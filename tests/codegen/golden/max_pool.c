/* max_pool2d: f32[B,3,(H-1)//2+1,(W-1)//2+1] = max_pool2d
 * program.py:1 */
static void k0_max_pool2d(const float *restrict x, float *restrict max_pool2d, int64_t B,
    int64_t H, int64_t W, int n_threads) {
    const int64_t t0 = fx_min(1, fx_floor_div(W - 1, 2) + 1);
    const int64_t t1 = fx_max(t0, fx_min(fx_floor_div(W - 1, 2) + 1, W / 2));
    #pragma omp parallel for collapse(2) num_threads(n_threads) if (fx_min(1, fx_floor_div(W - 1, \
            2) + 1)*fx_floor_div(H - 1, 2)*B*162 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < B*3; ++i) {
        for (int64_t j = 0; j < fx_floor_div(H - 1, 2) + 1; ++j) {
            for (int64_t k = 0; k < t0; ++k) {
                float total = -INFINITY;
                for (int64_t r = 0; r < 3; ++r) {
                    if (j*2 + r - 1 >= 0 && j*2 + r - 1 < H) {
                        for (int64_t s = 0; s < 3; ++s) {
                            total = fx_maximum_f32(total,
                                (k*2 + s - 1 >= 0 && k*2 + s - 1 < W
                                ? x[(j*W + k)*2 + i*H*W + r*W + s - W - 1] : -INFINITY));
                        }
                    }
                }
                max_pool2d[i + fx_floor_div(W - 1, 2)*i + fx_floor_div(H - 1, 2)*i
                    + fx_floor_div(H - 1, 2)*fx_floor_div(W - 1, 2)*i + j
                    + fx_floor_div(W - 1, 2)*j + k] = total;
            }
            for (int64_t block = 0; block < t1 - t0; block += 256) {
                const int64_t count = fx_min(256, t1 - t0 - block);
                float total[256];
                for (int64_t e = 0; e < count; ++e) total[e] = -INFINITY;
                for (int64_t r = 0; r < 3; ++r) {
                    if (j*2 + r - 1 >= 0 && j*2 + r - 1 < H) {
                        #pragma omp simd
                        for (int64_t lane = 0; lane < count; ++lane) {
                            total[lane] = fx_maximum_f32(total[lane],
                                x[(j*W + t0 + block + lane)*2 + i*H*W + r*W - W - 1]);
                        }
                        #pragma omp simd
                        for (int64_t lane = 0; lane < count; ++lane) {
                            total[lane] = fx_maximum_f32(total[lane],
                                x[(j*W + t0 + block + lane)*2 + i*H*W + r*W - W]);
                        }
                        #pragma omp simd
                        for (int64_t lane = 0; lane < count; ++lane) {
                            total[lane] = fx_maximum_f32(total[lane],
                                x[(j*W + t0 + block + lane)*2 + i*H*W + r*W - W + 1]);
                        }
                    }
                }
                #pragma omp simd
                for (int64_t lane = 0; lane < count; ++lane) {
                    max_pool2d[i + fx_floor_div(W - 1, 2)*i + fx_floor_div(H - 1, 2)*i
                        + fx_floor_div(H - 1, 2)*fx_floor_div(W - 1, 2)*i + j
                        + fx_floor_div(W - 1, 2)*j + t0 + block + lane] = total[lane];
                }
            }
            for (int64_t k = 0; k < fx_floor_div(W - 1, 2) - t1 + 1; ++k) {
                float total = -INFINITY;
                for (int64_t r = 0; r < 3; ++r) {
                    if (j*2 + r - 1 >= 0 && j*2 + r - 1 < H) {
                        for (int64_t s = 0; s < 3; ++s) {
                            total = fx_maximum_f32(total,
                                ((t1 + k)*2 + s - 1 >= 0 && (t1 + k)*2 + s - 1 < W
                                ? x[(j*W + t1 + k)*2 + i*H*W + r*W + s - W - 1] : -INFINITY));
                        }
                    }
                }
                max_pool2d[i + fx_floor_div(W - 1, 2)*i + fx_floor_div(H - 1, 2)*i
                    + fx_floor_div(H - 1, 2)*fx_floor_div(W - 1, 2)*i + j
                    + fx_floor_div(W - 1, 2)*j + t1 + k] = total;
            }
        }
    }
}
