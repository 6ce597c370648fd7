/* softmax: f32[B,N] = max -> sub -> exp -> sum -> div
 * program.py:1 */
static void k0_softmax(const float *restrict x, float *restrict softmax, int64_t B, int64_t N,
    int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (B*N*19 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < B; ++i) {
        float total = -INFINITY;
        if (N < 16) {
            for (int64_t rest = 0; rest < N; ++rest) {
                total = fx_maximum_f32(x[i*N + rest], total);
            }
        }
        if (N >= 16) {
            float lanes[64];
            for (int e = 0; e < 64; ++e) lanes[e] = -INFINITY;
            const int64_t count = (N / 64)*64;
            for (int64_t block = 0; block < count; block += 64) {
                #pragma omp simd
                for (int64_t lane = 0; lane < 64; ++lane) {
                    lanes[lane] = fx_maximum_f32(x[i*N + block + lane], lanes[lane]);
                }
            }
            #pragma omp simd
            for (int64_t lane = 0; lane < 32; ++lane) {
                lanes[lane] = fx_maximum_f32(lanes[lane], lanes[lane + 32]);
            }
            #pragma omp simd
            for (int64_t lane = 0; lane < 16; ++lane) {
                lanes[lane] = fx_maximum_f32(lanes[lane], lanes[lane + 16]);
            }
            const int64_t count1 = (N / 16)*16;
            for (int64_t block = 0; block < count1 - count; block += 16) {
                #pragma omp simd
                for (int64_t lane = 0; lane < 16; ++lane) {
                    lanes[lane] = fx_maximum_f32(x[i*N + count + block + lane], lanes[lane]);
                }
            }
            const int64_t left = (N % 16);
            if (left > 0) {
                #pragma omp simd
                for (int64_t lane = 0; lane < 16; ++lane) {
                    lanes[lane] = fx_maximum_f32(x[i*N + count1 + left + lane - 16], lanes[lane]);
                }
            }
            #pragma omp simd
            for (int64_t lane = 0; lane < 8; ++lane) {
                lanes[lane] = fx_maximum_f32(lanes[lane], lanes[lane + 8]);
            }
            #pragma omp simd
            for (int64_t lane = 0; lane < 4; ++lane) {
                lanes[lane] = fx_maximum_f32(lanes[lane], lanes[lane + 4]);
            }
            total = fx_maximum_f32(fx_maximum_f32(lanes[0], lanes[1]),
                fx_maximum_f32(lanes[2], lanes[3]));
        }
        float total1 = 0.0f;
        if (N < 16) {
            for (int64_t rest = 0; rest < N; ++rest) {
                const float softmax_exp = fx_exp_weight_f32(x[i*N + rest] - total);
                softmax[i*N + rest] = softmax_exp;
                total1 += softmax_exp;
            }
        }
        if (N >= 16) {
            double wide = 0.0;
            for (int64_t block = 0; block < N; block += 1024) {
                float lanes[16] = {0};
                const int64_t count = (fx_min(1024, N - block) / 16)*16;
                for (int64_t block1 = 0; block1 < count; block1 += 16) {
                    #pragma omp simd
                    for (int64_t lane = 0; lane < 16; ++lane) {
                        const float softmax_exp = fx_exp_weight_f32(x[i*N + block + block1
                            + lane] - total);
                        softmax[i*N + block + block1 + lane] = softmax_exp;
                        lanes[lane] += softmax_exp;
                    }
                }
                const int64_t left = (fx_min(1024, N - block) % 16);
                if (left > 0) {
                    #pragma omp simd
                    for (int64_t lane = 0; lane < 16; ++lane) {
                        const float softmax_exp = fx_exp_weight_f32(x[i*N + block + count + left
                            + lane - 16] - total);
                        softmax[i*N + block + count + left + lane - 16] = softmax_exp;
                        const float t0 = lanes[lane] + softmax_exp;
                        lanes[lane] = lane >= 16 - left ? t0 : lanes[lane];
                    }
                }
                #pragma omp simd
                for (int64_t lane = 0; lane < 8; ++lane) {
                    lanes[lane] += lanes[lane + 8];
                }
                #pragma omp simd
                for (int64_t lane = 0; lane < 4; ++lane) {
                    lanes[lane] += lanes[lane + 4];
                }
                wide += (double)(lanes[0] + lanes[1] + (lanes[2] + lanes[3]));
            }
            total1 = (float)wide;
        }
        #pragma omp simd
        for (int64_t j = 0; j < N; ++j) {
            softmax[i*N + j] = softmax[i*N + j] / total1;
        }
    }
}
