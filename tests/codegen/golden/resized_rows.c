/* interpolate_interpolate: f32[2,5,64] = reshape -> interpolate
 * program.py:1 */
static void k0_interpolate_interpolate(const float *restrict x,
    float *restrict interpolate_interpolate) {
    int64_t of_place[64] = {0};
    float of_place1[64] = {0};
    int64_t of_place2[64] = {0};
    float of_place3[64] = {0};
    #pragma omp simd
    for (int64_t i = 0; i < 64; ++i) {
        const float t0 = fx_maximum_f32(((float)i + 0.5f) * 0.375f - 0.5f, 0.0f);
        of_place[i] = fx_minimum_i64(fx_cast_f32_i64(fx_maximum_f32(((float)i + 0.5f) * 0.375f
            - 0.5f, 0.0f)), 23);
        of_place1[i] = 1.0f - fx_minimum_f32(fx_maximum_f32(t0
            - (float)fx_minimum_i64(fx_cast_f32_i64(t0), 23), 0.0f), 1.0f);
        of_place2[i] = fx_minimum_i64(fx_minimum_i64(fx_cast_f32_i64(t0), 23) + 1, 23);
        of_place3[i] = fx_minimum_f32(fx_maximum_f32(t0
            - (float)fx_minimum_i64(fx_cast_f32_i64(t0), 23), 0.0f), 1.0f);
    }
    for (int64_t i = 0; i < 10; ++i) {
        #pragma omp simd
        for (int64_t j = 0; j < 64; ++j) {
            interpolate_interpolate[i*64 + j] =
                x[i*24 + of_place[j]] * of_place1[j] + x[i*24 + of_place2[j]] * of_place3[j];
        }
    }
}

/* interpolate: f32[1,2,9,64] = permute -> interpolate -> permute -> reshape
 * program.py:1 */
static void k1_interpolate_interpolate_1(const float *restrict interpolate_interpolate,
    float *restrict interpolate) {
    for (int64_t i = 0; i < 2; ++i) {
        for (int64_t j = 0; j < 9; ++j) {
            const float t0 = (float)j;
            const float t1 = t0 + 0.5f;
            const float t2 = t1 * 0.5555556f;
            const float t3 = t2 - 0.5f;
            const float t4 = fx_maximum_f32(t3, 0.0f);
            const int64_t t5 = fx_cast_f32_i64(t4);
            const int64_t t6 = fx_minimum_i64(t5, 4);
            const float t7 = (float)t6;
            const float t8 = t4 - t7;
            const float t9 = fx_maximum_f32(t8, 0.0f);
            const float t10 = fx_minimum_f32(t9, 1.0f);
            const float t11 = 1.0f - t10;
            const int64_t t12 = t6 + 1;
            const int64_t t13 = fx_minimum_i64(t12, 4);
            #pragma omp simd
            for (int64_t k = 0; k < 64; ++k) {
                interpolate[(i*9 + j)*64 + k] =
                    interpolate_interpolate[(i*5 + t6)*64 + k] * t11
                    + interpolate_interpolate[(i*5 + t13)*64 + k] * t10;
            }
        }
    }
}
