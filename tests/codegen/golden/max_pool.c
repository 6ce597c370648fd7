/* max_pool2d: f32[B,3,(H-1)//2+1,(W-1)//2+1] = max_pool2d
 * program.py:1 */
static void k0_max_pool2d(const float *restrict x, float *restrict max_pool2d, int64_t B,
    int64_t H, int64_t W, int n_threads) {
    #pragma omp parallel for collapse(2) num_threads(n_threads) if (B*18 + fx_floor_div(W - 1, \
            2)*B*18 + fx_floor_div(H - 1, 2)*B*18 + fx_floor_div(H - 1, 2)*fx_floor_div(W - 1, \
            2)*B*18 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < B*3; ++i) {
        for (int64_t j = 0; j < fx_floor_div(H - 1, 2) + 1; ++j) {
            #pragma omp simd
            for (int64_t k = 0; k < fx_floor_div(W - 1, 2) + 1; ++k) {
                max_pool2d[i + fx_floor_div(W - 1, 2)*i + fx_floor_div(H - 1, 2)*i
                    + fx_floor_div(H - 1, 2)*fx_floor_div(W - 1, 2)*i + j
                    + fx_floor_div(W - 1, 2)*j + k] = -INFINITY;
            }
            for (int64_t r = 0; r < 3; ++r) {
                if (j*2 + r - 1 >= 0 && j*2 + r - 1 < H) {
                    #pragma omp simd
                    for (int64_t k = 0; k < fx_min(fx_floor_div(W - 1, 2) + 1, W / 2 + 1) - 1;
                        ++k) {
                        max_pool2d[i + fx_floor_div(W - 1, 2)*i + fx_floor_div(H - 1, 2)*i
                            + fx_floor_div(H - 1, 2)*fx_floor_div(W - 1, 2)*i + j
                            + fx_floor_div(W - 1, 2)*j + k + 1] =
                            fx_maximum_f32(max_pool2d[i + fx_floor_div(W - 1, 2)*i
                            + fx_floor_div(H - 1, 2)*i
                            + fx_floor_div(H - 1, 2)*fx_floor_div(W - 1, 2)*i + j
                            + fx_floor_div(W - 1, 2)*j + k + 1],
                            x[(j*W + k)*2 + i*H*W + r*W - W + 1]);
                    }
                    #pragma omp simd
                    for (int64_t k = 0; k < fx_floor_div(W - 1, 2) + 1; ++k) {
                        max_pool2d[i + fx_floor_div(W - 1, 2)*i + fx_floor_div(H - 1, 2)*i
                            + fx_floor_div(H - 1, 2)*fx_floor_div(W - 1, 2)*i + j
                            + fx_floor_div(W - 1, 2)*j + k] =
                            fx_maximum_f32(max_pool2d[i + fx_floor_div(W - 1, 2)*i
                            + fx_floor_div(H - 1, 2)*i
                            + fx_floor_div(H - 1, 2)*fx_floor_div(W - 1, 2)*i + j
                            + fx_floor_div(W - 1, 2)*j + k], x[(j*W + k)*2 + i*H*W + r*W - W]);
                    }
                    #pragma omp simd
                    for (int64_t k = 0; k < fx_min(fx_floor_div(W - 1, 2) + 1, W / 2); ++k) {
                        max_pool2d[i + fx_floor_div(W - 1, 2)*i + fx_floor_div(H - 1, 2)*i
                            + fx_floor_div(H - 1, 2)*fx_floor_div(W - 1, 2)*i + j
                            + fx_floor_div(W - 1, 2)*j + k] =
                            fx_maximum_f32(max_pool2d[i + fx_floor_div(W - 1, 2)*i
                            + fx_floor_div(H - 1, 2)*i
                            + fx_floor_div(H - 1, 2)*fx_floor_div(W - 1, 2)*i + j
                            + fx_floor_div(W - 1, 2)*j + k], x[(j*W + k)*2 + i*H*W + r*W - W + 1]);
                    }
                }
            }
        }
    }
}
