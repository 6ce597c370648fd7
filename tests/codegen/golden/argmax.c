/* argmax: i64[B] = argmax
 * program.py:1 */
static void k0_argmax(const float *restrict x, int64_t *restrict argmax, int64_t B, int64_t N,
    int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (B*N >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < B; ++i) {
        float best = -INFINITY;
        int64_t part = 0;
        for (int64_t block = 0; block < N; block += 1024) {
            const int64_t count = fx_min(1024, N - block);
            float total = -INFINITY;
            if (count < 16) {
                for (int64_t rest = 0; rest < count; ++rest) {
                    total = fx_maximum_f32(x[i*N + block + rest], total);
                }
            }
            if (count >= 16) {
                float lanes[64];
                for (int e = 0; e < 64; ++e) lanes[e] = -INFINITY;
                const int64_t count1 = fx_floor_div(count, 64)*64;
                for (int64_t block1 = 0; block1 < count1; block1 += 64) {
                    #pragma omp simd
                    for (int64_t lane = 0; lane < 64; ++lane) {
                        lanes[lane] = fx_maximum_f32(x[i*N + block + block1 + lane], lanes[lane]);
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
                const int64_t count2 = fx_floor_div(count, 16)*16;
                for (int64_t block1 = 0; block1 < count2 - count1; block1 += 16) {
                    #pragma omp simd
                    for (int64_t lane = 0; lane < 16; ++lane) {
                        lanes[lane] = fx_maximum_f32(x[i*N + block + count1 + block1 + lane],
                            lanes[lane]);
                    }
                }
                const int64_t left = fx_floor_mod(count, 16);
                if (left > 0) {
                    #pragma omp simd
                    for (int64_t lane = 0; lane < 16; ++lane) {
                        lanes[lane] = fx_maximum_f32(x[i*N + block + count2 + left + lane - 16],
                            lanes[lane]);
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
            if (total > best || (fx_isnan_f32(total) && !fx_isnan_f32(best))) {
                best = total;
                part = block;
            }
        }
        const int64_t count = fx_min(1024, N - part);
        const float limit = fx_isnan_f32(best) ? INFINITY
            : (best == -INFINITY ? NAN : fx_nextafter_f32(best, -INFINITY));
        int32_t total = 2147483647;
        if (count < 16) {
            for (int64_t rest = 0; rest < count; ++rest) {
                total = fx_minimum_i32(total, (!(x[i*N + part + rest] <= limit) ? (int32_t)rest
                    : 1024));
            }
        }
        if (count >= 16) {
            int32_t lanes[64];
            for (int e = 0; e < 64; ++e) lanes[e] = 2147483647;
            const int64_t count1 = fx_floor_div(count, 64)*64;
            for (int64_t block = 0; block < count1; block += 64) {
                #pragma omp simd
                for (int64_t lane = 0; lane < 64; ++lane) {
                    lanes[lane] = fx_minimum_i32(lanes[lane],
                        (!(x[i*N + part + block + lane] <= limit) ? (int32_t)(block + lane)
                        : 1024));
                }
            }
            #pragma omp simd
            for (int64_t lane = 0; lane < 32; ++lane) {
                lanes[lane] = fx_minimum_i32(lanes[lane], lanes[lane + 32]);
            }
            #pragma omp simd
            for (int64_t lane = 0; lane < 16; ++lane) {
                lanes[lane] = fx_minimum_i32(lanes[lane], lanes[lane + 16]);
            }
            const int64_t count2 = fx_floor_div(count, 16)*16;
            for (int64_t block = 0; block < count2 - count1; block += 16) {
                #pragma omp simd
                for (int64_t lane = 0; lane < 16; ++lane) {
                    lanes[lane] = fx_minimum_i32(lanes[lane],
                        (!(x[i*N + part + count1 + block + lane] <= limit)
                        ? (int32_t)(count1 + block + lane) : 1024));
                }
            }
            const int64_t left = fx_floor_mod(count, 16);
            if (left > 0) {
                #pragma omp simd
                for (int64_t lane = 0; lane < 16; ++lane) {
                    lanes[lane] = fx_minimum_i32(lanes[lane],
                        (!(x[i*N + part + count2 + left + lane - 16] <= limit)
                        ? (int32_t)(count2 + left + lane - 16) : 1024));
                }
            }
            #pragma omp simd
            for (int64_t lane = 0; lane < 8; ++lane) {
                lanes[lane] = fx_minimum_i32(lanes[lane], lanes[lane + 8]);
            }
            #pragma omp simd
            for (int64_t lane = 0; lane < 4; ++lane) {
                lanes[lane] = fx_minimum_i32(lanes[lane], lanes[lane + 4]);
            }
            total = fx_minimum_i32(fx_minimum_i32(lanes[0], lanes[1]),
                fx_minimum_i32(lanes[2], lanes[3]));
        }
        const int64_t where = part + (int64_t)total;
        argmax[i] = where;
    }
}
